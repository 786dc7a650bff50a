/* growing.h - lists of bytes, tokens and places that grow by doubling. Zero them before use; emptying keeps their memory. */
#ifndef HARK_TOKENIZERS_PIPELINE_GROWING_H
#define HARK_TOKENIZERS_PIPELINE_GROWING_H

#include <string.h>

#include "core/core.h"

typedef struct hark_bytes {
  char *data;
  size_t count, capacity;
} hark_bytes;

typedef struct hark_ids {
  int32_t *data;
  size_t count, capacity;
} hark_ids;

/* A part of a text that is owned by somebody else. */
typedef struct hark_span {
  const char *text;
  size_t bytes;
} hark_span;

typedef struct hark_spans {
  hark_span *data;
  size_t count, capacity;
} hark_spans;

/* Makes room for `needed` elements. Errors: HARK_OUT_OF_MEMORY, HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_list_grow(hark_context *context, void **data, size_t *capacity, size_t needed, size_t element);

/* Room for `more` elements after the present ones, which the caller then writes. */
#define HARK_RESERVE(context, list, more)                                                                                                  \
  ((list)->capacity - (list)->count >= (more)                                                                                              \
       ? HARK_OK                                                                                                                           \
       : hark_list_grow((context), (void **)&(list)->data, &(list)->capacity, (list)->count + (more), sizeof *(list)->data))

/* Frees the memory of a list, which is empty afterwards. */
#define HARK_FREE_LIST(context, list)                                                                                                      \
  (hark_release((context), (list)->data, (list)->capacity * sizeof *(list)->data), (list)->data = NULL,                                    \
   (list)->count = (list)->capacity = 0)

static inline hark_status hark_bytes_add(hark_context *context, hark_bytes *list, const char *text, size_t bytes) {
  HARK_TRY(HARK_RESERVE(context, list, bytes));
  if (bytes > 0) memcpy(list->data + list->count, text, bytes);
  list->count += bytes;
  return HARK_OK;
}

static inline hark_status hark_ids_add(hark_context *context, hark_ids *list, int32_t id) {
  HARK_TRY(HARK_RESERVE(context, list, 1));
  list->data[list->count++] = id;
  return HARK_OK;
}

static inline hark_status hark_spans_add(hark_context *context, hark_spans *list, const char *text, size_t bytes) {
  HARK_TRY(HARK_RESERVE(context, list, 1));
  list->data[list->count++] = (hark_span){text, bytes};
  return HARK_OK;
}

#endif
