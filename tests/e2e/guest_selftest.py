#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the test guest itself: no crustd, no crust-guest-agent, only QEMU and the guest's init."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from disks import Disk, LoopDevice, make_filesystem
from guest_channels import QmpError, SocketDirectory
from guest_image import build_image
from guestvm import GuestVM
from programs import GuestError, wait_until

MIB = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB_AGENT = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char bytes[64];
    if (argc > 2 && strcmp(argv[1], "--exit") == 0)
        return atoi(argv[2]);
    int fd = argc > 2 ? open(argv[2] + strlen("serial://"), O_RDWR) : -1;
    for (ssize_t count; fd >= 0;) {
        count = read(fd, bytes, sizeof(bytes));
        if (count <= 0 || write(fd, bytes, count) < 0)
            usleep(10000);
    }
    pause();
}
"""


def build_stub(directory):
    """An agent that echoes, so that the guest can be tested before the real one."""
    stub = pathlib.Path(directory) / "stub-agent"
    if not stub.exists():
        subprocess.run(["cc", "-O2", "-static", "-s", "-x", "c", "-o", stub, "-"],
                       input=STUB_AGENT.encode(), check=True)
    return stub


class GuestTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cache = pathlib.Path(os.environ.get("GUEST_CACHE", ROOT / "build/guest-selftest"))
        cache.mkdir(parents=True, exist_ok=True)
        cls.image = build_image(cache, build_stub(cache))

    def setUp(self):
        self.scratch = self.enterContext(tempfile.TemporaryDirectory(prefix="guest-"))

    def boot(self, disks=(), **options):
        vm = self.enterContext(GuestVM(self.scratch, self.image, disks, **options))
        seconds = vm.wait_ready()
        print(f"{self.id()}: ready after {seconds:.1f} s", file=sys.stderr)
        return vm

    def volume(self, name, filesystem, size):
        loop = self.enterContext(LoopDevice(f"{self.scratch}/{name}", size))
        make_filesystem(filesystem, loop.device)
        return loop

    def wait_blocksize(self, vm, disk, size):
        wait_until(lambda: vm.guest_blocksize(disk) == size, 10, f"{size} bytes on {disk.address}")

    def test_resize_reaches_the_guest(self):
        """ext4 through a link, xfs through an fd set, btrfs on SCSI: each disk grows."""
        sizes = {"ext4": 64 * MIB, "xfs": 300 * MIB, "btrfs": 128 * MIB}
        loops = {name: self.volume(name, name, size) for name, size in sizes.items()}
        link = f"{self.scratch}/link"
        os.symlink(loops["ext4"].device, link)
        disks = {
            "ext4": Disk(link, filesystem="ext4"),
            "xfs": Disk(loops["xfs"].device, filesystem="xfs", fdset=True),
            "btrfs": Disk(loops["btrfs"].device, bus="scsi", filesystem="btrfs"),
        }
        vm = self.boot(disks.values(), extra_monitor="qmp")
        files = {node["image"]["filename"] for node in vm.qmp("query-named-block-nodes", flat=True)}
        self.assertEqual(files, {link, "/dev/fdset/1", loops["btrfs"].device})
        for name, disk in disks.items():
            with self.subTest(name):
                self.assertEqual(vm.guest_blocksize(disk), sizes[name])
                vm.guest_write(f"{disk.mount_point}/file", 4 * MIB)
                before = vm.guest_size(disk.mount_point)
                loops[name].resize(2 * sizes[name] + 4096)
                with self.assertRaisesRegex(QmpError, "Cannot grow device files"):
                    vm.block_resize(disk, 4 * sizes[name])
                self.assertEqual(vm.guest_blocksize(disk), sizes[name])
                vm.block_resize(disk, loops[name].size)
                self.wait_blocksize(vm, disk, loops[name].size)
                self.assertEqual(vm.guest_size(disk.mount_point), before)
                vm.guest_verify(f"{disk.mount_point}/file", 4 * MIB)
        vm.power_off()
        subprocess.run(["e2fsck", "-fn", loops["ext4"].device], check=True, capture_output=True)
        subprocess.run(["xfs_repair", "-n", loops["xfs"].device], check=True, capture_output=True)
        subprocess.run(["btrfs", "check", loops["btrfs"].device], check=True, capture_output=True)

    def test_hotplug(self):
        """Disks come and go on both buses, at Kata's addresses, by path and by descriptor."""
        loops = {bus: self.volume(bus, "ext4", 32 * MIB) for bus in ("blk", "scsi")}
        vm = self.boot()
        for bus, loop in loops.items():
            with self.subTest(bus):
                disk = Disk(loop.device, bus=bus, filesystem="ext4", fdset=bus == "scsi")
                vm.hotplug(disk)
                self.assertEqual(disk.address, {"blk": "02/01", "scsi": "0:0"}[bus])
                self.assertEqual(vm.guest_device(disk), {"blk": "vda", "scsi": "sda"}[bus])
                vm.unplug(disk)
                vm.hotplug(disk)
                loop.resize(48 * MIB)
                vm.block_resize(disk, 48 * MIB)
                self.wait_blocksize(vm, disk, 48 * MIB)
                vm.unplug(disk)
                with self.assertRaises(GuestError):
                    vm.guest_blocksize(disk)

    def test_read_only_disk(self):
        loop = self.volume("disk", "ext4", 32 * MIB)
        disk = Disk(loop.device, filesystem="ext4", options="ro", read_only=True)
        vm = self.boot([disk])
        with self.assertRaisesRegex(GuestError, "Read-only file system"):
            vm.guest_write(f"{disk.mount_point}/file", 1)
        with self.assertRaisesRegex(QmpError, "read-only"):
            vm.block_resize(disk, 32 * MIB)

    def test_monitors(self):
        """The main monitor is its holder's; the extra one is anybody's."""
        for layout in ("go", "rust"):
            with self.subTest(layout):
                vm = self.boot(layout=layout, extra_monitor="qmp")
                directory = SocketDirectory(vm.vm_dir)
                self.addCleanup(directory.close)
                with directory.connect("qmp.sock") as queued:
                    queued.settimeout(0.3)
                    with self.assertRaises(TimeoutError):
                        queued.recv(1)
                with directory.connect(vm.extra_socket.name) as extra:
                    self.assertIn(b"QMP", extra.recv(100))
                self.assertEqual((vm.vm_dir / "pid").exists(), layout == "go")

    def test_agents(self):
        """The agent's stream, an agent that stops, one that is killed and one that gives up."""
        vm = self.boot(agents=())
        with socket.socket(socket.AF_UNIX) as stream:
            vm.start_agent("--listen", "serial:///dev/virtio-ports/crust")
            stream.settimeout(30)
            stream.connect(str(vm.agent_socket))
            for message in (b"first", b"second"):
                stream.sendall(message)
                self.assertEqual(stream.recv(64), message)
            self.assertEqual(vm.signal_agents(signal.SIGKILL), 1)
        wait_until(lambda: "signal 9" in vm.console(), 10, "the agent's end")
        self.assertEqual(vm.ask("ping"), [])
        vm.start_agent("--exit", "7")
        vm.process.wait(30)
        self.assertIn("exit 7", vm.console())

    def test_failed_boot_is_reported(self):
        loop = self.enterContext(LoopDevice(f"{self.scratch}/empty", 32 * MIB))
        vm = self.enterContext(GuestVM(self.scratch, self.image,
                                       [Disk(loop.device, filesystem="ext4")]))
        told = "guest-failed crust.mount=pci:02/01,ext4,.*: Invalid argument"
        with self.assertRaisesRegex(GuestError, told):
            vm.wait_ready()

    def test_several_at_once(self):
        vms = [self.enterContext(GuestVM(self.scratch, self.image)) for _ in range(3)]
        for vm in vms:
            vm.wait_ready()
            self.assertEqual(vm.ask("ping"), [])


if __name__ == "__main__":
    unittest.main()
