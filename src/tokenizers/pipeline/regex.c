/* regex.c - the translation of an expression, and PCRE2's compiled code. */
#include "tokenizers/pipeline/regex.h"

#if defined(HARK_WITH_PCRE2)
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

const bool hark_regex_available = true;

/* An expression from a stranger ends after so many steps on one text, which is some hundred milliseconds. */
#define STEP_LIMIT 2000000
#define PATTERN_BYTES ((size_t)1 << 16)

struct hark_regex {
  pcre2_code *code;
  pcre2_match_context *limits;
};

/* Contents of brackets. Alone, Oniguruma counts the numbers of Latin-1 to \w. */
#define WHITE "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_WHITE                                                                                                                          \
  "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"    \
  "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define ENCLOSED "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORD WORD_IN_BRACKETS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" /* superscripts and fractions of Latin-1 */
#define WORD_IN_BRACKETS "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}" ENCLOSED
#define HEXADECIMAL "0-9a-fA-F"

/* Texts that mean something else in PCRE2, and what is written for them: alone, and within brackets; NULL: refused there. */
static const struct {
  const char *text, *alone, *inside;
} translations[] = {
    {"\\s", "[" WHITE "]", WHITE},
    {"\\S", "[^" WHITE "]", NOT_WHITE},
    {"\\w", "[" WORD "]", WORD_IN_BRACKETS},
    {"\\W", "[^" WORD "]", NULL},
    {"\\h", "[" HEXADECIMAL "]", HEXADECIMAL},
    {"\\H", "[^" HEXADECIMAL "]", NULL},
    {"\\b", "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))", "\\b"},
    {"\\B", "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))", NULL},
    {"[:space:]", NULL, WHITE},
    {"[:digit:]", NULL, "\\p{Nd}"},
    {"[:word:]", NULL, WORD_IN_BRACKETS},
    {"[:punct:]", NULL, "\\p{P}\\p{S}"},
    {"[:xdigit:]", NULL, HEXADECIMAL},
};

typedef struct translator {
  hark_context *context;
  const char *at, *end;
  hark_bytes *out;
  bool inside; /* of brackets */
} translator;

static hark_status put(translator *t, const char *text, size_t bytes) { return hark_bytes_add(t->context, t->out, text, bytes); }

static hark_status copy(translator *t, size_t bytes) {
  HARK_TRY(put(t, t->at, bytes));
  t->at += bytes;
  return HARK_OK;
}

static bool follows(const translator *t, const char *text) {
  const size_t bytes = strlen(text);
  return (size_t)(t->end - t->at) >= bytes && memcmp(t->at, text, bytes) == 0;
}

static hark_status refuse(const translator *t, const char *what, size_t bytes) {
  return hark_fail(t->context, HARK_UNSUPPORTED, "%.*s %s in a regular expression is not supported", (int)bytes, what,
                   t->inside ? "within brackets" : "outside brackets");
}

/* The name of a script alone means other characters too in PCRE2: sc: restricts it. */
static bool is_script(const char *name, size_t bytes) {
  char pattern[64];
  int code;
  PCRE2_SIZE at;
  if (bytes < 3 || bytes > 40) return false;
  const int length = snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)bytes, name);
  pcre2_code *const compiled = pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)length, PCRE2_UTF, &code, &at, NULL);
  pcre2_code_free(compiled);
  return compiled != NULL;
}

/* \p{Name}, \P{Name}, \p{^Name}. */
static hark_status put_property(translator *t) {
  const char *const close = memchr(t->at, '}', (size_t)(t->end - t->at));
  const size_t negated = t->end - t->at > 3 && t->at[3] == '^', begin = 3 + negated;
  if (close == NULL || close < t->at + begin) return copy(t, 2);
  const size_t bytes = (size_t)(close - t->at) - begin;
  const bool script = is_script(t->at + begin, bytes);
  HARK_TRY(copy(t, begin));
  if (script) HARK_TRY(put(t, "sc:", 3));
  return copy(t, bytes + 1);
}

/* One element: an escape, a class of POSIX, or a character. */
static hark_status put_element(translator *t) {
  for (size_t i = 0; i < sizeof translations / sizeof translations[0]; i++) {
    const char *const text = translations[i].text, *const with = t->inside ? translations[i].inside : translations[i].alone;
    if (!follows(t, text) || (!t->inside && text[0] == '[')) continue;
    if (with == NULL) return refuse(t, text, strlen(text));
    t->at += strlen(text);
    return put(t, with, strlen(with));
  }
  if (follows(t, "\\p{") || follows(t, "\\P{")) return put_property(t);
  if (t->inside && (*t->at == '[' || follows(t, "&&"))) return refuse(t, t->at, *t->at == '[' ? 1 : 2);
  return copy(t, *t->at == '\\' && t->end - t->at > 1 ? 2 : 1);
}

static hark_status translate(translator *t) {
  while (t->at < t->end) {
    if (*t->at == '[' && !t->inside) {
      HARK_TRY(copy(t, follows(t, "[^]") ? 3 : follows(t, "[^") || follows(t, "[]") ? 2 : 1));
      t->inside = true;
      continue;
    }
    if (*t->at == ']') t->inside = false;
    HARK_TRY(put_element(t));
  }
  return HARK_OK;
}

static hark_status compile(hark_context *context, const hark_bytes *pattern, hark_regex *regex) {
  int code = 0;
  PCRE2_SIZE at = 0;
  regex->code = pcre2_compile((PCRE2_SPTR)(pattern->data != NULL ? pattern->data : ""), pattern->count,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
  regex->limits = pcre2_match_context_create(NULL);
  if (regex->code == NULL && code != PCRE2_ERROR_NOMEMORY) {
    PCRE2_UCHAR reason[160] = "";
    (void)pcre2_get_error_message(code, reason, sizeof reason);
    return hark_fail(context, HARK_BAD_FILE, "the regular expression is not valid: %s", (const char *)reason);
  }
  if (regex->code == NULL || regex->limits == NULL) return hark_fail(context, HARK_OUT_OF_MEMORY, "out of memory in PCRE2");
  (void)pcre2_set_match_limit(regex->limits, STEP_LIMIT);
  (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* without it matching is slower, with the same result */
  return HARK_OK;
}

hark_status hark_regex_compile(hark_context *context, const char *pattern, size_t bytes, hark_regex **out) {
  hark_bytes translated = {0};
  *out = NULL;
  if (bytes > PATTERN_BYTES) return hark_fail(context, HARK_BAD_FILE, "the regular expression has more than %zu bytes", PATTERN_BYTES);
  hark_regex *const regex = calloc(1, sizeof *regex);
  if (regex == NULL) return hark_fail(context, HARK_OUT_OF_MEMORY, "out of memory for a regular expression");
  translator t = {.context = context, .at = pattern, .end = pattern + bytes, .out = &translated};
  hark_status status = translate(&t);
  if (status == HARK_OK) status = compile(context, &translated, regex);
  HARK_FREE_LIST(context, &translated);
  if (status != HARK_OK) {
    hark_regex_free(regex);
    return status;
  }
  *out = regex;
  return HARK_OK;
}

void hark_regex_free(hark_regex *regex) {
  if (regex == NULL) return;
  pcre2_code_free(regex->code);
  pcre2_match_context_free(regex->limits);
  free(regex);
}

void *hark_regex_match_memory(void) { return pcre2_match_data_create(1, NULL); }
void hark_regex_match_free(void *memory) { pcre2_match_data_free(memory); }

hark_status hark_regex_next(hark_context *context, const hark_regex *regex, void *memory, hark_span text, size_t from, bool *found,
                            size_t *begin, size_t *end) {
  const int count = pcre2_match(regex->code, (PCRE2_SPTR)text.text, text.bytes, from, PCRE2_NO_UTF_CHECK, memory, regex->limits);
  *found = count >= 0;
  if (count == PCRE2_ERROR_NOMATCH) return HARK_OK;
  if (count == PCRE2_ERROR_NOMEMORY) return hark_fail(context, HARK_OUT_OF_MEMORY, "out of memory in PCRE2");
  if (count < 0) return hark_fail(context, HARK_UNSUPPORTED, "the regular expression takes too many steps on this text");
  const PCRE2_SIZE *const place = pcre2_get_ovector_pointer(memory);
  *begin = place[0];
  *end = place[1];
  if (*begin > *end || *begin < from) *begin = *end; /* \K may move the beginning */
  return HARK_OK;
}
#else
const bool hark_regex_available = false;

hark_status hark_regex_compile(hark_context *context, const char *pattern, size_t bytes, hark_regex **out) {
  (void)pattern, (void)bytes;
  *out = NULL;
  return hark_fail(context, HARK_UNSUPPORTED, "regular expressions need PCRE2");
}

void hark_regex_free(hark_regex *regex) { (void)regex; }
void *hark_regex_match_memory(void) { return NULL; }
void hark_regex_match_free(void *memory) { (void)memory; }

hark_status hark_regex_next(hark_context *context, const hark_regex *regex, void *memory, hark_span text, size_t from, bool *found,
                            size_t *begin, size_t *end) {
  (void)regex, (void)memory, (void)text, (void)from, (void)begin, (void)end;
  *found = false;
  return hark_fail(context, HARK_UNSUPPORTED, "regular expressions need PCRE2");
}
#endif
