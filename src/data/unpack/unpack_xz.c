/* unpack_xz.c - xz by liblzma. */
#include <string.h>

#include "data/unpack/unpack.h"

static bool is(const unsigned char *front, size_t bytes) { return bytes >= 6 && memcmp(front, "\xFD\x37zXZ\x00", 6) == 0; }

#ifdef HARK_WITH_LZMA
#include <lzma.h>

static hark_unpack_result open_stream(void *memory) {
  lzma_stream *const stream = memory;
  *stream = (lzma_stream)LZMA_STREAM_INIT;
  return lzma_stream_decoder(stream, HARK_UNPACK_MEMORY_BYTES, LZMA_CONCATENATED) == LZMA_OK ? HARK_UNPACK_MORE : HARK_UNPACK_MEMORY;
}

/* The library reads streams one after the other, with their padding: it ends only where the input does. */
static hark_unpack_result step(void *memory, hark_unpack_room *room) {
  lzma_stream *const stream = memory;
  stream->next_in = room->in;
  stream->avail_in = room->in_left;
  stream->next_out = room->out;
  stream->avail_out = room->out_left;
  const lzma_ret result = lzma_code(stream, room->last ? LZMA_FINISH : LZMA_RUN);
  room->in = stream->next_in;
  room->in_left = stream->avail_in;
  room->out = stream->next_out;
  room->out_left = stream->avail_out;
  switch (result) {
    case LZMA_OK:
    case LZMA_BUF_ERROR: return HARK_UNPACK_MORE;
    case LZMA_STREAM_END: return HARK_UNPACK_END;
    case LZMA_MEM_ERROR: return HARK_UNPACK_MEMORY;
    case LZMA_MEMLIMIT_ERROR: return HARK_UNPACK_LARGE;
    default: return HARK_UNPACK_DAMAGED;
  }
}

static void close_stream(void *memory) { lzma_end(memory); }

#define BY_LIBRARY .state_bytes = sizeof(lzma_stream), .open = open_stream, .step = step, .close = close_stream,
#else
#define BY_LIBRARY
#endif

const hark_packing hark_packing_xz = {
    .name = "xz", .library = "liblzma", .option = "HARK_WITH_LZMA", .ending = ".xz", .is = is, BY_LIBRARY};
