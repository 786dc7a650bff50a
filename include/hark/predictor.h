/* predictor.h - predictions of a trained model for whole sequences: classes, numbers, labels of tokens. model.h continues texts, and loads
 * the models.
 *
 *     hark_predictor_shape       what a model reads and predicts
 *     hark_predictor_create      memory for calls with a maximum of examples and tokens
 *     hark_predictor_run         examples -> numbers
 *
 * The output depends on the model:
 *   - encoders, and ahca models with a head for classes: logits of classes (the largest is the most likely class);
 *   - encoders with model.head embedding, and every model of blocks with options.embedding: an embedding, `width` numbers for each part of
 *     an example;
 *   - models of real vectors, and ahca models with the head regression: the predicted numbers;
 *   - all others: logits of the vocabulary, a row for every token: labels, masked tokens, input tokens, or the next token.
 * The softmax of logits is probabilities. Examples of one call do not see each other; they follow one after the other, and nothing is
 * computed for padding. The numbers of an example are the same alone or among others up to rounding, and to the bit in a context made with
 * `deterministic`.
 *
 * Tokens are numbered as in training; hark_model_encode() converts texts and words to them. Grey values and other symbols, in the order of
 * docs/tasks.md, begin after the reserved tokens (hark_model_info.reserved). The predictor adds the token that an encoder has before a
 * sequence.
 *
 * Threads. A predictor belongs to the context that it was created with, and both are used by one thread at a time; any number of predictors
 * share a model. It takes its memory when it is created; calls allocate nothing through the context.
 *
 * docs/embedding.md is the guide, examples/06_classify.c a program.
 */
#ifndef HARK_PREDICTOR_H
#define HARK_PREDICTOR_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Made by hark_predictor_create(). */
typedef struct hark_predictor hark_predictor;

/* What a model reads and predicts. */
typedef struct hark_prediction_shape {
  size_t struct_size;
  int64_t outputs;  /* numbers in a row: classes, predicted numbers, or tokens of the vocabulary */
  bool of_tokens;   /* a row for every token; false: one for every example */
  int64_t parts;    /* sequences of an example: 2 for pairs, else 1 */
  int64_t longest;  /* tokens of a sequence, at most */
  int64_t features; /* numbers of a real vector; 0: tokens are read */
  int64_t selected; /* ahca: global tokens of a sequence that are selected, at most; else 0 */
} hark_prediction_shape;

/* Fills *shape; set shape->struct_size to sizeof(hark_prediction_shape) before. Errors: HARK_INVALID_ARGUMENT (struct_size). */
HARK_API HARK_MUST_CHECK hark_status hark_predictor_shape(const hark_model *model, hark_prediction_shape *shape);

/* Selects global tokens of an ahca model in place of its rule. global [offsets[sequences], width]: the pooled tokens of every sequence,
 * those of sequence s in rows offsets[s] .. offsets[s + 1] - 1. Writes rows into index [sequences, most], each at most once and into the
 * row of its sequence, in any order, and at least one of each sequence. All entries are -1 before the call; an entry that stays -1 selects
 * nothing. All memory is the library's, valid during the call. */
typedef void hark_select_global(void *user, const float *global, int64_t width, const int64_t *offsets, int64_t sequences, int64_t most,
                                int32_t *index);

/* What a predictor computes for a sequence in place of predictions: an embedding, from the rows that the last block (and the final norm)
 * gives its tokens. MODEL: as the model itself pools (model.pooling of encoders, otherwise the mean); POOLER: the first row h as
 * tanh(W h + b), for models with model.pooler. */
typedef enum hark_embedding {
  HARK_EMBEDDING_NONE, /* predictions; of an encoder without a head for classes they are the embeddings that it was made for */
  HARK_EMBEDDING_MODEL,
  HARK_EMBEDDING_MEAN,
  HARK_EMBEDDING_FIRST,
  HARK_EMBEDDING_LAST,
  HARK_EMBEDDING_POOLER
} hark_embedding;

/* Set struct_size to sizeof(hark_predictor_options); fields that are zero have their defaults. */
typedef struct hark_predictor_options {
  size_t struct_size;
  int64_t examples;           /* at most in a call; 0: 1 */
  int64_t tokens;             /* at most in a call, of all examples together; 0: as many as they can have */
  hark_select_global *select; /* ahca; NULL: the model's rule */
  void *select_user;
  bool gives_chunks;        /* ahca: calls may specify where chunks begin, which takes memory for the largest number of chunks */
  int64_t normalise;        /* embeddings of length 1: 1; not: -1; 0: as the model was made */
  hark_embedding embedding; /* decoders, encoders and masked encoders */
} hark_predictor_options;

/* Makes a predictor. `options` may be NULL. The model must outlive it.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, a number outside its range, more examples than tokens, options of ahca for another model, a
 * context of another backend than the model's, an embedding by a pooler that the model lacks, normalise without an embedding),
 * HARK_UNSUPPORTED (options of a newer hark are set, an embedding of an architecture without blocks), HARK_TOO_LARGE, HARK_OUT_OF_MEMORY.
 * When it fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_predictor_create(hark_context *context, const hark_model *model,
                                                           const hark_predictor_options *options, hark_predictor **out);
/* Frees it and sets *predictor to NULL. NULL and a pointer to NULL are allowed. */
HARK_API void hark_predictor_destroy(hark_predictor **predictor);

/* Examples, one after the other. Set struct_size to sizeof(hark_prediction_input). Everything is caller-owned and read during the call. */
typedef struct hark_prediction_input {
  size_t struct_size;
  int64_t examples;
  const int64_t *offsets; /* [examples * parts + 1]: the first token of every sequence, from 0, and last the number of all tokens */
  const int32_t *tokens;  /* [all]; NULL if vectors are read */
  const float *vectors;   /* [all, features]; NULL if tokens are read */
  const int64_t
      *chunks; /* ahca with gives_chunks: the first tokens of all chunks, including those of sequences, and last the number of all tokens:
                             [chunk_count + 1]. NULL: by the model's rule. Lengths are within the model's minimum and maximum (fixed: 1 to
                             the size). If the model has positions of chunks or a kernel, they limit the number of chunks of a sequence */
  int64_t chunk_count;
  const int32_t *types; /* [all] the types of the tokens, for models with model.token_types; NULL: all 0 */
} hark_prediction_input;

/* Predicts: writes rows of `outputs` numbers for the examples into `numbers`, which has room for `count` of them.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, more examples or tokens than the predictor has room for, a sequence of no tokens or of more
 * than `longest`, a token outside the vocabulary, a number that is not finite, chunks or a selection that break the rules above, too little
 * room), HARK_UNSUPPORTED (fields of a newer hark are set). After an error the numbers are unchanged or a part of the new ones. The input
 * is copied first, so that `numbers` may overlap it. */
HARK_API HARK_MUST_CHECK hark_status hark_predictor_run(hark_predictor *predictor, const hark_prediction_input *input, float *numbers,
                                                        size_t count);

#ifdef __cplusplus
}
#endif
#endif
