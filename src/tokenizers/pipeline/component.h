/* component.h - the parts of a tokenizer.json as rows of tables.
 *
 *     text -> added tokens -> normalizers -> added tokens -> pre-tokenizers -> model -> post-processors -> tokens
 *     tokens -> decoders -> text
 *
 * Each table is one file (normalizers.c, pre_tokenizers.c, models.c, post_processors.c, decoders.c). A further component is one row with
 * its functions. A "Sequence" is read into the list of its components.
 */
#ifndef HARK_TOKENIZERS_PIPELINE_COMPONENT_H
#define HARK_TOKENIZERS_PIPELINE_COMPONENT_H

#include "io/json_tree.h"
#include "tokenizers/pipeline/pipeline.h"
#include "tokenizers/pipeline/regex.h"
#include "tokenizers/pipeline/trie.h"
#include "tokenizers/pipeline/unicode.h"
#include "tokenizers/pipeline/vocabulary.h"

/* ---- reading ---- */

#define HARK_PLACE_BYTES 160

/* A file that is being read, and the place in it for messages: "normalizer.normalizers[2]". */
typedef struct hark_component_reader {
  hark_context *context;
  hark_pipeline *pipeline;
  const char *name;
  char place[HARK_PLACE_BYTES];
} hark_component_reader;

/* "NAME: PLACE.KEY: ..." with status HARK_BAD_FILE. Without a key (NULL) the place alone. */
hark_status hark_component_fail(const hark_component_reader *reader, const char *key, const char *format, ...) HARK_PRINTF(3, 4);
/* "NAME: PLACE.KEY WHAT is not supported", HARK_UNSUPPORTED. */
hark_status hark_component_unsupported(const hark_component_reader *reader, const char *key, const char *format, ...) HARK_PRINTF(3, 4);
/* Puts the place before the message of a failure that lacks it. */
hark_status hark_component_at(const hark_component_reader *reader, const char *key, hark_status status);

/* Refuses members of an object other than "a|b|c", since they may change the tokens; null changes nothing. Errors: HARK_UNSUPPORTED. */
HARK_MUST_CHECK hark_status hark_component_check_members(const hark_component_reader *reader, const hark_json_node *node,
                                                         const char *members);

/* Members of an object. A member that is absent or null leaves *out as it is. Errors: HARK_BAD_FILE (of another kind). */
HARK_MUST_CHECK hark_status hark_component_boolean(const hark_component_reader *reader, const hark_json_node *node, const char *key,
                                                   bool *out);
HARK_MUST_CHECK hark_status hark_component_integer(const hark_component_reader *reader, const hark_json_node *node, const char *key,
                                                   int64_t low, int64_t high, int64_t *out);
/* The caller frees the text. */
HARK_MUST_CHECK hark_status hark_component_text(const hark_component_reader *reader, const hark_json_node *node, const char *key,
                                                hark_bytes *out);
/* The same, where the member must be there. */
HARK_MUST_CHECK hark_status hark_component_needed_text(const hark_component_reader *reader, const hark_json_node *node, const char *key,
                                                       hark_bytes *out);
/* One of the words "A|B|C". */
HARK_MUST_CHECK hark_status hark_component_word(const hark_component_reader *reader, const hark_json_node *node, const char *key,
                                                const char *words, int *out);

/* {"String": "..."} or {"Regex": "..."}. */
typedef struct hark_pattern {
  hark_bytes text;
  hark_regex *regex; /* NULL: the text itself */
} hark_pattern;
HARK_MUST_CHECK hark_status hark_pattern_read(const hark_component_reader *reader, const hark_json_node *node, const char *key,
                                              hark_pattern *out);
void hark_pattern_close(hark_context *context, hark_pattern *pattern);
/* Visits the matches of a pattern in a text from left to right. Set `after` to HARK_NO_MATCH first. */
#define HARK_NO_MATCH SIZE_MAX
typedef struct hark_finder {
  size_t from;       /* where the search goes on */
  size_t after;      /* end of the last match */
  size_t begin, end; /* of the match that was found; empty matches directly after another one are left out */
} hark_finder;
HARK_MUST_CHECK hark_status hark_pattern_next(hark_pipeline_work *work, const hark_pattern *pattern, hark_span text, hark_finder *finder,
                                              bool *found);

/* What is replaced, and by what: {"pattern": ..., "content": "..."}. */
typedef struct hark_replacement {
  hark_pattern pattern;
  hark_bytes content;
} hark_replacement;
HARK_MUST_CHECK hark_status hark_replacement_read(hark_component_reader *reader, const hark_json_node *node, void *replacement);
void hark_replacement_close(hark_context *context, void *replacement);

/* ---- running ---- */

typedef struct hark_component_kind hark_component_kind;

typedef struct hark_component {
  const hark_component_kind *kind;
  void *state;
} hark_component;

typedef enum hark_library_needed { HARK_NEEDS_NOTHING, HARK_NEEDS_UTF8PROC, HARK_NEEDS_PCRE2 } hark_library_needed;

struct hark_component_kind {
  const char *type;
  const char *members; /* besides the type, "prefix|cleanup"; NULL: none. Others are refused: they may change the tokens */
  size_t state_bytes;
  hark_library_needed needs;
  /* Reads the component's object into a state that is zero. NULL: nothing to read. */
  hark_status (*read)(hark_component_reader *reader, const hark_json_node *node, void *state);
  void (*close)(hark_context *context, void *state); /* NULL: nothing to free; may be called after a read that failed */
  /* One of these, by the table. */
  union {
    /* Appends the new text to `out`. *cut: set when characters at the beginning were removed. */
    hark_status (*normalize)(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut);
    /* Divides a text, calling hark_pipeline_pass() for each part. `stage`: of this component. `first`: the text begins where the line
     * does. */
    hark_status (*split)(const void *state, hark_pipeline_work *work, size_t stage, hark_span in, bool first);
    /* Appends the tokens of a text to work->ids. */
    hark_status (*tokenize)(const void *state, hark_pipeline_work *work, hark_span in);
    /* Puts special tokens around work->ids. */
    hark_status (*finish)(const void *state, hark_pipeline_work *work);
    /* Changes the texts of tokens, work->parts, in place; new texts are in work->pool. */
    hark_status (*decode)(const void *state, hark_pipeline_work *work);
  };
};

typedef struct hark_component_table {
  const hark_component_kind *const *kinds; /* ended by NULL */
  const char *sequence;                    /* the member of a "Sequence" that lists its components; NULL: there are none */
} hark_component_table;

extern const hark_component_table hark_normalizers, hark_pre_tokenizers, hark_models, hark_post_processors, hark_decoders;

/* Components of one table, in order. */
typedef struct hark_components {
  hark_component *data;
  size_t count, capacity;
} hark_components;

/* Reads a component, or a sequence of them, or null, and appends them to the list. The reader's place names it. */
HARK_MUST_CHECK hark_status hark_components_read(hark_component_reader *reader, const hark_component_table *table,
                                                 const hark_json_node *node, hark_components *out);
/* Appends a component with a zero state, which the caller fills. */
HARK_MUST_CHECK hark_status hark_components_add(hark_context *context, const hark_component_kind *kind, hark_components *out, void **state);
void hark_components_close(hark_context *context, hark_components *components);

/* ---- the pipeline ---- */

typedef struct hark_added_token {
  hark_span text;
  hark_span decoded; /* the normalized text, for a token that is searched in normalized text; set by hark_added_tokens_set() */
  int32_t id;
  bool single_word, left, right, normalized, special;
  bool ready;      /* the text is normalized as it is */
  bool unsearched; /* never found in a text */
} hark_added_token;

/* Added tokens that are searched in the text itself, or in the normalized text. */
typedef struct hark_added_search {
  hark_trie trie; /* values: indices of added tokens */
  bool begins[256];
  bool used;
} hark_added_search;

struct hark_pipeline {
  hark_token_table vocabulary; /* the model's */
  hark_bytes added_text, added_normal;
  hark_added_token *added; /* [added_count] */
  size_t added_count;
  int32_t *added_of; /* [added_of_size]: index of an added token by its number; -1: none */
  int32_t added_of_size;
  hark_added_search raw, normalized;
  hark_components normalizers, pre_tokenizers, model, post_processors, decoders;
};

/* Adds the tokens of "added_tokens". After normalizers and model have been read. */
HARK_MUST_CHECK hark_status hark_added_tokens_read(hark_component_reader *reader, const hark_json_node *list);
/* The same from an array, whose texts are copied. */
HARK_MUST_CHECK hark_status hark_added_tokens_set(hark_context *context, hark_pipeline *pipeline, const hark_added_token *tokens,
                                                  size_t count);
void hark_added_tokens_close(hark_context *context, hark_pipeline *pipeline);

/* Divides a text at added tokens: their numbers go to work->ids, what is between them to `between`. */
typedef hark_status hark_between(hark_pipeline_work *work, hark_span text, bool first);
HARK_MUST_CHECK hark_status hark_added_tokens_split(hark_pipeline_work *work, const hark_added_search *search, hark_span text, bool first,
                                                    hark_between *between);

/* A piece and its tokens, in a table by the hash of the piece. */
#define HARK_CACHED_BYTES 64
#define HARK_CACHED_TOKENS 14
typedef struct hark_cached_piece {
  uint32_t hash;
  uint8_t bytes, count; /* bytes 0: none */
  int32_t ids[HARK_CACHED_TOKENS];
  char text[HARK_CACHED_BYTES];
} hark_cached_piece;

typedef struct hark_match {
  uint32_t begin, end;
  bool is_match;
} hark_match;

typedef struct hark_matches {
  hark_match *data;
  size_t count, capacity;
} hark_matches;

/* Memory of one pre-tokenizer. */
typedef struct hark_stage {
  hark_bytes text;
  hark_matches matches;
} hark_stage;

/* A pair of symbols to merge: rank << 32 | place. */
typedef struct hark_queue {
  uint64_t *data;
  size_t count, capacity;
} hark_queue;

typedef struct hark_symbol {
  int32_t id, previous, next; /* id -1: merged into another */
} hark_symbol;

typedef struct hark_symbols {
  hark_symbol *data;
  size_t count, capacity;
} hark_symbols;

typedef struct hark_best_path {
  double score;
  int32_t id;
  int32_t from; /* -1: not reached */
} hark_best_path;

typedef struct hark_best_paths {
  hark_best_path *data;
  size_t count, capacity;
} hark_best_paths;

struct hark_pipeline_work {
  hark_context *context;
  const hark_pipeline *pipeline;
  hark_ids ids;
  hark_bytes normal[2]; /* of the normalizers, in turn */
  hark_ids codes;
  hark_stage *stage; /* [stages] */
  size_t stages;
  void *match; /* of regular expressions; made when needed */
  hark_cached_piece *cache;
  hark_symbols symbols;
  hark_queue queue;
  hark_best_paths paths;
  hark_bytes word;
  hark_spans parts, more_parts; /* of decoders */
  hark_bytes pool[2];
  size_t text_bytes; /* of the text that is encoded or decoded */
  hark_span lacking; /* that has no token, in the input or in the work's memory; set by a model that fails for it */
  bool apart;        /* decoding one token in the middle of a text: bytes stay as they are, and nothing is done to the text's ends */
};

/* Gives a part of a text to the component after `stage`: another pre-tokenizer, or the model. Empty parts are dropped. */
HARK_MUST_CHECK hark_status hark_pipeline_pass(hark_pipeline_work *work, size_t stage, hark_span part, bool first);

/* The 256 characters by which byte-level tokenizers write bytes, and back: -1 for other characters. */
uint32_t hark_byte_character(unsigned char byte);
int hark_character_byte(uint32_t code);
/* The byte of a token "<0x0A>", or -1. */
int hark_byte_token(hark_span text);

/* Runs all normalizers: *out is `in` itself or in the work's memory. */
HARK_MUST_CHECK hark_status hark_pipeline_normalize(hark_pipeline_work *work, hark_span in, hark_span *out, bool *cut);

/* Makes the memory of a caller for a pipeline that is still being read. */
HARK_MUST_CHECK hark_status hark_pipeline_work_begin(hark_context *context, const hark_pipeline *pipeline, hark_pipeline_work *work);
void hark_pipeline_work_end(hark_pipeline_work *work);

/* Models that files of SentencePiece fill themselves. */
typedef struct hark_bpe_merge {
  int32_t left, right, rank, id;
} hark_bpe_merge;
extern const hark_component_kind hark_model_bpe, hark_model_unigram, hark_model_word_piece, hark_model_word_level;
/* A BPE over characters whose symbols that the vocabulary lacks become bytes or `unknown`, adjacent ones together. */
HARK_MUST_CHECK hark_status hark_bpe_fill(hark_context *context, const hark_pipeline *pipeline, void *state, const hark_bpe_merge *merges,
                                          size_t count, bool byte_fallback, int32_t unknown);
/* Scores by number, and the lowest; a token whose score is NaN is never found in a text. */
HARK_MUST_CHECK hark_status hark_unigram_fill(hark_context *context, const hark_pipeline *pipeline, void *state, const double *scores,
                                              double lowest, bool byte_fallback, int32_t unknown, bool single);

#endif
