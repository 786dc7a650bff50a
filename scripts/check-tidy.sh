#!/bin/sh
# clang-tidy over the sources of a configured build: check-tidy.sh BUILD [FILE...]. The configuration is .clang-tidy.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -eq 0 ] || shift
jobs=$(nproc 2>/dev/null || echo 2)
[ $# -gt 0 ] || {
  modules=src/modules # without MPI its header is not there
  ! grep -q '/src/modules/' "$build/compile_commands.json" || modules=
  # shellcheck disable=SC2046,SC2086 # names without blanks
  set -- $(find src examples -name '*.c' ${modules:+! -path "$modules/*"})
}
# The analyser looks at up to so many states of a function (225,000 unless limited, which takes seven times as long and has found nothing more).
limit='--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=20000'
# shellcheck disable=SC2086 # several words
printf '%s\n' "$@" | xargs -P "$jobs" -n 4 clang-tidy --quiet $limit -p "$build" 2>&1 | {
  # The count of warnings in system headers is no news.
  grep -vE '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter' || true
} >"$build/tidy.log"
if grep -qE '(warning|error):' "$build/tidy.log"; then
  cat "$build/tidy.log"
  exit 1
fi
