#!/bin/sh
# Whether the code in the guides (docs/adding-*.md) is formatted as scripts/format.sh would, with lines of at most 140 columns:
# check-guides.sh FOLDER, of guide-code.sh.
# 77: there is no clang-format.
set -eu
style=$(cd "$(dirname "$0")/.." && pwd)/.clang-format
command -v clang-format >/dev/null || exit 77
cd "$1"
files=$(find . -name '*.[ch]' ! -path './backend/support/*') # there the row's place changes the lines around it
[ -n "$files" ] || { echo "no code" >&2 && exit 1; }
# shellcheck disable=SC2086 # a list of names without blanks
clang-format --style="file:$style" --dry-run -Werror $files
# shellcheck disable=SC2086
if grep -nE '^.{141}' $files; then
  echo "the lines above have more than 140 columns" >&2
  exit 1
fi
