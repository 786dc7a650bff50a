/* image_file.h - images with classes, in files of records: CIFAR-10's binary format, and hark's own for any size.
 *
 *     image         records of 1 + 3 * 1024 bytes: label, then the planes red, green, blue of 32 x 32 pixels (Krizhevsky, 2009)
 *     pathfinder    "HARKIMGS", then little-endian u32 version (1), height, width, classes, u64 records;
 *                   records of 1 + height * width bytes: label, then the grey values row by row
 */
#ifndef HARK_DATA_FORMATS_IMAGE_FILE_H
#define HARK_DATA_FORMATS_IMAGE_FILE_H

#include <stdint.h>

#define HARK_IMAGE_MAGIC "HARKIMGS"
#define HARK_IMAGE_VERSION 1
#define HARK_IMAGE_HEADER_BYTES 32
#define HARK_IMAGE_SIDE_MAX 4096
#define HARK_IMAGE_CLASSES_MAX 256 /* a label is a byte */

/* Fills the header of a file. */
void hark_image_header(int32_t height, int32_t width, int32_t classes, int64_t count, unsigned char out[HARK_IMAGE_HEADER_BYTES]);

#endif
