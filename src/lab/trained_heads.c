/* trained_heads.c - see trained_heads.h. The model runs as usual, on the backend cpu in f32; the inputs of its attention are kept in
 * float64. */
#include "lab/trained_heads.h"

#include "data/inputs.h"
#include "models/model.h"

/* One pass. */
typedef struct reading {
  hark_lab *lab;
  hark_context *context; /* the model's */
  hark_model *model;
  hark_trained_heads *heads;
  hark_tensor tokens; /* i32 [1, length] */
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
  const hark_tensor *const query = &seen->inputs[0], *const key = &seen->inputs[1], *const value = &seen->inputs[2];
  if (query->data == NULL) return HARK_OK; /* a shape-only run */
  const int64_t first = seen->layer * heads->heads * heads->length * heads->head_dim, shared = query->shape[2] / key->shape[2];
  HARK_TRY(keep(r, query, 1, heads->query + first));
  HARK_TRY(keep(r, key, shared, heads->key + first));
  return keep(r, value, shared, heads->value + first);
}

static hark_status pass(reading *r, hark_attention_plan *const *plans) {
  hark_tape *tape;
  hark_value tokens = 0, logits = 0;
  HARK_TRY(hark_tape_create(r->context, &tape));
  hark_tape_set_recording(tape, false);
  const hark_forward forward = {
      .tape = tape, .parameters = &r->model->network->parameters, .plans = plans, .observe = take_layer, .observe_user = r};
  hark_status status = hark_tape_leaf(tape, &r->tokens, NULL, &tokens);
  if (status == HARK_OK) status = hark_stack_logits(r->context, r->model->network, &forward, tokens, true, &logits);
  hark_tape_destroy(&tape);
  return status;
}

/* The kernel of queries and keys in the layers' attention. */
static hark_status keep_similarities(const reading *r, hark_attention_plan *const *plans) {
  const hark_trained_heads *const heads = r->heads;
  for (int64_t layer = 0; layer < heads->layers; layer++) {
    const hark_attention_desc *const desc = hark_attention_plan_desc(plans[layer]);
    heads->similarities[layer] = hark_attention_desc_default();
    heads->similarities[layer].kernel = desc->kernel;
    if (desc->kernel == HARK_KERNEL_RBF)
      heads->similarities[layer].sigma = desc->sigma;
    else
      heads->similarities[layer].scale = desc->scale;
  }
  return HARK_OK;
}

static hark_status run_model(reading *r) {
  hark_attention_plan **plans = NULL;
  const int64_t length = r->heads->length;
  HARK_TRY(hark_network_plans_rectangular(r->context, r->model->network, 1, length, length, false, &plans));
  hark_status status = keep_similarities(r, plans);
  if (status == HARK_OK) status = pass(r, plans);
  hark_network_plans_destroy(r->context, r->model->network, &plans);
  return status;
}

static hark_status make_room(hark_lab *lab, const hark_network_config *config, int64_t length, hark_trained_heads *out) {
  *out =
      (hark_trained_heads){.layers = config->layers, .heads = config->heads, .length = length, .head_dim = config->width / config->heads};
  const int64_t count = out->layers * out->heads * length * out->head_dim;
  void *similarities;
  HARK_TRY(hark_lab_allocate(lab, (size_t)config->layers * sizeof *out->similarities, &similarities));
  HARK_TRY(hark_lab_numbers(lab, count, &out->query));
  HARK_TRY(hark_lab_numbers(lab, count, &out->key));
  HARK_TRY(hark_lab_numbers(lab, count, &out->value));
  out->similarities = similarities;
  return HARK_OK;
}

/* With the text in memory. */
static hark_status read_text(reading *r, const char *model, const hark_text *text, const char *path, int64_t least, int64_t longest) {
  const hark_network_config *const config = &r->model->network->config;
  const size_t bytes = hark_max((int64_t)text->length, 1) * sizeof(int32_t);
  void *memory = NULL;
  size_t count = 0;
  HARK_TRY(hark_allocate(r->context, bytes, &memory));
  hark_status status = hark_model_encode(r->context, r->model, hark_text_get(text), text->length, true, memory, &count);
  const int64_t length = hark_min(hark_min(longest, config->context), (int64_t)count), shape[] = {1, length};
  if (status == HARK_OK && config->context < least)
    status = hark_fail(r->context, HARK_BAD_FILE, "%s: a context of %lld, expected at least %lld", model, (long long)config->context,
                       (long long)least);
  else if (status == HARK_OK && length < least)
    status = hark_fail(r->context, HARK_BAD_FILE, "%s: %lld tokens, expected at least %lld", path, (long long)count, (long long)least);
  if (status == HARK_OK) status = hark_tensor_create(r->context, HARK_I32, 2, shape, &r->tokens);
  if (status == HARK_OK) status = hark_tensor_write(r->context, &r->tokens, memory);
  if (status == HARK_OK) status = make_room(r->lab, config, length, r->heads);
  if (status == HARK_OK) status = run_model(r);
  hark_tensor_destroy(r->context, &r->tokens);
  hark_release(r->context, memory, bytes);
  return status;
}

/* Refuses a model whose logits have terms other than queries and keys. The caller destroys r->model, also after a failure. */
static hark_status load(reading *r, const char *model) {
  HARK_TRY(hark_model_load(r->context, model, NULL, &r->model));
  HARK_TRY(hark_model_check_decoder(r->context, model, r->model));
  const hark_network_config *const config = &r->model->network->config;
  const char *const reason =
      config->attention.forget_gate                                                                ? "forget gates"
      : config->attention.contextual_positions > 0                                                 ? "contextual positions"
      : config->attention.hierarchical_bias                                                        ? "a learned bias"
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

hark_status hark_trained_heads_check(hark_context *context, const char *model) {
  reading r = {.model = NULL};
  HARK_TRY(open_context(context, &r.context));
  return close_context(context, &r, load(&r, model));
}

hark_status hark_trained_heads_read(hark_lab *lab, const char *model, const char *text, int64_t least, int64_t longest,
                                    hark_trained_heads *out) {
  reading r = {.lab = lab, .heads = out};
  HARK_TRY(open_context(lab->context, &r.context));
  return close_context(lab->context, &r, read_with(&r, model, text, least, longest));
}
