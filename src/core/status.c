/* status.c - names and texts of statuses, from the one list in status.h. */
#include <hark/status.h>
#include <hark/version.h>

const char *hark_status_text(hark_status status) {
  switch (status) {
#define HARK_STATUS_TEXT(name, number, text)                                                                                               \
  case name: return text;
    HARK_STATUS_LIST(HARK_STATUS_TEXT)
#undef HARK_STATUS_TEXT
  }
  return "unknown status";
}

const char *hark_status_name(hark_status status) {
  switch (status) {
#define HARK_STATUS_NAME(name, number, text)                                                                                               \
  case name: return #name;
    HARK_STATUS_LIST(HARK_STATUS_NAME)
#undef HARK_STATUS_NAME
  }
  return "unknown status";
}

const char *hark_version(void) { return HARK_VERSION_STRING; }
