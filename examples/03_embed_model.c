/* 03_embed_model.c - a trained model inside of a program: load, read a text, continue it, save the decoding and restore it.
 *
 *     03_embed_model                          makes a small untrained model, as a demonstration
 *     03_embed_model MODEL [PROMPT [SEED]]    MODEL: a run (runs/book), a checkpoint in one, or a file of `hark export`
 *
 * The program owns the memory of the decoding: hark_decoding_size() returns its size. After half of the text the decoding is saved, and at
 * the end restored: both times the same text must follow, and the program checks that.
 *
 *     cc 03_embed_model.c $(pkg-config --cflags --libs hark) -lm
 */
#include <hark/hark.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEW_TOKENS = 200 };

static hark_context *context;

static void check(hark_status status) {
  if (status == HARK_OK) return;
  fprintf(stderr, "03_embed_model: %s: %s\n", hark_status_text(status), context != NULL ? hark_context_message(context) : "no context");
  exit(1);
}

static void *reserve(size_t bytes) {
  void *memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) check(HARK_OUT_OF_MEMORY);
  return memory;
}

/* A model of bytes with initial weights. */
static hark_model *make_model(void) {
  static const char description[] =
      "{\"model\": {\"type\": \"gpt\", \"layers\": 2, \"heads\": 2, \"key_heads\": 2, \"width\": 64, \"feed_forward_width\": 256,"
      " \"context\": 128, \"activation\": \"gelu\", \"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"rotary\","
      " \"tie_embeddings\": true, \"bias\": false, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"},"
      " \"attention\": {\"structure\": \"dense\", \"window\": 0, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": false}}}";
  const hark_model_options options = {
      .struct_size = sizeof options, .description = description, .description_bytes = sizeof description - 1};
  hark_model *model;
  check(hark_model_create(context, &options, 1, &model));
  return model;
}

/* Makes tokens number `first` to `last` - 1, one after the other. */
static void generate(hark_decoding *decoding, const hark_sampling *sampling, int first, int last, int32_t *tokens) {
  const int64_t keep = hark_decoding_capacity(decoding) / 2;
  for (int i = first; i < last; i++) {
    check(hark_decoding_choose(decoding, sampling, (uint64_t)i, &tokens[i]));
    if (hark_decoding_length(decoding) == hark_decoding_capacity(decoding)) { /* full: begin again with the last tokens */
      const int64_t count = i + 1 < keep ? i + 1 : keep;
      check(hark_decoding_truncate(decoding, 0));
      check(hark_decoding_prefill(decoding, tokens + i + 1 - count, count));
    } else {
      check(hark_decoding_step(decoding, tokens[i]));
    }
  }
}

/* Control characters, and with `ascii` all bytes that are not ASCII, are shown as dots: an untrained model writes any byte. */
static void print(const hark_model *model, const int32_t *tokens, int count, int ascii) {
  size_t bytes;
  hark_model_decode(model, tokens, (size_t)count, NULL, 0, &bytes);
  char *text = reserve(bytes);
  hark_model_decode(model, tokens, (size_t)count, text, bytes, &bytes);
  for (size_t i = 0; i < bytes; i++) {
    const unsigned char c = (unsigned char)text[i];
    putchar(c == '\n' || (c >= 0x20 && c < 0x7f) || (c >= 0x80 && !ascii) ? c : '.');
  }
  putchar('\n');
  free(text);
}

int main(int argc, char **argv) {
  const char *prompt = argc > 2 ? argv[2] : "It was ";
  hark_context_options one_thread = {.struct_size = sizeof one_thread, .threads = 1};
  hark_model *model = NULL;
  check(hark_context_create(&one_thread, &context));
  if (argc > 1)
    check(hark_model_load(context, argv[1], NULL, &model));
  else
    model = make_model();
  hark_model_info info = {.struct_size = sizeof info};
  check(hark_model_describe(model, &info));
  printf("%" PRId64 " parameters in %zu bytes, context of %" PRId64 " tokens, vocabulary of %" PRId64 " %s\n", info.parameters, info.bytes,
         info.context, info.vocabulary, info.tokenizer != NULL ? info.tokenizer : "tokens");

  hark_decoding_options options = {.struct_size = sizeof options};
  hark_decoding *decoding;
  check(hark_decoding_size(context, model, &options, &options.memory_bytes));
  options.memory = reserve(options.memory_bytes);
  check(hark_decoding_create(context, model, &options, &decoding));
  printf("decoding in %zu bytes\n\n", options.memory_bytes);

  int32_t *read = reserve((strlen(prompt) + 1) * sizeof *read), tokens[NEW_TOKENS], again[NEW_TOKENS];
  size_t count, begins = info.begin != 0; /* a model of sentences reads this token first */
  if (begins) read[0] = (int32_t)info.begin;
  check(hark_model_encode(context, model, prompt, strlen(prompt), true, read + begins, &count));
  count += begins;
  if (count > 0 && (int64_t)count <= hark_decoding_capacity(decoding)) check(hark_decoding_prefill(decoding, read, (int64_t)count));

  hark_sampling sampling = hark_sampling_default();
  sampling.temperature = 0.8;
  sampling.seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
  generate(decoding, &sampling, 0, NEW_TOKENS / 2, tokens);
  const size_t saved_bytes = hark_decoding_saved_bytes(decoding);
  void *saved = reserve(saved_bytes);
  check(hark_decoding_save(decoding, saved, saved_bytes));
  generate(decoding, &sampling, NEW_TOKENS / 2, NEW_TOKENS, tokens);
  print(model, tokens, NEW_TOKENS, argc < 2);

  memcpy(again, tokens, sizeof tokens / 2);
  check(hark_decoding_restore(decoding, saved, saved_bytes));
  generate(decoding, &sampling, NEW_TOKENS / 2, NEW_TOKENS, again);
  const int same = memcmp(again, tokens, sizeof tokens) == 0;
  printf("\nafter %zu saved bytes were restored the same text follows: %s\n", saved_bytes, same ? "yes" : "NO");

  hark_decoding_destroy(&decoding);
  hark_model_destroy(context, &model);
  hark_context_destroy(&context);
  free(options.memory);
  free(saved);
  free(read);
  return same ? 0 : 1;
}
