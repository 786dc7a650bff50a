/* llama_family.h - what Llama and its relatives have in common: RMS norms before each branch, rotary positions, gated SiLU, grouped key
 * heads. Touvron et al., arXiv 2302.13971, 2307.09288. */
#ifndef HARK_MODELS_FOREIGN_LLAMA_FAMILY_H
#define HARK_MODELS_FOREIGN_LLAMA_FAMILY_H

#include "models/foreign/foreign_type.h"

extern const hark_foreign_fixed hark_llama_fixed[];
#define HARK_LLAMA_TENSORS 20
extern const hark_foreign_tensor hark_llama_tensors[HARK_LLAMA_TENSORS];

#define HARK_LLAMA_ACTIVATIONS                                                                                                             \
  "silu=gated_silu|swish=gated_silu|gelu=gated_gelu|gelu_pytorch_tanh=gated_gelu_tanh|gelu_new=gated_gelu_tanh|gelu_fast=gated_gelu_tanh"

/* The first rows of a table of keys. `context`: of a missing max_position_embeddings. */
#define HARK_LLAMA_KEYS(context)                                                                                                           \
  HARK_FOREIGN_NUMBER_KEY("vocab_size", "vocabulary", NULL), HARK_FOREIGN_NUMBER_KEY("hidden_size", "width", NULL),                        \
      HARK_FOREIGN_NUMBER_KEY("intermediate_size", "feed_forward_width", NULL),                                                            \
      HARK_FOREIGN_NUMBER_KEY("num_hidden_layers", "layers", NULL), HARK_FOREIGN_NUMBER_KEY("num_attention_heads", "heads", NULL),         \
      HARK_FOREIGN_WORD_KEY("hidden_act", "activation", "silu", HARK_LLAMA_ACTIVATIONS),                                                   \
      HARK_FOREIGN_NUMBER_KEY("max_position_embeddings", "context", context),                                                              \
      HARK_FOREIGN_NUMBER_KEY("rms_norm_eps", "norm_epsilon", "1e-6"),                                                                     \
      HARK_FOREIGN_NUMBER_KEY("tie_word_embeddings", "tie_embeddings", "false"), HARK_FOREIGN_IGNORED_KEY("attention_dropout"),            \
      HARK_FOREIGN_SPECIAL_KEY("num_key_value_heads"), HARK_FOREIGN_SPECIAL_KEY("head_dim"), HARK_FOREIGN_SPECIAL_KEY("rope_theta"),       \
      HARK_FOREIGN_SPECIAL_KEY("rope_scaling"), HARK_FOREIGN_SPECIAL_KEY("rope_parameters")

/* The members of a hark_foreign_type that all relatives have. */
#define HARK_LLAMA_MEMBERS                                                                                                                 \
  .prefix = "model.", .fixed = hark_llama_fixed, .keys = keys, .key_count = sizeof keys / sizeof *keys, .tensors = hark_llama_tensors,     \
  .tensor_count = HARK_LLAMA_TENSORS, .read = read, .write = write

/* num_key_value_heads (`key_heads` if it is absent; 0: as many as heads), head_dim, and the keys of rotary positions. */
HARK_MUST_CHECK hark_status hark_llama_read(const hark_foreign_reader *reader, int64_t key_heads);
void hark_llama_write(const hark_foreign_writer *writer);

/* A number of tokens that a query attends to, itself included, as model.attention.window, and back. */
HARK_MUST_CHECK hark_status hark_llama_read_window(const hark_foreign_reader *reader, const char *key, int64_t otherwise);
static inline int64_t hark_llama_window(const hark_network_config *config) { return config->attention.window + 1; }

#endif
