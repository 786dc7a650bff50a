/* make_listops.c - nested operations on lists of digits: the task of Long Range Arena (Tay et al., 2020), based on Nangia and Bowman
 * (2018).
 *
 * A node at depth < D (the root has depth 1) is an operator with probability p; otherwise, and always at depth D, it is a digit. An
 * operator has 2 .. A arguments, uniformly; digits and operators are uniform, and the operator is drawn after its arguments. The length
 * counts operators, arguments and brackets; trees with a length outside (low, high) are discarded. D = 10, p = 0.25, A = 10, low = 500,
 * high = 2000.
 *
 *     MIN, MAX of the arguments        MED: integer part of their median        SM: their sum modulo 10
 *
 * Written in binary application form (data/formats/format_listops.c): n arguments need n + 1 pairs of parentheses.
 */
#include <stdlib.h>
#include <string.h>

#include "data/tasks/listops.h"
#include "data/tasks/make.h"

#define TREES_MAX 1000000 /* attempts at one example */
#define ARGUMENTS_MAX 64  /* maximum that the option allows */
#define DEPTH_MAX 64      /* the same */
#define ARGUMENT_BYTES 4  /* "( " before and " )" after */
#define SYMBOL_BYTES 5    /* "[MAX" and a blank */

typedef struct listops_values {
  int64_t depth, arguments, low, high;
  double share;
} listops_values;

#define AT(field) offsetof(listops_values, field)
static const hark_option options[] = {
    {"depth", "depth", HARK_OPTION_INT, AT(depth), "10", "[2, 64]", NULL, NULL,
     "listops: largest depth of a digit, where the root has depth 1", "$1 make, $2 listops"},
    {"arguments", "arguments", HARK_OPTION_INT, AT(arguments), "10", "[2, 64]", NULL, NULL,
     "listops: largest number of arguments of an operator", "$1 make, $2 listops"},
    {"operator-share", "operator-share", HARK_OPTION_FLOAT, AT(share), "0.25", "(0, 1)", NULL, NULL,
     "listops: probability that a node is an operator", "$1 make, $2 listops"},
    {"length-above", "length-above", HARK_OPTION_INT, AT(low), "500", "[0, 1000000]", NULL, NULL,
     "listops: expressions are longer than this", "$1 make, $2 listops"},
    {"length-below", "length-below", HARK_OPTION_INT, AT(high), "2000", "[2, 1000000]", NULL, NULL,
     "listops: expressions are shorter than this", "$1 make, $2 listops"},
};
#undef AT
const hark_option_table hark_task_listops_options = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(listops_values), false};

static hark_status settle(hark_context *context, void *values) {
  const listops_values *const v = values;
  if (v->high > v->low + 1) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "--length-below: %lld leaves no length above %lld", (long long)v->high,
                   (long long)v->low);
}

/* A tree in prefix order; the number of arguments is stored with an operator's symbol. */
typedef struct tree {
  const listops_values *values;
  hark_task_random *random;
  int64_t length; /* symbols so far; above the maximum: the tree is discarded */
  unsigned char *symbols, *arguments;
} tree;

static hark_task_sizes sizes(const void *values) {
  const listops_values *const v = values;
  const size_t most = (size_t)v->high;
  return (hark_task_sizes){.example_bytes = most * (SYMBOL_BYTES + ARGUMENT_BYTES) + 2, .scratch_bytes = 2 * most};
}

static int compare_values(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static int apply(int operator, int * arguments, int count) {
  int sum = 0;
  for (int i = 0; i < count; i++) sum += arguments[i];
  if (operator== HARK_LISTOPS_SM) return sum % 10;
  qsort(arguments, (size_t)count, sizeof *arguments, compare_values);
  if (operator== HARK_LISTOPS_MIN) return arguments[0];
  if (operator== HARK_LISTOPS_MAX) return arguments[count - 1];
  return (arguments[(count - 1) / 2] + arguments[count / 2]) / 2; /* integer division drops the half */
}

/* Adds a symbol; false when the tree has become too long. */
static bool put(tree *t, int symbol) {
  if (t->length + 1 >= t->values->high) return false;
  t->symbols[t->length++] = (unsigned char)symbol;
  return true;
}

/* Grows the node at a depth (recursion ends at the maximum depth); *value is its value. */
static bool grow(tree *t, int64_t depth, int *value) { /* NOLINT(misc-no-recursion) */
  if (depth >= t->values->depth || hark_task_random_uniform(t->random) >= t->values->share) {
    *value = hark_task_random_below(t->random, 10);
    return put(t, *value);
  }
  int arguments[ARGUMENTS_MAX];
  const int count = 2 + hark_task_random_below(t->random, (int32_t)t->values->arguments - 1);
  const int64_t at = t->length;
  if (!put(t, HARK_LISTOPS_OPERATOR)) return false;
  t->arguments[at] = (unsigned char)count;
  for (int i = 0; i < count; i++)
    if (!grow(t, depth + 1, &arguments[i])) return false;
  const int operator= HARK_LISTOPS_OPERATOR + hark_task_random_below(t->random, HARK_LISTOPS_CLOSE - HARK_LISTOPS_OPERATOR);
  t->symbols[at] = (unsigned char)operator;
  *value = apply(operator, arguments, count);
  return put(t, HARK_LISTOPS_CLOSE);
}

static unsigned char *write_text(unsigned char *to, const char *text) {
  const size_t length = strlen(text);
  memcpy(to, text, length);
  return to + length;
}

/* Every argument and every closing bracket is followed by the parenthesis that applies it, except where the tree ends. */
static unsigned char *write_tree(const tree *t, unsigned char *to) {
  int depth = 0;
  for (int64_t i = 0; i < t->length; i++) {
    const int symbol = t->symbols[i];
    const bool opens = symbol >= HARK_LISTOPS_OPERATOR && symbol < HARK_LISTOPS_CLOSE;
    for (int p = 0; opens && p <= t->arguments[i]; p++) to = write_text(to, "( ");
    to = write_text(to, hark_listops_words[symbol]);
    if (symbol == HARK_LISTOPS_CLOSE) {
      to = write_text(to, " )");
      depth--;
    }
    if (opens) depth++;
    if (!opens && depth > 0) to = write_text(to, " )");
    if (i + 1 < t->length) *to++ = ' ';
  }
  return to;
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const listops_values *const v = order->values;
  unsigned char *const scratch = order->scratch;
  tree t = {.values = v, .random = &order->random, .symbols = scratch, .arguments = scratch + v->high};
  int value = 0;
  for (int i = 0; i < TREES_MAX; i++) {
    t.length = 0;
    if (!grow(&t, 1, &value) || t.length <= v->low) continue;
    unsigned char *end = write_tree(&t, out);
    *end++ = '\t';
    *end++ = (unsigned char)('0' + value);
    *end++ = '\n';
    return (size_t)(end - out);
  }
  return 0;
}

static hark_status header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  (void)generator;
  (void)values;
  (void)count;
  hark_text_append(out, "%s\n", HARK_LISTOPS_HEADER);
  return out->status;
}

const hark_task_generator hark_task_listops = {
    .summary = "nested operations on lists of digits, and their values",
    .format = "listops",
    .examples = {96000, 2000, 2000},
    .distinct = true,
    .settle = settle,
    .sizes = sizes,
    .header = header,
    .make = make,
};
