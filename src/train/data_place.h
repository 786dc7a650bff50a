/* data_place.h - where the data of a run lie. Their paths stand in config.yaml as they were given; data.json in the run's folder says which
 * folder they are relative to, by its name and as the way that leads there from the run, and how large the data are. So they are found from
 * any working folder, and after run and data were moved together. */
#ifndef HARK_TRAIN_DATA_PLACE_H
#define HARK_TRAIN_DATA_PLACE_H

#include "io/files.h"
#include "train/config.h"
#include "train/run.h"

#define HARK_DATA_PLACE_NAME "data.json"
#define HARK_DATA_LISTS 3

/* Where relative paths lead, and what config.yaml says where that is not what the configuration has now. */
typedef struct hark_data_place {
  char folder[HARK_PATH_BYTES];               /* absolute; "": the working folder */
  bool other_size;                            /* what lies there is not as large as what the run was trained on */
  hark_string_list recorded[HARK_DATA_LISTS]; /* of data.paths, validation_paths and test_paths */
} hark_data_place;

/* Finds the data that the run's config.yaml names: relative to the run's place, to the recorded folder, or to the working folder, the first
 * of these where all are there and as large as they were. The configuration then has paths that lead there. What was given besides stays.
 * Errors: HARK_NOT_FOUND, which says where they were looked for; HARK_BAD_FILE (data.json), those of files. */
HARK_MUST_CHECK hark_status hark_data_place_find(hark_context *context, hark_options *options, const hark_config *config, const char *run,
                                                 hark_data_place *out);

/* Exchanges the configuration's paths and the recorded ones: before config.yaml is written, and once more after. */
void hark_data_place_exchange(hark_data_place *place, hark_config *config);

/* Writes data.json of a run whose paths are relative to the place. */
HARK_MUST_CHECK hark_status hark_data_place_write(hark_context *context, const hark_config *config, const hark_run *run,
                                                  const hark_data_place *place);

/* Whether data.json, where it is there, can be read. Errors: HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_data_place_check(hark_context *context, const hark_run *run);

#endif
