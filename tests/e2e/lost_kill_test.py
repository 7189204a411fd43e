# SPDX-License-Identifier: Apache-2.0
"""Killed before any one of its syscalls and started again, crustd brings a growth to the same end."""

import signal
import subprocess
import unittest

from lost import Attached, Interrupted, LostTest, report, sweep, wait
from said import AFTER


class Killed(LostTest):
    """SIGKILL before the n-th call of a syscall."""

    def setUp(self):
        super().setUp()
        self.need_strace()

    def kill_at_each(self, title, growth):
        growth.reset()
        found = growth.trace()
        growth.check()
        chosen = sweep(found)
        missed = 0
        for point in chosen:
            with self.subTest(killed_before=str(point)):
                growth.reset()
                status = growth.run_once(point.inject("signal=SIGKILL"))
                self.assertIn(status, (0, -signal.SIGKILL), growth.node.log_tail())
                missed += status == 0
                self.assertEqual(growth.run_once(), 0, growth.node.log_tail())
                growth.check()
        report(title, len(chosen), len(found), not_reached=missed)

    def test_growth_seen_at_start(self):
        """The device has grown while no daemon ran: start, scan, growth and end, all in one run."""
        growth = Interrupted(self)
        self.assertEqual(growth.run_once(), 0, growth.node.log_tail())
        growth.keep()
        growth.grow(AFTER)
        self.kill_at_each("killed, growth seen at start", growth)

    def test_growth_seen_at_first_start(self):
        """There is no database yet either, and the growth shows in what the VMM says."""
        growth = Interrupted(self)
        growth.grow(AFTER)
        self.kill_at_each("killed, first start", growth)


class KilledWhileRunning(LostTest):
    """The daemon sees the device grow; the next daemon ends what the last one began, and grows the
    next time."""

    def setUp(self):
        super().setUp()
        self.need_strace()
        self.growth = Interrupted(self)
        self.start()

    def start(self):
        node = self.growth.node
        if node.process:
            node.kill()
        with open(node.log, "wb") as log:
            node.process = subprocess.Popen(node.command(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)
        self.growth.wait_reached()

    def kill_at(self, point):
        """Whether the daemon came to this point."""
        process = self.growth.node.process
        with Attached(process.pid, point.inject("signal=SIGKILL")):
            self.growth.grow_more()
            wait(lambda: process.poll() is not None or self.growth.is_reached(),
                 "the kill or the growth's end")
        return process.poll() is not None

    def test_growth_of_a_running_daemon(self):
        found = self.growth.trace_running()
        chosen = sweep(found)
        self.growth.check(growths=1)
        missed = 0
        for number, point in enumerate(chosen, 2):
            with self.subTest(killed_before=str(point)):
                missed += not self.kill_at(point)
                self.start()
                self.growth.check(growths=number)
        report("killed, running daemon", len(chosen), len(found), not_reached=missed)


if __name__ == "__main__":
    unittest.main()
