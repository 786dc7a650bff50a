/* trained_heads.c - see trained_heads.h. The model runs as usual, on the backend cpu in f32; the inputs of its attention are kept in
 * float64. */
#include "lab/trained_heads.h"

#include "data/inputs.h"
#include "io/files.h"
#include "models/encoder.h"
#include "models/model.h"
#include "models/observe.h"

static const hark_option option_rows[] = {
    {"run", "run", HARK_OPTION_STRING, offsetof(hark_lab_trained_values, run), "", NULL, NULL, "RUN",
     "approximation, rank-map: a run, a checkpoint or a file with a trained model, whose heads are measured too",
     "$1 approximation|rank-map|all"},
    {"text", "text", HARK_OPTION_STRING, offsetof(hark_lab_trained_values, text), "", NULL, NULL, "FILE",
     "approximation, rank-map: the text that the model reads; for models of pictures, the grey values as bytes",
     "$1 approximation|rank-map|all"},
};
const hark_option_table hark_lab_trained_options = {option_rows, 2, NULL, sizeof(hark_lab_trained_values), false};

/* One pass. */
typedef struct reading {
  hark_lab *lab;
  hark_context *context; /* the model's */
  hark_model *model;
  hark_trained_heads *heads;
} reading;

/* out[h, t, :] <- rows[t, h / shared, :], of f32 rows in the backend's memory. */
static hark_status keep(const reading *r, const hark_tensor *tensor, int64_t shared, double *out) {
  const hark_trained_heads *const heads = r->heads;
  const int64_t count = hark_tensor_count(tensor), width = heads->heads / shared * heads->head_dim;
  const size_t bytes = (size_t)count * sizeof(float);
  void *memory = NULL;
  HARK_TRY(hark_allocate(r->context, bytes, &memory));
  const float *const rows = memory;
  const hark_status status = hark_tensor_read(r->context, tensor, memory);
  for (int64_t h = 0; status == HARK_OK && h < heads->heads; h++)
    for (int64_t t = 0; t < heads->length; t++)
      for (int64_t i = 0; i < heads->head_dim; i++)
        out[(h * heads->length + t) * heads->head_dim + i] = (double)rows[t * width + h / shared * heads->head_dim + i];
  hark_release(r->context, memory, bytes);
  return status;
}

static hark_status take_layer(void *user, const hark_attention_application *seen) {
  const reading *const r = user;
  const hark_trained_heads *const heads = r->heads;
  const hark_attention_desc *const desc = hark_attention_plan_desc(((const hark_attention_attributes *)seen->attributes)->plan);
  hark_attention_desc *const similarity = &heads->similarities[seen->layer];
  const hark_tensor *const query = &seen->inputs[0], *const key = &seen->inputs[1], *const value = &seen->inputs[2];
  *similarity = hark_attention_desc_default();
  similarity->kernel = desc->kernel;
  if (desc->kernel == HARK_KERNEL_RBF)
    similarity->sigma = desc->sigma;
  else
    similarity->scale = desc->scale;
  const int64_t first = seen->layer * heads->heads * heads->length * heads->head_dim, shared = query->shape[2] / key->shape[2];
  HARK_TRY(keep(r, query, 1, heads->query + first));
  HARK_TRY(keep(r, key, shared, heads->key + first));
  return keep(r, value, shared, heads->value + first);
}

static hark_status make_room(hark_lab *lab, const hark_network_config *config, int64_t length, hark_trained_heads *out) {
  *out = (hark_trained_heads){.layers = config->layers,
                              .heads = config->heads,
                              .length = length,
                              .head_dim = hark_network_head_dim(config),
                              .causal = hark_architecture_of(config->architecture)->causal};
  const int64_t count = out->layers * out->heads * length * out->head_dim;
  void *similarities;
  HARK_TRY(hark_lab_allocate(lab, (size_t)config->layers * sizeof *out->similarities, &similarities));
  HARK_TRY(hark_lab_numbers(lab, count, &out->query));
  HARK_TRY(hark_lab_numbers(lab, count, &out->key));
  HARK_TRY(hark_lab_numbers(lab, count, &out->value));
  out->similarities = similarities;
  return HARK_OK;
}

#define GREY_VALUES 256

/* Text to tokens, or for models of grey values each byte to one. */
static hark_status encode(const reading *r, const hark_text *text, int32_t *tokens, size_t *count) {
  const char *const bytes = hark_text_get(text);
  const hark_status status = hark_model_encode(r->context, r->model, bytes, text->length, true, tokens, count);
  if (status != HARK_UNSUPPORTED || r->model->examples == NULL || r->model->network->config.vocabulary != HARK_TOKEN_RESERVED + GREY_VALUES)
    return status;
  for (*count = 0; *count < text->length; (*count)++) tokens[*count] = HARK_TOKEN_RESERVED + (unsigned char)bytes[*count];
  return HARK_OK;
}

/* With the text in memory. */
static hark_status read_text(reading *r, const char *model, const hark_text *text, const char *path, int64_t least, int64_t longest) {
  const hark_network_config *const config = &r->model->network->config;
  const int64_t front = hark_encoder_front(config);
  const size_t bytes = (text->length + 1) * sizeof(int32_t);
  void *memory = NULL;
  size_t count = 0;
  HARK_TRY(hark_allocate(r->context, bytes, &memory));
  int32_t *const tokens = memory;
  tokens[0] = HARK_TOKEN_CLASS;
  hark_status status = encode(r, text, tokens + front, &count);
  const int64_t length = hark_min(hark_min(longest, config->context), (int64_t)count + front);
  if (status == HARK_OK && config->context < least)
    status = hark_fail(r->context, HARK_BAD_FILE, "%s: a context of %lld, expected at least %lld", model, (long long)config->context,
                       (long long)least);
  else if (status == HARK_OK && length < least)
    status = hark_fail(r->context, HARK_BAD_FILE, "%s: %lld tokens, expected at least %lld", path, (long long)count, (long long)least);
  if (status == HARK_OK) status = make_room(r->lab, config, length, r->heads);
  if (status == HARK_OK) status = hark_network_observe(r->context, r->model->network, tokens, length, take_layer, r);
  hark_release(r->context, memory, bytes);
  return status;
}

/* Refuses a model whose logits have terms other than queries and keys. The caller destroys r->model, also after a failure. */
static hark_status load(reading *r, const char *model) {
  HARK_TRY(hark_model_load(r->context, model, NULL, &r->model));
  const hark_network_config *const config = &r->model->network->config;
  if (config->architecture != HARK_ARCHITECTURE_DECODER && config->architecture != HARK_ARCHITECTURE_ENCODER &&
      config->architecture != HARK_ARCHITECTURE_MASKED_ENCODER)
    return hark_fail(r->context, HARK_UNSUPPORTED, "%s: the model is of architecture %s, expected decoder, encoder or masked_encoder",
                     model, r->model->network->architecture->name);
  if (config->features > 0)
    return hark_fail(r->context, HARK_UNSUPPORTED, "%s: the model reads vectors, expected one that reads texts", model);
  const char *const reason =
      config->attention.forget_gate                                                                ? "forget gates"
      : config->attention.contextual_positions > 0                                                 ? "contextual positions"
      : hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_CME)            ? "weights of kernel ridge regression"
      : hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_STICK_BREAKING) ? "stick-breaking weights"
      : hark_positional_source_given(&r->model->network->positional_source)                        ? "a positional kernel"
                                                                                                   : NULL;
  if (reason == NULL) return HARK_OK;
  return hark_fail(r->context, HARK_UNSUPPORTED, "%s: its attention knows more than queries and keys (%s), which is not measured here",
                   model, reason);
}

static hark_status read_with(reading *r, const char *model, const char *path, int64_t least, int64_t longest) {
  hark_text text = hark_text_empty(r->context);
  bool cut = false;
  hark_status status = load(r, model);
  if (status == HARK_OK) status = hark_input_read_beginning(r->context, path, hark_input_beginning_bytes(longest), &text, &cut);
  if (status == HARK_OK) status = read_text(r, model, &text, path, least, longest);
  hark_text_free(&text);
  return status;
}

/* The model's own context, on the backend cpu. */
static hark_status open_context(hark_context *caller, hark_context **out) {
  const hark_context_options options = {
      .struct_size = sizeof options, .allocator = &caller->allocator, .threads = hark_context_threads(caller)};
  const hark_status made = hark_context_create(&options, out);
  return made == HARK_OK ? HARK_OK : hark_fail(caller, made, "%s", hark_status_text(made));
}

/* Passes a failure's message on, and frees what `load` created. */
static hark_status close_context(hark_context *caller, reading *r, hark_status status) {
  if (status != HARK_OK) status = hark_fail(caller, status, "%s", hark_context_message(r->context));
  hark_model_destroy(r->context, &r->model);
  hark_context_destroy(&r->context);
  return status;
}

hark_status hark_trained_heads_check(hark_context *context, const void *own) {
  const hark_lab_trained_values *const values = own;
  const char *const paths[] = {values->run, values->text};
  reading r = {.model = NULL};
  if ((values->run[0] != 0) != (values->text[0] != 0))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "--run RUN and --text FILE go together: the model reads the text");
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    hark_path_kind kind;
    if (paths[i][0] == 0) continue;
    HARK_TRY(hark_path_examine(context, paths[i], &kind));
    if (kind == HARK_PATH_NONE)
      return hark_fail(context, HARK_NOT_FOUND, "%s: there is no such %s", paths[i], i == 0 ? "run, checkpoint or file" : "file");
  }
  if (values->run[0] == 0) return HARK_OK;
  HARK_TRY(open_context(context, &r.context));
  return close_context(context, &r, load(&r, values->run));
}

hark_status hark_trained_heads_read(hark_lab *lab, const char *model, const char *text, int64_t least, int64_t longest,
                                    hark_trained_heads *out) {
  reading r = {.lab = lab, .heads = out};
  HARK_TRY(open_context(lab->context, &r.context));
  return close_context(lab->context, &r, read_with(&r, model, text, least, longest));
}
