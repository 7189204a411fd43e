# SPDX-License-Identifier: Apache-2.0
"""Kata's own sample driver, csi-kata-directvolume, by the files that it was recorded to leave on a node: a raw file in
its pool, the file's directory bound on the target, and metadata that name the file."""

import json
import os
import subprocess

from disks import Disk, make_filesystem
from programs import run
from resize_case import MIB, SECONDS, Volume
from rust_runtime import GUEST_MOUNTS, guest_name
from rust_test import RustCase

NAME = "pvc-6a3f9a52-0d5c-4c1f-9a55-3f6a1f1f7a11"
TARGET = f"/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~csi/{NAME}/mount"
POOL = f"/var/lib/csi-kata-directvolume/{NAME}"
DEVICE = f"{POOL}/directvol-rawdisk.64M"
SIZE, GROWN, LARGEST = 64 * MIB, 96 * MIB, 128 * MIB
# As Go's encoding/json writes the runtime's struct.
MOUNT_INFO = json.dumps({
    "volume-type": "directvol", "device": DEVICE, "fstype": "ext4",
    "metadata": {"capacity_in_bytes": str(SIZE), "direct_volume_name": NAME, "is_directvolume": "yes",
                 "katacontainers.direct.volume/fstype": "ext4", "katacontainers.direct.volume/volumetype": "directvol"},
    "options": ["bind", "rw"]}, separators=(",", ":"))


class RawFile:
    """In the place of the loop device that other volumes have."""

    def __init__(self, node):
        self.device, self.path = DEVICE, node.path(DEVICE)
        self.path.parent.mkdir(parents=True)
        self.path.touch()
        self.resize(SIZE)

    @property
    def size(self):
        return self.path.stat().st_size

    def resize(self, size):
        os.truncate(self.path, size)


class SampleDriverTest(RustCase):
    """Under the Rust runtime, which takes "bind" out of the options: under the Go runtime such a pod fails."""

    def publish(self, file):
        """NodeStageVolume and NodePublishVolume."""
        make_filesystem("ext4", file.path)
        target = self.node.path(TARGET)
        target.mkdir(parents=True)
        run("mount", "--bind", file.path.parent, target)
        self.addCleanup(subprocess.run, ["umount", target], check=False)
        directory = self.node.stage(TARGET, DEVICE, text=MOUNT_INFO)
        self.assertEqual((directory.stat().st_mode & 0o777, (directory / "mountInfo.json").stat().st_mode & 0o777),
                         (0o700, 0o600))

    def start_pod(self, file):
        """A guest that has the file as a disk; returns the volume in it."""
        sandbox = self.add_sandbox()
        disk = Disk(str(file.path), filesystem="ext4", fdset=True, node_name="drive-1", device_id="drive-1",
                    mount_point=f"{GUEST_MOUNTS}/{guest_name('data-1')}")
        volume = Volume(TARGET, "ext4", file, disk, DEVICE, sandbox)
        sandbox.volumes.append(volume)
        sandbox.boot()
        sandbox.vm.wait_ready()
        sandbox.mount(volume)
        return volume

    def settled(self, file):
        """A guest with the volume, whose file system fills the file. No VMM is ever told to resize the file: QEMU would
        truncate it."""
        volume = self.start_pod(file)
        row = self.node.wait_for(TARGET, "in_sync", "none", SECONDS, sandbox_id=volume.sandbox.id,
                                 device_bytes=file.size, hypervisor_bytes=file.size)
        self.assertEqual((row["resizable"], row["resizable_reason"]), ("no", "policy"))
        self.check_binding(volume)
        vm = volume.sandbox.vm
        self.assertEqual(vm.guest_blocksize(volume.disk), file.size)
        self.assertGreater(vm.guest_size(volume.disk.mount_point), file.size * 3 // 4)
        self.assertEqual(row["guest_bytes"], vm.guest_size(volume.disk.mount_point))
        self.assertEqual(self.journal(volume, "kind = 'resize_hypervisor_intended'"), [])
        return volume

    def test_life(self):
        """What the file has grown by while no guest had it, the next one's disk and file system have grown by. What it
        grows by while a guest has it is observed, and reaches the next guest."""
        file = RawFile(self.node)
        self.publish(file)
        row = self.node.wait_for(TARGET, "unbound", "none", SECONDS, device_bytes=SIZE)
        self.assertEqual((row["device"], row["fs_type"], row["pv"], row["volume_type"], row["problem"]),
                         (DEVICE, "ext4", NAME, "directvol", None))
        volume = self.settled(file)
        volume.sandbox.vm.guest_write(volume.pattern, MIB)
        volume.sandbox.vm.power_off()
        self.node.wait_for(TARGET, "unbound", "none", SECONDS, sandbox_id=None)

        file.resize(GROWN)
        volume = self.settled(file)
        volume.sandbox.vm.guest_verify(volume.pattern, MIB)
        self.assertEqual(file.size, GROWN)
        self.assertEqual(self.resizes(volume), [])

        bytes_before = volume.sandbox.vm.guest_size(volume.disk.mount_point)
        file.resize(LARGEST)
        row = self.node.wait_for(TARGET, "host_grown", "policy", SECONDS, device_bytes=LARGEST, hypervisor_bytes=GROWN,
                                 stalled=0, next_attempt_at=None)
        self.assertEqual((row["resizable"], row["resizable_reason"]), ("no", "policy"))
        self.assertEqual(self.journal(volume, "kind = 'resize_hypervisor_intended'"), [])
        self.assertEqual(volume.sandbox.vm.guest_size(volume.disk.mount_point), bytes_before)
        self.assertEqual(volume.sandbox.vm.guest_blocksize(volume.disk), GROWN)
        volume.sandbox.vm.power_off()
        self.node.wait_for(TARGET, "unbound", "none", SECONDS, sandbox_id=None)

        volume = self.settled(file)
        volume.sandbox.vm.guest_verify(volume.pattern, MIB)
        self.assertEqual(file.size, LARGEST)
        resize, = self.resizes(volume)
        self.assertEqual((resize["from_bytes"], resize["to_bytes"], resize["state"], resize["reason"]),
                         (GROWN, LARGEST, "in_sync", "none"))
        self.assertIsNotNone(resize["finished_at"])
