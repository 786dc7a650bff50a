/* threads.c - see threads.h. */
#include "cli/threads.h"

#include <stdio.h>

#include "core/thread_count.h"
#include "io/number.h"
#include "json/json.h"

static const char *plural(int count) { return count == 1 ? "" : "s"; }

const char *hark_thread_words(const hark_context *context, char text[HARK_THREAD_WORDS_BYTES]) {
  char quota[HARK_NUMBER_BYTES], cores[32] = "cores not known";
  const double time = hark_cpu_quota("");
  if (context->cores.count > 0) (void)snprintf(cores, sizeof cores, "%d core%s", context->cores.count, plural(context->cores.count));
  (void)snprintf(text, HARK_THREAD_WORDS_BYTES, "%d, by %s; %s, %s%s", hark_context_threads(context), context->threads_from, cores,
                 time > 0 ? "CPU quota " : "no CPU quota", time > 0 ? hark_number_print(time, quota) : "");
  return text;
}

void hark_thread_members(const hark_context *context, hark_text *out) {
  const double time = hark_cpu_quota("");
  hark_text_append(out, "\"threads\": %d, \"threads_from\": ", hark_context_threads(context));
  hark_json_append_string(out, context->threads_from);
  hark_text_append(
      out, context->cores.count > 0 ? ", \"cores\": %d, \"cpu_quota\": " : ", \"cores\": null, \"cpu_quota\": ", context->cores.count);
  if (time > 0) {
    hark_json_append_number(out, time);
  } else {
    hark_text_append(out, "null");
  }
}

void hark_command_warn_of_threads(const hark_invocation *call, int threads, const char *from) {
  const int cores = call->context->cores.count;
  if (threads < 2) return;
  const double time = hark_cpu_quota("");
  if (cores > 0 && threads > cores) {
    hark_command_warn(call, "%d threads (by %s) share %d core%s, where %d would be as fast", threads, from, cores, plural(cores), cores);
  } else if (time > 0 && (double)threads - 1 >= time) {
    char quota[HARK_NUMBER_BYTES];
    hark_command_warn(call, "%d threads (by %s) share the time of %s cores, which is the CPU quota", threads, from,
                      hark_number_print(time, quota));
  }
}

void hark_command_warn_of_shared_cores(const hark_invocation *call) {
  hark_command_warn_of_threads(call, hark_context_threads(call->context), call->context->threads_from);
}

int hark_usable_threads(hark_context *context) {
#ifdef HARK_WITH_THREADS
  const char *from;
  return hark_thread_count(context, "", context->cores.count, &from);
#else
  (void)context;
  return 1;
#endif
}
