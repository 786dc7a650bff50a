/* sweep_share.c - see sweep_share.h. */
#include "cli/sweep/sweep_share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/threads.h"
#include "io/machine.h"

#define MEBIBYTE 1048576.0

/* ---- threads ---- */

void hark_sweep_share_begin(hark_context *context, int jobs, hark_sweep_share *out) {
  const int usable = hark_usable_threads(context);
  *out = (hark_sweep_share){.jobs = jobs, .usable = usable, .part = (int)hark_max(1, usable / jobs), .least = INT64_MAX};
}

void hark_sweep_share_add(hark_sweep_share *share, int64_t threads) {
  const int64_t own = threads > 0 ? threads : share->part;
  share->parted = share->parted || threads == 0;
  share->least = hark_min(share->least, own);
  share->most = hark_max(share->most, own);
}

hark_status hark_sweep_share_set(hark_context *context, const hark_sweep_share *share) {
  char number[16];
  (void)snprintf(number, sizeof number, "%d", share->part);
  return setenv("OMP_NUM_THREADS", number, 1) == 0 ? HARK_OK : hark_fail(context, HARK_OUT_OF_MEMORY, "OMP_NUM_THREADS: out of memory");
}

void hark_sweep_share_say(const hark_invocation *call, const hark_sweep_share *share, int processes, int local) {
  const int runs = share->jobs * processes;
  fprintf(stderr, "%d run%s at once", runs, runs == 1 ? "" : "s");
  if (processes > 1) fprintf(stderr, " in %d processes", processes);
  fprintf(stderr, ", ");
  if (share->least < share->most) fprintf(stderr, "%" PRId64 " to ", share->least);
  fprintf(stderr, "%" PRId64 " thread%s each (%s)\n", share->most, share->most == 1 ? "" : "s",
          share->parted ? "the cores are divided; run.threads has priority" : "by run.threads");
  hark_command_warn_of_threads(call, (int)(share->most * share->jobs * local), processes > 1 ? "the runs of this machine" : "--jobs");
}

/* ---- memory ---- */

hark_status hark_sweep_share_file(hark_context *context, const hark_text *text, FILE **out) {
  HARK_TRY(text->status);
  *out = tmpfile();
  if (*out != NULL && fwrite(hark_text_get(text), 1, text->length, *out) == text->length && fflush(*out) == 0) return HARK_OK;
  return hark_fail(context, HARK_IO_ERROR, "a temporary file cannot be written: %s; --no-preflight needs none", strerror(errno));
}

hark_status hark_sweep_share_check(hark_context *context, int jobs, int processes, uint64_t bytes) {
  const int runs = jobs * processes;
  hark_machine_memory memory;
  HARK_TRY(hark_machine_memory_left(context, "", &memory));
  if (!memory.known || bytes == 0 || memory.bytes / bytes >= (uint64_t)runs) return HARK_OK;
  const int fit = (int)(memory.bytes / bytes);
  char words[64] = "one run alone does not fit", of_processes[64] = "";
  if (fit > 0) (void)snprintf(words, sizeof words, "%d process%s of a launcher fit%s here", fit, fit == 1 ? "" : "es", fit == 1 ? "s" : "");
  if (fit >= processes) (void)snprintf(words, sizeof words, "--jobs %d fits", fit / processes);
  if (processes > 1) (void)snprintf(of_processes, sizeof of_processes, " in %d processes of this machine", processes);
  return hark_fail(context, HARK_TOO_LARGE,
                   "--jobs: %d runs at once%s need about %.0f MiB of memory (%.0f MiB each), and %s has %.0f MiB left; %s, --no-preflight "
                   "tries anyway",
                   runs, of_processes, runs * ((double)bytes / MEBIBYTE), (double)bytes / MEBIBYTE, memory.limit,
                   (double)memory.bytes / MEBIBYTE, words);
}
