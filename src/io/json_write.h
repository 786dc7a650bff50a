/* json_write.h - writing JSON as text. */
#ifndef HARK_IO_JSON_WRITE_H
#define HARK_IO_JSON_WRITE_H

#include "io/text.h"

/* Appends "value" in quotes and escaped. Bytes that are not UTF-8 become U+FFFD. */
void hark_json_append_string(hark_text *text, const char *value);
/* The same for a text that may contain zero bytes. */
void hark_json_append_bytes(hark_text *text, const char *value, size_t bytes);
/* Appends "NAME": "PATH". A path that is not UTF-8 cannot be a JSON string: it has U+FFFD for such bytes, and the member "NAME_bytes"
 * follows, all bytes of the path in hexadecimal. */
void hark_json_append_path(hark_text *text, const char *name, const char *path);
/* Appends a number that reads back as the same one; NaN and infinities, which JSON lacks, as null. */
void hark_json_append_number(hark_text *text, double value);
/* Appends , "name": value after earlier members of an object. */
void hark_json_append_member(hark_text *text, const char *name, double value);

/* Length of the valid UTF-8 sequence at the beginning of `left` >= 1 bytes (0: none): no overlong forms, surrogates or values above
 * U+10FFFF (RFC 3629, section 4). */
size_t hark_json_sequence_length(const unsigned char *text, size_t left);

#endif
