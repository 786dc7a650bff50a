/* sampling.c - see sampling.h. Cost: O(V log V). */
#include "models/sampling.h"

#include <math.h>
#include <string.h>

#include "io/number.h"

typedef struct candidate {
  double weight;
  float logit;
  int32_t token;
} candidate;

static bool likelier(const candidate *a, const candidate *b) { return a->logit != b->logit ? a->logit > b->logit : a->token < b->token; }

/* Moves the candidate at `at` down in the heap of `count` candidates, where parents are less likely than their children. */
static void sink(candidate *heap, int64_t at, int64_t count) {
  const candidate sinking = heap[at];
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && likelier(&heap[child], &heap[child + 1])) child++;
    if (!likelier(&sinking, &heap[child])) break;
    heap[at] = heap[child];
  }
  heap[at] = sinking;
}

/* Sorts in place, most likely first, by heapsort (Williams 1964): the C library's qsort may allocate. */
static void sort(candidate *candidates, int64_t count) {
  for (int64_t at = count / 2 - 1; at >= 0; at--) sink(candidates, at, count);
  for (int64_t end = count - 1; end > 0; end--) {
    const candidate least = candidates[0];
    candidates[0] = candidates[end];
    candidates[end] = least;
    sink(candidates, 0, end);
  }
}

static hark_status check(hark_context *context, const hark_sampling *sampling) {
  char number[HARK_NUMBER_BYTES];
  if (!(sampling->temperature >= 0) || isinf(sampling->temperature))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "sampling: temperature is %s, expected [0, inf)",
                     hark_number_print(sampling->temperature, number));
  if (sampling->top_k < 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "sampling: top_k is %lld, expected at least 0", (long long)sampling->top_k);
  if (!(sampling->top_p > 0 && sampling->top_p <= 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "sampling: top_p is %s, expected (0, 1]", hark_number_print(sampling->top_p, number));
  if (!(sampling->min_p >= 0 && sampling->min_p <= 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "sampling: min_p is %s, expected [0, 1]", hark_number_print(sampling->min_p, number));
  return HARK_OK;
}

/* Cuts sorted candidates to those with at least `part` of the weight of the first one. */
static void cut(const candidate *candidates, double part, int64_t *count, double *total) {
  int64_t kept = 0;
  double sum = 0;
  while (kept < *count && candidates[kept].weight >= part * candidates[0].weight) sum += candidates[kept++].weight;
  *count = kept;
  *total = sum;
}

void hark_sampling_penalise(float *logits, int64_t vocabulary, const int32_t *tokens, int64_t count, double penalty, unsigned char *seen) {
  memset(seen, 0, (size_t)vocabulary);
  for (int64_t i = 0; i < count; i++) {
    const int32_t token = tokens[i];
    if (token < 0 || token >= vocabulary || seen[token]) continue;
    seen[token] = 1;
    logits[token] = (float)(logits[token] > 0 ? (double)logits[token] / penalty : (double)logits[token] * penalty);
  }
}

size_t hark_sampling_scratch_bytes(int64_t vocabulary) { return (size_t)vocabulary * sizeof(candidate); }

hark_status hark_sampling_choose(hark_context *context, const hark_sampling *sampling, const float *logits, int64_t vocabulary,
                                 int32_t first_allowed, uint64_t index, void *scratch, int32_t *token) {
  candidate *candidates = scratch;
  int64_t count = 0;
  HARK_TRY(check(context, sampling));
  for (int64_t i = first_allowed; i < vocabulary; i++) {
    if (logits[i] == -INFINITY) continue;
    if (!isfinite(logits[i])) return hark_fail(context, HARK_NOT_FINITE, "the logit of token %lld is not finite", (long long)i);
    candidates[count++] = (candidate){.logit = logits[i], .token = (int32_t)i};
  }
  if (count == 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "there is no token to choose from");
  sort(candidates, count);
  *token = candidates[0].token;
  if (sampling->temperature <= 0) return HARK_OK;
  if (sampling->top_k > 0) count = hark_min(count, sampling->top_k);

  double total = 0;
  for (int64_t i = 0; i < count; i++) {
    candidates[i].weight = exp(((double)candidates[i].logit - (double)candidates[0].logit) / sampling->temperature);
    total += candidates[i].weight;
  }
  if (sampling->top_p < 1) {
    double kept = 0;
    int64_t i = 0;
    while (i < count && kept < sampling->top_p * total) kept += candidates[i++].weight;
    count = i;
    total = kept;
  }
  if (sampling->min_p > 0) cut(candidates, sampling->min_p, &count, &total);
  const hark_random_stream stream = {.seed = sampling->seed, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_SAMPLE)};
  double uniform = 0;
  hark_random_uniform(&stream, index, 1, &uniform);
  double left = uniform * total;
  for (int64_t i = 0; i < count; i++) {
    *token = candidates[i].token;
    left -= candidates[i].weight;
    if (left < 0) break;
  }
  return HARK_OK;
}
