# SPDX-License-Identifier: Apache-2.0
"""resize.settle_ms: a resize is acted on once the size has been still, and the record says when."""

import signal
import unittest

from scratch_node import AFTER, BEFORE, MIB, ScratchNodeTest

FURTHER = AFTER + 32 * MIB
LONGER_THAN_ANY_TEST = 60_000


class SettleTest(ScratchNodeTest):

    def build(self, settle_ms):
        node = self.node({"resize.settle_ms": settle_ms})
        volume = self.volume(node)
        self.agent(node).stats.total = BEFORE
        monitor = self.monitor(node, volume)
        self.sandbox(node, volume)
        return node, volume, monitor

    def test_a_resize_waits_until_the_size_is_still(self):
        node, volume, monitor = self.build(LONGER_THAN_ANY_TEST)
        node.start()
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=BEFORE)
        volume.loop.resize(AFTER)
        first = node.wait_for(volume.path, "host_grown", "none", device_bytes=AFTER)
        self.assertGreater(first["next_attempt_at"], first["state_since"])
        self.explains(node, volume.path, "resize.settle_ms", "if the size stays the same")
        volume.loop.resize(FURTHER)
        second = node.wait_for(volume.path, "host_grown", "none", device_bytes=FURTHER)
        self.assertGreater(second["next_attempt_at"], first["next_attempt_at"])
        self.settle(node)
        self.assertEqual(node.volume(volume.path), second)
        self.assertEqual(self.acts(node, "resize_hypervisor"), 0)
        self.assertEqual(monitor.sent("block_resize"), [])

        node.configure(resize__settle_ms=50)
        node.process.send_signal(signal.SIGHUP)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=FURTHER,
                      next_attempt_at=None)
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, FURTHER))
        self.assertEqual(len(monitor.sent("block_resize")), 1)

    def test_a_restart_goes_on_waiting(self):
        node, volume, _ = self.build(LONGER_THAN_ANY_TEST)
        node.start()
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=BEFORE)
        volume.loop.resize(AFTER)
        before = node.wait_for(volume.path, "host_grown", "none", device_bytes=AFTER)
        node.kill()
        node.start()
        self.settle(node)
        self.assertEqual(node.volume(volume.path)["next_attempt_at"], before["next_attempt_at"])

    def test_once_waits_too(self):
        node, volume, monitor = self.build(300)
        volume.loop.resize(AFTER)
        node.once()
        row = node.volume(volume.path)
        self.assertEqual((row["state"], row["reason"]), ("in_sync", "none"))
        self.assertEqual(row["hypervisor_bytes"], AFTER)
        self.assertEqual(len(monitor.sent("block_resize")), 1)


if __name__ == "__main__":
    unittest.main()
