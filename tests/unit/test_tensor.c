/* test_tensor.c - descriptions, views, memory, copies, and sizes that do not fit. */
#include <hark/hark.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

static hark_context *context;

static int open_context(void **state) {
  (void)state;
  context = test_reference_open();
  return 0;
}

static int close_context(void **state) {
  (void)state;
  hark_context_destroy(&context);
  return 0;
}

static void types_have_sizes_and_names(void **state) {
  (void)state;
  static const struct {
    hark_type type;
    size_t bytes;
    const char *name;
  } types[] = {{HARK_F32, 4, "f32"}, {HARK_F64, 8, "f64"}, {HARK_I32, 4, "i32"}, {HARK_I64, 8, "i64"}, {HARK_U8, 1, "u8"}};
  assert_int_equal(hark_type_bytes(HARK_NONE), 0);
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    assert_int_equal(hark_type_bytes(types[i].type), types[i].bytes);
    assert_string_equal(hark_type_name(types[i].type), types[i].name);
  }
}

static void describe_gives_row_major_strides(void **state) {
  (void)state;
  const int64_t shape[] = {2, 3, 5};
  hark_tensor tensor;
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 3, shape, &tensor), HARK_OK);
  assert_null(tensor.data);
  assert_int_equal(tensor.owned_bytes, 0);
  assert_int_equal(tensor.stride[0], 15);
  assert_int_equal(tensor.stride[1], 5);
  assert_int_equal(tensor.stride[2], 1);
  assert_int_equal(hark_tensor_count(&tensor), 30);
  assert_true(hark_tensor_is_contiguous(&tensor));
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 0, NULL, &tensor), HARK_OK);
  assert_int_equal(hark_tensor_count(&tensor), 1);
}

static void wrong_descriptions_are_refused(void **state) {
  (void)state;
  const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[] = {3, -1};
  hark_tensor tensor;
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 9, nine, &tensor), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_describe(context, HARK_F32, -1, nine, &tensor), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_describe(context, HARK_NONE, 1, nine, &tensor), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_describe(context, (hark_type)99, 1, nine, &tensor), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, negative, &tensor), HARK_INVALID_ARGUMENT);
  assert_int_equal(tensor.type, HARK_NONE);
}

/* 2^k elements of 4 bytes fit as long as the bytes are below 2^63, in whichever extent they are. */
static void byte_counts_that_overflow_are_refused(void **state) {
  (void)state;
  const int64_t fits[] = {(int64_t)1 << 30, (int64_t)1 << 30}, too_large[] = {(int64_t)1 << 31, (int64_t)1 << 30};
  const int64_t wraps[] = {(int64_t)1 << 32, (int64_t)1 << 32}, largest[] = {INT64_MAX}, empty[] = {0, INT64_MAX, INT64_MAX};
  hark_tensor tensor;
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, fits, &tensor), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, too_large, &tensor), HARK_TOO_LARGE);
  assert_int_equal(hark_tensor_describe(context, HARK_U8, 2, too_large, &tensor), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_U8, 2, wraps, &tensor), HARK_TOO_LARGE); /* 2^64: zero when it wraps */
  assert_int_equal(hark_tensor_describe(context, HARK_U8, 1, largest, &tensor), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_I64, 1, largest, &tensor), HARK_TOO_LARGE);
  assert_int_equal(hark_tensor_describe(context, HARK_U8, 3, empty, &tensor), HARK_TOO_LARGE); /* its strides would overflow */
  assert_true(strlen(hark_context_message(context)) > 0);
}

static void checked_sizes_tell_overflow(void **state) {
  (void)state;
  size_t out = 0;
  assert_int_equal(hark_size_multiply(context, (size_t)1 << 32, (size_t)1 << 31, &out), HARK_OK);
  assert_true(out == (size_t)1 << 63);
  assert_int_equal(hark_size_multiply(context, (size_t)1 << 32, (size_t)1 << 32, &out), HARK_TOO_LARGE);
  assert_int_equal(hark_size_multiply(context, 0, SIZE_MAX, &out), HARK_OK);
  assert_int_equal(out, 0);
  assert_int_equal(hark_size_multiply(context, SIZE_MAX, 0, &out), HARK_OK);
  assert_int_equal(hark_size_add(context, SIZE_MAX, 0, &out), HARK_OK);
  assert_int_equal(hark_size_add(context, SIZE_MAX, 1, &out), HARK_TOO_LARGE);
  assert_int_equal(hark_align_up(0), 0);
  assert_int_equal(hark_align_up(1), HARK_ALIGNMENT);
  assert_int_equal(hark_align_up(HARK_ALIGNMENT), HARK_ALIGNMENT);
}

static void created_tensors_are_zero_and_aligned(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int i = 0; i < count; i++) {
    hark_context *own = test_setup_open(&setups[i], 1);
    const int64_t shape[] = {7, 11};
    hark_tensor tensor;
    double values[77], zeros[77] = {0};
    memset(values, 0xFF, sizeof values);
    assert_int_equal(hark_tensor_create(own, HARK_F64, 2, shape, &tensor), HARK_OK);
    assert_int_equal((uintptr_t)tensor.data % HARK_ALIGNMENT, 0);
    assert_int_equal(tensor.owned_bytes, sizeof values);
    assert_int_equal(hark_tensor_read(own, &tensor, values), HARK_OK);
    assert_memory_equal(values, zeros, sizeof values);
    for (int v = 0; v < 77; v++) values[v] = v;
    assert_int_equal(hark_tensor_write(own, &tensor, values), HARK_OK);
    memset(zeros, 0xFF, sizeof zeros);
    assert_int_equal(hark_tensor_read(own, &tensor, zeros), HARK_OK);
    assert_memory_equal(values, zeros, sizeof values);
    assert_int_equal(hark_tensor_zero(own, &tensor), HARK_OK);
    assert_int_equal(hark_tensor_read(own, &tensor, values), HARK_OK);
    for (int v = 0; v < 77; v++) assert_true(values[v] == 0);
    hark_tensor_destroy(own, &tensor);
    assert_int_equal(tensor.type, HARK_NONE);
    hark_tensor_destroy(own, NULL);
    test_setup_close(own);
  }
}

static void empty_tensors_are_allowed(void **state) {
  (void)state;
  const int64_t shape[] = {3, 0};
  hark_tensor tensor;
  char nothing = 'n';
  assert_int_equal(hark_tensor_create(context, HARK_F32, 2, shape, &tensor), HARK_OK);
  assert_int_equal(hark_tensor_count(&tensor), 0);
  assert_true(hark_tensor_is_contiguous(&tensor));
  assert_int_equal(hark_tensor_read(context, &tensor, &nothing), HARK_OK);
  assert_int_equal(nothing, 'n');
  hark_tensor_destroy(context, &tensor);
}

static void wrap_borrows_memory_aligned_to_its_element(void **state) {
  (void)state;
  _Alignas(64) float numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const int64_t shape[] = {2, 3}, strides[] = {4, 1};
  hark_tensor tensor;
  assert_int_equal(hark_tensor_wrap(context, numbers + 1, HARK_F32, 2, shape, NULL, &tensor), HARK_OK);
  assert_ptr_equal(tensor.data, numbers + 1);
  assert_true(hark_tensor_is_contiguous(&tensor));
  hark_tensor_destroy(context, &tensor); /* frees nothing */
  assert_int_equal(hark_tensor_wrap(context, numbers, HARK_F32, 2, shape, strides, &tensor), HARK_OK);
  assert_int_equal(tensor.stride[0], 4);
  assert_false(hark_tensor_is_contiguous(&tensor));
  float host[6];
  assert_int_equal(hark_tensor_read(context, &tensor, host), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_write(context, &tensor, host), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_zero(context, &tensor), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_wrap(context, (char *)numbers + 2, HARK_F32, 2, shape, NULL, &tensor), HARK_INVALID_ARGUMENT);
  assert_int_equal(tensor.type, HARK_NONE);
}

static void views_share_the_numbers(void **state) {
  (void)state;
  const int64_t shape[] = {4, 3}, flat[] = {12}, other[] = {2, 2, 3}, wrong[] = {5, 2};
  hark_tensor tensor, view;
  assert_int_equal(hark_tensor_create(context, HARK_F32, 2, shape, &tensor), HARK_OK);
  assert_int_equal(hark_tensor_view(context, &tensor, 1, flat, &view), HARK_OK);
  assert_ptr_equal(view.data, tensor.data);
  assert_int_equal(view.owned_bytes, 0);
  assert_int_equal(hark_tensor_view(context, &tensor, 3, other, &view), HARK_OK);
  assert_int_equal(view.stride[0], 6);
  assert_int_equal(hark_tensor_view(context, &tensor, 2, wrong, &view), HARK_SHAPE_MISMATCH);
  assert_non_null(strstr(hark_context_message(context), "[4, 3]"));
  tensor.stride[0] = 6;
  assert_int_equal(hark_tensor_view(context, &tensor, 1, flat, &view), HARK_INVALID_ARGUMENT);
  tensor.stride[0] = 3;
  hark_tensor_destroy(context, &tensor);
}

static void shapes_are_written_for_messages(void **state) {
  (void)state;
  char text[HARK_SHAPE_TEXT_BYTES], small[5];
  const int64_t shape[HARK_MAX_RANK] = {2, 3, INT64_MAX, 0, 1, 1, 1, 7};
  hark_tensor tensor = {.rank = 2, .shape = {2, 3}};
  assert_string_equal(hark_shape_text(&tensor, text, sizeof text), "[2, 3]");
  tensor.rank = 0;
  assert_string_equal(hark_shape_text(&tensor, text, sizeof text), "[]");
  tensor.rank = HARK_MAX_RANK;
  memcpy(tensor.shape, shape, sizeof shape);
  assert_string_equal(hark_shape_text(&tensor, text, sizeof text), "[2, 3, 9223372036854775807, 0, 1, 1, 1, 7]");
  assert_true(strlen(hark_shape_text(&tensor, small, sizeof small)) < sizeof small);
  tensor.rank = 100;
  assert_string_equal(hark_shape_text(&tensor, text, sizeof text), "of rank 100");
  tensor.rank = -1;
  assert_string_equal(hark_shape_text(&tensor, text, sizeof text), "of rank -1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types_have_sizes_and_names),     cmocka_unit_test(describe_gives_row_major_strides),
      cmocka_unit_test(wrong_descriptions_are_refused), cmocka_unit_test(byte_counts_that_overflow_are_refused),
      cmocka_unit_test(checked_sizes_tell_overflow),    cmocka_unit_test(created_tensors_are_zero_and_aligned),
      cmocka_unit_test(empty_tensors_are_allowed),      cmocka_unit_test(wrap_borrows_memory_aligned_to_its_element),
      cmocka_unit_test(views_share_the_numbers),        cmocka_unit_test(shapes_are_written_for_messages),
  };
  return cmocka_run_group_tests(tests, open_context, close_context);
}
