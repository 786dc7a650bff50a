/* test_run_data.c - the data of a run: found from anywhere and after moves, no others in their place, none of them twice, none of their
 * options without effect; runs that may be read only; and files with any names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

#define LABELS "--layers 1 --width 16 --heads 2 --context 8 --batch 2 --threads 1 --steps 2 --format text --architecture encoder "

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  command_text_make(folder, "other/text.txt", "fox brown quick the ");
  test_file_write_text(folder, "a.tsv", "0\tabc\n1\tbca\n0\tab\n1\tba\n0\tabca\n1\tbab\n");
  test_file_write_text(folder, "b.tsv", "1\tbca\n0\tab\n0\tabb\n1\tbba\n");
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

/* In a folder below, or beside. */
static void expect_in(const char *at, const char *words, int code, const char *in_out, const char *in_err) {
  char there[2 * TEST_PATH_BYTES];
  (void)snprintf(there, sizeof there, "%s/%s", folder, at);
  command_expect(there, words, code, in_out, in_err, &output);
}

static void shell(const char *words) {
  char command[4 * TEST_PATH_BYTES];
  (void)snprintf(command, sizeof command, "cd '%s' && %s", folder, words);
  if (system(command) != 0) fail_msg("%s", command);
}

/* A number of the JSON that the last command printed. */
static double number(const char *key) {
  json_t *const line = command_json(&output);
  const double value = command_number(line, key);
  json_decref(line);
  return value;
}

static double loss_in(const char *at, const char *run) {
  char words[256];
  (void)snprintf(words, sizeof words, "eval %s --checkpoint last --threads 1 --json", run);
  expect_in(at, words, HARK_EXIT_DONE, "\"part\": \"validation\"", "");
  return number("loss");
}

static bool holds(const char *file, const char *text) {
  char *const have = test_file_text(folder, file);
  const bool there = strstr(have, text) != NULL;
  free(have);
  return there;
}

/* ---- where they lie ---- */

static void a_text_is_found_from_anywhere(void **state) {
  (void)state;
  test_file_write_text(folder, "project/x", "");
  shell("cp text.txt project/");
  expect_in("project", "train --data text.txt --out runs/one --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "step 2", "");
  expect_in("project", "info runs/one --json", HARK_EXIT_DONE, "", "");
  const double loss = number("val/loss");
  assert_true(loss_in("project", "runs/one") == loss);
  assert_true(loss_in("other", "../project/runs/one") == loss); /* where a text of the same name lies */
  assert_true(loss_in("project/runs", "one") == loss);
  shell("mv project/runs/one project/runs/two && mv project moved"); /* all together, and another name of the run */
  assert_true(loss_in("other", "../moved/runs/two") == loss);
  shell("mv moved project && mv project/runs/two alone"); /* the run alone: the text is where it was */
  assert_true(loss_in("other", "../alone") == loss);
  shell("mv alone project/runs/one");
  expect_in("other", "train --resume --out ../project/runs/one --steps 3", HARK_EXIT_DONE, "step 3", "continuing from step-2");
  assert_true(holds("project/runs/one/config.yaml", "paths: [text.txt]"));            /* as it was given, */
  assert_true(holds("project/runs/one/data.json", "\"folder_from_run\": \"../..\"")); /* there */
  assert_true(loss_in("other", "../project/runs/one") != loss);
  expect_in("project", "verify runs/one", HARK_EXIT_DONE, "good  data.json", "");
  test_file_write_text(folder, "project/runs/one/data.json", "{\"format_version\": 1, \"folder\": 3}");
  expect_in("project", "verify runs/one", HARK_EXIT_BAD_INPUT, "BAD   data.json", "");
  expect_in("project", "eval runs/one --threads 1", HARK_EXIT_BAD_INPUT, "", "data.json: \"folder\" is not a path");
  shell("rm project/runs/one/data.json");
  expect_in("project", "train --resume --out runs/one --steps 4", HARK_EXIT_DONE, "step 4", "");
  shell("rm project/runs/one/data.json"); /* of an earlier hark: the recorded name of the run leads there */
  assert_true(loss_in("other", "../project/runs/one") == loss_in("project", "runs/one"));
}

static void examples_are_found_from_anywhere(void **state) {
  (void)state;
  expect("data make recall --length 16 --pairs 2 --training 40 --validation 8 --test 8 --out recall", HARK_EXIT_DONE, "", "");
  expect("train --out files --data a.tsv --test b.tsv --validation-fraction 0.4 " LABELS, HARK_EXIT_DONE, "step 2", "");
  expect("train --out text-of-task --data recall " COMMAND_TINY, HARK_EXIT_USAGE, "",
         "a folder of labelled examples, expected --format examples");
  expect("train --out task --data recall --format examples --layers 1 --width 16 --heads 2 --context 16 --batch 2 --threads 1 --steps 2",
         HARK_EXIT_DONE, "step 2", "");
  expect("eval files --threads 1 --json", HARK_EXIT_DONE, "", "");
  const double loss = number("loss");
  assert_true(loss_in("other", "../files") == loss);
  expect_in("other", "eval ../files --part test --threads 1", HARK_EXIT_DONE, "test accuracy", "");
  expect_in("other", "eval ../task --part test --threads 1", HARK_EXIT_DONE, "test accuracy", "");
  expect_in("other", "train --resume --out ../files --steps 3", HARK_EXIT_DONE, "step 3 of 3", "");
  assert_true(holds("files/config.yaml", "paths: [a.tsv]"));
}

static void what_is_not_there_is_said(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  shell("mv text.txt kept.txt");
  expect("eval run --threads 1", HARK_EXIT_BAD_INPUT, "", "text.txt: the run was trained on it, and it is missing, looked for in ");
  expect("train --resume --out run --steps 3", HARK_EXIT_BAD_INPUT, "", "text.txt: the run was trained on it, and it is missing");
  expect("eval run --data kept.txt --threads 1", HARK_EXIT_DONE, "run, step-2, another text: loss", "");
  expect("train --resume --out run --steps 3 --data kept.txt", HARK_EXIT_DONE, "step 3 of 3", "");
  expect("eval run --threads 1", HARK_EXIT_DONE, "run, step-3, validation text: loss", "");
}

/* ---- whether they are the same ---- */

static void another_text_is_not_measured_unasked(void **state) {
  static const struct {
    const char *change, *message;
  } changes[] = {
      {"printf 'the quick fox' >>text.txt", "text.txt: not what this run was trained on"},
      {"head -c 3000 kept.txt >text.txt", "text.txt: not what this run was trained on"},
      {"sed 's/quick/qiuck/' kept.txt >text.txt", "text.txt: not what this run was trained on"},
      {"sed 's/quick/qu1ck/' kept.txt >text.txt", "not what this run was trained on: "}, /* and no character of it is 1 */
      {"cp other/text.txt text.txt", "text.txt: not what this run was trained on"},
      {"rm text.txt && ln -s other/text.txt text.txt", "text.txt: not what this run was trained on"},
  };
  (void)state;
  shell("cp text.txt kept.txt");
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  const int kept = test_folder_count(folder, "run/cache");
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    shell(changes[i].change);
    expect("eval run --threads 1", HARK_EXIT_BAD_INPUT, "", changes[i].message);
    assert_string_equal(output.out, "");
    expect("eval run --part training --unknown map --threads 1", HARK_EXIT_BAD_INPUT, "", "text.txt: not what this run was trained on");
    assert_int_equal(test_folder_count(folder, "run/cache"), kept);
    shell("rm text.txt && cp kept.txt text.txt");
    expect("eval run --threads 1", HARK_EXIT_DONE, "run, step-2, validation text: loss", "");
  }
  expect("eval run --unknown map --threads 1", HARK_EXIT_DONE, "run, step-2, validation text: loss", ""); /* in which nothing is unknown */
  expect("eval run --data other/text.txt --threads 1 --json", HARK_EXIT_DONE, "\"part\": \"data\"", "");
  expect("eval run --validation other/text.txt --threads 1", HARK_EXIT_DONE, "another text", "");
  expect("eval run --validation other/text.txt --part training", HARK_EXIT_USAGE, "", "--validation: --part validation reads");
}

static void other_examples_are_not_measured_unasked(void **state) {
  (void)state;
  expect("train --out run --data a.tsv --test b.tsv --validation-fraction 0.4 " LABELS, HARK_EXIT_DONE, "step 2", "");
  shell("cp a.tsv kept.tsv && sed s/abca/abcb/ kept.tsv >a.tsv");
  expect("eval run --threads 1", HARK_EXIT_BAD_INPUT, "", "a.tsv: not what this run was trained on");
  expect("eval run --length-limit 3 --threads 1", HARK_EXIT_BAD_INPUT, "", "a.tsv: not what this run was trained on");
  expect("eval run --part test --threads 1", HARK_EXIT_BAD_INPUT, "", "not what this run was trained on");
  shell("cp kept.tsv a.tsv && printf '0\\tab\\n' >>b.tsv");
  expect("eval run --part test --threads 1", HARK_EXIT_BAD_INPUT, "", "not what this run was trained on");
  expect("eval run --part test --test b.tsv --threads 1", HARK_EXIT_DONE, "test accuracy", ""); /* asked for */
  expect("eval run --test b.tsv --threads 1", HARK_EXIT_USAGE, "", "--test: --part test reads these files");
  expect("eval run --data a.tsv --threads 1", HARK_EXIT_DONE, "data accuracy", "");
}

static void the_same_length_limit_is_compared(void **state) {
  (void)state;
  expect("train --out run --data a.tsv --length-limit 3 " LABELS, HARK_EXIT_DONE, "step 2", "");
  expect("eval run --part training --threads 1", HARK_EXIT_DONE, "training accuracy", "");
  expect("eval run --part training --length-limit 2 --threads 1", HARK_EXIT_DONE, "training accuracy", "");
  expect("eval run --part training --length-limit 2 --threads 1", HARK_EXIT_DONE, "\"data.length_limit\": \"2\"", "");
  expect("eval run --part training --length-limit 2 --threads 1 --json", HARK_EXIT_DONE, "\"exchanged\": {\"data.length_limit\": \"2\"}",
         "");
  expect("eval run --part training --threads 1 --json", HARK_EXIT_DONE, "\"exchanged\": {}", "");
}

/* ---- each of them once ---- */

static void one_text_is_read_once(void **state) {
  static const struct {
    const char *words, *message;
  } cases[] = {
      {"--data text.txt --data ./text.txt", "text.txt: is given twice, expected every file once"},
      {"--data text.txt --data link.txt", "is given twice"},
      {"--data text.txt --data hard.txt", "is the same file as "},
      {"--data text.txt --data copy.txt", "has the same contents as "},
      {"--data copy.txt --data more --data text.txt", "has the same contents as "},
      {"--data more --data more/a.txt", "is given twice"},
      {"--data more --data more", "is given twice"},
      {"--data text.txt --validation hard.txt", "is given both for training and for validation"},
      {"--data text.txt --validation copy.txt", "has the same contents as "},
      {"--data text.txt --validation more/a.txt --validation more", "is given twice"},
      {"--data text.txt --validation text.jsonl", "has the same contents as "}, /* whose end has a line end more */
      {"--data text.txt --data text.jsonl", "has the same contents as "},
      {"--data line.txt --data text.txt", "has the same contents as "},
  };
  (void)state;
  shell("ln -s text.txt link.txt && ln text.txt hard.txt && cp text.txt copy.txt && (cat text.txt; echo) >line.txt");
  shell("(printf '{\"text\": \"'; cat text.txt; printf '\"}\\n') >text.jsonl");
  command_text_make(folder, "more/a.txt", "brown fox the quick ");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, "train --out none --steps 2 %s " COMMAND_TINY, cases[i].words);
    expect(words, HARK_EXIT_USAGE, "", cases[i].message);
    assert_int_equal(hark_path_kind_of(test_path(folder, "none")), HARK_PATH_NONE);
    (void)snprintf(words, sizeof words, "train --estimate --tokenizer bytes %s", cases[i].words);
    expect(words, HARK_EXIT_USAGE, "", cases[i].message);
  }
  expect("eval run --data text.txt --data link.txt --threads 1", HARK_EXIT_BAD_INPUT, "", "no such run");
  /* what leaks nothing: both are divided alike, or both train */
  expect("train --out halves --steps 2 --data text.txt --data copy.txt --split per_file " COMMAND_TINY, HARK_EXIT_DONE, "step 2", "");
  expect("train --out both --steps 2 --data text.txt --data copy.txt --validation more " COMMAND_TINY, HARK_EXIT_DONE, "step 2", "");
  expect("train --out nearly --steps 2 --data text.txt --data line.txt --split per_file " COMMAND_TINY, HARK_EXIT_DONE, "step 2", "");
  expect("train --out texts --steps 2 --data text.txt --data line.txt --validation more " COMMAND_TINY, HARK_EXIT_DONE, "step 2", "");
  expect("train --out all --steps 2 --data text.txt --data copy.txt --validation-fraction 0 " COMMAND_TINY, HARK_EXIT_DONE, "step 2", "");
  expect("eval halves --data text.txt --data hard.txt --threads 1", HARK_EXIT_USAGE, "", "is the same file as ");
  expect("eval halves --threads 1", HARK_EXIT_DONE, "halves, step-2, validation text: loss", "");
}

static void one_file_of_examples_is_read_once(void **state) {
  static const struct {
    const char *words, *message;
  } cases[] = {
      {"--data a.tsv --test a.tsv", "a.tsv: is given twice, expected every file once"},
      {"--data a.tsv --validation ./a.tsv", "./a.tsv: is the same file as a.tsv, expected every file once"},
      {"--data a.tsv --test link.tsv", "link.tsv: is the same file as a.tsv"},
      {"--data a.tsv --test hard.tsv", "is the same file as "},
      {"--data a.tsv --validation copy.tsv", "has the same contents as "},
      {"--data a.tsv --validation b.tsv --test copy.tsv", "has the same contents as "},
      {"--data a.tsv --data copy.tsv", "has the same contents as "}, /* of which some are taken off to validate */
      {"--data a.tsv --data a.tsv --validation b.tsv", "is given twice"},
  };
  (void)state;
  shell("ln -s a.tsv link.tsv && ln a.tsv hard.tsv && cp a.tsv copy.tsv");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, "train --out none %s " LABELS, cases[i].words);
    expect(words, HARK_EXIT_USAGE, "", cases[i].message);
    assert_int_equal(hark_path_kind_of(test_path(folder, "none")), HARK_PATH_NONE);
  }
  expect("train --out twice --data a.tsv --data copy.tsv --validation b.tsv " LABELS, HARK_EXIT_DONE, "step 2", "");
  expect("eval twice --data a.tsv --data hard.tsv --threads 1", HARK_EXIT_USAGE, "", "is the same file as ");
}

/* ---- options of the other kind of data ---- */

static void options_without_effect_are_refused(void **state) {
  static const struct {
    const char *words, *flag;
  } cases[] = {
      {"train --out no --data a.tsv --tokenizer subwords " LABELS, "--tokenizer: "},
      {"train --out no --data a.tsv --tokenizer characters " LABELS, "--tokenizer: "},
      {"train --out no --data a.tsv --unit sentences " LABELS, "--unit: "},
      {"train --out no --data a.tsv --unknown map " LABELS, "--unknown: "},
      {"train --out no --data a.tsv --split per_file " LABELS, "--split: "},
      {"train --out no --data a.tsv --epoch windows " LABELS, "--epoch: "},
      {"train --out no --data a.tsv --subwords 300 " LABELS, "--subwords: "},
      {"train --out no --data a.tsv --config subwords.yaml --architecture encoder", "subwords.yaml:1: data.tokenizer: "},
      {"train --out no --data text.txt --length-limit 5 " COMMAND_TINY, "--length-limit: "},
      {"train --out no --data text.txt --classes 3 " COMMAND_TINY, "--classes: "},
      {"train --out no --data text.txt --subwords 300 " COMMAND_TINY, "--subwords: "},
      {"train --out no --data text.txt --data.long-sentences refuse " COMMAND_TINY, "--data.long-sentences: "},
  };
  (void)state;
  test_file_write_text(folder, "subwords.yaml", "data: {tokenizer: subwords, format: text}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(cases[i].words, HARK_EXIT_USAGE, "", cases[i].flag);
    assert_int_equal(test_line_count(output.err), 1);
  }
  /* what is written down is what is read, and a file of all defaults asks for nothing */
  expect("train --out run --data a.tsv " LABELS, HARK_EXIT_DONE, "step 2", "");
  assert_true(holds("run/config.yaml", "tokenizer: bytes"));
  assert_true(holds("run/vocabulary.json", "\"symbols\": \"bytes\""));
  expect("train --out said --data a.tsv --tokenizer bytes " LABELS, HARK_EXIT_DONE, "step 2", "");
  expect("config --no-comments", HARK_EXIT_DONE, "tokenizer: characters", "");
  shell("cp .out all.yaml && sed -i 's/tokenizer: bytes/tokenizer: characters/' run/config.yaml");
  expect("train --out defaults --config all.yaml --data a.tsv " LABELS, HARK_EXIT_DONE, "step 2", "");
  expect("train --resume --out run --steps 3", HARK_EXIT_DONE, "step 3 of 3", ""); /* begun by an earlier hark */
  expect("verify run", HARK_EXIT_DONE, "good  config.yaml", "");
}

/* ---- runs of others ---- */

/* What may only be read is read: as nobody, where the test is root's, whom nothing is forbidden. */
static void a_run_that_is_read_only_is_evaluated(void **state) {
  static const char nobody[] = "setpriv --reuid=65534 --regid=65534 --clear-groups ";
  static const struct {
    const char *words, *in_out;
  } commands[] = {
      {"eval ../run --threads 1", "../run, step-2, validation text: loss"},
      {"eval ../run --data ../other/text.txt --threads 1", "another text: loss"},
      {"eval ../run --context 4,8 --threads 1 --json", "\"context\": 4"},
      {"eval ../labels --part training --threads 1", "training accuracy"},
      {"info ../run", "validation loss"},
      {"info ../run/checkpoints/step-2", "tensors"},
      {"verify ../run ../labels", "good  best"},
      {"generate ../run --max-new-tokens 3 --threads 1 --json", "\"text\""},
      {"export ../run --output run.safetensors", "run.safetensors: "},
      {"plot ../run --terminal", "val/loss"},
      {"plot ../run", ""},
      {"plot ../run --output named.svg", ""},
      {"bench step --config ../run/config.yaml --rounds 1 --json", "\"tokens_per_second\""},
  };
  (void)state;
  const bool root = geteuid() == 0;
  char words[256];
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data a.tsv --out labels " LABELS, HARK_EXIT_DONE, "", "");
  (void)snprintf(words, sizeof words, "%s '%s' version >/dev/null 2>&1", root ? nobody : "", HARK_COMMAND);
  shell("rm -r run/cache && mkdir mine && chmod 755 . && chmod 777 mine && chmod -R a-w run labels && chmod a-w .");
  if (system(words) != 0) {
    shell("chmod -R u+w .");
    print_message("the command cannot be run as nobody here: it lies in a folder that is not open to all\n");
    skip();
  }
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char command[8 * TEST_PATH_BYTES];
    (void)snprintf(command, sizeof command, "cd '%s/mine' && TMPDIR='%s/mine' %s '%s' %s >out 2>err", folder, folder, root ? nobody : "",
                   HARK_COMMAND, commands[i].words);
    const int code = system(command);
    char *const out = test_file_text(folder, "mine/out"), *const err = test_file_text(folder, "mine/err");
    if (code != 0 || strstr(out, commands[i].in_out) == NULL) fail_msg("hark %s\nstatus %d\n%s%s", commands[i].words, code, out, err);
    free(out);
    free(err);
  }
  shell("chmod -R u+w .");
  assert_int_equal(hark_path_kind_of(test_path(folder, "run/cache")), HARK_PATH_NONE);
  assert_int_equal(hark_path_kind_of(test_path(folder, "run/loss.svg")), HARK_PATH_NONE);
  shell("rm -f mine/*.svg mine/*.svg.dat mine/*.svg.gp mine/run.safetensors mine/out mine/err");
  assert_int_equal(test_folder_count(folder, "mine"), 2); /* nothing is left of the tokens */
}

/* ---- names ---- */

static void names_may_be_anything(void **state) {
  static const char *const names[] = {
      "a b",  "new\nline",     "d\"quote",      "-dash",        "back\\slash", "$(touch hacked)", "`touch hacked`",
      "~",    "|touch hacked", "<touch hacked", "tab\t",        "#hash",       ": colon",         "*",
      "null", "[a, b]",        "\xC3\xA9",      "\xE2\x80\xA8", "\x1b[31mred", "&<>%s@x",         "{a}"};
  const bool pictures = system("gnuplot --version >/dev/null 2>&1") == 0;
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char words[512], path[TEST_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s.txt", names[i]);
    command_text_make(folder, path, "the quick brown fox ");
    (void)snprintf(words, sizeof words, "train --out='%s' --data='%s.txt' --steps 2 " COMMAND_TINY, names[i], names[i]);
    expect(words, HARK_EXIT_DONE, "step 2 of 2", "");
    assert_null(strchr(output.out, '\x1b'));
    assert_null(strchr(output.err, '\x1b'));
    (void)snprintf(words, sizeof words, "eval --threads 1 --json -- '%s'", names[i]);
    expect(words, HARK_EXIT_DONE, "", "");
    json_t *const line = command_json(&output);
    assert_string_equal(json_string_value(json_object_get(line, "run")), names[i]);
    json_decref(line);
    (void)snprintf(words, sizeof words, "train --resume --out='%s' --steps 3", names[i]);
    expect(words, HARK_EXIT_DONE, "step 3 of 3", "");
    (void)snprintf(words, sizeof words, "plot -- '%s' '%s'", names[i], names[i]);
    expect(words, HARK_EXIT_DONE, "", "");
    (void)snprintf(words, sizeof words, "plot -- '%s'", names[i]);
    expect(words, HARK_EXIT_DONE, "", "");
    assert_null(strchr(output.out, '\x1b'));
    (void)snprintf(path, sizeof path, "%s/loss.svg", names[i]);
    if (!pictures) continue;
    char *const picture = test_file_text(folder, path);
    for (const unsigned char *at = (const unsigned char *)picture; *at != 0; at++)
      if (*at < ' ' && *at != '\n' && *at != '\t' && *at != '\r') fail_msg("%s: U+%04X is no character of XML", path, *at);
    assert_non_null(strstr(picture, "</svg>"));
    free(picture);
    (void)snprintf(path, sizeof path, "%s/loss.svg.gp", names[i]);
    assert_int_equal(hark_path_kind_of(test_path(folder, path)), HARK_PATH_NONE);
  }
  assert_int_equal(hark_path_kind_of(test_path(folder, "hacked")), HARK_PATH_NONE);
}

/* Names that YAML and JSON cannot hold are refused where they would be written down, and are fine where they would not. */
static void names_that_are_not_utf8(void **state) {
  static const struct {
    const char *words, *message;
  } refused[] = {
      {"train --out='r\xe9' --data text.txt --steps 1 " COMMAND_TINY,
       "--out: \"r\\xe9\" given, expected UTF-8 (byte offset 1): other names cannot"},
      {"train --out none --data='t\xe9.txt' --steps 1 " COMMAND_TINY, "--data: \"t\\xe9.txt\" given, expected UTF-8"},
      {"train --out none --data text.txt --data='\xc3\xa9\xff' --steps 1 " COMMAND_TINY, "--data: \"\xc3\xa9\\xff\" given, expected UTF-8"},
      {"train --out none --data text.txt --validation='\xc0\xaf' --steps 1 " COMMAND_TINY, "--validation: \"\\xc0\\xaf\""},
      {"train --out none --data text.txt --init-from='ru\xed\xa0\x80n' --steps 1 " COMMAND_TINY, "--init-from: "},
      {"train --out run --resume --data='t\xe9.txt' --steps 3", "--data: \"t\\xe9.txt\" given, expected UTF-8"},
      {"train --out none --data text.txt --sample-tokens 4 --sample-prompt='ab\xff c' --steps 1 " COMMAND_TINY,
       "--sample-prompt: \"ab\\xff c\" given, expected UTF-8 (byte offset 2): other texts cannot be written into the run\n"},
      {"config --out='r\xe9'", "--out: \"r\\xe9\" given, expected UTF-8"},
  };
  (void)state;
  shell("cp text.txt 't\xe9.txt' && mkdir texts 'f\xe9' && cp other/text.txt 'texts/t\xe9.txt' && cp text.txt 'f\xe9/'");
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    expect(refused[i].words, HARK_EXIT_USAGE, "", refused[i].message);
    assert_int_equal(hark_path_kind_of(test_path(folder, "none")), HARK_PATH_NONE);
  }
  expect("train --data texts --out below --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", ""); /* a file in a folder */
  expect("eval below --threads 1", HARK_EXIT_DONE, "below, step-2, validation text: loss", "");
  expect("train --resume --out below --steps 3", HARK_EXIT_DONE, "step 3", "");
  expect("eval run --data='t\xe9.txt' --threads 1", HARK_EXIT_DONE, "another text", "");                 /* of which nothing is kept */
  expect_in("f\xe9", "train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", ""); /* the working folder */
  expect("eval 'f\xe9/run' --threads 1", HARK_EXIT_DONE, "step-2, validation text: loss", "");
  expect("verify 'f\xe9/run'", HARK_EXIT_DONE, "good  data.json", "");
}

static void names_in_sweeps(void **state) {
  (void)state;
  command_text_make(folder, "a|b\n.txt", "the quick brown fox ");
  test_file_write_text(folder, "plan.yaml",
                       "out: -swept\ngrid:\n  data.paths: [text.txt, \"a|b\\n.txt\"]\nsettings:\n  train.steps: 2\n  train.batch: 2\n"
                       "  model.layers: 1\n  model.width: 16\n  model.heads: 2\n  model.context: 8\n  run.threads: 1\n");
  expect("sweep plan.yaml", HARK_EXIT_DONE, "| paths=a\\|b?.txt | 1 |", "");
  expect("eval -- '-swept/paths=a_b_.txt-seed=1'", HARK_EXIT_DONE, "step-2, validation text: loss", "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_text_is_found_from_anywhere),
      TEST(examples_are_found_from_anywhere),
      TEST(what_is_not_there_is_said),
      TEST(another_text_is_not_measured_unasked),
      TEST(other_examples_are_not_measured_unasked),
      TEST(the_same_length_limit_is_compared),
      TEST(one_text_is_read_once),
      TEST(one_file_of_examples_is_read_once),
      TEST(options_without_effect_are_refused),
      TEST(a_run_that_is_read_only_is_evaluated),
      TEST(names_may_be_anything),
      TEST(names_that_are_not_utf8),
      TEST(names_in_sweeps),
  };
  return cmocka_run_group_tests_name("run_data", tests, NULL, NULL);
}
