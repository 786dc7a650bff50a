/* test_files.c - files and folders: atomic writes, limits, listing, removal, locks, checksums. */
#define _XOPEN_SOURCE 700 /* mkfifo, symlink, chown */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/files.h"
#include "io/temporary.h"
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

/* Every name that the system takes, also one that leaves no room for a mark after it; what is left of it is found again. */
static void the_longest_names_are_written(void **state) {
  (void)state;
  char name[256], left[256], path[HARK_PATH_BYTES];
  for (int length = 210; length < 256; length++) {
    memset(name, 'n', (size_t)length);
    name[length] = 0;
    assert_fine(context, hark_path_join(context, folder, name, path));
    assert_fine(context, hark_file_write(context, path, "new", 3));
    expect_contents(path, "new");
    (void)snprintf(left, sizeof left, ".%.215s.tmp-999999999-0", name);
    (void)test_file_write_text(folder, left, "abandoned");
    assert_fine(context, hark_path_clean(context, path));
    assert_int_equal(names_in(folder), 1);
    assert_fine(context, hark_file_remove(context, path));
  }
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

static mode_t mode_of(const char *path) {
  struct stat information;
  assert_int_equal(lstat(path, &information), 0);
  return information.st_mode;
}

static void a_link_stays_and_what_it_names_is_written(void **state) {
  (void)state;
  const char *const real = test_file_write_text(folder, "far/real", "old");
  assert_int_equal(symlink("far/second", test_path(folder, "first")), 0);
  assert_int_equal(symlink("real", test_path(folder, "far/second")), 0);
  assert_fine(context, hark_file_write(context, test_path(folder, "first"), "new", 3));
  expect_contents(real, "new");
  assert_true(S_ISREG(mode_of(real)));
  assert_true(S_ISLNK(mode_of(test_path(folder, "first"))) && S_ISLNK(mode_of(test_path(folder, "far/second"))));
  assert_int_equal(names_in(folder), 2);
  assert_int_equal(names_in(test_path(folder, "far")), 2);
  /* to what is not there yet */
  assert_int_equal(symlink("far/none", test_path(folder, "open")), 0);
  assert_fine(context, hark_file_write(context, test_path(folder, "open"), "made", 4));
  expect_contents(test_path(folder, "far/none"), "made");
  assert_true(S_ISLNK(mode_of(test_path(folder, "open"))));
  /* to itself */
  assert_int_equal(symlink("loop", test_path(folder, "loop")), 0);
  assert_failure(context, hark_file_write(context, test_path(folder, "loop"), "x", 1), HARK_IO_ERROR, "loop: cannot be followed");
  assert_true(S_ISLNK(mode_of(test_path(folder, "loop"))));
}

static void permissions_stay(void **state) {
  (void)state;
  static const mode_t modes[] = {0600, 0640, 0444, 0755, 0666, 0602};
  const char *const path = test_path(folder, "a");
  const mode_t before = umask(022);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    hark_writer writer = {0};
    (void)unlink(path);
    (void)test_file_write_text(folder, "a", "old");
    assert_int_equal(chmod(path, modes[i]), 0);
    assert_fine(context, hark_writer_open(context, &writer, path));
    assert_int_equal(mode_of(writer.temporary) & 0777 & ~modes[i], 0); /* not more, while it is written */
    assert_fine(context, hark_writer_append(context, &writer, "new", 3));
    assert_fine(context, hark_writer_commit(context, &writer, NULL));
    assert_int_equal(mode_of(path) & 07777, modes[i]);
  }
  (void)unlink(path);
  assert_fine(context, hark_file_write(context, path, "new", 3));
  assert_int_equal(mode_of(path) & 07777, 0644);
  umask(before);
}

static void owners_stay(void **state) {
  (void)state;
  struct stat information;
  const char *const path = test_file_write_text(folder, "a", "old");
  if (chown(path, 12345, 23456) != 0) skip(); /* not root */
  assert_fine(context, hark_file_write(context, path, "new", 3));
  assert_int_equal(stat(path, &information), 0);
  assert_int_equal(information.st_uid, 12345);
  assert_int_equal(information.st_gid, 23456);
}

static void pipes_devices_and_descriptors_are_written_straight(void **state) {
  (void)state;
  char got[16] = "", name[32];
  int ends[2];
  const char *const fifo = test_path(folder, "fifo");
  assert_int_equal(mkfifo(fifo, 0600), 0);
  const int reader = open(fifo, O_RDONLY | O_NONBLOCK);
  assert_true(reader >= 0);
  assert_fine(context, hark_file_write(context, fifo, "through", 7));
  assert_int_equal(read(reader, got, sizeof got), 7);
  assert_memory_equal(got, "through", 7);
  close(reader);
  assert_true(S_ISFIFO(mode_of(fifo)));
  assert_fine(context, hark_file_write(context, "/dev/null", "x", 1));
  assert_true(S_ISCHR(mode_of("/dev/null")));
  if (hark_path_kind_of("/dev/full") != HARK_PATH_NONE)
    assert_failure(context, hark_file_write(context, "/dev/full", "x", 1), HARK_IO_ERROR, "/dev/full: cannot be written");
  /* an open descriptor, also by a link; a file's place in it stays */
  assert_int_equal(pipe(ends), 0);
  (void)snprintf(name, sizeof name, "/dev/fd/%d", ends[1]);
  assert_int_equal(symlink(name, test_path(folder, "out")), 0);
  assert_fine(context, hark_file_write(context, name, "one", 3));
  assert_fine(context, hark_file_write(context, test_path(folder, "out"), "two", 3));
  assert_int_equal(read(ends[0], got, sizeof got), 6);
  assert_memory_equal(got, "onetwo", 6);
  (void)snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
  assert_failure(context, hark_file_write(context, name, "x", 1), HARK_IO_ERROR, "cannot be written");
  close(ends[0]);
  close(ends[1]);
  const int file = open(test_path(folder, "file"), O_RDWR | O_CREAT, 0666);
  assert_true(file >= 0);
  assert_int_equal(write(file, "begin ", 6), 6);
  (void)snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  assert_fine(context, hark_file_write(context, name, "end", 3));
  close(file);
  expect_contents(test_path(folder, "file"), "begin end");
  assert_failure(context, hark_file_write(context, folder, "x", 1), HARK_IO_ERROR, "is a folder, expected a file");
}

/* With closed standard streams a file would get their numbers, and what anybody prints would be written into it. */
static void files_are_no_standard_streams(void **state) {
  (void)state;
  const char *const path = test_path(folder, "a");
  const pid_t process = fork();
  if (process == 0) {
    hark_writer writer = {0};
    int lock, read_from;
    uint64_t size;
    for (int i = 0; i < 3; i++) close(i);
    const bool fine = hark_writer_open(context, &writer, path) == HARK_OK && writer.descriptor > 2 &&
                      hark_folder_lock(context, folder, &lock) == HARK_OK && lock > 2 &&
                      hark_writer_commit(context, &writer, NULL) == HARK_OK &&
                      hark_file_open(context, path, &read_from, &size) == HARK_OK && read_from > 2;
    _exit(fine ? 0 : 1);
  }
  int result;
  assert_int_equal(waitpid(process, &result, 0), process);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
}

/* ---- what processes leave that were killed or interrupted ---- */

/* Begins to write a file and to fill a folder in another process, which ends as `last` says. */
static void begin_in_another_process(void (*last)(void)) {
  const pid_t process = fork();
  if (process == 0) {
    static hark_temporaries notes;
    static hark_writer writer;
    static hark_temporary_folder made;
    char path[HARK_PATH_BYTES];
    context->temporaries = &notes;
    if (hark_writer_open(context, &writer, test_path(folder, "file")) != HARK_OK) _exit(1);
    if (hark_temporary_folder_make(context, test_path(folder, "task"), 0777, &made) != HARK_OK) _exit(1);
    if (hark_path_join(context, made.path, "training.txt", path) != HARK_OK || hark_file_write(context, path, "x", 1) != HARK_OK) _exit(1);
    last();
    _exit(0);
  }
  int result;
  assert_int_equal(waitpid(process, &result, 0), process);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
}

static void nothing(void) {}
static void remove_all(void) { hark_temporary_remove_all(context->temporaries); }

static void an_interrupted_process_leaves_nothing(void **state) {
  (void)state;
  begin_in_another_process(remove_all);
  assert_int_equal(names_in(folder), 0);
}

static void what_a_killed_process_left_is_removed(void **state) {
  (void)state;
  hark_temporary_folder ours;
  hark_writer writer = {0};
  begin_in_another_process(nothing);
  assert_int_equal(names_in(folder), 2);
  (void)test_file_write_text(folder, ".task.tmp-999999999/inside", "of a hark that had no locks");
  (void)test_file_write_text(folder, ".task-2.tmp-999999999-0", "another name's");
  assert_fine(context, hark_temporary_folder_make(context, test_path(folder, "task"), 0777, &ours));
  assert_fine(context, hark_writer_open(context, &writer, test_path(folder, "file")));
  assert_int_equal(names_in(folder), 6);
  assert_fine(context, hark_path_clean(context, test_path(folder, "task")));
  assert_int_equal(names_in(folder), 4); /* the file and its writer's, the other name's, and the folder that is in use */
  assert_int_equal(hark_path_kind_of(ours.path), HARK_PATH_FOLDER);
  assert_fine(context, hark_path_clean(context, test_path(folder, "file")));
  assert_int_equal(names_in(folder), 3);
  hark_writer_discard(&writer);
  assert_fine(context, hark_folder_clean(context, folder));
  assert_int_equal(names_in(folder), 1);
  assert_fine(context, hark_folder_remove(context, ours.path));
  hark_temporary_folder_end(&ours);
}

/* A process that does not run here may run on another machine that shares the disk: what it writes is locked. */
static void files_of_other_machines_are_kept_while_they_are_written(void **state) {
  (void)state;
  char elsewhere[HARK_PATH_BYTES];
  hark_writer writer = {0};
  assert_fine(context, hark_writer_open(context, &writer, test_path(folder, "file")));
  assert_fine(context, hark_path_join(context, folder, ".file.tmp-999999999-0", elsewhere));
  assert_int_equal(rename(writer.temporary, elsewhere), 0);
  assert_fine(context, hark_path_clean(context, test_path(folder, "file")));
  assert_fine(context, hark_folder_clean(context, folder));
  assert_int_equal(hark_path_kind_of(elsewhere), HARK_PATH_FILE);
  hark_writer_discard(&writer);
  assert_fine(context, hark_path_clean(context, test_path(folder, "file")));
  assert_int_equal(hark_path_kind_of(elsewhere), HARK_PATH_NONE);
}

static void what_cannot_be_is_reported(void **state) {
  (void)state;
  hark_text text = hark_text_empty(context);
  int descriptor;
  uint64_t size;
  hark_writer writer = {0};
  const char *const file = test_file_write_text(folder, "file", "12345");
  assert_failure(context, hark_file_read(context, test_path(folder, "none"), 10, &text), HARK_NOT_FOUND, "none: cannot be opened");
  assert_failure(context, hark_file_read(context, folder, 10, &text), HARK_BAD_FILE, "is a folder, expected a file");
  assert_failure(context, hark_file_read(context, file, 4, &text), HARK_BAD_FILE, "larger than 4 bytes");
  assert_int_equal(hark_file_read(context, file, 5, &text), HARK_OK);
  hark_text_free(&text);
  assert_failure(context, hark_file_open(context, folder, &descriptor, &size), HARK_BAD_FILE, "is a folder");
  assert_int_equal(descriptor, -1);
  assert_int_equal(mkfifo(test_path(folder, "pipe"), 0600), 0);
  assert_failure(context, hark_file_open(context, test_path(folder, "pipe"), &descriptor, &size), HARK_BAD_FILE, "not a regular file");
  assert_failure(context, hark_writer_open(context, &writer, test_path(folder, "none/a")), HARK_IO_ERROR, "none/a");
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
static void beginnings_are_compared_without_blanks(void **state) {
  (void)state;
  static const struct {
    const char *contents;
    bool begins;
  } cases[] = {{"", true},   {"{\n  \"a\": 1}", true}, {"{\"a\":1, \"b\"", true}, {"{\"a", true}, {"{\"b\":", false},
               {"x", false}, {"x{\"a\":", false},      {"{\"a\";", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char *const beginnings[] = {"{\"a\":", "{ \"a\" :\n"};
    for (size_t b = 0; b < sizeof beginnings / sizeof *beginnings; b++) {
      bool begins = !cases[i].begins;
      assert_fine(context, hark_file_begins_with(context, test_file_write_text(folder, "file", cases[i].contents), beginnings[b], &begins));
      assert_int_equal(begins, cases[i].begins);
    }
  }
  bool begins;
  assert_failure(context, hark_file_begins_with(context, test_path(folder, "none"), "{", &begins), HARK_NOT_FOUND, "none");
}

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
  hark_file_summary reported, found;
  const char *const path = test_path(folder, "a");
  assert_fine(context, hark_writer_open(context, &writer, path));
  for (int i = 0; i < 100; i++) assert_fine(context, hark_writer_append(context, &writer, "some bytes", 10));
  assert_fine(context, hark_writer_commit(context, &writer, &reported));
  assert_fine(context, hark_file_summarise(context, path, &found));
  assert_string_equal(reported.sha256, found.sha256);
  assert_int_equal(reported.bytes, 1000);
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
  assert_failure(context, hark_folder_remove(context, test_path(folder, "kept")), HARK_IO_ERROR, "not a folder");
  assert_failure(context, hark_folder_remove(context, test_path(folder, "a/link")), HARK_IO_ERROR, "not a folder");
  assert_fine(context, hark_path_remove(context, test_path(folder, "a/link")));
  assert_fine(context, hark_path_remove(context, test_path(folder, "a/link")));
  assert_fine(context, hark_folder_remove(context, test_path(folder, "a")));
  assert_int_equal(hark_path_kind_of(test_path(folder, "a")), HARK_PATH_NONE);
  assert_int_equal(hark_path_kind_of("/tmp"), HARK_PATH_FOLDER);
  expect_contents(test_path(folder, "kept"), "x");
  assert_fine(context, hark_folder_make(context, test_path(folder, "1/2/3/4/5/6/7/8/9")));
  assert_failure(context, hark_folder_remove(context, test_path(folder, "1")), HARK_IO_ERROR, "deeper than");
  assert_failure(context, hark_path_remove(context, test_path(folder, "1")), HARK_IO_ERROR, "deeper than");
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
  assert_int_equal(hark_path_join(context, "a", longest, path), HARK_NOT_FOUND);
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
      TEST(the_longest_names_are_written),
      TEST(a_discarded_write_leaves_the_old_file),
      TEST(a_full_disk_keeps_the_old_file),
      TEST(a_link_stays_and_what_it_names_is_written),
      TEST(permissions_stay),
      TEST(owners_stay),
      TEST(pipes_devices_and_descriptors_are_written_straight),
      TEST(files_are_no_standard_streams),
      TEST(an_interrupted_process_leaves_nothing),
      TEST(what_a_killed_process_left_is_removed),
      TEST(files_of_other_machines_are_kept_while_they_are_written),
      TEST(what_cannot_be_is_reported),
      TEST(parts_are_read_at_offsets),
      TEST(beginnings_are_compared_without_blanks),
      TEST(checksums_are_sha256),
      TEST(a_writer_knows_what_it_wrote),
      TEST(folders_are_made_listed_and_removed),
      TEST(paths_are_joined_and_names_checked),
      TEST(a_lock_keeps_others_out_until_its_process_ends),
      TEST(renames_and_space),
  };
  return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
