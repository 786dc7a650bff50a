/* examples.h - labelled examples: one or two sequences of tokens with a class, with targets at tokens, or with numbers to predict.
 *
 * A format (listops, text, pairs, image, pathfinder, sequences, vectors: the table of example_format.h) defines the contents of a file.
 * Opening reads all files, checks them to the last byte, and keeps them in memory with 1, 2 or 4 bytes per token. After that, reading
 * cannot fail, and any number of threads may read. Formats of files: docs/tasks.md.
 *
 * Legend: an example has `parts` sequences (1, or 2 for pairs) of lengths n_0, n_1 >= 1. Tokens are numbers of a vocabulary that begins
 * with the reserved tokens of tokenizer.h. Examples contain no reserved tokens: batches insert HARK_TOKEN_CLASS for models that need it,
 * and HARK_TOKEN_PADDING after the end cannot be confused with data (a black pixel is token HARK_TOKEN_RESERVED, not 0).
 */
#ifndef HARK_DATA_EXAMPLES_EXAMPLES_H
#define HARK_DATA_EXAMPLES_EXAMPLES_H

#include "data/corpora/batches.h" /* HARK_TARGET_IGNORED */
#include "data/corpora/corpus.h"  /* hark_split: HARK_SPLIT_TRAINING, HARK_SPLIT_VALIDATION, HARK_SPLIT_TEST; HARK_SPLIT_ALL of them */

#define HARK_EXAMPLE_PARTS 2 /* maximum number of sequences of an example */

/* The kind of target. */
typedef enum hark_example_target_kind {
  HARK_TARGET_CLASS,  /* one class per example */
  HARK_TARGET_TOKENS, /* a token at some positions; HARK_TARGET_IGNORED at the others */
  HARK_TARGET_VECTOR, /* numbers per example */
  HARK_TARGET_ROWS    /* numbers per row of a table: the last of its numbers */
} hark_example_target_kind;

/* Whether files of format text have labels. */
typedef enum hark_labels {
  HARK_LABELS_NEEDED,
  HARK_LABELS_EXPECTED, /* the same; a message about a missing label names --unlabelled */
  HARK_LABELS_NONE      /* a line is a text, of JSON lines one member is read; labels are HARK_TARGET_IGNORED */
} hark_labels;

/* The files, and how to read them. Zero it and fill what applies. Everything is borrowed for the call only. */
typedef struct hark_examples_settings {
  const char *format; /* "listops", ...; NULL or "": the format in task.json, where paths[0] is a folder that `hark data make` wrote */
  /* of training: files, compressed or not (data/inputs.h), or "-" for standard input, in this order; or one such folder, which contains all
   * three splits */
  const char *const *paths;
  int path_count;
  const char *const *validation_paths;
  int validation_path_count;
  const char *const *test_paths;
  int test_path_count;
  /* [0, 1): without validation files, floor(fraction * N) of the N training examples are used for validation: those that a fixed
   * permutation of [0, N) maps below that number, the same for all seeds of a run */
  double validation_fraction;
  bool divides;         /* the fraction is requested: refused where there are validation files */
  int64_t length_limit; /* longer sequences are cut to their first length_limit tokens; 0: no limit */
  int32_t classes; /* of text and pairs, whose files do not contain the number: labels are 0 .. classes - 1; 0: 2; of tables: the target of
                    a row is its class, the largest number of classes of a table; 0: targets are numbers */
  hark_labels labels; /* NONE only for files of format text: HARK_BAD_CONFIGURATION for folders and other formats */
  /* of format text, the members of JSON lines (json_lines.h) that are the text and the label; NULL or "": "text" and "label" */
  const char *text_field, *label_field;
  const char *targets;  /* of tables in CSV: names of the columns that are predicted, separated by commas; NULL or "": none */
  bool quoted;          /* of text and pairs: fields may be quoted as in CSV: "a ""word""" is a "word" */
  bool known;           /* a run has been trained on them: repeated files and copies in two splits are not refused */
  bool teaches_classes; /* a model will be trained on the classes: training examples of only one class are refused */
} hark_examples_settings;

typedef struct hark_examples hark_examples;

/* Reads everything. The caller closes *out.
 * Errors: HARK_NOT_FOUND (no such file), HARK_BAD_FILE (file, line, column and byte offset, or file and byte offset: malformed, a label out
 * of range, a wrong size, an empty sequence, text that is not UTF-8, files whose vocabularies differ, no example, with teaches_classes only
 * one class), HARK_BAD_CONFIGURATION (settings: no such format, the message lists them; one file twice, or with other names in two splits;
 * divides),
 * HARK_IO_ERROR, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_examples_open(hark_context *context, const hark_examples_settings *settings, hark_examples **out);
void hark_examples_close(hark_context *context, hark_examples **examples);

/* Names of the formats in the order of the table, and one line of help on each; NULL from the end of the table on. Static strings. */
const char *hark_examples_format_name(int index);
const char *hark_examples_format_summary(int index);

/* ---- properties of all examples; texts are valid until the examples are closed ---- */

/* The format's name. */
const char *hark_examples_format(const hark_examples *examples);
/* Number of sequences of an example: 1 or 2. */
int hark_examples_parts(const hark_examples *examples);
/* The most targets at tokens of an example, in all splits; 0 where targets are of another kind. */
int64_t hark_examples_most_targets(const hark_examples *examples);
hark_example_target_kind hark_examples_target_kind(const hark_examples *examples);
/* Number of tokens, including the reserved ones: every token is in [HARK_TOKEN_RESERVED, size). */
int32_t hark_examples_vocabulary_size(const hark_examples *examples);
/* Number of classes, at least 2; 0 where the target is not a class. And the name of a class: "7", "positive"; NULL outside [0, classes). */
int32_t hark_examples_classes(const hark_examples *examples);
const char *hark_examples_class_name(const hark_examples *examples, int32_t index);
/* Count of numbers of a token, and count of numbers to predict for an example; 0 except for formats vectors and tables. The numbers of a
 * table's row are its inputs, then its targets, and the count of targets is that of responses. */
int32_t hark_examples_features(const hark_examples *examples);
int32_t hark_examples_responses(const hark_examples *examples);
/* Side lengths of images, whose pixels are the tokens row by row; false, and zeros, where examples are not images. */
bool hark_examples_image(const hark_examples *examples, int32_t *height, int32_t *width);
/* Writes a token's name for messages and pictures: "[MAX", "k17", "a", "0x0a", "grey 255", "<padding>"; returns text. 32 bytes suffice. */
const char *hark_examples_token_name(const hark_examples *examples, int32_t token, char *text, size_t size);

/* The description of the task for a model, as JSON text (docs/tasks.md): format, parts, kind of target, classes, tokens. It has the same
 * bytes for the same task, independent of the examples. *bytes bytes, followed by a zero byte that does not count. A run stores it. */
const char *hark_examples_vocabulary(const hark_examples *examples, size_t *bytes);
/* HARK_OK when `text` is that text; otherwise HARK_BAD_FILE with "NAME: ..." and the first difference in words. */
HARK_MUST_CHECK hark_status hark_examples_check_vocabulary(hark_context *context, const hark_examples *examples, const char *name,
                                                           const char *text, size_t bytes);

/* Equal for equal examples in the same order and splits, independent of the files' paths. A checkpoint stores it to recognise its data. */
uint64_t hark_examples_checksum(const hark_examples *examples);

/* ---- splits ---- */

typedef struct hark_examples_counts {
  int64_t examples;
  int64_t tokens;        /* in all sequences, after cutting */
  int64_t targets;       /* HARK_TARGET_TOKENS: tokens with a target */
  int64_t longest;       /* longest sequence, after cutting */
  int64_t longest_whole; /* longest sequence, before cutting */
  int64_t cut;           /* sequences that were longer than length_limit */
} hark_examples_counts;
/* A split without files has zeros. */
hark_examples_counts hark_examples_count(const hark_examples *examples, hark_split split);

/* ---- one example: index in [0, examples of the split), part in [0, parts) ---- */

/* Number of tokens of a sequence, >= 1; 0 outside the examples. */
int64_t hark_examples_length(const hark_examples *examples, hark_split split, int64_t index, int part);
/* Writes the hark_examples_length() tokens of a sequence. Errors: HARK_INVALID_ARGUMENT (no such example or part). */
HARK_MUST_CHECK hark_status hark_examples_read(hark_context *context, const hark_examples *examples, hark_split split, int64_t index,
                                               int part, int32_t *tokens);
/* Writes the numbers of a sequence's tokens [length, features], and the numbers to predict for the example [responses]; either may be NULL.
 * Errors: as hark_examples_read. */
HARK_MUST_CHECK hark_status hark_examples_numbers(hark_context *context, const hark_examples *examples, hark_split split, int64_t index,
                                                  float *features, float *responses);
/* The numbers of a table's rows [length, features], valid until the examples are closed; NULL for other formats, or if there is no such
 * example. */
const float *hark_examples_table(const hark_examples *examples, hark_split split, int64_t index);
/* The class, in [0, classes); HARK_TARGET_IGNORED outside the examples and where the target is not a class. */
int32_t hark_examples_label(const hark_examples *examples, hark_split split, int64_t index);
/* Writes hark_examples_length() targets of part 0: target[t] is the token that is to be predicted from tokens 0 .. t (the token that
 * follows token t, or the answer to it: docs/tasks.md), or HARK_TARGET_IGNORED. For other kinds of targets all are HARK_TARGET_IGNORED.
 * *real (may be NULL): how many are not ignored. Errors: as hark_examples_read. */
HARK_MUST_CHECK hark_status hark_examples_targets(hark_context *context, const hark_examples *examples, hark_split split, int64_t index,
                                                  int32_t *targets, int64_t *real);

#endif
