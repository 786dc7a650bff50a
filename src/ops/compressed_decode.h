/* compressed_decode.h - the size of a cache of compressed attention. */
#ifndef HARK_OPS_COMPRESSED_DECODE_H
#define HARK_OPS_COMPRESSED_DECODE_H

#include <hark/experimental.h>

/* Chunks whose slots a cache of `tokens` tokens has room for: those that are finished before the last token, or the kept ones and one
 * more. */
int64_t hark_compressed_decode_chunks(int64_t chunk, int64_t kept, int64_t tokens);

#endif
