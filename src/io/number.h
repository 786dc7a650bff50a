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

/* Reads a whole number: [+-] digits, or a decimal form that is exactly whole and below 2^53 ("8e6"). False for anything else. */
bool hark_number_read_whole(const char *text, size_t length, int64_t *out);

/* Reads a duration in seconds: a number, then s, m, h or d, repeated ("1h30m"); a number alone counts seconds. */
bool hark_number_read_duration(const char *text, size_t length, double *out);

#endif
