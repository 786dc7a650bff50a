#!/bin/sh
# Regressors by softmax attention and by kernel ridge attention, trained on the same tables for the same number of steps with five seeds,
# and evaluated with different numbers of rows of context. One line of JSON for each run and number: seed, kind, rows, and the line of hark
# eval.
#
#     sh bench/regressor-attention.sh BUILD FOLDER [SEEDS] [STEPS]
#
# smoother    blocks with softmax attention, and predictions by softmax attention to the targets (model.regressor.head smoother)
# posterior   blocks with softmax attention, and predictions by kernel ridge attention
# ridge       both by kernel ridge attention
set -eu
hark=$1/hark folder=$2 seeds=${3:-5} steps=${4:-3000}
mkdir -p "$folder"
: >"$folder/results.jsonl"
[ -d "$folder/tables" ] || "$hark" data make regression-tasks --covariates 1 --noise 0.01 --tokens 576 --training 3000 --validation 100 \
  --test 200 --out "$folder/tables"

train() { # KIND SEED OPTIONS
  run=$folder/$1-$2
  seed=$2
  shift 2
  if [ -d "$run" ]; then
    "$hark" train --resume "$run" # does nothing if it is complete
    return
  fi
  "$hark" train --architecture regressor --format examples --data "$folder/tables" --context 576 --data.context_least 5 \
    --data.context_most 256 --data.queries 32 --width 32 --heads 2 --layers 2 --processes 4 --process-features 8 --batch 8 --lr 2e-3 \
    --warmup 100 --steps "$steps" --seed "$seed" "$@" --out "$run"
}

measure() { # KIND SEED
  for rows in 10 30 100 300 500; do
    line=$("$hark" eval "$folder/$1-$2" --part test --json --data.context_least $rows --data.context_most $rows --data.queries 64)
    printf '{"kind": "%s", "seed": %s, "context": %s, "result": %s}\n' "$1" "$2" "$rows" "$line" >>"$folder/results.jsonl"
  done
}

seed=1
while [ "$seed" -le "$seeds" ]; do
  train smoother "$seed" --model.regressor.head smoother
  train posterior "$seed"
  train ridge "$seed" --normalisation cme --kernel rbf --ridge-learned --sigma-learned --ridge 0.1
  for kind in smoother posterior ridge; do measure "$kind" "$seed"; done
  seed=$((seed + 1))
done
