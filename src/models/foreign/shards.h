/* shards.h - the tensors of a folder: model.safetensors, or the files that model.safetensors.index.json names. */
#ifndef HARK_MODELS_FOREIGN_SHARDS_H
#define HARK_MODELS_FOREIGN_SHARDS_H

#include "io/safetensors.h"

typedef struct hark_shard {
  char path[HARK_PATH_BYTES];
  hark_safetensors *file;
} hark_shard;

typedef struct hark_shards {
  hark_shard *list;
  int64_t count, capacity;
  const char *reading; /* the name of the file that was opened last, of which a failure is */
} hark_shards;

/* A tensor and its file. */
typedef struct hark_shard_tensor {
  const hark_shard *shard;
  const hark_stored_tensor *tensor;
} hark_shard_tensor;

/* Opens all files. Names in the index are names in the folder, never paths. The caller closes the shards, also after a failure.
 * Errors: HARK_NOT_FOUND (a file that the index names), HARK_BAD_FILE (no safetensors, an index and files that disagree), those of
 * files. */
HARK_MUST_CHECK hark_status hark_shards_open(hark_context *context, const char *folder, hark_shards *out);
void hark_shards_close(hark_context *context, hark_shards *shards);

/* Whether there is a tensor of that name. */
bool hark_shards_find(const hark_shards *shards, const char *name, hark_shard_tensor *out);

#endif
