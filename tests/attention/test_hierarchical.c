/* test_hierarchical.c - hierarchical attention: against its definition, and facts that hold of any hierarchy.
 *
 *     test_hierarchical                               all
 *     test_hierarchical 'hierarchical:L65,D7,N4'      these cases alone, on every machine (attention_case.h has the words)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/hierarchies.h"
#include "backend/hierarchy.h"
#include "support/attention_run.h"

/* Every length from 1 to 70, blocks of 2 to 16, kinds and further options taking turns. */
static void test_lengths(void **state) {
  (void)state;
  static const char *const options[] = {"", ",hbias", ",kernel", ",rbf", ",dropout=0.25", ",mask", ",qmask", ",hshared,shared"};
  static const int blocks[] = {2, 4, 6, 8, 10, 16};
  int failures = 0;
  for (int length = 1; length <= 70; length++)
    for (int round = 0; round < 6; round++) {
      char text[ATTENTION_CASE_BYTES];
      snprintf(text, sizeof text, "hierarchical:B1,H2,K1,L%d,D%d,V%d,N%d%s%s,seed=%d", length, 1 + (length * 5) % 19, 1 + (length * 3) % 7,
               blocks[(length / 2 + round) % 6], hierarchy_kinds[(length + round * 5) % (int)HIERARCHY_KINDS],
               options[(length * 3 + round) % 8], length);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

/* Lengths beside powers of two, where the last block is full, has one row, or lacks one. */
static void test_block_edges(void **state) {
  (void)state;
  static const int lengths[] = {31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
  int failures = 0;
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
    for (size_t k = 0; k < HIERARCHY_KINDS; k++) {
      char text[ATTENTION_CASE_BYTES];
      snprintf(text, sizeof text, "hierarchical:L%d,D8,N%d%s", lengths[i], k % 2 == 0 ? 8 : 16, hierarchy_kinds[k]);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

static void test_options(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:B2,H4,K2,L100,D16,N8",
      "hierarchical:B2,H4,K1,L100,D16,V5,N8,causal",
      "hierarchical:B2,H6,K3,L77,D8,V33,N4,causal,exact",
      "hierarchical:B2,H2,L100,D64,N32",
      "hierarchical:B2,H2,L300,D64,N64,causal",
      "hierarchical:B1,H2,L300,D80,N16,causal,exact",
      "hierarchical:B1,H1,L257,D128,N16",
      "hierarchical:B1,H1,L130,D257,V1,N16,causal",
      "hierarchical:B1,H1,L90,D17,V65,N20,exact",
      "hierarchical:B2,H2,L100,D8,N8,hbias",
      "hierarchical:B2,H4,K2,L100,D8,N8,hshared,causal",
      "hierarchical:B2,H4,K2,L100,D8,N8,hbias,causal,exact",
      "hierarchical:B2,H2,L100,D8,N8,kernel",
      "hierarchical:B2,H2,L100,D8,N8,kernel,causal,seed=2",
      "hierarchical:B2,H2,L100,D8,N8,shared,causal,exact,seed=3",
      "hierarchical:B2,H2,L100,D8,N8,shared,exact,hbias",
      "hierarchical:B2,H2,L100,D8,N8,kernel,directed",
      "hierarchical:B2,H2,L100,D8,N8,kernel,directed,first,seed=2",
      "hierarchical:B2,H2,L100,D8,N8,shared,directed,sibling,hbias,seed=3",
      "hierarchical:B2,H2,L100,D8,N8,shared,directed,exact,hbias",
      "hierarchical:B2,H2,L64,D8,N4,kernel,directed,hiding",
      "hierarchical:B2,H2,L64,D8,N4,kernel,directed,linear",
      "hierarchical:B2,H4,K2,L70,D8,N4,rbf,kernel,directed,hbias,dropout=0.2",
      "hierarchical:B3,H2,L70,D8,N4,mask,qmask,kernel,directed",
      "hierarchical:H4,K2,L200,D8,N4,ragged,kernel,directed,hbias,dropout=0.2",
      "hierarchical:B2,H4,K2,L200,D8,N4,segments,shared,directed,accumulate",
      "hierarchical:B2,H2,L67,D3,N6,misaligned,kernel,directed",
      "hierarchical:B3,H2,L50,D8,N4,roomy,lengths,kernel,directed,hbias,dropout=0.1",
      "hierarchical:B2,H2,L64,D8,N4,kernel,hiding",
      "hierarchical:B2,H2,L64,D8,N4,kernel,hiding,causal",
      "hierarchical:B2,H2,L64,D16,N4,hbias,hiding",
      "hierarchical:B2,H4,K2,L64,D16,N4,hshared,hiding,causal,kernel,dropout=0.2,mask",
      "hierarchical:B2,H2,L64,D8,N4,kernel,linear,hiding",
      "hierarchical:B2,H2,L64,D8,N4,kernel,exact,hiding",
      "hierarchical:B2,H2,L64,D8,N4,rbf",
      "hierarchical:B2,H4,K2,L70,D8,N4,rbf,causal,kernel,hbias,dropout=0.2",
      "hierarchical:B2,H2,L64,D8,N4,rbf,linear",
      "hierarchical:B2,H2,L64,D9,N4,rbf,exact",
      "hierarchical:B2,H2,L100,D8,N8,dropout=0.5",
      "hierarchical:B2,H4,K2,L100,D8,N8,dropout=0.3,causal",
      "hierarchical:B2,H4,K2,L100,D8,N4,dropout=0.3,causal,exact",
      "hierarchical:B2,H2,L100,D8,N4,dropout=0.3,linear",
      "hierarchical:B3,H2,L70,D8,N4,lengths",
      "hierarchical:B3,H2,L70,D8,N4,lengths,qmask",
      "hierarchical:B3,H2,L70,D8,N4,lengths,causal",
      "hierarchical:B3,H4,K2,L130,D16,N8,lengths,causal,exact,dropout=0.3",
      "hierarchical:B3,H2,L70,D8,N4,lengths,linear,hbias",
      "hierarchical:B3,H2,L70,D8,N4,mask",
      "hierarchical:B3,H2,L70,D8,N4,mask=7,causal",
      "hierarchical:B3,H2,L70,D8,N4,mask,qmask,linear",
      "hierarchical:B3,H2,L70,D8,N4,mask,qmask,first",
      "hierarchical:B3,H2,L70,D8,N4,mask,qmask,causal,kernel",
      "hierarchical:B2,H2,L70,D8,N4,mask,qmask,exact,expanded",
      "hierarchical:H2,L200,D8,N4,ragged",
      "hierarchical:H4,K2,L200,D8,N4,ragged,causal",
      "hierarchical:H4,K2,L200,D8,N4,ragged,causal,exact,kernel,hbias,dropout=0.2",
      "hierarchical:H2,L3,D8,N2,ragged,causal",
      "hierarchical:B2,H2,L200,D8,N4,segments",
      "hierarchical:B2,H4,K2,L200,D8,N4,segments,causal,kernel",
      "hierarchical:B2,H4,K2,L70,D8,N4,segments,causal,hshared,dropout=0.2,mask,qmask",
      "hierarchical:B3,H2,L3,D8,N2,segments,linear",
      "hierarchical:B2,H2,L100,D24,N8,layout=1",
      "hierarchical:B2,H4,K2,L100,D24,V17,N8,layout=2,causal",
      "hierarchical:B3,H4,K2,L70,D9,V17,N8,layout=2,lengths,causal,exact,misaligned,hbias",
      "hierarchical:B2,H2,L67,D3,N6,misaligned,kernel",
      "hierarchical:B2,H4,K2,L70,D9,N6,accumulate,hbias,kernel,causal",
      "hierarchical:B3,H4,K2,L70,D9,N6,accumulate,lengths,layout=2",
      "hierarchical:B2,H2,L70,D9,N6,accumulate,segments,shared,hshared,exact",
      "hierarchical:H2,L90,D9,N4,accumulate,ragged,qmask",
      "hierarchical:B2,H2,L130,D64,large",
      "hierarchical:B2,H2,L130,D64,large,causal",
      "hierarchical:B2,H2,L130,D64,N4,large,causal,exact",
      "hierarchical:B1,H2,L70,D3,N4,large,linear",
      "hierarchical:B2,H2,L50,D8,N4,roomy,causal",
      "hierarchical:B3,H2,L50,D8,N4,roomy,lengths,kernel,hbias,dropout=0.1",
      "hierarchical:B2,H4,K2,L50,D8,N4,roomy,causal,exact,segments",
      "hierarchical:B2,H2,L1,D1,N2",
      "hierarchical:L3,D2,N1000",
      "hierarchical:B1,H1,L500,D40,N16,causal,threads=3",
      "hierarchical:B1,H3,L500,D40,N16,threads=7",
  };
  check_hierarchies(cases, sizeof cases / sizeof cases[0]);
}

/* Every pair of a query and a key in one level and one entry of it, seen on the layout and seen from outside: without logits, and with
 * values that distinguish keys, every visible key weighs the same. */
static void test_cover(void **state) {
  (void)state;
  for (int causal = 0; causal < 2; causal++)
    for (int sibling = 0; sibling < 2; sibling++)
      for (int64_t block = 2; block <= 8; block += 2)
        for (int64_t length = 1; length <= 70; length++) {
          hark_attention_desc desc = hark_attention_desc_default();
          desc.causal = causal;
          desc.partition = sibling ? HARK_PARTITION_SIBLING : HARK_PARTITION_NEIGHBOUR;
          desc.hierarchy_block = block;
          const hark_hierarchy h = hark_hierarchy_make(&desc, length);
          static int times[70][70];
          memset(times, 0, sizeof times);
          for (int level = 0; level < h.levels; level++)
            for (int64_t a = 0; a < hark_hierarchy_tokens(&h, level); a++) {
              const hark_hierarchy_keys keys = hark_hierarchy_meets(&h, level, a);
              for (int side = 0; side < 2; side++)
                for (int64_t b = keys.range[side].from; b < keys.range[side].to; b++)
                  for (int64_t n = a << level; n < (a + 1) << level && n < length; n++)
                    for (int64_t i = b << level; i < (b + 1) << level && i < length; i++) {
                      times[n][i]++;
                      if (attention_covering_level(block, sibling, n, i) != level)
                        fail_msg("N%" PRId64 " L%" PRId64 ": pair %" PRId64 ", %" PRId64 " on level %d", block, length, n, i, level);
                    }
            }
          for (int64_t n = 0; n < length; n++)
            for (int64_t i = 0; i < length; i++)
              if (times[n][i] != (!causal || i <= n))
                fail_msg("N%" PRId64 " L%" PRId64 " causal %d sibling %d: pair %" PRId64 ", %" PRId64 " is covered %d times", block, length,
                         causal, sibling, n, i, times[n][i]);
        }
}

/* Opens a case on a machine; the body runs for every kind of hierarchy on every machine that is there. */
typedef void machine_test(const attention_machine *machine, const char *text);
static void on_all(machine_test *test, const char *format) {
  for (size_t k = 0; k < HIERARCHY_KINDS; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      hark_context *context = attention_machine_open(&attention_machines[m], 1);
      if (context == NULL) continue;
      hark_context_destroy(&context);
      char text[ATTENTION_CASE_BYTES];
      snprintf(text, sizeof text, "%s%s", format, hierarchy_kinds[k]);
      test(&attention_machines[m], text);
    }
}

static void equal_weights(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_results r;
  attention_problem_make(text, &p);
  if (p.is.linear) { /* not a cover: coarse entries reach beyond their cells */
    attention_problem_free(&p);
    return;
  }
  memset(p.array[ARRAY_QUERY].data, 0, (size_t)p.array[ARRAY_QUERY].count * sizeof(double));
  const int64_t length = p.is.queries;
  assert_int_equal(p.is.value_dim, length);
  for (int64_t i = 0; i < length * length; i++) p.array[ARRAY_VALUE].data[i] = i / length == i % length;
  attention_run_on(machine, &p, &r);
  for (int64_t n = 0; n < length; n++)
    for (int64_t i = 0; i < length; i++) {
      const double visible = (double)(p.is.causal ? n + 1 : length);
      attention_assert_near("a weight", text, machine, n * length + i, r.data[ARRAY_OUT][n * length + i],
                            p.is.causal && i > n ? 0 : 1 / visible,
                            2 * (visible + 32) * machine->computing_roundoff + machine->storing_roundoff);
    }
  attention_results_free(&r);
  attention_problem_free(&p);
}

static void test_equal_weights(void **state) {
  (void)state;
  on_all(equal_weights, "hierarchical:L77,D3,V77,N4");
  on_all(equal_weights, "hierarchical:L64,D3,V64,N2");
  on_all(equal_weights, "hierarchical:L50,D3,V50,N16");
}

static void test_rows_sum_to_one(void **state) {
  (void)state;
  on_all(attention_rows_sum_to_one, "hierarchical:B2,H4,K2,L77,D7,N4,hbias,kernel");
  on_all(attention_rows_sum_to_one, "hierarchical:B3,H2,L64,D8,N8,lengths,mask,qmask");
  on_all(attention_rows_sum_to_one, "hierarchical:H2,L100,D8,N4,large");
}

/* What is restricted to cells on the way up comes back by interpolation on the way down: <out(V), dout> = <V, dV>. */
static void adjoint(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  double inner = 0, back = 0, within = 0;
  for (int64_t i = 0; i < r.count[ARRAY_OUT]; i++) {
    inner += r.data[ARRAY_OUT][i] * p.array[ARRAY_DOUT].data[i];
    within += fabs(p.array[ARRAY_DOUT].data[i]) * attention_tolerance(machine, &e, ARRAY_OUT, i);
  }
  for (int64_t i = 0; i < r.count[ARRAY_DVALUE]; i++) {
    back += r.data[ARRAY_DVALUE][i] * p.array[ARRAY_VALUE].data[i];
    within += fabs(p.array[ARRAY_VALUE].data[i]) * attention_tolerance(machine, &e, ARRAY_DVALUE, i);
  }
  attention_assert_near("adjoint of the values", text, machine, 0, back, inner, within);
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static void test_adjoint(void **state) {
  (void)state;
  on_all(adjoint, "hierarchical:B2,H4,K2,L77,D7,V3,N4,dropout=0.3,mask");
}

/* The same numbers as a dense case of the same sizes. */
static void same_as_dense(const attention_machine *machine, const char *text, const char *dense_text, const attention_problem *p) {
  attention_problem dense;
  attention_expected e;
  attention_results r;
  attention_problem_make(dense_text, &dense);
  for (int i = 0; i < ARRAY_OUT; i++)
    if (dense.array[i].count > 0) memcpy(dense.array[i].data, p->array[i].data, (size_t)dense.array[i].count * sizeof(double));
  dense.dropout = p->dropout;
  attention_expected_make(&dense, &e);
  attention_run_on(machine, p, &r);
  const attention_array arrays[] = {ARRAY_OUT, ARRAY_LSE, ARRAY_DVALUE};
  /* Sums in the order of a hierarchy are as long as dense ones, with the roundings of the levels beside. */
  for (size_t k = 0; k < 3; k++)
    for (int64_t i = 0; i < r.count[arrays[k]]; i++)
      attention_assert_near(attention_array_names[arrays[k]], text, machine, i, r.data[arrays[k]][i], e.array[arrays[k]].data[i],
                            4 * attention_tolerance(machine, &e, arrays[k], i) + 200 * machine->computing_roundoff);
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&dense);
}

/* One level, two blocks: dense, with every option that dense has too. */
static void one_level(const attention_machine *machine, const char *text) {
  attention_problem p;
  char dense[ATTENTION_CASE_BYTES];
  attention_problem_make(text, &p);
  snprintf(dense, sizeof dense, "dense:B2,H4,K2,L16,D7,V5,shared,dropout=0.3%s", p.is.causal ? ",causal" : "");
  same_as_dense(machine, text, dense, &p);
  attention_problem_free(&p);
}

static void test_one_level(void **state) {
  (void)state;
  on_all(one_level, "hierarchical:B2,H4,K2,L16,D7,V5,N8,shared,dropout=0.3");
  on_all(one_level, "hierarchical:B2,H4,K2,L16,D7,V5,N20,shared,dropout=0.3");
}

/* Keys and queries that are constant on the cells that are merged: nothing is lost by merging. */
static void constant_cells(const attention_machine *machine, const char *text) {
  attention_problem p;
  char dense[ATTENTION_CASE_BYTES];
  attention_problem_make(text, &p);
  const int64_t length = p.is.queries, cell = 16, d = p.is.head_dim; /* L64 with N4: levels of cells of 1, 2, 4, 8 */
  if (p.is.linear) {
    attention_problem_free(&p);
    return;
  }
  for (int array = ARRAY_QUERY; array <= ARRAY_KEY; array++)
    for (int64_t row = 0; row < p.array[array].count / d; row++)
      for (int64_t x = 0; x < d; x++) {
        double *rows = p.array[array].data;
        rows[row * d + x] = rows[(row / length * length + row % length / cell * cell) * d + x];
      }
  snprintf(dense, sizeof dense, "dense:B2,H4,K2,L64,D7%s", p.is.causal ? ",causal" : "");
  same_as_dense(machine, text, dense, &p);
  attention_problem_free(&p);
}

static void test_constant_cells(void **state) {
  (void)state;
  on_all(constant_cells, "hierarchical:B2,H4,K2,L64,D7,N4");
}

/* Rows whose logits lie 60 nats and more below those of other rows of the head come out as exactly as any. */
static void low_rows(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  const int64_t d = p.is.head_dim, rows = p.array[ARRAY_QUERY].count / d;
  /* All keys have a large first feature; every third block of queries takes it with weight -60 / scale, others with 0. */
  for (int64_t i = 0; i < p.array[ARRAY_KEY].count / d; i++) p.array[ARRAY_KEY].data[i * d] = 1;
  for (int64_t n = 0; n < rows; n++) p.array[ARRAY_QUERY].data[n * d] = n / 8 % 3 == 0 ? -(double)(float)(60 / p.scale) : 0;
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  double lowest = INFINITY, highest = -INFINITY;
  for (int64_t n = 0; n < r.count[ARRAY_LSE]; n++) {
    lowest = fmin(lowest, r.data[ARRAY_LSE][n]);
    highest = fmax(highest, r.data[ARRAY_LSE][n]);
  }
  assert_true(highest - lowest > 50); /* or else the test says nothing */
  if (attention_compare(machine, &p, &e, &r) != 0) fail_msg("'%s': rows far below the others of the head", text);
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static void test_low_rows(void **state) {
  (void)state;
  on_all(low_rows, "hierarchical:H2,L96,D8,N8");
}

/* The gradients of a table's logarithms sum to zero, because those of a row's logits do. */
static void table_gradients(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  if (strstr(text, "directed") != NULL && strstr(text, "causal") != NULL) return; /* refused */
  attention_problem_make(text, &p);
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  const attention_array arrays[] = {ARRAY_DLOG_KERNEL, ARRAY_DHIERARCHICAL_BIAS};
  for (size_t k = 0; k < 2; k++) {
    double sum = 0, within = 0, size = 0;
    for (int64_t i = 0; i < r.count[arrays[k]]; i++) {
      sum += r.data[arrays[k]][i];
      size += fabs(r.data[arrays[k]][i]);
      within += attention_tolerance(machine, &e, arrays[k], i);
    }
    attention_assert_near("sum of a table's gradient", text, machine, 0, sum, 0, within);
    assert_true(size > 10 * within); /* or else the test says nothing */
  }
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static void test_table_gradients(void **state) {
  (void)state;
  on_all(table_gradients, "hierarchical:B2,H2,L77,D7,N4,shared,hshared");
  on_all(table_gradients, "hierarchical:B2,H2,L77,D7,N4,shared,directed,hshared");
}

static void copy_first_rows(attention_problem *to, const attention_problem *from, attention_array array) {
  const attention_numbers *source = &from->array[array], *target = &to->array[array];
  const int64_t width = target->shape[3];
  for (int64_t head = 0; head < target->shape[0] * target->shape[1]; head++)
    memcpy(target->data + head * target->shape[2] * width, source->data + head * source->shape[2] * width,
           (size_t)(target->shape[2] * width) * sizeof(double));
}

/* A table of log G with another number of distances. */
static void change_table(attention_problem *p, int64_t distances) {
  attention_numbers *table = &p->array[ARRAY_LOG_KERNEL];
  free(table->data);
  table->shape[1] = distances;
  table->count = table->shape[0] * distances;
  table->data = malloc((size_t)table->count * sizeof(double));
  assert_non_null(table->data);
  for (int64_t i = 0; i < table->count; i++) table->data[i] = (double)(float)(-2 - 2 * sin((double)i));
}

/* Rows of a text do not depend on what comes after it, but for rounding: it may be cut otherwise. The table has all Nr 2^M distances. */
static void rows_after(const attention_machine *machine, const char *options, int64_t rows, int64_t more) {
  attention_problem shorter, longer;
  attention_expected e;
  attention_results r[2];
  char text[ATTENTION_CASE_BYTES];
  snprintf(text, sizeof text, "hierarchical:H4,K2,L%" PRId64 ",D16,N4,kernel,hbias,causal%s", rows + more, options);
  attention_problem_make(text, &longer);
  snprintf(text, sizeof text, "hierarchical:H4,K2,L%" PRId64 ",D16,N4,kernel,hbias,causal%s", rows, options);
  attention_problem_make(text, &shorter);
  const hark_attention_desc desc = attention_problem_desc(&longer, machine->type);
  const hark_hierarchy h = hark_hierarchy_make(&desc, rows + more);
  change_table(&longer, hark_hierarchy_reach(&h));
  change_table(&shorter, hark_hierarchy_reach(&h));
  for (int array = ARRAY_QUERY; array <= ARRAY_DOUT; array++) copy_first_rows(&shorter, &longer, (attention_array)array);
  attention_expected_make(&shorter, &e);
  attention_run_on(machine, &shorter, &r[0]);
  attention_run_on(machine, &longer, &r[1]);
  const attention_array arrays[] = {ARRAY_OUT, ARRAY_LSE};
  for (size_t k = 0; k < 2; k++)
    for (int64_t i = 0; i < r[0].count[arrays[k]]; i++) {
      const int64_t width = k == 0 ? shorter.is.value_dim : 1, head = i / (rows * width);
      attention_assert_near(attention_array_names[arrays[k]], text, machine, i, r[1].data[arrays[k]][i + head * more * width],
                            r[0].data[arrays[k]][i], 2 * attention_tolerance(machine, &e, arrays[k], i));
    }
  for (int k = 0; k < 2; k++) attention_results_free(&r[k]);
  attention_expected_free(&e);
  attention_problem_free(&shorter);
  attention_problem_free(&longer);
}

static void test_rows_after(void **state) {
  (void)state;
  static const char *const options[] = {"", ",sibling", ",exact", ",dropout=0.3"};
  static const int64_t rows[][2] = {{100, 50}, {64, 1}, {33, 200}, {5, 3}};
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = attention_machine_open(&attention_machines[m], 1);
    if (context == NULL) continue;
    hark_context_destroy(&context);
    for (size_t k = 0; k < sizeof options / sizeof options[0]; k++)
      for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) rows_after(&attention_machines[m], options[k], rows[i][0], rows[i][1]);
  }
}

/* Singular values of a small matrix, by one-sided Jacobi rotations: columns are turned in pairs until all are orthogonal. */
static int numerical_rank(double *a, int rows, int columns, double tolerance_of_rest) {
  double norms[16];
  for (int sweep = 0; sweep < 60; sweep++)
    for (int p = 0; p < columns; p++)
      for (int q = p + 1; q < columns; q++) {
        double alpha = 0, beta = 0, gamma = 0;
        for (int i = 0; i < rows; i++) {
          alpha += a[i * columns + p] * a[i * columns + p];
          beta += a[i * columns + q] * a[i * columns + q];
          gamma += a[i * columns + p] * a[i * columns + q];
        }
        if (fabs(gamma) < 1e-300) continue;
        const double zeta = (beta - alpha) / (2 * gamma), tangent = copysign(1 / (fabs(zeta) + sqrt(1 + zeta * zeta)), zeta);
        const double cosine = 1 / sqrt(1 + tangent * tangent), sine = cosine * tangent;
        for (int i = 0; i < rows; i++) {
          const double x = a[i * columns + p], y = a[i * columns + q];
          a[i * columns + p] = cosine * x - sine * y;
          a[i * columns + q] = sine * x + cosine * y;
        }
      }
  for (int c = 0; c < columns; c++) {
    norms[c] = 0;
    for (int i = 0; i < rows; i++) norms[c] += a[i * columns + c] * a[i * columns + c];
    norms[c] = sqrt(norms[c]);
  }
  for (int i = 0; i < columns; i++)
    for (int j = i + 1; j < columns; j++)
      if (norms[j] > norms[i]) {
        const double kept = norms[i];
        norms[i] = norms[j];
        norms[j] = kept;
      }
  /* The least r with sum of the values after the r-th below the tolerance. */
  double rest = 0;
  int rank = columns;
  while (rank > 0 && rest + norms[rank - 1] < tolerance_of_rest) rest += norms[--rank];
  return rank;
}

static int rank_of_block(int row, int column, int size, double tolerance_of_rest) {
  double block[16 * 16];
  for (int i = 0; i < size; i++)
    for (int j = 0; j < size; j++) {
      const double difference = row + i - column - j;
      block[i * size + j] = exp(2 * exp(-difference * difference) - 1);
    }
  return numerical_rank(block, size, size, tolerance_of_rest);
}

/* Eq. 11-13 of H: A[i,j] = exp(2 exp(-(i-j)^2) - 1), 16 x 16, in blocks of 8 and of 4. */
static void test_rank_map(void **state) {
  (void)state;
  int storage = 0;
  for (int half = 0; half < 2; half++) {
    assert_int_equal(rank_of_block(8 * half, 8 - 8 * half, 8, 1e-3), 2);
    storage += 2 * 8 * 2;
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) {
        const int rank = rank_of_block(8 * half + 4 * i, 8 * half + 4 * j, 4, 1e-3);
        assert_int_equal(rank, i == j ? 4 : 2);
        storage += i == j ? 16 : 2 * 4 * 2;
      }
  }
  assert_int_equal(storage, 192);
  assert_int_equal(rank_of_block(0, 0, 16, 1e-1), 16);
}

/* Blocks of the published counts (H section 7 and A.5), and levels. */
static void test_counts(void **state) {
  (void)state;
  for (int levels = 1; levels <= 8; levels++)
    for (int k = 0; k < 4; k++) {
      hark_attention_desc desc = hark_attention_desc_default();
      desc.hierarchy_block = 16;
      desc.causal = k % 2 == 1;
      desc.partition = k / 2 == 1 ? HARK_PARTITION_SIBLING : HARK_PARTITION_NEIGHBOUR;
      const int64_t blocks = (int64_t)1 << levels;
      const hark_hierarchy h = hark_hierarchy_make(&desc, 16 * blocks);
      const int64_t expected[] = {5 * blocks - 4 - 2 * levels, 3 * blocks - 2 - levels, 3 * blocks - 2, 2 * blocks - 1};
      assert_int_equal(h.levels, levels);
      assert_int_equal((int64_t)hark_hierarchy_blocks(&h, false), expected[k]);
    }
}

int main(int argument_count, char **arguments) {
  if (argument_count > 1) {
    int failures = 0;
    for (int i = 1; i < argument_count; i++) failures += attention_check_case(arguments[i], true);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cover),           cmocka_unit_test(test_counts),          cmocka_unit_test(test_rank_map),
      cmocka_unit_test(test_lengths),         cmocka_unit_test(test_block_edges),     cmocka_unit_test(test_options),
      cmocka_unit_test(test_equal_weights),   cmocka_unit_test(test_rows_sum_to_one), cmocka_unit_test(test_adjoint),
      cmocka_unit_test(test_one_level),       cmocka_unit_test(test_constant_cells),  cmocka_unit_test(test_low_rows),
      cmocka_unit_test(test_table_gradients), cmocka_unit_test(test_rows_after),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
