/* model.h - trained models for programs that use them: load, read text in, generate. Nothing here trains. What models tell of sequences that they
 * read whole is in predictor.h; decodings are of decoders alone.
 *
 *     hark_model_load            a run, a checkpoint or a file; hark_model_load_memory: bytes that the caller has
 *     hark_model_encode          text -> tokens; hark_model_token_text, hark_model_decode: tokens -> text
 *     hark_decoding_create       what the model has read so far: keys and values of every layer, for one text
 *     hark_decoding_prefill      reads tokens in; hark_decoding_step: one more
 *     hark_decoding_choose       the next token, from the logits behind the last one
 *
 * Threads. A model never changes after loading: any number of threads may use one at the same time, each with a context and decodings of
 * its own. A decoding belongs to the context that it was created with, and both are used by one thread at a time. The results have the same
 * bits however many threads share the model, and whatever the contexts' numbers of threads are. With several threads of one's own, contexts
 * of one thread each (hark_context_options.threads = 1) are the fastest.
 *
 * Memory. A model is one block of weights and some small ones, from the context that loaded it; that context must outlive it and destroys
 * it. A decoding takes all its memory when it is created; reading in, steps, choosing, cutting, saving and restoring allocate nothing.
 *
 * Lengths. A decoding has room for `capacity` tokens, by default the model's context: the longest text that it was trained on. What does not
 * fit is refused, and nothing is appended. Models with learned positions have no more positions than their context; with other positions a
 * larger capacity is allowed, and what the model makes of texts longer than its context is not promised to be good. To go on beyond:
 * hark_decoding_truncate(decoding, 0), and hark_decoding_prefill with the last part of the text (`hark generate` takes half of the capacity).
 *
 * docs/embedding.md is the guide, examples/03_embed_model.c a program.
 */
#ifndef HARK_MODEL_H
#define HARK_MODEL_H

#include <string.h>

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models ---- */

/* Made by hark_model_load(), _load_memory() or _create(). */
typedef struct hark_model hark_model;

/* How to load. Set struct_size to sizeof(hark_model_options); what is left zero takes its default.
 *
 * A file that hark writes carries its model's description and vocabulary in its metadata. For weights without them (files of other programs,
 * checkpoints from before there were descriptions) they can be given here; what the file carries counts more.
 * description: JSON, {"model": {...}}, with the keys of docs/configuration.md under `model` and `vocabulary`, the number of tokens (which a
 * vocabulary tells as well); other members than `model` are left alone. vocabulary: the contents of a vocabulary.json. */
typedef struct hark_model_options {
  size_t struct_size;
  const char *checkpoint;  /* of a run: "best", "last" or "step-N"; NULL: best, or last where there is no best yet */
  bool skip_verification;  /* do not compare the file with the manifest.json beside it */
  const char *description; /* NULL: the file carries it */
  size_t description_bytes;
  const char *vocabulary; /* NULL: the file carries it, or the model has none and knows tokens only */
  size_t vocabulary_bytes;
} hark_model_options;

/* Loads a model. `path` is a run's folder, a checkpoint's folder (any folder with a model.safetensors in it) or a safetensors file. Where a
 * manifest.json lies beside the file (in a run it must), its SHA-256 must be the manifest's. `options` may be NULL.
 * Errors: HARK_NOT_FOUND (no such path, run without a checkpoint), HARK_BAD_FILE (malformed, damaged, no description, tensors missing, too
 * many, of another type or shape; said before memory for weights is asked for), HARK_BAD_CONFIGURATION (a description that no model can
 * have), HARK_INVALID_ARGUMENT (struct_size), HARK_UNSUPPORTED (options of a newer hark are set), HARK_IO_ERROR, HARK_OUT_OF_MEMORY. When it
 * fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_model_load(hark_context *context, const char *path, const hark_model_options *options,
                                                     hark_model **out);

/* Loads a model from the bytes of a safetensors file. They are copied, in any alignment, and may go afterwards. Errors: as hark_model_load. */
HARK_API HARK_MUST_CHECK hark_status hark_model_load_memory(hark_context *context, const void *data, size_t bytes,
                                                            const hark_model_options *options, hark_model **out);

/* Makes a model with the weights that training begins with, drawn by `seed`: for tests and measurements of programs that embed models.
 * options->description is needed; without a vocabulary tokens are bytes. Errors: as hark_model_load. */
HARK_API HARK_MUST_CHECK hark_status hark_model_create(hark_context *context, const hark_model_options *options, uint64_t seed,
                                                       hark_model **out);

/* Writes weights, description and vocabulary into one file, atomically: all that hark_model_load() needs.
 * Errors: HARK_IO_ERROR, HARK_NOT_FOUND (the folder), HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_model_save(hark_context *context, const hark_model *model, const char *path);

/* Frees a model, with the context that made it, and sets *model to NULL. No decoding of it may be left. NULL and a pointer to NULL are
 * allowed. */
HARK_API void hark_model_destroy(hark_context *context, hark_model **model);

/* What a model is. Texts belong to the model. */
typedef struct hark_model_info {
  size_t struct_size;
  const char *type;      /* "gpt" */
  const char *tokenizer; /* "characters", "bytes", "subwords"; NULL: no vocabulary, or that of labelled examples */
  int64_t vocabulary;    /* number of tokens: every token is in [0, vocabulary) */
  int64_t reserved;      /* the first so many tokens stand for no text (padding, unknown, ...) and are never chosen */
  int64_t context;       /* longest text that it was trained on, in tokens */
  int64_t layers, heads, key_heads, width;
  int64_t parameters;       /* learned numbers */
  size_t bytes;             /* memory that the model holds */
  uint64_t fingerprint;     /* of description and weights: equal for equal models. Tells models apart; no protection against forgery */
  const char *architecture; /* "decoder", "encoder", "masked_encoder", "ahca", "latent", "finite" */
  int64_t begin;            /* the token before the first of every text, of models of sentences, which end with "\n"; 0: there is none */
} hark_model_info;

/* Fills *info; set info->struct_size to sizeof(hark_model_info) before. Errors: HARK_INVALID_ARGUMENT (struct_size). */
HARK_API HARK_MUST_CHECK hark_status hark_model_describe(const hark_model *model, hark_model_info *info);

/* Text -> tokens. `tokens` has room for `bytes` tokens: there are never more. `*count` is how many there are. The text and the tokens share no
 * memory (HARK_INVALID_ARGUMENT).
 * What is not in the vocabulary becomes the token "unknown" with `map_unknown`, else HARK_BAD_FILE with line, column and byte offset.
 * Of a model that was trained on labelled examples: the bytes of the text where its symbols are bytes, else its words, which blanks divide.
 * HARK_UNSUPPORTED: the model has no vocabulary, or its symbols are grey values or numbers. */
HARK_API HARK_MUST_CHECK hark_status hark_model_encode(hark_context *context, const hark_model *model, const char *text, size_t bytes,
                                                       bool map_unknown, int32_t *tokens, size_t *count);

/* Name of class `index` of a model that was trained on labelled examples, owned by the model; NULL where there is none. */
HARK_API const char *hark_model_class_name(const hark_model *model, int64_t index);

/* The bytes of one token's text: `*bytes` of them, without a zero byte behind them, owned by the model. Put one behind the other they are the
 * text; of a model that was trained on labelled examples, its words without blanks. "Unknown" gives U+FFFD, with labelled examples nothing; other
 * reserved tokens, numbers outside the vocabulary and models without one give nothing. A token that is a byte may be a part of a character. */
HARK_API const char *hark_model_token_text(const hark_model *model, int32_t token, size_t *bytes);

/* Tokens -> text: as many whole tokens' texts as fit into `capacity` bytes, without a zero byte behind them. *bytes is what all of them need
 * (also with text NULL and capacity 0). The text and the tokens must share no memory. */
HARK_API void hark_model_decode(const hark_model *model, const int32_t *tokens, size_t count, char *text, size_t capacity, size_t *bytes);

/* ---- decoding ---- */

/* Made by hark_decoding_create(). */
typedef struct hark_decoding hark_decoding;

/* Asked before every layer of every pass, on the thread that works; true ends the call with HARK_CANCELLED. It may read a flag that another
 * thread sets (atomically), or a clock. It must not call the library with the same context. */
typedef bool hark_cancel(void *user);

/* How to make a decoding. Set struct_size to sizeof(hark_decoding_options); what is left zero takes its default. */
typedef struct hark_decoding_options {
  size_t struct_size;
  int64_t capacity; /* tokens; 0: the model's context */
  hark_cancel *cancel;
  void *cancel_user;
  void *
      memory; /* memory_bytes of the caller's, of any alignment, for this decoding alone as long as it lives; NULL: the context allocates */
  size_t memory_bytes;
} hark_decoding_options;

/* Bytes of memory that a decoding with these options takes in this context. Errors: as hark_decoding_create. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_size(hark_context *context, const hark_model *model,
                                                        const hark_decoding_options *options, size_t *bytes);

/* Makes a decoding that has read nothing. `options` may be NULL. The model must outlive it.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, capacity below 1 or above what learned positions allow, memory too small or over the model's weights, a
 * context of another backend than the model's), HARK_UNSUPPORTED (a model that is no decoder, options of a newer hark are set),
 * HARK_OUT_OF_MEMORY, HARK_TOO_LARGE (a capacity above 2^40, or one whose memory cannot be addressed). When it fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_create(hark_context *context, const hark_model *model,
                                                          const hark_decoding_options *options, hark_decoding **out);
/* Frees it (memory of the caller's stays the caller's) and sets *decoding to NULL. NULL and a pointer to NULL are allowed. */
HARK_API void hark_decoding_destroy(hark_decoding **decoding);

/* Reads `count` >= 1 tokens in, behind those already read. Afterwards the logits are those behind the last one.
 * Long texts are read 128 tokens at a time; the logits agree with those of single steps up to rounding.
 * Errors: HARK_INVALID_ARGUMENT (no room for all of them, a token outside the vocabulary), HARK_CANCELLED. After an error what has been read
 * is what it was before the call, and there are no logits. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_prefill(hark_decoding *decoding, const int32_t *tokens, int64_t count);
/* The same with one token. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_step(hark_decoding *decoding, int32_t token);

/* Logits [vocabulary] behind the last token, in the decoding's memory, good until its next call; NULL where there are none: before the first
 * token, after an error, after cutting. They may be changed before choosing; minus infinity keeps a token from being chosen. */
HARK_API float *hark_decoding_logits(hark_decoding *decoding);

/* How to choose the next token. Fill with hark_sampling_default() and change: logits are divided by `temperature` (0: always the likeliest
 * token); of the `top_k` likeliest (0: all) those are kept that together have probability `top_p`, the smallest such set (Holtzman et al.,
 * arXiv 1904.09751; 1: all). Of equal logits the lower token comes first. */
typedef struct hark_sampling {
  size_t struct_size;
  double temperature; /* [0, inf) */
  int64_t top_k;      /* [0, inf) */
  double top_p;       /* (0, 1] */
  uint64_t seed;
} hark_sampling;

/* Temperature 1, all tokens, seed 0. */
static inline hark_sampling hark_sampling_default(void) {
  hark_sampling sampling;
  memset(&sampling, 0, sizeof sampling);
  sampling.struct_size = sizeof sampling;
  sampling.temperature = 1;
  sampling.top_p = 1;
  return sampling;
}

/* Chooses from the logits; appends nothing. The choice depends on sampling, `index` (the number of the token in the text that is being made:
 * 0, 1, 2, ...) and logits alone; reserved tokens are never chosen.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, no logits, a field outside its range), HARK_UNSUPPORTED (fields of a newer hark are set),
 * HARK_NOT_FINITE (a logit that is NaN or plus infinity). */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_choose(hark_decoding *decoding, const hark_sampling *sampling, uint64_t index,
                                                          int32_t *token);

/* Forgets all tokens from number `length` on; there are no logits until the next token. A model of structure hierarchical, in any layer,
 * keeps little of old tokens: its next call reads those that are left again first. So does one whose rotary rates are those of a longer text
 * (model.rotary.scaling dynamic, longrope). Errors: HARK_INVALID_ARGUMENT (length outside [0, what has
 * been read]). */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_truncate(hark_decoding *decoding, int64_t length);

/* Tokens read, and room in all. */
HARK_API int64_t hark_decoding_length(const hark_decoding *decoding);
HARK_API int64_t hark_decoding_capacity(const hark_decoding *decoding);

/* Pivots that kernel ridge attention (normalisation CME) has mended in all that this decoding has read since it was made, what it has
 * forgotten included: equal keys under a ridge that is too small for the type. 0 with other attention. */
HARK_API int64_t hark_decoding_mended_pivots(const hark_decoding *decoding);

/* What has been read, as bytes that can be stored: hark_decoding_saved_bytes() of them now. What follows after restoring them has the same
 * bits as if nothing had happened in between, where the model, the capacity, the instruction set and the version of hark are the same.
 * Any capacity that has room for the tokens will do. A model of structure hierarchical whose new capacity has another number of levels
 * (2^levels blocks hold its tokens) reads the tokens again when the next ones come.
 * The bytes lie outside of the decoding's memory (HARK_INVALID_ARGUMENT).
 * save: HARK_INVALID_ARGUMENT where `bytes` is less than that.
 * restore: replaces what has been read. The bytes are checked first (form, checksum, the model's fingerprint); when they are refused nothing
 * changes. Errors: HARK_BAD_FILE (damaged, of another model, of another version), HARK_INVALID_ARGUMENT (more tokens than capacity). */
HARK_API size_t hark_decoding_saved_bytes(const hark_decoding *decoding);
HARK_API HARK_MUST_CHECK hark_status hark_decoding_save(const hark_decoding *decoding, void *data, size_t bytes);
HARK_API HARK_MUST_CHECK hark_status hark_decoding_restore(hark_decoding *decoding, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
