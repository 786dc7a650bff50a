#!/bin/sh
# Installs the wheel of the Python package, and then the package from its sources, on a minimal Debian that has Python and nothing else:
# check-wheel.sh [BUILD] [PACKAGE...]
#   the wheel without a compiler: NumPy, the command, a run of training; with PACKAGE torch the three lines of README too, with jax a gradient
#   the sources with what README names
# Makes the wheel in BUILD/wheels (build/wheels); with HARK_WHEEL_KEEP=1 the one that is there is checked. PACKAGE, such as torch or jax, comes
# from the registry too. Prints "skipped: why" and ends with 0 where it cannot be done. HARK_BARE_...: as in scripts/bare-machine.sh.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -eq 0 ] || shift

fail() {
  echo "check-wheel: $*" >&2
  exit 1
}

# shellcheck source=scripts/bare-root.sh
. scripts/bare-root.sh
[ -n "${HARK_WHEEL_KEEP-}" ] || sh scripts/make-wheel.sh "$build" || skip "the wheel could not be made"

# The registry, and whom it is trusted by.
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
  [ ! -f "$file" ] || cp "$file" "$root/etc/pip.conf"
done
trust=
[ -z "${PIP_CERT-}" ] || { cp -L "$PIP_CERT" "$root/etc/registry.crt" && trust='PIP_CERT=/etc/registry.crt'; }

cat >"$root/root/three.py" <<'END'
import numpy, hark
q, k, v = (numpy.random.default_rng(i).standard_normal((1, 8, 4096, 64), dtype=numpy.float32) for i in range(3))
out = hark.attention(q, k, v, structure="hierarchical", causal=True)
assert out.shape == q.shape and numpy.isfinite(out).all()
END
cat >"$root/root/jax_gradient.py" <<'END'
import jax, hark.jax
q, k, v = (jax.random.normal(jax.random.key(i), (1, 2, 64, 16)) for i in range(3))
gradient = jax.jit(jax.grad(lambda q: hark.jax.attention(q, k, v, causal=True).sum()))(q)
assert jax.numpy.isfinite(gradient).all() and abs(gradient).sum() > 0, jax.__version__
END
# The lines that README prints for Python.
sed -n '/^    import torch, hark.torch$/,/^$/s/^    //p' README.md >"$root/root/readme.py"
[ "$(wc -l <"$root/root/readme.py")" = 3 ] || fail "README prints no three lines of Python"

try() { # venv
  within "cd /root && $1/bin/python three.py && $1/bin/hark version"
  within "cd /root && rm -rf run && cat /usr/share/common-licenses/* >text.txt && $1/bin/hark train --data text.txt --out run --preset tiny --steps 3 &&
    $1/bin/python -c 'import hark; print(next(iter(hark.load(\"run\").generate(\"The\", max_new_tokens=1))))'"
}

install python3-venv
mkdir "$root/wheels"
cp "$build"/wheels/*.whl "$root/wheels/"
within "! command -v cc && python3 -m venv /root/a && $trust /root/a/bin/pip install -q /wheels/*.whl"
try /root/a
echo "wheel on Debian $suite, $(inside 'python3 --version'): ok"
if [ $# -gt 0 ]; then
  within "$trust /root/a/bin/pip install -q $*"
  case " $* " in *" torch "*) within 'cd /root && a/bin/python readme.py' ;; esac
  case " $* " in *" jax "*) within 'cd /root && a/bin/python jax_gradient.py' ;; esac
  echo "with $*: ok"
fi

install gcc libc6-dev make cmake pkg-config libjansson-dev libyaml-dev
mkdir "$root/source"
git archive HEAD | tar -C "$root/source" -xf -
within "python3 -m venv /root/b && $trust /root/b/bin/pip install -q /source/python"
try /root/b
echo "sources: ok"
