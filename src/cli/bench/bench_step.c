/* bench_step.c - one training step: forward, backward, clipping and update of the configured model on random tokens, without any files. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/bench/bench.h"
#include "data/formats/example_format.h"
#include "group/group.h"
#include "train/evaluate_examples.h"
#include "train/material.h"

#define WARM_STEPS 2
#define STEPS_DEFAULT 10
#define EXCHANGES 5 /* measured alone */

#define BENCH_CLASSES 10

typedef struct step_work {
  const hark_config *config;
  hark_engine *engine;
  hark_example_room room; /* for examples, all of the full length */
  int64_t targets_of_batch;
  int32_t *inputs, *targets;
  int64_t tokens; /* of a micro-batch */
  int64_t step;
  double start;                /* of the last step, when all processes were ready */
  double computing, finishing; /* seconds of its micro-batches, and of what followed, in this process */
} step_work;

static hark_status run_pass(hark_context *context, step_work *work, uint64_t sample, uint32_t micro_step, double weight, double *loss) {
  if (work->room.memory == NULL)
    return hark_engine_micro_batch(context, work->engine, work->inputs, work->targets, work->config->train.batch, sample, micro_step,
                                   weight, loss);
  hark_pass_result result;
  HARK_TRY(hark_engine_train_examples(context, work->engine, &work->room.batch, micro_step, weight, &result));
  *loss = result.loss;
  return HARK_OK;
}

static hark_status run_step(hark_context *context, step_work *work) {
  const hark_config *config = work->config;
  const int64_t accumulate = config->train.accumulate, batch = config->train.batch;
  const double weight = 1.0 / (double)(hark_max(1, work->targets_of_batch) * accumulate);
  double loss = 0;
  const hark_share share = work->engine->sum.share;
  HARK_TRY(hark_group_agree(context, context->group, HARK_OK)); /* all processes begin together */
  work->start = hark_bench_now();
  HARK_TRY(hark_engine_begin_step(context, work->engine));
  hark_status status = HARK_OK;
  for (int64_t i = share.first; i < share.first + share.count && status == HARK_OK; i++) {
    const int64_t micro = i % accumulate; /* of the rows that this process has */
    const uint64_t sample = (uint64_t)((work->step * accumulate + micro) * batch);
    double part = 0;
    /* from 1: quantities that change during a run have their final values */
    status = run_pass(context, work, sample, (uint32_t)micro + 1, weight, &part);
    loss += part;
  }
  HARK_TRY(hark_group_agree(context, context->group, hark_engine_end_work(context, work->engine, status)));
  const double computed = hark_bench_now();
  work->computing = computed - work->start;
  hark_step_result result;
  work->step++;
  HARK_TRY(hark_engine_finish_step(context, work->engine, work->step, config->train.learning_rate, loss, &result));
  work->finishing = hark_bench_now() - computed;
  if (!result.applied)
    return hark_fail(context, HARK_NOT_FINITE, "bench step: loss or gradients are not finite at step %" PRId64, work->step);
  return HARK_OK;
}

typedef struct step_result {
  hark_bench_summary peak, time;
  double scaling; /* the peak over one thread's */
  double operations, tokens;
  uint64_t allocations; /* through hark's allocator, in the measured steps */
  int64_t rounds, resident_bytes, peak_resident_bytes, parameters;
  /* of this process in a step */
  double sent_bytes, waiting; /* to and for others */
  double micro_batch;         /* seconds of one */
  double update;              /* of clipping and the optimiser */
  double exchange;            /* of the exchange of gradients when nothing else happens */
  double unhidden;            /* after the backward has ended */
} step_result;

static int64_t peak_resident(void) {
  struct rusage use;
  return getrusage(RUSAGE_SELF, &use) == 0 ? (int64_t)use.ru_maxrss * 1024 : 0; /* Linux counts KiB */
}

/* The exchange of a step whose parts are all zero, from the moment when they are complete. */
static hark_status exchange_alone(hark_context *context, step_work *work, double *seconds) {
  hark_gradient_sum *const sum = &work->engine->sum;
  hark_gradient_sum_begin(sum);
  for (int64_t i = 0; i < sum->share.count; i++) {
    HARK_TRY(hark_gradient_sum_open(context, sum));
    if (i + 1 < sum->share.count) HARK_TRY(hark_gradient_sum_close(context, sum));
  }
  HARK_TRY(hark_group_agree(context, context->group, HARK_OK));
  const double start = hark_bench_now();
  HARK_TRY(hark_gradient_sum_close(context, sum));
  HARK_TRY(hark_gradient_sum_finish(context, sum));
  *seconds = hark_bench_now() - start;
  return HARK_OK;
}

static hark_status measure_exchange(hark_context *context, step_work *work, double *seconds) {
  double times[EXCHANGES] = {0};
  *seconds = 0;
  if (hark_group_size(context->group) == 1) return HARK_OK;
  for (int i = 0; i < EXCHANGES; i++) HARK_TRY(exchange_alone(context, work, &times[i]));
  *seconds = hark_bench_summarise(times, EXCHANGES).median;
  return HARK_OK;
}

/* Of a micro-batch, by all processes that share its windows, whose parts differ. */
static hark_status sum_operations(hark_context *context, const hark_engine *engine, double *sum) {
  const double own = hark_engine_operations(engine);
  double all[HARK_GROUP_MOST] = {own};
  if (context->sequence != NULL) HARK_TRY(hark_group_gather(context, context->sequence, &own, sizeof own, all));
  *sum = 0;
  for (int rank = 0; rank < hark_group_size(context->sequence); rank++) *sum += all[rank];
  return HARK_OK;
}

static hark_status measure(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, step_work *work,
                           step_result *result) {
  double peaks[HARK_BENCH_ROUNDS_LIMIT], times[HARK_BENCH_ROUNDS_LIMIT];
  double computing[HARK_BENCH_ROUNDS_LIMIT], finishing[HARK_BENCH_ROUNDS_LIMIT], unhidden[HARK_BENCH_ROUNDS_LIMIT];
  const int64_t requested = settings->rounds > 0 ? settings->rounds : STEPS_DEFAULT;
  const int64_t rounds = hark_min(requested, HARK_BENCH_ROUNDS_LIMIT);
  (void)hark_bench_machine_use_bf16(machine, work->config->train.precision == HARK_PRECISION_BF16);
  for (int i = 0; i < WARM_STEPS; i++) HARK_TRY(run_step(context, work));
  double exchange = 0;
  HARK_TRY(measure_exchange(context, work, &exchange));
  const hark_group before = context->group != NULL ? *context->group : (hark_group){0};
  const int64_t warm_resident = peak_resident();
  const uint64_t warm_allocations = hark_context_memory(context).allocations;
  for (int64_t n = 0; n < rounds; n++) {
    peaks[n] = hark_bench_machine_peak(context, machine);
    const double exchanged = work->engine->sum.seconds;
    HARK_TRY(run_step(context, work));
    times[n] = hark_bench_now() - work->start;
    computing[n] = work->computing / (double)work->engine->sum.share.count;
    unhidden[n] = hark_group_size(context->group) > 1 ? work->engine->sum.seconds - exchanged : 0;
    finishing[n] = work->finishing - unhidden[n];
  }
  const hark_group after = context->group != NULL ? *context->group : (hark_group){0};
  const int64_t accumulate = work->config->train.accumulate;
  double operations = 0;
  HARK_TRY(sum_operations(context, work->engine, &operations));
  const hark_bench_summary peak = hark_bench_summarise(peaks, rounds);
  *result = (step_result){
      .peak = peak,
      .scaling = hark_bench_machine_scaling(machine, peak.median),
      .time = hark_bench_summarise(times, rounds),
      .operations = operations * (double)accumulate,
      .tokens = (double)(work->tokens * accumulate),
      .allocations = hark_context_memory(context).allocations - warm_allocations,
      .rounds = rounds,
      .resident_bytes = peak_resident() - warm_resident,
      .peak_resident_bytes = peak_resident(),
      .parameters = hark_parameters_total(&work->engine->network->parameters),
      .sent_bytes = (double)(after.sent - before.sent) / (double)rounds,
      .waiting = (after.seconds - before.seconds) / (double)rounds,
      .exchange = exchange,
      .micro_batch = hark_bench_summarise(computing, rounds).median,
      .update = hark_bench_summarise(finishing, rounds).median,
      .unhidden = hark_bench_summarise(unhidden, rounds).median,
  };
  return HARK_OK;
}

/* The properties that differ from a dense decoder: ",encoder,hierarchical"; the structures of layers in turn as ",window+hierarchical". */
static const char *describe(const hark_config *config, char *out, size_t size) {
  const hark_layer_choice *const structure = &config->model.attention.structure;
  const bool decoder = config->model.architecture == HARK_ARCHITECTURE_DECODER;
  const bool half = config->train.precision == HARK_PRECISION_BF16;
  const bool adafactor = config->train.optimiser == HARK_OPTIMISER_ADAFACTOR;
  int used =
      snprintf(out, size, "%s%s%s%s%s", half ? ",bf16" : "", adafactor ? ",adafactor" : "", config->train.shard_optimiser ? ",sharded" : "",
               decoder ? "" : ",", decoder ? "" : hark_architecture_of(config->model.architecture)->name);
  if (hark_layer_choice_is(structure, HARK_STRUCTURE_DENSE)) return out;
  for (int64_t i = 0; i < structure->count && used >= 0 && (size_t)used < size; i++) {
    char word[HARK_OPTION_WORD_BYTES] = "";
    (void)hark_option_choice_at(HARK_STRUCTURE_WORDS, structure->words[i], word);
    used += snprintf(out + used, size - (size_t)used, "%c%.40s", i == 0 ? ',' : '+', word);
  }
  return out;
}

/* Of the exchange, what does not prolong the step; NaN with one process. */
static double hidden_fraction(const step_result *r) { return r->exchange > 0 ? fmax(0, 1 - r->unhidden / r->exchange) : NAN; }

static void print_ranks(int ranks, const step_result *r) {
  printf("  ranks    %9d; rank 0 sends %.1f MB per step and waits for others %.1f ms\n", ranks, r->sent_bytes * 1e-6, r->waiting * 1e3);
  printf("  exchange %9.1f ms alone; %.1f ms after the backward: %.0f %% hidden\n", r->exchange * 1e3, r->unhidden * 1e3,
         100 * hidden_fraction(r));
}

/* Adds a real number. */
static bool add_real(json_t *object, const char *name, double value) { return json_object_set_new(object, name, json_real(value)) == 0; }

static bool add_ranks(json_t *object, int ranks, const step_result *r) {
  const bool one = add_real(object, "micro_batch_ms", r->micro_batch * 1e3) && add_real(object, "update_ms", r->update * 1e3);
  const bool all = json_object_set_new(object, "ranks", json_integer(ranks)) == 0 && add_real(object, "sent_bytes", r->sent_bytes) &&
                   add_real(object, "waiting_ms", r->waiting * 1e3);
  if (ranks == 1 || !one || !all) return one && all;
  return add_real(object, "exchange_ms", r->exchange * 1e3) && add_real(object, "unhidden_ms", r->unhidden * 1e3) &&
         add_real(object, "hidden_fraction", hidden_fraction(r));
}

static hark_status print(hark_context *context, const hark_bench_settings *settings, const hark_config *config, const step_result *r) {
  const int ranks = hark_group_size(context->group);
  const double fraction = r->operations / r->time.median / (r->peak.median * ranks);
  const int threads = hark_context_threads(context);
  char name[160], what[80];
  snprintf(name, sizeof name, "step:layers=%" PRId64 ",heads=%" PRId64 ",width=%" PRId64 ",context=%" PRId64 ",batch=%" PRId64 "%s",
           config->model.layers, config->model.heads, config->model.width, config->model.context, config->train.batch,
           describe(config, what, sizeof what));
  if (!settings->json) {
    printf("%s\n", name);
    printf("  step     %9.1f ms (least %.1f, spread %.1f)  %.0f tokens/s  %.1f GFLOP/s  %.1f %% of peak\n", r->time.median * 1e3,
           r->time.least * 1e3, r->time.spread * 1e3, r->tokens / r->time.median, r->operations / r->time.median * 1e-9, 100 * fraction);
    printf("  memory   %9.1f MiB at most, %.1f MiB more after %d warm steps; %" PRIu64 " allocations in %" PRId64 " steps\n",
           (double)r->peak_resident_bytes / (1 << 20), (double)r->resident_bytes / (1 << 20), WARM_STEPS, r->allocations, r->rounds);
    char words[HARK_BENCH_SCALING_BYTES];
    if (context->group != NULL) print_ranks(ranks, r);
    printf("  machine  %.1f GFLOP/s; %d threads; %s\n", r->peak.median * 1e-9, threads,
           hark_bench_scaling_words(context, r->scaling, words));
    return HARK_OK;
  }
  json_t *object = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:i, s:s}", "case", name, "step_ms",
                             r->time.median * 1e3, "step_min_ms", r->time.least * 1e3, "step_iqr_ms", r->time.spread * 1e3,
                             "tokens_per_second", r->tokens / r->time.median, "gflops", r->operations / r->time.median * 1e-9,
                             "peak_fraction", fraction, "peak_gflops", r->peak.median * 1e-9, "peak_over_one_thread", r->scaling,
                             "peak_memory_bytes", (json_int_t)r->peak_resident_bytes, "memory_growth_bytes", (json_int_t)r->resident_bytes,
                             "allocations", (json_int_t)r->allocations, "steps", (json_int_t)r->rounds, "parameters",
                             (json_int_t)r->parameters, "threads", threads, "instruction_set", hark_context_instruction_set(context));
  const bool complete = object != NULL && add_ranks(object, ranks, r);
  if (complete) return hark_bench_print_json(context, object);
  json_decref(object);
  return hark_fail(context, HARK_OUT_OF_MEMORY, "bench: no memory for the result");
}

static int32_t random_below(uint64_t i, int32_t count) {
  const hark_random_stream stream = {.layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return (int32_t)(hark_random_word(&stream, i) % (uint32_t)count);
}

/* Masks tokens where the model predicts those; they replace the targets. */
static bool masks(const step_work *work, int32_t vocabulary) {
  return hark_architecture_of(work->config->model.architecture)->predicts_masked && vocabulary > HARK_TOKEN_RESERVED;
}

/* Random windows: targets are the inputs shifted by one, or masked tokens. */
static hark_status make_windows(hark_context *context, step_work *work, int32_t vocabulary) {
  const int64_t rows = work->config->train.batch, length = work->config->model.context;
  void *memory = NULL;
  work->targets_of_batch = work->tokens = rows * length;
  HARK_TRY(hark_allocate(context, (size_t)(2 * work->tokens) * sizeof(int32_t), &memory));
  work->inputs = memory;
  work->targets = work->inputs + work->tokens;
  for (int64_t i = 0; i < work->tokens; i++) {
    work->inputs[i] = random_below((uint64_t)i, vocabulary);
    work->targets[i] = random_below((uint64_t)i + 1, vocabulary);
  }
  if (!masks(work, vocabulary)) return HARK_OK;
  const hark_masking masking = hark_config_masking(work->config, vocabulary, HARK_MASKING_TRAINING);
  work->targets_of_batch = 0;
  for (int64_t row = 0; row < rows; row++)
    work->targets_of_batch += hark_mask_tokens(&masking, row, length, work->inputs + row * length, work->targets + row * length);
  return HARK_OK;
}

/* Tables with as many rows of context as queries. */
static void make_tables(hark_example_batch *batch, const hark_learning_task *task, int64_t rows) {
  batch->context_rows = batch->rows * rows;
  batch->real = batch->context_rows * (task->classified ? 1 : task->responses);
  for (int64_t table = 0; table < batch->rows; table++)
    for (int64_t i = 0; i < 4; i++) batch->ranges[4 * table + i] = i / 2 * batch->context_rows + (table + i % 2) * rows;
  for (int64_t i = 0; i < batch->tokens; i++) batch->segments[i] = i % batch->context_rows / rows * 2 + i / batch->context_rows;
  for (int64_t i = 0; i < batch->tokens * task->responses; i++) batch->responses[i] = (float)random_below((uint64_t)i, 256) / 256;
  for (int64_t i = 0; i < batch->rows * task->responses; i++) batch->scales[i] = (hark_column_scale){0, 1};
  for (int64_t i = 0; i < batch->tokens && task->classified; i++) batch->targets[i] = random_below((uint64_t)i, (int32_t)task->responses);
}

/* Random examples of the full length. */
static hark_status make_examples(hark_context *context, step_work *work, const hark_learning_task *task) {
  const hark_example_batches_settings settings = hark_example_settings(work->config, HARK_SPLIT_TRAINING, true);
  const int64_t longest = settings.longest + settings.class_token;
  const hark_example_extents extents = {.rows = work->config->train.batch,
                                        .parts = task->parts,
                                        .longest = longest,
                                        .features = task->features,
                                        .responses = task->responses,
                                        .tables = task->tables};
  HARK_TRY(hark_example_room_make(context, &extents, &work->room));
  hark_example_batch *batch = &work->room.batch;
  batch->rows = work->config->train.batch;
  batch->tokens = batch->rows * task->parts * longest;
  batch->longest = longest;
  for (int64_t i = 0; i < batch->tokens; i++) {
    batch->inputs[i] = random_below((uint64_t)i, task->vocabulary);
    batch->positions[i] = (int32_t)(i % longest);
    batch->segments[i] = i / longest;
    batch->targets[i] = random_below((uint64_t)i, task->classes > 0 ? task->classes : task->vocabulary);
  }
  for (int64_t i = 0; i < batch->tokens * task->features; i++) batch->features[i] = (float)random_below((uint64_t)i, 256) / 256;
  for (int64_t i = 0; i < batch->rows * task->responses; i++) batch->responses[i] = (float)random_below((uint64_t)i, 256) / 256;
  for (int64_t i = 0; i < 2 * batch->rows * task->parts; i++) batch->ranges[i] = (i + 1) / 2 * longest;
  batch->real = task->classes > 0 ? batch->rows : batch->tokens;
  if (task->tables) make_tables(batch, task, longest);
  if (masks(work, task->vocabulary)) {
    const hark_masking masking = hark_config_masking(work->config, task->vocabulary, HARK_MASKING_TRAINING);
    hark_example_batch_mask(&masking, 0, task->parts, batch);
  }
  work->tokens = batch->tokens;
  work->targets_of_batch = batch->real;
  return HARK_OK;
}

hark_status hark_bench_step(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings,
                            const hark_config *config, int32_t vocabulary) {
  step_work work = {.config = config};
  step_result result;
  hark_learning_task task = {.vocabulary = vocabulary};
  const hark_example_format *format = hark_example_format_find(hark_config_format(config));
  if (hark_config_has_examples(config)) {
    task.parts = format != NULL ? format->parts : 1;
    const bool labels = config->model.architecture == HARK_ARCHITECTURE_AHCA && config->model.ahca.head == HARK_AHCA_HEAD_LABELS;
    const bool classes = hark_architecture_of(config->model.architecture)->predicts_classes && !labels && !hark_config_reconstructs(config);
    task.classes = classes ? BENCH_CLASSES : 0;
    if (strcmp(hark_config_format(config), "vectors") == 0 || hark_architecture_of(config->model.architecture)->predicts_vectors) {
      const bool tables = hark_architecture_of(config->model.architecture)->reads_tables;
      if (tables) task = hark_material_task_of_tables(config, config->model.width / 2, 1);
      task.vocabulary = vocabulary;
      task.classes = 0;
      task.features = config->model.width;
      if (!tables) task.responses = 1;
    }
  } else if (hark_config_reconstructs(config)) {
    task.parts = 1;
  }
  hark_status status = hark_engine_create_for(context, config, &task, true, &work.engine);
  if (status == HARK_OK) status = hark_parameters_initialise(context, &work.engine->network->parameters, (uint64_t)config->train.seed);
  if (status == HARK_OK) status = task.parts > 0 ? make_examples(context, &work, &task) : make_windows(context, &work, vocabulary);
  if (status == HARK_OK) status = measure(context, machine, settings, &work, &result);
  if (status == HARK_OK) status = print(context, settings, config, &result);
  hark_release(context, work.inputs, work.inputs != NULL ? (size_t)(2 * work.tokens) * sizeof(int32_t) : 0);
  hark_example_room_close(context, &work.room);
  hark_engine_destroy(context, &work.engine);
  return status;
}
