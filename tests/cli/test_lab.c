/* test_lab.c - hark lab: the list is the table of experiments, JSON holds what the experiment measured, files and figures, and what is
 * refused. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/lab/lab_document.h"
#include "cli/lab/lab_print.h"
#include "io/files.h"
#include "support/lab_fixture.h"

static void the_list_is_the_table(void **state) {
  (void)state;
  hark("hark lab --list", 0);
  const char *at = output.out;
  for (int i = 0; i < hark_lab_entry_count; i++) {
    at = strstr(at, hark_lab_entries[i].name);
    assert_non_null(at);
    assert_non_null(strstr(at, hark_lab_entries[i].experiment->summary));
    assert_int_equal(hark_lab_find(hark_lab_entries[i].name), i);
  }
  assert_int_equal(test_line_count(output.out), 2 * hark_lab_entry_count);
  hark("hark lab --list --json", 0);
  json_t *document = parsed(output.out);
  const json_t *const experiments = json_object_get(document, "experiments");
  assert_int_equal(json_array_size(experiments), hark_lab_entry_count);
  for (int i = 0; i < hark_lab_entry_count; i++)
    assert_string_equal(json_string_value(json_object_get(json_array_get(experiments, (size_t)i), "name")), hark_lab_entries[i].name);
  json_decref(document);
}

static void check_table(const hark_lab_table *table, const json_t *object) {
  const json_t *const rows = json_object_get(object, "rows"), *const columns = json_object_get(object, "columns");
  assert_string_equal(json_string_value(json_object_get(object, "title")), table->title);
  assert_int_equal(json_array_size(columns), table->column_count);
  assert_int_equal(json_array_size(rows), hark_lab_row_count(table));
  for (int64_t i = 0; i < hark_lab_row_count(table); i++)
    for (int c = 0; c < table->column_count; c++) {
      const json_t *const value = json_array_get(json_array_get(rows, (size_t)i), (size_t)c);
      const double number = hark_lab_row(table, i)[c];
      if (table->columns[c].words == NULL)
        assert_true(json_is_number(value) && json_number_value(value) == number);
      else
        assert_int_equal(hark_option_choice(table->columns[c].words, json_string_value(value)), (int)number);
    }
}

static void check_criterion(const hark_lab_criterion *criterion, const json_t *object) {
  const json_t *const high = json_object_get(object, "high");
  assert_string_equal(json_string_value(json_object_get(object, "name")), criterion->name);
  assert_true(json_number_value(json_object_get(object, "measured")) == criterion->measured);
  assert_true(json_number_value(json_object_get(object, "low")) == criterion->low);
  assert_true(isinf(criterion->high) ? json_is_null(high) : json_number_value(high) == criterion->high);
  assert_true(json_is_true(json_object_get(object, "passed")) == hark_lab_passes(criterion));
}

/* The command's JSON, with the same experiment run here. */
static void json_holds_what_was_measured(void **state) {
  (void)state;
  static const char *const names[] = {"nadaraya-watson", "rank-map"};
  for (int n = 0; n < 2; n++) {
    char line[128];
    hark_lab *lab;
    (void)snprintf(line, sizeof line, "hark lab %s --quick --seed 11 --json", names[n]);
    hark(line, 0);
    assert_int_equal(test_line_count(output.out), 1);
    json_t *document = parsed(output.out);
    const hark_experiment *const experiment = hark_lab_entries[hark_lab_find(names[n])].experiment;
    assert_fine(context, hark_lab_create(context, true, 11, NULL, &lab));
    assert_fine(context, hark_lab_run(lab, experiment));
    assert_string_equal(json_string_value(json_object_get(document, "experiment")), names[n]);
    assert_string_equal(json_string_value(json_object_get(document, "paper")), experiment->paper);
    assert_int_equal(json_integer_value(json_object_get(document, "seed")), 11);
    assert_true(json_is_true(json_object_get(document, "quick")));
    const json_t *const tables = json_object_get(document, "tables"), *const criteria = json_object_get(document, "criteria");
    assert_int_equal(json_array_size(tables), lab->table_count);
    assert_int_equal(json_array_size(criteria), lab->criterion_count);
    for (int i = 0; i < lab->table_count; i++) check_table(&lab->tables[i], json_array_get(tables, (size_t)i));
    for (int i = 0; i < lab->criterion_count; i++) check_criterion(&lab->criteria[i], json_array_get(criteria, (size_t)i));
    assert_true(json_is_true(json_object_get(document, "passed")) == hark_lab_all_pass(lab));
    json_decref(document);
    hark_lab_destroy(&lab);
  }
}

/* Words where a column has them, FAIL where a criterion does, in both forms. */
static void words_and_failures_are_reported(void **state) {
  (void)state;
  static const hark_lab_column columns[] = {{"kind", NULL, "plain|odd"}, {"value", "nats", NULL}};
  const double row[] = {1, 0.25};
  const hark_lab_entry *const entry = &hark_lab_entries[0];
  hark_lab *lab;
  hark_lab_table *table;
  hark_text text = hark_text_empty(context), json = hark_text_empty(context);
  assert_fine(context, hark_lab_create(context, false, 3, NULL, &lab));
  assert_fine(context, hark_lab_add_table(lab, "kinds", columns, 2, &table));
  assert_fine(context, hark_lab_add_row(lab, table, row));
  assert_fine(context, hark_lab_require(lab, 5, 0, 1, "too large"));
  hark_lab_print_text(lab, entry, &text);
  assert_non_null(strstr(hark_text_get(&text), "   odd   0.25\n"));
  assert_non_null(strstr(hark_text_get(&text), "FAIL  5 "));
  assert_non_null(strstr(hark_text_get(&text), ": FAILED\n"));
  hark_lab_print_json(lab, entry, &json);
  json_t *document = parsed(hark_text_get(&json));
  check_table(table, json_array_get(json_object_get(document, "tables"), 0));
  check_criterion(&lab->criteria[0], json_array_get(json_object_get(document, "criteria"), 0));
  assert_true(json_is_false(json_object_get(document, "passed")));
  assert_true(json_is_false(json_object_get(document, "quick")));
  json_decref(document);
  hark_text_free(&text);
  hark_text_free(&json);
  hark_lab_destroy(&lab);
}

/* What the reader of options takes for a name is that experiment, and not none. */
static void other_spellings_are_the_same(void **state) {
  (void)state;
  hark("hark lab generalization --quick --json", 0);
  json_t *document = parsed(output.out);
  assert_string_equal(json_string_value(json_object_get(document, "experiment")), "generalisation");
  json_decref(document);
}

static void only_strict_runs_fail(void **state) {
  (void)state;
  assert_int_equal(hark_lab_exit_code(true, false), 0);
  assert_int_equal(hark_lab_exit_code(true, true), 0);
  assert_int_equal(hark_lab_exit_code(false, false), 0);
  assert_int_equal(hark_lab_exit_code(false, true), 1);
  hark("hark lab rank-map --quick --strict", 0);
}

static bool is_file(const char *name) { return access(name, R_OK) == 0; }

/* The script of a figure: every panel has a range of its own, beyond the data; the terms of the sum have one colour. */
static void figures_have_margins_and_colors(void **state) {
  (void)state;
  char *const path = strdup(getenv("PATH") != NULL ? getenv("PATH") : "");
  (void)setenv("PATH", "/nowhere", 1);
  hark("hark lab nadaraya-watson --quick --figure margins.svg", 0);
  hark("hark lab sufficiency --quick --figure whole.svg", 0);
  (void)setenv("PATH", path, 1);
  free(path);
  char *const whole = test_file_text(folder, "whole.svg.gp");
  assert_non_null(strstr(whole, "tics 1\n")); /* few whole numbers have a tick each */
  free(whole);
  char *const script = test_file_text(folder, "margins.svg.gp");
  double low, high;
  assert_non_null(strstr(script, "set multiplot layout 3,1"));
  const char *const first = strstr(script, "set xrange [");
  assert_non_null(first);
  assert_int_equal(sscanf(first, "set xrange [%lf:%lf]", &low, &high), 2); /* nine points, 0 to 8 */
  assert_true(low < 0 && low > -1 && high > 8 && high < 9);
  int terms = 0;
  const char *const end = strstr(script, "set title 'estimates of one draw'");
  for (const char *at = script; (at = strstr(at, "lines lw 1.5 dt 2 lc rgb '#009e73'")) != NULL && at < end; at++) terms++;
  assert_int_equal(terms, 9);
  free(script);
}

static void files_and_figures_are_written(void **state) {
  (void)state;
  const bool gnuplot = system("command -v gnuplot >/dev/null 2>&1") == 0;
  hark("hark lab rank-map --quick --out made", 0);
  char *const printed = strdup(output.out), *const text = test_file_text(folder, "made/rank-map.txt");
  assert_true(strncmp(printed, text, strlen(text)) == 0);
  free(printed);
  free(text);
  char *const json = test_file_text(folder, "made/rank-map.json");
  json_decref(parsed(json));
  free(json);
  assert_true(is_file(gnuplot ? "made/rank-map.svg" : "made/rank-map.svg.gp"));
  if (gnuplot) { /* the ranks stand in the picture: four blocks of 4, six of 2 */
    char *const svg = test_file_text(folder, "made/rank-map.svg");
    int fours = 0;
    for (const char *at = svg; (at = strstr(at, ">4</")) != NULL; at++) fours++;
    assert_true(fours >= 4);
    free(svg);
  }
  hark("hark lab rank-map --quick --out made", 0); /* its own files are replaced */
  static const char *const others[] = {"txt", "json", "svg"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char line[128], name[64];
    (void)snprintf(name, sizeof name, "others%zu/rank-map.%s", i, others[i]);
    (void)snprintf(line, sizeof line, "hark lab rank-map --quick --out others%zu", i);
    test_file_write_text(folder, name, "a map of ranks\n");
    hark(line, HARK_EXIT_USAGE);
    assert_non_null(strstr(output.err, "and would be overwritten: expected another --out"));
    char *const kept = test_file_text(folder, name);
    assert_string_equal(kept, "a map of ranks\n");
    free(kept);
  }
  hark("hark lab nadaraya-watson --quick --json --figure picture.svg", 0);
  json_decref(parsed(output.out)); /* and nothing else */
  assert_true(is_file(gnuplot ? "picture.svg" : "picture.svg.gp"));
  hark("hark lab nadaraya-watson --quick --terminal", 0);
  assert_non_null(strstr(output.out, "error over the bandwidth: log10 of mean square\n"));
}

/* A page has the formulas, every criterion with its verdict, and a link to a figure that is there. */
static void a_page_is_written(void **state) {
  (void)state;
  const hark_experiment *const experiment = hark_lab_entries[hark_lab_find("covering")].experiment;
  hark_lab *lab;
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  assert_fine(context, hark_lab_run(lab, experiment));
  hark("hark lab covering --quick --markdown paper.md", 0);
  char *const page = test_file_text(folder, "paper/covering.md");
  assert_true(strncmp(page, "# Experiment covering\n\n[Laboratory](../paper.md). ", 50) == 0);
  assert_non_null(strstr(page, experiment->statement));
  assert_non_null(strstr(page, experiment->printed));
  assert_non_null(strstr(page, experiment->corrected));
  assert_non_null(strstr(page, "](covering.svg)"));
  assert_non_null(strstr(page, "\nSeed 1 passes: `hark lab covering --seed 1 --quick`. Other seeds are not recorded here.\n"));
  int verdicts = 0;
  for (const char *row = page; (row = strstr(row, " | pass |\n")) != NULL; row++) verdicts++;
  assert_int_equal(verdicts, lab->criterion_count);
  assert_true(is_file("paper/covering.svg") || is_file("paper/covering.svg.gp"));
  free(page);
  char *const front = test_file_text(folder, "paper.md");
  assert_non_null(strstr(front, "|---|---|---|---|\n| [covering](paper/covering.md) | Zhang et al. | the bound on the covering number "));
  assert_non_null(strstr(front, " | passes with seed 1, quick |\n"));
  free(front);
  /* one that fails is reported as failed */
  hark_text text = hark_text_empty(context), row = hark_text_empty(context);
  const hark_lab_entry *const entry = &hark_lab_entries[hark_lab_find("covering")];
  lab->criteria[0].measured = NAN;
  hark_lab_outcomes outcomes = {.context = context};
  assert_fine(context, hark_lab_outcomes_add(&outcomes, 1, &lab));
  hark_lab_markdown_page(&outcomes, entry, "lab.md", &text);
  assert_non_null(strstr(hark_text_get(&text), "| nan | **fail** |\n"));
  assert_non_null(strstr(hark_text_get(&text), "\nSeed 1 **fails**: `hark lab covering"));
  hark_lab_markdown_row(&outcomes, entry, "lab", &row);
  assert_non_null(strstr(hark_text_get(&row), " | **fails** with seed 1, quick |\n"));
  hark_text_free(&text);
  hark_text_free(&row);
  hark_lab_outcomes_end(&outcomes);
}

/* A pipe is written and not read before: reading would wait for a document. */
static void a_document_goes_into_a_pipe(void **state) {
  (void)state;
  char part[16] = "";
  assert_int_equal(mkfifo("pipe.md", 0600), 0);
  const int pipe = open("pipe.md", O_RDWR | O_NONBLOCK); /* both ends are open, so that nobody waits for the other one */
  assert_true(pipe >= 0);
  hark("hark lab covering --quick --markdown pipe.md", 0);
  assert_int_equal(read(pipe, part, sizeof part - 1), (ssize_t)sizeof part - 1);
  assert_string_equal(part, "# The laborator");
  assert_int_equal(close(pipe), 0);
}

#define TABLE_HEAD "| experiment | paper | statement | result |\n|---|---|---|---|\n"

/* One experiment's page and row are written in their place; the others keep their bytes. */
static void a_page_is_renewed(void **state) {
  (void)state;
  static const char before[] = "# The laboratory\n\nold words\n\n" TABLE_HEAD
                               "| [covering](x.md) | third |\n| [nadaraya-watson](y.md) | first |\r\n| [gone](some/gone.md) | last |\n";
  char *front = NULL, *page = NULL;
  assert_fine(context, hark_folder_make(context, "some"));
  test_file_write_text(folder, "some/covering.md", "third\n");
  test_file_write_text(folder, "some/gone.md", "# Experiment gone\n\n[Laboratory](../some.md). A paper.\n");
  test_file_write_text(folder, "some/notes.md", "# Notes\n");
  assert_fine(context, hark_file_write(context, "some.md", before, sizeof before - 1));
  for (int seed = 1; seed <= 2; seed++) {
    char line[512];
    const char *const threads = seed == 1 ? "" : " --threads 1"; /* printed, as times depend on it */
    (void)snprintf(line, sizeof line, "hark lab rank-map --quick --seed %d%s --markdown some.md", seed, threads);
    hark(line, 0);
    /* a name that left: its row is gone, and its page is reported */
    assert_non_null(strstr(output.err, "some/gone.md: no experiment has this name"));
    assert_null(strstr(output.err, "notes.md"));
    free(front);
    free(page);
    front = test_file_text(folder, "some.md");
    (void)snprintf(line, sizeof line,
                   TABLE_HEAD
                   "| [nadaraya-watson](y.md) | first |\r\n| [rank-map](some/rank-map.md) | Zhu et al. | %s | passes with seed "
                   "%d, quick |\n| [covering](x.md) | third |\n",
                   hark_lab_entries[hark_lab_find("rank-map")].experiment->summary, seed);
    assert_string_equal(front + strlen(front) - strlen(line), line);
    assert_null(strstr(front, "old words"));
    page = test_file_text(folder, "some/rank-map.md");
    (void)snprintf(line, sizeof line, "\nSeed %d passes: `hark lab rank-map --seed %d --quick%s`. Other seeds are not recorded here.\n",
                   seed, seed, threads);
    assert_string_equal(page + strlen(page) - strlen(line), line);
  }
  free(front);
  free(page);
  page = test_file_text(folder, "some/covering.md");
  assert_string_equal(page, "third\n");
  free(page);
}

/* Nothing is run, and the file stays. */
static void expect_kept(const char *line, const char *name, const char *text, size_t bytes, const char *part) {
  size_t kept = 0;
  assert_fine(context, hark_file_write(context, name, text, bytes));
  hark(line, HARK_EXIT_BAD_INPUT);
  if (strstr(output.err, part) == NULL) fail_msg("%s: %s, expected \"%s\"", line, output.err, part);
  assert_int_equal(test_line_count(output.err), 1);
  assert_string_equal(output.out, "");
  unsigned char *const now = test_file_read(name, &kept);
  assert_int_equal(kept, bytes);
  assert_memory_equal(now, text, bytes);
  free(now);
}

static void foreign_documents_stay(void **state) {
  (void)state;
  static const char *const chosen[] = {"rank-map", "all"};
  static const char nul[] = "# The laboratory\n\0", earlier[] = "# The laboratory\n\n## covering\n\nthird\n", notes[] = "# Notes\n";
  static const char other[] = "# Experiment rank-mapping\n\n[Laboratory](../page.md). A page.\n";
  assert_fine(context, hark_folder_make(context, "page"));
  for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
    char line[128];
    (void)snprintf(line, sizeof line, "hark lab %s --quick --markdown kept.md", chosen[i]);
    expect_kept(line, "kept.md", nul, sizeof nul - 1, "kept.md: has a NUL byte");
    expect_kept(line, "kept.md", notes, sizeof notes - 1, "kept.md: exists and is not a document of hark lab");
    expect_kept(line, "kept.md", earlier, sizeof earlier - 1, "kept.md: exists without a table of experiments");
    (void)snprintf(line, sizeof line, "hark lab %s --quick --markdown page.md", chosen[i]);
    expect_kept(line, "page/rank-map.md", notes, sizeof notes - 1, "page/rank-map.md: exists and is not the page of this experiment");
    expect_kept(line, "page/rank-map.md", other, sizeof other - 1, "page/rank-map.md: exists and is not the page of this experiment");
    assert_false(is_file("page.md"));
  }
}

/* Every link of a page names a file that is there. Code between backquotes may have brackets. */
static void check_links(const char *name, const char *page, const char *place) {
  bool code = false;
  for (const char *at = page; *at != 0; at++) {
    char path[2 * TEST_PATH_BYTES];
    if (*at == '`') code = !code;
    if (code || strncmp(at, "](", 2) != 0 || strncmp(at + 2, "http", 4) == 0) continue;
    (void)snprintf(path, sizeof path, "%s/%.*s", place, (int)strcspn(at + 2, "#)"), at + 2);
    if (access(path, R_OK) != 0) fail_msg("%s: the link to %s has no file", name, path);
  }
}

/* docs/lab.md and docs/lab/NAME.md: the texts are those of the program, and every experiment has a page and a row. */
static void the_documents_are_current(void **state) {
  (void)state;
  hark_text front = hark_text_empty(context), none = hark_text_empty(context), again = hark_text_empty(context);
  assert_fine(context, hark_file_read(context, HARK_SOURCE_DIR "/docs/lab.md", 1 << 20, &front));
  assert_fine(context, hark_lab_markdown_check(context, "docs/lab.md", &front));
  hark_lab_markdown_front(&front, &none, &again);
  assert_string_equal(hark_text_get(&front), hark_text_get(&again));
  check_links("docs/lab.md", hark_text_get(&front), HARK_SOURCE_DIR "/docs");
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const hark_lab_entry *const entry = &hark_lab_entries[i];
    hark_text page = hark_text_empty(context), texts = hark_text_empty(context), row = hark_text_empty(context);
    char path[TEST_PATH_BYTES];
    (void)snprintf(path, sizeof path, HARK_SOURCE_DIR "/docs/lab/%s.md", entry->name);
    assert_fine(context, hark_file_read(context, path, 1 << 20, &page));
    hark_lab_markdown_texts(entry, "lab.md", &texts);
    if (strncmp(hark_text_get(&page), hark_text_get(&texts), texts.length) != 0)
      fail_msg("build/hark lab %s --markdown docs/lab.md: its page has other texts", entry->name);
    if (strstr(hark_text_get(&page), "*Explanation of*") != NULL && strstr(hark_text_get(&page), entry->experiment->failure) == NULL)
      fail_msg("build/hark lab %s --markdown docs/lab.md: its page has another explanation", entry->name);
    check_links(path, hark_text_get(&page), HARK_SOURCE_DIR "/docs/lab");
    hark_lab_markdown_row(NULL, entry, "lab", &row);
    hark_text_resize(&row, row.length - strlen("not measured |\n"));
    if (strstr(hark_text_get(&front), hark_text_get(&row)) == NULL)
      fail_msg("build/hark lab %s --markdown docs/lab.md: docs/lab.md has another row", entry->name);
    hark_text_free(&row);
    hark_text_free(&texts);
    hark_text_free(&page);
  }
  hark_text_free(&front);
  hark_text_free(&again);
}

static void wrong_words_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *line, *part;
  } wrong[] = {{"hark lab", "hark lab --list"},
               {"hark lab rank-mop", "did you mean rank-map?"},
               {"hark lab nadaraya", "did you mean nadaraya-watson?"},
               {"hark lab ahca", "(hark lab --help)\n"}, /* the beginning of several */
               {"hark lab nothing", "(hark lab --help)\n"},
               {"hark lab all --figure all.svg", "--out FOLDER"},
               {"hark lab rank-map --markdown lab.txt", "'lab.txt' is not a name that ends in .md"},
               {"hark lab all --markdown .md", "ends in .md"},
               {"hark lab softmax-kda", "did you mean softmax-kde?"},
               {"hark lab heads --run run", "--run: has no effect here, it needs lab approximation, rank-map or all"},
               {"hark lab rank-map --run run", "--text FILE"},
               {"hark lab rank-map --terminal --json", "has no effect with --json"},
               {"hark lab all --quick --text text.txt", "--run RUN"},
               {"hark lab approximation --quick --run run", "--text FILE"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hark(wrong[i].line, HARK_EXIT_USAGE);
    if (strstr(output.err, wrong[i].part) == NULL || test_line_count(output.err) != 1)
      fail_msg("%s: %s, expected one line with \"%s\"", wrong[i].line, output.err, wrong[i].part);
    assert_string_equal(output.out, "");
  }
}

static double number(const json_t *rows, size_t row, size_t column) {
  return json_number_value(json_array_get(json_array_get(rows, row), column));
}

/* Two heads after one step: the weights are nearly equal, so a block is nearly a constant. */
static void check_ranks(const json_t *tables, size_t levels) {
  const json_t *const blocks = json_object_get(json_array_get(tables, 2), "rows");
  const json_t *const heads = json_object_get(json_array_get(tables, 3), "rows");
  assert_int_equal(json_array_size(tables), 4);
  assert_int_equal(json_array_size(blocks), 2 * (levels + 1));
  assert_int_equal(json_array_size(heads), 2);
  for (size_t i = 0; i < json_array_size(blocks); i++) {
    const double level = number(blocks, i, 2);
    assert_true(number(blocks, i, 3) == (level < 0 ? 16 : 16 * pow(2, level)));
    assert_true(number(blocks, i, 6) >= 1 && (level < 0 || number(blocks, i, 6) <= 2));
    assert_true(number(blocks, i, 8) >= number(blocks, i, 6));
  }
}

/* A trained model's heads come as a table of their own; one that is too short for the text is said so. */
static void trained_heads_are_measured(void **state) {
  (void)state;
  hark("hark train --data text.txt --out run --steps 1 --layers 1 --width 16 --heads 2 --context 192 --batch 1 --threads 1", 0);
  hark("hark lab approximation --quick --json --run run --text text.txt", 0);
  json_t *document = parsed(output.out);
  const json_t *const tables = json_object_get(document, "tables");
  assert_int_equal(json_array_size(tables), 3);
  assert_int_equal(json_array_size(json_object_get(json_array_get(tables, 2), "rows")), 2 * 4 * 5); /* heads, causal ways, block sizes */
  assert_int_equal(json_array_size(json_object_get(json_array_get(tables, 1), "rows")), 2 * 10 + 2 * 4);
  json_decref(document);
  hark("hark lab rank-map --quick --json --run run --text text.txt", 0);
  document = parsed(output.out);
  check_ranks(json_object_get(document, "tables"), 3);
  const json_t *const given = json_object_get(document, "options"); /* what was measured */
  assert_int_equal(json_object_size(given), 2);
  assert_string_equal(json_string_value(json_object_get(given, "run")), "run");
  assert_string_equal(json_string_value(json_object_get(given, "text")), "text.txt");
  json_decref(document);
  hark("hark lab bound --quick --radius 2", 0);
  assert_non_null(strstr(output.out, "\noptions: --radius 2\n"));
  hark("hark lab bound --quick --radius 2 --seeds 1-2 --json", 0);
  document = parsed(output.out);
  assert_int_equal((int)json_number_value(json_object_get(json_object_get(document, "options"), "radius")), 2);
  json_decref(document);
  hark(
      "hark train --data text.txt --out masked --architecture masked_encoder --steps 1 --layers 1 --width 16 --heads 2 --context 192 "
      "--structure hierarchical --hierarchical-bias --batch 1 --threads 1",
      0);
  hark("hark lab rank-map --quick --json --run masked --text text.txt", 0);
  document = parsed(output.out);
  check_ranks(json_object_get(document, "tables"), 3);
  json_decref(document);
  hark("hark lab approximation --quick --json --run masked --text text.txt", 0);
  document = parsed(output.out);
  assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(document, "tables"), 2), "rows")), 2 * 6 * 5);
  json_decref(document);
  hark("hark lab all --quick --run nowhere --text text.txt", HARK_EXIT_BAD_INPUT);
  assert_string_equal(output.out, ""); /* before the other experiments */
  hark("hark train --data text.txt --out short --steps 1 --layers 1 --width 16 --heads 2 --context 8 --batch 1 --threads 1", 0);
  hark("hark lab approximation --quick --run short --text text.txt", HARK_EXIT_BAD_INPUT);
  assert_non_null(strstr(output.err, "a context of 8, expected at least 129"));
}

/* Models whose attention is another one, or that are no decoders: a line that names the file and the reason, before other experiments. */
static void other_models_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *options, *part;
  } others[] = {{"--contextual-positions=4", "contextual positions"},
                {"--forget-gate", "forget gates"},
                {"--positional rbf(l=4)", "a positional kernel"},
                {"--architecture ahca --model.ahca.head reconstruction", "expected decoder, encoder or masked_encoder"}};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    char line[512];
    (void)snprintf(line, sizeof line,
                   "hark train --data text.txt --out other%zu --steps 1 --layers 1 --width 16 --heads 2 --context 192 "
                   "--batch 1 --threads 1 %s",
                   i, others[i].options);
    hark(line, 0);
    (void)snprintf(line, sizeof line, "hark lab all --quick --run other%zu --text text.txt", i);
    test_command_line(hark_main, line, &output);
    if (output.code == 0 || strstr(output.err, others[i].part) == NULL || test_line_count(output.err) != 1)
      fail_msg("%s: exit code %d, %s, expected one line with \"%s\"", line, output.code, output.err, others[i].part);
    assert_string_equal(output.out, "");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_list_is_the_table),
                                     cmocka_unit_test(json_holds_what_was_measured),
                                     cmocka_unit_test(words_and_failures_are_reported),
                                     cmocka_unit_test(only_strict_runs_fail),
                                     cmocka_unit_test(files_and_figures_are_written),
                                     cmocka_unit_test(figures_have_margins_and_colors),
                                     cmocka_unit_test(wrong_words_are_refused),
                                     cmocka_unit_test(a_page_is_written),
                                     cmocka_unit_test(a_page_is_renewed),
                                     cmocka_unit_test(foreign_documents_stay),
                                     cmocka_unit_test(the_documents_are_current),
                                     cmocka_unit_test(trained_heads_are_measured),
                                     cmocka_unit_test(other_models_are_refused),
                                     cmocka_unit_test(other_spellings_are_the_same),
                                     cmocka_unit_test(a_document_goes_into_a_pipe)};
  return cmocka_run_group_tests(tests, begin, end);
}
