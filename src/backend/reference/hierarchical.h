/* hierarchical.h - shared by forward and backward of the reference's hierarchical attention: one head of one sequence as a tree of tokens.
 *
 * Arrays over tokens store one level after another: token a of level l is at first[l] + a.
 */
#ifndef HARK_BACKEND_REFERENCE_HIERARCHICAL_H
#define HARK_BACKEND_REFERENCE_HIERARCHICAL_H

#include "backend/hierarchy_kernel.h"
#include "backend/kernel_table.h"
#include "backend/reference/dense_entry.h"

/* All data of a task, in its worker's scratch memory. */
typedef struct tree {
  dense_head at; /* the current head */
  hark_hierarchy hierarchy;
  bool exact;
  int64_t first[HARK_HIERARCHY_MAX_LEVELS + 2];
  double *key, *value, *key_count; /* [tokens][d], [tokens][dv], [tokens]: means, sums and numbers of the unmasked keys */
  double *query, *query_count;     /* [tokens][d], [tokens] */
  double *highest, *sum, *mixed;   /* of a row: maximum of its logits, normaliser and weighted values [dv] relative to it */
  /* backward */
  double *least, *least_sum;                /* of a row: highest and sum of the row below it with the least log-sum-exp */
  double *dmixed, *mean_gradient;           /* of a row: its rows' weighted dout [dv] and D */
  double *dquery, *dkey, *dvalue, *dkernel; /* [tokens][d], [tokens][d], [tokens][dv], gradients of the kernel's means */
  double *kernel_memory;
  hark_hierarchy_kernel kernel[2]; /* with log_kernel; [1]: for keys after the query, with directed_kernel */
} tree;

/* Doubles of a worker's tree. */
hark_status hark_tree_doubles(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out);
tree hark_tree_place(const hark_attention_call *run, bool backward, double *memory);

/* Compute the tokens of keys and values of a key head, and of queries of a head. */
void hark_tree_keys(tree *t, const hark_attention_call *run, int64_t sequence, int64_t key_head);
void hark_tree_queries(tree *t, const hark_attention_call *run, int64_t head);

/* Computes log-sum-exp of every row; mixed / sum is the output. Rows without a query keep query_count 0; rows that see no key have highest
 * -infinity. */
void hark_tree_forward(tree *t);

/* One entry: a row of a level meets a key of it. With exact queries `row` is a row of the sequence, otherwise the token. */
typedef struct tree_entry {
  int level;
  int64_t row, query, key; /* query and key: indices of the tokens in the arrays */
  int64_t bias, kernel;    /* indices in the tables */
  int side;                /* of the kernel */
  double logit, factor;    /* factor: of dropout */
} tree_entry;

/* Calls visit for every entry of a row of a level that neither a mask nor a table hides. */
typedef void tree_visit(tree *t, void *data, const tree_entry *entry);
void hark_tree_entries(tree *t, int level, int64_t row, tree_visit *visit, void *data);

/* Row `child` of level - 1 adds two rows of level, its parents, times these coefficients; coefficient 0: no parent. */
typedef struct tree_parents {
  int64_t row[2];
  double coefficient[2];
} tree_parents;
tree_parents hark_tree_parents(const tree *t, int level, int64_t child);

hark_status hark_hierarchical_backward(hark_context *context, const hark_attention_call *run);

#endif
