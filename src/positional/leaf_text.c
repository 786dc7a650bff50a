/* leaf_text.c - see leaf_text.h. */
#include "positional/leaf_text.h"

#include <stdio.h>

void hark_leaf_text(const hark_positional_kernel *leaf, int size, int constant, char text[HARK_LEAF_TEXT_BYTES]) {
  char sized[16] = "", given[16] = "";
  for (int p = 0; p < HARK_POSITIONAL_NAMES && leaf->parameters[p] != NULL; p++)
    if (leaf->values[p] == 0) (void)snprintf(sized, sizeof sized, "[%d]", size);
  if (leaf->constant != NULL) (void)snprintf(given, sizeof given, "(%d)", constant);
  (void)snprintf(text, HARK_LEAF_TEXT_BYTES, "%s%s%s", leaf->name, sized, given);
}
