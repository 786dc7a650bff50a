/* status.h - the return value of calls that can fail.
 *
 * Every function of hark that can fail returns a hark_status. HARK_OK is zero. The detailed message (what, where, which value) is kept by
 * the context the call was given and stays readable, with hark_context_message(), until that context's next call. The library never
 * prints, exits or aborts.
 */
#ifndef HARK_STATUS_H
#define HARK_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HARK_API __attribute__((visibility("default")))
#define HARK_MUST_CHECK __attribute__((warn_unused_result))
#define HARK_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define HARK_API
#define HARK_MUST_CHECK
#define HARK_PRINTF(text, first)
#endif

/* Name, number and text of every status: the only list of them. Numbers never change. */
#define HARK_STATUS_LIST(X)                                                                                                                \
  X(HARK_OK, 0, "success")                                                                                                                 \
  X(HARK_INVALID_ARGUMENT, 1, "invalid argument")                                                                                          \
  X(HARK_SHAPE_MISMATCH, 2, "shapes do not fit together")                                                                                  \
  X(HARK_UNSUPPORTED, 3, "combination not supported")                                                                                      \
  X(HARK_OUT_OF_MEMORY, 4, "out of memory")                                                                                                \
  X(HARK_TOO_LARGE, 5, "size too large")                                                                                                   \
  X(HARK_NOT_FOUND, 6, "not found")                                                                                                        \
  X(HARK_BAD_FILE, 7, "malformed file")                                                                                                    \
  X(HARK_IO_ERROR, 8, "file system error")                                                                                                 \
  X(HARK_NOT_FINITE, 9, "numbers are not finite")                                                                                          \
  X(HARK_BUSY, 10, "in use by another process")                                                                                            \
  X(HARK_NO_BACKEND, 11, "backend or device not available")                                                                                \
  X(HARK_BAD_CONFIGURATION, 12, "bad configuration")                                                                                       \
  X(HARK_CANCELLED, 13, "cancelled")                                                                                                       \
  X(HARK_INTERNAL_ERROR, 14, "internal error")

/* The return value of a call; HARK_OK is zero. */
typedef enum hark_status {
#define HARK_STATUS_ENUM(name, number, text) name = number,
  HARK_STATUS_LIST(HARK_STATUS_ENUM)
#undef HARK_STATUS_ENUM
} hark_status;

/* The general text of a status, a static string; never NULL. The detailed message is hark_context_message(). */
HARK_API const char *hark_status_text(hark_status status);

/* The name of a status as it is spelled in C ("HARK_OUT_OF_MEMORY"), a static string; never NULL. */
HARK_API const char *hark_status_name(hark_status status);

#ifdef __cplusplus
}
#endif
#endif
