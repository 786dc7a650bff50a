/* ranges.c - work cut into ranges whose bounds depend on the sizes alone, so that the bits do not depend on the number of threads. */
#include "backend/cpu/ranges.h"

#include <string.h>

#include "core/parallel.h"

/* For exponentials: a piece takes 1.5 microseconds, so that even a few pieces are shared evenly. */
#define EXPONENTIALS (HARK_CPU_GRAIN / 4)
#define EXPONENTIAL_NANOSECONDS 0.35

/* Below this many elements (about ten microseconds of work) waiting for another thread would cost more than it saves. */
#define SERIAL_ELEMENTS (2 * HARK_CPU_GRAIN)

typedef struct ranges {
  const hark_call *call;
  hark_cpu_range *body;
  int64_t count, grain;
} ranges;

static void run_range(void *data, int64_t index, int worker) {
  (void)worker;
  const ranges *r = data;
  r->body(r->call, index * r->grain, hark_min((index + 1) * r->grain, r->count));
}

void hark_cpu_ranges(hark_context *context, const hark_call *call, int64_t count, int64_t grain, int64_t serial, hark_cpu_range *body) {
  ranges r = {.call = call, .body = body, .count = count, .grain = grain};
  const int64_t pieces = hark_ceil_div(count, grain);
  if (count >= serial)
    hark_parallel_for_equal(context, pieces, run_range, &r);
  else
    for (int64_t index = 0; index < pieces; index++) run_range(&r, index, 0);
}

void hark_cpu_elements(hark_context *context, const hark_call *call, int64_t count, hark_cpu_range *body) {
  hark_cpu_ranges(context, call, count, HARK_CPU_GRAIN, SERIAL_ELEMENTS, body);
}

void hark_cpu_exponentials(hark_context *context, const hark_call *call, int64_t count, hark_cpu_range *body) {
  ranges r = {.call = call, .body = body, .count = count, .grain = EXPONENTIALS};
  hark_parallel_for_work(context, hark_ceil_div(count, EXPONENTIALS), EXPONENTIAL_NANOSECONDS * (double)count, run_range, &r);
}

void hark_cpu_rows(hark_context *context, const hark_call *call, int64_t rows, int64_t length, hark_cpu_range *body) {
  const int64_t width = hark_max(length, 1);
  hark_cpu_ranges(context, call, rows, hark_max(1, HARK_CPU_GRAIN / 2 / width), SERIAL_ELEMENTS / width, body);
}

bool hark_cpu_no_gradient(const hark_call *call) {
  if (call->output_gradients[0].type != HARK_NONE) return false;
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    const hark_tensor *gradient = &call->input_gradients[i];
    const size_t bytes = (size_t)hark_tensor_count(gradient) * hark_type_bytes(gradient->type);
    if (hark_cpu_requested(call, i) && !hark_cpu_adds(call, i) && bytes > 0) memset(gradient->data, 0, bytes);
  }
  return true;
}
