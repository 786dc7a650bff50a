/* data_place.h - where a run's data are stored. config.yaml has their paths as they were given. data.json in the run's folder records the
 * folder that the paths are relative to (its absolute path, and its path relative to the run) and the size of the data. So the data are
 * found from any working folder, and after run and data were moved together. */
#ifndef HARK_TRAIN_DATA_PLACE_H
#define HARK_TRAIN_DATA_PLACE_H

#include "io/files.h"
#include "train/config.h"
#include "train/run.h"

#define HARK_DATA_PLACE_NAME "data.json"
#define HARK_DATA_LISTS 3

/* The folder of relative paths, and the paths in config.yaml where the configuration has other ones now. */
typedef struct hark_data_place {
  char folder[HARK_PATH_BYTES];               /* absolute; "": the working folder */
  bool other_size;                            /* the data found there do not have the size of those that the run was trained on */
  hark_string_list recorded[HARK_DATA_LISTS]; /* of data.paths, validation_paths and test_paths */
} hark_data_place;

/* Reads a run's config.yaml into the options (HARK_SOURCE_RUN). A file that is empty, or whose end is missing, is refused: all that it
 * lacks would be the defaults. Errors: HARK_BAD_FILE, those of hark_options_read_yaml(). */
HARK_MUST_CHECK hark_status hark_data_place_read_stored(hark_context *context, hark_options *options, const char *path);
/* The same. Without data.text_field it is from a version that read files of JSON lines
 * as text like any other: the field is then "". */
HARK_MUST_CHECK hark_status hark_data_place_read_options(hark_context *context, hark_options *options, const char *path);

/* Finds the data that the run's config.yaml names: relative to the run's place, to the recorded folder, or to the working folder. The first
 * of these with all files in their recorded sizes is used, and the configuration's paths are changed to it. Other paths that were given do
 * not change.
 * Errors: HARK_NOT_FOUND, with the folders that were searched; HARK_BAD_FILE (data.json), those of files. */
HARK_MUST_CHECK hark_status hark_data_place_find(hark_context *context, hark_options *options, const hark_config *config, const char *run,
                                                 hark_data_place *out);

/* Exchanges the configuration's paths and the recorded ones: before config.yaml is written, and again afterwards. */
void hark_data_place_exchange(hark_data_place *place, hark_config *config);

/* Writes data.json of a run whose paths are relative to the place. */
HARK_MUST_CHECK hark_status hark_data_place_write(hark_context *context, const hark_config *config, const hark_run *run,
                                                  const hark_data_place *place);

/* Called for a file of the data; its failures end the visit. */
typedef hark_status hark_data_file_visitor(void *user, const char *path);
/* Visits the files that a run was trained on, and validated and tested with, where hark_data_place_find() finds them. `run` is its folder.
 * Errors: HARK_BAD_CONFIGURATION or HARK_BAD_FILE (config.yaml), those of hark_data_place_find() and of the visitor. */
HARK_MUST_CHECK hark_status hark_data_place_visit(hark_context *context, const char *run, hark_data_file_visitor *visit, void *user);

/* Checks that data.json, if it exists, can be read. Errors: HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_data_place_check(hark_context *context, const hark_run *run);

#endif
