/* example_vocabulary.c - see example_vocabulary.h. */
#include "tokenizers/example_vocabulary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/json_tree.h"
#include "io/text.h"
#include "io/words.h"
#include "tokenizers/tokenizer_kind.h"

#define FORMAT_VERSION 1

typedef struct word {
  const char *text;
  int32_t token;
} word;

struct hark_example_vocabulary {
  hark_text text;
  hark_json_tree tree;
  const char **classes; /* [class_count], in the tree */
  int64_t class_count, size;
  word *words; /* [word_count], in the order of their texts; none where symbols are bytes or numbers */
  int64_t word_count;
  const char **names; /* of the words, in the order of their tokens */
  bool of_bytes;
  bool has_parentheses;     /* of ListOps: in texts, but not symbols (format_listops.c) */
  unsigned char bytes[256]; /* every byte, as the text of its token */
};

hark_status hark_example_vocabulary_is(hark_context *context, const char *text, size_t bytes, bool *is) {
  hark_json_fault fault;
  hark_json_tree tree;
  *is = false;
  const hark_status status = hark_json_tree_read(context, text, bytes, &fault, &tree);
  if (status == HARK_BAD_FILE) return HARK_OK;
  HARK_TRY(status);
  *is = hark_json_member(tree.root, "format") != NULL;
  hark_json_tree_free(context, &tree);
  return HARK_OK;
}

static hark_status refuse(hark_context *context, const char *member, const char *expected) {
  return hark_fail(context, HARK_BAD_FILE, "\"%s\" is not what examples have, expected %s", member, expected);
}

/* Checks a member that must be a list of texts without zero bytes. */
static hark_status expect_texts(hark_context *context, const hark_json_node *list, const char *name) {
  if (!hark_json_is(list, HARK_JSON_LIST)) return refuse(context, name, "a list of texts");
  for (const hark_json_node *item = list->first; item != NULL; item = item->next)
    if (hark_json_text(item) == NULL) return refuse(context, name, "a list of texts");
  return HARK_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(((const word *)a)->text, ((const word *)b)->text); }

static hark_status take_words(hark_context *context, const hark_json_node *symbols, hark_example_vocabulary *v) {
  void *memory = NULL;
  HARK_TRY(expect_texts(context, symbols, "symbols"));
  HARK_TRY(hark_allocate(context, (size_t)symbols->count * sizeof *v->words, &memory));
  v->words = memory;
  HARK_TRY(hark_allocate(context, (size_t)symbols->count * sizeof *v->names, &memory));
  v->names = memory;
  for (const hark_json_node *item = symbols->first; item != NULL; item = item->next, v->word_count++) {
    v->words[v->word_count] = (word){hark_json_text(item), (int32_t)(HARK_TOKEN_RESERVED + v->word_count)};
    v->names[v->word_count] = hark_json_text(item);
  }
  if (v->word_count > 1) qsort(v->words, (size_t)v->word_count, sizeof *v->words, by_text);
  for (int64_t i = 1; i < v->word_count; i++)
    if (strcmp(v->words[i - 1].text, v->words[i].text) == 0) return refuse(context, "symbols", "every word once");
  return HARK_OK;
}

static hark_status take_members(hark_context *context, hark_example_vocabulary *v) {
  const hark_json_node *const root = v->tree.root, *const version = hark_json_member(root, "format_version"),
                              *const classes = hark_json_member(root, "classes"), *const symbols = hark_json_member(root, "symbols"),
                              *const size = hark_json_member(root, "size");
  void *memory = NULL;
  if (!hark_json_is(version, HARK_JSON_INTEGER) || version->integer != FORMAT_VERSION) return refuse(context, "format_version", "1");
  if (!hark_json_is(size, HARK_JSON_INTEGER) || size->integer <= HARK_TOKEN_RESERVED || size->integer > INT32_MAX)
    return refuse(context, "size", "the number of tokens");
  v->size = size->integer;
  HARK_TRY(expect_texts(context, classes, "classes"));
  HARK_TRY(hark_allocate(context, (size_t)classes->count * sizeof *v->classes, &memory));
  v->classes = memory;
  for (const hark_json_node *item = classes->first; item != NULL; item = item->next) v->classes[v->class_count++] = hark_json_text(item);
  const char *format = hark_json_text(hark_json_member(root, "format"));
  v->has_parentheses = format != NULL && strcmp(format, "listops") == 0;
  for (int i = 0; i < 256; i++) v->bytes[i] = (unsigned char)i;
  if (!hark_json_is(symbols, HARK_JSON_TEXT)) {
    HARK_TRY(take_words(context, symbols, v));
    return v->size == HARK_TOKEN_RESERVED + v->word_count ? HARK_OK : refuse(context, "size", "the number of tokens");
  }
  v->of_bytes = hark_json_text(symbols) != NULL && strcmp(hark_json_text(symbols), "bytes") == 0;
  if (v->of_bytes && v->size != HARK_TOKEN_RESERVED + 256) return refuse(context, "size", "256 bytes and the reserved tokens");
  return HARK_OK;
}

hark_status hark_example_vocabulary_parse(hark_context *context, const char *text, size_t bytes, hark_example_vocabulary **out) {
  void *memory = NULL;
  *out = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_example_vocabulary), &memory));
  hark_example_vocabulary *v = memory;
  v->text = hark_text_empty(context);
  hark_text_append_bytes(&v->text, text, bytes);
  hark_status status = v->text.status;
  if (status == HARK_OK) status = hark_json_tree_parse(context, NULL, text, bytes, &v->tree);
  if (status == HARK_OK) status = take_members(context, v);
  if (status != HARK_OK) {
    hark_example_vocabulary_destroy(context, &v);
    return status;
  }
  *out = v;
  return HARK_OK;
}

void hark_example_vocabulary_destroy(hark_context *context, hark_example_vocabulary **vocabulary) {
  if (vocabulary == NULL || *vocabulary == NULL) return;
  hark_example_vocabulary *v = *vocabulary;
  *vocabulary = NULL;
  const hark_json_node *const classes = hark_json_member(v->tree.root, "classes"), *const symbols =
                                                                                       hark_json_member(v->tree.root, "symbols");
  if (v->classes != NULL) hark_release(context, v->classes, (size_t)classes->count * sizeof *v->classes);
  if (v->words != NULL) hark_release(context, v->words, (size_t)symbols->count * sizeof *v->words);
  if (v->names != NULL) hark_release(context, v->names, (size_t)symbols->count * sizeof *v->names);
  hark_json_tree_free(context, &v->tree);
  hark_text_free(&v->text);
  hark_release(context, v, sizeof *v);
}

const char *hark_example_vocabulary_text(const hark_example_vocabulary *v, size_t *bytes) {
  *bytes = v->text.length;
  return hark_text_get(&v->text);
}

int64_t hark_example_vocabulary_size(const hark_example_vocabulary *v) { return v->size; }

int64_t hark_example_vocabulary_class_count(const hark_example_vocabulary *v) { return v->class_count; }

const char *hark_example_vocabulary_class(const hark_example_vocabulary *v, int64_t index) {
  return index >= 0 && index < v->class_count ? v->classes[index] : NULL;
}

const char *hark_example_vocabulary_token(const hark_example_vocabulary *v, int64_t token, size_t *bytes) {
  const char *text = "";
  if (v->of_bytes && token >= HARK_TOKEN_RESERVED && token < v->size) {
    *bytes = 1;
    return (const char *)&v->bytes[token - HARK_TOKEN_RESERVED];
  }
  if (token >= HARK_TOKEN_RESERVED && token < HARK_TOKEN_RESERVED + v->word_count) text = v->names[token - HARK_TOKEN_RESERVED];
  *bytes = strlen(text);
  return text;
}

/* The token of a word of a text, or -1. */
static int32_t find(const hark_example_vocabulary *v, const char *text, size_t length) {
  int64_t low = 0, high = v->word_count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const size_t own = strlen(v->words[middle].text), common = own < length ? own : length;
    const int order = memcmp(v->words[middle].text, text, common);
    if (order == 0 && own == length) return v->words[middle].token;
    if (order < 0 || (order == 0 && own < length)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return -1;
}

#define SHOWN_WORD_BYTES 48

static hark_status unknown_word(hark_text_fault *fault, size_t at, const char *text, size_t length) {
  char given[SHOWN_WORD_BYTES], shown[HARK_SHOWN_BYTES];
  (void)snprintf(given, sizeof given, "%.*s", (int)hark_min((int64_t)length, SHOWN_WORD_BYTES - 1), text);
  const hark_status status = hark_text_fault_set(fault, at, "\"%.72s\" is none of the model's words", hark_text_shown(given, shown));
  (void)snprintf(fault->more, sizeof fault->more, "; --unknown map maps such words to the unknown token");
  return status;
}

hark_status hark_example_vocabulary_encode(hark_context *context, const hark_example_vocabulary *v, bool map_unknown, const char *text,
                                           size_t bytes, int32_t *tokens, size_t *count) {
  hark_text_fault fault = {0};
  const hark_status status = hark_example_vocabulary_encode_line(context, v, map_unknown, text, bytes, tokens, count, &fault);
  if (status != HARK_BAD_FILE) return status;
  return hark_fail(context, HARK_BAD_FILE, "text: byte %zu: %s%s", fault.at, fault.what, fault.more);
}

hark_status hark_example_vocabulary_encode_line(hark_context *context, const hark_example_vocabulary *v, bool map_unknown, const char *text,
                                                size_t bytes, int32_t *tokens, size_t *count, hark_text_fault *fault) {
  *count = 0;
  if (!v->of_bytes && v->words == NULL)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "the model was trained on examples whose symbols are not text: it has only numbers of tokens");
  if (v->of_bytes) {
    for (; *count < bytes; (*count)++) tokens[*count] = HARK_TOKEN_RESERVED + (unsigned char)text[*count];
    return HARK_OK;
  }
  for (size_t at = 0; at < bytes; at++) {
    size_t end = at;
    while (end < bytes && text[end] != ' ') end++;
    const bool is_parenthesis = end == at + 1 && (text[at] == '(' || text[at] == ')');
    if (end == at || (is_parenthesis && v->has_parentheses)) continue;
    const int32_t token = find(v, text + at, end - at);
    if (token < 0 && !map_unknown) return unknown_word(fault, at, text + at, end - at);
    tokens[(*count)++] = token >= 0 ? token : HARK_TOKEN_UNKNOWN;
    at = end;
  }
  return HARK_OK;
}
