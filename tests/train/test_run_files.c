/* test_run_files.c - the files of a checkpoint, malformed: each is refused with its reason, and cut or changed anywhere it ends with a
 * status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/run.h"

#define VOCABULARY 7

/* A run with one checkpoint of the smallest model, step-3. */
typedef struct fixture {
  test_memory memory;
  hark_context *context;
  char folder[TEST_PATH_BYTES];
  hark_config config;
  hark_engine *engine;
  hark_run run;
} fixture;

static void configure(fixture *f) {
  static const char *const words[] = {"--layers=1", "--heads=1", "--width=2", "--context=2", "--batch=1"};
  const hark_option_group group = {&hark_config_table, &f->config};
  hark_options *options;
  assert_fine(f->context, hark_options_create(f->context, "train", &group, 1, &options));
  assert_fine(f->context, hark_options_read_arguments(f->context, options, (int)(sizeof words / sizeof *words), words));
  assert_fine(f->context, hark_config_finish(f->context, options, &f->config));
  assert_fine(f->context, hark_options_finish(f->context, options));
  hark_options_destroy(f->context, &options); /* none of the values used is a text */
}

static void fixture_open(fixture *f) {
  const hark_run_state state = {.step = 3,
                                .updates = 3,
                                .samples = 3,
                                .loss_sum = 1.25,
                                .loss_count = 1,
                                .line_targets = 8,
                                .line_correct = 5,
                                .best_loss = 0.5,
                                .best_step = 3,
                                .seconds = 2,
                                .metrics_bytes = 10,
                                .corpus_checksum = UINT64_C(0x0123456789abcdef)};
  f->context = test_memory_context(&f->memory);
  test_folder_make(f->folder);
  configure(f);
  assert_fine(f->context, hark_engine_create(f->context, &f->config, VOCABULARY, true, &f->engine));
  assert_fine(f->context, hark_run_open(f->context, f->folder, false, &f->run));
  assert_fine(f->context, hark_checkpoint_save(f->context, &f->run, f->engine, &state, 1));
}

static void fixture_close(fixture *f) {
  hark_run_close(&f->run);
  hark_engine_destroy(f->context, &f->engine);
  test_folder_remove(f->folder);
  test_memory_context_end(f->context, &f->memory);
}

static hark_status load(fixture *f) {
  hark_run_state state;
  return hark_checkpoint_load(f->context, &f->run, "step-3", f->engine, &state);
}

#define CHECKPOINT "checkpoints/step-3/"
#define NUMBERS(step)                                                                                                                      \
  "\"step\": " step                                                                                                                        \
  ", \"updates\": 3, \"samples\": 3, \"loss_sum\": 1.25, \"loss_count\": 1, \"best_loss\": null, \"best_step\": 3, "                       \
  "\"evaluated_step\": 0, \"evaluations_without_improvement\": 0, \"bad_steps\": 0, \"seconds\": 2, \"metrics_bytes\": 10"

static void states_are_read_strictly(void **state) {
  (void)state;
  static const struct {
    const char *text, *message; /* NULL: fine */
  } cases[] = {
      {"{\"format_version\": 1, " NUMBERS("3") ", \"corpus_checksum\": \"0123456789abcdef\"}", NULL},
      {"", "state.json:1:"},
      {"[]", "format_version is not 1"},
      {"{}", "format_version is not 1"},
      {"{\"format_version\": 2, " NUMBERS("3") ", \"corpus_checksum\": \"0123456789abcdef\"}", "format_version is not 1"},
      {"{\"format_version\": \"1\", " NUMBERS("3") ", \"corpus_checksum\": \"0123456789abcdef\"}", "format_version is not 1"},
      {"{\"format_version\": 1, \"corpus_checksum\": \"0123456789abcdef\"}", "step is not a whole number of at least 0"},
      {"{\"format_version\": 1, " NUMBERS("-1") ", \"corpus_checksum\": \"0123456789abcdef\"}", "step is not a whole number of at least 0"},
      {"{\"format_version\": 1, " NUMBERS("1.5") ", \"corpus_checksum\": \"0123456789abcdef\"}",
       "step is not a whole number of at least 0"},
      {"{\"format_version\": 1, " NUMBERS("\"3\"") ", \"corpus_checksum\": \"0123456789abcdef\"}", "step is not a whole number"},
      {"{\"format_version\": 1, " NUMBERS("9223372036854775808") ", \"corpus_checksum\": \"0123456789abcdef\"}", "integer"},
      {"{\"format_version\": 1, " NUMBERS("3, \"loss_sum\": 1") ", \"corpus_checksum\": \"0123456789abcdef\"}", "duplicate"},
      {"{\"format_version\": 1, " NUMBERS("3") "}", "corpus_checksum is not a text of 16"},
      {"{\"format_version\": 1, " NUMBERS("3") ", \"corpus_checksum\": \"0123456789abcde\"}", "corpus_checksum is not a text of 16"},
      {"{\"format_version\": 1, " NUMBERS("3") ", \"corpus_checksum\": \"0123456789ABCDEF\"}", "corpus_checksum is not a text of 16"},
      {"{\"format_version\": 1, " NUMBERS("3") ", \"corpus_checksum\": \"0123456789abcdef\"} {}", "state.json:1:"},
      {"{\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested too deeply"},
  };
  fixture f;
  fixture_open(&f);
  assert_fine(f.context, load(&f));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    test_file_write_text(f.folder, CHECKPOINT "state.json", cases[i].text);
    if (cases[i].message == NULL)
      assert_fine(f.context, load(&f));
    else
      assert_failure(f.context, load(&f), HARK_BAD_FILE, cases[i].message);
  }
  const size_t large = ((size_t)1 << 20) + 100000;
  char *const blanks = malloc(large);
  memset(blanks, ' ', large);
  test_file_write(f.folder, CHECKPOINT "state.json", blanks, large);
  assert_failure(f.context, load(&f), HARK_BAD_FILE, "state.json: larger than 1048576 bytes");
  free(blanks);
  fixture_close(&f);
}

/* Names in the file stay, whatever the members of the struct are called: older runs are resumed, and older programs resume newer runs. */
static void names_of_numbers_stay(void **state) {
  (void)state;
  fixture f;
  hark_run_state read;
  fixture_open(&f);
  char *const text = test_file_text(f.folder, CHECKPOINT "state.json");
  assert_non_null(strstr(text, "\"line_targets\": 8"));
  assert_non_null(strstr(text, "\"line_right\": 5"));
  free(text);
  assert_fine(f.context, hark_checkpoint_load(f.context, &f.run, "step-3", f.engine, &read));
  assert_int_equal(read.line_targets, 8);
  assert_int_equal(read.line_correct, 5);
  fixture_close(&f);
}

/* Cut at every byte, and with every byte changed in one bit: refused, or the same but for white space and digits. */
static void damage_ends_with_a_status(void **state) {
  (void)state;
  static const char *const names[] = {CHECKPOINT "state.json", CHECKPOINT "manifest.json", "last"};
  fixture f;
  fixture_open(&f);
  for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
    size_t bytes;
    int refused = 0;
    unsigned char *const good = test_file_read(test_path(f.folder, names[n]), &bytes);
    for (size_t at = 0; at < 2 * bytes; at++) {
      const bool cut = at >= bytes;
      char name[HARK_NAME_BYTES];
      if (!cut) good[at] ^= (unsigned char)(1u << at % 8);
      test_file_write(f.folder, names[n], good, cut ? at - bytes : bytes);
      if (!cut) good[at] ^= (unsigned char)(1u << at % 8);
      hark_status status = n == 0 ? load(&f) : HARK_OK;
      if (n == 1) status = hark_checkpoint_verify(f.context, &f.run, "step-3", NULL);
      if (n == 2) status = hark_checkpoint_find(f.context, &f.run, "last", name);
      if (status != HARK_OK && status != HARK_BAD_FILE) fail_msg("%s, %zu: %s", names[n], at, hark_status_name(status));
      if (status == HARK_OK && n == 2 && (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") != strlen(name + 5)))
        fail_msg("last names \"%s\"", name);
      /* all that may be missing at the end is white space and the brackets after the last sum */
      if (cut && n < 2 && status == HARK_OK && at - bytes + 2 < bytes) fail_msg("%s, cut at %zu", names[n], at - bytes);
      refused += status == HARK_BAD_FILE;
    }
    assert_true(refused > (int)bytes / 2);
    test_file_write(f.folder, names[n], good, bytes);
    free(good);
  }
  assert_fine(f.context, load(&f));
  assert_fine(f.context, hark_checkpoint_verify(f.context, &f.run, "step-3", NULL));
  fixture_close(&f);
}

/* What `last` says never becomes a path unchecked. */
static void pointers_name_checkpoints_only(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "\n",
                                      "step-",
                                      "step-x",
                                      "step-3x",
                                      "../step-3",
                                      "step-3/../../..",
                                      "/etc/passwd",
                                      "step--1",
                                      "step-99999999999999999999",
                                      " step-3",
                                      "step-3 "};
  fixture f;
  fixture_open(&f);
  char name[HARK_NAME_BYTES];
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    test_file_write_text(f.folder, "last", texts[i]);
    assert_failure(f.context, hark_checkpoint_find(f.context, &f.run, "last", name), HARK_BAD_FILE, "last: does not name a checkpoint");
  }
  test_file_write_text(f.folder, "last", "step-3");
  assert_fine(f.context, hark_checkpoint_find(f.context, &f.run, "last", name));
  assert_string_equal(name, "step-3");
  fixture_close(&f);
}

/* A run that could not begin takes what is its own and leaves what is anybody else's, and a folder that was there. */
static void what_is_not_its_own_stays(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  char folder[TEST_PATH_BYTES], inside[TEST_PATH_BYTES], file[TEST_PATH_BYTES + 16];
  test_folder_make(folder);
  for (int there = 0; there < 2; there++) {
    for (int others = 0; others < 2; others++) {
      hark_run run;
      snprintf(inside, sizeof inside, "%s", test_path(folder, "run"));
      if (there == 1) assert_fine(context, hark_folder_make(context, inside));
      assert_fine(context, hark_run_open(context, inside, false, &run));
      assert_true(run.made);
      snprintf(file, sizeof file, "%s/notes.txt", inside);
      if (others == 1) assert_fine(context, hark_file_write(context, file, "mine", 4));
      assert_int_equal(hark_fail(context, HARK_CANCELLED, "the reason"), HARK_CANCELLED);
      hark_run_abandon(context, &run);
      hark_run_close(&run);
      assert_string_equal(hark_context_message(context), "the reason");
      assert_int_equal(hark_path_kind_of(inside), there + others > 0 ? HARK_PATH_FOLDER : HARK_PATH_NONE);
      assert_int_equal(hark_path_kind_of(file), others == 1 ? HARK_PATH_FILE : HARK_PATH_NONE);
      if (there + others == 0) continue;
      hark_names names;
      assert_fine(context, hark_folder_list(context, inside, &names));
      assert_int_equal(names.count, others);
      hark_names_free(context, &names);
      assert_fine(context, hark_folder_remove(context, inside));
    }
  }
  test_folder_remove(folder);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_of_numbers_stay),     cmocka_unit_test(states_are_read_strictly),
      cmocka_unit_test(damage_ends_with_a_status), cmocka_unit_test(pointers_name_checkpoints_only),
      cmocka_unit_test(what_is_not_its_own_stays),
  };
  return cmocka_run_group_tests_name("run files", tests, NULL, NULL);
}
