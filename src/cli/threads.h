/* threads.h - reports of the command about its threads: the source of their number, and a warning when they exceed the cores. */
#ifndef HARK_CLI_THREADS_H
#define HARK_CLI_THREADS_H

#include "cli/common.h"

#define HARK_THREAD_WORDS_BYTES 96

/* "2, by affinity; 2 cores, no CPU quota": number, its source, and the available cores. */
const char *hark_thread_words(const hark_context *context, char text[HARK_THREAD_WORDS_BYTES]);

/* Adds "threads", "threads_from", "cores" (null: not known) and "cpu_quota" (null: none) as members of an object: \"threads\": 2, ... */
void hark_thread_members(const hark_context *context, hark_text *out);

/* One line on stderr where there are more threads than allowed cores or than the CPU quota has time for: they would wait for each other. */
void hark_command_warn_of_shared_cores(const hark_invocation *call);
/* The same for a number of threads that is not the context's, with its origin in words. */
void hark_command_warn_of_threads(const hark_invocation *call, int threads, const char *from);

/* The number of threads that the context would have by default. */
int hark_usable_threads(hark_context *context);

#endif
