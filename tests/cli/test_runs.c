/* test_runs.c - what the command promises about runs: verify, warm starts, exchanged attention, the estimate of memory and disk, all errors
 * at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/common.h"
#include "io/safetensors.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"

#define TINY "--layers 2 " COMMAND_SMALL

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  command_text_make(folder, "other.txt", "fox brown quick the ");
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

static void make_run(void) {
  expect("train --data text.txt --out run --steps 6 --checkpoint-every 2 --keep 3 " TINY, HARK_EXIT_DONE, "step 6 of 6", "");
}

/* ---- verify ---- */

/* A file of the run, a change to it, and what verify says. The change is undone afterwards. */
typedef struct damage {
  const char *file;
  const char *contents; /* NULL: the last byte is changed; "": the file goes */
  const char *what, *problem;
} damage;

static void damage_is_found(const damage *d) {
  size_t bytes;
  unsigned char *const before = test_file_read(test_path(folder, d->file), &bytes);
  if (d->contents == NULL) {
    before[bytes - 1] ^= 1;
    test_file_write(folder, d->file, before, bytes);
    before[bytes - 1] ^= 1;
  } else if (d->contents[0] == '\0') {
    assert_int_equal(remove(test_path(folder, d->file)), 0);
  } else {
    test_file_write_text(folder, d->file, d->contents);
  }
  expect("verify run --json", HARK_EXIT_BAD_INPUT, "", "problem");
  json_t *const object = command_json(&output);
  const json_t *const findings = json_object_get(json_array_get(json_object_get(object, "runs"), 0), "findings");
  bool found = false;
  for (size_t i = 0; i < json_array_size(findings); i++) {
    const json_t *const finding = json_array_get(findings, i);
    if (strcmp(json_string_value(json_object_get(finding, "what")), d->what) != 0) continue;
    const char *const problem = json_string_value(json_object_get(finding, "problem"));
    found = found || (problem != NULL && strstr(problem, d->problem) != NULL);
  }
  if (!found) fail_msg("%s damaged: no problem \"%s\" with %s in %s", d->file, d->problem, d->what, output.out);
  json_decref(object);
  test_file_write(folder, d->file, before, bytes);
  free(before);
}

static void verify_finds_what_is_damaged(void **state) {
  (void)state;
  static const damage damages[] = {
      {"run/config.yaml", "model: {layers: 0}\n", "config.yaml", "model.layers"},
      {"run/vocabulary.json", NULL, "vocabulary.json", "vocabulary.json"},
      {"run/vocabulary.json", "", "vocabulary.json", "cannot be opened"},
      {"run/metrics.jsonl", "{\"step\": 2, \"tokens\": 9}\n{\"step\": 1, \"tokens\": 10}\n", "metrics.jsonl", "goes back to step 1"},
      {"run/metrics.jsonl", "{\"step\": 1}\n", "metrics.jsonl", "without step or tokens"},
      {"run/metrics.jsonl", "{\"step\": 1, \"tokens\": 1}\n", "checkpoints/step-6", "was saved at"},
      {"run/checkpoints/step-2/model.safetensors", NULL, "checkpoints/step-2", "model.safetensors: is damaged: its SHA-256 is not"},
      {"run/checkpoints/step-4/optimizer.safetensors", NULL, "checkpoints/step-4", "optimizer.safetensors: is damaged: its SHA-256 is not"},
      {"run/checkpoints/step-4/optimizer.safetensors", "", "checkpoints/step-4", "optimizer.safetensors: cannot be opened"},
      {"run/checkpoints/step-6/state.json", NULL, "checkpoints/step-6", "state.json: is damaged: its SHA-256 is not"},
      {"run/checkpoints/step-6/manifest.json", "", "checkpoints/step-6", "manifest.json: cannot be opened"},
      {"run/checkpoints/step-6/manifest.json", "{\"format_version\": 2}", "checkpoints/step-6", "format_version"},
      {"run/checkpoints/step-6/manifest.json", "{\"format_version\": 1, \"files\": []}", "checkpoints/step-6",
       "manifest.json: does not list model.safetensors"},
      {"run/last", "step-5\n", "last", "no such checkpoint"},
      {"run/best", "../../etc\n", "best", "does not name a checkpoint"},
  };
  make_run();
  expect("verify run run/checkpoints/step-6", HARK_EXIT_DONE, "good  checkpoints/step-4", "");
  assert_null(strstr(output.out, "BAD"));
  for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) damage_is_found(&damages[i]);
  expect("verify run --json", HARK_EXIT_DONE, "\"problems\": 0", ""); /* everything was undone */
  json_decref(command_json(&output));
  /* eval reads no checkpoint that is not whole */
  test_file_write_text(folder, "run/checkpoints/step-6/state.json", "{}");
  expect("eval run --checkpoint step-6", HARK_EXIT_BAD_INPUT, "", "state.json: is damaged: it has 2 bytes");
  expect("eval run --checkpoint step-4", HARK_EXIT_DONE, "nats per token", "");
  expect("verify run/checkpoints/step-4", HARK_EXIT_DONE, "good", "");
  expect("verify run/checkpoints/step-6", HARK_EXIT_BAD_INPUT, "BAD", "1 problem in what was verified");
  expect("verify none run", HARK_EXIT_BAD_INPUT, "BAD   none", "2 problems");
  expect("verify", HARK_EXIT_USAGE, "", "missing");
  /* what a killed save leaves is no damage */
  expect("train --data text.txt --out whole --steps 2 " TINY, HARK_EXIT_DONE, "", "");
  test_file_write_text(folder, "whole/checkpoints/.partial/model.safetensors", "half");
  FILE *const metrics = fopen(test_path(folder, "whole/metrics.jsonl"), "a");
  assert_non_null(metrics);
  assert_true(fputs("{\"step\": 3, \"tok", metrics) >= 0);
  assert_int_equal(fclose(metrics), 0);
  expect("verify whole", HARK_EXIT_DONE, "interrupted save", "");
}

/* All that read the state of a checkpoint agree; a run continues from the newest undamaged one. */
static void a_renamed_checkpoint_is_damaged(void **state) {
  (void)state;
  static const char why[] = "run/checkpoints/step-8/state.json: is the state of step 6, expected that of step-8";
  make_run();
  assert_int_equal(command_place_shell(folder, "mv run/checkpoints/step-6 run/checkpoints/step-8 && echo step-8 >run/last"), 0);
  expect("verify run", HARK_EXIT_BAD_INPUT, why, "");
  expect("runs run", HARK_EXIT_DONE, why, "");
  expect("eval run --checkpoint last", HARK_EXIT_BAD_INPUT, "", why);
  expect("train --init-from run/checkpoints/step-8 --data text.txt --out warm --steps 1 " TINY, HARK_EXIT_BAD_INPUT, "", why);
  expect("train --resume run --steps 9", HARK_EXIT_DONE, "", why);
  assert_non_null(strstr(output.err, "continuing from step-4"));
  expect("verify run", HARK_EXIT_DONE, "good", "");
}

static void shell(const char *line) { assert_int_equal(command_place_shell(folder, line), 0); }

static void verify_names_the_file_that_is_damaged(void **state) {
  (void)state;
  make_run();
  shell("rm run/config.yaml");
  expect("verify run", HARK_EXIT_BAD_INPUT, "BAD   config.yaml             \"run/config.yaml: cannot be opened", "1 problem");
  assert_non_null(strstr(output.out, "good  checkpoints/step-4"));
  expect("train --data text.txt --out rms --steps 1 --norm rms_norm --activation gated_silu " TINY, HARK_EXIT_DONE, "", "");
  expect("export rms --format huggingface --output hf", HARK_EXIT_DONE, "", "");
  shell("cp hf/model.safetensors part && truncate -s 300 hf/model.safetensors");
  expect("verify hf", HARK_EXIT_BAD_INPUT, "BAD   model.safetensors       \"hf/model.safetensors: byte 0: header of", "1 problem");
  shell("rm hf/model.safetensors");
  expect("verify hf", HARK_EXIT_BAD_INPUT, "BAD   model.safetensors       \"hf: has neither", "1 problem");
  (void)test_file_write_text(folder, "hf/model.safetensors.index.json", "{\"weight_map\": {\"lm_head.weight\": \"part-1.safetensors\"}}");
  expect("verify hf", HARK_EXIT_BAD_INPUT, "BAD   part-1.safetensors      \"hf/part-1.safetensors: is missing", "1 problem");
  shell("mv part hf/part-1.safetensors");
  expect("verify hf", HARK_EXIT_BAD_INPUT, "BAD   ", "1 problem");
  (void)test_file_write_text(folder, "hf/model.safetensors.index.json", "{");
  expect("verify hf", HARK_EXIT_BAD_INPUT, "BAD   model.safetensors.index.json", "1 problem");
  (void)test_file_write_text(folder, "hf/config.json", "{");
  expect("verify hf", HARK_EXIT_BAD_INPUT, "BAD   config.json", "1 problem");
}

/* hark export writes model.safetensors beside the runs of the folder that it is called in. */
static void verify_finds_runs_beside_a_model(void **state) {
  (void)state;
  assert_int_equal(command_place_shell(folder, "mkdir all"), 0);
  expect("train --data text.txt --out all/run --steps 2 " TINY, HARK_EXIT_DONE, "", "");
  expect("export all/run --output all/model.safetensors", HARK_EXIT_DONE, "", "");
  expect("verify all", HARK_EXIT_DONE, "good  checkpoints/step-2", "");
  assert_non_null(strstr(output.out, "good  model "));
  test_file_write_text(folder, "all/run/vocabulary.json", "{}");
  expect("verify all", HARK_EXIT_BAD_INPUT, "BAD   vocabulary.json", "in what was verified");
}

/* A manifest that fits and numbers that are not: written as a program would, with NaN in a weight. */
static void verify_finds_numbers_that_are_not_finite(void **state) {
  (void)state;
  make_run();
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  static const unsigned char nan[] = {0, 0, 0xc0, 0x7f};
  size_t bytes;
  unsigned char *const model = test_file_read(test_path(folder, "run/checkpoints/step-6/model.safetensors"), &bytes);
  memcpy(model + bytes - sizeof nan, nan, sizeof nan);
  test_file_write(folder, "run/checkpoints/step-6/model.safetensors", model, bytes);
  free(model);
  hark_context *context = test_reference_open();
  test_manifest_write(context, folder, "run/checkpoints/step-6", 3, names);
  test_setup_close(context);
  expect("verify run", HARK_EXIT_BAD_INPUT, "is not finite", "1 problem");
}

/* Files of models, and folders of runs. */
static void verify_checks_files_of_models(void **state) {
  (void)state;
  static const unsigned char nan[] = {0, 0, 0xc0, 0x7f};
  size_t bytes;
  make_run();
  static const char *const types[] = {"f32", "bf16", "int8"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char words[128];
    (void)snprintf(words, sizeof words, "export run --output %s.safetensors --type %s", types[i], types[i]);
    expect(words, HARK_EXIT_DONE, "", "");
    (void)snprintf(words, sizeof words, "verify %s.safetensors", types[i]);
    expect(words, HARK_EXIT_DONE, "good  model", "");
  }
  expect("verify f32.safetensors --json", HARK_EXIT_DONE, "\"problems\": 0", "");
  json_decref(command_json(&output));
  unsigned char *const model = test_file_read(test_path(folder, "f32.safetensors"), &bytes);
  test_file_write(folder, "cut.safetensors", model, bytes - 8);
  memcpy(model + bytes - sizeof nan, nan, sizeof nan);
  test_file_write(folder, "nan.safetensors", model, bytes);
  free(model);
  expect("verify cut.safetensors", HARK_EXIT_BAD_INPUT, "BAD   tensors", "1 problem");
  expect("verify nan.safetensors", HARK_EXIT_BAD_INPUT, "is not finite", "1 problem");
  expect("verify text.txt f32.safetensors", HARK_EXIT_BAD_INPUT, "good  model", "1 problem");
  /* tensors alone are no model */
  static const char tensors[] = "\x40\0\0\0\0\0\0\0{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}   \0\0\0\0";
  test_file_write(folder, "x.safetensors", tensors, 8 + 64 + 4);
  expect("verify x.safetensors", HARK_EXIT_BAD_INPUT, "BAD   model", "1 problem");
}

static void verify_finds_the_runs_of_a_folder(void **state) {
  (void)state;
  expect("train --data text.txt --out all/a --steps 2 " TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out all/more/b --steps 2 " TINY, HARK_EXIT_DONE, "", "");
  expect("verify all", HARK_EXIT_DONE, "all/more/b\n", "");
  assert_non_null(strstr(output.out, "all/a\n"));
  expect("verify all --json", HARK_EXIT_DONE, "\"problems\": 0}\n", "");
  json_t *const object = command_json(&output);
  assert_int_equal(json_array_size(json_object_get(object, "runs")), 2);
  json_decref(object);
  test_file_write_text(folder, "all/more/b/checkpoints/step-2/state.json", "{}");
  expect("verify all", HARK_EXIT_BAD_INPUT, "BAD   checkpoints/step-2", "1 problem");
  test_file_write_text(folder, "nothing/file", "");
  expect("verify nothing", HARK_EXIT_BAD_INPUT, "nothing: is neither a run", "1 problem");
}

/* JSON has no place for bytes that are not UTF-8: they follow in hexadecimal. */
static void paths_that_are_not_utf8_keep_their_bytes(void **state) {
  (void)state;
  expect("train --data text.txt --out runs/plain --steps 1 " TINY, HARK_EXIT_DONE, "", "");
  if (rename(test_path(folder, "runs/plain"), test_path(folder, "runs/a\xff")) != 0) skip(); /* of a file system with other names */
  expect("runs runs --json", HARK_EXIT_DONE, "\"path_bytes\": \"72756e732f61ff\"", "");
  json_decref(command_json(&output));
  expect("verify runs --json", HARK_EXIT_DONE, "\"path_bytes\": \"72756e732f61ff\"", "");
  expect("eval runs/a\xff --json --threads 1", HARK_EXIT_DONE, "\"run_bytes\": \"72756e732f61ff\"", "");
  expect("export runs/a\xff --json --output m", HARK_EXIT_DONE, "\"run_bytes\": \"72756e732f61ff\"", "");
  expect("export runs/a\xff --json --format tokenizer.json", HARK_EXIT_DONE, "\"vocabulary_bytes\": \"72756e732f61ff\"", "");
  assert_int_equal(command_place_shell(folder, "mv m 'm\xff'"), 0);
  expect("generate m\xff --max-new-tokens 1 --json", HARK_EXIT_DONE, "\"checkpoint_bytes\": \"6dff\"", "");
  assert_int_equal(rename(test_path(folder, "runs/a\xff"), test_path(folder, "runs/plain")), 0);
  expect("runs runs --json", HARK_EXIT_DONE, "\"path\": \"runs/plain\", \"state\"", "");
}

static void planned_steps_are_exact(void **state) {
  (void)state;
  expect("train --data text.txt --out long --steps 144115188075855871 --max-time 0.1s " TINY, HARK_EXIT_DONE, "of 144115188075855871", "");
  expect("runs long", HARK_EXIT_DONE, "/144115188075855871 ", "");
  expect("runs long --json", HARK_EXIT_DONE, "\"steps\": 144115188075855871,", "");
}

/* ---- warm starts ---- */

static void a_run_begins_with_trained_weights(void **state) {
  (void)state;
  make_run();
  /* the model is that of the source: nothing needs to be said of it; the vocabulary too */
  expect("train --init-from run --data other.txt --out next --steps 1 --lr 1e-30 --weight-decay 0 --batch 2 --threads 1", HARK_EXIT_DONE,
         "step 1 of 1", "18 loaded, 0 missing, 0 of another shape, 0 unexpected");
  size_t first_bytes, second_bytes;
  expect("verify next", HARK_EXIT_DONE, "good  origin.json", "");
  /* with a rate of nothing the weights are those of the source's best checkpoint, and the loss on its text too */
  unsigned char *const best = test_file_read(test_path(folder, "run/best"), &first_bytes);
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "run/checkpoints/%.*s/model.safetensors", (int)first_bytes - 1, (const char *)best);
  unsigned char *const first = test_file_read(test_path(folder, path), &first_bytes);
  unsigned char *const second = test_file_read(test_path(folder, "next/checkpoints/step-1/model.safetensors"), &second_bytes);
  assert_int_equal(first_bytes, second_bytes);
  assert_memory_equal(first, second, first_bytes);
  free(best);
  free(first);
  free(second);
  unsigned char *const vocabulary = test_file_read(test_path(folder, "run/vocabulary.json"), &first_bytes);
  unsigned char *const copied = test_file_read(test_path(folder, "next/vocabulary.json"), &second_bytes);
  assert_int_equal(first_bytes, second_bytes);
  assert_memory_equal(vocabulary, copied, first_bytes);
  free(vocabulary);
  free(copied);
  /* the origin can be given, and stays when the run is continued */
  json_error_t error;
  json_t *const origin = json_load_file(test_path(folder, "next/origin.json"), 0, &error);
  assert_non_null(origin);
  assert_string_equal(json_string_value(json_object_get(origin, "run")), "run");
  assert_int_equal(strlen(json_string_value(json_object_get(origin, "model_sha256"))), 64);
  assert_int_equal(json_array_size(json_object_get(origin, "loaded")), 18);
  json_decref(origin);
  expect("info next --json", HARK_EXIT_DONE, "\"init_from\": \"run\"", "");
  expect("train --resume --out next --steps 2", HARK_EXIT_DONE, "step 2 of 2", "continuing from step-1");
  expect("train --resume --out next --steps 3 --init-from elsewhere", HARK_EXIT_USAGE, "", "train.init_from cannot change");
}

/* Of as many characters, all of them others: every loss and every text would be another one. */
static void weights_go_with_their_vocabulary(void **state) {
  static const char *const commands[] = {"eval one --threads 1",
                                         "generate one --threads 1",
                                         "verify one",
                                         "export one --output one.safetensors",
                                         "train --resume --out one --steps 3 --threads 1",
                                         "train --init-from one --data one.txt --out next-one --steps 1 --threads 1"};
  (void)state;
  char text[600];
  for (int file = 0; file < 2; file++) {
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)((file == 0 ? 'a' : 'A') + i * 7 % 11);
    text[sizeof text - 1] = '\0';
    test_file_write_text(folder, file == 0 ? "one.txt" : "two.txt", text);
  }
  expect("train --data one.txt --out one --steps 2 " TINY, HARK_EXIT_DONE, "step 2 of 2", "");
  expect("train --data two.txt --out two --steps 2 " TINY, HARK_EXIT_DONE, "step 2 of 2", "");
  char *const own = test_file_text(folder, "one/vocabulary.json"), *const other = test_file_text(folder, "two/vocabulary.json");
  assert_int_equal(strlen(own), strlen(other));
  const int kept = test_folder_count(folder, "one/cache");
  test_file_write_text(folder, "one/vocabulary.json", other);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) expect(commands[i], HARK_EXIT_BAD_INPUT, "", "");
  expect(commands[0], HARK_EXIT_BAD_INPUT, "", "one/vocabulary.json: is not the vocabulary that the weights of step-2 were trained with");
  assert_int_equal(test_folder_count(folder, "one/cache"), kept);
  test_file_write_text(folder, "one/vocabulary.json", own);
  /* another text of the same characters */
  for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + i * 5 % 11);
  test_file_write_text(folder, "three.txt", text);
  expect("train --out one --resume --steps 3 --data three.txt", HARK_EXIT_USAGE, "",
         "the text is not the one that this run was trained on");
  assert_int_equal(test_folder_count(folder, "one/cache"), kept); /* what was refused leaves nothing */
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) expect(commands[i], HARK_EXIT_DONE, "", "");
  free(own);
  free(other);
}

/* Numbers of a positional kernel go with their expression, in warm starts and in exported files. */
static void kernels_go_with_their_expression(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 2 --positions none --positional 'bank[2](decay*periodic)' " TINY, HARK_EXIT_DONE,
         "step 2 of 2", "");
  expect("verify run", HARK_EXIT_DONE, "", "");
  expect("train --init-from run --data text.txt --out same --steps 1 --threads 1", HARK_EXIT_DONE, "",
         "19 loaded, 0 missing, 0 of another shape, 0 unexpected");
  expect("train --init-from run --data text.txt --out other --steps 1 --threads 1 --positional 'bank[2](decay*rbf)'", HARK_EXIT_BAD_INPUT,
         "",
         "of another kernel: positional.parameters [1, 8], positional \"bank[2](decay*rbf)\" in the model, \"bank[2](decay*periodic)\" "
         "in the file: not allowed");
  expect(
      "train --init-from run --data text.txt --out other --steps 1 --threads 1 --positional 'bank[2](decay*rbf)' "
      "--allow-missing 'positional.*'",
      HARK_EXIT_DONE, "", "\"bank[2](decay*periodic)\" in the file: it is initialised");
  expect("train --init-from run --data text.txt --out without --steps 1 --threads 1 --positional ''", HARK_EXIT_BAD_INPUT, "",
         "unexpected: \"positional.parameters\" [1, 8]: not allowed");
  expect("train --resume --out run --steps 3 --threads 1 --positional 'bank[2](decay*rbf)'", HARK_EXIT_USAGE, "",
         "model.positional cannot change when a run is resumed: \"bank[2](decay*rbf)\" given, the run has \"bank[2](decay*periodic)\"");
  expect("export run --output kernel.safetensors", HARK_EXIT_DONE, "", "");
  expect("info kernel.safetensors", HARK_EXIT_DONE, "positional kernel bank[2](decay*periodic), scope \"model\": 8 parameters", "");
  test_command_run(folder, "", "generate run --max-new-tokens 8 --seed 3 --threads 1", &output);
  char *const text = strdup(output.out);
  expect("generate kernel.safetensors --max-new-tokens 8 --seed 3 --threads 1", HARK_EXIT_DONE, text, "");
  assert_true(strlen(text) > 8);
  free(text);
}

static void what_does_not_fit_is_listed_and_refused(void **state) {
  (void)state;
  make_run();
  expect("train --init-from run --data text.txt --out a --steps 1 --layers 3 --threads 1", HARK_EXIT_BAD_INPUT, "",
         "missing: blocks.2.attention.query.weight [16, 16]: not allowed");
  assert_non_null(strstr(output.err, "8 weights of the model are missing and 0 others are unexpected"));
  expect("train --init-from run --data text.txt --out a --steps 1 --layers 3 --allow-missing 'blocks.2.*' --threads 1", HARK_EXIT_DONE, "",
         "blocks.2.attention.query.weight [16, 16]: it is initialised");
  expect("train --init-from run --data text.txt --out b --steps 1 --layers 1 --threads 1", HARK_EXIT_BAD_INPUT, "",
         "unexpected: \"blocks.1.attention.query.weight\" [16, 16]: not allowed");
  expect("train --init-from run --data text.txt --out b --steps 1 --layers 1 --threads 1 --allow-unexpected 'blocks.1.*'", HARK_EXIT_DONE,
         "", "it is left out");
  /* another shape is refused like a missing one, and starts fresh when allowed */
  expect("train --init-from run --data text.txt --out c --steps 1 --threads 1 --model.feed-forward-width 48", HARK_EXIT_BAD_INPUT, "",
         "of another shape: blocks.0.feed_forward.up.weight [48, 16], in the file F32 [64, 16]: not allowed");
  expect(
      "train --init-from run --data text.txt --out c --steps 1 --threads 1 --model.feed-forward-width 48 --allow-missing "
      "'blocks.?.feed_forward.*'",
      HARK_EXIT_DONE, "", "it is initialised");
  /* patterns that match nothing, or only weights that are loaded */
  expect("train --init-from run --data text.txt --out h --steps 1 --threads 1 --allow-missing 'blocks.0.*'", HARK_EXIT_USAGE, "",
         "train.allow_missing: blocks.0.* matches no missing tensor");
  expect("train --init-from run --data text.txt --out h --steps 1 --threads 1 --allow-unexpected nothing", HARK_EXIT_USAGE, "",
         "train.allow_unexpected: nothing matches no unexpected tensor");
  assert_int_equal(command_place_shell(folder, "test ! -e h"), 0);
  /* an option that leaves the shapes and changes what they mean is said */
  expect("train --init-from run --data text.txt --out d --steps 1 --threads 1 --structure window --window 3", HARK_EXIT_DONE, "",
         "model.attention.structure is window; the weights were trained with dense");
  /* a damaged source, no source, another kind of vocabulary, text outside of it */
  expect("train --init-from none --data text.txt --out e", HARK_EXIT_BAD_INPUT, "", "--init-from: none: there is no such run");
  expect("train --init-from run --data text.txt --out e --tokenizer bytes --threads 1", HARK_EXIT_USAGE, "",
         "its vocabulary is of kind characters");
  command_text_make(folder, "new.txt", "the quick yellow fox ");
  expect("train --init-from run --data new.txt --out f --steps 1 --threads 1", HARK_EXIT_BAD_INPUT, "", "is not in the vocabulary");
  test_file_write_text(folder, "run/checkpoints/step-4/state.json", "{}");
  expect("train --init-from run/checkpoints/step-4 --data text.txt --out g --steps 1 --threads 1", HARK_EXIT_BAD_INPUT, "",
         "state.json: is damaged: it has 2 bytes");
}

/* ---- exchanged attention ---- */

static void attention_is_exchanged_at_eval(void **state) {
  (void)state;
  make_run();
  expect("eval run --json", HARK_EXIT_DONE, "\"exchanged\": {}", "");
  json_t *own = command_json(&output);
  expect("eval run --json --structure window --window 1", HARK_EXIT_DONE, "\"model.attention.window\": \"1\"", "");
  json_t *narrow = command_json(&output);
  expect("eval run --json --structure window --window 8", HARK_EXIT_DONE, "\"model.attention.structure\": \"window\"", "");
  json_t *wide = command_json(&output);
  assert_true(command_number(own, "loss") != command_number(narrow, "loss"));
  /* a window as wide as the context sees what dense attention sees */
  assert_true(command_number(own, "loss") - command_number(wide, "loss") < 1e-5 &&
              command_number(wide, "loss") - command_number(own, "loss") < 1e-5);
  json_decref(own);
  json_decref(narrow);
  json_decref(wide);
  expect("eval run --kernel rbf --sigma 2", HARK_EXIT_DONE, "exchanged: \"model.attention.kernel\": \"rbf\"", "");
  expect("eval run --forget-gate", HARK_EXIT_USAGE, "", "model.attention.forget_gate decides which weights the model has");
  expect("eval run --no-forget-gate", HARK_EXIT_DONE, "", ""); /* what it is anyway */
  expect("eval run --layers 3", HARK_EXIT_USAGE, "", "does not apply to eval");
}

/* ---- the optimiser ---- */

#define FACTORED "--optimiser adafactor --train.adafactor.factor-from 8 "

/* A run keeps its optimiser and its moments; another run may begin with its weights. */
static void the_optimiser_of_a_run_stays(void **state) {
  static const char *const refused[][2] = {
      {"--optimiser adamw", "train.optimiser cannot change when a run is resumed: \"adamw\" given, the run has \"adafactor\""},
      {"--train.adafactor.factor-from 16", "train.adafactor.factor_from cannot change when a run is resumed"},
      {"--train.adafactor.beta1 0.9", "train.adafactor.beta1 cannot change when a run is resumed"},
      {"--beta2 0.9", "--beta2: has no effect here, it needs --optimiser adamw (currently adafactor)"},
      {"--shard-optimiser", "--shard-optimiser: has no effect here"}};
  (void)state;
  expect("train --data text.txt --out run --steps 2 " FACTORED TINY, HARK_EXIT_DONE, "step 2 of 2", "moments");
  expect("verify run", HARK_EXIT_DONE, "good  checkpoints/step-2", "");
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char words[256];
    (void)snprintf(words, sizeof words, "train --resume run --steps 4 %s", refused[i][0]);
    expect(words, HARK_EXIT_USAGE, "", refused[i][1]);
  }
  expect("train --resume run --steps 4 --train.adafactor.update-clip 2", HARK_EXIT_DONE, "step 4 of 4", "");
  expect("verify run", HARK_EXIT_DONE, "good  checkpoints/step-4", "");
  expect("train --init-from run --data text.txt --out next --steps 1 --batch 2 --threads 1", HARK_EXIT_DONE, "step 1 of 1", "");
  expect("train --resume next --steps 2 --optimiser adafactor", HARK_EXIT_USAGE, "", "train.optimiser cannot change");
  expect("train --data text.txt --out averaged --steps 1 --train.adafactor.beta1 0.5 " FACTORED TINY, HARK_EXIT_DONE, "step 1 of 1", "");
  expect("train --resume averaged --steps 2 --train.adafactor.beta1 0.7", HARK_EXIT_DONE, "step 2 of 2", "");
  expect("train --resume averaged --steps 3 --train.adafactor.beta1 0", HARK_EXIT_USAGE, "", "train.adafactor.beta1 cannot change");
  expect("train --data text.txt --out none --steps 1 --train.adafactor.beta1 -0 " FACTORED TINY, HARK_EXIT_DONE, "step 1 of 1", "");
  expect("train --resume none --steps 2 --train.adafactor.beta1 .9", HARK_EXIT_USAGE, "", "train.adafactor.beta1 cannot change");
  expect("train --resume none --steps 2 --train.adafactor.beta1 0", HARK_EXIT_DONE, "step 2 of 2", "");
  expect("verify averaged", HARK_EXIT_DONE, "good  checkpoints/step-2", "");
}

/* Writes the moments of a checkpoint anew without those that begin with the prefix, and a manifest that fits. */
static void leave_out_moments(const char *checkpoint, const char *prefix) {
  enum { MOST = 64 };
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  static const hark_metadata_entry metadata[] = {{"format", "hark"}, {"format_version", "1"}, {"optimiser", "adafactor"}};
  hark_context *const context = test_reference_open();
  hark_safetensors *file = NULL;
  hark_tensor tensors[MOST] = {{0}};
  hark_named_tensor named[MOST];
  char path[TEST_PATH_BYTES + 64];
  int64_t count = 0;
  (void)snprintf(path, sizeof path, "%s/%s/optimizer.safetensors", folder, checkpoint);
  assert_fine(context, hark_safetensors_open(context, path, &file));
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const char *const name = hark_safetensors_tensor(file, i)->name;
    if (strncmp(name, prefix, strlen(prefix)) == 0) continue;
    assert_true(count < MOST);
    named[count] = (hark_named_tensor){.name = name, .tensor = &tensors[count]};
    assert_fine(context, hark_safetensors_load(context, file, name, &tensors[count++]));
  }
  assert_true(count < hark_safetensors_count(file));
  assert_fine(context, hark_safetensors_write(context, path, named, count, metadata, 3, NULL));
  hark_safetensors_close(context, &file);
  for (int64_t i = 0; i < count; i++) hark_tensor_destroy(context, &tensors[i]);
  test_manifest_write(context, folder, checkpoint, 3, names);
  test_setup_close(context);
}

/* verify knows which moments there must be. */
static void missing_parts_of_moments_are_found(void **state) {
  static const char *const removed[][2] = {{"row_moment.", "row_moment.blocks.0.attention.key.weight is missing"},
                                           {"column_moment.", "column_moment.blocks.0.attention.key.weight is missing"},
                                           {"second_moment.", "second_moment.blocks.0.attention_norm.weight is missing"}};
  (void)state;
  for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
    expect("train --data text.txt --out run --steps 1 " FACTORED TINY, HARK_EXIT_DONE, "step 1 of 1", "");
    leave_out_moments("run/checkpoints/step-1", removed[i][0]);
    expect("verify run", HARK_EXIT_BAD_INPUT, removed[i][1], "1 problem");
    assert_int_equal(command_place_shell(folder, "rm -r run"), 0);
  }
}

/* verify compares the moments with the configuration, as resume does. */
static void moments_of_another_configuration_are_found(void **state) {
  static const char *const edits[][2] = {
      {"s/factor_from: 8/factor_from: 256/", "second_moment.blocks.0.attention.key.weight is missing"},
      {"s/optimiser: adafactor/optimiser: adamw/", "has the moments of adafactor, expected those of adamw"},
      {"s/^    beta1: 0$/    beta1: 0.9/", "first_moment."}};
  (void)state;
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    char words[256];
    expect("train --data text.txt --out run --steps 1 " FACTORED TINY, HARK_EXIT_DONE, "step 1 of 1", "");
    (void)snprintf(words, sizeof words, "sed '%s' run/config.yaml > edited && ! cmp -s edited run/config.yaml && mv edited run/config.yaml",
                   edits[i][0]);
    assert_int_equal(command_place_shell(folder, words), 0);
    expect("verify run", HARK_EXIT_BAD_INPUT, edits[i][1], "1 problem");
    assert_int_equal(command_place_shell(folder, "rm -r run"), 0);
  }
}

/* ---- estimates ---- */

static void what_a_run_needs_is_reported_and_refused(void **state) {
  (void)state;
  expect("train --data text.txt --estimate --json --out none/run --keep 3 --width 64", HARK_EXIT_DONE, "", "");
  json_t *const object = command_json(&output);
  const double parts = command_number(object, "memory_weights_bytes") + command_number(object, "memory_gradients_bytes") +
                       command_number(object, "memory_moments_bytes") + command_number(object, "memory_step_bytes") +
                       command_number(object, "memory_program_bytes");
  assert_true(command_number(object, "memory_bytes") >= parts);
  assert_true(command_number(object, "memory_moments_bytes") == 2 * command_number(object, "memory_weights_bytes"));
  assert_int_equal(command_number(object, "checkpoints"), 5); /* three, the best, and the one being written */
  assert_true(command_number(object, "checkpoint_bytes") > 12 * command_number(object, "parameters"));
  assert_true(command_number(object, "disk_bytes") > 5 * command_number(object, "checkpoint_bytes"));
  json_decref(object);
  expect("train --data text.txt --estimate --json --out none/run --keep 3 --width 256 --optimiser adafactor", HARK_EXIT_DONE, "", "");
  json_t *const factored = command_json(&output);
  const double weights = command_number(factored, "memory_weights_bytes"), checkpoint = command_number(factored, "checkpoint_bytes");
  assert_true(command_number(factored, "memory_moments_bytes") < 0.1 * weights);
  assert_true(checkpoint > weights && checkpoint < 1.2 * weights);
  json_decref(factored);
  expect("train --data text.txt --estimate", HARK_EXIT_DONE, "parameters", "");
  char path[TEST_PATH_BYTES + 16];
  (void)snprintf(path, sizeof path, "%s/none", folder); /* nothing was made */
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);
  (void)snprintf(path, sizeof path, "%s/runs", folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);

  /* more than any machine has: refused before anything is allocated */
  expect("train --data text.txt --out huge --width 65536 --heads 512 --layers 1000 --steps 1 --threads 1", HARK_EXIT_MEMORY, "",
         "MiB left; a smaller batch");
  expect("train --data text.txt --estimate --width 65536 --heads 512 --layers 1000", HARK_EXIT_MEMORY, "parameters", "--no-preflight");
  expect("train --data text.txt --estimate --width 65536 --heads 512 --layers 1000 --no-preflight", HARK_EXIT_DONE, "parameters", "");
}

/* A real file system that is too small, where one can be mounted without privileges. */
static void a_disk_that_is_too_small_is_exit_4(void **state) {
  (void)state;
  static const char mount[] = "mkdir -p small && mount -t tmpfs -o size=4m tmpfs small";
  char command[TEST_PATH_BYTES * 4];
  (void)snprintf(command, sizeof command, "cd '%s' && unshare -rm sh -c '%s' >.out 2>.err", folder, mount);
  const bool can = system(command) == 0;
  char *err = test_file_text(folder, ".err");
  if (!can) print_message("no file system of our own can be mounted here: %s", err);
  free(err);
  if (!can) skip();
  (void)snprintf(command, sizeof command,
                 "cd '%s' && unshare -rm sh -c \"%s && '%s' train --data text.txt --out small/run --steps 4 "
                 "--layers 4 --width 128 --context 8 --batch 2 --threads 1\" >.out 2>.err",
                 folder, mount, HARK_COMMAND);
  const int status = system(command);
  err = test_file_text(folder, ".err");
  if (status != HARK_EXIT_DISK << 8 || strstr(err, "MiB more disk space") == NULL) fail_msg("status %d: %s", status, err);
  free(err);
}

/* ---- names made from the time ---- */

/* Names of the runs of the minutes to come are taken: a run without --out gets another one, and what is there stays as it is. */
static void runs_of_one_second_have_names_of_their_own(void **state) {
  (void)state;
  enum { SECONDS = 600 };
  const time_t now = time(NULL);
  char name[64], when[32];
  test_file_write_text(folder, "runs/other/note.txt", "");
  for (int i = 0; i < SECONDS; i++) {
    const time_t at = now + i;
    struct tm parts;
    assert_non_null(localtime_r(&at, &parts));
    assert_true(strftime(when, sizeof when, "%Y%m%d-%H%M%S", &parts) > 0);
    (void)snprintf(name, sizeof name, "runs/%s", when);
    assert_int_equal(mkdir(test_path(folder, name), 0700), 0);
  }
  for (int run = 2; run <= 3; run++) {
    expect("train --data text.txt --steps 1 --json " TINY, HARK_EXIT_DONE, "", "");
    json_t *const object = command_json(&output);
    const char *const path = json_string_value(json_object_get(object, "run"));
    const char *const end = path != NULL ? strrchr(path, '-') : NULL;
    if (end == NULL || end[1] < '2' || end[1] > '3' || end[2] != '\0') fail_msg("the run is %s", path);
    json_decref(object);
  }
  assert_int_equal(test_folder_count(folder, "runs"), 2 + 1 + SECONDS + 2);
  /* what does not begin takes its folder back, and an estimate makes none */
  expect("train --data text.txt --steps 1 --freeze nothing " TINY, HARK_EXIT_USAGE, "", "matches no weight");
  expect("train --data text.txt --steps 1 --estimate " TINY, HARK_EXIT_DONE, "", "");
  assert_int_equal(test_folder_count(folder, "runs"), 2 + 1 + SECONDS + 2);
}

/* Several at once: each has a run of its own. */
static void runs_begun_at_once_have_names_of_their_own(void **state) {
  (void)state;
  char command[TEST_PATH_BYTES * 3];
  (void)snprintf(command, sizeof command,
                 "cd '%s' && for i in 1 2 3 4 5 6; do ('%s' train --data text.txt --steps 1 " TINY
                 " >out.$i 2>err.$i || touch failed.$i) & done; wait",
                 folder, HARK_COMMAND);
  assert_int_equal(system(command), 0);
  for (int i = 1; i <= 6; i++) {
    char name[16];
    (void)snprintf(name, sizeof name, "failed.%d", i);
    if (hark_path_kind_of(test_path(folder, name)) == HARK_PATH_NONE) continue;
    (void)snprintf(name, sizeof name, "err.%d", i);
    fail_msg("%s", test_file_text(folder, name));
  }
  assert_int_equal(test_folder_count(folder, "runs"), 2 + 6);
}

/* The folder of the text may contain its runs, which are no text. */
static void a_run_in_the_folder_of_its_text_goes_on(void **state) {
  (void)state;
  assert_int_equal(command_place_shell(folder, "rm -rf texts && mkdir texts && cp text.txt texts"), 0);
  for (int run = 0; run < 2; run++) {
    char line[256];
    (void)snprintf(line, sizeof line, "train --data texts --out texts/runs/%d --steps 2 " COMMAND_TINY, run);
    expect(line, HARK_EXIT_DONE, "step 2 of 2", "");
    (void)snprintf(line, sizeof line, "train --resume texts/runs/%d --steps 3", run);
    expect(line, HARK_EXIT_DONE, "step 3 of 3", "");
    (void)snprintf(line, sizeof line, "eval texts/runs/%d", run);
    expect(line, HARK_EXIT_DONE, "", "");
  }
}

/* ---- errors ---- */

/* Five different mistakes in a file and on the command line: five lines, and nothing is begun. */
static void five_errors_are_five_lines(void **state) {
  (void)state;
  test_file_write_text(folder, "bad.yaml",
                       "model:\n  width: 30\n  heads: 4\n  activation: gelo\ntrain:\n  lr: 3\n  minimum_rate: 1\n  learning_rate: 0.5\n");
  static const char *const parts[] = {"model.width 30 is not divisible by model.heads 4", "bad.yaml:4: model.activation: \"gelo\" given",
                                      "bad.yaml:6: train.lr: unknown key", "minimum_rate 1 is above learning_rate 0.5",
                                      "--context: \"0\" given"};
  expect("train --config bad.yaml --data text.txt --out run --context 0", HARK_EXIT_USAGE, "", "");
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (strstr(output.err, parts[i]) == NULL) fail_msg("\"%s\" is not among\n%s", parts[i], output.err);
  assert_int_equal(test_line_count(output.err), 5);
  /* the same when a run that is not there is to go on, or to begin from */
  expect("train --resume --config bad.yaml --context 0", HARK_EXIT_USAGE, "", "--resume needs --out FOLDER");
  assert_int_equal(test_line_count(output.err), 6);
  expect("train --init-from none --config bad.yaml --context 0", HARK_EXIT_USAGE, "", "no text to train on");
  assert_int_equal(test_line_count(output.err), 7);
  expect("train --data text.txt --batch 1048576 --accumulate 1048576 --context 16777216", HARK_EXIT_USAGE, "", "expected at most 2^48");
  expect("train --data text.txt --steps 9223372036854775807", HARK_EXIT_USAGE, "", "more tokens than can be counted");
  expect("train --data text.txt --tokens 9223372036854775807", HARK_EXIT_USAGE, "", "expected at most 2^62");
  expect("train --data text.txt --out long --epochs 1e300 --threads 1 " TINY, HARK_EXIT_USAGE, "", "longer than tokens can be counted");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(verify_finds_what_is_damaged),
      TEST(verify_names_the_file_that_is_damaged),
      TEST(planned_steps_are_exact),
      TEST(a_renamed_checkpoint_is_damaged),
      TEST(verify_finds_runs_beside_a_model),
      TEST(verify_finds_numbers_that_are_not_finite),
      TEST(verify_checks_files_of_models),
      TEST(verify_finds_the_runs_of_a_folder),
      TEST(paths_that_are_not_utf8_keep_their_bytes),
      TEST(a_run_begins_with_trained_weights),
      TEST(what_does_not_fit_is_listed_and_refused),
      TEST(kernels_go_with_their_expression),
      TEST(weights_go_with_their_vocabulary),
      TEST(attention_is_exchanged_at_eval),
      TEST(the_optimiser_of_a_run_stays),
      TEST(missing_parts_of_moments_are_found),
      TEST(moments_of_another_configuration_are_found),
      TEST(what_a_run_needs_is_reported_and_refused),
      TEST(a_disk_that_is_too_small_is_exit_4),
      TEST(a_run_in_the_folder_of_its_text_goes_on),
      TEST(five_errors_are_five_lines),
      TEST(runs_of_one_second_have_names_of_their_own),
      TEST(runs_begun_at_once_have_names_of_their_own),
  };
  return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}
