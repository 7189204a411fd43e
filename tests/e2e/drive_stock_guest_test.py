# SPDX-License-Identifier: Apache-2.0
"""A drive in a stock guest, by the containers that crustd has kata-agent run for it, made by hand: a SCSI disk that is
plugged into a running QEMU, the stand-in for kata-agent, and the helper's --drive.
"""

import json
import signal
import unittest

from disks import Disk, LoopDevice, make_filesystem
from kata_agent_test import PATTERN_BYTES, KataAgentCase
from kata_guest import AgentError, Storage
from programs import run
from resize_case import FIRST_BYTES

SERIAL, OTHER = "crust-abcdefghijk237", "crust-zyxwvutsrqp765"
COMPARED = ("/dev", "/run/kata-containers")
PLACE = ("/vol/0", "/vol/1", "/vol/2", "/vol/3")


class StockDriveTest(KataAgentCase):

    def setUp(self):
        super().setUp()
        self.loop = self.plug(SERIAL, "255:0")

    def plug(self, serial, address):
        """A disk with an ext4 in the running guest; unplugged at the end if the test has not."""
        loop = self.enterContext(LoopDevice(self.scratch / serial, FIRST_BYTES["ext4"]))
        make_filesystem("ext4", loop.device)
        disk = Disk(loop.device, bus="scsi", address=address, serial=serial)
        self.vm.hotplug(disk)
        self.addCleanup(lambda: disk in self.vm.disks and self.vm.unplug(disk))
        loop.disk = disk
        return loop

    def drive(self, act, *arguments, volumes=(), serial=SERIAL, seconds=10):
        """(exit status, the line's drive) of a container that ends."""
        container = self.container("--drive", act, "--timeout", str(seconds), serial, *arguments,
                                   volumes=volumes)
        status, output, errors = self.client.run(container)
        self.assertEqual((errors, output.count("\n")), ("", 1))
        return status, json.loads(output)["drive"]

    def check(self, *arguments, volumes=(), size=None, access="rw"):
        return self.drive("check", str(size or self.loop.size), access, *arguments, volumes=volumes)

    def create_holder(self, mount_point, storage, serial):
        """The first open of a SCSI disk that has just come may fail (ENXIO); crustd asks again as well."""
        for is_last in (False, True):
            container = self.container("--drive", "hold", "--flush", "1", serial, "/vol/0",
                                       volumes=[mount_point], storage=storage)
            try:
                self.client.create(container)
                break
            except AgentError as error:
                if is_last or "No such device or address" not in error.text:
                    raise
        return container

    def hold(self, mount_point, storage=None, serial=SERIAL):
        """A container that holds the disk, and what it says of it."""
        container = self.create_holder(mount_point, storage or Storage("255:0", mount_point, group=2000), serial)
        self.client.start(container.id)
        return container, json.loads(self.client.read(container.id))["drive"]

    def release(self, container):
        """As crustd does."""
        self.client.signal(container.id, signal.SIGKILL)
        self.client.wait(container.id)
        self.client.remove(container.id)

    def assert_refused(self, found, status, text):
        self.assertEqual(found[0], 1)
        self.assertEqual(found[1]["status"], status)
        self.assertRegex(found[1]["text"], text)

    def test_disk_is_checked_by_serial_size_and_access(self):
        status, found = self.check()
        self.assertEqual((status, found["status"], found["bytes"]), (0, "OK", self.loop.size))
        self.assertEqual(found["device"], self.vm.guest_device(self.loop.disk))
        self.assert_refused(self.check(size=4096), "FAILED_PRECONDITION", "bytes and not 4096")
        self.assert_refused(self.check(access="ro"), "FAILED_PRECONDITION", "is writable")
        missing = self.drive("check", "4096", "rw", serial=OTHER, seconds=1)
        self.assert_refused(missing, "UNAVAILABLE", "no disk")

    def check_place(self, place, parent, *name):
        return self.check(*PLACE, *name, volumes=(place, parent, *COMPARED))

    def test_place_is_judged_by_what_it_is(self):
        self.assertEqual(self.check_place("/run", "/")[1]["status"], "OK")
        for place, parent, name in (("/proc/sys", "/proc", ()), ("/sys", "/", ("sys",)),
                                    ("/dev", "/", ("dev",)),
                                    ("/run/kata-containers", "/run", ("kata-containers",)),
                                    ("/run/kata-containers/shared", "/run/kata-containers", ())):
            with self.subTest(place):
                self.assert_refused(self.check_place(place, parent, *name), "INVALID_ARGUMENT",
                                    "protected place")
        with self.assertRaisesRegex(AgentError, "No such file or directory"):
            self.check_place("/run/nothing/there", "/run/nothing", "there")

    def test_drive_from_the_check_to_the_proof(self):
        container, found = self.hold("/run/data")
        self.assertEqual((found["status"], found["mounted"]), ("OK", True))
        device = found["device"]
        self.vm.guest_write("/run/data/pattern", PATTERN_BYTES)
        status, found = self.drive("look", "/vol/0", volumes=["/run/data"])
        self.assertEqual((status, found["mounted"]), (0, True))
        self.assertEqual(self.check_place("/run/data", "/run", "data")[1]["status"], "OK")  # it is the drive's own
        other = self.plug(OTHER, "255:1")
        taken = self.drive("check", str(other.size), "rw", *PLACE, "data", serial=OTHER,
                           volumes=("/run/data", "/run", *COMPARED))
        self.assert_refused(taken, "ALREADY_EXISTS", "mount point already")
        node = f"/dev/{device}"
        self.assert_refused(self.drive("prove", "/vol/0", volumes=[node], seconds=1),
                            "FAILED_PRECONDITION", "still has the disk")
        self.release(container)
        status, found = self.drive("look")
        self.assertEqual((status, found["mounted"]), (0, False))
        self.assert_refused(self.drive("prove"), "UNAVAILABLE", "not looked at")
        status, found = self.drive("prove", "/vol/0", volumes=[node])
        self.assertEqual((status, found["status"], found["text"]), (0, "OK", ""))
        self.vm.unplug(self.loop.disk)
        self.assertEqual(self.drive("prove")[1]["device"], "")
        listing = run("debugfs", "-R", "ls -l /", self.loop.device)
        self.assertRegex(listing, rf"{PATTERN_BYTES} .* pattern")
        self.assertRegex(listing, r"42775 .* 0 +2000 .* \.\n")
        self.assert_nothing_left()

    def test_another_disk_at_the_address_is_refused(self):
        self.plug(OTHER, "255:1")
        container, found = self.hold("/run/other", Storage("255:1", "/run/other"))
        self.assertEqual(found["status"], "FAILED_PRECONDITION")
        self.assertIn("another disk", found["text"])
        self.client.remove(container.id)

    def test_what_the_agent_cannot_mount(self):
        for storage, text in ((Storage("255:0", "/run/x", filesystem="xfs"), "failed to mount"),
                              (Storage("255:9", "/run/x"), "waiting for uevent")):
            with self.subTest(storage.source), self.assertRaisesRegex(AgentError, text):
                self.hold("/run/x", storage)


if __name__ == "__main__":
    unittest.main()
