/* fuzz_tokens.c - any bytes as the cached tokens of a text.
 *
 * Bytes that are changed at random never meet the checksums, so magic number, version and checksums are put right and the bytes are tried
 * again: what then is accepted must be whole in itself. Opening reads the index only, and costs memory in proportion to it. */
#include <string.h>

#include "core/checksum.h"
#include "data/corpora/token_file.h"
#include "fuzz/fuzz.h"
#include "tokenizers/tokenizer.h"

#define INDEX_BYTES 16 /* of an open file for each byte of it at most: a source with an empty path is a record and two pieces of memory */
#define CHECKSUM_BYTES 8

/* Checksums stand at the end of the trailer: that of the index, and that of the trailer. */
static void put(unsigned char *at, uint64_t number) {
  for (int i = 0; i < CHECKSUM_BYTES; i++) at[i] = (unsigned char)(number >> (8 * i));
}

static uint64_t get(const unsigned char *at) {
  uint64_t number = 0;
  for (int i = 0; i < CHECKSUM_BYTES; i++) number |= (uint64_t)at[i] << (8 * i);
  return number;
}

/* Places of fields in the trailer: 5 numbers, 6 of each split, then documents_offset, sources_offset, source_count, vocabulary_offset,
 * file_bytes, index_checksum. */
enum { DOCUMENTS_OFFSET = 8 * (5 + 6 * HARK_SPLIT_COUNT), FILE_BYTES = DOCUMENTS_OFFSET + 32, INDEX_CHECKSUM = DOCUMENTS_OFFSET + 40 };

/* Makes a file of the bytes that only its contents can make wrong. */
static void mend(unsigned char *file, size_t size) {
  if (size < HARK_TOKEN_FILE_HEADER_BYTES + HARK_TOKEN_FILE_TRAILER_BYTES) return;
  unsigned char *const trailer = file + size - HARK_TOKEN_FILE_TRAILER_BYTES;
  memcpy(file, HARK_TOKEN_FILE_MAGIC "\1\0\0\0", 12);
  put(trailer + FILE_BYTES, size);
  const uint64_t begin = get(trailer + DOCUMENTS_OFFSET), end = size - HARK_TOKEN_FILE_TRAILER_BYTES;
  if (begin <= end) put(trailer + INDEX_CHECKSUM, hark_checksum_bytes(HARK_CHECKSUM_START, file + begin, (size_t)(end - begin)));
  put(trailer + HARK_TOKEN_FILE_TRAILER_BYTES - CHECKSUM_BYTES,
      hark_checksum_bytes(HARK_CHECKSUM_START, trailer, HARK_TOKEN_FILE_TRAILER_BYTES - CHECKSUM_BYTES));
}

static void check_documents(const hark_token_file_info *info, const unsigned char *index) {
  int64_t at = 0;
  for (int s = 0; s < HARK_SPLIT_COUNT; s++) {
    int64_t tokens = 0;
    for (int64_t i = 0; i < info->split[s].counts.documents; i++) {
      const hark_token_document d = hark_token_file_document(index, at++);
      FUZZ_CHECK(d.source >= 0 && d.source < info->source_count, "a document of source %lld", (long long)d.source);
      FUZZ_CHECK(d.first == tokens && d.count >= 0, "a document at token %lld", (long long)d.first);
      tokens += d.count;
    }
    FUZZ_CHECK(tokens == info->split[s].counts.tokens, "documents of %lld tokens", (long long)tokens);
  }
}

static void check_file(hark_context *context, const unsigned char *data, size_t size) {
  const char *const path = fuzz_file(data, size);
  int file;
  uint64_t bytes;
  hark_token_file_info info;
  unsigned char *index;
  size_t index_bytes;
  hark_source_list sources = {0};
  hark_status status = hark_file_open(context, path, &file, &bytes);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
  if (status != HARK_OK) return; /* a pointer in the file's place */
  status = hark_token_file_read_index(context, file, path, bytes, &info, &index, &index_bytes);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
  FUZZ_CHECK((status == HARK_OK) || (index == NULL && index_bytes == 0), "the index of a refused file is there");
  if (status == HARK_OK) {
    check_documents(&info, index);
    const int64_t tokens = info.split[0].counts.tokens + info.split[1].counts.tokens;
    FUZZ_CHECK(info.documents_offset == HARK_TOKEN_FILE_HEADER_BYTES + tokens * info.token_bytes, "the tokens end elsewhere");
    status = hark_token_file_sources(context, path, &info, index, &sources);
    fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
    const size_t vocabulary = (size_t)(info.vocabulary_offset - info.documents_offset);
    hark_tokenizer *tokenizer;
    status = hark_tokenizer_parse(context, (const char *)index + vocabulary, index_bytes - vocabulary, &tokenizer);
    fuzz_check_refusal(context, status, HARK_BAD_FILE, "");
    hark_tokenizer_destroy(context, &tokenizer);
  }
  hark_sources_free(context, &sources);
  hark_release(context, index, index_bytes);
  hark_file_close(&file);
}

/* The bytes as packed tokens: widened and narrowed they are the same. */
static void check_packed(const unsigned char *data, size_t size, uint32_t token_bytes) {
  const size_t count = size / token_bytes;
  int32_t *const tokens = malloc((count + 1) * sizeof *tokens);
  unsigned char *const packed = malloc(size + 1);
  memcpy((unsigned char *)(tokens + count) - count * token_bytes, data, count * token_bytes);
  const int64_t vocabulary = token_bytes == 1 ? 256 : token_bytes == 2 ? 65536 : INT32_MAX;
  const bool known = hark_tokens_unpack(tokens, count, token_bytes, vocabulary);
  FUZZ_CHECK(known || token_bytes == 4, "a token of %u bytes is not below its limit", (unsigned)token_bytes);
  for (size_t i = 0; i < count && known; i++) FUZZ_CHECK(tokens[i] >= 0 && tokens[i] < vocabulary, "token %d", (int)tokens[i]);
  hark_tokens_pack(tokens, count, token_bytes, packed);
  FUZZ_CHECK(memcmp(packed, data, count * token_bytes) == 0, "tokens of %u bytes came back changed", (unsigned)token_bytes);
  free(tokens);
  free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  unsigned char *const mended = malloc(size + 1);
  if (size > 0) memcpy(mended, data, size);
  check_file(context, mended, size);
  mend(mended, size);
  check_file(context, mended, size);
  free(mended);
  for (uint32_t bytes = 1; size > 0 && bytes <= 4; bytes *= 2) check_packed(data, size, bytes);
  fuzz_limit((INDEX_BYTES + 64) * size + ((size_t)2 << 20)); /* the vocabulary in the index is parsed too: fuzz_tokenizer.c */
  fuzz_end();
  return 0;
}
