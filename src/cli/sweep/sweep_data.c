/* sweep_data.c - whether the runs of a cell were trained on the same data: their checkpoints record its checksum. The mean over runs of
 * two texts would mean nothing. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep/sweep.h"
#include "io/checkpoint_files.h"
#include "io/files.h"

#define STATE_BYTES ((size_t)1 << 20)
#define CHECKSUM_BYTES 32

/* "" for a run that has not ended, or whose state cannot be read, which hark verify reports. */
static hark_status checksum_of(const sweep *s, int run, char out[CHECKSUM_BYTES]) {
  char folder[HARK_PATH_BYTES], name[HARK_NAME_BYTES], state[HARK_NAME_BYTES + 64], path[HARK_PATH_BYTES];
  out[0] = '\0';
  if (!s->whole[run]) return HARK_OK;
  HARK_TRY(hark_sweep_run_path(s, run, folder));
  if (hark_checkpoint_pointer_follow(s->context, folder, "last", name) != HARK_OK) return HARK_OK;
  (void)snprintf(state, sizeof state, HARK_CHECKPOINTS_FOLDER "/%s/state.json", name);
  HARK_TRY(hark_path_join(s->context, folder, state, path));
  hark_text text = hark_text_empty(s->context);
  const hark_status status = hark_file_read(s->context, path, STATE_BYTES, &text);
  json_t *const object = status == HARK_OK ? json_loads(hark_text_get(&text), 0, NULL) : NULL;
  const char *const checksum = json_string_value(json_object_get(object, "corpus_checksum"));
  (void)snprintf(out, CHECKSUM_BYTES, "%s", checksum != NULL ? checksum : "");
  json_decref(object);
  hark_text_free(&text);
  return status == HARK_OUT_OF_MEMORY ? status : HARK_OK;
}

hark_status hark_sweep_check_data(const sweep *s) {
  char first[CHECKSUM_BYTES] = "", own[CHECKSUM_BYTES], name[HARK_SWEEP_CELL_BYTES], other[HARK_SWEEP_CELL_BYTES] = "";
  int cell = -1;
  for (int run = 0; run < s->runs; run++) {
    HARK_TRY(checksum_of(s, run, own));
    if (own[0] == '\0') continue;
    hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), name);
    if (hark_sweep_cell_of(s, run) == cell && strcmp(own, first) != 0)
      return hark_fail(s->context, HARK_BAD_CONFIGURATION,
                       "%s: was trained on other data than %s: delete its folder and its configuration, or give the sweep another 'out'",
                       name, other);
    cell = hark_sweep_cell_of(s, run);
    memcpy(first, own, sizeof first);
    memcpy(other, name, sizeof other);
  }
  return HARK_OK;
}
