/* table.c - the built-in operators, in the order of HARK_OPERATORS and HARK_EXPERIMENTAL_OPERATORS, and their search by name. */
#include <hark/experimental.h>

#include <string.h>

#define ADDRESS(name) &hark_op_##name,
static const hark_operator *const table[] = {HARK_OPERATORS(ADDRESS) HARK_EXPERIMENTAL_OPERATORS(ADDRESS)};
#undef ADDRESS

#define TABLE_COUNT ((int)(sizeof table / sizeof table[0]))

const hark_operator *const *hark_operators(int *count) {
  *count = TABLE_COUNT;
  return table;
}

const hark_operator *hark_operator_find(const char *name) {
  if (name == NULL) return NULL;
  for (int i = 0; i < TABLE_COUNT; i++) {
    if (strcmp(table[i]->name, name) == 0) return table[i];
  }
  return NULL;
}
