/* bench.c - hark bench: the speed of attention, operators and training steps, compared with the peak of this machine. */
#include "cli/bench/bench.h"

#include <string.h>

#include "cli/threads.h"

#define STEPS_DEFAULT 10
#define PEAK_SECONDS 0.03

typedef struct bench_values {
  int64_t rounds, vocabulary;
  double seconds;
} bench_values;

static const hark_option options[] = {
    {"rounds", NULL, HARK_OPTION_INT, offsetof(bench_values, rounds), "0", "[0, 1000]", NULL, NULL,
     "number of measurements of a case; 0: as many as fit into --seconds, but at least 7; for a step, 10", NULL},
    {"seconds", NULL, HARK_OPTION_DURATION, offsetof(bench_values, seconds), "2", "[0, inf)", NULL, "TIME", "time spent on a case",
     "$1 !step"},
    {"vocabulary", NULL, HARK_OPTION_INT, offsetof(bench_values, vocabulary), "96", "[2, 16777216]", NULL, NULL,
     "step: number of tokens in the vocabulary of the model", "$1 step"},
};
static const hark_option_table table = {options, 3, NULL, sizeof(bench_values), false};

typedef enum bench_kind { BENCH_ATTENTION, BENCH_DECODE, BENCH_OPERATOR, BENCH_MACHINE, BENCH_STEP, BENCH_KINDS } bench_kind;

/* A kind that takes cases measures one at a time. */
static const struct {
  const char *name, *example;
  hark_status (*measure)(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text);
} kinds[BENCH_KINDS] = {
    [BENCH_ATTENTION] = {"attention", "dense:B1,H8,L4096,D64,causal", hark_bench_attention},
    [BENCH_DECODE] = {"decode", "hierarchical:H8,L65536,D64,N16", hark_bench_decode},
    [BENCH_OPERATOR] = {"operator", "linear:M4096,N512,K512", hark_bench_operator},
    [BENCH_MACHINE] = {"machine", NULL, NULL},
    [BENCH_STEP] = {"step", NULL, NULL},
};

/* BENCH_KINDS when the word is not a kind. */
static bench_kind find_kind(const char *word) {
  int kind = 0;
  while (kind < BENCH_KINDS && strcmp(word, kinds[kind].name) != 0) kind++;
  return (bench_kind)kind;
}

/* Options that all measurements share, and those of training that change what a step computes. */
static const char *const shared[] = {"run.backend", "run.threads", "run.deterministic", "train.seed", NULL};
static const char *const of_step[] = {"data.format",
                                      "train.steps",
                                      "train.batch",
                                      "train.accumulate",
                                      "train.precision",
                                      "train.learning_rate",
                                      "train.rotary_rate",
                                      "train.positional_rate",
                                      "train.optimiser",
                                      "train.adafactor.beta1",
                                      "train.adafactor.decay_exponent",
                                      "train.adafactor.update_clip",
                                      "train.adafactor.relative",
                                      "train.adafactor.factor_from",
                                      "train.beta1",
                                      "train.beta2",
                                      "train.epsilon",
                                      "train.weight_decay",
                                      "train.clip",
                                      "train.freeze",
                                      "train.label_smoothing",
                                      "train.z_loss",
                                      "train.mask_fraction",
                                      "train.shard_optimiser",
                                      "run.sequence_ranks",
                                      NULL};

static bool is_among(const char *const *names, const char *name) {
  for (; *names != NULL; names++)
    if (strcmp(*names, name) == 0) return true;
  return false;
}

static bool changes_step(const char *name) { return strncmp(name, "model.", 6) == 0 || is_among(of_step, name); }

/* Cases describe themselves, so the configuration is only for a step, whose data are random. */
static hark_status refuse_configuration(hark_invocation *call, bench_kind kind) {
  for (int i = 0; i < hark_config_table.count; i++) {
    const char *const name = hark_config_table.options[i].name;
    const bool given = hark_options_source(call->options, name) == HARK_SOURCE_COMMAND;
    if (!given || is_among(shared, name) || hark_options_is_idle(call->options, name)) continue; /* idle options are reported anyway */
    if (kind != BENCH_STEP)
      HARK_TRY(hark_options_complain(call->context, call->options, name, "has no effect on %s, it needs bench step", kinds[kind].name));
    else if (!changes_step(name))
      HARK_TRY(hark_options_complain(call->context, call->options, name,
                                     "has no effect on step, which measures single steps on random data and writes no files"));
  }
  return HARK_OK;
}

/* --rounds and --steps of a step mean the same. */
static hark_status refuse_rounds(hark_invocation *call) {
  if (!hark_command_is_given(call, "rounds") || hark_options_source(call->options, "train.steps") != HARK_SOURCE_COMMAND) return HARK_OK;
  return hark_options_complain(call->context, call->options, "rounds", "has no effect with --steps, which gives the number of steps");
}

static hark_status check(hark_invocation *call) {
  const int count = hark_options_argument_count(call->options);
  if (count == 0) return HARK_OK;
  const char *const word = hark_options_argument(call->options, 0);
  const bench_kind kind = find_kind(word);
  if (kind == BENCH_KINDS) return HARK_OK; /* reported by main */
  const bool takes_cases = kinds[kind].measure != NULL;
  if (takes_cases && count == 1) {
    return hark_options_complain(call->context, call->options, word, "needs cases, for instance %s", kinds[kind].example);
  }
  if (!takes_cases && count > 1) {
    return hark_options_complain(call->context, call->options, hark_options_argument(call->options, 1), "%s takes no cases", word);
  }
  HARK_TRY(refuse_configuration(call, kind));
  if (kind != BENCH_STEP) return HARK_OK;
  HARK_TRY(refuse_rounds(call));
  return hark_config_finish(call->context, call->options, call->values[1]);
}

static hark_status run_cases(hark_invocation *call, bench_kind kind, hark_bench_machine *machine, hark_bench_settings *settings) {
  const bench_values *values = call->values[0];
  hark_config *config = call->values[1];
  const int count = hark_options_argument_count(call->options);
  if (kind == BENCH_MACHINE) return hark_bench_machine_run(call->context, machine, settings);
  if (kind == BENCH_STEP) {
    call->context->group = call->group;
    HARK_TRY(hark_group_divide(call->context, config->run.sequence_ranks, &call->sequence));
    const bool requested = hark_command_is_given(call, "train.steps");
    if (settings->rounds == 0) settings->rounds = requested ? config->train.steps : STEPS_DEFAULT;
    return hark_bench_step(call->context, machine, settings, config, (int32_t)values->vocabulary);
  }
  for (int i = 1; i < count; i++) {
    HARK_TRY(kinds[kind].measure(call->context, machine, settings, hark_options_argument(call->options, i)));
  }
  return HARK_OK;
}

static hark_status run(hark_invocation *call) {
  const bench_values *values = call->values[0];
  const hark_config *config = call->values[1];
  const bench_kind kind = find_kind(hark_options_argument(call->options, 0));
  hark_bench_settings settings = {.rounds = values->rounds, .seconds = values->seconds, .json = call->json};
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
  hark_command_warn_of_shared_cores(call);
  hark_bench_machine *machine;
  hark_status status = hark_bench_machine_create(call->context, PEAK_SECONDS, kind != BENCH_STEP, &machine);
  if (status == HARK_OK) status = run_cases(call, kind, machine, &settings);
  hark_bench_machine_destroy(call->context, &machine);
  return status;
}

const hark_command hark_command_bench = {
    .name = "bench",
    .arguments = "attention CASE... | decode CASE... | operator CASE... | machine | step",
    .words = "attention|decode|operator|machine|step",
    .summary = "measure attention, operators and training steps against the machine's peak",
    .notes =
        "Cases: dense:B1,H8,L4096,D64,causal   window:B1,H8,L8192,D64,window=256   linear:M4096,N512,K512\n"
        "         cases of decode, where the tokens up to token L are read one by one: hierarchical:H8,L65536,D64,N16   cme:H8,L1024,D64\n"
        "           compressed:H8,L65536,D64,N64,slots=4,select=16,kept=32,globals=16\n"
        "         a case of an operator can also name one of its samples, as in the tests: rotary:positions\n"
        "         ',x64' after the sample multiplies all its extents by 64, and ',257=50000' replaces every extent of 257 by 50000:\n"
        "         rotary:positions,x64   embedding:sparse,257=50000\n"
        "         all: the largest sample of every operator\n"
        "         The message about an incorrect case lists the possible words. docs/benchmarks.md lists them all.\n"
        "A step trains the model that the options describe, on random tokens. --steps N measures N steps. Without it, --rounds\n"
        "determines the number of steps.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .shares_work = true,
    .common_options =
        "rounds seconds vocabulary model.layers model.heads model.width model.context model.positions model.attention.structure "
        "model.attention.window train.batch train.steps train.precision run.threads run.backend config json help help-all",
    .has_json = true,
    .has_configuration = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
