/* type_mistral.c - Mistral (Jiang et al., arXiv 2310.06825): a query attends to the last sliding_window tokens, itself included. */
#include "models/foreign/llama_family.h"

static const hark_foreign_key keys[] = {HARK_LLAMA_KEYS("131072"), HARK_FOREIGN_SPECIAL_KEY("sliding_window")};

#define KEY_HEADS 8 /* and a window of */
#define WINDOW 4096 /* where config.json lacks them */

static hark_status read(const hark_foreign_reader *reader) {
  HARK_TRY(hark_llama_read_window(reader, "sliding_window", WINDOW));
  return hark_llama_read(reader, KEY_HEADS);
}

static void write(const hark_foreign_writer *writer) {
  const hark_network_config *const config = writer->config;
  if (hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_WINDOW)) {
    hark_foreign_put_whole(writer, "sliding_window", hark_llama_window(config));
  } else {
    hark_foreign_put_key(writer, "sliding_window");
    hark_text_append(writer->text, "null");
  }
  hark_llama_write(writer);
}

const hark_foreign_type hark_foreign_type_mistral = {
    .name = "mistral",
    .classes = "MistralForCausalLM|MistralModel",
    .usual_end = 2,
    HARK_LLAMA_MEMBERS,
};
