/* moment_transfer.h - moments that other processes keep (moment_share.h), where rank 0 writes or reads a checkpoint. Rank 0 asks for one
 * piece after the other, so that it never has all of them, and the other processes answer until it has finished:
 *
 *     rank 0                                          the others
 *     hark_moments_read(), hark_moments_write() ...   hark_moments_serve()
 *     hark_moments_finish(context, engine, status)
 *
 * also where rank 0 fails in between: nobody waits for pieces that it no longer needs.
 */
#ifndef HARK_TRAIN_MOMENT_TRANSFER_H
#define HARK_TRAIN_MOMENT_TRANSFER_H

#include "train/engine.h"

/* Numbers [first, first + count) of the flat moments, wherever they are, to and from host memory. For rank 0. Errors: those of the group
 * and of the backend. */
HARK_MUST_CHECK hark_status hark_moments_read(hark_context *context, const hark_engine *engine, hark_moment which, int64_t first,
                                              int64_t count, float *out);
HARK_MUST_CHECK hark_status hark_moments_write(hark_context *context, const hark_engine *engine, hark_moment which, int64_t first,
                                               int64_t count, const float *numbers);
/* Ends the service of the others, where moments are divided. Returns `status`; if it is HARK_OK, the errors of the group. */
HARK_MUST_CHECK hark_status hark_moments_finish(hark_context *context, const hark_engine *engine, hark_status status);

/* Answers rank 0 until it has finished; at once where moments are not divided. For the other ranks. Errors: those of the group and of the
 * backend. */
HARK_MUST_CHECK hark_status hark_moments_serve(hark_context *context, const hark_engine *engine);

#endif
