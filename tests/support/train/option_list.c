/* option_list.c - see option_list.h. */
#include "support/train/option_list.h"

#include <string.h>

#include "support/cmocka_all.h"

static bool takes(const hark_option *option, const char *command) {
  if (option->commands == NULL) return true;
  const size_t length = strlen(command);
  for (const char *at = option->commands; (at = strstr(at, command)) != NULL; at += length) {
    if ((at == option->commands || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  }
  return false;
}

test_option_list test_options_of(const hark_command *command) {
  test_option_list list = {.count = 0};
  for (int t = 0; t < HARK_COMMAND_TABLES; t++) {
    bool repeated = false; /* several tasks may share a table */
    for (int earlier = 0; earlier < t; earlier++) repeated = repeated || command->tables[earlier] == command->tables[t];
    if (command->tables[t] == NULL || repeated) continue;
    for (int i = 0; i < command->tables[t]->count; i++) {
      const hark_option *const option = &command->tables[t]->options[i];
      if (!takes(option, command->name)) continue;
      assert_true(list.count < TEST_OPTIONS_LIMIT);
      list.key[list.count] = command->tables[t]->configuration;
      list.items[list.count++] = option;
    }
  }
  return list;
}

void test_long_flag(const hark_option *option, char flag[HARK_OPTION_WORD_BYTES]) {
  for (int i = 0; hark_option_flag(option, i, flag); i++) {
    if (flag[1] == '-') return;
  }
  fail_msg("option %s has no long flag", option->name);
}

void test_positive_flag(const hark_option *option, char flag[HARK_OPTION_WORD_BYTES]) {
  test_long_flag(option, flag);
  if (strncmp(flag, "--no-", 5) == 0) memmove(flag + 2, flag + 5, strlen(flag + 5) + 1);
}
