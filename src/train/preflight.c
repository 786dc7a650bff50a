/* preflight.c - see preflight.h.
 *
 *   memory = resident now + program + weights + gradients + moments + step + batch
 *
 * The engine's part is exact: the same shape-only run sizes the real memory. The first step touches every byte of it. `program` is further
 * memory that training needs and hark does not allocate, measured on Linux: pages of code and tables, each thread's stack, and the kernels'
 * memory as reported by the backend.
 *
 *   disk = (maximum number of checkpoints - existing ones) * checkpoint
 *
 * The maximum is `keep`, plus the best one and the one being written. */
#include "train/preflight.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "io/checkpoint_files.h"
#include "io/machine.h"
#include "train/material.h"
#include "train/samples.h"

#define MEBIBYTE ((uint64_t)1 << 20)
#define PROGRAM_BYTES MEBIBYTE
#define THREAD_BYTES ((uint64_t)64 << 10)
#define TENSOR_ENTRY_BYTES ((uint64_t)160)       /* per tensor in a header: name, type, shape, offsets */
#define CHECKPOINT_ENTRIES 3                     /* per weight: itself and two moments; a weight with factored moments may have three */
#define CHECKPOINT_OTHER_BYTES ((uint64_t)16384) /* state, manifest, folder */
#define DISK_OTHER_BYTES MEBIBYTE                /* metrics and the like */

static uint64_t model_bytes(const hark_engine_memory *engine) {
  return (uint64_t)engine->weights + engine->gradients + engine->moments + engine->step + engine->batch;
}

static uint64_t checkpoint_bytes(const hark_config *config, const hark_needs *needs, uint64_t tensors) {
  const uint64_t weights = (uint64_t)needs->parameters * sizeof(float), entries = CHECKPOINT_ENTRIES * tensors * TENSOR_ENTRY_BYTES;
  const bool all = config->train.optimiser == HARK_OPTIMISER_ADAMW; /* perhaps divided */
  const uint64_t moments = all ? 2 * weights : needs->engine.moments, parts = all ? 0 : tensors * TENSOR_ENTRY_BYTES;
  return weights + moments + entries + parts + CHECKPOINT_OTHER_BYTES;
}

static hark_status estimate_memory(hark_context *context, const hark_preflight *run, hark_needs *out) {
  const hark_config *config = run->config;
  hark_process_memory process;
  hark_machine_memory machine;
  int64_t tensors = 0;
  HARK_TRY(hark_engine_estimate_for(context, config, &run->task, true, &out->engine, &out->parameters, &tensors));
  HARK_TRY(hark_process_memory_use(context, &process));
  HARK_TRY(hark_machine_memory_left(context, "", &machine));
  const uint64_t batches = hark_material_room_bytes(config, &run->task);
  const double rows = (double)(config->train.batch * config->model.context) * (double)hark_max(1, run->task.parts);
  const double products =
      2.0 * rows * (double)config->model.width * (double)hark_max(config->model.feed_forward_width, run->task.vocabulary);
  const uint64_t kernels = context->backend->kernel_bytes != NULL ? context->backend->kernel_bytes(context, products) : 0;
  out->program = process.resident + PROGRAM_BYTES + (uint64_t)hark_workers(context) * THREAD_BYTES + batches + kernels +
                 hark_samples_bytes(config, out->parameters);
  out->memory = out->program + model_bytes(&out->engine);
  out->more_memory = out->memory - process.resident;
  if (process.peak > out->memory) out->memory = process.peak;
  out->memory_known = machine.known;
  out->memory_left = machine.bytes;
  out->memory_limit = machine.limit;
  out->checkpoint = checkpoint_bytes(config, out, (uint64_t)tensors);
  return HARK_OK;
}

/* Number of checkpoints in the folder. */
static hark_status count_checkpoints(hark_context *context, const hark_run *folder, int64_t *count) {
  char path[HARK_PATH_BYTES];
  hark_names names;
  hark_path_kind kind;
  *count = 0;
  HARK_TRY(hark_run_path(context, folder, HARK_CHECKPOINTS_FOLDER, path));
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind != HARK_PATH_FOLDER) return HARK_OK;
  HARK_TRY(hark_folder_list(context, path, &names));
  for (int64_t i = 0; i < names.count; i++) *count += hark_checkpoint_step(names.items[i]) >= 0;
  hark_names_free(context, &names);
  return HARK_OK;
}

/* The folder itself, or its nearest existing parent. */
static hark_status existing_folder(hark_context *context, const char *path, char *out) {
  hark_path_kind kind;
  HARK_TRY(hark_path_join(context, "", path, out));
  for (;;) {
    HARK_TRY(hark_path_examine(context, out, &kind));
    if (kind == HARK_PATH_FOLDER) break;
    char *slash = strrchr(out, '/');
    if (slash == NULL) {
      memcpy(out, ".", 2);
      break;
    }
    slash[slash == out ? 1 : 0] = '\0';
    if (slash == out) break;
  }
  return HARK_OK;
}

static int64_t times(int64_t steps, int64_t every) { return every > 0 ? steps / every : 0; }

static hark_status estimate_disk(hark_context *context, const hark_preflight *run, hark_needs *out) {
  const hark_config *config = run->config;
  int64_t there = 0;
  HARK_TRY(count_checkpoints(context, run->folder, &there));
  HARK_TRY(existing_folder(context, run->folder->path, out->disk));
  HARK_TRY(hark_disk_free(context, out->disk, &out->disk_left));
  const int64_t steps = hark_min(run->steps, INT64_MAX / 4);
  int64_t saves = 1 + times(steps, config->train.checkpoint_every);
  if (run->has_validation) saves += times(steps, config->train.evaluate_every);
  if (config->train.max_time > 0) saves++;
  out->checkpoints = hark_min(config->train.keep + 2, there + saves);
  out->more_disk = (uint64_t)hark_max(1, out->checkpoints - there) * out->checkpoint + DISK_OTHER_BYTES;
  return HARK_OK;
}

/* Of a process; those of a divided window differ. */
typedef struct memory_note {
  hark_engine_memory engine;
  uint64_t program, memory, more_memory;
} memory_note;
_Static_assert(sizeof(memory_note) <= HARK_GROUP_NOTE_BYTES, "a note is too long");

/* The memory of the process whose model needs most: what the program takes is measured, and differs by chance. */
static hark_status take_most(hark_context *context, hark_status status, hark_needs *out) {
  hark_group *const group = context->group;
  const memory_note own = {out->engine, out->program, out->memory, out->more_memory};
  const size_t bytes = (size_t)hark_group_size(group) * sizeof(memory_note);
  void *notes = NULL;
  if (hark_group_size(group) == 1) return status;
  if (status == HARK_OK) status = hark_allocate_zero(context, bytes, &notes);
  if (status != HARK_OK) return hark_group_agree(context, group, status);
  status = hark_group_meet(context, group, HARK_OK, &own, sizeof own, notes);
  const memory_note *const all = notes;
  for (int rank = 0; rank < hark_group_size(group) && status == HARK_OK; rank++) {
    if (all[rank].more_memory > out->more_memory) out->more_memory = all[rank].more_memory;
    if (model_bytes(&all[rank].engine) <= model_bytes(&out->engine)) continue;
    out->engine = all[rank].engine;
    out->program = all[rank].program;
    out->memory = all[rank].memory;
  }
  hark_release(context, notes, bytes);
  return status;
}

hark_status hark_preflight_estimate(hark_context *context, const hark_preflight *run, hark_needs *out) {
  *out = (hark_needs){.memory_limit = ""};
  hark_status status = estimate_memory(context, run, out);
  if (status == HARK_OK) status = estimate_disk(context, run, out);
  return take_most(context, status, out);
}

/* In whole MiB, or KiB below one. */
static const char *size_words(uint64_t bytes, char text[24]) {
  const uint64_t unit = bytes < MEBIBYTE ? 1024 : MEBIBYTE;
  (void)snprintf(text, 24, "%.0f %s", (double)bytes / (double)unit, unit == MEBIBYTE ? "MiB" : "KiB");
  return text;
}

hark_status hark_preflight_check(hark_context *context, const hark_needs *needs) {
  char more[24], left[24], checkpoint[24];
  if (needs->memory_known && needs->more_memory > needs->memory_left)
    return hark_fail(context, HARK_TOO_LARGE,
                     "this run needs about %s more memory, and %s has %s left; a smaller batch, --recompute or a smaller model "
                     "need less, --no-preflight tries anyway",
                     size_words(needs->more_memory, more), needs->memory_limit, size_words(needs->memory_left, left));
  if (needs->more_disk > needs->disk_left)
    return hark_fail(context, HARK_IO_ERROR,
                     "%.200s: this run needs about %s more disk space (checkpoints of %s, %" PRId64
                     " at once), and %s are free; --keep 1 needs less, --no-preflight tries anyway",
                     needs->disk, size_words(needs->more_disk, more), size_words(needs->checkpoint, checkpoint), needs->checkpoints,
                     size_words(needs->disk_left, left));
  return HARK_OK;
}
