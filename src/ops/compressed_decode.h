/* compressed_decode.h - the sizes of a cache of compressed attention. */
#ifndef HARK_OPS_COMPRESSED_DECODE_H
#define HARK_OPS_COMPRESSED_DECODE_H

#include <hark/experimental.h>

/* What a cache of some tokens, of which `finished` chunks are followed by another one, contains: rows of the ring, chunks of slots, global
 * slots. The parts of a cache with more room begin with these. */
typedef struct hark_compressed_decode_sizes {
  int64_t ring, chunks, globals;
} hark_compressed_decode_sizes;
hark_compressed_decode_sizes hark_compressed_decode_sizes_with(const hark_compressed_decode_attributes *decode, int64_t tokens,
                                                               int64_t finished);
/* The same with as many finished chunks as the tokens may have. */
hark_compressed_decode_sizes hark_compressed_decode_sizes_of(const hark_compressed_decode_attributes *decode, int64_t tokens);

#endif
