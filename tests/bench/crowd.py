# SPDX-License-Identifier: Apache-2.0
"""A node with any number of volumes, and the benchmark's programs around it.

    with Crowd(scratch, volumes=4000) as crowd:
        crowd.start()
        crowd.wait_settled()
        crowd.grow(rounds=50)          # {"crustd": [(told, grown), …], "by hand": [(told, 0), …]}

Four volumes per sandbox, each sandbox with its own process, monitor and agent. A few volumes, in
different sandboxes, stand on loop devices that can grow; the others on sparse files. As many loop
devices again belong to nobody but hand_resize, whose steps are the reference, and if wanted as many to
shell_loop.sh. Below the node's root, /run is a tmpfs and the database is on disk, as on a real node.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import select
import signal
import sqlite3
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from disks import LoopDevice  # noqa: E402
from node import BUILD, VOLUMES, Node  # noqa: E402
from programs import run, wait_until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
PER_SANDBOX = 4
PROGRAMS = BUILD / "tests/bench"
SCANNED = b"the first scan is complete"


def volume_path(number):
    pod = f"{number // PER_SANDBOX:08x}-8a3c-4c86-9e1b-2f64c1f6a0b9"
    return (f"/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/"
            f"pvc-{number:08x}-5a3c-4c86-9e1b-0f64c1f6a0b9/mount")


def sandbox_id(sandbox):
    """An id that nobody else uses: of two VMMs with one sandbox's id crustd believes neither."""
    return hashlib.sha256(f"{os.getpid()} {sandbox}".encode()).hexdigest()


def numbers_of(sandbox):
    """Of its volumes."""
    return range(sandbox * PER_SANDBOX, (sandbox + 1) * PER_SANDBOX)


def drive_name(number):
    return f"drive-{number:016x}"


class Program:
    """One of the benchmark's programs, spoken to in lines. It and its children end with close()."""

    def __init__(self, path, *arguments):
        self.process = subprocess.Popen([str(path), *map(str, arguments)], process_group=0,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, *lines):
        self.process.stdin.writelines(f"{line}\n" for line in lines)
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended with {self.process.wait()}")
        return line.strip()

    def expect(self, line):
        heard = self.hear()
        if heard != line:
            raise RuntimeError(f"{self.process.args[0]} said {heard}")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextlib.contextmanager
def processor_of_its_own(*pids):
    """A processor that those processes keep away from, for a program that waits by looking: they
    would have to wait until its time slice is over."""
    all_processors = os.sched_getaffinity(0)
    chosen = max(all_processors)
    for pid in pids:
        os.sched_setaffinity(pid, (all_processors - {chosen}) or all_processors)
    try:
        yield chosen
    finally:
        for pid in pids:
            os.sched_setaffinity(pid, all_processors)


class Daemon(Node):
    """A node whose daemon runs as in production: its log at the default level."""

    def command(self, *arguments):
        return [*self.wrapper, str(BUILD / "crustd"), "--root", str(self.root), *arguments]


class Crowd:
    """Everything that a figure needs; nothing of it outlives the `with`."""

    def __init__(self, scratch, volumes, *, bound=True, growing=8, by_hand=True, shell=False,
                 settings=None, preload=None):
        self.scratch = pathlib.Path(scratch)
        self.volumes, self.bound = volumes, bound and volumes > 0
        self.growing = min(growing, volumes // PER_SANDBOX) if self.bound else 0
        self.by_hand = self.growing if by_hand else 0
        self.by_shell = self.growing if shell else 0
        self.preload = preload
        self.stack = contextlib.ExitStack()
        self.process = self.host = self.vmms = self.shims = self.log = None
        self.loops, self.vmm_pids, self.shim_pids = [], {}, {}
        with contextlib.ExitStack() as stack:
            self.stack = stack
            self._build(settings or {})
            self.stack = stack.pop_all()

    # -- building

    def _build(self, settings):
        self.node = self.stack.enter_context(Daemon(self.scratch, settings))
        self.node.settings = settings  # none of a test's
        self.node.configure()
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", self.node.root / "run")
        self.stack.callback(run, "umount", "-l", self.node.root / "run")
        for directory in ("run/vc/sbs", "run/vc/vm", "run/crustd", "run/agents", VOLUMES,
                          "var/lib/disks"):
            (self.node.root / directory).mkdir(parents=True, mode=0o700, exist_ok=True)
        if not self.bound:
            for number in range(self.volumes):
                self._stage(number)
            return
        self._start_programs()
        for sandbox in range(self.volumes // PER_SANDBOX):
            self._add_pod(sandbox)
        hands = self.growing + self.by_hand
        self._add_others("hand", self.loops[self.growing:hands], PROGRAMS / "hand_resize")
        self._add_others("shell", self.loops[hands:], HERE / "shell_loop.sh")
        self.await_host()

    def _start_programs(self):
        self.host = self._program(PROGRAMS / "host")
        self.vmms = self._program(PROGRAMS / "vmms", "-name", "sandbox-" + "0" * 64)
        self.shims = self._program(PROGRAMS / "vmms", "-id", "0" * 64)
        for number in range(self.growing + self.by_hand + self.by_shell):
            self.loops.append(self.stack.enter_context(
                LoopDevice(self.scratch / f"disk-{number}", 16 * MIB)))

    def await_host(self):
        """Waits until the host has set up everything it was told."""
        self.host.say("serve")
        self.host.expect("ready")

    def _add_pod(self, sandbox):
        for program, pids in ((self.shims, self.shim_pids), (self.vmms, self.vmm_pids)):
            program.say(sandbox_id(sandbox))
            pids[sandbox] = int(program.hear())
        for number in numbers_of(sandbox):
            self._stage(number)
        self._add_sandbox(sandbox)

    def _program(self, path, *arguments):
        program = Program(path, *arguments)
        self.stack.callback(program.close)
        return program

    def _loop(self, number):
        """The loop device of a volume: the first one of the first few sandboxes has one."""
        sandbox, place = divmod(number, PER_SANDBOX)
        return self.loops[sandbox] if place == 0 and sandbox < self.growing else None

    def _device(self, number):
        loop = self._loop(number)
        if loop:
            self.node.add_device(loop.device)
            return loop.device
        disk = f"/var/lib/disks/{number}.img"
        if not self.node.path(disk).exists():
            self.node.path(disk).touch(0o600)
            os.truncate(self.node.path(disk), MIB)
        return disk

    def _stage(self, number):
        # The Go runtime's records do not say where in the guest a file is, so that no agent could be asked for it.
        policy = {} if self._loop(number) else {"crust.resize": "observe"}
        self.node.stage(volume_path(number), self._device(number),
                        metadata={"fsGroup": "1000", "fsGroupChangePolicy": "OnRootMismatch"} | policy,
                        options=["rw", "noatime"])
        if self.bound:
            self._record(number)

    def _record(self, number):
        self.node.record(volume_path(number), sandbox_id(number // PER_SANDBOX))

    def _add_sandbox(self, sandbox):
        drives = [{"device": self._device(number), "id": drive_name(number),
                   "address": f"02/{place + 1:02x}"}
                  for place, number in enumerate(numbers_of(sandbox))]
        agent = f"/run/agents/{sandbox}.sock"
        self.node.add_sandbox(sandbox_id(sandbox), self.vmm_pids[sandbox], agent=f"unix://{agent}",
                              drives=drives)
        self.host.say(f"sandbox {self._monitor(sandbox)} {self.node.path(agent)}")
        self._add_drives(sandbox)

    def _monitor(self, sandbox):
        return self.node.root / "run/vc/vm" / sandbox_id(sandbox) / "extra-monitor.sock"

    def _add_drives(self, sandbox):
        for number in numbers_of(sandbox):
            loop = self._loop(number)
            self.host.say(f"drive {drive_name(number)}"
                          f" {loop.device if loop else self.node.path(self._device(number))}")
            if loop:
                self.host.say(f"device {loop.device} {loop.path}")

    def _add_others(self, who, loops, program):
        """Devices and monitors of what crustd is compared with, which no file of the node names."""
        arguments = []
        for number, loop in enumerate(loops):
            name = f"{who}-{number}"
            monitor = self.scratch / f"{name}.sock"
            self.host.say(f"sandbox {monitor} -", f"drive {name} {loop.device}",
                          f"device {loop.device} {loop.path}")
            arguments += [loop.device, name, monitor]
        if arguments:
            self._program(program, *arguments).expect("ready")

    # -- the daemon

    @property
    def database(self):
        return self.node.root / "var/lib/crustd/crustd.db"

    @property
    def pid(self):
        return self.process.pid

    def start(self):
        """Returns the seconds from the program's start to the end of its first scan."""
        environment = dict(os.environ)
        if self.preload:
            environment["LD_PRELOAD"] = str(PROGRAMS / self.preload)
        started = time.monotonic()
        self.process = subprocess.Popen(self.node.command(), env=environment, pass_fds=(),
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        seconds = self._read_until_scanned(started)
        # The rest of the log goes nowhere, as fast as it comes.
        self.log = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)
        return seconds

    def _read_until_scanned(self, started):
        text = b""
        while SCANNED not in text:
            if not select.select([self.process.stderr], [], [], 600)[0]:
                raise RuntimeError("crustd does not finish its scan")
            more = os.read(self.process.stderr.fileno(), 1 << 16)
            if not more:
                raise RuntimeError(f"crustd ended: {text[-2000:].decode()}")
            text = text[-len(SCANNED):] + more
        return time.monotonic() - started

    def stop(self):
        if not self.process:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        if self.log:
            self.log.wait()
        self.process = self.log = None

    def restart(self, wrapper=(), preload=None):
        """Starts again, under another program."""
        self.stop()
        self.node.wrapper, self.preload = list(wrapper), preload
        self.start()
        self.wait_settled()

    def forget(self):
        """The next start is the first one."""
        for file in self.database.parent.glob("crustd.db*"):
            file.unlink()

    def wait_settled(self):
        """Waits until every volume is in sync, or unbound where there is no sandbox."""
        state = "in_sync" if self.bound else "unbound"

        def is_settled():
            with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True,
                                                    timeout=60)) as connection:
                count, = connection.execute(
                    "SELECT count(*) FROM audit_volumes WHERE state = ? AND status = 'present'",
                    [state]).fetchone()
            return count == self.volumes

        wait_until(is_settled, 600, f"{self.volumes} volumes {state}")

    def status(self, name):
        """A number from /proc/PID/status."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1])

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # -- growth

    def grow(self, rounds, pause_us=5000, step=MIB):
        """Every device grows so often. Nanoseconds (told, grown) by who told the monitor."""
        names = {"hand": "by hand", "shell": "by a shell loop"}
        samples = {who: [] for who in ("crustd", *names.values())}
        self.host.say(f"grow {rounds} {pause_us} {step}")
        while (line := self.host.hear()) != "done":
            node, told, grown = line.split()
            who = names.get(node.partition("-")[0], "crustd")
            samples[who].append((int(told), int(grown)))
        return samples

    def hang(self, number):
        """The VMM of that device does not answer block_resize any more."""
        self.host.say(f"hang {number}")

    def grow_together(self, step=MIB):
        """Every device grows at once. Nanoseconds until grown, of all that do not hang."""
        samples = []
        self.host.say(f"together {step}")
        while (line := self.host.hear()) != "done":
            samples.append(int(line.split()[2]))
        return samples

    # -- metadata

    def write_metadata(self, count, pause_us=5000):
        """Nanoseconds from a closed file to its commit: by crustd, by hand."""
        root = self.node.root / "run/hand"
        root.mkdir(exist_ok=True)
        database = self.scratch / "hand.db"
        for file in self.scratch.glob("hand.db*"):
            file.unlink()
        hand = Program(PROGRAMS / "hand_metadata", root, database)
        try:
            hand.expect("ready")
            with processor_of_its_own(self.pid, hand.process.pid) as processor:
                output = run("taskset", "--cpu-list", processor, PROGRAMS / "metadata", count,
                             pause_us, self._device(1), self.node.root / VOLUMES, self.database,
                             root, database)
        finally:
            hand.close()
        return list(zip(*(map(int, line.split()) for line in output.splitlines())))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.stack.close()


def median(values):
    return statistics.median(values)


def percentile(values, percent):
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
