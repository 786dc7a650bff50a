/* description.c - one table drives printing and reading. */
#include "models/description.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/json_tree.h"
#include "io/json_write.h"
#include "io/number.h"

#define KEY_BYTES 64

typedef enum field_type {
  FIELD_WHOLE,
  FIELD_REAL,
  FIELD_BOOLEAN,
  FIELD_WORD,
  FIELD_LAYERS,
  FIELD_KERNEL,
  FIELD_CAPACITIES,
  FIELD_DELIMITERS,
  FIELD_FACTORS, /* hark_rotary_factors */
  FIELD_UNLESS   /* a bool that is true where the key is false */
} field_type;

/* When a field is told. Descriptions of models without a positional kernel, without a hierarchy, or with plain rotary positions do not speak of
 * what they could be. CHANGED: a word other than the first, a number other
 * than 0, a factor other than 1 (or 0, which stands for it). GIVEN: a number other than 0, a list with numbers. */
typedef enum field_told {
  TOLD_ALWAYS,
  TOLD_CHANGED,
  TOLD_GIVEN,
  TOLD_WITH_YARN,
  TOLD_WITH_KERNEL,
  TOLD_IN_HIERARCHY,
  TOLD_WITH_CME,
  TOLD_WITH_AHCA,
  TOLD_WITH_CAPACITIES,
  TOLD_WITH_DELIMITERS,
  TOLD_WITH_LATENT,
  TOLD_WITH_FINITE
} field_told;

/* A key below "model" and the field that it fills. */
typedef struct field {
  const char *key;
  field_type type;
  bool optional; /* 0, NULL or the first word where it is not told */
  field_told told;
  size_t offset;
  double above, least, most; /* numbers: least <= x <= most and x > above */
  const char *words;         /* WORD, LAYERS: in the order of the enum */
} field;

#define AT(name) offsetof(hark_decoder_config, name)
#define WHOLE(key, name, most)                                                                                                             \
  { key, FIELD_WHOLE, false, TOLD_ALWAYS, AT(name), 0, 1, most, NULL }
#define REAL(key, name, above, most)                                                                                                       \
  { key, FIELD_REAL, false, TOLD_ALWAYS, AT(name), above, above, most, NULL }
#define BOOLEAN(key, name)                                                                                                                 \
  { key, FIELD_BOOLEAN, false, TOLD_ALWAYS, AT(name), 0, 0, 0, NULL }
#define WORD(key, name, words)                                                                                                             \
  { key, FIELD_WORD, false, TOLD_ALWAYS, AT(name), 0, 0, 0, words }
#define GIVEN(key, name)                                                                                                                   \
  { key, FIELD_REAL, true, TOLD_GIVEN, AT(name), -1, 0, 1e300, NULL }
#define RAMP_KEY "rotary.ramp"

/* In the order of printing; those of one section next to each other. */
static const field fields[] = {
    {"vocabulary", FIELD_WHOLE, true, TOLD_ALWAYS, AT(vocabulary), 0, 1, INT32_MAX, NULL},
    WHOLE("layers", layers, 10000),
    WHOLE("heads", heads, 65536),
    WHOLE("key_heads", key_heads, 65536),
    WHOLE("width", width, 1 << 20),
    WHOLE("feed_forward_width", feed_forward_width, 1 << 24),
    WHOLE("context", context, 1 << 24),
    WORD("activation", activation, HARK_ACTIVATION_WORDS),
    WORD("norm", norm, HARK_NORM_WORDS),
    REAL("norm_epsilon", norm_epsilon, 0, 1),
    WORD("positions", positions, HARK_POSITIONS_WORDS),
    {"positional", FIELD_KERNEL, true, TOLD_WITH_KERNEL, AT(positional), 0, 0, 0, NULL},
    {"positional_scope", FIELD_WORD, true, TOLD_WITH_KERNEL, AT(positional_scope), 0, 0, 0, HARK_POSITIONAL_SCOPE_WORDS},
    {"positional_stretch", FIELD_REAL, true, TOLD_CHANGED, AT(positional_stretch), 0, 1, 1e300, NULL},
    {"architecture", FIELD_WORD, true, TOLD_CHANGED, AT(architecture), 0, 0, 0, HARK_ARCHITECTURE_WORDS},
    {"attention_width", FIELD_WHOLE, true, TOLD_CHANGED, AT(attention_width), -1, 0, 1 << 20, NULL},
    {"pooling", FIELD_WORD, true, TOLD_CHANGED, AT(pooling), 0, 0, 0, HARK_POOLING_WORDS},
    {"head_width", FIELD_WHOLE, true, TOLD_CHANGED, AT(head_width), -1, 0, 1 << 24, NULL},
    {"classes", FIELD_WHOLE, true, TOLD_CHANGED, AT(classes), -1, 0, 1 << 20, NULL},
    {"parts", FIELD_WHOLE, true, TOLD_CHANGED, AT(parts), -1, 0, 2, NULL},
    {"features", FIELD_WHOLE, true, TOLD_CHANGED, AT(features), -1, 0, INT32_MAX, NULL},
    {"responses", FIELD_WHOLE, true, TOLD_CHANGED, AT(responses), -1, 0, INT32_MAX, NULL},
    {"sentences", FIELD_BOOLEAN, true, TOLD_CHANGED, AT(sentences), 0, 0, 0, NULL},
    BOOLEAN("tie_embeddings", tie_embeddings),
    BOOLEAN("bias", bias),
    REAL("rotary.base", rotary_base, 1, 1e300),
    WORD("rotary.pairs", rotary_pairs, HARK_ROTARY_PAIRS_WORDS),
    {"rotary.learned", FIELD_WORD, true, TOLD_CHANGED, AT(rotary_learned), 0, 0, 0, HARK_ROTARY_LEARNED_WORDS},
    {"rotary.fraction", FIELD_REAL, true, TOLD_CHANGED, AT(rotary_fraction), 0, 0, 1, NULL},
    {"rotary.scaling", FIELD_WORD, true, TOLD_CHANGED, AT(rotary_scaling), 0, 0, 0, HARK_ROTARY_SCALING_WORDS},
    {"rotary.scaling_factor", FIELD_REAL, true, TOLD_CHANGED, AT(rotary_factor), 0, 1, 1e300, NULL},
    {"rotary.original_context", FIELD_WHOLE, true, TOLD_CHANGED, AT(rotary_original_context), -1, 0, 1 << 24, NULL},
    {RAMP_KEY, FIELD_WORD, true, TOLD_WITH_YARN, AT(rotary_tuning.ramp), 0, 0, 0, HARK_ROTARY_RAMP_WORDS},
    GIVEN("rotary.beta_fast", rotary_tuning.beta_fast),
    GIVEN("rotary.beta_slow", rotary_tuning.beta_slow),
    {"rotary.truncate", FIELD_UNLESS, true, TOLD_GIVEN, AT(rotary_tuning.untruncated), 0, 0, 0, NULL},
    GIVEN("rotary.attention_factor", rotary_tuning.attention_factor),
    GIVEN("rotary.mscale", rotary_tuning.mscale),
    GIVEN("rotary.mscale_all_dim", rotary_tuning.mscale_all_dim),
    GIVEN("rotary.low_freq_factor", rotary_tuning.low_frequency),
    GIVEN("rotary.high_freq_factor", rotary_tuning.high_frequency),
    {"rotary.short_factor", FIELD_FACTORS, true, TOLD_GIVEN, AT(rotary_tuning.short_factor), 0, 0, 1e300, NULL},
    {"rotary.long_factor", FIELD_FACTORS, true, TOLD_GIVEN, AT(rotary_tuning.long_factor), 0, 0, 1e300, NULL},
    {"attention.structure", FIELD_LAYERS, false, TOLD_ALWAYS, AT(structure), 0, 0, 0, HARK_STRUCTURE_WORDS},
    {"attention.window", FIELD_WHOLE, false, TOLD_ALWAYS, AT(window), -1, 0, 1 << 24, NULL},
    {"attention.hierarchy_block", FIELD_WHOLE, true, TOLD_IN_HIERARCHY, AT(hierarchy_block), 0, 2, 1 << 20, NULL},
    {"attention.partition", FIELD_WORD, true, TOLD_IN_HIERARCHY, AT(partition), 0, 0, 0, HARK_PARTITION_WORDS},
    {"attention.coarse_query", FIELD_WORD, true, TOLD_IN_HIERARCHY, AT(coarse_query), 0, 0, 0, HARK_COARSE_QUERY_WORDS},
    {"attention.hierarchical_bias", FIELD_BOOLEAN, true, TOLD_IN_HIERARCHY, AT(hierarchical_bias), 0, 0, 0, NULL},
    WORD("attention.kernel", kernel, HARK_KERNEL_WORDS),
    REAL("attention.sigma", sigma, 0, 1e300),
    BOOLEAN("attention.forget_gate", forget_gate),
    {"attention.unbiased", FIELD_BOOLEAN, true, TOLD_CHANGED, AT(attention_unbiased), 0, 0, 0, NULL},
    {"attention.normalisation", FIELD_LAYERS, true, TOLD_CHANGED, AT(normalisation), 0, 0, 0, HARK_NORMALISATION_WORDS},
    {"attention.ridge", FIELD_REAL, true, TOLD_WITH_CME, AT(ridge), 0, 0, 1e300, NULL},
    {"attention.ridge_power", FIELD_REAL, true, TOLD_WITH_CME, AT(ridge_power), -1, 0, 1, NULL},
    {"attention.ridge_learned", FIELD_BOOLEAN, true, TOLD_WITH_CME, AT(ridge_learned), 0, 0, 0, NULL},
    {"attention.sigma_learned", FIELD_BOOLEAN, true, TOLD_WITH_CME, AT(sigma_learned), 0, 0, 0, NULL},
    {"attention.unit", FIELD_BOOLEAN, true, TOLD_WITH_CME, AT(unit), 0, 0, 0, NULL},
    {"ahca.chunk", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.chunk), 0, 0, 0, HARK_AHCA_CHUNK_WORDS},
    {"ahca.chunk_size", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.chunk_size), -1, 1, INT32_MAX, NULL},
    {"ahca.chunk_minimum", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.chunk_minimum), -1, 0, INT32_MAX, NULL},
    {"ahca.chunk_maximum", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.chunk_maximum), -1, 0, INT32_MAX, NULL},
    {"ahca.delimiter", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.delimiter), -1, 0, INT32_MAX, NULL},
    {"ahca.more_delimiters", FIELD_DELIMITERS, true, TOLD_WITH_DELIMITERS, AT(ahca.more_delimiters), -1, 0, INT32_MAX, NULL},
    {"ahca.window", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.window), -1, 1, INT32_MAX, NULL},
    {"ahca.threshold", FIELD_REAL, true, TOLD_WITH_AHCA, AT(ahca.threshold), -1e300, -1e300, 1e300, NULL},
    {"ahca.primary_slots", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.primary_slots), -1, 1, INT32_MAX, NULL},
    {"ahca.secondary_slots", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.secondary_slots), -1, 1, INT32_MAX, NULL},
    {"ahca.selected", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.selected), -1, 1, INT32_MAX, NULL},
    {"ahca.primary_pool", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.primary_pool), 0, 0, 0, HARK_AHCA_POOL_WORDS},
    {"ahca.secondary_pool", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.secondary_pool), 0, 0, 0, HARK_AHCA_POOL_WORDS},
    {"ahca.primary_width", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.primary_width), -1, 0, INT32_MAX, NULL},
    {"ahca.secondary_width", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.secondary_width), -1, 0, INT32_MAX, NULL},
    {"ahca.select", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.select), 0, 0, 0, HARK_AHCA_SELECT_WORDS},
    {"ahca.join", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.join), 0, 0, 0, HARK_AHCA_JOIN_WORDS},
    {"ahca.depth", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.depth), 0, 0, 0, HARK_AHCA_DEPTH_WORDS},
    {"ahca.depth_score", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.depth_score), 0, 0, 0, HARK_AHCA_DEPTH_SCORE_WORDS},
    {"ahca.capacity", FIELD_REAL, true, TOLD_WITH_AHCA, AT(ahca.capacity), -1e300, 0, 1e300, NULL},
    {"ahca.capacities", FIELD_CAPACITIES, true, TOLD_WITH_CAPACITIES, AT(ahca.capacities), -1, 0, 1, NULL},
    {"ahca.ratio_weight", FIELD_REAL, true, TOLD_WITH_AHCA, AT(ahca.ratio_weight), -1e300, 0, 1e300, NULL},
    {"ahca.head", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.head), 0, 0, 0, HARK_AHCA_HEAD_WORDS},
    {"ahca.output", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.output), 0, 0, 0, HARK_AHCA_OUTPUT_WORDS},
    {"ahca.layer", FIELD_WORD, true, TOLD_WITH_AHCA, AT(ahca.layer), 0, 0, 0, HARK_AHCA_LAYER_WORDS},
    {"ahca.primary_depth", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.primary_depth), -1, 0, 2, NULL},
    {"ahca.secondary_depth", FIELD_WHOLE, true, TOLD_WITH_AHCA, AT(ahca.secondary_depth), -1, 0, 2, NULL},
    {"ahca.ponder_weight", FIELD_REAL, true, TOLD_WITH_AHCA, AT(ahca.ponder_weight), -1e300, 0, 1e300, NULL},
    {"latent.form", FIELD_WORD, true, TOLD_WITH_LATENT, AT(latent.form), 0, 0, 0, HARK_LATENT_FORM_WORDS},
    {"latent.skip", FIELD_BOOLEAN, true, TOLD_WITH_LATENT, AT(latent.skip), 0, 0, 0, NULL},
    {"latent.aggregate", FIELD_WORD, true, TOLD_WITH_LATENT, AT(latent.aggregate), 0, 0, 0, HARK_LATENT_AGGREGATE_WORDS},
    {"latent.norm", FIELD_WORD, true, TOLD_WITH_LATENT, AT(latent.norm), 0, 0, 0, HARK_BOUND_WORDS},
    {"latent.operator_norm", FIELD_REAL, true, TOLD_WITH_LATENT, AT(latent.operator_norm), -1, 0, 1e300, NULL},
    {"latent.matrix_norm", FIELD_REAL, true, TOLD_WITH_LATENT, AT(latent.matrix_norm), -1, 0, 1e300, NULL},
    {"latent.range", FIELD_REAL, true, TOLD_WITH_LATENT, AT(latent.range), -1, 0, 1e300, NULL},
    {"finite.map", FIELD_WORD, true, TOLD_WITH_FINITE, AT(finite.map), 0, 0, 0, HARK_FINITE_MAP_WORDS},
    {"finite.covariates", FIELD_WHOLE, true, TOLD_WITH_FINITE, AT(finite.covariates), -1, 1, INT32_MAX, NULL},
    {"finite.ridge", FIELD_REAL, true, TOLD_WITH_FINITE, AT(finite.ridge), 0, 0, 1e300, NULL},
    {"finite.ridge_learned", FIELD_BOOLEAN, true, TOLD_WITH_FINITE, AT(finite.ridge_learned), 0, 0, 0, NULL},
};
#define FIELDS (sizeof fields / sizeof *fields)

#define KERNEL_KEY "positional"
#define TYPE_KEY "type"
#define TYPE_WORD "gpt"

/* Keys of configurations that a model which is loaded has no use for. */
static const char *const training_keys[] = {"dropout",   "embedding_dropout", "initialisation", "embedding_deviation",
                                            "recompute", "attention.dropout"};

/* ---- printing ---- */

/* Word number `index` of "a|b|c". */
static const char *word_at(const char *words, int index, size_t *length) {
  for (; index > 0; index--) words = strchr(words, '|') + 1;
  *length = strcspn(words, "|");
  return words;
}

static void print_layers(const field *f, const hark_layer_choice *layers, hark_text *text) {
  for (int64_t i = 0; i < hark_max(1, layers->count); i++) {
    size_t length;
    const char *name = word_at(f->words, hark_layer_choice_of(layers, i), &length);
    hark_text_append(text, "%s%.*s", i == 0 ? "\"" : ",", (int)length, name);
  }
  hark_text_append(text, "\"");
}

static void print_value(const field *f, const hark_decoder_config *config, hark_text *text) {
  const char *value = (const char *)config + f->offset;
  int64_t whole;
  double real;
  bool truth;
  int word;
  size_t length;
  const hark_rotary_factors *factors = (const void *)value;
  switch (f->type) {
    case FIELD_WHOLE:
      memcpy(&whole, value, sizeof whole);
      hark_text_append(text, "%" PRId64, whole);
      return;
    case FIELD_REAL:
      memcpy(&real, value, sizeof real);
      hark_json_append_number(text, real);
      return;
    case FIELD_BOOLEAN:
      memcpy(&truth, value, sizeof truth);
      hark_text_append(text, "%s", truth ? "true" : "false");
      return;
    case FIELD_KERNEL: hark_json_append_string(text, config->positional); return;
    case FIELD_CAPACITIES:
      for (int32_t i = 0; i < config->ahca.capacity_count; i++) {
        hark_text_append(text, i == 0 ? "[" : ", ");
        hark_json_append_number(text, config->ahca.capacities[i]);
      }
      hark_text_append(text, "]");
      return;
    case FIELD_DELIMITERS:
      for (int32_t i = 0; i < config->ahca.more_delimiter_count; i++)
        hark_text_append(text, "%s%" PRId32, i == 0 ? "[" : ", ", config->ahca.more_delimiters[i]);
      hark_text_append(text, "]");
      return;
    case FIELD_FACTORS:
      for (int32_t i = 0; i < factors->count; i++) {
        hark_text_append(text, i == 0 ? "[" : ", ");
        hark_json_append_number(text, factors->values[i]);
      }
      hark_text_append(text, "%s]", factors->count == 0 ? "[" : "");
      return;
    case FIELD_UNLESS:
      memcpy(&truth, value, sizeof truth);
      hark_text_append(text, "%s", truth ? "false" : "true");
      return;
    case FIELD_LAYERS: print_layers(f, (const hark_layer_choice *)value, text); return;
    case FIELD_WORD: break;
  }
  memcpy(&word, value, sizeof word);
  const char *name = word_at(f->words, word, &length);
  hark_text_append(text, "\"%.*s\"", (int)length, name);
}

/* "rotary" of "rotary.base"; none of "layers". */
static size_t section_length(const char *key) {
  const char *dot = strchr(key, '.');
  return dot != NULL ? (size_t)(dot - key) : 0;
}

static bool is_changed(const hark_decoder_config *config, const field *f) {
  const char *value = (const char *)config + f->offset;
  double factor;
  int64_t whole;
  int word;
  bool truth;
  if (f->type == FIELD_BOOLEAN || f->type == FIELD_UNLESS) {
    memcpy(&truth, value, sizeof truth);
    return truth;
  }
  if (f->type == FIELD_FACTORS) return ((const hark_rotary_factors *)(const void *)value)->count > 0;
  if (f->type == FIELD_WORD) {
    memcpy(&word, value, sizeof word);
    return word != 0;
  }
  if (f->type == FIELD_LAYERS) return !hark_layer_choice_is((const hark_layer_choice *)value, 0);
  if (f->type == FIELD_WHOLE) {
    memcpy(&whole, value, sizeof whole);
    return whole != 0;
  }
  memcpy(&factor, value, sizeof factor);
  return factor != 0 && (factor != 1 || f->told == TOLD_GIVEN);
}

static bool is_told(const hark_decoder_config *config, const field *f) {
  switch (f->told) {
    case TOLD_ALWAYS: break;
    case TOLD_CHANGED:
    case TOLD_GIVEN: return is_changed(config, f);
    case TOLD_WITH_YARN: return config->rotary_scaling == HARK_ROTARY_YARN;
    case TOLD_WITH_KERNEL: return config->positional != NULL && config->positional[0] != '\0';
    case TOLD_IN_HIERARCHY: return hark_layer_choice_has(&config->structure, HARK_STRUCTURE_HIERARCHICAL);
    case TOLD_WITH_CME: return hark_layer_choice_has(&config->normalisation, HARK_NORMALISATION_CME);
    case TOLD_WITH_AHCA: return config->architecture == HARK_ARCHITECTURE_ahca;
    case TOLD_WITH_CAPACITIES: return config->architecture == HARK_ARCHITECTURE_ahca && config->ahca.capacity_count > 0;
    case TOLD_WITH_DELIMITERS:
      return config->architecture == HARK_ARCHITECTURE_ahca && config->ahca.chunk == HARK_AHCA_DELIMITER &&
             config->ahca.more_delimiter_count > 0;
    case TOLD_WITH_LATENT: return config->architecture == HARK_ARCHITECTURE_latent;
    case TOLD_WITH_FINITE: return config->architecture == HARK_ARCHITECTURE_finite;
  }
  return true;
}

void hark_description_print(const hark_decoder_config *config, hark_text *text) {
  hark_text_append(text, "{\"model\": {\"%s\": \"%s\"", TYPE_KEY, TYPE_WORD);
  for (size_t i = 0; i < FIELDS; i++) {
    const char *key = fields[i].key;
    if (!is_told(config, &fields[i])) continue;
    const size_t length = section_length(key), before = i > 0 ? section_length(fields[i - 1].key) : 0;
    const bool begins = length > 0 && (before != length || strncmp(key, fields[i - 1].key, length) != 0);
    if (before > 0 && (length == 0 || begins)) hark_text_append(text, "}");
    hark_text_append(text, ", ");
    if (begins) hark_text_append(text, "\"%.*s\": {", (int)length, key);
    hark_text_append(text, "\"%s\": ", length > 0 ? key + length + 1 : key);
    print_value(&fields[i], config, text);
  }
  hark_text_append(text, "%s}}", section_length(fields[FIELDS - 1].key) > 0 ? "}" : "");
}

/* ---- reading ---- */

typedef struct description_reader {
  hark_context *context;
  const char *name;
  hark_decoder_config *config;
  bool seen[FIELDS], type_seen;
} description_reader;

/* *out <- a number within the field's range. */
static hark_status take_number(const description_reader *r, const field *f, const hark_json_node *node, double *out) {
  const bool whole = node->kind == HARK_JSON_INTEGER, must_be_whole = f->type == FIELD_WHOLE || f->type == FIELD_DELIMITERS;
  if (!whole && (must_be_whole || node->kind != HARK_JSON_REAL))
    return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s is no %s", r->name, f->key, must_be_whole ? "whole number" : "number");
  const double value = whole ? (double)node->integer : node->real;
  if (!(value >= f->least && value > f->above && value <= f->most)) {
    char least[HARK_NUMBER_BYTES], most[HARK_NUMBER_BYTES], is[HARK_NUMBER_BYTES];
    return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s is %s, expected %s %s, at most %s", r->name, f->key,
                     hark_number_print(value, is), must_be_whole ? "at least" : "more than", hark_number_print(f->least, least),
                     hark_number_print(f->most, most));
  }
  *out = value;
  return HARK_OK;
}

static hark_status read_number(const description_reader *r, const field *f, const hark_json_node *node) {
  double value = 0;
  HARK_TRY(take_number(r, f, node, &value));
  char *to = (char *)r->config + f->offset;
  if (f->type == FIELD_WHOLE)
    memcpy(to, &node->integer, sizeof node->integer);
  else
    memcpy(to, &value, sizeof value);
  return HARK_OK;
}

/* The number of a word of the field, or -1. */
static int find_word(const field *f, const char *given, size_t given_length) {
  size_t length = 0;
  int index = 0;
  for (const char *word = f->words;; word += length + 1, index++) {
    length = strcspn(word, "|");
    if (length == given_length && memcmp(word, given, length) == 0) return index;
    if (word[length] == '\0') return -1;
  }
}

/* "window" or "window,hierarchical". */
static bool take_layers(const field *f, const char *given, hark_layer_choice *out) {
  size_t length = 0;
  for (const char *word = given;; word += length + 1) {
    length = strcspn(word, ",");
    const int index = out->count < HARK_LAYER_CHOICE_WORDS ? find_word(f, word, length) : -1;
    if (index < 0) return false;
    out->words[out->count++] = index;
    if (word[length] == '\0') return true;
  }
}

static hark_status read_word(const description_reader *r, const field *f, const hark_json_node *node) {
  const char *given = hark_json_text(node);
  char *const to = (char *)r->config + f->offset;
  const int index = given != NULL && f->type == FIELD_WORD ? find_word(f, given, strlen(given)) : -1;
  if (index >= 0) {
    memcpy(to, &index, sizeof index);
    return HARK_OK;
  }
  if (given != NULL && f->type == FIELD_LAYERS && take_layers(f, given, (hark_layer_choice *)to)) return HARK_OK;
  char text[HARK_SHOWN_BYTES];
  char several[64] = "";
  if (f->type == FIELD_LAYERS) (void)snprintf(several, sizeof several, ", or up to %d of them with commas", HARK_LAYER_CHOICE_WORDS);
  return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s is \"%s\", expected one of %s%s", r->name, f->key,
                   hark_text_shown(given != NULL ? given : "?", text), f->words, several);
}

/* One more number of a list. */
static hark_status add_number(const description_reader *r, const field *f, const hark_json_node *node) {
  hark_ahca_config *ahca = &r->config->ahca;
  hark_rotary_factors *factors = (void *)((char *)r->config + f->offset);
  int32_t *const count = f->type == FIELD_CAPACITIES   ? &ahca->capacity_count
                         : f->type == FIELD_DELIMITERS ? &ahca->more_delimiter_count
                                                       : &factors->count;
  const int32_t most = f->type == FIELD_CAPACITIES   ? HARK_AHCA_CAPACITIES
                       : f->type == FIELD_DELIMITERS ? HARK_AHCA_DELIMITERS
                                                     : HARK_ROTARY_FACTORS;
  double value = 0;
  if (*count == most) return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s has more than %d numbers", r->name, f->key, (int)most);
  HARK_TRY(take_number(r, f, node, &value));
  if (f->type == FIELD_CAPACITIES)
    ahca->capacities[*count] = value;
  else if (f->type == FIELD_DELIMITERS)
    ahca->more_delimiters[*count] = (int32_t)value;
  else
    factors->values[*count] = value;
  (*count)++;
  return HARK_OK;
}

/* Numbers that stand in one text, as configurations have them: "10,13". */
static hark_status add_numbers_of(const description_reader *r, const field *f, const char *text) {
  for (const char *at = text; *at != '\0';) {
    const size_t length = strcspn(at, ", ");
    hark_json_node number = {.kind = HARK_JSON_INTEGER};
    if (length > 0 && !hark_number_read_whole(at, length, &number.integer)) {
      number.kind = HARK_JSON_REAL;
      if (!hark_number_read(at, length, &number.real)) number.kind = HARK_JSON_TEXT;
    }
    if (length > 0) HARK_TRY(add_number(r, f, &number));
    at += length + (at[length] != '\0');
  }
  return HARK_OK;
}

static hark_status read_list(const description_reader *r, const field *f, const hark_json_node *node) {
  if (node->kind != HARK_JSON_LIST) return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s is no list", r->name, f->key);
  for (const hark_json_node *item = node->first; item != NULL; item = item->next)
    HARK_TRY(hark_json_text(item) != NULL ? add_numbers_of(r, f, hark_json_text(item)) : add_number(r, f, item));
  return HARK_OK;
}

/* The expression of a positional kernel is read here for its mistakes alone. */
static hark_status read_kernel(const description_reader *r, const hark_json_node *node) {
  const char *text = hark_json_text(node);
  hark_positional *expression = NULL;
  if (text == NULL) return hark_fail(r->context, HARK_BAD_FILE, "%s: model." KERNEL_KEY " is no text", r->name);
  r->config->positional = text;
  if (text[0] == '\0') return HARK_OK;
  const hark_status status = hark_positional_create(r->context, text, &expression);
  hark_positional_destroy(r->context, &expression);
  if (status != HARK_INVALID_ARGUMENT) return status;
  hark_fail_prefix(r->context, "%s: model." KERNEL_KEY ": ", r->name);
  return HARK_BAD_FILE;
}

static hark_status read_field(description_reader *r, const char *key, const hark_json_node *node) {
  char text[HARK_SHOWN_BYTES];
  if (strcmp(key, TYPE_KEY) == 0) {
    const char *type = hark_json_text(node);
    r->type_seen = true;
    if (type != NULL && strcmp(type, TYPE_WORD) == 0) return HARK_OK;
    return hark_fail(r->context, HARK_BAD_FILE, "%s: model.type is \"%s\", expected %s", r->name,
                     hark_text_shown(type != NULL ? type : "?", text), TYPE_WORD);
  }
  for (size_t i = 0; i < FIELDS; i++) {
    const field *f = &fields[i];
    if (strcmp(f->key, key) != 0) continue;
    if (r->seen[i]) return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s is there twice", r->name, key);
    r->seen[i] = true;
    if (f->type == FIELD_WORD || f->type == FIELD_LAYERS) return read_word(r, f, node);
    if (f->type == FIELD_KERNEL) return read_kernel(r, node);
    if (f->type == FIELD_CAPACITIES || f->type == FIELD_DELIMITERS || f->type == FIELD_FACTORS) return read_list(r, f, node);
    if (f->type != FIELD_BOOLEAN && f->type != FIELD_UNLESS) return read_number(r, f, node);
    if (node->kind != HARK_JSON_BOOLEAN)
      return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s is neither true nor false", r->name, key);
    const bool truth = f->type == FIELD_UNLESS ? !node->boolean : node->boolean;
    memcpy((char *)r->config + f->offset, &truth, sizeof truth);
    return HARK_OK;
  }
  for (size_t i = 0; i < sizeof training_keys / sizeof *training_keys; i++)
    if (strcmp(training_keys[i], key) == 0) return HARK_OK;
  return hark_fail(r->context, HARK_BAD_FILE, "%s: there is no key model.%s", r->name, hark_text_shown(key, text));
}

/* The members of an object; `section` is "" or "rotary". */
static hark_status read_section(description_reader *r, const char *section, const hark_json_node *object) {
  for (const hark_json_node *member = object->first; member != NULL; member = member->next) {
    char key[KEY_BYTES], text[HARK_SHOWN_BYTES];
    const int length = snprintf(key, sizeof key, "%s%s%s", section, section[0] != '\0' ? "." : "", member->name);
    if (length < 0 || (size_t)length >= sizeof key)
      return hark_fail(r->context, HARK_BAD_FILE, "%s: there is no key model.%s...", r->name, hark_text_shown(key, text));
    if (member->kind == HARK_JSON_OBJECT && section[0] == '\0')
      HARK_TRY(read_section(r, key, member));
    else
      HARK_TRY(read_field(r, key, member));
  }
  return HARK_OK;
}

static hark_status read_model(description_reader *r, const hark_json_node *root) {
  const hark_json_node *model = hark_json_member(root, "model");
  if (!hark_json_is(model, HARK_JSON_OBJECT))
    return hark_fail(r->context, HARK_BAD_FILE, "%s: expected an object with a member \"model\" that is an object", r->name);
  HARK_TRY(read_section(r, "", model));
  if (!r->type_seen) return hark_fail(r->context, HARK_BAD_FILE, "%s: model.type is missing", r->name);
  for (size_t i = 0; i < FIELDS; i++) /* of before there were two */
    if (!r->seen[i] && r->config->rotary_scaling == HARK_ROTARY_YARN && strcmp(fields[i].key, RAMP_KEY) == 0)
      r->config->rotary_tuning.ramp = HARK_ROTARY_RAMP_TURNS;
  for (size_t i = 0; i < FIELDS; i++)
    if (!r->seen[i] && (!fields[i].optional || (fields[i].offset == AT(hierarchy_block) && is_told(r->config, &fields[i]))))
      return hark_fail(r->context, HARK_BAD_FILE, "%s: model.%s is missing", r->name, fields[i].key);
  return HARK_OK;
}

hark_status hark_description_parse(hark_context *context, const char *name, const char *text, size_t bytes, hark_description *out) {
  *out = (hark_description){0};
  HARK_TRY(hark_json_tree_parse(context, name, text, bytes, &out->tree));
  description_reader reader = {.context = context, .name = name, .config = &out->config};
  const hark_status status = read_model(&reader, out->tree.root);
  if (status != HARK_OK) hark_description_close(context, out);
  return status;
}

void hark_description_close(hark_context *context, hark_description *description) {
  hark_json_tree_free(context, &description->tree);
  *description = (hark_description){0};
}
