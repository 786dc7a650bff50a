#include "support/small_models.h"

#include <math.h>
#include <string.h>

#include "models/model.h"
#include "support/boundaries.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

/* tokens that small_model_token() gives */
#define DELIMITERS "53, \"215+73\", \"205+195\", 241, \"85+229+139\", 71, 61, 7, 149, 141, 187, 31"
#define FACTORS "\"rotary.short_factor\": [1, 1.1, 1.25, 1.3], \"rotary.long_factor\": [\"1,1.5\", \"3, 6.5\"], "

const char *const small_model_descriptions[] = {
    PLAIN,
    MODEL("learned", ATTENTION("dense", "false")),
    MODEL("none", ATTENTION("window", "true")),
    MODEL(KERNEL("bank[2](decay*periodic)", "model"), ATTENTION("dense", "false")),
    MODEL(KERNEL("rbf+constant(0.5)", "layer"), ATTENTION("window", "true")),
    MODEL(KERNEL("t5*alibi", "head"), ATTENTION("dense", "true")),
    MODEL("rotary", HIERARCHY("2", "neighbour", "first")),
    MODEL(KERNEL("decay", "layer"), HIERARCHY("4", "sibling", "exact")),
    MODEL("none", ATTENTION("dense,window", "true") ", \"normalisation\": \"stick_breaking\""),
    MODEL("rotary", RIDGE("true")),
    MODEL(KERNEL("decay", "model"), RIDGE("false")),
    MODEL(KERNEL("decay", "model"), MIXED),
    MODEL(KERNEL("bank[2](decay)", "model"), ATTENTION("window,hierarchical", "false") ", \"hierarchy_block\": 2"),
    MODEL(SCALED("dynamic", ""), ATTENTION("dense", "false")),
    MODEL(SCALED("longrope", FACTORS), ATTENTION("window", "false")),
    MODEL(SCALED("longrope", FACTORS), HIERARCHY("4", "neighbour", "first")),
    MODEL(SCALED("llama3", ""), ATTENTION("dense", "false")),
    MODEL(WITH("embedding_norm", "true"), ATTENTION("dense", "false")),
    MODEL("none", ATTENTION("dense,window", "true") ", \"contextual_positions\": 6"),
    MODEL("rotary", RIDGE("true") ", \"noise_learned\": true"),
    MODEL("rotary", ATTENTION("compressed", "false") ", \"chunk\": 3, \"chunk_slots\": 2, \"selected_slots\": 9, \"kept_chunks\": 2, "
                                                     "\"global_slots\": 3"),
    MODEL("none", ATTENTION("dense,compressed", "false") ", \"chunk\": 4, \"chunk_slots\": 1, \"selected_slots\": 100"),
    MODEL("none", ATTENTION("compressed,hierarchical", "false") ", \"hierarchy_block\": 2, \"chunk\": 2, \"chunk_slots\": 2, "
                                                                "\"selected_slots\": 3, \"kept_chunks\": 3"),
    MODEL("rotary", ATTENTION("compressed", "false") ", \"chunk\": 2, \"chunk_slots\": 2, \"selected_slots\": 90, \"kept_chunks\": 2, "
                                                     "\"global_slots\": 3, \"delimiters\": [" DELIMITERS "], \"chunk_maximum\": 7"),
    MODEL(KERNEL("bank[2](decay*periodic)", "model"),
          ATTENTION("compressed", "false") ", \"chunk\": 3, \"chunk_slots\": 1, \"selected_slots\": 100"),
    MODEL(KERNEL("t5*alibi", "head"), ATTENTION("compressed", "false") ", \"chunk\": 2, \"chunk_slots\": 2, \"selected_slots\": 90, "
                                                                       "\"delimiters\": [" DELIMITERS "], \"chunk_maximum\": 7"),
    MODEL(KERNEL("decay", "model"),
          ATTENTION("compressed,hierarchical", "false") ", \"hierarchy_block\": 2, \"chunk\": 5, \"chunk_slots\": 2, "
                                                        "\"selected_slots\": 90, \"kept_chunks\": 2"),
    MODEL("none", ATTENTION("window,compressed", "false") ", \"chunk\": 1, \"chunk_slots\": 1, \"selected_slots\": 90, \"delimiters\": "
                                                          "[" DELIMITERS "]"),
    MODEL("rotary", ATTENTION("window,compressed", "false") ", \"chunk\": 2, \"chunk_slots\": 2, \"selected_slots\": 90, "
                                                            "\"kept_chunks\": 2, \"global_slots\": 3, \"chunk_learned\": true"),
    MODEL(KERNEL("decay", "model"),
          ATTENTION("dense,compressed", "false") ", \"chunk\": 1, \"chunk_slots\": 1, \"selected_slots\": 90, \"chunk_maximum\": 5, "
                                                 "\"chunk_learned\": true")};
_Static_assert(sizeof small_model_descriptions / sizeof *small_model_descriptions == DESCRIPTIONS, "DESCRIPTIONS is the number of rows");

bool small_model_reads_again(const char *description) {
  return strstr(description, "hierarchical") != NULL || strstr(description, "compressed") != NULL ||
         strstr(description, "dynamic") != NULL || strstr(description, "longrope") != NULL;
}

hark_model_options small_model_options(const char *description) {
  return (hark_model_options){
      .struct_size = sizeof(hark_model_options), .description = description, .description_bytes = strlen(description)};
}

hark_model *small_model_make(hark_context *context, const char *description, uint64_t seed) {
  const hark_model_options options = small_model_options(description);
  hark_model *model = NULL;
  assert_fine(context, hark_model_create(context, &options, seed, &model));
  scatter_boundaries(context, &model->network->parameters);
  return model;
}

hark_decoding *small_model_decoding(hark_context *context, const hark_model *model) {
  hark_decoding *decoding = NULL;
  assert_fine(context, hark_decoding_create(context, model, NULL, &decoding));
  return decoding;
}

int32_t small_model_token(int64_t i) { return (int32_t)(5 + (i * 37 + i * i * 11) % 256); }

void small_model_fill(int32_t *tokens, int64_t count) {
  for (int64_t i = 0; i < count; i++) tokens[i] = small_model_token(i);
}

void small_model_same_logits(hark_decoding *decoding, const float *expected, const char *what) {
  const float *logits = hark_decoding_logits(decoding);
  if (logits == NULL || memcmp(logits, expected, VOCABULARY * sizeof *expected) != 0) fail_msg("%s: other logits", what);
}

void small_model_near_logits(hark_decoding *decoding, const float *expected, const char *what) {
  const float *logits = hark_decoding_logits(decoding);
  if (logits == NULL) fail_msg("%s: no logits", what);
  for (int i = 0; i < VOCABULARY; i++)
    if (!(fabsf(logits[i] - expected[i]) <= SMALL_MODEL_WITHIN))
      fail_msg("%s: logit %d is %.9g, expected %.9g", what, i, (double)logits[i], (double)expected[i]);
}
