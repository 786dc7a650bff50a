/* head_sum.c - heads that are concatenated and projected are a sum of heads.
 *
 *     concat(head_1 .. head_h) W^o = sum_i attn(q, K_i, X W~_i W^o_i),
 *     head_i = attn(q, K_i, X W~_i),  W^o = (W^o_1; ..; W^o_h)      (B.2 = B.3)
 *
 * so the sum's values are X W^v_i with W^v_i = W~_i W^o_i, of rank d_p at most: a sum with free W^v_i is more general. Source: X section
 * B.2.
 */
#include <string.h>

#include "lab/attention.h"
#include "lab/matrix.h"
#include "lab/singular.h"

enum { WIDTH, HEADS, LENGTH, KERNEL, DIFFERENCE, DISPLACED, RANK, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"d", NULL, NULL},
                                                 {"heads", NULL, NULL},
                                                 {"L", "tokens", NULL},
                                                 {"kernel", NULL, "exp|rbf"},
                                                 {"difference", "largest", NULL},
                                                 {"difference, rows of W^o shifted by one", "largest", NULL},
                                                 {"rank of W^v", "largest", NULL}};

typedef struct shape {
  int64_t width, heads, length;
} shape;

/* Entries of variance 1 / inputs, so that outputs are of size one. */
static hark_status draw_weights(hark_lab *lab, uint32_t stream, int64_t inputs, int64_t outputs, double **out) {
  return hark_lab_draw_normal(lab, stream, inputs * outputs, 1 / sqrt((double)inputs), out);
}

/* One head, both ways: its part of the concatenation and its term of the sum. */
static hark_status add_head(hark_lab *lab, const shape *s, int64_t number, const hark_attention_desc *choice, const double *tokens,
                            const double *output_weights, double *concatenated, double *sum, double *rank) {
  const int64_t d = s->width, dp = d / s->heads, L = s->length;
  const uint32_t stream = 4 * (uint32_t)number + 2;
  double *wq, *wk, *small, *wv, *query, *key, *value, *narrow, *out, *values;
  HARK_TRY(draw_weights(lab, stream, d, dp, &wq));
  HARK_TRY(draw_weights(lab, stream + 1, d, dp, &wk));
  HARK_TRY(draw_weights(lab, stream + 2, d, dp, &small));
  HARK_TRY(hark_lab_numbers(lab, d * d, &wv));
  HARK_TRY(hark_lab_numbers(lab, L * dp, &query));
  HARK_TRY(hark_lab_numbers(lab, L * dp, &key));
  HARK_TRY(hark_lab_numbers(lab, L * d, &value));
  HARK_TRY(hark_lab_numbers(lab, L * dp, &narrow));
  HARK_TRY(hark_lab_numbers(lab, L * d, &out));
  HARK_TRY(hark_lab_numbers(lab, d, &values));
  hark_lab_multiply(L, d, dp, tokens, wq, query);
  hark_lab_multiply(L, d, dp, tokens, wk, key);
  hark_lab_head head = {.length = L, .head_dim = dp, .value_dim = dp, .query = query, .key = key, .value = value};
  hark_lab_multiply(L, d, dp, tokens, small, value);
  HARK_TRY(hark_lab_attend(lab->context, choice, &head, narrow));
  for (int64_t l = 0; l < L; l++) memcpy(concatenated + l * d + number * dp, narrow + l * dp, (size_t)dp * sizeof *narrow);
  head.value_dim = d;
  hark_lab_multiply(d, dp, d, small, output_weights + number * dp * d, wv);
  hark_lab_multiply(L, d, d, tokens, wv, value);
  HARK_TRY(hark_lab_attend(lab->context, choice, &head, out));
  for (int64_t i = 0; i < L * d; i++) sum[i] += out[i];
  hark_singular_values(d, d, wv, values);
  *rank = hark_larger(*rank, (double)hark_numerical_rank(values, d, 1e-10 * values[0]));
  return HARK_OK;
}

static hark_status measure_shape(hark_lab *lab, hark_lab_table *table, const shape *s, bool rbf) {
  const int64_t d = s->width, L = s->length;
  double *tokens, *output_weights, *concatenated, *projected, *sum;
  double row[COLUMNS] = {[WIDTH] = (double)d, [HEADS] = (double)s->heads, [LENGTH] = (double)L, [KERNEL] = rbf};
  hark_attention_desc choice = hark_attention_desc_default();
  if (rbf) {
    choice.kernel = HARK_KERNEL_RBF;
    choice.sigma = sqrt((double)(d / s->heads));
  }
  HARK_TRY(hark_lab_numbers(lab, L * d, &tokens));
  HARK_TRY(draw_weights(lab, 0, d, d, &output_weights));
  HARK_TRY(hark_lab_numbers(lab, L * d, &concatenated));
  HARK_TRY(hark_lab_numbers(lab, L * d, &projected));
  HARK_TRY(hark_lab_numbers(lab, L * d, &sum));
  hark_lab_normal(lab, 1, L * d, tokens);
  for (int64_t i = 0; i < s->heads; i++) HARK_TRY(add_head(lab, s, i, &choice, tokens, output_weights, concatenated, sum, &row[RANK]));
  hark_lab_multiply(L, d, d, concatenated, output_weights, projected);
  for (int64_t i = 0; i < L * d; i++) row[DIFFERENCE] = hark_lab_larger(row[DIFFERENCE], fabs(sum[i] - projected[i]));
  /* the same with the rows of W^o shifted by one: a head is multiplied by output weights of another head */
  for (int64_t i = 0; i < d; i++) {
    const double first = output_weights[i];
    for (int64_t r = 0; r + 1 < d; r++) output_weights[r * d + i] = output_weights[(r + 1) * d + i];
    output_weights[(d - 1) * d + i] = first;
  }
  hark_lab_multiply(L, d, d, concatenated, output_weights, projected);
  for (int64_t i = 0; i < L * d; i++) row[DISPLACED] = hark_lab_larger(row[DISPLACED], fabs(sum[i] - projected[i]));
  return hark_lab_add_row(lab, table, row);
}

static hark_status measure(hark_lab *lab) {
  static const shape shapes[] = {{4, 1, 8}, {4, 4, 8}, {16, 4, 64}, {32, 2, 128}, {64, 8, 256}};
  const size_t count = sizeof shapes / sizeof shapes[0] - (lab->quick ? 2 : 0);
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "concatenation with projection, compared with the sum", columns, COLUMNS, &table));
  for (size_t i = 0; i < count; i++)
    for (int rbf = 0; rbf < 2; rbf++) HARK_TRY(measure_shape(lab, table, &shapes[i], rbf == 1));
  return HARK_OK;
}

/* The equality is an identity of sums in a different order: outputs have size one, differences 1e-15. With shifted output weights
 * differences have size one, which shows that the equality could fail. */
static hark_status judge(hark_lab *lab) {
  double difference = 0, rank = 0, displaced = INFINITY;
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
    const double *const row = hark_lab_row(&lab->tables[0], i);
    difference = hark_lab_larger(difference, row[DIFFERENCE]);
    displaced = hark_lab_smaller(displaced, row[DISPLACED]);
    rank = hark_lab_larger(rank, row[RANK] * row[HEADS] / row[WIDTH]);
  }
  HARK_TRY(hark_lab_require(lab, difference, 0, 1e-12, "the sum of heads equals the concatenation, largest difference"));
  HARK_TRY(hark_lab_require(lab, displaced, 0.1, INFINITY, "difference with the rows of W^o shifted by one, least over the shapes"));
  return hark_lab_require(lab, rank, 0, 1, "(rank of W^v) / (d/h), largest");
}

const hark_experiment hark_experiment_head_sum = {
    .summary = "heads concatenated and projected are a sum of heads",
    .paper = HARK_LAB_PAPER_X "section B.2, equations B.2 and B.3",
    .statement =
        "Let W~_i be the value matrix of head i, W^o_i the rows of the output matrix W^o for this head, and W^v_i = "
        "W~_i W^o_i. Then the sum of h heads whose values have all d features equals the projected concatenation of h "
        "heads whose values have d/h features. This holds for the kernels exp and rbf. It does not hold if the rows of "
        "W^o are shifted by one",
    .notes =
        "    concat(head_1 .. head_h) W^o = sum_i attn(Q_i, K_i, X W^v_i),      W^v_i = W~_i W^o_i\n"
        "\n"
        "The identity holds because attention is linear in its values. These W^v_i have rank d/h at most. The paper's "
        "section C uses the sum of heads with free d x d matrices. This class is larger: every concatenation is such a "
        "sum, but not every such sum is a concatenation.",
    .measure = measure,
    .judge = judge};
