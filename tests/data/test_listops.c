/* test_listops.c - ListOps as it is made: values by an evaluator of another kind, which applies pairs as the parentheses say; lengths,
 * arguments and operators against a simulation of the description; examples that differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/examples/example_folder.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/train/task_place.h"

#define NAMES_BYTES 64

/* ---- values ---- */

/* What a pair's left side is: an operator with the arguments that it has met, by value. */
typedef struct term {
  char operator; /* 0: a digit; ']': the bracket */
  int digit;
  int count[10];
} term;

typedef struct scan {
  const char *at;
  int64_t words; /* but for parentheses */
} scan;

static int finish(const term *t) {
  int all = 0, sum = 0, least = -1, most = 0;
  for (int v = 0; v < 10; v++) {
    all += t->count[v];
    sum += v * t->count[v];
    if (t->count[v] > 0 && least < 0) least = v;
    if (t->count[v] > 0) most = v;
  }
  assert_true(all >= 2);
  if (t->operator== 'I') return least;
  if (t->operator== 'A') return most;
  if (t->operator== 'S') return sum % 10;
  /* The median of n values: the mean of those with ranks (n + 1) / 2 rounded down and up, from the cumulated counts. */
  int low = -1, high = -1;
  for (int v = 0, before = 0; v < 10; before += t->count[v++]) {
    if (low < 0 && before + t->count[v] >= (all + 1) / 2) low = v;
    if (high < 0 && before + t->count[v] >= all / 2 + 1) high = v;
  }
  return (int)floor((low + high) / 2.0);
}

/* Of a text of megabytes, whose end the C library's functions would look for at every word under a sanitizer. */
static bool begins(const char *at, const char *word) {
  while (*word != '\0' && *at == *word) at++, word++;
  return *word == '\0';
}
static const char *end_of_word(const char *at) {
  while (*at != ' ' && *at != '\t' && *at != '\0') at++;
  return at;
}

static term read_term(scan *s) {
  term t = {0};
  while (*s->at == ' ') s->at++;
  if (*s->at == '(') {
    s->at++;
    t = read_term(s);
    const term right = read_term(s);
    while (*s->at == ' ') s->at++;
    if (*s->at++ != ')') fail_msg("no closing parenthesis at \"%.20s\"", s->at);
    if (t.operator== 0 || t.operator== ']') fail_msg("a digit or a bracket is applied at \"%.20s\"", s->at);
    if (right.operator== ']') {
      const term value = {.digit = finish(&t)};
      return value;
    }
    if (right.operator!= 0) fail_msg("an operator is an argument at \"%.20s\"", s->at);
    t.count[right.digit]++;
    return t;
  }
  s->words++;
  if (begins(s->at, "[MAX ")) t.operator= 'A';
  if (begins(s->at, "[MIN ")) t.operator= 'I';
  if (begins(s->at, "[MED ")) t.operator= 'E';
  if (begins(s->at, "[SM ")) t.operator= 'S';
  if (*s->at == ']') t.operator= ']';
  if (t.operator== 0 &&(*s->at < '0' || *s->at > '9')) fail_msg("what is \"%.20s\"?", s->at);
  if (t.operator== 0) t.digit = *s->at - '0';
  s->at = end_of_word(s->at);
  return t;
}

typedef struct listops_counts {
  int64_t examples, operators[4], digits[10], operator_nodes, arguments;
  double length, length_squares;
} listops_counts;

/* Counts an expression by its words, in the order of the text. */
static void count_expression(const char *from, const char *to, listops_counts *c) {
  static const char names[] = "AEIS"; /* the letter after "[M", or 'S' */
  int depth = 0, deepest = 0;
  int64_t words = 0;
  for (const char *at = from; at < to; at = end_of_word(at) + 1) {
    if (*at == '(' || *at == ')') continue;
    words++;
    if (*at != ']' && depth > 0) c->arguments++;
    if (*at == '[') {
      c->operators[strchr(names, at[1] == 'S' ? 'S' : at[2]) - names]++;
      c->operator_nodes++;
      if (++depth > deepest) deepest = depth;
    } else if (*at == ']') {
      depth--;
    } else {
      c->digits[*at - '0']++;
    }
  }
  assert_int_equal(depth, 0);
  assert_true(deepest < 10); /* the operators stand at depths 1 .. 9, so that digits reach 10 */
  assert_true(words > 500 && words < 2000);
  c->examples++;
  c->length += (double)words;
  c->length_squares += (double)words * (double)words;
}

static void check_listops_file(const task_place *f, const char *file, listops_counts *counts) {
  char *const text = task_file(f, "listops", file);
  assert_true(begins(text, "Source\tTarget\n"));
  for (char *line = text + 14; *line != '\0';) {
    char *tab = line;
    while (*tab != '\t' && *tab != '\0') tab++;
    scan s = {.at = line};
    const term value = read_term(&s);
    assert_ptr_equal(s.at, tab);
    assert_int_equal(value.operator, 0);
    if (tab[1] - '0' != value.digit || tab[2] != '\n') fail_msg("value %d, the file says %.2s: %.60s...", value.digit, tab + 1, line);
    count_expression(line, tab, counts);
    line = tab + 3;
  }
  free(text);
}

/* ---- the description, simulated ---- */

static uint64_t simulation = 88172645463325252u; /* Marsaglia, "Xorshift RNGs" (2003) */
static uint32_t draw(void) {
  simulation ^= simulation << 13;
  simulation ^= simulation >> 7;
  simulation ^= simulation << 17;
  return (uint32_t)(simulation >> 32);
}

/* Generation by generation: nodes at a depth, how many are operators, how many arguments those have. */
static void simulate(int64_t *length, int64_t *operators, int64_t *arguments) {
  int64_t nodes = 1;
  *length = *operators = *arguments = 0;
  for (int depth = 1; nodes > 0; depth++) {
    int64_t next = 0;
    for (int64_t i = 0; i < nodes; i++) {
      const bool is_operator = depth < 10 && draw() % 4 == 0;
      *length += is_operator ? 2 : 1;
      *operators += is_operator;
      if (is_operator) next += 2 + draw() % 9;
    }
    *arguments += next;
    nodes = next;
  }
}

static void listops_has_right_values_and_statistics(void **state) {
  const task_place *const f = *state;
  const made_task t = {.name = "listops", .seed = 7, .examples = {1500, 200, 300}};
  listops_counts c = {0};
  task_make(f, "listops", &t);
  check_listops_file(f, "training.tsv", &c);
  check_listops_file(f, "validation.tsv", &c);
  check_listops_file(f, "test.tsv", &c);
  assert_int_equal(c.examples, 2000);
  /* Operators and digits are drawn independently of the shape, hence of what is thrown away: binomial counts. */
  int64_t digits = 0;
  for (int i = 0; i < 10; i++) digits += c.digits[i];
  for (int i = 0; i < 4; i++)
    task_assert_near((double)c.operators[i], (double)c.operator_nodes / 4, sqrt((double)c.operator_nodes * 3 / 16), "share of an operator");
  for (int i = 0; i < 10; i++)
    task_assert_near((double)c.digits[i], (double)digits / 10, sqrt((double)digits * 9 / 100), "share of a digit");
  /* Lengths and arguments depend on what is thrown away: means of two samples. */
  double sum = 0, squares = 0, ratio = 0, ratio_squares = 0;
  int64_t kept = 0;
  while (kept < 10000) {
    int64_t length, operators, arguments;
    simulate(&length, &operators, &arguments);
    if (length <= 500 || length >= 2000) continue;
    kept++;
    sum += (double)length;
    squares += (double)length * (double)length;
    ratio += (double)arguments / (double)operators;
    ratio_squares += pow((double)arguments / (double)operators, 2);
  }
  const double n = (double)kept, m = (double)c.examples, variance = squares / n - pow(sum / n, 2);
  task_assert_near(c.length / m, sum / n, sqrt(variance / n + variance / m), "mean length");
  /* Both variances estimate one; the variance of an estimate is below (range)^2 variance / examples. */
  task_assert_near(c.length_squares / m - pow(c.length / m, 2), variance, 1500 * sqrt(variance / m + variance / n),
                   "variance of the lengths");
  const double ratio_variance = ratio_squares / n - pow(ratio / n, 2);
  /* The mean weighted by operators is within one deviation of a tree of the mean of trees. */
  task_assert_near((double)c.arguments / (double)c.operator_nodes, ratio / n, sqrt(ratio_variance) / 5, "mean number of arguments");
}

static int compare_lines(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Where chance gives the same tree again and again, examples still differ, in all splits together; and where there are too few, that is
 * said. */
static void listops_examples_differ(void **state) {
  const task_place *const f = *state;
  enum { EACH = 300, ALL = 3 * EACH };
  made_task t = {.name = "listops", .seed = 3, .examples = {EACH, EACH, EACH}, .options = {"length-above", "3", "length-below", "6"}};
  const char *lines[ALL];
  char *texts[HARK_SPLIT_ALL];
  int count = 0;
  task_make(f, "small", &t);
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    char name[NAMES_BYTES];
    snprintf(name, sizeof name, "%s.tsv", hark_example_split_names[split]);
    texts[split] = task_file(f, "small", name);
    (void)strtok(texts[split], "\n");
    for (char *line; (line = strtok(NULL, "\n")) != NULL;) lines[count++] = line;
  }
  assert_int_equal(count, ALL);
  qsort(lines, ALL, sizeof *lines, compare_lines);
  for (int i = 1; i < ALL; i++) assert_string_not_equal(lines[i - 1], lines[i]);
  for (int split = 0; split < HARK_SPLIT_ALL; split++) free(texts[split]);
  /* Length 4 is an operator of two digits: 400 expressions. */
  t = (made_task){.name = "listops", .examples = {500, 0, 0}, .options = {"length-above", "3", "length-below", "5"}};
  assert_failure(f->context, task_make_in(f->context, test_path(f->folder, "few"), &t), HARK_BAD_CONFIGURATION, "was found that differs");
  assert_int_equal(hark_path_kind_of(test_path(f->folder, "few")), HARK_PATH_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {TASK_TEST(listops_has_right_values_and_statistics), TASK_TEST(listops_examples_differ)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
