/* token_file.c - writing and checking the binary file of tokens; its layout is in token_file.h.
 *
 * Opening a file reads its index only. The tokens' checksums are not computed then (tokens may be larger than memory). Every token that is
 * read is compared with the size of the vocabulary, and hark_corpus_verify() compares the checksums.
 */
#include "data/corpora/token_file.h"

#include <inttypes.h>
#include <string.h>

#include "core/checksum.h"

uint32_t hark_token_bytes(int64_t vocabulary_size) {
  if (vocabulary_size <= UINT8_MAX + 1) return 1;
  return vocabulary_size <= UINT16_MAX + 1 ? 2 : 4;
}

void hark_tokens_pack(const int32_t *tokens, size_t count, uint32_t token_bytes, void *out) {
  unsigned char *byte = out;
  /* In place, a token is read before it is overwritten, because bytes are never written after it. */
  for (size_t i = 0; i < count; i++) {
    const uint32_t token = (uint32_t)tokens[i];
    for (uint32_t b = 0; b < token_bytes; b++) *byte++ = (unsigned char)(token >> (8 * b));
  }
}

bool hark_tokens_unpack(int32_t *tokens, size_t count, uint32_t token_bytes, int64_t vocabulary_size) {
  /* Packed token i + 1 begins at byte 4 count - (count - i - 1) token_bytes >= 4 (i + 1): writing token i does not overwrite later ones. */
  const unsigned char *byte = (const unsigned char *)(tokens + count) - count * token_bytes;
  uint32_t largest = 0;
  for (size_t i = 0; i < count; i++, byte += token_bytes) {
    uint32_t token = byte[0];
    if (token_bytes > 1) token |= (uint32_t)byte[1] << 8;
    if (token_bytes > 2) token |= (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
    if (token > largest) largest = token;
    memcpy(tokens + i, &token, sizeof token);
  }
  return (int64_t)largest < vocabulary_size;
}

static unsigned char *put(unsigned char *at, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; i++) *at++ = (unsigned char)(number >> (8 * i));
  return at;
}

static uint64_t get(const unsigned char *at, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; i++) number |= (uint64_t)at[i] << (8 * i);
  return number;
}

/* Reading and writing the trailer use this list, so that they cannot differ. */
typedef void field_function(unsigned char *at, void *field, size_t field_bytes);

static void visit_trailer(hark_token_file_info *info, unsigned char *trailer, field_function *field) {
  unsigned char *at = trailer;
#define FIELD(name) (field(at, &info->name, sizeof info->name), at += 8)
  FIELD(token_bytes);
  FIELD(vocabulary_size);
  FIELD(vocabulary_checksum);
  FIELD(contents_checksum);
  FIELD(made_seconds);
  for (int s = 0; s < HARK_SPLIT_COUNT; s++) {
    FIELD(split[s].offset);
    FIELD(split[s].counts.tokens);
    FIELD(split[s].counts.bytes);
    FIELD(split[s].counts.characters);
    FIELD(split[s].counts.documents);
    FIELD(split[s].checksum);
  }
  FIELD(documents_offset);
  FIELD(sources_offset);
  FIELD(source_count);
  FIELD(vocabulary_offset);
  FIELD(file_bytes);
  FIELD(index_checksum);
  for (int s = 0; s < HARK_SPLIT_COUNT; s++) {
    FIELD(split[s].counts.words);
    FIELD(split[s].counts.sentences);
    FIELD(split[s].counts.blank);
  }
#undef FIELD
}

/* Fields have 4 or 8 bytes in memory and 8 in the file. */
static void write_field(unsigned char *at, void *field, size_t field_bytes) {
  uint64_t wide;
  uint32_t narrow;
  memcpy(field_bytes == 4 ? (void *)&narrow : (void *)&wide, field, field_bytes);
  put(at, field_bytes == 4 ? narrow : wide, 8);
}

static void read_field(unsigned char *at, void *field, size_t field_bytes) {
  const uint64_t wide = get(at, 8);
  const uint32_t narrow = (uint32_t)wide;
  memcpy(field, field_bytes == 4 ? (const void *)&narrow : (const void *)&wide, field_bytes);
}

hark_status hark_token_file_write_header(hark_context *context, hark_writer *writer, uint32_t token_bytes) {
  unsigned char header[HARK_TOKEN_FILE_HEADER_BYTES];
  memcpy(header, HARK_TOKEN_FILE_MAGIC, 8);
  put(put(header + 8, HARK_TOKEN_FILE_VERSION, 4), token_bytes, 4);
  return hark_writer_append(context, writer, header, sizeof header);
}

/* Writes a part of the index and adds it to the checksum. */
static hark_status append_index(hark_context *context, hark_writer *writer, hark_token_file_info *info, const void *data, size_t bytes) {
  info->index_checksum = hark_checksum_bytes(info->index_checksum, data, bytes);
  return hark_writer_append(context, writer, data, bytes);
}

hark_status hark_token_file_write_index(hark_context *context, hark_writer *writer, hark_token_file_info *info,
                                        const hark_token_document *documents, const hark_source_list *sources, const char *vocabulary,
                                        size_t vocabulary_bytes) {
  unsigned char record[HARK_TOKEN_FILE_DOCUMENT_BYTES];
  info->index_checksum = HARK_CHECKSUM_START;
  info->documents_offset = (int64_t)writer->bytes;
  const int64_t document_count = info->split[HARK_SPLIT_TRAINING].counts.documents + info->split[HARK_SPLIT_VALIDATION].counts.documents;
  for (int64_t i = 0; i < document_count; i++) {
    unsigned char *at = put(record, (uint64_t)documents[i].source, 8);
    at = put(at, (uint64_t)documents[i].byte_offset, 8);
    at = put(at, (uint64_t)documents[i].bytes, 8);
    at = put(at, (uint64_t)documents[i].first, 8);
    put(at, (uint64_t)documents[i].count, 8);
    HARK_TRY(append_index(context, writer, info, record, sizeof record));
  }
  info->sources_offset = (int64_t)writer->bytes;
  info->source_count = sources->count;
  for (int64_t i = 0; i < sources->count; i++) {
    const hark_source *source = &sources->items[i];
    unsigned char *at = put(record, (uint64_t)source->stored_bytes, 8);
    at = put(at, (uint64_t)source->modified_seconds, 8);
    at = put(at, (uint64_t)source->modified_nanoseconds, 8);
    at = put(at, source->checksum, 8);
    put(at, source->path_bytes - 1, 8);
    HARK_TRY(append_index(context, writer, info, record, sizeof record));
    HARK_TRY(append_index(context, writer, info, source->path, source->path_bytes - 1));
  }
  info->vocabulary_offset = (int64_t)writer->bytes;
  HARK_TRY(append_index(context, writer, info, vocabulary, vocabulary_bytes));
  unsigned char trailer[HARK_TOKEN_FILE_TRAILER_BYTES] = {0};
  if ((int64_t)writer->bytes - info->documents_offset > HARK_TOKEN_FILE_INDEX_BYTES)
    return hark_fail(context, HARK_TOO_LARGE, "%s: an index of more than %" PRId64 " bytes: too many text files", writer->path,
                     HARK_TOKEN_FILE_INDEX_BYTES);
  info->file_bytes = (int64_t)writer->bytes + HARK_TOKEN_FILE_TRAILER_BYTES;
  visit_trailer(info, trailer, write_field);
  put(trailer + sizeof trailer - 8, hark_checksum_bytes(HARK_CHECKSUM_START, trailer, sizeof trailer - 8), 8);
  return hark_writer_append(context, writer, trailer, sizeof trailer);
}

/* Offsets are derived from the counts, which must fit into the file: then no later sum overflows. */
static bool is_consistent(const hark_token_file_info *info, uint64_t size) {
  int64_t at = HARK_TOKEN_FILE_HEADER_BYTES, documents = 0;
  if (info->file_bytes < 0 || (uint64_t)info->file_bytes != size || size > INT64_MAX / 8)
    return false; /* the sums below are less than 4 times the size */
  if (info->vocabulary_size < 1 || info->vocabulary_size > INT32_MAX) return false;
  if (info->token_bytes != hark_token_bytes(info->vocabulary_size)) return false;
  for (int s = 0; s < HARK_SPLIT_COUNT; s++) {
    const hark_text_counts *counts = &info->split[s].counts;
    if (counts->tokens < 0 || counts->documents < 0 || counts->bytes < 0 || counts->characters < 0) return false;
    if (counts->words < 0 || counts->sentences < 0 || counts->sentences > counts->tokens || counts->blank < 0) return false;
    if (counts->tokens > info->file_bytes / info->token_bytes) return false;
    if (counts->documents > info->file_bytes / HARK_TOKEN_FILE_DOCUMENT_BYTES) return false;
    if (info->split[s].offset != at) return false;
    at += counts->tokens * info->token_bytes;
    documents += counts->documents;
  }
  if (info->documents_offset != at || info->sources_offset != at + documents * HARK_TOKEN_FILE_DOCUMENT_BYTES) return false;
  const int64_t trailer = info->file_bytes - HARK_TOKEN_FILE_TRAILER_BYTES;
  if (info->vocabulary_offset < info->sources_offset || info->vocabulary_offset > trailer) return false;
  return info->source_count >= 0 && info->source_count <= (info->vocabulary_offset - info->sources_offset) / HARK_TOKEN_FILE_DOCUMENT_BYTES;
}

/* Checks that the documents of a split follow each other and contain all its tokens. */
static bool documents_are_consistent(const hark_token_file_info *info, const unsigned char *index) {
  int64_t at = 0;
  for (int s = 0; s < HARK_SPLIT_COUNT; s++) {
    const hark_text_counts *counts = &info->split[s].counts;
    int64_t next = 0;
    for (int64_t i = 0; i < counts->documents; i++) {
      const hark_token_document document = hark_token_file_document(index, at++);
      if (document.source < 0 || document.source >= info->source_count || document.byte_offset < 0 || document.bytes < 0) return false;
      if (document.first != next || document.count < 0 || document.count > counts->tokens - next) return false;
      next += document.count;
    }
    if (next != counts->tokens) return false;
  }
  return true;
}

static hark_status read_trailer(hark_context *context, int file, const char *path, uint64_t size, hark_token_file_info *info) {
  unsigned char header[HARK_TOKEN_FILE_HEADER_BYTES], trailer[HARK_TOKEN_FILE_TRAILER_BYTES];
  if (size < sizeof header + sizeof trailer)
    return hark_fail(context, HARK_BAD_FILE, "%s: %" PRIu64 " bytes are too few for a file of tokens", path, size);
  HARK_TRY(hark_file_read_at(context, file, path, header, sizeof header, 0));
  if (memcmp(header, HARK_TOKEN_FILE_MAGIC, 8) != 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: does not begin with \"%s\", so it is not a file of tokens", path, HARK_TOKEN_FILE_MAGIC);
  if (get(header + 8, 4) != HARK_TOKEN_FILE_VERSION)
    return hark_fail(context, HARK_BAD_FILE, "%s: format_version is %" PRIu64 ", this version of hark reads %d", path, get(header + 8, 4),
                     HARK_TOKEN_FILE_VERSION);
  HARK_TRY(hark_file_read_at(context, file, path, trailer, sizeof trailer, size - sizeof trailer));
  if (get(trailer + sizeof trailer - 8, 8) != hark_checksum_bytes(HARK_CHECKSUM_START, trailer, sizeof trailer - 8))
    return hark_fail(context, HARK_BAD_FILE, "%s: the trailer's checksum is wrong: the file is cut short or damaged", path);
  visit_trailer(info, trailer, read_field);
  if (!is_consistent(info, size) || info->token_bytes != get(header + 12, 4))
    return hark_fail(context, HARK_BAD_FILE, "%s: the trailer contradicts itself or the file's size", path);
  return HARK_OK;
}

hark_status hark_token_file_read_index(hark_context *context, int file, const char *path, uint64_t size, hark_token_file_info *info,
                                       unsigned char **index, size_t *index_bytes) {
  *index = NULL;
  *index_bytes = 0;
  HARK_TRY(read_trailer(context, file, path, size, info));
  const size_t bytes = (size_t)(info->file_bytes - HARK_TOKEN_FILE_TRAILER_BYTES - info->documents_offset);
  if (bytes > (size_t)HARK_TOKEN_FILE_INDEX_BYTES)
    return hark_fail(context, HARK_BAD_FILE, "%s: an index of %zu bytes, at most %" PRId64 " expected", path, bytes,
                     HARK_TOKEN_FILE_INDEX_BYTES);
  HARK_TRY(hark_allocate(context, bytes, (void **)index));
  *index_bytes = bytes;
  hark_status status = hark_file_read_at(context, file, path, *index, bytes, (uint64_t)info->documents_offset);
  if (status == HARK_OK && hark_checksum_bytes(HARK_CHECKSUM_START, *index, bytes) != info->index_checksum)
    status = hark_fail(context, HARK_BAD_FILE, "%s: the index's checksum is wrong: the file is damaged", path);
  if (status == HARK_OK && !documents_are_consistent(info, *index))
    status = hark_fail(context, HARK_BAD_FILE, "%s: the documents of the index do not fit the tokens", path);
  if (status == HARK_OK) return HARK_OK;
  hark_release(context, *index, bytes);
  *index = NULL;
  *index_bytes = 0;
  return status;
}

hark_token_document hark_token_file_document(const unsigned char *index, int64_t at) {
  const unsigned char *record = index + at * HARK_TOKEN_FILE_DOCUMENT_BYTES;
  return (hark_token_document){.source = (int64_t)get(record, 8),
                               .byte_offset = (int64_t)get(record + 8, 8),
                               .bytes = (int64_t)get(record + 16, 8),
                               .first = (int64_t)get(record + 24, 8),
                               .count = (int64_t)get(record + 32, 8)};
}

hark_status hark_token_file_sources(hark_context *context, const char *path, const hark_token_file_info *info, const unsigned char *index,
                                    hark_source_list *out) {
  const unsigned char *at = index + (info->sources_offset - info->documents_offset);
  const unsigned char *end = index + (info->vocabulary_offset - info->documents_offset);
  for (int64_t i = 0; i < info->source_count; i++) {
    if (end - at < HARK_TOKEN_FILE_DOCUMENT_BYTES) break;
    const hark_source about = {.bytes = (int64_t)get(at, 8),
                               .stored_bytes = (int64_t)get(at, 8),
                               .modified_seconds = (int64_t)get(at + 8, 8),
                               .modified_nanoseconds = (int64_t)get(at + 16, 8),
                               .checksum = get(at + 24, 8)};
    const uint64_t length = get(at + 32, 8);
    at += HARK_TOKEN_FILE_DOCUMENT_BYTES;
    if (length >= HARK_PATH_BYTES || length > (uint64_t)(end - at)) break;
    HARK_TRY(hark_sources_add(context, out, &about, (const char *)at, (size_t)length));
    at += length;
  }
  if (out->count != info->source_count || at != end)
    return hark_fail(context, HARK_BAD_FILE, "%s: the list of text files in the index is damaged", path);
  return HARK_OK;
}
