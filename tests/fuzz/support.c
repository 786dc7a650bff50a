/* support.c - context, limits, files and stopping for the fuzz targets. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

_Noreturn void fuzz_stop(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s:%d: ", file, line);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  abort();
}

/* ---- memory ---- */

/* Bytes that are live beyond those at the beginning of the input. Work runs in one thread; what libFuzzer's own threads allocate and
 * release meanwhile, the first one's start among it, is not the input's. */
static _Thread_local struct {
  bool counting;
  int64_t live, peak;
} memory;

static void count(int64_t bytes) {
  if (!memory.counting) return;
  memory.live += bytes;
  if (memory.live > memory.peak) memory.peak = memory.live;
}

/* The sanitizer's runtime calls these for every piece of memory of the process, the context's included. */
extern int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t), void (*freed)(const volatile void *))
    __attribute__((weak));
extern size_t __sanitizer_get_allocated_size(const volatile void *) __attribute__((weak));

static void on_allocated(const volatile void *at, size_t bytes) {
  (void)at;
  count((int64_t)bytes);
}

static void on_freed(const volatile void *at) {
  if (at != NULL) count(-(int64_t)__sanitizer_get_allocated_size(at));
}

static bool is_hooked(void) { return __sanitizer_install_malloc_and_free_hooks != NULL && __sanitizer_get_allocated_size != NULL; }

/* Exactly so many bytes, so that the sanitizer sees the first one after them. */
static void *allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  void *piece = NULL;
  if (posix_memalign(&piece, alignment, bytes) != 0) return NULL;
  if (!is_hooked()) count((int64_t)bytes);
  return piece;
}

static void release(void *user, void *piece, size_t bytes) {
  (void)user;
  if (!is_hooked()) count(-(int64_t)bytes);
  free(piece);
}

static hark_context *shared;
static size_t live_before;

hark_context *fuzz_begin(void) {
  if (shared == NULL) {
    const hark_allocator allocator = {allocate, release, NULL};
    const hark_context_options options = {
        .struct_size = sizeof options, .allocator = &allocator, .backend = "reference", .threads = 1, .seed = 1};
    FUZZ_CHECK(hark_context_create(&options, &shared) == HARK_OK, "no context");
    if (is_hooked()) __sanitizer_install_malloc_and_free_hooks(on_allocated, on_freed);
  }
  live_before = hark_context_memory(shared).live_bytes;
  memory.live = memory.peak = 0;
  memory.counting = true;
  return shared;
}

void fuzz_limit(size_t bytes) {
  const int64_t limit = (int64_t)(bytes + FUZZ_BASE_BYTES);
  FUZZ_CHECK(memory.peak <= limit, "%lld bytes were asked for, at most %lld expected", (long long)memory.peak, (long long)limit);
  memory.peak = memory.live;
}

void fuzz_end(void) {
  memory.counting = false;
  const size_t live = hark_context_memory(shared).live_bytes;
  FUZZ_CHECK(live == live_before, "%zu bytes of the context were not released", live - live_before);
  FUZZ_CHECK(memory.live == 0 || !is_hooked(), "%lld bytes of the C library were not released", (long long)memory.live);
}

/* ---- messages ---- */

void fuzz_check_line(const char *text) {
  for (const char *at = text; *at != 0; at++) {
    const unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];
    FUZZ_CHECK(c >= 0x20 && c != 0x7f && !(c == 0xc2 && next >= 0x80 && next < 0xa0), "a control character in \"%s\"", text);
  }
}

void fuzz_check_refusal(const hark_context *context, hark_status status, hark_status malformed, const char *begin) {
  if (status == HARK_OK) return;
  const char *const message = hark_context_message(context);
  FUZZ_CHECK(status == malformed, "%s: %s", hark_status_name(status), message);
  FUZZ_CHECK(strncmp(message, begin, strlen(begin)) == 0 && strlen(message) > strlen(begin), "the message is \"%s\"", message);
  fuzz_check_line(message);
}

/* ---- files ---- */

const char *fuzz_file(const void *data, size_t bytes) {
  static int descriptor = -1;
  static char path[64];
  if (descriptor < 0) {
    descriptor = memfd_create("hark-fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(descriptor >= 0, "no file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  }
  FUZZ_CHECK(ftruncate(descriptor, 0) == 0, "the file cannot be emptied");
  for (size_t at = 0; at < bytes;) {
    const ssize_t put = pwrite(descriptor, (const char *)data + at, bytes - at, (off_t)at);
    FUZZ_CHECK(put > 0, "the file cannot be written");
    at += (size_t)put;
  }
  return path;
}

static char folder[64];

/* The folder's files have the names that targets gave; it is gone with the process when that ends well. */
static void remove_folder(void) { (void)rmdir(folder); }

const char *fuzz_path(int which, const char *name) {
  static char paths[4][128];
  if (folder[0] == 0) {
    /* Flushing a file costs nothing in memory. */
    snprintf(folder, sizeof folder, "%s/hark-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder) != NULL, "%s cannot be made", folder);
    atexit(remove_folder);
  }
  snprintf(paths[which], sizeof paths[which], "%s/%s", folder, name);
  return paths[which];
}

/* ---- random ---- */

fuzz_random fuzz_random_of(const void *data, size_t bytes) {
  uint64_t state = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  for (size_t i = 0; i < bytes; i++) state = (state ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
  return (fuzz_random){state | 1};
}

size_t fuzz_random_below(fuzz_random *random, size_t below) {
  random->state ^= random->state << 13;
  random->state ^= random->state >> 7;
  random->state ^= random->state << 17;
  return below > 0 ? (size_t)(random->state % below) : 0;
}
