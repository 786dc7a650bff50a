#!/bin/sh
# Formats all C sources; with --check only says which would change, and returns 1 when any would.
set -eu
cd "$(dirname "$0")/.."
mode=-i
[ "${1-}" != --check ] || mode='--dry-run -Werror'
# shellcheck disable=SC2086 # the mode is words
find include src tests examples bench -name '*.[ch]' -exec clang-format $mode {} +
