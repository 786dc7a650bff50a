/* own_tokens.h - models that tell the tokens which they read (model.ahca.head reconstruction): windows of a text and examples whose targets
 * are their own tokens, in packed batches, and the loss over a split of a text.
 */
#ifndef HARK_TRAIN_OWN_TOKENS_H
#define HARK_TRAIN_OWN_TOKENS_H

#include "train/evaluate_examples.h"

/* The batch's targets become its tokens, whatever they were. */
void hark_own_tokens(hark_example_batch *batch);

/* Fills a batch with windows first .. first + rows of a text, of the batches' context each. Errors: those of hark_batches_read(). */
HARK_MUST_CHECK hark_status hark_own_windows_read(hark_context *context, const hark_batches *batches, int64_t first, int64_t rows,
                                                  hark_example_batch *batch);

/* The mean loss over the windows of a split of a text, one behind the other, and how many tokens were told right; the last is as long as
 * the text leaves it. Of `settings` split and targets are read. The split's last token, which is no input of a window, is not told. */
HARK_MUST_CHECK hark_status hark_evaluate_own(hark_context *context, hark_engine *engine, const hark_corpus *corpus,
                                              const hark_evaluation_settings *settings, hark_example_room *room,
                                              hark_evaluation_progress *progress, void *user, hark_evaluation_result *out);

#endif
