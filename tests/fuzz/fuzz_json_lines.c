/* fuzz_json_lines.c - any bytes as a file of JSON lines: as a text, whose lines are those of its members, and as labelled examples. What is
 * accepted as examples is accepted as a text. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/examples/examples.h"
#include "data/json_lines.h"
#include "data/unpack/unpack.h"
#include "fuzz/fuzz.h"

#define BYTES_A_BYTE 160
#define BASE_BYTES ((size_t)4 << 20)

/* A name that says what the bytes are. */
static const char *lines_file(const uint8_t *data, size_t size) {
  const char *const path = fuzz_path(0, "a.jsonl"), *const file = fuzz_file(data, size);
  FUZZ_CHECK(unlink(path) == 0 || access(path, F_OK) != 0, "the link cannot be removed");
  FUZZ_CHECK(symlink(file, path) == 0, "no link");
  return path;
}

static bool is_text(hark_context *context, const char *path) {
  hark_spool spool = {0};
  const hark_status status = hark_json_lines_text(context, path, HARK_JSON_LINES_TEXT, &spool);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
  char end = '\n';
  if (status == HARK_OK && spool.bytes > 0)
    FUZZ_CHECK(pread(spool.descriptor, &end, 1, (off_t)spool.bytes - 1) == 1 && end == '\n', "no line end at the end");
  hark_spool_close(&spool);
  return status == HARK_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (hark_packing_of(data, size) != NULL) return 0; /* fuzz_unpack.c */
  hark_context *const context = fuzz_begin();
  const char *const path = lines_file(data, size);
  const bool text = is_text(context, path);
  hark_examples *examples = NULL;
  const hark_examples_settings settings = {.format = "text", .paths = &path, .path_count = 1};
  const hark_status status = hark_examples_open(context, &settings, &examples);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
  if (status == HARK_OK) {
    const int64_t count = hark_examples_count(examples, HARK_SPLIT_TRAINING).examples;
    FUZZ_CHECK(text, "examples, and no text");
    for (int64_t i = 0; i < count; i++) {
      const int32_t label = hark_examples_label(examples, HARK_SPLIT_TRAINING, i);
      FUZZ_CHECK(label == 0 || label == 1, "label %d", label);
      FUZZ_CHECK(hark_examples_length(examples, HARK_SPLIT_TRAINING, i, 0) >= 1, "an empty example");
    }
  }
  hark_examples_close(context, &examples);
  (void)unlink(path);
  fuzz_limit(BYTES_A_BYTE * size + BASE_BYTES);
  fuzz_end();
  return 0;
}
