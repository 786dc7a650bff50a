/* kernel_expression.h - random positional kernels: their text, and their value straight from the definitions, in long double, with no
 * logarithms and none of the library's code. */
#ifndef HARK_TESTS_SUPPORT_KERNEL_EXPRESSION_H
#define HARK_TESTS_SUPPORT_KERNEL_EXPRESSION_H

#include <hark/positional.h>
#include <hark/random.h>
#include <stdbool.h>

#define TEST_KERNEL_NODES 64
#define TEST_KERNEL_VALUES 4096
#define TEST_KERNEL_TEXT 262144

typedef struct test_kernel_node {
  int kind;       /* leaf, sum, product, bank, left, right */
  int leaf;       /* number of the library's kernel */
  int bank;       /* components that a bank adds up */
  int components; /* copies of this node */
  int first;      /* of its values, parameter by parameter, component by component */
  int constant;   /* w of a window, K of what is written name[K] */
  int children[4], child_count;
} test_kernel_node;

typedef struct test_kernel {
  test_kernel_node nodes[TEST_KERNEL_NODES];
  int node_count;
  double values[TEST_KERNEL_VALUES]; /* natural values, in the expression's order */
  int value_count;
  char text[TEST_KERNEL_TEXT]; /* a spelling with all values, blanks and needless parentheses */
  size_t text_length;
} test_kernel;

/* Whether the library's kernel of that number is written name[K]. */
bool test_kernel_is_sized(int leaf);

/* The value of one component of the kernel called `name`. */
long double test_kernel_definition(const char *name, const double *values, int constant, long double distance);

/* Makes random expression number `number` of at most this depth. `definite`: of positive definite kernels only. */
void test_kernel_random(test_kernel *kernel, uint64_t number, int depth, bool definite);

/* The same with left(...) and right(...), at random; there may be none. */
void test_kernel_directed(test_kernel *kernel, uint64_t number, int depth);

/* Makes the kernel of that number alone, or in a bank of `bank` > 0, with random values. */
void test_kernel_single(test_kernel *kernel, int leaf, int bank, uint64_t number);

/* G(distance); below 0 the key is after the query. */
long double test_kernel_value(const test_kernel *kernel, long double distance);

#endif
