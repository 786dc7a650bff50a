/* slow_merges.c - see slow_merges.h. */
#include "support/slow_merges.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"

void slow_merges_begin_word(slow_merges *s) {
  assert_true(s->words < SLOW_WORDS);
  s->length[s->words++] = 0;
}

void slow_merges_add(slow_merges *s, int symbol) {
  int *const length = &s->length[s->words - 1];
  assert_true(*length < SLOW_SYMBOLS);
  s->symbol[s->words - 1][(*length)++] = symbol;
}

static int count_pair(const slow_merges *s, int left, int right) {
  int count = 0;
  for (int w = 0; w < s->words; w++)
    for (int i = 0; i + 1 < s->length[w]; i++) count += s->symbol[w][i] == left && s->symbol[w][i + 1] == right;
  return count;
}

static int joined_text(slow_merges *s, int left, int right) {
  char joined[2 * SLOW_SYMBOLS + 2];
  (void)snprintf(joined, sizeof joined, "%s%s", s->text[left], s->text[right]);
  for (int t = 0; t < s->texts; t++)
    if (strcmp(s->text[t], joined) == 0) fail_msg("'%s' is made twice", joined);
  (void)snprintf(s->text[s->texts], sizeof s->text[0], "%.*s", SLOW_SYMBOLS, joined);
  return s->texts++;
}

static void merge(slow_merges *s, int left, int right, int symbol) {
  for (int w = 0; w < s->words; w++) {
    int made = 0;
    for (int i = 0; i < s->length[w]; made++) {
      const bool here = i + 1 < s->length[w] && s->symbol[w][i] == left && s->symbol[w][i + 1] == right;
      s->symbol[w][made] = here ? symbol : s->symbol[w][i];
      i += here ? 2 : 1;
    }
    s->length[w] = made;
  }
}

static bool best_pair(const slow_merges *s, int *left, int *right) {
  int best = 0;
  for (int w = 0; w < s->words; w++)
    for (int i = 0; i + 1 < s->length[w]; i++) {
      const int a = s->symbol[w][i], b = s->symbol[w][i + 1], count = count_pair(s, a, b);
      if (count < best || (count == best && (a > *left || (a == *left && b >= *right)))) continue;
      best = count;
      *left = a;
      *right = b;
    }
  return best > 0;
}

void slow_merges_learn(slow_merges *s, int texts) {
  s->merges = 0;
  for (int left = 0, right = 0; s->texts < texts && best_pair(s, &left, &right);) {
    s->left[s->merges] = left;
    s->right[s->merges++] = right;
    merge(s, left, right, joined_text(s, left, right));
  }
}

static uint32_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

void slow_merges_text(uint64_t *seed, char *text, size_t words, unsigned letters, unsigned longest) {
  size_t at = 0;
  for (size_t w = 0; w < words; w++) {
    if (w > 0) text[at++] = ' ';
    const unsigned length = 1 + next_random(seed) % longest;
    const char first = next_random(seed) % 8 == 0 ? '0' : next_random(seed) % 8 == 0 ? 'A' : 'a';
    for (unsigned i = 0; i < length; i++) text[at++] = (char)(first + (char)(next_random(seed) % letters));
  }
  text[at] = '\0';
}
