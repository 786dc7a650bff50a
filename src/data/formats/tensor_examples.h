/* tensor_examples.h - examples in safetensors files, which other programs write, for the formats vectors and pathfinder:
 *
 *     vectors      tokens [examples, length, features] and targets [examples, responses], F32 or F64
 *     pathfinder   images [examples, height, width] U8 and labels [examples] U8, I32 or I64; metadata "classes" (optional): their number,
 *                  otherwise that of the earlier files, and of the first one the largest label + 1
 *
 * Other tensors are refused, and so are numbers that are not finite. Limits are those of vector_file.h and image_file.h. */
#ifndef HARK_DATA_FORMATS_TENSOR_EXAMPLES_H
#define HARK_DATA_FORMATS_TENSOR_EXAMPLES_H

#include "data/formats/example_format.h"
#include "data/inputs.h"

/* Whether a file begins like safetensors. */
HARK_MUST_CHECK hark_status hark_tensor_examples_are(const hark_example_reader *reader, const hark_input *file, bool *out);

/* Read a file to its end. Errors: HARK_BAD_FILE, with the tensor and the example. */
HARK_MUST_CHECK hark_status hark_tensor_examples_read_vectors(hark_example_reader *reader, const hark_input *file);
HARK_MUST_CHECK hark_status hark_tensor_examples_read_images(hark_example_reader *reader, const hark_input *file);

#endif
