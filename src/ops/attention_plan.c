/* attention_plan.c - see attention_plan.h. */
#include "ops/attention_plan.h"

#include "core/structs.h"

_Static_assert(sizeof(hark_attention_own) == HARK_ATTENTION_OWN_BYTES, "a descriptor has outgrown the room that attributes have for it");

/* struct_size of a caller's descriptor, the only field that every version has. */
static size_t size_of(const hark_attention_own *own) { return own == NULL ? 0 : own->desc.struct_size; }

hark_status hark_attention_source_desc(hark_context *context, const hark_attention_source *source, hark_attention_desc *desc) {
  *desc = hark_attention_desc_default();
  const void *given = source->plan != NULL ? hark_attention_plan_desc(source->plan) : source->desc;
  if (given == NULL) {
    if (size_of(source->own) == 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: plan and desc are NULL%s, expected one of them in the attributes",
                       source->record, source->own == NULL ? "" : " and own has no struct_size");
    if (size_of(source->own) > sizeof *source->own)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: own has struct_size %zu, expected at most the %zu bytes that attributes have",
                       source->record, size_of(source->own), sizeof *source->own);
    given = source->own;
  }
  return hark_take_struct(context, "hark_attention_desc", given, HARK_LEAST_ATTENTION_DESC, desc, sizeof *desc);
}

hark_status hark_attention_source_plan(hark_context *context, const hark_attention_source *source, hark_type type,
                                       hark_attention_place *place, const hark_attention_plan **out) {
  *out = source->plan;
  if (source->plan != NULL) return HARK_OK;
  hark_attention_desc desc;
  hark_attention_plan *plan;
  HARK_TRY(hark_attention_source_desc(context, source, &desc));
  desc.type = type;
  HARK_TRY(hark_attention_plan_place(context, &desc, place->bytes, sizeof place->bytes, &plan));
  *out = plan;
  return HARK_OK;
}
