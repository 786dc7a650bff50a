#!/bin/sh
# hark as a part of another project, as docs/embedding.md, "As a part of your project", prints it: check-subproject.sh [configure].
# `configure`: the configuration alone, which takes seconds; else the program is built and run too.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "check-subproject: $*" >&2
  [ ! -e "$work/log" ] || tail -n 20 "$work/log" >&2
  exit 1
}

{
  echo 'cmake_minimum_required(VERSION 3.25)'
  echo 'project(host LANGUAGES C)'
  sed -n '/^## As a part of your project/,/^## [^A]/s/^    //p' docs/embedding.md
  echo 'add_executable(static_program program.c)'
  echo 'target_link_libraries(static_program PRIVATE hark::hark_static)'
} >"$work/CMakeLists.txt"
grep -q '^add_subdirectory(hark)' "$work/CMakeLists.txt" || fail "docs/embedding.md prints no add_subdirectory(hark)"
ln -s "$PWD" "$work/hark"
sh scripts/readme-code.sh "$work/program.c" # which needs nothing besides
type= # of the build, the host's: without optimisation it takes half the time
[ "${1-}" = configure ] || type=-DCMAKE_BUILD_TYPE=Debug
# shellcheck disable=SC2086 # none or one
cmake -S "$work" -B "$work/build" $type >"$work/log" 2>&1 || fail "the configuration failed"
for line in 'training: OFF' 'tests: OFF'; do
  grep -q "$line" "$work/log" || fail "the configuration does not say '$line'"
done
[ "${1-}" = configure ] && exit 0

cmake --build "$work/build" -j"$(nproc 2>/dev/null || echo 2)" --target program static_program >"$work/log" 2>&1 || fail "the build failed"
for program in program static_program; do
  "$work/build/$program" >"$work/log" 2>&1 || fail "$program failed"
done
