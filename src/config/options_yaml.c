/* options_yaml.c - the values of a set of options from a YAML file. */
#include <stdio.h>
#include <string.h>

#include "config/options_set.h"
#include "config/yaml.h"
#include "io/files.h"

typedef struct yaml_reading {
  hark_context *context;
  hark_options *options;
  const char *path;
  hark_option_source source;
  hark_option_entry *layers;        /* the option whose sequence of words is being read, until one is incorrect */
  hark_text words;                  /* its words, separated by commas */
  char begun[HARK_PATH_BYTES + 16]; /* place of a sequence that has no word yet, or "" */
} yaml_reading;

/* Refuses a sequence of words for the layers that has none. */
static hark_status refuse_none(yaml_reading *reading) {
  if (reading->begun[0] == '\0') return HARK_OK;
  const hark_status status = hark_options_refuse_value(reading->context, reading->options, reading->layers, "[]", reading->begun);
  reading->begun[0] = '\0';
  return status;
}

/* An item of such a sequence, after the previous ones. */
static hark_status take_layer(yaml_reading *reading, hark_option_entry *entry, const char *item, const char *where) {
  const int64_t problems = reading->options->problems.count;
  reading->begun[0] = '\0';
  if (reading->layers != entry) return HARK_OK;
  hark_text_append(&reading->words, "%s%s", reading->words.length > 0 ? "," : "", item);
  HARK_TRY(reading->words.status);
  HARK_TRY(
      hark_options_take_value(reading->context, reading->options, entry, hark_text_get(&reading->words), where, reading->source, true));
  if (reading->options->problems.count > problems) reading->layers = NULL;
  return HARK_OK;
}

static hark_status take_yaml(void *user, const hark_yaml_item *item, bool *skip) {
  yaml_reading *const reading = user;
  hark_context *const context = reading->context;
  hark_options *const options = reading->options;
  char where[HARK_PATH_BYTES + 16];
  snprintf(where, sizeof where, "%s:%d", reading->path, item->line);
  hark_option_entry *const entry = hark_options_find_key(options, item->key);
  if (item->kind != HARK_YAML_ITEM) {
    HARK_TRY(refuse_none(reading));
    if (entry != NULL && entry->reading == options->readings) { /* in another spelling; otherwise the walk would have refused it */
      *skip = true;
      return hark_options_problem_add(context, options, "%s: %s: key given twice", where, item->key);
    }
    if (entry != NULL) entry->reading = options->readings;
  }
  if (item->kind == HARK_YAML_SECTION || item->kind == HARK_YAML_LIST) {
    const bool list = item->kind == HARK_YAML_LIST;
    if (list && entry != NULL && entry->option->type == HARK_OPTION_LIST) {
      if (reading->source >= entry->source) {
        *(hark_string_list *)entry->field = (hark_string_list){0};
        entry->source = reading->source;
        entry->usual = true; /* until it has an item */
        HARK_TRY(hark_options_own_text(context, options, where, strlen(where), &entry->where));
      }
      return HARK_OK;
    }
    if (list && entry != NULL && entry->option->type == HARK_OPTION_LAYERS) {
      reading->layers = entry;
      hark_text_free(&reading->words);
      memcpy(reading->begun, where, sizeof where);
      return HARK_OK;
    }
    if (!list && entry == NULL && hark_options_is_section(options, item->key)) return HARK_OK;
    *skip = true;
    if (entry == NULL && hark_options_is_section(options, item->key))
      return hark_options_problem_add(context, options, "%s: %s: a list given, expected a section", where, item->key);
    if (entry == NULL) return hark_options_unknown_word(context, options, where, item->key, false);
    return hark_options_refuse_value(context, options, entry, list ? "[...]" : "{...}", where);
  }
  if (entry == NULL) {
    const bool empty = item->kind == HARK_YAML_NULL && hark_options_is_section(options, item->key);
    return empty ? HARK_OK : hark_options_unknown_word(context, options, where, item->key, false);
  }
  if (item->kind == HARK_YAML_NULL) {
    if (entry->option->type == HARK_OPTION_LIST) return HARK_OK;
    if (entry->option->type != HARK_OPTION_STRING) return hark_options_refuse_value(context, options, entry, "", where);
  }
  const bool afresh = item->kind != HARK_YAML_ITEM;
  if (!afresh && entry->option->type == HARK_OPTION_LAYERS) return take_layer(reading, entry, item->value, where);
  return hark_options_take_value(context, options, entry, item->kind == HARK_YAML_NULL ? "" : item->value, where, reading->source, afresh);
}

hark_status hark_options_read_yaml(hark_context *context, hark_options *options, const char *path, hark_option_source source) {
  hark_text text = hark_text_empty(context);
  const bool stored = source == HARK_SOURCE_RUN; /* by a run; what a user gives may be a pipe */
  HARK_TRY((stored ? hark_file_read_stored : hark_file_read)(context, path, HARK_YAML_BYTES, &text));
  options->readings++;
  yaml_reading reading = {.context = context, .options = options, .path = path, .source = source, .words = hark_text_empty(context)};
  hark_status status = hark_yaml_walk(context, path, hark_text_get(&text), text.length, take_yaml, &reading);
  if (status == HARK_OK) status = refuse_none(&reading);
  hark_text_free(&reading.words);
  hark_text_free(&text);
  if (status == HARK_BAD_CONFIGURATION) {
    char line[HARK_MESSAGE_BYTES];
    snprintf(line, sizeof line, "%s", hark_context_message(context));
    status = hark_options_problem_add(context, options, "%s", line);
  }
  return status;
}
