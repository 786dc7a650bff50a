/* reviews.c - see reviews.h. */
#include "lab/reviews.h"

#include <hark/operators.h>

#include <inttypes.h>

#include "data/line_reader.h"
#include "lab/aggregation.h"
#include "lab/tables.h"
#include "lab/training.h"
#include "nn/layers.h"

enum {
  WINDOW = 64, /* bytes */
  HIDDEN = 8,  /* of them, in pre-training */
  EMBEDDING = 16,
  HEAD_DIM = 8,
  P = HARK_LAB_AGGREGATION,
  BYTES = 256, /* and one more number for a masked byte */
  BATCH = 64,  /* windows */
  OF_REVIEW = 4,
  LEAST_REVIEWS = 1500, /* so that a fit of 512 windows has 600 reviews to choose from */
  LEAST_PART = 10,      /* each label has at least a tenth of all reviews */
  QUICK_REVIEWS = 5000,
  LEAST_COUNT = 32,
  MOST_COUNT = 512,
  TESTS = 32, /* batches */
  WIDTHS = 3
};
static const int64_t widths[WIDTHS] = {8, 32, 128};
#define PEAK 2e-2

/* Streams of the laboratory, and numbers of the networks. */
enum { SHUFFLE_STREAM = 1 << 21, TRAIN_STREAM, TEST_STREAM, PIECES_STREAM, POPULATION_STREAM };
#define FIRST_RUN 512u

enum { WIDTH, COUNT, MASKED, FREQUENCIES, BEST, ZERO, GAP, GAP_ERROR, EXPECTED, FIRST_ORDER, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"width", "frozen", NULL},
                                                 {"n", "windows", NULL},
                                                 {"masked cross-entropy", "nats per byte", NULL},
                                                 {"entropy of bytes", "nats", NULL},
                                                 {"loss of the best theta", NULL, NULL},
                                                 {"loss of zero", NULL, NULL},
                                                 {"gap", NULL, NULL},
                                                 {"standard error", NULL, NULL},
                                                 {"gap expected", "normal features", NULL},
                                                 {"gap expected", "first order", NULL}};
static const hark_lab_gap_columns gap_columns = {WIDTH, COUNT, GAP, EXPECTED, FIRST_ORDER};

/* ---- the texts ---- */

typedef struct review {
  size_t at; /* in the text of all */
  int64_t length;
  int label;
} review;

typedef struct reviews {
  hark_text bytes, list; /* list: of review */
  int64_t count;
  review *all;
} reviews;

static hark_status read_line(hark_context *context, const hark_line_reader *lines, reviews *out) {
  const bool labelled = lines->length > 2 && (lines->line[0] == '0' || lines->line[0] == '1') && lines->line[1] == '\t';
  if (!labelled) return hark_lines_fail(context, lines, 0, "expected a label, 0 or 1, a tab and a text");
  const review r = {.at = out->bytes.length, .length = (int64_t)lines->length - 2, .label = lines->line[0] - '0'};
  if (r.length < WINDOW) return HARK_OK; /* too short for a window */
  hark_text_append_bytes(&out->bytes, lines->line + 2, lines->length - 2);
  hark_text_append_bytes(&out->list, (const char *)&r, sizeof r);
  return out->bytes.status != HARK_OK ? out->bytes.status : out->list.status;
}

static hark_status read_lines(hark_context *context, hark_line_reader *lines, reviews *out) {
  for (bool more = true; more;) {
    HARK_TRY(hark_lines_next(context, lines, &more));
    if (more) HARK_TRY(read_line(context, lines, out));
  }
  out->count = (int64_t)(out->list.length / sizeof(review));
  if (out->count < LEAST_REVIEWS)
    return hark_fail(context, HARK_BAD_FILE, "%s: %lld texts of %d bytes or more, expected at least %d", lines->path, (long long)out->count,
                     WINDOW, LEAST_REVIEWS);
  out->all = (review *)(void *)out->list.data; /* a text's memory is HARK_ALIGNMENT-aligned */
  return HARK_OK;
}

static void free_reviews(reviews *r) {
  hark_text_free(&r->bytes);
  hark_text_free(&r->list);
}

/* Freed by the caller, also after a failure. */
static hark_status read_reviews(hark_context *context, const char *path, reviews *out) {
  hark_line_reader lines = {0};
  *out = (reviews){.bytes = hark_text_empty(context), .list = hark_text_empty(context)};
  hark_status status = hark_lines_open(context, &lines, path);
  if (status == HARK_OK) status = read_lines(context, &lines, out);
  hark_lines_close(&lines);
  return status;
}

hark_status hark_lab_check_reviews(hark_context *context, const char *path) {
  reviews r;
  hark_status status = read_reviews(context, path, &r);
  int64_t ones = 0;
  for (int64_t i = 0; i < r.count && status == HARK_OK; i++) ones += r.all[i].label;
  if (status == HARK_OK && (ones < r.count / LEAST_PART || r.count - ones < r.count / LEAST_PART))
    status = hark_fail(context, HARK_BAD_FILE, "%s: %" PRId64 " of %" PRId64 " labels are 1, expected a tenth of each label at least", path,
                       ones, r.count);
  free_reviews(&r);
  return status;
}

/* Files may be sorted by label. */
static void shuffle(const hark_lab *lab, reviews *r) { /* Fisher, Yates */
  const hark_random_stream words = hark_lab_stream(lab, SHUFFLE_STREAM);
  for (int64_t i = r->count - 1; i > 0; i--) {
    const int64_t other = (int64_t)hark_random_word(&words, (uint64_t)i) % (i + 1);
    const review kept = r->all[i];
    r->all[i] = r->all[other];
    r->all[other] = kept;
  }
}

/* Entropy of single bytes, nats: the least loss of a prediction of a masked byte without context. */
static double entropy_of(const hark_text *bytes) {
  double times[BYTES] = {0}, sum = 0;
  for (size_t i = 0; i < bytes->length; i++) times[(unsigned char)bytes->data[i]]++;
  for (int v = 0; v < BYTES; v++)
    if (times[v] > 0) sum -= times[v] / (double)bytes->length * log(times[v] / (double)bytes->length);
  return sum;
}

/* Reviews of one use: pre-training has a fifth, the fits and the population two fifths each. */
typedef struct part {
  const reviews *from;
  int64_t first, count;
} part;
enum { PRE_TRAINING, PIECES, POPULATION, PARTS };

static part part_of(const reviews *r, int which) {
  static const int64_t begins[PARTS + 1] = {0, 1, 3, 5};
  const int64_t first = r->count * begins[which] / 5;
  return (part){r, first, r->count * begins[which + 1] / 5 - first};
}

/* ---- the network ---- */

typedef struct network {
  hark_lab_training training;
  hark_parameter_id bytes, places;
  hark_linear features, query, key, value, letters;
  hark_tensor byte_ids, place_ids, offsets; /* [B, 64], [B + 1] */
  hark_tensor query_ids, targets, query_offsets, middle_ids, middle_offsets;
  int32_t host_bytes[BATCH * WINDOW], host_queries[BATCH * HIDDEN], host_targets[BATCH * HIDDEN];
  bool in_the_middle; /* one query there, and no prediction of bytes */
  hark_value out, loss;
} network;

static hark_status declare_table(network *n, const char *name, int64_t rows, hark_parameter_id *out) {
  const hark_parameter_spec spec = {.rank = 2, .shape = {rows, EMBEDDING}, .initial = HARK_INITIAL_NORMAL, .value = 1};
  return hark_parameters_add(n->training.context, &n->training.parameters, &spec, out, "%s.weight", name);
}

static hark_status declare_linear(network *n, const char *name, int64_t in, int64_t out, hark_linear *layer) {
  return hark_linear_declare(n->training.context, &n->training.parameters, in, out, false, 1 / sqrt((double)in), name, layer);
}

static hark_status declare(network *n, int64_t width) {
  HARK_TRY(declare_table(n, "bytes", BYTES + 1, &n->bytes));
  HARK_TRY(declare_table(n, "places", WINDOW, &n->places));
  HARK_TRY(declare_linear(n, "features", EMBEDDING, width, &n->features));
  HARK_TRY(declare_linear(n, "query", width, HEAD_DIM, &n->query));
  HARK_TRY(declare_linear(n, "key", width, HEAD_DIM, &n->key));
  HARK_TRY(declare_linear(n, "value", width, P, &n->value));
  return declare_linear(n, "letters", P, BYTES, &n->letters);
}

static hark_status make_ids(network *n, int64_t count, const int32_t *numbers, hark_tensor *out) {
  HARK_TRY(hark_tensor_create(n->training.context, HARK_I32, 1, &count, out));
  return hark_tensor_write(n->training.context, out, numbers);
}

static hark_status make_offsets(network *n, int64_t each, hark_tensor *out) {
  int64_t offsets[BATCH + 1];
  const int64_t count = BATCH + 1;
  for (int64_t b = 0; b <= BATCH; b++) offsets[b] = b * each;
  HARK_TRY(hark_tensor_create(n->training.context, HARK_I64, 1, &count, out));
  return hark_tensor_write(n->training.context, out, offsets);
}

static hark_status build(network *n, int64_t width) {
  int32_t middle[BATCH];
  HARK_TRY(declare(n, width));
  for (int b = 0; b < BATCH; b++) middle[b] = WINDOW / 2;
  for (int i = 0; i < BATCH * WINDOW; i++) n->host_bytes[i] = i % WINDOW;
  HARK_TRY(make_ids(n, (int64_t)BATCH * WINDOW, n->host_bytes, &n->place_ids));
  HARK_TRY(make_ids(n, (int64_t)BATCH * WINDOW, n->host_bytes, &n->byte_ids));
  HARK_TRY(make_ids(n, (int64_t)BATCH * HIDDEN, n->host_queries, &n->query_ids));
  HARK_TRY(make_ids(n, (int64_t)BATCH * HIDDEN, n->host_targets, &n->targets));
  HARK_TRY(make_ids(n, BATCH, middle, &n->middle_ids));
  HARK_TRY(make_offsets(n, WINDOW, &n->offsets));
  HARK_TRY(make_offsets(n, HIDDEN, &n->query_offsets));
  return make_offsets(n, 1, &n->middle_offsets);
}

static void close_network(network *n) {
  hark_tensor *const tensors[] = {&n->byte_ids, &n->place_ids,     &n->offsets,    &n->query_ids,
                                  &n->targets,  &n->query_offsets, &n->middle_ids, &n->middle_offsets};
  if (n->training.context == NULL) return;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) hark_tensor_destroy(n->training.context, tensors[i]);
  hark_lab_training_close(&n->training);
}

static hark_status look_up(const hark_forward *forward, hark_parameter_id table, const hark_tensor *ids, hark_value *out) {
  hark_value inputs[2] = {0};
  HARK_TRY(hark_tape_leaf(forward->tape, ids, NULL, &inputs[0]));
  HARK_TRY(hark_forward_parameter(forward, table, &inputs[1]));
  return hark_tape_apply(forward->tape, &hark_op_embedding, NULL, 2, inputs, 0, out);
}

/* N(x) */
static hark_status features_of(const network *n, const hark_forward *forward, hark_value x, hark_value *out) {
  hark_value inner = 0;
  HARK_TRY(hark_linear_apply(forward, &n->features, x, &inner));
  return hark_tape_apply(forward->tape, &hark_op_relu, NULL, 1, &inner, 0, out);
}

/* n->out [B each, p] */
static hark_status attend(network *n, const hark_forward *forward, int64_t each, hark_value of_places, hark_value of_rows) {
  enum { QUERY, KEY, VALUE, QUERY_OFFSETS = 9, KEY_OFFSETS, INPUTS };
  hark_attention_attributes attributes = {.own = {.desc = hark_attention_desc_default()}, .keys_of_a_query = WINDOW};
  hark_attention_desc *const desc = &attributes.own.desc;
  hark_value inputs[INPUTS] = {0};
  desc->kernel = HARK_KERNEL_RBF;
  desc->sigma = sqrt(HEAD_DIM);
  desc->batch = desc->heads = 1;
  desc->head_dim = HEAD_DIM;
  desc->value_dim = P;
  desc->query_length = BATCH * each;
  desc->key_length = (int64_t)BATCH * WINDOW;
  desc->max_sequences = BATCH + 1;
  desc->forward_only = !forward->training;
  HARK_TRY(hark_linear_apply(forward, &n->query, of_places, &inputs[QUERY]));
  HARK_TRY(hark_linear_apply(forward, &n->key, of_rows, &inputs[KEY]));
  HARK_TRY(hark_linear_apply(forward, &n->value, of_rows, &inputs[VALUE]));
  HARK_TRY(hark_tape_leaf(forward->tape, n->in_the_middle ? &n->middle_offsets : &n->query_offsets, NULL, &inputs[QUERY_OFFSETS]));
  HARK_TRY(hark_tape_leaf(forward->tape, &n->offsets, NULL, &inputs[KEY_OFFSETS]));
  return hark_tape_apply(forward->tape, &hark_op_attention, &attributes, INPUTS, inputs, 0, &n->out);
}

static hark_status pass(void *user, const hark_forward *forward, hark_value *loss) {
  static const hark_cross_entropy_attributes mean = {.weight = 1. / (BATCH * HIDDEN), .ignore = -1};
  network *const n = user;
  hark_value parts[2] = {0}, x = 0, queries = 0, scored[2] = {0}, outputs[HARK_MAX_OUTPUTS] = {0};
  HARK_TRY(look_up(forward, n->bytes, &n->byte_ids, &parts[0]));
  HARK_TRY(look_up(forward, n->places, &n->place_ids, &parts[1]));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_add, NULL, 2, parts, 0, &x));
  HARK_TRY(features_of(n, forward, x, &x));
  HARK_TRY(look_up(forward, n->places, n->in_the_middle ? &n->middle_ids : &n->query_ids, &queries));
  HARK_TRY(features_of(n, forward, queries, &queries));
  HARK_TRY(attend(n, forward, n->in_the_middle ? 1 : HIDDEN, queries, x));
  if (n->in_the_middle) return HARK_OK;
  HARK_TRY(hark_linear_apply(forward, &n->letters, n->out, &scored[0]));
  HARK_TRY(hark_tape_leaf(forward->tape, &n->targets, NULL, &scored[1]));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_cross_entropy, &mean, 2, scored, 0, outputs));
  *loss = n->loss = outputs[0];
  return HARK_OK;
}

/* ---- windows ---- */

/* Window b of the batch: of a review, at the place that the next word of the stream gives. */
static void take_window(const part *p, int64_t number, const hark_random_stream *words, uint64_t *drawn, int32_t *out) {
  const review *const r = &p->from->all[p->first + number];
  const int64_t at = (int64_t)hark_random_word(words, (*drawn)++) % (r->length - WINDOW + 1);
  for (int64_t l = 0; l < WINDOW; l++) out[l] = (unsigned char)p->from->bytes.data[r->at + (size_t)(at + l)];
}

/* HIDDEN positions of a window, all different. */
static void hide(network *n, int64_t window, const hark_random_stream *words, uint64_t *drawn) {
  int32_t *const bytes = n->host_bytes + window * WINDOW, *const queries = n->host_queries + window * HIDDEN;
  for (int64_t i = 0; i < HIDDEN;) {
    const int32_t place = (int32_t)(hark_random_word(words, (*drawn)++) % WINDOW);
    if (bytes[place] == BYTES) continue;
    queries[i] = place;
    n->host_targets[window * HIDDEN + i++] = bytes[place];
    bytes[place] = BYTES;
  }
}

/* A batch with masked bytes of a part; words of the stream from *drawn on. */
static hark_status draw_masked(network *n, const part *p, const hark_random_stream *words, uint64_t *drawn) {
  hark_context *const context = n->training.context;
  for (int64_t b = 0; b < BATCH; b++) {
    const int64_t number = (int64_t)hark_random_word(words, (*drawn)++) % p->count;
    take_window(p, number, words, drawn, n->host_bytes + b * WINDOW);
    hide(n, b, words, drawn);
  }
  HARK_TRY(hark_tensor_write(context, &n->byte_ids, n->host_bytes));
  HARK_TRY(hark_tensor_write(context, &n->query_ids, n->host_queries));
  return hark_tensor_write(context, &n->targets, n->host_targets);
}

static hark_status train(network *n, const part *p) {
  hark_lab *const lab = n->training.lab;
  const hark_random_stream words = hark_lab_stream(lab, TRAIN_STREAM);
  const int64_t planned = lab->quick ? 1000 : 2000, steps = lab->most_steps > 0 && lab->most_steps < planned ? lab->most_steps : planned;
  uint64_t drawn = 0;
  n->in_the_middle = false;
  for (int64_t step = 0; step < steps; step++) {
    double loss;
    HARK_TRY(hark_lab_training_failed(&n->training, draw_masked(n, p, &words, &drawn)));
    HARK_TRY(hark_lab_training_step(&n->training, steps, PEAK, pass, n, &loss));
  }
  return HARK_OK;
}

/* Mean cross-entropy of masked bytes of a part. */
static hark_status test(network *n, const part *p, double *out) {
  const hark_random_stream words = hark_lab_stream(n->training.lab, TEST_STREAM);
  uint64_t drawn = 0;
  *out = 0;
  n->in_the_middle = false;
  for (int i = 0; i < TESTS; i++) {
    float one = 0;
    HARK_TRY(hark_lab_training_failed(&n->training, draw_masked(n, p, &words, &drawn)));
    HARK_TRY(hark_lab_training_predict(&n->training, pass, n));
    HARK_TRY(
        hark_lab_training_failed(&n->training, hark_tensor_read(n->training.context, hark_tape_tensor(n->training.tape, n->loss), &one)));
    *out += (double)one / TESTS;
  }
  return HARK_OK;
}

/* The first window of every review, then the second of every review, ..: a run of at most `p->count` windows has every review once. */
static hark_status fill_pool(network *n, const part *p, uint32_t stream, hark_lab_pool *out) {
  const hark_random_stream words = hark_lab_stream(n->training.lab, stream);
  uint64_t drawn = 0;
  n->in_the_middle = true;
  for (int64_t first = 0; first < out->count; first += BATCH) {
    float read[BATCH * P];
    for (int64_t b = 0; b < BATCH; b++) {
      const int64_t number = (first + b) % p->count;
      take_window(p, number, &words, &drawn, n->host_bytes + b * WINDOW);
      out->y[first + b] = out->means[first + b] = (double)p->from->all[p->first + number].label - 0.5;
    }
    HARK_TRY(hark_lab_training_failed(&n->training, hark_tensor_write(n->training.context, &n->byte_ids, n->host_bytes)));
    HARK_TRY(hark_lab_training_predict(&n->training, pass, n));
    HARK_TRY(
        hark_lab_training_failed(&n->training, hark_tensor_read(n->training.context, hark_tape_tensor(n->training.tape, n->out), read)));
    for (int64_t i = 0; i < (int64_t)BATCH * P; i++) out->features[first * P + i] = (double)read[i];
  }
  return HARK_OK;
}

/* ---- measuring ---- */

typedef struct study {
  hark_lab *lab;
  hark_lab_table *table;
  part parts[PARTS];
  hark_lab_pool pieces, population;
  double entropy;
} study;

static hark_status measure_network(study *s, network *n, int64_t width) {
  double theta[P], row[COLUMNS] = {[WIDTH] = (double)width, [FREQUENCIES] = s->entropy};
  HARK_TRY(train(n, &s->parts[PRE_TRAINING]));
  HARK_TRY(test(n, &s->parts[POPULATION], &row[MASKED]));
  HARK_TRY(hark_lab_training_failed(&n->training, fill_pool(n, &s->parts[POPULATION], POPULATION_STREAM, &s->population)));
  HARK_TRY(hark_lab_training_failed(&n->training, fill_pool(n, &s->parts[PIECES], PIECES_STREAM, &s->pieces)));
  (void)hark_lab_fit_aggregation(s->population.count, s->population.features, s->population.y, 0, theta);
  const hark_lab_moments moments = hark_lab_moments_of(&s->population);
  row[BEST] = hark_lab_loss_from(&moments, theta);
  row[ZERO] = moments.square;
  for (int64_t count = LEAST_COUNT; count <= MOST_COUNT; count *= 2) {
    hark_lab_mean gap = {0};
    hark_lab_add_gaps(&s->pieces, &moments, theta, count, &gap);
    row[COUNT] = (double)count;
    row[GAP] = gap.mean;
    row[GAP_ERROR] = hark_lab_mean_error(&gap);
    row[EXPECTED] = hark_lab_expected_gap(row[BEST], (double)count);
    row[FIRST_ORDER] = hark_lab_first_order_gap(&moments, row[BEST], 0, (double)count);
    HARK_TRY(hark_lab_add_row(s->lab, s->table, row));
  }
  return HARK_OK;
}

static hark_status measure_width(study *s, int w) {
  void *memory;
  HARK_TRY(hark_lab_allocate(s->lab, sizeof(network), &memory));
  network *const n = memory;
  hark_status status = hark_lab_training_open(s->lab, &n->training);
  if (status == HARK_OK) status = hark_lab_training_failed(&n->training, build(n, widths[w]));
  if (status == HARK_OK) status = hark_lab_training_begin(&n->training, FIRST_RUN + (uint32_t)w);
  if (status == HARK_OK) status = measure_network(s, n, widths[w]);
  close_network(n);
  return status;
}

static hark_status measure(hark_lab *lab, reviews *r) {
  study s = {.lab = lab, .entropy = entropy_of(&r->bytes)};
  shuffle(lab, r);
  if (lab->quick) r->count = hark_min(r->count, QUICK_REVIEWS);
  for (int i = 0; i < PARTS; i++) s.parts[i] = part_of(r, i);
  HARK_TRY(hark_lab_make_pool(lab, s.parts[PIECES].count * OF_REVIEW / BATCH * BATCH, 0, &s.pieces));
  HARK_TRY(hark_lab_make_pool(lab, s.parts[POPULATION].count * OF_REVIEW / BATCH * BATCH, 0, &s.population));
  HARK_TRY(hark_lab_add_table(lab, "reviews: masked bytes, frozen, and a new aggregation of eight weights", columns, COLUMNS, &s.table));
  for (int w = 0; w < WIDTHS; w++) HARK_TRY(measure_width(&s, w));
  return hark_lab_draw_gaps(lab, "the same on reviews", s.table, gap_columns, widths, WIDTHS);
}

hark_status hark_lab_measure_reviews(hark_lab *lab, const char *path) {
  reviews r;
  hark_status status = read_reviews(lab->context, path, &r);
  if (status == HARK_OK) status = measure(lab, &r);
  free_reviews(&r);
  return status;
}

/* The intervals are those of downstream.c: 25000 reviews give 40000 windows to fit, 78 pieces of 512, whose mean has a deviation of .06.
 * The loss of a network that knows only the frequencies of bytes is their entropy, up to .01 for 16384 masked bytes. */
hark_status hark_lab_judge_reviews(hark_lab *lab, const hark_lab_table *table) {
  const hark_lab_gap_verdict v = hark_lab_judge_gaps(table, gap_columns);
  HARK_TRY(hark_lab_require(lab, v.least, lab->quick ? 0.65 : 0.8, INFINITY, "reviews: gap / first order, n of 256 or more, least"));
  HARK_TRY(hark_lab_require(lab, v.largest, 0, lab->quick ? 1.5 : 1.25, "reviews: gap / gap of normal features, largest"));
  HARK_TRY(hark_lab_require(lab, v.shallow, -INFINITY, -0.4, "reviews: slope of the gap in n, log-log, largest over the widths"));
  return hark_lab_require(lab, hark_lab_column_range(table, MASKED, FREQUENCIES).largest, 0, 0.99,
                          "reviews: cross-entropy of hidden bytes / entropy of bytes, largest");
}
