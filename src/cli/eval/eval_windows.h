/* eval_windows.h - hark eval --window-cut: the same weights with attention that is cut to a window, for growing windows, so that the loss
 * shows which distances matter to a model. */
#ifndef HARK_CLI_EVAL_EVAL_WINDOWS_H
#define HARK_CLI_EVAL_EVAL_WINDOWS_H

#include "cli/eval/eval_report.h"
#include "cli/model.h"

#define HARK_EVAL_WINDOWS 64 /* at most */

typedef struct hark_eval_windows {
  int64_t sizes[HARK_EVAL_WINDOWS];
  int count;
  bool automatic; /* 1, 2, 4, ... below each context, in place of `sizes` */
} hark_eval_windows;

/* For check: reads "4,8,16" or "auto", and refuses models whose attention cannot be cut, and --structure. Problems are added to
 * the call's options. */
HARK_MUST_CHECK hark_status hark_eval_windows_read(hark_invocation *call, const hark_config *config, const hark_string_list *words,
                                                   hark_eval_windows *out);

/* Number of measurements at a context, the last of which is not cut; 1 without windows. And the window of one, HARK_EVAL_UNCUT for the
 * last. */
int hark_eval_windows_count(const hark_eval_windows *windows, int64_t context);
int64_t hark_eval_windows_at(const hark_eval_windows *windows, int64_t context, int index);

/* The attention of all layers becomes that of a window. */
void hark_eval_windows_cut(hark_config *config, int64_t window);

/* Appends the members of "exchanged": those of `exchanged`, and the window. */
void hark_eval_windows_exchange(const char *exchanged, int64_t window, hark_text *text);

/* A table for each context: losses over windows, what is lost by the cut, and what each window gains over the previous one. */
void hark_eval_windows_print(const hark_eval_report *reports, int count, hark_text *text);

#endif
