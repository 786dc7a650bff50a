/* test_damaged.c - what hark runs, report, verify, eval, inspect and plot do with runs that are damaged, incomplete or may not be read, and
 * with files of options that cannot be used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
  (void)test_file_write_text(folder, "t.txt", "the quick brown");
  expect("train --data text.txt --out good --steps 6 --checkpoint-every 2 --keep 3 " COMMAND_TINY, 0, "", "");
  return chmod(folder, 0755);
}

static int end(void **state) {
  (void)state;
  (void)shell("chmod -R u+rwx .");
  command_place_close(folder, &output);
  return 0;
}

/* A new copy of the run, all/x, changed by a line of the shell in it. */
static void damage(const char *line) {
  char command[1024];
  (void)snprintf(command, sizeof command, "rm -rf all && mkdir all && cp -r good all/x && cd all/x && %s", line);
  if (shell(command) != 0) fail_msg("%s: failed", line);
}

static json_t *run_of(const char *words) {
  expect(words, HARK_EXIT_DONE, "\"state\"", "");
  return command_json(&output);
}

static void damage_is_reported_with_the_reason(void **state) {
  (void)state;
  static const struct {
    const char *line, *problem;
    bool verified;
  } cases[] = {
      {"head -3 metrics.jsonl >m && mv m metrics.jsonl", "metrics.jsonl: has ", true},
      {": >metrics.jsonl", "metrics.jsonl: has 0 bytes, step-6 was saved at ", true},
      {"rm metrics.jsonl", "metrics.jsonl: cannot be opened", true},
      {"yes garbage | head -c 80000 >metrics.jsonl", "metrics.jsonl: a line at its end is no JSON", true},
      {"sed -i '2s/{/[/' metrics.jsonl", "metrics.jsonl: a line at its end is no JSON", true},
      {"sed -i '2s/step/st\\x00p/' metrics.jsonl && ! cmp -s metrics.jsonl ../../good/metrics.jsonl",
       "metrics.jsonl: a line at its end is no JSON", true},
      {"rm vocabulary.json", "vocabulary.json: is missing, the vocabulary that the weights of step-6 were trained with", true},
      {"rm vocabulary.json && mkdir vocabulary.json", "vocabulary.json: is a folder, expected a regular file", true},
      {"sed -i 's/\"e\"/\"E\"/' vocabulary.json && ! cmp -s vocabulary.json ../../good/vocabulary.json",
       "vocabulary.json: is not the vocabulary that the weights of step-6", true},
      {"gzip metrics.jsonl && mv metrics.jsonl.gz metrics.jsonl", "metrics.jsonl: is compressed with gzip", true},
      {"rm metrics.jsonl && mkdir metrics.jsonl", "metrics.jsonl: is a folder", false},
      {": >config.yaml", "config.yaml: is empty", true},
      {"echo >config.yaml", "config.yaml: is empty", true},
      {"head -c 3000 config.yaml >c && mv c config.yaml", "config.yaml: its end is missing", true},
      {"head -30 config.yaml >c && mv c config.yaml", "config.yaml: its end is missing: it has no section run", true},
      {"printf '\\377\\376\\000' >config.yaml", "config.yaml: ", true},
      {"sed -i 's/  width: 16/  width: 99999999999/' config.yaml", "model.width: \"99999999999\" given", true},
      {"rm config.yaml && mkdir config.yaml", "config.yaml: is a folder, expected a regular file", false},
      {"echo step-99 >last", "last: names step-99, and there is no such checkpoint", true},
      {"sed -i 's/\"format_version\": *1/\"format_version\": 7/' checkpoints/step-6/manifest.json",
       "manifest.json: format_version is 7, expected 1", true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    damage(cases[i].line);
    json_t *const run = run_of("runs all --json");
    const char *const problem = json_string_value(json_object_get(run, "problem"));
    if (strcmp(json_string_value(json_object_get(run, "state")), "damaged") != 0 || problem == NULL ||
        strstr(problem, cases[i].problem) == NULL)
      fail_msg("%s: %s", cases[i].line, output.out);
    if (json_is_number(json_object_get(run, "train/loss"))) fail_msg("%s: has a last loss: %s", cases[i].line, output.out);
    json_decref(run);
    expect("report all/x -o page.html", HARK_EXIT_DONE, "1 damaged", cases[i].problem);
    if (cases[i].verified) expect("verify all/x", HARK_EXIT_BAD_INPUT, "BAD", "");
  }
}

/* Nothing waits for a pipe in the place of a file of a run. With checkpoints left that are not damaged, a subcommand may use one of them.
 */
static void pipes_in_a_run_do_not_block(void **state) {
  (void)state;
  static const char *const files[] = {"best",
                                      "last",
                                      "config.yaml",
                                      "data.json",
                                      "vocabulary.json",
                                      "metrics.jsonl",
                                      "checkpoints/step-6/manifest.json",
                                      "checkpoints/step-6/state.json",
                                      "checkpoints/step-6/model.safetensors"};
  static const char *const words[] = {"verify all/x",
                                      "runs all",
                                      "info all/x",
                                      "eval all/x --data t.txt",
                                      "generate all/x --max-new-tokens 1",
                                      "train --resume all/x --steps 7"};
  for (size_t f = 0; f < sizeof files / sizeof *files; f++)
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
      char line[256];
      (void)snprintf(line, sizeof line, "rm -f %s && mkfifo %s", files[f], files[f]);
      damage(line);
      test_command_run(folder, "", words[w], &output);
      if (output.code != HARK_EXIT_DONE && output.code != HARK_EXIT_BAD_INPUT)
        fail_msg("%s with a pipe as %s: exit code %d, %s", words[w], files[f], output.code, output.err);
    }
}

/* Before anything is computed: a save would fail. */
static void what_a_run_cannot_replace_is_refused(void **state) {
  (void)state;
  static const char *const files[] = {"last", "best", "metrics.jsonl", "metrics.csv", "samples.jsonl", "origin.json", "vocabulary.json"};
  char line[128], message[128];
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    (void)snprintf(line, sizeof line, "rm -f %s && mkdir %s", files[i], files[i]);
    (void)snprintf(message, sizeof message, "hark train: all/x/%s: is a folder, expected a regular file\n", files[i]);
    damage(line);
    expect("train --resume all/x --steps 8 --threads 1", HARK_EXIT_BAD_INPUT, "", message);
    assert_string_equal(output.err, message); /* nothing else */
  }
  damage("rm -r cache && touch cache");
  expect("train --resume all/x --steps 8 --threads 1", HARK_EXIT_BAD_INPUT, "", "all/x/cache: is a file, expected a folder");
  damage("mv checkpoints c && touch checkpoints");
  expect("train --resume all/x --steps 8 --threads 1", HARK_EXIT_BAD_INPUT, "", "all/x/checkpoints: is a file, expected a folder");
  static const char *const begun[] = {"config.yaml", "vocabulary.json", "data.json", "metrics.jsonl"};
  for (size_t i = 0; i < sizeof begun / sizeof *begun; i++) {
    (void)snprintf(line, sizeof line, "rm -rf new && mkdir -p new/%s", begun[i]);
    (void)snprintf(message, sizeof message, "hark train: new/%s: is a folder, expected a regular file\n", begun[i]);
    assert_int_equal(shell(line), 0);
    expect("train --data text.txt --out new --steps 2 " COMMAND_TINY, HARK_EXIT_DISK, "", message);
    assert_string_equal(output.err, message);
  }
}

/* Whatever has the name of a checkpoint that is saved or removed. */
static void names_of_checkpoints_are_replaced(void **state) {
  (void)state;
  static const char *const lines[] = {"touch checkpoints/step-8", "touch checkpoints/.partial",
                                      "mkdir checkpoints/step-8 && touch checkpoints/.replaced", "touch checkpoints/step-99",
                                      "mv checkpoints/step-2 s && ln -s ../s checkpoints/step-2"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    damage(lines[i]);
    expect("train --resume all/x --steps 8 --keep 1 --threads 1", HARK_EXIT_DONE, "step 8 of 8", "");
    expect("verify all/x", HARK_EXIT_DONE, "checkpoints/step-8", "");
  }
}

static void a_folder_in_place_of_the_vocabulary_is_named(void **state) {
  (void)state;
  static const char *const words[] = {"eval all/x",
                                      "generate all/x",
                                      "export all/x --output o.st",
                                      "tokenize all/x t.txt",
                                      "train --resume all/x --steps 8",
                                      "train --init-from all/x --data text.txt --out other --steps 1"};
  damage("rm vocabulary.json && mkdir vocabulary.json");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    expect(words[i], HARK_EXIT_BAD_INPUT, "", "all/x/vocabulary.json: is a folder, expected a");
  expect("verify all/x", HARK_EXIT_BAD_INPUT, "vocabulary.json: is a folder, expected a regular file", "");
}

/* A process may write the run, and replace its checkpoints, while it is verified. */
static void a_running_run_is_no_damaged_one(void **state) {
  (void)state;
  damage("mkdir checkpoints/.partial");
  expect("verify all/x", HARK_EXIT_DONE, "left by an interrupted save", "");
  assert_int_equal(shell("flock all/x/.lock '" HARK_COMMAND "' verify all/x | grep -q 'a process writes the run, and saves here'"), 0);
  damage(":");
  assert_int_equal(shell("'" HARK_COMMAND "' train --resume --out all/x --steps 100000 --checkpoint-every 1 --keep 2 >log 2>&1 & "
                         "echo $! >pid; until grep -q . log; do sleep 0.05; done"),
                   0);
  for (int i = 0; i < 20; i++) expect("verify all/x", HARK_EXIT_DONE, "good  config.yaml", "");
  assert_int_equal(shell("kill $(cat pid); while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done"), 0);
}

/* Without `last`, a resumed run continues from the newest checkpoint, and the others use it too. */
static void the_newest_checkpoint_is_the_last(void **state) {
  (void)state;
  damage("rm last best");
  json_t *run = run_of("runs all --json");
  assert_string_equal(json_string_value(json_object_get(run, "state")), "done");
  assert_true(command_number(run, "step") == 6);
  json_decref(run);
  expect("eval all/x --threads 1", HARK_EXIT_DONE, "step-6", "");
  expect("eval all/x --checkpoint last --threads 1", HARK_EXIT_DONE, "step-6", "");
  expect("inspect all/x --text t.txt", HARK_EXIT_DONE, "all/x: ", "");
  expect("report all/x -o page.html", HARK_EXIT_DONE, "1 run, ", "");
  assert_string_equal(output.err, "");
  damage("rm -r last best checkpoints/step-6");
  run = run_of("runs all --json");
  assert_string_equal(json_string_value(json_object_get(run, "state")), "stopped");
  assert_true(command_number(run, "step") == 4);
  json_decref(run);
  expect("eval all/x --threads 1", HARK_EXIT_DONE, "step-4", "");
  expect("train --resume --out all/x --threads 1", HARK_EXIT_DONE, "step 6 of 6", "continuing from step-4");
  damage("echo step-99 >best");
  expect("eval all/x --threads 1", HARK_EXIT_BAD_INPUT, "", "all/x/best: names step-99, and there is no such checkpoint");
  damage(": >config.yaml");
  expect("train --resume --out all/x --threads 1", HARK_EXIT_BAD_INPUT, "", "config.yaml: is empty");
}

/* The same weights with other options are another model, or none. What may change when a run continues may differ. */
static void options_of_another_model_are_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"s/heads: .*/heads: 1/", "model.heads is 1, and the weights of step-6 were trained with 2"},
                                         {"s/norm: layer_norm/norm: rms_norm/", "model.norm is \"rms_norm\", and the weights of step-6"},
                                         {"s/structure: dense/structure: window/", "model.attention.structure is \"window\""},
                                         {"s/positions: rotary/positions: none/", "model.positions is \"none\""},
                                         {"s/layers: 1/layers: 2/", "model.layers is 2, and the weights of step-6 were trained with 1"}};
  static const char *const commands[] = {"eval all/x --threads 1", "train --resume all/x --steps 8 --threads 1", "generate all/x",
                                         "export all/x --output o.st"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[128];
    (void)snprintf(line, sizeof line, "sed -i '%s' config.yaml && ! cmp -s config.yaml ../../good/config.yaml", cases[i][0]);
    damage(line);
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) expect(commands[c], HARK_EXIT_BAD_INPUT, "", cases[i][1]);
    expect("verify all/x", HARK_EXIT_BAD_INPUT, "BAD   checkpoints/step-6", "");
    expect("verify all/x/checkpoints/step-6", HARK_EXIT_BAD_INPUT, "BAD   checkpoints/step-6", "");
    expect("inspect all/x --text t.txt", HARK_EXIT_DONE, "", ""); /* the file of weights describes the model */
  }
  damage(
      "sed -i 's/  dropout: 0$/  dropout: 0.25/; s/recompute: false/recompute: true/' config.yaml && ! cmp -s config.yaml "
      "../../good/config.yaml");
  expect("verify all/x", HARK_EXIT_DONE, "", "");
  expect("train --resume all/x --steps 8 --threads 1", HARK_EXIT_DONE, "", "");
}

static void a_run_is_reported_once(void **state) {
  (void)state;
  damage(":");
  expect("report all/x all ./all/../all/x -o page.html", HARK_EXIT_DONE, "page.html: 1 run, ", "");
  damage(": >config.yaml");
  expect("report all/x all -o page.html", HARK_EXIT_DONE, "1 damaged", "config.yaml: is empty");
  assert_int_equal(test_line_count(output.err), 1); /* once, although several parts of the page need the file */
  expect("runs t.txt", HARK_EXIT_BAD_INPUT, "", "t.txt: is a file, expected a folder of runs");
  expect("report t.txt", HARK_EXIT_BAD_INPUT, "", "t.txt: is a file, expected a folder of runs");
}

static void mistakes_of_a_report_write_no_page(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"--file nosuch", "--file: nosuch: cannot be opened"},
      {"--file none.txt", "--file: none.txt: is empty"},
      {"--evaluation nosuch", "--evaluation: nosuch: cannot be opened"},
      {"--evaluation none.txt", "--evaluation: none.txt: has no lines"},
      {"--evaluation cut.json", "--evaluation: cut.json: does not end with a line end"},
      {"--evaluation t.txt", "--evaluation: t.txt:"},
      {"--checkpoint nonsense", "--checkpoint nonsense: "},
      {"--checkpoint step-7", "--checkpoint step-7: no run has it"},
  };
  (void)test_file_write_text(folder, "none.txt", "");
  (void)test_file_write_text(folder, "cut.json", "{\"run\": \"good\", \"loss\": 1}");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[256];
    (void)snprintf(words, sizeof words, "report good -o no.html %s", cases[i][0]);
    expect(words, strncmp(cases[i][0], "--checkpoint", 12) == 0 ? HARK_EXIT_USAGE : HARK_EXIT_BAD_INPUT, "", cases[i][1]);
    assert_int_equal(test_line_count(output.err), 1);
    assert_int_not_equal(access(test_path(folder, "no.html"), F_OK), 0);
  }
  expect("report good -o no.html --checkpoint step-4", HARK_EXIT_DONE, "no.html: 1 run", "");
}

/* As a user without permissions: the superuser has them all. */
static void missing_permissions_are_named(void **state) {
  (void)state;
  static const char *const lines[] = {"chmod 000 .", "chmod 600 .", "chmod 000 config.yaml checkpoints"};
  static const char *const commands[] = {"runs all", "report all -o /dev/null", "eval all/x --threads 1", "inspect all/x --text t.txt"};
  const char *const user = geteuid() != 0 ? "" : "setpriv --reuid=65534 --regid=65534 --clear-groups";
  test_command_run(folder, user, "version", &output);
  if (output.code != 0) skip();
  for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
    damage(lines[l]);
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
      test_command_run(folder, user, commands[c], &output);
      if (strstr(output.out, "Permission denied") == NULL && strstr(output.err, "Permission denied") == NULL)
        fail_msg("%s: hark %s: %s%s", lines[l], commands[c], output.out, output.err);
    }
    assert_int_equal(shell("chmod 755 all/x && chmod -R u+rwX all"), 0);
  }
}

static void single_points_are_drawn_without_a_warning(void **state) {
  (void)state;
  if (shell("gnuplot --version") != 0) skip();
  (void)test_file_write_text(folder, "one.jsonl", "{\"step\": 5, \"train/loss\": 2}\n");
  (void)test_file_write_text(folder, "flat.jsonl", "{\"step\": 5, \"train/loss\": 2}\n{\"step\": 6, \"train/loss\": 2}\n");
  (void)test_file_write_text(folder, "one.json", "{\"run\": \"a\", \"context\": 8, \"loss\": 1}\n");
  static const char *const words[] = {"plot one.jsonl -o one.svg", "plot one.jsonl --log -o one.svg", "plot flat.jsonl -o one.svg",
                                      "plot --evaluation one.json -o one.svg"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    expect(words[i], HARK_EXIT_DONE, "one.svg", "");
    if (output.err[0] != '\0') fail_msg("hark %s: %s", words[i], output.err);
  }
}

static void the_number_of_curves_is_named(void **state) {
  (void)state;
  char words[1024] = "plot";
  for (int i = 0; i < 33; i++) (void)snprintf(words + strlen(words), sizeof words - strlen(words), " good");
  expect(words, HARK_EXIT_USAGE, "", "33 runs with 2 metrics are 66 curves, expected at most 64: fewer runs, or one --metric");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(damage_is_reported_with_the_reason),
      cmocka_unit_test(pipes_in_a_run_do_not_block),
      cmocka_unit_test(what_a_run_cannot_replace_is_refused),
      cmocka_unit_test(names_of_checkpoints_are_replaced),
      cmocka_unit_test(a_folder_in_place_of_the_vocabulary_is_named),
      cmocka_unit_test(the_newest_checkpoint_is_the_last),
      cmocka_unit_test(a_running_run_is_no_damaged_one),
      cmocka_unit_test(options_of_another_model_are_refused),
      cmocka_unit_test(a_run_is_reported_once),
      cmocka_unit_test(mistakes_of_a_report_write_no_page),
      cmocka_unit_test(missing_permissions_are_named),
      cmocka_unit_test(single_points_are_drawn_without_a_warning),
      cmocka_unit_test(the_number_of_curves_is_named),
  };
  return cmocka_run_group_tests_name("damaged", tests, begin, end);
}
