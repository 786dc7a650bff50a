/* attention_plan.h - the computation that the attributes of an attention operator request: by a plan, by the caller's descriptor, or by the
 * operator's own fields. */
#ifndef HARK_OPS_ATTENTION_PLAN_H
#define HARK_OPS_ATTENTION_PLAN_H

#include <hark/operators.h>

#include "core/core.h"

/* The first of the three that is present is used. A descriptor may be from another version of hark: it is copied with hark_take_struct(),
 * never read directly. */
typedef struct hark_attention_source {
  const char *record; /* "attention", for messages */
  const hark_attention_plan *plan;
  const hark_attention_desc *desc;
  const hark_attention_own *own; /* NULL: the operator has none; a struct_size of 0: not given */
} hark_attention_source;

/* Memory for a plan that exists during one call. */
typedef struct hark_attention_place {
  _Alignas(HARK_ALIGNMENT) unsigned char bytes[HARK_ATTENTION_PLAN_BYTES];
} hark_attention_place;

/* The descriptor: the plan's, or a copy of the caller's, with defaults for members that it lacks.
 * Errors: those of hark_take_struct(); HARK_INVALID_ARGUMENT where there is none, or where it extends beyond its memory. Context may be
 * NULL. */
HARK_MUST_CHECK hark_status hark_attention_source_desc(hark_context *context, const hark_attention_source *source,
                                                       hark_attention_desc *desc);

/* The plan that was given, or a plan for numbers of this type made in `place`. Errors: as above, and those of
 * hark_attention_plan_place(). */
HARK_MUST_CHECK hark_status hark_attention_source_plan(hark_context *context, const hark_attention_source *source, hark_type type,
                                                       hark_attention_place *place, const hark_attention_plan **out);

#endif
