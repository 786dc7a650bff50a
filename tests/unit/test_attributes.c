/* test_attributes.c - the table of the attributes of operators (hark_operator_attributes): complete, in order, and without wrong places. */
#include <hark/hark.h>
#include <string.h>

#include "support/cmocka_all.h"

/* Bytes of an attribute in the struct, and their alignment. */
static size_t bytes_of(const hark_attribute *attribute, size_t *alignment) {
  size_t bytes = sizeof(void *);
  switch (attribute->kind) {
    case HARK_ATTRIBUTE_BOOL: bytes = sizeof(bool); break;
    case HARK_ATTRIBUTE_INT:
    case HARK_ATTRIBUTE_ENUM: bytes = sizeof(int); break;
    case HARK_ATTRIBUTE_I32: bytes = sizeof(int32_t); break;
    case HARK_ATTRIBUTE_I64: bytes = sizeof(int64_t); break;
    case HARK_ATTRIBUTE_F64: bytes = sizeof(double); break;
    default: break;
  }
  *alignment = bytes;
  if (attribute->kind == HARK_ATTRIBUTE_F64_ARRAY) bytes = (size_t)attribute->count * sizeof(double);
  if (attribute->kind == HARK_ATTRIBUTE_STREAM) bytes = sizeof(hark_random_stream);
  if (attribute->kind == HARK_ATTRIBUTE_DESC_INSIDE) bytes = sizeof(hark_attention_own);
  return bytes;
}

static size_t round_up(size_t size, size_t alignment) { return (size + alignment - 1) / alignment * alignment; }

/* Each attribute begins where the compiler puts a field after the previous one, and nothing follows the last: no field is missing. */
static void the_rows_of_a_record_are_its_whole_struct(void **state) {
  (void)state;
  int operators, checked = 0;
  const hark_operator *const *table = hark_operators(&operators);
  for (int i = 0; i < operators; i++) {
    int count;
    const hark_attribute *rows = hark_operator_attributes(table[i], &count);
    size_t end = 0, largest = 1;
    for (int k = 0; k < count; k++) {
      size_t alignment;
      const size_t bytes = bytes_of(&rows[k], &alignment);
      if (rows[k].offset != round_up(end, alignment)) fail_msg("%s: %s begins at %zu", table[i]->name, rows[k].name, rows[k].offset);
      end = rows[k].offset + bytes;
      if (alignment > largest) largest = alignment;
      checked++;
    }
    if (round_up(end, largest) != table[i]->attributes_size)
      fail_msg("%s: its attributes have %zu bytes, the table has %zu", table[i]->name, table[i]->attributes_size, round_up(end, largest));
  }
  assert_true(checked > 100);
}

/* Every sample's enumeration is a word. */
static void enumerations_of_samples_have_words(void **state) {
  (void)state;
  int operators, checked = 0;
  const hark_operator *const *table = hark_operators(&operators);
  for (int i = 0; i < operators; i++) {
    int count;
    const hark_attribute *rows = hark_operator_attributes(table[i], &count);
    for (int k = 0; k < count; k++) {
      assert_true((rows[k].words != NULL) == (rows[k].kind == HARK_ATTRIBUTE_ENUM));
      if (rows[k].words == NULL) continue;
      int words = 1;
      for (const char *at = rows[k].words; *at != '\0'; at++) words += *at == '|';
      for (int n = 0; n < table[i]->sample_count; n++) {
        int value;
        memcpy(&value, (const char *)table[i]->samples[n].attributes + rows[k].offset, sizeof value);
        assert_in_range(value, 0, words - 1);
        checked++;
      }
    }
  }
  assert_true(checked > 20);
}

static void other_records_have_none(void **state) {
  (void)state;
  const hark_operator copy = hark_op_scale;
  int count = 1;
  assert_null(hark_operator_attributes(&copy, &count));
  assert_int_equal(count, 0);
  assert_null(hark_operator_attributes(&hark_op_add, &count));
  assert_int_equal(count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_rows_of_a_record_are_its_whole_struct),
      cmocka_unit_test(enumerations_of_samples_have_words),
      cmocka_unit_test(other_records_have_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
