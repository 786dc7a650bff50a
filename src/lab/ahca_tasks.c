/* ahca_tasks.c - see ahca_tasks.h. */
#include "lab/ahca_tasks.h"

#include <string.h>

#define NEEDLE_NOISE 32
#define NEEDLE_LABELS 16
#define NEEDLE_DEVIATION 0.1 /* of embeddings */
#define SYMBOLS HARK_LAB_MAPS_SYMBOLS
#define HARD_SHARE 4 /* one chunk of so many */
#define HOPS HARK_LAB_MAPS_HOPS
#define TOPICS 16
#define TOPIC_TOKENS 4
#define SHORTEST_RUN 3
#define LONGEST_RUN 13
#define LONGEST_CHUNK 4    /* of learned chunks, over their size */
#define RUNS_DEVIATION 0.1 /* of embeddings */
#define PEAK 3e-3          /* of the rate */
#define RUNS_PEAK 1e-2     /* boundaries are computed from directions of embeddings, which have to turn */

static int64_t below(const hark_random_stream *words, uint64_t *drawn, int64_t limit) {
  return (int64_t)hark_random_word(words, (*drawn)++) % limit;
}

/* ---- needle ---- */

hark_lab_ahca_config hark_lab_needle_config(void) {
  hark_lab_ahca_config config = {.model = hark_lab_ahca_model(512, NEEDLE_NOISE + NEEDLE_LABELS, 32, 1, 1), .sequences = 16, .rows = 512};
  hark_ahca_config *const ahca = &config.model.ahca;
  config.model.embedding_deviation = NEEDLE_DEVIATION;
  ahca->head = HARK_AHCA_HEAD_LABELS;
  ahca->chunk_size = 16;
  ahca->primary_slots = 2;
  ahca->primary_pool = HARK_AHCA_POOL_ATTENTION;
  ahca->secondary_slots = 32;
  ahca->selected = 4;
  return config;
}

hark_status hark_lab_draw_needle(hark_lab_ahca *n, uint32_t stream, void *user) {
  const hark_random_stream words = hark_lab_stream(n->training.lab, stream);
  const int64_t rows = n->config.rows, size = n->config.model.ahca.chunk_size;
  uint64_t drawn = 0;
  int64_t *const where = user;
  for (int64_t b = 0; b < n->config.sequences; b++) {
    for (int64_t t = 0; t < rows; t++) n->host_tokens[b * rows + t] = (int32_t)below(&words, &drawn, NEEDLE_NOISE);
    const int32_t label = (int32_t)below(&words, &drawn, NEEDLE_LABELS);
    where[b] = below(&words, &drawn, rows);
    n->host_tokens[b * rows + where[b]] = NEEDLE_NOISE + label;
    for (int64_t t = 0; t < rows; t++) n->host_targets[b * rows + t] = t % size == size - 1 ? NEEDLE_NOISE + label : -1;
  }
  return HARK_OK;
}

/* How many of the targets were predicted. */
static int64_t count_correct(const hark_lab_ahca *n) {
  int64_t correct = 0;
  for (int64_t t = 0; t < n->tokens; t++) correct += n->host_predicted[t] == n->host_targets[t]; /* -1 is never predicted */
  return correct;
}

/* Sequences whose needle is in a selected token of C2, which are as long as each other. */
static hark_status count_selected(hark_lab_ahca *n, const int64_t *where, int64_t *count) {
  const hark_lab_ahca_config *c = &n->config;
  const int64_t selected = c->model.ahca.selected, global = c->model.ahca.secondary_slots;
  int32_t *const chosen = n->host_index;
  if (selected == 0) return HARK_OK;
  HARK_TRY(hark_lab_ahca_read(n, n->trace.selected, chosen));
  for (int64_t b = 0; b < c->sequences; b++)
    for (int64_t i = 0; i < selected; i++) *count += chosen[b * selected + i] == b * global + where[b] * global / c->rows;
  return HARK_OK;
}

static hark_status study_needle(hark_lab_ahca *n, const hark_lab_study *study, int64_t *where, hark_lab_needle_result *out) {
  int64_t correct = 0, selected = 0;
  HARK_TRY(hark_lab_ahca_train(n, study->steps, PEAK, hark_lab_draw_needle, where, NULL));
  for (int64_t i = 0; i < study->tests; i++) {
    HARK_TRY(hark_lab_ahca_test(n, (uint32_t)i, hark_lab_draw_needle, where, NULL));
    correct += count_correct(n);
    HARK_TRY(count_selected(n, where, &selected));
  }
  out->accuracy = (double)correct / (double)(study->tests * n->targets);
  out->selected = (double)selected / (double)(study->tests * n->config.sequences);
  return HARK_OK;
}

hark_status hark_lab_learn_needle(hark_lab *lab, const hark_lab_ahca_config *config, const hark_lab_study *study,
                                  hark_lab_needle_result *out) {
  hark_lab_ahca network;
  void *where;
  *out = (hark_lab_needle_result){0};
  HARK_TRY(hark_lab_allocate(lab, (size_t)config->sequences * sizeof(int64_t), &where));
  hark_status status = hark_lab_ahca_open(lab, config, study->run, &network);
  if (status == HARK_OK) status = study_needle(&network, study, where, out);
  hark_lab_ahca_close(&network);
  return status;
}

/* ---- maps ---- */

hark_lab_ahca_config hark_lab_maps_config(void) {
  const int64_t rows = (int64_t)32 * (SYMBOLS + 1);
  hark_lab_ahca_config config = {
      .model = hark_lab_ahca_model(rows, SYMBOLS + 2, 32, 2, HARK_LAB_MAPS_LAYERS), .sequences = 8, .rows = rows};
  hark_ahca_config *const ahca = &config.model.ahca;
  config.model.positions = HARK_POSITIONS_LEARNED;
  config.model.embedding_deviation = 1;
  ahca->head = HARK_AHCA_HEAD_LABELS;
  ahca->chunk_size = ahca->primary_slots = SYMBOLS + 1;
  hark_lab_ahca_give_capacity(&config, 1. / HARD_SHARE);
  ahca->ponder_weight = 0.02;
  return config;
}

/* The hard ones are a quarter of the chunks of every sequence, anywhere among them. */
hark_status hark_lab_draw_maps(hark_lab_ahca *n, uint32_t stream, void *user) {
  const hark_random_stream words = hark_lab_stream(n->training.lab, stream);
  const int64_t chunks = n->config.rows / (SYMBOLS + 1);
  uint64_t drawn = 0;
  (void)user;
  for (int64_t b = 0; b < n->config.sequences; b++)
    for (int64_t k = 0, hard = chunks / HARD_SHARE; k < chunks; k++) {
      const int64_t first = (b * chunks + k) * (SYMBOLS + 1);
      int32_t *const tokens = n->host_tokens + first;
      const bool is_hard = below(&words, &drawn, chunks - k) < hard;
      for (int i = 1; i <= SYMBOLS; i++) tokens[i] = (int32_t)below(&words, &drawn, SYMBOLS);
      tokens[0] = SYMBOLS + (is_hard ? 1 : 0);
      int32_t answer = tokens[1];
      for (int hop = 1; is_hard && hop < HOPS; hop++) answer = tokens[1 + answer];
      for (int i = 0; i <= SYMBOLS; i++) n->host_targets[first + i] = i == SYMBOLS ? answer : -1;
      hard -= is_hard ? 1 : 0;
    }
  return HARK_OK;
}

typedef struct maps_counts {
  int64_t hard, easy, hard_correct, easy_correct, hard_deep, layers;
} maps_counts;

static void count_maps(const hark_lab_ahca *n, const int32_t *depth, maps_counts *counts) {
  for (int64_t k = 0; k < n->tokens / (SYMBOLS + 1); k++) {
    const int64_t first = k * (SYMBOLS + 1), last = first + SYMBOLS;
    const bool hard = n->host_tokens[first] == SYMBOLS + 1, correct = n->host_predicted[last] == n->host_targets[last];
    const int64_t layers = depth != NULL ? depth[k] : n->config.model.layers;
    counts->hard += hard;
    counts->easy += !hard;
    counts->hard_correct += hard && correct;
    counts->easy_correct += !hard && correct;
    counts->hard_deep += hard && layers == HARK_LAB_MAPS_LAYERS;
    counts->layers += layers;
  }
}

static hark_status study_maps(hark_lab_ahca *n, const hark_lab_study *study, hark_lab_maps_result *out) {
  maps_counts counts = {0};
  void *memory;
  HARK_TRY(hark_lab_allocate(n->training.lab, (size_t)n->chunks * sizeof(int32_t), &memory));
  int32_t *const depth = n->config.model.layers > 1 ? memory : NULL; /* with one layer there is no depth */
  HARK_TRY(hark_lab_ahca_train(n, study->steps, PEAK, hark_lab_draw_maps, NULL, NULL));
  for (int64_t i = 0; i < study->tests; i++) {
    HARK_TRY(hark_lab_ahca_test(n, (uint32_t)i, hark_lab_draw_maps, NULL, NULL));
    if (depth != NULL) HARK_TRY(hark_lab_ahca_read(n, n->trace.depth, depth));
    count_maps(n, depth, &counts);
  }
  out->hard = (double)counts.hard_correct / (double)counts.hard;
  out->easy = (double)counts.easy_correct / (double)counts.easy;
  out->deep = (double)counts.hard_deep / (double)counts.hard;
  out->depth = (double)counts.layers / (double)(counts.hard + counts.easy);
  return HARK_OK;
}

hark_status hark_lab_learn_maps(hark_lab *lab, const hark_lab_ahca_config *config, const hark_lab_study *study, hark_lab_maps_result *out) {
  hark_lab_ahca network;
  *out = (hark_lab_maps_result){0};
  hark_status status = hark_lab_ahca_open(lab, config, study->run, &network);
  if (status == HARK_OK) status = study_maps(&network, study, out);
  hark_lab_ahca_close(&network);
  return status;
}

/* ---- runs ---- */

/* The query of a token is its place alone (models/ahca_heads.c), so that its prediction comes from its chunk's slot. With the
 * straight-through factor after the norm, RMS norms and biases, F1 is 1 in five of six trainings (three seeds, AVX2 and AVX-512) and .55 in
 * one. Without one of the three its mean is .46 to .67 (AVX2). */
hark_lab_ahca_config hark_lab_runs_config(void) {
  const int64_t rows = 128, size = (SHORTEST_RUN + LONGEST_RUN) / 2;
  hark_lab_ahca_config config = {
      .model = hark_lab_ahca_model(rows, (int64_t)TOPICS * TOPIC_TOKENS, 32, 1, 1), .sequences = 16, .rows = rows};
  hark_ahca_config *const ahca = &config.model.ahca;
  config.model.positions = HARK_POSITIONS_LEARNED;
  config.model.embedding_deviation = RUNS_DEVIATION;
  config.model.norm = HARK_NORM_RMS;
  config.model.bias = true;
  ahca->head = HARK_AHCA_HEAD_RECONSTRUCTION;
  ahca->chunk = HARK_AHCA_CHUNK_LEARNED;
  ahca->chunk_size = size;
  ahca->boundary = HARK_AHCA_BOUNDARY_COMPRESSED;
  ahca->chunk_minimum = 1;
  ahca->chunk_maximum = LONGEST_CHUNK * size;
  ahca->primary_slots = 1;
  ahca->straight_through = HARK_AHCA_STRAIGHT_AFTER_NORM;
  ahca->ratio_weight = 0.03;
  return config;
}

hark_status hark_lab_draw_runs(hark_lab_ahca *n, uint32_t stream, void *user) {
  const hark_random_stream words = hark_lab_stream(n->training.lab, stream);
  const int64_t rows = n->config.rows;
  uint64_t drawn = 0;
  (void)user;
  for (int64_t b = 0; b < n->config.sequences; b++) {
    int64_t topic = below(&words, &drawn, TOPICS), left = 0;
    for (int64_t t = 0; t < rows; t++, left--) {
      if (left == 0) {
        topic = (topic + 1 + below(&words, &drawn, TOPICS - 1)) % TOPICS;
        left = SHORTEST_RUN + below(&words, &drawn, LONGEST_RUN - SHORTEST_RUN + 1);
      }
      n->host_targets[b * rows + t] = (int32_t)topic;
      n->host_tokens[b * rows + t] = (int32_t)(topic * TOPIC_TOKENS + below(&words, &drawn, TOPIC_TOKENS));
    }
  }
  return HARK_OK;
}

typedef struct runs_counts {
  int64_t correct, cuts, truth, both, places;
} runs_counts;

/* chunks: the first rows of all chunks, and the row after the last. */
static void count_runs(const hark_lab_ahca *n, const int64_t *chunks, runs_counts *counts) {
  int64_t k = 0;
  counts->correct += count_correct(n);
  for (int64_t t = 0; t < n->tokens; t++) {
    while (chunks[k] < t) k++;
    if (t % n->config.rows == 0) continue;
    const bool cut = chunks[k] == t, true_cut = n->host_targets[t] != n->host_targets[t - 1];
    counts->places++;
    counts->cuts += cut;
    counts->truth += true_cut;
    counts->both += cut && true_cut;
  }
}

static double fraction(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : 0; }

static hark_status study_runs(hark_lab_ahca *n, const hark_lab_study *study, hark_lab_runs_result *out) {
  runs_counts counts = {0};
  void *chunks;
  HARK_TRY(hark_lab_allocate(n->training.lab, (size_t)(n->chunks + 1) * sizeof(int64_t), &chunks));
  HARK_TRY(hark_lab_ahca_train(n, study->steps, RUNS_PEAK, hark_lab_draw_runs, NULL, NULL));
  for (int64_t i = 0; i < study->tests; i++) {
    HARK_TRY(hark_lab_ahca_test(n, (uint32_t)i, hark_lab_draw_runs, NULL, NULL));
    HARK_TRY(hark_lab_ahca_read(n, n->trace.chunks, chunks));
    count_runs(n, chunks, &counts);
  }
  *out = (hark_lab_runs_result){.accuracy = fraction(counts.correct, study->tests * n->targets),
                                .precision = fraction(counts.both, counts.cuts),
                                .recall = fraction(counts.both, counts.truth),
                                .cuts = fraction(counts.cuts, counts.places),
                                .truth = fraction(counts.truth, counts.places)};
  return HARK_OK;
}

double hark_lab_runs_f1(const hark_lab_runs_result *result) {
  const double sum = result->precision + result->recall;
  return sum > 0 ? 2 * result->precision * result->recall / sum : 0;
}

hark_status hark_lab_learn_runs(hark_lab *lab, const hark_lab_ahca_config *config, const hark_lab_study *study, hark_lab_runs_result *out) {
  hark_lab_ahca network;
  *out = (hark_lab_runs_result){0};
  hark_status status = hark_lab_ahca_open(lab, config, study->run, &network);
  if (status == HARK_OK) status = study_runs(&network, study, out);
  hark_lab_ahca_close(&network);
  return status;
}

/* ---- text ---- */

hark_status hark_lab_draw_text(hark_lab_ahca *n, uint32_t stream, void *user) {
  const hark_lab_text_part *reading = user;
  const hark_random_stream words = hark_lab_stream(n->training.lab, stream);
  const int64_t length = n->config.rows;
  uint64_t drawn = 0;
  for (int64_t b = 0; b < n->config.sequences; b++) {
    const int64_t first = hark_lab_text_window(&reading->text, reading->held_out, length, &words, &drawn);
    const size_t bytes = (size_t)length * sizeof *n->host_tokens;
    memcpy(n->host_tokens + b * length, reading->text.numbers + first, bytes);
    memcpy(n->host_targets + b * length, reading->text.numbers + first, bytes);
  }
  return HARK_OK;
}
