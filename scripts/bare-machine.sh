#!/bin/sh
# Proves the two commands of README on a machine that has nothing: a minimal Debian made with debootstrap, a clone of what is committed,
# only git and make (and certificates) installed; then `make demo` and `make test` inside.
#   bare-machine.sh            prints what was done, or "skipped: why" and ends with 0 where it cannot be done
# HARK_BARE_SUITE    Debian's code name (bookworm)
# HARK_BARE_MIRROR   where packages come from (http://deb.debian.org/debian)
# HARK_BARE_CACHE    folder in which the root and downloaded packages are kept from run to run (~/.cache/hark-ci)
# HARK_DEMO_TIME     how long the demonstration trains (20s)
set -eu
cd "$(dirname "$0")/.."
git rev-parse --verify -q HEAD >/dev/null 2>&1 || {
  echo "skipped: this is no git checkout"
  exit 0
}
# shellcheck source=scripts/bare-root.sh
. scripts/bare-root.sh
export HARK_DEMO_TIME="${HARK_DEMO_TIME:-20s}"

inside 'apt-get -q -y install --no-install-recommends git make ca-certificates' >>"$cache/apt.log" 2>&1 ||
  skip "git and make could not be installed inside: $cache/apt.log"

# A clone, as a user has it: of what is committed, without anything that was built.
git clone -q --no-local "$PWD" "$root/root/hark"
[ -z "$(git status --porcelain)" ] || echo "(changes that are not committed are not tested)"
# shellcheck disable=SC2016 # expanded inside
echo "inside: $(inside '. /etc/os-release; echo "$PRETTY_NAME"'), $(inside 'dpkg -l | grep -c ^ii') packages, hark $(git rev-parse --short HEAD)"

for goal in demo test; do
  start=$(date +%s)
  echo "--- make $goal"
  status=0
  inside "cd /root/hark && make $goal" || status=$?
  # Also after a failure: the next run downloads less.
  keep_packages
  [ "$status" = 0 ] || {
    echo "make $goal failed on a bare machine, with $status"
    exit 1
  }
  echo "--- make $goal: $(($(date +%s) - start)) s"
done
grep -q '"val/loss"' "$root/root/hark/build/demo/run/metrics.jsonl" || {
  echo "the demonstration left no result"
  exit 1
}
echo "ok"
