/* report.c - hark report: one HTML file about runs, which needs no network: curves, differences of configurations, kernels, evaluations,
 * attention over a text, speed and memory. */
#include "cli/report/report.h"

#include <hark/version.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/report/report_page.h"
#include "io/checkpoint_files.h"
#include "json/json.h"

#define AT(field) offsetof(hark_report_values, field)
static const hark_option options[] = {
    {"output", "output o", HARK_OPTION_STRING, AT(output), "report.html", NULL, NULL, "FILE", "the page", NULL},
    {"title", "title", HARK_OPTION_STRING, AT(title), "hark report", NULL, NULL, "TEXT", "title of the page", NULL},
    {"curves", "curves", HARK_OPTION_INT, AT(curves), "32", "[1, 256]", NULL, NULL,
     "show curves, configuration, kernels and memory of the first N runs; the others are only in the table", NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME",
     "checkpoint whose kernels and attention are shown: best, last or step-N; not given: best, or last if there is no "
     "best",
     NULL},
    {"kernels", "kernels", HARK_OPTION_INT, AT(kernels), "24", "[0, 1024]", NULL, NULL,
     "largest number of figures of kernels for each run; figures of positional kernels and of rotary rates are counted together", NULL},
    {"text", "text", HARK_OPTION_STRING, AT(text), "", NULL, NULL, "TEXT",
     "text that the models read; the page then shows their attention maps, or the chunks of architecture ahca", NULL},
    {"file", "file f", HARK_OPTION_STRING, AT(file), "", NULL, NULL, "FILE", "read this text from a file", "text none"},
    {"tokens", "tokens", HARK_OPTION_INT, AT(tokens), "64", "[2, 256]", NULL, NULL, "largest number of tokens of the text that are read",
     "text given or file given"},
    {"evaluation", "evaluation", HARK_OPTION_LIST, AT(evaluations), "", NULL, NULL, "FILE",
     "file of JSON that hark eval --json printed, for confusion matrices, loss by position and chunks; may be "
     "repeated",
     NULL},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof options[0]), NULL, sizeof(hark_report_values), false};

/* ---- shared by the parts ---- */

/* True if the text has it already; appends it otherwise. */
static bool has_line(hark_text *lines, const char *line) {
  const size_t length = strlen(line);
  for (const char *at = hark_text_get(lines); (at = strstr(at, line)) != NULL; at += length) /* none is empty */
    if ((at == hark_text_get(lines) || at[-1] == '\n') && at[length] == '\n') return true;
  hark_text_append(lines, "%s\n", line);
  return false;
}

hark_status hark_report_warn(hark_report *report, const char *message) {
  if (has_line(&report->warned, message)) return report->warned.status;
  if (report->warnings++ < HARK_REPORT_WARNINGS) hark_command_warn(report->call, "%s", message);
  return report->warned.status;
}

hark_status hark_report_refuse_file(hark_report *report, const char *option, hark_status status) {
  char message[HARK_MESSAGE_BYTES];
  if (status == HARK_OK || status == HARK_OUT_OF_MEMORY) return status;
  (void)snprintf(message, sizeof message, "%s", hark_context_message(report->context));
  return hark_fail(report->context, status, "--%s: %s", option, message);
}

hark_status hark_report_note(hark_report *report, int64_t index, const char *message) {
  hark_text item = hark_text_empty(report->context);
  if (index >= 0)
    hark_text_append(&item, "{\"run\":%" PRId64 ",\"text\":", index);
  else
    hark_text_append(&item, "{\"run\":null,\"text\":");
  hark_json_append_string(&item, message);
  hark_text_append(&item, "}");
  const bool again = strstr(hark_text_get(&report->problems), hark_text_get(&item)) != NULL;
  if (!again) hark_text_append(&report->problems, "%s%s", report->notes++ > 0 ? "," : "", hark_text_get(&item));
  const hark_status kept = item.status;
  hark_text_free(&item);
  HARK_TRY(kept);
  HARK_TRY(hark_report_warn(report, message));
  return report->problems.status;
}

hark_status hark_report_keep_problem(hark_report *report, int64_t index, hark_status status) {
  if (status == HARK_OK || status == HARK_OUT_OF_MEMORY) return status;
  return hark_report_note(report, index, hark_context_message(report->context));
}

void hark_report_append_numbers(const double *numbers, int64_t count, int64_t stride, hark_text *text) {
  hark_text_append(text, "[");
  for (int64_t i = 0; i < count; i++) {
    const double number = numbers[i * stride];
    if (number - number == 0) /* finite */
      hark_text_append(text, "%s%.5g", i > 0 ? "," : "", number);
    else
      hark_text_append(text, "%snull", i > 0 ? "," : "");
  }
  hark_text_append(text, "]");
}

void hark_report_append_series(const hark_series *series, hark_text *text) {
  hark_text_append(text, "{\"x\":[");
  for (int64_t p = 0; p < series->count; p++)
    hark_text_append(text, "%s%.0f", p > 0 ? "," : "", series->points[2 * p] - (p > 0 ? series->points[2 * (p - 1)] : 0));
  hark_text_append(text, "],\"y\":");
  hark_report_append_numbers(series->count > 0 ? series->points + 1 : NULL, series->count, 2, text);
  hark_text_append(text, "}");
}

/* ---- the document and the page ---- */

/* Of no use to any of the runs, it is a mistake of the command line. */
static hark_status check_checkpoint(hark_report *report) {
  const char *const name = report->values->checkpoint;
  bool found = false;
  for (int64_t i = 0; i < report->detailed && !found && name[0] != '\0'; i++) {
    char chosen[HARK_NAME_BYTES], inside[HARK_NAME_BYTES + 16], path[HARK_PATH_BYTES];
    if (hark_checkpoint_pointer_choose(report->context, report->runs[i].path, name, chosen) != HARK_OK) continue;
    (void)snprintf(inside, sizeof inside, HARK_CHECKPOINTS_FOLDER "/%s", chosen);
    HARK_TRY(hark_path_join(report->context, report->runs[i].path, inside, path));
    found = hark_path_kind_of(path) == HARK_PATH_FOLDER;
  }
  if (found || name[0] == '\0') return HARK_OK;
  return hark_fail(report->context, HARK_BAD_CONFIGURATION, "--checkpoint %s: no run has it (%s), expected best, last or step-N", name,
                   report->runs[0].path);
}

static hark_status collect(hark_report *report) {
  hark_text *const data = &report->data;
  HARK_TRY(hark_report_read_words(report));
  HARK_TRY(hark_report_read_evaluations(report));
  hark_text_append(data, "{\"hark\":\"%s\",\"title\":", HARK_VERSION_STRING);
  hark_json_append_string(data, report->values->title);
  HARK_TRY(hark_report_add_runs(report));
  if (report->found == 0)
    return hark_fail(report->context, HARK_NOT_FOUND, "none of the %d arguments is a run or a folder with runs",
                     hark_options_argument_count(report->call->options));
  HARK_TRY(check_checkpoint(report));
  HARK_TRY(hark_report_add_details(report));
  HARK_TRY(hark_report_add_differences(report));
  HARK_TRY(hark_report_add_samples(report));
  HARK_TRY(hark_report_add_kernels(report));
  HARK_TRY(hark_report_add_evaluations(report));
  HARK_TRY(hark_report_add_texts(report));
  hark_text_append(data, ",\"problems\":[%s]}", hark_text_get(&report->problems));
  return data->status;
}

/* "report.html: 3 runs, 1 damaged, 211 kB" */
static void append_summary(const hark_report *report, size_t bytes, hark_text *line) {
  char size[HARK_HUMAN_BYTES];
  hark_text_append_shown(line, report->values->output);
  hark_text_append(line, ": %" PRId64 " run%s", report->found, report->found == 1 ? "" : "s");
  if (report->damaged > 0) hark_text_append(line, ", %" PRId64 " damaged", report->damaged);
  if (report->running > 0) hark_text_append(line, ", %" PRId64 " running", report->running);
  if (report->found > report->detailed) hark_text_append(line, ", curves of the first %" PRId64, report->detailed);
  if (report->found > report->listed) hark_text_append(line, ", the table lists the first %" PRId64, report->listed);
  hark_text_append(line, ", %sB\n", hark_human((double)bytes, size));
}

static void append_summary_json(const hark_report *report, size_t bytes, hark_text *line) {
  hark_text_append(line, "{");
  hark_json_append_path(line, "output", report->values->output);
  hark_text_append(line,
                   ", \"runs\": %" PRId64 ", \"damaged\": %" PRId64 ", \"running\": %" PRId64 ", \"curves\": %" PRId64
                   ", \"listed\": %" PRId64 ", \"problems\": %" PRId64 ", \"bytes\": %zu}\n",
                   report->found, report->damaged, report->running, report->detailed, report->listed, report->notes, bytes);
}

static hark_status print_summary(hark_report *report, size_t bytes) {
  hark_text line = hark_text_empty(report->context);
  (report->call->json ? append_summary_json : append_summary)(report, bytes, &line);
  return hark_command_print_about(report->call, report->values->output, &line);
}

static hark_status write_page(hark_report *report) {
  hark_text page = hark_text_empty(report->context);
  hark_report_page_append(report->values->title, &report->data, &page);
  hark_status status = page.status;
  if (status == HARK_OK) status = hark_file_write(report->context, report->values->output, hark_text_get(&page), page.length);
  if (status == HARK_OK) status = print_summary(report, page.length);
  hark_text_free(&page);
  return status;
}

/* The context of the models that --text needs, and of the estimates of memory. */
static hark_status run(hark_invocation *call) {
  const hark_report_values *const values = call->values[0];
  char shown[HARK_SHOWN_BYTES];
  void *memory = NULL;
  HARK_TRY(hark_command_open(call, "cpu", 0, 0, false));
  hark_context *const context = call->context;
  const size_t bytes = (size_t)values->curves * sizeof(hark_report_run);
  hark_report report = {.call = call,
                        .context = context,
                        .values = values,
                        .data = hark_text_empty(context),
                        .problems = hark_text_empty(context),
                        .warned = hark_text_empty(context),
                        .words = hark_text_empty(context),
                        .evaluations = hark_text_empty(context)};
  HARK_TRY(hark_allocate(context, bytes, &memory));
  report.runs = memory;
  hark_status status = collect(&report);
  if (status == HARK_OK) status = write_page(&report);
  if (status == HARK_OK && report.refused > 0)
    status = hark_fail(context, report.refusal, "%s lacks %d of the %d arguments", hark_text_shown(values->output, shown), report.refused,
                       hark_options_argument_count(call->options));
  if (report.warnings > HARK_REPORT_WARNINGS)
    hark_command_warn(call, "%" PRId64 " more problems, which the page lists", report.warnings - HARK_REPORT_WARNINGS);
  hark_text_free(&report.data);
  hark_text_free(&report.problems);
  hark_text_free(&report.warned);
  hark_text_free(&report.words);
  hark_text_free(&report.evaluations);
  hark_release(context, report.places, report.place_bytes);
  hark_release(context, memory, bytes);
  return status;
}

static hark_status check(hark_invocation *call) {
  const hark_report_values *const values = call->values[0];
  const size_t bytes = strlen(values->title);
  if (values->text[0] == '\0' && hark_command_is_given(call, "text"))
    HARK_TRY(hark_options_complain(call->context, call->options, "text", "is empty, expected a text"));
  if (hark_report_utf8_bytes(values->title, bytes) == bytes) return HARK_OK;
  return hark_options_complain(call->context, call->options, "title", "is not UTF-8, and a page is");
}

const hark_command hark_command_report = {
    .name = "report",
    .arguments = "RUN|FOLDER...",
    .summary = "write one HTML page about runs: curves, differences, samples, kernels, attention, speed and memory",
    .notes =
        "  hark report runs                                     all runs in runs/, into report.html\n"
        "  hark report runs/a runs/b -o both.html --text 'The quick brown fox'\n"
        "  hark eval runs/a --json > a.json; hark report runs/a --evaluation a.json\n"
        "\n"
        "  The page is one file, which loads nothing. So it can be sent by mail, and opened without a network.\n"
        "  Damaged runs, and runs that a process still writes, are shown as far as they can be read, with the reason why the rest is "
        "missing.\n  A run that several arguments name is shown once. If an argument is no run, the page shows the others, and the exit "
        "code is 3.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .has_json = true,
    .tables = {&table},
    .check = check,
    .run = run,
};
