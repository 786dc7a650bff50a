/* moments.c - see moments.h. */
#include "train/moments.h"

#include <string.h>

#include "io/checkpoint_files.h"

#define ALIGN_NUMBERS 16 /* every tensor begins on a cache line */

bool hark_moments_have_first(const hark_config *config) {
  return config->train.optimiser == HARK_OPTIMISER_ADAMW || config->train.adafactor.beta1 > 0;
}

hark_status hark_moments_optimiser(hark_context *context, const char *path, const hark_safetensors *file, hark_optimiser *out) {
  const char *const name = hark_safetensors_metadata(file, HARK_OPTIMISER_KEY);
  *out = name == NULL ? HARK_OPTIMISER_ADAMW : HARK_OPTIMISER_ADAFACTOR;
  if (name == NULL || strcmp(name, HARK_OPTIMISER_FACTORED) == 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: has the moments of optimiser \"%.40s\", expected %s, or none named", path, name,
                   HARK_OPTIMISER_FACTORED);
}

hark_status hark_moments_check_optimiser(hark_context *context, const char *path, const hark_safetensors *file, const hark_config *config) {
  hark_optimiser stored;
  HARK_TRY(hark_moments_optimiser(context, path, file, &stored));
  if ((int)stored == config->train.optimiser) return HARK_OK;
  const bool factored = stored == HARK_OPTIMISER_ADAFACTOR;
  return hark_fail(context, HARK_BAD_FILE, "%s: has the moments of %s, expected those of %s", path, factored ? "adafactor" : "adamw",
                   factored ? "adamw" : "adafactor");
}

bool hark_moments_are_factored(const hark_config *config, int rank, const int64_t *shape) {
  const int64_t least = config->train.adafactor.factor_from;
  return config->train.optimiser == HARK_OPTIMISER_ADAFACTOR && rank == 2 && shape[0] >= least && shape[1] >= least;
}

static int64_t take(int64_t count, int64_t *end) {
  const int64_t first = *end;
  *end += hark_ceil_div(count, ALIGN_NUMBERS) * ALIGN_NUMBERS;
  return first;
}

hark_moment_place hark_moment_place_next(const hark_config *config, const hark_parameter *parameter, int64_t *end) {
  hark_moment_place place = {.first_too = hark_moments_have_first(config), .first = parameter->first, .second = parameter->first};
  if (config->train.optimiser == HARK_OPTIMISER_ADAMW) return place;
  place.factored = hark_moments_are_factored(config, parameter->spec.rank, parameter->spec.shape);
  place.second = take(place.factored ? parameter->spec.shape[0] : parameter->count, end);
  if (place.factored) place.columns = take(parameter->spec.shape[1], end);
  return place;
}

int64_t hark_moment_numbers(const hark_config *config, const hark_parameters *parameters) {
  int64_t end = 0;
  for (int32_t i = 0; i < parameters->count; i++) (void)hark_moment_place_next(config, &parameters->list[i], &end);
  return end;
}

int hark_moment_tensors(const hark_moment_place *place, int rank, const int64_t *shape, hark_moment_tensor out[HARK_MOMENT_TENSORS]) {
  hark_moment_tensor like = {.rank = rank};
  int count = 0;
  memcpy(like.shape, shape, (size_t)rank * sizeof *shape);
  if (place->first_too) {
    out[count] = like;
    out[count].prefix = HARK_FIRST_MOMENT;
    out[count].first = place->first;
    out[count++].which = HARK_MOMENT_FIRST;
  }
  like.which = HARK_MOMENT_SECOND;
  like.prefix = HARK_SECOND_MOMENT;
  like.first = place->second;
  if (place->factored) {
    out[count++] = (hark_moment_tensor){
        .prefix = HARK_ROW_MOMENT, .which = HARK_MOMENT_SECOND, .first = place->second, .rank = 1, .shape = {shape[0]}};
    like = (hark_moment_tensor){
        .prefix = HARK_COLUMN_MOMENT, .which = HARK_MOMENT_SECOND, .first = place->columns, .rank = 1, .shape = {shape[1]}};
  }
  out[count++] = like;
  return count;
}
