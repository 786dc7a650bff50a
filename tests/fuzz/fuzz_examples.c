/* fuzz_examples.c - any bytes as a file of labelled examples, in every format.
 *
 * What is accepted has lengths, tokens, labels and targets within what it says of itself; it is read again as the same, and cut to its
 * front; what validates is taken off, and nothing else changes. */
#include <string.h>

#include "data/examples/examples.h"
#include "data/unpack/unpack.h"
#include "fuzz/fuzz.h"

#define BYTES_A_BYTE 160 /* an example of four bytes is an entry of 40, held twice while its array grows; words have places and slots */
#define BASE_BYTES ((size_t)4 << 20) /* parts of files */
#define LIMIT 3

typedef struct seen {
  int64_t examples, tokens, targets, longest;
} seen;

static hark_status open_as(hark_context *context, const char *format, const char *path, int64_t limit, double fraction,
                           hark_examples **out) {
  const hark_examples_settings settings = {
      .format = format, .paths = &path, .path_count = 1, .length_limit = limit, .validation_fraction = fraction};
  return hark_examples_open(context, &settings, out);
}

static void check_sequence(hark_context *context, const hark_examples *e, hark_split split, int64_t i, int part, seen *s) {
  const int64_t length = hark_examples_length(e, split, i, part);
  const int32_t size = hark_examples_vocabulary_size(e);
  FUZZ_CHECK(length >= 1, "example %lld is empty", (long long)i);
  int32_t *const tokens = malloc((size_t)length * sizeof *tokens);
  FUZZ_CHECK(hark_examples_read(context, e, split, i, part, tokens) == HARK_OK, "%s", hark_context_message(context));
  for (int64_t t = 0; t < length; t++) FUZZ_CHECK(tokens[t] >= HARK_TOKEN_RESERVED && tokens[t] < size, "token %d of %d", tokens[t], size);
  s->tokens += length;
  if (length > s->longest) s->longest = length;
  if (part == 0) {
    int64_t real, counted = 0;
    FUZZ_CHECK(hark_examples_targets(context, e, split, i, tokens, &real) == HARK_OK, "%s", hark_context_message(context));
    for (int64_t t = 0; t < length; t++) {
      FUZZ_CHECK(tokens[t] == HARK_TARGET_IGNORED || (tokens[t] >= HARK_TOKEN_RESERVED && tokens[t] < size), "target %d", tokens[t]);
      counted += tokens[t] != HARK_TARGET_IGNORED;
    }
    FUZZ_CHECK(counted == real, "%lld targets, said are %lld", (long long)counted, (long long)real);
    s->targets += real;
  }
  free(tokens);
}

static seen check_split(hark_context *context, const hark_examples *e, hark_split split) {
  const hark_examples_counts counts = hark_examples_count(e, split);
  const int32_t classes = hark_examples_classes(e);
  seen s = {.examples = counts.examples};
  for (int64_t i = 0; i < counts.examples; i++) {
    const int32_t label = hark_examples_label(e, split, i);
    FUZZ_CHECK(classes > 0 ? label >= 0 && label < classes : label == HARK_TARGET_IGNORED, "label %d of %d", label, classes);
    for (int part = 0; part < hark_examples_parts(e); part++) check_sequence(context, e, split, i, part, &s);
  }
  FUZZ_CHECK(s.tokens == counts.tokens && s.targets == counts.targets && s.longest == counts.longest, "counts of %s",
             hark_examples_format(e));
  return s;
}

/* The file again, cut, and divided. */
static void check_again(hark_context *context, const char *format, const char *path, const hark_examples *first, const seen *whole) {
  hark_examples *again;
  FUZZ_CHECK(open_as(context, format, path, 0, 0, &again) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(hark_examples_checksum(again) == hark_examples_checksum(first), "another sum the second time");
  hark_examples_close(context, &again);
  FUZZ_CHECK(open_as(context, format, path, LIMIT, 0, &again) == HARK_OK, "%s", hark_context_message(context));
  for (int64_t i = 0; i < whole->examples; i++)
    for (int part = 0; part < hark_examples_parts(first); part++) {
      const int64_t before = hark_examples_length(first, HARK_SPLIT_TRAINING, i, part);
      FUZZ_CHECK(hark_examples_length(again, HARK_SPLIT_TRAINING, i, part) == hark_min(before, LIMIT), "example %lld cut", (long long)i);
    }
  hark_examples_close(context, &again);
  const hark_status status = open_as(context, format, path, 0, 0.5, &again);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, path); /* one class may be left */
  if (status != HARK_OK) return;
  const seen training = check_split(context, again, HARK_SPLIT_TRAINING), validation = check_split(context, again, HARK_SPLIT_VALIDATION);
  FUZZ_CHECK(training.examples + validation.examples == whole->examples && training.tokens + validation.tokens == whole->tokens &&
                 validation.examples == whole->examples / 2,
             "%lld examples divided", (long long)whole->examples);
  hark_examples_close(context, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (hark_packing_of(data, size) != NULL) return 0; /* fuzz_unpack.c; memory is in proportion to what is unpacked */
  hark_context *const context = fuzz_begin();
  for (int format = 0; hark_examples_format_name(format) != NULL; format++) {
    const char *const name = hark_examples_format_name(format), *const path = fuzz_file(data, size);
    hark_examples *e;
    const hark_status status = open_as(context, name, path, 0, 0, &e);
    fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
    FUZZ_CHECK((status == HARK_OK) == (e != NULL), "examples of a refused file");
    if (status != HARK_OK) continue;
    const seen whole = check_split(context, e, HARK_SPLIT_TRAINING);
    check_again(context, name, path, e, &whole);
    hark_examples_close(context, &e);
  }
  fuzz_limit(BYTES_A_BYTE * size + BASE_BYTES);
  fuzz_end();
  return 0;
}
