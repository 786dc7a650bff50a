#!/bin/sh
# Whether the code in the guides (docs/adding-*.md) is formatted as scripts/format.sh would: check-guides.sh FOLDER, of guide-code.sh.
# 77: there is no clang-format.
set -eu
style=$(cd "$(dirname "$0")/.." && pwd)/.clang-format
command -v clang-format >/dev/null || exit 77
cd "$1"
clang-format --style="file:$style" --dry-run -Werror operator/softplus.c operator/include/hark/operators.h option/models/model_options.h \
  option/models/network_config.h option/models/stack.c option/test_residual_scale.c experiment/urn.c experiment/lab/lab.h \
  backend/plain.c backend/backend/backend.h backend/backend/backends.c
