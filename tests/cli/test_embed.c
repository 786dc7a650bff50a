/* test_embed.c - hark embed: folders of BERT and of sentence-transformers, files and runs of hark, formats, long lines, exchanged
 * attention, and what is refused. models/embedding compares the numbers with their definition and published ones. */
#define _XOPEN_SOURCE 700 /* symlink */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "io/safetensors.h"
#include "models/foreign/foreign_tensors.h"
#include "models/model.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"
#include "support/setups.h"

#define WIDTH 16
#define CONTEXT 12

static const char tokenizer[] =
    "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"?\": 0, \"the\": 1, \"dog\": 2, \"cat\": 3, \"runs\": 4, \"[CLS]\": 5, "
    "\"[SEP]\": 6}, \"unk_token\": \"?\"}, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"},"
    " \"added_tokens\": [{\"id\": 5, \"content\": \"[CLS]\", \"special\": true}, {\"id\": 6, \"content\": \"[SEP]\", \"special\": true}],"
    " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"[CLS]\"}}, {\"Sequence\": {\"id\": "
    "\"A\"}}, {\"SpecialToken\": {\"id\": \"[SEP]\"}}], \"special_tokens\": {\"[CLS]\": {\"id\": \"[CLS]\", \"ids\": [5]}, "
    "\"[SEP]\": {\"id\": \"[SEP]\", \"ids\": [6]}}}}";

#define CONFIG(changes)                                                                                                                    \
  "{\"model_type\": \"bert\", \"architectures\": [\"BertModel\"], \"vocab_size\": 7, \"hidden_size\": 16, \"num_hidden_layers\": 2, "      \
  "\"num_attention_heads\": 2, \"intermediate_size\": 24, \"max_position_embeddings\": 12, \"type_vocab_size\": 2, "                       \
  "\"layer_norm_eps\": 1e-12, \"hidden_dropout_prob\": 0.1" changes "}"
#define MODULES(pooling)                                                                                                                   \
  "[{\"idx\": 0, \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}, {\"idx\": 1, \"path\": \"1_Pooling\", "          \
  "\"type\": \"sentence_transformers.models." pooling                                                                                      \
  "\"}, {\"idx\": 2, \"path\": \"2_Normalize\", "                                                                                          \
  "\"type\": \"sentence_transformers.models.Normalize\"}]"

static const hark_network_config bert = {.architecture = HARK_ARCHITECTURE_ENCODER,
                                         .head = HARK_ENCODER_HEAD_EMBEDDING,
                                         .pooling = HARK_POOLING_MEAN,
                                         .vocabulary = 7,
                                         .layers = 2,
                                         .heads = 2,
                                         .key_heads = 2,
                                         .width = WIDTH,
                                         .feed_forward_width = 24,
                                         .context = CONTEXT,
                                         .norm_epsilon = 1e-12,
                                         .positions = HARK_POSITIONS_LEARNED,
                                         .norm_place = HARK_NORM_POST,
                                         .embedding_norm = true,
                                         .token_types = 2,
                                         .pooler = true,
                                         .bias = true,
                                         .attention.sigma = 1,
                                         .attention.window = 1,
                                         .rotary.base = 10000};

static void expect(const char *line, int code, const char *in_out, const char *in_err) {
  command_expect(folder, line, code, in_out, in_err, &output);
}

/* ---- a folder of BERT ---- */

typedef struct tensors {
  hark_named_tensor list[64];
  char names[64][HARK_PARAMETER_NAME_BYTES];
  int64_t count;
} tensors;

static hark_status take(hark_context *context, const hark_foreign_group *group, void *user) {
  tensors *const to = user;
  (void)context;
  assert_int_equal(group->count, 1);
  assert_true(to->count < 64);
  (void)snprintf(to->names[to->count], sizeof to->names[0], "%s", group->name);
  to->list[to->count] = (hark_named_tensor){.name = to->names[to->count], .tensor = &group->parts[0]->weight};
  to->count++;
  return HARK_OK;
}

/* Writes place/model.safetensors in the names of BERT, and own.safetensors with the same weights. */
static void write_weights(const char *place, bool pooler) {
  hark_context *context = test_reference_open();
  hark_network *network = NULL;
  hark_model *model = NULL;
  tensors all = {.count = 0};
  char name[64];
  hark_network_config config = bert;
  config.pooler = pooler;
  assert_fine(context, hark_network_create(context, &config, HARK_F32, false, &network));
  assert_fine(context, hark_parameters_initialise(context, &network->parameters, 11));
  float *const numbers = network->parameters.weights.data;
  for (int64_t i = 0; i < network->parameters.weights.shape[0]; i++) numbers[i] += 0.3F * sinf(1.7F * (float)i);
  assert_fine(context, hark_foreign_tensors_visit(context, &hark_foreign_type_bert, network, take, &all));
  (void)snprintf(name, sizeof name, "%s/config.json", place);
  (void)test_file_write_text(folder, name, CONFIG(""));
  (void)snprintf(name, sizeof name, "%s/tokenizer.json", place);
  (void)test_file_write_text(folder, name, tokenizer);
  (void)snprintf(name, sizeof name, "%s/model.safetensors", place);
  assert_fine(context, hark_safetensors_write(context, test_path(folder, name), all.list, all.count, NULL, 0, NULL));
  assert_fine(context, hark_model_wrap(context, network, &model));
  assert_fine(context, hark_model_save(context, model, test_path(folder, "own.safetensors")));
  hark_model_destroy(context, &model);
  hark_network_destroy(context, &network);
  test_setup_close(context);
}

static void write_lines(void) {
  (void)test_file_write_text(folder, "lines.txt", "the dog runs\n\nthe cat\r\ndog dog dog dog dog dog dog dog dog dog\n");
}

/* Numbers of the JSON lines in `output`; returns how many there are. */
static int read_numbers(double *out, int most) {
  int count = 0;
  for (const char *at = output.out; *at != '\0';) {
    char *end = NULL;
    if (*at == '[' || *at == ',' || *at == ' ' || *at == ']' || *at == '\n') {
      at++;
      continue;
    }
    assert_true(count < most);
    out[count++] = strtod(at, &end);
    assert_true(end != at);
    at = end;
  }
  return count;
}

enum { LINES = 4, NUMBERS = LINES * WIDTH };

/* With [CLS] and [SEP], as long as the context. */
static void heads_of_bert_are_inspected(void **state) {
  (void)state;
  write_weights("bert", true);
  write_lines();
  expect("inspect bert --text lines.txt", HARK_EXIT_DONE, "bert: 12 tokens", "the first 12 tokens are read");
  assert_int_equal(test_line_count(output.out), 2 + 2 * 2);
}

static void formats_have_the_same_numbers(void **state) {
  (void)state;
  double numbers[NUMBERS];
  size_t bytes = 0;
  write_weights("bert", true);
  write_lines();
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(test_line_count(output.out), LINES);
  assert_int_equal(read_numbers(numbers, NUMBERS), NUMBERS);
  expect("embed bert lines.txt --format npy --output e.npy --threads 1", HARK_EXIT_DONE, "", "");
  expect("embed bert lines.txt --format safetensors -o e.safetensors --threads 1", HARK_EXIT_DONE, "", "");
  unsigned char *const npy = test_file_read(test_path(folder, "e.npy"), &bytes);
  assert_int_equal(bytes, 128 + NUMBERS * sizeof(float));
  assert_memory_equal(npy, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (4, 16), }", 69);
  assert_int_equal(npy[127], '\n');
  hark_context *context = test_reference_open();
  hark_safetensors *file = NULL;
  hark_tensor tensor;
  float stored[NUMBERS], of_npy[NUMBERS];
  memcpy(of_npy, npy + 128, sizeof of_npy);
  free(npy);
  assert_fine(context, hark_safetensors_open(context, test_path(folder, "e.safetensors"), &file));
  assert_fine(context, hark_safetensors_load(context, file, "embeddings", &tensor));
  assert_int_equal(tensor.shape[0], LINES);
  assert_int_equal(tensor.shape[1], WIDTH);
  assert_fine(context, hark_tensor_read(context, &tensor, stored));
  for (int i = 0; i < NUMBERS; i++) {
    assert_true((float)numbers[i] == of_npy[i]); /* 9 digits are enough for every f32 */
    assert_true(stored[i] == of_npy[i]);
  }
  hark_tensor_destroy(context, &tensor);
  hark_safetensors_close(context, &file);
  test_setup_close(context);
}

/* A folder, the file that hark writes of it with the tokenizer beside it, standard input, and small passes. */
static void places_of_a_model_and_a_text(void **state) {
  (void)state;
  static const char *const lines[] = {"embed own.safetensors lines.txt --threads 1", "embed bert/model.safetensors lines.txt --threads 1",
                                      "embed own.safetensors lines.txt --tokenizer bert/tokenizer.json --threads 2",
                                      "embed bert lines.txt --backend reference --batch-tokens 1"};
  double numbers[NUMBERS], other[NUMBERS];
  write_weights("bert", true);
  write_lines();
  expect("embed own.safetensors lines.txt", HARK_EXIT_USAGE, "", "there is no tokenizer.json beside it: expected --tokenizer FILE");
  (void)test_file_write_text(folder, "tokenizer.json", tokenizer);
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(numbers, NUMBERS), NUMBERS);
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    expect(lines[i], HARK_EXIT_DONE, "[", "");
    assert_int_equal(read_numbers(other, NUMBERS), NUMBERS);
    for (int n = 0; n < NUMBERS; n++) assert_true(fabs(numbers[n] - other[n]) <= 1e-5);
  }
  test_command_run(folder, "cat lines.txt |", "embed bert - --threads 1", &output);
  assert_int_equal(output.code, HARK_EXIT_DONE);
  assert_int_equal(read_numbers(other, NUMBERS), NUMBERS);
  assert_memory_equal(numbers, other, sizeof numbers);
}

static double length_of(const double *row) {
  double sum = 0;
  for (int d = 0; d < WIDTH; d++) sum += row[d] * row[d];
  return sqrt(sum);
}

/* Operands of products are rounded to 8 bits: numbers of order 1 change by some 2^-8 in every layer. */
static void products_of_rounded_numbers(void **state) {
  (void)state;
  double numbers[NUMBERS], rounded[NUMBERS], largest = 0;
  write_weights("bert", true);
  write_lines();
  expect("embed bert lines.txt --backend reference --normalise", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(numbers, NUMBERS), NUMBERS);
  expect("embed bert lines.txt --backend reference --normalise --precision bf16", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(rounded, NUMBERS), NUMBERS);
  for (int i = 0; i < NUMBERS; i++) largest = fmax(largest, fabs(numbers[i] - rounded[i]));
  assert_true(largest > 1e-5 && largest < 0.05);
}

/* modules.json determines pooling and normalisation, which options replace. */
static void files_of_sentence_transformers(void **state) {
  (void)state;
  double mean[NUMBERS], unit[NUMBERS], first[NUMBERS], other[NUMBERS];
  write_weights("bert", true);
  write_lines();
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(mean, NUMBERS), NUMBERS);
  expect("embed bert lines.txt --threads 1 --pooling first", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(first, NUMBERS), NUMBERS);
  (void)test_file_write_text(folder, "bert/modules.json", MODULES("Pooling"));
  (void)test_file_write_text(folder, "bert/1_Pooling/config.json",
                             "{\"word_embedding_dimension\": 16, \"pooling_mode_cls_token\": false, \"pooling_mode_mean_tokens\": true}");
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(unit, NUMBERS), NUMBERS);
  for (int i = 0; i < NUMBERS; i++) assert_true(fabs(unit[i] - mean[i] / length_of(&mean[i / WIDTH * WIDTH])) <= 1e-6);
  expect("embed bert lines.txt --threads 1 --no-normalise", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(other, NUMBERS), NUMBERS);
  assert_memory_equal(other, mean, sizeof mean);
  (void)test_file_write_text(folder, "bert/1_Pooling/config.json", "{\"pooling_mode\": \"cls\"}");
  expect("embed bert lines.txt --threads 1 --no-normalise", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(other, NUMBERS), NUMBERS);
  assert_memory_equal(other, first, sizeof first);
  assert_memory_not_equal(mean, first, sizeof first);
}

/* Without tokenizer.json BERT's vocab.txt is read: the same numbers for the same tokens. */
static void older_files_of_tokens(void **state) {
  (void)state;
#ifndef HARK_WITH_UTF8PROC
  skip(); /* BERT's normalizer needs it */
#endif
  double numbers[NUMBERS], other[NUMBERS];
  write_weights("bert", true);
  (void)test_file_write_text(folder, "lines.txt", "the dog runs\n\nthe cat\ncat ? dog\n");
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(numbers, NUMBERS), NUMBERS);
  assert_int_equal(remove(test_path(folder, "bert/tokenizer.json")), 0);
  (void)test_file_write_text(folder, "bert/vocab.txt", "[UNK]\nthe\ndog\ncat\nruns\n[CLS]\n[SEP]\n");
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(other, NUMBERS), NUMBERS);
  assert_memory_equal(numbers, other, sizeof numbers);
  (void)test_file_write_text(folder, "lines.txt", "THE Dog runs\n\nthe cat\ncat ! dog\n");
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(other, NUMBERS), NUMBERS);
  assert_memory_equal(numbers, other, sizeof numbers);
  (void)test_file_write_text(folder, "bert/tokenizer_config.json", "{\"do_lower_case\": false}");
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(other, NUMBERS), NUMBERS);
  assert_memory_not_equal(numbers, other, WIDTH * sizeof *numbers);
  (void)test_file_write_text(folder, "bert/vocab.txt", "[UNK]\nthe\n[CLS]\n");
  expect("embed bert lines.txt", HARK_EXIT_BAD_INPUT, "", "vocab.txt: has no token [SEP]");
}

/* The last line has 12 tokens with its special ones, of which the last one stays. */
static void long_lines_are_cut_and_reported(void **state) {
  (void)state;
  double cut[NUMBERS], shorter[NUMBERS];
  write_weights("bert", true);
  (void)test_file_write_text(folder, "long.txt", "the dog\ndog dog dog dog dog dog dog dog dog dog dog dog\n");
  (void)test_file_write_text(folder, "short.txt", "the dog\ndog dog dog\n");
  expect("embed bert long.txt --threads 1", HARK_EXIT_DONE, "[",
         "1 line longer than 12 tokens was cut, the first one is line 2 of 14 tokens");
  expect("embed bert long.txt --threads 1 --context 5", HARK_EXIT_DONE, "[", "1 line longer than 5 tokens was cut");
  assert_int_equal(read_numbers(cut, NUMBERS), 2 * WIDTH);
  expect("embed bert short.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(shorter, NUMBERS), 2 * WIDTH);
  assert_memory_equal(cut, shorter, 2 * WIDTH * sizeof *cut);
  expect("embed bert long.txt --threads 1 --no-truncate", HARK_EXIT_BAD_INPUT, "",
         "long.txt:2:1: 14 tokens, expected at most 12 (--truncate cuts longer lines) (byte offset 8)");
  (void)test_file_write_text(folder, "bert/sentence_bert_config.json", "{\"max_seq_length\": 5}");
  expect("embed bert long.txt --threads 1", HARK_EXIT_DONE, "[", "1 line longer than 5 tokens was cut");
  expect("embed bert long.txt --threads 1 --context 1", HARK_EXIT_BAD_INPUT, "", "long.txt:1:1: 2 special tokens, the limit is 1 tokens");
  expect("embed bert long.txt --threads 1 --context 13", HARK_EXIT_USAGE, "",
         "--context 13: model.positions is learned for the 12 tokens of the model's context");
}

static void attention_is_exchanged(void **state) {
  (void)state;
  double dense[NUMBERS], window[NUMBERS], wide[NUMBERS];
  write_weights("bert", true);
  write_lines();
  expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(dense, NUMBERS), NUMBERS);
  expect("embed bert lines.txt --threads 1 --structure window --window 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(window, NUMBERS), NUMBERS);
  expect("embed bert lines.txt --threads 1 --structure window --window 20", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(wide, NUMBERS), NUMBERS);
  for (int i = 0; i < NUMBERS; i++) assert_true(fabs(dense[i] - wide[i]) <= 1e-5);
  assert_true(fabs(dense[3 * WIDTH] - window[3 * WIDTH]) > 1e-4);
  expect("embed bert lines.txt --threads 1 --structure hierarchical --hierarchy-block 2", HARK_EXIT_DONE, "[", "");
  expect("embed bert lines.txt --hierarchy-block 2", HARK_EXIT_USAGE, "", "has no effect here, it needs --structure hierarchical");
  expect("embed bert lines.txt --forget-gate", HARK_EXIT_USAGE, "", "decides which weights the model has");
}

static void what_cannot_be_read_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *config, *message;
  } configs[] = {{CONFIG(", \"position_embedding_type\": \"relative_key\""),
                  "position_embedding_type: is \"relative_key\", expected absolute: relative positions are not supported"},
                 {CONFIG(", \"is_decoder\": true"), "is_decoder: is true, expected false"},
                 {CONFIG(", \"is_decoder\": \"false\""), "is_decoder: is \"false\", expected false"},
                 {CONFIG(", \"position_embedding_type\": null"), "position_embedding_type: is null, expected absolute"},
                 {CONFIG(", \"add_cross_attention\": true"), "add_cross_attention: is true"},
                 {"{\"model_type\": \"bert\", \"architectures\": [\"BertForTokenClassification\"]}",
                  "expected one of BertModel, BertForMaskedLM, BertForPreTraining, BertForNextSentencePrediction"},
                 {CONFIG(", \"hidden_act\": \"mish\""), "hidden_act: is mish, expected gelu or gelu_new"},
                 {CONFIG(", \"embedding_size\": 8"), "embedding_size: is 8, a key that hark does not know"}};
  static const struct {
    const char *modules, *pooling, *message;
  } modules[] = {
      {MODULES("Dense"), "{}", "module Dense is not supported, expected Transformer, Pooling and Normalize"},
      {MODULES("Pooling"), "{\"pooling_mode_max_tokens\": true}", "pooling of this kind is not supported"},
      {MODULES("Pooling"), "{\"pooling_mode_max_tokens\": true, \"pooling_mode_mean_tokens\": true}", "pooling of several kinds"},
      {MODULES("Pooling"), "{\"pooling_mode\": \"weightedmean\"}", "pooling weightedmean is not supported"},
      {"[{\"path\": \"../x\", \"type\": \"Pooling\"}]", "{}", "path '../x' is not a name in this folder"},
      {"[{\"path\": \"2_Pooling\", \"type\": \"Pooling\"}]", "{}", "2_Pooling/config.json: is missing"},
      {"{}", "{}", "expected a list of modules"}};
  write_weights("bert", true);
  write_lines();
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    (void)test_file_write_text(folder, "bert/config.json", configs[i].config);
    expect("embed bert lines.txt", HARK_EXIT_USAGE, "", configs[i].message);
  }
  (void)test_file_write_text(folder, "bert/config.json", CONFIG(""));
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
    (void)test_file_write_text(folder, "bert/modules.json", modules[i].modules);
    (void)test_file_write_text(folder, "bert/1_Pooling/config.json", modules[i].pooling);
    test_command_run(folder, "", "embed bert lines.txt", &output);
    assert_int_not_equal(output.code, HARK_EXIT_DONE);
    if (strstr(output.err, modules[i].message) == NULL) fail_msg("\"%s\", expected \"%s\"", output.err, modules[i].message);
  }
}

static void lines_and_options_that_are_refused(void **state) {
  (void)state;
  write_weights("plain", false);
  write_lines();
  (void)test_file_write_text(folder, "bad.txt", "the dog\nthe \xff\n");
  expect("embed plain bad.txt", HARK_EXIT_BAD_INPUT, "", "bad.txt:2:5:");
  expect("embed plain lines.txt --pooling max", HARK_EXIT_USAGE, "",
         "--pooling: \"max\" given, expected one of model, mean, first, last, pooler");
  expect("embed plain lines.txt --precision bf16 --weights int8 --backend reference", HARK_EXIT_USAGE, "", "expected no --weights");
  expect("embed plain lines.txt --pooling pooler", HARK_EXIT_USAGE, "", "the model has no pooler");
  expect("embed nothing lines.txt", HARK_EXIT_BAD_INPUT, "", "nothing");
  expect("embed plain", HARK_EXIT_USAGE, "", "RUN|FILE|FOLDER FILE|-: missing; usage: hark embed [options] RUN|FILE|FOLDER FILE|-");
  expect("train --out none --data text.txt " COMMAND_TINY "--steps 1 --token-types 2", HARK_EXIT_USAGE, "",
         "--token-types: has no effect here, it needs --architecture encoder or masked_encoder");
  (void)test_file_write_text(folder, "classes.tsv", "0\tthe dog\n1\ta cat\n0\tdogs\n1\tcats\n");
  expect("train --out none --architecture encoder --head embedding --format text --data classes.tsv " COMMAND_TINY
         "--steps 1 --validation-fraction 0.5",
         HARK_EXIT_USAGE, "", "model.head embedding predicts nothing that data could be compared with: expected classes");
}

/* A run of texts has its vocabulary; a line of nothing has no tokens there. */
static void runs_of_texts(void **state) {
  (void)state;
  double numbers[NUMBERS];
  (void)test_file_write_text(folder, "some.txt", "a\nt\n");
  (void)test_file_write_text(folder, "empty.txt", "a\n\n");
  expect(
      "train --out masked --data text.txt --architecture masked_encoder --norm-place post --embedding-norm --token-types 2 --bias "
      "--positions sinusoidal --steps 3 --tokenizer bytes " COMMAND_TINY,
      HARK_EXIT_DONE, "", "");
  expect("embed masked some.txt --normalise --threads 1", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(numbers, NUMBERS), 2 * WIDTH);
  assert_true(fabs(length_of(numbers) - 1) <= 1e-6);
  expect("embed masked some.txt --context 100 --threads 1", HARK_EXIT_DONE, "[", ""); /* sinusoidal positions have no end */
  expect("embed masked empty.txt", HARK_EXIT_BAD_INPUT, "", "empty.txt:2:1: the line has no tokens, so that it has no embedding");
}

/* The file that an import writes is none of those that it reads, also by another name. */
static void imports_keep_what_they_read(void **state) {
  (void)state;
  static const char part[] = ": is a file of the model that is read";
  size_t bytes = 0, after = 0;
  char bert_folder[TEST_PATH_BYTES];
  write_weights("bert", true);
  (void)snprintf(bert_folder, sizeof bert_folder, "%s", test_path(folder, "bert"));
  unsigned char *const before = test_file_read(test_path(folder, "bert/model.safetensors"), &bytes);
  expect("import bert --output bert/model.safetensors", HARK_EXIT_USAGE, "", part);
  expect("import bert --output bert/tokenizer.json", HARK_EXIT_USAGE, "", part);
  expect("import bert/config.json --output ./bert/../bert/config.json", HARK_EXIT_USAGE, "", part);
  command_expect(bert_folder, "import .", HARK_EXIT_USAGE, "", "--output model.safetensors: is a file of the model that is read", &output);
  command_expect(bert_folder, "import model.safetensors", HARK_EXIT_USAGE, "", part, &output);
  assert_int_equal(symlink("bert/model.safetensors", test_path(folder, "link.safetensors")), 0);
  expect("import bert --output link.safetensors", HARK_EXIT_USAGE, "", part);
  unsigned char *const now = test_file_read(test_path(folder, "bert/model.safetensors"), &after);
  assert_int_equal(after, bytes);
  assert_memory_equal(now, before, bytes);
  free(before);
  free(now);
  for (int i = 0; i < 2; i++) expect("import bert --output bert/imported.safetensors", HARK_EXIT_DONE, "imported.safetensors: ", "");
}

/* A stretch is an option of a model with a positional kernel. */
static void positional_kernels_are_stretched(void **state) {
  (void)state;
  double numbers[NUMBERS], other[NUMBERS];
  (void)test_file_write_text(folder, "some.txt", "the house\nto be\n");
  expect("train --out kernel --data text.txt --architecture masked_encoder --positional decay --steps 2 --tokenizer bytes " COMMAND_TINY,
         HARK_EXIT_DONE, "", "");
  expect("embed kernel some.txt --threads 1", HARK_EXIT_DONE, "[", "");
  const int count = read_numbers(numbers, NUMBERS);
  expect("embed kernel some.txt --threads 1 --positional-stretch 2", HARK_EXIT_DONE, "[", "");
  assert_int_equal(read_numbers(other, NUMBERS), count);
  assert_memory_not_equal(numbers, other, (size_t)count * sizeof *numbers);
  write_weights("bert", true);
  expect("embed bert some.txt --positional-stretch 2", HARK_EXIT_USAGE, "", "--positional-stretch: has no effect here");
}

/* Files of sentence-transformers that change what a model reads. */
static void other_preparations_are_refused(void **state) {
  (void)state;
  static const char normalised_first[] =
      "[{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}, {\"path\": \"2_Normalize\", \"type\": "
      "\"sentence_transformers.models.Normalize\"}, {\"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}]";
  static const struct {
    const char *file, *text, *message;
  } cases[] = {{"sentence_bert_config.json", "{\"max_seq_length\": 5, \"do_lower_case\": true}",
                "sentence_bert_config.json: do_lower_case: is true, expected false"},
               {"config_sentence_transformers.json", "{\"default_prompt_name\": \"query\"}",
                "config_sentence_transformers.json: default_prompt_name: is query, expected null"},
               {"modules.json", normalised_first, "modules.json: expected the modules Transformer, Pooling, Normalize in this order"},
               {"modules.json", "[]", "modules.json: expected the modules Transformer, Pooling, Normalize in this order"}};
  write_weights("bert", true);
  write_lines();
  (void)test_file_write_text(folder, "bert/1_Pooling/config.json", "{\"pooling_mode\": \"mean\"}");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[128];
    (void)snprintf(name, sizeof name, "bert/%s", cases[i].file);
    (void)test_file_write_text(folder, "bert/modules.json", MODULES("Pooling"));
    (void)test_file_write_text(folder, name, cases[i].text);
    expect("embed bert lines.txt", HARK_EXIT_USAGE, "", cases[i].message);
    assert_int_equal(remove(test_path(folder, name)), 0);
  }
  (void)test_file_write_text(folder, "bert/modules.json", MODULES("Pooling"));
  (void)test_file_write_text(folder, "bert/sentence_bert_config.json", "{\"max_seq_length\": 12, \"do_lower_case\": false}");
  (void)test_file_write_text(folder, "bert/config_sentence_transformers.json", "{\"prompts\": {}, \"default_prompt_name\": null}");
  expect("embed bert lines.txt", HARK_EXIT_DONE, "[", "");
}

/* max_seq_length is in the imported file. */
static void imports_keep_the_limit(void **state) {
  (void)state;
  write_weights("bert", true);
  (void)test_file_write_text(folder, "bert/sentence_bert_config.json", "{\"max_seq_length\": 5}");
  expect("import bert --output one.safetensors", HARK_EXIT_DONE, "one.safetensors: ", "");
  (void)test_file_write_text(folder, "long.txt", "the dog runs\nthe cat runs the dog runs\n");
  expect("embed bert long.txt --threads 1", HARK_EXIT_DONE, "[", "1 line longer than 5 tokens was cut");
  expect("embed one.safetensors long.txt --threads 1", HARK_EXIT_DONE, "[", "1 line longer than 5 tokens was cut");
  expect("embed one.safetensors long.txt --threads 1 --context 12", HARK_EXIT_DONE, "[", "");
  if (strstr(output.err, "was cut") != NULL) fail_msg("%s", output.err);
  (void)test_file_write_text(folder, "bert/sentence_bert_config.json", "{\"max_seq_length\": \"5\"}");
  expect("embed bert long.txt", HARK_EXIT_BAD_INPUT, "", "sentence_bert_config.json: max_seq_length: expected a whole number");
}

/* Exports have the same embeddings, by the same weights, pooling and limit. */
static void exports_are_folders_of_bert(void **state) {
  (void)state;
  static const struct {
    const char *modules, *pooling;
    bool pooler;
  } cases[] = {{NULL, NULL, true},
               {MODULES("Pooling"), "{\"pooling_mode_cls_token\": true}", true},
               {MODULES("Pooling"), "{\"pooling_mode_mean_tokens\": true}", false}};
  double expected[NUMBERS], numbers[NUMBERS];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_weights("bert", cases[i].pooler);
    write_lines();
    if (cases[i].modules != NULL) (void)test_file_write_text(folder, "bert/modules.json", cases[i].modules);
    if (cases[i].modules != NULL) (void)test_file_write_text(folder, "bert/1_Pooling/config.json", cases[i].pooling);
    (void)test_file_write_text(folder, "bert/sentence_bert_config.json", "{\"max_seq_length\": 6}");
    expect("embed bert lines.txt --threads 1", HARK_EXIT_DONE, "[", "longer than 6 tokens");
    assert_int_equal(read_numbers(expected, NUMBERS), NUMBERS);
    expect("import bert --output one.safetensors", HARK_EXIT_DONE, "one.safetensors: ", "");
    expect("export one.safetensors --format huggingface --output back", HARK_EXIT_DONE, "back", "");
    expect("embed back lines.txt --threads 1", HARK_EXIT_DONE, "[", "longer than 6 tokens");
    assert_int_equal(read_numbers(numbers, NUMBERS), NUMBERS);
    assert_memory_equal(numbers, expected, sizeof expected);
  }
  (void)test_file_write_text(folder, "back/notes.txt", "mine");
  expect("export one.safetensors --format huggingface --output back", HARK_EXIT_USAGE, "", "contains notes.txt");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(formats_have_the_same_numbers),
                                     TEST(places_of_a_model_and_a_text),
                                     TEST(products_of_rounded_numbers),
                                     TEST(files_of_sentence_transformers),
                                     TEST(older_files_of_tokens),
                                     TEST(long_lines_are_cut_and_reported),
                                     TEST(attention_is_exchanged),
                                     TEST(what_cannot_be_read_is_refused),
                                     TEST(lines_and_options_that_are_refused),
                                     TEST(runs_of_texts),
                                     TEST(heads_of_bert_are_inspected),
                                     TEST(imports_keep_what_they_read),
                                     TEST(positional_kernels_are_stretched),
                                     TEST(other_preparations_are_refused),
                                     TEST(imports_keep_the_limit),
                                     TEST(exports_are_folders_of_bert)};
  return cmocka_run_group_tests_name("embed", tests, NULL, NULL);
}
