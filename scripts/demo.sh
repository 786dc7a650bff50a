#!/bin/sh
# Trains a small GPT with hierarchical attention over 1,024 characters on this repository's own sources and documents for two minutes,
# shows how it went, what it writes, and what a step costs with dense attention instead.
#   demo.sh BUILD        HARK_DEMO_TIME=20s shortens it
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
hark=$build/hark
demo=$build/demo
run=$demo/run
time=${HARK_DEMO_TIME:-130s}

rm -rf "$demo"
mkdir -p "$demo"
find . -path "./$build" -prune -o -path './build*' -prune -o -path ./.git -prune -o \
  -type f \( -name '*.c' -o -name '*.h' -o -name '*.md' -o -name '*.sh' -o -name '*.cmake' -o -name '*.py' \) -print | LC_ALL=C sort |
  while IFS= read -r file; do cat "$file"; done >"$demo/text.txt"

echo "The text: this repository's sources and documents, $(wc -c <"$demo/text.txt") bytes."

echo

# The model is small enough to have learned something after minutes on two cores. How many steps fit into the time, hark finds out: that decides the
# schedule of the learning rate.
"$hark" train --data "$demo/text.txt" --out "$run" --max-time "$time" --structure hierarchical --layers 4 --heads 4 --width 160 \
  --context 1024 --batch 2 --lr 3e-3 --split tail --validation-fraction 0.005 --evaluate-every 250 --checkpoint-every 0 --log-every 5
echo

"$hark" plot "$run" || echo "(no picture: gnuplot is missing)"
"$hark" plot --terminal "$run" || true
echo
echo "What it writes when it is given '/* ':"
echo "-----------------------------------------------------------------------------"
"$hark" generate "$run" --prompt '/* ' --max-new-tokens 500 --temperature 0.8 --seed 1
echo
echo "-----------------------------------------------------------------------------"

number() { sed -n "s|.*\"$1\": *\\([0-9.eE+-]*\\).*|\\1|p" "$run/metrics.jsonl" | tail -n 1; }
[ -n "$(number val/loss)" ] || echo "There was no time for an evaluation: give it more."
[ -z "$(number val/loss)" ] || awk -v loss="$(number val/loss)" -v single="$(number val/entropy)" -v pairs="$(number val/pair_entropy)" 'BEGIN {
  printf "Validation loss: %.3f nats per character (%.2f bits), on text that the model has not seen.\n", loss, loss / log(2)
  printf "Baselines: unigram %.3f (frequencies of characters), bigram %.3f (of pairs).\n", single, pairs
  if (loss < pairs) printf "The model is %.0f %% below the bigram baseline, so it uses more than the previous character.\n", 100 * (1 - loss / pairs)
  else if (loss < single) printf "The model is between the two baselines: give it more time.\n"
  else printf "The model is above both baselines: give it more time.\n"
}'
echo
echo "What a training step of this model costs as the context grows, one sequence, hierarchical and dense:"
for context in 1024 4096 8192; do
  for structure in hierarchical dense; do
    milliseconds=$("$hark" bench --structure $structure --layers 4 --heads 4 --width 160 --context $context --batch 1 --steps 1 step |
      awk '$1 == "step" { print $2 }')
    printf '  %6d characters, %-13s %8s ms\n' $context $structure "$milliseconds"
  done
done
cat <<END

The run is in $run: config.yaml, metrics.jsonl, checkpoints and the loss picture.
Three things to try next:
  $hark generate $run --prompt 'hark_status ' --temperature 0.5 --max-new-tokens 300
  $hark train --data YOUR-TEXT.txt --out runs/mine --max-time 10m
  $hark train --data $demo/text.txt --out runs/dense --structure dense --layers 4 --heads 4 --width 160 --context 1024 --batch 2 --lr 3e-3 \\
    --max-time 3m && $hark plot $run runs/dense
END
