/* periodic_text.h - sources of symbols whose dependence on distance is known: drawing a document, and what its best prediction costs.
 *
 * A document has symbols x_0 .. x_(T-1) of an alphabet of A. Let e be the noise, and c ~> y mean that y = c with probability 1 - e, and
 * that y is uniform over the alphabet otherwise: y = c with probability 1 - e + e/A, and every other symbol with e/A.
 *
 *     lag       x_t uniform for t < LAG; then x_(t-LAG) ~> x_t
 *     period    c_0 .. c_(PERIOD-1) uniform, drawn for every document and hidden;  c_(t mod PERIOD) ~> x_t
 *     content   the first M = floor(A / 2) symbols are markers. A marker m is followed by the plain symbol c_m ~> y (over the A - M plain
 *               ones), where c_m followed m when it last occurred; at m's first occurrence y is uniform. All other places are a marker or a
 *               plain symbol, with probability 1/2 each, and uniform among these.
 *     none      x_0 uniform; then x_t is 2 x_(t-1) or 2 x_(t-1) + 1, mod A, with probability (1 - e) / 2 each, and uniform with e
 *
 * In `lag` all information about x_t is at distance LAG; in `period` at the multiples of PERIOD, and more of them predict it better; in
 * `content` at the last occurrence of the marker, whose distance varies; in `none` at distance 1. In `none` every symbol has two
 * predecessors, so that its distribution is uniform, and after log2 A steps without noise nothing is left of a symbol.
 */
#ifndef HARK_DATA_TASKS_PERIODIC_TEXT_H
#define HARK_DATA_TASKS_PERIODIC_TEXT_H

#include "data/tasks/make.h"

#define HARK_PERIODIC_TEXT_ALPHABET 62 /* the largest: a .. z, A .. Z, 0 .. 9 */

typedef enum hark_periodic_kind { HARK_PERIODIC_LAG, HARK_PERIODIC_PERIOD, HARK_PERIODIC_CONTENT, HARK_PERIODIC_NONE } hark_periodic_kind;

typedef struct hark_periodic_text {
  hark_periodic_kind kind;
  int32_t alphabet;    /* 2 .. 62; content: at least 4 */
  int64_t lag, period; /* >= 1, of the kinds with these names */
  double noise;        /* [0, 1] */
} hark_periodic_text;

/* Draws a document: symbols [count]. `scratch` has hark_periodic_text_scratch() numbers. */
int64_t hark_periodic_text_scratch(const hark_periodic_text *text);
void hark_periodic_text_draw(const hark_periodic_text *text, hark_task_random *random, int64_t count, int32_t *symbols, int32_t *scratch);

/* -log of the probability of a document, in nats: what all its symbols cost the best prediction, from all symbols before each. Infinite for
 * an impossible one. O(count + alphabet * period). */
double hark_periodic_text_nats(const hark_periodic_text *text, int64_t count, const int32_t *symbols, int32_t *scratch);

/* The entropy rate: the mean of the nats of the next symbol after infinitely many. In `period` the pattern is then known. */
double hark_periodic_text_rate(const hark_periodic_text *text);

/* The character of a symbol in a file. */
char hark_periodic_text_letter(int32_t symbol);

#endif
