/* chunk_kernel.c - see chunk_kernel.h. */
#include "backend/chunk_kernel.h"

#include "backend/kernel_table.h"

#define BLOCK 512 /* distances of a task */

hark_status hark_chunk_kernel_doubles(hark_context *context, const hark_attention_desc *desc, size_t *out) {
  *out = 0;
  if (!desc->has_log_kernel) return HARK_OK;
  return hark_size_multiply(context, (size_t)(desc->batch * desc->heads), (size_t)desc->query_length, out);
}

typedef struct give_task {
  const hark_attention_call *run;
  double *sums;
} give_task;

static void add(const hark_tensor *tensor, int64_t index, double value) {
  if (tensor->type == HARK_F64)
    ((double *)tensor->data)[index] += value;
  else
    ((float *)tensor->data)[index] = (float)((double)((float *)tensor->data)[index] + value);
}

/* Heads that share a row of the table are added, too. */
static int64_t rows_of(const hark_tensor *gradient) { return gradient->stride[0] == 0 ? 1 : gradient->shape[0]; }

static void give_block(void *data, int64_t index, int worker) {
  const give_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_tensor *gradient = &run->args->dlog_kernel;
  const int64_t blocks = hark_ceil_div(desc->query_length, BLOCK), row = index / blocks, shared = desc->heads / rows_of(gradient);
  const int64_t begin = index % blocks * BLOCK, end = hark_min(desc->query_length, begin + BLOCK);
  (void)worker;
  for (int64_t t = begin; t < end; t++) {
    double sum = 0;
    for (int64_t s = 0; s < run->sequence_count; s++)
      for (int64_t head = row * shared; head < (row + 1) * shared; head++)
        if (t < run->sequences[s].query_count) sum += hark_chunk_kernel_sums(run, task->sums, &run->sequences[s], head)[t];
    if (sum != 0) add(gradient, row * gradient->stride[0] + hark_kernel_column(desc, gradient->shape[1], t), sum);
  }
}

void hark_chunk_kernel_give(hark_context *context, const hark_attention_call *run, double *sums) {
  give_task task = {run, sums};
  const int64_t blocks = hark_ceil_div(run->plan->desc.query_length, BLOCK);
  if (run->args->dlog_kernel.type != HARK_NONE) hark_parallel_for(context, rows_of(&run->args->dlog_kernel) * blocks, give_block, &task);
}
