/* tables.h - curves and criteria of whole columns of a table. */
#ifndef HARK_LAB_TABLES_H
#define HARK_LAB_TABLES_H

#include "lab/lab.h"

/* A column as a curve; the label is "" for one that is not in the key. */
typedef struct hark_lab_drawn {
  int column;
  hark_lab_style style;
  const char *label;
} hark_lab_drawn;

/* A new panel with columns of a table over its column `x`. */
HARK_MUST_CHECK hark_status hark_lab_draw_columns(hark_lab *lab, const hark_lab_table *table, hark_lab_axes axes, int x,
                                                  const hark_lab_drawn *drawn, int count);

#define HARK_LAB_ALONE (-1) /* as `over`: the column itself, without a ratio */

/* Least and largest number of a column, or of its ratio to the column `over`, over all rows; NaN where one is. */
typedef struct hark_lab_range {
  double least, largest;
} hark_lab_range;
hark_lab_range hark_lab_column_range(const hark_lab_table *table, int column, int over);

/* Two criteria: the least and the largest are in [low, high]. ", least" or ", largest" follows `name`. */
HARK_MUST_CHECK hark_status hark_lab_require_range(hark_lab *lab, hark_lab_range range, double low, double high, const char *name);

#endif
