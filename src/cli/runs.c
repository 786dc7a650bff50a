/* runs.c - hark runs: the runs in a folder, a line each: what they are, how far they came, whether they are undamaged. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "cli/run_folders.h"
#include "cli/run_line.h"

#define DEFAULT_FOLDER "runs"
#define WORD_BYTES HARK_RUN_WORD_BYTES

typedef struct listing {
  hark_invocation *call;
  hark_text text;
  int64_t count;
  size_t root; /* bytes of the folder in the paths below it, with its slash */
} listing;

/* ---- printing ---- */

#define COLUMNS "%-9s %17s %10s %10s  "

static void append_count(int64_t step, int64_t steps, char *out, size_t bytes) {
  if (step == HARK_RUN_NO_STEP)
    (void)snprintf(out, bytes, "-");
  else if (steps == HARK_RUN_NO_STEP)
    (void)snprintf(out, bytes, "%" PRId64, step);
  else
    (void)snprintf(out, bytes, "%" PRId64 "/%" PRId64, step, steps);
}

static void append_loss(double loss, char *out, size_t bytes) {
  (void)snprintf(out, bytes, isnan(loss) ? "-" : fabs(loss) < 1e4 ? "%.4f" : "%.3e", loss);
}

static void print_run(listing *list, const char *path, const hark_run_line *line) {
  char steps[64], training[WORD_BYTES], best[WORD_BYTES];
  hark_text *const text = &list->text;
  append_count(line->step, line->steps, steps, sizeof steps);
  append_loss(line->training, training, sizeof training);
  append_loss(line->best, best, sizeof best);
  hark_text_append(text, COLUMNS, hark_run_state_word(line->state), steps, training, best);
  hark_text_append_shown(text, path + list->root);
  hark_text what = hark_text_empty(text->context);
  if (line->layers[0] != '\0')
    hark_text_append(&what, "  %s %sx%s, context %s, %s, %s", line->architecture, line->layers, line->width, line->context, line->positions,
                     line->structure);
  hark_text_append_shown(text, hark_text_get(&what));
  hark_text_free(&what);
  if (line->problem[0] != '\0') {
    hark_text_append(text, "  ");
    hark_text_append_shown(text, line->problem);
  }
  hark_text_append(text, "\n");
}

static void print_run_json(const char *path, const hark_run_line *line, hark_text *text) {
  hark_run_line_append_json(path, line, text);
  hark_text_append(text, "\n");
}

static hark_status show(void *user, const char *path) {
  listing *list = user;
  hark_run_line line;
  HARK_TRY(hark_run_line_read(list->call->context, path, &line));
  if (list->count++ == 0 && !list->call->json) hark_text_append(&list->text, COLUMNS "%s\n", "state", "step", "train", "best val", "run");
  if (list->call->json)
    print_run_json(path, &line, &list->text);
  else
    print_run(list, path, &line);
  return list->text.status;
}

static hark_status run(hark_invocation *call) {
  const char *const folder = hark_options_argument_count(call->options) > 0 ? hark_options_argument(call->options, 0) : DEFAULT_FOLDER;
  listing list = {.call = call, .text = hark_text_empty(call->context)};
  list.root = hark_run_folders_root(call->context, folder);
  const hark_status status = hark_run_folders_visit(call->context, folder, show, &list);
  if (status != HARK_OK) {
    hark_text_free(&list.text);
    return status;
  }
  if (list.count == 0 && !call->json) hark_text_append(&list.text, "no runs\n");
  return hark_command_print(call, &list.text);
}

const hark_command hark_command_runs = {
    .name = "runs",
    .arguments = "[FOLDER...]",
    .summary = "list the runs in a folder: state, steps, losses, model",
    .notes =
        "  hark runs                     the runs in runs/\n"
        "  hark runs sweeps/first --json one object per line\n"
        "\n"
        "  The state of a run is one of these:\n"
        "    running   a process writes the run\n"
        "    done      all steps were made\n"
        "    stopped   it ended before its last step; hark train --resume RUN continues it\n"
        "    empty     it has no checkpoint yet\n"
        "    damaged   the list gives the reason\n"
        "  hark runs reads config.yaml, and compares the sizes of files with the manifest of the last checkpoint.\n"
        "  hark verify also compares checksums.\n",
    .argument_maximum = HARK_ANY_NUMBER,
    .for_each = true,
    .has_json = true,
    .run = run,
};
