/* llama_family.c - see llama_family.h. Rates of rotary positions: docs/mathematics/rotary.md has the table of scalings. */
#include "models/foreign/llama_family.h"

#include <hark/attention.h>
#include <stdio.h>
#include <string.h>

const hark_foreign_fixed hark_llama_fixed[] = {
    {"positions", "rotary"}, {"norm", "rms_norm"}, {"bias", "false"}, {"rotary.pairs", "half"}, {NULL, NULL}};

const hark_foreign_tensor hark_llama_tensors[HARK_LLAMA_TENSORS] = {
    {"model.embed_tokens.weight", "embedding.token.weight", false},
    {"model.layers.#.input_layernorm.weight", "blocks.#.attention_norm.weight", false},
    {"model.layers.#.self_attn.q_proj.weight", "blocks.#.attention.query.weight", false},
    {"model.layers.#.self_attn.q_proj.bias", "blocks.#.attention.query.bias", false},
    {"model.layers.#.self_attn.k_proj.weight", "blocks.#.attention.key.weight", false},
    {"model.layers.#.self_attn.k_proj.bias", "blocks.#.attention.key.bias", false},
    {"model.layers.#.self_attn.v_proj.weight", "blocks.#.attention.value.weight", false},
    {"model.layers.#.self_attn.v_proj.bias", "blocks.#.attention.value.bias", false},
    {"model.layers.#.self_attn.o_proj.weight", "blocks.#.attention.output.weight", false},
    {"model.layers.#.self_attn.o_proj.bias", "blocks.#.attention.output.bias", false},
    {"model.layers.#.post_attention_layernorm.weight", "blocks.#.feed_forward_norm.weight", false},
    {"model.layers.#.mlp.gate_proj.weight", "blocks.#.feed_forward.gate.weight", false},
    {"model.layers.#.mlp.gate_proj.bias", "blocks.#.feed_forward.gate.bias", false},
    {"model.layers.#.mlp.up_proj.weight", "blocks.#.feed_forward.up.weight", false},
    {"model.layers.#.mlp.up_proj.bias", "blocks.#.feed_forward.up.bias", false},
    {"model.layers.#.mlp.down_proj.weight", "blocks.#.feed_forward.down.weight", false},
    {"model.layers.#.mlp.down_proj.bias", "blocks.#.feed_forward.down.bias", false},
    {"model.norm.weight", "final_norm.weight", false},
    {"lm_head.weight", "head.weight", false},
    {"model.layers.#.self_attn.rotary_emb.inv_freq", NULL, false}, /* the rates, which the configuration determines */
};

/* ---- rotary positions ---- */

#define SCALINGS "default=none|linear=linear|dynamic=dynamic|yarn=yarn|llama3=llama3"

/* The keys of rope_scaling, and which scalings they belong to. */
static const struct {
  const char *key, *option, *scalings;
} settings[] = {
    {"factor", "rotary.scaling_factor", "linear|dynamic|yarn|llama3"},
    {"original_max_position_embeddings", "rotary.original_context", "yarn|llama3"},
    {"low_freq_factor", "rotary.low_freq_factor", "llama3"},
    {"high_freq_factor", "rotary.high_freq_factor", "llama3"},
    {"beta_fast", "rotary.beta_fast", "yarn"},
    {"beta_slow", "rotary.beta_slow", "yarn"},
    {"truncate", "rotary.truncate", "yarn"},
    {"attention_factor", "rotary.attention_factor", "yarn"},
    {"mscale", "rotary.mscale", "yarn"},
    {"mscale_all_dim", "rotary.mscale_all_dim", "yarn"},
};
#define SETTINGS (sizeof settings / sizeof *settings)

static bool belongs(const char *scalings, const char *scaling) {
  const size_t length = strlen(scaling);
  for (const char *at = scalings; at != NULL; at = strchr(at, '|') != NULL ? strchr(at, '|') + 1 : NULL)
    if (strncmp(at, scaling, length) == 0 && (at[length] == '|' || at[length] == '\0')) return true;
  return false;
}

static hark_status read_setting(const hark_foreign_reader *reader, const char *section, const hark_json_node *member, const char *scaling) {
  char name[96];
  (void)snprintf(name, sizeof name, "%s.%.60s", section, member->name);
  if (member->kind == HARK_JSON_NULL || strcmp(member->name, "rope_type") == 0 || strcmp(member->name, "type") == 0) return HARK_OK;
  if (strcmp(member->name, "rope_theta") == 0) return hark_foreign_set(reader, name, member, "rotary.base", NULL);
  for (size_t i = 0; i < SETTINGS; i++) {
    if (strcmp(settings[i].key, member->name) != 0) continue;
    /* A setting that the scaling does not use is left out, as the published program does. */
    return belongs(settings[i].scalings, scaling) ? hark_foreign_set(reader, name, member, settings[i].option, NULL) : HARK_OK;
  }
  return hark_foreign_refuse(reader, name, member, "a key that hark does not know");
}

static hark_status read_rope(const hark_foreign_reader *reader, const char *section) {
  const hark_json_node *const rope = hark_foreign_value(reader, section);
  char name[96];
  if (rope == NULL) return HARK_OK;
  if (rope->kind != HARK_JSON_OBJECT) return hark_foreign_refuse(reader, section, rope, "expected an object");
  const char *const key = hark_json_member(rope, "rope_type") != NULL ? "rope_type" : "type";
  const hark_json_node *const word = hark_json_member(rope, key);
  const char *const scaling = word != NULL && hark_json_text(word) != NULL ? hark_json_text(word) : "default";
  (void)snprintf(name, sizeof name, "%s.%s", section, key);
  if (word != NULL) HARK_TRY(hark_foreign_set(reader, name, word, "rotary.scaling", SCALINGS));
  for (const hark_json_node *member = rope->first; member != NULL; member = member->next)
    HARK_TRY(read_setting(reader, section, member, scaling));
  hark_rotary_choice *const rotary = &reader->config->rotary;
  if (rotary->scaling == HARK_ROTARY_LINEAR && rotary->scaling_factor == 1) rotary->scaling = HARK_ROTARY_AS_TRAINED;
  return HARK_OK;
}

/* Members of rope_scaling, by the same table. */
static void write_settings(const hark_foreign_writer *writer, const char *scaling) {
  const hark_rotary_choice *const r = &writer->config->rotary;
  const double numbers[] = {r->scaling_factor, 0, r->low_freq_factor,  r->high_freq_factor, r->beta_fast,
                            r->beta_slow,      0, r->attention_factor, r->mscale,           r->mscale_all_dim};
  for (size_t i = 0; i < SETTINGS; i++) {
    const char *const key = settings[i].key;
    if (!belongs(settings[i].scalings, scaling)) continue;
    if (strcmp(key, "truncate") == 0) {
      if (!r->truncate) hark_foreign_put_truth(writer, key, false);
    } else if (strcmp(key, "original_max_position_embeddings") == 0) {
      hark_foreign_put_whole(writer, key, r->original_context != 0 ? r->original_context : writer->config->context);
    } else if (numbers[i] != 0) {
      hark_foreign_put_number(writer, key, numbers[i]);
    }
  }
}

static void write_rope(const hark_foreign_writer *writer) {
  static const struct {
    hark_rotary_scaling scaling;
    const char *word;
  } words[] = {
      {HARK_ROTARY_LINEAR, "linear"}, {HARK_ROTARY_DYNAMIC, "dynamic"}, {HARK_ROTARY_YARN, "yarn"}, {HARK_ROTARY_LLAMA3, "llama3"}};
  hark_foreign_put_number(writer, "rope_theta", writer->config->rotary.base);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (words[i].scaling != writer->config->rotary.scaling) continue;
    hark_foreign_put_key(writer, "rope_scaling");
    hark_text_append(writer->text, "{");
    hark_foreign_put_text(writer, "rope_type", words[i].word);
    write_settings(writer, words[i].word);
    hark_text_append(writer->text, "}");
  }
}

/* ---- heads ---- */

#define MOST_FEATURES ((int64_t)1 << 20) /* of model.attention_width */

/* The default of head_dim rounds down, as the published program does; then the tensors have other shapes than with the width itself. */
static hark_status read_heads(const hark_foreign_reader *reader, int64_t key_heads) {
  hark_network_config *const config = reader->config;
  int64_t head_dim = config->width / config->heads;
  config->key_heads = hark_json_member(reader->root, "num_key_value_heads") == NULL && key_heads != 0 ? key_heads : config->heads;
  HARK_TRY(hark_foreign_whole(reader, "num_key_value_heads", &config->key_heads));
  HARK_TRY(hark_foreign_whole(reader, "head_dim", &head_dim));
  if (head_dim > MOST_FEATURES / config->heads && hark_foreign_value(reader, "head_dim") != NULL)
    return hark_foreign_refuse(reader, "head_dim", hark_foreign_value(reader, "head_dim"), "expected at most 2^20 features of all heads");
  config->attention_width = head_dim * config->heads == config->width ? 0 : head_dim * config->heads;
  return HARK_OK;
}

hark_status hark_llama_read(const hark_foreign_reader *reader, int64_t key_heads) {
  const hark_json_node *const base = hark_foreign_value(reader, "rope_theta");
  const hark_json_node *const newer = hark_foreign_value(reader, "rope_parameters");
  HARK_TRY(read_heads(reader, key_heads));
  if (newer != NULL && hark_foreign_value(reader, "rope_scaling") != NULL)
    return hark_foreign_refuse(reader, "rope_parameters", newer, "expected one of rope_scaling and rope_parameters");
  if (base != NULL) HARK_TRY(hark_foreign_set(reader, "rope_theta", base, "rotary.base", NULL));
  HARK_TRY(read_rope(reader, "rope_scaling"));
  return read_rope(reader, "rope_parameters");
}

void hark_llama_write(const hark_foreign_writer *writer) {
  hark_foreign_put_whole(writer, "num_key_value_heads", writer->config->key_heads);
  hark_foreign_put_whole(writer, "head_dim", hark_network_head_dim(writer->config));
  write_rope(writer);
}

hark_status hark_llama_read_window(const hark_foreign_reader *reader, const char *key, int64_t otherwise) {
  int64_t tokens = hark_json_member(reader->root, key) == NULL ? otherwise : 0; /* null: all tokens */
  HARK_TRY(hark_foreign_whole(reader, key, &tokens));
  if (tokens > (int64_t)1 << 24) return hark_foreign_refuse(reader, key, hark_foreign_value(reader, key), "expected at most 2^24");
  if (tokens == 0) return HARK_OK;
  reader->config->attention.structure = (hark_layer_choice)HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW);
  reader->config->attention.window = tokens - 1;
  return HARK_OK;
}
