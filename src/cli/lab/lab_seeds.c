/* lab_seeds.c - see lab_seeds.h. */
#include "cli/lab/lab_seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/lab/lab_print.h"
#include "io/json_write.h"
#include "io/number.h"

/* ---- which seeds ---- */

static bool complain(char out[HARK_LAB_COMPLAINT_BYTES], const char *item, size_t length, const char *what) {
  char text[HARK_SHOWN_BYTES], shown[HARK_SHOWN_BYTES];
  (void)snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1), item);
  (void)snprintf(out, HARK_LAB_COMPLAINT_BYTES, "'%.80s' %s, expected seeds such as 1-10 or 1,3,7-9", hark_text_shown(text, shown), what);
  return false;
}

static bool is_there(const hark_lab_seeds *seeds, int64_t seed) {
  for (int i = 0; i < seeds->count; i++)
    if (seeds->list[i] == seed) return true;
  return false;
}

/* "7" or "7-9" */
static bool read_item(const char *item, size_t length, hark_lab_seeds *out, char complaint[HARK_LAB_COMPLAINT_BYTES]) {
  const char *const dash = memchr(item, '-', length);
  const size_t head = dash != NULL ? (size_t)(dash - item) : length;
  int64_t first = 0, last = 0;
  if (!hark_number_read_whole(item, head, &first))
    return complain(complaint, item, length, "is neither a whole number in [0, 9223372036854775807] nor a range of them");
  last = first;
  if (dash != NULL && !hark_number_read_whole(dash + 1, length - head - 1, &last))
    return complain(complaint, item, length, "is not a range of whole numbers in [0, 9223372036854775807]");
  if (last < first) return complain(complaint, item, length, "ends below its beginning");
  if (last - first >= HARK_LAB_SEEDS - out->count) {
    (void)snprintf(complaint, HARK_LAB_COMPLAINT_BYTES, "more than %d seeds", HARK_LAB_SEEDS);
    return false;
  }
  for (int64_t seed = first; seed <= last; seed++) {
    if (is_there(out, seed)) {
      (void)snprintf(complaint, HARK_LAB_COMPLAINT_BYTES, "has seed %" PRId64 " twice", seed);
      return false;
    }
    out->list[out->count++] = seed;
    if (seed == INT64_MAX) break;
  }
  return true;
}

bool hark_lab_seeds_read(const char *text, hark_lab_seeds *out, char complaint[HARK_LAB_COMPLAINT_BYTES]) {
  out->count = 0;
  for (const char *at = text;; at++) {
    const size_t length = strcspn(at, ",");
    if (!read_item(at, length, out, complaint)) return false;
    at += length;
    if (*at == 0) return true;
  }
}

/* Consecutive seeds are joined to ranges. */
static void append_list(const hark_lab_seeds *seeds, hark_text *text) {
  for (int i = 0, end; i < seeds->count; i = end) {
    for (end = i + 1; end < seeds->count && seeds->list[end - 1] + 1 == seeds->list[end];) end++;
    hark_text_append(text, "%s%" PRId64, i > 0 ? "," : "", seeds->list[i]);
    if (end - i > 1) hark_text_append(text, "-%" PRId64, seeds->list[end - 1]);
  }
}

/* ---- results ---- */

static bool are_same(const hark_lab *a, const hark_lab *b) {
  if (a->criterion_count != b->criterion_count) return false;
  for (int c = 0; c < a->criterion_count; c++) {
    const hark_lab_criterion *const one = &a->criteria[c], *const other = &b->criteria[c];
    if (strcmp(one->name, other->name) != 0 || one->low != other->low || one->high != other->high) return false;
  }
  return true;
}

static hark_status add(hark_lab_outcomes *o, int64_t seed, const hark_lab *lab) {
  if (o->seeds.count == HARK_LAB_SEEDS || (o->first != NULL && !are_same(o->first, lab)))
    return hark_fail(o->context, HARK_INTERNAL_ERROR, "an experiment whose criteria depend on the seed");
  o->measured.context = o->context;
  for (int c = 0; c < lab->criterion_count; c++)
    hark_text_append_bytes(&o->measured, (const char *)&lab->criteria[c].measured, sizeof(double));
  HARK_TRY(o->measured.status);
  o->seeds.list[o->seeds.count++] = seed;
  return HARK_OK;
}

hark_status hark_lab_outcomes_add(hark_lab_outcomes *o, int64_t seed, hark_lab **lab) {
  const hark_status status = add(o, seed, *lab);
  if (status == HARK_OK && o->first == NULL) {
    o->first = *lab;
    *lab = NULL;
    hark_lab_forget_numbers(o->first);
  }
  hark_lab_destroy(lab);
  return status;
}

void hark_lab_outcomes_end(hark_lab_outcomes *o) {
  hark_lab_destroy(&o->first);
  hark_text_free(&o->measured);
}

/* A text's memory is HARK_ALIGNMENT-aligned. */
double hark_lab_measured(const hark_lab_outcomes *o, int seed, int criterion) {
  return ((const double *)(const void *)o->measured.data)[(ptrdiff_t)seed * o->first->criterion_count + criterion];
}

bool hark_lab_seed_passes_one(const hark_lab_outcomes *o, int seed, int criterion) {
  hark_lab_criterion one = o->first->criteria[criterion];
  one.measured = hark_lab_measured(o, seed, criterion);
  return hark_lab_passes(&one);
}

bool hark_lab_seed_passes(const hark_lab_outcomes *o, int seed) {
  for (int c = 0; c < o->first->criterion_count; c++)
    if (!hark_lab_seed_passes_one(o, seed, c)) return false;
  return true;
}

int hark_lab_passing_seeds(const hark_lab_outcomes *o) {
  int count = 0;
  for (int s = 0; s < o->seeds.count; s++) count += hark_lab_seed_passes(o, s);
  return count;
}

hark_lab_summary hark_lab_summarise(const hark_lab_outcomes *o, int criterion) {
  const int count = o->seeds.count;
  hark_lab_summary of = {.least = INFINITY, .largest = -INFINITY};
  double squares = 0;
  for (int s = 0; s < count; s++) {
    const double value = hark_lab_measured(o, s, criterion);
    of.passed += hark_lab_seed_passes_one(o, s, criterion);
    of.mean += value / count;
    of.least = hark_lab_smaller(of.least, value);
    of.largest = hark_lab_larger(of.largest, value);
  }
  if (of.least == of.largest) of.mean = of.least; /* to the bit */
  for (int s = 0; s < count; s++) {
    const double away = hark_lab_measured(o, s, criterion) - of.mean;
    squares += away * away;
  }
  of.deviation = count > 1 ? sqrt(squares / (count - 1)) : NAN;
  return of;
}

void hark_lab_append_seeds(const hark_lab_outcomes *o, hark_text *text) { append_list(&o->seeds, text); }

void hark_lab_append_failing_seeds(const hark_lab_outcomes *o, hark_text *text) {
  hark_lab_seeds failing = {.count = 0};
  for (int s = 0; s < o->seeds.count; s++)
    if (!hark_lab_seed_passes(o, s)) failing.list[failing.count++] = o->seeds.list[s];
  append_list(&failing, text);
}

/* ---- printing ---- */

static void print_row(const hark_lab_outcomes *o, int criterion, hark_text *text) {
  const hark_lab_summary of = hark_lab_summarise(o, criterion);
  char bound[HARK_LAB_BOUND_BYTES], share[32], deviation[32];
  hark_lab_bound_text(&o->first->criteria[criterion], bound);
  (void)snprintf(share, sizeof share, "%d of %d", of.passed, o->seeds.count);
  (void)snprintf(deviation, sizeof deviation, o->seeds.count > 1 ? "%.6g" : "-", of.deviation);
  hark_text_append(text, "  %s  %-12s  %-17s  %-12.6g  %-12s  %-12.6g  %-12.6g  %s\n", of.passed == o->seeds.count ? "pass" : "FAIL", share,
                   bound, of.mean, deviation, of.least, of.largest, o->first->criteria[criterion].name);
}

void hark_lab_print_seeds_text(const hark_lab_outcomes *o, const hark_lab_entry *entry, hark_text *text) {
  const int passing = hark_lab_passing_seeds(o);
  hark_lab_print_head(entry, text);
  hark_text_append(text, "seeds: ");
  hark_lab_append_seeds(o, text);
  hark_text_append(text, "%s\n", o->first->quick ? ", quick" : "");
  hark_lab_append_options(o->first, text);
  hark_text_append(text, "\ncriteria\n        %-12s  %-17s  %-12s  %-12s  %-12s  %-12s\n", "passed", "bound", "mean", "deviation", "least",
                   "largest");
  for (int c = 0; c < o->first->criterion_count; c++) print_row(o, c, text);
  if (passing < o->seeds.count) {
    hark_text_append(text, "seeds that fail: ");
    hark_lab_append_failing_seeds(o, text);
    hark_text_append(text, "\n");
  }
  hark_text_append(text, "%s: passed with %d of %d seeds\n", entry->name, passing, o->seeds.count);
}

static void append_numbers(const hark_lab_outcomes *o, int criterion, hark_text *text) {
  for (int s = 0; s < o->seeds.count; s++) {
    hark_text_append(text, "%s", s > 0 ? ", " : "");
    hark_json_append_number(text, hark_lab_measured(o, s, criterion));
  }
}

static void append_summary(const hark_lab_outcomes *o, int criterion, hark_text *text) {
  const hark_lab_summary of = hark_lab_summarise(o, criterion);
  const struct {
    const char *name;
    double value;
  } numbers[] = {{"mean", of.mean}, {"deviation", of.deviation}, {"least", of.least}, {"largest", of.largest}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    hark_text_append(text, ", \"%s\": ", numbers[i].name);
    hark_json_append_number(text, numbers[i].value);
  }
}

void hark_lab_print_seeds_json(const hark_lab_outcomes *o, const hark_lab_entry *entry, hark_text *text) {
  hark_lab_print_json_head(entry, text);
  hark_text_append(text, ", \"seeds\": [");
  for (int s = 0; s < o->seeds.count; s++) hark_text_append(text, "%s%" PRId64, s > 0 ? ", " : "", o->seeds.list[s]);
  hark_text_append(text, "], \"quick\": %s", o->first->quick ? "true" : "false");
  hark_lab_append_options_json(o->first, text);
  hark_text_append(text, ", \"criteria\": [");
  for (int c = 0; c < o->first->criterion_count; c++) {
    const hark_lab_criterion *const criterion = &o->first->criteria[c];
    hark_text_append(text, "%s{\"name\": ", c > 0 ? ", " : "");
    hark_json_append_string(text, criterion->name);
    hark_lab_append_bounds_json(criterion, text);
    hark_text_append(text, ", \"measured\": [");
    append_numbers(o, c, text);
    hark_text_append(text, "]");
    append_summary(o, c, text);
    hark_text_append(text, ", \"passed\": [");
    for (int s = 0; s < o->seeds.count; s++)
      hark_text_append(text, "%s%s", s > 0 ? ", " : "", hark_lab_seed_passes_one(o, s, c) ? "true" : "false");
    hark_text_append(text, "]}");
  }
  hark_text_append(text, "], \"passed\": [");
  for (int s = 0; s < o->seeds.count; s++) hark_text_append(text, "%s%s", s > 0 ? ", " : "", hark_lab_seed_passes(o, s) ? "true" : "false");
  hark_text_append(text, "]}\n");
}
