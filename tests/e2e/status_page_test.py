# SPDX-License-Identifier: Apache-2.0
"""The status page: what it says, that it loads nothing and escapes everything, and how a browser
draws it at the width of a desk and of a phone. CRUST_SCREENSHOTS=DIR keeps the pictures."""

import html.parser
import os
import re
import shutil
import struct
import subprocess

from node import REPOSITORY
from scratch_node import AFTER, MIB, ScratchNodeTest, curl, free_port

VOID = {"meta", "link"}


class Page(html.parser.HTMLParser):
    """Tags and text of a page; fails on tags that are not closed in order."""

    OPTIONAL_END = {"html", "li"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag and self.open[-1] in self.OPTIONAL_END:
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


class StatusPageTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        if not shutil.which("curl"):
            self.skipTest("needs the program curl")

    def build(self):
        """One volume in sync after a resize, one stalled, one that no sandbox uses, and one with a
        hostile name."""
        self.port = free_port()
        node = self.node({"http.listen": f"127.0.0.1:{self.port}"})
        self.grown = self.volume(node, "pvc-7d1c3f2a-database")
        self.held = self.volume(node, "pvc-19b0e4cc-archive")
        self.sandbox(node, self.grown, sandbox_id="a" * 64)
        self.sandbox(node, self.held, sandbox_id="b" * 64)
        self.monitor(node, self.grown, sandbox_id="a" * 64)
        self.agent(node)
        self.volume(node, "pvc-55aa0b1d-cache", size=48 * MIB)
        self.escaped = self.volume(node, "<script>alert(1)<!--'\"&amp;\u202e")
        node.start()
        node.wait_for(self.grown.path, "in_sync")
        node.wait_for(self.held.path, "unknown", "monitor_missing")
        self.grown.loop.resize(AFTER)
        self.held.loop.resize(AFTER)
        node.wait_for(self.grown.path, "in_sync", hypervisor_bytes=AFTER)
        node.wait_for(self.held.path, "blocked", "monitor_missing")
        return node

    def test_the_pages_text(self):
        node = self.build()
        code, body = curl(node, "/")
        self.assertEqual(code, 200)
        page = Page(body.decode())
        for words in ("4 volumes", "1 stalled", "1 in sync", "pvc-19b0e4cc-archive blocked "
                      "monitor missing", "crustctl explain", "32 MiB \u2192 64 MiB"):
            self.assertIn(words, page.text.replace("\xa0", " "))
        self.assertEqual([tag for tag, _ in page.tags if tag in ("script", "style", "img", "form")],
                         [])
        self.assertEqual([a["href"] for tag, a in page.tags if tag == "link"], ["/status.css"])
        for _, attributes in page.tags:
            self.assertEqual([name for name in attributes if name.startswith("on") or
                              name in ("style", "src")], [])
        self.assertIn("<script>alert(1)<!--'\"&amp;\ufffd", page.text)

    def test_headers(self):
        node = self.build()
        _, head = curl(node, "/", "--head")
        policy, = re.findall(rb"(?i)^content-security-policy: (.*?)\r?$", head, re.M)
        self.assertIn(b"default-src 'none'; style-src 'self';", policy)
        self.assertNotIn(b"unsafe", policy)
        self.assertIn(b"nosniff", head)
        code, style = curl(node, "/status.css")
        self.assertEqual(code, 200)
        self.assertIn(b"prefers-color-scheme:dark", style)
        self.assertIsNone(re.search(rb"url\(|@import|https?:", style))

    def screenshot(self, name, width, height, *options):
        chromium = shutil.which("chromium")
        directory = REPOSITORY / os.environ.get("CRUST_SCREENSHOTS", self.scratch)
        directory.mkdir(parents=True, exist_ok=True)
        picture = directory / f"{name}.png"
        done = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--hide-scrollbars", f"--user-data-dir={self.scratch / ('chromium-' + name)}",
             f"--window-size={width},{height}", f"--screenshot={picture}", *options,
             f"http://127.0.0.1:{self.port}/"], capture_output=True, timeout=180)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace")[-2000:])
        return picture.read_bytes()

    def test_a_browser_draws_it(self):
        if not shutil.which("chromium"):
            self.skipTest("needs the program chromium")
        self.build()
        pictures = [self.screenshot("desk", 1280, 1100), self.screenshot("phone", 390, 1700),
                    self.screenshot("desk-dark", 1280, 1100,
                                    "--blink-settings=preferredColorScheme=0")]
        for picture, width in zip(pictures, (1280, 390, 1280)):
            self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">I", picture[16:20])[0], width)
        self.assertEqual(len(set(pictures)), 3)
