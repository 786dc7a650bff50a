/* main.c - the program hark. Everything is in the functions around it, so that tests can call it without a process.
 *
 * It also restores the cores that it was started on. If the environment requests it, gcc's OpenMP, which oneDNN loads, binds the first
 * thread to one core before main(), and all threads that it starts would run there too. Only the program itself can know the cores before
 * that: functions in its .preinit_array run before libraries are initialised. It restores these cores, as far as they are among OpenMP's
 * places (OMP_PLACES). */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/process.h"
#include "core/cores.h"

static hark_cores at_start;

#if defined(__linux__) && defined(__ELF__)
static void look_at_cores(int count, char **arguments, char **environment) {
  (void)count, (void)arguments, (void)environment;
  hark_cores_of_thread(&at_start);
}
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(int, char **, char **) = look_at_cores;
#endif

static void take_cores_back(void) {
  hark_cores now, places, both;
  hark_cores_of_thread(&now);
  if (at_start.count == 0) { /* a C library without .preinit_array */
    hark_cores_of_process(&at_start);
  } else if (!hark_cores_are_same(&now, &at_start)) {
    hark_cores_of_places(&places);
    hark_cores_common(&at_start, &places, &both);
    if (both.count > 0) at_start = both;
  }
  if (!hark_cores_are_same(&now, &at_start)) hark_cores_use(&at_start);
  (void)unsetenv("OMP_PROC_BIND"); /* no longer needed, also for programs that this one starts */
  (void)unsetenv("OMP_PLACES");
  (void)unsetenv("GOMP_CPU_AFFINITY");
}

int main(int count, char **arguments) {
  hark_process_begin();
  take_cores_back();
  return hark_process_end(hark_main(count, (const char *const *)arguments));
}
