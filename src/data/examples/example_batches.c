/* example_batches.c - see example_batches.h.
 *
 *     order       example of sample s;  e = s / N, i = s mod N
 *     random      uniform in [0, N) from counter s
 *     shuffled    permute(e, i)
 *     sequential  i
 */
#include "data/examples/example_batches.h"

#include <hark/random.h>
#include <inttypes.h>

#include "core/core.h"
#include "data/permutation.h"
#include "tokenizers/tokenizer.h"

#define SUBSET_SEED UINT64_C(0x73756273) /* of the choice of examples under a limit: never changes */
#define STREAM_EXAMPLE 3                 /* Philox stream of the purpose HARK_RANDOM_DATA; batches.c and permutation.c use 0 to 2 */

/* Refuses examples that are longer than a pass; the message has the number of the first one, counted from 1 over its split's files. */
static hark_status check_longest(hark_context *context, const hark_examples *examples, const hark_example_batches_settings *settings,
                                 const char *split) {
  const hark_examples_counts counts = hark_examples_count(examples, settings->split);
  int64_t first = -1, more = 0, tokens = 0;
  if (counts.longest <= settings->longest) return HARK_OK;
  for (int64_t i = 0; i < counts.examples; i++) {
    int64_t length = 0;
    for (int part = 0; part < hark_examples_parts(examples); part++)
      length = hark_max(length, hark_examples_length(examples, settings->split, i, part));
    more += length > settings->longest;
    if (first >= 0 || length <= settings->longest) continue;
    first = i;
    tokens = length;
  }
  return hark_fail(context, HARK_BAD_CONFIGURATION,
                   "%" PRId64 " of the %s examples %s more tokens than %s, %" PRId64 ": the first is number %" PRId64 " with %" PRId64
                   ", the longest has %" PRId64 "; data.length_limit keeps the first tokens of each",
                   more, split, more == 1 ? "has" : "have", settings->named_for, settings->longest, first + 1, tokens, counts.longest);
}

/* Refuses tables with too few rows for the context and the queries. */
static hark_status check_rows(hark_context *context, const hark_examples *examples, const hark_example_batches_settings *settings,
                              const char *split) {
  const int64_t least = hark_table_split_least(&settings->tables), count = hark_examples_count(examples, settings->split).examples;
  for (int64_t i = 0; i < count; i++) {
    const int64_t rows = hark_examples_length(examples, settings->split, i, 0);
    if (rows < least)
      return hark_fail(context, HARK_BAD_CONFIGURATION,
                       "%s table %" PRId64 " has %" PRId64 " rows, expected at least %" PRId64 ": data.context_least %" PRId64
                       " and %" PRId64 " to predict",
                       split, i + 1, rows, least, settings->tables.least, least - settings->tables.least);
  }
  return HARK_OK;
}

hark_status hark_example_batches_create(hark_context *context, const hark_examples *examples, const hark_example_batches_settings *settings,
                                        hark_example_batches *out) {
  static const char *const names[HARK_SPLIT_ALL] = {"training", "validation", "test"};
  if (settings->split < 0 || settings->split >= HARK_SPLIT_ALL || settings->order > HARK_ORDER_SEQUENTIAL || settings->longest < 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_example_batches_create: split, order or longest has an invalid value");
  const hark_examples_counts counts = hark_examples_count(examples, settings->split);
  if (counts.examples == 0) return hark_fail(context, HARK_BAD_CONFIGURATION, "there are no %s examples", names[settings->split]);
  HARK_TRY(check_longest(context, examples, settings, names[settings->split]));
  if (settings->limit > counts.examples)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "data.example_limit is %" PRId64 ", and there are %" PRId64 " %s examples",
                     settings->limit, counts.examples, names[settings->split]);
  *out = (hark_example_batches){.examples = examples,
                                .settings = *settings,
                                .count = settings->limit > 0 ? settings->limit : counts.examples,
                                .all = counts.examples,
                                .parts = hark_examples_parts(examples)};
  out->tables = hark_examples_target_kind(examples) == HARK_TARGET_ROWS;
  if (!out->tables) return HARK_OK;
  out->parts = HARK_TABLE_PARTS;
  return check_rows(context, examples, settings, names[settings->split]);
}

/* Uniform in [0, N), N < 2^31 by far: floor(u N / 2^32) of a word u; relative deviations from uniform are below 2^-32 N. */
static int64_t drawn(const hark_example_batches *batches, int64_t sample) {
  const hark_random_stream stream = {.seed = batches->settings.seed,
                                     .layer_purpose = hark_random_layer_purpose(STREAM_EXAMPLE, HARK_RANDOM_DATA)};
  uint32_t words[4];
  hark_random_words(&stream, (uint64_t)sample, words);
  const double part = ((double)words[0] + (double)words[1] * 0x1p-32) * 0x1p-32; /* [0, 1), up to rounding */
  return hark_min(batches->count - 1, (int64_t)(part * (double)batches->count));
}

/* In [0, N). */
static int64_t place_of(const hark_example_batches *batches, int64_t sample) {
  switch (batches->settings.order) {
    case HARK_ORDER_RANDOM: return drawn(batches, sample);
    case HARK_ORDER_SHUFFLED:
      return hark_permute(batches->settings.seed, (uint32_t)(sample / batches->count), batches->count, sample % batches->count);
    case HARK_ORDER_SEQUENTIAL: break;
  }
  return sample % batches->count;
}

int64_t hark_example_batches_index(const hark_example_batches *batches, int64_t sample) {
  const int64_t place = place_of(batches, sample);
  return batches->count < batches->all ? hark_permute(SUBSET_SEED, 0, batches->all, place) : place;
}

int64_t hark_example_batches_most_tokens(const hark_example_batches *batches, int64_t rows) {
  return rows * batches->parts * (batches->settings.longest + batches->settings.class_token);
}

/* Numbers to predict for a row of a table as a model reads it: one for each class. */
static int64_t responses_of(const hark_example_batches *batches) {
  const int64_t classes = batches->settings.tables.classes;
  return classes > 0 ? classes : hark_examples_responses(batches->examples);
}

/* Rows of context and queries of a sample. */
static hark_table_sizes sizes_of(const hark_example_batches *batches, int64_t sample) {
  const int64_t index = hark_example_batches_index(batches, sample);
  return hark_table_split_sizes(&batches->settings.tables, batches->settings.seed, sample,
                                hark_examples_length(batches->examples, batches->settings.split, index, 0));
}

/* The table of a sample. */
typedef struct sample_table {
  const float *numbers; /* [rows, columns]; NULL: there is none */
  int64_t rows, columns, sample;
  uint64_t seed;
} sample_table;

static sample_table table_of(const hark_example_batches *batches, int64_t sample) {
  const int64_t index = hark_example_batches_index(batches, sample);
  return (sample_table){.numbers = hark_examples_table(batches->examples, batches->settings.split, index),
                        .rows = hark_examples_length(batches->examples, batches->settings.split, index, 0),
                        .columns = hark_examples_features(batches->examples),
                        .sample = sample,
                        .seed = batches->settings.seed};
}

/* The row at `place` in the sample. */
static const float *row_of(const sample_table *table, int64_t place) {
  return table->numbers + hark_table_split_row(table->seed, table->sample, table->rows, place) * table->columns;
}

/* The class of such a row, its last number. */
static int32_t class_of(const sample_table *table, int64_t place) { return (int32_t)row_of(table, place)[table->columns - 1]; }

/* Numbers to predict in a sample of a table. The class of a query that its context lacks is not predicted. */
static int64_t real_of_table(const hark_example_batches *batches, int64_t sample) {
  const hark_table_sizes sizes = sizes_of(batches, sample);
  bool known[HARK_CLASS_MOST] = {false};
  int64_t real = 0;
  if (batches->settings.tables.classes == 0) return sizes.queries * responses_of(batches);
  const sample_table table = table_of(batches, sample);
  for (int64_t place = 0; place < sizes.context; place++) known[class_of(&table, place)] = true;
  for (int64_t i = 0; i < sizes.queries; i++) real += known[class_of(&table, sizes.context + i)];
  return real;
}

static hark_status check_samples(hark_context *context, const char *function, int64_t first, int64_t count) {
  if (first >= 0 && count >= 0 && first <= INT64_MAX - count) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %" PRId64 " examples from sample %" PRId64, function, count, first);
}

hark_status hark_example_batches_targets(hark_context *context, const hark_example_batches *batches, int64_t first, int64_t count,
                                         int32_t *scratch, int64_t *real) {
  HARK_TRY(check_samples(context, "hark_example_batches_targets", first, count));
  *real = count;
  if (hark_examples_target_kind(batches->examples) != HARK_TARGET_TOKENS && !batches->tables) return HARK_OK;
  *real = 0;
  for (int64_t i = 0; batches->tables && i < count; i++) *real += real_of_table(batches, first + i);
  if (batches->tables) return HARK_OK;
  for (int64_t i = 0; i < count; i++) {
    int64_t here = 0;
    const int64_t index = hark_example_batches_index(batches, first + i);
    HARK_TRY(hark_examples_targets(context, batches->examples, batches->settings.split, index, scratch, &here));
    *real += here;
  }
  return HARK_OK;
}

/* Appends one sequence to the batch. */
static hark_status add_sequence(hark_context *context, const hark_example_batches *batches, int64_t index, int part,
                                hark_example_batch *batch) {
  const hark_split split = batches->settings.split;
  const int64_t begin = batch->tokens, front = batches->settings.class_token, sequence = batch->rows * batches->parts + part;
  const int64_t length = front + hark_examples_length(batches->examples, split, index, part);
  if (front > 0) batch->inputs[begin] = HARK_TOKEN_CLASS;
  HARK_TRY(hark_examples_read(context, batches->examples, split, index, part, batch->inputs + begin + front));
  for (int64_t i = 0; i < length; i++) {
    batch->positions[begin + i] = (int32_t)i;
    batch->segments[begin + i] = sequence;
  }
  batch->ranges[2 * sequence] = begin;
  batch->ranges[2 * sequence + 1] = begin + length;
  batch->tokens += length;
  batch->longest = hark_max(batch->longest, length);
  if (batch->features != NULL && hark_examples_features(batches->examples) > 0)
    HARK_TRY(hark_examples_numbers(context, batches->examples, split, index,
                                   batch->features + begin * hark_examples_features(batches->examples),
                                   batch->responses + batch->rows * hark_examples_responses(batches->examples)));
  if (hark_examples_target_kind(batches->examples) != HARK_TARGET_TOKENS) return HARK_OK;
  int64_t real = 0;
  if (front > 0) batch->targets[begin] = HARK_TARGET_IGNORED;
  HARK_TRY(hark_examples_targets(context, batches->examples, split, index, batch->targets + begin + front, &real));
  batch->real += real;
  return HARK_OK;
}

/* Rows begin .. begin + count of a batch become part `part` of its table `table`. */
static void mark_part(hark_example_batch *batch, int64_t table, int part, int64_t begin, int64_t count) {
  const int64_t sequence = table * HARK_TABLE_PARTS + part;
  for (int64_t i = 0; i < count; i++) {
    batch->inputs[begin + i] = 0;
    batch->positions[begin + i] = 0;
    batch->segments[begin + i] = sequence;
  }
  batch->ranges[2 * sequence] = begin;
  batch->ranges[2 * sequence + 1] = begin + count;
  batch->longest = hark_max(batch->longest, count);
}

/* Classes of the rows of a sample, and what a model reads in their place (hark_table_put_classes()). Returns how many are to predict. */
static int64_t put_classes(const sample_table *table, int64_t count, hark_table_sizes sizes, int32_t *of_context, int32_t *of_queries,
                           float *targets, float *level) {
  int64_t real = 0;
  for (int64_t i = 0; i < sizes.context; i++) of_context[i] = class_of(table, i);
  hark_table_put_classes(of_context, sizes.context, count, targets, sizes.queries, level);
  for (int64_t i = 0; i < sizes.queries; i++) {
    const int32_t own = class_of(table, sizes.context + i);
    of_queries[i] = level[i * count + own] == HARK_CLASS_ABSENT ? HARK_TARGET_IGNORED : own;
    real += of_queries[i] >= 0;
  }
  return real;
}

/* Reads a sample of a table: its context to rows at_context .. of the batch, its queries to rows at_query ... */
static hark_status read_table(hark_context *context, const hark_example_batches *batches, int64_t sample, hark_table_sizes sizes,
                              int64_t at_context, int64_t at_query, hark_example_batch *batch) {
  const sample_table table = table_of(batches, sample);
  const int64_t responses = responses_of(batches), count = batches->settings.tables.classes;
  const int64_t inputs = hark_examples_features(batches->examples) - hark_examples_responses(batches->examples);
  const bool classes = count > 0, standardise = batches->settings.tables.standardise;
  float *const of_context = batch->responses + at_context * responses, *const of_queries = batch->responses + at_query * responses;
  const hark_table_block known = {batch->features + 2 * at_context * inputs, classes ? NULL : of_context, sizes.context},
                         asked = {batch->features + 2 * at_query * inputs, classes ? NULL : of_queries, sizes.queries};
  if (table.numbers == NULL) return hark_fail(context, HARK_INTERNAL_ERROR, "the example of sample %" PRId64 " is no table", sample);
  for (int64_t place = 0; place < sizes.context + sizes.queries; place++) {
    const bool query = place >= sizes.context;
    hark_table_put(row_of(&table, place), inputs, responses, query ? &asked : &known, query ? place - sizes.context : place);
  }
  hark_table_scale(standardise, inputs, classes ? 0 : responses, &known, &asked, batch->scales + batch->rows * responses);
  batch->real += classes ? put_classes(&table, count, sizes, batch->targets + at_context, batch->targets + at_query, of_context, of_queries)
                         : sizes.queries * responses;
  return HARK_OK;
}

/* The context of all tables, then their queries. */
static hark_status read_tables(hark_context *context, const hark_example_batches *batches, int64_t first, int64_t rows,
                               hark_example_batch *batch) {
  int64_t at_context = 0, at_query = 0;
  batch->real = 0;
  for (int64_t i = 0; i < rows; i++) at_query += sizes_of(batches, first + i).context;
  batch->context_rows = at_query;
  batch->longest = 0;
  for (batch->rows = 0; batch->rows < rows; batch->rows++) {
    const hark_table_sizes sizes = sizes_of(batches, first + batch->rows);
    HARK_TRY(read_table(context, batches, first + batch->rows, sizes, at_context, at_query, batch));
    mark_part(batch, batch->rows, 0, at_context, sizes.context);
    mark_part(batch, batch->rows, 1, at_query, sizes.queries);
    at_context += sizes.context;
    at_query += sizes.queries;
  }
  batch->tokens = at_query;
  return HARK_OK;
}

hark_status hark_example_batches_read(hark_context *context, const hark_example_batches *batches, int64_t first, int64_t rows,
                                      hark_example_batch *batch) {
  HARK_TRY(check_samples(context, "hark_example_batches_read", first, rows));
  if (batches->tables) return read_tables(context, batches, first, rows, batch);
  const bool one_each = hark_examples_target_kind(batches->examples) != HARK_TARGET_TOKENS;
  batch->tokens = batch->longest = batch->real = 0;
  for (batch->rows = 0; batch->rows < rows; batch->rows++) {
    const int64_t index = hark_example_batches_index(batches, first + batch->rows);
    for (int part = 0; part < batches->parts; part++) HARK_TRY(add_sequence(context, batches, index, part, batch));
    if (!one_each) continue;
    batch->targets[batch->rows] = hark_examples_label(batches->examples, batches->settings.split, index);
    batch->real++;
  }
  return HARK_OK;
}

void hark_example_batch_mask(const hark_masking *masking, int64_t first, int64_t parts, hark_example_batch *batch) {
  batch->real = 0;
  for (int64_t i = 0; i < batch->rows * parts; i++) {
    const int64_t begin = batch->ranges[2 * i], length = batch->ranges[2 * i + 1] - begin;
    batch->real += hark_mask_tokens(masking, first * parts + i, length, batch->inputs + begin, batch->targets + begin);
  }
}
