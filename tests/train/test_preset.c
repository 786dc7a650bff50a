/* test_preset.c - presets: every row makes a configuration that is valid, options that are given have priority, and the size for a text
 * follows its rule. Lengths that are planned once: the same run again, in one part or several, without a correction. */
#include "train/preset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/packed.h"
#include "support/train/training_place.h"

/* Options of a command line, with the presets. */
typedef struct set {
  hark_context *context;
  hark_config config;
  hark_preset_values values;
  hark_options *options;
} set;

static void open_set(set *s, int count, const char *const *words) {
  const hark_option_group groups[] = {{&hark_config_table, &s->config}, {&hark_preset_table, &s->values}};
  s->context = test_reference_open();
  assert_fine(s->context, hark_options_create(s->context, "train", groups, 2, &s->options));
  assert_fine(s->context, hark_options_read_arguments(s->context, s->options, count, words));
}

static void close_set(set *s) {
  hark_options_destroy(s->context, &s->options);
  hark_context_destroy(&s->context);
}

static void every_row_is_a_model(void **state) {
  (void)state;
  int rows = 0;
  for (const hark_preset *preset; (preset = hark_preset_at(rows)) != NULL; rows++) {
    const char *const words[] = {"--preset", preset->name};
    const hark_preset *read;
    set s;
    open_set(&s, 2, words);
    assert_int_equal(s.values.preset, rows + 1); /* words and rows have the same order */
    assert_fine(s.context, hark_preset_read(s.context, s.options, &s.values, &read));
    assert_ptr_equal(read, preset);
    assert_fine(s.context, hark_config_finish(s.context, s.options, &s.config));
    assert_fine(s.context, hark_options_refuse_idle(s.context, s.options));
    assert_fine(s.context, hark_options_finish(s.context, s.options));
    assert_int_equal(s.config.model.layers, preset->layers);
    assert_int_equal(s.config.model.heads, preset->heads);
    assert_int_equal(s.config.model.width, preset->width);
    assert_int_equal(s.config.model.context, preset->context);
    assert_int_equal(s.config.train.batch, preset->batch);
    close_set(&s);
  }
  assert_true(rows >= 8);
  assert_ptr_equal(hark_preset_find("none"), NULL);
}

/* Without biases and embeddings GPT-2's sizes are 85, 302, 708 and 1,475 million. */
static void gpt2_has_its_sizes(void **state) {
  (void)state;
  assert_true(hark_preset_size(hark_preset_find("gpt2-small")) == 12.0 * 12 * 768 * 768);
  assert_true(fabs(hark_preset_size(hark_preset_find("gpt2-xl")) / 1e9 - 1.4746) < 1e-3);
}

static void given_options_win(void **state) {
  (void)state;
  static const char *const words[] = {"--width", "64", "--preset", "gpt2-small", "--lr", "0.01"};
  const hark_preset *preset;
  set s;
  open_set(&s, 6, words);
  assert_fine(s.context, hark_preset_read(s.context, s.options, &s.values, &preset));
  assert_int_equal(s.config.model.width, 64);
  assert_int_equal(s.config.model.layers, 12);
  assert_true(s.config.train.learning_rate == 0.01);
  assert_int_equal(hark_options_problem_count(s.options), 0);
  close_set(&s);
}

/* A preset's values are no options that somebody gave: architectures have their own. */
static void every_architecture_has_presets(void **state) {
  (void)state;
  static const char *const cases[][6] = {{"--preset", "tiny", "--architecture", "ahca", "--format", "text"},
                                         {"--preset", "gpt2-small", "--architecture", "ahca", "--format", "text"},
                                         {"--preset", "tiny", "--architecture", "latent", "--format", "vectors"},
                                         {"--preset", "tiny", "--architecture", "finite", "--format", "vectors"},
                                         {"--preset", "small", "--architecture", "encoder", "--format", "text"},
                                         {"--preset", "small", "--architecture", "masked_encoder", "--format", "corpus"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hark_preset *preset;
    set s;
    open_set(&s, 6, cases[i]);
    assert_fine(s.context, hark_preset_read(s.context, s.options, &s.values, &preset));
    assert_fine(s.context, hark_config_finish(s.context, s.options, &s.config));
    if (hark_options_problem_count(s.options) > 0) fail_msg("%s: %s", cases[i][3], hark_options_problem(s.options, 0));
    assert_int_equal(s.config.model.layers, preset->layers);
    close_set(&s);
  }
}

static void a_preset_without_effect_is_refused(void **state) {
  (void)state;
  static const char *const words[] = {"--preset",     "tiny", "--layers", "1", "--heads", "1",    "--width",     "8",
                                      "--context",    "8",    "--batch",  "1", "--lr",    "1e-3", "--positions", "none",
                                      "--activation", "relu", "--bias"};
  const hark_preset *preset;
  set s;
  open_set(&s, (int)(sizeof words / sizeof *words), words);
  assert_fine(s.context, hark_preset_read(s.context, s.options, &s.values, &preset));
  assert_int_equal(hark_options_problem_count(s.options), 1);
  if (strstr(hark_options_problem(s.options, 0), "--preset: has no effect here") == NULL)
    fail_msg("%s", hark_options_problem(s.options, 0));
  close_set(&s);
}

/* By the formula: monotonic in the text, the cores and the time, and every default row is some text's. */
static void the_size_follows_text_and_machine(void **state) {
  (void)state;
  assert_string_equal(hark_preset_for(0, 64, 1e9)->name, "tiny");
  assert_string_equal(hark_preset_for(2e5, 64, 1e9)->name, "tiny"); /* 4e5 numbers at most */
  assert_string_equal(hark_preset_for(1.1e6, 2, 600)->name, "small");
  assert_string_equal(hark_preset_for(1e9, 1, 10)->name, "tiny");
  assert_string_equal(hark_preset_for(1e9, 1, 1e9)->name, "large"); /* never one of the others */
  static const double texts[] = {1e3, 1e5, 1e6, 1e7, 1e8}, times[] = {1, 60, 600, 3600, 1e5, 1e6};
  for (int cores = 1; cores <= 64; cores *= 4)
    for (size_t text = 0; text < 5; text++)
      for (size_t time = 0; time < 6; time++) {
        const double here = hark_preset_size(hark_preset_for(texts[text], cores, times[time]));
        assert_true(here <= fmax(2 * texts[text], hark_preset_size(hark_preset_at(0))));
        if (text > 0) assert_true(here >= hark_preset_size(hark_preset_for(texts[text - 1], cores, times[time])));
        if (time > 0) assert_true(here >= hark_preset_size(hark_preset_for(texts[text], cores, times[time - 1])));
        if (cores > 1) assert_true(here >= hark_preset_size(hark_preset_for(texts[text], cores / 4, times[time])));
      }
}

#define TEXT HARK_SOURCE_DIR "/LICENSE"

/* What is given leaves nothing to choose: a file, a size with a length, weights, a run. */
static void only_what_is_open_is_chosen(void **state) {
  (void)state;
  static const struct {
    const char *words[6];
    int count;
    bool from_file, size, time;
  } cases[] = {{{"--data", TEXT}, 2, false, true, true},
               {{"--data", TEXT}, 2, true, false, false},
               {{"--data", TEXT, "--max-time", "1h"}, 4, false, true, false},
               {{"--data", TEXT, "--steps", "5"}, 4, false, false, false},
               {{"--data", TEXT, "--epochs", "5"}, 4, false, false, false},
               {{"--data", TEXT, "--layers", "2"}, 4, false, false, false},
               {{"--data", TEXT, "--structure", "dense,window,dense,window"}, 4, false, false, false},
               {{"--data", TEXT, "--normalisation", "softmax,cme,softmax"}, 4, false, false, false},
               {{"--data", TEXT, "--structure", "window"}, 4, false, true, true},
               {{"--data", "missing"}, 2, false, false, false},
               {{"--data", TEXT, "--architecture", "masked_encoder"}, 4, false, false, false},
               {{"--data", TEXT, "--lr", "0.5"}, 4, false, true, true},
               {{"--data", TEXT, "--resume"}, 3, false, false, false},
               {{"--data", TEXT, "--init-from", "run"}, 4, false, false, false},
               {{"--data", TEXT, "--format", "text"}, 4, false, false, false},
               {{"--out", "x"}, 2, false, false, false},
               {{"--data", TEXT, "--preset", "small"}, 4, false, false, true},
               {{"--data", TEXT, "--preset", "small", "--steps", "9"}, 6, false, false, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_preset_choice choice;
    const hark_preset *given;
    set s;
    open_set(&s, cases[i].count, cases[i].words);
    assert_fine(s.context, hark_preset_read(s.context, s.options, &s.values, &given));
    assert_fine(s.context, hark_preset_choose(s.context, s.options, &s.config, cases[i].from_file, given, &choice));
    if ((choice.preset != NULL) != cases[i].size || choice.time != cases[i].time) fail_msg("case %d", (int)i);
    assert_int_equal(s.config.train.plans_once, cases[i].time);
    if (cases[i].time) assert_true(s.config.train.max_time == HARK_PRESET_SECONDS);
    if (!cases[i].size && given == NULL) assert_int_equal(s.config.model.width, 512); /* the default of the table */
    close_set(&s);
  }
}

/* Chooses for a text; *choice.bytes is that of its contents. */
static void choose_for(const char *path, const char *preset, hark_preset_choice *choice, double *fraction) {
  const char *const words[] = {"--data", path, "--preset", preset};
  const hark_preset *given;
  set s;
  open_set(&s, 4, words);
  assert_fine(s.context, hark_preset_read(s.context, s.options, &s.values, &given));
  assert_fine(s.context, hark_preset_choose(s.context, s.options, &s.config, false, given, choice));
  *fraction = s.config.data.validation_fraction;
  close_set(&s);
}

/* Also compressed, in JSON lines, and with a given size: the rule is about the text. */
static void the_choice_is_by_the_text(void **state) {
  (void)state;
  enum { BYTES = 3000000 };
  static const char front[] = "{\"text\": \"", back[] = "\"}\n";
  training_place p;
  hark_preset_choice choice;
  double fraction;
  size_t bytes = 0;
  training_place_open(&p);
  char *const text = malloc(BYTES + sizeof front + sizeof back);
  const size_t ahead = sizeof front - 1;
  memcpy(text, front, ahead);
  memset(text + ahead, 'a', BYTES);
  memcpy(text + ahead + BYTES, back, sizeof back);
  choose_for(test_file_write(p.folder, "plain.txt", text + ahead, BYTES), "none", &choice, &fraction);
  assert_true(choice.bytes == BYTES && fraction < 0.1);
  choose_for(test_path(p.folder, "plain.txt"), "tiny", &choice, &fraction);
  assert_true(choice.preset == NULL && fraction < 0.1);
  choose_for(test_file_write(p.folder, "lines.jsonl", text, ahead + BYTES + sizeof back - 1), "none", &choice, &fraction);
  assert_true(choice.bytes == BYTES + 1); /* a line */
  unsigned char *const packed = test_pack("gzip", text + ahead, BYTES, &bytes);
  if (packed != NULL) {
    choose_for(test_file_write(p.folder, "text.gz", packed, bytes), "none", &choice, &fraction);
    assert_true(choice.bytes == BYTES && fraction < 0.1);
  }
  free(packed);
  free(text);
  training_place_close(&p);
}

/* ---- planned once ---- */

typedef struct watched {
  training_clock clock; /* first: its functions take it */
  int64_t steps, warmup;
  bool evaluates;
  double later; /* seconds of a step once the run begins */
} watched;

static void keep_plan(void *user, int64_t steps, int64_t warmup, bool evaluates) {
  watched *const w = user;
  w->steps = steps;
  w->warmup = warmup;
  w->evaluates = evaluates;
}

static hark_status slow_down(void *user, bool timed) {
  watched *const w = user;
  (void)timed;
  w->clock.second = w->later;
  return HARK_OK;
}

static void a_plan_is_made_once_and_can_be_repeated(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 0;
  config.train.max_time = 240;
  config.train.evaluate_every = 0;
  config.data.validation_fraction = 0.01;
  config.train.planned = config.train.plans_once = true;
  config.train.warmup = 100;
  watched w = {.clock = {.second = 1}, .later = 7};
  const hark_train_hooks hooks = {
      .user = &w, .clock = training_clock_now, .request = training_clock_tick, .ready = slow_down, .planned = keep_plan};
  hark_train_result first, second;
  assert_fine(p.context, training_run(&p, &config, "first", &hooks, &first));
  assert_int_equal(first.reason, HARK_STOP_DONE); /* however slow it has become */
  if (first.state.step != w.steps || first.steps != w.steps || w.steps < 50 || w.warmup >= 100)
    fail_msg("%d of %d steps, planned %d, warm-up %d", (int)first.state.step, (int)first.steps, (int)w.steps, (int)w.warmup);

  config.train.steps = w.steps; /* what the run's configuration has */
  config.train.warmup = w.warmup;
  config.train.max_time = 0;
  config.train.planned = config.train.plans_once = false;
  assert_fine(p.context, training_run(&p, &config, "second", NULL, &second));
  char files[2][64];
  for (int i = 0; i < 2; i++)
    (void)snprintf(files[i], sizeof files[i], "%s/checkpoints/step-%lld/model.safetensors", i == 0 ? "first" : "second",
                   (long long)w.steps);
  training_same_file(&p, files[0], files[1]);
  training_place_close(&p);
}

/* The hook reports it, so that the configuration of the run can have it. */
static void a_plan_without_evaluations_is_reported(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  for (int i = 0; i < 2; i++) {
    hark_config config = training_configuration(&p);
    config.train.steps = 0;
    config.train.max_time = 50;
    config.data.validation_fraction = i == 0 ? 0.01 : 0.5; /* of a batch; of a hundred and more */
    config.train.planned = config.train.plans_once = true;
    watched w = {.clock = {.second = 1}, .later = 1};
    const hark_train_hooks hooks = {
        .user = &w, .clock = training_clock_now, .request = training_clock_tick, .ready = slow_down, .planned = keep_plan};
    hark_train_result result;
    assert_fine(p.context, training_run(&p, &config, i == 0 ? "short" : "long", &hooks, &result));
    assert_int_equal(w.evaluates, i == 0);
    assert_int_equal(isnan(result.validation_loss) != 0, i == 1);
  }
  training_place_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_is_a_model),
      cmocka_unit_test(gpt2_has_its_sizes),
      cmocka_unit_test(given_options_win),
      cmocka_unit_test(every_architecture_has_presets),
      cmocka_unit_test(a_preset_without_effect_is_refused),
      cmocka_unit_test(the_size_follows_text_and_machine),
      cmocka_unit_test(only_what_is_open_is_chosen),
      cmocka_unit_test(the_choice_is_by_the_text),
      cmocka_unit_test(a_plan_is_made_once_and_can_be_repeated),
      cmocka_unit_test(a_plan_without_evaluations_is_reported),
  };
  return cmocka_run_group_tests_name("preset", tests, NULL, NULL);
}
