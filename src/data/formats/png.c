/* png.c - see png.h. libpng takes its memory from malloc; a picture's pixels are written into memory of the context. */
#include "data/formats/png.h"

#include <inttypes.h>
#include <string.h>

#include "data/inputs.h"

void hark_grey_picture_free(hark_context *context, hark_grey_picture *picture) {
  hark_release(context, picture->pixels, picture->capacity);
  *picture = (hark_grey_picture){0};
}

#ifdef HARK_WITH_PNG
#include <png.h>

static hark_status make_room(hark_context *context, hark_grey_picture *picture, size_t bytes) {
  void *memory = NULL;
  if (bytes <= picture->capacity) return HARK_OK;
  hark_grey_picture_free(context, picture);
  HARK_TRY(hark_allocate(context, bytes, &memory));
  picture->pixels = memory;
  picture->capacity = bytes;
  return HARK_OK;
}

static hark_status refuse_damage(hark_context *context, const char *path, const png_image *image) {
  return hark_fail(context, HARK_BAD_FILE, "%.400s: is no undamaged PNG: %s", path, image->message);
}

static hark_status check_image(hark_context *context, const char *path, int32_t side, const png_image *image) {
  const bool grey = (image->format & (PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA | PNG_FORMAT_FLAG_LINEAR)) == 0;
  if (!grey) return hark_fail(context, HARK_UNSUPPORTED, "%.400s: expected grey values of at most 8 bits, without transparency", path);
  if (image->height > (uint32_t)side || image->width > (uint32_t)side)
    return hark_fail(context, HARK_BAD_FILE, "%.400s: a picture of %u x %u pixels, expected at most %" PRId32, path,
                     (unsigned)image->height, (unsigned)image->width, side);
  return HARK_OK;
}

/* Between the two steps of libpng's simplified interface the image holds memory of the library. */
static hark_status decode(hark_context *context, const char *path, int32_t side, png_image *image, hark_grey_picture *picture) {
  HARK_TRY(check_image(context, path, side, image));
  picture->height = (int32_t)image->height;
  picture->width = (int32_t)image->width;
  image->format = PNG_FORMAT_GRAY;
  HARK_TRY(make_room(context, picture, PNG_IMAGE_SIZE(*image)));
  picture->height = (int32_t)image->height;
  picture->width = (int32_t)image->width;
  if (png_image_finish_read(image, NULL, picture->pixels, 0, NULL) != 0 && !PNG_IMAGE_FAILED(*image)) return HARK_OK;
  return refuse_damage(context, path, image);
}

static hark_status decode_file(hark_context *context, const char *path, int32_t side, const hark_text *file, hark_grey_picture *picture) {
  png_image image;
  memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  if (file->length == 0) return hark_fail(context, HARK_BAD_FILE, "%.400s: is empty, expected a PNG", path);
  if (png_image_begin_read_from_memory(&image, file->data, file->length) == 0) return refuse_damage(context, path, &image);
  const hark_status status = decode(context, path, side, &image, picture);
  png_image_free(&image);
  return status;
}

hark_status hark_png_read(hark_context *context, const char *path, int32_t side, hark_grey_picture *picture) {
  hark_text file = hark_text_empty(context);
  hark_status status = hark_input_read(context, path, HARK_PNG_FILE_BYTES, &file);
  if (status == HARK_OK) status = decode_file(context, path, side, &file, picture);
  hark_text_free(&file);
  return status;
}

#else

hark_status hark_png_read(hark_context *context, const char *path, int32_t side, hark_grey_picture *picture) {
  (void)side;
  (void)picture;
  return hark_fail(context, HARK_UNSUPPORTED, "%.400s: PNG is read by libpng, which this hark was built without (HARK_WITH_PNG)", path);
}

#endif
