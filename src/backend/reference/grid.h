/* grid.h - shared by forward and backward of the reference's hierarchical attention over pictures: one head of one sequence.
 *
 * Arrays over cells store one level after another, the cells of a level row by row: cell (r, c) of level l is at first[l] + r width + c.
 */
#ifndef HARK_BACKEND_REFERENCE_GRID_H
#define HARK_BACKEND_REFERENCE_GRID_H

#include "backend/grid.h"
#include "backend/reference/dense_entry.h"

/* All data of a task, in its worker's scratch memory. */
typedef struct grid_head {
  dense_head at; /* the current head */
  hark_grid grid;
  bool exact;
  int64_t first[HARK_GRID_MAX_LEVELS + 1];
  double *key, *value, *key_count; /* [cells][d], [cells][dv], [cells]: means, sums and numbers of the unmasked keys */
  double *query, *query_count;     /* [cells][d], [cells] */
  double *mixed;                   /* [dv]: weighted values of the current row, relative to `highest` */
  double highest, sum;             /* of the current row: the maximum of its logits, its normaliser relative to it */
  /* backward */
  double mean_gradient;           /* of the current row: dout . out */
  double *dquery, *dkey, *dvalue; /* [cells][d], [cells][d], [cells][dv] */
} grid_head;

hark_status hark_grid_doubles(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out);
grid_head hark_grid_place(const hark_attention_call *run, bool backward, double *memory);

/* Compute the cells of keys and values of a key head, and of queries of a head. */
void hark_grid_keys(grid_head *t, const hark_attention_call *run, int64_t sequence, int64_t key_head);
void hark_grid_queries(grid_head *t, int64_t head);

/* One entry of row n: a key cell of a level. `query` and `key`: indices in the arrays. */
typedef struct grid_entry {
  int64_t query, key;
  double logit, factor; /* factor: of dropout */
} grid_entry;

/* Calls visit for every entry of pixel n that no mask hides. */
typedef void grid_visit(grid_head *t, int64_t n, const grid_entry *entry);
void hark_grid_row(grid_head *t, int64_t n, grid_visit *visit);

/* Computes highest, sum and mixed of pixel n. False if it is no query or sees no key. */
bool hark_grid_row_forward(grid_head *t, int64_t n);

hark_status hark_grid_backward(hark_context *context, const hark_attention_call *run);

#endif
