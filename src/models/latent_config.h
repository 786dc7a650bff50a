/* latent_config.h - options of the models of the latent-variable paper (X, arXiv 2212.14852), besides those of all networks. */
#ifndef HARK_MODELS_LATENT_CONFIG_H
#define HARK_MODELS_LATENT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define HARK_LATENT_FORM_WORDS "transformer|single"
#define HARK_LATENT_AGGREGATE_WORDS "query|mean"
typedef enum hark_latent_form { HARK_LATENT_FORM_TRANSFORMER, HARK_LATENT_FORM_SINGLE } hark_latent_form;
typedef enum hark_latent_aggregate { HARK_LATENT_AGGREGATE_QUERY, HARK_LATENT_AGGREGATE_MEAN } hark_latent_aggregate;

typedef struct hark_latent_config {
  int form;                          /* hark_latent_form */
  int aggregate;                     /* hark_latent_aggregate */
  bool skip;                         /* HARK_LATENT_FORM_TRANSFORMER: skip connections */
  int norm;                          /* hark_bound_norm */
  double operator_norm, matrix_norm; /* bounds on every matrix; 0: no bound */
  double range;                      /* radius of the ball that outputs are projected to; 0: none */
} hark_latent_config;

#define HARK_FINITE_MAP_WORDS "linear|network"
typedef enum hark_finite_map { HARK_FINITE_MAP_LINEAR, HARK_FINITE_MAP_NETWORK } hark_finite_map;

typedef struct hark_finite_config {
  int map;            /* hark_finite_map, of tokens to covariates and responses */
  int64_t covariates; /* features of a covariate */
  double ridge;       /* the initial value where it is learned */
  bool ridge_learned;
} hark_finite_config;

#endif
