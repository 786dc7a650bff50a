/* ahca_figures.c - figures 1 to 6 of the paper, from a network that has learned something.
 *
 * It reads a text in chunks with learned boundaries and reconstructs it from the slots of its chunks and positions; with a second level, a
 * selection and layers for some of the chunks:
 *
 *     M = 132 letters -> chunks of about 8, C1 = 2 -> C2 = 16 -> Cs = 4 selected -> 4 layers on half of the chunks, one on the others
 *
 * The figures show one held-out passage. The weights of figures 2 and 3 are those that the operator segment_pool makes of the identity with
 * the run's boundaries, so that every row of them adds up to one. Source: A, figures 1 to 6.
 */
#include <hark/experimental.h>
#include <stdio.h>

#include "lab/ahca_tasks.h"
#include "lab/tables.h"

#define ACROSS 12
#define DOWN 11
#define LETTERS ((int64_t)ACROSS * DOWN)
#define CHUNK 8
#define LONGEST (4 * CHUNK) /* of a learned chunk */
#define SLOTS 2
#define LAYERS 4
#define DEVIATION 1 /* of embeddings */
#define SECONDARY 16
#define SELECTED 4
#define CAPACITY 0.5
#define RATIO_WEIGHT 0.5 /* more slots reconstruct better, and the price of boundaries has to balance that */
#define SEQUENCES 4
#define FULL_STEPS 1000
#define QUICK_STEPS 300
#define PEAK 1e-2
#define TESTS 8
#define SHOWN 24 /* rows and columns of the figures of weights */

enum { CHUNKS, GLOBAL, RUN, POOLING };
enum { NUMBER, FIRST, ROWS, PROBABILITY, DEPTH, CHUNK_COLUMNS };
static const hark_lab_column chunk_columns[CHUNK_COLUMNS] = {{"chunk", NULL, NULL},
                                                             {"first letter", NULL, NULL},
                                                             {"letters", NULL, NULL},
                                                             {"p", "of its boundary", NULL},
                                                             {"depth", "layers", NULL}};

enum { TOKEN, SCORE, CHOSEN, GLOBAL_COLUMNS };
static const hark_lab_column global_columns[GLOBAL_COLUMNS] = {
    {"global token", NULL, NULL}, {"score", NULL, NULL}, {"selected", "1: yes", NULL}};

enum { LOSS, ENTROPY, RUN_COLUMNS };
static const hark_lab_column run_columns[RUN_COLUMNS] = {{"cross-entropy", "nats per letter", NULL}, {"single letters", "nats", NULL}};

enum { LEVEL, LEAST_SUM, LARGEST_SUM, POOLING_COLUMNS };
static const hark_lab_column pooling_columns[POOLING_COLUMNS] = {
    {"compression", NULL, "primary|secondary"}, {"sum of weights", "least", NULL}, {"sum of weights", "largest", NULL}};

/* The passage, and what the network made of it. */
typedef struct passage {
  hark_lab *lab;
  hark_lab_text_part reading;
  hark_lab_ahca network;
  int64_t *chunk_rows, *chunk_offsets; /* of all sequences */
  int64_t chunks;                      /* of the passage, which is the first sequence */
  float *probability, *score;
  int32_t *depth, *index;
} passage;

static hark_status room(const passage *s, int64_t count, size_t element, void *out) {
  void *memory;
  HARK_TRY(hark_lab_allocate(s->lab, (size_t)count * element, &memory));
  *(void **)out = memory;
  return HARK_OK;
}

/* The numbers of a value of the pass. */
static hark_status read_value(passage *s, hark_value value, size_t element, void *out) {
  HARK_TRY(room(s, hark_lab_ahca_length(&s->network, value), element, out));
  return hark_lab_ahca_read(&s->network, value, *(void **)out);
}

static hark_status read_passage(passage *s) {
  const hark_ahca_trace *trace = &s->network.trace;
  HARK_TRY(read_value(s, trace->chunks, sizeof(int64_t), &s->chunk_rows));
  HARK_TRY(read_value(s, trace->sequences, sizeof(int64_t), &s->chunk_offsets));
  HARK_TRY(read_value(s, trace->probability, sizeof(float), &s->probability));
  HARK_TRY(read_value(s, trace->score, sizeof(float), &s->score));
  HARK_TRY(read_value(s, trace->depth, sizeof(int32_t), &s->depth));
  HARK_TRY(read_value(s, trace->selected, sizeof(int32_t), &s->index));
  s->chunks = s->chunk_offsets[1];
  return HARK_OK;
}

/* ---- figures ---- */

static hark_status add_cell(hark_lab_panel *panel, double column, double row, double shade, const char *label) {
  hark_lab_cell cell = {column, column + 1, row, row + 1, shade, ""};
  (void)snprintf(cell.label, sizeof cell.label, "%s", label);
  return hark_lab_add_cell(panel, &cell);
}

/* Letters in reading order; chunks are shaded in turn. */
static hark_status draw_text(const passage *s) {
  static const hark_lab_axes axes = {.title = "1. chunks of a text", .x = "letters", .y = "lines", .is_map = true};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  for (int64_t k = 0; k < s->chunks; k++)
    for (int64_t t = s->chunk_rows[k]; t < s->chunk_rows[k + 1]; t++) {
      const unsigned char letter = s->reading.text.letter[s->network.host_tokens[t]];
      const bool shown = letter >= 0x20 && letter < 0x7F && letter != '\''; /* which gnuplot cannot have alone between quotes */
      const char label[] = {shown ? (char)letter : ' ', 0};
      HARK_TRY(add_cell(panel, (double)(t % ACROSS), (double)(t / ACROSS), k % 2 == 0 ? 0.1 : 0.6, label));
    }
  return HARK_OK;
}

/* y [S, slots, rows] <- segment_pool of the identity of `rows`, with the segments of `offsets` [S + 1]. */
static hark_status pool_identity(const passage *s, int64_t rows, int64_t segments, int64_t *offsets, hark_segment_pool_attributes pool,
                                 double *y) {
  const int64_t shape[] = {rows, rows}, ends = segments + 1;
  hark_tensor identity, list;
  hark_tape *tape;
  hark_value inputs[2], out;
  double *numbers;
  HARK_TRY(hark_lab_numbers(s->lab, rows * rows, &numbers));
  for (int64_t i = 0; i < rows; i++) numbers[i * rows + i] = 1;
  HARK_TRY(hark_tensor_wrap(s->lab->context, numbers, HARK_F64, 2, shape, NULL, &identity));
  HARK_TRY(hark_tensor_wrap(s->lab->context, offsets, HARK_I64, 1, &ends, NULL, &list));
  HARK_TRY(hark_tape_create(s->lab->context, &tape));
  hark_status status = hark_tape_leaf(tape, &identity, NULL, &inputs[0]);
  if (status == HARK_OK) status = hark_tape_leaf(tape, &list, NULL, &inputs[1]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_segment_pool, &pool, 2, inputs, 0, &out);
  if (status == HARK_OK) status = hark_tensor_read(s->lab->context, hark_tape_tensor(tape, out), y);
  hark_tape_destroy(&tape);
  return status;
}

/* The first `shown` rows of weights [pooled, rows], and the sums of all of them. */
static hark_status draw_weights(const passage *s, const hark_lab_axes *axes, int level, int64_t pooled, int64_t rows,
                                const double *weights) {
  hark_lab_panel *panel;
  double row[POOLING_COLUMNS] = {level, INFINITY, -INFINITY};
  HARK_TRY(hark_lab_add_panel(s->lab, *axes, &panel));
  for (int64_t i = 0; i < pooled; i++) {
    double sum = 0;
    for (int64_t n = 0; n < rows; n++) {
      sum += weights[i * rows + n];
      if (i < SHOWN && n < SHOWN && weights[i * rows + n] > 0) HARK_TRY(add_cell(panel, (double)n, (double)i, weights[i * rows + n], ""));
    }
    row[LEAST_SUM] = hark_lab_smaller(row[LEAST_SUM], sum);
    row[LARGEST_SUM] = hark_lab_larger(row[LARGEST_SUM], sum);
  }
  return hark_lab_add_row(s->lab, &s->lab->tables[POOLING], row);
}

static hark_status draw_compression(const passage *s) {
  static const hark_lab_axes primary = {.title = "2. primary compression: slots of letters", .x = "letter", .y = "slot", .is_map = true};
  static const hark_lab_axes secondary = {
      .title = "3. secondary compression: global tokens of slots", .x = "slot", .y = "global token", .is_map = true};
  const int64_t slots = s->chunks * SLOTS, global = hark_min(SECONDARY, slots);
  int64_t of_slots[] = {0, s->chunks};
  double *weights;
  HARK_TRY(hark_lab_numbers(s->lab, hark_max(slots * LETTERS, SECONDARY * slots), &weights));
  HARK_TRY(pool_identity(s, LETTERS, s->chunks, s->chunk_rows,
                         (hark_segment_pool_attributes){HARK_SEGMENT_POOL_AVERAGE, SLOTS, 0, false, 0}, weights));
  HARK_TRY(draw_weights(s, &primary, 0, slots, LETTERS, weights));
  HARK_TRY(
      pool_identity(s, slots, 1, of_slots, (hark_segment_pool_attributes){HARK_SEGMENT_POOL_AVERAGE, SECONDARY, SLOTS, true, 0}, weights));
  return draw_weights(s, &secondary, 1, global, slots, weights);
}

static bool is_chosen(const passage *s, int64_t token) {
  for (int i = 0; i < SELECTED; i++)
    if (s->index[i] == token) return true;
  return false;
}

static hark_status draw_selection(const passage *s) {
  static const hark_lab_axes axes = {.title = "4. selected global tokens", .x = "global token", .y = "score"};
  const int64_t global = hark_min(SECONDARY, s->chunks * SLOTS);
  hark_lab_panel *panel;
  hark_lab_curve *all, *chosen;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_LINE, &all, "score"));
  HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_POINTS, &chosen, "selected"));
  for (int64_t i = 0; i < global; i++) {
    const double row[GLOBAL_COLUMNS] = {(double)i, (double)s->score[i], is_chosen(s, i)};
    HARK_TRY(hark_lab_add_row(s->lab, &s->lab->tables[GLOBAL], row));
    HARK_TRY(hark_lab_add_point(all, row[TOKEN], row[SCORE]));
    if (row[CHOSEN] != 0) HARK_TRY(hark_lab_add_point(chosen, row[TOKEN], row[SCORE]));
  }
  return HARK_OK;
}

/* A column a chunk, a row a layer. */
static hark_status draw_depth(const passage *s) {
  static const hark_lab_axes axes = {.title = "5. layers of chunks", .x = "chunk", .y = "layer", .is_map = true};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  for (int64_t k = 0; k < s->chunks; k++) {
    const double row[CHUNK_COLUMNS] = {(double)k, (double)s->chunk_rows[k], (double)(s->chunk_rows[k + 1] - s->chunk_rows[k]),
                                       (double)s->probability[s->chunk_rows[k]], s->depth[k]};
    HARK_TRY(hark_lab_add_row(s->lab, &s->lab->tables[CHUNKS], row));
    for (int l = 0; l < LAYERS; l++) HARK_TRY(add_cell(panel, (double)k, l, l < s->depth[k] ? 0.8 : 0, ""));
  }
  return HARK_OK;
}

/* How many rows there are from letters to layers. */
static hark_status draw_flow(const passage *s) {
  static const hark_lab_axes axes = {
      .title = "6. rows: letters, slots, global, selected, then each layer's slots", .x = "stage", .y = "rows", .log_y = true};
  const double slots = (double)(s->chunks * SLOTS);
  const double before[] = {LETTERS, slots, fmin(SECONDARY, slots), fmin(SELECTED, slots)};
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  int stage = 0;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_LINE, &curve, "rows"));
  for (; stage < 4; stage++) HARK_TRY(hark_lab_add_point(curve, stage, before[stage]));
  for (int l = 0; l < LAYERS; l++) {
    int64_t chunks = 0;
    for (int64_t k = 0; k < s->chunks; k++) chunks += s->depth[k] > l;
    HARK_TRY(hark_lab_add_point(curve, stage + l, (double)(chunks * SLOTS)));
  }
  return HARK_OK;
}

/* ---- the run ---- */

static hark_status learn(passage *s) {
  hark_lab_ahca *const n = &s->network;
  double row[RUN_COLUMNS] = {0, s->reading.text.entropy};
  hark_lab_table *table;
  HARK_TRY(hark_lab_ahca_train(n, s->lab->quick ? QUICK_STEPS : FULL_STEPS, PEAK, hark_lab_draw_text, &s->reading, NULL));
  s->reading.held_out = true;
  for (int i = 0; i < TESTS; i++) { /* the last one is drawn */
    double loss = 0;
    HARK_TRY(hark_lab_ahca_test(n, (uint32_t)i, hark_lab_draw_text, &s->reading, &loss));
    row[LOSS] += loss / TESTS;
  }
  HARK_TRY(hark_lab_add_table(s->lab, "chunks of the passage", chunk_columns, CHUNK_COLUMNS, &table));
  HARK_TRY(hark_lab_add_table(s->lab, "global tokens of the passage", global_columns, GLOBAL_COLUMNS, &table));
  HARK_TRY(hark_lab_add_table(s->lab, "the run", run_columns, RUN_COLUMNS, &table));
  HARK_TRY(hark_lab_add_row(s->lab, table, row));
  return hark_lab_add_table(s->lab, "weights of averages", pooling_columns, POOLING_COLUMNS, &table);
}

static hark_status draw_all(passage *s) {
  HARK_TRY(learn(s));
  HARK_TRY(read_passage(s));
  HARK_TRY(draw_text(s));
  HARK_TRY(draw_compression(s));
  HARK_TRY(draw_selection(s));
  HARK_TRY(draw_depth(s));
  return draw_flow(s);
}

static hark_lab_ahca_config config_of(int64_t letters) {
  hark_lab_ahca_config config = {.model = hark_lab_ahca_model(LETTERS, letters, 32, 2, LAYERS), .sequences = SEQUENCES, .rows = LETTERS};
  hark_ahca_config *const ahca = &config.model.ahca;
  config.model.positions = HARK_POSITIONS_LEARNED;
  config.model.embedding_deviation = DEVIATION;
  ahca->head = HARK_AHCA_HEAD_RECONSTRUCTION;
  ahca->chunk = HARK_AHCA_CHUNK_LEARNED;
  ahca->chunk_size = CHUNK;
  ahca->chunk_minimum = 1;
  ahca->chunk_maximum = (int64_t)LONGEST;
  ahca->ratio_weight = RATIO_WEIGHT;
  ahca->primary_depth = 2;
  ahca->primary_slots = SLOTS;
  ahca->secondary_slots = SECONDARY;
  ahca->selected = SELECTED;
  hark_lab_ahca_give_capacity(&config, CAPACITY);
  ahca->ponder_weight = 0.02;
  return config;
}

static hark_status measure(hark_lab *lab) {
  passage s = {.lab = lab};
  HARK_TRY(hark_lab_text_read(lab, "", LETTERS, &s.reading.text));
  const hark_lab_ahca_config config = config_of(s.reading.text.letters);
  hark_status status = hark_lab_ahca_open(lab, &config, 0, &s.network);
  if (status == HARK_OK) status = draw_all(&s);
  hark_lab_ahca_close(&s.network);
  return status;
}

/* Identities, and one bound on the run: a network that has learned to read from slots is below the entropy of single letters (.9 of it,
 * fixed beforehand); the others check that the figures are complete. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const chunks = &lab->tables[CHUNKS], *const global = &lab->tables[GLOBAL];
  const double *const run = hark_lab_row(&lab->tables[RUN], 0);
  const int64_t count = hark_lab_row_count(chunks);
  double letters = 0, deep = 0, chosen = 0;
  for (int64_t i = 0; i < count; i++) {
    letters += hark_lab_row(chunks, i)[ROWS];
    deep += hark_lab_row(chunks, i)[DEPTH] - 1;
  }
  for (int64_t i = 0; i < hark_lab_row_count(global); i++) chosen += hark_lab_row(global, i)[CHOSEN];
  HARK_TRY(hark_lab_require(lab, run[LOSS] / run[ENTROPY], 0, 0.9, "cross-entropy of the text / entropy of single letters"));
  HARK_TRY(hark_lab_require(lab, letters, LETTERS, LETTERS, "letters in chunks"));
  HARK_TRY(hark_lab_require_range(lab, hark_lab_column_range(chunks, ROWS, HARK_LAB_ALONE), 1, LONGEST, "letters of a chunk"));
  HARK_TRY(hark_lab_require(lab, chosen, SELECTED, SELECTED, "selected global tokens"));
  HARK_TRY(hark_lab_require(lab, deep - (LAYERS - 1) * ceil(CAPACITY * (double)count), 0, 0,
                            "(layers beyond the first, summed over K chunks) - 3 ceil(K / 2)"));
  for (int64_t level = 0; level < 2; level++) {
    const double *const sums = hark_lab_row(&lab->tables[POOLING], level);
    const hark_lab_range range = {sums[LEAST_SUM], sums[LARGEST_SUM]};
    HARK_TRY(hark_lab_require_range(lab, range, 1 - 1e-12, 1 + 1e-12,
                                    level == 0 ? "primary compression: sum of weights" : "secondary compression: sum of weights"));
  }
  return HARK_OK;
}

const hark_experiment hark_experiment_ahca_figures = {
    .summary = "the paper's figures 1 to 6, drawn from a network that has learned a text",
    .paper = HARK_LAB_PAPER_AHCA "figures 1 to 6",
    .statement =
        "A network has learned to reconstruct a text from a few vectors (slots) for each chunk. The figures show the "
        "chunks into which the network cuts a passage, both compressions, the selected tokens, the layers of every "
        "chunk, and the rows of every stage",
    .notes =
        "    M = 132 letters -> learned chunks, 2 slots per chunk (C1) -> 16 global tokens (C2) -> 4 selected (Cs) -> "
        "four layers on half of the chunks, one on the others\n"
        "\n"
        "The text consists of the descriptions of the experiments of `hark lab`. The passage in the figures is held out "
        "from training. For the weights in figures 2 and 3, `segment_pool` is applied to the identity matrix, with the "
        "chunk boundaries that the network chose in the passage. They are the weights of plain averages: the smoothing "
        "of chunks is left out.\n"
        "\n"
        "*Figure.* 1: letters in reading order, with alternating shades for the chunks. 2: the weights of the first "
        "letters in the first slots. 3: the weights of slots in global tokens. 4: the scores of the global tokens, "
        "with marks at the selected ones. 5: the layers of every chunk. 6: the number of rows at every stage.",
    .trains = true,
    .measure = measure,
    .judge = judge};
