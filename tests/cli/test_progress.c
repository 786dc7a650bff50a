/* test_progress.c - lines that show how far work is: they fit the terminal, what matters most stays, and nothing is rewritten elsewhere. */
#include "cli/progress.h"

#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

static const hark_progress_piece line[] = {{.rank = 0, .text = "step 12345/100000", .brief = "12.3 %"},
                                           {.rank = 1, .text = "loss 2.3456"},
                                           {.rank = 1, .text = ""},
                                           {.rank = 4, .text = "validation 2.3456"},
                                           {.rank = 3, .text = "52.3 k tokens/s"},
                                           {.rank = 5, .text = "19 % of peak"},
                                           {.rank = 2, .text = "1:23:45 left"}};
#define PIECES ((int)(sizeof line / sizeof *line))

static void pieces_go_by_rank(void **state) {
  (void)state;
  static const struct {
    int columns;
    const char *expected;
  } cases[] = {{94, "step 12345/100000  loss 2.3456  validation 2.3456  52.3 k tokens/s  19 % of peak  1:23:45 left"},
               {93, "step 12345/100000  loss 2.3456  validation 2.3456  52.3 k tokens/s  1:23:45 left"},
               {80, "step 12345/100000  loss 2.3456  validation 2.3456  52.3 k tokens/s  1:23:45 left"},
               {79, "step 12345/100000  loss 2.3456  52.3 k tokens/s  1:23:45 left"},
               {59, "step 12345/100000  loss 2.3456  1:23:45 left"},
               {43, "12.3 %  loss 2.3456  1:23:45 left"},
               {39, "12.3 %  loss 2.3456  1:23:45 left"},
               {32, "12.3 %  loss 2.3456"},
               {18, "12.3 %"},
               {3, "12."},
               {0, ""}};
  char out[128];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_progress_fit(line, PIECES, cases[i].columns, out, sizeof out);
    assert_string_equal(out, cases[i].expected);
  }
}

/* Whatever the numbers, nothing is longer than the line, and the time left is there from 40 columns on. */
static void huge_numbers_fit(void **state) {
  (void)state;
  hark_progress_piece huge[PIECES];
  char out[512];
  memcpy(huge, line, sizeof line);
  (void)snprintf(huge[0].text, sizeof huge[0].text, "step 4611686018427387903/9223372036854775807");
  (void)snprintf(huge[0].brief, sizeof huge[0].brief, "50.0 %%");
  (void)snprintf(huge[1].text, sizeof huge[1].text, "loss 1.234e+308");
  (void)snprintf(huge[6].text, sizeof huge[6].text, "999999:59:59 left");
  for (int columns = 1; columns < 200; columns++) {
    hark_progress_fit(huge, PIECES, columns, out, sizeof out);
    assert_true(strlen(out) <= (size_t)columns);
    if (columns >= 59) assert_non_null(strstr(out, "999999:59:59 left"));
  }
  hark_progress_fit(huge, PIECES, 199, out, 20); /* a small buffer is never left */
  assert_true(strlen(out) < 20);
}

/* ---- on a terminal ---- */

/* Runs hark on a terminal of so many columns; what it wrote there, for free(). */
static char *on_terminal(int columns, const char *words) {
  char command[1024], part[512], *text = calloc(1, 1);
  const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
  int terminal = -1, status = 0;
  size_t length = 0;
  ssize_t got;
  (void)snprintf(command, sizeof command, "cd '%s' && TERM=xterm exec '%s' %s", folder, HARK_COMMAND, words);
  const pid_t child = forkpty(&terminal, NULL, NULL, &size);
  assert_true(child >= 0);
  if (child == 0) {
    (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  while ((got = read(terminal, part, sizeof part)) > 0) { /* EIO when the other side is closed */
    text = realloc(text, length + (size_t)got + 1);
    assert_non_null(text);
    memcpy(text + length, part, (size_t)got);
    length += (size_t)got;
    text[length] = '\0';
  }
  (void)close(terminal);
  assert_int_equal(waitpid(child, &status, 0), child);
  if (status != 0) fail_msg("hark %s: %d: %s", words, status, text);
  return text;
}

#define REWRITE "\r\x1b[K"

/* The first rewritten line is that of step 1, whatever the machine's speed. */
static void training_fits_the_terminal(void **state) {
  (void)state;
  static const int widths[] = {120, 80, 60, 40, 20};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    char words[256];
    (void)snprintf(words, sizeof words, "train --data text.txt --out run-%d --steps 3 --layers 1 " COMMAND_SMALL, widths[i]);
    char *const text = on_terminal(widths[i], words);
    int lines = 0;
    bool shown = false;
    for (char *at = strstr(text, REWRITE); at != NULL; at = strstr(at, REWRITE)) {
      at += strlen(REWRITE);
      char rewritten[256];
      const size_t length = strcspn(at, "\r\n\x1b");
      assert_true(length < sizeof rewritten);
      memcpy(rewritten, at, length);
      rewritten[length] = '\0';
      if (strncmp(rewritten, "step 1/3", 8) != 0 && strncmp(rewritten, "33.3 %", 6) != 0) continue;
      lines++;
      if (length >= (size_t)widths[i]) fail_msg("%d columns: \"%s\"", widths[i], rewritten);
      if (widths[i] >= 40 && (strstr(rewritten, "loss ") == NULL || strstr(rewritten, " left") == NULL)) fail_msg("\"%s\"", rewritten);
      if (widths[i] >= 80) assert_non_null(strstr(rewritten, "tokens/s"));
      shown = true;
    }
    if (!shown) fail_msg("%d columns: no line of step 1 in %s", widths[i], text);
    assert_true(lines >= 1);
    free(text);
  }
}

/* Elsewhere lines are whole, one a line, and nothing is rewritten. */
static void nothing_is_rewritten_elsewhere(void **state) {
  (void)state;
  command_expect(folder, "train --data text.txt --out plain --steps 3 --layers 1 " COMMAND_SMALL, HARK_EXIT_DONE, "", "step 1/3  loss ",
                 &output);
  assert_non_null(strstr(output.err, " left\n"));
  assert_null(strchr(output.err, '\r'));
  assert_null(strchr(output.err, '\x1b'));
}

/* ---- sweeps and experiments ---- */

/* Several runs at once: one line counts them, and the lines of the runs are whole, each after its run's name; none rewrites anything. */
static void runs_at_once_are_counted_on_a_terminal(void **state) {
  (void)state;
  test_file_write_text(folder, "jobs.yaml",
                       "out: jobs\nseeds: [1, 2, 3]\nsettings: {data.paths: text.txt, train.steps: 2, train.batch: 2, model.layers: 1, "
                       "model.width: 16, model.heads: 2, model.context: 8, run.threads: 1}\n");
  char *const text = on_terminal(80, "sweep jobs.yaml --jobs 2 --no-picture");
  assert_non_null(strstr(text, REWRITE "0 done, 2 running, 1 left" REWRITE));
  assert_non_null(strstr(text, "all-seed=3: jobs/all-seed=3: step 2 of 2 (done)"));
  for (const char *at = strstr(text, "all-seed="); at != NULL; at = strstr(at + 1, "all-seed=")) {
    const bool begins = at[-1] == '\n' || strncmp(at - strlen(REWRITE), REWRITE, strlen(REWRITE)) == 0;
    if (!begins && at[-1] != '/') fail_msg("in the middle of a line: %s", at - 1);
  }
  for (const char *at = strstr(text, REWRITE); at != NULL; at = strstr(at + 1, REWRITE)) {
    const char *const words = at + strlen(REWRITE);
    if (strncmp(words, "step ", 5) == 0) fail_msg("a run rewrites a line: %s", words);
  }
  free(text);
}

static void a_sweep_says_what_is_left(void **state) {
  (void)state;
  test_file_write_text(folder, "sweep.yaml",
                       "out: swept\nseeds: [1, 2]\nsettings: {data.paths: text.txt, train.steps: 1, model.layers: 1, model.width: 16, "
                       "model.heads: 2, model.context: 8, train.batch: 2, run.threads: 1}\nvariants: {a: {}, b: {train.warmup: 1}}\n");
  command_expect(folder, "sweep sweep.yaml --no-picture", HARK_EXIT_DONE, "", "run 1 of 4: swept/a-seed=1; 4 to train\n", &output);
  assert_non_null(strstr(output.err, "run 2 of 4: swept/a-seed=2; 3 to train, about "));
  assert_non_null(strstr(output.err, "run 4 of 4: swept/b-seed=2; 1 to train, about "));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_go_by_rank),
      cmocka_unit_test(huge_numbers_fit),
      cmocka_unit_test_setup_teardown(training_fits_the_terminal, begin, end),
      cmocka_unit_test_setup_teardown(nothing_is_rewritten_elsewhere, begin, end),
      cmocka_unit_test_setup_teardown(a_sweep_says_what_is_left, begin, end),
      cmocka_unit_test_setup_teardown(runs_at_once_are_counted_on_a_terminal, begin, end),
  };
  return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
