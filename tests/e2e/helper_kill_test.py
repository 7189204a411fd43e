# SPDX-License-Identifier: Apache-2.0
"""crustd killed at every step of a helper's exchange: the next daemon ends the resize, and cleans up."""

import itertools
import os

from helper_case import HelperCase
from kata_agent import KataAgent
from scratch_node import AFTER, BEFORE

CALLS = ("CreateContainer", "StartContainer", "ReadStdout", "ReadStderr", "WaitProcess",
         "RemoveContainer")


class KillTest(HelperCase):

    def test_killed_at_each_call(self):
        """Before the agent has done what it was asked for, and after that but before it answers. The
        workload's agent goes on with what it was asked."""
        node, scene = self.build()
        size = AFTER
        for call, when in itertools.product(CALLS, ("before", "after")):
            with self.subTest(call=call, when=when):
                size += self.MIB
                self.stop_at(scene, call, when, size)
                node.kill()
                scene.agent.go_on.set()
                node.start()
                self.in_sync(node, scene, size)

    def test_a_helper_that_is_on_no_record(self):
        """A database that was lost: the share tells, by the names."""
        node, scene = self.build()
        self.stop_at(scene)
        node.kill()
        scene.agent.go_on.set()
        for name in os.listdir(node.root / "var/lib/crustd"):
            (node.root / "var/lib/crustd" / name).unlink()
        self.assertNotEqual(scene.left(), [])
        (scene.share / "crust-notours").mkdir()
        node.start()
        node.wait(lambda: scene.left() == ["crust-notours"], 60, "the helper to be removed")
        (scene.share / "crust-notours").rmdir()
        self.in_sync(node, scene, AFTER)

    def test_a_sandbox_that_ends_with_a_helper_in_it(self):
        node, scene = self.build()
        self.stop_at(scene)
        node.kill()
        scene.agent.close()
        scene.vmm.stop()
        node.end_sandbox(scene.sandbox_id)
        node.start()
        node.wait(lambda: node.query("SELECT count(*) AS n FROM helper_runs")[0]["n"] == 0, 60,
                  "the record to end")
        node.wait(lambda: sorted(os.listdir(scene.share)) == ["0123-resolv.conf"], 60,
                  "the share to be empty")


class Count:
    """How many programs run in all guests, and the peak of it."""

    def __init__(self):
        self.now = self.peak = 0

    def enter(self):
        self.now += 1
        self.peak = max(self.peak, self.now)

    def leave(self):
        self.now -= 1


class SlowAgent(KataAgent):
    def report(self, container):
        self._delay(0.05)
        return super().report(container)


class ManyTest(HelperCase):
    SANDBOXES = 50
    RSS_KIB = 8000  # the aim of docs/measurements.md for any number of volumes

    def test_many_sandboxes_grow_at_once(self):
        node = self.helper_node()
        scenes = [self.scene(node, sandbox_id=f"{number + 1:064x}", agent_class=SlowAgent)
                  for number in range(self.SANDBOXES)]
        count = Count()
        for scene in scenes:
            scene.agent.shared_count = count
        node.start()
        for scene in scenes:
            self.in_sync(node, scene, BEFORE, 300)
        count.peak = 0
        for scene in scenes:
            self.grow(scene)
        largest = 0
        for scene in scenes:
            self.in_sync(node, scene, AFTER, 300)
            largest = max(largest, self.anonymous_kib(node))
        self.assertEqual(count.peak, 2)
        self.assertLess(largest, self.RSS_KIB)

    def anonymous_kib(self, node):
        with open(f"/proc/{node.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
