/* attention_algorithm.h - the interface of an attention algorithm of a backend, and the plan and the sequences that it receives.
 *
 * The layer above (src/attention) checks descriptor and arguments and turns every kind of batch - rectangular with lengths, ragged,
 * segmented - into a list of sequences. An algorithm sees only those: it iterates over (sequence, head, tile of queries).
 */
#ifndef HARK_BACKEND_ATTENTION_ALGORITHM_H
#define HARK_BACKEND_ATTENTION_ALGORITHM_H

#include <hark/attention.h>

#include "core/core.h"

/* One sequence: rows [query_row, query_row + query_count) of batch item `item` attend to keys [key_row, key_row + key_count) of the same
 * item. Query row r of the sequence (from 0) has position r + offset among its keys (from 0); offset may be negative. */
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
  int workers; /* number of scratch areas that the sizes include */
  int64_t
      key_heads; /* of all processes that share a sequence; desc has this process's. It determines how work is divided, and so the bits */
  /* Of a layer over a spread sequence (attention/spread.h): desc is of all rows and all heads, and a process has its rows. */
  bool keeps_rows;
  size_t spread_forward, spread_backward; /* bytes of memory of its calls */
  size_t allocated_bytes;
  hark_attention_sizes sizes; /* with the list of sequences at the beginning of the workspaces */
  size_t sequence_bytes;      /* bytes of that list, aligned */
};

/* Rows of sequences that are parts of longer ones (attention/spread.h): where they are in the whole sequences. All have the same place. */
typedef struct hark_attention_part {
  int64_t rows; /* queries and keys of a whole sequence */
  int64_t queries_before, keys_before;
} hark_attention_part;

/* The arguments of an algorithm. The tensors of `args` have been checked against the plan. `scratch` is the workspace after the list of
 * sequences, of the size that the algorithm requested. For rows that belong to no sequence (padding queries) the layer above has set out
 * (forward) and the gradients that are not accumulated to zero, and log_sum_exp to -infinity. It has set gradients of keys in no sequence
 * to zero too. */
typedef struct hark_attention_call {
  const hark_attention_plan *plan;
  const hark_attention_args *args;
  const hark_attention_sequence *sequences;
  int64_t sequence_count;
  void *scratch;
  const float
      *products; /* backward: dout . out of every row, [B, H, Lq], from the algorithm's products(); `out` is then not read. Or NULL */
  const hark_attention_part *part; /* NULL: sequences are complete. Otherwise the bits are those of the whole sequences' call */
} hark_attention_call;

/* A message to or from another process; both ends have the same number of bytes. */
typedef struct hark_attention_parcel {
  void *data; /* only read where it is sent */
  size_t bytes;
  int peer;
  bool sends;
} hark_attention_parcel;

/* The processes over which the rows of a sequence are spread (attention/spread.h): process r has rows first[r] .. first[r + 1] - 1 of every
 * batch item. The functions are called by all processes in the same order; an exchange has only its own two ends. */
typedef struct hark_attention_peers {
  int rank, size;
  int64_t total;        /* rows */
  const int64_t *first; /* [size + 1] */
  void *memory;         /* the bytes of spread_bytes(), aligned as hark_allocate() does; NULL: from the context */
  void *user;
  hark_status (*exchange)(hark_context *context, void *user, const hark_attention_parcel *parcels, int count);
  hark_status (*agree)(hark_context *context, void *user, hark_status status);
} hark_attention_peers;

/* Passes in which subnormal results may be zeros (hark_attention_hold): kernels of distant keys, and products of small weights and
 * gradients, are often so small. vf_exp2 gives almost no subnormal weights. */
typedef enum hark_attention_flush { HARK_FLUSH_NEVER, HARK_FLUSH_BACKWARD, HARK_FLUSH_ALWAYS } hark_attention_flush;

struct hark_attention_algorithm {
  const char *name; /* "dense tiled" */
  hark_attention_flush flush;
  bool gradients_in_place; /* the backward may get dquery, dkey, dvalue in the memory of query, key, value, not accumulated */
  /* True if it computes this descriptor; otherwise writes the reason, which names the fields, into why. */
  bool (*supports)(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size);
  /* Sizes at the descriptor's maxima. Errors: HARK_TOO_LARGE. */
  hark_status (*sizes)(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out);
  hark_status (*forward)(hark_context *context, const hark_attention_call *run);
  hark_status (*backward)(hark_context *context, const hark_attention_call *run);
  /* products[h, n] = dout[h, n] . out[h, n] of `dout` and `out` [1, H, rows, dv], with the bits of the backward; products have this stride
   * over the heads. NULL: the backward needs `out` itself. */
  void (*products)(hark_context *context, const hark_tensor *dout, const hark_tensor *out, float *products, int64_t stride);
  /* Rows of a sequence of `total` rows are spread at multiples of this many. 0: not at all; the reason, which names the fields, is in
   * `why`. NULL: never. */
  int64_t (*spread_unit)(const hark_attention_desc *desc, int64_t total, char *why, size_t size);
  /* NULL with spread_unit: the layer above gives neighbours' rows too (structure window; hark_attention_call.part). Otherwise:
   * Forward or backward over spread rows, with the bits of one process. `run` has the rows of this process, one sequence per item, and no
   * scratch: memory is that of `peers`. Calls peers->agree() once, before all exchanges; with memory it may return the
   * status that it is given. */
  hark_status (*spread)(hark_context *context, const hark_attention_call *run, const hark_attention_peers *peers, bool backward);
  /* Bytes of memory of such a call, whose tensors' data are not read. */
  hark_status (*spread_bytes)(hark_context *context, const hark_attention_call *run, const hark_attention_peers *peers, bool backward,
                              size_t *bytes);
  /* Appends the plan's description of tiles; returns like snprintf. */
  int (*print)(const hark_attention_plan *plan, char *text, size_t size);
};

#endif
