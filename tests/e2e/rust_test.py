# SPDX-License-Identifier: Apache-2.0
"""A real guest under Kata's Rust runtime, which records neither sandboxes, drives nor mount points.

QEMU's working directory is the bundle, its disks are descriptors in fd sets, and crust-qemu adds its
monitor. The shim is a process with the right arguments, in the right directory, and with a
management socket that says where the agent is: this test's guest has no vsock."""

import os
import secrets

from resize_case import MIB, ResizeCase, Sandbox
from guestvm import GuestVM
from rust_runtime import GUEST_MOUNTS, RustPod, RustShim, guest_name


class RustSandbox(RustPod, Sandbox):
    """A pod of Kata's Rust runtime in a real VM."""

    def __init__(self, case, **options):
        Sandbox.__init__(self, case, **{"monitor": "crust-qemu"} | options)
        RustPod.__init__(self, self.node, self.id)
        self.drives = 0
        self.shim = None

    @property
    def agent_url(self):
        return "unix://" + str(self.vm.agent_socket).removeprefix(str(self.node.root))

    def make_volume(self, filesystem, **options):
        """Mounted where the runtime would have it mounted for a destination /srv/data-N."""
        self.drives += 1
        name = guest_name(f"data-{self.drives}")
        options = {"fdset": True, "node_name": f"drive-{self.drives}",
                   "device_id": f"drive-{self.drives}",
                   "mount_point": f"{GUEST_MOUNTS}/{name}"} | options
        return super().make_volume(filesystem, **options)

    def boot(self):
        self.make_directories()
        self.vm = self.case.enterClassContext(GuestVM(
            self.node.root, self.case.image, [volume.disk for volume in self.volumes],
            sandbox_id=self.id, vm_dir=self.bundle(self.id), layout="rust",
            agents=self.agents, program=self.qemu))
        self.shim = self.case.enterClassContext(RustShim(self, self.agent_url))
        self.write_state("qemu")

    def publish(self):
        self.vm.wait_ready()
        for volume in self.volumes:
            self.node.stage(volume.path, volume.device, fstype=volume.filesystem)
            self.vm.guest_write(volume.pattern, MIB)
            self.mount(volume)

    def plug(self, volume):
        """A container of the running pod brings a disk."""
        self.node.stage(volume.path, volume.device, fstype=volume.filesystem)
        self.vm.hotplug(volume.disk)
        self.volumes.append(volume)
        self.vm.guest_write(volume.pattern, MIB)
        return self.mount(volume)

    def mount(self, volume):
        """In a container of its own, whose id is returned. The name in the guest is the host's."""
        return self.run_container(volume.path, os.path.basename(volume.disk.mount_point))


class RustCase(ResizeCase):
    """Resizes under the Rust runtime."""

    @classmethod
    def add_sandbox(cls, **options):
        return RustSandbox(cls, **options)

    def sandbox_row(self, sandbox):
        return self.node.query(f"SELECT * FROM audit_sandboxes WHERE sandbox_id = '{sandbox.id}'")[0]


class RustTest(RustCase):
    """Each test has a pod of its own with one volume."""

    def start_pod(self):
        sandbox = self.add_sandbox()
        self.boot(sandbox)
        return sandbox

    def plug(self):
        """A running pod, the container in it that brought a volume, and the volume."""
        sandbox = self.start_pod()
        volume = sandbox.make_volume("ext4")
        return sandbox, sandbox.plug(volume), volume

    def test_pod_lives_and_ends(self):
        sandbox = self.add_sandbox()
        volume = sandbox.add_volume("ext4", node_name="abcdef0123456789",
                                    device_id="abcdef0123456789")
        self.boot(sandbox)
        self.grow(volume)
        row = self.sandbox_row(sandbox)
        self.assertEqual((row["runtime"], row["hypervisor"], row["vmm_pid"], row["status"]),
                         ("kata-rs", "qemu", sandbox.vm.pid, "alive"))
        self.assertEqual((row["pod_namespace"], row["pod_name"]),
                         ("default", f"pod-{sandbox.id[:6]}"))
        self.assertEqual(row["control_socket"], f"/run/crustd/qemu/{sandbox.id}.sock")
        self.assertEqual(row["agent_address"], sandbox.agent_url)
        self.assertEqual([one.target for one in sandbox.shim.server.requests], ["/agent-url"])
        self.assertEqual([mapping["source"] for mapping in self.mappings(volume)], ["hypervisor"])

        sandbox.vm.power_off()
        row = self.node.wait_for(volume.path, "unbound", "none")
        self.assertIsNone(row["sandbox_id"])
        self.assertEqual(self.sandbox_row(sandbox)["status"], "gone")

    def test_containerds_sandbox_api(self):
        """sandboxer = "shim", and k3s's containerd: no bundle where the shim works."""
        sandbox = self.add_sandbox()
        sandbox.containerd, sandbox.sandbox_api = "run/k3s/containerd", True
        self.boot(sandbox)
        volume = sandbox.make_volume("ext4")
        sandbox.plug(volume)
        self.grow(volume)
        row = self.sandbox_row(sandbox)
        self.assertEqual(row["control_socket"], f"/run/crustd/qemu/{sandbox.id}.sock")
        self.assertIsNone(row["problem"])

    def test_containers_come_and_go(self):
        sandbox, container, volume = self.plug()
        self.grow(volume)
        sandbox.end_container(container)
        self.node.wait_for(volume.path, "unbound", "none", sandbox_id=None)
        self.assertNotIn(None, [row["until"] for row in self.mappings(volume)])
        sandbox.mount(volume)
        self.settle(volume)
        self.grow(volume)

    def test_guest_path_that_could_be_anothers(self):
        sandbox = self.start_pod()
        volume = sandbox.make_volume("ext4")
        name = os.path.basename(volume.disk.mount_point)
        other = sandbox.passthrough / f"{secrets.token_hex(5)}{name[10:]}"
        other.mkdir()
        os.utime(other, (1 << 32, 1 << 32))  # later than the container's own
        sandbox.plug(volume)
        self.node.wait_for(volume.path, "in_sync", "none")
        self.assertRegex(self.mappings(volume)[-1]["guest_path"], "^(pci|scsi):")
        volume.loop.resize(128 * MIB)  # the companion finds it by where its disk is
        row = self.node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=128 * MIB)
        self.assertGreater(row["guest_bytes"], 96 * MIB)
        other.rmdir()
        self.node.wait(lambda: self.mappings(volume)[-1]["guest_path"] == volume.disk.mount_point,
                       60, "the path to be known")
        self.grow(volume)

    def test_two_sandboxes_claim_one_volume(self):
        _, _, volume = self.plug()
        self.settle(volume)
        other = self.add_sandbox()
        other.make_directories()
        self.node.start_vmm(other.id)
        self.enterContext(RustShim(other))
        container = other.mount(volume)
        self.node.wait_for(volume.path, "blocked", "multiple_sandboxes", sandbox_id=None)
        other.end_container(container)
        self.settle(volume)

    def test_sandbox_file_names_another(self):
        """Records that disagree are a reason, not a guess."""
        _, _, volume = self.plug()
        self.settle(volume)
        other = secrets.token_hex(32)
        vmm = self.node.start_vmm(other)
        self.node.add_sandbox(other, vmm.pid)
        self.node.record(volume.path, other)
        self.node.wait_for(volume.path, "blocked", "multiple_sandboxes")
        vmm.stop()
        self.settle(volume)
