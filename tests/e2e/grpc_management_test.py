# SPDX-License-Identifier: Apache-2.0
"""crust.management.v1: a volume by the sandbox that has it and the host's device, as for a kubelet."""

import os
import unittest

from containers import Containers
from grpc_client import SECONDS, GrpcTest
from scratch_node import AFTER, BEFORE, SANDBOX, publish_path, status

PATH = publish_path("pv-published")
OTHER = "b" * 64


def ask_again(call):
    """As a kubelet does, while the sandbox's containers are being read."""
    while True:
        try:
            return call()
        except Exception as error:
            if "are being read" not in str(error):
                raise


class ManagementTest(GrpcTest):
    def setUp(self):
        super().setUp()
        self.management = self.messages("crust_management")

    def start(self, node):
        node.start()
        self.client = self.stub(node, "crust_management", "RuntimeAssistedStorageManagement")

    def publish(self, device, sandbox=SANDBOX, path=PATH, file_system="ext4", **more):
        request = self.management.RuntimePublishVolumeRequest(
            sandbox_id=sandbox, host_volume_id=device, host_target_path=path, file_system=file_system, **more)
        return ask_again(lambda: self.client.RuntimePublishVolume(request, timeout=SECONDS))

    def expand(self, device, sandbox=SANDBOX, required=0):
        return self.client.RuntimeExpandVolume(self.management.RuntimeExpandVolumeRequest(
            sandbox_id=sandbox, host_volume_id=device, required_bytes=required),
            timeout=SECONDS).capacity_bytes

    def stats(self, device, sandbox=SANDBOX):
        return self.client.RuntimeGetVolumeStats(self.management.RuntimeGetVolumeStatsRequest(
            sandbox_id=sandbox, host_volume_id=device), timeout=SECONDS)


class Volumes(ManagementTest):
    def scene(self):
        """A sandbox that has a device, before anybody says what for."""
        node = self.node()
        volume = self.volume(node, "pv-unused")
        node.unstage(volume.path)
        self.monitor(node, volume)
        self.agent(node).stats.total = BEFORE
        vmm = node.start_vmm(SANDBOX)
        node.add_sandbox(SANDBOX, vmm.pid, agent="unix:///agent.sock", drives=[volume.record()])
        self.start(node)
        return node, volume.loop

    def test_from_publish_to_expand(self):
        node, loop = self.scene()
        with self.fails("NOT_FOUND"):
            self.stats(loop.device)
        with self.fails("UNAVAILABLE", "no such volume"):
            self.expand(loop.device)
        self.publish(loop.device, mount_options=["noatime"], fsgroup_gid=100,
                     fsgroup_policy="Always")
        row = node.volume(PATH)
        self.assertEqual((row["device"], row["metadata"], row["options"]),
                         (loop.device, '{"fsGroup":"100","fsGroupChangePolicy":"Always"}',
                          '["noatime"]'))
        self.assertEqual(set(os.listdir(node.directory(PATH))), {"mountInfo.json", SANDBOX})
        node.wait_for(PATH, "in_sync", sandbox_id=SANDBOX)
        self.assertEqual(node.query("SELECT source, drive_id IS NULL AS no_drive, until"
                                    " FROM audit_mappings"),
                         [{"source": "api", "no_drive": 0, "until": None}])
        self.publish(loop.device, mount_options=["noatime"], fsgroup_gid=100,
                     fsgroup_policy="Always")
        self.assertEqual(self.stats(loop.device).usage[0].total, BEFORE)
        loop.resize(AFTER)
        self.assertEqual(self.expand(loop.device, required=AFTER), AFTER)
        self.assertEqual(node.volume(PATH)["guest_bytes"], AFTER)
        self.assertEqual(self.stats(loop.device).usage[0].total, AFTER)
        with self.fails("UNAVAILABLE", "on the host"):
            self.expand(loop.device, required=AFTER + 1)

    def test_a_device_by_another_name(self):
        node, loop = self.scene()
        self.publish(loop.device)
        node.wait_for(PATH, "in_sync")
        node.wait(lambda: status(node)["acts_in_flight"] == 0, SECONDS, "rest")
        link = node.root / "dev/by-name"
        link.symlink_to(loop.device)
        self.assertEqual(self.stats("/dev/by-name").usage[0].total, BEFORE)
        self.assertEqual(self.expand("/dev/by-name"), BEFORE)
        with self.fails("NOT_FOUND"):
            self.stats("/dev/by-nobody")
        with self.fails("UNAVAILABLE", "no such volume"):
            self.expand(loop.device, sandbox=OTHER)

    def test_into_a_sandbox_with_containers(self):
        """With drives.enabled = on it would be a drive, which may lie below drives.host_prefixes only; without
        containers, or without drives, it is metadata."""
        for settings, has_containers in (({}, True), ({"drives.enabled": "on"}, False), ({"drives.enabled": "on"}, True)):
            with self.subTest((settings, has_containers)):
                node = self.node(settings)
                loop = self.loop()
                node.add_device(loop.device)
                containers = Containers(node, SANDBOX)
                vmm = node.start_vmm(SANDBOX)
                node.add_sandbox(SANDBOX, vmm.pid)
                if has_containers:
                    containers.run(("/somewhere", "/data"))
                self.start(node)
                node.wait(lambda n=node: n.query("SELECT 1 FROM audit_sandboxes"), SECONDS, "the sandbox")
                if settings and has_containers:
                    with self.fails("PERMISSION_DENIED", "drives.host_prefixes"):
                        self.publish(loop.device)
                    self.assertFalse(node.directory(PATH).exists())
                else:
                    self.publish(loop.device)
                    self.assertTrue(node.directory(PATH).exists())
                vmm.stop()
                containers.close()

    def test_bad_requests(self):
        node, loop = self.scene()
        for arguments, more in (((loop.device, ""), {}), ((loop.device, "../x"), {}),
                                ((loop.device, "x" * 129), {}),
                                ((loop.device, "mountInfo.json"), {}),
                                ((loop.device, "runtime-cli"), {}),
                                ((loop.device, "csiPlugin.json"), {}), (("",), {}), (("sda",), {}),
                                ((loop.device, SANDBOX, "/a/../b"), {}),
                                ((loop.device, SANDBOX, PATH, ""), {}),
                                ((loop.device,), {"fsgroup_gid": -1}),
                                ((loop.device,), {"fsgroup_policy": "Always"}),
                                ((loop.device,), {"fsgroup_gid": 1, "fsgroup_policy": "Never"}),
                                ((loop.device,), {"mount_options": [""]})):
            with self.subTest((arguments, more)), self.fails("INVALID_ARGUMENT"):
                self.publish(*arguments, **more)
        for arguments in (("",), ("sda",), (loop.device, ""), (loop.device, "a/b")):
            with self.subTest(arguments):
                with self.fails("INVALID_ARGUMENT"):
                    self.stats(*arguments)
                with self.fails("INVALID_ARGUMENT"):
                    self.expand(*arguments)
        with self.fails("INVALID_ARGUMENT"):
            self.expand(loop.device, required=-1)
        self.assertIsNone(node.volume(PATH))


if __name__ == "__main__":
    unittest.main()
