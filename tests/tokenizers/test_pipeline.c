/* test_pipeline.c - tokenizers of others: tokens and texts as the tokenizers library and SentencePiece give them, long words, caches, what
 * is refused and with which words, and damaged files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "tokenizers/pipeline/pipeline.h"
#include "tokenizers/pipeline/regex.h"
#include "tokenizers/pipeline/unicode.h"
#include "tokenizers/published_pipelines.h"

static bool has_libraries(void) { return hark_regex_available && hark_unicode_available; }

/* Parts of a file as one; the caller frees it. */
static char *join(const published_pipeline *published) {
  char *const file = malloc(published->bytes + 1);
  size_t at = 0;
  for (const published_part *part = published->file; part->text != NULL; at += part++->bytes) memcpy(file + at, part->text, part->bytes);
  assert_int_equal(at, published->bytes);
  return file;
}

static hark_pipeline *open_published(hark_context *context, const published_pipeline *published) {
  hark_pipeline *pipeline = NULL;
  char *const file = join(published);
  assert_fine(context, hark_pipeline_read(context, published->name, file, published->bytes, &pipeline));
  free(file);
  return pipeline;
}

static void check_line(hark_context *context, hark_pipeline_work *work, const char *name, int index, const published_line *line) {
  const int32_t *ids = NULL;
  size_t count = 0, at = 0;
  hark_text text = hark_text_empty(context);
  assert_fine(context, hark_pipeline_encode(work, line->text, line->bytes, true, &ids, &count, &at));
  const bool same = count == line->count && (count == 0 || memcmp(ids, line->ids, count * sizeof *ids) == 0);
  if (!same) {
    for (size_t i = 0; i < count; i++) print_error("%s%d", i > 0 ? ", " : "got ", (int)ids[i]);
    fail_msg("%s, line %d: other tokens", name, index);
  }
  assert_fine(context, hark_pipeline_decode(work, line->ids, line->count, false, &text));
  if (text.length != line->decoded_bytes || memcmp(hark_text_get(&text), line->decoded, text.length) != 0)
    fail_msg("%s, line %d decodes to \"%s\"", name, index, hark_text_get(&text));
  hark_text_free(&text);
}

/* Twice: the second time words come from the cache. */
static void tokens_are_those_of_other_programs(void **state) {
  (void)state;
  if (!has_libraries()) skip();
  for (size_t i = 0; i < sizeof published_pipelines / sizeof published_pipelines[0]; i++) {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_pipeline *pipeline = open_published(context, &published_pipelines[i]);
    hark_pipeline_work *work = NULL;
    assert_fine(context, hark_pipeline_work_create(context, pipeline, &work));
    for (int line = 0; line < 2 * PUBLISHED_LINES; line++)
      check_line(context, work, published_pipelines[i].name, line % PUBLISHED_LINES, &published_pipelines[i].lines[line % PUBLISHED_LINES]);
    hark_pipeline_work_destroy(&work);
    hark_pipeline_destroy(context, &pipeline);
    test_memory_context_end(context, &memory);
  }
}

/* ---- long words: the heap against the definition ---- */

static const char merging[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"ba\": 3, \"abab\": 4, \"aa\": 5, \"aba\": 6, \"abb\": 7},"
    " \"merges\": [\"a b\", [\"a\", \"a\"], \"ab ab\", \"b a\", \"ab a\", \"ab b\"]}}";

/* The definition: of all pairs that are a merge the one of lowest rank, of those the leftmost, again and again. */
static size_t merge_by_definition(int32_t *symbol, size_t count) {
  static const int32_t merges[][3] = {{0, 1, 2}, {0, 0, 5}, {2, 2, 4}, {1, 0, 3}, {2, 0, 6}, {2, 1, 7}};
  for (size_t rank = 0; rank < sizeof merges / sizeof merges[0];) {
    size_t i = 0;
    while (i + 1 < count && !(symbol[i] == merges[rank][0] && symbol[i + 1] == merges[rank][1])) i++;
    if (i + 1 >= count) {
      rank++;
      continue;
    }
    symbol[i] = merges[rank][2];
    memmove(symbol + i + 1, symbol + i + 2, (count - i - 2) * sizeof *symbol);
    count--;
    rank = 0; /* a merge may make a pair of lower rank */
  }
  return count;
}

static void words_of_every_length_are_merged_by_rank(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_pipeline *pipeline = NULL;
  hark_pipeline_work *work = NULL;
  uint32_t random = 1;
  assert_fine(context, hark_pipeline_read(context, "merging", merging, sizeof merging - 1, &pipeline));
  assert_fine(context, hark_pipeline_work_create(context, pipeline, &work));
  for (size_t length = 1; length < 300; length++) {
    char text[300];
    int32_t expected[300];
    const int32_t *ids;
    size_t count, at;
    for (size_t i = 0; i < length; i++) {
      random = random * 1664525U + 1013904223U;
      expected[i] = (int32_t)(random >> 31);
      text[i] = (char)('a' + expected[i]);
    }
    assert_fine(context, hark_pipeline_encode(work, text, length, true, &ids, &count, &at));
    assert_int_equal(count, merge_by_definition(expected, length));
    assert_memory_equal(ids, expected, count * sizeof *ids);
  }
  hark_pipeline_work_destroy(&work);
  hark_pipeline_destroy(context, &pipeline);
  hark_context_destroy(&context);
}

/* ---- refusals ---- */

#define MODEL "\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}"

static const struct {
  const char *file, *message;
  hark_status status;
} refused[] = {
    {"", "t: line 1, column 1: the text ends too early", HARK_BAD_FILE},
    {"{\"model\": {", "t: line 1, column 12: the text ends too early", HARK_BAD_FILE},
    {"[]", "t: not a tokenizer.json: it has no \"model\"", HARK_BAD_FILE},
    {"\n\x0E\n\x05<unk>",
     "t: read as a tokenizer.json, because it does not begin like a .model of SentencePiece: line 2, column 1: expected a value",
     HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"Maybe\"}}", "t: model.type 'Maybe' is not supported", HARK_UNSUPPORTED},
    {"{\"model\": {}}", "t: model.type: expected a text", HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"BPE\"}}", "t: model.vocab: expected an object", HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
     "t: model.merges: merge 0: 'b' is not in the vocabulary", HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]}}", "t: model.merges: merge 0: expected two tokens",
     HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {\"a\": 0}, \"merges\": []}}",
     "t: model.dropout other than null is not supported", HARK_UNSUPPORTED},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}",
     "t: model.vocab: 'a': expected a number from 0 to 16777215", HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 9999999}, \"merges\": []}}", "t: model.vocab: number 9999999 of 1 tokens",
     HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}", "t: model.vocab: entry 0: expected a text and a number", HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", 0]]}}", "t: model.unk_id: expected a whole number from 0 to 0",
     HARK_BAD_FILE},
    {"{" MODEL ", \"mode\": 1}", "t: 'mode' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"mode\": false}", "t: 'mode' is not supported", HARK_UNSUPPORTED},
    {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 0}, \"unk_token\": \"a\"}}",
     "t: model.vocab: 'a' and 'c' have the number 0, expected one number for each token", HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\": 0, \"b\": 0}, \"merges\": []}}",
     "t: model.vocab: '' and 'b' have the number 0, expected one number for each token", HARK_BAD_FILE},
    {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"dropout\": 0.1}}", "t: model: 'dropout' is not supported",
     HARK_UNSUPPORTED},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"later\": true}}", "t: model: 'later' is not supported",
     HARK_UNSUPPORTED},
    {"{" MODEL ", \"normalizer\": {\"type\": \"Strip\", \"strip_middle\": true}}", "t: normalizer: 'strip_middle' is not supported",
     HARK_UNSUPPORTED},
    {"{" MODEL ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [], \"twice\": true}}",
     "t: normalizer: 'twice' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\", \"at\": \"x\"}]}}",
     "t: pre_tokenizer.pretokenizers[0]: 'at' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Removed\", \"pattern\": {\"String\": \"a\", \"Regex\": \"b\"}}}",
     "t: pre_tokenizer.pattern: expected one pattern", HARK_BAD_FILE},
    {"{" MODEL ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"times\": 2}}]}}",
     "t: post_processor: 'times' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"decoder\": {\"type\": \"Fuse\", \"by\": \"x\"}}", "t: decoder: 'by' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"added_tokens\": [{\"id\": 1, \"content\": \"x\", \"bold\": true}]}", "t: added_tokens[0]: 'bold' is not supported",
     HARK_UNSUPPORTED},
    {"{" MODEL ", \"pre_tokenizer\": {\"type\": \"X\"}}", "t: pre_tokenizer.type 'X' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL
     ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, {\"type\": \"UnicodeScripts\"}]}}",
     "t: pre_tokenizer.pretokenizers[1].type 'UnicodeScripts' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Sometimes\", \"pattern\": {\"String\": \"a\"}}}",
     "t: pre_tokenizer.behavior 'Sometimes' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Removed\", \"pattern\": 1}}",
     "t: pre_tokenizer.pattern: expected {\"String\": ...} or {\"Regex\": ...}", HARK_BAD_FILE},
    {"{" MODEL ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}}",
     "t: pre_tokenizer.replacement: expected one character", HARK_BAD_FILE},
    {"{" MODEL ", \"normalizer\": {\"type\": \"Prepend\"}}", "t: normalizer.prepend: missing", HARK_BAD_FILE},
    {"{" MODEL ", \"normalizer\": {\"type\": \"Strip\", \"strip_left\": 1}}", "t: normalizer.strip_left: expected true or false",
     HARK_BAD_FILE},
    {"{" MODEL ", \"normalizer\": []}", "t: normalizer: expected an object", HARK_BAD_FILE},
    {"{" MODEL ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}}",
     "t: post_processor.single with the sequence A 0 times is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"a\", 0]}}",
     "t: post_processor.sep: expected a text and a number", HARK_BAD_FILE},
    {"{" MODEL ", \"decoder\": {\"type\": \"X\"}}", "t: decoder.type 'X' is not supported", HARK_UNSUPPORTED},
    {"{" MODEL ", \"added_tokens\": [{\"id\": 1, \"content\": \"x\"}, {\"content\": \"y\"}]}", "t: added_tokens[1].id: missing",
     HARK_BAD_FILE},
};

/* Objects as they are in the files of BERT, T5 and LLaMA, members without effect on tokens and members that are null among them. */
static const char *const accepted[] = {
    "{" MODEL
    ", \"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"later\": null, \"added_tokens\": [{\"id\": 0, \"content\": \"a\", "
    "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}]}",
    "{\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, "
    "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": true, \"vocab\": {\"a\": 0}, "
    "\"merges\": [], \"later\": null}}",
    "{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"a\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, "
    "\"vocab\": {\"a\": 0}}, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}}",
    "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\", 0]], \"byte_fallback\": false}, \"pre_tokenizer\": {\"type\": "
    "\"Metaspace\", \"replacement\": \"\u2581\", \"str_rep\": \"\u2581\", \"add_prefix_space\": true}}",
    "{" MODEL
    ", \"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
    "\"trim_offsets\": false, \"use_regex\": true}, {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"a\", "
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"a\": {\"id\": \"a\", "
    "\"ids\": "
    "[0], \"tokens\": [\"a\"]}}}]}}",
    "{" MODEL
    ", \"post_processor\": {\"type\": \"RobertaProcessing\", \"sep\": [\"a\", 0], \"cls\": [\"a\", 0], \"trim_offsets\": true, "
    "\"add_prefix_space\": true}}",
};

/* Of parts that need a library: with it, and without it. */
static const struct {
  const char *file, *with, *without;
  bool pcre2;
} depending[] = {
    {"{" MODEL ", \"normalizer\": {\"type\": \"NFC\"}}", NULL,
     "t: normalizer.type 'NFC' needs utf8proc, and this hark was built without it (HARK_WITH_UTF8PROC)", false},
    {"{" MODEL ", \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}", NULL,
     "t: pre_tokenizer.type 'ByteLevel' with use_regex needs PCRE2, and this hark was built without it (HARK_WITH_PCRE2)", true},
    {"{" MODEL ", \"normalizer\": {\"type\": \"Replace\", \"content\": \"\", \"pattern\": {\"Regex\": \"(\"}}}",
     "t: normalizer.pattern: the regular expression is not valid: missing closing parenthesis",
     "t: normalizer.pattern is a regular expression, which needs PCRE2, and this hark was built without it (HARK_WITH_PCRE2)", true},
    {"{" MODEL ", \"normalizer\": {\"type\": \"Replace\", \"content\": \"\", \"pattern\": {\"Regex\": \"[a&&b]\"}}}",
     "t: normalizer.pattern: && within brackets in a regular expression is not supported",
     "t: normalizer.pattern is a regular expression, which needs PCRE2, and this hark was built without it (HARK_WITH_PCRE2)", true},
    {"{" MODEL ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA*\"}}",
     "t: normalizer.precompiled_charsmap: character 4 is not one of base64",
     "t: normalizer.type 'Precompiled' needs utf8proc, and this hark was built without it (HARK_WITH_UTF8PROC)", false},
};

static void check_refusal(hark_context *context, const char *file, const char *message) {
  hark_pipeline *pipeline = NULL;
  const hark_status status = hark_pipeline_read(context, "t", file, strlen(file), &pipeline);
  if (message == NULL) {
    assert_fine(context, status);
    hark_pipeline_destroy(context, &pipeline);
    return;
  }
  assert_null(pipeline);
  assert_true(status == HARK_BAD_FILE || status == HARK_UNSUPPORTED);
  assert_string_equal(hark_context_message(context), message);
}

static void what_is_not_supported_is_named(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    hark_pipeline *pipeline = NULL;
    assert_int_equal(hark_pipeline_read(context, "t", refused[i].file, strlen(refused[i].file), &pipeline), refused[i].status);
    check_refusal(context, refused[i].file, refused[i].message);
  }
  for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) check_refusal(context, accepted[i], NULL);
  for (size_t i = 0; i < sizeof depending / sizeof depending[0]; i++) {
    const bool there = depending[i].pcre2 ? hark_regex_available : hark_unicode_available;
    check_refusal(context, depending[i].file, there ? depending[i].with : depending[i].without);
  }
  test_memory_context_end(context, &memory);
}

/* Every beginning of a file is refused with one line and nothing left, or, for SentencePiece's, may be a smaller model. */
static void cut_files_are_refused(void **state) {
  (void)state;
  if (!has_libraries()) skip();
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  for (size_t i = 0; i < sizeof published_pipelines / sizeof published_pipelines[0]; i += 6) {
    char *const file = join(&published_pipelines[i]);
    const size_t step = published_pipelines[i].bytes / 40 + 1;
    for (size_t bytes = 0; bytes < published_pipelines[i].bytes; bytes += step) {
      hark_pipeline *pipeline = NULL;
      const hark_status status = hark_pipeline_read(context, "t", file, bytes, &pipeline);
      if (file[0] == '{') assert_int_equal(status, HARK_BAD_FILE);
      if (status != HARK_OK) assert_true(strncmp(hark_context_message(context), "t: ", 3) == 0);
      hark_pipeline_destroy(context, &pipeline);
    }
    free(file);
  }
  test_memory_context_end(context, &memory);
}

/* Components that double a text, one after the other, end with a message instead of all memory. */
static void growth_is_limited(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_text file = hark_text_empty(context);
  hark_pipeline *pipeline = NULL;
  hark_pipeline_work *work = NULL;
  const int32_t *ids;
  size_t count, at;
  hark_text_append(&file, "{" MODEL ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
  for (int i = 0; i < 60; i++)
    hark_text_append(&file, "%s{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}", i > 0 ? "," : "");
  hark_text_append(&file, "]}}");
  assert_fine(context, hark_pipeline_read(context, "t", hark_text_get(&file), file.length, &pipeline));
  assert_fine(context, hark_pipeline_work_create(context, pipeline, &work));
  assert_int_equal(hark_pipeline_encode(work, "a", 1, true, &ids, &count, &at), HARK_UNSUPPORTED);
  assert_non_null(strstr(hark_context_message(context), "the tokenizer makes more than"));
  hark_pipeline_work_destroy(&work);
  hark_pipeline_destroy(context, &pipeline);
  hark_text_free(&file);
  hark_context_destroy(&context);
}

/* Scores are read as the tokenizers library reads them: with the doubles next to these numbers, "aa" would come first. */
static void equal_sums_are_decided_as_by_the_library(void **state) {
  (void)state;
  static const char file[] =
      "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"?\", 0.0], [\"p\", -3.25], "
      "[\"a\", -3.6823990090533596], [\"aa\", -6.204202872320587], "
      "[\"b\", -4.297071596334271], [\"bb\", -7.0148069374754484]]}}";
  static const struct {
    const char *text;
    int32_t ids[3]; /* by tokenizers 0.23.3 */
  } cases[] = {{"paaa", {1, 3, 2}}, {"pbbb", {1, 4, 5}}};
  hark_context *context = test_reference_open();
  hark_pipeline *pipeline = NULL;
  hark_pipeline_work *work = NULL;
  const int32_t *ids;
  size_t count, at;
  assert_fine(context, hark_pipeline_read(context, "t", file, strlen(file), &pipeline));
  assert_fine(context, hark_pipeline_work_create(context, pipeline, &work));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_fine(context, hark_pipeline_encode(work, cases[i].text, strlen(cases[i].text), true, &ids, &count, &at));
    assert_int_equal(count, 3);
    assert_memory_equal(ids, cases[i].ids, sizeof cases[i].ids);
  }
  hark_pipeline_work_destroy(&work);
  hark_pipeline_destroy(context, &pipeline);
  hark_context_destroy(&context);
}

/* A model without an unknown token, or with one that its vocabulary lacks. */
#define UNIGRAM "\"model\": {\"type\": \"Unigram\", \"unk_id\": null, \"vocab\": [[\"a\", -1], [\"b\", -1], [\"\u2581\", -1]]}"
#define WORDS "\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"?\"}"
#define PIECES "\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"unk_token\": \"?\"}"
#define MERGES(unknown) "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [], \"unk_token\": " unknown "}"
#define APART ", \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}}"
static const struct {
  const char *file, *text, *message;
  size_t at;
} lacking[] = {
    {"{" UNIGRAM "}", "abcab a", "the vocabulary lacks 'c', and the token for what it lacks (unk_id)", 2},
    {"{" UNIGRAM ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"always\"}}",
     "ab \xC3\xA4 b", "the vocabulary lacks '\xC3\xA4'", 3},
    {"{" UNIGRAM ", \"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"x\"}}", "ab", "the vocabulary lacks 'x'", 0},
    {"{" UNIGRAM ", \"added_tokens\": [{\"id\": 3, \"content\": \"<s>\", \"special\": true}]}", "a<s>bs", "the vocabulary lacks 's'", 5},
    {"{" WORDS APART, "a a abc a", "the vocabulary lacks 'abc', and the token for what it lacks (unk_token)", 4},
    {"{" PIECES APART, "a abc a", "the vocabulary lacks 'abc'", 2},
    {"{" MERGES("\"?\"") APART, "ab abcb cb", "the vocabulary lacks 'c', and the token for what it lacks (unk_token)", 5},
    {"{" MERGES("null") APART, "ab abcb cb", NULL, 0}, /* the characters are left out, as by other programs */
};

static void what_the_vocabulary_lacks_has_a_place(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const int32_t *ids;
  for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
    hark_pipeline *pipeline = NULL;
    hark_pipeline_work *work = NULL;
    size_t count, at = 99;
    assert_fine(context, hark_pipeline_read(context, "t", lacking[i].file, strlen(lacking[i].file), &pipeline));
    assert_fine(context, hark_pipeline_work_create(context, pipeline, &work));
    const hark_status status = hark_pipeline_encode(work, lacking[i].text, strlen(lacking[i].text), true, &ids, &count, &at);
    if (lacking[i].message == NULL)
      assert_fine(context, status);
    else if (status != HARK_BAD_FILE || at != lacking[i].at || strstr(hark_context_message(context), lacking[i].message) == NULL)
      fail_msg("case %zu: %d at %zu: %s", i, (int)status, at, hark_context_message(context));
    hark_pipeline_work_destroy(&work);
    hark_pipeline_destroy(context, &pipeline);
  }
  hark_context_destroy(&context);
}

static void invalid_text_is_refused_with_its_byte(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_pipeline *pipeline = NULL;
  hark_pipeline_work *work = NULL;
  const int32_t *ids;
  size_t count, at = 0;
  assert_fine(context, hark_pipeline_read(context, "merging", merging, sizeof merging - 1, &pipeline));
  assert_fine(context, hark_pipeline_work_create(context, pipeline, &work));
  assert_int_equal(hark_pipeline_encode(work, "ab\xC3", 3, true, &ids, &count, &at), HARK_BAD_FILE);
  assert_int_equal(at, 2);
  assert_string_equal(hark_context_message(context), "invalid UTF-8: text ends inside a character");
  hark_pipeline_work_destroy(&work);
  hark_pipeline_destroy(context, &pipeline);
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_are_those_of_other_programs),
      cmocka_unit_test(words_of_every_length_are_merged_by_rank),
      cmocka_unit_test(what_is_not_supported_is_named),
      cmocka_unit_test(cut_files_are_refused),
      cmocka_unit_test(growth_is_limited),
      cmocka_unit_test(equal_sums_are_decided_as_by_the_library),
      cmocka_unit_test(what_the_vocabulary_lacks_has_a_place),
      cmocka_unit_test(invalid_text_is_refused_with_its_byte),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
