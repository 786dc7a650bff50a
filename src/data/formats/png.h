/* png.h - grey pictures in files of PNG, by libpng, which is optional when hark is built (HARK_WITH_PNG). */
#ifndef HARK_DATA_FORMATS_PNG_H
#define HARK_DATA_FORMATS_PNG_H

#include "core/core.h"

#define HARK_PNG_FILE_BYTES ((size_t)64 << 20)

/* Zero it before its first use; the memory is used for further pictures. */
typedef struct hark_grey_picture {
  int32_t height, width;
  unsigned char *pixels; /* [height, width] */
  size_t capacity;
} hark_grey_picture;

/* Reads a file. Errors: HARK_UNSUPPORTED (built without libpng; colours, transparency, 16 bits), HARK_BAD_FILE (cut, damaged, no PNG, more
 * than `side` pixels high or wide), those of files. The message names the file. */
HARK_MUST_CHECK hark_status hark_png_read(hark_context *context, const char *path, int32_t side, hark_grey_picture *picture);
void hark_grey_picture_free(hark_context *context, hark_grey_picture *picture);

#endif
