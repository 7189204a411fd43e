# SPDX-License-Identifier: Apache-2.0
"""Each syscall failed once: crustd goes on or ends with an error, and the resize ends as ever.

What fails must teach nothing: a reading that failed is no proof that a volume, a sandbox or a device
has gone.
"""

import time
import unittest

from lost import SECONDS, STATUSES, Attached, Interrupted, LostTest, failures, wait
from scratch_node import AFTER, status


class Failed(LostTest):
    """error= for the n-th call of a syscall."""

    def setUp(self):
        super().setUp()
        self.need_strace()

    def end_up(self, scene):
        """Starts it again until there is nothing left to do: what failed waits for its time."""
        deadline = time.monotonic() + SECONDS
        while not scene.is_reached():
            self.assertLess(time.monotonic(), deadline, scene.node.log_tail())
            self.assertEqual(scene.run_once(), 0, scene.node.log_tail())
            scene.wait_due()

    def fail_each(self, title, scene):
        scene.reset()
        found = scene.trace()
        scene.check()

        def fail(_, point, error):
            scene.reset()
            status = scene.run_once(point.inject(f"error={error}"))
            self.assertIn(status, STATUSES, scene.node.log_tail())
            self.end_up(scene)
            scene.check()
            return "ended with an error" if status else "went on"

        self.at_each(title, failures(found), fail)

    def test_resize_seen_at_start(self):
        scene = Interrupted(self)
        self.assertEqual(scene.run_once(), 0, scene.node.log_tail())
        scene.keep()
        scene.grow(AFTER)
        self.fail_each("failed, resize seen at start", scene)

    def test_resize_seen_at_first_start(self):
        scene = Interrupted(self)
        scene.grow(AFTER)
        self.fail_each("failed, first start", scene)


class FailedWhileRunning(LostTest):
    """A daemon that goes on must come to the end by itself: nobody starts it again."""

    def setUp(self):
        super().setUp()
        self.need_strace()
        self.scene = Interrupted(self, {"resize.sweep_seconds": 1})

    def is_reached(self):
        """A file that fails twice within a minute is left for another one, unless somebody says that it is good."""
        if status(self.scene.node).get("database") == "memory":
            self.scene.node.crustctl("resync", check=False)
        return self.scene.is_reached()

    def test_resize_of_a_running_daemon(self):
        node = self.scene.node
        node.start()
        self.scene.wait_reached()
        # strace refuses a close, and the descriptor stays open: the kernel closes it in any case. A
        # monitor's would keep crustd out for good.
        found = [point for point in self.scene.trace_running() if point.syscall != "close"]

        def fail(count, point, error):
            with Attached(node.process.pid, point.inject(f"error={error}")):
                self.scene.grow_more()
                wait(lambda: node.process.poll() is not None or self.is_reached(),
                     "the resize's end", node.log_tail)
            ended = node.process.poll() is not None
            if ended:
                self.assertIn(node.process.returncode, STATUSES, node.log_tail())
                node.start()
                self.scene.wait_reached()
            self.scene.check(expected=1 + count)
            return "ended with an error" if ended else "went on"

        self.at_each("failed, running daemon", failures(found), fail)


if __name__ == "__main__":
    unittest.main()
