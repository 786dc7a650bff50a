#!/bin/sh
# Opens a page of hark report in Chromium without a window: no line in the console, the page drawn to its end, a picture in light and in dark. Then
# scripts/check-report.js uses it: sorts, enlarges, smooths, hides, moves cursors.
# Without a page it trains small runs of several kinds with build/hark, and reports them. "skipped: ..." where there is no Chromium, and none can
# be installed.
#   sh scripts/check-report.sh [PAGE.html [FOLDER]]      pictures in FOLDER, light.png and dark.png; default build/report
set -eu
page=${1:-}
folder=${2:-}
[ -z "$page" ] || { [ -f "$page" ] || { echo "$page: no such page" && exit 1; }; page=$(realpath "$page"); }
[ -z "$folder" ] || { mkdir -p "$folder" && folder=$(realpath "$folder"); }
cd "$(dirname "$0")/.."
hark=${HARK:-$PWD/build/hark}
folder=${folder:-$PWD/build/report}
mkdir -p "$folder"

find_browser() {
  for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

[ -n "$page" ] || [ -x "$hark" ] || { echo "$hark is not there: make" && exit 1; }

if ! browser=$(find_browser); then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    { apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >"$folder/install.log" 2>&1 || true
  fi
  browser=$(find_browser) || { echo "skipped: no chromium here" && exit 0; }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# open_page PAGE FLAGS...: the page's document on stdout, the console in $work/log
open_page() {
  address=$1
  shift
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" --no-first-run --hide-scrollbars \
    --host-resolver-rules='MAP * ~NOTFOUND' --enable-logging=stderr --v=0 --virtual-time-budget=20000 "$@" "file://$address" 2>"$work/log"
}

# The check notices what it is for.
printf '<!DOCTYPE html><title>x</title><script>undefined.x</script>' >"$work/wrong.html"
open_page "$work/wrong.html" --dump-dom >/dev/null || {
  tail -n 5 "$work/log"
  echo "skipped: chromium does not start here"
  exit 0
}
grep -q 'CONSOLE' "$work/log" || { echo "this browser does not report errors of a page" && exit 1; }

make_runs() {
  cd "$work"
  i=0
  while [ $i -lt 400 ]; do
    echo "the quick brown fox $i jumps over the lazy dog, and the dog $((i * 7 % 13)) sleeps"
    i=$((i + 1))
  done >text.txt
  small='--data text.txt --layers 2 --heads 2 --width 16 --context 32 --batch 4 --threads 1 --log-every 2 --evaluate-every 10 --steps 60 --lr 3e-3'
  # shellcheck disable=SC2086 # several words
  {
    "$hark" train $small --out runs/dense
    "$hark" train $small --out runs/kernel --positions none --positional 'decay+periodic'
    "$hark" train $small --out runs/hierarchical --structure hierarchical --hierarchy-block 4 --rotary-learned head
    "$hark" train $small --out runs/ridge --normalisation cme --kernel rbf --sigma 2
  }
  "$hark" data make recall --length 24 --pairs 4 --training 64 --validation 32 --test 0 --out recall
  "$hark" train --data recall --format examples --architecture ahca --width 16 --heads 2 --layers 2 --context 32 --batch 8 --chunk-size 4 --selected 2 \
    --secondary-slots 4 --steps 20 --evaluate-every 10 --log-every 2 --threads 1 --out runs/chunks
  i=0
  while [ $i -lt 120 ]; do
    printf '%s\t%s\n' $((i % 3)) "$(echo 'good bad dull' | cut -d' ' -f$((i % 3 + 1))) film number $((i * 7 % 20))"
    i=$((i + 1))
  done >films.tsv
  "$hark" train --data films.tsv --format text --classes 3 --architecture encoder --width 16 --heads 2 --layers 1 --context 32 --batch 8 --steps 40 --warmup 5 \
    --lr 3e-3 --evaluate-every 10 --log-every 2 --threads 1 --out runs/encoder
  "$hark" eval runs/encoder --json >eval.json
  "$hark" eval runs/dense --json >>eval.json
  "$hark" eval runs/chunks --decisions 3 --json >>eval.json
  printf '{"step": 1, "tok' >runs/ridge/checkpoints/"$(cat runs/ridge/last)"/state.json
  "$hark" report runs -o report.html --text 'the quick brown fox 3 jumps over the lazy dog' --evaluation eval.json
  cd - >/dev/null
}

if [ -z "$page" ]; then
  set +e # in a condition the shell would ignore failures inside of it
  (set -e; make_runs) >"$folder/runs.log" 2>&1
  code=$?
  set -e
  [ $code = 0 ] || { tail -n 20 "$folder/runs.log" && exit 1; }
  cp "$work/report.html" "$folder/report.html"
  page=$folder/report.html
fi

check() { # NAME FLAGS...
  name=$1
  shift
  open_page "$page" --window-size=1280,6400 --screenshot="$folder/$name.png" "$@" >/dev/null
  cp "$work/log" "$folder/$name.log"
  if grep 'CONSOLE' "$work/log"; then
    echo "the console of $page is not empty ($name)"
    exit 1
  fi
  [ -s "$folder/$name.png" ] || { echo "no picture of $page ($name)" && exit 1; }
}
check light
check dark --blink-settings=preferredColorScheme=0
# The page again, used by scripts/check-report.js.
sed '/<\/body>/d; /<\/html>/d' "$page" >"$work/used.html"
{ echo '<script>' && cat scripts/check-report.js && echo '</script></body></html>'; } >>"$work/used.html"
open_page "$work/used.html" --window-size=1280,1000 --dump-dom >"$work/dom.html"
if grep 'CONSOLE' "$work/log"; then
  echo "the console of $page is not empty when it is used"
  exit 1
fi
grep -q 'data-ready="true"' "$work/dom.html" || { echo "$page was not drawn to its end" && exit 1; }
grep -q 'data-used="true"' "$work/dom.html" || { echo "$page was not used to the end" && exit 1; }
echo "$page: nothing in the console; pictures $folder/light.png and dark.png"
