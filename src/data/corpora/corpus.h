/* corpus.h - text files as two long sequences of tokens, one to train on and one to validate with.
 *
 * The files are read once, in parts of bounded size, and their tokens written into one file of a cache folder; from then on windows are
 * read from there with pread, so that neither text nor tokens need to fit into memory. A cache file is used again as long as the text
 * files, how they are divided and the vocabulary are the same. Formats: docs/data.md.
 */
#ifndef HARK_DATA_CORPORA_CORPUS_H
#define HARK_DATA_CORPORA_CORPUS_H

#include "tokenizers/tokenizer.h"

typedef enum hark_split {
  HARK_SPLIT_TRAINING,
  HARK_SPLIT_VALIDATION,
  HARK_SPLIT_COUNT,                   /* of a text */
  HARK_SPLIT_TEST = HARK_SPLIT_COUNT, /* labelled examples have a third one (examples.h) */
  HARK_SPLIT_ALL
} hark_split;

/* How text is divided into the two splits. */
typedef enum hark_division {
  HARK_DIVIDE_TAIL,       /* all files in a row; the last validation_fraction of their bytes validates */
  HARK_DIVIDE_EVERY_FILE, /* the last validation_fraction of every file validates */
  HARK_DIVIDE_FILES       /* `paths` trains, `validation_paths` validates; one of the two may be empty */
} hark_division;

/* What a text consists of. */
typedef enum hark_text_unit {
  HARK_UNIT_TEXT,     /* its characters in a row */
  HARK_UNIT_SENTENCES /* lines: of each that is not blank the tokens are HARK_TOKEN_BEGIN, those of the line, and those of its line end, which
                         is put behind a last line without one */
} hark_text_unit;

/* Which text, and how to read it. Zero it and fill what applies. Everything is borrowed for the call only, except `tokenizer`. */
typedef struct hark_corpus_settings {
  const char *const *paths; /* files and folders, taken in this order; a folder gives the files below it, sorted by their path */
  int path_count;
  const char *const *validation_paths; /* HARK_DIVIDE_FILES only */
  int validation_path_count;
  const char *const *suffixes; /* of the files in folders that are text (".txt"); none: every file whose name does not begin with a dot */
  int suffix_count;
  hark_text_unit unit;
  hark_division division;
  double validation_fraction;            /* [0, 1); 0: nothing validates. Boundaries move up to the next character's first byte,
                                      or the next line's */
  const char *tokenizer_kind;            /* "characters" when NULL: the vocabulary is built from all the files */
  const hark_subword_settings *subwords; /* of a vocabulary of sub-words that is to be built; NULL for other kinds */
  const hark_tokenizer *tokenizer;       /* given: this vocabulary is used instead (resuming, evaluating); it must outlive the corpus */
  hark_unknown unknown;                  /* characters outside the given vocabulary */
  const char *cache_folder;              /* made when it is missing; several corpora may share it */
  bool may_build_elsewhere; /* where cache_folder cannot be written: the tokens are made in a file of TMPDIR that goes with the corpus */
  bool known;               /* a text that a run has been trained on: what would be refused of a new one (sources_apart.h) is not */
  size_t buffer_bytes;      /* size of the parts that text is read in; 0: HARK_CORPUS_BUFFER_BYTES */
} hark_corpus_settings;

#define HARK_CORPUS_BUFFER_BYTES ((size_t)1 << 20)

typedef struct hark_corpus hark_corpus;

/* Opens a corpus, tokenising first where the cache has nothing to offer. The caller closes it.
 * Empty files hold no tokens and are otherwise fine; a warning is logged.
 * Errors: HARK_NOT_FOUND (a path does not exist, a folder without text), HARK_BAD_FILE (invalid UTF-8, a character outside the vocabulary:
 * file, line, column and byte offset; no text at all), HARK_BAD_CONFIGURATION (settings), HARK_IO_ERROR, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_corpus_open(hark_context *context, const hark_corpus_settings *settings, hark_corpus **out);
void hark_corpus_close(hark_context *context, hark_corpus **corpus);

/* The vocabulary: the one that was given, or the corpus's own, which lives as long as the corpus. */
const hark_tokenizer *hark_corpus_tokenizer(const hark_corpus *corpus);

typedef struct hark_text_counts {
  int64_t tokens;
  int64_t bytes;      /* of UTF-8 text: for bits per byte */
  int64_t characters; /* code points: for bits per character */
  int64_t documents;  /* files, or parts of files, that the split consists of; empty ones count */
  int64_t words;      /* between white space: for word perplexity */
  int64_t sentences;  /* 0 where the unit is the text */
  int64_t blank;      /* lines that are no sentences: their bytes and characters do not count */
} hark_text_counts;
hark_text_counts hark_corpus_counts(const hark_corpus *corpus, hark_split split);

/* Tokens that something is to be told from: all but those at the beginnings of sentences. */
static inline int64_t hark_text_targets(const hark_text_counts *counts) { return counts->tokens - counts->sentences; }

/* Mean loss in nats per token, over a text with these counts, as bits per byte and per character; 0 for a text without bytes. */
double hark_bits_per_byte(const hark_text_counts *counts, double nats_per_token);
double hark_bits_per_character(const hark_text_counts *counts, double nats_per_token);
/* exp(nats per word): what the perplexity is when words are counted, as between vocabularies it must be; 0 for a text without words. The
 * end of a sentence, where the unit is the sentence, is told as a word is and counts as one, as in the figures that are published of
 * One-Billion-Word. */
double hark_word_perplexity(const hark_text_counts *counts, double nats_per_token);

/* Equal for equal tokens: kind, vocabulary, contents and division of the text. What a checkpoint keeps to know its data again. */
uint64_t hark_corpus_checksum(const hark_corpus *corpus);
/* The same whatever `unknown` says: a text in which nothing is unknown is the same text either way. */
bool hark_corpus_has_checksum(const hark_corpus *corpus, uint64_t checksum);

/* Reads `count` tokens of a split from number `first` on. Several threads may read at once, each with a context of its own.
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

/* Reads every token and compares with the checksums of the cache file. Errors: as read. */
HARK_MUST_CHECK hark_status hark_corpus_verify(hark_context *context, const hark_corpus *corpus);

/* True when opening found the tokens in the cache, false when it had to make them. */
bool hark_corpus_was_cached(const hark_corpus *corpus);
/* The cache file's path; valid while the corpus is open. */
const char *hark_corpus_cache_path(const hark_corpus *corpus);

#endif
