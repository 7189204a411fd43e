# SPDX-License-Identifier: Apache-2.0
"""Killed before a syscall of an attach or a detach and started again, crustd leaves the drive where
its row says, or gone, and no claim behind."""

import unittest

from drives import DrivesTest
from grpc_client import grpc
from lost import Attached, LostTest, points, report, sweep

MOST = 40  # points of an ordinary run


class Killed(DrivesTest):
    """One node and one QEMU for all points."""

    def setUp(self):
        super().setUp()
        LostTest.need_strace(self)
        self.host = self.drive_node({"resize.sweep_seconds": 3600})
        self.loop_1 = self.disk(self.host)
        self.start()

    def start(self):
        if self.host.process:
            self.host.kill()
        self.host.start()
        self.wait_alive(self.host)

    def trace(self, action):
        file = self.scratch / "trace"
        with Attached(self.host.process.pid, [], file):
            action()
        return points(file)

    def kill_at(self, point, action):
        """Whether the daemon came to this point."""
        process = self.host.process
        with Attached(process.pid, point.inject("signal=SIGKILL")):
            try:
                action()
            except grpc.RpcError:
                process.wait(60)
        return process.poll() is not None

    def bring_in(self):
        self.assertEqual(self.attach(self.host, "data-1", self.loop_1).state, self.drive.Drive.READY)

    def take_out(self):
        self.detach(self.host, "data-1")

    def check_there(self):
        self.assertTrue(self.host.qemu.has_open(self.loop_1.device))
        self.assertFalse(self.is_free(self.loop_1))
        self.assertEqual(len(self.host.qemu.agent.mounted), 1)

    def check_gone(self):
        self.assertFalse(self.host.qemu.has_open(self.loop_1.device))
        self.assertTrue(self.is_free(self.loop_1))
        self.assertEqual(self.host.qemu.agent.mounted, {})

    def kill_at_each(self, title, found, action, check):
        chosen = sweep(found)
        chosen = chosen[::max(1, len(chosen) // MOST)]
        missed = 0
        for point in chosen:
            with self.subTest(killed_before=str(point)):
                missed += not self.kill_at(point, action)
                self.start()
                check()
        report(title, len(chosen), len(found), not_reached=missed)

    def test_attach(self):
        found = self.trace(self.bring_in)
        self.take_out()

        def check():
            self.bring_in()  # the client repeats its call
            self.check_there()
            self.take_out()
            self.check_gone()

        self.kill_at_each("killed, drive attached", found, self.bring_in, check)

    def test_detach(self):
        self.bring_in()
        found = self.trace(self.take_out)
        self.bring_in()

        def check():
            self.take_out()
            self.check_gone()
            self.bring_in()
            self.check_there()

        self.kill_at_each("killed, drive detached", found, self.take_out, check)


if __name__ == "__main__":
    unittest.main()
