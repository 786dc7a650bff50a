/* type_bert.c - BERT (arXiv 1810.04805) as a model of embeddings (Sentence-BERT, arXiv 1908.10084): post-norm blocks, a norm of the sum of
 * embeddings, learned positions, token types, biases everywhere. Heads for masked tokens and next sentences are not read.
 */
#include "models/foreign/foreign_type.h"
#include "models/foreign/sentence_files.h"
#include "models/foreign/shards.h"

static const hark_foreign_fixed fixed[] = {{"architecture", "encoder"}, {"head", "embedding"},      {"pooling", "mean"},
                                           {"norm_place", "post"},      {"embedding_norm", "true"}, {"positions", "learned"},
                                           {"norm", "layer_norm"},      {"bias", "true"},           {NULL, NULL}};

#define ACTIVATIONS "gelu=gelu|gelu_new=gelu_tanh|relu=relu|silu=silu|gelu_pytorch_tanh=gelu_tanh|gelu_fast=gelu_tanh|swish=silu"

static const hark_foreign_key keys[] = {
    HARK_FOREIGN_NUMBER_KEY("vocab_size", "vocabulary", "30522"),
    HARK_FOREIGN_NUMBER_KEY("max_position_embeddings", "context", "512"),
    HARK_FOREIGN_NUMBER_KEY("hidden_size", "width", "768"),
    HARK_FOREIGN_NUMBER_KEY("num_hidden_layers", "layers", "12"),
    HARK_FOREIGN_NUMBER_KEY("num_attention_heads", "heads", "12"),
    HARK_FOREIGN_NUMBER_KEY("intermediate_size", "feed_forward_width", "3072"),
    HARK_FOREIGN_NUMBER_KEY("type_vocab_size", "token_types", "2"),
    HARK_FOREIGN_NUMBER_KEY("layer_norm_eps", "norm_epsilon", "1e-12"),
    HARK_FOREIGN_WORD_KEY("hidden_act", "activation", "gelu", ACTIVATIONS),
    HARK_FOREIGN_FIXED_KEY("position_embedding_type", "absolute", "relative positions are not supported"),
    HARK_FOREIGN_FIXED_KEY("is_decoder", "false", "a decoder of BERT is not supported"),
    HARK_FOREIGN_IGNORED_KEY("attention_probs_dropout_prob"),
    HARK_FOREIGN_IGNORED_KEY("hidden_dropout_prob"),
    HARK_FOREIGN_IGNORED_KEY("classifier_dropout"),
    HARK_FOREIGN_IGNORED_KEY("tie_word_embeddings"), /* of the head for masked tokens */
    HARK_FOREIGN_IGNORED_KEY("directionality"),
    HARK_FOREIGN_IGNORED_KEY("pooler_fc_size"), /* these are of the first publication's program, and read by no other */
    HARK_FOREIGN_IGNORED_KEY("pooler_num_attention_heads"),
    HARK_FOREIGN_IGNORED_KEY("pooler_num_fc_layers"),
    HARK_FOREIGN_IGNORED_KEY("pooler_size_per_head"),
    HARK_FOREIGN_IGNORED_KEY("pooler_type"),
};

static const hark_foreign_tensor tensors[] = {
    {"bert.embeddings.word_embeddings.weight", "embedding.token.weight", false},
    {"bert.embeddings.position_embeddings.weight", "embedding.position.weight", false},
    {"bert.embeddings.token_type_embeddings.weight", "embedding.type.weight", false},
    {"bert.embeddings.LayerNorm.weight", "embedding_norm.weight", false},
    {"bert.embeddings.LayerNorm.bias", "embedding_norm.bias", false},
    {"bert.encoder.layer.#.attention.self.query.weight", "blocks.#.attention.query.weight", false},
    {"bert.encoder.layer.#.attention.self.query.bias", "blocks.#.attention.query.bias", false},
    {"bert.encoder.layer.#.attention.self.key.weight", "blocks.#.attention.key.weight", false},
    {"bert.encoder.layer.#.attention.self.key.bias", "blocks.#.attention.key.bias", false},
    {"bert.encoder.layer.#.attention.self.value.weight", "blocks.#.attention.value.weight", false},
    {"bert.encoder.layer.#.attention.self.value.bias", "blocks.#.attention.value.bias", false},
    {"bert.encoder.layer.#.attention.output.dense.weight", "blocks.#.attention.output.weight", false},
    {"bert.encoder.layer.#.attention.output.dense.bias", "blocks.#.attention.output.bias", false},
    {"bert.encoder.layer.#.attention.output.LayerNorm.weight", "blocks.#.attention_norm.weight", false},
    {"bert.encoder.layer.#.attention.output.LayerNorm.bias", "blocks.#.attention_norm.bias", false},
    {"bert.encoder.layer.#.intermediate.dense.weight", "blocks.#.feed_forward.up.weight", false},
    {"bert.encoder.layer.#.intermediate.dense.bias", "blocks.#.feed_forward.up.bias", false},
    {"bert.encoder.layer.#.output.dense.weight", "blocks.#.feed_forward.down.weight", false},
    {"bert.encoder.layer.#.output.dense.bias", "blocks.#.feed_forward.down.bias", false},
    {"bert.encoder.layer.#.output.LayerNorm.weight", "blocks.#.feed_forward_norm.weight", false},
    {"bert.encoder.layer.#.output.LayerNorm.bias", "blocks.#.feed_forward_norm.bias", false},
    {"bert.pooler.dense.weight", "pooler.weight", false},
    {"bert.pooler.dense.bias", "pooler.bias", false},
    {"bert.embeddings.position_ids", NULL, false}, /* 0, 1, 2, ... */
    {"cls.predictions.bias", NULL, false},
    {"cls.predictions.transform.dense.weight", NULL, false},
    {"cls.predictions.transform.dense.bias", NULL, false},
    {"cls.predictions.transform.LayerNorm.weight", NULL, false},
    {"cls.predictions.transform.LayerNorm.bias", NULL, false},
    {"cls.predictions.decoder.weight", NULL, false},
    {"cls.predictions.decoder.bias", NULL, false},
    {"cls.seq_relationship.weight", NULL, false},
    {"cls.seq_relationship.bias", NULL, false},
};

static hark_status settle(hark_context *context, const char *folder, const hark_shards *shards, hark_network_config *config) {
  hark_shard_tensor pooler;
  config->pooler =
      hark_shards_find(shards, "bert.pooler.dense.weight", &pooler) || hark_shards_find(shards, "pooler.dense.weight", &pooler);
  return hark_sentence_files_read(context, folder, config);
}

/* The pooler is known by its tensors, the rest by files of its own. */
static void adopt(const hark_network_config *model, hark_network_config *again) {
  again->pooler = model->pooler;
  hark_sentence_files_adopt(model, again);
}

static hark_status read(const hark_foreign_reader *reader) {
  reader->config->key_heads = reader->config->heads;
  return HARK_OK;
}

const hark_foreign_type hark_foreign_type_bert = {
    .name = "bert",
    .classes = "BertModel|BertForMaskedLM|BertForPreTraining|BertForNextSentencePrediction",
    .usual_end = -1,
    .prefix = "bert.",
    .fixed = fixed,
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .tensors = tensors,
    .tensor_count = sizeof tensors / sizeof *tensors,
    .read = read,
    .settle = settle,
    .adopt = adopt,
    .write_files = hark_sentence_files_write,
};
