/* example_format.h - the interface of a format of labelled examples. A new format is one file and one row of HARK_EXAMPLE_FORMATS.
 *
 * A format reads one file at a time and passes its examples to the store as symbols. Symbols count from 0, tokens from HARK_TOKEN_RESERVED;
 * the store adds the difference. An example is passed like this:
 *
 *     HARK_TRY(hark_example_part(reader, symbols, count));     once for each part
 *     HARK_TRY(hark_example_target(reader, position, symbol)); as often as there are targets
 *     HARK_TRY(hark_example_end(reader, label));
 */
#ifndef HARK_DATA_FORMATS_EXAMPLE_FORMAT_H
#define HARK_DATA_FORMATS_EXAMPLE_FORMAT_H

#include "data/examples/examples.h"
#include "io/text.h"

/* X(name in C, name in settings), in the order of help. */
#define HARK_EXAMPLE_FORMATS(X)                                                                                                            \
  X(listops, "listops")                                                                                                                    \
  X(text, "text")                                                                                                                          \
  X(pairs, "pairs")                                                                                                                        \
  X(image, "image")                                                                                                                        \
  X(pathfinder, "pathfinder")                                                                                                              \
  X(sequences, "sequences")                                                                                                                \
  X(vectors, "vectors")                                                                                                                    \
  X(tables, "tables")

/* Bytes are symbols 0 .. 255, and so are grey values. */
#define HARK_BYTE_SYMBOLS 256

/* Properties of a format's files: fixed by the format, or found in the first file and required of the others. */
typedef struct hark_example_shape {
  int32_t symbols;             /* >= 1 */
  int32_t classes;             /* 0 where the targets are tokens */
  int32_t height, width;       /* of images */
  int32_t features, responses; /* counts of numbers of a token, and to predict for an example; 0: none */
} hark_example_shape;

/* A file being read. */
typedef struct hark_example_reader {
  hark_context *context;
  struct hark_examples *examples;
  hark_split split;
  const char *path;
  const struct hark_source *source; /* the file, unpacked */
  hark_text scratch;                /* the format's own; freed by the store */
} hark_example_reader;

typedef struct hark_example_format {
  const char *name;
  const char *summary;
  const char *ending; /* file name ending of this format: "tsv" */
  int parts;
  hark_example_target_kind target_kind;
  hark_example_shape shape; /* zeros: defined by the files */
  bool classes_are_set;     /* by hark_examples_settings.classes */
  /* Maximum number of symbols in a file of `file_bytes` bytes: room for them is made beforehand. */
  int64_t (*symbols_at_most)(uint64_t file_bytes);
  /* Reads a file to its end. */
  hark_status (*read)(hark_example_reader *reader);
  /* Writes a symbol's name for people; returns text. NULL: the words given to hark_example_shape_set() are the names. */
  const char *(*symbol_name)(int32_t symbol, char *text, size_t size);
  /* How the vocabulary's JSON describes the symbols: "bytes"; NULL: by a list of their names. */
  const char *symbols_are;
  const char *const *class_names; /* NULL: "0", "1", ... */
} hark_example_format;

#define HARK_EXAMPLE_FORMAT_DECLARE(id, name) extern const hark_example_format hark_example_format_##id;
HARK_EXAMPLE_FORMATS(HARK_EXAMPLE_FORMAT_DECLARE)
#undef HARK_EXAMPLE_FORMAT_DECLARE

/* The row of a name, or NULL. */
const hark_example_format *hark_example_format_find(const char *name);

/* ---- for formats ---- */

/* The shape: the format's, or that of the first file. */
const hark_example_shape *hark_example_reader_shape(const hark_example_reader *reader);
/* Sets the shape and the names of the symbols: `words` are the names of symbols 0, 1, ..., each ended by a zero byte (NULL: symbol_name
 * gives them). *same is false when an earlier file set another shape; the caller then fails with the place in the file. */
HARK_MUST_CHECK hark_status hark_example_shape_set(hark_example_reader *reader, const hark_example_shape *shape, const char *words,
                                                   size_t word_bytes, bool *same);

/* Adds the next sequence of the example, from bytes or from wider symbols. The format must refuse empty sequences. */
HARK_MUST_CHECK hark_status hark_example_part(hark_example_reader *reader, const void *bytes, size_t count);
HARK_MUST_CHECK hark_status hark_example_part_wide(hark_example_reader *reader, const int32_t *symbols, size_t count);
/* Adds the next sequence of the example, tokens with `features` numbers each, and the `responses` numbers to predict. */
HARK_MUST_CHECK hark_status hark_example_vectors(hark_example_reader *reader, const float *numbers, size_t count, const float *responses);
/* Adds a target at a position of part 0; positions of an example increase. A target at a position that was cut is skipped. */
HARK_MUST_CHECK hark_status hark_example_target(hark_example_reader *reader, int64_t position, int32_t symbol);
/* Ends the example. */
HARK_MUST_CHECK hark_status hark_example_end(hark_example_reader *reader, int32_t label);

#endif
