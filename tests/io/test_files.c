/* test_files.c - files and folders: atomic writes, limits, listing, removal, locks, checksums. */
#define _XOPEN_SOURCE 700 /* mkfifo, symlink */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

static hark_context *context;
static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  test_setup_close(context);
  return 0;
}

static void expect_contents(const char *path, const char *contents) {
  hark_text text = hark_text_empty(context);
  assert_fine(context, hark_file_read(context, path, 1000, &text));
  assert_string_equal(hark_text_get(&text), contents);
  hark_text_free(&text);
}

static int64_t names_in(const char *path) {
  hark_names names;
  assert_fine(context, hark_folder_list(context, path, &names));
  const int64_t count = names.count;
  hark_names_free(context, &names);
  return count;
}

static void writes_replace_whole_files(void **state) {
  (void)state;
  const char *const path = test_path(folder, "a");
  assert_fine(context, hark_file_write(context, path, "one", 3));
  expect_contents(path, "one");
  assert_fine(context, hark_file_write(context, path, "", 0));
  expect_contents(path, "");
  assert_int_equal(names_in(folder), 1);
}

static void a_discarded_write_leaves_the_old_file(void **state) {
  (void)state;
  hark_writer writer = {0};
  const char *const path = test_file_write_text(folder, "a", "old");
  assert_fine(context, hark_writer_open(context, &writer, path));
  assert_fine(context, hark_writer_append(context, &writer, "new", 3));
  assert_int_equal(names_in(folder), 2);
  expect_contents(path, "old");
  hark_writer_discard(&writer);
  hark_writer_discard(&writer);
  expect_contents(path, "old");
  assert_int_equal(names_in(folder), 1);
  assert_int_equal(hark_writer_append(context, &writer, "x", 1), HARK_INTERNAL_ERROR);
  assert_int_equal(hark_writer_commit(context, &writer, NULL), HARK_INTERNAL_ERROR);
}

/* A file system that takes no more: the write says so, the old file stays, the temporary one goes. */
static void a_full_disk_keeps_the_old_file(void **state) {
  (void)state;
  static char data[1 << 16];
  const char *const path = test_file_write_text(folder, "a", "old");
  const pid_t process = fork();
  if (process == 0) {
    const struct rlimit limit = {4096, 4096};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    _exit(hark_file_write(context, path, data, sizeof data) == HARK_IO_ERROR && strstr(hark_context_message(context), path) != NULL ? 0
                                                                                                                                    : 1);
  }
  int result;
  assert_int_equal(waitpid(process, &result, 0), process);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
  expect_contents(path, "old");
  assert_int_equal(names_in(folder), 1);
}

static void what_cannot_be_is_told(void **state) {
  (void)state;
  hark_text text = hark_text_empty(context);
  int descriptor;
  uint64_t size;
  hark_writer writer = {0};
  const char *const file = test_file_write_text(folder, "file", "12345");
  assert_failure(context, hark_file_read(context, test_path(folder, "none"), 10, &text), HARK_NOT_FOUND, "none: cannot be opened");
  assert_failure(context, hark_file_read(context, folder, 10, &text), HARK_IO_ERROR, folder);
  assert_failure(context, hark_file_read(context, file, 4, &text), HARK_BAD_FILE, "larger than 4 bytes");
  assert_int_equal(hark_file_read(context, file, 5, &text), HARK_OK);
  hark_text_free(&text);
  assert_failure(context, hark_file_open(context, folder, &descriptor, &size), HARK_IO_ERROR, "is a folder");
  assert_int_equal(descriptor, -1);
  assert_int_equal(mkfifo(test_path(folder, "pipe"), 0600), 0);
  assert_failure(context, hark_file_open(context, test_path(folder, "pipe"), &descriptor, &size), HARK_IO_ERROR, "no regular file");
  assert_failure(context, hark_writer_open(context, &writer, test_path(folder, "none/a")), HARK_NOT_FOUND, "none/a");
  assert_failure(context, hark_writer_open(context, &writer, "/tmp/"), HARK_INVALID_ARGUMENT, "no file name");
  assert_failure(context, hark_folder_make(context, test_path(folder, "file/b")), HARK_IO_ERROR, "file: cannot be made a folder");
  assert_failure(context, hark_folder_make(context, file), HARK_IO_ERROR, "file");
  assert_failure(context, hark_file_truncate(context, file, 6), HARK_BAD_FILE, "has 5 bytes");
}

static void parts_are_read_at_offsets(void **state) {
  (void)state;
  int descriptor;
  uint64_t size;
  char data[8] = "";
  const char *const path = test_file_write_text(folder, "file", "0123456789");
  assert_fine(context, hark_file_open(context, path, &descriptor, &size));
  assert_int_equal(size, 10);
  assert_fine(context, hark_file_read_at(context, descriptor, path, data, 4, 3));
  assert_memory_equal(data, "3456", 4);
  assert_failure(context, hark_file_read_at(context, descriptor, path, data, 4, 7), HARK_BAD_FILE, "ends at byte 10, 1 more");
  assert_failure(context, hark_file_read_at(context, descriptor, path, data, 1, UINT64_MAX - 1), HARK_TOO_LARGE, "offset");
  assert_fine(context, hark_file_truncate(context, path, 5));
  assert_failure(context, hark_file_read_at(context, descriptor, path, data, 4, 3), HARK_BAD_FILE, "ends at byte 5");
  hark_file_close(&descriptor);
  assert_int_equal(descriptor, -1);
}

/* Values from FIPS 180-4's examples and from sha256sum(1). */
static void checksums_are_sha256(void **state) {
  (void)state;
  static const struct {
    const char *text, *sum;
  } cases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
  hark_file_summary summary;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_fine(context, hark_file_summarise(context, test_file_write_text(folder, "s", cases[i].text), &summary));
    assert_string_equal(summary.sha256, cases[i].sum);
    assert_int_equal(summary.bytes, strlen(cases[i].text));
  }
  /* one million times 'a', given in pieces of all lengths */
  char piece[1000];
  memset(piece, 'a', sizeof piece);
  hark_sha256 hash;
  char text[HARK_SHA256_TEXT_BYTES];
  hark_sha256_begin(&hash);
  size_t left = 1000000;
  for (size_t bytes = 1; left > 0; bytes = bytes % 999 + 1) {
    const size_t part = bytes < left ? bytes : left;
    hark_sha256_add(&hash, piece, part);
    left -= part;
  }
  hark_sha256_end(&hash, text);
  assert_string_equal(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void a_writer_knows_what_it_wrote(void **state) {
  (void)state;
  hark_writer writer = {0};
  hark_file_summary told, found;
  const char *const path = test_path(folder, "a");
  assert_fine(context, hark_writer_open(context, &writer, path));
  for (int i = 0; i < 100; i++) assert_fine(context, hark_writer_append(context, &writer, "some bytes", 10));
  assert_fine(context, hark_writer_commit(context, &writer, &told));
  assert_fine(context, hark_file_summarise(context, path, &found));
  assert_string_equal(told.sha256, found.sha256);
  assert_int_equal(told.bytes, 1000);
  assert_int_equal(found.bytes, 1000);
}

static void folders_are_made_listed_and_removed(void **state) {
  (void)state;
  const char *const deep = test_path(folder, "a/b/c/");
  hark_names names;
  assert_fine(context, hark_folder_make(context, deep));
  assert_fine(context, hark_folder_make(context, deep));
  test_file_write_text(folder, "a/z", "");
  test_file_write_text(folder, "a/B", "");
  test_file_write_text(folder, "a/b/c/d", "x");
  assert_int_equal(symlink("/tmp", test_path(folder, "a/link")), 0);
  test_file_write_text(folder, "kept", "x");
  assert_int_equal(symlink(test_path(folder, "kept"), test_path(folder, "a/other")), 0);
  assert_fine(context, hark_folder_list(context, test_path(folder, "a"), &names));
  static const char *const sorted[] = {"B", "b", "link", "other", "z"};
  assert_int_equal(names.count, 5);
  for (int i = 0; i < 5; i++) assert_string_equal(names.items[i], sorted[i]);
  hark_names_free(context, &names);
  assert_failure(context, hark_folder_remove(context, test_path(folder, "kept")), HARK_IO_ERROR, "no folder");
  assert_failure(context, hark_folder_remove(context, test_path(folder, "a/link")), HARK_IO_ERROR, "no folder");
  assert_fine(context, hark_folder_remove(context, test_path(folder, "a")));
  assert_int_equal(hark_path_kind_of(test_path(folder, "a")), HARK_PATH_NONE);
  assert_int_equal(hark_path_kind_of("/tmp"), HARK_PATH_FOLDER);
  expect_contents(test_path(folder, "kept"), "x");
  assert_fine(context, hark_folder_make(context, test_path(folder, "1/2/3/4/5/6/7/8/9")));
  assert_failure(context, hark_folder_remove(context, test_path(folder, "1")), HARK_IO_ERROR, "deeper than");
  assert_failure(context, hark_folder_remove(context, test_path(folder, "none")), HARK_NOT_FOUND, "none");
}

static void paths_are_joined_and_names_checked(void **state) {
  (void)state;
  char path[HARK_PATH_BYTES], longest[HARK_PATH_BYTES];
  static const char *const plain[] = {"a", "step-10", ".hidden", "a b", "\xc3\xa9", "..."};
  static const char *const odd[] = {"", ".", "..", "a/b", "/", "a\nb", "\x7f", "../x"};
  assert_fine(context, hark_path_join(context, "a", "b", path));
  assert_string_equal(path, "a/b");
  assert_fine(context, hark_path_join(context, "a/", "b", path));
  assert_string_equal(path, "a/b");
  assert_fine(context, hark_path_join(context, "", "b", path));
  assert_string_equal(path, "b");
  assert_fine(context, hark_path_join(context, "a", "/b", path));
  assert_string_equal(path, "/b");
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  assert_int_equal(hark_path_join(context, "a", longest, path), HARK_TOO_LARGE);
  for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) assert_true(hark_name_is_plain(plain[i]));
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) assert_false(hark_name_is_plain(odd[i]));
  assert_false(hark_name_is_plain(longest));
}

static void a_lock_keeps_others_out_until_its_process_ends(void **state) {
  (void)state;
  int mine, other, ready[2], result;
  assert_fine(context, hark_folder_lock(context, folder, &mine));
  assert_failure(context, hark_folder_lock(context, folder, &other), HARK_BUSY, "in use by process");
  assert_int_equal(other, -1);
  hark_folder_unlock(&mine);
  assert_int_equal(pipe(ready), 0);
  const pid_t process = fork();
  if (process == 0) {
    const hark_status status = hark_folder_lock(context, folder, &mine);
    if (write(ready[1], status == HARK_OK ? "y" : "n", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char answer;
  assert_int_equal(read(ready[0], &answer, 1), 1);
  assert_int_equal(answer, 'y');
  char expected[64];
  snprintf(expected, sizeof expected, "in use by process %ld", (long)process);
  assert_failure(context, hark_folder_lock(context, folder, &other), HARK_BUSY, expected);
  kill(process, SIGKILL);
  assert_int_equal(waitpid(process, &result, 0), process);
  assert_fine(context, hark_folder_lock(context, folder, &mine)); /* the killed process's lock went with it */
  hark_folder_unlock(&mine);
  close(ready[0]);
  close(ready[1]);
}

static void renames_and_space(void **state) {
  (void)state;
  uint64_t bytes = 0;
  test_file_write_text(folder, "from/x", "x");
  assert_fine(context, hark_path_rename(context, test_path(folder, "from"), test_path(folder, "to")));
  expect_contents(test_path(folder, "to/x"), "x");
  assert_failure(context, hark_path_rename(context, test_path(folder, "from"), test_path(folder, "to")), HARK_NOT_FOUND, "from");
  assert_fine(context, hark_disk_free(context, folder, &bytes));
  assert_true(bytes > 0);
  assert_fine(context, hark_file_remove(context, test_path(folder, "to/x")));
  assert_fine(context, hark_file_remove(context, test_path(folder, "to/x")));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(writes_replace_whole_files),
      TEST(a_discarded_write_leaves_the_old_file),
      TEST(a_full_disk_keeps_the_old_file),
      TEST(what_cannot_be_is_told),
      TEST(parts_are_read_at_offsets),
      TEST(checksums_are_sha256),
      TEST(a_writer_knows_what_it_wrote),
      TEST(folders_are_made_listed_and_removed),
      TEST(paths_are_joined_and_names_checked),
      TEST(a_lock_keeps_others_out_until_its_process_ends),
      TEST(renames_and_space),
  };
  return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
