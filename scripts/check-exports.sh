#!/bin/sh
# Compares what the shared library exports with the list that programs may rely on: check-exports.sh LIBHARK.SO [--update]
#   src/exports.txt: one symbol a line, "function NAME" or "data NAME", sorted. Every name must stand in an installed header.
set -eu
case $1 in
  /*) library=$1 ;;
  *) library=$PWD/$1 ;;
esac
mode=${2-}
cd "$(dirname "$0")/.."
list=src/exports.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only "$library" | awk '$2 == "T" || $2 == "t" { print "function " $3; next } { print "data " $NF }' | LC_ALL=C sort >"$work/now"
if [ ! -s "$work/now" ]; then
  echo "$library exports nothing: is it the shared library?"
  exit 1
fi
if [ "$mode" = --update ]; then
  cp "$work/now" "$list"
  echo "$list: $(wc -l <"$list") symbols"
  exit 0
fi

bad=0
if ! diff "$list" "$work/now" >"$work/difference"; then
  echo "The shared library does not export what $list says (< promised, > exported):"
  grep '^[<>]' "$work/difference"
  echo "A symbol that is new: write the list anew with"
  echo "    sh scripts/check-exports.sh $library --update"
  echo "and commit it. One that is gone or has become something else breaks programs that are already built: docs/abi.md says when that may be."
  bad=1
fi

# Records of operators are declared by a macro from their row in operators.h.
sed 's/.* //' "$work/now" | while IFS= read -r name; do
  row=$(printf '%s\n' "$name" | sed -n 's/^hark_op_//p')
  grep -qwE "$name${row:+|X\\($row\\)}" include/hark/*.h || echo "$name"
done >"$work/undeclared"
if [ -s "$work/undeclared" ]; then
  echo "exported, but in no header of include/hark:"
  cat "$work/undeclared"
  bad=1
fi
exit $bad
