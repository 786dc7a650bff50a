/* print_number.h - numbers for messages and files: exact, and the same in every locale. */
#ifndef HARK_CORE_PRINT_NUMBER_H
#define HARK_CORE_PRINT_NUMBER_H

#define HARK_NUMBER_BYTES 40 /* enough for every text that hark_number_print() writes */
#define HARK_POINT_BYTES 16  /* of a locale's decimal point */

/* Writes the shortest text that reads back as the same number; "nan", "inf", "-inf" for those. Returns text. */
const char *hark_number_print(double value, char text[HARK_NUMBER_BYTES]);

/* The same as an argument of a call, in memory of the block around it. */
#define HARK_PRINTED(value) hark_number_print((value), (char[HARK_NUMBER_BYTES]){""})

/* Copies the locale's decimal point. */
void hark_decimal_point(char point[HARK_POINT_BYTES]);

#endif
