/* report_text.c - how the runs of a report read a text: the attention of every head, or the chunks of architecture ahca. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention/layer.h"
#include "cli/report/report.h"
#include "data/inputs.h"
#include "io/json_write.h"
#include "json/json.h"
#include "models/encoder.h"
#include "models/model.h"
#include "models/predictor_watch.h"
#include "nn/attention_weights.h"
#include "nn/self_attention.h"
#include "train/ahca_statistics.h"

#define MAPS 64                /* of a run, at most: the first heads of every layer */
#define ALL_MAP_NUMBERS 700000 /* of all runs, which share them equally: they are the largest part of the page */
#define UTF8_BYTES 4           /* of a character, at most */
#define SAME_CELL 1e-6         /* of the largest weight: neighbouring keys with weights that differ by less are one cell */

/* The reading of one run. */
typedef struct text_reading {
  hark_report *report;
  hark_context *context;
  int64_t index; /* of the run */
  hark_model *model;
  hark_predictor *predictor;
  hark_prediction_shape shape;
  const char *text;
  size_t bytes;
  int32_t *tokens;
  int64_t count, rows; /* tokens; with the token that an encoder inserts */
  int64_t most_maps, maps;
  float *weights; /* [heads, rows, rows] of that layer */
  size_t weight_bytes;
  hark_text layers; /* items of a JSON list */
} text_reading;

/* ---- maps ---- */

static void append_base64(const unsigned char *bytes, int64_t count, hark_text *text) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int64_t i = 0; i < count; i += 3) {
    const uint32_t three =
        (uint32_t)bytes[i] << 16 | (uint32_t)(i + 1 < count ? bytes[i + 1] : 0) << 8 | (i + 2 < count ? bytes[i + 2] : 0);
    const char four[] = {digits[three >> 18], digits[three >> 12 & 63], i + 1 < count ? digits[three >> 6 & 63] : '=',
                         i + 2 < count ? digits[three & 63] : '='};
    hark_text_append_bytes(text, four, sizeof four);
  }
}

/* The root of a weight's size in 127 steps, with its sign: kernel ridge attention has negative ones. */
static unsigned char byte_of(double weight, double most) {
  const double part = most > 0 ? sqrt(fmin(fabs(weight) / most, 1)) : 0;
  return (unsigned char)(128 + (weight < 0 ? -1 : 1) * (int)lround(127 * part));
}

static double largest(const float *weights, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(weights[i])) most = fmax(most, fabs((double)weights[i]));
  return most;
}

/* One bit for each entry: it begins a cell, as its weight is not that of the key before it. */
static bool begins_cell(const float *row, int64_t key, double most) {
  return key == 0 || !(fabs((double)row[key] - (double)row[key - 1]) <= SAME_CELL * most);
}

/* {"max":0.9,"map":"base64","cells":"base64"} */
static hark_status append_map(const text_reading *r, const float *weights, bool cells, hark_text *text) {
  const int64_t count = r->rows * r->rows;
  const double most = largest(weights, count);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(r->context, 2 * (size_t)count, &memory));
  unsigned char *const map = memory, *const bits = map + count;
  for (int64_t i = 0; i < count; i++) {
    map[i] = byte_of(isfinite(weights[i]) ? (double)weights[i] : 0, most);
    if (begins_cell(weights + i - i % r->rows, i % r->rows, most)) bits[i / 8] |= (unsigned char)(1u << i % 8);
  }
  hark_text_append(text, "{\"max\":%.4g,\"map\":\"", most);
  append_base64(map, count, text);
  hark_text_append(text, cells ? "\",\"cells\":\"" : "\"");
  if (cells) append_base64(bits, (count + 7) / 8, text);
  hark_text_append(text, cells ? "\"}" : "}");
  hark_release(r->context, memory, 2 * (size_t)count);
  return text->status;
}

/* The structure of a layer's attention in words, or its normalisation where that is not softmax. */
static const char *kind_of(const hark_self_attention_spec *spec) {
  if (spec->normalisation == HARK_NORMALISATION_STICK_BREAKING) return "stick-breaking";
  return spec->normalisation == HARK_NORMALISATION_CME ? "kernel ridge" : hark_attention_structure_name(spec->structure);
}

/* A layer of which all weights are there. */
static hark_status append_layer(text_reading *r, int64_t layer, const hark_self_attention_spec *spec) {
  hark_text *const text = &r->layers;
  hark_text_append(text, "%s\n{\"layer\":%" PRId64 ",\"kind\":\"%s\",\"heads\":[", text->length > 0 ? "," : "", layer, kind_of(spec));
  bool begun = false;
  const int64_t share = hark_max(1, r->most_maps / r->model->network->config.layers);
  for (int64_t head = 0; head < hark_min(share, spec->heads) && r->maps < r->most_maps; head++, r->maps++) {
    hark_text_append(text, begun ? "," : "");
    HARK_TRY(append_map(r, r->weights + head * r->rows * r->rows, spec->structure == HARK_STRUCTURE_HIERARCHICAL, text));
    begun = true;
  }
  hark_text_append(text, "],\"all_heads\":%" PRId64 "}", spec->heads);
  return text->status;
}

/* Copies a block's columns into the layer's matrices. */
static hark_status take_columns(void *user, const hark_weights_block *block) {
  const text_reading *const r = user;
  for (int64_t head = 0; head < block->heads; head++)
    for (int64_t row = 0; row < block->queries; row++)
      memcpy(r->weights + (head * r->rows + row) * r->rows + block->first, block->weights + (row * block->heads + head) * block->keys,
             (size_t)block->keys * sizeof(float));
  return HARK_OK;
}

static hark_status take_layer(void *user, const hark_attention_application *seen) {
  text_reading *const r = user;
  const hark_self_attention_spec *const spec = &r->model->network->blocks[seen->layer].attention.spec;
  if (seen->inputs[0].data == NULL) return HARK_OK; /* a shape-only run */
  if (r->weights == NULL) {
    r->weight_bytes = (size_t)(spec->heads * r->rows * r->rows) * sizeof(float);
    HARK_TRY(hark_allocate_zero(r->context, r->weight_bytes, (void **)&r->weights));
  }
  HARK_TRY(hark_attention_weights_visit(r->context, seen, take_columns, r));
  return append_layer(r, seen->layer, spec);
}

/* ---- reading ---- */

/* *lacking: the model's vocabulary lacks something in the text, which becomes its unknown token. */
static hark_status tokenize(text_reading *r, int32_t *tokens, size_t *found, bool *lacking) {
  const hark_status status = hark_model_tokenize(r->context, r->model, r->text, r->bytes, false, true, tokens, r->bytes, found);
  *lacking = status == HARK_BAD_FILE;
  return *lacking ? hark_model_tokenize(r->context, r->model, r->text, r->bytes, true, true, tokens, r->bytes, found) : status;
}

static hark_status note_unknown(const text_reading *r) {
  char message[HARK_MESSAGE_BYTES];
  int64_t count = 0;
  for (int64_t i = 0; i < r->count; i++) count += r->tokens[i] == HARK_TOKEN_UNKNOWN;
  if (count == 0) return HARK_OK;
  (void)snprintf(message, sizeof message,
                 "%.300s: %" PRId64 " of %" PRId64 " tokens of the text are the unknown token: the model's vocabulary lacks what is there",
                 r->report->runs[r->index].path, count, r->count);
  return hark_report_note(r->report, r->index, message);
}

/* The text's first tokens, after the one that begins a sentence. */
static hark_status take_tokens(text_reading *r) {
  hark_model_info info = {.struct_size = sizeof info};
  size_t found = 0;
  HARK_TRY(hark_model_describe(r->model, &info));
  const int64_t begin = info.begin != 0, most = hark_min(r->report->values->tokens, r->shape.longest);
  bool lacking = false;
  const hark_status status = tokenize(r, r->tokens + begin, &found, &lacking);
  const char *const file = r->report->values->file;
  if (status != HARK_OK) hark_fail_prefix(r->context, "%s: %s%s", r->report->runs[r->index].path, file, file[0] != '\0' ? ": " : "");
  HARK_TRY(status);
  if (begin) r->tokens[0] = (int32_t)info.begin;
  r->count = hark_min(most, (int64_t)hark_min((int64_t)found, (int64_t)r->bytes) + begin);
  r->rows = r->count + hark_encoder_front(&r->model->network->config);
  if (r->count == 0) return hark_fail(r->context, HARK_BAD_FILE, "%s: the text has no tokens", r->report->runs[r->index].path);
  return lacking ? note_unknown(r) : HARK_OK;
}

/* Refuses models that read something else than one text. */
static hark_status check_model(const text_reading *r, const char *path) {
  if (r->shape.features > 0) return hark_fail(r->context, HARK_UNSUPPORTED, "%s: reads real vectors, and --text has tokens", path);
  if (r->shape.parts > 1) return hark_fail(r->context, HARK_UNSUPPORTED, "%s: reads pairs of sequences, and --text is one", path);
  return HARK_OK;
}

static hark_status predict(text_reading *r, const hark_predictor_watch *watch) {
  const int64_t offsets[] = {0, r->count}, rows = r->shape.of_tokens ? r->rows : 1;
  const hark_predictor_options how = {.struct_size = sizeof how, .examples = 1, .tokens = r->count};
  const hark_prediction_input input = {.struct_size = sizeof input, .examples = 1, .offsets = offsets, .tokens = r->tokens};
  size_t bytes = 0;
  void *numbers = NULL;
  HARK_TRY(hark_predictor_create(r->context, r->model, &how, &r->predictor));
  HARK_TRY(hark_size_multiply(r->context, (size_t)(rows * r->shape.outputs), sizeof(float), &bytes));
  HARK_TRY(hark_allocate(r->context, bytes, &numbers));
  hark_predictor_set_watch(r->predictor, watch);
  const hark_status status = hark_predictor_run(r->predictor, &input, numbers, (size_t)(rows * r->shape.outputs));
  hark_release(r->context, numbers, bytes);
  return status;
}

/* ["The", " ", "quick"]: parts of characters become U+FFFD. */
static void append_tokens(const text_reading *r, hark_text *text) {
  hark_text_append(text, "[");
  if (r->rows > r->count) hark_text_append(text, "\"\\u25c6\",");
  for (int64_t i = 0; i < r->count; i++) {
    size_t bytes = 0;
    const char *const token = hark_model_token_text(r->model, r->tokens[i], &bytes);
    hark_text_append(text, i > 0 ? "," : "");
    hark_json_append_bytes(text, token, bytes);
  }
  hark_text_append(text, "]");
}

static void begin_item(const text_reading *r, bool begun, hark_text *text) {
  hark_text_append(text, "%s\n{\"run\":%" PRId64 ",\"tokens\":", begun ? "," : "", r->report->runs[r->index].index);
  append_tokens(r, text);
}

static hark_status add_chunks(text_reading *r, bool begun) {
  hark_ahca_trace trace = {0};
  hark_text list = hark_text_empty(r->context);
  hark_ahca_statistics statistics = {.list = &list, .listed = 1};
  const hark_predictor_watch watch = {.trace = &trace};
  hark_status status = predict(r, &watch);
  if (status == HARK_OK) status = hark_ahca_statistics_add(r->context, hark_predictor_tape(r->predictor), &trace, r->count, &statistics);
  if (status == HARK_OK) {
    begin_item(r, begun, &r->report->data);
    hark_text_append(&r->report->data, ",\"chunks\":[%s]}", hark_text_get(&list));
  }
  hark_text_free(&list);
  return status;
}

static hark_status add_maps(text_reading *r, bool begun) {
  const hark_predictor_watch watch = {.attention = take_layer, .user = r};
  r->most_maps = hark_min(MAPS, ALL_MAP_NUMBERS / (r->report->detailed * r->rows * r->rows));
  HARK_TRY(predict(r, &watch));
  begin_item(r, begun, &r->report->data);
  hark_text_append(&r->report->data, ",\"layers\":[%s]}", hark_text_get(&r->layers));
  return r->report->data.status;
}

static hark_status read_model(text_reading *r, const char *path, bool begun) {
  const char *const checkpoint = r->report->values->checkpoint;
  const hark_model_options how = {.struct_size = sizeof how, .checkpoint = checkpoint[0] != '\0' ? checkpoint : NULL};
  HARK_TRY(hark_model_load(r->context, path, &how, &r->model));
  r->shape.struct_size = sizeof r->shape;
  HARK_TRY(hark_predictor_shape(r->model, &r->shape));
  HARK_TRY(check_model(r, path));
  HARK_TRY(take_tokens(r));
  if (r->model->network->config.architecture == HARK_ARCHITECTURE_AHCA) return add_chunks(r, begun);
  if (r->model->network->blocks != NULL) return add_maps(r, begun);
  return hark_fail(r->context, HARK_UNSUPPORTED, "%s: architecture %s has neither attention maps nor chunks of a text", path,
                   r->model->network->architecture->name);
}

size_t hark_report_utf8_bytes(const char *text, size_t bytes) {
  const unsigned char *const begin = (const unsigned char *)text;
  size_t at = 0, length = 1;
  while (at < bytes && length > 0) {
    length = hark_json_sequence_length(begin + at, bytes - at);
    at += length;
  }
  return at;
}

/* A model of bytes reads them all; the page cannot show them. */
static hark_status warn_of_bytes(hark_report *report) {
  char message[HARK_MESSAGE_BYTES];
  const size_t length = hark_report_utf8_bytes(hark_text_get(&report->words), report->words.length);
  const char *name = report->values->file;
  if (length == report->words.length) return HARK_OK;
  if (hark_input_is_standard(name)) name = HARK_STANDARD_INPUT_NAME;
  (void)snprintf(message, sizeof message, "%.300s: is not UTF-8 at byte offset %zu: such bytes are shown as U+FFFD",
                 name[0] != '\0' ? name : "--text", length);
  return hark_report_warn(report, message);
}

/* A run that cannot read the text is a problem of this run. *begun: an item was appended. */
static hark_status add_text(hark_report *report, int64_t run, const hark_text *words, bool *begun) {
  const size_t token_bytes = (words->length + 1) * sizeof(int32_t);
  text_reading r = {.report = report,
                    .context = report->context,
                    .index = run,
                    .text = hark_text_get(words),
                    .bytes = words->length,
                    .layers = hark_text_empty(report->context)};
  HARK_TRY(hark_allocate(report->context, token_bytes, (void **)&r.tokens));
  hark_status status = read_model(&r, report->runs[run].path, *begun);
  *begun = *begun || status == HARK_OK;
  if (status == HARK_OK) status = warn_of_bytes(report);
  hark_text_free(&r.layers);
  hark_predictor_destroy(&r.predictor);
  hark_model_destroy(report->context, &r.model);
  hark_release(report->context, r.weights, r.weight_bytes);
  hark_release(report->context, r.tokens, token_bytes);
  return status;
}

static hark_status read_file(hark_report *report) {
  const hark_report_values *const values = report->values;
  const char *const name = hark_input_is_standard(values->file) ? HARK_STANDARD_INPUT_NAME : values->file;
  bool cut = false; /* the tokens are the first ones anyhow */
  HARK_TRY(hark_input_read_beginning(report->context, values->file, hark_input_beginning_bytes(values->tokens), &report->words, &cut));
  const size_t whole = hark_report_utf8_bytes(hark_text_get(&report->words), report->words.length);
  if (cut && report->words.length - whole < UTF8_BYTES) hark_text_resize(&report->words, whole); /* the beginning of a character */
  return report->words.length > 0 ? HARK_OK : hark_fail(report->context, HARK_BAD_FILE, "%s: is empty, expected a text", name);
}

hark_status hark_report_read_words(hark_report *report) {
  if (report->values->file[0] != '\0') return hark_report_refuse_file(report, "file", read_file(report));
  hark_text_append(&report->words, "%s", report->values->text);
  return report->words.status;
}

hark_status hark_report_add_texts(hark_report *report) {
  const bool given = report->words.length > 0;
  bool begun = false;
  hark_text_append(&report->data, ",\"texts\":[");
  for (int64_t i = 0; i < report->detailed && given; i++)
    HARK_TRY(hark_report_keep_problem(report, report->runs[i].index, add_text(report, i, &report->words, &begun)));
  hark_text_append(&report->data, "],\"text_given\":%s", given ? "true" : "false");
  return report->data.status;
}
