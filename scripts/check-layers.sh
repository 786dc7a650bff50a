#!/bin/sh
# Checks that no layer uses a higher one. src/LAYER may include src/LOWER and its own folder; everybody may include <hark/...>. With the folder of a
# build it is checked too that no object calls, or takes data, of a higher layer: BUILD/objects.txt lists the objects (cmake/Objects.cmake).
# Prints what is at fault, one a line, and returns 1 when there is any.
#   sh scripts/check-layers.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."

# Lowest first. What a layer is, and why it stands where it does: docs/architecture.md.
LAYERS="core backend io group options positional attention ops autograd tokenizers nn models json config data train lab cli"
export LAYERS

bad=0
find src -name '*.[ch]' -exec grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' {} + | awk '
  BEGIN { count = split(ENVIRON["LAYERS"], names, " "); for (i = 1; i <= count; i++) rank[names[i]] = i }
  {
    split($0, part, ":"); file = part[1]; line = part[2]
    split(file, folder, "/"); own = folder[2]
    if (!(own in rank)) { print file ": folder src/" own " is not in the table of layers"; bad = 1; next }
    match($0, /"[^"]*"/); target = substr($0, RSTART + 1, RLENGTH - 2)
    if (split(target, step, "/") < 2) next           # beside the file itself
    seen++
    if (step[1] == "..") { print file ":" line ": includes \"" target "\": write the path from src/"; bad = 1; next }
    if (!(step[1] in rank)) next                      # a folder below the own one
    if (rank[step[1]] > rank[own]) {
      print file ":" line ": layer " own " includes \"" target "\" of the higher layer " step[1]; bad = 1
    }
  }
  END { if (!seen) { print "no include was checked: is this the repository?"; bad = 1 } exit bad }' || bad=1

[ $# -eq 0 ] && exit $bad

[ -s "$1/objects.txt" ] || { echo "$1/objects.txt is not there: is $1 a build of hark?"; exit 1; }
# Lines "object symbol type": U is needed and found elsewhere, capitals are there for others.
xargs -d '\n' nm -A -P < "$1/objects.txt" | awk '
  BEGIN { count = split(ENVIRON["LAYERS"], names, " "); for (i = 1; i <= count; i++) rank[names[i]] = i }
  {
    file = $1; sub(/:$/, "", file); sub(/^.*\/src\//, "src/", file); sub(/\.o$/, "", file)
    symbol = $2; type = $3
    if (file !~ /^src\//) next
    if (type == "U") { needs++; need_file[needs] = file; need_symbol[needs] = symbol }
    else if (type ~ /^[A-Z]$/) where[symbol] = file
  }
  END {
    for (i = 1; i <= needs; i++) {
      if (!(need_symbol[i] in where)) continue        # of another library
      split(need_file[i], user, "/"); split(where[need_symbol[i]], owner, "/")
      seen++
      if (rank[owner[2]] > rank[user[2]]) {
        print need_file[i] ": layer " user[2] " uses " need_symbol[i] " of " where[need_symbol[i]] ", the higher layer " owner[2]; bad = 1
      }
    }
    if (!seen) { print "no symbol was checked: are the objects built?"; bad = 1 }
    exit bad
  }' | sort -u > "$1/layers.txt" || true
cat "$1/layers.txt"
[ -s "$1/layers.txt" ] && bad=1
exit $bad
