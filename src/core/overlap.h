/* overlap.h - whether tensors share memory, seen from their places, shapes and strides alone. Nothing is read and nothing is allocated.
 *
 * Views of one buffer often lie in one range of addresses without an element in common, such as queries, keys and values of packed
 * projections. So the question is answered exactly: are there indices i and j with  a + sum of i s = b + sum of j t,  the strides s and t
 * being those of the two tensors. It is a search over one stride after the other, from the largest on, which has no more than two ways to
 * go where each stride is larger than what the smaller ones reach together, as in all layouts that are blocks within blocks. A search of
 * stranger strides that takes too long is given up and answered with no.
 */
#ifndef HARK_CORE_OVERLAP_H
#define HARK_CORE_OVERLAP_H

#include "core/core.h"

/* Bytes that a tensor's elements lie in, [first, end); both 0 where it has none or no data. */
typedef struct hark_span {
  uintptr_t first, end;
} hark_span;
hark_span hark_tensor_span(const hark_tensor *tensor);
static inline hark_span hark_bytes_span(const void *data, size_t bytes) {
  const hark_span span = {(uintptr_t)data, (uintptr_t)data + (data == NULL ? 0 : bytes)};
  return span;
}
static inline bool hark_spans_meet(hark_span a, hark_span b) {
  return a.first < b.end && b.first < a.end && a.first < a.end && b.first < b.end;
}

/* Two indices of the tensor stand for one element, or for elements that overlap: it cannot be written. */
bool hark_tensor_repeats(const hark_tensor *tensor);

/* An element of one overlaps an element of the other. */
bool hark_tensors_share(const hark_tensor *a, const hark_tensor *b);

/* Same numbers in the same places. */
bool hark_tensor_is_same(const hark_tensor *a, const hark_tensor *b);

/* A tensor of `bytes` bytes, for memory that has no shape. */
hark_tensor hark_bytes_tensor(const void *data, size_t bytes);

/* Memory of a call, and what the call does with it. */
typedef struct hark_region {
  const char *name;
  const hark_tensor *tensor;
  hark_span span;
  bool written;
  unsigned kin; /* regions with a bit in common may be exactly the same */
} hark_region;

/* The first of `count` regions that is written and shares memory with another; *other is that one's number. -1: there is none. */
int hark_regions_shared(const hark_region *regions, int count, int *other);

/* Refuses memory of a caller's that is written while other memory, which it overlaps, is still read; `same`: the two may be one. `what`
 * names both ("positional kernel: natural and parameters"). Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_apart(hark_context *context, const char *what, const void *written, size_t written_bytes,
                                             const void *read, size_t read_bytes, bool same);

#endif
