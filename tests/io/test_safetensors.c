/* test_safetensors.c - the strict reader and the deterministic writer: what is accepted, and every kind of file that is refused, with its
 * reason and before memory for tensors is asked for. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/half.h"
#include "io/safetensors.h"
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
  hark_context_destroy(&context);
  test_folder_remove(folder);
  return 0;
}

/* A file of this header and so many bytes of data (0, 1, 2, ..); for free(). */
static unsigned char *make_file(const char *header, size_t data_bytes, size_t *bytes) {
  const size_t length = strlen(header);
  *bytes = 8 + length + data_bytes;
  unsigned char *const file = malloc(*bytes + 1);
  for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(file + 8, header, length);
  for (size_t i = 0; i < data_bytes; i++) file[8 + length + i] = (unsigned char)i;
  return file;
}

static void refuse(const char *header, size_t data_bytes, const char *message) {
  size_t bytes;
  hark_safetensors *file;
  unsigned char *const data = make_file(header, data_bytes, &bytes);
  const hark_status status = hark_safetensors_open_memory(context, "f", data, bytes, &file);
  if (status != HARK_BAD_FILE || strstr(hark_context_message(context), message) == NULL) {
    fail_msg("%s\ngives %s \"%s\", expected \"%s\"", header, hark_status_name(status), hark_context_message(context), message);
  }
  assert_null(file);
  assert_null(strchr(hark_context_message(context), '\n'));
  free(data);
}

#define F32(name, shape, from, to) "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void the_rules_are_kept(void **state) {
  (void)state;
  /* the header's text */
  refuse("", 0, "header of 0 bytes");
  refuse("{", 0, "header of 1 bytes");
  refuse(" {}", 0, "does not begin with '{'");
  refuse("\n{}", 0, "does not begin with '{'");
  refuse("\xef\xbb\xbf{}", 0, "does not begin with '{'");
  refuse("[]", 0, "does not begin with '{'");
  refuse("{}\n", 0, "does not end with '}'");
  refuse("{} x", 0, "does not end with '}'");
  refuse("{} {}", 0, "header: ");
  refuse("{\"a\"}", 0, "header: ");
  refuse("{,}", 0, "header: ");
  refuse("{}}", 0, "header: ");
  refuse("{\"a\xff\":{}}", 0, "header: ");
  refuse("{\"a\xc0\xaf\":{}}", 0, "header: ");
  refuse("{\"\\ud800\":{}}", 0, "header: ");
  refuse("{\"a\\u0000b\":{}}", 0, "header: ");
  refuse("{\"a\nb\":{}}", 0, "header: ");
  refuse("{\"a\":null}", 0, "only objects, lists, texts and whole numbers");
  refuse("{\"a\":-1}", 0, "only objects, lists, texts and whole numbers");
  refuse("{\"a\":1.5}", 0, "only objects, lists, texts and whole numbers");
  refuse("{\"a\":1e3}", 0, "only objects, lists, texts and whole numbers");
  refuse("{\"a\":{\"shape\":[[1]]}}", 0, "nested deeper than 3");
  refuse("{/**/}", 0, "only objects, lists, texts and whole numbers");
  /* names */
  refuse("{" F32("a", "[1]", 0, 4) "," F32("a", "[1]", 4, 8) "}", 8, "duplicate");
  refuse("{" F32("a", "[1]", 0, 4) "," F32("\\u0061", "[1]", 4, 8) "}", 8, "duplicate");
  refuse("{" F32("", "[1]", 0, 4) "}", 4, "empty name");
  refuse("{" F32("a\\n\\u001b[31m", "[2]", 0, 4) "}", 4, "tensor \"a??[31m\"");
  /* fields */
  refuse("{\"a\":1}", 0, "\"a\": no object");
  refuse("{\"a\":[]}", 0, "\"a\": no object");
  refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is missing");
  refuse("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is missing or not a text");
  refuse("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype \"F33\"");
  refuse("{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype \"f32\"");
  refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape is missing");
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "shape is missing or not a list");
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 4, "extent 0 is not a whole number");
  refuse("{" F32("a", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "rank 9, at most 8");
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets is missing");
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets is missing or not a pair");
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets is missing or not a pair");
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}", 4, "data_offsets is missing or not a pair");
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "unknown field \"x\"");
  refuse("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "duplicate");
  /* sizes and offsets */
  refuse("{" F32("a", "[2]", 0, 4) "}", 4, "hold 4 bytes, shape and dtype need 8");
  refuse("{" F32("a", "[1]", 0, 8) "}", 8, "hold 8 bytes, shape and dtype need 4");
  refuse("{" F32("a", "[1]", 4, 0) "}", 4, "data_offsets [4, 0]");
  refuse("{" F32("a", "[1]", 0, 4) "}", 3, "in data of 3 bytes");
  refuse("{" F32("a", "[1]", 4, 8) "}", 8, "4 bytes before it belong to no tensor");
  refuse("{" F32("a", "[1]", 0, 4) "}", 5, "the last 1 bytes belong to no tensor");
  refuse("{}", 1, "the last 1 bytes belong to no tensor");
  refuse("{" F32("a", "[2]", 0, 8) "," F32("b", "[1]", 4, 8) "}", 8, "overlaps");
  refuse("{" F32("a", "[1]", 0, 4) "," F32("b", "[1]", 0, 4) "}", 4, "overlaps");
  refuse("{" F32("a", "[2]", 0, 8) "," F32("b", "[0]", 4, 4) "}", 8, "overlaps");
  refuse("{" F32("a", "[1]", 0, 4) "," F32("b", "[1]", 8, 12) "}", 12, "4 bytes before it");
  refuse("{" F32("a", "[4611686018427387904]", 0, 0) "}", 0, "overflows");
  refuse("{" F32("a", "[4294967296,4294967296]", 0, 0) "}", 0, "overflows");
  refuse("{" F32("a", "[4294967296,4294967296,0]", 0, 0) "}", 0, "overflows");
  refuse("{" F32("a", "[0,4294967296,4294967296]", 0, 0) "}", 0, "overflows");
  refuse("{" F32("a", "[9223372036854775808]", 0, 0) "}", 0, "too big integer");
  refuse("{" F32("a", "[1]", 9223372036854775804, 9223372036854775807) "}", 4, "in data of 4 bytes");
  refuse("{" F32("a", "[1]", 0, 18446744073709551620) "}", 4, "too big integer");
  refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "not whole bytes");
  /* metadata */
  refuse("{\"__metadata__\":1}", 0, "__metadata__: no object");
  refuse("{\"__metadata__\":{\"a\":1}}", 0, "\"a\" is not a text");
  refuse("{" F32("__metadata__", "[1]", 0, 4) "}", 4, "is not a text");
  refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate");
  refuse("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "duplicate");
}

/* Long lists in a header must not become memory: a header of 4 MB is refused before the parser builds anything. */
static void large_headers_are_refused_before_they_are_built(void **state) {
  (void)state;
  static const char before[] = "{\"a\":{\"shape\":[0", after[] = "]}}";
  const size_t pairs = 2000000, length = sizeof before - 1 + 2 * pairs + sizeof after - 1;
  char *const header = malloc(length + 1);
  char *at = header;
  memcpy(at, before, sizeof before - 1);
  at += sizeof before - 1;
  for (size_t i = 0; i < pairs; i++) {
    *at++ = ',';
    *at++ = '0';
  }
  memcpy(at, after, sizeof after);
  refuse(header, 0, "more than 1600000 items");
  memset(header, '[', length);
  memcpy(header, "{\"a\":", 5);
  header[length - 1] = '}';
  refuse(header, 0, "nested deeper");
  const size_t live = hark_context_memory(context).live_bytes;
  assert_true(hark_context_memory(context).peak_bytes < live + length + 4096);
  free(header);
  /* a length that lies: nothing of that size is asked for */
  unsigned char lie[16] = {0, 0, 0, 5, 0, 0, 0, 0, '{', '}'};
  hark_safetensors *file;
  assert_failure(context, hark_safetensors_open_memory(context, "f", lie, sizeof lie, &file), HARK_BAD_FILE,
                 "header of 83886080 bytes in a file of 16");
  lie[7] = 0x80;
  assert_failure(context, hark_safetensors_open_memory(context, "f", lie, sizeof lie, &file), HARK_BAD_FILE, "at most 100000000 expected");
  assert_true(hark_context_memory(context).peak_bytes < live + length + 4096);
}

/* A header of `count` pieces, made by printf of the piece's number, between two texts. */
static void refuse_many(const char *before, const char *format, int count, const char *after, const char *message) {
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "%s", before);
  for (int i = 0; i < count; i++) {
    char number[16];
    snprintf(number, sizeof number, "%d", i);
    const char *const place = strchr(format, '#');
    hark_text_append(&text, "%s%.*s%s%s", i > 0 ? "," : "", (int)(place - format), format, number, place + 1);
  }
  hark_text_append(&text, "%s", after);
  assert_fine(context, text.status);
  if (message != NULL) {
    refuse(hark_text_get(&text), 0, message);
  } else {
    size_t bytes;
    hark_safetensors *file;
    unsigned char *const data = make_file(hark_text_get(&text), 0, &bytes);
    assert_fine(context, hark_safetensors_open_memory(context, "f", data, bytes, &file));
    assert_int_equal(hark_safetensors_count(file) + hark_safetensors_metadata_count(file), count);
    hark_safetensors_close(context, &file);
    free(data);
  }
  hark_text_free(&text);
}

static void counts_have_limits(void **state) {
  (void)state;
  static const char tensor[] = "\"#\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  refuse_many("{", tensor, HARK_SAFETENSORS_TENSORS, "}", NULL);
  refuse_many("{", tensor, HARK_SAFETENSORS_TENSORS + 1, "}", "more than 100000 tensors");
  refuse_many("{\"__metadata__\":{", "\"#\":\"\"", HARK_SAFETENSORS_TENSORS, "}}", NULL);
  refuse_many("{\"__metadata__\":{", "\"#\":\"\"", HARK_SAFETENSORS_TENSORS + 1, "}}", "more than 100000 entries");
  char name[HARK_SAFETENSORS_NAME_BYTES + 2], entry[HARK_SAFETENSORS_NAME_BYTES + 128];
  for (size_t length = HARK_SAFETENSORS_NAME_BYTES; length <= HARK_SAFETENSORS_NAME_BYTES + 1; length++) {
    memset(name, 'n', length);
    name[length - 1] = '#';
    name[length] = 0;
    snprintf(entry, sizeof entry, "\"%s\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", name);
    refuse_many("{", entry, 1, "}", length <= HARK_SAFETENSORS_NAME_BYTES ? NULL : "a tensor's name of 4097 bytes");
  }
}

static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"\":\"empty key\"},\"odd \\u00e9\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
    "\"x\":{\"data_offsets\":[3,27],\"dtype\":\"F32\",\"shape\":[2,3]},\"none\":{\"dtype\":\"I64\",\"shape\":[4,0],\"data_offsets\":[27,27]"
    "},"
    "\"one\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[27,35]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[35,36]}}  "
    " ";

static void a_good_file_is_read(void **state) {
  (void)state;
  size_t bytes;
  hark_safetensors *file;
  unsigned char *const data = make_file(good_header, 36, &bytes);
  const char *const path = test_file_write(folder, "g.safetensors", data, bytes);
  for (int from_memory = 0; from_memory < 2; from_memory++) {
    if (from_memory) {
      assert_fine(context, hark_safetensors_open_memory(context, "f", data, bytes, &file));
    } else {
      assert_fine(context, hark_safetensors_open(context, path, &file));
    }
    assert_int_equal(hark_safetensors_count(file), 5);
    assert_string_equal(hark_safetensors_tensor(file, 0)->name, "odd \xc3\xa9");
    assert_string_equal(hark_safetensors_tensor(file, 4)->name, "b");
    assert_string_equal(hark_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(hark_safetensors_metadata(file, ""), "empty key");
    assert_null(hark_safetensors_metadata(file, "none"));
    assert_null(hark_safetensors_find(file, "y"));
    const hark_stored_tensor *const x = hark_safetensors_find(file, "x");
    assert_int_equal(x->type, HARK_F32);
    assert_int_equal(x->rank, 2);
    assert_int_equal(x->shape[1], 3);
    assert_int_equal(x->bytes, 24);
    hark_tensor tensor;
    float numbers[6];
    assert_fine(context, hark_safetensors_load(context, file, "x", &tensor)); /* at offset 3: unaligned in the file */
    assert_fine(context, hark_tensor_read(context, &tensor, numbers));
    assert_memory_equal(numbers, data + bytes - 36 + 3, sizeof numbers);
    memset(numbers, 0, sizeof numbers);
    assert_fine(context, hark_tensor_write(context, &tensor, numbers));
    assert_fine(context, hark_safetensors_load_into(context, file, "x", &tensor));
    assert_fine(context, hark_tensor_read(context, &tensor, numbers));
    assert_memory_equal(numbers, data + bytes - 36 + 3, sizeof numbers);
    assert_failure(context, hark_safetensors_load_into(context, file, "one", &tensor), HARK_BAD_FILE,
                   "\"one\" is F64 [], expected F32 [2, 3]");
    hark_tensor_destroy(context, &tensor);
    assert_fine(context, hark_safetensors_load(context, file, "none", &tensor));
    assert_int_equal(hark_tensor_count(&tensor), 0);
    hark_tensor_destroy(context, &tensor);
    assert_failure(context, hark_safetensors_load(context, file, "y", &tensor), HARK_NOT_FOUND, "there is no tensor \"y\"");
    assert_failure(context, hark_safetensors_load(context, file, "b", &tensor), HARK_UNSUPPORTED, "BOOL");
    hark_safetensors_close(context, &file);
    assert_null(file);
  }
  free(data);
}

static void every_truncation_is_refused(void **state) {
  (void)state;
  size_t bytes;
  hark_safetensors *file;
  unsigned char *const data = make_file(good_header, 36, &bytes);
  const size_t live = hark_context_memory(context).live_bytes;
  for (size_t length = 0; length < bytes; length++) {
    unsigned char *const part = malloc(length + 1); /* a copy, so that a read past its end is seen by the sanitizer */
    memcpy(part, data, length);
    assert_failure(context, hark_safetensors_open_memory(context, "f", part, length, &file), HARK_BAD_FILE, "f: ");
    const char *const path = test_file_write(folder, "t.safetensors", data, length);
    assert_failure(context, hark_safetensors_open(context, path, &file), HARK_BAD_FILE, "t.safetensors: ");
    free(part);
  }
  assert_int_equal(hark_context_memory(context).live_bytes, live);
  free(data);
}

/* Every byte of the header set to every value: a status, and what is accepted can be read. */
static void changed_bytes_do_no_harm(void **state) {
  (void)state;
  size_t bytes;
  unsigned char *const data = make_file(good_header, 36, &bytes);
  int accepted = 0, refused = 0;
  for (size_t at = 0; at < bytes - 36; at++) {
    const unsigned char kept = data[at];
    for (int value = 0; value < 256; value++) {
      hark_safetensors *file;
      data[at] = (unsigned char)value;
      const hark_status status = hark_safetensors_open_memory(context, "f", data, bytes, &file);
      if (status != HARK_OK) {
        if (status != HARK_BAD_FILE) fail_msg("byte %zu as %d: %s", at, value, hark_status_name(status));
        refused++;
        continue;
      }
      accepted++;
      for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
        char copy[36];
        const hark_stored_tensor *const t = hark_safetensors_tensor(file, i);
        assert_true(t->bytes <= sizeof copy);
        assert_fine(context, hark_safetensors_read(context, file, t, copy));
      }
      hark_safetensors_close(context, &file);
    }
    data[at] = kept;
  }
  assert_true(accepted > 1000 && refused > 10000);
  free(data);
}

/* Another process cuts the file between opening and reading. */
static void a_file_that_shrinks_is_reported(void **state) {
  (void)state;
  size_t bytes;
  hark_safetensors *file;
  hark_tensor tensor;
  unsigned char *const data = make_file(good_header, 36, &bytes);
  const char *const path = test_file_write(folder, "s.safetensors", data, bytes);
  assert_fine(context, hark_safetensors_open(context, path, &file));
  assert_int_equal(truncate(path, (off_t)bytes - 20), 0);
  assert_failure(context, hark_safetensors_load(context, file, "x", &tensor), HARK_BAD_FILE, "s.safetensors: ends at byte");
  hark_safetensors_close(context, &file);
  free(data);
}

static hark_tensor make_tensor(hark_type type, int rank, const int64_t *shape, const void *data) {
  hark_tensor tensor;
  assert_fine(context, hark_tensor_create(context, type, rank, shape, &tensor));
  assert_fine(context, hark_tensor_write(context, &tensor, data));
  return tensor;
}

static void what_is_written_is_read_and_always_the_same(void **state) {
  (void)state;
  const float f[] = {1, 2, 3};
  const double d[] = {4};
  const uint8_t u[] = {5, 6, 7};
  const int64_t i[] = {8, 9}, three = 3, two = 2;
  hark_tensor tf = make_tensor(HARK_F32, 1, &three, f), td = make_tensor(HARK_F64, 0, NULL, d), tu = make_tensor(HARK_U8, 1, &three, u),
              ti = make_tensor(HARK_I64, 1, &two, i);
  const hark_named_tensor tensors[] = {{.name = "f", .tensor = &tf},
                                       {.name = "u", .tensor = &tu},
                                       {.name = "z \"\xc3\xa9\\", .tensor = &td},
                                       {.name = "i", .tensor = &ti}},
                          turned[] = {tensors[3], tensors[2], tensors[1], tensors[0]};
  const hark_metadata_entry metadata[] = {{"b", "2\n"}, {"a", "1"}}, metadata_turned[] = {metadata[1], metadata[0]};
  hark_file_summary one, two_summary, found;
  const char *const path = test_path(folder, "a.safetensors");
  assert_fine(context, hark_safetensors_write(context, path, tensors, 4, metadata, 2, &one));
  assert_fine(context, hark_safetensors_write(context, path, turned, 4, metadata_turned, 2, &two_summary));
  assert_fine(context, hark_file_summarise(context, path, &found));
  assert_string_equal(one.sha256, two_summary.sha256);
  assert_string_equal(one.sha256, found.sha256);
  assert_int_equal(one.bytes, found.bytes);
  hark_safetensors *file;
  assert_fine(context, hark_safetensors_open(context, path, &file));
  static const char *const order[] = {"i", "z \"\xc3\xa9\\", "f", "u"};
  assert_int_equal(hark_safetensors_count(file), 4);
  for (int64_t t = 0; t < 4; t++) {
    const hark_stored_tensor *const stored = hark_safetensors_tensor(file, t);
    assert_string_equal(stored->name, order[t]);
    assert_int_equal(stored->offset % (uint64_t)hark_type_bytes(stored->type), 0);
  }
  assert_string_equal(hark_safetensors_metadata(file, "b"), "2\n");
  float back[3];
  assert_fine(context, hark_safetensors_read(context, file, hark_safetensors_find(file, "f"), back));
  assert_memory_equal(back, f, sizeof f);
  double one_back;
  assert_fine(context, hark_safetensors_read(context, file, hark_safetensors_find(file, order[1]), &one_back));
  assert_true(one_back == 4);
  hark_safetensors_close(context, &file);
  assert_fine(context, hark_safetensors_write(context, path, NULL, 0, NULL, 0, NULL));
  assert_fine(context, hark_safetensors_open(context, path, &file));
  assert_int_equal(hark_safetensors_count(file), 0);
  hark_safetensors_close(context, &file);
  hark_tensor_destroy(context, &tf);
  hark_tensor_destroy(context, &td);
  hark_tensor_destroy(context, &tu);
  hark_tensor_destroy(context, &ti);
}

/* More than one part of the staged copy, in both directions. */
static void large_tensors_go_through_in_parts(void **state) {
  (void)state;
  const int64_t count = 3000001; /* 12 MB of f32: two whole parts of 4 MiB and a rest */
  float *const numbers = malloc((size_t)count * sizeof(float));
  for (int64_t n = 0; n < count; n++) numbers[n] = (float)n;
  hark_tensor tensor = make_tensor(HARK_F32, 1, &count, numbers), back;
  const hark_named_tensor named = {.name = "big", .tensor = &tensor};
  hark_safetensors *file;
  const char *const path = test_path(folder, "b.safetensors");
  assert_fine(context, hark_safetensors_write(context, path, &named, 1, NULL, 0, NULL));
  assert_fine(context, hark_safetensors_open(context, path, &file));
  assert_fine(context, hark_safetensors_load(context, file, "big", &back));
  memset(numbers, 0, (size_t)count * sizeof(float));
  assert_fine(context, hark_tensor_read(context, &back, numbers));
  for (int64_t n = 0; n < count; n++) {
    if (numbers[n] != (float)n) fail_msg("number %" PRId64 " came back as %g", n, (double)numbers[n]);
  }
  hark_safetensors_close(context, &file);
  hark_tensor_destroy(context, &tensor);
  hark_tensor_destroy(context, &back);
  free(numbers);
}

static void what_no_file_can_hold_is_not_written(void **state) {
  (void)state;
  const float f[] = {1, 2, 3, 4};
  const int64_t shape[] = {2, 2};
  hark_tensor tensor = make_tensor(HARK_F32, 2, shape, f), turned = tensor, none = {0};
  turned.stride[0] = 1;
  turned.stride[1] = 2;
  const char *const path = test_path(folder, "w.safetensors");
  static const struct { const char *name, *message; } names[] = {{"", "1 to 4096"}, {"__metadata__", "no name"}, {"\xff", "not UTF-8"}};
  for (size_t i = 0; i < 3; i++) {
    const hark_named_tensor named = {.name = names[i].name, .tensor = &tensor};
    assert_failure(context, hark_safetensors_write(context, path, &named, 1, NULL, 0, NULL), HARK_INVALID_ARGUMENT, names[i].message);
  }
  const hark_named_tensor twice[] = {{.name = "a", .tensor = &tensor}, {.name = "a", .tensor = &tensor}},
                          strided = {.name = "a", .tensor = &turned}, absent = {.name = "a", .tensor = &none};
  assert_failure(context, hark_safetensors_write(context, path, twice, 2, NULL, 0, NULL), HARK_INVALID_ARGUMENT, "given twice");
  assert_failure(context, hark_safetensors_write(context, path, &strided, 1, NULL, 0, NULL), HARK_INVALID_ARGUMENT, "not contiguous");
  assert_failure(context, hark_safetensors_write(context, path, &absent, 1, NULL, 0, NULL), HARK_INVALID_ARGUMENT, "a type");
  const hark_metadata_entry metadata[] = {{"a", "1"}, {"a", "2"}};
  assert_failure(context, hark_safetensors_write(context, path, twice, 1, metadata, 2, NULL), HARK_INVALID_ARGUMENT,
                 "metadata given twice");
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);
  hark_tensor_destroy(context, &tensor);
}

/* More numbers than one part of a copy has, in both types: they come back rounded once, next to a tensor that stays f32. */
static void halves_are_rounded_once(void **state) {
  (void)state;
  enum { COUNT = (1 << 20) + 77 };
  const int64_t count = COUNT;
  const char *const path = test_path(folder, "h.safetensors");
  float *const numbers = calloc(2 * (size_t)COUNT, sizeof *numbers), *const back = numbers + COUNT;
  for (int i = 0; i < COUNT; i++) numbers[i] = (float)((i * INT64_C(2654435761) % 2000003) - 1000001) * 1.23e-5f;
  hark_tensor tensor = make_tensor(HARK_F32, 1, &count, numbers), read = make_tensor(HARK_F32, 1, &count, numbers);
  static const hark_type types[] = {HARK_BF16, HARK_F16};
  for (int k = 0; k < 2; k++) {
    const hark_named_tensor named[] = {{.name = "a", .tensor = &tensor, .stored = types[k]}, {.name = "b", .tensor = &tensor}};
    hark_safetensors *file;
    assert_fine(context, hark_safetensors_write(context, path, named, 2, NULL, 0, NULL));
    assert_fine(context, hark_safetensors_open(context, path, &file));
    const hark_stored_tensor *const stored = hark_safetensors_find(file, "a");
    assert_int_equal(stored->type, types[k]);
    assert_int_equal(stored->bytes, COUNT * sizeof(uint16_t));
    assert_int_equal(hark_safetensors_find(file, "b")->type, HARK_F32);
    assert_fine(context, hark_safetensors_load_into(context, file, "a", &read));
    assert_fine(context, hark_tensor_read(context, &read, back));
    for (int i = 0; i < COUNT; i++) assert_true(back[i] == hark_half_widen(types[k], hark_half_narrow(types[k], numbers[i])));
    assert_fine(context, hark_safetensors_load_into(context, file, "b", &read));
    assert_fine(context, hark_tensor_read(context, &read, back));
    assert_memory_equal(back, numbers, COUNT * sizeof *numbers);
    enum { FIRST = 12345, PART = 5000 }; /* more halves than are read at once */
    assert_fine(context, hark_safetensors_read_f32(context, file, stored, FIRST, PART, back));
    for (int i = 0; i < PART; i++) assert_true(back[i] == hark_half_widen(types[k], hark_half_narrow(types[k], numbers[FIRST + i])));
    assert_fine(context, hark_safetensors_read_f32(context, file, hark_safetensors_find(file, "b"), FIRST, PART, back));
    assert_memory_equal(back, numbers + FIRST, PART * sizeof *numbers);
    hark_tensor wide = {.type = HARK_F64, .rank = 1, .shape = {COUNT}};
    assert_failure(context, hark_safetensors_expect(context, file, "a", &wide), HARK_BAD_FILE, "expected F64");
    hark_safetensors_close(context, &file);
  }
  hark_tensor_destroy(context, &tensor);
  hark_tensor_destroy(context, &read);
  free(numbers);
}

/* Numbers of another place, which fails at one of them. */
typedef struct counting_source {
  hark_tensor_source source;
  int64_t fails_at;
} counting_source;

static hark_status read_count(hark_context *reading, const hark_tensor_source *source, int64_t at, int64_t count, void *out) {
  const counting_source *const own = (const counting_source *)source;
  if (own->fails_at >= at && own->fails_at < at + count) return hark_fail(reading, HARK_CANCELLED, "no number %d", (int)own->fails_at);
  for (int64_t i = 0; i < count; i++) ((float *)out)[i] = (float)(at + i);
  return HARK_OK;
}

static void numbers_of_a_source_are_written(void **state) {
  (void)state;
  enum { COUNT = (1 << 20) + 77 };
  const char *const path = test_path(folder, "s.safetensors");
  const hark_tensor shape = {.type = HARK_F32, .rank = 1, .shape = {COUNT}, .stride = {1}};
  counting_source source = {.source = {.read = read_count}, .fails_at = -1};
  const hark_named_tensor named = {.name = "n", .tensor = &shape, .source = &source.source};
  float *const back = calloc(COUNT, sizeof *back);
  hark_safetensors *file;
  assert_fine(context, hark_safetensors_write(context, path, &named, 1, NULL, 0, NULL));
  source.fails_at = COUNT - 1;
  assert_failure(context, hark_safetensors_write(context, path, &named, 1, NULL, 0, NULL), HARK_CANCELLED, "no number");
  assert_fine(context, hark_safetensors_open(context, path, &file)); /* the file of before */
  assert_fine(context, hark_safetensors_read(context, file, hark_safetensors_find(file, "n"), back));
  for (int i = 0; i < COUNT; i++) assert_true(back[i] == (float)i);
  hark_safetensors_close(context, &file);
  free(back);
}

/* A number that the type cannot hold is named, and the file of before stays. */
static void what_halves_cannot_hold_is_not_written(void **state) {
  (void)state;
  const int64_t three = 3;
  const float large[] = {1, 65504, 65520}, wrong[] = {1, NAN, 2};
  const double d[] = {1, 2, 3};
  const char *const path = test_path(folder, "h.safetensors");
  hark_tensor tl = make_tensor(HARK_F32, 1, &three, large), tw = make_tensor(HARK_F32, 1, &three, wrong),
              td = make_tensor(HARK_F64, 1, &three, d);
  const hark_named_tensor fits = {.name = "x", .tensor = &tl, .stored = HARK_BF16};
  const hark_named_tensor f16 = {.name = "x", .tensor = &tl, .stored = HARK_F16}, nan = {.name = "x", .tensor = &tw, .stored = HARK_BF16};
  const hark_named_tensor f64 = {.name = "x", .tensor = &td, .stored = HARK_BF16},
                          as_f64 = {.name = "x", .tensor = &tl, .stored = HARK_F64};
  hark_file_summary before, after;
  assert_fine(context, hark_safetensors_write(context, path, &fits, 1, NULL, 0, &before));
  assert_failure(context, hark_safetensors_write(context, path, &f16, 1, NULL, 0, NULL), HARK_NOT_FINITE,
                 "tensor \"x\": element 2 is 65520, and the largest number of f16 is 65504");
  assert_failure(context, hark_safetensors_write(context, path, &nan, 1, NULL, 0, NULL), HARK_NOT_FINITE, "element 1 is nan");
  assert_failure(context, hark_safetensors_write(context, path, &f64, 1, NULL, 0, NULL), HARK_INVALID_ARGUMENT, "only f32");
  assert_failure(context, hark_safetensors_write(context, path, &as_f64, 1, NULL, 0, NULL), HARK_INVALID_ARGUMENT, "only f32");
  assert_fine(context, hark_file_summarise(context, path, &after));
  assert_string_equal(before.sha256, after.sha256);
  hark_tensor_destroy(context, &tl);
  hark_tensor_destroy(context, &tw);
  hark_tensor_destroy(context, &td);
}

/* The n-th allocation fails, for every n, in writing and in reading. */
static void running_out_of_memory_is_a_status(void **state) {
  (void)state;
  const float f[] = {1, 2, 3};
  const int64_t three = 3;
  const hark_metadata_entry metadata = {"a", "b"};
  const char *const path = test_path(folder, "m.safetensors");
  bool failed = true;
  long fail_at = 1;
  for (; failed; fail_at++) {
    test_memory memory;
    hark_context *const small = test_memory_context(&memory);
    hark_tensor tensor, back = {0};
    hark_safetensors *file = NULL;
    if (hark_tensor_create(small, HARK_F32, 1, &three, &tensor) != HARK_OK || hark_tensor_write(small, &tensor, f) != HARK_OK) fail();
    const hark_named_tensor named = {.name = "t", .tensor = &tensor};
    memory.fail_at = memory.allocations + fail_at;
    hark_status status = hark_safetensors_write(small, path, &named, 1, &metadata, 1, NULL);
    if (status == HARK_OK) status = hark_safetensors_open(small, path, &file);
    if (status == HARK_OK) status = hark_safetensors_load(small, file, "t", &back);
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(small));
    failed = status != HARK_OK;
    hark_safetensors_close(small, &file);
    hark_tensor_destroy(small, &back);
    hark_tensor_destroy(small, &tensor);
    test_memory_context_end(small, &memory);
  }
  assert_true(fail_at > 6);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_rules_are_kept),
      TEST(large_headers_are_refused_before_they_are_built),
      TEST(counts_have_limits),
      TEST(a_good_file_is_read),
      TEST(every_truncation_is_refused),
      TEST(changed_bytes_do_no_harm),
      TEST(a_file_that_shrinks_is_reported),
      TEST(what_is_written_is_read_and_always_the_same),
      TEST(large_tensors_go_through_in_parts),
      TEST(what_no_file_can_hold_is_not_written),
      TEST(halves_are_rounded_once),
      TEST(what_halves_cannot_hold_is_not_written),
      TEST(numbers_of_a_source_are_written),
      TEST(running_out_of_memory_is_a_status),
  };
  return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
