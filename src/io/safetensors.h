/* safetensors.h - tensors in a file: 8 bytes little-endian length of the header, the header (JSON), the tensors' bytes.
 *
 * The reader is strict (docs/formats.md lists what is refused, and why); everything is checked before memory for tensors is allocated, and
 * tensors are read with pread, so that a file that another process shortens gives a status and not a signal. Numbers in the file are
 * little-endian, and so is every machine that hark builds for. Opening a file costs memory in proportion to its header.
 */
#ifndef HARK_IO_SAFETENSORS_H
#define HARK_IO_SAFETENSORS_H

#include "core/core.h"
#include "io/files.h"

#define HARK_SAFETENSORS_HEADER_BYTES ((uint64_t)100000000) /* longest header: the published limit */
#define HARK_SAFETENSORS_TENSORS 100000                     /* most tensors, and most entries of the metadata */
#define HARK_SAFETENSORS_NAME_BYTES ((size_t)4096)          /* longest name */

/* A tensor in a file. */
typedef struct hark_stored_tensor {
  const char *name;
  const char *type_name; /* as in the file: "F32", "BF16"; static */
  hark_type type;        /* HARK_NONE for types that hark does not compute with (I16, F8_E4M3, ...) */
  int rank;
  int64_t shape[HARK_MAX_RANK];
  uint64_t offset; /* of its first byte in the file */
  uint64_t bytes;
} hark_stored_tensor;

/* The word for a type in a file ("F32"), or NULL for a type that files do not support. */
const char *hark_safetensors_type_name(hark_type type);

typedef struct hark_safetensors hark_safetensors;

/* Opens and checks a file. The caller closes it. Errors: HARK_BAD_FILE "PATH: ...", HARK_OUT_OF_MEMORY, those of files. */
HARK_MUST_CHECK hark_status hark_safetensors_open(hark_context *context, const char *path, hark_safetensors **out);
/* The same for a file in memory, which must outlive it; messages call it `name`. */
HARK_MUST_CHECK hark_status hark_safetensors_open_memory(hark_context *context, const char *name, const void *data, size_t bytes,
                                                         hark_safetensors **out);
/* The same for bytes [base, base + bytes) of an open file, which stays open and must outlive it; offsets are those in the part. */
HARK_MUST_CHECK hark_status hark_safetensors_open_part(hark_context *context, const char *name, int descriptor, uint64_t base,
                                                       uint64_t bytes, hark_safetensors **out);
void hark_safetensors_close(hark_context *context, hark_safetensors **file);

/* The tensors in the order of their bytes in the file. */
int64_t hark_safetensors_count(const hark_safetensors *file);
const hark_stored_tensor *hark_safetensors_tensor(const hark_safetensors *file, int64_t index);
/* The tensor of that name, or NULL. O(log count). */
const hark_stored_tensor *hark_safetensors_find(const hark_safetensors *file, const char *name);

/* Metadata: texts by key, in the order of the file; NULL if there is no such key. */
int64_t hark_safetensors_metadata_count(const hark_safetensors *file);
void hark_safetensors_metadata_entry(const hark_safetensors *file, int64_t index, const char **key, const char **value);
const char *hark_safetensors_metadata(const hark_safetensors *file, const char *key);

/* Reads elements [at, at + count) of a tensor of f32, bf16 or f16 as f32 into host memory; allocates nothing. */
HARK_MUST_CHECK hark_status hark_safetensors_read_f32(hark_context *context, const hark_safetensors *file, const hark_stored_tensor *tensor,
                                                      int64_t at, int64_t count, float *out);
/* Reads a tensor's bytes into host memory of tensor->bytes bytes. */
HARK_MUST_CHECK hark_status hark_safetensors_read(hark_context *context, const hark_safetensors *file, const hark_stored_tensor *tensor,
                                                  void *data);
/* Creates a tensor with the file's type, shape and numbers; the caller destroys it. HARK_NOT_FOUND, HARK_UNSUPPORTED (type). */
HARK_MUST_CHECK hark_status hark_safetensors_load(hark_context *context, const hark_safetensors *file, const char *name, hark_tensor *out);
/* Checks that there is a tensor of that name, shape and type, or of type bf16 or f16 where f32 is described. HARK_NOT_FOUND; HARK_BAD_FILE
 * if type or shape differ. */
HARK_MUST_CHECK hark_status hark_safetensors_expect(hark_context *context, const hark_safetensors *file, const char *name,
                                                    const hark_tensor *described);
/* Reads into an existing contiguous tensor; bf16 and f16 become f32, exactly. Errors: as hark_safetensors_expect(). */
HARK_MUST_CHECK hark_status hark_safetensors_load_into(hark_context *context, const hark_safetensors *file, const char *name,
                                                       hark_tensor *tensor);

/* Where the numbers of a tensor are that is not in this process's memory, as the first member of a struct that has the rest. */
typedef struct hark_tensor_source hark_tensor_source;
struct hark_tensor_source {
  /* out, host memory <- elements [at, at + count) */
  hark_status (*read)(hark_context *context, const hark_tensor_source *source, int64_t at, int64_t count, void *out);
};

/* A contiguous tensor to write. */
typedef struct hark_named_tensor {
  const char *name;
  const hark_tensor *tensor;
  hark_type stored;                 /* HARK_NONE: the tensor's type; of f32: bf16 or f16, to which numbers are rounded (core/half.h) */
  const hark_tensor_source *source; /* NULL: the tensor's own memory */
} hark_named_tensor;
typedef struct hark_metadata_entry {
  const char *key, *value;
} hark_metadata_entry;

/* Writes a file atomically. The bytes depend on the contents only: tensors by descending size of their elements (so that all are aligned)
 * and then by name, metadata by key, the header padded with blanks to a multiple of 8. `summary` may be NULL. Errors: HARK_INVALID_ARGUMENT
 * (a name that occurs twice, is empty, not UTF-8, or "__metadata__"; a type that cannot be written), HARK_NOT_FINITE (a number that
 * is not finite in a stored bf16 or f16), those of files. */
HARK_MUST_CHECK hark_status hark_safetensors_write(hark_context *context, const char *path, const hark_named_tensor *tensors, int64_t count,
                                                   const hark_metadata_entry *metadata, int64_t metadata_count, hark_file_summary *summary);

/* Whether a file begins as one of safetensors does: with the length of a header, and a brace. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_safetensors_is(hark_context *context, const char *path, bool *is);

#endif
