/* test_needs.c - options without effect, and options that are given twice, in the subcommands' tables: what is refused, what is not, and
 * that files which hark writes itself are never refused.
 */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "data/tasks/make.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"
#include "support/setups.h"

#define COMMAND_SMALL_STEP "--layers 1 --width 16 --heads 2 --context 8 --batch 2 --threads 1"

static void expect(const char *words, int code, const char *in_err) { command_expect(folder, words, code, "", in_err, &output); }

/* A rule that needs an option is not checked if that option has a problem of its own, which is the only one reported. */
static void a_bad_option_is_one_problem(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"attend --structure window --window -1 --input a --output b", "--window: "},
      {"attend --kernel rbf --sigma -1 --input a --output b", "--sigma: "},
      {"attend --normalisation cme --ridge -1 --input a --output b", "--ridge: "},
      {"attend --rotary 10 --rotary-scaling linear --rotary-factor 0.5 --input a --output b", "--rotary-factor: "},
      {"attend --rotary 10 --rotary-scaling yarn --rotary-factor 2 --rotary-context -1 --input a --output b", "--rotary-context: "},
      {"config --structure windoww --window 4", "--structure: "},
      {"config --positions nope --model.rotary.base 5e5", "--positions: "},
      {"train --resume run --steps x", "--steps: "},
      {"train --resume run --lr 0", "--lr: "},
      {"train --resume run --extend nope", "--extend: "}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(cases[i][0], HARK_EXIT_USAGE, cases[i][1]);
    if (test_line_count(output.err) != 1) fail_msg("hark %s: expected one line:\n%s", cases[i][0], output.err);
  }
}

/* Every option without effect is reported in one line, and all are reported at once. */
static void options_without_effect_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *words;
    int lines;
    const char *says;
  } cases[] = {
      {"config --structure dense --window 64 --sigma 3 --ridge 2 --hierarchy-block 8 --partition sibling", 5, "--structure hierarchical"},
      {"config --structure window,hierarchical --window 64 --hierarchy-block 8", 0, ""},
      {"config --normalisation softmax,cme --ridge 2 --kernel rbf --sigma 2", 0, ""},
      {"config --window 128", 1,
       "--window: has no effect here, it needs --structure window (currently dense)"}, /* though it is the default */
      {"config --hierarchical-bias --coarse-query exact", 2, "--hierarchical-bias: "},
      {"config --unit-norm --ridge-power .5 --ridge-learned --sigma-learned", 4, "--sigma-learned: "},
      {"config --positional-scope head --positional-stretch 2", 2, "it needs --positional EXPR"},
      {"config --train.positional-rate 2", 1, "it needs --positional EXPR or --ridge-learned or --sigma-learned"},
      {"config --train.positional-rate 2 --normalisation cme --ridge-learned", 0, ""},
      {"config --positions learned --model.rotary.base 5e5", 1, "it needs --positions rotary or sinusoidal (currently learned)"},
      {"config --positions sinusoidal --model.rotary.base 5e5", 0, ""},
      {"config --positions none --rotary-learned head --model.rotary.pairs half --model.rotary.fraction 0.5", 3, "--positions rotary"},
      {"config --rotary-factor 4 --model.rotary.original-context 128 --train.rotary-rate 3", 3, "--rotary-factor: "},
      {"config --chunk-size 8 --capacity 0.5 --select norm", 3, "it needs --architecture ahca (currently decoder)"},
      {"config --covariates 3 --finite-map network --latent-norm none --latent-form single", 4, "--architecture latent"},
      {"config --head-width 64 --pooling mean --mask-fraction 0.5", 3, "--architecture encoder or ahca (currently decoder)"},
      {"config --architecture finite --format vectors --layers 2 --heads 2 --width 8 --norm rms_norm --kernel rbf", 5, "other than finite"},
      {"config --architecture encoder --format text --no-tie-embeddings", 1,
       "--architecture decoder or masked_encoder (currently encoder)"},
      {"config --subwords 300 --data.subwords.model unigram", 2, "it needs --tokenizer subwords (currently characters)"},
      {"config --tokenizer bytes --unknown map", 1, "it needs --tokenizer characters or subwords (currently bytes)"},
      {"config --data.long-sentences cut", 1, "it needs --unit sentences (currently text)"},
      {"config --unit sentences --epoch windows", 1, "it needs --unit text (currently sentences)"},
      {"config --test a --length-limit 3 --example-limit 4", 3, "it needs --format other than corpus (currently corpus)"},
      {"config --validation v.txt --validation-fraction 0.2", 1, "cannot be used together with --validation\n"},
      {"config --config paths.yaml --validation-fraction 0.2", 1, "cannot be used together with data.validation_paths (paths.yaml:1)\n"},
      {"config --allow-missing 'a*' --allow-unexpected b", 2, "it needs --init-from PATH"},
      {"config --schedule constant --train.minimum-rate 1e-5", 1, "it needs --schedule cosine or linear (currently constant)"},
      {"config --evaluate-every 0 --early-stop 3", 1, "it needs --evaluate-every above 0 (currently 0)"},
      {"config --model.attention.unbiased", 1, "it needs --bias"},
      {"config --markdown --json", 1, "it needs --json off"},
      {"config --markdown --layers 3 --preset small --no-color", 2, "--layers: has no effect here, it needs --markdown off"},
      {"config --markdown --config run/config.yaml", 1, "--config: has no effect here"},
      {"sweep plan.yaml --list --json", 1, "--list: has no effect here, it needs --json off"},
      {"kernels export run --output k.csv --json", 1, "--json: has no effect here, export writes a file"},
      {"lab --list --seed 3 --quick", 2, "it needs --list off"},
      {"lab all --list --radius 2", 1, "--radius: has no effect here, it needs --list off"},
      {"lab --list --run a --text b --model c --reviews d --data e", 5, "it needs --list off"},
      {"bench attention dense:B1,H1,L8,D4 --vocabulary 7 --layers 3", 2, "--layers: has no effect on attention, it needs bench step"},
      {"bench step --train.z-loss 1e-4 --train.label-smoothing .1 --warmup 3", 1, "--warmup: has no effect on step"},
      {"bench machine --structure window", 1, "--structure: has no effect on machine, it needs bench step"},
      {"bench step --data none.txt --validation no.txt --out q --tokenizer bytes --epochs 3 --log-every 2", 6,
       "--data: has no effect on step, which measures single steps on random data"},
      {"bench step --resume --warmup 3 --mask-fraction .3 --architecture masked_encoder", 2, "--resume: has no effect on step"},
      {"bench step --steps 2 --rounds 3", 1, "--rounds: has no effect with --steps"},
      {"config --beta2 0.95 --optimiser adafactor --train.epsilon 1e-6 --beta1 0.8", 3,
       "--beta2: has no effect here, it needs --optimiser adamw (currently adafactor)"},
      {"config --optimiser adafactor --shard-optimiser", 1, "--shard-optimiser: has no effect here, it needs --optimiser adamw"},
      {"config --train.adafactor.beta1 .9 --train.adafactor.relative --train.adafactor.factor-from 64 --train.adafactor.update-clip 2"
       " --train.adafactor.decay-exponent 0.5",
       5, "it needs --optimiser adafactor (currently adamw)"},
      {"config --optimiser adafactor --train.adafactor.beta1 .9 --weight-decay 0.2 --clip 3", 0, ""},
      {"bench step --optimiser adafactor --train.adafactor.factor-from 8 --train.adafactor.relative --rounds 1 " COMMAND_SMALL_STEP, 0, ""},
      {"bench step --clip 2 --weight-decay 0 --rounds 1 --seed 3 " COMMAND_SMALL_STEP, 0, ""},
      {"lab rank-map --list", 1, "rank-map: has no effect here, --list lists all experiments"},
      {"lab all --list", 0, ""},
      {"eval run --seed 3 --threads 1", 1, "--seed: has no effect here, it needs a run with --architecture masked_encoder"},
      {"data make copy --out x --pairs 3 --scale 2 --format text", 3, "it needs data make recall"},
      {"data info x --seed 2", 1, "--seed: has no effect here, it needs data make"},
      {"generate run --temperature 0 --top-k 4 --top-p 0.5", 2, "it needs --temperature above 0 (currently 0)"},
      {"generate run --temperature 0 --seed 5", 1, "--seed: has no effect here, it needs --temperature above 0"},
      {"generate weights.safetensors --checkpoint best", 1, "--checkpoint: has no effect here, it needs a run"},
      {"attend -i a -o b --query-offset 3", 1, "--query-offset: has no effect here, it needs --causal"},
      {"plot run --checkpoint best", 1, "--checkpoint: has no effect here, it needs --positional"},
      {"plot run --terminal --png --log", 2, "it needs --terminal off"}};
  expect("train --data text.txt --out run --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "");
  test_file_write_text(folder, "weights.safetensors", "");
  test_file_write_text(folder, "paths.yaml", "data: {validation_paths: v.txt}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int code = cases[i].lines > 0 ? HARK_EXIT_USAGE : HARK_EXIT_DONE;
    expect(cases[i].words, code, cases[i].says);
    if (test_line_count(output.err) != cases[i].lines) fail_msg("hark %s: %s", cases[i].words, output.err);
    const bool named = strstr(output.err, "no effect") != NULL || strstr(output.err, "cannot be used together") != NULL;
    if (cases[i].lines > 0 && !named) fail_msg("hark %s: %s", cases[i].words, output.err);
  }
}

/* What is exchanged has an effect on what the run has. */
static void exchanges_have_an_effect(void **state) {
  (void)state;
  expect("eval run --window 3 --threads 1", HARK_EXIT_USAGE, "--window: has no effect here, it needs --structure window (currently dense)");
  expect("eval run --window 3 --structure window --threads 1", HARK_EXIT_DONE, "");
  assert_non_null(strstr(output.out, "\"model.attention.window\": \"3\""));
  expect("train --data text.txt --out masked --architecture masked_encoder --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "");
  expect("eval masked --seed 3 --threads 1", HARK_EXIT_DONE, "");
  expect("eval run --sigma 3 --ridge 2 --rotary-factor 2 --threads 1", HARK_EXIT_USAGE, "--rotary-factor: has no effect here");
  assert_int_equal(test_line_count(output.err), 3);
  expect("eval run --part validation --data text.txt --threads 1", HARK_EXIT_USAGE, "--part: has no effect here");
  expect("train --resume --out run --window 9", HARK_EXIT_USAGE, "--window: has no effect here");
  expect("train --resume run --extend restart --lr 1e-4", HARK_EXIT_USAGE,
         "--extend: has no effect here, it needs another length: --steps");
  expect("train --resume run --extend restart --steps 2", HARK_EXIT_DONE, "2 steps instead of 1 (train.extend restart)");
  expect("train --resume run --extend restart --steps 2", HARK_EXIT_DONE, "there is nothing to do"); /* as after an interruption */
  expect("train --resume run --steps 4 --checkpoint-every 1", HARK_EXIT_DONE, "");
  assert_int_equal(command_place_shell(folder, "rm -r run/checkpoints/step-4"), 0); /* as after an interruption */
  expect("train --resume run --extend stretch --steps 4", HARK_EXIT_DONE, "train.extend stretch has no effect: the run had 4 steps before");
}

/* Of a configuration the last word would be lost; lists collect. */
static void options_are_given_once(void **state) {
  (void)state;
  static const struct {
    const char *words, *says;
  } cases[] = {{"config --positional decay --positional alibi", "--positional: given twice, as \"decay\" and \"alibi\", expected once"},
               {"config --lr 1 --learning-rate 2", "--learning-rate: given twice, \"2\" and with --lr \"1\", expected once"},
               {"lab sphere --seed 1 --quick --seed 2", "--seed: given twice"},
               {"info run --no-color --color", "--color: given twice"},
               {"positional decay --context 3 --context=4", "--context: given twice"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(cases[i].words, HARK_EXIT_USAGE, cases[i].says);
    assert_int_equal(test_line_count(output.err), 1);
  }
  expect("config --positional decay --positional decay", HARK_EXIT_DONE, "");
  test_file_write_text(folder, "twice.yaml", "model: {attention: {normalisation: cme}}\nmodel.attention.normalization: softmax\n");
  expect("config --config twice.yaml", HARK_EXIT_USAGE, "twice.yaml:2: model.attention.normalization: key given twice");
}

/* `hark config`, and the record of a run, list everything. They may be given back, and the run goes on. */
static void files_that_hark_writes_are_taken(void **state) {
  (void)state;
  static const char *const runs[] = {
      "--data text.txt " COMMAND_TINY,
      "--data text.txt --schedule constant --lr 1e-3 --positions none --structure window --window 4 " COMMAND_TINY,
      "--data text.txt --tokenizer bytes --kernel rbf --sigma 2 --normalisation cme --ridge 2 " COMMAND_TINY,
      "--data vectors --format examples --architecture latent --width 4 --heads 2 --context 16 --batch 2 --threads 1",
      ("--data vectors --format examples --architecture ahca --width 8 --heads 2 --layers 1 --context 16 --batch 2 "
       "--chunk-size 4 --selected 2 --secondary-slots 4 --threads 1"),
      "--data regression --format examples --architecture finite --context 17 --batch 2 --threads 1 --schedule rsqrt"};
  expect("data make latent --out vectors --training 8 --validation 4 --test 0", HARK_EXIT_DONE, "");
  expect("data make regression --out regression --training 8 --validation 4 --test 0", HARK_EXIT_DONE, "");
  expect("config >all.yaml", HARK_EXIT_DONE, "");
  char *const all = test_file_text(folder, ".out");
  test_file_write_text(folder, "all.yaml", all);
  free(all);
  expect("config --config all.yaml", HARK_EXIT_DONE, "");
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    char words[1024];
    (void)snprintf(words, sizeof words, "train --steps 1 --out first-%d %s", (int)i, runs[i]);
    expect(words, HARK_EXIT_DONE, "");
    (void)snprintf(words, sizeof words, "train --config first-%d/config.yaml --out again-%d", (int)i, (int)i);
    expect(words, HARK_EXIT_DONE, "");
    (void)snprintf(words, sizeof words, "train --resume --out first-%d --steps 2", (int)i);
    expect(words, HARK_EXIT_DONE, "");
  }
}

/* What a task takes is what its generator says. */
static void tasks_take_what_they_say(void **state) {
  (void)state;
  int taken = 0;
  for (int e = 0; e < hark_task_entry_count; e++) {
    const hark_task_entry *const entry = &hark_task_entries[e];
    for (int i = 0; i < entry->options->count; i++) {
      const hark_option *const option = &entry->options->options[i];
      const char *const words = option->needs != NULL ? strstr(option->needs, "$2 ") : NULL;
      assert_non_null(words);
      char tasks[256];
      (void)snprintf(tasks, sizeof tasks, "%.*s", (int)strcspn(words + 3, ","), words + 3); /* other conditions may follow */
      const bool named = hark_option_choice(tasks, entry->name) >= 0;
      if (named != hark_task_takes(entry->generator, option->name)) fail_msg("--%s and %s: %s", option->name, entry->name, option->needs);
      taken += named;
    }
  }
  assert_true(taken > 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_bad_option_is_one_problem),      cmocka_unit_test(options_without_effect_are_refused),
      cmocka_unit_test(exchanges_have_an_effect),         cmocka_unit_test(options_are_given_once),
      cmocka_unit_test(files_that_hark_writes_are_taken), cmocka_unit_test(tasks_take_what_they_say)};
  return cmocka_run_group_tests_name("needs", tests, begin, end);
}
