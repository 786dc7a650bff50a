/* test_sequence_attention.c - the attention of a layer over a sequence whose rows are spread over processes: results and gradients of its
 * inputs have the bits of one process, those of its parameters are sums over processes. Threads are in the place of processes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/spread.h"
#include "backend/attention_algorithm.h"
#include "group/part.h"
#include "models/network.h"
#include "nn/self_attention.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/group_threads.h"
#include "support/train/small_run.h"

#define DIM 8
#define HEADS 10
#define KEY_HEADS 5
#define SHORT 150
#define LONG 17000 /* five parts of 4096 rows */
#define BATCH 2
#define PARAMETERS 4096

enum { QUERY, KEY, VALUE, GATE, INPUTS };
static const int64_t widths[INPUTS] = {HEADS * DIM, KEY_HEADS *DIM, KEY_HEADS *DIM, HEADS};

typedef struct layer_case {
  const char *name;
  hark_self_attention_spec spec;
  const char *positional; /* expression; "": none */
  int64_t positional_rows;
  bool learned_rates;
  int64_t rows;
  int keeps; /* the largest number of processes that keep their rows; more of them exchange rows for heads */
} layer_case;

static int64_t total_rows; /* of the current case */

#define SPEC(...)                                                                                                                          \
  { .width = 16, .heads = HEADS, .key_heads = KEY_HEADS, .head_dim = DIM, .deviation = 0.1, .output_deviation = 0.1, __VA_ARGS__ }

static const layer_case cases[] = {
    {"dense", SPEC(.causal = true), "", 1, false, SHORT, 0},
    {"dense, not causal", SPEC(.causal = false), "", 1, false, SHORT, 0},
    {"window", SPEC(.causal = true, .structure = HARK_STRUCTURE_WINDOW, .choice = {.window = 6}), "", 1, false, SHORT, 3},
    {"window, as wide as the parts", SPEC(.causal = true, .structure = HARK_STRUCTURE_WINDOW, .choice = {.window = 40}), "", 1, false, 600,
     1},
    {"window, not causal, dropout", SPEC(.structure = HARK_STRUCTURE_WINDOW, .choice = {.window = 70, .dropout = 0.25}), "", 1, false, 3000,
     5},
    {"window, learned rates",
     SPEC(.causal = true, .structure = HARK_STRUCTURE_WINDOW, .choice = {.window = 40},
          .rotary = {.present = true, .base = 10000, .head_dim = DIM}),
     "", 1, true, 1700, 5},
    {"window, kernel", SPEC(.causal = true, .structure = HARK_STRUCTURE_WINDOW, .choice = {.window = 19}), "decay", 1, false, SHORT, 0},
    {"hierarchical", SPEC(.causal = true, .structure = HARK_STRUCTURE_HIERARCHICAL, .choice = {.hierarchy_block = 4}), "", 1, false, SHORT,
     0},
    {"hierarchical, means, table by head",
     SPEC(.structure = HARK_STRUCTURE_HIERARCHICAL, .choice = {.hierarchy_block = 4, .hierarchical_bias = true}), "", 1, false, SHORT, 0},
    {"long hierarchical", SPEC(.causal = true, .structure = HARK_STRUCTURE_HIERARCHICAL, .choice = {.hierarchy_block = 4}), "", 1, false,
     LONG, 5},
    {"long hierarchical, means, table by head, dropout",
     SPEC(.structure = HARK_STRUCTURE_HIERARCHICAL, .choice = {.hierarchy_block = 4, .hierarchical_bias = true, .dropout = 0.25}), "", 1,
     false, LONG, 5},
    {"long hierarchical, kernels of heads",
     SPEC(.causal = true, .structure = HARK_STRUCTURE_HIERARCHICAL, .choice = {.hierarchy_block = 4}), "decay*periodic", HEADS, false, LONG,
     5},
    {"long hierarchical, exact",
     SPEC(.causal = true, .structure = HARK_STRUCTURE_HIERARCHICAL,
          .choice = {.hierarchy_block = 4, .coarse_query = HARK_COARSE_QUERY_EXACT}),
     "", 1, false, LONG, 0},
    {"long hierarchical, linear",
     SPEC(.structure = HARK_STRUCTURE_HIERARCHICAL,
          .choice = {.hierarchy_block = 4, .interpolation = HARK_INTERPOLATION_LINEAR, .hierarchical_bias = true}),
     "", 1, false, LONG, 0},
    {"stick-breaking", SPEC(.causal = true, .normalisation = HARK_NORMALISATION_STICK_BREAKING), "", 1, false, SHORT, 0},
    {"stick-breaking, window, kernels of heads",
     SPEC(.causal = true, .normalisation = HARK_NORMALISATION_STICK_BREAKING, .structure = HARK_STRUCTURE_WINDOW, .choice = {.window = 19}),
     "decay", HEADS, false, SHORT, 0},
    {"gates and dropout", SPEC(.causal = true, .choice = {.forget_gate = true, .dropout = 0.25}), "", 1, false, SHORT, 0},
    {"contextual positions", SPEC(.causal = true, .choice = {.contextual_positions = 9}), "", 1, false, SHORT, 0},
    {"contextual positions, window, kernel",
     SPEC(.causal = true, .structure = HARK_STRUCTURE_WINDOW, .choice = {.window = 19, .contextual_positions = 5}), "decay", 1, false,
     SHORT, 0},
    {"kernel of the layer", SPEC(.causal = true), "decay", 1, false, SHORT, 0},
    {"kernels of heads", SPEC(.causal = true), "decay*periodic", HEADS, false, SHORT, 0},
    {"learned rates of heads", SPEC(.causal = true, .rotary = {.present = true, .base = 10000, .head_dim = DIM}), "", 1, true, SHORT, 0},
};

typedef struct layer_run {
  const layer_case *c;
  int64_t batch;
  bool spread;
  float *inputs[INPUTS], *gradients[INPUTS], *target, *out; /* [batch, total_rows, width], of all rows */
  float *parameters;                                        /* [ranks, PARAMETERS]: their gradients */
} layer_run;

static float number(int64_t i, int64_t kind) { return (float)sin(0.7 * (double)i + 11 * (double)kind) + 0.01f * (float)(i % 7); }

/* The rows of a tensor of all rows, copied to or from one of some rows. */
static void copy_rows(float *all, int64_t batch, int64_t width, hark_share rows, float *some, bool out) {
  for (int64_t b = 0; b < batch; b++) {
    float *const whole = all + (b * total_rows + rows.first) * width, *const part = some + b * rows.count * width;
    memcpy(out ? whole : part, out ? part : whole, (size_t)(rows.count * width) * sizeof(float));
  }
}

typedef struct layer_parts {
  hark_parameters parameters;
  hark_positional_source positional;
  hark_rotary_source rates;
  hark_self_attention layer;
  hark_attention_plan *plan;
  hark_tape *tape;
} layer_parts;

static hark_status make_layer(hark_context *context, const layer_run *run, hark_sequence *sequence, layer_parts *parts) {
  const layer_case *const c = run->c;
  hark_self_attention_spec spec = c->spec;
  const hark_pass_sizes sizes = {.batch = run->batch, .queries = total_rows, .keys = total_rows, .sequence = sequence};
  hark_parameters_open(&parts->parameters, HARK_F32);
  if (c->positional[0] != '\0') {
    HARK_TRY(hark_positional_source_open(context, c->positional, c->positional_rows, total_rows, &parts->positional));
    spec.positional = true;
    spec.positional_source = &parts->positional;
  }
  if (c->learned_rates) {
    HARK_TRY(hark_rotary_source_open(context, &spec.rotary, KEY_HEADS, &parts->rates));
    spec.rotary_source = &parts->rates;
  }
  HARK_TRY(hark_self_attention_declare(context, &parts->parameters, &spec, 0, "layer", &parts->layer));
  HARK_TRY(hark_parameters_finish(context, &parts->parameters, true));
  HARK_TRY(hark_parameters_initialise(context, &parts->parameters, 3));
  int64_t unit = 0;
  HARK_TRY(hark_self_attention_row_unit(context, &parts->layer.spec, HARK_F32, &sizes, &unit));
  const int size = sequence != NULL ? hark_group_size(sequence->group) : 1;
  if (sequence != NULL && unit > 0) sequence->unit = hark_attention_spread_full_grain(unit, total_rows, size);
  HARK_TRY(hark_self_attention_plan(context, &parts->layer.spec, HARK_F32, &sizes, true, &parts->plan));
  assert_int_equal(parts->plan->keeps_rows, sequence != NULL && size <= c->keeps);
  return hark_tape_create(context, &parts->tape);
}

static void free_layer(hark_context *context, layer_parts *parts) {
  hark_tape_destroy(&parts->tape);
  hark_attention_plan_destroy(context, &parts->plan);
  hark_parameters_close(context, &parts->parameters);
  hark_positional_source_close(context, &parts->positional);
  hark_rotary_source_close(context, &parts->rates);
}

/* Attention of the rows, and the gradient of the squared distance to the target. */
static hark_status pass(layer_parts *parts, hark_context *context, const layer_run *run, const hark_sequence *sequence, hark_share rows,
                        float *const *inputs, float *const *gradients, float *target, float *out) {
  const hark_forward forward = {.tape = parts->tape,
                                .parameters = &parts->parameters,
                                .training = true,
                                .seed = 5,
                                .slice_row = rows.first,
                                .rows = sequence != NULL ? total_rows : 0,
                                .sequence = sequence,
                                .plans = &parts->plan};
  hark_value values[INPUTS] = {0}, mixed = 0, loss = 0;
  for (int i = 0; i < INPUTS; i++) {
    const int64_t shape[] = {run->batch, rows.count, widths[i]};
    if (i != GATE || run->c->spec.choice.forget_gate) values[i] = hark_tape_input(parts->tape, HARK_F32, 3, shape, inputs[i], gradients[i]);
  }
  const int64_t shape[] = {run->batch, rows.count, HEADS * DIM};
  const hark_value goal = hark_tape_input(parts->tape, HARK_F32, 3, shape, target, NULL);
  HARK_TRY(hark_tape_failure(parts->tape));
  HARK_TRY(hark_self_attention_mix(context, &forward, &parts->layer, values, 0, &mixed));
  memcpy(out, hark_tape_tensor(parts->tape, mixed)->data, (size_t)(run->batch * rows.count * HEADS * DIM) * sizeof *out);
  HARK_TRY(hark_network_squared_error(parts->tape, mixed, goal, 0.5, &loss));
  return hark_tape_backward(parts->tape, loss, 1);
}

static float *zeros(int64_t count) {
  float *const numbers = calloc((size_t)count, sizeof *numbers);
  assert_non_null(numbers);
  return numbers;
}

/* An exchange of heads, forward and backward, would send at least three times as much. */
static void assert_few_bytes(const layer_run *run, const hark_group *group) {
  const int64_t size = hark_group_size(group), numbers = 2 * run->batch * total_rows / size * (2 * HEADS + 2 * KEY_HEADS) * DIM;
  assert_true(3 * (int64_t)group->sent < numbers * (int64_t)sizeof(float) * (size - 1) / size || size == 1);
}

static hark_status run_rank(hark_context *context, hark_group *group, void *user) {
  layer_run *const run = user;
  layer_parts parts = {.tape = NULL};
  hark_sequence spread = {.group = group, .total = total_rows}, *const sequence = run->spread ? &spread : NULL;
  hark_status status = make_layer(context, run, sequence, &parts);
  const hark_share rows = run->spread ? hark_sequence_own_rows(&spread) : (hark_share){0, total_rows};
  float *inputs[INPUTS], *gradients[INPUTS];
  float *const target = zeros(BATCH * total_rows * HEADS * DIM), *const out = zeros(BATCH * total_rows * HEADS * DIM);
  for (int i = 0; i < INPUTS; i++) {
    inputs[i] = zeros(BATCH * total_rows * widths[i]);
    gradients[i] = zeros(BATCH * total_rows * widths[i]);
    copy_rows(run->inputs[i], run->batch, widths[i], rows, inputs[i], false);
  }
  copy_rows(run->target, run->batch, HEADS * DIM, rows, target, false);
  if (status == HARK_OK) status = pass(&parts, context, run, sequence, rows, inputs, gradients, target, out);
  if (status == HARK_OK && parts.plan->keeps_rows && total_rows == LONG) assert_few_bytes(run, group);
  if (status == HARK_OK) {
    const hark_tensor *const all = &parts.parameters.gradients;
    memcpy(run->parameters + (ptrdiff_t)hark_group_rank(group) * PARAMETERS, all->data, (size_t)all->shape[0] * sizeof(float));
    copy_rows(run->out, run->batch, HEADS * DIM, rows, out, true);
    for (int i = 0; i < INPUTS; i++) copy_rows(run->gradients[i], run->batch, widths[i], rows, gradients[i], true);
  }
  for (int i = 0; i < INPUTS; i++) {
    free(inputs[i]);
    free(gradients[i]);
  }
  free(target);
  free(out);
  free_layer(context, &parts);
  return status;
}

static void open_run(layer_run *run, const layer_case *c, int64_t batch) {
  *run = (layer_run){.c = c, .batch = batch};
  total_rows = c->rows;
  for (int i = 0; i < INPUTS; i++) {
    run->inputs[i] = zeros(BATCH * total_rows * widths[i]);
    run->gradients[i] = zeros(BATCH * total_rows * widths[i]);
    for (int64_t n = 0; n < BATCH * total_rows * widths[i]; n++) run->inputs[i][n] = number(n, i);
  }
  run->out = zeros(BATCH * total_rows * HEADS * DIM);
  run->target = zeros(BATCH * total_rows * HEADS * DIM);
  for (int64_t n = 0; n < BATCH * total_rows * HEADS * DIM; n++) run->target[n] = number(n, INPUTS);
  run->parameters = zeros(TEST_MOST_RANKS * PARAMETERS);
}

static void close_run(layer_run *run) {
  for (int i = 0; i < INPUTS; i++) {
    free(run->inputs[i]);
    free(run->gradients[i]);
  }
  free(run->out);
  free(run->target);
  free(run->parameters);
}

static void assert_bits(const char *what, const layer_run *run, int ranks, const float *got, const float *expected, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (memcmp(&got[i], &expected[i], sizeof *got) != 0)
      fail_msg("%s, batch %d, %d processes: %s %lld is %.9g, expected %.9g", run->c->name, (int)run->batch, ranks, what, (long long)i,
               (double)got[i], (double)expected[i]);
}

static void compare(const layer_run *alone, const layer_run *spread, int ranks) {
  static const char *const names[] = {"gradient of queries", "gradient of keys", "gradient of values", "gradient of gates"};
  assert_bits("result", alone, ranks, spread->out, alone->out, alone->batch * total_rows * HEADS * DIM);
  for (int i = 0; i < INPUTS; i++)
    assert_bits(names[i], alone, ranks, spread->gradients[i], alone->gradients[i], alone->batch * total_rows * widths[i]);
  double most = 0;
  for (int64_t p = 0; p < PARAMETERS; p++) most = fmax(most, fabs((double)alone->parameters[p]));
  for (int64_t p = 0; p < PARAMETERS; p++) {
    double sum = 0;
    for (int rank = 0; rank < ranks; rank++) sum += (double)spread->parameters[rank * PARAMETERS + p];
    if (fabs(sum - (double)alone->parameters[p]) > 1e-5 * most)
      fail_msg("%s, %d processes: gradient of parameter %lld is %g, expected %g", alone->c->name, ranks, (long long)p, sum,
               (double)alone->parameters[p]);
  }
}

static void same_bits_for_any_number(void **state) {
  static const int sizes[] = {1, 2, 3, 5};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int64_t batch = 1; batch <= (cases[i].spec.choice.dropout > 0 && cases[i].keeps == 0 ? 1 : BATCH); batch++) {
      layer_run alone, spread;
      open_run(&alone, &cases[i], batch);
      test_group_run(1, 30, run_rank, &alone, NULL, NULL);
      for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        open_run(&spread, &cases[i], batch);
        spread.spread = true;
        test_group_run(sizes[s], 30, run_rank, &spread, NULL, NULL);
        compare(&alone, &spread, sizes[s]);
        close_run(&spread);
      }
      close_run(&alone);
    }
}

/* ---- bytes ---- */

#define COUNTED 65536
#define COUNTED_RANKS 4

/* The forward of a layer whose rows are spread over processes; *sent: the bytes that all send. */
static hark_status send_forward(hark_context *context, hark_group *group, void *user) {
  layer_run *const run = user;
  layer_parts parts = {.tape = NULL};
  hark_sequence sequence = {.group = group, .total = total_rows};
  hark_status status = make_layer(context, run, &sequence, &parts);
  const int64_t rows = hark_sequence_own_rows(&sequence).count;
  float *const numbers = zeros(rows * HEADS * DIM);
  hark_value values[INPUTS] = {0}, mixed = 0;
  const hark_forward forward = {.tape = parts.tape,
                                .parameters = &parts.parameters,
                                .slice_row = hark_sequence_own_rows(&sequence).first,
                                .rows = total_rows,
                                .sequence = &sequence,
                                .plans = &parts.plan};
  for (int i = 0; i < GATE && status == HARK_OK; i++) {
    const int64_t shape[] = {1, rows, widths[i]};
    values[i] = hark_tape_input(parts.tape, HARK_F32, 3, shape, numbers, NULL);
  }
  if (status == HARK_OK) status = hark_self_attention_mix(context, &forward, &parts.layer, values, 0, &mixed);
  run->parameters[hark_group_rank(group)] = (float)group->sent;
  free(numbers);
  free_layer(context, &parts);
  return status;
}

/* A long hierarchical layer sends less than 2 % of what passing all keys and values to all processes would. */
static void few_bytes_of_a_long_sequence(void **state) {
  static const layer_case c = {
      "counted",    SPEC(.causal = true, .structure = HARK_STRUCTURE_HIERARCHICAL, .choice = {.hierarchy_block = 16}),
      "",           1,
      false,        COUNTED,
      COUNTED_RANKS};
  float parameters[TEST_MOST_RANKS] = {0};
  layer_run run = {.c = &c, .batch = 1, .parameters = parameters};
  double sent = 0;
  (void)state;
  total_rows = COUNTED;
  test_group_run(COUNTED_RANKS, 60, send_forward, &run, NULL, NULL);
  for (int rank = 0; rank < COUNTED_RANKS; rank++) sent += (double)parameters[rank];
  const double all = (double)COUNTED * (COUNTED_RANKS - 1) * 2 * KEY_HEADS * DIM * (double)sizeof(float);
  if (!(sent > 0 && sent < 0.02 * all)) fail_msg("%.0f bytes are sent, expected at most 2 %% of %.0f", sent, all);
}

/* ---- what is refused ---- */

static void assert_refused(const layer_case *c, int ranks, const char *message) {
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  layer_run run;
  open_run(&run, c, 1);
  run.spread = true;
  test_group_run(ranks, 30, run_rank, &run, statuses, messages);
  for (int rank = 0; rank < ranks; rank++) {
    assert_int_equal(statuses[rank], HARK_UNSUPPORTED);
    assert_string_equal(messages[rank], message);
  }
  close_run(&run);
}

static void refused(void **state) {
  static const layer_case ridge = {
      "ridge",
      SPEC(.causal = true, .normalisation = HARK_NORMALISATION_CME, .ridge = 0.1, .choice = {.kernel = HARK_KERNEL_RBF, .sigma = 1}),
      "",
      1,
      false,
      SHORT,
      0};
  static const layer_case delimited = {
      "delimited",
      SPEC(.structure = HARK_STRUCTURE_COMPRESSED, .causal = true,
           .choice = {.chunk = 2, .chunk_slots = 1, .selected_slots = 2, .chunk_delimiters = {1}, .chunk_delimiter_count = 1}),
      "",
      1,
      false,
      SHORT,
      0};
  (void)state;
  assert_refused(&cases[0], 6, "run.sequence_ranks is 6, expected at most the 5 key heads of the model");
  assert_refused(&ridge, 2, "run.sequence_ranks: model.attention.normalisation cme reads whole sequences");
  assert_refused(&delimited, 2, "run.sequence_ranks: model.attention.delimiters cut whole sequences into chunks");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_for_any_number), cmocka_unit_test(few_bytes_of_a_long_sequence),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
