/* command.c - see command.h. */
#include "support/command.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/flags.h"
#include "support/text_files.h"

#define WORDS_LIMIT 256

void test_output_free(test_output *output) {
  free(output->out);
  free(output->err);
  *output = (test_output){0};
}

/* A whole stream from its beginning, with a zero byte after it. */
static char *read_stream(FILE *stream) {
  size_t length = 0, room = 4096;
  char *text = malloc(room);
  rewind(stream);
  for (size_t got; (got = fread(text + length, 1, room - length - 1, stream)) > 0;) {
    length += got;
    if (room - length < 2) text = realloc(text, room *= 2);
  }
  text[length] = 0;
  return text;
}

void test_command_run(const char *folder, const char *environment, const char *words, test_output *output) {
  char command[4096], settled[4096];
  assert_true(strlen(words) < sizeof settled);
  (void)snprintf(settled, sizeof settled, "%s", words);
  test_flags_settle_text(settled);
  const int length = snprintf(command, sizeof command, "cd '%s' && %s '%s' %s >.out 2>.err", folder, environment, HARK_COMMAND, settled);
  assert_true(length > 0 && (size_t)length < sizeof command);
  test_output_free(output);
  const int status = system(command);
  if (!WIFEXITED(status)) fail_msg("hark %s was killed", words);
  *output = (test_output){WEXITSTATUS(status), test_file_text(folder, ".out"), test_file_text(folder, ".err")};
}

/* Puts `file` in the place of a stream's descriptor; returns a copy of what was there. */
static int redirect(FILE *stream, int descriptor, FILE *file) {
  fflush(stream);
  const int kept = dup(descriptor);
  if (kept < 0 || dup2(fileno(file), descriptor) < 0) fail_msg("redirecting: %s", strerror(errno));
  return kept;
}

static void restore(FILE *stream, int descriptor, int kept) {
  fflush(stream);
  clearerr(stream);
  if (dup2(kept, descriptor) < 0) _exit(1);
  close(kept);
}

void test_command_call(int (*program)(int count, const char *const *words), int count, const char *const *words, test_output *output) {
  FILE *const out = tmpfile(), *const err = tmpfile();
  if (out == NULL || err == NULL) fail_msg("no temporary file: %s", strerror(errno));
  test_output_free(output);
  const int kept_out = redirect(stdout, STDOUT_FILENO, out), kept_err = redirect(stderr, STDERR_FILENO, err);
  const int code = program(count, words);
  restore(stdout, STDOUT_FILENO, kept_out);
  restore(stderr, STDERR_FILENO, kept_err);
  *output = (test_output){code, read_stream(out), read_stream(err)};
  fclose(out);
  fclose(err);
}

void test_command_line(int (*program)(int count, const char *const *words), const char *line, test_output *output) {
  const char *words[WORDS_LIMIT];
  int count = 0;
  char *const copy = strdup(line);
  for (char *at = strtok(copy, " "); at != NULL; at = strtok(NULL, " ")) {
    assert_true(count < WORDS_LIMIT);
    words[count++] = at;
  }
  test_command_call(program, count, words, output);
  free(copy);
}

int test_part_count(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) count++;
  return count;
}

int test_line_count(const char *text) {
  int count = 0;
  for (; *text != 0; text++) count += *text == '\n';
  return count;
}

bool test_comma_locale(const char *folder, const char **name) {
  static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8", "nl_NL.UTF-8"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    *name = names[i];
    if (setlocale(LC_ALL, names[i]) != NULL) return true;
  }
  char command[TEST_PATH_BYTES + 128];
  snprintf(command, sizeof command, "localedef --no-archive -i de_DE -f UTF-8 '%s' >/dev/null 2>&1", test_path(folder, "de_DE.UTF-8"));
  if (system(command) == 0) {
    setenv("LOCPATH", folder, 1);
    *name = names[0];
    if (setlocale(LC_ALL, names[0]) != NULL) return true;
  }
  setlocale(LC_ALL, "C");
  return false;
}
