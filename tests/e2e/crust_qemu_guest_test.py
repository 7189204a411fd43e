# SPDX-License-Identifier: Apache-2.0
"""Real guests whose QEMU was started through crust-qemu: resizes on its monitor, and its socket's end."""

import os

from resize_case import ResizeCase
from rust_test import RustCase

DIRECTORY = "/run/crustd/qemu"


class CrustQemuCase:
    """What both runtimes have in common."""

    def check_monitor(self, sandbox):
        socket = f"{DIRECTORY}/{sandbox.id}.sock"
        row, = self.node.query(f"SELECT * FROM audit_sandboxes WHERE sandbox_id = '{sandbox.id}'")
        self.assertEqual((row["control_socket"], row["vmm_pid"]), (socket, sandbox.vm.pid))
        done = self.node.crustctl("doctor", check=False)
        self.assertIn("has a monitor for crustd (crust-qemu's, QMP)",
                      " ".join(done.stdout.split()))
        return self.node.path(socket)

    def check_life(self, sandbox):
        """The monitor outlives crustd and ends with the VM, even if the VM is killed."""
        socket = self.check_monitor(sandbox)
        self.node.kill()
        self.node.start()
        self.grow(*sandbox.volumes)
        self.assertEqual(os.listdir(socket.parent), [socket.name])
        sandbox.vm.process.kill()
        self.node.wait(lambda: not socket.exists(), 60, "the socket to be removed")
        for volume in sandbox.volumes:
            self.node.wait_for(volume.path, "unbound", "none")


class GoTest(CrustQemuCase, ResizeCase):

    def test_grows_and_ends(self):
        sandbox = self.add_sandbox(monitor="crust-qemu")
        volumes = [sandbox.add_volume("ext4"), sandbox.add_volume("xfs")]
        self.boot(sandbox)
        self.grow(*volumes)
        self.check_life(sandbox)


class RustTest(CrustQemuCase, RustCase):

    def test_several_disks_of_one_size(self):
        """QMP says which descriptor is which drive."""
        sandbox = self.add_sandbox(monitor="crust-qemu")
        volumes = [sandbox.add_volume("ext4"), sandbox.add_volume("ext4")]
        self.boot(sandbox)
        self.grow(*volumes)
        self.assertEqual(len({volume.loop.size for volume in volumes}), 1)
        self.check_life(sandbox)
