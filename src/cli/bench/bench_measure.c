/* bench_measure.c - clock, statistics, the machine's peak and bandwidth, and the loop that alternates them with the measurement of a
 * case. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "cli/bench/bench.h"
#include "cli/threads.h"
#include "core/parallel.h"
#include "io/machine.h"

#define MEMORY_BYTES ((size_t)256 << 20) /* more than a program gets of any last-level cache that we know */
#define SHORTEST_SECONDS 0.004 /* a measurement repeats its work until it lasts this long, so that clock and start are negligible */
#define NORMAL_PERIOD 65537
#define MIB 1048576.0
#define SINGLE_MEASUREMENTS 3 /* of one thread's peak; the best of them */
#define SHARING 0.6           /* of the peak of all cores together: less means fewer cores, or cores in use by others */

struct hark_bench_machine {
  const hark_cpu_isa *isa;
  int threads;
  int64_t peak_repetitions;
  float *memory;
  int64_t memory_count; /* floats per thread */
  double *results;      /* a cache line for each thread */
  double single;        /* operations per second of one thread; 0: not measured yet */
  bool bf16;            /* the peak is that of dot products of bf16 */
};

#define RESULT_STRIDE (HARK_ALIGNMENT / sizeof(double))

double hark_bench_bytes(const hark_tensor *tensors, int count) {
  double bytes = 0;
  for (int i = 0; i < count; i++) {
    if (tensors[i].type != HARK_NONE) bytes += (double)hark_tensor_count(&tensors[i]) * (double)hark_type_bytes(tensors[i].type);
  }
  return bytes;
}

double hark_bench_now(void) { return hark_machine_seconds(); }

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(const double *sorted, int64_t count, double q) {
  const double at = q * (double)(count - 1);
  const int64_t low = (int64_t)at, high = hark_min(low + 1, count - 1);
  return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

hark_bench_summary hark_bench_summarise(double *values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return (hark_bench_summary){
      .median = quantile(values, count, 0.5),
      .least = values[0],
      .spread = quantile(values, count, 0.75) - quantile(values, count, 0.25),
  };
}

/* ---- the machine ---- */

typedef double peak_operations(int64_t repetitions);

static peak_operations *peak_function(const hark_bench_machine *machine) {
  return machine->bf16 ? machine->isa->peak_bf16_operations : machine->isa->peak_operations;
}

bool hark_bench_machine_use_bf16(hark_bench_machine *machine, bool bf16) {
  machine->single = 0;
  machine->bf16 = bf16 && machine->isa->has_bf16_dots();
  return machine->bf16 == bf16;
}

static void peak_task(void *data, int64_t index, int worker) {
  hark_bench_machine *machine = data;
  (void)worker;
  machine->results[(size_t)index * RESULT_STRIDE] = peak_function(machine)(machine->peak_repetitions);
}

static void memory_task(void *data, int64_t index, int worker) {
  hark_bench_machine *machine = data;
  (void)worker;
  machine->results[(size_t)index * RESULT_STRIDE] =
      machine->isa->read_memory(machine->memory + index * machine->memory_count, machine->memory_count);
}

/* Pages belong to the memory of the core that writes them first. */
static void memory_fill_task(void *data, int64_t index, int worker) {
  hark_bench_machine *machine = data;
  (void)worker;
  memset(machine->memory + index * machine->memory_count, 0, (size_t)machine->memory_count * sizeof(float));
}

/* Operations per second with the current repetitions; its duration in *seconds. */
static double peak_once(hark_context *context, hark_bench_machine *machine, double *seconds) {
  const double start = hark_bench_now();
  hark_parallel_for(context, machine->threads, peak_task, machine);
  *seconds = hark_bench_now() - start;
  double operations = 0;
  for (int i = 0; i < machine->threads; i++) operations += machine->results[(size_t)i * RESULT_STRIDE];
  return operations / *seconds;
}

double hark_bench_machine_peak(hark_context *context, hark_bench_machine *machine) {
  double seconds;
  return peak_once(context, machine, &seconds);
}

double hark_bench_machine_memory(hark_context *context, hark_bench_machine *machine) {
  const double start = hark_bench_now();
  hark_parallel_for_equal(context, machine->threads, memory_task, machine);
  return (double)machine->memory_count * machine->threads * sizeof(float) / (hark_bench_now() - start);
}

double hark_bench_machine_scaling(hark_bench_machine *machine, double peak) {
  for (int i = 0; i < SINGLE_MEASUREMENTS && machine->single == 0; i++) {
    const double start = hark_bench_now();
    const double operations = peak_function(machine)(machine->peak_repetitions);
    machine->single = fmax(machine->single, operations / (hark_bench_now() - start));
  }
  return peak / machine->single;
}

const char *hark_bench_scaling_words(const hark_context *context, double scaling, char text[HARK_BENCH_SCALING_BYTES]) {
  const int threads = hark_context_threads(context), cores = context->cores.count;
  const int physical = cores > 0 ? hark_cores_physical(&context->cores, "") : threads;
  const bool shares = (cores > 0 && threads > cores) || scaling < SHARING * (double)hark_min(threads, physical);
  (void)snprintf(text, HARK_BENCH_SCALING_BYTES, "%.2f times one thread's peak%s", scaling,
                 shares ? ": the threads share cores, or the machine is busy" : "");
  return text;
}

const char *hark_bench_machine_isa(const hark_bench_machine *machine) { return machine->isa->name; }

hark_status hark_bench_machine_create(hark_context *context, double seconds_each, bool memory_too, hark_bench_machine **out) {
  *out = NULL;
  void *memory;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_bench_machine), &memory));
  hark_bench_machine *machine = memory;
  *out = machine;
  for (const hark_cpu_isa *const *isa = hark_cpu_isas; *isa != NULL; isa++) {
    if ((*isa)->runs_here()) machine->isa = *isa; /* the best one is last */
  }
  if (machine->isa == NULL) return hark_fail(context, HARK_NO_BACKEND, "bench: no instruction set of the cpu backend runs here");
  machine->threads = hark_context_threads(context);
  HARK_TRY(hark_allocate_zero(context, (size_t)machine->threads * HARK_ALIGNMENT, &memory));
  machine->results = memory;
  if (memory_too) {
    machine->memory_count = (int64_t)(MEMORY_BYTES / sizeof(float)) / machine->threads;
    HARK_TRY(hark_allocate(context, (size_t)machine->memory_count * (size_t)machine->threads * sizeof(float), &memory));
    machine->memory = memory;
    hark_parallel_for_equal(context, machine->threads, memory_fill_task, machine);
  }
  double seconds = 0;
  for (machine->peak_repetitions = 1000; machine->peak_repetitions < INT64_MAX / 4; machine->peak_repetitions *= 2) {
    peak_once(context, machine, &seconds);
    if (seconds >= seconds_each) break;
  }
  return HARK_OK;
}

void hark_bench_machine_destroy(hark_context *context, hark_bench_machine **machine) {
  hark_bench_machine *m = *machine;
  *machine = NULL;
  if (m == NULL) return;
  if (m->results != NULL) hark_release(context, m->results, (size_t)m->threads * HARK_ALIGNMENT);
  if (m->memory != NULL) hark_release(context, m->memory, (size_t)m->memory_count * (size_t)m->threads * sizeof(float));
  hark_release(context, m, sizeof *m);
}

/* ---- cases ---- */

hark_status hark_bench_fill(hark_context *context, hark_tensor *tensor, uint32_t number, double deviation) {
  const int64_t count = hark_tensor_count(tensor), period = hark_min(count, NORMAL_PERIOD);
  const size_t bytes = (size_t)count * hark_type_bytes(tensor->type), normal_bytes = NORMAL_PERIOD * sizeof(double);
  void *normal_memory, *host;
  HARK_TRY(hark_allocate(context, normal_bytes, &normal_memory));
  double *normal = normal_memory;
  hark_status status = hark_allocate(context, bytes, &host);
  if (status == HARK_OK) {
    const hark_random_stream stream = {.seed = number, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
    hark_random_normal(&stream, 0, period, normal);
    for (int64_t i = 0; i < count; i++) {
      const double value = deviation * normal[i % NORMAL_PERIOD];
      if (tensor->type == HARK_F64) {
        ((double *)host)[i] = value;
      } else {
        ((float *)host)[i] = (float)value;
      }
    }
    status = hark_tensor_write(context, tensor, host);
    hark_release(context, host, bytes);
  }
  hark_release(context, normal_memory, normal_bytes);
  return status;
}

typedef hark_status pass(hark_context *context, void *data);

/* Seconds of one pass: the mean of `repetitions` runs; 0: first finds a number that makes a measurement long enough. */
static hark_status time_pass(hark_context *context, pass *run, void *data, int64_t *repetitions, double *seconds) {
  if (run == NULL) return HARK_OK;
  for (int64_t count = *repetitions > 0 ? *repetitions : 1;; count *= 2) {
    const double start = hark_bench_now();
    for (int64_t i = 0; i < count; i++) HARK_TRY(run(context, data));
    *seconds = (hark_bench_now() - start) / (double)count;
    if (*repetitions > 0 || *seconds * (double)count >= SHORTEST_SECONDS) {
      *repetitions = count;
      return HARK_OK;
    }
  }
}

typedef struct rounds {
  double peak[HARK_BENCH_ROUNDS_LIMIT], memory[HARK_BENCH_ROUNDS_LIMIT];
  double forward[HARK_BENCH_ROUNDS_LIMIT], backward[HARK_BENCH_ROUNDS_LIMIT];
  int64_t count;
} rounds;

static hark_status measure(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings,
                           const hark_bench_work *work, rounds *measured) {
  int64_t forward_repetitions = 0, backward_repetitions = 0;
  double seconds = 0;
  HARK_TRY(work->forward(context, work->data));
  if (work->backward != NULL) HARK_TRY(work->backward(context, work->data));
  HARK_TRY(time_pass(context, work->forward, work->data, &forward_repetitions, &seconds));
  HARK_TRY(time_pass(context, work->backward, work->data, &backward_repetitions, &seconds));
  const double start = hark_bench_now();
  int64_t n = 0;
  for (; n < HARK_BENCH_ROUNDS_LIMIT; n++) {
    const bool enough =
        settings->rounds > 0 ? n >= settings->rounds : n >= HARK_BENCH_ROUNDS_LEAST && hark_bench_now() - start >= settings->seconds;
    if (enough) break;
    measured->peak[n] = hark_bench_machine_peak(context, machine);
    HARK_TRY(time_pass(context, work->forward, work->data, &forward_repetitions, &measured->forward[n]));
    HARK_TRY(time_pass(context, work->backward, work->data, &backward_repetitions, &measured->backward[n]));
    measured->memory[n] = hark_bench_machine_memory(context, machine);
  }
  measured->count = n;
  return HARK_OK;
}

/* Adds the results of one direction to the object; `prefix` is "forward" or "backward". */
static int add_direction(json_t *object, const char *prefix, const hark_bench_summary *time, double operations, double peak, bool single) {
  char key[64];
  int failed = 0;
  const struct {
    const char *suffix;
    double value;
  } times[] = {{"_ms", time->median}, {"_min_ms", time->least}, {"_iqr_ms", time->spread}};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    snprintf(key, sizeof key, "%s%s", prefix, times[i].suffix);
    failed |= json_object_set_new(object, key, json_real(times[i].value * 1e3));
  }
  if (operations > 0) {
    snprintf(key, sizeof key, "%s_gflops", prefix);
    failed |= json_object_set_new(object, key, json_real(operations / time->median * 1e-9));
    snprintf(key, sizeof key, "%s_peak_fraction", prefix);
    if (single) failed |= json_object_set_new(object, key, json_real(operations / time->median / peak));
  }
  return failed;
}

hark_status hark_bench_print_json(hark_context *context, json_t *object) {
  char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(7));
  json_decref(object);
  if (text == NULL) return hark_fail(context, HARK_OUT_OF_MEMORY, "bench: no memory for a line of JSON");
  puts(text);
  fflush(stdout);
  free(text);
  return HARK_OK;
}

static void print_direction(const char *name, const hark_bench_summary *time, double operations, double bytes, double peak, bool single) {
  printf("  %-8s %9.3f ms (least %.3f, spread %.3f)", name, time->median * 1e3, time->least * 1e3, time->spread * 1e3);
  if (operations > 0) printf("  %7.1f GFLOP/s", operations / time->median * 1e-9);
  if (operations > 0 && single) printf("  %5.1f %% of peak", 100 * operations / time->median / peak);
  if (bytes > 0) printf("  %6.2f GB/s", bytes / time->median * 1e-9);
  putchar('\n');
}

static hark_status print_rounds(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings,
                                const hark_bench_work *work, rounds *measured) {
  const hark_bench_summary peak = hark_bench_summarise(measured->peak, measured->count);
  const hark_bench_summary memory = hark_bench_summarise(measured->memory, measured->count);
  const hark_bench_summary forward = hark_bench_summarise(measured->forward, measured->count);
  const bool both = work->backward != NULL;
  const hark_bench_summary backward = both ? hark_bench_summarise(measured->backward, measured->count) : (hark_bench_summary){0};
  const int threads = hark_context_threads(context);
  const double scaling = hark_bench_machine_scaling(machine, peak.median);
  if (!settings->json) {
    char words[HARK_BENCH_SCALING_BYTES];
    printf("%s\n", work->name);
    print_direction("forward", &forward, work->forward_operations, work->forward_bytes, peak.median, work->single);
    if (both) print_direction("backward", &backward, work->backward_operations, work->backward_bytes, peak.median, work->single);
    if (work->tensor_bytes > 0)
      printf("  memory   %.1f MiB of tensors, %.1f MiB of workspace\n", work->tensor_bytes / MIB, work->workspace_bytes / MIB);
    printf("  machine  %.1f GFLOP/s, %.1f GB/s; %d threads, %" PRId64 " rounds; %s\n", peak.median * 1e-9, memory.median * 1e-9, threads,
           measured->count, hark_bench_scaling_words(context, scaling, words));
    fflush(stdout);
    return HARK_OK;
  }
  json_t *object = json_object();
  int failed = json_object_set_new(object, "case", json_string(work->name));
  failed |= add_direction(object, "forward", &forward, work->forward_operations, peak.median, work->single);
  if (both) failed |= add_direction(object, "backward", &backward, work->backward_operations, peak.median, work->single);
  const double bytes = work->forward_bytes + (both ? work->backward_bytes : 0);
  failed |= json_object_set_new(object, "bytes_per_second", json_real(bytes / (forward.median + backward.median)));
  if (work->tensor_bytes > 0) {
    failed |= json_object_set_new(object, "tensor_bytes", json_integer((json_int_t)work->tensor_bytes));
    failed |= json_object_set_new(object, "workspace_bytes", json_integer((json_int_t)work->workspace_bytes));
  }
  failed |= json_object_set_new(object, "peak_gflops", json_real(peak.median * 1e-9));
  failed |= json_object_set_new(object, "peak_over_one_thread", json_real(scaling));
  failed |= json_object_set_new(object, "memory_bytes_per_second", json_real(memory.median));
  failed |= json_object_set_new(object, "threads", json_integer(threads));
  failed |= json_object_set_new(object, "rounds", json_integer(measured->count));
  failed |= json_object_set_new(object, "backend", json_string(hark_context_backend(context)));
  failed |= json_object_set_new(object, "instruction_set", json_string(hark_context_instruction_set(context)));
  if (failed != 0) {
    json_decref(object);
    return hark_fail(context, HARK_OUT_OF_MEMORY, "bench: no memory for the result of %s", work->name);
  }
  return hark_bench_print_json(context, object);
}

hark_status hark_bench_work_run(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings,
                                const hark_bench_work *work) {
  void *memory;
  HARK_TRY(hark_allocate(context, sizeof(rounds), &memory));
  rounds *measured = memory;
  measured->count = 0;
  hark_status status = measure(context, machine, settings, work, measured);
  if (status == HARK_OK) status = print_rounds(context, machine, settings, work, measured);
  hark_release(context, memory, sizeof(rounds));
  return status;
}

hark_status hark_bench_machine_run(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings) {
  double peaks[HARK_BENCH_ROUNDS_LIMIT], halves[HARK_BENCH_ROUNDS_LIMIT] = {0}, memories[HARK_BENCH_ROUNDS_LIMIT];
  const double start = hark_bench_now();
  int64_t n = 0;
  for (; n < HARK_BENCH_ROUNDS_LIMIT; n++) {
    const bool enough =
        settings->rounds > 0 ? n >= settings->rounds : n >= HARK_BENCH_ROUNDS_LEAST && hark_bench_now() - start >= settings->seconds;
    if (enough) break;
    if (hark_bench_machine_use_bf16(machine, true)) halves[n] = hark_bench_machine_peak(context, machine);
    (void)hark_bench_machine_use_bf16(machine, false);
    peaks[n] = hark_bench_machine_peak(context, machine);
    memories[n] = hark_bench_machine_memory(context, machine);
  }
  const hark_bench_summary peak = hark_bench_summarise(peaks, n), memory = hark_bench_summarise(memories, n);
  const hark_bench_summary half = hark_bench_summarise(halves, n);
  const int threads = hark_context_threads(context);
  const double scaling = hark_bench_machine_scaling(machine, peak.median);
  if (!settings->json) {
    char words[HARK_BENCH_SCALING_BYTES], source[HARK_THREAD_WORDS_BYTES];
    printf("multiply-adds %8.1f GFLOP/s f32 (spread %.1f), %s\n", peak.median * 1e-9, peak.spread * 1e-9, machine->isa->name);
    if (half.median > 0) printf("dot products  %8.1f GFLOP/s bf16 (spread %.1f)\n", half.median * 1e-9, half.spread * 1e-9);
    printf("memory, read  %8.1f GB/s (spread %.1f)\n", memory.median * 1e-9, memory.spread * 1e-9);
    printf("threads: %s\n", hark_thread_words(context, source));
    printf("%" PRId64 " rounds; %s\n", n, hark_bench_scaling_words(context, scaling, words));
    return HARK_OK;
  }
  json_t *object =
      json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:s, s:i, s:s, s:i, s:I}", "case", "machine", "peak_gflops", peak.median * 1e-9,
                "peak_iqr_gflops", peak.spread * 1e-9, "peak_over_one_thread", scaling, "memory_bytes_per_second", memory.median,
                "memory_iqr_bytes_per_second", memory.spread, "instruction_set", machine->isa->name, "threads", threads, "threads_from",
                context->threads_from, "cores", context->cores.count, "rounds", (json_int_t)n);
  if (object == NULL || json_object_set_new(object, "peak_bf16_gflops", json_real(half.median * 1e-9)) != 0) {
    json_decref(object);
    return hark_fail(context, HARK_OUT_OF_MEMORY, "bench: no memory for the result");
  }
  return hark_bench_print_json(context, object);
}
