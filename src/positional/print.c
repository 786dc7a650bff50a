/* print.c - an expression as text, in a form that is the same for all its spellings: own names, no blanks, parentheses only around a sum
 * inside a product, a list only if its values differ. Parsing it gives the same tree and the same values, bit by bit. */
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "positional/expression.h"

typedef struct printer_state {
  const hark_positional *positional;
  const double *parameters; /* NULL: the values given in the text */
  char *text;
  size_t size, length;
} printer_state;

static void put(printer_state *printer, const char *text) {
  for (; *text != '\0'; text++, printer->length++) {
    if (printer->length + 1 < printer->size) printer->text[printer->length] = *text;
  }
}

static void put_number(printer_state *printer, double value) {
  char text[HARK_NUMBER_BYTES];
  put(printer, hark_number_print(value, text));
}

static double value_at(const printer_state *printer, const hark_positional_part *part, int p, int32_t place) {
  if (printer->parameters == NULL) return printer->positional->given[place];
  const double natural = hark_positional_value(printer->positional, part, p, place, printer->parameters[place]);
  /* a canonical period ends at the smallest value, which rounding may miss */
  const double least = hark_transform_range(part->leaf->parameters[p].transform).low;
  return natural < least && natural > least * (1 - 1e-15) ? least : natural;
}

static bool all_equal(const printer_state *printer, const hark_positional_part *part, int p) {
  const int32_t start = hark_part_first(part, p), count = hark_part_values(part, p);
  bool equal = true;
  for (int32_t i = 1; i < count; i++) equal = equal && value_at(printer, part, p, start + i) == value_at(printer, part, p, start);
  return equal;
}

/* "{2:40}" */
static void put_bounds(printer_state *printer, const hark_positional_part *part, int p) {
  if (!hark_part_is_bounded(part, p)) return;
  put(printer, "{");
  put_number(printer, part->bounds[p].low);
  put(printer, ":");
  put_number(printer, part->bounds[p].high);
  put(printer, "}");
}

/* "3", "[1.5,0.4]", "3!" */
static void put_values(printer_state *printer, const hark_positional_part *part, int p) {
  const int32_t start = hark_part_first(part, p), count = hark_part_values(part, p);
  const bool equal = all_equal(printer, part, p);
  if (!equal) put(printer, "[");
  for (int32_t i = 0; i < (equal ? 1 : count); i++) {
    if (i > 0) put(printer, ",");
    put_number(printer, value_at(printer, part, p, start + i));
  }
  if (!equal) put(printer, "]");
  if (hark_part_is_fixed(part, p)) put(printer, "!");
}

/* "name=3", "name=3{2:40}@a", "name=@a"; nothing for values that were not given and have neither bounds nor a label. */
static bool put_argument(printer_state *printer, const hark_positional_part *part, int p, bool first) {
  const char label[] = {'@', part->label[p], '\0'};
  const hark_part_owner owner = hark_part_owner_of(printer->positional, part, p);
  const bool given = printer->parameters != NULL || !isnan(printer->positional->given[hark_part_first(part, p)]);
  if (!given && part->label[p] == 0 && !hark_part_is_bounded(part, p)) return false;
  put(printer, first ? "(" : ",");
  put(printer, part->leaf->parameters[p].name);
  put(printer, "=");
  if (given && owner.part == part && owner.p == p) put_values(printer, part, p);
  put_bounds(printer, part, p);
  if (part->label[p] != 0) put(printer, label);
  return true;
}

static void put_leaf(printer_state *printer, const hark_positional_part *part) {
  bool first = true;
  if (part->leaf == &hark_leaf_constant && hark_part_is_fixed(part, 0) && part->label[0] == 0 && all_equal(printer, part, 0)) {
    put_number(printer, value_at(printer, part, 0, part->parameter_first));
    return;
  }
  put(printer, part->leaf->name);
  if (part->leaf->size_limit > 0 && part->constant != part->leaf->size_default) {
    put(printer, "[");
    put_number(printer, part->constant);
    put(printer, "]");
  }
  for (int p = 0; p < part->leaf->parameter_count; p++) first = !put_argument(printer, part, p, first) && first;
  if (part->leaf->constant != NULL) {
    put(printer, first ? "(" : ",");
    put(printer, part->leaf->constant);
    put(printer, "=");
    put_number(printer, part->constant);
    first = false;
  }
  if (!first) put(printer, ")");
}

/* The parser limits the depth. */
static void put_part(printer_state *printer, int32_t index) {
  const hark_positional_part *part = &printer->positional->parts[index];
  if (part->kind == HARK_PART_LEAF) {
    put_leaf(printer, part);
    return;
  }
  if (part->kind == HARK_PART_BANK) {
    char size[32];
    (void)snprintf(size, sizeof size, "bank[%d](", (int)part->bank);
    put(printer, size);
    put_part(printer, index + 1);
    put(printer, ")");
    return;
  }
  if (part->kind == HARK_PART_DIRECTION) {
    put(printer, part->sides == HARK_SIDE_LEFT ? "left(" : "right(");
    put_part(printer, index + 1);
    put(printer, ")");
    return;
  }
  for (int32_t child = index + 1; child < index + part->size; child += printer->positional->parts[child].size) {
    const bool around = part->kind == HARK_PART_PRODUCT && printer->positional->parts[child].kind == HARK_PART_SUM;
    if (child > index + 1) put(printer, part->kind == HARK_PART_SUM ? "+" : "*");
    if (around) put(printer, "(");
    put_part(printer, child);
    if (around) put(printer, ")");
  }
}

size_t hark_positional_print(const hark_positional *positional, const double *parameters, char *text, size_t size) {
  printer_state printer = {.positional = positional, .parameters = parameters, .text = text, .size = size};
  put_part(&printer, 0);
  if (size > 0) text[printer.length < size ? printer.length : size - 1] = '\0';
  return printer.length;
}
