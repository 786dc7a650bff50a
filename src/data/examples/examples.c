/* examples.c - opens labelled examples and gives access to them; see examples.h. Formats read the files. */
#include "data/examples/examples.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "data/examples/example_folder.h"
#include "data/examples/example_store.h"
#include "data/examples/picture_folder.h"
#include "data/formats/image_file.h"
#include "data/json_lines.h"
#include "data/permutation.h"
#include "data/sources_apart.h"
#include "io/files.h"
#include "io/foreign.h"
#include "io/json_write.h"
#include "io/number.h"

#define VOCABULARY_FORMAT_VERSION 1
#define DEFAULT_CLASSES 2
#define CLASSES_MAX 65536
#define DIVISION_SEED UINT64_C(0x6861726B) /* of the choice of training examples for validation: never changes */

static const hark_example_format *const formats[] = {
#define ROW(id, name) &hark_example_format_##id,
    HARK_EXAMPLE_FORMATS(ROW)
#undef ROW
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

const char *hark_examples_format_name(int index) { return index >= 0 && index < FORMAT_COUNT ? formats[index]->name : NULL; }
const char *hark_examples_format_summary(int index) { return index >= 0 && index < FORMAT_COUNT ? formats[index]->summary : NULL; }

const hark_example_format *hark_example_format_find(const char *name) {
  for (int i = 0; i < FORMAT_COUNT; i++)
    if (strcmp(formats[i]->name, name) == 0) return formats[i];
  return NULL;
}

static hark_status fail_unknown_format(hark_context *context, const char *name) {
  char names[128] = "", shown[HARK_SHOWN_BYTES];
  size_t length = 0;
  for (int i = 0; i < FORMAT_COUNT && length < sizeof names; i++)
    length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i > 0 ? ", " : "", formats[i]->name);
  return hark_fail(context, HARK_BAD_CONFIGURATION, "no format of examples is called \"%s\"; there are %s", hark_text_shown(name, shown),
                   names);
}

/* ---- opening ---- */

static hark_example_entry *entries_of(const hark_examples *examples, hark_split split) { return examples->entries[split].items; }

static hark_status refuse_foreign(hark_context *context, const hark_examples *examples, const hark_source *source) {
  char front[HARK_FOREIGN_BYTES];
  hark_input input;
  if (source->folder) return HARK_OK;
  HARK_TRY(hark_source_open(context, source, &input));
  const size_t seen = (size_t)hark_min((int64_t)input.size, (int64_t)sizeof front);
  const hark_status status = hark_input_read_at(context, &input, front, seen, 0);
  hark_input_close(&input);
  HARK_TRY(status);
  const char *const foreign = hark_foreign_file(front, seen);
  if (foreign == NULL) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: is %s, expected examples of format %s", source->path, foreign, examples->format->name);
}

static hark_status reserve_symbols(hark_context *context, hark_examples *examples, const hark_source_list *files) {
  uint64_t bytes = 0;
  for (int64_t i = 0; i < files->count; i++) {
    HARK_TRY(refuse_foreign(context, examples, &files->items[i]));
    bytes += (uint64_t)files->items[i].bytes;
  }
  if (bytes > INT64_MAX) return hark_fail(context, HARK_TOO_LARGE, "examples of %" PRIu64 " bytes", bytes);
  examples->symbols_at_most = examples->format->symbols_at_most(bytes);
  return examples->has_shape ? hark_example_reserve(context, &examples->symbols, examples->symbols_at_most) : HARK_OK;
}

static hark_status read_files(hark_context *context, hark_examples *examples, const hark_source_list *files) {
  for (int64_t i = 0; i < files->count; i++) {
    const hark_source *const file = &files->items[i];
    const hark_split split = file->role;
    hark_example_reader reader = {context, examples, split, file->path, file, hark_text_empty(context)};
    const int64_t before = examples->entries[split].count;
    const hark_status status = examples->format->read(&reader);
    hark_text_free(&reader.scratch);
    HARK_TRY(status);
    if (examples->entries[split].count == before) return hark_fail(context, HARK_BAD_FILE, "%s: holds no example", file->path);
  }
  return HARK_OK;
}

/* Moves validation examples out of the training split; both keep the order of the files. */
static hark_status divide(hark_context *context, hark_examples *examples, double fraction) {
  hark_example_array *const training = &examples->entries[HARK_SPLIT_TRAINING], *const validation =
                                                                                    &examples->entries[HARK_SPLIT_VALIDATION];
  const int64_t all = training->count, chosen = (int64_t)floor(fraction * (double)all);
  int64_t left = 0;
  HARK_TRY(hark_example_reserve(context, validation, chosen));
  for (int64_t i = 0; i < all; i++) {
    const hark_example_entry *const entry = &entries_of(examples, HARK_SPLIT_TRAINING)[i];
    if (chosen > 0 && hark_permute(DIVISION_SEED, 0, all, i) < chosen)
      entries_of(examples, HARK_SPLIT_VALIDATION)[validation->count++] = *entry;
    else
      entries_of(examples, HARK_SPLIT_TRAINING)[left++] = *entry;
  }
  training->count = left;
  return HARK_OK;
}

static hark_examples_counts count(const hark_examples *examples, hark_split split) {
  hark_examples_counts counts = {.examples = examples->entries[split].count};
  for (int64_t i = 0; i < counts.examples; i++) {
    const hark_example_entry *const entry = &entries_of(examples, split)[i];
    for (int part = 0; part < examples->format->parts; part++) {
      counts.tokens += entry->length[part];
      counts.longest = hark_max(counts.longest, entry->length[part]);
      counts.longest_whole = hark_max(counts.longest_whole, entry->whole[part]);
      counts.cut += entry->whole[part] > entry->length[part];
    }
    counts.targets += entry->target_count;
  }
  return counts;
}

/* Training a classifier needs at least two classes. */
static hark_status check_classes(hark_context *context, const hark_examples *examples, const char *path) {
  const int64_t all = examples->entries[HARK_SPLIT_TRAINING].count;
  if (examples->format->target_kind != HARK_TARGET_CLASS || all == 0) return HARK_OK;
  const hark_example_entry *const entries = entries_of(examples, HARK_SPLIT_TRAINING);
  for (int64_t i = 1; i < all; i++)
    if (entries[i].label != entries[0].label) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: all %" PRId64 " training examples are of class %s, expected at least two classes", path,
                   all, hark_examples_class_name(examples, entries[0].label));
}

/* ---- what a run stores ---- */

static const char *const reserved[HARK_TOKEN_RESERVED] = {"<padding>", "<unknown>", "<begin>", "<class>", "<mask>"};

static void print_symbols(const hark_examples *examples, hark_text *text) {
  char name[HARK_SHOWN_BYTES];
  if (examples->format->symbols_are != NULL) {
    hark_json_append_string(text, examples->format->symbols_are);
    return;
  }
  const char *word = hark_text_get(&examples->words);
  hark_text_append(text, "[");
  for (int32_t i = 0; i < examples->shape.symbols; i++) {
    hark_text_append(text, "%s", i > 0 ? ", " : "");
    hark_json_append_string(text, examples->format->symbol_name != NULL ? examples->format->symbol_name(i, name, sizeof name) : word);
    if (examples->format->symbol_name == NULL) word += strlen(word) + 1;
  }
  hark_text_append(text, "]");
}

static hark_status print_vocabulary(hark_examples *examples) {
  hark_text *const text = &examples->vocabulary;
  const hark_example_shape *const shape = &examples->shape;
  static const char *const kinds[] = {"class", "tokens", "vector", "rows"};
  hark_text_append(text, "{\n \"format_version\": %d,\n \"format\": \"%s\",\n \"parts\": %d,\n \"targets\": \"%s\",\n \"classes\": [",
                   VOCABULARY_FORMAT_VERSION, examples->format->name, examples->format->parts, kinds[examples->format->target_kind]);
  for (int32_t i = 0; i < shape->classes; i++) {
    hark_text_append(text, "%s", i > 0 ? ", " : "");
    hark_json_append_string(text, hark_examples_class_name(examples, i));
  }
  hark_text_append(text, "],\n \"height\": %" PRId32 ",\n \"width\": %" PRId32 ",\n \"reserved\": [", shape->height, shape->width);
  for (int i = 0; i < HARK_TOKEN_RESERVED; i++) {
    hark_text_append(text, "%s", i > 0 ? ", " : "");
    hark_json_append_string(text, reserved[i]);
  }
  hark_text_append(text, "],\n \"size\": %" PRId32 ",\n \"symbols\": ", hark_examples_vocabulary_size(examples));
  print_symbols(examples, text);
  if (shape->features > 0)
    hark_text_append(text, ",\n \"features\": %" PRId32 ",\n \"responses\": %" PRId32, shape->features, shape->responses);
  hark_text_append(text, "\n}\n");
  return text->status;
}

static uint64_t make_checksum(const hark_examples *examples) {
  const size_t width = examples->symbols.item_bytes;
  const unsigned char *const symbols = examples->symbols.items;
  const hark_example_aim *const aims = examples->aims.items;
  uint64_t sum = hark_checksum_text(HARK_CHECKSUM_START, hark_text_get(&examples->vocabulary));
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    sum = hark_checksum_number(sum, (uint64_t)examples->entries[split].count);
    for (int64_t i = 0; i < examples->entries[split].count; i++) {
      const hark_example_entry *const entry = &entries_of(examples, (hark_split)split)[i];
      int64_t length = 0;
      for (int part = 0; part < examples->format->parts; part++) {
        sum = hark_checksum_number(sum, (uint64_t)entry->length[part]);
        length += entry->length[part];
      }
      sum = hark_checksum_block(sum, symbols + (size_t)entry->at * width, (size_t)length * width);
      const size_t own = (size_t)(length * examples->shape.features + hark_example_own_responses(examples));
      if (own > 0) sum = hark_checksum_block(sum, (const float *)examples->numbers.items + entry->target_at, own * sizeof(float));
      sum = hark_checksum_number(sum, (uint64_t)(int64_t)entry->label);
      for (int32_t t = 0; t < entry->target_count; t++) {
        const hark_example_aim *const aim = &aims[entry->target_at + t];
        sum = hark_checksum_number(sum, (uint64_t)aim->position << 32 | (uint32_t)aim->symbol);
      }
    }
  }
  return sum;
}

static hark_status make_class_names(hark_context *context, hark_examples *examples) {
  const int32_t classes = examples->shape.classes;
  if (examples->format->class_names != NULL || classes == 0) return HARK_OK;
  HARK_TRY(hark_allocate(context, (size_t)classes * sizeof *examples->class_names, (void **)&examples->class_names));
  for (int32_t i = 0; i < classes; i++) (void)snprintf(examples->class_names[i], HARK_CLASS_NAME_BYTES, "%" PRId32, i);
  return HARK_OK;
}

/* Refuses copies of training files in other splits and, where validation examples are taken from training files, also among these. */
static hark_status check_apart(hark_context *context, const hark_source_list *files, bool divides) {
  const size_t bytes = (size_t)files->count * sizeof(int64_t);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  int64_t *const parts = memory;
  for (int64_t i = 0; i < files->count; i++)
    parts[i] = divides && files->items[i].role == HARK_SPLIT_TRAINING ? HARK_SPLIT_ALL + i : (int64_t)files->items[i].role;
  const hark_status status = hark_files_check_apart(context, files->items, parts, files->count, "");
  hark_release(context, memory, bytes);
  return status;
}

/* A folder with class folders, or with lists of pictures, is one source. */
static hark_status find_file(hark_context *context, const char *path, hark_split split, hark_source_list *files) {
  int64_t bytes = 0;
  if (hark_is_picture_folder(context, path)) {
    HARK_TRY(hark_picture_folder_measure(context, path, HARK_IMAGE_SIDE_MAX, &bytes));
    return hark_sources_add_folder(context, files, path, bytes, split);
  }
  if (!hark_has_class_folders(context, path)) return hark_sources_add_file(context, files, path, split);
  HARK_TRY(hark_class_folders_measure(context, path, &bytes));
  return hark_sources_add_folder(context, files, path, bytes, split);
}

static hark_status find_files(hark_context *context, const hark_example_paths *all, hark_source_list *files) {
  for (int split = 0; split < HARK_SPLIT_ALL; split++)
    for (int i = 0; i < all->count[split]; i++) HARK_TRY(find_file(context, all->paths[split][i], (hark_split)split, files));
  return hark_sources_unpack(context, files, NULL);
}

/* Reads the files, which are needed only for this. */
static hark_status read_all(hark_context *context, const hark_examples_settings *settings, const hark_example_paths *paths, bool divides,
                            hark_examples *examples) {
  hark_source_list files = {0};
  hark_status status = find_files(context, paths, &files);
  if (status == HARK_OK && !settings->known) status = check_apart(context, &files, divides);
  if (status == HARK_OK) status = reserve_symbols(context, examples, &files);
  if (status == HARK_OK) status = read_files(context, examples, &files);
  hark_sources_free(context, &files);
  return status;
}

/* Without labels there are only files with a text in each line. */
static hark_status check_labels(hark_context *context, const hark_examples *examples, const hark_example_paths *paths) {
  if (examples->labels != HARK_LABELS_NONE) return HARK_OK;
  if (strcmp(examples->format->name, "text") != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "--unlabelled: examples of format %s have targets, only those of format text may lack them", examples->format->name);
  for (int split = 0; split < HARK_SPLIT_ALL; split++)
    for (int i = 0; i < paths->count[split]; i++)
      if (hark_path_kind_of(paths->paths[split][i]) == HARK_PATH_FOLDER)
        return hark_fail(context, HARK_BAD_CONFIGURATION, "--unlabelled: %s: is a folder of labelled examples, expected files of texts",
                         paths->paths[split][i]);
  return HARK_OK;
}

static hark_status fill(hark_context *context, const hark_examples_settings *settings, const hark_example_paths *paths,
                        hark_examples *examples) {
  HARK_TRY(check_labels(context, examples, paths));
  const bool divides = paths->count[HARK_SPLIT_VALIDATION] == 0 && settings->validation_fraction > 0;
  if (settings->divides && paths->count[HARK_SPLIT_VALIDATION] > 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--validation-fraction: has no effect here: %s is the validation of these examples",
                     paths->paths[HARK_SPLIT_VALIDATION][0]);
  HARK_TRY(read_all(context, settings, paths, divides, examples));
  HARK_TRY(make_class_names(context, examples));
  if (divides) HARK_TRY(divide(context, examples, settings->validation_fraction));
  if (settings->teaches_classes && paths->count[HARK_SPLIT_TRAINING] > 0)
    HARK_TRY(check_classes(context, examples, paths->paths[HARK_SPLIT_TRAINING][0]));
  for (int split = 0; split < HARK_SPLIT_ALL; split++) examples->counts[split] = count(examples, (hark_split)split);
  HARK_TRY(print_vocabulary(examples));
  examples->checksum = make_checksum(examples);
  return HARK_OK;
}

static hark_status check_settings(hark_context *context, const hark_examples_settings *s) {
  if (!(s->validation_fraction >= 0 && s->validation_fraction < 1))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "validation fraction is %s, expected [0, 1)", HARK_PRINTED(s->validation_fraction));
  if (s->length_limit < 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "length limit is %" PRId64 ", expected at least 0", s->length_limit);
  if (s->classes < 0 || s->classes == 1 || s->classes > CLASSES_MAX)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%" PRId32 " classes, expected 2 to %d", s->classes, CLASSES_MAX);
  if (s->path_count + s->validation_path_count + s->test_path_count <= 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "no files of examples are given");
  return HARK_OK;
}

static const char *field_or(const char *given, const char *usual) { return given != NULL && given[0] != '\0' ? given : usual; }

static hark_status create(hark_context *context, const hark_examples_settings *settings, const hark_example_format *format,
                          hark_examples **out) {
  hark_examples *examples;
  const bool tables = format->target_kind == HARK_TARGET_ROWS;
  if (settings->classes != 0 && !format->classes_are_set && !tables)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "the classes of format %s are in its files and cannot be set", format->name);
  HARK_TRY(hark_allocate_zero(context, sizeof *examples, (void **)&examples));
  examples->format = format;
  examples->shape = format->shape;
  if (format->classes_are_set) examples->shape.classes = settings->classes > 0 ? settings->classes : DEFAULT_CLASSES;
  if (tables) examples->classes = settings->classes;
  examples->has_shape = examples->shape.symbols > 0;
  examples->length_limit = settings->length_limit > 0 ? settings->length_limit : INT64_MAX;
  examples->quoted = settings->quoted;
  examples->labels = settings->labels;
  examples->text_field = field_or(settings->text_field, HARK_JSON_LINES_TEXT);
  examples->label_field = field_or(settings->label_field, HARK_JSON_LINES_LABEL);
  examples->targets = field_or(settings->targets, "");
  examples->words = examples->vocabulary = hark_text_empty(context);
  examples->symbols.item_bytes = 1;
  examples->aims.item_bytes = sizeof(hark_example_aim);
  examples->numbers.item_bytes = sizeof(float);
  for (int split = 0; split < HARK_SPLIT_ALL; split++) examples->entries[split].item_bytes = sizeof(hark_example_entry);
  *out = examples;
  return HARK_OK;
}

hark_status hark_examples_open(hark_context *context, const hark_examples_settings *settings, hark_examples **out) {
  *out = NULL;
  HARK_TRY(check_settings(context, settings));
  hark_example_paths paths;
  hark_status status = hark_example_paths_find(context, settings, &paths);
  const hark_example_format *format = NULL;
  if (status == HARK_OK) {
    format = hark_example_format_find(paths.format);
    if (format == NULL) status = fail_unknown_format(context, paths.format);
  }
  if (status == HARK_OK) status = create(context, settings, format, out);
  if (status == HARK_OK) status = fill(context, settings, &paths, *out);
  hark_example_paths_free(context, &paths);
  if (status != HARK_OK) hark_examples_close(context, out);
  return status;
}

void hark_examples_close(hark_context *context, hark_examples **pointer) {
  hark_examples *const examples = *pointer;
  if (examples == NULL) return;
  *pointer = NULL;
  hark_text_free(&examples->words);
  hark_text_free(&examples->vocabulary);
  hark_release(context, examples->class_names, (size_t)examples->shape.classes * sizeof *examples->class_names);
  hark_example_array_free(context, &examples->symbols);
  hark_example_array_free(context, &examples->aims);
  hark_example_array_free(context, &examples->numbers);
  for (int split = 0; split < HARK_SPLIT_ALL; split++) hark_example_array_free(context, &examples->entries[split]);
  hark_release(context, examples, sizeof *examples);
}

/* ---- access ---- */

const char *hark_examples_format(const hark_examples *examples) { return examples->format->name; }
int hark_examples_parts(const hark_examples *examples) { return examples->format->parts; }

int64_t hark_examples_most_targets(const hark_examples *examples) {
  int64_t most = 0;
  if (hark_examples_target_kind(examples) != HARK_TARGET_TOKENS) return 0;
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    const hark_example_entry *const entries = examples->entries[split].items;
    for (int64_t i = 0; i < examples->entries[split].count; i++) most = hark_max(most, entries[i].target_count);
  }
  return most;
}
hark_example_target_kind hark_examples_target_kind(const hark_examples *examples) { return examples->format->target_kind; }
int32_t hark_examples_vocabulary_size(const hark_examples *examples) { return HARK_TOKEN_RESERVED + examples->shape.symbols; }
int32_t hark_examples_classes(const hark_examples *examples) { return examples->shape.classes; }
int32_t hark_examples_features(const hark_examples *examples) { return examples->shape.features; }
int32_t hark_examples_responses(const hark_examples *examples) { return examples->shape.responses; }
uint64_t hark_examples_checksum(const hark_examples *examples) { return examples->checksum; }

const char *hark_examples_class_name(const hark_examples *examples, int32_t index) {
  if (index < 0 || index >= examples->shape.classes) return NULL;
  return examples->format->class_names != NULL ? examples->format->class_names[index] : examples->class_names[index];
}

bool hark_examples_image(const hark_examples *examples, int32_t *height, int32_t *width) {
  *height = examples->shape.height;
  *width = examples->shape.width;
  return *height > 0;
}

const char *hark_examples_token_name(const hark_examples *examples, int32_t token, char *text, size_t size) {
  const int32_t symbol = token - HARK_TOKEN_RESERVED;
  if (token >= 0 && symbol < 0) {
    (void)snprintf(text, size, "%s", reserved[token]);
  } else if (symbol < 0 || symbol >= examples->shape.symbols) {
    (void)snprintf(text, size, "<%" PRId32 ">", token);
  } else if (examples->format->symbol_name != NULL) {
    return examples->format->symbol_name(symbol, text, size);
  } else {
    const char *word = hark_text_get(&examples->words);
    for (int32_t i = 0; i < symbol; i++) word += strlen(word) + 1;
    (void)snprintf(text, size, "%s", word);
  }
  return text;
}

const char *hark_examples_vocabulary(const hark_examples *examples, size_t *bytes) {
  *bytes = examples->vocabulary.length;
  return hark_text_get(&examples->vocabulary);
}

/* The line of a text that contains byte `at`, without leading blanks. */
static const char *line_at(const char *text, size_t bytes, size_t at, char out[HARK_SHOWN_BYTES]) {
  size_t from = at < bytes ? at : bytes, length = 0;
  while (from > 0 && text[from - 1] != '\n') from--;
  while (from < bytes && text[from] == ' ') from++;
  char line[HARK_SHOWN_BYTES];
  while (from < bytes && text[from] != '\n' && length + 1 < sizeof line) line[length++] = text[from++];
  line[length] = '\0';
  return hark_text_shown(line, out);
}

hark_status hark_examples_check_vocabulary(hark_context *context, const hark_examples *examples, const char *name, const char *text,
                                           size_t bytes) {
  const char *const own = hark_text_get(&examples->vocabulary);
  const size_t own_bytes = examples->vocabulary.length;
  char have[HARK_SHOWN_BYTES], expected[HARK_SHOWN_BYTES];
  size_t at = 0;
  if (bytes == own_bytes && memcmp(own, text, bytes) == 0) return HARK_OK;
  while (at < bytes && at < own_bytes && own[at] == text[at]) at++;
  return hark_fail(context, HARK_BAD_FILE, "%s: of another task: it has %s where the examples have %s", name,
                   line_at(text, bytes, at, have), line_at(own, own_bytes, at, expected));
}

hark_examples_counts hark_examples_count(const hark_examples *examples, hark_split split) { return examples->counts[split]; }

/* The entry of an example, or NULL. */
static const hark_example_entry *find(const hark_examples *examples, hark_split split, int64_t index) {
  if (split >= HARK_SPLIT_ALL || index < 0 || index >= examples->entries[split].count) return NULL;
  return &entries_of(examples, split)[index];
}

int64_t hark_examples_length(const hark_examples *examples, hark_split split, int64_t index, int part) {
  const hark_example_entry *const entry = find(examples, split, index);
  return entry != NULL && part >= 0 && part < examples->format->parts ? entry->length[part] : 0;
}

static hark_status no_example(hark_context *context, int64_t index, int part) {
  return hark_fail(context, HARK_INVALID_ARGUMENT, "example %" PRId64 ", part %d: there is none", index, part);
}

hark_status hark_examples_read(hark_context *context, const hark_examples *examples, hark_split split, int64_t index, int part,
                               int32_t *tokens) {
  const int64_t length = hark_examples_length(examples, split, index, part);
  if (length == 0) return no_example(context, index, part);
  const hark_example_entry *const entry = find(examples, split, index);
  const int64_t at = entry->at + (part > 0 ? entry->length[0] : 0);
  const unsigned char *const from = (const unsigned char *)examples->symbols.items + (size_t)at * examples->symbols.item_bytes;
  for (int64_t i = 0; i < length; i++) {
    int32_t symbol;
    if (examples->symbols.item_bytes == 1) {
      symbol = from[i];
    } else if (examples->symbols.item_bytes == 2) {
      symbol = ((const uint16_t *)(const void *)from)[i];
    } else {
      symbol = ((const int32_t *)(const void *)from)[i];
    }
    tokens[i] = HARK_TOKEN_RESERVED + symbol;
  }
  return HARK_OK;
}

hark_status hark_examples_numbers(hark_context *context, const hark_examples *examples, hark_split split, int64_t index, float *features,
                                  float *responses) {
  const hark_example_entry *const entry = find(examples, split, index);
  if (entry == NULL) return no_example(context, index, 0);
  const hark_example_shape *const shape = &examples->shape;
  const size_t own = (size_t)entry->length[0] * (size_t)shape->features, predicted = (size_t)hark_example_own_responses(examples);
  const float *const numbers = (const float *)examples->numbers.items + entry->target_at;
  if (features != NULL && own > 0) memcpy(features, numbers, own * sizeof *features);
  if (responses != NULL && predicted > 0) memcpy(responses, numbers + own, predicted * sizeof *responses);
  return HARK_OK;
}

const float *hark_examples_table(const hark_examples *examples, hark_split split, int64_t index) {
  const hark_example_entry *const entry = find(examples, split, index);
  if (entry == NULL || examples->format->target_kind != HARK_TARGET_ROWS) return NULL;
  return (const float *)examples->numbers.items + entry->target_at;
}

int32_t hark_examples_label(const hark_examples *examples, hark_split split, int64_t index) {
  const hark_example_entry *const entry = find(examples, split, index);
  return entry != NULL && examples->format->target_kind == HARK_TARGET_CLASS ? entry->label : HARK_TARGET_IGNORED;
}

hark_status hark_examples_targets(hark_context *context, const hark_examples *examples, hark_split split, int64_t index, int32_t *targets,
                                  int64_t *real) {
  const hark_example_entry *const entry = find(examples, split, index);
  if (entry == NULL) return no_example(context, index, 0);
  const hark_example_aim *const aims = examples->aims.items;
  for (int32_t t = 0; t < entry->length[0]; t++) targets[t] = HARK_TARGET_IGNORED;
  for (int32_t i = 0; i < entry->target_count; i++)
    targets[aims[entry->target_at + i].position] = HARK_TOKEN_RESERVED + aims[entry->target_at + i].symbol;
  if (real != NULL) *real = entry->target_count;
  return HARK_OK;
}
