/* kernels_search.c - hark kernels search. See kernels.h. In the folder of a search:
 *
 *     base.yaml                          the configuration, as given
 *     rotary/ table/ found/ fixed/       sweeps of one cell over the seeds: rotary positions; a free table of every head; the expressions
 *                                        that were fitted to the tables, learned from there; the same, not learned
 *     NAME.yaml, NAME.plan.yaml          their configurations and plans
 *     search.json, search.md             the report
 *
 * Every step is made again from what is there, so that a search that was interrupted continues.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/kernels/kernels.h"
#include "cli/kernels/repetitions.h"
#include "cli/sweep/sweep_process.h"
#include "cli/sweep/sweep_table.h"
#include "io/json_write.h"
#include "io/number.h"
#include "train/config.h"

#define TABLE_MOST 256
#define SEEDS 64  /* the most of --seeds */
#define SLOWER 30 /* fitted kernels learn slower by this factor: at the rate of those that have to find their place they lose it */

/* Two layers of four heads: the small comparison of docs/results/positions.md. */
static const char small[] =
    "model:\n  layers: 2\n  heads: 4\n  width: 128\n  context: 256\n"
    "data:\n  tokenizer: characters\n  validation_fraction: 0.1\n"
    "train:\n  tokens: 1e6\n  batch: 16\n  learning_rate: 8e-3\n  schedule: cosine\n  warmup: 100\n  evaluate_every: 82\n"
    "  positional_rate: 30\n";

typedef enum stage { STAGE_ROTARY, STAGE_TABLE, STAGE_FOUND, STAGE_FIXED, STAGES } stage;
static const char *const stage_names[STAGES] = {"rotary", "table", "found", "fixed"};
static const char *const stage_texts[STAGES] = {"rotary positions", "a free table of every head", "the expressions below, learned",
                                                "the expressions below, not learned"};

/* How the files of the report begin. */
#define PAGE_BEGINNING "# Positional kernels of a text\n\n"
#define OBJECT_BEGINNING "{\"trainings\": ["

typedef struct search {
  hark_invocation *call;
  hark_context *context;
  const hark_kernels_values *values;
  int64_t table; /* distances */
  hark_fitted_kernels kernels;
  hark_repetitions repetitions;
  double losses[STAGES][SEEDS];
  hark_spread spread[STAGES]; /* of the losses */
} search;

static hark_status path_of(const search *s, const char *name, const char *ending, char *out) {
  char file[HARK_NAME_BYTES];
  (void)snprintf(file, sizeof file, "%s%s", name, ending);
  return hark_path_join(s->context, s->values->out, file, out);
}

/* Writes a file of the search, or finds the same there. */
static hark_status keep_file(const search *s, const char *name, const char *ending, hark_text *text, char *path) {
  hark_text there = hark_text_empty(s->context);
  hark_status status = path_of(s, name, ending, path);
  if (status == HARK_OK) status = text->status;
  const bool exists = status == HARK_OK && hark_path_kind_of(path) != HARK_PATH_NONE;
  if (exists) status = hark_file_read_stored(s->context, path, (size_t)1 << 24, &there);
  if (exists && status == HARK_OK && strcmp(hark_text_get(&there), hark_text_get(text)) != 0)
    status =
        hark_fail(s->context, HARK_BAD_CONFIGURATION,
                  "%s: this search was begun with other options or by another version; give another --out, or delete the folder", path);
  if (!exists && status == HARK_OK) status = hark_file_write(s->context, path, hark_text_get(text), text->length);
  hark_text_free(&there);
  return status;
}

/* base.yaml as options of hark train; the caller destroys the set, also after a failure. */
static hark_status read_base(const search *s, hark_config *config, hark_options **set) {
  char path[HARK_PATH_BYTES];
  const hark_option_group group = {&hark_config_table, config};
  *set = NULL;
  HARK_TRY(path_of(s, "base", ".yaml", path));
  HARK_TRY(hark_options_create(s->context, "train", &group, 1, set));
  HARK_TRY(hark_options_read_yaml(s->context, *set, path, HARK_SOURCE_FILE));
  return hark_options_finish(s->context, *set);
}

/* ---- trainings ---- */

static hark_status set_options(const search *s, hark_options *set, const hark_config *config, stage number, const char *expression) {
  static const char where[] = "hark kernels search";
  const bool rotary = number == STAGE_ROTARY;
  char tokens[HARK_NUMBER_BYTES], rate[HARK_NUMBER_BYTES];
  for (int64_t i = 0; i < s->values->data.count; i++)
    HARK_TRY(hark_options_set_item(s->context, set, "data.paths", i, s->values->data.items[i], where, HARK_SOURCE_COMMAND));
  if (s->values->tokens > 0)
    HARK_TRY(hark_options_set(s->context, set, "train.tokens", hark_number_print(s->values->tokens, tokens), where, HARK_SOURCE_COMMAND));
  if (number == STAGE_FOUND)
    HARK_TRY(hark_options_set(s->context, set, "train.positional_rate", hark_number_print(config->train.positional_rate / SLOWER, rate),
                              where, HARK_SOURCE_COMMAND));
  HARK_TRY(hark_options_set(s->context, set, "model.positions", rotary ? "rotary" : "none", where, HARK_SOURCE_COMMAND));
  HARK_TRY(hark_options_set(s->context, set, "model.positional", expression, where, HARK_SOURCE_COMMAND));
  return hark_options_set(s->context, set, "model.positional_scope", rotary ? "model" : "head", where, HARK_SOURCE_COMMAND);
}

static hark_status write_configuration(const search *s, stage number, const char *expression) {
  char path[HARK_PATH_BYTES];
  hark_config config;
  hark_options *set = NULL;
  hark_text text = hark_text_empty(s->context);
  hark_status status = read_base(s, &config, &set);
  if (status == HARK_OK) status = set_options(s, set, &config, number, expression);
  if (status == HARK_OK) status = hark_options_finish(s->context, set);
  if (status == HARK_OK) hark_options_print_yaml(set, false, &text);
  if (status == HARK_OK) status = keep_file(s, stage_names[number], ".yaml", &text, path);
  hark_options_destroy(s->context, &set);
  hark_text_free(&text);
  return status;
}

static hark_status write_plan(const search *s, stage number, char *path) {
  char out[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(s->context);
  HARK_TRY(path_of(s, stage_names[number], "", out));
  hark_text_append(&text, "config: %s.yaml\nout: ", stage_names[number]);
  hark_json_append_string(&text, out);
  hark_text_append(&text, "\nseeds: [");
  for (int64_t i = 0; i < s->values->seeds; i++) hark_text_append(&text, "%s%" PRId64, i > 0 ? ", " : "", s->values->seed + i);
  hark_text_append(&text, "]\n");
  const hark_status status = keep_file(s, stage_names[number], ".plan.yaml", &text, path);
  hark_text_free(&text);
  return status;
}

/* Runs hark sweep on the plans of two stages. *done is false where it ended otherwise: its exit code is that of the search. */
static hark_status train(const search *s, stage first, bool *done) {
  char plans[2][HARK_PATH_BYTES], jobs[32], program[] = "hark", command[] = "sweep", quiet[] = "--no-picture";
  char *words[] = {program, command, plans[0], plans[1], quiet, jobs, NULL};
  int output = -1, code = 0;
  for (int i = 0; i < 2; i++) HARK_TRY(write_plan(s, first + i, plans[i]));
  (void)snprintf(jobs, sizeof jobs, "--jobs=%" PRId64, s->values->jobs);
  const hark_sweep_start start = {.words = words, .output = HARK_SWEEP_SHARED, .input = -1};
  hark_sweep_catch_signals();
  HARK_TRY(hark_sweep_process_start(s->context, &start, 0, &output, done));
  if (*done) HARK_TRY(hark_sweep_process_wait(s->context, 0, &code));
  if (!*done) code = HARK_EXIT_SIGNAL + hark_sweep_signal();
  *done = code == HARK_EXIT_DONE;
  s->call->exit_code = code;
  return HARK_OK;
}

static hark_status run_path(const search *s, stage number, int64_t seed, char *path) {
  char folder[HARK_PATH_BYTES], name[64];
  HARK_TRY(path_of(s, stage_names[number], "", folder));
  (void)snprintf(name, sizeof name, "all-seed=%" PRId64, seed);
  return hark_path_join(s->context, folder, name, path);
}

/* ---- the report ---- */

static hark_status measure(search *s, stage number) {
  static const hark_sweep_choice best = {.metric = "val/loss", .choose = HARK_SWEEP_BEST};
  char path[HARK_PATH_BYTES];
  for (int64_t i = 0; i < s->values->seeds; i++) {
    s->losses[number][i] = NAN;
    HARK_TRY(run_path(s, number, s->values->seed + i, path));
    HARK_TRY(hark_sweep_value_of(s->context, path, &best, &hark_sweep_whole, &s->losses[number][i]));
  }
  s->spread[number] = hark_spread_of(s->losses[number], (int)s->values->seeds);
  return HARK_OK;
}

static int64_t parameters_of(const search *s, stage number) {
  return number == STAGE_TABLE ? s->table * s->kernels.count : number == STAGE_FOUND ? hark_kernels_parameters(&s->kernels) : 0;
}

/* The stages that are trained. */
static int stages_of(const search *s) { return s->values->proof ? STAGES : STAGE_FOUND; }

static void append_losses(const search *s, hark_text *text) {
  hark_text_append(text,
                   "| positions | parameters | validation loss (nats) | standard deviation of %" PRId64
                   " seeds | above the table | below rotary |\n|---|---|---|---|---|---|\n",
                   s->values->seeds);
  for (int i = 0; i < stages_of(s); i++) {
    hark_text_append(text, "| %s | %" PRId64 " | %.4f | ", stage_texts[i], parameters_of(s, (stage)i), s->spread[i].mean);
    if (isfinite(s->spread[i].deviation)) hark_text_append(text, "%.4f", s->spread[i].deviation);
    hark_text_append(text, " | %.4f | %.4f |\n", s->spread[i].mean - s->spread[STAGE_TABLE].mean,
                     s->spread[STAGE_ROTARY].mean - s->spread[i].mean);
  }
}

static void append_report(const search *s, hark_text *text) {
  hark_text_append(text, PAGE_BEGINNING);
  append_losses(s, text);
  hark_text_append(text,
                   "\n## The kernels\n\nFitted to the tables of seed %" PRId64 ", in %" PRId64
                   " windows of the text. Lost: the divergence of a head's attention with the expression from that with the table, in "
                   "nats, with the attention that falls on each distance.\n\n",
                   s->values->seed, s->kernels.windows);
  hark_kernels_append_table(&s->kernels, text);
  hark_text_append(text, "\n## Lags and periods\n\n");
  hark_repetitions_append_table(&s->repetitions, text);
  hark_text_append(text, "\n## To train with them\n\n    --positions none --positional-scope head --positional '");
  hark_kernels_append_list(&s->kernels, false, text);
  hark_text_append(text, "'\n");
}

static void append_json(const search *s, hark_text *text) {
  hark_text_append(text, OBJECT_BEGINNING);
  for (int i = 0; i < stages_of(s); i++) {
    hark_text_append(text, "%s{\"positions\": \"%s\", \"parameters\": %" PRId64, i > 0 ? ", " : "", stage_names[i],
                     parameters_of(s, (stage)i));
    hark_json_append_member(text, "loss", s->spread[i].mean);
    hark_json_append_member(text, "deviation", s->spread[i].deviation);
    hark_text_append(text, ", \"losses\": [");
    for (int64_t seed = 0; seed < s->values->seeds; seed++) {
      if (seed > 0) hark_text_append(text, ", ");
      hark_json_append_number(text, s->losses[i][seed]);
    }
    hark_text_append(text, "]}");
  }
  hark_text_append(text, "], ");
  hark_kernels_append_json(&s->kernels, text);
  hark_text_append(text, ", ");
  hark_repetitions_append_json(&s->repetitions, text);
  hark_text_append(text, "}\n");
}

static hark_status write_text(const search *s, const char *ending, const hark_text *text) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(text->status);
  HARK_TRY(path_of(s, "search", ending, path));
  return hark_file_write(s->context, path, hark_text_get(text), text->length);
}

static hark_status report(search *s) {
  hark_text page = hark_text_empty(s->context), object = hark_text_empty(s->context);
  for (int i = 0; i < stages_of(s); i++) HARK_TRY(measure(s, (stage)i));
  append_report(s, &page);
  append_json(s, &object);
  hark_status status = write_text(s, ".md", &page);
  if (status == HARK_OK) status = write_text(s, ".json", &object);
  if (status == HARK_OK) status = hark_command_print(s->call, s->call->json ? &object : &page);
  hark_text_free(s->call->json ? &page : &object);
  return status;
}

/* ---- from beginning to end ---- */

/* The report of an earlier call is replaced, and no other file. */
static hark_status check_report(const search *s, const char *ending, const char *beginning) {
  char path[HARK_PATH_BYTES];
  hark_path_kind kind;
  bool own = true;
  HARK_TRY(path_of(s, "search", ending, path));
  HARK_TRY(hark_path_examine(s->context, path, &kind));
  if (kind == HARK_PATH_FILE) HARK_TRY(hark_file_begins_with(s->context, path, beginning, &own));
  if (own) return HARK_OK;
  return hark_fail(s->context, HARK_BAD_CONFIGURATION,
                   "%s: is no report of hark kernels search, and would be overwritten: give another --out", path);
}

/* base.yaml, and how many distances a table has. */
static hark_status begin(search *s) {
  char path[HARK_PATH_BYTES];
  hark_config config;
  hark_options *set = NULL;
  hark_text text = hark_text_empty(s->context);
  hark_status status = HARK_OK;
  if (s->values->base[0] != '\0')
    status = hark_file_read(s->context, s->values->base, (size_t)1 << 24, &text);
  else
    hark_text_append(&text, "%s", small);
  if (status == HARK_OK) status = check_report(s, ".md", PAGE_BEGINNING);
  if (status == HARK_OK) status = check_report(s, ".json", OBJECT_BEGINNING);
  if (status == HARK_OK) status = hark_folder_make(s->context, s->values->out);
  if (status == HARK_OK) status = keep_file(s, "base", ".yaml", &text, path);
  hark_text_free(&text);
  if (status == HARK_OK) status = read_base(s, &config, &set);
  if (status == HARK_OK) s->table = s->values->table > 0 ? s->values->table : hark_min(TABLE_MOST, config.model.context);
  hark_options_destroy(s->context, &set);
  return status;
}

static hark_status fit(search *s, const char *run) {
  hark_text found = hark_text_empty(s->context), fixed = hark_text_empty(s->context);
  HARK_TRY(hark_kernels_fit(s->context, run, s->values->data.items[0], s->values, &s->kernels));
  hark_kernels_append_list(&s->kernels, false, &found);
  hark_kernels_append_list(&s->kernels, true, &fixed);
  hark_status status = found.status != HARK_OK ? found.status : fixed.status;
  if (status == HARK_OK && s->values->proof) status = write_configuration(s, STAGE_FOUND, hark_text_get(&found));
  if (status == HARK_OK && s->values->proof) status = write_configuration(s, STAGE_FIXED, hark_text_get(&fixed));
  hark_text_free(&found);
  hark_text_free(&fixed);
  return status;
}

static hark_status work(search *s) {
  char table[32], run[HARK_PATH_BYTES];
  bool done = false;
  HARK_TRY(begin(s));
  (void)snprintf(table, sizeof table, "table[%" PRId64 "]", s->table);
  HARK_TRY(write_configuration(s, STAGE_ROTARY, ""));
  HARK_TRY(write_configuration(s, STAGE_TABLE, table));
  HARK_TRY(train(s, STAGE_ROTARY, &done));
  if (!done) return HARK_OK;
  HARK_TRY(run_path(s, STAGE_TABLE, s->values->seed, run));
  HARK_TRY(fit(s, run));
  HARK_TRY(hark_repetitions_find(s->context, run, s->values->data.items[0], &s->kernels, &s->repetitions));
  if (s->values->proof) HARK_TRY(train(s, STAGE_FOUND, &done));
  return done ? report(s) : HARK_OK;
}

hark_status hark_kernels_search(hark_invocation *call) {
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(call->context, sizeof(search), &memory));
  search *const s = memory;
  *s = (search){.call = call, .context = call->context, .values = call->values[0]};
  const hark_status status = work(s);
  hark_kernels_free(call->context, &s->kernels);
  hark_release(call->context, memory, sizeof(search));
  return status;
}
