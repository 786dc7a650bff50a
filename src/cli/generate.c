/* generate.c - hark generate: text from a trained model, written while it is generated. A client of <hark/model.h>, like any other
 * program. */
#include <hark/model.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/model.h"
#include "cli/progress.h"
#include "json/json.h"

typedef struct generate_values {
  const char *prompt, *stop, *checkpoint;
  int64_t tokens, top_k, context;
  double temperature, top_p;
} generate_values;

#define AT(field) offsetof(generate_values, field)
static const hark_option options[] = {
    {"prompt", "prompt p", HARK_OPTION_STRING, AT(prompt), "", NULL, NULL, "TEXT", "text to continue; none: the beginning of a line", NULL},
    {"max-new-tokens", "max-new-tokens n", HARK_OPTION_INT, AT(tokens), "500", "[0, inf)", NULL, NULL, "tokens to generate", NULL},
    {"context", NULL, HARK_OPTION_INT, AT(context), "0", "[0, 1099511627776]", NULL, "N",
     "context length; 0: that of the training; a larger one where the model's positions allow it", NULL},
    {"temperature", "temperature", HARK_OPTION_FLOAT, AT(temperature), "0.8", "[0, 1000]", NULL, NULL,
     "logits are divided by it; 0: always the most likely token", NULL},
    {"top-k", "top-k", HARK_OPTION_INT, AT(top_k), "0", "[0, inf)", NULL, NULL, "draw from this number of most likely tokens; 0: all",
     "temperature >0"},
    {"top-p", "top-p", HARK_OPTION_FLOAT, AT(top_p), "1", "(0, 1]", NULL, NULL,
     "draw from the most likely tokens that together have this probability", "temperature >0"},
    {"stop", "stop", HARK_OPTION_STRING, AT(stop), "", NULL, NULL, "TEXT", "stop before this text would be written", NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME", "best (default), last, or step-N", NULL},
};
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(generate_values), false};

/* A text that is being generated. Bytes that could begin the stop text are held back. */
typedef struct generation {
  hark_invocation *call;
  const generate_values *values;
  hark_opened_run opened;
  const char *source; /* name of the checkpoint, or the path of the file */
  hark_model *model;
  hark_decoding *decoding;
  int32_t *tokens; /* prompt, then what was generated */
  int64_t count, prompt_count;
  size_t token_bytes;
  hark_text text; /* generated */
  size_t written;
  int64_t trained;                     /* tokens of the texts that the model was trained on */
  int64_t prompt_forgotten, forgotten; /* tokens that the model did not read: of the prompt, and of all tokens before the last one */
  int32_t begin; /* token before a sentence, for a model of sentences: one sentence is written, up to the end of its line; 0: a text */
} generation;

static hark_status check(hark_invocation *call) {
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  const generate_values *const values = call->values[0];
  if (values->temperature == 0 && hark_options_source(call->options, "train.seed") == HARK_SOURCE_COMMAND)
    HARK_TRY(hark_options_complain(call->context, call->options, "train.seed",
                                   "has no effect here, it needs --temperature above 0 (currently 0)"));
  if (hark_command_names_run(call)) return hark_command_read_run(call, call->values[1]);
  if (values->checkpoint[0] != '\0')
    HARK_TRY(hark_options_complain(call->context, call->options, "checkpoint",
                                   "has no effect here, it needs a run: %s is a file of weights", hark_options_argument(call->options, 0)));
  return hark_config_finish(call->context, call->options, call->values[1]);
}

static hark_status encode_prompt(generation *g) {
  hark_context *context = g->call->context;
  const hark_config *config = g->call->values[1];
  const bool given = g->values->prompt[0] != '\0';
  const char *prompt = given ? g->values->prompt : g->begin != 0 ? "" : "\n";
  const size_t bytes = strlen(prompt);
  size_t token_bytes = 0;
  void *memory = NULL;
  HARK_TRY(hark_size_multiply(context, 1 + bytes + (size_t)g->values->tokens, sizeof *g->tokens, &token_bytes));
  HARK_TRY(hark_allocate(context, token_bytes, &memory));
  g->token_bytes = token_bytes;
  g->tokens = memory;
  size_t count = 0;
  const bool map_unknown = !given || config->data.unknown == HARK_UNKNOWN_IS_MAPPED;
  const hark_status status = hark_model_encode(context, g->model, prompt, bytes, map_unknown, g->tokens + (g->begin != 0), &count);
  if (status == HARK_BAD_FILE) hark_fail_prefix(context, "--prompt: ");
  if (g->begin != 0) g->tokens[0] = g->begin;
  g->count = g->prompt_count = (int64_t)count + (g->begin != 0);
  return status;
}

/* Allocates memory for the requested number of tokens. */
static hark_status open_decoding(generation *g) {
  hark_context *context = g->call->context;
  const hark_decoding_options room = {.struct_size = sizeof room, .capacity = g->values->context};
  size_t bytes = 0;
  hark_status status = hark_decoding_size(context, g->model, &room, &bytes);
  if (status != HARK_OK && g->values->context > g->trained) hark_fail_prefix(context, "--context %" PRId64 ": ", g->values->context);
  HARK_TRY(status);
  HARK_TRY(hark_command_check_memory(context, "the model's cache", (double)bytes));
  if (g->values->context > g->trained)
    hark_command_warn(g->call, "the model was trained with a context of %" PRId64 " tokens, and is used with up to %" PRId64 " here",
                      g->trained, g->values->context);
  return hark_decoding_create(context, g->model, &room, &g->decoding);
}

static hark_status open_model(generation *g) {
  hark_invocation *call = g->call;
  const hark_config *config = call->values[1];
  if (hark_command_names_run(call)) {
    HARK_TRY(hark_command_open_run(call, config, g->values->checkpoint, &g->opened));
    if (g->opened.tokenizer == NULL)
      return hark_fail(call->context, HARK_UNSUPPORTED,
                       "%s: was trained on labelled examples, and there is no text to continue: hark eval measures it", g->opened.run.path);
    HARK_TRY(hark_command_load_run(call, &g->opened, config, &g->model));
    g->source = g->opened.checkpoint;
  } else {
    g->source = hark_options_argument(call->options, 0);
    HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
    HARK_TRY(hark_model_load(call->context, g->source, NULL, &g->model));
  }
  hark_model_info info = {.struct_size = sizeof info};
  HARK_TRY(hark_model_describe(g->model, &info));
  g->trained = info.context;
  HARK_TRY(open_decoding(g));
  if (info.tokenizer == NULL)
    return hark_fail(call->context, HARK_UNSUPPORTED,
                     "%s: has no vocabulary of text (models of labelled examples have none), so it cannot continue a text", g->source);
  g->begin = (int32_t)info.begin;
  g->text = hark_text_empty(call->context);
  return encode_prompt(g);
}

/* Reads the tokens that the decoding has not read yet. A full decoding begins again with the last half of its capacity: the model never
 * reads more positions than its capacity. */
static hark_status feed(generation *g, int64_t *seen) {
  const int64_t capacity = hark_decoding_capacity(g->decoding);
  if (g->count - *seen > capacity - hark_decoding_length(g->decoding)) {
    HARK_TRY(hark_decoding_truncate(g->decoding, 0));
    *seen = hark_max(0, g->count - hark_max(1, capacity / 2));
    if (g->count == g->prompt_count) g->prompt_forgotten = *seen;
    g->forgotten = *seen;
  }
  HARK_TRY(hark_decoding_prefill(g->decoding, g->tokens + *seen, g->count - *seen));
  *seen = g->count;
  return HARK_OK;
}

/* The beginning of the stop text in the unwritten text, or NULL. The text may contain zero bytes. */
static const char *find_stop(const generation *g, const char *stop, size_t stop_length) {
  for (size_t at = g->written; stop_length > 0 && at + stop_length <= g->text.length; at++)
    if (memcmp(g->text.data + at, stop, stop_length) == 0) return g->text.data + at;
  return NULL;
}

/* Writes the bytes that can no longer belong to a stop text; *stopped when the stop text was generated. */
static void write_text(generation *g, bool last, bool *stopped) {
  const char *stop = g->values->stop;
  const size_t stop_length = strlen(stop);
  size_t end = g->text.length;
  const char *found = find_stop(g, stop, stop_length);
  if (found != NULL) {
    end = (size_t)(found - g->text.data);
    *stopped = true;
  } else if (stop_length > 1 && !last) {
    end = end > stop_length - 1 ? end - (stop_length - 1) : 0;
  }
  if (end <= g->written) return;
  if (!g->call->json) {
    (void)fwrite(g->text.data + g->written, 1, end - g->written, stdout);
    (void)fflush(stdout);
  }
  g->written = end;
}

static hark_status generate(generation *g) {
  const hark_config *config = g->call->values[1];
  hark_sampling sampling = hark_sampling_default();
  sampling.temperature = g->values->temperature;
  sampling.top_k = g->values->top_k;
  sampling.top_p = g->values->top_p;
  sampling.seed = (uint64_t)config->train.seed;
  int64_t seen = 0;
  bool stopped = false;
  for (int64_t i = 0; i < g->values->tokens && !stopped; i++) {
    int32_t token = 0;
    HARK_TRY(feed(g, &seen));
    HARK_TRY(hark_decoding_choose(g->decoding, &sampling, (uint64_t)i, &token));
    g->tokens[g->count++] = token;
    size_t bytes = 0;
    const char *text = hark_model_token_text(g->model, token, &bytes);
    hark_text_append_bytes(&g->text, text, bytes);
    HARK_TRY(g->text.status);
    write_text(g, false, &stopped);
    if (g->begin != 0 && bytes == 1 && text[0] == '\n') break;
  }
  if (!stopped) write_text(g, true, &stopped);
  return HARK_OK;
}

/* Warns of tokens that the model did not read, and says how it would read them. */
static void report_forgotten(const generation *g) {
  const int64_t capacity = hark_decoding_capacity(g->decoding), prompt = g->prompt_forgotten;
  const hark_decoding_options enough = {.struct_size = sizeof enough, .capacity = g->count};
  char remedy[64] = "";
  size_t bytes = 0;
  if (g->forgotten == 0) return;
  if (hark_decoding_size(g->call->context, g->model, &enough, &bytes) == HARK_OK)
    (void)snprintf(remedy, sizeof remedy, "; --context %" PRId64 " keeps all", g->count);
  if (prompt > 0)
    hark_command_warn(g->call,
                      "the prompt has %" PRId64 " tokens and the model sees %" PRId64 " at once: it did not see the first %" PRId64 "%s",
                      g->prompt_count, capacity, prompt, g->forgotten > prompt ? "" : remedy);
  if (g->forgotten > prompt)
    hark_command_warn(g->call,
                      "the text has %" PRId64 " tokens and the model sees %" PRId64
                      " at once: by the end it had forgotten the first %" PRId64 "%s",
                      g->count, capacity, g->forgotten, remedy);
}

static hark_status print_json(generation *g, double seconds) {
  const int64_t made = g->count - g->prompt_count;
  hark_text line = hark_text_empty(g->call->context);
  hark_text_append(&line, "{\"prompt\": ");
  hark_json_append_string(&line, g->values->prompt);
  hark_text_append(&line, ", \"text\": ");
  hark_json_append_bytes(&line, hark_text_get(&g->text), g->written);
  hark_text_append(&line, ", \"tokens\": %" PRId64 ", \"checkpoint\": ", made);
  hark_json_append_string(&line, g->source);
  hark_text_append(&line,
                   ", \"context\": %" PRId64 ", \"prompt_tokens\": %" PRId64 ", \"prompt_forgotten\": %" PRId64 ", \"forgotten\": %" PRId64,
                   hark_decoding_capacity(g->decoding), g->prompt_count, g->prompt_forgotten, g->forgotten);
  if (hark_decoding_mended_pivots(g->decoding) > 0)
    hark_text_append(&line, ", \"mended_pivots\": %" PRId64, hark_decoding_mended_pivots(g->decoding));
  hark_text_append(&line, ", \"seconds\": ");
  hark_json_append_number(&line, seconds);
  hark_text_append(&line, ", \"tokens_per_second\": ");
  hark_json_append_number(&line, seconds > 0 ? (double)made / seconds : 0);
  hark_text_append(&line, "}\n");
  return hark_command_print(g->call, &line);
}

static hark_status run(hark_invocation *call) {
  generation g = {.call = call, .values = call->values[0], .opened.run.lock = -1};
  hark_status status = open_model(&g);
  if (status == HARK_OK && !call->json) (void)fputs(g.values->prompt, stdout);
  const double begin = hark_progress_clock();
  if (status == HARK_OK) status = generate(&g);
  const double seconds = hark_progress_clock() - begin;
  if (status == HARK_OK && call->json) status = print_json(&g, seconds);
  const bool ended = g.begin != 0 && g.text.length > 0 && g.text.data[g.text.length - 1] == '\n';
  if (status == HARK_OK && !call->json && !ended) (void)fputc('\n', stdout);
  if (status == HARK_OK) status = hark_command_flush(call->context);
  if (status == HARK_OK) report_forgotten(&g);
  if (status == HARK_OK && hark_decoding_mended_pivots(g.decoding) > 0)
    (void)fprintf(stderr, "hark generate: %" PRId64 " pivots were mended\n", hark_decoding_mended_pivots(g.decoding));
  hark_text_free(&g.text);
  hark_release(call->context, g.tokens, g.token_bytes);
  hark_decoding_destroy(&g.decoding);
  hark_model_destroy(call->context, &g.model);
  hark_command_close_run(call, &g.opened);
  return status;
}

const hark_command hark_command_generate = {
    .name = "generate",
    .arguments = "RUN|FILE",
    .summary = "write text with a trained model",
    .notes =
        "  hark generate runs/book --prompt \"It was \" --temperature 0.7\n"
        "  hark generate runs/book/checkpoints/step-500 --max-new-tokens 2000 --top-p 0.95\n"
        "  hark generate runs/book --context 1024   a longer context than in training\n"
        "  hark generate book.safetensors           a file of hark export\n"
        "\n"
        "  Each time the context is full, it is cut to its last half, with a warning.\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
