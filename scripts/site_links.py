"""Checks the links of a built site: site_links.py FOLDER

Every internal link must have a file, every anchor must be in its page, and no page may load anything from the network.
"""
import html.parser
import pathlib
import sys
import urllib.parse

LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
NOT_LOADED = {"canonical", "prev", "next"}


class Page(html.parser.HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links, self.loaded = {""}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and given.get("href") is not None:
            self.links.append(given["href"])
        if LOADED.get(tag) in given and given.get("rel") not in NOT_LOADED:
            self.loaded.append(given[LOADED[tag]])


def problems(site: pathlib.Path, path: pathlib.Path, pages: dict) -> list:
    found = []
    page = pages[path]
    for link in page.links + page.loaded:
        url = urllib.parse.urlsplit(link)
        if url.scheme or url.netloc:
            if link in page.loaded:
                found.append(f"loads {link}")
            continue
        target = path if not url.path else (path.parent / urllib.parse.unquote(url.path)).resolve()
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file() or site not in target.parents:
            found.append(f"links to {link}, which is not there")
        elif url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].anchors:
            found.append(f"links to {link}: no such anchor")
    return found


def main() -> int:
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    count = bad = 0
    for path, page in pages.items():
        count += len(page.links) + len(page.loaded)
        for problem in problems(site, path, pages):
            print(f"{path.relative_to(site)} {problem}", file=sys.stderr)
            bad += 1
    print(f"{len(pages)} pages, {count} links, {bad} broken")
    return 1 if bad or len(pages) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
