/* embed_vocabulary.c - see embed_vocabulary.h. */
#include "cli/embed/embed_vocabulary.h"

#include <inttypes.h>
#include <string.h>

#include "data/line_reader.h"
#include "io/json_tree.h"
#include "io/json_write.h"

#define SETTINGS_FILE "tokenizer_config.json"
#define SETTINGS_BYTES ((size_t)4 << 20)

enum { PAD, UNKNOWN, CLASS, SEPARATOR, MASK, SPECIALS };
static const char *const specials[SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

/* "true", "false" or "null" of a member; `otherwise` where it is absent. */
static const char *truth_of(const hark_json_node *root, const char *key, const char *otherwise) {
  const hark_json_node *const value = hark_json_is(root, HARK_JSON_OBJECT) ? hark_json_member(root, key) : NULL;
  if (!hark_json_is(value, HARK_JSON_BOOLEAN)) return otherwise;
  return value->boolean ? "true" : "false";
}

static hark_status print_normalizer(hark_context *context, const char *folder, hark_text *out) {
  char path[HARK_PATH_BYTES];
  hark_json_tree tree = {0};
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, folder, SETTINGS_FILE, path));
  const bool there = hark_path_kind_of(path) == HARK_PATH_FILE;
  hark_status status = there ? hark_file_read_stored(context, path, SETTINGS_BYTES, &text) : HARK_OK;
  if (status == HARK_OK && there) status = hark_json_tree_parse(context, path, hark_text_get(&text), text.length, &tree);
  if (status == HARK_OK)
    hark_text_append(out,
                     "\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": %s, "
                     "\"strip_accents\": %s, \"lowercase\": %s}, ",
                     truth_of(tree.root, "tokenize_chinese_chars", "true"), truth_of(tree.root, "strip_accents", "null"),
                     truth_of(tree.root, "do_lower_case", "true"));
  hark_json_tree_free(context, &tree);
  hark_text_free(&text);
  return status;
}

static hark_status print_words(hark_context *context, hark_line_reader *lines, int64_t numbers[SPECIALS], hark_text *word, hark_text *out) {
  bool more = true;
  for (int64_t number = 0;; number++) {
    HARK_TRY(hark_lines_next(context, lines, &more));
    if (!more) return HARK_OK;
    HARK_TRY(hark_lines_check_utf8(context, lines, 0, lines->length));
    hark_text_resize(word, 0);
    hark_text_append_bytes(word, lines->line, lines->length);
    HARK_TRY(word->status);
    if (strlen(hark_text_get(word)) != lines->length) return hark_lines_fail(context, lines, 0, "a token with a zero byte");
    for (int i = 0; i < SPECIALS; i++)
      if (strcmp(hark_text_get(word), specials[i]) == 0) numbers[i] = number;
    hark_text_append(out, number == 0 ? "" : ", ");
    hark_json_append_string(out, hark_text_get(word));
    hark_text_append(out, ": %" PRId64, number);
    HARK_TRY(out->status);
  }
}

static hark_status print_model(hark_context *context, const char *path, int64_t numbers[SPECIALS], hark_text *out) {
  hark_line_reader lines = {0};
  hark_text word = hark_text_empty(context);
  hark_status status = hark_lines_open(context, &lines, path);
  hark_text_append(out,
                   "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
                   "\"max_input_chars_per_word\": 100, \"vocab\": {");
  if (status == HARK_OK) status = print_words(context, &lines, numbers, &word, out);
  hark_lines_close(&lines);
  hark_text_free(&word);
  hark_text_append(out, "}}, ");
  return status;
}

static void print_specials(const int64_t numbers[SPECIALS], hark_text *out) {
  hark_text_append(out, "\"added_tokens\": [");
  for (int i = 0, printed = 0; i < SPECIALS; i++)
    if (numbers[i] >= 0)
      hark_text_append(out, "%s{\"id\": %" PRId64 ", \"content\": \"%s\", \"special\": true}", printed++ > 0 ? ", " : "", numbers[i],
                       specials[i]);
  hark_text_append(out,
                   "], \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"post_processor\": {\"type\": \"BertProcessing\", "
                   "\"sep\": [\"[SEP]\", %" PRId64 "], \"cls\": [\"[CLS]\", %" PRId64 "]}}",
                   numbers[SEPARATOR], numbers[CLASS]);
}

hark_status hark_embed_vocabulary_print(hark_context *context, const char *folder, hark_text *out) {
  char path[HARK_PATH_BYTES];
  int64_t numbers[SPECIALS] = {-1, -1, -1, -1, -1};
  HARK_TRY(hark_path_join(context, folder, HARK_EMBED_VOCABULARY_FILE, path));
  hark_text_append(out, "{");
  HARK_TRY(print_normalizer(context, folder, out));
  HARK_TRY(print_model(context, path, numbers, out));
  for (int i = UNKNOWN; i <= SEPARATOR; i++)
    if (numbers[i] < 0) return hark_fail(context, HARK_BAD_FILE, "%.300s: has no token %s", path, specials[i]);
  print_specials(numbers, out);
  return out->status;
}
