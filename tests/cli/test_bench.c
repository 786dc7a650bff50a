/* test_bench.c - hark bench: what it prints for machines and for people, and how it answers wrong cases. */
#include <hark/operators.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/cmocka_all.h"

#define OUTPUT_BYTES 16384
#define USAGE 2 /* exit code */

/* Runs hark bench with these words; stdout and stderr, in that order of appearance, go to `output`. Returns the exit code. */
static int bench_into(const char *words, char *output, size_t size) {
  char command[2048];
  snprintf(command, sizeof command, "\"%s\" bench %s 2>&1", HARK_COMMAND, words);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t length = fread(output, 1, size - 1, pipe);
  output[length] = '\0';
  const int status = pclose(pipe);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int bench(const char *words, char output[OUTPUT_BYTES]) { return bench_into(words, output, OUTPUT_BYTES); }

/* A positive finite number of a result. */
static double number(const json_t *object, const char *key, const char *line) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number \"%s\" in %s", key, line);
  const double x = json_number_value(value);
  if (!(isfinite(x) && x > 0)) fail_msg("\"%s\" is %g in %s", key, x, line);
  return x;
}

static json_t *parse(const char *line) {
  json_error_t error;
  json_t *object = json_loads(line, 0, &error);
  if (object == NULL) fail_msg("%s in %s", error.text, line);
  return object;
}

static void attention_prints_one_object_a_case(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H4,K2,L40,D8,causal,packed", "window:B1,H2,L40,M50,D8,E4,window=5",
                                      "dense:B1,H2,L24,D8,causal,forget,kernel,bias,mask,dropout=0.1,rbf",
                                      "dense:B1,H2,L80,D8,causal,stick,long", "dense:B1,H2,L24,D8,kernel,directed"};
  static const char *const keys[] = {"forward_ms",           "forward_min_ms",  "forward_gflops",   "forward_peak_fraction",  "backward_ms",
                                     "backward_min_ms",      "backward_gflops", "threads",          "backward_peak_fraction", "peak_gflops",
                                     "peak_over_one_thread", "rounds",          "bytes_per_second", "memory_bytes_per_second"};
  char words[512], output[OUTPUT_BYTES];
  int length = snprintf(words, sizeof words, "attention --json --rounds 2");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    length += snprintf(words + length, sizeof words - (size_t)length, " %s", cases[i]);
  assert_int_equal(bench(words, output), 0);
  char *at = output;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char *const end = strchr(at, '\n');
    assert_non_null(end);
    *end = '\0';
    json_t *object = parse(at);
    assert_string_equal(json_string_value(json_object_get(object, "case")), cases[i]);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) number(object, keys[k], at);
    assert_true(number(object, "forward_min_ms", at) <= number(object, "forward_ms", at));
    json_decref(object);
    at = end + 1;
  }
  assert_string_equal(at, "");
}

/* Useful operations: 2 products of 2 L L D each a head over visible pairs, L (L + 1) / 2 of them when causal; five in the backward. */
static void operations_are_the_useful_ones(void **state) {
  (void)state;
  const double heads = 3, length = 33, width = 16, pairs = length * (length + 1) / 2;
  char output[OUTPUT_BYTES];
  assert_int_equal(bench("attention dense:B1,H3,L33,D16,causal --json --rounds 2", output), 0);
  json_t *object = parse(output);
  const double forward = number(object, "forward_gflops", output) * number(object, "forward_ms", output) * 1e6;
  const double backward = number(object, "backward_gflops", output) * number(object, "backward_ms", output) * 1e6;
  /* Results are printed with seven digits. */
  assert_true(fabs(forward / (2 * 2 * pairs * width * heads) - 1) < 1e-5);
  assert_true(fabs(backward / (5 * 2 * pairs * width * heads) - 1) < 1e-5);
  /* q, k, v, out and their gradients, and the log-sum-exp; a plan's workspace is that of its larger direction. */
  assert_true(number(object, "tensor_bytes", output) == heads * length * (8 * width + 1) * sizeof(float));
  assert_true(number(object, "workspace_bytes", output) > 0);
  json_decref(object);
}

static void operators_and_machine_are_measured(void **state) {
  (void)state;
  char output[OUTPUT_BYTES];
  static const char *const cases[] = {
      "linear:M8,N8,K8,bias",    "matmul:B2,M4,N4,K4,ta,tb", "layer_norm:M4,D8,bias", "rms_norm:M4,D8", "gelu:M4,D8", "gated_silu:M4,D8",
      "cross_entropy:M4,N8",     "rotary:L4,D8,H2",          "embedding:M4,N8,D8",    "adamw:N64",      "add:M4,D8",  "dropout:M4,D8",
      "positional:M2,N9,H3,D12", "adafactor:N5,M9"};
  char words[1024] = "operator";
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    strcat(words, " ");
    strcat(words, cases[i]);
  }
  strcat(words, " --json --rounds 1");
  assert_int_equal(bench(words, output), 0);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_non_null(strstr(output, cases[i]));
  assert_int_equal(bench("decode hierarchical:H2,K1,L40,D8,E5,N4,exact hierarchical:L1100,D8 cme:H2,K1,L300,D8,E5 cme:L9,D4,exp "
                         "compressed:H2,K1,L999,D8,E5,N4,slots=2,select=3,kept=5,globals=3 compressed:L3,D2 --json --rounds 1",
                         output),
                   0);
  assert_non_null(strstr(output, "hierarchical:L1100,D8"));
  assert_non_null(strstr(output, "cme:H2,K1,L300,D8,E5"));
  assert_non_null(strstr(output, "compressed:H2,K1,L999,D8,E5,N4,slots=2,select=3,kept=5,globals=3"));
  assert_int_equal(bench("machine --json --rounds 2", output), 0);
  json_t *object = parse(output);
  number(object, "peak_gflops", output);
  number(object, "memory_bytes_per_second", output);
  number(object, "peak_over_one_thread", output);
  assert_true(json_is_string(json_object_get(object, "threads_from")));
  json_decref(object);
  assert_int_equal(bench("machine --rounds 1", output), 0);
  assert_non_null(strstr(output, "GFLOP/s"));
  assert_non_null(strstr(output, "times one thread's peak"));
}

/* A record is measured because it is in the table. */
static void every_record_is_measured(void **state) {
  (void)state;
  static char output[1 << 18];
  int count = 0;
  const hark_operator *const *const ops = hark_operators(&count);
  assert_int_equal(
      bench_into("operator all gelu:one,x4 embedding:sparse,257=1000,7=33 --json --rounds 1 --threads 1", output, sizeof output), 0);
  const char *at = output;
  for (int i = 0; i < count; i++) {
    char head[80];
    snprintf(head, sizeof head, "{\"case\":\"%s:", ops[i]->name);
    at = strstr(at, head);
    if (at == NULL) fail_msg("not a line of %s, in the order of the table, in\n%s", ops[i]->name, output);
  }
  assert_non_null(strstr(at, "\"case\":\"gelu:one,x4\""));
  assert_non_null(strstr(at, "\"case\":\"embedding:sparse,257=1000,7=33\""));
}

static void a_step_allocates_nothing(void **state) {
  (void)state;
  char output[OUTPUT_BYTES];
  const char *words = "step --layers 2 --heads 2 --width 16 --context 8 --batch 2 --steps 3 --accumulate 2 --dropout 0.1 --json";
  if (bench(words, output) != 0) fail_msg("%s", output);
  json_t *object = parse(output);
  number(object, "step_ms", output);
  number(object, "tokens_per_second", output);
  number(object, "peak_fraction", output);
  number(object, "peak_memory_bytes", output);
  assert_int_equal(json_integer_value(json_object_get(object, "steps")), 3);
  assert_true(json_is_integer(json_object_get(object, "allocations")));
  assert_int_equal(json_integer_value(json_object_get(object, "allocations")), 0);
  json_decref(object);
}

static void wrong_cases_are_answered(void **state) {
  (void)state;
  static const struct {
    const char *words, *answer;
  } wrong[] = {
      {"attention dense:B1,Q3", "there is no 'Q3'; expected words are B<n>"},
      {"attention dense", "expected dense:WORD"},
      {"attention dens:L8", "structure 'dens', expected dense, window, hierarchical, compressed or cme"},
      {"attention dense:L8,slots=2", "belong to cases 'compressed:...'"},
      {"attention compressed:L8,exact", "expected N<n>, slots, select, kept and globals"},
      {"attention compressed:L8,N4,slots=5", "chunk_slots is 5"},
      {"attention dense:L8,variance", "belong to cases 'cme:...'"},
      {"attention cme:L8,window=3", "belongs to cases 'window:...'"},
      {"attention window:L8", "expected window=<n>"},
      {"attention dense:L8,directed", "directed needs kernel"},
      {"attention dense:L8,window=3", "belongs to cases 'window:...'"},
      {"attention dense:L8,first", "belong to cases 'hierarchical:...'"},
      {"attention hierarchical:L8,window=3", "belongs to cases 'window:...'"},
      {"attention hierarchical:L8,N3", "hierarchy_block is 3"},
      {"attention hierarchical:L8,N8,grid=4", "hierarchy_block is 8 with grid_columns"},
      {"attention dense:L8,grid=4", "belong to cases 'hierarchical:...'"},
      {"attention hierarchical:L8,causal,mean", "coarse_query is mean"},
      {"attention dense:L0", "expected a whole number of at least 1 in 'L0'"},
      {"attention dense:L99999999999999999999", "expected a whole number of at least 1"},
      {"attention dense:L8,dropout=x", "expected a number of at least 0 in 'dropout=x'"},
      {"attention dense:L8,", "there is no ''"},
      {"attention dense:L8,dropout=1.5", "dropout"},
      {"attention dense:L8,H4,K3", "heads"},
      {"attention", "needs cases"},
      {"operator linear:M4", "linear needs K<n>"},
      {"decode dense:L8,D4", "structure 'dense', expected hierarchical, cme or compressed"},
      {"decode cme:L8,D8,N4", "N<n> belongs to cases 'hierarchical:...' and 'compressed:...'"},
      {"decode hierarchical:L8,D8,exp", "exp belongs to cases 'cme:...'"},
      {"decode compressed:L8,D8,exact", "exact, sibling and rbf belong to cases 'hierarchical:...'"},
      {"decode hierarchical:L8,D8,slots=2", "slots, select, kept and globals belong to cases 'compressed:...'"},
      {"decode compressed:L8,D8,kept=9223372036854775807", "kept_chunks is 9223372036854775807"},
      {"decode compressed:L8,D8,globals=2", "global_slots is 2 with kept_chunks 0"},
      {"decode compressed:L8,D8,N4,slots=5", "chunk_slots is 5, expected 1 to 4"},
      {"decode cme:L9999999999,D8", "L up to 268435456"},
      {"decode hierarchical:L8", "decode needs D<n>"},
      {"decode hierarchical:L8,D8,N3", "hierarchy_block is 3"},
      {"decode hierarchical:L8,D8,H3,K2", "multiple of key_heads"},
      {"decode hierarchical:L8,D8,N9223372036854775807", "N up to 1048576"},
      {"decode", "for instance hierarchical:"},
      {"operator nothing:M4", "there is no operator nothing"},
      {"operator softmax:one", "hark bench operator all prints their names"},
      {"operator pack:some", "its samples are one, whole, lengths"},
      {"operator linear_ridge:short,8=9,3=x", "'3=x', expected x<n>"},
      {"operator kernel_ridge:plain,x3", "case 'kernel_ridge:plain,x3': kernel_ridge: "},
      {"machine more", "takes no cases"},
      {"attentoin x", "did you mean attention"},
      {"", "usage: hark bench"},
  };
  char output[OUTPUT_BYTES];
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    const int code = bench(wrong[i].words, output);
    if (code != USAGE || strstr(output, wrong[i].answer) == NULL) {
      fail_msg("hark bench %s: exit %d, expected %d and \"%s\":\n%s", wrong[i].words, code, USAGE, wrong[i].answer, output);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_prints_one_object_a_case), cmocka_unit_test(operations_are_the_useful_ones),
      cmocka_unit_test(operators_and_machine_are_measured), cmocka_unit_test(every_record_is_measured),
      cmocka_unit_test(a_step_allocates_nothing),           cmocka_unit_test(wrong_cases_are_answered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
