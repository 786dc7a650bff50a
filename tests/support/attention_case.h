/* attention_case.h - cases of attention as strings that can be run again, and the numbers of a case.
 *
 *     dense:B2,H4,K2,L65,S70,D7,V5,causal,bias=1,lengths
 *
 * B batch, H heads, K key heads, L queries, S keys, D head_dim, V value_dim, W window (with "window:"), N block (with "hierarchical:") or
 * rows of a chunk (with "compressed:"),
 * C contextual positions (a table per head; with `cshared` one for all heads),
 * then words: causal, rbf, stick (stick-breaking), bias[=bits], mask[=bits], kernel (a log-kernel table per head), shared (one table for
 * all heads), directed (the table has a number for each direction), forget, dropout=P, offset=N, lengths, ragged, segments,
 * layout=0|1|2 ([B,H,L,d], [B,L,H,d], packed with gaps), misaligned, accumulate, large (logits of 1e4), bf16 (products in f32 runs may be
 * in bf16), hiding (some entries of bias or table are -infinity), roomy[=rows] (a plan for larger sizes, longer by that many rows),
 * expanded (broadcast dimensions of bias, mask and a shared table have their full extent and stride 0), threads=N, seed=N.
 * hierarchical: mean, first, exact (coarse queries), sibling, linear, hbias (a hierarchical bias per head), hshared (one for all), qmask,
 * grid=C (the rows are pixels of a picture with C columns).
 * compressed: slots=C (of a chunk), select=K (slots of a query), kept=N (chunks), globals=G, starts (chunks of N rows and more).
 * bits of bias and mask: 1 broadcast over the batch, 2 heads, 4 queries, 8 keys. Masks of hierarchical and compressed cases have
 * bits 2 and 4.
 */
#ifndef HARK_TESTS_ATTENTION_CASE_H
#define HARK_TESTS_ATTENTION_CASE_H

#include <hark/attention.h>

#define ATTENTION_CASE_BYTES 256

typedef struct attention_case {
  bool is_window, is_hierarchical, is_compressed;
  int64_t batch, heads, key_heads, queries, keys, head_dim, value_dim, window, block, positions, grid, slots, select, kept, globals;
  bool causal, rbf, stick, bias, mask, kernel, shared, forget, lengths, ragged, segments, misaligned, accumulate, large, hiding, roomy,
      expanded, has_offset, mean, first, exact, sibling, linear, hierarchical_bias, hierarchical_shared, query_mask, half,
      contextual_shared, directed, starts;
  int64_t bias_bits, mask_bits, offset, layout, room, threads, seed;
  double dropout;
  char text[ATTENTION_CASE_BYTES];
} attention_case;

/* False when the text is no case; says why on stderr. */
bool attention_case_read(const char *text, attention_case *out);

/* Tensors of a case, inputs and results. */
typedef enum attention_array {
  ARRAY_QUERY,
  ARRAY_KEY,
  ARRAY_VALUE,
  ARRAY_DOUT,
  ARRAY_BIAS,
  ARRAY_LOG_KERNEL,
  ARRAY_FORGET,
  ARRAY_HIERARCHICAL_BIAS,
  ARRAY_CONTEXTUAL,
  ARRAY_OUT,
  ARRAY_LSE,
  ARRAY_DQUERY,
  ARRAY_DKEY,
  ARRAY_DVALUE,
  ARRAY_DBIAS,
  ARRAY_DLOG_KERNEL,
  ARRAY_DFORGET,
  ARRAY_DHIERARCHICAL_BIAS,
  ARRAY_DCONTEXTUAL,
  ARRAY_COUNT
} attention_array;

extern const char *const attention_array_names[ARRAY_COUNT];

/* The table of log G [H or 1, T], or [H or 1, 2 T - 1] of a case that is directed, has log G of a difference of positions, query less key,
 * in this column. */
static inline int64_t attention_kernel_column(const attention_case *is, int64_t columns, int64_t difference) {
  if (is->directed) return (columns - 1) / 2 + difference;
  return difference < 0 ? -difference : difference;
}

/* Row-major doubles; count 0: absent. */
typedef struct attention_numbers {
  int rank;
  int64_t shape[4], count;
  double *data;
} attention_numbers;

/* One case with its numbers, all of which f32 represents exactly. */
typedef struct attention_problem {
  attention_case is;
  attention_numbers array[ARRAY_COUNT];
  double scale, sigma;
  uint8_t *mask; /* of shape mask_shape */
  int64_t mask_shape[4];
  uint8_t *query_mask;                  /* [B, L], or NULL */
  uint8_t *chunk_starts;                /* [B, S], or NULL */
  int64_t *key_lengths;                 /* or NULL */
  int64_t *query_offsets, *key_offsets; /* or NULL */
  int64_t sequences;
  int64_t *segments; /* or NULL */
  hark_random_stream dropout;
  double given_scale;  /* of the descriptor: 0 is the default */
  unsigned accumulate; /* HARK_ACCUMULATE_* */
  unsigned unwanted;   /* bit of a result: not asked for (ARRAY_LSE: absent in a forward without backward) */
} attention_problem;

/* The bit in `accumulate` of a gradient; 0 for other results. */
unsigned attention_accumulate_bit(attention_array array);

/* Reads a case and makes its numbers; fails the test when the text is no case. */
void attention_problem_make(const char *text, attention_problem *out);
void attention_problem_free(attention_problem *problem);

/* Number of the element [a, b, c, d] of an array whose extents may be 1 where it is broadcast. */
int64_t attention_index(const int64_t *shape, int64_t a, int64_t b, int64_t c, int64_t d);

/* Which sequence a query or key row belongs to (-1: none), its number in it, and the position of the sequence's first query. */
typedef struct attention_place {
  int64_t sequence, row, offset, keys;
} attention_place;
attention_place attention_query_place(const attention_problem *problem, int64_t item, int64_t row);
attention_place attention_key_place(const attention_problem *problem, int64_t item, int64_t row);

#endif
