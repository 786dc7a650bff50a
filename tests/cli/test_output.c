/* test_output.c - what goes where and how it looks: --json prints JSON and nothing else, colours only where they are requested, and no
 * locale changes a number that is read or written, and a line on stderr is written whole. */
#define _XOPEN_SOURCE 700 /* pseudo-terminals */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  (void)test_file_write_text(folder, "plan.yaml", "out: sweep\nsettings: {data.paths: text.txt}\n");
  if (chdir(folder) != 0) return 1;
  test_command_line(hark_main, "hark train --data text.txt --out run --steps 3 " COMMAND_TINY, &output);
  if (output.code == 0)
    test_command_line(hark_main, "hark train --data text.txt --out kernels --positional decay --steps 2 " COMMAND_TINY, &output);
  (void)test_file_write_text(folder, "words.tsv", "Words\ta b\na b\t1:a\nb a\t0:b\n");
  if (output.code == 0)
    test_command_line(hark_main, "hark train --data words.tsv --format sequences --out labels --steps 1 " COMMAND_TINY, &output);
  if (output.code != 0) print_error("%s", output.err);
  return output.code;
}

static int end(void **state) {
  (void)state;
  if (chdir("/") != 0) return 1;
  command_place_close(folder, &output);
  return 0;
}

static void call(const char *line, int code) {
  test_command_line(hark_main, line, &output);
  if (output.code != code)
    fail_msg("%s: exit code %d, expected %d\nstdout: %s\nstderr: %s", line, output.code, code, output.out, output.err);
}

/* ---- JSON ---- */

static const struct {
  const char *name, *line;
} with_json[] = {
    {"train", "hark train --data text.txt --out json --steps 2 --json " COMMAND_TINY},
    {"generate", "hark generate run --max-new-tokens 4 --json"},
    {"export", "hark export run --output model.safetensors --json"},
    {"import", "hark import llama --output imported.safetensors --json"},
    {"sweep", "hark sweep plan.yaml --table --json"},
    {"eval", "hark eval run --json"},
    {"predict", "hark predict labels --part training --json"},
    {"verify", "hark verify run --json"},
    {"runs", "hark runs run --json"},
    {"report", "hark report run --output page.html --json"},
    {"inspect", "hark inspect run --text text.txt --json"},
    {"info", "hark info run --json"},
    {"positional", "hark positional decay*periodic --json"},
    {"kernels", "hark kernels fit kernels --text text.txt --json"},
    {"data", "hark data make recall --length 24 --pairs 4 --training 2 --out recall --json"},
    {"lab", "hark lab rank-map --quick --json"},
    {"bench", "hark bench attention dense:B1,H1,L8,D4 dense:B1,H1,L9,D4 --rounds 1 --json"},
    {"config", "hark config --json"},
    {"version", "hark version --json"},
};

/* Every line of stdout is one JSON object, and there is one. */
static void expect_objects(const char *line) {
  char *rest = strdup(output.out), *const whole = rest;
  int count = 0;
  for (char *end_of_line; (end_of_line = strchr(rest, '\n')) != NULL; rest = end_of_line + 1, count++) {
    json_error_t error;
    *end_of_line = 0;
    json_t *const object = json_loads(rest, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object)) fail_msg("%s: \"%s\" is no object: %s", line, rest, error.text);
    json_decref(object);
  }
  if (rest[0] != 0 || count == 0) fail_msg("%s: stdout is \"%s\"", line, output.out);
  free(whole);
}

static void json_is_all_there_is_on_stdout(void **state) {
  (void)state;
  call("hark train --data text.txt --out rms --steps 1 --norm rms_norm --activation gated_silu " COMMAND_TINY, HARK_EXIT_DONE);
  call("hark export rms --format huggingface --output llama", HARK_EXIT_DONE);
  for (int c = 0; hark_commands[c] != NULL; c++) {
    if (!hark_commands[c]->has_json) continue;
    const char *line = NULL;
    for (size_t i = 0; i < sizeof with_json / sizeof with_json[0]; i++) {
      if (strcmp(with_json[i].name, hark_commands[c]->name) == 0) line = with_json[i].line;
    }
    if (line == NULL) fail_msg("%s has --json: give it a row in with_json", hark_commands[c]->name);
    call(line, HARK_EXIT_DONE);
    expect_objects(line);
  }
  call("hark info none --json", HARK_EXIT_BAD_INPUT);
  assert_string_equal(output.out, "");
  call("hark train --layers x --json", HARK_EXIT_USAGE);
  assert_string_equal(output.out, "");
}

/* ---- colours ---- */

/* Runs "ENVIRONMENT hark WORDS" with its stderr on a terminal; what came there is in `text`. */
static void on_a_terminal(const char *environment, const char *words, char *text, size_t size) {
  char command[1024];
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
    print_message("no pseudo-terminal: %s\n", strerror(errno));
    skip();
  }
  snprintf(command, sizeof command, "env -u NO_COLOR TERM=xterm %s '%s' %s >/dev/null 2>'%s'", environment, HARK_COMMAND, words,
           ptsname(terminal));
  const int hold = open(ptsname(terminal), O_RDWR | O_NOCTTY); /* keeps what was written after the writer is gone */
  assert_true(hold >= 0);
  assert_true(system(command) != -1);
  assert_int_equal(fcntl(terminal, F_SETFL, O_NONBLOCK), 0);
  size_t used = 0;
  for (ssize_t got; used + 1 < size && (got = read(terminal, text + used, size - 1 - used)) > 0;) used += (size_t)got;
  text[used] = 0;
  close(hold);
  close(terminal);
}

static void colours_are_only_where_they_are_requested(void **state) {
  (void)state;
  static const struct {
    const char *environment, *words;
    bool colored;
  } cases[] = {
      {"", "config --layers x", true},
      {"NO_COLOR=", "config --layers x", true}, /* set, but empty */
      {"NO_COLOR=1", "config --layers x", false},
      {"NO_COLOR=0", "config --layers x", false},
      {"TERM=dumb", "config --layers x", false},
      {"", "config --layers x --no-color", false},
      {"", "config --layers x --color=false", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[4096];
    on_a_terminal(cases[i].environment, cases[i].words, text, sizeof text);
    if (strstr(text, "\"x\" given") == NULL) fail_msg("%s hark %s: no message: \"%s\"", cases[i].environment, cases[i].words, text);
    if ((strchr(text, '\x1b') != NULL) != cases[i].colored) {
      fail_msg("%s hark %s: \"%s\", expected %s", cases[i].environment, cases[i].words, text, cases[i].colored ? "colours" : "none");
    }
  }
  /* not a terminal */
  call("hark config --layers x", HARK_EXIT_USAGE);
  assert_null(strchr(output.err, '\x1b'));
}

/* ---- lines ---- */

/* Runs "hark WORDS" with its stderr on a socket that keeps writes apart: every write ends with the end of a line. Returns their number. */
static int count_writes(const char *words) {
  char command[1024], packet[8192];
  int ends[2], count = 0;
  assert_return_code(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), errno);
  const int kept = dup(STDERR_FILENO);
  assert_return_code(kept, errno);
  (void)snprintf(command, sizeof command, "exec env OMP_NUM_THREADS=1 '%s' >output.txt %s", HARK_COMMAND, words);
  assert_return_code(dup2(ends[1], STDERR_FILENO), errno);
  const int code = system(command);
  assert_return_code(dup2(kept, STDERR_FILENO), errno);
  close(kept);
  close(ends[1]);
  assert_true(code != -1);
  for (ssize_t got; (got = read(ends[0], packet, sizeof packet - 1)) > 0; count++) {
    packet[got] = 0;
    if (packet[got - 1] != '\n') fail_msg("hark %s: wrote a part of a line: \"%s\"", words, packet);
  }
  close(ends[0]);
  return count;
}

/* Launchers put the lines of several processes, and their own, into one stream: another line in the middle of one would break both. */
static void a_line_on_stderr_is_one_write(void **state) {
  (void)state;
  assert_int_equal(count_writes("config --layers x"), 1);
  assert_int_equal(count_writes("config --layers x --width y"), 2);
  assert_int_equal(count_writes("nothing"), 1);
  assert_int_equal(count_writes("info nowhere"), 1);
  assert_int_equal(count_writes("version --json >/dev/full"), 1);
  assert_true(count_writes("train --data text.txt --out lines --steps 3 --log-every 1 " COMMAND_TINY) > 3);
  (void)test_file_write_text(folder, "lines.yaml", "out: of-lines\nsettings: {data.paths: text.txt, run.threads: 1, train.steps: 1}\n");
  assert_true(count_writes("sweep lines.yaml --jobs 3") > 1);
}

/* ---- locale ---- */

#define NUMBERS "--lr 1.5e-3 --dropout 0.25 --max-time 1.5m --epochs 0.5 --train.epsilon 2.5e-9 --validation-fraction 0.125"

/* The number after "key": in JSON. */
static double number_of(const char *json, const char *key) {
  json_error_t error;
  json_t *const object = json_loads(json, 0, &error);
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number %s in %s", key, json);
  const double number = json_number_value(value);
  json_decref(object);
  return number;
}

static char *take(const char *line) {
  call(line, HARK_EXIT_DONE);
  return strdup(output.out);
}

/* In this process, so that a host program's setlocale() is covered as well. */
static void a_comma_locale_changes_no_number(void **state) {
  (void)state;
  char *const yaml = take("hark config " NUMBERS), *const json = take("hark config --json " NUMBERS);
  assert_non_null(strstr(yaml, "learning_rate: 0.0015"));
  assert_non_null(strstr(yaml, "max_time: 90s"));
  test_file_write_text(folder, "numbers.yaml", yaml);
  call("hark train --data text.txt --out point --steps 3 --lr 2.5e-3 --dropout 0.125 --json " COMMAND_TINY, HARK_EXIT_DONE);
  const double loss = number_of(output.out, "best_loss");
  char *const point_config = test_file_text(folder, "point/config.yaml");

  const char *name;
  if (!test_comma_locale(folder, &name)) {
    free(yaml);
    free(json);
    free(point_config);
    print_message("no locale with a decimal comma can be had\n");
    skip();
  }
  char half[8];
  snprintf(half, sizeof half, "%.1f", 0.5);
  char *const comma_yaml = take("hark config " NUMBERS), *const comma_json = take("hark config --json " NUMBERS);
  char *const read_back = take("hark config --config numbers.yaml");
  call("hark train --data text.txt --out comma --steps 3 --lr 2.5e-3 --dropout 0.125 --json " COMMAND_TINY, HARK_EXIT_DONE);
  const double comma_loss = number_of(output.out, "best_loss");
  char *comma_config = test_file_text(folder, "comma/config.yaml"), *const metrics = test_file_text(folder, "comma/metrics.jsonl");
  call("hark eval comma --json", HARK_EXIT_DONE);
  expect_objects("hark eval comma --json");
  call("hark generate comma --temperature 0.75 --top-p 0.5 --max-new-tokens 3 --json", HARK_EXIT_DONE);
  expect_objects("hark generate");
  call("hark config --lr 1,5", HARK_EXIT_USAGE);
  /* as a process that is started with it */
  char environment[TEST_PATH_BYTES + 64];
  snprintf(environment, sizeof environment, "LOCPATH='%s' LC_ALL=%s", folder, name);
  test_command_run(folder, environment, "config " NUMBERS, &output);
  setlocale(LC_ALL, "C");

  assert_string_equal(half, "0,5"); /* the locale is what the test needs */
  assert_string_equal(comma_yaml, yaml);
  assert_string_equal(comma_json, json);
  assert_string_equal(read_back, yaml);
  assert_string_equal(output.out, yaml);
  assert_true(loss == comma_loss);
  char *const at = strstr(comma_config, "comma"); /* the folder's name is the only difference */
  if (at != NULL) memcpy(at, "point", 5);
  assert_string_equal(comma_config, point_config);
  test_output_free(&output);
  output.out = strdup(metrics);
  expect_objects("metrics.jsonl");
  free(yaml);
  free(json);
  free(point_config);
  free(comma_yaml);
  free(comma_json);
  free(read_back);
  free(comma_config);
  free(metrics);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_is_all_there_is_on_stdout),
      cmocka_unit_test(colours_are_only_where_they_are_requested),
      cmocka_unit_test(a_line_on_stderr_is_one_write),
      cmocka_unit_test(a_comma_locale_changes_no_number),
  };
  return cmocka_run_group_tests_name("output", tests, begin, end);
}
