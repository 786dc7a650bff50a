/* example_store.h - the memory of labelled examples: what examples.c shares with example_store.c, which fills it. */
#ifndef HARK_DATA_EXAMPLES_EXAMPLE_STORE_H
#define HARK_DATA_EXAMPLES_EXAMPLE_STORE_H

#include "data/formats/example_format.h"

#define HARK_CLASS_NAME_BYTES 12

/* An example: its symbols lie part behind part from number `at` of the symbols on, its targets from number target_at of
 * the targets; the numbers of vectors from there on of the numbers, those of its tokens and then those that are to be told. */
typedef struct hark_example_entry {
  int64_t at, target_at;
  int32_t length[HARK_EXAMPLE_PARTS], whole[HARK_EXAMPLE_PARTS]; /* after and before cutting */
  int32_t label, target_count;
} hark_example_entry;

typedef struct hark_example_aim {
  int32_t position, symbol;
} hark_example_aim;

/* Items of one size that grow. */
typedef struct hark_example_array {
  void *items;
  int64_t count, capacity;
  size_t item_bytes;
} hark_example_array;

/* Room for `count` items in all. */
HARK_MUST_CHECK hark_status hark_example_reserve(hark_context *context, hark_example_array *array, int64_t count);
void hark_example_array_free(hark_context *context, hark_example_array *array);

struct hark_examples {
  const hark_example_format *format;
  hark_example_shape shape;
  bool has_shape;
  int64_t symbols_at_most;    /* in all files: room that is made as soon as the bytes of a symbol are known */
  int64_t length_limit;       /* INT64_MAX: none */
  hark_text words;            /* of the symbols, a zero byte behind each; empty where the format knows them */
  hark_example_array symbols; /* 1, 2 or 4 bytes each, the fewest that hold the shape's */
  hark_example_array aims;
  hark_example_array numbers; /* float */
  hark_example_array entries[HARK_SPLIT_ALL];
  hark_examples_counts counts[HARK_SPLIT_ALL];
  hark_example_entry open; /* the example that is being put together */
  int open_parts;
  char (*class_names)[HARK_CLASS_NAME_BYTES]; /* [classes]; NULL where the format has them */
  hark_text vocabulary;                       /* JSON */
  uint64_t checksum;
};

#endif
