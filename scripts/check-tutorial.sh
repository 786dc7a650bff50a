#!/bin/sh
# Runs every command that docs/tutorial.md prints, in its order, in one shell, and compares what they print with the document.
#   check-tutorial.sh BUILD [DIVISOR]     in BUILD/tutorial-check, whose folder build/tutorial then has the results
# DIVISOR (1: as printed) shortens: the numbers of steps are divided by it, and in place of a time there is a number of steps, so that the check
# does not depend on how busy the machine is. `make` is left out, since BUILD is built.
# In the document:
#   an indented block    commands
#   ```text              what they print, in this order: numbers may differ, a line of ... is any lines, ... in a line any text
#   ``` alone            the text of a model, of which only the first word is compared
#   ```c, ```python      the file that the first line names
# Exit status 77: gnuplot is missing. Without NumPy the Python program is left out, with a message.
set -eu
cd "$(dirname "$0")/.."
source=$PWD
build=$(cd "$1" && pwd)
divisor=${2:-1}
work=$build/tutorial-check
command -v gnuplot >/dev/null || exit 77

rm -rf "$work"
mkdir -p "$work/build" "$work/parts"
for name in docs include python; do ln -s "$source/$name" "$work/$name"; done
for file in "$build"/hark "$build"/libhark.so*; do ln -s "$file" "$work/build/"; done
# Where the tutorial finds its programs first: also the Python that has NumPy.
for python in "$(command -v python3)" /usr/bin/python3 "$build/python-venv/bin/python"; do
  { [ -x "$python" ] && "$python" -c 'import numpy' 2>/dev/null; } || continue
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/build/python3"
  chmod 755 "$work/build/python3"
  break
done

# parts/N.sh: the commands of block N, with files before them; parts/N.text, N.sample: what it prints.
awk -v folder="$work/parts" -v divisor="$divisor" '
  # --max-time T becomes --steps: 20 for each second of all times so far, divided (a resumed run counts from its beginning).
  function shorter(line, option, before, number) {
    before = ""
    while (match(line, / --(steps|max-time) [0-9]+[ms]?/)) {
      option = substr(line, RSTART, RLENGTH)
      number = option
      sub(/.* /, "", number)
      if (option ~ /max-time/ && divisor > 1) {
        seconds += (number ~ /m$/ ? 60 : 1) * (number + 0)
        option = " --steps "
        number = seconds * 20
      }
      if (divisor > 1) number = int((number + divisor - 1) / divisor)
      sub(/[0-9]+[ms]?$/, "", option)
      before = before substr(line, 1, RSTART - 1) option number
      line = substr(line, RSTART + RLENGTH)
    }
    return before line
  }
  fence == "" && /^```/ {
    fence = $0 == "```" ? "sample" : substr($0, 4)
    first = 1
    inside = 0
    next
  }
  fence != "" && /^```$/ {
    if (fence == "c" || fence == "python") print "END_OF_FILE" >file
    fence = ""
    next
  }
  fence == "text" || fence == "sample" { print > (folder "/" block "." fence); next }
  fence == "c" || fence == "python" {
    if (first) {
      name = $2
      sub(/:$/, "", name)
      file = folder "/" (block + 1) ".sh"
      print "cat >" name " <<\"END_OF_FILE\"" >file
    }
    first = 0
    print >file
    next
  }
  fence != "" { print "docs/tutorial.md: a block of " fence >"/dev/stderr"; exit 1 }
  /^    / {
    if (!inside) block++
    inside = 1
    print shorter(substr($0, 5)) >(folder "/" block ".sh")
    next
  }
  { inside = 0 }
  END { print block >(folder "/count") }' docs/tutorial.md

# printed EXPECTED ACTUAL: every line of EXPECTED is in ACTUAL, in this order. A run that was shortened may have had no time for an evaluation:
# there lines end at their first semicolon.
printed() {
  awk -v shortened="$((divisor > 1))" '
    function masked(line) {
      if (shortened) sub(/;.*/, "", line)
      gsub(/[0-9]+([.,][0-9]+)*(e[-+]?[0-9]+)?/, "#", line)
      gsub(/[ \t]+/, " ", line)
      sub(/^ /, "", line)
      sub(/ $/, "", line)
      return line
    }
    function fits(line, pattern, parts, count, i, at) {
      count = split(pattern, parts, / ?\.\.\. ?/)
      if (count == 1) return line == pattern
      if (index(line, parts[1]) != 1) return 0
      for (i = 1; i <= count; i++) {
        at = index(line, parts[i])
        if (at == 0) return 0
        line = substr(line, at + length(parts[i]))
      }
      return 1
    }
    FNR == NR { if ($0 != "...") expected[++count] = $0; next }
    next_line <= count && fits(masked($0), masked(expected[next_line])) { next_line++ }
    BEGIN { next_line = 1 }
    END {
      if (count == 0) exit 1
      if (next_line > count) exit 0
      print "not printed: " expected[next_line] >"/dev/stderr"
      exit 1
    }' "$1" "$2"
}

make() { :; }
failed() {
  echo "check-tutorial: block $block of docs/tutorial.md: $1" >&2
  cat "$work/parts/$block.sh" "$work/parts/$block.log" >&2
  exit 1
}
number() { sed -n "s|.*\"$2\": *\\([0-9.eE+-]*\\).*|\\1|p" "$1/metrics.jsonl" | tail -n 1; } # RUN, metric: the last one
evaluated() { # metric, RUN, options
  metric=$1
  shift
  hark eval "$@" --json 2>/dev/null | sed -n "s/.*\"$metric\": *\\([0-9.]*\\).*/\\1/p"
}
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }

export HARK_LIBRARY="$build/libhark.so"
count=$(cat "$work/parts/count")
block=0
cd "$work"
while [ "$block" -lt "$count" ]; do
  block=$((block + 1))
  part=$work/parts/$block
  if grep -q python3 "$part.sh" && ! [ -x "$work/build/python3" ]; then
    echo "no Python has NumPy: block $block is left out"
    continue
  fi
  # In this shell: what a block changes (folder, PATH) stays. set -e ends it at the first command that fails.
  trap 'failed "a command failed"' EXIT
  # shellcheck disable=SC1090 # written above
  . "$part.sh" >"$part.log" 2>&1 </dev/null
  trap - EXIT
  [ ! -e "$part.text" ] || printed "$part.text" "$part.log" || failed "the output differs"
  [ ! -e "$part.sample" ] || grep -q "^$(cut -d' ' -f1 "$part.sample" | head -n 1) " "$part.log" || failed "no text of a model"
done

# What the text states of the results, loosely.
block=the\ text
: >"$work/parts/$block.log"
: >"$work/parts/$block.sh"
for run in dense hierarchical decay periodic; do
  below "$(number runs/$run val/loss)" 4 || failed "the loss of runs/$run"
done
below "$(evaluated loss runs/first)" 4.66 || failed "the loss of runs/first, which begins with 4.66"
accuracy=$(evaluated accuracy runs/listops --part test)
below 0.2 "$accuracy" || failed "accuracy $accuracy, with a majority baseline of 0.136"
for picture in first structures kernels kernel; do
  grep -q '</svg>' "$picture.svg" || failed "$picture.svg is no picture"
done
hark generate first.safetensors --prompt "The " --max-new-tokens 60 --temperature 0.7 >command.out
./continue >c.out
cmp command.out c.out || failed "the C program writes another text than the command"
if [ -x "$work/build/python3" ]; then
  PYTHONPATH=../../python python3 continue.py >python.out
  cmp command.out python.out || failed "the Python program writes another text than the command"
fi
echo "docs/tutorial.md: $count blocks of commands"
