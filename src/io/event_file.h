/* event_file.h - curves in the files that TensorBoard reads: events.out.tfevents.*.
 *
 * A file is a sequence of records (TFRecord): length, u64; its masked CRC; the bytes of an event; their masked CRC; all little-endian. An
 * event is a message of protobuf, tensorflow.Event: the first one has the version of the format, the second one the beginning of a session,
 * which makes TensorBoard forget what older files of the folder have; the others have numbers of a step. A record is written by one call,
 * so that a killed process leaves at most one incomplete record, the last, which readers ignore.
 *
 *     hark_event_file events = {0};
 *     HARK_TRY(hark_event_file_create(context, &events, "runs/first"));
 *     hark_event_begin(&events, seconds, step);
 *     hark_event_scalar(&events, "train/loss", loss);
 *     HARK_TRY(hark_event_end(context, &events));
 *     HARK_TRY(hark_event_file_close(context, &events));
 *
 * Reference: TensorFlow, lib/io/record_writer.h, util/event.proto, framework/summary.proto; CRC-32C: RFC 3720, appendix B.4.
 */
#ifndef HARK_IO_EVENT_FILE_H
#define HARK_IO_EVENT_FILE_H

#include "io/files.h"

#define HARK_EVENT_PREFIX "events.out.tfevents." /* of the files' names */

/* Zero it before its first use. */
typedef struct hark_event_file {
  bool open;
  int descriptor;
  hark_text values, event, record; /* of the event that is built */
  double seconds;
  int64_t step;
  char path[HARK_PATH_BYTES];
} hark_event_file;

/* CRC-32C of bytes, and as records have it: rotated by 15 bits to the right, plus a constant. */
uint32_t hark_event_crc(const void *data, size_t bytes);
uint32_t hark_event_masked_crc(const void *data, size_t bytes);

/* Makes a new file in a folder, whose name has the time and is after those of other event files there, and writes its first two events. The
 * caller closes it, also after a failure. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_event_file_create(hark_context *context, hark_event_file *file, const char *folder);

/* An event: begin, numbers, end. `seconds` since 1970. Numbers are stored as f32. An event without numbers is not written. */
void hark_event_begin(hark_event_file *file, double seconds, int64_t step);
void hark_event_scalar(hark_event_file *file, const char *tag, double value);
HARK_MUST_CHECK hark_status hark_event_end(hark_context *context, hark_event_file *file);

/* Makes everything so far durable and closes; a file that is not open is not an error. */
HARK_MUST_CHECK hark_status hark_event_file_close(hark_context *context, hark_event_file *file);

/* Removes all event files of a folder, except the one of this path (NULL: none). Errors: those of files. */
HARK_MUST_CHECK hark_status hark_event_files_remove(hark_context *context, const char *folder, const char *except);

/* Seconds since 1970. */
double hark_event_time(void);

#endif
