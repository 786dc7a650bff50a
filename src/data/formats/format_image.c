/* format_image.c - see image_file.h. A token is a grey value. Black is symbol 0, token HARK_TOKEN_RESERVED, and so cannot be confused with
 * padding (the original benchmark masks black pixels as padding). A pixel whose three colours differ becomes its luma, ITU-R BT.601:
 *
 *     y = round(0.299 r + 0.587 g + 0.114 b)            r = g = b = v gives v
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/examples/picture_folder.h"
#include "data/formats/image_file.h"
#include "data/formats/little_endian.h"
#include "data/formats/tensor_examples.h"
#include "data/sources.h"
#include "io/files.h"

#define CIFAR_SIDE 32
enum { CIFAR_PIXELS = CIFAR_SIDE * CIFAR_SIDE, CIFAR_BYTES = 1 + 3 * CIFAR_PIXELS };
#define CIFAR_CLASSES 10
#define GREY_SYMBOLS 256
#define READ_BYTES ((size_t)1 << 20) /* bytes read at once; at least one record */

/* Records of a file, read many at a time. */
typedef struct records {
  const hark_input *file;
  uint64_t at;                     /* of the next record */
  size_t record_bytes, room, left; /* of a record; of the buffer; unused records in it */
  const unsigned char *next;
  int64_t to_read; /* records of the file after the buffer */
} records;

static hark_status next_record(hark_example_reader *reader, records *r, const unsigned char **out) {
  if (r->left == 0) {
    const size_t count = (size_t)hark_min((int64_t)(r->room / r->record_bytes), r->to_read);
    HARK_TRY(hark_input_read_at(reader->context, r->file, reader->scratch.data, count * r->record_bytes, r->at));
    r->next = (const unsigned char *)reader->scratch.data;
    r->left = count;
    r->to_read -= (int64_t)count;
  }
  *out = r->next;
  r->next += r->record_bytes;
  r->at += r->record_bytes;
  r->left--;
  return HARK_OK;
}

/* Receives the pixels of a record. */
typedef hark_status pixels_function(hark_example_reader *reader, const unsigned char *pixels, size_t count);

static hark_status read_records(hark_example_reader *reader, records *r, int64_t count, pixels_function *use) {
  const int32_t classes = hark_example_reader_shape(reader)->classes;
  r->room = READ_BYTES > r->record_bytes ? READ_BYTES : r->record_bytes;
  r->to_read = count;
  hark_text_resize(&reader->scratch, r->room);
  HARK_TRY(reader->scratch.status);
  for (int64_t i = 0; i < count; i++) {
    const uint64_t at = r->at;
    const unsigned char *record;
    HARK_TRY(next_record(reader, r, &record));
    if (record[0] >= classes)
      return hark_fail(reader->context, HARK_BAD_FILE, "%s: label %d at byte offset %" PRIu64 " is out of range, expected 0 to %" PRId32,
                       reader->path, record[0], at, classes - 1);
    HARK_TRY(use(reader, record + 1, r->record_bytes - 1));
    HARK_TRY(hark_example_end(reader, record[0]));
  }
  return HARK_OK;
}

/* ---- CIFAR-10 ---- */

static unsigned char luma(int red, int green, int blue) { return (unsigned char)((299 * red + 587 * green + 114 * blue + 500) / 1000); }

static hark_status use_planes(hark_example_reader *reader, const unsigned char *pixels, size_t count) {
  unsigned char grey[CIFAR_PIXELS];
  (void)count;
  for (int i = 0; i < CIFAR_PIXELS; i++) grey[i] = luma(pixels[i], pixels[CIFAR_PIXELS + i], pixels[2 * CIFAR_PIXELS + i]);
  return hark_example_part(reader, grey, CIFAR_PIXELS);
}

static hark_status read_cifar_records(hark_example_reader *reader, const hark_input *file) {
  const uint64_t size = file->size;
  records r = {.file = file, .record_bytes = CIFAR_BYTES};
  if (size == 0 || size % CIFAR_BYTES != 0)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: %" PRIu64 " bytes, expected a multiple of %d, the bytes of a CIFAR-10 record",
                     reader->path, size, CIFAR_BYTES);
  return read_records(reader, &r, (int64_t)(size / CIFAR_BYTES), use_planes);
}

/* ---- hark's own ---- */

/* Offsets of the numbers in the header. */
enum { VERSION = 8, HEIGHT = 12, WIDTH = 16, CLASSES = 20, COUNT = 24 };

void hark_image_header(int32_t height, int32_t width, int32_t classes, int64_t count, unsigned char out[HARK_IMAGE_HEADER_BYTES]) {
  memcpy(out, HARK_IMAGE_MAGIC, VERSION);
  hark_number_put(out + VERSION, HARK_IMAGE_VERSION, 4);
  hark_number_put(out + HEIGHT, (uint64_t)height, 4);
  hark_number_put(out + WIDTH, (uint64_t)width, 4);
  hark_number_put(out + CLASSES, (uint64_t)classes, 4);
  hark_number_put(out + COUNT, (uint64_t)count, 8);
}

static hark_status use_pixels(hark_example_reader *reader, const unsigned char *pixels, size_t count) {
  return hark_example_part(reader, pixels, count);
}

static hark_status read_own_records(hark_example_reader *reader, const hark_input *file) {
  const uint64_t size = file->size;
  unsigned char header[HARK_IMAGE_HEADER_BYTES];
  hark_example_shape shape = {.symbols = GREY_SYMBOLS};
  int32_t version;
  bool same, tensors = false;
  HARK_TRY(hark_tensor_examples_are(reader, file, &tensors));
  if (tensors) return hark_tensor_examples_read_images(reader, file);
  if (size < sizeof header)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: %" PRIu64 " bytes, the header alone has %zu", reader->path, size, sizeof header);
  HARK_TRY(hark_input_read_at(reader->context, file, header, sizeof header, 0));
  if (memcmp(header, HARK_IMAGE_MAGIC, VERSION) != 0)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: is neither a file of images (\"" HARK_IMAGE_MAGIC "\") nor a safetensors file",
                     reader->path);
  HARK_TRY(hark_header_number(reader, header, VERSION, "version", HARK_IMAGE_VERSION, HARK_IMAGE_VERSION, &version));
  HARK_TRY(hark_header_number(reader, header, HEIGHT, "height", 1, HARK_IMAGE_SIDE_MAX, &shape.height));
  HARK_TRY(hark_header_number(reader, header, WIDTH, "width", 1, HARK_IMAGE_SIDE_MAX, &shape.width));
  HARK_TRY(hark_header_number(reader, header, CLASSES, "number of classes", 2, HARK_IMAGE_CLASSES_MAX, &shape.classes));
  const uint64_t count = hark_number_get(header + COUNT, 8);
  records r = {.file = file, .at = sizeof header, .record_bytes = 1 + (size_t)shape.height * (size_t)shape.width};
  if (count > size / r.record_bytes || size - sizeof header != count * r.record_bytes)
    return hark_fail(reader->context, HARK_BAD_FILE,
                     "%s: %" PRIu64 " bytes, expected %zu and %" PRIu64 " records of %zu, as byte offset %d says", reader->path, size,
                     sizeof header, count, r.record_bytes, COUNT);
  HARK_TRY(hark_example_shape_set(reader, &shape, NULL, 0, &same));
  if (!same)
    return hark_fail(reader->context, HARK_BAD_FILE,
                     "%s: images of %" PRId32 " x %" PRId32 " in %" PRId32 " classes, unlike the previous ones", reader->path, shape.height,
                     shape.width, shape.classes);
  return read_records(reader, &r, (int64_t)count, use_pixels);
}

/* ---- both ---- */

static hark_status read_cifar(hark_example_reader *reader) { return hark_read_binary(reader, read_cifar_records); }

/* ---- Pathfinder's folders ---- */

static hark_status use_picture(void *closure, const hark_listed_picture *listed) {
  hark_example_reader *const reader = closure;
  const hark_grey_picture *const picture = listed->picture;
  const hark_example_shape shape = {.symbols = GREY_SYMBOLS, .classes = 2, .height = picture->height, .width = picture->width};
  bool same = false;
  HARK_TRY(hark_example_shape_set(reader, &shape, NULL, 0, &same));
  if (!same)
    return hark_fail(reader->context, HARK_BAD_FILE, "%.400s: a picture of %" PRId32 " x %" PRId32 ", unlike the previous ones",
                     listed->path, shape.height, shape.width);
  HARK_TRY(hark_example_part(reader, picture->pixels, (size_t)shape.height * (size_t)shape.width));
  return hark_example_end(reader, listed->label);
}

static hark_status read_own(hark_example_reader *reader) {
  if (!reader->source->folder) return hark_read_binary(reader, read_own_records);
  return hark_picture_folder_read(reader->context, reader->path, HARK_IMAGE_SIDE_MAX, use_picture, reader);
}

static int64_t cifar_symbols(uint64_t file_bytes) { return (int64_t)(file_bytes / CIFAR_BYTES) * CIFAR_PIXELS; }
static int64_t own_symbols(uint64_t file_bytes) { return (int64_t)file_bytes; }

static const char *grey_name(int32_t symbol, char *text, size_t size) {
  (void)snprintf(text, size, "grey %" PRId32, symbol);
  return text;
}

static const char *const cifar_names[CIFAR_CLASSES] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                       "dog",      "frog",       "horse", "ship", "truck"};

const hark_example_format hark_example_format_image = {
    .name = "image",
    .summary = "CIFAR-10's binary files; a token is a grey value",
    .ending = "bin",
    .parts = 1,
    .target_kind = HARK_TARGET_CLASS,
    .shape = {.symbols = GREY_SYMBOLS, .classes = CIFAR_CLASSES, .height = CIFAR_SIDE, .width = CIFAR_SIDE},
    .symbols_at_most = cifar_symbols,
    .read = read_cifar,
    .symbol_name = grey_name,
    .symbols_are = "grey values",
    .class_names = cifar_names,
};

const hark_example_format hark_example_format_pathfinder = {
    .name = "pathfinder",
    .summary = "hark's own files of grey images, or Pathfinder's folders with imgs/ and metadata/; a token is a grey value",
    .ending = "images",
    .parts = 1,
    .target_kind = HARK_TARGET_CLASS,
    .symbols_at_most = own_symbols,
    .read = read_own,
    .symbol_name = grey_name,
    .symbols_are = "grey values",
};
