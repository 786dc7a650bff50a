/* hierarchies.c - see hierarchies.h. */
#include "attention/hierarchies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/attention_run.h"

const char *const hierarchy_kinds[HIERARCHY_KINDS] = {"",        ",sibling",        ",first",        ",first,sibling",
                                                      ",exact",  ",exact,sibling",  ",linear",       ",linear,sibling,first",
                                                      ",causal", ",causal,sibling", ",causal,exact", ",causal,exact,sibling"};

void check_hierarchies(const char *const *cases, size_t count) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) failures += attention_check_case(cases[i], false) > 0;
  if (count == 0) fail_msg("there was no case");
  if (failures > 0) fail_msg("%d of %zu cases failed; run one again with: test_hierarchical 'CASE'", failures, count);
}
