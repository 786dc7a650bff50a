/* train.c - hark train: a run from a configuration, with its progress on stderr. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/common.h"
#include "cli/progress.h"
#include "io/json.h"
#include "train/trainer.h"

/* Signals only set these; the trainer asks after every step. A second signal to stop ends the process at once. */
static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t checkpoint_wanted;

static void on_signal(int number) {
  if (number == SIGUSR1) {
    checkpoint_wanted = 1;
    return;
  }
  if (stop_signal != 0) _exit(HARK_EXIT_SIGNAL + number);
  stop_signal = number;
}

static void catch_signals(void) {
  static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    const bool known = sigaction(caught[i], NULL, &before) == 0;
    if (known && before.sa_handler == SIG_IGN) continue; /* nohup, or a job in the background: whoever started us wants it so */
    (void)sigaction(caught[i], &action, NULL);
  }
}

/* Whoever read our messages may leave; the training goes on. */
static void ignore_closed_pipes(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = SIG_IGN;
  (void)sigaction(SIGPIPE, &action, NULL);
}

static hark_request request(void *user) {
  (void)user;
  if (stop_signal != 0) return HARK_REQUEST_STOP;
  if (checkpoint_wanted != 0) {
    checkpoint_wanted = 0;
    return HARK_REQUEST_CHECKPOINT;
  }
  return HARK_REQUEST_NONE;
}

/* What the hooks of the trainer work on. */
typedef struct training_view {
  hark_invocation *call;
  const hark_run *run;
  hark_progress progress;
} training_view;

static void show(void *user, const hark_train_progress *at) {
  hark_progress *progress = &((training_view *)user)->progress;
  if (!hark_progress_due(progress)) return;
  char tokens[HARK_HUMAN_BYTES], left[HARK_PROGRESS_TIME_BYTES], validation[32] = "", peak[32] = "";
  if (at->evaluating >= 0) {
    hark_progress_update(progress, "step %" PRId64 "/%" PRId64 "  evaluating %3.0f %%", at->step, at->steps, 100 * at->evaluating);
    return;
  }
  if (isfinite(at->validation_loss)) (void)snprintf(validation, sizeof validation, "  validation %.4f", at->validation_loss);
  if (at->peak_fraction > 0) (void)snprintf(peak, sizeof peak, "  %.0f %% of peak", 100 * at->peak_fraction);
  hark_progress_update(progress, "step %" PRId64 "/%" PRId64 "  loss %.4f%s  %s tokens/s%s  %s left", at->step, at->steps, at->loss,
                       validation, hark_human(at->tokens_per_second, tokens), peak, hark_progress_time(at->seconds_left, left));
}

static void say(void *user, const char *line) { hark_progress_line(&((training_view *)user)->progress, "%s", line); }

/* What makes the weights mean something else, or not fit: it cannot change when a run goes on. Dropout and recomputation may. */
static bool is_fixed(const hark_option *option) {
  const size_t length = strlen(option->name);
  static const char dropout[] = "dropout";
  const size_t ending = sizeof dropout - 1;
  if (strcmp(option->name, "data.tokenizer") == 0) return true;
  if (strncmp(option->name, "model.", 6) != 0 || strcmp(option->name, "model.recompute") == 0) return false;
  return length < ending || strcmp(option->name + length - ending, dropout) != 0;
}

static bool same_value(const hark_option *option, const hark_config *a, const hark_config *b) {
  const char *const left = (const char *)a + option->offset, *const right = (const char *)b + option->offset;
  switch (option->type) {
    case HARK_OPTION_BOOL: return *(const bool *)left == *(const bool *)right;
    case HARK_OPTION_ENUM: return memcmp(left, right, sizeof(int)) == 0;
    case HARK_OPTION_INT: return memcmp(left, right, sizeof(int64_t)) == 0;
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: return memcmp(left, right, sizeof(double)) == 0;
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST: break;
  }
  return true;
}

/* Compares with what the run says alone, in `path`. */
static hark_status check_fixed(hark_invocation *call, const char *path, const hark_config *config) {
  hark_config stored;
  hark_options *options = NULL;
  const hark_option_group group = {&hark_config_table, &stored};
  HARK_TRY(hark_options_create(call->context, NULL, &group, 1, &options));
  hark_status status = hark_options_read_yaml(call->context, options, path, HARK_SOURCE_RUN);
  if (status == HARK_OK) status = hark_config_finish(call->context, options, &stored);
  for (int i = 0; i < hark_config_table.count && status == HARK_OK; i++) {
    const hark_option *option = &hark_config_table.options[i];
    if (is_fixed(option) && !same_value(option, config, &stored))
      status = hark_options_complain(call->context, call->options, option->name, "%s cannot change when a run goes on", option->name);
  }
  hark_options_destroy(call->context, &options);
  return status;
}

static hark_status check(hark_invocation *call) {
  hark_config *config = call->values[0];
  char path[HARK_PATH_BYTES] = "";
  if (config->run.resume) {
    if (config->run.directory[0] == '\0')
      return hark_options_complain(call->context, call->options, "run.resume", "--resume needs --out FOLDER, the run to go on with");
    HARK_TRY(hark_path_join(call->context, config->run.directory, "config.yaml", path));
    if (hark_path_kind_of(path) == HARK_PATH_NONE)
      return hark_options_complain(call->context, call->options, "run.directory", "%s holds no run to resume", config->run.directory);
    HARK_TRY(hark_options_read_yaml(call->context, call->options, path, HARK_SOURCE_RUN));
  }
  if (config->data.paths.count == 0)
    HARK_TRY(hark_options_complain(call->context, call->options, "data.paths", "no text to train on, expected --data PATH"));
  HARK_TRY(hark_config_finish(call->context, call->options, config));
  return config->run.resume ? check_fixed(call, path, config) : HARK_OK;
}

static hark_status default_directory(hark_invocation *call, char *out) {
  const time_t now = time(NULL);
  struct tm parts;
  char name[64];
  if (localtime_r(&now, &parts) == NULL || strftime(name, sizeof name, "%Y%m%d-%H%M%S", &parts) == 0)
    return hark_fail(call->context, HARK_INTERNAL_ERROR, "the time of day is not known");
  return hark_path_join(call->context, "runs", name, out);
}

static hark_status write_configuration(hark_invocation *call, const hark_run *run) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(call->context);
  HARK_TRY(hark_run_path(call->context, run, "config.yaml", path));
  hark_options_print_yaml(call->options, false, &text);
  const hark_status status = text.status == HARK_OK ? hark_file_write(call->context, path, hark_text_get(&text), text.length) : text.status;
  hark_text_free(&text);
  return status;
}

/* The configuration that the steps to come are made with; a file that always says "resume" could not begin another run. */
static hark_status ready(void *user) {
  const training_view *view = user;
  hark_config *config = view->call->values[0];
  const bool resume = config->run.resume;
  config->run.resume = false;
  const hark_status status = write_configuration(view->call, view->run);
  config->run.resume = resume;
  return status;
}

/* The best of a few measurements: another program may take the processor for a moment. */
#define PEAK_MEASUREMENTS 5

static double measure_peak(hark_context *context) {
  hark_bench_machine *machine = NULL;
  double peak = 0;
  if (hark_bench_machine_create(context, false, &machine) == HARK_OK) {
    for (int i = 0; i < PEAK_MEASUREMENTS; i++) peak = fmax(peak, hark_bench_machine_peak(context, machine));
  }
  hark_bench_machine_destroy(context, &machine);
  return peak;
}

static hark_status report(hark_invocation *call, const hark_run *run, const hark_train_result *result) {
  static const char *const reasons[] = {"done", "time is up", "no improvement", "stopped"};
  const hark_run_state *state = &result->state;
  if (call->json) {
    hark_text text = hark_text_empty(call->context);
    hark_text_append(&text, "{\"run\": ");
    hark_json_append_string(&text, run->path);
    hark_text_append(&text, ", \"reason\": \"%s\", \"step\": %" PRId64 ", \"steps\": %" PRId64 ", \"val/loss\": ", reasons[result->reason],
                     state->step, result->steps);
    hark_json_append_number(&text, result->validation_loss);
    hark_text_append(&text, ", \"best_loss\": ");
    hark_json_append_number(&text, state->best_loss);
    hark_text_append(&text, ", \"best_step\": %" PRId64 "}\n", state->best_step);
    return hark_command_print(call, &text);
  }
  printf("%s: step %" PRId64 " of %" PRId64 " (%s)", run->path, state->step, result->steps, reasons[result->reason]);
  if (isfinite(state->best_loss)) printf("; best validation loss %.4f at step %" PRId64, state->best_loss, state->best_step);
  printf("\n");
  return HARK_OK;
}

static hark_status train_in(hark_invocation *call, const hark_config *config, const hark_run *run) {
  training_view view = {.call = call, .run = run, .progress = hark_progress_begin()};
  const hark_train_hooks hooks = {
      .user = &view, .show = show, .say = say, .request = request, .ready = ready, .peak_operations = measure_peak(call->context)};
  hark_train_result result;
  catch_signals();
  const hark_status status = hark_train(call->context, config, run, &hooks, &result);
  hark_progress_end(&view.progress);
  HARK_TRY(status);
  if (result.reason == HARK_STOP_REQUEST) call->exit_code = HARK_EXIT_SIGNAL + stop_signal;
  return report(call, run, &result);
}

static hark_status run(hark_invocation *call) {
  const hark_config *config = call->values[0];
  char path[HARK_PATH_BYTES];
  ignore_closed_pipes();
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
  if (config->run.directory[0] == '\0')
    HARK_TRY(default_directory(call, path));
  else
    HARK_TRY(hark_path_join(call->context, "", config->run.directory, path));
  hark_run folder;
  HARK_TRY(hark_run_open(call->context, path, config->run.resume, &folder));
  fprintf(stderr, "run folder %s\n", folder.path);
  const hark_status status = train_in(call, config, &folder);
  hark_run_close(&folder);
  return status;
}

const hark_command hark_command_train = {
    .name = "train",
    .arguments = "",
    .summary = "train a language model on text",
    .notes =
        "  hark train --data book.txt --out runs/book                      a small model on your own text\n"
        "  hark train --resume --out runs/book --steps 10000               go on, for longer\n"
        "  hark train --config recipes/kernel-composition/rotary.yaml --data texts/\n"
        "\n"
        "  Ctrl-C finishes the step, saves and ends with 130; so do SIGTERM (143) and SIGHUP (129). SIGUSR1 saves and goes on.\n",
    .has_json = true,
    .has_configuration = true,
    .tables = {&hark_config_table},
    .check = check,
    .run = run,
};
