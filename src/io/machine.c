/* machine.c - see machine.h.
 *
 *   /proc/meminfo                                 MemAvailable: N kB
 *   memory.{max,current,stat}                     of a control group of version 2; "max": no limit here. Every group above may have a
 *                                                 limit too
 *   memory.{limit_in_bytes,usage_in_bytes,stat}   of version 1 */
#include "io/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/control_groups.h"
#include "io/files.h"

#define LIMIT_BYTES ((size_t)1 << 20) /* of a file of the system */
#define KIBIBYTE 1024u

/* Reads a small file; *there is false, without an error, if it cannot be read. */
static hark_status read_file(hark_context *context, const char *path, hark_text *text, bool *there) {
  *text = hark_text_empty(context);
  const hark_status status = hark_file_read(context, path, LIMIT_BYTES, text);
  *there = status == HARK_OK;
  if (*there) return HARK_OK;
  hark_text_free(text);
  return status == HARK_OUT_OF_MEMORY ? status : HARK_OK;
}

/* The number after `key` at the beginning of a line of `text`; with key "" at the beginning of the text. */
static bool find_number(const char *text, const char *key, uint64_t *out) {
  const size_t length = strlen(key);
  for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, key, length) != 0) continue;
    const char *digits = line + length + strspn(line + length, " \t");
    char *end;
    if (*digits < '0' || *digits > '9') return false;
    *out = strtoull(digits, &end, 10);
    return true;
  }
  return false;
}

static hark_status read_number(hark_context *context, const char *folder, const char *name, const char *key, uint64_t *out, bool *there) {
  char path[HARK_PATH_BYTES];
  hark_text text;
  *there = false;
  HARK_TRY(hark_path_join(context, folder, name, path));
  HARK_TRY(read_file(context, path, &text, there));
  if (!*there) return HARK_OK;
  *there = find_number(hark_text_get(&text), key, out);
  hark_text_free(&text);
  return HARK_OK;
}

/* Names of the files of one version of control groups. */
typedef struct group_files {
  const char *limit, *use, *inactive;
} group_files;
static const group_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const group_files version_2 = {"memory.max", "memory.current", "inactive_file "};

static void lower(hark_machine_memory *memory, uint64_t bytes, const char *limit) {
  if (memory->known && memory->bytes <= bytes) return;
  *memory = (hark_machine_memory){.known = true, .bytes = bytes, .limit = limit};
}

typedef struct group_look {
  hark_context *context;
  hark_machine_memory *out;
} group_look;

/* The memory that the limit of one group leaves. */
static hark_status look_at_group(void *data, int version, const char *folder) {
  const group_look *const look = data;
  const group_files *const files = version == 2 ? &version_2 : &version_1;
  uint64_t limit = 0, use = 0, inactive = 0;
  bool has_limit, has_use, has_inactive;
  HARK_TRY(read_number(look->context, folder, files->limit, "", &limit, &has_limit));
  if (!has_limit) return HARK_OK;
  HARK_TRY(read_number(look->context, folder, files->use, "", &use, &has_use));
  HARK_TRY(read_number(look->context, folder, "memory.stat", files->inactive, &inactive, &has_inactive));
  if (!has_use) use = 0;
  use -= has_inactive && inactive < use ? inactive : 0;
  lower(look->out, limit > use ? limit - use : 0, "the control group");
  return HARK_OK;
}

hark_status hark_machine_memory_left(hark_context *context, const char *root, hark_machine_memory *out) {
  char folder[HARK_PATH_BYTES];
  *out = (hark_machine_memory){.limit = ""};
  HARK_TRY(hark_path_join(context, root[0] != '\0' ? root : "/", "proc", folder));
  uint64_t kibibytes = 0;
  bool there;
  HARK_TRY(read_number(context, folder, "meminfo", "MemAvailable:", &kibibytes, &there));
  if (there) lower(out, kibibytes * KIBIBYTE, "the machine");
  group_look look = {context, out};
  return hark_control_groups_walk(root, "memory", look_at_group, &look);
}

hark_status hark_process_memory_use(hark_context *context, hark_process_memory *out) {
  uint64_t resident = 0, peak = 0;
  bool there;
  *out = (hark_process_memory){0};
  HARK_TRY(read_number(context, "/proc/self", "status", "VmRSS:", &resident, &there));
  HARK_TRY(read_number(context, "/proc/self", "status", "VmHWM:", &peak, &there));
  *out = (hark_process_memory){.resident = resident * KIBIBYTE, .peak = peak * KIBIBYTE};
  return HARK_OK;
}

double hark_machine_seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
