/* regex.c - the translation of an expression, and PCRE2's compiled code. */
#include "tokenizers/pipeline/regex.h"

#if defined(HARK_WITH_PCRE2)
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

const bool hark_regex_available = true;

/* An expression from a stranger ends after so many steps on one text, which is some hundred milliseconds. */
#define STEP_LIMIT 2000000
#define PATTERN_BYTES ((size_t)1 << 16)

struct hark_regex {
  pcre2_code *code;
  pcre2_match_context *limits;
};

/* The contents of a bracket. */
static const char white[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
static const char word[] = "\\p{L}\\p{M}\\p{N}\\p{Pc}";
static const char hexadecimal[] = "0-9a-fA-F";

static const char *class_of(char letter) {
  return letter == 's' || letter == 'S' ? white : letter == 'w' || letter == 'W' ? word : letter == 'h' || letter == 'H' ? hexadecimal : NULL;
}

static hark_status put(hark_context *context, hark_bytes *out, const char *text) { return hark_bytes_add(context, out, text, strlen(text)); }

/* Writes an escape: \s, \w, \h and their opposites as brackets. The opposite within a bracket stays PCRE2's. */
static hark_status put_escape(hark_context *context, hark_bytes *out, const char *at, bool in_bracket) {
  const char *const list = class_of(at[1]);
  const bool opposite = at[1] >= 'A' && at[1] <= 'Z';
  if (list == NULL || (in_bracket && opposite)) return hark_bytes_add(context, out, at, 2);
  if (in_bracket) return put(context, out, list);
  HARK_TRY(put(context, out, opposite ? "[^" : "["));
  HARK_TRY(put(context, out, list));
  return put(context, out, "]");
}

static hark_status translate(hark_context *context, const char *pattern, size_t bytes, hark_bytes *out) {
  int brackets = 0;
  for (size_t i = 0; i < bytes; i++) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < bytes) {
      HARK_TRY(put_escape(context, out, pattern + i, brackets > 0));
      i++;
      continue;
    }
    if (brackets > 0 && c == '&' && i + 1 < bytes && pattern[i + 1] == '&')
      return hark_fail(context, HARK_UNSUPPORTED, "set operations (&&) in a regular expression are not supported");
    if (brackets > 0 && c == '[' && i + 1 < bytes && pattern[i + 1] != ':')
      return hark_fail(context, HARK_UNSUPPORTED, "brackets in brackets in a regular expression are not supported");
    if (c == '[' && brackets == 0) {
      brackets = 1;
      HARK_TRY(hark_bytes_add(context, out, &c, 1));
      if (i + 1 < bytes && pattern[i + 1] == '^') HARK_TRY(hark_bytes_add(context, out, &pattern[++i], 1));
      if (i + 1 < bytes && pattern[i + 1] == ']') HARK_TRY(hark_bytes_add(context, out, &pattern[++i], 1));
      continue;
    }
    if (c == '[' && brackets > 0) { /* [:alpha:] up to its end */
      const char *const end = memchr(pattern + i, ']', bytes - i);
      const size_t length = end != NULL ? (size_t)(end - (pattern + i)) + 1 : bytes - i;
      HARK_TRY(hark_bytes_add(context, out, pattern + i, length));
      i += length - 1;
      continue;
    }
    if (c == ']' && brackets > 0) brackets = 0;
    HARK_TRY(hark_bytes_add(context, out, &c, 1));
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
  hark_status status = translate(context, pattern, bytes, &translated);
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
