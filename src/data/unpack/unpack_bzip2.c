/* unpack_bzip2.c - bzip2 by libbz2. "BZh9" alone could begin a text: the mark of the first block, or of the end of an empty file, decides.
 */
#include <string.h>

#include "data/unpack/unpack.h"

static bool is(const unsigned char *front, size_t bytes) {
  return bytes >= 10 && memcmp(front, "BZh", 3) == 0 && front[3] >= '1' && front[3] <= '9' &&
         (memcmp(front + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0 || memcmp(front + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0);
}

#ifdef HARK_WITH_BZIP2
#include <bzlib.h>

typedef struct state {
  bz_stream stream;
  bool opened, ended;
} state;

static hark_unpack_result open_stream(void *memory) {
  state *const s = memory;
  s->stream = (bz_stream){0};
  s->opened = BZ2_bzDecompressInit(&s->stream, 0, 0) == BZ_OK;
  return s->opened ? HARK_UNPACK_MORE : HARK_UNPACK_MEMORY;
}

static void close_stream(void *memory) {
  state *const s = memory;
  if (s->opened) (void)BZ2_bzDecompressEnd(&s->stream);
  s->opened = false;
}

static hark_unpack_result step(void *memory, hark_unpack_room *room) {
  state *const s = memory;
  if (s->ended) {
    close_stream(s);
    if (open_stream(s) != HARK_UNPACK_MORE) return HARK_UNPACK_MEMORY;
  }
  s->ended = false;
  s->stream.next_in = (char *)(uintptr_t)room->in; /* is only read */
  s->stream.avail_in = (unsigned)room->in_left;
  s->stream.next_out = (char *)room->out;
  s->stream.avail_out = (unsigned)room->out_left;
  const int result = BZ2_bzDecompress(&s->stream);
  room->in += room->in_left - s->stream.avail_in;
  room->in_left = s->stream.avail_in;
  room->out += room->out_left - s->stream.avail_out;
  room->out_left = s->stream.avail_out;
  s->ended = result == BZ_STREAM_END;
  if (s->ended) return HARK_UNPACK_END;
  if (result == BZ_MEM_ERROR) return HARK_UNPACK_MEMORY;
  return result == BZ_OK ? HARK_UNPACK_MORE : HARK_UNPACK_DAMAGED;
}

#define BY_LIBRARY .state_bytes = sizeof(state), .open = open_stream, .step = step, .close = close_stream,
#else
#define BY_LIBRARY
#endif

const hark_packing hark_packing_bzip2 = {
    .name = "bzip2", .library = "libbz2", .option = "HARK_WITH_BZIP2", .ending = ".bz2", .is = is, BY_LIBRARY};
