/* predictor.h - what a trained model tells of sequences that it reads whole: classes, numbers, labels of tokens. For texts that are continued there
 * is model.h, which also loads the models.
 *
 *     hark_predictor_shape       what a model reads and tells
 *     hark_predictor_create      memory for calls of at most so many examples and tokens
 *     hark_predictor_run         examples -> numbers
 *
 * Of encoders, and of ahca models whose head tells classes, the numbers are logits of classes (the likeliest class is the largest, probabilities are
 * their softmax); of models of real vectors, and of ahca's head regression, the numbers that are told; of all others logits of the vocabulary, a row
 * for every token: labels, tokens that are hidden or were read, or the next token. Examples of one call do not see each other; they lie one behind
 * the other, and nothing is computed for padding. The numbers of an example are the same alone or among others up to rounding, and to the bit in
 * a context made with `deterministic`.
 *
 * Tokens are numbered as in training; hark_model_encode() makes them of texts and of words. Grey values and other symbols, in the order that
 * docs/tasks.md tells, begin behind the reserved tokens (hark_model_info.reserved). What an encoder puts in front of a sequence the predictor puts
 * there.
 *
 * Threads. A predictor belongs to the context that it was created with, and both are used by one thread at a time; any number of predictors share a
 * model. It takes its memory when it is created; calls allocate nothing through the context.
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

/* What a model reads and tells. */
typedef struct hark_prediction_shape {
  size_t struct_size;
  int64_t outputs;  /* numbers in a row: classes, numbers that are told, or tokens of the vocabulary */
  bool of_tokens;   /* a row for every token; false: one for every example */
  int64_t parts;    /* sequences of an example: 2 where pairs are told apart, else 1 */
  int64_t longest;  /* tokens of a sequence, at most */
  int64_t features; /* numbers of a real vector; 0: tokens are read */
  int64_t selected; /* ahca: global tokens of a sequence that are selected, at most; else 0 */
} hark_prediction_shape;

/* Fills *shape; set shape->struct_size to sizeof(hark_prediction_shape) before. Errors: HARK_INVALID_ARGUMENT (struct_size). */
HARK_API HARK_MUST_CHECK hark_status hark_predictor_shape(const hark_model *model, hark_prediction_shape *shape);

/* Chooses global tokens of an ahca model in the place of its rule. global [offsets[sequences], width]: the tokens of every sequence as they are pooled,
 * those of sequence s in rows offsets[s] .. offsets[s + 1] - 1. Writes rows into index [sequences, most], each at most once and of its own sequence, in
 * any order, and at least one of each sequence; places that stay -1, which all are before, select nothing. All memory is the library's, good during the
 * call. */
typedef void hark_select_global(void *user, const float *global, int64_t width, const int64_t *offsets, int64_t sequences, int64_t most,
                                int32_t *index);

/* Set struct_size to sizeof(hark_predictor_options); what is left zero takes its default. */
typedef struct hark_predictor_options {
  size_t struct_size;
  int64_t examples;           /* most of a call; 0: 1 */
  int64_t tokens;             /* most of a call, of all examples together; 0: as many as they can have */
  hark_select_global *select; /* ahca; NULL: the model's rule */
  void *select_user;
  bool gives_chunks; /* ahca: calls may tell where chunks begin, which takes memory for as many as there may be */
} hark_predictor_options;

/* Makes a predictor. `options` may be NULL. The model must outlive it.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, a number below 0, more examples than tokens, options of ahca for another model, a context of another
 * backend than the model's), HARK_UNSUPPORTED (options of a newer hark are set), HARK_TOO_LARGE, HARK_OUT_OF_MEMORY. When it fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_predictor_create(hark_context *context, const hark_model *model,
                                                           const hark_predictor_options *options, hark_predictor **out);
/* Frees it and sets *predictor to NULL. NULL and a pointer to NULL are allowed. */
HARK_API void hark_predictor_destroy(hark_predictor **predictor);

/* Examples, one behind the other. Set struct_size to sizeof(hark_prediction_input). Everything is the caller's, read during the call. */
typedef struct hark_prediction_input {
  size_t struct_size;
  int64_t examples;
  const int64_t *offsets; /* [examples * parts + 1]: the first token of every sequence, from 0, and the number of all behind them */
  const int32_t *tokens;  /* [all]; NULL where vectors are read */
  const float *vectors;   /* [all, features]; NULL where tokens are read */
  const int64_t
      *chunks; /* ahca with gives_chunks: the first tokens of all chunks, those of sequences among them, and the number of all behind
                             them: [chunk_count + 1]. NULL: by the model's rule. As long as the model's minimum and maximum allow (fixed: 1 to the
                             size), and where it has positions of chunks or a kernel not more of a sequence than it has positions for */
  int64_t chunk_count;
} hark_prediction_input;

/* Tells what the model makes of the examples: rows of `outputs` numbers into `numbers`, which has room for `count` of them.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, more examples or tokens than the predictor has room for, a sequence of no tokens or of more than
 * `longest`, a token outside the vocabulary, a number that is not finite, chunks or a selection that are not as said, too little room),
 * HARK_UNSUPPORTED (fields of a newer hark are set). After an error the numbers are as before or part of the new ones. What is read is copied
 * first, so that the numbers may lie over it. */
HARK_API HARK_MUST_CHECK hark_status hark_predictor_run(hark_predictor *predictor, const hark_prediction_input *input, float *numbers,
                                                        size_t count);

#ifdef __cplusplus
}
#endif
#endif
