/* ahca_information.c - what compression keeps: of noise, of one token, of a text.
 *
 * 1. White noise. A chunk of m rows of d standard normal numbers -> C1 averages of W x with W [d', d]. What a linear decoder recovers of
 *    the chunk is its part in the rows' space, of dimension C1 min(d', d) of m d:
 *
 *        R^2 = C1 min(d', d) / (m d)
 *
 *    by least squares on one half of the draws, judged on the other. "Information is preserved" is thus a statement about the data.
 * 2. One token of 512 (task `needle` of ahca_tasks.h) has to reach all chunks, through 4 of 32 global tokens: selected by a learned score,
 *    by their norm, at random. At random it is among them with probability 1/8, and 1/16 of the rest is correct by chance: 1/8 + 7/8 / 16 =
 *    .18; in addition one chunk of 32 has it. A norm is not better: no gradient reaches it through the selection, so that it has to grow
 *    for other reasons, and with the model's head of tokens it does not.
 * 3. A text, reconstructed from the slots of its chunks and positions alone: its cross-entropy for C1 = 1, 2, 4, 8 slots of 16 letters,
 *    over the entropy of single letters; and with the slots of chunks exchanged, which have no information about the targets.
 *
 * Source: A, sections 10.2.2 and 12.2, which take for granted what is measured here.
 */
#include <hark/experimental.h>

#include "lab/ahca_tasks.h"
#include "lab/fit.h"
#include "lab/matrix.h"

#include "io/files.h"

typedef struct information_values {
  const char *data;
} information_values;

static const hark_option options[] = {
    {"data", "data", HARK_OPTION_STRING, offsetof(information_values, data), "", NULL, NULL, "FILE",
     "ahca-information: the text to compress; not given: the descriptions of the experiments", "$1 ahca-information|all"},
};
const hark_option_table hark_lab_ahca_information_options = {options, 1, NULL, sizeof(information_values), false};

#define FULL_SEEDS 3

enum { NOISE, NEEDLE, TEXT };

/* ---- white noise ---- */

#define ROWS 16    /* m */
#define WIDTH 8    /* d */
#define RIDGE 1e-9 /* of features that depend on each other, d' > d */

enum { NOISE_SLOTS, NOISE_WIDTH, MEASURED, PREDICTED, NOISE_COLUMNS };
static const hark_lab_column noise_columns[NOISE_COLUMNS] = {
    {"C1", NULL, NULL}, {"d'", NULL, NULL}, {"R^2", "of a linear decoder", NULL}, {"C1 min(d', d) / (m d)", NULL, NULL}};

typedef struct noise {
  hark_lab *lab;
  hark_tape *tape;
  int64_t chunks;             /* in each half */
  double *x, *map, *features; /* [2 chunks, m d], [d', d], [2 chunks, C1 d'] */
  double *gram, *cross;
  int64_t *offsets;
} noise;

/* features <- averages of W x, by the operators. */
static hark_status compress_noise(const noise *s, int64_t slots, int64_t width) {
  const hark_segment_pool_attributes average = {HARK_SEGMENT_POOL_AVERAGE, slots, 0, false, 0};
  const int64_t all = 2 * s->chunks, x_shape[] = {all * ROWS, WIDTH}, map_shape[] = {width, WIDTH}, offsets_shape = all + 1;
  hark_tensor x, map, offsets;
  hark_value inputs[2], u, pooled[2], out;
  HARK_TRY(hark_tensor_wrap(s->lab->context, s->x, HARK_F64, 2, x_shape, NULL, &x));
  HARK_TRY(hark_tensor_wrap(s->lab->context, s->map, HARK_F64, 2, map_shape, NULL, &map));
  HARK_TRY(hark_tensor_wrap(s->lab->context, s->offsets, HARK_I64, 1, &offsets_shape, NULL, &offsets));
  hark_tape_reset(s->tape);
  HARK_TRY(hark_tape_leaf(s->tape, &x, NULL, &inputs[0]));
  HARK_TRY(hark_tape_leaf(s->tape, &map, NULL, &inputs[1]));
  HARK_TRY(hark_tape_leaf(s->tape, &offsets, NULL, &pooled[1]));
  HARK_TRY(hark_tape_apply(s->tape, &hark_op_linear, NULL, 2, inputs, 0, &u));
  pooled[0] = u;
  HARK_TRY(hark_tape_apply(s->tape, &hark_op_segment_pool, &average, 2, pooled, 0, &out));
  return hark_tensor_read(s->lab->context, hark_tape_tensor(s->tape, out), s->features);
}

/* R^2 on the second half of the map that is best on the first. Both means are zero. */
static hark_status decode_noise(const noise *s, int64_t count, double *out) {
  const int64_t outputs = (int64_t)ROWS * WIDTH;
  for (int64_t i = 0; i < count * count; i++) s->gram[i] = 0;
  for (int64_t i = 0; i < count * outputs; i++) s->cross[i] = 0;
  for (int64_t n = 0; n < s->chunks; n++)
    for (int64_t i = 0; i < count; i++) {
      const double f = s->features[n * count + i];
      for (int64_t j = 0; j <= i; j++) s->gram[i * count + j] += f * s->features[n * count + j];
      for (int64_t o = 0; o < outputs; o++) s->cross[i * outputs + o] += f * s->x[n * outputs + o];
    }
  for (int64_t i = 0; i < count; i++) s->gram[i * count + i] += RIDGE * (double)s->chunks;
  if (!hark_lab_cholesky(count, s->gram)) return hark_fail(s->lab->context, HARK_INTERNAL_ERROR, "ahca-information: dependent features");
  hark_lab_cholesky_solve(count, s->gram, outputs, s->cross);
  double wrong = 0, all = 0;
  for (int64_t n = s->chunks; n < 2 * s->chunks; n++)
    for (int64_t o = 0; o < outputs; o++) {
      double decoded = 0;
      for (int64_t i = 0; i < count; i++) decoded += s->features[n * count + i] * s->cross[i * outputs + o];
      wrong += (s->x[n * outputs + o] - decoded) * (s->x[n * outputs + o] - decoded);
      all += s->x[n * outputs + o] * s->x[n * outputs + o];
    }
  *out = 1 - wrong / all;
  return HARK_OK;
}

static hark_status open_noise(hark_lab *lab, hark_tape *tape, noise *s) {
  const int64_t largest = (int64_t)8 * 2 * WIDTH;
  void *memory;
  *s = (noise){.lab = lab, .tape = tape, .chunks = lab->quick ? 4096 : 12288};
  HARK_TRY(hark_lab_draw_normal(lab, 0xFE0000, 2 * s->chunks * ROWS * WIDTH, 1, &s->x));
  HARK_TRY(hark_lab_draw_normal(lab, 0xFE0001, (int64_t)2 * WIDTH * WIDTH, 1, &s->map));
  HARK_TRY(hark_lab_numbers(lab, 2 * s->chunks * largest, &s->features));
  HARK_TRY(hark_lab_numbers(lab, largest * largest, &s->gram));
  HARK_TRY(hark_lab_numbers(lab, largest * ROWS * WIDTH, &s->cross));
  HARK_TRY(hark_lab_allocate(lab, (size_t)(2 * s->chunks + 1) * sizeof(int64_t), &memory));
  s->offsets = memory;
  for (int64_t k = 0; k <= 2 * s->chunks; k++) s->offsets[k] = k * ROWS;
  return HARK_OK;
}

static hark_status fill_noise(hark_lab *lab, hark_tape *tape, hark_lab_table *table) {
  noise s;
  HARK_TRY(open_noise(lab, tape, &s));
  for (int64_t slots = 1; slots <= 8; slots *= 2)
    for (int64_t width = WIDTH / 2; width <= (int64_t)2 * WIDTH; width *= 2) {
      double row[NOISE_COLUMNS] = {(double)slots, (double)width};
      HARK_TRY(compress_noise(&s, slots, width));
      HARK_TRY(decode_noise(&s, slots * width, &row[MEASURED]));
      row[PREDICTED] = (double)(slots * hark_min(width, WIDTH)) / (ROWS * WIDTH);
      HARK_TRY(hark_lab_add_row(lab, table, row));
    }
  return HARK_OK;
}

static hark_status study_noise(hark_lab *lab) {
  hark_lab_table *table;
  hark_tape *tape;
  HARK_TRY(hark_lab_add_table(lab, "white noise, m = 16 rows of d = 8", noise_columns, NOISE_COLUMNS, &table));
  HARK_TRY(hark_tape_create(lab->context, &tape));
  const hark_status status = fill_noise(lab, tape, table);
  hark_tape_destroy(&tape);
  return status;
}

/* ---- a needle ---- */

#define NEEDLE_QUICK_STEPS 1000
#define NEEDLE_TESTS 16

enum { SCORE, NORM, RANDOM, SELECTIONS };
enum { SELECTION, NEEDLE_SEED, ACCURACY, SELECTED, NEEDLE_COLUMNS };
static const hark_lab_column needle_columns[NEEDLE_COLUMNS] = {{"selection", NULL, "learned score|norm|random"},
                                                               {"training", NULL, NULL},
                                                               {"accuracy", "of chunks", NULL},
                                                               {"needle selected", "fraction", NULL}};

static hark_status study_needle(hark_lab *lab) {
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "one token of 512, through 4 of 32 global tokens", needle_columns, NEEDLE_COLUMNS, &table));
  for (int selection = 0; selection < SELECTIONS; selection++)
    for (int seed = 0; seed < (lab->quick ? 1 : FULL_SEEDS); seed++) {
      const hark_lab_study study = {.run = (uint32_t)(selection * FULL_SEEDS + seed),
                                    .steps = lab->quick ? NEEDLE_QUICK_STEPS : HARK_LAB_NEEDLE_STEPS,
                                    .tests = NEEDLE_TESTS};
      hark_lab_ahca_config config = hark_lab_needle_config();
      hark_lab_needle_result result;
      if (selection != SCORE) config.model.ahca.select = HARK_AHCA_SELECT_NORM;
      config.random_selection = selection == RANDOM;
      HARK_TRY(hark_lab_learn_needle(lab, &config, &study, &result));
      const double row[NEEDLE_COLUMNS] = {selection, seed, result.accuracy, result.selected};
      HARK_TRY(hark_lab_add_row(lab, table, row));
    }
  return HARK_OK;
}

/* ---- a text ---- */

#define CHUNK 16
#define WINDOW 256
#define WINDOWS 4
#define TEXT_FULL_STEPS 1200
#define TEXT_QUICK_STEPS 800
#define TEXT_PEAK 4e-3
#define TEXT_DEVIATION 1 /* of embeddings */
#define TEXT_TESTS 8
#define TEXT_RUNS 64 /* where the numbers of these networks begin */

enum { SLOTS, TEXT_SEED, LOSS, EXCHANGED, ENTROPY, TEXT_COLUMNS };
static const hark_lab_column text_columns[TEXT_COLUMNS] = {{"C1", "slots of 16 letters", NULL},
                                                           {"training", NULL, NULL},
                                                           {"cross-entropy", "nats per letter", NULL},
                                                           {"slots exchanged", "nats per letter", NULL},
                                                           {"single letters", "nats", NULL}};

/* A text that is read; `exchanged`: with its chunks in the reverse order, while the targets stay. Without a second level the slots of a
 * chunk depend on its tokens alone, so that these are the slots of other chunks. */
typedef struct reading {
  hark_lab_text_part part;
  bool exchanged;
} reading;

static hark_status draw(hark_lab_ahca *n, uint32_t stream, void *user) {
  reading *const r = user;
  const int64_t chunks = WINDOW / CHUNK;
  HARK_TRY(hark_lab_draw_text(n, stream, &r->part));
  if (!r->exchanged) return HARK_OK;
  for (int64_t t = 0; t < n->tokens; t++) {
    const int64_t in_window = t % WINDOW, other = (chunks - 1 - in_window / CHUNK) * CHUNK + in_window % CHUNK;
    n->host_tokens[t] = n->host_targets[t - in_window + other];
  }
  return HARK_OK;
}

static hark_status test_text(hark_lab_ahca *n, reading *r, bool exchanged, double *out) {
  r->exchanged = exchanged;
  *out = 0;
  for (int i = 0; i < TEXT_TESTS; i++) {
    double loss = 0;
    HARK_TRY(hark_lab_ahca_test(n, (uint32_t)i, draw, r, &loss));
    *out += loss / TEXT_TESTS;
  }
  return HARK_OK;
}

static hark_status read_text(hark_lab *lab, hark_lab_ahca *n, reading *r, double *row) {
  r->part.held_out = r->exchanged = false;
  HARK_TRY(hark_lab_ahca_train(n, lab->quick ? TEXT_QUICK_STEPS : TEXT_FULL_STEPS, TEXT_PEAK, draw, r, NULL));
  r->part.held_out = true;
  HARK_TRY(test_text(n, r, false, &row[LOSS]));
  return test_text(n, r, true, &row[EXCHANGED]);
}

static hark_status learn_text(hark_lab *lab, reading *r, int64_t slots, int seed, hark_lab_table *table) {
  hark_lab_ahca_config config = {
      .model = hark_lab_ahca_model(WINDOW, r->part.text.letters, 32, 2, 1), .sequences = WINDOWS, .rows = WINDOW};
  config.model.positions = HARK_POSITIONS_LEARNED;
  config.model.embedding_deviation = TEXT_DEVIATION;
  config.model.ahca.head = HARK_AHCA_HEAD_RECONSTRUCTION;
  config.model.ahca.chunk_size = CHUNK;
  config.model.ahca.primary_depth = 2;
  config.model.ahca.primary_slots = slots;
  double row[TEXT_COLUMNS] = {(double)slots, seed, 0, 0, r->part.text.entropy};
  hark_lab_ahca network;
  hark_status status = hark_lab_ahca_open(lab, &config, (uint32_t)(TEXT_RUNS + slots * FULL_SEEDS + seed), &network);
  if (status == HARK_OK) status = read_text(lab, &network, r, row);
  hark_lab_ahca_close(&network);
  return status != HARK_OK ? status : hark_lab_add_row(lab, table, row);
}

static hark_status study_text(hark_lab *lab, reading *r) {
  static const hark_lab_axes axes = {
      .title = "a text, from the slots of its chunks", .x = "C1 (slots of 16 letters)", .y = "nats per letter", .log_x = true};
  hark_lab_table *table;
  hark_lab_panel *panel;
  hark_lab_curve *loss, *entropy;
  HARK_TRY(hark_lab_add_table(lab, "reconstruction of a text from slots and positions", text_columns, TEXT_COLUMNS, &table));
  for (int64_t slots = 1; slots <= 8; slots *= 2)
    for (int seed = 0; seed < (lab->quick ? 1 : FULL_SEEDS); seed++) HARK_TRY(learn_text(lab, r, slots, seed, table));
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &loss, "cross-entropy"));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &entropy, "single letters"));
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    HARK_TRY(hark_lab_add_point(loss, row[SLOTS], row[LOSS]));
    HARK_TRY(hark_lab_add_point(entropy, row[SLOTS], row[ENTROPY]));
  }
  return HARK_OK;
}

/* ---- all ---- */

static hark_status check(hark_context *context, const void *own) {
  const information_values *const values = own;
  hark_path_kind kind;
  if (values->data[0] == 0) return HARK_OK;
  HARK_TRY(hark_path_examine(context, values->data, &kind));
  return kind != HARK_PATH_NONE ? HARK_OK : hark_fail(context, HARK_NOT_FOUND, "%s: there is no such file", values->data);
}

static hark_status measure(hark_lab *lab) {
  const information_values *const values = lab->options;
  reading r = {.exchanged = false};
  HARK_TRY(hark_lab_text_read(lab, values != NULL ? values->data : "", WINDOW, &r.part.text)); /* what can fail comes first */
  HARK_TRY(study_noise(lab));
  HARK_TRY(study_needle(lab));
  return study_text(lab, &r);
}

static double mean_of(const hark_lab_table *table, int key, double value, int column) {
  hark_lab_mean mean = {0};
  for (int64_t i = 0; i < hark_lab_row_count(table); i++)
    if (hark_lab_row(table, i)[key] == value) hark_lab_mean_add(&mean, hark_lab_row(table, i)[column]);
  return mean.count > 0 ? mean.mean : NAN;
}

/* .01, .90, .95, .25, one half and .98 were fixed beforehand. Least squares of f features on n chunks lose f / n of what is not explained,
 * .003 with full draws and .01 with quick ones. Quick learns one seed, needles for 2/5 and texts for 2/3 as long: .6 in place of one half;
 * and .4, above what random selection may have, of the norm. The norm's bound was met by an earlier network, and is not by the model. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const noise_table = &lab->tables[NOISE], *const needle = &lab->tables[NEEDLE], *const text = &lab->tables[TEXT];
  double away = 0, growth = 0, exchanged = INFINITY;
  for (int64_t i = 0; i < hark_lab_row_count(noise_table); i++) {
    const double *const row = hark_lab_row(noise_table, i);
    away = hark_lab_larger(away, fabs(row[MEASURED] - row[PREDICTED]));
  }
  for (int slots = 2; slots <= 8; slots *= 2)
    growth = hark_lab_larger(growth, mean_of(text, SLOTS, slots, LOSS) / mean_of(text, SLOTS, slots / 2.0, LOSS));
  for (int64_t i = 0; i < hark_lab_row_count(text); i++)
    exchanged = hark_lab_smaller(exchanged, hark_lab_row(text, i)[EXCHANGED] / hark_lab_row(text, i)[ENTROPY]);
  const double least = mean_of(text, SLOTS, 8, LOSS) / mean_of(text, SLOTS, 8, ENTROPY);
  HARK_TRY(hark_lab_require(lab, away, 0, lab->quick ? 0.02 : 0.01, "white noise: R^2 - C1 min(d', d) / (m d), largest"));
  HARK_TRY(hark_lab_require(lab, mean_of(needle, SELECTION, SCORE, ACCURACY), 0.9, 1, "needle, learned selection: accuracy"));
  HARK_TRY(
      hark_lab_require(lab, mean_of(needle, SELECTION, NORM, ACCURACY), lab->quick ? 0.4 : 0.95, 1, "needle, selection by norm: accuracy"));
  HARK_TRY(hark_lab_require(lab, mean_of(needle, SELECTION, RANDOM, ACCURACY), 0, 0.25, "needle, random selection: accuracy"));
  HARK_TRY(hark_lab_require(lab, growth, 0, 1, "text: cross-entropy with 2 C1 slots / with C1, largest"));
  HARK_TRY(hark_lab_require(lab, least, 0, lab->quick ? 0.6 : 0.5, "text: cross-entropy with 8 slots / entropy of single letters"));
  return hark_lab_require(lab, exchanged, 0.98, INFINITY, "text: cross-entropy with slots exchanged / entropy of single letters, least");
}

const hark_experiment hark_experiment_ahca_information = {
    .summary = "what compression keeps of noise, of one token among 512, and of a text",
    .paper = HARK_LAB_PAPER_AHCA "sections 10.2.2 and 12.2",
    .statement =
        "A linear decoder recovers C1 min(d', d) of the m d dimensions of noise. One token reaches all chunks through "
        "4 of 32 global tokens, if the 4 are selected by a learned score or by their norm. If they are selected at "
        "random, it does not. A text is reconstructed better if chunks have more slots. It is not reconstructed from "
        "the slots of other chunks",
    .printed = "hierarchical compression preserves the essential information (10.2.2, 12.2), which is also the premise of its proof",
    .corrected =
        "C1 d' of the M_k d numbers are kept. This is all information if the data have at most C1 d' degrees of freedom, "
        "and a part of the information if they have more",
    .notes =
        "    R^2 = C1 min(d', d) / (m d)      m = 16, d = 8, white noise, least squares\n"
        "\n"
        "*Noise.* A chunk has m rows of d numbers. A linear map gives every row d' numbers, and C1 averages of these "
        "rows are kept.\n"
        "\n"
        "*Needle.* The sequence has M = 512 tokens in chunks of 16. The tokens of every chunk are pooled into C1 = 2 "
        "slots by attention. Of C2 = 32 global tokens, Cs = 4 are selected. The last token of every chunk predicts the "
        "one label of the sequence. The bound of selection by norm was fixed for an earlier network, which met it. It "
        "predicted with one linear layer on the mean of a chunk's slots.\n"
        "\n"
        "*Text.* Chunks have 16 letters. For every letter there is a query, which consists of the position of the "
        "letter and the number of its chunk. The query attends to the slots of this chunk. There is no second level, "
        "so predictions use the slots alone. For the criterion on exchanged slots, the network reads the text with its "
        "chunks in reverse order. It predicts the text in the original order. The last tenth of the text is held out. "
        "Without `--data` the text consists of the descriptions of the experiments of `hark lab`.\n"
        "\n"
        "*Trainings.* In the full experiment every network is trained three times, with different initial weights and "
        "different data, which for the text are other windows of the same text (column `training`). The criteria on the needle are about "
        "means over these trainings. The "
        "first two criteria on the text compare such means. The third has the least value of all trainings.\n"
        "\n"
        "*Figure.* Cross-entropy of the text over the slots of a chunk.",
    .failure_of = "selection by norm",
    .failure =
        "The part of the statement about norms does not hold. With selection by norm, the accuracy is below that of "
        "random selection. Selection by norm has no gradient. The needle's norm grows only if the rest of the network "
        "learns from the few sequences in which the needle is selected by chance. How soon this happens depends on the "
        "layers between the slots and the prediction. Each of the following accuracies comes from a single trial of "
        "2500 steps, with RMS norms and biases. With the head of this experiment, which predicts from the last token "
        "of every chunk, accuracy was .06. Then one part of this head was changed at a time. Accuracy was .17 if the "
        "query was not added to the result of attention, .45 with one linear layer in place of two, and .62 without "
        "attention to the selected tokens. In the last trial, one linear layer on the mean of a chunk's slots replaced "
        "the whole head, and accuracy was 1. With other norms and without biases it was .94 to 1. The learned score "
        "does not depend on the head in this way, because its gradient comes through the logits of attention.",
    .trains = true,
    .check = check,
    .measure = measure,
    .judge = judge};
