/* unpack.h - compressed files: a table of the formats, recognised by their first bytes, and one loop that unpacks any of them.
 *
 * A format is one file and one row. Its library is optional at build time (HARK_WITH_...); without it the row remains, so that the message
 * about such a file can name the option. The libraries take their memory from malloc: their interfaces return it without its size. It is
 * bounded for any file (HARK_UNPACK_MEMORY_BYTES), and so is that of the loop; the unpacked bytes go to a function.
 */
#ifndef HARK_DATA_UNPACK_UNPACK_H
#define HARK_DATA_UNPACK_UNPACK_H

#include "core/core.h"

#define HARK_UNPACK_FRONT_BYTES 10                     /* that recognise a format */
#define HARK_UNPACK_MEMORY_BYTES ((uint64_t)256 << 20) /* most memory of a library; xz -9 needs 65 MiB, zstd --ultra -22 needs 128 MiB */
#define HARK_UNPACK_WINDOW_BITS 27                     /* of zstd, whose memory is that of its window */

typedef enum hark_unpack_result {
  HARK_UNPACK_MORE,    /* continues */
  HARK_UNPACK_END,     /* a stream ended; another one may follow */
  HARK_UNPACK_DAMAGED, /* no such data */
  HARK_UNPACK_LARGE,   /* needs more than the memory above */
  HARK_UNPACK_MEMORY   /* out of memory */
} hark_unpack_result;

/* Room of one step: what is read and written moves the pointers. */
typedef struct hark_unpack_room {
  const unsigned char *in;
  size_t in_left;
  unsigned char *out;
  size_t out_left;
  bool last; /* no more input after this */
} hark_unpack_room;

typedef struct hark_packing {
  const char *name;    /* "gzip" */
  const char *library; /* "zlib" */
  const char *option;  /* "HARK_WITH_ZLIB" */
  const char *ending;  /* of names of files: ".gz" */
  bool (*is)(const unsigned char *front, size_t bytes);
  size_t state_bytes; /* 0: built without the library */
  /* The state is zero before open; close is called after a failure too. `step` begins the next stream by itself after HARK_UNPACK_END. */
  hark_unpack_result (*open)(void *state);
  hark_unpack_result (*step)(void *state, hark_unpack_room *room);
  void (*close)(void *state);
} hark_packing;

extern const hark_packing hark_packing_gzip, hark_packing_xz, hark_packing_zstd, hark_packing_bzip2;
/* All rows, in the order of help; ended by NULL. */
extern const hark_packing *const hark_packings[];

/* The format of data that begin with `front`, or NULL: not compressed. */
const hark_packing *hark_packing_of(const unsigned char *front, size_t bytes);

/* Where data come from and go to. `read` returns 0 bytes at the end. */
typedef struct hark_unpack_ends {
  void *closure;
  hark_status (*read)(void *closure, void *data, size_t bytes, size_t *got);
  hark_status (*write)(void *closure, const void *data, size_t bytes);
} hark_unpack_ends;

/* Unpacks everything. `name` begins messages.
 * Errors: HARK_UNSUPPORTED (built without the library), HARK_BAD_FILE (cut, damaged, other bytes after the end, with the byte offset in the
 * compressed data; more memory needed than above), HARK_OUT_OF_MEMORY, those of `ends`. */
HARK_MUST_CHECK hark_status hark_unpack(hark_context *context, const char *name, const hark_packing *packing, const hark_unpack_ends *ends);

#endif
