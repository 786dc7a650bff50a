/* fuzz_positional.c - any text as an expression of positional kernels.
 *
 * What is refused has a column of the text. What is read is printed and read as the same, with the values that it gives and with all
 * initial ones; its logarithms are numbers or -infinity at every distance, and its gradients are finite; memory of the caller's holds the
 * same. */
#include <hark/positional.h>
#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"

#define DISTANCES 9
#define SCRATCH_BYTES ((size_t)2 * HARK_POSITIONAL_COMPONENTS * 1024 + (1u << 16)) /* of an evaluation: 1 KiB for each copy of each part */

/* The canonical form, for free(). */
static char *printed(const hark_positional *kernel, const double *parameters) {
  const size_t length = hark_positional_print(kernel, parameters, NULL, 0);
  char *const text = malloc(length + 1); /* of the exact size: sanitizers watch its end */
  FUZZ_CHECK(text != NULL && hark_positional_print(kernel, parameters, text, length + 1) == length && strlen(text) == length,
             "a text of another length");
  return text;
}

/* parse(print(kernel)) prints the same. */
static void check_printed(hark_context *context, const hark_positional *kernel, const double *parameters) {
  char *const text = printed(kernel, parameters);
  hark_positional *back = NULL;
  FUZZ_CHECK(hark_positional_create(context, text, &back) == HARK_OK, "%s: %s", text, hark_context_message(context));
  char *const again = printed(back, NULL);
  FUZZ_CHECK(strcmp(text, again) == 0, "\"%s\" comes back as \"%s\"", text, again);
  FUZZ_CHECK(hark_positional_parameter_count(back) == hark_positional_parameter_count(kernel), "%s has another number of parameters", text);
  hark_positional_destroy(context, &back);
  free(text);
  free(again);
}

static void check_values(hark_context *context, const hark_positional *kernel, const double *parameters, double *gradient) {
  double distances[DISTANCES] = {0, 0.5, 1, 2, 15, 16, 127, 1e6, HARK_POSITIONAL_LARGEST_DISTANCE};
  static const double weights[DISTANCES] = {1, -1, 1, 1, 1, 1, 1, 1, 1};
  double values[DISTANCES];
  for (int i = 1; i < DISTANCES && hark_positional_is_directed(kernel, NULL); i += 2) distances[i] = -distances[i];
  const int64_t count = hark_positional_parameter_count(kernel);
  FUZZ_CHECK(hark_positional_log(context, kernel, parameters, distances, DISTANCES, values) == HARK_OK, "%s",
             hark_context_message(context));
  for (int i = 0; i < DISTANCES; i++) FUZZ_CHECK(!isnan(values[i]) && values[i] != INFINITY, "log G(%g) is %g", distances[i], values[i]);
  FUZZ_CHECK(hark_positional_gradient(context, kernel, parameters, distances, weights, DISTANCES, gradient) == HARK_OK, "%s",
             hark_context_message(context));
  for (int64_t p = 0; p < count; p++) FUZZ_CHECK(isfinite(gradient[p]), "derivative %lld is %g", (long long)p, gradient[p]);
  (void)hark_positional_is_definite(kernel, parameters, NULL, NULL);
}

static void check_names(const hark_positional *kernel, size_t length) {
  int64_t end = 0;
  for (int i = 0; i < hark_positional_named_count(kernel); i++) {
    const hark_positional_parameter named = hark_positional_named(kernel, i);
    FUZZ_CHECK(named.first == end && named.count > 0, "parameter %d begins at %lld, expected %lld", i, (long long)named.first,
               (long long)end);
    FUZZ_CHECK(named.column >= 1 && (size_t)named.column <= length, "column %d of %zu", named.column, length);
    end += named.count;
  }
  FUZZ_CHECK(end == hark_positional_parameter_count(kernel), "%lld parameters have names", (long long)end);
}

static void check_placed(hark_context *context, const char *text, const hark_positional *kernel) {
  _Alignas(16) unsigned char memory[HARK_POSITIONAL_PLACE_BYTES];
  const hark_positional *placed = NULL;
  if (hark_positional_place(context, text, memory, sizeof memory, &placed) != HARK_OK) return;
  FUZZ_CHECK(kernel != NULL, "\"%s\" is refused in memory of its own", text);
  char *const a = printed(kernel, NULL), *const b = printed(placed, NULL);
  FUZZ_CHECK(strcmp(a, b) == 0, "\"%s\" and \"%s\"", a, b);
  free(a);
  free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  char *const text = malloc(size + 1);
  if (size > 0) memcpy(text, data, size);
  text[size] = '\0';
  hark_positional *kernel = NULL;
  const hark_status status = hark_positional_create(context, text, &kernel);
  fuzz_check_refusal(context, status, HARK_INVALID_ARGUMENT, "positional kernel, column ");
  fuzz_limit(0); /* reading takes the same for every text */
  FUZZ_CHECK((status == HARK_OK) == (kernel != NULL), "a status and a kernel that contradict each other");
  if (status != HARK_OK) {
    const int column = atoi(hark_context_message(context) + strlen("positional kernel, column "));
    FUZZ_CHECK(column >= 1 && (size_t)column <= strlen(text) + 1, "column %d of \"%s\"", column, text);
  }
  check_placed(context, text, kernel);
  if (status == HARK_OK) {
    const int64_t count = hark_positional_parameter_count(kernel);
    const hark_positional_start start = {.struct_size = sizeof start, .length = 1 + (int64_t)size, .heads = 3, .head = (int64_t)size % 3};
    double *const parameters = malloc(2 * ((size_t)count + 1) * sizeof *parameters);
    FUZZ_CHECK(parameters != NULL && hark_positional_initial(context, kernel, &start, parameters) == HARK_OK, "%s",
               hark_context_message(context));
    check_names(kernel, strlen(text));
    check_printed(context, kernel, NULL);
    check_printed(context, kernel, parameters);
    check_values(context, kernel, parameters, parameters + count + 1);
    hark_positional_destroy(context, &kernel);
    free(parameters);
  }
  free(text);
  fuzz_limit(SCRATCH_BYTES);
  fuzz_end();
  return 0;
}
