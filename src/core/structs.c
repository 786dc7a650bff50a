/* structs.c - see structs.h. */
#include "core/structs.h"

#include <string.h>

hark_status hark_take_struct(hark_context *context, const char *name, const void *given, size_t least, void *known, size_t known_size) {
  if (given == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: NULL given, expected a struct", name);
  size_t given_size;
  memcpy(&given_size, given, sizeof given_size); /* struct_size is the first field of every such struct */
  if (given_size < least || given_size > known_size + HARK_STRUCT_GROWTH) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: struct_size is %zu, expected sizeof(%s) = %zu", name, given_size, name,
                     known_size);
  }
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
