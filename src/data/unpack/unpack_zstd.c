/* unpack_zstd.c - Zstandard (RFC 8878) by libzstd. */
#include <string.h>

#include "data/unpack/unpack.h"

/* A frame, or a skippable one, which the files of parallel compressors begin with (sections 3.1.1 and 3.1.2). */
static bool is(const unsigned char *front, size_t bytes) {
  if (bytes < 4) return false;
  return memcmp(front, "\x28\xB5\x2F\xFD", 4) == 0 || ((front[0] & 0xF0) == 0x50 && memcmp(front + 1, "\x2A\x4D\x18", 3) == 0);
}

#ifdef HARK_WITH_ZSTD
#include <zstd.h>
#include <zstd_errors.h>

typedef struct state {
  ZSTD_DCtx *decoder;
} state;

static hark_unpack_result open_stream(void *memory) {
  state *const s = memory;
  s->decoder = ZSTD_createDCtx();
  if (s->decoder == NULL) return HARK_UNPACK_MEMORY;
  const size_t result = ZSTD_DCtx_setParameter(s->decoder, ZSTD_d_windowLogMax, HARK_UNPACK_WINDOW_BITS);
  return ZSTD_isError(result) ? HARK_UNPACK_MEMORY : HARK_UNPACK_MORE;
}

static hark_unpack_result step(void *memory, hark_unpack_room *room) {
  state *const s = memory;
  ZSTD_inBuffer in = {room->in, room->in_left, 0};
  ZSTD_outBuffer out = {room->out, room->out_left, 0};
  const size_t result = ZSTD_decompressStream(s->decoder, &out, &in);
  if (ZSTD_isError(result)) {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_memory_allocation) return HARK_UNPACK_MEMORY;
    return code == ZSTD_error_frameParameter_windowTooLarge ? HARK_UNPACK_LARGE : HARK_UNPACK_DAMAGED;
  }
  room->in += in.pos;
  room->in_left -= in.pos;
  room->out += out.pos;
  room->out_left -= out.pos;
  return result == 0 ? HARK_UNPACK_END : HARK_UNPACK_MORE;
}

static void close_stream(void *memory) {
  state *const s = memory;
  (void)ZSTD_freeDCtx(s->decoder);
}

#define BY_LIBRARY .state_bytes = sizeof(state), .open = open_stream, .step = step, .close = close_stream,
#else
#define BY_LIBRARY
#endif

const hark_packing hark_packing_zstd = {
    .name = "zstd", .library = "libzstd", .option = "HARK_WITH_ZSTD", .ending = ".zst", .is = is, BY_LIBRARY};
