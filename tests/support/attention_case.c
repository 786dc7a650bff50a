/* attention_case.c - reads cases and makes their numbers. */
#include "support/attention_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const attention_array_names[ARRAY_COUNT] = {
    "query",       "key",    "value", "dout",   "attention_bias",  "log_kernel",  "forget",  "hierarchical_bias",  "contextual", "out",
    "log_sum_exp", "dquery", "dkey",  "dvalue", "dattention_bias", "dlog_kernel", "dforget", "dhierarchical_bias", "dcontextual"};

typedef struct case_word {
  const char *name;
  bool *flag;     /* set when the word is there */
  int64_t *whole; /* its number, or NULL */
  double *number;
} case_word;

static bool read_word(const char *word, size_t length, const case_word *words, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const size_t name = strlen(words[i].name);
    if (length < name || memcmp(word, words[i].name, name) != 0) continue;
    const char *value = word + name;
    const bool one_letter = name == 1;
    if (length == name && (words[i].whole == NULL || !one_letter) && words[i].number == NULL) {
      if (words[i].flag == NULL) continue;
      *words[i].flag = true;
      return true;
    }
    if (!one_letter && *value != '=') continue;
    if (one_letter && !isdigit((unsigned char)*value)) continue;
    if (!one_letter) value++;
    char *end = NULL;
    if (words[i].whole != NULL) *words[i].whole = strtoll(value, &end, 10);
    if (words[i].number != NULL) *words[i].number = strtod(value, &end);
    if (end != word + length) continue;
    if (words[i].flag != NULL) *words[i].flag = true;
    return true;
  }
  return false;
}

bool attention_case_read(const char *text, attention_case *out) {
  attention_case c = {.batch = 1, .heads = 1, .queries = 1, .head_dim = 1, .seed = 1};
  const case_word words[] = {{"B", NULL, &c.batch, NULL},
                             {"H", NULL, &c.heads, NULL},
                             {"K", NULL, &c.key_heads, NULL},
                             {"L", NULL, &c.queries, NULL},
                             {"S", NULL, &c.keys, NULL},
                             {"D", NULL, &c.head_dim, NULL},
                             {"V", NULL, &c.value_dim, NULL},
                             {"W", NULL, &c.window, NULL},
                             {"N", NULL, &c.block, NULL},
                             {"C", NULL, &c.positions, NULL},
                             {"cshared", &c.contextual_shared, NULL, NULL},
                             {"grid", NULL, &c.grid, NULL},
                             {"slots", NULL, &c.slots, NULL},
                             {"select", NULL, &c.select, NULL},
                             {"kept", NULL, &c.kept, NULL},
                             {"globals", NULL, &c.globals, NULL},
                             {"starts", &c.starts, NULL, NULL},
                             {"mean", &c.mean, NULL, NULL},
                             {"first", &c.first, NULL, NULL},
                             {"exact", &c.exact, NULL, NULL},
                             {"sibling", &c.sibling, NULL, NULL},
                             {"linear", &c.linear, NULL, NULL},
                             {"hbias", &c.hierarchical_bias, NULL, NULL},
                             {"hshared", &c.hierarchical_shared, NULL, NULL},
                             {"qmask", &c.query_mask, NULL, NULL},
                             {"bf16", &c.half, NULL, NULL},
                             {"causal", &c.causal, NULL, NULL},
                             {"rbf", &c.rbf, NULL, NULL},
                             {"stick", &c.stick, NULL, NULL},
                             {"bias", &c.bias, &c.bias_bits, NULL},
                             {"mask", &c.mask, &c.mask_bits, NULL},
                             {"kernel", &c.kernel, NULL, NULL},
                             {"shared", &c.shared, NULL, NULL},
                             {"directed", &c.directed, NULL, NULL},
                             {"forget", &c.forget, NULL, NULL},
                             {"dropout", NULL, NULL, &c.dropout},
                             {"offset", &c.has_offset, &c.offset, NULL},
                             {"lengths", &c.lengths, NULL, NULL},
                             {"ragged", &c.ragged, NULL, NULL},
                             {"segments", &c.segments, NULL, NULL},
                             {"layout", NULL, &c.layout, NULL},
                             {"misaligned", &c.misaligned, NULL, NULL},
                             {"accumulate", &c.accumulate, NULL, NULL},
                             {"large", &c.large, NULL, NULL},
                             {"hiding", &c.hiding, NULL, NULL},
                             {"roomy", &c.roomy, &c.room, NULL},
                             {"expanded", &c.expanded, NULL, NULL},
                             {"threads", NULL, &c.threads, NULL},
                             {"seed", NULL, &c.seed, NULL}};
  const size_t head = strcspn(text, ":");
  c.is_window = head == 6 && memcmp(text, "window", head) == 0;
  c.is_hierarchical = head == 12 && memcmp(text, "hierarchical", head) == 0;
  c.is_compressed = head == 10 && memcmp(text, "compressed", head) == 0;
  if (!c.is_window && !c.is_hierarchical && !c.is_compressed && !(head == 5 && memcmp(text, "dense", head) == 0)) {
    fprintf(stderr, "case '%s': expected dense:..., window:..., hierarchical:... or compressed:...\n", text);
    return false;
  }
  for (const char *at = text + head; *at != '\0';) {
    at++;
    const size_t length = strcspn(at, ",");
    if (!read_word(at, length, words, sizeof words / sizeof words[0])) {
      fprintf(stderr, "case '%s': there is no '%.*s'\n", text, (int)length, at);
      return false;
    }
    at += length;
  }
  if (c.key_heads == 0) c.key_heads = c.heads;
  if (c.keys == 0) c.keys = c.queries;
  if (c.value_dim == 0) c.value_dim = c.head_dim;
  if (c.is_hierarchical) {
    if (c.block == 0) c.block = 16;
    if (!c.mean && !c.first && !c.exact) *(c.causal ? &c.first : &c.mean) = true;
    if (c.mask) c.mask_bits |= 6; /* keys alone */
  }
  if (c.is_compressed) {
    c.causal = true;
    if (c.block == 0) c.block = 16;
    if (c.slots == 0) c.slots = 1;
    if (c.select == 0) c.select = 4;
    if (c.mask) c.mask_bits |= 6;
  }
  snprintf(c.text, sizeof c.text, "%s", text);
  *out = c;
  return true;
}

/* Memory of the test program; a test that gets none cannot go on. */
static void *need(size_t count, size_t size) {
  void *memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) {
    fputs("the test program is out of memory\n", stderr);
    exit(EXIT_FAILURE);
  }
  return memory;
}

static void shape4(attention_numbers *numbers, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t shape[] = {a, b, c, d};
  numbers->rank = rank;
  numbers->count = 1;
  for (int i = 0; i < 4; i++) {
    numbers->shape[i] = i < rank ? shape[i] : 1;
    numbers->count *= numbers->shape[i];
  }
  numbers->data = need((size_t)numbers->count, sizeof(double));
}

/* Numbers in [low, high) that f32 represents, from a stream of their own. */
static void fill(attention_numbers *numbers, const attention_case *c, uint32_t stream, double low, double high) {
  const hark_random_stream random = {.seed = (uint64_t)c->seed, .layer_purpose = hark_random_layer_purpose(stream, HARK_RANDOM_TEST)};
  hark_random_uniform(&random, 0, numbers->count, numbers->data);
  for (int64_t i = 0; i < numbers->count; i++) numbers->data[i] = (double)(float)(low + (high - low) * numbers->data[i]);
}

static int64_t broadcast(int64_t extent, int64_t bits, int bit) { return bits & bit ? 1 : extent; }

int64_t attention_index(const int64_t *shape, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t at[] = {a, b, c, d};
  int64_t index = 0;
  for (int i = 0; i < 4; i++) index = index * shape[i] + (shape[i] == 1 ? 0 : at[i]);
  return index;
}

/* Cuts of a ragged batch: of `rows`, sequence s gets a share; sequence 1 has no queries and sequence 2 no keys, and the last row is in
 * none. */
static int64_t *make_offsets(int64_t rows, int64_t sequences, int64_t empty) {
  int64_t *offsets = need((size_t)sequences + 1, sizeof *offsets);
  const int64_t share = rows / (sequences - 1);
  for (int64_t s = 0; s < sequences; s++) offsets[s + 1] = offsets[s] + (s == empty ? 0 : s == sequences - 1 ? (share + 1) / 2 : share);
  return offsets;
}

static void make_division(attention_problem *problem) {
  const attention_case *c = &problem->is;
  if (c->lengths) {
    problem->key_lengths = need((size_t)c->batch, sizeof(int64_t));
    /* The middle one is empty, so that one batch has a long, an empty and a short sequence. */
    for (int64_t b = 0; b < c->batch; b++)
      problem->key_lengths[b] = b == 1 ? 0 : c->keys - (c->keys * b) / (c->batch + 1) - (b == 0 && c->keys > 1);
  }
  if (c->ragged) {
    problem->sequences = 4;
    problem->query_offsets = make_offsets(c->queries, problem->sequences, 1);
    problem->key_offsets = make_offsets(c->keys, problem->sequences, c->is_hierarchical || c->is_compressed ? 1 : 2);
  }
  if (c->segments) {
    problem->segments = need((size_t)(c->batch * c->keys), sizeof(int64_t));
    for (int64_t b = 0; b < c->batch; b++)
      for (int64_t i = 0; i < c->keys; i++) {
        const int64_t part = 4 * i / c->keys; /* four parts, the third padding; of item 1 all */
        problem->segments[b * c->keys + i] = part == 2 ? -1 : 10 - part;
      }
  }
}

static void make_mask(attention_problem *problem) {
  const attention_case *c = &problem->is;
  const int64_t shape[] = {broadcast(c->batch, c->mask_bits, 1), broadcast(c->heads, c->mask_bits, 2),
                           broadcast(c->queries, c->mask_bits, 4), broadcast(c->keys, c->mask_bits, 8)};
  memcpy(problem->mask_shape, shape, sizeof shape);
  const int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  problem->mask = need((size_t)count, 1);
  const hark_random_stream random = {.seed = (uint64_t)c->seed, .layer_purpose = hark_random_layer_purpose(20, HARK_RANDOM_TEST)};
  for (int64_t i = 0; i < count; i++) problem->mask[i] = (uint8_t)(hark_random_word(&random, (uint64_t)i) % 3 != 0); /* a third is hidden */
  if (shape[2] > 2 && shape[3] > 1) memset(problem->mask + shape[3], 0, (size_t)shape[3]); /* a row sees nothing */
}

/* A third of the rows are no queries, and of the first item the first two blocks of four. */
static void make_query_mask(attention_problem *problem) {
  const attention_case *c = &problem->is;
  const int64_t count = c->batch * c->queries;
  problem->query_mask = need((size_t)count, 1);
  const hark_random_stream random = {.seed = (uint64_t)c->seed, .layer_purpose = hark_random_layer_purpose(21, HARK_RANDOM_TEST)};
  for (int64_t i = 0; i < count; i++)
    problem->query_mask[i] = (uint8_t)(hark_random_word(&random, (uint64_t)i) % 3 != 0 && (i >= c->queries || i < 4 || i >= 12));
}

/* Chunks of N to about 3 N rows, counted from the first row of every sequence. */
static void make_chunk_starts(attention_problem *problem) {
  const attention_case *c = &problem->is;
  problem->chunk_starts = need((size_t)(c->batch * c->keys), 1);
  const hark_random_stream random = {.seed = (uint64_t)c->seed, .layer_purpose = hark_random_layer_purpose(22, HARK_RANDOM_TEST)};
  for (int64_t b = 0; b < c->batch; b++)
    for (int64_t i = 0, last = 0; i < c->keys; i++) {
      if (attention_key_place(problem, b, i).row == 0) last = i;
      if (i - last < c->block || hark_random_word(&random, (uint64_t)(b * c->keys + i)) % (uint32_t)c->block != 0) continue;
      problem->chunk_starts[b * c->keys + i] = 1;
      last = i;
    }
}

/* -infinity at every seventh element. */
static void hide_some(attention_numbers *numbers) {
  for (int64_t i = 3; i < numbers->count; i += 7) numbers->data[i] = -INFINITY;
}

void attention_problem_make(const char *text, attention_problem *out) {
  attention_problem problem = {.sigma = 1.25};
  if (!attention_case_read(text, &problem.is)) fail_msg("'%s' is no case of attention", text);
  const attention_case *c = &problem.is;
  attention_numbers *a = problem.array;
  problem.scale = 1 / sqrt((double)c->head_dim);
  problem.dropout = (hark_random_stream){
      .seed = 77, .first_index = 5, .micro_step = 3, .layer_purpose = hark_random_layer_purpose(2, HARK_RANDOM_ATTENTION)};
  shape4(&a[ARRAY_QUERY], 4, c->batch, c->heads, c->queries, c->head_dim);
  shape4(&a[ARRAY_KEY], 4, c->batch, c->key_heads, c->keys, c->head_dim);
  shape4(&a[ARRAY_VALUE], 4, c->batch, c->key_heads, c->keys, c->value_dim);
  shape4(&a[ARRAY_DOUT], 4, c->batch, c->heads, c->queries, c->value_dim);
  /* Logits of about +-1e4 in f32 range: q.k scale up to 200 * 200 / 4 * sqrt(d). */
  const double size = c->large ? 200 / sqrt(sqrt((double)c->head_dim)) : 2;
  fill(&a[ARRAY_QUERY], c, 0, -size, size);
  fill(&a[ARRAY_KEY], c, 1, -size, size);
  fill(&a[ARRAY_VALUE], c, 2, -1, 1);
  fill(&a[ARRAY_DOUT], c, 3, -1, 1);
  if (c->bias) {
    shape4(&a[ARRAY_BIAS], 4, broadcast(c->batch, c->bias_bits, 1), broadcast(c->heads, c->bias_bits, 2),
           broadcast(c->queries, c->bias_bits, 4), broadcast(c->keys, c->bias_bits, 8));
    fill(&a[ARRAY_BIAS], c, 4, -2, 2);
    if (c->hiding) hide_some(&a[ARRAY_BIAS]);
  }
  if (c->kernel || c->shared) {
    int64_t reach = (c->queries > c->keys ? c->queries : c->keys) + (c->offset < 0 ? -c->offset : c->offset);
    if (c->is_hierarchical) reach += reach / 3 * (c->seed % 3); /* as many distances as occur, and more */
    shape4(&a[ARRAY_LOG_KERNEL], 2, c->shared ? 1 : c->heads, c->directed ? 2 * reach - 1 : reach, 1, 1);
    fill(&a[ARRAY_LOG_KERNEL], c, 5, -3, 0);
    if (c->hiding) hide_some(&a[ARRAY_LOG_KERNEL]);
  }
  if (c->forget) {
    shape4(&a[ARRAY_FORGET], 3, c->batch, c->heads, c->keys, 1);
    fill(&a[ARRAY_FORGET], c, 6, -1, 4);
  }
  if (c->hierarchical_bias || c->hierarchical_shared) {
    shape4(&a[ARRAY_HIERARCHICAL_BIAS], 2, c->hierarchical_shared ? 1 : c->heads, 4 * c->block - 1, 1, 1);
    fill(&a[ARRAY_HIERARCHICAL_BIAS], c, 7, -1, 1);
    if (c->hiding) hide_some(&a[ARRAY_HIERARCHICAL_BIAS]);
  }
  if (c->positions > 0) {
    shape4(&a[ARRAY_CONTEXTUAL], 3, c->contextual_shared ? 1 : c->heads, c->positions, c->head_dim, 1);
    fill(&a[ARRAY_CONTEXTUAL], c, 8, -2, 2);
  }
  if (c->mask) make_mask(&problem);
  if (c->query_mask) make_query_mask(&problem);
  make_division(&problem);
  if (c->starts) make_chunk_starts(&problem);
  if (c->accumulate) problem.accumulate = ~0u;
  *out = problem;
}

unsigned attention_accumulate_bit(attention_array array) {
  switch (array) {
    case ARRAY_DQUERY: return HARK_ACCUMULATE_QUERY;
    case ARRAY_DKEY: return HARK_ACCUMULATE_KEY;
    case ARRAY_DVALUE: return HARK_ACCUMULATE_VALUE;
    case ARRAY_DBIAS: return HARK_ACCUMULATE_BIAS;
    case ARRAY_DLOG_KERNEL: return HARK_ACCUMULATE_LOG_KERNEL;
    case ARRAY_DFORGET: return HARK_ACCUMULATE_FORGET;
    case ARRAY_DHIERARCHICAL_BIAS: return HARK_ACCUMULATE_HIERARCHICAL_BIAS;
    case ARRAY_DCONTEXTUAL: return HARK_ACCUMULATE_CONTEXTUAL;
    default: return 0;
  }
}

void attention_problem_free(attention_problem *problem) {
  for (int i = 0; i < ARRAY_COUNT; i++) free(problem->array[i].data);
  free(problem->mask);
  free(problem->query_mask);
  free(problem->chunk_starts);
  free(problem->key_lengths);
  free(problem->query_offsets);
  free(problem->key_offsets);
  free(problem->segments);
  memset(problem, 0, sizeof *problem);
}

static attention_place ragged_place(const attention_problem *problem, const int64_t *offsets, int64_t row) {
  const attention_case *c = &problem->is;
  for (int64_t s = 0; s < problem->sequences; s++)
    if (row >= offsets[s] && row < offsets[s + 1]) {
      const int64_t queries = problem->query_offsets[s + 1] - problem->query_offsets[s];
      const int64_t keys = problem->key_offsets[s + 1] - problem->key_offsets[s];
      return (attention_place){s, row - offsets[s], c->has_offset ? c->offset : c->causal ? keys - queries : 0, keys};
    }
  return (attention_place){.sequence = -1};
}

static attention_place segment_place(const attention_problem *problem, int64_t item, int64_t row) {
  const int64_t keys = problem->is.keys, *ids = problem->segments + item * keys;
  if (ids[row] < 0) return (attention_place){.sequence = -1};
  int64_t first = row, last = row;
  while (first > 0 && ids[first - 1] == ids[row]) first--;
  while (last + 1 < keys && ids[last + 1] == ids[row]) last++;
  return (attention_place){item * keys + first, row - first, 0, last - first + 1};
}

attention_place attention_query_place(const attention_problem *problem, int64_t item, int64_t row) {
  const attention_case *c = &problem->is;
  if (c->ragged) return ragged_place(problem, problem->query_offsets, row);
  if (c->segments) return segment_place(problem, item, row);
  return (attention_place){item, row,
                           c->has_offset ? c->offset
                           : c->causal   ? c->keys - c->queries
                                         : 0,
                           c->lengths ? problem->key_lengths[item] : c->keys};
}

attention_place attention_key_place(const attention_problem *problem, int64_t item, int64_t row) {
  const attention_case *c = &problem->is;
  if (c->ragged) return ragged_place(problem, problem->key_offsets, row);
  if (c->segments) return segment_place(problem, item, row);
  const int64_t keys = c->lengths ? problem->key_lengths[item] : c->keys;
  return row < keys ? (attention_place){item, row, 0, keys} : (attention_place){.sequence = -1};
}
