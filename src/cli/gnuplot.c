/* gnuplot.c - see gnuplot.h. */
#include "cli/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/process.h"
#include "io/json_write.h"
#include "io/number.h"
#include "io/temporary.h"

#define FONT "Arial"
#define MARGIN 0.04 /* of an axis, beyond the data at both ends: a curve at the end would be on the frame */
/* For screens that are dark: light and dark are exchanged, hues stay. */
#define DARK_STYLE "<style>@media (prefers-color-scheme: dark){svg{filter:invert(0.92) hue-rotate(180deg)}}</style>\n"
#define DATA_MARK "\x01" /* in a script: the place of the data's name; no displayed text contains it */

extern char **environ;

static hark_status next_to(hark_context *context, const char *picture, const char *ending, char *out) {
  const int used = snprintf(out, HARK_PATH_BYTES, "%s%s", picture, ending);
  if (used >= 0 && used < HARK_PATH_BYTES) return HARK_OK;
  return hark_fail(context, HARK_IO_ERROR, "%.64s...: path too long", picture);
}

/* Pictures are XML: a byte that is no character there, such as a control character or invalid UTF-8, becomes '?'. */
void hark_picture_append_quoted(hark_text *text, const char *value) {
  hark_text clean = hark_text_empty(text->context);
  hark_text_append_shown(&clean, value);
  if (clean.status != HARK_OK && text->status == HARK_OK) text->status = clean.status;
  const unsigned char *at = (const unsigned char *)hark_text_get(&clean), *const end = at + clean.length;
  hark_text_append_bytes(text, "'", 1);
  while (at < end) {
    const size_t length = hark_json_sequence_length(at, (size_t)(end - at));
    if (*at == '\'') hark_text_append_bytes(text, "'", 1);
    hark_text_append_bytes(text, length > 0 ? (const char *)at : "?", length > 0 ? length : 1);
    at += length > 0 ? length : 1;
  }
  hark_text_append_bytes(text, "'", 1);
  hark_text_free(&clean);
}

/* Any file name: "~", "|", "<", "$", "-" and "+" at its beginning have another meaning for gnuplot, so a folder is put before it; line ends
 * are written in double quotes, where backslashes and backquotes have a meaning. */
static void append_path(hark_text *text, const char *path) {
  const bool plain = strpbrk(path, "\n\r") == NULL, says_nothing = strchr("~|<$-+", path[0]) == NULL;
  hark_text_append(text, "%s%s", plain ? "'" : "\"", says_nothing ? "" : "./");
  for (const char *at = path; *at != 0; at++) {
    if (plain)
      hark_text_append(text, *at == '\'' ? "''" : "%c", *at);
    else if ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '/')
      hark_text_append_bytes(text, at, 1);
    else
      hark_text_append(text, "\\%03o", (unsigned)(unsigned char)*at);
  }
  hark_text_append(text, plain ? "'" : "\"");
}

hark_status hark_picture_check_place(hark_context *context, const char *path, const char *remedy) {
  static const char png[] = "\x89PNG";
  char first[1024];
  int descriptor = -1;
  uint64_t size = 0;
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind != HARK_PATH_FILE) return HARK_OK;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  const size_t bytes = size < sizeof first - 1 ? (size_t)size : sizeof first - 1;
  const hark_status status = hark_file_read_at(context, descriptor, path, first, bytes, 0);
  hark_file_close(&descriptor);
  HARK_TRY(status);
  first[bytes] = '\0';
  if (bytes == 0 || strstr(first, DARK_STYLE) != NULL || memcmp(first, png, sizeof png - 1) == 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is no picture of hark, and would be overwritten: %s", path, remedy);
}

hark_status hark_picture_begin(hark_context *context, const char *path, bool png, int width, int height, hark_picture *out) {
  *out = (hark_picture){.png = png, .data = hark_text_empty(context), .script = hark_text_empty(context)};
  HARK_TRY(next_to(context, path, "", out->path));
  HARK_TRY(next_to(context, path, ".dat", out->data_path));
  HARK_TRY(next_to(context, path, ".gp", out->script_path));
  if (!png)
    hark_text_append(&out->script, "set terminal svg size %d,%d font '" FONT ",%d' background 'white' noenhanced\n", width, height,
                     HARK_FONT_POINTS);
  else /* a gnuplot without cairo has no smooth lines */
    hark_text_append(&out->script,
                     "if (strstrt(GPVAL_TERMINALS, 'pngcairo') > 0) {\n"
                     "  set terminal pngcairo size %d,%d font 'sans-serif,%d' fontscale 2 linewidth 2 pointscale 2 noenhanced\n"
                     "} else {\n  set terminal png size %d,%d noenhanced\n}\n",
                     2 * width, 2 * height, HARK_FONT_POINTS, 2 * width, 2 * height);
  return HARK_OK;
}

/* ---- logarithmic axes ---- */

#define DECADES 300.0 /* high / low above which gnuplot's ticks, powers of ten, are enough */
#define OCTAVES 6.0   /* above which ticks at 1, 2 and 5 times powers of ten are enough */
#define STEPS 6       /* about so many ticks at multiples of a number, below it */

static void append_tick(hark_text *script, double at, int *count) {
  char text[HARK_NUMBER_BYTES];
  hark_text_append(script, "%s%s", (*count)++ > 0 ? ", " : "", hark_number_print(at, text));
}

/* 1, 2, 5, 10, ... times a power of ten. */
static void append_decades(hark_text *script, double low, double high) {
  static const double parts[] = {1, 2, 5};
  int count = 0;
  const int first = (int)floor(log10(low)), last = (int)floor(log10(high));
  for (int power = first; power <= last; power++)
    for (int i = 0; i < 3; i++) {
      const double at = parts[i] * pow(10, power);
      if (at >= low && at <= high) append_tick(script, at, &count);
    }
}

static void append_multiples(hark_text *script, double low, double high) {
  const double rough = (high - low) / STEPS, power = pow(10, floor(log10(rough)));
  const double step = power * (rough > 5 * power ? 10 : rough > 2 * power ? 5 : rough > power ? 2 : 1);
  int count = 0;
  const int64_t first = (int64_t)ceil(low / step), last = (int64_t)floor(high / step);
  for (int64_t i = first; i <= last; i++) append_tick(script, (double)i * step, &count);
}

void hark_picture_append_log_axis(hark_text *script, char axis, double low, double high) {
  char text[2][HARK_NUMBER_BYTES];
  hark_text_append(script, "set logscale %c\nset autoscale %c\nset %ctics autofreq\n", axis, axis, axis); /* not those of another panel */
  if (low > 0 && hark_picture_append_single(script, axis, low, high)) return;
  if (!(low > 0 && high > low && isfinite(high))) return;
  const double room = pow(high / low, MARGIN);
  low /= room;
  high *= room;
  hark_text_append(script, "set %crange [%s:%s]\n", axis, hark_number_print(low, text[0]), hark_number_print(high, text[1]));
  if (high > DECADES * low) return;
  hark_text_append(script, "set %ctics (", axis);
  (high > OCTAVES * low ? append_decades : append_multiples)(script, low, high);
  hark_text_append(script, ")\n");
}

void hark_picture_append_range(hark_text *script, char axis, double low, double high) {
  char text[2][HARK_NUMBER_BYTES];
  const double room = MARGIN * (high - low);
  if (hark_picture_append_single(script, axis, low, high) || !(low < high && isfinite(room))) return;
  hark_text_append(script, "set %crange [%s:%s]\n", axis, hark_number_print(low - room, text[0]), hark_number_print(high + room, text[1]));
}

bool hark_picture_append_single(hark_text *script, char axis, double low, double high) {
  char text[2][HARK_NUMBER_BYTES];
  const double room = low != 0 ? fabs(low) / 20 : 1;
  if (!(low == high && isfinite(low + room))) return false;
  hark_text_append(script, "set %crange [%s:%s]\n", axis, hark_number_print(low - room, text[0]), hark_number_print(high + room, text[1]));
  return true;
}

void hark_picture_extend(const double *points, int64_t count, char axis, double *low, double *high) {
  for (int64_t i = 0; i < count; i++) {
    const double number = points[2 * i + (axis == 'y')];
    if (!isfinite(number) || number <= 0) continue;
    *low = fmin(*low, number);
    *high = fmax(*high, number);
  }
}

hark_line_look hark_picture_line_look(int index) { return (hark_line_look){index % HARK_COLORS, index / HARK_COLORS % HARK_DASHES + 1}; }

const char *hark_picture_color(int index, char out[HARK_COLOR_BYTES]) {
  static const char *const colors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3f98", "#6b6b6b"};
  const int known = (int)(sizeof colors / sizeof *colors);
  if (index < known) {
    (void)snprintf(out, HARK_COLOR_BYTES, "%s", colors[index]);
    return out;
  }
  const double turn = fmod(0.381966 * index, 1); /* the golden angle: neighbours differ most; darker than the others */
  unsigned parts[3];
  for (int i = 0; i < 3; i++) parts[i] = (unsigned)lround(255 * (0.27 + 0.25 * cos(6.283185307 * (turn - i / 3.0))));
  (void)snprintf(out, HARK_COLOR_BYTES, "#%02x%02x%02x", parts[0], parts[1], parts[2]);
  return out;
}

/* One block of "x y" lines per curve, with two empty lines between blocks. */
void hark_picture_add_curve(hark_picture *picture, const char *label, const double *points, int64_t count) {
  char x[HARK_NUMBER_BYTES], y[HARK_NUMBER_BYTES];
  hark_text_append(&picture->data, "%s# ", picture->curves++ > 0 ? "\n\n" : "");
  hark_text_append_shown(&picture->data, label);
  hark_text_append(&picture->data, "\n");
  for (int64_t p = 0; p < count; p++)
    hark_text_append(&picture->data, "%s %s\n", hark_number_print(points[2 * p], x), hark_number_print(points[2 * p + 1], y));
}

void hark_picture_append_curve(hark_picture *picture, int index, const char *style, const char *label) {
  hark_text_append(&picture->script, DATA_MARK " index %d with %s title ", index, style);
  hark_picture_append_quoted(&picture->script, label);
}

void hark_picture_free(hark_picture *picture) {
  hark_text_free(&picture->data);
  hark_text_free(&picture->script);
}

/* The script with the name of the data in the marked places. */
static void append_script(const hark_picture *picture, const char *data, hark_text *out) {
  const char *at = hark_text_get(&picture->script);
  for (size_t length; *at != '\0'; at += length) {
    length = strcspn(at, DATA_MARK);
    hark_text_append_bytes(out, at, length);
    if (at[length] == '\0') continue;
    hark_text_append_bytes(out, data, strlen(data));
    length++;
  }
}

/* ---- running gnuplot: it reads a script with the data and writes the picture, without files in between ---- */

static hark_status print_input(const hark_picture *picture, hark_text *out) {
  hark_text_append(out, "$data << END_OF_DATA\n");
  hark_text_append_bytes(out, hark_text_get(&picture->data), picture->data.length);
  hark_text_append(out, "END_OF_DATA\n");
  append_script(picture, "$data", out);
  return picture->data.status != HARK_OK ? picture->data.status : picture->script.status != HARK_OK ? picture->script.status : out->status;
}

typedef struct gnuplot {
  pid_t process;
  int stream; /* its standard input and output */
} gnuplot;

/* *there is false when there is no gnuplot. */
static hark_status start(hark_context *context, gnuplot *out, bool *there) {
  char name[] = "gnuplot", standard_input[] = "-";
  char *const arguments[] = {name, standard_input, NULL};
  int ends[2];
  sigset_t restored;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return hark_fail(context, HARK_IO_ERROR, "gnuplot: no stream: %s", strerror(errno));
  (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  (void)sigemptyset(&restored);
  hark_process_add_restored(&restored);
  int error = posix_spawn_file_actions_init(&actions);
  if (error == 0 && (error = posix_spawnattr_init(&attributes)) != 0) (void)posix_spawn_file_actions_destroy(&actions);
  if (error == 0) {
    error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (error == 0) error = posix_spawnattr_setsigdefault(&attributes, &restored);
    if (error == 0) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    if (error == 0) error = posix_spawnp(&out->process, name, &actions, &attributes, arguments, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
  }
  (void)close(ends[1]);
  out->stream = ends[0];
  *there = error == 0;
  if (error != 0) (void)close(ends[0]);
  return error == 0 || error == ENOENT ? HARK_OK : hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be started: %s", strerror(error));
}

/* Sends some of the remaining input, without a signal when gnuplot has ended: its exit code reports the failure. */
static void send_some(int stream, const char *text, size_t length, size_t *sent) {
  const ssize_t put = send(stream, text + *sent, length - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put >= 0) *sent += (size_t)put;
  if (put < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) *sent = length;
  if (*sent == length) (void)shutdown(stream, SHUT_WR);
}

/* Sends gnuplot its input and reads its output, each when the stream is ready. */
static hark_status exchange(hark_context *context, int stream, const hark_text *input, hark_text *output) {
  static char part[1 << 14];
  const char *const text = hark_text_get(input);
  for (size_t sent = 0;;) {
    struct pollfd wait = {.fd = stream, .events = sent < input->length ? POLLIN | POLLOUT : POLLIN};
    if (poll(&wait, 1, -1) < 0) {
      if (errno == EINTR) continue;
      return hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be waited for: %s", strerror(errno));
    }
    if (sent < input->length && (wait.revents & (POLLOUT | POLLHUP | POLLERR)) != 0) send_some(stream, text, input->length, &sent);
    if ((wait.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const ssize_t got = recv(stream, part, sizeof part, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    if (got < 0 && errno != ECONNRESET) return hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be read: %s", strerror(errno));
    if (got <= 0) return HARK_OK; /* it ended; ECONNRESET: before it had read everything */
    hark_text_append_bytes(output, part, (size_t)got);
    HARK_TRY(output->status);
  }
}

typedef enum outcome { DRAWN, NOT_THERE, FAILED } outcome;

/* An SVG with what gnuplot cannot write: a second font where the first one is missing, and the style for dark screens before the first
 * element. Gnuplot escapes quotes in texts, so that the attribute cannot be a part of one. */
static hark_status append_svg(hark_context *context, const hark_text *drawn, hark_writer *writer) {
  static const char font[] = "font-family=\"" FONT "\"", fonts[] = "font-family=\"" FONT ", sans-serif\"", root[] = "<svg";
  const char *at = hark_text_get(drawn), *const end = at + drawn->length;
  const char *const open = strstr(at, root), *const close = open != NULL ? strchr(open, '>') : NULL;
  if (close != NULL) {
    HARK_TRY(hark_writer_append(context, writer, at, (size_t)(close + 1 - at)));
    HARK_TRY(hark_writer_append(context, writer, "\n" DARK_STYLE, sizeof DARK_STYLE));
    at = close + 1;
  }
  for (const char *found; (found = strstr(at, font)) != NULL; at = found + sizeof font - 1) {
    HARK_TRY(hark_writer_append(context, writer, at, (size_t)(found - at)));
    HARK_TRY(hark_writer_append(context, writer, fonts, sizeof fonts - 1));
  }
  return hark_writer_append(context, writer, at, (size_t)(end - at));
}

/* Reads what gnuplot draws. */
static hark_status run_gnuplot(hark_context *context, const hark_text *input, hark_text *drawn, outcome *out) {
  gnuplot g;
  bool there;
  *out = NOT_THERE;
  HARK_TRY(start(context, &g, &there));
  if (!there) return HARK_OK;
  const hark_status status = exchange(context, g.stream, input, drawn);
  (void)close(g.stream); /* where we gave up, gnuplot ends because it has no reader */
  int result;
  while (waitpid(g.process, &result, 0) < 0) {
    if (errno != EINTR) return hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be waited for");
  }
  if (WIFEXITED(result) && WEXITSTATUS(result) == 127) return status; /* where spawning reports it so */
  *out = result == 0 && drawn->length > 0 ? DRAWN : FAILED;
  return status;
}

/* Writes the input of gnuplot to files, to find out why it failed, or to run it elsewhere. */
static hark_status leave_files(hark_context *context, const hark_picture *picture) {
  hark_text script = hark_text_empty(context), data = hark_text_empty(context);
  hark_status status = hark_file_write(context, picture->data_path, hark_text_get(&picture->data), picture->data.length);
  append_path(&data, picture->data_path);
  hark_text_append(&script, "set output ");
  append_path(&script, picture->path);
  hark_text_append(&script, "\n");
  append_script(picture, hark_text_get(&data), &script);
  if (status == HARK_OK) status = data.status != HARK_OK ? data.status : script.status;
  if (status == HARK_OK) status = hark_file_write(context, picture->script_path, hark_text_get(&script), script.length);
  hark_text_free(&data);
  hark_text_free(&script);
  return status;
}

static hark_status draw_into(hark_invocation *call, const hark_picture *picture, const hark_text *input, hark_writer *writer) {
  static const char no_gnuplot[] = "gnuplot is not installed (Debian: gnuplot-nox)";
  hark_context *const context = call->context;
  outcome what;
  hark_text drawn = hark_text_empty(context);
  hark_status status = run_gnuplot(context, input, &drawn, &what);
  if (status == HARK_OK && what == DRAWN)
    status = picture->png ? hark_writer_append(context, writer, hark_text_get(&drawn), drawn.length) : append_svg(context, &drawn, writer);
  hark_text_free(&drawn);
  HARK_TRY(status);
  if (what == DRAWN) {
    HARK_TRY(hark_writer_commit(context, writer, NULL));
    if (call->json || picture->silent) return HARK_OK;
    hark_text text = hark_text_empty(context);
    hark_text_append_shown(&text, picture->path);
    hark_text_append(&text, "\n");
    return hark_command_print_about(call, picture->path, &text);
  }
  if (writer->straight) {
    return hark_fail(context, HARK_INTERNAL_ERROR, "%s: %s", picture->path, what == FAILED ? "gnuplot failed" : no_gnuplot);
  }
  hark_writer_discard(writer);
  HARK_TRY(leave_files(context, picture));
  if (what == FAILED)
    return hark_fail(context, HARK_INTERNAL_ERROR, "gnuplot failed; %s and %s were left: gnuplot %s shows why", picture->script_path,
                     picture->data_path, picture->script_path);
  static const char makes[] = "%s; wrote %s and %s: gnuplot %s draws the picture";
  if (!picture->optional)
    return hark_fail(context, HARK_INTERNAL_ERROR, makes, no_gnuplot, picture->data_path, picture->script_path, picture->script_path);
  hark_command_warn(call, makes, no_gnuplot, picture->data_path, picture->script_path, picture->script_path);
  return HARK_OK;
}

static hark_status draw(hark_invocation *call, const hark_picture *picture) {
  hark_writer writer = {0};
  hark_text input = hark_text_empty(call->context);
  hark_status status = print_input(picture, &input);
  if (status == HARK_OK) status = hark_path_clean(call->context, picture->path);
  if (status == HARK_OK) status = hark_writer_open(call->context, &writer, picture->path);
  if (status == HARK_OK) status = draw_into(call, picture, &input, &writer);
  hark_writer_discard(&writer);
  hark_text_free(&input);
  return status;
}

hark_status hark_picture_finish(hark_invocation *call, hark_picture *picture) {
  const hark_status status = draw(call, picture);
  hark_picture_free(picture);
  return status;
}
