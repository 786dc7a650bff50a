/* word_reader.h - texts as words of byte-level BPE, by GPT-2's expression (Radford et al. 2019, "Language Models are Unsupervised Multitask
 * Learners"):
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * with at most 255 repetitions of a class in place of any number: a word ends after HARK_WORD_CHARACTERS characters, so that the words of a
 * text do not depend on the parts in which it is read. A byte that is not part of UTF-8 is a word, and ends the one before it.
 *
 * Expressions need PCRE2 (hark_regex_available).
 */
#ifndef HARK_TOKENIZERS_WORD_READER_H
#define HARK_TOKENIZERS_WORD_READER_H

#include "tokenizers/pipeline/regex.h"
#include "tokenizers/utf8.h"

/* The expression, for PCRE2 and for Oniguruma. */
#define HARK_WORD_EXPRESSION                                                                                                               \
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}{1,255}| ?\\p{N}{1,255}| ?[^\\s\\p{L}\\p{N}]{1,255}|\\s{1,255}(?!\\S)|\\s{1,255}"
#define HARK_WORD_CHARACTERS 256
enum {
  HARK_WORD_BYTES = HARK_WORD_CHARACTERS * HARK_UTF8_MAX_BYTES,
  HARK_WORD_WINDOW =
      HARK_WORD_BYTES + HARK_UTF8_MAX_BYTES /* bytes after which a word is known: its own, and those of the character after it */
};

/* A part of a text that is read word by word. */
typedef struct hark_word_reader {
  hark_context *context;
  const hark_regex *regex;
  void *memory; /* of the expression */
  const unsigned char *text;
  size_t bytes;
  bool last;    /* nothing follows */
  size_t at;    /* after the last word */
  size_t valid; /* UTF-8 from `at` up to here */
  bool stopped; /* by a byte that is not UTF-8 */
} hark_word_reader;

/* Begins with a part of a text. The caller closes the reader. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_word_reader_open(hark_context *context, const hark_regex *regex, const void *text, size_t bytes, bool last,
                                                  hark_word_reader *out);
void hark_word_reader_close(hark_word_reader *reader);

/* The next word, at most HARK_WORD_BYTES bytes. `bytes` 0: the part has no further word that is certain; fewer than HARK_WORD_WINDOW + 3
 * bytes are left, and none of a last part. Errors: those of hark_regex_next(). */
HARK_MUST_CHECK hark_status hark_word_reader_next(hark_word_reader *reader, hark_span *word);

#endif
