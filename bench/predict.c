/* predict.c - milliseconds that predictions of a regressor take (predict.sh): one table of random rows, predicted again and again.
 *
 *   predict RUN THREADS ROWS QUERIES...     a line for each number of queries: ROWS, QUERIES, least and median ms */
#define _POSIX_C_SOURCE 200809L
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LEAST_ROUNDS = 7, MOST_ROUNDS = 101 };
#define SECONDS 2.0 /* for a line, if the least number of rounds takes no longer */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float uniform(void) { return (float)(2.0 * rand() / RAND_MAX - 1); }

static int ascending(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static float *numbers(int64_t count) {
  float *x = malloc((size_t)count * sizeof *x);
  for (int64_t i = 0; x != NULL && i < count; i++) x[i] = uniform();
  return x;
}

static hark_status measure(hark_context *context, const hark_model *model, int64_t rows, int64_t queries) {
  int64_t inputs, targets;
  hark_status status = hark_regressor_describe(context, model, &inputs, &targets);
  if (status != HARK_OK) return status;
  const hark_regressor_options options = {.struct_size = sizeof options, .context_rows = rows, .query_rows = queries};
  hark_regressor *regressor = NULL;
  status = hark_regressor_create(context, model, &options, &regressor);
  if (status != HARK_OK) return status;
  float *known = numbers(rows * (inputs + targets)), *asked = numbers(queries * inputs);
  float *mean = numbers(queries * targets), *variance = numbers(queries * targets);
  for (int64_t i = 0; known != NULL && i < rows; i++) /* a function of the first input, with some noise */
    for (int64_t t = 0; t < targets; t++) {
      float *target = &known[i * (inputs + targets) + inputs + t];
      *target = sinf(5 * known[i * (inputs + targets)]) + 0.1f * *target;
    }
  const hark_regressor_table table = {
      .struct_size = sizeof table, .context_rows = rows, .query_rows = queries, .context = known, .queries = asked};
  double ms[MOST_ROUNDS], spent = 0;
  int count = 0;
  if (known == NULL || asked == NULL || mean == NULL || variance == NULL) status = HARK_OUT_OF_MEMORY;
  while (status == HARK_OK && count < MOST_ROUNDS && (count < LEAST_ROUNDS || spent < SECONDS)) {
    const double start = now();
    status = hark_regressor_run(regressor, &table, mean, variance);
    ms[count] = 1e3 * (now() - start);
    spent += ms[count++] / 1e3;
  }
  if (status == HARK_OK) {
    qsort(ms, (size_t)count, sizeof *ms, ascending);
    printf("%8lld %8lld %9.2f ms  %9.2f ms\n", (long long)rows, (long long)queries, ms[0], ms[count / 2]);
  }
  free(known);
  free(asked);
  free(mean);
  free(variance);
  hark_regressor_destroy(&regressor);
  return status;
}

int main(int count, char **words) {
  if (count < 5) {
    fprintf(stderr, "usage: predict RUN THREADS ROWS QUERIES...\n");
    return 2;
  }
  const hark_context_options options = {.struct_size = sizeof options, .threads = atoi(words[2])};
  hark_context *context = NULL;
  hark_model *model = NULL;
  if (hark_context_create(&options, &context) != HARK_OK) return 1;
  hark_status status = hark_model_load(context, words[1], NULL, &model);
  for (int i = 4; i < count && status == HARK_OK; i++) status = measure(context, model, atoll(words[3]), atoll(words[i]));
  if (status != HARK_OK) fprintf(stderr, "predict: %s\n", hark_context_message(context));
  hark_model_destroy(context, &model);
  hark_context_destroy(&context);
  return status == HARK_OK ? 0 : 1;
}
