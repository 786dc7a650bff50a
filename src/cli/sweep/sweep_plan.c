/* sweep_plan.c - see sweep_plan.h. */
#include "cli/sweep/sweep_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "core/line.h"
#include "io/number.h"

/* ---- reading ---- */

typedef struct plan_reader {
  hark_context *context;
  hark_sweep_plan *plan;
  int seeds_line; /* 0: there is no such key */
} plan_reader;

static hark_status refuse(const plan_reader *r, int line, const char *what) {
  return hark_fail(r->context, HARK_BAD_CONFIGURATION, "%s:%d: %s", r->plan->path, line, what);
}

static hark_status take_text(const plan_reader *r, int line, const char *value, char *out, size_t bytes) {
  if (strlen(value) >= bytes) return refuse(r, line, "this is too long");
  memcpy(out, value, strlen(value) + 1);
  return HARK_OK;
}

static hark_status take_value(const plan_reader *r, int line, const char *value, const char **out) {
  hark_sweep_plan *const plan = r->plan;
  char *const own = plan->texts + plan->texts_used;
  *out = own;
  HARK_TRY(take_text(r, line, value, own, sizeof plan->texts - plan->texts_used));
  plan->texts_used += strlen(own) + 1;
  return HARK_OK;
}

/* What the plan itself says of every run, in a key of its own. */
static hark_status refuse_owned(const plan_reader *r, int line, const char *key) {
  static const char *const owned[][2] = {{"train.seed", "seeds: [...]"}, {"run.directory", "out: FOLDER"}};
  if (strcmp(key, "run.resume") == 0) return refuse(r, line, "run.resume: a sweep that is called again continues its runs itself");
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
    if (strcmp(key, owned[i][0]) == 0)
      return hark_fail(r->context, HARK_BAD_CONFIGURATION, "%s:%d: %s: every run of a sweep has its own, expected '%s' instead",
                       r->plan->path, line, key, owned[i][1]);
  return HARK_OK;
}

static hark_status take_setting(const plan_reader *r, const hark_yaml_item *item, const char *key, int variant) {
  hark_sweep_plan *plan = r->plan;
  if (plan->setting_count == HARK_SWEEP_SETTINGS) return refuse(r, item->line, "more settings than a sweep can have");
  HARK_TRY(refuse_owned(r, item->line, key));
  hark_sweep_setting *setting = &plan->settings[plan->setting_count++];
  setting->variant = variant;
  setting->line = item->line;
  setting->kind = item->kind == HARK_YAML_LIST ? HARK_SWEEP_LIST : item->kind == HARK_YAML_ITEM ? HARK_SWEEP_ITEM : HARK_SWEEP_VALUE;
  HARK_TRY(take_text(r, item->line, key, setting->key, sizeof setting->key));
  return take_value(r, item->line, item->value != NULL ? item->value : "", &setting->value);
}

/* "variants.NAME" begins a variant, "variants.NAME.KEY" is one of its settings. */
static hark_status take_variant(const plan_reader *r, const hark_yaml_item *item, const char *name) {
  hark_sweep_plan *plan = r->plan;
  const size_t length = strcspn(name, ".");
  char own[HARK_SWEEP_NAME_BYTES];
  if (length >= sizeof own) return refuse(r, item->line, "this name of a variant is too long");
  memcpy(own, name, length);
  own[length] = '\0';
  int variant = 0;
  while (variant < plan->variant_count && strcmp(plan->variants[variant], own) != 0) variant++;
  if (variant == plan->variant_count) {
    if (variant == HARK_SWEEP_VARIANTS) return refuse(r, item->line, "more variants than a sweep can have");
    memcpy(plan->variants[plan->variant_count++], own, length + 1);
  }
  if (item->kind == HARK_YAML_SECTION || (item->kind == HARK_YAML_NULL && name[length] == '\0')) return HARK_OK;
  if (item->kind == HARK_YAML_NULL || name[length] == '\0') return refuse(r, item->line, "expected settings of a variant, KEY: VALUE");
  return take_setting(r, item, name + length + 1, variant);
}

/* "grid.KEY" is a list. */
static hark_status take_axis(const plan_reader *r, const hark_yaml_item *item, const char *key) {
  hark_sweep_plan *plan = r->plan;
  if (item->kind == HARK_YAML_SECTION) return HARK_OK;
  if (item->kind == HARK_YAML_LIST) {
    if (plan->axis_count == HARK_SWEEP_AXES) return refuse(r, item->line, "more axes than a grid can have");
    HARK_TRY(refuse_owned(r, item->line, key));
    hark_sweep_axis *axis = &plan->axes[plan->axis_count++];
    axis->first = plan->value_count;
    axis->line = item->line;
    return take_text(r, item->line, key, axis->key, sizeof axis->key);
  }
  if (item->kind != HARK_YAML_ITEM) return refuse(r, item->line, "expected a list of values, [A, B, ...]");
  if (plan->value_count == HARK_SWEEP_VALUES) return refuse(r, item->line, "more values than a grid can have");
  plan->axes[plan->axis_count - 1].count++;
  return take_value(r, item->line, item->value, &plan->values[plan->value_count++]);
}

static hark_status take_seed(const plan_reader *r, const hark_yaml_item *item) {
  hark_sweep_plan *plan = r->plan;
  int64_t seed;
  if (item->kind == HARK_YAML_LIST) return HARK_OK; /* its seeds follow */
  if (item->kind != HARK_YAML_ITEM || !hark_number_read_whole(item->value, strlen(item->value), &seed) || seed < 0)
    return refuse(r, item->line, "expected a list of seeds, whole numbers in [0, 9223372036854775807]");
  for (int i = 0; i < plan->seed_count; i++)
    if (plan->seeds[i] == seed)
      return hark_fail(r->context, HARK_BAD_CONFIGURATION, "%s:%d: seeds: %" PRId64 " is given twice", plan->path, item->line, seed);
  if (plan->seed_count == HARK_SWEEP_SEEDS) return refuse(r, item->line, "more seeds than a sweep can have");
  plan->seeds[plan->seed_count++] = seed;
  return HARK_OK;
}

/* The text after "SECTION." in a key, or NULL. */
static const char *inside(const char *key, const char *section) {
  const size_t length = strlen(section);
  return strncmp(key, section, length) == 0 && key[length] == '.' ? key + length + 1 : NULL;
}

static hark_status visit(void *user, const hark_yaml_item *item, bool *skip) {
  plan_reader *const r = user;
  const char *key = item->key, *part;
  (void)skip;
  if ((part = inside(key, "variants")) != NULL) return take_variant(r, item, part);
  if ((part = inside(key, "grid")) != NULL) return take_axis(r, item, part);
  if ((part = inside(key, "settings")) != NULL && item->kind == HARK_YAML_SECTION) return HARK_OK;
  if (part != NULL && item->kind == HARK_YAML_NULL) return refuse(r, item->line, "expected settings, KEY: VALUE");
  if (part != NULL) return take_setting(r, item, part, -1);
  if (strcmp(key, "seeds") == 0) {
    r->seeds_line = item->line;
    return take_seed(r, item);
  }
  const bool section = strcmp(key, "variants") == 0 || strcmp(key, "grid") == 0 || strcmp(key, "settings") == 0;
  if (section && (item->kind == HARK_YAML_SECTION || item->kind == HARK_YAML_NULL)) return HARK_OK;
  if (item->kind == HARK_YAML_SCALAR && strcmp(key, "config") == 0)
    return take_text(r, item->line, item->value, r->plan->config, sizeof r->plan->config);
  if (item->kind == HARK_YAML_SCALAR && strcmp(key, "out") == 0)
    return take_text(r, item->line, item->value, r->plan->out, sizeof r->plan->out);
  return hark_fail(r->context, HARK_BAD_CONFIGURATION,
                   "%s:%d: %s is not understood here, expected config, out, seeds, settings, variants and grid", r->plan->path, item->line,
                   key);
}

/* The folder of a file: "" or "a/b/". */
static size_t folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* An axis of the grid would replace a setting of the same option. */
static hark_status refuse_replaced(const plan_reader *r) {
  const hark_sweep_plan *const plan = r->plan;
  for (int i = 0; i < plan->setting_count; i++)
    for (int axis = 0; axis < plan->axis_count; axis++) {
      const hark_sweep_setting *const setting = &plan->settings[i];
      if (strcmp(setting->key, plan->axes[axis].key) != 0) continue;
      return hark_fail(r->context, HARK_BAD_CONFIGURATION, "%s:%d: %s: %s%s sets what the grid sets in line %d, expected one of them",
                       plan->path, setting->line, setting->key, setting->variant >= 0 ? "the variant " : "'settings'",
                       setting->variant >= 0 ? plan->variants[setting->variant] : "", plan->axes[axis].line);
    }
  return HARK_OK;
}

static hark_status settle(plan_reader *r) {
  hark_sweep_plan *plan = r->plan;
  double runs = (double)hark_max(plan->variant_count, 1);
  HARK_TRY(refuse_replaced(r));
  plan->has_seeds = plan->seed_count > 0;
  if (!plan->has_seeds && r->seeds_line > 0) return refuse(r, r->seeds_line, "seeds: no seed is given, expected at least one");
  if (!plan->has_seeds) plan->seeds[plan->seed_count++] = 1;
  for (int i = 0; i < plan->axis_count; i++) {
    if (plan->axes[i].count == 0) return refuse(r, plan->axes[i].line, "an axis without values");
    runs *= plan->axes[i].count;
  }
  runs *= plan->seed_count;
  if (runs > HARK_SWEEP_RUNS)
    return hark_fail(r->context, HARK_BAD_CONFIGURATION, "%s: %.0f runs, expected at most %d", plan->path, runs, HARK_SWEEP_RUNS);
  if (plan->config[0] != '\0' && plan->config[0] != '/') {
    char joined[HARK_PATH_BYTES];
    const int used = snprintf(joined, sizeof joined, "%.*s%s", (int)folder_length(plan->path), plan->path, plan->config);
    if (used < 0 || (size_t)used >= sizeof joined) return hark_fail(r->context, HARK_NOT_FOUND, "%.64s...: path too long", plan->path);
    memcpy(plan->config, joined, (size_t)used + 1);
  }
  return HARK_OK;
}

hark_status hark_sweep_plan_read(hark_context *context, const char *path, hark_sweep_plan *out) {
  plan_reader reader = {.context = context, .plan = out};
  hark_text text = hark_text_empty(context);
  memset(out, 0, sizeof *out);
  HARK_TRY(hark_path_join(context, "", path, out->path));
  hark_status status = hark_file_read(context, path, HARK_YAML_BYTES, &text);
  if (status == HARK_OK) status = hark_yaml_walk(context, path, hark_text_get(&text), text.length, visit, &reader);
  if (status == HARK_OK) status = settle(&reader);
  hark_text_free(&text);
  return status;
}

/* ---- cells ---- */

int hark_sweep_cells(const hark_sweep_plan *plan) {
  int cells = (int)hark_max(plan->variant_count, 1);
  for (int i = 0; i < plan->axis_count; i++) cells *= plan->axes[i].count;
  return cells;
}

int hark_sweep_value(const hark_sweep_plan *plan, int cell, int axis) {
  for (int i = plan->axis_count - 1; i > axis; i--) cell /= plan->axes[i].count;
  return cell % plan->axes[axis].count;
}

int hark_sweep_variant(const hark_sweep_plan *plan, int cell) {
  for (int i = 0; i < plan->axis_count; i++) cell /= plan->axes[i].count;
  return cell;
}

static const char *value_of(const hark_sweep_plan *plan, int cell, int axis) {
  return plan->values[plan->axes[axis].first + hark_sweep_value(plan, cell, axis)];
}

/* "learning_rate" of "train.learning_rate". */
static const char *last_part(const char *key) {
  const char *dot = strrchr(key, '.');
  return dot != NULL ? dot + 1 : key;
}

static void append(char *out, size_t *used, const char *text) {
  while (*text != '\0' && *used + 1 < HARK_SWEEP_CELL_BYTES) out[(*used)++] = *text++;
  out[*used] = '\0';
}

static void name_cell(const hark_sweep_plan *plan, int cell, const char *between, char *out) {
  size_t used = 0;
  out[0] = '\0';
  if (plan->variant_count > 0) append(out, &used, plan->variants[hark_sweep_variant(plan, cell)]);
  for (int i = 0; i < plan->axis_count; i++) {
    if (used > 0) append(out, &used, between);
    append(out, &used, last_part(plan->axes[i].key));
    append(out, &used, "=");
    append(out, &used, value_of(plan, cell, i));
  }
  if (used == 0) append(out, &used, "all");
}

void hark_sweep_cell_name(const hark_sweep_plan *plan, int cell, char out[HARK_SWEEP_CELL_BYTES]) {
  name_cell(plan, cell, " ", out);
  hark_line_clean(out); /* a value may be a path */
}

void hark_sweep_run_name(const hark_sweep_plan *plan, int cell, int seed, char out[HARK_SWEEP_CELL_BYTES]) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+=-";
  char number[48];
  name_cell(plan, cell, "-", out);
  size_t used = strlen(out);
  (void)snprintf(number, sizeof number, "-seed=%" PRId64, plan->seeds[seed]);
  used = used > 200 ? 200 : used; /* folders have names of 255 bytes at most */
  append(out, &used, number);
  for (char *at = out; *at != '\0'; at++)
    if (strchr(plain, *at) == NULL) *at = '_';
  if (out[0] == '.') out[0] = '_';
}

/* ---- configurations ---- */

static void place_of(const hark_sweep_plan *plan, int line, char where[HARK_PATH_BYTES + 16]) {
  (void)snprintf(where, HARK_PATH_BYTES + 16, "%s:%d", plan->path, line);
}

static hark_status set(hark_context *context, const hark_sweep_plan *plan, hark_options *options, int line, const char *key,
                       const char *value) {
  char where[HARK_PATH_BYTES + 16];
  place_of(plan, line, where);
  return hark_options_set(context, options, key, value, where, HARK_SOURCE_COMMAND);
}

static const hark_option *find_option(const char *key) {
  for (int i = 0; i < hark_config_table.count; i++)
    if (strcmp(hark_config_table.options[i].name, key) == 0) return &hark_config_table.options[i];
  return NULL;
}

/* The items after the beginning of a list: of options that are lists, or words for the layers in turn. */
static hark_status set_list(hark_context *context, const hark_sweep_plan *plan, int first, hark_options *options) {
  const hark_sweep_setting *const list = &plan->settings[first];
  const hark_option *const option = find_option(list->key);
  hark_text words = hark_text_empty(context);
  int end = first + 1;
  while (end < plan->setting_count && plan->settings[end].kind == HARK_SWEEP_ITEM) end++;
  if (option != NULL && option->type == HARK_OPTION_LIST) {
    HARK_TRY(hark_options_reset(context, options, list->key));
    for (int i = first + 1; i < end; i++) HARK_TRY(set(context, plan, options, list->line, list->key, plan->settings[i].value));
    return HARK_OK;
  }
  if (option != NULL && option->type != HARK_OPTION_LAYERS)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s:%d: %s: a list given, expected one value", plan->path, list->line, list->key);
  for (int i = first + 1; i < end; i++) hark_text_append(&words, "%s%s", i > first + 1 ? "," : "", plan->settings[i].value);
  hark_status status = words.status;
  if (status == HARK_OK) status = set(context, plan, options, list->line, list->key, hark_text_get(&words));
  hark_text_free(&words);
  return status;
}

/* Whether a variant's settings set a key: they replace those of all runs, also lists, which would grow otherwise. */
static bool in_variant(const hark_sweep_plan *plan, int variant, const char *key) {
  for (int i = 0; i < plan->setting_count; i++)
    if (plan->settings[i].variant == variant && strcmp(plan->settings[i].key, key) == 0) return true;
  return false;
}

static hark_status set_all(hark_context *context, const hark_sweep_plan *plan, int cell, int seed, hark_options *options) {
  char name[HARK_SWEEP_CELL_BYTES], folder[HARK_PATH_BYTES], number[32];
  const int variant = hark_sweep_variant(plan, cell);
  for (int i = 0; i < plan->setting_count; i++) {
    const hark_sweep_setting *setting = &plan->settings[i];
    const bool own = setting->variant == variant, of_all = setting->variant < 0 && !in_variant(plan, variant, setting->key);
    if ((!own && !of_all) || setting->kind == HARK_SWEEP_ITEM) continue;
    HARK_TRY(setting->kind == HARK_SWEEP_LIST ? set_list(context, plan, i, options)
                                              : set(context, plan, options, setting->line, setting->key, setting->value));
  }
  for (int i = 0; i < plan->axis_count; i++)
    HARK_TRY(set(context, plan, options, plan->axes[i].line, plan->axes[i].key, value_of(plan, cell, i)));
  hark_sweep_run_name(plan, cell, seed, name);
  HARK_TRY(hark_path_join(context, plan->out, name, folder));
  (void)snprintf(number, sizeof number, "%" PRId64, plan->seeds[seed]);
  HARK_TRY(hark_options_set(context, options, "train.seed", number, plan->path, HARK_SOURCE_COMMAND));
  return hark_options_set(context, options, "run.directory", folder, plan->path, HARK_SOURCE_COMMAND);
}

static hark_status configure(hark_context *context, const hark_sweep_plan *plan, int cell, int seed, hark_config *config,
                             hark_options **out) {
  const hark_option_group group = {&hark_config_table, config};
  HARK_TRY(hark_options_create(context, NULL, &group, 1, out));
  if (plan->config[0] != '\0') HARK_TRY(hark_options_read_yaml(context, *out, plan->config, HARK_SOURCE_FILE));
  HARK_TRY(set_all(context, plan, cell, seed, *out));
  HARK_TRY(hark_config_finish(context, *out, config));
  if (config->data.paths.count == 0)
    HARK_TRY(
        hark_options_complain(context, *out, "data.paths", "no text to train on, expected data.paths in the configuration or settings"));
  return hark_options_finish(context, *out);
}

/* Repeats until all remaining settings have an effect: others may have depended on a reset one. */
static hark_status put_back_idle(hark_context *context, hark_options *options) {
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < hark_config_table.count; i++) {
      const char *const name = hark_config_table.options[i].name;
      if (hark_options_source(options, name) == HARK_SOURCE_DEFAULT || hark_options_has_effect(options, name)) continue;
      HARK_TRY(hark_options_reset(context, options, name));
      more = true;
    }
  }
  return HARK_OK;
}

hark_status hark_sweep_configure(hark_context *context, const hark_sweep_plan *plan, int cell, int seed, hark_config *config,
                                 hark_options **out) {
  HARK_TRY(configure(context, plan, cell, seed, config, out));
  return put_back_idle(context, *out);
}

/* The problem of an option without an effect in any run, from the configuration of one of them. */
static hark_status refuse_unused(hark_context *context, const hark_options *options, const hark_option *option) {
  hark_text problem = hark_text_empty(context);
  if (!hark_options_print_excluded(options, option->name, &problem)) {
    hark_text_append(&problem, "has no effect in any run, it needs ");
    hark_option_print_needs(options, option, true, &problem);
  }
  hark_status status = problem.status;
  if (status == HARK_OK)
    status = hark_fail(context, HARK_BAD_CONFIGURATION, "%s: %s: %s", hark_options_where(options, option->name), option->name,
                       hark_text_get(&problem));
  hark_text_free(&problem);
  return status;
}

hark_status hark_sweep_refuse_idle(hark_context *context, const hark_sweep_plan *plan) {
  const size_t bytes = (size_t)hark_config_table.count * sizeof(bool);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  bool *const effective = memory; /* for every option that is set: has an effect in some run */
  hark_status status = HARK_OK;
  for (int pass = 0; pass < 2 && status == HARK_OK; pass++) { /* the second pass finds a run that sets it */
    for (int cell = 0; cell < hark_sweep_cells(plan) && status == HARK_OK; cell++) {
      hark_config config;
      hark_options *options = NULL;
      status = configure(context, plan, cell, 0, &config, &options);
      for (int i = 0; i < hark_config_table.count && status == HARK_OK; i++) {
        const hark_option *const option = &hark_config_table.options[i];
        const bool requested = hark_options_source(options, option->name) > HARK_SOURCE_RUN;
        const bool idle = hark_options_is_idle(options, option->name);
        effective[i] = effective[i] || (requested && !idle);
        if (pass == 1 && idle && !effective[i]) status = refuse_unused(context, options, option);
      }
      hark_options_destroy(context, &options);
    }
  }
  hark_release(context, memory, bytes);
  return status;
}
