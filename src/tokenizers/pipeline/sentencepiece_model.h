/* sentencepiece_model.h - SentencePiece's .model (Kudo and Richardson, arXiv 1808.06226): unigram and BPE, without SentencePiece itself. */
#ifndef HARK_TOKENIZERS_PIPELINE_SENTENCEPIECE_MODEL_H
#define HARK_TOKENIZERS_PIPELINE_SENTENCEPIECE_MODEL_H

#include "tokenizers/pipeline/component.h"

/* Whether a file begins with a piece as a protocol buffer. */
bool hark_sentencepiece_is_model(const char *data, size_t bytes);

/* Fills an empty pipeline. Errors: HARK_BAD_FILE (with the byte), HARK_UNSUPPORTED, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_sentencepiece_read(hark_context *context, const char *name, const char *data, size_t bytes,
                                                    hark_pipeline *pipeline);

#endif
