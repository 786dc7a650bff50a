/* version.c - hark version: the version of hark, its build options and the features of this machine. */
#include <hark/version.h>
#include <stdio.h>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "cli/threads.h"
#include "data/unpack/unpack.h"
#include "group/launch.h"
#include "json/json.h"

#ifdef HARK_WITH_ONEDNN
#define ONEDNN true
#else
#define ONEDNN false
#endif
#ifdef HARK_WITH_SENTENCEPIECE
#define SENTENCEPIECE true
#else
#define SENTENCEPIECE false
#endif
#ifdef HARK_WITH_PCRE2
#define PCRE2 true
#else
#define PCRE2 false
#endif
#ifdef HARK_WITH_UTF8PROC
#define UTF8PROC true
#else
#define UTF8PROC false
#endif
#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* "a, b" for people, "\"a\", \"b\"" for JSON. */
static void append_name(hark_text *text, bool json, bool first, const char *name) {
  hark_text_append(text, "%s", first ? "" : ", ");
  if (json) {
    hark_json_append_string(text, name);
  } else {
    hark_text_append(text, "%s", name);
  }
}

static void append_backends(hark_text *text, bool json) {
  for (int i = 0; hark_backends[i] != NULL; i++) append_name(text, json, i == 0, hark_backends[i]->name);
}

static void append_instruction_sets(hark_text *text, bool json) {
  bool first = true;
  for (int i = 0; hark_cpu_isas[i] != NULL; i++) {
    if (!hark_cpu_isas[i]->runs_here()) continue;
    append_name(text, json, first, hark_cpu_isas[i]->name);
    first = false;
  }
}

static void append_compressions(hark_text *text, bool json) {
  bool first = true;
  for (int i = 0; hark_packings[i] != NULL; i++) {
    if (hark_packings[i]->state_bytes == 0) continue;
    append_name(text, json, first, hark_packings[i]->name);
    first = false;
  }
  if (first && !json) hark_text_append(text, "none");
}

/* The library that passes messages between several processes, if its module is there. */
static void append_messages(hark_text *text, bool json) {
  char library[HARK_MESSAGE_BYTES];
  const bool there = hark_group_describe(library, sizeof library);
  hark_text_append(text, json ? "\"mpi\": " : "MPI: ");
  if (there)
    append_name(text, json, true, library);
  else
    hark_text_append(text, json ? "null" : "no");
  hark_text_append(text, json ? ", " : "\n");
}

static hark_status run(hark_invocation *call) {
  HARK_TRY(hark_command_open(call, NULL, 0, 0, false));
  hark_context *const context = call->context;
  const bool json = call->json;
  const char *const answer[2] = {json ? "false" : "no", json ? "true" : "yes"};
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, json ? "{\"version\": \"%s\", \"backends\": [" : "hark %s\nbackends: ", hark_version());
  append_backends(&text, json);
  hark_text_append(
      &text, json ? "], \"backend\": \"%s\", \"instruction_sets\": [" : " (%s is used)\ninstruction sets: ", hark_context_backend(context));
  append_instruction_sets(&text, json);
  hark_text_append(
      &text, json ? "], \"instruction_set\": \"%s\", \"onednn\": " : " (%s is used)\noneDNN: ", hark_context_instruction_set(context));
  hark_text_append(&text, "%s", answer[ONEDNN]);
  hark_text_append(&text,
                   json ? ", \"sentencepiece\": %s, \"pcre2\": %s, \"utf8proc\": %s, " : "\nSentencePiece: %s\nPCRE2: %s\nutf8proc: %s\n",
                   answer[SENTENCEPIECE], answer[PCRE2], answer[UTF8PROC]);
  append_messages(&text, json);
  hark_text_append(&text, json ? "\"compressed_data\": [" : "compressed data: ");
  append_compressions(&text, json);
  hark_text_append(&text, json ? "], " : "\nthreads: ");
  if (json) {
    hark_thread_members(context, &text);
  } else {
    char words[HARK_THREAD_WORDS_BYTES];
    hark_text_append(&text, "%s", hark_thread_words(context, words));
  }
  hark_text_append(&text, json ? ", \"compiler\": " : "\ncompiler: ");
  append_name(&text, json, true, COMPILER);
  hark_text_append(&text, json ? "}\n" : "\n");
  return hark_command_print(call, &text);
}

const hark_command hark_command_version = {
    .name = "version",
    .arguments = "",
    .summary = "print the version, backends, instruction sets and what hark was built with",
    .has_json = true,
    .run = run,
};
