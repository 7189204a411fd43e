# SPDX-License-Identifier: Apache-2.0
"""A test case that has a node: see docs/testing.md, "A test on a node"."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import module_runner
from channel import NodeError
from image import ImageError, get_image
from machine import Machine

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = (REPOSITORY / os.environ.get("CRUST_BUILD", "build")).resolve()
VERSION = subprocess.check_output([REPOSITORY / "packaging/version.sh"], text=True).strip()
RELEASE = VERSION.partition("~")[0]  # the tag of images, in which there can be no tilde
DATABASE = "/var/lib/crustd/crustd.db"
READY_SECONDS = 60


class Node(Machine):
    """A node with what tests about crustd ask of it."""

    def install(self, prefix="/usr"):
        """What README.md says under "On a node", but for the start: make install, nothing else."""
        with tempfile.TemporaryDirectory(prefix="crust-node-install-") as scratch:
            done = subprocess.run(
                ["make", "-C", str(REPOSITORY), "-o", "programs", f"OUT={BUILD}", "install",
                 f"DESTDIR={scratch}", f"PREFIX={prefix}"], capture_output=True, text=True)
            if done.returncode != 0:
                raise NodeError(f"make install: {done.stderr}")
            self.put(scratch, "/")
        self.run("systemd-tmpfiles --create crustd.conf && systemctl daemon-reload")

    def configure(self, **settings):
        """Writes crustd.conf; names with __ for the dot: resize__sweep_seconds=2."""
        sections = {}
        for name, value in settings.items():
            section, key = name.split("__")
            sections.setdefault(section, []).append(f"{key} = {value}\n")
        self.write("/etc/crustd/crustd.conf", "".join(
            f"[{section}]\n{''.join(lines)}" for section, lines in sections.items()))

    def start_crustd(self):
        """Starts the service; returns when it is ready and has scanned the node."""
        self.run("systemctl start crustd")
        self.wait(self.is_synced, READY_SECONDS, "crustd's first scan")

    def is_synced(self):
        status = self.run("crustctl status -o json", check=False)
        return status.status == 0 and json.loads(status.stdout).get("synced")

    def crustctl(self, *arguments, check=True):
        return self.run(["crustctl", *arguments], check=check)

    def query(self, sql):
        """Rows of the database as dictionaries, by the sqlite3 tool."""
        text = self.output(["sqlite3", "-readonly", "-json", "-cmd", ".timeout 5000", DATABASE,
                            sql])
        return json.loads(text) if text.strip() else []

    def volume(self, target_path):
        quoted = target_path.replace("'", "''")
        rows = self.query(f"SELECT * FROM audit_volumes WHERE target_path = '{quoted}'"
                          " ORDER BY volume_id DESC LIMIT 1")
        return rows[0] if rows else None

    def wait_for(self, target_path, state, reason=None, seconds=60, **columns):
        """Waits until the volume's row of audit_volumes says so; returns the row."""
        wanted = {"state": state} | ({"reason": reason} if reason else {}) | columns
        last = {}

        def reached():
            row = self.volume(target_path) or {}
            last.update(row)
            return row if all(row.get(key) == value for key, value in wanted.items()) else None

        try:
            return self.wait(reached, seconds, f"{target_path}: {wanted}")
        except NodeError as error:
            raise NodeError(f"{error}\nlast row: {last}") from None

    def property(self, name, unit="crustd"):
        """A property of a unit, as systemctl show has it."""
        return self.output(["systemctl", "show", "-P", name, unit])

    def journal(self, *options, unit="crustd"):
        """What a unit wrote to the journal in this boot."""
        return self.output(["journalctl", "-b", "-o", "cat", "--no-pager", "-u", unit, *options])


class NodeTest(unittest.TestCase):
    """One node per class, booted once, for all of its tests; a test leaves it as it found it.

    DISKS       names and sizes of more disks: {"data": 1 << 30}
    MEMORY      MiB
    ARGUMENTS   more arguments for QEMU
    PARAMETERS  more parameters for the kernel
    INSTALL     whether crustd is installed (it is not started)

    What a failed test's node printed and logged is shown.
    """

    DISKS: dict = {}
    MEMORY = 3072
    ARGUMENTS: tuple = ()
    PARAMETERS = ""
    INSTALL = True
    node: Node

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.get_programs()
        scratch = cls.enterClassContext(tempfile.TemporaryDirectory(
            prefix="crust-node-", ignore_cleanup_errors=True))
        try:
            image = get_image()
        except ImageError as error:
            if os.geteuid() != 0:
                raise unittest.SkipTest(str(error)) from None
            raise
        cls.node = cls.enterClassContext(Node(
            scratch, image, disks=cls.DISKS, memory=cls.MEMORY, arguments=cls.ARGUMENTS,
            parameters=cls.PARAMETERS))
        try:
            cls.node.start()
            if cls.INSTALL:
                cls.node.install()
            cls.prepare()
        except BaseException:
            print(cls.node.report(), file=sys.stderr)
            cls._note_failure()
            raise

    @classmethod
    def get_programs(cls):
        """Builds what the class brings to the node, before that boots; raises SkipTest where it cannot."""

    @classmethod
    def prepare(cls):
        """What all tests of the class need of cls.node."""

    def run(self, result=None):
        before = self._failures(result)
        super().run(result)
        if self._failures(result) > before and getattr(self, "node", None):
            print(f"\n{self.id()} failed; the node:\n{self.node.report()}", file=sys.stderr)
            self._note_failure()
            if self.node.failure:
                result.stop()
        return result

    @classmethod
    def _note_failure(cls):
        """Where the node's kernel has failed, the module has another try, once."""
        if cls.node.failure:
            module_runner.ask_for_another_try(f"the node's kernel has failed: {cls.node.failure}")

    @staticmethod
    def _failures(result):
        return len(result.failures) + len(result.errors) if result else 0
