/* verify.c - hark verify: whether runs, checkpoints and files of models are undamaged and complete. */
#include "train/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "cli/run_folders.h"
#include "io/files.h"
#include "json/json.h"
#include "train/verify_model.h"

typedef struct verify_view {
  hark_context *context;
  bool json;
  hark_text text;
  int64_t paths, problems; /* so far */
  int64_t count;           /* findings of the current path */
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

static void begin_path(verify_view *view, const char *path) {
  hark_text *text = &view->text;
  const char *const comma = view->paths++ > 0 ? ", " : "";
  view->count = 0;
  if (!view->json) {
    hark_text_append_shown(text, path);
    hark_text_append(text, "\n");
    return;
  }
  hark_text_append(text, "%s{", comma);
  hark_json_append_path(text, "path", path);
  hark_text_append(text, ", \"findings\": [");
}

static void end_path(verify_view *view, int64_t found) {
  if (view->json) hark_text_append(&view->text, "], \"problems\": %" PRId64 "}", found);
  view->problems += found;
}

/* A folder that hark_run_folders_visit() found is a run, also without config.yaml. */
static hark_status open_run(hark_context *context, const char *path, hark_run *out, char checkpoint[HARK_NAME_BYTES], bool *is_run) {
  bool model = false;
  *is_run = hark_run_open_reading(context, path, out, checkpoint) == HARK_OK;
  if (*is_run || hark_path_kind_of(path) != HARK_PATH_FOLDER) return HARK_OK;
  HARK_TRY(hark_is_model_folder(context, path, &model));
  *is_run = !model;
  checkpoint[0] = '\0';
  return hark_path_join(context, "", path, out->path);
}

/* A run, a checkpoint or a model. */
static hark_status verify_one(void *user, const char *path) {
  verify_view *const view = user;
  hark_run opened;
  char checkpoint[HARK_NAME_BYTES];
  int64_t found = 0;
  bool is_run = false;
  begin_path(view, path);
  HARK_TRY(open_run(view->context, path, &opened, checkpoint, &is_run));
  if (is_run)
    HARK_TRY(hark_run_verify(view->context, &opened, checkpoint, show, view, &found));
  else
    HARK_TRY(hark_model_verify(view->context, path, show, view, &found));
  end_path(view, found);
  return HARK_OK;
}

/* `message`: why it cannot be verified. */
static void refuse_path(verify_view *view, const char *path, const char *message) {
  const hark_finding finding = {.what = path, .problem = message};
  begin_path(view, path);
  show(view, &finding);
  end_path(view, 1);
}

/* The runs in a folder that also has a file of a model, which is verified already. */
typedef struct beside_model {
  verify_view *view;
  const char *folder;
} beside_model;

static hark_status verify_beside(void *user, const char *path) {
  const beside_model *const beside = user;
  return strcmp(path, beside->folder) == 0 ? HARK_OK : verify_one(beside->view, path);
}

static hark_status verify_model_and_runs(verify_view *view, const char *path) {
  beside_model beside = {.view = view, .folder = path};
  HARK_TRY(verify_one(view, path));
  return hark_run_folders_visit(view->context, path, verify_beside, &beside);
}

/* A path of the command line: a run, a checkpoint, a model, or a folder of runs, which may have a model beside them. */
static hark_status verify_path(verify_view *view, const char *path) {
  hark_run opened;
  char checkpoint[HARK_NAME_BYTES], message[HARK_MESSAGE_BYTES];
  bool model = false;
  const int64_t before = view->paths;
  const hark_status status = hark_run_open_reading(view->context, path, &opened, checkpoint);
  const hark_path_kind kind = hark_path_kind_of(path);
  if (status != HARK_OK && status != HARK_NOT_FOUND && status != HARK_BAD_FILE) return status;
  if (status == HARK_OK || kind == HARK_PATH_FILE) return verify_one(view, path);
  (void)snprintf(message, sizeof message, "%s", hark_context_message(view->context));
  if (kind == HARK_PATH_FOLDER) HARK_TRY(hark_is_model_folder(view->context, path, &model));
  if (model) return verify_model_and_runs(view, path);
  if (kind == HARK_PATH_FOLDER) HARK_TRY(hark_run_folders_visit(view->context, path, verify_one, view));
  if (view->paths == before) refuse_path(view, path, message);
  return HARK_OK;
}

static hark_status run(hark_invocation *call) {
  HARK_TRY(hark_command_open(call, "reference", 1, 0, false));
  verify_view view = {.context = call->context, .json = call->json, .text = hark_text_empty(call->context)};
  const int count = hark_options_argument_count(call->options);
  hark_status status = HARK_OK;
  if (view.json) hark_text_append(&view.text, "{\"runs\": [");
  for (int i = 0; i < count && status == HARK_OK; i++) status = verify_path(&view, hark_options_argument(call->options, i));
  if (status != HARK_OK) {
    hark_text_free(&view.text);
    return status;
  }
  if (view.json) hark_text_append(&view.text, "], \"problems\": %" PRId64 "}\n", view.problems);
  HARK_TRY(hark_command_print(call, &view.text));
  if (view.problems == 0) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_FILE, "%" PRId64 " problem%s in what was verified", view.problems, view.problems > 1 ? "s" : "");
}

const hark_command hark_command_verify = {
    .name = "verify",
    .arguments = "RUN|CHECKPOINT|FOLDER|FILE...",
    .summary = "check that runs, checkpoints and files of models are complete and undamaged",
    .notes =
        "  hark verify runs                            every run in the folder with all its checkpoints, and the model in the "
        "folder, if there is one\n"
        "  hark verify runs/book/checkpoints/step-500  one checkpoint\n"
        "  hark verify book.safetensors                a file of hark export or hark import, or a model of another program\n"
        "\n"
        "  The command only reads. Exit code 0 means that everything is complete, and 3 that something is damaged or missing, which is "
        "listed.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .has_json = true,
    .run = run,
};
