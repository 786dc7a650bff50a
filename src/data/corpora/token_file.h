/* token_file.h - the binary file of tokens.
 *
 *     offset              what
 *     0                   "HARKTOKN", then u32 format_version and u32 token_bytes (1, 2 or 4)
 *     16                  tokens of the training split, then those of the validation split, token_bytes each
 *     documents_offset    documents of the training split, then of the validation split: 5 x i64 each
 *                             (source, byte offset in it, bytes, first token, tokens)
 *     sources_offset      sources: u64 bytes, i64 seconds and i64 nanoseconds of the last change, u64 checksum, u64 path length, path
 *     vocabulary_offset   the vocabulary as JSON text
 *     file size - 256     trailer: everything named above, the counts, checksums, and its own checksum
 *
 * All numbers are little-endian. The counts are known only after the last token is written, so they are at the end. Checksums: FNV-1a, 64
 * bits.
 */
#ifndef HARK_DATA_CORPORA_TOKEN_FILE_H
#define HARK_DATA_CORPORA_TOKEN_FILE_H

#include "data/sources.h"
#include "io/files.h"

#define HARK_TOKEN_FILE_MAGIC "HARKTOKN"
#define HARK_TOKEN_FILE_VERSION 2
#define HARK_TOKEN_FILE_HEADER_BYTES 16
#define HARK_TOKEN_FILE_TRAILER_BYTES 256
#define HARK_TOKEN_FILE_DOCUMENT_BYTES 40
#define HARK_TOKEN_FILE_INDEX_BYTES ((int64_t)1 << 30) /* most bytes between tokens and trailer: they are read into memory */

typedef struct hark_token_split {
  hark_text_counts counts;
  int64_t offset;    /* of its first token in the file */
  uint64_t checksum; /* of its tokens as stored in the file */
} hark_token_split;

/* A document as stored in the file. */
typedef struct hark_token_document {
  int64_t source, byte_offset, bytes, first, count;
} hark_token_document;

typedef struct hark_token_file_info {
  uint32_t token_bytes;
  int64_t vocabulary_size;
  uint64_t vocabulary_checksum;
  uint64_t contents_checksum; /* of everything that the tokens depend on: kind, vocabulary, contents and division of the text */
  int64_t made_seconds;       /* when reading the sources began */
  hark_token_split split[HARK_SPLIT_COUNT];
  int64_t documents_offset, sources_offset, source_count, vocabulary_offset, file_bytes;
  uint64_t index_checksum; /* of all bytes from documents_offset to the trailer */
} hark_token_file_info;

/* Bytes of a token for a vocabulary of `size`. */
uint32_t hark_token_bytes(int64_t vocabulary_size);

/* Narrows tokens to token_bytes each; `out` may be `tokens`. */
void hark_tokens_pack(const int32_t *tokens, size_t count, uint32_t token_bytes, void *out);
/* Widens `count` tokens in place, from the end of the memory of `tokens`; false when one is not below vocabulary_size. */
bool hark_tokens_unpack(int32_t *tokens, size_t count, uint32_t token_bytes, int64_t vocabulary_size);

/* Writes the first bytes of a file. */
HARK_MUST_CHECK hark_status hark_token_file_write_header(hark_context *context, hark_writer *writer, uint32_t token_bytes);
/* Writes everything after the tokens; fills the offsets, counts of documents and index checksum of `info`. `documents` are in the order of
 * the file. */
HARK_MUST_CHECK hark_status hark_token_file_write_index(hark_context *context, hark_writer *writer, hark_token_file_info *info,
                                                        const hark_token_document *documents, const hark_source_list *sources,
                                                        const char *vocabulary, size_t vocabulary_bytes);

/* Reads and checks header, trailer and index of an open file of `size` bytes: *index (of *index_bytes bytes, for hark_release) holds
 * everything from documents_offset to the trailer. Errors: HARK_BAD_FILE for anything that the functions above cannot have written. */
HARK_MUST_CHECK hark_status hark_token_file_read_index(hark_context *context, int file, const char *path, uint64_t size,
                                                       hark_token_file_info *info, unsigned char **index, size_t *index_bytes);
/* Document `at` (training first, then validation) of an index. */
hark_token_document hark_token_file_document(const unsigned char *index, int64_t at);
/* The sources of an index. The caller frees the list, after a failure too. */
HARK_MUST_CHECK hark_status hark_token_file_sources(hark_context *context, const char *path, const hark_token_file_info *info,
                                                    const unsigned char *index, hark_source_list *out);

#endif
