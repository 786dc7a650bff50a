/* fuzz_unpack.c - any bytes as a compressed file of each format, in memory: however they are read, the result is the same, and so are the
 * unpacked bytes; what is unpacked of a small file may be large, so it is only counted, up to a limit. */
#include <string.h>

#include "core/checksum.h"
#include "data/unpack/unpack.h"
#include "fuzz/fuzz.h"

#define OUT_LIMIT ((uint64_t)1 << 22)
#define LIBRARY_BYTES ((size_t)2 << 20) /* the buffers of the loop, and hark's own part of a state */

typedef struct ends {
  const uint8_t *data;
  size_t left, step; /* bytes that a call reads at most */
  uint64_t written, sum;
} ends;

static hark_status read_some(void *closure, void *data, size_t bytes, size_t *got) {
  ends *const e = closure;
  *got = bytes < e->step ? bytes : e->step;
  if (*got > e->left) *got = e->left;
  if (*got > 0) memcpy(data, e->data, *got);
  e->data += *got;
  e->left -= *got;
  return HARK_OK;
}

static hark_status write_some(void *closure, const void *data, size_t bytes) {
  ends *const e = closure;
  for (size_t i = 0; i < bytes; i++) e->sum = hark_checksum_bytes(e->sum, (const char *)data + i, 1);
  e->written += bytes;
  return e->written > OUT_LIMIT ? HARK_CANCELLED : HARK_OK;
}

static hark_status unpack(hark_context *context, const hark_packing *packing, const uint8_t *data, size_t size, size_t step, ends *e) {
  *e = (ends){.data = data, .left = size, .step = step, .sum = HARK_CHECKSUM_START};
  const hark_unpack_ends both = {e, read_some, write_some};
  const hark_status status = hark_unpack(context, "file", packing, &both);
  if (status != HARK_CANCELLED) fuzz_check_refusal(context, status, HARK_BAD_FILE, "file: ");
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  (void)hark_packing_of(data, size);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    ends whole, parts;
    if (hark_packings[i]->state_bytes == 0) continue;
    const hark_status first = unpack(context, hark_packings[i], data, size, size + 1, &whole);
    const hark_status second = unpack(context, hark_packings[i], data, size, 3, &parts);
    FUZZ_CHECK(first == second, "read in parts: %s, not %s", hark_status_name(second), hark_status_name(first));
    FUZZ_CHECK(first != HARK_OK || (whole.written == parts.written && whole.sum == parts.sum), "read in parts: other bytes");
  }
  fuzz_limit(LIBRARY_BYTES + (size_t)HARK_UNPACK_MEMORY_BYTES);
  fuzz_end();
  return 0;
}
