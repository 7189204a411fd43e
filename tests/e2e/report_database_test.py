# SPDX-License-Identifier: Apache-2.0
"""What stands at the database's place when crustd starts, who reads it meanwhile, and what is wrong
with a configuration.
"""

import contextlib
import hashlib
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import threading

from node import NodeError
from scratch_node import AFTER, ScratchNodeTest, publish_path

APPLICATION_ID = 0x43525354
FAILED, USAGE, LOCKED, REFUSED = 1, 2, 3, 4
UNREACHABLE = 4  # of crustctl


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir() if path.is_file()}


class DatabaseTest(ScratchNodeTest):

    def build(self):
        node = self.node()
        self.path = publish_path("pv")
        self.place = node.root / "var/lib/crustd"
        self.database = self.place / "crustd.db"
        node.stage(self.path, "/dev/good")
        return node

    def change(self, *statements):
        """What another program does to the file; it is in the file then, and not in the log."""
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def filled(self):
        """A node whose database has rows, and no daemon."""
        node = self.build()
        node.start()
        node.wait_for(self.path, "unbound")
        self.assertEqual(node.stop(), 0)
        return node

    def refused(self, node, *words, more=False):
        """The files are as they were; more: beside them may be SQLite's own of the log that it read."""
        before = digests(self.place)
        node.start(ready=False)
        self.assertEqual(node.process.wait(60), REFUSED)
        node.process = None
        for word in words:
            self.assertIn(word, node.log_tail())
        after = digests(self.place)
        self.assertEqual({name: after.get(name) for name in before} if more else after, before)

    def set_aside(self, node, contents):
        """crustd begins anew, and what stood there is kept as it was."""
        node.start()
        node.wait_for(self.path, "unbound", device="/dev/good")
        self.assertIn("set aside", node.log_tail())
        self.assertEqual((self.place / "crustd.db.corrupt-1").read_bytes(), contents)
        self.assertEqual(node.query("PRAGMA quick_check"), [{"quick_check": "ok"}])
        self.assertEqual(node.query("PRAGMA application_id"), [{"application_id": APPLICATION_ID}])

    def test_new(self):
        node = self.build()
        node.start()
        node.wait_for(self.path, "unbound")
        self.assertEqual(stat.S_IMODE(self.database.stat().st_mode), 0o640)
        self.assertEqual(node.query("PRAGMA application_id"), [{"application_id": APPLICATION_ID}])
        self.assertEqual(node.query("PRAGMA journal_mode"), [{"journal_mode": "wal"}])
        self.assertEqual([p.name for p in self.place.iterdir() if "corrupt" in p.name], [])

    def test_empty_file(self):
        node = self.build()
        self.database.touch()
        node.start()
        node.wait_for(self.path, "unbound")

    def test_garbage(self):
        for contents in (b"x", b"\0" * 4096, os.urandom(8192), b"SQLite format 3\0", b"\x7fELF" * 99):
            with self.subTest(contents[:16]):
                node = self.build()
                self.database.write_bytes(contents)
                self.set_aside(node, contents)
                node.stop()

    def test_damaged_in_the_middle(self):
        for offset, bytes_ in ((4096, b"\xff" * 4096), (100, b"\xff" * 200)):
            with self.subTest(offset):
                node = self.filled()
                self.change()
                with open(self.database, "r+b") as file:
                    file.seek(offset)
                    file.write(bytes_)
                self.set_aside(node, self.database.read_bytes())
                node.stop()

    def test_cut(self):
        node = self.filled()
        self.change()
        os.truncate(self.database, self.database.stat().st_size // 2 // 4096 * 4096)
        self.set_aside(node, self.database.read_bytes())

    def test_only_two_damaged_ones_are_kept(self):
        node = self.build()
        for number in range(4):
            self.database.write_bytes(b"damaged %d" % number)
            node.start()
            node.wait_for(self.path, "unbound")
            node.stop()
            for name in ("crustd.db-wal", "crustd.db-shm"):
                (self.place / name).unlink(missing_ok=True)
        kept = sorted(path.name for path in self.place.iterdir()
                      if path.name.startswith("crustd.db.corrupt") and path.name[-1].isdigit())
        self.assertEqual(kept, ["crustd.db.corrupt-3", "crustd.db.corrupt-4"])

    def test_of_another_application(self):
        for application_id in (0, 0x12345678):
            with self.subTest(application_id):
                node = self.build()
                self.change(f"PRAGMA application_id = {application_id}", "CREATE TABLE precious (a)")
                self.refused(node, "belongs to another application")

    def test_history_beyond_its_bound(self):
        """The first part of it is enough to begin, however much there is."""
        node = self.filled()
        self.change("WITH RECURSIVE line(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM line WHERE n < 5000)"
                    " INSERT INTO journal (at, kind) SELECT 1800000000000, 'line' FROM line")
        node.configure(history__max_rows=1000, resize__sweep_seconds=3600)
        node.start()
        node.process.send_signal(signal.SIGHUP)  # sweeps
        node.wait(lambda: node.query("SELECT count(*) AS n FROM audit_journal")[0]["n"] <= 1000,
                  60, "the journal to be cut")

    def test_newer(self):
        node = self.filled()
        self.change("PRAGMA user_version = 4711")
        self.refused(node, "newer version")
        self.assertNotEqual(node.crustctl("volumes", check=False).returncode, 0)

    def test_newer_in_the_log_only(self):
        """The version was raised by a commit that is still in the WAL."""
        node = self.filled()
        connection = sqlite3.connect(self.database)
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA user_version = 4711")
        connection.commit()
        copy = self.scratch / "copy"
        copy.mkdir()
        for name in ("crustd.db", "crustd.db-wal"):
            (copy / name).write_bytes((self.place / name).read_bytes())
        connection.close()
        for path in list(self.place.iterdir()):
            path.unlink()
        for path in copy.iterdir():
            (self.place / path.name).write_bytes(path.read_bytes())
        self.refused(node, "newer version", more=True)

    def test_a_directory_in_its_place(self):
        node = self.build()
        self.database.mkdir()
        self.refused(node)
        self.assertTrue(self.database.is_dir())

    def test_second_instance(self):
        node = self.build()
        node.start()
        second = subprocess.run(node.command(), capture_output=True, text=True, timeout=60)
        self.assertEqual(second.returncode, LOCKED, second.stderr)
        self.assertIn("another crustd holds", second.stderr)
        node.wait_for(self.path, "unbound")

    def test_stops_while_another_writes(self):
        """The next daemon finds out again what the guest answered meanwhile."""
        node, volume = self.node_with_volume()
        _, _, agent = self.equip(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync")
        asked = len(agent.requests)
        agent.behave("ResizeVolume", "delay=2,ok")
        volume.loop.resize(AFTER)
        agent.wait_for_requests(asked + 1, 60)
        with contextlib.closing(sqlite3.connect(node.path("/var/lib/crustd/crustd.db"),
                                                isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            self.assertEqual(node.stop(), 0)
            writer.execute("ROLLBACK")
        agent.behave("ResizeVolume", "ok")
        node.start()
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=AFTER)

    def test_hammering_reader(self):
        """No read fails, none sees half of a commit, and the writer is not held up."""
        node = self.build()
        node.start()
        done, failures, reads = threading.Event(), [], [0]
        sql = ("SELECT (SELECT count(*) FROM audit_volumes) - (SELECT count(*) FROM audit_journal"
               " WHERE kind = 'volume_added') AS difference,"
               " (SELECT count(*) FROM audit_volumes WHERE state IS NULL) AS stateless")

        def hammer():
            while not done.is_set():
                try:
                    row, = node.query(sql)
                    reads[0] += 1
                except NodeError as error:
                    failures.append(str(error))
                    continue
                if row["difference"] or row["stateless"]:
                    failures.append(row)

        readers = [threading.Thread(target=hammer) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for number in range(500):
                path = f"/hammered/{number}"
                node.stage(path, "/dev/good")
                if number % 3 == 0:
                    node.unstage(path)
            left = "SELECT count(*) AS n FROM audit_volumes WHERE status = 'present'"
            node.wait(lambda: node.query(left) == [{"n": 500 - 167 + 1}], 120, "all to be recorded")
            seen = reads[0]
            node.wait(lambda: reads[0] > seen + 4, 60, "some reads more")
        finally:
            done.set()
            for reader in readers:
                reader.join()
        self.assertEqual(failures[:3], [])
        self.assertEqual(node.query("PRAGMA integrity_check"), [{"integrity_check": "ok"}])

    def test_long_reader(self):
        """A reader that keeps its transaction sees one moment, and the daemon goes on."""
        node = self.build()
        node.start()
        node.wait_for(self.path, "unbound")
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        self.addCleanup(connection.close)
        connection.execute("BEGIN")
        count = "SELECT count(*) FROM audit_volumes"
        self.assertEqual(connection.execute(count).fetchone(), (1,))
        other = publish_path("pv-other")
        node.stage(other, "/dev/other")
        node.wait_for(other, "unbound")
        self.assertEqual(connection.execute(count).fetchone(), (1,))
        connection.rollback()
        self.assertEqual(connection.execute(count).fetchone(), (2,))


CONFIGURATIONS = {
    "unknown key": ("[resize]\nmode = grow\nmod = grow\n", 3, "resize.mod: unknown key"),
    "unknown section": ("[resise]\nmode = grow\n", 2, "[resise]: unknown section"),
    "no section": ("mode = grow\n", 1, "mode: "),
    "no word": ("[resize]\nmode = sometimes\n", 2, "resize.mode: "),
    "grow a file": ("[resize]\nfile_backed = grow\n", 2, "resize.file_backed: grow is refused"),
    "no number": ("[resize]\n\nparallel = many\n", 3, "resize.parallel: "),
    "too small": ("[resize]\nparallel = 0\n", 2, "resize.parallel: "),
    "too large": ("[resize]\ncall_timeout_seconds = 100000\n", 2, "resize.call_timeout_seconds: "),
    "negative": ("[cleanup]\ngrace_seconds = -1\n", 2, "cleanup.grace_seconds: "),
    "given twice": ("[cleanup]\nmode = off\nmode = off\n", 3, "cleanup.mode: was given in line 2"),
    "relative path": ("[paths]\nkata_volumes = run/x\n", 2, "paths.kata_volumes: "),
    "empty path": ("[paths]\ndatabase =\n", 2, "paths.database: "),
    "unknown route": ("[agent]\nroutes = agent, door\n", 2, "agent.routes: "),
    "route twice": ("[agent]\nroutes = agent, agent\n", 2, "agent.routes: "),
    "no port": ("[agent]\nport = 4294967295\n", 2, "agent.port: "),
    "no group": ("[paths]\nsocket_group = a:b\n", 2, "paths.socket_group: "),
    "no assignment": ("[resize]\nmode grow\n", 2, "neither"),
    "no address": ("[http]\nlisten = nowhere\n", 2, "http.listen: "),
    "a NUL": ("[resize]\nmode = gr\0ow\n", 2, "a NUL byte"),
    "long line": ("[resize]\nmode = " + "x" * 70000 + "\n", 2, ""),
}


class ConfigurationTest(ScratchNodeTest):

    def check_config(self, node, *arguments):
        return subprocess.run(node.command("--check-config", *arguments), capture_output=True, text=True, timeout=60)

    def test_errors_name_file_line_and_key(self):
        node = self.node()
        for name, (text, line, words) in CONFIGURATIONS.items():
            with self.subTest(name):
                file = self.scratch / "some.conf"
                file.write_text(text)
                done = self.check_config(node, "--config", str(file))
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn(f"{file}:{line}: {words}", done.stderr)
                self.assertEqual(done.stdout, "")
                ran = subprocess.run(node.command("--config", str(file)), capture_output=True, text=True, timeout=60)
                self.assertEqual((ran.returncode, ran.stderr), (USAGE, done.stderr))
                shown = node.crustctl("--config", str(file), "volumes", check=False)
                self.assertEqual(shown.returncode, UNREACHABLE)  # it goes on without the file
                self.assertIn(f"{file}:{line}: {words}", shown.stderr)
        self.assertEqual(list((node.root / "var/lib/crustd").iterdir()), [])

    def test_a_group_that_this_machine_has_not(self):
        node = self.node({"paths.socket_group": "no-such-group"})
        self.assertEqual(self.check_config(node).returncode, 0)  # another machine may have it
        done = subprocess.run(node.command(), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertIn("paths.socket_group: there is no group", done.stderr)

    def test_localhost(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        self.running_node({"http.listen": f"localhost:{port}"})
        done = subprocess.run(["curl", "--silent", "--max-time", "60",
                               f"http://127.0.0.1:{port}/healthz"],
                              capture_output=True, text=True)
        self.assertEqual(done.stdout, "ok\n")

    def test_good_ones(self):
        node = self.node()
        done = self.check_config(node)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sweep_seconds = 2", done.stdout)
        file = self.scratch / "printed.conf"
        file.write_text(done.stdout)
        again = self.check_config(node, "--config", str(file))
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout))
        (node.root / "etc/crustd/crustd.conf").unlink()
        self.assertEqual(self.check_config(node).returncode, 0)
        gone = self.check_config(node, "--config", "/nonexistent.conf")
        self.assertEqual(gone.returncode, USAGE)
        self.assertIn("/nonexistent.conf", gone.stderr)

    def test_a_bad_one_on_hangup_changes_nothing(self):
        node = self.node()
        path = publish_path("pv")
        node.start()
        node.configure(resize__mode="sometimes")
        node.process.send_signal(1)
        node.wait(lambda: "the configuration stays as it was" in node.log_tail(), 60, "the refusal")
        self.assertIn("crustd.conf:", node.log_tail())
        self.assertIn("resize.mode: ", node.log_tail())
        node.configure(resize__mode="grow")
        node.stage(path, "/dev/good")
        node.wait_for(path, "unbound")
        node.configure(resize__mode="never")
        node.process.send_signal(1)
        node.wait_for(path, "unmanaged", "policy")

    def test_usage(self):
        node = self.node()
        for arguments, said in ((["--nonsense"], "Try 'crustd --help'."), (["--root"], "Try 'crustd --help'."),
                                (["--log-level", "loud"], "crustd: --log-level: unknown value loud"),
                                (["--log-format", "xml"], "crustd: --log-format: unknown value xml"),
                                (["--once", "now"], "crustd: unexpected argument now"), (["--root", "/nonexistent"], ":")):
            with self.subTest(arguments):
                done = subprocess.run(node.command(*arguments), capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn(said, done.stderr)
