# SPDX-License-Identifier: Apache-2.0
"""Each syscall failed once: crustd goes on or ends with an error, and the resize ends as ever.

What fails must teach nothing: a reading that failed is no proof that a volume, a sandbox or a device
has gone.
"""

import time
import unittest

from lost import (SECONDS, STATUSES, Attached, Interrupted, LostTest, errors_of, failures, in_time, report,
                  wait)
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
        ended = 0
        for count, (point, error) in enumerate(in_time(failures(found)), 1):
            with self.subTest(syscall=str(point), error=error):
                scene.reset()
                status = scene.run_once(point.inject(f"error={error}"))
                self.assertIn(status, STATUSES, scene.node.log_tail())
                ended += status != 0
                self.end_up(scene)
                scene.check()
        report(title, count, sum(map(len, map(errors_of, found))),
               ended_with_an_error=ended)

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
        ended = 0
        for count, (point, error) in enumerate(in_time(failures(found)), 1):
            with self.subTest(syscall=str(point), error=error):
                with Attached(node.process.pid, point.inject(f"error={error}")):
                    self.scene.grow_more()
                    wait(lambda: node.process.poll() is not None or self.is_reached(),
                         "the resize's end", node.log_tail)
                if node.process.poll() is not None:
                    ended += 1
                    self.assertIn(node.process.returncode, STATUSES, node.log_tail())
                    node.start()
                    self.scene.wait_reached()
                self.scene.check(expected=1 + count)
        report("failed, running daemon", count,
               sum(map(len, map(errors_of, found))),
               ended_with_an_error=ended)


if __name__ == "__main__":
    unittest.main()
