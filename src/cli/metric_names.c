/* metric_names.c - see metric_names.h. */
#include "cli/metric_names.h"

#include <string.h>

#include "io/files.h"
#include "io/text.h"
#include "io/words.h"
#include "json/jsonl.h"

#define SHOWN 24           /* in a message */
#define MANY "positional/" /* the numbers of kernels, of which there may be thousands, are not shown */

typedef struct collecting {
  hark_context *context;
  json_t *names;
} collecting;

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  const collecting *const c = user;
  const char *name;
  json_t *value;
  (void)line;
  json_object_foreach((json_t *)object, name, value) {
    if ((!json_is_number(value) && !json_is_null(value)) || json_object_get(c->names, name) != NULL) continue;
    if (json_object_set_new(c->names, name, json_true()) != 0) return hark_fail(c->context, HARK_OUT_OF_MEMORY, "names of metrics");
  }
  return HARK_OK;
}

hark_status hark_metric_names_add(hark_context *context, const char *run, json_t **names) {
  char path[HARK_PATH_BYTES];
  const bool folder = hark_path_kind_of(run) == HARK_PATH_FOLDER;
  if (*names == NULL) *names = json_object();
  if (*names == NULL) return hark_fail(context, HARK_OUT_OF_MEMORY, "names of metrics");
  HARK_TRY(folder ? hark_path_join(context, run, "metrics.jsonl", path) : hark_path_join(context, "", run, path));
  collecting c = {context, *names};
  return hark_jsonl_read(context, path, take_line, &c);
}

static bool is_shown(const char *name) { return strncmp(name, MANY, strlen(MANY)) != 0; }

static const char *name_at(const void *user, int index) {
  void *at = json_object_iter((json_t *)user);
  while (index-- > 0) at = json_object_iter_next((json_t *)user, at);
  return json_object_iter_key(at);
}

hark_status hark_metric_names_require(hark_context *context, const json_t *names, hark_status status, const char *what, const char *name) {
  const char *other;
  json_t *value;
  hark_text list = hark_text_empty(context);
  int shown = 0;
  if (names == NULL || json_object_size(names) == 0 || json_object_get(names, name) != NULL) return HARK_OK;
  json_object_foreach((json_t *)names, other, value) {
    if (!is_shown(other) || shown++ >= SHOWN) continue;
    hark_text_append(&list, "%s%s", shown > 1 ? ", " : "", other);
  }
  const char *const near = hark_nearest_word(name, (int)hark_min((int64_t)json_object_size(names), 512), name_at, names);
  if (list.status == HARK_OK)
    status = hark_fail(context, status, "%sno run has %s%s%s; there are %s%s", what, name, near != NULL ? ", did you mean " : "",
                       near != NULL ? near : "", hark_text_get(&list), shown > SHOWN ? ", .." : "");
  else
    status = list.status;
  hark_text_free(&list);
  return status;
}
