#!/bin/sh
# Runs the fuzz targets of a build with HARK_BUILD_FUZZERS, as many at a time as there are cores: sh scripts/fuzz.sh BUILD SECONDS [TARGET...]
# What is found is kept in BUILD/found: corpus/TARGET grows from run to run, TARGET-crash-* and the like are inputs that failed, TARGET.log
# says everything. Prints one line a target; exit status 1 when any failed.
set -eu
[ $# -ge 2 ] || { echo "usage: sh scripts/fuzz.sh BUILD SECONDS [TARGET...]" >&2; exit 2; }
sources=$(cd "$(dirname "$0")/../tests/fuzz" && pwd)
programs=$1/tests/fuzz
work=$1/found
seconds=$2
shift 2
[ $# -gt 0 ] || set -- safetensors config json tokenizer pipeline tokens examples number positional

mkdir -p "$work"
"$programs/seeds" "$work/seeds"

fuzz() { # target
  : >"$work/$1.failed"
  corpus=$work/corpus/$1
  mkdir -p "$corpus"
  dictionary=$sources/$1.dict
  [ -f "$dictionary" ] || dictionary=$sources/json.dict
  if "$programs/fuzz_$1" -max_total_time="$seconds" -dict="$dictionary" -max_len=4096 -timeout=60 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$work/$1-" "$corpus" "$work/seeds/$1" >"$work/$1.log" 2>&1; then
    result=clean
    rm "$work/$1.failed"
  else
    result=FAILED
  fi
  # The last line of progress has "cov: COVERED_EDGES ft: FEATURES corp: INPUTS/BYTES".
  covered=$(sed -n 's/^#.*cov: \([0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/\1 edges, \2 features, \3 inputs/p' "$work/$1.log" | tail -n 1)
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$1.log")
  echo "$result  $1: ${runs:-?} runs, ${covered:-nothing covered}; $work/$1.log"
  [ "$result" = clean ] || grep -E '^==|SUMMARY|: .*expected|\.c:[0-9]+: ' "$work/$1.log" | head -n 5
}

# All take the same time, so that a group can wait for its last.
cores=$(nproc 2>/dev/null || echo 1)
running=0
for target in "$@"; do
  fuzz "$target" &
  running=$((running + 1))
  [ $((running % cores)) != 0 ] || wait
done
wait
for target in "$@"; do [ ! -e "$work/$target.failed" ] || exit 1; done
