/* page_end.h - bytes with nothing after them: the next one lies on a page that cannot be touched. */
#ifndef HARK_TESTS_PAGE_END_H
#define HARK_TESTS_PAGE_END_H

#include <stddef.h>

typedef struct page_end {
  unsigned char *pages;
  size_t accessible, whole; /* bytes of the pages that can be touched, and of all */
} page_end;

/* Room for structs of up to `bytes` bytes. A failure fails the test. */
page_end page_end_open(size_t bytes);
/* A copy of `bytes` bytes that ends where the accessible pages do; the one before is gone. */
void *page_end_copy(page_end *place, const void *data, size_t bytes);
void page_end_close(page_end *place);

#endif
