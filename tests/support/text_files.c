/* text_files.c - folders, files and contexts for tests of the data layer. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "support/text_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/files.h"
#include "io/text.h"
#include "support/cmocka_all.h"

void test_folder_make(char folder[TEST_PATH_BYTES]) {
  const char *base = getenv("TMPDIR");
  snprintf(folder, TEST_PATH_BYTES, "%s/hark-test-XXXXXX", base != NULL && base[0] != '\0' ? base : "/tmp");
  if (mkdtemp(folder) == NULL) fail_msg("%s: %s", folder, strerror(errno));
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk) {
  (void)about;
  (void)kind;
  (void)walk;
  return remove(path);
}

void test_folder_remove(const char *folder) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

const char *test_path(const char *folder, const char *name) {
  static char paths[8][TEST_PATH_BYTES];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, TEST_PATH_BYTES, "%s/%s", folder, name);
  return path;
}

static void make_folders_above(const char *path) {
  char part[TEST_PATH_BYTES];
  snprintf(part, sizeof part, "%s", path);
  for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(part, 0777);
    *slash = '/';
  }
}

const char *test_file_write(const char *folder, const char *name, const void *data, size_t bytes) {
  const char *path = test_path(folder, name);
  make_folders_above(path);
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) fail_msg("%s: %s", path, strerror(errno));
  return path;
}

const char *test_file_write_text(const char *folder, const char *name, const char *text) {
  return test_file_write(folder, name, text, strlen(text));
}

unsigned char *test_file_read(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail_msg("%s: %s", path, strerror(errno));
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  unsigned char *data = malloc(*bytes + 1);
  if (data == NULL || fread(data, 1, *bytes, file) != *bytes) fail_msg("%s: cannot be read", path);
  fclose(file);
  data[*bytes] = 0;
  return data;
}

char *test_file_text(const char *folder, const char *name) {
  size_t bytes;
  return (char *)test_file_read(test_path(folder, name), &bytes);
}

void test_file_set_time(const char *path, int64_t seconds, int64_t nanoseconds) {
  const struct timespec then = {.tv_sec = (time_t)seconds, .tv_nsec = (long)nanoseconds};
  const struct timespec times[2] = {then, then};
  if (utimensat(AT_FDCWD, path, times, 0) != 0) fail_msg("%s: %s", path, strerror(errno));
}

void test_manifest_write(hark_context *context, const char *folder, const char *checkpoint, int count, const char *const *names) {
  char path[128];
  hark_text manifest = hark_text_empty(context);
  hark_text_append(&manifest, "{\"format_version\": 1, \"files\": [");
  for (int i = 0; i < count; i++) {
    hark_file_summary summary;
    (void)snprintf(path, sizeof path, "%s/%s", checkpoint, names[i]);
    assert_fine(context, hark_file_summarise(context, test_path(folder, path), &summary));
    hark_text_append(&manifest, "%s{\"name\": \"%s\", \"bytes\": %llu, \"sha256\": \"%s\"}", i > 0 ? ", " : "", names[i],
                     (unsigned long long)summary.bytes, summary.sha256);
  }
  hark_text_append(&manifest, "]}");
  assert_fine(context, manifest.status);
  (void)snprintf(path, sizeof path, "%s/manifest.json", checkpoint);
  (void)test_file_write_text(folder, path, hark_text_get(&manifest));
  hark_text_free(&manifest);
}

void test_file_age(const char *path, long seconds) { test_file_set_time(path, time(NULL) - seconds, 0); }

/* In front of every block, so that what is given back can be compared with what was taken. */
typedef struct block_header {
  size_t bytes;
  size_t mark;
} block_header;
#define BLOCK_MARK ((size_t)0x6b726168)

static void *allocate(void *user, size_t bytes, size_t alignment) {
  test_memory *memory = user;
  void *block;
  memory->allocations++;
  if (memory->fail_at > 0 && (memory->allocations == memory->fail_at || (memory->onwards && memory->allocations > memory->fail_at)))
    return NULL;
  if (posix_memalign(&block, alignment, alignment + bytes) != 0) return NULL;
  memory->live_bytes += bytes;
  memory->blocks++;
  char *const data = (char *)block + alignment; /* the header ends where the data begin */
  const block_header header = {bytes, BLOCK_MARK ^ alignment};
  memcpy(data - sizeof header, &header, sizeof header);
  return data;
}

static void release(void *user, void *data, size_t bytes) {
  test_memory *memory = user;
  block_header header;
  memcpy(&header, (char *)data - sizeof header, sizeof header);
  if (header.bytes != bytes) memory->mistakes++;
  memory->live_bytes -= header.bytes;
  memory->blocks--;
  free((char *)data - (header.mark ^ BLOCK_MARK));
}

hark_status test_memory_create(test_memory *memory, const char *backend, hark_context **out) {
  const hark_allocator allocator = {allocate, release, memory};
  const hark_context_options options = {.struct_size = sizeof options,
                                        .allocator = &allocator,
                                        .threads = 1,
                                        .backend = backend,
                                        .instruction_set = strcmp(backend, "reference") == 0 ? NULL : "generic",
                                        .seed = 1,
                                        .deterministic = true};
  return hark_context_create(&options, out);
}

hark_context *test_memory_context(test_memory *memory) {
  hark_context *context = NULL;
  *memory = (test_memory){0};
  if (test_memory_create(memory, "reference", &context) != HARK_OK) fail_msg("no context");
  return context;
}

void test_memory_context_end(hark_context *context, test_memory *memory) {
  hark_context_destroy(&context);
  if (memory->blocks != 0 || memory->live_bytes != 0)
    fail_msg("%ld blocks of %zu bytes in all were not released", memory->blocks, memory->live_bytes);
  if (memory->mistakes != 0) fail_msg("%ld blocks were released with another size than they had", memory->mistakes);
}

int test_folder_count(const char *folder, const char *name) {
  int count = 0;
  DIR *const listed = opendir(test_path(folder, name));
  assert_non_null(listed);
  while (readdir(listed) != NULL) count++;
  (void)closedir(listed);
  return count;
}
