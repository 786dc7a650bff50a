/* test_tape.c - the tape against differences, with everything that shares memory or computes twice, and its memory.
 *
 * The graph under test uses a value twice, passes gradients on unchanged, overwrites consumed inputs and may recompute a part. All
 * gradients are compared with four-point central differences in f64: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, whose error is O(h^4 +
 * eps/h); with h = 1e-3 and a function of order one that is below 1e-10, and 1e-7 of the largest gradient leaves room for large fifth
 * derivatives. */
#include <hark/experimental.h>
#include <hark/hark.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/pool.h"
#include "support/cmocka_all.h"
#include "support/run.h"
#include "support/setups.h"

#define ROWS 3
#define WIDTH 4
#define CLASSES 5
#define DIFFERENCE_STEP 1e-3
#define TOLERANCE 1e-7

enum { LEAF_X, LEAF_W, LEAF_GAIN, LEAF_HEAD, LEAVES };

typedef struct graph {
  hark_context *context;
  hark_tape *tape;
  hark_tensor leaves[LEAVES], gradients[LEAVES], targets;
  bool segmented;
} graph;

static const int64_t leaf_shapes[LEAVES][2] = {{ROWS, WIDTH}, {WIDTH, WIDTH}, {WIDTH, 1}, {CLASSES, WIDTH}};
static const int leaf_ranks[LEAVES] = {2, 2, 1, 2};

static void graph_open(graph *g, hark_context *context, hark_type type, bool segmented) {
  *g = (graph){.context = context, .segmented = segmented};
  assert_int_equal(hark_tape_create(context, &g->tape), HARK_OK);
  for (int i = 0; i < LEAVES; i++) {
    assert_int_equal(hark_tensor_create(context, type, leaf_ranks[i], leaf_shapes[i], &g->leaves[i]), HARK_OK);
    assert_int_equal(hark_tensor_create(context, type, leaf_ranks[i], leaf_shapes[i], &g->gradients[i]), HARK_OK);
    double values[64];
    float narrow[64];
    const int64_t count = hark_tensor_count(&g->leaves[i]);
    test_random(values, count, -1, 1, (uint32_t)i, 0);
    for (int64_t j = 0; j < count; j++) narrow[j] = (float)values[j];
    assert_int_equal(hark_tensor_write(context, &g->leaves[i], type == HARK_F64 ? (void *)values : (void *)narrow), HARK_OK);
  }
  const int32_t targets[ROWS] = {1, 4, 0};
  const int64_t rows = ROWS;
  assert_int_equal(hark_tensor_create(context, HARK_I32, 1, &rows, &g->targets), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &g->targets, targets), HARK_OK);
}

static void graph_close(graph *g) {
  for (int i = 0; i < LEAVES; i++) {
    hark_tensor_destroy(g->context, &g->leaves[i]);
    hark_tensor_destroy(g->context, &g->gradients[i]);
  }
  hark_tensor_destroy(g->context, &g->targets);
  hark_tape_destroy(&g->tape);
}

static hark_status leaf(const graph *g, int i, hark_value *out) { return hark_tape_leaf(g->tape, &g->leaves[i], &g->gradients[i], out); }

/* y = x + gelu(rms_norm(x) W^T) + (x + x): x is used four times. */
static hark_status build_middle(void *closure, hark_tape *tape, const hark_value *inputs, hark_value *outputs) {
  const graph *g = *(graph *const *)closure;
  const hark_norm_attributes norm = {.epsilon = 1e-5};
  const hark_gelu_attributes gelu = {0};
  hark_value normed[2] = {inputs[0]}, inner[2] = {0}, twice[2] = {inputs[0], inputs[0]}, sum[2] = {inputs[0]};
  hark_status status = leaf(g, LEAF_GAIN, &normed[1]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_rms_norm, &norm, 2, normed, 0, &inner[0]);
  if (status == HARK_OK) status = leaf(g, LEAF_W, &inner[1]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_linear, NULL, 2, inner, 1, &inner[0]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_gelu, &gelu, 1, inner, 1, &sum[1]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_add, NULL, 2, twice, 0, &twice[0]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_add, NULL, 2, sum, 2, &twice[1]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_add, NULL, 2, twice, 3, outputs);
  return status;
}

static hark_status forward(const graph *g, hark_value *loss) {
  hark_value x = 0, head[2] = {0}, last[2] = {0}, outputs[2] = {0};
  hark_tape_reset(g->tape);
  hark_status status = leaf(g, LEAF_X, &x);
  /* a non-leaf in front, so that gradients of inputs of the segment are the tape's own */
  const hark_scale_attributes scale = {.factor = 0.7};
  if (status == HARK_OK) status = hark_tape_apply(g->tape, &hark_op_scale, &scale, 1, &x, 0, &x);
  if (status == HARK_OK) {
    graph *self = (graph *)(uintptr_t)g;
    const hark_value inputs[] = {x, 0}; /* the second one is absent */
    status = g->segmented ? hark_tape_segment(g->tape, build_middle, &self, sizeof self, 2, inputs, 1, &head[0])
                          : build_middle(&self, g->tape, inputs, &head[0]);
  }
  hark_tape_release(g->tape, x);
  if (status == HARK_OK) status = leaf(g, LEAF_HEAD, &head[1]);
  if (status == HARK_OK) status = hark_tape_apply(g->tape, &hark_op_linear, NULL, 2, head, 1, &last[0]);
  if (status == HARK_OK) status = hark_tape_leaf(g->tape, &g->targets, NULL, &last[1]);
  const hark_cross_entropy_attributes loss_attributes = {.weight = 1.0 / ROWS, .ignore = -1};
  if (status == HARK_OK) status = hark_tape_apply(g->tape, &hark_op_cross_entropy, &loss_attributes, 2, last, 1, outputs);
  *loss = outputs[0];
  return status;
}

static double loss_of(const graph *g) {
  hark_value loss = 0;
  double value = 0;
  assert_int_equal(forward(g, &loss), HARK_OK);
  assert_int_equal(hark_tensor_read(g->context, hark_tape_tensor(g->tape, loss), &value), HARK_OK);
  return value;
}

static void gradients_of(const graph *g) {
  hark_value loss = 0;
  for (int i = 0; i < LEAVES; i++) {
    hark_tensor gradient = g->gradients[i];
    assert_int_equal(hark_tensor_zero(g->context, &gradient), HARK_OK);
  }
  assert_int_equal(forward(g, &loss), HARK_OK);
  assert_int_equal(hark_tape_backward(g->tape, loss, 1.0), HARK_OK);
}

static double shifted_loss(const graph *g, int i, int64_t j, double by) {
  double values[64];
  hark_tensor tensor = g->leaves[i];
  assert_int_equal(hark_tensor_read(g->context, &tensor, values), HARK_OK);
  const double before = values[j];
  values[j] = before + by;
  assert_int_equal(hark_tensor_write(g->context, &tensor, values), HARK_OK);
  const double loss = loss_of(g);
  values[j] = before;
  assert_int_equal(hark_tensor_write(g->context, &tensor, values), HARK_OK);
  return loss;
}

static void check_gradients(bool segmented) {
  hark_context *context = test_reference_open();
  graph g;
  graph_open(&g, context, HARK_F64, segmented);
  gradients_of(&g);
  const double h = DIFFERENCE_STEP;
  for (int i = 0; i < LEAVES; i++) {
    double gradient[64], largest = 0;
    assert_int_equal(hark_tensor_read(context, &g.gradients[i], gradient), HARK_OK);
    const int64_t count = hark_tensor_count(&g.leaves[i]);
    for (int64_t j = 0; j < count; j++) largest = fmax(largest, fabs(gradient[j]));
    assert_true(largest > 1e-3); /* a gradient that is not there would agree with nothing */
    for (int64_t j = 0; j < count; j++) {
      const double expected = (8 * (shifted_loss(&g, i, j, h) - shifted_loss(&g, i, j, -h)) -
                               (shifted_loss(&g, i, j, 2 * h) - shifted_loss(&g, i, j, -2 * h))) /
                              (12 * h);
      if (!(fabs(gradient[j] - expected) <= TOLERANCE * largest))
        fail_msg("leaf %d element %lld: %.12g, by differences %.12g", i, (long long)j, gradient[j], expected);
    }
  }
  graph_close(&g);
  test_setup_close(context);
}

static void test_gradients(void **state) {
  (void)state;
  check_gradients(false);
}

static void test_gradients_recomputed(void **state) {
  (void)state;
  check_gradients(true);
}

/* On every backend, the guard among them: a recomputed part gives the same bits, and less memory is not asked for in vain. */
static void test_segment_has_same_bits(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  assert_true(count > 0);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    graph plain, segmented;
    graph_open(&plain, context, HARK_F32, false);
    graph_open(&segmented, context, HARK_F32, true);
    gradients_of(&plain);
    gradients_of(&segmented);
    for (int i = 0; i < LEAVES; i++) {
      float a[64], b[64];
      assert_int_equal(hark_tensor_read(context, &plain.gradients[i], a), HARK_OK);
      assert_int_equal(hark_tensor_read(context, &segmented.gradients[i], b), HARK_OK);
      assert_memory_equal(a, b, (size_t)hark_tensor_count(&plain.leaves[i]) * sizeof *a);
    }
    graph_close(&plain);
    graph_close(&segmented);
    test_setup_close(context);
  }
}

/* A shape-only run finds the memory of the step: after reserving it, steps allocate nothing. */
static void check_steady(bool segmented) {
  hark_context *context = test_reference_open();
  graph g;
  graph_open(&g, context, HARK_F64, segmented);
  hark_value loss = 0;
  hark_tape_set_shape_only(g.tape, true);
  assert_int_equal(forward(&g, &loss), HARK_OK);
  assert_null(hark_tape_tensor(g.tape, loss)->data);
  assert_int_equal(hark_tape_backward(g.tape, loss, 1.0), HARK_OK);
  hark_tape_set_shape_only(g.tape, false);
  const size_t peak = hark_tape_peak_bytes(g.tape);
  assert_true(peak > 0);
  assert_int_equal(hark_tape_reserve(g.tape), HARK_OK);
  gradients_of(&g);
  const uint64_t before = hark_context_memory(context).allocations;
  for (int step = 0; step < 3; step++) gradients_of(&g);
  assert_int_equal(hark_context_memory(context).allocations, before);
  assert_int_equal(hark_tape_peak_bytes(g.tape), peak);
  graph_close(&g);
  test_setup_close(context);
}

static void test_steady_step_allocates_nothing(void **state) {
  (void)state;
  check_steady(false);
  check_steady(true);
}

static void test_misuse_is_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  graph g;
  graph_open(&g, context, HARK_F64, false);
  hark_value x = 0, y = 0, both[2] = {0};
  hark_tape_reset(g.tape);
  assert_int_equal(leaf(&g, LEAF_X, &x), HARK_OK);
  assert_int_equal(hark_tape_apply(g.tape, &hark_op_relu, NULL, 1, &x, 1, &y), HARK_OK);
  assert_int_equal(hark_tape_apply(g.tape, &hark_op_relu, NULL, 1, &x, 0, &y), HARK_INVALID_ARGUMENT); /* consumed before */
  both[0] = 99;
  assert_int_equal(hark_tape_apply(g.tape, &hark_op_relu, NULL, 1, both, 0, &y), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tape_apply(g.tape, &hark_op_relu, NULL, 0, both, 0, &y), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tape_backward(g.tape, y, 1.0), HARK_SHAPE_MISMATCH); /* not one number */
  assert_int_equal(hark_tape_backward(g.tape, 0, 1.0), HARK_INVALID_ARGUMENT);
  hark_value loss = 0;
  hark_tape_reset(g.tape);
  hark_tape_set_recording(g.tape, false);
  assert_int_equal(hark_tape_leaf(g.tape, &g.leaves[LEAF_X], &g.targets, &x), HARK_SHAPE_MISMATCH);
  hark_tape_reset(g.tape);
  assert_int_equal(forward(&g, &loss), HARK_OK);
  graph_close(&g);
  test_setup_close(context);
}

static hark_status build_released(void *closure, hark_tape *tape, const hark_value *inputs, hark_value *outputs) {
  (void)closure;
  (void)outputs;
  const hark_scale_attributes scale = {.factor = 2};
  hark_value missing = 99;
  hark_tape_release(tape, inputs[0]);
  return hark_tape_apply(tape, &hark_op_scale, &scale, 1, &missing, 0, &missing);
}

/* y = 2 x */
static hark_status build_twice(void *closure, hark_tape *tape, const hark_value *inputs, hark_value *outputs) {
  (void)closure;
  const hark_scale_attributes scale = {.factor = 2};
  return hark_tape_apply(tape, &hark_op_scale, &scale, 1, inputs, 0, outputs);
}

/* A segment's outputs may stand where its inputs stood; what is no value is refused; a failure inside leaves the tape as it was. */
static void test_segment_edges(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const double one = 1;
  double got = 0;
  hark_tensor number, gradient;
  hark_tape *tape = NULL;
  assert_int_equal(hark_tensor_create(context, HARK_F64, 0, NULL, &number), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_F64, 0, NULL, &gradient), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &number, &one), HARK_OK);
  assert_int_equal(hark_tape_create(context, &tape), HARK_OK);
  const hark_scale_attributes scale = {.factor = 3};
  hark_value x = 0, y = 0;
  assert_int_equal(hark_tape_leaf(tape, &number, &gradient, &x), HARK_OK);
  assert_int_equal(hark_tape_apply(tape, &hark_op_scale, &scale, 1, &x, 0, &x), HARK_OK);
  assert_int_equal(hark_tape_segment(tape, build_twice, NULL, 0, 1, &x, 1, &x), HARK_OK);
  assert_int_equal(hark_tape_backward(tape, x, 1.0), HARK_OK);
  assert_int_equal(hark_tensor_read(context, &gradient, &got), HARK_OK);
  assert_true(got == 6);

  hark_tape_reset(tape); /* a leaf as the loss: one more is added to its gradient */
  assert_int_equal(hark_tape_leaf(tape, &number, &gradient, &x), HARK_OK);
  assert_int_equal(hark_tape_backward(tape, x, 1.0), HARK_OK);
  assert_int_equal(hark_tensor_read(context, &gradient, &got), HARK_OK);
  assert_true(got == 7);

  hark_tape_reset(tape);
  assert_int_equal(hark_tape_leaf(tape, &number, NULL, &x), HARK_OK);
  y = 99;
  assert_int_equal(hark_tape_segment(tape, build_twice, NULL, 0, 1, &y, 1, &y), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tape_segment(tape, build_released, NULL, 0, 1, &x, 1, &y), HARK_INVALID_ARGUMENT);
  hark_tape_release(tape, x); /* has its effect again */
  assert_int_equal(hark_tape_segment(tape, build_twice, NULL, 0, 1, &x, 1, &y), HARK_INVALID_ARGUMENT);
  hark_tape_destroy(&tape);
  hark_tensor_destroy(context, &gradient);
  hark_tensor_destroy(context, &number);
  test_setup_close(context);
}

/* Without recording the result is the same and a backward is refused. */
static void test_inference(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  graph g;
  graph_open(&g, context, HARK_F64, false);
  const double recorded = loss_of(&g);
  hark_value x = 0, last[2] = {0}, outputs[2] = {0};
  hark_tape_reset(g.tape);
  hark_tape_set_recording(g.tape, false);
  graph *self = &g;
  const hark_scale_attributes scale = {.factor = 0.7};
  const hark_cross_entropy_attributes attributes = {.weight = 1.0 / ROWS, .ignore = -1};
  assert_int_equal(leaf(&g, LEAF_X, &x), HARK_OK);
  assert_int_equal(hark_tape_apply(g.tape, &hark_op_scale, &scale, 1, &x, 0, &x), HARK_OK);
  assert_int_equal(build_middle(&self, g.tape, &x, &last[0]), HARK_OK);
  assert_int_equal(leaf(&g, LEAF_HEAD, &last[1]), HARK_OK);
  assert_int_equal(hark_tape_apply(g.tape, &hark_op_linear, NULL, 2, last, 1, &last[0]), HARK_OK);
  assert_int_equal(hark_tape_leaf(g.tape, &g.targets, NULL, &last[1]), HARK_OK);
  assert_int_equal(hark_tape_apply(g.tape, &hark_op_cross_entropy, &attributes, 2, last, 1, outputs), HARK_OK);
  double value = 0;
  assert_int_equal(hark_tensor_read(context, hark_tape_tensor(g.tape, outputs[0]), &value), HARK_OK);
  assert_memory_equal(&value, &recorded, sizeof value);
  assert_int_equal(hark_tape_backward(g.tape, outputs[0], 1.0), HARK_INVALID_ARGUMENT);
  graph_close(&g);
  test_setup_close(context);
}

/* Random requests: what is out at one time never overlaps, and the shape-only pool foresees the size. */
static void test_pool(void **state) {
  (void)state;
  enum { SLOTS = 40, ROUNDS = 4000 };
  hark_context *context = test_reference_open();
  hark_pool shapes, real;
  hark_pool_open(&shapes, context, true);
  hark_pool_open(&real, context, false);
  for (int pass = 0; pass < 2; pass++) {
    hark_pool *pool = pass == 0 ? &shapes : &real;
    if (pass == 1) assert_int_equal(hark_pool_reserve(&real, shapes.peak_end), HARK_OK);
    hark_pool_memory slots[SLOTS] = {{0}};
    const hark_random_stream stream = {.seed = 7, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
    for (uint64_t round = 0; round < ROUNDS; round++) {
      hark_pool_memory *slot = &slots[hark_random_word(&stream, 2 * round) % SLOTS];
      const size_t bytes = hark_random_word(&stream, 2 * round + 1) % 5000;
      hark_pool_give(pool, slot);
      assert_int_equal(hark_pool_take(pool, bytes, slot), HARK_OK);
      assert_true(slot->bytes >= bytes);
      for (int i = 0; i < SLOTS; i++) {
        if (&slots[i] == slot || slots[i].bytes == 0 || slot->bytes == 0) continue;
        assert_true(slots[i].offset >= slot->offset + slot->bytes || slot->offset >= slots[i].offset + slots[i].bytes);
      }
      if (pass == 1 && slot->bytes > 0) memset(slot->memory, 0xAB, slot->bytes);
    }
    for (int i = 0; i < SLOTS; i++) hark_pool_give(pool, &slots[i]);
    assert_int_equal(pool->piece_count, 1); /* all merged again */
  }
  assert_int_equal(real.block_count, 1);
  assert_int_equal(hark_pool_bytes(&real), shapes.peak_end);
  hark_pool_close(&shapes);
  hark_pool_close(&real);
  test_setup_close(context);
}

/* An operator that applies another one to the tape that applies it. */
typedef struct nested_attributes {
  hark_tape *tape;
  hark_value x;
} nested_attributes;

static hark_status nested_infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count,
                                hark_inferred *out) {
  const nested_attributes *nested = attributes;
  const hark_value pair[] = {nested->x, nested->x};
  hark_value sum;
  (void)context, (void)inputs, (void)input_count, (void)out;
  return hark_tape_apply(nested->tape, hark_operator_find("add"), NULL, 2, pair, 0, &sum);
}

static void test_nested_calls_are_refused(void **state) {
  (void)state;
  const test_setup setup = {"reference", NULL};
  hark_context *context = test_setup_open(&setup, 1);
  graph g;
  hark_value y;
  graph_open(&g, context, HARK_F64, false);
  nested_attributes attributes = {.tape = g.tape};
  assert_int_equal(hark_tape_leaf(g.tape, &g.leaves[LEAF_X], NULL, &attributes.x), HARK_OK);
  const hark_operator nested = {.name = "nested",
                                .input_minimum = 1,
                                .input_maximum = 1,
                                .output_count = 1,
                                .attributes_size = sizeof attributes,
                                .infer = nested_infer};
  assert_int_equal(hark_tape_apply(g.tape, &nested, &attributes, 1, &attributes.x, 0, &y), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "nested"));
  const hark_value pair[] = {attributes.x, attributes.x}; /* and the tape goes on */
  assert_int_equal(hark_tape_apply(g.tape, hark_operator_find("add"), NULL, 2, pair, 0, &y), HARK_OK);
  graph_close(&g);
  hark_context_destroy(&context);
}

/* Formulas: the same bits as with a status in every line, and the first failure is kept. */
static void test_formulas(void **state) {
  (void)state;
  static float data[6] = {1, -2, 3, 0.5F, 4, -1}, gradient[6], weight[4] = {1, 2, 3, 4}, other[6], nothing[6], loss;
  const hark_squared_error_attributes whole = {.weight = 1};
  const int64_t shape[] = {3, 2}, square[] = {2, 2};
  hark_context *const context = test_reference_open();
  hark_tape *tape;
  assert_int_equal(hark_tape_create(context, &tape), HARK_OK);
  hark_value x = hark_tape_input(tape, HARK_F32, 2, shape, data, gradient);
  const hark_value w = hark_tape_input(tape, HARK_F32, 2, square, weight, NULL);
  const hark_value zeros = hark_tape_input(tape, HARK_F32, 2, shape, nothing, NULL);
  const hark_value product = hark_apply2(tape, &hark_op_linear, NULL, x, w);
  const hark_value sum = hark_apply2(tape, &hark_op_squared_error, &whole, product, zeros);
  assert_int_equal(hark_tape_failure(tape), HARK_OK);
  assert_int_equal(hark_tape_backward(tape, sum, 1), HARK_OK);
  assert_int_equal(hark_tensor_read(context, hark_tape_tensor(tape, sum), &loss), HARK_OK);
  float by_hand = 0, of_first = 0;
  for (int row = 0; row < 3; row++)
    for (int k = 0; k < 2; k++) {
      const float y = data[2 * row] * weight[2 * k] + data[2 * row + 1] * weight[2 * k + 1];
      by_hand += y * y;
      if (row == 0) of_first += 2 * y * weight[2 * k];
    }
  assert_true(loss == by_hand); /* small whole numbers and halves: f32 holds all of them */
  assert_true(gradient[0] == of_first);

  hark_tape_reset(tape);
  x = hark_tape_input(tape, HARK_F32, 2, shape, data, NULL);
  const hark_value wrong =
      hark_apply2(tape, &hark_op_linear, NULL, x, x); /* [3, 2] by [3, 2]: the second has to have columns of the first */
  assert_int_equal(hark_tape_failure(tape), HARK_OK);
  assert_int_not_equal(wrong, 0);
  const hark_value bad = hark_apply3(tape, &hark_op_linear, NULL, x, wrong, x);
  assert_int_equal(bad, 0);
  assert_int_equal(hark_tape_failure(tape), HARK_SHAPE_MISMATCH);
  assert_non_null(strstr(hark_context_message(context), "linear"));
  assert_int_equal(hark_tape_input(tape, HARK_F32, 2, shape, other, NULL), 0);
  assert_int_equal(hark_apply1(tape, &hark_op_relu, NULL, wrong), 0);
  assert_int_equal(hark_tape_backward(tape, 1, 1), HARK_SHAPE_MISMATCH);
  hark_tape_reset(tape);
  assert_int_equal(hark_tape_failure(tape), HARK_OK);
  assert_int_not_equal(hark_tape_input(tape, HARK_F32, 2, shape, data, NULL), 0);
  hark_tape_destroy(&tape);
  test_setup_close(context);
}

/* The gradient of a rounding is passed on only in its own type: y = round(2 x) in f64, z = y w, so that dx = 2 w. */
static void test_gradients_of_roundings_have_their_type(void **state) {
  (void)state;
  enum { COUNT = 3 };
  static const uint16_t weights[COUNT] = {0x3F80, 0x4000, 0xC040}; /* 1, 2, -3 */
  static const double x[COUNT] = {1, -4, 0.5}, expected[COUNT] = {2, 4, -6};
  const int64_t shape[] = {1, COUNT};
  hark_context *context = test_setup_open(&(test_setup){"reference", "portable"}, 1);
  hark_tensor data, gradient, weight;
  hark_tape *tape = NULL;
  hark_value inputs[2] = {0}, loss = 0;
  double got[COUNT];
  assert_int_equal(hark_tensor_create(context, HARK_F64, 2, shape, &data), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_F64, 2, shape, &gradient), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_BF16, 2, shape, &weight), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &data, x), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &weight, weights), HARK_OK);
  assert_int_equal(hark_tape_create(context, &tape), HARK_OK);
  assert_int_equal(hark_tape_leaf(tape, &data, &gradient, &inputs[0]), HARK_OK);
  assert_int_equal(hark_tape_leaf(tape, &weight, NULL, &inputs[1]), HARK_OK);
  inputs[0] = hark_apply1(tape, &hark_op_scale, &(hark_scale_attributes){2}, inputs[0]);
  inputs[0] = hark_apply1(tape, &hark_op_round_bf16, NULL, inputs[0]);
  loss = hark_apply2(tape, &hark_op_linear_bf16, NULL, inputs[0], inputs[1]);
  assert_int_equal(hark_tape_backward(tape, loss, 1), HARK_OK);
  assert_int_equal(hark_tensor_read(context, &gradient, got), HARK_OK);
  for (int i = 0; i < COUNT; i++) assert_true(got[i] == expected[i]);
  hark_tape_destroy(&tape);
  hark_tensor_destroy(context, &data);
  hark_tensor_destroy(context, &gradient);
  hark_tensor_destroy(context, &weight);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_gradients_recomputed),
      cmocka_unit_test(test_segment_has_same_bits),
      cmocka_unit_test(test_steady_step_allocates_nothing),
      cmocka_unit_test(test_misuse_is_refused),
      cmocka_unit_test(test_nested_calls_are_refused),
      cmocka_unit_test(test_segment_edges),
      cmocka_unit_test(test_inference),
      cmocka_unit_test(test_pool),
      cmocka_unit_test(test_formulas),
      cmocka_unit_test(test_gradients_of_roundings_have_their_type),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
