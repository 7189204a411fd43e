# SPDX-License-Identifier: Apache-2.0
"""A drive in a stock guest, by the containers that crustd has kata-agent run for it, made by hand: a SCSI disk that is
plugged into a running QEMU, the stand-in for kata-agent, and the helper's --drive.
"""

import base64

from disks import Disk, LoopDevice, make_filesystem
from kata_agent_test import PATTERN_BYTES, KataAgentCase
from kata_guest import FOR_DRIVES, ttrpc
from programs import GuestError, run
from resize_case import FIRST_BYTES

SERIAL, OTHER = "crust-abcdefghijk237", "crust-zyxwvutsrqp765"
SERVICE = "crust.guest.v1.Drives"
OK, INVALID_ARGUMENT, ALREADY_EXISTS, FAILED_PRECONDITION, UNAVAILABLE = 0, 3, 6, 9, 14


def call_text(method, payload):
    return base64.urlsafe_b64encode(ttrpc.encode_request(method, payload, service=SERVICE)).decode()


def read_answer(text):
    """(code, message, payload's fields)"""
    found = ttrpc.fields(base64.urlsafe_b64decode(text)[ttrpc.HEADER.size:])
    status = ttrpc.fields(ttrpc.first(found, 1, b""))
    return (ttrpc.first(status, 1, 0), ttrpc.first(status, 2, b"").decode(),
            ttrpc.fields(ttrpc.first(found, 2, b"")))


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

    def drive(self, method, payload):
        """A container that ends; the answer as read_answer() has it."""
        container = self.container("--drive", call_text(method, payload), capabilities=FOR_DRIVES)
        status, output, errors = self.client.run(container)
        answer = read_answer(output)
        self.assertEqual((status, errors, output.count("\n")), (int(answer[0] != OK), "", 0))
        return answer

    def mount_payload(self, vm_path, serial=SERIAL, **changes):
        field = ttrpc.field
        wanted = {"size": self.loop.size, "read_only": 0, "filesystem": "ext4", "group": None} | changes
        group = b"" if wanted["group"] is None else field(9, 1) + field(10, wanted["group"])
        return (field(1, serial) + field(2, serial) + field(3, wanted["size"]) + field(4, wanted["read_only"])
                + field(5, vm_path) + field(6, wanted["filesystem"]) + group + field(12, 3000))

    def mount(self, *arguments, **changes):
        return self.drive("MountDrive", self.mount_payload(*arguments, **changes))

    def unmount(self, serial=SERIAL):
        return self.drive("UnmountDrive", ttrpc.field(1, serial) + ttrpc.field(2, serial) + ttrpc.field(3, 3000))

    def hold(self, vm_path, **changes):
        """A container that mounts the disk and stays, and the fields of its answer."""
        container = self.container("--drive", call_text("MountDrive", self.mount_payload(vm_path, **changes)),
                                   "--flush", "1", capabilities=FOR_DRIVES)
        self.client.create(container)
        self.client.start(container.id)
        line = self.client.read(container.id).decode()
        code, message, found = read_answer(line)
        self.assertEqual((code, message, line.count("\n")), (OK, "", 1))
        return container, found

    def vm_paths(self):
        """{serial: where it is mounted, or ""}"""
        drives = map(ttrpc.fields, self.drive("ListDrives", b"")[2].get(1, []))
        return {ttrpc.first(one, 1, b"").decode(): ttrpc.first(one, 7, b"").decode() for one in drives}

    def assert_refused(self, answer, code, text):
        self.assertEqual(answer[0], code, answer)
        self.assertRegex(answer[1], text)

    def test_disk_is_checked_by_serial_size_and_access(self):
        self.assert_refused(self.mount("/run/data", size=4096), FAILED_PRECONDITION, "bytes and not 4096")
        self.assert_refused(self.mount("/run/data", read_only=1), FAILED_PRECONDITION, "is writable")
        self.assert_refused(self.mount("/run/data", OTHER), UNAVAILABLE, "no disk")
        self.assertEqual(self.vm_paths(), {SERIAL: ""})

    def test_place_is_judged_by_what_it_is(self):
        for place in ("/proc/sys", "/sys", "/dev", "/dev/below", "/run/kata-containers",
                      "/run/kata-containers/shared/x"):
            with self.subTest(place):
                self.assert_refused(self.mount(place), INVALID_ARGUMENT, "protected place")

    def test_what_the_kernel_cannot_mount(self):
        self.assert_refused(self.mount("/run/data", filesystem="xfs"), FAILED_PRECONDITION, "cannot mount")

    def test_drive_from_the_mount_to_the_unmount(self):
        """The mount stays when the container that made it is removed."""
        container, found = self.hold("/run/data", group=2000)
        self.assertEqual(ttrpc.first(found, 1, b"").decode(), self.vm.guest_device(self.loop.disk))
        self.vm.guest_write("/run/data/pattern", PATTERN_BYTES)
        self.client.remove(container.id)
        self.vm.guest_verify("/run/data/pattern", PATTERN_BYTES)
        self.assertEqual(self.vm_paths(), {SERIAL: "/run/data"})
        again, found = self.hold("/run/data", group=2000)  # as after a crash
        self.assertEqual(ttrpc.first(found, 8, 0), 1)  # was_mounted
        self.client.remove(again.id)
        other = self.plug(OTHER, "255:1")
        self.assert_refused(self.mount("/run/data", OTHER, size=other.size), ALREADY_EXISTS, "mount point already")
        inner, _ = self.hold("/run/data/inner", serial=OTHER, size=other.size)
        self.client.remove(inner.id)
        self.assert_refused(self.unmount(), FAILED_PRECONDITION, "mounted below the drive")
        self.vm.guest_verify("/run/data/pattern", PATTERN_BYTES)
        for serial in (OTHER, SERIAL):
            self.assertEqual(self.unmount(serial)[:2], (OK, ""))
        self.assertEqual(self.unmount()[:2], (OK, ""))  # there is no such disk any more
        with self.assertRaises(GuestError):
            self.vm.guest_verify("/run/data/pattern", PATTERN_BYTES)
        self.vm.unplug(self.loop.disk)
        listing = run("debugfs", "-R", "ls -l /", self.loop.device)
        self.assertRegex(listing, rf"{PATTERN_BYTES} .* pattern")
        self.assertRegex(listing, r"42775 .* 0 +2000 .* \.\n")
        self.assert_nothing_left()
