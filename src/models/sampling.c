/* sampling.c - see sampling.h. Cost: O(V log V). */
#include "models/sampling.h"

#include <math.h>
#include <stdlib.h>

typedef struct candidate {
  double weight;
  float logit;
  int32_t token;
} candidate;

static int likelier_first(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
  return (a->token > b->token) - (a->token < b->token);
}

size_t hark_sampling_scratch_bytes(int64_t vocabulary) { return (size_t)vocabulary * sizeof(candidate); }

hark_status hark_sampling_choose(hark_context *context, const hark_sampling *sampling, const float *logits, int64_t vocabulary,
                                 int32_t first_allowed, uint64_t index, void *scratch, int32_t *token) {
  candidate *candidates = scratch;
  int64_t count = 0;
  for (int64_t i = first_allowed; i < vocabulary; i++) {
    if (!isfinite(logits[i])) return hark_fail(context, HARK_NOT_FINITE, "the logit of token %lld is not finite", (long long)i);
    candidates[count++] = (candidate){.logit = logits[i], .token = (int32_t)i};
  }
  if (count == 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "there is no token to choose from");
  qsort(candidates, (size_t)count, sizeof *candidates, likelier_first);
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
