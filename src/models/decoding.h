/* decoding.h - the contents of a hark_decoding, for decoding.c and decoding_batch.c. */
#ifndef HARK_MODELS_DECODING_H
#define HARK_MODELS_DECODING_H

#include "core/arena.h"
#include "models/model.h"
#include "nn/attention_cache.h"

/* Tokens per pass of a prefill: enough rows for fast products, few enough for little memory. */
#define HARK_PREFILL_TOKENS 128

struct hark_decoding {
  hark_context *context;
  const hark_model *model;
  hark_arena arena;
  void *block; /* from the context, or NULL */
  size_t block_bytes;
  hark_tape *tape;
  hark_attention_plan **prefill_plans, **step_plans;
  hark_attention_cache *caches; /* one per layer */
  hark_tensor *log_kernels; /* [layers]: tables of the positional kernel for `capacity` tokens, or what is computed from them; NULL: none */
  hark_tensor table;        /* room for the table from which others are computed, or absent */
  hark_tensor table_workspace; /* for filling one of them */
  hark_tensor tokens;          /* i32 [1, prefill] */
  int32_t *history;            /* host, [capacity]: earlier tokens, if they may have to be read again; else NULL */
  float *logits;               /* host */
  void *candidates;
  hark_tensor chunk_starts; /* i64, the first tokens of the chunks that have begun, where they end after delimiters; else absent */
  hark_chunk_reader chunk;  /* of the last tokens */
  bool chunk_ended;         /* the next token begins a chunk, where delimiters cut */
  void *boundary_rows;      /* host, with learned chunks; else NULL (decoding.c) */
  bool has_logits;
  bool stream; /* of hark_decoding_options */
  bool stale;  /* caches do not contain exactly the first `length` tokens of the history */
  int64_t capacity, length, prefill;
  int64_t reach;                /* length of the text whose rotary rates the caches were made with */
  hark_attention_report report; /* counts the pivots that kernel ridge attention corrected */
  hark_cancel *cancel;
  void *cancel_user;
};

/* Takes the caller's options; checks that the model has decodings and the context its backend. Errors: as hark_decoding_create. */
HARK_MUST_CHECK hark_status hark_decoding_take_options(hark_context *context, const hark_model *model, const hark_decoding_options *given,
                                                       hark_decoding_options *out);
/* Describes a decoding without caches: plans and shapes for shape-only runs. The caller closes it, also after a failure. */
HARK_MUST_CHECK hark_status hark_decoding_describe(hark_context *context, const hark_model *model, const hark_decoding_options *options,
                                                   hark_decoding *out);
void hark_decoding_close(hark_decoding *decoding);

/* Refuses tokens that do not fit or are outside the vocabulary. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_decoding_check_tokens(const hark_decoding *decoding, const int32_t *tokens, int64_t count);
/* Prepares caches and tables for `count` more tokens, which are then read by a pass; reads earlier tokens again where that is needed. */
HARK_MUST_CHECK hark_status hark_decoding_prepare(hark_decoding *decoding, int64_t count);
/* Cuts `count` tokens from position `first` on, after those before it, into chunks that end after delimiters, if the model has such. */
HARK_MUST_CHECK hark_status hark_decoding_cut(hark_decoding *decoding, const int32_t *tokens, int64_t first, int64_t count);
/* The settings of a pass over `count` tokens from position `first` on, which have been cut. */
hark_forward hark_decoding_forward(hark_decoding *decoding, hark_tape *tape, int64_t first, int64_t count);
/* Notes that all `count` tokens were read (`length` includes them already) and keeps them, if they may have to be read again. */
void hark_decoding_keep(hark_decoding *decoding, const int32_t *tokens, int64_t count);
/* Cuts to the first `length` tokens. */
void hark_decoding_go_back(hark_decoding *decoding, int64_t length);
/* Whether the rates of rotary positions depend on the length of the text. */
bool hark_decoding_depends_on_length(const hark_decoding *decoding);

#endif
