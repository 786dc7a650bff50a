/* test_hierarchical_decode.c - hierarchical attention token by token against the attention of the whole text, in f64, and what its cache
 * takes.
 *
 * In f64 both are sums of at most a few hundred terms of order one: 1e-11 is some ten thousand roundings. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/hierarchy.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define WITHIN 1e-11
#define LARGEST 140 /* rows of the longest text */
#define HEADS 4
#define KEY_HEADS 2
#define VALUE_MOST 37 /* features of the widest case */

typedef struct decode_case {
  const char *name;
  int64_t block;
  hark_hierarchy_partition partition;
  hark_coarse_query coarse_query;
  hark_attention_kernel kernel;
  bool bias, log_kernel;
  int64_t head_dim, value_dim;
  bool hides; /* the kernel hides some distances */
} decode_case;

static const decode_case cases[] = {
    {"first", 2, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_FIRST, HARK_KERNEL_EXP, false, false, 3, 5, false},
    {"exact", 2, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_EXACT, HARK_KERNEL_EXP, false, false, 3, 5, false},
    {"first_sibling", 4, HARK_PARTITION_SIBLING, HARK_COARSE_QUERY_FIRST, HARK_KERNEL_EXP, false, false, 3, 5, false},
    {"exact_sibling_bias", 2, HARK_PARTITION_SIBLING, HARK_COARSE_QUERY_EXACT, HARK_KERNEL_EXP, true, false, 3, 5, false},
    {"first_bias", 4, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_FIRST, HARK_KERNEL_EXP, true, false, 3, 5, false},
    {"first_kernel", 2, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_FIRST, HARK_KERNEL_EXP, false, true, 3, 5, false},
    {"exact_kernel", 2, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_EXACT, HARK_KERNEL_EXP, false, true, 3, 5, false},
    {"first_kernel_bias_rbf", 4, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_FIRST, HARK_KERNEL_RBF, true, true, 3, 5, false},
    {"exact_rbf_wide_block", 16, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_EXACT, HARK_KERNEL_RBF, false, false, 3, 5, false},
    {"first_wide", 64, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_FIRST, HARK_KERNEL_EXP, true, true, 20, VALUE_MOST, true},
    {"exact_wide", 16, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_EXACT, HARK_KERNEL_EXP, false, true, 16, 32, true},
};
#define CASES (sizeof cases / sizeof *cases)

static double noise(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(*state >> 11) / (double)((int64_t)1 << 52) - 1; /* [-1, 1) */
}

static void set(const hark_tensor *tensor, int64_t i, double value) {
  if (tensor->type == HARK_F64)
    ((double *)tensor->data)[i] = value;
  else
    ((float *)tensor->data)[i] = (float)value;
}

/* In the memory of the reference backend, which is the host's. */
static hark_tensor made(hark_context *context, hark_type type, int rank, const int64_t *shape, uint64_t seed, double size) {
  hark_tensor tensor;
  assert_fine(context, hark_tensor_create(context, type, rank, shape, &tensor));
  for (int64_t i = 0; i < hark_tensor_count(&tensor); i++) set(&tensor, i, size * noise(&seed));
  return tensor;
}

typedef struct text {
  hark_context *context;
  const decode_case *is;
  hark_type type;
  int64_t length, levels;
  hark_tensor query, key, value, bias, log_kernel, means;
} text;

static int64_t levels_of(int64_t block, int64_t length) {
  const hark_attention_desc desc = {.hierarchy_block = block, .causal = true};
  return hark_hierarchy_make(&desc, length).levels;
}

static text text_open(hark_context *context, const decode_case *is, hark_type type, int64_t length) {
  const int64_t query[] = {1, length, HEADS * is->head_dim}, key[] = {1, length, KEY_HEADS * is->head_dim};
  const int64_t value[] = {1, length, KEY_HEADS * is->value_dim}, bias[] = {HEADS, 4 * is->block - 1};
  text t = {.context = context, .is = is, .type = type, .length = length, .levels = levels_of(is->block, length)};
  const int64_t log_kernel[] = {1, is->block << t.levels};
  t.query = made(context, type, 3, query, 1, 2);
  t.key = made(context, type, 3, key, 2, 2);
  t.value = made(context, type, 3, value, 3, 2);
  if (is->bias) t.bias = made(context, type, 2, bias, 4, 1);
  if (is->log_kernel) t.log_kernel = made(context, type, 2, log_kernel, 5, 3);
  for (int64_t i = 3; is->hides && i < log_kernel[1]; i += i < 40 ? 7 : 1) set(&t.log_kernel, i, -INFINITY);
  return t;
}

static void text_close(text *t) {
  hark_tensor *const all[] = {&t->query, &t->key, &t->value, &t->bias, &t->log_kernel, &t->means};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) hark_tensor_destroy(t->context, all[i]);
}

static hark_value leaf(hark_tape *tape, const hark_tensor *tensor) {
  hark_value value = 0;
  if (tensor->type != HARK_NONE) assert_int_equal(hark_tape_leaf(tape, tensor, NULL, &value), HARK_OK);
  return value;
}

/* [rows, H dv] <- a value of the tape. */
static void read_rows(const text *t, hark_tape *tape, hark_value y, double *out) {
  const hark_tensor *rows = hark_tape_tensor(tape, y);
  for (int64_t i = 0; i < hark_tensor_count(rows); i++)
    out[i] = t->type == HARK_F64 ? ((const double *)rows->data)[i] : (double)((const float *)rows->data)[i];
}

/* [L, H dv] <- the operator of whole texts. */
static void attend_to_all(const text *t, double *out) {
  enum { QUERY, KEY, VALUE, BIAS, LOG_KERNEL, FORGET, MASK, HIERARCHICAL_BIAS, INPUTS };
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = t->type;
  desc.structure = HARK_STRUCTURE_HIERARCHICAL;
  desc.kernel = t->is->kernel;
  desc.sigma = t->is->kernel == HARK_KERNEL_RBF ? 1.25 : 0;
  desc.batch = 1;
  desc.heads = HEADS;
  desc.key_heads = KEY_HEADS;
  desc.query_length = desc.key_length = t->length;
  desc.head_dim = t->is->head_dim;
  desc.value_dim = t->is->value_dim;
  desc.causal = true;
  desc.hierarchy_block = t->is->block;
  desc.partition = t->is->partition;
  desc.coarse_query = t->is->coarse_query;
  desc.has_hierarchical_bias = t->is->bias;
  desc.has_log_kernel = t->is->log_kernel;
  hark_tape *tape = NULL;
  assert_fine(t->context, hark_tape_create(t->context, &tape));
  const hark_attention_attributes attributes = {.desc = &desc};
  hark_value inputs[INPUTS] = {leaf(tape, &t->query), leaf(tape, &t->key), leaf(tape, &t->value)}, y = 0;
  inputs[LOG_KERNEL] = leaf(tape, &t->log_kernel);
  inputs[HIERARCHICAL_BIAS] = leaf(tape, &t->bias);
  assert_fine(t->context, hark_tape_apply(tape, &hark_op_attention, &attributes, INPUTS, inputs, 0, &y));
  read_rows(t, tape, y, out);
  hark_tape_destroy(&tape);
}

/* Rows first .. first + count of a tensor [1, L, width]. */
static hark_tensor rows_of(const hark_tensor *whole, int64_t first, int64_t count) {
  hark_tensor rows = *whole;
  rows.owned_bytes = 0;
  rows.shape[1] = count;
  rows.data = (char *)whole->data + (size_t)(first * whole->shape[2]) * hark_type_bytes(whole->type);
  return rows;
}

/* The same in passes of `pass` rows, through a cache of noise. */
static void attend_by_passes(text *t, int64_t pass, double *out) {
  enum { QUERY, KEY, VALUE, CACHED_KEY, CACHED_VALUE, PARTIAL, BIAS, MEANS, INPUTS };
  const int64_t ring = 2 * t->is->block;
  const int64_t keys[] = {t->levels, ring, KEY_HEADS * t->is->head_dim}, values[] = {t->levels, ring, KEY_HEADS * t->is->value_dim};
  const int64_t partials[] = {t->levels, HEADS, t->is->value_dim + 2};
  hark_tensor cached_key = made(t->context, t->type, 3, keys, 6, 1e30);
  hark_tensor cached_value = made(t->context, t->type, 3, values, 7, 1e30);
  hark_tensor partial = made(t->context, t->type, 3, partials, 8, 1e30);
  hark_tape *tape = NULL;
  assert_fine(t->context, hark_tape_create(t->context, &tape));
  for (int64_t first = 0; first < t->length; first += pass) {
    const int64_t count = t->length - first < pass ? t->length - first : pass;
    const hark_tensor query = rows_of(&t->query, first, count), key = rows_of(&t->key, first, count);
    const hark_tensor value = rows_of(&t->value, first, count);
    hark_tape_reset(tape);
    hark_tape_set_recording(tape, false);
    hark_value inputs[INPUTS] = {leaf(tape, &query),        leaf(tape, &key),     leaf(tape, &value),  leaf(tape, &cached_key),
                                 leaf(tape, &cached_value), leaf(tape, &partial), leaf(tape, &t->bias)};
    if (t->is->log_kernel) {
      const hark_hierarchical_means_attributes means = {
          .hierarchy_block = t->is->block, .levels = t->levels, .exact = t->is->coarse_query == HARK_COARSE_QUERY_EXACT};
      const hark_value table = leaf(tape, &t->log_kernel);
      assert_fine(t->context, hark_tape_apply(tape, &hark_op_hierarchical_means, &means, 1, &table, 0, &inputs[MEANS]));
    }
    const hark_hierarchical_decode_attributes attributes = {
        .heads = HEADS,
        .key_heads = KEY_HEADS,
        .hierarchy_block = t->is->block,
        .first_position = first,
        .partition = t->is->partition,
        .coarse_query = t->is->coarse_query,
        .kernel = t->is->kernel,
        .scale = t->is->kernel == HARK_KERNEL_RBF ? 1 / (1.25 * 1.25) : 1 / sqrt((double)t->is->head_dim)};
    hark_value y = 0;
    assert_fine(t->context, hark_tape_apply(tape, &hark_op_hierarchical_decode, &attributes, INPUTS, inputs, 0, &y));
    read_rows(t, tape, y, out + first * HEADS * t->is->value_dim);
  }
  hark_tape_destroy(&tape);
  hark_tensor_destroy(t->context, &cached_key);
  hark_tensor_destroy(t->context, &cached_value);
  hark_tensor_destroy(t->context, &partial);
}

static void rows_equal_those_of_the_whole_text(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65, 100, LARGEST}, passes[] = {1, 5, LARGEST};
  static double whole[LARGEST * HEADS * VALUE_MOST], parts[LARGEST * HEADS * VALUE_MOST];
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < CASES; c++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      text t = text_open(context, &cases[c], HARK_F64, lengths[l]);
      attend_to_all(&t, whole);
      for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        attend_by_passes(&t, passes[p], parts);
        for (int64_t i = 0; i < lengths[l] * HEADS * cases[c].value_dim; i++)
          if (!(fabs(parts[i] - whole[i]) <= WITHIN))
            fail_msg("%s, %d rows in passes of %d: row %d is %.17g, of the whole text %.17g", cases[c].name, (int)lengths[l],
                     (int)passes[p], (int)(i / (HEADS * cases[c].value_dim)), parts[i], whole[i]);
      }
      text_close(&t);
    }
  test_setup_close(context);
}

/* Logits of about 1e5 that differ by a few: the first feature of queries and keys makes them large, the others are as before. Keys are
 * multiples of 2^-10, so that the means of cells are exact in f32. */
static void make_large(text *t) {
  uint64_t state = 9;
  for (int64_t i = 0; i < hark_tensor_count(&t->query); i++)
    set(&t->query, i, i % t->is->head_dim == 0 ? 1e5 * sqrt(t->is->head_dim) : noise(&state));
  for (int64_t i = 0; i < hark_tensor_count(&t->key); i++)
    set(&t->key, i, i % t->is->head_dim == 0 ? 1 : round(2048 * noise(&state)) / 1024);
}

/* In f32 the highest of such logits is rounded by up to 1/256 where a cache keeps it; what is relative to it must not be. The sums and
 * values of seven levels are rounded once each, to 6e-8 of numbers up to 2: 2e-6 is twice as much. */
static void large_logits_keep_their_weights(void **state) {
  (void)state;
  static double whole[LARGEST * HEADS * VALUE_MOST], parts[LARGEST * HEADS * VALUE_MOST];
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < CASES; c++) {
    if (cases[c].kernel == HARK_KERNEL_RBF || cases[c].log_kernel) continue;
    text t = text_open(context, &cases[c], HARK_F32, LARGEST);
    make_large(&t);
    attend_to_all(&t, whole);
    attend_by_passes(&t, 1, parts);
    for (int64_t i = 0; i < LARGEST * HEADS * cases[c].value_dim; i++)
      if (!(fabs(parts[i] - whole[i]) <= 2e-6))
        fail_msg("%s: row %d is %.9g, of the whole text %.9g", cases[c].name, (int)(i / (HEADS * cases[c].value_dim)), parts[i], whole[i]);
    text_close(&t);
  }
  test_setup_close(context);
}

/* Every backend in f32 against the definition in f64 on the same numbers but for their rounding to f32. Weights are e^s of |s| <= 40, which
 * f32 has to 40 x 6e-8; those of a row sum to one, values are at most 2: 1e-5 is twice as much. One key is no number: the rows that
 * meet it are none either, and no other. */
static void backends_agree_with_the_definition(void **state) {
  (void)state;
  static const int64_t passes[] = {1, 7, LARGEST};
  static double expected[LARGEST * HEADS * VALUE_MOST], have[LARGEST * HEADS * VALUE_MOST];
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_readable(setups);
  hark_context *reference = test_reference_open();
  for (int setup = 0; setup < count; setup++) {
    hark_context *context = test_setup_open(&setups[setup], 2);
    for (size_t c = 0; c < CASES; c++)
      for (int none = 0; none < 2; none++)
        for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
          text t = text_open(reference, &cases[c], HARK_F64, LARGEST), narrow = text_open(context, &cases[c], HARK_F32, LARGEST);
          if (none != 0) set(&t.key, 70 * KEY_HEADS * cases[c].head_dim, NAN);
          if (none != 0) set(&narrow.key, 70 * KEY_HEADS * cases[c].head_dim, NAN);
          attend_by_passes(&t, passes[p], expected);
          attend_by_passes(&narrow, passes[p], have);
          for (int64_t i = 0; i < LARGEST * HEADS * cases[c].value_dim; i++)
            if (isnan(expected[i]) ? !isnan(have[i]) : !(fabs(have[i] - expected[i]) <= 1e-5))
              fail_msg("%s on %s:%s, passes of %d: row %d is %.9g, expected %.9g", cases[c].name, setups[setup].backend,
                       setups[setup].instruction_set, (int)passes[p], (int)(i / (HEADS * cases[c].value_dim)), have[i], expected[i]);
          text_close(&t);
          text_close(&narrow);
        }
    test_setup_close(context);
  }
  test_setup_close(reference);
}

static void wrong_calls_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const hark_hierarchical_decode_attributes good = {
      .heads = 2, .key_heads = 1, .hierarchy_block = 2, .first_position = 5, .coarse_query = HARK_COARSE_QUERY_FIRST, .scale = 1};
  const struct {
    const char *expected;
    hark_hierarchical_decode_attributes attributes;
    int64_t levels, ring, partial;
  } calls[] = {{NULL, good, 2, 4, 4},
               {"not a cache of 5 + 3 tokens", good, 1, 4, 4},
               {"cached_key has", good, 2, 8, 4},
               {"partial has", good, 2, 4, 3},
               {"coarse_query is 1", {2, 1, 2, 0, 0, HARK_COARSE_QUERY_MEAN, 0, 1}, 2, 4, 4},
               {"hierarchy_block is 3", {2, 1, 3, 0, 0, HARK_COARSE_QUERY_FIRST, 0, 1}, 2, 4, 4},
               {"heads is 3", {3, 2, 2, 0, 0, HARK_COARSE_QUERY_FIRST, 0, 1}, 2, 4, 4},
               {"first_position is -1", {2, 1, 2, -1, 0, HARK_COARSE_QUERY_FIRST, 0, 1}, 2, 4, 4},
               {"scale is 0", {2, 1, 2, 0, 0, HARK_COARSE_QUERY_FIRST, HARK_KERNEL_RBF, 0}, 2, 4, 4}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const int64_t shapes[6][3] = {{1, 3, 6},
                                  {1, 3, 3},
                                  {1, 3, 2},
                                  {calls[i].levels, calls[i].ring, 3},
                                  {calls[i].levels, 4, 2},
                                  {calls[i].levels, 2, calls[i].partial}};
    hark_tensor inputs[6];
    hark_inferred inferred = {0};
    for (int k = 0; k < 6; k++) assert_fine(context, hark_tensor_describe(context, HARK_F64, 3, shapes[k], &inputs[k]));
    const hark_status status = hark_op_hierarchical_decode.infer(context, &calls[i].attributes, inputs, 6, &inferred);
    if (calls[i].expected == NULL) {
      assert_fine(context, status);
    } else if (status == HARK_OK || strstr(hark_context_message(context), calls[i].expected) == NULL) {
      fail_msg("expected \"...%s...\", got %s: %s", calls[i].expected, hark_status_name(status), hark_context_message(context));
    }
  }
  test_setup_close(context);
}

/* Keys about 64, multiples of 1/8 so that the means of cells are exact in f32, and queries about `at`. */
static void displace(text *t, double at) {
  for (int64_t i = 0; i < hark_tensor_count(&t->key); i++) {
    const double key = t->type == HARK_F64 ? ((double *)t->key.data)[i] : (double)((float *)t->key.data)[i];
    set(&t->key, i, 64 + round(8 * key) / 8);
  }
  for (int64_t i = 0; i < hark_tensor_count(&t->query); i++) {
    const double query = t->type == HARK_F64 ? ((double *)t->query.data)[i] : (double)((float *)t->query.data)[i];
    set(&t->query, i, (double)(float)((double)(float)query + at));
  }
}

/* The Gaussian kernel of rows that lie far from the origin, and of queries far from all keys, whose logits of -1e6 differ by a few. */
static void distances_alone_count(void **state) {
  (void)state;
  static const double places[] = {64, 62, -1000, 900};
  static double expected[LARGEST * HEADS * VALUE_MOST], have[LARGEST * HEADS * VALUE_MOST];
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_readable(setups);
  hark_context *reference = test_reference_open();
  for (int setup = 0; setup < count; setup++) {
    hark_context *context = test_setup_open(&setups[setup], 2);
    for (size_t c = 0; c < CASES; c++)
      for (size_t at = 0; at < sizeof places / sizeof *places && cases[c].kernel == HARK_KERNEL_RBF; at++) {
        text t = text_open(reference, &cases[c], HARK_F64, LARGEST), narrow = text_open(context, &cases[c], HARK_F32, LARGEST);
        displace(&t, places[at]);
        displace(&narrow, places[at]);
        attend_to_all(&t, expected);
        attend_by_passes(&narrow, 7, have);
        for (int64_t i = 0; i < LARGEST * HEADS * cases[c].value_dim; i++)
          if (!(fabs(have[i] - expected[i]) <= 2e-5))
            fail_msg("%s, %s: queries about %g: row %d is %.9g, expected %.9g", setups[setup].backend, cases[c].name, places[at],
                     (int)(i / (HEADS * cases[c].value_dim)), have[i], expected[i]);
        text_close(&t);
        text_close(&narrow);
      }
    test_setup_close(context);
  }
  test_setup_close(reference);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_equal_those_of_the_whole_text),
                                     cmocka_unit_test(large_logits_keep_their_weights),
                                     cmocka_unit_test(backends_agree_with_the_definition), cmocka_unit_test(distances_alone_count),
                                     cmocka_unit_test(wrong_calls_are_refused)};
  return cmocka_run_group_tests_name("hierarchical_decode", tests, NULL, NULL);
}
