/* run.c - opening the folder of a run, and its text. */
#include "train/run.h"

#include <string.h>

#include "data/corpora/corpus_build.h"
#include "data/sources_apart.h"
#include "io/event_file.h"
#include "models/model_parts.h"
#include "tokenizers/pipeline/pipeline.h"
#include "train/data_place.h"
#include "train/samples.h"
#include "train/trainer.h"
#include "train/warm_start.h"

hark_status hark_run_path(hark_context *context, const hark_run *run, const char *name, char *out) {
  return hark_path_join(context, run->path, name, out);
}

static hark_status holds_run(hark_context *context, const hark_run *run, bool *holds) {
  char path[HARK_PATH_BYTES];
  hark_path_kind kind;
  HARK_TRY(hark_run_path(context, run, "config.yaml", path));
  HARK_TRY(hark_path_examine(context, path, &kind));
  *holds = kind == HARK_PATH_FILE;
  return HARK_OK;
}

static hark_status copy_path(hark_context *context, const char *path, hark_run *run) {
  const size_t length = strlen(path);
  if (length == 0 || length >= sizeof run->path)
    return hark_fail(context, HARK_NOT_FOUND, "a path of %zu bytes, expected 1 to %zu", length, sizeof run->path - 1);
  memcpy(run->path, path, length + 1);
  return HARK_OK;
}

/* Refuses to begin a run where there is one, and to resume where there is none. */
static hark_status check_holds(hark_context *context, const hark_run *run, bool resume) {
  bool holds = false;
  HARK_TRY(holds_run(context, run, &holds));
  if (resume && !holds) return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: there is no run to resume", run->path);
  if (!resume && holds)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: already contains a run; --resume continues it, another --out starts a new one",
                     run->path);
  return HARK_OK;
}

/* Files that a killed process may have left before its run began (only then it has a configuration), and how they begin, without blanks. */
typedef struct left_file {
  const char *name, *beginning; /* NULL: files that only a run has that began */
} left_file;

#define VERSION "{\"format_version\":"
static const left_file left_files[] = {
    {"vocabulary.json", VERSION}, {HARK_DATA_PLACE_NAME, VERSION}, {"origin.json", VERSION}, {"metrics.jsonl", "{\"step\":0,"},
    {"metrics.csv", NULL},        {HARK_SAMPLES_FILE, NULL},       {"last", NULL},           {"best", NULL}};

/* What a run has before it has begun, the lock last; and what it has later. */
static const char *const own[] = {"cache",         "checkpoints", "vocabulary.json", "origin.json", "data.json",
                                  "metrics.jsonl", "metrics.csv", HARK_SAMPLES_FILE, HARK_LOCK_NAME};
static const char *const later[] = {"config.yaml", "last", "best"};

static bool is_folder_of_run(const char *name) { return strcmp(name, "cache") == 0 || strcmp(name, HARK_CHECKPOINTS_FOLDER) == 0; }

/* Why a run cannot use or replace what it finds, such as a folder in place of a file; NULL if it can. */
static const char *unusable(hark_path_kind kind, const char *name) {
  switch (kind) {
    case HARK_PATH_NONE: return NULL;
    case HARK_PATH_FILE: return is_folder_of_run(name) ? "is a file, expected a folder" : NULL;
    case HARK_PATH_FOLDER: return is_folder_of_run(name) ? NULL : "is a folder, expected a regular file";
    case HARK_PATH_OTHER: break;
  }
  return is_folder_of_run(name) ? "is not a folder" : "is not a regular file";
}

/* Before anything is computed: a save would fail, perhaps after hours. */
static hark_status refuse_unusable(hark_context *context, const hark_run *run, bool resume) {
  const size_t first = sizeof own / sizeof *own, all = first + sizeof later / sizeof *later;
  for (size_t i = 0; i < all; i++) {
    const char *const name = i < first ? own[i] : later[i - first];
    char path[HARK_PATH_BYTES];
    hark_path_kind kind;
    bool lost = false;
    HARK_TRY(hark_run_path(context, run, name, path));
    HARK_TRY(hark_path_examine(context, path, &kind));
    if (kind == HARK_PATH_NONE) HARK_TRY(hark_path_is_link(context, path, &lost));
    const char *const reason = lost ? "is a link that leads nowhere" : unusable(kind, name);
    if (reason != NULL) return hark_fail(context, resume ? HARK_BAD_FILE : HARK_IO_ERROR, "%s: %s", path, reason);
  }
  return HARK_OK;
}

static hark_status refuse_to_replace(hark_context *context, const char *path, const char *what) {
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: %s, and a run here would overwrite it: expected another --out", path, what);
}

/* Checkpoints whose run has lost its configuration. */
static hark_status refuse_checkpoints(hark_context *context, const hark_run *run) {
  char path[HARK_PATH_BYTES];
  hark_names names;
  bool any = false;
  HARK_TRY(hark_run_path(context, run, HARK_CHECKPOINTS_FOLDER, path));
  if (hark_path_kind_of(path) != HARK_PATH_FOLDER) return HARK_OK;
  HARK_TRY(hark_folder_list(context, path, &names));
  for (int64_t i = 0; i < names.count; i++) any = any || hark_checkpoint_step(names.items[i]) >= 0;
  hark_names_free(context, &names);
  return any ? refuse_to_replace(context, path, "has checkpoints of a run without config.yaml") : HARK_OK;
}

/* A new run in a folder with other files replaces those of its names, which a killed process may have left. Refuses any others: they are
 * the user's, perhaps the data of this very run, or those of a damaged run. */
static hark_status refuse_others(hark_context *context, const hark_run *run) {
  for (size_t i = 0; i < sizeof left_files / sizeof *left_files; i++) {
    const left_file *const file = &left_files[i];
    char path[HARK_PATH_BYTES];
    bool left = file->beginning != NULL;
    HARK_TRY(hark_run_path(context, run, file->name, path));
    const hark_path_kind kind = hark_path_kind_of(path);
    if (kind == HARK_PATH_FILE && left) HARK_TRY(hark_file_begins_with(context, path, file->beginning, &left));
    if (kind != HARK_PATH_NONE && !left)
      return refuse_to_replace(context, path, file->beginning != NULL ? "is no file of hark" : "is there without a run");
  }
  return refuse_checkpoints(context, run);
}

/* Creates what the folder of a locked run needs, and removes what a killed process left. */
static hark_status prepare_folder(hark_context *context, const hark_run *run, bool resume) {
  char folder[HARK_PATH_BYTES];
  HARK_TRY(check_holds(context, run, resume)); /* again: another process may have begun a run, and ended, before we had the lock */
  HARK_TRY(hark_folder_clean(context, run->path));
  HARK_TRY(hark_run_path(context, run, "checkpoints", folder));
  HARK_TRY(hark_folder_make(context, folder));
  HARK_TRY(hark_run_path(context, run, "cache", folder));
  HARK_TRY(hark_folder_make(context, folder));
  return hark_folder_clean(context, folder);
}

static hark_status is_empty(hark_context *context, const char *path, bool *empty) {
  hark_names names;
  HARK_TRY(hark_folder_list(context, path, &names));
  *empty = names.count == 0;
  hark_names_free(context, &names);
  return HARK_OK;
}

hark_status hark_run_read_vocabulary(hark_context *context, const hark_run *run, hark_text *out) {
  char path[HARK_PATH_BYTES];
  hark_path_kind kind;
  HARK_TRY(hark_run_path(context, run, "vocabulary.json", path));
  HARK_TRY(hark_path_examine(context, path, &kind));
  return kind != HARK_PATH_NONE ? hark_file_read_stored(context, path, HARK_VOCABULARY_MAX_BYTES, out) : HARK_OK;
}

bool hark_run_keeps(const char *name) {
  bool kept = strncmp(name, HARK_EVENT_PREFIX, sizeof HARK_EVENT_PREFIX - 1) == 0;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) kept = kept || strcmp(name, own[i]) == 0;
  for (size_t i = 0; i < sizeof later / sizeof *later; i++) kept = kept || strcmp(name, later[i]) == 0;
  return kept;
}

/* Removes the files of a run that has not begun, and nothing else. */
static hark_status remove_own(hark_context *context, const hark_run *run) {
  HARK_TRY(hark_event_files_remove(context, run->path, NULL));
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    char path[HARK_PATH_BYTES];
    HARK_TRY(hark_run_path(context, run, own[i], path));
    HARK_TRY(hark_path_remove(context, path));
  }
  if (run->kept) return HARK_OK;
  bool empty = false;
  HARK_TRY(is_empty(context, run->path, &empty));
  return empty ? hark_folder_remove(context, run->path) : HARK_OK;
}

hark_status hark_run_open(hark_context *context, const char *path, bool resume, hark_run *out) {
  *out = (hark_run){.lock = -1};
  HARK_TRY(copy_path(context, path, out));
  HARK_TRY(hark_folder_check_unlocked(context, path)); /* first: another process may be about to begin its run */
  HARK_TRY(check_holds(context, out, resume));         /* a folder that is refused is not touched */
  if (!resume) HARK_TRY(refuse_others(context, out));
  HARK_TRY(refuse_unusable(context, out, resume));
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(context, path, &kind));
  bool made = kind == HARK_PATH_NONE;
  if (kind == HARK_PATH_FOLDER) HARK_TRY(is_empty(context, path, &made));
  HARK_TRY(hark_folder_make(context, path));
  HARK_TRY(hark_folder_lock(context, path, &out->lock));
  out->made = made;
  out->kept = kind != HARK_PATH_NONE;
  const hark_status status = prepare_folder(context, out, resume);
  if (status != HARK_OK) {
    hark_run_abandon(context, out);
    hark_run_close(out);
  }
  return status;
}

void hark_run_abandon(hark_context *context, const hark_run *run) {
  char message[HARK_MESSAGE_BYTES];
  bool holds = true;
  if (!run->made) return;
  memcpy(message, context->message, sizeof message);
  hark_status status = holds_run(context, run, &holds);
  if (status == HARK_OK && !holds) status = remove_own(context, run);
  (void)status; /* the failure that is reported is the earlier one */
  memcpy(context->message, message, sizeof message);
}

bool hark_run_cut_checkpoint(char *path, char checkpoint[HARK_NAME_BYTES]) {
  for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--) path[length - 1] = '\0';
  char *name = strrchr(path, '/');
  if (name == NULL || strlen(name + 1) >= HARK_NAME_BYTES) return false;
  memcpy(checkpoint, name + 1, strlen(name + 1) + 1);
  *name = '\0';
  char *folder = strrchr(path, '/');
  const char *folder_name = folder != NULL ? folder + 1 : path;
  if (strcmp(folder_name, "checkpoints") != 0) return false;
  if (folder == NULL)
    memcpy(path, ".", 2);
  else if (folder == path)
    memcpy(path, "/", 2);
  else
    *folder = '\0';
  return true;
}

hark_status hark_run_open_reading(hark_context *context, const char *path, hark_run *out, char checkpoint[HARK_NAME_BYTES]) {
  *out = (hark_run){.lock = -1};
  checkpoint[0] = '\0';
  HARK_TRY(copy_path(context, path, out));
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind == HARK_PATH_NONE) return hark_fail(context, HARK_NOT_FOUND, "%s: there is no such run", path);
  bool holds = false;
  HARK_TRY(holds_run(context, out, &holds));
  if (holds) return HARK_OK;
  if (hark_run_cut_checkpoint(out->path, checkpoint)) HARK_TRY(holds_run(context, out, &holds));
  if (holds) return HARK_OK;
  if (kind == HARK_PATH_FILE)
    HARK_TRY(hark_path_refuse_foreign(context, path, "a run, which is a folder with config.yaml, or a model in safetensors"));
  return hark_fail(context, HARK_BAD_FILE,
                   "%s: is neither a run (a folder with config.yaml), nor a checkpoint in one, nor a model in safetensors", path);
}

void hark_run_close(hark_run *run) {
  if (run->lock >= 0) hark_folder_unlock(&run->lock);
}

/* The settings of the text from the configuration. */
static hark_corpus_settings text_settings(const hark_config *config, const char *cache, hark_subword_settings *subwords) {
  *subwords = (hark_subword_settings){.model = (hark_subword_model)config->data.subwords.model,
                                      .vocabulary = config->data.subwords.vocabulary,
                                      .byte_fallback = config->data.subwords.byte_fallback,
                                      .coverage = config->data.subwords.coverage,
                                      .learner = config->data.subwords.learner};
  return (hark_corpus_settings){.paths = config->data.paths.items,
                                .path_count = (int)config->data.paths.count,
                                .validation_paths = config->data.validation_paths.items,
                                .validation_path_count = (int)config->data.validation_paths.count,
                                .json_field = config->data.text_field[0] != '\0' ? config->data.text_field : NULL,
                                .unit = (hark_text_unit)config->data.unit,
                                .division = config->data.validation_paths.count > 0 ? HARK_DIVIDE_FILES : (hark_division)config->data.split,
                                .validation_fraction = config->data.validation_fraction,
                                .tokenizer_kind = hark_tokenizer_kind_name(config->data.tokenizer),
                                .subwords = hark_tokenizer_kind_has_pieces(config->data.tokenizer) ? subwords : NULL,
                                .unknown = (hark_unknown)config->data.unknown,
                                .cache_folder = cache};
}

/* ---- a vocabulary that is given ---- */

/* A pickle of protocol 2 to 5, such as nanoGPT's meta.pkl. */
static bool is_pickle(const char *path, const hark_text *text) {
  const size_t length = strlen(path);
  if (length >= 4 && strcmp(path + length - 4, ".pkl") == 0) return true;
  return text->length >= 2 && (unsigned char)text->data[0] == 0x80 && text->data[1] >= 2 && text->data[1] <= 5;
}

static hark_status read_given(hark_context *context, const char *path, hark_tokenizer **out) {
  static const hark_end_tokens none = {.count = 0};
  hark_imported *imported = NULL;
  hark_text text = hark_text_empty(context);
  hark_status status = hark_file_read(context, path, HARK_PIPELINE_FILE_BYTES, &text);
  if (status == HARK_OK && is_pickle(path, &text))
    status = hark_fail(context, HARK_UNSUPPORTED,
                       "%.300s: is a pickle, a program that is not run, expected a tokenizer.json or tokenizer.model", path);
  if (status == HARK_OK) status = hark_imported_read(context, path, hark_text_get(&text), text.length, &imported);
  hark_text_free(&text);
  return status == HARK_OK ? hark_tokenizer_import(context, &imported, hark_imported_size(imported), &none, out) : status;
}

/* In a folder, by the same names as those of models. */
static hark_status find_given(hark_context *context, const char *path, char out[HARK_PATH_BYTES]) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  hark_path_kind kind;
  if (hark_path_kind_of(path) != HARK_PATH_FOLDER) return hark_path_join(context, "", path, out);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    HARK_TRY(hark_path_join(context, path, names[i], out));
    HARK_TRY(hark_path_examine(context, out, &kind));
    if (kind == HARK_PATH_FILE) return HARK_OK;
  }
  return hark_fail(context, HARK_NOT_FOUND, "%.300s: has neither tokenizer.json nor tokenizer.model", path);
}

static hark_status read_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(find_given(context, config->data.vocabulary, path));
  return read_given(context, path, out);
}

hark_status hark_run_learn_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out) {
  *out = NULL;
  if (config->data.vocabulary[0] != '\0') return read_vocabulary(context, config, out);
  hark_subword_settings subwords;
  const hark_corpus_settings settings = text_settings(config, "", &subwords);
  hark_source_list sources = {0};
  hark_status status = hark_sources_find(context, &settings, &sources);
  if (status == HARK_OK) status = hark_sources_unpack(context, &sources, settings.json_field);
  if (status == HARK_OK) status = hark_sources_check_apart(context, &settings, &sources);
  if (status == HARK_OK) status = hark_corpus_learn(context, &settings, &sources, out);
  hark_sources_free(context, &sources);
  return status;
}

static hark_status check_text_given(hark_context *context, const hark_config *config) {
  if (config->data.paths.count > 0 || config->data.validation_paths.count > 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "there is no text: --data PATH names a file or a folder");
}

hark_status hark_model_corpus(hark_context *context, const hark_config *config, const char *path, hark_tokenizer **tokenizer,
                              hark_corpus **corpus) {
  hark_subword_settings subwords;
  *tokenizer = NULL;
  *corpus = NULL;
  HARK_TRY(check_text_given(context, config));
  HARK_TRY(hark_model_read_tokenizer(context, path, tokenizer));
  hark_corpus_settings settings = text_settings(config, "", &subwords);
  settings.may_build_elsewhere = true;
  settings.tokenizer = *tokenizer;
  return hark_corpus_open(context, &settings, corpus);
}

hark_status hark_run_corpus(hark_context *context, const hark_config *config, const hark_run *run, bool learn, hark_tokenizer **tokenizer,
                            hark_corpus **corpus) {
  *tokenizer = NULL;
  *corpus = NULL;
  char vocabulary[HARK_PATH_BYTES], cache[HARK_PATH_BYTES];
  HARK_TRY(hark_run_path(context, run, "vocabulary.json", vocabulary));
  HARK_TRY(hark_run_path(context, run, "cache", cache));
  HARK_TRY(check_text_given(context, config));
  hark_subword_settings subwords;
  hark_corpus_settings settings = text_settings(config, cache, &subwords);
  settings.may_build_elsewhere = run->lock < 0; /* the run's folder may belong to another user and be read-only */
  settings.known = !learn && config->data.paths.count > 0;
  if (!learn) {
    HARK_TRY(hark_tokenizer_load(context, vocabulary, tokenizer));
    settings.tokenizer = *tokenizer;
    return hark_corpus_open(context, &settings, corpus);
  }
  const bool warm = config->train.init_from[0] != '\0';
  if (warm || config->data.vocabulary[0] != '\0') {
    HARK_TRY((warm ? hark_warm_start_vocabulary : read_vocabulary)(context, config, tokenizer));
    settings.tokenizer = *tokenizer;
    HARK_TRY(hark_corpus_open(context, &settings, corpus));
    return hark_tokenizer_save(context, *tokenizer, vocabulary);
  }
  /* Learned with the corpus, then stored and loaded, so that a new and a resumed run have the same object. */
  HARK_TRY(hark_corpus_open(context, &settings, corpus));
  HARK_TRY(hark_tokenizer_save(context, hark_corpus_tokenizer(*corpus), vocabulary));
  return hark_tokenizer_load(context, vocabulary, tokenizer);
}
