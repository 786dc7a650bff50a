/* test_hidden.c - what may not be seen leaves no trace: causality by bits, NaN in hidden keys, values, biases and rows that belong to
 * nothing.
 *
 * Each test runs a case, changes numbers that must not matter to NaN, infinity or other numbers, runs again and compares bits; on every
 * backend, instruction set and type.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

/* What is written over hidden numbers. */
static const double poisons[] = {NAN, INFINITY, 3e38};
#define POISONS (sizeof poisons / sizeof poisons[0])

static double *row_of(attention_problem *p, attention_array array, int64_t b, int64_t h, int64_t row) {
  attention_numbers *numbers = &p->array[array];
  return numbers->data + ((b * numbers->shape[1] + h) * numbers->shape[2] + row) * numbers->shape[3];
}

static void poison_row(attention_problem *p, attention_array array, int64_t b, int64_t row, double poison) {
  const attention_numbers *numbers = &p->array[array];
  for (int64_t h = 0; h < numbers->shape[1]; h++)
    for (int64_t x = 0; x < numbers->shape[3]; x++) row_of(p, array, b, h, row)[x] = poison;
}

static void copy_results(const attention_results *from, attention_results *to) {
  memset(to, 0, sizeof *to);
  for (int i = 0; i < ARRAY_COUNT; i++) {
    to->count[i] = from->count[i];
    if (from->data[i] == NULL) continue;
    to->data[i] = malloc((size_t)from->count[i] * sizeof(double));
    assert_non_null(to->data[i]);
    memcpy(to->data[i], from->data[i], (size_t)from->count[i] * sizeof(double));
  }
}

/* Forgets rows after last_row of out, log_sum_exp and dquery. */
static void keep_query_rows(const attention_problem *p, attention_results *r, int64_t last_row) {
  const attention_array arrays[] = {ARRAY_OUT, ARRAY_LSE, ARRAY_DQUERY};
  for (size_t k = 0; k < 3; k++) {
    const int64_t rows = p->is.batch * p->is.heads * p->is.queries, width = r->count[arrays[k]] / rows;
    for (int64_t row = 0; row < rows; row++)
      if (row % p->is.queries > last_row) memset(r->data[arrays[k]] + row * width, 0, (size_t)width * sizeof(double));
  }
}

/* The future changes: keys, values, queries and output gradients after position t. Rows up to t keep their bits in out and dquery. */
static void check_causality(const char *text) {
  for (int m = 0; m < attention_machine_count; m++) {
    attention_problem p;
    attention_results before;
    attention_problem_make(text, &p);
    const int64_t length = p.is.keys, shift = p.is.keys - p.is.queries;
    if (!attention_run_on(&attention_machines[m], &p, &before)) {
      attention_problem_free(&p);
      continue;
    }
    const int64_t cuts[] = {0, length / 2, length - 2};
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++)
      for (size_t poison = 0; poison < POISONS; poison++) {
        if (cuts[k] < 0 || cuts[k] - shift < 0) continue;
        attention_problem q;
        attention_results after, old;
        attention_problem_make(text, &q);
        for (int64_t b = 0; b < q.is.batch; b++)
          for (int64_t i = cuts[k] + 1; i < length; i++) {
            poison_row(&q, ARRAY_KEY, b, i, poisons[poison]);
            poison_row(&q, ARRAY_VALUE, b, i, poisons[poison]);
            if (i - shift >= 0 && i - shift < q.is.queries) {
              poison_row(&q, ARRAY_QUERY, b, i - shift, poisons[poison]);
              poison_row(&q, ARRAY_DOUT, b, i - shift, poisons[poison]);
            }
            for (int64_t h = 0; q.is.forget && h < q.is.heads; h++)
              q.array[ARRAY_FORGET].data[(b * q.is.heads + h) * length + i] = poisons[poison];
          }
        attention_run_on(&attention_machines[m], &q, &after);
        copy_results(&before, &old);
        keep_query_rows(&p, &old, cuts[k] - shift);
        keep_query_rows(&p, &after, cuts[k] - shift);
        attention_same_bits(attention_machines[m].name, text, ARRAY_OUT, &old, &after);
        attention_same_bits(attention_machines[m].name, text, ARRAY_LSE, &old, &after);
        /* A query that stands for a cell gets gradients from the cell's later rows. */
        if (!p.is.first) attention_same_bits(attention_machines[m].name, text, ARRAY_DQUERY, &old, &after);
        attention_results_free(&after);
        attention_results_free(&old);
        attention_problem_free(&q);
      }
    attention_results_free(&before);
    attention_problem_free(&p);
  }
}

static void test_causality(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L9,D3,causal",
                                      "dense:B1,H4,K2,L70,D8,V5,causal",
                                      "dense:H2,L130,D16,causal",
                                      "dense:H2,L20,S150,D16,causal",
                                      "dense:H4,K2,L4,S70,D64,causal",
                                      "dense:H2,L200,D8,causal,forget,kernel,bias=3",
                                      "dense:H2,L200,D8,causal,kernel",
                                      "dense:H2,L270,D8,causal,kernel,hiding",
                                      "dense:H4,K2,L4,S200,D64,causal,kernel",
                                      "dense:H2,L130,D8,causal,rbf,dropout=0.2",
                                      "window:H2,L200,D8,W30,causal",
                                      "dense:H2,L100,D8,causal,mask=3,layout=1",
                                      "dense:B2,H2,L9,D3,C4,causal",
                                      "dense:H2,K1,L40,D8,C12,causal,forget,kernel,bias=3",
                                      "window:H2,L40,D8,C9,W10,causal,dropout=0.2",
                                      "dense:B2,H2,L9,D3,causal,stick",
                                      "dense:H4,K2,L200,D8,causal,stick,forget,kernel,bias=3",
                                      "dense:H2,L20,S150,D16,causal,stick,mask=3",
                                      "window:H2,L200,D8,W30,causal,stick,dropout=0.2",
                                      "hierarchical:B2,H2,L9,D3,N2,causal",
                                      "compressed:H4,K2,L100,D8,N4,slots=2,select=5",
                                      "compressed:H4,K2,L100,D8,N8,slots=3,select=5,kernel,hiding",
                                      "compressed:B2,H2,L150,D20,N16,kept=3,globals=2,dropout=0.2",
                                      "hierarchical:H4,K2,L100,D8,N4,causal",
                                      "hierarchical:H2,L150,D20,N16,causal,sibling",
                                      "hierarchical:H4,K2,L100,D8,N4,causal,exact",
                                      "hierarchical:H2,L150,D20,N16,causal,exact,sibling",
                                      "hierarchical:H2,L200,D16,N64,causal",
                                      "hierarchical:H2,L200,D16,N64,causal,exact",
                                      "hierarchical:H2,L100,D8,N4,causal,hbias,kernel,dropout=0.2",
                                      "hierarchical:H2,L100,D8,N4,causal,exact,hbias,kernel,dropout=0.2",
                                      "hierarchical:B2,H2,L70,D8,N4,causal,rbf,mask,qmask",
                                      "hierarchical:B2,H2,L70,D8,N4,causal,rbf,mask,exact"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_causality(cases[i]);
}

/* A value that is infinite under a weight that underflows to 0: whatever comes of it, it is the same whatever later queries are, also those
 * of the row's tile, whose logits decide how the tile is computed. */
static void test_weights_that_underflow(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:L192,D8,causal,kernel", "dense:L192,D8,causal"};
  enum { KEY = 64, ROW = 128, LATER = 191 };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      attention_problem p;
      attention_results before, after;
      attention_problem_make(cases[i], &p);
      /* The first feature is of this key, this row and the later one alone. */
      for (int64_t n = 0; n < p.is.queries; n++) row_of(&p, ARRAY_KEY, 0, 0, n)[0] = row_of(&p, ARRAY_QUERY, 0, 0, n)[0] = 0;
      poison_row(&p, ARRAY_VALUE, 0, KEY, INFINITY);
      poison_row(&p, ARRAY_QUERY, 0, ROW, 0);
      row_of(&p, ARRAY_KEY, 0, 0, KEY)[0] = 10;
      row_of(&p, ARRAY_QUERY, 0, 0, ROW)[0] = -1000;
      if (attention_run_on(&attention_machines[m], &p, &before)) {
        row_of(&p, ARRAY_QUERY, 0, 0, LATER)[0] = 10;
        attention_run_on(&attention_machines[m], &p, &after);
        keep_query_rows(&p, &before, LATER - 1);
        keep_query_rows(&p, &after, LATER - 1);
        attention_same_bits(attention_machines[m].name, cases[i], ARRAY_OUT, &before, &after);
        attention_same_bits(attention_machines[m].name, cases[i], ARRAY_DQUERY, &before, &after);
        attention_results_free(&before);
        attention_results_free(&after);
      }
      attention_problem_free(&p);
    }
}

/* A key that no query gives any weight, because it is infinite on the other side, leaves gradients of the table finite: also where a tile
 * has lanes without a query. */
static void test_lanes_without_a_query(void **state) {
  (void)state;
  static const char text[] = "dense:L5,S64,D1,kernel";
  for (int m = 0; m < attention_machine_count; m++) {
    attention_problem p;
    attention_results r;
    attention_problem_make(text, &p);
    for (int64_t n = 0; n < p.is.queries; n++) poison_row(&p, ARRAY_QUERY, 0, n, -0.5 - 0.1 * (double)n);
    poison_row(&p, ARRAY_KEY, 0, 10, INFINITY);
    if (attention_run_on(&attention_machines[m], &p, &r)) {
      for (int64_t i = 0; i < r.count[ARRAY_DLOG_KERNEL]; i++)
        if (!isfinite(r.data[ARRAY_DLOG_KERNEL][i]))
          fail_msg("'%s' on %s: gradient %d of the table is %g", text, attention_machines[m].name, (int)i, r.data[ARRAY_DLOG_KERNEL][i]);
      attention_results_free(&r);
    }
    attention_problem_free(&p);
  }
}

/* Poisons what the case hides: numbers that no visible entry depends on. */
typedef void poison_function(attention_problem *p, double poison);

static void check_hidden(const char *text, poison_function *poison_hidden) {
  for (int m = 0; m < attention_machine_count; m++) {
    attention_problem p;
    attention_results before;
    attention_problem_make(text, &p);
    poison_hidden(&p, 0.25); /* so that both runs have the same shape of hiding */
    if (attention_run_on(&attention_machines[m], &p, &before)) {
      for (size_t k = 0; k < POISONS; k++) {
        attention_results after;
        poison_hidden(&p, poisons[k]);
        attention_run_on(&attention_machines[m], &p, &after);
        for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++)
          attention_same_bits(attention_machines[m].name, text, (attention_array)array, &before, &after);
        attention_results_free(&after);
      }
      attention_results_free(&before);
    }
    attention_problem_free(&p);
  }
}

/* Keys, values and gates of no sequence; queries and output gradients of no sequence. */
static void poison_padding(attention_problem *p, double poison) {
  for (int64_t b = 0; b < p->is.batch; b++) {
    for (int64_t i = 0; i < p->is.keys; i++)
      if (attention_key_place(p, b, i).sequence < 0) {
        poison_row(p, ARRAY_KEY, b, i, poison);
        poison_row(p, ARRAY_VALUE, b, i, poison);
        for (int64_t h = 0; p->is.forget && h < p->is.heads; h++)
          p->array[ARRAY_FORGET].data[(b * p->is.heads + h) * p->is.keys + i] = poison;
      }
    for (int64_t n = 0; n < p->is.queries; n++) {
      const attention_place place = attention_query_place(p, b, n);
      if (place.sequence >= 0 && place.keys > 0) continue;
      poison_row(p, ARRAY_QUERY, b, n, poison);
      poison_row(p, ARRAY_DOUT, b, n, poison);
    }
  }
}

static void test_padding(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B4,H2,L20,S70,D8,lengths",
                                      "dense:B4,H4,K2,L1,S70,D64,lengths",
                                      "dense:B3,H4,K2,L70,D8,V5,lengths,causal,forget",
                                      "dense:B3,H2,L70,D8,lengths,rbf",
                                      "dense:B2,H2,L130,D8,segments",
                                      "dense:B3,H4,K2,L70,D8,V5,lengths,causal,stick,forget",
                                      "dense:B2,H2,L70,D8,segments,causal,stick,dropout=0.2",
                                      "dense:B2,H2,L70,D8,segments,causal,forget,dropout=0.2",
                                      "dense:H2,L130,S100,D8,ragged",
                                      "dense:H2,L130,S100,D8,ragged,causal,kernel",
                                      "window:B3,H2,L100,D8,W9,lengths",
                                      "compressed:B3,H4,K2,L70,D8,V5,N4,lengths",
                                      "compressed:H2,L130,D8,N4,ragged,kept=3,shared",
                                      "compressed:H2,L130,D8,N4,ragged,kept=3,globals=2",
                                      "hierarchical:B3,H4,K2,L70,D8,V5,N4,lengths",
                                      "hierarchical:B3,H2,L70,D8,N8,lengths,causal",
                                      "hierarchical:B3,H2,L70,D8,N8,lengths,exact,rbf",
                                      "hierarchical:B3,H4,K2,L170,D8,N4,grid=13,lengths",
                                      "hierarchical:B3,H2,L170,D8,N4,grid=13,lengths,exact",
                                      "hierarchical:B2,H2,L130,D8,N4,segments,linear",
                                      "hierarchical:H2,L130,D8,N4,ragged,causal,kernel"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_hidden(cases[i], poison_padding);
}

/* Every fourth key is masked for all rows, and every third row sees nothing at all. */
static void poison_masked(attention_problem *p, double poison) {
  for (int64_t b = 0; b < p->mask_shape[0]; b++)
    for (int64_t h = 0; h < p->mask_shape[1]; h++)
      for (int64_t n = 0; n < p->mask_shape[2]; n++)
        for (int64_t i = 0; i < p->mask_shape[3]; i++) p->mask[attention_index(p->mask_shape, b, h, n, i)] = i % 4 != 1 && n % 3 != 2;
  for (int64_t b = 0; b < p->is.batch; b++) {
    for (int64_t i = 1; i < p->is.keys; i += 4) {
      poison_row(p, ARRAY_KEY, b, i, poison);
      poison_row(p, ARRAY_VALUE, b, i, poison);
    }
    for (int64_t n = 2; p->mask_shape[2] > 1 && n < p->is.queries; n += 3) {
      poison_row(p, ARRAY_QUERY, b, n, poison);
      poison_row(p, ARRAY_DOUT, b, n, poison);
    }
  }
  if (!p->is.bias || p->is.bias_bits != 0) return;
  const int64_t *shape = p->array[ARRAY_BIAS].shape; /* a hidden entry's bias too */
  for (int64_t i = 0; i < p->array[ARRAY_BIAS].count; i++) {
    const int64_t column = i % shape[3], row = i / shape[3] % shape[2];
    if (column % 4 == 1 || row % 3 == 2) p->array[ARRAY_BIAS].data[i] = poison;
  }
}

/* The same where a hidden query that is still finite is not any more once it is scaled. */
static void poison_masked_scaled(attention_problem *p, double poison) {
  p->scale = p->given_scale = 2;
  poison_masked(p, poison);
}

static void test_mask(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L20,S30,D8,mask",
                                      "dense:B2,H4,K2,L2,S70,D64,mask",
                                      "dense:B2,H4,K2,L130,D8,V3,mask=1,causal",
                                      "dense:B2,H4,K2,L130,D8,V3,mask=1,causal,stick",
                                      "dense:B2,H4,K2,L2,S70,D64,mask,causal,stick",
                                      "dense:B2,H2,L70,D8,mask=3,bias,causal",
                                      "dense:B2,H2,L20,S70,D8,mask=7",
                                      "dense:B2,H2,L70,D8,mask,forget,causal,kernel,dropout=0.2",
                                      "dense:H2,L70,D8,mask,rbf",
                                      "window:H2,L100,D8,W20,mask",
                                      "compressed:B2,H4,K2,L70,D8,N4,mask,slots=2",
                                      "compressed:B2,H4,K2,L70,D8,N8,mask,slots=2,kernel",
                                      "compressed:B2,H2,L70,D8,N4,mask=7,kept=3,globals=2",
                                      "hierarchical:B2,H4,K2,L70,D8,N4,mask",
                                      "hierarchical:B2,H2,L70,D20,N16,mask,causal",
                                      "hierarchical:B2,H2,L70,D8,N4,mask=7,exact,rbf",
                                      "hierarchical:B2,H4,K2,L170,D8,N4,grid=13,mask",
                                      "hierarchical:B2,H2,L170,D8,N4,grid=13,mask,exact",
                                      "hierarchical:B2,H2,L70,D8,N4,mask,linear"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_hidden(cases[i], poison_masked);
  check_hidden("dense:B2,H2,L20,S30,D8,mask", poison_masked_scaled);
  check_hidden("dense:B2,H4,K2,L130,D8,V3,mask,causal", poison_masked_scaled);
}

/* Rows that are no queries. */
static void poison_no_queries(attention_problem *p, double poison) {
  for (int64_t b = 0; b < p->is.batch; b++)
    for (int64_t n = 0; n < p->is.queries; n++) {
      if (p->query_mask[b * p->is.queries + n] != 0) continue;
      poison_row(p, ARRAY_QUERY, b, n, poison);
      poison_row(p, ARRAY_DOUT, b, n, poison);
    }
}

static void test_query_mask(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B2,H4,K2,L70,D8,N4,qmask",          "hierarchical:B2,H2,L70,D20,N16,qmask,causal",
                                      "hierarchical:B2,H4,K2,L170,D8,N4,grid=13,qmask", "hierarchical:B2,H2,L170,D8,N4,grid=13,qmask,exact",
                                      "hierarchical:B2,H2,L70,D8,N4,qmask,exact,rbf",   "hierarchical:B2,H2,L70,D8,N4,qmask,linear"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_hidden(cases[i], poison_no_queries);
}

/* A bias of -infinity hides as a mask does: every fourth key from all rows. */
static void poison_behind_bias(attention_problem *p, double poison) {
  const int64_t *shape = p->array[ARRAY_BIAS].shape;
  for (int64_t i = 0; i < p->array[ARRAY_BIAS].count; i++)
    if (i % shape[3] % 4 == 1) p->array[ARRAY_BIAS].data[i] = -INFINITY;
  for (int64_t b = 0; b < p->is.batch; b++)
    for (int64_t i = 1; i < p->is.keys; i += 4) {
      poison_row(p, ARRAY_KEY, b, i, poison);
      poison_row(p, ARRAY_VALUE, b, i, poison);
    }
}

static void test_bias(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L20,S30,D8,bias", "dense:B2,H2,L1,S70,D64,bias", "dense:B2,H2,L70,D8,bias=7,causal",
                                      "dense:B2,H2,L70,D8,bias=7,causal,stick", "dense:B2,H2,L70,D8,V3,bias=3,rbf"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_hidden(cases[i], poison_behind_bias);
}

/* Distance 0 is hidden, so that the first row of a causal text sees nothing: its gradient is not looked at. */
static void poison_blind_gradient(attention_problem *p, double poison) {
  attention_numbers *table = &p->array[ARRAY_LOG_KERNEL], *bias = &p->array[ARRAY_HIERARCHICAL_BIAS];
  for (int64_t i = 0; i < table->count; i += table->shape[1]) table->data[i] = -INFINITY;
  for (int64_t i = 2 * p->is.block - 1; i < bias->count; i += bias->shape[1]) bias->data[i] = -INFINITY;
  for (int64_t b = 0; b < p->is.batch; b++) poison_row(p, ARRAY_DOUT, b, 0, poison);
}

static void test_blind_gradient(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B2,H4,K2,L70,D16,N4,causal,kernel", "hierarchical:B2,H2,L70,D16,N8,causal,hbias",
                                      "hierarchical:B2,H2,L70,D5,N4,causal,shared,hshared,dropout=0.2",
                                      "hierarchical:B2,H2,L70,D16,N4,causal,exact,kernel"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_hidden(cases[i], poison_blind_gradient);
}

/* Entries of a bias above the diagonal. */
static void poison_bias_above(attention_problem *p, double poison) {
  const int64_t *shape = p->array[ARRAY_BIAS].shape;
  for (int64_t i = 0; i < p->array[ARRAY_BIAS].count; i++)
    if (i % shape[3] > i / shape[3] % shape[2]) p->array[ARRAY_BIAS].data[i] = poison;
}

static void test_bias_above_diagonal(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L20,D8,bias,causal", "dense:B2,H2,L130,D8,bias=3,causal"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_hidden(cases[i], poison_bias_above);
}

/* A table's distances beyond the window, and beyond what the lengths reach. */
static void poison_far_distances(attention_problem *p, double poison) {
  attention_numbers *table = &p->array[ARRAY_LOG_KERNEL];
  const int64_t middle = p->is.directed ? table->shape[1] / 2 : 0;
  for (int64_t i = 0; i < table->count; i++)
    if (llabs((long long)(i % table->shape[1] - middle)) > p->is.window) table->data[i] = poison;
}

static void test_far_distances(void **state) {
  (void)state;
  static const char *const cases[] = {"window:B2,H2,L70,D8,W10,kernel", "window:B2,H2,L130,D8,W33,shared,causal",
                                      "window:B2,H2,L130,D8,W33,kernel,directed"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_hidden(cases[i], poison_far_distances);
}

/* Rows that see nothing: zeros, -infinity, zero gradients, exactly. */
static void check_blind_rows(const char *text) {
  for (int m = 0; m < attention_machine_count; m++) {
    attention_problem p;
    attention_expected expected;
    attention_results r;
    attention_problem_make(text, &p);
    attention_expected_make(&p, &expected);
    int64_t blind = 0;
    if (attention_run_on(&attention_machines[m], &p, &r)) {
      for (int64_t row = 0; row < expected.array[ARRAY_LSE].count; row++) {
        if (expected.array[ARRAY_LSE].data[row] != -INFINITY) continue;
        blind++;
        if (r.data[ARRAY_LSE][row] != -INFINITY) fail_msg("'%s' on %s: log_sum_exp of a blind row", text, attention_machines[m].name);
        for (int64_t x = 0; x < p.is.value_dim; x++)
          if (r.data[ARRAY_OUT][row * p.is.value_dim + x] != 0)
            fail_msg("'%s' on %s: out of a blind row", text, attention_machines[m].name);
        for (int64_t x = 0; x < p.is.head_dim; x++)
          if (r.data[ARRAY_DQUERY][row * p.is.head_dim + x] != 0)
            fail_msg("'%s' on %s: dquery of a blind row", text, attention_machines[m].name);
      }
      if (blind == 0) fail_msg("'%s' has no blind row", text);
      attention_results_free(&r);
    }
    attention_expected_free(&expected);
    attention_problem_free(&p);
  }
}

static void test_blind_rows(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L65,S80,D8,mask",
                                      "dense:B2,H2,L65,D8,mask=3,causal",
                                      "dense:B3,H2,L20,S30,D8,lengths",
                                      "dense:H2,L70,D8,causal,offset=-20",
                                      "dense:H2,L70,D8,causal,offset=-100",
                                      "dense:B2,H2,L70,D8,segments,causal",
                                      "dense:H2,L100,S90,D8,ragged",
                                      "window:H2,L100,D8,W5,offset=300",
                                      "window:H2,L100,D8,W5,offset=-30,causal",
                                      "hierarchical:B2,H2,L70,D8,N4,qmask",
                                      "hierarchical:B2,H2,L70,D8,N4,segments,causal",
                                      "hierarchical:B3,H2,L20,D8,N4,lengths,exact"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_blind_rows(cases[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_causality),
      cmocka_unit_test(test_weights_that_underflow),
      cmocka_unit_test(test_lanes_without_a_query),
      cmocka_unit_test(test_padding),
      cmocka_unit_test(test_query_mask),
      cmocka_unit_test(test_mask),
      cmocka_unit_test(test_bias),
      cmocka_unit_test(test_bias_above_diagonal),
      cmocka_unit_test(test_far_distances),
      cmocka_unit_test(test_blind_rows),
      cmocka_unit_test(test_blind_gradient),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
