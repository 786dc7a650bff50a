/* fuzz_pipeline.c - any bytes as a tokenizer.json or a SentencePiece .model.
 *
 * What is refused has a message of one line. What is accepted gives tokens of the vocabulary, the same ones again and with a new cache, and
 * text of valid UTF-8 for any tokens. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "tokenizers/pipeline/pipeline.h"
#include "tokenizers/utf8.h"

#define FILE_BYTES_FACTOR 2048 /* of a pipeline in memory for each byte of its file at most: a character may have a page of a table */
#define WORK_BYTES ((size_t)64 << 20) /* of a caller: the cache, and texts that components made longer */
#define TOKENS 64

static const char *const lines[] = {"", " ", "the dog's  12345 caf\xC3\xA9, <s> a\tb",
                                    "\342\226\201ab\xE6\x97\xA5\xF0\x9F\x98\x80 ababababab[MASK]"};

static void check_text(const hark_text *text) {
  uint32_t code;
  for (size_t at = 0, length; at < text->length; at += length)
    FUZZ_CHECK(hark_utf8_decode((const unsigned char *)text->data + at, text->length - at, &code, &length) == HARK_UTF8_OK,
               "decoded text is not UTF-8 at byte %zu", at);
}

static void decode(hark_pipeline_work *work, const int32_t *ids, size_t count, hark_text *out) {
  const hark_status status = hark_pipeline_decode(work, ids, count, true, out);
  FUZZ_CHECK(status == HARK_OK || status == HARK_UNSUPPORTED, "%s", hark_status_name(status));
  check_text(out);
  hark_text_free(out);
}

static void check_line(hark_context *context, const hark_pipeline *pipeline, hark_pipeline_work *work, const char *line, size_t bytes) {
  const int32_t *ids = NULL;
  size_t count = 0, at = 0;
  hark_text out = hark_text_empty(context);
  const hark_status status = hark_pipeline_encode(work, line, bytes, true, &ids, &count, &at);
  FUZZ_CHECK(status == HARK_OK || status == HARK_UNSUPPORTED || status == HARK_BAD_FILE, "%s", hark_status_name(status));
  if (status != HARK_OK) {
    fuzz_check_line(hark_context_message(context));
    return;
  }
  int32_t *const first = malloc((count + 1) * sizeof *first);
  const size_t kept = count;
  if (count > 0) memcpy(first, ids, count * sizeof *first);
  FUZZ_CHECK(hark_pipeline_encode(work, line, bytes, true, &ids, &count, &at) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(count == kept && (count == 0 || memcmp(first, ids, count * sizeof *first) == 0), "other tokens the second time");
  for (size_t i = 0; i < kept; i++) FUZZ_CHECK(first[i] >= 0, "token %d of %d", (int)first[i], (int)hark_pipeline_size(pipeline));
  decode(work, first, kept, &out);
  free(first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  hark_pipeline *pipeline = NULL;
  hark_pipeline_work *work = NULL;
  const char *const bytes = size > 0 ? (const char *)data : "";
  const hark_status status = hark_pipeline_read(context, "input", bytes, size, &pipeline);
  fuzz_limit(FILE_BYTES_FACTOR * size + WORK_BYTES);
  fuzz_check_refusal(context, status == HARK_UNSUPPORTED || status == HARK_TOO_LARGE ? HARK_BAD_FILE : status, HARK_BAD_FILE, "input");
  if (status == HARK_OK) {
    FUZZ_CHECK(hark_pipeline_work_create(context, pipeline, &work) == HARK_OK, "%s", hark_context_message(context));
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) check_line(context, pipeline, work, lines[i], strlen(lines[i]));
    check_line(context, pipeline, work, bytes, size < 256 ? size : 256);
    int32_t ids[TOKENS];
    hark_text out = hark_text_empty(context);
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 8 == 7 ? hark_pipeline_size(pipeline) - i : i;
    decode(work, ids, TOKENS, &out);
    hark_pipeline_work_destroy(&work);
    hark_pipeline_destroy(context, &pipeline);
  }
  fuzz_end();
  return 0;
}
