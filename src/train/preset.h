/* preset.h - sizes of models under a name, and the one that fits a text and a machine. */
#ifndef HARK_TRAIN_PRESET_H
#define HARK_TRAIN_PRESET_H

#include "train/config.h"

/* A row of the table: values of options, as a user would write them. */
typedef struct hark_preset {
  const char *name;
  const char *about; /* a few words */
  const char *positions, *activation, *bias, *learning_rate;
  int layers, heads, width, context, batch;
  bool is_default; /* hark_preset_for() may choose it */
} hark_preset;

/* The rows; NULL when there are no more. */
const hark_preset *hark_preset_at(int index);
/* NULL: no such preset. */
const hark_preset *hark_preset_find(const char *name);

/* Numbers in the matrices of the blocks: 12 layers width^2. */
double hark_preset_size(const hark_preset *preset);

/* The largest preset that `bytes` of text and a training of `seconds` on so many cores can fill, the smallest one if none fits:
 *
 *   size <= 2 bytes                                   a larger model learns so short a text by heart
 *   6 size * 8 size <= cores * 5e10 * seconds         8 tokens for each of its numbers, at 6 operations per number and token
 *
 * 5e10 operations per second is what a core with AVX2 computes in training. */
const hark_preset *hark_preset_for(double bytes, int cores, double seconds);

/* Sets the options of a preset, from the source HARK_SOURCE_PRESET; `where` is the place that messages name. */
HARK_MUST_CHECK hark_status hark_preset_apply(hark_context *context, hark_options *options, const hark_preset *preset, const char *where);

/* Option --preset NAME of a command. Its table is no configuration: a configuration has the values. */
typedef struct hark_preset_values {
  int preset; /* 0: none; 1 + the index of a row */
} hark_preset_values;
extern const hark_option_table hark_preset_table;

/* Applies --preset. *out is the preset; NULL if none is given, or if it has no effect, which is a problem. */
HARK_MUST_CHECK hark_status hark_preset_read(hark_context *context, hark_options *options, const hark_preset_values *values,
                                             const hark_preset **out);

/* ---- hark train --data FILE, without anything else ---- */

#define HARK_PRESET_SECONDS 600.0 /* of a training whose length nothing determines */

typedef struct hark_preset_choice {
  const hark_preset *preset; /* chosen; NULL: the model was requested, or comes from elsewhere */
  bool time;                 /* HARK_PRESET_SECONDS were chosen */
  double bytes;              /* of the text */
  int cores;
} hark_preset_choice;

/* Chooses the size of the model, the length and the fraction for validation of a new run on a text, where nothing but the data determines
 * them: no file, no preset, no size and no length. `given` is the preset of the command line, or NULL; it leaves the length and the
 * fraction to choose. To be called before hark_config_finish(). `from_file`: a configuration was read from a file, so nothing is chosen. */
HARK_MUST_CHECK hark_status hark_preset_choose(hark_context *context, hark_options *options, hark_config *config, bool from_file,
                                               const hark_preset *given, hark_preset_choice *out);

#endif
