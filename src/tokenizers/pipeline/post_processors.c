/* post_processors.c - the table of post-processors: special tokens around the tokens of a text. What they do with offsets, types and pairs
 * of texts is not needed here. */
#include <stdio.h>

#include "tokenizers/pipeline/component.h"

/* Tokens before and after the text's. */
typedef struct around_state {
  hark_ids before, after;
} around_state;

static void close_around(hark_context *context, void *memory) {
  around_state *const state = memory;
  HARK_FREE_LIST(context, &state->before);
  HARK_FREE_LIST(context, &state->after);
}

static hark_status put_around(const void *memory, hark_pipeline_work *work) {
  const around_state *const state = memory;
  hark_ids *const ids = &work->ids;
  HARK_TRY(HARK_RESERVE(work->context, ids, state->before.count + state->after.count));
  if (ids->data == NULL) return HARK_OK;
  memmove(ids->data + state->before.count, ids->data, ids->count * sizeof *ids->data);
  if (state->before.count > 0) memcpy(ids->data, state->before.data, state->before.count * sizeof *ids->data);
  ids->count += state->before.count;
  if (state->after.count > 0) memcpy(ids->data + ids->count, state->after.data, state->after.count * sizeof *ids->data);
  ids->count += state->after.count;
  return HARK_OK;
}

/* ---- Bert, Roberta: CLS text SEP ---- */

/* ["[SEP]", 102] */
static hark_status read_pair(const hark_component_reader *reader, const hark_json_node *node, const char *key, hark_ids *out) {
  const hark_json_node *const pair = hark_json_member(node, key);
  const bool good = hark_json_is(pair, HARK_JSON_LIST) && pair->count == 2 && pair->first->next->kind == HARK_JSON_INTEGER &&
                    pair->first->next->integer >= 0 && pair->first->next->integer < HARK_TOKEN_LIMIT;
  if (!good) return hark_component_fail(reader, key, "expected a text and a number");
  return hark_ids_add(reader->context, out, (int32_t)pair->first->next->integer);
}

static hark_status read_bert(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  around_state *const state = memory;
  HARK_TRY(read_pair(reader, node, "cls", &state->before));
  return read_pair(reader, node, "sep", &state->after);
}

static const hark_component_kind kind_bert = {.type = "BertProcessing",
                                              .members = "sep|cls",
                                              .state_bytes = sizeof(around_state),
                                              .read = read_bert,
                                              .close = close_around,
                                              .finish = put_around};
static const hark_component_kind kind_roberta = {.type = "RobertaProcessing",
                                                 .members = "sep|cls|trim_offsets|add_prefix_space",
                                                 .state_bytes = sizeof(around_state),
                                                 .read = read_bert,
                                                 .close = close_around,
                                                 .finish = put_around};

/* ---- TemplateProcessing: a list of special tokens and the text ---- */

/* The numbers of a special token, by its name in "special_tokens". */
static hark_status put_special(const hark_component_reader *reader, const hark_json_node *node, const char *name, hark_ids *out) {
  const hark_json_node *const token = hark_json_member(hark_json_member(node, "special_tokens"), name), *const list =
                                                                                                            hark_json_member(token, "ids");
  char shown[HARK_SHOWN_BYTES];
  if (hark_json_is(token, HARK_JSON_OBJECT)) HARK_TRY(hark_component_check_members(reader, token, "id|ids|tokens"));
  if (!hark_json_is(list, HARK_JSON_LIST))
    return hark_component_fail(reader, "special_tokens", "'%s' has no list of ids", hark_text_shown(name, shown));
  for (const hark_json_node *id = list->first; id != NULL; id = id->next) {
    if (id->kind != HARK_JSON_INTEGER || id->integer < 0 || id->integer >= HARK_TOKEN_LIMIT)
      return hark_component_fail(reader, "special_tokens", "'%s': expected numbers of tokens", hark_text_shown(name, shown));
    HARK_TRY(hark_ids_add(reader->context, out, (int32_t)id->integer));
  }
  return HARK_OK;
}

/* {"SpecialToken": {"id": "[CLS]", "type_id": 0}}; the type has no effect on tokens. */
static hark_status check_piece(const hark_component_reader *reader, const hark_json_node *item) {
  if (!hark_json_is(item, HARK_JSON_OBJECT)) return HARK_OK;
  HARK_TRY(hark_component_check_members(reader, item, "SpecialToken|Sequence"));
  for (const hark_json_node *inner = item->first; inner != NULL; inner = inner->next)
    if (inner->kind == HARK_JSON_OBJECT) HARK_TRY(hark_component_check_members(reader, inner, "id|type_id"));
  return HARK_OK;
}

static hark_status read_template(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  around_state *const state = memory;
  const hark_json_node *const list = hark_json_member(node, "single");
  int texts = 0;
  if (!hark_json_is(list, HARK_JSON_LIST)) return hark_component_fail(reader, "single", "expected a list");
  for (const hark_json_node *item = list->first; item != NULL; item = item->next) {
    HARK_TRY(check_piece(reader, item));
    const char *const special = hark_json_text(hark_json_member(hark_json_member(item, "SpecialToken"), "id")),
                      *const sequence = hark_json_text(hark_json_member(hark_json_member(item, "Sequence"), "id"));
    if (special == NULL && (sequence == NULL || strcmp(sequence, "A") != 0))
      return hark_component_fail(reader, "single", "expected special tokens and the sequence A");
    if (special == NULL)
      texts++;
    else
      HARK_TRY(put_special(reader, node, special, texts == 0 ? &state->before : &state->after));
  }
  return texts == 1 ? HARK_OK : hark_component_unsupported(reader, "single", "with the sequence A %d times", texts);
}

static const hark_component_kind kind_template = {.type = "TemplateProcessing",
                                                  .members = "single|pair|special_tokens",
                                                  .state_bytes = sizeof(around_state),
                                                  .read = read_template,
                                                  .close = close_around,
                                                  .finish = put_around};

/* ---- ByteLevel: offsets alone ---- */

static hark_status nothing(const void *state, hark_pipeline_work *work) { return (void)state, (void)work, HARK_OK; }
static const hark_component_kind kind_byte_level = {
    .type = "ByteLevel", .members = "add_prefix_space|trim_offsets|use_regex", .finish = nothing};

static const hark_component_kind *const kinds[] = {&kind_bert, &kind_byte_level, &kind_roberta, &kind_template, NULL};
const hark_component_table hark_post_processors = {kinds, "processors"};
