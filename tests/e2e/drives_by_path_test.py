# SPDX-License-Identifier: Apache-2.0
"""crust.drive.v1 with VMMs that open a disk by its path: the claim is crustd's own."""

import functools
import os
import pathlib
import stat
import types

import vmm
from disks import has_open, is_free
from drives import DrivesTest
from grpc_client import GrpcTest
from scratch_node import BEFORE, SANDBOX

import drive_agent  # of tests/fakes, which drives.py has put on the path

READY = 6


class DrivesByPath(DrivesTest):
    @classmethod
    def setUpClass(cls):
        GrpcTest.setUpClass.__func__(cls)  # without a QEMU

    def sandbox(self, start, kind, *options):
        """A node with a sandbox whose VMM is started so; `disk` is for drives."""
        node = self.node({"drives.enabled": "on", "drives.host_prefixes": "/dev",
                          "resize.call_timeout_seconds": 10})
        boot = types.SimpleNamespace(loop=self.disk(node), drive="_disk0")
        node.vmm = start(self, node, SANDBOX, boot, *options)
        node.vmm.set()  # its socket is there
        node.agent = drive_agent.DriveAgent(node.root / "agent.sock", hybrid_vsock=1030)
        self.addCleanup(node.agent.close)
        node.add_sandbox(SANDBOX, node.vmm.pid, agent="hvsock:///agent.sock:1024", hypervisor=kind)
        node.disk = self.disk(node, BEFORE)
        node.start()
        node.wait_alive()
        return node

    def cloud_hypervisor(self, *options):
        return self.sandbox(vmm.cloud_hypervisor, "clh", "v54.0", *options)

    def test_attach_and_detach(self):
        node = self.cloud_hypervisor("--eject-after", "3")
        drive = self.attach(node, "data-1", node.disk)
        self.assertEqual((drive.state, drive.guest_device), (READY, "sda"))
        self.assertEqual(list(node.agent.mounted), [drive.serial])
        self.assertTrue(has_open(node.vmm.pid, node.disk.device))
        self.assertFalse(is_free(node.disk.device))
        body = next(body for body in node.vmm.sent("PUT") if "path" in body)
        self.assertEqual((body["path"], body["serial"], body["image_type"]),
                         (node.disk.device, drive.serial, "Raw"))
        self.detach(node, "data-1")
        self.assertFalse(has_open(node.vmm.pid, node.disk.device))
        self.assertTrue(is_free(node.disk.device))
        self.assertEqual(self.row(node, "data-1")["state"], "removed")

    def test_the_claim_is_made_again_after_a_restart(self):
        node = self.cloud_hypervisor()
        drive = self.attach(node, "data-1", node.disk)
        node.kill()
        self.assertTrue(is_free(node.disk.device))
        node.start()
        self.assertEqual(self.attach(node, "data-1", node.disk), drive)
        node.wait(lambda: not is_free(node.disk.device), 60, "the claim")
        self.detach(node, "data-1")
        self.assertTrue(is_free(node.disk.device))

    def test_a_disk_that_the_vmm_has_already_is_refused(self):
        node = self.cloud_hypervisor()
        boot = types.SimpleNamespace(device=next(
            body for body in [os.readlink(link) for link in
                              pathlib.Path(f"/proc/{node.vmm.pid}/fd").iterdir()]
            if body.startswith("/dev/loop")))
        with self.fails("FAILED_PRECONDITION", SANDBOX):
            self.attach(node, "data-1", boot)
        self.assertTrue(is_free(boot.device))

    def test_an_old_cloud_hypervisor_is_refused(self):
        node = self.sandbox(vmm.cloud_hypervisor, "clh", "v51.1")
        with self.fails("FAILED_PRECONDITION", "needs Cloud Hypervisor 52"):
            self.attach(node, "data-1", node.disk)
        self.assertTrue(is_free(node.disk.device))

    def test_a_guest_that_does_not_let_go_keeps_the_disk(self):
        node = self.cloud_hypervisor("--eject-after", "1000")
        self.attach(node, "data-1", node.disk)
        with self.fails("UNAVAILABLE", "let go"):
            self.detach(node, "data-1")
        self.assertFalse(is_free(node.disk.device))
        node.vmm.stop()
        node.wait(lambda: self.row(node, "data-1")["state"] == "lost", 60, "the end")
        self.assertTrue(is_free(node.disk.device))

    def firecracker(self, *options, jailed=False):
        return self.sandbox(functools.partial(vmm.firecracker, jailed=jailed), "firecracker",
                            *options)

    @staticmethod
    def made_serial(path):
        """As Firecracker makes it of the file that it has opened."""
        status = os.stat(path)
        return f"{status.st_dev}{status.st_rdev}{status.st_ino}"[:20]

    def test_firecracker_and_the_serial_that_it_makes(self):
        node = self.firecracker("--version", "1.17.0-dev", "--pci")
        drive = self.attach(node, "data-1", node.disk)
        self.assertEqual(drive.state, READY)
        self.assertEqual(drive.serial, self.made_serial(node.disk.device))
        self.assertEqual(list(node.agent.mounted), [drive.serial])
        body = next(body for body in node.vmm.sent("PUT") if "path_on_host" in body)
        self.assertEqual((body["drive_id"], body["path_on_host"], body["cache_type"]),
                         ("crust_data_m1", node.disk.device, "Writeback"))
        self.assertFalse(is_free(node.disk.device))
        node.kill()
        node.start()
        self.assertEqual(self.attach(node, "data-1", node.disk), drive)
        self.detach(node, "data-1")
        self.assertEqual(node.agent.mounted, {})
        self.assertEqual(node.vmm.targets("DELETE"), ["/drives/crust_data_m1"])
        self.assertFalse(has_open(node.vmm.pid, node.disk.device))
        self.assertTrue(is_free(node.disk.device))
        self.assertEqual(self.row(node, "data-1")["state"], "removed")

    def test_firecracker_in_a_jail_needs_a_node_there(self):
        node = self.firecracker("--version", "1.16.0", "--pci", jailed=True)
        with self.fails("FAILED_PRECONDITION", "a jail the disk needs a name of its own"):
            self.attach(node, "data-1", node.disk)
        self.assertTrue(is_free(node.disk.device))
        name = vmm.jail_of(node, SANDBOX) / node.disk.device.lstrip("/")
        name.parent.mkdir(exist_ok=True)
        os.mknod(name, 0o600 | stat.S_IFBLK, os.stat(node.disk.device).st_rdev)
        drive = self.attach(node, "data-1", node.disk)
        self.assertEqual(drive.serial, self.made_serial(name))
        self.detach(node, "data-1")
        self.assertTrue(is_free(node.disk.device))

    def test_firecracker_that_cannot_is_refused(self):
        for options, reason in (((), "needs Firecracker 1.16"),
                                (("--version", "1.17.0-dev"), "--enable-pci")):
            with self.subTest(reason):
                node = self.firecracker(*options)
                with self.fails("FAILED_PRECONDITION", reason):
                    self.attach(node, "data-1", node.disk)
                self.assertTrue(is_free(node.disk.device))
                node.stop()
                node.vmm.stop()
