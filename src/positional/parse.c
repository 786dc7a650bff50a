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
#include <stddef.h>
#include <string.h>

#include "core/overlap.h"
#include "positional/parser.h"

/* Leaves, and the parts around them: a tree of KERNELS leaves has fewer sums and products than leaves; the rest is for banks. */
enum { PARTS_LIMIT = 4 * HARK_POSITIONAL_KERNELS };
#define PLACE_PARTS 16 /* that fit into HARK_POSITIONAL_PLACE_BYTES */

static hark_status too_many_parts(const hark_parser *parser, int32_t at) {
  if (parser->part_limit < PARTS_LIMIT)
    return hark_fail(parser->context, HARK_TOO_LARGE, "positional kernel, column %d: the memory given holds %d parts only",
                     hark_parser_column(at), (int)parser->part_limit);
  return HARK_COMPLAIN(parser, at, "more than %d kernels, sums, products and banks", PARTS_LIMIT);
}

/* Makes room for a part at `index`, moving the later ones up. */
hark_status hark_parser_insert(hark_parser *parser, int32_t index, int32_t at, const hark_positional_part *part) {
  hark_positional *tree = parser->tree;
  if (tree->part_count == parser->part_limit) return too_many_parts(parser, at);
  memmove(&tree->parts[index + 1], &tree->parts[index], (size_t)(tree->part_count - index) * sizeof *tree->parts);
  tree->parts[index] = *part;
  tree->parts[index].column = hark_parser_column(at);
  tree->part_count++;
  return HARK_OK;
}

/* --- sums, products, banks ------------------------------------------------------------------------------------------------------------ */

static hark_status read_expression(hark_parser *parser, int32_t components);

static hark_status enter(hark_parser *parser, int32_t place) {
  if (++parser->depth <= HARK_POSITIONAL_DEPTH) return HARK_OK;
  return HARK_COMPLAIN(parser, place, "parentheses and banks inside each other deeper than %d", HARK_POSITIONAL_DEPTH);
}

/* "[" M "]" "(" expression ")", after the word bank. */
static hark_status read_bank(hark_parser *parser, int32_t place, int32_t components) {
  hark_positional_part part = {.kind = HARK_PART_BANK, .components = components};
  int64_t size;
  HARK_TRY(hark_parser_need(parser, '[', "'[' and the number of components"));
  HARK_TRY(hark_parser_whole(parser, "the bank", 1, HARK_POSITIONAL_BANK, &size));
  HARK_TRY(hark_parser_need(parser, ']', "']'"));
  part.bank = (int32_t)size;
  if (size * components > HARK_POSITIONAL_COMPONENTS)
    return HARK_COMPLAIN(parser, place, "%" PRId64 " components in banks inside each other, expected at most %d", size * components,
                         HARK_POSITIONAL_COMPONENTS);
  HARK_TRY(hark_parser_need(parser, '(', "'('"));
  const int32_t index = parser->tree->part_count;
  HARK_TRY(hark_parser_insert(parser, index, place, &part));
  HARK_TRY(read_expression(parser, (int32_t)size * components));
  parser->tree->parts[index].size = parser->tree->part_count - index;
  return hark_parser_need(parser, ')', "'+', '*' or ')'");
}

/* The direction that a word names, 0 for other words. */
static uint8_t direction_of(const hark_parser *parser, int32_t length) {
  if (hark_parser_word_is(parser, length, "left")) return HARK_SIDE_LEFT;
  return hark_parser_word_is(parser, length, "right") ? HARK_SIDE_RIGHT : 0;
}

/* "(" expression ")", after the word left or right. */
static hark_status read_direction(hark_parser *parser, int32_t place, uint8_t side, int32_t components) {
  const hark_positional_part part = {.kind = HARK_PART_DIRECTION, .components = components, .sides = side};
  if (parser->direction >= 0)
    return HARK_COMPLAIN(parser, place, "%s(...) inside of the %s(...) at column %d, expected only one direction",
                         side == HARK_SIDE_LEFT ? "left" : "right", parser->text[parser->direction] == 'l' ? "left" : "right",
                         hark_parser_column(parser->direction));
  HARK_TRY(hark_parser_need(parser, '(', "'('"));
  const int32_t index = parser->tree->part_count;
  HARK_TRY(hark_parser_insert(parser, index, place, &part));
  parser->direction = place;
  HARK_TRY(read_expression(parser, components));
  parser->direction = -1;
  parser->tree->parts[index].size = parser->tree->part_count - index;
  return hark_parser_need(parser, ')', "'+', '*' or ')'");
}

static hark_status read_factor(hark_parser *parser, int32_t components) {
  hark_parser_skip(parser);
  const int32_t place = parser->at, length = hark_parser_word(parser);
  const bool bank = length > 0 && hark_parser_word_is(parser, length, "bank");
  const uint8_t side = length > 0 ? direction_of(parser, length) : 0;
  if (length > 0 && !bank && side == 0) return hark_parser_kernel(parser, components);
  const char first = place < parser->length ? parser->text[place] : '\0';
  if (hark_parser_is_digit(first) || first == '.') return hark_parser_constant(parser, components);
  if (length == 0 && !hark_parser_take(parser, '('))
    return hark_parser_expected(parser, "a kernel, a positive number, bank[M](...), left(...), right(...) or '('");
  HARK_TRY(enter(parser, place));
  parser->at += length;
  if (bank) {
    HARK_TRY(read_bank(parser, place, components));
  } else if (side != 0) {
    HARK_TRY(read_direction(parser, place, side, components));
  } else {
    HARK_TRY(read_expression(parser, components));
    HARK_TRY(hark_parser_need(parser, ')', "'+', '*' or ')'"));
  }
  parser->depth--;
  return HARK_OK;
}

/* Reads one operand, whose part is at `index`; an operand of the same kind is replaced by its operands. */
typedef hark_status operand_reader(hark_parser *parser, int32_t components);
static hark_status read_operand(hark_parser *parser, operand_reader *read, hark_positional_kind kind, int32_t components) {
  hark_positional *tree = parser->tree;
  const int32_t index = tree->part_count;
  HARK_TRY(read(parser, components));
  if (tree->parts[index].kind != kind) return HARK_OK;
  memmove(&tree->parts[index], &tree->parts[index + 1], (size_t)(tree->part_count - index - 1) * sizeof *tree->parts);
  tree->part_count--;
  return HARK_OK;
}

/* operand { sign operand } as one part with all operands below it. A single operand stays as it is. */
static hark_status read_chain(hark_parser *parser, operand_reader *read, char sign, hark_positional_kind kind, int32_t components) {
  hark_positional *tree = parser->tree;
  const int32_t index = tree->part_count;
  hark_parser_skip(parser);
  const int32_t place = parser->at;
  HARK_TRY(read(parser, components));
  const hark_positional_part part = {.kind = kind, .components = components};
  bool open = tree->parts[index].kind == kind; /* the first operand was a chain in parentheses: continue it */
  while (hark_parser_take(parser, sign)) {
    if (!open) HARK_TRY(hark_parser_insert(parser, index, place, &part));
    open = true;
    HARK_TRY(read_operand(parser, read, kind, components));
    tree->parts[index].size = tree->part_count - index;
  }
  return HARK_OK;
}

static hark_status read_product(hark_parser *parser, int32_t components) {
  return read_chain(parser, read_factor, '*', HARK_PART_PRODUCT, components);
}

static hark_status read_expression(hark_parser *parser, int32_t components) {
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
static hark_status count_values(hark_parser *parser) {
  hark_positional *tree = parser->tree;
  int64_t values = 0;
  for (int32_t i = 0; i < tree->part_count; i++) {
    values += tree->parts[i].components;
    if (tree->parts[i].kind == HARK_PART_LEAF && values > (int64_t)2 * HARK_POSITIONAL_COMPONENTS)
      return hark_parser_complain(parser->context, tree->parts[i].column,
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
    return hark_parser_complain(context, HARK_POSITIONAL_TEXT_BYTES + 1, "the text continues, expected at most %d bytes",
                                HARK_POSITIONAL_TEXT_BYTES);
  hark_parser parser = {.context = context,
                        .text = range.text,
                        .at = (int32_t)range.begin,
                        .length = (int32_t)range.end,
                        .part_limit = parts,
                        .direction = -1,
                        .given_limit = (int32_t)((bytes - head_bytes(parts)) / sizeof(double)),
                        .tree = tree};
  HARK_TRY(read_expression(&parser, 1));
  hark_parser_skip(&parser);
  if (parser.at < parser.length && range.text[parser.at] == HARK_POSITIONAL_SEPARATOR)
    return hark_parser_complain(context, parser.at + 1,
                                "'|' separates the expressions of a model's heads or layers, expected one expression");
  if (parser.at < parser.length) return hark_parser_expected(&parser, "'+', '*' or the end");
  HARK_TRY(hark_parser_check_letters(&parser));
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
