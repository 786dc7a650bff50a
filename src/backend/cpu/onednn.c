/* onednn.c - C = alpha op(A) B + beta C by oneDNN's dnnl_sgemm, one thread for one piece of C.
 *
 * It is used if B is not transposed: there it was faster than isa/product.c on the layers of our models (Zen 4, AVX-512; by a few per cent
 * of peak: gradients; the forward's x W^T is faster in isa/product.c). The pieces are hark's, of fixed shapes, and run inside hark's
 * parallel work: a result has the same bits for every number of threads. oneDNN starts no additional threads: its OpenMP runtime is set so
 * that the calling thread may use one thread. dnnl_sgemm is the same in oneDNN 2 and 3. It allocates memory for packing with malloc, and
 * releases it.
 *
 * No signal may be handled by a thread while oneDNN's code runs on it: that damages the heap. Seen with oneDNN 2.6, with AVX2 and AVX-512:
 * with a timer's signal every 200 microseconds a program that does nothing but dnnl_sgemm dies within a second ("corrupted size vs.
 * prev_size"); with blocked signals it does not. So signals wait until the piece is done, some milliseconds at most
 * (tests/fault/test_signals.c).
 */
#define _POSIX_C_SOURCE 200809L /* pthread_sigmask */
#include "backend/cpu/onednn.h"

/* oneDNN gets the number of threads from another OpenMP runtime than clang's. */
#if defined(HARK_WITH_ONEDNN) && defined(_OPENMP) && !defined(__clang__)
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <signal.h>

/* oneDNN's kernels use the best instruction set available; shorter vectors mean that another one was requested. */
#define VECTOR_BYTES 64
#define LEAST_OPERATIONS 4e6 /* below this, the overhead of a call is significant */
#define PIECES 8             /* into which a large enough product is cut, at least */

/* Measured with oneDNN 2.6: pages of its code and of generated code, and of a thread's memory for packing. */
#define CODE_BYTES ((size_t)6 << 20)
#define THREAD_BYTES ((size_t)1 << 20)

size_t hark_cpu_onednn_bytes(const hark_cpu_isa *isa, double operations, int threads) {
  if (isa->vector_bytes < VECTOR_BYTES || operations < PIECES * LEAST_OPERATIONS) return 0;
  return CODE_BYTES + (size_t)threads * THREAD_BYTES;
}

/* Blocks signals from outside; signals that a thread causes itself are still delivered at once. */
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
  omp_set_num_threads(1); /* for this thread alone */
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
