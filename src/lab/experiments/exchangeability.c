/* exchangeability.c - the output of an encoder does not depend on the order of tokens that contain their positions.
 *
 *     x_l = token_l + position_l;     X <- X + sum over heads attn(X W^q, X W^k, X W^v),   X <- X + relu(X A) B,   some layers
 *     encoder(P X) = P encoder(X)  for every permutation P of the rows
 *
 * This does not hold when the tokens alone are permuted and positions stay in place, because positions represent the order; nor with a
 * positional kernel inside of attention, which depends on the row numbers. Source: X section 3, figure 1.
 */
#include <float.h>

#include "lab/attention.h"
#include "lab/matrix.h"

#define WIDTH 16
#define HEADS 2
#define HEAD_DIM (WIDTH / HEADS)
#define HIDDEN 32
#define LAYERS 2
#define FIRST_ORDER_STREAM 1000 /* one for each length; each order that is drawn again is as far from the previous one */
#define ORDER_STREAMS 65536
#define NO_ROUNDING 1e9 /* times a difference that is rounding */

enum { LENGTH, KERNEL, TOGETHER, MEAN, TOKENS_ALONE, WITH_KERNEL, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"L", "tokens", NULL},
                                                 {"kernel", NULL, "exp|rbf"},
                                                 {"with positions", "largest difference", NULL},
                                                 {"mean over tokens", "largest difference", NULL},
                                                 {"tokens alone", "largest difference", NULL},
                                                 {"positional kernel", "largest difference", NULL}};

typedef struct layer {
  hark_lab_heads heads;
  double *in, *out; /* of the feed-forward part */
} layer;

typedef struct encoder {
  hark_lab *lab;
  int64_t length;
  hark_attention_desc attention;
  layer layers[LAYERS];
  double *hidden, *change; /* [L, HIDDEN], [L, WIDTH] */
} encoder;

/* Entries of variance 1 / inputs. */
static void draw_weights(const hark_lab *lab, uint32_t *stream, int64_t inputs, int64_t count, double *out) {
  hark_lab_normal(lab, (*stream)++, count, out);
  for (int64_t i = 0; i < count; i++) out[i] /= sqrt((double)inputs);
}

static hark_status make_encoder(hark_lab *lab, int64_t length, bool rbf, encoder *e) {
  uint32_t stream = 2; /* 0 and 1: tokens and positions */
  *e = (encoder){.lab = lab, .length = length, .attention = hark_attention_desc_default()};
  if (rbf) {
    e->attention.kernel = HARK_KERNEL_RBF;
    e->attention.sigma = sqrt(HEAD_DIM);
  }
  for (int i = 0; i < LAYERS; i++) {
    layer *const l = &e->layers[i];
    l->heads = (hark_lab_heads){.heads = HEADS, .width = WIDTH, .head_dim = HEAD_DIM, .length = length};
    HARK_TRY(hark_lab_make_heads(lab, &l->heads));
    HARK_TRY(hark_lab_numbers(lab, (int64_t)WIDTH * HIDDEN, &l->in));
    HARK_TRY(hark_lab_numbers(lab, (int64_t)HIDDEN * WIDTH, &l->out));
    draw_weights(lab, &stream, WIDTH, (int64_t)HEADS * WIDTH * HEAD_DIM, l->heads.query);
    draw_weights(lab, &stream, WIDTH, (int64_t)HEADS * WIDTH * HEAD_DIM, l->heads.key);
    draw_weights(lab, &stream, WIDTH, (int64_t)HEADS * WIDTH * WIDTH, l->heads.value);
    draw_weights(lab, &stream, WIDTH, (int64_t)WIDTH * HIDDEN, l->in);
    draw_weights(lab, &stream, HIDDEN, (int64_t)HIDDEN * WIDTH, l->out);
  }
  HARK_TRY(hark_lab_numbers(lab, length * HIDDEN, &e->hidden));
  return hark_lab_numbers(lab, length * WIDTH, &e->change);
}

static void add(int64_t count, const double *change, double *x) {
  for (int64_t i = 0; i < count; i++) x[i] += change[i];
}

/* x [L, WIDTH] becomes the encoder's output. */
static hark_status encode(const encoder *e, double *x) {
  for (int i = 0; i < LAYERS; i++) {
    HARK_TRY(hark_lab_sum_heads(e->lab->context, &e->attention, &e->layers[i].heads, x, e->change));
    add(e->length * WIDTH, e->change, x);
    hark_lab_multiply(e->length, WIDTH, HIDDEN, x, e->layers[i].in, e->hidden);
    for (int64_t j = 0; j < e->length * HIDDEN; j++) e->hidden[j] = hark_larger(e->hidden[j], 0);
    hark_lab_multiply(e->length, HIDDEN, WIDTH, e->hidden, e->layers[i].out, e->change);
    add(e->length * WIDTH, e->change, x);
  }
  return HARK_OK;
}

/* Row l of out <- row order[l] of tokens + row order_of_positions[l] of positions. */
static void make_input(const encoder *e, const double *tokens, const double *positions, const int64_t *order, bool positions_too,
                       double *out) {
  for (int64_t l = 0; l < e->length; l++)
    for (int64_t c = 0; c < WIDTH; c++)
      out[l * WIDTH + c] = tokens[order[l] * WIDTH + c] + positions[(positions_too ? order[l] : l) * WIDTH + c];
}

/* Largest |permuted[l] - plain[order[l]]|. */
static double difference(const encoder *e, const double *plain, const double *permuted, const int64_t *order) {
  double largest = 0;
  for (int64_t l = 0; l < e->length; l++)
    for (int64_t c = 0; c < WIDTH; c++) largest = hark_lab_larger(largest, fabs(permuted[l * WIDTH + c] - plain[order[l] * WIDTH + c]));
  return largest;
}

static double difference_of_means(const encoder *e, const double *a, const double *b) {
  double largest = 0;
  for (int64_t c = 0; c < WIDTH; c++) {
    double sum = 0;
    for (int64_t l = 0; l < e->length; l++) sum += a[l * WIDTH + c] - b[l * WIDTH + c];
    largest = hark_lab_larger(largest, fabs(sum) / (double)e->length);
  }
  return largest;
}

/* Neither the original order nor its reverse, which kernels of the distance do not distinguish from it. */
static bool moves_tokens(const int64_t *order, int64_t length) {
  bool same = true, reversed = true;
  for (int64_t l = 0; l < length; l++) {
    same = same && order[l] == l;
    reversed = reversed && order[l] == length - 1 - l;
  }
  return !same && !reversed;
}

/* A permutation (Fisher, Yates), drawn again until it moves tokens; three tokens at least. */
static hark_status draw_order(hark_lab *lab, uint32_t stream, int64_t length, int64_t **out) {
  double *uniform;
  void *memory;
  HARK_TRY(hark_lab_numbers(lab, length, &uniform));
  HARK_TRY(hark_lab_allocate(lab, (size_t)length * sizeof **out, &memory));
  *out = memory;
  do {
    hark_lab_uniform(lab, stream, length, uniform);
    for (int64_t i = 0; i < length; i++) {
      const int64_t at = (int64_t)(uniform[i] * (double)(i + 1));
      (*out)[i] = (*out)[at];
      (*out)[at] = i;
    }
    stream += ORDER_STREAMS;
  } while (!moves_tokens(*out, length));
  return HARK_OK;
}

static hark_status measure_length(hark_lab *lab, hark_lab_table *table, int64_t length, bool rbf) {
  encoder e;
  double *tokens, *positions, *plain, *permuted, *log_kernel;
  double row[COLUMNS] = {[LENGTH] = (double)length, [KERNEL] = rbf};
  int64_t *order, *in_place;
  void *memory;
  HARK_TRY(make_encoder(lab, length, rbf, &e));
  HARK_TRY(hark_lab_numbers(lab, length * WIDTH, &tokens));
  HARK_TRY(hark_lab_numbers(lab, length * WIDTH, &positions));
  HARK_TRY(hark_lab_numbers(lab, length * WIDTH, &plain));
  HARK_TRY(hark_lab_numbers(lab, length * WIDTH, &permuted));
  HARK_TRY(hark_lab_numbers(lab, length, &log_kernel));
  HARK_TRY(hark_lab_allocate(lab, (size_t)length * sizeof *in_place, &memory));
  in_place = memory;
  HARK_TRY(draw_order(lab, FIRST_ORDER_STREAM + (uint32_t)length, length, &order));
  hark_lab_normal(lab, 0, length * WIDTH, tokens);
  hark_lab_normal(lab, 1, length * WIDTH, positions);
  for (int64_t l = 0; l < length; l++) {
    in_place[l] = l;
    log_kernel[l] = -(double)l / 4;
  }
  make_input(&e, tokens, positions, in_place, true, plain);
  HARK_TRY(encode(&e, plain));
  make_input(&e, tokens, positions, order, true, permuted);
  HARK_TRY(encode(&e, permuted));
  row[TOGETHER] = difference(&e, plain, permuted, order);
  row[MEAN] = difference_of_means(&e, plain, permuted);
  make_input(&e, tokens, positions, order, false, permuted);
  HARK_TRY(encode(&e, permuted));
  row[TOKENS_ALONE] = difference(&e, plain, permuted, order);
  for (int i = 0; i < LAYERS; i++) e.layers[i].heads.log_kernel = log_kernel;
  make_input(&e, tokens, positions, in_place, true, plain);
  HARK_TRY(encode(&e, plain));
  make_input(&e, tokens, positions, order, true, permuted);
  HARK_TRY(encode(&e, permuted));
  row[WITH_KERNEL] = difference(&e, plain, permuted, order);
  return hark_lab_add_row(lab, table, row);
}

static hark_status measure(hark_lab *lab) {
  const int64_t longest = lab->quick ? 64 : 512;
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "an encoder of two layers: its rows are permuted, and the output is permuted back", columns, COLUMNS,
                              &table));
  for (int64_t length = 4; length <= longest; length *= 4)
    for (int rbf = 0; rbf < 2; rbf++) HARK_TRY(measure_length(lab, table, length, rbf == 1));
  return HARK_OK;
}

/* Activations are of size ten at most: rounding of a few hundred sums gives 1e-13 or less. The statement does not say how large the other
 * differences are, only that they are not rounding. They are compared with the difference that is rounding in the same row, or with the
 * unit roundoff where that is 0: a billion times this is no rounding, and a difference of order .1 is a thousand times more still. */
static hark_status judge(hark_lab *lab) {
  double together = 0, mean = 0, alone = INFINITY, kernel = INFINITY;
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
    const double *const row = hark_lab_row(&lab->tables[0], i);
    together = hark_lab_larger(together, row[TOGETHER]);
    mean = hark_lab_larger(mean, row[MEAN]);
    const double rounding = hark_lab_larger(row[TOGETHER], DBL_EPSILON);
    alone = hark_lab_smaller(alone, row[TOKENS_ALONE] / rounding);
    kernel = hark_lab_smaller(kernel, row[WITH_KERNEL] / rounding);
  }
  HARK_TRY(hark_lab_require(lab, together, 0, 1e-12, "tokens permuted with their positions, largest difference"));
  HARK_TRY(hark_lab_require(lab, mean, 0, 1e-12, "the mean over tokens is the same, largest difference"));
  HARK_TRY(hark_lab_require(lab, alone, NO_ROUNDING, INFINITY, "tokens permuted without their positions: difference / rounding, least"));
  return hark_lab_require(lab, kernel, NO_ROUNDING, INFINITY, "with a positional kernel in attention: difference / rounding, least");
}

const hark_experiment hark_experiment_exchangeability = {
    .summary = "an encoder treats tokens with their positions as a set",
    .paper = HARK_LAB_PAPER_X "section 3, figure 1",
    .statement =
        "If tokens are permuted together with their positions, the encoder's output is permuted in the same way. Its "
        "mean does not change, up to rounding. This does not hold if only the tokens are permuted, or if attention has "
        "a positional kernel",
    .notes =
        "    encoder(P X) = P encoder(X),      X = tokens + positions, P any permutation of the rows\n"
        "\n"
        "The encoder has two layers. Each layer has attention (two heads, hark's operator) and a feed-forward part with "
        "ReLU, both with a skip connection. Two further checks must show a difference. In the first, only the tokens "
        "are permuted, so the output depends on their order. In the second, attention has a kernel G(|n - i|) of the "
        "row numbers, which are not permuted with the tokens. The statement does not say how large these differences "
        "are. So each is divided by the difference that remains in the same row if tokens and positions are permuted "
        "together, which is rounding. The criteria required differences of at least 0.5 before. With four tokens and a "
        "positional kernel, the difference depends on the weights: it was .36 to 2.1 with the seeds 1 to 10, and one "
        "seed of ten failed.",
    .measure = measure,
    .judge = judge};
