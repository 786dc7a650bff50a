#!/bin/sh
# Installs the Debian packages that hark needs and that are missing; says which and why. With nothing missing it does nothing.
#   install-dependencies.sh           what building, testing and the demonstration need
#   install-dependencies.sh --check   also what the continuous check needs
#   install-dependencies.sh --list    prints the list, installs nothing
# Exit 2 when it cannot install here: not Debian or Ubuntu, or neither root nor sudo.
set -eu

# package | how to see that it is there: a command, or "package" | why
NEEDED='gcc|gcc|compiles hark
libc6-dev|package|headers of the C library
make|make|runs the build
cmake|cmake|configures the build
pkg-config|pkg-config|finds the libraries below
libjansson-dev|package|JSON: metrics, vocabularies, results
libyaml-dev|package|YAML: configuration files
libcmocka-dev|package|unit tests
gnuplot-nox|gnuplot|loss curves as SVG and PNG'
# hark builds and works without these.
USEFUL='libdnnl-dev|package|fast large matrix products (oneDNN)
g++|g++|compiles the one file of C++: learning of sub-words
libsentencepiece-dev|package|learning of sub-words (SentencePiece)
libpcre2-dev|package|regular expressions of tokenizer.json (PCRE2)
libutf8proc-dev|package|Unicode normal forms for tokenizer.json (utf8proc)
zlib1g-dev|package|data compressed with gzip (zlib)
liblzma-dev|package|data compressed with xz (liblzma)
libzstd-dev|package|data compressed with zstd (libzstd)
libbz2-dev|package|data compressed with bzip2 (libbz2)
libpng-dev|package|pictures of Pathfinder (libpng)
libgsl-dev|package|closed forms of hark lab (GSL)
libopenmpi-dev|package|training by several processes (MPI)
openmpi-bin|mpirun|starts them'
CHECKING='clang|clang|second compiler
clang-format|clang-format|format of the sources
clang-tidy|clang-tidy|static analysis
cppcheck|cppcheck|static analysis
shellcheck|shellcheck|shell scripts
groff-base|groff|the manual pages must be sound
zsh|zsh|completion must be understood by zsh
fish|fish|completion must be understood by fish
gcc-aarch64-linux-gnu|aarch64-linux-gnu-gcc|compiles for 64-bit ARM
libc6-dev-arm64-cross|package|C library for it
qemu-user|qemu-aarch64|runs programs for it
locales|package|a locale with a decimal comma
debootstrap|debootstrap|a bare machine to build on
python3-numpy|package|the Python program of the tutorial
mkdocs|mkdocs|the documentation as a web site
mkdocs-material|package|its theme'

group=build
case "${1-}" in
  '') ;;
  --check) group=check ;;
  --list) group=list ;;
  *)
    echo "install-dependencies.sh: '$1' is not known, expected --check, --list or nothing" >&2
    exit 2
    ;;
esac
[ "$group" = build ] || NEEDED="$NEEDED
$CHECKING"

print_list() {
  printf '%s\n' "$1" | while IFS='|' read -r package _ why; do printf '  %-16s %s\n' "$package" "$why"; done
}

is_there() { # package, probe
  if [ "$2" != package ]; then
    command -v "$2" >/dev/null 2>&1
  else
    case "$(dpkg-query -W -f '${Status} ' "$1" 2>/dev/null)" in *'ok installed'*) true ;; *) false ;; esac
  fi
}

missing_of() {
  printf '%s\n' "$1" | while IFS='|' read -r package probe why; do
    is_there "$package" "$probe" || printf '%s|%s|%s\n' "$package" "$probe" "$why"
  done
}

names_of() { printf '%s\n' "$1" | cut -d'|' -f1 | tr '\n' ' '; }

if [ "$group" = list ]; then
  print_list "$NEEDED"
  print_list "$USEFUL"
  exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
  echo "hark installs packages on Debian and Ubuntu only. Here, please install what these Debian packages hold, then run 'make':" >&2
  { print_list "$NEEDED"; print_list "$USEFUL"; } >&2
  exit 2
fi

needed=$(missing_of "$NEEDED")
useful=$(missing_of "$USEFUL")
[ -n "$needed$useful" ] || exit 0

echo "hark needs these packages, which are missing here:"
[ -z "$needed" ] || print_list "$needed"
[ -z "$useful" ] || print_list "$useful"

# A list of words on purpose: the command in front of apt-get.
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1; then
  as_root=sudo
else
  echo "Only root may install them, and there is no sudo. As root: apt-get install $(names_of "$needed$useful")" >&2
  exit 2
fi

apt() {
  # shellcheck disable=SC2086 # as_root is empty or one word; the packages are words
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@" </dev/null
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { # runs apt, shows what it said only when it failed
  apt "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    return 1
  }
}

echo "Installing them with apt-get ..."
quietly update
if [ -n "$needed" ]; then
  # shellcheck disable=SC2046 # words
  quietly install --no-install-recommends $(names_of "$needed")
fi
if [ -n "$useful" ]; then
  # shellcheck disable=SC2046 # words
  quietly install --no-install-recommends $(names_of "$useful") || echo "Going on without: $(names_of "$useful")" >&2
fi
echo "Done."
