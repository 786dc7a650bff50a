/* latent_network.c - see latent_network.h. */
#include "lab/latent_network.h"

#include <string.h>

#include "lab/matrix.h"

hark_lab_place hark_lab_weight_place(const hark_lab_network *network, hark_lab_weight weight) {
  const int64_t m = network->width;
  const int64_t rows[] = {network->dim, m, m, m, 1};
  const int64_t columns[] = {m, network->head_dim, network->head_dim, network->value_dim, network->value_dim};
  hark_lab_place place = {0, rows[weight], columns[weight]};
  for (int w = 0; w < (int)weight; w++) place.first += rows[w] * columns[w];
  return place;
}

static const double *weight_of(const hark_lab_network *network, const double *weights, hark_lab_weight weight) {
  return weights + hark_lab_weight_place(network, weight).first;
}

hark_status hark_lab_make_network(hark_lab *lab, hark_lab_network *network) {
  hark_attention_desc choice = hark_attention_desc_default();
  const int64_t n = network->most, tokens = n * network->length;
  const hark_lab_place last = hark_lab_weight_place(network, HARK_LAB_U);
  choice.kernel = HARK_KERNEL_RBF;
  choice.sigma = sqrt(network->variance);
  network->weights = last.first + last.columns;
  network->batch =
      (hark_lab_batch){.batch = n, .queries = 1, .length = network->length, .head_dim = network->head_dim, .value_dim = network->value_dim};
  HARK_TRY(hark_lab_make_batch(lab, &choice, &network->batch));
  HARK_TRY(hark_lab_numbers(lab, tokens * network->width, &network->features));
  HARK_TRY(hark_lab_numbers(lab, tokens * network->width, &network->slopes));
  HARK_TRY(hark_lab_numbers(lab, n * network->width, &network->of_masks));
  HARK_TRY(hark_lab_numbers(lab, n * network->width, &network->of_mask_slopes));
  return hark_lab_numbers(lab, n, &network->f);
}

/* out [rows, m] <- a relu(x A) */
static void make_features(const hark_lab_network *network, int64_t rows, const double *x, const double *weights, double *out) {
  hark_lab_multiply(rows, network->dim, network->width, x, weight_of(network, weights, HARK_LAB_A), out);
  for (int64_t i = 0; i < rows * network->width; i++) out[i] = out[i] > 0 ? network->feature_scale * out[i] : 0;
}

hark_status hark_lab_network_forward(hark_context *context, hark_lab_network *network, const hark_lab_sequences *data,
                                     const double *weights) {
  const int64_t n = data->count, tokens = n * network->length, m = network->width, dp = network->head_dim, dv = network->value_dim;
  const int64_t masks = data->one_mask ? 1 : n;
  hark_lab_batch *const batch = &network->batch;
  make_features(network, tokens, data->tokens, weights, network->features);
  make_features(network, masks, data->masks, weights, network->of_masks);
  hark_lab_multiply(masks, m, dp, network->of_masks, weight_of(network, weights, HARK_LAB_WQ), batch->query);
  for (int64_t i = masks; i < n; i++) memcpy(batch->query + i * dp, batch->query, (size_t)dp * sizeof *batch->query);
  hark_lab_multiply(tokens, m, dp, network->features, weight_of(network, weights, HARK_LAB_WK), batch->key);
  hark_lab_multiply(tokens, m, dv, network->features, weight_of(network, weights, HARK_LAB_WV), batch->value);
  HARK_TRY(hark_lab_batch_forward(context, batch, n));
  for (int64_t i = 0; i < n; i++) {
    const double t = network->output_scale * hark_lab_dot(weight_of(network, weights, HARK_LAB_U), batch->out + i * dv, dv);
    network->f[i] = network->unbounded ? t : 0.5 * tanh(2 * t);
  }
  return HARK_OK;
}

/* gradient <- gradient + the gradient of A from dN [rows, m]: N = a relu(x A). dN is overwritten. */
static void add_to_features(const hark_lab_network *network, int64_t rows, const double *x, const double *features, double *dfeatures,
                            double *gradient) {
  for (int64_t i = 0; i < rows * network->width; i++) dfeatures[i] = features[i] > 0 ? network->feature_scale * dfeatures[i] : 0;
  hark_lab_add_left_transposed(network->dim, rows, network->width, x, dfeatures,
                               gradient + hark_lab_weight_place(network, HARK_LAB_A).first);
}

hark_status hark_lab_network_backward(hark_context *context, hark_lab_network *network, const hark_lab_sequences *data,
                                      const double *weights, const double *df, double *gradient) {
  const int64_t n = data->count, tokens = n * network->length, m = network->width, dp = network->head_dim, dv = network->value_dim;
  const int64_t masks = data->one_mask ? 1 : n;
  hark_lab_batch *const batch = &network->batch;
  double *places[HARK_LAB_WEIGHTS];
  for (int w = 0; w < HARK_LAB_WEIGHTS; w++) places[w] = gradient + hark_lab_weight_place(network, (hark_lab_weight)w).first;
  memset(gradient, 0, (size_t)network->weights * sizeof *gradient);
  for (int64_t i = 0; i < n; i++) { /* f = tanh(2 t) / 2,  t = b u.o */
    const double dt = df[i] * network->output_scale * (network->unbounded ? 1 : 1 - 4 * network->f[i] * network->f[i]);
    for (int64_t c = 0; c < dv; c++) {
      places[HARK_LAB_U][c] += dt * batch->out[i * dv + c];
      batch->dout[i * dv + c] = dt * weight_of(network, weights, HARK_LAB_U)[c];
    }
  }
  HARK_TRY(hark_lab_batch_backward(context, batch, n));
  for (int64_t i = masks; i < n; i++)
    for (int64_t c = 0; c < dp; c++) batch->dquery[c] += batch->dquery[i * dp + c];
  /* q = N(msk) W^q,  k = N W^k,  v = N W^v */
  hark_lab_add_left_transposed(m, masks, dp, network->of_masks, batch->dquery, places[HARK_LAB_WQ]);
  hark_lab_add_left_transposed(m, tokens, dp, network->features, batch->dkey, places[HARK_LAB_WK]);
  hark_lab_add_left_transposed(m, tokens, dv, network->features, batch->dvalue, places[HARK_LAB_WV]);
  memset(network->slopes, 0, (size_t)(tokens * m) * sizeof *network->slopes);
  memset(network->of_mask_slopes, 0, (size_t)(masks * m) * sizeof *network->of_mask_slopes);
  hark_lab_add_right_transposed(masks, dp, m, batch->dquery, weight_of(network, weights, HARK_LAB_WQ), network->of_mask_slopes);
  hark_lab_add_right_transposed(tokens, dp, m, batch->dkey, weight_of(network, weights, HARK_LAB_WK), network->slopes);
  hark_lab_add_right_transposed(tokens, dv, m, batch->dvalue, weight_of(network, weights, HARK_LAB_WV), network->slopes);
  add_to_features(network, masks, data->masks, network->of_masks, network->of_mask_slopes, gradient);
  add_to_features(network, tokens, data->tokens, network->features, network->slopes, gradient);
  return HARK_OK;
}

hark_status hark_lab_network_loss(hark_context *context, hark_lab_network *network, const hark_lab_sequences *data, const double *y,
                                  const double *weights, double *residuals, double *loss, double *gradient) {
  HARK_TRY(hark_lab_network_forward(context, network, data, weights));
  *loss = 0;
  for (int64_t i = 0; i < data->count; i++) {
    const double error = network->f[i] - y[i];
    *loss += error * error / (double)data->count;
    residuals[i] = 2 * error / (double)data->count;
  }
  return gradient == NULL ? HARK_OK : hark_lab_network_backward(context, network, data, weights, residuals, gradient);
}

void hark_lab_network_project(const hark_lab_network *network, double bound, double *weights) {
  for (int w = 0; w < HARK_LAB_WEIGHTS; w++) {
    const hark_lab_place place = hark_lab_weight_place(network, (hark_lab_weight)w);
    double *const weight = weights + place.first;
    if (w != HARK_LAB_U) {
      hark_lab_cut_norm(place.rows, place.columns, bound, weight);
      continue;
    }
    const double norm = sqrt(hark_lab_dot(weight, weight, place.columns));
    for (int64_t c = 0; c < place.columns && norm > 1; c++) weight[c] /= norm;
  }
}
