/* model_parts.h - what hark_model_load() reads at a path, part by part: for programs that make the network themselves, or need only its
 * description. */
#ifndef HARK_MODELS_MODEL_PARTS_H
#define HARK_MODELS_MODEL_PARTS_H

#include "models/description.h"
#include "models/network.h"
#include "tokenizers/tokenizer.h"

/* Reads only the description of the model that hark_model_load() would load, also of another program's. The caller closes it, also after a
 * failure. Errors: HARK_BAD_FILE (there is none, or it is malformed), those of files. */
HARK_MUST_CHECK hark_status hark_model_read_description(hark_context *context, const char *path, const char *checkpoint,
                                                        hark_description *out);

/* Reads only the tokenizer of a model of text; that of an imported model is of kind "imported" and has the model's number of tokens. The
 * caller destroys it. Errors: HARK_UNSUPPORTED (there is none, or the vocabulary of labelled examples), HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_model_read_tokenizer(hark_context *context, const char *path, hark_tokenizer **out);

/* The kind of that tokenizer, a static text; an imported one is not read for it. Errors: the same. */
HARK_MUST_CHECK hark_status hark_model_read_tokenizer_kind(hark_context *context, const char *path, const char **kind);

/* Reads only the weights into a network with memory, rounded to the types in which it holds its matrices. The file is compared with the
 * manifest in its folder, if there is one. Errors: HARK_BAD_FILE (not exactly the network's tensors), HARK_NOT_FINITE, those of files. */
HARK_MUST_CHECK hark_status hark_model_read_network(hark_context *context, const char *path, hark_network *network);

#endif
