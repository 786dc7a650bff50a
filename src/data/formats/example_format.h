/* example_format.h - what a format of labelled examples provides. One file and one row of HARK_EXAMPLE_FORMATS make a new one.
 *
 * A format reads one file at a time and gives what it found to the store, symbol by symbol: symbols count from 0, tokens from
 * HARK_TOKEN_RESERVED; the store adds the difference. An example is put together and ended:
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
  X(vectors, "vectors")

/* Bytes are symbols 0 .. 255, as grey values are. */
#define HARK_BYTE_SYMBOLS 256

/* What a format says of its files, or finds in the first one and then expects of the others. */
typedef struct hark_example_shape {
  int32_t symbols;             /* >= 1 */
  int32_t classes;             /* 0 with targets */
  int32_t height, width;       /* of images */
  int32_t features, responses; /* numbers of a token, and to be told of an example; 0: there are none */
} hark_example_shape;

/* A file being read. */
typedef struct hark_example_reader {
  hark_context *context;
  struct hark_examples *examples;
  hark_split split;
  const char *path;
  hark_text scratch; /* the format's own; freed by the store */
} hark_example_reader;

typedef struct hark_example_format {
  const char *name;
  const char *summary;
  const char *ending; /* of the files that are made in this format: "tsv" */
  int parts;
  hark_example_target_kind target_kind;
  hark_example_shape shape; /* zeros: the files say */
  bool classes_are_set;     /* by hark_examples_settings.classes */
  /* Most symbols that a file of so many bytes can hold: room for them is made beforehand. */
  int64_t (*symbols_at_most)(uint64_t file_bytes);
  /* Reads a file to its end. */
  hark_status (*read)(hark_example_reader *reader);
  /* A symbol for people; returns text. NULL: the words that hark_example_word() was given. */
  const char *(*symbol_name)(int32_t symbol, char *text, size_t size);
  /* How the vocabulary's JSON tells the symbols: "bytes"; NULL: by a list of their names. */
  const char *symbols_are;
  const char *const *class_names; /* NULL: "0", "1", ... */
} hark_example_format;

#define HARK_EXAMPLE_FORMAT_DECLARE(id, name) extern const hark_example_format hark_example_format_##id;
HARK_EXAMPLE_FORMATS(HARK_EXAMPLE_FORMAT_DECLARE)
#undef HARK_EXAMPLE_FORMAT_DECLARE

/* The row of a name, or NULL. */
const hark_example_format *hark_example_format_find(const char *name);

/* ---- for formats ---- */

/* The shape: the format's, or what the first file has said. */
const hark_example_shape *hark_example_reader_shape(const hark_example_reader *reader);
/* Says the shape, and whose names the symbols have: `words` are those of symbols 0, 1, ... with a zero byte behind each (NULL: symbol_name
 * knows). *same is false when an earlier file said another one: the caller's message has the place. */
HARK_MUST_CHECK hark_status hark_example_shape_set(hark_example_reader *reader, const hark_example_shape *shape, const char *words,
                                                   size_t word_bytes, bool *same);

/* The next sequence of the example, from bytes or from wider symbols. Empty ones are the format's to refuse. */
HARK_MUST_CHECK hark_status hark_example_part(hark_example_reader *reader, const void *bytes, size_t count);
HARK_MUST_CHECK hark_status hark_example_part_wide(hark_example_reader *reader, const int32_t *symbols, size_t count);
/* The next sequence of the example, of tokens with `features` numbers each, and the `responses` numbers that are to be told of it. */
HARK_MUST_CHECK hark_status hark_example_vectors(hark_example_reader *reader, const float *numbers, size_t count, const float *responses);
/* A target at a position of part 0; positions of an example increase. One that was cut away is passed over. */
HARK_MUST_CHECK hark_status hark_example_target(hark_example_reader *reader, int64_t position, int32_t symbol);
/* The example is complete. */
HARK_MUST_CHECK hark_status hark_example_end(hark_example_reader *reader, int32_t label);

#endif
