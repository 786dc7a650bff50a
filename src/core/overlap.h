/* overlap.h - detects whether tensors share memory, from their addresses, shapes and strides alone. Nothing is read and nothing is
 * allocated.
 *
 * Views of one buffer are often in one range of addresses without a common element, such as queries, keys and values of packed projections.
 * So the answer is exact: are there indices i and j with  a + sum of i s = b + sum of j t,  where s and t are the strides of the two
 * tensors? The search tries one stride after another, from the largest on. It has at most two ways at each stride that is larger than the
 * reach of all smaller ones together, as in all layouts of blocks within blocks. For other strides the search stops after a limit of steps
 * and answers no.
 */
#ifndef HARK_CORE_OVERLAP_H
#define HARK_CORE_OVERLAP_H

#include "core/core.h"

/* The range of bytes of a tensor's elements, [first, end); both 0 if it has no elements or no data. */
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

/* True if two indices of the tensor address one element, or overlapping elements: it cannot be written. */
bool hark_tensor_repeats(const hark_tensor *tensor);

/* True if an element of one overlaps an element of the other. */
bool hark_tensors_share(const hark_tensor *a, const hark_tensor *b);

/* True if both describe the same numbers at the same addresses. */
bool hark_tensor_is_same(const hark_tensor *a, const hark_tensor *b);

/* A tensor of `bytes` bytes, for memory that has no shape. */
hark_tensor hark_bytes_tensor(const void *data, size_t bytes);

/* Memory of a call, and its use. */
typedef struct hark_region {
  const char *name;
  const hark_tensor *tensor;
  hark_span span;
  bool written;
  unsigned kin; /* regions with a common bit may be exactly the same memory */
} hark_region;

/* The first of `count` regions that is written and shares memory with another; *other is the index of that other region. -1: there is
 * none. */
int hark_regions_shared(const hark_region *regions, int count, int *other);

/* Refuses caller-owned memory that is written if it overlaps other memory that is still read; `same`: the two may be identical. `what`
 * names both ("positional kernel: natural and parameters"). Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_apart(hark_context *context, const char *what, const void *written, size_t written_bytes,
                                             const void *read, size_t read_bytes, bool same);

#endif
