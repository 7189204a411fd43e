# SPDX-License-Identifier: Apache-2.0
"""Killed before any one of its syscalls, or with that one failed, crustd loses nothing of what it cleans
up: at every moment the metadata is in its place, or in the trash with a row that tells of it. Started
again it comes to the same end, and what was removed is put back byte for byte.

Each point has a node of its own, because a cleanup takes its time to settle; many settle at once.
"""

import concurrent.futures
import contextlib
import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import unittest

from cleanups import CANARY, SETTINGS, path_of
from lost import (SECONDS, STATUSES, SWEEP_SECONDS, Attached, LostTest, failures, points, report, rows, sweep,
                  traced, wait)
from node import VOLUMES, Node, encode

AT_ONCE = 32  # points; most of their time they wait
DEAD = secrets.token_hex(32)  # no process has it in its arguments
PATH = path_of("pv")
TRASH = "run/kata-containers/shared/.crust-trash"
WRITES, SYNCS = {"pwrite64"}, {"fsync", "fdatasync"}
TEXT = b'{"volume-type":"block","device":"/dev/none","fstype":"ext4","metadata":{"secret":"xyzzy"},' \
       b'"options":[]}\n'


class LeftBehind:
    """A node on which a pod that is gone left its metadata."""

    def __init__(self, scratch, settings=None):
        scratch.mkdir()
        self.scratch = scratch
        self.node = Node(scratch, SETTINGS | (settings or {}))
        for name in ("run/crust", f"var/lib/kubelet/pods/{CANARY}"):
            (self.node.root / name).mkdir(parents=True)
        directory = self.node.stage(PATH, "/dev/none", text=TEXT.decode())
        os.chmod(directory / "mountInfo.json", 0o640)
        self.node.record(PATH, DEAD)
        self.before = self.look(directory)
        self.database = self.node.root / "var/lib/crustd/crustd.db"

    def close(self):
        self.node.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def run_once(self, inject=(), trace="/dev/null"):
        """crustd --once, under strace if asked to; returns its status."""
        strace = traced(trace, *inject) if inject or trace != "/dev/null" else []
        with open(self.node.log, "ab") as log:
            return subprocess.run(strace + self.node.command("--once"), stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL, timeout=SECONDS).returncode

    # -- where it is

    @staticmethod
    def look(directory):
        """All that there is to a metadata directory."""
        files = {}
        for file in sorted(directory.iterdir()):
            st = file.stat()
            files[file.name] = (file.read_bytes(), st.st_mode, st.st_uid, st.st_ino, st.st_mtime_ns)
        return directory.stat().st_ino, directory.stat().st_mode, files

    def rows(self, sql):
        try:
            return rows(self.database, sql)
        except sqlite3.OperationalError:  # there is no database yet, or no schema in it
            return []

    def in_trash(self):
        """What the trash holds of the volume: {name: directory}."""
        trash = self.node.root / TRASH
        names = os.listdir(trash) if trash.exists() else []
        return {name: trash / name / encode(PATH) for name in names
                if (trash / name / encode(PATH)).exists()}

    def whereabouts(self):
        """"place" or the step of its row; raises an error if it is nowhere, or in doubt. A daemon
        that runs may be moving it between two looks."""
        for _ in range(2):
            with contextlib.suppress(AssertionError, ValueError, FileNotFoundError):
                return self.look_for_it()
        return self.look_for_it()

    def look_for_it(self):
        place = self.node.directory(PATH)
        trash = self.in_trash()
        found = [place] if place.exists() else []
        found += trash.values()
        assert len(found) == 1, f"it is at {found}"
        assert self.look(found[0]) == self.before, f"{found[0]} is not as it was"
        assert set(os.listdir(self.node.root / VOLUMES)) <= {encode(PATH)}, "a foreign name"
        if place.exists():
            return "place"
        name, = trash
        row, = self.rows("SELECT * FROM trash")
        assert (row["name"], row["key"]) == (name, encode(PATH)), row
        return row["step"]

    # -- the end state

    def check_removed(self):
        assert self.whereabouts() == "kept"
        assert os.listdir(self.node.root / TRASH) == list(self.in_trash()), "a name is left"
        row, = self.rows("SELECT status FROM audit_volumes")
        assert row["status"] == "quarantined", row
        found = self.rows("SELECT * FROM audit_cleanups WHERE decision <> 'kept'")
        *others, last = [row["decision"] for row in found]  # failed: where a syscall was made to
        assert last == "removed" and set(others) <= {"failed"}, found
        assert "xyzzy" not in json.dumps(found)
        assert self.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]

    def statuses(self):
        return [row["status"] for row in
                self.rows("SELECT status FROM audit_volumes WHERE status <> 'removed'")]

    def check_restored(self):
        assert self.whereabouts() == "place"
        assert os.listdir(self.node.root / TRASH) == []
        assert self.rows("SELECT * FROM trash") == []
        # What could not be read at once is read again.
        self.node.wait(lambda: self.statuses() == ["present"], 30, "the volume to be present")
        assert self.rows("SELECT * FROM audit_cleanups WHERE decision = 'restored'")

    def restore(self):
        number, = self.rows("SELECT cleanup_id FROM trash")
        return self.node.crustctl("restore", str(number["cleanup_id"]), check=False)


class CleanupPoints(LostTest):
    def setUp(self):
        super().setUp()
        self.need_strace()
        self.count = 0
        self.lock = threading.Lock()

    def left_behind(self, settings=None):
        with self.lock:
            self.count += 1
            return LeftBehind(self.scratch / f"point{self.count}", settings)

    def trace(self):
        """The points of a cleanup, from where it looks for the kubelet's pods."""
        left = self.left_behind()
        file = self.scratch / "trace"
        self.assertEqual(left.run_once(trace=file), 0, left.node.log_tail())
        left.check_removed()
        found = points(file, "kubelet/pods")
        left.close()
        return found

    def check_durable(self, found):
        """The intent is on the disk before anything is moved: power may fail too."""
        calls = [point for point in found if point.syscall in WRITES | SYNCS | {"renameat2"}]
        moves = [number for number, point in enumerate(calls) if point.syscall == "renameat2"]
        self.assertEqual(len(moves), 1, calls)
        self.assertIn(calls[moves[0] - 1].syscall, SYNCS, calls[:moves[0] + 1])

    def at_each_at_once(self, title, items, check):
        """What check(left, *item) returns for each of them for which there is time, several at once; it
        reports every failure."""
        deadline = time.monotonic() + SWEEP_SECONDS

        def run(item):
            if time.monotonic() > deadline:
                return None
            left = self.left_behind()
            try:
                return check(left, *item)
            except Exception as error:  # pylint: disable=broad-except
                failed.append(f"{' '.join(map(str, item))}: {error!r}\n{left.node.log_tail()}")
                return None
            finally:
                left.close()

        failed = []
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = [result for result in pool.map(run, items) if result]
        self.assertFalse(failed, f"{len(failed)} of {len(items)}:\n" + "\n".join(failed[:3]))
        report(title, len(items), results)
        return results


class Cleanup(CleanupPoints):
    """On its way into the trash."""

    def converge(self, left):
        """Started again, and once more if that one was told not to: it ends in the trash."""
        wait(lambda: left.run_once() == 0 and left.whereabouts() == "kept", "the end",
             left.node.log_tail)
        left.check_removed()

    def kill(self, left, point):
        status = left.run_once(point.inject("signal=SIGKILL"))
        assert status in (0, -signal.SIGKILL), status
        found = left.whereabouts()
        assert left.run_once() == 0
        left.check_removed()
        return found

    def test_killed(self):
        found = self.trace()
        self.check_durable(found)
        ends = self.at_each_at_once("killed, cleanup", [(point,) for point in sweep(found)], self.kill)
        self.assertEqual(set(ends), {"place", "intended", "moved", "kept"})

    def make_fail(self, left, point, error):
        status = left.run_once(point.inject(f"error={error}"))
        assert status in STATUSES, status
        found = left.whereabouts()
        self.converge(left)
        return found

    def test_failed(self):
        found = self.trace()
        self.at_each_at_once("failed, cleanup", failures(found), self.make_fail)


class Restore(CleanupPoints):
    """On its way back."""

    def removed(self, left):
        assert left.run_once() == 0
        left.check_removed()
        left.node.configure(cleanup__mode="report")
        left.node.start()

    def trace_restore(self):
        left = self.left_behind()
        self.removed(left)
        file = self.scratch / "trace"
        with Attached(left.node.process.pid, [], file):
            self.assertEqual(left.restore().returncode, 0)
        left.check_restored()
        left.close()
        return points(file, "/restore")

    def finish(self, left):
        """Cleanups that had begun are finished, by the next daemon if need be; the others are asked for again."""
        def is_back():
            steps = [row["step"] for row in left.rows("SELECT step FROM trash")]
            if steps == ["kept"]:
                left.restore()
            return steps == []

        if left.node.process.poll() is not None:
            left.node.start()
        wait(is_back, "it to be restored", left.node.log_tail)
        left.check_restored()

    def kill(self, left, point):
        self.removed(left)
        with Attached(left.node.process.pid, point.inject("signal=SIGKILL")):
            left.restore()
        found = left.whereabouts()
        self.finish(left)
        return found

    def make_fail(self, left, point, error):
        self.removed(left)
        with Attached(left.node.process.pid, point.inject(f"error={error}")):
            left.restore()
        found = left.whereabouts()
        self.finish(left)
        return found

    def test_killed(self):
        found = self.trace_restore()
        self.check_durable(found)
        ends = self.at_each_at_once("killed, restore", [(point,) for point in sweep(found)], self.kill)
        self.assertLessEqual({"place", "kept", "restoring"}, set(ends))

    def test_failed(self):
        found = self.trace_restore()
        self.at_each_at_once("failed, restore", failures(found), self.make_fail)


if __name__ == "__main__":
    unittest.main()
