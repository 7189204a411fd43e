# SPDX-License-Identifier: Apache-2.0
"""Which drive a volume has, as the runtime's records and the VMM have it: drives that come and go
while the sandbox lives, and records that contradict the path.
"""

import json
import os

from scratch_node import AFTER, BEFORE, MIB, SANDBOX, ScratchNodeTest, Volume


class BindingTest(ScratchNodeTest):
    """A sandbox of Kata's Go runtime, its monitor and its agent."""

    def mappings(self, node, volume):
        return node.query("SELECT m.* FROM audit_mappings m JOIN audit_volumes v USING (volume_id)"
                          f" WHERE v.target_path = '{volume.path}' ORDER BY m.since")

    def test_container_without_cri(self):
        """As ctr and nerdctl start one: no annotation, no sandbox-id file; its id is the sandbox's."""
        node = self.node()
        self.agent(node)
        volume = self.volume(node)
        self.sandbox(node, drives=[volume.record()])
        self.monitor(node, volume)
        self.containers(node, SANDBOX, ((volume.path, "/data"),))
        node.start()
        node.wait_for(volume.path, "in_sync", sandbox_id=SANDBOX)
        self.assertEqual([row["sandbox_id"] for row in self.mappings(node, volume)], [SANDBOX])
        node.grow(volume, AFTER)
        self.assertIn(SANDBOX, node.crustctl("explain", volume.path).stdout)

    def test_large_and_odd_bundle(self):
        """Service links make 40,000 variables of 3 MiB, and annotations differ in letter case only."""
        node = self.node()
        self.agent(node)
        volume = self.volume(node)
        self.sandbox(node, drives=[volume.record()])
        self.monitor(node, volume)
        containers = self.containers(node)
        containers.more = {
            "annotations": {"team": "a", "Team": "b", "IO.kubernetes.cri.sandbox-id": "f" * 64},
            "process": {"env": [f"SERVICE_{number}_PORT_8080_TCP_ADDR={'10.96.0.1':>50}"
                                for number in range(40000)]}}
        bundle = containers.run((volume.path, "/data"))
        self.assertGreater((bundle / "config.json").stat().st_size, 3 * MIB)
        node.start()
        node.wait_for(volume.path, "in_sync", sandbox_id=SANDBOX)
        node.grow(volume, AFTER)

    def test_record_of_another_device(self):
        """The runtime was given a link that leads elsewhere by now: nothing is touched."""
        node = self.node()
        self.agent(node)
        first, second = self.loop(), self.loop()
        link = node.path("/dev/disk-of-the-volume")
        for loop in (first, second):
            node.add_device(loop.device)
        volume = self.volume(node, "pv-link")
        node.stage(volume.path, "/dev/disk-of-the-volume")
        link.symlink_to(second.device)
        vmm = node.start_vmm(SANDBOX)
        sandbox = node.add_sandbox(SANDBOX, vmm.pid, agent="unix:///agent.sock",
                                   drives=[{"device": first.device, "id": "drive-1",
                                            "address": "02/01"}])
        container = sandbox / SANDBOX
        container.mkdir()
        (container / "persist.json").write_text(json.dumps({"Mounts": [
            {"Source": "/dev/disk-of-the-volume", "Destination": "/data",
             "BlockDeviceID": "device-0"}]}))
        node.record(volume.path, SANDBOX)
        monitor = self.monitor(node, Volume(volume.path, first, "drive-1"))
        node.start()
        node.wait_for(volume.path, "blocked", "identity_mismatch")
        self.assertEqual(self.mappings(node, volume), [])
        for loop in (first, second):
            loop.resize(BEFORE + 16 * MIB)
        self.settle(node)
        node.wait_for(volume.path, "blocked", "identity_mismatch")
        self.assertEqual(monitor.sent("block_resize"), [])
        link.unlink()
        link.symlink_to(os.path.basename(first.device))
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=BEFORE + 16 * MIB)
