#!/bin/sh
# Every installed header compiles by itself, as C and as C++.
set -eu
cd "$(dirname "$0")/.."
for header in include/hark/*.h; do
  name=hark/$(basename "$header")
  echo "#include <$name>" | gcc -std=c17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -x c -
  if command -v g++ >/dev/null 2>&1; then
    echo "#include <$name>" | g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -x c++ -
  fi
done
