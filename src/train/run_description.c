/* run_description.c - a run's configuration, and whether it describes the model that a checkpoint's weights were trained as. */
#include <string.h>

#include "io/safetensors.h"
#include "models/description.h"
#include "models/model.h"
#include "models/model_difference.h"
#include "models/model_options.h"
#include "positional/list.h"
#include "train/data_place.h"
#include "train/run.h"

hark_status hark_run_read_configuration(hark_context *context, const hark_run *run, hark_config *config, hark_options **options) {
  char path[HARK_PATH_BYTES];
  const hark_option_group group = {&hark_config_table, config};
  *options = NULL;
  HARK_TRY(hark_run_path(context, run, "config.yaml", path));
  HARK_TRY(hark_options_create(context, NULL, &group, 1, options));
  hark_status status = hark_data_place_read_stored(context, *options, path);
  if (status == HARK_OK) status = hark_config_finish(context, *options, config);
  if (status == HARK_OK) status = hark_options_finish(context, *options);
  if (status != HARK_OK) hark_options_destroy(context, options);
  return status;
}

/* Not compared: what the data determine (also the context, to which examples add rows, and the head of ahca), what only training uses, what
 * may change in a run, and two options that earlier versions did not write. */
static bool is_compared(const hark_model_option *row, const hark_network_config *config) {
  static const char *const left_out[] = {"model.context", "model.ahca.head", "model.rotary.ramp", "model.ahca.more_delimiters"};
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
    if (strcmp(row->option.name, left_out[i]) == 0) return false;
  return !row->fact && row->bond != HARK_BOND_NONE && row->stored != HARK_STORED_NEVER && hark_model_option_has_effect(row, config);
}

/* Files have the canonical text of a positional kernel, config.yaml the one that was given. */
static hark_status print_kernel(hark_context *context, const char *expression, hark_text *text) {
  hark_positional_list list;
  void *memory = NULL;
  hark_status status = hark_positional_list_open(context, expression, &list);
  const size_t bytes = status == HARK_OK && list.count > 0 ? hark_positional_list_print(&list, NULL, 0) + 1 : 0;
  if (bytes > 0) status = hark_allocate(context, bytes, &memory);
  if (bytes > 0 && status == HARK_OK) {
    (void)hark_positional_list_print(&list, memory, bytes);
    hark_text_append(text, "%s", (const char *)memory);
  }
  hark_release(context, memory, memory != NULL ? bytes : 0);
  hark_positional_list_close(context, &list);
  return status == HARK_OK ? text->status : status;
}

static hark_status print_value(hark_context *context, const hark_model_option *row, const hark_network_config *config, hark_text *text) {
  hark_text_resize(text, 0);
  if (strcmp(row->option.name, "model.positional") == 0)
    return print_kernel(context, *(const char *const *)hark_model_option_value(row, config), text);
  hark_description_print_value(row, config, text);
  return text->status;
}

static hark_status compare(hark_context *context, const hark_run *run, const char *name, const hark_network_config *stored,
                           const hark_network_config *described) {
  const hark_network_config a = hark_model_settled(stored), b = hark_model_settled(described);
  hark_text value = hark_text_empty(context), trained = hark_text_empty(context);
  const hark_model_option *row;
  hark_status status = HARK_OK;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL && status == HARK_OK; i++) {
    const hark_model_list *const list = hark_model_list_of(row->option.name);
    if (list != NULL && hark_model_list_has_text(list, &a)) continue; /* the weights have its tokens */
    if ((!is_compared(row, &a) && !is_compared(row, &b)) || hark_model_option_agrees(row, &a, &b)) continue;
    status = print_value(context, row, &a, &value);
    if (status == HARK_OK) status = print_value(context, row, &b, &trained);
    if (status == HARK_OK && strcmp(hark_text_get(&value), hark_text_get(&trained)) != 0)
      status = hark_fail(context, HARK_BAD_FILE, "%.1500s/config.yaml: %s is %.300s, and the weights of %s were trained with %.300s",
                         run->path, row->option.name, hark_text_get(&value), name, hark_text_get(&trained));
  }
  hark_text_free(&value);
  hark_text_free(&trained);
  return status;
}

hark_status hark_checkpoint_check_model(hark_context *context, const hark_run *run, const char *name, const hark_network_config *config) {
  char path[HARK_PATH_BYTES];
  hark_model_options options = {.struct_size = sizeof options};
  hark_safetensors *file = NULL;
  hark_description description;
  HARK_TRY(hark_checkpoint_path(context, run, name, HARK_WEIGHTS_FILE, path));
  HARK_TRY(hark_safetensors_open(context, path, &file));
  hark_status status = HARK_OK;
  const bool described = hark_safetensors_metadata(file, HARK_DESCRIPTION_KEY) != NULL; /* early versions wrote no description */
  if (described) status = hark_model_read_metadata(context, file, path, &options);
  if (described && status == HARK_OK)
    status = hark_description_parse(context, path, options.description, options.description_bytes, &description);
  if (described && status == HARK_OK) {
    status = compare(context, run, name, config, &description.config);
    hark_description_close(context, &description);
  }
  hark_safetensors_close(context, &file);
  return status;
}

hark_status hark_checkpoint_check_configuration(hark_context *context, const hark_run *run, const char *name) {
  hark_config config;
  hark_options *options = NULL;
  HARK_TRY(hark_run_read_configuration(context, run, &config, &options));
  const hark_status status = hark_checkpoint_check_model(context, run, name, &config.model);
  hark_options_destroy(context, &options);
  return status;
}
