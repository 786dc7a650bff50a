/* models.h - what the models share: reading a vocabulary. */
#ifndef HARK_TOKENIZERS_PIPELINE_MODELS_H
#define HARK_TOKENIZERS_PIPELINE_MODELS_H

#include "tokenizers/pipeline/component.h"

/* Reads "vocab", an object of numbers by text, into the pipeline. */
HARK_MUST_CHECK hark_status hark_model_read_vocabulary(const hark_component_reader *reader, const hark_json_node *node);
/* Reads "unk_token"; *out is -1 where it is null or not in the vocabulary. */
HARK_MUST_CHECK hark_status hark_model_read_unknown(const hark_component_reader *reader, const hark_json_node *node, int32_t *out);
/* Fails for a text that has no token, where `member` of the model names no token for such texts. */
hark_status hark_model_fail_unknown(hark_pipeline_work *work, hark_span lacking, const char *member);
/* The tokens "<0x00>" to "<0xFF>"; -1 for those that are missing. */
void hark_byte_tokens(const hark_token_table *vocabulary, int32_t out[256]);

#endif
