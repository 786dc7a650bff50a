/* model_difference.c - see model_difference.h. */
#include "models/model_difference.h"

#include <string.h>

static bool same_lists(const hark_model_list *list, const hark_network_config *a, const hark_network_config *b) {
  const int32_t count = hark_model_list_count(list, a);
  if (hark_model_list_count(list, b) != count) return false;
  for (int32_t i = 0; i < count; i++)
    if (hark_model_list_number(list, a, i) != hark_model_list_number(list, b, i)) return false;
  return true;
}

static bool same_layers(const hark_layer_choice *a, const hark_layer_choice *b, int64_t layers) {
  for (int64_t i = 0; i < layers; i++)
    if (hark_layer_choice_of(a, i) != hark_layer_choice_of(b, i)) return false;
  return true;
}

bool hark_model_option_agrees(const hark_model_option *row, const hark_network_config *a, const hark_network_config *b) {
  const void *const x = hark_model_option_value(row, a), *const y = hark_model_option_value(row, b);
  if (hark_model_option_is_default(row, a) && hark_model_option_is_default(row, b)) return true;
  switch (row->option.type) {
    case HARK_OPTION_BOOL: return *(const bool *)x == *(const bool *)y;
    case HARK_OPTION_INT: return *(const int64_t *)x == *(const int64_t *)y;
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: return *(const double *)x == *(const double *)y;
    case HARK_OPTION_STRING: return strcmp(*(const char *const *)x, *(const char *const *)y) == 0;
    case HARK_OPTION_ENUM: return *(const int *)x == *(const int *)y;
    case HARK_OPTION_LIST: return same_lists(hark_model_list_of(row->option.name), a, b);
    case HARK_OPTION_LAYERS: return same_layers(x, y, a->layers);
  }
  return false;
}

hark_network_config hark_model_settled(const hark_network_config *config) {
  hark_network_config out = *config;
  if (out.positional == NULL) out.positional = "";
  if (out.attention_width == 0) out.attention_width = out.width;
  if (out.rotary.original_context == 0) out.rotary.original_context = out.context;
  return out;
}
