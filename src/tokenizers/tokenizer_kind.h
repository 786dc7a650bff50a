/* tokenizer_kind.h - the interface of a kind of tokenizer. A new kind is one file and one row in tokenizer.c. */
#ifndef HARK_TOKENIZERS_TOKENIZER_KIND_H
#define HARK_TOKENIZERS_TOKENIZER_KIND_H

#include "io/json_tree.h"
#include "io/text.h"
#include "tokenizers/tokenizer.h"

/* The tokens' texts are stored one after the other: token t is text[text_at[t] .. text_at[t + 1]); reserved tokens are empty. */
struct hark_tokenizer {
  const struct hark_tokenizer_kind *kind;
  int32_t size; /* 0 until the vocabulary is fixed */
  int32_t capacity;
  uint64_t checksum;
  char *text;
  size_t text_capacity;
  size_t *text_at; /* [capacity + 1] */
  void *state;     /* of the kind; cleared by create, released after close */
};

typedef struct hark_tokenizer_kind {
  const char *name;
  const char *summary;
  size_t state_bytes;
  size_t unit_bytes;     /* encode and learn leave fewer bytes of a part than this for the next part */
  bool learns;           /* the vocabulary depends on the text */
  bool imported;         /* it is another program's: no token is reserved, and none is made from a text */
  const bool *available; /* false where this hark lacks a library that the kind needs; NULL: always there */
  /* Frees everything that the state points to. May be called at every stage of an object's life. */
  void (*close)(hark_context *context, hark_tokenizer *tokenizer);
  /* As hark_tokenizer_set_subwords; NULL when the kind has no settings. */
  hark_status (*configure)(hark_context *context, hark_tokenizer *tokenizer, const hark_subword_settings *settings);
  /* As hark_tokenizer_learn; NULL when the kind does not learn. */
  hark_status (*learn)(hark_context *context, hark_tokenizer *tokenizer, const unsigned char *text, size_t bytes, bool last,
                       size_t *consumed, hark_text_fault *fault);
  /* Fixes the vocabulary: reserves space, adds the symbols and makes the tables that encode needs. */
  hark_status (*finish)(hark_context *context, hark_tokenizer *tokenizer);
  /* As hark_tokenizer_encode_part. */
  hark_status (*encode)(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const unsigned char *text,
                        size_t bytes, bool last, int32_t *tokens, size_t *count, size_t *consumed, hark_text_fault *fault);
  /* Adds parts of the vocabulary other than its symbols to the checksum; NULL when there are none. */
  uint64_t (*checksum)(const hark_tokenizer *tokenizer, uint64_t sum);
  /* Appends members to the vocabulary's JSON object, each ",\n \"NAME\": ...". NULL: nothing to add. */
  void (*write)(const hark_tokenizer *tokenizer, hark_text *text);
  /* Reads those members of an object whose other members have been read, and does the work of learn and finish. *members: number of members
   * read here. */
  hark_status (*read)(hark_context *context, hark_tokenizer *tokenizer, const hark_json_node *object, int64_t *members);
} hark_tokenizer_kind;

/* The pieces of a vocabulary of sub-words: piece i is token first + i. `score` belongs to the tokenizer. */
typedef struct hark_subword_pieces {
  hark_subword_model model;
  bool byte_fallback;
  int32_t first, count;
  const float *score; /* [count] */
} hark_subword_pieces;
hark_subword_pieces hark_subword_pieces_of(const hark_tokenizer *tokenizer);

/* A merge of byte-level BPE: two tokens become one. */
typedef struct hark_byte_merge {
  int32_t left, right;
} hark_byte_merge;
/* The merges of a vocabulary of kind byte_bpe, in order, owned by it; returns their number. */
size_t hark_byte_merges_of(const hark_tokenizer *tokenizer, const hark_byte_merge **merges);

/* "<padding>", ...: the name of a reserved token. */
const char *hark_reserved_name(int32_t token);

extern const hark_tokenizer_kind hark_tokenizer_characters;
extern const hark_tokenizer_kind hark_tokenizer_bytes;
extern const hark_tokenizer_kind hark_tokenizer_subwords;
extern const hark_tokenizer_kind hark_tokenizer_byte_bpe;
extern const hark_tokenizer_kind hark_tokenizer_imported_kind;

/* Makes room for `symbols` symbols with `text_bytes` bytes of text in all, and adds the reserved tokens. */
HARK_MUST_CHECK hark_status hark_tokenizer_reserve(hark_context *context, hark_tokenizer *tokenizer, int32_t symbols, size_t text_bytes);
/* Adds the next token. There must be room for it. */
void hark_tokenizer_add(hark_tokenizer *tokenizer, const char *text, size_t bytes);

/* The checksum of a fixed vocabulary, which tokenizer->checksum keeps. */
uint64_t hark_tokenizer_checksum_of(const hark_tokenizer *tokenizer);

/* Fills a fault; returns HARK_BAD_FILE. */
hark_status hark_text_fault_set(hark_text_fault *fault, size_t at, const char *format, ...) HARK_PRINTF(3, 4);
/* The same for a character outside the vocabulary. */
hark_status hark_text_fault_unknown(hark_text_fault *fault, size_t at, uint32_t code);

#endif
