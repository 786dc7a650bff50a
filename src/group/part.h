/* part.h - some processes of a group that are a group of their own, for instance those that share a sequence. */
#ifndef HARK_GROUP_PART_H
#define HARK_GROUP_PART_H

#include "group/group.h"

typedef struct hark_group_part {
  hark_group group;
  hark_transport transport;
} hark_group_part;

/* The `size` processes first, first + step, ... of `whole`, of which this process is one. Their messages do not meet those of the whole or
 * of other parts. *out borrows `whole`, stays in its place, and is ended by hark_group_release(). An error of the part is one of the
 * whole. A part has no channels, and its transport has no `arrived`. */
void hark_group_part_open(hark_group *whole, int first, int step, int size, hark_group_part *out);

/* Divides the group of the context, of D x `ranks` processes, into D parts of `ranks` processes each, which share the rows of a sequence:
 * context->sequence is the part of this process, in *out. Ranks d, d + D, d + 2 D, ... are part d. With `ranks` 1 there is none. Errors:
 * HARK_BAD_CONFIGURATION where the number of processes is no multiple of `ranks`. */
HARK_MUST_CHECK hark_status hark_group_divide(hark_context *context, int64_t ranks, hark_group_part *out);

#endif
