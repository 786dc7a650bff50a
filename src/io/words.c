/* words.c - see words.h. */
#include "io/words.h"

#include <string.h>

#include "core/core.h"

/* ASCII only, in every locale. */
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
static bool same(char a, char b) { return lower(a) == lower(b); }

const char *hark_next_word(const char **at, char separator, size_t *length) {
  const char *first = *at;
  while (*first == separator) first++;
  if (*first == 0) return NULL;
  const char *end = first;
  while (*end != 0 && *end != separator) end++;
  *at = end;
  *length = (size_t)(end - first);
  return first;
}

/* Optimal string alignment, ignoring case: insert, delete, replace or swap two adjacent letters, one step each, row by row: d[i][j] =
 * min(d[i-1][j] + 1, d[i][j-1] + 1, d[i-1][j-1] + [a_i != b_j], and d[i-2][j-2] + 1 where a_i a_{i-1} = b_{j-1} b_j). */
int hark_word_distance(const char *a, const char *b) {
  int rows[3][HARK_WORD_BYTES];
  const int columns = (int)strlen(b);
  if (strlen(a) >= HARK_WORD_BYTES || columns >= HARK_WORD_BYTES) return HARK_WORD_BYTES;
  for (int j = 0; j <= columns; j++) rows[0][j] = j;
  int i = 1;
  for (; a[i - 1] != 0; i++) {
    int *const row = rows[i % 3];
    const int *const above = rows[(i + 2) % 3], *const two_above = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= columns; j++) {
      row[j] = (int)hark_min(above[j - 1] + !same(a[i - 1], b[j - 1]), 1 + hark_min(above[j], row[j - 1]));
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) row[j] = (int)hark_min(row[j], two_above[j - 2] + 1);
    }
  }
  return rows[(i - 1) % 3][columns];
}

bool hark_word_begins(const char *word, const char *letters) {
  while (*letters != '\0' && same(*word, *letters)) {
    word++;
    letters++;
  }
  return *letters == '\0';
}

/* Two words are near if at most a third of the letters, or one letter, differ. */
int hark_word_near(const char *word) { return (int)hark_max(1, (int64_t)strlen(word) / 3); }

const char *hark_nearest_word(const char *word, int count, const char *(*name)(const void *user, int index), const void *user) {
  const char *nearest = NULL;
  int best = hark_word_near(word) + 1;
  for (int i = 0; i < count; i++) {
    const char *const candidate = name(user, i);
    const int steps = hark_word_distance(word, candidate);
    if (steps < best) {
      best = steps;
      nearest = candidate;
    }
  }
  return nearest;
}
