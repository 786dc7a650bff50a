/* parse.c - parses the text of an expression into a tree; every mistake is reported with its column.
 *
 *   expression = product { "+" product }
 *   product    = factor { "*" factor }
 *   factor     = "(" expression ")" | "bank" "[" whole "]" "(" expression ")" | ("left" | "right") "(" expression ")" | leaf | number
 *   leaf       = name [ "[" whole "]" ] [ "(" [ argument { "," argument } ] ")" ]      the number in brackets only for leaves that have one
 *   argument   = [ parameter "=" ] value          the name is optional if the leaf has only one parameter
 *   value      = "@" letter | [ number | "[" number { "," number } "]" ] [ "!" | "{" number ":" number "}" ] [ "@" letter ]
 *
 * Blanks, tabs and line ends are allowed between all of these. A list has a value for every component that the banks around the leaf make
 * (times the values of one component); a single number is the value of all. "!" fixes them, {low:high} bounds them. Parameters with one
 * letter have the same values, which may be given at the first one; a letter that occurs once is refused. A number as a factor is a fixed
 * constant. Nested sums and nested products are joined: a+(b+c) is a+b+c. left(...) and right(...) are not inside each other.
 *
 * The tree grows in a block of memory of fixed size: parts at its beginning, given values after the room for parts. create() copies the
 * used ones into a separate block.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/overlap.h"
#include "io/number.h"
#include "io/words.h"
#include "positional/expression.h"

/* Leaves, and the parts around them: a tree of KERNELS leaves has fewer sums and products than leaves; the rest is for banks. */
enum { PARTS_LIMIT = 4 * HARK_POSITIONAL_KERNELS };
#define PLACE_PARTS 16 /* that fit into HARK_POSITIONAL_PLACE_BYTES */
#define WORD_BYTES 32  /* of a word in a message */
#define LETTERS 26     /* from a to z */

typedef struct parser_state {
  hark_context *context;
  const char *text;
  int32_t length, at;
  int depth, kernels;
  int32_t direction;               /* the place of the left(...) or right(...) that is being read; -1: none */
  int32_t part_limit, given_limit; /* capacity of the memory */
  int32_t letter_at[LETTERS];      /* where a letter was read first */
  int32_t letter_count[LETTERS];
  hark_positional *tree;
} parser_state;

static int column_of(int32_t at) { return at + 1; }

/* The text at the parser's place, for messages. */
static const char *found(const parser_state *parser, char text[WORD_BYTES]) {
  const unsigned char c = parser->at < parser->length ? (unsigned char)parser->text[parser->at] : 0;
  if (parser->at >= parser->length)
    (void)snprintf(text, WORD_BYTES, "%s", parser->text[parser->length] == '\0' ? "the end" : "'|'"); /* or another expression follows */
  else if (c > ' ' && c < 127)
    (void)snprintf(text, WORD_BYTES, "'%c'", c);
  else
    (void)snprintf(text, WORD_BYTES, "byte 0x%02X", c);
  return text;
}

#define COMPLAIN(parser, place, ...) complain((parser)->context, column_of(place), __VA_ARGS__)

static hark_status complain(hark_context *context, int column, const char *format, ...) HARK_PRINTF(3, 4);
static hark_status complain(hark_context *context, int column, const char *format, ...) {
  char text[HARK_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return hark_fail(context, HARK_INVALID_ARGUMENT, "positional kernel, column %d: %s", column, text);
}

static hark_status expected(const parser_state *parser, const char *what) {
  char text[WORD_BYTES];
  return COMPLAIN(parser, parser->at, "found %s, expected %s", found(parser, text), what);
}

static void skip_blanks(parser_state *parser) {
  while (parser->at < parser->length && strchr(" \t\r\n", parser->text[parser->at]) != NULL) parser->at++;
}

static bool take(parser_state *parser, char c) {
  skip_blanks(parser);
  if (parser->at >= parser->length || parser->text[parser->at] != c) return false;
  parser->at++;
  return true;
}

static hark_status need(parser_state *parser, char c, const char *what) { return take(parser, c) ? HARK_OK : expected(parser, what); }

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The length of the word at the parser's place, 0 if there is none. */
static int32_t word_length(const parser_state *parser) {
  int32_t end = parser->at;
  if (end >= parser->length || !is_letter(parser->text[end])) return 0;
  while (end < parser->length && (is_letter(parser->text[end]) || is_digit(parser->text[end]))) end++;
  return end - parser->at;
}

static bool word_is(const parser_state *parser, int32_t length, const char *word) {
  return strlen(word) == (size_t)length && memcmp(parser->text + parser->at, word, (size_t)length) == 0;
}

/* The word as text, cut if it is longer than messages need. */
static const char *word_text(const parser_state *parser, int32_t length, char text[WORD_BYTES]) {
  (void)snprintf(text, WORD_BYTES, "%.*s", (int)hark_min(length, WORD_BYTES - 1), parser->text + parser->at);
  return text;
}

static hark_status too_many_parts(const parser_state *parser, int32_t at) {
  if (parser->part_limit < PARTS_LIMIT)
    return hark_fail(parser->context, HARK_TOO_LARGE, "positional kernel, column %d: the memory given holds %d parts only", column_of(at),
                     (int)parser->part_limit);
  return COMPLAIN(parser, at, "more than %d kernels, sums, products and banks", PARTS_LIMIT);
}

/* Makes room for a part at `index`, moving the later ones up. */
static hark_status insert_part(parser_state *parser, int32_t index, int32_t at, const hark_positional_part *part) {
  hark_positional *tree = parser->tree;
  if (tree->part_count == parser->part_limit) return too_many_parts(parser, at);
  memmove(&tree->parts[index + 1], &tree->parts[index], (size_t)(tree->part_count - index) * sizeof *tree->parts);
  tree->parts[index] = *part;
  tree->parts[index].column = column_of(at);
  tree->part_count++;
  return HARK_OK;
}

/* --- numbers -------------------------------------------------------------------------------------------------------------------------- */

/* A number ends at the first character that cannot belong to one. */
static hark_status read_number(parser_state *parser, double *out, int32_t *place) {
  skip_blanks(parser);
  int32_t end = parser->at;
  while (end < parser->length) {
    const char c = parser->text[end], before = end > parser->at ? parser->text[end - 1] : 0;
    const bool sign = (c == '+' || c == '-') && (end == parser->at || before == 'e' || before == 'E');
    if (!is_digit(c) && !is_letter(c) && c != '.' && !sign) break;
    end++;
  }
  *place = parser->at;
  if (end == parser->at) return expected(parser, "a number");
  if (!hark_number_read(parser->text + parser->at, (size_t)(end - parser->at), out)) {
    char text[WORD_BYTES];
    return COMPLAIN(parser, parser->at, "\"%s\" is not a finite decimal number", word_text(parser, end - parser->at, text));
  }
  parser->at = end;
  return HARK_OK;
}

static hark_status read_whole(parser_state *parser, const char *what, int64_t least, int64_t most, int64_t *out) {
  double value;
  int32_t place;
  HARK_TRY(read_number(parser, &value, &place));
  char number[HARK_NUMBER_BYTES];
  if (value != floor(value) || value < (double)least || value > (double)most)
    return COMPLAIN(parser, place, "%s is %s, expected a whole number from %" PRId64 " to %" PRId64, what, hark_number_print(value, number),
                    least, most);
  *out = (int64_t)value;
  return HARK_OK;
}

/* A natural value, times the factor of the given name. */
static hark_status read_value(parser_state *parser, const hark_leaf_parameter *parameter, double factor, double *out) {
  double value;
  int32_t place;
  HARK_TRY(read_number(parser, &value, &place));
  const double natural = value * factor;
  const hark_value_range range = hark_transform_range(parameter->transform);
  char given[HARK_NUMBER_BYTES], low[HARK_NUMBER_BYTES], high[HARK_NUMBER_BYTES];
  if (!(natural >= range.low && natural <= range.high))
    return COMPLAIN(parser, place, "%s is %s, expected a %snumber from %s to %s", parameter->name, hark_number_print(value, given),
                    range.low > 0 ? "positive " : "", hark_number_print(range.low / factor, low),
                    hark_number_print(range.high / factor, high));
  *out = natural;
  return HARK_OK;
}

/* --- leaves --------------------------------------------------------------------------------------------------------------------------- */

/* One number for all values, or a list with each of them. */
static hark_status read_values(parser_state *parser, const hark_leaf_parameter *parameter, double factor, double *values, int32_t count) {
  skip_blanks(parser);
  const int32_t start = parser->at;
  if (!take(parser, '[')) {
    HARK_TRY(read_value(parser, parameter, factor, &values[0]));
    for (int32_t i = 1; i < count; i++) values[i] = values[0];
    return HARK_OK;
  }
  int32_t given = 0;
  do {
    double value;
    HARK_TRY(read_value(parser, parameter, factor, &value));
    if (given < count) values[given] = value;
    given++;
  } while (take(parser, ','));
  HARK_TRY(need(parser, ']', "',' or ']'"));
  if (given == count) return HARK_OK;
  return COMPLAIN(parser, start, "%s has a list of %d, expected %d: one number for every component", parameter->name, (int)given,
                  (int)count);
}

/* "sigma2, l" */
static void list_parameters(const hark_leaf *leaf, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int p = 0; p < leaf->parameter_count && used < size; p++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", leaf->parameters[p].name);
  if (leaf->constant != NULL && used < size) (void)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", leaf->constant);
}

static hark_status expected_parameter(const parser_state *parser, const hark_leaf *leaf) {
  char list[HARK_MESSAGE_BYTES / 2], what[HARK_MESSAGE_BYTES / 2 + WORD_BYTES];
  list_parameters(leaf, list, sizeof list);
  (void)snprintf(what, sizeof what, "a parameter of %s: %s", leaf->name, list);
  return expected(parser, what);
}

#define NO_PARAMETER (-1)

/* Reads "name =" and finds the parameter; `parameter_count` means the constant. Without a name: the only parameter. */
static hark_status read_parameter(parser_state *parser, const hark_leaf *leaf, int *parameter, double *factor) {
  skip_blanks(parser);
  const int32_t length = word_length(parser);
  const int names = leaf->parameter_count + (leaf->constant != NULL);
  char list[HARK_MESSAGE_BYTES / 2], word[WORD_BYTES];
  list_parameters(leaf, list, sizeof list);
  *factor = 1;
  if (length == 0 && names == 1) {
    *parameter = 0;
    return HARK_OK;
  }
  if (length == 0) return expected_parameter(parser, leaf);
  *parameter = NO_PARAMETER;
  for (int p = 0; p < leaf->parameter_count && *parameter == NO_PARAMETER; p++) {
    const hark_leaf_parameter *candidate = &leaf->parameters[p];
    const bool other = candidate->other_name != NULL && word_is(parser, length, candidate->other_name);
    if (other) *factor = candidate->other_factor;
    if (other || word_is(parser, length, candidate->name)) *parameter = p;
  }
  if (leaf->constant != NULL && word_is(parser, length, leaf->constant)) *parameter = leaf->parameter_count;
  if (*parameter == NO_PARAMETER)
    return COMPLAIN(parser, parser->at, "%s has no parameter \"%s\", expected one of %s", leaf->name, word_text(parser, length, word),
                    list);
  parser->at += length;
  return need(parser, '=', "'='");
}

/* Compares the label that was read with the earlier places of the same one. */
static hark_status check_label(const parser_state *parser, const hark_positional_part *part, int p, int32_t place, bool given) {
  const hark_positional *tree = parser->tree;
  for (int32_t i = 0; i <= tree->part_count; i++) {
    const hark_positional_part *const at = i < tree->part_count ? &tree->parts[i] : part;
    for (int q = 0; at->kind == HARK_PART_LEAF && q < at->leaf->parameter_count; q++) {
      const hark_leaf_parameter *const own = &part->leaf->parameters[p], *const other = &at->leaf->parameters[q];
      const int32_t count = hark_part_values(part, p), there = hark_part_values(at, q);
      if (at->label[q] != part->label[p] || (at == part && q == p)) continue;
      if (given)
        return COMPLAIN(parser, place, "@%c is %s of %s already: values are given there", part->label[p], other->name, at->leaf->name);
      if (count != there)
        return COMPLAIN(parser, place, "@%c has %d values here, and %d in %s: expected as many", part->label[p], (int)count, (int)there,
                        at->leaf->name);
      if (own->transform != other->transform)
        return COMPLAIN(parser, place, "@%c is %s of %s, which is trained in another form than %s of %s", part->label[p], other->name,
                        at->leaf->name, own->name, part->leaf->name);
      return HARK_OK;
    }
  }
  return HARK_OK;
}

/* Within a kernel the first parameter, in the kernel's order, is the one that has the values of a label. */
static void move_to_first(hark_positional *tree, hark_positional_part *part, int p) {
  double *const to = tree->given + hark_part_first(part, p);
  for (int q = p + 1; q < part->leaf->parameter_count; q++) {
    double *const from = tree->given + hark_part_first(part, q);
    if (part->label[q] != part->label[p]) continue;
    for (int32_t i = 0; i < hark_part_values(part, p); i++) {
      to[i] = from[i];
      from[i] = NAN;
    }
    if (hark_part_is_fixed(part, q)) part->fixed = (uint8_t)((part->fixed & ~(1u << q)) | 1u << p);
    if (hark_part_is_bounded(part, q)) part->bounded = (uint8_t)((part->bounded & ~(1u << q)) | 1u << p);
    part->bounds[p] = part->bounds[q];
    return; /* of several the first has them */
  }
}

static void note_letter(parser_state *parser, char letter, int32_t place) {
  if (parser->letter_count[letter - 'a']++ == 0) parser->letter_at[letter - 'a'] = place;
}

/* A letter that occurs once is a mistake in writing. */
static hark_status check_letters(const parser_state *parser) {
  for (int i = 0; i < LETTERS; i++)
    if (parser->letter_count[i] == 1)
      return COMPLAIN(parser, parser->letter_at[i], "@%c occurs once and shares its value with nothing: expected two or more", 'a' + i);
  return HARK_OK;
}

/* "{2:40}" after the values, if there are any. */
static hark_status read_bounds(parser_state *parser, hark_positional_part *part, int p, double factor) {
  const hark_leaf_parameter *const parameter = &part->leaf->parameters[p];
  hark_value_range *const bounds = &part->bounds[p];
  const double *const values = parser->tree->given + hark_part_first(part, p);
  char given[HARK_NUMBER_BYTES], low[HARK_NUMBER_BYTES], high[HARK_NUMBER_BYTES];
  skip_blanks(parser);
  const int32_t place = parser->at;
  if (!take(parser, '{')) return HARK_OK;
  if (hark_part_is_fixed(part, p)) return COMPLAIN(parser, place, "%s is fixed by '!', expected no bounds", parameter->name);
  HARK_TRY(read_value(parser, parameter, factor, &bounds->low));
  HARK_TRY(need(parser, ':', "':'"));
  HARK_TRY(read_value(parser, parameter, factor, &bounds->high));
  HARK_TRY(need(parser, '}', "'}'"));
  (void)hark_number_print(bounds->low / factor, low);
  (void)hark_number_print(bounds->high / factor, high);
  if (!(bounds->low < bounds->high))
    return COMPLAIN(parser, place, "%s has the bounds %s and %s, expected a larger second one", parameter->name, low, high);
  for (int32_t i = 0; i < hark_part_values(part, p); i++)
    if (values[i] < bounds->low || values[i] > bounds->high)
      return COMPLAIN(parser, place, "%s is %s, expected a number within its bounds %s and %s", parameter->name,
                      hark_number_print(values[i] / factor, given), low, high);
  part->bounded = (uint8_t)(part->bounded | 1u << p);
  return HARK_OK;
}

/* The values of a parameter: "3", "3!", "3{2:40}", "{2:40}", "3@a", "@a". */
static hark_status read_values_or_label(parser_state *parser, hark_positional_part *part, int p, double factor) {
  skip_blanks(parser);
  const bool given = parser->at >= parser->length || parser->text[parser->at] != '@', bounds = given && parser->text[parser->at] == '{';
  double *const values = parser->tree->given + hark_part_first(part, p);
  if (given && !bounds) HARK_TRY(read_values(parser, &part->leaf->parameters[p], factor, values, hark_part_values(part, p)));
  if (given && take(parser, '!')) part->fixed = (uint8_t)(part->fixed | 1u << p);
  if (given) HARK_TRY(read_bounds(parser, part, p, factor));
  skip_blanks(parser);
  const int32_t place = parser->at;
  if (!take(parser, '@')) return HARK_OK;
  skip_blanks(parser);
  const char letter = parser->at < parser->length ? parser->text[parser->at] : '\0';
  if (letter < 'a' || letter > 'z') return expected(parser, "a letter from a to z after '@'");
  parser->at++;
  if (factor != 1)
    return COMPLAIN(parser, place, "@%c shares values of %s, expected %s=", letter, part->leaf->parameters[p].name,
                    part->leaf->parameters[p].name);
  part->label[p] = letter;
  note_letter(parser, letter, place);
  HARK_TRY(check_label(parser, part, p, place, given));
  if (!given) move_to_first(parser->tree, part, p);
  return HARK_OK;
}

static hark_status read_arguments(parser_state *parser, hark_positional_part *part, bool *has_constant) {
  const hark_leaf *leaf = part->leaf;
  bool seen[HARK_LEAF_PARAMETERS] = {false};
  if (take(parser, ')')) return HARK_OK;
  do {
    int p = NO_PARAMETER;
    double factor;
    skip_blanks(parser);
    const int32_t place = parser->at;
    if (place < parser->length && parser->text[place] == ')') return expected_parameter(parser, leaf); /* after a comma */
    HARK_TRY(read_parameter(parser, leaf, &p, &factor));
    const bool is_constant = p == leaf->parameter_count;
    if (is_constant ? *has_constant : seen[p])
      return COMPLAIN(parser, place, "%s is given twice", is_constant ? leaf->constant : leaf->parameters[p].name);
    if (is_constant) {
      int64_t whole;
      HARK_TRY(read_whole(parser, leaf->constant, 0, (int64_t)HARK_POSITIONAL_LARGEST_DISTANCE, &whole));
      part->constant = (double)whole;
      *has_constant = true;
    } else {
      seen[p] = true;
      HARK_TRY(read_values_or_label(parser, part, p, factor));
    }
  } while (take(parser, ','));
  return need(parser, ')', "',' or ')'");
}

/* All words that may stand before parentheses: kernels, and what is no kernel after them. */
static const char *const others[] = {"bank", "left", "right"};
enum { OTHERS = sizeof others / sizeof *others };
static const char *word_name(const void *user, int index) {
  (void)user;
  int count;
  const hark_leaf *const *const leaves = hark_leaves(&count);
  return index < count ? leaves[index]->name : others[index - count];
}

/* Finds the leaf whose name is at the parser's place. */
static hark_status find_leaf(parser_state *parser, int32_t length, const hark_leaf **out) {
  int count;
  const hark_leaf *const *leaves = hark_leaves(&count);
  for (int i = 0; i < count; i++) {
    if (!word_is(parser, length, leaves[i]->name)) continue;
    *out = leaves[i];
    return HARK_OK;
  }
  char word[WORD_BYTES], list[HARK_MESSAGE_BYTES / 2];
  size_t used = 0;
  (void)word_text(parser, length, word);
  const char *near = hark_nearest_word(word, count + OTHERS, word_name, NULL);
  if (near != NULL) return COMPLAIN(parser, parser->at, "no kernel is called \"%s\"; %s is", word, near);
  for (int i = 0; i < count && used < sizeof list; i++) used += (size_t)snprintf(list + used, sizeof list - used, "%s, ", leaves[i]->name);
  return COMPLAIN(parser, parser->at, "no kernel is called \"%s\", expected one of %sbank[M](...), left(...) or right(...)", word, list);
}

/* A part for a leaf, with numbers that are not given. `size`: K of a leaf that is written name[K]. */
static hark_status open_leaf(parser_state *parser, int32_t place, int32_t components, const hark_leaf *leaf, int64_t size,
                             hark_positional_part *out) {
  hark_positional *tree = parser->tree;
  *out = (hark_positional_part){.kind = HARK_PART_LEAF,
                                .size = 1,
                                .components = components,
                                .parameter_first = tree->parameter_count,
                                .constant = (double)size,
                                .leaf = leaf};
  if (++parser->kernels > HARK_POSITIONAL_KERNELS) return COMPLAIN(parser, place, "more than %d kernels", HARK_POSITIONAL_KERNELS);
  int64_t values = 0;
  for (int p = 0; p < leaf->parameter_count; p++) values += hark_part_values(out, p);
  const int64_t end = tree->parameter_count + values;
  if (end > HARK_POSITIONAL_PARAMETERS)
    return COMPLAIN(parser, place, "%" PRId64 " parameters up to here, expected at most %d", end, HARK_POSITIONAL_PARAMETERS);
  if (end > parser->given_limit)
    return hark_fail(parser->context, HARK_TOO_LARGE, "positional kernel, column %d: the memory given holds %d parameters only",
                     column_of(place), (int)parser->given_limit);
  for (int64_t i = tree->parameter_count; i < end; i++) tree->given[i] = NAN;
  tree->parameter_count = (int32_t)end;
  return HARK_OK;
}

/* A number as a factor: a constant that is not learned. */
static hark_status read_factor_number(parser_state *parser, int32_t components) {
  static const hark_leaf_parameter a_factor = {.name = "a factor"};
  const int32_t place = parser->at;
  hark_positional_part part;
  double value;
  HARK_TRY(read_value(parser, &a_factor, 1, &value));
  HARK_TRY(open_leaf(parser, place, components, &hark_leaf_constant, 0, &part));
  for (int32_t i = 0; i < components; i++) parser->tree->given[part.parameter_first + i] = value;
  part.fixed = 1u;
  return insert_part(parser, parser->tree->part_count, place, &part);
}

static hark_status read_leaf(parser_state *parser, int32_t components) {
  hark_positional *tree = parser->tree;
  const int32_t place = parser->at, length = word_length(parser);
  const hark_leaf *leaf = NULL;
  hark_positional_part part;
  HARK_TRY(find_leaf(parser, length, &leaf));
  parser->at += length;
  int64_t size = leaf->size_default;
  if (leaf->size_limit > 0 && take(parser, '[')) {
    HARK_TRY(read_whole(parser, "the size", hark_max(1, leaf->size_least), leaf->size_limit, &size));
    HARK_TRY(need(parser, ']', "']'"));
  } else if (leaf->size_limit > 0 && size == 0) {
    return COMPLAIN(parser, place, "%s needs its size: %s[64]", leaf->name, leaf->name);
  }
  HARK_TRY(open_leaf(parser, place, components, leaf, size, &part));
  bool has_constant = leaf->constant == NULL;
  const int32_t after = parser->at;
  if (take(parser, '('))
    HARK_TRY(read_arguments(parser, &part, &has_constant));
  else
    parser->at = after;
  if (!has_constant)
    return COMPLAIN(parser, place, "%s needs %s: %s(%s=16)", part.leaf->name, part.leaf->constant, part.leaf->name, part.leaf->constant);
  return insert_part(parser, tree->part_count, place, &part);
}

/* --- sums, products, banks ------------------------------------------------------------------------------------------------------------ */

static hark_status read_expression(parser_state *parser, int32_t components);

static hark_status enter(parser_state *parser, int32_t place) {
  if (++parser->depth <= HARK_POSITIONAL_DEPTH) return HARK_OK;
  return COMPLAIN(parser, place, "parentheses and banks inside each other deeper than %d", HARK_POSITIONAL_DEPTH);
}

/* "[" M "]" "(" expression ")", after the word bank. */
static hark_status read_bank(parser_state *parser, int32_t place, int32_t components) {
  hark_positional_part part = {.kind = HARK_PART_BANK, .components = components};
  int64_t size;
  HARK_TRY(need(parser, '[', "'[' and the number of components"));
  HARK_TRY(read_whole(parser, "the bank", 1, HARK_POSITIONAL_BANK, &size));
  HARK_TRY(need(parser, ']', "']'"));
  part.bank = (int32_t)size;
  if (size * components > HARK_POSITIONAL_COMPONENTS)
    return COMPLAIN(parser, place, "%" PRId64 " components in banks inside each other, expected at most %d", size * components,
                    HARK_POSITIONAL_COMPONENTS);
  HARK_TRY(need(parser, '(', "'('"));
  const int32_t index = parser->tree->part_count;
  HARK_TRY(insert_part(parser, index, place, &part));
  HARK_TRY(read_expression(parser, (int32_t)size * components));
  parser->tree->parts[index].size = parser->tree->part_count - index;
  return need(parser, ')', "'+', '*' or ')'");
}

/* The direction that a word names, 0 for other words. */
static uint8_t direction_of(const parser_state *parser, int32_t length) {
  if (word_is(parser, length, "left")) return HARK_SIDE_LEFT;
  return word_is(parser, length, "right") ? HARK_SIDE_RIGHT : 0;
}

/* "(" expression ")", after the word left or right. */
static hark_status read_direction(parser_state *parser, int32_t place, uint8_t side, int32_t components) {
  const hark_positional_part part = {.kind = HARK_PART_DIRECTION, .components = components, .sides = side};
  if (parser->direction >= 0)
    return COMPLAIN(parser, place, "%s(...) inside of the %s(...) at column %d, expected only one direction",
                    side == HARK_SIDE_LEFT ? "left" : "right", parser->text[parser->direction] == 'l' ? "left" : "right",
                    column_of(parser->direction));
  HARK_TRY(need(parser, '(', "'('"));
  const int32_t index = parser->tree->part_count;
  HARK_TRY(insert_part(parser, index, place, &part));
  parser->direction = place;
  HARK_TRY(read_expression(parser, components));
  parser->direction = -1;
  parser->tree->parts[index].size = parser->tree->part_count - index;
  return need(parser, ')', "'+', '*' or ')'");
}

static hark_status read_factor(parser_state *parser, int32_t components) {
  skip_blanks(parser);
  const int32_t place = parser->at, length = word_length(parser);
  const bool bank = length > 0 && word_is(parser, length, "bank");
  const uint8_t side = length > 0 ? direction_of(parser, length) : 0;
  if (length > 0 && !bank && side == 0) return read_leaf(parser, components);
  const char first = place < parser->length ? parser->text[place] : '\0';
  if (is_digit(first) || first == '.') return read_factor_number(parser, components);
  if (length == 0 && !take(parser, '(')) return expected(parser, "a kernel, a positive number, bank[M](...), left(...), right(...) or '('");
  HARK_TRY(enter(parser, place));
  parser->at += length;
  if (bank) {
    HARK_TRY(read_bank(parser, place, components));
  } else if (side != 0) {
    HARK_TRY(read_direction(parser, place, side, components));
  } else {
    HARK_TRY(read_expression(parser, components));
    HARK_TRY(need(parser, ')', "'+', '*' or ')'"));
  }
  parser->depth--;
  return HARK_OK;
}

/* Reads one operand, whose part is at `index`; an operand of the same kind is replaced by its operands. */
typedef hark_status operand_reader(parser_state *parser, int32_t components);
static hark_status read_operand(parser_state *parser, operand_reader *read, hark_positional_kind kind, int32_t components) {
  hark_positional *tree = parser->tree;
  const int32_t index = tree->part_count;
  HARK_TRY(read(parser, components));
  if (tree->parts[index].kind != kind) return HARK_OK;
  memmove(&tree->parts[index], &tree->parts[index + 1], (size_t)(tree->part_count - index - 1) * sizeof *tree->parts);
  tree->part_count--;
  return HARK_OK;
}

/* operand { sign operand } as one part with all operands below it. A single operand stays as it is. */
static hark_status read_chain(parser_state *parser, operand_reader *read, char sign, hark_positional_kind kind, int32_t components) {
  hark_positional *tree = parser->tree;
  const int32_t index = tree->part_count;
  skip_blanks(parser);
  const int32_t place = parser->at;
  HARK_TRY(read(parser, components));
  const hark_positional_part part = {.kind = kind, .components = components};
  bool open = tree->parts[index].kind == kind; /* the first operand was a chain in parentheses: continue it */
  while (take(parser, sign)) {
    if (!open) HARK_TRY(insert_part(parser, index, place, &part));
    open = true;
    HARK_TRY(read_operand(parser, read, kind, components));
    tree->parts[index].size = tree->part_count - index;
  }
  return HARK_OK;
}

static hark_status read_product(parser_state *parser, int32_t components) {
  return read_chain(parser, read_factor, '*', HARK_PART_PRODUCT, components);
}

static hark_status read_expression(parser_state *parser, int32_t components) {
  return read_chain(parser, read_product, '+', HARK_PART_SUM, components);
}

/* Sets the sides of all parts: those of the direction around them, and for parts with directions inside, the sides of these together. */
static void set_sides(hark_positional *tree) {
  for (int32_t i = 0; i < tree->part_count; i++) {
    hark_positional_part *const part = &tree->parts[i];
    for (int32_t j = i + 1; part->kind == HARK_PART_DIRECTION && j < i + part->size; j++) tree->parts[j].sides = part->sides;
    if (part->sides == 0 && part->kind == HARK_PART_LEAF) part->sides = HARK_SIDE_LEFT | HARK_SIDE_RIGHT;
    tree->directed = tree->directed || part->kind == HARK_PART_DIRECTION;
  }
  for (int32_t i = tree->part_count - 1; i >= 0; i--) { /* operands follow their part */
    hark_positional_part *const part = &tree->parts[i];
    for (int32_t j = i + 1; part->kind != HARK_PART_DIRECTION && j < i + part->size; j += tree->parts[j].size)
      part->sides = (uint8_t)(part->sides | tree->parts[j].sides);
  }
}

/* Counts the copies of all parts. */
static hark_status count_values(parser_state *parser) {
  hark_positional *tree = parser->tree;
  int64_t values = 0;
  for (int32_t i = 0; i < tree->part_count; i++) {
    values += tree->parts[i].components;
    if (tree->parts[i].kind == HARK_PART_LEAF && values > (int64_t)2 * HARK_POSITIONAL_COMPONENTS)
      return complain(parser->context, tree->parts[i].column,
                      "%" PRId64 " kernels, sums, products and banks with all banks written out, expected at most %d", values,
                      2 * HARK_POSITIONAL_COMPONENTS);
  }
  tree->value_count = (int32_t)values;
  return HARK_OK;
}

/* Bytes before the given values. */
static size_t head_bytes(int32_t parts) { return sizeof(hark_positional) + (size_t)parts * sizeof(hark_positional_part); }

/* Where an expression is in its text: bytes begin .. end - 1. */
typedef struct text_range {
  const char *text;
  size_t begin, end;
} text_range;

/* Parses into a block of memory. */
static hark_status parse(hark_context *context, text_range range, void *memory, size_t bytes, int32_t parts, hark_positional **out) {
  hark_positional *tree = memory;
  *tree = (hark_positional){.bytes = bytes, .parts = (hark_positional_part *)(tree + 1)};
  tree->given = (double *)(tree->parts + parts);
  if (range.end > HARK_POSITIONAL_TEXT_BYTES)
    return complain(context, HARK_POSITIONAL_TEXT_BYTES + 1, "the text continues, expected at most %d bytes", HARK_POSITIONAL_TEXT_BYTES);
  parser_state parser = {.context = context,
                         .text = range.text,
                         .at = (int32_t)range.begin,
                         .length = (int32_t)range.end,
                         .part_limit = parts,
                         .direction = -1,
                         .given_limit = (int32_t)((bytes - head_bytes(parts)) / sizeof(double)),
                         .tree = tree};
  HARK_TRY(read_expression(&parser, 1));
  skip_blanks(&parser);
  if (parser.at < parser.length && range.text[parser.at] == HARK_POSITIONAL_SEPARATOR)
    return complain(context, parser.at + 1, "'|' separates the expressions of a model's heads or layers, expected one expression");
  if (parser.at < parser.length) return expected(&parser, "'+', '*' or the end");
  HARK_TRY(check_letters(&parser));
  HARK_TRY(count_values(&parser));
  set_sides(tree);
  *out = tree;
  return HARK_OK;
}

hark_status hark_positional_place(hark_context *context, const char *text, void *memory, size_t bytes, const hark_positional **out) {
  *out = NULL;
  if (text == NULL || memory == NULL || (uintptr_t)memory % _Alignof(max_align_t) != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "positional kernel: expected a text, and memory aligned to %zu bytes",
                     _Alignof(max_align_t));
  HARK_TRY(hark_check_apart(context, "positional kernel: memory and text", memory, bytes, text, strlen(text) + 1, false));
  /* Parts get the same fraction as in HARK_POSITIONAL_PLACE_BYTES. */
  const size_t parts = bytes / (HARK_POSITIONAL_PLACE_BYTES / PLACE_PARTS);
  if (parts < 1 || bytes < head_bytes((int32_t)hark_min((int64_t)parts, PARTS_LIMIT)))
    return hark_fail(context, HARK_TOO_LARGE, "positional kernel: memory of %zu bytes, expected %d or more", bytes,
                     HARK_POSITIONAL_PLACE_BYTES);
  hark_positional *tree = NULL;
  const text_range range = {.text = text, .end = strlen(text)};
  HARK_TRY(parse(context, range, memory, bytes, (int32_t)hark_min((int64_t)parts, PARTS_LIMIT), &tree));
  *out = tree;
  return HARK_OK;
}

hark_status hark_positional_create(hark_context *context, const char *text, hark_positional **out) {
  *out = NULL;
  if (text == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "positional kernel: the text is NULL");
  return hark_positional_create_between(context, text, 0, strlen(text), out);
}

hark_status hark_positional_create_between(hark_context *context, const char *text, size_t begin, size_t end, hark_positional **out) {
  *out = NULL;
  const size_t bytes = head_bytes(PARTS_LIMIT) + HARK_POSITIONAL_PARAMETERS * sizeof(double);
  void *memory = NULL, *block = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  hark_positional *tree = NULL;
  hark_status status = parse(context, (text_range){text, begin, end}, memory, bytes, PARTS_LIMIT, &tree);
  if (status == HARK_OK) {
    const size_t used = head_bytes(tree->part_count) + (size_t)tree->parameter_count * sizeof(double);
    status = hark_allocate(context, used, &block);
    if (status == HARK_OK) {
      hark_positional *kept = block;
      *kept = *tree;
      kept->bytes = used;
      kept->parts = (hark_positional_part *)(kept + 1);
      kept->given = (double *)(kept->parts + kept->part_count);
      memcpy(kept->parts, tree->parts, (size_t)tree->part_count * sizeof *tree->parts);
      memcpy(kept->given, tree->given, (size_t)tree->parameter_count * sizeof *tree->given);
      *out = kept;
    }
  }
  hark_release(context, memory, bytes);
  return status;
}

void hark_positional_destroy(hark_context *context, hark_positional **positional) {
  if (positional == NULL || *positional == NULL) return;
  hark_release(context, *positional, (*positional)->bytes);
  *positional = NULL;
}
