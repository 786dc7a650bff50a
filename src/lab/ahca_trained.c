/* ahca_trained.c - see ahca_trained.h. */
#include "lab/ahca_trained.h"

#include <hark/experimental.h>
#include <hark/operators.h>

#include "models/ahca_layers.h"

#define NORM_EPSILON 1e-5
#define INNER 4                /* feed-forward width over d */
#define STREAMS 65536u         /* of a run */
#define TEST_STREAM 0x7000u    /* of a run: the first one of tests */
#define RANDOM_STREAMS 0x8000u /* and of what is decided by drawing */

hark_network_config hark_lab_ahca_model(int64_t rows, int64_t vocabulary, int64_t width, int64_t heads, int64_t layers) {
  return (hark_network_config){.architecture = HARK_ARCHITECTURE_AHCA,
                               .vocabulary = vocabulary,
                               .context = rows,
                               .layers = layers,
                               .heads = heads,
                               .key_heads = heads,
                               .width = width,
                               .feed_forward_width = INNER * width,
                               .norm_epsilon = NORM_EPSILON,
                               .positions = HARK_POSITIONS_NONE,
                               .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE),
                               .attention.window = 1,
                               .ahca = {.window = 1, .capacity = 1}};
}

void hark_lab_ahca_give_capacity(hark_lab_ahca_config *config, double capacity) {
  hark_ahca_config *const ahca = &config->model.ahca;
  ahca->capacity_count = (int32_t)config->model.layers - 1;
  for (int32_t i = 0; i < ahca->capacity_count; i++) ahca->layer_capacities[i] = capacity;
}

/* ---- a pass ---- */

/* Distinct rows of C2 of every sequence, as many as are selected or as there are. */
static hark_status choose_at_random(void *user, const hark_tensor *global, const hark_tensor *offsets, hark_tensor *index) {
  hark_lab_ahca *const n = user;
  const int64_t most = n->config.model.ahca.selected;
  const hark_random_stream words = hark_lab_stream(n->training.lab, n->stream);
  uint64_t drawn = 0;
  (void)global;
  HARK_TRY(hark_tensor_read(n->training.context, offsets, n->host_global));
  for (int64_t b = 0; b < n->config.sequences; b++) {
    const int64_t first = n->host_global[b], rows = n->host_global[b + 1] - first;
    int32_t *const chosen = n->host_index + b * most;
    for (int64_t i = 0; i < most;) {
      bool again = false;
      chosen[i] = i < rows ? (int32_t)(first + (int64_t)hark_random_word(&words, drawn++) % rows) : -1;
      for (int64_t j = 0; j < i && i < rows; j++) again = again || chosen[j] == chosen[i];
      i += again ? 0 : 1;
    }
  }
  return hark_tensor_write(n->training.context, index, n->host_index);
}

/* Mean over the targets that count. */
static hark_status add_loss(hark_lab_ahca *n, hark_tape *tape) {
  hark_value targets = 0;
  HARK_TRY(hark_tape_apply(tape, &hark_op_argmax, NULL, 1, &n->logits, 0, &n->predicted));
  HARK_TRY(hark_tape_leaf(tape, &n->target_ids, NULL, &targets));
  return hark_network_loss(tape, n->logits, targets, (hark_target_loss){.weight = 1 / (double)hark_max(1, n->targets)}, &n->loss);
}

hark_status hark_lab_ahca_record(void *user, const hark_forward *forward, hark_value *loss) {
  hark_lab_ahca *const n = user;
  const hark_lab_ahca_config *c = &n->config;
  hark_forward packed = *forward;
  hark_value penalty = 0;
  const hark_ahca_given given = {.choose = c->random_selection ? choose_at_random : NULL,
                                 .user = n,
                                 .index = &n->index,
                                 .depth_scores = c->random_depth ? &n->depth_scores : NULL,
                                 .without_smoothing = c->without_smoothing,
                                 .without_straight_through = c->without_straight_through};
  hark_network_input input = {.weight = 1 / (double)c->sequences, .given = &given};
  if (forward->training) {
    input.remaining = 1 - n->progress;
    input.penalty = &penalty;
  }
  n->trace = (hark_ahca_trace){0};
  n->logits = n->loss = n->predicted = 0;
  HARK_TRY(hark_packed_batch_begin(&n->read, &n->batch, &packed, &input));
  HARK_TRY(hark_ahca_logits(n->training.context, n->network, &packed, &input, &n->logits, forward->training ? NULL : &n->trace));
  HARK_TRY(add_loss(n, forward->tape));
  *loss = n->loss;
  return penalty != 0 ? hark_forward_add(forward, n->loss, penalty, loss) : HARK_OK;
}

/* ---- a network ---- */

static hark_status make_host(hark_lab_ahca *n, int64_t count, size_t element, void *out) {
  void *memory;
  HARK_TRY(hark_lab_allocate(n->training.lab, (size_t)hark_max(count, 1) * element, &memory));
  *(void **)out = memory;
  return HARK_OK;
}

/* Sequences one after the other, all of M tokens. */
static hark_status make_batch(hark_lab_ahca *n) {
  const int64_t sequences = n->config.sequences, rows = n->config.rows;
  const hark_packed_extents most = {.examples = sequences, .tokens = n->tokens, .parts = 1};
  HARK_TRY(hark_packed_batch_create(n->training.context, &most, true, &n->read));
  n->batch = (hark_example_batch){.rows = sequences, .tokens = n->tokens, .inputs = n->host_tokens, .longest = rows};
  HARK_TRY(make_host(n, n->tokens, sizeof(int32_t), &n->batch.positions));
  HARK_TRY(make_host(n, n->tokens, sizeof(int64_t), &n->batch.segments));
  HARK_TRY(make_host(n, 2 * sequences, sizeof(int64_t), &n->batch.ranges));
  for (int64_t t = 0; t < n->tokens; t++) {
    n->batch.positions[t] = (int32_t)(t % rows);
    n->batch.segments[t] = t / rows;
  }
  for (int64_t b = 0; b < sequences; b++) {
    n->batch.ranges[2 * b] = b * rows;
    n->batch.ranges[2 * b + 1] = (b + 1) * rows;
  }
  return HARK_OK;
}

static bool predicts_tokens(const hark_lab_ahca *n) { return hark_ahca_has_token_head(&n->config.model); }
static int64_t answers_of(const hark_lab_ahca *n) { return predicts_tokens(n) ? n->tokens : n->config.sequences; }

static hark_status make_tensors(hark_lab_ahca *n) {
  hark_context *const context = n->training.context;
  const int64_t of_tokens[] = {1, n->tokens}, index[] = {n->config.sequences, hark_max(n->config.model.ahca.selected, 1)};
  HARK_TRY(hark_tensor_create(context, HARK_I32, predicts_tokens(n) ? 2 : 1, predicts_tokens(n) ? of_tokens : &n->config.sequences,
                              &n->target_ids));
  HARK_TRY(hark_tensor_create(context, HARK_I32, 2, index, &n->index));
  HARK_TRY(hark_tensor_create(context, HARK_F32, 1, &n->chunks, &n->depth_scores));
  HARK_TRY(make_host(n, n->tokens, sizeof(int32_t), &n->host_tokens));
  HARK_TRY(make_host(n, answers_of(n), sizeof(int32_t), &n->host_targets));
  HARK_TRY(make_host(n, answers_of(n), sizeof(int32_t), &n->host_predicted));
  HARK_TRY(make_host(n, index[0] * index[1], sizeof(int32_t), &n->host_index));
  HARK_TRY(make_host(n, n->config.sequences + 1, sizeof(int64_t), &n->host_global));
  return make_host(n, n->chunks, sizeof(float), &n->host_depth);
}

static hark_status build(hark_lab_ahca *n) {
  const hark_lab_ahca_config *c = &n->config;
  HARK_TRY(hark_network_declare(n->training.context, &c->model, HARK_F32, &n->network));
  n->training.trained = &n->network->parameters;
  n->tokens = c->sequences * c->rows;
  n->chunks = hark_chunk_capacity(n->tokens, c->sequences, hark_ahca_sizes_of(&c->model).minimum);
  HARK_TRY(make_tensors(n));
  return make_batch(n);
}

hark_status hark_lab_ahca_open(hark_lab *lab, const hark_lab_ahca_config *config, uint32_t run, hark_lab_ahca *out) {
  *out = (hark_lab_ahca){.config = *config, .run = run, .progress = 1};
  HARK_TRY(hark_lab_training_open(lab, &out->training));
  HARK_TRY(hark_lab_training_failed(&out->training, build(out)));
  return hark_lab_training_begin(&out->training, run);
}

void hark_lab_ahca_close(hark_lab_ahca *n) {
  hark_tensor *const tensors[] = {&n->target_ids, &n->index, &n->depth_scores};
  if (n->training.context == NULL) return;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) hark_tensor_destroy(n->training.context, tensors[i]);
  hark_packed_batch_destroy(n->training.context, &n->read);
  hark_network_destroy(n->training.context, &n->network);
  hark_lab_training_close(&n->training);
}

/* ---- batches ---- */

static hark_status write_batch(hark_lab_ahca *n) {
  n->targets = 0;
  for (int64_t i = 0; i < answers_of(n); i++) n->targets += n->host_targets[i] >= 0;
  HARK_TRY(hark_packed_batch_write(n->training.context, &n->read, &n->batch));
  return hark_tensor_write(n->training.context, &n->target_ids, n->host_targets);
}

hark_status hark_lab_ahca_write(hark_lab_ahca *n) { return hark_lab_training_failed(&n->training, write_batch(n)); }

static hark_status draw_depth(hark_lab_ahca *n) {
  const hark_random_stream words = hark_lab_stream(n->training.lab, n->stream);
  if (!n->config.random_depth) return HARK_OK;
  for (int64_t k = 0; k < n->chunks; k++) n->host_depth[k] = (float)hark_random_word(&words, (uint64_t)k);
  return hark_tensor_write(n->training.context, &n->depth_scores, n->host_depth);
}

static hark_status next_batch(hark_lab_ahca *n, uint32_t number, hark_lab_ahca_draw *draw, void *user) {
  const uint32_t stream = n->run * STREAMS + number;
  HARK_TRY(draw(n, stream, user));
  n->stream = stream + RANDOM_STREAMS;
  HARK_TRY(hark_lab_training_failed(&n->training, draw_depth(n)));
  return hark_lab_ahca_write(n);
}

hark_status hark_lab_ahca_train(hark_lab_ahca *n, int64_t steps, double peak, hark_lab_ahca_draw *draw, void *user, double *loss) {
  double sum = 0;
  int64_t counted = 0;
  if (n->training.lab->most_steps > 0) steps = hark_min(steps, n->training.lab->most_steps);
  for (int64_t step = 0; step < steps; step++) {
    double one = 0;
    n->progress = (double)step / (double)steps;
    HARK_TRY(next_batch(n, (uint32_t)step, draw, user));
    HARK_TRY(hark_lab_training_step(&n->training, steps, peak, hark_lab_ahca_record, n, &one));
    if (step < steps - hark_max(steps / 10, 1)) continue;
    sum += one;
    counted++;
  }
  n->progress = 1;
  if (loss != NULL) *loss = sum / (double)counted;
  return HARK_OK;
}

int64_t hark_lab_ahca_length(const hark_lab_ahca *n, hark_value value) {
  return hark_tensor_count(hark_tape_tensor(n->training.tape, value));
}

hark_status hark_lab_ahca_read(hark_lab_ahca *n, hark_value value, void *out) {
  return hark_lab_training_failed(&n->training, hark_tensor_read(n->training.context, hark_tape_tensor(n->training.tape, value), out));
}

hark_status hark_lab_ahca_test(hark_lab_ahca *n, uint32_t batch, hark_lab_ahca_draw *draw, void *user, double *loss) {
  float number = 0;
  HARK_TRY(next_batch(n, TEST_STREAM + batch, draw, user));
  HARK_TRY(hark_lab_training_predict(&n->training, hark_lab_ahca_record, n));
  HARK_TRY(hark_lab_ahca_read(n, n->predicted, n->host_predicted));
  HARK_TRY(hark_lab_ahca_read(n, n->loss, &number));
  if (loss != NULL) *loss = (double)number;
  return HARK_OK;
}

hark_status hark_lab_ahca_needs(hark_lab_ahca *n, bool backward, hark_lab_needs *out) {
  return hark_lab_training_needs(&n->training, backward, hark_lab_ahca_record, n, out);
}

hark_status hark_lab_ahca_count(hark_lab *lab, const hark_lab_ahca_config *config, bool backward, hark_lab_needs *out) {
  hark_lab_ahca network;
  hark_status status = hark_lab_ahca_open(lab, config, 0, &network);
  if (status == HARK_OK) status = hark_lab_ahca_needs(&network, backward, out);
  hark_lab_ahca_close(&network);
  return status;
}

static hark_status count_pass(hark_lab_ahca *n, double *out) {
  HARK_TRY(hark_lab_ahca_write(n));
  HARK_TRY(hark_lab_training_predict(&n->training, hark_lab_ahca_record, n));
  *out = hark_tape_operations(n->training.tape);
  return HARK_OK;
}

hark_status hark_lab_ahca_operations(hark_lab *lab, const hark_lab_ahca_config *config, double *out) {
  hark_lab_ahca network;
  *out = 0;
  hark_status status = hark_lab_ahca_open(lab, config, 0, &network);
  if (status == HARK_OK) status = count_pass(&network, out);
  hark_lab_ahca_close(&network);
  return status;
}
