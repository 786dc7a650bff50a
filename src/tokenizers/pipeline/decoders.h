/* decoders.h - making a new list of texts, for decoders. */
#ifndef HARK_TOKENIZERS_PIPELINE_DECODERS_H
#define HARK_TOKENIZERS_PIPELINE_DECODERS_H

#include "tokenizers/pipeline/component.h"

/* Begins a list; then texts are written with put and ended with close_part, which gets the pool's length at the text's beginning; end puts
 * the new list in the place of the old one. */
void hark_parts_begin(hark_pipeline_work *work);
HARK_MUST_CHECK hark_status hark_parts_put(hark_pipeline_work *work, const char *text, size_t bytes);
HARK_MUST_CHECK hark_status hark_parts_close_part(hark_pipeline_work *work, size_t begin);
HARK_MUST_CHECK hark_status hark_parts_end(hark_pipeline_work *work);

#endif
