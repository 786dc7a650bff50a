/* page_end.c - see page_end.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/page_end.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/cmocka_all.h"

page_end page_end_open(size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  page_end place = {.accessible = (bytes + page - 1) / page * page};
  place.whole = place.accessible + page;
  void *const memory = mmap(NULL, place.whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  place.pages = memory;
  assert_int_equal(mprotect(place.pages + place.accessible, page, PROT_NONE), 0);
  return place;
}

void *page_end_copy(page_end *place, const void *data, size_t bytes) {
  assert_true(bytes <= place->accessible);
  memset(place->pages, 0x5A, place->accessible);
  unsigned char *const at = place->pages + place->accessible - bytes;
  memcpy(at, data, bytes);
  return at;
}

void page_end_close(page_end *place) {
  assert_int_equal(munmap(place->pages, place->whole), 0);
  *place = (page_end){0};
}
