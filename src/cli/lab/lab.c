/* lab.c - hark lab: experiments that measure what papers state, with criteria fixed beforehand (src/lab/lab.h, docs/lab.md). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "cli/lab/lab_document.h"
#include "cli/lab/lab_print.h"
#include "cli/lab/lab_seeds.h"
#include "cli/progress.h"
#include "core/thread_count.h"
#include "io/files.h"
#include "io/json_write.h"
#include "io/temporary.h"

typedef struct lab_values {
  bool list, quick, strict, terminal;
  int64_t seed, threads;
  const char *seeds, *figure, *out, *markdown;
} lab_values;

#define AT(field) offsetof(lab_values, field)
static const hark_option options[] = {
    {"list", NULL, HARK_OPTION_BOOL, AT(list), "false", NULL, NULL, NULL, "list the experiments", NULL},
    {"quick", NULL, HARK_OPTION_BOOL, AT(quick), "false", NULL, NULL, NULL,
     "smaller sizes and wider intervals, so that an experiment takes at most 40 seconds instead of ten minutes", "list false"},
    {"strict", NULL, HARK_OPTION_BOOL, AT(strict), "false", NULL, NULL, NULL, "end with exit code 1 if a criterion fails", "list false"},
    {"seed", "seed", HARK_OPTION_INT, AT(seed), "1", "[0, inf)", NULL, NULL, "seed of all random numbers", "list false, seeds none"},
    {"seeds", "seeds", HARK_OPTION_STRING, AT(seeds), "", NULL, NULL, "LIST",
     "run with several seeds, such as 1-10 or 1,3,7-9, and count how often each criterion passes; figures are "
     "those of the first seed",
     "list false"},
    {"figure", "figure", HARK_OPTION_STRING, AT(figure), "", NULL, NULL, "FILE", "draw the figure as SVG, or as PNG if FILE ends in .png",
     "list false"},
    {"terminal", NULL, HARK_OPTION_BOOL, AT(terminal), "false", NULL, NULL, NULL, "draw the curves on the terminal, without gnuplot",
     "list false"},
    {"out", "out o", HARK_OPTION_STRING, AT(out), "", NULL, NULL, "FOLDER", "write NAME.txt, NAME.json and NAME.svg into this folder",
     "list false"},
    {"markdown", "markdown", HARK_OPTION_STRING, AT(markdown), "", NULL, NULL, "FILE.md",
     "write the results as a document: FILE.md has a table of the experiments, and a folder of the same name has "
     "their pages and figures; with one NAME, only its page, figure and row are replaced",
     "list false"},
    {"threads", "threads", HARK_OPTION_INT, AT(threads), "0", "[0, 4096]", NULL, NULL, HARK_THREADS_HELP, "list false"},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(lab_values), false};

/* Table i + 1 of the command is that of experiment i, or NULL. */
#define EXPERIMENT_OPTIONS(id, name, options) options,
#define EXPERIMENT_WORD(id, name, options) name "|"

#define EXPERIMENT_WORDS HARK_EXPERIMENTS(EXPERIMENT_WORD) "all"

/* By the reader of options, which also accepts other spellings of a name. */
static bool is_all(const char *name) { return hark_option_choice(EXPERIMENT_WORDS, name) == hark_lab_entry_count; }

static bool is_chosen(const char *chosen, int experiment) {
  return is_all(chosen) || hark_option_choice(EXPERIMENT_WORDS, chosen) == experiment;
}

/* Of all experiments: whether this build cannot run it. */
static bool is_left_out(const char *chosen, int experiment) {
  return is_all(chosen) && hark_lab_missing(hark_lab_entries[experiment].experiment) != NULL;
}

/* The seeds of --seeds, or that of --seed. */
static bool read_seeds(const lab_values *v, hark_lab_seeds *out, char complaint[HARK_LAB_COMPLAINT_BYTES]) {
  *out = (hark_lab_seeds){.count = 1, .list = {v->seed}};
  return v->seeds[0] == 0 || hark_lab_seeds_read(v->seeds, out, complaint);
}

static hark_status check_seeds(hark_invocation *call) {
  const lab_values *const v = call->values[0];
  char complaint[HARK_LAB_COMPLAINT_BYTES];
  hark_lab_seeds seeds;
  if (!read_seeds(v, &seeds, complaint)) return hark_options_complain(call->context, call->options, "seeds", "%s", complaint);
  if (v->terminal && seeds.count > 1)
    return hark_options_complain(call->context, call->options, "terminal", "draws one seed; --figure FILE draws the first of several");
  return HARK_OK;
}

/* The first experiment that has the same table of options as this one, which may be itself. */
static int first_with_table(const hark_command *command, int experiment) {
  int first = 0;
  while (command->tables[first + 1] != command->tables[experiment + 1]) first++;
  return first;
}

/* The values of an experiment's own options. Experiments may share a table, whose values are those of the first of them. */
static const void *own_values(const hark_invocation *call, int experiment) {
  return call->values[first_with_table(call->command, experiment) + 1];
}

/* The list has all experiments, and options of experiments have no effect on it. */
static hark_status check_list(hark_invocation *call) {
  for (int e = 0; e < hark_lab_entry_count; e++) {
    const hark_option_table *const own = call->command->tables[e + 1];
    if (first_with_table(call->command, e) != e) continue; /* reported with the first one */
    for (int i = 0; own != NULL && i < own->count; i++) {
      const char *const option = own->options[i].name;
      if (hark_options_source(call->options, option) != HARK_SOURCE_DEFAULT)
        HARK_TRY(hark_options_complain(call->context, call->options, option, "has no effect here, it needs --list off"));
    }
  }
  if (hark_options_argument_count(call->options) == 0) return HARK_OK;
  const char *const name = hark_options_argument(call->options, 0);
  if (is_all(name) || hark_option_choice(EXPERIMENT_WORDS, name) < 0) return HARK_OK; /* what is no experiment is reported by main */
  return hark_options_complain(call->context, call->options, name, "has no effect here, --list lists all experiments");
}

static hark_status check(hark_invocation *call) {
  const lab_values *const v = call->values[0];
  if (v->list) return check_list(call);
  HARK_TRY(check_seeds(call));
  if (hark_options_argument_count(call->options) == 0)
    return hark_options_complain(call->context, call->options, "NAME",
                                 "missing, expected an experiment or all; hark lab --list prints them");
  const char *const chosen = hark_options_argument(call->options, 0);
  if (v->figure[0] != 0 && is_all(chosen))
    HARK_TRY(hark_options_complain(call->context, call->options, "figure", "draws one experiment; --out FOLDER writes the figures of all"));
  char folder[HARK_PATH_BYTES];
  if (v->markdown[0] != 0 && !hark_lab_document_folder(v->markdown, folder))
    HARK_TRY(hark_options_complain(call->context, call->options, "markdown", "'%s' is not a name that ends in .md", v->markdown));
  if (v->terminal && call->json) HARK_TRY(hark_options_complain(call->context, call->options, "terminal", "has no effect with --json"));
  return HARK_OK;
}

/* ---- the list ---- */

static hark_status print_list(hark_invocation *call) {
  hark_text text = hark_text_empty(call->context);
  if (call->json) hark_text_append(&text, "{\"experiments\": [");
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const hark_lab_entry *const entry = &hark_lab_entries[i];
    if (!call->json) {
      hark_text_append(&text, "%-18s %s\n%-18s %s\n", entry->name, entry->experiment->summary, "", entry->experiment->paper);
      continue;
    }
    hark_text_append(&text, "%s{\"name\": ", i > 0 ? ", " : "");
    hark_json_append_string(&text, entry->name);
    hark_text_append(&text, ", \"summary\": ");
    hark_json_append_string(&text, entry->experiment->summary);
    hark_text_append(&text, ", \"paper\": ");
    hark_json_append_string(&text, entry->experiment->paper);
    hark_text_append(&text, "}");
  }
  if (call->json) hark_text_append(&text, "]}\n");
  return hark_command_print(call, &text);
}

/* ---- running ---- */

typedef void lab_printer(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, hark_text *text);

/* With --seed one experiment with its tables, with --seeds the results of all of them. */
static void print_text(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, hark_text *text) {
  hark_lab_print_text(outcomes->first, entry, text);
}

static void print_json(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, hark_text *text) {
  hark_lab_print_json(outcomes->first, entry, text);
}

static lab_printer *printer_of(const lab_values *v, bool json) {
  if (v->seeds[0] != 0) return json ? hark_lab_print_seeds_json : hark_lab_print_seeds_text;
  return json ? print_json : print_text;
}

/* FOLDER/NAME.ENDING */
static hark_status path_of(hark_context *context, const char *folder, const char *name, const char *ending, char *out) {
  hark_text file = hark_text_empty(context);
  hark_text_append(&file, "%s.%s", name, ending);
  hark_status status = file.status;
  if (status == HARK_OK) status = hark_path_join(context, folder, hark_text_get(&file), out);
  hark_text_free(&file);
  return status;
}

/* A file of an earlier call begins with the experiment's name. *ours: it is there. */
static hark_status check_earlier(hark_invocation *call, const char *name, bool json, bool *ours) {
  const lab_values *const v = call->values[0];
  char path[HARK_PATH_BYTES], beginning[HARK_LAB_LABEL_BYTES + 32];
  HARK_TRY(path_of(call->context, v->out, name, json ? "json" : "txt", path));
  if (hark_path_kind_of(path) != HARK_PATH_FILE) return HARK_OK;
  (void)snprintf(beginning, sizeof beginning, json ? "{\"experiment\":\"%s\"" : "%s:", name);
  HARK_TRY(hark_file_begins_with(call->context, path, beginning, ours));
  if (*ours) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_CONFIGURATION, "%s: is no file of hark lab, and would be overwritten: expected another --out",
                   path);
}

/* --out names a folder only, so that what is in it is replaced if an earlier call wrote it. A picture shows that by the file beside it. */
static hark_status check_folder(hark_invocation *call, const char *name) {
  const lab_values *const v = call->values[0];
  char path[HARK_PATH_BYTES];
  bool text = false, json = false;
  if (v->out[0] == 0) return HARK_OK;
  HARK_TRY(check_earlier(call, name, false, &text));
  HARK_TRY(check_earlier(call, name, true, &json));
  HARK_TRY(path_of(call->context, v->out, name, "svg", path));
  if (text || json || hark_path_kind_of(path) != HARK_PATH_FILE) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_CONFIGURATION, "%s: is there without %s.json, and would be overwritten: expected another --out",
                   path, name);
}

static hark_status write_one(hark_invocation *call, const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, bool json) {
  const lab_values *const v = call->values[0];
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(call->context);
  HARK_TRY(path_of(call->context, v->out, entry->name, json ? "json" : "txt", path));
  printer_of(v, json)(outcomes, entry, &text);
  hark_status status = text.status;
  if (status == HARK_OK) status = hark_path_clean(call->context, path);
  if (status == HARK_OK) status = hark_file_write(call->context, path, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status;
}

static hark_status write_all(hark_invocation *call, const hark_lab_outcomes *outcomes, const hark_lab_entry *entry) {
  const lab_values *const v = call->values[0];
  char path[HARK_PATH_BYTES];
  HARK_TRY(write_one(call, outcomes, entry, false));
  HARK_TRY(write_one(call, outcomes, entry, true));
  HARK_TRY(path_of(call->context, v->out, entry->name, "svg", path));
  return outcomes->first->panel_count > 0 ? hark_lab_draw(call, outcomes->first, path) : HARK_OK;
}

static hark_status show(hark_invocation *call, const hark_lab_outcomes *outcomes, const hark_lab_entry *entry) {
  const lab_values *const v = call->values[0];
  const hark_lab *const lab = outcomes->first;
  hark_text text = hark_text_empty(call->context);
  printer_of(v, call->json)(outcomes, entry, &text);
  HARK_TRY(hark_command_print(call, &text));
  if (v->terminal) HARK_TRY(hark_lab_draw_letters(call, lab));
  if (v->figure[0] != 0 && lab->panel_count > 0) HARK_TRY(hark_lab_draw(call, lab, v->figure));
  return v->out[0] != 0 ? write_all(call, outcomes, entry) : HARK_OK;
}

/* For `hark lab all`: an experiment that this build cannot run, in one line. */
static hark_status report_left_out(hark_invocation *call, const hark_lab_entry *entry, hark_lab_document *document) {
  hark_text text = hark_text_empty(call->context);
  if (call->json)
    hark_text_append(&text, "{\"experiment\": \"%s\", \"left_out\": \"%s\"}\n", entry->name, hark_lab_missing(entry->experiment));
  else
    hark_text_append(&text, "%s: left out: this build does not have %s\n", entry->name, hark_lab_missing(entry->experiment));
  HARK_TRY(hark_command_print(call, &text));
  return hark_lab_document_add(document, NULL, entry);
}

/* ---- how far it is ---- */

typedef struct lab_view {
  hark_progress progress;
  const char *name;            /* of the current experiment */
  int64_t seed;                /* its seed */
  int number, count;           /* of the current run; of all runs */
  const hark_lab_seeds *seeds; /* with which each experiment runs */
  double begun, started;       /* clock at the beginning of all runs, and of this one */
  int64_t done, all;           /* steps of the current loop; 0: of a loop that does not count them */
} lab_view;

/* The duration of the other runs is not known; the estimate is that of the runs so far. */
static double seconds_left(const lab_view *view, double now) {
  const int before = view->number - 1;
  const double mean = before > 0 ? (view->started - view->begun) / before : NAN;
  return fmax(0, mean - (now - view->started)) + mean * (view->count - view->number);
}

static void show_tick(void *user, const hark_lab *lab, int64_t done, int64_t all) {
  enum { NAME, ELAPSED, LEFT, STEPS, ROWS, PIECES };
  lab_view *const view = user;
  if (all > 0) { /* draws and rows in between are not progress of the loop */
    view->done = done;
    view->all = done + 1 < all ? all : 0;
  }
  if (!hark_progress_due(&view->progress)) return;
  hark_progress_piece pieces[PIECES] = {
      [NAME] = {.rank = 0}, [ELAPSED] = {.rank = 1}, [LEFT] = {.rank = 2}, [STEPS] = {.rank = 3}, [ROWS] = {.rank = 4}};
  const double now = hark_progress_clock(), left = seconds_left(view, now);
  char time[HARK_PROGRESS_TIME_BYTES];
  int64_t rows = 0;
  for (int i = 0; i < lab->table_count; i++) rows += hark_lab_row_count(&lab->tables[i]);
#define WRITE(piece, member, ...) (void)snprintf(pieces[piece].member, HARK_PROGRESS_PIECE_BYTES, __VA_ARGS__)
  if (view->count > 1 && view->seeds->count > 1)
    WRITE(NAME, text, "run %d of %d, %s, seed %" PRId64, view->number, view->count, view->name, view->seed);
  if (view->count > 1 && view->seeds->count == 1) WRITE(NAME, text, "experiment %d of %d, %s", view->number, view->count, view->name);
  if (view->count > 1) WRITE(NAME, brief, "%d/%d %s", view->number, view->count, view->name);
  if (view->count == 1) WRITE(NAME, text, "%s", view->name);
  WRITE(ELAPSED, text, "%s", hark_progress_time(now - view->started, time));
  if (isfinite(left)) WRITE(LEFT, text, "about %s left", hark_progress_time(left, time));
  if (view->all > 0) WRITE(STEPS, text, "step %" PRId64 "/%" PRId64, view->done, view->all);
  if (rows > 0) WRITE(ROWS, text, "%" PRId64 " row%s measured", rows, rows == 1 ? "" : "s");
#undef WRITE
  hark_progress_show(&view->progress, pieces, PIECES);
}

/* The first line of an experiment is written when one is due, not at once: many end before that. */
static hark_status run_watched(hark_lab *lab, const hark_lab_entry *entry, lab_view *view) {
  view->progress.last = hark_progress_clock();
  view->all = 0;
  lab->tick = show_tick;
  lab->tick_user = view;
  const hark_status status = hark_lab_run(lab, entry->experiment);
  lab->tick = NULL;
  hark_progress_end(&view->progress);
  return status;
}

/* The requested number of threads, which affects times, and the experiment's own options that were set, as --data FILE: the name of a
 * file has no meaning elsewhere. */
static void append_given(const hark_invocation *call, int experiment, hark_text *out) {
  const hark_option_table *const own = call->command->tables[experiment + 1];
  const int threads = (int)((const lab_values *)call->values[0])->threads;
  if (threads > 0) hark_text_append(out, " --threads %d", threads);
  for (int o = 0; own != NULL && o < own->count; o++)
    if (hark_options_source(call->options, own->options[o].name) != HARK_SOURCE_DEFAULT)
      hark_text_append(out, " --%s %s", own->options[o].name, own->options[o].argument != NULL ? own->options[o].argument : "VALUE");
}

/* The experiment's own options that were set, with their values. */
static void append_values(const hark_invocation *call, int experiment, bool json, hark_text *out) {
  const hark_option_table *const own = call->command->tables[experiment + 1];
  for (int o = 0; own != NULL && o < own->count; o++) {
    const char *const name = own->options[o].name;
    if (hark_options_source(call->options, name) == HARK_SOURCE_DEFAULT) continue;
    hark_text value = hark_text_empty(call->context);
    hark_options_print_value(call->options, name, &value);
    if (out->status == HARK_OK) out->status = value.status;
    if (json && out->length > 0) hark_text_append(out, ", ");
    if (json && own->options[o].type == HARK_OPTION_STRING)
      hark_json_append_path(out, name, hark_text_get(&value));
    else if (json)
      hark_text_append(out, "\"%s\": %s", name, hark_text_get(&value));
    else {
      hark_text_append(out, " --%s ", name);
      hark_text_append_shown(out, hark_text_get(&value));
    }
    hark_text_free(&value);
  }
}

/* Runs an experiment with one seed, and adds its results. */
static hark_status run_seed(hark_invocation *call, int experiment, int64_t seed, lab_view *view, hark_lab_outcomes *outcomes) {
  const lab_values *const v = call->values[0];
  const hark_lab_entry *const entry = &hark_lab_entries[experiment];
  hark_lab *lab = NULL;
  view->name = entry->name;
  view->seed = seed;
  view->started = hark_progress_clock();
  HARK_TRY(hark_lab_create(call->context, v->quick, (uint64_t)seed, own_values(call, experiment), &lab));
  hark_status status = run_watched(lab, entry, view);
  if (status == HARK_OK) status = hark_lab_outcomes_add(outcomes, seed, &lab);
  hark_lab_destroy(&lab);
  if (status == HARK_OK) return status;
  if (view->seeds->count > 1 || outcomes->seeds.count > 0)
    hark_fail_prefix(call->context, "%s: seed %" PRId64 ": ", entry->name, seed);
  else
    hark_fail_prefix(call->context, "%s: ", entry->name);
  return status;
}

/* For the document: if a criterion fails with one seed, also runs the next seed, to show whether the failure depends on the seed. */
static hark_status run_another(hark_invocation *call, int experiment, lab_view *view, hark_lab_outcomes *outcomes) {
  const lab_values *const v = call->values[0];
  const int64_t seed = outcomes->seeds.list[0];
  if (v->markdown[0] == 0 || outcomes->seeds.count > 1 || hark_lab_all_pass(outcomes->first) || seed == INT64_MAX) return HARK_OK;
  return run_seed(call, experiment, seed + 1, view, outcomes);
}

/* Runs with every seed, prints and documents the results. */
static hark_status go_through(hark_invocation *call, int experiment, lab_view *view, hark_lab_outcomes *outcomes, bool *passed,
                              hark_lab_document *document) {
  const hark_lab_entry *const entry = &hark_lab_entries[experiment];
  for (int s = 0; s < view->seeds->count; s++) {
    view->number++;
    HARK_TRY(run_seed(call, experiment, view->seeds->list[s], view, outcomes));
  }
  *passed = *passed && hark_lab_passing_seeds(outcomes) == view->seeds->count;
  hark_lab *const first = outcomes->first;
  hark_text given = hark_text_empty(call->context), text = given, json = given;
  append_given(call, experiment, &given);
  append_values(call, experiment, false, &text);
  append_values(call, experiment, true, &json);
  first->given = hark_text_get(&given);
  first->given_text = hark_text_get(&text);
  first->given_json = hark_text_get(&json);
  hark_status status = given.status != HARK_OK ? given.status : text.status != HARK_OK ? text.status : json.status;
  if (status == HARK_OK) status = show(call, outcomes, entry);
  if (status == HARK_OK) status = run_another(call, experiment, view, outcomes);
  if (status == HARK_OK) status = hark_lab_document_add(document, outcomes, entry);
  first->given = first->given_text = first->given_json = NULL;
  hark_text_free(&given);
  hark_text_free(&text);
  hark_text_free(&json);
  return status;
}

static hark_status run_one(hark_invocation *call, int experiment, lab_view *view, bool *passed, hark_lab_document *document) {
  hark_lab_outcomes outcomes = {.context = call->context};
  if (is_left_out(hark_options_argument(call->options, 0), experiment))
    return report_left_out(call, &hark_lab_entries[experiment], document);
  const hark_status status = go_through(call, experiment, view, &outcomes, passed, document);
  hark_lab_outcomes_end(&outcomes);
  return status;
}

int hark_lab_exit_code(bool passed, bool strict) { return passed || !strict ? HARK_EXIT_DONE : HARK_EXIT_FAILED; }

/* All chosen experiments, one after the other. */
static hark_status run_chosen(hark_invocation *call, const char *chosen, const hark_lab_seeds *seeds, bool *passed,
                              hark_lab_document *document) {
  lab_view view = {.progress = hark_progress_begin(), .seeds = seeds, .begun = hark_progress_clock()};
  for (int i = 0; i < hark_lab_entry_count; i++) view.count += is_chosen(chosen, i) && !is_left_out(chosen, i) ? seeds->count : 0;
  for (int i = 0; i < hark_lab_entry_count; i++)
    if (is_chosen(chosen, i)) HARK_TRY(run_one(call, i, &view, passed, document));
  return HARK_OK;
}

/* The same, and the document. */
static hark_status run_document(hark_invocation *call, const char *chosen, const hark_lab_seeds *seeds, bool *passed) {
  hark_lab_document document;
  hark_status status = hark_lab_document_begin(call, ((const lab_values *)call->values[0])->markdown, &document);
  for (int i = 0; i < hark_lab_entry_count && status == HARK_OK; i++)
    if (is_chosen(chosen, i)) status = hark_lab_document_check(&document, &hark_lab_entries[i]);
  if (status == HARK_OK) {
    status = run_chosen(call, chosen, seeds, passed, &document);
    const hark_status written = hark_lab_document_write(&document); /* the pages that were written have their rows after an error too */
    status = status != HARK_OK ? status : written;
  }
  hark_lab_document_end(&document);
  return status;
}

static hark_status run(hark_invocation *call) {
  const lab_values *const v = call->values[0];
  if (v->list) return print_list(call);
  const char *const chosen = hark_options_argument(call->options, 0);
  bool passed = true;
  char complaint[HARK_LAB_COMPLAINT_BYTES];
  hark_lab_seeds seeds;
  (void)read_seeds(v, &seeds, complaint); /* check() has read them, and refused mistakes */
  HARK_TRY(hark_command_open(call, "reference", v->threads, (uint64_t)seeds.list[0], true));
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const hark_experiment *const experiment = hark_lab_entries[i].experiment;
    const hark_status status =
        is_chosen(chosen, i) && experiment->check != NULL ? experiment->check(call->context, own_values(call, i)) : HARK_OK;
    if (status != HARK_OK) hark_fail_prefix(call->context, "%s: ", hark_lab_entries[i].name);
    HARK_TRY(status);
    if (is_chosen(chosen, i)) HARK_TRY(check_folder(call, hark_lab_entries[i].name));
  }
  if (v->out[0] != 0) HARK_TRY(hark_folder_make(call->context, v->out)); /* fails before the work, not after it */
  HARK_TRY(run_document(call, chosen, &seeds, &passed));
  call->exit_code = hark_lab_exit_code(passed, v->strict);
  return HARK_OK;
}

const hark_command hark_command_lab = {
    .name = "lab",
    .arguments = "[NAME|all]",
    .words = EXPERIMENT_WORDS,
    .summary = "run an experiment: test a statement of a paper by criteria that were fixed beforehand",
    .notes =
        "  hark lab --list\n"
        "  hark lab rank-map --figure rank-map.svg\n"
        "  hark lab all --quick --strict --out lab\n"
        "  hark lab downstream --seeds 1-10\n"
        "  hark lab all --markdown docs/lab.md\n"
        "  hark lab rank-map --markdown docs/lab.md\n"
        "  hark lab approximation --run runs/book --text book.txt\n"
        "  hark lab rank-map --run runs/book --text book.txt\n"
        "\n"
        "  An option whose explanation begins with names and a colon, such as 'bound:', is only for these experiments.\n"
        "  A criterion that fails is a result and is reported with its numbers. The exit code is then 0, or 1 with --strict. With --seeds "
        "and\n  --strict, it is 0 only if all criteria pass with all seeds. docs/lab.md lists the results.\n",
    .argument_minimum = 0,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, HARK_EXPERIMENTS(EXPERIMENT_OPTIONS)},
    .check = check,
    .run = run,
};
