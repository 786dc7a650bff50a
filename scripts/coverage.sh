#!/bin/sh
# Which lines of the library the tests reach: coverage.sh BUILD [ctest's arguments]. Builds with gcc's counters into BUILD, runs the suite (or the tests that
# the arguments choose), and prints lines and their covered fraction for every folder of src, and the files with the least. gcov's files are in BUILD/gcov.
set -eu
[ $# -ge 1 ] || { echo "usage: sh scripts/coverage.sh BUILD [arguments of ctest]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
shift
jobs=$(nproc 2>/dev/null || echo 2)

cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=gcc -DCMAKE_C_FLAGS='--coverage -O1' -DHARK_BUILD_TESTS=ON >/dev/null
cmake --build "$build" -j"$jobs" >/dev/null
find "$build" -name '*.gcda' -delete
ctest --test-dir "$build" -j"$jobs" "$@" | tail -n 3 || true

rm -rf "$build/gcov"
mkdir "$build/gcov"
cd "$build/gcov"
find "$build/CMakeFiles" -name '*.gcda' -path '*/src/*' -exec gcov -p {} + >gcov.log 2>&1 || true
# gcov's own summary of a file: File 'NAME', then Lines executed:88.46% of 26. A source that was compiled several times counts once, at its best.
awk -v root="$root/src/" '
  /^File / { name = substr($0, 7, length($0) - 7); here = index(name, root) == 1; sub(root, "", name) }
  /^Lines executed:/ && here {
    split(substr($0, 16), part, "% of ")
    if (!(name in lines) || part[1] > covered[name]) { covered[name] = part[1]; lines[name] = part[2] }
    here = 0
  }
  END { for (name in lines) printf "%s %d %.2f\n", name, lines[name], covered[name] }' gcov.log | sort >files
[ -s files ] || { echo "coverage: no counters were written" >&2; exit 1; }
awk '
  { split($1, part, "/"); all[part[1]] += $2; reached[part[1]] += $2 * $3 / 100; total += $2; sum += $2 * $3 / 100 }
  END {
    for (folder in all) printf "%-12s %6d lines %6.1f %%\n", folder, all[folder], 100 * reached[folder] / all[folder] | "sort"
    close("sort")
    printf "%-12s %6d lines %6.1f %%\n", "src", total, 100 * sum / total
  }' files
echo 'least covered:'
sort -k3,3n -k2,2nr files | head -n 10 | awk '{ printf "  %-48s %5d lines %6.1f %%\n", $1, $2, $3 }'
