/* bench.h - shared by the benchmarks: cases as strings, measurements that alternate with the machine's peak, results as lines.
 *
 * A case is a piece of work with a forward and perhaps a backward. It is measured in rounds; each round runs the machine's multiply-add
 * peak, its memory bandwidth, the forward and the backward one after the other, because clock frequencies drift within minutes. Reports are
 * medians over the rounds.
 */
#ifndef HARK_CLI_BENCH_BENCH_H
#define HARK_CLI_BENCH_BENCH_H

#include <jansson.h>

#include "core/core.h"
#include "train/config.h"

#define HARK_BENCH_ROUNDS_LIMIT 1000

/* ---- cases: "dense:B1,H8,L4096,D64,causal" ---- */

typedef enum hark_bench_field_type {
  HARK_BENCH_WHOLE,  /* L4096 or L=4096; at least 1 */
  HARK_BENCH_NUMBER, /* dropout=0.1; at least 0 */
  HARK_BENCH_FLAG    /* causal */
} hark_bench_field_type;

/* One possible part of a case. Exactly one of the pointers is set, by type. */
typedef struct hark_bench_field {
  const char *name;
  hark_bench_field_type type;
  int64_t *whole;
  double *number;
  bool *flag;
} hark_bench_field;

/* Length of the name before the colon. */
size_t hark_bench_case_head(const char *text);

/* Reads the text after the colon into the fields. Errors: HARK_INVALID_ARGUMENT; the message says what was expected. */
hark_status hark_bench_case_read(hark_context *context, const char *text, const hark_bench_field *fields, int count);

/* ---- the machine ---- */

typedef struct hark_bench_machine hark_bench_machine;

/* A measurement of the peak takes `seconds_each` and at most twice as long. Without `memory` no buffer for measuring the bandwidth is
 * allocated. The caller destroys *out also after a failure. */
hark_status hark_bench_machine_create(hark_context *context, double seconds_each, bool memory, hark_bench_machine **out);
void hark_bench_machine_destroy(hark_context *context, hark_bench_machine **machine);

/* One measurement, a few hundredths of a second long: operations per second of all threads from registers; bytes per second read from
 * memory. */
double hark_bench_machine_peak(hark_context *context, hark_bench_machine *machine);
/* Which peak is measured from now on: of f32 multiply-adds, or of the processor's dot products of bf16. False: it has none of these, and
 * the peak is that of f32. */
bool hark_bench_machine_use_bf16(hark_bench_machine *machine, bool bf16);
double hark_bench_machine_memory(hark_context *context, hark_bench_machine *machine);
/* The ratio of `peak` to one thread's peak: about the number of threads, or of cores where threads share them. */
double hark_bench_machine_scaling(hark_bench_machine *machine, double peak);
/* "1.98 times one thread's peak", and, where that is too small, that threads share cores or the machine is busy. */
#define HARK_BENCH_SCALING_BYTES 128
const char *hark_bench_scaling_words(const hark_context *context, double scaling, char text[HARK_BENCH_SCALING_BYTES]);
/* The instruction set that the peak was measured with: the best of this machine. */
const char *hark_bench_machine_isa(const hark_bench_machine *machine);

/* ---- measuring ---- */

typedef struct hark_bench_settings {
  int64_t rounds; /* 0: as many as `seconds` allow, at least HARK_BENCH_ROUNDS_LEAST */
  double seconds; /* a case */
  bool json;
} hark_bench_settings;

#define HARK_BENCH_ROUNDS_LEAST 7

typedef struct hark_bench_work {
  const char *name;
  hark_status (*forward)(hark_context *context, void *data);
  hark_status (*backward)(hark_context *context, void *data); /* NULL: none */
  void *data;
  double forward_operations, backward_operations; /* useful ones; 0: not counted */
  double forward_bytes, backward_bytes;           /* read and written, each tensor once */
  double tensor_bytes, workspace_bytes;           /* held: operands, results and their gradients; workspace; 0: not counted */
  bool single;                                    /* f32: operations are compared with the peak */
} hark_bench_work;

/* Measures and prints one line. */
hark_status hark_bench_work_run(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings,
                                const hark_bench_work *work);

/* Median, least and interquartile range of `count` numbers, which are sorted. */
typedef struct hark_bench_summary {
  double median, least, spread;
} hark_bench_summary;
hark_bench_summary hark_bench_summarise(double *values, int64_t count);

/* Bytes of those of `count` tensors that exist. */
double hark_bench_bytes(const hark_tensor *tensors, int count);

/* Seconds of a monotonic clock. */
double hark_bench_now(void);

/* Prints an object as one line and releases it. */
hark_status hark_bench_print_json(hark_context *context, json_t *object);

/* Fills a tensor of f32 or f64 with normal numbers, `deviation` wide; stream `number`. */
hark_status hark_bench_fill(hark_context *context, hark_tensor *tensor, uint32_t number, double deviation);

/* ---- the benchmarks: each measures one case; `machine` measures the machine alone ---- */

hark_status hark_bench_attention(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text);
hark_status hark_bench_decode(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text);
hark_status hark_bench_operator(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text);
/* A training step of the configured model on random tokens below `vocabulary`; settings->rounds steps. */
hark_status hark_bench_step(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings,
                            const hark_config *config, int32_t vocabulary);
hark_status hark_bench_machine_run(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings);

#endif
