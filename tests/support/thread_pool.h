/* thread_pool.h - threads of a host program for hark's parallel work: a pool that it brings along. */
#ifndef HARK_TESTS_SUPPORT_THREAD_POOL_H
#define HARK_TESTS_SUPPORT_THREAD_POOL_H

#include <hark/context.h>

/* Every run starts threads - 1 of them and joins them at its end; pieces are handed out in the order in which threads ask. Static data
 * only: any number of contexts may share a pool. 1 <= threads <= TEST_POOL_THREADS. */
#define TEST_POOL_THREADS 8
hark_parallel test_pool(int threads);

#endif
