/* compressed.h - shared by forward and backward of the reference's compressed attention: one head of one sequence. */
#ifndef HARK_BACKEND_REFERENCE_COMPRESSED_H
#define HARK_BACKEND_REFERENCE_COMPRESSED_H

#include "backend/chunk_kernel.h"
#include "backend/chunks.h"
#include "backend/reference/dense_entry.h"

typedef enum chunk_entry_kind { CHUNK_KEY, CHUNK_SLOT, CHUNK_GLOBAL } chunk_entry_kind;

/* What a query meets: a key, a slot or a global slot, by its row or number. */
typedef struct chunk_entry {
  double logit, weight;
  double term; /* log G of a key; of a slot, the logarithm of the sum of G over its unmasked rows */
  int64_t index;
  chunk_entry_kind kind;
} chunk_entry;

/* All data of a task, in its worker's memory. */
typedef struct chunk_head {
  dense_head at; /* the current head */
  hark_chunks chunks;
  int64_t chunk;                                    /* of the current row */
  double *slot_key, *slot_value, *slot_count;       /* [slots][d], [slots][dv], [slots]: means of unmasked keys and values, their numbers */
  double *global_key, *global_value, *global_count; /* [G]: of the current chunk */
  double *mixed;                                    /* [dv]: out of the current row */
  double *dslot_key, *dslot_value;                  /* backward */
  double *drow_key, *drow_value;                    /* backward: of every row of the sequence */
  double *row;                                      /* backward: [2 d + dv]: gradients of one entry */
  double *dkernel;                                  /* backward: by distance, of the current head; NULL: none */
  chunk_entry *entry;                               /* of the current row */
  int64_t entries;
  double log_sum; /* of the current row */
} chunk_head;

hark_status hark_compressed_doubles(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out);

/* The scratch of a call: a list of chunks, in the backward the sums of chunk_kernel.h, and the memory of workers. */
typedef struct chunk_task {
  const hark_attention_call *run;
  hark_chunk_list list;
  double *kernel_sums;
  double *memory;
  size_t per_worker;
} chunk_task;
hark_status hark_compressed_begin(hark_context *context, const hark_attention_call *run, bool backward, chunk_task *out);

/* Begins a (sequence, key head): its slots. */
chunk_head hark_compressed_head(const chunk_task *task, int64_t sequence, int64_t key_head, bool backward, int worker);

/* Computes the entries of a row with their weights, log_sum and mixed. False if it sees nothing. Rows come in ascending order. */
bool hark_compressed_row(chunk_head *t, int64_t row);

/* log G at a distance; 0 without a table. */
double hark_compressed_log_kernel(const chunk_head *t, int64_t distance);

/* True if a key of the sequence exists and is not masked. */
bool hark_compressed_sees(const chunk_head *t, int64_t row);

/* The factor of dropout of an entry. */
double hark_compressed_dropout(const chunk_head *t, int64_t row, const chunk_entry *entry);

hark_status hark_compressed_backward(hark_context *context, const hark_attention_call *run);

#endif
