/* generate.c - hark generate: text from a trained model, written while it is generated. A client of <hark/model.h>, like any other
 * program. */
#include <hark/model.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/model.h"
#include "cli/progress.h"
#include "io/files.h"
#include "json/json.h"
#include "models/prompt.h"
#include "models/sampling.h"

#define PROMPT_BYTES ((size_t)1 << 26) /* of a file, at most */

typedef struct generate_values {
  const char *prompt, *file, *stop, *checkpoint; /* prompt: also what was read from the file */
  int64_t tokens, top_k, context, sequences;
  double temperature, top_p, min_p, repetition_penalty;
  int weights;
  bool ignore_end;
} generate_values;

#define AT(field) offsetof(generate_values, field)
static const hark_option options[] = {
    {"prompt", "prompt p", HARK_OPTION_STRING, AT(prompt), "", NULL, NULL, "TEXT",
     "text to continue; not given: the model begins a new line", NULL},
    {"file", "file f", HARK_OPTION_STRING, AT(file), "", NULL, NULL, "FILE", "file with the text to continue; -: standard input",
     "prompt none"},
    {"max-new-tokens", "max-new-tokens n", HARK_OPTION_INT, AT(tokens), "500", "[0, 1e9]", NULL, NULL, "number of tokens to generate",
     NULL},
    {"context", NULL, HARK_OPTION_INT, AT(context), "0", "[0, 16777216]", NULL, "N",
     "context length; 0: the context of training; it may be larger if the model's positions allow it", NULL},
    {"temperature", "temperature", HARK_OPTION_FLOAT, AT(temperature), "0.8", "[0, 1000]", NULL, NULL,
     "divisor of the logits; 0: always the most likely token", NULL},
    {"top-k", "top-k", HARK_OPTION_INT, AT(top_k), "0", "[0, inf)", NULL, NULL, "draw from the N most likely tokens; 0: from all",
     "temperature >0"},
    {"top-p", "top-p", HARK_OPTION_FLOAT, AT(top_p), "1", "(0, 1]", NULL, NULL,
     "draw from the most likely tokens that together have this probability", "temperature >0"},
    {"min-p", "min-p", HARK_OPTION_FLOAT, AT(min_p), "0", "[0, 1]", NULL, NULL,
     "draw from the tokens that have at least this fraction of the probability of the most likely token (arXiv "
     "2407.01082); 0: from all",
     "temperature >0"},
    {"repetition-penalty", "repetition-penalty", HARK_OPTION_FLOAT, AT(repetition_penalty), "1", "[0.01, 100]", NULL, NULL,
     "for tokens that the prompt or the text already contains, positive logits are divided by this number and "
     "negative logits multiplied by it (arXiv 1909.05858, section 4.1, with the sign rule of Transformers); 1: "
     "no penalty",
     NULL},
    {"stop", "stop", HARK_OPTION_STRING, AT(stop), "", NULL, NULL, "TEXT", "stop before the model would write this text", NULL},
    {"ignore-end", "ignore-eos ignore-end", HARK_OPTION_BOOL, AT(ignore_end), "false", NULL, NULL, NULL,
     "continue after the end token of an imported model (eos_token_id); otherwise this token ends the text", NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME",
     "checkpoint of a run: best (default), last, or step-N", NULL},
    HARK_WEIGHTS_OPTION(generate_values, weights),
    {"sequences", "samples sequences", HARK_OPTION_INT, AT(sequences), "1", "[1, 1024]", NULL, NULL,
     "number of texts that are generated together, with seeds from --seed on; this is faster than one by one, "
     "because the weights are read once for all texts",
     "temperature >0"},
};
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(generate_values), false};

/* A text that is being generated. Bytes that could begin the stop text are held back. */
typedef struct sequence {
  hark_decoding *decoding;
  int32_t *tokens; /* prompt, then what was generated */
  int64_t count, seen;
  hark_text text; /* generated */
  size_t written;
  int64_t prompt_forgotten, forgotten; /* tokens that the model did not read: of the prompt, and of all tokens before the last one */
  bool done, ended;                    /* ended: by an end token of the model */
} sequence;

typedef struct generation {
  hark_invocation *call;
  const generate_values *values;
  hark_opened_run opened;
  const char *source; /* name of the checkpoint, or the path of the file */
  hark_model *model;
  hark_decoding_batch *batch; /* NULL: one text */
  hark_decoding **stepping;   /* [sequences]: decodings that read one token in the same call, and their tokens */
  int32_t *stepping_tokens;
  sequence *sequences;
  int64_t prompt_count;
  size_t token_bytes, list_bytes;
  int64_t trained;     /* tokens of the texts that the model was trained on */
  hark_text read;      /* the prompt's file */
  unsigned char *seen; /* [vocabulary] scratch memory of the repetition penalty */
  int64_t vocabulary;
  const int32_t *ends; /* its end tokens; none if they are ignored */
  int64_t end_count;
  int32_t begin; /* token before a sentence, for a model of sentences: one sentence is written, up to the end of its line; 0: a text */
} generation;

static int64_t count_of(const generation *g) { return g->values->sequences; }

/* Seeds of all texts, which are numbered from --seed on, are seeds that --seed takes. */
static hark_status check_seeds(hark_invocation *call) {
  const generate_values *const values = call->values[0];
  const hark_config *const config = call->values[1];
  if (config->train.seed <= INT64_MAX - (values->sequences - 1)) return HARK_OK;
  return hark_options_complain(call->context, call->options, "train.seed",
                               "%" PRId64 " is too large for %" PRId64 " samples, numbered from it: expected at most %" PRId64,
                               config->train.seed, values->sequences, INT64_MAX - (values->sequences - 1));
}

static hark_status read_model_options(hark_invocation *call) {
  const generate_values *const values = call->values[0];
  if (hark_command_names_run(call)) return hark_command_read_run(call, call->values[1]);
  if (values->checkpoint[0] != '\0')
    HARK_TRY(hark_options_complain(call->context, call->options, "checkpoint",
                                   "has no effect here, it needs a run: %s is a file of weights", hark_options_argument(call->options, 0)));
  return hark_config_finish(call->context, call->options, call->values[1]);
}

static hark_status check(hark_invocation *call) {
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  const generate_values *const values = call->values[0];
  if (values->stop[0] == '\0' && hark_options_source(call->options, "stop") == HARK_SOURCE_COMMAND)
    HARK_TRY(hark_options_complain(call->context, call->options, "stop", "is empty, expected a text"));
  if (values->temperature == 0 && hark_options_source(call->options, "train.seed") == HARK_SOURCE_COMMAND)
    HARK_TRY(hark_options_complain(call->context, call->options, "train.seed",
                                   "has no effect here, it needs --temperature above 0 (currently 0)"));
  HARK_TRY(hark_command_check_checkpoint(call, hark_options_argument(call->options, 0), values->checkpoint));
  HARK_TRY(read_model_options(call));
  return check_seeds(call);
}

static hark_status read_standard_input(hark_context *context, hark_text *out) {
  char part[4096];
  for (size_t got; (got = fread(part, 1, sizeof part, stdin)) > 0;) {
    hark_text_append_bytes(out, part, got);
    if (out->length > PROMPT_BYTES) return hark_fail(context, HARK_TOO_LARGE, "standard input: longer than %zu bytes", PROMPT_BYTES);
  }
  return ferror(stdin) ? hark_fail(context, HARK_IO_ERROR, "standard input: cannot be read") : out->status;
}

/* Reads the prompt from --file, without the line end that closes a text file: the text is to be continued there. */
static hark_status read_file(hark_invocation *call, hark_text *out) {
  generate_values *const values = call->values[0];
  const bool standard = strcmp(values->file, "-") == 0;
  if (values->file[0] == '\0') return HARK_OK;
  HARK_TRY(standard ? read_standard_input(call->context, out) : hark_file_read(call->context, values->file, PROMPT_BYTES, out));
  if (out->length > 1 && out->data[out->length - 1] == '\n') hark_text_resize(out, out->length - 1);
  const char *const text = hark_text_get(out), *const zero = memchr(text, '\0', out->length);
  if (zero != NULL)
    return hark_fail(call->context, HARK_BAD_FILE, "%s: has a zero byte at offset %lld, expected text", values->file,
                     (long long)(zero - text));
  if (out->length == 0) return hark_fail(call->context, HARK_BAD_FILE, "%s: is empty, expected a text to continue", values->file);
  values->prompt = text;
  return HARK_OK;
}

/* Memory for the prompt and what follows it. */
static hark_status make_token_lists(generation *g, size_t prompt_tokens) {
  hark_context *context = g->call->context;
  HARK_TRY(hark_size_multiply(context, prompt_tokens + (size_t)g->values->tokens, sizeof(int32_t), &g->token_bytes));
  for (int64_t i = 0; i < count_of(g); i++) {
    void *memory = NULL;
    const hark_status status = hark_allocate(context, g->token_bytes, &memory);
    if (status != HARK_OK) hark_fail_prefix(context, "--max-new-tokens %" PRId64 ": ", g->values->tokens);
    HARK_TRY(status);
    g->sequences[i].tokens = memory;
    g->sequences[i].text = hark_text_empty(context);
  }
  return HARK_OK;
}

static hark_status encode_prompt(generation *g) {
  hark_context *context = g->call->context;
  const hark_config *config = g->call->values[1];
  hark_prompt prompt = {0};
  hark_status status = hark_prompt_open(context, g->model, g->values->prompt, &prompt);
  if (status == HARK_OK) HARK_TRY(make_token_lists(g, prompt.room));
  if (status == HARK_OK)
    status = hark_prompt_read(context, g->model, &prompt, config->data.unknown == HARK_UNKNOWN_IS_MAPPED, g->sequences[0].tokens,
                              &g->prompt_count);
  const char *const file = g->values->file;
  if (status == HARK_BAD_FILE) hark_fail_prefix(context, "%s%.1200s: ", file[0] != '\0' ? "--file " : "--prompt", file);
  HARK_TRY(status);
  for (int64_t i = 0; i < count_of(g); i++) {
    if (i > 0) memcpy(g->sequences[i].tokens, g->sequences[0].tokens, (size_t)g->prompt_count * sizeof(int32_t));
    g->sequences[i].count = g->prompt_count;
  }
  return HARK_OK;
}

static hark_status make_lists(generation *g) {
  void *memory = NULL;
  g->list_bytes = (size_t)count_of(g) * (sizeof *g->sequences + sizeof *g->stepping + sizeof *g->stepping_tokens);
  HARK_TRY(hark_allocate_zero(g->call->context, g->list_bytes, &memory));
  g->sequences = memory;
  g->stepping = (hark_decoding **)(void *)(g->sequences + count_of(g));
  g->stepping_tokens = (int32_t *)(void *)(g->stepping + count_of(g));
  return HARK_OK;
}

static int64_t context_of(const generation *g) { return g->values->context > 0 ? g->values->context : g->trained; }

/* Refuses a context that the model cannot have. */
static hark_status check_context(const generation *g) {
  hark_context *context = g->call->context;
  const hark_decoding_options room = {.struct_size = sizeof room, .capacity = g->values->context};
  size_t bytes = 0;
  const hark_status status = hark_decoding_size(context, g->model, &room, &bytes);
  if (status != HARK_OK && g->values->context > g->trained) hark_fail_prefix(context, "--context %" PRId64 ": ", g->values->context);
  return status;
}

/* Allocates memory for the tokens that a text can have, at most the context. */
static hark_status open_decodings(generation *g) {
  hark_context *context = g->call->context;
  const int64_t most = hark_max(1, hark_min(context_of(g), g->prompt_count + g->values->tokens));
  const hark_decoding_options room = {.struct_size = sizeof room, .capacity = most};
  const hark_decoding_batch_options together = {.struct_size = sizeof together, .decodings = count_of(g), .capacity = most};
  size_t bytes = 0;
  HARK_TRY(hark_decoding_size(context, g->model, &room, &bytes));
  HARK_TRY(hark_command_check_memory(context, "the model's cache", (double)bytes * (double)count_of(g)));
  if (most > g->trained)
    hark_command_warn(g->call, "the model was trained with a context of %" PRId64 " tokens, and is used with up to %" PRId64 " here",
                      g->trained, most);
  for (int64_t i = 0; i < count_of(g); i++) HARK_TRY(hark_decoding_create(context, g->model, &room, &g->sequences[i].decoding));
  return count_of(g) > 1 ? hark_decoding_batch_create(context, g->model, &together, &g->batch) : HARK_OK;
}

static hark_status make_seen(generation *g) {
  void *memory = NULL;
  HARK_TRY(hark_allocate(g->call->context, (size_t)g->vocabulary, &memory));
  g->seen = memory;
  return HARK_OK;
}

static hark_status open_model(generation *g) {
  hark_invocation *call = g->call;
  const hark_config *config = call->values[1];
  const hark_type matrices = hark_command_matrix_type(g->values->weights);
  if (hark_command_names_run(call)) {
    HARK_TRY(hark_command_open_run(call, config, g->values->checkpoint, &g->opened));
    if (g->opened.tokenizer == NULL)
      return hark_fail(call->context, HARK_UNSUPPORTED,
                       "%s: was trained on labelled examples, and there is no text to continue: hark eval measures it", g->opened.run.path);
    g->opened.matrices = matrices;
    HARK_TRY(hark_command_load_run(call, &g->opened, config, &g->model));
    g->source = g->opened.checkpoint;
  } else {
    g->source = hark_options_argument(call->options, 0);
    HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
    const hark_model_options load = {.struct_size = sizeof load, .matrices = matrices};
    HARK_TRY(hark_model_load(call->context, g->source, &load, &g->model));
  }
  hark_model_info info = {.struct_size = sizeof info};
  HARK_TRY(hark_model_describe(g->model, &info));
  g->trained = info.context;
  g->vocabulary = info.vocabulary;
  HARK_TRY(make_seen(g));
  HARK_TRY(make_lists(g));
  HARK_TRY(check_context(g));
  if (info.tokenizer == NULL)
    return hark_fail(call->context, HARK_UNSUPPORTED, "%s: has no %s, so it cannot continue a text", g->source,
                     info.reserved == 0 ? "tokenizer.json or tokenizer.model, only numbers of tokens"
                                        : "vocabulary of text (models of labelled examples have none)");
  g->begin = (int32_t)info.begin;
  if (g->values->ignore_end && info.end_count == 0)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--ignore-eos: has no effect here: %s has no end token", g->source);
  g->ends = info.ends;
  g->end_count = g->values->ignore_end ? 0 : info.end_count;
  HARK_TRY(encode_prompt(g));
  return open_decodings(g);
}

/* Makes room in a full decoding, which begins again with the last half of its capacity: the model never reads more positions than its
 * capacity. */
static hark_status make_room(const generation *g, sequence *s) {
  const int64_t capacity = hark_decoding_capacity(s->decoding);
  if (s->count - s->seen <= capacity - hark_decoding_length(s->decoding)) return HARK_OK;
  HARK_TRY(hark_decoding_truncate(s->decoding, 0));
  s->seen = hark_max(0, s->count - hark_max(1, capacity / 2));
  if (s->count == g->prompt_count) s->prompt_forgotten = s->seen;
  s->forgotten = s->seen;
  return HARK_OK;
}

static hark_status read_prompt(const generation *g, sequence *s) {
  HARK_TRY(make_room(g, s));
  HARK_TRY(hark_decoding_prefill(s->decoding, s->tokens + s->seen, s->count - s->seen));
  s->seen = s->count;
  return HARK_OK;
}

/* All texts have the same prompt: it is read once. */
static hark_status read_prompts(generation *g) {
  hark_context *context = g->call->context;
  sequence *const first = &g->sequences[0];
  void *saved = NULL;
  HARK_TRY(read_prompt(g, first));
  if (count_of(g) == 1) return HARK_OK;
  const size_t bytes = hark_decoding_saved_bytes(first->decoding);
  HARK_TRY(hark_allocate(context, bytes, &saved));
  hark_status status = hark_decoding_save(first->decoding, saved, bytes);
  for (int64_t i = 1; i < count_of(g) && status == HARK_OK; i++) {
    sequence *const s = &g->sequences[i];
    status = hark_decoding_restore(s->decoding, saved, bytes);
    s->seen = first->seen;
    s->prompt_forgotten = first->prompt_forgotten;
    s->forgotten = first->forgotten;
  }
  hark_release(context, saved, bytes);
  return status;
}

/* Reads the tokens that the decodings have not read yet: one of each in one call; after a cut those that remain. */
static hark_status feed(generation *g) {
  int64_t together = 0;
  for (int64_t i = 0; i < count_of(g); i++) {
    sequence *const s = &g->sequences[i];
    if (s->done) continue;
    HARK_TRY(make_room(g, s));
    if (g->batch == NULL || s->count - s->seen > 1) {
      HARK_TRY(hark_decoding_prefill(s->decoding, s->tokens + s->seen, s->count - s->seen));
    } else {
      g->stepping[together] = s->decoding;
      g->stepping_tokens[together++] = s->tokens[s->seen];
    }
    s->seen = s->count;
  }
  return together > 0 ? hark_decoding_batch_step(g->batch, g->stepping, g->stepping_tokens, together) : HARK_OK;
}

/* The beginning of the stop text in the unwritten text, or NULL. The text may contain zero bytes. */
static const char *find_stop(const sequence *s, const char *stop, size_t stop_length) {
  for (size_t at = s->written; stop_length > 0 && at + stop_length <= s->text.length; at++)
    if (memcmp(s->text.data + at, stop, stop_length) == 0) return s->text.data + at;
  return NULL;
}

/* Writes the bytes that can no longer belong to a stop text; the text is done when the stop text was generated. One of several texts is
 * only marked as written. */
static void write_text(const generation *g, sequence *s, bool last) {
  const char *stop = g->values->stop;
  const size_t stop_length = strlen(stop);
  size_t end = s->text.length;
  const char *found = find_stop(s, stop, stop_length);
  if (found != NULL) {
    end = (size_t)(found - s->text.data);
    s->done = true;
  } else if (stop_length > 1 && !last) {
    end = end > stop_length - 1 ? end - (stop_length - 1) : 0;
  }
  if (end <= s->written) return;
  if (!g->call->json && g->batch == NULL) {
    (void)fwrite(s->text.data + s->written, 1, end - s->written, stdout);
    (void)fflush(stdout);
  }
  s->written = end;
}

/* Whether a token ends a text. It is no part of it. */
static bool is_end(const generation *g, int32_t token) {
  for (int64_t i = 0; i < g->end_count; i++)
    if (g->ends[i] == token) return true;
  return false;
}

/* Token number `index` of text `number`. */
static hark_status choose(generation *g, int64_t number, int64_t index) {
  const hark_config *config = g->call->values[1];
  sequence *const s = &g->sequences[number];
  hark_sampling sampling = hark_sampling_default();
  sampling.temperature = g->values->temperature;
  sampling.top_k = g->values->top_k;
  sampling.top_p = g->values->top_p;
  sampling.min_p = g->values->min_p;
  sampling.seed = (uint64_t)config->train.seed + (uint64_t)number;
  int32_t token = 0;
  size_t bytes = 0;
  if (g->values->repetition_penalty != 1)
    hark_sampling_penalise(hark_decoding_logits(s->decoding), g->vocabulary, s->tokens, s->count, g->values->repetition_penalty, g->seen);
  HARK_TRY(hark_decoding_choose(s->decoding, &sampling, (uint64_t)index, &token));
  if (is_end(g, token)) {
    s->done = s->ended = true;
    write_text(g, s, true);
    return HARK_OK;
  }
  s->tokens[s->count++] = token;
  const char *text = hark_model_token_text(g->model, token, &bytes);
  hark_text_append_bytes(&s->text, text, bytes);
  HARK_TRY(s->text.status);
  const bool sentence = g->begin != 0 && bytes == 1 && text[0] == '\n';
  write_text(g, s, sentence || index + 1 == g->values->tokens);
  s->done = s->done || sentence;
  return HARK_OK;
}

static hark_status generate(generation *g) {
  if (g->values->tokens > 0) HARK_TRY(read_prompts(g));
  for (int64_t i = 0; i < g->values->tokens; i++) {
    bool all_done = true;
    if (i > 0) HARK_TRY(feed(g));
    for (int64_t n = 0; n < count_of(g); n++) {
      if (!g->sequences[n].done) HARK_TRY(choose(g, n, i));
      all_done = all_done && g->sequences[n].done;
    }
    if (all_done) break;
  }
  return HARK_OK;
}

/* Several texts, each after its prompt, separated by a line. */
static void print_sequences(const generation *g) {
  for (int64_t i = 0; i < count_of(g); i++) {
    const sequence *const s = &g->sequences[i];
    const bool ended = g->begin != 0 && s->written > 0 && s->text.data[s->written - 1] == '\n';
    if (i > 0) (void)fputs("---\n", stdout);
    (void)fputs(g->values->prompt, stdout);
    (void)fwrite(hark_text_get(&s->text), 1, s->written, stdout);
    if (!ended) (void)fputc('\n', stdout);
  }
}

/* Warns of tokens that the model did not read, and says how it would read them: of the longest text. */
static void report_forgotten(const generation *g) {
  const sequence *most = &g->sequences[0];
  for (int64_t i = 1; i < count_of(g); i++)
    if (g->sequences[i].forgotten > most->forgotten) most = &g->sequences[i];
  const int64_t capacity = hark_decoding_capacity(most->decoding), prompt = most->prompt_forgotten;
  const hark_decoding_options enough = {.struct_size = sizeof enough, .capacity = most->count};
  char remedy[64] = "";
  size_t bytes = 0;
  if (most->forgotten == 0) return;
  if (hark_decoding_size(g->call->context, g->model, &enough, &bytes) == HARK_OK)
    (void)snprintf(remedy, sizeof remedy, "; --context %" PRId64 " keeps all", most->count);
  if (prompt > 0)
    hark_command_warn(g->call,
                      "the prompt has %" PRId64 " tokens and the model sees %" PRId64 " at once: it did not see the first %" PRId64 "%s",
                      g->prompt_count, capacity, prompt, most->forgotten > prompt ? "" : remedy);
  if (most->forgotten > prompt)
    hark_command_warn(g->call,
                      "the text has %" PRId64 " tokens and the model sees %" PRId64
                      " at once: by the end it had forgotten the first %" PRId64 "%s",
                      most->count, capacity, most->forgotten, remedy);
}

static int64_t mended_pivots(const generation *g) {
  int64_t pivots = 0;
  for (int64_t i = 0; i < count_of(g); i++) pivots += hark_decoding_mended_pivots(g->sequences[i].decoding);
  return pivots;
}

/* "text": .., "tokens": .. of one text. */
static void append_sequence(const generation *g, const sequence *s, hark_text *line) {
  hark_text_append(line, "\"text\": ");
  hark_json_append_bytes(line, hark_text_get(&s->text), s->written);
  hark_text_append(line, ", \"tokens\": %" PRId64, s->count - g->prompt_count);
  if (g->end_count > 0) hark_text_append(line, ", \"ended\": %s", s->ended ? "true" : "false");
}

static void append_sequences(const generation *g, hark_text *line) {
  const hark_config *config = g->call->values[1];
  hark_text_append(line, "\"sequences\": [");
  for (int64_t i = 0; i < count_of(g); i++) {
    hark_text_append(line, "%s{\"seed\": %" PRId64 ", ", i > 0 ? ", " : "", config->train.seed + i);
    append_sequence(g, &g->sequences[i], line);
    hark_text_append(line, ", \"forgotten\": %" PRId64 "}", g->sequences[i].forgotten);
  }
  hark_text_append(line, "]");
}

static hark_status print_json(generation *g, double seconds) {
  const sequence *const first = &g->sequences[0];
  int64_t made = 0;
  hark_text line = hark_text_empty(g->call->context);
  for (int64_t i = 0; i < count_of(g); i++) made += g->sequences[i].count - g->prompt_count;
  hark_text_append(&line, "{\"prompt\": ");
  hark_json_append_string(&line, g->values->prompt);
  hark_text_append(&line, ", ");
  if (g->batch != NULL)
    append_sequences(g, &line);
  else
    append_sequence(g, first, &line);
  hark_text_append(&line, ", ");
  hark_json_append_path(&line, "checkpoint", g->source);
  hark_text_append(&line, ", \"context\": %" PRId64 ", \"prompt_tokens\": %" PRId64 ", \"prompt_forgotten\": %" PRId64, context_of(g),
                   g->prompt_count, first->prompt_forgotten);
  if (g->batch == NULL) hark_text_append(&line, ", \"forgotten\": %" PRId64, first->forgotten);
  if (mended_pivots(g) > 0) hark_text_append(&line, ", \"mended_pivots\": %" PRId64, mended_pivots(g));
  hark_text_append(&line, ", \"seconds\": ");
  hark_json_append_number(&line, seconds);
  hark_text_append(&line, ", \"tokens_per_second\": ");
  hark_json_append_number(&line, seconds > 0 ? (double)made / seconds : 0);
  hark_text_append(&line, "}\n");
  return hark_command_print(g->call, &line);
}

static void close_generation(generation *g) {
  hark_context *context = g->call->context;
  for (int64_t i = 0; g->sequences != NULL && i < count_of(g); i++) {
    sequence *const s = &g->sequences[i];
    if (s->tokens != NULL) hark_text_free(&s->text);
    hark_release(context, s->tokens, g->token_bytes);
    hark_decoding_destroy(&s->decoding);
  }
  hark_decoding_batch_destroy(&g->batch);
  hark_release(context, g->sequences, g->list_bytes);
  hark_release(context, g->seen, (size_t)g->vocabulary);
  hark_text_free(&g->read);
  hark_model_destroy(context, &g->model);
  hark_command_close_run(g->call, &g->opened);
}

static hark_status run(hark_invocation *call) {
  generation g = {.call = call, .values = call->values[0], .opened.run.lock = -1};
  g.read = hark_text_empty(call->context);
  hark_status status = read_file(call, &g.read);
  if (status == HARK_OK) status = open_model(&g);
  const bool streams = !call->json && g.batch == NULL;
  if (status == HARK_OK && streams) (void)fputs(g.values->prompt, stdout);
  const double begin = hark_progress_clock();
  if (status == HARK_OK) status = generate(&g);
  const double seconds = hark_progress_clock() - begin;
  if (status == HARK_OK && call->json) status = print_json(&g, seconds);
  if (status == HARK_OK && !call->json && g.batch != NULL) print_sequences(&g);
  const sequence *const first = g.sequences;
  const bool ended = status == HARK_OK && g.begin != 0 && first->text.length > 0 && first->text.data[first->text.length - 1] == '\n';
  if (status == HARK_OK && streams && !ended) (void)fputc('\n', stdout);
  if (status == HARK_OK) status = hark_command_flush(call->context);
  if (status == HARK_OK) report_forgotten(&g);
  if (status == HARK_OK && mended_pivots(&g) > 0)
    (void)fprintf(stderr, "hark generate: %" PRId64 " pivots were mended\n", mended_pivots(&g));
  close_generation(&g);
  return status;
}

const hark_command hark_command_generate = {
    .name = "generate",
    .arguments = "RUN|FILE|FOLDER",
    .summary = "write text with a trained model",
    .notes =
        "  hark generate runs/book --prompt \"It was \" --temperature 0.7\n"
        "  hark generate runs/book/checkpoints/step-500 --max-new-tokens 2000 --top-p 0.95\n"
        "  hark generate runs/book --context 1024   a longer context than in training\n"
        "  hark generate runs/book --file - <chapter.txt             continue a text from standard input\n"
        "  hark generate runs/book --samples 5 --min-p 0.05          five texts\n"
        "  hark generate book.safetensors           a file of hark export or hark import\n"
        "  hark generate Qwen2-0.5B                 a folder of another program (hark import)\n"
        "  hark generate runs/book --weights int8 --samples 8     eight texts at once, with a quarter of the memory for weights\n"
        "\n"
        "  An end token of an imported model (eos_token_id) ends the text. With --ignore-eos, the text continues.\n"
        "  Each time the context is full, it is cut to its last half, with a warning.\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
