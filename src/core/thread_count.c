/* thread_count.c - see thread_count.h. */
#define _POSIX_C_SOURCE 200809L
#include "core/thread_count.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/control_groups.h"
#include "core/system_files.h"

/* ---- quotas ---- */

#define PERIOD_DEFAULT 100000 /* microseconds */
#define NUMBER_BYTES 64

/* A whole number above 0 at the beginning of the text; 0: "max", -1 and everything else. */
static double positive(const char *text, const char **rest) {
  char *end;
  const long long value = strtoll(text, &end, 10);
  *rest = end;
  return value > 0 ? (double)value : 0;
}

static hark_status lower_quota(void *data, int version, const char *folder) {
  double *const least = data;
  char text[NUMBER_BYTES];
  const char *rest = "";
  double quota = 0, period = PERIOD_DEFAULT;
  if (hark_system_read(folder, version == 2 ? "cpu.max" : "cpu.cfs_quota_us", text, sizeof text)) quota = positive(text, &rest);
  const bool has_period = version == 2 ? rest[0] == ' ' : hark_system_read(folder, "cpu.cfs_period_us", text, sizeof text);
  if (has_period) period = positive(version == 2 ? rest : text, &rest);
  if (quota > 0 && period > 0 && (*least == 0 || quota / period < *least)) *least = quota / period;
  return HARK_OK;
}

double hark_cpu_quota(const char *root) {
  double least = 0;
  const hark_status status = hark_control_groups_walk(root, "cpu", lower_quota, &least);
  return status == HARK_OK ? least : 0;
}

/* ---- environment ---- */

static const char *skip_blanks(const char *text) { return text + strspn(text, " \t"); }

/* Reads "4", or with `list` "4,2"; 0 for anything else. Without `list` larger numbers become HARK_THREADS_LIMIT. */
static int read_count(const char *text, bool list) {
  int first = 0;
  for (text = skip_blanks(text); isdigit((unsigned char)*text); text = skip_blanks(text + 1)) {
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    if (value < 1 || (list && value > HARK_THREADS_LIMIT)) return 0;
    if (first == 0) first = value < HARK_THREADS_LIMIT ? (int)value : HARK_THREADS_LIMIT;
    text = skip_blanks(end);
    if (*text == '\0') return first;
    if (!list || *text != ',') return 0;
  }
  return 0;
}

/* 0: absent, empty or malformed. */
static int count_of_environment(hark_context *context, const char *name, bool list) {
  const char *const text = getenv(name);
  if (text == NULL || *skip_blanks(text) == '\0') return 0;
  const int count = read_count(text, list);
  if (count == 0) {
    hark_log(context, HARK_LOG_WARNING, "%s is \"%.40s\", expected a whole number in [1, %d]%s; it is passed over", name, text,
             HARK_THREADS_LIMIT, list ? " or a list of such" : "");
  }
  return count;
}

/* ---- */

static void lower(int *threads, const char **from, int count, const char *what) {
  if (count < 1 || count >= *threads) return;
  *threads = count;
  *from = what;
}

static int quota_threads(const char *root) {
  const double quota = hark_cpu_quota(root);
  const int whole = quota < HARK_THREADS_LIMIT ? (int)quota : HARK_THREADS_LIMIT;
  return whole + ((double)whole < quota && whole < HARK_THREADS_LIMIT);
}

int hark_thread_count(hark_context *context, const char *root, int cores, const char **from) {
  int threads = count_of_environment(context, "OMP_NUM_THREADS", true);
  *from = "OMP_NUM_THREADS";
  if (threads == 0) {
    threads = cores > 0 ? cores : (int)hark_min(sysconf(_SC_NPROCESSORS_ONLN), HARK_THREADS_LIMIT);
    threads = (int)hark_min(hark_max(threads, 1), HARK_THREADS_LIMIT);
    *from = cores > 0 ? HARK_THREADS_AFFINITY : HARK_THREADS_MACHINE;
    lower(&threads, from, quota_threads(root), HARK_THREADS_QUOTA);
    lower(&threads, from, count_of_environment(context, "SLURM_CPUS_PER_TASK", false), "SLURM_CPUS_PER_TASK");
  }
  lower(&threads, from, count_of_environment(context, "OMP_THREAD_LIMIT", false), "OMP_THREAD_LIMIT");
  return threads;
}
