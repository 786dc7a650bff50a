/* samples.c - see samples.h. */
#include "train/samples.h"

#include <hark/model.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json/jsonl.h"
#include "models/prompt.h"

/* Together they fit into a line that is read (HARK_JSONL_LINE_BYTES) whatever has to be escaped in them. */
#define PROMPT_BYTES ((size_t)64 << 10)
#define TEXT_BYTES ((size_t)96 << 10)

typedef struct sampler {
  hark_context *context;
  const hark_config *config;
  const hark_samples_stop *stop;
  hark_model *model;
  hark_model_info info;
  hark_decoding *decoding;
  hark_text text; /* generated */
} sampler;

static hark_status count_tokens(void *user, const int32_t *tokens, size_t count) {
  size_t *const all = user;
  (void)tokens;
  *all += count;
  return HARK_OK;
}

static hark_status check_own(hark_context *context, const hark_config *config, const hark_tokenizer *tokenizer, size_t bytes,
                             size_t *count) {
  void *tokens = NULL;
  HARK_TRY(hark_allocate(context, bytes * sizeof(int32_t), &tokens));
  const hark_status status =
      hark_tokenizer_encode(context, tokenizer, config->data.unknown, "run.sample_prompt", config->run.sample_prompt, bytes, tokens, count);
  hark_release(context, tokens, bytes * sizeof(int32_t));
  return status;
}

static hark_status count_imported(hark_context *context, const hark_tokenizer *tokenizer, const char *text, size_t *count) {
  hark_text_fault fault = {0};
  const hark_status status = hark_tokenizer_encode_whole(context, tokenizer, text, strlen(text), count_tokens, count, &fault);
  return status != HARK_BAD_FILE ? status : hark_fail(context, status, "run.sample_prompt: %s%s", fault.what, fault.more);
}

/* Other programs' tokenizers may drop blanks and have no token for the beginning of a text (models/prompt.h). */
static hark_status check_imported(hark_context *context, const hark_config *config, const hark_tokenizer *tokenizer, size_t *count) {
  HARK_TRY(count_imported(context, tokenizer, config->run.sample_prompt, count));
  if (*count == 0 && config->run.sample_prompt[0] == '\0') HARK_TRY(count_imported(context, tokenizer, "\n", count));
  if (*count > 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "run.sample_prompt: the tokenizer has no token for it, expected a text");
}

/* A file that is there can be written. */
static hark_status check_file(hark_context *context, const hark_run *run) {
  char path[HARK_PATH_BYTES];
  hark_jsonl file = {0};
  HARK_TRY(hark_run_path(context, run, HARK_SAMPLES_FILE, path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK;
  HARK_TRY(hark_jsonl_open(context, &file, path));
  return hark_jsonl_close(context, &file);
}

hark_status hark_samples_check(hark_context *context, const hark_config *config, const hark_run *run, const hark_tokenizer *tokenizer) {
  if (config->run.sample_tokens == 0) return HARK_OK;
  HARK_TRY(check_file(context, run));
  const bool imported = tokenizer != NULL && hark_tokenizer_imported(tokenizer) != NULL;
  if (tokenizer == NULL || (config->run.sample_prompt[0] == '\0' && !imported)) return HARK_OK;
  const size_t bytes = strlen(config->run.sample_prompt);
  size_t count = 0;
  if (bytes > PROMPT_BYTES)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "run.sample_prompt: has %zu bytes, expected at most %zu", bytes, PROMPT_BYTES);
  const hark_status status =
      imported ? check_imported(context, config, tokenizer, &count) : check_own(context, config, tokenizer, bytes, &count);
  if (status == HARK_BAD_FILE) return HARK_BAD_CONFIGURATION;
  HARK_TRY(status);
  if ((int64_t)count < config->model.context) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "run.sample_prompt: has %zu tokens, expected fewer than model.context, %" PRId64, count,
                   config->model.context);
}

/* A decoding with room for the prompt and what follows, which has read the prompt. */
static hark_status read_prompt(sampler *s) {
  hark_prompt prompt;
  void *tokens = NULL;
  int64_t count = 0;
  HARK_TRY(hark_prompt_open(s->context, s->model, s->config->run.sample_prompt, &prompt));
  HARK_TRY(hark_allocate(s->context, prompt.room * sizeof(int32_t), &tokens));
  hark_status status = hark_prompt_read(s->context, s->model, &prompt, s->config->data.unknown == HARK_UNKNOWN_IS_MAPPED, tokens, &count);
  const hark_decoding_options options = {.struct_size = sizeof options,
                                         .capacity = hark_min(s->info.context, count + s->config->run.sample_tokens),
                                         .cancel = s->stop->asked,
                                         .cancel_user = s->stop->user};
  if (status == HARK_OK) status = hark_decoding_create(s->context, s->model, &options, &s->decoding);
  if (status == HARK_OK) status = hark_decoding_prefill(s->decoding, tokens, count);
  hark_release(s->context, tokens, prompt.room * sizeof(int32_t));
  return status;
}

static bool is_end(const sampler *s, int32_t token, const char *text, size_t bytes) {
  for (int64_t i = 0; i < s->info.end_count; i++)
    if (s->info.ends[i] == token) return true;
  return s->info.begin != 0 && bytes == 1 && text[0] == '\n';
}

/* Zero bytes, which readers of JSON refuse, become U+FFFD. */
static void append_text(hark_text *to, const char *text, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) hark_text_append_bytes(to, text[i] == '\0' ? "\xef\xbf\xbd" : text + i, text[i] == '\0' ? 3 : 1);
}

static hark_status continue_text(sampler *s) {
  hark_sampling sampling = hark_sampling_default();
  sampling.temperature = HARK_SAMPLES_TEMPERATURE;
  sampling.seed = (uint64_t)s->config->train.seed;
  for (int64_t i = 0; i < s->config->run.sample_tokens && s->text.status == HARK_OK && s->text.length < TEXT_BYTES; i++) {
    int32_t token;
    size_t bytes;
    HARK_TRY(hark_decoding_choose(s->decoding, &sampling, (uint64_t)i, &token));
    const char *const text = hark_model_token_text(s->model, token, &bytes);
    if (is_end(s, token, text, bytes)) break;
    append_text(&s->text, text, bytes);
    if (hark_decoding_length(s->decoding) == hark_decoding_capacity(s->decoding)) break;
    HARK_TRY(hark_decoding_step(s->decoding, token));
  }
  return s->text.status;
}

static hark_status write_sample(sampler *s, const hark_run *run, int64_t step) {
  char path[HARK_PATH_BYTES];
  hark_jsonl file = {0};
  HARK_TRY(hark_run_path(s->context, run, HARK_SAMPLES_FILE, path));
  HARK_TRY(hark_jsonl_open(s->context, &file, path));
  hark_jsonl_begin(&file);
  hark_jsonl_integer(&file, "step", step);
  hark_jsonl_string(&file, "prompt", s->config->run.sample_prompt);
  hark_jsonl_bytes(&file, "text", hark_text_get(&s->text), s->text.length);
  const hark_status written = hark_jsonl_end(s->context, &file), closed = hark_jsonl_close(s->context, &file);
  return written != HARK_OK ? written : closed;
}

size_t hark_samples_bytes(const hark_config *config, int64_t parameters) {
  const hark_network_config *const model = &config->model;
  if (config->run.sample_tokens == 0) return 0;
  const double cache = 2.0 * (double)model->layers * (double)model->context * (double)model->width * (double)model->key_heads /
                       (double)hark_max(1, model->heads);
  return ((size_t)parameters + (size_t)cache) * sizeof(float);
}

hark_status hark_samples_add(hark_context *context, const hark_config *config, const hark_run *run, int64_t step,
                             const hark_samples_stop *stop) {
  if (config->run.sample_tokens == 0 || stop->asked(stop->user)) return HARK_OK;
  char checkpoint[32];
  (void)snprintf(checkpoint, sizeof checkpoint, "step-%" PRId64, step);
  sampler s = {
      .context = context, .config = config, .stop = stop, .info = {.struct_size = sizeof s.info}, .text = hark_text_empty(context)};
  const hark_model_options options = {.struct_size = sizeof options, .checkpoint = checkpoint, .skip_verification = true};
  hark_status status = hark_model_load(context, run->path, &options, &s.model);
  if (status == HARK_OK) status = hark_model_describe(s.model, &s.info);
  if (status == HARK_OK) status = read_prompt(&s);
  if (status == HARK_OK) status = continue_text(&s);
  if (status == HARK_OK) status = write_sample(&s, run, step);
  hark_decoding_destroy(&s.decoding);
  hark_model_destroy(context, &s.model);
  hark_text_free(&s.text);
  return status == HARK_NOT_FINITE || status == HARK_CANCELLED ? HARK_OK : status;
}
