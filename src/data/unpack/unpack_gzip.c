/* unpack_gzip.c - gzip (RFC 1952) by zlib. */
#include <string.h>

#include "data/unpack/unpack.h"

static bool is(const unsigned char *front, size_t bytes) { return bytes >= 3 && memcmp(front, "\x1F\x8B\x08", 3) == 0; }

#ifdef HARK_WITH_ZLIB
#define ZLIB_CONST
#include <limits.h>
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* the largest window, in gzip's frame */

typedef struct state {
  z_stream stream;
  bool opened, ended;
} state;

static hark_unpack_result open_stream(void *memory) {
  state *const s = memory;
  const int result = inflateInit2(&s->stream, GZIP_WINDOW);
  s->opened = result == Z_OK;
  return s->opened ? HARK_UNPACK_MORE : HARK_UNPACK_MEMORY;
}

static hark_unpack_result step(void *memory, hark_unpack_room *room) {
  state *const s = memory;
  if (s->ended && inflateReset(&s->stream) != Z_OK) return HARK_UNPACK_MEMORY;
  s->ended = false;
  s->stream.next_in = room->in;
  s->stream.avail_in = (uInt)room->in_left;
  s->stream.next_out = room->out;
  s->stream.avail_out = (uInt)room->out_left;
  const int result = inflate(&s->stream, Z_NO_FLUSH);
  room->in = s->stream.next_in;
  room->in_left = s->stream.avail_in;
  room->out = s->stream.next_out;
  room->out_left = s->stream.avail_out;
  s->ended = result == Z_STREAM_END;
  if (s->ended) return HARK_UNPACK_END;
  if (result == Z_MEM_ERROR) return HARK_UNPACK_MEMORY;
  return result == Z_OK || result == Z_BUF_ERROR ? HARK_UNPACK_MORE : HARK_UNPACK_DAMAGED;
}

static void close_stream(void *memory) {
  state *const s = memory;
  if (s->opened) (void)inflateEnd(&s->stream);
}

#define BY_LIBRARY .state_bytes = sizeof(state), .open = open_stream, .step = step, .close = close_stream,
#else
#define BY_LIBRARY
#endif

const hark_packing hark_packing_gzip = {
    .name = "gzip", .library = "zlib", .option = "HARK_WITH_ZLIB", .ending = ".gz", .is = is, BY_LIBRARY};
