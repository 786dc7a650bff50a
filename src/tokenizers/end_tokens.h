/* end_tokens.h - the tokens after which a text has ended, of imported models. */
#ifndef HARK_TOKENIZERS_END_TOKENS_H
#define HARK_TOKENIZERS_END_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#define HARK_END_TOKENS 16 /* at most */
typedef struct hark_end_tokens {
  int32_t count, tokens[HARK_END_TOKENS];
} hark_end_tokens;

static inline bool hark_is_end_token(const hark_end_tokens *ends, int32_t token) {
  for (int32_t i = 0; i < ends->count; i++)
    if (ends->tokens[i] == token) return true;
  return false;
}

#endif
