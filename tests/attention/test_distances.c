/* test_distances.c - how long a table of log G must be: hark_attention_plan_distances() against what calls take, and what they look at. */
#include "support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"
#include "support/setups.h"

static int64_t distances_of(hark_context *context, const hark_attention_desc *desc, bool has_offset, int64_t offset) {
  hark_attention_plan *plan;
  if (hark_attention_plan_create(context, desc, &plan) != HARK_OK) fail_msg("%s", hark_context_message(context));
  const int64_t distances = hark_attention_plan_distances(plan, has_offset, offset);
  hark_attention_plan_destroy(context, &plan);
  return distances;
}

/* Numbers of a table that is `distances` long: those of a kernel that has no end, and beyond `known` what would be seen. */
static void set_table(attention_problem *p, int64_t distances, int64_t known) {
  attention_numbers *table = &p->array[ARRAY_LOG_KERNEL];
  free(table->data);
  const int64_t columns = p->is.directed ? 2 * distances - 1 : distances, middle = p->is.directed ? distances - 1 : 0;
  table->shape[1] = columns;
  table->count = table->shape[0] * columns;
  table->data = malloc((size_t)table->count * sizeof(double));
  assert_non_null(table->data);
  for (int64_t i = 0; i < table->count; i++) {
    const int64_t distance = i % columns - middle;
    table->data[i] = llabs((long long)distance) < known ? (double)(float)(-2 - 2 * sin((double)distance)) : 50;
  }
}

/* A table of as many distances has all that is read: what is stored after them is not. */
static void check_enough(const char *text) {
  attention_problem p;
  attention_results r[2];
  attention_problem_make(text, &p);
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  const hark_attention_desc desc = attention_problem_desc(&p, HARK_F64);
  const int64_t distances = distances_of(context, &desc, p.is.has_offset, p.is.offset);
  for (int k = 0; k < 2; k++) {
    set_table(&p, distances + (k == 0 ? 0 : 1000), distances);
    attention_run(context, HARK_F64, &p, &r[k]);
  }
  attention_same_bits("a longer table", text, ARRAY_OUT, &r[0], &r[1]);
  attention_same_bits("a longer table", text, ARRAY_DQUERY, &r[0], &r[1]);
  for (int k = 0; k < 2; k++) attention_results_free(&r[k]);
  hark_context_destroy(&context);
  attention_problem_free(&p);
}

static void test_enough(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L9,S11,D4,shared",
                                      "dense:H2,L9,S11,D4,shared,causal",
                                      "dense:H2,L11,S9,D4,shared,causal",
                                      "dense:H2,L9,S11,D4,shared,offset=20",
                                      "dense:H2,L9,S11,D4,shared,offset=-20",
                                      "dense:H2,L9,S11,D4,shared,causal,offset=20",
                                      "dense:H2,L9,S11,D4,shared,causal,offset=-4",
                                      "dense:B3,H2,L9,S11,D4,shared,causal,lengths",
                                      "dense:B2,H2,L17,D4,shared,segments",
                                      "dense:H2,L17,S19,D4,shared,ragged,causal",
                                      "window:H2,L29,D4,W3,shared",
                                      "window:H2,L9,S11,D4,W30,shared,offset=5",
                                      "dense:H2,L9,S11,D4,shared,directed",
                                      "dense:H2,L9,S11,D4,shared,directed,offset=-20",
                                      "dense:B2,H2,L17,D4,shared,directed,segments",
                                      "window:H2,L29,D4,W3,shared,directed",
                                      "hierarchical:H2,L101,D4,N4,shared,directed",
                                      "hierarchical:H2,L101,D4,N4,shared,exact,directed",
                                      "hierarchical:H2,L101,D4,N4,shared,causal",
                                      "hierarchical:H2,L101,D4,N4,shared",
                                      "hierarchical:H2,L101,D4,N4,shared,exact",
                                      "hierarchical:H2,L101,D4,N4,shared,sibling,causal",
                                      "hierarchical:H2,L3,D4,shared",
                                      "hierarchical:B2,H2,L70,D4,N2,shared,segments,linear",
                                      "hierarchical:H2,L70,D4,N2,shared,ragged,causal"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_enough(cases[i]);
}

/* The numbers themselves: counted by hand from queries, keys and offset; Nr 2^M for hierarchies. */
static void test_counts(void **state) {
  (void)state;
  static const struct {
    hark_attention_structure structure;
    hark_attention_normalisation normalisation;
    bool causal;
    int64_t queries, keys, window, block, offset /* 0: the default */, longest, want;
  } cases[] = {{HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, false, 9, 11, 0, 0, 0, 0, 11},
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, false, 11, 9, 0, 0, 0, 0, 11},
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, true, 1, 100, 0, 0, 0, 0, 100}, /* the last query meets the last key */
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, true, 9, 5, 0, 0, 0, 0, 5},
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, false, 9, 11, 0, 0, 20, 0, 29},
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, false, 9, 11, 0, 0, -20, 0, 31},
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, true, 9, 11, 0, 0, -20, 0, 1}, /* no query sees a key */
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_SOFTMAX, true, 64, 64, 0, 0, 0, 10, 10},
               {HARK_STRUCTURE_WINDOW, HARK_NORMALISATION_SOFTMAX, false, 50, 50, 3, 0, 0, 0, 4},
               {HARK_STRUCTURE_WINDOW, HARK_NORMALISATION_SOFTMAX, true, 5, 5, 30, 0, 0, 0, 5},
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_CME, true, 3, 20, 0, 0, -18, 0, 20}, /* keys meet keys */
               {HARK_STRUCTURE_DENSE, HARK_NORMALISATION_CME, false, 3, 20, 0, 0, 30, 0, 33},
               {HARK_STRUCTURE_HIERARCHICAL, HARK_NORMALISATION_SOFTMAX, true, 101, 101, 0, 4, 0, 0, 128},
               {HARK_STRUCTURE_HIERARCHICAL, HARK_NORMALISATION_SOFTMAX, false, 128, 128, 0, 4, 0, 0, 128},
               {HARK_STRUCTURE_HIERARCHICAL, HARK_NORMALISATION_SOFTMAX, false, 129, 129, 0, 4, 0, 0, 256},
               {HARK_STRUCTURE_HIERARCHICAL, HARK_NORMALISATION_SOFTMAX, false, 3, 3, 0, 0, 0, 0, 32},
               {HARK_STRUCTURE_HIERARCHICAL, HARK_NORMALISATION_SOFTMAX, true, 500, 500, 0, 16, 0, 60, 64}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hark_attention_desc desc = hark_attention_desc_default();
    desc.batch = desc.heads = 1;
    desc.head_dim = 2;
    desc.structure = cases[i].structure;
    desc.normalisation = cases[i].normalisation;
    desc.ridge = desc.normalisation == HARK_NORMALISATION_CME ? 1 : 0;
    desc.causal = cases[i].causal;
    desc.query_length = cases[i].queries;
    desc.key_length = cases[i].keys;
    desc.window = cases[i].window;
    desc.hierarchy_block = cases[i].block;
    desc.longest = cases[i].longest;
    const int64_t have = distances_of(context, &desc, cases[i].offset != 0, cases[i].offset);
    if (have != cases[i].want) fail_msg("case %d: %d distances, expected %d", (int)i, (int)have, (int)cases[i].want);
  }
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = desc.heads = 1;
  desc.head_dim = desc.query_length = desc.key_length = 2;
  assert_true(distances_of(context, &desc, true, INT64_MAX) == 0);
  assert_true(distances_of(context, &desc, true, INT64_MIN) == 0);
  assert_true(distances_of(context, &desc, true, (int64_t)1 << 40) == ((int64_t)1 << 40) + 2);
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_enough), cmocka_unit_test(test_counts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
