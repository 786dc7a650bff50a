/* model_options.c - see model_options.h. */
#include "models/model_options.h"

#include <string.h>

#include "io/number.h"
#include "options/option_needs.h"

#define AT(member) offsetof(hark_network_config, member)

static const hark_model_option rows[] = {
#define OPTION(member, flags, kind, initial, range, commands, argument, help, needs, tie, when, place)                                     \
  {{HARK_MODEL_PREFIX #member, flags, HARK_OPTION_##kind, AT(member), initial, range, commands, argument, help, needs},                    \
   HARK_BOND_##tie,                                                                                                                        \
   HARK_STORED_##when,                                                                                                                     \
   place,                                                                                                                                  \
   false},
    HARK_MODEL_OPTIONS(OPTION)
#undef OPTION
#define FACT(member, kind, range, when, place)                                                                                             \
  {{HARK_MODEL_PREFIX #member, NULL, HARK_OPTION_##kind, AT(member), NULL, range, "", NULL, NULL, NULL},                                   \
   HARK_BOND_WEIGHTS,                                                                                                                      \
   HARK_STORED_##when,                                                                                                                     \
   place,                                                                                                                                  \
   true},
        HARK_MODEL_FACTS(FACT)
#undef FACT
};
_Static_assert(sizeof rows / sizeof *rows == HARK_MODEL_ROWS, "a row for every option and fact");

static const hark_model_list lists[] = {
    {"model.rotary.short_factor", AT(rotary.short_factors.count), AT(rotary.short_factors.values), HARK_ROTARY_FACTORS, false, false},
    {"model.rotary.long_factor", AT(rotary.long_factors.count), AT(rotary.long_factors.values), HARK_ROTARY_FACTORS, false, false},
    {"model.ahca.more_delimiters", AT(ahca.other_delimiter_count), AT(ahca.other_delimiters), HARK_DELIMITER_TOKENS, true, true},
    {"model.attention.delimiters", AT(attention.chunk_delimiter_count), AT(attention.chunk_delimiters), HARK_DELIMITER_TOKENS, true, true},
    {"model.ends", AT(ends.count), AT(ends.tokens), HARK_END_TOKENS, true, false},
    {"model.ahca.capacities", AT(ahca.capacity_count), AT(ahca.layer_capacities), HARK_AHCA_CAPACITIES, false, false},
};
#define LISTS (sizeof lists / sizeof *lists)

const hark_model_option *hark_model_option_at(int index) { return index >= 0 && index < HARK_MODEL_ROWS ? &rows[index] : NULL; }

const hark_model_option *hark_model_option_find(const char *name) {
  for (int i = 0; i < HARK_MODEL_ROWS; i++)
    if (strcmp(rows[i].option.name, name) == 0) return &rows[i];
  return NULL;
}

/* ---- conditions ---- */

/* Conditions refer to options of this table; a test checks this. A list is given if it has numbers: files have no texts. */
static bool holds(const hark_option_need *need, const hark_network_config *config) {
  const hark_model_option *const row = hark_model_option_find(need->name);
  if (row == NULL) return false;
  const hark_model_list *const list = hark_model_list_of(need->name);
  if (list != NULL) return (hark_model_list_count(list, config) > 0) == (need->kind == HARK_NEED_GIVEN);
  return hark_option_need_holds(need, &row->option, hark_model_option_value(row, config));
}

static bool conditions_hold(const hark_model_option *row, const hark_network_config *config, bool first_alone) {
  hark_option_need need = {0};
  for (const char *at = row->option.needs; at != NULL && !need.last;) {
    bool held = false;
    do {
      if (!hark_option_need_read(&at, &need)) return false;
      held = held || holds(&need, config);
    } while (!need.last_of_condition);
    if (!held || first_alone) return held;
  }
  return true;
}

bool hark_model_option_has_effect(const hark_model_option *row, const hark_network_config *config) {
  return conditions_hold(row, config, false);
}

bool hark_model_option_in_group(const hark_model_option *row, const hark_network_config *config) {
  return conditions_hold(row, config, true);
}

/* ---- defaults ---- */

bool hark_model_option_is_default(const hark_model_option *row, const hark_network_config *config) {
  const hark_option *const option = &row->option;
  const void *const field = hark_model_option_value(row, config);
  const hark_model_list *const list = hark_model_list_of(option->name);
  hark_option_value usual = {0};
  if (list != NULL) return hark_model_list_count(list, config) == 0;
  if (option->type == HARK_OPTION_STRING) {
    const char *const text = *(const char *const *)field;
    return text == NULL || strcmp(text, option->initial) == 0;
  }
  if (option->initial != NULL) (void)hark_option_read_value(option, option->initial, &usual);
  switch (option->type) {
    case HARK_OPTION_BOOL: return *(const bool *)field == usual.truth;
    case HARK_OPTION_ENUM: return *(const int *)field == usual.choice;
    case HARK_OPTION_LAYERS: return hark_layer_choice_is(field, hark_layer_choice_of(&usual.layers, 0));
    case HARK_OPTION_INT: {
      const int64_t whole = *(const int64_t *)field;
      return whole == usual.whole || (whole == 0 && !hark_option_in_range(option, 0));
    }
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: {
      const double number = *(const double *)field;
      return number == usual.number || (number == 0 && !hark_option_in_range(option, 0));
    }
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST: break;
  }
  return false;
}

void hark_model_option_reset(const hark_model_option *row, hark_network_config *config) {
  const hark_option *const option = &row->option;
  const hark_model_list *const list = hark_model_list_of(option->name);
  void *const field = hark_model_option_field(row, config);
  hark_option_value usual = {0};
  if (list != NULL) {
    hark_model_list_clear(list, config);
  } else if (option->type == HARK_OPTION_STRING) {
    *(const char **)field = option->initial;
  } else {
    if (option->initial != NULL) (void)hark_option_read_value(option, option->initial, &usual);
    hark_option_put_value(option, &usual, field);
  }
}

/* ---- lists ---- */

const hark_model_list *hark_model_list_of(const char *name) {
  for (size_t i = 0; i < LISTS; i++)
    if (strcmp(lists[i].name, name) == 0) return &lists[i];
  return NULL;
}

static int32_t *count_of(const hark_model_list *list, hark_network_config *config) { return (void *)((char *)config + list->count); }

int32_t hark_model_list_count(const hark_model_list *list, const hark_network_config *config) {
  return *(const int32_t *)(const void *)((const char *)config + list->count);
}

double hark_model_list_number(const hark_model_list *list, const hark_network_config *config, int32_t index) {
  const void *const values = (const char *)config + list->values;
  return list->whole ? (double)((const int32_t *)values)[index] : ((const double *)values)[index];
}

hark_list_part hark_model_list_part(const hark_model_list *list, const hark_network_config *config, int32_t index) {
  const double number = hark_model_list_number(list, config, index);
  if (!list->delimiters) return (hark_list_part){.number = number};
  return (hark_list_part){.number = hark_delimiter_token((int32_t)number),
                          .continues = index > 0 && hark_delimiter_goes_on((int32_t)hark_model_list_number(list, config, index - 1)),
                          .goes_on = hark_delimiter_goes_on((int32_t)number)};
}

void hark_model_list_clear(const hark_model_list *list, hark_network_config *config) { *count_of(list, config) = 0; }

hark_list_reading hark_model_list_add(const hark_model_list *list, double number, hark_network_config *config) {
  int32_t *const count = count_of(list, config);
  void *const values = (char *)config + list->values;
  const hark_option *const option = &hark_model_option_find(list->name)->option;
  if (*count == list->most) return HARK_LIST_FULL;
  if (!hark_option_in_range(option, number) || (list->whole && number != (double)(int32_t)number)) return HARK_LIST_WRONG;
  if (list->whole)
    ((int32_t *)values)[(*count)++] = (int32_t)number;
  else
    ((double *)values)[(*count)++] = number;
  return HARK_LIST_READ;
}

void hark_model_list_go_on(const hark_model_list *list, hark_network_config *config) {
  int32_t *const last = (int32_t *)(void *)((char *)config + list->values) + hark_model_list_count(list, config) - 1;
  *last = -1 - *last;
}

hark_list_reading hark_model_list_read(const hark_model_list *list, const char *text, hark_network_config *config) {
  for (const char *at = text; *at != '\0';) {
    const size_t length = strcspn(at, list->delimiters ? ", +" : ", ");
    const bool goes_on = list->delimiters && at[length] == '+';
    double number = 0;
    if (length > 0 && hark_model_list_count(list, config) == list->most) return HARK_LIST_FULL;
    if (length > 0 ? !hark_number_read(at, length, &number) : goes_on) return HARK_LIST_WRONG;
    const hark_list_reading reading = length > 0 ? hark_model_list_add(list, number, config) : HARK_LIST_READ;
    if (reading != HARK_LIST_READ) return reading;
    at += length;
    if (goes_on && strchr(", +", at[1]) != NULL) return HARK_LIST_WRONG; /* also at the end */
    if (goes_on) hark_model_list_go_on(list, config);
    at += *at != '\0';
  }
  return HARK_LIST_READ;
}

bool hark_model_list_has_text(const hark_model_list *list, const hark_network_config *config) {
  for (int32_t i = 0; list->delimiters && i < hark_model_list_count(list, config); i++)
    if (hark_model_list_number(list, config, i) == HARK_DELIMITER_TEXT) return true;
  return false;
}

void hark_model_forget_texts(hark_network_config *config) {
  for (size_t i = 0; i < LISTS; i++) {
    const hark_model_option *const row = hark_model_option_find(lists[i].name);
    if (!row->fact) *(hark_string_list *)hark_model_option_field(row, config) = (hark_string_list){0}; /* facts have no texts */
  }
}
