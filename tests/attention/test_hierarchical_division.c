/* test_hierarchical_division.c - hierarchical attention of many rows: cut into pieces and windows, handed to any number of threads.
 *
 *     test_hierarchical_division                      all; single cases: test_hierarchical 'CASE'
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

/* So many rows that a head is cut into several pieces (hierarchical_tile.h: of 256 rows, or four blocks), of which the last has less rows
 * than a block or than two, even and odd ones, and into subtrees with roots above level 0; and keys that end before the last pieces. */
static void test_pieces(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:L1034,D8,N8,threads=7",
      "hierarchical:L1290,D8,N8,threads=7",
      "hierarchical:L1290,D8,N8,causal,threads=7",
      "hierarchical:L1290,D8,N8,threads=1",
      "hierarchical:L1287,D8,N8,sibling,threads=2",
      "hierarchical:L1287,D8,N8,causal,sibling,threads=3",
      "hierarchical:L1290,D8,N8,linear,threads=7",
      "hierarchical:B2,H4,K2,L2090,D8,V5,N8,linear,first,mask,qmask,rbf,dropout=0.2,hbias,kernel,threads=3",
      "hierarchical:L1290,D8,N8,exact,threads=7",
      "hierarchical:L1290,D8,N8,causal,exact,threads=7",
      "hierarchical:H4,K2,L2100,D8,V5,N8,exact,rbf,threads=3", /* hark_part_rows(): three parts, the last shorter than a block */
      "hierarchical:L2100,D8,N6,causal,exact,dropout=0.2,mask,threads=7",
      "hierarchical:L2600,D8,N38,exact,sibling,qmask,threads=1",
      "hierarchical:L2100,D8,N2,causal,exact,sibling,accumulate,threads=2",
      "hierarchical:B3,L2100,D8,N8,lengths,exact,threads=7",
      "hierarchical:L1290,D8,N8,mask,qmask,first,threads=7",
      "hierarchical:B3,L1290,D8,N8,lengths,threads=7",
      "hierarchical:B3,L1290,D8,N8,lengths,causal,threads=7",
      "hierarchical:L2100,D8,N8,causal,rbf,dropout=0.2,threads=7",
      "hierarchical:L2600,D8,N300,causal,threads=7",
  };
  check_hierarchies(cases, sizeof cases / sizeof cases[0]);
}

/* So many rows that the backward of a head works in windows (hierarchical_tile.h: from 8192 rows on, of 1024 each): an odd and an even
 * number of them, of which the last has less rows than those beside it reach, even windows at once, blocks of all sizes. The definition
 * takes seconds at such lengths, so that it is asked for one case, and for the others the reference in f64, which it is compared with at
 * shorter ones; a gradient that is lost at an edge is an error of its own size. */
static void agrees_with_reference(const char *text) {
  attention_problem p;
  attention_results want, have;
  attention_problem_make(text, &p);
  assert_true(attention_run_on(ATTENTION_ORACLE, &p, &want));
  for (int m = 0; m < attention_machine_count; m++) {
    if (attention_machines[m].computing_roundoff < FLT_EPSILON / 2 || !attention_run_on(&attention_machines[m], &p, &have)) continue;
    for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++) {
      double largest = 0;
      for (int64_t i = 0; i < want.count[array]; i++)
        if (isfinite(want.data[array][i])) largest = fmax(largest, fabs(want.data[array][i]));
      assert_int_equal(have.count[array], want.count[array]);
      for (int64_t i = 0; i < want.count[array]; i++) {
        const double a = have.data[array][i], b = want.data[array][i];
        if (!(a == b || fabs(a - b) <= 1e-4 * largest))
          fail_msg("'%s' on %s: %s[%lld] is %.9g, expected %.9g", text, attention_machines[m].name, attention_array_names[array],
                   (long long)i, a, b);
      }
    }
    attention_results_free(&have);
  }
  attention_results_free(&want);
  attention_problem_free(&p);
}

static void test_windows(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B1,H1,L8193,D1,N8,causal,rbf,dropout=0.2,accumulate,threads=3"};
  static const char *const others[] = {
      "hierarchical:B1,H1,L8196,D4,N16,threads=2",
      "hierarchical:B1,H2,K1,L9218,D16,N64,causal,accumulate,threads=2",
      "hierarchical:B1,H1,L9226,D2,N64,threads=2",
      "hierarchical:B1,H1,L8195,D3,V5,N8,first,mask,qmask,threads=2",
      "hierarchical:B1,H1,L9218,D2,N32,first,causal,threads=3",
      "hierarchical:B1,H1,L8193,D16,N4,sibling,hbias,kernel,threads=1",
      "hierarchical:B1,H1,L8200,D2,N2,rbf,threads=2",
      "hierarchical:B1,H1,L8196,D4,N16,linear,threads=2",
      "hierarchical:B1,H1,L9218,D3,V5,N2,linear,sibling,mask,qmask,rbf,threads=2",
      "hierarchical:B1,H2,K1,L9221,D2,N64,linear,first,qmask,dropout=0.2,accumulate,threads=3",
      "hierarchical:B1,H1,L8193,D16,N8,linear,hbias,kernel,threads=1",
  };
  check_hierarchies(cases, sizeof cases / sizeof cases[0]);
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) agrees_with_reference(others[i]);
}

/* The same bits whatever the number of threads: where a head is spread over them, where each head has one, and where a plan for longer
 * sequences has memory for one way only. Long cases run on what computes in f32 alone: the rest takes one head a thread always. Those in
 * windows, which are handed out by the same code on every instruction set, run on the generic one and, under guard, on the best one; with
 * the widest blocks, where two even windows come closest, rows are so long that a window takes longer than a thread takes to begin. */
enum { ANY_MACHINE, SINGLE_PRECISION, SINGLE_PRECISION_TWO };
static bool is_chosen(const attention_machine *machine, int which) {
  if (which != ANY_MACHINE && machine->computing_roundoff < FLT_EPSILON / 2) return false;
  return which != SINGLE_PRECISION_TWO || strcmp(machine->name, "generic") == 0 || strcmp(machine->name, "guard") == 0;
}

static void same_with_threads(const char *text, int which) {
  static const int64_t threads[] = {2, 3, 7};
  for (int m = 0; m < attention_machine_count; m++) {
    attention_problem p;
    if (!is_chosen(&attention_machines[m], which)) continue;
    attention_problem_make(text, &p);
    attention_same_with_threads(&attention_machines[m], &p, text, sizeof threads / sizeof threads[0], threads);
    attention_problem_free(&p);
  }
}

static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:B3,H1,L1290,D8,N8,lengths",
      "hierarchical:B3,H2,L1290,D8,N8,lengths,causal,mask,qmask",
      "hierarchical:B1,H4,K2,L1290,D8,N8,dropout=0.2",
      "hierarchical:B1,H4,K1,L1034,D8,N8,causal,rbf,dropout=0.2",
      "hierarchical:B2,H4,K2,L300,D8,N8,kernel,hbias",
      "hierarchical:B2,H4,K2,L300,D8,N8,kernel,directed,hbias",
      "hierarchical:B3,H4,K2,L300,D8,N8,shared,hshared,causal,lengths,dropout=0.2",
      "hierarchical:H2,K1,L300,D8,N4,ragged,kernel,hbias,accumulate",
      "hierarchical:B2,H2,L700,D20,V7,N8,segments,accumulate",
      "hierarchical:H1,L2100,D8,N8,causal",
      "hierarchical:H1,L3200,D8,N300,causal",
      "hierarchical:H1,L3080,D8,N8,exact",
      "hierarchical:H2,K1,L2100,D9,V17,N6,causal,exact,rbf,dropout=0.2,accumulate",
      "hierarchical:B1,H4,K2,L2100,D20,V7,N8,linear,dropout=0.2",
      "hierarchical:B3,H2,L1290,D8,N8,linear,first,lengths,mask,qmask,rbf",
      "hierarchical:B2,H4,K2,L300,D8,N8,linear,kernel,hbias,accumulate",
      "hierarchical:B4,H1,L300,D8,N8,roomy=9000",
      "hierarchical:B4,H1,L2000,D8,N8,roomy=5000,causal",
  };
  static const char *const windows[] = {
      "hierarchical:B1,H1,L12500,D20,N16,sibling", /* the forward in windows but for 7 threads, as the next */
      "hierarchical:B1,H1,L13000,D16,N8,first,causal,accumulate",
      "hierarchical:B1,H1,L8700,D4,N2,mask,qmask",
      "hierarchical:B1,H1,L10241,D32,N64,causal",
      "hierarchical:B1,H1,L9300,D4,N32,accumulate",
      "hierarchical:B2,H2,K1,L10200,D4,N8,lengths,mask,qmask,rbf",
      "hierarchical:B1,H1,L9200,D32,N64,causal,hbias,kernel,dropout=0.2",
      "hierarchical:B1,H1,L12500,D16,N16,linear",
      "hierarchical:B1,H1,L9300,D16,N64,linear,sibling,first,mask,qmask,rbf",
      "hierarchical:B1,H1,L10241,D32,N64,causal", /* again, because it takes luck to meet two windows at work */
  };
  for (size_t k = 0; k < HIERARCHY_KINDS; k++) {
    char text[ATTENTION_CASE_BYTES];
    snprintf(text, sizeof text, "hierarchical:H1,L700,D20,N8%s", hierarchy_kinds[k]);
    same_with_threads(text, ANY_MACHINE);
  }
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) same_with_threads(cases[i], SINGLE_PRECISION);
  for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) same_with_threads(windows[i], SINGLE_PRECISION_TWO);
}

static hark_attention_sizes sizes_of(int threads, int64_t length) {
  const hark_context_options options = {.struct_size = sizeof options, .backend = "cpu", .threads = threads};
  hark_context *context;
  hark_attention_plan *plan;
  hark_attention_desc desc = hark_attention_desc_default();
  desc.structure = HARK_STRUCTURE_HIERARCHICAL;
  desc.batch = desc.heads = 1;
  desc.query_length = desc.key_length = length;
  desc.head_dim = 64;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  return sizes;
}

/* More threads than there are heads take more memory for their tiles and windows, which grow with the levels, not with the length, but none
 * for trees that none of them works on. */
static void test_workspace(void **state) {
  (void)state;
  enum { LENGTH = 65536 };
  size_t forward[2], backward[2];
  for (int k = 0; k < 2; k++) {
    const hark_attention_sizes one = sizes_of(1, LENGTH << k), eight = sizes_of(8, LENGTH << k);
    forward[k] = eight.forward_workspace - one.forward_workspace;
    backward[k] = eight.backward_workspace - one.backward_workspace;
  }
  assert_true(forward[1] <= forward[0] + forward[0] / 8); /* both 0 in a build without threads */
  assert_true(backward[1] <= backward[0] + backward[0] / 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_windows),
      cmocka_unit_test(test_workspace),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
