/* trained_heads.h - queries, keys and values of the heads of a trained model, as its attention receives them while the model reads a
 * text. */
#ifndef HARK_LAB_TRAINED_HEADS_H
#define HARK_LAB_TRAINED_HEADS_H

#include "lab/attention.h"

/* Options --run and --text of the experiments that measure the heads of a trained model. Both are empty if they are not given. */
typedef struct hark_lab_trained_values {
  const char *run, *text;
} hark_lab_trained_values;

/* All heads for one text of `length` tokens; the arrays live as long as the lab. */
typedef struct hark_trained_heads {
  int64_t layers, heads, length, head_dim;
  double *query, *key, *value;       /* [layers, heads, length, head_dim]; keys and values repeated where heads share them */
  bool causal;                       /* a token does not attend to later ones */
  hark_attention_desc *similarities; /* [layers]: kernel with its scale or width */
} hark_trained_heads;

/* Refuses options (a hark_lab_trained_values): one without the other, missing files, and models that cannot be read this way, before
 * anything is computed. Errors: as below, except those of the text; HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_trained_heads_check(hark_context *context, const void *options);

/* Reads the first tokens of a text, as many as the model's context has and at most `longest`, with the model of a run, a checkpoint or a
 * file: a decoder, an encoder (whose sequence begins with its class token, if it has one) or a masked encoder. For models of pictures, each
 * byte of the file is a grey value. Errors: those of hark_model_load() and of files; HARK_BAD_FILE for a text of fewer than `least` tokens;
 * HARK_UNSUPPORTED for a model whose logits have terms other than queries and keys (positional kernels, contextual positions, forget
 * gates). A learned bias of hierarchical attention is left out. */
HARK_MUST_CHECK hark_status hark_trained_heads_read(hark_lab *lab, const char *model, const char *text, int64_t least, int64_t longest,
                                                    hark_trained_heads *out);

#endif
