/* control_groups.c - see control_groups.h.
 *
 *   /proc/self/cgroup      0::/a/b             version 2
 *                          4:cpu,cpuacct:/a/b  version 1, a line for controllers that are mounted together
 *   /proc/self/mountinfo   30 1 0:5 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
 *                                   ^ the group of the folder after it. If it is not /, as in many containers, the names in
 *                                     /proc/self/cgroup begin with it, or are those of another container; then only the topmost
 *                                     group is known
 *
 * Without a line for a mount the usual places are tried, /sys/fs/cgroup and /sys/fs/cgroup/CONTROLLER. Missing folders are skipped.
 */
#define _POSIX_C_SOURCE 200809L
#include "core/control_groups.h"

#include <string.h>

#include "core/system_files.h"

#define PATH_BYTES HARK_SYSTEM_PATH_BYTES

/* True if `word` is in a list separated by commas. */
static bool is_listed(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = list; at != NULL; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
  }
  return false;
}

/* Paths in /proc/self/mountinfo have \040 for a blank, and so on. */
static void undo_escapes(char *text) {
  char *out = text;
  for (const char *at = text; *at != '\0'; at++) {
    const bool escape = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' && at[3] >= '0' && at[3] <= '7';
    *out++ = escape ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0')) : *at;
    if (escape) at += 3;
  }
  *out = '\0';
}

/* The mounted hierarchy of a version that has the controller; its topmost group and its folder. */
static bool read_mount(char *line, int version, const char *controller, char group[PATH_BYTES], char folder[PATH_BYTES]) {
  enum { GROUP = 3, FOLDER = 4, AFTER_DASH = 4 };
  char *rest = NULL, *own[FOLDER + 1] = {NULL}, *mounted[AFTER_DASH - 1] = {NULL}; /* type, source, options */
  int dash = -1, number = 0;
  for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest), number++) {
    if (number <= FOLDER) own[number] = word;
    if (dash >= 0 && number - dash < AFTER_DASH) mounted[number - dash - 1] = word;
    if (dash < 0 && number > FOLDER && strcmp(word, "-") == 0) dash = number;
  }
  if (mounted[0] == NULL || strcmp(mounted[0], version == 2 ? "cgroup2" : "cgroup") != 0) return false;
  if (version == 1 && (mounted[2] == NULL || !is_listed(mounted[2], controller))) return false;
  undo_escapes(own[GROUP]);
  undo_escapes(own[FOLDER]);
  return hark_system_join(group, own[GROUP], "") && hark_system_join(folder, own[FOLDER], "");
}

static void find_mount(const char *root, int version, const char *controller, char group[PATH_BYTES], char folder[PATH_BYTES]) {
  char line[HARK_SYSTEM_LINE_BYTES];
  hark_system_lines lines;
  bool found = false;
  hark_system_lines_open(&lines, root, "proc/self/mountinfo");
  while (!found && hark_system_lines_next(&lines, line)) found = read_mount(line, version, controller, group, folder);
  hark_system_lines_close(&lines);
  if (found) return;
  (void)hark_system_join(group, "/", "");
  (void)hark_system_join(folder, "/sys/fs/cgroup", version == 2 ? "" : controller);
}

/* The group `name` of /proc/self/cgroup and all above it. */
static hark_status walk_up(const char *root, int version, const char *controller, const char *name, hark_control_group_look *look,
                           void *data) {
  char top[PATH_BYTES], mount[PATH_BYTES], base[PATH_BYTES], path[PATH_BYTES], folder[PATH_BYTES];
  find_mount(root, version, controller, top, mount);
  if (!hark_system_join(base, root, mount)) return HARK_OK;
  const size_t length = strcmp(top, "/") == 0 ? 0 : strlen(top);
  const bool below = strncmp(name, top, length) == 0 && (name[length] == '/' || name[length] == '\0');
  const bool outside = strstr(name, "..") != NULL || (length > 0 && !below);
  if (!hark_system_join(path, "", outside ? "" : name + length)) return HARK_OK;
  for (;;) {
    if (hark_system_join(folder, base, path)) HARK_TRY(look(data, version, folder));
    char *const slash = strrchr(path, '/');
    if (slash == NULL) return HARK_OK;
    *slash = '\0';
  }
}

hark_status hark_control_groups_walk(const char *root, const char *controller, hark_control_group_look *look, void *data) {
  char line[HARK_SYSTEM_LINE_BYTES];
  hark_system_lines lines;
  hark_status status = HARK_OK;
  hark_system_lines_open(&lines, root, "proc/self/cgroup");
  while (status == HARK_OK && hark_system_lines_next(&lines, line)) { /* NUMBER:CONTROLLERS:NAME */
    char *const controllers = strchr(line, ':');
    char *const name = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (name == NULL) continue;
    *name = '\0';
    const int version = controllers[1] == '\0' ? 2 : 1;
    if (version == 2 || is_listed(controllers + 1, controller)) status = walk_up(root, version, controller, name + 1, look, data);
  }
  hark_system_lines_close(&lines);
  return status;
}
