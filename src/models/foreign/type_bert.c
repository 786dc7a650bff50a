/* type_bert.c - BERT (arXiv 1810.04805) as a model of embeddings (Sentence-BERT, arXiv 1908.10084): post-norm blocks, a norm of the sum of
 * embeddings, learned positions, token types, biases everywhere. Heads for masked tokens and next sentences are not read.
 *
 * sentence-transformers describes the pooling in files of its own: modules.json names the modules, of which a Transformer, a Pooling (mean
 * or first token) and a Normalize are known. Without modules.json the embedding is the mean over the tokens, as that package has it.
 */
#include <string.h>

#include "io/files.h"
#include "models/foreign/foreign_type.h"
#include "models/foreign/shards.h"

#define MODULES_FILE "modules.json"
#define JSON_BYTES ((size_t)1 << 20)
#define SHOWN "%.250s"

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

/* ---- the files of sentence-transformers ---- */

/* folder/name/file as JSON; *found is false where there is no such file. Names in files are names in the folder, never paths. */
static hark_status read_json(hark_context *context, const char *folder, const char *name, const char *file, char path[HARK_PATH_BYTES],
                             hark_json_tree *out, bool *found) {
  char below[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, folder, name, below));
  HARK_TRY(hark_path_join(context, name[0] != '\0' ? below : folder, file, path));
  *found = hark_path_kind_of(path) == HARK_PATH_FILE;
  if (!*found) return HARK_OK;
  hark_status status = hark_file_read(context, path, JSON_BYTES, &text);
  if (status == HARK_OK) status = hark_json_tree_parse(context, path, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  return status;
}

static bool is_true(const hark_json_node *root, const char *key) {
  const hark_json_node *const value = hark_json_member(root, key);
  return hark_json_is(value, HARK_JSON_BOOLEAN) && value->boolean;
}

/* Every "pooling_mode_..." that is true, or the word of the newer key. */
static hark_status take_pooling(hark_context *context, const char *path, const hark_json_node *root, hark_network_config *config) {
  static const char front[] = "pooling_mode_";
  const hark_json_node *const mode = hark_json_member(root, "pooling_mode");
  const char *const word = mode != NULL ? hark_json_text(mode) : NULL;
  const bool mean = word != NULL ? strcmp(word, "mean") == 0 : is_true(root, "pooling_mode_mean_tokens");
  const bool first = word != NULL ? strcmp(word, "cls") == 0 : is_true(root, "pooling_mode_cls_token");
  int count = word != NULL;
  char shown[HARK_SHOWN_BYTES];
  for (const hark_json_node *member = root->first; member != NULL && word == NULL; member = member->next)
    count += strncmp(member->name, front, sizeof front - 1) == 0 && is_true(root, member->name);
  if (count != 1 || mean == first)
    return hark_fail(context, HARK_UNSUPPORTED,
                     SHOWN ": pooling %s is not supported, expected the mean over the tokens, or the first token", path,
                     word != NULL ? hark_text_shown(word, shown)
                     : count > 1  ? "of several kinds"
                                  : "of this kind");
  config->pooling = mean ? HARK_POOLING_MEAN : HARK_POOLING_FIRST;
  return HARK_OK;
}

static hark_status read_pooling(hark_context *context, const char *folder, const char *name, hark_network_config *config) {
  char path[HARK_PATH_BYTES];
  hark_json_tree tree = {0};
  bool found = false;
  HARK_TRY(read_json(context, folder, name, "config.json", path, &tree, &found));
  if (!found) return hark_fail(context, HARK_NOT_FOUND, SHOWN ": is missing, and " MODULES_FILE " names it", path);
  hark_status status = hark_json_is(tree.root, HARK_JSON_OBJECT) ? take_pooling(context, path, tree.root, config)
                                                                 : hark_fail(context, HARK_BAD_FILE, SHOWN ": expected an object", path);
  hark_json_tree_free(context, &tree);
  return status;
}

/* The last part of "sentence_transformers.models.Pooling". */
static const char *kind_of(const char *type) {
  const char *const dot = strrchr(type, '.');
  return dot != NULL ? dot + 1 : type;
}

/* *letter is the first one of its kind. */
static hark_status read_module(hark_context *context, const char *folder, const char *path, const hark_json_node *module,
                               hark_network_config *config, char *letter) {
  const hark_json_node *const type = hark_json_member(module, "type"), *const where = hark_json_member(module, "path");
  const char *const word = type != NULL ? hark_json_text(type) : NULL, *const name = where != NULL ? hark_json_text(where) : NULL;
  char shown[HARK_SHOWN_BYTES];
  if (word == NULL || name == NULL) return hark_fail(context, HARK_BAD_FILE, SHOWN ": a module has no type or no path", path);
  const char *const kind = kind_of(word);
  *letter = kind[0];
  if (strcmp(kind, "Transformer") == 0 && name[0] == '\0') return HARK_OK;
  if (!hark_name_is_plain(name))
    return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": path '%s' is not a name in this folder", path, hark_text_shown(name, shown));
  if (strcmp(kind, "Pooling") == 0) return read_pooling(context, folder, name, config);
  config->normalise = strcmp(kind, "Normalize") == 0;
  if (config->normalise) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": module %s is not supported, expected Transformer, Pooling and Normalize", path,
                   hark_text_shown(kind, shown));
}

static hark_status read_modules(hark_context *context, const char *folder, const char *path, const hark_json_node *root,
                                hark_network_config *config) {
  char order[5] = ""; /* one more than there can be */
  size_t count = 0;
  if (root == NULL || root->kind != HARK_JSON_LIST) return hark_fail(context, HARK_BAD_FILE, SHOWN ": expected a list of modules", path);
  for (const hark_json_node *module = root->first; module != NULL; module = module->next) {
    if (module->kind != HARK_JSON_OBJECT) return hark_fail(context, HARK_BAD_FILE, SHOWN ": expected a list of objects", path);
    char letter = '\0';
    HARK_TRY(read_module(context, folder, path, module, config, &letter));
    if (count < sizeof order - 1) order[count++] = letter;
  }
  if (strcmp(order, "TP") == 0 || strcmp(order, "TPN") == 0) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": expected the modules Transformer, Pooling, Normalize in this order", path);
}

static hark_status check_lower_case(hark_context *context, const char *path, const hark_json_node *root) {
  if (!hark_json_is(root, HARK_JSON_OBJECT) || !is_true(root, "do_lower_case")) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": do_lower_case: is true, expected false: texts are not changed before the tokenizer",
                   path);
}

static hark_status check_prompt(hark_context *context, const char *path, const hark_json_node *root) {
  const hark_json_node *const name = hark_json_is(root, HARK_JSON_OBJECT) ? hark_json_member(root, "default_prompt_name") : NULL;
  char shown[HARK_SHOWN_BYTES];
  if (name == NULL || name->kind == HARK_JSON_NULL) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": default_prompt_name: is %s, expected null: no text is put before others", path,
                   hark_text_shown(hark_json_text(name) != NULL ? hark_json_text(name) : "no text", shown));
}

/* Settings of sentence-transformers that change what the model reads. */
static hark_status check_settings(hark_context *context, const char *folder) {
  static const struct {
    const char *file;
    hark_status (*check)(hark_context *context, const char *path, const hark_json_node *root);
  } files[] = {{"sentence_bert_config.json", check_lower_case}, {"config_sentence_transformers.json", check_prompt}};
  char path[HARK_PATH_BYTES];
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    hark_json_tree tree = {0};
    bool found = false;
    HARK_TRY(read_json(context, folder, "", files[i].file, path, &tree, &found));
    if (!found) continue;
    const hark_status status = files[i].check(context, path, tree.root);
    hark_json_tree_free(context, &tree);
    HARK_TRY(status);
  }
  return HARK_OK;
}

static hark_status settle(hark_context *context, const char *folder, const hark_shards *shards, hark_network_config *config) {
  char path[HARK_PATH_BYTES];
  hark_json_tree tree = {0};
  hark_shard_tensor pooler;
  bool found = false;
  config->pooler =
      hark_shards_find(shards, "bert.pooler.dense.weight", &pooler) || hark_shards_find(shards, "pooler.dense.weight", &pooler);
  HARK_TRY(check_settings(context, folder));
  HARK_TRY(read_json(context, folder, "", MODULES_FILE, path, &tree, &found));
  if (!found) return HARK_OK;
  const hark_status status = read_modules(context, folder, path, tree.root, config);
  hark_json_tree_free(context, &tree);
  return status;
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
};
