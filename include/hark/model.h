/* model.h - trained models for programs that use them: load, read text, generate. Nothing here trains. Predictions for whole sequences are
 * in predictor.h; only decoders have decodings.
 *
 *     hark_model_load            a run, a checkpoint or a file; hark_model_load_memory: bytes that the caller has
 *     hark_model_encode          text -> tokens; hark_model_token_text, hark_model_decode: tokens -> text
 *     hark_decoding_create       the state after the tokens read so far: keys and values of every layer, for one text
 *     hark_decoding_prefill      reads tokens in; hark_decoding_step: one more
 *     hark_decoding_choose       the next token, from the logits after the last one
 *
 * Threads. A model never changes after loading: any number of threads may use it at the same time, each with its own context and its own
 * decodings. A decoding belongs to the context that it was created with, and both are used by one thread at a time. The results have the
 * same bits however many threads share the model, and whatever the contexts' numbers of threads are. If the program has several threads,
 * contexts of one thread each (hark_context_options.threads = 1) are the fastest.
 *
 * Memory. A model is one block of weights and some small ones, from the context that loaded it; that context must outlive it and destroys
 * it. A decoding takes all its memory when it is created; reading, steps, choosing, truncating, saving and restoring allocate nothing.
 *
 * Lengths. A decoding has room for `capacity` tokens, by default the model's context: the longest text that it was trained on. Tokens that
 * do not fit are refused, and nothing is appended. Models with learned positions have no more positions than their context. With other
 * positions a larger capacity is allowed, without a guarantee that the model is good on texts longer than its context. To continue beyond
 * the capacity: hark_decoding_truncate(decoding, 0), and hark_decoding_prefill with the last part of the text (`hark generate` takes half
 * of the capacity).
 *
 * docs/embedding.md is the guide, examples/03_embed_model.c a program.
 */
#ifndef HARK_MODEL_H
#define HARK_MODEL_H

#include <string.h>

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models ---- */

/* Made by hark_model_load(), _load_memory() or _create(). */
typedef struct hark_model hark_model;

/* How to load. Set struct_size to sizeof(hark_model_options); fields that are zero have their defaults.
 *
 * A file that hark writes contains its model's description and vocabulary in its metadata. For weights without them (files of other
 * programs, checkpoints from before descriptions were introduced) they can be given here; those in the file have precedence.
 * description: JSON, {"model": {...}}, with the keys of docs/configuration.md under `model` and `vocabulary`, the number of tokens (which a
 * vocabulary determines too); other members than `model` are ignored. vocabulary: the contents of a vocabulary.json. */
typedef struct hark_model_options {
  size_t struct_size;
  const char *checkpoint;  /* of a run: "best", "last" or "step-N"; NULL: best, or last if there is no best yet */
  bool skip_verification;  /* do not compare the file with the manifest.json in its folder */
  const char *description; /* NULL: the file contains it */
  size_t description_bytes;
  const char *vocabulary; /* NULL: the file contains it, or the model has none and only uses tokens */
  size_t vocabulary_bytes;
  hark_type
      matrices; /* what weights of linear layers and tables of embeddings are held in: HARK_F32, HARK_BF16, HARK_F16, or HARK_I8 with a
                         scale for each row; HARK_NONE: as in the file. Other numbers are f32 */
} hark_model_options;

/* Loads a model. `path` is a run's folder, a checkpoint's folder (any folder with a model.safetensors in it), a safetensors file, or a
 * folder of Hugging Face's transformers (config.json with safetensors; docs/models.md lists what is read), unless options->description is
 * given. Where a manifest.json is in the file's folder (in a run it must be), the file's SHA-256 must be the manifest's. `options` may be
 * NULL.
 * With `matrices` the weights are rounded to that type, and have the same bits as in a file that was saved with it.
 * Errors: HARK_NOT_FOUND (no such path, run without a checkpoint), HARK_BAD_FILE (malformed, damaged, no description, tensors missing, too
 * many, of another type or shape; checked before memory for weights is allocated), HARK_BAD_CONFIGURATION (a description that no model can
 * have), HARK_INVALID_ARGUMENT (struct_size, matrices, a vocabulary for such a folder), HARK_NOT_FINITE (a weight that is not finite in the
 * type of the matrices), HARK_UNSUPPORTED (options of a newer hark are set; no matrix of the model can be HARK_I8), HARK_IO_ERROR,
 * HARK_OUT_OF_MEMORY. When it fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_model_load(hark_context *context, const char *path, const hark_model_options *options,
                                                     hark_model **out);

/* Loads a model from the bytes of a safetensors file. They may have any alignment, are copied, and may be freed afterwards. Errors: as
 * hark_model_load. */
HARK_API HARK_MUST_CHECK hark_status hark_model_load_memory(hark_context *context, const void *data, size_t bytes,
                                                            const hark_model_options *options, hark_model **out);

/* Makes a model with initial weights, as training does, drawn by `seed`: for tests and measurements of programs that embed models.
 * options->description is required; without a vocabulary tokens are bytes. Errors: as hark_model_load. */
HARK_API HARK_MUST_CHECK hark_status hark_model_create(hark_context *context, const hark_model_options *options, uint64_t seed,
                                                       hark_model **out);

/* Writes weights, description and vocabulary into one file, atomically: all that hark_model_load() needs.
 * Errors: HARK_IO_ERROR (also if the folder does not exist), HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_model_save(hark_context *context, const hark_model *model, const char *path);

/* How to save. Set struct_size to sizeof(hark_model_save_options); fields that are zero have their defaults. */
typedef struct hark_model_save_options {
  size_t struct_size;
  hark_type matrices; /* HARK_NONE: as stored in the model. HARK_F32: in f32. HARK_BF16 or HARK_F16: weights of linear layers and tables of
                         embeddings are rounded to it, which halves the file. HARK_I8: they are rounded to integers with a scale for each
                         row, which makes it a quarter. Biases, norms, rotary rates and parameters of kernels stay f32 */
} hark_model_save_options;

/* The same with options, which may be NULL. hark_model_load() reads all of these files. Errors: as hark_model_save; HARK_INVALID_ARGUMENT
 * (struct_size, another type), HARK_NOT_FINITE (a weight that is too large for the type), HARK_UNSUPPORTED (no matrix of the model can be
 * HARK_I8). */
HARK_API HARK_MUST_CHECK hark_status hark_model_save_with(hark_context *context, const hark_model *model, const char *path,
                                                          const hark_model_save_options *options);

/* Frees a model, with the context that made it, and sets *model to NULL. All its decodings must be destroyed before. NULL and a pointer to
 * NULL are allowed. */
HARK_API void hark_model_destroy(hark_context *context, hark_model **model);

/* What a model is. Texts belong to the model. */
typedef struct hark_model_info {
  size_t struct_size;
  const char *type;      /* "gpt" */
  const char *tokenizer; /* "characters", "bytes", "subwords", "byte_bpe"; of an imported model "tokenizer.json" or "tokenizer.model"; NULL:
                            no vocabulary, or that of labelled examples */
  int64_t vocabulary;    /* number of tokens: every token is in [0, vocabulary) */
  int64_t reserved;      /* number of reserved tokens (padding, unknown, ...): the first ones, which have no text and are never chosen; 0
                            in imported models */
  int64_t context;       /* longest text that it was trained on, in tokens */
  int64_t layers, heads, key_heads, width;
  int64_t parameters;       /* learned numbers */
  size_t bytes;             /* memory of the model */
  uint64_t fingerprint;     /* of description and weights: equal for equal models. Distinguishes models; no protection against forgery */
  const char *architecture; /* "decoder", "encoder", "masked_encoder", "ahca", "latent", "finite" */
  int64_t begin;            /* models of sentences, which end with "\n": the token before the first token of every text; 0: none */
  hark_type matrices;       /* HARK_F32, or the type of the matrices that are held in fewer bytes */
  const int32_t *ends;      /* of imported models: the tokens after which a text has ended, [end_count] */
  int64_t end_count;
} hark_model_info;

/* Fills *info; set info->struct_size to sizeof(hark_model_info) before. Errors: HARK_INVALID_ARGUMENT (struct_size). */
HARK_API HARK_MUST_CHECK hark_status hark_model_describe(const hark_model *model, hark_model_info *info);

/* Text -> tokens. `tokens` has room for `bytes` tokens: there are never more. `*count` is how many there are. The text and the tokens share
 * no memory (HARK_INVALID_ARGUMENT).
 * A character that is not in the vocabulary becomes the token "unknown" with `map_unknown`, else HARK_BAD_FILE with line, column and byte
 * offset. For an imported model the tokens are those of its tokenizer.json or tokenizer.model without special ones; there may be more of
 * them than bytes, which is HARK_TOO_LARGE: hark_model_tokenize() has no such limit. For a model that was trained on labelled examples: the
 * bytes of the text if its symbols are bytes, else its words, separated by blanks. HARK_UNSUPPORTED: the model has no vocabulary, or its
 * symbols are grey values or numbers. */
HARK_API HARK_MUST_CHECK hark_status hark_model_encode(hark_context *context, const hark_model *model, const char *text, size_t bytes,
                                                       bool map_unknown, int32_t *tokens, size_t *count);

/* The same for any model, also one of another program, whose texts may have more tokens than bytes. `tokens` has room for `capacity`
 * tokens, as many of which are written; *count is how many there are, so that a call with capacity 0 counts them. special: with the tokens
 * that the model's tokenizer.json puts around a text, such as one that marks its beginning; other models have none.
 * Errors: as hark_model_encode; HARK_INVALID_ARGUMENT (capacity below `bytes` for a model that is not imported). */
HARK_API HARK_MUST_CHECK hark_status hark_model_tokenize(hark_context *context, const hark_model *model, const char *text, size_t bytes,
                                                         bool map_unknown, bool special, int32_t *tokens, size_t capacity, size_t *count);

/* Name of class `index` of a model that was trained on labelled examples, owned by the model; NULL if there is none. */
HARK_API const char *hark_model_class_name(const hark_model *model, int64_t index);

/* The bytes of one token's text: `*bytes` of them, without a terminating zero byte, owned by the model. One after the other they are the
 * text; for a model that was trained on labelled examples, its words without blanks. "Unknown" is U+FFFD, with labelled examples empty;
 * other reserved tokens, numbers outside the vocabulary and models without one have empty texts. A token that is a byte may be a part of a
 * character. */
HARK_API const char *hark_model_token_text(const hark_model *model, int32_t token, size_t *bytes);

/* Tokens -> text: the texts of as many whole tokens as fit into `capacity` bytes, without a terminating zero byte. *bytes is the size for
 * all of them (also with text NULL and capacity 0). The text and the tokens must share no memory. */
HARK_API void hark_model_decode(const hark_model *model, const int32_t *tokens, size_t count, char *text, size_t capacity, size_t *bytes);

/* ---- decoding ---- */

/* Made by hark_decoding_create(). */
typedef struct hark_decoding hark_decoding;

/* How to make a decoding. Set struct_size to sizeof(hark_decoding_options); fields that are zero have their defaults.
 * cancel (context.h) is called before every layer of every pass. */
typedef struct hark_decoding_options {
  size_t struct_size;
  int64_t capacity; /* tokens; 0: the model's context, or 2^40 with `stream` */
  hark_cancel *cancel;
  void *cancel_user;
  void *memory; /* caller-owned, memory_bytes of any alignment, used by this decoding alone until it is destroyed; NULL: from the context */
  size_t memory_bytes;
  /* The text has no end: no tokens are kept, and the memory does not grow with the text, or with its logarithm (hierarchical layers). For
   * models all of whose layers are compressed, with kept_chunks above 0 and chunks of one length, or hierarchical. The decoding can be cut
   * to 0 tokens only. After an error it has to be, except after HARK_INVALID_ARGUMENT, which changes nothing. */
  bool stream;
} hark_decoding_options;

/* Bytes of memory that a decoding with these options takes in this context. Errors: as hark_decoding_create. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_size(hark_context *context, const hark_model *model,
                                                        const hark_decoding_options *options, size_t *bytes);

/* Makes a decoding that has read nothing. `options` may be NULL. The model must outlive it.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, capacity below 1 or above the number of learned positions, memory too small or overlapping
 * the model's weights, a context of another backend than the model's), HARK_UNSUPPORTED (a model that is not a decoder, or that cannot read
 * a stream, options of a newer hark are set), HARK_OUT_OF_MEMORY, HARK_TOO_LARGE (a capacity above 2^40, or one whose memory cannot be
 * addressed). When it fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_create(hark_context *context, const hark_model *model,
                                                          const hark_decoding_options *options, hark_decoding **out);
/* Frees it (but not caller-owned memory) and sets *decoding to NULL. NULL and a pointer to NULL are allowed. */
HARK_API void hark_decoding_destroy(hark_decoding **decoding);

/* Reads `count` >= 1 tokens, after those already read. Afterwards the logits are those after the last one.
 * Long texts are read 128 tokens at a time; the logits agree with those of single steps up to rounding.
 * Errors: HARK_INVALID_ARGUMENT (no room for all of them, a token outside the vocabulary), HARK_CANCELLED. After an error the tokens read
 * are those before the call, and there are no logits. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_prefill(hark_decoding *decoding, const int32_t *tokens, int64_t count);
/* The same with one token. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_step(hark_decoding *decoding, int32_t token);

/* Logits [vocabulary] after the last token, in the decoding's memory, valid until its next call; NULL if there are none: before the first
 * token, after an error, after truncating. They may be changed before choosing; a token with minus infinity is not chosen. */
HARK_API float *hark_decoding_logits(hark_decoding *decoding);

/* How to choose the next token. Fill with hark_sampling_default() and change. Logits are divided by `temperature` (0: always the most
 * likely token). Of the `top_k` most likely tokens (0: all) the smallest set is kept whose probabilities sum to `top_p` (Holtzman et al.,
 * arXiv 1904.09751; 1: all), and of those the tokens that have at least `min_p` times the probability of the most likely one (Nguyen et
 * al., arXiv 2407.01082; 0: all). Probabilities are those after the temperature. Of equal logits the lower token comes first. */
typedef struct hark_sampling {
  size_t struct_size;
  double temperature; /* [0, inf) */
  int64_t top_k;      /* [0, inf) */
  double top_p;       /* (0, 1] */
  uint64_t seed;
  double min_p; /* [0, 1] */
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

/* Chooses from the logits; appends nothing. The choice depends only on sampling, `index` (the number of the generated token:
 * 0, 1, 2, ...) and logits; reserved tokens are never chosen.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, no logits, a field outside its range), HARK_UNSUPPORTED (fields of a newer hark are set),
 * HARK_NOT_FINITE (a logit that is NaN or plus infinity). */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_choose(hark_decoding *decoding, const hark_sampling *sampling, uint64_t index,
                                                          int32_t *token);

/* Forgets all tokens from number `length` on; there are no logits until the next token. A model of structure hierarchical or compressed, in
 * any layer, keeps little of old tokens: its next call first reads the remaining tokens again. So does one whose rotary rates are those of
 * a longer text (model.rotary.scaling dynamic, longrope). Errors: HARK_INVALID_ARGUMENT (a length below 0 or above the number of tokens
 * read). */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_truncate(hark_decoding *decoding, int64_t length);

/* The number of tokens read, and the capacity. */
HARK_API int64_t hark_decoding_length(const hark_decoding *decoding);
HARK_API int64_t hark_decoding_capacity(const hark_decoding *decoding);

/* The number of pivots that kernel ridge attention (normalisation CME) has raised for all tokens that this decoding has read since it was
 * created, including forgotten ones: equal keys with a ridge that is too small for the type. 0 with other attention. */
HARK_API int64_t hark_decoding_mended_pivots(const hark_decoding *decoding);

/* ---- several decodings in one call ---- */

/* Made by hark_decoding_batch_create(). */
typedef struct hark_decoding_batch hark_decoding_batch;

/* Set struct_size to sizeof(hark_decoding_batch_options); fields that are zero have their defaults. */
typedef struct hark_decoding_batch_options {
  size_t struct_size;
  int64_t decodings; /* at most in a call; 0: 8 */
  int64_t capacity;  /* of the largest of them, in tokens; 0: the model's context */
} hark_decoding_batch_options;

/* Makes what calls for several decodings of a model need. `options` may be NULL. It belongs to the context, as the decodings do; the model
 * must outlive it. It contains no state of a text: any decodings of the context and the model can be given to any call, and be used alone
 * between calls. Errors: HARK_INVALID_ARGUMENT (struct_size, numbers out of range, a context of another backend than the model's),
 * HARK_UNSUPPORTED (a model that is not a decoder, options of a newer hark are set), HARK_OUT_OF_MEMORY, HARK_TOO_LARGE. When it fails *out
 * is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_batch_create(hark_context *context, const hark_model *model,
                                                                const hark_decoding_batch_options *options, hark_decoding_batch **out);
/* Frees it, and no decoding, and sets *batch to NULL. NULL and a pointer to NULL are allowed. */
HARK_API void hark_decoding_batch_destroy(hark_decoding_batch **batch);

/* Reads one token into each of `count` different decodings: tokens[i] into decodings[i]. It does what hark_decoding_step() does for each of
 * them, and reads the weights only once. With fewer than 16 decodings, or in a context made with `deterministic`, the logits have the same
 * bits as those of single steps; otherwise they agree up to rounding. Models whose rotary rates depend on the length of the text
 * (model.rotary.scaling dynamic, longrope) read one after the other. Allocates nothing.
 * Errors: HARK_INVALID_ARGUMENT (more decodings than the batch has room for, one that occurs twice, has another context or model, a larger
 * capacity, or no room; a token outside the vocabulary), HARK_CANCELLED (by any of them). HARK_INVALID_ARGUMENT changes nothing. After
 * another error every decoding has read what it had before the call, and has no logits. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_batch_step(hark_decoding_batch *batch, hark_decoding *const *decodings,
                                                              const int32_t *tokens, int64_t count);
/* The same with counts[i] >= 1 tokens for decodings[i]: prompts, which are read in passes of at most 128 tokens together. The logits agree
 * with those of hark_decoding_prefill() up to rounding. */
HARK_API HARK_MUST_CHECK hark_status hark_decoding_batch_prefill(hark_decoding_batch *batch, hark_decoding *const *decodings,
                                                                 const int32_t *const *tokens, const int64_t *counts, int64_t count);

/* The state of a decoding as bytes that can be stored: currently hark_decoding_saved_bytes() of them. After restoring them, later results
 * have the same bits as without the interruption, if the model, the capacity, the instruction set and the version of hark are the same.
 * They can be restored into any capacity that has room for the tokens. A model of structure hierarchical whose new capacity has another
 * number of levels (2^levels blocks hold its tokens) reads the tokens again together with the next ones.
 * The bytes must be outside of the decoding's memory (HARK_INVALID_ARGUMENT).
 * save: HARK_INVALID_ARGUMENT if `bytes` is less than that.
 * restore: replaces the state. The bytes are checked first (form, checksum, the model's fingerprint); when they are refused nothing
 * changes. Errors: HARK_BAD_FILE (damaged, of another model, of another version), HARK_INVALID_ARGUMENT (more tokens than capacity). */
HARK_API size_t hark_decoding_saved_bytes(const hark_decoding *decoding);
HARK_API HARK_MUST_CHECK hark_status hark_decoding_save(const hark_decoding *decoding, void *data, size_t bytes);
HARK_API HARK_MUST_CHECK hark_status hark_decoding_restore(hark_decoding *decoding, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
