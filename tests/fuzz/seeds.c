/* seeds.c - makes the inputs that fuzzing begins with: files by hark's own writers, and files that are almost right.
 *
 *     seeds FOLDER               FOLDER/TARGET/..., one folder a target of tests/fuzz/fuzz_TARGET.c
 *
 * Nothing of it depends on chance or on the machine, so that a replay is the same everywhere. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "data/corpora/corpus.h"
#include "data/formats/image_file.h"
#include "data/formats/vector_file.h"
#include "fuzz/fuzz.h"
#include "io/safetensors.h"
#include "json/json.h"
#include "json/jsonl.h"
#include "support/learner.h"
#include "tokenizers/published_pipelines.h"
#include "tokenizers/tokenizer.h"
#include "train/config.h"

static hark_context *context;
static const char *root;

static void need(hark_status status) { FUZZ_CHECK(status == HARK_OK, "%s", hark_context_message(context)); }

/* ROOT/TARGET/NAME, with the folders above it. */
static const char *place(const char *target, const char *name) {
  static char folder[HARK_PATH_BYTES], path[HARK_PATH_BYTES];
  need(hark_path_join(context, root, target, folder));
  need(hark_folder_make(context, folder));
  need(hark_path_join(context, folder, name, path));
  return path;
}

static void put(const char *target, const char *name, const void *data, size_t bytes) {
  FILE *const file = fopen(place(target, name), "wb"); /* not flushed one by one: there are hundreds */
  FUZZ_CHECK(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, "%s cannot be written", name);
}

/* Texts of a list as files NUMBER. */
static void put_texts(const char *target, const char *const *texts, size_t count) {
  char name[32];
  for (size_t i = 0; i < count; i++) {
    snprintf(name, sizeof name, "%03zu", i);
    put(target, name, texts[i], strlen(texts[i]));
  }
}
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* ---- safetensors ---- */

static void put_header(const char *name, const char *header, size_t data_bytes) {
  unsigned char file[4096];
  const size_t length = strlen(header);
  FUZZ_CHECK(8 + length + data_bytes <= sizeof file, "%s is too long", name);
  for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(file + 8, header, length);
  for (size_t i = 0; i < data_bytes; i++) file[8 + length + i] = (unsigned char)i;
  put("safetensors", name, file, 8 + length + data_bytes);
}

static void make_safetensors(void) {
  static const hark_type types[] = {HARK_F32, HARK_F64, HARK_I32, HARK_I64, HARK_U8, HARK_F16, HARK_BF16};
  static const struct {
    const char *header;
    size_t data_bytes;
  } headers[] = {
      {"{}", 0},
      {"{}   ", 0},
      {"{\"__metadata__\":{}}", 0},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[3,7]}}", 7},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4611686018427387904],\"data_offsets\":[0,0]}}", 0},
      {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[1,4]}}",
       4},
      {"{\"\\u00e9\\n\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
       8},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775803,9223372036854775807]}}", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":[]}}", 4},
      {" {\"a\":[[[]]]}", 0},
  };
  const int64_t shape[] = {2, 1, 3};
  unsigned char numbers[6 * 8];
  hark_tensor tensors[7 * 3];
  hark_named_tensor named[7 * 3];
  char names[7 * 3][32], name[32];
  int64_t count = 0;
  for (size_t i = 0; i < sizeof numbers; i++) numbers[i] = (unsigned char)(31 * i);
  for (size_t t = 0; t < COUNT(types); t++) {
    for (int rank = 1; rank <= 3; rank++) {
      need(hark_tensor_create(context, types[t], rank, shape, &tensors[count]));
      need(hark_tensor_write(context, &tensors[count], numbers));
      snprintf(names[count], sizeof names[count], "blocks.%zu.weight_%d", t, rank);
      named[count] = (hark_named_tensor){.name = names[count], .tensor = &tensors[count]};
      count++;
    }
  }
  const hark_metadata_entry metadata[] = {{"format", "hark"}, {"format_version", "1"}, {"text", "\"\\\n\xc3\xa9"}};
  for (int64_t n = 0; n <= count; n += 3) {
    snprintf(name, sizeof name, "written-%" PRId64, n);
    need(hark_safetensors_write(context, place("safetensors", name), named, n, metadata, n % 4, NULL));
  }
  for (int64_t i = 0; i < count; i++) hark_tensor_destroy(context, &tensors[i]);
  for (size_t i = 0; i < COUNT(headers); i++) {
    snprintf(name, sizeof name, "header-%02zu", i);
    put_header(name, headers[i].header, headers[i].data_bytes);
  }
}

/* ---- configurations ---- */

static void make_config(void) {
  static const char *const texts[] = {
      "",
      "# nothing\n",
      "model: {layers: 2, heads: 2, width: 32, context: 16}\ntrain: {steps: 10, batch: 2, lr: 1}\n",
      "model.layers: 3\nmodel.attention.structure: window\nmodel.attention.window: 8\nmodel.norm_epsilon: 1e-6\n",
      "data:\n  paths: [\"a b\", 'c''d', e/f]\n  validation_paths:\n    - g\n    - |\n      two\n      lines\n",
      "train:\n  max_time: 1h30m\n  learning_rate: 2.5e-4\n  minimum_rate: 1e-5\n  epochs: 0.5\n  schedule: rsqrt\n",
      "run: {directory: \"\\u2028\\x01\\N\\t\\\"\\\\\", threads: 2, deterministic: yes, backend: reference, resume: off}\n",
      "model:\n  attention:\n    kernel: rbf\n    sigma: .5\n    forget_gate: true\n  rotary: {base: 5e5, pairs: interleaved}\n",
      "model: {layers: 0, heads: x, wdith: 1}\ntrain: [1]\nnone: ~\n",
      "a: &x 1\nb: *x\n",
      "model:\n  <<: {layers: 1}\n",
      "a: [[[[[[[[[[1]]]]]]]]]]\n",
      "? [a]\n: {b: 1}\n",
      "%YAML 1.1\n---\nmodel: !!map {layers: !!int 1}\n...\n---\n",
      "model: {layers: 1\n",
      "\tmodel: 1\n",
      "\xef\xbb\xbfmodel.layers: 1\n",
      "model: >-\n  folded\n  text\n\n  more\nrun: \"a\\\n  b\"\n",
      "{\"model\": {\"layers\": 2}, \"data\": {\"paths\": [\"a\"]}}",
  };
  hark_config config;
  const hark_option_group group = {&hark_config_table, &config};
  hark_options *set;
  put_texts("config", texts, COUNT(texts));
  need(hark_options_create(context, "train", &group, 1, &set));
  need(hark_config_finish(context, set, &config));
  for (int comments = 0; comments < 2; comments++) {
    hark_text text = hark_text_empty(context);
    hark_options_print_yaml(set, comments != 0, &text);
    need(text.status);
    put("config", comments ? "defaults-with-comments" : "defaults", hark_text_get(&text), text.length);
    hark_text_free(&text);
  }
  hark_options_destroy(context, &set);
}

/* ---- JSON ---- */

static void make_json(void) {
  static const char *const texts[] = {
      "{}",
      "[]",
      "[1, -2, 3.5, 1e-7, \"\\u00e9\\n\\\"\", true, false, null, {\"a\": [], \"b\": {}}]",
      "{\n  \"format_version\": 1,\n  \"step\": 500,\n  \"loss_sum\": 1.25,\n  \"best_loss\": null,\n  \"bad_steps\": 0\n}\n",
      "{\"files\": [{\"name\": \"model.safetensors\", \"bytes\": 1, \"sha256\": \"00\"}]}\n",
      "{\"step\": 1, \"train/loss\": 4.5}\n{\"step\": 2, \"train/loss\": null}\n{\"step\": 3",
      "{\"a\": 1}\n\n{\"a\": 1}\n",
      "{\"a\": 1}\nnotes",
      "<html>",
      "\x1f\x8b\x08",
      "PK\x03\x04\n",
      "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 123",
      "{\"a\": 1, \"a\": 2}",
      ("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":0,\"k\":1,\"l\":2,\"m\":3,\"n\":4,\"o\":5,\"p\":6,"
       "\"q\":7}"), /* more than are compared pair by pair */
      ("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":0,\"k\":1,\"l\":2,\"m\":3,\"n\":4,\"o\":5,\"p\":6,"
       "\"a\":7}"), /* more than are compared pair by pair */
      "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]",
      "[9223372036854775808, 1e400, NaN]",
      "\"\\ud800\\udc00 \\ud800 \\u0000\"",
      "\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x80\xa8 \xef\xbb\xbf \xc2\x85 \x7f",
  };
  put_texts("json", texts, COUNT(texts));
  put("json", "zero", "[1\0, true\0]", 11);
  hark_jsonl file = {0};
  const char *const path = place("json", "metrics");
  need(hark_file_remove(context, path));
  need(hark_jsonl_open(context, &file, path));
  for (int64_t step = 1; step <= 3; step++) {
    hark_jsonl_begin(&file);
    hark_jsonl_integer(&file, "step", step);
    hark_jsonl_number(&file, "train/loss", 1.0 / (double)step);
    hark_jsonl_boolean(&file, "skipped", step == 2);
    hark_jsonl_string(&file, "note", "\xc3\xa9\n");
    need(hark_jsonl_end(context, &file));
  }
  need(hark_jsonl_close(context, &file));
}

/* ---- vocabularies and texts ---- */

/* Small tokenizers of other programs, and some of their beginnings. */
static void make_pipeline(void) {
#define WORDS "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"the\":0,\"a\":1},\"unk_token\":\"a\"},"
  static const char *const texts[] = {
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<0x20>\":3},\"merges\":[\"a b\"],\"byte_fallback\":true,"
      "\"end_of_word_suffix\":\"</w>\",\"continuing_subword_prefix\":\"##\",\"unk_token\":\"a\"}}",
      "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"<unk>\",0],[\"a\",-1.5],[\"ab\",-2],[\"t\",-3]],\"unk_id\":0},"
      "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}}",
      "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"t\":1,\"##h\":2},\"unk_token\":\"[UNK]\"},"
      "\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\"}"
      "}",
      WORDS
      "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"},{\"type\":\"Strip\"},"
      "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\"x\"},{\"type\":\"Prepend\",\"prepend\":\"y\"},"
      "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAABh\"}]}}",
      WORDS
      "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"Punctuation\"},"
      "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^\\\\w]|\\\\b\"},\"behavior\":\"MergedWithNext\",\"invert\":true},{\"type\":"
      "\"ByteLevel\"}]}}",
      WORDS
      "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"ByteLevel\"},{\"type\":\"Fuse\"},"
      "{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1},{\"type\":\"CTC\",\"pad_token\":\"a\",\"word_delimiter_token\":\"b\"}]"
      "}}",
      WORDS
      "\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},{\"id\":5,\"content\":\"dog\",\"single_word\":"
      "true}],"
      "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"<s>\",4],\"sep\":[\"</s>\",9]}}",
  };
#undef WORDS
  put_texts("pipeline", texts, COUNT(texts));
  char name[64];
  for (size_t i = 0; i < COUNT(published_pipelines); i++) {
    const published_pipeline *const published = &published_pipelines[i];
    char *const file = malloc(published->bytes);
    size_t at = 0;
    FUZZ_CHECK(file != NULL, "out of memory");
    for (const published_part *part = published->file; part->text != NULL; at += part++->bytes) memcpy(file + at, part->text, part->bytes);
    put("pipeline", published->name, file, at);
    snprintf(name, sizeof name, "%s-cut", published->name);
    put("pipeline", name, file, at * (i + 1) / (COUNT(published_pipelines) + 1));
    free(file);
  }
}

static void make_tokenizer(void) {
  static const char *const texts[] = {
      "It was the best of times,\nit was the worst of times.\n",
      "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 mixed \xcf\x80\n",
      "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xef\xbf\xbf\xc2\x80\xdf\xbf\xe0\xa0\x80",
      "cut \xe2\x82",
      "wrong \x80 \xc0\x80 \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xf5 \xff \xc3x",
      "{}",
  };
  char name[32];
  put_texts("tokenizer", texts, COUNT(texts));
  put("tokenizer", "zero", "a\0b", 3);
  for (int kind = 0; hark_tokenizer_kind_name(kind) != NULL && hark_tokenizer_kind_is_made(kind); kind++) {
    for (size_t i = 0; i < 3 && hark_tokenizer_kind_available(kind); i++) {
      hark_tokenizer *tokenizer;
      char *text;
      size_t bytes, consumed;
      hark_text_fault fault;
      hark_subword_settings subwords = test_subwords(i % 2 == 0 ? HARK_SUBWORD_UNIGRAM : HARK_SUBWORD_BPE, 40);
      subwords.byte_fallback = i < 2;
      if (kind == HARK_TOKENIZER_BYTE_BPE) subwords.vocabulary = HARK_TOKEN_RESERVED + 256 + 2;
      need(hark_tokenizer_create(context, hark_tokenizer_kind_name(kind), &tokenizer));
      need(hark_tokenizer_set_subwords(context, tokenizer, &subwords));
      need(hark_tokenizer_learn(context, tokenizer, texts[i], strlen(texts[i]) + (i == 0), true, &consumed, &fault));
      need(hark_tokenizer_finish(context, tokenizer));
      need(hark_tokenizer_print(context, tokenizer, &text, &bytes));
      snprintf(name, sizeof name, "vocabulary-%s-%zu", hark_tokenizer_kind_name(kind), i);
      put("tokenizer", name, text, bytes);
      hark_release(context, text, bytes);
      hark_tokenizer_destroy(context, &tokenizer);
    }
  }
}

/* ---- cached tokens ---- */

static void make_tokens(void) {
  static const char text[] = "one two three\nfour five six \xc3\xa9\n";
  char folder[HARK_PATH_BYTES], source[HARK_PATH_BYTES], name[32];
  for (int kind = 0; hark_tokenizer_kind_name(kind) != NULL && hark_tokenizer_kind_is_made(kind); kind++) {
    for (int division = HARK_DIVIDE_TAIL; division <= HARK_DIVIDE_EVERY_FILE && hark_tokenizer_kind_available(kind); division++) {
      hark_corpus *corpus;
      snprintf(source, sizeof source, "%s", place("tokens-from", "text.txt"));
      put("tokens-from", "text.txt", text, sizeof text - 1);
      need(hark_path_join(context, root, "tokens-from", folder));
      const char *const path = source;
      const hark_subword_settings subwords = test_subwords(HARK_SUBWORD_UNIGRAM, 12);
      const hark_corpus_settings settings = {.paths = &path,
                                             .path_count = 1,
                                             .division = (hark_division)division,
                                             .validation_fraction = 0.25,
                                             .tokenizer_kind = hark_tokenizer_kind_name(kind),
                                             .subwords = hark_tokenizer_kind_has_pieces(kind) ? &subwords : NULL,
                                             .cache_folder = folder};
      need(hark_corpus_open(context, &settings, &corpus));
      hark_text tokens = hark_text_empty(context);
      need(hark_file_read(context, hark_corpus_cache_path(corpus), (size_t)1 << 20, &tokens));
      snprintf(name, sizeof name, "%s-%d", hark_tokenizer_kind_name(kind), division);
      put("tokens", name, hark_text_get(&tokens), tokens.length);
      hark_text_free(&tokens);
      hark_corpus_close(context, &corpus);
    }
  }
  put("tokens", "empty", "", 0);
  put("tokens", "magic", "HARKTOKN\1\0\0\0\1\0\0\0", 16);
  need(hark_path_join(context, root, "tokens-from", folder));
  need(hark_folder_remove(context, folder));
}

/* ---- labelled examples ---- */

/* A safetensors file by hand: a header and zeros. */
static void put_tensors(const char *name, const char *header, size_t data) {
  unsigned char bytes[512] = {0};
  const size_t length = strlen(header);
  FUZZ_CHECK(8 + length + data <= sizeof bytes, "too little room");
  bytes[0] = (unsigned char)length;
  memcpy(bytes + 8, header, length);
  put("examples", name, bytes, 8 + length + data);
}

static void make_tensor_examples(void) {
  put_tensors("tensor-vectors",
              "{\"tokens\":{\"dtype\":\"F32\",\"shape\":[2,3,2],\"data_offsets\":[0,48]},"
              "\"targets\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[48,56]}}",
              56);
  put_tensors("tensor-images",
              "{\"__metadata__\":{\"classes\":\"3\"},\"labels\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]},"
              "\"images\":{\"dtype\":\"U8\",\"shape\":[2,2,3],\"data_offsets\":[8,20]}}",
              20);
}

/* "a text" and a line end, compressed by the programs of these names. */
static void make_unpack(void) {
  static const unsigned char gzip[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x4b, 0x54, 0x28, 0x49,
                                       0xad, 0x28, 0xe1, 0x02, 0x00, 0x23, 0xb0, 0xcf, 0x46, 0x07, 0x00, 0x00, 0x00};
  static const unsigned char xz[] = {0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01,
                                     0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x06, 0x61, 0x20, 0x74, 0x65, 0x78,
                                     0x74, 0x0a, 0x00, 0x00, 0xdf, 0xd2, 0x06, 0x5f, 0x64, 0x94, 0x5a, 0x13, 0x00, 0x01, 0x1f, 0x07,
                                     0x16, 0x2e, 0xb8, 0x73, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a};
  static const unsigned char zstd[] = {0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x39, 0x00, 0x00, 0x61,
                                       0x20, 0x74, 0x65, 0x78, 0x74, 0x0a, 0xf4, 0xe8, 0x1d, 0x00};
  static const unsigned char bzip2[] = {0x42, 0x5a, 0x68, 0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0x7d, 0xc2, 0x78, 0xb1, 0x00, 0x00,
                                        0x01, 0x51, 0x80, 0x00, 0x10, 0x40, 0x00, 0x22, 0x00, 0x04, 0x40, 0x20, 0x00, 0x21, 0x80, 0x0c,
                                        0x02, 0xc6, 0xf5, 0xdc, 0x5d, 0xc9, 0x14, 0xe1, 0x42, 0x41, 0xf7, 0x09, 0xe2, 0xc4};
  put("unpack", "gzip", gzip, sizeof gzip);
  put("unpack", "xz", xz, sizeof xz);
  put("unpack", "zstd", zstd, sizeof zstd);
  put("unpack", "bzip2", bzip2, sizeof bzip2);
}

static void make_json_lines(void) {
  static const char *const texts[] = {
      "{\"text\": \"good\", \"label\": 1}\n{\"label\": 0, \"text\": \"b\\u00e4d\\n\"}\r\n",
      "\n{\"text\": \"\"}\n[]\n",
      "{\"text\": 1}",
  };
  put_texts("json_lines", texts, COUNT(texts));
}

static void make_table(void) {
  static const char *const texts[] = {
      "\xef\xbb\xbfsize,\"kind, \"\"of\"\"\",a b\r\n1.5,\"x\r\ny\",NA\r\n-2e3 , z,\r\n,?,nan\r\n",
      "a;b\n1;x,y\n1e999;\"\"\n",
      "a\tb\n1\t\n\n\"2\"\t\xc3\xa9",
      "a,b;c\n1,2\n",
      "a,a\n1,2\n",
      "a\n\"",
      "a,b\n1\n1,2,3\n",
  };
  put_texts("table", texts, COUNT(texts));
}

/* By the generators, and by hand. */
static void make_examples(void) {
  static const char *const texts[] = {
      "1\tgood\n0\tbad \xc3\xa9\n1.0\ttab\there\r\n",
      "0\ta\tb\tfirst\tsecond\n1\tc\td\tthird\tfourth\n",
      "Source\tTarget\n( ( ( ( [MAX 2 ) 9 ) 5 ) ] )\t9\n( ( ( [SM 1 ) 2 ) ] )\t3\n4\t4\n",
      "Words\tk0 k1 v0 v1 _\nk1 v0 k0 v1 _ k0 _\t5:v1\nk0 v1 _ k0\t3:v1\n",
      "HARKIMGS\1",
  };
  unsigned char images[HARK_IMAGE_HEADER_BYTES + 15] = {0}, *const records = calloc(2, 3073);
  FUZZ_CHECK(records != NULL, "no memory");
  hark_image_header(2, 2, 2, 3, images);
  for (int i = 0; i < 15; i++) images[HARK_IMAGE_HEADER_BYTES + i] = (unsigned char)(i % 5 == 0 ? i % 2 : 17 * i);
  for (int i = 1; i < 3073; i++) records[i] = (unsigned char)i;
  records[3073] = 9;
  unsigned char vectors[HARK_VECTORS_HEADER_BYTES + 2 * 5 * sizeof(float)] = {0};
  hark_vectors_header(HARK_VECTORS_MAGIC, 2, 2, 1, 2, vectors);
  for (size_t i = HARK_VECTORS_HEADER_BYTES + 3; i < sizeof vectors; i += sizeof(float)) vectors[i] = (unsigned char)(0x3c + i % 3);
  put_texts("examples", texts, COUNT(texts));
  put("examples", "images", images, sizeof images);
  put("examples", "vectors", vectors, sizeof vectors);
  put("examples", "cifar", records, (size_t)2 * 3073);
  make_tensor_examples();
  free(records);
}

/* ---- numbers ---- */

static void make_number(void) {
  static const char *const texts[] = {
      "0",
      "-0",
      "+1.",
      ".5",
      "1e400",
      "-1.7976931348623157e308",
      "4.9e-324",
      "2.2250738585072011e-308",
      "9223372036854775807",
      "-9223372036854775808",
      "9223372036854775808",
      "8e6",
      "1h30m",
      "90s",
      "1.5d",
      "1e3",
      "0x10",
      "1_000",
      "nan",
      "inf",
      "1e",
      "--1",
      "1,5",
      "0.1",
      "123456789012345678",
      "1e15",
      "999999999999999.9",
      "dense:L4096,causal,window=16,dropout=0.1",
      "dense:L0",
      "a:L=8e3,dropout=1e-3",
      "dense",
      "dense:,",
  };
  static const double values[] = {0.1, 1.0 / 3, 1e15, 1e16, 123456789.125, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -0.0};
  char name[32];
  put_texts("number", texts, COUNT(texts));
  for (size_t i = 0; i < COUNT(values); i++) {
    snprintf(name, sizeof name, "bits-%zu", i);
    put("number", name, &values[i], sizeof values[i]);
  }
}

/* ---- positional kernels ---- */

static void make_positional(void) {
  static const char *const texts[] = {
      "bank[2](decay(sigma2=[1.5,0.4],l=[30,8])*periodic(alpha=[0.7,1.3],tau=[5,2.5]))",
      "(constant(3)+window(w=16))*bank[3](t5+alibi(m=1e-3))",
      "rbf*(rational_quadratic(alpha=.5)+matern32(length_scale=7.25e1))*kerple_power",
      "bank[2](bank[3](canonical_periodic(tau=[1,2,3,4,5,6])*kerple_log(r1=1e60,r2=1e-60)))",
      "mlp[3](c=0.1,t=[0.5,4,32],w=[-1,0.25,-1e30])*sandwich(a=8,base=10000!)+xpos(gamma=0.4)",
      "decay(l=0)",
      "bank[0](",
      "t5([1,2])",
  };
  put_texts("positional", texts, COUNT(texts));
}

int main(int count, char **words) {
  FUZZ_CHECK(count == 2, "usage: seeds FOLDER");
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference", .threads = 1};
  FUZZ_CHECK(hark_context_create(&options, &context) == HARK_OK, "no context");
  root = words[1];
  make_safetensors();
  make_config();
  make_json();
  make_tokenizer();
  make_pipeline();
  make_tokens();
  make_examples();
  make_unpack();
  make_json_lines();
  make_table();
  make_number();
  make_positional();
  hark_context_destroy(&context);
  return 0;
}
