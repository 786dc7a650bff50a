/* number.h - numbers as text, the same in every locale.
 *
 * The C library reads and writes the decimal point of LC_NUMERIC; these functions always mean '.'. They allocate nothing.
 */
#ifndef HARK_IO_NUMBER_H
#define HARK_IO_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/print_number.h"

/* Reads the whole of text[0..length): [+-] digits [. digits] [e [+-] digits]. False for anything else, for infinities and overflow. */
bool hark_number_read(const char *text, size_t length, double *out);
/* Whether the whole text is written as such a number, of any size and length. */
bool hark_number_is(const char *text, size_t length);

/* The value of a number of JSON as serde_json, the reader of the tokenizers library, computes it by default: the digits as one whole number
 * below 2^64, rounded to a double, times or over a power of ten. It is not always the double next to the number, which hark_number_read
 * finds, and equal sums of scores are decided by such differences. The text must be valid; a value that is too large is infinite. */
double hark_number_read_quick(const char *text, size_t length);

/* Reads a whole number: [+-] digits, or a decimal form that is exactly whole and below 2^53 ("8e6"). False for anything else. */
bool hark_number_read_whole(const char *text, size_t length, int64_t *out);

/* Reads a duration in seconds: a number, then s, m, h or d, repeated ("1h30m"); a number alone counts seconds. */
bool hark_number_read_duration(const char *text, size_t length, double *out);

#endif
