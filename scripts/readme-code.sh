#!/bin/sh
# Writes the C program that README.md prints, so that the tests can build and run it: readme-code.sh FILE
set -eu
readme=$(dirname "$0")/../README.md
# shellcheck disable=SC2016 # nothing to expand
sed -n '/^```c$/,/^```$/{/^```/!p;}' "$readme" >"$1"
grep -q 'int main(void)' "$1" || { echo "README.md prints no program in C" >&2; exit 1; }
