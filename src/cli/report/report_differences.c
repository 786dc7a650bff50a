/* report_differences.c - the options in which the configurations of a report's runs differ. */
#include <string.h>

#include "cli/model.h"
#include "cli/report/report.h"
#include "json/json.h"

/* The configurations of the detailed runs. */
typedef struct configurations {
  hark_report *report;
  hark_config *configs;
  hark_options **options; /* NULL: cannot be read */
} configurations;

/* The value of an option in a run as it is written; "" where it has no effect or the configuration cannot be read. */
static hark_status print_value(const configurations *c, int64_t run, const char *name, hark_text *out) {
  hark_text_resize(out, 0);
  const hark_options *const options = c->options[run];
  if (options != NULL && hark_options_has_effect(options, name)) hark_options_print_value(options, name, out);
  return out->status;
}

/* Places of a run, which always differ. */
static bool is_place(const char *name) { return strcmp(name, "run.directory") == 0; }

static hark_status differs(const configurations *c, const char *name, bool *out) {
  hark_text first = hark_text_empty(c->report->context), value = hark_text_empty(c->report->context);
  hark_status status = HARK_OK;
  bool begun = false;
  *out = false;
  for (int64_t i = 0; i < c->report->detailed && status == HARK_OK && !*out; i++) {
    if (c->options[i] == NULL) continue;
    status = print_value(c, i, name, begun ? &value : &first);
    if (begun && status == HARK_OK) *out = strcmp(hark_text_get(&first), hark_text_get(&value)) != 0;
    begun = true;
  }
  hark_text_free(&first);
  hark_text_free(&value);
  return status;
}

static hark_status append_row(const configurations *c, const char *name, bool begun, hark_text *text) {
  hark_text value = hark_text_empty(c->report->context);
  hark_status status = HARK_OK;
  hark_text_append(text, begun ? ",\n{\"key\":" : "\n{\"key\":");
  hark_json_append_string(text, name);
  hark_text_append(text, ",\"values\":[");
  for (int64_t i = 0; i < c->report->detailed && status == HARK_OK; i++) {
    hark_text_append(text, i > 0 ? "," : "");
    status = print_value(c, i, name, &value);
    if (c->options[i] == NULL || !hark_options_has_effect(c->options[i], name))
      hark_text_append(text, "null");
    else
      hark_json_append_string(text, hark_text_get(&value));
  }
  hark_text_append(text, "]}");
  hark_text_free(&value);
  return status;
}

static hark_status append_rows(const configurations *c, hark_text *text) {
  bool begun = false;
  for (int i = 0; i < hark_config_table.count; i++) {
    const char *const name = hark_config_table.options[i].name;
    bool different = false;
    if (!is_place(name)) HARK_TRY(differs(c, name, &different));
    if (!different) continue;
    HARK_TRY(append_row(c, name, begun, text));
    begun = true;
  }
  return text->status;
}

/* A configuration that cannot be read is a problem of its run. */
static hark_status read_all(configurations *c) {
  hark_report *const report = c->report;
  for (int64_t i = 0; i < report->detailed; i++) {
    char path[HARK_PATH_BYTES];
    HARK_TRY(hark_path_join(report->context, report->runs[i].path, "config.yaml", path));
    const hark_status status = hark_command_read_stored(report->call, path, &c->configs[i], &c->options[i]);
    if (status != HARK_OK) hark_options_destroy(report->context, &c->options[i]);
    if (status == HARK_OUT_OF_MEMORY) return status; /* other faults are in the report already */
  }
  return HARK_OK;
}

hark_status hark_report_add_differences(hark_report *report) {
  const size_t count = (size_t)report->detailed, config_bytes = count * sizeof(hark_config), option_bytes = count * sizeof(hark_options *);
  void *configs = NULL, *options = NULL;
  HARK_TRY(hark_allocate_zero(report->context, config_bytes, &configs));
  hark_status status = hark_allocate_zero(report->context, option_bytes, &options);
  configurations c = {report, configs, options};
  hark_text_append(&report->data, ",\"differences\":[");
  if (status == HARK_OK) status = read_all(&c);
  if (status == HARK_OK) status = append_rows(&c, &report->data);
  for (int64_t i = 0; c.options != NULL && i < report->detailed; i++) hark_options_destroy(report->context, &c.options[i]);
  hark_text_append(&report->data, "]");
  hark_release(report->context, options, option_bytes);
  hark_release(report->context, configs, config_bytes);
  return status;
}
