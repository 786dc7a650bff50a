/* delimiters.c - see delimiters.h. */
#include "train/delimiters.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/text.h"
#include "tokenizers/example_vocabulary.h"
#include "train/evaluate_examples.h"

#define PIECE 4096

/* ---- items of an option ---- */

bool hark_delimiter_is_text(const char *item) {
  const char first = item[strspn(item, " ")];
  const bool is_number = (first >= '0' && first <= '9') || (first == '-' && item[1] >= '0' && item[1] <= '9');
  return item[0] != '\0' && !is_number;
}

bool hark_delimiter_text(const char *item, char *out, size_t *bytes) {
  static const char letters[] = "ntr\\", meanings[] = "\n\t\r\\";
  *bytes = 0;
  for (const char *at = item; *at != '\0'; at++) {
    char character = *at;
    if (character == '\\') {
      const char *const letter = at[1] != '\0' ? strchr(letters, at[1]) : NULL;
      if (letter == NULL) return false;
      character = meanings[letter - letters];
      at++;
    }
    if (out != NULL) out[*bytes] = character;
    (*bytes)++;
  }
  return true;
}

const hark_model_list *hark_delimiters_list(const hark_config *config) {
  if (config->model.architecture == HARK_ARCHITECTURE_AHCA && config->model.ahca.chunk == HARK_AHCA_CHUNK_DELIMITER)
    return hark_model_list_of("model.ahca.more_delimiters");
  if (config->model.architecture == HARK_ARCHITECTURE_DECODER &&
      hark_layer_choice_has(&config->model.attention.structure, HARK_STRUCTURE_COMPRESSED))
    return hark_model_list_of("model.attention.delimiters");
  return NULL;
}

static const hark_string_list *items_of(const hark_config *config, const hark_model_list *list) {
  return hark_model_option_value(hark_model_option_find(list->name), &config->model);
}

/* ---- texts to tokens ---- */

typedef struct delimiter_finder {
  hark_context *context;
  const hark_model_list *list;
  const hark_tokenizer *tokenizer;           /* one of these two is NULL */
  const hark_example_vocabulary *vocabulary; /* of examples */
} delimiter_finder;

static hark_status encode(const delimiter_finder *f, const char *name, const char *text, size_t bytes, int32_t *tokens, size_t *count) {
  if (f->tokenizer != NULL) return hark_tokenizer_encode(f->context, f->tokenizer, HARK_UNKNOWN_IS_ERROR, name, text, bytes, tokens, count);
  const hark_status status = hark_example_vocabulary_encode(f->context, f->vocabulary, false, text, bytes, tokens, count);
  if (status != HARK_OK) hark_fail_prefix(f->context, "%s: ", name);
  return status;
}

static hark_status add_text(const delimiter_finder *f, const char *item, hark_network_config *config) {
  char name[HARK_SHOWN_BYTES + 64], shown[HARK_SHOWN_BYTES];
  const size_t room = strlen(item);
  void *text = NULL, *memory = NULL;
  size_t bytes = 0, count = 0;
  (void)snprintf(name, sizeof name, "%s: \"%s\"", f->list->name, hark_text_shown(item, shown));
  HARK_TRY(hark_allocate(f->context, room, &text));
  hark_status status = hark_allocate(f->context, room * sizeof(int32_t), &memory);
  int32_t *const tokens = memory;
  if (status == HARK_OK) {
    (void)hark_delimiter_text(item, text, &bytes); /* checked with the configuration */
    status = encode(f, name, text, bytes, tokens, &count);
    if (status == HARK_BAD_FILE) status = HARK_BAD_CONFIGURATION;
  }
  if (status == HARK_OK && count == 0) status = hark_fail(f->context, HARK_BAD_CONFIGURATION, "%s: is no token of this vocabulary", name);
  for (size_t i = 0; i < count && status == HARK_OK; i++) {
    if (hark_model_list_add(f->list, tokens[i], config) == HARK_LIST_FULL)
      status = hark_fail(f->context, HARK_BAD_CONFIGURATION, "%s: more than %d tokens in all delimiters", name, (int)f->list->most);
    else if (i + 1 < count)
      hark_model_list_go_on(f->list, config);
  }
  hark_release(f->context, memory, memory != NULL ? room * sizeof(int32_t) : 0);
  hark_release(f->context, text, room);
  return status;
}

static hark_status add_items(const delimiter_finder *f, const hark_string_list *items, hark_network_config *config) {
  hark_model_list_clear(f->list, config);
  for (int64_t i = 0; i < items->count; i++) {
    if (hark_delimiter_is_text(items->items[i]))
      HARK_TRY(add_text(f, items->items[i], config));
    else if (hark_model_list_read(f->list, items->items[i], config) != HARK_LIST_READ)
      return hark_fail(f->context, HARK_BAD_CONFIGURATION, "%s: more than %d tokens in all delimiters", f->list->name, (int)f->list->most);
  }
  return HARK_OK;
}

hark_status hark_delimiters_find(hark_context *context, const hark_config *config, const hark_tokenizer *tokenizer,
                                 const hark_examples *examples, hark_delimiter_tokens *out) {
  hark_network_config network = config->model;
  hark_example_vocabulary *vocabulary = NULL;
  delimiter_finder f = {.context = context, .list = hark_delimiters_list(config), .tokenizer = tokenizer};
  *out = (hark_delimiter_tokens){.count = 0};
  if (f.list == NULL || !hark_model_list_has_text(f.list, &network)) return HARK_OK;
  if (tokenizer == NULL) {
    size_t bytes = 0;
    const char *const text = hark_examples_vocabulary(examples, &bytes);
    HARK_TRY(hark_example_vocabulary_parse(context, text, bytes, &vocabulary));
    f.vocabulary = vocabulary;
  }
  const hark_status status = add_items(&f, items_of(config, f.list), &network);
  hark_example_vocabulary_destroy(context, &vocabulary);
  HARK_TRY(status);
  out->count = hark_model_list_count(f.list, &network);
  for (int32_t i = 0; i < out->count; i++) out->numbers[i] = (int32_t)hark_model_list_number(f.list, &network, i);
  return HARK_OK;
}

hark_status hark_delimiters_settle(hark_context *context, hark_options *options, const hark_config *config,
                                   const hark_tokenizer *tokenizer) {
  hark_delimiter_tokens found;
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_delimiters_find(context, config, tokenizer, NULL, &found));
  if (found.count == 0) return HARK_OK;
  for (int32_t i = 0; i < found.count; i++)
    hark_text_append(&text, "%" PRId32 "%s", hark_delimiter_token(found.numbers[i]),
                     hark_delimiter_goes_on(found.numbers[i]) ? "+"
                     : i + 1 < found.count                    ? ","
                                                              : "");
  const char *const name = hark_delimiters_list(config)->name;
  hark_status status = text.status;
  if (status == HARK_OK)
    status = hark_options_set_item(context, options, name, 0, hark_text_get(&text), hark_options_where(options, name),
                                   hark_options_source(options, name));
  hark_text_free(&text);
  return status;
}

/* ---- whether one occurs ---- */

/* The delimiters of a configuration, and the option that has the first. */
typedef struct delimiter_set {
  const char *option;
  int32_t numbers[1 + HARK_DELIMITER_TOKENS]; /* as in chunk_ends.h */
  int32_t count;
} delimiter_set;

static void add(delimiter_set *set, const int32_t *numbers, int32_t count) {
  for (int32_t i = 0; i < count; i++) set->numbers[set->count++] = numbers[i];
}

/* None where the model does not use them. */
static delimiter_set delimiters_of(const hark_config *config, const hark_delimiter_tokens *found) {
  const hark_ahca_config *ahca = &config->model.ahca;
  const hark_attention_choice *attention = &config->model.attention;
  const hark_model_list *const list = hark_delimiters_list(config);
  delimiter_set set = {.option = list != NULL ? list->name : ""};
  if (list == NULL) return set;
  if (config->model.architecture == HARK_ARCHITECTURE_AHCA && ahca->delimiter >= 0) {
    const int32_t first = (int32_t)ahca->delimiter;
    set.option = "model.ahca.delimiter";
    add(&set, &first, 1);
  }
  if (found->count > 0)
    add(&set, found->numbers, found->count);
  else if (config->model.architecture == HARK_ARCHITECTURE_AHCA)
    add(&set, ahca->other_delimiters, ahca->other_delimiter_count);
  else
    add(&set, attention->chunk_delimiters, attention->chunk_delimiter_count);
  return set;
}

static bool has_delimiter(const delimiter_set *set, const int32_t *tokens, int64_t count) {
  const hark_chunk_ends ends = {.delimiters = set->numbers, .delimiter_count = set->count};
  for (int64_t i = 1; i <= count; i++)
    if (hark_chunk_has_delimiter(&ends, i, tokens + i)) return true;
  return false;
}

/* Pieces overlap, so that each delimiter is whole in one. */
static hark_status search_text(hark_context *context, const delimiter_set *set, const hark_corpus *corpus, bool *found) {
  const int64_t all = hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).tokens;
  int32_t piece[PIECE];
  for (int64_t first = 0; first < all && !*found; first += PIECE - HARK_DELIMITER_TOKENS) {
    const int64_t count = hark_min(PIECE, all - first);
    HARK_TRY(hark_corpus_read(context, corpus, HARK_SPLIT_TRAINING, first, count, piece));
    *found = has_delimiter(set, piece, count);
  }
  return HARK_OK;
}

/* Searches the examples within data.example_limit. */
static hark_status search_examples(hark_context *context, const hark_config *config, const delimiter_set *set,
                                   const hark_examples *examples, bool *found) {
  const hark_example_batches_settings settings = hark_example_settings(config, HARK_SPLIT_TRAINING, true);
  const hark_examples_counts counts = hark_examples_count(examples, HARK_SPLIT_TRAINING);
  const size_t bytes = (size_t)counts.longest * sizeof(int32_t);
  hark_example_batches batches;
  void *tokens = NULL;
  HARK_TRY(hark_example_batches_create(context, examples, &settings, &batches));
  HARK_TRY(hark_allocate(context, bytes, &tokens));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < batches.count && !*found && status == HARK_OK; i++) {
    const int64_t index = hark_example_batches_index(&batches, i);
    status = hark_examples_read(context, examples, HARK_SPLIT_TRAINING, index, 0, tokens);
    if (status == HARK_OK) *found = has_delimiter(set, tokens, hark_examples_length(examples, HARK_SPLIT_TRAINING, index, 0));
  }
  hark_release(context, tokens, bytes);
  return status;
}

hark_status hark_delimiters_check(hark_context *context, const hark_config *config, const hark_delimiter_tokens *found,
                                  const hark_examples *examples, const hark_corpus *corpus) {
  const delimiter_set set = delimiters_of(config, found);
  const int64_t vocabulary =
      examples != NULL ? hark_examples_vocabulary_size(examples) : hark_tokenizer_size(hark_corpus_tokenizer(corpus));
  bool occurs = set.count == 0;
  for (int32_t i = 0; i < set.count; i++)
    occurs = occurs || hark_delimiter_token(set.numbers[i]) >= vocabulary; /* the model refuses it and reports the range */
  if (occurs) return HARK_OK;
  if (examples != NULL && hark_examples_features(examples) > 0) return HARK_OK; /* real vectors: the model reports the problem */
  HARK_TRY(examples != NULL ? search_examples(context, config, &set, examples, &occurs) : search_text(context, &set, corpus, &occurs));
  if (occurs) return HARK_OK;
  const hark_string_list *const items = items_of(config, hark_delimiters_list(config));
  char what[HARK_SHOWN_BYTES + 32] = "no delimiter occurs", shown[HARK_SHOWN_BYTES];
  if (set.count == 1 && found->count == 0)
    (void)snprintf(what, sizeof what, "token %" PRId32 " does not occur", set.numbers[0]);
  else if (found->count == set.count && items->count == 1)
    (void)snprintf(what, sizeof what, "\"%s\" does not occur", hark_text_shown(items->items[0], shown));
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: %s in the training data", set.option, what);
}
