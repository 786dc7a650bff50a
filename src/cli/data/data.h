/* data.h - the parts of hark data: statistics of examples, and a sheet of pictures. */
#ifndef HARK_CLI_DATA_DATA_H
#define HARK_CLI_DATA_DATA_H

#include "data/examples/examples.h"
#include "io/text.h"

/* Counts, classes, lengths and operators of every split that has examples, for people or as one JSON object. */
HARK_MUST_CHECK hark_status hark_data_print_info(hark_context *context, const hark_examples *examples, bool json, hark_text *text);

typedef struct hark_data_sheet {
  hark_split split;
  int64_t count, columns; /* images, and how many in a row */
  int64_t scale;          /* points per pixel */
} hark_data_sheet;

/* The first images of a split as SVG, each with its class below. Errors: HARK_BAD_CONFIGURATION (no images). */
HARK_MUST_CHECK hark_status hark_data_print_sheet(hark_context *context, const hark_examples *examples, const hark_data_sheet *sheet,
                                                  hark_text *text);

#endif
