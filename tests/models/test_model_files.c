/* test_model_files.c - <hark/model.h>: models from paths and bytes, what is refused, text to tokens and back. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "core/half.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "models/description.h"
#include "models/model.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

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

/* A file of the model in memory, for free(). */
static unsigned char *file_of(hark_context *context, const hark_model *model, size_t *bytes) {
  const char *path = test_path(folder, "model-for-memory.safetensors");
  assert_fine(context, hark_model_save(context, model, path));
  return test_file_read(path, bytes);
}

/* ---- loading ---- */

static void models_say_what_they_are(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3);
  hark_model_info info = {.struct_size = sizeof info};
  assert_int_equal(hark_model_describe(model, &info), HARK_OK);
  assert_string_equal(info.type, "gpt");
  assert_string_equal(info.tokenizer, "bytes");
  assert_int_equal(info.vocabulary, VOCABULARY);
  assert_int_equal(info.reserved, 5);
  assert_int_equal(info.context, CONTEXT);
  assert_int_equal(info.layers, 2);
  assert_int_equal(info.key_heads, 2);
  assert_int_equal(info.begin, 0);
  /* embedding, and of each block: two norms, queries, keys, values, output, gate, up, down; the last norm */
  assert_int_equal(info.parameters, VOCABULARY * 32 + 2 * (2 * 32 + 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 48 * 32) + 32);
  assert_true(info.bytes > (size_t)info.parameters * sizeof(float));
  assert_int_equal(hark_context_memory(context).live_bytes > info.bytes, 1);
  const uint64_t of_texts = info.fingerprint;
  assert_fine(context, hark_model_mark_sentences(context, model));
  assert_int_equal(hark_model_describe(model, &info), HARK_OK);
  assert_int_equal(info.begin, 2); /* <begin>, as vocabulary.json numbers it */
  assert_true(info.fingerprint != of_texts);
  info.struct_size = 0;
  assert_int_equal(hark_model_describe(model, &info), HARK_INVALID_ARGUMENT);
  hark_model_destroy(context, &model);
  assert_null(model);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static uint64_t fingerprint(const hark_model *model) {
  hark_model_info info = {.struct_size = sizeof info};
  assert_int_equal(hark_model_describe(model, &info), HARK_OK);
  return info.fingerprint;
}

/* The manifest of a checkpoint with a model.safetensors. */
static void write_manifest(hark_context *context, const char *checkpoint) {
  static const char *const name = "model.safetensors";
  test_manifest_write(context, folder, checkpoint, 1, &name);
}

/* A path is a file, a folder with one, or a run; memory holds the same file, in any alignment. All are the same model. */
static void a_model_is_the_same_from_everywhere(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3), *other = small_model_make(context, PLAIN, 4), *loaded = NULL;
  const uint64_t expected = fingerprint(model);
  assert_true(fingerprint(other) != expected);
  size_t bytes;
  unsigned char *file = file_of(context, model, &bytes);
  test_file_write(folder, "one.safetensors", file, bytes);
  test_file_write(folder, "run/checkpoints/step-7/model.safetensors", file, bytes);
  test_file_write_text(folder, "run/last", "step-7\n");
  assert_failure(context, hark_model_load(context, test_path(folder, "run"), NULL, &loaded), HARK_NOT_FOUND, "manifest.json");
  write_manifest(context, "run/checkpoints/step-7");
  static const struct {
    const char *path, *checkpoint;
  } places[] = {{"one.safetensors", NULL}, {"run", NULL}, {"run", "last"}, {"run", "step-7"}, {"run/checkpoints/step-7", NULL}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const hark_model_options options = {.struct_size = sizeof options, .checkpoint = places[i].checkpoint};
    assert_fine(context, hark_model_load(context, test_path(folder, places[i].path), &options, &loaded));
    assert_true(fingerprint(loaded) == expected);
    hark_model_destroy(context, &loaded);
  }
  unsigned char *shifted = malloc(bytes + 3);
  assert_non_null(shifted);
  for (size_t shift = 0; shift < 3; shift++) {
    memcpy(shifted + shift, file, bytes);
    assert_fine(context, hark_model_load_memory(context, shifted + shift, bytes, NULL, &loaded));
    memset(shifted, 0xff, bytes + 3); /* it is the caller's again */
    assert_true(fingerprint(loaded) == expected);
    hark_model_destroy(context, &loaded);
  }
  const hark_model_options best = {.struct_size = sizeof best, .checkpoint = "best"},
                           bad = {.struct_size = sizeof bad, .checkpoint = "../x"};
  assert_failure(context, hark_model_load(context, test_path(folder, "run"), &best, &loaded), HARK_NOT_FOUND, "best");
  assert_failure(context, hark_model_load(context, test_path(folder, "run"), &bad, &loaded), HARK_INVALID_ARGUMENT, "../x");
  assert_failure(context, hark_model_load(context, test_path(folder, "none"), NULL, &loaded), HARK_NOT_FOUND, "none");
  assert_failure(context, hark_model_load(context, folder, NULL, &loaded), HARK_BAD_FILE, "is neither a run");
  assert_null(loaded);
  free(file);
  free(shifted);
  hark_model_destroy(context, &model);
  hark_model_destroy(context, &other);
  test_setup_close(context);
}

/* A manifest beside the weights is believed, unless the caller says no. */
static void a_manifest_is_compared(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3), *loaded = NULL;
  size_t bytes;
  unsigned char *file = file_of(context, model, &bytes);
  char path[TEST_PATH_BYTES];
  snprintf(path, sizeof path, "%s", test_file_write(folder, "model.safetensors", file, bytes));
  write_manifest(context, ".");
  assert_fine(context, hark_model_load(context, folder, NULL, &loaded));
  hark_model_destroy(context, &loaded);
  file[bytes - 1] ^= 1; /* of a weight: only the manifest shows it */
  test_file_write(folder, "model.safetensors", file, bytes);
  assert_failure(context, hark_model_load(context, folder, NULL, &loaded), HARK_BAD_FILE, "SHA-256");
  assert_failure(context, hark_model_load(context, path, NULL, &loaded), HARK_BAD_FILE, "SHA-256");
  const hark_model_options trusting = {.struct_size = sizeof trusting, .skip_verification = true};
  assert_fine(context, hark_model_load(context, folder, &trusting, &loaded));
  assert_true(fingerprint(loaded) != fingerprint(model));
  hark_model_destroy(context, &loaded);
  test_file_write(folder, "model.safetensors", file, bytes - 1);
  assert_failure(context, hark_model_load(context, folder, NULL, &loaded), HARK_BAD_FILE, "bytes");
  test_file_write_text(folder, "manifest.json", "{\"format_version\": 1, \"files\": []}");
  assert_failure(context, hark_model_load(context, folder, NULL, &loaded), HARK_BAD_FILE, "does not list");
  test_file_write_text(folder, "manifest.json", "{\"format_version\": 2, \"files\": []}");
  assert_failure(context, hark_model_load(context, folder, NULL, &loaded), HARK_BAD_FILE, "format_version");
  free(file);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Finds a byte string in a file; fails when it is not there. */
static unsigned char *find(unsigned char *file, size_t bytes, const char *text) {
  const size_t length = strlen(text);
  for (size_t at = 0; at + length <= bytes; at++)
    if (memcmp(file + at, text, length) == 0) return file + at;
  fail_msg("\"%s\" is not in the file", text);
  return NULL;
}

/* Changes one text of the header, of the same length. */
static void refuse_change(hark_context *context, const unsigned char *file, size_t bytes, const char *from, const char *to,
                          const char *message) {
  hark_model *loaded = NULL;
  unsigned char *copy = malloc(bytes);
  assert_non_null(copy);
  assert_int_equal(strlen(from), strlen(to));
  memcpy(copy, file, bytes);
  memcpy(find(copy, bytes, from), to, strlen(to));
  const hark_memory_use before = hark_context_memory(context);
  const hark_status status = hark_model_load_memory(context, copy, bytes, NULL, &loaded);
  if ((status != HARK_BAD_FILE && status != HARK_BAD_CONFIGURATION) || strstr(hark_context_message(context), message) == NULL)
    fail_msg("%s -> %s: %s \"%s\", expected \"%s\"", from, to, hark_status_name(status), hark_context_message(context), message);
  assert_null(strchr(hark_context_message(context), '\n'));
  assert_null(loaded);
  assert_int_equal(hark_context_memory(context).live_bytes, before.live_bytes);
  free(copy);
}

#define Q(text) "\\\"" text "\\\""
static void wrong_descriptions_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3), *loaded = NULL;
  size_t bytes;
  unsigned char *file = file_of(context, model, &bytes);
  refuse_change(context, file, bytes, Q("gpt"), Q("rnn"), "model.type is \"rnn\", expected one of gpt");
  refuse_change(context, file, bytes, Q("layers") ": 2", Q("layers") ": 3", "blocks.2.attention_norm.weight");
  refuse_change(context, file, bytes, Q("layers") ": 2", Q("layers") ": 1", "tensors, the model has");
  refuse_change(context, file, bytes, Q("layers") ": 2", Q("layers") ": 0", "model.layers is 0, expected a whole number in [1, 10000]");
  refuse_change(context, file, bytes, Q("width") ": 32", Q("width") ": 64", "expected F32 [261, 64]");
  refuse_change(context, file, bytes, Q("width") ": 32", Q("width") ": 3e", "expected digits in the exponent");
  refuse_change(context, file, bytes, Q("heads") ": 4", Q("heads") ": 3", "is not divisible by model.heads");
  refuse_change(context, file, bytes, Q("vocabulary") ": 261", Q("vocabulary") ": 262", "its vocabulary 261");
  refuse_change(context, file, bytes, Q("activation"), Q("activatiom"), "unknown key model.activatiom");
  refuse_change(context, file, bytes, Q("gated_silu"), Q("gated_selu"), "model.activation is \"gated_selu\", expected one of gelu, ");
  refuse_change(context, file, bytes, "\"format_version\":\"1\"", "\"format_version\":\"9\"", "format_version is not 1");
  refuse_change(context, file, bytes, Q("tie_embeddings") ": true", Q("tie_embeddings") ": 1111", "neither true nor false");
  refuse_change(context, file, bytes, Q("tie_embeddings") ": true", Q("tie_embeddings") ": null", "neither true nor false");
  refuse_change(context, file, bytes, Q("kind") ": " Q("bytes"), Q("kind") ": " Q("words"), "no tokenizer is called \"words\"");
  refuse_change(context, file, bytes, "blocks.1.attention.key.weight", "blocks.1.attention.kex.weight",
                "no tensor \"blocks.1.attention.key.weight\"");
  refuse_change(context, file, bytes, "\"model\":", "\"nodel\":", "does not describe its model");
  /* and from the caller */
  static const struct {
    const char *description, *message;
  } cases[] = {{"", "ends too early"},
               {"[]", "member \"model\""},
               {"{\"model\": 1}", "member \"model\""},
               {"{\"model\": {}}", "model.type is missing"},
               {"{\"model\": {\"type\": \"gpt\"}}", "model.layers is missing"},
               {"{\"model\": {\"type\": \"gpt\", \"layers\": 1.5}}", "model.layers is not a whole number"},
               {"{\"model\": {\"rotary\": {\"base\": 2}, \"rotary.base\": 2}}", "model.rotary.base occurs twice"},
               {"{\"model\": {\"norm_epsilon\": 0}}", "model.norm_epsilon is 0, expected a number in (0, 1]"},
               {"{\"model\": {\"norm_epsilon\": \"1\"}}", "model.norm_epsilon is not a number"},
               {"{\"model\": {\"a\\u000ab\": 1}}", "unknown key model.a?b"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hark_model_options options = small_model_options(cases[i].description);
    assert_failure(context, hark_model_create(context, &options, 1, &loaded), HARK_BAD_FILE, cases[i].message);
    assert_null(loaded);
  }
#define KINDS(structure, query, normalisation)                                                                                             \
  MODEL("none", ATTENTION(structure, "false") ", \"hierarchy_block\": 2, \"coarse_query\": \"" query                                       \
                                              "\", \"normalisation\": \"" normalisation "\", \"ridge\": 1")
  static const struct {
    const char *description;
    hark_status status;
    const char *message;
  } kinds[] = {{KINDS("dense,window", "first", "softmax,cme"), HARK_BAD_CONFIGURATION, "needs model.attention.structure dense, in layer 1"},
               {KINDS("hierarchical", "first", "cme"), HARK_BAD_CONFIGURATION, "needs model.attention.structure dense, in layer 0"},
               {KINDS("dense,hierarchical", "mean", "softmax"), HARK_BAD_CONFIGURATION, "coarse_query is mean"},
               {KINDS("dense,dense,dense", "first", "softmax"), HARK_BAD_CONFIGURATION, "has 3 words for 2 layers"},
               {KINDS("dense,", "first", "softmax"), HARK_BAD_FILE,
                "expected one of dense, window, hierarchical, compressed, or up to 64 of them for the layers in turn, with commas"},
               {KINDS("", "first", "softmax"), HARK_BAD_FILE, "model.attention.structure is \"\""},
               {KINDS("dense", "first", "softmax;cme"), HARK_BAD_FILE, "model.attention.normalisation is \"softmax;cme\""}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const hark_model_options options = small_model_options(kinds[i].description);
    assert_failure(context, hark_model_create(context, &options, 1, &loaded), kinds[i].status, kinds[i].message);
    assert_null(loaded);
  }
  assert_failure(context, hark_model_create(context, NULL, 1, &loaded), HARK_INVALID_ARGUMENT, "no description");
  const hark_model_options small = {.struct_size = 4};
  assert_failure(context, hark_model_load(context, folder, &small, &loaded), HARK_INVALID_ARGUMENT, "struct_size");
  free(file);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Weights without metadata are loaded with what the caller gives, and with the options of a whole configuration too. */
static void other_programs_weights_need_a_description(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3), *loaded = NULL;
  size_t bytes;
  unsigned char *file = file_of(context, model, &bytes);
  hark_safetensors *opened = NULL;
  assert_fine(context, hark_safetensors_open_memory(context, "f", file, bytes, &opened));
  hark_named_tensor named[64];
  hark_tensor tensors[64];
  const int64_t count = hark_safetensors_count(opened);
  assert_in_range(count, 1, 64);
  for (int64_t i = 0; i < count; i++) {
    named[i] = (hark_named_tensor){.name = hark_safetensors_tensor(opened, i)->name, .tensor = &tensors[i]};
    assert_fine(context, hark_safetensors_load(context, opened, named[i].name, &tensors[i]));
  }
  const char *bare = test_path(folder, "bare.safetensors");
  assert_fine(context, hark_safetensors_write(context, bare, named, count, NULL, 0, NULL));
  assert_failure(context, hark_model_load(context, bare, NULL, &loaded), HARK_BAD_FILE, "hark export");
  static const char *const texts[] = {
      "{\"data\": {\"paths\": [\"x\"]}, \"model\": {\"type\": \"gpt\", \"vocabulary\": 261, \"layers\": 2, \"heads\": 4, \"key_heads\": 2, "
      "\"width\": 32, \"feed_forward_width\": 48, \"context\": 40, \"activation\": \"gated_silu\", \"norm\": \"rms_norm\", "
      "\"norm_epsilon\": "
      "1e-5, \"positions\": \"rotary\", \"tie_embeddings\": true, \"bias\": false, \"dropout\": 0.5, \"embedding_dropout\": 0, "
      "\"recompute\": "
      "true, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, \"attention\": {\"structure\": \"dense\", \"window\": 5, \"kernel\": "
      "\"exp\", \"sigma\": 1, \"forget_gate\": false, \"dropout\": 0}}, \"train\": {\"steps\": 5}}"};
  hark_model_options options = small_model_options(texts[0]);
  assert_fine(context, hark_model_load(context, bare, &options, &loaded));
  assert_true(fingerprint(loaded) == fingerprint(model));
  /* without a vocabulary it knows tokens only */
  int32_t tokens[4];
  size_t used = 1;
  assert_failure(context, hark_model_encode(context, loaded, "ab", 2, false, tokens, &used), HARK_UNSUPPORTED, "no vocabulary");
  assert_int_equal(used, 0);
  assert_string_equal(hark_model_token_text(loaded, 70, &used), "");
  hark_model_destroy(context, &loaded);
  options = small_model_options(PLAIN); /* states no number of tokens */
  assert_failure(context, hark_model_load(context, bare, &options, &loaded), HARK_BAD_FILE, "model.vocabulary");
  for (int64_t i = 0; i < count; i++) hark_tensor_destroy(context, &tensors[i]);
  hark_safetensors_close(context, &opened);
  free(file);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

#define BASE .layers = 1, SIZES
#define DEEP .layers = 3, SIZES
#define SIZES                                                                                                                              \
  .vocabulary = 9, .heads = 2, .key_heads = 1, .width = 8, .feed_forward_width = 12, .context = 10, .norm_epsilon = 1e-5,                  \
  .rotary.base = 10000, .attention.sigma = 2
#define TURNED .positions = HARK_POSITIONS_ROTARY

/* What models may have, and what their descriptions state of it. */
static const struct {
  hark_network_config config;
  const char *stated[6];
} stated_rows[] = {
    {{BASE, .positional = "decay"}, {"\"positional\": \"decay\"", "\"positional_scope\": \"model\""}},
    {{BASE, .positional = "decay", .positional_stretch = 2}, {"\"positional_stretch\": 2"}},
    {{BASE, TURNED, .rotary.learned = HARK_ROTARY_OF_HEAD}, {"\"learned\": \"head\""}},
    {{BASE, .sentences = true}, {"\"sentences\": true"}},
    {{BASE, TURNED, .rotary.fraction = 0.5}, {"\"fraction\": 0.5"}},
    {{BASE, TURNED, .rotary.scaling = HARK_ROTARY_NTK, .rotary.scaling_factor = 4}, {"\"scaling\": \"ntk\"", "\"scaling_factor\": 4"}},
    {{BASE, TURNED, .rotary.scaling = HARK_ROTARY_YARN, .rotary.beta_fast = 16, .rotary.beta_slow = 2, .rotary.mscale = 1,
      .rotary.mscale_all_dim = 0.5},
     {"\"beta_fast\": 16", "\"beta_slow\": 2", "\"truncate\": false", "\"mscale_all_dim\": 0.5"}},
    {{BASE, TURNED, .rotary.scaling = HARK_ROTARY_LLAMA3, .rotary.low_freq_factor = 2, .rotary.high_freq_factor = 8},
     {"\"low_freq_factor\": 2", "\"high_freq_factor\": 8"}},
    {{BASE, TURNED, .rotary.scaling = HARK_ROTARY_LONGROPE, .rotary.attention_factor = 1, .rotary.short_factors = {2, {1, 1.25}},
      .rotary.long_factors = {2, {1, 4}}},
     {"\"attention_factor\": 1", "\"short_factor\": [1, 1.25]", "\"long_factor\": [1, 4]"}},
    {{BASE, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2,
      .attention.partition = HARK_PARTITION_SIBLING, .attention.coarse_query = HARK_COARSE_QUERY_EXACT,
      .attention.hierarchical_bias = true},
     {"\"hierarchy_block\": 2", "\"partition\": \"sibling\"", "\"coarse_query\": \"exact\"", "\"hierarchical_bias\": true"}},
    {{BASE, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 4, .attention.chunk_slots = 2,
      .attention.selected_slots = 3, .attention.chunk_delimiters = {5, -1 - 2, -1 - 3, 0, 4}, .attention.chunk_delimiter_count = 5,
      .attention.chunk_maximum = 9},
     {"\"chunk\": 4", "\"selected_slots\": 3", "\"delimiters\": [5, \"2+3+0\", 4]", "\"chunk_maximum\": 9"}},
    {{DEEP, .attention.structure = {2, {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_COMPRESSED}}, .attention.chunk = 4, .attention.chunk_slots = 2,
      .attention.selected_slots = 3, .attention.chunk_learned = true, .attention.chunk_maximum = 9},
     {"\"chunk\": 4", "\"chunk_learned\": true", "\"selected_slots\": 3", "\"chunk_maximum\": 9"}},
    {{DEEP, .architecture = HARK_ARCHITECTURE_AHCA,
      .ahca = {.chunk = HARK_AHCA_CHUNK_DELIMITER,
               .chunk_size = 4,
               .delimiter = 5,
               .other_delimiters = {3, 0, 8},
               .other_delimiter_count = 3,
               .window = 1,
               .primary_slots = 2,
               .secondary_slots = 4,
               .selected = 2,
               .capacity = 0.5,
               .layer_capacities = {0.75, 0.25},
               .capacity_count = 2,
               .local_layers = 1,
               .local_window = 0}},
     {"\"capacities\": [0.75, 0.25]", "\"more_delimiters\": [3, 0, 8]", "\"delimiter\": 5", "\"primary_slots\": 2"}}};
enum { STATED_ROWS = sizeof stated_rows / sizeof *stated_rows };

/* Fails the test unless the key, with this value, is there, or the key is not there at all. */
static void assert_states(const char *text, const char *stated, bool is_there) {
  char key[64];
  (void)snprintf(key, sizeof key, "%.*s", (int)(strchr(stated, ':') + 1 - stated), stated);
  if ((strstr(text, is_there ? stated : key) != NULL) != is_there) fail_msg("%s %s in %s", stated, is_there ? "is not" : "is", text);
}

/* What a model has none of is not stated; what is stated comes back. */
static void descriptions_state_what_there_is(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const hark_network_config plain = {BASE};
  hark_text without = hark_text_empty(context);
  hark_description_print(&plain, &without);
  for (int i = 0; i < STATED_ROWS; i++) {
    hark_text text = hark_text_empty(context), again = hark_text_empty(context);
    hark_description read;
    hark_description_print(&stated_rows[i].config, &text);
    for (const char *const *stated = stated_rows[i].stated; *stated != NULL; stated++) {
      assert_states(hark_text_get(&text), *stated, true);
      assert_states(hark_text_get(&without), *stated, false);
    }
    assert_fine(context, hark_description_parse(context, "text", hark_text_get(&text), text.length, &read));
    hark_description_print(&read.config, &again);
    assert_string_equal(hark_text_get(&again), hark_text_get(&text));
    hark_description_close(context, &read);
    hark_text_free(&text);
    hark_text_free(&again);
  }
  hark_text_free(&without);
  test_setup_close(context);
}

/* A description that says yarn and no ramp was written when there was one in turns alone. */
static void yarn_of_older_descriptions_is_in_turns(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const hark_network_config yarn = {BASE, TURNED, .rotary.truncate = true, .rotary.scaling = HARK_ROTARY_YARN, .rotary.scaling_factor = 4};
  hark_text text = hark_text_empty(context);
  hark_description read;
  hark_description_print(&yarn, &text);
  assert_fine(context, hark_description_parse(context, "text", hark_text_get(&text), text.length, &read));
  assert_int_equal(read.config.rotary.ramp, HARK_ROTARY_RAMP_PAIR);
  hark_description_close(context, &read);
  char older[2048], *const ramp = strstr(hark_text_get(&text), ", \"ramp\": \"pair\"");
  assert_non_null(ramp);
  (void)snprintf(older, sizeof older, "%.*s%s", (int)(ramp - hark_text_get(&text)), hark_text_get(&text),
                 ramp + strlen(", \"ramp\": \"pair\""));
  assert_fine(context, hark_description_parse(context, "text", older, strlen(older), &read));
  assert_int_equal(read.config.rotary.ramp, HARK_ROTARY_RAMP_TURNS);
  assert_true(read.config.rotary.scaling_factor == 4);
  hark_description_close(context, &read);
  hark_text_free(&text);
  test_setup_close(context);
}

/* Every length, and every byte of the header changed in two ways: refused, or a model; no leak, and no memory beyond the file's size in
 * proportion. */
static void damaged_bytes_are_refused_or_harmless(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_model *model = small_model_make(context, PLAIN, 3), *loaded = NULL;
  size_t bytes;
  unsigned char *file = file_of(context, model, &bytes);
  const size_t live = memory.live_bytes, header = 8 + (size_t)file[0] + 256 * (size_t)file[1];
  assert_true(header < bytes && file[2] == 0);
  for (size_t part = 0; part < bytes; part += part < header + 8 ? 1 : 997) {
    if (hark_model_load_memory(context, file, part, NULL, &loaded) != HARK_BAD_FILE) fail_msg("the first %zu bytes", part);
    assert_null(loaded);
  }
  int refused = 0;
  for (size_t at = 0; at < header; at++)
    for (int change = 0; change < 2; change++) {
      const unsigned char kept = file[at];
      file[at] ^= change == 0 ? 1 : 0x80;
      const hark_status status = hark_model_load_memory(context, file, bytes, NULL, &loaded);
      if (status != HARK_OK && status != HARK_BAD_FILE && status != HARK_BAD_CONFIGURATION)
        fail_msg("byte %zu: %s: %s", at, hark_status_name(status), hark_context_message(context));
      refused += status != HARK_OK;
      hark_model_destroy(context, &loaded);
      assert_int_equal(memory.live_bytes, live);
      file[at] = kept;
    }
  assert_true(refused > 2 * (int)header * 9 / 10); /* numbers such as sigma may change without harm */
  free(file);
  hark_model_destroy(context, &model);
  test_memory_context_end(context, &memory);
}

/* Loading, making a decoding, reading, saving, with allocation number n failing for every n: a status, no leak. */
static void memory_may_run_out(void **state) {
  (void)state;
  hark_context *plain = test_reference_open();
  hark_model *model = small_model_make(plain, small_model_descriptions[2], 3);
  size_t bytes;
  unsigned char *file = file_of(plain, model, &bytes);
  hark_model_destroy(plain, &model);
  test_setup_close(plain);
  hark_status status = HARK_OUT_OF_MEMORY;
  long failures = 0;
  for (long fail_at = 1; status != HARK_OK; fail_at++) {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_model *loaded = NULL;
    hark_decoding *decoding = NULL;
    memory.fail_at = memory.allocations + fail_at;
    status = hark_model_load_memory(context, file, bytes, NULL, &loaded);
    if (status == HARK_OK) status = hark_decoding_create(context, loaded, NULL, &decoding);
    if (status == HARK_OK) status = hark_decoding_step(decoding, 70);
    if (status == HARK_OK) status = hark_model_save(context, loaded, test_path(folder, "saved.safetensors"));
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
    failures += status != HARK_OK;
    hark_decoding_destroy(&decoding);
    hark_model_destroy(context, &loaded);
    test_memory_context_end(context, &memory);
  }
  assert_true(failures > 30);
  free(file);
}

/* ---- text ---- */

static void text_becomes_tokens_and_text(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model_options options = small_model_options(PLAIN);
  hark_model *model = small_model_make(context, PLAIN, 3), *letters = NULL;
  static const char text[] = "It was\0 the \xc3\xa9poque";
  int32_t tokens[sizeof text];
  char back[sizeof text];
  size_t count = 0, bytes = 0;
  assert_fine(context, hark_model_encode(context, model, text, sizeof text - 1, false, tokens, &count));
  assert_int_equal(count, sizeof text - 1);
  hark_model_decode(model, tokens, count, NULL, 0, &bytes);
  assert_int_equal(bytes, sizeof text - 1);
  memset(back, 'x', sizeof back);
  hark_model_decode(model, tokens, count, back, 4, &bytes);
  assert_int_equal(bytes, sizeof text - 1);
  assert_memory_equal(back, "It wx", 5);
  hark_model_decode(model, tokens, count, back, sizeof back, &bytes);
  assert_memory_equal(back, text, sizeof text - 1);
  hark_model_token_text(model, -1, &bytes);
  assert_int_equal(bytes, 0);
  hark_model_token_text(model, VOCABULARY, &bytes);
  assert_int_equal(bytes, 0);

  /* a vocabulary of the caller's */
  static const char vocabulary[] =
      "{\"format_version\": 1, \"kind\": \"characters\", \"reserved\": [\"<padding>\", \"<unknown>\", \"<begin>\", \"<class>\", "
      "\"<mask>\"], "
      "\"size\": 7, \"checksum\": \"%s\", \"symbols\": [\"a\", \"b\"]}";
  char whole[sizeof vocabulary + 32];
  snprintf(whole, sizeof whole, vocabulary, "0000000000000000");
  options.vocabulary = whole;
  options.vocabulary_bytes = strlen(whole);
  assert_failure(context, hark_model_create(context, &options, 1, &letters), HARK_BAD_FILE, "\"checksum\" is not that of the symbols, ");
  char correct[17]; /* the message reports the correct one */
  snprintf(correct, sizeof correct, "%s", strstr(hark_context_message(context), "symbols, ") + strlen("symbols, "));
  snprintf(whole, sizeof whole, vocabulary, correct);
  assert_fine(context, hark_model_create(context, &options, 1, &letters));
  assert_failure(context, hark_model_encode(context, letters, "ab\nc", 4, false, tokens, &count), HARK_BAD_FILE, "text:1:3: U+000A");
  assert_fine(context, hark_model_encode(context, letters, "abc", 3, true, tokens, &count));
  assert_int_equal(count, 3);
  hark_model_decode(letters, tokens, count, back, sizeof back, &bytes);
  assert_int_equal(bytes, 5);
  assert_memory_equal(back, "ab\xEF\xBF\xBD", 5);
  hark_model_destroy(context, &model);
  hark_model_destroy(context, &letters);
  test_setup_close(context);
}

/* By its name: layers that multiply and tables of embeddings. Learned rates of rotary positions and biases of hierarchies have two extents
 * too, and are none. */
static bool is_rounded(const hark_stored_tensor *tensor) {
  const size_t length = strlen(tensor->name), end = strlen(".weight");
  return tensor->rank >= 2 && length > end && strcmp(tensor->name + length - end, ".weight") == 0;
}

/* Each number of `t` in `again` is that of `whole`, rounded if it is stored so. */
static void numbers_are_rounded(hark_context *context, const hark_safetensors *whole, const hark_safetensors *again,
                                const hark_stored_tensor *t, hark_type type) {
  const hark_stored_tensor *const other = hark_safetensors_find(again, t->name);
  float *const before = malloc(t->bytes), *const after = malloc(t->bytes);
  assert_int_equal(other->bytes, t->bytes);
  assert_fine(context, hark_safetensors_read(context, whole, t, before));
  assert_fine(context, hark_safetensors_read(context, again, other, after));
  for (size_t i = 0; i < t->bytes / sizeof *before; i++)
    assert_true(after[i] == (is_rounded(t) ? hark_half_widen(type, hark_half_narrow(type, before[i])) : before[i]));
  free(before);
  free(after);
}

/* Saved in halves, loaded, and saved again in f32: next to the same model saved in f32. */
static void halves_of(hark_context *context, const hark_model *model, hark_type type) {
  const hark_model_save_options options = {.struct_size = sizeof options, .matrices = type};
  hark_safetensors *whole, *halves, *again;
  hark_model *loaded = NULL;
  assert_fine(context, hark_model_save(context, model, test_path(folder, "whole.safetensors")));
  assert_fine(context, hark_model_save_with(context, model, test_path(folder, "halves.safetensors"), &options));
  assert_fine(context, hark_model_load(context, test_path(folder, "halves.safetensors"), NULL, &loaded));
  const hark_model_save_options whole_again = {.struct_size = sizeof whole_again, .matrices = HARK_F32};
  assert_fine(context, hark_model_save_with(context, loaded, test_path(folder, "again.safetensors"), &whole_again));
  assert_fine(context, hark_safetensors_open(context, test_path(folder, "whole.safetensors"), &whole));
  assert_fine(context, hark_safetensors_open(context, test_path(folder, "halves.safetensors"), &halves));
  assert_fine(context, hark_safetensors_open(context, test_path(folder, "again.safetensors"), &again));
  int rounded = 0;
  for (int64_t i = 0; i < hark_safetensors_count(whole); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(whole, i);
    const hark_type stored = hark_safetensors_find(halves, t->name)->type;
    if (stored != (is_rounded(t) ? type : HARK_F32)) fail_msg("%s is stored as %s", t->name, hark_type_name(stored));
    numbers_are_rounded(context, whole, again, t, type);
    rounded += is_rounded(t);
  }
  assert_true(rounded > 0 && rounded < hark_safetensors_count(whole));
  hark_safetensors_close(context, &whole);
  hark_safetensors_close(context, &halves);
  hark_safetensors_close(context, &again);
  hark_model_destroy(context, &loaded);
}

/* Matrices are rounded, all others are not; a file of halves is loaded by the same call. */
static void matrices_may_be_halves(void **state) {
  (void)state;
  static const char *const descriptions[] = {PLAIN, MODEL("learned", ATTENTION("dense", "true")),
                                             MODEL("rotary\", \"rotary.learned\": \"head", ATTENTION("dense", "false")),
                                             MODEL("rotary", HIERARCHY("4", "neighbour", "first") ", \"hierarchical_bias\": true"),
                                             MODEL(KERNEL("bank[4](decay*periodic)", "layer"), ATTENTION("dense", "false"))};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof descriptions / sizeof *descriptions; i++) {
    hark_model *model = small_model_make(context, descriptions[i], 3);
    halves_of(context, model, HARK_BF16);
    halves_of(context, model, HARK_F16);
    hark_model_destroy(context, &model);
  }
  const hark_model_save_options integers = {.struct_size = sizeof integers, .matrices = HARK_I32};
  hark_model *model = small_model_make(context, PLAIN, 3);
  assert_failure(context, hark_model_save_with(context, model, test_path(folder, "halves.safetensors"), &integers), HARK_INVALID_ARGUMENT,
                 "matrices is i32, expected f32, bf16, f16 or i8");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(models_say_what_they_are),
      TEST(a_model_is_the_same_from_everywhere),
      TEST(a_manifest_is_compared),
      TEST(wrong_descriptions_are_refused),
      TEST(other_programs_weights_need_a_description),
      TEST(yarn_of_older_descriptions_is_in_turns),
      TEST(descriptions_state_what_there_is),
      TEST(damaged_bytes_are_refused_or_harmless),
      TEST(memory_may_run_out),
      TEST(text_becomes_tokens_and_text),
      TEST(matrices_may_be_halves),
  };
  return cmocka_run_group_tests_name("model files", tests, NULL, NULL);
}
