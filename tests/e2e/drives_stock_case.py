# SPDX-License-Identifier: Apache-2.0
"""Disks of the node into a stock guest and out of it again, by crustctl; and the tests that any VMM passes.

    class SomeTest(DrivesStockTests, DrivesStockCase):
        sandbox_class = SomeSandbox
"""

import json
import os
import signal

from disks import LoopDevice, make_filesystem
from kata_resize_test import StockCase
from programs import run
from resize_case import MIB, SECONDS

SIZE = 64 * MIB


class DrivesStockCase(StockCase):
    file_systems = ()
    settings = StockCase.settings | {"drives.enabled": "on", "drives.host_prefixes": "/dev",
                                     "drives.flush_seconds": 1, "resize.mode": "grow"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vm = cls.sandbox.vm
        cls.node.start()
        cls.wait_for_sandbox()

    @classmethod
    def wait_for_sandbox(cls):
        cls.node.wait(lambda: cls.node.query("SELECT 1 FROM audit_sandboxes WHERE status = 'alive'"),
                      SECONDS, "the sandbox")

    def disk(self):
        loop = LoopDevice(self.scratch / f"drive-{next(self.numbers)}", SIZE)
        self.addCleanup(loop.close)
        make_filesystem("ext4", loop.device)
        self.node.add_device(loop.device)
        return loop

    def ctl(self, *words):
        done = self.node.crustctl(*words, check=False)
        return done.returncode, done.stdout, done.stderr

    def attach(self, name, loop, vm_path, *words):
        return self.ctl("-o", "json", "drive", "attach", name, "--sandbox", self.sandbox.id, "--host-path",
                        loop.device, "--vm-path", vm_path, "--type", "ext4", *words)

    def attached(self, *arguments):
        code, text, error = self.attach(*arguments)
        self.assertEqual(code, 0, error + self.node.log_tail())
        return json.loads(text)

    def detach(self, name):
        code, text, error = self.ctl("drive", "detach", name)
        self.assertEqual((code, text), (0, f"{name}: detached\n"), error + self.node.log_tail())

    def detach_written(self, name, loop):
        """A disk of group 2000, on which the guest has written the file `pattern`."""
        self.detach(name)
        self.assertEqual(self.state(name), "removed")
        self.assert_free(loop)
        self.check_nothing_left()
        listing = run("debugfs", "-R", "ls -l /", loop.device)
        self.assertRegex(listing, rf" {MIB} .* pattern")
        self.assertRegex(listing, r"42775 .* 0 +2000 .* \.\n")

    def state(self, name):
        return self.node.query(f"SELECT state FROM audit_drives WHERE drive_id = '{name}'")[-1]["state"]

    def assert_free(self, loop):
        os.close(os.open(loop.device, os.O_RDWR | os.O_EXCL))

    def kill(self):
        self.node.process.send_signal(signal.SIGKILL)
        self.node.process.wait()

    def start_again(self):
        self.node.start()
        self.wait_for_sandbox()


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
        """kata-agent forgets a mount that is busy when its container is removed; crustd has it remember."""
        loop = self.disk()
        self.attached("busy", loop, "/run/busy", "--writable")
        self.attached("inner", self.disk(), "/run/busy/inner", "--writable")
        code, _, error = self.ctl("drive", "detach", "busy")
        self.assertNotEqual(code, 0)
        self.assertIn("still has the disk", error)
        self.assertEqual(self.state("busy"), "ready")
        self.vm.guest_write("/run/busy/pattern", MIB)
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
