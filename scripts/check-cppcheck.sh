#!/bin/sh
# cppcheck over library and command: check-cppcheck.sh.
set -eu
cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 2)
# One configuration is enough: the macros that choose others (instruction sets, oneDNN, threads) do not change the control flow around them.
# Suppressed: it takes the size of a vector type for that of a pointer (simd.h), any comparison after an index for its check, and the
# carving of floats out of a block of bytes for a conversion of numbers.
cppcheck --quiet -j "$jobs" --std=c11 --error-exitcode=1 --enable=warning,performance,portability --inline-suppr \
  --suppress=missingIncludeSystem --suppress=bufferAccessOutOfBounds:src/backend/cpu/simd.h --suppress=arrayIndexThenCheck --suppress=invalidPointerCast \
  -Iinclude -Isrc -D__GNUC__=12 -D__x86_64__=1 -DHARK_ISA_NAME=generic -DHARK_WITH_ONEDNN=1 src examples
