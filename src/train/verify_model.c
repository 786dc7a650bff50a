/* verify_model.c - see verify_model.h. */
#include "train/verify_model.h"

#include <hark/model.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/half.h"
#include "io/checkpoint_files.h"
#include "models/foreign/foreign.h"

/* Whether a failure is a finding. */
static bool is_damage(hark_status status) {
  return status == HARK_BAD_FILE || status == HARK_NOT_FOUND || status == HARK_BAD_CONFIGURATION || status == HARK_NOT_FINITE ||
         status == HARK_TOO_LARGE || status == HARK_SHAPE_MISMATCH || status == HARK_UNSUPPORTED;
}

hark_status hark_verification_report(hark_verification *v, const char *what, hark_status status, const char *note) {
  if (status != HARK_OK && !is_damage(status)) return status;
  char problem[HARK_MESSAGE_BYTES];
  (void)snprintf(problem, sizeof problem, "%s", hark_context_message(v->context));
  const hark_finding finding = {.what = what, .problem = status != HARK_OK ? problem : NULL, .note = status == HARK_OK ? note : NULL};
  v->problems += status != HARK_OK;
  v->visit(v->user, &finding);
  return HARK_OK;
}

/* ---- numbers ---- */

/* Number i of a tensor's bytes; whole numbers are 0. */
static double number_at(hark_type type, const char *bytes, uint64_t i) {
  double wide = 0;
  float single = 0;
  uint16_t half = 0;
  const char *const at = bytes + i * hark_type_bytes(type);
  if (type == HARK_F64) memcpy(&wide, at, sizeof wide);
  if (type == HARK_F32) memcpy(&single, at, sizeof single);
  if (hark_type_is_half(type)) memcpy(&half, at, sizeof half);
  return type == HARK_F64 ? wide : hark_type_is_half(type) ? (double)hark_half_widen(type, half) : (double)single;
}

static hark_status check_tensor(hark_context *context, const hark_safetensors *file, const char *path, const hark_stored_tensor *stored,
                                hark_text *buffer) {
  const hark_type type = stored->type;
  if (stored->bytes == 0 || (type != HARK_F64 && type != HARK_F32 && !hark_type_is_half(type))) return HARK_OK;
  if (stored->bytes > buffer->length) hark_text_resize(buffer, (size_t)stored->bytes);
  HARK_TRY(buffer->status);
  HARK_TRY(hark_safetensors_read(context, file, stored, buffer->data));
  for (uint64_t i = 0; i < stored->bytes / hark_type_bytes(type); i++)
    if (!isfinite(number_at(type, buffer->data, i)))
      return hark_fail(context, HARK_NOT_FINITE, "%s: number %" PRIu64 " of %s is not finite", path, i, stored->name);
  return HARK_OK;
}

hark_status hark_check_finite_tensors(hark_context *context, const hark_safetensors *file, const char *path) {
  hark_text buffer = hark_text_empty(context);
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < hark_safetensors_count(file) && status == HARK_OK; i++)
    status = check_tensor(context, file, path, hark_safetensors_tensor(file, i), &buffer);
  hark_text_free(&buffer);
  return status;
}

/* ---- files ---- */

static hark_status verify_file(hark_verification *v, const char *path, const char *what) {
  hark_safetensors *file = NULL;
  char note[64] = "";
  hark_status status = hark_safetensors_open(v->context, path, &file);
  if (status == HARK_OK) {
    (void)snprintf(note, sizeof note, "%" PRId64 " tensors", hark_safetensors_count(file));
    status = hark_check_finite_tensors(v->context, file, path);
  }
  hark_safetensors_close(v->context, &file);
  return hark_verification_report(v, what, status, note);
}

/* The files of a folder of another program. */
static hark_status verify_shards(hark_verification *v, const char *path) {
  hark_foreign from;
  hark_status status = hark_foreign_open(v->context, path, &from);
  if (status != HARK_OK) status = hark_verification_report(v, from.reading, status, NULL);
  for (int64_t i = 0; i < from.shards.count && status == HARK_OK; i++)
    status = verify_file(v, from.shards.list[i].path, hark_path_name(from.shards.list[i].path));
  hark_foreign_close(v->context, &from);
  return status;
}

static hark_status verify_model(hark_verification *v, const char *path) {
  hark_model *model = NULL;
  hark_model_info info = {.struct_size = sizeof info};
  char note[96] = "";
  hark_status status = hark_model_load(v->context, path, NULL, &model);
  if (status == HARK_OK) status = hark_model_describe(model, &info);
  if (status == HARK_OK)
    (void)snprintf(note, sizeof note, "%" PRId64 " parameters%s", info.parameters, info.vocabulary > 0 ? "" : ", no vocabulary");
  hark_model_destroy(v->context, &model);
  return hark_verification_report(v, "model", status, note);
}

hark_status hark_is_model_folder(hark_context *context, const char *path, bool *out) {
  char inside[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, path, HARK_FOREIGN_CONFIG_FILE, inside));
  *out = hark_path_kind_of(inside) == HARK_PATH_FILE;
  HARK_TRY(hark_path_join(context, path, HARK_WEIGHTS_FILE, inside));
  *out = *out || hark_path_kind_of(inside) == HARK_PATH_FILE;
  return HARK_OK;
}

hark_status hark_model_verify(hark_context *context, const char *path, hark_finding_visitor *visit, void *user, int64_t *problems) {
  hark_verification v = {.context = context, .visit = visit, .user = user};
  char inside[HARK_PATH_BYTES];
  const bool folder = hark_path_kind_of(path) == HARK_PATH_FOLDER;
  HARK_TRY(hark_path_join(context, path, HARK_FOREIGN_CONFIG_FILE, inside));
  const bool foreign = folder && hark_path_kind_of(inside) == HARK_PATH_FILE;
  HARK_TRY(hark_path_join(context, path, HARK_WEIGHTS_FILE, inside));
  hark_status status = foreign ? verify_shards(&v, path) : verify_file(&v, folder ? inside : path, "tensors");
  if (status == HARK_OK && v.problems == 0) status = verify_model(&v, path);
  *problems = v.problems;
  return status;
}
