/* onednn.c - C = alpha op(A) B + beta C by oneDNN's dnnl_sgemm, one thread for one piece of C.
 *
 * It serves where it was the faster of the two on the layers of our models (Zen 4, AVX-512; by a few per cent of peak: gradients, while the
 * forward's x W^T is faster in isa/product.c):
 * where B is not transposed. The pieces are hark's, of fixed shapes, and run inside hark's parallel work: a result has the same bits for
 * every number of threads, and oneDNN starts no threads beside ours: its OpenMP runtime is set so that the calling thread may use one thread.
 * dnnl_sgemm is the same in oneDNN 2 and 3. It takes memory of its own for packing, through malloc, and gives it back.
 *
 * No signal may be handled by a thread while oneDNN's code runs on it: that damages the heap. Seen with oneDNN 2.6, with AVX2 and AVX-512:
 * with a timer's signal every 200 microseconds a program that does nothing but dnnl_sgemm dies within a second ("corrupted size vs.
 * prev_size"); with signals held it does not. So they wait until the piece is done, some milliseconds at most (tests/fault/test_signals.c).
 */
#define _POSIX_C_SOURCE 200809L /* pthread_sigmask */
#include "backend/cpu/onednn.h"

/* clang's OpenMP runtime is not the one that oneDNN asks how many threads to use. */
#if defined(HARK_WITH_ONEDNN) && defined(_OPENMP) && !defined(__clang__)
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <signal.h>

/* oneDNN's kernels are for the best instruction set there is; another one was asked for where vectors are shorter. */
#define VECTOR_BYTES 64
#define LEAST_OPERATIONS 4e6 /* below, what a call costs beside the product is felt */
#define PIECES 8             /* that a product is cut into at least, when it is large enough */

/* Measured with oneDNN 2.6: pages of its code and of what it generates, and of what a thread packs into. */
#define CODE_BYTES ((size_t)6 << 20)
#define THREAD_BYTES ((size_t)1 << 20)

size_t hark_cpu_onednn_bytes(const hark_cpu_isa *isa, double operations, int threads) {
  if (isa->vector_bytes < VECTOR_BYTES || operations < PIECES * LEAST_OPERATIONS) return 0;
  return CODE_BYTES + (size_t)threads * THREAD_BYTES;
}

/* Those that may come from outside; what a thread does to itself comes at once. */
static void hold_signals(sigset_t *before) {
  static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
  sigset_t held;
  sigfillset(&held);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&held, own[i]);
  pthread_sigmask(SIG_SETMASK, &held, before);
}

bool hark_cpu_onednn_serves(const hark_cpu_isa *isa, const hark_cpu_product *x) {
  if (isa->vector_bytes < VECTOR_BYTES || x->transpose_b || x->bias != NULL || x->row_sums != NULL) return false;
  return 2.0 * (double)x->m * (double)x->n * (double)x->k >= LEAST_OPERATIONS;
}

bool hark_cpu_onednn_product(const hark_cpu_isa *isa, const hark_cpu_product *x) {
  if (!hark_cpu_onednn_serves(isa, x)) return false;
  const int threads = omp_get_max_threads();
  sigset_t before;
  omp_set_num_threads(1); /* of this thread alone */
  hold_signals(&before);
  const dnnl_status_t status =
      dnnl_sgemm(x->transpose_a ? 'T' : 'N', 'N', x->m, x->n, x->k, x->alpha, x->a, x->lda, x->b, x->ldb, x->beta, x->c, x->ldc);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  omp_set_num_threads(threads);
  return status == dnnl_success;
}
#else
bool hark_cpu_onednn_serves(const hark_cpu_isa *isa, const hark_cpu_product *product) {
  (void)isa;
  (void)product;
  return false;
}

bool hark_cpu_onednn_product(const hark_cpu_isa *isa, const hark_cpu_product *product) {
  (void)isa;
  (void)product;
  return false;
}

size_t hark_cpu_onednn_bytes(const hark_cpu_isa *isa, double operations, int threads) {
  (void)isa, (void)operations, (void)threads;
  return 0;
}
#endif
