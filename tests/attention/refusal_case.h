/* refusal_case.h - a descriptor that is right, from which tests of refusals make wrong ones, and what a message must contain.
 */
#ifndef HARK_TESTS_ATTENTION_REFUSAL_CASE_H
#define HARK_TESTS_ATTENTION_REFUSAL_CASE_H

#include <hark/hark.h>

/* Sizes of the descriptor. */
enum { BATCH = 2, HEADS = 4, KEY_HEADS = 2, QUERIES = 5, KEYS = 7, DIM = 3, VALUE_DIM = 2 };

hark_context *refusal_context(int threads); /* of the reference backend */
hark_attention_desc refusal_desc(void);

/* The context's message must contain every word of `words`, which are separated by '|'. */
void refusal_message(hark_context *context, const char *what, const char *words);

#endif
