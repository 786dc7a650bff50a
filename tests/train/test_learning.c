/* test_learning.c - what steps do to the parameters: schedules, rates that blow up, kernels and rates of positions that are learned. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/safetensors.h"
#include "nn/layers.h"
#include "reference/published_layers.h"
#include "support/cmocka_all.h"
#include "support/train/training_place.h"
#include "train/schedule.h"

static void test_schedules(void **state) {
  (void)state;
  hark_config config;
  memset(&config, 0, sizeof config);
  config.train.learning_rate = 2;
  config.train.minimum_rate = 0.5;
  config.train.warmup = 10;
  const double tolerance = 1e-12;
  const struct {
    hark_schedule schedule;
    int64_t step;
    double rate;
  } expected[] = {{HARK_SCHEDULE_CONSTANT, 1, 0.2}, {HARK_SCHEDULE_CONSTANT, 10, 2},  {HARK_SCHEDULE_CONSTANT, 110, 2},
                  {HARK_SCHEDULE_COSINE, 5, 1},     {HARK_SCHEDULE_COSINE, 10, 2},    {HARK_SCHEDULE_COSINE, 60, 1.25},
                  {HARK_SCHEDULE_COSINE, 110, 0.5}, {HARK_SCHEDULE_COSINE, 500, 0.5}, {HARK_SCHEDULE_LINEAR, 35, 1.625},
                  {HARK_SCHEDULE_LINEAR, 110, 0.5}, {HARK_SCHEDULE_RSQRT, 10, 2},     {HARK_SCHEDULE_RSQRT, 40, 1},
                  {HARK_SCHEDULE_RSQRT, 5, 1}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    config.train.schedule = expected[i].schedule;
    assert_true(fabs(hark_schedule_rate(&config, expected[i].step, 110) - expected[i].rate) <= tolerance);
  }
  /* a warm-up as long as the run ends at the peak */
  config.train.schedule = HARK_SCHEDULE_COSINE;
  assert_true(fabs(hark_schedule_rate(&config, 10, 10) - 2) <= tolerance);
  config.train.schedule = HARK_SCHEDULE_LINEAR;
  assert_true(fabs(hark_schedule_rate(&config, 10, 10) - 2) <= tolerance);
  config.train.warmup = 0;
  assert_true(fabs(hark_schedule_rate(&config, 1, 1) - 0.5) <= tolerance);
}

/* Step t of 40 with a warm-up of 10 has what transformers' schedules give for t; they count steps from 0, so that their first step has the
 * rate 0. */
static void test_published_schedules(void **state) {
  (void)state;
  hark_config config;
  memset(&config, 0, sizeof config);
  config.train.learning_rate = 1;
  config.train.warmup = 10;
  const struct {
    hark_schedule schedule;
    double minimum;
    const double *rates;
  } rows[] = {{HARK_SCHEDULE_COSINE, 0, published_cosine},
              {HARK_SCHEDULE_COSINE, 0.1, published_cosine_minimum},
              {HARK_SCHEDULE_LINEAR, 0, published_linear},
              {HARK_SCHEDULE_RSQRT, 0, published_inverse_sqrt}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (int t = 1; t <= 40; t++) {
      config.train.schedule = rows[r].schedule;
      config.train.minimum_rate = rows[r].minimum;
      const double rate = hark_schedule_rate(&config, t, 40);
      if (!(fabs(rate - rows[r].rates[t]) <= 1e-14)) fail_msg("row %zu, step %d: %.17g, expected %.17g", r, t, rate, rows[r].rates[t]);
    }
}

/* Deviations that PyTorch's xavier_normal_ draws with, as they were measured. */
static void test_published_deviations(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{64, 256}, {256, 64}, {7, 7}}; /* out, in */
  for (int i = 0; i < 3; i++) {
    const double deviation = hark_deviation_for(HARK_DEVIATION_XAVIER, shapes[i][1], shapes[i][0]);
    assert_true(fabs(deviation / published_xavier[i] - 1) < 4e-3);
  }
}

/* A rate that blows the model up: steps with numbers that are not finite change nothing, and after the allowed number the run gives up. */
static void test_not_finite(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 200;
  config.train.learning_rate = 1e30;
  config.train.minimum_rate = 1e30;
  config.train.warmup = 0;
  config.train.max_bad_steps = 3;
  config.train.evaluate_every = 0;
  config.train.clip = 0;
  hark_train_result result;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_NOT_FINITE);
  assert_int_equal(result.state.bad_steps, 3);
  assert_int_equal(result.state.updates, result.state.step - 3);
  training_place_close(&p);
}

/* The weights of a run's last checkpoint; the caller closes them. */
static hark_safetensors *open_weights(training_place *p, const char *name) {
  char file[64];
  hark_safetensors *weights = NULL;
  (void)snprintf(file, sizeof file, "%s/checkpoints/step-12/model.safetensors", name);
  assert_int_equal(hark_safetensors_open(p->context, test_path(p->folder, file), &weights), HARK_OK);
  return weights;
}

/* The run "parts" stops early; the configuration resumes it then. */
static void train_a_part(training_place *p, hark_config *config) {
  training_interrupter who = {.left = 4};
  const hark_train_hooks hooks = {.user = &who, .request = training_interrupt};
  hark_train_result result;
  assert_int_equal(training_run(p, config, "parts", &hooks, &result), HARK_OK);
  config->run.resume = true;
}

static void parts_ended_as_moving(training_place *p) {
  training_same_file(p, "moving/checkpoints/step-12/model.safetensors", "parts/checkpoints/step-12/model.safetensors");
  training_same_file(p, "moving/checkpoints/step-12/optimizer.safetensors", "parts/checkpoints/step-12/optimizer.safetensors");
}

/* Parameters of a positional kernel learn at their own rate, are resumed with the rest, and belong to their expression. */
static void test_positional_kernels(void **state) {
  (void)state;
  static const char parameters[] = "positional.parameters";
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.model.positional = "bank[2](decay*periodic)";
  config.train.weight_decay = 0.5;
  hark_train_result result;
  double largest[2] = {0};
  for (int moving = 0; moving < 2; moving++) {
    const char *name = moving ? "moving" : "still";
    config.train.positional_rate = moving ? 3 : 0;
    assert_int_equal(training_run(&p, &config, name, NULL, &result), HARK_OK);
    hark_positional *kernel = NULL;
    double start[8];
    float learned[8];
    const hark_positional_start from = {.struct_size = sizeof from, .length = config.model.context};
    assert_int_equal(hark_positional_create(p.context, config.model.positional, &kernel), HARK_OK);
    assert_int_equal(hark_positional_initial(p.context, kernel, &from, start), HARK_OK);
    hark_safetensors *file = open_weights(&p, name);
    assert_int_equal(hark_safetensors_read(p.context, file, hark_safetensors_find(file, parameters), learned), HARK_OK);
    assert_string_equal(hark_safetensors_metadata(file, "positional"), "bank[2](decay*periodic)");
    assert_string_equal(hark_safetensors_metadata(file, "positional_scope"), "model");
    for (int i = 0; i < 8; i++) largest[moving] = fmax(largest[moving], fabs((double)learned[i] - (double)(float)start[i]));
    hark_safetensors_close(p.context, &file);
    hark_positional_destroy(p.context, &kernel);
  }
  assert_true(largest[0] == 0 && largest[1] > 1e-4);

  train_a_part(&p, &config);
  config.model.positional = "bank[2](decay*rbf)"; /* as many parameters, and other ones */
  assert_int_equal(training_run(&p, &config, "parts", NULL, &result), HARK_BAD_FILE);
  assert_non_null(strstr(hark_context_message(p.context), "model.positional is bank[2](decay*rbf), and the weights of step-"));
  assert_non_null(strstr(hark_context_message(p.context), "were trained with bank[2](decay*periodic)"));
  config.model.positional = "";
  assert_int_equal(training_run(&p, &config, "parts", NULL, &result), HARK_BAD_FILE);
  config.model.positional = " bank [2] ((decay) * periodic)";
  assert_int_equal(training_run(&p, &config, "parts", NULL, &result), HARK_OK);
  parts_ended_as_moving(&p);
  training_place_close(&p);
}

/* Parameters that run away are seen in the loss, like other weights that do. */
static void test_positional_kernels_not_finite(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.model.positional = "decay*periodic";
  config.train.steps = 60;
  config.train.positional_rate = 1e30;
  config.train.max_bad_steps = 3;
  config.train.evaluate_every = 0;
  hark_train_result result;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_NOT_FINITE);
  assert_int_equal(result.state.bad_steps, 3);
  training_place_close(&p);
}

/* Learned rates have their own learning rate and no decay, are reported in metrics, and are resumed with the rest. */
static void test_learned_rates(void **state) {
  (void)state;
  enum { PAIRS = 64 };
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.model.positions = HARK_POSITIONS_ROTARY;
  config.model.rotary.learned = HARK_ROTARY_OF_LAYER;
  config.train.weight_decay = 0.5;
  const int64_t head_dim = config.model.width / config.model.heads;
  const hark_rotary_attributes rotary = {.heads = 1, .base = config.model.rotary.base};
  hark_train_result result;
  double largest[2] = {0};
  assert_in_range(head_dim / 2, 1, PAIRS);
  for (int moving = 0; moving < 2; moving++) {
    const char *name = moving ? "moving" : "still";
    float learned[PAIRS];
    config.train.rotary_rate = moving;
    assert_int_equal(training_run(&p, &config, name, NULL, &result), HARK_OK);
    hark_safetensors *file = open_weights(&p, name);
    const hark_stored_tensor *rates = hark_safetensors_find(file, "blocks.0.attention.rotary.rates");
    assert_non_null(rates);
    assert_int_equal(rates->shape[1], head_dim / 2);
    assert_int_equal(hark_safetensors_read(p.context, file, rates, learned), HARK_OK);
    for (int64_t j = 0; j < head_dim / 2; j++)
      largest[moving] = fmax(largest[moving], fabs((double)learned[j] - (double)(float)hark_rotary_rate(&rotary, head_dim, j)));
    hark_safetensors_close(p.context, &file);
  }
  assert_true(largest[0] == 0 && largest[1] > 1e-4);
  train_a_part(&p, &config);
  assert_int_equal(training_run(&p, &config, "parts", NULL, &result), HARK_OK);
  parts_ended_as_moving(&p);
  training_place_close(&p);
}

/* A model without positions whose attention breaks sticks learns: its loss falls. */
static void test_stick_breaking(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.model.positions = HARK_POSITIONS_NONE;
  config.model.attention.normalisation = (hark_layer_choice)HARK_EVERY_LAYER(HARK_NORMALISATION_STICK_BREAKING);
  hark_train_result early, late;
  config.train.steps = 4;
  assert_int_equal(training_run(&p, &config, "early", NULL, &early), HARK_OK);
  config.train.steps = 80;
  assert_int_equal(training_run(&p, &config, "late", NULL, &late), HARK_OK);
  assert_true(late.validation_loss < early.validation_loss - 0.5);
  training_place_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schedules),
      cmocka_unit_test(test_published_schedules),
      cmocka_unit_test(test_published_deviations),
      cmocka_unit_test(test_not_finite),
      cmocka_unit_test(test_positional_kernels),
      cmocka_unit_test(test_positional_kernels_not_finite),
      cmocka_unit_test(test_learned_rates),
      cmocka_unit_test(test_stick_breaking),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
