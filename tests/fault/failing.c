/* failing.c - see failing.h. */
#include "fault/failing.h"

#include <string.h>

#include "support/cmocka_all.h"
#include "support/text_files.h"

long fail_each(failure *fail_there, const void *what, void *data) {
  long number = 0;
  for (int onwards = 0; onwards < 2; onwards++)
    for (number = 1; fail_there(what, data, number, onwards != 0);) number++;
  return number - 1;
}

static bool fail_work(const void *work_to_do, void *data, long number, bool onwards) {
  const work *const what = work_to_do;
  test_memory memory = {0};
  hark_context *context = NULL;
  assert_int_equal(test_memory_create(&memory, what->backend, &context), HARK_OK);
  if (what->begin != NULL) assert_fine(context, what->begin(context, data));
  memory.fail_at = memory.allocations + number;
  memory.onwards = onwards;
  const hark_status status = what->run(context, data);
  const bool reached = memory.allocations >= memory.fail_at;
  memory.fail_at = 0;
  if (reached) {
    if (status != HARK_OUT_OF_MEMORY)
      fail_msg("%s: allocation %ld failed%s, and the status is %s: %s", what->name, number, onwards ? " and all later ones" : "",
               hark_status_name(status), hark_context_message(context));
    if (strstr(hark_context_message(context), "out of memory") == NULL) /* the text of core/memory.c, wherever it went through */
      fail_msg("%s: allocation %ld: the message is \"%s\"", what->name, number, hark_context_message(context));
    if (what->failed != NULL) what->failed(context, data);
    if (what->end != NULL) what->end(context, data);
    if (what->begin != NULL) assert_fine(context, what->begin(context, data));
    if (what->failed == NULL) assert_fine(context, what->run(context, data));
  } else if (status != HARK_OK) {
    fail_msg("%s: %s", what->name, hark_context_message(context));
  }
  if (what->end != NULL) what->end(context, data);
  test_memory_context_end(context, &memory);
  return reached;
}

void fail_at_each(const work *what, void *data) {
  const long count = fail_each(fail_work, what, data);
  print_message("%s (%s): %ld allocations\n", what->name, what->backend, count);
  if (count < what->at_least) fail_msg("%s: %ld allocations, at least %ld expected", what->name, count, what->at_least);
}
