/* structs.c - see structs.h. */
#include "core/structs.h"

#include <string.h>

/* Reads a caller's struct_size, the first field of every such struct, and refuses an impossible one: such a struct has at least the
 * alignment of a size_t, and its size is a multiple of it. */
static hark_status read_size(hark_context *context, const char *name, const void *given, size_t least, size_t known_size, size_t *out) {
  if (given == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: NULL given, expected a struct", name);
  memcpy(out, given, sizeof *out);
  if (*out >= least && *out <= known_size + HARK_STRUCT_GROWTH && *out % sizeof(size_t) == 0) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: struct_size is %zu, expected sizeof(%s) = %zu", name, *out, name, known_size);
}

hark_status hark_take_struct(hark_context *context, const char *name, const void *given, size_t least, void *known, size_t known_size) {
  size_t given_size = 0;
  HARK_TRY(read_size(context, name, given, least, known_size, &given_size));
  const unsigned char *const bytes = given;
  for (size_t i = known_size; i < given_size; i++) {
    if (bytes[i] != 0) {
      return hark_fail(context, HARK_UNSUPPORTED,
                       "%s: struct_size is %zu and byte %zu is set: this hark knows only the first %zu bytes, expected zeros after them",
                       name, given_size, i, known_size);
    }
  }
  memcpy(known, given, given_size < known_size ? given_size : known_size);
  memcpy(known, &known_size, sizeof known_size);
  return HARK_OK;
}

hark_status hark_give_struct(hark_context *context, const char *name, void *given, size_t least, const void *known, size_t known_size) {
  size_t given_size = 0;
  HARK_TRY(read_size(context, name, given, least, known_size, &given_size));
  unsigned char *const to = given;
  const size_t used = given_size < known_size ? given_size : known_size;
  memcpy(to + sizeof given_size, (const unsigned char *)known + sizeof given_size, used - sizeof given_size);
  memset(to + used, 0, given_size - used);
  return HARK_OK;
}
