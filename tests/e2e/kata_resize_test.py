# SPDX-License-Identifier: Apache-2.0
"""A stock guest's file systems grow by the helper that crustd brings along: real QEMU, an agent that really runs
containers and denies the rest, nothing of crustd's in the guest. Only the devices grow; crustd does all else.
"""

import contextlib
import os
import unittest

from resize_case import SECONDS, ResizeCase, Sandbox
from guest_image import build_kata_image, build_program
from kata_agent_test import BUNDLES, CGROUPS
from kata_guest import KataGuest, missing_parts
from node import BUILD

SANDBOXES = "run/kata-containers/shared/sandboxes"
OURS = "crust-"


class StockSandbox(Sandbox):
    """A sandbox of Kata's Go runtime whose guest is a stock one."""

    guest_options = {}

    def boot(self):
        self.share = self.node.root / SANDBOXES / self.id / "mounts"
        self.share.mkdir(parents=True)
        (self.share / "resolv.conf").write_text("nameserver 192.0.2.1\n")
        guest = self.case.enterClassContext(KataGuest(
            self.node.root, build_kata_image(BUILD / "guest"), self.share,
            disks=[volume.disk for volume in self.volumes], sandbox_id=self.id,
            vm_dir=self.node.vm_dir(self.id), extra_monitor=self.monitor, **self.guest_options))
        self.vm, self.relay = guest.vm, guest.relay

    def left(self):
        """What there still is of helpers: on the share, and in the guest."""
        found = sorted(name for name in os.listdir(self.share) if name.startswith(OURS))
        for directory in (BUNDLES, CGROUPS):
            if self.vm.guest_count(directory, OURS):
                found.append(directory)
        return found

    def containers(self):
        """How many were created so far."""
        return self.vm.console().count("CreateContainer ok")


class StockCase(ResizeCase):
    sandbox_class = StockSandbox
    file_systems = ("ext4",)
    settings = ResizeCase.settings | {"guest.helper": "on",
                                       "guest.helper_file": BUILD / "crust-guest-agent"}

    @classmethod
    def setUpClass(cls):
        if missing_parts():
            raise unittest.SkipTest(f"not installed here: {', '.join(missing_parts())}")
        super().setUpClass()
        cls.sandbox = cls.sandbox_class(cls)
        cls.volumes = {name: cls.sandbox.add_volume(name) for name in cls.file_systems}
        cls.boot(cls.sandbox)

    def check_nothing_left(self):
        self.wait(lambda: not self.sandbox.left(), "nothing to be left of helpers")
        self.assertIn("resolv.conf", os.listdir(self.sandbox.share))

    def wait_refused(self, volume, reason):
        """The device grows, the guest's file system does not; returns the resize."""
        resize = self.begin(volume, settled=None)
        self.node.wait_for(volume.path, "block_grown", reason, SECONDS,
                           hypervisor_bytes=resize.to_bytes)
        self.assertEqual(volume.sandbox.vm.guest_size(volume.disk.mount_point), resize.guest_bytes)
        return resize


class StockResizeTest(StockCase):
    file_systems = ("ext4", "xfs", "btrfs")

    def test_each_alone(self):
        for volume in self.volumes.values():
            with self.subTest(volume.filesystem):
                self.grow(volume)
                self.check_nothing_left()

    def test_all_together(self):
        """Fewer containers than volumes would need one by one: those that wait share a run."""
        for volume in self.volumes.values():
            self.settle(volume)
        before = self.sandbox.containers()
        self.grow(*self.volumes.values())
        self.assertLess(self.sandbox.containers() - before, 2 * len(self.volumes))
        self.check_nothing_left()

    @contextlib.contextmanager
    def frozen(self, volume):
        """A resize of a volume whose file system is frozen, when its helper is in the guest; thawed at the end."""
        self.settle(volume)
        path, before = volume.disk.mount_point, self.sandbox.containers()
        self.sandbox.vm.freeze(path)
        try:
            resize = self.begin(volume, settled=None)
            self.wait(lambda: self.sandbox.containers() > before, "a helper in the guest")
            yield resize
        finally:
            self.sandbox.vm.thaw(path)

    def test_frozen_file_system_grows_once_it_is_thawed(self):
        with self.frozen(self.volumes["xfs"]) as resize:
            pass
        self.finish(resize)
        self.check_nothing_left()

    def test_killed_while_the_helper_runs(self):
        """The next crustd finds what is left, removes it, and the volume grows."""
        with self.frozen(self.volumes["xfs"]) as resize:
            self.node.kill()
            self.assertTrue(self.sandbox.left())
        self.node.start()
        self.node.wait_for(resize.volume.path, "in_sync", "none", SECONDS, device_bytes=resize.to_bytes)
        self.check_guest(resize)
        self.check_nothing_left()


class HangingHelperTest(StockCase):
    settings = StockCase.settings | {"resize.call_timeout_seconds": 5}

    def test_helper_that_hangs_is_killed_and_removed(self):
        self.node.stop()
        self.node.configure(guest__helper_file=build_program(BUILD / "guest", "hang"))
        self.node.start()
        volume = self.volumes["ext4"]
        resize = self.wait_refused(volume, "helper_failed")
        self.check_nothing_left()
        self.assertIn("ended with 137", self.sandbox.vm.console())
        self.node.stop()
        self.node.configure(guest__helper_file=BUILD / "crust-guest-agent")
        self.node.start()
        self.node.wait_for(volume.path, "in_sync", "none", SECONDS, device_bytes=resize.to_bytes)
        self.check_guest(resize)
        self.check_nothing_left()


class NoSysfsSandbox(StockSandbox):
    guest_options = {"agent_options": ("without-sysfs",)}


class NoSysfsTest(StockCase):
    sandbox_class = NoSysfsSandbox

    def test_reason_of_the_helper_is_journaled(self):
        self.wait_refused(self.volumes["ext4"], "helper_failed")
        volume = self.volumes["ext4"]
        self.assertTrue(self.journal(volume, "detail LIKE '%/sys is not mounted%'"),
                        self.journal(volume))
        self.check_nothing_left()


class NoCgroupsSandbox(StockSandbox):
    guest_options = {"agent_options": ("without-cgroups",)}


class NoCgroupsTest(StockCase):
    sandbox_class = NoCgroupsSandbox

    def test_refusal_has_its_own_reason(self):
        self.wait_refused(self.volumes["ext4"], "helper_no_cgroups")
        self.assertEqual(os.listdir(self.sandbox.share), ["resolv.conf"])


class UnmountedCgroupsSandbox(StockSandbox):
    guest_options = {"cgroups": False}


class UnmountedCgroupsTest(StockCase):
    """Kata's agent answers neither StartContainer nor RemoveContainer then."""

    sandbox_class = UnmountedCgroupsSandbox
    settings = StockCase.settings | {"resize.call_timeout_seconds": 5}

    def test_step_that_hangs_is_named(self):
        volume = self.volumes["ext4"]
        self.wait_refused(volume, "helper_failed")
        self.assertTrue(self.journal(volume, "detail LIKE '%StartContainer%'"), self.journal(volume))
        said = self.node.crustctl("explain", volume.path).stdout
        self.assertIn("control groups", said)
