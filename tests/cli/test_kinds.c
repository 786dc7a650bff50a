/* test_kinds.c - all kinds of runs by all subcommands: a row a kind, a column a command, and what each must do with it. What makes no sense
 * for a kind is refused with one line and a documented exit code; nothing ends well without having been done. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"
#include "tokenizers/pipeline/regex.h"

/* ---- the kinds ---- */

#define RUN "--batch 2 --log-every 1 --threads 1 --steps 2 --checkpoint-every 1 --evaluate-every 1 "
#define SMALL RUN "--layers 1 --width 16 --heads 2 "
#define CHUNKS RUN "--layers 2 --width 16 --heads 2 --architecture ahca --chunk-size 4 --primary-slots 2 --secondary-slots 4 --selected 2 "
#define IMAGE_CHUNKS                                                                                                                       \
  RUN "--layers 2 --width 16 --heads 2 --architecture ahca --chunk-size 128 --primary-slots 2 --secondary-slots 4 --selected 2 "
#define TEXT "--context 8 --data text.txt "
#define SENTENCES "--context 64 --data sentences.txt --unit sentences "
#define LABELS "--context 12 --data texts.tsv --format text --classes 3 "
#define PAIRS "--context 12 --data pairs.tsv --format pairs "
#define LISTOPS "--context 8 --data listops.tsv --format listops "
#define IMAGE "--context 1024 --data images.bin --format image "
#define NARROW "--structure window --window 4 "
#define PICTURE(columns) "--structure hierarchical --grid-columns " columns " --pooling mean --architecture encoder "
#define FOLDER(name) "--format examples --data " name " "

/* What a kind is, in bits: a column asks for some of them. */
enum {
  OF_TEXT = 1,     /* windows or sentences of a text; else examples */
  CONTINUES = 2,   /* writes text */
  WINDOWS = 4,     /* measured at any context */
  TESTED = 8,      /* has examples for the test */
  KERNEL = 16,     /* learns a positional kernel */
  BOUNDED = 32,    /* the bound of lab bound is about it */
  SUBWORDS = 64,   /* learned by SentencePiece */
  EXAMPLES = 128,  /* labelled examples */
  HEADS = 256,     /* its attention knows queries and keys alone */
  MERGES = 1024,   /* divides text by PCRE2 */
  LACKS = 512,     /* its vocabulary may lack characters */
  PREDICTS = 2048, /* classes, numbers or labels of tokens */
};

typedef struct kind {
  const char *name;
  unsigned is;
  const char *words; /* of hark train */
  const char *file;  /* that it learns from */
} kind;

static const kind kinds[] = {
    {"characters", OF_TEXT | LACKS | CONTINUES | HEADS | WINDOWS, SMALL TEXT, "text.txt"},
    {"kernel", OF_TEXT | LACKS | CONTINUES | WINDOWS | KERNEL, SMALL TEXT "--positions none --positional decay*periodic ", "text.txt"},
    {"bytes", OF_TEXT | CONTINUES | HEADS | WINDOWS, SMALL TEXT "--tokenizer bytes ", "text.txt"},
    {"subwords", OF_TEXT | LACKS | CONTINUES | HEADS | WINDOWS | SUBWORDS, SMALL TEXT "--tokenizer subwords --subwords 282 ", "text.txt"},
    {"byte_bpe", OF_TEXT | CONTINUES | HEADS | WINDOWS | MERGES, SMALL TEXT "--tokenizer byte_bpe --subwords 270 ", "text.txt"},
    {"sentences", OF_TEXT | LACKS | CONTINUES | HEADS, SMALL SENTENCES, "sentences.txt"},
    {"sentences-subwords", OF_TEXT | LACKS | CONTINUES | HEADS | SUBWORDS, SMALL SENTENCES "--tokenizer subwords --subwords 282 ",
     "sentences.txt"},
    {"masked", OF_TEXT | LACKS | WINDOWS | HEADS, SMALL TEXT "--architecture masked_encoder ", "text.txt"},
    {"reconstruction", OF_TEXT | LACKS, CHUNKS TEXT "--model.ahca.head reconstruction ", "text.txt"},
    {"listops-encoder", EXAMPLES | PREDICTS | HEADS, SMALL LISTOPS "--architecture encoder ", "listops.tsv"},
    {"listops-ahca", EXAMPLES | PREDICTS, CHUNKS LISTOPS, "listops.tsv"},
    {"text-encoder", EXAMPLES | PREDICTS | TESTED | HEADS, SMALL LABELS "--test more.tsv --architecture encoder ", "texts.tsv"},
    {"text-masked", EXAMPLES | HEADS, SMALL LABELS "--architecture masked_encoder ", "texts.tsv"},
    {"text-ahca", EXAMPLES | PREDICTS, CHUNKS LABELS, "texts.tsv"},
    {"text-reconstruction", EXAMPLES, CHUNKS LABELS "--model.ahca.head reconstruction ", "texts.tsv"},
    {"pairs-encoder", EXAMPLES | PREDICTS | HEADS, SMALL PAIRS "--architecture encoder ", "pairs.tsv"},
    {"pairs-masked", EXAMPLES | HEADS, SMALL PAIRS "--architecture masked_encoder ", "pairs.tsv"},
    {"image-encoder", EXAMPLES | PREDICTS | HEADS, SMALL IMAGE NARROW "--architecture encoder ", "images.bin"},
    {"image-grid", EXAMPLES | PREDICTS | HEADS, SMALL IMAGE PICTURE("32"), "images.bin"},
    {"image-ahca", EXAMPLES | PREDICTS, IMAGE_CHUNKS IMAGE, "images.bin"},
    {"image-masked", EXAMPLES | HEADS, SMALL IMAGE NARROW "--architecture masked_encoder ", "images.bin"},
    {"pathfinder-encoder", EXAMPLES | PREDICTS | TESTED | HEADS,
     SMALL "--context 1024 " NARROW FOLDER("pathfinder") "--architecture encoder ", "pathfinder/training.images"},
    {"sequences-decoder", EXAMPLES | PREDICTS | TESTED | HEADS, SMALL "--context 16 " FOLDER("recall"), "recall/training.tsv"},
    {"sequences-labels", EXAMPLES | PREDICTS | TESTED, CHUNKS "--context 16 " FOLDER("recall"), "recall/training.tsv"},
    {"sequences-masked", EXAMPLES | TESTED | HEADS, SMALL "--context 16 " FOLDER("recall") "--architecture masked_encoder ",
     "recall/training.tsv"},
    {"vectors-latent", EXAMPLES | PREDICTS | TESTED | BOUNDED,
     RUN "--layers 1 --width 4 --heads 2 --context 6 --architecture latent " FOLDER("latent"), "latent/training.vectors"},
    {"vectors-ahca", EXAMPLES | PREDICTS | TESTED, CHUNKS "--context 6 " FOLDER("latent"), "latent/training.vectors"},
    {"vectors-finite", EXAMPLES | PREDICTS | TESTED, RUN "--context 13 --architecture finite --covariates 2 " FOLDER("regression"),
     "regression/training.vectors"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- the commands ---- */

/* RUN stands for the run's folder, WORDS for what it was trained with. */
typedef struct column {
  const char *words;
  unsigned needs; /* of the kind */
  int code;
  const char *out, *err;
  int refusal_code; /* where the kind lacks one of the needs */
  const char *refusal;
} column;
#define DONE HARK_EXIT_DONE
#define USAGE HARK_EXIT_USAGE
#define INPUT HARK_EXIT_BAD_INPUT
#define ALL 0, NULL
#define NOT_HERE (-1) /* what it does is tested elsewhere */

static const column columns[] = {
    {"verify RUN", 0, DONE, "good  vocabulary.json", "", ALL},
    {"verify RUN/checkpoints/step-1", 0, DONE, "good  checkpoints/step-1", "", ALL},
    {"train --out RUN WORDS", 0, USAGE, "", "already contains a run", ALL},
    {"train --resume --out RUN --steps 3", 0, DONE, "step 3 of 3", "continuing from step-2", ALL},
    {"verify RUN", 0, DONE, "good  checkpoints/step-3", "", ALL},
    {"train --init-from RUN --out RUN.next WORDS --steps 1", 0, DONE, "step 1 of 1", " 0 missing, 0 of another shape, 0 unexpected", ALL},
    {"verify RUN.next", 0, DONE, "good  origin.json", "", ALL},
    {"train --estimate WORDS", 0, DONE, "disk, besides", "", ALL},
    {"train --estimate --out RUN.estimated --config RUN/config.yaml", 0, DONE, "disk, besides", "", ALL},
    {"eval RUN --threads 1", 0, DONE, "RUN, step-", "", ALL},
    {"eval RUN/checkpoints/step-2 --threads 1", 0, DONE, "RUN, step-2", "", ALL},
    {"eval RUN --checkpoint step-9", 0, INPUT, "", "step-9", ALL},
    {"eval RUN --part training --threads 1 --json", 0, DONE, "\"loss\": ", "", ALL},
    {"eval RUN --part test --threads 1", TESTED, DONE, "test ", "", USAGE, " test "},
    {"eval RUN --context 4 --threads 1", WINDOWS, DONE, "context 4: loss", "", USAGE, "--context: "},
    {"eval RUN --stride 2 --threads 1", WINDOWS, DONE, "loss", "", USAGE, "--stride: "},
    {"eval RUN --unknown map --threads 1", OF_TEXT | LACKS, DONE, "loss", "", USAGE, "--unknown: "},
    {"eval RUN --length-limit 5 --threads 1", EXAMPLES, NOT_HERE, "", "", USAGE, "--length-limit: "},
    {"eval RUN --layers 3", 0, USAGE, "", "--layers: does not apply to eval", ALL},
    {"predict RUN --threads 1", PREDICTS, DONE, "example,", "", USAGE, "hark predict: RUN: a model of architecture "},
    {"predict RUN --part training --limit 3 --threads 1 --json", PREDICTS, DONE, "{\"example\": 1, ", "", USAGE, "hark eval measures it"},
    {"info RUN", 0, DONE, "validation loss", "", ALL},
    {"info RUN --json", 0, DONE, "\"step\": 3", "", ALL},
    {"info RUN/checkpoints/step-2", 0, DONE, "metadata \"vocabulary\"", "", ALL},
    {"export RUN --output RUN.safetensors", 0, DONE, "RUN.safetensors: ", "", ALL},
    {"info RUN.safetensors --json", 0, DONE, "\"vocabulary\": ", "", ALL},
    {"generate RUN --max-new-tokens 3 --threads 1 --json", CONTINUES, DONE, "\"text\": ", "", USAGE, "hark eval measures"},
    {"generate RUN.safetensors --max-new-tokens 3 --threads 1 --json", CONTINUES, DONE, "\"text\": ", "", USAGE, "continue"},
    {"generate RUN --data text.txt --threads 1", 0, USAGE, "", "--data: does not apply to generate", ALL},
    {"plot RUN --terminal", 0, DONE, "RUN val/loss", "", ALL},
    {"plot RUN --output RUN.svg", 0, DONE, "", "", ALL},
    {"plot RUN --positional --terminal", KERNEL, DONE, "distance", "", USAGE, "no positional kernel"},
    {"report RUN --text fox --output RUN.html", 0, DONE, "RUN.html: 1 run, ", "", ALL},
    {"lab bound --quick --model RUN --json", BOUNDED, DONE, "terms of every layer", "", USAGE, "bound: RUN: "},
    {"lab approximation --quick --run RUN --text text.txt", HEADS, NOT_HERE, "", "", USAGE, "approximation: RUN: "},
    {"lab rank-map --quick --run RUN --text text.txt", HEADS, NOT_HERE, "", "", USAGE, "rank-map: RUN: "},
    {"bench step --config RUN/config.yaml --rounds 1 --json", 0, DONE, "\"tokens_per_second\"", "", ALL},
    {"config --config RUN/config.yaml --no-comments", 0, DONE, "model:", "", ALL},
    {"sweep RUN.plan --list", 0, DONE, "all-seed=1", "", ALL},
    {"sweep RUN.plan --no-picture", 0, DONE, "| all |", "", ALL},
    {"sweep RUN.plan --table", 0, DONE, "| all |", "", ALL},
    {"verify RUN.sweep/all-seed=1", 0, DONE, "good  last", "", ALL},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static char folder[TEST_PATH_BYTES];
static test_output output;

/* Puts the kind's words into those of a column. */
static const char *put_in(const char *words, const kind *k, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  while (*words != '\0') {
    const bool run = strncmp(words, "RUN", 3) == 0, own = strncmp(words, "WORDS", 5) == 0;
    const char *const part = run ? k->name : own ? k->words : words;
    const size_t length = run || own ? strlen(part) : 1;
    assert_true(used + length < size);
    memcpy(out + used, part, length);
    out[used += length] = '\0';
    words += run ? 3 : own ? 5 : 1;
  }
  return out;
}

/* A refusal is one line of the command's, the last one, and nothing is printed as a result. */
static void check_refusal(const char *words) {
  char name[64];
  (void)snprintf(name, sizeof name, "hark %.*s: ", (int)strcspn(words, " "), words);
  const char *line = strstr(output.err, name);
  if (line != NULL && strncmp(line + strlen(name), "tokenising", 10) == 0) line = strstr(line + 1, name);
  if (line == NULL || strchr(line, '\n') == NULL || strchr(line, '\n')[1] != '\0')
    fail_msg("hark %s: not one line at the end of\n%s", words, output.err);
  assert_string_equal(output.out, "");
}

/* In this process, but for what starts processes of its own or is ended by signals. */
static void run_command(const char *at, const char *words) {
  char line[1100], here[TEST_PATH_BYTES];
  if (strncmp(words, "train", 5) == 0 || strncmp(words, "sweep", 5) == 0) {
    test_command_run(at, "", words, &output);
    return;
  }
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(chdir(at), 0);
  (void)snprintf(line, sizeof line, "hark %s", words);
  test_command_line(hark_main, line, &output);
  assert_int_equal(chdir(here), 0);
}

static void expect(const char *at, const char *words, int code, const char *in_out, const char *in_err) {
  run_command(at, words);
  if (output.code != code || strstr(output.out, in_out) == NULL || strstr(output.err, in_err) == NULL)
    fail_msg("hark %s\nexit code %d, expected %d\nstdout: %s\nstderr: %s\nexpected there: \"%s\", \"%s\"", words, output.code, code,
             output.out, output.err, in_out, in_err);
}

static void check_column(const kind *k, const column *c) {
  char words[1024], out[256], err[256];
  const bool does = (k->is & c->needs) == c->needs;
  const int code = does ? c->code : c->refusal_code;
  if (code == NOT_HERE) return;
  (void)put_in(c->words, k, words, sizeof words);
  (void)put_in(does ? c->out : "", k, out, sizeof out);
  (void)put_in(does ? c->err : c->refusal, k, err, sizeof err);
  expect(folder, words, code, out, err);
  if (code != DONE) check_refusal(words);
}

static double number_of(const char *at, const char *words, const char *key) {
  expect(at, words, DONE, "", "");
  json_t *const line = command_json(&output);
  const double number = command_number(line, key);
  json_decref(line);
  return number;
}

/* What eval measures is what training validated with, from wherever it is called. */
static double check_loss(const kind *k) {
  char words[256], other[TEST_PATH_BYTES + 16];
  (void)snprintf(words, sizeof words, "info %s --json", k->name);
  const double validated = number_of(folder, words, "val/loss");
  (void)snprintf(words, sizeof words, "eval %s --checkpoint last --threads 1 --json", k->name);
  assert_true(number_of(folder, words, "loss") == validated);
  (void)snprintf(words, sizeof words, "eval ../%s --checkpoint last --threads 1 --json", k->name);
  (void)snprintf(other, sizeof other, "%s/other", folder);
  assert_true(number_of(other, words, "loss") == validated);
  return validated;
}

/* One byte of the data is another one, and their size is the same: they are not those of the run any more. */
static void check_other_data(const kind *k) {
  char words[256];
  size_t bytes;
  unsigned char *const data = test_file_read(test_path(folder, k->file), &bytes);
  size_t at = bytes - 2;
  while (data[at] == '\n') at--;
  const unsigned char before = data[at];
  const bool digit = before >= '0' && before <= '9', text = strstr(k->file, ".txt") != NULL;
  const bool binary = strstr(k->file, "images") != NULL || strstr(k->file, "vectors") != NULL;
  const char *const others = digit ? "01" : text ? "eo" : "ab"; /* that occur */
  data[at] = binary ? before ^ 0x40 : (unsigned char)(before == others[0] ? others[1] : others[0]);
  test_file_write(folder, k->file, data, bytes);
  (void)snprintf(words, sizeof words, "eval %s --threads 1", k->name);
  expect(folder, words, INPUT, "", "not what this run was trained on");
  check_refusal(words);
  (void)snprintf(words, sizeof words, "train --resume --out %s --steps 4", k->name);
  expect(folder, words, USAGE, "", "that this run was trained on so far");
  data[at] = before;
  test_file_write(folder, k->file, data, bytes);
  free(data);
}

/* A file of the run, and a change to it that verify finds. */
typedef struct damage {
  const char *file, *what, *problem;
  enum { CUT, FLIPPED, LONGER, OTHER } how;
} damage;
static const damage damages[] = {
    {"config.yaml", "config.yaml", "nonsense", LONGER},
    {"vocabulary.json", "vocabulary.json", "vocabulary.json: ", CUT},
    {"vocabulary.json", "checkpoints/step-3", "is not the vocabulary that the weights of step-3 were trained with", OTHER},
    {"checkpoints/step-3/state.json", "checkpoints/step-3", "state.json: is damaged", FLIPPED},
    {"checkpoints/step-3/model.safetensors", "checkpoints/step-3", "model.safetensors: is damaged", FLIPPED},
    {"checkpoints/step-2/optimizer.safetensors", "checkpoints/step-2", "optimizer.safetensors: is damaged", CUT},
    {"metrics.jsonl", "metrics.jsonl", "metrics.jsonl:", OTHER},
    {"last", "last", "last", CUT},
};

static void check_damage(const kind *k, const damage *d) {
  char file[128], words[128], line[96];
  size_t bytes;
  (void)snprintf(file, sizeof file, "%s/%s", k->name, d->file);
  unsigned char *const before = test_file_read(test_path(folder, file), &bytes);
  unsigned char *const after = malloc(bytes + 32);
  memcpy(after, before, bytes);
  size_t changed = bytes;
  switch (d->how) {
    case CUT: changed = bytes / 2; break;
    case FLIPPED: after[bytes / 2] ^= 1; break;
    case LONGER: changed += (size_t)snprintf((char *)after + bytes, 32, "nonsense: 1\n"); break;
    case OTHER: after[0] = ' '; break;
  }
  if (d->how == OTHER) { /* a blank in front: another text, and of JSON lines none */
    memcpy(after + 1, before, bytes);
    changed = bytes + 1;
    if (strcmp(d->file, "metrics.jsonl") == 0) after[0] = '}';
  }
  test_file_write(folder, file, after, changed);
  (void)snprintf(words, sizeof words, "verify %s", k->name);
  (void)snprintf(line, sizeof line, "BAD   %s", d->what);
  expect(folder, words, INPUT, line, " in what was verified");
  if (strstr(output.out, d->problem) == NULL) fail_msg("%s: \"%s\" is not in\n%s", file, d->problem, output.out);
  test_file_write(folder, file, before, bytes);
  free(before);
  free(after);
}

static void a_kind_goes_through_all_commands(void **state) {
  const kind *const k = *state;
  char words[1024], plan[256];
#ifndef HARK_WITH_SENTENCEPIECE
  if ((k->is & SUBWORDS) != 0) skip();
#endif
  if ((k->is & MERGES) != 0 && !hark_regex_available) skip();
  (void)snprintf(plan, sizeof plan, "config: %s/config.yaml\nout: %s.sweep\nsettings: {train.steps: 1}\n", k->name, k->name);
  (void)snprintf(words, sizeof words, "%s.plan", k->name);
  test_file_write_text(folder, words, plan);
  (void)snprintf(words, sizeof words, "train --out %s %s", k->name, k->words);
  expect(folder, words, DONE, "step 2 of 2", "");
  for (size_t i = 0; i < COLUMNS; i++) check_column(k, &columns[i]);
  const double loss = check_loss(k);
  check_other_data(k);
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) check_damage(k, &damages[i]);
  assert_true(check_loss(k) == loss);
  (void)snprintf(words, sizeof words, "verify %s", k->name);
  expect(folder, words, DONE, "good  last", "");
}

/* What data and models do not go together is refused in one line, and leaves no folder. */
static void what_makes_no_run_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *words, *refusal;
  } cases[] = {
      {SMALL LABELS, "decoder predicts tokens, and the data have classes"},
      {SMALL "--context 16 --architecture encoder " FOLDER("recall"), "an encoder predicts classes"},
      {SMALL IMAGE PICTURE("31"), "model.attention.grid_columns is 31, and the pictures have 32 columns, expected 32"},
      {SMALL LABELS PICTURE("4"), "model.attention.grid_columns is 4, and the examples are no pictures (format text), expected 0"},
      {CHUNKS PAIRS, "ahca reads one sequence per example"},
      {SMALL TEXT "--architecture encoder ", "an encoder predicts classes of examples"},
      {SMALL TEXT "--architecture latent ", "latent reads real vectors"},
      {RUN "--context 8 " TEXT "--architecture finite ", "finite reads real vectors"},
      {CHUNKS TEXT, "ahca cannot continue a text"},
      {SMALL SENTENCES "--architecture masked_encoder ", "a masked encoder reads windows of text"},
      {CHUNKS SENTENCES "--model.ahca.head reconstruction ", "ahca reads windows of text or examples"},
      {SMALL "--context 6 " FOLDER("latent"), "decoder reads tokens of a vocabulary"},
      {SMALL "--context 6 --architecture encoder " FOLDER("latent"), "encoder reads tokens of a vocabulary"},
      {RUN "--context 8 --architecture latent --data listops.tsv --format listops ", "latent reads real vectors"},
      {RUN "--context 16 --architecture finite " FOLDER("recall"), "reads real vectors"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[1024];
    (void)snprintf(words, sizeof words, "train --out none %s", cases[i].words);
    expect(folder, words, USAGE, "", cases[i].refusal);
    check_refusal(words);
    assert_int_equal(hark_path_kind_of(test_path(folder, "none")), HARK_PATH_NONE);
  }
}

/* ---- the data ---- */

static void make_lines(const char *name, const char *head, int count, void (*line)(int i, char out[64])) {
  static char text[120 * 64];
  (void)snprintf(text, sizeof text, "%s", head);
  for (int i = 0; i < count; i++) line(i, text + strlen(text));
  test_file_write_text(folder, name, text);
}

static void labelled(int i, char out[64]) { (void)snprintf(out, 64, "%d\t%c%.*s\n", i % 3, "abc"[i % 3], i % 9, &"bcabcabcabcabc"[i % 4]); }
static void relabelled(int i, char out[64]) { (void)snprintf(out, 64, "%d\tc%.*s%d\n", i % 3, i % 5, "bcabcab", i % 7); }
static void paired(int i, char out[64]) {
  (void)snprintf(out, 64, "%d\tn%d\tm%d\t%.*s\t%.*s\n", i % 2, i, i, 1 + i % 4, "abab", 1 + i % 3, "baba");
}
static void applied(int i, char out[64]) {
  const int a = i % 10, b = 3 * i % 10;
  (void)snprintf(out, 64, "[MAX %d %d ]\t%d\n", a, b, a > b ? a : b);
}
static void sentence(int i, char out[64]) { (void)snprintf(out, 64, "the quick brown fox %.*s\n", 1 + i % 5, &"abcabcabc"[i % 3]); }

static void make_images(void) {
  enum { RECORDS = 20, PLANE = 1024, RECORD = 1 + 3 * PLANE };
  static unsigned char bytes[RECORDS * RECORD];
  for (int r = 0; r < RECORDS; r++) {
    unsigned char *const record = bytes + (size_t)r * RECORD;
    record[0] = (unsigned char)(r % 10);
    for (int i = 0; i < 3 * PLANE; i++) record[1 + i] = (unsigned char)(7 * r + i % PLANE);
  }
  test_file_write(folder, "images.bin", bytes, sizeof bytes);
}

static int begin(void **state) {
  static const char *const tasks[] = {
      "recall --length 16 --pairs 2 --training 40 --validation 8 --test 8 --out recall",
      "latent --tokens 6 --features 4 --training 40 --validation 8 --test 8 --out latent",
      "regression --tokens 12 --covariates 2 --training 40 --validation 8 --test 8 --out regression",
      "pathfinder --size 32 --training 8 --validation 4 --test 4 --out pathfinder",
  };
  (void)state;
  command_place_open(folder);
  make_lines("texts.tsv", "", 60, labelled);
  make_lines("more.tsv", "", 12, relabelled);
  make_lines("pairs.tsv", "", 40, paired);
  make_lines("listops.tsv", "Source\tTarget\n", 40, applied);
  make_lines("sentences.txt", "", 100, sentence);
  make_images();
  test_file_write_text(folder, "other/text.txt", "another text, where the run's has the same name\n");
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
    char words[128];
    (void)snprintf(words, sizeof words, "data make %s", tasks[i]);
    expect(folder, words, DONE, "", "");
  }
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

int main(void) {
  struct CMUnitTest tests[KINDS + 1];
  for (int i = 0; i < KINDS; i++)
    tests[i] = (struct CMUnitTest){
        .name = kinds[i].name, .test_func = a_kind_goes_through_all_commands, .initial_state = (void *)(uintptr_t)&kinds[i]};
  tests[KINDS] = (struct CMUnitTest)cmocka_unit_test(what_makes_no_run_is_refused);
  return cmocka_run_group_tests_name("kinds", tests, begin, end);
}
