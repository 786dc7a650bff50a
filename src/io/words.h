/* words.h - words of a text, and the known word nearest to an unknown one, for suggestions in messages. */
#ifndef HARK_IO_WORDS_H
#define HARK_IO_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* The next word of *at and its length; *at moves after it. NULL at the end. */
const char *hark_next_word(const char **at, char separator, size_t *length);

#define HARK_WORD_BYTES 256 /* including the zero byte; longer words are near to none */

/* Steps from one word to the other: insert, delete or replace a letter, or swap two adjacent ones. Upper and lower case are equal: words
 * that differ only in case have distance 0. HARK_WORD_BYTES for words that are too long. */
int hark_word_distance(const char *a, const char *b);

/* True if the word begins with these letters, in either case. */
bool hark_word_begins(const char *word, const char *letters);

/* The largest distance of words that are near to `word`. */
int hark_word_near(const char *word);

/* The nearest of `count` words to `word`, or NULL if none is near. Word i is name(user, i). */
const char *hark_nearest_word(const char *word, int count, const char *(*name)(const void *user, int index), const void *user);

#endif
