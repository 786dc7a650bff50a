/* fuzz_config.c - any bytes as a configuration file.
 *
 * The walk: items keep to their limits and their order, whatever is skipped. The options: every problem is one line; where there is none
 * the configuration is printed as YAML, which reads back without a problem and prints the same text (so parse(print(config)) = config), and
 * as JSON, which parses. */
#include <string.h>

#include "config/yaml.h"
#include "fuzz/fuzz.h"
#include "json/json.h"
#include "train/config.h"

#define PARSED_BYTES 512              /* of a configuration's memory for each of its bytes at most: "- a" is two texts and a place */
#define SET_BYTES ((size_t)256 << 10) /* of a set of options with its defaults */

typedef struct watch {
  fuzz_random random;
  int64_t index; /* of the next item of the list */
  int keys, items, line;
} watch;

static hark_status check_item(void *user, const hark_yaml_item *item, bool *skip) {
  watch *const w = user;
  const size_t length = strlen(item->key);
  FUZZ_CHECK(length > 0 && length < 256 && item->key[0] != 0, "a key of %zu bytes", length);
  for (size_t i = 0; i < length; i++) FUZZ_CHECK(strchr(" \t\n\r:#\"'", item->key[i]) == NULL, "the key \"%s\"", item->key);
  FUZZ_CHECK(item->line >= w->line && item->line >= 1, "line %d after line %d", item->line, w->line);
  w->line = item->line;
  const bool has_value = item->kind == HARK_YAML_SCALAR || item->kind == HARK_YAML_ITEM;
  if (has_value) FUZZ_CHECK(item->value != NULL && strlen(item->value) <= HARK_YAML_BYTES, "an item without a value");
  if (item->kind == HARK_YAML_ITEM) {
    FUZZ_CHECK(item->index == w->index++, "item %lld of a list is number %lld", (long long)w->index - 1, (long long)item->index);
    FUZZ_CHECK(++w->items <= HARK_YAML_ITEMS, "%d items", w->items);
    return HARK_OK;
  }
  w->index = 0;
  FUZZ_CHECK(++w->keys <= HARK_YAML_KEYS, "%d keys", w->keys);
  if (!has_value && item->kind != HARK_YAML_NULL) *skip = fuzz_random_below(&w->random, 8) == 0;
  return HARK_OK;
}

/* A set of options that has read a file; *config is filled. NULL when the file has problems. */
static hark_options *read_config(hark_context *context, const char *path, hark_config *config) {
  const hark_option_group group = {&hark_config_table, config};
  hark_options *set;
  FUZZ_CHECK(hark_options_create(context, "train", &group, 1, &set) == HARK_OK, "%s", hark_context_message(context));
  const hark_status status = hark_options_read_yaml(context, set, path, HARK_SOURCE_FILE);
  FUZZ_CHECK(status == HARK_OK || status == HARK_BAD_FILE, "%s: %s", hark_status_name(status), hark_context_message(context));
  if (status == HARK_OK && hark_options_problem_count(set) == 0)
    FUZZ_CHECK(hark_config_finish(context, set, config) == HARK_OK, "%s", hark_context_message(context));
  for (int i = 0; i < hark_options_problem_count(set); i++) fuzz_check_line(hark_options_problem(set, i));
  const hark_status finished = hark_options_finish(context, set);
  fuzz_check_refusal(context, finished, HARK_BAD_CONFIGURATION, "");
  FUZZ_CHECK((finished == HARK_OK) == (hark_options_problem_count(set) == 0), "problems are not reported");
  if (status != HARK_OK || finished != HARK_OK) hark_options_destroy(context, &set);
  return set;
}

static void check_printed(hark_context *context, const hark_options *set) {
  hark_text text = hark_text_empty(context), again = hark_text_empty(context), json = hark_text_empty(context);
  hark_config config;
  json_t *object = NULL;
  hark_options_print_yaml(set, true, &text);
  FUZZ_CHECK(text.status == HARK_OK, "%s", hark_context_message(context));
  hark_options *back = read_config(context, fuzz_file(hark_text_get(&text), text.length), &config);
  FUZZ_CHECK(back != NULL, "what was printed is refused: %s\n%s", hark_context_message(context), hark_text_get(&text));
  hark_options_print_yaml(back, true, &again);
  FUZZ_CHECK(strcmp(hark_text_get(&text), hark_text_get(&again)) == 0, "came back changed:\n%s\n%s", hark_text_get(&text),
             hark_text_get(&again));
  hark_options_print_json(back, &json);
  FUZZ_CHECK(hark_json_parse(context, "json", hark_text_get(&json), json.length, &object) == HARK_OK, "%s", hark_context_message(context));
  json_decref(object);
  hark_text_free(&text);
  hark_text_free(&again);
  hark_text_free(&json);
  hark_options_destroy(context, &back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  watch w = {.random = fuzz_random_of(data, size)};
  hark_config config;
  const hark_status walked = hark_yaml_walk(context, "input", (const char *)data, size, check_item, &w);
  fuzz_check_refusal(context, walked, HARK_BAD_CONFIGURATION, "input:");
  fuzz_limit(PARSED_BYTES * size);
  if (walked != HARK_OK && fuzz_random_below(&w.random, 8) > 0) { /* the options would report the same problem */
    fuzz_end();
    return 0;
  }
  hark_options *set = read_config(context, fuzz_file(data, size), &config);
  fuzz_limit(PARSED_BYTES * size + SET_BYTES);
  if (set != NULL) check_printed(context, set);
  hark_options_destroy(context, &set);
  fuzz_end();
  return 0;
}
