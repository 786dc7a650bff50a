#!/bin/sh
# Every installed header compiles by itself, as C11, C17, C++11 and C++17, with every compiler there is: check-headers.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
folder=${1:-include}
count=0

compile() { # compiler, language, standard
  command -v "$1" >/dev/null 2>&1 || return 0
  for header in "$folder"/hark/*.h; do
    printf '#include <hark/%s>\n#include <hark/%s>\n' "$(basename "$header")" "$(basename "$header")" |
      "$1" "-std=$3" -Wall -Wextra -Wpedantic -Werror -fsyntax-only "-I$folder" -x "$2" - || {
      echo "$header does not compile by itself: $1 -std=$3" >&2
      exit 1
    }
    count=$((count + 1))
  done
}

for compiler in gcc clang; do compile $compiler c c11 && compile $compiler c c17; done
for compiler in g++ clang++; do compile $compiler c++ c++11 && compile $compiler c++ c++17; done
if [ "$count" = 0 ]; then
  echo "nothing was compiled: no compiler, or no header in $folder/hark" >&2
  exit 1
fi
