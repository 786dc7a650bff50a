#!/bin/sh
# Makes the Debian packages, checks them with lintian, and uses them on a minimal Debian that has nothing else: check-deb.sh [FOLDER]
#   the command, its manual pages and a run of training; its module for MPI; a C program by pkg-config with the shared and the static
#   library; removal
# FOLDER (build/deb) gets the packages; with HARK_DEB_KEEP=1 those that are there are checked. Prints "skipped: why" and ends with 0 where
# it cannot be done. HARK_BARE_...: as in scripts/bare-machine.sh.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/deb}
version=$(sed -n 's/^#define HARK_VERSION_STRING "\(.*\)"/\1/p' include/hark/version.h)
tools='dpkg-dev debhelper lintian'

fail() {
  echo "check-deb: $*" >&2
  exit 1
}

head -n 1 debian/changelog | grep -qF "hark ($version)" || fail "debian/changelog does not begin with version $version"
# The packages are of this Debian, so that they are installed into the same one.
HARK_BARE_SUITE=${HARK_BARE_SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
# shellcheck source=scripts/bare-root.sh
. scripts/bare-root.sh

if ! { command -v dh && command -v dpkg-buildpackage && command -v lintian; } >/dev/null 2>&1; then
  # shellcheck disable=SC2086 # words
  { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $tools; } >/dev/null 2>&1 ||
    skip "these could not be installed: $tools"
fi
if [ -z "${HARK_DEB_KEEP-}" ]; then
  sh scripts/make-deb.sh "$folder" || { [ $? = 2 ] && skip "packages that a build needs are missing"; fail "the packages cannot be built"; }
fi
lintian --fail-on error,warning --display-info "$folder"/*.changes || fail "lintian has complaints"
echo "lintian: ok"

mkdir "$root/packages"
cp "$folder"/*.deb "$root/packages/"
install "/packages/hark_${version}_*.deb"
within 'hark version'
grep -q "$version" "$cache/inside.log" || fail "hark version prints another version: $(cat "$cache/inside.log")"
within 'test -s /usr/share/man/man1/hark-train.1.gz && test -s /usr/share/bash-completion/completions/hark && test -s /usr/share/zsh/vendor-completions/_hark'
within 'cd /root && cat /usr/share/common-licenses/* >text.txt && hark train --data text.txt --out run --preset tiny --steps 3 && hark eval run'
echo "hark: ok"

# The command needs no MPI; its module finds all that it needs.
# shellcheck disable=SC2016
within '! dpkg-query -W -f "\${Status}\n" "libopenmpi*" "libmpich*" 2>/dev/null | grep -q " installed$"'
install "/packages/hark-mpi_${version}_*.deb"
# shellcheck disable=SC2016
within 'ldd "$(dpkg -L hark-mpi | grep "/hark/hark-mpi\.so$")"'
grep -q 'libmpi.* => /' "$cache/inside.log" || fail "hark-mpi.so does not find MPI: $(cat "$cache/inside.log")"
within 'hark version'
echo "hark-mpi: ok"

install "/packages/libhark0.1_${version}_*.deb" "/packages/libhark-dev_${version}_*.deb" gcc libc6-dev pkg-config
cat >"$root/root/program.c" <<'END'
#include <hark/hark.h>
#include <stdio.h>
int main(void) { return printf("%s\n", hark_version()) < 0; }
END
for package in hark hark-static; do
  within "cd /root && rm -f program && cc program.c \$(pkg-config --cflags --libs $package) -o program && ./program"
  [ "$(cat "$cache/inside.log")" = "$version" ] || fail "the program prints $(cat "$cache/inside.log")"
done
# One of the installed examples, as its first lines print it.
# shellcheck disable=SC2016 # expanded inside
within 'cd /root && cc /usr/share/doc/libhark-dev/examples/03_embed_model.c $(pkg-config --cflags --libs hark) -lm -o example && ./example'
echo "libhark: ok"

within 'dpkg -L hark hark-mpi libhark0.1 libhark-dev | sort -u >/root/files && grep -q /usr/bin/hark /root/files'
within 'apt-get -q -y purge hark hark-mpi libhark0.1 libhark-dev'
# shellcheck disable=SC2016
within 'while read -r file; do case $file in *hark*) test ! -e "$file" || exit 1 ;; esac; done </root/files'
echo "removal: ok"
