/* report_samples.c - texts that a report's runs generated while they were trained: samples.jsonl of --sample-tokens. */
#include <inttypes.h>
#include <stddef.h>

#include "cli/report/report.h"
#include "json/jsonl.h"
#include "train/samples.h"

#define SAMPLES 12       /* of a run, at most: evenly spaced, with the first and the last */
#define TEXT_BYTES 2000u /* of a sample, at most */

static hark_status fail_memory(const hark_report *report) {
  return hark_fail(report->context, HARK_OUT_OF_MEMORY, "no memory for samples of text");
}

typedef struct sample_list {
  hark_report *report;
  const char *path;
  json_t *samples; /* in rising order of steps */
} sample_list;

static int64_t step_of(const json_t *sample) { return (int64_t)json_integer_value(json_object_get(sample, "step")); }

/* A resumed run writes the samples of repeated steps again: the last ones count. */
static hark_status take_line(void *user, const json_t *object, int64_t line) {
  sample_list *const list = user;
  if (!json_is_integer(json_object_get(object, "step")) || !json_is_string(json_object_get(object, "text")))
    return hark_fail(list->report->context, HARK_BAD_FILE, "%s:%" PRId64 ": no sample of text", list->path, line);
  for (size_t count; (count = json_array_size(list->samples)) > 0;) {
    if (step_of(json_array_get(list->samples, count - 1)) < step_of(object)) break;
    (void)json_array_remove(list->samples, count - 1);
  }
  return json_array_append_new(list->samples, json_deep_copy(object)) == 0 ? HARK_OK : fail_memory(list->report);
}

/* Its beginning, up to a character's end. */
static void append_member(const json_t *sample, const char *name, hark_text *text) {
  const json_t *const member = json_object_get(sample, name);
  const char *const bytes = json_is_string(member) ? json_string_value(member) : "";
  size_t length = json_string_length(member);
  const bool cut = length > TEXT_BYTES;
  if (cut)
    for (length = TEXT_BYTES; length > 0 && ((unsigned char)bytes[length] & 0xC0) == 0x80;) length--;
  hark_text_append(text, ",\"%s\":", name);
  hark_json_append_bytes(text, bytes, length);
  if (cut) hark_text_append(text, ",\"%s_cut\":true", name);
}

static hark_status append_samples(const sample_list *list, int64_t run, bool first) {
  hark_text *const text = &list->report->data;
  const size_t count = json_array_size(list->samples), shown = count < SAMPLES ? count : SAMPLES;
  hark_text_append(text, "%s\n{\"run\":%" PRId64 ",\"count\":%zu,\"texts\":[", first ? "" : ",", run, count);
  for (size_t i = 0; i < shown; i++) {
    const json_t *const sample = json_array_get(list->samples, shown > 1 ? i * (count - 1) / (shown - 1) : 0);
    hark_text_append(text, "%s{\"step\":%" PRId64, i > 0 ? "," : "", step_of(sample));
    append_member(sample, "prompt", text);
    append_member(sample, "text", text);
    hark_text_append(text, "}");
  }
  hark_text_append(text, "]}");
  return text->status;
}

hark_status hark_report_add_samples(hark_report *report) {
  bool first = true;
  hark_text_append(&report->data, ",\"samples\":[");
  for (int64_t i = 0; i < report->detailed && report->data.status == HARK_OK; i++) {
    const hark_report_run *const run = &report->runs[i];
    char path[HARK_PATH_BYTES];
    HARK_TRY(hark_path_join(report->context, run->path, HARK_SAMPLES_FILE, path));
    if (hark_path_kind_of(path) == HARK_PATH_NONE) continue;
    sample_list list = {report, path, json_array()};
    hark_status status = list.samples != NULL ? hark_jsonl_read(report->context, path, take_line, &list) : fail_memory(report);
    status = hark_report_keep_problem(report, run->index, status);
    if (status == HARK_OK && json_array_size(list.samples) > 0) {
      status = append_samples(&list, run->index, first);
      first = false;
    }
    json_decref(list.samples);
    HARK_TRY(status);
  }
  hark_text_append(&report->data, "]");
  return report->data.status;
}
