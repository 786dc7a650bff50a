/* test_diverged.c - a training whose loss is no longer finite ends with exit code 6 before ten steps in a row are skipped, and keeps the
 * checkpoint before; hark eval of such weights ends with the same code. */
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

#define DECODER "train --data text.txt --warmup 0 --evaluate-every 0 " COMMAND_TINY
#define ENCODER                                                                                                                            \
  "train --data pairs.tsv --validation others.tsv --format text --architecture encoder --warmup 0 --evaluate-every 0 --layers 1 --width "  \
  "16 "                                                                                                                                    \
  "--heads 2 --context 32 --batch 2 --threads 1 "

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

static void write_examples(void) {
  test_file_write_text(folder, "pairs.tsv", "0\tone two\n1\tthree four\n0\tfive one\n1\tsix seven\n0\ttwo one\n1\tseven four\n");
  test_file_write_text(folder, "others.tsv", "0\ttwo one\n1\tfour three\n");
}

/* Fewer than train.max_bad_steps steps are skipped; the loss of the evaluation at the end decides. */
static void a_diverged_run_is_not_done(void **state) {
  (void)state;
  static const char *const runs[] = {DECODER "--steps 3 --lr 1e37 --out high", DECODER "--steps 8 --lr 1e12 --out long",
                                     DECODER "--steps 8 --lr 1e12 --evaluate-every 4 --out evaluated",
                                     ENCODER "--steps 3 --lr 1e37 --out encoder"};
  write_examples();
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    expect(runs[i], HARK_EXIT_NOT_FINITE, "", "the training has diverged");
    if (strstr(output.out, "done") != NULL) fail_msg("%s: %s", runs[i], output.out);
    if (strstr(output.err, "validation loss is") == NULL) fail_msg("%s: %s", runs[i], output.err);
  }
}

/* Without data to evaluate, the loss of the last step decides. */
static void the_last_step_decides_without_validation(void **state) {
  (void)state;
  expect(DECODER "--steps 4 --lr 1e12 --validation-fraction 0 --out run", HARK_EXIT_NOT_FINITE, "", "step 4: the loss is");
  expect(DECODER "--steps 4 --validation-fraction 0 --out good", HARK_EXIT_DONE, "(done)", "");
}

static void the_last_checkpoint_is_kept(void **state) {
  (void)state;
  expect(DECODER "--steps 3 --checkpoint-every 1 --out run", HARK_EXIT_DONE, "(done)", "");
  expect("train --resume run --steps 8 --lr 1e37 --train.extend restart --checkpoint-every 0", HARK_EXIT_NOT_FINITE, "",
         "the training has diverged");
  expect("eval run --threads 1", HARK_EXIT_DONE, "step-3", "");
  expect("train --resume run --steps 8 --lr 1e-3 --train.extend restart --checkpoint-every 0", HARK_EXIT_DONE, "(done)", "");
}

/* The first step's update makes the weights so large that they have no loss; they are finite themselves. */
static void an_evaluation_says_so(void **state) {
  (void)state;
  write_examples();
  expect(DECODER "--steps 3 --lr 1e37 --checkpoint-every 1 --out text", HARK_EXIT_NOT_FINITE, "", "the training has diverged");
  expect(ENCODER "--steps 3 --lr 1e37 --checkpoint-every 1 --out examples", HARK_EXIT_NOT_FINITE, "", "the training has diverged");
  expect("eval text --checkpoint step-1 --threads 1", HARK_EXIT_NOT_FINITE, "loss ", "text, step-1: the loss is ");
  expect("eval text --checkpoint step-1 --threads 1 --json", HARK_EXIT_NOT_FINITE, "\"loss\": null", "the loss is ");
  expect("eval examples --checkpoint step-1 --threads 1", HARK_EXIT_NOT_FINITE, "loss ", "examples, step-1: the loss is ");
  expect("eval text --checkpoint step-1 --context 4,8 --threads 1", HARK_EXIT_NOT_FINITE, "", "the loss is ");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {TEST(a_diverged_run_is_not_done), TEST(the_last_step_decides_without_validation),
                                     TEST(the_last_checkpoint_is_kept), TEST(an_evaluation_says_so)};
  return cmocka_run_group_tests_name("diverged", tests, NULL, NULL);
}
