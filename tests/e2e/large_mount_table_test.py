# SPDX-License-Identifier: Apache-2.0
"""A mount table of 13 MiB, as users can make it by fusermount: it is read in parts, so others' work goes on,
and what the host mounts is noticed all the same."""

import ctypes
import os
import pathlib
import subprocess
import sys

from grpc_client import GrpcTest, Runtime, grpc
from own_mounts import in_own_mounts
from scratch_node import AFTER, longest_pass

MOUNTS, DEPTH = 1000, 13
NAME = "\\" * 250  # each of these is four bytes in the table


def mount(source, target, kind=b"tmpfs"):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, target, kind, 0, None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def fill(directory):
    """Many mounts on one directory that has a long name."""
    mount(b"none", os.fsencode(directory))
    os.chdir(directory)
    for _ in range(DEPTH):
        os.mkdir(NAME)
        os.chdir(NAME)
    os.mkdir("point")
    for _ in range(MOUNTS):
        mount(b"none", b"point")


def disturb(directory):
    """Changes the table without end."""
    libc = ctypes.CDLL(None, use_errno=True)
    print(flush=True)
    while True:
        mount(b"none", os.fsencode(directory))
        libc.umount2(os.fsencode(directory), 2)


class LargeMountTableTest(GrpcTest):
    hostile = True

    def setUp(self):
        super().setUp()
        for name in ("names", "point"):
            (self.scratch / name).mkdir()
        self.host = self.node(wrapper=in_own_mounts(
            f"python3 {pathlib.Path(__file__).resolve()} fill {self.scratch / 'names'}"))
        self.served = self.volume(self.host)
        self.equip(self.host, self.served)
        self.host.start()
        self.host.wait_for(self.served.path, "in_sync", "none")
        table = pathlib.Path(f"/proc/{self.host.process.pid}/mountinfo").read_bytes()
        self.assertGreater(len(table), 12 << 20)

    def within(self, *command):
        """In the mount namespace of the daemon."""
        return ["nsenter", "--mount", f"--target={self.host.process.pid}", *command]

    def disturb(self):
        program = subprocess.Popen(  # pylint: disable=consider-using-with
            self.within("python3", str(pathlib.Path(__file__).resolve()), "disturb", str(self.scratch / "point")),
            stdout=subprocess.PIPE)
        for undo in (program.stdout.close, program.wait, program.kill):
            self.addCleanup(undo)
        program.stdout.readline()

    def stop(self):
        """In good order, and none of its passes was long."""
        self.assert_served(self.host, 0.03)
        print(f"longest pass {longest_pass(self.host):.3f} s", flush=True)
        self.assertEqual(self.host.stop(), 0, self.host.log_tail())

    def test_a_volume_grows(self):
        self.host.grow(self.served, AFTER)
        self.stop()

    def test_a_volume_grows_while_the_table_changes_without_end(self):
        self.disturb()
        self.host.grow(self.served, AFTER)
        self.stop()

    def test_a_mount_is_noticed_while_the_table_changes_without_end(self):
        self.disturb()
        mounted = self.scratch / "mounted"
        mounted.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-F", self.served.loop.device], check=True)
        subprocess.run(self.within("mount", self.served.loop.device, str(mounted)), check=True)
        self.host.wait_for(self.served.path, "blocked", "host_in_use")
        subprocess.run(self.within("umount", str(mounted)), check=True)
        self.host.wait_for(self.served.path, "in_sync", "none")
        self.stop()

    def stage(self, volume):
        """What a driver is told."""
        try:
            Runtime(self, self.host).stage(volume.path, volume.loop.device)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
            return error.details()
        return ""

    def test_a_device_is_staged_while_the_table_changes_without_end(self):
        """Whoever is told that the table is being read asks again."""
        other = self.volume(self.host, "other")
        self.host.unstage(other.path)
        subprocess.run(["mkfs.ext4", "-q", "-F", other.loop.device], check=True)
        mounted = self.scratch / "mounted"
        mounted.mkdir()
        self.disturb()
        subprocess.run(self.within("mount", other.loop.device, str(mounted)), check=True)
        self.host.wait(lambda: f"in use on the host: {mounted}" in self.stage(other), 60, "the mount to be named")
        subprocess.run(self.within("umount", str(mounted)), check=True)
        self.host.wait(lambda: self.stage(other) == "", 60, "the device to be taken")
        self.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["fill"]:
        fill(sys.argv[2])
    elif sys.argv[1:2] == ["disturb"]:
        disturb(sys.argv[2])
