/* test_operator_cases.c - hark bench operator knows every record in the table: each of its samples is a case, and sizes can be chosen. */
#include "cli/bench/operator_case.h"

#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"

static const test_setup setup = {"cpu", "generic"};

/* Reads a case and runs it once in both directions; false, and the context's message, when it is refused. */
static bool runs(hark_context *context, const char *text, hark_operator_case *c) {
  hark_call call;
  hark_tensor workspace;
  hark_status status = hark_operator_case_read(context, text, c);
  if (status != HARK_OK) return false;
  status = hark_operator_call_open(context, c, &call, &workspace);
  if (status == HARK_OK) status = hark_operator_forward(context, &call);
  if (status == HARK_OK && call.op->backward != NULL) status = hark_operator_backward(context, &call);
  hark_operator_call_close(context, &call, &workspace);
  return status == HARK_OK;
}

static void every_sample_of_every_record_is_a_case(void **state) {
  (void)state;
  hark_context *context = test_setup_open(&setup, 2);
  int count, cases = 0;
  const hark_operator *const *const ops = hark_operators(&count);
  for (int i = 0; i < count; i++) {
    for (int s = 0; s < ops[i]->sample_count; s++) {
      char text[HARK_OPERATOR_CASE_BYTES];
      hark_operator_case c;
      (void)snprintf(text, sizeof text, "%s:%s", ops[i]->name, ops[i]->samples[s].name);
      if (!runs(context, text, &c)) fail_msg("%s: %s", text, hark_context_message(context));
      assert_ptr_equal(c.op, ops[i]);
      assert_ptr_equal(c.attributes, ops[i]->samples[s].attributes);
      assert_memory_equal(c.inputs, ops[i]->samples[s].inputs, sizeof c.inputs);
      cases++;
    }
  }
  assert_true(cases > count);
  test_setup_close(context);
}

/* All extents of numbers above 1 are so many times larger. */
static bool is_larger(const hark_operator_case *c, const hark_sample *sample, int64_t times) {
  bool grown = false;
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    for (int k = 0; sample->inputs[i].type == HARK_F32 && k < sample->inputs[i].rank; k++) {
      const int64_t before = sample->inputs[i].shape[k], after = c->inputs[i].shape[k];
      if (after != (before > 1 ? before * times : before)) return false;
      grown = grown || after > before;
    }
  }
  return grown;
}

/* Whole, or in one size. What an operator's attributes say of sizes does not grow: not every sample can be enlarged, but one of each
 * record, except where attributes say all sizes: hark bench attention measures those. */
static bool all_sizes_are_in_attributes(const hark_operator *op) {
  return op == &hark_op_kernel_ridge || op == &hark_op_kernel_ridge_posterior;
}

static void every_record_can_be_enlarged(void **state) {
  (void)state;
  hark_context *context = test_setup_open(&setup, 2);
  int count, whole = 0;
  const hark_operator *const *const ops = hark_operators(&count);
  for (int i = 0; i < count; i++) {
    bool any = all_sizes_are_in_attributes(ops[i]);
    for (int s = 0; s < ops[i]->sample_count && !any; s++) {
      const hark_sample *const sample = &ops[i]->samples[s];
      char text[2 * HARK_OPERATOR_CASE_BYTES];
      hark_operator_case c;
      (void)snprintf(text, sizeof text, "%s:%s,x3", ops[i]->name, sample->name);
      if (runs(context, text, &c) && is_larger(&c, sample, 3)) {
        any = true;
        whole++;
        break;
      }
      for (int k = 0; k < HARK_MAX_INPUTS * HARK_MAX_RANK && !any; k++) {
        const hark_sample_input *const input = &sample->inputs[k / HARK_MAX_RANK];
        const int64_t extent = input->type == HARK_NONE || k % HARK_MAX_RANK >= input->rank ? 0 : input->shape[k % HARK_MAX_RANK];
        if (extent < 2) continue;
        (void)snprintf(text, sizeof text, "%s:%s,%d=%d", ops[i]->name, sample->name, (int)extent, 3 * (int)extent);
        any = runs(context, text, &c);
      }
    }
    if (!any) fail_msg("no sample of %s can be enlarged: %s", ops[i]->name, hark_context_message(context));
  }
  assert_true(whole > count / 2);
  test_setup_close(context);
}

static void sizes_go_together(void **state) {
  (void)state;
  hark_context *context = test_setup_open(&setup, 1);
  hark_operator_case c;
  /* embedding "sparse": ids [2, 7] below 257, weight [257, 64] */
  assert_int_equal(hark_operator_case_read(context, "embedding:sparse,257=1000,7=4096", &c), HARK_OK);
  assert_int_equal(c.inputs[0].shape[0], 2);
  assert_int_equal(c.inputs[0].shape[1], 4096);
  assert_int_equal(c.inputs[1].shape[0], 1000);
  assert_int_equal(c.inputs[1].shape[1], 64);
  assert_true(c.inputs[0].high == 999);
  /* segment_pool "average_many": [257, 33] and 40 offsets up to 257 */
  assert_int_equal(hark_operator_case_read(context, "segment_pool:average_many,x2", &c), HARK_OK);
  assert_int_equal(c.inputs[0].shape[0], 514);
  assert_int_equal(c.inputs[1].shape[0], 79);
  assert_true(c.inputs[1].low == 514 && c.inputs[1].high == 0);
  /* pool "mean_lengths": [7, 5, 33], lengths up to 5 */
  assert_int_equal(hark_operator_case_read(context, "pool:mean_lengths,5=50", &c), HARK_OK);
  assert_true(c.inputs[1].high == 50 && c.inputs[1].shape[0] == 7);
  /* letters and samples of one record */
  assert_int_equal(hark_operator_case_read(context, "linear:M8,N4,K2,bias", &c), HARK_OK);
  assert_int_equal(c.inputs[2].shape[0], 4);
  test_setup_close(context);
}

static void wrong_cases_say_what_was_expected(void **state) {
  (void)state;
  static const struct {
    const char *text, *answer;
  } wrong[] = {
      {"gelo:one", "there is no operator gelo (did you mean gelu?)"},
      {"", "there is no operator"},
      {"gelu", "expected gelu:SAMPLE or gelu:SAMPLE,x<n> or extents by letter; its samples are one"},
      {"pack", "expected pack:SAMPLE or pack:SAMPLE,x<n>; its samples are one, whole, lengths"},
      {"pack:", "its samples are one, whole, lengths"},
      {"pack:who", "its samples are one, whole, lengths"},
      {"pack:whole,", "'', expected x<n> for all extents times n, or E=<n> with an extent E of 3, 7"},
      {"pack:whole,x", "'x', expected x<n>"},
      {"pack:whole,x0", "'x0', expected x<n>"},
      {"pack:whole,x-2", "'x-2', expected x<n>"},
      {"pack:whole,x99999999999999999999", "expected x<n>"},
      {"pack:whole,5=10", "'5=10', expected x<n> for all extents times n, or E=<n> with an extent E of 3, 7"},
      {"pack:whole,7=", "'7=', expected x<n>"},
      {"pack:whole,7=0", "'7=0', expected x<n>"},
      {"linear:M4", "linear needs K<n>"},
      {"linear:Q4", "there is no 'Q4'"},
  };
  hark_context *context = test_setup_open(&setup, 1);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hark_operator_case c;
    const hark_status status = hark_operator_case_read(context, wrong[i].text, &c);
    if (status != HARK_INVALID_ARGUMENT || strstr(hark_context_message(context), wrong[i].answer) == NULL)
      fail_msg("'%s': status %d, \"%s\", expected \"%s\"", wrong[i].text, (int)status, hark_context_message(context), wrong[i].answer);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_sample_of_every_record_is_a_case),
      cmocka_unit_test(every_record_can_be_enlarged),
      cmocka_unit_test(sizes_go_together),
      cmocka_unit_test(wrong_cases_say_what_was_expected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
