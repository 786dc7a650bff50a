/* json_tree.h - JSON documents, read strictly (RFC 8259) into a tree, without another library.
 *
 * The tree is one piece of memory through the context: some 50 bytes a value and the length of the text. Refused are: what is not UTF-8,
 * a name twice in an object or with a zero byte, whole numbers beyond 64 bits and numbers beyond a double, nesting deeper than
 * HARK_JSON_DEPTH, more values than HARK_JSON_VALUES, anything after the document.
 */
#ifndef HARK_IO_JSON_TREE_H
#define HARK_IO_JSON_TREE_H

#include "core/core.h"

#define HARK_JSON_DEPTH 32
#define HARK_JSON_VALUES 2000000 /* in a document; every character there is, as a vocabulary, are 1,112,064 */

/* What a document may hold at most. One pass over its bytes says so before anything is built, so that memory stays in proportion to what is
 * expected, however the text is nested. */
typedef struct hark_json_limits {
  int depth;            /* lists and objects in each other */
  int64_t values;       /* those inside of others counted too; names are not */
  const char *alphabet; /* bytes that may stand outside of texts; NULL: any but the zero byte, which some parsers pass over */
} hark_json_limits;

typedef enum hark_json_fit { HARK_JSON_FITS, HARK_JSON_TOO_DEEP, HARK_JSON_TOO_MANY, HARK_JSON_ODD_BYTE } hark_json_fit;

/* Scans any bytes. *at is where a limit was passed; *values (may be NULL), when all fits, an upper bound of the values. */
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
  const char *name; /* of a member; ends with a zero byte and holds no other; else NULL */
  const struct hark_json_node *next;
  union {
    bool boolean;
    int64_t integer;
    double real;
    struct {
      const char *text; /* ends with a zero byte, and may hold others */
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

/* What is wrong with a document, and where. */
typedef struct hark_json_fault {
  size_t at;        /* byte, from 0 */
  const char *what; /* static */
} hark_json_fault;

/* Reads a document; the caller frees the tree. The text may go afterwards. Errors: HARK_BAD_FILE (*fault says why; the context's message is
 * the caller's to make), HARK_OUT_OF_MEMORY. When it fails the tree is empty. */
HARK_MUST_CHECK hark_status hark_json_tree_read(hark_context *context, const char *text, size_t length, hark_json_fault *fault,
                                                hark_json_tree *out);
/* The same, with the message "NAME: line L, column C: ..."; without a name (NULL) it begins with the line. */
HARK_MUST_CHECK hark_status hark_json_tree_parse(hark_context *context, const char *name, const char *text, size_t length,
                                                 hark_json_tree *out);
void hark_json_tree_free(hark_context *context, hark_json_tree *tree);

/* The member of that name, or NULL: also for what is no object, and for NULL. */
const hark_json_node *hark_json_member(const hark_json_node *object, const char *name);
static inline bool hark_json_is(const hark_json_node *node, hark_json_kind kind) { return node != NULL && node->kind == kind; }
/* The text of a TEXT without zero bytes, else NULL. */
const char *hark_json_text(const hark_json_node *node);

#endif
