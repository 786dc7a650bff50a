/* leaf_text.h - the kernels of the language, each as the shortest expression that contains it. */
#ifndef HARK_POSITIONAL_LEAF_TEXT_H
#define HARK_POSITIONAL_LEAF_TEXT_H

#include <hark/positional.h>

#define HARK_LEAF_TEXT_BYTES 40

/* "rbf", "table[K]", "window(N)" with the numbers that the kernel needs. */
void hark_leaf_text(const hark_positional_kernel *leaf, int size, int constant, char text[HARK_LEAF_TEXT_BYTES]);

#endif
