/* distances.c - the distances between queries and keys: the required length of a table of log G. The only place that computes it. */
#include "attention/layer.h"
#include "backend/hierarchy.h"

int64_t hark_attention_farthest(const hark_attention_desc *desc, int64_t queries, int64_t keys, int64_t offset) {
  int64_t distance = queries - 1 + offset;                             /* of the last query to key 0 */
  if (!desc->causal) distance = hark_max(distance, keys - 1 - offset); /* of the first query to the last key */
  if (desc->structure == HARK_STRUCTURE_WINDOW) distance = hark_min(distance, desc->window);
  if (desc->normalisation == HARK_NORMALISATION_CME) distance = hark_max(distance, keys - 1); /* keys meet keys */
  return distance;
}

int64_t hark_attention_table_length(const hark_attention_desc *desc, const int64_t *query_offset) {
  const int64_t longest = desc->longest > 0 ? desc->longest : INT64_MAX;
  const int64_t queries = hark_min(desc->query_length, longest), keys = hark_min(desc->key_length, longest);
  if (desc->structure == HARK_STRUCTURE_HIERARCHICAL) {
    hark_attention_desc blocks = *desc;
    if (blocks.hierarchy_block == 0) blocks.hierarchy_block = HARK_HIERARCHY_DEFAULT_BLOCK;
    const hark_hierarchy h = hark_hierarchy_make(&blocks, hark_max(1, hark_max(queries, keys)));
    return hark_hierarchy_reach(&h);
  }
  /* With causality the last query has the position of the last key, for any numbers of them. */
  const int64_t offset = query_offset != NULL ? *query_offset : desc->causal ? keys - queries : 0;
  return hark_max(0, hark_attention_farthest(desc, queries, keys, offset)) + 1;
}

int64_t hark_attention_plan_distances(const hark_attention_plan *plan, bool has_query_offset, int64_t query_offset) {
  if (has_query_offset && !hark_attention_may_offset(query_offset)) return 0;
  return hark_attention_table_length(hark_attention_plan_desc(plan), has_query_offset ? &query_offset : NULL);
}
