# SPDX-License-Identifier: Apache-2.0
"""Several disks under Kata's Rust runtime, each of which comes as a descriptor in a set of its own.

QMP names the descriptors of each set, so each disk is known by its device, whatever its size, and
only the one that has grown is read again."""

import os

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


class SeveralDisksTest(SeveralCase):

    def test_equal_sizes(self):
        sandbox, (first, second) = self.start_pod({}, {})
        for volume in (first, second):
            row = self.wait_row(volume, "in_sync", "none", hypervisor_bytes=64 * MIB)
            self.assertEqual(row["resizable"], "yes")
            self.check_binding(volume)
        first.loop.resize(128 * MIB)
        for volume, size in ((first, 128), (second, 64)):
            self.wait_row(volume, "in_sync", "none", hypervisor_bytes=size * MIB)
            self.check_size(volume, size * MIB)
        second.loop.resize(128 * MIB)
        self.wait_row(second, "in_sync", "none", hypervisor_bytes=128 * MIB)
        self.check_size(second, 128 * MIB)
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
            self.wait_row(volume, "in_sync", "none", hypervisor_bytes=160 * MIB)
            self.check_size(volume, 160 * MIB)

    def test_drive_that_comes_later(self):
        sandbox, (first,) = self.start_pod({})
        self.grow(first)
        second = sandbox.make_volume("ext4")
        second.loop.resize(192 * MIB)
        sandbox.plug(second)
        self.grow(second)
        self.grow(first)

    def test_regular_files_are_left_alone(self):
        """One of no round size in a set, and one that its drive names by its path."""
        sandbox, (first, second) = self.start_pod({}, {"size": 96 * MIB})
        files = {}
        for name, fdset in (("described", True), ("named", False)):
            path = self.scratch / name
            files[path] = os.urandom(3 * MIB + 512)
            path.write_bytes(files[path])
            sandbox.vm.hotplug(Disk(str(path), fdset=fdset, node_name=name, device_id=name))
        self.grow(first, second)
        for path, content in files.items():
            self.assertEqual(path.read_bytes(), content)

    def test_another_volumes_policy_is_its_own(self):
        for policy in ("never", "observe"):
            with self.subTest(policy):
                _, (first, second) = self.start_pod({}, {"size": 96 * MIB, "policy": policy})
                self.grow(first)
                self.assertEqual(second.sandbox.vm.guest_blocksize(second.disk), 96 * MIB)

    def test_drive_that_is_read_only(self):
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
