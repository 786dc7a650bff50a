/* test_launch.c - hark train under a launcher: real processes, the same bits as one, errors printed once, and ranks that are killed. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "group/launch_place.h"
#include "io/files.h"

#define MODEL " --width=16" MODEL_OF_ANY_WIDTH
#define MODEL_OF_ANY_WIDTH                                                                                                                 \
  " --layers=1 --heads=2 --context=8 --batch=2 --accumulate=7 --evaluate-every=20 --keep=100 --dropout=0.1 --log-every=1 "                 \
  "--order=shuffled --threads=1 --data text.txt --no-preflight"
#define STEPS 40
#define OPTIONS MODEL " --steps=40 --checkpoint-every=10"

static void processes_train_the_same_run(void **state) {
  (void)state;
  skip_without_launcher();
  launch_run("", "train --out alone" OPTIONS, 0);
  launch_run(LAUNCH("2"), "train --out two" OPTIONS, 0);
  launch_run(LAUNCH("3"), "train --out three --ranks 3" OPTIONS, 0);
  launch_run(LAUNCH("3"), "train --out divided --shard-optimiser" OPTIONS, 0);
  launch_assert_same("alone", "two", STEPS);
  launch_assert_same("alone", "three", STEPS);
  launch_assert_same("alone", "divided", STEPS);
}

/* Two pairs, each of which has windows together; continued by one process. Dropout has other numbers where windows are divided. */
static void processes_divide_windows(void **state) {
  (void)state;
  skip_without_launcher();
  launch_run("", "train --out alone" OPTIONS " --context=40 --dropout=0", 0);
  launch_run(LAUNCH("4"), "train --out divided --sequence-ranks=2" OPTIONS " --context=40 --dropout=0", 0);
  launch_assert_close("alone", "divided", "\"train/loss\": ", STEPS, 1e-5);
  launch_assert_close("alone", "divided", "\"val/loss\": ", 2, 1e-5);
  launch_run("", "verify divided", 0);
  launch_run("", "train --resume divided --sequence-ranks=1 --steps=50", 0);
}

#define WIDE OPTIONS " --layers=4 --width=64 --heads=4" /* exchanged in several rounds */

static void gradients_are_exchanged_during_the_backward(void **state) {
  (void)state;
  test_output output = {0};
  skip_without_launcher();
  launch_run("", "train --out alone" WIDE, 0);
  launch_run(LAUNCH("3"), "train --out three" WIDE, 0);
  launch_assert_same("alone", "three", STEPS);
  test_command_run(launch_folder, LAUNCH("2"),
                   "bench step --layers 4 --width 64 --heads 4 --context 32 --accumulate 3 --threads 1 --rounds 2 --json", &output);
  if (output.code != 0 || strstr(output.out, "\"hidden_fraction\"") == NULL) fail_msg("%s%s", output.out, output.err);
  test_command_run(launch_folder, LAUNCH("2"),
                   "bench step --layers 1 --width 16 --heads 2 --context 32 --sequence-ranks 2 --threads 1 --rounds 2", &output);
  if (output.code != 0) fail_msg("%s%s", output.out, output.err);
  test_output_free(&output);
}

/* A time decides how many steps there are: for all processes the same number. */
static void processes_have_one_time(void **state) {
  (void)state;
  skip_without_launcher();
  launch_run(LAUNCH("3"), "train --out limited" MODEL " --steps=1000000000 --max-time=3", 0);
  launch_run(LAUNCH("2"), "train --out planned --shard-optimiser" MODEL " --max-time=3", 0);
  launch_run(LAUNCH("3"), "train --resume planned --max-time=2", 0);
  launch_run("", "verify planned limited", 0);
}

static double number_of(const char *name, const char *before, const char *words) {
  test_output output = {0};
  test_command_run(launch_folder, before, words, &output);
  const char *const at = output.code == 0 ? strstr(output.out, name) : NULL;
  if (at == NULL) fail_msg("exit code %d: %s%s", output.code, output.out, output.err);
  const double number = strtod(at + strlen(name), NULL);
  test_output_free(&output);
  return number;
}

static double moments_of(const char *before, const char *words) { return number_of("\"memory_moments_bytes\": ", before, words); }

/* With 4 processes a quarter of the moments, and the room in which weights arrive. */
static void estimates_count_divided_moments(void **state) {
  (void)state;
  skip_without_launcher();
  const double alone = moments_of("", "train --estimate --json --shard-optimiser --width=256" MODEL_OF_ANY_WIDTH);
  const double divided = moments_of(LAUNCH("4"), "train --estimate --json --shard-optimiser --width=256" MODEL_OF_ANY_WIDTH);
  const double whole = moments_of(LAUNCH("4"), "train --estimate --json --width=256" MODEL_OF_ANY_WIDTH);
  assert_true(alone == whole);
  assert_true(divided > alone / 4 && divided < 0.9 * alone);
}

/* 256 tokens are four units of 64, of which the last of three processes has two, 192 tokens three. */
static void estimates_are_of_the_largest_part(void **state) {
  static const char words[] =
      "train --estimate --json --width=64 --heads=2 --layers=2 --batch=1 --structure=window --window=16 --accumulate=1 "
      "--data text.txt --no-preflight --sequence-ranks=3";
  char uneven[256], even[256];
  (void)state;
  skip_without_launcher();
  (void)snprintf(uneven, sizeof uneven, "%s --context=256", words);
  (void)snprintf(even, sizeof even, "%s --context=192", words);
  const double two_units = number_of("\"memory_step_bytes\": ", LAUNCH("3"), uneven);
  assert_true(two_units > 1.2 * number_of("\"memory_step_bytes\": ", LAUNCH("3"), even));
}

static void assert_error(const char *count, const char *words, int code, const char *message) {
  test_output output = {0};
  test_command_run(launch_folder, count, words, &output);
  if (output.code != code || test_part_count(output.err, message) != 1)
    fail_msg("%s: exit code %d, \"%s\", expected %d and \"%s\" once", words, output.code, output.err, code, message);
  test_output_free(&output);
}

static void errors_are_printed_once(void **state) {
  (void)state;
  skip_without_launcher();
  assert_error(LAUNCH("3"), "train --out a --widdth=3" OPTIONS, 2, "--widdth: unknown flag");
  assert_error(LAUNCH("3"), "train --out b --ranks=4" OPTIONS, 2, "run.ranks is 4, and 3 processes were started");
  assert_error(LAUNCH("3"), "train --out c" OPTIONS " --accumulate=2", 2, "train.accumulate is 2");
  assert_error(LAUNCH("3"), "train --out d --sequence-ranks=2" OPTIONS, 2,
               "run.sequence_ranks is 2, and 3 processes were started, expected a multiple");
  assert_error("", "train --out e --ranks=2" OPTIONS, 2,
               "run.ranks is 2, and 1 process was started: a launcher such as mpirun starts several");
  assert_error("HARK_MPI_MODULE=./nowhere.so " LAUNCH("2"), "train --out f" OPTIONS, 8, "./nowhere.so");
  /* also where rank 0 is the last one to fail */
  assert_error("",
               "version >/dev/null; HARK_MPI_MODULE=./nowhere.so " LAUNCH("2") "sh -c 'sleep $((3 - 3 * " LAUNCH_RANK
                                                                               "));"
                                                                               " exec " HARK_COMMAND " train --out f" OPTIONS "'",
               8, "./nowhere.so");
  launch_run("HARK_MPI_MODULE=./nowhere.so " LAUNCH("1"), "train --out h" OPTIONS, 0);
  /* another rank has other options, other data */
  assert_error(LAUNCH("2"),
               "version >/dev/null; " LAUNCH("2") "sh -c 'exec " HARK_COMMAND " train --out g" OPTIONS " --seed=" LAUNCH_RANK "'", 2,
               "rank 1: the options are not those of rank 0");
}

/* As a launcher of another MPI starts processes, and srun without a plugin for MPI. */
static void launchers_that_mpi_does_not_know_are_refused(void **state) {
  (void)state;
  skip_without_launcher();
  assert_error("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 ", "train --out i" OPTIONS, 8,
               "srun started 2 processes without a plugin for MPI: give it --mpi=pmix");
  assert_error(LEAKS_OF_MPI "PMI_SIZE=2 PMI_RANK=0 ", "train --out j" OPTIONS, 8,
               "a launcher started 2 processes, and MPI starts each of them alone");
}

/* A launcher may end before its last process does, whose file is still being written to the disk. */
static void wait_until_unlocked(const char *name) {
  const struct timespec time = {.tv_nsec = 50000000};
  char path[TEST_PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%s/%s/" HARK_LOCK_NAME, launch_folder, name);
  const int opened = open(path, O_RDONLY);
  assert_true(opened >= 0);
  while (flock(opened, LOCK_SH | LOCK_NB) != 0) (void)nanosleep(&time, NULL);
  assert_return_code(close(opened), 0);
}

/* The second rank kills itself as soon as there is a checkpoint. False: the run was over before. */
static bool train_with_a_killed_rank(const char *name) {
  char script[1024];
  test_output output = {0};
  (void)snprintf(script, sizeof script,
                 "if [ \"" LAUNCH_RANK
                 "\" = 1 ]; then\n"
                 "  (until [ -e %s/last ] || ! kill -0 $$; do sleep 0.01; done; kill -9 $$) &\n"
                 "fi\n"
                 "exec " HARK_COMMAND " train --out %s" OPTIONS "\n",
                 name, name);
  (void)test_file_write(launch_folder, "rank.sh", script, strlen(script));
  test_command_run(launch_folder, LAUNCH("3"), "version >/dev/null; " LAUNCH("3") "sh rank.sh", &output);
  const bool killed = output.code != 0;
  test_output_free(&output);
  return killed;
}

/* A rank is killed while the others train: all end, and the run is continued by fewer. */
static void a_killed_rank_ends_all(void **state) {
  static const char *const names[] = {"first", "second", "third", "fourth", "fifth"};
  size_t at = 0;
  (void)state;
  skip_without_launcher();
  launch_run("", "train --out whole" OPTIONS, 0);
  while (!train_with_a_killed_rank(names[at]))
    if (++at == sizeof names / sizeof *names) fail_msg("five runs were over before a rank was killed");
  char words[64];
  (void)snprintf(words, sizeof words, "train --resume %s", names[at]);
  wait_until_unlocked(names[at]);
  launch_run(LAUNCH("2"), words, 0);
  launch_assert_same("whole", names[at], STEPS);
}

/* A process that is stopped (not killed) is named; it may be rank 0 too. It is stopped while it trains: while it saves, others wait too. */
static void a_stopped_rank_is_named(void **state) {
  (void)state;
  skip_without_launcher();
  for (int rank = 0; rank < 3; rank += 2) {
    char script[1024], expected[64];
    (void)snprintf(script, sizeof script,
                   "if [ \"" LAUNCH_RANK
                   "\" = %d ]; then\n"
                   "  (until [ -s by-%d/metrics.jsonl ] || ! kill -0 $$; do sleep 0.01; done; kill -STOP $$) &\n"
                   "fi\n"
                   "exec " HARK_COMMAND " train --out by-%d" MODEL " --steps=1000000 --checkpoint-every=1000000 --rank-timeout=5\n",
                   rank, rank, rank);
    (void)test_file_write(launch_folder, "stop.sh", script, strlen(script));
    (void)snprintf(expected, sizeof expected, "hark train: rank %d did not answer rank ", rank);
    test_output output = {0};
    test_command_run(launch_folder, LAUNCH("3"), "version >/dev/null; " LAUNCH("3") "sh stop.sh", &output);
    if (output.code == 0 || test_part_count(output.err, expected) != 1) fail_msg("\"%s\", expected \"%s\" once", output.err, expected);
    test_output_free(&output);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(processes_train_the_same_run, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(gradients_are_exchanged_during_the_backward, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(processes_divide_windows, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(processes_have_one_time, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(estimates_count_divided_moments, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(estimates_are_of_the_largest_part, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(errors_are_printed_once, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(launchers_that_mpi_does_not_know_are_refused, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(a_killed_rank_ends_all, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(a_stopped_rank_is_named, launch_place_open, launch_place_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
