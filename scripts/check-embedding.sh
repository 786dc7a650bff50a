#!/bin/sh
# The commands of docs/embedding.md, "Building without the trainer", as they are printed there, in a copy of the sources and a home of its own, on a
# machine where pkg-config knows no package: check-embedding.sh [configure]. `configure`: the first of them alone, which takes seconds.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "check-embedding: $*" >&2
  [ ! -e "$work/log" ] || tail -n 20 "$work/log" >&2
  exit 1
}

sed -n '/^## Building without the trainer/,/^## [^B]/s/^    //p' docs/embedding.md >"$work/commands"
[ "$(grep -c '^cmake ' "$work/commands")" = 3 ] || fail "docs/embedding.md prints no three commands of cmake"
[ "${1-}" != configure ] || sed -i 1q "$work/commands"

mkdir "$work/hark" "$work/home" "$work/none"
cp -r CMakeLists.txt cmake include src examples scripts "$work/hark/"
cp examples/03_embed_model.c "$work/hark/program.c"
while read -r command; do
  [ -n "$command" ] || continue
  echo "+ $command"
  echo "$command" >>"$work/done"
  # What an earlier line exported holds for the later ones; of the packages of this machine nothing is seen.
  { grep '^export' "$work/done" || true; echo "$command"; } >"$work/script"
  (cd "$work/hark" && HOME="$work/home" PKG_CONFIG_LIBDIR="$work/none" sh -e "$work/script") >"$work/log" 2>&1 || fail "this failed: $command"
  case $command in
    "cmake -B"*) grep -q 'tests: OFF, because cmocka is missing' "$work/log" || fail "the configuration does not say that tests are left out" ;;
  esac
done <"$work/commands"
[ "${1-}" = configure ] && exit 0

# program.c was linked with the static library and needs libc and libm alone.
(cd "$work/hark" && objdump -p a.out | grep -q 'NEEDED.*libhark') && fail "a.out was linked with the shared library"
sh scripts/check-needed.sh "$work/hark/a.out"
library=$(find "$work/home/hark" -name libhark.a)
shared=$(find "$work/home/hark" -type f -name 'libhark.so*')
sh scripts/check-needed.sh "$shared"
cp "$shared" "$work/stripped"
strip "$work/stripped"
echo "libhark.so $(wc -c <"$shared") bytes, stripped $(wc -c <"$work/stripped"); libhark.a $(wc -c <"$library")"
