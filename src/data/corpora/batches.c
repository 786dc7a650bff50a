/* batches.c - from sample numbers to windows of text. T tokens, L context, W samples per epoch.
 *
 *     order       epoch     W                       start of sample s;  e = s / W, i = s mod W
 *     random      tokens    floor((T-1)/L)          uniform in [0, T-L) from counter s
 *     random      windows   T-L                     the same
 *     shuffled    tokens    max(1, floor(T/L)-1)    offset(e) + L permute(e, i)
 *     shuffled    windows   T-L                     permute(e, i)
 *     sequential  tokens    floor((T-1)/L)          L i
 *     sequential  windows   T-L                     i
 *
 * The windows of a shuffled epoch have W L + 1 tokens. The rest of the T tokens is slack, L - 1 to 2 L - 2 tokens, and offset(e) is uniform
 * in [0, slack]: borders move from epoch to epoch, and no token is left out of all epochs.
 */
#include "data/corpora/batches.h"

#include <inttypes.h>

#include "core/core.h"
#include "data/permutation.h"

/* Philox streams of the purpose HARK_RANDOM_DATA, distinguished by the layer. */
enum { STREAM_START = 0, STREAM_OFFSET = 1 };

hark_status hark_batches_create(hark_context *context, const hark_corpus *corpus, const hark_batches_settings *settings,
                                hark_batches *out) {
  const int64_t length = settings->context;
  if (length < 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_batches_create: context is %" PRId64 ", expected at least 1", length);
  if (settings->split >= HARK_SPLIT_COUNT || settings->order > HARK_ORDER_SEQUENTIAL || settings->epoch > HARK_EPOCH_WINDOWS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_batches_create: split, order or epoch has an unknown value");
  const int64_t tokens = hark_corpus_counts(corpus, settings->split).tokens;
  if (tokens - 1 < length)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "the %s text has %" PRId64 " tokens, fewer than one window: context %" PRId64 " and one token more",
                     settings->split == HARK_SPLIT_TRAINING ? "training" : "validation", tokens, length);
  *out = (hark_batches){.corpus = corpus, .settings = *settings, .tokens = tokens};
  if (settings->epoch == HARK_EPOCH_WINDOWS)
    out->samples_per_epoch = tokens - length;
  else if (settings->order == HARK_ORDER_SHUFFLED)
    out->samples_per_epoch = hark_max(1, tokens / length - 1);
  else
    out->samples_per_epoch = (tokens - 1) / length;
  return HARK_OK;
}

double hark_batches_epochs(const hark_batches *batches, int64_t samples) { return (double)samples / (double)batches->samples_per_epoch; }

static int64_t shuffled_start(const hark_batches *batches, int64_t sample) {
  const hark_batches_settings *settings = &batches->settings;
  const int64_t per_epoch = batches->samples_per_epoch, length = settings->context;
  const uint32_t epoch = (uint32_t)(sample / per_epoch);
  const int64_t window = hark_permute(settings->seed, epoch, per_epoch, sample % per_epoch);
  if (settings->epoch == HARK_EPOCH_WINDOWS) return window;
  const int64_t slack = batches->tokens - 1 - per_epoch * length;
  return hark_draw_below(settings->seed, STREAM_OFFSET, epoch, slack + 1) + window * length;
}

int64_t hark_batches_start(const hark_batches *batches, int64_t sample) {
  const hark_batches_settings *settings = &batches->settings;
  switch (settings->order) {
    case HARK_ORDER_RANDOM: return hark_draw_below(settings->seed, STREAM_START, (uint64_t)sample, batches->tokens - settings->context);
    case HARK_ORDER_SHUFFLED: return shuffled_start(batches, sample);
    case HARK_ORDER_SEQUENTIAL: break;
  }
  return sample % batches->samples_per_epoch * (settings->epoch == HARK_EPOCH_WINDOWS ? 1 : settings->context);
}

hark_status hark_batches_read(hark_context *context, const hark_batches *batches, int64_t first_sample, int64_t rows, int32_t *inputs,
                              int32_t *targets) {
  const int64_t length = batches->settings.context;
  if (first_sample < 0 || rows < 0 || first_sample > INT64_MAX - rows)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_batches_read: %" PRId64 " rows from sample %" PRId64, rows, first_sample);
  for (int64_t row = 0; row < rows; row++) {
    const int64_t start = hark_batches_start(batches, first_sample + row);
    HARK_TRY(hark_corpus_read(context, batches->corpus, batches->settings.split, start, length, inputs + row * length));
    HARK_TRY(hark_corpus_read(context, batches->corpus, batches->settings.split, start + 1, length, targets + row * length));
  }
  return HARK_OK;
}

hark_status hark_evaluation_create(hark_context *context, const hark_corpus *corpus, const hark_evaluation_settings *settings,
                                   hark_evaluation *out) {
  const int64_t length = settings->context, stride = settings->stride != 0 ? settings->stride : length;
  if (length < 1 || settings->split >= HARK_SPLIT_COUNT)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_evaluation_create: context is %" PRId64 ", expected at least 1", length);
  if (stride < 1 || stride > length)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_evaluation_create: stride is %" PRId64 ", expected 1 to %" PRId64, stride,
                     length);
  if (settings->targets < 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_evaluation_create: targets is %" PRId64 ", expected 0 or more",
                     settings->targets);
  const int64_t tokens = hark_corpus_counts(corpus, settings->split).tokens;
  if (tokens < 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "the %s text has %" PRId64 " tokens, evaluation needs at least two",
                     settings->split == HARK_SPLIT_TRAINING ? "training" : "validation", tokens);
  *out = (hark_evaluation){.corpus = corpus, .settings = *settings, .tokens = tokens};
  out->settings.stride = stride;
  out->targets = settings->targets > 0 ? hark_min(settings->targets, tokens - 1) : tokens - 1;
  out->windows = out->targets > length ? 1 + hark_ceil_div(out->targets - length, stride) : 1;
  return HARK_OK;
}

int64_t hark_evaluation_tokens(const hark_evaluation *evaluation, int64_t window) {
  return hark_min(evaluation->settings.context, evaluation->targets - window * evaluation->settings.stride);
}

/* Fills the row of a window; adds the number of counted targets to *real. */
static hark_status read_window(hark_context *context, const hark_evaluation *evaluation, int64_t window, int32_t *input, int32_t *target,
                               int64_t *real) {
  const hark_evaluation_settings *settings = &evaluation->settings;
  const int64_t length = settings->context;
  const int64_t start = window < evaluation->windows ? window * settings->stride : evaluation->targets;
  const int64_t here = hark_min(length, evaluation->targets - start);
  const int64_t counted_before = window > 0 ? hark_min(length - settings->stride, here) : 0;
  HARK_TRY(hark_corpus_read(context, evaluation->corpus, settings->split, start, here, input));
  HARK_TRY(hark_corpus_read(context, evaluation->corpus, settings->split, start + 1, here, target));
  for (int64_t i = 0; i < counted_before; i++) target[i] = HARK_TARGET_IGNORED;
  for (int64_t i = here; i < length; i++) {
    input[i] = HARK_TOKEN_PADDING;
    target[i] = HARK_TARGET_IGNORED;
  }
  *real += here - counted_before;
  return HARK_OK;
}

hark_status hark_evaluation_read(hark_context *context, const hark_evaluation *evaluation, int64_t first_window, int64_t rows,
                                 int32_t *inputs, int32_t *targets, int64_t *real) {
  const int64_t length = evaluation->settings.context;
  *real = 0;
  if (first_window < 0 || rows < 0 || first_window > INT64_MAX - rows)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_evaluation_read: %" PRId64 " rows from window %" PRId64, rows, first_window);
  for (int64_t row = 0; row < rows; row++)
    HARK_TRY(read_window(context, evaluation, first_window + row, inputs + row * length, targets + row * length, real));
  return HARK_OK;
}
