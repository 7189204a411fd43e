# SPDX-License-Identifier: Apache-2.0
"""Resize in a stock guest on a real micro-VM, three ways in turn: crustd through the companion, crustd
through the helper that it brings along, and the helper's exchange by hand.

The VM has two disks, each with an ext4; crustd knows of one. Both agents run in the guest: the stand-in for
kata-agent, which denies ResizeVolume and runs containers (tests/guest/kata_agent/), and
crust-guest-agent. Where the helper is measured, nobody listens on the companion's port, so crustd tries it
and is refused, as in any guest that has no companion.

The clock starts before the ioctl(2) that grows the device. It stops when the answer that says that the file
system has grown passes the tap before the agents: ResizeVolume's, or the helper's report (ReadStdout). The
helper's exchange ends later, with RemoveContainer, and the time until then is told as well.

By hand means the hypervisor's block_resize and the six calls to the agent, one after another, by a small
Python client: connected to monitor and agent before the clock starts, and nothing is checked or written down.
The helper is placed in the share within the time and removed after it, as crustd does.
"""

import dataclasses
import pathlib
import secrets
import shutil
import socket
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name)
                for name in ("e2e", "fakes")]

from agent_tap import AgentTap  # noqa: E402
from crowd import Daemon  # noqa: E402
from disks import Disk, LoopDevice, make_filesystem  # noqa: E402
from guest_image import build_kata_image  # noqa: E402
from guestvm import KATA_SHARED, SERIAL_AGENT  # noqa: E402
from kata_guest import AGENT_PORT, Client, Container, KataGuest, place  # noqa: E402
from node import BUILD  # noqa: E402
from virtual_machine import BEFORE, PAUSE, STEP, VOLUME, grow_device  # noqa: E402

PROGRAM = BUILD / "stripped/crust-guest-agent"  # as it is installed
COMPANION_PORT = 1030
COMPANION = "companion"  # its file in the share
SHARES = "run/kata-containers/shared/sandboxes"
RUNS, RESIZES = 3, 20


class TappedClient(Client):
    """Through the tap, whose socket is a hybrid vsock one."""

    def __init__(self, path):
        super().__init__(path, AGENT_PORT)


@dataclasses.dataclass
class Times:
    """Of one growth, in milliseconds from the device's growth."""

    asked: float  # the agent was called: CreateContainer or ResizeVolume
    started: float  # the container was there and started; for ResizeVolume the same as asked
    grown: float  # the guest said that it has grown
    ended: float  # the last call was answered

    @property
    def program(self):
        return self.grown - self.started


class Guest:
    def __init__(self, scratch, stack):
        self.sizes = [BEFORE, BEFORE]
        self.loops = [stack.enter_context(LoopDevice(scratch / f"disk-{number}", BEFORE))
                      for number in range(2)]
        for loop in self.loops:
            make_filesystem("ext4", loop.device)
        self.disks = [Disk(loop.device, filesystem="ext4") for loop in self.loops]
        self.node = stack.enter_context(Daemon(scratch, {
            "guest.helper": "on", "guest.helper_file": PROGRAM, "resize.sweep_seconds": 60}))
        self.sandbox_id = secrets.token_hex(32)
        self.share = self.node.root / SHARES / self.sandbox_id / "mounts"
        self.share.mkdir(parents=True)
        shutil.copy(PROGRAM, self.share / COMPANION)
        self.guest = stack.enter_context(KataGuest(
            scratch, build_kata_image(BUILD / "guest"), self.share, self.disks, sandbox_id=self.sandbox_id,
            vm_dir=self.node.vm_dir(self.sandbox_id), extra_monitor="qmp"))
        self.vm = self.guest.vm
        self.vm.wait_ready()
        self.vm.start_agent(f"{KATA_SHARED}/{COMPANION}", *SERIAL_AGENT)
        self.tap = AgentTap(self.node.root / "kata.hvsock", {AGENT_PORT: self._connect_kata})
        stack.callback(self.tap.close)
        self._start_daemon()

    def _connect_kata(self):
        connection = socket.create_connection(self.guest.relay.target)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _connect_companion(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.vm.agent_socket))
        return connection

    def _start_daemon(self):
        loop, disk = self.loops[0], self.disks[0]
        self.node.add_device(loop.device)
        self.node.stage(VOLUME, loop.device)
        self.node.add_sandbox(self.sandbox_id, self.vm.pid, agent=f"hvsock:///kata.hvsock:{AGENT_PORT}",
                              drives=[{"device": loop.device, "id": disk.node_name, "address": disk.address}])
        self.node.record(VOLUME, self.sandbox_id)
        self.node.start()
        self.node.wait_for(VOLUME, "in_sync", "none")

    def _grow_device(self, number):
        """The time at which the kernel was asked to, and the size."""
        self.sizes[number] += STEP
        return grow_device(self.loops[number], self.sizes[number]), self.sizes[number]

    def _by_crustd(self, read_times):
        mark = self.tap.mark()
        started, size = self._grow_device(0)
        times = read_times(mark, started)
        self.node.wait_for(VOLUME, "in_sync", "none", device_bytes=size)
        return times

    def by_companion(self):
        self.tap.targets[COMPANION_PORT] = self._connect_companion
        try:
            return self._by_crustd(self._companion_times)
        finally:
            del self.tap.targets[COMPANION_PORT]

    def by_helper(self):
        return self._by_crustd(self._helper_times)

    def _companion_times(self, mark, started):
        resize, stats = (self.tap.wait_answer(mark, method) for method in ("ResizeVolume", "GetVolumeStats"))
        return times_since(started, resize.asked, resize.asked, resize.answered, stats.answered)

    def _helper_times(self, mark, started):
        report = self.tap.wait_answer(mark, "ReadStdout", with_payload=True)
        create, start, remove = (self.tap.wait_answer(mark, f"{verb}Container")
                                 for verb in ("Create", "Start", "Remove"))
        return times_since(started, create.asked, start.answered, report.answered, remove.answered)

    def by_hand(self):
        disk, mark = self.disks[1], self.tap.mark()
        container = Container(f"crust-{secrets.token_hex(8)}", ["--once", disk.mount_point])
        directory = self.share / container.id
        with TappedClient(self.tap.path) as client:
            time.sleep(PAUSE)
            started, size = self._grow_device(1)
            self.vm.block_resize(disk, size)
            place(directory, PROGRAM)
            status, output, errors = client.run(container)
            shutil.rmtree(directory)
        if status:
            raise RuntimeError(f"the helper ended with {status}: {output} {errors}")
        return self._helper_times(mark, started)

    def run(self):
        """The Times of each growth: by the companion, by the helper, by hand."""
        samples = [], [], []
        for _ in range(RESIZES):
            for measured, grow in zip(samples, (self.by_companion, self.by_helper, self.by_hand)):
                measured.append(grow())
                time.sleep(PAUSE)
        return samples


def times_since(started, *moments):
    return Times(*((at - started) * 1000 for at in moments))


def measure(scratch, stack):
    """Runs of Times: by the companion, by the helper, by hand."""
    guest = Guest(scratch, stack)
    return tuple(zip(*(guest.run() for _ in range(RUNS))))
