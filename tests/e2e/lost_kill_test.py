# SPDX-License-Identifier: Apache-2.0
"""Killed before any one of its syscalls and started again, crustd brings a resize to the same end."""

import signal
import subprocess
import unittest

from lost import Attached, Interrupted, InterruptedClaim, LostTest, sweep, wait
from scratch_node import AFTER


class Killed(LostTest):
    """SIGKILL before the n-th call of a syscall."""

    def setUp(self):
        super().setUp()
        self.need_strace()

    def kill_at_each(self, title, scene):
        scene.reset()
        found = scene.trace()
        scene.check()

        def kill(_, point):
            scene.reset()
            status = scene.run_once(point.inject("signal=SIGKILL"))
            self.assertIn(status, (0, -signal.SIGKILL), scene.node.log_tail())
            self.assertEqual(scene.run_once(), 0, scene.node.log_tail())
            scene.check()
            return "killed" if status else "not reached"

        ends = self.at_each(title, sweep(found), kill)
        self.assertGreater(ends.count("killed"), len(ends) / 2)

    def test_resize_seen_at_start(self):
        """The device has grown while no daemon ran: start, scan, resize and end, all in one run."""
        scene = Interrupted(self)
        self.assertEqual(scene.run_once(), 0, scene.node.log_tail())
        scene.keep()
        scene.grow(AFTER)
        self.kill_at_each("killed, resize seen at start", scene)

    def test_resize_seen_at_first_start(self):
        """There is no database yet either, and the resize shows in what the VMM says."""
        scene = Interrupted(self)
        scene.grow(AFTER)
        self.kill_at_each("killed, first start", scene)

    def test_resize_of_a_raw_block_claim(self):
        """Seen at the first start, with the claim itself: its container runs already."""
        scene = InterruptedClaim(self)
        scene.grow(AFTER)
        self.kill_at_each("killed, first start, raw block claim", scene)


class KilledWhileRunning(LostTest):
    """The daemon sees the device grow; the next daemon ends what the last one began, and grows the
    next time."""

    interrupted, title = Interrupted, "killed, running daemon"

    def setUp(self):
        super().setUp()
        self.need_strace()
        self.scene = self.interrupted(self)
        self.start()

    def start(self):
        node = self.scene.node
        if node.process:
            node.kill()
        with open(node.log, "wb") as log:
            node.process = subprocess.Popen(node.command(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)
        self.scene.wait_reached()

    def kill_at(self, count, point):
        process = self.scene.node.process
        with Attached(process.pid, point.inject("signal=SIGKILL")):
            self.scene.grow_more()
            wait(lambda: process.poll() is not None or self.scene.is_reached(),
                 "the kill or the resize's end")
        killed = process.poll() is not None
        self.start()
        self.scene.check(expected=1 + count)
        return "killed" if killed else "not reached"

    def test_resize_of_a_running_daemon(self):
        found = self.scene.trace_running()
        self.scene.check(expected=1)
        ends = self.at_each(self.title, sweep(found), self.kill_at)
        self.assertGreater(ends.count("killed"), len(ends) / 2)


class RawClaimKilledWhileRunning(KilledWhileRunning):
    """The same of a raw block claim."""

    interrupted, title = InterruptedClaim, "killed, running daemon, raw block claim"


if __name__ == "__main__":
    unittest.main()
