/* foreign.h - models of other programs: folders of Hugging Face's transformers, with config.json and safetensors.
 *
 * foreign_type.h describes a type of models; adding one takes a file and a row.
 */
#ifndef HARK_MODELS_FOREIGN_FOREIGN_H
#define HARK_MODELS_FOREIGN_FOREIGN_H

#include "models/foreign/foreign_type.h"
#include "models/foreign/shards.h"
#include "models/network.h"
#include "tokenizers/imported.h"

#define HARK_FOREIGN_CONFIG_FILE "config.json"
#define HARK_FOREIGN_GENERATION_FILE "generation_config.json"

/* Finds the folder of such a model: a folder with config.json, or model.safetensors, its index or config.json in one; not if hark wrote
 * model.safetensors. *found is false for everything else. Errors: HARK_TOO_LARGE, and those of a file of weights that cannot be read. */
HARK_MUST_CHECK hark_status hark_foreign_find(hark_context *context, const char *path, char folder[HARK_PATH_BYTES], bool *found);

/* An open folder: its configuration and its files, of which only headers have been read. */
typedef struct hark_foreign {
  char folder[HARK_PATH_BYTES];
  const hark_foreign_type *type;
  hark_network_config config;
  hark_shards shards;
  const char *reading; /* the name of the file, or "model" for several, of which a failure to open is */
} hark_foreign;

/* Opens a folder. The caller closes it, also after a failure. Errors: HARK_NOT_FOUND (a missing file), HARK_BAD_FILE, HARK_UNSUPPORTED
 * (what hark has nothing for), those of files; the message names the file and the key or the tensor. */
HARK_MUST_CHECK hark_status hark_foreign_open(hark_context *context, const char *folder, hark_foreign *out);
void hark_foreign_close(hark_context *context, hark_foreign *foreign);

/* Declares the network and compares its parameters with the tensors. The caller destroys the network. */
HARK_MUST_CHECK hark_status hark_foreign_declare(hark_context *context, const hark_foreign *foreign, hark_network **out);

/* Reads the folder's tokenizer.json, or else its tokenizer.model; *out is NULL where it has neither: the model has only numbers of tokens.
 * The caller destroys it. Errors: HARK_BAD_FILE, HARK_UNSUPPORTED, those of files. */
HARK_MUST_CHECK hark_status hark_foreign_read_tokenizer(hark_context *context, const hark_foreign *foreign, hark_imported **out);
/* Whether the folder has one of these files. */
HARK_MUST_CHECK hark_status hark_foreign_has_tokenizer(hark_context *context, const char *folder, bool *has);
/* HARK_BAD_FILE for a tokenizer, `name` in messages, with more tokens than the model has rows of embeddings; it may have fewer, where the
 * rows are a multiple of a power of 2. */
HARK_MUST_CHECK hark_status hark_foreign_check_tokenizer(hark_context *context, const char *name, const hark_imported *imported,
                                                         int64_t rows);

#endif
