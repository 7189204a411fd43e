# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: each link of each page leads to a file, each anchor to an element, and every page of docs/ can
be reached."""

import html.parser
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse

from node import REPOSITORY
from programs import needs


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.names, self.doubles = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if "id" in values:
            if values["id"] in self.names:
                self.doubles.append(values["id"])
            self.names.add(values["id"])
        assert tag != "script" and not values.get("src"), tag


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        needs("cmark-gfm")
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="crust-site-"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        subprocess.run([REPOSITORY / "packaging/site.py", cls.directory], check=True, timeout=300)
        cls.pages = {path: Page(path.read_text()) for path in cls.directory.rglob("*.html")}

    def test_links(self):
        wrong, followed = [], 0
        for path, page in self.pages.items():
            for link in page.links:
                address = urllib.parse.urlsplit(link)
                if address.scheme:
                    continue
                target = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
                followed += 1
                if not target.is_file():
                    wrong.append(f"{path.relative_to(self.directory)}: {link}")
                elif address.fragment and address.fragment not in self.pages[target].names:
                    wrong.append(f"{path.relative_to(self.directory)}: {link}: no such anchor")
        self.assertEqual(wrong, [])
        self.assertGreater(followed, 500)

    def test_anchors_are_unique(self):
        self.assertEqual({path: page.doubles for path, page in self.pages.items() if page.doubles}, {})

    def test_every_page_can_be_reached(self):
        written = {path.relative_to(REPOSITORY).with_suffix(".html") for path in (REPOSITORY / "docs").rglob("*.md")
                   if "node_modules" not in path.parts}
        self.assertLessEqual(written, {path.relative_to(self.directory) for path in self.pages})

    def test_tables_and_code(self):
        text = (self.directory / "docs/fleet.html").read_text()
        self.assertIn('<code class="language-promql">', text)
        self.assertIn("<table>", (self.directory / "docs/support.html").read_text())
        self.assertIn('id="crustdvolumebypassed"', (self.directory / "docs/operations.html").read_text())
