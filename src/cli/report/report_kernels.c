/* report_kernels.c - learned positions of a report's runs: positional kernels over the distance, rotary rates over the pairs. */
#include <inttypes.h>
#include <stddef.h>

#include "cli/plot/plot_positional.h"
#include "cli/report/report.h"
#include "json/json.h"

#define NEAR 64        /* distances that are all kept */
#define FAR_POINTS 192 /* of a curve beyond them */
#define TERMS 8        /* of a kernel */

typedef struct kernel_list {
  hark_report *report;
  const hark_report_run *run;
  int64_t panels;   /* of this run */
  bool begun, open; /* a panel of any run was appended; its list of curves is to be closed */
} kernel_list;

/* Near distances keep every point, as kernels may be periodic. */
static void thin(hark_series *series) {
  if (series->count <= NEAR + FAR_POINTS) return;
  hark_series far = *series;
  far.points += (ptrdiff_t)2 * NEAR;
  far.count -= NEAR;
  hark_series_thin(&far, FAR_POINTS);
  series->count = NEAR + far.count;
}

static void begin_panel(kernel_list *list, const hark_positional_curve *curve) {
  hark_text *const text = &list->report->data;
  if (list->open) hark_text_append(text, "]}");
  hark_text_append(text, "%s\n{\"run\":%" PRId64 ",\"rates\":%s,\"title\":", list->begun ? "," : "", list->run->index,
                   curve->rates ? "true" : "false");
  hark_json_append_string(text, curve->panel);
  hark_text_append(text, ",\"curves\":[");
  list->begun = list->open = true;
}

static hark_status take_curve(void *user, const hark_positional_curve *curve) {
  kernel_list *const list = user;
  hark_text *const text = &list->report->data;
  if (curve->index == 0) list->panels++;
  if (list->panels > list->report->values->kernels || curve->index > TERMS) return HARK_OK;
  if (curve->index == 0)
    begin_panel(list, curve);
  else
    hark_text_append(text, ",");
  thin(curve->series);
  hark_report_append_series(curve->series, text);
  return text->status;
}

hark_status hark_report_add_kernels(hark_report *report) {
  kernel_list list = {.report = report};
  int64_t left_out = 0;
  hark_text_append(&report->data, ",\"kernels\":[");
  for (int64_t i = 0; i < report->detailed; i++) {
    list.run = &report->runs[i];
    list.panels = 0;
    const hark_status status = hark_positional_curves_visit(report->context, list.run->path, report->values->checkpoint, take_curve, &list);
    /* a run without a checkpoint has none */
    if (status != HARK_NOT_FOUND) HARK_TRY(hark_report_keep_problem(report, list.run->index, status));
    left_out += hark_max(0, list.panels - report->values->kernels);
  }
  hark_text_append(&report->data, list.open ? "]}]" : "]");
  hark_text_append(&report->data, ",\"kernels_left_out\":%" PRId64, left_out);
  return report->data.status;
}
