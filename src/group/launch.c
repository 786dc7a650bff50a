/* launch.c - see launch.h. */
#include "group/launch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/core.h"

#define MODULE_FILE "hark-mpi.so"
#define MODULE_SYMBOL "hark_transport_module"
#define PATH_BYTES 4096
#ifndef HARK_MODULE_FOLDER
#define HARK_MODULE_FOLDER "../lib/hark" /* from that of the program */
#endif

/* A number in a variable of the environment ("4(x2)" of Slurm is 4); -1: there is none. */
static long number_of(const char *variable) {
  const char *const text = getenv(variable);
  char *end = NULL;
  const long number = text != NULL ? strtol(text, &end, 10) : -1;
  return text != NULL && end != text ? number : -1;
}

/* The first of three variables that has a number. */
static long first_of(const char *const variables[3], long other) {
  for (size_t i = 0; i < 3; i++)
    if (number_of(variables[i]) >= 0) return number_of(variables[i]);
  return other;
}

/* The number of processes that the launcher has started. */
static long launched_size(void) {
  static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  return first_of(sizes, 1);
}

/* A job's script of Slurm is no step of several tasks. */
bool hark_group_launched(void) {
  const char *const module = getenv(HARK_MODULE_VARIABLE);
  return (module == NULL || strcmp(module, HARK_MODULE_NONE) != 0) && launched_size() > 1;
}

int hark_group_launch_rank(void) {
  static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
  return (int)first_of(ranks, 0);
}

int hark_group_local_size(void) {
  static const char *const sizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"};
  return (int)hark_max(1, first_of(sizes, 1));
}

/* srun without a plugin for MPI: Open MPI would end the program, and MPICH would start every process alone. A module that is named is
 * tried, because an MPI library that was built with Slurm's libpmi needs no variable. */
static bool srun_passes_no_mpi(void) {
  static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_RANK",          "PMI_FD", "PMIX_RANK",
                                          "PMIX_NAMESPACE",       HARK_MODULE_VARIABLE};
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (getenv(variables[i]) != NULL) return false;
  return number_of("SLURM_STEP_NUM_TASKS") > 1;
}

bool hark_group_has_own_cores(void) { return getenv("SLURM_CPUS_PER_TASK") != NULL; }

/* The folder of the program, with a slash at its end; "" if unknown. */
static void find_own_folder(char *out) {
  const ssize_t length = readlink("/proc/self/exe", out, PATH_BYTES - 1);
  out[length > 0 ? length : 0] = '\0';
  char *const slash = strrchr(out, '/');
  out[slash != NULL ? slash - out + 1 : 0] = '\0';
}

/* The module; NULL, with the reason of the last file that was tried. */
static void *load_module(char *why, size_t bytes) {
  const char *const named = getenv(HARK_MODULE_VARIABLE);
  char own[PATH_BYTES], path[2 * PATH_BYTES];
  static const char *const places[] = {"", HARK_MODULE_FOLDER "/"};
  find_own_folder(own);
  for (size_t i = 0; i < (named != NULL ? 1 : sizeof places / sizeof *places); i++) {
    (void)snprintf(path, sizeof path, "%s%s%s", named != NULL ? named : own, named != NULL ? "" : places[i],
                   named != NULL ? "" : MODULE_FILE);
    void *const module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module != NULL) return module;
    const char *const error = dlerror();
    const bool there = access(path, F_OK) == 0;
    (void)snprintf(why, bytes, "%.300s", there && error != NULL ? error : path);
    if (there) return NULL;
  }
  return NULL;
}

static const hark_transport_module_record *find_record(void *module) {
  const hark_transport_module_record *const record = dlsym(module, MODULE_SYMBOL);
  return record != NULL && record->version == HARK_TRANSPORT_VERSION ? record : NULL;
}

bool hark_group_describe(char *text, size_t bytes) {
  char why[HARK_MESSAGE_BYTES];
  void *const module = load_module(why, sizeof why);
  const hark_transport_module_record *const record = module != NULL ? find_record(module) : NULL;
  if (record != NULL) record->describe(text, bytes);
  return record != NULL;
}

static hark_status open_record(hark_context *context, const hark_transport_module_record **record) {
  char why[HARK_MESSAGE_BYTES] = "";
  void *const module = load_module(why, sizeof why);
  if (module == NULL)
    return hark_fail(context, HARK_NO_BACKEND, "a launcher has started this program, and the module for MPI cannot be loaded: %.300s", why);
  *record = find_record(module);
  return *record != NULL ? HARK_OK : hark_fail(context, HARK_NO_BACKEND, "the module for MPI is of another version of hark");
}

static hark_status join(hark_context *context, const hark_transport_module_record *record, hark_group *group) {
  hark_transport *const transport = group->transport;
  if (record->open(transport) != 0) return hark_fail(context, HARK_CANCELLED, "%s: %.300s", record->name, transport->message);
  const int size = transport->size;
  if (size > 1 && size <= HARK_GROUP_MOST) return HARK_OK;
  transport->close(transport);
  if (size == 1)
    return hark_fail(context, HARK_NO_BACKEND,
                     "a launcher started %ld processes, and %s starts each of them alone: the launcher is of another MPI", launched_size(),
                     record->name);
  return hark_fail(context, HARK_UNSUPPORTED, "%d processes were started, at most %d can work together", size, HARK_GROUP_MOST);
}

hark_status hark_group_open(hark_context *context, hark_group **out) {
  const hark_transport_module_record *record = NULL;
  void *memory = NULL;
  *out = NULL;
  if (!hark_group_launched()) return HARK_OK;
  if (srun_passes_no_mpi())
    return hark_fail(context, HARK_NO_BACKEND,
                     "srun started %ld processes without a plugin for MPI: give it --mpi=pmix or another of srun --mpi=list",
                     number_of("SLURM_STEP_NUM_TASKS"));
  HARK_TRY(open_record(context, &record));
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_group) + sizeof(hark_transport), &memory));
  hark_group *const group = memory;
  group->transport = (hark_transport *)(group + 1);
  group->limit = HARK_GROUP_LIMIT_SECONDS; /* until the options are known */
  group->local = hark_group_local_size();
  const hark_status status = join(context, record, group);
  if (status == HARK_OK)
    *out = group;
  else
    hark_release(context, memory, sizeof(hark_group) + sizeof(hark_transport));
  return status;
}

void hark_group_close(hark_context *context, hark_group **group_pointer, int code) {
  hark_group *const group = *group_pointer;
  *group_pointer = NULL;
  if (group == NULL) return;
  if (hark_group_is_lost(group)) group->transport->abort(group->transport, code);
  hark_inquiry_close(group->transport, &group->inquiry);
  group->transport->close(group->transport);
  hark_release(context, group, sizeof(hark_group) + sizeof(hark_transport));
}
