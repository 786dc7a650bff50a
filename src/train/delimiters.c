/* delimiters.c - see delimiters.h. */
#include "train/delimiters.h"

#include <inttypes.h>
#include <stdio.h>

#include "train/evaluate_examples.h"

#define PIECE 4096

static bool has_delimiter(const hark_ahca_config *ahca, const int32_t *tokens, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (tokens[i] == ahca->delimiter) return true;
    for (int32_t d = 0; d < ahca->other_delimiter_count; d++)
      if (tokens[i] == ahca->other_delimiters[d]) return true;
  }
  return false;
}

static hark_status search_text(hark_context *context, const hark_ahca_config *ahca, const hark_corpus *corpus, bool *found) {
  const int64_t all = hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).tokens;
  int32_t piece[PIECE];
  for (int64_t first = 0; first < all && !*found; first += PIECE) {
    const int64_t count = hark_min(PIECE, all - first);
    HARK_TRY(hark_corpus_read(context, corpus, HARK_SPLIT_TRAINING, first, count, piece));
    *found = has_delimiter(ahca, piece, count);
  }
  return HARK_OK;
}

/* Searches the examples within data.example_limit. */
static hark_status search_examples(hark_context *context, const hark_config *config, const hark_examples *examples, bool *found) {
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
    if (status == HARK_OK)
      *found = has_delimiter(&config->model.ahca, tokens, hark_examples_length(examples, HARK_SPLIT_TRAINING, index, 0));
  }
  hark_release(context, tokens, bytes);
  return status;
}

hark_status hark_delimiters_check(hark_context *context, const hark_config *config, const hark_examples *examples,
                                  const hark_corpus *corpus) {
  const hark_ahca_config *ahca = &config->model.ahca;
  const int64_t vocabulary =
      examples != NULL ? hark_examples_vocabulary_size(examples) : hark_tokenizer_size(hark_corpus_tokenizer(corpus));
  bool found = ahca->delimiter >= vocabulary; /* the model refuses it and reports the range */
  if (config->model.architecture != HARK_ARCHITECTURE_AHCA || ahca->chunk != HARK_AHCA_CHUNK_DELIMITER) return HARK_OK;
  if (examples != NULL && hark_examples_features(examples) > 0) return HARK_OK; /* real vectors: the model reports the problem */
  HARK_TRY(examples != NULL ? search_examples(context, config, examples, &found) : search_text(context, ahca, corpus, &found));
  if (found) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION,
                   "model.ahca.delimiter: token %" PRId64 "%s never occurs in the training data, expected one that does", ahca->delimiter,
                   ahca->other_delimiter_count > 0 ? ", or one of model.ahca.more_delimiters," : "");
}
