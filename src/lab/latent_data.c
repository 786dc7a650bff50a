/* latent_data.c - see latent_data.h. */
#include "lab/latent_data.h"

#include "lab/matrix.h"

#define AMPLITUDE 0.3

hark_status hark_lab_make_latent_data(hark_lab *lab, hark_lab_latent_data *data) {
  HARK_TRY(hark_lab_numbers(lab, data->count * data->length * data->dim, &data->tokens));
  HARK_TRY(hark_lab_numbers(lab, data->count, &data->means));
  return hark_lab_numbers(lab, data->count, &data->y);
}

void hark_lab_draw_latent_data(const hark_lab *lab, uint32_t stream, int64_t count, hark_lab_latent_data *data) {
  const int64_t length = data->length, d = data->dim;
  hark_lab_normal(lab, stream, count * length * d, data->tokens);
  hark_lab_uniform(lab, stream + 1, count, data->y);
  for (int64_t i = 0; i < count; i++) {
    double *const tokens = data->tokens + i * length * d, latent = 0;
    for (int64_t c = 0; c < d; c++) {
      hark_lab_normal_from(lab, stream + 2, (uint64_t)(i * d + c), 1, &latent);
      if (c == 0) data->means[i] = AMPLITUDE * tanh(latent);
      for (int64_t l = 0; l < length; l++) tokens[l * d + c] += latent;
    }
    for (int64_t l = 0; l < length; l++) {
      const double norm = sqrt(hark_lab_dot(tokens + l * d, tokens + l * d, d));
      for (int64_t c = 0; c < d && norm > 1; c++) tokens[l * d + c] /= norm;
    }
    data->y[i] = data->means[i] + sqrt(HARK_LAB_LABEL_NOISE) * (data->y[i] < 0.5 ? -1 : 1);
  }
}
