# SPDX-License-Identifier: Apache-2.0
"""What changes while a helper waits or runs: settings, policies, the volumes beside it, the sandbox."""

import os
import signal
import threading
import time

from helper_case import HelperCase
from scratch_node import AFTER, BEFORE


class ChangeTest(HelperCase):

    def reload(self, node, **settings):
        node.configure(**settings)
        node.process.send_signal(signal.SIGHUP)
        node.wait(lambda: "the configuration was read again" in node.log_tail(), 30, "the reload")

    def queue(self, **settings):
        """One helper runs and is held; a second sandbox waits for its turn. The event ends the first."""
        node = self.helper_node(guest__helpers=1, **settings)
        first, second = (self.scene(node, sandbox_id=f"{number:064x}") for number in (1, 2))
        node.start()
        for scene in (first, second):
            self.in_sync(node, scene, BEFORE, 120)
        first.agent.hold = hold = threading.Event()
        self.addCleanup(hold.set)
        before = len(first.created())
        self.grow(first)
        first.agent.wait_for_requests(before + 1, 60, method="CreateContainer")
        self.grow(second)
        node.wait_for(second.volume.path, "block_grown", seconds=60, hypervisor_bytes=AFTER)
        return node, first, second, hold

    def test_switched_off_while_another_waits(self):
        """The one that runs comes to its end, the one that waits does not begin."""
        node, first, second, hold = self.queue()
        created = len(second.created())
        self.reload(node, guest__helper="off")
        hold.set()
        self.in_sync(node, first, AFTER)
        node.wait_for(second.volume.path, "block_grown", "agent_denied")
        self.assertEqual(len(second.created()), created)
        self.nothing_left(node, second)

    def test_a_volume_that_is_only_observed_by_the_time_of_its_turn(self):
        node, first, second, hold = self.queue()
        created = len(second.created())
        node.stage(second.volume.path, second.volume.loop.device, metadata={"crust.resize": "observe"})
        node.wait(lambda: node.query("SELECT count(*) AS n FROM audit_volumes WHERE metadata LIKE "
                                     "'%observe%'")[0]["n"] == 1, 30, "the policy to be on record")
        hold.set()
        self.in_sync(node, first, AFTER)
        node.wait_for(second.volume.path, "block_grown", "agent_unreachable")
        self.assertIn("policy", self.resize_row(node, second.volume.path)["error"])
        self.assertEqual(len(second.created()), created)
        node.stage(second.volume.path, second.volume.loop.device)
        self.in_sync(node, second, AFTER)

    def test_a_neighbour_whose_place_in_the_guest_is_gone(self):
        """Its container has ended, and kata-agent makes no container that binds its place."""
        node, scene = self.build(2)
        volume, neighbour = scene.volumes
        del scene.agent.mounts[self.guest_path(node, neighbour)]
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)
        self.nothing_left(node, scene)

    def test_a_stop_does_not_wait_for_a_guest_that_hangs(self):
        """A stop takes one call's time at most; the next daemon removes what was left."""
        node, scene = self.build(resize__call_timeout_seconds=6)
        before = len(scene.created())
        for call in ("CreateContainer", "SignalProcess", "WaitProcess", "RemoveContainer"):
            scene.agent.behave(call, "silent")
        self.grow(scene)
        scene.agent.wait_for_requests(before + 1, 60, method="CreateContainer")
        begin = time.monotonic()
        self.assertEqual(node.stop(), 0)
        self.assertLess(time.monotonic() - begin, 9)
        for call in ("CreateContainer", "SignalProcess", "WaitProcess", "RemoveContainer"):
            scene.agent.behave(call, "ok")
        node.start()
        self.in_sync(node, scene, AFTER)

    def test_a_fault_of_before_is_no_answer_to_a_later_resize(self):
        """A neighbour's helper found the file system read-only when it had nothing to grow."""
        node, scene = self.build(2)
        volume, neighbour = scene.volumes
        scene.agent.faults = {self.guest_path(node, neighbour): "read_only"}
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)
        scene.agent.faults = {}
        neighbour.loop.resize(AFTER)
        node.wait_for(neighbour.path, "in_sync", "none", guest_bytes=AFTER)
        self.assertNotIn("file_system_not_growable", node.log_tail())

    def test_a_sandbox_that_ends_with_a_helper_in_it(self):
        """crustd runs on: nothing is left in the share or on record, and others are served."""
        node = self.helper_node(guest__helpers=1, resize__call_timeout_seconds=4)
        ends, stays = (self.scene(node, sandbox_id=f"{number:064x}") for number in (1, 2))
        node.start()
        for scene in (ends, stays):
            self.in_sync(node, scene, BEFORE, 120)
        self.stop_at(ends)
        ends.agent.close()
        ends.vmm.stop()
        node.end_sandbox(ends.sandbox_id)
        self.grow(stays)
        self.in_sync(node, stays, AFTER, 120)
        node.wait(lambda: sorted(os.listdir(ends.share)) == ["0123-resolv.conf"], 120,
                  "the share to be empty")

    def test_a_share_that_is_replaced_by_a_link_while_the_helper_runs(self):
        """Nothing is removed where the link leads; what was placed is removed where it was placed."""
        node, scene = self.build()
        victim = self.scratch / "victim"
        away = scene.share.with_name("away")
        self.stop_at(scene)
        name, = (one for one in os.listdir(scene.share) if one.startswith("crust-"))
        (victim / name / "proc").mkdir(parents=True)
        (victim / name / "agent").write_text("somebody else's")
        scene.share.rename(away)
        scene.share.symlink_to(victim)
        scene.agent.go_on.set()
        node.wait_for(scene.volume.path, "in_sync", "none", guest_bytes=AFTER)
        node.wait(lambda: sorted(os.listdir(away)) == ["0123-resolv.conf"], 30, "the share to be empty")
        self.assertEqual(sorted(os.listdir(victim / name)), ["agent", "proc"])
