/* special.c - see special.h. */
#include "lab/special.h"

#ifdef HARK_WITH_GSL
#include <gsl/gsl_errno.h>
#include <gsl/gsl_integration.h>
#include <gsl/gsl_sf_bessel.h>
#endif

static hark_status make_rule(hark_lab *lab, int64_t count, double **nodes, double **weights, hark_lab_rule *out) {
  *out = (hark_lab_rule){.count = count};
  HARK_TRY(hark_lab_numbers(lab, count, nodes));
  HARK_TRY(hark_lab_numbers(lab, count, weights));
  out->nodes = *nodes;
  out->weights = *weights;
  return HARK_OK;
}

hark_status hark_lab_trapezoid(hark_lab *lab, int64_t count, double low, double high, hark_lab_rule *out) {
  double *nodes, *weights;
  HARK_TRY(make_rule(lab, count, &nodes, &weights, out));
  for (int64_t i = 0; i < count; i++) {
    nodes[i] = low + (high - low) * (double)i / (double)count;
    weights[i] = (high - low) / (double)count;
  }
  return HARK_OK;
}

#ifdef HARK_WITH_GSL

/* NaN where GSL reports an error, which fails every criterion; GSL's own handler would end the program. */
double hark_lab_bessel(double order, double x) {
  gsl_sf_result result;
  gsl_error_handler_t *const before = gsl_set_error_handler_off();
  const int status = gsl_sf_bessel_Inu_scaled_e(order, x, &result);
  (void)gsl_set_error_handler(before);
  return status == GSL_SUCCESS ? result.val : NAN;
}

hark_status hark_lab_legendre(hark_lab *lab, int64_t count, double low, double high, hark_lab_rule *out) {
  double *nodes, *weights;
  HARK_TRY(make_rule(lab, count, &nodes, &weights, out));
  gsl_integration_glfixed_table *const table = gsl_integration_glfixed_table_alloc((size_t)count);
  if (table == NULL) return hark_fail(lab->context, HARK_OUT_OF_MEMORY, "GSL: no memory for %lld nodes", (long long)count);
  for (int64_t i = 0; i < count; i++) (void)gsl_integration_glfixed_point(low, high, (size_t)i, &nodes[i], &weights[i], table);
  gsl_integration_glfixed_table_free(table);
  return HARK_OK;
}

#else

double hark_lab_bessel(double order, double x) {
  (void)order;
  (void)x;
  return NAN;
}

hark_status hark_lab_legendre(hark_lab *lab, int64_t count, double low, double high, hark_lab_rule *out) {
  (void)count;
  (void)low;
  (void)high;
  (void)out;
  return hark_fail(lab->context, HARK_UNSUPPORTED, "Gauss-Legendre nodes need GSL, which this build does not have");
}

#endif

double hark_lab_sphere_mean(int64_t dim, double x) {
  const double order = (double)dim / 2;
  return hark_lab_bessel(order, x) / hark_lab_bessel(order - 1, x);
}
