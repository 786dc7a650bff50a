/* test_command.c - the command around its subcommands: help, wrong words, every exit code, what goes where; config, info, plot, version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/commands.h"
#include "io/safetensors.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;
static const char *out, *err; /* of `output` */

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

/* Runs "ENVIRONMENT hark WORDS" by the shell in the test's folder; fills `output`. Returns the exit code. */
static int hark_in(const char *environment, const char *words) {
  test_command_run(folder, environment, words, &output);
  out = output.out;
  err = output.err;
  return output.code;
}

static int hark(const char *words) { return hark_in("", words); }

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
  out = output.out;
  err = output.err;
}

/* Fails with one line on stderr and nothing on stdout. */
static void expect_error(const char *words, int code, const char *message) {
  expect(words, code, "", message);
  if (out[0] != 0 || test_line_count(err) != 1) fail_msg("hark %s\nstdout: %s\nstderr: %s", words, out, err);
}

static void help_goes_to_stdout(void **state) {
  (void)state;
  expect("--help", HARK_EXIT_DONE, "usage: hark SUBCOMMAND", "");
  for (int i = 0; hark_commands[i] != NULL; i++) {
    const char *const name = hark_commands[i]->name;
    char words[64], usage[64];
    snprintf(usage, sizeof usage, "\n  %s ", name);
    expect("-h", HARK_EXIT_DONE, usage, "");
    snprintf(words, sizeof words, "%s --help", name);
    snprintf(usage, sizeof usage, "usage: hark %s [options]", name);
    expect(words, HARK_EXIT_DONE, usage, "");
    assert_string_equal(err, "");
    char *const first = strdup(out);
    snprintf(words, sizeof words, "help %s", name);
    expect(words, HARK_EXIT_DONE, first, "");
    free(first);
  }
  expect("train -h --steps x", HARK_EXIT_DONE, "--learning-rate, --lr X", ""); /* asking for help is answered whatever else is wrong */
}

static void wrong_words_get_the_nearest_right_one(void **state) {
  (void)state;
  expect_error("trian", HARK_EXIT_USAGE, "hark: unknown subcommand \"trian\"; did you mean train?");
  expect_error("zzz", HARK_EXIT_USAGE, "hark --help lists them");
  expect_error("config --layesr 4", HARK_EXIT_USAGE, "hark config: --layesr: unknown flag; did you mean --layers?");
  expect_error("config --model.layer 4", HARK_EXIT_USAGE, "did you mean --layers?");
  expect_error("config --activation gel", HARK_EXIT_USAGE, "expected one of gelu, gelu_tanh, relu");
  expect("", HARK_EXIT_USAGE, "", "usage: hark SUBCOMMAND");
  expect_error("version more", HARK_EXIT_USAGE, "unexpected argument");
  expect_error("info", HARK_EXIT_USAGE, "RUN|FILE|FOLDER...: missing");
}

static void all_problems_of_a_configuration_are_reported(void **state) {
  (void)state;
  test_file_write_text(folder, "bad.yaml", "model:\n  layer: 4\n  heads: five\ntrain:\n  lr: 3\n  batch: 0\n");
  expect("config --config bad.yaml --width 0 --seed=-1", HARK_EXIT_USAGE, "",
         "bad.yaml:2: model.layer: unknown key; did you mean model.layers?");
  static const char *const parts[] = {"--width: \"0\" given", "--seed: \"-1\" given", "bad.yaml:3: model.heads: \"five\" given",
                                      "bad.yaml:5: train.lr: unknown key", "bad.yaml:6: train.batch: \"0\" given"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (strstr(err, parts[i]) == NULL) fail_msg("\"%s\" is not among\n%s", parts[i], err);
  }
  assert_int_equal(test_line_count(err), 6);
  expect("config --width 30 --heads 4 --key-heads 3 --steps 3 --tokens 5", HARK_EXIT_USAGE, "",
         "model.width 30 is not divisible by model.heads 4");
  assert_int_equal(test_line_count(err), 3);
}

static void config_reads_what_it_prints(void **state) {
  (void)state;
  expect("config --layers 7 --data a --data 'b c' --max-time 2h --no-comments", HARK_EXIT_DONE, "  layers: 7\n", "");
  test_file_write_text(folder, "c.yaml", out);
  char *const first = strdup(out);
  expect("config -c c.yaml --no-comments", HARK_EXIT_DONE, first, "");
  free(first);
  expect("config -c c.yaml --layers 8", HARK_EXIT_DONE, "  layers: 8\n", "");
  expect("config -c c.yaml --json", HARK_EXIT_DONE, "", "");
  json_t *const object = command_json(&output);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(object, "model"), "layers")), 7);
  json_decref(object);
}

static void version_tells_the_build(void **state) {
  (void)state;
  static const char *const keys[] = {"version", "backends",      "backend",         "instruction_sets", "instruction_set",
                                     "onednn",  "sentencepiece", "compressed_data", "threads",          "compiler"};
  expect("--version", HARK_EXIT_DONE, "hark ", "");
  expect("version --json", HARK_EXIT_DONE, "", "");
  json_t *const object = command_json(&output);
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    if (json_object_get(object, keys[i]) == NULL) fail_msg("no %s in %s", keys[i], out);
  }
  json_decref(object);
  assert_int_equal(hark_in("HARK_ARCH=abacus", "version"), HARK_EXIT_NO_BACKEND);
  assert_int_equal(test_line_count(err), 1);
  assert_non_null(strstr(err, "abacus"));
}

/* Makes the folder of a run by hand: two checkpoints' worth of metrics, one checkpoint. */
static void make_run(void) {
  hark_context *context = test_reference_open();
  hark_tensor tensor;
  const int64_t shape[] = {3, 5};
  test_file_write_text(folder, "run/config.yaml", "model: {layers: 9}\n");
  test_file_write_text(
      folder, "run/metrics.jsonl",
      "{\"step\": 1, \"tokens\": 10, \"train/loss\": 4.5, \"time\": 1}\n{\"step\": 2, \"train/loss\": null}\n{\"step\": 2, \"val/loss\": "
      "3.25}\n"
      "{\"step\": 3, \"tokens\": 30, \"train/loss\": 4, \"time\": 3}\n{\"step\": 3, \"val/loss\": 3.5}\n{\"step\": 4, \"tra");
  test_file_write_text(folder, "run/last", "step-3\n");
  test_file_write_text(folder, "run/checkpoints/step-3/state.json", "{}");
  assert_fine(context, hark_tensor_create(context, HARK_F32, 2, shape, &tensor));
  const hark_named_tensor named = {.name = "a \x1b[2J", .tensor = &tensor};
  const hark_metadata_entry metadata = {"format", "hark"};
  assert_fine(context, hark_safetensors_write(context, test_path(folder, "run/checkpoints/step-3/model.safetensors"), &named, 1, &metadata,
                                              1, NULL));
  hark_tensor_destroy(context, &tensor);
  test_setup_close(context);
}

static void info_tells_of_runs_checkpoints_and_files(void **state) {
  (void)state;
  make_run();
  expect("info run --json", HARK_EXIT_DONE, "", "");
  json_t *object = command_json(&output);
  assert_true(json_number_value(json_object_get(object, "step")) == 3);
  assert_true(json_number_value(json_object_get(object, "train/loss")) == 4);
  assert_true(json_number_value(json_object_get(object, "val/loss")) == 3.5);
  assert_true(json_number_value(json_object_get(object, "best_val/loss")) == 3.25);
  assert_true(json_number_value(json_object_get(object, "best_step")) == 2);
  assert_true(json_number_value(json_object_get(object, "parameters")) == 15);
  assert_string_equal(json_string_value(json_object_get(object, "last")), "step-3");
  const json_t *const model = json_object_get(json_object_get(object, "configuration"), "model");
  assert_int_equal(json_integer_value(json_object_get(model, "layers")), 9);
  json_decref(object);
  expect("info run", HARK_EXIT_DONE, "best validation loss   3.25", "");
  expect("info run/checkpoints/step-3", HARK_EXIT_DONE, "[3, 5]", "");
  assert_null(strchr(out, '\x1b')); /* a name cannot command the terminal */
  expect("info run/checkpoints/step-3/model.safetensors --json", HARK_EXIT_DONE, "", "");
  object = command_json(&output);
  assert_int_equal(json_integer_value(json_object_get(object, "numbers")), 15);
  json_decref(object);
}

static void bad_input_is_exit_3(void **state) {
  (void)state;
  make_run();
  test_file_write_text(folder, "bad.safetensors", "12345678");
  expect_error("info bad.safetensors", HARK_EXIT_BAD_INPUT, "hark info: bad.safetensors: ");
  expect_error("info none", HARK_EXIT_BAD_INPUT, "none: cannot be opened");
  expect_error("info .", HARK_EXIT_BAD_INPUT, "neither a run");
  test_file_write_text(folder, "run/last", "../../etc/passwd\n");
  expect_error("info run", HARK_EXIT_BAD_INPUT, "run/last: expected the name of a checkpoint");
  test_file_write_text(folder, "run/last", "step-3\n");
  test_file_write_text(folder, "run/config.yaml", "model: {layers: 0}\n");
  expect_error("info run", HARK_EXIT_BAD_INPUT, "run/config.yaml:1: model.layers: \"0\" given");
  expect_error("config --config none.yaml", HARK_EXIT_BAD_INPUT, "none.yaml: cannot be opened");
  expect_error("plot none", HARK_EXIT_BAD_INPUT, "none: cannot be opened");
  test_file_write_text(folder, "m.jsonl", "{\"step\": 1}\n");
  expect_error("plot m.jsonl", HARK_EXIT_BAD_INPUT, "m.jsonl: no points of train/loss");
}

static void a_full_disk_is_exit_4(void **state) {
  (void)state;
  char command[1024];
  snprintf(command, sizeof command, "'%s' version >/dev/full 2>'%s'", HARK_COMMAND, test_path(folder, ".err"));
  const int status = system(command);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), HARK_EXIT_DISK);
  make_run();
  expect_error("plot run --output none/x.svg", HARK_EXIT_DISK, "none/x.svg");
}

static void plots_are_drawn(void **state) {
  (void)state;
  make_run();
  expect("plot run run --terminal", HARK_EXIT_DONE, "run val/loss", "");
  expect("plot run --terminal", HARK_EXIT_DONE, "4.5 |a", "");
  if (hark("plot run") != 0) {
    assert_non_null(strstr(err, "gnuplot is not installed"));
    assert_string_equal(out, "");
  } else {
    assert_string_equal(out, "run/loss.svg\n");
    char *const picture = test_file_text(folder, "run/loss.svg");
    assert_non_null(strstr(picture, "<svg"));
    free(picture);
  }
  /* without gnuplot: its input is left, the message says so, and there is no picture */
  assert_int_equal(hark_in("PATH=/none", "plot run/metrics.jsonl run -o \"p'q.svg\" --metric train/loss --over tokens"), HARK_EXIT_FAILED);
  assert_non_null(strstr(err, "wrote p'q.svg.dat and p'q.svg.gp"));
  char *const data = test_file_text(folder, "p'q.svg.dat"), *const script = test_file_text(folder, "p'q.svg.gp");
  assert_string_equal(data, "# run/metrics.jsonl train/loss\n10 4.5\n30 4\n\n\n# run train/loss\n10 4.5\n30 4\n");
  assert_non_null(strstr(script, "set output 'p''q.svg'"));
  assert_non_null(strstr(script, "set terminal svg"));
  free(data);
  free(script);
  /* a name says what kind of picture it is */
  assert_int_equal(hark_in("PATH=/none", "plot run -o kind.png"), HARK_EXIT_FAILED);
  char *const named = test_file_text(folder, "kind.png.gp");
  assert_non_null(strstr(named, "set terminal png"));
  free(named);
  expect_error("plot run -o kind.svg --png", HARK_EXIT_USAGE, "--png: the name kind.svg requires an SVG");
}

static void a_folder_in_use_is_exit_7(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  int lock;
  make_run();
  assert_fine(context, hark_folder_lock(context, test_path(folder, "run"), &lock));
  expect_error("train --resume --out run --data text.txt", HARK_EXIT_BUSY, "run: in use by process");
  hark_folder_unlock(&lock);
  test_setup_close(context);
}

/* A model of bytes that only knows one text with zero bytes in it, and so repeats it; the stop text comes after the first of them. */
static void a_stop_text_is_found_behind_zero_bytes(void **state) {
  (void)state;
  static char text[4000];
  for (size_t i = 0; i < sizeof text; i++) text[i] = "ab\0cd\0ef"[i % 8];
  test_file_write(folder, "zero.bin", text, sizeof text);
  expect("train --data zero.bin --tokenizer bytes --out zero --steps 60 --lr 3e-2 --warmup 0 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("generate zero --prompt ab --temperature 0 --max-new-tokens 40 --stop ef --json", HARK_EXIT_DONE, "\"tokens\": 6,", "");
}

static void a_run_goes_from_text_to_text(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 4 " COMMAND_TINY, HARK_EXIT_DONE, "run: step 4 of 4 (done)", "validation loss");
  assert_null(strpbrk(err, "\x1b\r")); /* nothing is animated: stderr is no terminal */
  expect("info run --json", HARK_EXIT_DONE, "\"step\": 4", "");
  json_decref(command_json(&output));
  expect("eval run --json", HARK_EXIT_DONE, "\"loss\": ", "");
  json_decref(command_json(&output));
  expect("generate run --prompt the --max-new-tokens 8 --json", HARK_EXIT_DONE, "\"prompt\": \"the\"", "");
  json_decref(command_json(&output));
  expect("train --resume --out run --steps 6 --json", HARK_EXIT_DONE, "\"step\": 6", "continuing from step-4");
  json_decref(command_json(&output));
  /* what the weights depend on stays; the rest may change, and the run's configuration follows */
  expect("train --resume --out run --heads 4 --key-heads 4 --steps 8", HARK_EXIT_USAGE, "", "model.heads cannot change");
  expect("train --resume --out run --heads 2 --steps 7 --dropout 0.1", HARK_EXIT_DONE, "step 7 of 7", "");
  expect("train --resume --out run", HARK_EXIT_DONE, "step 7 of 7", "");
  expect("generate run -n 1e12", HARK_EXIT_USAGE, "", "-n: \"1e12\" given, expected a whole number in [0, 1e9]");
  expect("train --data text.txt --out other --seed x --width 15 --heads 2", HARK_EXIT_USAGE, "", "--seed: \"x\" given");
  assert_non_null(strstr(err, "--width: model.width 15 is not divisible by model.heads 2"));
  assert_int_equal(test_line_count(err), 2);
}

/* Takes description and vocabulary out of a checkpoint, as those of before there were any; the manifest says what it said. */
static void take_description_out(const char *path) {
  hark_context *context = test_reference_open();
  hark_safetensors *file;
  static hark_named_tensor named[64];
  static hark_tensor tensors[64];
  assert_fine(context, hark_safetensors_open(context, path, &file));
  const int64_t count = hark_safetensors_count(file);
  assert_in_range(count, 1, 64);
  for (int64_t i = 0; i < count; i++) {
    named[i] = (hark_named_tensor){.name = hark_safetensors_tensor(file, i)->name, .tensor = &tensors[i]};
    assert_fine(context, hark_safetensors_load(context, file, named[i].name, &tensors[i]));
  }
  assert_fine(context, hark_safetensors_write(context, path, named, count, NULL, 0, NULL));
  for (int64_t i = 0; i < count; i++) hark_tensor_destroy(context, &tensors[i]);
  hark_safetensors_close(context, &file);
  test_setup_close(context);
}

/* A manifest of the weights alone. */
static void write_manifest(const char *checkpoint) {
  static const char *const name = "model.safetensors";
  hark_context *context = test_reference_open();
  test_manifest_write(context, folder, checkpoint, 1, &name);
  test_setup_close(context);
}

/* A run, one of its checkpoints, the file that export makes of it, and a checkpoint of before there were descriptions: the same text. */
static void a_run_becomes_one_file(void **state) {
  (void)state;
  static const char *const words[] = {"generate run -p the -n 30 --seed 7", "generate run/checkpoints/step-4 -p the -n 30 --seed 7",
                                      "generate m.safetensors -p the -n 30 --seed 7", "generate folder -p the -n 30 --seed 7",
                                      "generate run -p the -n 30 --seed 7"};
  expect("train --data text.txt --out run --steps 4 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("eval run --weights int8 --json", HARK_EXIT_DONE, "\"exchanged\": {\"weights\": \"int8\"}", "");
  expect("eval run --weights bf16", HARK_EXIT_DONE, "exchanged: \"weights\": \"bf16\"", "");
  expect("export run --output m.safetensors --json", HARK_EXIT_DONE, "\"checkpoint\": \"step-4\"", "");
  json_decref(command_json(&output));
  size_t bytes;
  unsigned char *file = test_file_read(test_path(folder, "m.safetensors"), &bytes);
  test_file_write(folder, "folder/model.safetensors", file, bytes);
  free(file);
  char *text = NULL;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (i == 4) {
      take_description_out(test_path(folder, "run/checkpoints/step-4/model.safetensors"));
      expect_error(words[i], HARK_EXIT_BAD_INPUT, "model.safetensors: is damaged");
      assert_int_equal(remove(test_path(folder, "run/checkpoints/step-4/manifest.json")), 0);
      expect_error(words[i], HARK_EXIT_BAD_INPUT, "manifest.json");
      write_manifest("run/checkpoints/step-4");
    }
    expect(words[i], HARK_EXIT_DONE, "the", "");
    if (text == NULL) text = strdup(out);
    assert_string_equal(out, text);
  }
  free(text);
  expect_error("generate run/checkpoints/step-4/model.safetensors", HARK_EXIT_BAD_INPUT, "does not describe its model");
  expect("export run --output again.safetensors", HARK_EXIT_DONE, "again.safetensors: ", "");
  expect("generate again.safetensors --prompt the -n 5", HARK_EXIT_DONE, "the", "");
  expect("export run --output half.safetensors --type bf16", HARK_EXIT_DONE, "half.safetensors: ", "");
  size_t of_halves;
  free(test_file_read(test_path(folder, "half.safetensors"), &of_halves));
  assert_true(of_halves < bytes);
  expect("generate half.safetensors --prompt the -n 5", HARK_EXIT_DONE, "the", "");
  expect("export run --output small.safetensors --type int8", HARK_EXIT_DONE, "small.safetensors: ", "");
  size_t of_integers;
  free(test_file_read(test_path(folder, "small.safetensors"), &of_integers));
  assert_true(of_integers < of_halves);
  expect("info small.safetensors", HARK_EXIT_DONE, "  I8 ", "");
  static const char *const same[] = {"small.safetensors", "run --weights int8", "small.safetensors --weights int8"};
  for (int i = 0; i < 3; i++) { /* chosen at load or by the file */
    char line[128];
    snprintf(line, sizeof line, "generate %s --prompt the -n 20 --temperature 0", same[i]);
    expect(line, HARK_EXIT_DONE, "the", "");
    if (i == 0) text = strdup(out);
    assert_string_equal(out, text);
  }
  free(text);
  expect("generate small.safetensors --prompt the -n 5 --weights f32", HARK_EXIT_DONE, "the", "");
  expect_error("generate run --weights i8", HARK_EXIT_USAGE, "expected one of file, f32, bf16, f16, int8");
  expect_error("export run --output half.safetensors --type f8", HARK_EXIT_USAGE, "expected one of f32, bf16, f16, int8");
  expect_error("generate m.safetensors --prompt X", HARK_EXIT_BAD_INPUT, "--prompt: text:1:1: U+0058 is not in the vocabulary");
  expect_error("generate text.txt", HARK_EXIT_BAD_INPUT, "text.txt: ");
  expect_error("generate none", HARK_EXIT_BAD_INPUT, "none");
  expect_error("export run --output none/x.safetensors", HARK_EXIT_DISK, "none");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(help_goes_to_stdout),
      TEST(wrong_words_get_the_nearest_right_one),
      TEST(all_problems_of_a_configuration_are_reported),
      TEST(config_reads_what_it_prints),
      TEST(version_tells_the_build),
      TEST(info_tells_of_runs_checkpoints_and_files),
      TEST(bad_input_is_exit_3),
      TEST(a_full_disk_is_exit_4),
      TEST(plots_are_drawn),
      TEST(a_folder_in_use_is_exit_7),
      TEST(a_run_goes_from_text_to_text),
      TEST(a_run_becomes_one_file),
      TEST(a_stop_text_is_found_behind_zero_bytes),
  };
  return cmocka_run_group_tests_name("command", tests, NULL, NULL);
}
