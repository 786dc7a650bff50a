/* hierarchical_stage.h - shared by the ways of dividing the work of hierarchical attention: trees in memory, and pieces of work on a tree.
 * hierarchical_attention.c: all rows are here; hierarchical_spread.c: they are spread over processes.
 */
#ifndef HARK_BACKEND_CPU_ISA_HIERARCHICAL_STAGE_H
#define HARK_BACKEND_CPU_ISA_HIERARCHICAL_STAGE_H

#include "hierarchical_exact.h"

#define HARK_TOKEN_PIECE 256 /* tokens of a level computed at once */

typedef enum hark_stage_kind {
  MAKE_KEYS,
  MAKE_QUERIES,
  MAKE_KEYS_THROUGH, /* all levels up to the first one above the windows */
  MAKE_QUERIES_THROUGH,
  EXACT_SUMS,
  EXACT_SUMS_WINDOW,
  FORWARD,
  BACKWARD,
  BACKWARD_WINDOW,
  EXACT_BEGIN,
  EXACT_PART,
  EXACT_GATHER, /* the index of the piece is the level */
  EXACT_HAND_DOWN,
  GIVE_QUERIES,
  GIVE_KEYS
} hark_stage_kind;

/* Computes a piece: tokens piece * HARK_TOKEN_PIECE and following ones of a level, a window, a root of the forward or a part. */
void HARK_ISA(hark_hierarchical_run_piece)(const hark_tree *tree, hark_stage_kind kind, int level, int64_t piece, int worker);

/* A call without memory and tables. */
hark_hierarchical_call HARK_ISA(hark_hierarchical_make_call)(hark_context *context, const hark_attention_call *run, bool backward);
bool HARK_ISA(hark_hierarchical_tables_requested)(const hark_attention_args *args, bool backward);

/* Bytes of a tree of a call whose rows are spread; sets the call's `tokens` and `coarse`. */
hark_status HARK_ISA(hark_hierarchical_count_spread_tree)(hark_hierarchical_call *call, const hark_hierarchy *h, size_t *bytes);

/* A tree of a (sequence, key head) in the memory of this number. */
hark_tree HARK_ISA(hark_hierarchical_place_tree)(const hark_hierarchical_call *call, int64_t sequence, int64_t key_head, int64_t slot);
/* Sets the rows of a head, tree->head, to the caller's memory where possible, otherwise to ours, as level 0 had them at first. */
void HARK_ISA(hark_hierarchical_place_head)(hark_tree *tree, const hark_level *own);

/* True if all keys and values are finite: means and sums of the coarsest level show this. */
bool HARK_ISA(hark_hierarchical_all_finite)(const hark_tree *tree);

/* hark_attention_algorithm.spread_unit and .spread */
int64_t HARK_ISA(hark_hierarchical_spread_unit)(const hark_attention_desc *desc, int64_t total, char *why, size_t size);
hark_status HARK_ISA(hark_hierarchical_spread)(hark_context *context, const hark_attention_call *run, const hark_attention_peers *peers,
                                               bool backward);
hark_status HARK_ISA(hark_hierarchical_spread_bytes)(hark_context *context, const hark_attention_call *run,
                                                     const hark_attention_peers *peers, bool backward, size_t *bytes);

#endif
