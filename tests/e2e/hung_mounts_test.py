# SPDX-License-Identifier: Apache-2.0
"""Paths into a file system that never answers: crustd looks up nothing there, says so of the volume
whose device it is, and goes on serving all others."""

import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import secrets
import shlex
import socket
import subprocess

from drives import DrivesTest
from fuse import HangingFile
from own_mounts import in_own_mounts
from scratch_node import AFTER, SANDBOX, ScratchNodeTest, fake_monitor, longest_pass, publish_path

OTHER = secrets.token_hex(32)
# Nobody serves it, but it is there.
MOUNT_FUSE = """
import ctypes, os, sys
options = f"fd={os.open('/dev/fuse', os.O_RDWR)},rootmode=40000,user_id=0,group_id=0"
sys.exit(ctypes.CDLL(None).mount(sys.argv[1].encode(), sys.argv[2].encode(), b"fuse.over", 0, options.encode()))
"""
LEADS = "leads into a file system that may hang"


class Naming(fake_monitor.FakeMonitor):
    """Its one drive has this file, it says."""

    file = ""

    def _qmp_query_block(self, _):
        return [{"device": "", "qdev": "d", "inserted": {
            "node-name": "d", "drv": "raw", "ro": False, "file": self.file, "image": {"virtual-size": 1}}}]

    def _qmp_query_named_block_nodes(self, _):
        return []


class HungMountsTest(ScratchNodeTest):
    hostile = True

    def setUp(self):
        super().setUp()
        self.host = self.node()
        (self.host.root / "mnt").mkdir()

    def hang(self):
        """Returns what ends it."""
        hanging = HangingFile(self.host.root / "mnt/hung")
        ending = contextlib.ExitStack()
        ending.callback(hanging.close)
        self.addCleanup(ending.close)
        hanging.silent.set()
        return ending

    def link(self, name, target):
        path = self.host.root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        return f"/dev/{name}"

    def blocked(self, *devices):
        """A volume with each of these as its device."""
        paths = [publish_path(f"hung{number}") for number, _ in enumerate(devices)]
        vmm = self.host.start_vmm(OTHER)
        self.host.add_sandbox(OTHER, vmm.pid, agent="unix:///agent.sock")
        for path, device in zip(paths, devices):
            self.host.stage(path, device)
            self.host.record(path, OTHER)
        return paths

    def put(self, target, body):
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        connection.sock.connect(str(self.host.root / "run/crustd/http.sock"))
        connection.request("PUT", target, json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def check_served(self):
        """Another volume, from its metadata to the end of a resize."""
        volume = self.volume(self.host, "served")
        self.equip(self.host, volume)
        self.host.wait_for(volume.path, "in_sync", "none")
        self.host.grow(volume, AFTER)
        self.assertEqual(self.host.crustctl("status").returncode, 0)
        return volume

    def test_devices(self):
        self.hang()
        paths = self.blocked("/mnt/hung/disk", "/mnt/hung", self.link("by-id/a", "/mnt/hung/file"),
                             self.link("by-id/b", "../../mnt/hung/file"),
                             "/dev/../mnt/./hung/file/", "/mnt/hung/../hung/x")
        self.host.start()
        for path in paths:
            row = self.host.wait_for(path, "blocked", "no_device")
            self.assertIn(LEADS, row["evidence"])
        self.explains(self.host, paths[0], "file system that may hang")
        self.check_served()

    def test_a_mount_that_is_made_and_hangs_later(self):
        path, = self.blocked("/mnt/hung/disk")
        self.host.start()
        row = self.host.wait_for(path, "blocked", "no_device")
        self.assertNotIn(LEADS, row["evidence"] or "")
        ending = self.hang()
        self.host.stage(path, "/mnt/hung/other")
        self.host.wait(lambda: LEADS in (self.host.volume(path)["evidence"] or ""), 60,
                       "the mount to be noticed")
        self.check_served()
        ending.close()
        (self.host.root / "mnt/hung/other").write_bytes(bytes(4096))
        self.host.stage(path, "/mnt/hung/./other")
        self.host.wait(lambda: self.host.volume(path)["device_bytes"] == 4096, 60,
                       "the file to be seen again")

    def start_vmm_that_keeps(self, mount):
        """A VMM in a mount namespace of its own, where the mount stays when it is gone here."""
        vmm = subprocess.Popen(  # pylint: disable=consider-using-with
            ["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; read _", "qemu-system-x86_64",
             "-name", f"sandbox-{OTHER}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for undo in (vmm.stdin.close, vmm.stdout.close, vmm.wait, vmm.kill):
            self.addCleanup(undo)
        vmm.stdout.readline()
        subprocess.run(["umount", "-l", mount], check=True)
        return vmm

    def test_a_drive_of_a_vmm(self):
        """A VMM names a file as its drive's, which is in such a mount of its own."""
        self.hang()
        vmm = self.start_vmm_that_keeps(self.host.root / "mnt/hung")
        volume = self.volume(self.host, "named")
        self.host.add_sandbox(OTHER, vmm.pid, agent="unix:///agent.sock", drives=[volume.record()])
        self.host.record(volume.path, OTHER)
        monitor = Naming(self.host.vm_dir(OTHER) / "extra-monitor.sock", [])
        monitor.file = str(self.host.root / "mnt/hung/file")
        self.addCleanup(monitor.stop)
        monitor.start()
        self.host.start(ready=False)
        self.host.wait(lambda: monitor.sent("query-block"), 60, "the VMM to be asked")
        self.check_served()
        self.assertNotEqual(self.host.volume(volume.path)["state"], "in_sync")

    def fill_table(self, directory, count):
        """Mounts whose lines in the mount table have 14 KiB each: a blank is four bytes there."""
        self.mount_for_the_test("-t", "tmpfs", "fill", directory)
        deep = os.open(directory, os.O_PATH)
        for _ in range(14):
            os.mkdir(" " * 250, dir_fd=deep)
            above, deep = deep, os.open(" " * 250, os.O_PATH, dir_fd=deep)
            os.close(above)
        libc = ctypes.CDLL(None, use_errno=True)
        for _ in range(count):
            self.assertEqual(libc.mount(b"fill", f"/proc/self/fd/{deep}".encode(), b"tmpfs", 0, None), 0)
        os.close(deep)

    def test_a_large_mount_table(self):
        """Others' mounts with long names: what the volume's device lies on is found in the table all the same."""
        dev = self.host.root / "dev"
        self.mount_for_the_test("-t", "tmpfs", "dev", dev)
        self.hang()
        path, = self.blocked("/mnt/hung/disk")
        self.host.configure(resize__sweep_seconds=5)
        self.host.start()
        volume = self.check_served()
        self.fill_table(self.host.root / "mnt/many", 300)
        self.host.grow(volume, 2 * AFTER)
        self.host.stage(path, "/mnt/hung/other")
        row = self.host.wait_for(path, "blocked", "no_device", device="/mnt/hung/other")
        self.assertIn(LEADS, row["evidence"])
        print(f"longest pass {longest_pass(self.host):.3f} s", flush=True)

    def test_requests(self):
        """A device that a client names."""
        self.hang()
        self.host.start()
        status, text = self.put("/fs-stats", {"block-device": "/mnt/hung/disk", "pod-id": SANDBOX})
        self.assertEqual(status, 404, text)
        self.check_served()


class HungMountsAndDrivesTest(DrivesTest):
    def test_another_mounts_source(self):
        """Root's FUSE file system says that its source is a file in the one that hangs. Disks lie elsewhere, also
        one for which the mounts are read, because the host has it mounted."""
        hanging = HangingFile(self.scratch / "hung")
        self.addCleanup(hanging.close)
        hanging.silent.set()
        (self.scratch / "over").mkdir()
        used, mounted = self.loop(), self.scratch / "mounted"
        mounted.mkdir()
        subprocess.run(["mkfs.ext4", "-q", used.device], check=True)
        self.mount_for_the_test(used.device, mounted)
        host = self.drive_node(wrapper=in_own_mounts(shlex.join(
            ["python3", "-c", MOUNT_FUSE, str(self.scratch / "hung/file"), str(self.scratch / "over")])))
        host.add_device(used.device)
        disk = self.disk(host)
        host.start()
        self.assertIn(str(self.scratch / "hung/file"),
                      pathlib.Path(f"/proc/{host.process.pid}/mountinfo").read_text())
        host.wait_alive()
        with self.fails("FAILED_PRECONDITION", f"{used.device} is mounted on the host at {mounted}"):
            self.attach(host, "data-0", used)
        self.attach(host, "data-1", disk)
        self.detach(host, "data-1")
