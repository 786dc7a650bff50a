/* subwords.h - what a vocabulary of sub-words is asked to be, and who learns it.
 *
 * Pieces are learned by a learner that the program gives: a function of a list of words with counts (the command's is SentencePiece, in
 * subwords_sentencepiece.cc, which only the command is linked with). Encoding, decoding and the vocabulary's file need no learner and are
 * part of every build.
 *
 * Text falls into units: a unit begins with a space or a character behind one and ends in front of the next space or control character; a
 * control character is a unit of its own; a unit of more than HARK_SUBWORD_UNIT_BYTES is cut. No piece reaches over the end of a unit.
 */
#ifndef HARK_TOKENIZERS_SUBWORDS_H
#define HARK_TOKENIZERS_SUBWORDS_H

#include <hark/context.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HARK_SUBWORD_UNIT_BYTES 512
#define HARK_SUBWORD_MESSAGE_BYTES 256

/* How a text is divided into pieces. The words of the configuration stand in this order. */
typedef enum hark_subword_model {
  HARK_SUBWORD_UNIGRAM, /* the division whose pieces have the greatest sum of scores (Kudo, arXiv 1804.10959) */
  HARK_SUBWORD_BPE      /* characters, of which the neighbours with the best score join until none do (Sennrich et al., arXiv 1508.07909) */
} hark_subword_model;
#define HARK_SUBWORD_MODEL_WORDS "unigram|bpe"

/* What a learner works on: distinct words, in the order of their first occurrence. Word w is text[at[w] .. at[w + 1]), valid UTF-8 without
 * control characters, with a space at its front or none, and occurs count[w] >= 1 times. */
typedef struct hark_subword_job {
  hark_subword_model model;
  int32_t pieces;  /* exactly so many are wanted */
  int32_t others;  /* tokens of the vocabulary that are no pieces to be learned: what a message says of bounds is of all together */
  double coverage; /* (0, 1]: part of the text's characters that must be pieces; the rarest others may be left out */
  size_t words;
  const char *text;
  const size_t *at;     /* [words + 1] */
  const int64_t *count; /* [words] */
} hark_subword_job;

/* Takes one piece, in the order of the vocabulary. A status other than HARK_OK ends learning with it. */
typedef hark_status hark_subword_sink(void *user, const char *text, size_t bytes, double score);

/* Fills `message` (NULL-terminated) when it fails. The same job gives the same pieces. Errors: HARK_BAD_CONFIGURATION (the text does not
 * give such a vocabulary), HARK_OUT_OF_MEMORY, those of the sink. */
typedef struct hark_subword_learner {
  const char *name;
  hark_status (*learn)(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]);
} hark_subword_learner;

/* What is asked of a vocabulary that is to be learned. */
typedef struct hark_subword_settings {
  hark_subword_model model;
  int64_t vocabulary;                  /* tokens in all: the reserved ones, the bytes, and pieces */
  bool byte_fallback;                  /* characters that are no pieces become their bytes, which are 256 tokens; else they are unknown */
  double coverage;                     /* as in the job */
  const hark_subword_learner *learner; /* NULL: this program has none, and learning is refused */
} hark_subword_settings;

/* SentencePiece (Kudo and Richardson, arXiv 1808.06226); only where HARK_WITH_SENTENCEPIECE is defined, and for programs linked with it. */
extern const hark_subword_learner hark_subword_sentencepiece;

#ifdef __cplusplus
}
#endif
#endif
