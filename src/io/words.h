/* words.h - words of a text, and which known word an unknown one is near to: for messages that suggest it. */
#ifndef HARK_IO_WORDS_H
#define HARK_IO_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* The next word of *at and its length; *at is moved after it. NULL at the end. */
const char *hark_next_word(const char **at, char separator, size_t *length);

#define HARK_WORD_BYTES 256 /* longer words are near to none; with the zero byte */

/* Steps from one word to the other: insert, delete or replace a letter, or swap two neighbours. Capital letters are as small ones: words
 * that differ in nothing else are 0 apart. HARK_WORD_BYTES for words too long. */
int hark_word_distance(const char *a, const char *b);

/* The word begins with these letters, in either case. */
bool hark_word_begins(const char *word, const char *letters);

/* At most so many steps lie between `word` and one that is near. */
int hark_word_near(const char *word);

/* The nearest of `count` words to `word`, or NULL when none is near. Word i is name(user, i). */
const char *hark_nearest_word(const char *word, int count, const char *(*name)(const void *user, int index), const void *user);

#endif
