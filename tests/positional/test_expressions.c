/* test_expressions.c - the language of positional kernels: what is read, what is refused and where, printing, limits, memory. The values
 * of parameters are in test_values.c. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "positional/list.h"
#include "support/cmocka_all.h"
#include "support/kernel_expression.h"
#include "support/setups.h"
#include "support/text_files.h"

static char text[2 * HARK_POSITIONAL_TEXT_BYTES], again[sizeof text], large[sizeof text];

static hark_positional *parse(hark_context *context, const char *expression) {
  hark_positional *kernel = NULL;
  const hark_status status = hark_positional_create(context, expression, &kernel);
  if (status != HARK_OK) fail_msg("%s: %s", expression, hark_context_message(context));
  return kernel;
}

/* The canonical form of an expression, in `text`. */
static const char *print(hark_context *context, const char *expression) {
  hark_positional *kernel = parse(context, expression);
  assert_true(hark_positional_print(kernel, NULL, text, sizeof text) < sizeof text);
  hark_positional_destroy(context, &kernel);
  assert_null(kernel);
  return text;
}

static void spellings_have_one_form(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  static const char *const cases[][2] = {
      {"decay", "decay"},
      {" \t\n decay ( ) ", "decay"},
      {"((((decay))))", "decay"},
      {"decay+(rbf+t5)+alibi", "decay+rbf+t5+alibi"},
      {"((decay+rbf)+(t5+alibi))", "decay+rbf+t5+alibi"},
      {"decay*(rbf*t5)*(alibi)", "decay*rbf*t5*alibi"},
      {"decay*(rbf+t5)*alibi", "decay*(rbf+t5)*alibi"},
      {"(decay*rbf)+(t5*alibi)", "decay*rbf+t5*alibi"},
      {"(decay+rbf)*(t5+alibi)", "(decay+rbf)*(t5+alibi)"},
      {"((decay+rbf)*t5)+alibi", "(decay+rbf)*t5+alibi"},
      {"bank [ 8 ] ( decay * periodic )", "bank[8](decay*periodic)"},
      {"bank[8.0e0]((decay))", "bank[8](decay)"},
      {"bank[2](decay(l=[3,3]))", "bank[2](decay(l=3))"},
      {"bank[2](decay(l=[3,4],sigma2=2))", "bank[2](decay(sigma2=2,l=[3,4]))"},
      {"bank[2](bank[2](alibi(m=[1,2,3,4])))", "bank[2](bank[2](alibi(m=[1,2,3,4])))"},
      {"decay(length_scale=1.50)", "decay(l=1.5)"},
      {"decay(l=+1e1)", "decay(l=10)"},
      {"constant(3)+alibi([.5])", "constant(sigma2=3)+alibi(m=0.5)"},
      {"window(16)", "window(w=16)"},
      {"window(w=0)", "window(w=0)"},
      {"periodic(period_length=10)", "periodic(tau=3.183098861837907)"},
      {"decay(sigma2=0.1,l=1e-5)", "decay(sigma2=0.1,l=1e-5)"},
      {"decay( l = 12 ! )", "decay(l=12!)"},
      {"bank[2](decay(l=[3,4]!,sigma2=2))", "bank[2](decay(sigma2=2,l=[3,4]!))"},
      {"bank[2](decay(l=[3,3]!))", "bank[2](decay(l=3!))"},
      {"2*decay+.5", "2*decay+0.5"},
      {"decay( l = 12 { 2 : 40.0 } )", "decay(l=12{2:40})"},
      {"decay(l={2:40},sigma2=3{1:3})", "decay(sigma2=3{1:3},l={2:40})"},
      {"alibi({.1:1})+periodic(period_length={3.5:7})", "alibi(m={0.1:1})+periodic(tau={1.1140846016432675:2.228169203286535})"},
      {"bank[2](decay(l=[3,4]{3:4}@z))*bank[2](rbf(l=@z))", "bank[2](decay(l=[3,4]{3:4}@z))*bank[2](rbf(l=@z))"},
      {"bump(l=2{1:9}@b,mu=@b)", "bump(mu=2{1:9}@b,l=@b)"},
      {"mlp[2](w={-1:0})", "mlp[2](w={-1:0})"},
      {"(2.50)*(3*rbf)", "2.5*3*rbf"},
      {"constant(2!)*decay", "2*decay"},
      {"bank[2](1e-3*decay)", "bank[2](0.001*decay)"},
      {"bank[2](constant([1,2]!))", "bank[2](constant(sigma2=[1,2]!))"},
      {"bump(lag=3)*lagged_periodic(period_length=10,mu=2!)", "bump(mu=3)*lagged_periodic(tau=3.183098861837907,mu=2!)"},
      {"decay(l=12@a)*rbf(l=@a)", "decay(l=12@a)*rbf(l=@a)"},
      {"decay( l = @ a )+rbf(l= @a)", "decay(l=@a)+rbf(l=@a)"},
      {"bank[2](decay(l=[3,4]!@z))*bank[2](rbf(l=@z,sigma2=2))", "bank[2](decay(l=[3,4]!@z))*bank[2](rbf(sigma2=2,l=@z))"},
      {"decay(l=3@a,sigma2=@a)", "decay(sigma2=3@a,l=@a)"},
      {"decay(l=3!@a,sigma2=@a)", "decay(sigma2=3!@a,l=@a)"},
      {"bump(l=2@b,mu=@b)", "bump(mu=2@b,l=@b)"},
      {"bank[2](decay(l=[3,4]@z,sigma2=@z))", "bank[2](decay(sigma2=[3,4]@z,l=@z))"},
      {"bump(l=2@b,mu=@b,sigma2=@b)", "bump(sigma2=2@b,mu=@b,l=@b)"},
      {"bump(mu=2@b,l=@b)+alibi(@b)", "bump(mu=2@b,l=@b)+alibi(m=@b)"},
      {"constant(2!@a)*constant(@a)", "constant(sigma2=2!@a)*constant(sigma2=@a)"},
      {"table [ 3 ] ( factor = [ 1 , 2 , 0.50 ] )", "table[3](factor=[1,2,0.5])"},
      {"bank[2](table[2])+table[1](3)", "bank[2](table[2])+table[1](factor=3)"},
      {"spectral(a=2,wavelength=8)", "spectral(a=2,tau=1.2732395447351628)"},
      {"mlp [ 2 ] ( w = [ -1.50 , +.25 ] , c = 2 )", "mlp[2](c=2,w=[-1.5,0.25])"},
      {"mlp[1](w=-1e30!)*mlp[64](w=1e30)", "mlp[1](w=-1e30!)*mlp[64](w=1e30)"},
      {"mlp[2](w=0,t=3)+mlp[3](w=[0,-1e-300,-0])", "mlp[2](t=3,w=0)+mlp[3](w=[0,-1e-300,-0])"},
      {"bank[2](mlp[2](t=[1,2,3,4],w=[-1,1,-1,1]))", "bank[2](mlp[2](t=[1,2,3,4],w=[-1,1,-1,1]))"},
      {"mlp[2](w=[-1,2]@a,t=[3,4]@c)+mlp[2](w=@a,t=@c)", "mlp[2](t=[3,4]@c,w=[-1,2]@a)+mlp[2](t=@c,w=@a)"},
      {"sandwich(a=8,base=1e4!)*xpos(gamma=.4,base=512)", "sandwich(a=8,base=10000!)*xpos(gamma=0.4,base=512)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    if (strcmp(print(context, cases[i][0]), cases[i][1]) != 0)
      fail_msg("\"%s\" prints as \"%s\", expected \"%s\"", cases[i][0], text, cases[i][1]);
  }
  test_setup_close(context);
}

static void mistakes_have_a_column(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  static const struct {
    const char *text;
    int column;
    const char *part;
  } cases[] = {
      {"", 1, "found the end, expected a kernel, a positive number, bank[M](...), left(...), right(...) or '('"},
      {"lef(decay)", 1, "no kernel is called \"lef\"; left is"},
      {"decay+rigth(rbf)", 7, "no kernel is called \"rigth\"; right is"},
      {"bnk[2](decay)", 1, "no kernel is called \"bnk\"; bank is"},
      {"0*decay", 1, "a factor is 0, expected a positive number from 1e-60 to 1e60"},
      {"decay*1e61", 7, "a factor is 1e61"},
      {"-2*decay", 1, "found '-', expected a kernel, a positive number"},
      {"2decay", 1, "\"2decay\" is not a finite decimal number"},
      {"2 decay", 3, "found 'd', expected '+', '*' or the end"},
      {"decay(l=!)", 9, "found '!', expected a number"},
      {"decay(l!)", 8, "found '!', expected '='"},
      {"decay(l=2!!)", 11, "found '!', expected ',' or ')'"},
      {"bank[2](decay(l=[1!,2]))", 19, "found '!', expected ',' or ']'"},
      {"decay(l=12{2:10})", 11, "l is 12, expected a number within its bounds 2 and 10"},
      {"bank[2](decay(l=[3,50]{2:40}))", 23, "l is 50, expected a number within its bounds 2 and 40"},
      {"periodic(period_length=9{10:20})", 25, "tau is 9, expected a number within its bounds 10 and 20"},
      {"decay(l={10:2})", 9, "l has the bounds 10 and 2, expected a larger second one"},
      {"decay(l={2:2})", 9, "l has the bounds 2 and 2, expected a larger second one"},
      {"decay(l=3!{2:4})", 11, "l is fixed by '!', expected no bounds"},
      {"decay(l=3{2:4}!)", 15, "found '!', expected ',' or ')'"},
      {"decay(l={2,3})", 11, "found ',', expected ':'"},
      {"decay(l={2:3)", 13, "found ')', expected '}'"},
      {"decay(l={0:3})", 10, "l is 0, expected a positive number"},
      {"decay(l=3@a)*rbf(l={2:4}@a)", 25, "@a is l of decay already: values are given there"},
      {"decay(l=@a{2:3})*rbf(l=@a)", 11, "found '{', expected ',' or ')'"},
      {"2{1:3}*decay", 2, "found '{'"},
      {"decay(l=@)", 10, "found ')', expected a letter from a to z after '@'"},
      {"decay(l=3@A)", 11, "found 'A', expected a letter from a to z"},
      {"decay(l=@ab)", 11, "found 'b', expected ',' or ')'"},
      {"decay(l=@a!)", 11, "found '!', expected ',' or ')'"},
      {"decay(l=3@a)+rbf(l=4@a)", 21, "@a is l of decay already: values are given there"},
      {"bump(mu=@a,l=3@a)", 15, "@a is mu of bump already"},
      {"decay(l=@a)+bank[3](decay(l=@a))", 29, "@a has 3 values here, and 1 in decay"},
      {"decay(l=10@a)*periodic(period_length=@a)", 38, "@a shares values of tau, expected tau="},
      {"periodic(tau=@a)*canonical_periodic(tau=@a)", 41, "trained in another form"},
      {"window(3@a)", 9, "found '@'"},
      {"decay(l=12@a)*rbf(l=@b)", 11, "@a occurs once and shares its value with nothing"},
      {"decay(l=12@a)*rbf(l=@a,sigma2=@b)", 31, "@b occurs once and shares its value with nothing"},
      {"bank[2](decay(l=@c))", 17, "@c occurs once and shares its value with nothing"},
      {"window(3!)", 9, "found '!', expected ',' or ')'"},
      {"decay!", 6, "found '!', expected '+', '*' or the end"},
      {"  ", 3, "found the end"},
      {"+decay", 1, "found '+'"},
      {"decay+", 7, "found the end"},
      {"decay**rbf", 7, "found '*'"},
      {"decay rbf", 7, "found 'r', expected '+', '*' or the end"},
      {"(decay", 7, "expected '+', '*' or ')'"},
      {"decay)", 6, "found ')', expected '+', '*' or the end"},
      {"()", 2, "found ')'"},
      {"decai", 1, "no kernel is called \"decai\"; decay is"},
      {"decay+zzzzzzzzzz", 7, "expected one of constant, decay"},
      {"DECAY", 1, "no kernel is called \"DECAY\""},
      {"decay\xC3\xA9", 6, "found byte 0xC3"},
      {"\x01", 1, "found byte 0x01"},
      {"bank(decay)", 5, "found '(', expected '[' and the number of components"},
      {"bank", 5, "found the end"},
      {"bank[](decay)", 6, "found ']', expected a number"},
      {"bank[0](decay)", 6, "the bank is 0, expected a whole number from 1 to 1024"},
      {"bank[1025](decay)", 6, "the bank is 1025"},
      {"bank[2.5](decay)", 6, "the bank is 2.5"},
      {"bank[-1](decay)", 6, "the bank is -1"},
      {"bank[1e300](decay)", 6, "whole number"},
      {"bank[2(decay)", 7, "found '(', expected ']'"},
      {"bank[2]decay", 8, "expected '('"},
      {"bank[2](decay", 14, "expected '+', '*' or ')'"},
      {"bank[2]()", 9, "found ')'"},
      {"decay(l=)", 9, "found ')', expected a number"},
      {"decay(l 3)", 9, "found '3', expected '='"},
      {"decay(3)", 7, "found '3', expected a parameter of decay: sigma2, l"},
      {"decay(tau=3)", 7, "decay has no parameter \"tau\", expected one of sigma2, l"},
      {"decay(l=3", 10, "expected ',' or ')'"},
      {"decay(l=3,)", 11, "expected a parameter of decay"},
      {"decay(l=3,l=4)", 11, "l is given twice"},
      {"decay(l=3,length_scale=4)", 11, "l is given twice"},
      {"window(3,w=4)", 10, "w is given twice"},
      {"decay(l=0)", 9, "l is 0, expected a positive number"},
      {"decay(l=-3)", 9, "l is -3, expected a positive number"},
      {"decay(l=1e61)", 9, "expected a positive number from"},
      {"decay(l=1e-61)", 9, "expected a positive number from"},
      {"decay(l=nan)", 9, "\"nan\" is not a finite decimal number"},
      {"decay(l=inf)", 9, "\"inf\" is not"},
      {"decay(l=1e999)", 9, "\"1e999\" is not"},
      {"decay(l=0x10)", 9, "\"0x10\" is not"},
      {"decay(l=1.2.3)", 9, "\"1.2.3\" is not"},
      {"decay(l=3-4)", 10, "found '-', expected ',' or ')'"},
      {"decay(l=[])", 10, "found ']', expected a number"},
      {"decay(l=[1,2])", 9, "l has a list of 2, expected 1"},
      {"bank[3](decay(l=[1,2]))", 17, "l has a list of 2, expected 3"},
      {"bank[3](decay(l=[1,2,3,4]))", 17, "l has a list of 4, expected 3"},
      {"bank[2](bank[2](decay(l=[1,2])))", 25, "expected 4"},
      {"bank[2](decay(l=[1,0]))", 20, "l is 0"},
      {"bank[2](decay(l=[1,2))", 21, "expected ',' or ']'"},
      {"t5([1,2])", 4, "factor has a list of 2, expected 32"},
      {"table", 1, "table needs its size: table[64]"},
      {"decay+table(3)", 7, "table needs its size"},
      {"table[0]", 7, "the size is 0, expected a whole number from 1 to 4096"},
      {"table[4097]", 7, "the size is 4097"},
      {"table[2.5]", 7, "the size is 2.5"},
      {"table[3", 8, "found the end, expected ']'"},
      {"table[3]([1,2])", 10, "factor has a list of 2, expected 3"},
      {"decay[3]", 6, "found '[', expected '+', '*' or the end"},
      {"window", 1, "window needs w"},
      {"window()", 1, "window needs w"},
      {"window(2.5)", 8, "w is 2.5, expected a whole number"},
      {"window(-1)", 8, "w is -1"},
      {"window([1])", 8, "found '[', expected a number"},
      {"canonical_periodic(tau=0.6)", 24, "expected a positive number from 0.63661977"},
      {"mlp", 1, "mlp needs its size: mlp[64]"},
      {"mlp[65]", 5, "the size is 65, expected a whole number from 1 to 64"},
      {"mlp[2](w=[-1,-1.5e30])", 14, "w is -1.5e30, expected a number from -1e30 to 1e30"},
      {"mlp[2](w=[-1,--1])", 14, "\"-\" is not a finite decimal number"},
      {"mlp[2](w=[-1,1,1])", 10, "w has a list of 3, expected 2"},
      {"mlp[2](t=-1)", 10, "t is -1, expected a positive number from 1e-60 to 1e60"},
      {"mlp[2](c=-0.5)", 10, "c is -0.5, expected a positive number"},
      {"mlp[1](t=@a,w=@a)", 15, "@a is t of mlp, which is trained in another form than w of mlp"},
      {"mlp[2](w=@a)*mlp[3](w=@a)", 23, "@a has 3 values here, and 2 in mlp"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hark_positional *kernel = (hark_positional *)&kernel;
    char start[32];
    const hark_status status = hark_positional_create(context, cases[i].text, &kernel);
    (void)snprintf(start, sizeof start, "positional kernel, column %d: ", cases[i].column);
    const char *message = hark_context_message(context);
    if (status != HARK_INVALID_ARGUMENT || strncmp(message, start, strlen(start)) != 0 || strstr(message, cases[i].part) == NULL)
      fail_msg("\"%s\": %s \"%s\", expected \"%s...%s\"", cases[i].text, hark_status_name(status), message, start, cases[i].part);
    assert_null(kernel);
    assert_null(strchr(message, '\n'));
  }
  test_setup_close(context);
}

/* part, part sign part, ... `count` times */
static const char *repeat(const char *part, const char *sign, int count) {
  size_t used = 0;
  for (int i = 0; i < count; i++) used += (size_t)snprintf(large + used, sizeof large - used, "%s%s", i > 0 ? sign : "", part);
  return large;
}

static const char *nested(const char *open, int depth) {
  size_t used = 0;
  for (int i = 0; i < depth; i++) used += (size_t)snprintf(large + used, sizeof large - used, "%s", open);
  used += (size_t)snprintf(large + used, sizeof large - used, "decay");
  for (int i = 0; i < depth; i++) large[used++] = ')';
  large[used] = '\0';
  return large;
}

static void refuse(hark_context *context, const char *expression, int column, const char *part) {
  hark_positional *kernel = NULL;
  char start[32];
  (void)snprintf(start, sizeof start, "column %d: ", column);
  const hark_status status = hark_positional_create(context, expression, &kernel);
  assert_failure(context, status, HARK_INVALID_ARGUMENT, start);
  assert_failure(context, status, HARK_INVALID_ARGUMENT, part);
}

static void limits_are_kept(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *kernel = parse(context, nested("(", HARK_POSITIONAL_DEPTH));
  hark_positional_destroy(context, &kernel);
  kernel = parse(context, nested("bank[1](", HARK_POSITIONAL_DEPTH));
  hark_positional_destroy(context, &kernel);
  refuse(context, nested("(", HARK_POSITIONAL_DEPTH + 1), HARK_POSITIONAL_DEPTH + 1, "deeper than 32");
  refuse(context, nested("(", 100000), HARK_POSITIONAL_DEPTH + 1, "deeper than 32");
  kernel = parse(context, repeat("alibi", "+", HARK_POSITIONAL_KERNELS));
  assert_int_equal(hark_positional_parameter_count(kernel), HARK_POSITIONAL_KERNELS);
  hark_positional_destroy(context, &kernel);
  refuse(context, repeat("alibi", "*", HARK_POSITIONAL_KERNELS + 1), 6 * HARK_POSITIONAL_KERNELS + 1, "more than 64 kernels");
  kernel = parse(context, "bank[1024](decay*periodic)");
  assert_int_equal(hark_positional_parameter_count(kernel), HARK_POSITIONAL_PARAMETERS);
  hark_positional_destroy(context, &kernel);
  refuse(context, "bank[1024](decay*periodic+constant)", 27, "5120 parameters up to here, expected at most 4096");
  refuse(context, "bank[1024](table[5])", 12, "5120 parameters up to here, expected at most 4096");
  refuse(context, "bank[1024](bank[5](window(3)))", 12, "5120 components in banks inside each other");
  refuse(context, repeat("bank[1024](window(1))", "+", 9), 1 + 7 * 22 + 11, "with all banks written out");
  refuse(context, repeat("bank[1](bank[1](bank[1](bank[1](alibi))))", "+", 64), 1 + 42 * 51,
         "more than 256 kernels, sums, products and banks");
  memset(large, ' ', HARK_POSITIONAL_TEXT_BYTES);
  memcpy(large, "decay", 5);
  large[HARK_POSITIONAL_TEXT_BYTES] = '\0';
  kernel = parse(context, large);
  hark_positional_destroy(context, &kernel);
  large[HARK_POSITIONAL_TEXT_BYTES] = ' ';
  large[HARK_POSITIONAL_TEXT_BYTES + 1] = '\0';
  refuse(context, large, HARK_POSITIONAL_TEXT_BYTES + 1, "expected at most 1048576 bytes");
  test_setup_close(context);
}

/* --- printing
 * -------------------------------------------------------------------------------------------------------------------------- */

static test_kernel expression;

/* Printing and parsing give the same expression: with the values of the text, and with other parameters. */
static void printing_reads_back(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const hark_positional_start start = {.struct_size = sizeof start};
  for (int i = 0; i < 400; i++) {
    test_kernel_random(&expression, (uint64_t)(5000 + i), i % 4, false);
    hark_positional *first = parse(context, expression.text);
    const int64_t count = hark_positional_parameter_count(first);
    double *given = calloc((size_t)count + 1, sizeof(double)), *back = calloc((size_t)count + 1, sizeof(double));
    assert_non_null(given);
    assert_non_null(back);
    for (int learned = 0; learned < 2; learned++) {
      assert_fine(context, hark_positional_initial(context, first, &start, given));
      for (int64_t p = 0; p < count && learned; p++) given[p] = (float)(given[p] + sin((double)p)); /* as from a checkpoint in f32 */
      const size_t length = hark_positional_print(first, learned ? given : NULL, text, sizeof text);
      assert_int_equal(length, strlen(text));
      hark_positional *second = parse(context, text);
      assert_int_equal(hark_positional_print(second, NULL, again, sizeof again), length);
      assert_string_equal(text, again);
      assert_fine(context, hark_positional_initial(context, second, &start, back));
      for (int64_t p = 0; p < count; p++) {
        const bool same = learned ? !hark_positional_is_learned(first, p) || (float)back[p] == (float)given[p]
                                  : memcmp(&back[p], &given[p], sizeof *back) == 0;
        const bool period = fabs(given[p]) > 3; /* far out on the sigmoid of a canonical period an ulp of tau is many of rho */
        if (!same && !(learned && period && fabs(back[p] - given[p]) < 1e-12 * exp(fabs(given[p]))))
          fail_msg("%s: parameter %d is %.17g, read back as %.17g", text, (int)p, given[p], back[p]);
      }
      hark_positional_destroy(context, &second);
    }
    hark_positional_destroy(context, &first);
    free(given);
    free(back);
  }
  test_setup_close(context);
}

static void short_buffers_are_enough_to_ask(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *kernel = parse(context, "bank[2](decay(l=[3,4])*periodic)+window(3)");
  const size_t length = hark_positional_print(kernel, NULL, NULL, 0);
  assert_int_equal(hark_positional_print(kernel, NULL, text, sizeof text), length);
  for (size_t size = 1; size <= length + 1; size++) {
    memset(again, '#', size + 1);
    assert_int_equal(hark_positional_print(kernel, NULL, again, size), length);
    assert_int_equal(strlen(again), size - 1);
    assert_memory_equal(again, text, size - 1);
    assert_int_equal(again[size], '#');
  }
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

/* Texts of several expressions: columns are those of the whole text, and each expression is read to its separator only. */
static void lists_have_the_columns_of_their_text(void **state) {
  (void)state;
  static const struct {
    const char *list, *message;
  } cases[] = {
      {"decay|decai", "column 7: no kernel is called \"decai\""},
      {"decay|", "column 7: found the end"},
      {"|decay", "column 1: found '|', expected a kernel"},
      {"decay||rbf", "column 7: found '|', expected a kernel"},
      {"decay(l=|rbf", "column 9: found '|', expected a number"},
      {"decay(l=3@a,sigma2=@a)|rbf(l=@b,sigma2=@b)|rbf(l=2!", "found the end"},
      {"decay(l=3@a)|rbf(l=@a)", "@a occurs once"},
      {"bank[2](decay|rbf)", "column 14: found '|'"},
      {"decay | rbf) | t5", "column 12: found ')', expected '+', '*' or the end"},
  };
  hark_context *context = test_reference_open();
  hark_positional_list list;
  hark_positional *kernel = NULL;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_failure(context, hark_positional_list_open(context, cases[i].list, &list), HARK_INVALID_ARGUMENT, cases[i].message);
    hark_positional_list_close(context, &list);
  }
  assert_fine(context, hark_positional_list_open(context, " decay( length_scale = 3 ) |\tbank[2](rbf*alibi)|table[7]", &list));
  assert_int_equal(list.count, 3);
  assert_int_equal(list.columns, 7);
  assert_int_equal(hark_positional_named(list.items[1], 0).column, 38);
  assert_int_equal(hark_positional_list_print(&list, text, sizeof text), strlen("decay(l=3)|bank[2](rbf*alibi)|table[7]"));
  assert_string_equal(text, "decay(l=3)|bank[2](rbf*alibi)|table[7]");
  for (size_t size = 0; size <= strlen(text); size++) { /* always terminated, never beyond the room */
    memset(again, 'x', sizeof text);
    assert_int_equal(hark_positional_list_print(&list, again, size), strlen(text));
    if (size > 0) assert_true(strlen(again) < size && strncmp(again, text, strlen(again)) == 0);
    assert_true(again[size] == 'x');
  }
  hark_positional_list_close(context, &list);
  assert_fine(context, hark_positional_list_open(context, "", &list));
  assert_int_equal(list.count, 0);
  hark_positional_list_close(context, &list);
  assert_failure(context, hark_positional_create(context, "decay|rbf", &kernel), HARK_INVALID_ARGUMENT,
                 "column 6: '|' separates the expressions of a model's heads or layers, expected one expression");
  test_setup_close(context);
}

/* Good texts with a few bytes changed, left out or doubled: refused with a column of the text, or read and printed to the same again. */
static void garbled_texts_do_no_harm(void **state) {
  (void)state;
  static const char *const seeds[] = {"bank[2](decay(sigma2=[1.5,0.4],l=[30,8]@a)*periodic(alpha=[0.7,1.3]!,tau=@a))",
                                      "(constant(3)+window(w=16))*bank[3](t5+alibi(m=1e-3))",
                                      "rbf*(rational_quadratic(alpha=.5)+matern32(length_scale=7.25e1))*kerple_power",
                                      "bank[2](mlp[2](c=0.1,t=[0.5,4,1,9],w=[-1,0.25,-3e-2,0]))*xpos(base=512!)"};
  static const char bytes[] = "()[]+*,=.-e0123456789 \t\nabcdelnrw_\xC3\x01!@";
  hark_context *context = test_reference_open();
  const hark_random_stream stream = {.seed = 11, .layer_purpose = hark_random_layer_purpose(5, HARK_RANDOM_TEST)};
  uint64_t drawn = 0;
  int read = 0, refused = 0;
  for (int i = 0; i < 30000; i++) {
    hark_positional *kernel = NULL;
    size_t length = strlen(strcpy(large, seeds[i % 4]));
    const uint32_t changes = 1 + hark_random_word(&stream, drawn++) % 3;
    for (uint32_t c = 0; c < changes; c++) {
      const size_t at = hark_random_word(&stream, drawn++) % (length + 1);
      const char byte = bytes[hark_random_word(&stream, drawn++) % (sizeof bytes - 1)];
      const uint32_t kind = hark_random_word(&stream, drawn++) % 3;
      if (kind == 0 && at < length) large[at] = byte;
      if (kind == 1) memmove(large + at + 1, large + at, length - at + 1), large[at] = byte, length++;
      if (kind == 2 && at < length) memmove(large + at, large + at + 1, length - at), length--;
    }
    const hark_status status = hark_positional_create(context, large, &kernel);
    int column = 0;
    if (status != HARK_OK) {
      if (status != HARK_INVALID_ARGUMENT || sscanf(hark_context_message(context), "positional kernel, column %d:", &column) != 1 ||
          column < 1 || column > (int)length + 1)
        fail_msg("\"%s\": %s", large, hark_context_message(context));
      refused++;
      continue;
    }
    const size_t printed = hark_positional_print(kernel, NULL, text, sizeof text);
    hark_positional_destroy(context, &kernel);
    kernel = parse(context, text);
    assert_int_equal(hark_positional_print(kernel, NULL, again, sizeof again), printed);
    assert_string_equal(again, text);
    hark_positional_destroy(context, &kernel);
    read++;
  }
  assert_true(read > 1000 && refused > 10000);
  test_setup_close(context);
}

/* --- memory
 * ---------------------------------------------------------------------------------------------------------------------------- */

static void memory_may_run_out(void **state) {
  (void)state;
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0, failures = 0;
  do {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    const hark_positional_start start = {.struct_size = sizeof start};
    hark_positional *kernel = NULL;
    double raw[32], distance = 3, value, weight = 1, gradient[32];
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_positional_create(context, "bank[8](decay*periodic)", &kernel);
    if (status == HARK_OK) status = hark_positional_initial(context, kernel, &start, raw);
    if (status == HARK_OK) status = hark_positional_log(context, kernel, raw, &distance, 1, &value);
    if (status == HARK_OK) status = hark_positional_gradient(context, kernel, raw, &distance, &weight, 1, gradient);
    failures += status == HARK_OUT_OF_MEMORY;
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
    hark_positional_destroy(context, &kernel);
    test_memory_context_end(context, &memory);
  } while (status != HARK_OK);
  assert_int_equal(failures, 4); /* two to parse, one for each evaluation */
}

static void expressions_can_be_placed(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  _Alignas(16) char memory[HARK_POSITIONAL_PLACE_BYTES];
  const hark_positional *kernel = NULL;
  const uint64_t before = hark_context_memory(context).allocations;
  assert_fine(context, hark_positional_place(context, "bank[8](decay*periodic)+t5+constant", memory, sizeof memory, &kernel));
  assert_true(hark_context_memory(context).allocations == before);
  assert_int_equal(hark_positional_print(kernel, NULL, text, sizeof text), strlen("bank[8](decay*periodic)+t5+constant"));
  assert_fine(context, hark_positional_place(context, "bank[128](alibi)", memory, sizeof memory, &kernel));
  assert_fine(context, hark_positional_place(context, repeat("constant", "*", 15), memory, sizeof memory, &kernel));
  assert_failure(context, hark_positional_place(context, "bank[300](alibi)", memory, sizeof memory, &kernel), HARK_TOO_LARGE, "column 11");
  assert_null(kernel);
  assert_failure(context, hark_positional_place(context, repeat("constant", "*", 16), memory, sizeof memory, &kernel), HARK_TOO_LARGE,
                 "16 parts only");
  assert_failure(context, hark_positional_place(context, "alibi", memory + 1, sizeof memory - 1, &kernel), HARK_INVALID_ARGUMENT,
                 "aligned");
  for (size_t bytes = 0; bytes < 512; bytes += 16) {
    char *exact = malloc(bytes + 1); /* sanitizers watch its end */
    const hark_status status = hark_positional_place(context, "decay+decay", exact, bytes, &kernel);
    assert_true(status == HARK_TOO_LARGE || (bytes >= 200 && status == HARK_OK));
    free(exact);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spellings_have_one_form),
      cmocka_unit_test(mistakes_have_a_column),
      cmocka_unit_test(lists_have_the_columns_of_their_text),
      cmocka_unit_test(limits_are_kept),
      cmocka_unit_test(printing_reads_back),
      cmocka_unit_test(short_buffers_are_enough_to_ask),
      cmocka_unit_test(garbled_texts_do_no_harm),
      cmocka_unit_test(memory_may_run_out),
      cmocka_unit_test(expressions_can_be_placed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
