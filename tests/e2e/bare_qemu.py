# SPDX-License-Identifier: Apache-2.0
"""A real QEMU without a guest, for disks that are brought into a running VM."""

import subprocess

from disks import has_open
from programs import wait_until

QEMU = "qemu-system-x86_64"
SECONDS = 60


class Qemu:
    """A machine without a disk, whose firmware finds nothing to boot."""

    def __init__(self, monitor, sandbox_id):
        self.process = subprocess.Popen(
            [QEMU, "-name", f"sandbox-{sandbox_id},debug-threads=on", "-machine", "pc,accel=tcg",
             "-nodefaults", "-display", "none", "-m", "16", "-device", "virtio-scsi-pci,id=scsi0",
             "-qmp", f"unix:{monitor.name},server=on,wait=off"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            cwd=monitor.parent)  # the whole path is too long for a socket
        self.pid = self.process.pid
        wait_until(lambda: monitor.exists() or self.process.poll() is not None, SECONDS,
                   "QEMU's monitor")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def has_open(self, device):
        """Whether QEMU has the device open, by whatever name."""
        return has_open(self.pid, device)
