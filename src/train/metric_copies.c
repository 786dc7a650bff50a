/* metric_copies.c - see metric_copies.h. */
#include "train/metric_copies.h"

#include <string.h>

#include "json/jsonl_csv.h"

#define METRICS "metrics.jsonl"
#define TABLE "metrics.csv"

/* ---- event files ---- */

/* The progress is in several lines of a step; that of its losses in training is taken, so that no number of a step is there twice. */
static bool is_copied(const json_t *object, const char *name, const json_t *value) {
  if (!json_is_number(value) || strcmp(name, "step") == 0 || strcmp(name, "time") == 0) return false;
  return (strcmp(name, "tokens") != 0 && strcmp(name, "operations") != 0) || json_object_get(object, "train/loss") != NULL;
}

static hark_status add_object(hark_context *context, hark_metric_copies *copies, const json_t *object) {
  const char *name;
  json_t *value;
  if (json_object_get(object, "skipped") != NULL) return HARK_OK; /* its step may have another line */
  hark_event_begin(&copies->events, copies->began + json_number_value(json_object_get(object, "time")),
                   json_integer_value(json_object_get(object, "step")));
  json_object_foreach((json_t *)object, name, value) {
    if (is_copied(object, name, value)) hark_event_scalar(&copies->events, name, json_number_value(value));
  }
  return hark_event_end(context, &copies->events);
}

typedef struct replay {
  hark_context *context;
  hark_metric_copies *copies;
} replay;

static hark_status add_line(void *user, const json_t *object, int64_t line) {
  const replay *const r = user;
  (void)line;
  return add_object(r->context, r->copies, object);
}

hark_status hark_metric_copies_open(hark_context *context, const hark_config *config, const hark_run *run, double seconds,
                                    hark_metric_copies *out) {
  char path[HARK_PATH_BYTES];
  replay r = {context, out};
  if (!config->run.tensorboard) return HARK_OK;
  out->began = hark_event_time() - seconds;
  HARK_TRY(hark_run_path(context, run, METRICS, path));
  HARK_TRY(hark_event_file_create(context, &out->events, run->path));
  HARK_TRY(hark_jsonl_read(context, path, add_line, &r));
  return hark_event_files_remove(context, run->path, out->events.path);
}

hark_status hark_metric_copies_add(hark_context *context, hark_metric_copies *copies, const hark_text *line) {
  json_t *object;
  if (!copies->events.open) return HARK_OK;
  HARK_TRY(hark_json_parse(context, METRICS, line->data, line->length, &object));
  const hark_status status = add_object(context, copies, object);
  json_decref(object);
  return status;
}

hark_status hark_metric_copies_close(hark_context *context, hark_metric_copies *copies) {
  return hark_event_file_close(context, &copies->events);
}

/* ---- the table ---- */

hark_status hark_metric_copies_write_csv(hark_context *context, const hark_config *config, const hark_run *run) {
  char from[HARK_PATH_BYTES], to[HARK_PATH_BYTES];
  if (!config->run.csv) return HARK_OK;
  HARK_TRY(hark_run_path(context, run, METRICS, from));
  HARK_TRY(hark_run_path(context, run, TABLE, to));
  return hark_jsonl_write_csv(context, from, to);
}
