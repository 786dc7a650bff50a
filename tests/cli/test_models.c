/* test_models.c - models that are no runs: folders of other programs and files of hark are measured (hark eval) and trained further
 * (hark train --init-from). Losses are compared with a computation of their own, from the logits that the model's interface for programs
 * gives token by token.
 */
#include <hark/model.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/foreign_folder.h"
#include "support/setups.h"
#include "support/train/command_place.h"

enum { CONTEXT = 6, LETTERS = 300, MOST = 2 * LETTERS };

/* Logits in f32 of size 1, in another order of sums. */
#define TOLERANCE 1e-5

static char folder[TEST_PATH_BYTES];
static test_output output;

/* Texts of a, b and blanks, which the tokenizer knows; "broken.txt" ends with a byte that no UTF-8 has. */
static int begin(void **state) {
  (void)state;
  char text[LETTERS + 2];
  unsigned number = 1;
  command_place_open(folder);
  for (int i = 0; i < LETTERS; i++) {
    number = number * 1103515245U + 12345U;
    text[i] = "aabb ab"[(number >> 16) % 7];
  }
  text[LETTERS] = '\0';
  (void)test_file_write_text(folder, "letters.txt", text);
  (void)snprintf(text + LETTERS, 2, "\xFF");
  (void)test_file_write_text(folder, "broken.txt", text);
  (void)test_file_write_text(folder, "window.txt", "ab ab ab"); /* <s> and 3 tokens */
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

static void make(const char *name, const char *keys, const foreign_entry *entries, int count, bool tokenizer) {
  char file[64];
  hark_context *context = test_reference_open();
  (void)foreign_make(context, folder, name, keys, entries, count);
  (void)snprintf(file, sizeof file, "%s/tokenizer.json", name);
  if (tokenizer) (void)test_file_write_text(folder, file, foreign_tokenizer);
  test_setup_close(context);
}

static double number_in(const char *words, const char *key) {
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output);
  const double number = command_number(line, key);
  json_decref(line);
  return number;
}

static void assert_near(double a, double b, double tolerance, const char *what) {
  if (!(fabs(a - b) <= tolerance)) fail_msg("%s: %.9f and %.9f", what, a, b);
}

/* ---- the computation ---- */

static double surprise(const float *logits, int64_t vocabulary, int32_t target) {
  double maximum = logits[0], sum = 0;
  for (int64_t v = 1; v < vocabulary; v++) maximum = fmax(maximum, logits[v]);
  for (int64_t v = 0; v < vocabulary; v++) sum += exp(logits[v] - maximum);
  return maximum + log(sum) - logits[target];
}

/* The mean loss of a text in windows of `length` tokens that do not overlap. */
static double loss_by_definition(const char *path, const char *name, int64_t length, int64_t *targets) {
  int32_t tokens[MOST];
  size_t count = 0;
  double sum = 0;
  hark_context *context = test_reference_open();
  hark_model *model = foreign_load(context, test_path(folder, path));
  hark_model_info info = {.struct_size = sizeof info};
  hark_decoding *decoding = NULL;
  char *const text = test_file_text(folder, name);
  assert_fine(context, hark_model_describe(model, &info));
  assert_fine(context, hark_model_tokenize(context, model, text, strlen(text), false, true, tokens, MOST, &count));
  free(text);
  assert_fine(context, hark_decoding_create(context, model, NULL, &decoding));
  for (size_t i = 0; i + 1 < count; i++) {
    if ((int64_t)i % length == 0) assert_fine(context, hark_decoding_truncate(decoding, 0));
    assert_fine(context, hark_decoding_step(decoding, tokens[i]));
    sum += surprise(hark_decoding_logits(decoding), info.vocabulary, tokens[i + 1]);
  }
  hark_decoding_destroy(&decoding);
  hark_model_destroy(context, &model);
  test_setup_close(context);
  *targets = (int64_t)count - 1;
  return sum / (double)*targets;
}

/* ---- measuring ---- */

static void losses_are_those_of_the_model(void **state) {
  (void)state;
  static const struct {
    const char *name, *keys, *data, *options;
    int64_t length;
  } cases[] = {
      {"gpt2", FOREIGN_GPT2_KEYS, "letters.txt", "", CONTEXT},
      {"llama", FOREIGN_LLAMA, "letters.txt", "", CONTEXT},
      {"llama", FOREIGN_LLAMA, "letters.txt", "--context 4", 4},
      {"mistral", "\"model_type\": \"mistral\", " FOREIGN_LLAMA_KEYS ", \"sliding_window\": 3", "letters.txt", "--batch 7", CONTEXT},
      {"scaled", FOREIGN_LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}, \"rope_theta\": 500.5", "letters.txt", "",
       CONTEXT},
      {"llama3",
       "\"model_type\": \"llama\", " FOREIGN_LLAMA_KEYS
       ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
       "\"original_max_position_embeddings\": 4}, \"rms_norm_eps\": 1e-4",
       "letters.txt", "", CONTEXT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const bool gpt2 = strcmp(cases[i].name, "gpt2") == 0;
    char words[512];
    int64_t targets = 0;
    make(cases[i].name, cases[i].keys, gpt2 ? foreign_gpt2 : foreign_llama, gpt2 ? FOREIGN_GPT2_COUNT : FOREIGN_LLAMA_COUNT, true);
    const double expected = loss_by_definition(cases[i].name, cases[i].data, cases[i].length, &targets);
    (void)snprintf(words, sizeof words, "eval %s --data %s --json --threads 1 %s", cases[i].name, cases[i].data, cases[i].options);
    assert_near(number_in(words, "loss"), expected, TOLERANCE, words);
    assert_true(number_in(words, "targets") == (double)targets);
    assert_near(number_in(words, "perplexity"), exp(expected), 1e-4 * exp(expected), "perplexity");
    /* all bytes of the text follow its first token, <s> */
    assert_near(number_in(words, "bits_per_byte"), expected * (double)(targets + 1) / LETTERS / log(2), 0.02, "bits per byte");

    (void)snprintf(words, sizeof words, "import %s --output %s.safetensors", cases[i].name, cases[i].name);
    expect(words, HARK_EXIT_DONE, "", "");
    (void)snprintf(words, sizeof words, "eval %s.safetensors --data %s --json --threads 1 %s", cases[i].name, cases[i].data,
                   cases[i].options);
    assert_near(number_in(words, "loss"), expected, TOLERANCE, words);
  }
}

static void attention_is_exchanged(void **state) {
  (void)state;
  make("llama", FOREIGN_LLAMA, foreign_llama, FOREIGN_LLAMA_COUNT, true);
  make("mistral", "\"model_type\": \"mistral\", " FOREIGN_LLAMA_KEYS ", \"sliding_window\": 3", foreign_llama, FOREIGN_LLAMA_COUNT, true);
  const double dense = number_in("eval llama --data letters.txt --json", "loss");
  const double window = number_in("eval llama --data letters.txt --json --structure window --window 2", "loss");
  assert_true(dense != window);
  assert_near(window, number_in("eval mistral --data letters.txt --json", "loss"), TOLERANCE, "the same window");
  expect("eval llama --data letters.txt --structure hierarchical --hierarchy-block 2", HARK_EXIT_DONE,
         "exchanged: \"model.attention.structure\": \"hierarchical\"", "");
}

static void what_is_no_measurement_is_refused_by_name(void **state) {
  (void)state;
  make("gpt2", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT, true);
  make("numbers", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT, false);
  expect("eval gpt2", HARK_EXIT_USAGE, "", "gpt2 is a model without a text of its own, expected --data PATH");
  expect("eval gpt2 --data letters.txt --checkpoint best", HARK_EXIT_USAGE, "", "--checkpoint: has no effect here, it needs a run");
  expect("eval gpt2 --data letters.txt --context 12", HARK_EXIT_USAGE, "", "model.positions is learned for the 6 tokens");
  expect("eval gpt2 --data letters.txt --format text", HARK_EXIT_USAGE, "", "gpt2 is a model of text, expected corpus");
  expect("eval numbers --data letters.txt", HARK_EXIT_USAGE, "", "numbers: has no tokenizer: neither tokenizer.json nor tokenizer.model");
  expect("eval gpt2 --data broken.txt", HARK_EXIT_BAD_INPUT, "", "broken.txt:1:301: ");
  expect("eval letters.txt --data letters.txt", HARK_EXIT_BAD_INPUT, "", "letters.txt: ");
}

/* ---- training ---- */

/* One window, with tokens <s>, " ab"s and others: the first step reads what an evaluation reads. */
static void training_begins_at_the_loss_of_the_model(void **state) {
  (void)state;
  static const char *const from[] = {"llama", "llama.safetensors"};
  make("llama", FOREIGN_LLAMA, foreign_llama, FOREIGN_LLAMA_COUNT, true);
  expect("import llama --output llama.safetensors", HARK_EXIT_DONE, "", "");
  for (size_t i = 0; i < 2; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, "eval %s --data window.txt --json", from[i]);
    const double expected = number_in(words, "loss");
    const double targets = number_in(words, "targets");
    assert_true(targets < CONTEXT && number_in(words, "context") == targets); /* no longer than the text */
    (void)snprintf(
        words, sizeof words,
        "train --init-from %s --data window.txt --out begun-%d --validation-fraction 0 --context %d --batch 1 --order sequential "
        "--steps 1 --log-every 1 --threads 1",
        from[i], (int)i, (int)targets);
    expect(words, HARK_EXIT_DONE, "", "");
    (void)snprintf(words, sizeof words, "begun-%d/metrics.jsonl", (int)i);
    char *const metrics = test_file_text(folder, words);
    const char *const loss = strstr(metrics, "\"train/loss\": ");
    assert_non_null(loss);
    assert_near(strtod(loss + strlen("\"train/loss\": "), NULL), expected, TOLERANCE, "the first step");
    free(metrics);
  }
}

static void a_model_is_trained_further_and_exported(void **state) {
  (void)state;
  make("gpt2", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT, true);
  const double before = number_in("eval gpt2 --data letters.txt --json", "loss");
  expect(
      "train --init-from gpt2 --data letters.txt --out tuned --steps 30 --batch 8 --lr 1e-2 --warmup 0 "
      "--threads 1",
      HARK_EXIT_DONE, "", "");
  const double after = number_in("eval tuned --data letters.txt --json", "loss");
  assert_true(after < before - 0.1);
  expect("export tuned --format huggingface --output back", HARK_EXIT_DONE, "", "");
  assert_near(number_in("eval back --data letters.txt --json", "loss"), after, TOLERANCE, "the folder");
  char *const tokenizer = test_file_text(folder, "back/tokenizer.json");
  assert_string_equal(tokenizer, foreign_tokenizer);
  free(tokenizer);
  /* again, with the tokenizer that it wrote; never over what is read */
  expect("export tuned --format huggingface --output back", HARK_EXIT_DONE, "", "");
  expect("export back --format huggingface --type bf16 --output back", HARK_EXIT_USAGE, "",
         "is a file of the model that is read, back, and would be overwritten");
  expect("export back/model.safetensors --format huggingface --output ./back/", HARK_EXIT_USAGE, "",
         "is a file of the model that is read, back/, and would be overwritten");
  assert_near(number_in("eval back --data letters.txt --json", "loss"), after, TOLERANCE, "the folder");
  expect("export tuned --output tuned.safetensors", HARK_EXIT_DONE, "", "");
  assert_near(number_in("eval tuned.safetensors --data letters.txt --json", "loss"), after, TOLERANCE, "the file");
  expect("verify tuned", HARK_EXIT_DONE, "good  origin.json", "");
  expect("generate tuned --prompt ab --max-new-tokens 3", HARK_EXIT_DONE, "ab", "");
  expect("tokenize tuned letters.txt", HARK_EXIT_DONE, "[5, 0, ", "");
  expect("info tuned", HARK_EXIT_DONE, "imported", "");
  expect("train --resume tuned --steps 32", HARK_EXIT_DONE, "step 32", "");
  expect("train --init-from tuned --data letters.txt --out further --steps 1 --batch 2", HARK_EXIT_DONE, "", "");
}

/* With its tokenizer, which may have no token for the beginning of a text. */
static void samples_are_in_its_tokens(void **state) {
  (void)state;
  make("gpt2", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT, true);
  expect("train --init-from gpt2 --data letters.txt --out run --steps 2 --batch 2 --seed 3 --sample-tokens 3 --sample-prompt ab",
         HARK_EXIT_DONE, "", "");
  expect("generate run --prompt ab --max-new-tokens 3 --seed 3 --json", HARK_EXIT_DONE, "", "");
  json_t *const generated = command_json(&output);
  char *const line = test_file_text(folder, "run/samples.jsonl");
  json_t *const sample = json_loads(line, 0, NULL);
  assert_string_equal(json_string_value(json_object_get(sample, "text")), json_string_value(json_object_get(generated, "text")));
  json_decref(generated);
  json_decref(sample);
  free(line);
  expect("train --init-from gpt2 --data letters.txt --out empty --steps 2 --batch 2 --sample-tokens 3", HARK_EXIT_DONE, "", "");
  expect("train --init-from gpt2 --data letters.txt --out long --steps 2 --sample-tokens 3 --sample-prompt 'ab ab ab ab ab'",
         HARK_EXIT_USAGE, "", "expected fewer than model.context, 6");
}

static void a_structure_may_change(void **state) {
  (void)state;
  make("llama", FOREIGN_LLAMA, foreign_llama, FOREIGN_LLAMA_COUNT, true);
  expect("train --init-from llama --data letters.txt --out coarse --structure hierarchical --hierarchy-block 2 --steps 2 --batch 2",
         HARK_EXIT_DONE, "", "model.attention.structure is hierarchical; the weights were trained with dense");
  expect("info coarse", HARK_EXIT_DONE, "hierarchical", "");
}

static void contradictions_are_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *words, *part;
  } cases[] = {
      {"--init-from gpt2 --width 8", "--width: is 8, and the model that init_from names has 4"},
      {"--init-from gpt2 --layers 3", "--layers: is 3, and the model that init_from names has 1"},
      {"--init-from gpt2 --norm rms_norm", "--norm: is rms_norm, and the model that init_from names has layer_norm"},
      {"--init-from gpt2 --context 4", "--context: is 4, and the model that init_from names has 6"},
      {"--init-from gpt2 --tokenizer bytes", "--tokenizer: is bytes, and the model that init_from names has imported"},
      {"--init-from gpt2 --unit sentences", "data.unit sentences begins every sentence with a reserved token"},
      {"--tokenizer imported", "imported is the tokenizer of a model, expected --init-from MODEL or --vocabulary FILE"},
  };
  make("gpt2", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT, true);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, "train %s --data letters.txt --out never --steps 1", cases[i].words);
    expect(words, HARK_EXIT_USAGE, "", cases[i].part);
  }
}

/* A run's exported file is measured as the run is. */
static void files_of_hark_are_measured(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 4 " COMMAND_TINY "--tokenizer bytes --structure window --window 3 --positional decay",
         HARK_EXIT_DONE, "", "");
  expect("export run --output run.safetensors", HARK_EXIT_DONE, "", "");
  const double loss = number_in("eval run --data letters.txt --json", "loss");
  assert_near(number_in("eval run.safetensors --data letters.txt --json", "loss"), loss, TOLERANCE, "the file");
  expect("export run --output small.safetensors --type int8", HARK_EXIT_DONE, "", "");
  assert_near(number_in("eval small.safetensors --data letters.txt --json --weights int8", "loss"),
              number_in("eval run --data letters.txt --json --weights int8", "loss"), TOLERANCE, "of int8");
  expect("train --init-from small.safetensors --data text.txt --out again --steps 1 --batch 2", HARK_EXIT_DONE, "", "");
  expect("eval run.safetensors --data letters.txt --layers 2", HARK_EXIT_USAGE, "", "");
}

/* ---- end tokens ---- */

/* What the model writes without chance: the tokens after "ab". */
static void write_greedily(const char *path, int count, int32_t *out) {
  int32_t tokens[MOST];
  size_t prompt = 0;
  hark_context *context = test_reference_open();
  hark_model *model = foreign_load(context, test_path(folder, path));
  const hark_decoding_options room = {.struct_size = sizeof room};
  hark_decoding *decoding = NULL;
  hark_sampling sampling = hark_sampling_default();
  sampling.temperature = 0;
  assert_fine(context, hark_model_tokenize(context, model, "ab", 2, false, true, tokens, MOST, &prompt));
  assert_fine(context, hark_decoding_create(context, model, &room, &decoding));
  assert_fine(context, hark_decoding_prefill(decoding, tokens, (int64_t)prompt));
  for (int i = 0; i < count; i++) {
    assert_fine(context, hark_decoding_choose(decoding, &sampling, (uint64_t)i, &out[i]));
    if (i + 1 < count) assert_fine(context, hark_decoding_step(decoding, out[i]));
  }
  hark_decoding_destroy(&decoding);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static void set_ends(const char *file, const char *format, int32_t token) {
  char text[1024];
  (void)snprintf(text, sizeof text, format, token);
  (void)test_file_write_text(folder, file, text);
}

#define GENERATE " --prompt ab --temperature 0 --max-new-tokens 3 --json --threads 1"

static void assert_generates(const char *words, int tokens, bool ended) {
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output);
  if ((int)command_number(line, "tokens") != tokens) fail_msg("%s: %s", words, output.out);
  assert_int_equal(json_is_true(json_object_get(line, "ended")), ended);
  json_decref(line);
}

static void texts_end_at_the_end_token(void **state) {
  (void)state;
  enum { STEPS = 3 };
  int32_t greedy[STEPS], other = 0;
  make("gpt2", FOREIGN_GPT2_KEYS ", \"eos_token_id\": null", foreign_gpt2, FOREIGN_GPT2_COUNT, true);
  write_greedily("gpt2", STEPS, greedy);
  while (other == greedy[0] || other == greedy[1] || other == greedy[2]) other++;
  assert_true(other < 7);
  assert_generates("generate gpt2" GENERATE, STEPS, false);
  expect("generate gpt2 --ignore-eos" GENERATE, HARK_EXIT_USAGE, "", "--ignore-eos: has no effect here: gpt2 has no end token");

  set_ends("gpt2/config.json", "{" FOREIGN_GPT2_KEYS ", \"eos_token_id\": %d}", greedy[0]);
  assert_generates("generate gpt2" GENERATE, 0, true);
  assert_generates("generate gpt2 --ignore-eos" GENERATE, STEPS, false);
  set_ends("gpt2/config.json", "{" FOREIGN_GPT2_KEYS ", \"eos_token_id\": %d}", other);
  assert_generates("generate gpt2" GENERATE, STEPS, false);
  set_ends("gpt2/generation_config.json", "{\"eos_token_id\": [50256, %d], \"do_sample\": true}", greedy[0]);
  assert_generates("generate gpt2" GENERATE, 0, true);

  /* in files of hark, in exports, and in runs that begin with the model */
  expect("import gpt2 --output gpt2.safetensors", HARK_EXIT_DONE, "", "");
  assert_generates("generate gpt2.safetensors" GENERATE, 0, true);
  expect("export gpt2.safetensors --format huggingface --output back", HARK_EXIT_DONE, "", "");
  assert_generates("generate back" GENERATE, 0, true);
  expect("train --init-from gpt2.safetensors --data letters.txt --out run --steps 1 --lr 1e-30 --weight-decay 0 --batch 2", HARK_EXIT_DONE,
         "", "");
  assert_generates("generate run" GENERATE, 0, true);
  expect("generate gpt2 --samples 2 --prompt ab --max-new-tokens 4 --temperature 1e-6", HARK_EXIT_DONE, "ab\n---\nab\n", "");

  set_ends("gpt2/generation_config.json", "{\"eos_token_id\": \"%d\"}", other);
  expect("generate gpt2" GENERATE, HARK_EXIT_BAD_INPUT, "", "generation_config.json: eos_token_id: is ");
  set_ends("gpt2/generation_config.json", "{\"max_length\": %d}", 3);
  assert_generates("generate gpt2" GENERATE, STEPS, false);
}

/* ---- files of tokens ---- */

/* letters.txt as nanoGPT would have it; `extra` bytes are appended. */
static void write_tokens(const char *name, const void *extra, size_t extra_bytes) {
  int32_t tokens[MOST];
  unsigned char bytes[2 * MOST + 8];
  size_t count = 0;
  hark_context *context = test_reference_open();
  hark_model *model = foreign_load(context, test_path(folder, "gpt2"));
  char *const text = test_file_text(folder, "letters.txt");
  assert_fine(context, hark_model_tokenize(context, model, text, strlen(text), false, true, tokens, MOST, &count));
  free(text);
  for (size_t i = 0; i < count; i++) {
    bytes[2 * i] = (unsigned char)(tokens[i] & 255);
    bytes[2 * i + 1] = (unsigned char)(tokens[i] >> 8);
  }
  memcpy(bytes + 2 * count, extra, extra_bytes);
  (void)test_file_write(folder, name, bytes, 2 * count + extra_bytes);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static void files_of_tokens_are_read(void **state) {
  (void)state;
  make("gpt2", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT, true);
  write_tokens("val.bin", "", 0);
  write_tokens("cut.bin", "\1", 1);
  write_tokens("wide.bin", "\1\1", 2);
  static const char *const keys[] = {"loss", "targets", "perplexity"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    assert_true(number_in("eval gpt2 --data letters.txt --json --threads 1", keys[i]) ==
                number_in("eval gpt2 --data val.bin --json --threads 1", keys[i]));
  /* the bytes of all tokens, where a text begins with a space */
  assert_near(number_in("eval gpt2 --data letters.txt --json", "bits_per_byte"),
              number_in("eval gpt2 --data val.bin --json", "bits_per_byte"), 0.02, "bits per byte");
  expect("eval gpt2 --data cut.bin", HARK_EXIT_BAD_INPUT, "", "cut.bin: ends within a token (byte offset ");
  expect("eval gpt2 --data wide.bin", HARK_EXIT_BAD_INPUT, "", "wide.bin: token 257, and the vocabulary has 7 tokens (byte offset ");

  expect(
      "train --vocabulary gpt2/tokenizer.json --data val.bin --validation letters.txt --out run --steps 20 --lr 1e-2 --warmup "
      "0 " COMMAND_TINY,
      HARK_EXIT_DONE, "step 20", "6 in the vocabulary");
  expect("eval run", HARK_EXIT_DONE, "loss", "");
  assert_true(number_in("eval run --data val.bin --json", "loss") == number_in("eval run --data letters.txt --json", "loss"));
  expect("train --vocabulary gpt2 --data val.bin --out half --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --resume half --steps 2", HARK_EXIT_DONE, "step 2", "");
  expect("train --vocabulary gpt2 --data val.bin --out other --tokenizer bytes", HARK_EXIT_USAGE, "",
         "data.vocabulary names a tokenizer, expected data.tokenizer: imported or none");
  (void)test_file_write(folder, "meta.pkl", "\x80\x04\x95", 3);
  expect("train --vocabulary meta.pkl --data val.bin --out other", HARK_EXIT_USAGE, "", "meta.pkl: is a pickle, a program that is not run");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(losses_are_those_of_the_model, begin, end),
      cmocka_unit_test_setup_teardown(attention_is_exchanged, begin, end),
      cmocka_unit_test_setup_teardown(samples_are_in_its_tokens, begin, end),
      cmocka_unit_test_setup_teardown(what_is_no_measurement_is_refused_by_name, begin, end),
      cmocka_unit_test_setup_teardown(training_begins_at_the_loss_of_the_model, begin, end),
      cmocka_unit_test_setup_teardown(a_model_is_trained_further_and_exported, begin, end),
      cmocka_unit_test_setup_teardown(a_structure_may_change, begin, end),
      cmocka_unit_test_setup_teardown(contradictions_are_refused_by_name, begin, end),
      cmocka_unit_test_setup_teardown(files_of_hark_are_measured, begin, end),
      cmocka_unit_test_setup_teardown(texts_end_at_the_end_token, begin, end),
      cmocka_unit_test_setup_teardown(files_of_tokens_are_read, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
