# SPDX-License-Identifier: Apache-2.0
"""Resize by a helper that crustd brings into the guest: what is asked of kata-agent, and what is left."""

import base64
import os
import subprocess

from disks import KATA_STORAGE, make_filesystem
from helper_case import GUEST_SHARE, HelperCase, OURS, guest_path_of
from kata_agent import KataAgent
from scratch_node import AFTER, BEFORE, MIB, SANDBOX
from vmm import DRIVE, cloud_hypervisor, firecracker, record

CALLS = ("CreateContainer", "StartContainer", "ReadStdout", "ReadStderr", "WaitProcess",
         "RemoveContainer")
SLOT_PATH = KATA_STORAGE + base64.urlsafe_b64encode(b"03").decode()  # of the first disk


class ResizeTest(HelperCase):

    def test_resize_of_one_volume(self):
        node, scene = self.build()
        scene.agent.runs.clear()
        self.grow(scene)
        self.in_sync(node, scene, AFTER)
        resize = self.resize_row(node, scene.volume.path)
        self.assertEqual((resize["state"], resize["from_bytes"], resize["to_bytes"]),
                         ("in_sync", BEFORE, AFTER))
        self.assertIsNotNone(resize["guest_at"])
        self.assertEqual(len(scene.agent.runs), 1)
        arguments = scene.agent.runs[0]
        self.assertEqual((arguments[1], arguments[-1]), ("--once", self.guest_path(node, scene.volume)))
        self.assertNotIn("--report", arguments)
        kinds = [row["kind"] for row in node.query(
            "SELECT kind FROM audit_journal WHERE kind LIKE 'helper%' ORDER BY seq")]
        self.assertEqual(kinds, ["helper_intended"] * 2)  # the first binding's, and this one

    def test_volumes_of_one_sandbox_share_one_helper(self):
        node, scene = self.build(3)
        self.assertEqual([len(one) - 4 for one in scene.agent.runs], [3], scene.agent.runs)
        node.stop()
        scene.agent.runs.clear()
        self.grow(scene)
        node.start()
        self.in_sync(node, scene, AFTER)
        self.assertEqual([sorted(one[-3:]) for one in scene.agent.runs], [sorted(scene.agent.mounts)])

    def test_an_agent_that_fails_takes_nothing_from_the_helper(self):
        node, scene = self.build()
        node.crustctl("resync")  # what the sandbox was found unable to do is asked for again
        scene.agent.behave("ResizeVolume", "status:13:resize2fs: bad magic")
        scene.agent.runs.clear()
        self.grow(scene)
        self.in_sync(node, scene, AFTER)
        self.assertEqual(len(scene.agent.runs), 1)
        self.assertIn("ResizeVolume", [request.method for request in scene.agent.requests])
        self.assertEqual(node.volume(scene.volume.path)["stalled"], 0)

    def one_volume(self, path, inside=None, **settings):
        """A volume, its agent, and the directory that Kata makes for the guest; inside: what the guest has in its place."""
        node = self.helper_node(**settings)
        volume = self.volume(node, "pv-0", BEFORE)
        share = self.share_of(node, SANDBOX)
        agent = KataAgent(node.root / "agent.sock", inside or share, GUEST_SHARE)
        self.addCleanup(agent.close)
        agent.mount(path or guest_path_of(volume), volume.loop)
        return node, volume, agent, share

    def cloud_hypervisor(self, *options, inside=None):
        scene = node, volume, _, _ = self.one_volume(SLOT_PATH, inside)
        record(node, cloud_hypervisor(self, node, SANDBOX, volume, "v53.0", *options), volume)
        node.start()
        return scene

    def own_directory(self):
        """What a guest without a shared directory has at the same place."""
        directory = self.scratch / "guest-containers"
        directory.mkdir()
        return directory

    def grows(self, node, volume):
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=BEFORE)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)

    def grows_by_a_copy(self, node, volume, agent, share):
        self.grows(node, volume)
        self.assertTrue(agent.matching(lambda one: one.method == "CopyFile"))
        self.assertFalse([name for name in os.listdir(share) if name.startswith(OURS)])

    def test_the_disk_of_a_cloud_hypervisor_is_found_by_its_pci_slot(self):
        """Kata's Go runtime mounts it by that slot and records nothing of it."""
        node, volume, agent, _ = self.cloud_hypervisor()
        self.grows(node, volume)
        self.assertEqual(node.query("SELECT guest_path FROM audit_mappings"),
                         [{"guest_path": SLOT_PATH}])
        self.assertFalse(agent.matching(lambda one: one.method == "CopyFile"))

    def test_a_cloud_hypervisor_that_shares_no_directory(self):
        """The guest says so itself; the directory on the node is there all the same."""
        self.grows_by_a_copy(*self.cloud_hypervisor("--no-share", inside=self.own_directory()))

    def test_a_firecracker_shares_no_directory(self):
        """Kata makes one on the node all the same."""
        scene = node, volume, _, _ = self.one_volume(None, self.own_directory(),
                                                     resize__firecracker="on")
        record(node, firecracker(self, node, SANDBOX, volume), volume, drive=DRIVE)
        node.start()
        self.grows_by_a_copy(*scene)

    def test_a_confidential_guest_of_a_cloud_hypervisor(self):
        """Nothing is brought into the guest, and its agent's answer stands."""
        node, volume, agent, share = self.cloud_hypervisor("--confidential")
        node.wait_for(volume.path, "in_sync", "unverified")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "block_grown", "agent_denied")
        self.assertFalse(agent.matching(lambda one: one.method in CALLS))
        self.assertFalse([name for name in os.listdir(share) if name.startswith(OURS)])

    def test_a_helper_is_used_only_where_it_may_be(self):
        for settings in ({"guest.helper": "off"}, {"agent.routes": "companion, agent, shim"}):
            with self.subTest(settings):
                node = self.helper_node(**settings)
                scene = self.scene(node)
                node.start()
                node.wait_for(scene.volume.path, "in_sync", "unverified")
                self.grow(scene)
                node.wait_for(scene.volume.path, "block_grown", "agent_denied")
                self.assertFalse([one for one in scene.agent.requests if one.method in CALLS])
                self.nothing_left(node, scene)
                node.close()

    def test_a_volume_that_is_only_observed_is_left_out(self):
        """Also of a helper that runs for another volume of its sandbox."""
        node = self.helper_node()
        scene = self.scene(node, 2)
        node.stage(scene.volumes[1].path, scene.volumes[1].loop.device,
                   metadata={"crust.resize": "observe"})
        node.record(scene.volumes[1].path, SANDBOX)
        node.start()
        node.wait_for(scene.volumes[0].path, "in_sync", "none", guest_bytes=BEFORE)
        self.grow(scene)
        node.wait_for(scene.volumes[0].path, "in_sync", "none", guest_bytes=AFTER)
        node.wait_for(scene.volumes[1].path, "host_grown", "policy")
        self.assertEqual({len(one) for one in scene.agent.runs}, {5})
        self.nothing_left(node, scene)

    def test_a_real_helper_grows_a_real_file_system(self):
        """What crustd has placed is run in a container's namespaces, on an xfs that a guest would have
        mounted: here a process has, in a mount namespace of its own."""
        size, larger = 320 * MIB, 384 * MIB
        node = self.helper_node()
        scene = self.scene(node, size=size)
        guest = self.guest_with(scene.volume.loop, "xfs")
        scene.agent.execute = guest.pid
        node.start()
        first = self.synced(node, scene, size)
        self.ask(guest, f"echo as it was >{scene.volume.loop.mount_point}/file; sync")
        scene.volume.loop.resize(larger)
        self.assertGreater(self.synced(node, scene, larger), first)
        size_by_guest = self.ask(guest, f"stat -f -c '%b*%S' {scene.volume.loop.mount_point}")
        blocks, block = map(int, size_by_guest.split("*"))
        self.assertEqual(node.volume(scene.volume.path)["guest_bytes"], blocks * block)
        self.assertEqual(self.ask(guest, f"cat {scene.volume.loop.mount_point}/file"), "as it was")

    def synced(self, node, scene, device_bytes):
        """The file system's size, once the guest has grown it to the device."""
        node.wait_for(scene.volume.path, "in_sync", "none", device_bytes=device_bytes)
        self.nothing_left(node, scene)
        return node.volume(scene.volume.path)["guest_bytes"]

    def guest_with(self, loop, file_system):
        """A shell in a mount namespace where the device is mounted."""
        loop.mount_point = self.scratch / "mounted"
        loop.mount_point.mkdir()
        make_filesystem(file_system, loop.device)
        guest = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(guest.wait)
        self.addCleanup(guest.communicate)
        if self.ask(guest, f"mount {loop.device} {loop.mount_point} 2>&1 && echo yes") != "yes":
            self.skipTest(f"no {file_system} can be mounted here")
        return guest

    def ask(self, guest, command):
        """The output of a shell command in it, up to a line of one dot."""
        guest.stdin.write(f"{command}; echo; echo .\n")
        guest.stdin.flush()
        lines = []
        while (line := guest.stdout.readline().rstrip("\n")) != ".":
            lines.append(line)
        return "\n".join(lines).strip()


class StatsTest(HelperCase):

    def test_polled(self):
        """Usage is recorded although the agent refuses; one helper serves several polls."""
        node, scene = self.build(2, guest__stats_seconds=1)
        runs = len(scene.agent.runs)
        for volume in scene.volumes:
            row = node.wait_for(volume.path, "in_sync", used_bytes=4096,
                                available_bytes=BEFORE - 4096, condition="normal")
        first = row["stats_at"]
        polls = len(scene.agent.matching(lambda one: one.method == "GetVolumeStats"))
        scene.agent.wait_for_requests(polls + 6, 60, method="GetVolumeStats")
        self.assertEqual(len(scene.agent.runs), runs, "what the resize's helper said still serves")
        # The time at which the guest was read, and not the one at which somebody asked.
        self.assertEqual(node.volume(scene.volumes[1].path)["stats_at"][:18], first[:18])

    def test_a_restarted_daemon_asks_once(self):
        node, scene = self.build(2)
        node.stop()
        node.configure(guest__stats_seconds=1)
        scene.agent.runs.clear()
        node.start()
        for volume in scene.volumes:
            node.wait_for(volume.path, "in_sync", used_bytes=4096)
        time_read = node.volume(scene.volumes[0].path)["stats_at"]
        self.assertIsNotNone(time_read)
        polls = len(scene.agent.matching(lambda one: one.method == "GetVolumeStats"))
        scene.agent.wait_for_requests(polls + 4, 60, method="GetVolumeStats")
        self.assertEqual(len(scene.agent.runs), 1, scene.agent.runs)
        self.assertIn("--report", scene.agent.runs[0])
        self.assertEqual(sorted(scene.agent.runs[0][-2:]), sorted(scene.agent.mounts))
        self.nothing_left(node, scene)
