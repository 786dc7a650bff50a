/* config.h - the configuration of a training run: one plain struct and the table of options that fills it.
 *
 * The key of a field is its path: config.model.attention.window is model.attention.window in a file and --model.attention.window on the
 * command line. Zero means "derived" where the comment says so; hark_config_finish() replaces it by the derived value.
 */
#ifndef HARK_TRAIN_CONFIG_H
#define HARK_TRAIN_CONFIG_H

#include <hark/attention.h>
#include <hark/operators.h>

#include "config/options.h"
#include "data/corpora/batches.h"
#include "data/corpora/corpus.h"
#include "data/corpora/masking.h"
#include "models/model_options.h"
#include "models/network.h"

/* The words of the enums are in the table in this order. */
typedef enum hark_schedule {
  HARK_SCHEDULE_CONSTANT,
  HARK_SCHEDULE_COSINE,
  HARK_SCHEDULE_LINEAR,
  HARK_SCHEDULE_RSQRT,
  HARK_SCHEDULE_BASE_RSQRT,
  HARK_SCHEDULE_CYCLE
} hark_schedule;

/* Values of data.format: text; examples in a folder whose task.json names the format; HARK_DATA_FORMAT + i: format i of examples. */
typedef enum hark_data_format { HARK_DATA_CORPUS, HARK_DATA_FOLDER, HARK_DATA_FORMAT } hark_data_format;

/* How the learning rate proceeds when a run is continued with another length (schedule.h). */
typedef enum hark_extend { HARK_EXTEND_CONTINUE, HARK_EXTEND_RESTART, HARK_EXTEND_STRETCH } hark_extend;

/* Of the products of linear layers in training. */
typedef enum hark_precision { HARK_PRECISION_F32, HARK_PRECISION_BF16 } hark_precision;

typedef enum hark_optimiser { HARK_OPTIMISER_ADAMW, HARK_OPTIMISER_ADAFACTOR } hark_optimiser;

typedef enum hark_long_sentences { HARK_LONG_CUT, HARK_LONG_REFUSE } hark_long_sentences;

typedef struct hark_config {
  hark_network_config model; /* its options (models/model_options.h); what the data determine is not known here */
  struct {
    int format; /* hark_data_format, or a format of examples */
    hark_string_list paths, validation_paths, test_paths;
    int64_t length_limit, example_limit, classes;
    int64_t context_least, context_most, queries; /* of tables: rows of context and rows to predict */

    const char *text_field, *label_field;
    const char *targets; /* of tables in CSV */
    bool quoted;
    int tokenizer;          /* index of hark_tokenizer_kind_name() */
    const char *vocabulary; /* the file of an imported tokenizer; "": none */
    struct {
      int64_t vocabulary;
      int model; /* hark_subword_model */
      bool byte_fallback;
      double coverage;
      const hark_subword_learner *learner; /* not an option: the program's learner, or NULL */
    } subwords;
    int unit;           /* hark_text_unit */
    int long_sentences; /* hark_long_sentences */
    int unknown;        /* hark_unknown */
    double validation_fraction;
    bool divides; /* not an option: validation_fraction is requested, for data that have no validation of their own */
    int split;    /* hark_division */
    int order;    /* hark_order */
    int epoch;    /* hark_epoch_unit */
  } data;
  struct {
    int64_t steps /* 0: derived from epochs, tokens, examples or max_time */, tokens, examples;
    double epochs;
    int64_t batch, accumulate;
    int precision; /* hark_precision */
    double learning_rate, minimum_rate /* a rate; below 0: learning_rate / 10 */, positional_rate /* a factor */, rotary_rate;
    int schedule; /* hark_schedule */
    int64_t warmup;
    int extend; /* hark_extend */
    bool shard_optimiser;
    int optimiser; /* hark_optimiser */
    double beta1, beta2, epsilon, weight_decay, clip /* 0: none */, label_smoothing, z_loss;
    int64_t evaluate_every, checkpoint_every, keep, log_every, early_stop /* evaluations without improvement; 0: never */;
    bool evaluates;  /* not an option: evaluate_every is requested, for data with validation */
    double max_time; /* seconds; 0: no limit */
    bool plans_once; /* not an option: max_time only plans the steps, which are then the run's length */
    bool planned;    /* not an option: max_time alone determines the length */
    bool more_time;  /* not an option: max_time was given again, without a length: a finished run continues for this time */
    int64_t seed, max_bad_steps;
    const char *init_from; /* a run, a checkpoint or a model (model_source.h) whose weights are the initial weights; "": none */
    hark_string_list allow_missing, allow_unexpected, freeze;
    double mask_fraction; /* fraction of tokens that are masked for a masked_encoder */
    struct {
      double beta1 /* 0: no first moments */, decay_exponent, update_clip /* 0: none */;
      bool relative;
      int64_t factor_from;
    } adafactor;
  } train;
  struct {
    const char *directory; /* "": a name made from the time */
    bool resume;
    int64_t threads;        /* 0: all */
    int64_t ranks;          /* processes; 0: any number */
    int64_t sequence_ranks; /* of them, that share a window */
    double rank_timeout;
    const char *backend;
    bool deterministic, preflight;
    bool tensorboard, csv; /* copies of metrics.jsonl */
    int64_t sample_tokens; /* of a text that is generated with every checkpoint; 0: none */
    const char *sample_prompt;
  } run;
} hark_config;

extern const hark_option_table hark_config_table;

/* Sets derived values (key_heads, feed_forward_width, minimum_rate, split where validation files are given, steps where neither epochs nor
 * tokens are given) and adds a problem for every impossible combination. Errors: HARK_OUT_OF_MEMORY; hark_options_finish() reports the
 * problems. */
HARK_MUST_CHECK hark_status hark_config_finish(hark_context *context, hark_options *options, hark_config *config);

/* The data are text that is read as sentences. */
static inline bool hark_config_has_sentences(const hark_config *config) {
  return config->data.format == HARK_DATA_CORPUS && config->data.unit == HARK_UNIT_SENTENCES;
}

/* The data are labelled examples, in packed batches; else text. */
static inline bool hark_config_has_examples(const hark_config *config) { return config->data.format != HARK_DATA_CORPUS; }

/* What a run counts: "rows" of tables, "vectors", otherwise "tokens". */
const char *hark_config_unit_word(const hark_config *config);

/* The model learns to reconstruct its input. */
static inline bool hark_config_reconstructs(const hark_config *config) {
  return config->model.architecture == HARK_ARCHITECTURE_AHCA && config->model.ahca.head == HARK_AHCA_HEAD_RECONSTRUCTION;
}

/* Tokens are those of another program's tokenizer, which reserves none. */
static inline bool hark_config_has_imported_tokens(const hark_config *config) {
  return !hark_config_has_examples(config) && config->data.tokenizer == HARK_TOKENIZER_IMPORTED;
}

/* How tokens are masked for a masked encoder. */
static inline hark_masking hark_config_masking(const hark_config *config, int32_t vocabulary, hark_masking_stream stream) {
  return (hark_masking){
      .seed = (uint64_t)config->train.seed, .stream = stream, .fraction = config->train.mask_fraction, .vocabulary = vocabulary};
}

/* Reads the numbers of a list option of the model. A text that is no list of numbers in the option's range becomes a problem; rules that
 * concern the option are then not checked. `more`: what else is expected of the numbers, "" or ", one per pair". Errors:
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_config_read_list(hark_context *context, hark_options *set, hark_config *config, const char *name,
                                                  const char *more);

/* Classes of a table's target: 0 if targets are numbers. */
int64_t hark_config_table_classes(const hark_config *config);

/* The format that data.format names; "": the examples' folder names it. */
const char *hark_config_format(const hark_config *config);

/* What an option means for existing weights. */
hark_bond hark_config_bond(const char *option);

/* Whether a run that has the option's value `stored` cannot continue with the value `given`, because the optimiser would keep other
 * moments. */
bool hark_config_changes_moments(const char *option, const char *given, const char *stored);

/* Whether two configurations agree in an option. */
bool hark_config_agree(const hark_option *option, const hark_config *a, const hark_config *b);

/* Tokens of a step: batch times accumulate times context. hark_config_finish() refuses an overflow. */
static inline int64_t hark_config_step_tokens(const hark_config *config) {
  return config->train.batch * config->train.accumulate * config->model.context;
}

#endif
