/* leaves.c - the table of kernels, in the order of HARK_LEAVES, and their documentation. */
#include "positional/leaf.h"

#define ADDRESS(name) &hark_leaf_##name,
static const hark_leaf *const table[] = {HARK_LEAVES(ADDRESS)};
#undef ADDRESS

const hark_leaf *const *hark_leaves(int *count) {
  *count = (int)(sizeof table / sizeof table[0]);
  return table;
}

int hark_positional_kernel_count(void) { return (int)(sizeof table / sizeof table[0]); }

hark_positional_kernel hark_positional_kernel_at(int index) {
  const hark_leaf *leaf = table[index];
  hark_positional_kernel kernel = {
      .name = leaf->name, .formula = leaf->formula, .definite = leaf->definite_text, .text = leaf->text, .constant = leaf->constant};
  for (int p = 0; p < leaf->parameter_count; p++) {
    kernel.parameters[p] = leaf->parameters[p].name;
    kernel.other_names[p] = leaf->parameters[p].other_name;
    kernel.values[p] = leaf->parameters[p].sized ? leaf->size_default : leaf->parameters[p].count > 0 ? leaf->parameters[p].count : 1;
  }
  return kernel;
}
