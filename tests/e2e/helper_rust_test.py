# SPDX-License-Identifier: Apache-2.0
"""A helper under Kata's Rust runtime, whose records do not tell where a volume is mounted."""

import secrets
import subprocess
import unittest

from helper_case import HelperCase
from kata_agent import KataAgent
from rust_runtime import GUEST_MOUNTS, RustPod, RustShim, guest_name
from scratch_node import AFTER, BEFORE, fake_monitor


class Pod(RustPod):
    def __init__(self, node, sandbox_id):
        self.node, self.id = node, sandbox_id


class RustHelperTest(HelperCase):

    def start_vmm(self, pod, *arguments):
        vmm = subprocess.Popen(["qemu-system-x86_64", "-c", "read _", "-name",
                                f"sandbox-{pod.id},debug-threads=on", *pod.monitor_arguments, *arguments],
                               executable="/bin/sh", stdin=subprocess.PIPE)
        self.addCleanup(vmm.wait)
        self.addCleanup(vmm.communicate)

    def build(self, *arguments, **metadata):
        """Two volumes at destinations that end alike, of different sizes."""
        node = self.helper_node()
        volumes = [self.volume(node, "pv-0", BEFORE),
                   self.volume(node, "pv-1", AFTER, metadata=metadata)]
        pod = Pod(node, secrets.token_hex(32))
        pod.make_directories()
        self.start_vmm(pod, *arguments)
        pod.write_state("qemu")
        monitor = fake_monitor.FakeMonitor(
            pod.monitor_path,
            [fake_monitor.Drive(volume.drive, volume.loop.device) for volume in volumes]).start()
        self.addCleanup(monitor.stop)
        agent = KataAgent(node.root / "agent.sock", pod.passthrough, GUEST_MOUNTS)
        self.addCleanup(agent.close)
        shim = RustShim(pod, "unix:///agent.sock")
        self.addCleanup(shim.close)
        for volume in volumes:
            name = guest_name("data")
            pod.run_container(volume.path, name)
            agent.mount(f"{GUEST_MOUNTS}/{name}", volume.loop)
        return node, pod, agent, volumes

    def test_volumes_of_one_name_are_distinguished_by_size(self):
        node, pod, agent, volumes = self.build()
        node.start()
        for volume in volumes:
            node.wait(lambda path=volume.path: (node.volume(path) or {}).get("guest_bytes"), 60,
                      "the guest to be grown")
        self.assertEqual([node.volume(volume.path)["guest_bytes"] for volume in volumes],
                         [BEFORE, AFTER])
        self.assertEqual({tuple(run[-2:]) for run in agent.runs}, {("/vol/0", "/vol/1")})
        node.wait(lambda: not [one for one in pod.passthrough.iterdir()
                               if one.name.startswith("crust-")], 30, "nothing to be left")
        self.assertEqual(agent.containers, {})

    def test_a_volume_that_must_not_grow_is_not_taken_for_another_one(self):
        """Where nothing tells which of two places is the volume's, and one is of a volume that is only
        observed, neither is given to a helper that grows."""
        node, pod, agent, volumes = self.build(**{"crust.resize": "observe"})
        observed = next(path for path, loop in agent.mounts.items() if loop is volumes[1].loop)
        agent.filled[observed] = BEFORE  # its owner has left room behind it
        node.start()
        node.wait_for(volumes[0].path, "in_sync", "unverified",
                      resizable_reason="guest_path_unknown")
        self.assertIn("must not grow", node.log_tail())
        self.settle(node)
        self.assertEqual(agent.filled[observed], BEFORE)
        self.assertEqual([run for run in agent.runs if "--report" not in run], [])

    def test_without_a_shared_directory_the_program_is_copied(self):
        """shared_fs = "none": QEMU has devices and none of them is a share."""
        node, pod, agent, volumes = self.build("-device", "virtio-blk-pci,drive=drive-0")
        agent.share = self.scratch / "guest-containers"  # the guest's own directory
        agent.guest_share = "/run/kata-containers/shared/containers"
        agent.share.mkdir()
        node.start()
        for volume in volumes:
            node.wait(lambda path=volume.path: (node.volume(path) or {}).get("guest_bytes"), 60,
                      "the guest to be grown")
        self.assertTrue(agent.matching(lambda one: one.method == "CopyFile"))
        self.assertFalse([one for one in pod.passthrough.iterdir()
                          if one.name.startswith("crust-")])
        node.wait(lambda: not agent.containers, 30, "no container to be left")


if __name__ == "__main__":
    unittest.main()
