# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window: what a page is once its scripts have run, and pictures of it."""

import html.parser
import re
import shutil
import subprocess


class Page(html.parser.HTMLParser):
    """Tags and text of a page; fails on tags that are not closed in order."""

    VOID = {"meta", "link"}
    HIDDEN = {"title", "noscript"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if not self.HIDDEN & set(self.open):
            self.texts.append(data)

    @property
    def text(self):
        """With single spaces, also between elements."""
        return " ".join(" ".join(self.texts).replace("\xa0", " ").split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


class Browser:
    def __init__(self, scratch):
        self.scratch = scratch
        self.runs = 0

    @staticmethod
    def is_there():
        return bool(shutil.which("chromium"))

    def run(self, url, *options):
        """What it prints, and what the page's scripts and the policy have it report."""
        self.runs += 1
        # The budget is of a clock that stands still while an answer is awaited.
        done = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--enable-logging=stderr", f"--user-data-dir={self.scratch}/chromium-{self.runs}",
             "--virtual-time-budget=10000", *options, url], capture_output=True, timeout=180)
        log = done.stderr.decode(errors="replace")
        if done.returncode:
            raise AssertionError(log[-2000:])
        return done.stdout.decode(), re.findall(r":CONSOLE[:(].*", log)

    def read(self, url, *options):
        """The page, and what was reported."""
        text, reports = self.run(url, "--dump-dom", *options)
        return Page(text), reports

    def draw(self, url, picture, width, height, *options):
        self.run(url, "--hide-scrollbars", f"--window-size={width},{height}", f"--screenshot={picture}",
                 *options)
        return picture.read_bytes()
