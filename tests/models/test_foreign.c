/* test_foreign.c - models of other programs: small folders with known numbers, which hark reads and writes; what is refused, by its
 * name. */
#include <hark/hark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "models/foreign/foreign_write.h"
#include "models/model.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

enum { WIDTH = 4, MOST_TENSORS = 64, NUMBERS = 64, TOKENS = 5 };

static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  return 0;
}

/* ---- folders ---- */

#define LLAMA_KEYS                                                                                                                         \
  "\"vocab_size\": 7, \"hidden_size\": 4, \"intermediate_size\": 6, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "                \
  "\"num_key_value_heads\": 1, \"max_position_embeddings\": 6"
#define GPT2_KEYS                                                                                                                          \
  "\"model_type\": \"gpt2\", \"vocab_size\": 7, \"n_positions\": 6, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, \"n_inner\": 6"

/* A tensor of a folder. */
typedef struct entry {
  const char *name;
  int64_t rows, columns; /* columns 0: of rank 1 */
  hark_type type;        /* HARK_NONE: f32 */
} entry;

#define LLAMA_BLOCK(n)                                                                                                                     \
  {"model.layers." n ".input_layernorm.weight", 4, 0, 0}, {"model.layers." n ".self_attn.q_proj.weight", 4, 4, 0},                         \
      {"model.layers." n ".self_attn.k_proj.weight", 2, 4, 0}, {"model.layers." n ".self_attn.v_proj.weight", 2, 4, 0},                    \
      {"model.layers." n ".self_attn.o_proj.weight", 4, 4, 0}, {"model.layers." n ".post_attention_layernorm.weight", 4, 0, 0},            \
      {"model.layers." n ".mlp.gate_proj.weight", 6, 4, 0}, {"model.layers." n ".mlp.up_proj.weight", 6, 4, 0}, {                          \
    "model.layers." n ".mlp.down_proj.weight", 4, 6, 0                                                                                     \
  }
#define LLAMA_TENSORS                                                                                                                      \
  {"model.embed_tokens.weight", 7, 4, 0}, LLAMA_BLOCK("0"), LLAMA_BLOCK("1"), {"model.norm.weight", 4, 0, 0}, { "lm_head.weight", 7, 4, 0 }

static const entry llama[] = {LLAMA_TENSORS};
enum { LLAMA_COUNT = sizeof llama / sizeof *llama };
static const entry gpt2[] = {{"transformer.wte.weight", 7, 4, 0},
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
enum { GPT2_COUNT = sizeof gpt2 / sizeof *gpt2 };

/* Number i of tensor t: all are different, and exact in bf16. */
static float number_of(int t, int64_t i) { return (float)((t * 37 + (int)i * 5) % 251 - 125) / 128.0F; }

/* Writes a safetensors file of the tensors `first` to `last`; `skip` is left out (-1: none). */
static void write_tensors(hark_context *context, const char *path, const entry *entries, int first, int last, int skip) {
  static float numbers[MOST_TENSORS][NUMBERS];
  hark_tensor tensors[MOST_TENSORS];
  hark_named_tensor named[MOST_TENSORS];
  int64_t count = 0;
  for (int t = first; t < last; t++) {
    const int64_t shape[] = {entries[t].rows, entries[t].columns};
    const int64_t all = shape[0] * (shape[1] > 0 ? shape[1] : 1);
    if (t == skip) continue;
    for (int64_t i = 0; i < all; i++) numbers[t][i] = number_of(t, i);
    assert_fine(context, hark_tensor_wrap(context, numbers[t], HARK_F32, shape[1] > 0 ? 2 : 1, shape, NULL, &tensors[t]));
    named[count++] = (hark_named_tensor){.name = entries[t].name, .tensor = &tensors[t], .stored = entries[t].type};
  }
  assert_fine(context, hark_safetensors_write(context, path, named, count, NULL, 0, NULL));
}

/* folder/NAME with a config.json, {`keys`}, and all tensors in one file; the path. */
static const char *make_folder(hark_context *context, const char *name, const char *keys, const entry *entries, int count) {
  char text[2048], file[TEST_PATH_BYTES];
  (void)snprintf(text, sizeof text, "{%s}", keys);
  (void)snprintf(file, sizeof file, "%s/config.json", name);
  (void)test_file_write_text(folder, file, text);
  (void)snprintf(file, sizeof file, "%s/model.safetensors", name);
  write_tensors(context, test_path(folder, file), entries, 0, count, -1);
  return test_path(folder, name);
}

static hark_model *load(hark_context *context, const char *path) {
  hark_model *model = NULL;
  assert_fine(context, hark_model_load(context, path, NULL, &model));
  return model;
}

static void refuse(hark_context *context, const char *path, hark_status expected, const char *part) {
  hark_model *model = NULL;
  assert_failure(context, hark_model_load(context, path, NULL, &model), expected, part);
  assert_null(model);
  if (strchr(hark_context_message(context), '\n') != NULL) fail_msg("more than one line: %s", hark_context_message(context));
}

static const hark_parameter *parameter_of(const hark_model *model, const char *name) {
  const hark_parameter *const parameter = hark_parameters_find(&model->network->parameters, name);
  if (parameter == NULL) fail_msg("no parameter %s", name);
  return parameter;
}

/* ---- where numbers go ---- */

static void numbers_of_llama_are_in_their_places(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = load(context, make_folder(context, "llama", "\"model_type\": \"llama\", " LLAMA_KEYS, llama, LLAMA_COUNT));
  const float *key = parameter_of(model, "blocks.1.attention.key.weight")->weight.data;
  for (int64_t i = 0; i < 8; i++) assert_true(key[i] == number_of(12, i)); /* the 13th tensor */
  const float *head = parameter_of(model, "head.weight")->weight.data;
  for (int64_t i = 0; i < 28; i++) assert_true(head[i] == number_of(LLAMA_COUNT - 1, i));
  hark_model_info info = {.struct_size = sizeof info};
  assert_int_equal(hark_model_describe(model, &info), HARK_OK);
  assert_int_equal(info.reserved, 0);
  assert_int_equal(info.key_heads, 1);
  assert_null(info.tokenizer);
  assert_int_equal(model->network->config.activation, HARK_ACTIVATION_GATED_SILU);
  assert_true(model->network->config.norm_epsilon == 1e-6);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* q, k and v are columns 0 to 3, 4 to 7 and 8 to 11 of a matrix [in, out]. */
static void layers_of_gpt2_are_divided_and_transposed(void **state) {
  (void)state;
  static const char *const parts[] = {"query", "key", "value"};
  hark_context *context = test_reference_open();
  hark_model *model = load(context, make_folder(context, "gpt2", GPT2_KEYS, gpt2, GPT2_COUNT));
  for (int p = 0; p < 3; p++) {
    char name[64];
    (void)snprintf(name, sizeof name, "blocks.0.attention.%s.weight", parts[p]);
    const float *weight = parameter_of(model, name)->weight.data;
    for (int out = 0; out < 4; out++)
      for (int in = 0; in < 4; in++) assert_true(weight[4 * out + in] == number_of(4, 12 * in + 4 * p + out));
    (void)snprintf(name, sizeof name, "blocks.0.attention.%s.bias", parts[p]);
    const float *bias = parameter_of(model, name)->weight.data;
    for (int out = 0; out < 4; out++) assert_true(bias[out] == number_of(5, 4 * p + out));
  }
  const float *down = parameter_of(model, "blocks.0.feed_forward.down.weight")->weight.data;
  for (int out = 0; out < 4; out++)
    for (int in = 0; in < 6; in++) assert_true(down[6 * out + in] == number_of(12, 4 * in + out));
  assert_int_equal(model->network->config.activation, HARK_ACTIVATION_GELU_TANH);
  assert_true(model->network->config.tie_embeddings);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* ---- configurations ---- */

static const char *const of_llama = "\"model_type\": \"llama\", " LLAMA_KEYS;

static void keys_become_options(void **state) {
  (void)state;
  static const struct {
    const char *keys;
    double base, factor;
    hark_rotary_scaling scaling;
  } cases[] = {
      {"\"rope_theta\": 5000.5", 5000.5, 1, HARK_ROTARY_AS_TRAINED},
      {"\"rope_theta\": 500000, \"rope_scaling\": null", 500000, 1, HARK_ROTARY_AS_TRAINED},
      {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", 10000, 2.5, HARK_ROTARY_LINEAR},
      {"\"rope_parameters\": {\"rope_theta\": 77.0, \"rope_type\": \"default\"}", 77, 1, HARK_ROTARY_AS_TRAINED},
      {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
       "\"original_max_position_embeddings\": 4}",
       10000, 8, HARK_ROTARY_LLAMA3},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char keys[1024];
    (void)snprintf(keys, sizeof keys, "%s, %s", of_llama, cases[i].keys);
    hark_model *model = load(context, make_folder(context, "rope", keys, llama, LLAMA_COUNT));
    const hark_rotary_choice *rotary = &model->network->config.rotary;
    assert_true(rotary->base == cases[i].base);
    assert_true(rotary->scaling_factor == cases[i].factor);
    assert_int_equal(rotary->scaling, cases[i].scaling);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void windows_count_the_query_itself(void **state) {
  (void)state;
  static const struct {
    const char *keys;
    int64_t window; /* -1: dense */
  } cases[] = {{"\"sliding_window\": 3", 2}, {"\"sliding_window\": null", -1}, {"\"head_dim\": 2", 4095}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char keys[1024];
    (void)snprintf(keys, sizeof keys, "\"model_type\": \"mistral\", " LLAMA_KEYS ", %s", cases[i].keys);
    hark_model *model = load(context, make_folder(context, "mistral", keys, llama, LLAMA_COUNT));
    const hark_attention_choice *attention = &model->network->config.attention;
    assert_int_equal(hark_layer_choice_of(&attention->structure, 1), cases[i].window >= 0 ? HARK_STRUCTURE_WINDOW : HARK_STRUCTURE_DENSE);
    if (cases[i].window >= 0) assert_int_equal(attention->window, cases[i].window);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* ---- numbers of other types, shards ---- */

static void types_are_kept_also_in_shards(void **state) {
  (void)state;
  entry mixed[LLAMA_COUNT];
  hark_context *context = test_reference_open();
  memcpy(mixed, llama, sizeof llama);
  mixed[2].type = HARK_BF16; /* queries of the first block */
  mixed[12].type = HARK_F16; /* keys of the second */
  mixed[1].type = HARK_BF16; /* a norm, which hark holds in f32 */
  char index[4096] = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
  for (int t = 0; t < LLAMA_COUNT; t++)
    (void)snprintf(index + strlen(index), sizeof index - strlen(index), "%s\"%s\": \"model-0000%d-of-00002.safetensors\"",
                   t > 0 ? ", " : "", mixed[t].name, t < 10 ? 1 : 2);
  (void)snprintf(index + strlen(index), sizeof index - strlen(index), "}}");
  char config[1024];
  (void)snprintf(config, sizeof config, "{%s}", of_llama);
  (void)test_file_write_text(folder, "shards/config.json", config);
  (void)test_file_write_text(folder, "shards/model.safetensors.index.json", index);
  write_tensors(context, test_path(folder, "shards/model-00001-of-00002.safetensors"), mixed, 0, 10, -1);
  write_tensors(context, test_path(folder, "shards/model-00002-of-00002.safetensors"), mixed, 10, LLAMA_COUNT, -1);
  hark_model *model = load(context, test_path(folder, "shards"));
  assert_int_equal(parameter_of(model, "blocks.0.attention.query.weight")->weight.type, HARK_BF16);
  assert_int_equal(parameter_of(model, "blocks.1.attention.key.weight")->weight.type, HARK_F16);
  assert_int_equal(parameter_of(model, "blocks.0.attention_norm.weight")->weight.type, HARK_F32);
  const float *norm = parameter_of(model, "blocks.0.attention_norm.weight")->weight.data;
  for (int64_t i = 0; i < WIDTH; i++) assert_true(norm[i] == number_of(1, i));
  float query[16];
  hark_half_to_f32(HARK_BF16, parameter_of(model, "blocks.0.attention.query.weight")->weight.data, 16, query);
  for (int64_t i = 0; i < 16; i++) assert_true(query[i] == number_of(2, i));
  hark_model_destroy(context, &model);

  /* an index and files that disagree */
  assert_int_equal(remove(test_path(folder, "shards/model-00002-of-00002.safetensors")), 0);
  refuse(context, test_path(folder, "shards"), HARK_NOT_FOUND, "model-00002-of-00002.safetensors: is missing");
  write_tensors(context, test_path(folder, "shards/model-00002-of-00002.safetensors"), mixed, 10, LLAMA_COUNT, 12);
  refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "has no tensor \"model.layers.1.self_attn.k_proj.weight\"");
  write_tensors(context, test_path(folder, "shards/model-00002-of-00002.safetensors"), mixed, 9, LLAMA_COUNT, -1);
  refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "is not in model.safetensors.index.json");
  (void)test_file_write_text(folder, "shards/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../a.safetensors\"}}");
  refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "weight_map.a: expected the name of a file in this folder");

  /* more entries than any model has tensors */
  enum { MANY = 200001, ROOM = 24 };
  char *const long_index = malloc((size_t)MANY * ROOM + 64);
  size_t length = (size_t)snprintf(long_index, 64, "{\"weight_map\": {");
  for (int i = 0; i < MANY; i++) length += (size_t)snprintf(long_index + length, ROOM, "%s\"%d\": \"a\"", i > 0 ? ", " : "", i);
  (void)snprintf(long_index + length, 64, "}}");
  (void)test_file_write_text(folder, "shards/model.safetensors.index.json", long_index);
  free(long_index);
  refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "weight_map: has 200001 entries, expected at most 200000");
  test_setup_close(context);
}

/* ---- refusals ---- */

typedef struct refused_keys {
  const char *keys; /* of llama, in addition */
  hark_status status;
  const char *part;
} refused_keys;

static void keys_are_refused_by_name(void **state) {
  (void)state;
  static const refused_keys cases[] = {
      {"\"logit_scale\": 0.5", HARK_UNSUPPORTED, "config.json: logit_scale: is 0.5"},
      {"\"quantization_config\": {\"quant_method\": \"gptq\"}", HARK_UNSUPPORTED, "quantization_config: is {...}, expected null"},
      {"\"hidden_act\": \"gelu\"", HARK_UNSUPPORTED, "hidden_act: is gelu, expected silu or swish"},
      {"\"architectures\": [\"LlamaForSequenceClassification\"]", HARK_UNSUPPORTED,
       "architectures: is [\"LlamaForSequenceClassification\"]"},
      {"\"rope_scaling\": {\"rope_type\": \"longrope\"}", HARK_UNSUPPORTED, "rope_scaling.rope_type: is longrope"},
      {"\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2, \"odd\": 1}", HARK_UNSUPPORTED, "rope_scaling.odd: is 1"},
      {"\"rms_norm_eps\": \"small\"", HARK_BAD_FILE, "rms_norm_eps: is \"small\""},
      {"\"head_dim\": 2.5", HARK_BAD_FILE, "head_dim: is 2.5, expected a whole number"},
      {"\"attention_bias\": 1", HARK_BAD_FILE, "attention_bias: is 1, expected true or false"},
      {"\"is_encoder_decoder\": true", HARK_UNSUPPORTED, "is_encoder_decoder: is true, expected false"},
      {"\"unknown\": null, \"attention_bias\": true", HARK_BAD_FILE, "tensor \"model.layers.0.self_attn.q_proj.bias\" is missing"},
      {"\"tie_word_embeddings\": true", HARK_BAD_FILE, "tensor \"lm_head.weight\" is not the table of embeddings"},
      {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_theta\": 77.0}", HARK_UNSUPPORTED,
       "rope_parameters: is {...}, expected one of rope_scaling and rope_parameters"},
      {"\"is_encoder_decoder\": \"false\"", HARK_UNSUPPORTED, "is_encoder_decoder: is \"false\", expected false"},
      {"\"quantization_config\": \"null\"", HARK_UNSUPPORTED, "quantization_config: is \"null\", expected null"},
      {"\"head_dim\": 1048576", HARK_UNSUPPORTED, "head_dim: is 1048576, expected at most 2^20 features of all heads"},
      {"\"head_dim\": 4", HARK_BAD_FILE, "tensor \"model.layers.0.self_attn.q_proj.weight\" has shape [4, 4], expected [8, 4]"},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char keys[1024];
    (void)snprintf(keys, sizeof keys, "%s, %s", of_llama, cases[i].keys);
    refuse(context, make_folder(context, "keys", keys, llama, LLAMA_COUNT), cases[i].status, cases[i].part);
  }
  refuse(context, make_folder(context, "keys", "\"model_type\": \"mamba\"", llama, LLAMA_COUNT), HARK_UNSUPPORTED,
         "model_type: is mamba, expected one of gpt2, llama");
  refuse(context, make_folder(context, "keys", GPT2_KEYS ", \"scale_attn_weights\": null", gpt2, GPT2_COUNT), HARK_UNSUPPORTED,
         "scale_attn_weights: is null, expected true");
  hark_model *model =
      load(context,
           make_folder(context, "keys", GPT2_KEYS ", \"scale_attn_by_inverse_layer_idx\": null, \"pruned_heads\": null", gpt2, GPT2_COUNT));
  hark_model_destroy(context, &model);
  refuse(context,
         make_folder(context, "keys",
                     "\"model_type\": \"gpt2\", \"vocab_size\": 7, \"n_positions\": 6, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, "
                     "\"n_inner\": 16777217",
                     gpt2, GPT2_COUNT),
         HARK_UNSUPPORTED, "n_inner: is 16777217, expected at most 2^24");
  refuse(context, make_folder(context, "keys", "\"vocab_size\": 7", llama, LLAMA_COUNT), HARK_BAD_FILE, "model_type: is missing");
  refuse(context, make_folder(context, "keys", "\"model_type\": \"llama\", \"vocab_size\": 7", llama, LLAMA_COUNT), HARK_BAD_FILE,
         "hidden_size: is missing");
  refuse(context, make_folder(context, "keys", "\"model_type\": ", llama, LLAMA_COUNT), HARK_BAD_FILE, "config.json: line 1");
  test_setup_close(context);
}

static void tensors_are_refused_by_name(void **state) {
  (void)state;
  entry other[LLAMA_COUNT + 1];
  hark_context *context = test_reference_open();
  const char *const path = make_folder(context, "tensors", of_llama, llama, LLAMA_COUNT);
  char kept[TEST_PATH_BYTES], file[TEST_PATH_BYTES];
  (void)snprintf(kept, sizeof kept, "%s", path);
  (void)snprintf(file, sizeof file, "%s", test_path(folder, "tensors/model.safetensors"));
  write_tensors(context, file, llama, 0, LLAMA_COUNT, 3);
  refuse(context, kept, HARK_BAD_FILE, "tensor \"model.layers.0.self_attn.k_proj.weight\" is missing");
  memcpy(other, llama, sizeof llama);
  other[LLAMA_COUNT] = (entry){"model.layers.2.self_attn.q_proj.weight", 4, 4, HARK_NONE};
  write_tensors(context, file, other, 0, LLAMA_COUNT + 1, -1);
  refuse(context, kept, HARK_BAD_FILE, "tensor \"model.layers.2.self_attn.q_proj.weight\" is unexpected");
  other[LLAMA_COUNT].name = "model.layers.1.self_attn.rotary_emb.inv_freq"; /* follows from the configuration */
  write_tensors(context, file, other, 0, LLAMA_COUNT + 1, -1);
  hark_model *model = load(context, kept);
  hark_model_destroy(context, &model);
  other[3].rows = 3;
  write_tensors(context, file, other, 0, LLAMA_COUNT, -1);
  refuse(context, kept, HARK_BAD_FILE, "has shape [3, 4], expected [2, 4]");
  size_t bytes = 0;
  write_tensors(context, file, llama, 0, LLAMA_COUNT, -1);
  unsigned char *data = test_file_read(file, &bytes);
  (void)test_file_write(folder, "tensors/model.safetensors", data, bytes - 8);
  free(data);
  refuse(context, kept, HARK_BAD_FILE, "model.safetensors: ");
  assert_int_equal(remove(file), 0);
  refuse(context, kept, HARK_NOT_FOUND, "has neither model.safetensors");
  (void)test_file_write(folder, "tensors/pytorch_model.bin", "\x80\x02", 2);
  refuse(context, kept, HARK_UNSUPPORTED, "pytorch_model.bin: pickled weights are not read");
  if (strstr(hark_context_message(context), "safetensors") == NULL) fail_msg("%s", hark_context_message(context));
  test_setup_close(context);
}

/* Whatever allocation fails, nothing leaks. */
static void every_allocation_may_fail(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_reference_open();
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s", make_folder(context, "memory", GPT2_KEYS, gpt2, GPT2_COUNT));
  test_setup_close(context);
  context = test_memory_context(&memory);
  hark_model *model = NULL;
  hark_status status = HARK_OUT_OF_MEMORY;
  for (long at = 1; status != HARK_OK && at < 4000; at++) {
    memory.allocations = 0;
    memory.fail_at = at;
    status = hark_model_load(context, path, NULL, &model);
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
  }
  assert_int_equal(status, HARK_OK);
  memory.fail_at = 0;
  hark_model_destroy(context, &model);
  test_memory_context_end(context, &memory);
}

/* ---- files of hark, and back ---- */

/* Whether two files have the same tensors, by name, type and bytes. */
static void assert_same_tensors(hark_context *context, const char *a, const char *b) {
  hark_safetensors *one = NULL, *other = NULL;
  assert_fine(context, hark_safetensors_open(context, a, &one));
  assert_fine(context, hark_safetensors_open(context, b, &other));
  assert_int_equal(hark_safetensors_count(one), hark_safetensors_count(other));
  for (int64_t i = 0; i < hark_safetensors_count(one); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(one, i), *const u = hark_safetensors_find(other, t->name);
    static char x[4096], y[4096];
    if (u == NULL || u->bytes != t->bytes || u->rank != t->rank || u->shape[0] != t->shape[0]) fail_msg("%s", t->name);
    assert_fine(context, hark_safetensors_read(context, one, t, x));
    assert_fine(context, hark_safetensors_read(context, other, u, y));
    if (memcmp(x, y, t->bytes) != 0) fail_msg("%s has other numbers", t->name);
  }
  hark_safetensors_close(context, &one);
  hark_safetensors_close(context, &other);
}

typedef struct round_trip {
  const char *name, *keys;
  const entry *entries;
  int count;
} round_trip;

static void exports_have_the_bits_of_what_was_imported(void **state) {
  (void)state;
  static const round_trip cases[] = {
      {"gpt2", GPT2_KEYS, gpt2, GPT2_COUNT},
      {"llama", "\"model_type\": \"llama\", " LLAMA_KEYS ", \"rope_theta\": 123456.5, \"rms_norm_eps\": 1e-05", llama, LLAMA_COUNT},
      {"llama",
       "\"model_type\": \"llama\", " LLAMA_KEYS ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 30, "
       "\"original_max_position_embeddings\": 4, \"truncate\": false}",
       llama, LLAMA_COUNT},
      {"mistral", "\"model_type\": \"mistral\", " LLAMA_KEYS ", \"sliding_window\": 3", llama, LLAMA_COUNT},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *type = NULL;
    char out[TEST_PATH_BYTES], own[TEST_PATH_BYTES];
    hark_model *again = NULL;
    (void)snprintf(out, sizeof out, "%s", test_path(folder, "out"));
    (void)snprintf(own, sizeof own, "%s", test_path(folder, "own.safetensors"));
    hark_model *model = load(context, make_folder(context, "in", cases[i].keys, cases[i].entries, cases[i].count));
    assert_fine(context, hark_model_save(context, model, own));
    hark_model *saved = load(context, own);
    assert_true(saved->fingerprint == model->fingerprint);
    assert_fine(context, hark_foreign_export(context, saved, out, HARK_NONE, &type));
    assert_string_equal(type, cases[i].name);
    char *const config = test_file_text(folder, "out/config.json");
    if (strstr(config, "\"bos_token_id\": null, \"eos_token_id\": null") == NULL) fail_msg("%s", config);
    free(config);
    char in_file[TEST_PATH_BYTES], out_file[TEST_PATH_BYTES];
    (void)snprintf(in_file, sizeof in_file, "%s", test_path(folder, "in/model.safetensors"));
    (void)snprintf(out_file, sizeof out_file, "%s", test_path(folder, "out/model.safetensors"));
    assert_same_tensors(context, in_file, out_file);
    again = load(context, out);
    assert_true(again->fingerprint == model->fingerprint);
    hark_model_destroy(context, &again);
    hark_model_destroy(context, &saved);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void options_without_a_counterpart_are_named(void **state) {
  (void)state;
  static const struct {
    const char *keys, *part;
  } cases[] = {
      {"\"attention\": {\"structure\": \"dense\", \"window\": 128, \"kernel\": \"rbf\", \"sigma\": 1, \"forget_gate\": false}",
       "model.attention.kernel has no counterpart"},
      {"\"attention\": {\"structure\": \"dense\", \"window\": 128, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": true}",
       "model.attention.forget_gate has no counterpart"},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char description[1024];
    const char *type = NULL;
    hark_model *model = NULL;
    (void)snprintf(
        description, sizeof description,
        "{\"model\": {\"type\": \"gpt\", \"layers\": 1, \"heads\": 2, \"key_heads\": 2, \"width\": 8, \"feed_forward_width\": 8, "
        "\"context\": 8, \"activation\": \"gated_silu\", \"norm\": \"rms_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"rotary\", "
        "\"tie_embeddings\": true, \"bias\": false, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, %s}}",
        cases[i].keys);
    const hark_model_options options = {
        .struct_size = sizeof options, .description = description, .description_bytes = strlen(description)};
    assert_fine(context, hark_model_create(context, &options, 1, &model));
    assert_failure(context, hark_foreign_export(context, model, test_path(folder, "never"), HARK_NONE, &type), HARK_UNSUPPORTED,
                   cases[i].part);
    assert_int_equal(hark_path_kind_of(test_path(folder, "never")), HARK_PATH_NONE);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void other_files_of_a_folder_stay(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const char *type = NULL;
  hark_model *model = load(context, make_folder(context, "mine", GPT2_KEYS, gpt2, GPT2_COUNT));
  (void)test_file_write_text(folder, "full/notes.txt", "mine");
  assert_failure(context, hark_foreign_export(context, model, test_path(folder, "full"), HARK_NONE, &type), HARK_BAD_FILE,
                 "contains notes.txt");
  assert_int_equal(hark_path_kind_of(test_path(folder, "full/config.json")), HARK_PATH_NONE);
  assert_failure(context, hark_foreign_export(context, model, test_path(folder, "ints"), HARK_I8, &type), HARK_UNSUPPORTED, "integers");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* The published program computes dynamic rates from max_position_embeddings alone. */
static void dynamic_rates_have_one_context(void **state) {
  (void)state;
  const char *type = NULL;
  hark_context *context = test_reference_open();
  hark_model *model = load(context, make_folder(context, "dynamic",
                                                "\"model_type\": \"llama\", " LLAMA_KEYS ", \"rope_scaling\": {\"rope_type\": \"dynamic\", "
                                                "\"factor\": 2, \"original_max_position_embeddings\": 4}",
                                                llama, LLAMA_COUNT));
  assert_int_equal(model->network->config.rotary.scaling, HARK_ROTARY_DYNAMIC);
  assert_int_equal(model->network->config.rotary.original_context, 0);
  assert_fine(context, hark_foreign_export(context, model, test_path(folder, "out"), HARK_NONE, &type));
  model->network->config.rotary.original_context = 4;
  assert_failure(context, hark_foreign_export(context, model, test_path(folder, "never"), HARK_NONE, &type), HARK_UNSUPPORTED,
                 "model.rotary.original_context has no counterpart");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static void load_again(hark_context *context, const char *path, uint64_t fingerprint) {
  hark_model *model = load(context, path);
  assert_true(model->fingerprint == fingerprint);
  hark_model_destroy(context, &model);
}

/* Neither an export that cannot be written nor one over the files of others removes anything. */
static void files_stay_until_there_are_others(void **state) {
  (void)state;
  const char *type = NULL;
  char source[TEST_PATH_BYTES], out[TEST_PATH_BYTES];
  hark_context *context = test_reference_open();
  (void)snprintf(source, sizeof source, "%s", make_folder(context, "source", GPT2_KEYS, gpt2, GPT2_COUNT));
  (void)snprintf(out, sizeof out, "%s", test_path(folder, "out"));
  hark_model *model = load(context, source);
  assert_fine(context, hark_foreign_export(context, model, out, HARK_NONE, &type));
  assert_failure(context, hark_foreign_export(context, model, source, HARK_NONE, &type), HARK_BAD_FILE,
                 "contains config.json, expected a new or empty folder");
  load_again(context, source, model->fingerprint);

  /* over an export, with a tokenizer that this model lacks */
  (void)test_file_write_text(folder, "out/tokenizer.json", "{}");
  assert_fine(context, hark_foreign_export(context, model, out, HARK_NONE, &type));
  assert_int_equal(hark_path_kind_of(test_path(folder, "out/tokenizer.json")), HARK_PATH_NONE);
  load_again(context, out, model->fingerprint);

  /* a number that f16 lacks */
  float *const query = parameter_of(model, "blocks.0.attention.query.weight")->weight.data;
  query[0] = 1e5F;
  assert_failure(context, hark_foreign_export(context, model, out, HARK_F16, &type), HARK_NOT_FINITE, "");
  load_again(context, out, model->fingerprint);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Weights without a description, beside which another program has a config.json: the description that is given is used. */
static void a_given_description_is_used(void **state) {
  (void)state;
  static const char description[] =
      "{\"model\": {\"type\": \"gpt\", \"layers\": 1, \"heads\": 2, \"key_heads\": 2, \"width\": 8, \"feed_forward_width\": 8, "
      "\"context\": 8, \"activation\": \"gated_silu\", \"norm\": \"rms_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"rotary\", "
      "\"tie_embeddings\": true, \"bias\": false, \"vocabulary\": 9, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, "
      "\"attention\": {\"structure\": \"dense\", \"window\": 128, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": false}}}";
  enum { MOST = 32 };
  hark_context *context = test_reference_open();
  hark_named_tensor named[MOST];
  hark_network *network = NULL;
  hark_description read;
  hark_model *model = NULL;
  hark_model_options options = {.struct_size = sizeof options, .description = description, .description_bytes = sizeof description - 1};
  const char *const path = make_folder(context, "beside", GPT2_KEYS, gpt2, GPT2_COUNT);
  char weights[TEST_PATH_BYTES];
  (void)snprintf(weights, sizeof weights, "%s", path);
  assert_fine(context, hark_description_parse(context, "description", description, sizeof description - 1, &read));
  assert_fine(context, hark_network_create(context, &read.config, HARK_F32, false, &network));
  assert_fine(context, hark_parameters_initialise(context, &network->parameters, 3));
  assert_true(network->parameters.count <= MOST);
  for (int32_t i = 0; i < network->parameters.count; i++)
    named[i] = (hark_named_tensor){.name = network->parameters.list[i].name, .tensor = &network->parameters.list[i].weight};
  assert_fine(context, hark_safetensors_write(context, test_path(folder, "beside/model.safetensors"), named, network->parameters.count,
                                              NULL, 0, NULL));
  hark_network_destroy(context, &network);
  hark_description_close(context, &read);
  assert_fine(context, hark_model_load(context, weights, &options, &model));
  assert_int_equal(model->network->config.vocabulary, 9);
  hark_model_destroy(context, &model);

  options = (hark_model_options){.struct_size = sizeof options, .vocabulary = "{}", .vocabulary_bytes = 2};
  assert_failure(context, hark_model_load(context, make_folder(context, "theirs", GPT2_KEYS, gpt2, GPT2_COUNT), &options, &model),
                 HARK_INVALID_ARGUMENT, "hark_model_options.vocabulary");
  assert_null(model);
  test_setup_close(context);
}

/* Files of the model without its head have names without a prefix; both for one parameter would be ambiguous. */
static void a_parameter_has_one_tensor(void **state) {
  (void)state;
  entry twice[GPT2_COUNT + 1];
  hark_context *context = test_reference_open();
  memcpy(twice, gpt2, sizeof gpt2);
  twice[GPT2_COUNT] = (entry){"wte.weight", 7, 4, HARK_NONE};
  refuse(context, make_folder(context, "twice", GPT2_KEYS, twice, GPT2_COUNT + 1), HARK_BAD_FILE, "tensor \"wte.weight\" is unexpected");
  twice[0] = twice[GPT2_COUNT];
  hark_model *model = load(context, make_folder(context, "once", GPT2_KEYS, twice, GPT2_COUNT));
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* ---- tokenizers ---- */

static const char words[] =
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

static void a_model_has_its_tokenizer(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  char own[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s", make_folder(context, "tokens", GPT2_KEYS, gpt2, GPT2_COUNT));
  (void)test_file_write_text(folder, "tokens/tokenizer.json", words);
  (void)snprintf(own, sizeof own, "%s", test_path(folder, "tokens.safetensors"));
  hark_model *read = load(context, path);
  assert_fine(context, hark_model_save(context, read, own));
  hark_model_destroy(context, &read);
  hark_model *model = load(context, own);
  hark_model_info info = {.struct_size = sizeof info};
  int32_t tokens[TOKENS];
  size_t count = 0, bytes = 0;
  assert_int_equal(hark_model_describe(model, &info), HARK_OK);
  assert_string_equal(info.tokenizer, "tokenizer.json");
  assert_fine(context, hark_model_tokenize(context, model, "ab b", 4, false, true, tokens, TOKENS, &count));
  assert_int_equal(count, 4);
  const int32_t expected[] = {5, 4, 0, 2};
  assert_memory_equal(tokens, expected, sizeof expected);
  assert_fine(context, hark_model_tokenize(context, model, "ab b", 4, false, true, NULL, 0, &count));
  assert_int_equal(count, 4);
  assert_fine(context, hark_model_encode(context, model, "ab", 2, false, tokens, &count));
  assert_int_equal(count, 1);
  assert_failure(context, hark_model_encode(context, model, "a", 1, false, tokens, &count), HARK_TOO_LARGE, "2 tokens");
  assert_memory_equal(hark_model_token_text(model, 4, &bytes), " ab", 3); /* in the middle of a text */
  assert_int_equal(bytes, 3);
  (void)hark_model_token_text(model, 5, &bytes);
  assert_int_equal(bytes, 0);
  (void)hark_model_token_text(model, 6, &bytes); /* a row of the embedding without a token */
  assert_int_equal(bytes, 0);
  const char *type = NULL;
  assert_fine(context, hark_foreign_export(context, model, test_path(folder, "back"), HARK_NONE, &type));
  char *copy = test_file_text(folder, "back/tokenizer.json");
  assert_string_equal(copy, words);
  free(copy);
  hark_model_destroy(context, &model);
  (void)test_file_write_text(folder, "tokens/tokenizer.json", "{\"model\": {\"type\": \"Odd\"}}");
  refuse(context, path, HARK_UNSUPPORTED, "tokenizer.json: model.type 'Odd'");
  test_setup_close(context);
}

static void other_texts_are_no_tokenizers(void **state) {
  (void)state;
  static const char *const wrong[] = {"", "0", "0g", "0A", "abc", "[]"};
  hark_context *context = test_reference_open();
  hark_text bytes = hark_text_empty(context);
  assert_fine(context, hark_imported_bytes(context, "x", "0a0300ff", &bytes));
  assert_int_equal(bytes.length, 4);
  assert_memory_equal(bytes.data, "\x0A\x03\x00\xFF", 4);
  hark_text_free(&bytes);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    hark_imported *imported = NULL;
    assert_int_equal(hark_imported_parse(context, "x", wrong[i], &imported), HARK_BAD_FILE);
    assert_null(imported);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(numbers_of_llama_are_in_their_places, begin, end),
      cmocka_unit_test_setup_teardown(layers_of_gpt2_are_divided_and_transposed, begin, end),
      cmocka_unit_test_setup_teardown(keys_become_options, begin, end),
      cmocka_unit_test_setup_teardown(windows_count_the_query_itself, begin, end),
      cmocka_unit_test_setup_teardown(types_are_kept_also_in_shards, begin, end),
      cmocka_unit_test_setup_teardown(keys_are_refused_by_name, begin, end),
      cmocka_unit_test_setup_teardown(tensors_are_refused_by_name, begin, end),
      cmocka_unit_test_setup_teardown(every_allocation_may_fail, begin, end),
      cmocka_unit_test_setup_teardown(exports_have_the_bits_of_what_was_imported, begin, end),
      cmocka_unit_test_setup_teardown(options_without_a_counterpart_are_named, begin, end),
      cmocka_unit_test_setup_teardown(other_files_of_a_folder_stay, begin, end),
      cmocka_unit_test_setup_teardown(dynamic_rates_have_one_context, begin, end),
      cmocka_unit_test_setup_teardown(files_stay_until_there_are_others, begin, end),
      cmocka_unit_test_setup_teardown(a_given_description_is_used, begin, end),
      cmocka_unit_test_setup_teardown(a_parameter_has_one_tensor, begin, end),
      cmocka_unit_test_setup_teardown(a_model_has_its_tokenizer, begin, end),
      cmocka_unit_test(other_texts_are_no_tokenizers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
