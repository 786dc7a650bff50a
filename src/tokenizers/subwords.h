/* subwords.h - settings of a vocabulary of sub-words, and the interface of its learner.
 *
 * The program supplies a learner of unigram and bpe, a function that learns pieces from a list of words with counts (the command's is
 * SentencePiece, in subwords_sentencepiece.cc, and only the command is linked with it). WordPiece is learned by subwords_word_piece.c.
 * Encoding, decoding and the vocabulary's file need no learner and are part of every build.
 *
 * Text is divided into units. A unit ends before the next space or control character, so a space begins a unit. A control character is a
 * separate unit; a unit of more than HARK_SUBWORD_UNIT_BYTES is cut. No piece extends beyond the end of a unit.
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

/* How a text is divided into pieces. The words of the configuration are in this order. */
typedef enum hark_subword_model {
  HARK_SUBWORD_UNIGRAM, /* the division whose pieces have the greatest sum of scores (Kudo, arXiv 1804.10959) */
  /* starts from characters and merges the adjacent pair with the best score until no pair merges (Sennrich et al., arXiv 1508.07909) */
  HARK_SUBWORD_BPE,
  /* the longest piece with which the unit begins, then the longest with which the rest begins, and so on (Wu et al., arXiv 1609.08144) */
  HARK_SUBWORD_WORD_PIECE
} hark_subword_model;
#define HARK_SUBWORD_MODELS 3
#define HARK_SUBWORD_MODEL_WORDS "unigram|bpe|wordpiece"

/* Input of a learner: distinct words, in the order of their first occurrence. Word w is text[at[w] .. at[w + 1]), valid UTF-8 without
 * control characters, possibly with a space at its beginning, and occurs count[w] >= 1 times. */
typedef struct hark_subword_job {
  hark_context *context; /* memory */
  hark_subword_model model;
  int32_t pieces;  /* exact number of pieces to learn */
  int32_t others;  /* number of tokens that are not learned; bounds in messages count these and the pieces together */
  double coverage; /* (0, 1]: fraction of the text's characters that must be pieces; the rarest others may be left out */
  size_t words;
  const char *text;
  const size_t *at;     /* [words + 1] */
  const int64_t *count; /* [words] */
} hark_subword_job;

/* Receives one piece, in the order of the vocabulary. A status other than HARK_OK ends learning with this status. */
typedef hark_status hark_subword_sink(void *user, const char *text, size_t bytes, double score);

/* `learn` fills `message` (NUL-terminated) when it fails. The same job gives the same pieces. Errors: HARK_BAD_CONFIGURATION (no such
 * vocabulary can be learned from the text), HARK_OUT_OF_MEMORY, those of the sink. */
typedef struct hark_subword_learner {
  const char *name;
  hark_status (*learn)(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]);
} hark_subword_learner;

/* Settings of a vocabulary to be learned. */
typedef struct hark_subword_settings {
  hark_subword_model model;
  int64_t vocabulary; /* number of tokens: the reserved ones, the bytes and the pieces */
  /* a character that is not a piece is encoded as bytes, which are 256 tokens; otherwise it is unknown */
  bool byte_fallback;
  double coverage;                     /* as in the job */
  const hark_subword_learner *learner; /* of unigram and bpe; NULL: this program has none, and learning is refused */
} hark_subword_settings;

/* SentencePiece (Kudo and Richardson, arXiv 1808.06226); only where HARK_WITH_SENTENCEPIECE is defined, and for programs linked with it. */
extern const hark_subword_learner hark_subword_sentencepiece;

/* WordPiece, in every build. */
extern const hark_subword_learner hark_subword_word_piece;

#ifdef __cplusplus
}
#endif
#endif
