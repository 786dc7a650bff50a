/* overlap.c - see overlap.h. */
#include "core/overlap.h"

#include <string.h>

#define MOST_TERMS (2 * HARK_MAX_RANK + 1)
#define MOST_STEPS 4096 /* of a search: about ten microseconds */

/* stride * d, d from low to high */
typedef struct term {
  int64_t stride, low, high;
} term;

/* Search for a sum of all terms that equals `target`. Terms are sorted by descending stride, all above 0. */
typedef struct search {
  term terms[MOST_TERMS];
  int count, steps;
  int64_t least[MOST_TERMS + 1], most[MOST_TERMS + 1]; /* bounds of the sum of terms k, k + 1, ... */
  int64_t divisor[MOST_TERMS + 1];                     /* greatest common divisor of all strides from k on */
} search;

static int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static int64_t magnitude(int64_t stride) { return stride >= 0 ? stride : stride == INT64_MIN ? INT64_MAX : -stride; }

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

/* Adds a term; terms with equal strides are merged. */
static void add_term(search *s, int64_t stride, int64_t low, int64_t high) {
  int at = s->count;
  for (int k = 0; k < s->count; k++)
    if (s->terms[k].stride == stride) {
      s->terms[k].low += low;
      s->terms[k].high += high;
      return;
    }
  for (; at > 0 && s->terms[at - 1].stride < stride; at--) s->terms[at] = s->terms[at - 1];
  s->terms[at] = (term){stride, low, high};
  s->count++;
}

/* False if the sums exceed 64 bits, which is impossible for strides in memory. */
static bool prepare(search *s) {
  s->least[s->count] = s->most[s->count] = s->divisor[s->count] = 0;
  for (int k = s->count - 1; k >= 0; k--) {
    const term *t = &s->terms[k];
    int64_t low, high;
    if (__builtin_mul_overflow(t->stride, t->low, &low) || __builtin_add_overflow(low, s->least[k + 1], &s->least[k]) ||
        __builtin_mul_overflow(t->stride, t->high, &high) || __builtin_add_overflow(high, s->most[k + 1], &s->most[k]))
      return false;
    s->divisor[k] = greatest_divisor(t->stride, s->divisor[k + 1]);
  }
  return s->least[0] > INT64_MIN / 4 && s->most[0] < INT64_MAX / 4;
}

/* True if terms from k on can have the sum `target`. The target of each term is between two sums, so nothing overflows. */
static bool find(search *s, int k, int64_t target) { /* NOLINT(misc-no-recursion): its depth is the number of terms */
  if (k == s->count) return target == 0;
  if (target < s->least[k] || target > s->most[k] || target % s->divisor[k] != 0) return false;
  const term *t = &s->terms[k];
  const int64_t first = hark_max(t->low, -floor_divide(s->most[k + 1] - target, t->stride));
  const int64_t last = hark_min(t->high, floor_divide(target - s->least[k + 1], t->stride));
  for (int64_t d = first; d <= last; d++) {
    if (++s->steps > MOST_STEPS) return false;
    if (find(s, k + 1, target - d * t->stride)) return true;
  }
  return false;
}

static bool has_elements(const hark_tensor *tensor) {
  return tensor->type != HARK_NONE && tensor->data != NULL && hark_tensor_count(tensor) > 0;
}

/* The first byte of a tensor that has elements, for positive and negative strides. */
static uintptr_t first_byte(const hark_tensor *tensor) {
  const int64_t width = (int64_t)hark_type_bytes(tensor->type);
  uintptr_t first = (uintptr_t)tensor->data;
  for (int i = 0; i < tensor->rank; i++)
    if (tensor->stride[i] < 0) first -= (uintptr_t)magnitude(tensor->stride[i]) * (uintptr_t)((tensor->shape[i] - 1) * width);
  return first;
}

hark_span hark_tensor_span(const hark_tensor *tensor) {
  hark_span span = {0, 0};
  if (!has_elements(tensor)) return span;
  const uintptr_t width = hark_type_bytes(tensor->type);
  span.first = first_byte(tensor);
  span.end = span.first + width;
  for (int i = 0; i < tensor->rank; i++) {
    span.end += (uintptr_t)magnitude(tensor->stride[i]) * (uintptr_t)(tensor->shape[i] - 1) * width;
  }
  return span;
}

bool hark_tensor_repeats(const hark_tensor *tensor) {
  search s = {.count = 0};
  if (tensor->type == HARK_NONE || hark_tensor_count(tensor) == 0) return false;
  for (int i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] == 1) continue;
    if (tensor->stride[i] == 0) return true;
    const int64_t stride = magnitude(tensor->stride[i]), reach = tensor->shape[i] - 1;
    for (int k = 0; k < s.count; k++)
      if (s.terms[k].stride == stride) return true;
    add_term(&s, stride, -reach, reach);
  }
  if (!prepare(&s)) return false;
  /* Two different indices have a difference; without loss of generality its first part other than 0 is positive. */
  for (int k = s.count - 1; k >= 0; k--) {
    const int64_t stride = s.terms[k].stride;
    for (int64_t d = 1, sum = stride; d <= s.terms[k].high && sum <= s.most[k + 1]; d++, sum += stride)
      if (++s.steps > MOST_STEPS || find(&s, k + 1, -sum)) return s.steps <= MOST_STEPS;
  }
  return false;
}

/* Strides of a tensor in units of `unit` bytes; direction -1 subtracts its indices. False if they exceed 64 bits. */
static bool add_tensor(search *s, const hark_tensor *tensor, int64_t unit, int direction) {
  const int64_t width = (int64_t)hark_type_bytes(tensor->type);
  for (int i = 0; i < tensor->rank; i++) {
    const int64_t reach = tensor->shape[i] - 1;
    int64_t stride;
    if (reach == 0 || tensor->stride[i] == 0) continue;
    if (__builtin_mul_overflow(magnitude(tensor->stride[i]), width / unit, &stride)) return false;
    add_term(s, stride, direction < 0 ? -reach : 0, direction < 0 ? 0 : reach);
  }
  return true;
}

bool hark_tensors_share(const hark_tensor *a, const hark_tensor *b) {
  search s = {.count = 0};
  if (!has_elements(a) || !has_elements(b) || !hark_spans_meet(hark_tensor_span(a), hark_tensor_span(b))) return false;
  const int64_t width_a = (int64_t)hark_type_bytes(a->type), width_b = (int64_t)hark_type_bytes(b->type);
  const int64_t distance = (int64_t)(first_byte(b) - first_byte(a));
  /* Elements of equal width on one grid overlap only if they are the same; otherwise bytes are compared with bytes. */
  const bool grid = width_a == width_b && distance % width_a == 0;
  const int64_t unit = grid ? width_a : 1;
  if (!add_tensor(&s, a, unit, 1) || !add_tensor(&s, b, unit, -1)) return false;
  if (!grid) add_term(&s, 1, -(width_b - 1), width_a - 1);
  return prepare(&s) && find(&s, 0, distance / unit);
}

static bool has_same_strides(const hark_tensor *a, const hark_tensor *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->shape[i] != b->shape[i] || (a->stride[i] != b->stride[i] && a->shape[i] > 1)) return false;
  return true;
}

/* Contiguous tensors with equal numbers of elements may have different shapes, for example views. */
bool hark_tensor_is_same(const hark_tensor *a, const hark_tensor *b) {
  if (a->data != b->data || a->type != b->type || hark_tensor_count(a) != hark_tensor_count(b)) return false;
  return has_same_strides(a, b) || (hark_tensor_is_contiguous(a) && hark_tensor_is_contiguous(b));
}

hark_tensor hark_bytes_tensor(const void *data, size_t bytes) {
  hark_tensor tensor = {.type = HARK_U8, .rank = 1, .shape = {(int64_t)bytes}, .stride = {1}};
  if (data == NULL || bytes == 0) return (hark_tensor){0};
  memcpy(&tensor.data, &data, sizeof data); /* only described, never written */
  return tensor;
}

static bool are_apart(const hark_region *a, const hark_region *b) {
  if (!hark_spans_meet(a->span, b->span)) return true;
  if ((a->kin & b->kin) != 0 && hark_tensor_is_same(a->tensor, b->tensor)) return true;
  return !hark_tensors_share(a->tensor, b->tensor);
}

int hark_regions_shared(const hark_region *regions, int count, int *other) {
  for (int i = 0; i < count; i++)
    for (int k = 0; regions[i].written && k < count; k++) {
      if (k == i || (k < i && regions[k].written) || are_apart(&regions[i], &regions[k])) continue;
      *other = k;
      return i;
    }
  return -1;
}

hark_status hark_check_apart(hark_context *context, const char *what, const void *written, size_t written_bytes, const void *read,
                             size_t read_bytes, bool same) {
  if (!hark_spans_meet(hark_bytes_span(written, written_bytes), hark_bytes_span(read, read_bytes))) return HARK_OK;
  if (same && written == read) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s share memory, expected them apart%s", what,
                   same ? ", or the one exactly in the other's place" : "");
}
