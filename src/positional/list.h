/* list.h - the expressions of the heads or layers of a model: one text in which "|" separates them, as in "decay|bank[2](rbf)|alibi". */
#ifndef HARK_POSITIONAL_LIST_H
#define HARK_POSITIONAL_LIST_H

#include <hark/positional.h>

typedef struct hark_positional_list {
  int64_t count;           /* 0: the text is empty */
  int64_t columns;         /* the largest number of parameters of an expression */
  bool directed;           /* an expression has a direction */
  hark_positional **items; /* [count] */
  size_t bytes;
} hark_positional_list;

/* The number of expressions of a text, without reading them: 0 for "" and NULL. */
int64_t hark_positional_list_length(const char *text);

/* The column of the first left(...) or right(...) of a text, by that word, without reading the expressions; 0: there is none. */
int hark_positional_list_direction(const char *text, const char *word);

/* Reads a text ("" or NULL: none). To be closed after a failure too. Errors: those of hark_positional_create(), with columns of the whole
 * text, and HARK_INVALID_ARGUMENT for too many expressions. */
HARK_MUST_CHECK hark_status hark_positional_list_open(hark_context *context, const char *text, hark_positional_list *out);
void hark_positional_list_close(hark_context *context, hark_positional_list *list);

/* The expression of a row of a layer, where a layer has `rows` of them: there is one for all, one for each row, or one for each row of each
 * layer. */
static inline hark_positional *hark_positional_list_at(const hark_positional_list *list, int64_t layer, int64_t rows, int64_t row) {
  const int64_t period = list->count / rows > 0 ? list->count / rows : 1; /* layers after which they repeat */
  return list->items[(layer % period * rows + row) % list->count];
}

/* The canonical text, with the given values: as hark_positional_print(). */
size_t hark_positional_list_print(const hark_positional_list *list, char *text, size_t size);

#endif
