/* flags.c - see flags.h. */
#include "support/flags.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Characters of "--name" at the beginning of a word; 0: it is no flag. */
static size_t name_length(const char *word) { return strncmp(word, "--", 2) == 0 ? strcspn(word, "= ") : 0; }

static bool collects(const char *word, size_t length) {
  static const char *const lists[] = {"--data",          "--validation",      "--test", "--train.freeze", "--freeze",
                                      "--allow-missing", "--allow-unexpected"};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (strlen(lists[i]) == length && strncmp(lists[i], word, length) == 0) return true;
  return strncmp(word, "--model.ahca.", 13) == 0;
}

int test_flags_settle(const char **words, int count) {
  int kept = 0;
  for (int i = 0; i < count; i++) {
    const size_t length = name_length(words[i]);
    bool again = false;
    for (int k = i + 1; k < count && length > 0 && !collects(words[i], length); k++)
      again = again || (name_length(words[k]) == length && strncmp(words[i], words[k], length) == 0);
    if (!again) words[kept++] = words[i];
  }
  return kept;
}

/* The word after the one at `at`, which may have quotes in it. */
static char *next_word(char *at) {
  for (char quote = '\0'; *at != '\0' && (quote != '\0' || *at != ' '); at++) {
    if (quote == '\0' && (*at == '\'' || *at == '"'))
      quote = *at;
    else if (*at == quote)
      quote = '\0';
  }
  return at + strspn(at, " ");
}

void test_flags_settle_text(char *text) {
  if (strncmp(text, "train ", 6) != 0 && strncmp(text, "bench ", 6) != 0) return;
  for (char *at = text; *at != '\0' && strchr("|;&", *at) == NULL;) {
    const size_t length = name_length(at);
    char *end = next_word(at);
    const bool has_value = at[length] == '=';
    bool again = false;
    for (char *later = end; *later != '\0' && length > 0 && !collects(at, length); later = next_word(later))
      again = again || (name_length(later) == length && strncmp(at, later, length) == 0);
    if (again && !has_value && strncmp(end, "--", 2) != 0) end = next_word(end);
    if (again)
      memmove(at, end, strlen(end) + 1);
    else
      at = end;
  }
}
