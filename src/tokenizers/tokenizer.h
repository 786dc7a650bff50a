/* tokenizer.h - text to numbers and back.
 *
 * A tokenizer is a kind (characters, bytes, subwords, byte_bpe; a table of them) with a vocabulary. Tokens 0 .. HARK_TOKEN_RESERVED - 1
 * mean the same in every vocabulary; the symbols of the text follow (characters and bytes in sorted order). A vocabulary is stored as JSON
 * with the run that used it.
 *
 * Making one:  hark_tokenizer_create, hark_tokenizer_learn over all text, hark_tokenizer_finish;  or  hark_tokenizer_load.
 * (hark_corpus_open does this for files.) After that a tokenizer does not change, and any number of threads may use it.
 */
#ifndef HARK_TOKENIZERS_TOKENIZER_H
#define HARK_TOKENIZERS_TOKENIZER_H

#include <hark/context.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/text.h"
#include "tokenizers/end_tokens.h"
#include "tokenizers/imported.h"
#include "tokenizers/pipeline/pipeline.h"
#include "tokenizers/subwords.h"

/* Limit on vocabulary.json: it holds every tokenizer that is read, binary ones with two hexadecimal digits a byte. All Unicode code points,
 * one per line, need less than 20 MiB. */
#define HARK_VOCABULARY_MAX_BYTES (2 * HARK_PIPELINE_FILE_BYTES + ((size_t)1 << 20))

/* Tokens with a fixed meaning. */
enum {
  HARK_TOKEN_PADDING = 0, /* after the end of a sequence */
  HARK_TOKEN_UNKNOWN = 1, /* a symbol that the vocabulary lacks */
  HARK_TOKEN_BEGIN = 2,   /* before the first symbol of a text */
  HARK_TOKEN_CLASS = 3,   /* its output represents the whole sequence */
  HARK_TOKEN_MASK = 4,    /* replaces a masked token, which is to be predicted */
  HARK_TOKEN_RESERVED = 5 /* number of reserved tokens, and the first symbol's number */
};

/* What to do with a symbol that the vocabulary lacks. */
typedef enum hark_unknown { HARK_UNKNOWN_IS_ERROR, HARK_UNKNOWN_IS_MAPPED /* to HARK_TOKEN_UNKNOWN */ } hark_unknown;

typedef struct hark_tokenizer hark_tokenizer;

/* The kinds, in the order of the table. */
enum { HARK_TOKENIZER_CHARACTERS, HARK_TOKENIZER_BYTES, HARK_TOKENIZER_SUBWORDS, HARK_TOKENIZER_BYTE_BPE, HARK_TOKENIZER_IMPORTED };

/* Names of the kinds ("characters": Unicode code points of UTF-8 text; "bytes": every byte, whatever it encodes; "subwords": pieces of
 * words of UTF-8 text; "byte_bpe": pieces of words of any text; "imported": the tokenizer of another program's model), in the order of the
 * table; NULL from the end of the table on. Static strings. */
const char *hark_tokenizer_kind_name(int index);
/* False where this hark lacks a library that the kind needs: vocabularies of it are neither learned nor read. */
bool hark_tokenizer_kind_available(int index);
/* False for the kind whose vocabularies come with a model: it is read, and never made from a text. */
bool hark_tokenizer_kind_is_made(int index);
/* True for kinds whose tokens are pieces of words, so that losses per word are of interest. */
bool hark_tokenizer_kind_has_pieces(int index);
/* One line of help on a kind. */
const char *hark_tokenizer_kind_summary(int index);

/* Makes a tokenizer that has no vocabulary yet. The caller destroys it.
 * Errors: HARK_BAD_CONFIGURATION (no such kind; the message lists them), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_tokenizer_create(hark_context *context, const char *kind, hark_tokenizer **out);
void hark_tokenizer_destroy(hark_context *context, hark_tokenizer **tokenizer);

/* Settings of a vocabulary of sub-words, required before it is learned; without effect on other kinds. The learner must outlive the
 * tokenizer. Errors: HARK_UNSUPPORTED (there is no learner), HARK_BAD_CONFIGURATION. */
HARK_MUST_CHECK hark_status hark_tokenizer_set_subwords(hark_context *context, hark_tokenizer *tokenizer,
                                                        const hark_subword_settings *settings);

/* Minimum size in bytes of a buffer for parts of a text: the most bytes that learning or encoding may leave for the next part, plus one. 0:
 * there is no such kind. */
size_t hark_tokenizer_kind_part_bytes(const char *kind);

/* True when the vocabulary depends on the text, so that learning needs a pass over it. */
bool hark_tokenizer_learns(const hark_tokenizer *tokenizer);

/* A fault in a text and its place. Functions below that get text in parts leave file, line and column to the caller. */
typedef struct hark_text_fault {
  size_t at;      /* bytes from the beginning of the part that was given */
  char what[112]; /* "invalid UTF-8: overlong encoding", "U+00E9 is not in the vocabulary" */
  char more[112]; /* printed after the place: the character itself and a remedy; or "" */
} hark_text_fault;

/* Adds the symbols of the next part of a text. *consumed: bytes of the part that were used; the caller puts the rest, an unfinished symbol,
 * before the next part. `last`: nothing follows, and everything is used.
 * Errors: HARK_BAD_FILE (*fault describes it), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_tokenizer_learn(hark_context *context, hark_tokenizer *tokenizer, const void *text, size_t bytes,
                                                 bool last, size_t *consumed, hark_text_fault *fault);

/* Fixes the vocabulary. Errors: HARK_BAD_FILE (no text was learned), HARK_OUT_OF_MEMORY; for sub-words also HARK_BAD_CONFIGURATION (no such
 * vocabulary can be learned from the text) and HARK_UNSUPPORTED. */
HARK_MUST_CHECK hark_status hark_tokenizer_finish(hark_context *context, hark_tokenizer *tokenizer);

/* "characters", "bytes", "subwords", "byte_bpe", "imported". */
const char *hark_tokenizer_kind_of(const hark_tokenizer *tokenizer);
/* HARK_TOKENIZER_CHARACTERS, ... */
int hark_tokenizer_kind_index(const hark_tokenizer *tokenizer);
/* Number of tokens, the reserved ones included: every token is in [0, size). Of kind "imported" the model's number, some of which may be
 * without a token; none is reserved. */
int32_t hark_tokenizer_size(const hark_tokenizer *tokenizer);
/* Equal for equal kind and vocabulary. */
uint64_t hark_tokenizer_checksum(const hark_tokenizer *tokenizer);

/* Encodes the next part of a text: at most `bytes` tokens are written. *consumed as in hark_tokenizer_learn().
 * Errors: HARK_BAD_FILE: *fault describes it; *count and *consumed are those of the text before the fault. */
HARK_MUST_CHECK hark_status hark_tokenizer_encode_part(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown,
                                                       const void *text, size_t bytes, bool last, int32_t *tokens, size_t *count,
                                                       size_t *consumed, hark_text_fault *fault);

/* Makes a tokenizer of kind "imported" for a model with `size` tokens, at least those of the imported one, which then belongs to it, also
 * after a failure. `ends`: of the model. The caller destroys it. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_tokenizer_import(hark_context *context, hark_imported **imported, int32_t size,
                                                  const hark_end_tokens *ends, hark_tokenizer **out);
/* The end tokens of the model; none for other kinds. */
hark_end_tokens hark_tokenizer_ends(const hark_tokenizer *tokenizer);
/* What a tokenizer of this kind was made from, owned by it; NULL: it is of another kind. */
const hark_imported *hark_tokenizer_imported(const hark_tokenizer *tokenizer);
/* The same, which then belongs to the caller; the tokenizer can only be destroyed. */
hark_imported *hark_tokenizer_take_imported(hark_tokenizer *tokenizer);

/* Encodes a whole text with a tokenizer of kind "imported", with the special tokens that it puts around a text, and gives all tokens to
 * `sink`: its tokens depend on the text as a whole. Errors: HARK_BAD_FILE (*fault describes it), those of the sink. */
HARK_MUST_CHECK hark_status hark_tokenizer_encode_whole(hark_context *context, const hark_tokenizer *tokenizer, const void *text,
                                                        size_t bytes, hark_token_sink *sink, void *user, hark_text_fault *fault);

/* A place in a text, for messages: lines and columns count from 1, columns in characters, bytes from 0. */
typedef struct hark_text_place {
  int64_t byte, line, column;
} hark_text_place;
#define HARK_TEXT_BEGINNING ((hark_text_place){0, 1, 1})
/* Moves a place over the next part of its text. */
void hark_text_place_advance(hark_text_place *place, const void *text, size_t bytes);
/* Returns HARK_BAD_FILE with the message "NAME:LINE:COLUMN: WHAT (byte offset BYTE)MORE". */
hark_status hark_text_fail(hark_context *context, const char *name, const hark_text_place *place, const char *what, const char *more);

/* Encodes a whole text in memory (a prompt): `tokens` has room for `bytes` tokens. `name` names the text in messages.
 * Errors: HARK_BAD_FILE; the message contains name, line, column and byte offset. */
HARK_MUST_CHECK hark_status hark_tokenizer_encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown,
                                                  const char *name, const void *text, size_t bytes, int32_t *tokens, size_t *count);

/* The `*bytes` bytes that a token represents, not terminated, owned by the tokenizer. The bytes of consecutive tokens are the text. Unknown
 * is U+FFFD; other reserved tokens and numbers outside the vocabulary have no bytes. A token of the kinds bytes, subwords and byte_bpe may
 * be a part of a character: hark_utf8_stream in utf8.h holds such parts back. */
const char *hark_tokenizer_text(const hark_tokenizer *tokenizer, int32_t token, size_t *bytes);

/* Writes a token's name for messages and pictures: the symbol itself, "
 * ", "U+0007", "0xe9", "<padding>"; returns text. 24 bytes suffice for every name except those of long pieces, which are cut between two
 * characters. */
const char *hark_tokenizer_name(const hark_tokenizer *tokenizer, int32_t token, char *text, size_t size);

/* Appends the vocabulary as a tokenizer.json of the Hugging Face tokenizers library, which gives the same tokens (docs/formats.md).
 * Errors: HARK_UNSUPPORTED (a vocabulary that has no counterpart there; the message says why), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_tokenizer_print_json(hark_context *context, const hark_tokenizer *tokenizer, hark_text *out);

/* The vocabulary as JSON text (docs/data.md): *bytes bytes, not terminated; the caller frees it with hark_release().
 * Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_tokenizer_print(hark_context *context, const hark_tokenizer *tokenizer, char **out, size_t *bytes);
/* A tokenizer from that text. The caller destroys it. Errors: HARK_BAD_FILE (any text that hark_tokenizer_print() cannot have written),
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_tokenizer_parse(hark_context *context, const char *text, size_t bytes, hark_tokenizer **out);

/* The same to and from a file, which is written under a temporary name first. Errors: also HARK_NOT_FOUND, HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_tokenizer_save(hark_context *context, const hark_tokenizer *tokenizer, const char *path);
HARK_MUST_CHECK hark_status hark_tokenizer_load(hark_context *context, const char *path, hark_tokenizer **out);

#endif
