/* ahca_statistics.c - see ahca_statistics.h. */
#include "train/ahca_statistics.h"

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "backend/backend.h"
#include "core/core.h"

#define PIECE 128

/* Reads a list piece by piece. */
typedef struct list_reader {
  hark_context *context;
  const hark_tensor *list; /* i32 or i64, of rank 1 */
  int64_t first, count;    /* of the piece */
  union {
    int64_t wide[PIECE];
    int32_t narrow[PIECE];
  } numbers;
} list_reader;

static list_reader reader_of(hark_context *context, const hark_tape *tape, hark_value list) {
  return (list_reader){.context = context, .list = hark_tape_tensor(tape, list)};
}

static hark_status read_at(list_reader *r, int64_t index, int64_t *out) {
  if (index < r->first || index >= r->first + r->count) {
    const size_t bytes = hark_type_bytes(r->list->type);
    r->first = index;
    r->count = hark_min(PIECE, r->list->shape[0] - index);
    HARK_TRY(hark_backend_read(r->context, &r->numbers, (const char *)r->list->data + (size_t)index * bytes, (size_t)r->count * bytes));
    if (r->list->type == HARK_I32) /* to the wider ones from the end */
      for (int64_t i = r->count - 1; i >= 0; i--) r->numbers.wide[i] = r->numbers.narrow[i];
  }
  *out = r->numbers.wide[index - r->first];
  return HARK_OK;
}

static int length_bucket(int64_t length) {
  int bucket = 0;
  while (length > 1 && bucket < HARK_AHCA_LENGTHS - 1) {
    length /= 2;
    bucket++;
  }
  return bucket;
}

static hark_status add_chunks(hark_context *context, const hark_tape *tape, const hark_ahca_trace *trace, hark_ahca_statistics *s) {
  list_reader chunks = reader_of(context, tape, trace->chunks);
  int64_t begin = 0;
  HARK_TRY(read_at(&chunks, 0, &begin));
  for (int64_t k = 1; k < chunks.list->shape[0]; k++) {
    int64_t end = 0;
    HARK_TRY(read_at(&chunks, k, &end));
    const int64_t length = end - begin;
    begin = end;
    if (length < 1) continue;
    s->shortest = s->chunks == 0 ? length : hark_min(s->shortest, length);
    s->longest = hark_max(s->longest, length);
    s->lengths[length_bucket(length)]++;
    s->chunks++;
  }
  return HARK_OK;
}

static hark_status add_selected(hark_context *context, const hark_tape *tape, const hark_ahca_trace *trace, hark_ahca_statistics *s) {
  if (trace->selected == 0) return HARK_OK;
  list_reader index = reader_of(context, tape, trace->selected), offsets = reader_of(context, tape, trace->selected_offsets),
              globals = reader_of(context, tape, trace->global_offsets);
  for (int64_t b = 0; b + 1 < offsets.list->shape[0]; b++) {
    int64_t from = 0, to = 0, first = 0, end = 0;
    HARK_TRY(read_at(&offsets, b, &from));
    HARK_TRY(read_at(&offsets, b + 1, &to));
    HARK_TRY(read_at(&globals, b, &first));
    HARK_TRY(read_at(&globals, b + 1, &end));
    for (int64_t i = from; i < to; i++) {
      int64_t row = 0;
      HARK_TRY(read_at(&index, i, &row));
      if (row < first || row >= end) continue;
      s->places[(row - first) * HARK_AHCA_PLACES / (end - first)]++;
      s->selected++;
    }
  }
  return HARK_OK;
}

static hark_status add_depths(hark_context *context, const hark_tape *tape, const hark_ahca_trace *trace, hark_ahca_statistics *s) {
  if (trace->depth == 0) return HARK_OK;
  list_reader depth = reader_of(context, tape, trace->depth);
  for (int64_t k = 0; k < depth.list->shape[0]; k++) {
    int64_t layers = 0;
    HARK_TRY(read_at(&depth, k, &layers));
    if (layers < 1 || layers > HARK_MAX_DEPTH) continue; /* rows of no sequence */
    s->depths[layers]++;
    s->units++;
  }
  return HARK_OK;
}

/* Rows `at` and `at + 1` of a list of offsets: where sequence `at` begins and ends. */
static hark_status read_bounds(list_reader *offsets, int64_t at, int64_t *begin, int64_t *end) {
  HARK_TRY(read_at(offsets, at, begin));
  return read_at(offsets, at + 1, end);
}

static void append_number(const char *name, int64_t at, int64_t number, hark_text *text) {
  if (at == 0) hark_text_append(text, ", \"%s\": [", name);
  hark_text_append(text, "%s%" PRId64, at == 0 ? "" : ", ", number);
}

static void end_numbers(const char *name, int64_t count, hark_text *text) {
  if (count == 0) hark_text_append(text, ", \"%s\": [", name);
  hark_text_append(text, "]");
}

/* , "NAME": [numbers of a list at begin .. end, less `origin`] */
static hark_status list_numbers(list_reader *list, const char *name, int64_t begin, int64_t end, int64_t origin, hark_text *text) {
  int64_t number = 0;
  for (int64_t i = begin; i < end; i++) {
    HARK_TRY(read_at(list, i, &number));
    append_number(name, i - begin, number - origin, text);
  }
  end_numbers(name, end - begin, text);
  return HARK_OK;
}

/* Tokens of the sequence, and of each of its chunks. */
static hark_status list_chunks(list_reader *chunks, int64_t begin, int64_t end, hark_text *text) {
  int64_t first = 0, last = 0;
  HARK_TRY(read_at(chunks, begin, &first));
  HARK_TRY(read_at(chunks, end, &last));
  hark_text_append(text, "{\"tokens\": %" PRId64, last - first);
  for (int64_t k = begin; k < end; k++) {
    HARK_TRY(read_bounds(chunks, k, &first, &last));
    append_number("chunks", k - begin, last - first, text);
  }
  end_numbers("chunks", end - begin, text);
  return HARK_OK;
}

/* Rows of C2 of sequence `at`, and those selected of them; none if the model has no second level. */
static hark_status list_selected(hark_context *context, const hark_tape *tape, const hark_ahca_trace *trace, int64_t at, hark_text *text) {
  list_reader none = {0};
  int64_t begin = 0, end = 0, first = 0, last = 0;
  const bool global = trace->selected != 0;
  list_reader selected = global ? reader_of(context, tape, trace->selected) : none;
  if (global) {
    list_reader selected_of = reader_of(context, tape, trace->selected_offsets),
                global_of = reader_of(context, tape, trace->global_offsets);
    HARK_TRY(read_bounds(&global_of, at, &first, &last));
    HARK_TRY(read_bounds(&selected_of, at, &begin, &end));
  }
  hark_text_append(text, ", \"global\": %" PRId64, last - first);
  return list_numbers(&selected, "selected", begin, end, first, text);
}

static hark_status list_sequences(hark_context *context, const hark_tape *tape, const hark_ahca_trace *trace, hark_ahca_statistics *s) {
  list_reader chunks = reader_of(context, tape, trace->chunks), sequences = reader_of(context, tape, trace->sequences);
  list_reader unit_of = reader_of(context, tape, trace->units);
  list_reader depth = reader_of(context, tape, trace->depth != 0 ? trace->depth : trace->chunks);
  for (int64_t b = 0; b + 1 < sequences.list->shape[0] && s->listed > 0; b++, s->listed--) {
    int64_t begin = 0, end = 0;
    if (hark_text_get(s->list)[0] != '\0') hark_text_append(s->list, ", ");
    HARK_TRY(read_bounds(&sequences, b, &begin, &end));
    HARK_TRY(list_chunks(&chunks, begin, end, s->list));
    HARK_TRY(list_selected(context, tape, trace, b, s->list));
    if (trace->depth != 0) {
      HARK_TRY(read_bounds(&unit_of, b, &begin, &end));
      HARK_TRY(list_numbers(&depth, "depth", begin, end, 0, s->list));
    }
    hark_text_append(s->list, "}");
  }
  return s->list->status;
}

hark_status hark_ahca_statistics_add(hark_context *context, const hark_tape *tape, const hark_ahca_trace *trace, int64_t tokens,
                                     hark_ahca_statistics *statistics) {
  if (trace->chunks == 0) return HARK_OK;
  statistics->sequences += hark_tape_tensor(tape, trace->sequences)->shape[0] - 1;
  statistics->tokens += tokens;
  HARK_TRY(add_chunks(context, tape, trace, statistics));
  HARK_TRY(add_selected(context, tape, trace, statistics));
  if (statistics->list != NULL) HARK_TRY(list_sequences(context, tape, trace, statistics));
  return add_depths(context, tape, trace, statistics);
}

static double fraction(int64_t part, int64_t all) { return all > 0 ? (double)part / (double)all : NAN; }

hark_ahca_report hark_ahca_report_of(const hark_ahca_statistics *s) {
  hark_ahca_report report = {.chunks = fraction(s->chunks, s->sequences), .tokens = fraction(s->tokens, s->chunks), .depth = NAN};
  report.shortest = s->chunks > 0 ? (double)s->shortest : NAN;
  report.longest = s->chunks > 0 ? (double)s->longest : NAN;
  int64_t layers = 0;
  for (int d = 1; d <= HARK_MAX_DEPTH; d++) {
    report.depths[d - 1] = s->depths[d] > 0 ? fraction(s->depths[d], s->units) : NAN;
    layers += d * s->depths[d];
  }
  report.depth = fraction(layers, s->units);
  for (int i = 0; i < HARK_AHCA_LENGTHS; i++) report.lengths[i] = s->lengths[i] > 0 ? fraction(s->lengths[i], s->chunks) : NAN;
  for (int i = 0; i < HARK_AHCA_PLACES; i++) report.places[i] = fraction(s->places[i], s->selected);
  return report;
}

double *hark_ahca_report_number(hark_ahca_report *report, int index, char name[HARK_AHCA_NAME_BYTES]) {
  static const char *const names[] = {"chunks", "tokens", "shortest", "longest", "depth"};
  enum { SINGLE = sizeof names / sizeof *names };
  double *const singles[SINGLE] = {&report->chunks, &report->tokens, &report->shortest, &report->longest, &report->depth};
  if (index < SINGLE) {
    (void)snprintf(name, HARK_AHCA_NAME_BYTES, "ahca/%s", names[index]);
    return singles[index];
  }
  index -= SINGLE;
  if (index < HARK_MAX_DEPTH) {
    (void)snprintf(name, HARK_AHCA_NAME_BYTES, "ahca/depth_%d", index + 1);
    return &report->depths[index];
  }
  index -= HARK_MAX_DEPTH;
  if (index < HARK_AHCA_LENGTHS) {
    (void)snprintf(name, HARK_AHCA_NAME_BYTES, "ahca/length_%" PRId64, (int64_t)1 << index);
    return &report->lengths[index];
  }
  index -= HARK_AHCA_LENGTHS;
  if (index >= HARK_AHCA_PLACES) return NULL;
  (void)snprintf(name, HARK_AHCA_NAME_BYTES, "ahca/place_%d", index);
  return &report->places[index];
}
