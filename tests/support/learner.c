/* learner.c - see learner.h. */
#include "support/learner.h"

#include <string.h>

#include "tokenizers/tokenizer.h"

/* Whether the character text[from .. from + bytes) is there for the first time. */
static bool is_first(const hark_subword_job *job, size_t from, size_t bytes) {
  for (size_t at = 0; at < from; at++)
    if (memcmp(job->text + at, job->text + from, bytes) == 0) return false;
  return true;
}

static size_t character_bytes(const char *text) {
  const unsigned char lead = (unsigned char)text[0];
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

static hark_status learn(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]) {
  int32_t made = 0;
  message[0] = '\0';
  for (size_t at = 0, bytes; at < job->at[job->words] && made < job->pieces; at += bytes) {
    bytes = character_bytes(job->text + at);
    if (!is_first(job, at, bytes)) continue;
    const hark_status status = sink(user, job->text + at, bytes, -1 - made++ / 4.0);
    if (status != HARK_OK) return status;
  }
  for (size_t w = 0; w < job->words && made < job->pieces; w++) {
    const size_t bytes = job->at[w + 1] - job->at[w];
    if (bytes == character_bytes(job->text + job->at[w])) continue;
    const hark_status status = sink(user, job->text + job->at[w], bytes, -1 - made++ / 4.0);
    if (status != HARK_OK) return status;
  }
  return HARK_OK;
}

const hark_subword_learner test_learner = {"test learner", learn};

hark_subword_settings test_subwords(hark_subword_model model, int64_t pieces) {
  return (hark_subword_settings){
      .model = model, .vocabulary = HARK_TOKEN_RESERVED + 256 + pieces, .byte_fallback = true, .coverage = 1, .learner = &test_learner};
}
