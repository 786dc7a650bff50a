/* test_attend_refused.c - options, tensors and files that hark attend cannot use: the exit code, and a message that names what is wrong. */
#include "support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "support/train/attend_files.h"

static void test_refused_options(void **state) {
  (void)state;
  static const struct {
    const char *words, *says;
  } cases[] = {
      {"--structure hierarchical", "tensor q has another length than k, expected the same with --structure hierarchical"},
      {"--structure hierarchical --query-offset 2", "--query-offset: with --structure hierarchical, expected 0"},
      {"--structure hierarchical --hierarchy-block 0", "--hierarchy-block: \"0\" given, expected a whole number in [2, 1048576]"},
      {"--structure hierarchical --window 3", "--window: has no effect here, it needs --structure window (currently hierarchical)"},
      {"--coarse-query first", "it needs --structure hierarchical (currently dense)"},
      {"--structure hierarchical --grid-columns 3 --causal", "--grid-columns: has no effect here"},
      {"--structure compressed --causal", "tensor q has another length than k, expected the same with --structure compressed"},
      {"--structure compressed --causal --query-offset 2", "--query-offset: with --structure compressed, expected 0"},
      {"--structure compressed --causal --kept-chunks 2 --global-slots 3 --positional decay",
       "--positional: with --global-slots, expected none"},
      {"--structure compressed", "--structure: compressed needs --causal"},
      {"--structure compressed --causal --chunk 0", "--chunk: \"0\" given, expected a whole number in [1, 1048576]"},
      {"--structure compressed --causal --global-slots 3", "--global-slots: has no effect here, it needs --kept-chunks"},
      {"--chunk 8", "--chunk: has no effect here, it needs --structure compressed (currently dense)"},
      {"--grid-columns 3", "--grid-columns: has no effect here, it needs --structure hierarchical (currently dense)"},
      {"--normalisation cme", "--ridge X above 0"},
      {"--ridge 1", "--ridge: has no effect here, it needs --normalisation cme (currently softmax)"},
      {"--unit", "it needs --normalisation cme"},
      {"--normalisation cme --ridge -1", "ridge"},
      {"--normalisation cme --ridge 1 --causal --ridge-power 0.75", "ridge_power is 0.75 and causal is set"},
      {"--normalisation cme --ridge 1 --kernel rbf --sigma 1 --bound 2",
       "--bound: has no effect here, it needs --kernel exp (currently rbf)"},
      {"--normalisation cme --ridge 1 --structure window --window 2", "structure is window with normalisation cme"},
      {"--normalisation cme --ridge 1 --dropout 0.5", "dropout with normalisation cme"},
      {"--normalisation cme --ridge 1 --positional 'window(w=3)'", "not positive definite"},
      {"--normalisation cme --ridge 1 --positional t5", "not positive definite"},
      {"--normalisation cme --ridge 1 --solver conjugate-gradients --causal", "causal is set with solver conjugate gradients"},
      {"--normalisation cme --ridge 1 --solver-tolerance 0.1", "it needs --solver conjugate-gradients (currently factor)"},
      {"--solver factor", "--solver: has no effect here, it needs --normalisation cme (currently softmax)"},
      {"--normalisation cme --ridge 1 --scale -2", "scale is -2 with normalisation cme"},
      {"--normalisation cme --ridge 1 --scale -16777217", "scale is -16777217 with normalisation cme"},
      {"--positional 'decay(l=3)+'", "number 1: positional kernel, column 12: found the end"},
      {"--positional decay --positional decay --positional decay", "given 3 times, expected once for all heads or 2 times"},
      {"--window 3", "it needs --structure window (currently dense)"},
      {"--seed 3", "it needs --dropout above 0 (currently 0)"},
      {"--structure window --window 3 --window 4", "--window: given twice, as \"3\" and \"4\", expected once"},
      {"--structure window", "--window W"},
      {"--kernel rbf", "--sigma"},
      {"--sigma 1", "it needs --kernel rbf (currently exp)"},
      {"--kernel rbf --sigma 1 --scale 2", "it needs --kernel exp (currently rbf)"},
      {"--rotary-pairs half", "it needs --rotary above 0 (currently 0)"},
      {"--rotary 1e-39", "--rotary: 1e-39 given, expected a base of at least 1"},
      {"--rotary 0.5", "--rotary: 0.5 given, expected a base of at least 1"},
      {"--normalisation cme --ridge 1e39", "ridge is 1e39, expected 0 or a magnitude of"},
      {"--normalisation cme --ridge 1e-46", "ridge is 1e-46"},
      {"--normalisation cme --ridge 1 --kernel rbf --sigma 1e-46", "sigma is 1e-46, expected"},
      {"--normalisation cme --ridge 1 --kernel rbf --sigma 1e39", "sigma is 1e39, expected"},
      {"--dropout 1", "dropout"},
      {"--kernel gauss", "exp"},
      {"--casual", "causal"}};
  char output[ATTEND_OUTPUT_BYTES];
  attention_problem p;
  attention_problem_make("dense:B1,H2,L6,S5,D3", &p);
  attend_write_problem(HARK_F32, &p);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int code = attend(cases[i].words, output);
    if (code != 2 || strstr(output, cases[i].says) == NULL) fail_msg("attend %s: exit %d, '%s'", cases[i].words, code, output);
  }
  const int code = attend("--rotary 100", output); /* three features do not pair */
  if (code != 2 || strstr(output, "even") == NULL) fail_msg("odd rotary: exit %d, '%s'", code, output);
  attention_problem_free(&p);
}

/* Without queries or without keys. */
static void check_empty(int64_t queries, int64_t keys, const char *says) {
  char output[ATTEND_OUTPUT_BYTES];
  hark_tensor tensors[3];
  const int64_t lengths[] = {queries, keys, keys};
  const char *const names[] = {"q", "k", "v"};
  hark_named_tensor named[3] = {{0}};
  for (int i = 0; i < 3; i++) {
    const int64_t shape[] = {1, 2, lengths[i], 3};
    assert_int_equal(hark_tensor_create(attend_context, HARK_F32, 4, shape, &tensors[i]), HARK_OK);
    named[i].name = names[i];
    named[i].tensor = &tensors[i];
  }
  assert_int_equal(hark_safetensors_write(attend_context, attend_input, named, 3, NULL, 0, NULL), HARK_OK);
  const int code = attend("", output);
  if (code != 3 || strstr(output, says) == NULL) fail_msg("exit %d, '%s'", code, output);
  for (int i = 0; i < 3; i++) hark_tensor_destroy(attend_context, &tensors[i]);
}

/* Files that are no input: exit 3, with the file's name and what is wrong. */
static void test_refused_files(void **state) {
  (void)state;
  static const struct {
    attention_array array;
    int dimension;
    const char *says;
  } cases[] = {{ARRAY_KEY, 3, "tensor k has shape [2, 2, 7, 2], expected [2, Hkv, Lk, 3]"},
               {ARRAY_VALUE, 2, "tensor v has shape [2, 2, 6, 3], expected [2, 2, 7, dv]"},
               {ARRAY_DOUT, 0, "tensor dout has shape [1, 4, 5, 3], expected [2, 4, 5, 3]"},
               {ARRAY_BIAS, 3, "tensor attention_bias has shape [2, 4, 5, 6], expected [2, 4, 5, 7] or 1"}};
  char output[ATTEND_OUTPUT_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attention_problem p;
    attention_problem_make("dense:B2,H4,K2,L5,S7,D3,bias", &p);
    attention_numbers *numbers = &p.array[cases[i].array];
    numbers->count = numbers->count / numbers->shape[cases[i].dimension] * (numbers->shape[cases[i].dimension] - 1);
    numbers->shape[cases[i].dimension]--;
    attend_write_problem(HARK_F32, &p);
    const int code = attend("", output);
    if (code != 3 || strstr(output, cases[i].says) == NULL || strstr(output, attend_input) == NULL)
      fail_msg("'%s': exit %d, '%s'", cases[i].says, code, output);
    attention_problem_free(&p);
  }
  check_empty(0, 7, "tensor q has shape [1, 2, 0, 3], there are no queries: Lq is 0, expected at least 1");
  check_empty(5, 0, "tensor k has shape [1, 2, 0, 3], there are no keys: Lk is 0, expected at least 1");
  /* A name that is none, and no q. */
  hark_tensor tensor;
  const int64_t shape[] = {1, 1, 2, 2};
  assert_int_equal(hark_tensor_create(attend_context, HARK_F32, 4, shape, &tensor), HARK_OK);
  const hark_named_tensor named[] = {
      {.name = "k", .tensor = &tensor}, {.name = "v", .tensor = &tensor}, {.name = "maks", .tensor = &tensor}};
  assert_int_equal(hark_safetensors_write(attend_context, attend_input, named, 3, NULL, 0, NULL), HARK_OK);
  int code = attend("", output);
  if (code != 3 || strstr(output, "did you mean mask") == NULL) fail_msg("misspelt: exit %d, '%s'", code, output);
  assert_int_equal(hark_safetensors_write(attend_context, attend_input, named, 2, NULL, 0, NULL), HARK_OK);
  code = attend("", output);
  if (code != 3 || strstr(output, "no tensor q") == NULL) fail_msg("no q: exit %d, '%s'", code, output);
  hark_tensor_destroy(attend_context, &tensor);
  remove(attend_input);
  code = attend("", output);
  if (code != 3 && code != 4) fail_msg("no file: exit %d, '%s'", code, output);
}

/* Tensors that cannot be used: the message names the tensor and the option. Code 2 where other options could use it, 3 where none could. */
static void test_refused_tensors(void **state) {
  (void)state;
#define HIERARCHICAL "--structure hierarchical"
#define COMPRESSED "--causal --structure compressed --chunk 4"
#define RIDGE "--normalisation cme --ridge 1"
  static const struct {
    const char *extra, *words;
    int code;
    const char *says;
  } cases[] = {
      {"hierarchical_bias F32 2 63", "", 2, "tensor hierarchical_bias needs --structure hierarchical"},
      {"hierarchical_bias F32 2 63", "--structure window --window 2", 2, "tensor hierarchical_bias needs --structure hierarchical"},
      {"hierarchical_bias F32 2 63", RIDGE, 2, "tensor hierarchical_bias needs --structure hierarchical"},
      {"chunk_starts U8 1 8", "--causal", 2, "tensor chunk_starts needs --structure compressed"},
      {"chunk_starts F32 1 8", COMPRESSED, 3, "tensor chunk_starts is F32, expected U8 or BOOL"},
      {"attention_bias F32 1 2 8 8", COMPRESSED, 2, "tensor attention_bias cannot be used with --structure compressed"},
      {"forget F32 1 2 8", COMPRESSED, 2, "tensor forget cannot be used with --structure compressed"},
      {"log_kernel F32 1 8", COMPRESSED " --kept-chunks 2 --global-slots 3", 2, "tensor log_kernel cannot be used with --global-slots"},
      {"log_kernel F32 1 7", COMPRESSED, 3, "log_kernel has 7 distances, expected at least 8"},
      {"contextual F32 1 9 4", COMPRESSED, 2, "tensor contextual cannot be used with --structure compressed"},
      {"mask U8 1 2 8 8", COMPRESSED, 2, "tensor mask has heads or query rows, expected shape [B or 1, 1, 1, Lk] with --structure"},
      {"", COMPRESSED " --chunk-slots 5", 2, "chunk_slots is 5, expected 1 to 4"},
      {"query_mask U8 1 8", "", 2, "tensor query_mask needs --structure hierarchical"},
      {"attention_bias F32 1 2 8 8", HIERARCHICAL, 2, "tensor attention_bias cannot be used with --structure hierarchical"},
      {"attention_bias F32 1 2 8 8", RIDGE, 2, "tensor attention_bias cannot be used with --normalisation cme, expected log_kernel"},
      {"forget F32 1 2 8", "", 2, "tensor forget needs --causal"},
      {"forget F32 1 2 8", "--causal " HIERARCHICAL, 2, "tensor forget cannot be used with --structure hierarchical"},
      {"forget F32 1 2 8", "--causal " RIDGE, 2, "tensor forget cannot be used with --normalisation cme"},
      {"mask U8 1 2 8 8", HIERARCHICAL, 2, "tensor mask has heads or query rows, expected shape [B or 1, 1, 1, Lk] with --structure"},
      {"mask U8 1 2 8 8", RIDGE, 2, "tensor mask has query rows, expected shape [B or 1, H or 1, 1, Lk] with --normalisation cme"},
      {"log_kernel F32 1 8", "--positional decay", 2, "tensor log_kernel and --positional are both given"},
      {"rotary_rates F32 2", "", 2, "tensor rotary_rates needs --rotary BASE"},
      {"segments I64 1 8", "--causal --query-offset 3", 2, "tensor segments cannot be used with --query-offset"},
      {"segments I64 1 8;key_lengths I64 1", "", 3, "key_lengths: number 0 is 9, expected 0 to 8, the number of keys"},
      {"key_lengths I64 1", "", 3, "tensor key_lengths: number 0 is 9, expected 0 to 8, the number of keys"},
      {"log_kernel F32 1 5", "", 3, "log_kernel has 5 distances, expected at least 8"},
      {"contextual F32 1 1 4", "--causal", 3,
       "tensor contextual has too few or too many positions, expected shape [H or 1, N, d] with N from 2 to 2^20"},
      {"contextual F32 1 1048577 4", "--causal", 3, "with N from 2 to 2^20"},
      {"contextual F32 1 9 4", "", 2, "tensor contextual needs --causal"},
      {"noise F32 1 2 8", "", 2, "tensor noise needs --normalisation cme"},
      {"dvariance F32 1 2 8", "", 2, "tensor dvariance needs --normalisation cme"},
      {"dlog_determinant F32 1 2 8", "--causal", 2, "tensor dlog_determinant needs --normalisation cme"},
      {"dquadratic F32 1 2 8 4", "", 2, "tensor dquadratic needs --normalisation cme"},
      {"dquadratic F32 1 2 8", RIDGE, 3, "tensor dquadratic has shape [1, 2, 8], expected [1, 2, 8, 4]"},
      {"noise F32 1 2 7", RIDGE, 3, "tensor noise has shape [1, 2, 7], expected [1, 2, 8]"},
      {"noise F32 1 2 8", "--normalisation cme --ridge 0", 2, "item 0, head 0: ridge and noise of key row 0 are 0, expected one of them"},
      {"", "--normalisation cme --ridge 0", 2, "--ridge 0 needs tensor noise"},
      {"", HIERARCHICAL " --hierarchy-block 15", 2, "hierarchy_block is 15"},
      {"", HIERARCHICAL " --hierarchy-block 8 --grid-columns 3", 2, "hierarchy_block is 8 with grid_columns"},
      {"", HIERARCHICAL " --grid-columns 3 --partition sibling", 2, "grid_columns is 3 with partition sibling"},
      {"hierarchical_bias F32 2 63", HIERARCHICAL " --grid-columns 3", 2, "tensor hierarchical_bias cannot be used with --grid-columns"},
      {"log_kernel F32 2 63", HIERARCHICAL " --grid-columns 3", 2, "tensor log_kernel cannot be used with --grid-columns"},
      {"", HIERARCHICAL " --grid-columns 3 --positional decay", 2, "--positional cannot be used with --grid-columns"},
      {"", HIERARCHICAL " --coarse-query mean --causal", 2, "coarse_query is mean"},
      {"", HIERARCHICAL " --interpolation linear --causal", 2, "interpolation is linear"},
      {"hierarchical_bias F32 2 5", HIERARCHICAL, 3, "hierarchical_bias has shape [2, 5], expected [2, 63]"}};
#undef HIERARCHICAL
#undef COMPRESSED
#undef RIDGE
  char output[ATTEND_OUTPUT_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attend_write_extra(8, cases[i].extra);
    const int code = attend(cases[i].words, output);
    if (code != cases[i].code || strstr(output, cases[i].says) == NULL || strstr(output, attend_input) == NULL)
      fail_msg("attend %s, %s: exit %d, '%s'", cases[i].words, cases[i].extra, code, output);
  }
  attend_write_extra(6, "segments I64 1 8");
  const int code = attend("", output);
  if (code != 3 || strstr(output, "tensor segments is given, and q has another length than k") == NULL)
    fail_msg("exit %d, '%s'", code, output);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refused_options),
      cmocka_unit_test(test_refused_tensors),
      cmocka_unit_test(test_refused_files),
  };
  return cmocka_run_group_tests(tests, attend_open, attend_close);
}
