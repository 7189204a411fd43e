# SPDX-License-Identifier: Apache-2.0
"""Many stock sandboxes that grow at once, each by a helper that crustd brings along.

    with StockCrowd(scratch, 50, settings={"guest.helpers": 2}) as crowd:
        crowd.grow()                # a Round
        crowd.grow_by_hand(2)       # seconds

Monitors and agents are the tests' stand-ins (tests/fakes/): the agents deny ResizeVolume and have containers,
whose program takes PROGRAM_SECONDS and then reports what crustd's helper would. As many sandboxes again
belong to nobody but the reference, a small client that does the same by hand.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import re
import secrets
import shutil
import sqlite3
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name)
                for name in ("e2e", "fakes")]

from crowd import Daemon, sandbox_id  # noqa: E402
from disks import LoopDevice  # noqa: E402
from drivers import peak  # noqa: E402
from guest_channels import Qmp, SocketDirectory  # noqa: E402
from helper_case import GUEST_SHARE, HOST_SANDBOXES, guest_path_of  # noqa: E402
from kata_agent import KataAgent  # noqa: E402
from kata_guest import Client, Container, place  # noqa: E402
from monitor import Drive, FakeMonitor  # noqa: E402
from node import BUILD  # noqa: E402
from virtual_machine import grow_device  # noqa: E402

MIB = 1 << 20
PROGRAM = BUILD / "stripped/crust-guest-agent"
PROGRAM_SECONDS = 0.1  # about what it takes in an emulated guest


class SlowAgent(KataAgent):
    def report(self, container):
        self._delay(PROGRAM_SECONDS)
        return super().report(container)


class Running:
    """How many programs run in all guests, and the peak of it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now = self.peak = 0

    def enter(self):
        with self.lock:
            self.now += 1
            self.peak = max(self.peak, self.now)

    def leave(self):
        with self.lock:
            self.now -= 1


class Sandbox:
    """One volume, its monitor, its agent and its share."""

    def __init__(self, stack, node, number, directory):
        self.id = sandbox_id(number)
        self.loop = stack.enter_context(LoopDevice(directory / f"disk-{number}", 16 * MIB))
        self.address, self.drive = "02/01", f"drive-{number:016x}"
        self.guest_path = guest_path_of(self)
        self.share = node.root / HOST_SANDBOXES / self.id / "mounts"
        self.share.mkdir(parents=True)
        self.agent = SlowAgent(node.root / f"agent{number}.sock", self.share, GUEST_SHARE)
        stack.callback(self.agent.close)
        self.agent.mount(self.guest_path, self.loop)
        self.monitor = FakeMonitor(node.vm_dir(self.id) / "extra-monitor.sock",
                                   drives=[Drive(self.drive, self.loop.device)])
        stack.callback(self.monitor.stop)
        self.monitor.start()

    @property
    def volume_path(self):
        return f"/var/lib/kubelet/pods/{self.id[:36]}/volumes/kubernetes.io~csi/pv/mount"

    def publish(self, node):
        """What makes crustd know of it."""
        node.add_device(self.loop.device)
        node.stage(self.volume_path, self.loop.device)
        vmm = node.start_vmm(self.id)
        node.add_sandbox(self.id, vmm.pid, agent=f"unix:///{pathlib.Path(self.agent.socket_path).name}",
                         drives=[{"device": self.loop.device, "id": self.drive, "address": self.address}])
        node.record(self.volume_path, self.id)

    def grow_guest_by_hand(self):
        """What crustd does once the device has grown."""
        monitor = pathlib.Path(self.monitor.socket_path)
        with contextlib.closing(SocketDirectory(monitor.parent)) as directory, \
                contextlib.closing(Qmp(directory.connect(monitor.name))) as qmp:
            qmp.execute("block_resize", node_name=self.drive, size=self.loop.size)
        container = Container(f"crust-{secrets.token_hex(8)}", ["--once", self.guest_path])
        place(self.share / container.id, PROGRAM)
        with Client(self.agent.socket_path) as client:
            status, *_ = client.run(container)
        shutil.rmtree(self.share / container.id)
        if status:
            raise RuntimeError(f"the program in {container.id} ended with {status}")


@dataclasses.dataclass
class Round:
    seconds: float  # from the first device's growth until the last volume is in sync
    helpers: int  # that ran at once, at most
    rss_kib: int  # RssAnon, at most


class StockCrowd:
    def __init__(self, scratch, sandboxes, settings=None):
        self.scratch = pathlib.Path(scratch)
        with contextlib.ExitStack() as stack:
            self.node = stack.enter_context(Daemon(self.scratch, {
                "guest.helper": "on", "guest.helper_file": PROGRAM,
                "resize.sweep_seconds": 60} | (settings or {})))
            made = [Sandbox(stack, self.node, number, self.scratch) for number in range(2 * sandboxes)]
            self.sandboxes, self.by_hand = made[:sandboxes], made[sandboxes:]
            self.running = Running()
            for one in made:
                one.agent.shared_count = self.running
            for one in self.sandboxes:
                one.publish(self.node)
            self.node.start()
            self._wait_grown()
            self.stack = stack.pop_all()

    def configure(self, **settings):
        self.node.stop()
        self.node.configure(**settings)
        self.node.start()
        self._wait_grown()

    def _wait_grown(self):
        size = self.sandboxes[0].loop.size

        def are_grown():
            with contextlib.closing(sqlite3.connect(
                    f"file:{self.node.root}/var/lib/crustd/crustd.db?mode=ro", uri=True, timeout=60)) as database:
                count, = database.execute(
                    "SELECT count(*) FROM audit_volumes WHERE state = 'in_sync' AND guest_bytes = ?",
                    [size]).fetchone()
            return count == len(self.sandboxes)

        self.node.wait(are_grown, 600, f"{len(self.sandboxes)} volumes to have grown")

    def rss_kib(self):
        text = pathlib.Path(f"/proc/{self.node.process.pid}/status").read_text()
        return int(re.search(r"^RssAnon:\s+(\d+)", text, re.MULTILINE)[1])

    def grow(self):
        self.running.peak = 0
        with peak(self.rss_kib) as rss:
            started = time.monotonic()
            for one in self.sandboxes:
                grow_device(one.loop, one.loop.size + MIB)
            self._wait_grown()
            seconds = time.monotonic() - started
        return Round(seconds, self.running.peak, rss[0])

    def grow_by_hand(self, workers):
        """Seconds of the same, so many sandboxes at a time."""
        started = time.monotonic()
        for one in self.by_hand:
            grow_device(one.loop, one.loop.size + MIB)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(Sandbox.grow_guest_by_hand, self.by_hand))
        return time.monotonic() - started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()
