# SPDX-License-Identifier: Apache-2.0
"""Every kind of volume grows all the way: host device, QEMU, the guest's file system, the record.

Two sandboxes on one node: virtio-blk and virtio-scsi.
"""

import os

from resize_case import ResizeCase

LONGEST_PATH_BYTES = 189


def longest_path():
    """Spaces, a quote, letters of two to four bytes; as long as its encoding may be as a name."""
    path = "/var/lib/kubelet/pods/a pod's uid/volumes/kubernetes.io~csi/Größe 数据 😀 "
    path += "x" * (LONGEST_PATH_BYTES - len(os.fsencode(path + "/mount"))) + "/mount"
    assert len(os.fsencode(path)) == LONGEST_PATH_BYTES
    return path


class ResizeTest(ResizeCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandboxes = {}
        for bus in ("blk", "scsi"):
            sandbox = cls.add_sandbox(bus=bus)
            sandbox.kinds = {name: sandbox.add_volume(name) for name in ("ext4", "xfs", "btrfs")}
            sandbox.kinds["fdset"] = sandbox.add_volume("ext4", fdset=True)
            sandbox.kinds["fdset too"] = sandbox.add_volume("xfs", fdset=True)
            cls.sandboxes[bus] = sandbox
        kinds = cls.sandboxes["blk"].kinds
        kinds["absolute link"] = cls.add_linked("blk", "absolute", "/dev")
        kinds["relative link"] = cls.add_linked("blk", "relative", "../..")
        kinds["longest path"] = cls.sandboxes["blk"].add_volume("ext4", path=longest_path())
        for sandbox in cls.sandboxes.values():
            sandbox.kinds["QEMU's link"] = sandbox.add_volume("ext4", through_link=True)
        cls.boot(*cls.sandboxes.values())
        cls.node.start()

    @classmethod
    def add_linked(cls, bus, name, directory):
        """A volume whose device is /dev/disk/by-id/NAME in the node's root."""

        def link(device):
            path = cls.node.path(f"/dev/disk/by-id/{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(f"{directory}/{os.path.basename(device)}")
            return f"/dev/disk/by-id/{name}"

        return cls.sandboxes[bus].add_volume("ext4", device=link)

    def grow_kind(self, bus, kind):
        self.grow(self.sandboxes[bus].kinds[kind])

    def grow_in_each(self, kind):
        for bus in self.sandboxes:
            with self.subTest(bus=bus):
                self.grow_kind(bus, kind)

    def test_ext4(self):
        self.grow_in_each("ext4")

    def test_xfs(self):
        self.grow_in_each("xfs")

    def test_btrfs(self):
        self.grow_in_each("btrfs")

    def test_disk_given_as_descriptor(self):
        self.grow_in_each("fdset")

    def test_disk_given_to_qemu_as_link(self):
        self.grow_in_each("QEMU's link")

    def test_device_is_absolute_link(self):
        self.grow_kind("blk", "absolute link")

    def test_device_is_relative_link(self):
        self.grow_kind("blk", "relative link")

    def test_longest_path(self):
        volume = self.sandboxes["blk"].kinds["longest path"]
        self.grow(volume)
        shown = self.node.crustctl("-o", "json", "volume", volume.path).stdout
        self.assertIn("Größe 数据 😀", shown)
        self.node.crustctl("wait", volume.path, "--for", "in_sync", "--timeout", "60")

    def test_two_volumes_of_one_sandbox_together(self):
        for key, sandbox in self.sandboxes.items():
            with self.subTest(key):
                self.grow(sandbox.kinds["ext4"], sandbox.kinds["fdset too"])

    def test_all_together(self):
        self.grow(*[volume for sandbox in self.sandboxes.values() for volume in sandbox.volumes])

    def test_unchanged_facts_are_not_written(self):
        volumes = [volume for sandbox in self.sandboxes.values() for volume in sandbox.volumes]
        for volume in volumes:
            self.settle(volume)
        before = self.node.query("SELECT max(seq) AS seq FROM audit_journal")[0]["seq"]
        self.node.crustctl("resync")
        grown = self.sandboxes["scsi"].kinds["ext4"]
        self.grow(grown)
        others = self.node.query(f"SELECT * FROM audit_journal WHERE seq > {before} AND volume_id"
                                 f" <> {self.node.volume(grown.path)['volume_id']}"
                                 " AND kind <> 'query_hypervisor_intended'")
        self.assertEqual(others, [])
