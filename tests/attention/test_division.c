/* test_division.c - how a batch is divided changes nothing: packed sequences against separate calls, threads, accumulation, single
 * gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

/* Copies rows [from, from + count) of item b of [B, H, L, d] into a problem of one sequence. */
static void take_rows(const attention_numbers *from, int64_t b, int64_t first, attention_numbers *to) {
  for (int64_t h = 0; h < to->shape[1]; h++)
    memcpy(to->data + h * to->shape[2] * to->shape[3], from->data + ((b * from->shape[1] + h) * from->shape[2] + first) * from->shape[3],
           (size_t)(to->shape[2] * to->shape[3]) * sizeof(double));
}

/* Compares rows of a packed result with all rows of a result of one sequence: by bits on the reference, else within twice the bound. */
static void compare_rows(const char *text, const attention_machine *machine, attention_array array, const attention_results *packed,
                         int64_t packed_heads, int64_t packed_rows, int64_t b, int64_t first, const attention_expected *expected,
                         const attention_results *alone) {
  const attention_numbers *shape = &expected->array[array];
  const int64_t width = shape->rank == 4 ? shape->shape[3] : 1;
  for (int64_t i = 0; i < shape->count; i++) {
    const int64_t h = i / (shape->shape[2] * width), row = i / width % shape->shape[2];
    const double have = packed->data[array][((b * packed_heads + h) * packed_rows + first + row) * width + i % width];
    const double want = alone->data[array][i];
    if (have == want) continue;
    const double within = strcmp(machine->backend, "reference") == 0
                              ? 0
                              : 4 * machine->computing_roundoff * expected->bound[array][i] + 4 * machine->storing_roundoff * fabs(want);
    if (!(fabs(have - want) <= within))
      fail_msg("'%s' on %s: %s of a packed sequence is %.9g, alone %.9g (element %" PRId64 ")", text, machine->name,
               attention_array_names[array], have, want, i);
  }
}

/* One sequence of a packed problem, run alone; or of a causal sequence some last rows, with the keys up to them, and then gradients of keys
 * and values are not compared. */
static void check_sequence(bool whole, const attention_machine *machine, const attention_problem *packed, const attention_results *results,
                           int64_t b, int64_t query_first, int64_t queries, int64_t key_first, int64_t keys) {
  char text[ATTENTION_CASE_BYTES];
  const attention_case *c = &packed->is;
  snprintf(text, sizeof text, "dense:H%d,K%d,L%d,S%d,D%d%s%s", (int)c->heads, (int)c->key_heads, (int)queries, (int)keys, (int)c->head_dim,
           c->causal ? ",causal" : "", c->forget ? ",forget" : "");
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  take_rows(&packed->array[ARRAY_QUERY], b, query_first, &p.array[ARRAY_QUERY]);
  take_rows(&packed->array[ARRAY_DOUT], b, query_first, &p.array[ARRAY_DOUT]);
  take_rows(&packed->array[ARRAY_KEY], b, key_first, &p.array[ARRAY_KEY]);
  take_rows(&packed->array[ARRAY_VALUE], b, key_first, &p.array[ARRAY_VALUE]);
  for (int64_t h = 0; c->forget && h < c->heads; h++)
    memcpy(p.array[ARRAY_FORGET].data + h * keys, packed->array[ARRAY_FORGET].data + (b * c->heads + h) * c->keys + key_first,
           (size_t)keys * sizeof(double));
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  compare_rows(c->text, machine, ARRAY_OUT, results, c->heads, c->queries, b, query_first, &e, &r);
  compare_rows(c->text, machine, ARRAY_LSE, results, c->heads, c->queries, b, query_first, &e, &r);
  compare_rows(c->text, machine, ARRAY_DQUERY, results, c->heads, c->queries, b, query_first, &e, &r);
  if (whole) compare_rows(c->text, machine, ARRAY_DKEY, results, c->key_heads, c->keys, b, key_first, &e, &r);
  if (whole) compare_rows(c->text, machine, ARRAY_DVALUE, results, c->key_heads, c->keys, b, key_first, &e, &r);
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static int check_runs_of_ids(const attention_machine *machine, const attention_problem *p, const attention_results *results) {
  int sequences = 0;
  for (int64_t b = 0; b < p->is.batch; b++)
    for (int64_t first = 0, end; first < p->is.keys; first = end) {
      const int64_t *ids = p->segments + b * p->is.keys;
      for (end = first; end < p->is.keys && ids[end] == ids[first]; end++) continue;
      if (ids[first] < 0) continue;
      check_sequence(true, machine, p, results, b, first, end - first, first, end - first);
      sequences++;
    }
  return sequences;
}

static void check_packed(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_results r;
  attention_problem_make(text, &p);
  if (attention_run_on(machine, &p, &r)) {
    int sequences = 0;
    for (int64_t s = 0; s < p.sequences; s++) {
      const int64_t q = p.query_offsets[s], k = p.key_offsets[s], queries = p.query_offsets[s + 1] - q, keys = p.key_offsets[s + 1] - k;
      if (queries == 0 || keys == 0) continue;
      check_sequence(true, machine, &p, &r, 0, q, queries, k, keys);
      sequences++;
    }
    if (p.segments != NULL) sequences = check_runs_of_ids(machine, &p, &r);
    for (int64_t b = 0; p.key_lengths != NULL && b < p.is.batch; b++)
      if (p.key_lengths[b] > 0) {
        check_sequence(true, machine, &p, &r, b, 0, p.is.queries, 0, p.key_lengths[b]);
        sequences++;
      }
    assert_true(sequences >= 2);
    attention_results_free(&r);
  }
  attention_problem_free(&p);
}

static void test_packed(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H4,K2,L130,S100,D8,ragged", "dense:H2,L130,S120,D8,ragged,causal,forget",
                                      "dense:B2,H2,L130,D8,segments",    "dense:B2,H4,K2,L70,D8,segments,causal,forget",
                                      "dense:B4,H2,L20,S70,D8,lengths",  "dense:H2,L30,S120,D16,ragged"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++) check_packed(&attention_machines[m], cases[i]);
}

/* One new row after another, or a few at a time, against the keys so far: what a key/value cache is for. The default offset puts the last
 * query on the last key. */
static void test_decoding(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H4,K2,L70,D16,causal", "dense:H2,L140,D8,causal,forget"};
  static const int64_t lengths[] = {1, 2, 3, 16, 17, 33, 64, 65, 70}, news[] = {1, 2, 5};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      attention_problem p;
      attention_results r;
      attention_problem_make(cases[i], &p);
      if (attention_run_on(&attention_machines[m], &p, &r)) {
        for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
          for (size_t n = 0; n < sizeof news / sizeof news[0]; n++)
            if (news[n] <= lengths[k])
              check_sequence(false, &attention_machines[m], &p, &r, 0, lengths[k] - news[n], news[n], 0, lengths[k]);
        attention_results_free(&r);
      }
      attention_problem_free(&p);
    }
}

/* The number of threads changes no bit. */
static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H4,K2,L130,D16,causal",
                                      "dense:H2,L200,D9,causal,kernel",
                                      "dense:H1,L300,D8,V5,bias=15,kernel",
                                      "dense:H2,L200,D8,causal,forget,shared",
                                      "dense:H2,L200,D9,kernel,directed",
                                      "dense:H3,L200,S190,D8,ragged,bias,mask",
                                      "window:H2,L200,D8,W20,dropout=0.2,accumulate",
                                      "dense:H4,K1,L100,D8,bias=7",
                                      "dense:B30,H4,L4,S20,D16"};
  static const int64_t threads[] = {2, 3, 7};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      attention_problem p;
      attention_problem_make(cases[i], &p);
      attention_same_with_threads(&attention_machines[m], &p, cases[i], sizeof threads / sizeof threads[0], threads);
      attention_problem_free(&p);
    }
}

/* Each gradient accumulated alone, while the others are overwritten; and each asked for alone. */
static void test_single_gradients(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H4,K2,L70,D9,causal,forget,kernel,bias=3", "dense:B3,H2,L50,D8,lengths,shared,bias=15",
                                      "dense:H2,L90,D9,ragged,bias,kernel", "window:B2,H2,L70,D8,W9,rbf,bias=7,segments",
                                      "dense:B2,H2,L4,S70,D9"};
  int failures = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attention_problem p;
    attention_expected e;
    attention_problem_make(cases[i], &p);
    attention_expected_make(&p, &e);
    for (int array = ARRAY_DQUERY; array < ARRAY_COUNT; array++) {
      if (e.array[array].count == 0) continue;
      for (int m = 0; m < attention_machine_count; m++) {
        attention_results r;
        p.accumulate = attention_accumulate_bit((attention_array)array);
        p.unwanted = 0;
        if (!attention_run_on(&attention_machines[m], &p, &r)) continue;
        failures += attention_compare(&attention_machines[m], &p, &e, &r);
        attention_results_free(&r);
        p.accumulate = 0;
        for (int other = ARRAY_DQUERY; other < ARRAY_COUNT; other++) p.unwanted |= other == array ? 0 : 1u << other;
        attention_run_on(&attention_machines[m], &p, &r);
        failures += attention_compare(&attention_machines[m], &p, &e, &r);
        attention_results_free(&r);
      }
    }
    attention_expected_free(&e);
    attention_problem_free(&p);
  }
  if (failures > 0) fail_msg("%d comparisons failed", failures);
}

/* Forward alone, without log_sum_exp. */
static void test_forward_alone(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L70,D9,causal", "dense:B3,H2,L50,D8,lengths", "dense:L1,S100,D64,causal",
                                      "dense:B2,H2,L4,S70,D9"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      attention_problem p;
      attention_results both, alone;
      attention_problem_make(cases[i], &p);
      if (attention_run_on(&attention_machines[m], &p, &both)) {
        p.unwanted = 1u << ARRAY_LSE;
        attention_run_on(&attention_machines[m], &p, &alone);
        attention_same_bits(attention_machines[m].name, cases[i], ARRAY_OUT, &both, &alone);
        attention_results_free(&both);
        attention_results_free(&alone);
      }
      attention_problem_free(&p);
    }
}

/* Two threads, each with a context of its own, execute one plan at the same time on memory of their own. */
typedef struct shared_plan_run {
  const attention_machine *machine;
  const hark_attention_plan *plan;
  float query[2 * 60 * 8], key[2 * 60 * 8], value[2 * 60 * 8], out[2 * 60 * 8];
  hark_status status;
} shared_plan_run;

static void *execute_shared_plan(void *data) {
  enum { TIMES = 20 };
  shared_plan_run *run = data;
  hark_context *context = attention_machine_open(run->machine, 1);
  const int64_t shape[] = {1, 2, 60, 8};
  hark_attention_args args = {.struct_size = sizeof args,
                              .workspace = aligned_alloc(64, hark_attention_plan_sizes(run->plan).forward_workspace)};
  run->status = hark_tensor_wrap(context, run->query, HARK_F32, 4, shape, NULL, &args.query);
  if (run->status == HARK_OK) run->status = hark_tensor_wrap(context, run->key, HARK_F32, 4, shape, NULL, &args.key);
  if (run->status == HARK_OK) run->status = hark_tensor_wrap(context, run->value, HARK_F32, 4, shape, NULL, &args.value);
  if (run->status == HARK_OK) run->status = hark_tensor_wrap(context, run->out, HARK_F32, 4, shape, NULL, &args.out);
  for (int i = 0; i < TIMES && run->status == HARK_OK; i++) run->status = hark_attention_forward(context, run->plan, &args);
  free(args.workspace);
  hark_context_destroy(&context);
  return NULL;
}

static void test_shared_plan(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    const attention_machine *machine = &attention_machines[m];
    /* The guard's memory is its own, and what is wrapped here is not. */
    if (machine->type != HARK_F32 || strcmp(machine->backend, "guard") == 0) continue;
    hark_context *context = attention_machine_open(machine, 1);
    if (context == NULL) continue;
    hark_attention_desc desc = hark_attention_desc_default();
    desc.batch = 1;
    desc.heads = 2;
    desc.query_length = desc.key_length = 60;
    desc.head_dim = 8;
    desc.causal = true;
    hark_attention_plan *plan;
    assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
    static shared_plan_run runs[2];
    pthread_t threads[2];
    for (int k = 0; k < 2; k++) {
      runs[k] = (shared_plan_run){.machine = machine, .plan = plan};
      for (int i = 0; i < 2 * 60 * 8; i++) {
        runs[k].query[i] = sinf((float)i);
        runs[k].key[i] = cosf((float)i);
        runs[k].value[i] = sinf(2 * (float)i);
      }
      assert_int_equal(pthread_create(&threads[k], NULL, execute_shared_plan, &runs[k]), 0);
    }
    for (int k = 0; k < 2; k++) assert_int_equal(pthread_join(threads[k], NULL), 0);
    for (int k = 0; k < 2; k++) assert_int_equal(runs[k].status, HARK_OK);
    assert_memory_equal(runs[0].out, runs[1].out, sizeof runs[0].out);
    hark_attention_plan_destroy(context, &plan);
    hark_context_destroy(&context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed),        cmocka_unit_test(test_decoding),
                                     cmocka_unit_test(test_threads),       cmocka_unit_test(test_single_gradients),
                                     cmocka_unit_test(test_forward_alone), cmocka_unit_test(test_shared_plan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
