/* foreign_keys.c - see foreign_keys.h. */
#include "models/foreign/foreign_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/json_write.h"
#include "io/number.h"
#include "models/model_options.h"

#define NAME_BYTES 96 /* of an option or of a key's path */
#define END_KEY "eos_token_id"

/* Keys of all types. What only training, generation, the Python program or other heads use changes no logit of a decoder. */
static const hark_foreign_key common[] = {
    HARK_FOREIGN_SPECIAL_KEY("model_type"),
    HARK_FOREIGN_SPECIAL_KEY("architectures"),
    HARK_FOREIGN_FIXED_KEY("quantization_config", "null", "quantised weights are not read"),
    HARK_FOREIGN_FIXED_KEY("compression_config", "null", "compressed weights are not read"),
    HARK_FOREIGN_FIXED_KEY("auto_map", "null", "the model has a program of its own, which is not run"),
    HARK_FOREIGN_FIXED_KEY("is_encoder_decoder", "false", NULL),
    HARK_FOREIGN_FIXED_KEY("add_cross_attention", "false", NULL),
    HARK_FOREIGN_FIXED_KEY("cross_attention_hidden_size", "null", NULL),
    HARK_FOREIGN_FIXED_KEY("pruned_heads", "{}", NULL),
    HARK_FOREIGN_IGNORED_KEY("_name_or_path"),
    HARK_FOREIGN_IGNORED_KEY("_attn_implementation"),
    HARK_FOREIGN_IGNORED_KEY("_attn_implementation_autoset"),
    HARK_FOREIGN_IGNORED_KEY("attn_implementation"),
    HARK_FOREIGN_IGNORED_KEY("transformers_version"),
    HARK_FOREIGN_IGNORED_KEY("transformers_weights"),
    HARK_FOREIGN_IGNORED_KEY("torch_dtype"),
    HARK_FOREIGN_IGNORED_KEY("dtype"),
    HARK_FOREIGN_IGNORED_KEY("use_bfloat16"),
    HARK_FOREIGN_IGNORED_KEY("torchscript"),
    HARK_FOREIGN_IGNORED_KEY("tf_legacy_loss"),
    HARK_FOREIGN_IGNORED_KEY("use_cache"),
    HARK_FOREIGN_IGNORED_KEY("gradient_checkpointing"),
    HARK_FOREIGN_IGNORED_KEY("chunk_size_feed_forward"),
    HARK_FOREIGN_IGNORED_KEY("initializer_range"),
    HARK_FOREIGN_IGNORED_KEY("bos_token_id"),
    HARK_FOREIGN_SPECIAL_KEY("eos_token_id"),
    HARK_FOREIGN_IGNORED_KEY("pad_token_id"),
    HARK_FOREIGN_IGNORED_KEY("sep_token_id"),
    HARK_FOREIGN_IGNORED_KEY("unk_token_id"),
    HARK_FOREIGN_IGNORED_KEY("decoder_start_token_id"),
    HARK_FOREIGN_IGNORED_KEY("tokenizer_class"),
    HARK_FOREIGN_IGNORED_KEY("prefix"),
    HARK_FOREIGN_IGNORED_KEY("is_decoder"),
    HARK_FOREIGN_IGNORED_KEY("tie_encoder_decoder"),
    HARK_FOREIGN_IGNORED_KEY("return_dict"),
    HARK_FOREIGN_IGNORED_KEY("return_dict_in_generate"),
    HARK_FOREIGN_IGNORED_KEY("output_attentions"),
    HARK_FOREIGN_IGNORED_KEY("output_hidden_states"),
    HARK_FOREIGN_IGNORED_KEY("output_scores"),
    HARK_FOREIGN_IGNORED_KEY("remove_invalid_values"),
    HARK_FOREIGN_IGNORED_KEY("finetuning_task"),
    HARK_FOREIGN_IGNORED_KEY("task_specific_params"),
    HARK_FOREIGN_IGNORED_KEY("problem_type"),
    HARK_FOREIGN_IGNORED_KEY("id2label"),
    HARK_FOREIGN_IGNORED_KEY("label2id"),
    HARK_FOREIGN_IGNORED_KEY("num_labels"),
    HARK_FOREIGN_IGNORED_KEY("max_length"),
    HARK_FOREIGN_IGNORED_KEY("min_length"),
    HARK_FOREIGN_IGNORED_KEY("do_sample"),
    HARK_FOREIGN_IGNORED_KEY("early_stopping"),
    HARK_FOREIGN_IGNORED_KEY("num_beams"),
    HARK_FOREIGN_IGNORED_KEY("num_beam_groups"),
    HARK_FOREIGN_IGNORED_KEY("diversity_penalty"),
    HARK_FOREIGN_IGNORED_KEY("temperature"),
    HARK_FOREIGN_IGNORED_KEY("top_k"),
    HARK_FOREIGN_IGNORED_KEY("top_p"),
    HARK_FOREIGN_IGNORED_KEY("typical_p"),
    HARK_FOREIGN_IGNORED_KEY("repetition_penalty"),
    HARK_FOREIGN_IGNORED_KEY("length_penalty"),
    HARK_FOREIGN_IGNORED_KEY("no_repeat_ngram_size"),
    HARK_FOREIGN_IGNORED_KEY("encoder_no_repeat_ngram_size"),
    HARK_FOREIGN_IGNORED_KEY("bad_words_ids"),
    HARK_FOREIGN_IGNORED_KEY("num_return_sequences"),
    HARK_FOREIGN_IGNORED_KEY("forced_bos_token_id"),
    HARK_FOREIGN_IGNORED_KEY("forced_eos_token_id"),
    HARK_FOREIGN_IGNORED_KEY("suppress_tokens"),
    HARK_FOREIGN_IGNORED_KEY("begin_suppress_tokens"),
    HARK_FOREIGN_IGNORED_KEY("exponential_decay_length_penalty"),
};
enum { COMMON = sizeof common / sizeof *common };

const hark_foreign_type *hark_foreign_type_at(int index) {
  static const hark_foreign_type *const types[] = {
#define TYPE_ROW(name) &hark_foreign_type_##name,
      HARK_FOREIGN_TYPES(TYPE_ROW)
#undef TYPE_ROW
  };
  return index >= 0 && (size_t)index < sizeof types / sizeof *types ? types[index] : NULL;
}

/* ---- values as texts ---- */

/* A value in one form: texts without quotes, whole numbers without a point. Lists of values are written in full, objects as {} or {...}. */
static void append_value(const hark_json_node *value, bool quoted, hark_text *out) {
  switch (value->kind) {
    case HARK_JSON_NULL: hark_text_append(out, "null"); break;
    case HARK_JSON_BOOLEAN: hark_text_append(out, value->boolean ? "true" : "false"); break;
    case HARK_JSON_INTEGER: hark_text_append(out, "%" PRId64, value->integer); break;
    case HARK_JSON_REAL: hark_json_append_number(out, value->real); break;
    case HARK_JSON_TEXT: hark_text_append(out, quoted ? "\"%s\"" : "%s", value->text); break;
    case HARK_JSON_OBJECT: hark_text_append(out, value->count > 0 ? "{...}" : "{}"); break;
    case HARK_JSON_LIST:
      hark_text_append(out, "[");
      for (const hark_json_node *item = value->first; item != NULL; item = item->next) {
        if (item != value->first) hark_text_append(out, ", ");
        if (item->kind == HARK_JSON_LIST)
          hark_text_append(out, "[...]");
        else
          append_value(item, true, out);
      }
      hark_text_append(out, "]");
      break;
  }
}

/* hark's word for theirs, or theirs for hark's; NULL: there is none. "gelu_new=gelu_tanh|gelu=gelu". */
static const char *translate(const char *words, const char *word, bool to_hark, char out[HARK_OPTION_WORD_BYTES]) {
  for (int i = 0; hark_option_choice_at(words, i, out); i++) {
    char *const middle = strchr(out, '=');
    if (middle == NULL) return NULL;
    *middle = '\0';
    if (strcmp(to_hark ? out : middle + 1, word) != 0) continue;
    return to_hark ? middle + 1 : out;
  }
  return NULL;
}

static const hark_model_option *find_option(const char *option) {
  char name[NAME_BYTES];
  (void)snprintf(name, sizeof name, HARK_MODEL_PREFIX "%s", option);
  return hark_model_option_find(name);
}

/* ---- messages ---- */

/* "PATH: KEY: is VALUE, " and the reason; the value is cut. */
static hark_status refuse_text(const hark_foreign_reader *reader, hark_status status, const char *key, const char *value,
                               const char *reason) {
  char shown[HARK_SHOWN_BYTES], name[HARK_SHOWN_BYTES];
  return hark_fail(reader->context, status, "%.250s: %s: is %s, %s", reader->path, hark_text_shown(key, name),
                   hark_text_shown(value, shown), reason);
}

static hark_status refuse_with(const hark_foreign_reader *reader, hark_status status, const char *key, const hark_json_node *value,
                               const char *reason) {
  hark_text text = hark_text_empty(reader->context);
  append_value(value, true, &text);
  const hark_status printed = text.status;
  if (printed == HARK_OK) status = refuse_text(reader, status, key, hark_text_get(&text), reason);
  hark_text_free(&text);
  return printed == HARK_OK ? status : printed;
}

hark_status hark_foreign_refuse(const hark_foreign_reader *reader, const char *key, const hark_json_node *value, const char *reason) {
  return refuse_with(reader, HARK_UNSUPPORTED, key, value, reason);
}

/* "expected one of gelu_new, gelu", or what the option expects. */
static hark_status refuse_value(const hark_foreign_reader *reader, const char *key, const char *value, const hark_model_option *row,
                                const char *words) {
  hark_text reason = hark_text_empty(reader->context);
  char word[HARK_OPTION_WORD_BYTES];
  hark_text_append(&reason, "expected ");
  for (int i = 0; words != NULL && hark_option_choice_at(words, i, word); i++)
    hark_text_append(&reason, "%s%.*s", i == 0 ? "" : " or ", (int)strcspn(word, "="), word);
  if (words == NULL) hark_option_expected(&row->option, &reason);
  hark_status status = reason.status;
  if (status == HARK_OK) status = refuse_text(reader, words != NULL ? HARK_UNSUPPORTED : HARK_BAD_FILE, key, value, hark_text_get(&reason));
  hark_text_free(&reason);
  return status;
}

/* ---- reading ---- */

const hark_json_node *hark_foreign_value(const hark_foreign_reader *reader, const char *key) {
  const hark_json_node *const value = hark_json_member(reader->root, key);
  return value != NULL && value->kind != HARK_JSON_NULL ? value : NULL;
}

/* Sets an option from the text of a value. */
static hark_status set_from_text(const hark_foreign_reader *reader, const char *key, const char *text, const char *option,
                                 const char *words) {
  const hark_model_option *const row = find_option(option);
  char word[HARK_OPTION_WORD_BYTES];
  hark_option_value value = {0};
  const char *const ours = words != NULL ? translate(words, text, true, word) : text;
  if (ours == NULL || !hark_option_read_value(&row->option, ours, &value)) return refuse_value(reader, key, text, row, words);
  hark_option_put_value(&row->option, &value, hark_model_option_field(row, reader->config));
  return HARK_OK;
}

/* Whether a value is of the kind that the option has: numbers are not written as texts. */
static bool is_of_kind(const hark_model_option *row, const hark_json_node *value, const char *words) {
  if (words != NULL) return hark_json_text(value) != NULL;
  if (row->option.type == HARK_OPTION_BOOL) return value->kind == HARK_JSON_BOOLEAN;
  return value->kind == HARK_JSON_INTEGER || value->kind == HARK_JSON_REAL;
}

hark_status hark_foreign_set(const hark_foreign_reader *reader, const char *key, const hark_json_node *value, const char *option,
                             const char *words) {
  const hark_model_option *const row = find_option(option);
  hark_text text = hark_text_empty(reader->context);
  const bool fits = is_of_kind(row, value, words);
  append_value(value, !fits, &text);
  hark_status status = text.status;
  if (status == HARK_OK && !fits) status = refuse_value(reader, key, hark_text_get(&text), row, words);
  if (status == HARK_OK) status = set_from_text(reader, key, hark_text_get(&text), option, words);
  hark_text_free(&text);
  return status;
}

hark_status hark_foreign_whole(const hark_foreign_reader *reader, const char *key, int64_t *out) {
  const hark_json_node *const value = hark_foreign_value(reader, key);
  if (value == NULL) return HARK_OK;
  if (value->kind != HARK_JSON_INTEGER || value->integer < 1)
    return refuse_with(reader, HARK_BAD_FILE, key, value, "expected a whole number of at least 1");
  *out = value->integer;
  return HARK_OK;
}

hark_status hark_foreign_truth(const hark_foreign_reader *reader, const char *key, bool *out) {
  const hark_json_node *const value = hark_foreign_value(reader, key);
  if (value == NULL) return HARK_OK;
  if (value->kind != HARK_JSON_BOOLEAN) return refuse_with(reader, HARK_BAD_FILE, key, value, "expected true or false");
  *out = value->boolean;
  return HARK_OK;
}

/* Whether the value that a row requires is a text, which the row has without quotes. */
static bool is_word(const char *otherwise) {
  const bool literal = strcmp(otherwise, "null") == 0 || strcmp(otherwise, "true") == 0 || strcmp(otherwise, "false") == 0;
  return !literal && ((otherwise[0] >= 'a' && otherwise[0] <= 'z') || (otherwise[0] >= 'A' && otherwise[0] <= 'Z'));
}

/* null is as good as a value that stands for nothing; a text is no other value: "false" is true in the published program. */
static bool is_required(const char *otherwise, const hark_json_node *value, const char *text) {
  if (value->kind == HARK_JSON_NULL)
    return strcmp(otherwise, "null") == 0 || strcmp(otherwise, "false") == 0 || strcmp(otherwise, "{}") == 0;
  return (value->kind == HARK_JSON_TEXT) == is_word(otherwise) && strcmp(text, otherwise) == 0;
}

/* A key that must have one value. */
static hark_status check_fixed(const hark_foreign_reader *reader, const hark_foreign_key *row, const hark_json_node *value) {
  hark_text text = hark_text_empty(reader->context), reason = hark_text_empty(reader->context);
  append_value(value, false, &text);
  hark_text_append(&reason, "expected %s%s%s", row->otherwise, row->option != NULL ? ": " : "", row->option != NULL ? row->option : "");
  hark_status status = text.status != HARK_OK ? text.status : reason.status;
  if (status == HARK_OK && !is_required(row->otherwise, value, hark_text_get(&text)))
    status = hark_foreign_refuse(reader, row->key, value, hark_text_get(&reason));
  hark_text_free(&reason);
  hark_text_free(&text);
  return status;
}

static hark_status read_row(const hark_foreign_reader *reader, const hark_foreign_key *row) {
  const hark_json_node *const value = hark_json_member(reader->root, row->key);
  switch (row->use) {
    case HARK_FOREIGN_OPTION: break;
    case HARK_FOREIGN_FIXED: return value != NULL ? check_fixed(reader, row, value) : HARK_OK;
    case HARK_FOREIGN_IGNORED:
    case HARK_FOREIGN_SPECIAL: return HARK_OK;
  }
  if (value != NULL) return hark_foreign_set(reader, row->key, value, row->option, row->words);
  if (row->otherwise == NULL) return hark_fail(reader->context, HARK_BAD_FILE, "%.250s: %s: is missing", reader->path, row->key);
  return set_from_text(reader, row->key, row->otherwise, row->option, row->words);
}

static bool has_row(const hark_foreign_key *rows, int count, const char *key) {
  for (int i = 0; i < count; i++)
    if (strcmp(rows[i].key, key) == 0) return true;
  return false;
}

/* A key without a row might change what the model computes, unless it is null. */
static hark_status refuse_unknown(const hark_foreign_reader *reader) {
  for (const hark_json_node *member = reader->root->first; member != NULL; member = member->next) {
    if (member->kind == HARK_JSON_NULL || has_row(common, COMMON, member->name)) continue;
    if (has_row(reader->type->keys, reader->type->key_count, member->name)) continue;
    return hark_foreign_refuse(reader, member->name, member, "a key that hark does not know: it might change what the model computes");
  }
  return HARK_OK;
}

/* `architectures` names the model with its head. */
static hark_status check_classes(const hark_foreign_reader *reader) {
  const hark_json_node *const list = hark_foreign_value(reader, "architectures");
  char word[HARK_OPTION_WORD_BYTES];
  if (list == NULL) return HARK_OK;
  const char *const name = list->kind == HARK_JSON_LIST && list->count == 1 ? hark_json_text(list->first) : NULL;
  if (name != NULL && hark_option_choice(reader->type->classes, name) >= 0) return HARK_OK;
  hark_text reason = hark_text_empty(reader->context);
  hark_text_append(&reason, "expected one of ");
  for (int i = 0; hark_option_choice_at(reader->type->classes, i, word); i++) hark_text_append(&reason, "%s%s", i > 0 ? ", " : "", word);
  hark_status status = reason.status;
  if (status == HARK_OK) status = hark_foreign_refuse(reader, "architectures", list, hark_text_get(&reason));
  hark_text_free(&reason);
  return status;
}

/* The message names the type that is there and those that are read. */
static hark_status refuse_type(const hark_foreign_reader *reader, const char *name) {
  const hark_foreign_type *type;
  char shown[HARK_SHOWN_BYTES];
  hark_text types = hark_text_empty(reader->context);
  for (int i = 0; (type = hark_foreign_type_at(i)) != NULL; i++) hark_text_append(&types, "%s%s", i > 0 ? ", " : "", type->name);
  hark_status status = types.status;
  if (status == HARK_OK)
    status = hark_fail(reader->context, HARK_UNSUPPORTED, "%.250s: model_type: is %s, expected one of %s", reader->path,
                       hark_text_shown(name, shown), hark_text_get(&types));
  hark_text_free(&types);
  return status;
}

static hark_status find_type(hark_foreign_reader *reader) {
  const hark_json_node *const value = hark_json_member(reader->root, "model_type");
  const char *const name = value != NULL ? hark_json_text(value) : NULL;
  for (int i = 0; (reader->type = hark_foreign_type_at(i)) != NULL; i++)
    if (name != NULL && strcmp(reader->type->name, name) == 0) return HARK_OK;
  if (name == NULL) return hark_fail(reader->context, HARK_BAD_FILE, "%.250s: model_type: is missing or not a text", reader->path);
  return refuse_type(reader, name);
}

/* ---- end tokens ---- */

/* A token of the vocabulary is taken; programs that never reach their end token name one outside of it. */
static hark_status take_end(const hark_foreign_reader *reader, const hark_json_node *value, const hark_json_node *token) {
  hark_end_tokens *const ends = &reader->config->ends;
  if (token->kind != HARK_JSON_INTEGER)
    return refuse_with(reader, HARK_BAD_FILE, END_KEY, value, "expected a token, a list of tokens, or null");
  if (token->integer < 0 || token->integer >= reader->config->vocabulary || hark_is_end_token(ends, (int32_t)token->integer))
    return HARK_OK;
  if (ends->count == HARK_END_TOKENS)
    return hark_fail(reader->context, HARK_UNSUPPORTED, "%.250s: " END_KEY ": more than %d tokens", reader->path, HARK_END_TOKENS);
  ends->tokens[ends->count++] = (int32_t)token->integer;
  return HARK_OK;
}

static hark_status read_ends(const hark_foreign_reader *reader, int32_t otherwise) {
  const hark_json_node *const value = hark_json_member(reader->root, END_KEY);
  const hark_json_node usual = {.kind = HARK_JSON_INTEGER, .integer = otherwise};
  reader->config->ends.count = 0;
  if (value == NULL) return take_end(reader, &usual, &usual);
  if (value->kind == HARK_JSON_NULL) return HARK_OK;
  if (value->kind != HARK_JSON_LIST) return take_end(reader, value, value);
  for (const hark_json_node *item = value->first; item != NULL; item = item->next) HARK_TRY(take_end(reader, value, item));
  return HARK_OK;
}

hark_status hark_foreign_ends_read(hark_context *context, const char *path, const char *text, size_t bytes, hark_network_config *out) {
  hark_json_tree tree;
  HARK_TRY(hark_json_tree_parse(context, path, text, bytes, &tree));
  const hark_foreign_reader reader = {.context = context, .path = path, .root = tree.root, .config = out};
  const hark_status status =
      tree.root->kind == HARK_JSON_OBJECT ? read_ends(&reader, -1) : hark_fail(context, HARK_BAD_FILE, "%.250s: expected an object", path);
  hark_json_tree_free(context, &tree);
  return status;
}

static void write_ends(const hark_end_tokens *ends, hark_text *out) {
  hark_text_append(out, ", \"" END_KEY "\": %s", ends->count == 0 ? "null" : ends->count > 1 ? "[" : "");
  for (int32_t i = 0; i < ends->count; i++) hark_text_append(out, "%s%" PRId32, i > 0 ? ", " : "", ends->tokens[i]);
  hark_text_append(out, ends->count > 1 ? "]" : "");
}

/* ---- the whole ---- */

static hark_status read_all(hark_foreign_reader *reader) {
  const hark_model_option *row;
  if (reader->root->kind != HARK_JSON_OBJECT) return hark_fail(reader->context, HARK_BAD_FILE, "%.250s: expected an object", reader->path);
  HARK_TRY(find_type(reader));
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) hark_model_option_reset(row, reader->config);
  reader->config->unreserved = true;
  for (const hark_foreign_fixed *fixed = reader->type->fixed; fixed->option != NULL; fixed++)
    HARK_TRY(set_from_text(reader, fixed->option, fixed->value, fixed->option, NULL));
  for (int i = 0; i < COMMON; i++) HARK_TRY(read_row(reader, &common[i]));
  HARK_TRY(check_classes(reader));
  HARK_TRY(refuse_unknown(reader));
  for (int i = 0; i < reader->type->key_count; i++) HARK_TRY(read_row(reader, &reader->type->keys[i]));
  HARK_TRY(read_ends(reader, reader->type->usual_end));
  return reader->type->read != NULL ? reader->type->read(reader) : HARK_OK;
}

hark_status hark_foreign_keys_read(hark_context *context, const char *path, const char *text, size_t bytes, const hark_foreign_type **type,
                                   hark_network_config *out) {
  hark_json_tree tree;
  *out = (hark_network_config){0};
  *type = NULL;
  HARK_TRY(hark_json_tree_parse(context, path, text, bytes, &tree));
  hark_foreign_reader reader = {.context = context, .path = path, .root = tree.root, .config = out};
  const hark_status status = read_all(&reader);
  *type = reader.type;
  hark_json_tree_free(context, &tree);
  return status;
}

/* ---- writing ---- */

void hark_foreign_put_key(const hark_foreign_writer *writer, const char *key) {
  const char last = writer->text->length > 0 ? writer->text->data[writer->text->length - 1] : '{';
  hark_text_append(writer->text, "%s", last == '{' ? "" : ", ");
  hark_json_append_string(writer->text, key);
  hark_text_append(writer->text, ": ");
}

void hark_foreign_put_whole(const hark_foreign_writer *writer, const char *key, int64_t value) {
  hark_foreign_put_key(writer, key);
  hark_text_append(writer->text, "%" PRId64, value);
}

/* Python reads a number without a point as a whole one. */
void hark_foreign_put_number(const hark_foreign_writer *writer, const char *key, double value) {
  char number[HARK_NUMBER_BYTES];
  hark_foreign_put_key(writer, key);
  (void)hark_number_print(value, number);
  hark_text_append(writer->text, "%s%s", number, strpbrk(number, ".e") == NULL ? ".0" : "");
}

void hark_foreign_put_truth(const hark_foreign_writer *writer, const char *key, bool value) {
  hark_foreign_put_key(writer, key);
  hark_text_append(writer->text, value ? "true" : "false");
}

void hark_foreign_put_text(const hark_foreign_writer *writer, const char *key, const char *value) {
  hark_foreign_put_key(writer, key);
  hark_json_append_string(writer->text, value);
}

/* An option with a word that they lack is left out. */
static void write_option(const hark_foreign_writer *writer, const hark_foreign_key *key) {
  const hark_model_option *const row = find_option(key->option);
  const void *const field = hark_model_option_value(row, writer->config);
  char ours[HARK_OPTION_WORD_BYTES], theirs[HARK_OPTION_WORD_BYTES];
  switch (row->option.type) {
    case HARK_OPTION_BOOL: hark_foreign_put_truth(writer, key->key, *(const bool *)field); break;
    case HARK_OPTION_INT: hark_foreign_put_whole(writer, key->key, *(const int64_t *)field); break;
    case HARK_OPTION_ENUM: {
      const char *const word =
          hark_option_choice_at(row->option.range, *(const int *)field, ours) ? translate(key->words, ours, false, theirs) : NULL;
      if (word != NULL) hark_foreign_put_text(writer, key->key, word);
      break;
    }
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: hark_foreign_put_number(writer, key->key, *(const double *)field); break;
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST:
    case HARK_OPTION_LAYERS: break;
  }
}

static void write_row(const hark_foreign_writer *writer, const hark_foreign_key *row) {
  if (row->use == HARK_FOREIGN_OPTION) write_option(writer, row);
  if (row->use != HARK_FOREIGN_FIXED) return;
  hark_foreign_put_key(writer, row->key);
  hark_text_append(writer->text, is_word(row->otherwise) ? "\"%s\"" : "%s", row->otherwise);
}

void hark_foreign_keys_write(const hark_foreign_type *type, const hark_network_config *config, const char *number_type, hark_text *out) {
  const hark_foreign_writer writer = {.text = out, .type = type, .config = config};
  char name[HARK_OPTION_WORD_BYTES];
  hark_text_append(out, "{");
  hark_foreign_put_text(&writer, "model_type", type->name);
  hark_foreign_put_key(&writer, "architectures");
  if (hark_option_choice_at(type->classes, 0, name)) hark_text_append(out, "[\"%s\"]", name);
  hark_foreign_put_text(&writer, "torch_dtype", number_type);
  /* Otherwise the published program has defaults, which are other tokens of this vocabulary. */
  hark_text_append(out, ", \"bos_token_id\": null");
  write_ends(&config->ends, out);
  for (int i = 0; i < type->key_count; i++) write_row(&writer, &type->keys[i]);
  if (type->write != NULL) type->write(&writer);
  hark_text_append(out, "}\n");
}
