/* sweep_prepare.c - before the first run of a sweep of several runs at once: the threads of the machine are divided, and the memory of the
 * runs is estimated. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "cli/sweep/sweep.h"
#include "cli/sweep/sweep_jobs.h"
#include "cli/sweep/sweep_share.h"

/* run.threads and run.preflight of a run. */
static hark_status read_demands(const sweep *s, int run, int64_t *threads, bool *preflight) {
  hark_config config;
  hark_options *set = NULL;
  const hark_status status =
      hark_sweep_configure(s->context, s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), &config, &set);
  if (status == HARK_OK) {
    *threads = config.run.threads;
    *preflight = config.run.preflight;
  }
  hark_options_destroy(s->context, &set);
  return status;
}

/* Adds the threads of the runs that will be trained to `share`. */
static hark_status share_threads(const sweep *s, hark_sweep_share *share) {
  for (int run = 0; run < s->runs; run++) {
    int64_t threads = 0;
    bool preflight = true;
    if (s->whole[run]) continue;
    HARK_TRY(read_demands(s, run, &threads, &preflight));
    hark_sweep_share_add(share, threads);
  }
  return HARK_OK;
}

/* The first run of every cell that will be trained: its other seeds need as much. */
static bool is_estimated(void *user, int run) {
  const sweep *s = user;
  int first = hark_sweep_cell_of(s, run) * s->plan->seed_count;
  while (first < run && s->whole[first]) first++;
  return first == run && !s->whole[run];
}

/* hark train --estimate on the configuration, which has no file yet: a sweep that is refused leaves none. */
static hark_status begin_estimate(void *user, hark_sweep_jobs *jobs, int run) {
  const sweep *s = user;
  char program[] = "hark", command[] = "train", config[] = "--config=/dev/stdin", estimate[] = "--estimate", json[] = "--json",
       again[] = "--resume";
  char *words[7] = {program, command, config, estimate, json};
  bool begun = false, preflight = true;
  int64_t threads = 0;
  hark_text text = hark_text_empty(s->context);
  FILE *file = NULL;
  HARK_TRY(read_demands(s, run, &threads, &preflight));
  if (!preflight) return HARK_OK;
  HARK_TRY(hark_sweep_has_begun(s, run, &begun));
  if (begun) words[5] = again;
  hark_status status = hark_sweep_print_configuration(s, run, &text);
  if (status == HARK_OK) status = hark_sweep_share_file(s->context, &text, &file);
  if (status == HARK_OK) status = hark_sweep_jobs_begin(s->context, jobs, run, "", words, fileno(file));
  if (file != NULL) (void)fclose(file);
  hark_text_free(&text);
  return status;
}

/* A run that cannot be estimated reports the reason when it is trained. */
static hark_status end_estimate(void *user, const hark_sweep_ended *ended, bool *stop) {
  sweep *s = user;
  json_t *const needs = json_loads(ended->result, 0, NULL);
  const json_int_t bytes = json_integer_value(json_object_get(needs, "memory_bytes"));
  if (bytes > 0 && (uint64_t)bytes > s->memory) s->memory = (uint64_t)bytes;
  json_decref(needs);
  *stop = hark_sweep_signal() != 0;
  return HARK_OK;
}

/* The processes of the launcher on this machine. */
static int local_size(const sweep *s) { return s->call->group != NULL ? s->call->group->local : 1; }

/* Refuses more runs at once than the memory is enough for: each would see only that it fits itself. The processes of a launcher on other
 * machines compare the estimate with their memory later. */
static hark_status check_memory(sweep *s, int jobs) {
  const hark_sweep_work cells = {.user = s, .count = s->runs, .needed = is_estimated, .begin = begin_estimate, .end = end_estimate};
  const int processes = local_size(s);
  jobs = (int)hark_min(jobs, hark_sweep_left(s));
  if (!s->values->preflight || jobs * processes < 2) return HARK_OK;
  HARK_TRY(hark_sweep_jobs_do(s->context, &cells, jobs, HARK_SWEEP_RESULT));
  if (hark_sweep_signal() != 0) return HARK_OK;
  return hark_sweep_share_check(s->context, jobs, (int)hark_min(processes, hark_sweep_left(s)), s->memory);
}

/* The most runs that one plan has left. */
static int most_left(const sweep *sweeps, int count) {
  int most = 0;
  for (int i = 0; i < count; i++) most = hark_sweep_left(&sweeps[i]) > most ? hark_sweep_left(&sweeps[i]) : most;
  return most;
}

/* Divides the threads of this machine among the runs. */
static hark_status divide_threads(const sweep *sweeps, int count, const hark_sweep_order *order) {
  const int processes = (int)hark_min(hark_group_size(sweeps->call->group), order->left);
  hark_sweep_share share;
  hark_sweep_share_begin(sweeps->context, order->jobs, &share);
  for (int i = 0; i < count; i++) HARK_TRY(share_threads(&sweeps[i], &share));
  HARK_TRY(hark_sweep_share_set(sweeps->context, &share));
  hark_sweep_share_say(sweeps->call, &share, processes, (int)hark_min(processes, local_size(sweeps)));
  return HARK_OK;
}

static hark_status check_all(sweep *sweeps, int count, hark_sweep_order *order) {
  for (int i = 0; i < count && hark_sweep_signal() == 0; i++) {
    HARK_TRY(hark_sweep_with_plan(&sweeps[i], check_memory(&sweeps[i], order->jobs)));
    if (sweeps[i].memory > order->memory) order->memory = sweeps[i].memory;
  }
  return HARK_OK;
}

hark_status hark_sweep_prepare_jobs(sweep *sweeps, int count, hark_sweep_order *order, bool *stopped) {
  const sweep_values *const values = sweeps->values;
  const hark_group *const group = sweeps->call->group;
  order->left = most_left(sweeps, count);
  if (values->list || values->table || order->left == 0 || (values->jobs == 1 && group == NULL)) return HARK_OK;
  order->jobs = (int)hark_min(values->jobs, hark_ceil_div(order->left, hark_group_size(group)));
  hark_sweep_catch_signals();
  HARK_TRY(divide_threads(sweeps, count, order));
  HARK_TRY(check_all(sweeps, count, order));
  *stopped = hark_sweep_signal() != 0;
  if (!*stopped) return HARK_OK;
  order->jobs = 0;
  sweeps->call->exit_code = HARK_EXIT_SIGNAL + hark_sweep_signal();
  hark_sweep_say_stopped(sweeps);
  return HARK_OK;
}
