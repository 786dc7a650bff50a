/* ahca_depth.c - depth that follows need: chunks that need more steps go through more layers.
 *
 * A chunk is a flag and a map f of 8 symbols (task `maps` of ahca_tasks.h), whose last token predicts f(0) in three of four chunks, one
 * layer's work, and f(f(f(f(0)))) in the fourth, which has a flag. Of 4 layers, the last three run on a quarter of the chunks (capacity
 * 1/4), so that the mean depth is 1.75. A learned score selects the quarter, or a random one. Accuracy of a random quarter: 1/4 correct,
 * and of the others what one layer can predict.
 *
 * Why four steps. The last token attends to the slots of its chunk, which is a step as well. After one layer the slot of each symbol j has
 * f(f(j)), and, by another head of attention, whether f(0) = j. The head of tokens attends to the slot with f(0) = j, and has f(f(f(0))).
 * Trained that way, one layer predicts all maps that are followed three times. With four steps it can predict the maps in which 0, f(0),
 * f(f(0)), f(f(f(0))) repeat themselves, which are 1 - 7 6 5 / 8^3 = .59 of the maps; of the others it predicts some by chance.
 *
 * The paper's own rule, L_k = floor(a_k / max a * L) with a the norm of a chunk's row, is shown on rows of d standard normal numbers: a
 * norm has a relative deviation of 1 / sqrt(2 d), so that a_k / max a comes to 1 as d grows. Source: A, sections 3.4, 5.4 and 11.5;
 * capacities: arXiv 2404.02258.
 */
#include <hark/experimental.h>

#include "lab/ahca_tasks.h"
#include "lab/fit.h"

#define FULL_SEEDS 3
#define QUICK_STEPS 750 /* of random depth: four steps are not learned in less than a full training */
#define FULL_TESTS 8
#define QUICK_TESTS 4
#define PAPER_CHUNKS 64
#define PAPER_LAYERS 4
#define LEAST_WIDTH 8
#define LARGEST_WIDTH 512

enum { LEARNED, RANDOM, WAYS };
enum { WAY, SEED, EASY, HARD, DEEP, DEPTH, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"depth", NULL, "learned|random"},    {"training", NULL, NULL},
                                                 {"easy", "accuracy", NULL},           {"hard", "accuracy", NULL},
                                                 {"hard ones deep", "fraction", NULL}, {"mean depth", "layers", NULL}};

enum { OPERATIONS, FULL_OPERATIONS, SAVED };
static const hark_lab_column saved_columns[SAVED] = {{"operations of the layers", "forward", NULL}, {"all chunks, all layers", NULL, NULL}};

enum { WIDTH, FULL_LAYERS, ONE_LESS, FEWER, PAPER_COLUMNS };
static const hark_lab_column paper_columns[PAPER_COLUMNS] = {
    {"d", NULL, NULL}, {"4 layers", "fraction of chunks", NULL}, {"3 layers", NULL, NULL}, {"fewer", NULL, NULL}};

enum { TRAINED, COUNTED, PAPER };

static hark_status train_all(hark_lab *lab, hark_lab_table *table) {
  for (int seed = 0; seed < (lab->quick ? 1 : FULL_SEEDS); seed++)
    for (int way = 0; way < WAYS; way++) {
      const hark_lab_study study = {.run = (uint32_t)(way * FULL_SEEDS + seed),
                                    .steps = lab->quick && way == RANDOM ? QUICK_STEPS : HARK_LAB_MAPS_STEPS,
                                    .tests = lab->quick ? QUICK_TESTS : FULL_TESTS};
      hark_lab_ahca_config config = hark_lab_maps_config();
      hark_lab_maps_result result;
      config.random_depth = way == RANDOM;
      HARK_TRY(hark_lab_learn_maps(lab, &config, &study, &result));
      const double row[COLUMNS] = {way, seed, result.easy, result.hard, result.deep, result.depth};
      HARK_TRY(hark_lab_add_row(lab, table, row));
    }
  return HARK_OK;
}

/* Operations of the layers on a batch. Networks of one layer and of all differ by layers 2 .. 4, a third of which is as much as the
 * first. */
static hark_status count_layers(hark_lab *lab, double *operations, double *all) {
  enum { ONE, WITH_CAPACITY, EVERY, NETWORKS };
  double counts[NETWORKS];
  for (int network = 0; network < NETWORKS; network++) {
    hark_lab_ahca_config config = hark_lab_maps_config();
    if (network == ONE) config.model.layers = 1;
    if (network != WITH_CAPACITY) hark_lab_ahca_give_capacity(&config, 1);
    HARK_TRY(hark_lab_ahca_operations(lab, &config, &counts[network]));
  }
  const double first = (counts[EVERY] - counts[ONE]) / (HARK_LAB_MAPS_LAYERS - 1);
  *all = HARK_LAB_MAPS_LAYERS * first;
  *operations = first + counts[WITH_CAPACITY] - counts[ONE];
  return HARK_OK;
}

/* Depths by the paper's rule of chunks with rows of `width` normal numbers. */
static hark_status paper_depths(hark_lab *lab, hark_tape *tape, const double *numbers, int64_t width, int32_t *depth) {
  const hark_chunk_depth_attributes rule = {.rule = HARK_DEPTH_PAPER, .layers = PAPER_LAYERS};
  const int64_t shape[] = {PAPER_CHUNKS, width}, ends = 2;
  int64_t offsets[] = {0, PAPER_CHUNKS};
  hark_tensor rows, sequences;
  hark_value x, inputs[2], out;
  HARK_TRY(hark_tensor_wrap(lab->context, (void *)(uintptr_t)numbers, HARK_F64, 2, shape, NULL, &rows));
  HARK_TRY(hark_tensor_wrap(lab->context, offsets, HARK_I64, 1, &ends, NULL, &sequences));
  hark_tape_reset(tape);
  HARK_TRY(hark_tape_leaf(tape, &rows, NULL, &x));
  HARK_TRY(hark_tape_leaf(tape, &sequences, NULL, &inputs[1]));
  HARK_TRY(hark_tape_apply(tape, &hark_op_row_norm, NULL, 1, &x, 0, &inputs[0]));
  HARK_TRY(hark_tape_apply(tape, &hark_op_chunk_depth, &rule, 2, inputs, 0, &out));
  return hark_tensor_read(lab->context, hark_tape_tensor(tape, out), depth);
}

static hark_status show_paper_rule(hark_lab *lab, hark_tape *tape) {
  const int draws = lab->quick ? 4 : 32;
  hark_lab_table *table;
  int32_t depth[PAPER_CHUNKS];
  HARK_TRY(
      hark_lab_add_table(lab, "the paper's rule, floor(norm / largest norm * 4), on normal rows", paper_columns, PAPER_COLUMNS, &table));
  for (int64_t width = LEAST_WIDTH; width <= LARGEST_WIDTH; width *= 4) {
    double row[PAPER_COLUMNS] = {(double)width};
    for (int draw = 0; draw < draws; draw++) {
      double *numbers;
      HARK_TRY(hark_lab_draw_normal(lab, (uint32_t)(0xFF0000 + width * 32 + draw), PAPER_CHUNKS * width, 1, &numbers));
      HARK_TRY(paper_depths(lab, tape, numbers, width, depth));
      for (int k = 0; k < PAPER_CHUNKS; k++) {
        const int column = depth[k] == PAPER_LAYERS ? FULL_LAYERS : depth[k] == PAPER_LAYERS - 1 ? ONE_LESS : FEWER;
        row[column] += 1. / (PAPER_CHUNKS * draws);
      }
    }
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

static hark_status draw_figure(hark_lab *lab, const hark_lab_table *table) {
  static const hark_lab_axes axes = {.title = "hard chunks, by training", .x = "training", .y = "accuracy"};
  static const char *const names[WAYS] = {"learned depth", "random depth"};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int way = 0; way < WAYS; way++) {
    hark_lab_curve *curve;
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &curve, "%s", names[way]));
    for (int64_t i = 0; i < hark_lab_row_count(table); i++)
      if (hark_lab_row(table, i)[WAY] == way)
        HARK_TRY(hark_lab_add_point(curve, hark_lab_row(table, i)[SEED], hark_lab_row(table, i)[HARD]));
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  hark_lab_table *table;
  hark_tape *tape;
  double row[SAVED];
  HARK_TRY(hark_lab_add_table(lab, "prediction of f(0) in easy chunks, and of f(f(f(f(0)))) in hard chunks", columns, COLUMNS, &table));
  HARK_TRY(train_all(lab, table));
  HARK_TRY(draw_figure(lab, table));
  HARK_TRY(hark_lab_add_table(lab, "operations", saved_columns, SAVED, &table));
  HARK_TRY(count_layers(lab, &row[OPERATIONS], &row[FULL_OPERATIONS]));
  HARK_TRY(hark_lab_add_row(lab, table, row));
  HARK_TRY(hark_tape_create(lab->context, &tape));
  const hark_status status = show_paper_rule(lab, tape);
  hark_tape_destroy(&tape);
  return status;
}

/* .95, .90 and 5 % were fixed beforehand, and .70 of random depth for three steps; .85 for four is 1/4 and 3/4 of the .8 that
 * ahca_ablations.c allows one layer. Quick is one seed, which may be lower by .15 on the hard ones. The paper's rule was expected to give
 * every chunk the full depth at d = 512. It does not: only the largest norm of a sequence has a_k / max a = 1, and floor() takes all others
 * to L - 1, however near they are. What is judged is therefore 3 or 4 layers, because the rule then hardly distinguishes chunks: norms
 * differ by 3 % (one deviation), the largest of 64 is 7 % above the mean, and a chunk with two layers or one would be 15 deviations
 * away. */
static hark_status judge(hark_lab *lab) {
  hark_lab_mean hard[WAYS] = {{0}}, deep = {0}, depth = {0};
  const hark_lab_table *const table = &lab->tables[TRAINED];
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    hark_lab_mean_add(&hard[(int)row[WAY]], row[HARD]);
    if ((int)row[WAY] == LEARNED) hark_lab_mean_add(&deep, row[DEEP]);
    hark_lab_mean_add(&depth, row[DEPTH]);
  }
  const double *const counts = hark_lab_row(&lab->tables[COUNTED], 0);
  const hark_lab_table *const paper = &lab->tables[PAPER];
  const double *const widest = hark_lab_row(paper, hark_lab_row_count(paper) - 1);
  HARK_TRY(hark_lab_require(lab, hard[LEARNED].mean, lab->quick ? 0.8 : 0.95, 1, "learned depth: accuracy on hard chunks"));
  HARK_TRY(hark_lab_require(lab, deep.mean, lab->quick ? 0.8 : 0.9, 1, "learned depth: hard chunks with all layers"));
  HARK_TRY(hark_lab_require(lab, hard[RANDOM].mean, 0, 0.85, "random depth: accuracy on hard chunks"));
  HARK_TRY(hark_lab_require(lab, depth.mean, 1.75, 1.75, "mean depth"));
  HARK_TRY(hark_lab_require(lab, counts[OPERATIONS] / counts[FULL_OPERATIONS] / (1.75 / 4), 0.95, 1.05,
                            "operations of the layers / those of all / (1.75 / 4)"));
  return hark_lab_require(lab, widest[FULL_LAYERS] + widest[ONE_LESS], 0.99, 1.001,
                          "the paper's rule at d = 512: chunks with 3 or 4 layers");
}

const hark_experiment hark_experiment_ahca_depth = {
    .summary = "a learned score gives all layers to the chunks that need them, at a mean depth of 1.75 of 4",
    .paper = HARK_LAB_PAPER_AHCA "sections 3.4, 5.4 and 11.5",
    .statement =
        "A network of 4 layers has a mean depth of 1.75. A learned score selects the hard chunks, which need four "
        "steps. These chunks go through all layers and are predicted correctly. If a random quarter of the chunks is "
        "selected instead, the hard chunks are not predicted correctly. The layers need 1.75 / 4 of the operations "
        "that they would need if all chunks went through all layers",
    .printed = "L_k = floor(a_k / max a * L) with a_k the norm of a row. In 5.4 the layers' cost has sum of L_k = L",
    .corrected =
        "depth by the rank of a learned score a_k, gates sigmoid(a_k) on the layers, full depth at first, and a small "
        "price for depth. Norms in high dimension are nearly equal. The sum of the L_k is not L, because every chunk "
        "has its own L_k",
    .notes =
        "    chunk = flag, f(0) .. f(7);   easy: f(0)   hard (1 of 4): f(f(f(f(0))))\n"
        "\n"
        "Layers 2 to 4 run only on the quarter of the chunks with the largest scores. These chunks are gathered for "
        "the layers, and their results are scattered to their places. During the first 40 % of the training all chunks "
        "go through all layers. Then the fraction of chunks that go through layers 2 to 4 falls, and reaches a quarter "
        "at 70 %. The loss has an additional term, .02 times the mean of sigmoid(a_k), so that depth has a price. A "
        "gate sigmoid(a_k) on the layers gives the score a gradient. The operations are those of the layers, with "
        "gathering and scattering. They are computed from the counts of whole networks. Networks with one layer and "
        "with four layers differ by layers 2 to 4. One third of this difference is taken as the cost of the first "
        "layer.\n"
        "\n"
        "The last token of a chunk attends to the chunk's slots, which is a further step. So a network of one layer "
        "can apply the map three times. After the layer, slot j contains f(f(j)), and the information whether f(0) = "
        "j. For example, if f(0) = 5, the last token attends to slot 5. This slot contains f(f(5)) = f(f(f(0))). Hard "
        "chunks have four steps, so they need more layers. With one layer .59 of the hard chunks can be predicted. In "
        "these chunks the first four symbols, from 0 to f(f(f(0))), are not all different. Some of the other hard "
        "chunks are predicted correctly by chance.\n"
        "\n"
        "At d = 512 the paper's rule hardly distinguishes chunks, because norms of so many independent numbers differ "
        "only by a tenth. The chunk with the largest norm has 4 of 4 layers, and all others have 3 (last table).\n"
        "\n"
        "The bounds were fixed when hard chunks had three steps. For four steps the bound of random depth was changed "
        "from .70 to .85. This is 1/4 + 3/4 x .80, where .80 is the bound of one layer in `ahca-ablations`. In the "
        "full experiment every network is trained three times, with different initial weights and different data "
        "(column `training`). The criteria on accuracy and on depth are about means over these trainings.\n"
        "\n"
        "*Figure.* Accuracy on hard chunks, by training.",
    .trains = true,
    .measure = measure,
    .judge = judge};
