/* trained_ranks.h - numerical ranks of the blocks of attention weights of a trained model, and the errors of hierarchical attention and of
 * windows on the same heads.
 *
 * P [L, L] has the weights that dense attention gives for a head's queries and keys, whatever the model's own structure is. It is divided
 * as in block_ranks.h, with 16 rows in the blocks of the diagonal. A block E of n x n entries has the rank r at eps if r is the least
 * number with
 *
 *     sum_{i > r} sigma_i(E)^2 <= eps^2 |P|_F^2 n^2 / A,      A: entries of all blocks off the diagonal
 *
 * so that all of them together, each replaced by its best approximation of that rank, differ from P by at most eps |P|_F. Source of the
 * hypothesis: Zhu, Soricut, "H-Transformer-1D", section 4.1.
 */
#ifndef HARK_LAB_TRAINED_RANKS_H
#define HARK_LAB_TRAINED_RANKS_H

#include "lab/block_ranks.h"
#include "lab/trained_heads.h"

/* The heads of the model that the options name, for at least 128 tokens and at most 512 (lab->quick: 128). Errors: those of
 * hark_trained_heads_read(). */
HARK_MUST_CHECK hark_status hark_trained_ranks_read(hark_lab *lab, const hark_lab_trained_values *values, hark_trained_heads *out);

/* Adds two tables, of levels and of heads, and two panels. Errors: HARK_NOT_FINITE (weights), those of attention. */
HARK_MUST_CHECK hark_status hark_trained_ranks_measure(hark_lab *lab, const hark_trained_heads *heads);

/* Adds the criteria from the two tables, of which `levels` is the first. */
HARK_MUST_CHECK hark_status hark_trained_ranks_judge(hark_lab *lab, const hark_lab_table *levels);

#endif
