/* spread_rows.h - spread rows of which every process also gets others': those within a window, or all rows of a short sequence. */
#ifndef HARK_ATTENTION_SPREAD_ROWS_H
#define HARK_ATTENTION_SPREAD_ROWS_H

#include "attention/layer.h"
#include "attention/spread.h"

/* HARK_UNSUPPORTED for what has other arguments than rows, tables and masks of hierarchies; names the field. */
HARK_MUST_CHECK hark_status hark_spread_rows_check(hark_context *context, const hark_attention_plan *plan);

/* args: checked, of this process's rows. near: the plan's structure is window, and a process gets the rows that meet its own, in whole
 * tiles of `tile` queries; otherwise every process gets all rows. */
HARK_MUST_CHECK hark_status hark_spread_rows(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                             bool backward, const hark_spread *spread, bool near, int64_t tile);

/* Bytes of its memory (hark_attention_spread_bytes). */
HARK_MUST_CHECK hark_status hark_spread_rows_bytes(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                                   bool backward, const hark_spread *spread, bool near, int64_t tile, size_t *bytes);

#endif
