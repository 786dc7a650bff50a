/* attention_algorithm.h - how a backend computes attention, and the plan and the sequences that it is given.
 *
 * The layer above (src/attention) checks descriptor and arguments and turns every kind of batch - rectangular with lengths, ragged,
 * segmented - into a list of sequences. An algorithm sees only those: it walks over (sequence, head, tile of queries).
 */
#ifndef HARK_BACKEND_ATTENTION_ALGORITHM_H
#define HARK_BACKEND_ATTENTION_ALGORITHM_H

#include <hark/attention.h>

#include "core/core.h"

/* One sequence: rows [query_row, query_row + query_count) of batch item `item` meet keys [key_row, key_row + key_count) of it.
 * Query row r of the sequence (from 0) stands at position r + offset among its keys (from 0); offset may be negative. */
typedef struct hark_attention_sequence {
  int64_t item;
  int64_t query_row, query_count;
  int64_t key_row, key_count;
  int64_t offset;
} hark_attention_sequence;

typedef struct hark_attention_algorithm hark_attention_algorithm;

struct hark_attention_plan {
  hark_attention_desc desc; /* resolved */
  const hark_attention_algorithm *algorithm;
  const struct hark_backend *backend;
  int workers; /* scratch areas reckoned with */
  size_t allocated_bytes;
  hark_attention_sizes sizes; /* with the list of sequences at the front of the workspaces */
  size_t sequence_bytes;      /* bytes of that list, aligned */
};

/* What an algorithm is called with. Tensors of `args` have been checked against the plan. `scratch` is the workspace after the list of
 * sequences, of the size the algorithm asked for. Rows that belong to no sequence (padding queries) have been zeroed in out (forward) and
 * in the gradients that are not accumulated, and their log_sum_exp set to -infinity, by the layer above. Gradients of keys in no sequence
 * too. */
typedef struct hark_attention_call {
  const hark_attention_plan *plan;
  const hark_attention_args *args;
  const hark_attention_sequence *sequences;
  int64_t sequence_count;
  void *scratch;
} hark_attention_call;

struct hark_attention_algorithm {
  const char *name; /* "dense tiled" */
  /* True when it computes this descriptor; else writes the reason, which names the fields, into why. */
  bool (*supports)(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size);
  /* Sizes at the descriptor's maxima. Errors: HARK_TOO_LARGE. */
  hark_status (*sizes)(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out);
  hark_status (*forward)(hark_context *context, const hark_attention_call *run);
  hark_status (*backward)(hark_context *context, const hark_attention_call *run);
  /* Appends what the plan should say of tiles; returns as snprintf. */
  int (*print)(const hark_attention_plan *plan, char *text, size_t size);
};

#endif
