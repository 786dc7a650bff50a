#!/bin/sh
# Formats all C sources, and the one of C++; with --check only says which would change, and returns 1 when any would.
set -eu
cd "$(dirname "$0")/.."
mode=-i
[ "${1-}" != --check ] || mode='--dry-run -Werror'
# shellcheck disable=SC2086 # the mode is words
find include src tests examples bench \( -name '*.[ch]' -o -name '*.cc' \) -exec clang-format $mode {} +
