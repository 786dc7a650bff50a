/* test_foreign.c - models of other programs are read: where their numbers go, which options their keys become, and what is refused, by its
 * name. */
#include <hark/hark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "io/safetensors.h"
#include "support/cmocka_all.h"
#include "support/foreign_folder.h"
#include "support/setups.h"

enum { WIDTH = 4 };

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

/* ---- where numbers go ---- */

static void numbers_of_llama_are_in_their_places(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = foreign_load(context, foreign_make(context, folder, "llama", FOREIGN_LLAMA, foreign_llama, FOREIGN_LLAMA_COUNT));
  const float *key = foreign_parameter(model, "blocks.1.attention.key.weight")->weight.data;
  for (int64_t i = 0; i < 8; i++) assert_true(key[i] == foreign_number(12, i)); /* the 13th tensor */
  const float *head = foreign_parameter(model, "head.weight")->weight.data;
  for (int64_t i = 0; i < 28; i++) assert_true(head[i] == foreign_number(FOREIGN_LLAMA_COUNT - 1, i));
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
  hark_model *model = foreign_load(context, foreign_make(context, folder, "gpt2", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT));
  for (int p = 0; p < 3; p++) {
    char name[64];
    (void)snprintf(name, sizeof name, "blocks.0.attention.%s.weight", parts[p]);
    const float *weight = foreign_parameter(model, name)->weight.data;
    for (int out = 0; out < 4; out++)
      for (int in = 0; in < 4; in++) assert_true(weight[4 * out + in] == foreign_number(4, 12 * in + 4 * p + out));
    (void)snprintf(name, sizeof name, "blocks.0.attention.%s.bias", parts[p]);
    const float *bias = foreign_parameter(model, name)->weight.data;
    for (int out = 0; out < 4; out++) assert_true(bias[out] == foreign_number(5, 4 * p + out));
  }
  const float *down = foreign_parameter(model, "blocks.0.feed_forward.down.weight")->weight.data;
  for (int out = 0; out < 4; out++)
    for (int in = 0; in < 6; in++) assert_true(down[6 * out + in] == foreign_number(12, 4 * in + out));
  assert_int_equal(model->network->config.activation, HARK_ACTIVATION_GELU_TANH);
  assert_true(model->network->config.tie_embeddings);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* ---- configurations ---- */

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
    (void)snprintf(keys, sizeof keys, "%s, %s", FOREIGN_LLAMA, cases[i].keys);
    hark_model *model = foreign_load(context, foreign_make(context, folder, "rope", keys, foreign_llama, FOREIGN_LLAMA_COUNT));
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
    (void)snprintf(keys, sizeof keys, "\"model_type\": \"mistral\", " FOREIGN_LLAMA_KEYS ", %s", cases[i].keys);
    hark_model *model = foreign_load(context, foreign_make(context, folder, "mistral", keys, foreign_llama, FOREIGN_LLAMA_COUNT));
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
  foreign_entry mixed[FOREIGN_LLAMA_COUNT];
  hark_context *context = test_reference_open();
  memcpy(mixed, foreign_llama, sizeof foreign_llama);
  mixed[2].type = HARK_BF16; /* queries of the first block */
  mixed[12].type = HARK_F16; /* keys of the second */
  mixed[1].type = HARK_BF16; /* a norm, which hark holds in f32 */
  char index[4096] = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
  for (int t = 0; t < FOREIGN_LLAMA_COUNT; t++)
    (void)snprintf(index + strlen(index), sizeof index - strlen(index), "%s\"%s\": \"model-0000%d-of-00002.safetensors\"",
                   t > 0 ? ", " : "", mixed[t].name, t < 10 ? 1 : 2);
  (void)snprintf(index + strlen(index), sizeof index - strlen(index), "}}");
  char config[1024];
  (void)snprintf(config, sizeof config, "{%s}", FOREIGN_LLAMA);
  (void)test_file_write_text(folder, "shards/config.json", config);
  (void)test_file_write_text(folder, "shards/model.safetensors.index.json", index);
  foreign_write_tensors(context, test_path(folder, "shards/model-00001-of-00002.safetensors"), mixed, 0, 10, -1);
  foreign_write_tensors(context, test_path(folder, "shards/model-00002-of-00002.safetensors"), mixed, 10, FOREIGN_LLAMA_COUNT, -1);
  hark_model *model = foreign_load(context, test_path(folder, "shards"));
  assert_int_equal(foreign_parameter(model, "blocks.0.attention.query.weight")->weight.type, HARK_BF16);
  assert_int_equal(foreign_parameter(model, "blocks.1.attention.key.weight")->weight.type, HARK_F16);
  assert_int_equal(foreign_parameter(model, "blocks.0.attention_norm.weight")->weight.type, HARK_F32);
  const float *norm = foreign_parameter(model, "blocks.0.attention_norm.weight")->weight.data;
  for (int64_t i = 0; i < WIDTH; i++) assert_true(norm[i] == foreign_number(1, i));
  float query[16];
  hark_half_to_f32(HARK_BF16, foreign_parameter(model, "blocks.0.attention.query.weight")->weight.data, 16, query);
  for (int64_t i = 0; i < 16; i++) assert_true(query[i] == foreign_number(2, i));
  hark_model_destroy(context, &model);

  /* an index and files that disagree */
  assert_int_equal(remove(test_path(folder, "shards/model-00002-of-00002.safetensors")), 0);
  foreign_refuse(context, test_path(folder, "shards"), HARK_NOT_FOUND, "model-00002-of-00002.safetensors: is missing");
  foreign_write_tensors(context, test_path(folder, "shards/model-00002-of-00002.safetensors"), mixed, 10, FOREIGN_LLAMA_COUNT, 12);
  foreign_refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "has no tensor \"model.layers.1.self_attn.k_proj.weight\"");
  foreign_write_tensors(context, test_path(folder, "shards/model-00002-of-00002.safetensors"), mixed, 9, FOREIGN_LLAMA_COUNT, -1);
  foreign_refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "is not in model.safetensors.index.json");
  (void)test_file_write_text(folder, "shards/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../a.safetensors\"}}");
  foreign_refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "weight_map.a: expected the name of a file in this folder");

  /* more entries than any model has tensors */
  enum { MANY = 200001, ROOM = 24 };
  char *const long_index = malloc((size_t)MANY * ROOM + 64);
  size_t length = (size_t)snprintf(long_index, 64, "{\"weight_map\": {");
  for (int i = 0; i < MANY; i++) length += (size_t)snprintf(long_index + length, ROOM, "%s\"%d\": \"a\"", i > 0 ? ", " : "", i);
  (void)snprintf(long_index + length, 64, "}}");
  (void)test_file_write_text(folder, "shards/model.safetensors.index.json", long_index);
  free(long_index);
  foreign_refuse(context, test_path(folder, "shards"), HARK_BAD_FILE, "weight_map: has 200001 entries, expected at most 200000");
  test_setup_close(context);
}

/* ---- refusals ---- */

typedef struct refused_keys {
  const char *keys; /* of foreign_llama, in addition */
  hark_status status;
  const char *part;
} refused_keys;

static void keys_are_refused_by_name(void **state) {
  (void)state;
  static const refused_keys cases[] = {
      {"\"logit_scale\": 0.5", HARK_UNSUPPORTED, "config.json: logit_scale: is 0.5"},
      {"\"quantization_config\": {\"quant_method\": \"gptq\"}", HARK_UNSUPPORTED, "quantization_config: is {...}, expected null"},
      {"\"hidden_act\": \"relu\"", HARK_UNSUPPORTED, "hidden_act: is relu, expected silu or swish or gelu or "},
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
    (void)snprintf(keys, sizeof keys, "%s, %s", FOREIGN_LLAMA, cases[i].keys);
    foreign_refuse(context, foreign_make(context, folder, "keys", keys, foreign_llama, FOREIGN_LLAMA_COUNT), cases[i].status,
                   cases[i].part);
  }
  foreign_refuse(context, foreign_make(context, folder, "keys", "\"model_type\": \"mamba\"", foreign_llama, FOREIGN_LLAMA_COUNT),
                 HARK_UNSUPPORTED, "model_type: is mamba, expected one of gpt2, llama");
  foreign_refuse(
      context, foreign_make(context, folder, "keys", FOREIGN_GPT2_KEYS ", \"scale_attn_weights\": null", foreign_gpt2, FOREIGN_GPT2_COUNT),
      HARK_UNSUPPORTED, "scale_attn_weights: is null, expected true");
  hark_model *model =
      foreign_load(context, foreign_make(context, folder, "keys",
                                         FOREIGN_GPT2_KEYS ", \"scale_attn_by_inverse_layer_idx\": null, \"pruned_heads\": null",
                                         foreign_gpt2, FOREIGN_GPT2_COUNT));
  hark_model_destroy(context, &model);
  foreign_refuse(
      context,
      foreign_make(context, folder, "keys",
                   "\"model_type\": \"gpt2\", \"vocab_size\": 7, \"n_positions\": 6, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, "
                   "\"n_inner\": 16777217",
                   foreign_gpt2, FOREIGN_GPT2_COUNT),
      HARK_UNSUPPORTED, "n_inner: is 16777217, expected at most 2^24");
  foreign_refuse(context, foreign_make(context, folder, "keys", "\"vocab_size\": 7", foreign_llama, FOREIGN_LLAMA_COUNT), HARK_BAD_FILE,
                 "model_type: is missing");
  foreign_refuse(context,
                 foreign_make(context, folder, "keys", "\"model_type\": \"llama\", \"vocab_size\": 7", foreign_llama, FOREIGN_LLAMA_COUNT),
                 HARK_BAD_FILE, "hidden_size: is missing");
  foreign_refuse(context, foreign_make(context, folder, "keys", "\"model_type\": ", foreign_llama, FOREIGN_LLAMA_COUNT), HARK_BAD_FILE,
                 "config.json: line 1");
  test_setup_close(context);
}

static void tensors_are_refused_by_name(void **state) {
  (void)state;
  foreign_entry other[FOREIGN_LLAMA_COUNT + 1];
  hark_context *context = test_reference_open();
  const char *const path = foreign_make(context, folder, "tensors", FOREIGN_LLAMA, foreign_llama, FOREIGN_LLAMA_COUNT);
  char kept[TEST_PATH_BYTES], file[TEST_PATH_BYTES];
  (void)snprintf(kept, sizeof kept, "%s", path);
  (void)snprintf(file, sizeof file, "%s", test_path(folder, "tensors/model.safetensors"));
  foreign_write_tensors(context, file, foreign_llama, 0, FOREIGN_LLAMA_COUNT, 3);
  foreign_refuse(context, kept, HARK_BAD_FILE, "tensor \"model.layers.0.self_attn.k_proj.weight\" is missing");
  memcpy(other, foreign_llama, sizeof foreign_llama);
  other[FOREIGN_LLAMA_COUNT] = (foreign_entry){"model.layers.2.self_attn.q_proj.weight", 4, 4, HARK_NONE};
  foreign_write_tensors(context, file, other, 0, FOREIGN_LLAMA_COUNT + 1, -1);
  foreign_refuse(context, kept, HARK_BAD_FILE, "tensor \"model.layers.2.self_attn.q_proj.weight\" is unexpected");
  other[FOREIGN_LLAMA_COUNT].name = "model.layers.1.self_attn.rotary_emb.inv_freq"; /* follows from the configuration */
  foreign_write_tensors(context, file, other, 0, FOREIGN_LLAMA_COUNT + 1, -1);
  hark_model *model = foreign_load(context, kept);
  hark_model_destroy(context, &model);
  other[3].rows = 3;
  foreign_write_tensors(context, file, other, 0, FOREIGN_LLAMA_COUNT, -1);
  foreign_refuse(context, kept, HARK_BAD_FILE, "has shape [3, 4], expected [2, 4]");
  size_t bytes = 0;
  foreign_write_tensors(context, file, foreign_llama, 0, FOREIGN_LLAMA_COUNT, -1);
  unsigned char *data = test_file_read(file, &bytes);
  (void)test_file_write(folder, "tensors/model.safetensors", data, bytes - 8);
  free(data);
  foreign_refuse(context, kept, HARK_BAD_FILE, "model.safetensors: ");
  assert_int_equal(remove(file), 0);
  foreign_refuse(context, kept, HARK_NOT_FOUND, "has neither model.safetensors");
  (void)test_file_write(folder, "tensors/pytorch_model.bin", "\x80\x02", 2);
  foreign_refuse(context, kept, HARK_UNSUPPORTED, "pytorch_model.bin: pickled weights are not read");
  if (strstr(hark_context_message(context), "safetensors") == NULL) fail_msg("%s", hark_context_message(context));
  test_setup_close(context);
}

/* Whatever allocation fails, nothing leaks. */
static void every_allocation_may_fail(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_reference_open();
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s", foreign_make(context, folder, "memory", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT));
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
  const char *const path = foreign_make(context, folder, "beside", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT);
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
  assert_failure(context,
                 hark_model_load(context, foreign_make(context, folder, "theirs", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT),
                                 &options, &model),
                 HARK_INVALID_ARGUMENT, "hark_model_options.vocabulary");
  assert_null(model);
  test_setup_close(context);
}

/* Files of the model without its head have names without a prefix; both for one parameter would be ambiguous. */
static void a_parameter_has_one_tensor(void **state) {
  (void)state;
  foreign_entry twice[FOREIGN_GPT2_COUNT + 1];
  hark_context *context = test_reference_open();
  memcpy(twice, foreign_gpt2, sizeof foreign_gpt2);
  twice[FOREIGN_GPT2_COUNT] = (foreign_entry){"wte.weight", 7, 4, HARK_NONE};
  foreign_refuse(context, foreign_make(context, folder, "twice", FOREIGN_GPT2_KEYS, twice, FOREIGN_GPT2_COUNT + 1), HARK_BAD_FILE,
                 "tensor \"wte.weight\" is unexpected");
  twice[0] = twice[FOREIGN_GPT2_COUNT];
  hark_model *model = foreign_load(context, foreign_make(context, folder, "once", FOREIGN_GPT2_KEYS, twice, FOREIGN_GPT2_COUNT));
  hark_model_destroy(context, &model);
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
      cmocka_unit_test_setup_teardown(a_given_description_is_used, begin, end),
      cmocka_unit_test_setup_teardown(a_parameter_has_one_tensor, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
