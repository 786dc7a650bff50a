#!/bin/sh
# What a library that lives in other people's programs must not have: check-library.sh LIBHARK.A
#   writable globals; calls that print, end the process or change it; symbols outside hark_.
set -eu
library=$1
bad=0

# Constant tables of addresses lie in .data.rel.ro, which the loader makes read-only.
globals=$(objdump -h "$library" | awk '/file format/ { file = $1 } ($2 ~ /^\.(t?data|t?bss)(\.[^r].*)?$/) && $3 !~ /^0+$/ { print file " " $2 " " $3 }')
if [ -n "$globals" ]; then
  echo "objects with writable globals (object, section, bytes in hexadecimal):"
  echo "$globals"
  bad=1
fi

forbidden='printf|vprintf|puts|putchar|perror|exit|_exit|_Exit|quick_exit|abort|__assert_fail|signal|sigaction|setlocale|srand|rand|putenv|setenv'
calls=$(nm -A -u "$library" 2>/dev/null | grep -E " U ($forbidden)(@.*)?\$" || true)
if [ -n "$calls" ]; then
  echo "calls that a library must not make:"
  echo "$calls"
  bad=1
fi

names=$(nm -A -g --defined-only "$library" 2>/dev/null | awk 'NF && $NF !~ /^(hark_|.*:$)/ { print }')
if [ -n "$names" ]; then
  echo "external symbols that do not start with hark_:"
  echo "$names"
  bad=1
fi
exit $bad
