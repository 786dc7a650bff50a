/* 01_attention.c - one attention operator on plain buffers, forward and backward.
 *
 *     O = softmax(Q K^T / sqrt(d)) V   per batch item and head, causal
 *
 * Describe, plan, execute: the description says what to compute and the largest sizes, the plan how much memory a call needs, and executing
 * allocates nothing. Every buffer is caller-owned. If the gradient of O is all ones, the gradient of V must sum to its number of elements,
 * because every row of the softmax sums to one; the program checks that.
 *
 *     cc 01_attention.c $(pkg-config --cflags --libs hark) -lm
 */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, HEADS = 4, LENGTH = 100, HEAD_DIM = 32, COUNT = BATCH * HEADS * LENGTH * HEAD_DIM, ROWS = BATCH * HEADS * LENGTH };

static float query[COUNT], key[COUNT], value[COUNT], out[COUNT], log_sum_exp[ROWS];
static float dout[COUNT], dquery[COUNT], dkey[COUNT], dvalue[COUNT];

static hark_context *context;

static void check(hark_status status) {
  if (status == HARK_OK) return;
  fprintf(stderr, "01_attention: %s: %s\n", hark_status_text(status), context != NULL ? hark_context_message(context) : "no context");
  exit(1);
}

/* A tensor [B, H, L, d] on one of the buffers. */
static hark_tensor wrap(float *data) {
  hark_tensor tensor;
  check(hark_tensor_wrap(context, data, HARK_F32, 4, (int64_t[]){BATCH, HEADS, LENGTH, HEAD_DIM}, NULL, &tensor));
  return tensor;
}

/* Memory as the plan requires it: aligned to 64 bytes; at least one block, so that NULL means failure. */
static void *reserve(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (memory == NULL) check(HARK_OUT_OF_MEMORY);
  return memory;
}

int main(void) {
  for (int i = 0; i < COUNT; i++) {
    query[i] = sinf(0.7f * (float)i);
    key[i] = cosf(1.3f * (float)i);
    value[i] = sinf(0.1f * (float)i);
    dout[i] = 1.0f;
  }
  check(hark_context_create(NULL, &context));

  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = BATCH;
  desc.heads = HEADS;
  desc.query_length = desc.key_length = LENGTH;
  desc.head_dim = HEAD_DIM;
  desc.causal = true;
  hark_attention_plan *plan;
  check(hark_attention_plan_create(context, &desc, &plan));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);

  hark_attention_args args = {.struct_size = sizeof args, .query = wrap(query), .key = wrap(key), .value = wrap(value), .out = wrap(out)};
  check(hark_tensor_wrap(context, log_sum_exp, HARK_F32, 3, (int64_t[]){BATCH, HEADS, LENGTH}, NULL, &args.log_sum_exp));
  args.saved = reserve(sizes.saved);
  args.workspace = reserve(sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace);
  check(hark_attention_forward(context, plan, &args));

  args.dout = wrap(dout);
  args.dquery = wrap(dquery);
  args.dkey = wrap(dkey);
  args.dvalue = wrap(dvalue);
  check(hark_attention_backward(context, plan, &args));

  char text[512];
  double sum = 0;
  for (int i = 0; i < COUNT; i++) sum += dvalue[i];
  hark_attention_plan_print(plan, text, sizeof text);
  printf("%s\n", text);
  printf("out[0, 0, 99, :3] = %.6f %.6f %.6f\n", out[99 * HEAD_DIM], out[99 * HEAD_DIM + 1], out[99 * HEAD_DIM + 2]);
  printf("sum of the gradient of value = %.2f, expected %d\n", sum, COUNT);

  free(args.saved);
  free(args.workspace);
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  /* Each of the sum's terms is rounded to f32 a few times: far less than one part in ten thousand. */
  return fabs(sum - COUNT) < 1e-4 * COUNT ? 0 : 1;
}
