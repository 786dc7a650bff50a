/* corpus.h - text files as two long sequences of tokens, one for training and one for validation.
 *
 * The files are read once, in parts of bounded size, and their tokens are written to a file in a cache folder. Windows are then read from
 * there with pread, so neither text nor tokens need to fit into memory. A cache file is reused while the text files, their division and the
 * vocabulary are the same. Formats: docs/data.md.
 */
#ifndef HARK_DATA_CORPORA_CORPUS_H
#define HARK_DATA_CORPORA_CORPUS_H

#include "tokenizers/tokenizer.h"

typedef enum hark_split {
  HARK_SPLIT_TRAINING,
  HARK_SPLIT_VALIDATION,
  HARK_SPLIT_COUNT,                   /* number of splits of a text */
  HARK_SPLIT_TEST = HARK_SPLIT_COUNT, /* the third split of labelled examples (examples.h) */
  HARK_SPLIT_ALL
} hark_split;

/* How text is divided into the two splits. */
typedef enum hark_division {
  HARK_DIVIDE_TAIL,       /* all files one after the other; the last validation_fraction of their bytes is for validation */
  HARK_DIVIDE_EVERY_FILE, /* the last validation_fraction of every file is for validation */
  HARK_DIVIDE_FILES       /* `paths` is for training, `validation_paths` for validation; one of the two may be empty */
} hark_division;

/* How a text is read. */
typedef enum hark_text_unit {
  HARK_UNIT_TEXT, /* its characters, without further structure */
  /* lines: the tokens of a line that is not blank are HARK_TOKEN_BEGIN, those of the line, and those of its line end, which is added to
   * a last line without one */
  HARK_UNIT_SENTENCES
} hark_text_unit;

/* The text, and how to read it. Zero it and fill what applies. Everything is borrowed for the call only, except `tokenizer`. */
typedef struct hark_corpus_settings {
  /* files (compressed or not: data/inputs.h), folders, and "-" for standard input, in this order; a folder means all files below it, sorted
   * by path */
  const char *const *paths;
  int path_count;
  const char *const *validation_paths; /* HARK_DIVIDE_FILES only */
  int validation_path_count;
  const char *const *suffixes; /* endings of the text files in folders (".txt"); none: every file whose name does not begin with a dot */
  int suffix_count;
  const char *json_field; /* of JSON lines (files named .jsonl or .ndjson), the member that contains the text; NULL: read as they are */
  hark_text_unit unit;
  hark_division division;
  double validation_fraction;            /* [0, 1); 0: no validation. Boundaries move up to the first byte of the next character or line */
  const char *tokenizer_kind;            /* "characters" when NULL: the vocabulary is built from all the files */
  const hark_subword_settings *subwords; /* for building a vocabulary of sub-words; NULL for other kinds */
  /* if not NULL, this vocabulary is used instead (resuming, evaluating); it must outlive the corpus */
  const hark_tokenizer *tokenizer;
  hark_unknown unknown;     /* treatment of characters outside the given vocabulary */
  const char *cache_folder; /* made if it is missing; several corpora may share it. "": none, with may_build_elsewhere */
  bool may_build_elsewhere; /* if cache_folder cannot be written, tokens are stored in a file in TMPDIR that exists as long as the corpus */
  bool known;               /* a run has been trained on this text: the checks of sources_apart.h are left out */
  size_t buffer_bytes;      /* size of the parts in which text is read; 0: HARK_CORPUS_BUFFER_BYTES */
} hark_corpus_settings;

#define HARK_CORPUS_BUFFER_BYTES ((size_t)1 << 20)

typedef struct hark_corpus hark_corpus;

/* Opens a corpus; tokenises first if the cache has no file for it. The caller closes it. Empty files are accepted and have no tokens; a
 * warning is logged.
 * Errors: HARK_NOT_FOUND (a path does not exist, a folder without text), HARK_BAD_FILE (invalid UTF-8, a character outside the vocabulary:
 * file, line, column and byte offset; no text at all), HARK_BAD_CONFIGURATION (settings), HARK_IO_ERROR, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_corpus_open(hark_context *context, const hark_corpus_settings *settings, hark_corpus **out);
void hark_corpus_close(hark_context *context, hark_corpus **corpus);

/* The vocabulary: the given one, or the corpus's own, which is valid until the corpus is closed. */
const hark_tokenizer *hark_corpus_tokenizer(const hark_corpus *corpus);

typedef struct hark_text_counts {
  int64_t tokens;
  int64_t bytes;      /* of UTF-8 text: for bits per byte */
  int64_t characters; /* code points: for bits per character */
  int64_t documents;  /* files or parts of files in the split, including empty ones */
  int64_t words;      /* separated by white space: for word perplexity */
  int64_t sentences;  /* 0 where the unit is the text */
  int64_t blank;      /* blank lines, which are not sentences: their bytes and characters do not count */
} hark_text_counts;
hark_text_counts hark_corpus_counts(const hark_corpus *corpus, hark_split split);

/* Tokens that count as targets of a text with these counts: all but one per sentence, its beginning. */
static inline int64_t hark_text_targets(const hark_text_counts *counts) { return counts->tokens - counts->sentences; }

/* Mean loss in nats per token, over a text with these counts, as bits per byte and per character; 0 for a text without bytes. */
double hark_bits_per_byte(const hark_text_counts *counts, double nats_per_token);
double hark_bits_per_character(const hark_text_counts *counts, double nats_per_token);
/* exp(nats per word), the perplexity per word, which can be compared between vocabularies; 0 for a text without words. Where the unit is
 * the sentence, the end of a sentence is predicted like a word and counts as one, as in published results on One-Billion-Word. */
double hark_word_perplexity(const hark_text_counts *counts, double nats_per_token);

/* Equal for equal tokens: kind, vocabulary, contents and division of the text. A checkpoint stores it to recognise its data. */
uint64_t hark_corpus_checksum(const hark_corpus *corpus);
/* Whether this is the corpus's checksum under either value of `unknown`: a text without unknown characters is the same under both. */
bool hark_corpus_has_checksum(const hark_corpus *corpus, uint64_t checksum);

/* Reads `count` tokens of a split from number `first` on. Several threads may read at once, each with its own context.
 * Errors: HARK_INVALID_ARGUMENT (outside the split), HARK_BAD_FILE (a token outside the vocabulary, a cache file cut short: the message
 * says to delete it), HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_corpus_read(hark_context *context, const hark_corpus *corpus, hark_split split, int64_t first,
                                             int64_t count, int32_t *tokens);

/* Document `index` of a split: which file it came from (valid while the corpus is open) and its tokens [first, first + count).
 * Errors: HARK_INVALID_ARGUMENT. */
typedef struct hark_document {
  const char *path;
  int64_t byte_offset, bytes; /* in that file */
  int64_t first, count;       /* tokens */
} hark_document;
HARK_MUST_CHECK hark_status hark_corpus_document(hark_context *context, const hark_corpus *corpus, hark_split split, int64_t index,
                                                 hark_document *out);

/* Reads every token and compares with the checksums of the cache file. Errors: those of hark_corpus_read(). */
HARK_MUST_CHECK hark_status hark_corpus_verify(hark_context *context, const hark_corpus *corpus);

/* True when opening found the tokens in the cache, false when it tokenised. */
bool hark_corpus_was_cached(const hark_corpus *corpus);
/* The cache file's path; valid while the corpus is open. */
const char *hark_corpus_cache_path(const hark_corpus *corpus);

#endif
