/* hark.h - the whole library: structured attention, forward and backward, the operators of Transformers, and trained models. */
#ifndef HARK_H
#define HARK_H

#include "attention.h"
#include "context.h"
#include "model.h"
#include "operator.h"
#include "operators.h"
#include "positional.h"
#include "predictor.h"
#include "random.h"
#include "regressor.h"
#include "status.h"
#include "tape.h"
#include "tensor.h"
#include "version.h"

#endif
