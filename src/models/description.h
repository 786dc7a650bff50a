/* description.h - a network's configuration as text, so that a file of weights says what model it is of.
 *
 *     {"model": {"type": "gpt", "vocabulary": 86, "layers": 4, ..., "rotary": {"base": 10000, "pairs": "half"}, "attention": {...}}}
 *
 * The keys are those of configurations (docs/configuration.md), and what the data say of the model; which of them are stated, in which
 * order and with which values, is a matter of the table of options (model_options.h). docs/formats.md describes the text.
 */
#ifndef HARK_MODELS_DESCRIPTION_H
#define HARK_MODELS_DESCRIPTION_H

#include "io/json_tree.h"
#include "io/text.h"
#include "models/network_config.h"

/* Appends the description to a text. */
void hark_description_print(const hark_network_config *config, hark_text *text);

/* One that was read. Texts in the configuration lie in the tree. */
typedef struct hark_description {
  hark_network_config config;
  hark_json_tree tree;
} hark_description;

/* Reads one, to be closed; after a failure there is nothing to close. What only training uses (dropout, recomputation) may be there and is
 * left out. What is not stated has its default; config.vocabulary is 0 then. `name` stands for the text in messages. Errors: HARK_BAD_FILE
 * (no JSON; a key that is missing, unknown or has a value that it cannot have), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_description_parse(hark_context *context, const char *name, const char *text, size_t bytes,
                                                   hark_description *out);
void hark_description_close(hark_context *context, hark_description *description);

#endif
