/* attention_plan.h - what the attributes of attention's records say is to be computed: a plan, a descriptor of the caller's, or their own
 * one. */
#ifndef HARK_OPS_ATTENTION_PLAN_H
#define HARK_OPS_ATTENTION_PLAN_H

#include <hark/operators.h>

#include "core/core.h"

/* Of the three the first that is there counts. Descriptors may be those of another version of hark: they are taken, never read. */
typedef struct hark_attention_source {
  const char *record; /* "attention", for messages */
  const hark_attention_plan *plan;
  const hark_attention_desc *desc;
  const hark_attention_own *own; /* NULL: the record has none; a struct_size of 0: left out */
} hark_attention_source;

/* Room for a plan that lasts as long as a call. */
typedef struct hark_attention_place {
  _Alignas(HARK_ALIGNMENT) unsigned char bytes[HARK_ATTENTION_PLAN_BYTES];
} hark_attention_place;

/* The descriptor: the plan's, or a copy of the caller's as far as it goes, with defaults for what it lacks.
 * Errors: those of hark_take_struct(); HARK_INVALID_ARGUMENT where there is none, or one that ends outside its room. Context may be
 * NULL. */
HARK_MUST_CHECK hark_status hark_attention_source_desc(hark_context *context, const hark_attention_source *source,
                                                       hark_attention_desc *desc);

/* The plan, or one that is made in `place` for numbers of this type. Errors: as above, and those of hark_attention_plan_place(). */
HARK_MUST_CHECK hark_status hark_attention_source_plan(hark_context *context, const hark_attention_source *source, hark_type type,
                                                       hark_attention_place *place, const hark_attention_plan **out);

#endif
