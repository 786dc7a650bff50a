/* own_tokens.h - models that reconstruct their input (model.ahca.head reconstruction): packed batches of windows or examples whose targets
 * are their own tokens, and the loss over a split of a text.
 */
#ifndef HARK_TRAIN_OWN_TOKENS_H
#define HARK_TRAIN_OWN_TOKENS_H

#include "train/evaluate_examples.h"

/* Replaces the batch's targets by its tokens. */
void hark_own_tokens(hark_example_batch *batch);

/* Fills a batch with windows first .. first + rows of a text, each as long as the batches' context. Errors: those of
 * hark_batches_read(). */
HARK_MUST_CHECK hark_status hark_own_windows_read(hark_context *context, const hark_batches *batches, int64_t first, int64_t rows,
                                                  hark_example_batch *batch);

/* The mean loss over the consecutive windows of a split of a text, and the number of correctly predicted tokens. The last window may be
 * shorter. Of `settings`, split and targets are used. The split's last token is in no window and is not predicted. */
HARK_MUST_CHECK hark_status hark_evaluate_own(hark_context *context, hark_engine *engine, const hark_corpus *corpus,
                                              const hark_evaluation_settings *settings, hark_example_room *room,
                                              hark_evaluation_progress *progress, void *user, hark_evaluation_result *out);

#endif
