/* inspect.c - hark inspect: what every attention head of a trained model attends to while it reads a text. The numbers are defined in
 * head_statistics.h. */
#include "cli/inspect/inspect.h"

#include <inttypes.h>

#include "attention/layer.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/threads.h"
#include "data/inputs.h"
#include "io/json_write.h"

typedef struct inspect_values {
  const char *text, *figure, *checkpoint, *tokenizer;
  int64_t distance;
} inspect_values;

#define AT(field) offsetof(inspect_values, field)
static const hark_option options[] = {
    {"text", "text", HARK_OPTION_STRING, AT(text), HARK_STANDARD_INPUT, NULL, NULL, "FILE",
     "the text, compressed or not, whose beginning is read, up to the model's context; -: standard input", NULL},
    {"distance", "distance", HARK_OPTION_INT, AT(distance), "0", "[0, 16777216]", NULL, "D",
     "report the fraction of the weight on keys more than D tokens away; 0: a quarter of the tokens that are read", NULL},
    {"figure", "figure", HARK_OPTION_STRING, AT(figure), "", NULL, NULL, "FILE",
     "draw maps of the heads as SVG, or as PNG if FILE ends in .png", NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME",
     "checkpoint of a run: best (default), last, or step-N", NULL},
    {"tokenizer", "tokenizer", HARK_OPTION_STRING, AT(tokenizer), "", NULL, NULL, "FILE",
     "a tokenizer.json, or a .model of SentencePiece; not given: the vocabulary of the model, or such a file "
     "in its folder",
     NULL},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(inspect_values), false};

/* ---- printing ---- */

static bool is_ridge(const hark_layer_statistics *layer) { return layer->normalisation == HARK_NORMALISATION_CME; }

static bool has_ridge(const hark_model_statistics *statistics) {
  bool any = false;
  for (int64_t layer = 0; layer < statistics->layers; layer++) any = any || is_ridge(&statistics->of_layers[layer]);
  return any;
}

static void append_head(const hark_layer_statistics *layer, int64_t number, int64_t head, bool ridge, hark_text *text) {
  const hark_head_statistics *const h = &layer->heads[head];
  hark_text_append(text, "%5" PRId64 " %5" PRId64 " %10.2f %9.3f %10.2f %10.4f %10.4f", number, head, h->keys, h->entropy, h->distance,
                   h->far, h->first);
  if (is_ridge(layer)) hark_text_append(text, " %10.4f", h->negative);
  hark_text_append(text, ridge && !is_ridge(layer) ? "          -\n" : "\n");
}

static void append_table(const hark_inspection *inspection, hark_text *text) {
  const hark_model_statistics *const statistics = &inspection->statistics;
  const bool ridge = has_ridge(statistics);
  hark_text_append_shown(text, inspection->model);
  hark_text_append(text, ": %" PRId64 " tokens, means over them; distances in tokens, beyond: more than %" PRId64 "\n", inspection->count,
                   inspection->distance);
  hark_text_append(text, "%5s %5s %10s %9s %10s %10s %10s%s\n", "layer", "head", "keys", "entropy", "distance", "beyond", "first",
                   ridge ? "   negative" : "");
  for (int64_t layer = 0; layer < statistics->layers; layer++)
    for (int64_t head = 0; head < statistics->heads; head++) append_head(&statistics->of_layers[layer], layer, head, ridge, text);
  if (ridge)
    hark_text_append(text,
                     "cme: coefficients of the values are no probabilities; the numbers are of their absolute values, divided by "
                     "the sum of these\n");
}

static void append_head_json(const hark_layer_statistics *layer, int64_t head, hark_text *text) {
  const hark_head_statistics *const h = &layer->heads[head];
  hark_text_append(text, "%s{\"head\": %" PRId64, head > 0 ? ", " : "", head);
  hark_json_append_member(text, "keys", h->keys);
  hark_json_append_member(text, "entropy", h->entropy);
  hark_json_append_member(text, "distance", h->distance);
  hark_json_append_member(text, "beyond", h->far);
  hark_json_append_member(text, "first", h->first);
  if (is_ridge(layer)) hark_json_append_member(text, "negative", h->negative);
  hark_text_append(text, "}");
}

static void append_json(const hark_inspection *inspection, hark_text *text) {
  const hark_model_statistics *const statistics = &inspection->statistics;
  hark_text_append(text, "{");
  hark_json_append_path(text, "model", inspection->model);
  hark_text_append(text, ", ");
  hark_json_append_path(text, "text", inspection->text);
  hark_text_append(text, ", \"tokens\": %" PRId64 ", \"cut\": %s, \"beyond_distance\": %" PRId64 ", \"layers\": [", inspection->count,
                   inspection->cut ? "true" : "false", inspection->distance);
  for (int64_t layer = 0; layer < statistics->layers; layer++) {
    const hark_layer_statistics *const of = &statistics->of_layers[layer];
    hark_text_append(text, "%s{\"layer\": %" PRId64 ", \"structure\": \"%s\", \"normalisation\": \"%s\", \"heads\": [",
                     layer > 0 ? ", " : "", layer, hark_attention_structure_name(of->structure),
                     hark_attention_normalisation_name(of->normalisation));
    for (int64_t head = 0; head < statistics->heads; head++) append_head_json(of, head, text);
    hark_text_append(text, "]}");
  }
  hark_text_append(text, "]}\n");
}

static hark_status print(hark_invocation *call, const hark_inspection *inspection) {
  hark_text text = hark_text_empty(call->context);
  if (call->json)
    append_json(inspection, &text);
  else
    append_table(inspection, &text);
  return hark_command_print(call, &text);
}

/* ---- computing ---- */

static hark_status load(hark_invocation *call, const char *path, hark_model **model) {
  const inspect_values *const values = call->values[0];
  const hark_model_options how = {.struct_size = sizeof how, .checkpoint = values->checkpoint[0] != '\0' ? values->checkpoint : NULL};
  HARK_TRY(hark_model_load(call->context, path, &how, model));
  if ((*model)->network->blocks != NULL) return HARK_OK;
  return hark_fail(call->context, HARK_UNSUPPORTED,
                   "%s: architecture %s has no attention heads that read a text, expected decoder, encoder or masked_encoder", path,
                   (*model)->network->architecture->name);
}

static hark_status compute(hark_invocation *call, const hark_model *model, const hark_inspect_text *text, hark_inspection *out) {
  const inspect_values *const values = call->values[0];
  out->count = text->count;
  out->cut = text->cut;
  out->distance = values->distance > 0 ? values->distance : hark_max(1, text->count / 4);
  if (text->cut)
    hark_command_warn(call, "%s: is longer than the model's context, the first %" PRId64 " tokens are read", out->text, text->count);
  if (text->unknown > 0)
    hark_command_warn(call, "%s: %" PRId64 " of %" PRId64 " tokens are the unknown token: the model's vocabulary lacks what is there",
                      out->text, text->unknown, text->count);
  return hark_head_statistics_compute(call->context, model, text->ids, text->count, out->distance, &out->statistics);
}

static hark_status inspect(hark_invocation *call, hark_inspection *out) {
  const inspect_values *const values = call->values[0];
  hark_model *model = NULL;
  hark_inspect_text text = {0};
  hark_status status = load(call, out->model, &model);
  if (status == HARK_OK) status = hark_inspect_text_read(call->context, model, out->model, values->tokenizer, values->text, &text);
  if (status == HARK_OK) status = compute(call, model, &text, out);
  hark_inspect_text_free(call->context, &text);
  hark_model_destroy(call->context, &model);
  return status;
}

static hark_status check(hark_invocation *call) {
  const inspect_values *const values = call->values[0];
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  return hark_command_check_checkpoint(call, hark_options_argument(call->options, 0), values->checkpoint);
}

static hark_status run(hark_invocation *call) {
  const inspect_values *const values = call->values[0];
  const hark_config *const config = call->values[1];
  hark_inspection inspection = {.model = hark_options_argument(call->options, 0),
                                .text = hark_input_is_standard(values->text) ? HARK_STANDARD_INPUT_NAME : values->text};
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, 0, config->run.deterministic));
  hark_command_warn_of_shared_cores(call);
  hark_status status = inspect(call, &inspection);
  if (status == HARK_OK) status = print(call, &inspection);
  if (status == HARK_OK && values->figure[0] != '\0') status = hark_inspect_draw(call, &inspection, values->figure);
  hark_model_statistics_free(call->context, &inspection.statistics);
  return status;
}

const hark_command hark_command_inspect = {
    .name = "inspect",
    .arguments = "RUN|FILE|FOLDER",
    .summary = "print what every attention head of a model attends to in a text",
    .notes =
        "  hark inspect runs/first --text notes.txt\n"
        "  hark inspect model.safetensors --text notes.txt --distance 256 --figure heads.svg\n"
        "  hark inspect MiniLM --text - --json < notes.txt\n"
        "\n"
        "  The numbers of a head are means over the tokens of the text:\n"
        "    keys       effective number of keys, which is exp of the entropy\n"
        "    entropy    entropy of the weights, in nats\n"
        "    distance   mean distance of the keys\n"
        "    beyond     fraction of the weight on keys more than --distance tokens away\n"
        "    first      fraction of the weight on the first token\n"
        "  The weight of a coarse key of hierarchical attention is divided equally among its tokens. docs/evaluation.md.\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
