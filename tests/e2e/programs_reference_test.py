# SPDX-License-Identifier: Apache-2.0
"""docs/reference/programs.md against the programs: help texts word for word, exit codes by trying.

UPDATE_REFERENCE=1 writes the help texts into the page instead.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("CRUST_BUILD", "build")
PAGE = REPOSITORY / "docs/reference/programs.md"

BLOCK = re.compile(r"<!-- help: ([^>]+) -->\n(?:```text\n(.*?)```\n)?", re.S)


def run(*words, **options):
    program, *arguments = words
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CRUST_")}
    place = REPOSITORY / "crust-sim" if program == "crust-sim" else BUILD
    return subprocess.run([place / program, *arguments], capture_output=True, text=True, timeout=60,
                          env=environment, check=False, **options)


def help_of(name):
    done = run(*name.split(), "--help")
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands_with_more():
    """Those whose own help says more than the line in crustctl's."""
    names = re.findall(r"^  ([a-z][a-z-]*(?: [a-z-]+)?)(?: [A-Z_ ]+)?  ", help_of("crustctl"), re.M)
    for name in names:
        if help_of(f"crustctl {name}").count("\n") > 3:
            yield f"crustctl {name}"


class ProgramsReferenceTest(unittest.TestCase):
    maxDiff = None

    def test_help_texts(self):
        page = PAGE.read_text()
        fresh = BLOCK.sub(lambda m: f"<!-- help: {m[1]} -->\n```text\n{help_of(m[1])}```\n", page)
        if os.environ.get("UPDATE_REFERENCE"):
            PAGE.write_text(fresh)
        self.assertEqual(PAGE.read_text(), fresh)

    def test_every_command_is_there(self):
        documented = {m[1] for m in BLOCK.finditer(PAGE.read_text())}
        self.assertEqual(documented, {"crustd", "crustctl", "crust-guest-agent", "crust-sim", *commands_with_more()})

    def test_exit_codes(self):
        rows = re.findall(r"^\| (\d) \|", PAGE.read_text(), re.M)
        self.assertEqual(rows, list("0123456"))
        for program in ("crustd", "crustctl", "crust-guest-agent", "crust-sim"):
            with self.subTest(program):
                done = run(program, "--version")
                self.assertEqual((done.returncode, done.stdout.split(" ")[0]), (0, program))
                self.assertEqual(run(program, "--no-such-option").returncode, 2)
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(run("crustd", "--root", root, "--config", "/nowhere").returncode, 2)
            self.assertEqual(run("crustctl", "--root", root, "resync").returncode, 4)
            self.assertEqual(run("crust-guest-agent", "--once", "/nowhere").returncode, 1)
            self.assertEqual(run("crustctl", "direct-volume", "add").returncode, 1)

    def test_crust_qemu_without_qemu(self):
        name = next(BUILD.glob("crust-qemu-system-*"))
        with tempfile.TemporaryDirectory() as directory:
            link = pathlib.Path(directory) / "crust-no-such-qemu"
            link.symlink_to(name)
            done = subprocess.run([link], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 127, done.stderr)
