/* corpus.c - opens a corpus from its cache file, which is made first if necessary, and reads from it.
 *
 * A cache file's name depends on the settings: paths, division, kind of tokenizer, vocabulary if one was given. The file records its
 * sources. It is used if the sources have the same sizes and either the same time of change or, after a touch or a copy, the same contents.
 * A source that was changed within two seconds of being read could change again without a new time, so its contents are compared.
 */
#include "data/corpora/corpus.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checksum.h"
#include "data/corpora/corpus_build.h"
#include "data/corpora/token_file.h"
#include "data/examples/example_folder.h"
#include "data/sources_apart.h"
#include "io/number.h"
#include "io/temporary.h"

#define SMALLEST_BUFFER_BYTES 16
#define TIME_GRAIN_SECONDS 2 /* of the coarsest file systems */
#define VERIFY_TOKENS 65536

struct hark_corpus {
  const hark_tokenizer *tokenizer;
  hark_tokenizer *own_tokenizer; /* or NULL */
  hark_token_file_info info;
  unsigned char *index;
  size_t index_bytes;
  hark_source_list sources;
  int file; /* -1: none */
  bool was_cached;
  char path[HARK_PATH_BYTES];
};

static hark_status check_settings(hark_context *context, const hark_corpus_settings *settings) {
  const double fraction = settings->validation_fraction;
  if (settings->path_count + settings->validation_path_count < 1) return hark_fail(context, HARK_BAD_CONFIGURATION, "no text is given");
  if (!(fraction >= 0 && fraction < 1))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "validation_fraction is %s, expected [0, 1)", HARK_PRINTED(fraction));
  if (settings->division != HARK_DIVIDE_FILES && settings->validation_path_count > 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "validation files are given, but the text is divided by fraction");
  if (settings->cache_folder == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_corpus_open: cache_folder is missing");
  if (settings->buffer_bytes > 0 && settings->buffer_bytes < SMALLEST_BUFFER_BYTES)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_corpus_open: buffer_bytes is %zu, expected at least %d", settings->buffer_bytes,
                     SMALLEST_BUFFER_BYTES);
  return HARK_OK;
}

/* Adds the settings of a vocabulary of sub-words: other settings need another file. */
static uint64_t subwords_sum(uint64_t sum, const hark_subword_settings *subwords) {
  uint64_t coverage;
  memcpy(&coverage, &subwords->coverage, sizeof coverage);
  const uint64_t numbers[] = {(uint64_t)subwords->model, (uint64_t)subwords->vocabulary, subwords->byte_fallback, coverage};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sum = hark_checksum_number(sum, numbers[i]);
  return sum;
}

/* FOLDER/corpus-0123456789abcdef.tokens. `vocabulary` is 0 when it is learned from the text. */
static hark_status cache_path(hark_context *context, const hark_corpus_settings *settings, const hark_source_list *sources,
                              const char *kind, uint64_t vocabulary, char *out) {
  uint64_t sum = hark_checksum_number(HARK_CHECKSUM_START, HARK_TOKEN_FILE_VERSION), fraction;
  memcpy(&fraction, &settings->validation_fraction, sizeof fraction);
  sum = hark_checksum_text(sum, kind);
  sum = hark_checksum_number(sum, vocabulary);
  if (vocabulary == 0 && settings->subwords != NULL) sum = subwords_sum(sum, settings->subwords);
  sum = hark_checksum_number(sum, (uint64_t)settings->unknown);
  sum = hark_checksum_number(sum, (uint64_t)settings->unit);
  sum = hark_checksum_number(sum, (uint64_t)settings->division);
  sum = hark_checksum_number(sum, settings->division == HARK_DIVIDE_FILES ? 0 : fraction);
  if (settings->json_field != NULL && hark_sources_have_json_lines(sources)) sum = hark_checksum_text(sum, settings->json_field);
  for (int64_t i = 0; i < sources->count; i++) {
    sum = hark_checksum_text(sum, sources->items[i].path);
    sum = hark_checksum_number(sum, (uint64_t)sources->items[i].role);
  }
  char name[HARK_NAME_BYTES];
  snprintf(name, sizeof name, "corpus-%016" PRIx64 ".tokens", sum);
  return hark_path_join(context, settings->cache_folder, name, out);
}

/* *same: whether the source `now` has the contents that it had when the file was made. */
static hark_status compare_source(hark_context *context, const hark_corpus_settings *settings, const hark_token_file_info *info,
                                  const hark_source *then, hark_source_list *sources, const hark_source *now, bool *same) {
  if (now->standard) HARK_TRY(hark_sources_unpack(context, sources, settings->json_field));
  *same = then->stored_bytes == now->stored_bytes && strcmp(then->path, now->path) == 0;
  if (!*same) return HARK_OK;
  if (then->modified_seconds == now->modified_seconds && then->modified_nanoseconds == now->modified_nanoseconds &&
      now->modified_seconds + TIME_GRAIN_SECONDS < info->made_seconds)
    return HARK_OK;
  HARK_TRY(hark_sources_unpack(context, sources, settings->json_field));
  const size_t buffer_bytes = hark_corpus_part_bytes(settings);
  void *buffer;
  uint64_t checksum = 0;
  HARK_TRY(hark_allocate(context, buffer_bytes, &buffer));
  const hark_status status = hark_source_checksum(context, now, buffer, buffer_bytes, &checksum);
  hark_release(context, buffer, buffer_bytes);
  *same = checksum == then->checksum;
  return status;
}

static hark_status open_file(hark_context *context, hark_corpus *corpus) {
  uint64_t size;
  HARK_TRY(hark_file_open(context, corpus->path, &corpus->file, &size));
  HARK_TRY(hark_token_file_read_index(context, corpus->file, corpus->path, size, &corpus->info, &corpus->index, &corpus->index_bytes));
  return hark_token_file_sources(context, corpus->path, &corpus->info, corpus->index, &corpus->sources);
}

/* Sets the tokenizer: the given one, or the one in the file. */
static hark_status open_tokenizer(hark_context *context, const hark_tokenizer *given, hark_corpus *corpus) {
  const hark_token_file_info *info = &corpus->info;
  corpus->tokenizer = given;
  if (given == NULL) {
    const char *text = (const char *)corpus->index + (info->vocabulary_offset - info->documents_offset);
    const size_t bytes = (size_t)(info->file_bytes - HARK_TOKEN_FILE_TRAILER_BYTES - info->vocabulary_offset);
    const hark_status status = hark_tokenizer_parse(context, text, bytes, &corpus->own_tokenizer);
    if (status != HARK_OK) hark_fail_prefix(context, "%s: vocabulary: ", corpus->path);
    HARK_TRY(status);
    corpus->tokenizer = corpus->own_tokenizer;
  }
  if (hark_tokenizer_checksum(corpus->tokenizer) != info->vocabulary_checksum ||
      hark_tokenizer_size(corpus->tokenizer) != info->vocabulary_size)
    return hark_fail(context, HARK_BAD_FILE, "%s: was made with another vocabulary", corpus->path);
  return HARK_OK;
}

/* Releases everything except the path. */
static void reset(hark_context *context, hark_corpus *corpus) {
  hark_file_close(&corpus->file);
  hark_sources_free(context, &corpus->sources);
  hark_release(context, corpus->index, corpus->index_bytes);
  corpus->index = NULL;
  corpus->index_bytes = 0;
  hark_tokenizer_destroy(context, &corpus->own_tokenizer);
  corpus->tokenizer = NULL;
}

/* *same: whether the sources have the contents that they had when the file was made. */
static hark_status compare_sources(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources,
                                   const hark_corpus *corpus, bool *same) {
  *same = corpus->sources.count == sources->count;
  for (int64_t i = 0; i < sources->count && *same; i++)
    HARK_TRY(compare_source(context, settings, &corpus->info, &corpus->sources.items[i], sources, &sources->items[i], same));
  return HARK_OK;
}

/* *of_sources: the result of reading the sources, which a failure of the file does not change. */
static hark_status open_if_unchanged(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources,
                                     hark_corpus *corpus, bool *usable, hark_status *of_sources) {
  bool same = false;
  HARK_TRY(open_file(context, corpus));
  *of_sources = compare_sources(context, settings, sources, corpus, &same);
  HARK_TRY(*of_sources);
  if (same) HARK_TRY(open_tokenizer(context, settings->tokenizer, corpus));
  *usable = same;
  return HARK_OK;
}

/* Tries the cache file for a vocabulary (0: learned from the text). A missing, changed or damaged file is not used; this is not a
 * failure, but sources that cannot be read are. */
static hark_status try_cache(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources, const char *kind,
                             uint64_t vocabulary, hark_corpus *corpus) {
  HARK_TRY(cache_path(context, settings, sources, kind, vocabulary, corpus->path));
  hark_path_kind found;
  HARK_TRY(hark_path_examine(context, corpus->path, &found));
  if (found == HARK_PATH_NONE) return HARK_OK;
  hark_status of_sources = HARK_OK;
  const hark_status status = open_if_unchanged(context, settings, sources, corpus, &corpus->was_cached, &of_sources);
  if (corpus->was_cached) return HARK_OK;
  reset(context, corpus);
  if (of_sources == HARK_OK && (status == HARK_BAD_FILE || status == HARK_NOT_FOUND)) {
    hark_log(context, HARK_LOG_WARNING, "making the tokens again: %s", hark_context_message(context));
    return HARK_OK;
  }
  return status;
}

/* Whether a file can be made in the cache folder. Makes the folder if it is missing. */
static hark_status find_writable(hark_context *context, const hark_corpus_settings *settings, bool *writable) {
  char message[HARK_MESSAGE_BYTES];
  memcpy(message, context->message, sizeof message);
  *writable = false;
  if (settings->cache_folder[0] == '\0') return HARK_OK;
  const hark_status made = hark_folder_make(context, settings->cache_folder);
  *writable = made == HARK_OK && access(settings->cache_folder, W_OK | X_OK) == 0;
  if (made == HARK_OUT_OF_MEMORY || !settings->may_build_elsewhere) return made;
  memcpy(context->message, message, sizeof message);
  return HARK_OK;
}

static hark_status build_and_open(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources,
                                  const hark_tokenizer *tokenizer, hark_corpus *corpus) {
  HARK_TRY(hark_corpus_build(context, settings, sources, tokenizer, corpus->path));
  return open_file(context, corpus);
}

/* Makes the file in a temporary folder, which is then removed; only the open file remains. */
static hark_status build_elsewhere(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources,
                                   const hark_tokenizer *tokenizer, hark_corpus *corpus) {
  char path[HARK_PATH_BYTES];
  hark_temporary_folder folder;
  HARK_TRY(hark_path_join(context, hark_spool_folder(), "hark", path));
  HARK_TRY(hark_path_clean(context, path));
  hark_status status = hark_temporary_folder_make(context, path, S_IRWXU, &folder);
  if (status != HARK_OK)
    hark_fail_prefix(context, "there is no cache that can be written, and no folder for the tokens can be made in TMPDIR: ");
  HARK_TRY(status);
  status = hark_path_join(context, folder.path, "corpus.tokens", corpus->path);
  if (status == HARK_OK) status = build_and_open(context, settings, sources, tokenizer, corpus);
  (void)unlink(corpus->path);
  (void)rmdir(folder.path);
  hark_temporary_folder_end(&folder);
  return status;
}

static hark_status check_not_empty(hark_context *context, const hark_source_list *sources) {
  for (int64_t i = 0; i < sources->count; i++)
    if (sources->items[i].bytes > 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: is empty, and there is no other text", sources->items[0].path);
}

static hark_status open_or_build(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources,
                                 hark_corpus *corpus) {
  for (int i = 0; i < settings->path_count; i++) {
    const char *const path = settings->paths[i];
    bool texts = false;
    if (!hark_is_example_folder(context, path, &texts)) continue;
    return texts ? hark_fail(context, HARK_BAD_CONFIGURATION,
                             "%s: a folder of texts for training, validation and test, expected --data %s/training.txt --validation "
                             "%s/validation.txt",
                             path, path, path)
                 : hark_fail(context, HARK_BAD_CONFIGURATION,
                             "%s: a folder of labelled examples, expected --format examples (each of its files can be read as text)", path);
  }
  HARK_TRY(hark_sources_find(context, settings, sources));
  if (!settings->known) {
    HARK_TRY(hark_sources_unpack(context, sources, settings->json_field));
    HARK_TRY(hark_sources_check_apart(context, settings, sources));
    HARK_TRY(check_not_empty(context, sources));
  }
  const char *kind = hark_corpus_kind(settings);
  const bool cached = settings->cache_folder[0] != '\0';
  if (cached) HARK_TRY(try_cache(context, settings, sources, kind, 0, corpus));
  if (cached && !corpus->was_cached && settings->tokenizer != NULL)
    HARK_TRY(try_cache(context, settings, sources, kind, hark_tokenizer_checksum(settings->tokenizer), corpus));
  if (corpus->was_cached) return HARK_OK;
  HARK_TRY(hark_sources_unpack(context, sources, settings->json_field));
  HARK_TRY(hark_sources_mark_tokens(context, settings, sources));
  HARK_TRY(check_not_empty(context, sources));
  const hark_tokenizer *tokenizer = settings->tokenizer;
  hark_tokenizer *learned = NULL;
  if (tokenizer == NULL) {
    HARK_TRY(hark_corpus_learn(context, settings, sources, &learned));
    tokenizer = learned;
  }
  bool writable = false;
  hark_status status = find_writable(context, settings, &writable);
  if (status == HARK_OK)
    status = (writable || !settings->may_build_elsewhere ? build_and_open : build_elsewhere)(context, settings, sources, tokenizer, corpus);
  hark_tokenizer_destroy(context, &learned);
  if (status == HARK_OK) status = open_tokenizer(context, settings->tokenizer, corpus);
  return status;
}

hark_status hark_corpus_open(hark_context *context, const hark_corpus_settings *settings, hark_corpus **out) {
  *out = NULL;
  HARK_TRY(check_settings(context, settings));
  hark_corpus *corpus;
  HARK_TRY(hark_allocate_zero(context, sizeof *corpus, (void **)&corpus));
  corpus->file = -1;
  hark_source_list sources = {0};
  const hark_status status = open_or_build(context, settings, &sources, corpus);
  hark_sources_free(context, &sources);
  *out = corpus;
  if (status != HARK_OK) hark_corpus_close(context, out);
  return status;
}

void hark_corpus_close(hark_context *context, hark_corpus **corpus) {
  if (corpus == NULL || *corpus == NULL) return;
  reset(context, *corpus);
  hark_release(context, *corpus, sizeof **corpus);
  *corpus = NULL;
}

const hark_tokenizer *hark_corpus_tokenizer(const hark_corpus *corpus) { return corpus->tokenizer; }
hark_text_counts hark_corpus_counts(const hark_corpus *corpus, hark_split split) { return corpus->info.split[split].counts; }
uint64_t hark_corpus_checksum(const hark_corpus *corpus) { return corpus->info.contents_checksum; }

/* Over the pieces of the text, which are the documents, stored in the order of the splits. */
static uint64_t contents_checksum(const hark_corpus *corpus, hark_unknown unknown) {
  const hark_token_split *const splits = corpus->info.split;
  const bool sentences = splits[HARK_SPLIT_TRAINING].counts.sentences + splits[HARK_SPLIT_VALIDATION].counts.sentences > 0;
  uint64_t sum = hark_contents_begin(corpus->info.vocabulary_checksum, unknown, sentences ? HARK_UNIT_SENTENCES : HARK_UNIT_TEXT);
  int64_t next[HARK_SPLIT_COUNT] = {0, splits[HARK_SPLIT_TRAINING].counts.documents};
  const int64_t end[HARK_SPLIT_COUNT] = {next[1], next[1] + splits[HARK_SPLIT_VALIDATION].counts.documents};
  for (int64_t source = 0; source < corpus->sources.count; source++)
    for (int split = 0; split < HARK_SPLIT_COUNT; split++) {
      if (next[split] == end[split]) continue;
      const hark_token_document document = hark_token_file_document(corpus->index, next[split]);
      if (document.source != source) continue;
      next[split]++;
      sum = hark_contents_add(sum, corpus->sources.items[source].checksum, (hark_split)split, document.byte_offset,
                              document.byte_offset + document.bytes);
    }
  return sum;
}

bool hark_corpus_has_checksum(const hark_corpus *corpus, uint64_t checksum) {
  return checksum == contents_checksum(corpus, HARK_UNKNOWN_IS_ERROR) || checksum == contents_checksum(corpus, HARK_UNKNOWN_IS_MAPPED);
}

bool hark_corpus_was_cached(const hark_corpus *corpus) { return corpus->was_cached; }
const char *hark_corpus_cache_path(const hark_corpus *corpus) { return corpus->path; }

/* bits per unit = nats per token / ln 2 * tokens / units */
static double bits_per(int64_t tokens, int64_t units, double nats_per_token) {
  static const double bits_per_nat = 1.4426950408889634; /* 1 / ln 2 */
  return units > 0 ? nats_per_token * bits_per_nat * (double)tokens / (double)units : 0.0;
}

double hark_bits_per_byte(const hark_text_counts *counts, double nats_per_token) {
  return bits_per(hark_text_targets(counts), counts->bytes, nats_per_token);
}

double hark_bits_per_character(const hark_text_counts *counts, double nats_per_token) {
  return bits_per(hark_text_targets(counts), counts->characters, nats_per_token);
}

double hark_word_perplexity(const hark_text_counts *counts, double nats_per_token) {
  const int64_t words = counts->words > 0 ? counts->words + counts->sentences : 0;
  return words > 0 ? exp(nats_per_token * (double)hark_text_targets(counts) / (double)words) : 0.0;
}

hark_status hark_corpus_read(hark_context *context, const hark_corpus *corpus, hark_split split, int64_t first, int64_t count,
                             int32_t *tokens) {
  const hark_token_file_info *info = &corpus->info;
  const hark_token_split *part = &info->split[split];
  if (first < 0 || count < 0 || count > part->counts.tokens || first > part->counts.tokens - count)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %" PRId64 " tokens from number %" PRId64 " requested, the split has %" PRId64,
                     corpus->path, count, first, part->counts.tokens);
  const size_t bytes = (size_t)count * info->token_bytes;
  unsigned char *packed = (unsigned char *)(tokens + count) - bytes;
  HARK_TRY(hark_file_read_at(context, corpus->file, corpus->path, packed, bytes, (uint64_t)(part->offset + first * info->token_bytes)));
  if (!hark_tokens_unpack(tokens, (size_t)count, info->token_bytes, info->vocabulary_size))
    return hark_fail(context, HARK_BAD_FILE,
                     "%s: a token among %" PRId64 " .. %" PRId64 " is not in the vocabulary of %" PRId64 ": the file is damaged, delete it",
                     corpus->path, first, first + count, info->vocabulary_size);
  return HARK_OK;
}

hark_status hark_corpus_document(hark_context *context, const hark_corpus *corpus, hark_split split, int64_t index, hark_document *out) {
  const hark_token_split *splits = corpus->info.split;
  const int64_t documents = splits[split].counts.documents;
  if (index < 0 || index >= documents)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: document %" PRId64 " requested, the split has %" PRId64, corpus->path, index,
                     documents);
  const int64_t before = split == HARK_SPLIT_TRAINING ? 0 : splits[HARK_SPLIT_TRAINING].counts.documents;
  const hark_token_document found = hark_token_file_document(corpus->index, before + index);
  *out = (hark_document){.path = corpus->sources.items[found.source].path,
                         .byte_offset = found.byte_offset,
                         .bytes = found.bytes,
                         .first = found.first,
                         .count = found.count};
  return HARK_OK;
}

static hark_status verify_split(hark_context *context, const hark_corpus *corpus, hark_split split, int32_t *tokens) {
  const hark_token_split *part = &corpus->info.split[split];
  uint64_t sum = HARK_CHECKSUM_START;
  for (int64_t first = 0; first < part->counts.tokens; first += VERIFY_TOKENS) {
    const int64_t count = hark_min(VERIFY_TOKENS, part->counts.tokens - first);
    HARK_TRY(hark_corpus_read(context, corpus, split, first, count, tokens));
    hark_tokens_pack(tokens, (size_t)count, corpus->info.token_bytes, tokens);
    sum = hark_checksum_bytes(sum, tokens, (size_t)count * corpus->info.token_bytes);
  }
  if (sum != part->checksum)
    return hark_fail(context, HARK_BAD_FILE, "%s: the checksum of the %s tokens is wrong: the file is damaged, delete it", corpus->path,
                     split == HARK_SPLIT_TRAINING ? "training" : "validation");
  return HARK_OK;
}

hark_status hark_corpus_verify(hark_context *context, const hark_corpus *corpus) {
  int32_t *tokens;
  HARK_TRY(hark_allocate(context, VERIFY_TOKENS * sizeof *tokens, (void **)&tokens));
  hark_status status = verify_split(context, corpus, HARK_SPLIT_TRAINING, tokens);
  if (status == HARK_OK) status = verify_split(context, corpus, HARK_SPLIT_VALIDATION, tokens);
  hark_release(context, tokens, VERIFY_TOKENS * sizeof *tokens);
  return status;
}
