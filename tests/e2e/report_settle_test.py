# SPDX-License-Identifier: Apache-2.0
"""resize.settle_ms: a resize is acted on once the size has been still, and the record says when."""

import signal

from scratch_node import AFTER, BEFORE, MIB, ScratchNodeTest

FURTHER = AFTER + 32 * MIB
LONGER_THAN_ANY_TEST = {"resize.settle_ms": 60_000}


class SettleTest(ScratchNodeTest):

    def test_a_resize_waits_until_the_size_is_still(self):
        scene = self.scenery(LONGER_THAN_ANY_TEST)
        scene.resize(AFTER)
        first = scene.wait("host_grown", "none", device_bytes=AFTER)
        self.assertGreater(first["next_attempt_at"], first["state_since"])
        scene.explains("resize.settle_ms", "if the size stays the same")
        scene.resize(FURTHER)
        second = scene.wait("host_grown", "none", device_bytes=FURTHER)
        self.assertGreater(second["next_attempt_at"], first["next_attempt_at"])
        self.settle(scene.node)
        self.assertEqual(scene.node.volume(scene.path), second)
        self.assertEqual((self.acts(scene.node, "resize_hypervisor"), scene.sent()), (0, 0))
        scene.node.configure(resize__settle_ms=50)
        scene.node.process.send_signal(signal.SIGHUP)
        scene.grown(FURTHER)
        self.assertEqual((scene.row()["from_bytes"], scene.row()["to_bytes"]), (BEFORE, FURTHER))
        self.assertEqual(scene.sent(), 1)

    def test_a_restart_goes_on_waiting(self):
        scene = self.scenery(LONGER_THAN_ANY_TEST)
        scene.resize(AFTER)
        before = scene.wait("host_grown", "none", device_bytes=AFTER)
        scene.node.kill()
        scene.node.start()
        self.settle(scene.node)
        self.assertEqual(scene.node.volume(scene.path)["next_attempt_at"], before["next_attempt_at"])

    def test_once_waits_too(self):
        scene = self.scenery({"resize.settle_ms": 300}, start=False)
        scene.resize(AFTER)
        scene.node.once()
        row = scene.node.volume(scene.path)
        self.assertEqual((row["state"], row["reason"], row["hypervisor_bytes"]), ("in_sync", "none", AFTER))
        self.assertEqual(scene.sent(), 1)
