# SPDX-License-Identifier: Apache-2.0
"""RuntimePublishVolume into a sandbox whose containers run already, with a real guest: the volume becomes a drive, and is
mounted and the group's before the call is answered. RuntimeUnstageVolume undoes it."""

import hashlib
import json
import subprocess

from containers import Containers
from disks import is_free
from grpc_client import Clients, Kubelet, Runtime
from resize_case import PATTERN_BYTES, SECONDS, ResizeCase
from report_guest import GuestPort, HybridVsock

COMPANION_PORT, AGENT_PORT = 1030, 1024
OPTIONS = ["rw", "noatime", 'context="u:o:t:s0"', "bind"]  # of which the guest is given what is the file system's


class PublishDriveTest(Clients, ResizeCase):
    settings = ResizeCase.settings | {"drives.enabled": "on", "drives.host_prefixes": "/dev"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.add_sandbox()
        cls.first = cls.sandbox.add_volume("ext4")  # published before the containers, as ever
        cls.boot(cls.sandbox)
        vsock = HybridVsock(cls.node.root / "kata.hvsock", {COMPANION_PORT: GuestPort(cls.sandbox.vm.agent_socket)})
        cls.addClassCleanup(vsock.close)
        volume = cls.first
        cls.node.add_sandbox(cls.sandbox.id, cls.sandbox.vm.pid, agent=f"hvsock:///kata.hvsock:{AGENT_PORT}", drives=[
            {"device": volume.loop.device, "id": volume.disk.node_name, "address": volume.disk.address}])
        cls.node.start()

    def setUp(self):
        self.kubelet, self.driver = Kubelet(self, self.node), Runtime(self, self.node)
        self.node.wait_for(self.first.path, "in_sync", "none", SECONDS)

    def publish(self, volume, **more):
        self.kubelet.publish(volume.device, self.sandbox.id, volume.path, volume.filesystem, **more)

    def drive(self, volume):
        name = hashlib.sha256(volume.path.encode()).hexdigest()[:32]
        row, *_ = self.node.query(f"SELECT * FROM audit_drives WHERE drive_id = 'pub-{name}' ORDER BY requested_at DESC")
        return row, f"/run/crust/volumes/{name}"

    def test_publish_write_unpublish(self):
        containers = Containers(self.node, self.sandbox.id)
        self.addCleanup(containers.close)
        containers.run((self.first.path, "/data"))
        volume = self.sandbox.make_volume("ext4")
        for options in [f"option{number}" for number in range(33)], ["o" * 256]:
            with self.fails("INVALID_ARGUMENT", "option"):  # a drive's bounds are narrower than a staged volume's
                self.publish(volume, mount_options=options)
        self.assertEqual(self.node.query("SELECT * FROM audit_drives"), [])
        for _ in range(2):  # the second joins what is there
            self.publish(volume, mount_options=OPTIONS, fsgroup_gid=4059, fsgroup_policy="Always")
        row, place = self.drive(volume)
        self.assertEqual((row["state"], row["sandbox_id"], row["host_path"], row["vm_path"], row["fs_group"],
                          row["fs_group_policy"], json.loads(row["options"])),
                         ("ready", self.sandbox.id, volume.device, place, 4059, "Always", ["noatime"]))
        self.assertFalse(self.node.directory(volume.path).exists())
        vm = self.sandbox.vm
        self.assertGreater(vm.guest_size(place), volume.loop.size // 2)
        vm.guest_write(f"{place}/pattern", PATTERN_BYTES)
        vm.guest_verify(f"{place}/pattern", PATTERN_BYTES)
        self.assertFalse(is_free(volume.device))
        self.publish(self.first)  # has metadata, and keeps it
        self.assertTrue(self.node.directory(self.first.path).exists())
        for _ in range(2):
            self.driver.unstage(volume.path)
        row, _ = self.drive(volume)
        self.assertEqual(row["state"], "removed")
        self.assertTrue(is_free(volume.device))
        self.check_on_the_host(volume)

    def check_on_the_host(self, volume):
        """The guest's data and the owners that it set are on the device."""
        place = self.scratch / "mounted"
        place.mkdir()
        subprocess.run(["mount", "-o", "ro", volume.device, place], check=True)
        try:
            root, written = place.stat(), (place / "pattern").stat()
        finally:
            subprocess.run(["umount", place], check=True)
        self.assertEqual((root.st_gid, root.st_mode & 0o2770), (4059, 0o2770))
        self.assertEqual((written.st_size, written.st_gid), (PATTERN_BYTES, 4059))
