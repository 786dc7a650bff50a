#!/bin/sh
# Builds the documentation as a web site and checks it: check-site.sh [FOLDER], default build/site.
#   every page is in the navigation, every internal link has a file, and every anchor is in the page that it names;
#   nothing is loaded from the network.
# Ends with "skipped: why" and 0 where MkDocs is missing.
set -eu
cd "$(dirname "$0")/.."
site=${1:-build/site}
staged=build/site-source

if ! command -v mkdocs >/dev/null 2>&1 || [ ! -d /usr/share/mkdocs/themes/material ]; then
  echo "skipped: MkDocs with its theme Material is missing (Debian: apt-get install mkdocs mkdocs-material)"
  exit 0
fi

# The files as they are in the repository, so that links are the same here and there.
rm -rf "$staged"
mkdir -p "$staged/src"
for name in README.md CONTRIBUTING.md CHANGELOG.md CITATION.cff LICENSE docs include examples src/exports.txt; do
  ln -s "$PWD/$name" "$staged/$name"
done
cp cmake/site.css "$staged/site.css"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
mkdocs build --strict --clean --site-dir "$PWD/$site" >"$log" 2>&1 || {
  cat "$log" >&2
  exit 1
}
! grep -q 'exist in the docs directory, but are not included in the "nav"' "$log" || { cat "$log" >&2 && exit 1; }
python3 scripts/site_links.py "$site"
