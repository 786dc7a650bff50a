/* foreign_tensors.h - the tensors of another program's model, by the table of its type. */
#ifndef HARK_MODELS_FOREIGN_FOREIGN_TENSORS_H
#define HARK_MODELS_FOREIGN_FOREIGN_TENSORS_H

#include "models/foreign/foreign_type.h"
#include "models/foreign/shards.h"
#include "models/network.h"

/* Rows of a type's table with one name, of one block: one tensor, which contains the parameters one after the other. */
#define HARK_FOREIGN_PARTS 4
typedef struct hark_foreign_group {
  char name[HARK_PARAMETER_NAME_BYTES]; /* with the prefix */
  hark_parameter *parts[HARK_FOREIGN_PARTS];
  int count; /* 0: the model lacks all of them */
  bool transposed;
  int rank;
  int64_t shape[2]; /* of the whole tensor, as it is stored */
} hark_foreign_group;

/* Visits all groups of a network's parameters that are there. Errors: HARK_UNSUPPORTED for a parameter without a row, those of `visit`. */
typedef hark_status hark_foreign_visitor(hark_context *context, const hark_foreign_group *group, void *user);
HARK_MUST_CHECK hark_status hark_foreign_tensors_visit(hark_context *context, const hark_foreign_type *type, const hark_network *network,
                                                       hark_foreign_visitor *visit, void *user);

/* Refuses files that have not exactly the model's tensors, with the file and the tensor: missing, unexpected, of another type than f32, f16
 * or bf16, of another shape. Nothing is read but a second copy of tied embeddings, which must be equal. Errors: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_foreign_tensors_check(hark_context *context, const hark_foreign_type *type, const hark_shards *shards,
                                                       const char *folder, const hark_network *network);
/* Holds every matrix in the type that it has in its file. */
HARK_MUST_CHECK hark_status hark_foreign_tensors_hold(hark_context *context, const hark_foreign_type *type, const hark_shards *shards,
                                                      const hark_network *network);
/* Reads all of them into allocated parameters, rounded to the types in which they are held. Errors: HARK_NOT_FINITE, those of files. */
HARK_MUST_CHECK hark_status hark_foreign_tensors_read(hark_context *context, const hark_foreign_type *type, const hark_shards *shards,
                                                      const hark_network *network);

#endif
