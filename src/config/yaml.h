/* yaml.h - configuration files: YAML mappings, sequences of scalars and scalars, visited in their order.
 *
 * Nested keys are joined with dots: "model: {layers: 4}" and "model.layers: 4" are the same item. Refused, with file, line and column: text
 * that is not well-formed or not UTF-8, several documents, anchors, aliases, merge keys and tags, keys that are not plain words, a key that
 * occurs twice (in either spelling), and more than the limits below.
 */
#ifndef HARK_CONFIG_YAML_H
#define HARK_CONFIG_YAML_H

#include "core/core.h"

#define HARK_YAML_BYTES ((size_t)1 << 20) /* of a file */
#define HARK_YAML_DEPTH 8                 /* of nested mappings and sequences */
#define HARK_YAML_KEYS 2000               /* in total */
#define HARK_YAML_ITEMS 100000            /* in all sequences */

typedef enum hark_yaml_kind {
  HARK_YAML_SCALAR,
  HARK_YAML_NULL,    /* nothing, ~ or null */
  HARK_YAML_SECTION, /* a mapping begins; its keys follow with longer keys */
  HARK_YAML_LIST,    /* a sequence begins; its items follow under the same key with index 0, 1, .. */
  HARK_YAML_ITEM     /* a scalar in a sequence */
} hark_yaml_kind;

typedef struct hark_yaml_item {
  hark_yaml_kind kind;
  const char *key;   /* "model.layers" */
  const char *value; /* SCALAR, ITEM; ends with a zero byte and contains no other */
  int64_t index;     /* ITEM */
  int line;          /* of the key, or of the item; from 1 */
} hark_yaml_item;

/* Called for each item; a section or list is skipped if *skip is set. A status other than HARK_OK ends the walk. */
typedef hark_status hark_yaml_visitor(void *user, const hark_yaml_item *item, bool *skip);

/* Walks text; messages call it `name`. Errors: HARK_BAD_CONFIGURATION with "NAME:LINE:COLUMN: ..."; HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_yaml_walk(hark_context *context, const char *name, const char *text, size_t length,
                                           hark_yaml_visitor *visit, void *user);

#endif
