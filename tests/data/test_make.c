/* test_make.c - generators of tasks against what they promise, from the files that they write.
 *
 * ListOps: values by an evaluator of another kind, which applies pairs as the parentheses say; lengths, arguments and operators against a
 * simulation of the description. Pathfinder: classes by following lit pixels from one disc. Recall, copy, passkey: targets from what stands in
 * front. All: equal for equal seeds, whatever the number of threads and of examples; a folder whole or not at all.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/core.h"
#include "data/example_folder.h"
#include "data/make.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"

#define SIGMAS 5.0
#define NAMES_BYTES 64

typedef struct fixture {
  test_memory memory;
  hark_context *context;
  char folder[TEST_PATH_BYTES];
} fixture;

static int begin(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  f->context = test_memory_context(&f->memory);
  test_folder_make(f->folder);
  *state = f;
  return 0;
}

static int end(void **state) {
  fixture *const f = *state;
  test_folder_remove(f->folder);
  test_memory_context_end(f->context, &f->memory);
  free(f);
  return 0;
}

/* A task with options by name and value, up to a NULL. */
typedef struct task {
  const char *name;
  uint64_t seed;
  int64_t examples[HARK_SPLIT_ALL];
  const char *options[14];
} task;

static hark_status make_in(hark_context *context, const char *folder, const task *t) {
  const hark_task_entry *const entry = hark_task_find(t->name);
  void *const values = calloc(1, entry->generator->options->values_size);
  const hark_option_group group = {entry->generator->options, values};
  hark_options *options;
  hark_text report = hark_text_empty(context);
  hark_status status = hark_options_create(context, NULL, &group, 1, &options);
  for (int i = 0; status == HARK_OK && t->options[i] != NULL; i += 2)
    status = hark_options_set(context, options, t->options[i], t->options[i + 1], "test", HARK_SOURCE_COMMAND);
  if (status == HARK_OK) status = hark_options_finish(context, options);
  hark_task_settings settings = {.entry = entry, .values = values, .folder = folder, .seed = t->seed};
  memcpy(settings.examples, t->examples, sizeof settings.examples);
  if (status == HARK_OK) status = hark_task_make(context, &settings, &report);
  hark_text_free(&report);
  hark_options_destroy(context, &options);
  free(values);
  return status;
}

static void make(const fixture *f, const char *name, const task *t) {
  assert_fine(f->context, make_in(f->context, test_path(f->folder, name), t));
}

static hark_examples *open_folder(const fixture *f, const char *name) {
  const char *const path = test_path(f->folder, name);
  const hark_examples_settings settings = {.paths = &path, .path_count = 1};
  hark_examples *e;
  assert_fine(f->context, hark_examples_open(f->context, &settings, &e));
  return e;
}

/* FOLDER/NAME/FILE as text. */
static char *file_of(const fixture *f, const char *name, const char *file) {
  char path[2 * NAMES_BYTES];
  snprintf(path, sizeof path, "%s/%s", name, file);
  return test_file_text(f->folder, path);
}

/* ---- ListOps: values ---- */

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
  if (strncmp(s->at, "[MAX ", 5) == 0) t.operator= 'A';
  if (strncmp(s->at, "[MIN ", 5) == 0) t.operator= 'I';
  if (strncmp(s->at, "[MED ", 5) == 0) t.operator= 'E';
  if (strncmp(s->at, "[SM ", 4) == 0) t.operator= 'S';
  if (*s->at == ']') t.operator= ']';
  if (t.operator== 0 &&(*s->at < '0' || *s->at > '9')) fail_msg("what is \"%.20s\"?", s->at);
  if (t.operator== 0) t.digit = *s->at - '0';
  s->at += strcspn(s->at, " \t");
  return t;
}

typedef struct listops_counts {
  int64_t examples, operators[4], digits[10], operator_nodes, arguments;
  double length, length_squares;
} listops_counts;

/* Counts an expression by its words, in the order of the text. */
static void count_expression(const char *from, const char *to, listops_counts *c) {
  static const char names[] = "AEIS"; /* the letter behind "[M", or 'S' */
  int depth = 0, deepest = 0;
  int64_t words = 0;
  for (const char *at = from; at < to; at += strcspn(at, " \t") + 1) {
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

static void check_listops_file(const fixture *f, const char *file, listops_counts *counts) {
  char *const text = file_of(f, "listops", file);
  assert_int_equal(strncmp(text, "Source\tTarget\n", 14), 0);
  for (char *line = text + 14; *line != '\0';) {
    char *const tab = strchr(line, '\t');
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

/* ---- ListOps: the description, simulated ---- */

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

static void assert_near(double measured, double expected, double deviation, const char *what) {
  if (fabs(measured - expected) > SIGMAS * deviation)
    fail_msg("%s: %.6g, expected %.6g within %.3g", what, measured, expected, SIGMAS * deviation);
}

static void listops_has_right_values_and_statistics(void **state) {
  const fixture *const f = *state;
  const task t = {.name = "listops", .seed = 7, .examples = {1500, 200, 300}};
  listops_counts c = {0};
  make(f, "listops", &t);
  check_listops_file(f, "training.tsv", &c);
  check_listops_file(f, "validation.tsv", &c);
  check_listops_file(f, "test.tsv", &c);
  assert_int_equal(c.examples, 2000);
  /* Operators and digits are drawn independently of the shape, hence of what is thrown away: binomial counts. */
  int64_t digits = 0;
  for (int i = 0; i < 10; i++) digits += c.digits[i];
  for (int i = 0; i < 4; i++)
    assert_near((double)c.operators[i], (double)c.operator_nodes / 4, sqrt((double)c.operator_nodes * 3 / 16), "share of an operator");
  for (int i = 0; i < 10; i++) assert_near((double)c.digits[i], (double)digits / 10, sqrt((double)digits * 9 / 100), "share of a digit");
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
  assert_near(c.length / m, sum / n, sqrt(variance / n + variance / m), "mean length");
  /* Both variances estimate one; the variance of an estimate is below (range)^2 variance / examples. */
  assert_near(c.length_squares / m - pow(c.length / m, 2), variance, 1500 * sqrt(variance / m + variance / n), "variance of the lengths");
  const double ratio_variance = ratio_squares / n - pow(ratio / n, 2);
  /* The mean weighted by operators is within one deviation of a tree of the mean of trees. */
  assert_near((double)c.arguments / (double)c.operator_nodes, ratio / n, sqrt(ratio_variance) / 5, "mean number of arguments");
}

static int compare_lines(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Where chance gives the same tree again and again, examples still differ, in all splits together; and where there are too few, that is said. */
static void listops_examples_differ(void **state) {
  const fixture *const f = *state;
  enum { EACH = 300, ALL = 3 * EACH };
  task t = {.name = "listops", .seed = 3, .examples = {EACH, EACH, EACH}, .options = {"length-above", "3", "length-below", "6"}};
  const char *lines[ALL];
  char *texts[HARK_SPLIT_ALL];
  int count = 0;
  make(f, "small", &t);
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    char name[NAMES_BYTES];
    snprintf(name, sizeof name, "%s.tsv", hark_example_split_names[split]);
    texts[split] = file_of(f, "small", name);
    (void)strtok(texts[split], "\n");
    for (char *line; (line = strtok(NULL, "\n")) != NULL;) lines[count++] = line;
  }
  assert_int_equal(count, ALL);
  qsort(lines, ALL, sizeof *lines, compare_lines);
  for (int i = 1; i < ALL; i++) assert_string_not_equal(lines[i - 1], lines[i]);
  for (int split = 0; split < HARK_SPLIT_ALL; split++) free(texts[split]);
  /* Length 4 is an operator of two digits: 400 expressions. */
  t = (task){.name = "listops", .examples = {500, 0, 0}, .options = {"length-above", "3", "length-below", "5"}};
  assert_failure(f->context, make_in(f->context, test_path(f->folder, "few"), &t), HARK_BAD_CONFIGURATION, "was found that differs");
  assert_int_equal(hark_path_kind_of(test_path(f->folder, "few")), HARK_PATH_NONE);
}

/* ---- Pathfinder ---- */

#define LIT 32 /* of the documentation: an eighth of 255, rounded */

typedef struct picture {
  int side;
  const int32_t *pixel; /* tokens */
} picture;

static int grey(const picture *p, int x, int y) {
  return x < 0 || y < 0 || x >= p->side || y >= p->side ? 0 : p->pixel[y * p->side + x] - HARK_TOKEN_RESERVED;
}

/* A disc is the only thing that covers blocks of pixels that are wider than a dash. */
static bool in_disc(const picture *p, int x, int y, int block) {
  for (int dy = 0; dy < block; dy++)
    for (int dx = 0; dx < block; dx++)
      if (grey(p, x + dx, y + dy) != 255) return false;
  return true;
}

/* Follows lit pixels from (x, y) by steps of at most `reach`; marks them. */
static void follow(const picture *p, int x, int y, double reach, unsigned char *marked) {
  int *const stack = malloc((size_t)p->side * (size_t)p->side * sizeof *stack), width = (int)reach;
  int count = 0;
  stack[count++] = y * p->side + x;
  marked[y * p->side + x] = 1;
  while (count > 0) {
    const int at = stack[--count], from_x = at % p->side, from_y = at / p->side;
    for (int dy = -width; dy <= width; dy++)
      for (int dx = -width; dx <= width; dx++) {
        const int to = (from_y + dy) * p->side + from_x + dx;
        if (dx * dx + dy * dy > reach * reach || grey(p, from_x + dx, from_y + dy) < LIT || marked[to]) continue;
        marked[to] = 1;
        stack[count++] = to;
      }
  }
  free(stack);
}

/* Whether the disc found first in the order of the pixels is joined with one that is not part of it. */
static bool discs_are_joined(const picture *p, int block, double radius, double reach) {
  unsigned char *const marked = calloc(1, (size_t)p->side * (size_t)p->side);
  int first_x = -1, first_y = -1, second_x = -1, second_y = -1;
  for (int y = 0; y < p->side; y++)
    for (int x = 0; x < p->side; x++) {
      if (!in_disc(p, x, y, block)) continue;
      if (first_x < 0) {
        first_x = x;
        first_y = y;
      } else if (hypot(x - first_x, y - first_y) > 2 * radius + 1) {
        if (second_x >= 0 && hypot(x - second_x, y - second_y) > 2 * radius + 1) fail_msg("a third disc at %d, %d", x, y);
        if (second_x < 0) {
          second_x = x;
          second_y = y;
        }
      }
    }
  if (second_x < 0) fail_msg("fewer than two discs");
  follow(p, first_x, first_y, reach, marked);
  const bool joined = marked[second_y * p->side + second_x];
  free(marked);
  return joined;
}

static void check_pathfinder(const fixture *f, const char *name, const char *size, int block, double radius, double reach, int64_t count) {
  const task t = {.name = "pathfinder", .seed = 5, .examples = {count, 2, 0}, .options = {"size", size}};
  make(f, name, &t);
  hark_examples *e = open_folder(f, name);
  int32_t side, width;
  int64_t positive = 0;
  assert_true(hark_examples_image(e, &side, &width) && side == width && side == atoi(size));
  int32_t *const tokens = malloc((size_t)side * (size_t)side * sizeof *tokens);
  const picture p = {side, tokens};
  for (int64_t i = 0; i < count; i++) {
    const int32_t label = hark_examples_label(e, HARK_SPLIT_TRAINING, i);
    assert_fine(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TRAINING, i, 0, tokens));
    positive += label;
    if (discs_are_joined(&p, block, radius, reach) != (label == 1))
      fail_msg("size %s, image %" PRId64 " is of class %d", size, i, (int)label);
  }
  assert_int_equal(2 * positive, count);
  free(tokens);
  hark_examples_close(f->context, &e);
}

/* HARK_TEST_IMAGES sets how many of 32 pixels (the others: a tenth); 1,000 have been checked and take some seconds. */
static void pathfinder_has_right_classes(void **state) {
  const fixture *const f = *state;
  const char *const asked = getenv("HARK_TEST_IMAGES");
  const int64_t count = asked != NULL ? atoll(asked) : 300;
  check_pathfinder(f, "p32", "32", 1, 1.5, 2.3, count);
  check_pathfinder(f, "p64", "64", 2, 2, 2.9, count / 5 * 2);
  check_pathfinder(f, "p128", "128", 2, 3, 3.2, count / 10 / 2 * 2);
}

/* ---- sequences ---- */

/* Symbols and targets (-1: none) of an example, numbered as the words of the file's first line. */
static int64_t read_sequence(const fixture *f, const hark_examples *e, int64_t index, int32_t *words, int32_t *targets) {
  const int64_t length = hark_examples_length(e, HARK_SPLIT_TRAINING, index, 0);
  assert_fine(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TRAINING, index, 0, words));
  assert_fine(f->context, hark_examples_targets(f->context, e, HARK_SPLIT_TRAINING, index, targets, NULL));
  for (int64_t i = 0; i < length; i++) {
    words[i] -= HARK_TOKEN_RESERVED;
    targets[i] = targets[i] == HARK_TARGET_IGNORED ? -1 : targets[i] - HARK_TOKEN_RESERVED;
  }
  return length;
}

static void recall_targets_are_the_values(void **state) {
  const fixture *const f = *state;
  enum { LENGTH = 64, PAIRS = 7, QUERIES = 10, KEYS = 9, VALUES = 5, COUNT = 100 };
  for (int filler = 0; filler < 2; filler++) {
    const task t = {
        .name = "recall",
        .seed = 11,
        .examples = {COUNT, 1, 0},
        .options = {"length", "64", "pairs", "7", "queries", "10", "keys", "9", "values", "5", "filler", filler ? "random" : "blank"}};
    make(f, filler ? "random" : "blank", &t);
    hark_examples *e = open_folder(f, filler ? "random" : "blank");
    int32_t words[LENGTH], targets[LENGTH];
    int64_t places[LENGTH] = {0};
    for (int64_t i = 0; i < COUNT; i++) {
      int32_t value[KEYS];
      int asked[KEYS] = {0}, queries = 0;
      assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
      memset(value, -1, sizeof value);
      for (int p = 0; p < PAIRS; p++) {
        assert_true(words[2 * p] < KEYS && value[words[2 * p]] == -1 && words[2 * p + 1] >= KEYS && words[2 * p + 1] < KEYS + VALUES);
        assert_true(targets[2 * p] == -1 && targets[2 * p + 1] == -1);
        value[words[2 * p]] = words[2 * p + 1];
      }
      for (int at = 2 * PAIRS; at < LENGTH; at++) {
        if (targets[at] == -1) { /* a filler, never a key */
          assert_true(filler ? words[at] >= KEYS && words[at] < KEYS + VALUES : words[at] == KEYS + VALUES);
          continue;
        }
        assert_true(words[at] < KEYS);
        assert_int_equal(targets[at], value[words[at]]);
        asked[words[at]]++;
        queries++;
        places[at]++;
      }
      assert_int_equal(queries, QUERIES);
      for (int k = 0; k < KEYS; k++) assert_true(value[k] == -1 ? asked[k] == 0 : asked[k] == 1 || asked[k] == 2);
    }
    const double share = (double)QUERIES / (LENGTH - 2 * PAIRS); /* of the places behind the pairs, each the same */
    for (int at = 2 * PAIRS; at < LENGTH; at++)
      assert_near((double)places[at], share * COUNT, sqrt(share * (1 - share) * COUNT), "queries at a place");
    hark_examples_close(f->context, &e);
  }
}

static void copy_targets_are_the_symbols(void **state) {
  const fixture *const f = *state;
  enum { LENGTH = 20, GAP = 3, COPIED = 8, SYMBOLS = 6, COUNT = 30 };
  for (int answer = 0; answer < 2; answer++) {
    const task t = {.name = "copy",
                    .seed = 2,
                    .examples = {COUNT, 0, 0},
                    .options = {"length", "20", "gap", "3", "symbols", "6", "answer", answer ? "blank" : "shown"}};
    make(f, answer ? "blank" : "shown", &t);
    hark_examples *e = open_folder(f, answer ? "blank" : "shown");
    int32_t words[LENGTH], targets[LENGTH];
    for (int64_t i = 0; i < COUNT; i++) {
      assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
      for (int at = 0; at < LENGTH; at++) {
        const int from_mark = at - (LENGTH - COPIED);
        assert_int_equal(targets[at], from_mark >= 0 ? words[from_mark] : -1);
        if (at < COPIED) assert_true(words[at] < SYMBOLS);
        if (at >= COPIED && from_mark < 0) assert_int_equal(words[at], SYMBOLS);
        if (from_mark == 0) assert_int_equal(words[at], SYMBOLS + 1);
        if (from_mark > 0) assert_int_equal(words[at], answer ? SYMBOLS : words[from_mark - 1]);
      }
    }
    hark_examples_close(f->context, &e);
  }
}

static void passkey_is_in_the_text(void **state) {
  const fixture *const f = *state;
  enum { LENGTH = 100, DIGITS = 4, COUNT = 200, FIXED = 4 + DIGITS + 4 + 8 + DIGITS - 1 };
  for (int answer = 0; answer < 2; answer++) {
    const task t = {.name = "passkey",
                    .seed = 4,
                    .examples = {COUNT, 0, 0},
                    .options = {"length", "100", "digits", "4", "answer", answer ? "blank" : "shown"}};
    make(f, answer ? "blank" : "shown", &t);
    hark_examples *e = open_folder(f, answer ? "blank" : "shown");
    int32_t words[LENGTH], targets[LENGTH];
    double places = 0;
    for (int64_t i = 0; i < COUNT; i++) {
      int at = 0;
      assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
      while (at < LENGTH && words[at] > 9) at++; /* digits are words 0 .. 9 and stand nowhere else */
      assert_true(at <= LENGTH - DIGITS);
      places += at - 4;
      for (int p = 0; p < LENGTH; p++) {
        const int digit = p - (LENGTH - DIGITS);
        assert_int_equal(targets[p], digit >= 0 ? words[at + digit] : -1);
        if (digit > 0) assert_int_equal(words[p], answer ? 10 : words[at + digit - 1]);
      }
    }
    const double spread = LENGTH - FIXED + 1; /* places are uniform over so many */
    assert_near(places / COUNT, (spread - 1) / 2, sqrt((spread * spread - 1) / 12 / COUNT), "mean place of the number");
    hark_examples_close(f->context, &e);
  }
}

/* ---- all of them ---- */

static const task small_tasks[] = {
    {.name = "listops", .seed = 1, .examples = {40, 8, 8}, .options = {"length-above", "10", "length-below", "60"}},
    {.name = "pathfinder", .seed = 1, .examples = {24, 6, 6}},
    {.name = "recall", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "60"}},
    {.name = "copy", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "21"}},
    {.name = "passkey", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "90"}},
};
enum { TASKS = sizeof small_tasks / sizeof small_tasks[0] };

static uint64_t sum_of(const fixture *f, const char *name) {
  hark_examples *e = open_folder(f, name);
  const uint64_t sum = hark_examples_checksum(e);
  hark_examples_close(f->context, &e);
  return sum;
}

/* The first `count` examples of two folders' training are the same. */
static void assert_same_front(const fixture *f, const char *a_name, const char *b_name, int64_t count) {
  hark_examples *a = open_folder(f, a_name), *b = open_folder(f, b_name);
  int32_t x[2048], y[2048];
  for (int64_t i = 0; i < count; i++) {
    const int64_t length = hark_examples_length(a, HARK_SPLIT_TRAINING, i, 0);
    assert_int_equal(length, hark_examples_length(b, HARK_SPLIT_TRAINING, i, 0));
    assert_fine(f->context, hark_examples_read(f->context, a, HARK_SPLIT_TRAINING, i, 0, x));
    assert_fine(f->context, hark_examples_read(f->context, b, HARK_SPLIT_TRAINING, i, 0, y));
    assert_memory_equal(x, y, (size_t)length * sizeof *x);
    assert_int_equal(hark_examples_label(a, HARK_SPLIT_TRAINING, i), hark_examples_label(b, HARK_SPLIT_TRAINING, i));
    assert_fine(f->context, hark_examples_targets(f->context, a, HARK_SPLIT_TRAINING, i, x, NULL));
    assert_fine(f->context, hark_examples_targets(f->context, b, HARK_SPLIT_TRAINING, i, y, NULL));
    assert_memory_equal(x, y, (size_t)length * sizeof *x);
  }
  hark_examples_close(f->context, &a);
  hark_examples_close(f->context, &b);
}

static void examples_depend_on_seed_split_and_number(void **state) {
  const fixture *const f = *state;
  const hark_context_options several = {.struct_size = sizeof several, .threads = 3, .backend = "reference"};
  hark_context *threads;
  assert_int_equal(hark_context_create(&several, &threads), HARK_OK);
  int covered = 0;
  for (int i = 0; i < TASKS; i++) {
    char name[NAMES_BYTES], again[NAMES_BYTES], other[NAMES_BYTES], more[NAMES_BYTES];
    snprintf(name, sizeof name, "%s-a", small_tasks[i].name);
    snprintf(again, sizeof again, "%s-b", small_tasks[i].name);
    snprintf(other, sizeof other, "%s-c", small_tasks[i].name);
    snprintf(more, sizeof more, "%s-d", small_tasks[i].name);
    task t = small_tasks[i];
    make(f, name, &t);
    assert_fine(threads, make_in(threads, test_path(f->folder, again), &t));
    char *const first = file_of(f, name, "task.json"), *const second = file_of(f, again, "task.json");
    assert_string_equal(first, second); /* with the SHA-256 of all files */
    free(first);
    free(second);
    t.examples[HARK_SPLIT_TRAINING] += 9;
    t.examples[HARK_SPLIT_TEST] = 0;
    make(f, more, &t);
    assert_same_front(f, name, more, small_tasks[i].examples[HARK_SPLIT_TRAINING]);
    t = small_tasks[i];
    t.seed = 2;
    make(f, other, &t);
    assert_int_not_equal(sum_of(f, name), sum_of(f, other));
    hark_examples *e = open_folder(f, name); /* a split is none of the others' */
    for (int split = 0; split < HARK_SPLIT_ALL; split++)
      assert_int_equal(hark_examples_count(e, (hark_split)split).examples, small_tasks[i].examples[split]);
    int32_t x[2048] = {0}, y[2048] = {0};
    assert_fine(f->context, hark_examples_read(f->context, e, HARK_SPLIT_VALIDATION, 0, 0, x));
    assert_fine(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TEST, 0, 0, y));
    assert_memory_not_equal(x, y, sizeof x);
    hark_examples_close(f->context, &e);
    covered++;
  }
  assert_int_equal(covered, hark_task_entry_count); /* a new generator needs a row above */
  hark_context_destroy(&threads);
}

static void what_cannot_be_made(void **state) {
  const fixture *const f = *state;
  static const struct {
    task task;
    const char *message;
  } wrong[] = {
      {{.name = "listops", .examples = {1, 0, 0}, .options = {"length-above", "50", "length-below", "51"}}, "--length-below: 51 leaves"},
      {{.name = "listops", .examples = {1, 0, 0}, .options = {"length-above", "900000", "length-below", "1000000", "depth", "2"}},
       "no training example 0 was found"},
      {{.name = "listops", .examples = {0, 1, 0}}, "--training: at least one"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"separation", "1"}}, "--separation: 1, expected at least 1.5"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"marker", "1"}}, "--marker: radius 1, expected 1.25 to 8"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"contour", "64", "dash", "20"}}, "no training example 0 was found"},
      {{.name = "recall", .examples = {1, 0, 0}, .options = {"pairs", "65"}}, "--pairs: 65 pairs take as many keys, --keys has 64"},
      {{.name = "recall", .examples = {1, 0, 0}, .options = {"length", "47"}}, "--length: 47 words, 16 pairs and 16 queries take 48"},
      {{.name = "copy", .examples = {1, 0, 0}, .options = {"length", "8", "gap", "7"}}, "--gap: 7 blanks leave no symbol of 8"},
      {{.name = "passkey", .examples = {1, 0, 0}, .options = {"length", "24"}},
       "--length: 24 words, the number and the question alone take 25"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    assert_failure(f->context, make_in(f->context, test_path(f->folder, "none"), &wrong[i].task), HARK_BAD_CONFIGURATION, wrong[i].message);
    hark_names names;
    assert_fine(f->context, hark_folder_list(f->context, f->folder, &names));
    assert_int_equal(names.count, 0);
    hark_names_free(f->context, &names);
  }
}

static void folders_are_whole_or_not_there(void **state) {
  const fixture *const f = *state;
  const task t = {.name = "copy", .seed = 1, .examples = {4, 0, 2}, .options = {"length", "10"}};
  make(f, "new/below", &t);
  hark_names names;
  assert_fine(f->context, hark_folder_list(f->context, test_path(f->folder, "new"), &names));
  assert_int_equal(names.count, 1); /* the folder, nothing beside it */
  hark_names_free(f->context, &names);
  assert_fine(f->context, hark_folder_list(f->context, test_path(f->folder, "new/below"), &names));
  assert_int_equal(names.count, 3); /* no validation.tsv */
  hark_names_free(f->context, &names);
  assert_failure(f->context, make_in(f->context, test_path(f->folder, "new/below/"), &t), HARK_BAD_CONFIGURATION, "below: is not empty");
  (void)test_file_write_text(f->folder, "file", "x");
  assert_failure(f->context, make_in(f->context, test_path(f->folder, "file"), &t), HARK_BAD_CONFIGURATION, "file: is no folder");
  assert_failure(f->context, make_in(f->context, "", &t), HARK_BAD_CONFIGURATION, "no folder");
  assert_int_equal(mkdir(test_path(f->folder, "empty"), 0777), 0);
  make(f, "empty/", &t);
  assert_int_equal(hark_path_kind_of(test_path(f->folder, "empty/task.json")), HARK_PATH_FILE);
}

/* Random numbers below a count: all of them, equally often. */
static void numbers_are_uniform(void **state) {
  (void)state;
  enum { DRAWS = 70000, COUNT = 7 };
  hark_task_random random = hark_task_random_begin(1, 1, HARK_SPLIT_TEST, 3, 0);
  int64_t seen[COUNT] = {0};
  double sum = 0;
  for (int i = 0; i < DRAWS; i++) {
    const int32_t n = hark_task_random_below(&random, COUNT);
    assert_true(n >= 0 && n < COUNT);
    seen[n]++;
    const double u = hark_task_random_uniform(&random);
    assert_true(u >= 0 && u < 1);
    sum += u;
  }
  for (int i = 0; i < COUNT; i++) assert_near((double)seen[i], DRAWS / (double)COUNT, sqrt(DRAWS * 6.0 / 49), "draws of a number");
  assert_near(sum / DRAWS, 0.5, sqrt(1.0 / 12 / DRAWS), "mean of uniform numbers");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(listops_has_right_values_and_statistics),
                                     TEST(listops_examples_differ),
                                     TEST(pathfinder_has_right_classes),
                                     TEST(recall_targets_are_the_values),
                                     TEST(copy_targets_are_the_symbols),
                                     TEST(passkey_is_in_the_text),
                                     TEST(examples_depend_on_seed_split_and_number),
                                     TEST(what_cannot_be_made),
                                     TEST(folders_are_whole_or_not_there),
                                     TEST(numbers_are_uniform)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
