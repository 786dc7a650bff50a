/* string_list.h - an array of texts that it does not own. */
#ifndef HARK_CORE_STRING_LIST_H
#define HARK_CORE_STRING_LIST_H

#include <stdint.h>

typedef struct hark_string_list {
  const char *const *items;
  int64_t count;
} hark_string_list;

#endif
