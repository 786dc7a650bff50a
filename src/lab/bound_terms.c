/* bound_terms.c - see bound_terms.h. */
#include "lab/bound_terms.h"

hark_status hark_bound_make(hark_lab *lab, hark_bound_network *network) {
  const size_t layers = (size_t)network->layers, heads = (size_t)network->heads;
  void *memory;
  HARK_TRY(hark_lab_allocate(lab, layers * sizeof *network->up, &memory));
  network->up = memory;
  HARK_TRY(hark_lab_allocate(lab, layers * sizeof *network->down, &memory));
  network->down = memory;
  HARK_TRY(hark_lab_allocate(lab, layers * heads * sizeof *network->attention, &memory));
  network->attention = memory;
  HARK_TRY(hark_lab_allocate(lab, heads * sizeof *network->aggregation, &memory));
  network->aggregation = memory;
  return HARK_OK;
}

hark_status hark_bound_press(hark_lab *lab, hark_parameters *parameters, double factor) {
  const int64_t count = hark_tensor_count(&parameters->weights);
  double *numbers;
  HARK_TRY(hark_lab_numbers(lab, count, &numbers));
  HARK_TRY(hark_tensor_read(lab->context, &parameters->weights, numbers));
  for (int64_t i = 0; i < count; i++) numbers[i] *= factor;
  HARK_TRY(hark_tensor_write(lab->context, &parameters->weights, numbers));
  return hark_parameters_project(lab->context, parameters, true);
}

/* Sums over the heads of a layer. */
typedef struct heads_sum {
  double values, value_norms;      /* sum w^v, sum R^v */
  double largest, query_key_norms; /* max (w^q + w^k), sum (R^q + R^k) */
  double squares, mixed;           /* sum (w^q + w^k)^2 w^v, sum (w^q + w^k) w^v (R^q + R^k) */
} heads_sum;

static heads_sum sum_heads(const hark_bound_head *heads, int64_t count) {
  heads_sum s = {0};
  for (int64_t i = 0; i < count; i++) {
    const hark_bound_head *const h = &heads[i];
    const double qk = h->query.a + h->key.a, norms = h->query.b + h->key.b;
    s.values += h->value.a;
    s.value_norms += h->value.b;
    s.largest = hark_lab_larger(s.largest, qk);
    s.query_key_norms += norms;
    s.squares += qk * qk * h->value.a;
    s.mixed += qk * h->value.a * norms;
  }
  return s;
}

/* 0 / 0, for matrices of zeros, is 0. */
static double quotient(double above, double below) { return above == 0 ? 0 : above / below; }

/* Largest r-norm of a row whose mean is 0 and whose mean square is at most 1. */
static double normed_radius(const hark_bound_network *network) {
  const double d = (double)network->width;
  return network->norm == HARK_BOUND_ONE ? d : network->norm == HARK_BOUND_TWO ? sqrt(d) : sqrt(d - 1);
}

/* The divisor of scores: |(q - k).dk| <= |q - k|_2 |dk|_2, and the r-norm is at least the 2-norm for r = 1 and 2; for r = infinity |(q -
 * k).dk| <= d_p |q - k| |dk|. */
static double score_scale(const hark_bound_network *network) {
  return network->norm == HARK_BOUND_INFINITY ? network->sigma_square / (double)network->head_dim : network->sigma_square;
}

double hark_bound_layers(const hark_bound_network *network, double radius, bool skip, bool layer_norm, hark_bound_layer *out) {
  const double one = skip && !network->single ? 1 : 0, scale = score_scale(network);
  if (layer_norm) radius = normed_radius(network);
  for (int64_t t = 0; t < network->layers; t++) {
    const hark_bound_pair x = network->up[t], s = network->single ? (hark_bound_pair){1, 0} : network->down[t];
    const heads_sum h = sum_heads(network->attention + t * network->heads, network->heads);
    const double read = network->single ? hark_lab_larger(radius, 1) : radius; /* in single the query is the class encoding, of norm 1 */
    const double alpha = one + x.a * s.a, omega = one + h.values, inner = layer_norm ? radius : alpha * read;
    const double features = quotient(x.a * s.b + s.a * x.b, alpha), square = radius * radius, inner_square = inner * inner / scale;
    hark_bound_layer *const layer = &out[t];
    *layer = (hark_bound_layer){.radius = radius,
                                .alpha = alpha,
                                .omega = omega,
                                .features = features,
                                .inner_radius = inner,
                                .gamma = hark_lab_larger(alpha, omega),
                                .rho_printed = omega + h.largest * h.largest * h.values * square,
                                .rho = omega + h.squares * inner_square,
                                .mha_printed = h.value_norms + h.largest * h.query_key_norms * square,
                                .mha = h.value_norms + h.mixed * inner_square,
                                .zeta_printed = quotient(h.largest * h.largest * h.value_norms, omega),
                                .zeta = quotient(h.squares, scale * omega)};
    const double both = hark_lab_larger(features, quotient(h.value_norms, omega));
    layer->kappa_printed = hark_lab_larger(both, quotient(h.query_key_norms, h.largest * h.values));
    layer->kappa = hark_lab_larger(both, quotient(h.mixed, h.squares));
    if (!layer_norm) radius *= omega * alpha;
  }
  return radius;
}

/* R_trans: as (C.19) prints it, and with the attention of the last layer and the factor rho / omega of the layer itself, which (C.35)
 * has. */
static double propagated(const hark_bound_network *network, const hark_bound_layer *layers, bool corrected) {
  double sum = 0;
  for (int64_t t = 0; t < network->layers; t++) {
    const hark_bound_layer *const here = &layers[t];
    double later = 1;
    for (int64_t u = corrected ? t : t + 1; u < network->layers; u++)
      later *= quotient(corrected ? layers[u].rho : layers[u].rho_printed, layers[u].omega);
    const double attention = corrected ? quotient(here->mha, here->rho) : quotient(here->mha_printed, here->rho_printed);
    sum += ((corrected || t < network->layers - 1 ? attention : 0) + here->features) * later;
  }
  return sum;
}

static bool ends_with_query(const hark_bound_network *network) { return network->query && !network->single; }

/* Lambda: |attention(W^q msk, X W^k, X W^v)| moves by at most this times |X - X^|, |msk| <= 1. */
static double aggregation_constant(const hark_bound_network *network, double radius) {
  double sum = 0;
  if (!ends_with_query(network)) return 1; /* the mean; in single it is the layer itself */
  for (int64_t i = 0; i < network->heads; i++) {
    const hark_bound_head *const h = &network->aggregation[i];
    sum += h->value.a * (1 + radius / score_scale(network) * (h->query.a + h->key.a * radius) * h->key.a);
  }
  return sum;
}

/* How far the class query's own weights move the pooled row, each moved by its bound. */
static double moved_by_query(const hark_bound_network *network, const hark_bound_layer *layers, double radius) {
  double sum = 0;
  for (int64_t i = 0; i < network->heads && network->query; i++) {
    const hark_bound_head *const h = &(network->single ? network->attention : network->aggregation)[i];
    const double rows = network->single ? layers[0].inner_radius : radius, asking = network->single ? layers[0].alpha : 1;
    const double size = h->value.a * rows / score_scale(network) * (h->query.a * asking + h->key.a * rows);
    sum += size * h->query.a * asking; /* msk */
    if (!network->single) sum += rows * h->value.b + size * (h->query.b + rows * h->key.b);
  }
  return sum;
}

/* |W|_(r,s) of the last W [d_y, d], whose operator norm is at most 1. */
static double head_norm(const hark_bound_network *network) {
  const double least = (double)(network->width < network->responses ? network->width : network->responses);
  return network->norm == HARK_BOUND_ONE ? 1 : network->norm == HARK_BOUND_TWO ? sqrt(least) : least;
}

/* Largest change of a number of the output when every weight moves by its bound times x, over x. The ball does not increase distances in
 * the 2-norm, which is at most sqrt(d_y) times the largest number. */
static double moved_by_all(const hark_bound_network *network, const hark_bound_layer *layers, double last_radius) {
  double values = ends_with_query(network) ? 0 : 1; /* the pooled row has a norm of at most this times R(T) */
  for (int64_t i = 0; i < network->heads && ends_with_query(network); i++) values += network->aggregation[i].value.a;
  const double sum = aggregation_constant(network, last_radius) * last_radius * propagated(network, layers, true) +
                     moved_by_query(network, layers, last_radius) + values * last_radius * head_norm(network);
  return network->norm == HARK_BOUND_INFINITY ? sqrt((double)network->responses) * sum : sum;
}

hark_bound_sum hark_bound_all(const hark_bound_network *network, const hark_bound_layer *layers, double last_radius, double examples) {
  const double t = (double)network->layers, h = (double)network->heads, d = (double)network->width, root = sqrt(examples);
  double widest = d, gamma = 0, kappa = 0, zeta = 0, kappa_printed = 0, zeta_printed = 0, inner = 0;
  const int64_t widths[] = {network->inner, network->head_dim, network->responses};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) widest = hark_lab_larger(widest, (double)widths[i]);
  for (int64_t i = 0; i < network->layers; i++) {
    gamma = hark_lab_larger(gamma, layers[i].gamma);
    kappa = hark_lab_larger(kappa, layers[i].kappa);
    zeta = hark_lab_larger(zeta, layers[i].zeta);
    kappa_printed = hark_lab_larger(kappa_printed, layers[i].kappa_printed);
    zeta_printed = hark_lab_larger(zeta_printed, layers[i].zeta_printed);
    inner = hark_lab_larger(inner, layers[i].inner_radius);
  }
  const double scale = widest * widest / root * sqrt(h * t);
  const double printed =
      t * sqrt(log1p(gamma)) + sqrt(t) * sqrt(log1p(zeta_printed * layers[0].radius)) + sqrt(log1p(quotient(kappa_printed, zeta_printed)));
  const double corrected = t * sqrt(log1p(gamma)) + sqrt(t) * sqrt(log1p(zeta * inner * inner)) +
                           sqrt(log1p(kappa * hark_lab_smaller(t, 1 + 1 / (zeta * inner * inner)))); /* a geometric sum of T terms */
  const double aggregated = d * (double)network->responses + (ends_with_query(network) ? (2 + h) * d * d : 0) + (network->query ? d : 0);
  const double moved = moved_by_all(network, layers, last_radius);
  const double matrices = (network->single ? d * d : 2 * d * (double)network->inner * t) + (2 + h) * d * d * t;
  return (hark_bound_sum){
      .gamma = gamma,
      .kappa = kappa,
      .zeta = zeta,
      .printed = scale * printed,
      .corrected = 2 * scale * corrected,
      .covering_printed = (4 + h) * widest * widest * t * log1p(2 * last_radius * propagated(network, layers, false) * root),
      .covering = (matrices + aggregated) * log1p(2 * moved * root),
      .moved = moved,
      .aggregation = aggregation_constant(network, last_radius)};
}
