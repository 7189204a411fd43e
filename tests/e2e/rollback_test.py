# SPDX-License-Identifier: Apache-2.0
"""This release after the previous one, and the previous one after this: the previous release's own
programs, built from the history."""

import contextlib
import sqlite3
import subprocess

import previous_release
from node import BUILD, REPOSITORY
from scratch_node import ScratchNodeTest, publish_path

FIRST, SECOND = publish_path("pv-first"), publish_path("pv-second")
USAGE, REFUSED = 2, 4


class RollbackTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        self.previous = previous_release.build()
        self.host = self.node()
        self.host.settings = {"resize.sweep_seconds": 2}  # what both know
        self.host.configure()
        self.place = self.host.root / "var/lib/crustd"
        self.database = self.place / "crustd.db"
        self.host.stage(FIRST, "/dev/none", options=["noatime"])

    def start(self, programs):
        self.host.programs = programs
        self.host.start()

    def switch(self, programs, *paths):
        """Stops one program, starts the other; both see these volumes."""
        self.host.stop()
        self.start(programs)
        for path in paths:
            self.host.wait_for(path, "unbound")

    def ran(self, programs, *arguments):
        return subprocess.run([str(programs / "crustd"), "--root", str(self.host.root), *arguments],
                              capture_output=True, text=True, timeout=60)

    def set_aside(self):
        return sorted(path.name for path in self.place.iterdir() if "corrupt" in path.name)

    def kinds(self, volume_id):
        return [row["kind"] for row in self.host.query(
            f"SELECT kind FROM audit_journal WHERE volume_id = {volume_id} ORDER BY seq")]

    def minor(self):
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_minor'"
                                      ).fetchone():
                return 0
            return connection.execute("SELECT version FROM schema_minor").fetchone()[0]

    def test_upgrade_keeps_the_history(self):
        self.start(self.previous)
        first = self.host.wait_for(FIRST, "unbound")
        self.assertEqual(self.minor(), 0)
        self.switch(BUILD, FIRST)
        self.assertGreater(self.minor(), 0)
        row = self.host.volume(FIRST)
        self.assertEqual((row["volume_id"], row["first_seen"]),
                         (first["volume_id"], first["first_seen"]))
        self.assertEqual(self.kinds(1)[0], "volume_added")
        self.assertEqual(self.set_aside(), [])

    def test_upgrade_after_a_kill(self):
        """The data that the previous release left in its WAL is there."""
        self.start(self.previous)
        self.host.wait_for(FIRST, "unbound")
        self.host.kill()
        self.start(BUILD)
        self.host.wait_for(FIRST, "unbound")
        self.assertEqual(self.kinds(1)[0], "volume_added")
        self.assertEqual(self.set_aside(), [])

    def test_rollback_sets_the_database_aside(self):
        """The previous release starts, finds the present anew, and the history is in the file that
        it set aside. This release goes on with the new file, and leaves that one alone."""
        self.start(BUILD)
        self.host.wait_for(FIRST, "unbound")
        self.switch(self.previous, FIRST)
        self.assertEqual(self.set_aside()[0], "crustd.db.corrupt-1")
        with contextlib.closing(sqlite3.connect(self.place / "crustd.db.corrupt-1")) as old:
            self.assertEqual(old.execute("SELECT count(*) FROM audit_journal"
                                         " WHERE kind = 'volume_added'").fetchone(), (1,))
            content = old.execute("SELECT count(*), max(seq) FROM audit_journal").fetchone()
        self.host.stage(SECOND, "/dev/none")
        self.host.wait_for(SECOND, "unbound")
        self.switch(BUILD, FIRST, SECOND)
        self.assertEqual(self.kinds(self.host.volume(SECOND)["volume_id"])[0], "volume_added")
        with contextlib.closing(sqlite3.connect(self.place / "crustd.db.corrupt-1")) as old:
            self.assertEqual(old.execute("SELECT count(*), max(seq) FROM audit_journal").fetchone(),
                             content)

    def test_configuration_goes_both_ways(self):
        """Each program starts with the file that the other one ships. What the previous one does not
        know it refuses with an exit code after which systemd leaves it alone."""
        shipped = self.host.root / "etc/crustd/crustd.conf"
        for source, programs in ((previous_release.source(), BUILD), (REPOSITORY, self.previous)):
            shipped.write_text((source / "config/crustd.conf").read_text())
            done = self.ran(programs, "--check-config")
            self.assertEqual(done.returncode, 0, done.stderr)
        every_key = self.ran(self.previous, "--check-config").stdout
        shipped.write_text(every_key)  # what an administrator may have set, all of it
        done = self.ran(BUILD, "--check-config")
        self.assertEqual(done.returncode, 0, done.stderr)
        shipped.write_text("[metrics]\nlisten = 127.0.0.1:9825\n")
        done = self.ran(self.previous)
        self.assertEqual(done.returncode, USAGE, done.stderr)
