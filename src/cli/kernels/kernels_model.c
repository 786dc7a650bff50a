/* kernels_model.c - what fits, exports and searches read of a model: the tokens of a text, and tables of log G. See kernels.h. */
#include <string.h>

#include "cli/kernels/kernels.h"
#include "data/inputs.h"
#include "models/stack.h"

/* Tokens of the text, and how many of them stand for what the vocabulary lacks. */
static hark_status encode(hark_context *context, const hark_model *model, const hark_text *text, hark_kernels_text *out) {
  const hark_status status = hark_model_encode(context, model, hark_text_get(text), text->length, false, out->ids, &out->count);
  if (status != HARK_BAD_FILE) return status;
  HARK_TRY(hark_model_encode(context, model, hark_text_get(text), text->length, true, out->ids, &out->count));
  for (size_t i = 0; i < out->count; i++) out->unknown += out->ids[i] == HARK_TOKEN_UNKNOWN;
  return HARK_OK;
}

hark_status hark_kernels_read_text(hark_context *context, const hark_model *model, const char *path, size_t most, hark_kernels_text *out) {
  hark_text text = hark_text_empty(context);
  bool cut = false;
  void *memory = NULL;
  *out = (hark_kernels_text){0};
  hark_status status = hark_input_read_beginning(context, path, most, &text, &cut);
  const size_t bytes = (text.length + 1) * sizeof *out->ids;
  if (status == HARK_OK) status = hark_allocate(context, bytes, &memory);
  if (status == HARK_OK) {
    out->ids = memory;
    out->bytes = bytes;
    status = encode(context, model, &text, out);
    if (status == HARK_BAD_FILE) hark_fail_prefix(context, "%.1200s: ", path);
  }
  hark_text_free(&text);
  return status;
}

void hark_kernels_free_text(hark_context *context, hark_kernels_text *text) {
  hark_release(context, text->ids, text->bytes);
  *text = (hark_kernels_text){0};
}

bool hark_kernels_given(const hark_network *network) {
  return network->blocks != NULL && hark_positional_source_given(&network->positional_source);
}

hark_status hark_kernels_check_direction(hark_context *context, const char *path, const hark_network *network, const char *what) {
  if (!network->blocks[0].attention.spec.directed) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED,
                   "%s: the kernels of this model have a direction, left(...) or right(...), and %s is for kernels of the distance alone",
                   path, what);
}

hark_status hark_kernels_table(hark_context *context, const hark_network *network, int64_t layer, int64_t distances, float *out) {
  hark_tape *tape = NULL;
  hark_value value = 0;
  HARK_TRY(hark_tape_create(context, &tape));
  hark_tape_set_recording(tape, false);
  const hark_forward forward = {.tape = tape, .parameters = &network->parameters};
  hark_status status = hark_positional_apply(&forward, hark_stack_positional(network, layer), distances, &value);
  if (status == HARK_OK) status = hark_tensor_read(context, hark_tape_tensor(tape, value), out);
  hark_tape_destroy(&tape);
  return status;
}
