#!/bin/sh
# Runs the fuzz targets of a build with HARK_BUILD_FUZZERS, one after the other: sh scripts/fuzz.sh BUILD SECONDS [TARGET...]
# What is found is kept in BUILD/found: corpus/TARGET grows from run to run, TARGET-crash-* and the like are inputs that failed, TARGET.log
# tells all. Prints one line a target; exit status 1 when any failed.
set -eu
[ $# -ge 2 ] || { echo "usage: sh scripts/fuzz.sh BUILD SECONDS [TARGET...]" >&2; exit 2; }
sources=$(cd "$(dirname "$0")/../tests/fuzz" && pwd)
programs=$1/tests/fuzz
work=$1/found
seconds=$2
shift 2
[ $# -gt 0 ] || set -- safetensors config json tokenizer tokens examples number positional

mkdir -p "$work"
"$programs/seeds" "$work/seeds"
failed=0
for target in "$@"; do
  corpus=$work/corpus/$target
  mkdir -p "$corpus"
  dictionary=$sources/$target.dict
  [ -f "$dictionary" ] || dictionary=$sources/json.dict
  if "$programs/fuzz_$target" -max_total_time="$seconds" -dict="$dictionary" -max_len=4096 -timeout=60 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$work/$target-" "$corpus" "$work/seeds/$target" >"$work/$target.log" 2>&1; then
    result=clean
  else
    result=FAILED
    failed=1
  fi
  # The last line of progress has "cov: COVERED_EDGES ft: FEATURES corp: INPUTS/BYTES".
  covered=$(sed -n 's/^#.*cov: \([0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/\1 edges, \2 features, \3 inputs/p' "$work/$target.log" | tail -n 1)
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")
  echo "$result  $target: ${runs:-?} runs, ${covered:-nothing covered}; $work/$target.log"
  [ "$result" = clean ] || grep -E '^==|SUMMARY|: .*expected|\.c:[0-9]+: ' "$work/$target.log" | head -n 5
done
exit "$failed"
