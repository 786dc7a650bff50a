#!/bin/sh
# Trains a small GPT on this repository's own sources and documents for at most three minutes, shows how it went and what it writes.
#   demo.sh BUILD        HARK_DEMO_TIME=20s shortens it
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
hark=$build/hark
demo=$build/demo
run=$demo/run
time=${HARK_DEMO_TIME:-170s}

case "$time" in
  *m) seconds=$((${time%m} * 60)) ;;
  *s) seconds=${time%s} ;;
  *) seconds=$time ;;
esac

# The model; small enough to have learned something after minutes on two cores.
context=128
batch=16
model="--layers 4 --heads 4 --width 160 --context $context --batch $batch"

rm -rf "$demo"
mkdir -p "$demo"
find . -path "./$build" -prune -o -path './build*' -prune -o -path ./.git -prune -o \
  -type f \( -name '*.c' -o -name '*.h' -o -name '*.md' -o -name '*.sh' -o -name '*.cmake' -o -name '*.py' \) -print | LC_ALL=C sort |
  while IFS= read -r file; do cat "$file"; done >"$demo/text.txt"

# Nats a character that the best guess needs without looking, and with a look at the character before. Bytes from 128 to 191 continue one.
entropies=$(od -An -v -tu1 -w1 "$demo/text.txt" | LC_ALL=C awk '
  function count() { if (seen) { one[code]++; n++; if (n > 1) pair[before, code]++; before = code } }
  { byte = $1 + 0; if (byte >= 128 && byte < 192) code = code * 64 + byte - 128; else { count(); code = byte; seen = 1 } }
  END {
    count()
    for (c in one) { h1 -= one[c] * log(one[c] / n); distinct++ }
    for (p in pair) h2 -= pair[p] * log(pair[p] / (n - 1))
    printf "%d %d %.3f %.3f %.3f\n", n, distinct, log(distinct), h1 / n, h2 / (n - 1) - h1 / n
  }')
# shellcheck disable=SC2086 # five words
set -- $entropies
characters=$1 uniform=$3 single=$4 pairs=$5
echo "The text: this repository's sources and documents, $characters characters, $2 distinct."
echo "Nats a character: $uniform knowing nothing, $single knowing how frequent each character is, $pairs knowing the one before as well."

# How many steps fit into the time decides the schedule of the learning rate.
# shellcheck disable=SC2086 # words
speed=$("$hark" bench step $model --vocabulary "$2" --steps 5 --json | sed -n 's/.*"tokens_per_second":\([0-9]*\).*/\1/p')
steps=$((speed * seconds * 9 / 10 / (context * batch)))
[ "$steps" -ge 20 ] || steps=20
echo "This machine does about $speed tokens a second, so $steps steps fit into $seconds seconds."
echo

# shellcheck disable=SC2086 # words
"$hark" train --data "$demo/text.txt" --out "$run" $model --steps "$steps" --max-time "${seconds}s" --lr 3e-3 --warmup $((steps / 20 + 1)) \
  --split tail --validation-fraction 0.05 --evaluate-every $((steps / 5 + 1)) --checkpoint-every 0 --log-every $((steps / 200 + 1))
echo

"$hark" plot "$run" || echo "(no picture: gnuplot is missing)"
"$hark" plot --terminal "$run" || true
echo
echo "What it writes when it is given '/* ':"
echo "-----------------------------------------------------------------------------"
"$hark" generate "$run" --prompt '/* ' --max-new-tokens 500 --temperature 0.8 --seed 1
echo
echo "-----------------------------------------------------------------------------"

loss=$(sed -n 's/.*"val\/loss": *\([0-9.eE+-]*\).*/\1/p' "$run/metrics.jsonl" | tail -n 1)
awk -v loss="$loss" -v uniform="$uniform" -v single="$single" -v pairs="$pairs" 'BEGIN {
  printf "Validation loss: %.3f nats a character (%.2f bits), on text that it never saw.\n", loss, loss / log(2)
  if (loss < pairs) printf "That beats the table of character pairs (%.3f) by %.0f %%: it looks further back than one character.\n", pairs, 100 * (1 - loss / pairs)
  else if (loss < single) printf "That lies between single characters (%.3f) and pairs of characters (%.3f): give it more time.\n", single, pairs
  else printf "Single characters alone would reach %.3f: give it more time.\n", single
}'
cat <<END

The run is in $run: config.yaml, metrics.jsonl, checkpoints and the loss picture.
Three things to try next:
  $hark generate $run --prompt 'hark_status ' --temperature 0.5 --max-new-tokens 300
  $hark train --data YOUR-TEXT.txt --out runs/mine --max-time 10m
  $hark train --data $demo/text.txt --out runs/wider --width 256 --max-time 10m && $hark plot $run runs/wider
END
