/* embed.c - hark embed: one vector for each line of a text. Lines follow each other in passes without padding, in their order. */
#include <hark/predictor.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "cli/commands.h"
#include "cli/embed/embed_output.h"
#include "cli/embed/embed_text.h"
#include "cli/model.h"
#include "cli/threads.h"
#include "models/model.h"
#include "models/model_options.h"
#include "models/model_parts.h"

#define LINES_OF_PASS 1024 /* at most */
#define STANDARD_OUTPUT "/dev/stdout"

typedef struct embed_values {
  const char *output, *checkpoint, *tokenizer;
  int pooling, format, unknown, weights, precision;
  bool normalise, truncate;
  int64_t context, batch_tokens;
} embed_values;

/* In the order of hark_embedding, from HARK_EMBEDDING_MODEL on. */
#define POOLING_WORDS "model|mean|first|last|pooler"

#define AT(field) offsetof(embed_values, field)
static const hark_option options[] = {
    {"pooling", "pooling", HARK_OPTION_ENUM, AT(pooling), "model", POOLING_WORDS, NULL, NULL,
     "what represents a line; mean: the mean over its tokens; first, last: its first or last token; pooler: "
     "the output of the model's pooler for the first token; model: as the model specifies, otherwise the mean",
     NULL},
    {"normalise", "normalise", HARK_OPTION_BOOL, AT(normalise), "false", NULL, NULL, NULL,
     "divide every embedding by its Euclidean length; not given: as the model specifies", NULL},
    {"format", "format", HARK_OPTION_ENUM, AT(format), "jsonl", HARK_EMBED_FORMAT_WORDS, NULL, NULL,
     "format of the output; jsonl: a list of numbers per line; npy: f32 [lines, width] as a .npy file of "
     "NumPy; safetensors: the same as tensor \"embeddings\" of a safetensors file",
     NULL},
    {"output", "output o", HARK_OPTION_STRING, AT(output), STANDARD_OUTPUT, NULL, NULL, "FILE", "file to write", NULL},
    {"context", NULL, HARK_OPTION_INT, AT(context), "0", "[0, 16777216]", NULL, "N",
     "largest number of tokens of a line; 0: max_seq_length of sentence-transformers, or the model's context; "
     "it may be larger if the model's positions allow it",
     NULL},
    {"truncate", "truncate", HARK_OPTION_BOOL, AT(truncate), "true", NULL, NULL, NULL,
     "cut lines that have more tokens than --context; without cutting, such lines are an error", NULL},
    {"tokenizer", "tokenizer", HARK_OPTION_STRING, AT(tokenizer), "", NULL, NULL, "FILE",
     "a tokenizer.json, or a .model of SentencePiece; not given: the vocabulary of the model, or such a file "
     "or a vocab.txt in its folder",
     NULL},
    {"unknown", "unknown", HARK_OPTION_ENUM, AT(unknown), "error", "error|map", NULL, NULL,
     "what happens to characters outside the vocabulary of a run; error: they are an error; map: they become "
     "the unknown token",
     NULL},
    {"batch-tokens", "batch-tokens", HARK_OPTION_INT, AT(batch_tokens), "1024", "[1, 16777216]", NULL, NULL,
     "largest number of tokens of a pass; memory is needed for this number of tokens, or for --context tokens if that is more", NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME",
     "checkpoint of a run: best (default), last, or step-N", NULL},
    HARK_WEIGHTS_OPTION(embed_values, weights),
    {"precision", "precision", HARK_OPTION_ENUM, AT(precision), "f32", "f32|bf16", NULL, NULL,
     "precision of products; bf16: operands are rounded to bf16, and sums are f32; this is faster, and "
     "requires AVX512_BF16; the numbers of an embedding with Euclidean length 1 change by about 1e-3",
     NULL},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(embed_values), false};

typedef struct embedding_run {
  hark_invocation *call;
  const embed_values *values;
  hark_model *model;
  hark_predictor *predictor;
  hark_embed_text text;
  hark_embed_output output;
  hark_line_reader lines;
  /* A pass. */
  int64_t most_tokens, width, examples;
  int64_t *offsets; /* [LINES_OF_PASS + 1] */
  int32_t *tokens;  /* [most_tokens] */
  float *rows;      /* [LINES_OF_PASS, width] */
} embedding_run;

static const char *checkpoint_of(const embed_values *values) { return values->checkpoint[0] != '\0' ? values->checkpoint : NULL; }

/* ---- options of the model that are exchanged ---- */

static bool is_exchanged(const hark_invocation *call, const hark_model_option *row) {
  return !row->fact && hark_options_source(call->options, row->option.name) == HARK_SOURCE_COMMAND;
}

static size_t bytes_of(hark_option_type type) {
  static const size_t bytes[] = {[HARK_OPTION_BOOL] = sizeof(bool),       [HARK_OPTION_INT] = sizeof(int64_t),
                                 [HARK_OPTION_FLOAT] = sizeof(double),    [HARK_OPTION_STRING] = sizeof(const char *),
                                 [HARK_OPTION_ENUM] = sizeof(int),        [HARK_OPTION_LIST] = 0,
                                 [HARK_OPTION_DURATION] = sizeof(double), [HARK_OPTION_LAYERS] = sizeof(hark_layer_choice)};
  return bytes[type];
}

/* Of a text only whether there is one matters for conditions: its bytes belong to the description. */
static void note_text(const hark_model_option *row, const hark_network_config *from, hark_network_config *to) {
  const char *const text = *(const char *const *)hark_model_option_value(row, from);
  *(const char **)hark_model_option_field(row, to) = text != NULL && text[0] != '\0' ? "given" : "";
}

/* Copies the value of a row that has no list. */
static void copy_value(const hark_model_option *row, const hark_network_config *from, hark_network_config *to) {
  const size_t bytes = bytes_of(row->option.type);
  if (bytes > 0) memcpy(hark_model_option_field(row, to), hark_model_option_value(row, from), bytes);
}

/* Options that are not given are those of the model, on whose values the effect of the others depends. */
static hark_status check(hark_invocation *call) {
  hark_config *config = call->values[1];
  hark_description description;
  const embed_values *const values = call->values[0];
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  HARK_TRY(hark_command_check_checkpoint(call, hark_options_argument(call->options, 0), values->checkpoint));
  HARK_TRY(
      hark_model_read_description(call->context, hark_options_argument(call->options, 0), checkpoint_of(call->values[0]), &description));
  const hark_model_option *row;
  hark_status status = HARK_OK;
  for (int i = 0; status == HARK_OK && (row = hark_model_option_at(i)) != NULL; i++) {
    const bool given = is_exchanged(call, row);
    if (given && row->bond == HARK_BOND_WEIGHTS)
      status = hark_options_complain(call->context, call->options, row->option.name, "decides which weights the model has");
    else if (!given && row->option.type == HARK_OPTION_STRING)
      note_text(row, &description.config, &config->model);
    else if (!given)
      copy_value(row, &description.config, &config->model);
  }
  hark_description_close(call->context, &description);
  return status;
}

static hark_status exchange_list(hark_invocation *call, const hark_model_option *row, hark_network_config *config) {
  const hark_config *const given = call->values[1];
  const hark_model_list *const list = hark_model_list_of(row->option.name);
  const hark_string_list *const texts = hark_model_option_value(row, &given->model);
  hark_model_list_clear(list, config);
  for (int64_t i = 0; i < texts->count; i++)
    if (hark_model_list_read(list, texts->items[i], config) != HARK_LIST_READ)
      return hark_fail(call->context, HARK_BAD_CONFIGURATION, "%s: \"%.60s\" given, expected numbers in %s", row->option.name,
                       texts->items[i], row->option.range);
  return HARK_OK;
}

/* What depends on the former context keeps its value. */
static hark_status lengthen(hark_context *context, int64_t length, hark_network_config *config) {
  if (config->positions == HARK_POSITIONS_LEARNED)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "--context %" PRId64 ": model.positions is learned for the %" PRId64 " tokens of the model's context", length,
                     config->context);
  if (config->rotary.original_context == 0) config->rotary.original_context = config->context;
  config->attention.ridge *= pow((double)config->context / (double)length, config->attention.ridge_power);
  config->context = length;
  return HARK_OK;
}

static hark_status exchange(void *user, hark_context *context, hark_network_config *config) {
  hark_invocation *call = user;
  const hark_config *const given = call->values[1];
  const embed_values *const values = call->values[0];
  const hark_model_option *row;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    if (!is_exchanged(call, row)) continue;
    if (row->option.type == HARK_OPTION_LIST) HARK_TRY(exchange_list(call, row, config));
    copy_value(row, &given->model, config);
  }
  return values->context > config->context ? lengthen(context, values->context, config) : HARK_OK;
}

/* ---- opening ---- */

static hark_status load(embedding_run *run) {
  const embed_values *values = run->values;
  const hark_model_options how = {.struct_size = sizeof how,
                                  .checkpoint = checkpoint_of(values),
                                  .matrices = values->precision != 0 ? HARK_F32 : hark_command_matrix_type(values->weights)};
  const char *const path = hark_options_argument(run->call->options, 0);
  HARK_TRY(hark_model_load_edited(run->call->context, path, &how, exchange, run->call, &run->model));
  HARK_TRY(hark_embed_text_open(run->call->context, path, values->tokenizer, run->model, &run->text));
  run->text.unknown = values->unknown == 1 ? HARK_UNKNOWN_IS_MAPPED : HARK_UNKNOWN_IS_ERROR;
  run->text.truncate = values->truncate;
  return HARK_OK;
}

/* Roundings of all matrices, from which products are computed. */
static hark_status round_weights(embedding_run *run) {
  hark_context *context = run->call->context;
  hark_parameters *parameters = &run->model->network->parameters;
  const char *const slow = context->backend->slow_bf16 != NULL ? context->backend->slow_bf16(context) : NULL;
  if (run->values->precision == 0) return HARK_OK;
  if (slow != NULL) return hark_fail(context, HARK_BAD_CONFIGURATION, "--precision bf16: %s", slow);
  if (run->values->weights != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--precision bf16: rounds the weights, expected no --weights");
  HARK_TRY(hark_parameters_add_halves(context, parameters, true));
  return hark_parameters_round(context, parameters);
}

static hark_status make_predictor(embedding_run *run) {
  const embed_values *values = run->values;
  hark_prediction_shape shape = {.struct_size = sizeof shape};
  HARK_TRY(hark_predictor_shape(run->model, &shape));
  if (shape.features > 0)
    return hark_fail(run->call->context, HARK_UNSUPPORTED, "%s: reads real vectors, and a text has tokens",
                     hark_options_argument(run->call->options, 0));
  if (shape.parts > 1)
    return hark_fail(run->call->context, HARK_UNSUPPORTED, "%s: reads pairs of sequences, and a line is one",
                     hark_options_argument(run->call->options, 0));
  if (values->context > 0) run->text.limit = values->context;
  run->text.limit = run->text.limit > 0 ? hark_min(run->text.limit, shape.longest) : shape.longest;
  run->most_tokens = hark_max(values->batch_tokens, run->text.limit);
  const bool given = hark_command_is_given(run->call, "normalise");
  const hark_predictor_options how = {.struct_size = sizeof how,
                                      .examples = hark_min(LINES_OF_PASS, run->most_tokens),
                                      .tokens = run->most_tokens,
                                      .embedding = (hark_embedding)(HARK_EMBEDDING_MODEL + values->pooling),
                                      .normalise = !given              ? 0
                                                   : values->normalise ? 1
                                                                       : -1};
  return hark_predictor_create(run->call->context, run->model, &how, &run->predictor);
}

static hark_status make_pass(embedding_run *run) {
  hark_context *context = run->call->context;
  run->width = run->model->network->config.width;
  HARK_TRY(hark_allocate(context, (LINES_OF_PASS + 1) * sizeof *run->offsets, (void **)&run->offsets));
  HARK_TRY(hark_allocate(context, (size_t)run->most_tokens * sizeof *run->tokens, (void **)&run->tokens));
  HARK_TRY(hark_allocate(context, LINES_OF_PASS * (size_t)run->width * sizeof *run->rows, (void **)&run->rows));
  run->offsets[0] = 0;
  return HARK_OK;
}

static hark_status begin(embedding_run *run) {
  hark_invocation *call = run->call;
  const hark_config *config = call->values[1];
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, 0, config->run.deterministic));
  hark_command_warn_of_shared_cores(call);
  HARK_TRY(load(run));
  HARK_TRY(round_weights(run));
  HARK_TRY(make_predictor(run));
  HARK_TRY(make_pass(run));
  HARK_TRY(hark_embed_output_open(call->context, (hark_embed_format)run->values->format, run->values->output, run->width, &run->output));
  return hark_lines_open(call->context, &run->lines, hark_options_argument(call->options, 1));
}

static void end(embedding_run *run) {
  hark_context *context = run->call->context;
  hark_lines_close(&run->lines);
  hark_embed_output_close(&run->output);
  hark_predictor_destroy(&run->predictor);
  hark_embed_text_close(context, &run->text);
  hark_model_destroy(context, &run->model);
  hark_release(context, run->offsets, (LINES_OF_PASS + 1) * sizeof *run->offsets);
  hark_release(context, run->tokens, (size_t)run->most_tokens * sizeof *run->tokens);
  hark_release(context, run->rows, LINES_OF_PASS * (size_t)run->width * sizeof *run->rows);
}

/* ---- passes ---- */

static hark_status finish_pass(embedding_run *run) {
  if (run->examples == 0) return HARK_OK;
  const hark_prediction_input input = {
      .struct_size = sizeof input, .examples = run->examples, .offsets = run->offsets, .tokens = run->tokens};
  HARK_TRY(hark_predictor_run(run->predictor, &input, run->rows, (size_t)(run->examples * run->width)));
  HARK_TRY(hark_embed_output_add(&run->output, run->rows, run->examples));
  run->examples = 0;
  return HARK_OK;
}

/* Adds a line to the pass, which is finished before if it is full. */
static hark_status add_line(embedding_run *run) {
  const int32_t *ids = NULL;
  size_t count = 0;
  HARK_TRY(hark_embed_text_encode(run->call->context, &run->text, &run->lines, &ids, &count));
  if (run->examples == hark_min(LINES_OF_PASS, run->most_tokens) || run->offsets[run->examples] + (int64_t)count > run->most_tokens)
    HARK_TRY(finish_pass(run));
  const int64_t first = run->offsets[run->examples++];
  memcpy(run->tokens + first, ids, count * sizeof *ids);
  run->offsets[run->examples] = first + (int64_t)count;
  return HARK_OK;
}

static void report_cuts(const embedding_run *run) {
  const hark_embed_text *text = &run->text;
  if (text->cut > 0)
    hark_command_warn(
        run->call, "%" PRId64 " line%s longer than %" PRId64 " tokens %s cut, the first one is line %" PRId64 " of %" PRId64 " tokens",
        text->cut, text->cut == 1 ? "" : "s", text->limit, text->cut == 1 ? "was" : "were", text->first_line, text->first_tokens);
}

static hark_status embed_lines(embedding_run *run) {
  bool more = true;
  for (;;) {
    HARK_TRY(hark_lines_next(run->call->context, &run->lines, &more));
    if (!more) break;
    HARK_TRY(add_line(run));
  }
  HARK_TRY(finish_pass(run));
  report_cuts(run);
  return hark_embed_output_finish(&run->output);
}

static hark_status run(hark_invocation *call) {
  embedding_run own = {.call = call, .values = call->values[0]};
  hark_status status = begin(&own);
  if (status == HARK_OK) status = embed_lines(&own);
  end(&own);
  return status;
}

const hark_command hark_command_embed = {
    .name = "embed",
    .arguments = "RUN|FILE|FOLDER FILE|-",
    .summary = "print an embedding of each line of a text",
    .notes =
        "  hark embed MiniLM sentences.txt > embeddings.jsonl            a folder of sentence-transformers\n"
        "  hark embed MiniLM sentences.txt --format npy --output embeddings.npy\n"
        "  hark embed runs/masked texts.txt --pooling mean --normalise   the mean over the tokens of a masked encoder\n"
        "  hark embed MiniLM long.txt --structure hierarchical           the same weights with another attention\n"
        "  grep -v '^$' notes.txt | hark embed MiniLM -\n"
        "\n"
        "  Lines are packed one after another in their order, so nothing is computed for padding. docs/encoders.md describes this.\n",
    .argument_minimum = 2,
    .argument_maximum = 2,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
