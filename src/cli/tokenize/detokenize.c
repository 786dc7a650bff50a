/* detokenize.c - hark detokenize: the texts of lists of tokens, as hark tokenize prints them. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/tokenize/text_tokens.h"
#include "tokenizers/pipeline/growing.h"

typedef struct detokenize_values {
  bool special;
} detokenize_values;

static const hark_option options[] = {
    {"special", "special", HARK_OPTION_BOOL, offsetof(detokenize_values, special), "false", NULL, NULL, NULL, "print special tokens too",
     NULL},
};
static const hark_option_table table = {options, sizeof options / sizeof *options, NULL, sizeof(detokenize_values), false};

static size_t skip_blanks(const hark_line_reader *lines, size_t at) {
  while (at < lines->length && (lines->line[at] == ' ' || lines->line[at] == '\t')) at++;
  return at;
}

static bool take(const hark_line_reader *lines, size_t *at, char c) {
  *at = skip_blanks(lines, *at);
  if (*at >= lines->length || lines->line[*at] != c) return false;
  ++*at;
  return true;
}

static hark_status fail(hark_context *context, const hark_line_reader *lines, size_t at) {
  return hark_lines_fail(context, lines, at, "expected a list of tokens, [1, 2, 3]");
}

#define SHOWN_DIGITS 40

static hark_status read_token(hark_context *context, const hark_line_reader *lines, int32_t size, size_t *at, hark_ids *ids) {
  int64_t value = 0;
  const size_t begin = *at = skip_blanks(lines, *at);
  for (; *at < lines->length && lines->line[*at] >= '0' && lines->line[*at] <= '9'; ++*at)
    if (value <= INT32_MAX) value = 10 * value + (lines->line[*at] - '0');
  if (*at == begin) return fail(context, lines, *at);
  if (value >= size)
    return hark_lines_fail(context, lines, begin, "token %.*s is not in the vocabulary of %" PRId32 " tokens",
                           (int)hark_min((int64_t)(*at - begin), SHOWN_DIGITS), lines->line + begin, size);
  return hark_ids_add(context, ids, (int32_t)value);
}

static hark_status read_ids(hark_context *context, const hark_line_reader *lines, int32_t size, hark_ids *ids) {
  size_t at = 0;
  ids->count = 0;
  if (!take(lines, &at, '[')) return fail(context, lines, at);
  if (!take(lines, &at, ']')) {
    do HARK_TRY(read_token(context, lines, size, &at, ids));
    while (take(lines, &at, ','));
    if (!take(lines, &at, ']')) return fail(context, lines, at);
  }
  at = skip_blanks(lines, at);
  return at == lines->length ? HARK_OK : fail(context, lines, at);
}

/* The texts of all lines in `spool`, so that nothing is printed of a file with a bad line. */
static hark_status detokenize_lines(hark_invocation *call, hark_text_tokens *tokens, hark_line_reader *lines, hark_ids *ids, hark_text *out,
                                    hark_spool *spool) {
  const detokenize_values *const values = call->values[0];
  bool more = true;
  for (;;) {
    HARK_TRY(hark_lines_next(call->context, lines, &more));
    if (!more) return HARK_OK;
    HARK_TRY(read_ids(call->context, lines, hark_text_tokens_size(tokens), ids));
    HARK_TRY(hark_text_tokens_decode(call->context, tokens, ids->data, ids->count, values->special, out));
    hark_text_append_bytes(out, "\n", 1);
    HARK_TRY(out->status);
    HARK_TRY(hark_spool_append(call->context, spool, hark_text_get(out), out->length));
    hark_text_resize(out, 0);
  }
}

static hark_status print(hark_context *context, const hark_spool *spool) {
  const hark_input input = {.path = hark_spool_folder(), .descriptor = spool->descriptor, .size = spool->bytes};
  char part[1 << 14];
  for (uint64_t at = 0; at < spool->bytes; at += sizeof part) {
    const size_t bytes = spool->bytes - at < sizeof part ? (size_t)(spool->bytes - at) : sizeof part;
    HARK_TRY(hark_input_read_at(context, &input, part, bytes, at));
    (void)fwrite(part, 1, bytes, stdout);
    if (ferror(stdout)) return hark_command_flush(context);
  }
  return HARK_OK;
}

static hark_status run(hark_invocation *call) {
  hark_text_tokens tokens = {0};
  hark_line_reader lines = {0};
  hark_ids ids = {0};
  hark_spool spool = {0};
  hark_text out = hark_text_empty(call->context);
  hark_status status = hark_text_tokens_open(call->context, hark_options_argument(call->options, 0), &tokens);
  if (status == HARK_OK && tokens.own != NULL && hark_command_is_given(call, "special"))
    status = hark_fail(call->context, HARK_BAD_CONFIGURATION, "--special: has no effect here, it needs a tokenizer.json");
  if (status == HARK_OK) {
    status = hark_lines_open(call->context, &lines, hark_options_argument(call->options, 1));
    if (status == HARK_OK) status = detokenize_lines(call, &tokens, &lines, &ids, &out, &spool);
    if (status == HARK_OK) status = print(call->context, &spool);
    hark_lines_close(&lines);
    hark_spool_close(&spool);
  }
  HARK_FREE_LIST(call->context, &ids);
  hark_text_free(&out);
  hark_text_tokens_close(call->context, &tokens);
  return status;
}

const hark_command hark_command_detokenize = {
    .name = "detokenize",
    .arguments = "RUN|FILE FILE",
    .summary = "print the text of each line of tokens",
    .notes =
        "  hark tokenize tokenizer.json text.txt > tokens.jsonl\n"
        "  hark detokenize tokenizer.json tokens.jsonl\n"
        "\n"
        "  A line is a list of numbers, [1, 2, 3].\n",
    .argument_minimum = 2,
    .argument_maximum = 2,
    .tables = {&table},
    .run = run,
};
