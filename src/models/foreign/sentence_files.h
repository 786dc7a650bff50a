/* sentence_files.h - the files in which sentence-transformers describes the pooling of a model: modules.json names the modules, of which a
 * Transformer, a Pooling (mean or first token) and a Normalize are known; sentence_bert_config.json has the longest text. Without
 * modules.json the embedding is the mean over the tokens, as that package has it.
 */
#ifndef HARK_MODELS_FOREIGN_SENTENCE_FILES_H
#define HARK_MODELS_FOREIGN_SENTENCE_FILES_H

#include "models/foreign/foreign_type.h"

/* Sets pooling, normalise and text_limit from the files that are there. Errors: HARK_UNSUPPORTED, HARK_BAD_FILE, HARK_NOT_FOUND (a file
 * that modules.json names), those of files. */
HARK_MUST_CHECK hark_status hark_sentence_files_read(hark_context *context, const char *folder, hark_network_config *config);

/* Sets text_limit alone, for models whose pooling these files do not decide. Errors: HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_sentence_limit_read(hark_context *context, const char *folder, hark_network_config *config);

/* Copies the options that these files can state. */
void hark_sentence_files_adopt(const hark_network_config *model, hark_network_config *again);
/* Writes all of them into a folder. */
HARK_MUST_CHECK hark_status hark_sentence_files_write(hark_context *context, const hark_network_config *config, const char *folder);
/* The names of the files and folders that may be written, each with a blank after it. */
void hark_sentence_files_print(hark_text *names);
/* Removes all of them. */
HARK_MUST_CHECK hark_status hark_sentence_files_remove(hark_context *context, const char *folder);

#endif
