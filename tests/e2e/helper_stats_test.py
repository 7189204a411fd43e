# SPDX-License-Identifier: Apache-2.0
"""GetVolumeStats by a helper, where the agent's policy denies it: seldom, and saying how old it is."""

import unittest

from helper_case import HelperCase
from scratch_node import BEFORE


class StatsTest(HelperCase):

    def test_polled(self):
        """Usage is on record although the agent denies; with one helper for several polls."""
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
        self.assertEqual(scene.agent.runs[0][-2:], ["/vol/0", "/vol/1"])
        self.nothing_left(node, scene)


if __name__ == "__main__":
    unittest.main()
