/* attend_files.c - see attend_files.h. */
#include "support/train/attend_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/setups.h"

hark_context *attend_context;
char attend_input[ATTEND_NAME_BYTES], attend_output[ATTEND_NAME_BYTES];

int attend_open(void **state) {
  (void)state;
  snprintf(attend_input, sizeof attend_input, "attend-%ld-in.safetensors", (long)getpid());
  snprintf(attend_output, sizeof attend_output, "attend-%ld-out.safetensors", (long)getpid());
  attend_context = test_reference_open();
  return 0;
}

int attend_close(void **state) {
  (void)state;
  remove(attend_input);
  remove(attend_output);
  hark_context_destroy(&attend_context);
  return 0;
}

int attend(const char *words, char output[ATTEND_OUTPUT_BYTES]) {
  char command[1024];
  snprintf(command, sizeof command, "\"%s\" attend --input %s --output %s %s 2>&1", HARK_COMMAND, attend_input, attend_output, words);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t length = fread(output, 1, ATTEND_OUTPUT_BYTES - 1, pipe);
  output[length] = '\0';
  const int status = pclose(pipe);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* A tensor of these doubles. */
static hark_tensor typed(hark_type type, const attention_numbers *numbers) {
  hark_tensor tensor;
  assert_int_equal(hark_tensor_create(attend_context, type, numbers->rank, numbers->shape, &tensor), HARK_OK);
  for (int64_t i = 0; i < numbers->count; i++) {
    if (type == HARK_F64)
      ((double *)tensor.data)[i] = numbers->data[i];
    else
      ((float *)tensor.data)[i] = (float)numbers->data[i];
  }
  return tensor;
}

static const attend_name attend_inputs[] = {{ARRAY_QUERY, "q"},
                                            {ARRAY_KEY, "k"},
                                            {ARRAY_VALUE, "v"},
                                            {ARRAY_DOUT, "dout"},
                                            {ARRAY_BIAS, "attention_bias"},
                                            {ARRAY_LOG_KERNEL, "log_kernel"},
                                            {ARRAY_FORGET, "forget"},
                                            {ARRAY_HIERARCHICAL_BIAS, "hierarchical_bias"},
                                            {ARRAY_CONTEXTUAL, "contextual"}};
const attend_name attend_outputs[ATTEND_OUTPUTS] = {{ARRAY_OUT, "out"},
                                                    {ARRAY_LSE, "log_sum_exp"},
                                                    {ARRAY_DQUERY, "dq"},
                                                    {ARRAY_DKEY, "dk"},
                                                    {ARRAY_DVALUE, "dv"},
                                                    {ARRAY_DBIAS, "dattention_bias"},
                                                    {ARRAY_DLOG_KERNEL, "dlog_kernel"},
                                                    {ARRAY_DFORGET, "dforget"},
                                                    {ARRAY_DHIERARCHICAL_BIAS, "dhierarchical_bias"},
                                                    {ARRAY_DCONTEXTUAL, "dcontextual"}};

void attend_write_problem(hark_type type, const attention_problem *p) {
  hark_tensor tensors[16];
  hark_named_tensor named[16] = {{0}};
  int64_t count = 0;
  for (size_t i = 0; i < sizeof attend_inputs / sizeof attend_inputs[0]; i++) {
    if (p->array[attend_inputs[i].array].count == 0) continue;
    tensors[count] = typed(type, &p->array[attend_inputs[i].array]);
    named[count].name = attend_inputs[i].name;
    count++;
  }
  const int64_t owned = count;
  if (p->mask != NULL) {
    assert_int_equal(hark_tensor_wrap(attend_context, p->mask, HARK_U8, 4, p->mask_shape, NULL, &tensors[count]), HARK_OK);
    named[count++].name = "mask";
  }
  if (p->query_mask != NULL) {
    const int64_t shape[] = {p->is.batch, p->is.queries};
    assert_int_equal(hark_tensor_wrap(attend_context, p->query_mask, HARK_U8, 2, shape, NULL, &tensors[count]), HARK_OK);
    named[count++].name = "query_mask";
  }
  if (p->chunk_starts != NULL) {
    const int64_t shape[] = {p->is.batch, p->is.keys};
    assert_int_equal(hark_tensor_wrap(attend_context, p->chunk_starts, HARK_U8, 2, shape, NULL, &tensors[count]), HARK_OK);
    named[count++].name = "chunk_starts";
  }
  if (p->key_lengths != NULL) {
    assert_int_equal(hark_tensor_wrap(attend_context, p->key_lengths, HARK_I64, 1, &p->is.batch, NULL, &tensors[count]), HARK_OK);
    named[count++].name = "key_lengths";
  }
  if (p->segments != NULL) {
    const int64_t shape[] = {p->is.batch, p->is.keys};
    assert_int_equal(hark_tensor_wrap(attend_context, p->segments, HARK_I64, 2, shape, NULL, &tensors[count]), HARK_OK);
    named[count++].name = "segments";
  }
  for (int64_t i = 0; i < count; i++) named[i].tensor = &tensors[i];
  assert_int_equal(hark_safetensors_write(attend_context, attend_input, named, count, NULL, 0, NULL), HARK_OK);
  for (int64_t i = 0; i < owned; i++) hark_tensor_destroy(attend_context, &tensors[i]);
}

double attend_number(const hark_tensor *tensor, int64_t i) {
  return tensor->type == HARK_F64 ? ((const double *)tensor->data)[i] : (double)((const float *)tensor->data)[i];
}

hark_tensor attend_load(const hark_safetensors *file, const char *name, hark_type type) {
  hark_tensor tensor;
  if (hark_safetensors_load(attend_context, file, name, &tensor) != HARK_OK) fail_msg("%s", hark_context_message(attend_context));
  assert_int_equal(tensor.type, type);
  return tensor;
}

void attend_compare_first_results(const hark_safetensors *file, const attention_results *r, double bound, const char *words) {
  for (size_t k = 0; k < 5; k++) {
    hark_tensor tensor = attend_load(file, attend_outputs[k].name, HARK_F64);
    for (int64_t i = 0; i < r->count[attend_outputs[k].array]; i++)
      if (!(fabs(attend_number(&tensor, i) - r->data[attend_outputs[k].array][i]) <= bound))
        fail_msg("%s: %s[%" PRId64 "] is %.17g, expected %.17g", words, attend_outputs[k].name, i, attend_number(&tensor, i),
                 r->data[attend_outputs[k].array][i]);
    hark_tensor_destroy(attend_context, &tensor);
  }
}

void attend_write_extra(int64_t queries, const char *extra) {
  static const char *const names[] = {"q", "k", "v"};
  hark_tensor tensors[5];
  hark_named_tensor named[5] = {{0}};
  char words[2][32];
  int count = 0;
  for (; count < 3; count++) {
    const int64_t shape[] = {1, 2, count == 0 ? queries : 8, 4};
    assert_int_equal(hark_tensor_create(attend_context, HARK_F32, 4, shape, &tensors[count]), HARK_OK);
    named[count].name = names[count];
  }
  for (const char *at = extra; at != NULL && *at != '\0'; count++) {
    char type[8];
    int64_t shape[4];
    const int read = sscanf(at, "%31s %7s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, words[count - 3], type, &shape[0], &shape[1],
                            &shape[2], &shape[3]);
    assert_true(read > 2);
    const hark_type is = strcmp(type, "U8") == 0 ? HARK_U8 : strcmp(type, "I64") == 0 ? HARK_I64 : HARK_F32;
    assert_int_equal(hark_tensor_create(attend_context, is, read - 2, shape, &tensors[count]), HARK_OK);
    named[count].name = words[count - 3];
    if (is == HARK_I64) *(int64_t *)tensors[count].data = 9;
    at = strchr(at, ';');
    if (at != NULL) at++;
  }
  for (int i = 0; i < count; i++) named[i].tensor = &tensors[i];
  assert_int_equal(hark_safetensors_write(attend_context, attend_input, named, count, NULL, 0, NULL), HARK_OK);
  for (int i = 0; i < count; i++) hark_tensor_destroy(attend_context, &tensors[i]);
}
