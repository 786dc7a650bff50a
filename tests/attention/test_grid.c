/* test_grid.c - hierarchical attention over pixels of pictures: against its definition, and facts about its layout.
 *
 *     test_grid                                   all
 *     test_grid 'hierarchical:L65,D7,N4,grid=9'   these cases alone, on every machine (attention_case.h has the words)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/hierarchies.h"
#include "backend/grid.h"
#include "support/attention_run.h"

/* Pictures of one row, of one column, smaller than a block, of many cells on a side, of odd sizes, and with an incomplete last row. */
static void test_shapes(void **state) {
  (void)state;
  static const struct {
    int rows, columns, missing; /* pixels that the last row lacks */
  } shapes[] = {{1, 1, 0}, {1, 5, 0},   {1, 70, 0},  {1, 70, 13}, {70, 1, 0},  {2, 2, 0},   {2, 2, 1},   {3, 7, 2},
                {9, 9, 0}, {17, 16, 0}, {16, 17, 3}, {33, 5, 1},  {5, 33, 32}, {40, 25, 0}, {25, 40, 7}, {64, 3, 2}};
  static const char *const options[] = {"", ",exact", ",qmask,mask", ",dropout=0.3", ",exact,dropout=0.3", ",rbf", ",large", ",exact,mask"};
  static const int blocks[] = {4, 16, 64, 256};
  int failures = 0;
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int round = 0; round < 4; round++) {
      char text[ATTENTION_CASE_BYTES];
      const int length = shapes[s].rows * shapes[s].columns - shapes[s].missing, turn = (int)s + 3 * round;
      snprintf(text, sizeof text, "hierarchical:B1,H2,K1,L%d,D%d,V%d,N%d,grid=%d%s,seed=%d", length, 1 + length % 19, 1 + length % 7,
               blocks[round], shapes[s].columns, options[turn % 8], turn + 1);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

/* Every number of pixels up to 40 in pictures of 1 to 9 columns. */
static void test_lengths(void **state) {
  (void)state;
  int failures = 0;
  for (int length = 1; length <= 40; length++)
    for (int round = 0; round < 3; round++) {
      char text[ATTENTION_CASE_BYTES];
      snprintf(text, sizeof text, "hierarchical:B1,H1,L%d,D5,N4,grid=%d%s,seed=%d", length, 1 + (length * 5 + 2 * round) % 9,
               round == 1 ? ",exact" : "", length);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

static void test_options(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:B1,H1,L1330,D6,V4,N4,grid=70",
      "hierarchical:B1,H1,L1190,D4,V6,N4,grid=40,exact",
      "hierarchical:B1,H1,L1150,D3,V2,N16,grid=50",
      "hierarchical:B2,H4,K2,L320,D16,N4,grid=20",
      "hierarchical:B2,H6,K3,L317,D8,V33,N4,grid=20,exact",
      "hierarchical:B1,H2,L700,D64,N16,grid=28",
      "hierarchical:B1,H1,L400,D80,N64,grid=25",
      "hierarchical:B1,H1,L300,D257,V1,N4,grid=17",
      "hierarchical:B1,H1,L300,D17,V65,N4,grid=17,exact",
      "hierarchical:B2,H2,L324,D8,N4,grid=18,dropout=0.5",
      "hierarchical:B2,H4,K2,L324,D8,N4,grid=18,dropout=0.3,exact",
      "hierarchical:B2,H4,K2,L300,D8,N4,grid=18,rbf,dropout=0.2",
      "hierarchical:B2,H2,L300,D9,N4,grid=18,rbf,exact",
      "hierarchical:B3,H2,L300,D8,N4,grid=18,lengths",
      "hierarchical:B3,H2,L300,D8,N4,grid=18,lengths,qmask",
      "hierarchical:B3,H4,K2,L300,D16,N4,grid=18,lengths,exact,dropout=0.3",
      "hierarchical:B3,H2,L300,D8,N4,grid=18,mask",
      "hierarchical:B3,H2,L300,D8,N4,grid=18,mask=7,qmask",
      "hierarchical:B2,H2,L300,D8,N4,grid=18,mask,qmask,exact,expanded",
      "hierarchical:H4,K2,L900,D8,N4,grid=13,ragged",
      "hierarchical:H4,K2,L900,D8,N4,grid=13,ragged,exact,dropout=0.2",
      "hierarchical:H2,L3,D8,N4,grid=2,ragged",
      "hierarchical:B2,H4,K2,L600,D8,N4,grid=12,segments",
      "hierarchical:B2,H4,K2,L300,D8,N4,grid=12,segments,dropout=0.2,mask,qmask",
      "hierarchical:B3,H2,L3,D8,N4,grid=2,segments",
      "hierarchical:B2,H2,L300,D24,N16,grid=17,layout=1",
      "hierarchical:B2,H4,K2,L300,D24,V17,N4,grid=17,layout=2",
      "hierarchical:B3,H4,K2,L300,D9,V17,N4,grid=17,layout=2,lengths,exact,misaligned",
      "hierarchical:B2,H4,K2,L300,D9,N4,grid=17,accumulate",
      "hierarchical:B2,H4,K2,L300,D9,N4,grid=17,accumulate,exact,layout=2",
      "hierarchical:H2,L300,D9,N4,grid=7,accumulate,ragged,qmask",
      "hierarchical:B2,H2,L300,D64,N16,grid=17,large",
      "hierarchical:B2,H2,L300,D64,N4,grid=17,large,exact",
      "hierarchical:B2,H2,L300,D8,N4,grid=17,roomy",
      "hierarchical:B3,H2,L300,D8,N4,grid=17,roomy=100,lengths,dropout=0.1",
      "hierarchical:B2,H4,K2,L300,D8,N4,grid=17,roomy,exact,segments",
      "hierarchical:B2,H2,L1,D1,N4,grid=1",
      "hierarchical:L3,D2,N1024,grid=2",
      "hierarchical:L90,D2,N1024,grid=9",
      "hierarchical:B1,H1,L900,D40,N16,grid=30,threads=3",
      "hierarchical:B1,H3,L900,D40,N4,grid=30,threads=7,exact",
      "hierarchical:B2,H2,L130,D8,N4,grid=1000",
      "hierarchical:B2,H2,L300,D8,N4,grid=17,bf16",
  };
  check_hierarchies(cases, sizeof cases / sizeof cases[0]);
}

static hark_attention_desc picture(int64_t columns, int64_t block) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.hierarchy_block = block;
  desc.grid_columns = columns;
  return desc;
}

/* Every pair of pixels is in cells that meet on exactly one level, and on it all pairs of the two cells do; the entries are counted. */
static void test_cover(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 4, 30, 63, 64, 299};
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
    for (int64_t columns = 1; columns <= 40; columns += 3)
      for (int64_t block = 4; block <= 16; block *= 4) {
        const hark_attention_desc desc = picture(columns, block);
        const hark_grid g = hark_grid_make(&desc, lengths[i]);
        double fine = 0;
        for (int64_t n = 0; n < g.rows * g.columns; n++)
          for (int64_t k = 0; k < g.rows * g.columns; k++) {
            int times = 0;
            for (int level = 0; level < g.levels; level++)
              times += hark_grid_meets(&g, level, (n / g.columns) >> level, (n % g.columns) >> level, (k / g.columns) >> level,
                                       (k % g.columns) >> level);
            if (times != 1)
              fail_msg("%" PRId64 " columns, block %" PRId64 ": pixels %" PRId64 " and %" PRId64 " meet %d times", columns, block, n, k,
                       times);
          }
        double coarse = 0;
        for (int level = 0; level < g.levels; level++)
          for (int64_t a = 0; a < hark_grid_cells(&g, level); a++)
            for (int64_t b = 0; b < hark_grid_cells(&g, level); b++) {
              const int64_t width = hark_grid_width(&g, level), row = a / width, column = a % width;
              if (!hark_grid_meets(&g, level, row, column, b / width, b % width)) continue;
              coarse++;
              fine += (double)(hark_min((row + 1) << level, g.rows) - (row << level)) *
                      (double)(hark_min((column + 1) << level, g.columns) - (column << level));
            }
        assert_true(coarse == hark_grid_entries(&g, false));
        assert_true(fine == hark_grid_entries(&g, true));
      }
}

/* Linear cost: pictures of four times as many pixels have about four times as many entries, at most 45/4 Nr a pixel. */
static void test_cost(void **state) {
  (void)state;
  for (int64_t side = 64; side <= 4096; side *= 2) {
    const hark_attention_desc desc = picture(side, 16);
    const hark_grid g = hark_grid_make(&desc, side * side);
    const double entries = hark_grid_entries(&g, false), pixels = (double)side * (double)side;
    assert_true(entries < pixels * 16 * 45 / 4 && entries > pixels * 16 * 9 * 0.9);
  }
  hark_attention_desc wide = picture(INT64_MAX, 16), row = picture(100, 16);
  wide.structure = row.structure = HARK_STRUCTURE_HIERARCHICAL;
  wide.batch = wide.heads = wide.head_dim = row.batch = row.heads = row.head_dim = 1;
  wide.query_length = wide.key_length = row.query_length = row.key_length = 100;
  assert_true(hark_attention_desc_operations(&wide, true) == hark_attention_desc_operations(&row, true));
}

/* A picture of at most 2 x 2 blocks has one level, so the result is that of dense attention. */
static void test_small_is_dense(void **state) {
  (void)state;
  for (int64_t columns = 1; columns <= 8; columns++) {
    char grid[ATTENTION_CASE_BYTES], dense[ATTENTION_CASE_BYTES];
    snprintf(grid, sizeof grid, "hierarchical:B2,H2,L%d,D8,N16,grid=%d,lengths", (int)(8 * columns - 3), (int)columns);
    snprintf(dense, sizeof dense, "dense:B2,H2,L%d,D8,lengths", (int)(8 * columns - 3));
    attention_check_equal(grid, dense);
  }
}

/* The same bits with 1 to 4 threads, one head or many, in every result. */
static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B1,H1,L1330,D16,N4,grid=70",       "hierarchical:B1,H2,K1,L1200,D16,N16,grid=45,exact",
                                      "hierarchical:B2,H4,K2,L900,D8,N4,grid=31",      "hierarchical:B1,H1,L600,D8,N4,grid=1,dropout=0.2",
                                      "hierarchical:B3,H1,L700,D8,N4,grid=25,lengths", "hierarchical:B1,H1,L1200,D8,N64,grid=45"};
  static const int64_t threads[] = {2, 3, 4};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      attention_problem problem;
      attention_problem_make(cases[i], &problem);
      attention_same_with_threads(&attention_machines[m], &problem, cases[i], sizeof threads / sizeof threads[0], threads);
      attention_problem_free(&problem);
    }
}

/* Rows of weights sum to one. */
static void test_rows_sum_to_one(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = attention_machine_open(&attention_machines[m], 1);
    if (context == NULL) continue;
    hark_context_destroy(&context);
    attention_rows_sum_to_one(&attention_machines[m], "hierarchical:B2,H2,L700,D8,N4,grid=27,mask");
    attention_rows_sum_to_one(&attention_machines[m], "hierarchical:B2,H2,L700,D8,N16,grid=27,exact");
  }
}

/* A call of no rows does nothing and fails nothing. */
static void test_no_rows(void **state) {
  (void)state;
  static const char *const names[] = {"reference", "cpu"};
  for (size_t i = 0; i < 2; i++) {
    hark_context *context;
    hark_context_options options = {.struct_size = sizeof options};
    options.backend = names[i];
    assert_int_equal(hark_context_create(&options, &context), HARK_OK);
    hark_attention_desc desc = picture(5, 4);
    desc.structure = HARK_STRUCTURE_HIERARCHICAL;
    desc.batch = 2;
    desc.heads = 1;
    desc.query_length = desc.key_length = 30;
    desc.head_dim = 4;
    hark_attention_plan *plan;
    assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
    const int64_t shape[] = {2, 1, 0, 4}, sums[] = {2, 1, 0};
    float nothing[1];
    hark_tensor empty, empty_sums;
    assert_int_equal(hark_tensor_wrap(context, nothing, HARK_F32, 4, shape, NULL, &empty), HARK_OK);
    assert_int_equal(hark_tensor_wrap(context, nothing, HARK_F32, 3, sums, NULL, &empty_sums), HARK_OK);
    const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
    const size_t bytes = sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace;
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    hark_attention_args args = {.struct_size = sizeof args, .query = empty, .key = empty, .value = empty, .out = empty};
    args.log_sum_exp = empty_sums;
    args.workspace = workspace;
    assert_int_equal(hark_attention_forward(context, plan, &args), HARK_OK);
    args.dout = args.dquery = args.dkey = args.dvalue = empty;
    assert_int_equal(hark_attention_backward(context, plan, &args), HARK_OK);
    free(workspace);
    hark_attention_plan_destroy(context, &plan);
    hark_context_destroy(&context);
  }
}

/* Sequences without rows are left out, at the beginning, between others, and at the end. */
static void test_empty_sequences(void **state) {
  (void)state;
  static const int64_t offsets[] = {0, 0, 40, 40, 89, 89};
  static const char *const texts[] = {"hierarchical:H4,K2,L90,D8,N4,grid=7,ragged",
                                      "hierarchical:H2,L90,D8,N4,grid=7,ragged,exact,dropout=0.2"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    attention_problem problem;
    attention_expected expected;
    int failures = 0;
    attention_problem_make(texts[i], &problem);
    problem.sequences = sizeof offsets / sizeof offsets[0] - 1;
    int64_t **const both[] = {&problem.query_offsets, &problem.key_offsets};
    for (int k = 0; k < 2; k++) {
      free(*both[k]);
      *both[k] = malloc(sizeof offsets);
      assert_non_null(*both[k]);
      memcpy(*both[k], offsets, sizeof offsets);
    }
    attention_expected_make(&problem, &expected);
    for (int m = 0; m < attention_machine_count; m++) {
      attention_results results;
      if (!attention_run_on(&attention_machines[m], &problem, &results)) continue;
      failures += attention_compare(&attention_machines[m], &problem, &expected, &results);
      attention_results_free(&results);
    }
    attention_expected_free(&expected);
    attention_problem_free(&problem);
    assert_int_equal(failures, 0);
  }
}

/* Memory is proportional to the pixels: of a picture of one row or column and of a square one about the same. */
static void test_workspace(void **state) {
  (void)state;
  static const int64_t columns[] = {1, 7, 64, 1000, 4096};
  hark_context *context;
  hark_context_options options = {.struct_size = sizeof options};
  options.threads = 1;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
    hark_attention_desc desc = picture(columns[i], 16);
    desc.structure = HARK_STRUCTURE_HIERARCHICAL;
    desc.batch = desc.heads = 1;
    desc.query_length = desc.key_length = 4096;
    desc.head_dim = 64;
    hark_attention_plan *plan;
    assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
    const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
    /* Forward: queries, keys and values of at most 2 cells a pixel (one column has L (1 + 1/2 + ...) cells) and sums of the coarse ones;
     * backward: also three gradients and the gradient of the output. A megabyte for the tile of a thread. */
    const size_t cell = 64 * sizeof(float), cells = 2 * (4096 + 1000), tile = (size_t)1 << 20;
    assert_true(sizes.forward_workspace < 5 * cells * cell + tile);
    assert_true(sizes.backward_workspace < 8 * cells * cell + tile);
    hark_attention_plan_destroy(context, &plan);
  }
  hark_context_destroy(&context);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    int failures = 0;
    for (int i = 1; i < argc; i++) failures += attention_check_case(argv[i], true);
    return failures > 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cover),           cmocka_unit_test(test_cost),
      cmocka_unit_test(test_shapes),          cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_options),         cmocka_unit_test(test_small_is_dense),
      cmocka_unit_test(test_threads),         cmocka_unit_test(test_no_rows),
      cmocka_unit_test(test_workspace),       cmocka_unit_test(test_rows_sum_to_one),
      cmocka_unit_test(test_empty_sequences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
