/* mpirun.h - starting several processes in tests, where hark was built with MPI. */
#ifndef HARK_TESTS_GROUP_MPIRUN_H
#define HARK_TESTS_GROUP_MPIRUN_H

#include <stdlib.h>

#include "support/cmocka_all.h"

#ifndef HARK_MPI_MODULE /* built without MPI */
#define HARK_MPI_MODULE ""
#define HARK_MPIRUN "false"
#endif

#define LEAKS_OF_MPI "ASAN_OPTIONS=detect_leaks=0 " /* before a program that opens MPI: leaks in MPI are not hark's */

/* What stands before a program. Root may start processes, more of them than there are cores, and none is kept on one core. Other MPIs
 * ignore what the variables of Open MPI 4 and 5 say. */
#define LAUNCH(count)                                                                                                                      \
  "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 "                   \
  "OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "                                              \
  "OMPI_MCA_hwloc_base_binding_policy=none " LEAKS_OF_MPI HARK_MPIRUN " -n " count " "

static inline void skip_without_mpi(void) {
  if (HARK_MPI_MODULE[0] == '\0') {
    print_message("hark was built without MPI (HARK_WITH_MPI)\n");
    skip();
  }
}

static inline void skip_without_launcher(void) {
  static int failure = -1; /* not known yet */
  skip_without_mpi();
  if (failure < 0) failure = system(LAUNCH("3") "true </dev/null >/dev/null 2>&1") != 0;
  if (failure == 0) return;
  print_message("%s starts no processes here\n", HARK_MPIRUN);
  skip();
}

#endif
