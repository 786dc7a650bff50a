#!/bin/sh
# Checks that no layer includes a higher one. src/LAYER may include src/LOWER and its own folder; everybody may include <hark/...>.
# Prints the offending includes, one a line, and returns 1 when there is any.
set -eu
cd "$(dirname "$0")/.."

# Lowest first.
LAYERS="core io positional backend ops attention autograd data nn models train lab cli"

find src -name '*.[ch]' -exec grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' {} + | awk -v layers="$LAYERS" '
  BEGIN { count = split(layers, names, " "); for (i = 1; i <= count; i++) rank[names[i]] = i }
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
  END { if (!seen) { print "no include was checked: is this the repository?"; bad = 1 } exit bad }'
