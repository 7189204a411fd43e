# SPDX-License-Identifier: Apache-2.0
"""A helper under Kata's Rust runtime, whose records do not tell where a volume is mounted."""

import secrets

from helper_case import HelperCase
from kata_agent import KataAgent
from rust_runtime import GUEST_MOUNTS, RustPod, guest_name
from scratch_node import AFTER, BEFORE


class RustHelperTest(HelperCase):

    def build(self, *arguments, **metadata):
        """Two volumes at destinations that end alike, of different sizes."""
        node = self.helper_node()
        volumes = [self.volume(node, "pv-0", BEFORE),
                   self.volume(node, "pv-1", AFTER, metadata=metadata)]
        pod = RustPod(node, secrets.token_hex(32))
        pod.start(self, *pod.monitor_arguments, *arguments, agent_url="unix:///agent.sock")
        self.monitor(node, *volumes, path=pod.monitor_path)
        agent = KataAgent(node.root / "agent.sock", pod.passthrough, GUEST_MOUNTS)
        self.addCleanup(agent.close)
        for volume in volumes:
            name = guest_name("data")
            pod.run_container(volume.path, name)
            agent.mount(f"{GUEST_MOUNTS}/{name}", volume.loop)
        return node, pod, agent, volumes

    def wait_grown(self, node, volumes):
        for volume in volumes:
            node.wait(lambda path=volume.path: (node.volume(path) or {}).get("guest_bytes"), 60,
                      "the guest to be grown")

    def test_volumes_of_one_name_are_distinguished_by_size(self):
        node, pod, agent, volumes = self.build()
        node.start()
        self.wait_grown(node, volumes)
        self.assertEqual([node.volume(volume.path)["guest_bytes"] for volume in volumes],
                         [BEFORE, AFTER])
        self.assertEqual({tuple(sorted(run[-2:])) for run in agent.runs}, {tuple(sorted(agent.mounts))})
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
        self.wait_grown(node, volumes)
        self.assertTrue(agent.matching(lambda one: one.method == "CopyFile"))
        self.assertFalse([one for one in pod.passthrough.iterdir()
                          if one.name.startswith("crust-")])
        node.wait(lambda: not agent.containers, 30, "no container to be left")
