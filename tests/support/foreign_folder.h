/* foreign_folder.h - small models of other programs in folders, with known numbers. */
#ifndef HARK_TESTS_SUPPORT_FOREIGN_FOLDER_H
#define HARK_TESTS_SUPPORT_FOREIGN_FOLDER_H

#include <hark/hark.h>

#include "models/model.h"
#include "support/text_files.h"

#define FOREIGN_LLAMA_KEYS                                                                                                                 \
  "\"vocab_size\": 7, \"hidden_size\": 4, \"intermediate_size\": 6, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "                \
  "\"num_key_value_heads\": 1, \"max_position_embeddings\": 6"
#define FOREIGN_GPT2_KEYS                                                                                                                  \
  "\"model_type\": \"gpt2\", \"vocab_size\": 7, \"n_positions\": 6, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, \"n_inner\": 6"

#define FOREIGN_LLAMA "\"model_type\": \"llama\", " FOREIGN_LLAMA_KEYS

/* A tensor of a folder. */
typedef struct foreign_entry {
  const char *name;
  int64_t rows, columns; /* columns 0: of rank 1 */
  hark_type type;        /* HARK_NONE: f32 */
} foreign_entry;

enum { FOREIGN_LLAMA_COUNT = 21, FOREIGN_GPT2_COUNT = 16, FOREIGN_MOST_TENSORS = 64 };
extern const foreign_entry foreign_llama[FOREIGN_LLAMA_COUNT], foreign_gpt2[FOREIGN_GPT2_COUNT];

/* Number i of tensor t: all are different, and exact in bf16. */
float foreign_number(int t, int64_t i);

/* Writes a safetensors file of the tensors `first` to `last`; `skip` is left out (-1: none). */
void foreign_write_tensors(hark_context *context, const char *path, const foreign_entry *entries, int first, int last, int skip);

/* place/NAME with a config.json, {`keys`}, and all tensors in one file; the path, as test_path(). */
const char *foreign_make(hark_context *context, const char *place, const char *name, const char *keys, const foreign_entry *entries,
                         int count);

/* A tokenizer.json: tokens _, a, b, ab, _ab, where _ is a space, and <s> before every text, token 5. */
extern const char foreign_tokenizer[];

hark_model *foreign_load(hark_context *context, const char *path);
/* The model is refused in one line with this part. */
void foreign_refuse(hark_context *context, const char *path, hark_status expected, const char *part);
const hark_parameter *foreign_parameter(const hark_model *model, const char *name);

#endif
