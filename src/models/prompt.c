/* prompt.c - see prompt.h. */
#include "models/prompt.h"

#include <string.h>

#include "core/core.h"

/* Room for the tokens of a text: its bytes, or for an imported model their number. */
static hark_status count_tokens(hark_context *context, const hark_model *model, hark_prompt *prompt) {
  prompt->bytes = strlen(prompt->text);
  prompt->room = prompt->bytes;
  return prompt->imported ? hark_model_tokenize(context, model, prompt->text, prompt->bytes, false, true, NULL, 0, &prompt->room) : HARK_OK;
}

hark_status hark_prompt_open(hark_context *context, const hark_model *model, const char *text, hark_prompt *out) {
  hark_model_info info = {.struct_size = sizeof info};
  HARK_TRY(hark_model_describe(model, &info));
  *out = (hark_prompt){.text = text, .given = text[0] != '\0', .imported = info.reserved == 0, .begin = (int32_t)info.begin};
  if (!out->given && out->begin == 0 && !out->imported) out->text = "\n";
  HARK_TRY(count_tokens(context, model, out));
  if (out->imported && out->room == 0) { /* no token marks the beginning of a text */
    out->text = "\n";
    HARK_TRY(count_tokens(context, model, out));
  }
  out->room += out->begin != 0;
  return HARK_OK;
}

hark_status hark_prompt_read(hark_context *context, const hark_model *model, const hark_prompt *prompt, bool map_unknown, int32_t *tokens,
                             int64_t *count) {
  const size_t first = prompt->begin != 0;
  size_t found = 0;
  HARK_TRY(hark_model_tokenize(context, model, prompt->text, prompt->bytes, map_unknown || !prompt->given, true, tokens + first,
                               prompt->room - first, &found));
  if (first > 0) tokens[0] = prompt->begin;
  *count = (int64_t)(found + first);
  return HARK_OK;
}
