/* lab_markdown.c - see lab_markdown.h. */
#include "cli/lab/lab_markdown.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/lab/lab_print.h"

#define TITLE "# The laboratory\n"
#define HEAD "| experiment | paper | statement | result |\n|---|---|---|---|\n"
#define MOST_ROWS 16     /* of a table that is shown whole; longer ones are sampled, with their first and last row */
#define MOST_FAILURES 12 /* numbers of a criterion that fails */

static const char introduction[] = TITLE
    "\n"
    "Papers make statements that can be measured. `hark lab NAME` runs one experiment, which measures one statement and judges it by "
    "criteria. A criterion passes or fails. Criteria are part of the code, and those that judge the papers' statements were fixed before "
    "the first full run. If a criterion was changed later, the experiment's page reports the change. A criterion that fails is a result. "
    "The page reports the failure with its numbers and the known reasons, and the criterion is not changed to make it pass.\n"
    "\n"
    "    hark lab --list\n"
    "    hark lab rank-map                                  # tables and criteria\n"
    "    hark lab approximation --figure approximation.svg  # by gnuplot; --terminal draws the curves here\n"
    "    hark lab posterior --seeds 1-10                    # with how many of ten seeds each criterion passes\n"
    "    hark lab all --quick --out lab                     # NAME.txt, NAME.json and NAME.svg of each\n"
    "    hark lab rank-map --markdown docs/lab.md           # its page, its figure and its row of the table below\n"
    "    hark lab all --markdown docs/lab.md                # all pages, figures and rows\n"
    "\n"
    "With `--quick` an experiment has smaller sizes and wider intervals, and takes at most 40 seconds. Otherwise it may take ten minutes. "
    "One seed is a single draw: a criterion that passes with one seed may fail with the next. "
    "[formats.md](formats.md#what-hark-lab-prints) "
    "describes the output, the JSON, and which numbers are the same on every machine.\n"
    "\n"
    "A page begins with the statement. If a formula is incorrect as printed, the corrected one follows. Then come the method, the criteria "
    "with their bounds and measured values, the tables, and the figure. The last line has the command that measures all of it again. If "
    "one "
    "seed was requested and a criterion fails with it, the page has the next seed too.\n"
    "\n"
    "[mathematics/latent-variables.md](mathematics/latent-variables.md) derives the corrected formulas, and lists the statements that "
    "cannot "
    "be measured. [adding-an-experiment.md](adding-an-experiment.md) describes how to add an experiment.\n"
    "\n"
    "In the table, an experiment passes with a seed if all its criteria pass.\n"
    "\n";

/* ---- the front page ---- */

hark_status hark_lab_markdown_check(hark_context *context, const char *path, const hark_text *front) {
  if (strncmp(hark_text_get(front), TITLE, sizeof TITLE - 1) != 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: exists and is not a document of hark lab, which begins with \"# The laboratory\"", path);
  if (strlen(hark_text_get(front)) != front->length) return hark_fail(context, HARK_BAD_FILE, "%s: has a NUL byte, expected text", path);
  if (strstr(hark_text_get(front), "\n" HEAD) == NULL)
    return hark_fail(
        context, HARK_BAD_FILE,
        "%s: exists without a table of experiments, and would be overwritten: expected another name, or the front page of hark "
        "lab",
        path);
  return HARK_OK;
}

/* The row of this experiment with its line's end, or NULL. *length: its bytes. */
static const char *find_row(const char *rows, const char *name, size_t *length) {
  const size_t bytes = strlen(name);
  for (const char *at = rows; *at != 0; at += *length) {
    const char *const end = strchr(at, '\n');
    *length = end != NULL ? (size_t)(end + 1 - at) : strlen(at);
    if (strncmp(at, "| [", 3) == 0 && strncmp(at + 3, name, bytes) == 0 && at[3 + bytes] == ']') return at;
  }
  return NULL;
}

void hark_lab_markdown_front(const hark_text *before, const hark_text *rows, hark_text *text) {
  const char *const table = strstr(hark_text_get(before), "\n" HEAD);
  hark_text_append(text, "%s%s", introduction, HEAD);
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const char *const name = hark_lab_entries[i].name;
    size_t length = 0;
    const char *row = find_row(hark_text_get(rows), name, &length);
    if (row == NULL && table != NULL) row = find_row(table + 1, name, &length);
    if (row == NULL) continue;
    hark_text_append_bytes(text, row, length);
    if (row[length - 1] != '\n') hark_text_append(text, "\n"); /* the last line of a file that was edited by hand */
  }
}

/* "Zhang et al.", of the authors before the first colon. */
static void append_authors(const char *paper, hark_text *text) {
  const size_t first = strcspn(paper, ",:");
  hark_text_append_bytes(text, paper, first);
  if (paper[first] == ',' && strchr(paper, ':') != NULL) hark_text_append(text, " et al.");
}

/* Text of a table's cell: a bar would end it. */
static void append_cell_text(const char *words, hark_text *text) {
  for (; *words != 0; words++) hark_text_append(text, *words == '|' ? "\\%c" : "%c", *words);
}

static void append_result(const hark_lab_outcomes *o, hark_text *text) {
  const int passing = hark_lab_passing_seeds(o), count = o->seeds.count;
  const char *const mark = passing < count ? "**" : "";
  if (count == 1)
    hark_text_append(text, "%s%s%s with seed %" PRId64, mark, passing == 1 ? "passes" : "fails", mark, o->seeds.list[0]);
  else
    hark_text_append(text, "passes with %s%d of %d%s seeds", mark, passing, count, mark);
  if (o->first->quick) hark_text_append(text, ", quick");
}

void hark_lab_markdown_row(const hark_lab_outcomes *o, const hark_lab_entry *entry, const char *folder, hark_text *text) {
  hark_text_append(text, "| [%s](%s/%s.md) | ", entry->name, folder, entry->name);
  append_authors(entry->experiment->paper, text);
  hark_text_append(text, " | ");
  append_cell_text(entry->experiment->summary, text);
  hark_text_append(text, " | ");
  if (o != NULL)
    append_result(o, text);
  else
    hark_text_append(text, "not measured");
  hark_text_append(text, " |\n");
}

/* ---- pages ---- */

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

void hark_lab_markdown_title(const char *name, char out[HARK_LAB_TITLE_BYTES]) {
  (void)snprintf(out, HARK_LAB_TITLE_BYTES, "# Experiment %s\n\n[Laboratory](", name);
}

void hark_lab_markdown_texts(const hark_lab_entry *entry, const char *front, hark_text *text) {
  const hark_experiment *const e = entry->experiment;
  char title[HARK_LAB_TITLE_BYTES];
  hark_lab_markdown_title(entry->name, title);
  hark_text_append(text, "%s../%s). %s.\n\n*Statement.* %s.\n", title, front, e->paper, e->statement);
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

void hark_lab_markdown_page(const hark_lab_outcomes *o, const hark_lab_entry *entry, const char *front, hark_text *text) {
  const hark_lab *const lab = o->first;
  const bool drawn = lab->panel_count > 0;
  hark_lab_markdown_texts(entry, front, text);
  if (o->seeds.count == 1)
    append_criteria(lab, text);
  else
    append_shares(o, text);
  if (hark_lab_passing_seeds(o) < o->seeds.count) append_failures(o, entry, text);
  if (o->seeds.count > 1) hark_text_append(text, "\nTables%s with seed %" PRId64 ":\n", drawn ? " and figure" : "", o->seeds.list[0]);
  for (int i = 0; i < lab->table_count; i++) append_table(&lab->tables[i], text);
  if (drawn) hark_text_append(text, "\n![%s](%s.svg)\n", entry->experiment->summary, entry->name);
  append_verdict(o, entry, text);
}

void hark_lab_markdown_left_out(const hark_lab_entry *entry, const char *front, hark_text *text) {
  hark_lab_markdown_texts(entry, front, text);
  hark_text_append(text, "\nNot measured: the build does not have %s.\n", hark_lab_missing(entry->experiment));
}
