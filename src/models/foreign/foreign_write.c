/* foreign_write.c - see foreign_write.h.
 *
 * A type describes a model if its config.json, read again, is the model's configuration: every option that has an effect is compared. So an
 * option that a type has no key for is refused without a list of such options.
 */
#include "models/foreign/foreign_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/checkpoint_files.h"
#include "models/foreign/foreign.h"
#include "models/foreign/foreign_keys.h"
#include "models/foreign/foreign_tensors.h"
#include "models/foreign/sentence_files.h"
#include "models/matrices.h"
#include "models/model_difference.h"
#include "models/model_options.h"

/* ---- the type of a model ---- */

/* The first option in which the configurations differ, and how many do; NULL: none. What only training uses is not compared. */
static const char *difference(const hark_network_config *model, const hark_network_config *other, int *count) {
  const hark_network_config a = hark_model_settled(model), b = hark_model_settled(other);
  const hark_model_option *row;
  const char *first = NULL;
  *count = 0;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    const bool compared = row->fact ? strcmp(row->option.name, HARK_MODEL_PREFIX "vocabulary") == 0 : row->stored != HARK_STORED_NEVER;
    if (!compared || (!hark_model_option_has_effect(row, &a) && !hark_model_option_has_effect(row, &b)) ||
        hark_model_option_agrees(row, &a, &b))
      continue;
    if (first == NULL) first = row->option.name;
    ++*count;
  }
  return first;
}

static const char *type_word(hark_type type) { return type == HARK_BF16 ? "bfloat16" : type == HARK_F16 ? "float16" : "float32"; }

/* The config.json of a type, and the first option in which it differs from the model when it is read again; NULL: none. */
static hark_status try_type(hark_context *context, const hark_foreign_type *type, const hark_network_config *config, hark_type matrices,
                            hark_text *text, const char **option, int *count) {
  const hark_foreign_type *read = NULL;
  hark_network_config again;
  hark_foreign_keys_write(type, config, type_word(matrices), text);
  HARK_TRY(text->status);
  const hark_status status = hark_foreign_keys_read(context, HARK_FOREIGN_CONFIG_FILE, hark_text_get(text), text->length, &read, &again);
  if (status == HARK_OUT_OF_MEMORY) return status;
  if (status == HARK_OK && type->adopt != NULL) type->adopt(config, &again);
  *option = difference(config, &again, count);
  if (status != HARK_OK && *option == NULL) *option = "model";
  return HARK_OK;
}

/* Finds the type that describes the model, and its config.json; the caller frees the text. */
static hark_status choose_type(hark_context *context, const hark_network_config *config, hark_type matrices, const hark_foreign_type **out,
                               hark_text *text) {
  const hark_foreign_type *type;
  const char *nearest = "", *missing = "", *option = NULL;
  int least = 0, count = 0;
  for (int i = 0; (type = hark_foreign_type_at(i)) != NULL; i++) {
    hark_text_resize(text, 0);
    HARK_TRY(try_type(context, type, config, matrices, text, &option, &count));
    *out = type;
    if (option == NULL) return HARK_OK;
    if (i > 0 && count >= least) continue;
    nearest = type->name;
    missing = option;
    least = count;
  }
  return hark_fail(context, HARK_UNSUPPORTED, "%s has no counterpart in model_type %s, the nearest one: the model cannot be written for it",
                   missing, nearest);
}

/* ---- tensors ---- */

typedef struct tensor_list {
  const hark_parameters *parameters;
  hark_matrices_to_write write; /* tensors in the order of the parameters */
  hark_named_tensor *tensors;
  char (*names)[HARK_PARAMETER_NAME_BYTES];
  hark_tensor *joined; /* tensors made here; absent where a parameter is a whole tensor */
  int32_t count;
  size_t bytes;
} tensor_list;

static hark_status open_list(hark_context *context, const char *path, const hark_parameters *parameters, hark_type matrices,
                             tensor_list *out) {
  void *memory = NULL;
  *out = (tensor_list){.parameters = parameters};
  const size_t each = sizeof *out->tensors + sizeof *out->names + sizeof *out->joined;
  HARK_TRY(hark_allocate_zero(context, (size_t)parameters->count * each, &memory));
  out->bytes = (size_t)parameters->count * each;
  out->joined = memory;
  out->tensors = (hark_named_tensor *)(void *)(out->joined + parameters->count);
  out->names = (void *)(out->tensors + parameters->count);
  return hark_matrices_to_write_open(context, path, parameters, matrices, &out->write);
}

static void close_list(hark_context *context, tensor_list *list) {
  for (int32_t i = 0; i < list->count; i++) hark_tensor_destroy(context, &list->joined[i]);
  if (list->write.converted != NULL) hark_matrices_to_write_close(context, &list->write);
  hark_release(context, list->joined, list->bytes);
}

/* Copies rows [rows, columns] of elements to `first` of a whole of `rows_in_all` rows, stored by columns if it is transposed. */
static void place_part(const char *part, size_t element, int64_t rows, int64_t columns, int64_t first, int64_t rows_in_all, bool transposed,
                       char *all) {
  if (!transposed) {
    memcpy(all + (size_t)(first * columns) * element, part, (size_t)(rows * columns) * element);
    return;
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      memcpy(all + (size_t)(c * rows_in_all + first + r) * element, part + (size_t)(r * columns + c) * element, element);
}

/* The parts of a group in host memory: `all` has room for the whole, `part` for the largest of them. */
static hark_status gather(hark_context *context, const hark_foreign_group *group, const tensor_list *list, char *all, char *part) {
  const int64_t rows_in_all = group->transposed ? group->shape[1] : group->shape[0];
  int64_t first = 0;
  for (int i = 0; i < group->count; i++) {
    const hark_parameter *const parameter = group->parts[i];
    const hark_tensor *const tensor = list->write.tensors[parameter - list->parameters->list].tensor;
    const int64_t rows = parameter->spec.shape[0], columns = rows > 0 ? parameter->count / rows : 0;
    HARK_TRY(hark_tensor_read(context, tensor, part));
    place_part(part, hark_type_bytes(tensor->type), rows, columns, first, rows_in_all, group->transposed, all);
    first += rows;
  }
  return HARK_OK;
}

static hark_status join(hark_context *context, const hark_foreign_group *group, const tensor_list *list, hark_tensor *out) {
  const hark_type type = list->write.tensors[group->parts[0] - list->parameters->list].tensor->type;
  void *memory = NULL;
  HARK_TRY(hark_tensor_create(context, type, group->rank, group->shape, out));
  const size_t bytes = (size_t)hark_tensor_count(out) * hark_type_bytes(type);
  HARK_TRY(hark_allocate(context, 2 * bytes, &memory));
  hark_status status = gather(context, group, list, memory, (char *)memory + bytes);
  if (status == HARK_OK) status = hark_tensor_write(context, out, memory);
  hark_release(context, memory, 2 * bytes);
  return status;
}

static hark_status add_group(hark_context *context, const hark_foreign_group *group, void *user) {
  tensor_list *const list = user;
  const hark_named_tensor *const whole = &list->write.tensors[group->parts[0] - list->parameters->list];
  const int32_t at = list->count++;
  const bool joined = group->count > 1 || group->transposed;
  (void)snprintf(list->names[at], sizeof list->names[at], "%s", group->name);
  if (joined) HARK_TRY(join(context, group, list, &list->joined[at]));
  list->tensors[at] =
      (hark_named_tensor){.name = list->names[at], .tensor = joined ? &list->joined[at] : whole->tensor, .stored = whole->stored};
  return HARK_OK;
}

/* ---- the folder ---- */

/* Metadata of the weights, the mark of an export, and the names of the files that it wrote, each with a blank after it. */
#define PRODUCER_KEY "producer"
#define PRODUCER "hark"
#define FILES_KEY "files"

/* Whether a blank-ended list contains a name. */
static bool has_name(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
    if ((at == list || at[-1] == ' ') && at[length] == ' ') return true;
  return false;
}

/* Whether a file of this name may be replaced: exports of earlier versions do not name theirs. */
static bool is_own_name(const char *files, const char *name) {
  if (files != NULL) return has_name(files, name);
  return strcmp(name, HARK_FOREIGN_CONFIG_FILE) == 0 || strcmp(name, HARK_WEIGHTS_FILE) == 0;
}

static hark_status refuse_folder(hark_context *context, const char *folder, const char *name) {
  char shown[HARK_SHOWN_BYTES];
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: contains %s, expected a new or empty folder, or the files of an earlier export",
                   folder, hark_text_shown(name, shown));
}

static hark_status check_names(hark_context *context, const char *folder, const hark_names *names, const hark_safetensors *weights) {
  const char *const producer = weights != NULL ? hark_safetensors_metadata(weights, PRODUCER_KEY) : NULL;
  const char *const files = weights != NULL ? hark_safetensors_metadata(weights, FILES_KEY) : NULL;
  const bool marked = producer != NULL && strcmp(producer, PRODUCER) == 0;
  for (int64_t i = 0; i < names->count; i++)
    if (!marked || !is_own_name(files, names->items[i])) return refuse_folder(context, folder, names->items[i]);
  return HARK_OK;
}

/* Weights that cannot be read are no export's. */
static hark_status check_marked(hark_context *context, const char *folder, const hark_names *names) {
  char path[HARK_PATH_BYTES];
  hark_safetensors *weights = NULL;
  HARK_TRY(hark_path_join(context, folder, HARK_WEIGHTS_FILE, path));
  if (hark_path_kind_of(path) == HARK_PATH_FILE && hark_safetensors_open(context, path, &weights) == HARK_OUT_OF_MEMORY)
    return HARK_OUT_OF_MEMORY;
  const hark_status status = check_names(context, folder, names, weights);
  hark_safetensors_close(context, &weights);
  return status;
}

/* Refuses a folder with files of others, which the export would be mixed with, or would replace. */
static hark_status check_folder(hark_context *context, const char *folder) {
  hark_names names = {0};
  if (hark_path_kind_of(folder) == HARK_PATH_NONE) return HARK_OK;
  if (hark_path_kind_of(folder) != HARK_PATH_FOLDER) return hark_fail(context, HARK_BAD_FILE, "%s: is not a folder", folder);
  HARK_TRY(hark_folder_clean(context, folder));
  HARK_TRY(hark_folder_list(context, folder, &names));
  const hark_status status = check_marked(context, folder, &names);
  hark_names_free(context, &names);
  return status;
}

/* Removes tokenizers of an earlier export that the model lacks. */
static hark_status remove_tokenizers(hark_context *context, const hark_model *model, const char *folder) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  const char *const kept = model->imported != NULL ? hark_imported_kind(model->imported) : "";
  char path[HARK_PATH_BYTES];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i], kept) == 0) continue;
    HARK_TRY(hark_path_join(context, folder, names[i], path));
    HARK_TRY(hark_file_remove(context, path));
  }
  return HARK_OK;
}

static hark_status write_tokenizer(hark_context *context, const hark_model *model, const char *folder) {
  char path[HARK_PATH_BYTES];
  size_t bytes = 0;
  if (model->imported == NULL) return HARK_OK;
  HARK_TRY(hark_path_join(context, folder, hark_imported_kind(model->imported), path));
  const void *const data = hark_imported_file(model->imported, &bytes);
  return hark_file_write(context, path, data, bytes);
}

/* The names of the files of an export. */
static void print_files(const hark_model *model, const hark_foreign_type *type, hark_text *files) {
  hark_text_append(files, HARK_FOREIGN_CONFIG_FILE " " HARK_WEIGHTS_FILE " ");
  if (model->imported != NULL) hark_text_append(files, "%s ", hark_imported_kind(model->imported));
  if (type->write_files != NULL) hark_sentence_files_print(files);
}

static hark_status write_weights(hark_context *context, const hark_model *model, const hark_foreign_type *type, const tensor_list *list,
                                 const char *path) {
  hark_text files = hark_text_empty(context);
  print_files(model, type, &files);
  const hark_metadata_entry metadata[] = {{"format", "pt"}, {PRODUCER_KEY, PRODUCER}, {FILES_KEY, hark_text_get(&files)}};
  hark_status status = files.status;
  if (status == HARK_OK) status = hark_safetensors_write(context, path, list->tensors, list->count, metadata, 3, NULL);
  hark_text_free(&files);
  return status;
}

/* Replaces the files one by one, each atomically; the list has been made before, so that what cannot be written changes nothing. From the
 * new weights on there is no config.json until the end: a folder that is written in part is no model, and not one with another meaning. */
static hark_status write_folder(hark_context *context, const hark_model *model, const hark_foreign_type *type, const tensor_list *list,
                                const hark_text *config, const char *folder) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_folder_make(context, folder));
  HARK_TRY(hark_path_join(context, folder, HARK_WEIGHTS_FILE, path));
  HARK_TRY(write_weights(context, model, type, list, path));
  HARK_TRY(hark_path_join(context, folder, HARK_FOREIGN_CONFIG_FILE, path));
  HARK_TRY(hark_file_remove(context, path));
  HARK_TRY(remove_tokenizers(context, model, folder));
  HARK_TRY(write_tokenizer(context, model, folder));
  HARK_TRY(hark_sentence_files_remove(context, folder));
  if (type->write_files != NULL) HARK_TRY(type->write_files(context, &model->network->config, folder));
  return hark_file_write(context, path, hark_text_get(config), config->length);
}

static hark_status write_model(hark_context *context, const hark_model *model, const hark_foreign_type *type, const hark_text *config,
                               const char *folder, hark_type matrices) {
  tensor_list list;
  hark_status status = open_list(context, folder, &model->network->parameters, matrices, &list);
  if (status == HARK_OK) status = hark_foreign_tensors_visit(context, type, model->network, add_group, &list);
  if (status == HARK_OK) status = write_folder(context, model, type, &list, config, folder);
  close_list(context, &list);
  return status;
}

hark_status hark_foreign_export(hark_context *context, const hark_model *model, const char *folder, hark_type matrices, const char **type) {
  const hark_type held = hark_matrices_type(&model->network->parameters), numbers = matrices != HARK_NONE ? matrices : held;
  const hark_foreign_type *chosen = NULL;
  hark_text config = hark_text_empty(context);
  *type = NULL;
  if (numbers == HARK_I8)
    return hark_fail(context, HARK_UNSUPPORTED, "%s: matrices of integers have no counterpart there, expected f32, bf16 or f16", folder);
  hark_status status = choose_type(context, &model->network->config, numbers, &chosen, &config);
  if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) hark_fail_prefix(context, "%s: ", folder);
  if (status == HARK_OK) status = check_folder(context, folder);
  if (status == HARK_OK) status = write_model(context, model, chosen, &config, folder, matrices);
  hark_text_free(&config);
  if (status == HARK_OK) *type = chosen->name;
  return status;
}
