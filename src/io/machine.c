/* machine.c - see machine.h.
 *
 *   /proc/meminfo                                 MemAvailable: N kB
 *   /proc/self/cgroup                             0::/a/b (version 2), N:memory,other:/a/b (version 1)
 *   /sys/fs/cgroup/a/b/memory.{max,current,stat}  version 2; "max": no limit here. Every folder above may have a limit too
 *   /sys/fs/cgroup/memory/a/b/memory.{limit_in_bytes,usage_in_bytes,stat}   version 1
 *
 * Inside a container the path of a group may be one of the host: a folder that is not there is passed over, and the topmost is looked at. */
#include "io/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/files.h"

#define LIMIT_BYTES ((size_t)1 << 20) /* of a file of the system */
#define KIBIBYTE 1024u

/* Reads a small file; *there is false, and that is fine, when it cannot be read. */
static hark_status read_file(hark_context *context, const char *path, hark_text *text, bool *there) {
  *text = hark_text_empty(context);
  const hark_status status = hark_file_read(context, path, LIMIT_BYTES, text);
  *there = status == HARK_OK;
  if (*there) return HARK_OK;
  hark_text_free(text);
  return status == HARK_OUT_OF_MEMORY ? status : HARK_OK;
}

/* The number behind `key` at the beginning of a line of `text`; "" as key: at the beginning of the text. */
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
  const char *mount, *limit, *use, *inactive;
} group_files;
static const group_files version_1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const group_files version_2 = {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static void lower(hark_machine_memory *memory, uint64_t bytes, const char *limit) {
  if (memory->known && memory->bytes <= bytes) return;
  *memory = (hark_machine_memory){.known = true, .bytes = bytes, .limit = limit};
}

/* What the limit of one group leaves. */
static hark_status look_at_group(hark_context *context, const group_files *files, const char *folder, hark_machine_memory *out) {
  uint64_t limit = 0, use = 0, inactive = 0;
  bool has_limit, has_use, has_inactive;
  HARK_TRY(read_number(context, folder, files->limit, "", &limit, &has_limit));
  if (!has_limit) return HARK_OK;
  HARK_TRY(read_number(context, folder, files->use, "", &use, &has_use));
  HARK_TRY(read_number(context, folder, "memory.stat", files->inactive, &inactive, &has_inactive));
  if (!has_use) use = 0;
  use -= has_inactive && inactive < use ? inactive : 0;
  lower(out, limit > use ? limit - use : 0, "the control group");
  return HARK_OK;
}

/* The group `name` ("/a/b") and all above it. */
static hark_status look_at_groups(hark_context *context, const char *root, const group_files *files, const char *name,
                                  hark_machine_memory *out) {
  char base[HARK_PATH_BYTES], path[HARK_PATH_BYTES], folder[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, root[0] != '\0' ? root : "/", files->mount, base));
  (void)snprintf(path, sizeof path, "%s", name + strspn(name, "/"));
  for (;;) {
    HARK_TRY(hark_path_join(context, base, path, folder));
    HARK_TRY(look_at_group(context, files, folder, out));
    if (path[0] == '\0') return HARK_OK;
    char *slash = strrchr(path, '/');
    *(slash != NULL ? slash : path) = '\0';
  }
}

/* One line of /proc/self/cgroup: "NUMBER:CONTROLLERS:/NAME". */
static hark_status take_group(hark_context *context, const char *root, char *line, hark_machine_memory *out) {
  char *controllers = strchr(line, ':');
  char *name = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
  if (name == NULL) return HARK_OK;
  *name++ = '\0';
  controllers++;
  if (strstr(name, "..") != NULL) name[0] = '\0'; /* a group outside of the namespace: the topmost that can be seen */
  if (controllers[0] == '\0') return look_at_groups(context, root, &version_2, name, out);
  char *rest = NULL;
  for (const char *word = strtok_r(controllers, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
    if (strcmp(word, "memory") == 0) return look_at_groups(context, root, &version_1, name, out);
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
  char path[HARK_PATH_BYTES];
  hark_text text;
  HARK_TRY(hark_path_join(context, folder, "self/cgroup", path));
  HARK_TRY(read_file(context, path, &text, &there));
  if (!there) return HARK_OK;
  hark_status status = HARK_OK;
  char *rest = NULL;
  for (char *line = text.data != NULL ? strtok_r(text.data, "\n", &rest) : NULL; line != NULL && status == HARK_OK;
       line = strtok_r(NULL, "\n", &rest))
    status = take_group(context, root, line, out);
  hark_text_free(&text);
  return status;
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
