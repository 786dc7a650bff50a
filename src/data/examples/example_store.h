/* example_store.h - the memory of labelled examples: shared by examples.c and example_store.c, which fills it. */
#ifndef HARK_DATA_EXAMPLES_EXAMPLE_STORE_H
#define HARK_DATA_EXAMPLES_EXAMPLE_STORE_H

#include "data/formats/example_format.h"

#define HARK_CLASS_NAME_BYTES 12

/* An example. Its symbols begin at index `at` of `symbols`, one part after the other; its targets begin at index target_at of `aims`. For
 * vectors, target_at is the index in `numbers` of the numbers of its tokens, followed by those to predict. */
typedef struct hark_example_entry {
  int64_t at, target_at;
  int32_t length[HARK_EXAMPLE_PARTS], whole[HARK_EXAMPLE_PARTS]; /* after and before cutting */
  int32_t label, target_count;
} hark_example_entry;

typedef struct hark_example_aim {
  int32_t position, symbol;
} hark_example_aim;

/* A growing array of items of one size. */
typedef struct hark_example_array {
  void *items;
  int64_t count, capacity;
  size_t item_bytes;
} hark_example_array;

/* Makes room for `count` items in total. */
HARK_MUST_CHECK hark_status hark_example_reserve(hark_context *context, hark_example_array *array, int64_t count);
void hark_example_array_free(hark_context *context, hark_example_array *array);

struct hark_examples {
  const hark_example_format *format;
  hark_example_shape shape;
  bool has_shape;
  int64_t symbols_at_most;              /* in all files: allocated as soon as the bytes of a symbol are known */
  int64_t length_limit;                 /* INT64_MAX: none */
  bool quoted;                          /* as in the settings */
  hark_labels labels;                   /* as in the settings */
  const char *text_field, *label_field; /* of JSON lines; valid while the files are read */
  const char *targets;                  /* of tables in CSV; the same */
  int32_t classes;                      /* of tables: the largest number of classes of the target; 0: targets are numbers */
  hark_text words;                      /* names of the symbols, each ended by a zero byte; empty where the format knows them */
  hark_example_array symbols;           /* 1, 2 or 4 bytes each, the fewest that suffice for the shape */
  hark_example_array aims;
  hark_example_array numbers; /* float */
  hark_example_array entries[HARK_SPLIT_ALL];
  hark_examples_counts counts[HARK_SPLIT_ALL];
  hark_example_entry open; /* the example that is being read */
  int open_parts;
  char (*class_names)[HARK_CLASS_NAME_BYTES]; /* [classes]; NULL where the format has them */
  hark_text vocabulary;                       /* JSON */
  uint64_t checksum;
};

/* Count of numbers to predict that follow the tokens of an example; the targets of tables are in their rows. */
static inline int64_t hark_example_own_responses(const hark_examples *examples) {
  return examples->format->target_kind == HARK_TARGET_ROWS ? 0 : examples->shape.responses;
}

#endif
