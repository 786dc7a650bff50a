/* kernel_expression.c - see kernel_expression.h. */
#include "support/kernel_expression.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "support/cmocka_all.h"

enum { LEAF, SUM, PRODUCT, BANK, LEFT, RIGHT };

/* The first distance of T5's buckets 16 to 31: ceil(16 * 8^(k / 16)). */
static const int t5_starts[] = {16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};

static int t5_bucket(long double distance) {
  if (distance < 16) return (int)distance;
  int bucket = 15;
  for (int k = 0; k < 16; k++) bucket += distance >= t5_starts[k];
  return bucket;
}

/* A power of 1 + c d that changes at every knot. */
static long double mlp(long double c, const double *knots, const double *weights, int units, long double d) {
  long double product = 1;
  for (int k = 0; k < units; k++)
    if (d > knots[k]) product *= powl((1 + c * d) / (1 + c * knots[k]), weights[k]);
  return product;
}

/* The inner product of the sinusoidal embeddings of positions 0 and d, of width 128, less that of two equal ones. */
static long double sandwich(long double a, long double base, long double d) {
  long double product = 0;
  for (int i = 1; i <= 64; i++) product += sinl(0) * sinl(d / powl(base, i / 64.0L)) + cosl(0) * cosl(d / powl(base, i / 64.0L));
  return expl(a * (product - 64) / 64);
}

static long double xpos(long double gamma, long double base, long double d) {
  long double sum = 0;
  for (int i = 0; i < 32; i++) sum += powl((i / 32.0L + gamma) / (1 + gamma), d / base);
  return sum / 32;
}

long double test_kernel_definition(const char *name, const double *v, int constant, long double d) {
  if (strcmp(name, "constant") == 0) return v[0];
  if (strcmp(name, "decay") == 0) return v[0] * expl(-d / v[1]);
  if (strcmp(name, "periodic") == 0 || strcmp(name, "canonical_periodic") == 0)
    return expl(-2.0L * v[0] * v[0] * sinl(d / v[1]) * sinl(d / v[1]));
  if (strcmp(name, "rbf") == 0) return v[0] * expl(-d * d / (2.0L * v[1] * v[1]));
  if (strcmp(name, "rational_quadratic") == 0) return v[0] * powl(1 + d * d / (2.0L * v[1] * v[2] * v[2]), -(long double)v[1]);
  if (strcmp(name, "matern32") == 0) return v[0] * (1 + sqrtl(3) * d / v[1]) * expl(-sqrtl(3) * d / v[1]);
  if (strcmp(name, "matern52") == 0)
    return v[0] * (1 + sqrtl(5) * d / v[1] + 5 * d * d / (3.0L * v[1] * v[1])) * expl(-sqrtl(5) * d / v[1]);
  if (strcmp(name, "bump") == 0) return v[0] * expl(-(d - v[1]) * (d - v[1]) / (2.0L * v[2] * v[2]));
  if (strcmp(name, "lagged_periodic") == 0) return expl(-2.0L * v[0] * v[0] * sinl((d - v[2]) / v[1]) * sinl((d - v[2]) / v[1]));
  if (strcmp(name, "spectral") == 0) return expl(v[0] * expl(-d * d / (2.0L * v[1] * v[1])) * cosl(d / v[2]));
  if (strcmp(name, "alibi") == 0) return expl(-v[0] * d);
  if (strcmp(name, "kerple_log") == 0) return powl(1 + v[1] * d, -(long double)v[0]);
  if (strcmp(name, "kerple_power") == 0) return expl(-v[0] * powl(d, v[1]));
  if (strcmp(name, "t5") == 0) return v[t5_bucket(d)];
  if (strcmp(name, "table") == 0) return v[d < constant ? (int)d : constant - 1];
  if (strcmp(name, "window") == 0) return d <= constant ? 1 : 0;
  if (strcmp(name, "mlp") == 0) return mlp(v[0], v + 1, v + 1 + constant, constant, d);
  if (strcmp(name, "sandwich") == 0) return sandwich(v[0], v[1], d);
  if (strcmp(name, "xpos") == 0) return v[0] * xpos(v[1], v[2], d);
  fail_msg("the tests have no definition of kernel %s: write one", name);
  return 0;
}

/* --- making
 * ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct kernel_maker {
  test_kernel *kernel;
  hark_random_stream stream;
  uint64_t drawn;
  bool definite, directed; /* directed: left(...) and right(...) are made */
} kernel_maker;

static double draw(kernel_maker *maker) {
  double value;
  hark_random_uniform(&maker->stream, maker->drawn++, 1, &value);
  return value;
}

static int draw_below(kernel_maker *maker, int count) { return (int)(draw(maker) * count); }

static void put(kernel_maker *maker, const char *format, ...) HARK_PRINTF(2, 3);
static void put(kernel_maker *maker, const char *format, ...) {
  test_kernel *kernel = maker->kernel;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(kernel->text + kernel->text_length, sizeof kernel->text - kernel->text_length, format, arguments);
  va_end(arguments);
  assert_true(length >= 0 && kernel->text_length + (size_t)length < sizeof kernel->text);
  kernel->text_length += (size_t)length;
  if (draw(maker) < 0.1) {
    assert_true(kernel->text_length + 1 < sizeof kernel->text);
    kernel->text[kernel->text_length++] = " \t\n"[draw_below(maker, 3)];
    kernel->text[kernel->text_length] = '\0';
  }
}

static int add(kernel_maker *maker, int kind, int components) {
  test_kernel *kernel = maker->kernel;
  assert_true(kernel->node_count < TEST_KERNEL_NODES);
  kernel->nodes[kernel->node_count] = (test_kernel_node){.kind = kind, .components = components};
  return kernel->node_count++;
}

/* A value that a kernel of a few hundred tokens may well learn. */
static double draw_value(kernel_maker *maker, const char *name) {
  const double u = draw(maker);
  if (strcmp(name, "l") == 0) return 2 * pow(100, u);
  if (strcmp(name, "tau") == 0 || strcmp(name, "mu") == 0) return pow(30, u);
  if (strcmp(name, "m") == 0 || strcmp(name, "r2") == 0 || strcmp(name, "c") == 0) return 0.01 * pow(150, u);
  if (strcmp(name, "t") == 0) return floor(pow(60, u)) - 0.5; /* the kernel has a knot there: not at a whole distance */
  if (strcmp(name, "w") == 0) return 2 * u - 1;
  if (strcmp(name, "base") == 0) return 30 * pow(300, u);
  return 0.3 * pow(7, u);
}

/* A number in the place of a kernel: a constant that is not learned. */
static void put_factor(kernel_maker *maker, int components) {
  char number[HARK_NUMBER_BYTES];
  const double value = draw_value(maker, "sigma2");
  assert_true(maker->kernel->value_count + components <= TEST_KERNEL_VALUES);
  for (int i = 0; i < components; i++) maker->kernel->values[maker->kernel->value_count++] = value;
  put(maker, "%s", hark_number_print(value, number));
}

bool test_kernel_is_sized(int leaf) {
  const hark_positional_kernel what = hark_positional_kernel_at(leaf);
  bool sized = false;
  for (int p = 0; p < HARK_POSITIONAL_NAMES; p++) sized = sized || (what.parameters[p] != NULL && what.values[p] == 0);
  return sized;
}

/* Values of parameter p in one component of a kernel, which is of size K or of none. */
static int own_values(const hark_positional_kernel *what, int p, int size) { return what->values[p] > 0 ? what->values[p] : size; }

static int make_leaf(kernel_maker *maker, int leaf, int components) {
  test_kernel *kernel = maker->kernel;
  const hark_positional_kernel what = hark_positional_kernel_at(leaf);
  const int node = add(maker, LEAF, components);
  kernel->nodes[node].leaf = leaf;
  kernel->nodes[node].first = kernel->value_count;
  if (strcmp(what.name, "constant") == 0 && draw(maker) < 0.3) {
    put_factor(maker, components);
    return node;
  }
  put(maker, "%s", what.name);
  const bool sized = test_kernel_is_sized(leaf);
  const int size = sized ? 1 + draw_below(maker, 20) : 0;
  if (sized) {
    kernel->nodes[node].constant = size;
    put(maker, "[%d]", size);
  }
  for (int p = 0; p < HARK_POSITIONAL_NAMES && what.parameters[p] != NULL; p++) {
    const int count = own_values(&what, p, size) * components;
    const bool other = what.other_names[p] != NULL && strcmp(what.other_names[p], "length_scale") == 0 && draw(maker) < 0.5;
    assert_true(kernel->value_count + count <= TEST_KERNEL_VALUES);
    put(maker, "%s", p == 0 ? "(" : ",");
    put(maker, "%s", other ? what.other_names[p] : what.parameters[p]);
    put(maker, "=");
    for (int i = 0; i < count; i++) {
      char number[HARK_NUMBER_BYTES];
      const double value = draw_value(maker, what.parameters[p]);
      kernel->values[kernel->value_count++] = value;
      put(maker, "%s", i > 0 ? "," : count > 1 || draw(maker) < 0.2 ? "[" : "");
      put(maker, "%s", hark_number_print(value, number));
    }
    /* a list of one was opened at random: close what is open */
    const char *open = strrchr(kernel->text, '['), *close = strrchr(kernel->text, ']'), *equals = strrchr(kernel->text, '=');
    if (open != NULL && open > equals && (close == NULL || close < open)) put(maker, "]");
    if (draw(maker) < 0.1) put(maker, "!");
  }
  if (what.constant != NULL) {
    kernel->nodes[node].constant = draw_below(maker, 30);
    put(maker, "(%s%d", draw(maker) < 0.5 ? "w=" : "", kernel->nodes[node].constant);
  }
  put(maker, ")");
  return node;
}

static bool has_many(int leaf, int components) {
  const hark_positional_kernel what = hark_positional_kernel_at(leaf);
  const int most = what.values[0] > 1 ? what.values[0] : test_kernel_is_sized(leaf) ? 20 : 1;
  return most * components > 100;
}

/* A kernel of many values is not taken into a large bank. */
static int pick_leaf(kernel_maker *maker, int components) {
  for (;;) {
    const int leaf = draw_below(maker, hark_positional_kernel_count());
    if (has_many(leaf, components)) continue;
    if (!maker->definite || strcmp(hark_positional_kernel_at(leaf).definite, "yes") == 0) return leaf;
  }
}

/* Parentheses stand around a sum in a product, and elsewhere at random. */
static int make(kernel_maker *maker, int depth, int components, bool in_product) {
  test_kernel_node *nodes = maker->kernel->nodes;
  if (maker->directed && draw(maker) < 0.4) {
    const int node = add(maker, draw(maker) < 0.5 ? LEFT : RIGHT, components);
    put(maker, nodes[node].kind == LEFT ? "left" : "right");
    put(maker, "(");
    maker->directed = false;
    nodes[node].children[nodes[node].child_count++] = make(maker, depth, components, false);
    maker->directed = true;
    put(maker, ")");
    return node;
  }
  const double choice = depth == 0 ? 0 : draw(maker);
  if (choice < 0.25) return make_leaf(maker, pick_leaf(maker, components), components);
  if (choice < 0.45) {
    const int node = add(maker, BANK, components), size = 1 + draw_below(maker, 3);
    put(maker, "bank[%d]", size);
    put(maker, "(");
    nodes[node].bank = size;
    nodes[node].children[nodes[node].child_count++] = make(maker, depth - 1, components * size, false);
    put(maker, ")");
    return node;
  }
  const int node = add(maker, choice < 0.75 ? SUM : PRODUCT, components), count = 2 + draw_below(maker, 2);
  const bool around = (in_product && nodes[node].kind == SUM) || draw(maker) < 0.5;
  if (around) put(maker, "(");
  for (int i = 0; i < count; i++) {
    if (i > 0) put(maker, "%s", nodes[node].kind == SUM ? "+" : "*");
    nodes[node].children[nodes[node].child_count++] = make(maker, depth - 1, components, nodes[node].kind == PRODUCT);
  }
  if (around) put(maker, ")");
  return node;
}

static kernel_maker start(test_kernel *kernel, uint64_t number, bool definite) {
  memset(kernel, 0, sizeof *kernel);
  return (kernel_maker){
      .kernel = kernel, .stream = {.seed = number, .layer_purpose = hark_random_layer_purpose(3, HARK_RANDOM_TEST)}, .definite = definite};
}

void test_kernel_random(test_kernel *kernel, uint64_t number, int depth, bool definite) {
  kernel_maker maker = start(kernel, number, definite);
  (void)make(&maker, depth, 1, false);
}

void test_kernel_directed(test_kernel *kernel, uint64_t number, int depth) {
  kernel_maker maker = start(kernel, number, false);
  maker.directed = true;
  (void)make(&maker, depth, 1, false);
}

void test_kernel_single(test_kernel *kernel, int leaf, int bank, uint64_t number) {
  kernel_maker maker = start(kernel, number, false);
  if (bank == 0) {
    (void)make_leaf(&maker, leaf, 1);
    return;
  }
  const int node = add(&maker, BANK, 1);
  put(&maker, "bank[%d](", bank);
  kernel->nodes[node].bank = bank;
  kernel->nodes[node].child_count = 1;
  kernel->nodes[node].children[0] = make_leaf(&maker, leaf, bank);
  put(&maker, ")");
}

/* --- value
 * ----------------------------------------------------------------------------------------------------------------------------- */

/* Whether the part is used at a distance: left(...) from 0 on, right(...) below 0, and the others if one of their parts is. */
static bool is_used(const test_kernel *kernel, int index, long double distance) {
  const test_kernel_node *node = &kernel->nodes[index];
  if (node->kind == LEFT) return distance >= 0;
  if (node->kind == RIGHT) return distance < 0;
  bool used = node->kind == LEAF;
  for (int i = 0; i < node->child_count; i++) used = used || is_used(kernel, node->children[i], distance);
  return used;
}

static long double value_of(const test_kernel *kernel, int index, int copy, long double distance) {
  const test_kernel_node *node = &kernel->nodes[index];
  if (node->kind == LEAF) {
    const hark_positional_kernel what = hark_positional_kernel_at(node->leaf);
    double values[64];
    int used = 0, first = node->first;
    for (int p = 0; p < HARK_POSITIONAL_NAMES && what.parameters[p] != NULL; p++) {
      const int own = own_values(&what, p, node->constant);
      for (int i = 0; i < own; i++) values[used++] = kernel->values[first + copy * own + i];
      first += own * node->components;
    }
    return test_kernel_definition(what.name, values, node->constant, fabsl(distance));
  }
  long double result = node->kind == PRODUCT ? 1 : 0;
  for (int i = 0; i < node->child_count; i++) {
    if (!is_used(kernel, node->children[i], distance)) continue;
    if (node->kind == PRODUCT) result *= value_of(kernel, node->children[i], copy, distance);
    if (node->kind != PRODUCT && node->kind != BANK) result += value_of(kernel, node->children[i], copy, distance);
  }
  for (int k = 0; k < node->bank; k++) result += value_of(kernel, node->children[0], copy * node->bank + k, distance);
  return result;
}

long double test_kernel_value(const test_kernel *kernel, long double distance) {
  return is_used(kernel, 0, distance) ? value_of(kernel, 0, 0, distance) : 1;
}
