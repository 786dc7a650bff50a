/* embed_vocabulary.h - BERT's tokenizer from its older files, vocab.txt and tokenizer_config.json, as a tokenizer.json. */
#ifndef HARK_CLI_EMBED_EMBED_VOCABULARY_H
#define HARK_CLI_EMBED_EMBED_VOCABULARY_H

#include "io/files.h"
#include "io/text.h"

#define HARK_EMBED_VOCABULARY_FILE "vocab.txt"

/* Appends the tokenizer.json of the WordPiece vocabulary in folder/vocab.txt: one token a line, the first of number 0. Options are those of
 * tokenizer_config.json, or BERT's. Errors: HARK_BAD_FILE (a file that is malformed, no [UNK], [CLS] or [SEP]), those of files. */
HARK_MUST_CHECK hark_status hark_embed_vocabulary_print(hark_context *context, const char *folder, hark_text *out);

#endif
