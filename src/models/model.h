/* model.h - the contents of a hark_model, and a model's file. */
#ifndef HARK_MODELS_MODEL_H
#define HARK_MODELS_MODEL_H

#include <hark/model.h>

#include "io/files.h"
#include "io/safetensors.h"
#include "models/description.h"
#include "models/stack.h"
#include "tokenizers/example_vocabulary.h"
#include "tokenizers/imported.h"
#include "tokenizers/tokenizer.h"

struct hark_model {
  hark_network *network;             /* a network of any architecture */
  hark_tokenizer *tokenizer;         /* NULL: none */
  hark_example_vocabulary *examples; /* instead of a tokenizer, for models trained on labelled examples; else NULL */
  hark_imported *imported;           /* instead of a tokenizer, for models of other programs; else NULL */
  const struct hark_backend *backend;
  uint64_t fingerprint;
  size_t bytes;  /* of all its memory */
  bool borrowed; /* the network is caller-owned */
};

/* A model without a vocabulary for a network that has its weights. The caller keeps the network and must not change it before the model is
 * destroyed. */
HARK_MUST_CHECK hark_status hark_model_wrap(hark_context *context, hark_network *network, hark_model **out);

/* Records that the model was trained on sentences, which older files do not say. Changes the fingerprint if this was not recorded yet. */
HARK_MUST_CHECK hark_status hark_model_mark_sentences(hark_context *context, hark_model *model);

/* hark_model_encode() of a line of a file: HARK_BAD_FILE of a model's own vocabulary comes with the place in *fault and without a
 * message. */
HARK_MUST_CHECK hark_status hark_model_encode_line(hark_context *context, const hark_model *model, const char *text, size_t bytes,
                                                   hark_unknown unknown, int32_t *tokens, size_t *count, hark_text_fault *fault);

/* Refuses models that cannot continue a text; `name` names the model in messages. Errors: HARK_UNSUPPORTED. */
HARK_MUST_CHECK hark_status hark_model_check_decoder(hark_context *context, const char *name, const hark_model *model);

/* Changes options of a described model before its network is made: they must keep the weights. Texts are borrowed until that. */
typedef hark_status hark_model_edit(void *user, hark_context *context, hark_network_config *config);

/* hark_model_load() with an edit. Errors: also those of the edit. */
HARK_MUST_CHECK hark_status hark_model_load_edited(hark_context *context, const char *path, const hark_model_options *options,
                                                   hark_model_edit *edit, void *user, hark_model **out);

/* Sets description and vocabulary to those of a file's metadata, which own them. Errors: HARK_BAD_FILE (there is no description). */
HARK_MUST_CHECK hark_status hark_model_read_metadata(hark_context *context, const hark_safetensors *file, const char *name,
                                                     hark_model_options *options);

/* Keys of the metadata. */
#define HARK_DESCRIPTION_KEY "model"     /* metadata of a file: the description (description.h) */
#define HARK_VOCABULARY_KEY "vocabulary" /* the contents of vocabulary.json */
#define HARK_TOKENIZER_KEY "tokenizer"   /* or of another program's tokenizer (tokenizers/imported.h) */

/* Writes weights, the model's description and `words`, an entry with a vocabulary or a tokenizer (NULL: none), as safetensors, atomically.
 * `matrices`: as in hark_model_save_options. `summary` may be NULL. */
HARK_MUST_CHECK hark_status hark_model_write(hark_context *context, const char *path, const hark_network *network,
                                             const hark_metadata_entry *words, hark_type matrices, hark_file_summary *summary);

/* Whether the metadata of a file of weights agree with the note. */
bool hark_model_note_agrees(const hark_safetensors *file, const hark_parameter_note *note);

/* Refuses a file of weights whose notes or tensors (names, types, shapes) are not exactly those of the model, before anything is read.
 * Matrices may have other types (matrices.h). `name` names the file in messages. Errors: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_model_check_weights(hark_context *context, const char *name, const hark_safetensors *file,
                                                     const hark_parameters *parameters);
/* Reads the weights into allocated memory, rounded to the types in which they are held. Errors: HARK_NOT_FINITE, those of files. */
HARK_MUST_CHECK hark_status hark_model_read_weights(hark_context *context, const char *name, const hark_safetensors *file,
                                                    hark_parameters *parameters);

#endif
