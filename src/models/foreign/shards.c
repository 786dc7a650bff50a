/* shards.c - see shards.h. */
#include "models/foreign/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/checkpoint_files.h"
#include "io/json_tree.h"

#define INDEX_FILE HARK_WEIGHTS_FILE ".index.json"
#define INDEX_BYTES ((size_t)64 << 20)
#define SHARDS 4096
#define ENTRIES 200000 /* of weight_map: finding the file of each takes time */

/* Files of pickled weights, which are programs. */
static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "consolidated.00.pth", "model.ckpt"};

static hark_status reserve(hark_context *context, hark_shards *shards, int64_t capacity) {
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)capacity * sizeof *shards->list, &memory));
  shards->list = memory;
  shards->capacity = capacity;
  return HARK_OK;
}

/* The file of that name in the folder, opened once. */
static hark_status add(hark_context *context, const char *folder, const char *name, hark_shards *shards, hark_shard **out) {
  for (int64_t i = 0; i < shards->count; i++) {
    *out = &shards->list[i];
    if (strcmp(hark_path_name((*out)->path), name) == 0) return HARK_OK;
  }
  if (shards->count == shards->capacity) return hark_fail(context, HARK_BAD_FILE, "%s: names more than %d files", INDEX_FILE, SHARDS);
  *out = &shards->list[shards->count];
  HARK_TRY(hark_path_join(context, folder, name, (*out)->path));
  shards->reading = hark_path_name((*out)->path);
  if (hark_path_kind_of((*out)->path) == HARK_PATH_NONE)
    return hark_fail(context, HARK_NOT_FOUND, "%s: is missing, and " INDEX_FILE " names it", (*out)->path);
  HARK_TRY(hark_safetensors_open(context, (*out)->path, &(*out)->file));
  shards->count++;
  return HARK_OK;
}

/* ---- the index ---- */

/* One entry of weight_map: NAME: FILE. */
static hark_status add_entry(hark_context *context, const char *folder, const char *index, const hark_json_node *entry,
                             hark_shards *shards) {
  const char *const file = hark_json_text(entry);
  char name[HARK_SHOWN_BYTES];
  hark_shard *shard = NULL;
  if (file == NULL || !hark_name_is_plain(file))
    return hark_fail(context, HARK_BAD_FILE, "%s: weight_map.%s: expected the name of a file in this folder", index,
                     hark_text_shown(entry->name, name));
  HARK_TRY(add(context, folder, file, shards, &shard));
  if (hark_safetensors_find(shard->file, entry->name) != NULL) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: has no tensor \"%s\", which " INDEX_FILE " names", shard->path,
                   hark_text_shown(entry->name, name));
}

/* Every tensor of the files is in the index, in this file: else there are two of one name, or files that are not of one model. */
static hark_status check_map(hark_context *context, const hark_json_node *map, const hark_shards *shards) {
  char name[HARK_SHOWN_BYTES];
  int64_t tensors = 0;
  for (int64_t i = 0; i < shards->count; i++) tensors += hark_safetensors_count(shards->list[i].file);
  if (tensors == map->count) return HARK_OK;
  for (int64_t i = 0; i < shards->count; i++)
    for (int64_t t = 0; t < hark_safetensors_count(shards->list[i].file); t++) {
      const hark_stored_tensor *const tensor = hark_safetensors_tensor(shards->list[i].file, t);
      const hark_json_node *const entry = hark_json_member(map, tensor->name);
      if (entry == NULL || strcmp(hark_json_text(entry), hark_path_name(shards->list[i].path)) != 0)
        return hark_fail(context, HARK_BAD_FILE, "%s: tensor \"%s\" is not in " INDEX_FILE, shards->list[i].path,
                         hark_text_shown(tensor->name, name));
    }
  return HARK_OK;
}

static hark_status open_map(hark_context *context, const char *folder, const char *index, const hark_json_node *root, hark_shards *shards) {
  const hark_json_node *const map = hark_json_member(root, "weight_map");
  if (!hark_json_is(map, HARK_JSON_OBJECT) || map->count == 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: weight_map: is missing or not an object of names of files", index);
  if (map->count > ENTRIES)
    return hark_fail(context, HARK_BAD_FILE, "%s: weight_map: has %" PRId64 " entries, expected at most %d", index, (int64_t)map->count,
                     ENTRIES);
  HARK_TRY(reserve(context, shards, hark_min(map->count, SHARDS)));
  for (const hark_json_node *entry = map->first; entry != NULL; entry = entry->next) {
    shards->reading = INDEX_FILE;
    HARK_TRY(add_entry(context, folder, index, entry, shards));
  }
  return check_map(context, map, shards);
}

static hark_status open_index(hark_context *context, const char *folder, const char *index, hark_shards *shards) {
  hark_text text = hark_text_empty(context);
  hark_json_tree tree = {0};
  shards->reading = INDEX_FILE;
  hark_status status = hark_file_read_stored(context, index, INDEX_BYTES, &text);
  if (status == HARK_OK) status = hark_json_tree_parse(context, index, hark_text_get(&text), text.length, &tree);
  if (status == HARK_OK) status = open_map(context, folder, index, tree.root, shards);
  hark_json_tree_free(context, &tree);
  hark_text_free(&text);
  return status;
}

/* ---- folders ---- */

static hark_status refuse(hark_context *context, const char *folder) {
  char path[HARK_PATH_BYTES];
  for (size_t i = 0; i < sizeof pickled / sizeof *pickled; i++) {
    HARK_TRY(hark_path_join(context, folder, pickled[i], path));
    if (hark_path_kind_of(path) == HARK_PATH_FILE)
      return hark_fail(context, HARK_UNSUPPORTED,
                       "%s: pickled weights are not read, because they can run programs: expected " HARK_WEIGHTS_FILE
                       ", into which their publisher's tools convert them",
                       path);
  }
  return hark_fail(context, HARK_NOT_FOUND, "%s: has neither " HARK_WEIGHTS_FILE " nor " INDEX_FILE, folder);
}

hark_status hark_shards_open(hark_context *context, const char *folder, hark_shards *out) {
  char path[HARK_PATH_BYTES];
  hark_shard *shard = NULL;
  *out = (hark_shards){.reading = HARK_WEIGHTS_FILE};
  HARK_TRY(hark_path_join(context, folder, HARK_WEIGHTS_FILE, path));
  if (hark_path_kind_of(path) != HARK_PATH_NONE) {
    HARK_TRY(reserve(context, out, 1));
    return add(context, folder, HARK_WEIGHTS_FILE, out, &shard);
  }
  HARK_TRY(hark_path_join(context, folder, INDEX_FILE, path));
  return hark_path_kind_of(path) == HARK_PATH_NONE ? refuse(context, folder) : open_index(context, folder, path, out);
}

void hark_shards_close(hark_context *context, hark_shards *shards) {
  for (int64_t i = 0; i < shards->count; i++) hark_safetensors_close(context, &shards->list[i].file);
  hark_release(context, shards->list, (size_t)shards->capacity * sizeof *shards->list);
  *shards = (hark_shards){0};
}

bool hark_shards_find(const hark_shards *shards, const char *name, hark_shard_tensor *out) {
  for (int64_t i = 0; i < shards->count; i++) {
    *out = (hark_shard_tensor){&shards->list[i], hark_safetensors_find(shards->list[i].file, name)};
    if (out->tensor != NULL) return true;
  }
  return false;
}
