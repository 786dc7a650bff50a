/* attend_tensors.c - the tensors that hark attend reads and writes: names, types and shapes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/attend/attend.h"
#include "io/number.h"
#include "io/safetensors.h"
#include "io/temporary.h"
#include "io/words.h"

#define ANY_EXTENT (-1)
#define LOG_SUM_EXP "log_sum_exp"

/* The required type and shape of a tensor of the input. */
typedef struct input_rule {
  const char *name;
  bool floating; /* of the type of q; else U8 or BOOL */
  bool broadcast;
  int rank;
  int64_t shape[4];
  const char *letters; /* of the free extents, in their order, as in --help: "B H Lq d" */
} input_rule;

static const char *const names[] = {"q",
                                    "k",
                                    "v",
                                    "dout",
                                    "attention_bias",
                                    "mask",
                                    "log_kernel",
                                    "forget",
                                    "key_lengths",
                                    "segments",
                                    "hierarchical_bias",
                                    "query_mask",
                                    "chunk_starts",
                                    "rotary_rates",
                                    "contextual",
                                    "noise",
                                    "dvariance",
                                    "dlog_determinant",
                                    "dquadratic"};

static const char *input_name(const void *user, int index) {
  (void)user;
  return names[index];
}

/* Every tensor of the file must be known: otherwise a misspelt name would be ignored silently. */
static hark_status check_names(hark_context *context, const char *path, const hark_safetensors *file) {
  const int count = (int)(sizeof names / sizeof names[0]);
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const char *name = hark_safetensors_tensor(file, i)->name;
    int known = 0;
    while (known < count && strcmp(names[known], name) != 0) known++;
    if (known < count) continue;
    const char *near = hark_nearest_word(name, count, input_name, NULL);
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s has no meaning here%s%s; hark attend --help lists the tensors that apply", path,
                     name, near != NULL ? ", did you mean " : "", near != NULL ? near : "");
  }
  return HARK_OK;
}

static const char *shape_text(const hark_stored_tensor *stored, char *text, size_t size) {
  hark_tensor tensor = {.rank = stored->rank};
  memcpy(tensor.shape, stored->shape, sizeof tensor.shape);
  return hark_shape_text(&tensor, text, size);
}

/* "[2, Hkv, Lk, 3]" */
static const char *rule_text(const input_rule *rule, char text[HARK_SHAPE_TEXT_BYTES]) {
  const char *letters = rule->letters;
  int used = snprintf(text, HARK_SHAPE_TEXT_BYTES, "[");
  for (int i = 0; i < rule->rank && used > 0 && used < HARK_SHAPE_TEXT_BYTES; i++) {
    const size_t room = HARK_SHAPE_TEXT_BYTES - (size_t)used;
    size_t length = 0;
    const char *const end = i + 1 < rule->rank ? ", " : "]";
    if (rule->shape[i] != ANY_EXTENT) {
      used += snprintf(text + used, room, "%" PRId64 "%s", rule->shape[i], end);
    } else {
      const char *const word = letters != NULL ? hark_next_word(&letters, ' ', &length) : NULL;
      used += word != NULL ? snprintf(text + used, room, "%.*s%s", (int)length, word, end) : snprintf(text + used, room, "any%s", end);
    }
  }
  return text;
}

/* The letter of the first free extent that is 0: "Lk"; false if there is none. */
static bool empty_extent(const hark_stored_tensor *stored, const input_rule *rule, char letter[HARK_SHAPE_TEXT_BYTES]) {
  const char *letters = rule->letters;
  for (int i = 0; i < rule->rank && letters != NULL && stored->rank == rule->rank; i++) {
    size_t length = 0;
    if (rule->shape[i] != ANY_EXTENT) continue;
    const char *const word = hark_next_word(&letters, ' ', &length);
    if (word == NULL) return false;
    (void)snprintf(letter, HARK_SHAPE_TEXT_BYTES, "%.*s", (int)length, word);
    if (stored->shape[i] == 0) return true;
  }
  return false;
}

static hark_status refuse_empty(hark_context *context, const char *path, const hark_stored_tensor *stored, const char *letter) {
  char shape[HARK_SHAPE_TEXT_BYTES];
  const char *const what = strcmp(letter, "Lk") == 0 ? "there are no keys: " : strcmp(letter, "Lq") == 0 ? "there are no queries: " : "";
  return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s has shape %s, %s%s is 0, expected at least 1", path, stored->name,
                   shape_text(stored, shape, sizeof shape), what, letter);
}

static hark_status check_shape(hark_context *context, const char *path, const hark_stored_tensor *stored, const input_rule *rule) {
  bool fits = rule->broadcast ? stored->rank <= rule->rank : stored->rank == rule->rank;
  const int missing = rule->rank - stored->rank; /* leading extents that a broadcast tensor may leave out */
  for (int i = 0; fits && i < stored->rank; i++) {
    const int64_t extent = rule->shape[i + missing];
    fits = extent == ANY_EXTENT ? stored->shape[i] >= 1 : stored->shape[i] == extent || (rule->broadcast && stored->shape[i] == 1);
  }
  if (fits) return HARK_OK;
  char shape[HARK_SHAPE_TEXT_BYTES], expected[HARK_SHAPE_TEXT_BYTES], letter[HARK_SHAPE_TEXT_BYTES];
  if (empty_extent(stored, rule, letter)) return refuse_empty(context, path, stored, letter);
  return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s has shape %s, expected %s%s", path, stored->name,
                   shape_text(stored, shape, sizeof shape), rule_text(rule, expected),
                   rule->broadcast ? " or 1 where it is broadcast" : "");
}

/* Reads one tensor into `out`; absent ones stay absent. */
static hark_status read_tensor(hark_context *context, const char *path, const hark_safetensors *file, const input_rule *rule,
                               hark_type type, hark_tensor *out) {
  const hark_stored_tensor *stored = hark_safetensors_find(file, rule->name);
  if (stored == NULL) return HARK_OK;
  const bool mask = stored->type == HARK_U8 || strcmp(stored->type_name, "BOOL") == 0;
  if (rule->floating ? stored->type != type : !mask)
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s is %s, expected %s", path, stored->name, stored->type_name,
                     rule->floating ? hark_safetensors_type_name(type) : "U8 or BOOL");
  HARK_TRY(check_shape(context, path, stored, rule));
  int64_t shape[4] = {1, 1, 1, 1};
  memcpy(shape + rule->rank - stored->rank, stored->shape, (size_t)stored->rank * sizeof *shape);
  HARK_TRY(hark_tensor_create(context, rule->floating ? type : HARK_U8, rule->rank, shape, out));
  if (stored->bytes == 0) return HARK_OK;
  void *host;
  HARK_TRY(hark_allocate(context, (size_t)stored->bytes, &host));
  hark_status status = hark_safetensors_read(context, file, stored, host);
  if (status == HARK_OK) status = hark_tensor_write(context, out, host);
  hark_release(context, host, (size_t)stored->bytes);
  return status;
}

/* Whole numbers in host memory. */
static hark_status read_numbers(hark_context *context, const char *path, const hark_safetensors *file, const input_rule *rule,
                                int64_t **out, size_t *bytes) {
  const hark_stored_tensor *stored = hark_safetensors_find(file, rule->name);
  if (stored == NULL) return HARK_OK;
  if (stored->type != HARK_I64)
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s is %s, expected I64", path, stored->name, stored->type_name);
  HARK_TRY(check_shape(context, path, stored, rule));
  void *memory;
  HARK_TRY(hark_allocate(context, (size_t)stored->bytes, &memory));
  *out = memory;
  *bytes = (size_t)stored->bytes;
  return hark_safetensors_read(context, file, stored, memory);
}

static hark_status check_lengths(hark_context *context, const char *path, const int64_t *lengths, int64_t batch, int64_t keys) {
  for (int64_t b = 0; lengths != NULL && b < batch; b++)
    if (lengths[b] < 0 || lengths[b] > keys)
      return hark_fail(context, HARK_BAD_FILE,
                       "%s: tensor key_lengths: number %" PRId64 " is %" PRId64 ", expected 0 to %" PRId64 ", the number of keys", path, b,
                       lengths[b], keys);
  return HARK_OK;
}

static hark_status read_all(hark_context *context, const char *path, const hark_safetensors *file, hark_attend_tensors *t) {
  HARK_TRY(check_names(context, path, file));
  for (int i = 0; i < 3; i++)
    if (hark_safetensors_find(file, names[i]) == NULL)
      return hark_fail(context, HARK_BAD_FILE, "%s: there is no tensor %s", path, names[i]);
  const hark_stored_tensor *q = hark_safetensors_find(file, "q"), *k = hark_safetensors_find(file, "k");
  const hark_type type = q->type;
  if (type != HARK_F32 && type != HARK_F64)
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor q is %s, expected F32 or F64", path, q->type_name);
  const input_rule query = {"q", true, false, 4, {ANY_EXTENT, ANY_EXTENT, ANY_EXTENT, ANY_EXTENT}, "B H Lq d"};
  HARK_TRY(read_tensor(context, path, file, &query, type, &t->query));
  const int64_t *shape = t->query.shape;
  const input_rule key = {"k", true, false, 4, {shape[0], ANY_EXTENT, ANY_EXTENT, shape[3]}, "Hkv Lk"};
  HARK_TRY(check_shape(context, path, k, &key));
  if (shape[1] % k->shape[1] != 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor q has %" PRId64 " heads, expected a multiple of the %" PRId64 " heads of k", path,
                     shape[1], k->shape[1]);
  HARK_TRY(read_tensor(context, path, file, &key, type, &t->key));
  const int64_t batch = shape[0], heads = shape[1], queries = shape[2], key_heads = t->key.shape[1], keys = t->key.shape[2];
  const input_rule value = {"v", true, false, 4, {batch, key_heads, keys, ANY_EXTENT}, "dv"};
  HARK_TRY(read_tensor(context, path, file, &value, type, &t->value));
  const input_rule dout = {"dout", true, false, 4, {batch, heads, queries, t->value.shape[3]}, NULL};
  const input_rule bias = {"attention_bias", true, true, 4, {batch, heads, queries, keys}, NULL};
  const input_rule mask = {"mask", false, true, 4, {batch, heads, queries, keys}, NULL};
  const input_rule forget = {"forget", true, false, 3, {batch, heads, keys}, NULL};
  const input_rule noise = {"noise", true, false, 3, {batch, heads, keys}, NULL};
  const input_rule dvariance = {"dvariance", true, false, 3, {batch, heads, queries}, NULL};
  const input_rule ddeterminant = {"dlog_determinant", true, false, 3, {batch, heads, queries}, NULL};
  const input_rule dquadratic = {"dquadratic", true, false, 4, {batch, heads, queries, t->value.shape[3]}, NULL};
  const hark_stored_tensor *stored = hark_safetensors_find(file, "log_kernel");
  const bool shared = stored != NULL && stored->rank == 2 && stored->shape[0] == 1;
  const input_rule log_kernel = {"log_kernel", true, false, 2, {shared ? 1 : heads, ANY_EXTENT}, "distances"};
  const hark_stored_tensor *table = hark_safetensors_find(file, "hierarchical_bias");
  const bool one_table = table != NULL && table->rank == 2 && table->shape[0] == 1;
  const input_rule hierarchical_bias = {"hierarchical_bias", true, false, 2, {one_table ? 1 : heads, ANY_EXTENT}, "4*NR-1"};
  const input_rule query_mask = {"query_mask", false, true, 2, {batch, queries}, NULL};
  const input_rule chunk_starts = {"chunk_starts", false, true, 2, {batch, keys}, NULL};
  const hark_stored_tensor *positions = hark_safetensors_find(file, "contextual");
  const bool one_for_all = positions != NULL && positions->rank == 3 && positions->shape[0] == 1;
  const input_rule contextual = {"contextual", true, false, 3, {one_for_all ? 1 : heads, ANY_EXTENT, shape[3]}, "N"};
  HARK_TRY(read_tensor(context, path, file, &contextual, type, &t->contextual));
  HARK_TRY(read_tensor(context, path, file, &hierarchical_bias, type, &t->hierarchical_bias));
  HARK_TRY(read_tensor(context, path, file, &query_mask, type, &t->query_mask));
  HARK_TRY(read_tensor(context, path, file, &chunk_starts, type, &t->chunk_starts));
  const input_rule rates = {"rotary_rates", true, false, 1, {ANY_EXTENT}, "pairs"};
  HARK_TRY(read_tensor(context, path, file, &rates, type, &t->rotary_rates));
  const input_rule lengths = {"key_lengths", false, false, 1, {batch}, NULL}, segments = {"segments", false, false, 2, {batch, keys}, NULL};
  HARK_TRY(read_tensor(context, path, file, &dout, type, &t->dout));
  HARK_TRY(read_tensor(context, path, file, &bias, type, &t->bias));
  HARK_TRY(read_tensor(context, path, file, &mask, type, &t->mask));
  HARK_TRY(read_tensor(context, path, file, &forget, type, &t->forget));
  HARK_TRY(read_tensor(context, path, file, &noise, type, &t->noise));
  HARK_TRY(read_tensor(context, path, file, &dvariance, type, &t->dvariance));
  HARK_TRY(read_tensor(context, path, file, &ddeterminant, type, &t->dlog_determinant));
  HARK_TRY(read_tensor(context, path, file, &dquadratic, type, &t->dquadratic));
  HARK_TRY(read_tensor(context, path, file, &log_kernel, type, &t->log_kernel));
  HARK_TRY(read_numbers(context, path, file, &lengths, &t->key_lengths, &t->key_lengths_bytes));
  HARK_TRY(check_lengths(context, path, t->key_lengths, batch, keys));
  return read_numbers(context, path, file, &segments, &t->segments, &t->segments_bytes);
}

hark_status hark_attend_read(hark_context *context, const char *path, hark_attend_tensors *out) {
  hark_safetensors *file;
  HARK_TRY(hark_safetensors_open(context, path, &file));
  const hark_status status = read_all(context, path, file, out);
  hark_safetensors_close(context, &file);
  return status;
}

#define RESULTS 18

/* The results that exist; returns their number. */
static int64_t list_results(const hark_attend_tensors *t, hark_named_tensor out[RESULTS]) {
  const hark_named_tensor all[RESULTS] = {{.name = "out", .tensor = &t->out},
                                          {.name = LOG_SUM_EXP, .tensor = &t->log_sum_exp},
                                          {.name = "dq", .tensor = &t->dquery},
                                          {.name = "dk", .tensor = &t->dkey},
                                          {.name = "dv", .tensor = &t->dvalue},
                                          {.name = "dattention_bias", .tensor = &t->dbias},
                                          {.name = "dlog_kernel", .tensor = &t->dlog_kernel},
                                          {.name = "dpositional", .tensor = &t->dpositional},
                                          {.name = "dforget", .tensor = &t->dforget},
                                          {.name = "dhierarchical_bias", .tensor = &t->dhierarchical_bias},
                                          {.name = "drotary_rates", .tensor = &t->drotary_rates},
                                          {.name = "dsigma", .tensor = &t->dsigma},
                                          {.name = "variance", .tensor = &t->variance},
                                          {.name = "log_determinant", .tensor = &t->log_determinant},
                                          {.name = "quadratic", .tensor = &t->quadratic},
                                          {.name = "dridge", .tensor = &t->dridge},
                                          {.name = "dnoise", .tensor = &t->dnoise},
                                          {.name = "dcontextual", .tensor = &t->dcontextual}};
  int64_t count = 0;
  for (size_t i = 0; i < RESULTS; i++)
    if (all[i].tensor->type != HARK_NONE) out[count++] = all[i];
  return count;
}

hark_status hark_attend_write(hark_context *context, const char *path, const hark_attend_tensors *t) {
  hark_named_tensor there[RESULTS];
  const int64_t count = list_results(t, there);
  HARK_TRY(hark_path_clean(context, path));
  return hark_safetensors_write(context, path, there, count, NULL, 0, NULL);
}

/* ---- numbers that are not finite ---- */

#define PART 512 /* numbers that are examined at once */

typedef struct odd_numbers {
  int64_t count, first; /* first: its index in the tensor */
  int64_t empty;        /* of them: -infinity */
  double value;
} odd_numbers;

/* numbers[PART] <- the numbers from `at` on, as doubles; returns how many there are in *length. */
static hark_status read_part(hark_context *context, const hark_tensor *tensor, int64_t at, double *numbers, int64_t *length) {
  float singles[PART];
  hark_tensor part;
  const bool wide = tensor->type == HARK_F64;
  char *const data = (char *)tensor->data + (size_t)at * hark_type_bytes(tensor->type);
  *length = hark_min(PART, hark_tensor_count(tensor) - at);
  HARK_TRY(hark_tensor_wrap(context, data, tensor->type, 1, length, NULL, &part));
  if (wide) return hark_tensor_read(context, &part, numbers);
  HARK_TRY(hark_tensor_read(context, &part, singles));
  for (int64_t i = 0; i < *length; i++) numbers[i] = (double)singles[i];
  return HARK_OK;
}

static void examine(const double *numbers, int64_t length, int64_t at, odd_numbers *out) {
  for (int64_t i = 0; i < length; i++) {
    if (isfinite(numbers[i])) continue;
    if (numbers[i] < 0) out->empty++;
    if (out->count++ > 0) continue;
    out->first = at + i;
    out->value = numbers[i];
  }
}

/* -infinity is the number of a row that sees no key: these become 0. Without `seen` all are such rows. */
static hark_status forgive_unseen(hark_context *context, const hark_tensor *seen, int64_t at, double *numbers, int64_t length) {
  double visible[PART];
  for (int64_t i = 0; i < length; i++) visible[i] = -INFINITY;
  if (seen->type != HARK_NONE) HARK_TRY(read_part(context, seen, at, visible, &length));
  for (int64_t i = 0; i < length; i++)
    if (isinf(numbers[i]) && numbers[i] < 0 && isinf(visible[i]) && visible[i] < 0) numbers[i] = 0;
  return HARK_OK;
}

/* `seen`: for log_sum_exp; otherwise NULL. */
static hark_status find_odd(hark_context *context, const hark_tensor *tensor, const hark_tensor *seen, odd_numbers *out) {
  double numbers[PART];
  const int64_t all = hark_tensor_count(tensor);
  *out = (odd_numbers){0};
  for (int64_t at = 0; at < all; at += PART) {
    int64_t length = 0;
    HARK_TRY(read_part(context, tensor, at, numbers, &length));
    if (seen != NULL) HARK_TRY(forgive_unseen(context, seen, at, numbers, length));
    examine(numbers, length, at, out);
  }
  return HARK_OK;
}

hark_status hark_attend_has_empty_rows(hark_context *context, const hark_attend_tensors *t, bool *out) {
  odd_numbers odd = {0};
  if (t->log_sum_exp.type != HARK_NONE) HARK_TRY(find_odd(context, &t->log_sum_exp, NULL, &odd));
  *out = odd.empty > 0;
  return HARK_OK;
}

/* "[0, 1, 5]" */
static void append_place(const hark_tensor *tensor, int64_t index, hark_text *text) {
  int64_t rest = hark_tensor_count(tensor);
  for (int32_t i = 0; i < tensor->rank; i++) {
    rest /= tensor->shape[i];
    hark_text_append(text, "%s%" PRId64, i > 0 ? ", " : "[", index / rest);
    index %= rest;
  }
  hark_text_append(text, "]");
}

static hark_status warn_of(hark_invocation *call, const hark_attend_tensors *t, const hark_named_tensor *result) {
  odd_numbers odd;
  char number[HARK_NUMBER_BYTES];
  const bool statistic = result->tensor == &t->log_sum_exp;
  HARK_TRY(find_odd(call->context, result->tensor, statistic ? &t->seen : NULL, &odd));
  if (odd.count == 0) return HARK_OK;
  hark_text place = hark_text_empty(call->context);
  append_place(result->tensor, odd.first, &place);
  hark_text_append(&place, ", is %s", hark_number_print(odd.value, number));
  if (statistic && odd.empty > 0)
    hark_text_append(&place, "; rows with -inf that see keys, and whose products are all below the range of %s: %" PRId64,
                     hark_type_name(result->tensor->type), odd.empty);
  const hark_status status = place.status;
  if (status == HARK_OK)
    hark_command_warn(call, "%s: %" PRId64 " of %" PRId64 " numbers are not finite, the first, %s", result->name, odd.count,
                      hark_tensor_count(result->tensor), hark_text_get(&place));
  hark_text_free(&place);
  return status;
}

hark_status hark_attend_warn(hark_invocation *call, const hark_attend_tensors *t) {
  hark_named_tensor there[RESULTS];
  const int64_t count = list_results(t, there);
  for (int64_t i = 0; i < count; i++) HARK_TRY(warn_of(call, t, &there[i]));
  return HARK_OK;
}

void hark_attend_free(hark_context *context, hark_attend_tensors *t) {
  hark_tensor *const tensors[] = {&t->query,
                                  &t->key,
                                  &t->value,
                                  &t->dout,
                                  &t->bias,
                                  &t->mask,
                                  &t->log_kernel,
                                  &t->forget,
                                  &t->rotary_rates,
                                  &t->drotary_rates,
                                  &t->turned_query,
                                  &t->turned_key,
                                  &t->out,
                                  &t->log_sum_exp,
                                  &t->dquery,
                                  &t->dkey,
                                  &t->dvalue,
                                  &t->dbias,
                                  &t->dlog_kernel,
                                  &t->dpositional,
                                  &t->dforget,
                                  &t->dsigma,
                                  &t->hierarchical_bias,
                                  &t->query_mask,
                                  &t->chunk_starts,
                                  &t->dhierarchical_bias,
                                  &t->ridge,
                                  &t->sigma,
                                  &t->variance,
                                  &t->dridge,
                                  &t->log_determinant,
                                  &t->noise,
                                  &t->dnoise,
                                  &t->dvariance,
                                  &t->dlog_determinant,
                                  &t->quadratic,
                                  &t->dquadratic,
                                  &t->seen,
                                  &t->contextual,
                                  &t->dcontextual};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) hark_tensor_destroy(context, tensors[i]);
  hark_release(context, t->key_lengths, t->key_lengths_bytes);
  hark_release(context, t->segments, t->segments_bytes);
  t->key_lengths = t->segments = NULL;
}
