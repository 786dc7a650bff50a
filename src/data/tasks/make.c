/* make.c - see make.h. Examples are made in blocks by several threads, each in its own slot; then they are checked and written in their
 * order. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "data/tasks/make.h"

#include <errno.h>
#include <hark/version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checksum.h"
#include "data/examples/example_folder.h"
#include "data/formats/example_format.h"
#include "io/files.h"
#include "io/json_write.h"
#include "io/system_error.h"
#include "io/temporary.h"

#define BLOCK_EXAMPLES 256
#define BLOCK_BYTES ((size_t)64 << 20) /* approximate size of the slots */
#define ROUNDS_MAX 100                 /* attempts at an example that differs from all previous ones */
#define FIRST_SLOTS 4096               /* a power of two */
#define MEBIBYTE 1048576.0
#define TOO_RANDOM SIZE_MAX /* size of an example that used random numbers of the next one */

#define ROW(id, name, number, table) {name, number, &hark_task_##id, &hark_task_##table##_options},
const hark_task_entry hark_task_entries[] = {HARK_TASK_GENERATORS(ROW)};
#undef ROW
const int hark_task_entry_count = (int)(sizeof hark_task_entries / sizeof hark_task_entries[0]);

const hark_task_entry *hark_task_find(const char *name) {
  for (int i = 0; i < hark_task_entry_count; i++)
    if (strcmp(hark_task_entries[i].name, name) == 0) return &hark_task_entries[i];
  return NULL;
}

bool hark_task_takes(const hark_task_generator *generator, const char *option) {
  const size_t length = strlen(option);
  const char *at = generator->parameters;
  if (at == NULL) return true;
  while (*at != '\0') {
    const size_t word = strcspn(at, " ");
    if (word == length && memcmp(at, option, length) == 0) return true;
    at += word + (at[word] == ' ');
  }
  return false;
}

/* ---- random numbers ---- */

hark_task_random hark_task_random_begin(uint64_t seed, int generator, hark_split split, int64_t index, uint32_t round) {
  const uint32_t layer = (uint32_t)generator * HARK_SPLIT_ALL + (uint32_t)split;
  return (hark_task_random){.stream = {.seed = seed,
                                       .first_index = (uint64_t)index * HARK_TASK_COUNTERS,
                                       .micro_step = round,
                                       .layer_purpose = hark_random_layer_purpose(layer, HARK_RANDOM_TASK)}};
}

uint32_t hark_task_random_word(hark_task_random *random) {
  if (random->next % 4 == 0) hark_random_words(&random->stream, random->next / 4, random->words);
  return random->words[random->next++ % 4];
}

/* Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019. */
int32_t hark_task_random_below(hark_task_random *random, int32_t count) {
  const uint32_t range = (uint32_t)count, threshold = (uint32_t)(-range) % range;
  uint64_t product;
  do {
    product = (uint64_t)hark_task_random_word(random) * range;
  } while ((uint32_t)product < threshold);
  return (int32_t)(product >> 32);
}

double hark_task_random_uniform(hark_task_random *random) {
  const uint64_t high = hark_task_random_word(random), low = hark_task_random_word(random);
  return (double)((high << 32 | low) >> 11) * 0x1p-53;
}

/* ---- earlier examples: two sums of 64 bits each, in a hash table with open addressing and linear steps, at most half full ---- */

typedef struct seen {
  hark_context *context;
  uint64_t (*slot)[2]; /* zeros: free */
  size_t slots, count;
} seen;

static uint64_t *seen_slot(uint64_t (*slot)[2], size_t slots, const uint64_t sum[2]) {
  size_t at = (size_t)sum[0] & (slots - 1);
  while ((slot[at][0] | slot[at][1]) != 0 && (slot[at][0] != sum[0] || slot[at][1] != sum[1])) at = (at + 1) & (slots - 1);
  return slot[at];
}

static hark_status seen_grow(seen *s) {
  const size_t larger = s->slots > 0 ? 2 * s->slots : FIRST_SLOTS;
  uint64_t(*moved)[2];
  HARK_TRY(hark_allocate_zero(s->context, larger * sizeof *moved, (void **)&moved));
  for (size_t i = 0; i < s->slots; i++)
    if ((s->slot[i][0] | s->slot[i][1]) != 0) memcpy(seen_slot(moved, larger, s->slot[i]), s->slot[i], sizeof *moved);
  hark_release(s->context, s->slot, s->slots * sizeof *s->slot);
  s->slot = moved;
  s->slots = larger;
  return HARK_OK;
}

static hark_status seen_add(seen *s, const void *bytes, size_t count, bool *is_new) {
  const uint64_t sum[2] = {hark_checksum_block(HARK_CHECKSUM_START, bytes, count), hark_checksum_block(1, bytes, count) | 1};
  if (2 * (s->count + 1) > s->slots) HARK_TRY(seen_grow(s));
  uint64_t *const slot = seen_slot(s->slot, s->slots, sum);
  *is_new = (slot[0] | slot[1]) == 0;
  s->count += *is_new;
  memcpy(slot, sum, sizeof sum);
  return HARK_OK;
}

/* ---- making a split ---- */

typedef struct maker {
  hark_context *context;
  const hark_task_settings *settings;
  const hark_task_generator *generator;
  hark_task_sizes sizes;
  size_t slot_bytes; /* example, then scratch */
  int64_t block;     /* slots */
  unsigned char *slots;
  size_t *bytes; /* [block] sizes of the examples */
  double *nats;  /* [block] their costs */
  hark_split split;
  int64_t first; /* example of slot 0 */
  double optimal_loss[HARK_SPLIT_ALL];
  seen seen;
} maker;

static void make_example(maker *m, int64_t slot, uint32_t round) {
  const hark_task_settings *const s = m->settings;
  unsigned char *const out = m->slots + (size_t)slot * m->slot_bytes;
  hark_task_order order = {.values = s->values,
                           .index = m->first + slot,
                           .random = hark_task_random_begin(s->seed, s->entry->number, m->split, m->first + slot, round),
                           .scratch = out + hark_align_up(m->sizes.example_bytes)};
  m->bytes[slot] = m->generator->make(&order, out);
  m->nats[slot] = order.nats;
  if (order.random.next > 4 * HARK_TASK_COUNTERS) m->bytes[slot] = TOO_RANDOM;
}

static void make_task(void *data, int64_t index, int worker) {
  (void)worker;
  make_example(data, index, 0);
}

/* Checks an example, makes it again while it equals an earlier one, and writes it. */
static hark_status finish_example(maker *m, hark_writer *writer, int64_t slot) {
  const unsigned char *const example = m->slots + (size_t)slot * m->slot_bytes;
  for (uint32_t round = 1;; round++) {
    bool is_new = true;
    if (m->bytes[slot] == 0)
      return hark_fail(m->context, HARK_BAD_CONFIGURATION, "no %s example %" PRId64 " was found with these options",
                       hark_example_split_names[m->split], m->first + slot);
    if (m->bytes[slot] == TOO_RANDOM)
      return hark_fail(m->context, HARK_BAD_CONFIGURATION,
                       "%s example %" PRId64 " takes more than the %" PRIu64 " random numbers that an example has with these options",
                       hark_example_split_names[m->split], m->first + slot, 4 * HARK_TASK_COUNTERS);
    if (m->generator->distinct) HARK_TRY(seen_add(&m->seen, example, m->bytes[slot], &is_new));
    if (is_new) return hark_writer_append(m->context, writer, example, m->bytes[slot]);
    if (round == ROUNDS_MAX)
      return hark_fail(m->context, HARK_BAD_CONFIGURATION, "no %s example %" PRId64 " was found that differs from the %zu before",
                       hark_example_split_names[m->split], m->first + slot, m->seen.count);
    make_example(m, slot, round);
  }
}

/* Checks that the disk has room for the rest of a split, with the mean size of the examples of its first block. */
static hark_status check_disk(maker *m, const char *folder, int64_t made, int64_t count) {
  uint64_t left, bytes = 0;
  for (int64_t slot = 0; slot < made; slot++) bytes += m->bytes[slot];
  const double each = (double)bytes / (double)made, needed = each * (double)(count - made);
  HARK_TRY(hark_disk_free(m->context, folder, &left));
  if (needed <= (double)left) return HARK_OK;
  return hark_fail(m->context, HARK_IO_ERROR, "--%s: %" PRId64 " examples of about %.0f bytes need %.0f MiB of disk, and %.0f MiB are free",
                   hark_example_split_names[m->split], count, each, needed / MEBIBYTE, (double)left / MEBIBYTE);
}

static hark_status write_examples(maker *m, const char *folder, hark_writer *writer, int64_t count) {
  const hark_task_settings *const s = m->settings;
  hark_text header = hark_text_empty(m->context);
  double nats = 0, bytes = 0;
  hark_status status = m->generator->header(m->generator, s->values, count, &header);
  if (status == HARK_OK) status = header.status;
  if (status == HARK_OK) status = hark_writer_append(m->context, writer, hark_text_get(&header), header.length);
  hark_text_free(&header);
  for (m->first = 0; m->first < count && status == HARK_OK; m->first += m->block) {
    const int64_t here = hark_min(m->block, count - m->first);
    hark_parallel_for(m->context, here, make_task, m);
    for (int64_t slot = 0; slot < here && status == HARK_OK; slot++) {
      status = finish_example(m, writer, slot);
      nats += m->nats[slot];
      bytes += (double)m->bytes[slot];
    }
    if (m->first == 0 && status == HARK_OK) status = check_disk(m, folder, here, count);
    if (s->progress != NULL) s->progress(s->progress_user, m->split, m->first + here, count);
  }
  m->optimal_loss[m->split] = bytes > 0 ? nats / bytes : 0;
  return status;
}

static void file_name(const maker *m, hark_split split, char out[HARK_NAME_BYTES]) {
  const hark_example_format *const format = hark_example_format_find(m->generator->format);
  (void)snprintf(out, HARK_NAME_BYTES, "%s.%s", hark_example_split_names[split], format != NULL ? format->ending : "txt");
}

static hark_status write_split(maker *m, const char *folder, hark_split split, hark_file_summary *summary) {
  char name[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  hark_writer writer = {0};
  m->split = split;
  file_name(m, split, name);
  HARK_TRY(hark_path_join(m->context, folder, name, path));
  HARK_TRY(hark_writer_open(m->context, &writer, path));
  hark_status status = write_examples(m, folder, &writer, m->settings->examples[split]);
  if (status == HARK_OK) status = hark_writer_commit(m->context, &writer, summary);
  hark_writer_discard(&writer);
  return status;
}

/* ---- task.json ---- */

static void print_parameter(const hark_option *option, const void *values, hark_text *text) {
  const void *const field = (const char *)values + option->offset;
  char word[HARK_OPTION_WORD_BYTES];
  hark_json_append_string(text, option->name);
  hark_text_append(text, ": ");
  if (option->type == HARK_OPTION_INT) {
    hark_text_append(text, "%" PRId64, *(const int64_t *)field);
  } else if (option->type == HARK_OPTION_FLOAT) {
    hark_json_append_number(text, *(const double *)field);
  } else {
    hark_json_append_string(text, hark_option_choice_at(option->range, *(const int *)field, word) ? word : "");
  }
}

static void print_number(const char *separator, const char *name, double value, hark_text *text) {
  hark_text_append(text, "%s\"%s\": ", separator, name);
  hark_json_append_number(text, value);
}

static void print_report(const maker *m, const hark_file_summary *summaries, hark_text *text) {
  const hark_task_settings *const s = m->settings;
  const hark_option_table *const table = s->entry->options;
  char name[HARK_NAME_BYTES];
  hark_text_append(text,
                   "{\n \"format_version\": %d,\n \"hark\": \"%s\",\n \"generator\": \"%s\",\n \"format\": \"%s\",\n \"seed\": %" PRIu64,
                   HARK_TASK_FORMAT_VERSION, HARK_VERSION_STRING, s->entry->name, m->generator->format, s->seed);
  hark_text_append(text, ",\n \"parameters\": {");
  for (int i = 0, printed = 0; i < table->count; i++) {
    if (!hark_task_takes(m->generator, table->options[i].name)) continue;
    hark_text_append(text, "%s\n  ", printed++ > 0 ? "," : "");
    print_parameter(&table->options[i], s->values, text);
  }
  hark_text_append(text, "\n }");
  if (m->generator->entropy_rate != NULL) print_number(",\n ", "entropy_rate", m->generator->entropy_rate(s->values), text);
  hark_text_append(text, ",\n \"files\": {");
  for (int split = 0, printed = 0; split < HARK_SPLIT_ALL; split++) {
    if (s->examples[split] == 0) continue;
    file_name(m, (hark_split)split, name);
    hark_text_append(text, "%s\n  \"%s\": {\"name\": \"%s\", \"examples\": %" PRId64 ", \"bytes\": %" PRIu64 ", \"sha256\": \"%s\"",
                     printed++ > 0 ? "," : "", hark_example_split_names[split], name, s->examples[split], summaries[split].bytes,
                     summaries[split].sha256);
    if (m->generator->entropy_rate != NULL) print_number(", ", "optimal_loss", m->optimal_loss[split], text);
    hark_text_append(text, "}");
  }
  hark_text_append(text, "\n }\n}\n");
}

/* ---- the folder ---- */

static hark_status fill_folder(maker *m, const char *folder, hark_text *report) {
  hark_file_summary summaries[HARK_SPLIT_ALL] = {0};
  char path[HARK_PATH_BYTES];
  const size_t from = report->length;
  HARK_TRY(hark_allocate(m->context, (size_t)m->block * m->slot_bytes, (void **)&m->slots));
  HARK_TRY(hark_allocate(m->context, (size_t)m->block * sizeof *m->bytes, (void **)&m->bytes));
  HARK_TRY(hark_allocate(m->context, (size_t)m->block * sizeof *m->nats, (void **)&m->nats));
  for (int split = 0; split < HARK_SPLIT_ALL; split++)
    if (m->settings->examples[split] > 0) HARK_TRY(write_split(m, folder, (hark_split)split, &summaries[split]));
  print_report(m, summaries, report);
  HARK_TRY(report->status);
  HARK_TRY(hark_path_join(m->context, folder, HARK_TASK_FILE, path));
  return hark_file_write(m->context, path, report->data + from, report->length - from);
}

/* Refuses a path that exists, unless it is an empty folder. */
static hark_status check_folder(hark_context *context, const char *folder) {
  hark_path_kind kind;
  hark_names names;
  HARK_TRY(hark_path_examine(context, folder, &kind));
  if (kind == HARK_PATH_NONE) return HARK_OK;
  if (kind != HARK_PATH_FOLDER) return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is not a folder", folder);
  HARK_TRY(hark_folder_list(context, folder, &names));
  const int64_t count = names.count;
  hark_names_free(context, &names);
  return count == 0 ? HARK_OK : hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is not empty, expected a new folder", folder);
}

/* The final path of the task, and its permissions: for an existing empty folder its real path ("." and symbolic links resolved) and its
 * permissions. */
static hark_status find_place(hark_context *context, const char *folder, char out[HARK_PATH_BYTES], mode_t *mode) {
  struct stat information;
  int descriptor;
  *mode = 0777;
  if (stat(folder, &information) != 0) return hark_path_follow(context, folder, out, &descriptor);
  *mode = information.st_mode & 07777;
  char *const real = realpath(folder, NULL);
  if (real == NULL) return hark_system_fail(context, errno, folder, "cannot be examined");
  const hark_status status = hark_path_join(context, "", real, out);
  free(real);
  return status;
}

/* The folder was free before it was filled. If another program has made one there since, the message is that of a folder that is there. */
static hark_status take_place(hark_context *context, const char *made, const char *place, const char *folder) {
  const hark_status status = hark_path_rename(context, made, place);
  if (status == HARK_OK) return HARK_OK;
  char message[HARK_MESSAGE_BYTES];
  (void)snprintf(message, sizeof message, "%s", hark_context_message(context));
  HARK_TRY(check_folder(context, folder));
  return hark_fail(context, status, "%s", message);
}

/* Makes everything in a folder next to the requested one, and renames it. */
static hark_status make_folder(maker *m, const char *folder, hark_text *report) {
  char place[HARK_PATH_BYTES];
  hark_temporary_folder temporary;
  mode_t mode;
  HARK_TRY(find_place(m->context, folder, place, &mode));
  const size_t above = (size_t)(hark_path_name(place) - place);
  if (above > 1) { /* its parents may be missing */
    const char slash = place[above - 1];
    place[above - 1] = '\0';
    const hark_status made = hark_folder_make(m->context, place);
    place[above - 1] = slash;
    HARK_TRY(made);
  }
  HARK_TRY(hark_path_clean(m->context, place));
  HARK_TRY(hark_temporary_folder_make(m->context, place, mode | S_IRWXU, &temporary));
  hark_status status = fill_folder(m, temporary.path, report);
  if (status == HARK_OK && mode != 0777 && chmod(temporary.path, mode) != 0)
    status = hark_system_fail(m->context, errno, temporary.path, "cannot be given the permissions of the folder that it replaces");
  if (status == HARK_OK) status = take_place(m->context, temporary.path, place, folder);
  if (status != HARK_OK) {
    char message[HARK_MESSAGE_BYTES];
    (void)snprintf(message, sizeof message, "%s", hark_context_message(m->context));
    const bool left = hark_path_kind_of(temporary.path) != HARK_PATH_NONE && hark_folder_remove(m->context, temporary.path) != HARK_OK;
    status = left ? hark_fail(m->context, status, "%s; %s is left", message, temporary.path) : hark_fail(m->context, status, "%s", message);
  }
  hark_temporary_folder_end(&temporary);
  return status;
}

hark_status hark_task_make(hark_context *context, const hark_task_settings *settings, hark_text *report) {
  char folder[HARK_PATH_BYTES];
  maker m = {.context = context, .settings = settings, .generator = settings->entry->generator, .seen = {.context = context}};
  size_t length = strlen(settings->folder);
  while (length > 1 && settings->folder[length - 1] == '/') length--;
  if (length == 0) return hark_fail(context, HARK_BAD_CONFIGURATION, "no folder is given");
  if (length >= sizeof folder) return hark_fail(context, HARK_IO_ERROR, "%.64s...: path too long", settings->folder);
  memcpy(folder, settings->folder, length);
  folder[length] = '\0';
  if (settings->examples[HARK_SPLIT_TRAINING] < 1) return hark_fail(context, HARK_BAD_CONFIGURATION, "--training: at least one example");
  for (int split = 0; split < HARK_SPLIT_ALL; split++)
    if (settings->examples[split] > HARK_TASK_EXAMPLES)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "--%s: %" PRId64 " examples, expected at most 2^40",
                       hark_example_split_names[split], settings->examples[split]);
  HARK_TRY(m.generator->settle(context, settings->values));
  HARK_TRY(check_folder(context, folder));
  m.sizes = m.generator->sizes(settings->values);
  m.slot_bytes = hark_align_up(m.sizes.example_bytes) + hark_align_up(m.sizes.scratch_bytes);
  m.block = hark_max(1, hark_min(BLOCK_EXAMPLES, (int64_t)(BLOCK_BYTES / m.slot_bytes)));
  const hark_status status = make_folder(&m, folder, report);
  hark_release(context, m.slots, (size_t)m.block * m.slot_bytes);
  hark_release(context, m.bytes, (size_t)m.block * sizeof *m.bytes);
  hark_release(context, m.nats, (size_t)m.block * sizeof *m.nats);
  if (settings->optimal_loss != NULL) memcpy(settings->optimal_loss, m.optimal_loss, sizeof m.optimal_loss);
  hark_release(context, m.seen.slot, m.seen.slots * sizeof *m.seen.slot);
  return status;
}
