/* inputs.h - files of data as people have them: plain, compressed (unpack/unpack.h), or standard input ("-").
 *
 * A plain file is read where it is. Compressed files, recognised by their first bytes, and standard input are unpacked into a spool, a file
 * without a name in TMPDIR (or /tmp), so that every reader works at offsets and sees the unpacked bytes; one that is killed while it
 * makes the file leaves it to the next one, which removes it.
 * Offsets in messages are those of the unpacked bytes, except in those about compressed data.
 */
#ifndef HARK_DATA_INPUTS_H
#define HARK_DATA_INPUTS_H

#include "io/text.h"

#define HARK_STANDARD_INPUT "-"                   /* as a path */
#define HARK_STANDARD_INPUT_NAME "standard input" /* in messages */

/* Zero it before its first use; the file is made when it is needed. Several inputs may share one, one after the other. */
typedef struct hark_spool {
  bool open;
  int descriptor;
  uint64_t bytes;
} hark_spool;

/* TMPDIR, or /tmp. */
const char *hark_spool_folder(void);

/* Errors: HARK_IO_ERROR, which names the folder (no space left, for instance). */
HARK_MUST_CHECK hark_status hark_spool_append(hark_context *context, hark_spool *spool, const void *data, size_t bytes);
void hark_spool_close(hark_spool *spool);

/* Bytes [base, base + size) of a descriptor. */
typedef struct hark_input {
  const char *path; /* for messages; borrowed */
  int descriptor;   /* its own, or that of a spool */
  bool packed;      /* in a spool */
  uint64_t base, size;
} hark_input;

bool hark_input_is_standard(const char *path);

/* Opens a file for reading at offsets. The spool must outlive the input. After a failure there is nothing to close.
 * Errors: those of hark_file_open() and hark_unpack(). */
HARK_MUST_CHECK hark_status hark_input_open(hark_context *context, const char *path, hark_spool *spool, hark_input *out);
/* The same, of which not more than the first `most` bytes are needed: compressed data and standard input, which may have no end, are read
 * and unpacked so far only. out->size is at most `most` + 1 for them; larger than `most`: there are more bytes. */
HARK_MUST_CHECK hark_status hark_input_open_beginning(hark_context *context, const char *path, uint64_t most, hark_spool *spool,
                                                      hark_input *out);
void hark_input_close(hark_input *input);
/* Reads exactly `bytes` bytes from `offset`. HARK_BAD_FILE if there are fewer. */
HARK_MUST_CHECK hark_status hark_input_read_at(hark_context *context, const hark_input *input, void *data, size_t bytes, uint64_t offset);

/* Reads all of a file into `out`, an empty text that the caller frees. More than `limit` bytes: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_input_read(hark_context *context, const char *path, size_t limit, hark_text *out);
/* Bytes of a beginning that has so many tokens: a token has fewer, except for long runs of one character: fewer tokens are read of such a
 * text than requested. */
size_t hark_input_beginning_bytes(int64_t tokens);
/* Reads the first bytes of a text, at most `most`, without a part of a UTF-8 character at the end. *cut: there are more. The caller frees
 * `out`, also after a failure. */
HARK_MUST_CHECK hark_status hark_input_read_beginning(hark_context *context, const char *path, size_t most, hark_text *out, bool *cut);

#endif
