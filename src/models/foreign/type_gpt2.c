/* type_gpt2.c - GPT-2 (Radford et al. 2019): learned positions, layer norms with biases before each branch, biases everywhere, tied
 * embeddings. Linear layers are stored [in, out]; queries, keys and values are one layer. */
#include "models/foreign/foreign_type.h"

static const hark_foreign_fixed fixed[] = {{"positions", "learned"}, {"norm", "layer_norm"}, {"bias", "true"}, {NULL, NULL}};

#define ACTIVATIONS "gelu_new=gelu_tanh|gelu=gelu|relu=relu|silu=silu|gelu_pytorch_tanh=gelu_tanh|gelu_fast=gelu_tanh|swish=silu"

static const hark_foreign_key keys[] = {
    HARK_FOREIGN_NUMBER_KEY("vocab_size", "vocabulary", NULL),
    HARK_FOREIGN_NUMBER_KEY("n_positions", "context", NULL),
    HARK_FOREIGN_NUMBER_KEY("n_embd", "width", NULL),
    HARK_FOREIGN_NUMBER_KEY("n_layer", "layers", NULL),
    HARK_FOREIGN_NUMBER_KEY("n_head", "heads", NULL),
    HARK_FOREIGN_SPECIAL_KEY("n_inner"),
    HARK_FOREIGN_WORD_KEY("activation_function", "activation", "gelu_new", ACTIVATIONS),
    HARK_FOREIGN_NUMBER_KEY("layer_norm_epsilon", "norm_epsilon", "1e-5"),
    HARK_FOREIGN_NUMBER_KEY("tie_word_embeddings", "tie_embeddings", "true"),
    HARK_FOREIGN_FIXED_KEY("scale_attn_weights", "true", NULL),
    HARK_FOREIGN_FIXED_KEY("scale_attn_by_inverse_layer_idx", "false", NULL),
    HARK_FOREIGN_IGNORED_KEY("reorder_and_upcast_attn"), /* the same numbers, in more digits */
    HARK_FOREIGN_IGNORED_KEY("n_ctx"),
    HARK_FOREIGN_IGNORED_KEY("resid_pdrop"),
    HARK_FOREIGN_IGNORED_KEY("embd_pdrop"),
    HARK_FOREIGN_IGNORED_KEY("attn_pdrop"),
    HARK_FOREIGN_IGNORED_KEY("summary_type"),
    HARK_FOREIGN_IGNORED_KEY("summary_use_proj"),
    HARK_FOREIGN_IGNORED_KEY("summary_activation"),
    HARK_FOREIGN_IGNORED_KEY("summary_proj_to_labels"),
    HARK_FOREIGN_IGNORED_KEY("summary_first_dropout"),
};

static const hark_foreign_tensor tensors[] = {
    {"transformer.wte.weight", "embedding.token.weight", false},
    {"transformer.wpe.weight", "embedding.position.weight", false},
    {"transformer.h.#.ln_1.weight", "blocks.#.attention_norm.weight", false},
    {"transformer.h.#.ln_1.bias", "blocks.#.attention_norm.bias", false},
    {"transformer.h.#.attn.c_attn.weight", "blocks.#.attention.query.weight", true},
    {"transformer.h.#.attn.c_attn.weight", "blocks.#.attention.key.weight", true},
    {"transformer.h.#.attn.c_attn.weight", "blocks.#.attention.value.weight", true},
    {"transformer.h.#.attn.c_attn.bias", "blocks.#.attention.query.bias", false},
    {"transformer.h.#.attn.c_attn.bias", "blocks.#.attention.key.bias", false},
    {"transformer.h.#.attn.c_attn.bias", "blocks.#.attention.value.bias", false},
    {"transformer.h.#.attn.c_proj.weight", "blocks.#.attention.output.weight", true},
    {"transformer.h.#.attn.c_proj.bias", "blocks.#.attention.output.bias", false},
    {"transformer.h.#.ln_2.weight", "blocks.#.feed_forward_norm.weight", false},
    {"transformer.h.#.ln_2.bias", "blocks.#.feed_forward_norm.bias", false},
    {"transformer.h.#.mlp.c_fc.weight", "blocks.#.feed_forward.up.weight", true},
    {"transformer.h.#.mlp.c_fc.bias", "blocks.#.feed_forward.up.bias", false},
    {"transformer.h.#.mlp.c_proj.weight", "blocks.#.feed_forward.down.weight", true},
    {"transformer.h.#.mlp.c_proj.bias", "blocks.#.feed_forward.down.bias", false},
    {"transformer.ln_f.weight", "final_norm.weight", false},
    {"transformer.ln_f.bias", "final_norm.bias", false},
    {"lm_head.weight", "head.weight", false},
    {"transformer.h.#.attn.bias", NULL, false}, /* the causal mask */
    {"transformer.h.#.attn.masked_bias", NULL, false},
};

static hark_status read(const hark_foreign_reader *reader) {
  hark_network_config *const config = reader->config;
  config->key_heads = config->heads;
  config->feed_forward_width = 4 * config->width;
  HARK_TRY(hark_foreign_whole(reader, "n_inner", &config->feed_forward_width));
  if (config->feed_forward_width <= (int64_t)1 << 24) return HARK_OK;
  const hark_json_node *const value = hark_foreign_value(reader, "n_inner");
  return value != NULL
             ? hark_foreign_refuse(reader, "n_inner", value, "expected at most 2^24")
             : hark_foreign_refuse(reader, "n_embd", hark_foreign_value(reader, "n_embd"), "expected at most 2^22, without n_inner");
}

static void write(const hark_foreign_writer *writer) { hark_foreign_put_whole(writer, "n_inner", writer->config->feed_forward_width); }

const hark_foreign_type hark_foreign_type_gpt2 = {
    .name = "gpt2",
    .classes = "GPT2LMHeadModel|GPT2Model",
    .usual_end = 50256,
    .prefix = "transformer.",
    .fixed = fixed,
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .tensors = tensors,
    .tensor_count = sizeof tensors / sizeof *tensors,
    .read = read,
    .write = write,
};
