/* json_tree.h - JSON documents, read strictly (RFC 8259) into a tree, without another library.
 *
 * The tree is one piece of memory from the context: about 50 bytes per value plus the length of the text. Refused are: text that is not
 * UTF-8, a name that occurs twice in an object or contains a zero byte, whole numbers beyond 64 bits and numbers beyond a double, nesting
 * deeper than HARK_JSON_DEPTH, more values than HARK_JSON_VALUES, anything after the document.
 */
#ifndef HARK_IO_JSON_TREE_H
#define HARK_IO_JSON_TREE_H

#include "core/core.h"

#define HARK_JSON_DEPTH 32
#define HARK_JSON_VALUES 2000000 /* in a document; a vocabulary of all characters has 1,112,064 */

/* The limits of a document. One pass over its bytes checks them before anything is built, so that memory stays in proportion to the
 * expected contents, however the text is nested. */
typedef struct hark_json_limits {
  int depth;            /* nested lists and objects */
  int64_t values;       /* including nested ones; without names */
  const char *alphabet; /* bytes that are allowed outside texts; NULL: all but the zero byte, which some parsers skip */
} hark_json_limits;

typedef enum hark_json_fit { HARK_JSON_FITS, HARK_JSON_TOO_DEEP, HARK_JSON_TOO_MANY, HARK_JSON_ODD_BYTE } hark_json_fit;

/* Scans any bytes. *at: the place where a limit was exceeded; *values (may be NULL): if all fits, an upper bound of the values. */
hark_json_fit hark_json_scan(const char *text, size_t length, const hark_json_limits *limits, size_t *at, int64_t *values);
/* "nested too deeply"; static. */
const char *hark_json_fit_text(hark_json_fit fit);

typedef enum hark_json_kind {
  HARK_JSON_NULL,
  HARK_JSON_BOOLEAN,
  HARK_JSON_INTEGER, /* written without '.' and exponent */
  HARK_JSON_REAL,
  HARK_JSON_TEXT,
  HARK_JSON_LIST,
  HARK_JSON_OBJECT
} hark_json_kind;

/* A value. Items of a list and members of an object follow each other from `first` by `next`, in the order of the document. */
typedef struct hark_json_node {
  hark_json_kind kind;
  const char *name; /* of a member, with no zero byte but the last; otherwise NULL */
  const struct hark_json_node *next;
  union {
    bool boolean;
    int64_t integer;
    struct {
      double real;
      double quick; /* hark_number_read_quick() */
    };
    struct {
      const char *text; /* ends with a zero byte, and may contain others */
      size_t bytes;
    };
    struct {
      const struct hark_json_node *first;
      int64_t count;
    };
  };
} hark_json_node;

typedef struct hark_json_tree {
  const hark_json_node *root;
  void *memory;
  size_t memory_bytes;
} hark_json_tree;

/* Line and column of a byte of a text, both from 1; the column counts bytes. */
void hark_json_place(const char *text, size_t at, size_t *line, size_t *column);

/* An error in a document, and its place. */
typedef struct hark_json_fault {
  size_t at;        /* byte, from 0 */
  const char *what; /* static */
} hark_json_fault;

/* Reads a document; the caller frees the tree. The text may be freed afterwards. Errors: HARK_BAD_FILE (*fault contains the reason; the
 * caller makes the context's message), HARK_OUT_OF_MEMORY. After a failure the tree is empty. */
HARK_MUST_CHECK hark_status hark_json_tree_read(hark_context *context, const char *text, size_t length, hark_json_fault *fault,
                                                hark_json_tree *out);
/* The same, with the message "NAME: line L, column C: ..."; without a name (NULL) it begins with the line. */
HARK_MUST_CHECK hark_status hark_json_tree_parse(hark_context *context, const char *name, const char *text, size_t length,
                                                 hark_json_tree *out);
void hark_json_tree_free(hark_context *context, hark_json_tree *tree);

/* The member of that name, or NULL, also if `object` is NULL or not an object. */
const hark_json_node *hark_json_member(const hark_json_node *object, const char *name);
static inline bool hark_json_is(const hark_json_node *node, hark_json_kind kind) { return node != NULL && node->kind == kind; }
/* The text of a TEXT without zero bytes, otherwise NULL. */
const char *hark_json_text(const hark_json_node *node);

#endif
