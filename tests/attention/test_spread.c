/* test_spread.c - attention over rows that are spread over processes: the bits of one process, and the bytes that are exchanged. Threads
 * are in the place of processes (support/train/group_threads.h).
 *
 *     test_spread                      all
 *     test_spread 'CASE' RANKS         one case (attention_case.h)
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/spread.h"
#include "core/core.h"
#include "support/attention_run.h"
#include "support/cmocka_all.h"
#include "support/train/group_threads.h"

#define LIMIT_SECONDS 60
#define MOST_DISTANCES (1 << 18)

/* One sequence of a case in all processes; results are gathered in its arrays. */
typedef struct spread_case {
  const attention_machine *machine;
  const attention_problem *problem;
  int64_t first[TEST_MOST_RANKS + 1];
  attention_results *results;
  double *tables[TEST_MOST_RANKS][2]; /* gradients of the tables, by process */
  uint64_t sent[TEST_MOST_RANKS][2];  /* forward, backward */
  long allocations;                   /* that succeed in rank 1; -1: all */
} spread_case;

/* Rows of a contiguous array [a, b, rows, c], a rank's: [a, b, rows of the rank, c]. */
typedef struct slice {
  int64_t outer, rows, inner, first, count;
} slice;

static slice slice_of(const spread_case *c, const int64_t shape[4], int rank) {
  return (slice){shape[0] * shape[1], shape[2], shape[3], c->first[rank], c->first[rank + 1] - c->first[rank]};
}

static int64_t whole_index(const slice *s, int64_t i) {
  const int64_t inner = i % s->inner, row = i / s->inner % s->count, outer = i / s->inner / s->count;
  return (outer * s->rows + s->first + row) * s->inner + inner;
}

static hark_tensor own_tensor(const slice *s, const int64_t shape[4], int rank_of_tensor, const double *from) {
  int64_t own[4] = {shape[0], shape[1], s->count, shape[3]};
  hark_tensor tensor = {0};
  float *data = malloc((size_t)(s->outer * s->count * s->inner + 1) * sizeof *data);
  if (data == NULL) exit(EXIT_FAILURE);
  for (int64_t i = 0; i < s->outer * s->count * s->inner; i++) data[i] = (float)from[whole_index(s, i)];
  assert_int_equal(hark_tensor_wrap(NULL, data, HARK_F32, rank_of_tensor, own, NULL, &tensor), HARK_OK);
  return tensor;
}

static hark_tensor table_of(const attention_numbers *numbers) {
  hark_tensor tensor = {0};
  float *data = malloc((size_t)(numbers->count + 1) * sizeof *data);
  if (data == NULL) exit(EXIT_FAILURE);
  for (int64_t i = 0; i < numbers->count; i++) data[i] = (float)numbers->data[i];
  assert_int_equal(hark_tensor_wrap(NULL, data, HARK_F32, numbers->rank, numbers->shape, NULL, &tensor), HARK_OK);
  return tensor;
}

static const attention_array INPUTS[] = {ARRAY_QUERY, ARRAY_KEY, ARRAY_VALUE, ARRAY_DOUT};
static const attention_array RESULTS[] = {ARRAY_OUT, ARRAY_LSE, ARRAY_DQUERY, ARRAY_DKEY, ARRAY_DVALUE};
static const attention_array SHAPES[] = {ARRAY_DOUT, ARRAY_DOUT, ARRAY_QUERY, ARRAY_KEY, ARRAY_VALUE};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void shape_of_result(const attention_problem *p, size_t r, int64_t shape[4]) {
  memcpy(shape, p->array[SHAPES[r]].shape, 4 * sizeof *shape);
  if (RESULTS[r] == ARRAY_LSE) shape[3] = 1;
}

/* Bytes of masks of the rank's rows, [1 or B, 1, 1, rows] or [B, rows]. */
static hark_tensor own_mask(const spread_case *c, const uint8_t *from, int64_t items, bool queries, int rank) {
  const int64_t rows = c->problem->is.queries, count = c->first[rank + 1] - c->first[rank];
  const int64_t shape[] = {items, queries ? count : 1, 1, count};
  hark_tensor tensor = {0};
  if (from == NULL) return tensor;
  uint8_t *data = malloc((size_t)(items * count + 1));
  if (data == NULL) exit(EXIT_FAILURE);
  for (int64_t i = 0; i < items; i++)
    if (count > 0) memcpy(data + i * count, from + i * rows + c->first[rank], (size_t)count);
  assert_int_equal(hark_tensor_wrap(NULL, data, HARK_U8, queries ? 2 : 4, shape, NULL, &tensor), HARK_OK);
  return tensor;
}

static hark_attention_args own_args(const spread_case *c, int rank) {
  const attention_problem *p = c->problem;
  hark_attention_args args = {.struct_size = sizeof args, .dropout = p->dropout, .accumulate = p->accumulate};
  hark_tensor *const inputs[] = {&args.query, &args.key, &args.value, &args.dout};
  hark_tensor *const results[] = {&args.out, &args.log_sum_exp, &args.dquery, &args.dkey, &args.dvalue};
  for (size_t i = 0; i < COUNT(INPUTS); i++) {
    const attention_numbers *numbers = &p->array[INPUTS[i]];
    const slice s = slice_of(c, numbers->shape, rank);
    *inputs[i] = own_tensor(&s, numbers->shape, 4, numbers->data);
  }
  for (size_t i = 0; i < COUNT(RESULTS); i++) {
    int64_t shape[4];
    shape_of_result(p, i, shape);
    const slice s = slice_of(c, shape, rank);
    *results[i] = own_tensor(&s, shape, RESULTS[i] == ARRAY_LSE ? 3 : 4, c->results->data[RESULTS[i]]);
  }
  args.mask = own_mask(c, p->mask, p->mask_shape[0], false, rank);
  args.query_mask = own_mask(c, p->query_mask, p->is.batch, true, rank);
  if (p->array[ARRAY_LOG_KERNEL].count > 0) args.log_kernel = table_of(&p->array[ARRAY_LOG_KERNEL]);
  if (p->array[ARRAY_HIERARCHICAL_BIAS].count > 0) args.hierarchical_bias = table_of(&p->array[ARRAY_HIERARCHICAL_BIAS]);
  return args;
}

static void keep_results(const spread_case *c, int rank, const hark_attention_args *args) {
  const hark_tensor *const results[] = {&args->out, &args->log_sum_exp, &args->dquery, &args->dkey, &args->dvalue};
  for (size_t r = 0; r < COUNT(RESULTS); r++) {
    int64_t shape[4];
    shape_of_result(c->problem, r, shape);
    const slice s = slice_of(c, shape, rank);
    for (int64_t i = 0; i < s.outer * s.count * s.inner; i++)
      c->results->data[RESULTS[r]][whole_index(&s, i)] = (double)((const float *)results[r]->data)[i];
  }
}

static void keep_table(const hark_tensor *gradient, double **to) {
  const int64_t count = gradient->type == HARK_NONE ? 0 : hark_tensor_count(gradient);
  *to = calloc((size_t)count + 1, sizeof **to);
  if (*to == NULL) exit(EXIT_FAILURE);
  for (int64_t i = 0; i < count; i++) (*to)[i] = (double)((const float *)gradient->data)[i];
}

static void free_args(hark_attention_args *args) {
  hark_tensor *const all[] = {&args->query,
                              &args->key,
                              &args->value,
                              &args->out,
                              &args->log_sum_exp,
                              &args->dout,
                              &args->dquery,
                              &args->dkey,
                              &args->dvalue,
                              &args->mask,
                              &args->query_mask,
                              &args->log_kernel,
                              &args->hierarchical_bias,
                              &args->dlog_kernel,
                              &args->dhierarchical_bias};
  for (size_t i = 0; i < COUNT(all); i++) free(all[i]->data);
}

static hark_status run_both(hark_context *context, const hark_attention_plan *plan, hark_attention_args *args, const hark_spread *spread,
                            uint64_t sent[2]) {
  const uint64_t before = spread->group->sent;
  HARK_TRY(hark_attention_spread_forward(context, plan, args, spread));
  sent[0] = spread->group->sent - before;
  HARK_TRY(hark_attention_spread_backward(context, plan, args, spread));
  sent[1] = spread->group->sent - before - sent[0];
  return HARK_OK;
}

/* An allocator that has memory for some blocks only. */
static void *allocate_few(void *user, size_t bytes, size_t alignment) {
  long *left = user;
  return (*left)-- > 0 ? aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment) : NULL;
}
static void release_few(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  free(memory);
}

static hark_status live(hark_context *outer, hark_group *group, void *user) {
  spread_case *c = user;
  const int rank = hark_group_rank(group);
  const attention_problem *p = c->problem;
  const hark_attention_desc desc = attention_problem_desc(p, HARK_F32);
  hark_context *context = attention_machine_open(c->machine, p->is.threads);
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_args args = own_args(c, rank);
  if (args.log_kernel.type != HARK_NONE && !p->is.is_window) args.dlog_kernel = table_of(&p->array[ARRAY_LOG_KERNEL]);
  if (args.hierarchical_bias.type != HARK_NONE) args.dhierarchical_bias = table_of(&p->array[ARRAY_HIERARCHICAL_BIAS]);
  args.accumulate &= (unsigned)~(HARK_ACCUMULATE_LOG_KERNEL | HARK_ACCUMULATE_HIERARCHICAL_BIAS);
  const hark_spread spread = {.group = group, .total = p->is.queries, .first = c->first};
  const hark_allocator allocator = context->allocator;
  const bool lacks = c->allocations >= 0 && rank == 1;
  long left = c->allocations;
  if (lacks) context->allocator = (hark_allocator){allocate_few, release_few, &left};
  const hark_status status = run_both(context, plan, &args, &spread, c->sent[rank]);
  hark_group_release(context, group);
  context->allocator = allocator;
  if (status == HARK_OK) {
    keep_results(c, rank, &args);
    keep_table(&args.dlog_kernel, &c->tables[rank][0]);
    keep_table(&args.dhierarchical_bias, &c->tables[rank][1]);
  } else {
    (void)hark_fail(outer, status, "%s", hark_context_message(context));
  }
  free_args(&args);
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  return status;
}

/* Results before a run: what is accumulated, or NaN. */
static void begin_results(const attention_problem *p, const attention_results *like, attention_results *out) {
  memset(out, 0, sizeof *out);
  for (size_t r = 0; r < COUNT(RESULTS); r++) {
    const attention_array array = RESULTS[r];
    out->count[array] = like->count[array];
    out->data[array] = malloc((size_t)out->count[array] * sizeof(double));
    if (out->data[array] == NULL) exit(EXIT_FAILURE);
    for (int64_t i = 0; i < out->count[array]; i++)
      out->data[array][i] = p->accumulate & attention_accumulate_bit(array) ? attention_before(i) : NAN;
  }
}

/* The sum of the processes' gradients of a table is that of one process, up to rounding. */
static void check_table(const spread_case *c, int size, int table, attention_array array, const attention_results *one) {
  double largest = 0;
  for (int64_t i = 0; i < one->count[array]; i++) largest = fmax(largest, fabs(one->data[array][i]));
  for (int64_t i = 0; i < one->count[array]; i++) {
    double sum = c->problem->accumulate & attention_accumulate_bit(array) ? attention_before(i) : 0;
    for (int rank = 0; rank < size; rank++) sum += c->tables[rank][table][i];
    if (!(fabs(sum - one->data[array][i]) <= 1e-5 * largest))
      fail_msg("'%s', %d ranks: %s[%" PRId64 "] is %.9g, expected %.9g", c->problem->is.text, size, attention_array_names[array], i, sum,
               one->data[array][i]);
  }
}

static void check_against(spread_case *c, int size, const attention_results *one) {
  char what[64];
  attention_results spread;
  begin_results(c->problem, one, &spread);
  c->results = &spread;
  test_group_run(size, LIMIT_SECONDS, live, c, NULL, NULL);
  (void)snprintf(what, sizeof what, "%s, %d ranks", c->machine->name, size);
  for (size_t r = 0; r < COUNT(RESULTS); r++) attention_same_bits(what, c->problem->is.text, RESULTS[r], one, &spread);
  if (!c->problem->is.is_window) check_table(c, size, 0, ARRAY_DLOG_KERNEL, one); /* refused */
  check_table(c, size, 1, ARRAY_DHIERARCHICAL_BIAS, one);
  for (int rank = 0; rank < size; rank++)
    for (int table = 0; table < 2; table++) free(c->tables[rank][table]);
  attention_results_free(&spread);
}

/* The unit of a case. */
static int64_t unit_of(const attention_machine *machine, const attention_problem *p) {
  hark_context *context = attention_machine_open(machine, 1);
  const hark_attention_desc desc = attention_problem_desc(p, HARK_F32);
  hark_attention_plan *plan;
  int64_t unit;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  if (hark_attention_spread_unit(context, plan, p->is.queries, &unit) != HARK_OK) fail_msg("%s", hark_context_message(context));
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  return unit;
}

/* Part r is r + 1 times as long as the first one, as far as units allow; with `holes` some processes have no rows. */
static void divide_unevenly(int64_t unit, int64_t total, int size, bool holes, int64_t *first) {
  const int64_t units = (total + unit - 1) / unit, shares = (int64_t)size * (size + 1) / 2;
  for (int rank = 0; rank < size; rank++) {
    const int64_t at = units * ((int64_t)rank * (rank + 1) / 2) / shares * unit;
    first[rank] = at < total ? at : total;
    if (holes && rank > 0 && rank % 2 == 1) first[rank] = first[rank - 1];
  }
  first[size] = total;
}

/* On a machine that may not be there. */
static void check_problem(const attention_problem *p, const attention_machine *machine, const int *sizes, int count) {
  attention_results one;
  if (!attention_run_on(machine, p, &one)) return;
  const int64_t unit = unit_of(machine, p);
  for (int s = 0; s < count; s++)
    for (int way = 0; way < 3; way++) {
      spread_case c = {.machine = machine, .problem = p, .allocations = -1};
      if (way == 0)
        hark_attention_spread_divide(unit, p->is.queries, sizes[s], c.first);
      else
        divide_unevenly(unit, p->is.queries, sizes[s], way == 2, c.first);
      if (sizes[s] == 1 && way > 0) continue;
      check_against(&c, sizes[s], &one);
    }
  attention_results_free(&one);
}

static void check_case(const char *text, const attention_machine *machine, const int *sizes, int count) {
  attention_problem p;
  attention_problem_make(text, &p);
  check_problem(&p, machine, sizes, count);
  attention_problem_free(&p);
}

static const attention_machine *machine_named(const char *name) {
  for (int m = 0; m < attention_machine_count; m++)
    if (strcmp(attention_machines[m].name, name) == 0) return &attention_machines[m];
  return NULL;
}

static void check_cases(const char *const *cases, size_t count, const char *const *machines, size_t machine_count) {
  static const int sizes[] = {1, 2, 3, 5};
  for (size_t i = 0; i < count; i++)
    for (size_t m = 0; m < machine_count; m++) check_case(cases[i], machine_named(machines[m]), sizes, 4);
}

/* Every process has all rows. */
static void test_short(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:B2,H4,K2,L64,D8,N16",
      "hierarchical:B2,H2,L131,D7,V5,N8,causal,accumulate",
      "hierarchical:B1,H2,L700,D16,N16,first,sibling,mask,qmask",
      "hierarchical:B1,H2,L333,D8,N8,exact,rbf",
      "hierarchical:B1,H2,L300,D8,N8,causal,kernel,hbias,dropout=0.2",
      "window:B2,H4,K2,L200,S200,D8,W17,causal",
      "dense:B1,H2,L65,S65,D8,causal",
  };
  static const char *const machines[] = {"generic", "avx2", "reference-f32"};
  check_cases(cases, COUNT(cases), machines, COUNT(machines));
}

/* In windows: halos and coarse tokens. */
static void test_long(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:B1,H1,L16384,D4,N16",
      "hierarchical:B2,H2,K1,L9003,D8,V5,N16,causal",
      "hierarchical:B1,H1,L20000,D4,N8,first,threads=3",
      "hierarchical:B1,H2,L17001,D3,N4,sibling,mask,qmask",
      "hierarchical:B1,H4,K2,L12289,D16,N64,causal,sibling,accumulate",
      "hierarchical:B1,H1,L12288,D4,N32,rbf,first,mask",
      "hierarchical:B1,H2,K1,L16390,D4,N2,rbf,accumulate",
      "hierarchical:B1,H1,L19999,D16,N16,causal,dropout=0.2,large",
      "hierarchical:B2,H2,L13000,D4,N16,kernel,hbias",
      "hierarchical:B2,H2,L3000,D4,N16,kernel,directed,hbias",
      "hierarchical:B1,H2,L9999,D4,N8,causal,shared,hshared,hiding",
      "hierarchical:B1,H2,L12300,D4,N16,rbf,large",
      "hierarchical:B2,H2,L9001,D4,N8,causal,rbf,large,hbias",
  };
  static const char *const machines[] = {"generic"};
  check_cases(cases, COUNT(cases), machines, COUNT(machines));
}

static void test_long_vectors(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:B1,H2,K1,L12345,D16,N16,causal",
      "hierarchical:B1,H1,L16999,D16,N8,rbf,mask",
      "hierarchical:B1,H1,L12301,D16,N4,first,accumulate",
  };
  static const char *const machines[] = {"avx2", "avx512", "neon"};
  check_cases(cases, COUNT(cases), machines, COUNT(machines));
}

/* Numbers that are not finite in the rows of one process, of which all must know. */
static void test_not_finite(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B1,H1,L12300,D4,N16", "hierarchical:B1,H1,L12300,D4,N8,causal,rbf",
                                      "window:B1,H1,L300,S300,D8,W20,causal"};
  static const int sizes[] = {3};
  for (size_t i = 0; i < COUNT(cases); i++) {
    attention_problem p;
    attention_problem_make(cases[i], &p);
    const int64_t at = p.is.queries * 3 / 4 * 4;
    p.array[ARRAY_VALUE].data[at] = NAN;
    p.array[ARRAY_KEY].data[at + 1000] = INFINITY;
    p.array[ARRAY_DOUT].data[at - 333] = -INFINITY;
    check_problem(&p, machine_named("generic"), sizes, 1);
    attention_problem_free(&p);
  }
}

/* Log-sum-exps far from 0 in the rows of one process. */
static void test_far_in_one(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B1,H1,L12300,D4,N16", "hierarchical:B1,H1,L12300,D4,N8,causal,rbf",
                                      "window:B1,H1,L600,S600,D8,W20,causal", "window:B1,H1,L600,S600,D8,W20,rbf"};
  static const int sizes[] = {3};
  for (size_t i = 0; i < COUNT(cases); i++) {
    attention_problem p;
    attention_problem_make(cases[i], &p);
    for (int64_t n = 0; n < p.array[ARRAY_QUERY].count / 4; n++) p.array[ARRAY_QUERY].data[n] *= 4096;
    check_problem(&p, machine_named("generic"), sizes, 1);
    attention_problem_free(&p);
  }
}

/* ---- windows of structure window ---- */

static void test_window(void **state) {
  (void)state;
  static const char *const cases[] = {
      "window:B1,H2,L700,S700,D8,W5",         "window:B2,H4,K2,L1027,S1027,D16,V7,W64,causal,accumulate",
      "window:B1,H1,L1500,S1500,D8,W100,rbf", "window:B1,H1,L1283,S1283,D8,W200,causal,dropout=0.2",
      "window:B3,H6,L515,S515,D8,W33,large",  "window:B1,H2,L900,S900,D16,W150,causal,bf16",

  };
  static const char *const machines[] = {"generic", "avx2", "avx512"};
  check_cases(cases, COUNT(cases), machines, COUNT(machines));
}

/* ---- bytes ---- */

#define BYTES_RANKS 4
#define BLOCK INT64_C(16)
#define WIDTH 64

typedef struct byte_case {
  int64_t total, first[BYTES_RANKS + 1];
  uint64_t sent[BYTES_RANKS][2];
} byte_case;

static hark_tensor numbers(int rank, int64_t rows, int64_t width) {
  const int64_t shape[] = {1, 1, rows, width};
  hark_tensor tensor = {0};
  float *data = malloc((size_t)(rows * width) * sizeof *data);
  if (data == NULL) exit(EXIT_FAILURE);
  for (int64_t i = 0; i < rows * width; i++) data[i] = (float)(i % 13 - 6) / 64;
  assert_int_equal(hark_tensor_wrap(NULL, data, HARK_F32, rank, shape, NULL, &tensor), HARK_OK);
  return tensor;
}

static hark_status send_bytes(hark_context *context, hark_group *group, void *user) {
  byte_case *c = user;
  const int rank = hark_group_rank(group);
  const int64_t rows = c->first[rank + 1] - c->first[rank];
  hark_attention_desc desc = hark_attention_desc_default();
  desc.structure = HARK_STRUCTURE_HIERARCHICAL;
  desc.hierarchy_block = BLOCK;
  desc.batch = desc.heads = 1;
  desc.query_length = desc.key_length = c->total;
  desc.head_dim = WIDTH;
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_args args = {.struct_size = sizeof args};
  hark_tensor *const rows_of[] = {&args.query, &args.key, &args.value, &args.out, &args.dout, &args.dquery, &args.dkey, &args.dvalue};
  for (size_t i = 0; i < COUNT(rows_of); i++) *rows_of[i] = numbers(4, rows, WIDTH);
  args.log_sum_exp = numbers(3, rows, 1);
  const hark_spread spread = {.group = group, .total = c->total, .first = c->first};
  const hark_status status = run_both(context, plan, &args, &spread, c->sent[rank]);
  free_args(&args);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

/* log2 of how many parts of `tokens` a rank's rows have: the highest level on which boundaries begin one. */
static int64_t shared_level(int64_t rows, int64_t tokens) {
  int64_t level = 0;
  while (rows % (tokens << (level + 1)) == 0) level++;
  return level;
}

/* Floats of a process with `sides` neighbours (hierarchical_spread.c). Windows replace levels 1 and 2. */
static int64_t forward_floats(int64_t rows, int64_t sides) {
  const int64_t shared = shared_level(rows, 64), above = rows >> (shared + 1);
  const int64_t key = 2 * WIDTH + 1, query = WIDTH + 1;
  return sides * (4 * BLOCK + (shared - 2) * BLOCK) * key + (BYTES_RANKS - 1) * above * (key + query);
}
static int64_t backward_floats(int64_t rows, int64_t sides) {
  const int64_t shared = shared_level(rows, 512), above = rows >> (shared + 1);
  const int64_t key = 2 * WIDTH + 1, query = 2 * WIDTH + 3;
  const int64_t gradients = (2 * 8 * BLOCK + (shared - 2) * 2 * 2 * BLOCK) * 2 * WIDTH;
  return sides * ((8 * BLOCK + (shared - 2) * 2 * BLOCK) * key + gradients) + (BYTES_RANKS - 1) * above * (key + query);
}

/* An agreement's messages, and in the backward a byte to every process. */
#define AGREEMENT_BYTES 4096

static void test_bytes(void **state) {
  (void)state;
  static const int64_t lengths[] = {16384, 65536};
  for (size_t i = 0; i < COUNT(lengths); i++) {
    byte_case c = {.total = lengths[i]};
    const int64_t rows = c.total / BYTES_RANKS, all = 4 * rows * 2 * WIDTH * (BYTES_RANKS - 1);
    hark_attention_spread_divide(4096, c.total, BYTES_RANKS, c.first);
    test_group_run(BYTES_RANKS, LIMIT_SECONDS, send_bytes, &c, NULL, NULL);
    for (int rank = 0; rank < BYTES_RANKS; rank++) {
      const int64_t sides = rank == 0 || rank == BYTES_RANKS - 1 ? 1 : 2, sent = (int64_t)c.sent[rank][0], back = (int64_t)c.sent[rank][1];
      assert_int_equal(c.first[rank], rank * rows);
      print_message("%" PRId64 " rows, rank %d: forward %" PRId64 " bytes, %.2f %% of passing all keys and values; backward %" PRId64
                    ", %.2f %%\n",
                    c.total, rank, sent, 100.0 * (double)sent / (double)all, back, 100.0 * (double)back / (double)all);
      assert_in_range(sent, 4 * forward_floats(rows, sides), 4 * forward_floats(rows, sides) + AGREEMENT_BYTES);
      assert_in_range(back, 4 * backward_floats(rows, sides), 4 * backward_floats(rows, sides) + AGREEMENT_BYTES);
      if (c.total == 65536) assert_in_range(sent * 50, 1, all);
    }
  }
}

/* ---- refusals ---- */

static hark_status refuse(hark_context *context, hark_group *group, void *user) {
  const attention_problem *p = user;
  hark_attention_desc desc = attention_problem_desc(p, HARK_F32);
  const int size = hark_group_size(group), rank = hark_group_rank(group);
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  spread_case c = {.problem = p, .allocations = -1};
  for (int r = 0; r <= size; r++) c.first[r] = p->is.queries * r / size; /* no multiples of the unit */
  attention_results results;
  memset(&results, 0, sizeof results);
  for (size_t r = 0; r < COUNT(RESULTS); r++) {
    int64_t shape[4];
    shape_of_result(p, r, shape);
    results.data[RESULTS[r]] = calloc((size_t)(shape[0] * shape[1] * shape[2] * shape[3]), sizeof(double));
  }
  c.results = &results;
  hark_attention_args args = own_args(&c, rank);
  const hark_spread spread = {.group = group, .total = p->is.queries, .first = c.first};
  const hark_status status = hark_attention_spread_forward(context, plan, &args, &spread);
  free_args(&args);
  attention_results_free(&results);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

static void check_refusal(const char *text, hark_status status, const char *part) {
  attention_problem p;
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  attention_problem_make(text, &p);
  test_group_run(3, LIMIT_SECONDS, refuse, &p, statuses, messages);
  for (int rank = 0; rank < 3; rank++) {
    assert_int_equal(statuses[rank], status);
    if (strstr(messages[rank], part) == NULL) fail_msg("'%s': '%s' does not contain '%s'", text, messages[rank], part);
  }
  attention_problem_free(&p);
}

static void test_refusals(void **state) {
  (void)state;
  check_refusal("hierarchical:B1,H1,L12288,D4,N16,threads=1", HARK_OK, "");
  check_refusal("hierarchical:B1,H1,L12300,D4,N16,threads=1", HARK_INVALID_ARGUMENT, "expected multiples of 4096");
  check_refusal("hierarchical:B1,H1,L12288,D4,N16,exact,threads=1", HARK_UNSUPPORTED, "coarse_query is exact");
  check_refusal("hierarchical:B1,H1,L12288,D4,N6,threads=1", HARK_UNSUPPORTED, "hierarchy_block");
  check_refusal("hierarchical:B1,H1,L12288,D1,N16,linear,threads=1", HARK_UNSUPPORTED, "interpolation is not constant");
  check_refusal("hierarchical:B1,H1,L12288,D1,N16,grid=128,threads=1", HARK_UNSUPPORTED, "grid_columns is 128");
  check_refusal("window:B1,H1,L300,S300,D4,W5,bias,threads=1", HARK_UNSUPPORTED, "has_bias");
  check_refusal("dense:B1,H1,L9000,S9000,D1,threads=1", HARK_UNSUPPORTED, "structure is dense");
}

/* All ranks return the error of the one that lacks memory, whichever block it is. */
static void check_lack(const char *text) {
  attention_problem p;
  attention_results one;
  attention_problem_make(text, &p);
  const attention_machine *machine = machine_named("generic");
  assert_true(attention_run_on(machine, &p, &one));
  int lacking = 0;
  for (long n = 0, done = 0; !done; n++) {
    spread_case c = {.machine = machine, .problem = &p, .allocations = n};
    hark_status statuses[3];
    attention_results results;
    hark_attention_spread_divide(unit_of(machine, &p), p.is.queries, 3, c.first);
    begin_results(&p, &one, &results);
    c.results = &results;
    test_group_run(3, LIMIT_SECONDS, live, &c, statuses, NULL);
    for (int rank = 1; rank < 3; rank++) assert_int_equal(statuses[rank], statuses[0]);
    done = statuses[0] == HARK_OK;
    if (!done) assert_int_equal(statuses[0], HARK_OUT_OF_MEMORY);
    lacking += !done;
    for (int rank = 0; rank < 3; rank++)
      for (int table = 0; table < 2; table++) free(c.tables[rank][table]);
    attention_results_free(&results);
  }
  assert_in_range(lacking, 3, 20);
  attention_results_free(&one);
  attention_problem_free(&p);
}

static void test_lack_of_memory(void **state) {
  (void)state;
  check_lack("hierarchical:B1,H1,L12288,D4,N16,threads=1");
  check_lack("window:B1,H1,L200,S200,D4,W9,threads=1");
}

/* ---- division, and no group ---- */

static void test_division(void **state) {
  (void)state;
  static const int64_t units[] = {1, 64, 4096}, totals[] = {1, 63, 4096, 9000, 65536, 100000, 1 << 20};
  for (size_t u = 0; u < COUNT(units); u++)
    for (size_t t = 0; t < COUNT(totals); t++)
      for (int size = 1; size <= 7; size++) {
        int64_t first[8], longest = 0;
        hark_attention_spread_divide(units[u], totals[t], size, first);
        assert_int_equal(first[0], 0);
        assert_int_equal(first[size], totals[t]);
        for (int rank = 0; rank < size; rank++) {
          assert_true(first[rank] <= first[rank + 1]);
          assert_true(first[rank] == totals[t] || first[rank] % units[u] == 0);
          longest = first[rank + 1] - first[rank] > longest ? first[rank + 1] - first[rank] : longest;
        }
        assert_true(8 * longest * size <= 9 * totals[t] + 8 * units[u] * size); /* an eighth more than equal parts, and a unit */
      }
}

static void test_no_group(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B1,H2,K1,L8200,D4,N8,causal", "window:B1,H2,L150,S150,D8,W9"};
  for (size_t i = 0; i < COUNT(cases); i++) {
    attention_problem p;
    attention_results one, results;
    attention_problem_make(cases[i], &p);
    const attention_machine *machine = machine_named("generic");
    assert_true(attention_run_on(machine, &p, &one));
    begin_results(&p, &one, &results);
    spread_case c = {.machine = machine, .problem = &p, .first = {0, p.is.queries}, .results = &results, .allocations = -1};
    hark_context *context = attention_machine_open(machine, 2);
    const hark_attention_desc desc = attention_problem_desc(&p, HARK_F32);
    hark_attention_plan *plan;
    assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
    hark_attention_args args = own_args(&c, 0);
    const hark_spread spread = {.group = NULL, .total = p.is.queries, .first = c.first};
    assert_int_equal(hark_attention_spread_forward(context, plan, &args, &spread), HARK_OK);
    assert_int_equal(hark_attention_spread_backward(context, plan, &args, &spread), HARK_OK);
    keep_results(&c, 0, &args);
    for (size_t r = 0; r < COUNT(RESULTS); r++) attention_same_bits("no group", cases[i], RESULTS[r], &one, &results);
    free_args(&args);
    hark_attention_plan_destroy(context, &plan);
    hark_context_destroy(&context);
    attention_results_free(&one);
    attention_results_free(&results);
    attention_problem_free(&p);
  }
}

int main(int argc, char **argv) {
  if (argc == 3) {
    const int size = (int)strtol(argv[2], NULL, 10);
    check_case(argv[1], machine_named("generic"), &size, 1);
    return 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_short),          cmocka_unit_test(test_long),     cmocka_unit_test(test_long_vectors),
      cmocka_unit_test(test_window),         cmocka_unit_test(test_bytes),    cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_lack_of_memory), cmocka_unit_test(test_division), cmocka_unit_test(test_not_finite),
      cmocka_unit_test(test_far_in_one),     cmocka_unit_test(test_no_group),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
