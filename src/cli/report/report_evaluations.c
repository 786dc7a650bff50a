/* report_evaluations.c - what hark eval measured, from files of its JSON: losses by position, confusion matrices, decisions. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/report/report.h"
#include "json/jsonl.h"

#define LINES 64   /* of all files, at most */
#define CLASSES 64 /* of a confusion matrix that is drawn */
#define DECISIONS 8
#define POSITIONS 128

typedef struct evaluation_list {
  hark_report *report;
  const char *file;
  int64_t lines; /* of all files */
} evaluation_list;

/* Members that are shown. The items of a list have a limit: of a matrix with more classes nothing is shown. */
static const struct {
  const char *name;
  size_t most;
  bool cut; /* to the first items, or left out */
} members[] = {{"run", 0, false},
               {"checkpoint", 0, false},
               {"part", 0, false},
               {"context", 0, false},
               {"stride", 0, false},
               {"loss", 0, false},
               {"accuracy", 0, false},
               {"majority", 0, false},
               {"examples", 0, false},
               {"targets", 0, false},
               {"perplexity", 0, false},
               {"positions", POSITIONS, true},
               {"ahca", 0, false},
               {"exchanged", 0, false},
               {"classes", CLASSES, false},
               {"confusion", CLASSES, false},
               {"decisions", DECISIONS, true}};

static hark_status append_member(hark_context *context, size_t member, json_t *value, hark_text *text) {
  json_t *const shown = json_copy(value);
  while (shown != NULL && members[member].cut && json_array_size(shown) > members[member].most)
    (void)json_array_remove(shown, json_array_size(shown) - 1);
  char *const words = shown != NULL ? json_dumps(shown, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
  json_decref(shown);
  if (words == NULL) return hark_fail(context, HARK_OUT_OF_MEMORY, "no memory for an evaluation");
  hark_text_append(text, ",\"%s\":%s", members[member].name, words);
  free(words);
  return text->status;
}

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  evaluation_list *const list = user;
  hark_text *const text = &list->report->evaluations;
  if (!json_is_number(json_object_get(object, "loss")) && !json_is_string(json_object_get(object, "run")))
    return hark_fail(list->report->context, HARK_BAD_FILE, "%s:%" PRId64 ": no line of hark eval --json", list->file, line);
  if (list->lines++ >= LINES) return HARK_OK;
  hark_text_append(text, "%s\n{\"class_count\":%zu", list->lines > 1 ? "," : "", json_array_size(json_object_get(object, "classes")));
  for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
    json_t *const value = json_object_get(object, members[i].name);
    if (value != NULL && (members[i].cut || json_array_size(value) <= members[i].most))
      HARK_TRY(append_member(list->report->context, i, value, text));
  }
  hark_text_append(text, "}");
  return text->status;
}

/* hark_jsonl_read() leaves out what is after the last line end: a killed process may have left it. */
static hark_status check_end(hark_context *context, const char *path) {
  uint64_t size = 0;
  int file = -1;
  char end = '\n';
  HARK_TRY(hark_file_open(context, path, &file, &size));
  hark_status status = size > 0 ? hark_file_read_at(context, file, path, &end, 1, size - 1) : HARK_OK;
  hark_file_close(&file);
  if (status == HARK_OK && end != '\n')
    status = hark_fail(context, HARK_BAD_FILE, "%s: does not end with a line end, expected complete lines of hark eval --json", path);
  return status;
}

static hark_status read_file(evaluation_list *list) {
  const int64_t before = list->lines;
  hark_context *const context = list->report->context;
  HARK_TRY(hark_jsonl_read(context, list->file, take_line, list));
  HARK_TRY(check_end(context, list->file));
  return list->lines > before ? HARK_OK
                              : hark_fail(context, HARK_BAD_FILE, "%s: has no lines, expected those of hark eval --json", list->file);
}

hark_status hark_report_read_evaluations(hark_report *report) {
  evaluation_list list = {.report = report};
  for (int64_t i = 0; i < report->values->evaluations.count; i++) {
    list.file = report->values->evaluations.items[i];
    HARK_TRY(hark_report_refuse_file(report, "evaluation", read_file(&list)));
  }
  report->evaluation_lines = list.lines;
  return report->evaluations.status;
}

hark_status hark_report_add_evaluations(hark_report *report) {
  hark_text_append(&report->data, ",\"evaluations\":[%s],\"evaluations_left_out\":%" PRId64, hark_text_get(&report->evaluations),
                   hark_max(0, report->evaluation_lines - LINES));
  return report->data.status;
}
