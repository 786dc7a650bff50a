#!/bin/sh
# Debian packages of this checkout, in FOLDER: make-deb.sh [FOLDER], default build/deb. They are made from a copy of the sources, so that
# nothing is written into the checkout; `dpkg-buildpackage -us -uc -b` in the checkout makes the same packages beside it.
# Exit status 2: packages that the build needs are missing.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${1:-build/deb}"
folder=$(cd "${1:-build/deb}" && pwd)
command -v dpkg-buildpackage >/dev/null 2>&1 || {
  echo "make-deb: there is no dpkg-buildpackage (Debian: apt-get install dpkg-dev debhelper fakeroot)" >&2
  exit 2
}
dpkg-checkbuilddeps debian/control || {
  echo "make-deb: apt-get build-dep . installs them, as root" >&2
  exit 2
}
rm -rf "$folder/hark" "$folder"/*.deb "$folder"/*.buildinfo "$folder"/*.changes
mkdir "$folder/hark"
tar -cf - CMakeLists.txt CHANGELOG.md LICENSE README.md cmake debian examples include src | tar -C "$folder/hark" -xf -
cd "$folder/hark"
DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-noautodbgsym parallel=$(nproc 2>/dev/null || echo 2)}" dpkg-buildpackage -us -uc -b >"$folder/build.log" 2>&1 || {
  tail -n 30 "$folder/build.log" >&2
  exit 1
}
cd "$folder"
rm -rf hark
ls -1 ./*.deb
