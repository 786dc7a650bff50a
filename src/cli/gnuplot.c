/* gnuplot.c - see gnuplot.h. */
#include "cli/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/json_write.h"
#include "io/number.h"

extern char **environ;

static hark_status beside(hark_context *context, const char *picture, const char *ending, char *out) {
  const int used = snprintf(out, HARK_PATH_BYTES, "%s%s", picture, ending);
  if (used >= 0 && used < HARK_PATH_BYTES) return HARK_OK;
  return hark_fail(context, HARK_TOO_LARGE, "%.64s...: path too long", picture);
}

/* Pictures are XML: what is no character there, as a control character or a byte that is not UTF-8, becomes '?'. */
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

/* A file's name, whatever it is: "~", "|", "<", "$", "-" and "+" in front say something else to gnuplot, so that a folder comes first; line ends are
 * written in double quotes, where backslashes and backquotes say something. */
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

hark_status hark_picture_begin(hark_context *context, const char *path, bool png, int width, int height, hark_picture *out) {
  out->curves = 0;
  out->data = out->script = hark_text_empty(context);
  HARK_TRY(beside(context, path, "", out->path));
  HARK_TRY(beside(context, path, ".dat", out->data_path));
  HARK_TRY(beside(context, path, ".gp", out->script_path));
  hark_text_append(&out->script, "set terminal %s size %d,%d%s noenhanced\nset output ", png ? "png" : "svg", width, height,
                   png ? "" : " background 'white'");
  append_path(&out->script, path);
  hark_text_append(&out->script, "\n");
  return HARK_OK;
}

/* One block of "x y" lines a curve, two empty lines between them. */
void hark_picture_add_curve(hark_picture *picture, const char *label, const double *points, int64_t count) {
  char x[HARK_NUMBER_BYTES], y[HARK_NUMBER_BYTES];
  hark_text_append(&picture->data, "%s# ", picture->curves++ > 0 ? "\n\n" : "");
  hark_text_append_shown(&picture->data, label);
  hark_text_append(&picture->data, "\n");
  for (int64_t p = 0; p < count; p++)
    hark_text_append(&picture->data, "%s %s\n", hark_number_print(points[2 * p], x), hark_number_print(points[2 * p + 1], y));
}

void hark_picture_append_curve(hark_picture *picture, int index, const char *style, const char *label) {
  append_path(&picture->script, picture->data_path);
  hark_text_append(&picture->script, " index %d with %s title ", index, style);
  hark_picture_append_quoted(&picture->script, label);
}

void hark_picture_free(hark_picture *picture) {
  hark_text_free(&picture->data);
  hark_text_free(&picture->script);
}

/* Runs gnuplot on a script. *there is false when there is no gnuplot to run. */
static hark_status run_gnuplot(hark_context *context, const char *script, bool *there) {
  char name[] = "gnuplot";
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, ".", script, path)); /* a name that begins with a dash is no flag */
  char *const arguments[] = {name, path, NULL};
  pid_t process;
  const int error = posix_spawnp(&process, name, NULL, NULL, arguments, environ);
  *there = error == 0;
  if (error == ENOENT) return HARK_OK;
  if (error != 0) return hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be started (error %d)", error);
  int result;
  while (waitpid(process, &result, 0) < 0) {
    if (errno != EINTR) return hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be waited for");
  }
  if (WIFEXITED(result) && WEXITSTATUS(result) == 127) *there = false; /* where spawning reports it so */
  if (*there && result != 0)
    return hark_fail(context, HARK_INTERNAL_ERROR, "gnuplot failed on %s; it and the data beside it were left", script);
  return HARK_OK;
}

static hark_status write_text(hark_context *context, const char *path, const hark_text *text) {
  HARK_TRY(text->status);
  return hark_file_write(context, path, hark_text_get(text), text->length);
}

static hark_status draw(hark_invocation *call, const hark_picture *picture) {
  hark_context *const context = call->context;
  bool there;
  HARK_TRY(write_text(context, picture->data_path, &picture->data));
  HARK_TRY(write_text(context, picture->script_path, &picture->script));
  HARK_TRY(run_gnuplot(context, picture->script_path, &there));
  if (!there) {
    hark_command_warn(call, "gnuplot is not installed (Debian: gnuplot-nox); left %s and %s: gnuplot %s makes the picture",
                      picture->data_path, picture->script_path, picture->script_path);
    return HARK_OK;
  }
  HARK_TRY(hark_file_remove(context, picture->data_path));
  HARK_TRY(hark_file_remove(context, picture->script_path));
  if (call->json) return HARK_OK;
  hark_text text = hark_text_empty(context);
  hark_text_append_shown(&text, picture->path);
  hark_text_append(&text, "\n");
  return hark_command_print(call, &text);
}

hark_status hark_picture_finish(hark_invocation *call, hark_picture *picture) {
  const hark_status status = draw(call, picture);
  hark_picture_free(picture);
  return status;
}
