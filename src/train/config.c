/* config.c - the table of the training configuration, derived values, and rules between options of data and training. Those between
 * options of the model are in models/model_rules.h. */
#include "train/config.h"

#include <hark/positional.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/range.h"
#include "core/thread_count.h"
#include "data/formats/example_format.h"
#include "data/json_lines.h"
#include "io/number.h"
#include "io/words.h"
#include "models/model_rules.h"
#include "train/config_ahca.h"
#include "train/config_rotary.h"
#include "train/delimiters.h"

#define STEPS_DEFAULT 5000                   /* when neither steps, epochs nor tokens are given */
#define MINIMUM_RATE_PART 0.1                /* of the learning rate */
#define STEP_TOKENS_LIMIT ((int64_t)1 << 48) /* sums over a step are exact in doubles */

#define AT(field) offsetof(hark_config, field)
#define TRAIN HARK_FLAG_OF_TRAINING
#define RUNS "train config"
#define DATA "train eval predict bench config"   /* subcommands that open data */
#define READS "train eval generate bench config" /* subcommands that open a model */
#define COMPUTES "train eval predict generate embed inspect bench config"

#define FORMAT_WORD(id, name) "|" name
#define FORMAT_WORDS "corpus|examples" HARK_EXAMPLE_FORMATS(FORMAT_WORD)

/* Conditions for the column `needs`. */
#define CORPUS "data.format corpus"
#define EXAMPLES "data.format !corpus"
#define TABLES "model.architecture regressor"
#define SUBWORDS CORPUS ", data.tokenizer subwords"
#define PIECES CORPUS ", data.tokenizer subwords|byte_bpe"
#define ADAFACTOR "train.optimiser adafactor"

static const hark_option options[] = {
#define MODEL_OPTION(member, flags, type, initial, range, commands, argument, help, needs, bond, stored, place)                            \
  {HARK_MODEL_PREFIX #member, flags, HARK_OPTION_##type, AT(model.member), initial, range, commands, argument, help, needs},
    HARK_MODEL_OPTIONS(MODEL_OPTION)
#undef MODEL_OPTION
    /* data */
    {"data.format", "format", HARK_OPTION_ENUM, AT(data.format), "corpus", FORMAT_WORDS, DATA, NULL,
     "kind of the data; corpus: text; examples: labelled examples in a folder written by hark data make; the "
     "other words: labelled examples in files of that format (docs/tasks.md)",
     NULL},
    {"data.paths", "data", HARK_OPTION_LIST, AT(data.paths), "", NULL, DATA, "PATH",
     "files of the data, or folders of such files; compressed files are also read; may be repeated; -: "
     "standard input (hark eval and predict only)",
     NULL},
    {"data.validation_paths", "validation", HARK_OPTION_LIST, AT(data.validation_paths), "", NULL, DATA, "PATH",
     "files for validation; not given: a part of the training data is used", NULL},
    {"data.test_paths", "test", HARK_OPTION_LIST, AT(data.test_paths), "", NULL, DATA, "PATH",
     "files of test examples, which only --part test of hark eval and predict uses", EXAMPLES},
    {"data.length_limit", "length-limit", HARK_OPTION_INT, AT(data.length_limit), "0", "[0, 16777216]", DATA, NULL,
     "examples are cut after N tokens; 0: never", EXAMPLES},
    {"data.example_limit", "example-limit", HARK_OPTION_INT, AT(data.example_limit), "0", "[0, inf)", TRAIN, "N",
     "train on N examples, the same for all seeds; a larger N includes the examples of a smaller one; 0: on all", EXAMPLES},
    {"data.classes", "classes", HARK_OPTION_INT, AT(data.classes), "0", "[0, 65536]", DATA, NULL,
     "number of classes, if the files do not state it; 0: two classes; tables: the largest number, 0: ten", EXAMPLES},
    {"data.text_field", "text-field", HARK_OPTION_STRING, AT(data.text_field), HARK_JSON_LINES_TEXT, NULL, DATA, "[NAME]",
     "member of JSON lines (.jsonl, .ndjson) that contains the text; empty: these files are read as plain text", "data.format corpus|text"},
    {"data.label_field", "label-field", HARK_OPTION_STRING, AT(data.label_field), HARK_JSON_LINES_LABEL, NULL, DATA, "NAME",
     "member of JSON lines that contains the label", "data.format text"},
    {"data.quoted", "quoted", HARK_OPTION_BOOL, AT(data.quoted), "false", NULL, DATA, NULL,
     "fields may be quoted as in CSV; inside a quoted field, two double quotes are read as one", "data.format text|pairs"},
    {"data.targets", "target-columns", HARK_OPTION_STRING, AT(data.targets), "", NULL, DATA, "NAME,...",
     "tables in CSV: columns that are predicted; all other columns are inputs", TABLES},
    {"data.context_least", NULL, HARK_OPTION_INT, AT(data.context_least), "5", "[1, 16777216]", DATA, NULL,
     "tables: smallest number of rows whose targets are given, the context of a sample", TABLES},
    {"data.context_most", NULL, HARK_OPTION_INT, AT(data.context_most), "0", "[0, 16777216]", DATA, NULL,
     "tables: largest number of rows of context; the number is drawn for every sample, uniform in its logarithm; 0: all rows but the "
     "queries",
     TABLES},
    {"data.queries", NULL, HARK_OPTION_INT, AT(data.queries), "0", "[0, 16777216]", DATA, NULL,
     "tables: number of rows whose targets are predicted; 0: all rows that are not context", TABLES},
    {"data.tokenizer", "tokenizer", HARK_OPTION_ENUM, AT(data.tokenizer), "characters", "characters|bytes|subwords|byte_bpe|imported",
     TRAIN, NULL,
     "what a token is; in formats text and pairs, a byte; characters: a Unicode code point; subwords: a piece of a word, "
     "learned from the text (data.subwords.model); byte_bpe: bytes merged pair by pair, as in GPT-2; imported: a token of "
     "data.vocabulary, or of the model that train.init_from names",
     CORPUS " or data.tokenizer bytes, data.format corpus|text|pairs"},
    {"data.vocabulary", "vocabulary", HARK_OPTION_STRING, AT(data.vocabulary), "", NULL, RUNS, "FILE",
     "tokenizer.json, tokenizer.model or a folder with one of them; its vocabulary is used, and no vocabulary is "
     "learned; with this option, data files named .bin contain tokens of two bytes, as nanoGPT writes them",
     CORPUS ", train.init_from none"},
    {"data.unit", "unit", HARK_OPTION_ENUM, AT(data.unit), "text", "text|sentences", TRAIN, NULL,
     "what windows consist of; text: they begin anywhere in the text; sentences: every line is a sentence, and "
     "a window contains whole sentences, which do not attend to each other",
     CORPUS},
    {"data.long_sentences", NULL, HARK_OPTION_ENUM, AT(data.long_sentences), "cut", "cut|refuse", TRAIN, NULL,
     "what happens to sentences longer than the context; cut: they are divided; refuse: an error names the line", "data.unit sentences"},
    {"data.unknown", "unknown", HARK_OPTION_ENUM, AT(data.unknown), "error", "error|map", READS, NULL,
     "what happens to characters outside the vocabulary; error: an error names their place; map: they become "
     "the unknown token",
     CORPUS ", data.tokenizer characters|subwords"},
    {"data.validation_fraction", "validation-fraction", HARK_OPTION_FLOAT, AT(data.validation_fraction), "0.1", "[0, 1)", TRAIN, NULL,
     "fraction of the text, or of the training examples, kept for validation", "data.validation_paths none"},
    {"data.split", "split", HARK_OPTION_ENUM, AT(data.split), "tail", "tail|per_file|files", TRAIN, NULL,
     "part kept for validation; tail: the end of the whole text; per_file: the end of each file; files: the files of "
     "data.validation_paths",
     CORPUS},
    {"data.order", "order", HARK_OPTION_ENUM, AT(data.order), "random", "random|shuffled|sequential", TRAIN, NULL,
     "order of training windows or examples; if it is not given, examples are shuffled", NULL},
    {"data.epoch", "epoch", HARK_OPTION_ENUM, AT(data.epoch), "tokens", "tokens|windows", TRAIN, NULL,
     "length of an epoch; tokens: as many tokens as the text has; windows: as many windows as can begin in the "
     "text, one at every token",
     CORPUS ", data.unit text"},
    {"data.subwords.vocabulary", "subwords", HARK_OPTION_INT, AT(data.subwords.vocabulary), "8000", "[8, 600000]", TRAIN, "N",
     "size of the vocabulary of sub-words or byte_bpe, including reserved tokens and bytes", PIECES},
    {"data.subwords.model", NULL, HARK_OPTION_ENUM, AT(data.subwords.model), "unigram", HARK_SUBWORD_MODEL_WORDS, TRAIN, NULL,
     "how words are divided; unigram: into the most likely pieces (arXiv 1804.10959); bpe: characters are "
     "joined pair by pair (arXiv 1508.07909); wordpiece: into the longest pieces from the left (arXiv "
     "1609.08144), learned without SentencePiece",
     SUBWORDS},
    {"data.subwords.byte_fallback", NULL, HARK_OPTION_BOOL, AT(data.subwords.byte_fallback), "true", NULL, TRAIN, NULL,
     "encode characters that are in no piece as their bytes", SUBWORDS},
    {"data.subwords.coverage", NULL, HARK_OPTION_FLOAT, AT(data.subwords.coverage), "0.9995", "(0, 1]", TRAIN, NULL,
     "fraction of the characters of the text that the vocabulary covers; the rarest characters are left out", SUBWORDS},
    /* train */
    {"train.steps", "steps", HARK_OPTION_INT, AT(train.steps), "0", "[0, inf)", TRAIN, NULL,
     "length of the run in optimiser steps; 0: the length is set by epochs, tokens, examples or max_time; if none of these is given: the "
     "length that hark train chooses for a text (docs/numbers.md), or 5000 steps where it chooses none",
     NULL},
    {"train.epochs", "epochs", HARK_OPTION_FLOAT, AT(train.epochs), "0", "[0, inf)", TRAIN, NULL, "length of the run in epochs; 0: not set",
     NULL},
    {"train.tokens", "tokens", HARK_OPTION_INT, AT(train.tokens), "0", "[0, inf)", TRAIN, NULL, "length of the run in tokens; 0: not set",
     NULL},
    {"train.examples", "examples", HARK_OPTION_INT, AT(train.examples), "0", "[0, inf)", TRAIN, NULL,
     "length of the run in examples, or in windows of text; 0: not set", NULL},
    {"train.batch", "batch", HARK_OPTION_INT, AT(train.batch), "16", "[1, 1048576]", DATA, NULL,
     "number of windows or examples in a micro-batch", NULL},
    {"train.accumulate", "accumulate", HARK_OPTION_INT, AT(train.accumulate), "1", "[1, 1048576]", TRAIN, NULL,
     "number of micro-batches in a step", NULL},
    {"train.precision", "precision", HARK_OPTION_ENUM, AT(train.precision), "f32", "f32|bf16", "train bench config", NULL,
     "precision of the matrix products of training; bf16: operands are rounded to bf16 and their products are added in f32; on a "
     "processor without AVX512_BF16, bf16 is slower than f32 and is refused, unless HARK_ARCH names an instruction set; weights, "
     "checkpoints and evaluations are always f32",
     NULL},
    {"train.learning_rate", "learning-rate lr", HARK_OPTION_FLOAT, AT(train.learning_rate), "1e-3", "(0, inf)", TRAIN, NULL,
     "highest learning rate", NULL},
    {"train.minimum_rate", NULL, HARK_OPTION_FLOAT, AT(train.minimum_rate), "-1", "[-1, inf)", TRAIN, NULL,
     "learning rate at the end of schedules cosine and linear; below 0: a tenth of learning_rate", "train.schedule cosine|linear"},
    {"train.positional_rate", "positional-rate", HARK_OPTION_FLOAT, AT(train.positional_rate), "30", "[0, inf)", TRAIN, NULL,
     "factor of the learning rate for the parameters of the positional kernel, for learned ridges and sigmas, and for the "
     "prior and the scales of classes of a regressor; most of them are trained as logarithms; 0: these parameters keep their initial "
     "values",
     "model.positional given or model.attention.ridge_learned true or model.attention.sigma_learned true or model.architecture regressor"},
    {"train.rotary_rate", NULL, HARK_OPTION_FLOAT, AT(train.rotary_rate), "1", "[0, inf)", TRAIN, NULL,
     "factor of the learning rate for learned rotary rates; 0: these rates keep their initial values", "model.rotary.learned !none"},
    {"train.schedule", "schedule", HARK_OPTION_ENUM, AT(train.schedule), "cosine", "constant|cosine|linear|rsqrt|base_rsqrt|cycle", TRAIN,
     NULL,
     "learning rate after the warm-up; rsqrt: learning_rate sqrt(warmup / step); base_rsqrt: learning_rate / "
     "sqrt(step); cycle: a cosine that begins after the warm-up and falls to 0 in as many steps as the whole run has, so that the rate is "
     "above 0 at the end of the run",
     NULL},
    {"train.warmup", "warmup", HARK_OPTION_INT, AT(train.warmup), "100", "[0, inf)", TRAIN, NULL,
     "number of steps in which the learning rate rises from 0", NULL},
    {"train.extend", "extend", HARK_OPTION_ENUM, AT(train.extend), "continue", "continue|restart|stretch", RUNS, NULL,
     "learning rate of a run that is resumed with another number of steps; continue: the rate decays from its "
     "present value; restart: the schedule begins again; stretch: the rate is as if the new number had been "
     "set from the beginning (it may jump)",
     "run.resume true"},
    {"train.optimiser", "optimiser", HARK_OPTION_ENUM, AT(train.optimiser), "adamw", "adamw|adafactor", TRAIN, NULL,
     "what updates the weights; adamw: two moments of every weight (arXiv 1711.05101); adafactor: large matrices have only means of the "
     "rows and columns of the second moment (arXiv 1804.04235), with options train.adafactor",
     NULL},
    {"train.beta1", "beta1", HARK_OPTION_FLOAT, AT(train.beta1), "0.9", "[0, 1)", TRAIN, NULL, "AdamW: decay of the first moment",
     "train.optimiser adamw"},
    {"train.beta2", "beta2", HARK_OPTION_FLOAT, AT(train.beta2), "0.99", "[0, 1)", TRAIN, NULL, "AdamW: decay of the second moment",
     "train.optimiser adamw"},
    {"train.epsilon", NULL, HARK_OPTION_FLOAT, AT(train.epsilon), "1e-8", "(0, 1]", TRAIN, NULL,
     "AdamW: number that is added to the root of the second moment", "train.optimiser adamw"},
    {"train.weight_decay", "weight-decay", HARK_OPTION_FLOAT, AT(train.weight_decay), "0.1", "[0, inf)", TRAIN, NULL,
     "decoupled weight decay of matrices", NULL},
    {"train.shard_optimiser", "shard-optimiser", HARK_OPTION_BOOL, AT(train.shard_optimiser), "false", NULL, "train bench config", NULL,
     "every process keeps only a part of the moments of AdamW; this needs less memory, sends more bytes and "
     "gives the same bits",
     "train.optimiser adamw"},
    {"train.clip", "clip", HARK_OPTION_FLOAT, AT(train.clip), "1", "[0, inf)", TRAIN, NULL,
     "gradients with a larger global norm are scaled down to this norm; 0: no clipping", NULL},
    {"train.label_smoothing", NULL, HARK_OPTION_FLOAT, AT(train.label_smoothing), "0", "[0, 1)", TRAIN, NULL,
     "label smoothing: fraction of the probability of the target that is spread over all tokens",
     "model.architecture !latent|finite|regressor, data.format !vectors"},
    {"train.z_loss", NULL, HARK_OPTION_FLOAT, AT(train.z_loss), "0", "[0, inf)", TRAIN, NULL,
     "weight of the term (log sum exp(logits))^2, which is added to the loss of every target (z-loss, arXiv 2204.02311); 1e-4 is usual",
     "model.architecture !latent|finite|regressor, data.format !vectors"},
    {"train.evaluate_every", "evaluate-every", HARK_OPTION_INT, AT(train.evaluate_every), "250", "[0, inf)", TRAIN, NULL,
     "steps between evaluations on the validation text; 0: at the end only", NULL},
    {"train.checkpoint_every", "checkpoint-every", HARK_OPTION_INT, AT(train.checkpoint_every), "500", "[0, inf)", TRAIN, NULL,
     "steps between checkpoints; 0: at the end only", NULL},
    {"train.keep", "keep", HARK_OPTION_INT, AT(train.keep), "2", "[1, 1000000]", TRAIN, NULL,
     "number of most recent checkpoints that are kept, in addition to the best one", NULL},
    {"train.log_every", "log-every", HARK_OPTION_INT, AT(train.log_every), "10", "[1, inf)", TRAIN, NULL,
     "steps between lines of metrics.jsonl", NULL},
    {"train.early_stop", "early-stop", HARK_OPTION_INT, AT(train.early_stop), "0", "[0, inf)", TRAIN, NULL,
     "the run ends after this number of evaluations without improvement; 0: never", "train.evaluate_every >0"},
    {"train.max_time", "max-time", HARK_OPTION_DURATION, AT(train.max_time), "0", "[0, inf)", TRAIN, "TIME",
     "the run, including its last evaluation and checkpoint, ends within this time, counted from the moment at which the data have been "
     "read; if no other option sets the length, as many steps as fit into this time are planned; 0: "
     "no limit",
     NULL},
    {"train.seed", "seed", HARK_OPTION_INT, AT(train.seed), "1", "[0, inf)", READS, NULL, "seed of all random numbers", NULL},
    {"train.max_bad_steps", NULL, HARK_OPTION_INT, AT(train.max_bad_steps), "10", "[1, inf)", TRAIN, NULL,
     "the run ends after this number of consecutive steps with numbers that are not finite", NULL},
    {"train.init_from", "init-from", HARK_OPTION_STRING, AT(train.init_from), "", NULL, RUNS, "PATH",
     "start with the weights of a run, a checkpoint, a file of hark or a folder of Hugging Face transformers; "
     "the options of that model and its vocabulary replace the defaults",
     NULL},
    {"train.allow_missing", "allow-missing", HARK_OPTION_LIST, AT(train.allow_missing), "", NULL, RUNS, "PATTERN",
     "weights that are initialised if init_from does not have them, or has them with another shape; * "
     "matches any text",
     "train.init_from given"},
    {"train.allow_unexpected", "allow-unexpected", HARK_OPTION_LIST, AT(train.allow_unexpected), "", NULL, RUNS, "PATTERN",
     "weights of init_from that are ignored, because the model does not have them; * matches any text", "train.init_from given"},
    {"train.mask_fraction", "mask-fraction", HARK_OPTION_FLOAT, AT(train.mask_fraction), "0.15", "(0, 1)", TRAIN, NULL,
     "fraction of the tokens that are masked and that a masked_encoder predicts", "model.architecture masked_encoder"},
    {"train.freeze", "freeze", HARK_OPTION_LIST, AT(train.freeze), "", NULL, TRAIN, "PATTERN",
     "weights that keep their values; * matches any text; may be repeated", NULL},
    {"train.adafactor.beta1", NULL, HARK_OPTION_FLOAT, AT(train.adafactor.beta1), "0", "[0, 1)", TRAIN, NULL,
     "decay of the average of updates; weights are changed by this average instead of the update; 0: no average, and no memory for it",
     ADAFACTOR},
    {"train.adafactor.decay_exponent", NULL, HARK_OPTION_FLOAT, AT(train.adafactor.decay_exponent), "0.8", "(0, 1]", TRAIN, NULL,
     "decay of the second moment: in update t it is 1 - t^-X", ADAFACTOR},
    {"train.adafactor.update_clip", NULL, HARK_OPTION_FLOAT, AT(train.adafactor.update_clip), "1", "[0, inf)", TRAIN, NULL,
     "an update of a weight with a larger root mean square is scaled down to this one, before it is multiplied by the learning rate; "
     "0: no bound",
     ADAFACTOR},
    {"train.adafactor.relative", NULL, HARK_OPTION_BOOL, AT(train.adafactor.relative), "false", NULL, TRAIN, NULL,
     "the learning rate of a weight is multiplied by the root mean square of its numbers, at least by 1e-3", ADAFACTOR},
    {"train.adafactor.factor_from", NULL, HARK_OPTION_INT, AT(train.adafactor.factor_from), "128", "[1, inf)", TRAIN, NULL,
     "matrices whose two sides have at least this length keep means of rows and columns; all other weights keep the second moment of every "
     "number",
     ADAFACTOR},
    /* run */
    {"run.directory", "out o", HARK_OPTION_STRING, AT(run.directory), "", NULL, TRAIN, "FOLDER",
     "folder of the run; not given: a folder in runs/ that is named by the time of the start", NULL},
    {"run.resume", "resume", HARK_OPTION_BOOL, AT(run.resume), "false", NULL, TRAIN, NULL,
     "continue the run in the folder of --out, or in the folder after --resume, from its last checkpoint", NULL},
    {"run.threads", "threads", HARK_OPTION_INT, AT(run.threads), "0", "[0, 4096]", COMPUTES, NULL, HARK_THREADS_HELP, NULL},
    {"run.ranks", "ranks", HARK_OPTION_INT, AT(run.ranks), "0", "[0, 1024]", TRAIN, NULL,
     "number of processes that the launcher (mpirun) must have started; any other number is an error; 0: any "
     "number is accepted",
     NULL},
    {"run.sequence_ranks", "sequence-ranks", HARK_OPTION_INT, AT(run.sequence_ranks), "1", "[1, 1024]", TRAIN, NULL,
     "number of processes that share the tokens of every window; it must divide the number of all processes", NULL},
    {"run.rank_timeout", "rank-timeout", HARK_OPTION_DURATION, AT(run.rank_timeout), "10m", "[1, inf)", TRAIN, "TIME",
     "if a process does not answer for this time, all processes end", NULL},
    {"run.backend", "backend", HARK_OPTION_STRING, AT(run.backend), "cpu", NULL, COMPUTES, "NAME", "cpu or reference", NULL},
    {"run.deterministic", "deterministic", HARK_OPTION_BOOL, AT(run.deterministic), "false", NULL, COMPUTES, NULL,
     "results have the same bits for every number of threads (the backends of this build guarantee this "
     "without the option too); with ahca, a sequence also has the same bits alone and in a batch",
     NULL},
    {"run.tensorboard", "tensorboard", HARK_OPTION_BOOL, AT(run.tensorboard), "false", NULL, TRAIN, NULL,
     "write the metrics also to event files of TensorBoard in the folder of the run", NULL},
    {"run.csv", "csv", HARK_OPTION_BOOL, AT(run.csv), "false", NULL, TRAIN, NULL,
     "write the metrics also to metrics.csv, at every checkpoint and at the end of the run", NULL},
    {"run.sample_tokens", "sample-tokens", HARK_OPTION_INT, AT(run.sample_tokens), "0", "[0, 65536]", TRAIN, NULL,
     "at every checkpoint, a generated text is added to samples.jsonl; it has this number of tokens, or as "
     "many as fit into the context; 0: no text",
     "model.architecture decoder"},
    {"run.sample_prompt", "sample-prompt", HARK_OPTION_STRING, AT(run.sample_prompt), "", NULL, TRAIN, "TEXT",
     "prompt that the generated texts continue; not given: these texts have no prompt", "run.sample_tokens >0"},
    {"run.preflight", "preflight", HARK_OPTION_BOOL, AT(run.preflight), "true", NULL, RUNS, NULL,
     "refuse a run that needs more memory or disk than is available", NULL},
};

static const hark_option_section sections[] = {
    {"model", "Model"},
    {"model.rotary", "Rotary positions"},
    {"model.ahca", "Compressed chunks"},
    {"model.latent", "Latent-variable networks"},
    {"model.finite", "Finite-dimensional networks"},
    {"model.regressor", "Regressors"},
    {"model.attention", "Attention"}, /* a list with one entry per layer would be accepted where the YAML walk opens this section */
    {"data", "Data"},
    {"data.subwords", "Sub-words"},
    {"train", "Training"},
    {"train.adafactor", "Adafactor"},
    {"run", "Run"},
    {NULL, NULL},
};

const hark_option_table hark_config_table = {
    options, (int)(sizeof options / sizeof options[0]), sections, sizeof(hark_config), true,
};

/* A time limit determines the length where nothing else does. Options given to a resumed run replace the run's own. */
static void settle_time(const hark_options *set, hark_config *config, bool has_length, hark_option_source length) {
  const hark_option_source time = hark_options_source(set, "train.max_time");
  if (has_length && time == HARK_SOURCE_RUN && length > HARK_SOURCE_RUN) config->train.max_time = 0;
  config->train.planned = !has_length && config->train.max_time > 0;
  config->train.more_time = config->train.max_time > 0 && time == HARK_SOURCE_COMMAND && (!has_length || length < HARK_SOURCE_COMMAND);
}

/* Steps, epochs, tokens and examples each set the length of training. The command line replaces a file's setting; each source may set only
 * one of them. */
static hark_status settle_length(hark_context *context, hark_options *set, hark_config *config) {
  const struct {
    const char *name;
    bool given;
  } lengths[] = {{"train.steps", config->train.steps > 0},
                 {"train.epochs", config->train.epochs > 0},
                 {"train.tokens", config->train.tokens > 0},
                 {"train.examples", config->train.examples > 0}};
  hark_option_source highest = HARK_SOURCE_DEFAULT;
  int count = 0;
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    const hark_option_source source = hark_options_source(set, lengths[i].name);
    if (!lengths[i].given) continue;
    count = source > highest ? 1 : count + (source == highest);
    highest = source > highest ? source : highest;
  }
  if (hark_options_source(set, lengths[0].name) < highest) config->train.steps = 0;
  if (hark_options_source(set, lengths[1].name) < highest) config->train.epochs = 0;
  if (hark_options_source(set, lengths[2].name) < highest) config->train.tokens = 0;
  if (hark_options_source(set, lengths[3].name) < highest) config->train.examples = 0;
  if (count > 1) {
    HARK_TRY(hark_options_complain(context, set, "train.steps train.epochs train.tokens train.examples",
                                   "only one of steps, epochs, tokens and examples can give the length, %d do", count));
  }
  settle_time(set, config, count > 0, highest);
  if (count == 0 && !config->train.planned) config->train.steps = STEPS_DEFAULT;
  return HARK_OK;
}

/* Numbers of steps and tokens are multiplied without further checks. */
static hark_status check_counts(hark_context *context, hark_options *set, const hark_config *config) {
  const int64_t factors[] = {config->train.batch, config->train.accumulate, config->model.context};
  int64_t tokens = 1;
  for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
    if (factors[i] < 1) return HARK_OK; /* reported as a separate problem */
    tokens = factors[i] > STEP_TOKENS_LIMIT / tokens ? STEP_TOKENS_LIMIT + 1 : tokens * factors[i];
    if (tokens > STEP_TOKENS_LIMIT)
      return hark_options_complain(context, set, "train.batch train.accumulate model.context",
                                   "a step of batch %" PRId64 " times accumulate %" PRId64 " times context %" PRId64
                                   " tokens, expected at most 2^48",
                                   factors[0], factors[1], factors[2]);
  }
  if (config->train.steps > INT64_MAX / 2 / tokens)
    return hark_options_complain(context, set, "train.steps",
                                 "%" PRId64 " steps of %" PRId64 " tokens are more tokens than can be counted, expected at most %" PRId64
                                 " steps",
                                 config->train.steps, tokens, INT64_MAX / 2 / tokens);
  if (config->train.tokens > INT64_MAX / 2)
    return hark_options_complain(context, set, "train.tokens", "%" PRId64 " tokens, expected at most 2^62", config->train.tokens);
  return HARK_OK;
}

const char *hark_config_format(const hark_config *config) {
  return config->data.format >= HARK_DATA_FORMAT ? hark_examples_format_name(config->data.format - HARK_DATA_FORMAT) : "";
}

/* Weights require their vocabulary. */
hark_bond hark_config_bond(const char *option) {
  const hark_model_option *const row = hark_model_option_find(option);
  if (row != NULL) return row->bond;
  if (strcmp(option, "data.vocabulary") == 0) return HARK_BOND_WEIGHTS;
  return strcmp(option, "data.tokenizer") == 0 || strncmp(option, "data.subwords.", 14) == 0 ? HARK_BOND_WEIGHTS : HARK_BOND_NONE;
}

static hark_status complain_of_list(hark_context *context, hark_options *set, const hark_model_list *list, hark_list_reading reading,
                                    const char *given, const char *more) {
  hark_text expected = hark_text_empty(context);
  if (reading == HARK_LIST_FULL) return hark_options_complain(context, set, list->name, "more than %d numbers", (int)list->most);
  hark_option_expected(&hark_model_option_find(list->name)->option, &expected);
  hark_status status = expected.status;
  if (status == HARK_OK)
    status =
        hark_options_complain(context, set, list->name, "\"%.40s\" given, expected %s%s%s", given, list->whole ? "whole " : "",
                              hark_text_get(&expected), list->delimiters ? ", or texts in which \\n, \\t, \\r and \\\\ are escapes" : more);
  hark_text_free(&expected);
  return status;
}

static bool is_above_zero(const char *number) {
  double value = 0;
  return hark_number_read(number, strlen(number), &value) && value > 0;
}

bool hark_config_changes_moments(const char *option, const char *given, const char *stored) {
  if (strcmp(option, "train.adafactor.beta1") == 0) return is_above_zero(given) != is_above_zero(stored);
  return strcmp(option, "train.optimiser") == 0 || strcmp(option, "train.adafactor.factor_from") == 0;
}

/* A delimiter that is a text: its tokens are found when the vocabulary is known (delimiters.h). */
static hark_list_reading read_delimiter(const hark_model_list *list, const char *item, hark_network_config *config) {
  size_t bytes = 0;
  return hark_delimiter_text(item, NULL, &bytes) ? hark_model_list_add(list, HARK_DELIMITER_TEXT, config) : HARK_LIST_WRONG;
}

hark_status hark_config_read_list(hark_context *context, hark_options *set, hark_config *config, const char *name, const char *more) {
  const hark_model_list *const list = hark_model_list_of(name);
  const hark_string_list *const texts = hark_model_option_value(hark_model_option_find(name), &config->model);
  hark_model_list_clear(list, &config->model);
  for (int64_t i = 0; i < texts->count; i++) {
    const hark_list_reading reading = list->delimiters && hark_delimiter_is_text(texts->items[i])
                                          ? read_delimiter(list, texts->items[i], &config->model)
                                          : hark_model_list_read(list, texts->items[i], &config->model);
    if (reading == HARK_LIST_READ) continue;
    hark_model_list_clear(list, &config->model);
    HARK_TRY(complain_of_list(context, set, list, reading, texts->items[i], more));
    hark_options_note_bad(set, name);
    break;
  }
  return HARK_OK;
}

static bool same_list(const hark_string_list *a, const hark_string_list *b) {
  if (a->count != b->count) return false;
  for (int64_t i = 0; i < a->count; i++)
    if (strcmp(a->items[i], b->items[i]) != 0) return false;
  return true;
}

bool hark_config_agree(const hark_option *option, const hark_config *a, const hark_config *b) {
  const char *const left = (const char *)a + option->offset, *const right = (const char *)b + option->offset;
  switch (option->type) {
    case HARK_OPTION_BOOL: return *(const bool *)left == *(const bool *)right;
    case HARK_OPTION_ENUM: return *(const int *)left == *(const int *)right;
    case HARK_OPTION_INT: return *(const int64_t *)left == *(const int64_t *)right;
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: return memcmp(left, right, sizeof(double)) == 0;
    case HARK_OPTION_STRING: return strcmp(*(const char *const *)left, *(const char *const *)right) == 0;
    case HARK_OPTION_LAYERS: return hark_layer_choice_same((const hark_layer_choice *)left, (const hark_layer_choice *)right);
    case HARK_OPTION_LIST: return same_list((const hark_string_list *)left, (const hark_string_list *)right);
  }
  return false;
}

/* HARK_INVALID_ARGUMENT for a kernel that is not positive definite at its initial values. */
static hark_status check_definite(hark_context *context, const hark_positional *expression, int64_t length) {
  const size_t bytes = (size_t)hark_positional_parameter_count(expression) * sizeof(double);
  const hark_positional_start start = {.struct_size = sizeof start, .length = length, .heads = 1};
  void *parameters = NULL;
  int column = 0;
  const char *reason = NULL;
  HARK_TRY(hark_allocate(context, bytes, &parameters));
  hark_status status = hark_positional_initial(context, expression, &start, parameters);
  if (status == HARK_OK && !hark_positional_is_definite(expression, parameters, &column, &reason))
    status = hark_fail(context, HARK_INVALID_ARGUMENT,
                       "column %d: this kernel is not positive definite (positive definite: %s), and normalisation cme needs one that is",
                       column, reason);
  hark_release(context, parameters, bytes);
  return status;
}

/* Parses the expressions of positional kernels only to find their mistakes. */
static hark_status check_positional(hark_context *context, hark_options *set, const hark_config *config) {
  hark_positional_list list;
  hark_status status = hark_positional_list_open(context, config->model.positional, &list);
  const bool definite = hark_layer_choice_has(&config->model.attention.normalisation, HARK_NORMALISATION_CME);
  for (int64_t i = 0; definite && status == HARK_OK && i < list.count; i++)
    status = check_definite(context, list.items[i], config->model.context);
  hark_positional_list_close(context, &list);
  if (status != HARK_INVALID_ARGUMENT) return status;
  char message[HARK_MESSAGE_BYTES];
  (void)snprintf(message, sizeof message, "%s", hark_context_message(context));
  return hark_options_complain(context, set, "model.positional", "%s", message);
}

/* Nobody gave it: an architecture replaces the default of the table, or the value of a preset, by its own. */
static bool is_open(const hark_options *set, const char *name) {
  const hark_option_source source = hark_options_source(set, name);
  return source == HARK_SOURCE_DEFAULT || source == HARK_SOURCE_PRESET;
}

/* Sets the defaults of models of real vectors: the settings of their theorems. */
static void settle_vectors(const hark_options *set, hark_config *config) {
  const bool latent = config->model.architecture == HARK_ARCHITECTURE_LATENT;
  if (!hark_architecture_of(config->model.architecture)->predicts_vectors) return;
  if (is_open(set, "model.positions")) config->model.positions = HARK_POSITIONS_NONE;
  if (hark_architecture_of(config->model.architecture)->reads_tables) return;
  if (is_open(set, "model.activation")) config->model.activation = HARK_ACTIVATION_RELU;
  if (!latent) return;
  if (hark_options_source(set, "model.attention.kernel") == HARK_SOURCE_DEFAULT) config->model.attention.kernel = HARK_KERNEL_RBF;
  if (hark_options_source(set, "model.attention.sigma") == HARK_SOURCE_DEFAULT)
    config->model.attention.sigma = sqrt((double)hark_max(1, config->model.width / hark_max(1, config->model.heads)));
}

#define TABLE_CLASSES 10 /* if the number is not given */

int64_t hark_config_table_classes(const hark_config *config) {
  if (!hark_architecture_of(config->model.architecture)->reads_tables) return 0;
  if (config->model.regressor.loss != HARK_REGRESSOR_LOSS_CLASSES) return 0;
  return config->data.classes > 0 ? config->data.classes : TABLE_CLASSES;
}

/* Tables whose targets are classes. */
static hark_status check_table_classes(hark_context *context, hark_options *set, const hark_config *config) {
  if (!hark_architecture_of(config->model.architecture)->reads_tables) return HARK_OK;
  if (config->data.classes > 0 && hark_config_table_classes(config) == 0)
    HARK_TRY(hark_options_complain(context, set, "data.classes model.regressor.loss",
                                   "the targets of tables are numbers, expected model.regressor.loss classes"));
  if (hark_config_table_classes(config) > HARK_CLASS_MOST)
    HARK_TRY(hark_options_complain(context, set, "data.classes", "a table has at most %d classes", HARK_CLASS_MOST));
  return HARK_OK;
}

/* Real vectors and the models that read them. */
static hark_status check_vectors(hark_context *context, hark_options *set, const hark_config *config) {
  const hark_architecture *const architecture = hark_architecture_of(config->model.architecture);
  const char *const format = architecture->reads_tables ? "tables" : "vectors";
  const bool vectors = strcmp(hark_config_format(config), "vectors") == 0, tables = strcmp(hark_config_format(config), "tables") == 0;
  const bool named = architecture->reads_tables ? tables : vectors;
  if (architecture->predicts_vectors && !named && (!hark_config_has_examples(config) || hark_config_format(config)[0] != '\0'))
    return hark_options_complain(context, set, "model.architecture data.format", "%s reads %s, expected data.format: %s",
                                 architecture->name, architecture->reads_tables ? "tables" : "real vectors", format);
  if (tables && !architecture->reads_tables)
    return hark_options_complain(context, set, "model.architecture data.format", "tables are for architecture regressor, not for %s",
                                 architecture->name);
  if (architecture->reads_tables && config->data.context_most > 0 && config->data.context_most < config->data.context_least)
    HARK_TRY(hark_options_complain(context, set, "data.context_most data.context_least",
                                   "context_most is %" PRId64 ", and context_least is %" PRId64 ", expected at least the same",
                                   config->data.context_most, config->data.context_least));
  HARK_TRY(check_table_classes(context, set, config));
  if (!architecture->predicts_vectors && !architecture->may_read_vectors && named)
    return hark_options_complain(context, set, "model.architecture data.format",
                                 "real vectors are for architectures latent, finite and ahca, %s reads tokens of a vocabulary",
                                 architecture->name);
  return HARK_OK;
}

/* In formats of texts, the tokens are bytes, even if an earlier version recorded another tokenizer; requesting another one is refused. */
static void settle_tokenizer(const hark_options *set, hark_config *config) {
  const bool given = config->data.vocabulary[0] != '\0' && !hark_options_is_idle(set, "data.vocabulary");
  if (given && is_open(set, "data.tokenizer")) config->data.tokenizer = HARK_TOKENIZER_IMPORTED;
  const char *const format = hark_config_format(config);
  const bool of_bytes = strcmp(format, "text") == 0 || strcmp(format, "pairs") == 0;
  if (of_bytes && !hark_options_is_idle(set, "data.tokenizer")) config->data.tokenizer = HARK_TOKENIZER_BYTES;
}

const char *hark_config_unit_word(const hark_config *config) {
  const hark_architecture *const architecture = hark_architecture_of(config->model.architecture);
  if (architecture->reads_tables) return "rows";
  return architecture->predicts_vectors || strcmp(hark_config_format(config), "vectors") == 0 ? "vectors" : "tokens";
}

/* Labelled examples, and models that need them. */
static hark_status settle_examples(hark_context *context, hark_options *set, hark_config *config) {
  const bool examples = hark_config_has_examples(config), encoder = config->model.architecture == HARK_ARCHITECTURE_ENCODER;
  if (encoder && !examples)
    HARK_TRY(hark_options_complain(context, set, "model.architecture data.format",
                                   "an encoder predicts classes of examples, expected a data.format other than corpus"));
  if (config->model.architecture == HARK_ARCHITECTURE_MASKED_ENCODER && hark_config_has_sentences(config))
    HARK_TRY(hark_options_complain(context, set, "model.architecture data.unit",
                                   "a masked encoder reads windows of text or examples, expected data.unit: text"));
  HARK_TRY(check_vectors(context, set, config));
  settle_tokenizer(set, config);
  if (config->data.vocabulary[0] != '\0' && !examples && config->data.tokenizer != HARK_TOKENIZER_IMPORTED)
    HARK_TRY(hark_options_complain(context, set, "data.tokenizer data.vocabulary",
                                   "data.vocabulary names a tokenizer, expected data.tokenizer: imported or none"));
  if (config->model.architecture == HARK_ARCHITECTURE_MASKED_ENCODER && hark_config_has_imported_tokens(config))
    HARK_TRY(
        hark_options_complain(context, set, "model.architecture data.tokenizer",
                              "a masked encoder needs a token that represents masked tokens, and tokenizers of other programs have none"));
  if (!examples) return HARK_OK;
  if (config->run.sample_tokens > 0)
    HARK_TRY(hark_options_complain(context, set, "run.sample_tokens data.format", "only decoders of texts generate samples"));
  if (hark_options_source(set, "data.order") == HARK_SOURCE_DEFAULT) config->data.order = HARK_ORDER_SHUFFLED;
  if (config->train.tokens > 0)
    HARK_TRY(hark_options_complain(context, set, "train.tokens data.format",
                                   "examples differ in length: expected steps, epochs or examples to give the length of the run"));
  if (config->data.length_limit > config->model.context)
    HARK_TRY(hark_options_complain(context, set, "data.length_limit model.context",
                                   "length_limit %" PRId64 " keeps more tokens than the model's context of %" PRId64,
                                   config->data.length_limit, config->model.context));
  if (config->data.length_limit > 0 && config->model.architecture == HARK_ARCHITECTURE_FINITE)
    HARK_TRY(hark_options_complain(context, set, "data.length_limit model.architecture",
                                   "finite reads the mask as a sequence's last token, which length_limit would cut off"));
  return HARK_OK;
}

/* Adds a problem for a violated rule of models. An option without effect is refused as such (hark_options_refuse_idle()). */
typedef struct complaint {
  hark_context *context;
  hark_options *set;
} complaint;

static hark_status complain(void *data, const char *names, const char *message) {
  const complaint *const c = data;
  size_t length;
  for (const char *at = names, *word; (word = hark_next_word(&at, ' ', &length)) != NULL;) {
    char name[HARK_OPTION_WORD_BYTES];
    (void)snprintf(name, sizeof name, "%.*s", (int)length, word);
    if (hark_options_is_idle(c->set, name)) return HARK_OK;
  }
  return hark_options_complain(c->context, c->set, names, "%s", message);
}

/* Records derived values, because a run's config.yaml may be the configuration of another run. */
static void note_derived(hark_options *set, const hark_config *config) {
  const bool vectors = hark_architecture_of(config->model.architecture)->predicts_vectors;
  if (config->model.key_heads == config->model.heads) hark_options_note_usual(set, "model.key_heads");
  if (config->model.feed_forward_width == 4 * config->model.width) hark_options_note_usual(set, "model.feed_forward_width");
  if (config->train.minimum_rate == MINIMUM_RATE_PART * config->train.learning_rate) hark_options_note_usual(set, "train.minimum_rate");
  if (vectors && config->model.activation == HARK_ACTIVATION_RELU) hark_options_note_usual(set, "model.activation");
}

/* Whether the option is a number that training computes with. */
static bool is_computed_with(const hark_option *option) {
  return option->type == HARK_OPTION_FLOAT && strncmp(option->name, "data.", 5) != 0 && strcmp(option->name, "train.epochs") != 0;
}

/* Training computes in f32, in which a smaller number is 0 and a larger one infinite; sigma also occurs as its square. Values recorded in a
 * run were accepted once. */
static hark_status check_ranges(hark_context *context, hark_options *set, const hark_config *config) {
  for (int i = 0; i < hark_config_table.count; i++) {
    const hark_option *const option = &hark_config_table.options[i];
    if (!is_computed_with(option) || hark_options_source(set, option->name) <= HARK_SOURCE_RUN) continue;
    const double value = *(const double *)((const char *)config + option->offset);
    const bool squared = strcmp(option->name, "model.attention.sigma") == 0;
    const hark_range range = squared ? hark_range_of_sigma(HARK_F32) : hark_range_of(HARK_F32), ends = hark_range_printed(range);
    char number[HARK_NUMBER_BYTES];
    if (value == 0 || hark_is_within(range, fabs(value))) continue;
    HARK_TRY(hark_options_complain(context, set, option->name, "%s is outside the range of f32, expected %sa magnitude of %.3g to %.3g",
                                   hark_number_print(value, number), hark_option_in_range(option, 0) ? "0 or " : "", ends.least,
                                   ends.most));
  }
  return HARK_OK;
}

/* Options for parts of lines, by the names of the files. */
static hark_status check_lines(hark_context *context, hark_options *set, const hark_config *config) {
  static const char paths[] = "data.paths data.validation_paths data.test_paths";
  const struct {
    const char *option, *name; /* name: of a member, NULL: none */
  } of_lines[] = {{"data.text_field", config->data.text_field}, {"data.label_field", config->data.label_field}, {"data.quoted", NULL}};
  const hark_string_list *const lists[] = {&config->data.paths, &config->data.validation_paths, &config->data.test_paths};
  hark_line_kinds kinds = {false, false};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) hark_json_lines_find(lists[i]->items, lists[i]->count, &kinds);
  for (size_t i = 0; i < sizeof of_lines / sizeof *of_lines; i++) {
    const char *const option = of_lines[i].option, *const name = of_lines[i].name;
    const char *const idle = kinds.json || kinds.others ? hark_json_lines_idle(&kinds, name == NULL) : NULL;
    if (!hark_options_is_requested(set, option, paths) || !hark_options_has_effect(set, option)) continue;
    if (idle != NULL) HARK_TRY(hark_options_complain(context, set, option, "has no effect here, %s", idle));
    if (idle == NULL && name != NULL && name[0] == '\0' && hark_config_has_examples(config))
      HARK_TRY(hark_options_complain(context, set, option, "is empty, expected the name of a member"));
  }
  return HARK_OK;
}

/* Only the data show whether these options have an effect (material.c). */
static void note_requests(const hark_options *set, hark_config *config) {
  config->data.divides = hark_options_is_requested(set, "data.validation_fraction", "data.paths");
  config->train.evaluates =
      hark_options_is_requested(set, "train.evaluate_every", "data.paths data.validation_paths data.validation_fraction");
}

hark_status hark_config_finish(hark_context *context, hark_options *set, hark_config *config) {
  HARK_TRY(check_ranges(context, set, config));
  HARK_TRY(check_lines(context, set, config));
  note_requests(set, config);
  if (config->model.key_heads == 0) config->model.key_heads = config->model.heads;
  if (config->model.architecture == HARK_ARCHITECTURE_AHCA && is_open(set, "model.positions"))
    config->model.positions = HARK_POSITIONS_LEARNED;
  settle_vectors(set, config);
  if (config->model.feed_forward_width == 0) config->model.feed_forward_width = 4 * config->model.width;
  if (config->train.minimum_rate < 0) config->train.minimum_rate = MINIMUM_RATE_PART * config->train.learning_rate;
  note_derived(set, config);

  complaint data = {context, set};
  HARK_TRY(hark_config_settle_rotary(context, set, config));
  HARK_TRY(hark_config_settle_ahca(context, set, config));
  HARK_TRY(hark_config_read_list(context, set, config, "model.attention.delimiters", ""));
  HARK_TRY(hark_model_rules_check(&config->model, false, complain, &data));
  HARK_TRY(hark_config_check_rotary(context, set, config));
  HARK_TRY(settle_examples(context, set, config));
  if (config->data.validation_paths.count > 0 && config->data.split != HARK_DIVIDE_FILES &&
      !hark_config_has_examples(config)) { /* separate files */
    const hark_option_source split = hark_options_source(set, "data.split");
    if (split != HARK_SOURCE_DEFAULT && split == hark_options_source(set, "data.validation_paths")) {
      HARK_TRY(hark_options_complain(context, set, "data.split data.validation_paths", "files for validation need split files"));
    }
    config->data.split = HARK_DIVIDE_FILES;
    hark_options_follow(set, "data.split", "data.validation_paths");
  }
  HARK_TRY(check_positional(context, set, config));
  HARK_TRY(settle_length(context, set, config));
  HARK_TRY(check_counts(context, set, config));
  if (config->train.minimum_rate > config->train.learning_rate) {
    char low[HARK_NUMBER_BYTES], high[HARK_NUMBER_BYTES];
    HARK_TRY(hark_options_complain(context, set, "train.minimum_rate train.learning_rate", "minimum_rate %s is above learning_rate %s",
                                   hark_number_print(config->train.minimum_rate, low),
                                   hark_number_print(config->train.learning_rate, high)));
  }
  return HARK_OK;
}
