/* delimiters.c - see delimiters.h. */
#include "train/delimiters.h"

#include <inttypes.h>
#include <stdio.h>

#include "train/evaluate_examples.h"

#define PIECE 4096

/* The delimiters of a configuration, and the option that has the first. */
typedef struct delimiter_set {
  const char *option, *others; /* others: what the message says of the rest */
  int32_t tokens[1 + HARK_AHCA_DELIMITERS];
  int32_t count;
} delimiter_set;
_Static_assert(HARK_CHUNK_DELIMITERS <= HARK_AHCA_DELIMITERS, "room for those of attention");

/* None where the model does not use them. */
static delimiter_set delimiters_of(const hark_config *config) {
  const hark_ahca_config *ahca = &config->model.ahca;
  const hark_attention_choice *attention = &config->model.attention;
  delimiter_set set = {.option = "model.attention.delimiters", .others = ", or one of the others,"};
  if (config->model.architecture == HARK_ARCHITECTURE_AHCA && ahca->chunk == HARK_AHCA_CHUNK_DELIMITER) {
    set = (delimiter_set){.option = "model.ahca.delimiter", .others = ", or one of model.ahca.more_delimiters,"};
    set.tokens[set.count++] = (int32_t)ahca->delimiter;
    for (int32_t i = 0; i < ahca->other_delimiter_count; i++) set.tokens[set.count++] = ahca->other_delimiters[i];
  } else if (config->model.architecture == HARK_ARCHITECTURE_DECODER &&
             hark_layer_choice_has(&attention->structure, HARK_STRUCTURE_COMPRESSED)) {
    for (int32_t i = 0; i < attention->chunk_delimiter_count; i++) set.tokens[set.count++] = attention->chunk_delimiters[i];
  }
  return set;
}

static bool has_delimiter(const delimiter_set *set, const int32_t *tokens, int64_t count) {
  const hark_chunk_ends ends = {.delimiters = set->tokens, .delimiter_count = set->count};
  for (int64_t i = 0; i < count; i++)
    if (hark_chunk_is_delimiter(&ends, tokens[i])) return true;
  return false;
}

static hark_status search_text(hark_context *context, const delimiter_set *set, const hark_corpus *corpus, bool *found) {
  const int64_t all = hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).tokens;
  int32_t piece[PIECE];
  for (int64_t first = 0; first < all && !*found; first += PIECE) {
    const int64_t count = hark_min(PIECE, all - first);
    HARK_TRY(hark_corpus_read(context, corpus, HARK_SPLIT_TRAINING, first, count, piece));
    *found = has_delimiter(set, piece, count);
  }
  return HARK_OK;
}

/* Searches the examples within data.example_limit. */
static hark_status search_examples(hark_context *context, const hark_config *config, const delimiter_set *set,
                                   const hark_examples *examples, bool *found) {
  const hark_example_batches_settings settings = hark_example_settings(config, HARK_SPLIT_TRAINING, true);
  const hark_examples_counts counts = hark_examples_count(examples, HARK_SPLIT_TRAINING);
  const size_t bytes = (size_t)counts.longest * sizeof(int32_t);
  hark_example_batches batches;
  void *tokens = NULL;
  HARK_TRY(hark_example_batches_create(context, examples, &settings, &batches));
  HARK_TRY(hark_allocate(context, bytes, &tokens));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < batches.count && !*found && status == HARK_OK; i++) {
    const int64_t index = hark_example_batches_index(&batches, i);
    status = hark_examples_read(context, examples, HARK_SPLIT_TRAINING, index, 0, tokens);
    if (status == HARK_OK) *found = has_delimiter(set, tokens, hark_examples_length(examples, HARK_SPLIT_TRAINING, index, 0));
  }
  hark_release(context, tokens, bytes);
  return status;
}

hark_status hark_delimiters_check(hark_context *context, const hark_config *config, const hark_examples *examples,
                                  const hark_corpus *corpus) {
  const delimiter_set set = delimiters_of(config);
  const int64_t vocabulary =
      examples != NULL ? hark_examples_vocabulary_size(examples) : hark_tokenizer_size(hark_corpus_tokenizer(corpus));
  bool found = set.count == 0;
  for (int32_t i = 0; i < set.count; i++) found = found || set.tokens[i] >= vocabulary; /* the model refuses it and reports the range */
  if (found) return HARK_OK;
  if (examples != NULL && hark_examples_features(examples) > 0) return HARK_OK; /* real vectors: the model reports the problem */
  HARK_TRY(examples != NULL ? search_examples(context, config, &set, examples, &found) : search_text(context, &set, corpus, &found));
  if (found) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: token %" PRId32 "%s never occurs in the training data, expected one that does",
                   set.option, set.tokens[0], set.count > 1 ? set.others : "");
}
