/* verify.c - hark verify: whether runs and checkpoints are undamaged and complete. */
#include "train/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "json/json.h"

/* The findings of one run. */
typedef struct verify_view {
  bool json;
  hark_text text;
  int64_t count;
} verify_view;

/* Names and messages may contain text of a file: JSON's escapes keep it from controlling the terminal. */
static void show(void *user, const hark_finding *finding) {
  verify_view *view = user;
  hark_text *text = &view->text;
  if (view->json) {
    hark_text_append(text, "%s{\"what\": ", view->count++ > 0 ? ", " : "");
    hark_json_append_string(text, finding->what);
    hark_text_append(text, ", \"good\": %s", finding->problem == NULL ? "true" : "false");
    if (finding->problem != NULL) {
      hark_text_append(text, ", \"problem\": ");
      hark_json_append_string(text, finding->problem);
    }
    if (finding->note != NULL) {
      hark_text_append(text, ", \"note\": ");
      hark_json_append_string(text, finding->note);
    }
    hark_text_append(text, "}");
    return;
  }
  const size_t name = strlen(finding->what);
  hark_text_append(text, "  %-4s  ", finding->problem == NULL ? "good" : "BAD");
  hark_text_append_shown(text, finding->what);
  if (finding->problem == NULL && finding->note == NULL) {
    hark_text_append(text, "\n");
    return;
  }
  hark_text_append(text, "%*s", name < 24 ? (int)(24 - name) : 1, "");
  hark_json_append_string(text, finding->problem != NULL ? finding->problem : finding->note);
  hark_text_append(text, "\n");
}

static hark_status verify_one(hark_invocation *call, const char *path, verify_view *view, int64_t *problems) {
  hark_text *text = &view->text;
  view->count = 0;
  if (view->json) {
    hark_text_append(text, "{\"path\": ");
    hark_json_append_string(text, path);
    hark_text_append(text, ", \"findings\": [");
  } else {
    hark_text_append_shown(text, path);
    hark_text_append(text, "\n");
  }
  hark_run opened;
  char checkpoint[HARK_NAME_BYTES];
  int64_t found = 0;
  const hark_status status = hark_run_open_reading(call->context, path, &opened, checkpoint);
  if (status == HARK_OK) {
    HARK_TRY(hark_run_verify(call->context, &opened, checkpoint, show, view, &found));
  } else if (status == HARK_NOT_FOUND || status == HARK_BAD_FILE) {
    const hark_finding finding = {.what = path, .problem = hark_context_message(call->context)};
    show(view, &finding);
    found = 1;
  } else {
    return status;
  }
  if (view->json) hark_text_append(text, "], \"problems\": %" PRId64 "}", found);
  *problems += found;
  return HARK_OK;
}

static hark_status run(hark_invocation *call) {
  HARK_TRY(hark_command_open(call, "reference", 1, 0, false));
  verify_view view = {.json = call->json, .text = hark_text_empty(call->context)};
  const int count = hark_options_argument_count(call->options);
  int64_t problems = 0;
  hark_status status = HARK_OK;
  if (view.json) hark_text_append(&view.text, "{\"runs\": [");
  for (int i = 0; i < count && status == HARK_OK; i++) {
    if (view.json && i > 0) hark_text_append(&view.text, ", ");
    status = verify_one(call, hark_options_argument(call->options, i), &view, &problems);
  }
  if (status != HARK_OK) {
    hark_text_free(&view.text);
    return status;
  }
  if (view.json) hark_text_append(&view.text, "], \"problems\": %" PRId64 "}\n", problems);
  HARK_TRY(hark_command_print(call, &view.text));
  if (problems == 0) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_FILE, "%" PRId64 " problem%s in what was verified", problems, problems > 1 ? "s" : "");
}

const hark_command hark_command_verify = {
    .name = "verify",
    .arguments = "RUN|CHECKPOINT...",
    .summary = "check that runs and checkpoints are complete and undamaged: files against manifests, states, pointers, metrics",
    .notes =
        "  hark verify runs/*                         every run, every checkpoint in it\n"
        "  hark verify runs/book/checkpoints/step-500  one checkpoint\n"
        "\n"
        "  Only reads. Exit code 0: everything is complete; 3: something is damaged or missing, and the list names it.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .has_json = true,
    .run = run,
};
