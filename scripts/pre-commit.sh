#!/bin/sh
# A hook of git that formats what is committed; `make hooks` installs it. Files with changes that are not staged are refused rather than committed whole.
set -eu
command -v clang-format >/dev/null || { echo "pre-commit: clang-format is missing, nothing was formatted" >&2; exit 0; }
git diff --cached --name-only --diff-filter=ACMR -- '*.c' '*.h' '*.cc' | while IFS= read -r file; do
  git diff --quiet -- "$file" || { echo "pre-commit: $file has changes that are not staged; stage or stash them" >&2; exit 1; }
  clang-format -i "$file"
  git add -- "$file"
done
