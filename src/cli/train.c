/* train.c - hark train: a run from a configuration, with its progress on stderr. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/model.h"
#include "cli/outputs.h"
#include "cli/process.h"
#include "cli/processes.h"
#include "cli/progress.h"
#include "cli/threads.h"
#include "cli/train_estimate.h"
#include "core/line.h"
#include "data/inputs.h"
#include "group/group.h"
#include "io/temporary.h"
#include "json/json.h"
#include "train/data_place.h"
#include "train/material.h"
#include "train/model_source.h"
#include "train/preflight.h"
#include "train/preset.h"
#include "train/trainer.h"
#include "train/warm_start.h"

typedef struct train_values {
  bool estimate;
  hark_data_place place;     /* not an option: the data of a resumed run */
  hark_preset_choice choice; /* not an option: what was chosen for the text and the machine */
} train_values;

static const hark_option options[] = {
    {"estimate", "estimate", HARK_OPTION_BOOL, offsetof(train_values, estimate), "false", NULL, NULL, NULL,
     "print the memory and disk space that the run would need, and stop", NULL},
};
static const hark_option_section sections[] = {{"", "Before a run"}, {NULL, NULL}};
static const hark_option_table table = {options, 1, sections, sizeof(train_values), false};

enum { VALUES_PRESET, VALUES_CONFIG, VALUES_TRAIN }; /* of the command's tables */

/* Signals only set these; the trainer reads them after every step. A second signal to stop ends the process at once, if it belongs to
 * another event. */
static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t checkpoint_requested;

/* Sender and time of the first signal to stop; our parent process. One handler at a time reads and writes them (on_signal). */
static pid_t first_sender, parent;
static struct timespec first_time;
#define SAME_EVENT_SECONDS 1

/* One event may cause several signals: a service manager signals a whole group, and the sweep that started us passes its signal on; when
 * the sweep dies after that, we receive SIGHUP from the system where we were stopped. */
static bool is_same_event(const siginfo_t *info) {
  struct timespec now;
  const bool hung_up = info->si_pid == 0 && info->si_signo == SIGHUP;          /* from the system itself */
  if ((info->si_pid == parent || hung_up) && getppid() != parent) return true; /* because it died */
  if (info->si_pid == first_sender || clock_gettime(CLOCK_MONOTONIC, &now) != 0) return false;
  return now.tv_sec - first_time.tv_sec < SAME_EVENT_SECONDS + (now.tv_nsec < first_time.tv_nsec);
}

static void take_signal(int number, const siginfo_t *info) {
  if (number == SIGUSR1) {
    checkpoint_requested = 1;
    return;
  }
  if (number == HARK_PARENT_ENDED) { /* once for every thread of the parent that had us */
    if (stop_signal == 0) stop_signal = SIGTERM;
    return;
  }
  if (stop_signal != 0) {
    if (is_same_event(info)) return;
    hark_temporary_remove_all(&hark_process_temporaries);
    _exit(HARK_EXIT_SIGNAL + number);
  }
  first_sender = info->si_pid;
  (void)clock_gettime(CLOCK_MONOTONIC, &first_time);
  stop_signal = number;
}

/* Two threads may receive two signals at once: one after the other is taken. A thread does not wait for itself, because the signals are
 * blocked in their handler. */
static void on_signal(int number, siginfo_t *info, void *interrupted) {
  static atomic_flag taking = ATOMIC_FLAG_INIT;
  (void)interrupted;
  while (atomic_flag_test_and_set(&taking)) {
  }
  take_signal(number, info);
  atomic_flag_clear(&taking);
}

static void catch_signals(void) {
  static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, HARK_PARENT_ENDED};
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) (void)sigaddset(&action.sa_mask, caught[i]);
  parent = getppid();
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    const bool known = sigaction(caught[i], NULL, &before) == 0;
    if (known && before.sa_handler == SIG_IGN) continue; /* nohup, or a job in the background: our parent ignores it on purpose */
    (void)sigaction(caught[i], &action, NULL);
  }
}

/* The reader of our messages may end; the training continues. */
static void ignore_closed_pipes(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = SIG_IGN;
  (void)sigaction(SIGPIPE, &action, NULL);
}

static hark_request request(void *user) {
  (void)user;
  if (stop_signal != 0) return HARK_REQUEST_STOP;
  if (checkpoint_requested != 0) {
    checkpoint_requested = 0;
    return HARK_REQUEST_CHECKPOINT;
  }
  return HARK_REQUEST_NONE;
}

/* The data of the trainer's hooks. */
typedef struct training_view {
  hark_invocation *call;
  hark_run *run;
  hark_progress progress;
  int64_t planned_steps, planned_warmup; /* 0: the configuration has the length */
  bool evaluates;                        /* in that length */
} training_view;

/* A loss in as few columns as possible. */
static const char *loss_words(const char *name, double loss, char text[HARK_PROGRESS_PIECE_BYTES]) {
  text[0] = '\0'; /* not known yet */
  if (isfinite(loss)) (void)snprintf(text, HARK_PROGRESS_PIECE_BYTES, fabs(loss) < 1e4 ? "%s %.4f" : "%s %.3e", name, loss);
  return text;
}

/* The most important ones come first and are left out last: the step, the loss, the time left. */
static void show(void *user, const hark_train_progress *at) {
  enum { STEP, LOSS, EVALUATING, VALIDATION, SPEED, PEAK, LEFT, PIECES };
  training_view *const view = user;
  hark_progress *progress = &view->progress;
  if (!hark_progress_due(progress)) return;
  hark_progress_piece pieces[PIECES] = {[STEP] = {.rank = 0},  [LOSS] = {.rank = 1}, [EVALUATING] = {.rank = 1}, [VALIDATION] = {.rank = 4},
                                        [SPEED] = {.rank = 3}, [PEAK] = {.rank = 5}, [LEFT] = {.rank = 2}};
  char speed[HARK_HUMAN_BYTES], left[HARK_PROGRESS_TIME_BYTES];
#define WRITE(piece, member, ...) (void)snprintf(pieces[piece].member, HARK_PROGRESS_PIECE_BYTES, __VA_ARGS__)
  WRITE(STEP, text, "step %" PRId64 "/%" PRId64, at->step, at->steps);
  WRITE(STEP, brief, "%.1f %%", 100 * (double)at->step / (double)hark_max(1, at->steps));
  if (isfinite(at->seconds_left)) WRITE(LEFT, text, "%s left", hark_progress_time(at->seconds_left, left));
  if (at->evaluating >= 0) {
    WRITE(EVALUATING, text, "evaluating %.0f %%", 100 * at->evaluating);
  } else {
    (void)loss_words("loss", at->loss, pieces[LOSS].text);
    (void)loss_words("validation", at->validation_loss, pieces[VALIDATION].text);
    const char *const unit = hark_config_unit_word(view->call->values[VALUES_CONFIG]);
    WRITE(SPEED, text, "%s %s/s", hark_human(at->tokens_per_second, speed), unit);
    if (at->peak_fraction > 0) WRITE(PEAK, text, "%.0f %% of peak", 100 * at->peak_fraction);
  }
#undef WRITE
  hark_progress_show(progress, pieces, PIECES);
}

static void planned(void *user, int64_t steps, int64_t warmup, bool evaluates) {
  training_view *const view = user;
  view->planned_steps = steps;
  view->planned_warmup = warmup;
  view->evaluates = evaluates;
}

static void say(void *user, const char *line) { hark_progress_line(&((training_view *)user)->progress, "%s", line); }

/* Options that change the tokens of a text: the trainer would find another text without knowing why. */
static bool divides_text(const char *option) {
  static const char *const names[] = {"data.unknown", "data.unit", "data.split", "data.validation_fraction"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(option, names[i]) == 0) return true;
  return false;
}

/* Options that determine the weights, their origin or the moments cannot change when a run is resumed. Dropout and recomputation may. */
static hark_status refuse_change(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user) {
  (void)user;
  const bool of_text = divides_text(option->name) && !hark_config_has_examples(call->values[VALUES_CONFIG]);
  const bool of_weights = hark_config_bond(option->name) != HARK_BOND_NONE || strcmp(option->name, "train.init_from") == 0;
  char is[HARK_SHOWN_BYTES], was[HARK_SHOWN_BYTES];
  hark_text given = hark_text_empty(call->context), had = hark_text_empty(call->context);
  hark_options_print_value(call->options, option->name, &given);
  hark_options_print_value(stored, option->name, &had);
  const bool of_moments = hark_config_changes_moments(option->name, hark_text_get(&given), hark_text_get(&had));
  hark_text_shown_both(hark_text_get(&given), hark_text_get(&had), is, was);
  hark_text_free(&given);
  hark_text_free(&had);
  if (!of_text && !of_weights && !of_moments) return HARK_OK;
  return hark_options_complain(call->context, call->options, option->name,
                               "%s cannot change when a run is resumed: \"%s\" given, the run has \"%s\"", option->name, is, was);
}

/* Options of the model that neither the command line nor a file sets come from the run of the weights. */
static hark_status read_origin(hark_invocation *call, const char *path) {
  hark_config stored = {0};
  hark_options *stored_options = NULL;
  hark_status status = hark_command_read_stored(call, path, &stored, &stored_options);
  for (int i = 0; i < hark_config_table.count && status == HARK_OK; i++) {
    const char *name = hark_config_table.options[i].name;
    if (strncmp(name, "model.", 6) != 0 && hark_config_bond(name) == HARK_BOND_NONE) continue;
    if (strcmp(name, "data.vocabulary") == 0) continue; /* the run has the tokenizer itself */
    status = hark_options_copy(call->context, call->options, stored_options, name, path, HARK_SOURCE_RUN);
  }
  hark_options_destroy(call->context, &stored_options);
  return status;
}

/* Options of a model that is no run cannot be other ones, unless patterns allow weights that do not fit. The context determines weights
 * only as the length of a table of positions. */
static bool contradicts(const hark_option *option, const hark_config *config) {
  const bool patterns = config->train.allow_missing.count + config->train.allow_unexpected.count > 0;
  if (strcmp(option->name, "model.context") == 0) return config->model.positions == HARK_POSITIONS_LEARNED && !patterns;
  if (strncmp(option->name, "data.", 5) == 0) return hark_config_bond(option->name) == HARK_BOND_WEIGHTS;
  return hark_config_bond(option->name) == HARK_BOND_WEIGHTS && !patterns;
}

/* Reports the options that differ from those that the weights were trained with. */
static hark_status warn_of_other_meaning(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user) {
  const hark_config *const config = call->values[VALUES_CONFIG];
  const bool refused = *(const bool *)user && contradicts(option, config);
  if (hark_config_bond(option->name) == HARK_BOND_NONE) return HARK_OK;
  hark_text there = hark_text_empty(call->context), here = hark_text_empty(call->context);
  hark_options_print_value(stored, option->name, &there);
  hark_options_print_value(call->options, option->name, &here);
  hark_status status = HARK_OK;
  if (refused)
    status = hark_options_complain(call->context, call->options, option->name,
                                   "is %s, and the model that init_from names has %s: it decides which weights the model has",
                                   hark_text_get(&here), hark_text_get(&there));
  else
    hark_command_warn(call, "%s is %s; the weights were trained with %s", option->name, hark_text_get(&here), hark_text_get(&there));
  hark_text_free(&there);
  hark_text_free(&here);
  return status;
}

/* config.yaml of the run that train.init_from names, or the model. */
static hark_status find_origin(hark_invocation *call, const hark_config *config, char *path) {
  hark_run source;
  char checkpoint[HARK_NAME_BYTES];
  if (hark_model_source_is(call->context, config->train.init_from)) return hark_path_join(call->context, "", config->train.init_from, path);
  const hark_status status = hark_run_open_reading(call->context, config->train.init_from, &source, checkpoint);
  path[0] = '\0';
  HARK_TRY(status);
  return hark_run_path(call->context, &source, "config.yaml", path);
}

/* config.yaml of the run to resume, in `path`: "" when there is none. */
static hark_status find_run(hark_invocation *call, const hark_config *config, char *path) {
  hark_path_kind kind;
  path[0] = '\0';
  const bool unread = hark_options_argument_count(call->options) > 0; /* an argument that problems keep from naming the run */
  if (config->run.directory[0] == '\0' && unread) return HARK_OK;
  if (config->run.directory[0] == '\0')
    return hark_options_complain(call->context, call->options, "run.resume",
                                 "--resume needs --out FOLDER, or RUN after it: the run to continue");
  HARK_TRY(hark_path_join(call->context, config->run.directory, "config.yaml", path));
  HARK_TRY(hark_folder_check_unlocked(call->context, config->run.directory)); /* another process may be beginning one there */
  HARK_TRY(hark_path_examine(call->context, path, &kind));
  if (kind != HARK_PATH_NONE) return HARK_OK;
  path[0] = '\0';
  return hark_fail(call->context, HARK_NOT_FOUND, "%s holds no run to resume", config->run.directory);
}

/* Sub-words and byte-level BPE are learned with optional libraries. A run that has its vocabulary needs none of them, and where examples
 * have no sub-words the option is refused as one without effect. */
static hark_status find_learner(hark_invocation *call, hark_config *config) {
#ifdef HARK_WITH_SENTENCEPIECE
  config->data.subwords.learner = &hark_subword_sentencepiece;
#endif
  const bool begins = !config->run.resume && config->train.init_from[0] == '\0';
  const bool learns = !hark_config_has_examples(config) && begins && config->data.vocabulary[0] == '\0';
  if (learns && !hark_tokenizer_kind_is_made(config->data.tokenizer))
    return hark_options_complain(call->context, call->options, "data.tokenizer",
                                 "imported is the tokenizer of a model, expected --init-from MODEL or --vocabulary FILE");
  if (learns && !hark_tokenizer_kind_available(config->data.tokenizer))
    return hark_options_complain(call->context, call->options, "data.tokenizer",
                                 "byte-level BPE divides text by PCRE2, and this hark was built without it (HARK_WITH_PCRE2)");
  const bool by_library = config->data.tokenizer == HARK_TOKENIZER_SUBWORDS && config->data.subwords.model != HARK_SUBWORD_WORD_PIECE;
  if (!learns || !by_library || config->data.subwords.learner != NULL) return HARK_OK;
  return hark_options_complain(call->context, call->options, "data.tokenizer",
                               "sub-words are learned by SentencePiece, and this hark was built without it (HARK_WITH_SENTENCEPIECE)");
}

/* The paths of the data of a resumed run. */
static hark_status find_data(hark_invocation *call, const hark_config *config, hark_data_place *place) {
  HARK_TRY(hark_data_place_find(call->context, call->options, config, config->run.directory, place));
  if (!place->other_size) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_CONFIGURATION,
                   "%.300s: not the data that this run was trained on so far: they were larger or smaller", config->data.paths.items[0]);
}

/* A run reads its data again when it is resumed or evaluated. */
static hark_status refuse_standard_input(hark_invocation *call, const hark_config *config) {
  const hark_string_list *const lists[] = {&config->data.paths, &config->data.validation_paths, &config->data.test_paths};
  static const char *const names[] = {"data.paths", "data.validation_paths", "data.test_paths"};
  for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
    for (int64_t i = 0; i < lists[l]->count; i++)
      if (hark_input_is_standard(lists[l]->items[i]))
        HARK_TRY(hark_options_complain(call->context, call->options, names[l],
                                       "standard input cannot be read again when the run is resumed or evaluated, expected a file"));
  return HARK_OK;
}

/* --preset, and what nothing determines. */
static hark_status choose_size(hark_invocation *call) {
  train_values *const values = call->values[VALUES_TRAIN];
  const char *const file = call->common.file.config;
  const hark_preset *preset;
  HARK_TRY(hark_preset_read(call->context, call->options, call->values[VALUES_PRESET], &preset));
  return hark_preset_choose(call->context, call->options, call->values[VALUES_CONFIG], file[0] != '\0', preset, &values->choice);
}

/* The line about the choice, and how to make another one. */
static void say_choice(const hark_preset_choice *choice) {
  char bytes[HARK_HUMAN_BYTES];
  if (choice->preset != NULL)
    fprintf(stderr, "chosen for a text of %sB and %d core%s: --preset %s%s; these options change it (hark train --help)\n",
            hark_human(choice->bytes, bytes), choice->cores, choice->cores == 1 ? "" : "s", choice->preset->name,
            choice->time ? ", and steps for about ten minutes (--max-time, --steps)" : "");
  else if (choice->time)
    fprintf(stderr, "chosen: steps for about ten minutes; --max-time or --steps change it\n");
}

static size_t length_without_slashes(const char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  return length;
}

static bool is_same_path(const char *a, const char *b) {
  const size_t length = length_without_slashes(a);
  return length == length_without_slashes(b) && memcmp(a, b, length) == 0;
}

/* --resume RUN: an argument names the run, like --out. */
static hark_status read_argument(hark_invocation *call, const hark_config *config) {
  if (hark_options_argument_count(call->options) == 0) return HARK_OK;
  if (hark_options_problem_count(call->options) > 0) return HARK_OK; /* the word after an unknown flag may have been its value */
  const char *const run = hark_options_argument(call->options, 0);
  if (!config->run.resume)
    return hark_options_complain(call->context, call->options, run,
                                 "unexpected argument; usage: hark train [options], or with --resume RUN");
  if (config->run.directory[0] != '\0' && !is_same_path(config->run.directory, run))
    return hark_options_complain(call->context, call->options, run, "unexpected argument: --out names another run to resume");
  return hark_options_set(call->context, call->options, "run.directory", run, "--resume", HARK_SOURCE_COMMAND);
}

static bool is_requested(const hark_invocation *call, const char *name) {
  return hark_options_source(call->options, name) >= HARK_SOURCE_FILE;
}

/* An equal length is accepted, so that the same call continues an extended run that was interrupted. */
static hark_status refuse_idle_extension(hark_invocation *call, const hark_config *config) {
  static const char *const lengths[] = {"train.steps",    "train.epochs", "train.tokens",    "train.examples",
                                        "train.max_time", "train.batch",  "train.accumulate"};
  bool idle = config->run.resume && is_requested(call, "train.extend");
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) idle = idle && !is_requested(call, lengths[i]);
  if (!idle) return HARK_OK;
  return hark_options_complain(call->context, call->options, "train.extend",
                               "has no effect here, it needs another length: --steps, --epochs, --tokens, --examples or --max-time");
}

/* A run that is missing, or is none. It is reported when all options were checked: with other problems as one of them, alone as a bad
 * input. */
typedef struct unusable_run {
  hark_status status;
  char message[HARK_MESSAGE_BYTES];
} unusable_run;

static hark_status keep_unusable(hark_invocation *call, hark_status status, unusable_run *out) {
  if (status != HARK_NOT_FOUND && status != HARK_BAD_FILE) return status;
  out->status = status;
  (void)snprintf(out->message, sizeof out->message, "%s", hark_context_message(call->context));
  return HARK_OK;
}

static hark_status refuse_unusable(hark_invocation *call, const unusable_run *run, bool resume) {
  if (run->status == HARK_OK) return HARK_OK;
  if (hark_options_problem_count(call->options) > 0)
    return hark_options_complain(call->context, call->options, resume ? "run.directory" : "train.init_from", "%s", run->message);
  return hark_fail(call->context, run->status, "%s: %s", resume ? "--resume" : "--init-from", run->message);
}

static hark_status check(hark_invocation *call) {
  hark_config *config = call->values[VALUES_CONFIG];
  train_values *values = call->values[VALUES_TRAIN];
  char path[HARK_PATH_BYTES] = "", origin[HARK_PATH_BYTES] = "";
  unusable_run unusable = {.status = HARK_OK};
  HARK_TRY(read_argument(call, config));
  if (config->run.resume) {
    HARK_TRY(keep_unusable(call, find_run(call, config, path), &unusable));
    if (path[0] != '\0') HARK_TRY(hark_data_place_read_options(call->context, call->options, path));
  } else if (config->train.init_from[0] != '\0') {
    HARK_TRY(keep_unusable(call, find_origin(call, config, origin), &unusable));
    if (origin[0] != '\0') HARK_TRY(read_origin(call, origin));
  }
  const bool may_have_text = config->run.resume && path[0] == '\0'; /* only the run that was not found would show it */
  if (config->data.paths.count == 0 && !may_have_text)
    HARK_TRY(hark_options_complain(call->context, call->options, "data.paths", "no %s to train on, expected --data PATH",
                                   hark_config_has_examples(config) ? "examples" : "text"));
  HARK_TRY(refuse_standard_input(call, config));
  HARK_TRY(refuse_idle_extension(call, config));
  HARK_TRY(find_learner(call, config));
  HARK_TRY(choose_size(call));
  HARK_TRY(hark_config_finish(call->context, call->options, config));
  HARK_TRY(hark_options_require_utf8(call->context, call->options));
  if (path[0] != '\0') {
    const hark_status status = hark_command_visit_differences(call, path, call->options, config, refuse_change, NULL);
    if (status != HARK_BAD_FILE) HARK_TRY(status); /* the same problems were already reported for the file */
    if (hark_options_problem_count(call->options) == 0) HARK_TRY(find_data(call, config, &values->place));
  }
  HARK_TRY(refuse_unusable(call, &unusable, config->run.resume));
  if (origin[0] == '\0' || hark_options_problem_count(call->options) > 0) return HARK_OK;
  bool model = hark_model_source_is(call->context, origin);
  return hark_command_visit_differences(call, origin, call->options, config, warn_of_other_meaning, &model);
}

#define DEFAULT_FOLDER "runs"
#define RUNS_OF_A_SECOND 10000

/* runs/ and the time, with a number after it where a run of the same second has that name; `claim` makes the folder, so that no other
 * process takes it. */
static hark_status default_directory(hark_invocation *call, bool claim, char *out) {
  const time_t now = time(NULL);
  struct tm parts;
  char when[32], name[64];
  bool free_name = false;
  if (localtime_r(&now, &parts) == NULL || strftime(when, sizeof when, "%Y%m%d-%H%M%S", &parts) == 0)
    return hark_fail(call->context, HARK_INTERNAL_ERROR, "the time of day is not known");
  if (claim) HARK_TRY(hark_folder_make(call->context, DEFAULT_FOLDER));
  for (int number = 1; number <= RUNS_OF_A_SECOND && !free_name; number++) {
    if (number == 1)
      (void)snprintf(name, sizeof name, "%s", when);
    else
      (void)snprintf(name, sizeof name, "%s-%d", when, number);
    HARK_TRY(hark_path_join(call->context, DEFAULT_FOLDER, name, out));
    if (claim)
      HARK_TRY(hark_folder_claim(call->context, out, &free_name));
    else
      free_name = hark_path_kind_of(out) == HARK_PATH_NONE;
  }
  return free_name ? HARK_OK : hark_fail(call->context, HARK_IO_ERROR, "%s: there is a run of this name already", out);
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

/* The configuration of the following steps; a file that always has "resume" could not begin another run. A run that cannot begin reports
 * the reason and no folder, which does not exist then. */
static hark_status ready(void *user, bool timed) {
  training_view *view = user;
  hark_config *config = view->call->values[VALUES_CONFIG];
  train_values *values = view->call->values[VALUES_TRAIN];
  const hark_config given = *config;
  HARK_TRY(hark_data_place_write(view->call->context, config, view->run, &values->place));
  config->run.resume = false;
  config->run.ranks = 0; /* the next part may have another number */
  config->run.sequence_ranks = 1;
  config->train.extend = HARK_EXTEND_CONTINUE; /* only for this part: its plan is in the run's state */
  if (timed) {
    config->train.steps = config->train.tokens = config->train.examples = 0;
    config->train.epochs = 0;
  }
  if (view->planned_steps > 0) { /* the run's own configuration makes the same run again */
    config->train.steps = view->planned_steps;
    config->train.warmup = view->planned_warmup;
    config->train.max_time = 0;
    if (!view->evaluates) config->train.evaluate_every = config->train.early_stop = 0;
  }
  hark_data_place_exchange(&values->place, config);
  const hark_status status = write_configuration(view->call, view->run);
  hark_data_place_exchange(&values->place, config);
  config->run = given.run;
  config->train = given.train;
  if (status != HARK_OK) return status;
  view->run->made = false; /* it has begun: a later failure does not remove it */
  char shown[HARK_PATH_BYTES];
  memcpy(shown, view->run->path, sizeof shown);
  hark_line_clean(shown);
  hark_progress_line(&view->progress, "run folder %s", shown);
  return status;
}

/* The best of a few measurements: another program may use the processor for a moment. They are short, because the shortest run waits for
 * them too. */
#define PEAK_MEASUREMENTS 5
#define PEAK_SECONDS 0.005

static double measure_peak(hark_context *context, const hark_config *config) {
  hark_bench_machine *machine = NULL;
  double peak = 0;
  if (hark_bench_machine_create(context, PEAK_SECONDS, false, &machine) == HARK_OK) {
    (void)hark_bench_machine_use_bf16(machine, config->train.precision == HARK_PRECISION_BF16);
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
    hark_text_append(&text, "{");
    hark_json_append_path(&text, "run", run->path);
    hark_text_append(&text, ", \"reason\": \"%s\", \"step\": %" PRId64 ", \"steps\": %" PRId64 ", \"val/loss\": ", reasons[result->reason],
                     state->step, result->steps);
    hark_json_append_number(&text, result->validation_loss);
    hark_text_append(&text, ", \"best_loss\": ");
    hark_json_append_number(&text, state->best_loss);
    hark_text_append(&text, ", \"best_step\": %" PRId64 "}\n", state->best_step);
    return hark_command_print(call, &text);
  }
  hark_text text = hark_text_empty(call->context);
  hark_text_append_shown(&text, run->path);
  hark_text_append(&text, ": step %" PRId64, state->step);
  if (result->steps > 0) hark_text_append(&text, " of %" PRId64, result->steps); /* otherwise it was stopped before they were planned */
  hark_text_append(&text, " (%s)", reasons[result->reason]);
  if (isfinite(state->best_loss))
    hark_text_append(&text, "; best validation loss %.4f at step %" PRId64, state->best_loss, state->best_step);
  hark_text_append(&text, "\n");
  return hark_command_print(call, &text);
}

/* The command that continues a stopped run, for a shell. */
static void say_how_to_resume(const hark_run *run) {
  const bool plain = strspn(run->path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=@%,:") == strlen(run->path);
  char shown[HARK_PATH_BYTES];
  memcpy(shown, run->path, sizeof shown);
  hark_line_clean(shown);
  (void)fflush(stdout);
  if (plain || strchr(shown, '\'') == NULL)
    fprintf(stderr, "continue with: hark train --resume %s%s%s\n", plain ? "" : "'", shown, plain ? "" : "'");
  else
    fprintf(stderr, "continue with: hark train --resume RUN\n");
}

static hark_status train_in(hark_invocation *call, const hark_config *config, hark_run *run) {
  training_view view = {.call = call, .run = run, .progress = hark_progress_begin()};
  const hark_train_hooks hooks = {.user = &view,
                                  .show = show,
                                  .say = say,
                                  .request = request,
                                  .ready = ready,
                                  .planned = planned,
                                  .peak_operations = measure_peak(call->context, config)};
  hark_train_result result;
  const hark_status status = hark_train(call->context, config, run, &hooks, &result);
  hark_progress_end(&view.progress);
  HARK_TRY(status);
  if (result.reason == HARK_STOP_REQUEST) call->exit_code = HARK_EXIT_SIGNAL + (stop_signal != 0 ? stop_signal : SIGTERM);
  HARK_TRY(report(call, run, &result));
  if (result.reason == HARK_STOP_REQUEST) say_how_to_resume(run);
  return HARK_OK;
}

/* A signal arrived before there was a run. */
static hark_status stop_before_run(hark_invocation *call, const hark_run *run) {
  hark_text text = hark_text_empty(call->context);
  call->exit_code = HARK_EXIT_SIGNAL + stop_signal;
  if (call->json) {
    hark_train_result nothing = {.reason = HARK_STOP_REQUEST, .validation_loss = NAN, .state.best_loss = NAN};
    return report(call, run, &nothing);
  }
  hark_text_append_shown(&text, run->path);
  hark_text_append(&text, ": stopped before it began\n");
  return hark_command_print(call, &text);
}

/* ---- several processes ---- */

/* Makes the context one of the group. */
static hark_status join(hark_invocation *call) {
  hark_config *const config = call->values[VALUES_CONFIG];
  const int size = hark_group_size(call->group);
  if (config->run.ranks > 0 && config->run.ranks != size)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION, "run.ranks is %d, and %d process%s started%s", (int)config->run.ranks, size,
                     size == 1 ? " was" : "es were", call->group == NULL ? ": a launcher such as mpirun starts several" : "");
  HARK_TRY(hark_command_join(call, config));
  return hark_group_divide(call->context, config->run.sequence_ranks, &call->sequence);
}

/* The folder of rank 0, for all: its name may contain the time. */
static hark_status share_path(hark_invocation *call, hark_status status, char *path) {
  HARK_TRY(hark_group_agree(call->context, call->group, status));
  return hark_group_broadcast(call->context, call->group, path, HARK_PATH_BYTES);
}

/* Trains as another rank than the first one, which has the folder. */
static hark_status train_along(hark_invocation *call, const hark_config *config, const char *path) {
  hark_run folder = {.lock = -1};
  const hark_train_hooks hooks = {.request = request};
  hark_train_result result;
  memcpy(folder.path, path, sizeof folder.path);
  HARK_TRY(hark_train(call->context, config, &folder, &hooks, &result));
  if (result.reason == HARK_STOP_REQUEST) call->exit_code = HARK_EXIT_SIGNAL + (stop_signal != 0 ? stop_signal : SIGTERM);
  return HARK_OK;
}

/* Opens the folder `path`, unless its name could not be made (`status`), and trains in it. */
static hark_status train_at(hark_invocation *call, const hark_config *config, char *path, bool claims, hark_status status) {
  hark_run folder = {.lock = -1};
  const bool leads = hark_group_rank(call->group) == 0;
  const bool opens = leads && status == HARK_OK;
  if (opens) status = hark_run_open(call->context, path, config->run.resume, &folder);
  if (opens && status != HARK_OK && claims) (void)rmdir(path);
  status = share_path(call, status, path);
  if (!leads) return status == HARK_OK ? train_along(call, config, path) : status;
  if (folder.lock < 0) return status;
  if (claims) folder.kept = false; /* a folder that we claimed is removed */
  const bool begins = stop_signal == 0 || call->group != NULL;
  if (status == HARK_OK) status = begins ? train_in(call, config, &folder) : stop_before_run(call, &folder);
  if (status != HARK_OK || !begins) hark_run_abandon(call->context, &folder);
  hark_run_close(&folder);
  return status;
}

static hark_status run(hark_invocation *call) {
  const hark_config *config = call->values[VALUES_CONFIG];
  const train_values *values = call->values[VALUES_TRAIN];
  char path[HARK_PATH_BYTES] = "";
  ignore_closed_pipes();
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
  HARK_TRY(join(call));
  hark_command_warn_of_shared_cores(call);
  say_choice(&values->choice);
  const bool leads = hark_group_rank(call->group) == 0, named = config->run.directory[0] != '\0';
  const bool claims = !named && !values->estimate && leads;
  if (!values->estimate) catch_signals(); /* before there is a folder */
  hark_status status = HARK_OK;
  if (leads && !named) status = default_directory(call, claims, path);
  if (leads && named && !values->estimate)
    status = hark_command_check_folder(call->context, config->run.resume ? "resume" : "out", config->run.directory);
  if (leads && named && status == HARK_OK) status = hark_path_join(call->context, "", config->run.directory, path);
  if (!values->estimate) return train_at(call, config, path, claims, status);
  HARK_TRY(share_path(call, status, path));
  hark_run folder = {.lock = -1};
  memcpy(folder.path, path, sizeof folder.path);
  return hark_train_estimate(call, config, &folder);
}

const hark_command hark_command_train = {
    .name = "train",
    .arguments = "[--resume RUN]",
    .summary = "train a model on text or on labelled examples",
    .notes =
        "  hark train --data book.txt --out runs/book                      a model of a size that suits the text, in about ten minutes\n"
        "  hark train --data book.txt --out runs/book --max-time 10m       as many steps as fit into ten minutes\n"
        "  hark train --resume runs/book --max-time 10m                    continue for ten more minutes\n"
        "  hark train --resume runs/book --steps 10000                     continue to step 10000; the rate decays from its present value\n"
        "  hark train --data book.txt --preset medium --max-time 2h        a larger model: hark config --preset medium shows what it is\n"
        "  hark train --config recipes/kernel-composition/rotary.yaml --data texts/\n"
        "  hark train --config recipes/lra/listops-small.yaml --data tasks/listops      classes of labelled examples\n"
        "  hark train --init-from runs/book --data letters.txt --out runs/letters      start with trained weights\n"
        "  hark train --init-from runs/book --structure window --window 64 ...         with another attention\n"
        "  hark train --init-from Qwen2-0.5B --data letters.txt --context 1024 --lr 2e-5     fine-tuning of another program's model\n"
        "  hark train --data book.txt --width 1024 --estimate              memory and disk space that it would need\n"
        "\n"
        "  After Ctrl-C, the step is finished, the run is saved, and the exit code is 130. SIGTERM (143) and SIGHUP (129) do the same.\n"
        "  After SIGUSR1, the run is saved and continues.\n"
        "  If neither a file nor options set the size or the length of a new run on a text, hark train chooses both; with --preset\n"
        "  only the length, with --max-time only the size. Their defaults are not used then (docs/numbers.md).\n",
    .common_options =
        "data.paths run.directory preset run.resume train.max_time train.steps model.layers model.heads model.width model.context "
        "model.positions model.positional model.dropout model.attention.structure model.attention.window model.attention.normalisation "
        "model.attention.forget_gate data.tokenizer data.validation_paths data.validation_fraction train.batch train.accumulate "
        "train.learning_rate train.warmup train.evaluate_every train.checkpoint_every train.early_stop train.init_from train.precision "
        "train.seed run.threads run.tensorboard estimate config json help help-all",
    .argument_maximum = 1,
    .shares_work = true,
    .has_json = true,
    .has_configuration = true,
    .tables = {&hark_preset_table, &hark_config_table, &table},
    .check = check,
    .run = run,
};
