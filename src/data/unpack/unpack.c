/* unpack.c - see unpack.h. Streams may follow each other, as `cat a.gz b.gz` and parallel compressors write them; zero bytes after the
 * last one are padding. */
#include "data/unpack/unpack.h"

#include <inttypes.h>
#include <string.h>

#define IN_BYTES ((size_t)1 << 16)
#define OUT_BYTES ((size_t)1 << 18)

const hark_packing *const hark_packings[] = {&hark_packing_gzip, &hark_packing_xz, &hark_packing_zstd, &hark_packing_bzip2, NULL};

const hark_packing *hark_packing_of(const unsigned char *front, size_t bytes) {
  for (int i = 0; hark_packings[i] != NULL; i++)
    if (hark_packings[i]->is(front, bytes)) return hark_packings[i];
  return NULL;
}

typedef struct unpacking {
  hark_context *context;
  const char *name;
  const hark_packing *packing;
  const hark_unpack_ends *ends;
  void *state;
  hark_unpack_room room;
  uint64_t read; /* bytes of input, including those in `room` */
  bool between;  /* no stream is open */
  bool padding;  /* only zero bytes may follow */
  unsigned char in[IN_BYTES], out[OUT_BYTES];
} unpacking;

static uint64_t place(const unpacking *u) { return u->read - u->room.in_left; }

static hark_status fail(unpacking *u, hark_unpack_result result) {
  const char *const name = u->packing->name;
  if (result == HARK_UNPACK_MEMORY) return hark_fail(u->context, HARK_OUT_OF_MEMORY, "%s: out of memory for unpacking", u->name);
  if (result == HARK_UNPACK_LARGE)
    return hark_fail(u->context, HARK_BAD_FILE, "%s: unpacking its %s data needs more than %" PRIu64 " MiB of memory, the most for a file",
                     u->name, name, HARK_UNPACK_MEMORY_BYTES >> 20);
  return hark_fail(u->context, HARK_BAD_FILE, "%s: damaged %s data near byte offset %" PRIu64 " of the compressed file", u->name, name,
                   place(u));
}

static hark_status fail_after(unpacking *u, uint64_t at) {
  return hark_fail(u->context, HARK_BAD_FILE,
                   "%s: its %s data are followed by other or damaged bytes, at byte offset %" PRIu64 " of the compressed file", u->name,
                   u->packing->name, at);
}

static hark_status refill(unpacking *u) {
  size_t got = 0;
  if (u->room.in_left > 0 || u->room.last) return HARK_OK;
  HARK_TRY(u->ends->read(u->ends->closure, u->in, IN_BYTES, &got));
  u->room.in = u->in;
  u->room.in_left = got;
  u->room.last = got == 0;
  u->read += got;
  return HARK_OK;
}

/* Between streams: skips padding. */
static hark_status skip_padding(unpacking *u) {
  while (u->room.in_left > 0 && *u->room.in == 0) {
    u->padding = true;
    u->room.in++;
    u->room.in_left--;
  }
  return u->padding && u->room.in_left > 0 ? fail_after(u, place(u)) : HARK_OK;
}

static hark_status step(unpacking *u) {
  const uint64_t begin = place(u);
  const bool again = u->between && begin > 0;
  u->room.out = u->out;
  u->room.out_left = OUT_BYTES;
  const hark_unpack_result result = u->packing->step(u->state, &u->room);
  const size_t made = OUT_BYTES - u->room.out_left;
  if (result == HARK_UNPACK_DAMAGED && again) return fail_after(u, begin);
  if (result != HARK_UNPACK_MORE && result != HARK_UNPACK_END) return fail(u, result);
  if (made > 0) HARK_TRY(u->ends->write(u->ends->closure, u->out, made));
  u->between = result == HARK_UNPACK_END;
  if (result == HARK_UNPACK_MORE && u->room.last && made == 0)
    return hark_fail(u->context, HARK_BAD_FILE, "%s: ends within its %s data, at byte offset %" PRIu64 ": it was cut", u->name,
                     u->packing->name, u->read);
  return HARK_OK;
}

static hark_status unpack_all(unpacking *u) {
  const hark_unpack_result opened = u->packing->open(u->state);
  if (opened != HARK_UNPACK_MORE) return fail(u, opened);
  for (;;) {
    HARK_TRY(refill(u));
    if (u->between && u->read > 0) HARK_TRY(skip_padding(u));
    if (u->between && u->room.last) return HARK_OK;
    if (u->between && u->room.in_left == 0) continue;
    HARK_TRY(step(u));
  }
}

hark_status hark_unpack(hark_context *context, const char *name, const hark_packing *packing, const hark_unpack_ends *ends) {
  unpacking *u = NULL;
  if (packing->state_bytes == 0)
    return hark_fail(context, HARK_UNSUPPORTED, "%s: is compressed with %s, and this hark was built without %s (%s)", name, packing->name,
                     packing->library, packing->option);
  HARK_TRY(hark_allocate_zero(context, sizeof *u, (void **)&u)); /* by members: a value of this size may be made on the stack */
  u->context = context;
  u->name = name;
  u->packing = packing;
  u->ends = ends;
  u->between = true;
  hark_status status = hark_allocate_zero(context, packing->state_bytes, &u->state);
  if (status == HARK_OK) {
    status = unpack_all(u);
    packing->close(u->state);
  }
  hark_release(context, u->state, packing->state_bytes);
  hark_release(context, u, sizeof *u);
  return status;
}
