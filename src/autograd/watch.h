/* watch.h - reports when the gradients of leaves are final, while the backward still runs.
 *
 * A leaf is used only by nodes that are recorded after it was made. So nothing is added to its gradient once the backward has visited all
 * nodes from that place on, whatever these do inside: operators, segments that are built again, slices of rows. Where several leaves share
 * a gradient (tied embeddings), the first of them counts. Internal to the library.
 */
#ifndef HARK_AUTOGRAD_WATCH_H
#define HARK_AUTOGRAD_WATCH_H

#include <hark/tape.h>

typedef struct hark_tape_watch {
  void *user;
  /* A leaf with this gradient was made; its uses are nodes from number `node` on. Not called for what the backward builds again. */
  void (*leaf)(void *user, const hark_tensor *gradient, int32_t node);
  /* Between operators of the backward: the nodes from number `node` on are done. An error ends the backward. Must not use the tape. */
  hark_status (*done)(void *user, int32_t node);
} hark_tape_watch;

/* Copied; NULL: none, as at first. Also called in shape-only runs. */
void hark_tape_set_watch(hark_tape *tape, const hark_tape_watch *watch);

#endif
