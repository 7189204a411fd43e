# SPDX-License-Identifier: Apache-2.0
"""Volumes that nobody may write to: any number of sandboxes may have them, and nothing grows them."""


from grpc_client import GrpcTest, Runtime
from scratch_node import AFTER, SANDBOX, Volume, publish_path

OTHER = "b" * 64


class ReadersTest(GrpcTest):
    def scene(self, first, second):
        """Two pods of one claim: two target paths on one device, each with its mount options."""
        node, volume = self.node_with_volume(name="pv-first", options=first)
        other = Volume(publish_path("pv-second"), volume.loop, "drive-of-the-other")
        node.stage(other.path, volume.loop.device, options=second)
        self.equip(node, volume)
        self.sandbox(node, other, sandbox_id=OTHER)
        node.start()
        return node, volume, other

    def test_two_readers_of_one_device(self):
        node, volume, other = self.scene(["ro"], ["noatime", "ro"])
        for one, sandbox in ((volume, SANDBOX), (other, OTHER)):
            node.wait_for(one.path, "unmanaged", "read_only", sandbox_id=sandbox)
        volume.loop.resize(AFTER)
        for one in (volume, other):
            node.wait_for(one.path, "unmanaged", "read_only", device_bytes=AFTER)
        self.settle(node)
        self.assertEqual((self.acts(node, "resize_hypervisor"), self.acts(node, "grow_guest")), (0, 0))
        self.assertEqual(node.query("SELECT 1 FROM audit_resizes"), [])
        self.explains(node, volume.path, "read-only", "first sandbox that may write")
        with self.fails("FAILED_PRECONDITION", "read_only"):
            Runtime(self, node).expand(volume.path)

    def test_a_reader_beside_a_writer(self):
        node, volume, other = self.scene(["ro"], ["rw"])
        for one in (volume, other):
            node.wait_for(one.path, "blocked", "device_shared")
        node.stage(other.path, volume.loop.device, options=["ro"])
        for one in (volume, other):
            node.wait_for(one.path, "unmanaged", "read_only")

    def test_one_directory_for_two_readers(self):
        node, volume = self.node_with_volume(options=["ro"])
        self.sandbox(node, volume)
        self.sandbox(node, sandbox_id=OTHER)
        node.record(volume.path, OTHER)
        node.start()
        node.wait_for(volume.path, "unmanaged", "read_only")
        node.stage(volume.path, volume.loop.device, options=["rw"])
        node.record(volume.path, SANDBOX)
        node.record(volume.path, OTHER)
        node.wait_for(volume.path, "blocked", "multiple_sandboxes")

    def test_a_further_reader_is_staged_and_no_writer(self):
        node, volume = self.node_with_volume(name="pv-first", options=["ro"])
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "unmanaged", "read_only")
        path = publish_path("pv-second")
        for options in ([], ["rw"], ["ro", "rw"]):
            with self.subTest(options), self.fails("UNAVAILABLE", volume.path):
                Runtime(self, node).stage(path, volume.loop.device, mount_flags=options)
        Runtime(self, node).stage(path, volume.loop.device, mount_flags=["noatime", "ro"])
        node.wait_for(path, "unbound", "none")
