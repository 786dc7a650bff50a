/* make_vectors.c - see make_vectors.h. */
#include "data/tasks/make_vectors.h"

#include <math.h>
#include <string.h>

#include "data/formats/vector_file.h"

#define TWO_PI 6.283185307179586
#define USUAL_TOKENS 16
#define NUMBERS_MAX ((int64_t)1 << 22) /* per example: a pair of normal numbers uses one counter, and z and noise need as many again */

#define AT(field) offsetof(hark_vector_values, field)
static const hark_option options[] = {
    {"tokens", "tokens", HARK_OPTION_INT, AT(tokens), "0", "[0, 1048575]", NULL, NULL,
     "latent, regression, periodic-text, regression-tasks: number of tokens in an example, or of rows in a table; 0 means 16, 1024 for "
     "periodic-text and 64 for tables",
     "$1 make, $2 latent|regression|periodic-text|regression-tasks"},
    {"features", "features", HARK_OPTION_INT, AT(features), "4", "[1, 1024]", NULL, NULL, "latent: number of features of a token",
     "$1 make, $2 latent"},
    {"covariates", "covariates", HARK_OPTION_INT, AT(covariates), "8", "[1, 1024]", NULL, NULL,
     "regression, regression-tasks: number of features of a covariate, or of inputs of a row", "$1 make, $2 regression|regression-tasks"},
    {"responses", "responses", HARK_OPTION_INT, AT(responses), "1", "[1, 1024]", NULL, NULL,
     "latent, regression: number of responses to predict", "$1 make, $2 latent|regression"},
    {"spread", "spread", HARK_OPTION_FLOAT, AT(spread), "0.25", "[0, 1e12]", NULL, NULL,
     "latent: standard deviation of the tokens around the latent variable z", "$1 make, $2 latent"},
    {"frequency", "frequency", HARK_OPTION_FLOAT, AT(frequency), "3", "[0, 1e12]", NULL, NULL,
     "latent: frequency of the sines that are predicted", "$1 make, $2 latent"},
    {"noise", "noise", HARK_OPTION_FLOAT, AT(noise), "0.25", "[0, 1e12]", NULL, NULL,
     "regression, regression-tasks: variance of the noise of responses; periodic-text: probability that a symbol is replaced by a random "
     "one",
     "$1 make, $2 regression|periodic-text|regression-tasks"},
    {"kind", "kind", HARK_OPTION_ENUM, AT(kind), "lag", "lag|period|content|none", NULL, NULL,
     "periodic-text: what predicts a symbol; lag: the symbol that is --lag positions earlier; period: a hidden pattern of "
     "--period symbols; content: what followed the same marker; none: only the previous symbol, without a lag, pattern or marker",
     "$1 make, $2 periodic-text"},
    {"lag", "lag", HARK_OPTION_INT, AT(lag), "16", "[1, 1000000]", NULL, NULL, "periodic-text: distance of the symbol that is repeated",
     "$1 make, $2 periodic-text, kind lag"},
    {"period", "period", HARK_OPTION_INT, AT(period), "12", "[1, 1000000]", NULL, NULL, "periodic-text: number of symbols in the pattern",
     "$1 make, $2 periodic-text, kind period"},
    {"alphabet", "alphabet", HARK_OPTION_INT, AT(alphabet), "16", "[2, 62]", NULL, NULL, "periodic-text: number of different symbols",
     "$1 make, $2 periodic-text"},
    {"prior", "prior", HARK_OPTION_FLOAT, AT(prior), "4", "(0, 1e12]", NULL, NULL,
     "regression: variance of the entries of the coefficients z", "$1 make, $2 regression"},
    {"function", "function", HARK_OPTION_ENUM, AT(function), "gaussian", "gaussian|periodic|network|piecewise|heavy|mixed", NULL, NULL,
     "regression-tasks: functions of the tables; gaussian: draws of a Gaussian process; periodic: sums of sines; network: random "
     "networks; piecewise: constant between cuts; heavy: gaussian with noise of Student's t; mixed: one of these for each table",
     "$1 make, $2 regression-tasks"},
    {"inputs", "inputs", HARK_OPTION_ENUM, AT(inputs), "uniform", "uniform|varied", NULL, NULL,
     "regression-tasks: inputs of the tables; uniform: independent, between -1 and 1; varied: of different number and kinds, correlated, "
     "some missing, with noise of up to --noise",
     "$1 make, $2 regression-tasks"},
    {"label_classes", "label-classes", HARK_OPTION_INT, AT(label_classes), "0", "[0, 256]", NULL, NULL,
     "regression-tasks: the target is a class, one of at most N; 0: a number", "$1 make, $2 regression-tasks"},
    {"scale_least", "scale-least", HARK_OPTION_FLOAT, AT(scale_least), "0.1", "[1e-3, 1e3]", NULL, NULL,
     "regression-tasks: shortest length scale of a function; inputs are between -1 and 1", "$1 make, $2 regression-tasks"},
    {"scale_most", "scale-most", HARK_OPTION_FLOAT, AT(scale_most), "1", "[1e-3, 1e3]", NULL, NULL,
     "regression-tasks: longest length scale", "$1 make, $2 regression-tasks"},
};
#undef AT
const hark_option_table hark_task_vectors_options = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(hark_vector_values),
                                                     false};

void hark_task_random_normals(hark_task_random *random, double out[2]) {
  const double length = sqrt(-2 * log1p(-hark_task_random_uniform(random))), angle = TWO_PI * hark_task_random_uniform(random);
  out[0] = length * cos(angle);
  out[1] = length * sin(angle);
}

void hark_task_fill_normal(hark_task_random *random, double deviation, int64_t count, double *out) {
  for (int64_t i = 0; i < count; i += 2) {
    double pair[2];
    hark_task_random_normals(random, pair);
    out[i] = deviation * pair[0];
    if (i + 1 < count) out[i + 1] = deviation * pair[1];
  }
}

void hark_vector_to_ball(double radius, int64_t count, double *x) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
  const double factor = sum > radius * radius ? radius / sqrt(sum) : 1;
  for (int64_t i = 0; i < count; i++) x[i] *= factor;
}

void hark_vectors_settle_tokens(hark_vector_values *values) {
  if (values->tokens == 0) values->tokens = USUAL_TOKENS;
}

hark_status hark_vectors_settle(hark_context *context, int64_t tokens, int64_t features, int64_t responses) {
  const int64_t numbers = tokens * features + responses; /* bounded by the options: below 2^31 */
  if (numbers <= NUMBERS_MAX) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "--tokens: %lld tokens of %lld numbers, expected at most %lld numbers per example",
                   (long long)tokens, (long long)features, (long long)NUMBERS_MAX);
}

hark_status hark_vectors_begin(int64_t tokens, int64_t features, int64_t responses, int64_t count, hark_text *out) {
  unsigned char bytes[HARK_VECTORS_HEADER_BYTES];
  hark_vectors_header(HARK_VECTORS_MAGIC, tokens, features, responses, count, bytes);
  hark_text_append_bytes(out, (const char *)bytes, sizeof bytes);
  return out->status;
}

unsigned char *hark_vectors_write(const double *numbers, int64_t count, unsigned char *out) {
  for (int64_t i = 0; i < count; i++) {
    const float number = (float)numbers[i];
    memcpy(out, &number, sizeof number);
    out += sizeof number;
  }
  return out;
}
