/* picture_folder.c - see picture_folder.h. */
#include "data/examples/picture_folder.h"

#include <inttypes.h>
#include <string.h>

#include "data/line_reader.h"
#include "io/files.h"
#include "io/number.h"

#define PICTURES "imgs"
#define LISTS "metadata"
#define LIST_ENDING ".npy"
enum { FOLDER_FIELD, NAME_FIELD, NUMBER_FIELD, LABEL_FIELD, FIELDS };

static bool has_folder(hark_context *context, const char *folder, const char *name) {
  char path[HARK_PATH_BYTES];
  return hark_path_join(context, folder, name, path) == HARK_OK && hark_path_kind_of(path) == HARK_PATH_FOLDER;
}

bool hark_is_picture_folder(hark_context *context, const char *folder) {
  return has_folder(context, folder, PICTURES) && has_folder(context, folder, LISTS);
}

/* ---- a line ---- */

typedef struct list_field {
  char text[HARK_NAME_BYTES];
  size_t at;
} list_field;

static hark_status split_line(hark_context *context, const hark_line_reader *lines, list_field fields[FIELDS]) {
  size_t at = 0;
  for (int i = 0; i < FIELDS; i++) {
    while (at < lines->length && lines->line[at] == ' ') at++;
    size_t length = 0;
    while (at + length < lines->length && lines->line[at + length] != ' ') length++;
    if (length == 0 || length >= sizeof fields[i].text)
      return hark_lines_fail(context, lines, at, "expected the folder of a picture, its name, its number and its label");
    memcpy(fields[i].text, lines->line + at, length);
    fields[i].text[length] = '\0';
    fields[i].at = at;
    at += length;
  }
  return HARK_OK;
}

/* "imgs/0": names in the folder, never a path out of it. */
static bool is_below(char *path) {
  char *const slash = strchr(path, '/');
  if (slash == NULL) return hark_name_is_plain(path);
  *slash = '\0';
  const bool plain = hark_name_is_plain(path);
  *slash = '/';
  return plain && is_below(slash + 1);
}

static hark_status find_picture(hark_context *context, const hark_line_reader *lines, const char *folder, list_field fields[FIELDS],
                                char out[HARK_PATH_BYTES]) {
  char below[HARK_PATH_BYTES];
  if (!is_below(fields[FOLDER_FIELD].text) || !hark_name_is_plain(fields[NAME_FIELD].text))
    return hark_lines_fail(context, lines, 0, "expected names in the folder of the pictures");
  HARK_TRY(hark_path_join(context, folder, fields[FOLDER_FIELD].text, below));
  return hark_path_join(context, below, fields[NAME_FIELD].text, out);
}

static hark_status read_label(hark_context *context, const hark_line_reader *lines, const list_field *field, int32_t *out) {
  int64_t label = -1;
  const bool whole = hark_number_read_whole(field->text, strlen(field->text), &label);
  if (!whole || label < 0 || label > 1)
    return hark_lines_fail(context, lines, field->at, "label is \"%.20s\", expected 0 or 1", field->text);
  *out = (int32_t)label;
  return HARK_OK;
}

/* ---- lists ---- */

typedef struct list_reading {
  hark_context *context;
  const char *folder;
  int32_t side;
  hark_picture_function *use;
  void *closure;
  int64_t *count; /* counts lines instead, after the first picture */
  hark_grey_picture picture;
} list_reading;

static hark_status read_picture(list_reading *r, const hark_line_reader *lines) {
  list_field fields[FIELDS];
  char path[HARK_PATH_BYTES], reason[HARK_MESSAGE_BYTES];
  hark_listed_picture listed = {.picture = &r->picture, .path = path};
  HARK_TRY(split_line(r->context, lines, fields));
  HARK_TRY(find_picture(r->context, lines, r->folder, fields, path));
  HARK_TRY(read_label(r->context, lines, &fields[LABEL_FIELD], &listed.label));
  const hark_status status = hark_png_read(r->context, path, r->side, &r->picture);
  if (status == HARK_OK) return r->use(r->closure, &listed);
  memcpy(reason, hark_context_message(r->context), sizeof reason);
  return hark_fail(r->context, status, "%.700s (%s:%" PRId64 ")", reason, lines->path, lines->number);
}

static hark_status read_lines(list_reading *r, hark_line_reader *lines) {
  bool more = true;
  while (true) {
    HARK_TRY(hark_lines_next(r->context, lines, &more));
    if (!more) return HARK_OK;
    if (lines->number == 1 && lines->length > 0 && (unsigned char)lines->line[0] == 0x93)
      return hark_fail(r->context, HARK_UNSUPPORTED, "%.400s: is an array of NumPy, expected a text with a line for each picture",
                       lines->path);
    if (r->count == NULL || *r->count == 0) HARK_TRY(read_picture(r, lines));
    if (r->count != NULL) ++*r->count;
  }
}

static hark_status read_list(list_reading *r, const char *path) {
  hark_line_reader lines = {0};
  hark_status status = hark_lines_open(r->context, &lines, path);
  if (status == HARK_OK) status = read_lines(r, &lines);
  hark_lines_close(&lines);
  return status;
}

static bool is_list(const char *name) {
  const size_t length = strlen(name), ending = sizeof LIST_ENDING - 1;
  return name[0] != '.' && length > ending && strcmp(name + length - ending, LIST_ENDING) == 0;
}

static hark_status read_lists(list_reading *r, const char *lists, const hark_names *names) {
  char path[HARK_PATH_BYTES];
  int64_t found = 0;
  for (int64_t i = 0; i < names->count; i++) {
    if (!is_list(names->items[i])) continue;
    HARK_TRY(hark_path_join(r->context, lists, names->items[i], path));
    HARK_TRY(read_list(r, path));
    found++;
  }
  if (found > 0) return HARK_OK;
  return hark_fail(r->context, HARK_BAD_FILE, "%.400s: has no list of pictures, expected files named " LIST_ENDING, lists);
}

static hark_status read_folder(list_reading *r) {
  char lists[HARK_PATH_BYTES];
  hark_names names;
  HARK_TRY(hark_path_join(r->context, r->folder, LISTS, lists));
  HARK_TRY(hark_folder_list(r->context, lists, &names));
  const hark_status status = read_lists(r, lists, &names);
  hark_names_free(r->context, &names);
  hark_grey_picture_free(r->context, &r->picture);
  return status;
}

hark_status hark_picture_folder_read(hark_context *context, const char *folder, int32_t side, hark_picture_function *use, void *closure) {
  list_reading reading = {.context = context, .folder = folder, .side = side, .use = use, .closure = closure};
  return read_folder(&reading);
}

static hark_status take_size(void *closure, const hark_listed_picture *picture) {
  *(int64_t *)closure = (int64_t)picture->picture->height * picture->picture->width;
  return HARK_OK;
}

hark_status hark_picture_folder_measure(hark_context *context, const char *folder, int32_t side, int64_t *pixels) {
  int64_t count = 0, size = 0;
  list_reading reading = {.context = context, .folder = folder, .side = side, .use = take_size, .closure = &size, .count = &count};
  HARK_TRY(read_folder(&reading));
  *pixels = count * size; /* less than 2^63: a list has fewer lines than bytes */
  return HARK_OK;
}
