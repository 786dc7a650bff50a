/* test_kernel_ridge_decode.c - kernel ridge attention through a cache, in passes of any number of rows: against direct elimination of every
 * query's own system, against the parallel attention where pivots are mended, and what a cache does with wrong numbers.
 *
 * Bounds are those of the parallel attention (kernel_ridge_case.c): a Cholesky factorisation row by row has the same backward error. A
 * cache in f32 keeps R and U in f32, so that its roundoff counts there whatever computes.
 */
#include "kernel_ridge_case.h"

#include <hark/operators.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernel_ridge_decode.h"
#include "support/text_files.h"

#define MOST_NUMBERS (200 * 4 * 64)

static void set(const hark_tensor *tensor, int64_t i, double value) {
  if (tensor->type == HARK_F64)
    ((double *)tensor->data)[i] = value;
  else
    ((float *)tensor->data)[i] = (float)value;
}

static double number(const hark_tensor *tensor, int64_t i) {
  return tensor->type == HARK_F64 ? ((const double *)tensor->data)[i] : (double)((const float *)tensor->data)[i];
}

/* A problem as a text that a cache reads, in memory of the test's: the backends under test compute on host memory. */
typedef struct text {
  hark_context *context;
  const ridge_problem *p;
  hark_type type;
  hark_tensor rows[3]; /* query, key, value: [1, L, heads * dim] */
  hark_tensor cache[3];
  hark_tensor terms[3]; /* log_ridge, log_sigma, log_kernel; or absent */
  hark_tensor noise;    /* [1, L, H], or absent */
  hark_attention_report report;
  void *place; /* of the report; NULL: the one here */
} text;

static hark_tensor make(hark_context *context, hark_type type, int rank, const int64_t *shape, double value) {
  hark_tensor tensor;
  assert_fine(context, hark_tensor_describe(context, type, rank, shape, &tensor));
  tensor.data = malloc((size_t)hark_tensor_count(&tensor) * hark_type_bytes(type));
  assert_non_null(tensor.data);
  for (int64_t i = 0; i < hark_tensor_count(&tensor); i++) set(&tensor, i, value);
  return tensor;
}

/* [H, L, d] -> [1, L, H d] */
static hark_tensor packed(hark_context *context, hark_type type, const double *from, int64_t heads, int64_t length, int64_t dim) {
  const int64_t shape[] = {1, length, heads * dim};
  const hark_tensor tensor = make(context, type, 3, shape, 0);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t r = 0; r < length; r++)
      for (int64_t c = 0; c < dim; c++) set(&tensor, (r * heads + h) * dim + c, from[(h * length + r) * dim + c]);
  return tensor;
}

static hark_tensor logarithms(hark_context *context, hark_type type, const ridge_problem *p, ridge_array array) {
  if (p->array[array] == NULL) return (hark_tensor){0};
  const hark_tensor tensor = make(context, type, 1, &p->count[array], 0);
  for (int64_t i = 0; i < p->count[array]; i++) set(&tensor, i, log(p->array[array][i]));
  return tensor;
}

/* `spare`: room for more tokens than there are. Caches begin as noise that any use of would show. */
static text text_open(hark_context *context, const ridge_problem *p, hark_type type, int64_t spare) {
  const int64_t capacity = p->keys + spare, key[] = {1, capacity, p->key_heads * p->head_dim};
  const int64_t solved[] = {1, capacity, p->heads * hark_ridge_decode_width(p->value_dim)};
  const int64_t factor[] = {hark_ridge_decode_tiles(capacity), p->heads, HARK_RIDGE_BAND_TILE};
  text t = {.context = context, .p = p, .type = type};
  t.rows[0] = packed(context, type, p->array[RIDGE_QUERY], p->heads, p->queries, p->head_dim);
  t.rows[1] = packed(context, type, p->array[RIDGE_KEY], p->key_heads, p->keys, p->head_dim);
  t.rows[2] = packed(context, type, p->array[RIDGE_VALUE], p->key_heads, p->keys, p->value_dim);
  t.cache[0] = make(context, type, 3, key, NAN);
  t.cache[1] = make(context, type, 3, solved, NAN);
  t.cache[2] = make(context, type, 3, factor, NAN);
  t.terms[0] = logarithms(context, type, p, RIDGE_RIDGE);
  t.terms[1] = logarithms(context, type, p, RIDGE_SIGMA);
  if (p->noise) t.noise = packed(context, type, p->array[RIDGE_NOISE], p->heads, p->keys, 1);
  if (p->array[RIDGE_LOG_KERNEL] == NULL) return t;
  const int64_t table[] = {p->shared ? 1 : p->heads, p->distances};
  t.terms[2] = make(context, type, 2, table, 0);
  for (int64_t i = 0; i < p->count[RIDGE_LOG_KERNEL]; i++) set(&t.terms[2], i, p->array[RIDGE_LOG_KERNEL][i]);
  return t;
}

static void text_close(text *t) {
  for (int i = 0; i < 3; i++) {
    free(t->rows[i].data);
    free(t->cache[i].data);
    free(t->terms[i].data);
  }
  free(t->noise.data);
}

static hark_attention_report *report_of(text *t) { return t->place != NULL ? t->place : &t->report; }

static hark_kernel_ridge_decode_attributes attributes_of(text *t, int64_t first) {
  const ridge_problem *p = t->p;
  return (hark_kernel_ridge_decode_attributes){.heads = p->heads,
                                               .key_heads = p->key_heads,
                                               .first_position = first,
                                               .kernel = p->rbf ? HARK_KERNEL_RBF : HARK_KERNEL_EXP,
                                               .unit = p->unit,
                                               .ridge = p->ridge,
                                               .scale = p->scale,
                                               .sigma = p->sigma,
                                               .bound = p->bound ? 1 : 0,
                                               .report = report_of(t)};
}

/* Rows first .. first + count of a tensor [1, L, width]. */
static hark_tensor rows_of(const hark_tensor *whole, int64_t first, int64_t count) {
  hark_tensor rows = *whole;
  rows.owned_bytes = 0;
  rows.shape[1] = count;
  rows.data = (char *)whole->data + (size_t)(first * whole->shape[2]) * hark_type_bytes(whole->type);
  return rows;
}

/* Rows [first, first + count) through the cache, to out [H, L, dv]. */
static hark_status pass(text *t, int64_t first, int64_t count, double *out) {
  const hark_kernel_ridge_decode_attributes attributes = attributes_of(t, first);
  hark_call call = {.op = &hark_op_kernel_ridge_decode, .attributes = &attributes, .input_count = HARK_RIDGE_DECODE_INPUTS};
  hark_inferred inferred = {0};
  for (int i = 0; i < 3; i++) {
    call.inputs[i] = rows_of(&t->rows[i], first, count);
    call.inputs[HARK_RIDGE_DECODE_CACHED_KEY + i] = t->cache[i];
    call.inputs[HARK_RIDGE_DECODE_LOG_RIDGE + i] = t->terms[i];
  }
  if (t->p->noise) call.inputs[HARK_RIDGE_DECODE_NOISE] = rows_of(&t->noise, first, count);
  assert_fine(t->context, call.op->infer(t->context, &attributes, call.inputs, call.input_count, &inferred));
  call.outputs[0] = make(t->context, t->type, 3, inferred.outputs[0].shape, NAN);
  call.workspace = aligned_alloc(HARK_ALIGNMENT, inferred.forward_workspace);
  call.workspace_bytes = inferred.forward_workspace;
  assert_non_null(call.workspace);
  memset(call.workspace, 0xff, inferred.forward_workspace);
  const hark_status status = hark_operator_forward(t->context, &call);
  const int64_t heads = t->p->heads, dim = t->p->value_dim;
  for (int64_t r = 0; r < count && status == HARK_OK; r++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t c = 0; c < dim; c++)
        out[(h * t->p->queries + first + r) * dim + c] = number(&call.outputs[0], (r * heads + h) * dim + c);
  free(call.workspace);
  free(call.outputs[0].data);
  return status;
}

static hark_status passes(text *t, int64_t rows, double *out) {
  for (int64_t first = 0; first < t->p->queries; first += rows)
    HARK_TRY(pass(t, first, t->p->queries - first < rows ? t->p->queries - first : rows, out));
  return HARK_OK;
}

static const char *const cases[] = {
    "cme:B1,H1,L1,D1,causal,rbf",
    "cme:B1,H4,K2,L17,D5,V3,causal,rbf,kernel,heads",
    "cme:B1,H2,L33,D4,causal,rbf,shared,learned",
    "cme:B1,H2,L40,D7,causal,unit,kernel",
    "cme:B1,H2,L40,D7,causal,unit,rbf",
    "cme:B1,H2,L21,D7,causal,bound,heads",
    "cme:B1,H2,L70,D16,V17,causal",
    "cme:B1,H1,L150,D33,V40,causal,rbf,ridge=0.05",
    "cme:B1,H4,K1,L100,D64,causal,rbf,kernel,heads",
    "cme:B1,H2,L40,D7,causal,rbf,far",
    "cme:B1,H4,K2,L40,D5,V3,causal,rbf,kernel,heads,noise",
    "cme:B1,H2,L70,D7,causal,unit,noise,ridge=0",
};
static const int64_t pass_rows[] = {1, 5, 8, 32, 45, 200};

static void rows_equal_the_definition(void **state) {
  (void)state;
  static double out[MOST_NUMBERS];
  int failed = 0;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    ridge_problem p;
    ridge_expected expected;
    ridge_problem_make(cases[k], &p);
    ridge_expected_make(&p, &expected);
    for (int m = 0; m < attention_machine_count; m++)
      for (size_t r = 0; r < sizeof pass_rows / sizeof *pass_rows; r++) {
        hark_context *context = attention_machine_open(&attention_machines[m], 2);
        if (context == NULL) continue;
        const hark_type type = attention_machines[m].type;
        const double roundoff = type == HARK_F64 ? 0x1p-53 : 0x1p-24;
        text t = text_open(context, &p, type, (int64_t)r * 7);
        assert_fine(context, passes(&t, pass_rows[r], out));
        assert_int_equal(t.report.pivots, 0);
        for (int64_t i = 0; i < p.count[RIDGE_DOUT]; i++) {
          if (fabs(out[i] - expected.out[i]) <= roundoff * (expected.out_bound[i] + fabs(expected.out[i]))) continue;
          print_error("%s on %s, passes of %d: out[%d] is %.9g, expected %.9g, bound %.3g\n", p.text, attention_machines[m].name,
                      (int)pass_rows[r], (int)i, out[i], expected.out[i], roundoff * expected.out_bound[i]);
          failed++;
          break;
        }
        text_close(&t);
        hark_context_destroy(&context);
      }
    ridge_expected_free(&expected);
    ridge_problem_free(&p);
  }
  assert_int_equal(failed, 0);
}

/* Rows whose squares, or differences, do not fit into f32: kernels of 0, and of 1 between equal ones. With a large sigma distant rows have
 * kernels between. */
static void displace(ridge_problem *p, bool wide) {
  static const struct {
    int64_t row;
    bool key;
    double value;
  } far[] = {{3, true, 1e36},  {4, true, 1e36},  {10, false, 1e36},    {7, true, -1e20}, {8, false, 1e20},
             {9, true, -3e38}, {9, false, 3e38}, {11, false, -2.5e19}, {12, true, 1e19}, {30, true, 1e36}};
  for (size_t i = 0; i < sizeof far / sizeof *far; i++)
    for (int64_t h = 0; h < (far[i].key ? p->key_heads : p->heads); h++)
      for (int64_t c = 0; c < p->head_dim; c++) {
        double *const row = p->array[far[i].key ? RIDGE_KEY : RIDGE_QUERY] + (h * p->queries + far[i].row) * p->head_dim;
        row[c] = wide && fabs(far[i].value) == 1e36 ? far[i].value * 1e170 : (double)(float)far[i].value;
      }
}

static void far_rows_have_kernels_of_zero(void **state) {
  (void)state;
  static double out[MOST_NUMBERS];
  static const char *const far_cases[] = {"cme:B1,H2,L40,D7,causal,rbf", "cme:B1,H4,K2,L40,D5,V3,causal,rbf,kernel,heads",
                                          "cme:B1,H2,L40,D7,causal,unit,rbf", "cme:B1,H2,L40,D7,causal,unit,kernel"};
  for (size_t k = 0; k < 2 * sizeof far_cases / sizeof *far_cases; k++)
    for (int m = 0; m < attention_machine_count; m++)
      for (size_t r = 0; r < sizeof pass_rows / sizeof *pass_rows; r++) {
        hark_context *context = attention_machine_open(&attention_machines[m], 2);
        if (context == NULL) continue;
        const hark_type type = attention_machines[m].type;
        ridge_problem p;
        ridge_results whole;
        ridge_problem_make(far_cases[k / 2], &p);
        displace(&p, type == HARK_F64);
        if (k % 2 == 1 && p.rbf) p.sigma = 9e18;
        text t = text_open(context, &p, type, 3);
        assert_true(ridge_run_on(type == HARK_F64 ? &attention_machines[m] : ATTENTION_ORACLE, &p, &whole));
        if (whole.status != HARK_OK) fail_msg("%s: %s", p.text, whole.message);
        assert_fine(context, passes(&t, pass_rows[r], out));
        for (int64_t i = 0; i < p.count[RIDGE_DOUT]; i++)
          if (!(fabs(out[i] - whole.array[RIDGE_OUT][i]) <= 1e-4 * (1 + fabs(out[i]))))
            fail_msg("%s on %s, passes of %d: out[%d] is %.9g, the parallel attention's %.9g", p.text, attention_machines[m].name,
                     (int)pass_rows[r], (int)i, out[i], whole.array[RIDGE_OUT][i]);
        ridge_results_free(&whole);
        ridge_problem_free(&p);
        text_close(&t);
        hark_context_destroy(&context);
      }
}

/* G(1) of about 2 G(0) is no positive definite kernel, and equal keys of equal values leave nothing of their pivots: the same ones are
 * mended as in the parallel attention, and the rest follows. The first system is well conditioned (pivots are turned to their magnitude);
 * in the second a mended pivot of size 16 u meets numerators of some u. */
static void mended_pivots_are_those_of_the_parallel_attention(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double within_f64, within_f32;
  } problems[] = {{"cme:B1,H2,L20,D4,causal,rbf,shared,ridge=0.1", 1e-9, 1e-2},
                  {"cme:B1,H2,L40,D4,causal,rbf,equal,ridge=1e-30", 1e-7, 5e-2}};
  static double out[MOST_NUMBERS];
  for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
    for (int m = 0; m < attention_machine_count; m++)
      for (size_t r = 0; r < sizeof pass_rows / sizeof *pass_rows; r++) {
        hark_context *context = attention_machine_open(&attention_machines[m], 2);
        if (context == NULL) continue;
        ridge_problem p;
        ridge_results whole;
        ridge_problem_make(problems[k].text, &p);
        for (int64_t i = 0; p.array[RIDGE_LOG_KERNEL] != NULL && i < p.distances; i++)
          p.array[RIDGE_LOG_KERNEL][i] = i == 0 ? 0 : i == 1 ? 0.6875 : -3;
        for (int64_t i = 0; p.equal && i < p.count[RIDGE_VALUE]; i++) p.array[RIDGE_VALUE][i] = 0.25 * (double)(i % p.value_dim) - 0.25;
        const hark_type type = attention_machines[m].type;
        text t = text_open(context, &p, type, 3);
        assert_true(ridge_run_on(&attention_machines[m], &p, &whole));
        assert_int_equal(whole.status, HARK_OK);
        assert_fine(context, passes(&t, pass_rows[r], out));
        assert_true(whole.report.pivots > 0);
        if (type == HARK_F64 || p.array[RIDGE_LOG_KERNEL] != NULL) { /* in f32 the two may count the pivots of equal keys otherwise */
          assert_int_equal(t.report.pivots, whole.report.pivots);
        }
        const double within = type == HARK_F64 ? problems[k].within_f64 : problems[k].within_f32;
        for (int64_t i = 0; i < p.count[RIDGE_DOUT]; i++)
          if (!(fabs(out[i] - whole.array[RIDGE_OUT][i]) <= within * (1 + fabs(out[i]))))
            fail_msg("%s on %s, passes of %d: out[%d] is %.9g, the parallel attention's %.9g", p.text, attention_machines[m].name,
                     (int)pass_rows[r], (int)i, out[i], whole.array[RIDGE_OUT][i]);
        ridge_results_free(&whole);
        ridge_problem_free(&p);
        text_close(&t);
        hark_context_destroy(&context);
      }
}

/* After going back to any token the rest has the same bits, and rows read before another future keep theirs. */
static void tokens_can_be_forgotten(void **state) {
  (void)state;
  enum { LENGTH = 50, READ = 37 };
  static double out[MOST_NUMBERS], again[MOST_NUMBERS];
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = attention_machine_open(&attention_machines[m], 2);
    if (context == NULL) continue;
    ridge_problem p;
    ridge_problem_make("cme:B1,H4,K2,L50,D5,V3,causal,rbf,kernel,heads", &p);
    text t = text_open(context, &p, attention_machines[m].type, 0);
    assert_fine(context, passes(&t, 1, out));
    memset(again, 0, sizeof again);
    for (int64_t back = LENGTH - 1; back >= READ; back -= 5) /* other tokens in between */
      for (int64_t row = back; row < LENGTH; row++) {
        text other = t;
        other.rows[0] = rows_of(&t.rows[0], 0, LENGTH);
        const hark_tensor key = t.rows[1];
        other.rows[1].data = (char *)key.data - (size_t)(3 * key.shape[2]) * hark_type_bytes(key.type); /* keys of three tokens earlier */
        assert_fine(context, pass(&other, row, 1, again));
      }
    for (int64_t row = READ - 1; row < LENGTH; row++) assert_fine(context, pass(&t, row, 1, again));
    for (int64_t h = 0; h < p.heads; h++)
      for (int64_t i = (READ - 1) * p.value_dim; i < LENGTH * p.value_dim; i++)
        assert_memory_equal(&again[h * LENGTH * p.value_dim + i], &out[h * LENGTH * p.value_dim + i], sizeof(double));
    text_close(&t);
    ridge_problem_free(&p);
    hark_context_destroy(&context);
  }
}

/* A number in an input, and what the failure says; by steps and in one pass. */
static void wrong_numbers_name_head_and_row(void **state) {
  (void)state;
  static const struct {
    const char *text;
    ridge_array array;
    int64_t at;
    double value;
    hark_status status;
    const char *says;
  } wrong[] = {
      {"cme:B1,H3,L40,D4,causal,rbf,shared,learned", RIDGE_QUERY, (2 * 40 + 33) * 4 + 1, NAN, HARK_NOT_FINITE,
       "item 0, head 2: the query of row 33 is not finite"},
      {"cme:B1,H3,L40,D4,causal,rbf,shared,learned", RIDGE_KEY, (1 * 40 + 20) * 4, INFINITY, HARK_NOT_FINITE,
       "item 0, head 1: the key of row 20 is not finite"},
      {"cme:B1,H3,L40,D4,causal,rbf,shared,learned", RIDGE_VALUE, 39 * 4 + 3, NAN, HARK_NOT_FINITE,
       "item 0, head 0: the value of row 39 is not finite"},
      {"cme:B1,H3,L40,D4,causal,rbf,shared,learned", RIDGE_RIDGE, 0, 0, HARK_INVALID_ARGUMENT,
       "ridge of head 0 is 0, expected a finite number above 0"},
      {"cme:B1,H3,L40,D4,causal,rbf,shared,learned", RIDGE_SIGMA, 0, INFINITY, HARK_INVALID_ARGUMENT, "sigma of head 0 is inf"},
      {"cme:B1,H3,L40,D4,causal,rbf,shared,learned", RIDGE_LOG_KERNEL, 5, 301, HARK_NOT_FINITE,
       "log_kernel of head 0 is 301 at distance 5"},
      {"cme:B1,H2,L40,D4,causal", RIDGE_KEY, (40 + 21) * 4, 100, HARK_NOT_FINITE, "item 0, head 1, key row 21: the kernel's exponent is"},
      {"cme:B1,H2,L40,D4,causal", RIDGE_QUERY, (40 + 30) * 4, 1e4, HARK_NOT_FINITE,
       "item 0, head 1, query row 30: the kernel's exponent is"},
      {"cme:B1,H3,L40,D4,causal,rbf,noise", RIDGE_NOISE, 2 * 40 + 33, -1, HARK_INVALID_ARGUMENT,
       "item 0, head 2: the noise of key row 33 is -1, expected a number from 0"},
      {"cme:B1,H3,L40,D4,causal,noise", RIDGE_NOISE, 40 + 1, NAN, HARK_INVALID_ARGUMENT,
       "item 0, head 1: the noise of key row 1 is nan, expected a number from 0"},
      {"cme:B1,H3,L40,D4,causal,unit,noise", RIDGE_NOISE, 39, INFINITY, HARK_INVALID_ARGUMENT,
       "item 0, head 0: the noise of key row 39 is inf, expected a number from 0"},
      {"cme:B1,H3,L40,D4,causal,rbf,noise,ridge=0", RIDGE_NOISE, 40 + 17, 0, HARK_INVALID_ARGUMENT,
       "item 0, head 1: ridge and noise of key row 17 are 0, expected one of them above 0"},
      {"cme:B1,H3,L40,D4,causal,rbf,noise,learned", RIDGE_RIDGE, 0, INFINITY, HARK_INVALID_ARGUMENT,
       "ridge of head 0 is inf, expected a finite number from 0"},
  };
  static double out[MOST_NUMBERS];
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
    for (int m = 0; m < attention_machine_count; m++)
      for (int64_t rows = 1; rows <= 40; rows += 39) {
        hark_context *context = attention_machine_open(&attention_machines[m], 2);
        if (context == NULL) continue;
        ridge_problem p;
        ridge_problem_make(wrong[k].text, &p);
        p.array[wrong[k].array][wrong[k].at] = wrong[k].value;
        if (wrong[k].value == 100 || wrong[k].value == 1e4) /* a product with itself, or with itself as a key, beyond every type's range */
          for (int64_t c = 0; c < 4; c++) {
            const int64_t row = wrong[k].at / 4;
            p.array[wrong[k].array][row * 4 + c] = wrong[k].value;
            if (wrong[k].array == RIDGE_QUERY) p.array[RIDGE_KEY][row * 4 + c] = 1;
          }
        text t = text_open(context, &p, attention_machines[m].type, 0);
        const hark_status status = passes(&t, rows, out);
        if (status != wrong[k].status || strstr(hark_context_message(context), wrong[k].says) == NULL)
          fail_msg("%s on %s, passes of %d: %s \"%s\", expected \"%s\"", p.text, attention_machines[m].name, (int)rows,
                   hark_status_name(status), hark_context_message(context), wrong[k].says);
        text_close(&t);
        ridge_problem_free(&p);
        hark_context_destroy(&context);
      }
}

static void wrong_calls_are_refused(void **state) {
  (void)state;
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  ridge_problem p;
  ridge_problem_make("cme:B1,H2,L4,D4,causal,rbf,shared", &p);
  const struct {
    const char *says;
    int field; /* of what is changed */
    double value;
  } wrong[] = {{"heads is 3, expected a multiple of key_heads = 2", 0, 3},
               {"first_position is -1", 1, -1},
               {"room for 4 tokens, expected 1 + 4", 1, 1},
               {"ridge is 0, expected a finite number above 0", 2, 0},
               {"ridge is nan", 2, NAN},
               {"ridge is -1, expected a finite number above 0", 2, -1},
               {"ridge is -1, expected a finite number from 0", 12, -1},
               {"ridge is inf, expected a finite number from 0", 12, INFINITY},
               {"noise has [1, 5, 2], expected [1, 4, 2]", 13, 5},
               {"sigma is -1", 3, -1},
               {"scale is 0", 4, 0},
               {"bound is 1000000, expected 0 to", 5, 1e6},
               {"kernel is 7", 6, 7},
               {"solved has [1, 4, 48], expected [1, 4, 32]", 7, 48},
               {"factor has [1, 2, 255], expected [1, 2, 256]", 8, 255},
               {"cached_key has [1, 4, 7], expected [1, 4, 8]", 9, 7},
               {"log_kernel has [1, 3], expected [1, 4]", 10, 3},
               {"log_ridge has [3], expected [2]", 11, 3}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    text t = text_open(context, &p, HARK_F64, 0);
    hark_kernel_ridge_decode_attributes attributes = attributes_of(&t, 0);
    double noise[5 * 2] = {0};
    const int64_t noise_shape[] = {1, wrong[i].field == 13 ? (int64_t)wrong[i].value : 4, 2};
    if (p.value_dim != 4) fail();
    hark_tensor inputs[HARK_RIDGE_DECODE_INPUTS] = {t.rows[0], t.rows[1], t.rows[2], t.cache[0], t.cache[1], t.cache[2]};
    inputs[HARK_RIDGE_DECODE_LOG_KERNEL] = t.terms[2];
    const int64_t whole = (int64_t)(isfinite(wrong[i].value) ? wrong[i].value : 0), three = 3;
    switch (wrong[i].field) {
      case 0: attributes.heads = whole; break;
      case 1: attributes.first_position = whole; break;
      case 2: attributes.ridge = wrong[i].value; break;
      case 3: attributes.sigma = wrong[i].value; break;
      case 4: attributes.kernel = HARK_KERNEL_EXP, attributes.scale = wrong[i].value; break;
      case 5: attributes.kernel = HARK_KERNEL_EXP, attributes.scale = 1, attributes.bound = wrong[i].value; break;
      case 6: attributes.kernel = (hark_attention_kernel)7; break;
      case 7: inputs[HARK_RIDGE_DECODE_SOLVED].shape[2] = whole; break;
      case 8: inputs[HARK_RIDGE_DECODE_FACTOR].shape[2] = whole; break;
      case 9: inputs[HARK_RIDGE_DECODE_CACHED_KEY].shape[2] = whole; break;
      case 10: inputs[HARK_RIDGE_DECODE_LOG_KERNEL].shape[1] = whole; break;
      case 12:
      case 13:
        assert_fine(context, hark_tensor_wrap(context, noise, HARK_F64, 3, noise_shape, NULL, &inputs[HARK_RIDGE_DECODE_NOISE]));
        if (wrong[i].field == 12) attributes.ridge = wrong[i].value;
        break;
      default: assert_fine(context, hark_tensor_describe(context, HARK_F64, 1, &three, &inputs[HARK_RIDGE_DECODE_LOG_RIDGE]));
    }
    for (int k = 0; k < HARK_RIDGE_DECODE_INPUTS; k++) /* contiguous again */
      if (inputs[k].rank == 3) {
        inputs[k].stride[1] = inputs[k].shape[2];
        inputs[k].stride[0] = inputs[k].shape[1] * inputs[k].shape[2];
      } else if (inputs[k].rank == 2) {
        inputs[k].stride[0] = inputs[k].shape[1];
      }
    hark_inferred inferred;
    const hark_status status = hark_op_kernel_ridge_decode.infer(context, &attributes, inputs, HARK_RIDGE_DECODE_INPUTS, &inferred);
    if (status == HARK_OK || strstr(hark_context_message(context), wrong[i].says) == NULL)
      fail_msg("\"%s\", expected \"%s\"", hark_context_message(context), wrong[i].says);
    text_close(&t);
  }
  ridge_problem_free(&p);
  hark_context_destroy(&context);
}

/* The report is written like an output. */
static void a_report_lies_apart(void **state) {
  (void)state;
  static double out[MOST_NUMBERS];
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = attention_machine_open(&attention_machines[m], 2);
    if (context == NULL) continue;
    ridge_problem p;
    ridge_problem_make("cme:B1,H2,L40,D7,causal,unit,kernel", &p);
    text t = text_open(context, &p, attention_machines[m].type, 0);
    hark_attention_report *const apart = report_of(&t);
    t.place = t.cache[1].data;
    assert_int_equal(pass(&t, 0, 1, out), HARK_INVALID_ARGUMENT);
    if (strstr(hark_context_message(context), "report and an input share memory") == NULL) fail_msg("%s", hark_context_message(context));
    t.place = apart;
    assert_fine(context, pass(&t, 0, 1, out));
    text_close(&t);
    ridge_problem_free(&p);
    hark_context_destroy(&context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(far_rows_have_kernels_of_zero),
      cmocka_unit_test(rows_equal_the_definition),
      cmocka_unit_test(mended_pivots_are_those_of_the_parallel_attention),
      cmocka_unit_test(tokens_can_be_forgotten),
      cmocka_unit_test(wrong_numbers_name_head_and_row),
      cmocka_unit_test(wrong_calls_are_refused),
      cmocka_unit_test(a_report_lies_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
