/* test_bad_inputs.c - inputs that cannot be used, by the subcommands that read them: one exit code for one kind of fault everywhere. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

/* What takes the place of X. */
enum { MISSING, EMPTY, GARBAGE, FOLDER, WEIGHTS, JSON, INPUTS };
static const char *const inputs[INPUTS] = {"nope", "empty", "garbage", "nothing", "optimizer.safetensors", "some.json"};

/* A subcommand that reads X. Inputs of another kind have one code, HARK_EXIT_BAD_INPUT; `others` can be used, or have another code. */
typedef struct reader {
  const char *words;
  unsigned others;
} reader;
#define BIT(input) (1u << (input))
#define CONFIGURATION (BIT(EMPTY) | BIT(GARBAGE) | BIT(WEIGHTS) | BIT(JSON)) /* read, with problems: HARK_EXIT_USAGE */
#define LINES (BIT(EMPTY) | BIT(JSON))

static const reader readers[] = {
    {"generate X", 0},
    {"generate run --file X", 0},
    {"export X -o o.st", 0},
    {"export X --format tokenizer.json -o o.json", 0},
    {"export X --format huggingface -o o", 0},
    {"import X -o o.st", 0},
    {"embed X text.txt", 0},
    {"embed run X", LINES},
    {"eval X", 0},
    {"eval run --data X", LINES},
    {"predict X", 0},
    {"verify X", 0},
    {"tokenize X text.txt", 0},
    {"tokenize run X", LINES},
    {"detokenize X text.txt", 0},
    {"detokenize run X", BIT(EMPTY)},
    {"attend -i X -o o.st", 0},
    {"kernels fit X", 0},
    {"kernels fit run --text X", LINES},
    {"kernels export X --output k.csv", 0},
    {"runs X", BIT(FOLDER)},
    {"report X -o r.html", 0},
    {"report run --file X -o r.html", BIT(GARBAGE) | BIT(WEIGHTS) | BIT(JSON)},
    {"report run --evaluation X -o r.html", 0},
    {"inspect X --text text.txt", 0},
    {"inspect run --text X", LINES},
    {"info X", BIT(WEIGHTS)},
    {"plot X -o p.svg", 0},
    {"plot X --positional -o p.svg", 0},
    {"plot X --evaluation -o p.svg", 0},
    {"config --config X", CONFIGURATION},
    {"sweep X", CONFIGURATION},
    {"train --data text.txt --out no --config X", CONFIGURATION},
    {"train --data text.txt --out no --init-from X", 0},
    {"train --data X --out no", LINES},
    {"train --resume X", 0},
    {"lab approximation --quick --run X --text text.txt", 0},
    {"lab rank-map --quick --run X --text text.txt", 0},
    {"lab bound --quick --model X", 0},
    {"train --data text.txt --out no --tokenizer imported --vocabulary X", 0},
    {"data info X --format text", 0},
    {"data picture X --format text --out p.svg", 0},
};
enum { READERS = sizeof readers / sizeof *readers };

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  command_expect(folder, "train --data text.txt --out run --steps 2 --positions none --positional decay " COMMAND_TINY, HARK_EXIT_DONE, "",
                 "", &output);
  command_expect(folder, "train --data text.txt --out plain --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "", &output);
  test_file_write_text(folder, "empty", "");
  test_file_write_text(folder, "garbage", "garbage \xff\xfe bytes\n");
  test_file_write_text(folder, "some.json", "{\"a\": 1}\n");
  (void)mkdir(test_path(folder, "nothing"), 0777);
  assert_int_equal(command_place_shell(folder, "cp run/checkpoints/step-2/optimizer.safetensors ."), 0);
  return 0;
}

static int end(void **state) {
  (void)state;
  (void)command_place_shell(folder, "chmod -R u+rwx .");
  command_place_close(folder, &output);
  return 0;
}

static const char *put_in(const char *words, const char *input, char *out, size_t size) {
  const char *const at = strchr(words, 'X');
  (void)snprintf(out, size, "%.*s%s%s", (int)(at - words), words, input, at + 1);
  return out;
}

static void inputs_of_another_kind_have_one_code(void **state) {
  (void)state;
  char words[256];
  for (size_t r = 0; r < READERS; r++)
    for (int i = 0; i < INPUTS; i++) {
      if (readers[r].others & BIT(i)) continue;
      const char *const named = strncmp(readers[r].words, "verify", 6) == 0 ? "1 problem" : inputs[i]; /* its report is on stdout */
      command_expect(folder, put_in(readers[r].words, inputs[i], words, sizeof words), HARK_EXIT_BAD_INPUT, "", named, &output);
    }
}

static void what_is_no_model_is_named(void **state) {
  (void)state;
  static const char *const words[] = {"eval text.txt", "eval nothing", "train --data text.txt --out no --init-from text.txt"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    command_expect(folder, words[i], HARK_EXIT_BAD_INPUT, "",
                   ": is neither a run (a folder with config.yaml), nor a checkpoint in one, nor a model in safetensors", &output);
}

/* As a user without permissions: the superuser has them all. */
static void a_missing_permission_has_one_code(void **state) {
  (void)state;
  const char *const user = geteuid() != 0 ? "" : "setpriv --reuid=65534 --regid=65534 --clear-groups";
  static const char *const unread[] = {"unread", "unread-run", "closed/text.txt"};
  char words[256];
  test_command_run(folder, user, "version", &output);
  if (output.code != 0) skip();
  assert_int_equal(command_place_shell(folder,
                                       "cp text.txt unread && cp -r run unread-run && mkdir closed && cp text.txt closed && "
                                       "chmod 000 unread unread-run && chmod 600 closed && chmod 777 ."),
                   0);
  for (size_t r = 0; r < READERS; r++)
    for (int i = 0; i < 3; i++) {
      const bool folders = strncmp(readers[r].words, "runs", 4) == 0 || strncmp(readers[r].words, "report X", 8) == 0 ||
                           strncmp(readers[r].words, "train --resume", 14) == 0; /* a file is none, whatever it contains */
      const bool files = strstr(readers[r].words, "--evaluation -o") != NULL;    /* a folder is none */
      if ((i == 0 && folders) || (i == 1 && files)) continue;
      test_command_run(folder, user, put_in(readers[r].words, unread[i], words, sizeof words), &output);
      if (output.code != HARK_EXIT_DISK || strstr(output.err, "Permission denied") == NULL)
        fail_msg("hark %s: %d\n%s", words, output.code, output.err);
    }
}

/* An undamaged run that lacks what is asked for. */
static void a_model_without_kernels_has_one_code(void **state) {
  (void)state;
  static const char *const cases[] = {"plot plain --positional -o p.svg", "kernels fit plain --text text.txt",
                                      "kernels export plain --output k.csv"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    command_expect(folder, cases[i], HARK_EXIT_USAGE, "", "this model has no positional kernel", &output);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_of_another_kind_have_one_code),
      cmocka_unit_test(what_is_no_model_is_named),
      cmocka_unit_test(a_missing_permission_has_one_code),
      cmocka_unit_test(a_model_without_kernels_has_one_code),
  };
  return cmocka_run_group_tests_name("bad inputs", tests, begin, end);
}
