/* test_published_layers.c - activations, norms, losses, steps of AdamW and Adafactor, and sinusoidal positions against the numbers of
 * PyTorch and transformers in f64 (bench/peers/published.py). */
#include <math.h>
#include <stdlib.h>

#include "reference/published_layers.h"
#include "support/cmocka_all.h"
#include "support/single.h"

#define ROUNDING 1e-14 /* of numbers of size one; PyTorch's functions round too */
#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))
enum { POINTS = 16, ROWS = 2, WIDTH = 8 };

static void near_all(const char *what, const double *actual, const double *expected, int count, double tolerance) {
  for (int i = 0; i < count; i++)
    if (!(fabs(actual[i] - expected[i]) <= tolerance * fmax(1, fabs(expected[i]))))
      fail_msg("%s: number %d is %.17g, expected %.17g", what, i, actual[i], expected[i]);
}

static void activations_are_pytorchs(void **state) {
  (void)state;
  static const hark_gelu_attributes exact = {false}, approximate = {true};
  static const struct {
    const char *name;
    const hark_operator *op;
    const void *attributes;
    const double *values, *gradients;
  } rows[] = {{"gelu", &hark_op_gelu, &exact, published_gelu, published_gelu_gradient},
              {"gelu_tanh", &hark_op_gelu, &approximate, published_gelu_tanh, published_gelu_tanh_gradient},
              {"gelu_new", &hark_op_gelu, &approximate, published_gelu_new, published_gelu_new_gradient},
              {"silu", &hark_op_silu, NULL, published_silu, published_silu_gradient},
              {"relu", &hark_op_relu, NULL, published_relu, published_relu_gradient},
              {"log_sigmoid", &hark_op_log_sigmoid, NULL, published_log_sigmoid, published_log_sigmoid_gradient}};
  static const double ones[POINTS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  assert_int_equal(COUNT(published_points), POINTS);
  for (int r = 0; r < COUNT(rows); r++) {
    test_single s;
    test_single_open(&s, rows[r].op, rows[r].attributes, 1, (const hark_sample_input[]){{HARK_F32, 1, {POINTS}, -1, 1}});
    test_single_set(&s, 0, published_points);
    double *y = test_single_forward(&s);
    test_single_backward(&s, ones);
    double *dx = test_single_gradient(&s, 0);
    near_all(rows[r].name, y, rows[r].values, POINTS, ROUNDING);
    near_all(rows[r].name, dx, rows[r].gradients, POINTS, ROUNDING);
    free(dx);
    free(y);
    test_single_close(&s);
  }
}

/* Epsilon is added to the variance, below the root. */
static void norms_are_pytorchs(void **state) {
  (void)state;
  static const hark_norm_attributes half = {0.5};
  double weight[WIDTH], bias[WIDTH];
  for (int i = 0; i < WIDTH; i++) weight[i] = 0.5 + 0.2 * i, bias[i] = -1 + 2 * i / 7.0;
  for (int rms = 0; rms < 2; rms++) {
    test_single s;
    const hark_sample_input inputs[] = {{HARK_F32, 2, {ROWS, WIDTH}, -1, 1}, {HARK_F32, 1, {WIDTH}, 0, 1}, {HARK_F32, 1, {WIDTH}, 0, 1}};
    test_single_open(&s, rms ? &hark_op_rms_norm : &hark_op_layer_norm, &half, rms ? 2 : 3, inputs);
    test_single_set(&s, 0, published_points);
    test_single_set(&s, 1, weight);
    if (!rms) test_single_set(&s, 2, bias);
    double *y = test_single_forward(&s);
    near_all(rms ? "rms_norm" : "layer_norm", y, rms ? published_rms_norm : published_layer_norm, ROWS * WIDTH, ROUNDING);
    free(y);
    test_single_close(&s);
  }
}

static void losses_are_pytorchs(void **state) {
  (void)state;
  static const double targets[ROWS] = {3, 6};
  for (int smooth = 0; smooth < 2; smooth++) {
    const hark_cross_entropy_attributes attributes = {1.0 / ROWS, smooth ? 0.2 : 0, -1, 0};
    test_single s;
    test_single_open(&s, &hark_op_cross_entropy, &attributes, 2,
                     (const hark_sample_input[]){{HARK_F32, 2, {ROWS, WIDTH}, -1, 1}, {HARK_I32, 1, {ROWS}, 0, WIDTH - 1}});
    test_single_set(&s, 0, published_points);
    test_single_set(&s, 1, targets);
    double *loss = test_single_forward(&s);
    near_all("cross_entropy", loss, smooth ? published_cross_entropy_smooth : published_cross_entropy, 1, ROUNDING);
    free(loss);
    test_single_close(&s);
  }
}

/* Five steps: bias correction, the place of epsilon, the decay beside the step and times the rate. */
static void steps_are_pytorchs(void **state) {
  (void)state;
  enum { NUMBERS = 4, STEPS = 5 };
  static const hark_sample_input numbers = {HARK_F32, 1, {NUMBERS}, -1, 1};
  static const hark_adamw_attributes kinds[] = {{0.1, 0.9, 0.99, 0.05, 0.3, 1, 1}, {0.1, 0.9, 0.999, 1e-8, 0, 1, 1}};
  for (int kind = 0; kind < 2; kind++) {
    double kept[4][NUMBERS] = {{0.5, -1.25, 2, 0}};
    for (int t = 1; t <= STEPS; t++) {
      hark_adamw_attributes attributes = kinds[kind];
      test_single s;
      attributes.step = t;
      for (int i = 0; i < NUMBERS; i++) kept[1][i] = sin(t + i);
      test_single_open(&s, &hark_op_adamw, &attributes, 4, (const hark_sample_input[]){numbers, numbers, numbers, numbers});
      for (int input = 0; input < 4; input++) test_single_set(&s, input, kept[input]);
      free(test_single_forward(&s));
      for (int input = 0; input < 4; input++) {
        double *now = test_single_get(&s, input);
        for (int i = 0; i < NUMBERS; i++) kept[input][i] = now[i];
        free(now);
      }
      test_single_close(&s);
      near_all(kind == 0 ? "adamw" : "adam", kept[0], (kind == 0 ? published_adamw : published_adam) + (ptrdiff_t)(t - 1) * NUMBERS,
               NUMBERS, ROUNDING);
    }
  }
}

/* With rows and columns, without them, and with an average of updates. */
static void factored_steps_are_the_published_ones(void **state) {
  (void)state;
  enum { NUMBERS = 12, SIDE = 4, STEPS = 5, INPUTS = 5 };
  static const hark_sample_input all = {HARK_F32, 1, {NUMBERS}, 0, 1}, matrix = {HARK_F32, 2, {3, SIDE}, 0, 1};
  static const hark_sample_input rows = {HARK_F32, 1, {3}, 0, 1}, columns = {HARK_F32, 1, {SIDE}, 0, 1}, none = {HARK_NONE, 0, {0}, 0, 0};
  const struct {
    const char *name;
    hark_sample_input inputs[INPUTS];
    double beta1, least_scale;
    const double *expected;
  } kinds[] = {{"adafactor", {matrix, matrix, rows, columns, none}, 0, 1e-3, published_adafactor},
               {"adafactor_vector", {all, all, all, none, none}, 0, 1e-3, published_adafactor_vector},
               {"adafactor_averaged", {matrix, matrix, rows, columns, matrix}, 0.75, 0, published_adafactor_averaged}};
  for (int kind = 0; kind < 3; kind++) {
    double kept[INPUTS][NUMBERS] = {{0}};
    for (int i = 0; i < NUMBERS; i++) kept[0][i] = cos(1.9 * i);
    for (int t = 1; t <= STEPS; t++) {
      const hark_adafactor_attributes attributes = {.rate = 0.01,
                                                    .beta1 = kinds[kind].beta1,
                                                    .beta2 = 1 - pow(t, -0.8),
                                                    .epsilon = 1e-30,
                                                    .least_scale = kinds[kind].least_scale,
                                                    .most = 1,
                                                    .decay = 0.3,
                                                    .gradient_scale = 1};
      test_single s;
      for (int i = 0; i < NUMBERS; i++) kept[1][i] = sin(3.7 * i + 1.3 * t) * (1 + i / SIDE) / (1 + i % SIDE);
      test_single_open(&s, &hark_op_adafactor, &attributes, INPUTS, kinds[kind].inputs);
      for (int input = 0; input < INPUTS; input++)
        if (kinds[kind].inputs[input].type != HARK_NONE) test_single_set(&s, input, kept[input]);
      free(test_single_forward(&s));
      for (int input = 0; input < INPUTS; input++) {
        if (kinds[kind].inputs[input].type == HARK_NONE) continue;
        double *now = test_single_get(&s, input);
        const int64_t count = kinds[kind].inputs[input].rank == 2 ? NUMBERS : kinds[kind].inputs[input].shape[0];
        for (int64_t i = 0; i < count; i++) kept[input][i] = now[i];
        free(now);
      }
      test_single_close(&s);
      near_all(kinds[kind].name, kept[0], kinds[kind].expected + (ptrdiff_t)(t - 1) * NUMBERS, NUMBERS, ROUNDING);
    }
  }
}

static void sinusoids_are_the_published_ones(void **state) {
  (void)state;
  enum { LENGTH = 5, FEATURES = 6 };
  static const hark_sinusoidal_positions_attributes usual = {0, 10000};
  static const double zeros[LENGTH * FEATURES] = {0};
  test_single s;
  test_single_open(&s, &hark_op_sinusoidal_positions, &usual, 1, (const hark_sample_input[]){{HARK_F32, 3, {1, LENGTH, FEATURES}, 0, 0}});
  test_single_set(&s, 0, zeros);
  double *y = test_single_forward(&s);
  assert_int_equal(COUNT(published_sinusoidal), LENGTH * FEATURES);
  near_all("sinusoidal", y, published_sinusoidal, LENGTH * FEATURES, ROUNDING);
  free(y);
  test_single_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(activations_are_pytorchs),
      cmocka_unit_test(norms_are_pytorchs),
      cmocka_unit_test(losses_are_pytorchs),
      cmocka_unit_test(steps_are_pytorchs),
      cmocka_unit_test(factored_steps_are_the_published_ones),
      cmocka_unit_test(sinusoids_are_the_published_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
