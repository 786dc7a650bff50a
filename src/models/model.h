/* model.h - what stands behind a hark_model, and a model's file. */
#ifndef HARK_MODELS_MODEL_H
#define HARK_MODELS_MODEL_H

#include <hark/model.h>

#include "io/files.h"
#include "io/safetensors.h"
#include "models/stack.h"
#include "tokenizers/example_vocabulary.h"
#include "tokenizers/tokenizer.h"

struct hark_model {
  hark_network *network;             /* a network of any architecture */
  hark_tokenizer *tokenizer;         /* NULL: none */
  hark_example_vocabulary *examples; /* of a model that was trained on labelled examples, in its place; NULL: none */
  const struct hark_backend *backend;
  uint64_t fingerprint;
  size_t bytes;  /* of everything it holds */
  bool borrowed; /* the network is the caller's */
};

/* A model around a network with weights, which stays the caller's and must not change while the model is there. No vocabulary. */
HARK_MUST_CHECK hark_status hark_model_wrap(hark_context *context, hark_network *network, hark_model **out);

/* Says of a model what files of before did not: that it is one of sentences. Changes the fingerprint where it is new. */
HARK_MUST_CHECK hark_status hark_model_tell_sentences(hark_context *context, hark_model *model);

/* Refuses models that continue no texts; `name` stands for the model. Errors: HARK_UNSUPPORTED. */
HARK_MUST_CHECK hark_status hark_model_check_decoder(hark_context *context, const char *name, const hark_model *model);

#define HARK_VOCABULARY_KEY "vocabulary" /* of the metadata: the contents of a vocabulary.json */

/* Writes weights, the model's description and a vocabulary (NULL: none) as safetensors, atomically. `summary` may be NULL. */
HARK_MUST_CHECK hark_status hark_model_write(hark_context *context, const char *path, const hark_network *network, const char *vocabulary,
                                             hark_file_summary *summary);

/* Whether a file of weights says of itself what the note says. */
bool hark_model_note_agrees(const hark_safetensors *file, const hark_parameter_note *note);

/* Refuses a file of weights whose notes or tensors (names, types, shapes) are not exactly those of the model, before anything is read.
 * `name` stands for the file. Errors: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_model_check_weights(hark_context *context, const char *name, const hark_safetensors *file,
                                                     const hark_parameters *parameters);
/* Reads them into memory that is there. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_model_read_weights(hark_context *context, const hark_safetensors *file, hark_parameters *parameters);

#endif
