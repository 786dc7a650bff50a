#!/bin/sh
# Trains the regressors of docs/results/regressor.md: sh bench/regressor-models.sh BUILD FOLDER. Runs that are complete are left as they
# are, others continue: one to two hours on two cores. bench/peers/tables.py measures the models.
#
# truth     tables of one input from a Gaussian process whose length scale differs from table to table: truth-large on large tables, then
#           truth-small on small ones too, then truth on more of these
# numbers   tables of different numbers and kinds of inputs
# classes   the same with up to 10 classes
# shellcheck disable=SC2086 # words of options
set -eu
hark=$(cd "$1" && pwd)/hark folder=$2
mkdir -p "$folder"
cd "$folder"

make() { # NAME OPTIONS
  name=$1
  shift
  [ -d "$name" ] || "$hark" data make regression-tasks "$@" --out "$name"
}

train() { # NAME OPTIONS
  name=$1
  shift
  if [ -d "$name" ]; then
    "$hark" train --resume "$name" # does nothing if it is complete
  else
    "$hark" train --architecture regressor --width 64 --heads 4 --layers 2 "$@" --out "$name"
  fi
}

small='--tokens 96 --covariates 1 --noise 0.01'
make large --tokens 576 --covariates 1 --noise 0.01 --training 6000
make small $small --training 60000 --seed 7
make more $small --training 60000 --seed 8
make check $small --training 100 --validation 3000 --seed 21
shared='--processes 8 --context 576 --data.context_most 512 --data.queries 64 --weight-decay 0.01'
train truth-large --format examples --data large $shared --no-standardise --batch 8 --steps 3000 --lr 1e-3
# the scale of targets is that of the tables (--no-standardise), which a run that starts from another one takes over
shared="$shared --format tables --validation check/validation.tables --data large/training.tables --data small/training.tables"
shared="$shared --evaluate-every 1000"
train truth-small $shared --init-from truth-large --batch 16 --steps 10000 --lr 8e-4 --warmup 100
train truth $shared --data more/training.tables --init-from truth-small --batch 32 --steps 10000 --lr 8e-4 --warmup 100 \
  --train.minimum-rate 0

make varied --tokens 576 --covariates 20 --function mixed --inputs varied --noise 1 --scale-least 0.3 --scale-most 3 \
  --training 24000 --seed 11
train numbers --processes 4 --format examples --data varied --context 576 --data.context_least 10 --data.context_most 512 \
  --data.queries 64 --positional-rate 1 --process-features 16 --batch 8 --steps 20000 --lr 1e-3 --warmup 200

make kinds --tokens 544 --covariates 64 --function mixed --inputs varied --label-classes 10 --noise 0.3 --scale-least 0.3 --scale-most 3 \
  --training 16000 --seed 13
train classes --processes 4 --format examples --data kinds --context 544 --data.context_least 10 --data.context_most 512 \
  --data.queries 32 --positional-rate 1 \
  --model.regressor.loss classes --classes 10 --process-features 64 --batch 8 --steps 12000 --lr 1e-3 --warmup 200
