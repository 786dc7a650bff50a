/* listops.h - the symbols of ListOps, which its reader and its generator share. */
#ifndef HARK_DATA_TASKS_LISTOPS_H
#define HARK_DATA_TASKS_LISTOPS_H

#define HARK_LISTOPS_HEADER "Source\tTarget"

/* Digits are symbols 0 .. 9; the operators follow, then the closing bracket. */
enum {
  HARK_LISTOPS_OPERATOR = 10,
  HARK_LISTOPS_MAX = HARK_LISTOPS_OPERATOR,
  HARK_LISTOPS_MED,
  HARK_LISTOPS_MIN,
  HARK_LISTOPS_SM,
  HARK_LISTOPS_CLOSE,
  HARK_LISTOPS_SYMBOLS
};
extern const char *const hark_listops_words[HARK_LISTOPS_SYMBOLS];

#endif
