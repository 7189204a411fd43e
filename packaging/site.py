#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""site.py DIRECTORY - writes the documentation there, as a static site: docs/README.md, what can be reached from it,
and an index.html that leads to it. Needs cmark-gfm.

A page keeps its place in the tree: docs/operations.md becomes docs/operations.html, with GitHub's anchors. Other files
that pages link to are copied, a directory becomes a list of its files. No scripts, nothing from elsewhere.
"""

import html
import os
import pathlib
import re
import shutil
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
START = pathlib.PurePosixPath("docs/README.md")
TOP = (("Documentation", "docs/README.md"), ("Getting started", "docs/getting-started.md"),
       ("Troubleshooting", "docs/troubleshooting.md"), ("Operations", "docs/operations.md"),
       ("CSI drivers", "docs/csi-drivers.md"), ("Reference", "docs/reference/programs.md"))
CONTENTS = 3  # with fewer sections a page has no list of them
HEADING = re.compile(r"<h([1-6])>(.*?)</h\1>", re.S)
LINK = re.compile(r'<a href="([^"]*)"')
ELSEWHERE = re.compile(r"[a-z]+:")

STYLE = """
:root { color-scheme: light dark; --text: #1d2430; --back: #fff; --line: #d6dbe3; --code: #f3f5f8; --link: #0b57a4; }
@media (prefers-color-scheme: dark) {
  :root { --text: #dde3ec; --back: #14181f; --line: #343c49; --code: #1e242e; --link: #7db7f5; } }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--back); }
header { border-bottom: 1px solid var(--line); padding: .7rem 1rem; }
header a { margin-right: 1.1rem; white-space: nowrap; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
h1, h2, h3 { line-height: 1.25; } h2 { border-bottom: 1px solid var(--line); padding-bottom: .2rem; margin-top: 2rem; }
nav ul { columns: 16rem; padding-left: 1.1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .55rem; text-align: left; vertical-align: top; }
code, pre { font: .88em/1.45 ui-monospace, monospace; background: var(--code); border-radius: 3px; }
code { padding: .1em .25em; } pre { padding: .7rem .9rem; overflow-x: auto; } pre code { padding: 0; }
"""


def anchor(heading, seen):
    """GitHub's: lower case, punctuation gone, blanks as hyphens; the second of a name has a number."""
    text = html.unescape(re.sub(r"<[^>]*>", "", heading))
    name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
    seen[name] = seen.get(name, -1) + 1
    return f"{name}-{seen[name]}" if seen[name] else name


def rendered(text):
    return subprocess.run(["cmark-gfm", "-e", "table", "-e", "autolink", "-e", "strikethrough"], input=text, check=True,
                          capture_output=True, text=True).stdout.replace("<!-- raw HTML omitted -->\n", "")


def relative(target, page):
    return os.path.relpath(target, page.parent).replace(os.sep, "/")


class Site:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.waiting, self.known = [START], {START}

    def add(self, target):
        """A file of the repository that a page links to; returns where it is in the site."""
        place = target / "index.html" if (REPOSITORY / target).is_dir() else \
            target.with_suffix(".html") if target.suffix == ".md" else target
        if target not in self.known:
            self.known.add(target)
            self.waiting.append(target)
        return place

    def link(self, match, page):
        target, hash_, heading = html.unescape(match[1]).partition("#")
        if ELSEWHERE.match(match[1]) or not target:
            return match[0]
        path = pathlib.PurePosixPath(os.path.normpath(page.parent / target))
        return f'<a href="{html.escape(relative(self.add(path), page) + hash_ + heading)}"'

    def write(self, place, text):
        path = self.directory / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_page(self, page):
        seen, sections = {}, []

        def heading(match):
            name = anchor(match[2], seen)
            if match[1] == "2":
                sections.append(f'<li><a href="#{name}">{re.sub("</?a[^>]*>", "", match[2])}</a></li>')
            return f'<h{match[1]} id="{name}">{match[2]}</h{match[1]}>'

        body = HEADING.sub(heading, rendered((REPOSITORY / page).read_text()))
        body = LINK.sub(lambda match: self.link(match, page), body)
        if len(sections) >= CONTENTS:
            contents = f"<nav><ul>{''.join(sections)}</ul></nav>"
            body = body.replace("</h1>", f"</h1>\n{contents}", 1)
        title = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.S)
        title = re.sub(r"<[^>]*>", "", title[1]) if title else str(page)
        self.write(page.with_suffix(".html"), self.frame(page, title, body))

    def frame(self, page, title, body):
        links = "".join(f'<a href="{relative(self.add(pathlib.PurePosixPath(target)), page)}">{name}</a>'
                        for name, target in TOP)
        return ("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width\">\n"
                f"<title>{title} - crustd</title>\n<style>{STYLE}</style>\n"
                f"<header>{links}</header>\n<main>\n{body}</main>\n</html>\n")

    def write_list(self, directory):
        names = sorted(path.name for path in (REPOSITORY / directory).iterdir())
        here = directory / "index.html"
        places = [relative(self.add(directory / name), here) for name in names]
        items = "".join(f'<li><a href="{html.escape(place)}">{html.escape(name)}</a></li>'
                        for place, name in zip(places, names))
        self.write(here, self.frame(here, str(directory), f"<h1>{directory}</h1>\n<ul>{items}</ul>\n"))

    def make(self):
        while self.waiting:
            target = self.waiting.pop()
            source = REPOSITORY / target
            if source.is_dir():
                self.write_list(target)
            elif target.suffix == ".md":
                self.write_page(target)
            else:
                (self.directory / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, self.directory / target)
        first = START.with_suffix(".html")
        self.write("index.html", f'<!doctype html>\n<meta http-equiv="refresh" content="0; url={first}">\n'
                                 f'<a href="{first}">Documentation</a>\n')


def main():
    directory = pathlib.Path(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    Site(directory).make()


if __name__ == "__main__":
    main()
