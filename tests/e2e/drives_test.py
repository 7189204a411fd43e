# SPDX-License-Identifier: Apache-2.0
"""crust.drive.v1: a disk of the node in a running QEMU, from AttachDrive to DetachDrive."""

import signal
import subprocess

from disks import is_free
from drives import DrivesTest
from scratch_node import AFTER, SANDBOX, publish_path

OTHER = f"b{SANDBOX[1:]}"
READY = 6


class Drives(DrivesTest):
    def setUp(self):
        super().setUp()
        self.host = self.drive_node()
        self.disk_1 = self.disk(self.host)
        self.host.start()
        self.host.wait_alive()

    def test_attach_and_detach(self):
        drive = self.attach(self.host, "data-1", self.disk_1)
        self.assertEqual((drive.state, drive.guest_device, drive.size_bytes),
                         (READY, "sda", 32 << 20))
        self.assertEqual(self.host.qemu.agent.mounted,
                         {drive.serial: ("data-1", "/data-1", 32 << 20)})
        self.assertFalse(is_free(self.disk_1.device))
        row = self.row(self.host, "data-1")
        self.assertEqual((row["state"], row["message"] or ""), ("ready", ""))
        again = self.attach(self.host, "data-1", self.disk_1)
        self.assertEqual(again, drive)
        stub = self.stub_of(self.host)
        self.assertEqual(stub.GetDrive(self.drive.GetDriveRequest(drive_id="data-1"), timeout=60).drive, drive)
        for sandbox_id, drives in (("", [drive]), (SANDBOX, [drive]), (OTHER, [])):
            request = self.drive.ListDrivesRequest(sandbox_id=sandbox_id)
            self.assertEqual(list(stub.ListDrives(request, timeout=60).drives), drives)
        with self.fails("ALREADY_EXISTS", "data-1"):
            self.attach(self.host, "data-1", self.disk_1, filesystem_type="xfs")
        self.detach(self.host, "data-1")
        self.assertTrue(is_free(self.disk_1.device))
        self.assertEqual(self.host.qemu.agent.mounted, {})
        self.assertFalse(self.host.qemu.has_open(self.disk_1.device))
        self.assertEqual(self.row(self.host, "data-1")["state"], "removed")
        self.detach(self.host, "data-1")

    def test_read_only_is_opened_read_only(self):
        self.attach(self.host, "data-1", self.disk_1, is_writable=False)
        with self.fails("INVALID_ARGUMENT", "ro"):
            self.attach(self.host, "data-2", self.disk_1, options=["ro"])
        self.detach(self.host, "data-1")
        self.assertTrue(is_free(self.disk_1.device))

    def test_a_guest_is_asked_before_each_mount(self):
        agent = self.host.qemu.agent
        for drive_id in ("data-1", "data-2"):
            before = len(agent.requests)
            self.attach(self.host, drive_id, self.disk_1)
            self.assertEqual([request.method for request in agent.requests[before:]], ["ListDrives", "MountDrive"])
            self.detach(self.host, drive_id)

    def test_two_clients_and_one_disk(self):
        second = self.add_vm(self.host, OTHER)
        self.host.wait_alive(2)
        calls = [self.attach(self.host, "data-1", self.disk_1, later=True),
                 self.attach(self.host, "data-2", self.disk_1, later=True, sandbox_id=OTHER)]
        failed = [call.exception() for call in calls if call.exception()]
        self.assertEqual([error.code().name for error in failed], ["FAILED_PRECONDITION"])
        self.assertIn(self.disk_1.device, failed[0].details())
        holder, other, lost = ((SANDBOX, OTHER, "data-2") if calls[1].exception() else
                               (OTHER, SANDBOX, "data-1"))
        self.assertIn(f"sandbox {holder}", failed[0].details())
        self.assertIn(f"sandbox {holder}", self.row(self.host, lost)["message"])
        with self.fails("FAILED_PRECONDITION", f"sandbox {holder}"):
            self.attach(self.host, "data-3", self.disk_1, sandbox_id=other)
        holders = [self.host.qemu.has_open(self.disk_1.device), second.has_open(self.disk_1.device)]
        self.assertEqual(sorted(holders), [False, True])

    def test_a_disk_that_is_staged_for_a_container_to_come(self):
        """The runtime would bring it into a VM a second time, and asks nobody."""
        path = publish_path("pv-1")
        self.host.stage(path, self.disk_1.device)
        self.host.wait_for(path, "unbound")
        with self.fails("FAILED_PRECONDITION", f"staged as volume {path}"):
            self.attach(self.host, "data-1", self.disk_1)
        self.assertTrue(is_free(self.disk_1.device))
        self.host.unstage(path)
        self.host.wait(lambda: (self.host.volume(path) or {}).get("status") != "present", 60, "the metadata to be gone")
        self.attach(self.host, "data-2", self.disk_1)
        self.detach(self.host, "data-2")

    def test_the_host_mounts_what_a_loop_device_stands_on(self):
        """That is no reason not to let go of it."""
        self.attach(self.host, "data-1", self.disk_1)
        subprocess.run(["mkfs.ext4", "-q", self.disk_1.path], check=True)
        other = self.loop_on(self.host, self.disk_1.path)
        (self.scratch / "mounted").mkdir()
        self.mount_for_the_test(other.device, self.scratch / "mounted")
        self.detach(self.host, "data-1")
        self.assertEqual(self.row(self.host, "data-1")["state"], "removed")
        with self.fails("FAILED_PRECONDITION", f"what {self.disk_1.device} stands on backs {other.device} as well"):
            self.attach(self.host, "data-2", self.disk_1)

    def test_a_loop_device_on_a_loop_device(self):
        above = self.loop_on(self.host, self.disk_1.device)
        with self.fails("FAILED_PRECONDITION", f"{above.device} stands on loop devices that stand on each other: "
                                               "attach the device itself"):
            self.attach(self.host, "data-1", above)
        with self.fails("FAILED_PRECONDITION", f"{self.disk_1.device} backs {above.device} on the host"):
            self.attach(self.host, "data-2", self.disk_1)
        self.assertTrue(is_free(above.device))

    def test_a_disk_that_the_guest_uses_stays(self):
        self.attach(self.host, "data-1", self.disk_1)
        self.host.qemu.agent.busy = "77 (cat)"
        with self.fails("FAILED_PRECONDITION", "77 (cat)"):
            self.detach(self.host, "data-1")
        self.assertEqual(self.row(self.host, "data-1")["state"], "ready")
        self.assertTrue(self.host.qemu.has_open(self.disk_1.device))
        self.host.qemu.agent.busy = None
        self.detach(self.host, "data-1")

    def test_the_vm_ends(self):
        self.attach(self.host, "data-1", self.disk_1)
        self.host.qemu.stop()
        self.host.wait(lambda: self.row(self.host, "data-1")["state"] == "lost", 60, "the end")
        self.assertIn("before the guest confirmed", self.row(self.host, "data-1")["message"])
        self.assertTrue(is_free(self.disk_1.device))
        self.detach(self.host, "data-1")

    def test_the_records_end_before_the_vmm(self):
        self.attach(self.host, "data-1", self.disk_1)
        self.host.end_sandbox(SANDBOX)
        self.host.wait(lambda: self.host.query("SELECT 1 FROM audit_sandboxes WHERE status = 'orphaned'"), 60, "the orphan")
        with self.fails("UNAVAILABLE", "the monitor"):
            self.detach(self.host, "data-1")
        self.assertNotEqual(self.row(self.host, "data-1")["state"], "lost")
        self.assertTrue(self.host.qemu.has_open(self.disk_1.device))
        self.host.qemu.stop()
        self.detach(self.host, "data-1")
        self.assertEqual(self.row(self.host, "data-1")["state"], "lost")
        self.assertTrue(is_free(self.disk_1.device))

    def test_the_disk_grows(self):
        self.host.qemu.agent.grows = True
        self.attach(self.host, "data-1", self.disk_1)
        self.disk_1.resize(AFTER)
        request, = self.host.qemu.agent.wait_for_requests(1, 60, "ResizeVolume")
        self.assertEqual((request.path, request.size), ("/data-1", AFTER))
        self.host.wait(lambda: self.row(self.host, "data-1")["size_bytes"] == AFTER, 60, "its size")
        self.detach(self.host, "data-1")

    def test_limits(self):
        self.attach(self.host, "data-1", self.disk_1)
        limiter = self.drive.RateLimiter(bandwidth={"size": 1 << 20, "refill_time_ms": 1000})
        update = self.stub_of(self.host).UpdateDriveLimits
        reply = update(self.drive.UpdateDriveLimitsRequest(drive_id="data-1", rate_limiter=limiter),
                       timeout=60)
        self.assertEqual(reply.drive.rate_limiter.bandwidth, limiter.bandwidth)
        self.assertEqual(self.row(self.host, "data-1")["bandwidth_size"], 1 << 20)
        limiter.bandwidth.one_time_burst = 1
        with self.fails("INVALID_ARGUMENT", "burst"):
            update(self.drive.UpdateDriveLimitsRequest(drive_id="data-1", rate_limiter=limiter),
                   timeout=60)

    def test_the_daemon_starts_again(self):
        drive = self.attach(self.host, "data-1", self.disk_1)
        self.host.kill()
        self.host.start()
        self.assertEqual(self.attach(self.host, "data-1", self.disk_1), drive)
        self.host.stop()
        self.host.configure(drives__enabled="off")
        self.host.start()
        with self.fails("FAILED_PRECONDITION", "drives.enabled"):
            self.attach(self.host, "data-1", self.disk_1)
        self.detach(self.host, "data-1")
        self.assertTrue(is_free(self.disk_1.device))

    def test_the_database_is_lost(self):
        """What the VM has is found by asking it, and no detach is OK before that."""
        serial = self.attach(self.host, "data-1", self.disk_1).serial
        self.host.kill()
        for file in (self.host.root / "var/lib/crustd").glob("crustd.db*"):
            file.unlink()
        self.host.start()
        self.host.wait_alive()
        self.host.qemu.agent.busy = "77 (cat)"
        with self.fails("FAILED_PRECONDITION", "77 (cat)"):
            self.detach(self.host, "data-1")
        row = self.row(self.host, "data-1")
        self.assertEqual((row["state"], row["serial"], row["vm_path"]),
                         ("unmounting", serial, "unknown:data-1"))
        with self.fails("UNAVAILABLE", "not on record"):
            self.attach(self.host, "data-1", self.disk_1)
        self.host.qemu.agent.busy = None
        self.detach(self.host, "data-1")
        self.assertEqual(self.host.qemu.agent.mounted, {})
        self.assertTrue(is_free(self.disk_1.device))
        self.assertEqual(self.row(self.host, "data-1")["state"], "removed")

    def test_a_vm_that_cannot_be_asked(self):
        self.host.qemu.process.send_signal(signal.SIGSTOP)
        with self.fails("UNAVAILABLE", SANDBOX):
            self.detach(self.host, "data-1")
        self.host.qemu.process.send_signal(signal.SIGCONT)
        self.detach(self.host, "data-1")
