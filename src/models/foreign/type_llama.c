/* type_llama.c - Llama (Touvron et al., arXiv 2302.13971): with its optional biases in attention and in feed-forward layers. */
#include "models/foreign/llama_family.h"

static const hark_foreign_key keys[] = {
    HARK_LLAMA_KEYS("2048"), HARK_FOREIGN_SPECIAL_KEY("attention_bias"), HARK_FOREIGN_SPECIAL_KEY("mlp_bias"),
    HARK_FOREIGN_IGNORED_KEY("pretraining_tp"), /* the same products in parts */
};

/* RMS norms have no biases, so that both biases together are model.bias. */
static hark_status read(const hark_foreign_reader *reader) {
  bool attention = false, feed_forward = false;
  HARK_TRY(hark_foreign_truth(reader, "attention_bias", &attention));
  HARK_TRY(hark_foreign_truth(reader, "mlp_bias", &feed_forward));
  reader->config->bias = feed_forward;
  reader->config->attention.unbiased = feed_forward && !attention;
  if (attention && !feed_forward) reader->config->attention.biased = HARK_BIASED_ALL;
  return hark_llama_read(reader, 0);
}

static void write(const hark_foreign_writer *writer) {
  const hark_network_config *const config = writer->config;
  hark_foreign_put_truth(writer, "mlp_bias", config->bias);
  hark_foreign_put_truth(writer, "attention_bias",
                         config->bias ? !config->attention.unbiased : config->attention.biased == HARK_BIASED_ALL);
  hark_llama_write(writer);
}

const hark_foreign_type hark_foreign_type_llama = {
    .name = "llama",
    .classes = "LlamaForCausalLM|LlamaModel",
    .usual_end = 2,
    HARK_LLAMA_MEMBERS,
};
