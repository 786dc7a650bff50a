/* masking.c - see masking.h. */
#include "data/corpora/masking.h"

#include <hark/random.h>
#include <stdbool.h>

#include "data/corpora/batches.h"
#include "tokenizers/tokenizer.h"

#define STREAM_MASKS                                                                                                                       \
  4 /* Philox streams of the purpose HARK_RANDOM_DATA, 4 and 5; batches.c, permutation.c and example_batches.c use 0 to 3 */
#define SEQUENCE_SHIFT 24
#define SHOWN_AS_MASK 0.8
#define SHOWN_AS_ANY 0.1

/* Draws the words of a token: they determine whether it is chosen, how it is replaced, and by which symbol. */
static void draw(const hark_masking *masking, int64_t sequence, int64_t position, uint32_t words[4]) {
  const hark_random_stream stream = {
      .seed = masking->seed, .layer_purpose = hark_random_layer_purpose((uint32_t)(STREAM_MASKS + (int)masking->stream), HARK_RANDOM_DATA)};
  hark_random_words(&stream, ((uint64_t)sequence << SEQUENCE_SHIFT) + (uint64_t)position, words);
}

static bool is_chosen(const hark_masking *masking, const uint32_t words[4]) { return words[0] < hark_random_threshold(masking->fraction); }

int64_t hark_mask_count(const hark_masking *masking, int64_t sequence, int64_t length) {
  int64_t count = 0;
  for (int64_t i = 0; i < length; i++) {
    uint32_t words[4];
    draw(masking, sequence, i, words);
    count += is_chosen(masking, words);
  }
  return count;
}

int64_t hark_mask_tokens(const hark_masking *masking, int64_t sequence, int64_t length, int32_t *inputs, int32_t *targets) {
  const uint32_t as_mask = hark_random_threshold(SHOWN_AS_MASK), as_any = hark_random_threshold(SHOWN_AS_MASK + SHOWN_AS_ANY);
  int64_t count = 0;
  for (int64_t i = 0; i < length; i++) {
    uint32_t words[4];
    draw(masking, sequence, i, words);
    targets[i] = HARK_TARGET_IGNORED;
    if (!is_chosen(masking, words) || inputs[i] < HARK_TOKEN_RESERVED) continue;
    targets[i] = inputs[i];
    count++;
    if (words[1] < as_mask)
      inputs[i] = HARK_TOKEN_MASK;
    else if (words[1] < as_any)
      inputs[i] = HARK_TOKEN_RESERVED + (int32_t)(words[2] % (uint32_t)(masking->vocabulary - HARK_TOKEN_RESERVED));
  }
  return count;
}
