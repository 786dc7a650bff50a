/* operator_case.c - see operator_case.h.
 *
 * Equal extents of a sample are one size and stay equal. Values that depend on an extent change with it:
 *   whole numbers up to E - 1 where E is an extent (ids), or up to E (lengths)
 *   offsets: one more than sequences; the last one is at most the number of rows
 * Sizes in an operator's attributes are unchanged; where they no longer fit, the record refuses the case with its own message.
 */
#include "cli/bench/operator_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "cli/bench/bench.h"
#include "core/half.h"
#include "io/number.h"
#include "io/words.h"

/* ---- extents by letter ---- */

#define EXTENTS "BHLMNKD"
#define EXTENT_COUNT (sizeof EXTENTS - 1)
#define SHAPE_INPUTS 4

typedef struct lettered_case {
  int64_t extents[EXTENT_COUNT];
  bool bias, transpose_a, transpose_b;
} lettered_case;

/* A shape has a letter per extent; with '#' before it: whole numbers below N; '?': only with the word bias; '~': bf16. NULL ends the
 * inputs. */
typedef struct lettered_row {
  const char *name;
  const char *inputs[SHAPE_INPUTS + 1];
} lettered_row;

/* Short forms for layers of models; every record also has its samples. */
static const lettered_row rows[] = {
    {"linear", {"MK", "NK", "?N"}},
    {"linear_bf16", {"~MK", "~NK", "?N"}},
    {"matmul", {"BMK", "BKN"}},
    {"embedding", {"#M", "ND"}},
    {"layer_norm", {"MD", "D", "?D"}},
    {"rms_norm", {"MD", "D"}},
    {"gelu", {"MD"}},
    {"silu", {"MD"}},
    {"relu", {"MD"}},
    {"gated_silu", {"MD", "MD"}},
    {"gated_gelu", {"MD", "MD"}},
    {"add", {"MD", "MD"}},
    {"scale", {"MD"}},
    {"dropout", {"MD"}},
    {"cross_entropy", {"MN", "#M"}},
    {"rotary", {"BLD"}},
    {"adamw", {"N", "N", "N", "N"}},
    {"adafactor", {"NM", "NM", "N", "M"}},
    {"sum_squares", {"N"}},
    {"positional", {"MD"}}, /* M tables of N distances, with D parameters each */
};
#define ROWS ((int)(sizeof rows / sizeof rows[0]))

static int64_t extent_of(const lettered_case *c, char letter) {
  const char *at = strchr(EXTENTS, letter);
  return at == NULL ? 0 : c->extents[at - EXTENTS];
}

static void fill_attributes(const lettered_case *c, hark_operator_case *out) {
  const char *const name = out->op->name;
  const hark_random_stream stream = {.layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_DROPOUT)};
  hark_operator_case_attributes *const own = &out->own;
  if (strcmp(name, "matmul") == 0) own->matmul = (hark_matmul_attributes){c->transpose_a, c->transpose_b};
  if (strstr(name, "_norm") != NULL) own->norm.epsilon = 1e-5;
  if (strcmp(name, "dropout") == 0) own->dropout = (hark_dropout_attributes){0.1, stream};
  if (strcmp(name, "cross_entropy") == 0) own->cross_entropy = (hark_cross_entropy_attributes){1.0 / (double)extent_of(c, 'M'), 0, -1, 0};
  if (strcmp(name, "rotary") == 0) own->rotary = (hark_rotary_attributes){.heads = extent_of(c, 'H'), .base = 10000};
  if (strcmp(name, "positional") == 0)
    own->positional = (hark_positional_attributes){.text = out->expression, .distances = extent_of(c, 'N')};
  if (strcmp(name, "scale") == 0) own->scale.factor = 0.5;
  if (strcmp(name, "adamw") == 0) {
    own->adamw =
        (hark_adamw_attributes){.rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .gradient_scale = 1, .step = 1};
  }
  if (strcmp(name, "adafactor") == 0) {
    own->adafactor = (hark_adafactor_attributes){
        .rate = 1e-3, .beta2 = 0.99, .epsilon = 1e-30, .least_scale = 1e-3, .most = 1, .decay = 0.1, .gradient_scale = 1};
  }
  snprintf(out->expression, sizeof out->expression, "bank[%" PRId64 "](decay*periodic)", extent_of(c, 'H'));
  out->attributes = own;
}

/* Numbers are in the range of the record's first sample. */
static void lettered_input(const lettered_case *c, const char *letters, bool transposed, const hark_sample_input *like,
                           hark_sample_input *out) {
  const bool ids = letters[0] == '#';
  const bool half = letters[0] == '~';
  letters += ids || half || letters[0] == '?';
  *out = (hark_sample_input){.type = HARK_F32, .rank = (int)strlen(letters), .low = -1, .high = 1};
  if (like->type == HARK_F32) out->low = like->low, out->high = like->high;
  if (half) out->type = HARK_BF16;
  if (ids) out->type = HARK_I32, out->low = 0, out->high = (double)extent_of(c, 'N') - 1;
  for (int i = 0; i < out->rank; i++) out->shape[i] = extent_of(c, letters[i]);
  if (transposed) {
    const int64_t last = out->shape[out->rank - 1];
    out->shape[out->rank - 1] = out->shape[out->rank - 2];
    out->shape[out->rank - 2] = last;
  }
}

static hark_status read_letters(hark_context *context, const char *text, const lettered_row *row, hark_operator_case *out) {
  lettered_case c = {{0}, false, false, false};
  char letters[EXTENT_COUNT][2];
  hark_bench_field fields[EXTENT_COUNT + 3];
  for (const char *one = "BH"; *one != '\0'; one++) c.extents[strchr(EXTENTS, *one) - EXTENTS] = 1;
  for (size_t i = 0; i < EXTENT_COUNT; i++) {
    memcpy(letters[i], (char[]){EXTENTS[i], '\0'}, 2);
    fields[i] = (hark_bench_field){.name = letters[i], .type = HARK_BENCH_WHOLE, .whole = &c.extents[i]};
  }
  fields[EXTENT_COUNT] = (hark_bench_field){.name = "bias", .type = HARK_BENCH_FLAG, .flag = &c.bias};
  fields[EXTENT_COUNT + 1] = (hark_bench_field){.name = "ta", .type = HARK_BENCH_FLAG, .flag = &c.transpose_a};
  fields[EXTENT_COUNT + 2] = (hark_bench_field){.name = "tb", .type = HARK_BENCH_FLAG, .flag = &c.transpose_b};
  HARK_TRY(hark_bench_case_read(context, text, fields, EXTENT_COUNT + 3));
  for (int i = 0; row->inputs[i] != NULL; i++) {
    for (const char *letter = row->inputs[i]; *letter != '\0'; letter++) {
      if (strchr(EXTENTS, *letter) != NULL && extent_of(&c, *letter) == 0) {
        return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': %s needs %c<n>", text, row->name, *letter);
      }
    }
  }
  fill_attributes(&c, out);
  for (int i = 0; row->inputs[i] != NULL; i++) {
    if (row->inputs[i][0] == '?' && !c.bias) continue;
    const bool transposed = strcmp(row->name, "matmul") == 0 && (i == 0 ? c.transpose_a : c.transpose_b);
    lettered_input(&c, row->inputs[i], transposed, &out->op->samples[0].inputs[i], &out->inputs[i]);
  }
  return HARK_OK;
}

/* ---- samples ---- */

/* A size of the sample and its new value; from 0: multiplies every size above 1 by `to`. */
typedef struct change {
  int64_t from, to;
} change;

static bool has_extent(const hark_sample *sample, double value) {
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    const hark_sample_input *const input = &sample->inputs[i];
    for (int k = 0; input->type != HARK_NONE && k < input->rank; k++)
      if ((double)input->shape[k] == value) return true;
  }
  return false;
}

static double changed(const change *c, double size) {
  if (c->from == 0) return size > 1 ? size * (double)c->to : size;
  return size == (double)c->from ? (double)c->to : size;
}

static bool is_offsets(const hark_sample_input *input) {
  return (input->type == HARK_I32 || input->type == HARK_I64) && input->rank == 1 && input->low > input->high;
}

static void apply(const change *c, const hark_sample *sample, hark_sample_input *input) {
  if (input->type == HARK_NONE) return;
  const bool offsets = is_offsets(input), whole = input->type != HARK_F32 && input->type != HARK_F64 && input->type != HARK_BF16;
  for (int k = 0; k < input->rank; k++) input->shape[k] = (int64_t)changed(c, (double)(input->shape[k] - offsets)) + offsets;
  if (offsets)
    input->low = c->from == 0 ? input->low * (double)c->to : changed(c, input->low); /* the last one */
  else if (whole && has_extent(sample, input->high + 1))
    input->high = changed(c, input->high + 1) - 1;
  else if (whole && has_extent(sample, input->high))
    input->high = changed(c, input->high);
}

static bool is_change(const char *word) { return word[0] == 'x' || (word[0] >= '0' && word[0] <= '9'); }

/* "x8" or "257=1024". */
static bool read_change(const char *word, size_t length, const hark_sample *sample, change *out) {
  const char *const equals = memchr(word, '=', length);
  if (word[0] == 'x') {
    out->from = 0;
    return hark_number_read_whole(word + 1, length - 1, &out->to) && out->to >= 1;
  }
  if (equals == NULL || !hark_number_read_whole(word, (size_t)(equals - word), &out->from)) return false;
  return hark_number_read_whole(equals + 1, length - (size_t)(equals + 1 - word), &out->to) && out->from >= 1 && out->to >= 1 &&
         has_extent(sample, (double)out->from);
}

#define SIZES_BYTES 160

/* The different extents of a sample, for messages. */
static const char *sizes_of(const hark_sample *sample, char text[SIZES_BYTES]) {
  int64_t seen[HARK_MAX_INPUTS * HARK_MAX_RANK];
  int count = 0;
  size_t length = 0;
  text[0] = '\0';
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    for (int k = 0; sample->inputs[i].type != HARK_NONE && k < sample->inputs[i].rank; k++) {
      const int64_t extent = sample->inputs[i].shape[k];
      bool known = extent < 1;
      for (int n = 0; n < count; n++) known = known || seen[n] == extent;
      if (known || length >= SIZES_BYTES) continue;
      const int written = snprintf(text + length, SIZES_BYTES - length, "%s%" PRId64, count > 0 ? ", " : "", extent);
      length += written > 0 ? (size_t)written : 0;
      seen[count++] = extent;
    }
  }
  return text;
}

static hark_status read_sample(hark_context *context, const char *text, const char *words, const hark_sample *sample,
                               hark_operator_case *out) {
  out->attributes = sample->attributes;
  memcpy(out->inputs, sample->inputs, sizeof out->inputs);
  while (*words == ',') {
    const char *const word = words + 1;
    const size_t length = strcspn(word, ",");
    char sizes[SIZES_BYTES];
    change c;
    if (!read_change(word, length, sample, &c)) {
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "case '%s': '%.*s', expected x<n> for all extents times n, or E=<n> with an extent E of %s", text, (int)length, word,
                       sizes_of(sample, sizes));
    }
    for (int i = 0; i < HARK_MAX_INPUTS; i++) apply(&c, sample, &out->inputs[i]);
    words = word + length;
  }
  return HARK_OK;
}

/* The sample named after the colon; *words is the text after its name. For a record that has letters too, only changes may follow: a word
 * of the letters may equal a sample's name. */
static const hark_sample *find_sample(const hark_operator *op, const char *text, bool has_letters, const char **words) {
  const char *const name = text + hark_bench_case_head(text) + 1;
  const size_t length = strcspn(name, ",");
  *words = name + length;
  for (const char *at = *words; has_letters && *at == ','; at += 1 + strcspn(at + 1, ","))
    if (!is_change(at + 1)) return NULL;
  for (int i = 0; i < op->sample_count; i++)
    if (strlen(op->samples[i].name) == length && memcmp(op->samples[i].name, name, length) == 0) return &op->samples[i];
  return NULL;
}

/* ---- cases ---- */

static const char *operator_name(const void *user, int index) {
  int count;
  (void)user;
  return hark_operators(&count)[index]->name;
}

static hark_status refuse_name(hark_context *context, const char *text, const char *name) {
  int count;
  (void)hark_operators(&count);
  const char *const near = hark_nearest_word(name, count, operator_name, NULL);
  return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': there is no operator %s%s%s%s; hark bench operator all prints their names",
                   text, name, near != NULL ? " (did you mean " : "", near != NULL ? near : "", near != NULL ? "?)" : "");
}

static hark_status refuse_sample(hark_context *context, const char *text, const hark_operator *op, const lettered_row *row) {
  char names[240];
  size_t length = 0;
  for (int i = 0; i < op->sample_count && length < sizeof names; i++) {
    const int written = snprintf(names + length, sizeof names - length, "%s%s", i > 0 ? ", " : "", op->samples[i].name);
    length += written > 0 ? (size_t)written : 0;
  }
  return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': expected %s:SAMPLE or %s:SAMPLE,x<n>%s; its samples are %s", text, op->name,
                   op->name, row != NULL ? " or extents by letter" : "", names);
}

hark_status hark_operator_case_read(hark_context *context, const char *text, hark_operator_case *out) {
  const size_t head = hark_bench_case_head(text);
  char name[64];
  const char *words;
  const lettered_row *row = NULL;
  memset(out, 0, sizeof *out);
  snprintf(name, sizeof name, "%.*s", (int)head, text);
  out->op = hark_operator_find(name);
  if (out->op == NULL) return refuse_name(context, text, name);
  for (int i = 0; i < ROWS; i++)
    if (strcmp(rows[i].name, name) == 0) row = &rows[i];
  if (text[head] == '\0') return refuse_sample(context, text, out->op, row);
  const hark_sample *const sample = find_sample(out->op, text, row != NULL, &words);
  if (sample != NULL) return read_sample(context, text, words, sample, out);
  return row != NULL ? read_letters(context, text, row, out) : refuse_sample(context, text, out->op, row);
}

static double elements_of(const hark_sample *sample) {
  double elements = 0;
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    double product = sample->inputs[i].type == HARK_NONE ? 0 : 1;
    for (int k = 0; k < sample->inputs[i].rank; k++) product *= (double)sample->inputs[i].shape[k];
    elements += product;
  }
  return elements;
}

const char *hark_operator_case_largest(const hark_operator *op, char text[HARK_OPERATOR_CASE_BYTES]) {
  const hark_sample *largest = &op->samples[0];
  for (int i = 1; i < op->sample_count; i++)
    if (elements_of(&op->samples[i]) > elements_of(largest)) largest = &op->samples[i];
  snprintf(text, HARK_OPERATOR_CASE_BYTES, "%s:%s", op->name, largest->name);
  return text;
}

/* ---- calls ---- */

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void put(const hark_tensor *tensor, void *host, int64_t i, double value) {
  switch (tensor->type) {
    case HARK_F32: ((float *)host)[i] = (float)value; break;
    case HARK_F64: ((double *)host)[i] = value; break;
    case HARK_I32: ((int32_t *)host)[i] = (int32_t)value; break;
    case HARK_I64: ((int64_t *)host)[i] = (int64_t)value; break;
    case HARK_F16:
    case HARK_BF16: ((uint16_t *)host)[i] = hark_half_narrow(tensor->type, (float)value); break;
    case HARK_I8: ((int8_t *)host)[i] = (int8_t)value; break;
    default: ((unsigned char *)host)[i] = (unsigned char)value; break;
  }
}

/* Numbers as a sample describes them; `values` has room for them. */
static void draw(const hark_sample_input *input, uint32_t number, int64_t count, double *values) {
  const bool whole = input->type != HARK_F32 && input->type != HARK_F64 && !hark_type_is_half(input->type),
             rising = whole && input->low > input->high;
  const double least = rising ? input->high : input->low, most = rising ? input->low : input->high;
  const hark_random_stream stream = {.seed = number, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  hark_random_uniform(&stream, 0, count, values);
  for (int64_t i = 0; i < count; i++) {
    values[i] = least + (most + (whole ? 1 : 0) - least) * values[i];
    if (whole) values[i] = fmin(floor(values[i]), most);
  }
  if (!rising || count == 0) return;
  qsort(values, (size_t)count, sizeof *values, by_size);
  values[0] = least;
  values[count - 1] = count > 1 ? most : least;
}

static hark_status fill(hark_context *context, const hark_sample_input *input, uint32_t number, hark_tensor *tensor) {
  const int64_t count = hark_tensor_count(tensor);
  size_t bytes;
  void *values, *host;
  if (count == 0) return HARK_OK;
  HARK_TRY(hark_size_multiply(context, (size_t)count, sizeof(double), &bytes));
  HARK_TRY(hark_allocate(context, bytes, &values));
  hark_status status = hark_allocate(context, bytes, &host);
  if (status == HARK_OK) {
    draw(input, number, count, values);
    for (int64_t i = 0; i < count; i++) put(tensor, host, i, ((double *)values)[i]);
    status = hark_tensor_write(context, tensor, host);
  }
  if (host != NULL) hark_release(context, host, bytes);
  hark_release(context, values, bytes);
  return status;
}

static hark_status make_like(hark_context *context, const hark_tensor *like, hark_tensor *out) {
  return like->type == HARK_NONE ? HARK_OK : hark_tensor_create(context, like->type, like->rank, like->shape, out);
}

static bool is_floating(const hark_tensor *tensor) {
  return tensor->type == HARK_F32 || tensor->type == HARK_F64 || tensor->type == HARK_BF16;
}

/* Gradients of numbers in bf16 are f32. */
static hark_status make_gradient(hark_context *context, const hark_tensor *of, hark_tensor *out) {
  hark_tensor like = *of;
  if (like.type == HARK_BF16) like.type = HARK_F32;
  return make_like(context, &like, out);
}

/* Gradients of outputs (given) and of inputs (requested); one that equals that of the output needs no work. */
static hark_status make_gradients(hark_context *context, hark_call *call) {
  for (int i = 0; i < call->op->output_count; i++) {
    if (!is_floating(&call->outputs[i])) continue;
    HARK_TRY(make_gradient(context, &call->outputs[i], &call->output_gradients[i]));
    HARK_TRY(hark_bench_fill(context, &call->output_gradients[i], (uint32_t)(HARK_MAX_INPUTS + i), 1));
  }
  for (int i = 0; i < call->input_count; i++) {
    const bool requested = (call->op->differentiable >> i & 1u) != 0 && (call->op->gradient_passes >> i & 1u) == 0;
    if (requested) HARK_TRY(make_gradient(context, &call->inputs[i], &call->input_gradients[i]));
  }
  return HARK_OK;
}

hark_status hark_operator_call_open(hark_context *context, const hark_operator_case *c, hark_call *call, hark_tensor *workspace) {
  *call = (hark_call){.op = c->op, .attributes = c->attributes};
  *workspace = (hark_tensor){0};
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    const hark_sample_input *const input = &c->inputs[i];
    if (input->type == HARK_NONE) continue;
    call->input_count = i + 1;
    HARK_TRY(hark_tensor_create(context, input->type, input->rank, input->shape, &call->inputs[i]));
    HARK_TRY(fill(context, input, (uint32_t)i, &call->inputs[i]));
  }
  hark_inferred inferred = {0};
  HARK_TRY(c->op->infer(context, c->attributes, call->inputs, call->input_count, &inferred));
  for (int i = 0; i < c->op->output_count; i++) HARK_TRY(make_like(context, &inferred.outputs[i], &call->outputs[i]));
  for (int i = 0; i < HARK_MAX_SAVED; i++) HARK_TRY(make_like(context, &inferred.saved[i], &call->saved[i]));
  if (c->op->backward != NULL) HARK_TRY(make_gradients(context, call));
  call->workspace_bytes =
      inferred.forward_workspace > inferred.backward_workspace ? inferred.forward_workspace : inferred.backward_workspace;
  if (call->workspace_bytes > 0) {
    HARK_TRY(hark_tensor_create(context, HARK_U8, 1, (int64_t[]){(int64_t)call->workspace_bytes}, workspace));
    call->workspace = workspace->data;
  }
  return HARK_OK;
}

void hark_operator_call_close(hark_context *context, hark_call *call, hark_tensor *workspace) {
  hark_tensor_destroy(context, workspace);
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    hark_tensor_destroy(context, &call->inputs[i]);
    hark_tensor_destroy(context, &call->input_gradients[i]);
  }
  for (int i = 0; i < HARK_MAX_OUTPUTS; i++) {
    hark_tensor_destroy(context, &call->outputs[i]);
    hark_tensor_destroy(context, &call->output_gradients[i]);
  }
  for (int i = 0; i < HARK_MAX_SAVED; i++) hark_tensor_destroy(context, &call->saved[i]);
}
