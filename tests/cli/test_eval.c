/* test_eval.c - hark eval at several contexts, against a computation of its own: every target's loss from the logits that the model's
 * interface for programs gives token by token, by a log-softmax in double, in windows that are made here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hark/model.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"

#define TINY "--layers 2 " COMMAND_SMALL
#define TOKENS 211 /* of the text that is measured: a prime, of which no context and no batch is a part */
#define TARGETS (TOKENS - 1)
#define LONGEST 32
#define FRESH "--lr 1e-30 --weight-decay 0 --steps 1 --threads 1 " /* a warm start that keeps its weights */

/* Logits in f32 of size 1 after two layers, in another order of sums; losses are sums of up to 210 of size 3. */
#define TOLERANCE 1e-5

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  static const char words[] = "the quick brown fox ";
  char text[TOKENS + 1];
  for (int i = 0; i < TOKENS; i++) text[i] = words[(i * 7 + i * i / 13) % 20];
  text[TOKENS] = '\0';
  test_file_write_text(folder, "other.txt", text);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* Runs hark eval --json; line `index` of what it prints. */
static json_t *line_at(int index) {
  json_error_t error;
  const char *at = output.out;
  for (int i = 0; i < index; i++) at = strchr(at, '\n') + 1;
  json_t *const line = json_loads(at, JSON_DISABLE_EOF_CHECK, &error);
  if (line == NULL) fail_msg("line %d: %s in %s", index, error.text, output.out);
  return line;
}

static double loss_of(const char *words) {
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const line = line_at(0);
  const double loss = command_number(line, "loss");
  json_decref(line);
  return loss;
}

/* ---- the computation ---- */

typedef struct oracle {
  hark_context *context;
  hark_model *model;
  hark_decoding *decoding;
  int64_t vocabulary;
  int32_t tokens[TOKENS];
} oracle;

static void oracle_open(oracle *o, const char *run) {
  o->context = test_reference_open();
  assert_fine(o->context, hark_model_load(o->context, test_path(folder, run), NULL, &o->model));
  const hark_decoding_options options = {.struct_size = sizeof options, .capacity = LONGEST};
  assert_fine(o->context, hark_decoding_create(o->context, o->model, &options, &o->decoding));
  hark_model_info info = {.struct_size = sizeof info};
  assert_fine(o->context, hark_model_describe(o->model, &info));
  o->vocabulary = info.vocabulary;
  size_t count;
  char *const text = test_file_text(folder, "other.txt");
  assert_fine(o->context, hark_model_encode(o->context, o->model, text, strlen(text), false, o->tokens, &count));
  assert_int_equal(count, TOKENS);
  free(text);
}

static void oracle_close(oracle *o) {
  hark_decoding_destroy(&o->decoding);
  hark_model_destroy(o->context, &o->model);
  test_setup_close(o->context);
}

static double surprise(const float *logits, int64_t vocabulary, int32_t target) {
  double maximum = logits[0], sum = 0;
  for (int64_t v = 1; v < vocabulary; v++) maximum = fmax(maximum, logits[v]);
  for (int64_t v = 0; v < vocabulary; v++) sum += exp(logits[v] - maximum);
  return maximum + log(sum) - logits[target];
}

/* losses[i], place[i] <- those of target i, in the first window that has it of all that begin at 0, S, 2 S, ... */
static void oracle_measure(oracle *o, int64_t length, int64_t stride, double losses[TARGETS], int64_t place[TARGETS]) {
  int64_t next = 0;
  for (int64_t start = 0; next < TARGETS; start += stride) {
    assert_fine(o->context, hark_decoding_truncate(o->decoding, 0));
    for (int64_t i = 0; i < length && start + i < TARGETS; i++) {
      assert_fine(o->context, hark_decoding_step(o->decoding, o->tokens[start + i]));
      if (start + i < next) continue;
      losses[next] = surprise(hark_decoding_logits(o->decoding), o->vocabulary, o->tokens[next + 1]);
      place[next++] = i;
    }
  }
}

static void assert_near(double a, double b, const char *what) {
  if (!(fabs(a - b) <= TOLERANCE)) fail_msg("%s: %.9f and %.9f", what, a, b);
}

/* A bucket is a position below 8, and a quarter from a power of two to the next above. */
static void assert_bucket(int64_t first, int64_t last, int64_t length) {
  int64_t power = 8;
  while (2 * power <= first) power *= 2;
  const int64_t width = first < 8 ? 1 : power / 4;
  assert_int_equal(first < 8 ? 0 : (first - power) % width, 0);
  assert_int_equal(last, first + width - 1 < length - 1 ? first + width - 1 : length - 1);
}

/* One line of JSON against the losses of the first `targets` targets. */
static void assert_line(const json_t *line, const double *losses, const int64_t *place, int64_t targets) {
  const int64_t length = (int64_t)command_number(line, "context");
  const json_t *const positions = json_object_get(line, "positions");
  double all = 0;
  int64_t counted = 0, before = -1;
  for (int64_t t = 0; t < targets; t++) all += losses[t];
  assert_near(command_number(line, "loss"), all / (double)targets, "loss");
  assert_near(command_number(line, "perplexity") / exp(all / (double)targets), 1, "perplexity");
  assert_true(command_number(line, "targets") == (double)targets);
  for (size_t i = 0; i < json_array_size(positions); i++) {
    const json_t *const bucket = json_array_get(positions, i);
    const int64_t first = (int64_t)command_number(bucket, "first"), last = (int64_t)command_number(bucket, "last");
    double sum = 0;
    int64_t count = 0;
    assert_true(first > before && last < length);
    assert_bucket(first, last, length);
    before = last;
    for (int64_t t = 0; t < targets; t++) {
      if (place[t] < first || place[t] > last) continue;
      sum += losses[t];
      count++;
    }
    assert_true(count > 0 && command_number(bucket, "targets") == (double)count);
    assert_near(command_number(bucket, "loss"), sum / (double)count, "loss at a position");
    counted += count;
  }
  assert_int_equal(counted, targets);
}

/* ---- tests ---- */

/* Models of every kind whose context can be exchanged; windows with and without overlap, shorter and longer than in training. */
static void losses_are_those_of_the_model_token_by_token(void **state) {
  (void)state;
  static const char *const kinds[] = {"",
                                      "--positions sinusoidal --structure window --window 3",
                                      "--positions none --positional 'bank[2](decay*periodic)' --positional-scope head",
                                      "--positions none --forget-gate",
                                      "--rotary-learned layer",
                                      "--structure hierarchical --hierarchy-block 2"};
  static const int64_t lengths[] = {5, 8, 13, LONGEST}, strides[] = {0, 3, 5};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    char words[512], run[16];
    (void)snprintf(run, sizeof run, "run-%zu", k);
    (void)snprintf(words, sizeof words, "train --data text.txt --out %s --steps 8 --lr 1e-2 --warmup 0 " TINY "%s", run, kinds[k]);
    expect(words, HARK_EXIT_DONE, "", "");
    oracle o;
    oracle_open(&o, run);
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
      const int64_t targets = s == 1 ? 100 : TARGETS;
      (void)snprintf(words, sizeof words, "eval %s --data other.txt --json --context 5,8 --context 13,32 --stride %d --targets %d", run,
                     (int)strides[s], s == 1 ? 100 : 0);
      expect(words, HARK_EXIT_DONE, "", "");
      assert_int_equal(test_line_count(output.out), 4);
      for (int i = 0; i < 4; i++) {
        double losses[TARGETS];
        int64_t place[TARGETS];
        json_t *const line = line_at(i);
        oracle_measure(&o, lengths[i], strides[s] > 0 ? strides[s] : lengths[i], losses, place);
        assert_true(command_number(line, "context") == (double)lengths[i]);
        assert_true(command_number(line, "stride") == (double)(strides[s] > 0 ? strides[s] : lengths[i]));
        assert_line(line, losses, place, targets);
        json_decref(line);
      }
    }
    oracle_close(&o);
  }
}

/* A model that sees the last token alone, without its position, has one loss whatever it is measured with: on the same targets. */
static void contexts_are_measured_on_the_same_targets(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 8 --lr 1e-2 --warmup 0 " TINY, HARK_EXIT_DONE, "", "");
  for (int stride = 0; stride <= 5; stride += 5) {
    char words[256];
    (void)snprintf(words, sizeof words,
                   "eval run --data other.txt --json --context 5,8,13,32,210 --structure window --window 0 --stride %d", stride);
    expect(words, HARK_EXIT_DONE, "", "");
    double first = 0;
    for (int i = 0; i < 5; i++) {
      json_t *const line = line_at(i);
      if (i == 0) first = command_number(line, "loss");
      assert_near(command_number(line, "loss"), first, "loss");
      assert_true(command_number(line, "targets") == TARGETS);
      json_decref(line);
    }
  }
  /* and one that sees more does not */
  expect("eval run --data other.txt --json --context 5,32", HARK_EXIT_DONE, "", "");
  json_t *const one = line_at(0), *const other = line_at(1);
  assert_true(command_number(one, "loss") != command_number(other, "loss"));
  json_decref(one);
  json_decref(other);
}

/* What training wrote and what eval says by default are the same number, to the bit, and so is the own context when it is asked for. */
static void the_own_context_is_as_ever(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 4 --json " TINY, HARK_EXIT_DONE, "", "");
  json_t *const trained = command_json(&output);
  const double loss = command_number(trained, "best_loss");
  json_decref(trained);
  assert_true(loss_of("eval run --json") == loss);
  assert_true(loss_of("eval run --json --context 8") == loss);
  expect("eval run", HARK_EXIT_DONE, "run, step-4, validation text: loss ", "");
  assert_int_equal(test_line_count(output.out), 1);
  expect("eval run --part training", HARK_EXIT_DONE, "run, step-4, training text: loss ", "");
  expect("eval run --context 8,16 --structure window", HARK_EXIT_DONE, "run, step-4, validation text, context 16: loss ", "");
  assert_non_null(strstr(output.out, "\nexchanged: \"model.attention.structure\": \"window\"\n"));
  assert_non_null(
      strstr(output.out, "\nloss by position in the window, and targets there:\ncontext                   8   targets        16"));
  assert_non_null(strstr(output.out, "\n8-9   "));
  assert_null(strstr(output.out, "\n16-19 "));
}

/* Scaled rates go on to refer to the context of training, whichever they are measured at. The other side is a run of the longer context
 * that says so itself, with the same weights; its file says it too. */
static void rotary_scaling_refers_to_the_runs_context(void **state) {
  (void)state;
#define YARN " --rotary-scaling yarn --rotary-factor 4"
  expect("train --data text.txt --out run --steps 8 --lr 1e-2 --warmup 0 " TINY, HARK_EXIT_DONE, "", "");
  const double loss = loss_of("eval run --data other.txt --json --context 32" YARN);
  assert_true(loss != loss_of("eval run --data other.txt --json --context 32"));
  assert_true(loss == loss_of("eval run --data other.txt --json --context 32 --model.rotary.original-context 8" YARN));
  /* two pairs: 3000 tokens have turns for half of the second one */
  assert_true(loss != loss_of("eval run --data other.txt --json --context 32 --model.rotary.original-context 3000" YARN));
  expect("train --init-from run --data text.txt --out longer --context 32 --model.rotary.original-context 8 " FRESH YARN, HARK_EXIT_DONE,
         "", "");
  /* to the bit with one window a batch, which is what a batch of the other comes to; else sums of batches are rounded to f32 elsewhere */
  assert_true(loss == loss_of("eval longer --data other.txt --json --batch 1"));
  const double shorter = loss_of("eval run --data other.txt --json --context 16" YARN);
  assert_true(fabs(shorter - loss_of("eval longer --data other.txt --json --context 16")) < 1e-6);
  oracle o;
  double losses[TARGETS];
  int64_t place[TARGETS];
  oracle_open(&o, "longer");
  oracle_measure(&o, LONGEST, LONGEST, losses, place);
  expect("eval run --data other.txt --json --context 32" YARN, HARK_EXIT_DONE,
         "\"exchanged\": {\"model.rotary.scaling\": \"yarn\", \"model.rotary.scaling_factor\": \"4\"}", "");
  json_t *const line = line_at(0);
  assert_line(line, losses, place, TARGETS);
  json_decref(line);
  oracle_close(&o);
  for (int i = 0; i < 2; i++) { /* the others too can be exchanged, and change something */
    char words[128];
    (void)snprintf(words, sizeof words, "eval run --data other.txt --json --context 32 --rotary-scaling %s --rotary-factor 4",
                   i == 0 ? "linear" : "ntk");
    assert_true(loss_of(words) != loss);
  }
#undef YARN
}

static double loss_with(const char *words) {
  char all[512];
  (void)snprintf(all, sizeof all, "eval run --data other.txt --json %s", words);
  return loss_of(all);
}

/* Scalings that come to the same are the same, to the bit. The run's windows have 8 tokens, its heads four pairs. */
static void scalings_agree_where_they_should(void **state) {
  (void)state;
#define LISTS " --model.rotary.short-factor 1,1,1,1 --model.rotary.long-factor 2,2,2,2"
  expect("train --data text.txt --out run --steps 8 --lr 1e-2 --warmup 0 " TINY, HARK_EXIT_DONE, "", "");
  const double at_8 = loss_with("--context 8"), at_32 = loss_with("--context 32");
  const double linear = loss_with("--context 32 --rotary-scaling linear --rotary-factor 2"),
               ntk = loss_with("--context 32 --rotary-scaling ntk --rotary-factor 4"),
               yarn = loss_with("--context 32 --rotary-scaling yarn --rotary-factor 4");
  assert_true(linear != at_32 && ntk != at_32 && yarn != at_32 && linear != ntk && linear != yarn && ntk != yarn);
  assert_true(loss_with("--context 8 --rotary-scaling dynamic --rotary-factor 3") == at_8);
  assert_true(loss_with("--context 32 --rotary-scaling dynamic --rotary-factor 1") == ntk); /* 32 / 8 */
  assert_true(loss_with("--context 32 --rotary-scaling dynamic --rotary-factor 2") != ntk);
  assert_true(loss_with("--context 8 --rotary-scaling longrope --model.rotary.attention-factor 1" LISTS) == at_8);
  assert_true(loss_with("--context 32 --rotary-scaling longrope --model.rotary.attention-factor 1" LISTS) == linear);
  assert_true(loss_with("--context 32 --rotary-scaling longrope --rotary-factor 2" LISTS) != linear); /* larger logits */
  /* of 8 tokens no pair turns 4 times or even twice */
  assert_true(loss_with("--context 32 --rotary-scaling llama3 --rotary-factor 2 --model.rotary.low-freq-factor 2") == linear);
  assert_true(loss_with("--context 32 --rotary-scaling llama3 --rotary-factor 2") != linear);
  assert_true(loss_with("--context 32 --rotary-scaling yarn --rotary-factor 2 --model.rotary.ramp turns --model.rotary.beta-slow 2 "
                        "--model.rotary.attention-factor 1") == linear);
  assert_true(loss_with("--context 32 --rotary-scaling yarn --rotary-factor 4 --model.rotary.ramp turns") != yarn);
  expect("eval run --context 32 --rotary-scaling longrope --rotary-factor 2", HARK_EXIT_USAGE, "",
         "longrope needs model.rotary.short_factor and model.rotary.long_factor");
  expect("eval run --context 32 --rotary-scaling longrope --rotary-factor 2 --model.rotary.short-factor 1,1 --model.rotary.long-factor 1,1",
         HARK_EXIT_USAGE, "", "model.rotary.short_factor has 2 numbers, expected one for each of the 4 pairs that turn");
  expect("eval run --context 32 --rotary-scaling yarn", HARK_EXIT_USAGE, "", "a scaling needs model.rotary.scaling_factor");
  expect("eval run --context 32 --rotary-scaling linear --rotary-factor 2 --model.rotary.beta-fast 8", HARK_EXIT_USAGE, "",
         "has no effect here, it needs --rotary-scaling yarn");
#undef LISTS
}

/* A run that says yarn and no ramp is from before, when there was one in turns alone. */
static void yarn_of_an_older_run_stays_as_it_was(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 4 --lr 1e-2 --warmup 0 --rotary-scaling yarn --rotary-factor 4 " TINY, HARK_EXIT_DONE, "",
         "");
  const double pair = loss_with("--context 32"), turns = loss_with("--context 32 --model.rotary.ramp turns");
  assert_true(pair != turns);
  char *const text = test_file_text(folder, "run/config.yaml"), *const ramp = strstr(text, "    ramp: pair");
  assert_non_null(ramp);
  memmove(ramp, strchr(ramp, '\n') + 1, strlen(strchr(ramp, '\n') + 1) + 1);
  test_file_write_text(folder, "run/config.yaml", text);
  free(text);
  expect("info run", HARK_EXIT_DONE, "      ramp: turns\n", "");
  assert_true(loss_with("--context 32") == turns);
  assert_true(loss_with("--context 32 --rotary-factor 4") == turns);
  assert_true(loss_with("--context 32 --rotary-scaling yarn") == pair); /* asked for now */
  expect("train --init-from run --data text.txt --out longer --context 32 " FRESH, HARK_EXIT_DONE, "", "");
  expect("info longer", HARK_EXIT_DONE, "      ramp: turns\n", "");
}

/* decay(d / 2) of length 3 is decay(d) of length 6. */
static void a_stretched_kernel_is_a_longer_one(void **state) {
  (void)state;
  expect(
      "train --data text.txt --out run --steps 8 --lr 1e-2 --warmup 0 --positions none --positional 'decay(l=3)' "
      "--train.positional-rate 0 " TINY,
      HARK_EXIT_DONE, "", "");
  expect("train --init-from run --data text.txt --out longer --positional 'decay(l=6)' --allow-missing 'positional.*' " FRESH,
         HARK_EXIT_DONE, "", "it is initialised");
  const double loss = loss_of("eval run --data other.txt --json --context 16 --positional-stretch 2");
  assert_near(loss, loss_of("eval longer --data other.txt --json --context 16"), "stretched");
  assert_true(fabs(loss - loss_of("eval run --data other.txt --json --context 16")) > 10 * TOLERANCE);
}

/* Every line is the evaluation with that window, to the bit, and the last one that without. A window of the whole context cuts nothing. */
static void windows_are_cut_in_one_call(void **state) {
  (void)state;
  static const int windows[] = {0, 1, 3, 7};
  expect("train --data text.txt --out run --steps 8 --lr 1e-2 --warmup 0 " TINY, HARK_EXIT_DONE, "", "");
  const double uncut = loss_of("eval run --data other.txt --json");
  double losses[4];
  for (int i = 0; i < 4; i++) {
    char words[128];
    (void)snprintf(words, sizeof words, "eval run --data other.txt --json --structure window --window %d", windows[i]);
    losses[i] = loss_of(words);
  }
  expect("eval run --data other.txt --json --window-cut 0,1 --window-cut 3,7", HARK_EXIT_DONE, "", "");
  for (int i = 0; i < 5; i++) {
    json_t *const line = line_at(i);
    assert_true(command_number(line, "loss") == (i < 4 ? losses[i] : uncut));
    const json_t *const window = json_object_get(line, "window"), *const exchanged = json_object_get(line, "exchanged");
    assert_true(i < 4 ? json_integer_value(window) == windows[i] : json_is_null(window));
    assert_int_equal(json_object_size(exchanged), i < 4 ? 2 : 0);
    if (i < 4) assert_string_equal(json_string_value(json_object_get(exchanged, "model.attention.structure")), "window");
    json_decref(line);
  }
  assert_near(losses[3], uncut, "a window of the whole context");
  assert_true(losses[0] != losses[1] && losses[1] != losses[2] && losses[2] != losses[3]);
  expect("eval run --data other.txt --json --window-cut auto --weights bf16", HARK_EXIT_DONE, "", "");
  for (int i = 0; i < 4; i++) { /* context 8 */
    json_t *const line = line_at(i);
    assert_true(i < 3 ? json_integer_value(json_object_get(line, "window")) == 1 << i : json_is_null(json_object_get(line, "window")));
    assert_int_equal(json_object_size(json_object_get(line, "exchanged")), i < 3 ? 3 : 1);
    json_decref(line);
  }
  assert_int_equal(test_line_count(output.out), 4);
  expect("eval run --data other.txt --window-cut 3,7 --context 8,16", HARK_EXIT_DONE, "another text, context 8, window 3: loss ", "");
  assert_non_null(strstr(output.out, ", context 16, uncut: loss "));
  char row[64];
  (void)snprintf(row, sizeof row, "\n3           %9.4f %12.4f\n", losses[2], losses[2] - uncut);
  const char *const first = strstr(output.out, "\nloss by window, nats per token, context 8\nwindow "),
                    *const second = strstr(output.out, "\nloss by window, nats per token, context 16\nwindow ");
  assert_true(first != NULL && second > first && strstr(first, row) != NULL && strstr(first, row) < second);
  assert_null(strstr(output.out, "loss by position"));
}

static void windows_that_mean_nothing_are_refused(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 1 " TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out ridge --steps 1 --normalisation cme " TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out tables --steps 1 --structure hierarchical --hierarchy-block 2 --hierarchical-bias " TINY,
         HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out lines --unit sentences --steps 1 " TINY, HARK_EXIT_DONE, "", "");
  static const struct {
    const char *words, *message;
  } refused[] = {
      {"run --window-cut 4,x", "--window-cut: \"4,x\" given, expected auto, or whole numbers in [0, 16777216]"},
      {"run --window-cut auto,4", "--window-cut: \"auto,4\" given"},
      {"run --window-cut 4,4", "--window-cut: 4 after 4, expected growing windows"},
      {"run --window-cut ,", "--window-cut: no window given"},
      {"run --window-cut 4 --structure window", "--structure: has no effect here: --window-cut sets it"},
      {"run --window-cut 4 --window 3", "--window: has no effect here, it needs --structure window"},
      {"ridge --window-cut 4", "--window-cut: attention in windows is not possible: model.attention.normalisation cme needs"},
      {"tables --window-cut 4", "--window-cut: this model has learned biases of hierarchical attention"},
      {"lines --window-cut 4", "--window-cut: has no effect here, it needs data.unit text (currently sentences)"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char words[256];
    (void)snprintf(words, sizeof words, "eval %s", refused[i].words);
    expect(words, HARK_EXIT_USAGE, "", refused[i].message);
    assert_int_equal(test_line_count(output.err), 1);
  }
}

static void what_cannot_be_measured_is_refused(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 1 " TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out learned --steps 1 --positions learned " TINY, HARK_EXIT_DONE, "", "");
  expect("eval run --data other.txt --context 210", HARK_EXIT_DONE, "210 targets", ""); /* and the text is tokenised */
  static const struct {
    const char *words, *message;
  } refused[] = {
      {"run --data other.txt --validation text.txt", "--validation: has no effect here: the text of --data is measured"},
      {"run --context 0", "--context: \"0\" given, expected whole numbers in [1, 16777216]"},
      {"run --context 8,x", "--context: \"8,x\" given"},
      {"run --context 16777217", "--context: \"16777217\" given"},
      {"run --context 8,16,8", "--context: 8 is given twice"},
      {"run --context 8 --context 16 --context 8", "--context: 8 is given twice"},
      {"run --context 9223372036854775808", "--context: \"9223372036854775808\" given, expected whole numbers in [1, 16777216]"},
      {"run --context ,", "--context: no context given"},
      {"run --context 8,16 --stride 9", "--stride: 9 would leave out targets between windows of 8 tokens"},
      {"run --stride 9", "--stride: 9 would leave out targets"},
      {"run --data other.txt --context 8,211", "context 211 is longer than the text that is measured: 210 targets"},
      {"run --data other.txt --context 8 --targets 7", "context 8 is longer than the text that is measured: 7 targets"},
      {"learned --context 8,16", "--context: model.positions is learned for the 8 tokens of the run's own context, not for 16"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char words[256];
    (void)snprintf(words, sizeof words, "eval %s", refused[i].words);
    expect(words, HARK_EXIT_USAGE, "", refused[i].message);
    assert_int_equal(test_line_count(output.err), 1);
  }
  expect("eval learned --context 8 --stride 2", HARK_EXIT_DONE, "context 8", "");
  char many[512] = "eval run --context 1";
  for (int i = 2; i <= 65; i++) (void)snprintf(many + strlen(many), sizeof many - strlen(many), ",%d", i);
  expect(many, HARK_EXIT_USAGE, "", "more than 64 contexts");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(losses_are_those_of_the_model_token_by_token),
      TEST(contexts_are_measured_on_the_same_targets),
      TEST(the_own_context_is_as_ever),
      TEST(rotary_scaling_refers_to_the_runs_context),
      TEST(scalings_agree_where_they_should),
      TEST(yarn_of_an_older_run_stays_as_it_was),
      TEST(a_stretched_kernel_is_a_longer_one),
      TEST(windows_are_cut_in_one_call),
      TEST(windows_that_mean_nothing_are_refused),
      TEST(what_cannot_be_measured_is_refused),
  };
  return cmocka_run_group_tests_name("eval", tests, NULL, NULL);
}
