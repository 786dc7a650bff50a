/* test_inspect.c - hark inspect: its numbers are those of attention computed here in float64 from the weights of a small model, causal and
 * not; structures and normalisations; texts that are cut or refused; models without attention. models/attention_weights compares the
 * weights of every structure with their definition. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"
#include "support/setups.h"

#define WIDTH 16
#define HEADS 2
#define DIM (WIDTH / HEADS)
#define CONTEXT 24
#define TRAIN "train --data text.txt --steps 30 --lr 0.03 --layers 1 --width 16 --heads 2 --context 24 --batch 2 --threads 1 "
#define TEXT "the quick brown fox th"
#define LENGTH 22
#define FAR 6

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* ---- the numbers of a model of one layer, from its file ---- */

typedef struct reading {
  hark_context *context;
  hark_safetensors *file;
} reading;

/* A tensor of the file, for free(). */
static float *tensor(const reading *r, const char *name, int64_t count) {
  const hark_stored_tensor *const stored = hark_safetensors_find(r->file, name);
  if (stored == NULL) fail_msg("no tensor %s", name);
  assert_int_equal(stored->bytes, (size_t)count * sizeof(float));
  float *const numbers = malloc(stored->bytes);
  assert_fine(r->context, hark_safetensors_read(r->context, r->file, stored, numbers));
  return numbers;
}

/* norm(embedding + position) of all tokens, without biases: (x - mean) / sqrt(variance + 1e-5) * gain. */
static void read_inputs(const reading *r, const int32_t *tokens, double x[LENGTH][WIDTH]) {
  const hark_stored_tensor *const table = hark_safetensors_find(r->file, "embedding.token.weight");
  float *const words = tensor(r, "embedding.token.weight", table->shape[0] * WIDTH);
  float *const places = tensor(r, "embedding.position.weight", CONTEXT * WIDTH);
  float *const gain = tensor(r, "blocks.0.attention_norm.weight", WIDTH);
  for (int t = 0; t < LENGTH; t++) {
    double mean = 0, variance = 0;
    for (int i = 0; i < WIDTH; i++) x[t][i] = (double)words[tokens[t] * WIDTH + i] + (double)places[t * WIDTH + i];
    for (int i = 0; i < WIDTH; i++) mean += x[t][i] / WIDTH;
    for (int i = 0; i < WIDTH; i++) variance += (x[t][i] - mean) * (x[t][i] - mean) / WIDTH;
    for (int i = 0; i < WIDTH; i++) x[t][i] = (x[t][i] - mean) / sqrt(variance + 1e-5) * (double)gain[i];
  }
  free(words);
  free(places);
  free(gain);
}

/* y = x W^T */
static void project(const reading *r, const char *name, double x[LENGTH][WIDTH], double y[LENGTH][WIDTH]) {
  float *const weight = tensor(r, name, WIDTH * WIDTH);
  for (int t = 0; t < LENGTH; t++)
    for (int o = 0; o < WIDTH; o++) {
      y[t][o] = 0;
      for (int i = 0; i < WIDTH; i++) y[t][o] += x[t][i] * (double)weight[o * WIDTH + i];
    }
  free(weight);
}

typedef struct numbers {
  double keys, entropy, distance, beyond, first;
} numbers;

/* Adds a query's numbers to the means. `window`: of keys to each side. */
static void add_query(double q[LENGTH][WIDTH], double k[LENGTH][WIDTH], int head, int t, bool causal, int window, numbers *out) {
  double weights[LENGTH], sum = 0, entropy = 0;
  for (int i = 0; i < LENGTH; i++) {
    double product = 0;
    for (int c = head * DIM; c < (head + 1) * DIM; c++) product += q[t][c] * k[i][c];
    weights[i] = (causal && i > t) || abs(i - t) > window ? 0 : exp(product / sqrt(DIM));
    sum += weights[i];
  }
  for (int i = 0; i < LENGTH; i++) {
    const double p = weights[i] / sum;
    if (p > 0) entropy -= p * log(p);
    out->distance += p * abs(i - t) / LENGTH;
    if (abs(i - t) > FAR) out->beyond += p / LENGTH;
    if (i == 0) out->first += p / LENGTH;
  }
  out->entropy += entropy / LENGTH;
  out->keys += exp(entropy) / LENGTH;
}

static void tokens_of(hark_context *context, const char *run, int32_t tokens[LENGTH]) {
  hark_model *model = NULL;
  size_t count = 0;
  assert_fine(context, hark_model_load(context, test_path(folder, run), NULL, &model));
  assert_fine(context, hark_model_encode(context, model, TEXT, LENGTH, false, tokens, &count));
  assert_int_equal(count, LENGTH);
  hark_model_destroy(context, &model);
}

static void compute(const char *run, bool causal, int window, numbers out[HEADS]) {
  static double x[LENGTH][WIDTH], q[LENGTH][WIDTH], k[LENGTH][WIDTH];
  char path[64];
  int32_t tokens[LENGTH];
  reading r = {.context = test_reference_open()};
  tokens_of(r.context, run, tokens);
  (void)snprintf(path, sizeof path, "%s/checkpoints/step-30/model.safetensors", run);
  assert_fine(r.context, hark_safetensors_open(r.context, test_path(folder, path), &r.file));
  read_inputs(&r, tokens, x);
  project(&r, "blocks.0.attention.query.weight", x, q);
  project(&r, "blocks.0.attention.key.weight", x, k);
  memset(out, 0, HEADS * sizeof *out);
  for (int h = 0; h < HEADS; h++)
    for (int t = 0; t < LENGTH; t++) add_query(q, k, h, t, causal, window, &out[h]);
  hark_safetensors_close(r.context, &r.file);
  test_setup_close(r.context);
}

/* The object of a head in the output. */
static const json_t *head_of(const json_t *object, size_t layer, size_t head) {
  return json_array_get(json_object_get(json_array_get(json_object_get(object, "layers"), layer), "heads"), head);
}

static void expect_near(const char *what, double have, double want) {
  /* f32 products of 16 terms, and sums of weights over 22 keys */
  if (!(fabs(have - want) <= 2e-5 * (1 + fabs(want)))) fail_msg("%s is %.9g, expected %.9g", what, have, want);
}

static void expect_numbers(const char *run, bool causal, int window) {
  numbers want[HEADS];
  char words[128];
  (void)snprintf(words, sizeof words, "inspect %s --text read.txt --distance 6 --json", run);
  compute(run, causal, window, want);
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const object = command_json(&output);
  assert_int_equal(json_integer_value(json_object_get(object, "tokens")), LENGTH);
  assert_int_equal(json_integer_value(json_object_get(object, "beyond_distance")), FAR);
  for (int h = 0; h < HEADS; h++) {
    const json_t *const head = head_of(object, 0, (size_t)h);
    expect_near("keys", command_number(head, "keys"), want[h].keys);
    expect_near("entropy", command_number(head, "entropy"), want[h].entropy);
    expect_near("distance", command_number(head, "distance"), want[h].distance);
    expect_near("beyond", command_number(head, "beyond"), want[h].beyond);
    expect_near("first", command_number(head, "first"), want[h].first);
  }
  /* the weights were learned: the heads differ from each other */
  assert_true(fabs(want[0].keys - want[1].keys) > 1e-3);
  json_decref(object);
}

static void numbers_are_those_of_the_weights(void **state) {
  (void)state;
  (void)test_file_write_text(folder, "read.txt", TEXT);
  expect(TRAIN "--out causal --positions learned", 0, "", "");
  expect_numbers("causal", true, LENGTH);
  expect(TRAIN "--out masked --positions learned --architecture masked_encoder", 0, "", "");
  expect_numbers("masked", false, LENGTH);
  expect(TRAIN "--out window --positions learned --structure window --window 3", 0, "", "");
  expect_numbers("window", true, 3);
}

/* ---- kinds of attention, and of files ---- */

static void expect_heads(const char *words, size_t layers, size_t heads) {
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const object = command_json(&output);
  assert_int_equal(json_array_size(json_object_get(object, "layers")), layers);
  for (size_t layer = 0; layer < layers; layer++)
    for (size_t h = 0; h < heads; h++) {
      const json_t *const head = head_of(object, layer, h);
      const double keys = command_number(head, "keys"), far = command_number(head, "beyond");
      assert_true(keys >= 1 && keys <= 4000 && command_number(head, "entropy") >= 0 && far >= 0 && far <= 1 + 1e-6);
    }
  assert_null(json_object_get(json_array_get(json_object_get(object, "layers"), 0), "no such member"));
  json_decref(object);
}

static void every_structure_is_read(void **state) {
  (void)state;
  expect(
      "train --data text.txt --steps 2 --out mixed --layers 2 --structure hierarchical,dense --positional decay --positions none "
      "--hierarchy-block 4 --width 16 --heads 2 --batch 2 --threads 1 --context 48",
      0, "", "");
  expect_heads("inspect mixed --text text.txt --json", 2, 2);
  expect("export mixed --output mixed.safetensors", 0, "", "");
  expect_heads("inspect mixed.safetensors --text text.txt --json", 2, 2);
  expect("train --data text.txt --steps 2 --out gates --forget-gate " COMMAND_TINY, 0, "", "");
  expect_heads("inspect gates --text text.txt --json", 1, 2);
  expect("train --data text.txt --steps 2 --out ridge --normalisation cme --kernel rbf " COMMAND_TINY, 0, "", "");
  expect_heads("inspect ridge --text text.txt --json", 1, 2);
  assert_non_null(strstr(output.out, "\"negative\": "));
  assert_non_null(strstr(output.out, "\"normalisation\": \"cme\""));
  expect("inspect ridge --text text.txt", 0, "cme: coefficients of the values are no probabilities", "");
  expect_heads("inspect gates --json < text.txt", 1, 2);
}

/* Folders of other programs need their tokenizer; cli/embed reads one that has it. */
static void folders_of_other_programs_need_a_tokenizer(void **state) {
  (void)state;
  expect("train --data text.txt --steps 2 --out rms --norm rms_norm --activation gated_silu " COMMAND_TINY, 0, "", "");
  expect("export rms --format huggingface --output llama", 0, "", "");
  expect("inspect llama --text text.txt", HARK_EXIT_USAGE, "", "llama: has no vocabulary, and there is no tokenizer.json beside it");
}

/* Wider windows than the far distance of every key give nothing beyond. */
static void distances_are_chosen(void **state) {
  (void)state;
  expect("train --data text.txt --steps 2 --out run " COMMAND_TINY, 0, "", "");
  expect("inspect run --text text.txt --json", 0, "\"beyond_distance\": 2", "longer than the model's context, the first 8 tokens are read");
  char path[TEST_PATH_BYTES], from[TEST_PATH_BYTES];
  (void)snprintf(from, sizeof from, "%s", test_path(folder, "text.txt"));
  (void)snprintf(path, sizeof path, "%s", test_path(folder, "red\x1b[31m.txt"));
  assert_int_equal(link(from, path), 0);
  expect("inspect run --text red\x1b[31m.txt --json", 0, "", "warning: red?[31m.txt: is longer"); /* a name cannot control a terminal */
  expect("inspect run --text text.txt --distance 8 --json", 0, "\"beyond\": 0,", "");
  expect("inspect run --text text.txt", 0, "run: 8 tokens", "");
  assert_int_equal(test_line_count(output.out), 4);
}

/* Words or characters that the model never saw are one token: numbers of them are not those of the text. */
static void what_the_vocabulary_lacks_is_named(void **state) {
  (void)state;
  test_file_write_text(folder, "other.txt", "the 7 fox");
  test_file_write_text(folder, "words.txt", "alpha beta");
  test_file_write_text(folder, "late.txt", "the quick brown fox 7");
  expect("train --data text.txt --steps 2 --out run " COMMAND_TINY, 0, "", "");
  expect("inspect run --text other.txt", 0, "run: 8 tokens", "other.txt: 1 of 8 tokens are the unknown token");
  expect("inspect run --text late.txt", 0, "run: 8 tokens", "");
  assert_null(strstr(output.err, "unknown token"));
  expect("data make listops --training 8 --validation 4 --test 0 --length-above 2 --length-below 30 --out task", 0, "", "");
  expect("train --data task --format listops --architecture encoder --steps 2 --out lists --layers 1 --width 16 --heads 2 --context 30", 0,
         "", "");
  expect("inspect lists --text words.txt", 0, "lists: ", "words.txt: 2 of 3 tokens are the unknown token");
}

static void figures_are_drawn(void **state) {
  (void)state;
  expect("train --data text.txt --steps 2 --out run " COMMAND_TINY, 0, "", "");
  test_command_run(folder, "", "inspect run --text text.txt --figure heads.svg", &output);
  assert_int_equal(output.code, 0);
  const bool drawn = access(test_path(folder, "heads.svg"), R_OK) == 0;
  char *const text = test_file_text(folder, drawn ? "heads.svg" : "heads.svg.gp");
  assert_non_null(strstr(text, "effective number of keys"));
  assert_non_null(strstr(text, "weight beyond 2 tokens"));
  free(text);
}

/* ---- refusals ---- */

static void what_cannot_be_read_is_refused_in_one_line(void **state) {
  (void)state;
  static const struct {
    const char *words;
    int code;
    const char *message;
  } cases[] = {
      {"inspect run --text empty.txt", HARK_EXIT_BAD_INPUT, "empty.txt: the text is empty"},
      {"inspect run < empty.txt", HARK_EXIT_BAD_INPUT, "standard input: the text is empty"},
      {"inspect run --text one.txt", HARK_EXIT_BAD_INPUT, "one.txt: 1 token, expected at least 2"},
      {"inspect run --text bytes.txt", HARK_EXIT_BAD_INPUT, "bytes.txt:2:1: invalid UTF-8"},
      {"inspect run --text missing.txt", HARK_EXIT_BAD_INPUT, "missing.txt: "},
      {"inspect missing --text text.txt", HARK_EXIT_BAD_INPUT, "missing"},
      {"inspect ahca --text text.txt", HARK_EXIT_USAGE, "ahca: architecture ahca has no attention heads that read a text"},
      {"inspect torn.safetensors --text text.txt", HARK_EXIT_BAD_INPUT, "torn.safetensors"},
      {"inspect run --text text.txt --figure missing/heads.svg", HARK_EXIT_DISK, "missing/heads.svg"},
  };
  expect("train --data text.txt --steps 2 --out run " COMMAND_TINY, 0, "", "");
  expect(
      "train --data text.txt --steps 2 --out ahca --architecture ahca --model.ahca.head reconstruction --context 32 --width 16 --heads 2 "
      "--layers 1 --batch 2",
      0, "", "");
  expect("export run --output torn.safetensors", 0, "", "");
  assert_int_equal(truncate(test_path(folder, "torn.safetensors"), 3000), 0);
  (void)test_file_write_text(folder, "empty.txt", "");
  (void)test_file_write_text(folder, "one.txt", "t");
  (void)test_file_write_text(folder, "bytes.txt", "the\n\xff quick");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    test_command_run(folder, "", cases[i].words, &output);
    if (output.code != cases[i].code || strstr(output.err, cases[i].message) == NULL || test_line_count(output.err) != 1)
      if (strstr(cases[i].words, "figure") == NULL || output.code != cases[i].code) /* a long text is cut first, with a warning */
        fail_msg("hark %s\nexit code %d\nstderr: %s\nexpected \"%s\"", cases[i].words, output.code, output.err, cases[i].message);
  }
}

/* A character that is cut by the limit of bytes that are read, and a long text of one byte a token. */
static void long_texts_are_read_at_their_beginning(void **state) {
  (void)state;
  enum { BYTES = 70001 };
  char *const text = malloc(BYTES + 1);
  for (int i = 0; i < BYTES; i += 3) memcpy(text + i, i + 3 <= BYTES ? "\xe2\x82\xac" : "xyz", (size_t)(BYTES - i < 3 ? BYTES - i : 3));
  text[BYTES] = '\0';
  (void)test_file_write_text(folder, "long.txt", text);
  free(text);
  expect("train --data text.txt --steps 2 --out run " COMMAND_TINY, 0, "", "");
  expect("inspect run --text long.txt", 0, "run: 8 tokens", "the first 8 tokens are read");
}

/* No file becomes larger than 4 MiB: standard input without an end is read as far as it is needed, or up to a limit. */
static void standard_input_may_have_no_end(void **state) {
  (void)state;
  static const struct {
    const char *words;
    int code;
    const char *message;
  } cases[] = {
      {"inspect run", 0, "standard input: is longer than the model's context, the first 8 tokens are read"},
      {"report run --file -", 0, ""},
  };
  expect("train --data text.txt --steps 2 --out run " COMMAND_TINY, 0, "", "");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    test_command_run(folder, "ulimit -f 4096 && yes the | timeout 60", cases[i].words, &output);
    if (output.code != cases[i].code || strstr(output.err, cases[i].message) == NULL)
      fail_msg("hark %s: exit code %d: %s", cases[i].words, output.code, output.err);
  }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(numbers_are_those_of_the_weights),
      TEST(every_structure_is_read),
      TEST(distances_are_chosen),
      TEST(folders_of_other_programs_need_a_tokenizer),
      TEST(what_the_vocabulary_lacks_is_named),
      TEST(figures_are_drawn),
      TEST(what_cannot_be_read_is_refused_in_one_line),
      TEST(long_texts_are_read_at_their_beginning),
      TEST(standard_input_may_have_no_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
