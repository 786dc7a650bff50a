/* foreign_type.h - a type of models of other programs: how its configuration and its tensors correspond to hark's, in both directions.
 *
 * A type is one file, type_NAME.c, with a hark_foreign_type, and one row of HARK_FOREIGN_TYPES. Its two tables are read from left to right
 * by an import and from right to left by an export:
 *
 *     keys       hidden_size <-> model.width: one row for every key of config.json that may occur. A key without a row is refused, since it
 *                might change what the model computes
 *     tensors    model.layers.#.self_attn.q_proj.weight <-> blocks.#.attention.query.weight, transposed or not. Successive rows with the
 *                same name are parts of one tensor, in the order of its outputs
 *
 * What is not one key for one option is in the functions `read` and `write`. An export is imported again before it is written
 * (foreign_write.c), so that an option without a counterpart is found without a list of them.
 */
#ifndef HARK_MODELS_FOREIGN_FOREIGN_TYPE_H
#define HARK_MODELS_FOREIGN_FOREIGN_TYPE_H

#include "io/json_tree.h"
#include "io/text.h"
#include "models/network_config.h"

/* The table: X(name), of hark_foreign_type_NAME and the name of its file. Of an export, the first that describes the model is chosen. */
#define HARK_FOREIGN_TYPES(X)                                                                                                              \
  X(gpt2)                                                                                                                                  \
  X(llama)                                                                                                                                 \
  X(mistral)                                                                                                                               \
  X(qwen2)                                                                                                                                 \
  X(bert)

/* ---- keys ---- */

typedef enum hark_foreign_use {
  HARK_FOREIGN_OPTION,  /* the value of an option of the model */
  HARK_FOREIGN_FIXED,   /* must have the value `otherwise`, as it has if it is absent */
  HARK_FOREIGN_IGNORED, /* changes no logit of a trained model */
  HARK_FOREIGN_SPECIAL  /* read and written by the functions of the type */
} hark_foreign_use;

typedef struct hark_foreign_key {
  const char *key;
  hark_foreign_use use;
  const char *option;    /* OPTION: "width" of model.width, or a fact such as "vocabulary"; FIXED: the reason, for the message, or NULL */
  const char *otherwise; /* JSON, a text without quotes: the value that an absent key has in the published program; NULL: it is required */
  const char *words;     /* OPTION with words: "gelu_new=gelu_tanh|gelu=gelu", theirs and hark's; of several for one of hark's the first is
                            written. NULL: a number or a truth value */
} hark_foreign_key;

#define HARK_FOREIGN_NUMBER_KEY(key, option, otherwise)                                                                                    \
  { key, HARK_FOREIGN_OPTION, option, otherwise, NULL }
#define HARK_FOREIGN_WORD_KEY(key, option, otherwise, words)                                                                               \
  { key, HARK_FOREIGN_OPTION, option, otherwise, words }
#define HARK_FOREIGN_FIXED_KEY(key, value, reason)                                                                                         \
  { key, HARK_FOREIGN_FIXED, reason, value, NULL }
#define HARK_FOREIGN_IGNORED_KEY(key)                                                                                                      \
  { key, HARK_FOREIGN_IGNORED, NULL, NULL, NULL }
#define HARK_FOREIGN_SPECIAL_KEY(key)                                                                                                      \
  { key, HARK_FOREIGN_SPECIAL, NULL, NULL, NULL }

/* An option that has one value in all models of a type. */
typedef struct hark_foreign_fixed {
  const char *option, *value; /* "positions", "learned"; ended by NULL */
} hark_foreign_fixed;

/* A config.json that is being read. */
typedef struct hark_foreign_reader {
  hark_context *context;
  const char *path; /* for messages */
  const hark_json_node *root;
  const struct hark_foreign_type *type;
  hark_network_config *config;
} hark_foreign_reader;

/* The members of a config.json that is being written. */
typedef struct hark_foreign_writer {
  hark_text *text;
  const struct hark_foreign_type *type;
  const hark_network_config *config;
} hark_foreign_writer;

/* ---- tensors ---- */

typedef struct hark_foreign_tensor {
  const char *name; /* '#' is the number of a block */
  const char
      *parameter;  /* hark's name; a row for a parameter that the model lacks has no effect. NULL: a tensor that is not read, because it
                            follows from the configuration */
  bool transposed; /* [in, out] instead of [out, in] */
} hark_foreign_tensor;

/* ---- types ---- */

struct hark_shards;

typedef struct hark_foreign_type {
  const char *name;    /* model_type */
  const char *classes; /* that `architectures` may name, "GPT2LMHeadModel|.."; the first is written */
  const char *prefix;  /* of the tensors' names, which files of the model without its head lack: "transformer." */
  int32_t usual_end;   /* eos_token_id where config.json lacks it; -1: none */
  const hark_foreign_fixed *fixed;
  const hark_foreign_key *keys;
  int key_count;
  const hark_foreign_tensor *tensors;
  int tensor_count;
  /* After the rows: reads the special keys. Errors: HARK_UNSUPPORTED for what hark has no option for, HARK_BAD_FILE. */
  hark_status (*read)(const hark_foreign_reader *reader);
  /* After `read`, in an import alone: what other files of the folder say of the model, and which tensors there are. NULL: nothing. Errors:
   * those of `read`, those of files. */
  hark_status (*settle)(hark_context *context, const char *folder, const struct hark_shards *shards, hark_network_config *config);
  /* After the rows: writes the special keys. What cannot be written is left out: the comparison finds it. */
  void (*write)(const hark_foreign_writer *writer);
  /* Of a type with `settle`: copies to a configuration that was read the options that other files of an export state, and writes these
   * files. */
  void (*adopt)(const hark_network_config *model, hark_network_config *again);
  hark_status (*write_files)(hark_context *context, const hark_network_config *config, const char *folder);
} hark_foreign_type;

#define HARK_FOREIGN_DECLARE(name) extern const hark_foreign_type hark_foreign_type_##name;
HARK_FOREIGN_TYPES(HARK_FOREIGN_DECLARE)
#undef HARK_FOREIGN_DECLARE

/* Row number `index`; NULL from the end of the table on. */
const hark_foreign_type *hark_foreign_type_at(int index);

/* ---- for the functions of types: foreign_keys.c ---- */

/* The value of a key; NULL if it is absent or null. */
const hark_json_node *hark_foreign_value(const hark_foreign_reader *reader, const char *key);
/* Sets an option from a value, as a row does; `key` is for messages and may be a path, "rope_scaling.factor". */
HARK_MUST_CHECK hark_status hark_foreign_set(const hark_foreign_reader *reader, const char *key, const hark_json_node *value,
                                             const char *option, const char *words);
/* A whole number of at least 1, and a truth value; *out is not changed if the key is absent or null. */
HARK_MUST_CHECK hark_status hark_foreign_whole(const hark_foreign_reader *reader, const char *key, int64_t *out);
HARK_MUST_CHECK hark_status hark_foreign_truth(const hark_foreign_reader *reader, const char *key, bool *out);
/* "PATH: KEY: is VALUE, REASON", HARK_UNSUPPORTED. */
hark_status hark_foreign_refuse(const hark_foreign_reader *reader, const char *key, const hark_json_node *value, const char *reason);

/* Write one member. */
void hark_foreign_put_whole(const hark_foreign_writer *writer, const char *key, int64_t value);
void hark_foreign_put_number(const hark_foreign_writer *writer, const char *key, double value);
void hark_foreign_put_truth(const hark_foreign_writer *writer, const char *key, bool value);
void hark_foreign_put_text(const hark_foreign_writer *writer, const char *key, const char *value);
/* Begins a member whose value the caller appends to writer->text. */
void hark_foreign_put_key(const hark_foreign_writer *writer, const char *key);

#endif
