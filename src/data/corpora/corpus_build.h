/* corpus_build.h - the two passes over text: learning a vocabulary, and writing the file of tokens. */
#ifndef HARK_DATA_CORPORA_CORPUS_BUILD_H
#define HARK_DATA_CORPORA_CORPUS_BUILD_H

#include "data/sources.h"

/* Learns a vocabulary from all sources. The caller destroys the tokenizer. */
HARK_MUST_CHECK hark_status hark_corpus_learn(hark_context *context, const hark_corpus_settings *settings, const hark_source_list *sources,
                                              hark_tokenizer **out);

/* Divides and tokenises the sources into the file `path`. Fills the sources' checksums. */
HARK_MUST_CHECK hark_status hark_corpus_build(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources,
                                              const hark_tokenizer *tokenizer, const char *path);

/* Kind of the tokenizer that is given or requested. */
const char *hark_corpus_kind(const hark_corpus_settings *settings);

/* Bytes of text read at once. */
size_t hark_corpus_part_bytes(const hark_corpus_settings *settings);

/* The checksum of everything that the tokens depend on, independent of the files' paths: vocabulary and settings, then every piece in the
 * order of the files. */
uint64_t hark_contents_begin(uint64_t vocabulary, hark_unknown unknown, hark_text_unit unit);
uint64_t hark_contents_add(uint64_t sum, uint64_t source, hark_split split, int64_t from, int64_t to);

#endif
