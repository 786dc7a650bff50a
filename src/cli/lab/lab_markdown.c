/* lab_markdown.c - see lab_markdown.h. */
#include "cli/lab/lab_markdown.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/lab/lab_print.h"

#define TITLE "# The laboratory\n"
#define MOST_ROWS 16     /* of a table that is shown whole; longer ones are sampled, with their first and last row */
#define MOST_FAILURES 12 /* numbers of a criterion that fails */

static const char introduction[] = TITLE
    "\n"
    "Papers make statements that can be measured. `hark lab NAME` runs one experiment, which measures one statement. "
    "It prints tables, judges the statement by criteria (pass or fail), draws a figure, and writes JSON. The "
    "criteria are part of the code. The criteria that judge the papers' statements were fixed before the first run "
    "of the full experiment. A few criteria, or the quantities that they judge, were changed later. The notes of "
    "their experiments report these changes.\n"
    "\n"
    "    hark lab --list\n"
    "    hark lab rank-map                                  # tables and criteria\n"
    "    hark lab approximation --figure approximation.svg  # by gnuplot; --terminal draws the curves here\n"
    "    hark lab all --quick --out lab                     # NAME.txt, NAME.json and NAME.svg of each\n"
    "    hark lab all --markdown docs/lab.md                # this document, figures in docs/lab/\n"
    "    hark lab rank-map --markdown docs/lab.md           # its section and figure; the others stay\n"
    "    hark lab posterior --seeds 1-10                    # in how many of ten seeds each criterion passes\n"
    "\n"
    "With `--quick` an experiment has smaller sizes and wider intervals, and takes at most 40 seconds. Such runs "
    "serve as tests. Without `--quick` an experiment may take ten minutes. A criterion that fails is a result. The "
    "failure is reported with its numbers and the known reasons, and the criterion is not changed to make it pass. "
    "The exit code is 0 even if a criterion fails. With `--strict` it is then 1. Some experiments compare their "
    "measurements with closed forms. These closed forms need GSL, for its Bessel functions and its quadrature. A "
    "build without GSL leaves these experiments out of `all`, and refuses to run one that is given by name.\n"
    "\n"
    "A result with one seed is a single draw: a criterion that passes with one seed may fail with the next. `--seeds "
    "1-10` (or `1,3,7-9`) runs an experiment with several seeds. For every criterion the output then shows how many "
    "seeds passed. It also shows four statistics of the measured values: the mean, the standard deviation (with n - "
    "1), the least value and the largest value. If the measured value of a seed is nan, this seed fails, and the "
    "four statistics are nan. The last line is `passed with N of M seeds`. With `--strict` the exit code is 1 unless "
    "all seeds pass. Tables and figures show the first seed.\n"
    "\n"
    "Each section below ends with the seeds that were measured. If a section is written with one seed and a "
    "criterion fails, the next seed is run too, and the section has the results of both.\n"
    "\n"
    "Experiments compute in float64, with the attention of the reference backend. Random numbers are Philox streams "
    "of `--seed` (default 1). So the same seed gives the same numbers on any machine with the same C library, for "
    "any number of threads. Measured times (`ahca-cost`) are an exception. Models that are given with `--run` are "
    "another, and so are networks that an experiment trains with hark's trainer. These models and networks compute "
    "in f32, as they do elsewhere. Their numbers therefore differ between instruction sets.\n"
    "\n"
    "In the printed output, the second line of a table has the units. The line of a criterion has the measured "
    "value, the interval that must contain this value (its ends included), and the name of the criterion.\n"
    "\n"
    "The JSON object of an experiment has the members `experiment`, `paper`, `statement`, `seed`, `quick`, `tables`, "
    "`criteria` and `passed`. Each item of `tables` has a `title`, `columns` (each with `name` and `unit`) and "
    "`rows`. Each item of `criteria` has `name`, `measured`, `low`, `high` and `passed`. An infinite bound is null, "
    "and so is a measured value that is nan. Criteria are computed from the tables alone, so anyone who has this "
    "object can compute them again.\n"
    "\n";

static const char of_seeds[] =
    "With `--seeds` the object has no tables. Its members `seeds` and `passed` are arrays with one item per seed. In "
    "each item of `criteria`, `measured` and `passed` are such arrays too. The item also has `mean`, `deviation`, "
    "`least` and `largest`.\n"
    "\n"
    "[mathematics/latent-variables.md](mathematics/latent-variables.md) derives the corrected formulas, and lists "
    "the statements that cannot be measured. [adding-an-experiment.md](adding-an-experiment.md) describes how to add "
    "an experiment.\n";

void hark_lab_markdown_begin(hark_text *text) { hark_text_append(text, "%s%s", introduction, of_seeds); }

/* ---- one section of a document ---- */

hark_status hark_lab_markdown_check(hark_context *context, const char *path, const hark_text *document) {
  if (strncmp(hark_text_get(document), TITLE, sizeof TITLE - 1) != 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: exists and is not a document of hark lab, which begins with \"# The laboratory\"", path);
  if (strlen(hark_text_get(document)) != document->length)
    return hark_fail(context, HARK_BAD_FILE, "%s: has a NUL byte, expected text", path);
  return HARK_OK;
}

static bool line_begins(const char *line, const char *with) { return strncmp(line, with, strlen(with)) == 0; }

/* The beginning of the next section, its empty line included, or the end. Lines between ``` are not headings. */
static const char *next_section(const char *at) {
  bool fenced = false;
  for (const char *end = strchr(at, '\n'); end != NULL; end = strchr(end + 1, '\n')) {
    if (line_begins(end + 1, "```")) fenced = !fenced;
    if (!fenced && line_begins(end + 1, "## ")) return end;
  }
  return at + strlen(at);
}

/* The experiment whose section begins here, or -1. */
static int experiment_of(const char *section) {
  char name[HARK_LAB_LABEL_BYTES];
  const char *const first = section + strlen("\n## ");
  const size_t length = strcspn(first, "\r\n");
  if (length >= sizeof name) return -1;
  memcpy(name, first, length);
  name[length] = 0;
  return hark_lab_find(name);
}

void hark_lab_markdown_renew(const hark_text *document, const hark_lab_entry *entry, const hark_text *section, hark_text *text) {
  const int own = hark_lab_find(entry->name);
  const char *const first = next_section(hark_text_get(document));
  bool there = false, written = false;
  for (const char *at = first; *at != 0; at = next_section(at + 1)) there = there || experiment_of(at) == own;
  hark_lab_markdown_begin(text);
  for (const char *at = first, *end; *at != 0; at = end) {
    const int found = experiment_of(at);
    end = next_section(at + 1);
    if (!written && (there ? found == own : found > own)) {
      hark_text_append_bytes(text, hark_text_get(section), section->length);
      written = true;
    }
    if (found != own) hark_text_append_bytes(text, at, (size_t)(end - at));
  }
  if (!written) hark_text_append_bytes(text, hark_text_get(section), section->length);
}

/* ---- sections ---- */

/* Text of a table's cell: a bar would end it. */
static void append_cell_text(const char *words, hark_text *text) {
  for (; *words != 0; words++) hark_text_append(text, *words == '|' ? "\\%c" : "%c", *words);
}

static void append_table(const hark_lab_table *table, hark_text *text) {
  const int64_t rows = hark_lab_row_count(table), step = (rows + MOST_ROWS - 1) / MOST_ROWS;
  char cell[HARK_LAB_CELL_BYTES];
  hark_text_append(text, "\n%s%s\n\n|", table->title, step > 1 ? " (some of the rows)" : "");
  for (int c = 0; c < table->column_count; c++) {
    hark_text_append(text, " ");
    append_cell_text(table->columns[c].name, text);
    if (table->columns[c].unit != NULL) {
      hark_text_append(text, " (");
      append_cell_text(table->columns[c].unit, text);
      hark_text_append(text, ")");
    }
    hark_text_append(text, " |");
  }
  hark_text_append(text, "\n|");
  for (int c = 0; c < table->column_count; c++) hark_text_append(text, table->columns[c].words != NULL ? "---|" : "--:|");
  for (int64_t i = 0; i < rows; i++) {
    if (i % step != 0 && i != rows - 1) continue;
    hark_text_append(text, "\n|");
    for (int c = 0; c < table->column_count; c++) {
      hark_lab_cell_text(&table->columns[c], hark_lab_row(table, i)[c], cell);
      hark_text_append(text, " ");
      append_cell_text(cell, text);
      hark_text_append(text, " |");
    }
  }
  hark_text_append(text, "\n");
}

static void append_bounds(const hark_lab_criterion *criterion, hark_text *text) {
  if (criterion->low == criterion->high)
    hark_text_append(text, "= %g", criterion->low);
  else if (isinf(criterion->high))
    hark_text_append(text, ">= %g", criterion->low);
  else
    hark_text_append(text, "[%g, %g]", criterion->low, criterion->high);
}

static void append_criteria(const hark_lab *lab, hark_text *text) {
  hark_text_append(text, "\n| criterion | bound | measured | |\n|---|---|--:|---|\n");
  for (int i = 0; i < lab->criterion_count; i++) {
    const hark_lab_criterion *const criterion = &lab->criteria[i];
    hark_text_append(text, "| ");
    append_cell_text(criterion->name, text);
    hark_text_append(text, " | ");
    append_bounds(criterion, text);
    hark_text_append(text, " | %.4g | %s |\n", criterion->measured, hark_lab_passes(criterion) ? "pass" : "**fail**");
  }
}

/* The same for several seeds. */
static void append_shares(const hark_lab_outcomes *o, hark_text *text) {
  hark_text_append(text, "\n| criterion | bound | passed | mean | deviation | least | largest |\n|---|---|---|--:|--:|--:|--:|\n");
  for (int i = 0; i < o->first->criterion_count; i++) {
    const hark_lab_summary of = hark_lab_summarise(o, i);
    const char *const mark = of.passed < o->seeds.count ? "**" : "";
    hark_text_append(text, "| ");
    append_cell_text(o->first->criteria[i].name, text);
    hark_text_append(text, " | ");
    append_bounds(&o->first->criteria[i], text);
    hark_text_append(text, " | %s%d of %d%s | %.4g | %.2g | %.4g | %.4g |\n", mark, of.passed, o->seeds.count, mark, of.mean, of.deviation,
                     of.least, of.largest);
  }
}

static void begin_section(const hark_lab_entry *entry, hark_text *text) {
  const hark_experiment *const e = entry->experiment;
  hark_text_append(text, "\n## %s\n\n%s.\n\n*Statement.* %s.\n", entry->name, e->paper, e->statement);
  if (e->printed != NULL) hark_text_append(text, "\n*As printed, incorrect.* `%s`\n\n*Corrected.* `%s`\n", e->printed, e->corrected);
  if (e->notes != NULL) hark_text_append(text, "\n%s\n", e->notes);
}

static bool fails_somewhere(const hark_lab_outcomes *o, int criterion) {
  for (int s = 0; s < o->seeds.count; s++)
    if (!hark_lab_seed_passes_one(o, s, criterion)) return true;
  return false;
}

static bool is_explained(const hark_experiment *experiment, const hark_lab_criterion *criterion) {
  char words[HARK_LAB_LABEL_BYTES];
  const char *at = experiment->failure != NULL ? experiment->failure_of : NULL;
  while (at != NULL) { /* separated by | */
    const char *const end = strchr(at, '|');
    (void)snprintf(words, sizeof words, "%.*s", (int)(end != NULL ? end - at : (ptrdiff_t)strlen(at)), at);
    if (words[0] != 0 && strstr(criterion->name, words) != NULL) return true;
    at = end != NULL ? end + 1 : NULL;
  }
  return false;
}

/* Names of the criteria that fail and are explained, or are not. Returns how many. */
static int append_names(const hark_lab_outcomes *o, const hark_experiment *experiment, bool explained, hark_text *text) {
  const char *const begin = explained ? "\n*Explanation of* " : "\n*No explanation is known* for ";
  int count = 0;
  for (int i = 0; i < o->first->criterion_count; i++) {
    const hark_lab_criterion *const criterion = &o->first->criteria[i];
    if (!fails_somewhere(o, i) || is_explained(experiment, criterion) != explained) continue;
    hark_text_append(text, "%s\"%s\"", count > 0 ? ", " : begin, criterion->name);
    count++;
  }
  return count;
}

/* Criteria that fail with some seed, what was measured with it, and the explanation of those that have one. */
static void append_failures(const hark_lab_outcomes *o, const hark_lab_entry *entry, hark_text *text) {
  hark_text_append(text, "\n| criterion that fails | bound | measured where it fails |\n|---|---|---|\n");
  for (int i = 0; i < o->first->criterion_count; i++) {
    int failed = 0;
    if (!fails_somewhere(o, i)) continue;
    hark_text_append(text, "| ");
    append_cell_text(o->first->criteria[i].name, text);
    hark_text_append(text, " | ");
    append_bounds(&o->first->criteria[i], text);
    hark_text_append(text, " |");
    for (int s = 0; s < o->seeds.count; s++) {
      if (hark_lab_seed_passes_one(o, s, i)) continue;
      if (failed++ < MOST_FAILURES)
        hark_text_append(text, "%s %.4g (seed %" PRId64 ")", failed > 1 ? "," : "", hark_lab_measured(o, s, i), o->seeds.list[s]);
    }
    if (failed > MOST_FAILURES) hark_text_append(text, " and with %d other seeds", failed - MOST_FAILURES);
    hark_text_append(text, " |\n");
  }
  if (append_names(o, entry->experiment, true, text) > 0) hark_text_append(text, ". %s\n", entry->experiment->failure);
  if (append_names(o, entry->experiment, false, text) > 0) hark_text_append(text, ".\n");
}

/* The verdict, and the command that reproduces it. */
static void append_verdict(const hark_lab_outcomes *o, const hark_lab_entry *entry, hark_text *text) {
  const hark_lab *const lab = o->first;
  const bool one = o->seeds.count == 1;
  if (one)
    hark_text_append(text, "\nSeed %" PRId64 " %s", o->seeds.list[0], hark_lab_all_pass(lab) ? "passes" : "**fails**");
  else
    hark_text_append(text, "\nPassed with %d of %d seeds", hark_lab_passing_seeds(o), o->seeds.count);
  hark_text_append(text, ": `hark lab %s --seed%s ", entry->name, one ? "" : "s");
  hark_lab_append_seeds(o, text);
  hark_text_append(text, "%s%s`%s\n", lab->quick ? " --quick" : "", lab->given != NULL ? lab->given : "",
                   one ? ". Other seeds are not recorded here." : "");
}

void hark_lab_markdown_section(const hark_lab_outcomes *o, const hark_lab_entry *entry, const char *figure, hark_text *text) {
  const hark_lab *const lab = o->first;
  begin_section(entry, text);
  if (o->seeds.count == 1)
    append_criteria(lab, text);
  else
    append_shares(o, text);
  if (hark_lab_passing_seeds(o) < o->seeds.count) append_failures(o, entry, text);
  if (o->seeds.count > 1)
    hark_text_append(text, "\nTables%s with seed %" PRId64 ":\n", figure != NULL ? " and figure" : "", o->seeds.list[0]);
  for (int i = 0; i < lab->table_count; i++) append_table(&lab->tables[i], text);
  if (figure != NULL) hark_text_append(text, "\n![%s](%s)\n", entry->experiment->summary, figure);
  append_verdict(o, entry, text);
}

void hark_lab_markdown_left_out(const hark_lab_entry *entry, const char *missing, hark_text *text) {
  begin_section(entry, text);
  hark_text_append(text, "\nNot measured: the build does not have %s.\n", missing);
}
