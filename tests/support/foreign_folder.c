/* foreign_folder.c - see foreign_folder.h. */
#include "support/foreign_folder.h"

#include <stdio.h>
#include <string.h>

#include "io/safetensors.h"
#include "support/cmocka_all.h"

enum { NUMBERS = 64 }; /* of a tensor, at most */

#define LLAMA_BLOCK(n)                                                                                                                     \
  {"model.layers." n ".input_layernorm.weight", 4, 0, 0}, {"model.layers." n ".self_attn.q_proj.weight", 4, 4, 0},                         \
      {"model.layers." n ".self_attn.k_proj.weight", 2, 4, 0}, {"model.layers." n ".self_attn.v_proj.weight", 2, 4, 0},                    \
      {"model.layers." n ".self_attn.o_proj.weight", 4, 4, 0}, {"model.layers." n ".post_attention_layernorm.weight", 4, 0, 0},            \
      {"model.layers." n ".mlp.gate_proj.weight", 6, 4, 0}, {"model.layers." n ".mlp.up_proj.weight", 6, 4, 0}, {                          \
    "model.layers." n ".mlp.down_proj.weight", 4, 6, 0                                                                                     \
  }
#define LLAMA_TENSORS                                                                                                                      \
  {"model.embed_tokens.weight", 7, 4, 0}, LLAMA_BLOCK("0"), LLAMA_BLOCK("1"), {"model.norm.weight", 4, 0, 0}, { "lm_head.weight", 7, 4, 0 }

const foreign_entry foreign_llama[FOREIGN_LLAMA_COUNT] = {LLAMA_TENSORS};
const foreign_entry foreign_gpt2[FOREIGN_GPT2_COUNT] = {{"transformer.wte.weight", 7, 4, 0},
                                                        {"transformer.wpe.weight", 6, 4, 0},
                                                        {"transformer.h.0.ln_1.weight", 4, 0, 0},
                                                        {"transformer.h.0.ln_1.bias", 4, 0, 0},
                                                        {"transformer.h.0.attn.c_attn.weight", 4, 12, 0},
                                                        {"transformer.h.0.attn.c_attn.bias", 12, 0, 0},
                                                        {"transformer.h.0.attn.c_proj.weight", 4, 4, 0},
                                                        {"transformer.h.0.attn.c_proj.bias", 4, 0, 0},
                                                        {"transformer.h.0.ln_2.weight", 4, 0, 0},
                                                        {"transformer.h.0.ln_2.bias", 4, 0, 0},
                                                        {"transformer.h.0.mlp.c_fc.weight", 4, 6, 0},
                                                        {"transformer.h.0.mlp.c_fc.bias", 6, 0, 0},
                                                        {"transformer.h.0.mlp.c_proj.weight", 6, 4, 0},
                                                        {"transformer.h.0.mlp.c_proj.bias", 4, 0, 0},
                                                        {"transformer.ln_f.weight", 4, 0, 0},
                                                        {"transformer.ln_f.bias", 4, 0, 0}};

float foreign_number(int t, int64_t i) { return (float)((t * 37 + (int)i * 5) % 251 - 125) / 128.0F; }

void foreign_write_tensors(hark_context *context, const char *path, const foreign_entry *entries, int first, int last, int skip) {
  static float numbers[FOREIGN_MOST_TENSORS][NUMBERS];
  hark_tensor tensors[FOREIGN_MOST_TENSORS];
  hark_named_tensor named[FOREIGN_MOST_TENSORS];
  int64_t count = 0;
  for (int t = first; t < last; t++) {
    const int64_t shape[] = {entries[t].rows, entries[t].columns};
    const int64_t all = shape[0] * (shape[1] > 0 ? shape[1] : 1);
    if (t == skip) continue;
    for (int64_t i = 0; i < all; i++) numbers[t][i] = foreign_number(t, i);
    assert_fine(context, hark_tensor_wrap(context, numbers[t], HARK_F32, shape[1] > 0 ? 2 : 1, shape, NULL, &tensors[t]));
    named[count++] = (hark_named_tensor){.name = entries[t].name, .tensor = &tensors[t], .stored = entries[t].type};
  }
  assert_fine(context, hark_safetensors_write(context, path, named, count, NULL, 0, NULL));
}

const char *foreign_make(hark_context *context, const char *place, const char *name, const char *keys, const foreign_entry *entries,
                         int count) {
  char text[2048], file[TEST_PATH_BYTES];
  (void)snprintf(text, sizeof text, "{%s}", keys);
  (void)snprintf(file, sizeof file, "%s/config.json", name);
  (void)test_file_write_text(place, file, text);
  (void)snprintf(file, sizeof file, "%s/model.safetensors", name);
  foreign_write_tensors(context, test_path(place, file), entries, 0, count, -1);
  return test_path(place, name);
}

hark_model *foreign_load(hark_context *context, const char *path) {
  hark_model *model = NULL;
  assert_fine(context, hark_model_load(context, path, NULL, &model));
  return model;
}

void foreign_refuse(hark_context *context, const char *path, hark_status expected, const char *part) {
  hark_model *model = NULL;
  assert_failure(context, hark_model_load(context, path, NULL, &model), expected, part);
  assert_null(model);
  if (strchr(hark_context_message(context), '\n') != NULL) fail_msg("more than one line: %s", hark_context_message(context));
}

const hark_parameter *foreign_parameter(const hark_model *model, const char *name) {
  const hark_parameter *const parameter = hark_parameters_find(&model->network->parameters, name);
  if (parameter == NULL) fail_msg("no parameter %s", name);
  return parameter;
}

const char foreign_tokenizer[] =
    "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 5, \"content\": \"<s>\", \"special\": true, \"single_word\": false, "
    "\"lstrip\": false, \"rstrip\": false, \"normalized\": false}], \"normalizer\": null, \"pre_tokenizer\": "
    "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"always\", \"split\": true}, "
    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<s>\": "
    "{\"id\": \"<s>\", \"ids\": [5], \"tokens\": [\"<s>\"]}}}, \"decoder\": {\"type\": \"Metaspace\", \"replacement\": "
    "\"\\u2581\", \"prepend_scheme\": \"always\", \"split\": true}, \"model\": {\"type\": \"BPE\", \"dropout\": null, "
    "\"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
    "\"byte_fallback\": false, \"vocab\": {\"\\u2581\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"\\u2581ab\": 4}, "
    "\"merges\": [\"a b\", \"\\u2581 ab\"]}}";
