# SPDX-License-Identifier: Apache-2.0
"""A disk of the node into a stock guest and out of it again, by crustctl: a real QEMU, a stand-in for kata-agent that
really mounts and runs containers, and nothing of crustd's in the guest.
"""

import threading
import time
import unittest

from drive_commands import SIZE
from drives_stock_case import DrivesStockCase, DrivesStockTests
from guest_image import build_program
from kata_resize_test import OURS, StockSandbox
from node import BUILD
from programs import GuestError, run
from resize_case import MIB


class DrivesStockTest(DrivesStockTests, DrivesStockCase):

    def test_attach_write_detach(self):
        loop = self.disk()
        words = ("--writable", "--option", "noatime", "--fs-group", "2000")
        drive = self.attached("data-1", loop, "/run/data-1", *words)
        self.assertEqual((drive["state"], drive["size_bytes"]), ("ready", SIZE))
        self.assertEqual(self.vm.guest_blocksize(drive["guest_device"]), SIZE)
        self.assertEqual(self.sandbox.left()[0], drive["serial"])
        self.vm.guest_write("/run/data-1/pattern", MIB)
        self.assertEqual(self.attached("data-1", loop, "/run/data-1", *words), drive)
        self.detach_written("data-1", loop)
        drive = self.attached("data-2", loop, "/run/data-2")
        self.assertFalse(drive["is_writable"])
        self.vm.guest_verify("/run/data-2/pattern", MIB)
        self.detach("data-2")

    def test_attached_again_at_once(self):
        """For a second the guest takes the container's directory for the one that was removed."""
        loop = self.disk()
        for _ in range(4):
            self.attached("again", loop, "/run/again", "--writable")
            self.detach("again")
        self.assert_free(loop)
        self.check_nothing_left()

    def test_written_data_reaches_the_disk_without_a_detach(self):
        """Kata kills QEMU at the end of a sandbox, so the guest syncs a writable drive at a steady pace."""
        loop = self.disk()
        self.attached("flushed", loop, "/run/flushed", "--writable")
        self.vm.guest_write("/run/flushed/pattern", MIB)
        self.wait(lambda: "pattern" in run("debugfs", "-R", "ls -l /", loop.device),
                  "the file on the node's disk")
        self.detach("flushed")

    def test_what_is_refused_leaves_nothing(self):
        loop = self.disk()
        for words, said in ((("/run/kata-containers/x",), "protected"),
                            (("/run/fsck", "--writable", "--fsck"), "fsck needs crust-guest-agent"),
                            (("/run/inner", "--container", "c1:/data"), "no crust-guest-agent"),
                            (("/run/option", "--option", "journal_path=/dev/sdb"), "options"),
                            (("/sbin/kata-agent/below",), "")):
            with self.subTest(words):
                code, _, error = self.attach("bad", loop, *words)
                self.assertEqual(code, 5, error)
                self.assertIn(said, error)
                self.ctl("drive", "detach", "bad")
                self.assert_free(loop)
        self.check_nothing_left()


class EndedVmTest(DrivesStockCase):

    def test_vm_ends_while_a_helper_runs_for_a_drive(self):
        loop = self.disk()
        self.attached("data-1", loop, "/run/data-1", "--writable")
        created = self.sandbox.containers()
        self.node.stop()
        self.node.configure(guest__helper_file=build_program(BUILD / "guest", "hang"))
        self.start_again()
        self.wait(lambda: self.sandbox.containers() > created, "the question whether it is mounted")
        self.assertTrue(self.node.query("SELECT name FROM helper_runs"))
        self.vm.stop()
        self.wait(lambda: self.state("data-1") == "lost", "the end of the drive")
        self.wait(lambda: not self.node.query("SELECT name FROM helper_runs"), "the end of the record")
        self.assert_free(loop)
        self.assertNotIn("may still be in the guest", self.node.log_tail())


class SlowSandbox(StockSandbox):
    guest_options = {"agent_options": ("slow-mounts",)}


class CutOffTest(DrivesStockCase):
    sandbox_class = SlowSandbox

    def is_mounted(self, path):
        try:
            return self.vm.guest_count(path, "lost+found") == 1
        except GuestError:  # the directory is not there yet
            return False

    def cut_offs(self):
        return self.vm.console().count("CreateContainer never answered")

    def cut_off(self, loop, vm_path):
        """crustd is killed while kata-agent creates the container that holds the drive, and started again."""
        attach = threading.Thread(target=self.attach, args=("cut", loop, vm_path, "--writable"))
        attach.start()
        self.wait(lambda: self.is_mounted(vm_path), "the mount")
        self.created = self.sandbox.containers()
        self.kill()
        attach.join()
        self.start_again()
        self.wait(self.cut_offs, "the call to end")

    def test_what_a_killed_crustd_had_mounted_is_unmounted(self):
        """kata-agent forgets the container of a CreateContainer that is cut off, but neither its mount nor that
        somebody uses it."""
        loop = self.disk()
        self.cut_off(loop, "/run/cut")
        for name in ("cut", "next"):
            self.attached(name, loop, "/run/cut", "--writable")
            self.vm.guest_write("/run/cut/pattern", MIB)
            self.detach(name)
            self.assert_free(loop)
        self.check_nothing_left()

    def has_holder_again(self):
        """The container that holds the drive is being created, after a clean-up and a check."""
        return self.sandbox.containers() >= self.created + 2 and any(
            name[len(OURS)] != "x" for name in self.sandbox.left() if name.startswith(OURS))

    def test_what_two_killed_crustds_had_mounted_is_unmounted(self):
        """The second is killed within the CreateContainer by which it takes over what the first has left."""
        loop = self.disk()
        before = self.cut_offs()
        self.cut_off(loop, "/run/twice")
        self.wait(lambda: self.has_holder_again() and not time.sleep(0.3) and self.has_holder_again(),
                  "the second holder")  # a first one may be refused at once, and its directory be gone
        self.kill()
        self.start_again()
        self.wait(lambda: self.cut_offs() == before + 2, "the second call to end")
        self.attached("cut", loop, "/run/twice", "--writable")
        self.vm.guest_write("/run/twice/pattern", MIB)
        self.attached("inner", self.disk(), "/run/twice/inner", "--writable")
        self.assertIn("still has the disk", self.ctl("drive", "detach", "cut")[2])
        self.assertEqual(self.state("cut"), "ready")
        self.detach("inner")
        for _ in range(2):
            self.detach("cut")
            self.assert_free(loop)
            self.attached("cut", loop, "/run/twice", "--writable")
            self.vm.guest_verify("/run/twice/pattern", MIB)
        self.detach("cut")
        self.check_nothing_left()

    def test_what_a_killed_crustd_had_mounted_is_detached(self):
        loop = self.disk()
        self.cut_off(loop, "/run/dropped")
        self.detach("cut")
        self.assert_free(loop)
        self.check_nothing_left()


if __name__ == "__main__":
    unittest.main()
