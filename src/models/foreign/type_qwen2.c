/* type_qwen2.c - Qwen2 (arXiv 2407.10671): biases of queries, keys and values alone; optionally a window, in the layers from
 * max_window_layers on or in those that layer_types names. */
#include <string.h>

#include "models/foreign/llama_family.h"

static const hark_foreign_key keys[] = {
    HARK_LLAMA_KEYS("32768"),
    HARK_FOREIGN_SPECIAL_KEY("use_sliding_window"),
    HARK_FOREIGN_SPECIAL_KEY("sliding_window"),
    HARK_FOREIGN_SPECIAL_KEY("max_window_layers"),
    HARK_FOREIGN_SPECIAL_KEY("layer_types"),
    HARK_FOREIGN_IGNORED_KEY("use_mrope"), /* of its relatives with pictures */
};

#define KEY_HEADS 32 /* where config.json lacks them, */
#define WINDOW 4096  /* a window, */
#define FIRST 28     /* and the first layer with it */

/* Words of as many layers as the model has. */
static hark_status begin_pattern(const hark_foreign_reader *reader, const char *key) {
  hark_layer_choice *const structure = &reader->config->attention.structure;
  if (reader->config->layers > HARK_LAYER_CHOICE_WORDS)
    return hark_fail(reader->context, HARK_UNSUPPORTED, "%.250s: %s: a pattern of more than %d layers", reader->path, key,
                     HARK_LAYER_CHOICE_WORDS);
  *structure = (hark_layer_choice){.count = (int32_t)reader->config->layers};
  return HARK_OK;
}

static hark_status read_layer_types(const hark_foreign_reader *reader, const hark_json_node *list, bool windowed) {
  hark_layer_choice *const structure = &reader->config->attention.structure;
  if (list->kind != HARK_JSON_LIST || list->count != reader->config->layers)
    return hark_foreign_refuse(reader, "layer_types", list, "expected one word for each of num_hidden_layers");
  HARK_TRY(begin_pattern(reader, "layer_types"));
  const hark_json_node *item = list->first;
  for (int32_t i = 0; i < structure->count; i++, item = item->next) {
    const char *const word = hark_json_text(item) != NULL ? hark_json_text(item) : "";
    const bool window = strcmp(word, "sliding_attention") == 0;
    if (!window && strcmp(word, "full_attention") != 0)
      return hark_foreign_refuse(reader, "layer_types", item, "expected full_attention or sliding_attention");
    if (window && !windowed) return hark_foreign_refuse(reader, "layer_types", item, "which needs use_sliding_window and sliding_window");
    structure->words[i] = window ? HARK_STRUCTURE_WINDOW : HARK_STRUCTURE_DENSE;
  }
  return HARK_OK;
}

static hark_status read_first_layer(const hark_foreign_reader *reader) {
  hark_layer_choice *const structure = &reader->config->attention.structure;
  const hark_json_node *const first = hark_json_member(reader->root, "max_window_layers");
  if (first != NULL && (first->kind != HARK_JSON_INTEGER || first->integer < 0))
    return hark_foreign_refuse(reader, "max_window_layers", first, "expected a whole number of at least 0");
  HARK_TRY(begin_pattern(reader, "max_window_layers"));
  for (int32_t i = 0; i < structure->count; i++)
    structure->words[i] = i >= (first != NULL ? first->integer : FIRST) ? HARK_STRUCTURE_WINDOW : HARK_STRUCTURE_DENSE;
  return HARK_OK;
}

/* Equal words of all layers are one word, as it is in other models. */
static void shorten(hark_layer_choice *structure) {
  for (int word = HARK_STRUCTURE_DENSE; word <= HARK_STRUCTURE_WINDOW; word++)
    if (hark_layer_choice_is(structure, word)) *structure = (hark_layer_choice)HARK_EVERY_LAYER(word);
}

static hark_status read(const hark_foreign_reader *reader) {
  hark_attention_choice *const attention = &reader->config->attention;
  const hark_json_node *const types = hark_foreign_value(reader, "layer_types");
  const int64_t usual = attention->window;
  bool used = false;
  HARK_TRY(hark_llama_read(reader, KEY_HEADS));
  attention->biased = HARK_BIASED_INPUT;
  HARK_TRY(hark_foreign_truth(reader, "use_sliding_window", &used));
  if (used) HARK_TRY(hark_llama_read_window(reader, "sliding_window", WINDOW));
  const bool windowed = hark_layer_choice_has(&attention->structure, HARK_STRUCTURE_WINDOW);
  if (types != NULL)
    HARK_TRY(read_layer_types(reader, types, windowed));
  else if (windowed)
    HARK_TRY(read_first_layer(reader));
  shorten(&attention->structure);
  if (!hark_layer_choice_has(&attention->structure, HARK_STRUCTURE_WINDOW)) attention->window = usual;
  return HARK_OK;
}

static void write(const hark_foreign_writer *writer) {
  const hark_network_config *const config = writer->config;
  const bool windowed = hark_layer_choice_has(&config->attention.structure, HARK_STRUCTURE_WINDOW);
  int64_t first = 0;
  while (first < config->layers && hark_layer_choice_of(&config->attention.structure, first) != HARK_STRUCTURE_WINDOW) first++;
  hark_foreign_put_truth(writer, "use_sliding_window", windowed);
  if (windowed) {
    hark_foreign_put_whole(writer, "sliding_window", hark_llama_window(config));
    hark_foreign_put_whole(writer, "max_window_layers", first);
    hark_foreign_put_key(writer, "layer_types");
    for (int64_t i = 0; i < config->layers; i++)
      hark_text_append(writer->text, "%s\"%s_attention\"", i == 0 ? "[" : ", ",
                       hark_layer_choice_of(&config->attention.structure, i) == HARK_STRUCTURE_WINDOW ? "sliding" : "full");
    hark_text_append(writer->text, "]");
  }
  hark_llama_write(writer);
}

const hark_foreign_type hark_foreign_type_qwen2 = {
    .name = "qwen2",
    .classes = "Qwen2ForCausalLM|Qwen2Model",
    .usual_end = -1,
    HARK_LLAMA_MEMBERS,
};
