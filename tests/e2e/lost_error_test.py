# SPDX-License-Identifier: Apache-2.0
"""Each syscall failed once: crustd goes on or ends with an error, and the growth ends as ever.

What fails must teach nothing: a reading that failed is no proof that a volume, a sandbox or a device
has gone.
"""

import time
import unittest

from lost import (SECONDS, STATUSES, Attached, Interrupted, LostTest, errors_of, failures, report,
                  wait)
from said import AFTER


class Failed(LostTest):
    """error= for the n-th call of a syscall."""

    def setUp(self):
        super().setUp()
        self.need_strace()

    def end_up(self, growth):
        """Starts it again until there is nothing left to do: what failed waits for its time."""
        deadline = time.monotonic() + SECONDS
        while not growth.is_reached():
            self.assertLess(time.monotonic(), deadline, growth.node.log_tail())
            self.assertEqual(growth.run_once(), 0, growth.node.log_tail())
            time.sleep(0.02)

    def fail_each(self, title, growth):
        growth.reset()
        found = growth.trace()
        growth.check()
        ended = count = 0
        for point, error in failures(found):
            with self.subTest(syscall=str(point), error=error):
                count += 1
                growth.reset()
                status = growth.run_once(point.inject(f"error={error}"))
                self.assertIn(status, STATUSES, growth.node.log_tail())
                ended += status != 0
                self.end_up(growth)
                growth.check()
        report(title, count, sum(map(len, map(errors_of, found))),
               ended_with_an_error=ended)

    def test_growth_seen_at_start(self):
        growth = Interrupted(self)
        self.assertEqual(growth.run_once(), 0, growth.node.log_tail())
        growth.keep()
        growth.grow(AFTER)
        self.fail_each("failed, growth seen at start", growth)

    def test_growth_seen_at_first_start(self):
        growth = Interrupted(self)
        growth.grow(AFTER)
        self.fail_each("failed, first start", growth)


class FailedWhileRunning(LostTest):
    """A daemon that goes on must come to the end by itself: nobody starts it again."""

    def setUp(self):
        super().setUp()
        self.need_strace()
        self.growth = Interrupted(self, {"resize.sweep_seconds": 1})

    def test_growth_of_a_running_daemon(self):
        node = self.growth.node
        node.start()
        self.growth.wait_reached()
        # strace refuses a close, and the descriptor stays open: the kernel closes it in any case. A
        # monitor's would keep crustd out for good.
        found = [point for point in self.growth.trace_running() if point.syscall != "close"]
        count = ended = 0
        for point, error in failures(found):
            with self.subTest(syscall=str(point), error=error):
                count += 1
                with Attached(node.process.pid, point.inject(f"error={error}")):
                    self.growth.grow_more()
                    wait(lambda: node.process.poll() is not None or self.growth.is_reached(),
                         "the growth's end", node.log_tail)
                if node.process.poll() is not None:
                    ended += 1
                    self.assertIn(node.process.returncode, STATUSES, node.log_tail())
                    node.start()
                    self.growth.wait_reached()
                self.growth.check(growths=1 + count)
        report("failed, running daemon", count,
               sum(map(len, map(errors_of, found))),
               ended_with_an_error=ended)


if __name__ == "__main__":
    unittest.main()
