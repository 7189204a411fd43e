# SPDX-License-Identifier: Apache-2.0
"""crust.drive.v1 with VMMs that open a disk by its path: the claim is crustd's own."""

import os
import pathlib
import types
import unittest

import vmm
from drives import DrivesTest
from grpc_client import GrpcTest
from said import BEFORE, SANDBOX

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
        node.wait(lambda: node.query("SELECT 1 FROM audit_sandboxes WHERE status = 'alive'"), 60,
                  "the sandbox")
        return node

    def cloud_hypervisor(self, *options):
        return self.sandbox(vmm.cloud_hypervisor, "clh", "v54.0", *options)

    @staticmethod
    def has_open(pid, device):
        number = os.stat(device).st_rdev
        return any(os.stat(link).st_rdev == number
                   for link in pathlib.Path(f"/proc/{pid}/fd").iterdir() if link.exists())

    @staticmethod
    def is_free(device):
        """Whether the host can have the disk for itself."""
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def test_attach_and_detach(self):
        node = self.cloud_hypervisor("--eject-after", "3")
        drive = self.attach(node, "data-1", node.disk)
        self.assertEqual((drive.state, drive.guest_device), (READY, "sda"))
        self.assertEqual(list(node.agent.mounted), [drive.serial])
        self.assertTrue(self.has_open(node.vmm.pid, node.disk.device))
        self.assertFalse(self.is_free(node.disk.device))
        body = next(body for body in node.vmm.sent("PUT") if "path" in body)
        self.assertEqual((body["path"], body["serial"], body["image_type"]),
                         (node.disk.device, drive.serial, "Raw"))
        self.detach(node, "data-1")
        self.assertFalse(self.has_open(node.vmm.pid, node.disk.device))
        self.assertTrue(self.is_free(node.disk.device))
        self.assertEqual(self.row(node, "data-1")["state"], "removed")

    def test_the_claim_is_made_again_after_a_restart(self):
        node = self.cloud_hypervisor()
        drive = self.attach(node, "data-1", node.disk)
        node.kill()
        self.assertTrue(self.is_free(node.disk.device))
        node.start()
        self.assertEqual(self.attach(node, "data-1", node.disk), drive)
        node.wait(lambda: not self.is_free(node.disk.device), 60, "the claim")
        self.detach(node, "data-1")
        self.assertTrue(self.is_free(node.disk.device))

    def test_a_disk_that_the_vmm_has_already_is_refused(self):
        node = self.cloud_hypervisor()
        boot = types.SimpleNamespace(device=next(
            body for body in [os.readlink(link) for link in
                              pathlib.Path(f"/proc/{node.vmm.pid}/fd").iterdir()]
            if body.startswith("/dev/loop")))
        with self.fails("FAILED_PRECONDITION", SANDBOX):
            self.attach(node, "data-1", boot)
        self.assertTrue(self.is_free(boot.device))

    def test_an_old_cloud_hypervisor_is_refused(self):
        node = self.sandbox(vmm.cloud_hypervisor, "clh", "v51.1")
        with self.fails("FAILED_PRECONDITION", "needs Cloud Hypervisor 52"):
            self.attach(node, "data-1", node.disk)
        self.assertTrue(self.is_free(node.disk.device))

    def test_a_guest_that_does_not_let_go_keeps_the_disk(self):
        node = self.cloud_hypervisor("--eject-after", "1000")
        self.attach(node, "data-1", node.disk)
        with self.fails("UNAVAILABLE", "let go"):
            self.detach(node, "data-1")
        self.assertFalse(self.is_free(node.disk.device))
        node.vmm.stop()
        node.wait(lambda: self.row(node, "data-1")["state"] == "lost", 60, "the end")
        self.assertTrue(self.is_free(node.disk.device))

    def test_firecracker_is_refused(self):
        node = self.sandbox(vmm.firecracker, "firecracker")
        with self.fails("FAILED_PRECONDITION", "rescan its PCI bus"):
            self.attach(node, "data-1", node.disk)
        self.assertTrue(self.is_free(node.disk.device))


if __name__ == "__main__":
    unittest.main()
