#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Several disks under Kata's Rust runtime, on a monitor that speaks HMP only.

HMP shows such disks as /dev/fdset/N, with their sizes and not with their devices. So all of them are
read again when one has grown, unless that could touch something else, and the sizes tell which is
which."""

import os
import unittest

from disks import Disk
from resize_case import MIB
from rust_test import RustCase


class SeveralCase(RustCase):
    """A pod per test."""

    def start_pod(self, *volumes):
        """volumes: sizes, each with what its metadata say and how it comes to QEMU."""
        sandbox = self.add_sandbox()
        for options in volumes:
            self.add_volume(sandbox, **options)
        self.boot(sandbox)
        return sandbox, sandbox.volumes

    @staticmethod
    def add_volume(sandbox, size=64 * MIB, policy=None, **disk):
        volume = sandbox.make_volume("ext4", **disk)
        volume.loop.resize(size)
        volume.policy = policy
        sandbox.volumes.append(volume)

    @classmethod
    def boot(cls, *sandboxes):
        for sandbox in sandboxes:
            sandbox.boot()
        for sandbox in sandboxes:
            sandbox.publish()
            for volume in sandbox.volumes:
                if volume.policy:
                    cls.node.stage(volume.path, volume.device, fstype=volume.filesystem,
                                   metadata={"crust.resize": volume.policy})

    def wait_row(self, volume, state, reason="none", **columns):
        return self.node.wait_for(volume.path, state, reason, 120, **columns)

    def check_size(self, volume, size):
        """The guest's own word, and what was written before."""
        vm = volume.sandbox.vm
        self.assertEqual(vm.guest_blocksize(volume.disk), size)
        self.assertGreater(vm.guest_size(volume.disk.mount_point), size * 3 // 4)
        vm.guest_verify(volume.pattern, MIB)

    def explanation(self, volume):
        return " ".join(self.node.crustctl("explain", volume.path).stdout.split())


class SeveralDisksTest(SeveralCase):
    """Which volumes are resized, and what is reported of them."""

    def test_different_sizes(self):
        """Each drive is known by its size, at once; one grows, then both."""
        _, (first, second) = self.start_pod({}, {"size": 96 * MIB})
        self.grow(first)
        self.grow(first, second)
        self.check_size(second, 145 * MIB)

    def test_equal_sizes(self):
        """Which is which, nobody can tell until one has grown; both are grown all the same."""
        sandbox, (first, second) = self.start_pod({}, {})
        for volume in (first, second):
            row = self.wait_row(volume, "in_sync", "unverified", hypervisor_bytes=64 * MIB)
            self.assertIn("2 drives (drive-1, drive-2) have 67108864 bytes", row["evidence"])
            self.assertIn("HMP does not show which of them it is", self.explanation(volume))
            self.assertIsNone(self.mappings(volume)[-1]["drive_id"])
            self.assertEqual((row["resizable"], row["resizable_reason"]), ("unknown", "unverified"))
        first.loop.resize(128 * MIB)
        for volume, size in ((first, 128), (second, 64)):
            row = self.wait_row(volume, "in_sync", "none", hypervisor_bytes=size * MIB)
            self.assertIsNone(row["evidence"])
            self.assertEqual(row["resizable"], "yes")
            self.check_binding(volume)
            self.check_size(volume, size * MIB)
        second.loop.resize(128 * MIB)
        self.wait_row(second, "in_sync", "unverified", hypervisor_bytes=128 * MIB)
        self.check_size(second, 128 * MIB)
        self.assertEqual(self.resizes(second)[-1]["reason"], "unverified")
        self.assertTrue(sandbox.vm.is_alive())

    def test_both_grow_at_once_to_one_size(self):
        _, (first, second) = self.start_pod({}, {"size": 96 * MIB})
        for volume in (first, second):
            self.settle(volume)
        self.node.stop()
        for volume in (first, second):
            volume.loop.resize(160 * MIB)
        self.node.start()
        for volume in (first, second):
            self.wait_row(volume, "in_sync", "unverified", hypervisor_bytes=160 * MIB)
            self.check_size(volume, 160 * MIB)

    def test_drive_that_comes_later(self):
        """It is told from the first by its size; the first grows on."""
        sandbox, (first,) = self.start_pod({})
        self.grow(first)
        second = sandbox.make_volume("ext4")
        second.loop.resize(192 * MIB)
        sandbox.plug(second)
        self.grow(second)
        self.grow(first)


class RefusalTest(SeveralCase):
    """Reading everything again changes nothing."""

    def check_refused(self, volume, *said):
        """Blocked, with the reason in words; nothing was told to the VMM."""
        size = volume.sandbox.vm.guest_blocksize(volume.disk)
        volume.loop.resize(size + 64 * MIB)
        self.wait_row(volume, "blocked", "drive_not_found")
        error = self.resizes(volume)[-1]["error"]
        for words in said:
            self.assertIn(words, error)
            self.assertIn(words, self.explanation(volume))
        self.assertEqual(volume.sandbox.vm.guest_blocksize(volume.disk), size)

    def regular_file(self, sandbox, **disk):
        """A file of no round size in an fd set of the VM's; its content."""
        path = self.scratch / f"file-{len(sandbox.volumes)}"
        content = os.urandom(3 * MIB + 512)
        path.write_bytes(content)
        sandbox.vm.hotplug(Disk(str(path), fdset=True, node_name="drive-7", device_id="drive-7",
                                **disk))
        return path, content

    def check_file(self, read_only):
        sandbox, (first, second) = self.start_pod({}, {"size": 96 * MIB})
        path, content = self.regular_file(sandbox, read_only=read_only)
        for volume in (first, second):
            self.settle(volume)
        self.check_refused(first, "cannot be read again together", "regular file")
        self.assertEqual(path.read_bytes(), content)

    def test_regular_file_in_a_set(self):
        self.check_file(read_only=False)

    def test_read_only_regular_file_in_a_set(self):
        self.check_file(read_only=True)

    def test_regular_file_in_a_set_without_a_drive(self):
        """No device node shows it: it is visible only among the descriptors."""
        sandbox, (first, second) = self.start_pod({}, {"size": 96 * MIB})
        path = self.scratch / "spare"
        path.write_bytes(b"x" * 4096)
        with open(path, "r+b") as file:
            sandbox.vm.qmp_client.send_descriptor(file)
            fdset = sandbox.vm.qmp("add-fd", fdset_id=90)["fdset-id"]
        for volume in (first, second):
            self.settle(volume)
        self.check_refused(first, "is a regular file")
        sandbox.vm.qmp("remove-fd", fdset_id=fdset)
        self.wait_row(first, "in_sync", "none", hypervisor_bytes=128 * MIB)
        self.check_size(first, 128 * MIB)
        self.assertEqual(path.read_bytes(), b"x" * 4096)

    def test_another_volume_forbids_it(self):
        for policy in ("never", "observe"):
            with self.subTest(policy):
                _, (first, second) = self.start_pod({}, {"size": 96 * MIB, "policy": policy})
                self.settle(first)
                self.wait_row(first, "in_sync", resizable="no", resizable_reason="drive_not_found")
                self.check_refused(first, f"{second.path} in the same sandbox",
                                   f"crust.resize = {policy}")
                self.node.stage(second.path, second.device, fstype=second.filesystem)
                self.wait_row(first, "in_sync", "none", hypervisor_bytes=128 * MIB)
                self.check_size(first, 128 * MIB)

    def test_files_that_drives_name_are_none_of_a_set(self):
        """A drive over a regular file by its path: it has a name, and is left alone."""
        sandbox, (first, second) = self.start_pod({}, {"size": 96 * MIB})
        path = self.scratch / "named"
        content = os.urandom(MIB)
        path.write_bytes(content)
        sandbox.vm.hotplug(Disk(str(path), node_name="named", device_id="named"))
        self.grow(first)
        self.grow(second)
        self.assertEqual(path.read_bytes(), content)

    def test_job_on_one_of_them(self):
        """A mirror of the one keeps all as they are until it ends."""
        sandbox, (first, second) = self.start_pod({}, {"size": 96 * MIB})
        for volume in (first, second):
            self.settle(volume)
        sandbox.vm.qmp("blockdev-add", driver="null-co", node_name="sink", size=96 * MIB,
                       read_zeroes=True)
        sandbox.vm.qmp("blockdev-mirror", job_id="mirror", device=second.disk.node_name,
                       target="sink", sync="none")
        first.loop.resize(128 * MIB)
        self.wait_row(first, "blocked", "hypervisor_busy")
        self.assertIn("a block job works on QEMU's drives", self.resizes(first)[-1]["error"])
        self.assertEqual(sandbox.vm.guest_blocksize(first.disk), 64 * MIB)
        sandbox.vm.qmp("block-job-cancel", device="mirror", force=True)
        sandbox.vm.qmp_client.wait_event("BLOCK_JOB_CANCELLED", device="mirror")
        sandbox.vm.qmp("blockdev-del", node_name="sink")
        self.wait_row(first, "in_sync", "none", hypervisor_bytes=128 * MIB)
        self.check_size(first, 128 * MIB)

    def test_read_only_drive_is_left_alone(self):
        """Its device has grown, and it keeps its size; the other drive is read again."""
        sandbox, (first,) = self.start_pod({})
        other = sandbox.make_volume("ext4", read_only=True)
        other.loop.resize(96 * MIB)
        other.disk.filesystem = None
        sandbox.vm.hotplug(other.disk)
        self.settle(first)
        other.loop.resize(160 * MIB)
        first.loop.resize(128 * MIB)
        self.wait_row(first, "in_sync", "none", hypervisor_bytes=128 * MIB)
        self.check_size(first, 128 * MIB)
        self.assertEqual(sandbox.vm.guest_blocksize(other.disk), 96 * MIB)


if __name__ == "__main__":
    unittest.main()
