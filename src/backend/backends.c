/* backends.c - the table of backends of this build; the first is the default. */
#include <string.h>

#include "backend/backend.h"

const hark_backend *const hark_backends[] = {
    &hark_backend_cpu,
    &hark_backend_reference,
#ifdef HARK_WITH_GUARD
    &hark_backend_guard,
#endif
    NULL,
};

const hark_backend *hark_backend_find(const char *name) {
  for (const hark_backend *const *backend = hark_backends; *backend != NULL; backend++)
    if (strcmp((*backend)->name, name) == 0) return *backend;
  return NULL;
}
