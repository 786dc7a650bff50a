#!/bin/sh
# What predictions of a regressor cost (docs/notes/kernel-ridge.md): predict.sh BUILD [ROWS...], after make build. Milliseconds, least and
# median, for 1 and 200 queries and each number of context rows (100, 300, 1000, 3000), with 4 and with 8 processes; two layers of width 64,
# one input. Models of one step: the weights change the cost only by the ranks of the kernels. THREADS: number of threads (all cores).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 100 300 1000 3000

if [ ! -e "$build/libhark.so" ]; then
  echo "predict.sh: no $build/libhark.so: first run make build" >&2
  exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cc -O2 -std=c11 "-I$here/../include" "$here/predict.c" "$build/libhark.so" "-Wl,-rpath,$(cd "$build" && pwd)" -lm -o "$scratch/predict"
"$build/hark" data make regression-tasks --covariates 1 --noise 0.01 --training 40 --tokens 128 --out "$scratch/tasks" > "$scratch/log"
for processes in 4 8; do
  "$build/hark" train --architecture regressor --format examples --data "$scratch/tasks" --context 128 --width 64 --layers 2 --heads 4 \
    --batch 4 --steps 1 --model.regressor.processes $processes --out "$scratch/run$processes" > "$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    exit 1
  }
  echo "$processes processes"
  echo " context  queries      least       median"
  for rows in "$@"; do "$scratch/predict" "$scratch/run$processes" "${THREADS:-0}" "$rows" 1 200; done
done
