/* replay.c - runs a fuzz target without libFuzzer, so that any compiler and the continuous check run it.
 *
 *     replay_NAME PATH...        every file, and every file in a folder
 *
 * Each input is run as it is, then cut at every length (of long ones at CUTS lengths), and with CHANGES bytes changed one after the other
 * at places that depend on the input only. A failing input stops the program with what went wrong; its bytes are then in the file that the
 * message names. A run without any input fails. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

#define CUTS 128
#define CHANGES 256

static const uint8_t *running; /* the input in work, for the handler */
static size_t running_bytes;

static void run(const uint8_t *data, size_t size) {
  uint8_t *const exact = malloc(size > 0 ? size : 1); /* so that a sanitizer sees the first byte after it */
  FUZZ_CHECK(exact != NULL, "out of memory");
  if (size > 0) memcpy(exact, data, size);
  running = exact;
  running_bytes = size;
  (void)LLVMFuzzerTestOneInput(exact, size);
  running = NULL;
  free(exact);
}

/* Keeps the input that stopped the program in PROGRAM-failing-input in the current folder. */
static char failing_path[256];
static void keep_input(void) {
  FILE *const file = running != NULL ? fopen(failing_path, "wb") : NULL;
  if (file == NULL) return;
  (void)fwrite(running, 1, running_bytes, file);
  fclose(file);
  fprintf(stderr, "the input's %zu bytes are in %s\n", running_bytes, failing_path);
}

static void on_abort(int number) {
  (void)number;
  keep_input();
}

/* Sanitizers end the program without a signal. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void run_around(const uint8_t *data, size_t size) {
  fuzz_random random = fuzz_random_of(data, size);
  run(data, size);
  const size_t step = size / CUTS + 1;
  for (size_t length = 0; length < size; length += step) run(data, length);
  uint8_t *const changed = malloc(size + 1);
  FUZZ_CHECK(changed != NULL, "out of memory");
  for (int i = 0; i < CHANGES && size > 0; i++) {
    memcpy(changed, data, size);
    /* One bit, any byte, or a byte that some format gives a meaning to. */
    static const char meaning[] = "{}[]:,\"\\'-+.0123456789eE \n\t#&*!|>%@`~";
    uint8_t *const at = changed + fuzz_random_below(&random, size);
    switch (i % 3) {
      case 0: *at ^= (uint8_t)(1u << fuzz_random_below(&random, 8)); break;
      case 1: *at = (uint8_t)fuzz_random_below(&random, 256); break;
      default: *at = (uint8_t)meaning[fuzz_random_below(&random, sizeof meaning - 1)]; break;
    }
    run(changed, size);
  }
  free(changed);
}

static int run_file(const char *path) {
  FILE *const file = fopen(path, "rb");
  struct stat about;
  FUZZ_CHECK(file != NULL && fstat(fileno(file), &about) == 0, "%s cannot be read", path);
  const size_t size = (size_t)about.st_size;
  uint8_t *const data = malloc(size + 1);
  FUZZ_CHECK(data != NULL && fread(data, 1, size, file) == size, "%s cannot be read", path);
  fclose(file);
  run_around(data, size);
  free(data);
  return 1;
}

static int run_path(const char *path) {
  struct stat about;
  FUZZ_CHECK(stat(path, &about) == 0, "%s is not there", path);
  if (!S_ISDIR(about.st_mode)) return run_file(path);
  DIR *const folder = opendir(path);
  FUZZ_CHECK(folder != NULL, "%s cannot be read", path);
  int files = 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char inner[1024];
    if (entry->d_name[0] == '.') continue;
    snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
    files += run_file(inner);
  }
  closedir(folder);
  return files;
}

int main(int count, char **words) {
  int files = 0;
  const char *const slash = strrchr(words[0], '/');
  snprintf(failing_path, sizeof failing_path, "%s-failing-input", slash != NULL ? slash + 1 : words[0]);
  signal(SIGABRT, on_abort);
  if (__sanitizer_set_death_callback != NULL) __sanitizer_set_death_callback(keep_input);
  for (int i = 1; i < count; i++) files += run_path(words[i]);
  printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}
