/* cmocka_all.h - cmocka with the headers that it needs before it. */
#ifndef HARK_TESTS_SUPPORT_CMOCKA_ALL_H
#define HARK_TESTS_SUPPORT_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
