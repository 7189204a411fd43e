# SPDX-License-Identifier: Apache-2.0
"""The database's disk fails while volumes grow: full, read-only, broken, its file removed, replaced,
overwritten or locked. crustd executes itself anew, as the same process. Each resize comes to its end, crustd says what is wrong and what to do, and
once that is done the file has the end state.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess

from lost import Attached
from node import NodeError
from scratch_node import BEFORE, MIB, ScratchNodeTest, publish_path, status

SECONDS = 90  # some more than the longest pause between two attempts
FAILED, NOT_NOW = 1, 6
SPACE = 2 * MIB


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True)


class Degraded(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        self.host = self.node({"resize.sweep_seconds": 1})
        self.place = self.host.path("/var/lib/crustd")
        self.database = self.place / "crustd.db"
        for number in range(3):  # so that ids differ in another store
            self.host.stage(publish_path(f"before-{number}"), "/dev/before")
        self.grown = self.volume(self.host)
        _, self.vmm, self.guest = self.equip(self.host, self.grown)

    def wait(self, condition, seconds, what):
        """While crustd executes itself anew, nobody answers for a moment."""
        def holds():
            try:
                return condition()
            except NodeError:
                return None

        return self.host.wait(holds, seconds, what)

    def resync(self):
        self.wait(lambda: self.host.crustctl("resync"), SECONDS, "an answer")

    def mount_space(self, size=SPACE):
        self.mount_for_the_test("-t", "tmpfs", "-o", f"size={size},mode=700", "none", self.place)

    def fill(self):
        """Leaves no room at all."""
        with open(self.place / "filler", "wb", buffering=0) as filler, \
                contextlib.suppress(OSError):
            while True:
                filler.write(b"x" * 4096)

    def free(self):
        (self.place / "filler").unlink()

    def start(self):
        """With a database that has something to lose."""
        self.host.start()
        self.host.wait_for(self.grown.path, "in_sync", hypervisor_bytes=self.grown.loop.size)
        for number in range(3):
            self.host.unstage(publish_path(f"before-{number}"))
            self.host.wait_for(publish_path(f"before-{number}"), "unmanaged", status="removed")

    def shown(self, volume=None):
        """The row as the daemon has it."""
        done = self.host.crustctl("volumes", "-o", "json")
        return {row["target_path"]: row for row in json.loads(done.stdout)
                if row["status"] != "removed"}.get((volume or self.grown).path, {})

    def restarts(self):
        """How often crustd executed itself anew, in the process that was started."""
        self.assertIsNone(self.host.process.poll())
        return self.host.log.read_text().count("executes itself anew")

    def children(self):
        pid = self.host.process.pid
        done = subprocess.run(["ps", "-o", "stat=,comm=", "--ppid", str(pid)],
                              capture_output=True, text=True)
        return [line.split() for line in done.stdout.splitlines()]

    def grow(self):
        """The guest has it, and the daemon says so: wherever it keeps what it knows."""
        size = self.grown.loop.size + 4 * MIB
        self.grown.loop.resize(size)
        self.wait(lambda: self.is_grown(self.shown()), SECONDS, f"the resize to {size}")
        self.assertEqual(self.vmm.drives[0].size, size)
        self.assertEqual(self.guest.stats.total, size)

    def is_grown(self, row):
        size = self.grown.loop.size
        row = row or {}
        return (row.get("state"), row.get("device_bytes"), row.get("hypervisor_bytes"),
                row.get("guest_bytes")) == ("in_sync", size, size, size)

    def wait_memory(self, *words):
        self.wait(lambda: status(self.host).get("database") == "memory", SECONDS,
                       "the daemon to work in memory")
        self.wait(lambda: status(self.host).get("synced"), SECONDS, "the scan")
        health = self.host.crustctl("health", check=False)
        self.assertEqual(health.returncode, FAILED)
        for word in ("the database fails", "from memory", *words):
            self.assertIn(word, health.stderr)
        self.assertIn("degraded", self.host.crustctl("status").stdout)
        self.assertIn("crustd.db is old", self.host.crustctl("journal").stderr)

    def missing(self):
        """What the file's journal says about history that it does not have."""
        return [json.loads(row["detail"]) for row in self.host.query(
            "SELECT detail FROM audit_journal WHERE kind = 'history_missing' ORDER BY seq")]

    def wait_healed(self):
        """Back in the file, which then has the present."""
        self.resync()
        line = self.wait(self.missing, SECONDS, "the file's return")[-1]
        self.assertRegex(line["since"], r"^20\d\d-")
        self.assertTrue(line["reason"])
        self.wait(lambda: self.is_grown(self.host.volume(self.grown.path)), SECONDS,
                       "the end state on record")
        self.wait(lambda: status(self.host).get("database") == "file", SECONDS, "the file in use")
        self.wait(lambda: self.host.crustctl("health", check=False).returncode == 0, SECONDS,
                       "the first scan")
        self.assertEqual(self.host.crustctl("journal").stderr, "")
        self.assertEqual(self.host.query("PRAGMA integrity_check"), [{"integrity_check": "ok"}])
        self.assertEqual(self.host.query("SELECT * FROM audit_resizes WHERE finished_at IS NULL"),
                         [])
        self.grow()
        self.wait(lambda: self.is_grown(self.host.volume(self.grown.path)), SECONDS,
                       "a resize on record")


class Full(Degraded):

    def test_while_running(self):
        self.mount_space()
        self.start()
        self.fill()
        self.grow()
        self.wait_memory("free space")
        self.grow()
        self.free()
        self.wait(self.missing, SECONDS, "the file's return")  # nobody has to ask for it
        self.wait_healed()
        self.assertEqual(self.restarts(), 2)

    def test_restore(self):
        """Only the file records what is in the trash."""
        self.mount_space()
        self.start()
        self.fill()
        self.grow()
        self.wait_memory()
        done = self.host.crustctl("restore", "1", check=False)
        self.assertEqual(done.returncode, NOT_NOW, done.stderr)
        self.assertIn("the database is not on disk", done.stderr)
        self.free()
        self.resync()
        self.wait(lambda: status(self.host).get("database") == "file", SECONDS, "the file")
        done = self.host.crustctl("restore", "1", check=False)
        self.assertIn("there is no cleanup 1", done.stderr)

    def test_at_start(self):
        self.mount_space()
        self.fill()
        self.host.start()
        self.wait_memory("free space")
        self.grow()
        self.free()
        self.wait_healed()

    def test_once(self):
        """Work that is due is done but cannot be recorded, and crustd says so."""
        self.mount_space()
        self.fill()
        self.grown.loop.resize(BEFORE + MIB)
        done = subprocess.run(self.host.command("--once"), capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertEqual(self.guest.stats.total, BEFORE + MIB)
        self.assertIn("free space", done.stderr)

    def test_with_a_call_in_flight(self):
        """Its answer belongs to nobody any more; its volume is resized all the same."""
        other = self.volume(self.host, "other")
        vmm = self.host.start_vmm("b" * 64)
        self.host.add_sandbox("b" * 64, vmm.pid, agent="unix:///other.sock",
                              drives=[other.record()])
        self.host.record(other.path, "b" * 64)
        self.monitor(self.host, other, sandbox_id="b" * 64)
        guest = self.agent(self.host, "other.sock")
        self.mount_space()
        self.start()
        self.host.wait_for(other.path, "in_sync")
        asked = len(guest.requests)
        guest.behave("ResizeVolume", "delay=5,ok", "ok")
        other.loop.resize(BEFORE + MIB)
        guest.wait_for_requests(asked + 1, 60)
        self.fill()
        self.grow()
        self.wait_memory()
        self.wait(lambda: self.shown(other).get("state") == "in_sync", SECONDS, "the other")
        self.assertEqual(self.shown(other)["hypervisor_bytes"], BEFORE + MIB)
        self.assertTrue(self.is_grown(self.shown()))
        self.free()
        self.wait_healed()
        self.host.wait_for(other.path, "in_sync", hypervisor_bytes=BEFORE + MIB)


class Broken(Degraded):

    def test_input_output_errors(self):
        """Whatever SQLite writes fails."""
        self.start()
        with Attached(self.host.process.pid, ["-e", "trace=pwrite64",
                                              "-e", "inject=pwrite64:error=EIO"]):
            self.grow()
            self.wait_memory("I/O error", "kernel's log")
        self.wait_healed()

    def test_one_error(self):
        """The file is reopened, and nothing is lost."""
        self.start()
        with Attached(self.host.process.pid, ["-e", "trace=pwrite64",
                                              "-e", "inject=pwrite64:error=EIO:when=1"]):
            self.grow()
        self.assertEqual(status(self.host)["database"], "file")
        self.assertIn("is being reopened", self.host.log_tail())
        self.assertEqual(
            self.host.query("SELECT * FROM audit_journal WHERE kind = 'history_missing'"), [])
        self.assertEqual(len(self.host.query("SELECT * FROM audit_resizes")), 1)
        self.assertEqual(self.restarts(), 1)
        self.assertEqual(sorted(name for _, name in self.children()), ["crustd-nursery", "crustd-reader"])
        self.host.wait(lambda: "Z" not in "".join(state for state, _ in self.children()), 10, "no child to stay")

    def test_file_size_limit(self):
        """A signal that would end the daemon, were it not an error only."""
        self.start()
        limit = ["prlimit", "--pid", str(self.host.process.pid)]
        run(*limit, "--fsize=8192:unlimited")
        self.grow()
        self.wait_memory()
        run(*limit, "--fsize=unlimited:unlimited")
        self.wait_healed()

    def test_file_system_that_loses_its_disk(self):
        """ext4 on a file that can hold no more: errors, then read-only; another is mounted later."""
        below = self.scratch / "below"
        self.mount_for_the_test("-t", "tmpfs", "-o", "size=3m", "none", below)
        with open(below / "image", "wb") as image:
            image.truncate(32 * MIB)
        run("mkfs.ext4", "-q", "-b", "1024", "-J", "size=1", "-E", "lazy_itable_init=1",
            below / "image")
        self.mount_for_the_test("-o", "loop,errors=remount-ro", below / "image", self.place)
        self.start()
        with open(below / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"x" * 4096)
        with contextlib.suppress(OSError):
            (self.place / "dirt").write_bytes(b"x" * MIB)
            os.sync()
        self.grow()
        self.wait_memory()
        self.grow()
        run("umount", "--lazy", self.place)
        self.wait_healed()


class Elsewhere(Degraded):
    """The file is not what it was."""

    def test_removed(self):
        self.start()
        self.database.unlink()
        self.grow()
        self.wait(self.database.exists, SECONDS, "a new file")
        self.wait_healed()

    def test_removed_twice(self):
        """A file that fails soon after a restart is left alone for a while: nothing loops."""
        self.start()
        self.database.unlink()
        self.wait(lambda: self.restarts() == 1 and self.database.exists(), SECONDS, "a new file")
        self.wait(lambda: status(self.host).get("synced"), SECONDS, "the scan")
        self.database.unlink()
        self.wait_memory("failed again")
        self.assertFalse(self.database.exists())
        self.grow()
        self.assertEqual(self.restarts(), 2)
        self.wait_healed()
        self.assertEqual(self.restarts(), 3)

    def test_as_the_first_process(self):
        """As in a container."""
        health = lambda: self.host.crustctl("health", check=False).returncode == 0
        with subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", *self.host.command()],
                              stderr=subprocess.PIPE, text=True) as process:
            try:
                self.wait(health, SECONDS, "the first scan")
                self.database.unlink()
                self.wait(lambda: self.database.exists() and health(), SECONDS, "a new file")
                self.assertTrue(self.missing())
                inside = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)],
                                        capture_output=True, text=True).stdout.split()
                self.assertEqual(len(inside), 1)
                os.kill(int(inside[0]), signal.SIGTERM)
                self.assertEqual(process.wait(SECONDS), 0)
                self.assertIn("executes itself anew", process.stderr.read())
            finally:
                process.kill()

    def test_a_stop_that_comes_with_the_restart(self):
        self.start()
        for _ in range(3):
            self.database.unlink()
            self.host.process.send_signal(signal.SIGHUP)  # sweeps
            self.assertEqual(self.host.stop(), 0)
            self.host.start()

    def test_directory_removed(self):
        self.start()
        shutil.rmtree(self.place)
        self.grow()
        self.wait(self.database.exists, SECONDS, "a new file")
        self.wait_healed()

    def test_overwritten(self):
        """In place, under the daemon's open file."""
        garbage = os.urandom(64 * 1024)
        self.start()
        with open(self.database, "r+b") as file:
            file.write(garbage)
            file.truncate()
        self.wait(lambda: (self.place / "crustd.db.corrupt-1").exists(), SECONDS,
                       "the damaged file to be set aside")
        self.assertEqual((self.place / "crustd.db.corrupt-1").read_bytes(), garbage)
        self.grow()
        self.wait_healed()

    def put_in_its_place(self, make):
        other = self.scratch / "other.db"
        connection = sqlite3.connect(other)
        make(connection)
        connection.commit()
        connection.close()
        contents = other.read_bytes()
        shutil.copyfile(other, self.place / "other.db")
        os.rename(self.place / "other.db", self.database)
        return contents

    def left_alone(self, make, *words):
        self.start()
        contents = self.put_in_its_place(make)
        self.grow()
        self.wait_memory(*words)
        self.resync()
        self.grow()
        self.wait_memory(*words)
        self.assertEqual(self.database.read_bytes(), contents)
        self.assertEqual([p.name for p in self.place.iterdir() if "corrupt" in p.name], [])
        self.database.rename(self.scratch / "moved-away")
        self.wait_healed()

    def test_replaced_by_another_application(self):
        self.left_alone(lambda connection: connection.execute("CREATE TABLE precious (a)"),
                        "another application", "move that away")

    def test_replaced_by_a_newer_one(self):
        def make(connection):
            connection.execute(f"PRAGMA application_id = {0x43525354}")
            connection.execute("PRAGMA user_version = 4711")
            connection.execute("CREATE TABLE newer (a)")

        self.left_alone(make, "newer version", "upgrade crustd")

    def test_replaced_by_an_older_copy(self):
        """A backup is brought back: what it knows is taken up."""
        self.start()
        copy = self.scratch / "copy.db"
        run("sqlite3", "-readonly", self.database, f".backup {copy}")
        self.grow()
        shutil.copyfile(copy, self.place / "copy.db")
        os.rename(self.place / "copy.db", self.database)
        self.grow()
        self.wait_healed()

    def test_covered_by_a_read_only_file_system(self):
        """Mounted over, as a node's root that was remounted read-only; then uncovered."""
        self.start()
        cover = self.scratch / "cover"
        shutil.copytree(self.place, cover)
        self.mount_for_the_test("--bind", cover, self.place)
        run("mount", "-o", "remount,bind,ro", self.place)
        self.grow()
        self.wait_memory("writable")
        self.grow()
        run("umount", "--lazy", self.place)  # its lock is held there
        self.wait_healed()

    def test_read_only_at_start(self):
        self.mount_space()
        run("mount", "-o", "remount,ro", self.place)
        self.host.start()
        self.wait_memory("make its file system writable")
        self.grow()
        run("mount", "-o", "remount,rw", self.place)
        self.wait_healed()

    def test_locked_by_another_program(self):
        self.start()
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            self.grow()
            self.wait_memory("locked", "end the program")
            writer.execute("ROLLBACK")
        self.wait_healed()

    def test_another_daemon_took_the_place(self):
        """The directory was made anew, and its lock is another's: two do not write."""
        self.start()
        shutil.rmtree(self.place)
        self.place.mkdir(mode=0o700)
        with subprocess.Popen(["flock", self.place, "cat"], stdin=subprocess.PIPE) as holder:
            self.grow()
            self.wait_memory("another crustd", "end the other")
            holder.stdin.close()
            holder.wait(SECONDS)
        self.wait_healed()
