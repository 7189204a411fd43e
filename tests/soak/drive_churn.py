# SPDX-License-Identifier: Apache-2.0
"""Disks that come into one running VM and leave it: its VMM is a real QEMU without a guest, and its
agent is scripted.

    drives = DriveChurn(node, scratch)
    drives.begin()                  # one comes, and stays
    drives.turn(rounds=4)           # the others come and go
    drives.descriptors              # QEMU's
    drives.close()
"""

import contextlib
import hashlib
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE.parent / "fakes"))

from bare_qemu import Qemu  # noqa: E402
from disks import LoopDevice  # noqa: E402
from drive_agent import DriveAgent  # noqa: E402

DRIVES, BYTES = 4, 16 << 20
SETTINGS = {"drives.enabled": "on", "drives.host_prefixes": "/dev"}


class DriveChurn:
    def __init__(self, node, scratch):
        self.node = node
        self.sandbox_id = hashlib.sha256(f"{os.getpid()} drives".encode()).hexdigest()
        with contextlib.ExitStack() as stack:
            self.loops = [stack.enter_context(LoopDevice(pathlib.Path(scratch) / f"drive-{number}", BYTES))
                          for number in range(DRIVES)]
            for loop in self.loops:
                node.add_device(loop.device)
            self.qemu = Qemu(node.vm_dir(self.sandbox_id) / "extra-monitor.sock", self.sandbox_id)
            stack.callback(self.qemu.stop)
            agent = DriveAgent(node.root / "drives.sock", hybrid_vsock=1030)
            stack.callback(agent.close)
            node.add_sandbox(self.sandbox_id, self.qemu.pid, agent="hvsock:///drives.sock:1024")
            self.stack = stack.pop_all()

    def close(self):
        self.stack.close()

    def _attach(self, number):
        self.node.crustctl("drive", "attach", f"drive-{number}", "--sandbox", self.sandbox_id,
                           "--host-path", self.loops[number].device, "--vm-path", f"/drive-{number}",
                           "--type", "ext4", "--writable")

    def begin(self):
        self._attach(0)

    def turn(self, rounds):
        """How many came and went."""
        for _ in range(rounds):
            for number in range(1, DRIVES):
                self._attach(number)
            for number in range(1, DRIVES):
                self.node.crustctl("drive", "detach", f"drive-{number}")
        return rounds * (DRIVES - 1)

    @property
    def descriptors(self):
        return len(os.listdir(f"/proc/{self.qemu.pid}/fd"))
