/* command.h - running the hark command in tests: as a process by the shell, or its main function in this process, which is a thousand times
 * cheaper. Both fail the test when the command is killed. */
#ifndef HARK_TESTS_COMMAND_H
#define HARK_TESTS_COMMAND_H

#include <stdbool.h>

/* What a command gave back. Zero it before the first use; each call frees what the one before left. */
typedef struct test_output {
  int code; /* exit code */
  char *out, *err;
} test_output;
void test_output_free(test_output *output);

/* Runs "cd FOLDER && ENVIRONMENT hark WORDS" by the shell. */
void test_command_run(const char *folder, const char *environment, const char *words, test_output *output);

/* Calls a main function with its stdout and stderr caught; words[0] is the program. Files are relative to the test's own folder. */
void test_command_call(int (*program)(int count, const char *const *words), int count, const char *const *words, test_output *output);

/* The same with one line of words, split at blanks. */
void test_command_line(int (*program)(int count, const char *const *words), const char *line, test_output *output);

int test_line_count(const char *text);
/* How often a part is in a text. */
int test_part_count(const char *text, const char *part);

/* Makes the process's locale one whose decimal point is a comma: an installed one, or one that localedef makes in `folder`, for which
 * LOCPATH is set. False, and the C locale, where neither can be had; *name is the locale's. */
bool test_comma_locale(const char *folder, const char **name);

#endif
