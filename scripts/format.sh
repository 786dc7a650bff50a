#!/bin/sh
# Formats all C sources, and the one of C++; with --check only reports which would change, and which lines are too long. clang-format leaves
# comments as they are, so that it does not find those. Returns 1 when anything is reported.
set -eu
cd "$(dirname "$0")/.."
columns=140 # ColumnLimit of .clang-format
mode=-i
[ "${1-}" != --check ] || mode='--dry-run -Werror'
each() { find include src tests examples bench python \( -name '*.[ch]' -o -name '*.cc' \) -exec "$@" {} +; }
status=0
# shellcheck disable=SC2086 # the mode is words
each clang-format $mode || status=1
if [ "$mode" != -i ] && each env LC_ALL=C.UTF-8 grep -nE "^.{$((columns + 1)),}"; then
  echo "format: the lines above have more than $columns columns" >&2
  status=1
fi
exit $status
