/* lab_text.h - a text for experiments that read one, as numbers of its letters: a file, or the texts of the laboratory's experiments. */
#ifndef HARK_LAB_LAB_TEXT_H
#define HARK_LAB_LAB_TEXT_H

#include "lab/lab.h"

/* Lives as long as the lab. The last tenth is held out. */
typedef struct hark_lab_text {
  int64_t length, held_out;  /* letters, which are bytes; the first one held out */
  int64_t letters;           /* distinct */
  int32_t *numbers;          /* [length], 0 .. letters - 1, in the order of first occurrence */
  unsigned char letter[256]; /* of a number */
  double entropy;            /* of single letters of the held-out part, nats: the least loss of a prediction without context */
} hark_lab_text;

/* `path` "" reads the texts of the experiments of hark lab: their statements and notes. Errors: those of files; HARK_BAD_FILE for a text of
 * fewer than `least` letters held out. */
HARK_MUST_CHECK hark_status hark_lab_text_read(hark_lab *lab, const char *path, int64_t least, hark_lab_text *out);

/* The first letter of a random window of `length` letters, held out or not. Consumes one word of the stream. */
int64_t hark_lab_text_window(const hark_lab_text *text, bool held_out, int64_t length, const hark_random_stream *words, uint64_t *drawn);

#endif
