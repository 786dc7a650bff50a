/* sources_apart.h - checks that validation text is not trained on: one file given twice, or copies of a text in both splits. */
#ifndef HARK_DATA_SOURCES_APART_H
#define HARK_DATA_SOURCES_APART_H

#include "data/sources.h"

/* Checks files [count], each in one of several parts. Refuses a file that occurs twice, under any names, and equal contents of files in
 * different parts. A line end at the end of a file is not compared. Only contents of files of equal length are read. `advice` ends the
 * message about copies.
 * Errors: HARK_BAD_CONFIGURATION, which names both; those of files. */
HARK_MUST_CHECK hark_status hark_files_check_apart(hark_context *context, const hark_source *files, const int64_t *parts, int64_t count,
                                                   const char *advice);

/* The same for a text divided according to the settings. Copies are accepted if they are divided in the same way, because then none is
 * trained on text that another validates. */
HARK_MUST_CHECK hark_status hark_sources_check_apart(hark_context *context, const hark_corpus_settings *settings,
                                                     const hark_source_list *sources);

#endif
