# SPDX-License-Identifier: Apache-2.0
"""Disks of the node into a stock guest and out of it again, by crustctl; and the tests that any VMM passes.

    class SomeTest(DrivesStockTests, DrivesStockCase):
        sandbox_class = SomeSandbox
"""

import signal

from drive_commands import SIZE, DriveCommands
from kata_resize_test import StockCase
from programs import run
from resize_case import MIB


class DrivesStockCase(DriveCommands, StockCase):
    file_systems = ()
    settings = StockCase.settings | {"drives.enabled": "on", "drives.host_prefixes": "/dev",
                                     "drives.flush_seconds": 1, "resize.mode": "grow"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vm = cls.sandbox.vm
        cls.node.start()
        cls.node.wait_alive()

    def detach_written(self, name, loop):
        """A disk of group 2000, on which the guest has written the file `pattern`."""
        self.detach(name)
        self.assertEqual(self.state(name), "removed")
        self.assert_free(loop)
        self.check_nothing_left()
        listing = run("debugfs", "-R", "ls -l /", loop.device)
        self.assertRegex(listing, rf" {MIB} .* pattern")
        self.assertRegex(listing, r"42775 .* 0 +2000 .* \.\n")

    def kill(self):
        self.node.process.send_signal(signal.SIGKILL)
        self.node.process.wait()

    def start_again(self):
        self.node.start()
        self.node.wait_alive()


class DrivesStockTests:
    """To be inherited beside DrivesStockCase."""

    def test_killed_in_between(self):
        """The next crustd finds the drive by its container's directory, and takes it out."""
        loop = self.disk()
        self.attached("kept", loop, "/run/kept", "--writable")
        self.vm.guest_write("/run/kept/pattern", MIB)
        self.kill()
        self.start_again()
        self.assertEqual(self.attached("kept", loop, "/run/kept", "--writable")["state"], "ready")
        self.vm.guest_verify("/run/kept/pattern", MIB)
        self.detach("kept")
        self.assert_free(loop)
        self.check_nothing_left()

    def test_busy_disk_stays_as_it_was(self):
        """A detach that the guest refuses changes nothing, and the drive is synced as before."""
        loop = self.disk()
        self.attached("busy", loop, "/run/busy", "--writable")
        self.attached("inner", self.disk(), "/run/busy/inner", "--writable")
        code, _, error = self.ctl("drive", "detach", "busy")
        self.assertNotEqual(code, 0)
        self.assertIn("is mounted below the drive", error)
        self.assertEqual(self.state("busy"), "ready")
        self.vm.guest_write("/run/busy/pattern", MIB)
        self.wait(lambda: "pattern" in run("debugfs", "-R", "ls -l /", loop.device), "the file on the node's disk")
        self.detach("inner")
        self.detach("busy")
        self.assert_free(loop)
        self.check_nothing_left()

    def test_disk_that_grows(self):
        loop = self.disk()
        self.attached("grown", loop, "/run/grown", "--writable")
        before = self.vm.guest_size("/run/grown")
        loop.resize(2 * SIZE)
        self.wait(lambda: self.vm.guest_size("/run/grown") > before + SIZE // 2, "the guest's file system")
        self.detach("grown")
        self.assert_free(loop)
        self.check_nothing_left()
