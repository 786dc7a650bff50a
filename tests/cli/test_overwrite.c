/* test_overwrite.c - outputs that would destroy an input, or a file of a run, are refused before anything is computed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

static int shell(const char *line) { return command_place_shell(folder, line); }

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  expect("train --data text.txt --out run --steps 3 " COMMAND_TINY, 0, "", "");
  expect("train --data text.txt --out kernels --steps 3 --positions none --positional decay " COMMAND_TINY, 0, "", "");
  assert_int_equal(shell("mkdir texts && cp text.txt texts/a.txt && sed s/quick/swift/ text.txt >texts/b.txt"), 0);
  expect("train --data texts --out fed --steps 3 " COMMAND_TINY, 0, "", "");
  expect("train --data text.txt --out gpt --steps 2 --positions learned --bias --activation gelu_tanh " COMMAND_TINY, 0, "", "");
  expect("export gpt --format huggingface --output half", 0, "", "");
  expect("export gpt --format huggingface --output half --type bf16", 0, "", ""); /* an earlier export is replaced */
  expect("export gpt --format tokenizer.json --output half/tokenizer.json", 0, "", "");
  expect("data make pathfinder --size 32 --training 2 --validation 0 --test 0 --out made", 0, "", "");
  (void)test_file_write_text(folder, "t.txt", "to be or not to be");
  (void)test_file_write_text(folder, "ev.json", "{\"run\": \"run\", \"loss\": 1}\n");
  (void)test_file_write_text(folder, "in.safetensors", "not read before the output is refused");
  (void)test_file_write_text(folder, "text.md", "to be or not to be");
  (void)test_file_write_text(folder, "o.yaml", "data:\n  unit: line\n");
  return shell(
      "ln t.txt hard && ln -s t.txt soft && ln -s run/metrics.jsonl far && cp run/checkpoints/step-3/model.safetensors . && ln -s half "
      "linked &&"
      "echo x >run/events.out.tfevents.1");
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

#define SUMS "find . -type f | LC_ALL=C sort | grep -v '^[.]/[.]' | xargs cksum"

static void expect_refused(const char *words, const char *first, const char *second) {
  assert_int_equal(shell(SUMS " >.sums"), 0);
  expect(words, HARK_EXIT_USAGE, "", first);
  if (strstr(output.err, second) == NULL) fail_msg("hark %s: \"%s\" is not named: %s", words, second, output.err);
  if (shell(SUMS " | cmp - .sums") != 0) fail_msg("hark %s: files have changed", words);
}

static void inputs_stay(void **state) {
  (void)state;
  static const struct {
    const char *words, *output, *input;
  } cases[] = {
      {"report run --file t.txt -o t.txt", "--output t.txt: ", "the input --file t.txt"},
      {"report run --file t.txt -o ./run/../t.txt", "--output ./run/../t.txt: ", "the input --file t.txt"},
      {"report run --file t.txt -o hard", "--output hard: ", "the input --file t.txt"},
      {"report run --file t.txt -o soft", "--output soft: ", "the input --file t.txt"},
      {"report run --file soft -o hard", "--output hard: ", "the input --file soft"},
      {"report run --evaluation ev.json -o ev.json", "--output ev.json: ", "the input --evaluation ev.json"},
      {"inspect run --text t.txt --figure t.txt", "--figure t.txt: ", "the input --text t.txt"},
      {"inspect model.safetensors --text t.txt --figure model.safetensors", "--figure model.safetensors: ", "the input model.safetensors"},
      {"embed model.safetensors t.txt --format npy -o t.txt", "--output t.txt: ", "the input t.txt"},
      {"embed model.safetensors t.txt -o model.safetensors", "--output model.safetensors: ", "the input model.safetensors"},
      {"export model.safetensors --type int8", "--output model.safetensors: ", "the input model.safetensors"},
      {"attend --input in.safetensors --output in.safetensors", "--output in.safetensors: ", "the input --input in.safetensors"},
      {"plot t.txt -o t.txt", "--output t.txt: ", "the input t.txt"},
      {"plot --evaluation ev.json -o ev.json", "--output ev.json: ", "the input ev.json"},
      {"lab approximation --run run --text text.md --markdown text.md", "--markdown text.md: ", "the input --text text.md"},
      {"lab approximation --run run --text t.txt --figure t.txt", "--figure t.txt: ", "the input --text t.txt"},
      {"report run -o text.txt", "--output text.txt: ", "a file of the data of the run run"},
      {"plot run -o text.txt", "--output text.txt: ", "a file of the data of the run run"},
      {"plot run/metrics.jsonl -o text.txt", "--output text.txt: ", "a file of the data of the run run"},
      {"inspect run/checkpoints/step-3 --text t.txt --figure text.txt", "--figure text.txt: ", "a file of the data of the run run"},
      {"embed run t.txt -o text.txt", "--output text.txt: ", "a file of the data of the run run"},
      {"lab approximation --run run --text t.txt --figure text.txt", "--figure text.txt: ", "a file of the data of the run run"},
      {"report . -o text.txt", "--output text.txt: ", "a file of the data of the run "},
      {"export fed --output texts/b.txt", "--output texts/b.txt: ", "a file of the data of the run fed"},
      {"report fed -o texts/a.txt", "--output texts/a.txt: ", "a file of the data of the run fed"},
      {"export half --format huggingface --output half", "--output half/config.json: ", "the model that is read, half"},
      {"export half/model.safetensors --format huggingface --output half", "--output half/config.json: ", "the model that is read, half/"},
      {"export half --format huggingface --output linked", "--output linked/config.json: ", "the model that is read, half"},
      {"data picture made --out made/task.json", "--out made/task.json: ", "data that are read, made"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_refused(cases[i].words, cases[i].output, cases[i].input);
}

static void files_of_runs_stay(void **state) {
  (void)state;
  static const char *const names[] = {"config.yaml",
                                      "metrics.jsonl",
                                      "vocabulary.json",
                                      "data.json",
                                      "last",
                                      ".lock",
                                      "events.out.tfevents.1",
                                      "checkpoints/step-3/model.safetensors",
                                      "checkpoints/step-3/manifest.json"};
  static const char *const commands[] = {"report run -o",
                                         "plot run -o",
                                         "plot --positional kernels -o",
                                         "export run --output",
                                         "inspect run --text t.txt --figure",
                                         "embed model.safetensors t.txt -o",
                                         "report kernels -o" /* of another run */};
  char words[512], expected[256], named[256];
  for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
      (void)snprintf(words, sizeof words, "%s run/%s", commands[c], names[n]);
      (void)snprintf(expected, sizeof expected, "run/%s: is ", names[n]);
      (void)snprintf(named, sizeof named, "%.*s of the run ", (int)strcspn(names[n], "/"), names[n]);
      expect_refused(words, expected, named);
    }
  expect_refused("report run -o far", "--output far: is metrics.jsonl of the run", "/run");
  assert_int_equal(shell("cp -r run lost && rm lost/config.yaml"), 0); /* a damaged run is one */
  expect_refused("report run -o lost/metrics.jsonl", "lost/metrics.jsonl: is metrics.jsonl of the run", "/lost");
}

/* In a folder with files of somebody else, of names that runs have. */
static void a_run_replaces_no_file_of_others(void **state) {
  (void)state;
  static const char *const names[] = {"data.json", "vocabulary.json", "origin.json"};
  char line[256];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    (void)snprintf(line, sizeof line, "rm -rf own && mkdir own && cp text.txt own/%s", names[i]);
    assert_int_equal(shell(line), 0);
    expect_refused("train --data text.txt --out own --steps 1 " COMMAND_TINY, names[i],
                   "is no file of hark, and a run here would overwrite it");
  }
  static const char *const later[] = {"last", "best", "samples.jsonl", "metrics.csv"};
  for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
    (void)snprintf(line, sizeof line, "rm -rf own && mkdir own && cp text.txt own/%s", later[i]);
    assert_int_equal(shell(line), 0);
    expect_refused("train --data text.txt --out own --steps 1 " COMMAND_TINY, later[i], "is there without a run");
    (void)snprintf(line, sizeof line, "cmp text.txt own/%s", later[i]);
    assert_int_equal(shell(line), 0);
  }
  assert_int_equal(shell("rm -rf own && mkdir own && echo '{\"step\": 1, \"mine\": 2}' >own/metrics.jsonl"), 0);
  expect_refused("train --data text.txt --out own --steps 1 " COMMAND_TINY, "metrics.jsonl: is no file of hark", "would overwrite it");
  assert_int_equal(shell("rm -rf own && cp -r run own && cd own && rm config.yaml last best metrics.jsonl"), 0);
  expect_refused("train --data text.txt --out own --steps 1 " COMMAND_TINY, "own/checkpoints", "has checkpoints of a run");
  assert_int_equal(shell("rm -rf own && mkdir own && cp text.txt own/.lock"), 0);
  expect_refused("train --data text.txt --out own --steps 1 " COMMAND_TINY, "own/.lock: is no file of hark", "would be overwritten");
  assert_int_equal(shell("cmp text.txt own/.lock && rm own/.lock && rmdir own"), 0); /* and nothing is added */
  assert_int_equal(shell("rm -rf own && mkdir own && mkfifo own/.lock"), 0);
  test_command_run(folder, "", "train --data text.txt --out own --steps 1 " COMMAND_TINY, &output);
  if (output.code != HARK_EXIT_DISK || strstr(output.err, "own/.lock: is not a regular file") == NULL) fail_msg("%s", output.err);
  static const char *const links[] = {"metrics.jsonl", "checkpoints", "cache"};
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
    (void)snprintf(line, sizeof line, "rm -rf own && mkdir own && ln -s /nowhere/x own/%s", links[i]);
    assert_int_equal(shell(line), 0);
    test_command_run(folder, "", "train --data text.txt --out own --steps 1 " COMMAND_TINY, &output);
    if (output.code != HARK_EXIT_DISK || strstr(output.err, "is a link that leads nowhere") == NULL) fail_msg("%s", output.err);
  }
  /* left by a killed process */
  assert_int_equal(shell("rm -rf own && mkdir own && cp run/data.json run/vocabulary.json own"), 0);
  assert_int_equal(shell("head -1 run/metrics.jsonl >own/metrics.jsonl"), 0);
  expect("train --data text.txt --out own --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
}

/* Names that nobody chose: a figure and reports of hark are replaced, and nothing else. */
static void usual_names_replace_own_files_only(void **state) {
  (void)state;
  for (int again = 0; again < 2; again++) expect("plot run", HARK_EXIT_DONE, "", "");
  assert_int_equal(shell("rm -rf own && cp -r run own && cp text.txt own/loss.svg && mkdir found && cp text.txt found/search.md"), 0);
  expect_refused("plot own", "own/loss.svg", "is no picture of hark, and would be overwritten");
  expect_refused("kernels search --data text.txt --out found --no-proof", "found/search.md", "is no report of hark kernels search");
  assert_int_equal(shell("cmp text.txt own/loss.svg && cmp text.txt found/search.md"), 0);
}

static void other_files_are_replaced(void **state) {
  (void)state;
  static const char *const words[] = {"report run -o run/report.html",
                                      "report run --file t.txt -o page.html",
                                      "export run --output out.safetensors",
                                      "embed model.safetensors t.txt -o made/numbers.jsonl",
                                      "data picture made --out made/training.svg --count 1",
                                      "report run -o last" /* in no run */};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    for (int again = 0; again < 2; again++) expect(words[i], HARK_EXIT_DONE, "", "");
  assert_int_equal(shell("mkdir -p plain && echo x >plain/config.yaml"), 0); /* one file makes no run */
  expect("report run -o plain/config.yaml", HARK_EXIT_DONE, "", "");
}

/* A variable of the shell that is not set would choose the usual file or checkpoint. */
static void empty_names_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *words, *option;
  } cases[] = {{"export run -o ''", "-o"},
               {"export run --output=", "--output"},
               {"plot run -o ''", "-o"},
               {"plot run --checkpoint ''", "--checkpoint"},
               {"report run -o ''", "-o"},
               {"report run --file ''", "--file"},
               {"train --data text.txt --out '' --steps 1", "--out"},
               {"train --data '' --out new --steps 1", "--data"},
               {"train --data text.txt --out new --init-from '' --steps 1", "--init-from"},
               {"inspect run --text t.txt --figure ''", "--figure"},
               {"eval run --checkpoint ''", "--checkpoint"},
               {"sweep plan.yaml --table --metric ''", "--metric"},
               {"sweep plan.yaml --table --baseline ''", "--baseline"},
               {"sweep plan.yaml --table --beside ''", "--beside"},
               {"sweep plan.yaml --table --at=", "--at"},
               {"report run --text ''", "--text"},
               {"train --data text.txt --out new --backend '' --steps 1", "--backend"},
               {"data info --format '' made", "--format"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_refused(cases[i].words, cases[i].option, "is empty, expected ");
  expect_refused("generate run --prompt the --stop ''", "--stop", "is empty, expected a text");
  expect("generate run --prompt '' --max-new-tokens 1 --threads 1", HARK_EXIT_DONE, "", "");
}

/* The path of a checkpoint has chosen it. */
static void a_checkpoint_has_no_other(void **state) {
  (void)state;
  static const char *const words[] = {"eval kernels/checkpoints/step-3",
                                      "generate kernels/checkpoints/step-3/ --prompt the",
                                      "export kernels/checkpoints/step-3 -o new.safetensors",
                                      "embed kernels/checkpoints/step-3 t.txt -o new.jsonl",
                                      "inspect kernels/checkpoints/step-3 --text t.txt",
                                      "kernels fit kernels/checkpoints/step-3",
                                      "kernels export kernels/checkpoints/step-3 --output new.py"};
  char line[256];
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    (void)snprintf(line, sizeof line, "%s --checkpoint last", words[i]);
    expect_refused(line, "--checkpoint: has no effect here, it needs a run", "is the checkpoint step-3 of one");
  }
  expect("eval kernels/checkpoints/step-3 --threads 1", HARK_EXIT_DONE, "nats per token", "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_stay),
      cmocka_unit_test(files_of_runs_stay),
      cmocka_unit_test(a_run_replaces_no_file_of_others),
      cmocka_unit_test(other_files_are_replaced),
      cmocka_unit_test(usual_names_replace_own_files_only),
      cmocka_unit_test(empty_names_are_refused),
      cmocka_unit_test(a_checkpoint_has_no_other),
  };
  return cmocka_run_group_tests_name("overwrite", tests, begin, end);
}
