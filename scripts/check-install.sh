#!/bin/sh
# Installs a finished build into temporary folders and uses it as a stranger would: check-install.sh BUILD
#   prefix              every example (and a C++ program) by pkg-config and by a CMake project, with the shared and the static library
#   prefix with blanks  the same with one example: what differs is how the library is found, not what the examples do with it
#   DESTDIR             the same with one, from the staged tree; no installed text may name the stage
#   documents           the commands that README prints for programs, and those of the examples' first lines, as they are printed
#   what else is there  manual pages and completion of every subcommand, the library's soname, headers that compile alone; uninstalling
# With BUILD built without the shared library only the static half is done. Prints a line a part.
set -eu
case $1 in
  /*) build=$1 ;;
  *) build=$PWD/$1 ;;
esac
cd "$(dirname "$0")/.."
source=$PWD
work=$(mktemp -d)
# What make uninstall would remove stays what it was.
manifest=$build/install_manifest.txt
[ ! -e "$manifest" ] || cp "$manifest" "$work/manifest"
clean_up() {
  rm -f "$manifest"
  [ ! -e "$work/manifest" ] || cp "$work/manifest" "$manifest"
  rm -rf "$work"
}
trap clean_up EXIT
version=$(sed -n 's/^#define HARK_VERSION_STRING "\(.*\)"/\1/p' include/hark/version.h)
cc=${CC:-cc}

fail() {
  echo "check-install: $*" >&2
  exit 1
}

run() { # program, library folder: runs it in a folder of its own
  mkdir -p "$work/run"
  (cd "$work/run" && LD_LIBRARY_PATH=$2 "$1" >output 2>&1) || {
    cat "$work/run/output" >&2
    fail "$1 failed"
  }
}

# by_pkg_config PREFIX EXAMPLES [SYSROOT]: the shell reads what pkg-config prints once more, as make does, for blanks in names
by_pkg_config() {
  prefix=$1
  examples=$2
  sysroot=${3-}
  folder=$(dirname "$(find "$sysroot$prefix" -name hark.pc)")
  export PKG_CONFIG_PATH="$folder" PKG_CONFIG_SYSROOT_DIR="$sysroot"
  [ "$(pkg-config --modversion hark)" = "$version" ] || fail "pkg-config says version $(pkg-config --modversion hark), expected $version"
  [ "$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=prefix hark)" = "$prefix" ] || fail "pkg-config does not say prefix $prefix"
  library=$(dirname "$folder")
  for example in "$examples"/*.c; do
    name=$(basename "$example" .c)
    if [ "$shared" = yes ]; then
      eval "$cc -std=c17 $(pkg-config --cflags hark) '$example' -o '$work/$name' $(pkg-config --libs hark) -lm" || fail "$name"
      readelf -d "$work/$name" | grep -q 'NEEDED.*libhark\.so' || fail "$name was not linked with the shared library"
      run "$work/$name" "$library"
    fi
    eval "$cc -std=c17 $(pkg-config --cflags hark-static) '$example' -o '$work/$name' $(pkg-config --libs hark-static)" ||
      fail "$name, static"
    ! readelf -d "$work/$name" | grep -q 'NEEDED.*libhark' || fail "$name was not linked with the static library"
    run "$work/$name" ""
  done
  unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
}

by_cmake() { # ROOT, EXAMPLES: where the files lie
  rm -rf "$work/consumer"
  if ! { cmake -S tests/install -B "$work/consumer" "-DCMAKE_PREFIX_PATH=$1" "-DEXAMPLES=$2" "-DVERSION_REQUIRED=${version%.*}" \
    "-DSHARED=$shared" && cmake --build "$work/consumer"; } >"$work/log" 2>&1; then
    cat "$work/log" >&2
    fail "a CMake project cannot use $1"
  fi
  for program in "$work"/consumer/*_hark "$work"/consumer/*_hark_static; do
    [ ! -x "$program" ] || run "$program" ""
  done
  ! cmake -S tests/install -B "$work/other" "-DCMAKE_PREFIX_PATH=$1" -DVERSION_REQUIRED=99 >/dev/null 2>&1 || fail "version 99 was found"
}

install_to() { # DESTDIR, prefix
  DESTDIR=$1 cmake --install "$build" --prefix "$2" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail "installing to '$1' '$2' failed"
  }
}

check_files() { # ROOT
  root=$1
  "$root/bin/hark" version >/dev/null || fail "bin/hark does not run"
  for page in $("$root/bin/hark" --help | sed -n 's/^  \([a-z-]*\)  *[a-z].*/-\1/p') ''; do
    [ -s "$root/share/man/man1/hark$page.1" ] || fail "no manual page hark$page(1)"
  done
  for file in bash-completion/completions/hark zsh/site-functions/_hark fish/vendor_completions.d/hark.fish; do
    [ -s "$root/share/$file" ] || fail "no $file"
  done
  for header in include/hark/*.h; do cmp -s "$header" "$root/$header" || fail "$header is not installed as it is"; done
  sh scripts/check-headers.sh "$root/include"
  [ "$shared" = yes ] || return 0
  library=$(find "$root" -name 'libhark.so')
  soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
  case $version in
    0.*) expected=libhark.so.${version%.*} ;;
    *) expected=libhark.so.${version%%.*} ;;
  esac
  [ "$soname" = "$expected" ] || fail "the soname is $soname, expected $expected"
  [ -e "$(dirname "$library")/$soname" ] || fail "$soname is not there"
}

# A printed command, in a folder with program.c and the examples, in a home where hark is installed below .local; what README exports is exported.
printed() { # command, the library that it says it links
  (cd "$work/documents" && rm -f a.out && HOME=$work/home && eval "$exported" && eval "$1" && ./a.out) >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail "the documents print a command that fails: $1"
  }
  linked=libhark.a
  ! readelf -d "$work/documents/a.out" | grep -q 'NEEDED.*libhark\.so' || linked=libhark.so
  [ "$linked" = "$2" ] || fail "this links $linked, and should $2: $1"
}

documents() {
  mkdir "$work/documents"
  cp examples/*.c "$work/documents/"
  cp examples/02_train_tiny.c "$work/documents/program.c"
  install_to "" "$work/home/.local"
  sed -n '/^    cc program\.c/s/^ *//p' README.md >"$work/commands"
  exported=$(sed -n '/^    export PKG_CONFIG_PATH/s/^ *//p' README.md)
  [ "$(wc -l <"$work/commands")" = 2 ] || fail "README prints no two ways to compile a program"
  [ -n "$exported" ] || fail "README does not say how an installation in a home is found"
  while read -r command; do
    case $command in
      *"# libhark.so"*) [ "$shared" = no ] || printed "$command" libhark.so ;;
      *"# libhark.a"*) printed "$command" libhark.a ;;
      *) fail "README does not say what this links: $command" ;;
    esac
  done <"$work/commands"
  for example in examples/*.c; do
    command=$(sed -n 's/^ \* *\(cc .*pkg-config.*\)/\1/p' "$example")
    [ -n "$command" ] || fail "$example does not say how it is compiled"
    [ "$shared" = no ] || printed "$command" libhark.so
  done
  {
    echo "cmake_minimum_required(VERSION 3.18)
project(program LANGUAGES C)
add_executable(program program.c)"
    sed -n '/^    find_package(hark/p; /^    target_link_libraries(program/p' README.md
  } >"$work/documents/CMakeLists.txt"
  grep -q hark::hark "$work/documents/CMakeLists.txt" || fail "README prints no lines for CMake"
  (cd "$work/documents" && cmake -B made "-DCMAKE_PREFIX_PATH=$work/home/.local" && cmake --build made && made/program) >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail "README's lines for CMake do not work"
  }
}

shared=no
[ ! -e "$build/libhark.so" ] || shared=yes

install_to "" "$work/plain"
check_files "$work/plain"
by_pkg_config "$work/plain" "$source/examples"
by_cmake "$work/plain" "$source/examples"
echo "prefix: ok"

mkdir "$work/one"
cp examples/01_attention.c "$work/one/"
install_to "" "$work/with a blank"
by_pkg_config "$work/with a blank" "$work/one"
by_cmake "$work/with a blank" "$work/one"
echo "prefix with blanks: ok"

documents
echo "documents: ok"

install_to "$work/stage" /opt/hark
by_pkg_config /opt/hark "$work/one" "$work/stage"
by_cmake "$work/stage/opt/hark" "$work/one"
! grep -rIl "$work" "$work/stage" || fail "these files name the stage"
echo "DESTDIR: ok"

DESTDIR=$work/stage cmake "-DBUILD=$build" -P cmake/Uninstall.cmake >"$work/log" 2>&1 || fail "uninstalling: $(cat "$work/log")"
left=$(find "$work/stage" ! -type d)
[ -z "$left" ] || fail "uninstalling left $left"
[ ! -d "$work/stage/opt/hark/include/hark" ] || fail "uninstalling left the folder of the headers"
echo "uninstalling: ok"
