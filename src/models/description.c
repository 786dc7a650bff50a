/* description.c - prints and reads descriptions by the table of options (model_options.h). */
#include "models/description.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/json_tree.h"
#include "io/json_write.h"
#include "io/number.h"
#include "models/model_options.h"
#include "positional/list.h"

#define KEY_BYTES 64
#define PREFIX_LENGTH (sizeof HARK_MODEL_PREFIX - 1)

/* Keys with further checks than those of the table. */
#define KERNEL_KEY "positional"
#define RAMP_KEY "rotary.ramp"

/* "rotary.base" of model.rotary.base. */
static const char *key_of(const hark_model_option *row) { return row->option.name + PREFIX_LENGTH; }

/* Length of the section: "rotary" of "rotary.base"; 0 for "layers". */
static size_t section_length(const char *key) {
  const char *dot = strchr(key, '.');
  return dot != NULL ? (size_t)(dot - key) : 0;
}

/* ---- printing ---- */

static void print_list(const hark_model_list *list, const hark_network_config *config, hark_text *text) {
  hark_text_append(text, "[");
  for (int32_t i = 0; i < hark_model_list_count(list, config); i++) {
    const hark_list_part part = hark_model_list_part(list, config, i);
    const bool begins_text = part.goes_on && !part.continues, ends_text = part.continues && !part.goes_on; /* "46+32" */
    hark_text_append(text, "%s%s", part.continues ? "+" : i > 0 ? ", " : "", begins_text ? "\"" : "");
    hark_json_append_number(text, part.number);
    hark_text_append(text, "%s", ends_text ? "\"" : "");
  }
  hark_text_append(text, "]");
}

void hark_description_print_value(const hark_model_option *row, const hark_network_config *config, hark_text *text) {
  const void *const field = hark_model_option_value(row, config);
  char word[HARK_OPTION_WORD_BYTES] = "";
  switch (row->option.type) {
    case HARK_OPTION_BOOL: hark_text_append(text, "%s", *(const bool *)field ? "true" : "false"); break;
    case HARK_OPTION_INT: hark_text_append(text, "%" PRId64, *(const int64_t *)field); break;
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: hark_json_append_number(text, *(const double *)field); break;
    case HARK_OPTION_STRING: hark_json_append_string(text, *(const char *const *)field); break;
    case HARK_OPTION_LIST: print_list(hark_model_list_of(row->option.name), config, text); break;
    case HARK_OPTION_ENUM:
      (void)hark_option_choice_at(row->option.range, *(const int *)field, word);
      hark_text_append(text, "\"%s\"", word);
      break;
    case HARK_OPTION_LAYERS: {
      const hark_layer_choice *const layers = field;
      for (int64_t i = 0; i < hark_max(1, layers->count); i++) {
        (void)hark_option_choice_at(row->option.range, hark_layer_choice_of(layers, i), word);
        hark_text_append(text, "%s%s", i == 0 ? "\"" : ",", word);
      }
      hark_text_append(text, "\"");
      break;
    }
  }
}

static bool is_stated(const hark_model_option *row, const hark_network_config *config) {
  switch (row->stored) {
    case HARK_STORED_NEVER: break;
    case HARK_STORED_ALWAYS:
    case HARK_STORED_SETTLED: return true;
    case HARK_STORED_CHANGED: return !hark_model_option_is_default(row, config) && hark_model_option_has_effect(row, config);
    case HARK_STORED_GROUP:
    case HARK_STORED_GROUP_NEEDED: return hark_model_option_in_group(row, config);
  }
  return false;
}

/* Prints the keys of the section of `key`, separated by ", "; returns how many. */
static int print_section(const char *key, const hark_network_config *config, hark_text *text) {
  const size_t length = section_length(key);
  const hark_model_option *row;
  int count = 0;
  for (int place = 0; place < HARK_MODEL_PLACES; place++) {
    for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
      const char *const other = key_of(row);
      if (row->place != place || section_length(other) != length || memcmp(other, key, length) != 0 || !is_stated(row, config)) continue;
      if (count == 0 && length > 0) hark_text_append(text, ", \"%.*s\": {", (int)length, key);
      hark_text_append(text, "%s\"%s\": ", count > 0 ? ", " : "", length > 0 ? other + length + 1 : other);
      hark_description_print_value(row, config, text);
      count++;
    }
  }
  if (count > 0 && length > 0) hark_text_append(text, "}");
  return count;
}

void hark_description_print(const hark_network_config *config, hark_text *text) {
  const hark_model_option *row;
  size_t before = 0;
  const char *last = "";
  hark_text_append(text, "{\"model\": {");
  (void)print_section("", config, text);
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    const char *const key = key_of(row);
    const size_t length = section_length(key);
    if (length > 0 && (length != before || memcmp(key, last, length) != 0)) (void)print_section(key, config, text);
    before = length;
    last = key;
  }
  hark_text_append(text, "}}");
}

/* ---- reading ---- */

typedef struct description_reader {
  hark_context *context;
  const char *name;
  hark_network_config *config;
  bool seen[HARK_MODEL_ROWS];
} description_reader;

/* "NAME: model.KEY is VALUE, expected ..." */
static hark_status refuse(const description_reader *r, const hark_model_option *row, const char *value) {
  hark_text expected = hark_text_empty(r->context);
  hark_option_expected(&row->option, &expected);
  const hark_status status = expected.status != HARK_OK ? expected.status
                                                        : hark_fail(r->context, HARK_BAD_FILE, "%s: %s is %s, expected %s", r->name,
                                                                    row->option.name, value, hark_text_get(&expected));
  hark_text_free(&expected);
  return status;
}

static hark_status read_number(const description_reader *r, const hark_model_option *row, const hark_json_node *node) {
  const bool whole = node->kind == HARK_JSON_INTEGER, must_be_whole = row->option.type == HARK_OPTION_INT;
  char is[HARK_NUMBER_BYTES];
  if (!whole && (must_be_whole || node->kind != HARK_JSON_REAL))
    return hark_fail(r->context, HARK_BAD_FILE, "%s: %s is not a %s", r->name, row->option.name, must_be_whole ? "whole number" : "number");
  const double number = whole ? (double)node->integer : node->real;
  hark_option_value value = {.number = number};
  if (must_be_whole) value = (hark_option_value){.whole = node->integer};
  const bool unsaid = row->stored == HARK_STORED_GROUP && number == 0;
  if (!unsaid && !hark_option_in_range(&row->option, number)) return refuse(r, row, hark_number_print(number, is));
  if (row->stored == HARK_STORED_SETTLED && number == 0)
    return hark_fail(r->context, HARK_BAD_FILE, "%s: %s is 0, expected a whole number of at least 1", r->name, row->option.name);
  hark_option_put_value(&row->option, &value, hark_model_option_field(row, r->config));
  return HARK_OK;
}

static hark_status read_words(const description_reader *r, const hark_model_option *row, const hark_json_node *node) {
  const char *const given = hark_json_text(node);
  hark_option_value value = {0};
  if (given != NULL && hark_option_read_value(&row->option, given, &value)) {
    hark_option_put_value(&row->option, &value, hark_model_option_field(row, r->config));
    return HARK_OK;
  }
  char shown[HARK_SHOWN_BYTES], quoted[HARK_SHOWN_BYTES + 2];
  (void)snprintf(quoted, sizeof quoted, "\"%s\"", hark_text_shown(given != NULL ? given : "?", shown));
  return refuse(r, row, quoted);
}

/* Reads a list of numbers, or of texts with several numbers, as in configurations: "10,13". */
static hark_status read_list(const description_reader *r, const hark_model_option *row, const hark_json_node *node) {
  const hark_model_list *const list = hark_model_list_of(row->option.name);
  if (node->kind != HARK_JSON_LIST) return hark_fail(r->context, HARK_BAD_FILE, "%s: %s is not a list", r->name, row->option.name);
  for (const hark_json_node *item = node->first; item != NULL; item = item->next) {
    const char *const text = hark_json_text(item);
    hark_list_reading reading = HARK_LIST_WRONG;
    if (text != NULL) reading = hark_model_list_read(list, text, r->config);
    if (item->kind == HARK_JSON_INTEGER) reading = hark_model_list_add(list, (double)item->integer, r->config);
    if (item->kind == HARK_JSON_REAL) reading = hark_model_list_add(list, item->real, r->config);
    if (reading == HARK_LIST_FULL)
      return hark_fail(r->context, HARK_BAD_FILE, "%s: %s has more than %d numbers", r->name, row->option.name, (int)list->most);
    if (reading == HARK_LIST_WRONG)
      return hark_fail(r->context, HARK_BAD_FILE, "%s: %s is a list with items other than %s in %s", r->name, row->option.name,
                       list->whole ? "whole numbers" : "numbers", row->option.range);
  }
  return HARK_OK;
}

/* Parses the expressions of positional kernels only to find its mistakes. */
static hark_status check_kernel(const description_reader *r, const char *text) {
  hark_positional_list list;
  const hark_status status = hark_positional_list_open(r->context, text, &list);
  hark_positional_list_close(r->context, &list);
  if (status != HARK_INVALID_ARGUMENT) return status;
  hark_fail_prefix(r->context, "%s: " HARK_MODEL_PREFIX KERNEL_KEY ": ", r->name);
  return HARK_BAD_FILE;
}

static hark_status read_text(const description_reader *r, const hark_model_option *row, const hark_json_node *node) {
  const char *const text = hark_json_text(node);
  if (text == NULL) return hark_fail(r->context, HARK_BAD_FILE, "%s: %s is not a text", r->name, row->option.name);
  *(const char **)hark_model_option_field(row, r->config) = text;
  return strcmp(key_of(row), KERNEL_KEY) == 0 ? check_kernel(r, text) : HARK_OK;
}

static hark_status read_value(const description_reader *r, const hark_model_option *row, const hark_json_node *node) {
  switch (row->option.type) {
    case HARK_OPTION_INT:
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: return read_number(r, row, node);
    case HARK_OPTION_ENUM:
    case HARK_OPTION_LAYERS: return read_words(r, row, node);
    case HARK_OPTION_LIST: return read_list(r, row, node);
    case HARK_OPTION_STRING: return read_text(r, row, node);
    case HARK_OPTION_BOOL: break;
  }
  if (node->kind != HARK_JSON_BOOLEAN)
    return hark_fail(r->context, HARK_BAD_FILE, "%s: %s is neither true nor false", r->name, row->option.name);
  *(bool *)hark_model_option_field(row, r->config) = node->boolean;
  return HARK_OK;
}

/* Keys that only training uses are ignored. */
static hark_status read_key(description_reader *r, const char *key, const hark_json_node *node) {
  const hark_model_option *row;
  char text[HARK_SHOWN_BYTES];
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    if (strcmp(key_of(row), key) != 0) continue;
    if (row->stored == HARK_STORED_NEVER) return HARK_OK;
    if (r->seen[i]) return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s occurs twice", r->name, key);
    r->seen[i] = true;
    return read_value(r, row, node);
  }
  return hark_fail(r->context, HARK_BAD_FILE, "%s: unknown key model.%s", r->name, hark_text_shown(key, text));
}

/* Reads the members of an object; `section` is "" or "rotary". */
static hark_status read_section(description_reader *r, const char *section, const hark_json_node *object) {
  for (const hark_json_node *member = object->first; member != NULL; member = member->next) {
    char key[KEY_BYTES], text[HARK_SHOWN_BYTES];
    const int length = snprintf(key, sizeof key, "%s%s%s", section, section[0] != '\0' ? "." : "", member->name);
    if (length < 0 || (size_t)length >= sizeof key)
      return hark_fail(r->context, HARK_BAD_FILE, "%s: unknown key model.%s...", r->name, hark_text_shown(key, text));
    if (member->kind == HARK_JSON_OBJECT && section[0] == '\0')
      HARK_TRY(read_section(r, key, member));
    else
      HARK_TRY(read_key(r, key, member));
  }
  return HARK_OK;
}

/* Whether an absent key is an error. Facts may be absent: the number of tokens may come from a vocabulary. */
static bool is_missed(const description_reader *r, const hark_model_option *row) {
  switch (row->stored) {
    case HARK_STORED_ALWAYS:
    case HARK_STORED_SETTLED: return !row->fact;
    case HARK_STORED_GROUP_NEEDED: return hark_model_option_in_group(row, r->config);
    case HARK_STORED_NEVER:
    case HARK_STORED_CHANGED:
    case HARK_STORED_GROUP: break;
  }
  return false;
}

static hark_status read_model(description_reader *r, const hark_json_node *root) {
  const hark_json_node *model = hark_json_member(root, "model");
  const hark_model_option *row;
  if (!hark_json_is(model, HARK_JSON_OBJECT))
    return hark_fail(r->context, HARK_BAD_FILE, "%s: expected an object with a member \"model\" that is an object", r->name);
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++)
    if (row->stored == HARK_STORED_CHANGED) hark_model_option_reset(row, r->config);
  HARK_TRY(read_section(r, "", model));
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    if (r->seen[i]) continue;
    if (r->config->rotary.scaling == HARK_ROTARY_YARN && strcmp(key_of(row), RAMP_KEY) == 0)
      r->config->rotary.ramp = HARK_ROTARY_RAMP_TURNS; /* written before there were two ramps */
    if (is_missed(r, row)) return hark_fail(r->context, HARK_BAD_FILE, "%s: %s is missing", r->name, row->option.name);
  }
  return HARK_OK;
}

hark_status hark_description_parse(hark_context *context, const char *name, const char *text, size_t bytes, hark_description *out) {
  *out = (hark_description){0};
  HARK_TRY(hark_json_tree_parse(context, name, text, bytes, &out->tree));
  description_reader reader = {.context = context, .name = name, .config = &out->config};
  const hark_status status = read_model(&reader, out->tree.root);
  if (status != HARK_OK) hark_description_close(context, out);
  return status;
}

void hark_description_close(hark_context *context, hark_description *description) {
  hark_json_tree_free(context, &description->tree);
  *description = (hark_description){0};
}
