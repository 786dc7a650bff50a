#!/bin/sh
# A shared library that needs libc and libm (and the loader that comes with them) alone: check-needed.sh LIBHARK.SO
set -eu
needed=$(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }')
[ -n "$needed" ] || { echo "$1: names no library that it needs: is it a shared library?"; exit 1; }
others=$(echo "$needed" | grep -vE '^(libc|libm|ld-linux[-_a-z0-9]*)\.so' || true)
[ -z "$others" ] || { echo "$1: needs $others"; exit 1; }
