/* test_attention.c - attention on every backend, instruction set and type against its definition, within derived bounds.
 *
 *     test_attention                      all cases
 *     test_attention 'dense:B1,L65,D7'    these cases alone, on every machine (attention_case.h has the words)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

/* Runs every case, so that all failures are seen; fails when one did or there was none. */
static void check_all(const char *const *cases, size_t count) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) failures += attention_check_case(cases[i], false) > 0;
  if (count == 0) fail_msg("there was no case");
  if (failures > 0) fail_msg("%d of %zu cases failed; run one again with: test_attention 'CASE'", failures, count);
}
#define CHECK_ALL(cases) check_all(cases, sizeof cases / sizeof cases[0])

/* Every length from 1 to 70, with the head dimension walking through odd and even numbers and options taking turns. */
static void test_lengths(void **state) {
  (void)state;
  static const char *const options[] = {"", ",causal", ",causal,forget", ",bias", ",mask", ",kernel", ",causal,dropout=0.25", ",rbf"};
  int failures = 0;
  for (int length = 1; length <= 70; length++)
    for (int round = 0; round < 2; round++) {
      char text[ATTENTION_CASE_BYTES];
      const int keys = round == 0 ? length : 1 + (length * 37) % 71;
      snprintf(text, sizeof text, "dense:B1,H2,K1,L%d,S%d,D%d%s,seed=%d", length, keys, 1 + (length * 5) % 19,
               options[(length + round * 3) % (int)(sizeof options / sizeof options[0])], length);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

/* Lengths around the edges of tiles of 8 to 128 rows. */
static void test_tile_edges(void **state) {
  (void)state;
  static const int lengths[] = {31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 193, 255, 257};
  static const char *const options[] = {"", ",causal"};
  int failures = 0;
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
    for (size_t k = 0; k < 2; k++) {
      char text[ATTENTION_CASE_BYTES];
      snprintf(text, sizeof text, "dense:H1,L%d,D16%s", lengths[i], options[k]);
      failures += attention_check_case(text, false) > 0;
      snprintf(text, sizeof text, "dense:H1,L%d,S%d,D5,V9%s", lengths[i], lengths[(i + 5) % (sizeof lengths / sizeof lengths[0])],
               options[k]);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

/* Head dimensions from 1, odd, prime, around vector lengths, 257; values of other widths. */
static void test_dimensions(void **state) {
  (void)state;
  static const int dims[] = {1,  2,  3,  4,  5,  7,  8,  9,  11, 13, 15, 16,  17,  23,  31,
                             32, 33, 37, 47, 48, 63, 64, 65, 79, 80, 96, 127, 128, 129, 257};
  const int count = (int)(sizeof dims / sizeof dims[0]);
  int failures = 0;
  for (int i = 0; i < count; i++) {
    char text[ATTENTION_CASE_BYTES];
    snprintf(text, sizeof text, "dense:H2,L19,S21,D%d", dims[i]);
    failures += attention_check_case(text, false) > 0;
    snprintf(text, sizeof text, "dense:H2,L70,D%d,V%d,causal", dims[i], dims[(i * 7 + 3) % count]);
    failures += attention_check_case(text, false) > 0;
  }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

static void test_options(void **state) {
  (void)state;
  static const char *const cases[] = {
      "dense:B2,H4,K2,L65,D7,causal,bias",
      "dense:B2,H4,K1,L66,S70,D16",
      "dense:B2,H6,K3,L33,S70,D8,V3,causal",
      "dense:B2,H2,L70,S33,D8,causal",
      "dense:B1,H2,L9,S70,D8,causal,offset=0",
      "dense:B1,H2,L9,S70,D8,causal,offset=30",
      "dense:B1,H2,L70,D8,causal,offset=-20",
      "dense:B1,H2,L70,D8,causal,offset=-100",
      "dense:B1,H2,L70,D8,causal,offset=200",
      "dense:B1,H2,L1,S70,D64,causal",
      "dense:B1,H2,L40,S50,D8,kernel,offset=7",
      "dense:B1,H2,L40,S50,D8,kernel,offset=-45",
      "dense:B1,H2,L40,S50,D8,shared,offset=60",
      "dense:B2,H2,L65,D8,bias=1",
      "dense:B2,H2,L65,D8,bias=2,causal",
      "dense:B2,H2,L65,D8,bias=3",
      "dense:B2,H2,L65,S40,D8,bias=4",
      "dense:B2,H2,L65,S40,D8,bias=8",
      "dense:B2,H2,L65,S40,D8,bias=7,causal",
      "dense:B2,H2,L65,S40,D8,bias=11",
      "dense:B2,H2,L65,S40,D8,bias=15",
      "dense:B2,H2,L65,S80,D8,bias,hiding",
      "dense:B2,H2,L65,S80,D8,bias=7,hiding",
      "dense:B2,H2,L65,D8,kernel,hiding",
      "dense:B2,H2,L65,D8,kernel,hiding,causal",
      "dense:H2,L270,D8,kernel,hiding",
      "dense:B2,H2,L65,S40,D8,bias=1,mask=6,expanded",
      "dense:B2,H2,L65,S40,D8,bias=12,mask=15,expanded,causal",
      "dense:B2,H4,K2,L40,S50,D8,bias=5,mask=3,expanded,accumulate,layout=2,misaligned",
      "dense:B2,H2,L65,S40,D8,bias=15,expanded",
      "dense:B2,H2,L65,D8,bias,layout=2,causal",
      "dense:B2,H2,L65,S80,D8,mask",
      "dense:B2,H2,L65,S80,D8,mask=3,causal",
      "dense:B2,H2,L65,S80,D8,mask=7",
      "dense:B2,H2,L65,S80,D8,mask=8",
      "dense:B2,H2,L65,S80,D8,mask=15",
      "dense:B2,H2,L130,D8,mask=2,bias=1,kernel,causal",
      "dense:B2,H3,L130,D8,kernel",
      "dense:B2,H3,L130,D8,shared",
      "dense:B2,H3,L130,D8,shared,causal",
      "dense:B2,H3,L130,D8,kernel,directed",
      "dense:B2,H3,L130,S90,D8,shared,directed",
      "dense:B1,H2,L40,S150,D8,kernel,directed,offset=7",
      "dense:B1,H2,L40,S50,D8,kernel,directed,offset=-45",
      "dense:B1,H2,L40,S50,D8,shared,directed,offset=60",
      "dense:H2,L270,D8,kernel,directed,hiding",
      "dense:B2,H2,L70,D8,kernel,directed,large",
      "dense:B2,H4,K2,L70,D8,V5,rbf,bias,kernel,directed,dropout=0.2,lengths",
      "dense:B3,H2,L70,D8,lengths,bias=3,mask=2,shared,directed",
      "dense:H4,K2,L200,S190,D8,ragged,bias,mask,kernel,directed,dropout=0.2",
      "dense:B2,H4,K2,L200,D8,segments,kernel,directed",
      "dense:B2,H2,L67,D3,misaligned,kernel,directed",
      "dense:B2,H3,L65,D8,shared,directed,expanded,accumulate,threads=3",
      "dense:B3,H2,L50,D8,roomy,lengths,bias,kernel,directed,dropout=0.1",
      "dense:B2,H3,L65,D8,shared,expanded",
      "dense:B2,H3,L65,D8,shared,expanded,causal,accumulate,threads=3",
      "dense:B2,H4,K2,L130,D8,forget,causal",
      "dense:B2,H4,K2,L30,S130,D8,forget,causal",
      "dense:B1,H2,L70,S50,D8,forget,causal,offset=10",
      "dense:B2,H4,K2,L130,D8,forget,causal,kernel,bias=4,mask,dropout=0.1",
      "dense:B2,H2,L70,S80,D8,dropout=0.5",
      "dense:B2,H4,K2,L70,D8,causal,dropout=0.9",
      "dense:B2,H2,L130,S67,D8,rbf",
      "dense:B2,H2,L130,D65,rbf,causal",
      "dense:B2,H4,K2,L70,D8,V5,rbf,causal,bias,kernel,dropout=0.2,lengths",
      "dense:B3,H2,L70,D8,lengths",
      "dense:B3,H2,L70,D8,lengths,causal",
      "dense:B3,H4,K2,L130,D16,lengths,causal,forget,dropout=0.3",
      "dense:B4,H2,L20,S70,D8,lengths",
      "dense:B4,H2,L20,S70,D8,lengths,causal",
      "dense:B3,H2,L70,D8,lengths,bias=3,mask=2,shared",
      "dense:H2,L200,D8,ragged",
      "dense:H2,L200,S150,D8,ragged",
      "dense:H4,K2,L200,D8,ragged,causal",
      "dense:H4,K2,L200,S190,D8,ragged,causal,bias,mask,kernel,forget,dropout=0.2",
      "dense:H2,L3,D8,ragged,causal",
      "dense:H2,L2,D8,ragged",
      "dense:B2,H2,L200,D8,segments",
      "dense:B2,H4,K2,L200,D8,segments,causal,kernel",
      "dense:B2,H4,K2,L70,D8,segments,causal,bias=1,forget,dropout=0.2,mask",
      "dense:B3,H2,L3,D8,segments",
      "dense:B2,H2,L100,S90,D24,layout=1",
      "dense:B2,H4,K2,L100,D24,layout=1,causal",
      "dense:B2,H4,K2,L100,D24,V17,layout=2,causal",
      "dense:B3,H4,K2,L70,D9,V17,layout=2,lengths,causal,bias,misaligned",
      "dense:B2,H4,K2,L70,D9,layout=1,causal,forget",
      "dense:B3,H4,K2,L70,D9,layout=2,causal,forget,accumulate,lengths,misaligned",
      "dense:B2,H2,L100,D24,misaligned",
      "dense:B2,H2,L67,D3,misaligned,causal,forget,kernel",
      "dense:B2,H4,K2,L70,D9,accumulate,bias=3,kernel,forget,causal",
      "dense:B3,H4,K2,L70,D9,accumulate,lengths,layout=2",
      "dense:B2,H2,L70,D9,accumulate,segments,bias=15,shared",
      "dense:H2,L90,D9,accumulate,ragged,bias",
      "dense:B2,H2,L130,D64,large",
      "dense:B2,H2,L130,D64,large,causal",
      "dense:B1,H2,L70,D3,large,bias,forget,causal",
      "dense:B2,H2,L50,D8,roomy,causal",
      "dense:B3,H2,L50,D8,roomy,lengths,bias,kernel,dropout=0.1",
      "dense:B2,H4,K2,L50,D8,roomy,causal,forget,segments",
      "dense:B2,H2,L50,S1,D8,causal",
      "dense:B2,H2,L1,D1",
      "dense:B1,H1,L300,D40,causal,threads=3",
      "dense:B1,H3,L300,D40,threads=7",
  };
  CHECK_ALL(cases);
}

/* Few queries on many keys, as in decoding. */
static void test_few_queries(void **state) {
  (void)state;
  static const char *const cases[] = {
      "dense:B2,H4,K2,L1,S257,D64,causal",
      "dense:B1,H8,K1,L1,S300,D80,causal",
      "dense:B3,H2,L1,S100,D64,lengths",
      "dense:B3,H2,L1,S1,D64,causal",
      "dense:B2,H2,L1,S130,D5,V11,causal",
      "dense:B2,H2,L1,S200,D128,causal,forget,kernel",
      "dense:B2,H2,L1,S200,D16,mask,bias=1",
      "dense:B2,H2,L1,S200,D16,bias,hiding,causal,dropout=0.3",
      "dense:B2,H2,L1,S200,D16,rbf,causal",
      "dense:B2,H4,K2,L2,S131,D64,causal",
      "dense:B2,H4,K2,L3,S66,D33,causal,layout=2,misaligned",
      "dense:B2,H2,L4,S200,D64,causal,offset=7",
      "dense:B2,H2,L5,S64,D64",
      "dense:B2,H2,L7,S129,D64,causal",
      "dense:B2,H2,L8,S129,D64,causal,large",
      "dense:B2,H2,L1,S200,D64,large",
      "dense:B2,H2,L1,S40,D64,causal,offset=-1",
      "dense:H2,L4,S300,D64,ragged,causal",
      "dense:H2,L9,S300,D64,ragged",
      "window:B2,H2,L1,S200,D64,W20,causal",
      "window:B2,H2,L3,S200,D64,W20",
      "dense:B1,H2,L1,S1500,D64,causal,threads=3",
  };
  CHECK_ALL(cases);
}

/* Sequences of a few queries and a few hundred keys, all of whose logits are made at once, up to the lengths where that ends. */
static void test_short_sequences(void **state) {
  (void)state;
  static const int keys[] = {1, 2, 4, 7, 15, 16, 17, 33, 64, 511, 512, 513}, dims[] = {1, 5, 8, 16, 17, 33};
  static const char *const options[] = {"", ",accumulate", ",layout=2,misaligned", ",large", ",lengths"};
  static const char *const cases[] = {"dense:B9,H2,L4,D16,segments",
                                      "dense:H2,L40,S700,D16,ragged",
                                      "dense:H3,L12,S40,D9,ragged,accumulate",
                                      "dense:H2,L16,S600,D16,V5,ragged,threads=3",
                                      "dense:B40,H4,L4,D16,layout=1,threads=3",
                                      "dense:B2,H2,L4,S64,D16,roomy"};
  int failures = 0, number = 0;
  for (int queries = 1; queries <= 9; queries++)
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++, number++) {
      char text[ATTENTION_CASE_BYTES];
      snprintf(text, sizeof text, "dense:B2,H2,L%d,S%d,D%d,V%d%s,seed=%d", queries, keys[k], dims[number % 6], dims[(number / 5 + 3) % 6],
               options[number % 5], number);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
  CHECK_ALL(cases);
}

static void test_window(void **state) {
  (void)state;
  static const char *const cases[] = {
      "window:B2,H2,L70,D8,W0",
      "window:B2,H2,L70,D8,W1",
      "window:B2,H2,L70,D8,W1,causal",
      "window:B2,H4,K2,L200,D8,W16",
      "window:B2,H4,K2,L200,D8,W16,causal",
      "window:B2,H2,L200,D8,W63,causal",
      "window:B2,H2,L200,D8,W64,causal",
      "window:B2,H2,L200,D8,W65",
      "window:B2,H2,L200,D8,W1000,causal",
      "window:B2,H2,L40,S200,D8,W20",
      "window:B2,H2,L40,S200,D8,W20,causal",
      "window:B2,H2,L200,S40,D8,W20",
      "window:B2,H2,L200,S40,D8,W20,causal",
      "window:B2,H2,L100,D8,W5,offset=30",
      "window:B2,H2,L100,D8,W5,offset=-30,causal",
      "window:B2,H2,L100,D8,W5,kernel",
      "window:B2,H2,L100,D8,W5,kernel,directed",
      "window:B2,H2,L250,D8,W70,shared,directed,bias=1,mask=2,dropout=0.2",
      "window:B2,H2,L150,D8,W25,causal,kernel,bias=1,mask=2,forget,dropout=0.2",
      "window:B3,H2,L150,D8,W25,lengths",
      "window:B2,H2,L150,D8,W9,segments,causal",
      "window:H2,L150,D8,W9,ragged",
      "window:B2,H4,K2,L150,D8,V3,W9,rbf,layout=2",
      "window:B1,H2,L300,D16,W70,accumulate",
  };
  CHECK_ALL(cases);
}

int main(int argument_count, char **arguments) {
  if (argument_count > 1) {
    int failures = 0;
    for (int i = 1; i < argument_count; i++) failures += attention_check_case(arguments[i], true);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lengths), cmocka_unit_test(test_tile_edges),  cmocka_unit_test(test_dimensions),
      cmocka_unit_test(test_options), cmocka_unit_test(test_few_queries), cmocka_unit_test(test_short_sequences),
      cmocka_unit_test(test_window),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
