# SPDX-License-Identifier: Apache-2.0
"""A disk of the node into a stock guest and out of it again, by crustctl: a real QEMU, a stand-in for kata-agent that
really mounts and runs containers, and nothing of crustd's in the guest.
"""

import contextlib
import threading

from drive_commands import SIZE
from drives_stock_case import DrivesStockCase, DrivesStockTests
from guest_image import build_program
from kata_guest import ROOT_DIRECTORIES, Client, Container, Storage, place
from kata_resize_test import StockSandbox
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
        self.assertEqual(self.sandbox.left()[0].partition(".")[0], drive["serial"])
        self.vm.guest_write("/run/data-1/pattern", MIB)
        self.assertEqual(self.attached("data-1", loop, "/run/data-1", *words), drive)
        self.detach_written("data-1", loop)
        drive = self.attached("data-2", loop, "/run/data-2")
        self.assertFalse(drive["is_writable"])
        self.check_nothing_left()  # nothing has to be synced
        self.vm.guest_verify("/run/data-2/pattern", MIB)
        self.detach("data-2")

    def test_attached_again_at_once(self):
        """For a second a guest takes a directory for the one that had its name before."""
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
                            (("/run/fsck", "--writable", "--fsck"), "without `fsck`"),
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


class ContainersTest(DrivesStockCase):

    def in_container(self, pid, path):
        return f"/proc/{pid}/root{path}"

    def test_containers_that_run_get_the_drive(self):
        """Attach, the restart of a container, detach."""
        loop, vm = self.disk(), self.vm
        pids = [vm.start_container(name) for name in ("c1", "c2")]
        words = ("--writable", "--container", "c1:/mnt/inner", "--container", "c2:/mnt/inner:ro")
        self.attached("shared", loop, "/run/shared", *words)
        vm.guest_write(self.in_container(pids[0], "/mnt/inner/pattern"), MIB)
        vm.guest_verify("/run/shared/pattern", MIB)
        vm.guest_verify(self.in_container(pids[1], "/mnt/inner/pattern"), MIB)
        with self.assertRaisesRegex(GuestError, "Read-only"):
            vm.guest_write(self.in_container(pids[1], "/mnt/inner/other"), MIB)
        vm.end_container(pids[0])
        pids[0] = vm.start_container("c1")
        self.wait(lambda: self.has_pattern(pids[0]), "the drive in the container that was started again")
        self.detach("shared")
        self.assertFalse(self.has_pattern(pids[1]))
        for pid in pids:
            vm.end_container(pid)
        self.assert_free(loop)
        self.check_nothing_left()

    def has_pattern(self, pid):
        try:
            return self.vm.guest_count(self.in_container(pid, "/mnt/inner"), "pattern") == 1
        except GuestError:  # the directory is not there yet
            return False

    def test_container_that_does_not_run_is_named(self):
        loop = self.disk()
        _, _, error = self.attach("absent", loop, "/run/absent", "--writable", "--container", "c9:/data")
        self.assertIn("container c9: it does not run", error)
        self.detach("absent")
        self.assert_free(loop)
        self.check_nothing_left()


class UpgradeTest(DrivesStockCase):

    def test_drive_that_an_earlier_version_attached_is_detached(self):
        """Its container has the disk among its storages, so kata-agent unmounts it."""
        loop = self.disk()
        drive = self.attached("older", loop, "/run/older")
        self.node.stop()
        self.vm.guest_unmount("/run/older")
        place(self.sandbox.share / drive["serial"], build_program(BUILD / "guest", "hang"))
        for name in ROOT_DIRECTORIES:
            (self.sandbox.share / drive["serial"] / name).mkdir()
        with contextlib.closing(Client(self.sandbox.relay.socket_path)) as client:
            container = Container(drive["serial"], path="/agent", volumes=["/run/older"], own_mounts=ROOT_DIRECTORIES,
                                  namespaces=("mount", "ipc", "uts", "pid"),
                                  storage=Storage("255:0", "/run/older/", options=("ro",)))
            client.create(container)
            client.start(container.id)
        self.start_again()
        self.assertEqual(self.attached("older", loop, "/run/older")["state"], "ready")
        self.detach("older")
        self.assert_free(loop)
        self.check_nothing_left()


class SlowSandbox(StockSandbox):
    guest_options = {"agent_options": ("slow-answers",)}


class CutOffTest(DrivesStockCase):
    sandbox_class = SlowSandbox

    def is_mounted(self, path):
        try:
            return self.vm.guest_count(path, "lost+found") == 1
        except GuestError:  # the directory is not there yet
            return False

    def cut_off(self, loop, vm_path):
        """crustd is killed when the drive is mounted and it does not know yet, and started again."""
        attach = threading.Thread(target=self.attach, args=("cut", loop, vm_path, "--writable"))
        attach.start()
        self.wait(lambda: self.is_mounted(vm_path), "the mount")
        self.kill()
        attach.join()
        self.created = self.sandbox.containers()  # until now
        self.start_again()

    def test_what_a_killed_crustd_had_mounted_is_taken_over(self):
        loop = self.disk()
        self.cut_off(loop, "/run/cut")
        for name in ("cut", "next"):
            self.attached(name, loop, "/run/cut", "--writable")
            self.vm.guest_write("/run/cut/pattern", MIB)
            self.detach(name)
            self.assert_free(loop)
        self.check_nothing_left()

    def test_what_two_killed_crustds_had_mounted_is_unmounted(self):
        """The second is killed while it takes over what the first has left."""
        loop = self.disk()
        self.cut_off(loop, "/run/twice")
        self.wait(lambda: self.sandbox.containers() > self.created, "the second container")
        self.kill()
        self.start_again()
        self.attached("cut", loop, "/run/twice", "--writable")
        self.vm.guest_write("/run/twice/pattern", MIB)
        self.attached("inner", self.disk(), "/run/twice/inner", "--writable")
        self.assertIn("is mounted below the drive", self.ctl("drive", "detach", "cut")[2])
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
