/* peer_words.h - names that other programs give to options, for hints: --batch-size is hark's --batch. They are not accepted as options:
 * a name that means something slightly different elsewhere would be read silently. */
#ifndef HARK_CONFIG_PEER_WORDS_H
#define HARK_CONFIG_PEER_WORDS_H

#include <stdbool.h>

/* The row `index` of the table: a name in the spelling of flags ('_' for '-'), and the option that it means. False if there are no more.
 * A name may have several rows: the first one counts whose option the subcommand accepts. */
bool hark_peer_word(int index, const char **word, const char **option);

#endif
