/* test_cme_properties.c - what kernel ridge attention must keep to whatever the numbers: causality by bits, also after a mended pivot;
 * sequences of a batch as if alone; limits of the ridge; hidden keys; and that nothing wrong passes in silence.
 */
#include "kernel_ridge_case.h"

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

/* Noise that is no number from 0, and a ridge and noise of 0, are refused with item, head and row. */
static void test_wrong_noise(void **state) {
  (void)state;
  static const struct {
    bool learned; /* the ridge is an argument of the call */
    double ridge, noise;
    const char *text;
  } cases[] = {{false, 1, -0.5, "item 1, head 0: the noise of key row 66 is -0.5, expected a number from 0"},
               {false, 1, NAN, "item 1, head 0: the noise of key row 66 is nan, expected a number from 0"},
               {false, 1, INFINITY, "item 1, head 0: the noise of key row 66 is inf, expected a number from 0"},
               {false, 0, 0, "item 1, head 0: ridge and noise of key row 66 are 0, expected one of them above 0"},
               {true, 0, 0, "item 1, head 0: ridge and noise of key row 66 are 0, expected one of them above 0"},
               {true, -1, 0.5, "ridge of head 0 is -1, expected a finite number from 0"},
               {true, NAN, 0.5, "ridge of head 0 is nan, expected a finite number from 0"}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(cases[k].learned ? "cme:B2,H2,L70,D4,noise,learned" : "cme:B2,H2,L70,D4,noise", &p);
      p.ridge = cases[k].ridge;
      if (cases[k].learned) p.array[RIDGE_RIDGE][0] = cases[k].ridge;
      p.array[RIDGE_NOISE][2 * 70 + 66] = cases[k].noise;
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_INVALID_ARGUMENT);
        if (strstr(r.message, cases[k].text) == NULL) fail_msg("%s: \"%s\"", attention_machines[m].name, r.message);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
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

/* A number in an input of "cme:B2,H3,L66,D4,learned,rbf,shared", and what the failure says. */
static const struct {
  ridge_array array;
  int64_t at;
  double value;
  hark_status status;
  const char *says;
} wrong_numbers[] = {
    {RIDGE_QUERY, ((1 * 3 + 2) * 66 + 65) * 4 + 1, NAN, HARK_NOT_FINITE, "item 1, head 2: the query of row 65 is not finite"},
    {RIDGE_KEY, ((1 * 3 + 0) * 66 + 3) * 4, INFINITY, HARK_NOT_FINITE, "item 1, head 0: the key of row 3 is not finite"},
    {RIDGE_VALUE, ((0 * 3 + 1) * 66 + 64) * 4 + 3, NAN, HARK_NOT_FINITE, "item 0, head 1: the value of row 64 is not finite"},
    {RIDGE_RIDGE, 0, 0, HARK_INVALID_ARGUMENT, "ridge of head 0 is 0, expected a finite number above 0"},
    {RIDGE_RIDGE, 0, -1, HARK_INVALID_ARGUMENT, "ridge of head 0 is -1"},
    {RIDGE_RIDGE, 0, NAN, HARK_INVALID_ARGUMENT, "ridge of head 0 is nan"},
    {RIDGE_SIGMA, 0, 0, HARK_INVALID_ARGUMENT, "sigma of head 0 is 0, expected a finite number above 0"},
    {RIDGE_SIGMA, 0, INFINITY, HARK_INVALID_ARGUMENT, "sigma of head 0 is inf"},
    {RIDGE_LOG_KERNEL, 7, NAN, HARK_NOT_FINITE, "log_kernel of head 0 is nan at distance 7"},
    {RIDGE_LOG_KERNEL, 0, 301, HARK_NOT_FINITE, "log_kernel of head 0 is 301 at distance 0"},
};

/* Of several wrong rows of a head that threads share the first one is reported, whichever thread comes upon it. */
static void test_first_wrong_row(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++)
    for (int round = 0; round < 4; round++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make("cme:B1,H1,L300,D4,causal,rbf,threads=4", &p);
      for (int64_t row = 70; row < 300; row += 11) p.array[RIDGE_QUERY][row * 4] = NAN;
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_NOT_FINITE);
        assert_non_null(strstr(r.message, "item 0, head 0: the query of row 70 is not finite"));
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

static void test_wrong_numbers(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof wrong_numbers / sizeof wrong_numbers[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make("cme:B2,H3,L66,D4,learned,rbf,shared", &p);
      p.array[wrong_numbers[k].array][wrong_numbers[k].at] = wrong_numbers[k].value;
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, wrong_numbers[k].status);
        if (strstr(r.message, wrong_numbers[k].says) == NULL)
          fail_msg("%s on %s: \"%s\", expected \"%s\"", p.text, attention_machines[m].name, r.message, wrong_numbers[k].says);
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

/* Values whose weighted sums leave f32. */
static void test_overflow(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    ridge_results r;
    ridge_problem_make("cme:B1,H1,L9,D4,ridge=0.001", &p);
    for (int64_t i = 0; i < p.count[RIDGE_VALUE]; i++) p.array[RIDGE_VALUE][i] = i / 4 % 2 == 0 ? 0x1.8p127 : -0x1.8p127;
    if (attention_machines[m].type == HARK_F32 && ridge_run_on(&attention_machines[m], &p, &r)) {
      assert_int_equal(r.status, HARK_NOT_FINITE);
      assert_non_null(strstr(r.message, "item 0, head 0: the result of query row "));
      ridge_results_free(&r);
    }
    ridge_problem_free(&p);
  }
}

/* Exponentials that leave the range name head and row; the same with a bound or unit rows is fine. */
static void test_unbounded_exponential(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
    double query, key;
  } cases[] = {{"cme:B1,H2,L9,D4", "item 0, head 1, key row 6: the kernel's exponent is", 1, 40},
               {"cme:B1,H2,L9,D4,causal", "item 0, head 1, query row 6: the kernel's exponent is", 4000, 1},
               {"cme:B1,H2,L9,D4,unit", NULL, 4000, 40}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(cases[k].text, &p);
      for (int64_t c = 0; c < 4; c++) {
        const double sign = p.array[RIDGE_KEY][(9 + 6) * 4 + c] < 0 ? -1 : 1;
        p.array[RIDGE_KEY][(9 + 6) * 4 + c] = sign * 0.5 * cases[k].key;
        p.array[RIDGE_QUERY][(9 + 6) * 4 + c] = sign * cases[k].query;
      }
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, cases[k].says == NULL ? HARK_OK : HARK_NOT_FINITE);
        if (cases[k].says != NULL && strstr(r.message, cases[k].says) == NULL)
          fail_msg("%s on %s: \"%s\", expected \"%s\"", p.text, attention_machines[m].name, r.message, cases[k].says);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* The gradient by a variance needs kappa(q, q), which only the backward computes if the forward had no variance: the same range, also for
 * a query that sees no key, and whatever dvariance is. */
static void test_own_kernel(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double squares; /* |q|^2 */
  } cases[] = {{"cme:B2,H2,L70,D4,dvariance,plain", 128},
               {"cme:B2,H2,L70,D4,dvariance,plain", 1800},
               {"cme:B2,H2,L70,D4,dvariance,plain,causal", 64},
               {"cme:B2,H2,L70,D4,dvariance,plain,causal,offset=-68", 1800},
               {"cme:B2,H2,L70,D4,plain", 1800},
               {"cme:B2,H2,L70,D4,dvariance,plain,rbf", 1800}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int zero = 0; zero < 2; zero++)
      for (int m = 0; m < attention_machine_count; m++) {
        ridge_problem p;
        ridge_results r;
        ridge_problem_make(cases[k].text, &p);
        memset(p.array[RIDGE_KEY], 0, (size_t)p.count[RIDGE_KEY] * sizeof(double));
        for (int64_t row = 66; row < 69; row++) /* of item 1, head 0 */
          for (int64_t c = 0; c < 4; c++) p.array[RIDGE_QUERY][(2 * 70 + row) * 4 + c] = (double)(float)sqrt(cases[k].squares / 4);
        if (zero && p.dvariance) memset(p.array[RIDGE_DVARIANCE], 0, (size_t)p.count[RIDGE_DVARIANCE] * sizeof(double));
        const double limit = attention_machines[m].type == HARK_F64 ? 300 : 40;
        const bool fails = p.dvariance && !p.rbf && p.scale * cases[k].squares > limit;
        if (ridge_run_on(&attention_machines[m], &p, &r)) {
          const char *const says = fails ? "item 1, head 0, query row 66: the kernel's exponent is" : "";
          if (r.status != (fails ? HARK_NOT_FINITE : HARK_OK) || strstr(r.message, says) == NULL)
            fail_msg("%s on %s: %s \"%s\", expected \"%s\"", p.text, attention_machines[m].name, hark_status_name(r.status), r.message,
                     says);
          for (int a = RIDGE_DQUERY; a < RIDGE_ARRAYS && !fails; a++)
            for (int64_t i = 0; r.array[a] != NULL && i < ridge_count_of(&p, (ridge_array)a); i++) assert_true(isfinite(r.array[a][i]));
          ridge_results_free(&r);
        }
        ridge_problem_free(&p);
      }
}

/* An element of a gradient that is not finite reaches its own query, and the keys that its row sees, of its sequence and head. Values do
 * not depend on a variance, nor queries and values on a log-determinant, nor queries on a quadratic form. */
static void test_gradients_not_finite(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B2,H2,L70,D4,rbf,noise,dvariance,determinant,quadratic",
                                      "cme:B2,H2,L70,D4,causal,noise,dvariance,determinant,quadratic"};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int given = RIDGE_DOUT; given <= RIDGE_DQUADRATIC; given++)
      for (int m = 0; m < attention_machine_count; m++) {
        ridge_problem p;
        ridge_results r;
        ridge_problem_make(cases[k], &p);
        const int64_t row = 2 * 70 + 30; /* item 1, head 0, row 30 */
        const bool of_values = given == RIDGE_DOUT || given == RIDGE_DQUADRATIC;
        p.array[given][of_values ? row * 4 + 1 : row] = NAN;
        if (ridge_run_on(&attention_machines[m], &p, &r)) {
          assert_int_equal(r.status, HARK_OK);
          for (int a = RIDGE_DQUERY; a < RIDGE_ARRAYS; a++)
            for (int64_t i = 0; r.array[a] != NULL && i < ridge_count_of(&p, (ridge_array)a); i++) {
              const int64_t at = a == RIDGE_DNOISE ? i : i / 4;
              const bool apart =
                  a == RIDGE_DVALUE ? !of_values : a == RIDGE_DQUERY && (given == RIDGE_DLOG_DETERMINANT || given == RIDGE_DQUADRATIC);
              const bool finite = apart || at / 70 != 2 || (a == RIDGE_DQUERY && at != row);
              const bool reached = !apart && at / 70 == 2 && (a == RIDGE_DQUERY ? at == row : at <= row);
              if (a == RIDGE_DVALUE && reached && i % 4 != 1) continue; /* columns of values are apart */
              if ((finite && !isfinite(r.array[a][i])) || (reached && isfinite(r.array[a][i])))
                fail_msg("%s on %s: %s has a NaN, and %s[%d] is %g", p.text, attention_machines[m].name, ridge_array_names[given],
                         ridge_array_names[a], (int)i, r.array[a][i]);
            }
          ridge_results_free(&r);
        }
        ridge_problem_free(&p);
      }
}

/* Descriptors that are refused, one wrong field each. */
static void test_refused_descriptors(void **state) {
  (void)state;
  const hark_attention_desc good = {.struct_size = sizeof good,
                                    .type = HARK_F32,
                                    .normalisation = HARK_NORMALISATION_CME,
                                    .batch = 1,
                                    .heads = 2,
                                    .query_length = 4,
                                    .key_length = 4,
                                    .head_dim = 4,
                                    .ridge = 1};
  hark_attention_desc wrong[32];
  const char *says[32];
  int count = 0;
#define WRONG(text, ...)                                                                                                                   \
  do {                                                                                                                                     \
    hark_attention_desc d = good;                                                                                                          \
    __VA_ARGS__;                                                                                                                           \
    says[count] = (text);                                                                                                                  \
    wrong[count++] = d;                                                                                                                    \
  } while (0)
  WRONG("ridge is 0 with normalisation cme", d.ridge = 0);
  WRONG("ridge is -1 with normalisation cme", d.ridge = -1);
  WRONG("ridge is inf with normalisation cme", d.ridge = INFINITY);
  WRONG("ridge is 1 with has_ridge", d.has_ridge = true);
  WRONG("ridge_power is 2, expected 0 to 1", d.ridge_power = 2);
  WRONG("ridge_power is 0.5 and causal is set", (d.ridge_power = 0.5, d.causal = true));
  WRONG("has_sigma and kernel exp", d.has_sigma = true);
  WRONG("sigma is 1 with has_sigma", (d.kernel = HARK_KERNEL_RBF, d.has_sigma = true, d.sigma = 1));
  WRONG("bound is 1 with kernel rbf", (d.kernel = HARK_KERNEL_RBF, d.sigma = 1, d.bound = 1));
  WRONG("bound is -1, expected a finite number", d.bound = -1);
  WRONG("bound is 2 with unit", (d.unit = true, d.bound = 2));
  WRONG("is beyond 80, the range", (d.scale = 100, d.bound = 1));
  WRONG("scale is -1 with normalisation cme", d.scale = -1);
  WRONG("structure is window with normalisation cme", (d.structure = HARK_STRUCTURE_WINDOW, d.window = 1));
  WRONG("has_bias with normalisation cme", d.has_bias = true);
  WRONG("has_forget with normalisation cme", (d.has_forget = true, d.causal = true));
  WRONG("dropout with normalisation cme", d.dropout = 0.5);
  WRONG("ridge is 1 with normalisation softmax", d.normalisation = HARK_NORMALISATION_SOFTMAX);
  WRONG("has_dvariance is 2, expected 0 or 1", d.has_dvariance = 2);
  WRONG("has_dvariance is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_dvariance = 1));
  WRONG("has_noise is 7, expected 0 or 1", d.has_noise = 7);
  WRONG("has_noise is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_noise = 1));
  WRONG("ridge is -1 with normalisation cme, expected a finite number from 0", (d.ridge = -1, d.has_noise = 1));
  WRONG("has_dlog_determinant is -1, expected 0 or 1", d.has_dlog_determinant = -1);
  WRONG("has_dlog_determinant is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_dlog_determinant = 1));
  WRONG("has_dquadratic is 3, expected 0 or 1", d.has_dquadratic = 3);
  WRONG("has_dquadratic is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_dquadratic = 1));
#undef WRONG
  hark_context *context = attention_machine_open(&attention_machines[2], 1);
  for (int i = 0; i < count; i++) {
    assert_true(hark_attention_supports(context, &wrong[i]) != HARK_OK);
    if (strstr(hark_context_message(context), says[i]) == NULL) fail_msg("\"%s\", expected \"%s\"", hark_context_message(context), says[i]);
  }
  assert_int_equal(hark_attention_supports(context, &good), HARK_OK);
  hark_context_destroy(&context);
}

#define ALIGNMENT 64 /* of the parts of a workspace */

/* ---- statistics, noise and their gradients ---- */

static void assert_fine(const hark_context *context, hark_status status) {
  if (status != HARK_OK) fail_msg("%s", hark_context_message(context));
}

enum { ROWS = 4, DIM = 2, TENSORS = 6 };

/* A call of one head with all of them, and three plans: with all that they need, without, and of softmax. */
typedef struct statistic_call {
  hark_context *context;
  hark_attention_plan *plans[3];
  void *workspace, *saved;
  float rows[ROWS * DIM], out[ROWS * DIM], dkey[ROWS * DIM], numbers[TENSORS][ROWS];
  hark_attention_args args;
} statistic_call;

static const struct {
  const char *name, *field; /* of the descriptor, without which it is refused */
  size_t at;
  bool result, backward;
} statistic_tensors[TENSORS] = {
    {"variance", NULL, offsetof(hark_attention_args, variance), true, false},
    {"log_determinant", NULL, offsetof(hark_attention_args, log_determinant), true, false},
    {"noise", "has_noise", offsetof(hark_attention_args, noise), false, false},
    {"dvariance", "has_dvariance", offsetof(hark_attention_args, dvariance), false, true},
    {"dlog_determinant", "has_dlog_determinant", offsetof(hark_attention_args, dlog_determinant), false, true},
    {"dnoise", "has_noise", offsetof(hark_attention_args, dnoise), true, true},
};

static hark_tensor *statistic_tensor(hark_attention_args *args, int i) {
  return (hark_tensor *)(void *)((char *)args + statistic_tensors[i].at);
}

static void statistic_open(statistic_call *c) {
  *c = (statistic_call){.context = attention_machine_open(&attention_machines[2], 1)};
  size_t bytes = 0;
  for (int i = 0; i < 3; i++) {
    hark_attention_desc desc = hark_attention_desc_default();
    desc.batch = desc.heads = 1;
    desc.query_length = desc.key_length = ROWS;
    desc.head_dim = DIM;
    desc.normalisation = i < 2 ? HARK_NORMALISATION_CME : HARK_NORMALISATION_SOFTMAX;
    desc.ridge = i < 2;
    desc.has_dvariance = desc.has_dlog_determinant = desc.has_dquadratic = desc.has_noise = i == 0;
    assert_fine(c->context, hark_attention_plan_create(c->context, &desc, &c->plans[i]));
    const hark_attention_sizes sizes = hark_attention_plan_sizes(c->plans[i]);
    bytes += sizes.forward_workspace + sizes.backward_workspace + sizes.saved + ALIGNMENT;
  }
  c->workspace = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
  c->saved = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
  assert_true(c->workspace != NULL && c->saved != NULL);
  c->args = (hark_attention_args){.struct_size = sizeof c->args, .workspace = c->workspace, .saved = c->saved};
  const int64_t row_shape[] = {1, 1, ROWS, DIM}, shape[] = {1, 1, ROWS};
  hark_tensor *const of_rows[] = {&c->args.query, &c->args.key, &c->args.value, &c->args.dout, &c->args.out, &c->args.dkey};
  for (int i = 0; i < 6; i++)
    assert_fine(c->context, hark_tensor_wrap(c->context,
                                             i < 4    ? c->rows
                                             : i == 4 ? c->out
                                                      : c->dkey,
                                             HARK_F32, 4, row_shape, NULL, of_rows[i]));
  for (int i = 0; i < TENSORS; i++)
    assert_fine(c->context, hark_tensor_wrap(c->context, c->numbers[i], HARK_F32, 3, shape, NULL, statistic_tensor(&c->args, i)));
}

static void statistic_close(statistic_call *c) {
  for (int i = 0; i < 3; i++) hark_attention_plan_destroy(c->context, &c->plans[i]);
  free(c->workspace);
  free(c->saved);
  hark_context_destroy(&c->context);
}

/* A call in the direction that takes tensor i. */
static hark_status statistic_run(const statistic_call *c, int plan, int i, const hark_attention_args *args) {
  return (statistic_tensors[i].backward ? hark_attention_backward : hark_attention_forward)(c->context, c->plans[plan], args);
}

static void expect_refused(const statistic_call *c, int plan, int i, const hark_attention_args *args, hark_status status,
                           const char *says) {
  const hark_status have = statistic_run(c, plan, i, args);
  const char *const message = hark_context_message(c->context);
  if (have != status || strstr(message, statistic_tensors[i].name) == NULL || strstr(message, says) == NULL)
    fail_msg("%s: %s \"%s\", expected %s, %s", statistic_tensors[i].name, hark_status_name(have), message, hark_status_name(status), says);
}

/* Type, shape, strides, and memory that a result has too. */
static void test_refused_statistics(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  const int64_t shape[] = {1, 1, ROWS}, strides[] = {2 * ROWS, 2 * ROWS, 2};
  for (int i = 0; i < TENSORS; i++) {
    assert_fine(c.context, statistic_run(&c, 0, i, &c.args));
    hark_attention_args wrong = c.args;
    double wide[ROWS];
    assert_fine(c.context, hark_tensor_wrap(c.context, wide, HARK_F64, 3, shape, NULL, statistic_tensor(&wrong, i)));
    expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "is f64, expected f32");
    wrong = c.args;
    statistic_tensor(&wrong, i)->shape[2] = ROWS - 1;
    expect_refused(&c, 0, i, &wrong, HARK_SHAPE_MISMATCH, "expected [1, 1, 4]");
    wrong = c.args;
    float apart[2 * ROWS] = {0};
    assert_fine(c.context, hark_tensor_wrap(c.context, apart, HARK_F32, 3, shape, strides, statistic_tensor(&wrong, i)));
    if (statistic_tensors[i].field == NULL || statistic_tensors[i].field[strlen("has_")] == 'd')
      expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "is strided, expected contiguous");
    else
      assert_fine(c.context, statistic_run(&c, 0, i, &wrong)); /* noise has any strides */
    wrong = c.args;
    statistic_tensor(&wrong, i)->data = statistic_tensors[i].backward ? c.dkey : c.out;
    expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "share memory");
    wrong = c.args;
    if (statistic_tensors[i].result) statistic_tensor(&wrong, i)->data = c.rows; /* an input */
    if (statistic_tensors[i].result) expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "share memory");
  }
  statistic_close(&c);
}

/* Each alone with a plan that has no place for it. */
static void test_unplanned_statistics(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  for (int i = 0; i < TENSORS; i++)
    for (int plan = 1; plan < 3; plan++) {
      hark_attention_args wrong = c.args;
      for (int k = 0; k < TENSORS; k++)
        if (k != i) *statistic_tensor(&wrong, k) = (hark_tensor){0};
      const char *const field = statistic_tensors[i].field;
      float sums[ROWS] = {0};
      const int64_t shape[] = {1, 1, ROWS};
      if (plan == 2) assert_fine(c.context, hark_tensor_wrap(c.context, sums, HARK_F32, 3, shape, NULL, &wrong.log_sum_exp));
      if (plan == 1 && field == NULL)
        assert_fine(c.context, statistic_run(&c, plan, i, &wrong)); /* variance and log_determinant need none */
      else if (plan == 2 && strstr(statistic_tensors[i].name, "noise") == NULL)
        expect_refused(&c, plan, i, &wrong, HARK_UNSUPPORTED, "is given with normalisation softmax, which has none");
      else
        expect_refused(&c, plan, i, &wrong, HARK_INVALID_ARGUMENT, i == TENSORS - 1 ? "noise" : field);
    }
  statistic_close(&c);
}

/* Without dout, which is zero then. */
static void test_statistics_alone(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  for (int i = 0; i < ROWS * DIM; i++) c.rows[i] = 0.25f * (float)i - 0.5f;
  for (int i = 0; i < ROWS; i++) c.numbers[3][i] = c.numbers[4][i] = (float)i - 1.5f; /* dvariance, dlog_determinant */
  for (int alone = 0; alone < 2; alone++) {
    hark_attention_args args = c.args;
    float zeros[ROWS * DIM] = {0}, expected[ROWS * DIM];
    *statistic_tensor(&args, 3 + alone) = (hark_tensor){0};
    args.dout.data = zeros;
    assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
    memcpy(expected, c.dkey, sizeof expected);
    args.dout = (hark_tensor){0};
    memset(c.dkey, 0xff, sizeof c.dkey);
    assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
    assert_memory_equal(c.dkey, expected, sizeof expected);
  }
  statistic_close(&c);
}

/* The quadratic form and its gradient, which have the shape of out. */
static void test_refused_quadratics(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  const int64_t shape[] = {1, 1, ROWS, DIM}, strides[] = {ROWS * DIM, ROWS * DIM, DIM, 2};
  double wide[2 * ROWS * DIM] = {0};
  float numbers[2 * ROWS * DIM] = {0}, zeros[ROWS * DIM] = {0}, expected[ROWS * DIM];
  for (int backward = 0; backward < 2; backward++) {
    hark_attention_args args = c.args;
    for (int i = 0; i < TENSORS; i++)
      if (i != 2) *statistic_tensor(&args, i) = (hark_tensor){0}; /* noise remains */
    hark_tensor *const tensor = backward ? &args.dquadratic : &args.quadratic, given;
    hark_status (*const call)(hark_context *, const hark_attention_plan *, const hark_attention_args *) =
        backward ? hark_attention_backward : hark_attention_forward;
    const char *const name = backward ? "dquadratic" : "quadratic";
    assert_fine(c.context, hark_tensor_wrap(c.context, numbers, HARK_F32, 4, shape, NULL, &given));
    for (int way = 0; way < 7; way++) {
      static const char *const says[] = {
          "",
          "is f64, expected f32",
          "has shape [1, 1, 3, 2], expected [1, 1, 4, 2]",
          "has stride 2 in its last dimension, expected 1",
          "share memory",
          "the plan was made without has_dquadratic",
          "is given with normalisation softmax, which has none",
      };
      *tensor = given;
      if (way == 1) assert_fine(c.context, hark_tensor_wrap(c.context, wide, HARK_F64, 4, shape, NULL, tensor));
      if (way == 2) tensor->shape[2]--;
      if (way == 3) assert_fine(c.context, hark_tensor_wrap(c.context, numbers, HARK_F32, 4, shape, strides, tensor));
      if (way == 4) tensor->data = backward ? c.dkey : c.out;
      if (way >= 5) args.noise = (hark_tensor){0};
      hark_attention_args last = args;
      float sums[ROWS] = {0};
      if (way == 6) assert_fine(c.context, hark_tensor_wrap(c.context, sums, HARK_F32, 3, shape, NULL, &last.log_sum_exp));
      const hark_status status = call(c.context, c.plans[way < 5 ? 0 : way - 4], &last);
      const bool fine = way == 0 || (way == 5 && !backward);
      const char *const message = hark_context_message(c.context);
      if (fine != (status == HARK_OK) || (!fine && (strstr(message, says[way]) == NULL || strstr(message, name) == NULL)))
        fail_msg("%s, way %d: %s \"%s\", expected \"%s\"", name, way, hark_status_name(status), message, says[way]);
    }
  }
  /* without dout, which is zero then */
  for (int i = 0; i < ROWS * DIM; i++) c.rows[i] = 0.25f * (float)i - 0.5f;
  for (int i = 0; i < ROWS; i++) c.numbers[2][i] = 0.5f;
  hark_attention_args args = c.args;
  args.dvariance = args.dlog_determinant = (hark_tensor){0};
  assert_fine(c.context, hark_tensor_wrap(c.context, c.rows, HARK_F32, 4, shape, NULL, &args.dquadratic));
  args.dout.data = zeros;
  assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
  memcpy(expected, c.dkey, sizeof expected);
  args.dout = args.out = (hark_tensor){0};
  memset(c.dkey, 0xff, sizeof c.dkey);
  assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
  assert_memory_equal(c.dkey, expected, sizeof expected);
  assert_true(expected[0] != 0);
  statistic_close(&c);
}

/* A form beyond the range of the type is infinite; nothing else is affected. */
static void test_large_quadratic(void **state) {
  (void)state;
  for (int causal = 0; causal < 2; causal++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(causal ? "cme:B1,H1,L70,D3,V2,rbf,causal" : "cme:B1,H1,L70,D3,V2,rbf", &p);
      for (int64_t i = 0; i < 70; i++) p.array[RIDGE_VALUE][2 * i] = (double)(i % 2 == 0 ? 1e25f : -1e25f);
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_OK);
        for (int64_t i = 0; i < 70; i++) {
          assert_true((isfinite(r.array[RIDGE_QUADRATIC][2 * i]) != 0) == (attention_machines[m].type == HARK_F64));
          assert_true(isfinite(r.array[RIDGE_QUADRATIC][2 * i + 1]) && isfinite(r.array[RIDGE_OUT][2 * i]));
        }
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* Counted operations against a count row by row. */
static void test_operations(void **state) {
  (void)state;
  static const int64_t sizes[][2] = {{1, 1}, {5, 5}, {3, 9}, {9, 3}, {1, 40}, {40, 1}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    hark_attention_desc desc = hark_attention_desc_default();
    const int64_t m = desc.query_length = sizes[i][0], n = desc.key_length = sizes[i][1];
    const double length = (double)n, d = 3, dv = 2;
    desc.normalisation = HARK_NORMALISATION_CME;
    desc.batch = desc.heads = 1;
    desc.head_dim = 3;
    desc.value_dim = 2;
    desc.ridge = 1;
    desc.causal = true;
    double products = length * length * d / 2 + length * length * length / 6 + length * length * dv / 2;
    for (int64_t row = 0; row < m; row++) {
      const double seen = (double)(row + n - m + 1 > 0 ? row + n - m + 1 : 0);
      products += seen * (d + dv) + seen * seen / 2;
    }
    assert_true(fabs(hark_attention_desc_operations(&desc, false) - 2 * products) < 1e-9 * products);
  }
}

/* Operations that gradients by statistics add to a backward: products of every row, and of every key. */
static void test_operations_of_statistics(void **state) {
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    hark_attention_desc desc = hark_attention_desc_default();
    const double m = 5, n = 9, dv = 2;
    desc.normalisation = HARK_NORMALISATION_CME;
    desc.batch = desc.heads = 1;
    desc.query_length = (int64_t)m;
    desc.key_length = (int64_t)n;
    desc.head_dim = 3;
    desc.value_dim = (int64_t)dv;
    desc.ridge = 1;
    desc.causal = causal != 0;
    const double plain = hark_attention_desc_operations(&desc, true), forward = hark_attention_desc_operations(&desc, false);
    double more = 0;
    for (int64_t row = 0; row < desc.query_length && !causal; row++) more += 3 * n * n / 2; /* R^-1 b, R^-T of that, its outer product */
    desc.has_dvariance = 1;
    assert_true(fabs(hark_attention_desc_operations(&desc, true) - plain - 2 * more) < 1e-9 * plain);
    more += n * n * n / 3; /* R^-1 and R^-T R^-1 */
    desc.has_dlog_determinant = 1;
    assert_true(fabs(hark_attention_desc_operations(&desc, true) - plain - 2 * more) < 1e-9 * plain);
    for (int64_t row = 0; row < desc.query_length && causal; row++) { /* R^-T of its part of U, and the outer product of that */
      const double seen = (double)(row + desc.key_length - desc.query_length + 1);
      more += dv * seen * seen;
    }
    if (!causal) more += 2 * n * dv;
    desc.has_dquadratic = 1;
    assert_true(fabs(hark_attention_desc_operations(&desc, true) - plain - 2 * more) < 1e-9 * plain);
    assert_true(hark_attention_desc_operations(&desc, false) == forward);
  }
}

/* The plan says what a triangle takes; a length beyond what memory can be is refused when it is made. */
static void test_plan(void **state) {
  (void)state;
  hark_context *context = attention_machine_open(&attention_machines[2], 1);
  ridge_problem p;
  ridge_problem_make("cme:B1,H2,L130,D4,causal", &p);
  hark_attention_desc desc = ridge_problem_desc(&p, HARK_F32);
  hark_attention_plan *plan;
  char text[512];
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_plan_print(plan, text, sizeof text);
  assert_non_null(strstr(text, "exp cme f32"));
  assert_non_null(strstr(text, "a triangle of 98304 bytes a worker, two in the backward")); /* 3 (3 + 1) / 2 tiles of 64 x 64 x 4 bytes */
  hark_attention_plan_destroy(context, &plan);
  desc.max_sequences = 3;
  desc.longest = 60; /* of a batch of several sequences: one tile is enough for each */
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_plan_print(plan, text, sizeof text);
  assert_non_null(strstr(text, "a triangle of 16384 bytes a worker"));
  hark_attention_plan_destroy(context, &plan);
  desc.longest = 0;
  desc.key_length = desc.query_length = (int64_t)1 << 36;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_TOO_LARGE);
  ridge_problem_free(&p);
  hark_context_destroy(&context);
}

/* Scratch memory of a plan less the triangles that it says it has in flight. */
static double beside_triangles(hark_context *context, const hark_attention_desc *desc, bool backward) {
  hark_attention_plan *plan;
  char text[512];
  long long triangle = 0;
  int workers = 0;
  assert_int_equal(hark_attention_plan_create(context, desc, &plan), HARK_OK);
  hark_attention_plan_print(plan, text, sizeof text);
  assert_int_equal(
      sscanf(strstr(text, " workers, a triangle of ") - 1, "%d workers, a triangle of %lld bytes a worker", &workers, &triangle), 2);
  assert_int_equal(workers, hark_context_threads(context));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const int triangles = workers * (backward && desc->causal ? 2 : 1);
  hark_attention_plan_destroy(context, &plan);
  const double rest = (double)(backward ? sizes.backward_workspace : sizes.forward_workspace) - (double)triangles * (double)triangle;
  assert_true(rest > 0);
  return rest;
}

/* One triangle a worker and no more, two in the causal backward: what is left over is a line in L, whatever batch and heads (a sequence's
 * entry and a partial sum apart). Runs have this memory and a fence after it (kernel_ridge_case.c). */
static void test_memory(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = attention_machine_open(&attention_machines[m], 3);
    if (context == NULL || attention_machines[m].type != HARK_F32 || strcmp(attention_machines[m].backend, "cpu") != 0) {
      if (context != NULL) hark_context_destroy(&context);
      continue;
    }
    for (int causal = 0; causal < 2; causal++)
      for (int backward = 0; backward < 2; backward++) {
        hark_attention_desc desc = hark_attention_desc_default();
        desc.normalisation = HARK_NORMALISATION_CME;
        desc.ridge = 1;
        desc.batch = desc.heads = 1;
        desc.head_dim = 32;
        desc.causal = causal != 0;
        double at[3];
        for (int i = 0; i < 3; i++) {
          desc.query_length = desc.key_length = (int64_t)1024 * (i + 1);
          at[i] = beside_triangles(context, &desc, backward != 0);
        }
        assert_true(at[2] - at[1] == at[1] - at[0]);
        desc.batch = 16;
        desc.heads = 8;
        assert_true(beside_triangles(context, &desc, backward != 0) - at[2] < 16 * 8 * 64);
      }
    hark_context_destroy(&context);
  }
}

/* What the plan asks for is what a run with variances takes: all of the workspace but what aligns its parts is written to by one thread, in
 * both directions (the fence after it, in kernel_ridge_case.c, is not; nor is anything allocated besides). */
static void test_measured_memory(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B1,H2,L512,D16,V24,rbf,threads=1",
                                      "cme:B1,H2,L512,D16,V24,rbf,causal,kernel,threads=1",
                                      "cme:B1,H2,L512,D16,V24,rbf,dvariance,threads=1",
                                      "cme:B1,H2,L512,D16,V24,determinant,threads=1",
                                      "cme:B1,H2,L512,D16,V24,causal,noise,threads=1",
                                      "cme:B1,H2,L512,D16,V24,rbf,quadratic,threads=1",
                                      "cme:B1,H2,L512,D16,V3,causal,quadratic,threads=1"};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(cases[k], &p);
      if (strcmp(attention_machines[m].backend, "cpu") == 0 && attention_machines[m].type == HARK_F32 &&
          ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_OK);
        for (int backward = 0; backward < 2; backward++)
          if (r.touched[backward] + 2 * ALIGNMENT < r.workspace[backward])
            fail_msg("%s on %s: %s wrote to %zu bytes of a workspace of %zu", p.text, attention_machines[m].name,
                     backward ? "the backward" : "the forward", r.touched[backward], r.workspace[backward]);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_causality),
      cmocka_unit_test(test_duplicates),
      cmocka_unit_test(test_indefinite_table),
      cmocka_unit_test(test_limits),
      cmocka_unit_test(test_alone),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_hidden_keys),
      cmocka_unit_test(test_no_keys),
      cmocka_unit_test(test_noise),
      cmocka_unit_test(test_wrong_noise),
      cmocka_unit_test(test_unseen_keys),
      cmocka_unit_test(test_wrong_numbers),
      cmocka_unit_test(test_first_wrong_row),
      cmocka_unit_test(test_unbounded_exponential),
      cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_far_apart),
      cmocka_unit_test(test_own_kernel),
      cmocka_unit_test(test_gradients_not_finite),
      cmocka_unit_test(test_refused_descriptors),
      cmocka_unit_test(test_refused_statistics),
      cmocka_unit_test(test_unplanned_statistics),
      cmocka_unit_test(test_statistics_alone),
      cmocka_unit_test(test_refused_quadratics),
      cmocka_unit_test(test_large_quadratic),
      cmocka_unit_test(test_operations),
      cmocka_unit_test(test_operations_of_statistics),
      cmocka_unit_test(test_plan),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_measured_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
