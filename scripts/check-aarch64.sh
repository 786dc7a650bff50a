#!/bin/sh
# Builds the library (HARK_TRAIN=OFF) for 64-bit ARM with Debian's cross compiler, and runs tests of its kernels with qemu-user.
#   check-aarch64.sh FOLDER           builds in FOLDER, runs the tests that the continuous check runs: those below
#   check-aarch64.sh FOLDER REGEX     other tests, as ctest -R chooses them
# Prints "skipped: why" as its last line, and ends with 0, where it cannot be done or only the library can be built. The target's cmocka is
# unpacked below FOLDER/root; nothing of this machine is changed.
# HARK_AARCH64_PACKAGES  the target's packages (libcmocka-dev libcmocka0); with libjansson-dev libjansson4 libyaml-dev libyaml-0-2 also
#                        -DHARK_TRAIN=ON can be configured in FOLDER
set -eu
cd "$(dirname "$0")/.."
folder=$1
# Emulation makes a test 10 to 50 times as long: here are all but the longest. Of every record's samples, only those on NEON.
attention='aliasing|attention|compressed_decode|distances|gradients|hierarchical_decode|kernel_ridge_decode|ranges|refusals|run'
models='ahca_definition|ahca_refusals|ahca_weights|decoder|encoder|latent|model_files|positional|predictor|published_rotary'
tests=${2:-"^(attention/($attention)|conformance/large_rows|gradient/gradient|models/($models))\$"}
samples=
[ $# -gt 1 ] || samples='test_conformance test_floating_point test_not_finite'
packages=${HARK_AARCH64_PACKAGES:-libcmocka-dev libcmocka0}
jobs=$(nproc 2>/dev/null || echo 2)

skip() {
  echo "skipped: $*"
  exit 0
}

command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 ||
  skip "there is no aarch64-linux-gnu-gcc; sh scripts/install-dependencies.sh --check installs it"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# Downloads and unpacks packages of arm64 by an apt with lists and a state of its own: no right and no foreign architecture is needed.
unpack() {
  apt=$folder/apt
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$folder/root.partial"
  : >"$apt/status"
  set -- -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" \
    -o "Dir::Cache=$apt/cache"
  # shellcheck disable=SC2086 # packages are words
  (cd "$apt" && apt-get "$@" update && apt-get "$@" download $packages) || return 1
  for package in "$apt"/*.deb; do dpkg-deb -x "$package" "$folder/root.partial" || return 1; done
  rm -rf "$apt"
  mv "$folder/root.partial" "$folder/root"
}

why=
if ! command -v qemu-aarch64 >/dev/null 2>&1; then
  why="there is no qemu-aarch64; sh scripts/install-dependencies.sh --check installs it"
elif [ ! -d "$folder/root" ]; then
  if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    why="there is no apt-get to get cmocka for arm64"
  else
    rm -rf "$folder/root.partial" "$folder/apt"
    unpack >"$folder/apt.log" 2>&1 || why="apt-get has no cmocka for arm64 ($folder/apt.log)"
  fi
fi

with_tests=ON
[ -z "$why" ] || with_tests=OFF
cmake -S . -B "$folder" -DCMAKE_TOOLCHAIN_FILE=cmake/toolchains/aarch64-linux-gnu.cmake "-DHARK_AARCH64_ROOT=$folder/root" \
  -DHARK_WERROR=ON -DHARK_TRAIN=OFF "-DHARK_BUILD_TESTS=$with_tests"
cmake --build "$folder" -j"$jobs" --target hark hark_shared
sh scripts/check-needed.sh "$folder/libhark.so"
[ -z "$why" ] || skip "the library is built, no test was run: $why"

# One program for each test that is chosen.
ctest --test-dir "$folder" -N -R "$tests" | sed -n 's/^ *Test *#[0-9]*: \([a-z_0-9]*\)\/\([a-z_0-9]*\)$/test_\1_\2/p' >"$folder/targets.txt"
[ -s "$folder/targets.txt" ] || {
  echo "no test is named $tests"
  exit 1
}
for program in $samples; do echo "test_conformance_${program#test_}"; done >>"$folder/targets.txt"
# shellcheck disable=SC2046 # words
cmake --build "$folder" -j"$jobs" --target $(cat "$folder/targets.txt")
status=0
ctest --test-dir "$folder" --output-on-failure -j"$jobs" -R "$tests" || status=1

# One process a program; each reports its samples in a file.
processes=
for program in $samples; do
  HARK_TEST='*:cpu:neon' qemu-aarch64 -L /usr/aarch64-linux-gnu "$folder/tests/conformance/$program" >"$folder/$program.log" 2>&1 &
  processes="$processes $!"
done
for process in $processes; do wait "$process" || status=1; done
for program in $samples; do
  if ! grep -q 'OK.*:cpu:neon' "$folder/$program.log"; then # of a filter that fits no sample
    echo "$program ran no sample on NEON"
    status=1
  fi
  grep -vE '^\[ (RUN|      OK) ' "$folder/$program.log" || true
done
exit "$status"
