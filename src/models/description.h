/* description.h - a network's configuration as text, which a file of weights contains.
 *
 *     {"model": {"type": "gpt", "vocabulary": 86, "layers": 4, ..., "rotary": {"base": 10000, "pairs": "half"}, "attention": {...}}}
 *
 * The keys are the options of configurations (docs/configuration.md) and what the data determine about the model. The table of options
 * (model_options.h) sets which keys are written, in which order and with which values. docs/formats.md describes the text.
 */
#ifndef HARK_MODELS_DESCRIPTION_H
#define HARK_MODELS_DESCRIPTION_H

#include "io/json_tree.h"
#include "io/text.h"
#include "models/model_options.h"
#include "models/network_config.h"

/* Appends the description to a text. */
void hark_description_print(const hark_network_config *config, hark_text *text);

/* Appends the value of an option, as the description has it. */
void hark_description_print_value(const hark_model_option *row, const hark_network_config *config, hark_text *text);

/* A description that was read. The tree owns the strings of the configuration. */
typedef struct hark_description {
  hark_network_config config;
  hark_json_tree tree;
} hark_description;

/* Reads a description. The caller closes it; after a failure there is nothing to close. Options that only training uses (dropout,
 * recomputation) are accepted and ignored. A missing option has its default; config.vocabulary is then 0. `name` names the text in
 * messages. Errors: HARK_BAD_FILE (no JSON; a key that is missing or unknown, or has an invalid value), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_description_parse(hark_context *context, const char *name, const char *text, size_t bytes,
                                                   hark_description *out);
void hark_description_close(hark_context *context, hark_description *description);

#endif
