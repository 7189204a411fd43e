# SPDX-License-Identifier: Apache-2.0
"""Host growth to guest grown, on a real micro-VM: by crustd, and by hand in the same VM.

Two disks, each with an ext4; crustd knows of one. They grow in turn. The clock starts before the
ioctl(2) that grows the device and stops when the agent's answer to ResizeVolume arrives, which both
reach through the same relay, the only place where crustd's can be seen. By hand means: connected to the
monitor and to the agent before the clock starts, nothing checked, nothing written down.
"""

import fcntl
import os
import pathlib
import secrets
import socket
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name)
                for name in ("e2e", "fakes")]

import agent  # noqa: E402
from disks import Disk, LoopDevice, make_filesystem  # noqa: E402
from guest_image import build_image  # noqa: E402
from guestvm import GuestVM  # noqa: E402
from node import BUILD, Node  # noqa: E402

MIB = 1 << 20
BEFORE, STEP = 64 * MIB, 4 * MIB
RUNS, RESIZES = 3, 10
PAUSE = 0.3  # seconds in which the guest's serial port notices that its peer has gone
LOOP_SET_CAPACITY = 0x4C07
VOLUME = ("/var/lib/kubelet/pods/7d1f5a52-8a3c-4c86-9e1b-2f64c1f6a0b9/volumes/"
          "kubernetes.io~csi/pvc-bench/mount")


class Relay:
    """Passes bytes between an agent and its clients, one at a time, and notes when the first answer
    of each connection came."""

    def __init__(self, path, agent_socket):
        self.agent_socket = str(agent_socket)
        self.answered = []
        self.changed = threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(4)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client, socket.socket(socket.AF_UNIX) as guest:
                guest.connect(self.agent_socket)
                back = threading.Thread(target=self._pass_back, args=(guest, client))
                back.start()
                while data := client.recv(65536):
                    guest.sendall(data)
                guest.shutdown(socket.SHUT_RDWR)
                back.join()

    def _pass_back(self, guest, client):
        first = True
        try:
            while data := guest.recv(65536):
                now = time.monotonic()
                client.sendall(data)
                if first:
                    with self.changed:
                        self.answered.append(now)
                        self.changed.notify_all()
                first = False
        except OSError:
            pass

    def wait_answer(self, number):
        """When the number-th connection had its first answer."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.answered) > number, 60):
                raise RuntimeError("the agent does not answer")
            return self.answered[number]

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def grow_device(loop, size):
    """Returns when the kernel was asked to."""
    os.truncate(loop.path, size)
    descriptor = os.open(loop.device, os.O_RDONLY)
    try:
        started = time.monotonic()
        fcntl.ioctl(descriptor, LOOP_SET_CAPACITY)
    finally:
        os.close(descriptor)
    return started


class Guest:
    """The VM, its two disks, the relay and crustd."""

    def __init__(self, scratch, stack):
        self.size = BEFORE
        self.loops = [stack.enter_context(LoopDevice(scratch / f"disk-{number}", BEFORE))
                      for number in range(2)]
        self.disks = [Disk(loop.device, filesystem="ext4") for loop in self.loops]
        for loop in self.loops:
            make_filesystem("ext4", loop.device)
        self.node = stack.enter_context(Node(scratch))
        sandbox_id = secrets.token_hex(32)
        image = build_image(BUILD / "guest", BUILD / "crust-guest-agent")
        self.vm = stack.enter_context(
            GuestVM(scratch, image, self.disks, sandbox_id=sandbox_id,
                    vm_dir=self.node.vm_dir(sandbox_id), extra_monitor="qmp"))
        self.vm.wait_ready()
        self.relay_path = self.node.root / "agent.sock"
        self.relay = Relay(self.relay_path, self.vm.agent_socket)
        stack.callback(self.relay.close)
        self._start_daemon(sandbox_id)

    def _start_daemon(self, sandbox_id):
        loop, disk = self.loops[0], self.disks[0]
        self.node.add_device(loop.device)
        self.node.stage(VOLUME, loop.device)
        self.node.add_sandbox(sandbox_id, self.vm.pid, agent="unix:///agent.sock",
                              drives=[{"device": loop.device, "id": self.disks[0].node_name,
                                       "address": disk.address}])
        self.node.record(VOLUME, sandbox_id)
        self.node.start()
        self.node.wait_for(VOLUME, "in_sync")

    def by_crustd(self):
        number = len(self.relay.answered)
        started = grow_device(self.loops[0], self.size)
        seconds = self.relay.wait_answer(number) - started
        self.node.wait_for(VOLUME, "in_sync", device_bytes=self.size)
        return seconds

    def by_hand(self):
        disk = self.disks[1]
        number = len(self.relay.answered)
        with agent.connect(str(self.relay_path)) as connection:
            time.sleep(PAUSE)
            started = grow_device(self.loops[1], self.size)
            self.vm.block_resize(disk, self.size)
            code, message, _ = agent.resize(connection, disk.mount_point, self.size)
        if code:
            raise RuntimeError(f"the agent: {message}")
        return self.relay.wait_answer(number) - started

    def run(self):
        """Milliseconds of each growth: by crustd, by hand."""
        samples = [], []
        for _ in range(RESIZES):
            self.size += STEP
            for measured, grow in zip(samples, (self.by_crustd, self.by_hand)):
                measured.append(grow() * 1000)
                time.sleep(PAUSE)
        return samples


def measure(scratch, stack):
    """Runs of milliseconds by crustd, and by hand."""
    guest = Guest(scratch, stack)
    runs = [guest.run() for _ in range(RUNS)]
    return [run[0] for run in runs], [run[1] for run in runs]
