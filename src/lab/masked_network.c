/* masked_network.c - see masked_network.h. */
#include "lab/masked_network.h"

#include "lab/gaussian_process.h"
#include "lab/matrix.h"

enum { N = HARK_GAUSSIAN_FEATURES, AT_SIGMA = 0, AT_RIDGE, AT_A };
#define TOLERANCE 1e-6 /* of the gradient */

static int64_t at_p(const hark_lab_masked *m) { return AT_A + m->values * m->features; }

hark_status hark_lab_make_masked(hark_lab *lab, hark_lab_masked *m) {
  hark_attention_desc choice = hark_lab_kernel_ridge(1, 1);
  const hark_attention_desc truth = hark_lab_kernel_ridge(HARK_LAB_MASKED_WIDTH * HARK_LAB_MASKED_WIDTH, HARK_LAB_MASKED_NOISE);
  if (m->softmax) {
    choice = hark_attention_desc_default();
    choice.kernel = HARK_KERNEL_RBF;
    choice.sigma = 1;
  }
  choice.has_ridge = choice.has_sigma = !m->softmax;
  if (!m->softmax) choice.ridge = choice.sigma = 0;
  m->lab = lab;
  m->batch = (hark_lab_batch){.batch = m->count, .queries = 1, .length = m->length, .head_dim = 1, .value_dim = m->values};
  m->exact = m->batch;
  HARK_TRY(hark_lab_make_batch(lab, &choice, &m->batch));
  HARK_TRY(hark_lab_make_batch(lab, &truth, &m->exact));
  m->batch.value = m->exact.value;
  if (!m->softmax) { /* softmax has queries and keys over its sigma */
    m->batch.query = m->exact.query;
    m->batch.key = m->exact.key;
  }
  HARK_TRY(hark_lab_numbers(lab, m->count * m->values, &m->latent));
  HARK_TRY(hark_lab_numbers(lab, m->count * m->targets, &m->target));
  return hark_lab_make_descent(lab, at_p(m) + m->features * m->targets, HARK_LAB_PAIRS, &m->descent);
}

hark_status hark_lab_draw_masked(hark_lab_masked *m, uint32_t stream, double shift) {
  double z[N * HARK_LAB_MASKED_VALUES], phi[N];
  const int64_t length = m->length, values = m->values;
  hark_lab_uniform(m->lab, stream, m->count * length, m->exact.key);
  hark_lab_uniform(m->lab, stream + 1, m->count, m->exact.query);
  hark_lab_normal(m->lab, stream + 2, m->count * length * values, m->exact.value);
  for (int64_t i = 0; i < m->count; i++) {
    hark_lab_normal_from(m->lab, stream + 3, (uint64_t)(i * N * values), N * values, z);
    for (int64_t l = 0; l <= length; l++) {
      double *const c = l < length ? &m->exact.key[i * length + l] : &m->exact.query[i];
      *c = l < length ? 2 * *c - 1 : 2 * *c - 1 + (*c < 0.5 ? shift : -shift); /* inwards, so that it stays in [-1, 1] */
      hark_gaussian_features(*c, HARK_LAB_MASKED_WIDTH, phi);
      for (int64_t v = 0; v < values; v++) {
        const double h = hark_gaussian_value(z + v * N, phi);
        if (l == length)
          m->latent[i * values + v] = h;
        else
          m->exact.value[(i * length + l) * values + v] = h + sqrt(HARK_LAB_MASKED_NOISE) * m->exact.value[(i * length + l) * values + v];
      }
    }
  }
  return hark_lab_batch_forward(m->lab->context, &m->exact, m->count);
}

void hark_lab_start_masked(hark_lab_masked *m, uint32_t stream) {
  hark_lab_normal(m->lab, stream, m->descent.dims, m->descent.x);
  m->descent.x[AT_SIGMA] = m->descent.x[AT_RIDGE] = 0;
}

/* features <- o A of sequence i, f <- features P */
static void apply_row(const hark_lab_masked *m, const double *x, int64_t i, double *features, double *f) {
  const double *const o = m->batch.out + i * m->values, *const p = x + at_p(m);
  for (int64_t k = 0; k < m->features; k++) {
    features[k] = 0;
    for (int64_t v = 0; v < m->values; v++) features[k] += o[v] * x[AT_A + v * m->features + k];
  }
  for (int64_t t = 0; t < m->targets; t++) {
    f[t] = 0;
    for (int64_t k = 0; k < m->features; k++) f[t] += features[k] * p[k * m->targets + t];
  }
}

static hark_status attend(hark_lab_masked *m, const double *x) {
  m->batch.sigma = exp(x[AT_SIGMA]);
  m->batch.ridge = exp(x[AT_RIDGE]);
  for (int64_t i = 0; m->softmax && i < m->count; i++) m->batch.query[i] = m->exact.query[i] / m->batch.sigma;
  for (int64_t i = 0; m->softmax && i < m->count * m->length; i++) m->batch.key[i] = m->exact.key[i] / m->batch.sigma;
  return hark_lab_batch_forward(m->lab->context, &m->batch, m->count);
}

/* df = 2 (f - target) / n;   dP = features' df,   dfeatures = df P',   dA = o' dfeatures,   do = dfeatures A' */
static hark_status evaluate(void *user, const double *x, double *value, double *gradient) {
  hark_lab_masked *const m = user;
  const double *const p = x + at_p(m);
  double features[HARK_LAB_MASKED_FEATURES], f[HARK_LAB_MASKED_TARGETS];
  HARK_TRY(attend(m, x));
  for (int64_t j = 0; j < m->descent.dims; j++) gradient[j] = 0;
  *value = 0;
  for (int64_t i = 0; i < m->count; i++) {
    double dfeatures[HARK_LAB_MASKED_FEATURES] = {0};
    apply_row(m, x, i, features, f);
    for (int64_t t = 0; t < m->targets; t++) {
      const double error = f[t] - m->target[i * m->targets + t], df = 2 * error / (double)m->count;
      *value += error * error / (double)m->count;
      for (int64_t k = 0; k < m->features; k++) {
        gradient[at_p(m) + k * m->targets + t] += features[k] * df;
        dfeatures[k] += df * p[k * m->targets + t];
      }
    }
    for (int64_t v = 0; v < m->values; v++) {
      m->batch.dout[i * m->values + v] = 0;
      for (int64_t k = 0; k < m->features; k++) {
        gradient[AT_A + v * m->features + k] += m->batch.out[i * m->values + v] * dfeatures[k];
        m->batch.dout[i * m->values + v] += dfeatures[k] * x[AT_A + v * m->features + k];
      }
    }
  }
  HARK_TRY(hark_lab_batch_backward(m->lab->context, &m->batch, m->count));
  if (m->softmax) { /* of q / sigma by log sigma: -q / sigma */
    gradient[AT_SIGMA] =
        -hark_lab_dot(m->batch.dquery, m->batch.query, m->count) - hark_lab_dot(m->batch.dkey, m->batch.key, m->count * m->length);
  } else {
    gradient[AT_SIGMA] = m->batch.sigma * m->batch.dsigma;
    gradient[AT_RIDGE] = m->batch.ridge * m->batch.dridge;
  }
  return HARK_OK;
}

hark_status hark_lab_train_masked(hark_lab_masked *m, int evaluations) {
  const hark_lab_objective objective = {.dims = m->descent.dims, .evaluate = evaluate, .user = m};
  return hark_lab_quasi_newton(&objective, evaluations, TOLERANCE, &m->descent);
}

hark_status hark_lab_apply_masked(hark_lab_masked *m, double *features, double *f) {
  HARK_TRY(attend(m, m->descent.x));
  for (int64_t i = 0; i < m->count; i++) apply_row(m, m->descent.x, i, features + i * m->features, f + i * m->targets);
  return HARK_OK;
}
