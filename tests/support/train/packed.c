/* packed.c - see packed.h. */
#include "support/train/packed.h"

#include <stdlib.h>
#include <string.h>
#ifdef HARK_WITH_ZLIB
#include <zlib.h>
#endif
#ifdef HARK_WITH_LZMA
#include <lzma.h>
#endif
#ifdef HARK_WITH_ZSTD
#include <zstd.h>
#endif
#ifdef HARK_WITH_BZIP2
#include <bzlib.h>
#endif

#include "support/cmocka_all.h"

#ifdef HARK_WITH_ZLIB
static void gzip(const void *data, size_t bytes, unsigned char *out, size_t *packed) {
  z_stream stream = {0};
  unsigned char *copy = malloc(bytes + 1); /* zlib's input is not const */
  if (bytes > 0) memcpy(copy, data, bytes);
  assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = copy;
  stream.avail_in = (uInt)bytes;
  stream.next_out = out;
  stream.avail_out = (uInt)*packed;
  assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
  *packed = stream.total_out;
  deflateEnd(&stream);
  free(copy);
}
#endif
#ifdef HARK_WITH_LZMA
static void xz(const void *data, size_t bytes, unsigned char *out, size_t *packed) {
  size_t at = 0;
  assert_int_equal(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, data, bytes, out, &at, *packed), LZMA_OK);
  *packed = at;
}
#endif
#ifdef HARK_WITH_ZSTD
static void zstd(const void *data, size_t bytes, unsigned char *out, size_t *packed) {
  ZSTD_CCtx *const encoder = ZSTD_createCCtx();
  assert_non_null(encoder);
  assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(encoder, ZSTD_c_checksumFlag, 1)));
  *packed = ZSTD_compress2(encoder, out, *packed, data, bytes);
  assert_false(ZSTD_isError(*packed));
  ZSTD_freeCCtx(encoder);
}
#endif
#ifdef HARK_WITH_BZIP2
static void bzip2(const void *data, size_t bytes, unsigned char *out, size_t *packed) {
  char *copy = malloc(bytes + 1); /* bzip2's input is not const */
  unsigned length = (unsigned)*packed;
  if (bytes > 0) memcpy(copy, data, bytes);
  assert_int_equal(BZ2_bzBuffToBuffCompress((char *)out, &length, copy, (unsigned)bytes, 1, 0, 0), BZ_OK);
  *packed = length;
  free(copy);
}
#endif

unsigned char *test_pack(const char *format, const void *data, size_t bytes, size_t *packed) {
  static const struct {
    const char *name;
    void (*pack)(const void *data, size_t bytes, unsigned char *out, size_t *packed);
  } formats[] = {
#ifdef HARK_WITH_ZLIB
      {"gzip", gzip},
#endif
#ifdef HARK_WITH_LZMA
      {"xz", xz},
#endif
#ifdef HARK_WITH_ZSTD
      {"zstd", zstd},
#endif
#ifdef HARK_WITH_BZIP2
      {"bzip2", bzip2},
#endif
      {NULL, NULL}};
  *packed = 0;
  for (size_t i = 0; formats[i].name != NULL; i++) {
    if (strcmp(formats[i].name, format) != 0) continue;
    *packed = bytes + bytes / 8 + 1024;
    unsigned char *const out = malloc(*packed);
    formats[i].pack(data, bytes, out, packed);
    return out;
  }
  return NULL;
}
