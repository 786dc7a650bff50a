/* parse_kernel.c - kernels with their parameters: values, fixed and bounded ones, letters that share values, numbers as factors. See
 * parser.h; the grammar is in parse.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "io/words.h"
#include "positional/parser.h"

/* One number for all values, or a list with each of them. */
static hark_status read_values(hark_parser *parser, const hark_leaf_parameter *parameter, double factor, double *values, int32_t count) {
  hark_parser_skip(parser);
  const int32_t start = parser->at;
  if (!hark_parser_take(parser, '[')) {
    HARK_TRY(hark_parser_value(parser, parameter, factor, &values[0]));
    for (int32_t i = 1; i < count; i++) values[i] = values[0];
    return HARK_OK;
  }
  int32_t given = 0;
  do {
    double value;
    HARK_TRY(hark_parser_value(parser, parameter, factor, &value));
    if (given < count) values[given] = value;
    given++;
  } while (hark_parser_take(parser, ','));
  HARK_TRY(hark_parser_need(parser, ']', "',' or ']'"));
  if (given == count) return HARK_OK;
  return HARK_COMPLAIN(parser, start, "%s has a list of %d, expected %d: one number for every component", parameter->name, (int)given,
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

static hark_status expected_parameter(const hark_parser *parser, const hark_leaf *leaf) {
  char list[HARK_MESSAGE_BYTES / 2], what[HARK_MESSAGE_BYTES / 2 + HARK_PARSER_WORD];
  list_parameters(leaf, list, sizeof list);
  (void)snprintf(what, sizeof what, "a parameter of %s: %s", leaf->name, list);
  return hark_parser_expected(parser, what);
}

#define NO_PARAMETER (-1)

/* Reads "name =" and finds the parameter; `parameter_count` means the constant. Without a name: the only parameter. */
static hark_status read_parameter(hark_parser *parser, const hark_leaf *leaf, int *parameter, double *factor) {
  hark_parser_skip(parser);
  const int32_t length = hark_parser_word(parser);
  const int names = leaf->parameter_count + (leaf->constant != NULL);
  char list[HARK_MESSAGE_BYTES / 2], word[HARK_PARSER_WORD];
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
    const bool other = candidate->other_name != NULL && hark_parser_word_is(parser, length, candidate->other_name);
    if (other) *factor = candidate->other_factor;
    if (other || hark_parser_word_is(parser, length, candidate->name)) *parameter = p;
  }
  if (leaf->constant != NULL && hark_parser_word_is(parser, length, leaf->constant)) *parameter = leaf->parameter_count;
  if (*parameter == NO_PARAMETER)
    return HARK_COMPLAIN(parser, parser->at, "%s has no parameter \"%s\", expected one of %s", leaf->name,
                         hark_parser_word_text(parser, length, word), list);
  parser->at += length;
  return hark_parser_need(parser, '=', "'='");
}

/* Compares the label that was read with the earlier places of the same one. */
static hark_status check_label(const hark_parser *parser, const hark_positional_part *part, int p, int32_t place, bool given) {
  const hark_positional *tree = parser->tree;
  for (int32_t i = 0; i <= tree->part_count; i++) {
    const hark_positional_part *const at = i < tree->part_count ? &tree->parts[i] : part;
    for (int q = 0; at->kind == HARK_PART_LEAF && q < at->leaf->parameter_count; q++) {
      const hark_leaf_parameter *const own = &part->leaf->parameters[p], *const other = &at->leaf->parameters[q];
      const int32_t count = hark_part_values(part, p), there = hark_part_values(at, q);
      if (at->label[q] != part->label[p] || (at == part && q == p)) continue;
      if (given)
        return HARK_COMPLAIN(parser, place, "@%c is %s of %s already: values are given there", part->label[p], other->name, at->leaf->name);
      if (count != there)
        return HARK_COMPLAIN(parser, place, "@%c has %d values here, and %d in %s: expected as many", part->label[p], (int)count,
                             (int)there, at->leaf->name);
      if (own->transform != other->transform)
        return HARK_COMPLAIN(parser, place, "@%c is %s of %s, which is trained in another form than %s of %s", part->label[p], other->name,
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

static void note_letter(hark_parser *parser, char letter, int32_t place) {
  if (parser->letter_count[letter - 'a']++ == 0) parser->letter_at[letter - 'a'] = place;
}

/* A letter that occurs once is a mistake in writing. */
hark_status hark_parser_check_letters(const hark_parser *parser) {
  for (int i = 0; i < HARK_PARSER_LETTERS; i++)
    if (parser->letter_count[i] == 1)
      return HARK_COMPLAIN(parser, parser->letter_at[i], "@%c occurs once and shares its value with nothing: expected two or more",
                           'a' + i);
  return HARK_OK;
}

/* "{2:40}" after the values, if there are any. */
static hark_status read_bounds(hark_parser *parser, hark_positional_part *part, int p, double factor) {
  const hark_leaf_parameter *const parameter = &part->leaf->parameters[p];
  hark_value_range *const bounds = &part->bounds[p];
  const double *const values = parser->tree->given + hark_part_first(part, p);
  char given[HARK_NUMBER_BYTES], low[HARK_NUMBER_BYTES], high[HARK_NUMBER_BYTES];
  hark_parser_skip(parser);
  const int32_t place = parser->at;
  if (!hark_parser_take(parser, '{')) return HARK_OK;
  if (hark_part_is_fixed(part, p)) return HARK_COMPLAIN(parser, place, "%s is fixed by '!', expected no bounds", parameter->name);
  HARK_TRY(hark_parser_value(parser, parameter, factor, &bounds->low));
  HARK_TRY(hark_parser_need(parser, ':', "':'"));
  HARK_TRY(hark_parser_value(parser, parameter, factor, &bounds->high));
  HARK_TRY(hark_parser_need(parser, '}', "'}'"));
  (void)hark_number_print(bounds->low / factor, low);
  (void)hark_number_print(bounds->high / factor, high);
  if (!(bounds->low < bounds->high))
    return HARK_COMPLAIN(parser, place, "%s has the bounds %s and %s, expected a larger second one", parameter->name, low, high);
  for (int32_t i = 0; i < hark_part_values(part, p); i++)
    if (values[i] < bounds->low || values[i] > bounds->high)
      return HARK_COMPLAIN(parser, place, "%s is %s, expected a number within its bounds %s and %s", parameter->name,
                           hark_number_print(values[i] / factor, given), low, high);
  part->bounded = (uint8_t)(part->bounded | 1u << p);
  return HARK_OK;
}

/* The values of a parameter: "3", "3!", "3{2:40}", "{2:40}", "3@a", "@a". */
static hark_status read_values_or_label(hark_parser *parser, hark_positional_part *part, int p, double factor) {
  hark_parser_skip(parser);
  const bool given = parser->at >= parser->length || parser->text[parser->at] != '@', bounds = given && parser->text[parser->at] == '{';
  double *const values = parser->tree->given + hark_part_first(part, p);
  if (given && !bounds) HARK_TRY(read_values(parser, &part->leaf->parameters[p], factor, values, hark_part_values(part, p)));
  if (given && hark_parser_take(parser, '!')) part->fixed = (uint8_t)(part->fixed | 1u << p);
  if (given) HARK_TRY(read_bounds(parser, part, p, factor));
  hark_parser_skip(parser);
  const int32_t place = parser->at;
  if (!hark_parser_take(parser, '@')) return HARK_OK;
  hark_parser_skip(parser);
  const char letter = parser->at < parser->length ? parser->text[parser->at] : '\0';
  if (letter < 'a' || letter > 'z') return hark_parser_expected(parser, "a letter from a to z after '@'");
  parser->at++;
  if (factor != 1)
    return HARK_COMPLAIN(parser, place, "@%c shares values of %s, expected %s=", letter, part->leaf->parameters[p].name,
                         part->leaf->parameters[p].name);
  part->label[p] = letter;
  note_letter(parser, letter, place);
  HARK_TRY(check_label(parser, part, p, place, given));
  if (!given) move_to_first(parser->tree, part, p);
  return HARK_OK;
}

static hark_status read_arguments(hark_parser *parser, hark_positional_part *part, bool *has_constant) {
  const hark_leaf *leaf = part->leaf;
  bool seen[HARK_LEAF_PARAMETERS] = {false};
  if (hark_parser_take(parser, ')')) return HARK_OK;
  do {
    int p = NO_PARAMETER;
    double factor;
    hark_parser_skip(parser);
    const int32_t place = parser->at;
    if (place < parser->length && parser->text[place] == ')') return expected_parameter(parser, leaf); /* after a comma */
    HARK_TRY(read_parameter(parser, leaf, &p, &factor));
    const bool is_constant = p == leaf->parameter_count;
    if (is_constant ? *has_constant : seen[p])
      return HARK_COMPLAIN(parser, place, "%s is given twice", is_constant ? leaf->constant : leaf->parameters[p].name);
    if (is_constant) {
      int64_t whole;
      HARK_TRY(hark_parser_whole(parser, leaf->constant, 0, (int64_t)HARK_POSITIONAL_LARGEST_DISTANCE, &whole));
      part->constant = (double)whole;
      *has_constant = true;
    } else {
      seen[p] = true;
      HARK_TRY(read_values_or_label(parser, part, p, factor));
    }
  } while (hark_parser_take(parser, ','));
  return hark_parser_need(parser, ')', "',' or ')'");
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
static hark_status find_leaf(hark_parser *parser, int32_t length, const hark_leaf **out) {
  int count;
  const hark_leaf *const *leaves = hark_leaves(&count);
  for (int i = 0; i < count; i++) {
    if (!hark_parser_word_is(parser, length, leaves[i]->name)) continue;
    *out = leaves[i];
    return HARK_OK;
  }
  char word[HARK_PARSER_WORD], list[HARK_MESSAGE_BYTES / 2];
  size_t used = 0;
  (void)hark_parser_word_text(parser, length, word);
  const char *near = hark_nearest_word(word, count + OTHERS, word_name, NULL);
  if (near != NULL) return HARK_COMPLAIN(parser, parser->at, "no kernel is called \"%s\"; %s is", word, near);
  for (int i = 0; i < count && used < sizeof list; i++) used += (size_t)snprintf(list + used, sizeof list - used, "%s, ", leaves[i]->name);
  return HARK_COMPLAIN(parser, parser->at, "no kernel is called \"%s\", expected one of %sbank[M](...), left(...) or right(...)", word,
                       list);
}

/* A part for a leaf, with numbers that are not given. `size`: K of a leaf that is written name[K]. */
static hark_status open_leaf(hark_parser *parser, int32_t place, int32_t components, const hark_leaf *leaf, int64_t size,
                             hark_positional_part *out) {
  hark_positional *tree = parser->tree;
  *out = (hark_positional_part){.kind = HARK_PART_LEAF,
                                .size = 1,
                                .components = components,
                                .parameter_first = tree->parameter_count,
                                .constant = (double)size,
                                .leaf = leaf};
  if (++parser->kernels > HARK_POSITIONAL_KERNELS) return HARK_COMPLAIN(parser, place, "more than %d kernels", HARK_POSITIONAL_KERNELS);
  int64_t values = 0;
  for (int p = 0; p < leaf->parameter_count; p++) values += hark_part_values(out, p);
  const int64_t end = tree->parameter_count + values;
  if (end > HARK_POSITIONAL_PARAMETERS)
    return HARK_COMPLAIN(parser, place, "%" PRId64 " parameters up to here, expected at most %d", end, HARK_POSITIONAL_PARAMETERS);
  if (end > parser->given_limit)
    return hark_fail(parser->context, HARK_TOO_LARGE, "positional kernel, column %d: the memory given holds %d parameters only",
                     hark_parser_column(place), (int)parser->given_limit);
  for (int64_t i = tree->parameter_count; i < end; i++) tree->given[i] = NAN;
  tree->parameter_count = (int32_t)end;
  return HARK_OK;
}

/* A number as a factor: a constant that is not learned. */
hark_status hark_parser_constant(hark_parser *parser, int32_t components) {
  static const hark_leaf_parameter a_factor = {.name = "a factor"};
  const int32_t place = parser->at;
  hark_positional_part part;
  double value;
  HARK_TRY(hark_parser_value(parser, &a_factor, 1, &value));
  HARK_TRY(open_leaf(parser, place, components, &hark_leaf_constant, 0, &part));
  for (int32_t i = 0; i < components; i++) parser->tree->given[part.parameter_first + i] = value;
  part.fixed = 1u;
  return hark_parser_insert(parser, parser->tree->part_count, place, &part);
}

hark_status hark_parser_kernel(hark_parser *parser, int32_t components) {
  hark_positional *tree = parser->tree;
  const int32_t place = parser->at, length = hark_parser_word(parser);
  const hark_leaf *leaf = NULL;
  hark_positional_part part;
  HARK_TRY(find_leaf(parser, length, &leaf));
  parser->at += length;
  int64_t size = leaf->size_default;
  if (leaf->size_limit > 0 && hark_parser_take(parser, '[')) {
    HARK_TRY(hark_parser_whole(parser, "the size", hark_max(1, leaf->size_least), leaf->size_limit, &size));
    HARK_TRY(hark_parser_need(parser, ']', "']'"));
  } else if (leaf->size_limit > 0 && size == 0) {
    return HARK_COMPLAIN(parser, place, "%s needs its size: %s[64]", leaf->name, leaf->name);
  }
  HARK_TRY(open_leaf(parser, place, components, leaf, size, &part));
  bool has_constant = leaf->constant == NULL;
  const int32_t after = parser->at;
  if (hark_parser_take(parser, '('))
    HARK_TRY(read_arguments(parser, &part, &has_constant));
  else
    parser->at = after;
  if (!has_constant)
    return HARK_COMPLAIN(parser, place, "%s needs %s: %s(%s=16)", part.leaf->name, part.leaf->constant, part.leaf->name,
                         part.leaf->constant);
  return hark_parser_insert(parser, tree->part_count, place, &part);
}
