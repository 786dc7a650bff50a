/* sources.h - the text files of a corpus and their pieces for training and validation. */
#ifndef HARK_DATA_SOURCES_H
#define HARK_DATA_SOURCES_H

#include "core/core.h"
#include "data/corpora/corpus.h"
#include "data/inputs.h"
#include "io/files.h"

typedef struct hark_source {
  char *path; /* absolute, without symbolic links; HARK_STANDARD_INPUT_NAME */
  size_t path_bytes;
  int64_t bytes;        /* of its contents; before hark_sources_unpack(), of the file */
  int64_t stored_bytes; /* of the file */
  bool standard;        /* standard input */
  bool folder;          /* of examples, a file each: `bytes` is the sum of theirs */
  bool packed;          /* the contents are in a spool, from `base` on */
  bool tokens;          /* the contents are tokens of two bytes, not text */
  int spool;
  int64_t base;
  int64_t modified_seconds, modified_nanoseconds;
  uint64_t device, inode;
  uint64_t checksum; /* of the contents; known after they were read */
  hark_split role;   /* with HARK_DIVIDE_FILES */
} hark_source;

typedef struct hark_source_list {
  hark_source *items;
  int64_t count, capacity;
  bool unpacked;         /* hark_sources_unpack() was called */
  hark_status unpacking; /* its result */
  hark_spool spool;
} hark_source_list;

/* Bytes [from, to) of a source, in one split. */
typedef struct hark_piece {
  int64_t source;
  hark_split split;
  int64_t from, to;
} hark_piece;

typedef struct hark_piece_list {
  hark_piece *items;
  int64_t count, capacity;
} hark_piece_list;

/* Finds all files of the settings, in their order. `out` is empty before; the caller frees it, after a failure too. */
HARK_MUST_CHECK hark_status hark_sources_find(hark_context *context, const hark_corpus_settings *settings, hark_source_list *out);
/* Adds a source with a copy of `path`; path and path_bytes of `about` are ignored. */
HARK_MUST_CHECK hark_status hark_sources_add(hark_context *context, hark_source_list *list, const hark_source *about, const char *path,
                                             size_t path_length);
/* Adds a file, with its path as given, or standard input. Errors: HARK_NOT_FOUND, HARK_BAD_FILE (no file), HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_sources_add_file(hark_context *context, hark_source_list *list, const char *path, hark_split role);
/* Unpacks compressed files, standard input and, where `field` is not NULL, the texts of JSON lines (json_lines.h): from then on `bytes` and
 * reading are those of the contents. A second call only returns the result of the first one: standard input cannot be read twice.
 * Errors: those of hark_input_open() and hark_json_lines_text(). */
HARK_MUST_CHECK hark_status hark_sources_unpack(hark_context *context, hark_source_list *list, const char *field);
/* Marks the files of tokens: with an imported tokenizer those named .bin, as nanoGPT writes them (uint16, little endian). Errors:
 * HARK_BAD_FILE for one that was cut within a token. */
#define HARK_SOURCE_TOKEN_BYTES 2
HARK_MUST_CHECK hark_status hark_sources_mark_tokens(hark_context *context, const hark_corpus_settings *settings, hark_source_list *list);
/* Whether one of the sources is a file of JSON lines, by its name. */
bool hark_sources_have_json_lines(const hark_source_list *list);
/* Opens the contents of a source that was unpacked; hark_input_close() closes it. */
HARK_MUST_CHECK hark_status hark_source_open(hark_context *context, const hark_source *source, hark_input *out);
/* Length and checksum of the contents. */
HARK_MUST_CHECK hark_status hark_source_summarise(hark_context *context, const hark_source *source, hark_file_summary *out);
/* Adds a folder of `bytes` bytes of examples, whose files are found and read by their format. Copies of folders are not compared. */
HARK_MUST_CHECK hark_status hark_sources_add_folder(hark_context *context, hark_source_list *list, const char *path, int64_t bytes,
                                                    hark_split role);
void hark_sources_free(hark_context *context, hark_source_list *list);

/* Divides the sources into pieces, in the order of the files, a file's training piece before its validation piece. Reads a few bytes at a
 * boundary to place it between characters. An empty file is one empty piece. */
HARK_MUST_CHECK hark_status hark_sources_divide(hark_context *context, const hark_corpus_settings *settings,
                                                const hark_source_list *sources, hark_piece_list *out);
void hark_pieces_free(hark_context *context, hark_piece_list *list);

/* Receives the parts of a piece, like hark_tokenizer_learn(). */
typedef hark_status hark_part_function(void *closure, const void *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault);

/* Reads a piece in parts through `buffer`. Bytes that a call did not consume are repeated before the next part; buffer_bytes must suffice
 * for the longest symbol. A fault becomes a message with file, line, column and byte offset.
 * Errors: those of `function`; HARK_BAD_FILE when the file has become shorter; HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_source_read(hark_context *context, const hark_source *source, int64_t from, int64_t to, void *buffer,
                                             size_t buffer_bytes, hark_part_function *function, void *closure);

/* Fails with HARK_IO_ERROR when the file's size or time has changed since it was found. */
HARK_MUST_CHECK hark_status hark_source_check_unchanged(hark_context *context, const hark_source *source);

/* Checksum of a source's contents. */
HARK_MUST_CHECK hark_status hark_source_checksum(hark_context *context, const hark_source *source, void *buffer, size_t buffer_bytes,
                                                 uint64_t *out);

#endif
