/* data_info.c - statistics of examples: counts, classes, lengths (quantiles: the value at rank ceil(q N)), targets, fractions of
 * operators. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/data/data.h"
#include "data/examples/example_folder.h"
#include "data/tasks/listops.h"
#include "io/json_write.h"

enum { QUANTILES = 7, OPERATORS = HARK_LISTOPS_CLOSE - HARK_LISTOPS_OPERATOR, CLASSES_SHOWN = 20 };
static const double quantiles[QUANTILES] = {0, 0.05, 0.25, 0.5, 0.75, 0.95, 1};
static const char *const quantile_names[QUANTILES] = {"least", "5 %", "25 %", "median", "75 %", "95 %", "longest"};

typedef struct summary {
  hark_context *context;
  const hark_examples *examples;
  hark_split split;
  hark_examples_counts counts;
  int64_t *lengths; /* [sequences], sorted */
  int64_t *classes; /* [classes] */
  int32_t *tokens;  /* [longest] */
  int64_t operators[OPERATORS], arguments;
  bool has_operators;
} summary;

static int64_t sequences_of(const summary *s) { return s->counts.examples * hark_examples_parts(s->examples); }
static size_t classes_bytes(const summary *s) { return (size_t)hark_examples_classes(s->examples) * sizeof *s->classes; }

static int compare_lengths(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int64_t quantile(const summary *s, double q) {
  const int64_t count = sequences_of(s), rank = (int64_t)ceil(q * (double)count);
  return s->lengths[rank > 0 ? rank - 1 : 0];
}

/* Operators and their arguments: the tokens directly inside of one, except its bracket. */
static hark_status count_operators(summary *s, int64_t index) {
  int64_t depth = 0;
  HARK_TRY(hark_examples_read(s->context, s->examples, s->split, index, 0, s->tokens));
  for (int64_t t = 0; t < hark_examples_length(s->examples, s->split, index, 0); t++) {
    const int32_t symbol = s->tokens[t] - HARK_TOKEN_RESERVED;
    const bool opens = symbol >= HARK_LISTOPS_OPERATOR && symbol < HARK_LISTOPS_CLOSE;
    if (symbol != HARK_LISTOPS_CLOSE && depth > 0) s->arguments++;
    if (opens) s->operators[symbol - HARK_LISTOPS_OPERATOR]++;
    depth += opens - (symbol == HARK_LISTOPS_CLOSE);
  }
  return HARK_OK;
}

static hark_status measure(summary *s) {
  const int parts = hark_examples_parts(s->examples);
  HARK_TRY(hark_allocate(s->context, (size_t)sequences_of(s) * sizeof *s->lengths, (void **)&s->lengths));
  HARK_TRY(hark_allocate_zero(s->context, classes_bytes(s), (void **)&s->classes));
  HARK_TRY(hark_allocate(s->context, (size_t)s->counts.longest * sizeof *s->tokens, (void **)&s->tokens));
  s->has_operators = strcmp(hark_examples_format(s->examples), "listops") == 0;
  for (int64_t i = 0; i < s->counts.examples; i++) {
    const int32_t label = hark_examples_label(s->examples, s->split, i);
    for (int part = 0; part < parts; part++) s->lengths[i * parts + part] = hark_examples_length(s->examples, s->split, i, part);
    if (label >= 0) s->classes[label]++;
    if (s->has_operators) HARK_TRY(count_operators(s, i));
  }
  qsort(s->lengths, (size_t)sequences_of(s), sizeof *s->lengths, compare_lengths);
  return HARK_OK;
}

static int64_t operator_count(const summary *s) {
  int64_t all = 0;
  for (int i = 0; i < OPERATORS; i++) all += s->operators[i];
  return all;
}

static void print_json(const summary *s, hark_text *text) {
  const int32_t classes = hark_examples_classes(s->examples);
  hark_text_append(text, "\"%s\": {\"examples\": %" PRId64 ", \"tokens\": %" PRId64 ", \"targets\": %" PRId64 ", \"cut\": %" PRId64,
                   hark_example_split_names[s->split], s->counts.examples, s->counts.tokens, s->counts.targets, s->counts.cut);
  hark_text_append(text, ", \"lengths\": {");
  for (int q = 0; q < QUANTILES; q++)
    hark_text_append(text, "%s\"%s\": %" PRId64, q > 0 ? ", " : "", quantile_names[q], quantile(s, quantiles[q]));
  hark_text_append(text, "}, \"classes\": {");
  for (int32_t i = 0; i < classes; i++) {
    hark_text_append(text, "%s", i > 0 ? ", " : "");
    hark_json_append_string(text, hark_examples_class_name(s->examples, i));
    hark_text_append(text, ": %" PRId64, s->classes[i]);
  }
  hark_text_append(text, "}");
  if (s->has_operators) {
    hark_text_append(text, ", \"operators\": {");
    for (int i = 0; i < OPERATORS; i++)
      hark_text_append(text, "%s\"%s\": %" PRId64, i > 0 ? ", " : "", hark_listops_words[HARK_LISTOPS_OPERATOR + i], s->operators[i]);
    hark_text_append(text, "}, \"arguments\": %" PRId64, s->arguments);
  }
  hark_text_append(text, "}");
}

static double percent(int64_t part, int64_t all) { return all > 0 ? 100.0 * (double)part / (double)all : 0.0; }

static void print_lines(const summary *s, hark_text *text) {
  const int32_t classes = hark_examples_classes(s->examples);
  const bool tables = hark_examples_target_kind(s->examples) == HARK_TARGET_ROWS;
  hark_text_append(text, "\n%s: %" PRId64 " %s, %" PRId64 " %s", hark_example_split_names[s->split], s->counts.examples,
                   tables ? "tables" : "examples", s->counts.tokens, tables ? "rows" : "tokens");
  if (s->counts.targets > 0) hark_text_append(text, ", %" PRId64 " targets", s->counts.targets);
  if (s->counts.cut > 0) hark_text_append(text, ", %" PRId64 " %s cut", s->counts.cut, tables ? "tables" : "sequences");
  hark_text_append(text, "\n  lengths  ");
  for (int q = 0; q < QUANTILES; q++)
    hark_text_append(text, "%s%s %" PRId64, q > 0 ? ", " : "", quantile_names[q], quantile(s, quantiles[q]));
  hark_text_append(text, "\n");
  for (int32_t i = 0; i < classes && i < CLASSES_SHOWN; i++) {
    char shown[HARK_SHOWN_BYTES];
    hark_text_append(text, "  class %-12s %9" PRId64 "  %5.1f %%\n", hark_text_shown(hark_examples_class_name(s->examples, i), shown),
                     s->classes[i], percent(s->classes[i], s->counts.examples));
  }
  if (classes > CLASSES_SHOWN) hark_text_append(text, "  and %" PRId32 " more classes\n", classes - CLASSES_SHOWN);
  if (!s->has_operators) return;
  const int64_t operators = operator_count(s);
  for (int i = 0; i < OPERATORS; i++)
    hark_text_append(text, "  operator %-9s %9" PRId64 "  %5.1f %%\n", hark_listops_words[HARK_LISTOPS_OPERATOR + i], s->operators[i],
                     percent(s->operators[i], operators));
  hark_text_append(text, "  arguments of an operator, mean %.2f\n", operators > 0 ? (double)s->arguments / (double)operators : 0.0);
}

static hark_status print_split(summary *s, bool json, hark_text *text) {
  const hark_status status = measure(s);
  if (status == HARK_OK) {
    if (json)
      print_json(s, text);
    else
      print_lines(s, text);
  }
  hark_release(s->context, s->lengths, (size_t)sequences_of(s) * sizeof *s->lengths);
  hark_release(s->context, s->classes, classes_bytes(s));
  hark_release(s->context, s->tokens, (size_t)s->counts.longest * sizeof *s->tokens);
  return status;
}

hark_status hark_data_print_info(hark_context *context, const hark_examples *examples, bool json, hark_text *text) {
  static const char *const kinds[] = {"class", "tokens", "vector", "rows"}, *const words[] = {"a class", "targets", "a vector", NULL};
  const hark_example_target_kind kind = hark_examples_target_kind(examples);
  int32_t height, width;
  const bool images = hark_examples_image(examples, &height, &width);
  if (json) {
    hark_text_append(text,
                     "{\"format\": \"%s\", \"parts\": %d, \"targets\": \"%s\", \"vocabulary\": %" PRId32 ", \"height\": %" PRId32
                     ", \"width\": %" PRId32 ", \"features\": %" PRId32 ", \"responses\": %" PRId32 ", \"checksum\": \"%016" PRIx64
                     "\", \"splits\": {",
                     hark_examples_format(examples), hark_examples_parts(examples), kinds[kind], hark_examples_vocabulary_size(examples),
                     height, width, hark_examples_features(examples), hark_examples_responses(examples), hark_examples_checksum(examples));
  } else if (kind == HARK_TARGET_ROWS) {
    const int32_t responses = hark_examples_responses(examples);
    hark_text_append(text, "format %s: numbers of a row: inputs %" PRId32 ", targets %" PRId32 ", checksum %016" PRIx64 "\n",
                     hark_examples_format(examples), hark_examples_features(examples) - responses, responses,
                     hark_examples_checksum(examples));
  } else {
    hark_text_append(text, "format %s: %s with %s, vocabulary of %" PRId32 " tokens", hark_examples_format(examples),
                     hark_examples_parts(examples) == 2 ? "pairs of sequences" : "sequences", words[kind],
                     hark_examples_vocabulary_size(examples));
    if (hark_examples_features(examples) > 0)
      hark_text_append(text, ", %" PRId32 " numbers per token, %" PRId32 " to predict", hark_examples_features(examples),
                       hark_examples_responses(examples));
    if (images) hark_text_append(text, ", images of %" PRId32 " x %" PRId32, height, width);
    hark_text_append(text, ", checksum %016" PRIx64 "\n", hark_examples_checksum(examples));
  }
  for (int split = 0, printed = 0; split < HARK_SPLIT_ALL; split++) {
    summary s = {.context = context, .examples = examples, .split = (hark_split)split};
    s.counts = hark_examples_count(examples, s.split);
    if (s.counts.examples == 0) continue;
    if (json && printed++ > 0) hark_text_append(text, ", ");
    HARK_TRY(print_split(&s, json, text));
  }
  if (json) hark_text_append(text, "}}\n");
  return text->status;
}
