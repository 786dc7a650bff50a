/* foreign_keys.h - config.json of another program to a network's configuration, and back, by the tables of foreign_type.h. */
#ifndef HARK_MODELS_FOREIGN_FOREIGN_KEYS_H
#define HARK_MODELS_FOREIGN_FOREIGN_KEYS_H

#include "models/foreign/foreign_type.h"

/* Reads a config.json; messages call it `path`. The configuration needs no memory.
 * Errors: HARK_BAD_FILE (no JSON; a key that is missing or has an impossible value), HARK_UNSUPPORTED (a model_type, a key or a value that
 * hark has nothing for, by its name), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_foreign_keys_read(hark_context *context, const char *path, const char *text, size_t bytes,
                                                   const hark_foreign_type **type, hark_network_config *out);

/* Appends the config.json of a type for a configuration, as far as the type has keys for it. `number_type`: "float32". */
void hark_foreign_keys_write(const hark_foreign_type *type, const hark_network_config *config, const char *number_type, hark_text *out);

/* Replaces the end tokens of a configuration by those of a generation_config.json. Errors: HARK_BAD_FILE, HARK_UNSUPPORTED. */
HARK_MUST_CHECK hark_status hark_foreign_ends_read(hark_context *context, const char *path, const char *text, size_t bytes,
                                                   hark_network_config *out);

#endif
