/* test_outputs.c - where outputs go, and what becomes of them when something is in the way: links, devices and pipes, closed streams, full
 * disks, limits and signals. Every case is a process of its own. */
#define _XOPEN_SOURCE 700 /* mkfifo, symlink */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

/* gnuplots for this test: a picture of 100,000 bytes once the script is read; half a picture and a failure; nothing. */
static const char *const gnuplots[][2] = {
    {"whole/gnuplot", "#!/bin/sh\ncat >script\nhead -c 100000 /dev/zero\n"},
    {"half/gnuplot", "#!/bin/sh\ncat >/dev/null\nhead -c 50000 /dev/zero\nexit 3\n"},
    {"deaf/gnuplot", "#!/bin/sh\nexec <&-\nhead -c 50000 /dev/zero\n"},
    {"mute/gnuplot", "#!/bin/sh\ncat >/dev/null\n"},
};

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  command_expect(folder, "train --data text.txt --out run --steps 3 " COMMAND_TINY, 0, "", "", &output);
  (void)test_file_write_text(folder, "metrics.jsonl", "{\"step\": 1, \"train/loss\": 2}\n{\"step\": 2, \"train/loss\": 1}\n");
  for (size_t i = 0; i < sizeof gnuplots / sizeof *gnuplots; i++)
    if (chmod(test_file_write_text(folder, gnuplots[i][0], gnuplots[i][1]), 0755) != 0) return 1;
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

/* Runs a line of the shell in the folder, where $H is the command. Returns its exit code; stderr is in .err. */
static int shell(const char *line) {
  char command[4096];
  const int length = snprintf(command, sizeof command, "cd '%s' && H='%s' && { %s\n} 2>.err", folder, HARK_COMMAND, line);
  assert_true(length > 0 && (size_t)length < sizeof command);
  const int status = system(command);
  if (!WIFEXITED(status)) fail_msg("%s: was killed", line);
  return WEXITSTATUS(status);
}

static void shell_expect(const char *line, int code, const char *in_err) {
  const int got = shell(line);
  char *const err = test_file_text(folder, ".err");
  if (got != code || strstr(err, in_err) == NULL)
    fail_msg("%s: exit code %d, expected %d and \"%s\"; stderr: %s", line, got, code, in_err, err);
  free(err);
}

static mode_t mode_of(const char *name) {
  struct stat information;
  if (lstat(test_path(folder, name), &information) != 0) fail_msg("%s: %s", name, strerror(errno));
  return information.st_mode;
}

static void expect_same(const char *a, const char *b) {
  char line[512];
  (void)snprintf(line, sizeof line, "cmp %s %s", a, b);
  shell_expect(line, 0, "");
}

/* ---- what is there stays what it is ---- */

static void outputs_replace_regular_files_only(void **state) {
  (void)state;
  shell_expect("$H export run --output model", 0, "");
  shell_expect("echo old >real && chmod 600 real && ln -sf real link && $H export run --output link", 0, "");
  assert_true(S_ISLNK(mode_of("link")));
  assert_int_equal(mode_of("real"), S_IFREG | 0600);
  expect_same("real", "model");
  shell_expect("mkfifo pipe; cat pipe >through & $H export run --output pipe && wait", 0, "");
  assert_true(S_ISFIFO(mode_of("pipe")));
  expect_same("through", "model");
  shell_expect("$H export run --output /dev/null", 0, "");
  shell_expect("$H export run --output /dev/stdout | cat >through", 0, "/dev/stdout: "); /* the words about it are on stderr */
  expect_same("through", "model");
  shell_expect("$H export run --output /dev/stdout >through", 0, "/dev/stdout: ");
  shell_expect("$H export run --output /dev/stdout >&-", HARK_EXIT_DISK, "/dev/stdout: cannot be written: Bad file descriptor");
  expect_same("through", "model");
  shell_expect("mkdir -p taken && $H export run --output taken", HARK_EXIT_DISK, "taken: is a folder, expected a file");
  if (shell("rm -f device; mknod device c 1 3") != 0) return; /* not root */
  shell_expect("$H export run --output device", 0, "");
  assert_true(S_ISCHR(mode_of("device")));
}

static void pictures_replace_regular_files_only(void **state) {
  (void)state;
  shell_expect("echo old >real && chmod 640 real && ln -sf real link && PATH=$PWD/whole:$PATH $H plot metrics.jsonl -o link", 0, "");
  assert_true(S_ISLNK(mode_of("link")));
  assert_int_equal(mode_of("real"), S_IFREG | 0640);
  shell_expect("head -c 100000 /dev/zero | cmp - real", 0, "");
  shell_expect("PATH=$PWD/whole:$PATH $H plot metrics.jsonl -o /dev/stdout | cmp - real", 0, "");
  shell_expect("PATH=$PWD/whole:$PATH $H plot metrics.jsonl -o /dev/null && test -c /dev/null", 0, "");
  shell_expect("test ! -e /dev/null.dat && test ! -e /dev/null.gp && test ! -e link.dat && test ! -e link.gp", 0, "");
  shell_expect("grep -q 'index 0' script && grep -q '^2 1$' script", 0, "");
}

static void data_folders_keep_their_links_and_permissions(void **state) {
  (void)state;
  shell_expect("mkdir place && chmod 700 place && ln -s place to-place", 0, "");
  shell_expect("$H data make recall --length 24 --pairs 4 --training 2 --out to-place >/dev/null", 0, "");
  assert_true(S_ISLNK(mode_of("to-place")));
  assert_int_equal(mode_of("place"), S_IFDIR | 0700);
  shell_expect("test -f place/task.json && mkdir inside && cd inside && $H data make copy --length 24 --training 2 --out . >/dev/null", 0,
               "");
  shell_expect("test -f inside/task.json", 0, "");
}

/* ---- places that cannot be written ---- */

/* A path that is too long for any file is an output that cannot be written, whichever option names it. */
static void paths_may_be_too_long(void **state) {
  (void)state;
  static const char *const calls[] = {
      "train --data short.txt --steps 1 --layers 1 --heads 1 --width 8 --context 8 --batch 1 --out",
      "data make listops --out",
      "report . --output",
      "plot . -o",
      "lab sphere --figure",
  };
  (void)test_file_write_text(folder, "short.txt", "a text of more than sixteen tokens, whose run is not begun");
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    char line[512];
    (void)snprintf(line, sizeof line,
                   "part=$(printf '%%0100d/' 0) && long= && for i in $(seq 50); do long=$long$part; done && $H %s ${long}end", calls[i]);
    shell_expect(line, HARK_EXIT_DISK, "--");
  }
}

/* The other files that the calls name are missing, or not what they need: the outputs are examined first. */
static void places_are_examined_before_the_work(void **state) {
  (void)state;
  static const struct {
    const char *words, *in_err;
  } cases[] = {
      {"attend --input none --output taken", "--output taken: is a folder, expected a file"},
      {"attend --input none --output none/out", "--output none/out: none/: cannot be written: No such file"},
      {"attend --input none --output text.txt/out", "--output text.txt/out: cannot be written: Not a directory"},
      {"report none -o taken", "--output taken: is a folder"},
      {"report none -o none/page.html", "--output none/page.html: none/: cannot be written"},
      {"inspect run --text none --figure none/f.svg", "--figure none/f.svg: none/: cannot be written"},
      {"inspect run --text none --figure taken", "--figure taken: is a folder"},
      {"import none -o none/model", "--output none/model: none/: cannot be written"},
      {"export run -o taken/", "--output taken/: is a folder"},
      {"export run -o none/model", "--output none/model: none/: cannot be written"},
      {"export run --format tokenizer.json -o none/t", "--output none/t: none/: cannot be written"},
      {"export run --format huggingface -o text.txt", "--output text.txt: is a file, expected a folder"},
      {"embed run none -o none/rows", "--output none/rows: none/: cannot be written"},
      {"lab rank-map --quick --figure none/f.svg", "--figure none/f.svg: none/: cannot be written"},
      {"lab rank-map --quick --out text.txt", "--out text.txt: is a file, expected a folder"},
      {"lab rank-map --quick --markdown text.txt/lab.md", "--markdown text.txt/lab.md: text.txt/.: "},
      {"lab rank-map --quick --markdown taken.md", "--markdown taken.md: is a folder"},
      {"data make copy --length 24 --training 2 --out text.txt/data", "--out text.txt/data: cannot be a folder: Not a directory"},
      {"data picture none --out none/sheet.svg", "--out none/sheet.svg: none/: cannot be written"},
      {"kernels export run --output none/t.csv", "--output none/t.csv: none/: cannot be written"},
      {"kernels search --data none --out text.txt", "--out text.txt: is a file, expected a folder"},
      {"positional decay --figure none/f.svg", "--figure none/f.svg: none/: cannot be written"},
      {"plot none -o none/x.svg", "--output none/x.svg: none/: cannot be written"},
      {"train --data text.txt --out text.txt/run " COMMAND_TINY, "--out text.txt/run: cannot be a folder: Not a directory"},
      {"train --data text.txt --out dangling/run " COMMAND_TINY, "--out dangling/run: dangling: cannot be a folder"},
      {"sweep place.yaml", "place.yaml: 'out': text.txt: is a file, expected a folder"},
  };
  shell_expect("mkdir -p taken taken.md && ln -sfn nowhere dangling", 0, "");
  (void)test_file_write_text(folder, "place.yaml", "out: text.txt\nsettings: {data.paths: none, train.steps: 3}\nvariants: {a: {}}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[512];
    (void)snprintf(line, sizeof line, "$H %s >/dev/null", cases[i].words);
    shell_expect(line, HARK_EXIT_DISK, cases[i].in_err);
  }
  shell_expect("test ! -e none && test -z \"$(ls taken)\"", 0, "");
}

/* ---- closed standard streams ---- */

static void closed_streams_get_no_file(void **state) {
  (void)state;
  static const struct {
    const char *streams;
    int code; /* the run is complete; its last words may be lost */
  } closed[] = {
      {"<&-", 0},
      {">&-", HARK_EXIT_DISK},
      {"2>&-", 0},
      {"<&- >&-", HARK_EXIT_DISK},
      {"<&- 2>&-", 0},
      {">&- 2>&-", HARK_EXIT_DISK},
      {"<&- >&- 2>&-", HARK_EXIT_DISK},
  };
  for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
    char line[640];
    (void)snprintf(line, sizeof line,
                   "rm -rf detached; $H train --data text.txt --out detached --steps 3 " COMMAND_TINY
                   " %s; test $? = %d || exit 1\n"
                   "grep -qv '^{.*}$' detached/metrics.jsonl && exit 2\n"
                   "grep -qv '^[0-9]*$' detached/.lock && exit 3\n"
                   "$H verify detached >/dev/null || exit 4\n"
                   "$H train --resume --out detached --steps 5 >/dev/null %s; test $? = %d || exit 5",
                   closed[i].streams, closed[i].code, closed[i].streams, closed[i].code);
    shell_expect(line, 0, "");
  }
}

/* ---- full disks ---- */

static void half_a_picture_is_no_picture(void **state) {
  (void)state;
  static const struct {
    const char *gnuplot, *output;
    int code;
    const char *in_err;
  } cases[] = {
      {"whole", "/dev/full", HARK_EXIT_DISK, "/dev/full: cannot be written"},
      {"whole", "new.svg", 0, ""},
      {"half", "failed.svg", HARK_EXIT_FAILED, "gnuplot failed"},
      {"deaf", "deaf.svg", 0, ""}, /* it read nothing and says that it is content */
      {"mute", "mute.svg", HARK_EXIT_FAILED, "gnuplot failed"},
      {"half", "/dev/null", HARK_EXIT_FAILED, "gnuplot failed"},
  };
  if (access("/dev/full", W_OK) != 0) skip();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[512];
    (void)snprintf(line, sizeof line, "PATH=$PWD/%s:$PATH $H plot metrics.jsonl -o %s >/dev/null", cases[i].gnuplot, cases[i].output);
    shell_expect(line, cases[i].code, cases[i].in_err);
    (void)snprintf(line, sizeof line, "PATH=$PWD/%s:$PATH $H lab rank-map --quick --figure %s >/dev/null", cases[i].gnuplot,
                   cases[i].output);
    shell_expect(line, cases[i].code, cases[i].in_err);
  }
  shell_expect("test -c /dev/full && test -c /dev/null && test ! -e failed.svg && test ! -e mute.svg && test -s new.svg", 0, "");
  /* the old picture stays, and what gnuplot would need is there to look at */
  shell_expect("echo old >kept.svg; PATH=$PWD/half:$PATH $H plot metrics.jsonl -o kept.svg", HARK_EXIT_FAILED, "kept.svg.gp");
  shell_expect("grep -q old kept.svg && test -s kept.svg.gp && test -s kept.svg.dat", 0, "");
  shell_expect("test -z \"$(ls -A | grep tmp-)\"", 0, "");
}

static void words_that_do_not_arrive_are_reported(void **state) {
  (void)state;
  static const char *const words[] = {"info run",
                                      "info run --json",
                                      "verify run",
                                      "config",
                                      "config --markdown",
                                      "version",
                                      "--version",
                                      "--help",
                                      "help train",
                                      "train --help",
                                      "man",
                                      "man train",
                                      "plot --terminal run",
                                      "lab --list",
                                      "lab rank-map --quick",
                                      "lab rank-map --quick --json",
                                      "positional decay",
                                      "eval run",
                                      "eval run --json",
                                      "generate run --max-new-tokens 3",
                                      "export run --output model",
                                      "completion bash",
                                      "data make copy --length 24 --training 2 --out words",
                                      "data info --format sequences inside",
                                      "train --data text.txt --estimate"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    char line[512];
    (void)snprintf(line, sizeof line, "rm -rf words; $H %s >&-", words[i]);
    shell_expect(line, HARK_EXIT_DISK, "standard output: cannot be written: Bad file descriptor");
    if (access("/dev/full", W_OK) != 0) continue;
    (void)snprintf(line, sizeof line, "rm -rf words; $H %s >/dev/full", words[i]);
    shell_expect(line, HARK_EXIT_DISK, "standard output: cannot be written");
  }
}

static void a_closed_input_is_no_empty_text(void **state) {
  (void)state;
  static const char *const words[] = {"embed run -",    "generate run --file -", "eval run --data -",
                                      "tokenize run -", "detokenize run -",      "inspect run --text -"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    char line[512];
    (void)snprintf(line, sizeof line, "$H %s <&- >/dev/null", words[i]);
    shell_expect(line, HARK_EXIT_DISK, "standard input: cannot be read");
  }
}

/* ---- limits ---- */

/* The shell's unit is 512 or 1,024 bytes. */
static void the_limit_of_a_file_is_a_full_disk(void **state) {
  (void)state;
  shell_expect("(ulimit -f 4; $H export run --output limited)", HARK_EXIT_DISK, "limited: cannot be written");
  shell_expect("test ! -e limited", 0, "");
  shell_expect("(ulimit -f 4; $H config --markdown >limited)", HARK_EXIT_DISK, "standard output: cannot be written");
  shell_expect("(ulimit -f 4; $H train --data text.txt --out limited-run --steps 3 " COMMAND_TINY ")", HARK_EXIT_DISK, "cannot be written");
  shell_expect("(ulimit -f 4; PATH=$PWD/whole:$PATH $H plot metrics.jsonl -o limited.svg)", HARK_EXIT_DISK,
               "limited.svg: cannot be written");
  shell_expect("test ! -e limited.svg && test -z \"$(ls -A | grep tmp-)\"", 0, "");
}

/* ---- signals ---- */

#define LONG_TASK "data make pathfinder --size 32 --training 1000000 --threads 1 --out made"

/* The names with ".tmp-" in the test's folder. */
static int temporaries(void) {
  DIR *const names = opendir(folder);
  int count = 0;
  assert_non_null(names);
  for (const struct dirent *entry; (entry = readdir(names)) != NULL;) count += strstr(entry->d_name, ".tmp-") != NULL;
  closedir(names);
  return count;
}

/* Starts the command with one word for each argument; waits until it works on something temporary. */
static pid_t start_long_task(void) {
  char words[] = LONG_TASK, *arguments[16] = {"hark"};
  int count = 1;
  for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) arguments[count++] = word;
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    if (chdir(folder) == 0 && freopen("/dev/null", "w", stderr) != NULL) execv(HARK_COMMAND, arguments);
    _exit(127);
  }
  const struct timespec moment = {.tv_nsec = 2000000};
  for (int i = 0; i < 20000 && temporaries() == 0; i++) (void)nanosleep(&moment, NULL);
  assert_int_equal(temporaries(), 1);
  (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  return process;
}

static void end_long_task(int number, int left) {
  const pid_t process = start_long_task();
  int status;
  assert_int_equal(kill(process, number), 0);
  assert_int_equal(waitpid(process, &status, 0), process);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), number);
  assert_int_equal(temporaries(), left);
}

static void an_interrupted_task_leaves_nothing(void **state) {
  (void)state;
  end_long_task(SIGINT, 0);
  end_long_task(SIGTERM, 0);
  end_long_task(SIGHUP, 0);
}

static void what_a_killed_task_left_is_removed_by_the_next(void **state) {
  (void)state;
  end_long_task(SIGKILL, 1);
  shell_expect("$H data make pathfinder --size 32 --training 2 --validation 0 --test 0 --out other >/dev/null", 0,
               ""); /* another place: not ours to remove */
  assert_int_equal(temporaries(), 1);
  shell_expect("$H data make pathfinder --size 32 --training 2 --validation 0 --test 0 --out made >/dev/null", 0, "");
  assert_int_equal(temporaries(), 0);
  shell_expect("test -f made/task.json", 0, "");
}

/* Files of a process that does not run any more, beside each kind of output. */
static void every_output_is_cleaned_up_beside(void **state) {
  (void)state;
  static const struct {
    const char *name, *words;
  } cases[] = {
      {"model", "export run --output model"},
      {"new.svg", "plot metrics.jsonl -o new.svg"},
      {"figure.svg", "lab rank-map --quick --figure figure.svg"},
      {"page.md", "lab rank-map --quick --markdown page.md"},
      {"sheet.svg", "data picture other --out sheet.svg --format pathfinder --count 1"},
      {"hark.1", "man --folder ."},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[512];
    (void)snprintf(line, sizeof line, "echo x >.%s.tmp-999999999-0 && PATH=$PWD/whole:$PATH $H %s >/dev/null", cases[i].name,
                   cases[i].words);
    shell_expect(line, 0, "");
    if (temporaries() != 0) fail_msg("hark %s: what a killed process left is still there", cases[i].words);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(outputs_replace_regular_files_only),
      cmocka_unit_test(pictures_replace_regular_files_only),
      cmocka_unit_test(places_are_examined_before_the_work),
      cmocka_unit_test(data_folders_keep_their_links_and_permissions),
      cmocka_unit_test(paths_may_be_too_long),
      cmocka_unit_test(closed_streams_get_no_file),
      cmocka_unit_test(half_a_picture_is_no_picture),
      cmocka_unit_test(words_that_do_not_arrive_are_reported),
      cmocka_unit_test(a_closed_input_is_no_empty_text),
      cmocka_unit_test(the_limit_of_a_file_is_a_full_disk),
      cmocka_unit_test(an_interrupted_task_leaves_nothing),
      cmocka_unit_test(what_a_killed_task_left_is_removed_by_the_next),
      cmocka_unit_test(every_output_is_cleaned_up_beside),
  };
  return cmocka_run_group_tests_name("outputs", tests, begin, end);
}
