/* tables.c - see tables.h. */
#include "lab/tables.h"

hark_status hark_lab_draw_columns(hark_lab *lab, const hark_lab_table *table, hark_lab_axes axes, int x, const hark_lab_drawn *drawn,
                                  int count) {
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int c = 0; c < count; c++) {
    hark_lab_curve *curve;
    HARK_TRY(hark_lab_add_curve(lab, panel, drawn[c].style, &curve, "%s", drawn[c].label));
    for (int64_t i = 0; i < hark_lab_row_count(table); i++)
      HARK_TRY(hark_lab_add_point(curve, hark_lab_row(table, i)[x], hark_lab_row(table, i)[drawn[c].column]));
  }
  return HARK_OK;
}

hark_lab_range hark_lab_column_range(const hark_lab_table *table, int column, int over) {
  hark_lab_range range = {INFINITY, -INFINITY};
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    const double value = over == HARK_LAB_ALONE ? row[column] : row[column] / row[over];
    range.least = hark_lab_smaller(range.least, value);
    range.largest = hark_lab_larger(range.largest, value);
  }
  return range;
}

hark_status hark_lab_require_range(hark_lab *lab, hark_lab_range range, double low, double high, const char *name) {
  HARK_TRY(hark_lab_require(lab, range.least, low, high, "%s, least", name));
  return hark_lab_require(lab, range.largest, low, high, "%s, largest", name);
}
