/* lab_document.c - see lab_document.h. */
#include "cli/lab/lab_document.h"

#include <stdio.h>
#include <string.h>

#include "cli/lab/lab_print.h"
#include "io/temporary.h"

#define DOCUMENT_LIMIT ((size_t)1 << 26) /* bytes */

static bool is_written(const hark_lab_document *document) { return document->path[0] != 0; }

bool hark_lab_document_folder(const char *path, char out[HARK_PATH_BYTES]) {
  const size_t length = strlen(path);
  if (length <= 3 || length >= HARK_PATH_BYTES || strcmp(path + length - 3, ".md") != 0) return false;
  memcpy(out, path, length - 3);
  out[length - 3] = 0;
  return path[length - 4] != '/';
}

/* FOLDER/NAME.ENDING */
static hark_status path_of(const hark_lab_document *document, const char *name, const char *ending, char out[HARK_PATH_BYTES]) {
  char file[HARK_LAB_LABEL_BYTES + 8];
  (void)snprintf(file, sizeof file, "%s.%s", name, ending);
  return hark_path_join(document->call->context, document->folder, file, out);
}

static hark_status write_file(const hark_lab_document *document, const char *path, const hark_text *text) {
  hark_context *const context = document->call->context;
  HARK_TRY(text->status);
  HARK_TRY(hark_path_clean(context, path));
  return hark_file_write(context, path, hark_text_get(text), text->length);
}

/* The front page that exists now, or nothing. */
static hark_status read_front(const hark_lab_document *document, hark_text *out) {
  hark_context *const context = document->call->context;
  hark_path_kind kind = HARK_PATH_NONE;
  HARK_TRY(hark_path_examine(context, document->path, &kind));
  if (kind == HARK_PATH_NONE || kind == HARK_PATH_OTHER) return HARK_OK; /* a pipe has no document, and reading it would wait */
  HARK_TRY(hark_file_read(context, document->path, DOCUMENT_LIMIT, out));
  return hark_lab_markdown_check(context, document->path, out);
}

hark_status hark_lab_document_begin(hark_invocation *call, const char *path, hark_lab_document *document) {
  *document = (hark_lab_document){.call = call, .path = path, .rows = hark_text_empty(call->context)};
  if (!is_written(document)) return HARK_OK;
  (void)hark_lab_document_folder(path, document->folder); /* the command has checked the ending */
  hark_text front = hark_text_empty(call->context);
  const hark_status status = read_front(document, &front);
  hark_text_free(&front);
  return status == HARK_OK ? hark_folder_make(call->context, document->folder) : status;
}

/* *ours: the file is a page of hark lab of this experiment. */
static hark_status compare_title(const hark_lab_document *document, const char *name, const char *path, bool *ours) {
  char title[HARK_LAB_TITLE_BYTES];
  hark_lab_markdown_title(name, title);
  return hark_file_begins_with(document->call->context, path, title, ours);
}

hark_status hark_lab_document_check(const hark_lab_document *document, const hark_lab_entry *entry) {
  hark_context *const context = document->call->context;
  char path[HARK_PATH_BYTES];
  bool ours = true;
  if (!is_written(document)) return HARK_OK;
  HARK_TRY(path_of(document, entry->name, "md", path));
  HARK_TRY(hark_writer_check(context, path));
  if (hark_path_kind_of(path) != HARK_PATH_FILE) return HARK_OK;
  HARK_TRY(compare_title(document, entry->name, path, &ours));
  if (ours) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: exists and is not the page of this experiment, which begins with \"# Experiment %s\"", path,
                   entry->name);
}

hark_status hark_lab_document_add(hark_lab_document *document, const hark_lab_outcomes *outcomes, const hark_lab_entry *entry) {
  char path[HARK_PATH_BYTES];
  if (!is_written(document)) return HARK_OK;
  hark_text page = hark_text_empty(document->call->context);
  const char *const front = hark_path_name(document->path);
  if (outcomes != NULL)
    hark_lab_markdown_page(outcomes, entry, front, &page);
  else
    hark_lab_markdown_left_out(entry, front, &page);
  hark_status status = path_of(document, entry->name, "md", path);
  if (status == HARK_OK) status = write_file(document, path, &page);
  hark_text_free(&page);
  HARK_TRY(status);
  hark_lab_markdown_row(outcomes, entry, hark_path_name(document->folder), &document->rows);
  if (outcomes == NULL || outcomes->first->panel_count == 0) return HARK_OK;
  HARK_TRY(path_of(document, entry->name, "svg", path));
  return hark_lab_draw(document->call, outcomes->first, path);
}

/* A page whose experiment has another name now, or is gone. It may have been changed by hand, so it is not removed here. */
static hark_status warn_of_page(const hark_lab_document *document, const char *file) {
  char name[HARK_LAB_LABEL_BYTES], path[HARK_PATH_BYTES];
  const size_t length = strlen(file);
  bool ours = false;
  if (length <= 3 || length - 3 >= sizeof name || strcmp(file + length - 3, ".md") != 0) return HARK_OK;
  (void)snprintf(name, sizeof name, "%.*s", (int)(length - 3), file);
  if (hark_lab_find(name) >= 0) return HARK_OK;
  HARK_TRY(path_of(document, name, "md", path));
  if (hark_path_kind_of(path) != HARK_PATH_FILE) return HARK_OK;
  HARK_TRY(compare_title(document, name, path, &ours));
  if (ours) hark_command_warn(document->call, "%s: no experiment has this name; remove the page and its figure", path);
  return HARK_OK;
}

static hark_status warn_of_pages(const hark_lab_document *document) {
  hark_names names = {0};
  hark_status status = hark_folder_list(document->call->context, document->folder, &names);
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) status = warn_of_page(document, names.items[i]);
  hark_names_free(document->call->context, &names);
  return status;
}

hark_status hark_lab_document_write(hark_lab_document *document) {
  if (!is_written(document) || document->rows.length == 0) return HARK_OK;
  hark_text before = hark_text_empty(document->call->context), front = hark_text_empty(document->call->context);
  hark_status status = document->rows.status;
  if (status == HARK_OK) status = read_front(document, &before);
  if (status == HARK_OK) hark_lab_markdown_front(&before, &document->rows, &front);
  if (status == HARK_OK) status = write_file(document, document->path, &front);
  hark_text_free(&before);
  hark_text_free(&front);
  return status == HARK_OK ? warn_of_pages(document) : status;
}

void hark_lab_document_end(hark_lab_document *document) { hark_text_free(&document->rows); }
