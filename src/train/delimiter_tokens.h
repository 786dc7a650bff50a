/* delimiter_tokens.h - the tokens of delimiters that a configuration gives as texts: the data decide them. */
#ifndef HARK_TRAIN_DELIMITER_TOKENS_H
#define HARK_TRAIN_DELIMITER_TOKENS_H

#include "ops/chunk_ends.h"

typedef struct hark_delimiter_tokens {
  int32_t numbers[HARK_DELIMITER_TOKENS]; /* as in chunk_ends.h */
  int32_t count;                          /* 0: the configuration has none, or numbers */
} hark_delimiter_tokens;

#endif
