/* tokenizer_bytes.c - every byte is a symbol: byte b is token HARK_TOKEN_RESERVED + b. Nothing is learned, and no symbol is unknown. */
#include "tokenizers/tokenizer_kind.h"

#define BYTE_VALUES 256

static void bytes_close(hark_context *context, hark_tokenizer *tokenizer) {
  (void)context;
  (void)tokenizer;
}

static hark_status bytes_finish(hark_context *context, hark_tokenizer *tokenizer) {
  HARK_TRY(hark_tokenizer_reserve(context, tokenizer, BYTE_VALUES, BYTE_VALUES));
  for (int value = 0; value < BYTE_VALUES; value++) {
    const char byte = (char)value;
    hark_tokenizer_add(tokenizer, &byte, 1);
  }
  return HARK_OK;
}

static hark_status bytes_encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const unsigned char *text,
                                size_t bytes, bool last, int32_t *tokens, size_t *count, size_t *consumed, hark_text_fault *fault) {
  (void)context;
  (void)tokenizer;
  (void)unknown;
  (void)last;
  (void)fault;
  for (size_t i = 0; i < bytes; i++) tokens[i] = HARK_TOKEN_RESERVED + text[i];
  *count = bytes;
  *consumed = bytes;
  return HARK_OK;
}

static hark_status bytes_read(hark_context *context, hark_tokenizer *tokenizer, const hark_json_node *object, int64_t *members) {
  (void)object;
  *members = 0;
  return bytes_finish(context, tokenizer);
}

const hark_tokenizer_kind hark_tokenizer_bytes = {
    .name = "bytes",
    .summary = "every byte, whatever it encodes: 256 symbols, no text is refused",
    .unit_bytes = 1,
    .learns = false,
    .close = bytes_close,
    .finish = bytes_finish,
    .encode = bytes_encode,
    .read = bytes_read,
};
