/* prompt.h - what a decoder reads before it continues a text. An empty prompt is the beginning of a text: the token that the model has for
 * it, or a line end where it has none. */
#ifndef HARK_MODELS_PROMPT_H
#define HARK_MODELS_PROMPT_H

#include <hark/model.h>

typedef struct hark_prompt {
  const char *text;
  size_t bytes;
  bool given;    /* not empty */
  bool imported; /* the model is another program's, and has its tokenizer */
  int32_t begin; /* token before a sentence, for a model of sentences; 0: a text */
  size_t room;   /* most tokens that it has */
} hark_prompt;

/* Finds the room of a prompt, whose text must outlive it. Errors: those of hark_model_tokenize(). */
HARK_MUST_CHECK hark_status hark_prompt_open(hark_context *context, const hark_model *model, const char *text, hark_prompt *out);

/* Writes the *count tokens of the prompt: there is room for prompt->room. Characters of an empty prompt, or with map_unknown all, that the
 * vocabulary lacks are the token "unknown". Errors: HARK_BAD_FILE (another one, with its place), those of hark_model_tokenize(). */
HARK_MUST_CHECK hark_status hark_prompt_read(hark_context *context, const hark_model *model, const hark_prompt *prompt, bool map_unknown,
                                             int32_t *tokens, int64_t *count);

#endif
