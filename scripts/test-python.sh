#!/bin/sh
# Tests of the Python package against a build: test-python.sh BUILD [arguments of pytest]. Makes BUILD/python-venv with NumPy, pytest and, where
# the registry has it, PyTorch; it is used again afterwards.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-build}" && pwd)
[ $# -eq 0 ] || shift
venv=$build/python-venv
python=${HARK_PYTHON:-python3}

if ! "$venv/bin/python" -c 'import numpy, pytest' 2>/dev/null; then
  "$python" -m venv "$venv"
  if ! "$venv/bin/pip" install -q numpy pytest ml_dtypes; then
    echo "skipped: the registry of Python packages cannot be reached"
    exit 0
  fi
fi
"$venv/bin/python" -c 'import torch' 2>/dev/null || "$venv/bin/pip" install -q torch || echo "without PyTorch, whose tests are skipped"

cd "$here/python"
HARK_LIBRARY=$build/libhark.so HARK_COMMAND=$build/hark PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 \
  "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
