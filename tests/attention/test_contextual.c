/* test_contextual.c - contextual positions on every backend, instruction set and type against their definition in float64
 * (support/attention_contextual.c), and what must hold of them whatever their numbers.
 *
 *     test_contextual                                  everything
 *     test_contextual 'dense:L65,D7,C9,causal'         these cases alone, on every machine
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

static void check_all(const char *const *cases, size_t count) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) failures += attention_check_case(cases[i], false) > 0;
  assert_true(count > 0);
  if (failures > 0) fail_msg("%d of %zu cases failed; run one again with: test_contextual 'CASE'", failures, count);
}

/* Lengths from 1 to 70 and around the edges of tiles, and numbers of positions, with options taking turns. */
static void test_lengths(void **state) {
  (void)state;
  static const char *const options[] = {"", ",forget", ",bias", ",mask", ",kernel", ",dropout=0.25", ",cshared"};
  static const int edges[] = {95, 96, 97, 127, 128, 129, 191, 193, 257}, positions[] = {2, 3, 8, 17, 64, 300};
  int failures = 0;
  for (int i = 1; i <= 70 + (int)(sizeof edges / sizeof *edges); i++) {
    char text[ATTENTION_CASE_BYTES];
    const int length = i <= 70 ? i : edges[i - 71], keys = i % 2 == 0 ? length : 1 + (length * 37) % 131;
    snprintf(text, sizeof text, "dense:B1,H2,K1,L%d,S%d,D%d,C%d,causal%s,seed=%d", length, keys, 1 + (length * 5) % 19, positions[i % 6],
             options[i % 7], i);
    failures += attention_check_case(text, false) > 0;
  }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

static void test_options(void **state) {
  (void)state;
  static const char *const cases[] = {
      "dense:L1,D1,C2,causal",
      "dense:L2,D1,C2,causal",
      "dense:B2,H4,K2,L65,D7,C5,causal,bias",
      "dense:B2,H4,K1,L66,S70,D16,V5,C12,causal",
      "dense:B2,H2,L70,S33,D8,C9,causal",
      "dense:B1,H2,L9,S70,D8,C9,causal,offset=0",
      "dense:B1,H2,L9,S70,D8,C9,causal,offset=30",
      "dense:B1,H2,L70,D8,C9,causal,offset=-20",
      "dense:B1,H2,L70,D8,C9,causal,offset=-100",
      "dense:B1,H2,L70,D8,C9,causal,offset=200",
      "dense:B2,H2,L65,S40,D8,C20,causal,bias=8",
      "dense:B2,H2,L65,S80,D8,C20,causal,bias,hiding",
      "dense:B2,H2,L65,D8,C20,causal,kernel,hiding",
      "dense:H2,L170,D8,C4,causal,kernel,hiding",
      "dense:B2,H3,L65,D8,C9,causal,shared,cshared,expanded,accumulate,threads=3",
      "dense:B2,H3,L65,D8,C9,causal,cshared,accumulate",
      "dense:B2,H2,L65,S80,D8,C30,causal,mask=3",
      "dense:B2,H2,L65,S80,D8,C30,causal,mask=7",
      "dense:B2,H4,K2,L130,D8,C40,causal,forget",
      "dense:B1,H2,L70,S50,D8,C9,causal,forget,offset=10",
      "dense:B2,H4,K2,L130,D8,C16,causal,forget,kernel,bias=4,mask,dropout=0.1",
      "dense:B2,H4,K2,L70,D8,C16,causal,dropout=0.9",
      "dense:B3,H2,L70,D8,C16,causal,lengths",
      "dense:B3,H4,K2,L130,D16,C50,causal,lengths,forget,dropout=0.3",
      "dense:H4,K2,L200,D8,C16,causal,ragged",
      "dense:H4,K2,L200,S190,D8,C16,causal,ragged,bias,mask,kernel,forget,dropout=0.2",
      "dense:B2,H4,K2,L200,D8,C16,causal,segments,kernel",
      "dense:B2,H4,K2,L100,D24,V17,C8,causal,layout=2",
      "dense:B3,H4,K2,L70,D9,C8,causal,layout=2,forget,accumulate,lengths,misaligned",
      "dense:B2,H2,L130,D64,C16,causal,large",
      "dense:B2,H4,K2,L50,D8,C100,causal,roomy,forget,segments",
      "dense:B2,H2,L50,D8,C16,causal,bf16",
      "dense:B1,H1,L300,D40,C64,causal,threads=3",
      "dense:B1,H8,K1,L1,S300,D80,C64,causal",
      "dense:B2,H2,L1,S200,D128,C16,causal,forget,kernel",
      "dense:B2,H2,L1,S200,D16,C16,causal,bias,hiding,dropout=0.3",
      "dense:B2,H4,K2,L3,S66,D33,C16,causal,layout=2,misaligned",
      "dense:B2,H2,L4,S200,D64,C16,causal,offset=7",
      "dense:B2,H2,L1,S40,D64,C16,causal,offset=-1",
      "dense:H2,L4,S300,D64,C16,causal,ragged",
      "dense:L20,D4,C5000,causal",
      "window:H1,L640,D4,C9,W100,causal,bias=7",
      "window:H1,L640,D4,C40,W100,causal,bias=4",
      "window:B2,H2,L70,D8,C3,W0,causal",
      "window:B2,H4,K2,L200,D8,C9,W16,causal",
      "window:B2,H2,L200,D8,C40,W63,causal",
      "window:B2,H2,L200,D8,C40,W64,causal",
      "window:B2,H2,L200,S40,D8,C9,W20,causal",
      "window:B2,H2,L150,D8,C9,W25,causal,kernel,bias=1,mask=2,forget,dropout=0.2",
      "window:B2,H2,L150,D8,C5,W9,causal,segments",
      "window:B2,H2,L3,S200,D64,C9,W20,causal",
  };
  check_all(cases, sizeof cases / sizeof *cases);
}

/* Fails unless results of two problems agree within both definitions' bounds, in `arrays`. */
static void assert_agree(const char *what, const attention_machine *machine, const attention_problem *p, const attention_results *a,
                         const attention_expected *of_a, const attention_results *b, const attention_expected *of_b,
                         const attention_array *arrays, size_t count) {
  for (size_t k = 0; k < count; k++)
    for (int64_t i = 0; i < a->count[arrays[k]]; i++)
      if (a->data[arrays[k]][i] != b->data[arrays[k]][i])
        attention_assert_near(what, p->is.text, machine, i, a->data[arrays[k]][i], b->data[arrays[k]][i],
                              attention_tolerance(machine, of_a, arrays[k], i) + attention_tolerance(machine, of_b, arrays[k], i));
}

/* A table of zeros is as none; a table of equal rows adds one number to all logits of a row, which changes no weight. */
static void test_shifts(void **state) {
  (void)state;
  static const char with[] = "dense:B2,H4,K2,L70,S90,D8,C100,causal,forget,kernel",
                    without[] = "dense:B2,H4,K2,L70,S90,D8,causal,forget,kernel";
  static const attention_array same[] = {ARRAY_OUT, ARRAY_DKEY, ARRAY_DVALUE, ARRAY_DLOG_KERNEL, ARRAY_DFORGET, ARRAY_DQUERY, ARRAY_LSE};
  for (int equal = 0; equal < 2; equal++)
    for (int machine = 0; machine < attention_machine_count; machine++) {
      attention_problem p, plain;
      attention_expected e, of_plain;
      attention_results r, plainly;
      attention_problem_make(with, &p);
      attention_problem_make(without, &plain);
      attention_numbers *const table = &p.array[ARRAY_CONTEXTUAL];
      for (int64_t i = 0; i < table->count; i++) table->data[i] = equal ? table->data[i / (100 * 8) * 100 * 8 + i % 8] : 0;
      attention_expected_make(&p, &e);
      attention_expected_make(&plain, &of_plain);
      if (attention_run_on(&attention_machines[machine], &p, &r)) {
        attention_run_on(&attention_machines[machine], &plain, &plainly);
        /* log_sum_exp moves with all logits */
        assert_agree(equal ? "equal rows" : "rows of zeros", &attention_machines[machine], &p, &r, &e, &plainly, &of_plain, same,
                     equal ? 6 : 7);
        attention_results_free(&r);
        attention_results_free(&plainly);
      }
      attention_expected_free(&e);
      attention_expected_free(&of_plain);
      attention_problem_free(&p);
      attention_problem_free(&plain);
    }
}

/* Gates of 1 count visible keys: the term is that of a table by number, here by distance + 1. Gates of 0 leave every key at position 0. */
static void test_counting(void **state) {
  (void)state;
  enum { DIM = 4, ROWS = 80, POSITIONS = 20 };
  static const char text[] = "dense:L80,D4,C20,causal,bias=3";
  for (int open = 0; open < 2; open++)
    for (int machine = 0; machine < attention_machine_count; machine++) {
      attention_problem p, plain;
      attention_results r, plainly;
      attention_problem_make(text, &p);
      for (int64_t i = 0; i < ROWS * DIM; i++) {
        const double q = p.array[ARRAY_QUERY].data[i];
        p.array[ARRAY_QUERY].data[i] = i % DIM == 0 ? 16 : q;
        p.array[ARRAY_KEY].data[i] = i % DIM == 0 ? (open ? 12 : -12) : 0; /* scale q.k is +-96: a gate is 1 or 1e-42 */
      }
      attention_problem_make("dense:L80,D4,causal,bias=3", &plain);
      memcpy(plain.array[ARRAY_QUERY].data, p.array[ARRAY_QUERY].data, ROWS * DIM * sizeof(double));
      memcpy(plain.array[ARRAY_KEY].data, p.array[ARRAY_KEY].data, ROWS * DIM * sizeof(double));
      for (int64_t n = 0; n < ROWS; n++)
        for (int64_t i = 0; i <= n; i++) {
          const int64_t position = !open ? 0 : n - i + 1 < POSITIONS - 1 ? n - i + 1 : POSITIONS - 1;
          double term = 0;
          for (int64_t x = 0; x < DIM; x++)
            term += p.scale * p.array[ARRAY_QUERY].data[n * DIM + x] * p.array[ARRAY_CONTEXTUAL].data[position * DIM + x];
          plain.array[ARRAY_BIAS].data[n * ROWS + i] += term;
        }
      if (attention_run_on(&attention_machines[machine], &p, &r)) {
        attention_run_on(&attention_machines[machine], &plain, &plainly);
        /* logits are below 200, and the bias of `plain` is rounded once more */
        const double within =
            200 * 64 * attention_machines[machine].computing_roundoff + 200 * 8 * attention_machines[machine].storing_roundoff;
        for (int64_t i = 0; i < r.count[ARRAY_OUT]; i++)
          attention_assert_near(open ? "gates of 1" : "gates of 0", text, &attention_machines[machine], i, r.data[ARRAY_OUT][i],
                                plainly.data[ARRAY_OUT][i], within);
        attention_results_free(&r);
        attention_results_free(&plainly);
      }
      attention_problem_free(&p);
      attention_problem_free(&plain);
    }
}

/* The bits do not depend on the number of threads. */
static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L300,D16,C20,causal,forget,kernel,bias", "dense:B3,H4,K2,L150,D8,C9,causal,lengths,cshared",
                                      "window:H1,L300,D8,C9,W70,causal"};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int machine = 0; machine < attention_machine_count; machine++) {
      attention_problem p;
      attention_results one, many;
      attention_problem_make(cases[k], &p);
      p.is.threads = 1;
      if (attention_run_on(&attention_machines[machine], &p, &one)) {
        p.is.threads = 5;
        attention_run_on(&attention_machines[machine], &p, &many);
        for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++)
          attention_same_bits("1 and 5 threads", cases[k], (attention_array)array, &one, &many);
        attention_results_free(&one);
        attention_results_free(&many);
      }
      attention_problem_free(&p);
    }
}

/* A part of the rows of a problem's array, [B, H, L, d]: items `from_item` on, rows `from` on, as many as `to` has. */
static void take_part(const attention_numbers *from, int64_t item, int64_t row, attention_numbers *to) {
  for (int64_t h = 0; h < to->shape[1]; h++)
    for (int64_t i = 0; i < to->shape[2]; i++)
      memcpy(to->data + (h * to->shape[2] + i) * to->shape[3],
             from->data + ((item * from->shape[1] + h) * from->shape[2] + row + i) * to->shape[3], (size_t)to->shape[3] * sizeof(double));
}

/* One query with the keys up to it, as decoding has it, and an item of a batch alone: the numbers that the complete call has. */
static void test_parts(void **state) {
  (void)state;
  static const char whole[] = "dense:B2,H4,K2,L70,D8,C12,causal";
  for (int machine = 0; machine < attention_machine_count; machine++) {
    attention_problem p;
    attention_expected e;
    attention_results r;
    attention_problem_make(whole, &p);
    attention_expected_make(&p, &e);
    if (attention_run_on(&attention_machines[machine], &p, &r)) {
      const struct {
        const char *text;
        int64_t item, row;
      } parts[] = {{"dense:H4,K2,L1,S70,D8,C12,causal", 1, 69},
                   {"dense:H4,K2,L1,S40,D8,C12,causal", 0, 39},
                   {"dense:H4,K2,L70,D8,C12,causal", 1, 0}};
      for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        attention_problem part;
        attention_results alone;
        attention_problem_make(parts[k].text, &part);
        take_part(&p.array[ARRAY_QUERY], parts[k].item, parts[k].row, &part.array[ARRAY_QUERY]);
        take_part(&p.array[ARRAY_KEY], parts[k].item, 0, &part.array[ARRAY_KEY]);
        take_part(&p.array[ARRAY_VALUE], parts[k].item, 0, &part.array[ARRAY_VALUE]);
        memcpy(part.array[ARRAY_CONTEXTUAL].data, p.array[ARRAY_CONTEXTUAL].data, (size_t)p.array[ARRAY_CONTEXTUAL].count * sizeof(double));
        attention_run_on(&attention_machines[machine], &part, &alone);
        for (int64_t i = 0; i < alone.count[ARRAY_OUT]; i++) {
          const int64_t h = i / (part.is.queries * 8), row = i / 8 % part.is.queries + parts[k].row;
          const int64_t at = ((parts[k].item * 4 + h) * 70 + row) * 8 + i % 8;
          attention_assert_near(parts[k].text, whole, &attention_machines[machine], i, alone.data[ARRAY_OUT][i], r.data[ARRAY_OUT][at],
                                2 * attention_tolerance(&attention_machines[machine], &e, ARRAY_OUT, at));
        }
        attention_results_free(&alone);
        attention_problem_free(&part);
      }
      attention_results_free(&r);
    }
    attention_expected_free(&e);
    attention_problem_free(&p);
  }
}

static void refuse(hark_context *context, const hark_attention_desc *desc, hark_status status, const char *words) {
  assert_int_equal(hark_attention_supports(context, desc), status);
  if (strstr(hark_context_message(context), words) == NULL)
    fail_msg("the message is '%s', expected '%s' in it", hark_context_message(context), words);
}

/* What they do not go with is refused, and the message names it. */
static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
    hark_status status;
  } refused[] = {{"dense:L4,D2,C3", "contextual_positions is 3 without causal", HARK_UNSUPPORTED},
                 {"dense:L4,D2,C3,causal,rbf", "contextual_positions is 3 with kernel rbf", HARK_UNSUPPORTED},
                 {"dense:L4,D2,C3,causal,stick", "contextual_positions is 3 with normalisation stick_breaking", HARK_UNSUPPORTED},
                 {"hierarchical:L8,D2,N2,C3,causal", "contextual_positions is 3 with structure hierarchical", HARK_UNSUPPORTED},
                 {"dense:L4,D2,C1,causal", "contextual_positions is 1, expected 0 (none), or 2 to 2^20", HARK_INVALID_ARGUMENT}};
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  attention_problem p;
  hark_attention_desc desc;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    attention_problem_make(refused[i].text, &p);
    desc = attention_problem_desc(&p, HARK_F64);
    refuse(context, &desc, refused[i].status, refused[i].words);
    attention_problem_free(&p);
  }
  attention_problem_make("dense:L4,D2,causal", &p);
  desc = attention_problem_desc(&p, HARK_F64);
  desc.contextual_positions = -2;
  refuse(context, &desc, HARK_INVALID_ARGUMENT, "contextual_positions is -2");
  desc.contextual_positions = ((int64_t)1 << 20) + 1;
  refuse(context, &desc, HARK_INVALID_ARGUMENT, "contextual_positions is 1048577");
  desc.contextual_positions = 3;
  desc.normalisation = HARK_NORMALISATION_CME;
  desc.ridge = 0.5;
  refuse(context, &desc, HARK_UNSUPPORTED, "contextual_positions is 3 with normalisation cme");
  attention_problem_free(&p);
  hark_context_destroy(&context);
}

/* Operations by a count of the pairs, and the printed plan. */
static void test_plans(void **state) {
  (void)state;
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  enum { LENGTH = 20, WINDOW = 6, POSITIONS = 5, DIM = 4 };
  attention_problem p;
  attention_problem_make("dense:B2,H3,L20,D4,C5,causal", &p);
  for (int window = 0; window < 2; window++) {
    hark_attention_desc desc = attention_problem_desc(&p, HARK_F64);
    double pairs = 0, reached = 0;
    desc.structure = window ? HARK_STRUCTURE_WINDOW : HARK_STRUCTURE_DENSE;
    desc.window = window ? WINDOW : 0;
    for (int64_t n = 0; n < LENGTH; n++) {
      const int64_t keys = window && n > WINDOW ? WINDOW + 1 : n + 1;
      pairs += (double)keys;
      reached += keys + 1 < POSITIONS ? (double)(keys + 1) : POSITIONS;
    }
    assert_true(hark_attention_desc_operations(&desc, false) == 2.0 * 2 * 3 * DIM * (2 * pairs + reached));
    assert_true(hark_attention_desc_operations(&desc, true) == 2.0 * 2 * 3 * DIM * (5 * pairs + 3 * reached));
    hark_attention_plan *plan;
    char text[512];
    assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
    (void)hark_attention_plan_print(plan, text, sizeof text);
    assert_non_null(strstr(text, ", 5 contextual positions"));
    hark_attention_plan_destroy(context, &plan);
  }
  attention_problem_free(&p);
  hark_context_destroy(&context);
}

/* Tables that are absent, extra, or of another shape or layout. */
static void test_arguments(void **state) {
  (void)state;
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  double rows[4][8] = {{0}}, table[3 * 2 * 2] = {0}, gradient[3 * 2 * 2] = {0};
  attention_problem p;
  hark_attention_plan *plan = NULL;
  attention_problem_make("dense:H2,L2,D2,C3,causal", &p);
  hark_attention_desc desc = attention_problem_desc(&p, HARK_F64);
  attention_problem_free(&p);
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  void *const workspace = aligned_alloc(64, 1 << 16);
  assert_true(workspace != NULL && hark_attention_plan_sizes(plan).backward_workspace <= 1 << 16);
  hark_attention_args args = {.struct_size = sizeof args, .workspace = workspace};
  const int64_t shape[] = {1, 2, 2, 2};
  hark_tensor *const main[] = {&args.query, &args.key, &args.value, &args.out};
  for (int i = 0; i < 4; i++) assert_int_equal(hark_tensor_wrap(context, rows[i], HARK_F64, 4, shape, NULL, main[i]), HARK_OK);
  const struct {
    int64_t shape[3], stride[3];
    hark_status status;
    const char *words;
  } tables[] = {{{2, 3, 2}, {6, 2, 1}, HARK_OK, ""},
                {{1, 3, 2}, {6, 2, 1}, HARK_OK, ""},
                {{2, 3, 2}, {0, 2, 1}, HARK_OK, ""},
                {{2, 2, 2}, {6, 2, 1}, HARK_SHAPE_MISMATCH, "contextual has shape [2, 2, 2], expected [2, 3, 2]"},
                {{3, 3, 2}, {6, 2, 1}, HARK_SHAPE_MISMATCH, "contextual has shape [3, 3, 2], expected [2, 3, 2]"},
                {{2, 3, 1}, {6, 2, 1}, HARK_SHAPE_MISMATCH, "contextual has shape [2, 3, 1], expected [2, 3, 2]"},
                {{2, 3, 2}, {1, 4, 1}, HARK_INVALID_ARGUMENT, "contextual has strides 4 and 1"}};
  assert_int_equal(hark_attention_forward(context, plan, &args), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "contextual is absent"));
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    assert_int_equal(hark_tensor_wrap(context, table, HARK_F64, 3, tables[i].shape, tables[i].stride, &args.contextual), HARK_OK);
    const hark_status status = hark_attention_forward(context, plan, &args);
    if (status != tables[i].status || (status != HARK_OK && strstr(hark_context_message(context), tables[i].words) == NULL))
      fail_msg("table %zu: status %d, '%s'", i, (int)status, hark_context_message(context));
  }
  const int64_t whole[] = {2, 3, 2}, one[] = {1, 3, 2}, lse[] = {1, 2, 2};
  assert_int_equal(hark_tensor_wrap(context, table, HARK_F64, 3, whole, NULL, &args.contextual), HARK_OK);
  assert_int_equal(hark_tensor_wrap(context, gradient, HARK_F64, 3, one, NULL, &args.dcontextual), HARK_OK);
  assert_int_equal(hark_tensor_wrap(context, rows[0], HARK_F64, 4, shape, NULL, &args.dout), HARK_OK);
  double sums[4] = {0};
  assert_int_equal(hark_tensor_wrap(context, sums, HARK_F64, 3, lse, NULL, &args.log_sum_exp), HARK_OK);
  assert_int_equal(hark_attention_backward(context, plan, &args), HARK_SHAPE_MISMATCH);
  assert_non_null(strstr(hark_context_message(context), "dcontextual has shape [1, 3, 2]"));
  assert_int_equal(hark_tensor_wrap(context, table, HARK_F64, 3, whole, NULL, &args.dcontextual), HARK_OK);
  assert_int_equal(hark_attention_backward(context, plan, &args), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "share memory"));
  hark_attention_plan_destroy(context, &plan);
  desc.contextual_positions = 0;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  assert_int_equal(hark_attention_forward(context, plan, &args), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "contextual is given, but the plan was made without contextual_positions"));
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  free(workspace);
}

int main(int argument_count, char **arguments) {
  if (argument_count > 1) {
    int failures = 0;
    for (int i = 1; i < argument_count; i++) failures += attention_check_case(arguments[i], true);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths),  cmocka_unit_test(test_options), cmocka_unit_test(test_shifts),
                                     cmocka_unit_test(test_counting), cmocka_unit_test(test_threads), cmocka_unit_test(test_parts),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_plans),   cmocka_unit_test(test_arguments)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
