/* tokenize.c - hark tokenize: the tokens of every line of a text, as JSON lines. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/tokenize/text_tokens.h"

#define OUTPUT_BYTES ((size_t)1 << 16) /* are collected before they are written */

typedef struct tokenize_values {
  bool special;
  int unknown;
} tokenize_values;

static const hark_option options[] = {
    {"special", NULL, HARK_OPTION_BOOL, offsetof(tokenize_values, special), "true", NULL, NULL, NULL,
     "print the special tokens that a tokenizer.json adds before and after a text", NULL},
    {"unknown", "unknown", HARK_OPTION_ENUM, offsetof(tokenize_values, unknown), "error", "error|map", NULL, NULL,
     "what happens to characters outside the vocabulary of a run; error: they are an error; map: they become "
     "the unknown token",
     NULL},
};
static const hark_option_table table = {options, sizeof options / sizeof *options, NULL, sizeof(tokenize_values), false};

/* "[1, 2, 3]\n". */
static void append_ids(hark_text *out, const int32_t *ids, size_t count) {
  hark_text_append_bytes(out, "[", 1);
  for (size_t i = 0; i < count; i++) {
    char digits[16];
    size_t at = sizeof digits;
    uint32_t rest = (uint32_t)ids[i];
    do digits[--at] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (i > 0) hark_text_append_bytes(out, ", ", 2);
    hark_text_append_bytes(out, digits + at, sizeof digits - at);
  }
  hark_text_append_bytes(out, "]\n", 2);
}

static hark_status flush(hark_text *out) {
  HARK_TRY(out->status);
  (void)fwrite(hark_text_get(out), 1, out->length, stdout);
  hark_text_resize(out, 0);
  return ferror(stdout) ? hark_command_flush(out->context) : HARK_OK;
}

static hark_status tokenize_lines(hark_invocation *call, hark_text_tokens *tokens, hark_line_reader *lines, hark_text *out) {
  const tokenize_values *const values = call->values[0];
  const hark_unknown unknown = values->unknown == 1 ? HARK_UNKNOWN_IS_MAPPED : HARK_UNKNOWN_IS_ERROR;
  bool more = true;
  for (;;) {
    const int32_t *ids = NULL;
    size_t count = 0;
    HARK_TRY(hark_lines_next(call->context, lines, &more));
    if (!more) return flush(out);
    HARK_TRY(hark_text_tokens_encode(call->context, tokens, lines, values->special, unknown, &ids, &count));
    append_ids(out, ids, count);
    if (out->length >= OUTPUT_BYTES) HARK_TRY(flush(out));
  }
}

static hark_status refuse_idle(hark_invocation *call, const hark_text_tokens *tokens) {
  const bool own = tokens->own != NULL;
  const char *const idle = own && hark_command_is_given(call, "special")    ? "special"
                           : !own && hark_command_is_given(call, "unknown") ? "unknown"
                                                                            : NULL;
  if (idle == NULL) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--%s%s: has no effect here, it needs %s", own ? "no-" : "", idle,
                   own ? "a tokenizer.json" : "the vocabulary of a run");
}

static hark_status run(hark_invocation *call) {
  const char *const path = hark_options_argument(call->options, 1);
  hark_text_tokens tokens = {0};
  hark_line_reader lines = {0};
  hark_text out = hark_text_empty(call->context);
  hark_status status = hark_text_tokens_open(call->context, hark_options_argument(call->options, 0), &tokens);
  if (status == HARK_OK) status = refuse_idle(call, &tokens);
  if (status == HARK_OK) {
    status = hark_lines_open(call->context, &lines, path);
    if (status == HARK_OK) status = tokenize_lines(call, &tokens, &lines, &out);
    hark_lines_close(&lines);
  }
  hark_text_free(&out);
  hark_text_tokens_close(call->context, &tokens);
  return status;
}

const hark_command hark_command_tokenize = {
    .name = "tokenize",
    .arguments = "RUN|FILE FILE",
    .summary = "print the tokens of each line of a text, as JSON lines",
    .notes =
        "  hark tokenize runs/book text.txt > tokens.jsonl\n"
        "  hark tokenize book.safetensors text.txt      a file of hark export\n"
        "  hark tokenize tokenizer.json text.txt        of the Hugging Face tokenizers library, or the folder with it\n"
        "  hark tokenize spiece.model text.txt          of SentencePiece\n"
        "\n"
        "  A line ends with LF or CRLF, which do not belong to the line.\n",
    .argument_minimum = 2,
    .argument_maximum = 2,
    .tables = {&table},
    .run = run,
};
