# SPDX-License-Identifier: Apache-2.0
"""What the lost_*_test.py modules share: a resize that can be interrupted at each syscall, and what
must be true after it.

    scene = Interrupted(self)
    scene.grow(AFTER)
    scene.reset()
    for point in sweep(scene.trace()):
        scene.reset()
        scene.run_once(point.inject("signal=SIGKILL"))
        scene.run_once()
        scene.check()

One node, one scripted monitor and one scripted agent serve all points of a sweep. The real syscalls
are interrupted by strace(1); the database is read read-only, beside the daemon.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import time

from block_claims_test import BLOCK, Claim, pod_annotations, specification
from node import VOLUMES, encode
from scratch_node import BEFORE, MIB, POD_UID, SANDBOX, ScratchNodeTest

SECONDS = 60  # long enough for any machine; nothing here waits that long where all is well
SWEEP_ALL = os.environ.get("CRUST_SWEEP") == "all"

# So long a sweep goes on; it has had an even sample of its points then.
SWEEP_SECONDS = float("inf") if SWEEP_ALL else 100

# What leaves a trace: on disk, at a peer, in the kernel. An ordinary sweep begins with these, since being killed
# before one of the others is being killed before the next one of these.
WITH_EFFECT = {"write", "writev", "pwrite64", "sendto", "sendmsg", "connect", "bind", "listen",
               "ftruncate", "fdatasync", "fsync", "rename", "renameat", "renameat2", "unlink",
               "unlinkat", "mkdir", "mkdirat", "fchmod", "fchown", "flock", "exit_group"}

# How each syscall can fail here for no fault of its caller. Those not named cannot.
ERRORS = {
    "accept4": ["EMFILE", "ECONNABORTED", "ENOBUFS"],
    "bind": ["ENOMEM"],
    "close": ["EIO"],
    "connect": ["ECONNREFUSED", "EAGAIN", "ENOBUFS"],
    "epoll_create1": ["EMFILE", "ENOMEM"],
    "epoll_ctl": ["ENOMEM", "ENOSPC"],
    "epoll_wait": ["EINTR"],
    "eventfd2": ["EMFILE", "ENOMEM"],
    "fchmod": ["EIO"],
    "fchown": ["EIO"],
    "fcntl": ["ENOLCK", "EINTR", "EAGAIN"],  # a lock that is taken
    "fdatasync": ["EIO", "ENOSPC"],
    "flock": ["EINTR", "ENOLCK"],
    "fsync": ["EIO", "ENOSPC"],
    "ftruncate": ["EIO", "ENOSPC", "EINTR"],
    "getdents64": ["EIO", "ENOMEM"],
    "getrandom": ["EAGAIN"],
    "getsockopt": ["ENOBUFS"],
    "inotify_add_watch": ["ENOSPC", "ENOMEM"],
    "inotify_init1": ["EMFILE", "ENOMEM"],
    "ioctl": ["EIO"],
    "listen": ["EADDRINUSE"],
    "lseek": ["EIO"],
    "mkdir": ["ENOSPC", "EIO"],
    "mkdirat": ["ENOSPC", "EIO"],
    "mmap": ["ENOMEM"],
    "munmap": ["ENOMEM"],
    "newfstatat": ["EIO", "ENOMEM"],
    "openat": ["EMFILE", "EIO", "ENFILE", "ENOMEM", "EINTR"],
    "openat2": ["EMFILE", "EIO", "EAGAIN", "ENFILE", "ENOMEM", "EINTR"],
    "pidfd_open": ["EMFILE", "ENOMEM"],
    "pread64": ["EIO", "EINTR"],
    "pwrite64": ["ENOSPC", "EIO", "EINTR"],
    "read": ["EIO", "EINTR", "EAGAIN", "ECONNRESET"],
    "readlinkat": ["EIO", "ENOMEM"],
    "recvfrom": ["ECONNRESET", "EINTR", "ENOMEM"],
    "recvmsg": ["ENOBUFS", "EINTR", "ENOMEM"],
    "rename": ["EIO", "ENOSPC"],
    "renameat2": ["EIO", "ENOSPC", "EXDEV"],
    "sendmsg": ["ECONNRESET", "ENOBUFS", "EAGAIN"],
    "sendto": ["ECONNRESET", "ENOBUFS", "EAGAIN", "EPIPE"],
    "setsockopt": ["ENOBUFS", "ENOMEM"],
    "socket": ["EMFILE", "ENOBUFS", "ENOMEM"],
    "statx": ["EIO", "ENOMEM"],
    "unlink": ["EIO"],
    "unlinkat": ["EIO", "EBUSY"],
    "write": ["EIO", "ENOSPC", "EAGAIN", "EPIPE", "EINTR"],
}
STATUSES = (0, 1, 2, 3)  # what docs/reference/programs.md has; a crash is a signal and so none of these


def traced(output, *options):
    """strace with these options in front of a command, whose children are followed. Its filter stops at nothing
    but what is traced, but strace 6.1 sends no signals where it has one, so kills are without it. They end the
    command alone: workers_test kills workers."""
    kills = any("signal=" in option for option in options)
    return ["strace", *["-f", "--seccomp-bpf"] * (not kills), "-qq", "-o", str(output), *options]


@dataclasses.dataclass(frozen=True)
class Point:
    """The n-th call of a syscall."""

    syscall: str
    number: int
    line: str = dataclasses.field(default="", compare=False)  # of the trace

    def inject(self, what):
        """Options of strace that do this, once, to that call."""
        return ["-e", f"trace={self.syscall}",
                "-e", f"inject={self.syscall}:{what}:when={self.number}"]

    def __str__(self):
        return f"{self.syscall} {self.number}"


def points(trace, begin=""):
    """The syscalls in a trace by strace -o, with -f or without, from the first line on that contains `begin`: those
    of the process that it begins with, because strace counts for each process."""
    counts = collections.Counter()
    found = []
    begun = False
    lines = trace.read_text(errors="replace").splitlines()
    process = re.match(r"(?:\d+ +)?", lines[0])[0] if lines else ""
    for line in lines:
        begun = begun or begin in line
        if (match := re.match(process + r"(\w+)\(", line)) and match[1] != "restart_syscall":
            counts[match[1]] += 1
            if begun:
                found.append(Point(match[1], counts[match[1]], line))
    return found


def spread(items):
    """The same in an order that covers them evenly wherever it is cut off."""
    bits = len(items).bit_length()
    return [items[n] for n in (int(f"{n:0{bits}b}"[::-1], 2) for n in range(1 << bits)) if n < len(items)]


def sweep(found):
    """The points of this run, in the order in which they are taken."""
    if SWEEP_ALL:
        return found
    return spread([point for point in found if point.syscall in WITH_EFFECT]) + \
        spread([point for point in found if point.syscall not in WITH_EFFECT])


def in_time(chosen):
    """Those of them for which an ordinary run has the time."""
    deadline = time.monotonic() + SWEEP_SECONDS
    for item in chosen:
        if time.monotonic() > deadline:
            return
        yield item


def errors_of(point):
    if point.syscall == "fcntl" and not re.search("F_(RD|WR)LCK", point.line):
        return []
    return ERRORS.get(point.syscall, [])


def failures(found):
    """(point, error) of this run: each point with each of its errors, in an ordinary run with one of them, in turn."""
    def chosen(point):
        errors = errors_of(point)
        return errors if SWEEP_ALL else [errors[point.number % len(errors)]]

    return [(point, error) for point in sweep([point for point in found if errors_of(point)]) for error in chosen(point)]


def rows(database, sql):
    """Rows as dictionaries."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=SECONDS)
    connection.row_factory = sqlite3.Row
    with contextlib.closing(connection):
        return [dict(row) for row in connection.execute(sql)]


class LostTest(ScratchNodeTest):
    """A test that nothing is lost."""

    def at_each(self, title, chosen, run):
        """Has run(count, *item) for each item for which there is time, and returns what that returned, once for each."""
        ends = []
        for count, item in enumerate(in_time(chosen), 1):
            item = item if isinstance(item, tuple) else (item,)
            with self.subTest(at=" ".join(map(str, item))):
                ends.append(run(count, *item))
        report(title, len(chosen), ends)
        return ends

    def need_strace(self):
        if not shutil.which("strace"):
            self.skipTest("needs the program strace")
        point = Point("write", 1)
        for what, status in ("error=EPERM", 1), ("signal=SIGKILL", -signal.SIGKILL):
            done = subprocess.run(traced("/dev/null", *point.inject(what)) + ["/bin/echo"],
                                  capture_output=True, text=True)
            if "ptrace" in done.stderr:
                self.skipTest(f"needs a strace that may trace and inject: {done.stderr.strip()}")
            self.assertEqual(done.returncode, status, done.stderr)

    def check_intents(self, journal):
        """Every answer was asked for before, on the record."""
        intended = None
        for line in journal:
            if line["kind"].endswith("_intended"):
                intended = line["kind"]
            elif line["kind"] == "hypervisor_answered":
                self.assertIn(intended, ("query_hypervisor_intended",
                                         "resize_hypervisor_intended"), line)
                intended = None
            elif line["kind"] == "guest_answered":
                self.assertEqual(intended, "grow_guest_intended", line)
                intended = None


class Interrupted:
    """A volume in a sandbox whose monitor and agent outlive any number of daemons."""

    resize_times = ("hypervisor_at", "guest_at", "finished_at")

    def __init__(self, test, settings=None):
        self.test = test
        self.node = test.node({"resize.sweep_seconds": 3600} | (settings or {}))
        self.volume = self.add_volume()
        self.monitor = test.monitor(self.node, self.volume)
        self.agent = test.agent(self.node)
        self.agent.stats.total = BEFORE
        self.state = self.node.path("/var/lib/crustd")
        self.database = self.state / "crustd.db"
        self.kept = None
        self.begin_bytes, self.end_bytes = BEFORE, BEFORE

    def add_volume(self):
        volume = self.test.volume(self.node)
        self.test.sandbox(self.node, volume)
        return volume

    # -- the daemon

    def run_once(self, inject=(), trace="/dev/null"):
        """crustd --once, under strace if asked to; returns its status."""
        strace = traced(trace, *inject) if inject or trace != "/dev/null" else []
        with open(self.node.log, "wb") as log:
            process = subprocess.Popen(strace + self.node.command("--once"), stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            return process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # strace's end alone would not end crustd
            process.wait()
            raise AssertionError(f"crustd --once does not end\n{self.node.log_tail()}") from None

    def trace(self, *options):
        """The points of a whole run, once crustd has come so far as to read its configuration."""
        file = self.test.scratch / "trace"
        self.test.assertEqual(self.run_once(options, file), 0, self.node.log_tail())
        return points(file, "crustd.conf")

    def trace_running(self):
        """The points of a resize that a running daemon sees."""
        file = self.test.scratch / "trace"
        with Attached(self.node.process.pid, [], file):
            self.grow_more()
            self.wait_reached()
        return points(file)

    def wait_due(self):
        """Until what has failed is due again, without a processor that other tests need."""
        due = None
        with contextlib.suppress(sqlite3.OperationalError):  # there is no database yet
            due = rows(self.database, "SELECT (julianday(min(next_attempt_at)) - 2440587.5) * 86400 AS due"
                                      " FROM audit_volumes")[0]["due"]
        time.sleep(min(max(0.02, due - time.time() if due else 0), 10))

    # -- the world as it was before a point

    def keep(self):
        """reset() goes back to what is on record now."""
        self.kept = self.test.scratch / "kept"
        shutil.copytree(self.state, self.kept)

    def reset(self):
        """Nobody has been told of the resize yet; without keep() there is no database either."""
        shutil.rmtree(self.state)
        if self.kept:
            shutil.copytree(self.kept, self.state)
        else:
            self.state.mkdir(mode=0o700)
        self.monitor.drives[0].size = self.begin_bytes
        self.agent.stats.total = self.begin_bytes
        self.forget_requests()

    def forget_requests(self):
        self.monitor.requests.clear()
        self.agent.requests.clear()

    def grow(self, to_bytes):
        """The device grows. Nobody is told but the kernel's listeners."""
        self.begin_bytes, self.end_bytes = self.end_bytes, to_bytes
        self.volume.loop.resize(to_bytes)

    def grow_more(self):
        """Another resize on top of those before, so that nothing need be set back."""
        self.forget_requests()
        self.grow(self.end_bytes + MIB)

    # -- the end state

    def wait_reached(self):
        wait(self.is_reached, "the resize's end", self.node.log_tail)

    def is_reached(self):
        try:
            found = rows(self.database, "SELECT state, reason, hypervisor_bytes FROM audit_volumes")
        except sqlite3.OperationalError:  # there is no database yet
            return False
        return found == [{"state": "in_sync", "reason": "none",
                          "hypervisor_bytes": self.end_bytes}] and not rows(
            self.database, "SELECT * FROM audit_resizes WHERE finished_at IS NULL") and \
            self.is_guest_done()

    def is_guest_done(self):
        return self.agent.stats.total == self.end_bytes

    def check(self, expected=1):
        """The same end state, whatever came between."""
        test = self.test
        row, = rows(self.database, "SELECT * FROM audit_volumes")
        test.assertEqual((row["status"], row["state"], row["reason"], row["sandbox_id"]),
                         ("present", "in_sync", "none", SANDBOX))
        test.assertEqual((row["device_bytes"], row["hypervisor_bytes"]), (self.end_bytes,) * 2)
        test.assertIsNone(row["next_attempt_at"])
        test.assertEqual(self.monitor.drives[0].size, self.end_bytes)
        self.check_guest(row)
        self.check_record(expected)
        self.check_resized()
        self.check_files()

    def check_guest(self, row):
        self.test.assertEqual((row["guest_bytes"], self.agent.stats.total), (self.end_bytes,) * 2)

    def check_record(self, expected):
        test = self.test
        test.assertEqual(rows(self.database, "PRAGMA integrity_check"),
                         [{"integrity_check": "ok"}])
        resizes = rows(self.database, "SELECT * FROM audit_resizes ORDER BY resize_id")
        test.assertEqual(len(resizes), expected, resizes)
        test.assertEqual((resizes[-1]["from_bytes"], resizes[-1]["to_bytes"]),
                         (self.begin_bytes, self.end_bytes))
        for resize in resizes:
            test.assertEqual((resize["state"], resize["reason"]), ("in_sync", "none"), resize)
            test.assertNotIn(None, [resize[name] for name in self.resize_times], resize)
        for view in ("audit_mappings", "audit_sandboxes"):
            test.assertEqual(len(rows(self.database, f"SELECT * FROM {view}")), 1, view)
        test.check_intents(rows(self.database, "SELECT * FROM audit_journal ORDER BY seq"))

    def check_resized(self):
        """Nobody was told anything but the new size, nor without an intent on record."""
        test = self.test
        resizes, calls = self.monitor.sent("block_resize"), [
            request for request in self.agent.requests if request.method == "ResizeVolume"]
        test.assertEqual({command.arguments["size"] for command in resizes} |
                         {call.size for call in calls}, {self.end_bytes})
        intents = collections.Counter(line["kind"] for line in rows(
            self.database, "SELECT kind FROM audit_journal"))
        test.assertGreaterEqual(intents["resize_hypervisor_intended"], len(resizes))
        test.assertGreaterEqual(intents["grow_guest_intended"], len(calls))

    def metadata(self):
        """What there is below the directory of the volumes' metadata."""
        key = encode(self.volume.path)
        return [key, f"{key}/mountInfo.json", f"{key}/{SANDBOX}"]

    def check_files(self):
        """Nothing foreign stands in a directory that others read."""
        test, node = self.test, self.node
        test.assertEqual(sorted(files_below(node.root / VOLUMES)), sorted(self.metadata()))
        test.assertEqual(sorted(files_below(node.vm_dir(SANDBOX))), ["extra-monitor.sock", "pid"])
        test.assertEqual(sorted(files_below(node.path(f"/run/vc/sbs/{SANDBOX}"))),
                         ["persist.json"])


class InterruptedClaim(Interrupted):
    """A raw block claim in a container: nobody writes anything about it, and no guest is asked."""

    resize_times = ("hypervisor_at", "finished_at")

    def add_volume(self):
        test, node, loop = self.test, self.node, self.test.loop()
        node.add_device(loop.device)
        claim = Claim(f"{BLOCK}/publish/pv/{POD_UID}", loop, "drive-0")
        claim.publish(node)
        test.sandbox(node, drives=[claim.record()])
        containers = test.containers(node, annotations=pod_annotations(POD_UID))
        containers.more["linux"] = specification(claim.number)
        containers.run()
        return claim

    def is_guest_done(self):
        return True

    def check_guest(self, row):
        self.test.assertEqual((row["kind"], row["guest_bytes"], self.agent.requests), ("block_claim", None, []))

    def metadata(self):
        return []


def files_below(directory):
    return [str(path.relative_to(directory)) for path in pathlib.Path(directory).rglob("*")]


class Attached:
    """strace on a running daemon, for as long as a point takes."""

    def __init__(self, pid, options, output="/dev/null", children=True):
        self.process = subprocess.Popen(
            ["strace", *["-f"] * children, "-o", str(output), "-p", str(pid), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        if "attached" not in line:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"strace does not attach: {line}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        self.process.stderr.close()


def wait(condition, what, log=lambda: ""):
    """As Node.wait, but at once: hundreds of points wait one after another."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {SECONDS} s for {what}\n{log()}")
        time.sleep(0.002)


def report(title, found, ends):
    text = "".join(f", {ends.count(end)} {end}" for end in sorted(set(ends)))
    print(f"{title}: {len(ends)} of {found} points{text}", flush=True)
