/* positional_layer.h - the layer of a positional kernel: owns the kernel's parameters and computes the table of log G that attention adds
 * to its logits.
 *
 * Parameters: PREFIX.positional.parameters [K, P], in the order of the expression, in the form that is trained (mostly logarithms of
 * natural values: hark/positional.h). K is the number of heads where each head has its own parameters or its own expression, else 1. P is
 * the largest number of parameters of an expression; the others use the first numbers of their rows.
 */
#ifndef HARK_NN_POSITIONAL_LAYER_H
#define HARK_NN_POSITIONAL_LAYER_H

#include <hark/positional.h>

#include "nn/forward.h"
#include "nn/kinds.h"
#include "positional/list.h"

/* Names in files: the end of the tensors' names, and the keys of the notes with the expression and its scope (docs/formats.md). */
#define HARK_POSITIONAL_TENSOR "positional.parameters"
#define HARK_POSITIONAL_KEY "positional"
#define HARK_POSITIONAL_SCOPE_KEY "positional_scope"

/* The expressions of a model with their initial values, which several layers may share. */
typedef struct hark_positional_source {
  hark_positional_list list; /* one expression, K, or K for every layer */
  char *text;                /* its canonical form; NULL: there is no kernel */
  double *initial;           /* [K, P], or one after the other for every layer with its own P */
  int64_t rows;              /* K */
  double stretch;            /* factor on distances; 0: 1 */
  size_t text_bytes, initial_bytes;
} hark_positional_source;

/* K: the heads where each has its own parameters, or where the model has `expressions` of heads, else 1. */
static inline int64_t hark_positional_rows(hark_positional_scope scope, int64_t expressions, int64_t heads) {
  return scope == HARK_SCOPE_HEAD || (scope == HARK_SCOPE_MODEL && expressions > 1) ? heads : 1;
}

/* Whether a table needs both directions, where keys after the query are seen. */
static inline bool hark_positional_source_directed(const hark_positional_source *source) { return source->list.directed; }

static inline bool hark_positional_source_given(const hark_positional_source *source) { return source->list.count > 0; }

/* The expression of a row of a layer; P of a layer. */
const hark_positional *hark_positional_source_at(const hark_positional_source *source, int64_t layer, int64_t row);
int64_t hark_positional_source_columns(const hark_positional_source *source, int64_t layer);

/* Reads the expressions ("" or NULL: none) of K = `rows` heads and a context of `length` tokens. Errors: those of
 * hark_positional_list_open(), HARK_TOO_LARGE for more than 2^22 parameters. It is to be closed after a failure too. */
HARK_MUST_CHECK hark_status hark_positional_source_open(hark_context *context, const char *text, int64_t rows, int64_t length,
                                                        hark_positional_source *out);
void hark_positional_source_close(hark_context *context, hark_positional_source *source);

typedef struct hark_positional_layer {
  const hark_positional_source *source; /* borrowed; NULL: there is no layer */
  int64_t layer;                        /* of the model; 0 where all share one */
  hark_parameter_id parameters;
} hark_positional_layer;

/* prefix "" gives positional.parameters. The source must outlive the layer. */
HARK_MUST_CHECK hark_status hark_positional_declare(hark_context *context, hark_parameters *parameters,
                                                    const hark_positional_source *source, int64_t layer, const char *prefix,
                                                    hark_positional_layer *out);

/* table [K, distances] <- log G at 0 .. distances - 1, of keys up to the query where the kernel has a direction; with distances -T both
 * directions, [K, 2 T - 1] (kernel_table.h). */
HARK_MUST_CHECK hark_status hark_positional_apply(const hark_forward *forward, const hark_positional_layer *layer, int64_t distances,
                                                  hark_value *table);

/* The same without a tape, for decoding: fills the caller's tensor [K, distances] with a workspace (u8) of the size from
 * hark_positional_fill_bytes(), which needs only the shapes of table and parameters. Allocates nothing. */
HARK_MUST_CHECK hark_status hark_positional_fill_bytes(hark_context *context, const hark_parameters *parameters,
                                                       const hark_positional_layer *layer, const hark_tensor *table, size_t *bytes);
HARK_MUST_CHECK hark_status hark_positional_fill(hark_context *context, const hark_parameters *parameters,
                                                 const hark_positional_layer *layer, const hark_tensor *workspace, hark_tensor *table);

#endif
