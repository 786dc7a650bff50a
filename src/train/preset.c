/* preset.c - see preset.h. */
#include "train/preset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/cores.h"
#include "core/thread_count.h"
#include "data/sources.h"

#define OPERATIONS_OF_CORE 5e10  /* per second, of training */
#define OPERATIONS_OF_NUMBER 6.0 /* per token: a multiplication and an addition, forward and twice backward */
#define TOKENS_OF_NUMBER 8.0
#define NUMBERS_OF_BYTE 2.0       /* of a text */
#define VALIDATION_BYTES 250000.0 /* of a text whose validation nobody has set */

/* The rows gpt2-* are those of Radford et al., "Language models are unsupervised multitask learners" (2019), table 2, with the heads of
 * their program and the learning rates of arXiv 2005.14165, table 2.1. Rows that may be chosen are in the order of their sizes. */
static const hark_preset presets[] = {
    {"tiny", "seconds to minutes", "rotary", "gelu", "false", "3e-3", 2, 2, 64, 64, 32, true},
    {"small", "minutes", "rotary", "gelu", "false", "2e-3", 4, 4, 128, 128, 32, true},
    {"medium", "an hour and more", "rotary", "gelu", "false", "1e-3", 6, 6, 288, 256, 32, true},
    {"large", "a day and more", "rotary", "gelu", "false", "6e-4", 8, 8, 512, 512, 32, true},
    {"gpt2-small", "GPT-2 of 124 million parameters", "learned", "gelu_tanh", "true", "6e-4", 12, 12, 768, 1024, 8, false},
    {"gpt2-medium", "GPT-2 of 355 million parameters", "learned", "gelu_tanh", "true", "3e-4", 24, 16, 1024, 1024, 8, false},
    {"gpt2-large", "GPT-2 of 774 million parameters", "learned", "gelu_tanh", "true", "2.5e-4", 36, 20, 1280, 1024, 8, false},
    {"gpt2-xl", "GPT-2 of 1,558 million parameters", "learned", "gelu_tanh", "true", "2e-4", 48, 25, 1600, 1024, 8, false},
};
#define PRESETS ((int)(sizeof presets / sizeof *presets))
#define NAMES "tiny|small|medium|large|gpt2-small|gpt2-medium|gpt2-large|gpt2-xl"

const hark_preset *hark_preset_at(int index) { return index >= 0 && index < PRESETS ? &presets[index] : NULL; }

const hark_preset *hark_preset_find(const char *name) {
  for (int i = 0; i < PRESETS; i++)
    if (strcmp(presets[i].name, name) == 0) return &presets[i];
  return NULL;
}

double hark_preset_size(const hark_preset *preset) { return 12.0 * preset->layers * preset->width * preset->width; }

static bool fits(const hark_preset *preset, double bytes, double operations) {
  const double size = hark_preset_size(preset);
  return size <= NUMBERS_OF_BYTE * bytes && OPERATIONS_OF_NUMBER * size * TOKENS_OF_NUMBER * size <= operations;
}

const hark_preset *hark_preset_for(double bytes, int cores, double seconds) {
  const hark_preset *best = &presets[0];
  for (int i = 0; i < PRESETS; i++)
    if (presets[i].is_default && fits(&presets[i], bytes, cores * OPERATIONS_OF_CORE * seconds)) best = &presets[i];
  return best;
}

/* ---- options ---- */

#define VALUES 9
#define VALUE_BYTES 32

typedef struct preset_value {
  const char *option;
  char value[VALUE_BYTES];
} preset_value;

static void list_values(const hark_preset *preset, preset_value out[VALUES]) {
  const struct {
    const char *option;
    int whole; /* 0: it is a word */
    const char *word;
  } rows[VALUES] = {{"model.layers", preset->layers, NULL},
                    {"model.heads", preset->heads, NULL},
                    {"model.width", preset->width, NULL},
                    {"model.context", preset->context, NULL},
                    {"model.positions", 0, preset->positions},
                    {"model.activation", 0, preset->activation},
                    {"model.bias", 0, preset->bias},
                    {"train.batch", preset->batch, NULL},
                    {"train.learning_rate", 0, preset->learning_rate}};
  for (int i = 0; i < VALUES; i++) {
    out[i].option = rows[i].option;
    if (rows[i].word != NULL)
      (void)snprintf(out[i].value, VALUE_BYTES, "%s", rows[i].word);
    else
      (void)snprintf(out[i].value, VALUE_BYTES, "%d", rows[i].whole);
  }
}

hark_status hark_preset_apply(hark_context *context, hark_options *options, const hark_preset *preset, const char *where) {
  preset_value values[VALUES];
  list_values(preset, values);
  for (int i = 0; i < VALUES; i++)
    HARK_TRY(hark_options_set(context, options, values[i].option, values[i].value, where, HARK_SOURCE_PRESET));
  return HARK_OK;
}

static const hark_option rows[] = {
    {"preset", NULL, HARK_OPTION_ENUM, offsetof(hark_preset_values, preset), "none", "none|" NAMES, NULL, NULL,
     "size of the model, with a batch and a learning rate for it; options that are given have precedence", NULL},
};
static const hark_option_section sections[] = {{"", "Size"}, {NULL, NULL}};
const hark_option_table hark_preset_table = {rows, 1, sections, sizeof(hark_preset_values), false};

/* Whether some value of the preset is in use: others have replaced those of a preset that has no effect. */
static bool has_effect(const hark_options *options) {
  preset_value values[VALUES];
  list_values(&presets[0], values);
  for (int i = 0; i < VALUES; i++)
    if (hark_options_source(options, values[i].option) == HARK_SOURCE_PRESET) return true;
  return false;
}

hark_status hark_preset_read(hark_context *context, hark_options *options, const hark_preset_values *values, const hark_preset **out) {
  const hark_preset *const preset = hark_preset_at(values->preset - 1);
  char where[64];
  *out = NULL;
  if (preset == NULL) return HARK_OK;
  (void)snprintf(where, sizeof where, "--preset %s", preset->name);
  HARK_TRY(hark_preset_apply(context, options, preset, where));
  if (!has_effect(options))
    return hark_options_complain(context, options, "preset", "has no effect here: all of its values are given by a file or by options");
  *out = preset;
  return HARK_OK;
}

/* ---- the choice for a text ---- */

static bool is_any_given(const hark_options *options, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (hark_options_source(options, names[i]) != HARK_SOURCE_DEFAULT) return true;
  return false;
}

/* A pattern of words for the layers needs so many of them. */
static bool has_pattern(const hark_config *config) {
  return config->model.attention.structure.count > 1 || config->model.attention.normalisation.count > 1;
}

static bool is_sized(const hark_options *options, const hark_config *config) {
  static const char *const names[] = {"model.architecture",    "model.layers",  "model.heads",
                                      "model.key_heads",       "model.width",   "model.feed_forward_width",
                                      "model.attention_width", "model.context", "train.accumulate"};
  return has_pattern(config) || is_any_given(options, names, sizeof names / sizeof *names);
}

static bool is_long(const hark_options *options) {
  static const char *const names[] = {"train.steps", "train.epochs", "train.tokens", "train.examples"};
  return is_any_given(options, names, sizeof names / sizeof *names);
}

/* Bytes of the text, unpacked; 0 if it cannot be found or read, which is reported when it is read again. */
static double text_bytes(hark_context *context, const hark_config *config) {
  const hark_corpus_settings settings = {.paths = config->data.paths.items, .path_count = (int)config->data.paths.count};
  hark_source_list list = {0};
  double bytes = 0;
  hark_status status = hark_sources_find(context, &settings, &list);
  if (status == HARK_OK) status = hark_sources_unpack(context, &list, config->data.text_field[0] != '\0' ? config->data.text_field : NULL);
  for (int64_t i = 0; i < list.count && status == HARK_OK; i++) bytes += (double)list.items[i].bytes;
  hark_sources_free(context, &list);
  return bytes;
}

static int cores_of(hark_context *context, const hark_config *config) {
  hark_cores cores;
  const char *from;
  if (config->run.threads > 0) return (int)config->run.threads;
  hark_cores_of_process(&cores);
  return hark_thread_count(context, "", cores.count, &from);
}

/* A tenth of a long text would take longer to evaluate than to train on. */
static hark_status limit_validation(hark_context *context, hark_options *options, double bytes) {
  static const char *const names[] = {"data.validation_fraction", "data.validation_paths", "data.split"};
  char value[VALUE_BYTES];
  if (is_any_given(options, names, sizeof names / sizeof *names) || 0.1 * bytes <= VALIDATION_BYTES) return HARK_OK;
  (void)snprintf(value, sizeof value, "%.0e", VALIDATION_BYTES / bytes);
  return hark_options_set(context, options, names[0], value, "the default for a text of this size", HARK_SOURCE_PRESET);
}

hark_status hark_preset_choose(hark_context *context, hark_options *options, hark_config *config, bool from_file, const hark_preset *given,
                               hark_preset_choice *out) {
  static const char where[] = "the default for this text and machine";
  *out = (hark_preset_choice){0};
  const bool resumes = config->run.resume || config->train.init_from[0] != '\0';
  if (from_file || resumes || hark_config_has_examples(config) || config->data.paths.count == 0) return HARK_OK;
  if (is_long(options) || (given == NULL && is_sized(options, config)) || hark_options_problem_count(options) > 0) return HARK_OK;
  out->bytes = text_bytes(context, config);
  if (out->bytes <= 0) return HARK_OK;
  out->time = config->train.max_time == 0;
  out->cores = cores_of(context, config);
  if (given == NULL) {
    out->preset = hark_preset_for(out->bytes, out->cores, out->time ? HARK_PRESET_SECONDS : config->train.max_time);
    HARK_TRY(hark_preset_apply(context, options, out->preset, where));
  }
  HARK_TRY(limit_validation(context, options, out->bytes));
  if (!out->time) return HARK_OK;
  config->train.plans_once = true;
  return hark_options_set(context, options, "train.max_time", "10m", where, HARK_SOURCE_PRESET);
}
