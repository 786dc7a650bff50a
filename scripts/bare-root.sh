#!/bin/sh
# Makes a machine that has nothing, a minimal Debian in a folder, for a script that reads this file (. scripts/bare-root.sh):
#   $root, $suite, $cache   its folder, removed when the script ends; Debian's code name; what is kept from run to run
#   inside COMMAND          runs a shell's line in it
#   skip WHY                prints "skipped: WHY" and ends with 0: also here, where such a machine cannot be made
#   within COMMAND          the same, quietly: its output is in $cache/inside.log; a failure is that of the script's own function fail
#   install PACKAGE...      installs packages inside
#   keep_packages           keeps what apt has downloaded inside
# The variables HARK_BARE_... are described in scripts/bare-machine.sh. apt-get update has run inside; its messages are in $cache/apt.log.
suite=${HARK_BARE_SUITE:-bookworm}
mirror=${HARK_BARE_MIRROR:-http://deb.debian.org/debian}
cache=${HARK_BARE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hark-ci}
jobs=$(nproc 2>/dev/null || echo 2)
base=$cache/debian-$suite.tar
archives=$cache/archives-$suite

skip() {
  echo "skipped: $*"
  exit 0
}

[ "$(id -u)" = 0 ] || skip "only root can make and enter another root; this is user $(id -un)"
command -v chroot >/dev/null 2>&1 || skip "there is no chroot"
if ! command -v debootstrap >/dev/null 2>&1; then
  if command -v apt-get >/dev/null 2>&1; then
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends debootstrap; } >/dev/null 2>&1 || true
  fi
  command -v debootstrap >/dev/null 2>&1 || skip "there is no debootstrap, and it could not be installed"
fi
mkdir -p "$cache" "$archives" 2>/dev/null || skip "$cache cannot be made"
[ "$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')" -gt 4000000 ] || skip "less than 4 GB are free in $cache"

root=$(mktemp -d "$cache/root.XXXXXX")
mounted=
clean_up() {
  for place in $mounted; do
    umount "$root/$place" || {
      echo "$root/$place is still mounted; $root is left" >&2
      return
    }
  done
  rm -rf --one-file-system "$root"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ ! -s "$base" ]; then
  echo "making a minimal Debian $suite from $mirror ..."
  # The packages that were downloaded are kept for the next time.
  if ! debootstrap --variant=minbase "--cache-dir=$archives" "$suite" "$root" "$mirror" >"$cache/debootstrap.log" 2>&1; then
    tail -n 3 "$cache/debootstrap.log"
    skip "debootstrap failed (no network, or no right to make devices): $cache/debootstrap.log"
  fi
  tar -C "$root" --numeric-owner -cf "$base.partial" . && mv "$base.partial" "$base"
else
  echo "the minimal Debian $suite of $(date -r "$base" +%F), from $base"
  tar -C "$root" --numeric-owner -xpf "$base"
fi

# The network of this machine inside the other, and its packages outside, for the next run.
[ ! -e /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -e /etc/hosts ] || cp -L /etc/hosts "$root/etc/hosts"
cp -n "$archives"/*.deb "$root/var/cache/apt/archives/" 2>/dev/null || true
echo 'Binary::apt::APT::Keep-Downloaded-Packages "true";' >"$root/etc/apt/apt.conf.d/keep"
for file in /etc/apt/apt.conf.d/*proxy*; do
  [ ! -e "$file" ] || cp "$file" "$root/etc/apt/apt.conf.d/"
done
# What every machine has, and what tests of processes, cores and terminals need.
mount_place() { # type, place
  mkdir -p "$root/$2"
  if mount -t "$1" "$1" "$root/$2" 2>/dev/null; then
    mounted="$2 $mounted"
  else
    echo "(/$2 cannot be mounted: some tests inside may say so)"
  fi
}
mount_place proc proc
mount_place sysfs sys
mount_place devpts dev/pts
mount_place tmpfs dev/shm
[ -e "$root/dev/ptmx" ] || ln -s pts/ptmx "$root/dev/ptmx"
[ -e "$root/dev/full" ] || mknod -m 666 "$root/dev/full" c 1 7 2>/dev/null || true

# Nothing from outside is visible inside, except the network.
inside() {
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} ${no_proxy:+"no_proxy=$no_proxy"} \
    ${HARK_DEMO_TIME:+"HARK_DEMO_TIME=$HARK_DEMO_TIME"} "JOBS=$jobs" chroot "$root" /bin/sh -c "$1"
}

inside 'apt-get -q update' >"$cache/apt.log" 2>&1 || skip "apt inside has no network: $cache/apt.log"

keep_packages() { cp -n "$root"/var/cache/apt/archives/*.deb "$archives/" 2>/dev/null || true; }

within() { inside "$1" >"$cache/inside.log" 2>&1 || { tail -n 20 "$cache/inside.log" >&2 && fail "inside: $1"; }; }

install() {
  inside "apt-get -q -y install --no-install-recommends $*" >>"$cache/apt.log" 2>&1 || {
    tail -n 20 "$cache/apt.log" >&2
    fail "these cannot be installed: $*"
  }
  keep_packages
}
