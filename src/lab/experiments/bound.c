/* bound.c - the terms of the generalisation bound of X (theorem C.4), for a randomly drawn network and for a trained one.
 *
 * The class of networks has the bounds of the configuration; the weights of a checkpoint have smaller norms. bound_terms.h has the
 * formulas, as printed and corrected. A run without model.architecture latent and bounds is refused: decoders and encoders have layer norm
 * and matrices without bounds, which assumptions C.1 to C.3 exclude. Source: X (Zhang et al.), sections 5.1, C.2, C.4.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/safetensors.h"
#include "lab/bound_terms.h"
#include "lab/tables.h"
#include "models/latent.h"
#include "train/run.h"

#define DRAWN_WIDTH 8
#define DRAWN_HEADS 2
#define DRAWN_LAYERS 3
#define DRAWN_BOUND 3.
#define DRAWN_SIZE 10. /* weights before the projection, over their usual size */
#define KEPT 1e-6      /* f32 weights keep their bounds up to rounding */

typedef struct bound_values {
  const char *model;
  double radius;
  int64_t examples;
} bound_values;

#define AT(field) offsetof(bound_values, field)
static const hark_option options[] = {
    {"model", "model", HARK_OPTION_STRING, AT(model), "", NULL, NULL, "RUN",
     "bound: a run or a checkpoint with a trained network of architecture latent; the terms of the bound are computed for it",
     "$1 bound|all"},
    {"radius", "radius", HARK_OPTION_FLOAT, AT(radius), "1", "(0, inf)", NULL, NULL, "bound: largest norm of a token", "$1 bound|all"},
    {"bound-examples", "bound-examples", HARK_OPTION_INT, AT(examples), "1000", "[1, inf)", NULL, "N",
     "bound: number n of examples in the bound", "$1 bound|all"},
};
#undef AT
const hark_option_table hark_lab_bound_options = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(bound_values), false};

enum { OF_CLASS, OF_WEIGHTS, SOURCES };
#define SOURCE_WORDS "class|weights"

enum { M_KIND, M_LAYER, M_HEAD, M_OPERATOR, M_OPERATOR_BOUND, M_MATRIX, M_MATRIX_BOUND, M_COLUMNS };
#define KIND_WORDS "features|output|query|key|value"
enum { KIND_FEATURES, KIND_OUTPUT, KIND_QUERY, KIND_KEY, KIND_VALUE };
static const hark_lab_column matrix_columns[M_COLUMNS] = {
    {"matrix", NULL, KIND_WORDS}, {"layer", NULL, NULL},       {"head", NULL, NULL},     {"operator norm", "|.|_r", NULL},
    {"bound", NULL, NULL},        {"norm", "|.|_(r,s)", NULL}, {"its bound", NULL, NULL}};

enum {
  L_OF,
  L_SKIP,
  L_NORM,
  L_LAYER,
  L_RADIUS,
  L_GAMMA,
  L_KAPPA_PRINTED,
  L_KAPPA,
  L_ZETA_PRINTED,
  L_ZETA,
  L_RHO_PRINTED,
  L_RHO,
  L_COLUMNS
};
static const hark_lab_column layer_columns[L_COLUMNS] = {
    {"of", NULL, SOURCE_WORDS}, {"skips", NULL, "no|yes"}, {"layer norm", NULL, "no|yes"}, {"layer", NULL, NULL},
    {"R", NULL, NULL},          {"gamma", NULL, NULL},     {"kappa", "printed", NULL},     {"kappa", NULL, NULL},
    {"zeta", "printed", NULL},  {"zeta", NULL, NULL},      {"rho", "printed", NULL},       {"rho", NULL, NULL}};

enum { S_OF, S_SKIP, S_GAMMA, S_KAPPA, S_ZETA, S_PRINTED, S_CORRECTED, S_COVERING_PRINTED, S_COVERING, S_AGGREGATION, S_COLUMNS };
static const hark_lab_column sum_columns[S_COLUMNS] = {{"of", NULL, SOURCE_WORDS},
                                                       {"skips", NULL, "no|yes"},
                                                       {"gamma", NULL, NULL},
                                                       {"kappa", NULL, NULL},
                                                       {"zeta", NULL, NULL},
                                                       {"bound", "printed, without constant", NULL},
                                                       {"bound", "without constant", NULL},
                                                       {"log covering", "printed", NULL},
                                                       {"log covering", NULL, NULL},
                                                       {"aggregation", "Lipschitz", NULL}};

/* The input and output of a measured network. */
typedef struct measurement {
  hark_lab *lab;
  hark_network_config config;
  const hark_parameters *parameters;
  hark_bound_network networks[SOURCES];
  hark_lab_table *matrices;
} measurement;

/* ---- norms ---- */

/* Norms of a parameter, and their bounds; a row of the table. */
static hark_status take_matrix(measurement *m, int kind, int64_t layer, int64_t head, const char *name, hark_bound_pair *own,
                               hark_bound_pair *bound) {
  hark_lab *const lab = m->lab;
  const hark_parameter *const parameter = hark_parameters_find(m->parameters, name);
  if (parameter == NULL) return hark_fail(lab->context, HARK_INTERNAL_ERROR, "bound: there is no %s", name);
  const int64_t rows = parameter->spec.shape[0], columns = parameter->spec.shape[1], count = parameter->count;
  const hark_bound_norm norm = (hark_bound_norm)m->config.latent.norm;
  double *numbers, *scratch;
  HARK_TRY(hark_lab_numbers(lab, count, &numbers));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)hark_norm_bound_scratch(rows, columns), &scratch));
  if (parameter->weight.type == HARK_F64) {
    HARK_TRY(hark_tensor_read(lab->context, &parameter->weight, numbers));
  } else {
    void *memory;
    HARK_TRY(hark_lab_allocate(lab, (size_t)count * sizeof(float), &memory));
    HARK_TRY(hark_tensor_read(lab->context, &parameter->weight, memory));
    for (int64_t i = 0; i < count; i++) numbers[i] = (double)((const float *)memory)[i];
  }
  *own = (hark_bound_pair){hark_operator_norm(norm, rows, columns, numbers, scratch), hark_matrix_norm(norm, rows, columns, numbers)};
  *bound = (hark_bound_pair){parameter->spec.bound.operator_norm, parameter->spec.bound.matrix_norm};
  const double row[M_COLUMNS] = {kind, (double)layer, (double)head, own->a, bound->a, own->b, bound->b};
  return hark_lab_add_row(lab, m->matrices, row);
}

static hark_status take_heads(measurement *m, const char *prefix, int64_t layer, hark_bound_head *own, hark_bound_head *bound) {
  static const char *const parts[] = {"query", "key", "value"};
  for (int64_t i = 0; i < m->config.heads; i++) {
    hark_bound_pair *const owns[] = {&own[i].query, &own[i].key, &own[i].value}, *const bounds[] = {&bound[i].query, &bound[i].key,
                                                                                                    &bound[i].value};
    for (int part = 0; part < 3; part++) {
      char name[HARK_PARAMETER_NAME_BYTES];
      (void)snprintf(name, sizeof name, "%s.heads.%" PRId64 ".%s.weight", prefix, i, parts[part]);
      HARK_TRY(take_matrix(m, KIND_QUERY + part, layer, i, name, owns[part], bounds[part]));
    }
  }
  return HARK_OK;
}

static hark_status take_layer(measurement *m, int64_t t) {
  hark_bound_network *const of_class = &m->networks[OF_CLASS], *const own = &m->networks[OF_WEIGHTS];
  const int64_t first = t * m->config.heads;
  char name[HARK_PARAMETER_NAME_BYTES];
  if (own->single) {
    HARK_TRY(take_matrix(m, KIND_FEATURES, t, 0, "features.weight", &own->up[t], &of_class->up[t]));
    return take_heads(m, "aggregate", t, own->attention + first, of_class->attention + first);
  }
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward.up.weight", t);
  HARK_TRY(take_matrix(m, KIND_FEATURES, t, 0, name, &own->up[t], &of_class->up[t]));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward.down.weight", t);
  HARK_TRY(take_matrix(m, KIND_OUTPUT, t, 0, name, &own->down[t], &of_class->down[t]));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64, t);
  return take_heads(m, name, t, own->attention + first, of_class->attention + first);
}

static hark_status take_network(measurement *m) {
  const hark_network_config *const config = &m->config;
  for (int s = 0; s < SOURCES; s++) {
    m->networks[s] = (hark_bound_network){.layers = config->layers,
                                          .heads = config->heads,
                                          .width = config->width,
                                          .inner = config->feed_forward_width,
                                          .head_dim = hark_network_head_dim(config),
                                          .responses = config->responses,
                                          .single = config->latent.form == HARK_LATENT_FORM_SINGLE,
                                          .query = config->latent.aggregate == HARK_LATENT_AGGREGATE_QUERY,
                                          .sigma_square = config->attention.sigma * config->attention.sigma,
                                          .norm = (hark_bound_norm)config->latent.norm};
    HARK_TRY(hark_bound_make(m->lab, &m->networks[s]));
  }
  for (int64_t t = 0; t < config->layers; t++) HARK_TRY(take_layer(m, t));
  if (!m->networks[0].query || m->networks[0].single) return HARK_OK;
  return take_heads(m, "aggregate", config->layers, m->networks[OF_WEIGHTS].aggregation, m->networks[OF_CLASS].aggregation);
}

/* ---- terms ---- */

static hark_status add_layers(measurement *m, hark_lab_table *layers, hark_lab_table *sums, int source, bool skip, bool layer_norm) {
  const bound_values *const v = m->lab->options;
  const hark_bound_network *const network = &m->networks[source];
  void *memory;
  HARK_TRY(hark_lab_allocate(m->lab, (size_t)network->layers * sizeof(hark_bound_layer), &memory));
  hark_bound_layer *const terms = memory;
  const double last = hark_bound_layers(network, v->radius, skip, layer_norm, terms);
  for (int64_t t = 0; t < network->layers; t++) {
    const hark_bound_layer *const l = &terms[t];
    const double row[L_COLUMNS] = {source,           skip,     layer_norm,      (double)t, l->radius,      l->gamma,
                                   l->kappa_printed, l->kappa, l->zeta_printed, l->zeta,   l->rho_printed, l->rho};
    HARK_TRY(hark_lab_add_row(m->lab, layers, row));
  }
  if (layer_norm) return HARK_OK; /* the terms describe its layers only; nothing bounds how errors pass through layer norm */
  const hark_bound_sum s = hark_bound_all(network, terms, last, (double)v->examples);
  const double row[S_COLUMNS] = {source,     skip,         s.gamma, s.kappa, s.zeta, s.printed, s.corrected, s.covering_printed,
                                 s.covering, s.aggregation};
  return hark_lab_add_row(m->lab, sums, row);
}

static hark_status measure_network(hark_lab *lab, const hark_network *network) {
  measurement m = {.lab = lab, .config = network->config, .parameters = &network->parameters};
  hark_lab_table *layers, *sums;
  HARK_TRY(hark_lab_add_table(lab, "norms of the matrices, and the bounds that projection keeps", matrix_columns, M_COLUMNS, &m.matrices));
  HARK_TRY(hark_lab_add_table(lab, "terms of every layer", layer_columns, L_COLUMNS, &layers));
  HARK_TRY(hark_lab_add_table(lab, "the bound", sum_columns, S_COLUMNS, &sums));
  HARK_TRY(take_network(&m));
  for (int source = 0; source < SOURCES; source++)
    for (int skip = 0; skip < (m.networks[0].single ? 1 : 2); skip++)
      for (int layer_norm = 0; layer_norm < 2; layer_norm++) HARK_TRY(add_layers(&m, layers, sums, source, skip == 1, layer_norm == 1));
  return HARK_OK;
}

/* ---- a network that is drawn ---- */

static hark_status measure_drawn(hark_lab *lab) {
  const hark_network_config config = {
      .architecture = HARK_ARCHITECTURE_LATENT,
      .vocabulary = 1,
      .layers = DRAWN_LAYERS,
      .heads = DRAWN_HEADS,
      .key_heads = DRAWN_HEADS,
      .width = DRAWN_WIDTH,
      .feed_forward_width = (int64_t)2 * DRAWN_WIDTH,
      .context = 1,
      .activation = HARK_ACTIVATION_RELU,
      .positions = HARK_POSITIONS_NONE,
      .attention.kernel = HARK_KERNEL_RBF,
      .attention.sigma = sqrt((double)DRAWN_WIDTH / DRAWN_HEADS),
      .features = DRAWN_WIDTH,
      .responses = 1,
      .latent = {.skip = true, .norm = HARK_BOUND_TWO, .operator_norm = DRAWN_BOUND, .matrix_norm = DRAWN_BOUND, .range = 0.5}};
  hark_network *network = NULL;
  HARK_TRY(hark_network_create(lab->context, &config, HARK_F64, false, &network));
  hark_status status = hark_parameters_initialise(lab->context, &network->parameters, lab->seed);
  if (status == HARK_OK) status = hark_bound_press(lab, &network->parameters, DRAWN_SIZE);
  if (status == HARK_OK) status = measure_network(lab, network);
  hark_network_destroy(lab->context, &network);
  return status;
}

/* ---- a trained one ---- */

static hark_status refuse(hark_context *context, const char *path, const char *why) {
  return hark_fail(context, HARK_UNSUPPORTED, "%s: %s; the bound is about model.architecture latent with model.latent.norm", path, why);
}

static hark_status check_model(hark_context *context, const char *path, const hark_config *config) {
  const hark_latent_config *const latent = &config->model.latent;
  char why[HARK_MESSAGE_BYTES / 2];
  if (config->model.architecture == HARK_ARCHITECTURE_FINITE)
    return refuse(context, path, "architecture finite has no layers of attention");
  if (config->model.architecture != HARK_ARCHITECTURE_LATENT) {
    (void)snprintf(why, sizeof why, "architecture %s has layer norm and matrices without bounds, which assumptions C.1 and C.3 exclude",
                   hark_architecture_of(config->model.architecture)->name);
    return refuse(context, path, why);
  }
  if (latent->norm == HARK_BOUND_FREE || latent->operator_norm == 0 || latent->matrix_norm == 0)
    return refuse(context, path, "its matrices have free norms, which assumption C.3 excludes");
  if (config->model.attention.kernel != HARK_KERNEL_RBF)
    return refuse(context, path, "its kernel is exp, and assumption C.1 has a Gaussian one");
  return HARK_OK;
}

/* Numbers to predict: the rows of the last matrix in the file. */
static hark_status read_responses(hark_context *context, const hark_run *run, const char *checkpoint, int64_t *out) {
  char path[HARK_PATH_BYTES];
  hark_safetensors *file;
  HARK_TRY(hark_checkpoint_path(context, run, checkpoint, HARK_WEIGHTS_FILE, path));
  HARK_TRY(hark_safetensors_open(context, path, &file));
  const hark_stored_tensor *const head = hark_safetensors_find(file, "head.weight");
  *out = head != NULL && head->rank == 2 ? head->shape[0] : 0;
  hark_safetensors_close(context, &file);
  return *out >= 1 && *out <= INT32_MAX ? HARK_OK : hark_fail(context, HARK_BAD_FILE, "%s: has no head.weight of a latent model", path);
}

static hark_status measure_checkpoint(hark_lab *lab, const hark_config *config, const hark_run *run, const char *checkpoint) {
  hark_learning_task task = {.vocabulary = 1, .parts = 1, .features = (int32_t)config->model.width};
  hark_network *network = NULL;
  HARK_TRY(hark_checkpoint_check_configuration(lab->context, run, checkpoint));
  HARK_TRY(read_responses(lab->context, run, checkpoint, &task.responses));
  const hark_network_config shape = hark_engine_network_config(config, &task);
  HARK_TRY(hark_network_create(lab->context, &shape, HARK_F32, false, &network));
  hark_status status = hark_checkpoint_load_weights(lab->context, run, checkpoint, &network->parameters);
  if (status == HARK_OK) status = measure_network(lab, network);
  hark_network_destroy(lab->context, &network);
  return status;
}

/* Reads the run's configuration, or reports the first mistake in it. */
static hark_status read_run(hark_context *context, const char *path, hark_lab *lab) {
  hark_run run;
  hark_config config;
  hark_options *set = NULL;
  char requested[HARK_NAME_BYTES], checkpoint[HARK_NAME_BYTES], file[HARK_PATH_BYTES];
  const hark_option_group group = {&hark_config_table, &config};
  HARK_TRY(hark_run_open_reading(context, path, &run, requested));
  hark_status status = hark_run_path(context, &run, "config.yaml", file);
  if (status == HARK_OK) status = hark_options_create(context, NULL, &group, 1, &set);
  if (status == HARK_OK) status = hark_options_read_yaml(context, set, file, HARK_SOURCE_RUN);
  if (status == HARK_OK) status = hark_options_finish(context, set);
  if (status == HARK_OK) status = check_model(context, path, &config);
  if (status == HARK_OK) status = hark_checkpoint_choose(context, &run, requested, checkpoint);
  if (status == HARK_OK && lab != NULL) status = measure_checkpoint(lab, &config, &run, checkpoint);
  hark_options_destroy(context, &set);
  hark_run_close(&run);
  return status;
}

static hark_status check(hark_context *context, const void *values) {
  const bound_values *const v = values;
  return v->model[0] != '\0' ? read_run(context, v->model, NULL) : HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  const bound_values *const v = lab->options;
  return v->model[0] != '\0' ? read_run(lab->context, v->model, lab) : measure_drawn(lab);
}

/* ---- criteria ---- */

/* Largest ratio of a column to its bound in another one. */
static double largest_part(const hark_lab_table *table, int column, int bound) {
  return hark_lab_column_range(table, column, bound).largest;
}

/* Largest ratio of a term of the weights to that of the class, in rows of the same layer. */
static double of_class(const hark_lab_table *table, int column) {
  const int64_t half = hark_lab_row_count(table) / SOURCES;
  double largest = 0;
  for (int64_t i = 0; i < half; i++) {
    const double *const bound = hark_lab_row(table, i), *const own = hark_lab_row(table, half + i);
    largest = hark_lab_larger(largest, own[column] / bound[column]);
  }
  return largest;
}

/* A projection keeps bounds up to rounding. R, gamma and rho grow with every norm; kappa and zeta are quotients of norms and need not. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const matrices = &lab->tables[0], *const layers = &lab->tables[1];
  HARK_TRY(hark_lab_require(lab, largest_part(matrices, M_OPERATOR, M_OPERATOR_BOUND), 0, 1 + KEPT, "operator norms over their bounds"));
  HARK_TRY(hark_lab_require(lab, largest_part(matrices, M_MATRIX, M_MATRIX_BOUND), 0, 1 + KEPT, "(r, s)-norms over their bounds"));
  HARK_TRY(hark_lab_require(lab, of_class(layers, L_RADIUS), 0, 1 + KEPT * DRAWN_SIZE, "R of the weights over that of their class"));
  HARK_TRY(hark_lab_require(lab, of_class(layers, L_GAMMA), 0, 1 + KEPT * DRAWN_SIZE, "gamma of the weights over that of their class"));
  return hark_lab_require(lab, of_class(layers, L_RHO), 0, 1 + KEPT * DRAWN_SIZE, "rho of the weights over that of their class");
}

const hark_experiment hark_experiment_bound = {
    .summary = "the terms of the generalisation bound, printed and corrected, for every layer; with --model those of a trained network",
    .paper = HARK_LAB_PAPER_X "theorem C.4, lemma C.9",
    .statement =
        "The generalisation error of a network with bounded matrices is of order D^2 / sqrt(n) [T sqrt(log(1 + gamma)) + "
        "sqrt(T) sqrt(log(1 + zeta R)) + sqrt(log(1 + kappa / zeta))] sqrt(h T)",
    .printed =
        "rho = omega + (w^qk)^2 w^v R^2,  kappa = max(.., R^qk / (w^qk w^v)),  zeta = (w^qk)^2 R^v / omega,  R_trans with the "
        "product of rho / omega over the layers after it (C.19)",
    .corrected =
        "rho = omega + sum (w^q + w^k)^2 w^v (alpha R)^2 / sigma^2,  kappa = max(.., sum (w^q + w^k) w^v (R^q + R^k) / sum "
        "(w^q + w^k)^2 w^v),  zeta = sum (w^q + w^k)^2 w^v / (sigma^2 omega),  R_trans also with the layer's own rho / omega "
        "and with the last attention",
    .notes =
        "In the formula, the network has T layers and h heads, its largest width is D, and n is the number of "
        "sequences. The network of the tables is not trained. Its weights are drawn at random and projected onto their "
        "bounds, with T = 3, h = 2, D = 16 and n = 1000. Layers are counted from 0. The matrices of layer 3 are those "
        "of the class query, after the last layer. With `--model RUN` the tables have the terms of a trained network. "
        "Norms are r-norms of the transposed matrices. In the tables, `class` has the bounds that training keeps by "
        "projection, and `weights` has the norms of the weights themselves. Some rows are for a different network with "
        "the same matrices: a network without skips, or one with layer norm. R is an upper bound of the size of the "
        "rows that a layer reads. Let a and b be the operator norms of the two feed-forward matrices of a layer, and "
        "let w^q, w^k and w^v be those of each head. Then alpha = a b and omega = sum w^v in a network without skips. "
        "Skips add 1 to alpha and omega. Further, gamma = max(alpha, omega). Without layer norm every layer multiplies "
        "R by omega alpha. With layer norm R is the size of a normalised row. The last table has no rows with layer "
        "norm. If the entries of a row are nearly equal, layer norm has no Lipschitz constant there. So a net of its "
        "inputs does not give a net of its outputs.\n"
        "\n"
        "`bound` is the complexity term of Theorem C.4 without its constant. This term covers the layers and assumes an "
        "aggregation that is 1-Lipschitz and has no weights (assumption C.2). The corrected bound has an additional "
        "factor of 2, because the loss is 2-Lipschitz, but the proof assumes that it is 1-Lipschitz. `log covering` is "
        "the logarithm of the covering number at the resolution 1 / sqrt(n). One column has its printed value, from "
        "Lemma C.9. Another has the corrected value, for all weights. These weights include those of the class query and "
        "of the last matrix. The correction uses the Lipschitz constant `aggregation` of the class query (1 for the "
        "mean). Two things are missing in R_trans of (C.19): the last layer's attention, and the factor rho / omega of "
        "the layer itself. (C.35) has this factor for the feed-forward, and the resolutions of (C.42) require it for "
        "the attention. In the tables kappa has the same value in both forms, because its largest term is one that both forms have. (C.20) "
        "has R where alpha R is correct, because alpha R is the size of the rows that attention "
        "reads. `theorem-model` measures, for random networks, that the output moves by no more than the corrected "
        "sum. The outputs of these networks move far less than the sum allows. So this measurement can only detect a "
        "sum that is much too small.\n"
        "\n"
        "The last table has an upper bound without its constant. So it shows how the terms of the bound grow, not how "
        "large an error is.",
    .check = check,
    .measure = measure,
    .judge = judge,
};
