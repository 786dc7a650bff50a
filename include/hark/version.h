/* version.h - the version of hark. */
#ifndef HARK_VERSION_H
#define HARK_VERSION_H

#include "status.h"

/* The version of these headers; HARK_VERSION_STRING is MAJOR.MINOR.PATCH. */
#define HARK_VERSION_MAJOR 0
#define HARK_VERSION_MINOR 1
#define HARK_VERSION_PATCH 0
#define HARK_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is running, "0.1.0"; static. */
HARK_API const char *hark_version(void);

#ifdef __cplusplus
}
#endif
#endif
