/* hierarchies.h - what the tests of hierarchical attention share: every way to make a hierarchy, and lists of cases. */
#ifndef HARK_ATTENTION_HIERARCHIES_H
#define HARK_ATTENTION_HIERARCHIES_H

#include <stddef.h>

/* Words of a case (attention_case.h) after its sizes. */
#define HIERARCHY_KINDS 12
extern const char *const hierarchy_kinds[HIERARCHY_KINDS];

/* Fails the test when one of the cases differs from the definition on any machine. */
void check_hierarchies(const char *const *cases, size_t count);

#endif
