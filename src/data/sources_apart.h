/* sources_apart.h - whether any text would be measured that was trained on: one file that is given twice, or copies of one text on both
 * sides. */
#ifndef HARK_DATA_SOURCES_APART_H
#define HARK_DATA_SOURCES_APART_H

#include "data/sources.h"

/* Of files [count], with a part for each. Refused are one file twice, by whatever names, and, of files in different parts, equal contents:
 * those are read where sizes are equal, and nothing else is. `advice` ends the message on copies.
 * Errors: HARK_BAD_CONFIGURATION, which names both; those of files. */
HARK_MUST_CHECK hark_status hark_files_check_apart(hark_context *context, const hark_source *files, const int64_t *parts, int64_t count,
                                                   const char *advice);

/* The same of a text that is divided as the settings say: copies that are divided alike, neither of which trains on what the other
 * validates, are fine. */
HARK_MUST_CHECK hark_status hark_sources_check_apart(hark_context *context, const hark_corpus_settings *settings,
                                                     const hark_source_list *sources);

#endif
