/* test_gradients.c - every gradient of the reference backend in f64 against four-point differences of its own forward.
 *
 *     d/dx L(x) ~ (L(x - 2h) - 8 L(x - h) + 8 L(x + h) - L(x + 2h)) / 12h,   L = <out, dout>
 *
 * The formula's error is h^4 / 30 of the fifth derivative, its rounding u |L| / h; with h = 1e-3 and numbers of order one both stay far
 * below the 1e-6 that is asked for. Every element of every differentiable input is checked. Contextual positions have kinks at whole
 * numbers: there h = 1e-5, and no position of a case is so near to one.
 *
 *     test_gradients 'dense:B1,H2,L5,D3,causal'    these cases alone
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/attention_run.h"

#define STEP 1e-3
#define SMALL_STEP 1e-5
#define TOLERANCE 1e-6 /* relative to the larger of 1 and the gradient */

static const struct {
  attention_array input, gradient;
} differentiable[] = {{ARRAY_QUERY, ARRAY_DQUERY},
                      {ARRAY_KEY, ARRAY_DKEY},
                      {ARRAY_VALUE, ARRAY_DVALUE},
                      {ARRAY_BIAS, ARRAY_DBIAS},
                      {ARRAY_LOG_KERNEL, ARRAY_DLOG_KERNEL},
                      {ARRAY_FORGET, ARRAY_DFORGET},
                      {ARRAY_HIERARCHICAL_BIAS, ARRAY_DHIERARCHICAL_BIAS},
                      {ARRAY_CONTEXTUAL, ARRAY_DCONTEXTUAL}};

static hark_tensor wrap(hark_context *context, const attention_numbers *numbers) {
  hark_tensor tensor = {0};
  if (numbers->count > 0)
    assert_int_equal(hark_tensor_wrap(context, numbers->data, HARK_F64, numbers->rank, numbers->shape, NULL, &tensor), HARK_OK);
  return tensor;
}

/* <out, dout> on the problem's own arrays, which lie in host memory as the reference backend's do. */
static double loss(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                   const attention_problem *problem) {
  if (hark_attention_forward(context, plan, args) != HARK_OK) fail_msg("%s: %s", problem->is.text, hark_context_message(context));
  const double *out = args->out.data, *dout = problem->array[ARRAY_DOUT].data;
  double sum = 0;
  for (int64_t i = 0; i < problem->array[ARRAY_DOUT].count; i++) sum += out[i] * dout[i];
  return sum;
}

static int check_case(const char *text) {
  attention_problem problem;
  attention_results results;
  attention_problem_make(text, &problem);
  attention_run_on(ATTENTION_ORACLE, &problem, &results);

  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  hark_attention_desc desc = attention_problem_desc(&problem, HARK_F64);
  desc.forward_only = true;
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  attention_numbers out = problem.array[ARRAY_DOUT];
  out.data = calloc((size_t)out.count, sizeof(double));
  void *workspace = aligned_alloc(64, sizes.forward_workspace);
  assert_true(out.data != NULL && workspace != NULL);
  hark_attention_args args = {.struct_size = sizeof args,
                              .query = wrap(context, &problem.array[ARRAY_QUERY]),
                              .key = wrap(context, &problem.array[ARRAY_KEY]),
                              .value = wrap(context, &problem.array[ARRAY_VALUE]),
                              .out = wrap(context, &out),
                              .key_lengths = problem.key_lengths,
                              .query_offsets = problem.query_offsets,
                              .key_offsets = problem.key_offsets,
                              .sequences = problem.sequences,
                              .segments = problem.segments,
                              .has_query_offset = problem.is.has_offset,
                              .query_offset = problem.is.offset,
                              .attention_bias = wrap(context, &problem.array[ARRAY_BIAS]),
                              .log_kernel = wrap(context, &problem.array[ARRAY_LOG_KERNEL]),
                              .forget = wrap(context, &problem.array[ARRAY_FORGET]),
                              .hierarchical_bias = wrap(context, &problem.array[ARRAY_HIERARCHICAL_BIAS]),
                              .contextual = wrap(context, &problem.array[ARRAY_CONTEXTUAL]),
                              .dropout = problem.dropout,
                              .workspace = workspace};
  if (problem.is.mask) assert_int_equal(hark_tensor_wrap(context, problem.mask, HARK_U8, 4, problem.mask_shape, NULL, &args.mask), HARK_OK);
  const int64_t query_mask_shape[] = {problem.is.batch, problem.is.queries};
  if (problem.is.query_mask)
    assert_int_equal(hark_tensor_wrap(context, problem.query_mask, HARK_U8, 2, query_mask_shape, NULL, &args.query_mask), HARK_OK);

  const int64_t starts_shape[] = {problem.is.batch, problem.is.keys};
  if (problem.is.starts)
    assert_int_equal(hark_tensor_wrap(context, problem.chunk_starts, HARK_U8, 2, starts_shape, NULL, &args.chunk_starts), HARK_OK);

  const double step = problem.is.positions > 0 ? SMALL_STEP : STEP;
  int failures = 0, checked = 0;
  for (size_t k = 0; k < sizeof differentiable / sizeof differentiable[0]; k++) {
    attention_numbers *input = &problem.array[differentiable[k].input];
    for (int64_t i = 0; i < input->count; i++) {
      const double middle = input->data[i];
      double sum = 0;
      static const double factors[] = {1, -8, 8, -1}, steps[] = {-2, -1, 1, 2};
      for (int point = 0; point < 4; point++) {
        input->data[i] = middle + steps[point] * step;
        sum += factors[point] * loss(context, plan, &args, &problem);
      }
      input->data[i] = middle;
      checked++;
      const double difference = sum / (12 * step), gradient = results.data[differentiable[k].gradient][i];
      if (fabs(difference - gradient) <= TOLERANCE * fmax(1, fabs(gradient))) continue;
      if (failures++ == 0)
        fprintf(stderr, "'%s': %s[%" PRId64 "] is %.12g, four-point differences give %.12g\n", text,
                attention_array_names[differentiable[k].gradient], i, gradient, difference);
    }
  }
  assert_true(checked > 0);
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  free(out.data);
  free(workspace);
  attention_results_free(&results);
  attention_problem_free(&problem);
  return failures;
}

static void test_all(void **state) {
  (void)state;
  static const char *const cases[] = {
      "dense:B2,H2,L5,S4,D3",
      "dense:B2,H4,K2,L5,D3,V2,causal",
      "dense:H2,L4,S7,D3,causal",
      "dense:H2,L6,D3,causal,offset=-2",
      "dense:H2,L6,S5,D3,rbf",
      "dense:B2,H4,K2,L6,D3,rbf,causal,V2",
      "dense:B2,H2,L4,S5,D2,bias",
      "dense:B2,H2,L4,S5,D2,bias=1",
      "dense:B2,H2,L4,S5,D2,bias=6,causal",
      "dense:B2,H2,L4,S5,D2,bias=8",
      "dense:B2,H2,L4,S5,D2,bias=15",
      "dense:B2,H2,L4,S5,D2,mask",
      "dense:B2,H2,L6,S5,D2,kernel",
      "dense:B2,H2,L6,S5,D2,shared,causal",
      "dense:B2,H2,L6,D2,kernel,offset=3",
      "dense:B2,H2,L6,S5,D2,kernel,directed",
      "dense:B2,H2,L6,D2,shared,directed,offset=3",
      "dense:B2,H2,L8,D2,segments,shared,directed",
      "window:B2,H2,L7,D2,W2,kernel,directed,rbf,dropout=0.2",
      "dense:B2,H2,L6,D2,forget,causal",
      "dense:B2,H2,L4,S7,D2,forget,causal",
      "dense:B1,H2,L7,S4,D2,forget,causal,offset=1",
      "dense:B2,H2,L6,D2,dropout=0.4",
      "dense:B2,H4,K2,L6,D2,causal,dropout=0.4,forget,kernel,bias=3",
      "dense:B3,H2,L6,D2,lengths,causal,bias=1,forget",
      "dense:H2,L10,S9,D2,ragged,causal,kernel,bias",
      "dense:B2,H2,L8,D2,segments,causal,forget,shared",
      "dense:B2,H4,K2,L7,D3,V2,causal,stick",
      "dense:H2,L4,S9,D3,causal,stick,bias=2,kernel",
      "dense:B2,H4,K2,L6,D2,causal,stick,dropout=0.4,forget,kernel,bias=3",
      "dense:H2,L10,S9,D2,causal,stick,ragged,bias",
      "dense:B2,H2,L8,D2,causal,stick,segments,forget,shared",
      "dense:H2,L7,S4,D2,causal,stick,offset=2,mask",
      "window:B2,H2,L7,D2,W2,causal,stick",
      "dense:B2,H4,K2,L7,D3,V2,C4,causal",
      "dense:H2,L7,D3,C3,causal,cshared",
      "dense:H2,L4,S9,D3,C2,causal,bias=2,kernel,seed=5",
      "dense:B2,H4,K2,L6,D2,C9,causal,dropout=0.4,forget,kernel,bias=3,seed=2",
      "dense:H2,L10,S9,D2,C3,causal,ragged,bias",
      "dense:B2,H2,L8,D2,C3,causal,segments,forget,shared,cshared",
      "dense:B3,H2,L6,D2,C3,lengths,causal,mask",
      "dense:H2,L7,S4,D2,C3,causal,offset=2,mask",
      "window:B2,H2,L7,D2,C3,W2,causal",
      "window:B2,H2,L7,D2,W2",
      "window:B2,H2,L7,D2,W2,causal,kernel,forget,rbf,dropout=0.2",
      "window:H2,L5,S9,D2,W1,causal",
      "dense:L1,D1",
      "dense:L1,S2,D1,rbf,kernel",
      "hierarchical:B2,H2,L11,D2,N2",
      "hierarchical:B2,H4,K2,L13,D2,V3,N2,causal",
      "hierarchical:H2,L13,D2,N2,causal,exact",
      "hierarchical:H2,L13,D2,N2,exact,sibling,rbf",
      "hierarchical:H2,L13,D2,N2,sibling,first",
      "hierarchical:H2,L13,D2,N2,linear",
      "hierarchical:H2,L19,D2,N2,linear,first,rbf,dropout=0.3",
      "hierarchical:B2,H2,L13,D2,N2,hbias,kernel",
      "hierarchical:B2,H2,L13,D2,N2,hshared,shared,causal,seed=2",
      "hierarchical:B2,H2,L13,D2,N2,hbias,kernel,causal,exact",
      "hierarchical:B2,H2,L13,D2,N2,hshared,shared,exact,seed=2",
      "hierarchical:B2,H2,L13,D2,N2,kernel,linear",
      "hierarchical:B2,H2,L13,D2,N2,hbias,kernel,directed",
      "hierarchical:B2,H2,L13,D2,N2,hshared,shared,directed,first,seed=2",
      "hierarchical:B2,H2,L13,D2,N2,kernel,directed,exact",
      "hierarchical:B2,H2,L13,D2,N2,shared,directed,linear,sibling,seed=2",
      "hierarchical:B2,H2,L19,D2,N4,rbf,causal,dropout=0.3,mask,qmask",
      "hierarchical:B2,H4,K2,L19,D2,N2,mask,qmask,linear",
      "hierarchical:B3,H2,L13,D2,N2,lengths",
      "hierarchical:H2,L22,D2,N2,ragged,causal,hshared",
      "hierarchical:B2,H2,L24,D2,N2,segments,exact,shared",
      "hierarchical:B2,H4,K2,L47,D2,V3,N4,grid=7",
      "hierarchical:H2,L47,D2,N4,grid=7,exact",
      "hierarchical:H2,L80,D2,N4,grid=10,rbf,dropout=0.3,mask,qmask",
      "hierarchical:H2,L40,D2,N4,grid=5,ragged",
      "compressed:B2,H4,K2,L23,D2,V3,N3,slots=2,select=2,seed=5",
      "compressed:B2,H2,L25,D2,N2,kept=3,globals=2,select=2,mask",
      "compressed:H2,L31,D2,N2,starts,dropout=0.3,select=3",
      "compressed:H2,L40,D2,N2,ragged,kept=2,globals=1",
      "compressed:B2,H4,K2,L23,D2,V3,N4,slots=2,select=2,kernel,seed=5",
      "compressed:B2,H2,L25,D2,N3,kept=3,select=2,mask,shared",
      "compressed:H2,L31,D2,N5,starts,dropout=0.3,select=3,kernel",
  };
  int failures = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) failures += check_case(cases[i]) > 0;
  if (failures > 0) fail_msg("%d cases failed; run one again with: test_gradients 'CASE'", failures);
}

int main(int argument_count, char **arguments) {
  if (argument_count > 1) {
    int failures = 0;
    for (int i = 1; i < argument_count; i++) failures += check_case(arguments[i]);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
