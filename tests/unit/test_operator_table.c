/* test_operator_table.c - every record of the table is complete, and every shape inference refuses what does not fit, with a message. */
#include <hark/experimental.h>
#include <hark/hark.h>
#include <math.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"

#define TYPES_OF_ONE_SAMPLE 2

static const hark_operator *const *table;
static int table_count;
static hark_context *context;

static int open_table(void **state) {
  (void)state;
  table = hark_operators(&table_count);
  context = test_reference_open();
  return table_count > 0 ? 0 : 1;
}

static int close_table(void **state) {
  (void)state;
  hark_context_destroy(&context);
  return 0;
}

static void the_table_lists_what_the_header_lists(void **state) {
  (void)state;
  static const char *const names[] = {
#define NAME(name) #name,
      HARK_OPERATORS(NAME) HARK_EXPERIMENTAL_OPERATORS(NAME)
#undef NAME
  };
  assert_int_equal(table_count, sizeof names / sizeof names[0]);
  for (int i = 0; i < table_count; i++) {
    assert_string_equal(table[i]->name, names[i]);
    assert_ptr_equal(hark_operator_find(names[i]), table[i]);
    for (int j = 0; j < i; j++) assert_string_not_equal(table[i]->name, table[j]->name);
  }
  assert_null(hark_operator_find("no_such_operator"));
  assert_null(hark_operator_find(""));
  assert_null(hark_operator_find(NULL));
}

static void records_are_complete(void **state) {
  (void)state;
  for (int i = 0; i < table_count; i++) {
    const hark_operator *op = table[i];
    const unsigned inputs = (1u << op->input_maximum) - 1;
    if (op->sample_count < 1) fail_msg("%s has no samples", op->name);
    if (strlen(op->formula) == 0) fail_msg("%s has no formula", op->name);
    assert_true(op->input_minimum >= 1 && op->input_minimum <= op->input_maximum && op->input_maximum <= HARK_MAX_INPUTS);
    assert_true(op->output_count >= 0 && op->output_count <= HARK_MAX_OUTPUTS);
    assert_non_null(op->infer);
    assert_non_null(op->forward);
    assert_non_null(op->operations);
    assert_non_null(op->terms);
    if ((op->differentiable != 0) != (op->backward != NULL)) fail_msg("%s: differentiable and backward disagree", op->name);
    if (op->updates != 0 && op->backward != NULL) fail_msg("%s updates its inputs and has a backward", op->name);
    if (op->updates == 0 && op->output_count == 0) fail_msg("%s has no results", op->name);
    const unsigned bits =
        op->differentiable | op->backward_inputs | op->in_place | op->gradient_in_place | op->gradient_passes | op->updates;
    if ((bits & ~inputs) != 0) fail_msg("%s: a bit names an input that does not exist", op->name);
    if ((op->backward_outputs >> op->output_count) != 0) fail_msg("%s: a bit names an output that does not exist", op->name);
    if (((op->gradient_in_place | op->gradient_passes) & ~op->differentiable) != 0) {
      fail_msg("%s: a gradient is written or passed for an input that has none", op->name);
    }
  }
}

static void describe(const hark_sample *sample, const hark_operator *op, hark_type type, hark_tensor *inputs, int *count) {
  memset(inputs, 0, HARK_MAX_INPUTS * sizeof *inputs);
  *count = 0;
  for (int i = 0; i < op->input_maximum; i++) {
    const hark_sample_input *input = &sample->inputs[i];
    if (input->type == HARK_NONE) continue;
    assert_int_equal(hark_tensor_describe(context, input->type == HARK_F32 ? type : input->type, input->rank, input->shape, &inputs[i]),
                     HARK_OK);
    *count = i + 1;
  }
}

/* infer works without data, describes the same for f32 and f64, and gives contiguous results of sane counts of operations. */
static void samples_can_be_inferred_without_data(void **state) {
  (void)state;
  static const hark_type types[] = {HARK_F32, HARK_F64};
  for (int i = 0; i < table_count; i++) {
    const hark_operator *op = table[i];
    for (int s = 0; s < op->sample_count; s++) {
      const hark_sample *sample = &op->samples[s];
      for (int earlier = 0; earlier < s; earlier++) assert_string_not_equal(sample->name, op->samples[earlier].name);
      if (strpbrk(sample->name, ":,=") != NULL) fail_msg("%s:%s: these separate the words of a case", op->name, sample->name);
      if ((op->attributes_size > 0) != (sample->attributes != NULL)) fail_msg("%s:%s: attributes", op->name, sample->name);
      for (int t = 0; t < TYPES_OF_ONE_SAMPLE; t++) {
        hark_tensor inputs[HARK_MAX_INPUTS];
        int count = 0;
        describe(sample, op, types[t], inputs, &count);
        hark_inferred inferred = {0};
        if (op->infer(context, sample->attributes, inputs, count, &inferred) != HARK_OK) {
          fail_msg("%s:%s: %s", op->name, sample->name, hark_context_message(context));
        }
        for (int o = 0; o < HARK_MAX_OUTPUTS; o++) {
          assert_int_equal(inferred.outputs[o].type != HARK_NONE, o < op->output_count);
          if (o < op->output_count) assert_true(hark_tensor_is_contiguous(&inferred.outputs[o]));
          assert_null(inferred.outputs[o].data);
        }
        const double forward = op->operations(sample->attributes, inputs, count, false);
        const double backward = op->operations(sample->attributes, inputs, count, true);
        if (!(forward >= 0 && backward >= 0 && isfinite(forward + backward))) fail_msg("%s:%s: operations", op->name, sample->name);
        if (op->terms(sample->attributes, inputs, count) < 1) fail_msg("%s:%s: terms", op->name, sample->name);
      }
    }
  }
}

/* Fails unless infer refuses with a message that begins with the operator's name. */
static void refused(const hark_operator *op, const hark_sample *sample, const void *attributes, const hark_tensor *inputs, int count,
                    const char *what) {
  hark_inferred inferred = {0};
  const hark_status status = op->infer(context, attributes, inputs, count, &inferred);
  const char *message = hark_context_message(context);
  if (status == HARK_OK) fail_msg("%s:%s accepts %s", op->name, sample->name, what);
  const bool expected = status == HARK_INVALID_ARGUMENT || status == HARK_SHAPE_MISMATCH || status == HARK_UNSUPPORTED;
  if (!expected) fail_msg("%s:%s: %s for %s", op->name, sample->name, hark_status_name(status), what);
  if (strncmp(message, op->name, strlen(op->name)) != 0) fail_msg("%s:%s: message '%s' for %s", op->name, sample->name, message, what);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  for (int i = 0; i < table_count; i++) {
    const hark_operator *op = table[i];
    const hark_sample *sample = &op->samples[op->sample_count - 1];
    hark_tensor inputs[HARK_MAX_INPUTS], kept;
    int count = 0;
    describe(sample, op, HARK_F32, inputs, &count);
    refused(op, sample, sample->attributes, inputs, op->input_minimum - 1, "too few inputs");
    refused(op, sample, sample->attributes, inputs, op->input_maximum + 1, "too many inputs");
    if (op->attributes_size > 0) refused(op, sample, NULL, inputs, count, "absent attributes");
    for (int k = 0; k < count; k++) {
      if (inputs[k].type == HARK_NONE) continue;
      kept = inputs[k];
      inputs[k].type = HARK_F16;
      refused(op, sample, sample->attributes, inputs, count, "an input of another type");
      inputs[k] = kept;
      if (k > 0 && kept.type == HARK_F32 && inputs[0].type == HARK_F32) {
        inputs[k].type = HARK_F64;
        refused(op, sample, sample->attributes, inputs, count, "f32 and f64 mixed");
        inputs[k] = kept;
      }
      if (k < op->input_minimum) {
        inputs[k] = (hark_tensor){0};
        refused(op, sample, sample->attributes, inputs, count, "an absent input");
        inputs[k] = kept;
      }
      if (kept.rank > 0 && kept.shape[kept.rank - 1] > 1) {
        inputs[k].stride[kept.rank - 1] = 2;
        refused(op, sample, sample->attributes, inputs, count, "an input with gaps");
        inputs[k] = kept;
      }
      /* An input that others must match no longer does; a single one may have any shape. */
      if (k > 0 && kept.rank > 0 && strcmp(op->name, "embedding") != 0 && strcmp(op->name, "attention") != 0) {
        inputs[k].rank = kept.rank - 1;
        for (int d = 0; d < inputs[k].rank; d++) inputs[k].shape[d] = kept.shape[d + 1];
        for (int d = 0; d < inputs[k].rank; d++) inputs[k].stride[d] = kept.stride[d + 1];
        refused(op, sample, sample->attributes, inputs, count, "an input of lower rank");
        inputs[k] = kept;
      }
    }
  }
}

static void refuse_attributes(const char *name, const void *attributes) {
  const hark_operator *op = hark_operator_find(name);
  hark_tensor inputs[HARK_MAX_INPUTS];
  int count = 0;
  assert_non_null(op);
  describe(&op->samples[op->sample_count - 1], op, HARK_F32, inputs, &count);
  refused(op, &op->samples[op->sample_count - 1], attributes, inputs, count, "these attributes");
}

static void attributes_out_of_range_are_refused(void **state) {
  (void)state;
  static const hark_dropout_attributes one = {1, {0}}, negative = {-0.1, {0}}, none = {NAN, {0}};
  refuse_attributes("dropout", &one);
  refuse_attributes("dropout", &negative);
  refuse_attributes("dropout", &none);
  static const hark_norm_attributes below_zero = {-1e-5}, not_a_number = {NAN};
  refuse_attributes("layer_norm", &below_zero);
  refuse_attributes("layer_norm", &not_a_number);
  refuse_attributes("rms_norm", &below_zero);
  static const hark_pool_attributes no_kind = {(hark_pool_kind)17};
  refuse_attributes("pool", &no_kind);
  static const hark_position_embedding_attributes before = {-1}, beyond = {1000}, overflowing = {INT64_MAX};
  refuse_attributes("position_embedding", &before);
  refuse_attributes("position_embedding", &beyond);
  refuse_attributes("position_embedding", &overflowing);
  static const hark_sinusoidal_positions_attributes early = {-1, 10000}, no_base = {0, 0};
  refuse_attributes("sinusoidal_positions", &early);
  refuse_attributes("sinusoidal_positions", &no_base);
  static const double one_rate[] = {1};
  static const hark_rotary_attributes no_heads = {0, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                      odd = {256, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                      not_dividing = {3, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                      no_pairs = {4, 0, 10000, (hark_rotary_pairs)9, 0, 0, 0, NULL},
                                      rotary_early = {4, -1, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                      rotary_base = {4, 0, -1, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                      too_many_turned = {4, 0, 10000, HARK_ROTARY_HALF, 1 << 20, 0, 0, NULL},
                                      turned_below = {4, 0, 10000, HARK_ROTARY_HALF, -1, 0, 0, NULL},
                                      squeezed = {4, 0, 10000, HARK_ROTARY_HALF, 0, 0.5, 0, NULL},
                                      stretched_without_end = {4, 0, 10000, HARK_ROTARY_HALF, 0, INFINITY, 0, NULL},
                                      length_below = {4, 0, 10000, HARK_ROTARY_HALF, 0, 2, -1, NULL},
                                      no_ramp = {4, 0, 1, HARK_ROTARY_HALF, 0, 2, 64, NULL},
                                      given_and_by_parts = {4, 0, 10000, HARK_ROTARY_HALF, 1, 2, 64, one_rate};
  refuse_attributes("rotary", &no_heads);
  refuse_attributes("rotary", &odd);
  refuse_attributes("rotary", &not_dividing);
  refuse_attributes("rotary", &no_pairs);
  refuse_attributes("rotary", &rotary_early);
  refuse_attributes("rotary", &rotary_base);
  refuse_attributes("rotary", &too_many_turned);
  refuse_attributes("rotary", &turned_below);
  refuse_attributes("rotary", &squeezed);
  refuse_attributes("rotary", &stretched_without_end);
  refuse_attributes("rotary", &length_below);
  refuse_attributes("rotary", &no_ramp);
  refuse_attributes("rotary", &given_and_by_parts);
  static const hark_cross_entropy_attributes certain = {1, 1, -1, 0}, below = {1, -0.1, -1, 0}, no_weight = {NAN, 0, -1, 0},
                                             z_below = {1, 0, -1, -0.5};
  refuse_attributes("cross_entropy", &certain);
  refuse_attributes("cross_entropy", &below);
  refuse_attributes("cross_entropy", &no_weight);
  refuse_attributes("cross_entropy", &z_below);
  static const hark_adamw_attributes step_zero = {1e-3, 0.9, 0.99, 1e-8, 0, 1, 0}, beta_one = {1e-3, 1, 0.99, 1e-8, 0, 1, 1},
                                     no_rate = {NAN, 0.9, 0.99, 1e-8, 0, 1, 1}, below_epsilon = {1e-3, 0.9, 0.99, -1, 0, 1, 1};
  refuse_attributes("adamw", &step_zero);
  refuse_attributes("adamw", &beta_one);
  refuse_attributes("adamw", &no_rate);
  refuse_attributes("adamw", &below_epsilon);
  static const hark_adafactor_attributes full = {1e-3, 0, 1, 1e-30, 0, 1, 0, 1}, no_average = {1e-3, 0.9, 0.9, 1e-30, 0, 1, 0, 1},
                                         no_epsilon = {1e-3, 0, 0.9, 0, 0, 1, 0, 1}, below_scale = {1e-3, 0, 0.9, 1e-30, -1, 1, 0, 1},
                                         below_most = {1e-3, 0, 0.9, 1e-30, 0, NAN, 0, 1}, endless = {INFINITY, 0, 0, 1e-30, 0, 1, 0, 1};
  refuse_attributes("adafactor", &full);
  refuse_attributes("adafactor", &no_average);
  refuse_attributes("adafactor", &no_epsilon);
  refuse_attributes("adafactor", &below_scale);
  refuse_attributes("adafactor", &below_most);
  refuse_attributes("adafactor", &endless);
}

/* Shapes whose results or workspaces cannot be counted in bytes. */
static void results_that_do_not_fit_are_refused(void **state) {
  (void)state;
  const int64_t rows = (int64_t)1 << 40, x_shape[] = {rows, 1}, weight_shape[] = {rows, 1};
  hark_tensor inputs[HARK_MAX_INPUTS] = {{0}};
  hark_inferred inferred = {0};
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, x_shape, &inputs[0]), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, weight_shape, &inputs[1]), HARK_OK);
  assert_int_equal(hark_op_linear.infer(context, NULL, inputs, 2, &inferred), HARK_TOO_LARGE);
  static const hark_matmul_attributes outer = {false, true};
  assert_int_equal(hark_op_matmul.infer(context, &outer, inputs, 2, &inferred), HARK_TOO_LARGE);
  const int64_t ids_shape[] = {rows}, table_shape[] = {1, rows};
  assert_int_equal(hark_tensor_describe(context, HARK_I32, 1, ids_shape, &inputs[0]), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, table_shape, &inputs[1]), HARK_OK);
  assert_int_equal(hark_op_embedding.infer(context, NULL, inputs, 2, &inferred), HARK_TOO_LARGE);
  const hark_adafactor_attributes step = {.rate = 1, .beta2 = 0.5, .epsilon = 1e-30, .gradient_scale = 1};
  const int64_t wide[] = {1, ((int64_t)1 << 60) - 1};
  for (int i = 0; i < 2; i++) assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, wide, &inputs[i]), HARK_OK);
  for (int i = 0; i < 2; i++) assert_int_equal(hark_tensor_describe(context, HARK_F32, 1, &wide[i], &inputs[2 + i]), HARK_OK);
  assert_int_equal(hark_op_adafactor.infer(context, &step, inputs, 4, &inferred), HARK_TOO_LARGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_lists_what_the_header_lists), cmocka_unit_test(records_are_complete),
      cmocka_unit_test(samples_can_be_inferred_without_data),  cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(attributes_out_of_range_are_refused),   cmocka_unit_test(results_that_do_not_fit_are_refused),
  };
  return cmocka_run_group_tests(tests, open_table, close_table);
}
