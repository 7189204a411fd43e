# SPDX-License-Identifier: Apache-2.0
"""A disk of the node into a stock guest of Cloud Hypervisor, by crustctl. Its API is a stand-in that plugs the disk
into the guest of a real QEMU, at the PCI address that it names; the stand-in for kata-agent mounts it by that address.
"""

import types

import vmm
from disks import LoopDevice
from drive_commands import SIZE
from drives_stock_case import DrivesStockCase, DrivesStockTests
from guest_image import build_kata_image
from kata_guest import KataGuest
from kata_resize_test import SANDBOXES, StockSandbox
from node import BUILD
from resize_case import MIB


class CloudHypervisorSandbox(StockSandbox):
    vmm_options = ()

    def boot(self):
        self.share = self.node.root / SANDBOXES / self.id / "mounts"
        self.share.mkdir(parents=True)
        (self.share / "resolv.conf").write_text("nameserver 192.0.2.1\n")
        guest = self.case.enterClassContext(KataGuest(
            self.node.root, build_kata_image(BUILD / "guest"), self.share, machine="pc", extra_monitor="qmp"))
        self.vm, self.relay = guest.vm, guest.relay
        boot = self.case.enterClassContext(LoopDevice(self.case.scratch / "boot", SIZE))
        test = types.SimpleNamespace(scratch=self.case.scratch, addCleanup=self.case.addClassCleanup)
        self.vmm = vmm.cloud_hypervisor(test, self.node, self.id, types.SimpleNamespace(loop=boot, drive="_disk0"),
                                        "v54.0", "--guest", self.vm.extra_socket, *self.vmm_options)
        self.vmm.set()  # its socket is there

    def write_persist(self):
        agent = str(self.relay.socket_path).removeprefix(str(self.node.root))
        self.node.add_sandbox(self.id, self.vmm.pid, agent=f"unix://{agent}", hypervisor="clh")


class DrivesStockCloudHypervisorTest(DrivesStockTests, DrivesStockCase):
    sandbox_class = CloudHypervisorSandbox

    def test_attach_write_detach(self):
        loop = self.disk()
        drive = self.attached("data-1", loop, "/run/data-1", "--writable", "--fs-group", "2000")
        self.assertEqual((drive["state"], drive["size_bytes"]), ("ready", SIZE))
        self.assertEqual(self.vm.guest_blocksize("pci:10"), SIZE)
        self.assertEqual(self.vm.guest_device("pci:10"), drive["guest_device"])
        self.vm.guest_write("/run/data-1/pattern", MIB)
        self.detach_written("data-1", loop)


class NoShareSandbox(CloudHypervisorSandbox):
    vmm_options = ("--no-share",)


class NoShareTest(DrivesStockCase):
    sandbox_class = NoShareSandbox

    def test_guest_that_shares_no_directory_is_refused(self):
        """The directory on the node is there all the same, as under Kata's Go runtime."""
        loop = self.disk()
        code, _, error = self.attach("data-1", loop, "/run/data-1")
        self.assertEqual(code, 5, error)
        self.assertIn("shares no directory", error)
        self.assertEqual(self.sandbox.vmm.sent("PUT"), [])
        self.assertEqual(self.sandbox.containers(), 0)
        self.assert_free(loop)
        self.check_nothing_left()
