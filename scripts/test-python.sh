#!/bin/sh
# Tests of the Python package against a build: test-python.sh BUILD [arguments of pytest]. Makes BUILD/python-venv with NumPy, pytest, mypy, JAX,
# PyTorch and TensorBoard, where the registry of Python packages has them; it is used again afterwards. HARK_PYTHON: the interpreter, default python3.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-build}" && pwd)
[ $# -eq 0 ] || shift
venv=${HARK_PYTHON_VENV:-$build/python-venv}

if ! "$venv/bin/python" -c 'import numpy, pytest' 2>/dev/null; then
  if ! "${HARK_PYTHON:-python3}" -m venv "$venv"; then
    echo "skipped: Python with venv is missing (Debian: apt-get install python3-venv)"
    exit 0
  fi
  if ! "$venv/bin/pip" install -q numpy pytest ml_dtypes; then
    echo "skipped: the registry of Python packages cannot be reached"
    exit 0
  fi
fi
for framework in jax torch mypy tensorboard; do
  "$venv/bin/python" -c "import $framework" 2>/dev/null || "$venv/bin/pip" install -q "$framework" ||
    echo "without $framework, whose tests are skipped"
done

xla=$("$venv/bin/python" -c "import jaxlib, os; print(os.path.join(os.path.dirname(jaxlib.__file__), 'include'))" 2>/dev/null || true)
cmake -S "$here/python/native" -B "$build/python-native" -DCMAKE_BUILD_TYPE=Release -DHARK_BUILD="$build" -DXLA_INCLUDE="$xla" >/dev/null
cmake --build "$build/python-native" >/dev/null

cd "$here/python"
export HARK_LIBRARY="$build/libhark.so" HARK_PYTHON_LIBRARY="$build/python-native/libhark_python.so" HARK_COMMAND="$build/hark"
export PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1
# JAX in processes apart: its types are a global setting, and it warns of forks.
status=0
for part in "--ignore=tests/test_jax.py --ignore=tests/test_jax_operators.py --ignore=tests/test_examples.py" "tests/test_jax.py tests/test_jax_operators.py" \
  tests/test_examples.py; do
  # shellcheck disable=SC2086 # several words
  "$venv/bin/python" -m pytest -q -p no:cacheprovider $part "$@" || [ $? -eq 5 ] || status=1 # 5: none was selected
done
exit $status
