/* hark.h - the whole library: structured attention, forward and backward, and the operators of Transformers. */
#ifndef HARK_H
#define HARK_H

#include "attention.h"
#include "context.h"
#include "operator.h"
#include "operators.h"
#include "positional.h"
#include "random.h"
#include "status.h"
#include "tape.h"
#include "tensor.h"
#include "version.h"

#endif
