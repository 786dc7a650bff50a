/* regex.h - regular expressions as tokenizer.json writes them (Oniguruma, Ruby's syntax), matched by PCRE2 where hark is built with it
 * (HARK_WITH_PCRE2).
 *
 * What the two define differently is translated: \s, \w, \b, \h (a hexadecimal digit), classes of POSIX, scripts; ^ and $ match at lines.
 * What cannot be translated is refused: set operations (&&) and brackets in brackets, \W and \H in brackets, [:alpha:] and others.
 */
#ifndef HARK_TOKENIZERS_PIPELINE_REGEX_H
#define HARK_TOKENIZERS_PIPELINE_REGEX_H

#include "tokenizers/pipeline/growing.h"

typedef struct hark_regex hark_regex;

extern const bool hark_regex_available;

/* Compiles an expression. Errors: HARK_UNSUPPORTED, HARK_BAD_FILE (the message is the reason alone, without a place),
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_regex_compile(hark_context *context, const char *pattern, size_t bytes, hark_regex **out);
void hark_regex_free(hark_regex *regex);

/* Memory of one thread that matches expressions; NULL: out of memory, or no PCRE2. */
void *hark_regex_match_memory(void);
void hark_regex_match_free(void *memory);

/* The first match in text[from .. bytes). *found is false when there is none. Errors: HARK_UNSUPPORTED (the expression takes too many steps
 * on this text). */
HARK_MUST_CHECK hark_status hark_regex_next(hark_context *context, const hark_regex *regex, void *memory, hark_span text, size_t from,
                                            bool *found, size_t *begin, size_t *end);

#endif
