/* test_cme_properties.c - what kernel ridge attention must keep to whatever the numbers: causality by bits, also after a mended pivot;
 * sequences of a batch as if alone; limits of the ridge; noise; hidden keys. test_cme_refusals.c has what is refused.
 */
#include "kernel_ridge_case.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_bits(const char *what, const ridge_problem *p, const attention_machine *machine, double have, double want) {
  if (memcmp(&have, &want, sizeof have) != 0) fail_msg("%s on %s: %s: %.17g, and %.17g before", p->text, machine->name, what, have, want);
}

/* Rows of queries, keys and values from `first` on become others. */
static void change_future(ridge_problem *p, int64_t first) {
  const struct {
    ridge_array array;
    int64_t heads, rows, dim;
  } arrays[] = {{RIDGE_QUERY, p->heads, p->queries, p->head_dim},
                {RIDGE_KEY, p->key_heads, p->keys, p->head_dim},
                {RIDGE_VALUE, p->key_heads, p->keys, p->value_dim}};
  for (size_t a = 0; a < sizeof arrays / sizeof arrays[0]; a++)
    for (int64_t i = 0; i < p->batch * arrays[a].heads; i++)
      for (int64_t r = first; r < arrays[a].rows; r++)
        for (int64_t c = 0; c < arrays[a].dim; c++)
          p->array[arrays[a].array][(i * arrays[a].rows + r) * arrays[a].dim + c] = 0.125 * (double)((r * 5 + c * 3) % 11) - 0.5;
}

/* Copies key row `from` of every head to row `to`: the second of the two pivots fails where the ridge is below rounding. */
static void repeat_key(ridge_problem *p, int64_t from, int64_t to) {
  for (int64_t i = 0; i < p->batch * p->key_heads; i++)
    memcpy(p->array[RIDGE_KEY] + (i * p->keys + to) * p->head_dim, p->array[RIDGE_KEY] + (i * p->keys + from) * p->head_dim,
           (size_t)p->head_dim * sizeof(double));
}

static void check_causality(const char *text, int64_t first, bool mended) {
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    ridge_results before, after;
    ridge_problem_make(text, &p);
    if (mended) repeat_key(&p, first - 3, first + 1);
    if (!ridge_run_on(&attention_machines[m], &p, &before)) {
      ridge_problem_free(&p);
      continue;
    }
    if (before.status != HARK_OK) fail_msg("%s on %s: %s", text, attention_machines[m].name, before.message);
    if (mended && before.report.pivots == 0) fail_msg("%s on %s: no pivot was mended", text, attention_machines[m].name);
    change_future(&p, first);
    if (mended) repeat_key(&p, first, first + 2);
    assert_true(ridge_run_on(&attention_machines[m], &p, &after));
    if (after.status != HARK_OK) fail_msg("%s on %s: %s", text, attention_machines[m].name, after.message);
    for (int64_t h = 0; h < p.batch * p.heads; h++)
      for (int64_t r = 0; r < first; r++) {
        const int64_t row = h * p.queries + r;
        expect_bits("variance", &p, &attention_machines[m], after.array[RIDGE_VARIANCE][row], before.array[RIDGE_VARIANCE][row]);
        expect_bits("log_determinant", &p, &attention_machines[m], after.array[RIDGE_LOG_DETERMINANT][row],
                    before.array[RIDGE_LOG_DETERMINANT][row]);
        for (int64_t c = 0; c < p.value_dim; c++) {
          const int64_t i = row * p.value_dim + c;
          expect_bits("out", &p, &attention_machines[m], after.array[RIDGE_OUT][i], before.array[RIDGE_OUT][i]);
          expect_bits("quadratic", &p, &attention_machines[m], after.array[RIDGE_QUADRATIC][i], before.array[RIDGE_QUADRATIC][i]);
        }
      }
    ridge_results_free(&before);
    ridge_results_free(&after);
    ridge_problem_free(&p);
  }
}

static void test_causality(void **state) {
  (void)state;
  check_causality("cme:B1,H2,L20,D4,causal", 7, false);
  check_causality("cme:B2,H2,L90,D5,V3,causal,rbf,kernel,heads", 41, false);
  check_causality("cme:B1,H1,L140,D8,causal,unit", 64, false);
  check_causality("cme:B1,H1,L140,D8,causal,bound,mask", 65, false);
  check_causality("cme:B1,H1,L90,D8,causal,rbf,ridge=1e-30", 50, true);
  check_causality("cme:B1,H2,L140,D8,causal,rbf,ridge=1e-30", 100, true);
  check_causality("cme:B1,H1,L330,D8,causal,rbf,ridge=1e-30,threads=1", 300, true); /* six tiles, factorised in two goes */
}

/* Duplicates beyond rounding: mended, reported with head and row, finite, and near the values where they were asked for. */
static void test_duplicates(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    ridge_results r;
    ridge_problem_make("cme:B2,H2,L70,D6,rbf,equal,ridge=1e-30", &p);
    if (ridge_run_on(&attention_machines[m], &p, &r)) {
      assert_int_equal(r.status, HARK_OK);
      assert_true(r.report.pivots >= 2 * 2 * 35);
      assert_true(r.report.row >= 0 && r.report.row < 70 && r.report.head < 2 && r.report.item < 2 && r.report.amount > 0);
      for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++)
        for (int64_t i = 0; r.array[a] != NULL && i < ridge_count_of(&p, (ridge_array)a); i++) assert_true(isfinite(r.array[a][i]));
      ridge_results_free(&r);
    }
    ridge_problem_free(&p);
  }
}

/* A table of log G that is no positive definite kernel: pivots fail and are counted; nothing is silent. */
static void test_indefinite_table(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    ridge_results r;
    ridge_problem_make("cme:B1,H1,L40,D4,rbf,causal,shared,ridge=0.001", &p);
    for (int64_t i = 0; i < p.distances; i++) p.array[RIDGE_LOG_KERNEL][i] = i < 3 ? 0 : -INFINITY; /* a window */
    memset(p.array[RIDGE_KEY], 0, (size_t)p.count[RIDGE_KEY] * sizeof(double));
    if (ridge_run_on(&attention_machines[m], &p, &r)) {
      assert_int_equal(r.status, HARK_OK);
      assert_true(r.report.pivots > 0);
      for (int64_t i = 0; i < p.count[RIDGE_DOUT]; i++) assert_true(isfinite(r.array[RIDGE_OUT][i]));
      for (int64_t i = 0; i < p.count[RIDGE_KEY]; i++) assert_true(isfinite(r.array[RIDGE_DKEY][i]));
      ridge_results_free(&r);
    }
    ridge_problem_free(&p);
  }
}

/* lambda -> infinity: lambda y_n -> sum of kappa(k_i, q_n) v_i, the error being of the order 1 / lambda. lambda -> 0 at a query that is a
 * key: y -> its value and variance -> 0, the error being of the order lambda over the least eigenvalue. */
static void test_limits(void **state) {
  (void)state;
  ridge_problem p;
  ridge_results large, r;
  ridge_problem_make("cme:B1,H1,L12,D5,V2,rbf,ridge=1e7", &p);
  assert_true(ridge_run_on(ATTENTION_ORACLE, &p, &large));
  for (int64_t n = 0; n < 12; n++)
    for (int64_t c = 0; c < 2; c++) {
      double sum = 0;
      for (int64_t i = 0; i < 12; i++) {
        double square = 0;
        for (int64_t k = 0; k < 5; k++) {
          const double difference = p.array[RIDGE_QUERY][n * 5 + k] - p.array[RIDGE_KEY][i * 5 + k];
          square += difference * difference;
        }
        sum += exp(-square / (2 * p.sigma * p.sigma)) * p.array[RIDGE_VALUE][i * 2 + c];
      }
      assert_true(fabs(1e7 * large.array[RIDGE_OUT][n * 2 + c] - sum) < 12 * 12 / 1e7);
    }
  ridge_results_free(&large);
  p.ridge = 1e-11;
  memcpy(p.array[RIDGE_QUERY], p.array[RIDGE_KEY], (size_t)p.count[RIDGE_KEY] * sizeof(double));
  assert_true(ridge_run_on(ATTENTION_ORACLE, &p, &r));
  assert_int_equal(r.report.pivots, 0);
  for (int64_t i = 0; i < 24; i++) assert_true(fabs(r.array[RIDGE_OUT][i] - p.array[RIDGE_VALUE][i]) < 1e-7);
  for (int64_t i = 0; i < 12; i++) assert_true(r.array[RIDGE_VARIANCE][i] < 1e-9);
  ridge_results_free(&r);
  ridge_problem_free(&p);
}

/* A part of a batch of one item as a problem of its own: key rows [first, first + keys), queries likewise. */
static void cut(const ridge_problem *from, int64_t query, int64_t queries, int64_t first, int64_t keys, ridge_problem *out) {
  char text[ATTENTION_CASE_BYTES];
  snprintf(text, sizeof text, "cme:B1,H%" PRId64 ",L%" PRId64 ",S%" PRId64 ",D%" PRId64 "%s%s", from->heads, queries, keys, from->head_dim,
           from->causal ? ",causal" : "", from->rbf ? ",rbf" : "");
  ridge_problem_make(text, out);
  const struct {
    ridge_array array;
    int64_t from_rows, at, rows;
  } arrays[] = {{RIDGE_QUERY, from->queries, query, queries},
                {RIDGE_DOUT, from->queries, query, queries},
                {RIDGE_KEY, from->keys, first, keys},
                {RIDGE_VALUE, from->keys, first, keys}};
  const int64_t d = from->head_dim;
  for (size_t a = 0; a < sizeof arrays / sizeof arrays[0]; a++)
    for (int64_t h = 0; h < from->heads; h++)
      memcpy(out->array[arrays[a].array] + h * arrays[a].rows * d,
             from->array[arrays[a].array] + (h * arrays[a].from_rows + arrays[a].at) * d, (size_t)(arrays[a].rows * d) * sizeof(double));
}

static void expect_part(const char *text, int64_t query, int64_t queries, int64_t first, int64_t keys) {
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem whole, part;
    ridge_results have, want;
    ridge_problem_make(text, &whole);
    cut(&whole, query, queries, first, keys, &part);
    if (ridge_run_on(&attention_machines[m], &whole, &have)) {
      assert_true(ridge_run_on(&attention_machines[m], &part, &want));
      const int64_t d = whole.head_dim;
      for (int64_t h = 0; h < whole.heads; h++)
        for (int64_t i = 0; i < queries * d; i++) {
          const int64_t at = (h * whole.queries + query) * d + i;
          expect_bits("out alone", &whole, &attention_machines[m], have.array[RIDGE_OUT][at], want.array[RIDGE_OUT][h * queries * d + i]);
          expect_bits("dquery alone", &whole, &attention_machines[m], have.array[RIDGE_DQUERY][at],
                      want.array[RIDGE_DQUERY][h * queries * d + i]);
        }
      for (int64_t h = 0; h < whole.heads; h++)
        for (int64_t i = 0; i < keys * d; i++)
          expect_bits("dkey alone", &whole, &attention_machines[m], have.array[RIDGE_DKEY][(h * whole.keys + first) * d + i],
                      want.array[RIDGE_DKEY][h * keys * d + i]);
      ridge_results_free(&have);
      ridge_results_free(&want);
    }
    ridge_problem_free(&whole);
    ridge_problem_free(&part);
  }
}

/* Every sequence begins with a tile of its own: the same bits. */
static void test_alone(void **state) {
  (void)state;
  expect_part("cme:B1,H2,L150,S150,D4,ragged,causal,rbf", 0, 75, 0, 75);
  expect_part("cme:B1,H2,L150,S150,D4,ragged", 76, 74, 75, 74);
  expect_part("cme:B1,H2,L100,D4,segments,causal", 35, 64, 35, 64);
  expect_part("cme:B1,H2,L100,D4,segments,rbf", 0, 33, 0, 33);
  expect_part("cme:B1,H2,L90,D4,lengths,rbf", 0, 90, 0, 60);
}

/* More heads than threads, and fewer, which threads then share. */
static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B3,H4,K2,L70,D8,causal,rbf,learned,shared",
                                      "cme:B1,H1,L150,S140,D40,V33,causal,rbf,learned,kernel,accumulate",
                                      "cme:B1,H2,K1,L200,D17,V70,learned,kernel,rbf",
                                      "cme:B1,H1,L130,D8,causal,unit,heads,mask",
                                      "cme:B1,H1,L65,D3,bound,heads",
                                      "cme:B1,H2,L600,D4,rbf,learned",
                                      "cme:B1,H5,L200,S210,D4,V3,rbf,learned,noise,plain",
                                      "cme:B1,H6,K2,L150,D40,V2,causal,rbf,quadratic",
                                      "cme:B1,H1,L300,D4,V3,causal,rbf,learned,kernel",
                                      "cme:B1,H1,L300,D4,V3,causal,learned,kernel,dvariance",
                                      "cme:B1,H1,L200,S260,D4,V3,rbf,learned,kernel,mask,dvariance",
                                      "cme:B2,H4,K2,L70,D8,learned,dvariance",
                                      "cme:B1,H1,L300,D4,V3,causal,rbf,learned,kernel,determinant",
                                      "cme:B1,H1,L260,D4,V3,learned,determinant,dvariance",
                                      "cme:B1,H2,L200,D4,V3,learned,noise,causal",
                                      "cme:B2,H4,K2,L70,D8,rbf,noise,ridge=0",
                                      "cme:B1,H1,L330,D4,V2,causal,learned,quadratic,determinant",
                                      "cme:B1,H1,L330,D4,V2,rbf,learned,quadratic,determinant,dvariance",
                                      "cme:B1,H1,L100,S260,D4,V2,rbf,learned,quadratic,mask",
                                      "cme:B2,H4,K2,L70,D8,learned,quadratic,dvariance"};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results one, four;
      ridge_problem_make(cases[k], &p);
      p.threads = 1;
      if (ridge_run_on(&attention_machines[m], &p, &one)) {
        p.threads = 4;
        assert_true(ridge_run_on(&attention_machines[m], &p, &four));
        assert_int_equal(one.status, HARK_OK);
        for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++) {
          const int64_t count = ridge_count_of(&p, (ridge_array)a);
          for (int64_t i = 0; one.array[a] != NULL && i < count; i++)
            expect_bits(ridge_array_names[a], &p, &attention_machines[m], four.array[a][i], one.array[a][i]);
        }
        ridge_results_free(&one);
        ridge_results_free(&four);
      }
      ridge_problem_free(&p);
    }
}

/* Hidden keys and values may hold anything. */
static void test_hidden_keys(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B2,H2,L70,D4,mask,causal,rbf", "cme:B2,H2,L70,D4,mask,perhead,learned",
                                      "cme:B1,H2,L70,D4,lengths", "cme:B1,H2,L40,S70,D4,causal,offset=3,rbf,learned"};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results clean, dirty;
      ridge_problem_make(cases[k], &p);
      if (p.mask_heads) /* hide row 5 from both heads */
        for (int64_t i = 0; i < p.batch * p.heads; i++) p.hidden[i * p.keys + 5] = 0;
      else if (p.mask)
        for (int64_t i = 0; i < p.batch; i++) p.hidden[i * p.keys + 5] = 0;
      const int64_t row = p.lengths ? p.keys - 1 : p.keys > p.queries ? 43 : 5; /* the first one after the last query */
      if (ridge_run_on(&attention_machines[m], &p, &clean)) {
        for (int64_t i = 0; i < p.batch * p.heads; i++)
          for (int64_t c = 0; c < p.head_dim; c++) {
            p.array[RIDGE_KEY][(i * p.keys + row) * p.head_dim + c] = NAN;
            p.array[RIDGE_VALUE][(i * p.keys + row) * p.head_dim + c] = INFINITY;
          }
        assert_true(ridge_run_on(&attention_machines[m], &p, &dirty));
        assert_int_equal(dirty.status, HARK_OK);
        for (int64_t i = 0; i < p.count[RIDGE_DOUT]; i++)
          expect_bits("out", &p, &attention_machines[m], dirty.array[RIDGE_OUT][i], clean.array[RIDGE_OUT][i]);
        for (int64_t i = 0; i < p.count[RIDGE_KEY]; i++) {
          expect_bits("dkey", &p, &attention_machines[m], dirty.array[RIDGE_DKEY][i], clean.array[RIDGE_DKEY][i]);
          if (i / p.head_dim % p.keys == row) assert_true(dirty.array[RIDGE_DKEY][i] == 0 && dirty.array[RIDGE_DVALUE][i] == 0);
        }
        ridge_results_free(&clean);
        ridge_results_free(&dirty);
      }
      ridge_problem_free(&p);
    }
}

/* A query that sees no key has zeros in out, log_determinant and quadratic, and the prior's variance kappa(q, q) G(0), whichever way the
 * keys are taken from it: by lengths, an empty ragged sequence, a mask, or its position; a row of no sequence has zero in all. */
static void test_no_keys(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B3,H2,L11,D4,lengths,kernel",         "cme:B3,H2,L11,D4,lengths,rbf,heads,kernel",
                                      "cme:B3,H2,L70,D4,lengths,causal,unit",    "cme:B2,H2,L9,D4,mask,kernel",
                                      "cme:B2,H2,L9,D4,mask,perhead,rbf,shared", "cme:B1,H2,L9,D4,causal,offset=-30",
                                      "cme:B1,H2,L9,D4,causal,offset=-4,kernel", "cme:B1,H2,L15,S12,D4,ragged,kernel",
                                      "cme:B1,H2,L15,S12,D4,ragged,causal,rbf",  "cme:B2,H2,L19,D4,segments,causal,rbf"};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    ridge_problem p;
    ridge_problem_make(cases[k], &p);
    for (int64_t b = 0; p.lengths && b < p.batch; b++) p.key_lengths[b] = b == 2 ? p.keys : 0;
    for (int64_t i = 0; p.mask && i < p.batch * (p.mask_heads ? p.heads : 1) * p.keys; i++) p.hidden[i] = 0;
    if (p.ragged) { /* the first sequence has no keys, the second no queries, and the last rows are of none */
      const int64_t queries[] = {0, 5, 5, p.queries - 2}, keys[] = {0, 0, 4, p.keys};
      memcpy(p.query_offsets, queries, sizeof queries);
      memcpy(p.offsets, keys, sizeof keys);
      p.sequences = 3;
    }
    for (int m = 0; m < attention_machine_count; m++) {
      const double roundoff = 64 * (attention_machines[m].computing_roundoff + attention_machines[m].storing_roundoff);
      ridge_results r;
      if (!ridge_run_on(&attention_machines[m], &p, &r)) continue;
      if (r.status != HARK_OK) fail_msg("'%s' on %s: %s", p.text, attention_machines[m].name, r.message);
      int64_t none = 0;
      for (int64_t i = 0; i < p.batch * p.heads * p.queries; i++) {
        const int64_t row = i % p.queries, head = i / p.queries % p.heads, item = i / p.queries / p.heads;
        const bool outside = (p.ragged && row >= p.queries - 2) || (p.segments && p.ids[item * p.keys + row] < 0);
        const bool blind = p.mask || (p.lengths && item != 2) || (p.ragged && row < 5) || (p.has_offset && row + p.offset < 0);
        if (!outside && !blind) continue;
        double exponent = 0, squares = 0;
        for (int64_t c = 0; c < p.head_dim; c++) squares += pow(p.array[RIDGE_QUERY][i * p.head_dim + c], 2);
        if (!p.rbf) exponent = p.unit ? p.scale : p.scale * squares;
        if (p.kernel || p.shared) exponent += p.array[RIDGE_LOG_KERNEL][(p.shared ? 0 : head) * p.distances];
        const double prior = outside ? 0 : exp(exponent);
        if (fabs(r.array[RIDGE_VARIANCE][i] - prior) > roundoff * (1 + fabs(exponent)) * prior)
          fail_msg("'%s' on %s: the variance of row %d is %.9g, expected %.9g", p.text, attention_machines[m].name, (int)i,
                   r.array[RIDGE_VARIANCE][i], prior);
        assert_true(r.array[RIDGE_LOG_DETERMINANT][i] == 0);
        for (int64_t c = 0; c < p.value_dim; c++)
          assert_true(r.array[RIDGE_OUT][i * p.value_dim + c] == 0 && r.array[RIDGE_QUADRATIC][i * p.value_dim + c] == 0);
        for (int64_t c = 0; c < p.head_dim; c++) assert_true(r.array[RIDGE_DQUERY][i * p.head_dim + c] == 0);
        none++;
      }
      assert_true(none > 0);
      ridge_results_free(&r);
    }
    ridge_problem_free(&p);
  }
}

/* Noise of zeros has the bits of no noise, the same noise of all keys those of a larger ridge; of a masked key it is not read. */
static void test_noise(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"cme:B2,H4,K2,L70,D8,causal,rbf,ridge=0.5", "cme:B2,H4,K2,L70,D8,causal,rbf,ridge=0.5,noise"},
                                         {"cme:B1,H2,L75,D8,mask,ridge=0.5", "cme:B1,H2,L75,D8,mask,ridge=0.25,noise"},
                                         {"cme:B1,H2,L70,D8,unit,ridge=0.5", "cme:B1,H2,L70,D8,unit,ridge=0,noise"}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p, noisy;
      ridge_results want, have;
      ridge_problem_make(cases[k][0], &p);
      ridge_problem_make(cases[k][1], &noisy);
      for (int64_t i = 0; i < noisy.count[RIDGE_NOISE]; i++) {
        const bool hidden = p.mask && p.hidden[i / (p.heads * p.keys) * p.keys + i % p.keys] == 0;
        noisy.array[RIDGE_NOISE][i] = hidden ? NAN : p.ridge - noisy.ridge;
      }
      memcpy(noisy.array[RIDGE_DOUT], p.array[RIDGE_DOUT], (size_t)p.count[RIDGE_DOUT] * sizeof(double));
      if (ridge_run_on(&attention_machines[m], &p, &want)) {
        assert_true(ridge_run_on(&attention_machines[m], &noisy, &have));
        if (have.status != HARK_OK) fail_msg("'%s' on %s: %s", noisy.text, attention_machines[m].name, have.message);
        for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++)
          for (int64_t i = 0; want.array[a] != NULL && i < ridge_count_of(&p, (ridge_array)a); i++) {
            if (k == 0) expect_bits(ridge_array_names[a], &p, &attention_machines[m], have.array[a][i], want.array[a][i]);
            if (!(fabs(have.array[a][i] - want.array[a][i]) <= 1e-3 * (1 + fabs(want.array[a][i]))))
              fail_msg("'%s' on %s: %s[%d] is %.9g, expected %.9g", noisy.text, attention_machines[m].name, ridge_array_names[a], (int)i,
                       have.array[a][i], want.array[a][i]);
          }
        for (int64_t i = 0; p.mask && i < noisy.count[RIDGE_NOISE]; i++)
          if (isnan(noisy.array[RIDGE_NOISE][i])) assert_true(have.array[RIDGE_DNOISE][i] == 0);
        ridge_results_free(&want);
        ridge_results_free(&have);
      }
      ridge_problem_free(&p);
      ridge_problem_free(&noisy);
    }
}

/* Keys that no query sees are not factorised: duplicates among them mend nothing. */
static void test_unseen_keys(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++)
    for (int64_t last = 42; last < 44; last++) { /* the last query stands at 42 */
      ridge_problem p;
      ridge_results r;
      ridge_problem_make("cme:B1,H2,L40,S70,D4,causal,offset=3,rbf,ridge=1e-30", &p);
      for (int64_t to = last; to < 70; to++) repeat_key(&p, 0, to);
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_OK);
        assert_int_equal(r.report.pivots, last == 42 ? 2 : 0);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* Finite keys whose distances have no square in f32: what counts is their distance in units of sigma. */
static void test_far_apart(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++)
    for (int wide = 0; wide < 2; wide++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make("cme:B1,H1,L9,D1,rbf,learned", &p);
      p.array[RIDGE_KEY][0] = -0x1p63;
      p.array[RIDGE_KEY][4] = 0x1p63;
      if (wide) p.array[RIDGE_SIGMA][0] = 0x1p63;
      if (attention_machines[m].type == HARK_F32 && ridge_run_on(&attention_machines[m], &p, &r)) {
        if (wide) assert_int_equal(r.status, HARK_OK);
        assert_null(strstr(r.message, "is not finite"));
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* Kernels of distant keys, and their products in the factor, fall below the least normal number, where processors of x86 are slow: there
 * such results are zeros. */
static void test_subnormal_results(void **state) {
  (void)state;
#if defined(__x86_64__)
  int count = 0;
  for (int m = 0; m < attention_machine_count; m++) {
    const attention_machine *machine = &attention_machines[m];
    ridge_problem p;
    ridge_results results;
    if (machine->type != HARK_F32 || strcmp(machine->backend, "cpu") != 0) continue;
    ridge_problem_make("cme:B1,H2,L70,D4", &p);
    for (int64_t i = 0; i < p.batch * p.key_heads * p.keys * p.value_dim; i++)
      p.array[RIDGE_VALUE][i] = (i % 3 == 0 ? 1.5 : -1.125) * (double)FLT_MIN;
    if (ridge_run_on(machine, &p, &results)) {
      count++;
      assert_int_equal(results.status, HARK_OK);
      for (int64_t i = 0; i < p.batch * p.heads * p.queries * p.value_dim; i++) {
        const double size = fabs(results.array[RIDGE_OUT][i]);
        if (size > 0 && size < (double)FLT_MIN) fail_msg("%s on %s: %g", p.text, machine->name, size);
      }
      ridge_results_free(&results);
    }
    ridge_problem_free(&p);
  }
  assert_true(count > 0);
#endif
}

/* With a bound far above all products q.k, kernels and ridge are near the least normal number: none becomes zero. */
static void test_large_bound(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B1,H1,L40,D8,bound,ridge=1e-3", "cme:B1,H1,L40,D8,bound,causal,ridge=1e-3"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ridge_problem p;
    ridge_results expected;
    ridge_problem_make(cases[i], &p);
    p.scale = 80;
    for (int64_t k = 0; k < p.count[RIDGE_KEY]; k++) p.array[RIDGE_KEY][k] = (double)(float)(0.1 * p.array[RIDGE_KEY][k]);
    for (int64_t k = 0; k < p.count[RIDGE_QUERY]; k++) p.array[RIDGE_QUERY][k] = (double)(float)(0.1 * p.array[RIDGE_QUERY][k]);
    assert_true(ridge_run_on(ATTENTION_ORACLE, &p, &expected));
    double largest = 0;
    for (int64_t k = 0; k < p.count[RIDGE_DOUT]; k++) largest = fmax(largest, fabs(expected.array[RIDGE_OUT][k]));
    for (int m = 1; m < attention_machine_count; m++) {
      ridge_results results;
      if (!ridge_run_on(&attention_machines[m], &p, &results)) continue;
      if (results.status != HARK_OK) fail_msg("%s on %s: %s", p.text, attention_machines[m].name, results.message);
      for (int64_t k = 0; k < p.count[RIDGE_DOUT]; k++)
        if (!(fabs(results.array[RIDGE_OUT][k] - expected.array[RIDGE_OUT][k]) < 0.02 * largest))
          fail_msg("%s on %s: out[%d] is %g, expected %g", p.text, attention_machines[m].name, (int)k, results.array[RIDGE_OUT][k],
                   expected.array[RIDGE_OUT][k]);
      for (int64_t k = 0; k < p.count[RIDGE_KEY]; k++) assert_true(isfinite(results.array[RIDGE_DKEY][k]));
      ridge_results_free(&results);
    }
    ridge_results_free(&expected);
    ridge_problem_free(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_causality),   cmocka_unit_test(test_duplicates), cmocka_unit_test(test_indefinite_table),
      cmocka_unit_test(test_limits),      cmocka_unit_test(test_alone),      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_hidden_keys), cmocka_unit_test(test_no_keys),    cmocka_unit_test(test_noise),
      cmocka_unit_test(test_unseen_keys), cmocka_unit_test(test_far_apart),  cmocka_unit_test(test_subnormal_results),
      cmocka_unit_test(test_large_bound),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
