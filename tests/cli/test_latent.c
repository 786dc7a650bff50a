/* test_latent.c - the command on real vectors: tasks, training, resuming, evaluation, info, the bound's terms, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

#define RUN "--format examples --threads 1 --log-every 10 "
#define LATENT                                                                                                                             \
  RUN "--batch 8 --evaluate-every 20 --warmup 5 --architecture latent --data latent --context 6 --width 4 --heads 2 --layers 1 "           \
      "--model.feed_forward_width 6 --lr 1e-2 "
#define FINITE RUN "--architecture finite --data regression --context 13 --covariates 2 --lr 1e-2 --weight-decay 0 --batch 16 --warmup 100 "

#define AHCA                                                                                                                               \
  RUN "--batch 16 --warmup 5 --architecture ahca --data latent --context 6 --width 8 --heads 2 --layers 2 --chunk-size 2 "                 \
      "--primary-slots 2 --secondary-slots 4 --selected 2 --lr 1e-2 "

static char folder[TEST_PATH_BYTES];
static test_output output;

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  test_file_write_text(folder, "lines.tsv", "0\tabc\n1\tbca\n0\tab\n1\tba\n");
  expect("data make latent --tokens 6 --features 4 --training 80 --validation 20 --test 20 --out latent", HARK_EXIT_DONE, "", "");
  expect("data make regression --tokens 12 --covariates 2 --training 400 --validation 100 --test 0 --out regression", HARK_EXIT_DONE, "",
         "");
  expect("train --out run --steps 40 " LATENT, HARK_EXIT_DONE, "step 40", "");
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

static double number_of(const char *words, const char *key) {
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output);
  const double number = command_number(line, key);
  json_decref(line);
  return number;
}

static void data_info_tells_numbers(void **state) {
  (void)state;
  expect("data info latent", HARK_EXIT_DONE, "4 numbers per token, 1 to predict", "");
  assert_int_equal(number_of("data info regression --json", "features"), 3);
}

static void eval_is_the_validation_of_training(void **state) {
  (void)state;
  const double error = number_of("eval run --json --checkpoint last --threads 1", "squared_error");
  assert_true(error > 0 && error == number_of("info run --json", "val/loss"));
  expect("eval run --part test --threads 1", HARK_EXIT_DONE, "test squared error", "");
  assert_null(strstr(output.out, "accuracy"));
}

/* Stopped and taken up again: the same weights as in one go. */
static void a_resumed_run_is_the_same_run(void **state) {
  (void)state;
  expect("train --out parts --steps 20 --schedule constant " LATENT, HARK_EXIT_DONE, "step 20", "");
  expect("train --out parts --resume --steps 40", HARK_EXIT_DONE, "step 40", "continuing");
  expect("train --out whole --steps 40 --schedule constant " LATENT, HARK_EXIT_DONE, "step 40", "");
  assert_true(number_of("eval parts --json --checkpoint last --threads 1", "squared_error") ==
              number_of("eval whole --json --checkpoint last --threads 1", "squared_error"));
}

/* Close to the Bayes predictor's error, r s2 (1 + E c'(C'C + rho)^-1 c) = .25 (1 + 2/10) with 12 tokens of 2 covariates, where z alone has
 * 8.25. */
static void a_finite_model_learns_the_regression(void **state) {
  (void)state;
  expect("train --out finite --steps 400 --evaluate-every 100 " FINITE, HARK_EXIT_DONE, "step 400", "");
  const double error = number_of("eval finite --json --threads 1", "squared_error");
  if (!(error < 0.6)) fail_msg("squared error %g, expected less than .6", error);
}

/* Compressed chunks predict numbers too: after 120 steps less than half of the error after one is left. */
static void ahca_tells_numbers_of_real_vectors(void **state) {
  (void)state;
  expect("train --out untold --steps 1 " AHCA, HARK_EXIT_DONE, "step 1", "");
  expect("train --out chunks --steps 120 --evaluate-every 40 " AHCA, HARK_EXIT_DONE, "step 120", "");
  const double before = number_of("eval untold --json --checkpoint last --threads 1", "squared_error"),
               error = number_of("eval chunks --json --checkpoint last --threads 1", "squared_error");
  if (!(error > 0 && error < before / 2)) fail_msg("squared error %g, and after one step %g", error, before);
  assert_true(error == number_of("info chunks --json", "val/loss"));
  expect("info chunks", HARK_EXIT_DONE, "chunks", "");
  expect("train --out resumed --steps 60 --schedule constant " AHCA, HARK_EXIT_DONE, "step 60", "");
  expect("train --out resumed --resume --steps 80", HARK_EXIT_DONE, "step 80", "continuing");
}

static void the_bound_reads_a_run(void **state) {
  (void)state;
  expect("lab bound --model run --json", HARK_EXIT_DONE, "terms of every layer", "");
  expect("lab bound --model run/checkpoints/step-40 --strict", HARK_EXIT_DONE, "kappa", "");
  expect("train --out single --latent-form single --steps 2 " LATENT, HARK_EXIT_DONE, "", "");
  expect("lab bound --model single --strict", HARK_EXIT_DONE, "kappa", "");
  expect("train --out infinity --latent-norm inf --aggregate mean --operator-norm 0.25 --matrix-norm 0.5 --steps 2 " LATENT, HARK_EXIT_DONE,
         "", "");
  expect("lab bound --model infinity --strict", HARK_EXIT_DONE, "kappa", "");
}

static void the_bound_refuses_others_with_the_reason(void **state) {
  (void)state;
  expect("train --out text --data text.txt --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --out free --latent-norm none --steps 1 " LATENT, HARK_EXIT_DONE, "", "");
  expect("train --out exp --kernel exp --steps 1 " LATENT, HARK_EXIT_DONE, "", "");
  static const struct {
    const char *words, *message;
  } cases[] = {{"lab bound --model text", "text: architecture decoder has layer norm and matrices without bounds"},
               {"lab bound --model finite", "finite: architecture finite has no layers of attention"},
               {"lab bound --model free", "free: its matrices have free norms"},
               {"lab bound --model exp", "exp: its kernel is exp"},
               {"lab bound --model nothing", "nothing"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    test_command_run(folder, "", cases[i].words, &output);
    assert_int_not_equal(output.code, 0);
    if (strstr(output.err, cases[i].message) == NULL || test_line_count(output.err) != 1)
      fail_msg("%s: \"%s\", expected one line with \"%s\"", cases[i].words, output.err, cases[i].message);
  }
}

static void one_line_says_what_is_wrong(void **state) {
  (void)state;
  static const struct {
    const char *words;
    int code;
    const char *message;
  } cases[] = {
      {"train --out no --architecture latent --data text.txt", HARK_EXIT_USAGE, "latent reads real vectors, expected data.format: vectors"},
      {"train --out no --architecture encoder --format vectors --data latent/training.vectors", HARK_EXIT_USAGE,
       "encoder reads tokens of a vocabulary"},
      {"train --out no --architecture encoder --width 4 --heads 2 --context 6 --data latent --format examples", HARK_EXIT_USAGE,
       "encoder reads tokens of a vocabulary, and the data are real vectors"},
      {"train --out no --width 6 --heads 2 --architecture latent --format examples --data latent --context 6", HARK_EXIT_USAGE,
       "they have 4 features, and model.width is 6"},
      {"train --out no --length-limit 3 --architecture finite --format vectors --data latent/training.vectors", HARK_EXIT_USAGE,
       "length_limit would cut off"},
      {"train --out no --positions rotary " LATENT, HARK_EXIT_USAGE, "exchangeable tokens"},
      {"train --out no --activation gelu " LATENT, HARK_EXIT_USAGE, "model.activation relu"},
      {"train --out no --example-limit 81 " LATENT, HARK_EXIT_USAGE, "data.example_limit is 81, and there are 80 training examples"},
      {"train --out no --example-limit 3 --data text.txt", HARK_EXIT_USAGE, "it needs --format other than corpus (currently corpus)"},
      {"train --out no --latent-norm 3 " LATENT, HARK_EXIT_USAGE, "expected one of none, 1, 2, inf"},
      {"train --out no --operator-norm -1 " LATENT, HARK_EXIT_USAGE, "--operator-norm"},
      {"data make latent --spread 1e308 --out no", HARK_EXIT_USAGE, "--spread: \"1e308\" given"},
      {"data make latent --frequency 1e308 --out no", HARK_EXIT_USAGE, "--frequency: \"1e308\" given"},
      {"data make latent --tokens 1048575 --features 1024 --out no", HARK_EXIT_USAGE, "--tokens"},
      {"train --out no --model.ahca.head labels " AHCA, HARK_EXIT_USAGE, "expected model.ahca.head data or regression"},
      {"train --out no --model.ahca.head classes " AHCA, HARK_EXIT_USAGE, "expected model.ahca.head data or regression"},
      {"train --out no --chunk delimiter " AHCA, HARK_EXIT_USAGE, "real vectors have no delimiters"},
      {"train --out no --architecture ahca --model.ahca.head regression --format text --data lines.tsv", HARK_EXIT_USAGE,
       "model.ahca.head regression predicts numbers"},
      {"generate run -p abc", HARK_EXIT_USAGE, "labelled examples"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect(cases[i].words, cases[i].code, "", cases[i].message);
}

static void a_limit_trains_on_fewer_examples(void **state) {
  (void)state;
  expect("train --out few --steps 2 --example-limit 10 " LATENT, HARK_EXIT_DONE, "", "");
  assert_int_equal(number_of("eval few --part training --json --threads 1", "examples"), 10);
  assert_int_equal(number_of("eval few --data latent/training.vectors --format vectors --json --threads 1", "examples"), 80);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(data_info_tells_numbers),
      cmocka_unit_test(eval_is_the_validation_of_training),
      cmocka_unit_test(a_resumed_run_is_the_same_run),
      cmocka_unit_test(a_finite_model_learns_the_regression),
      cmocka_unit_test(ahca_tells_numbers_of_real_vectors),
      cmocka_unit_test(the_bound_reads_a_run),
      cmocka_unit_test(the_bound_refuses_others_with_the_reason),
      cmocka_unit_test(one_line_says_what_is_wrong),
      cmocka_unit_test(a_limit_trains_on_fewer_examples),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
