/* verify_model.h - checks files of models: those that hark export and hark import write, and folders of other programs. Nothing is
 * changed. */
#ifndef HARK_TRAIN_VERIFY_MODEL_H
#define HARK_TRAIN_VERIFY_MODEL_H

#include "io/safetensors.h"
#include "train/verify.h"

/* True for a folder that hark_model_load() reads as a model: of another program, or with a model.safetensors. */
HARK_MUST_CHECK hark_status hark_is_model_folder(hark_context *context, const char *path, bool *out);

/* Checks a file or folder of a model: every file of tensors is well-formed and its numbers are finite; description, vocabulary, names and
 * shapes of the tensors make a model, and the file has the SHA-256 of a manifest.json in its folder, if there is one. The model is loaded,
 * so that its memory is needed. *problems as in hark_run_verify(). Errors: HARK_OUT_OF_MEMORY, HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_model_verify(hark_context *context, const char *path, hark_finding_visitor *visit, void *user,
                                              int64_t *problems);

/* Refuses tensors with a number that is not finite, by name. Errors: HARK_NOT_FINITE, those of files. */
HARK_MUST_CHECK hark_status hark_check_finite_tensors(hark_context *context, const hark_safetensors *file, const char *path);

/* A verification: who gets the findings, and how many are problems. */
typedef struct hark_verification {
  hark_context *context;
  hark_finding_visitor *visit;
  void *user;
  int64_t problems;
} hark_verification;

/* Reports the result for `what`. A failure that is no damage, such as missing memory, ends the verification and is returned. */
HARK_MUST_CHECK hark_status hark_verification_report(hark_verification *v, const char *what, hark_status status, const char *note);

#endif
