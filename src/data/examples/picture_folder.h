/* picture_folder.h - Pathfinder as it is published (Linsley et al. 2018; Tay et al., arXiv 2011.04006): a folder with the pictures in imgs/
 * and lists of them in metadata/. The lists are named .npy and are texts; a line has the folder of a picture, its name, its number, its
 * label (0 or 1), and numbers that are not read:
 *
 *     imgs/0 sample_12.png 12 1 ...
 */
#ifndef HARK_DATA_EXAMPLES_PICTURE_FOLDER_H
#define HARK_DATA_EXAMPLES_PICTURE_FOLDER_H

#include "data/formats/png.h"

/* Whether a folder has imgs/ and metadata/. */
bool hark_is_picture_folder(hark_context *context, const char *folder);

/* A picture and its place in a list. */
typedef struct hark_listed_picture {
  const hark_grey_picture *picture;
  int32_t label;
  const char *path;
} hark_listed_picture;
typedef hark_status hark_picture_function(void *closure, const hark_listed_picture *picture);

/* Calls a function for each picture of at most `side` pixels, list by list in the order of their names. A picture that cannot be read is an
 * error that names it, its list and the line. Errors: those of the function, of hark_png_read() and of files; HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_picture_folder_read(hark_context *context, const char *folder, int32_t side, hark_picture_function *use,
                                                     void *closure);
/* Pixels of all pictures, if they have the size of the first one. */
HARK_MUST_CHECK hark_status hark_picture_folder_measure(hark_context *context, const char *folder, int32_t side, int64_t *pixels);

#endif
