# SPDX-License-Identifier: Apache-2.0
"""What is staged or published is checked against the node: who holds the device, which file systems
guests mount, which sandboxes there are. And what the node says of itself to CRUST."""

import json
import os
import subprocess

from lower_devices import Sysfs
from disks import make_filesystem
from grpc_client import SECONDS, GrpcTest, Kubelet, Runtime
from scratch_node import AFTER, POD_UID, SANDBOX, publish_path

PATH = publish_path("pv-checked")
OTHER = "b" * 64
KATA = "opt/kata/share/defaults/kata-containers/configuration.toml"
QEMU = '[hypervisor.qemu]\nenable_debug = {debug}\nextra_monitor_socket = "qmp"\n'


class CheckTest(GrpcTest):
    def start(self, node):
        node.start()
        self.runtime, self.kubelet = Runtime(self, node), Kubelet(self, node)

    def stage(self, device, path=PATH, **more):
        self.runtime.stage(path, device, **more)

    def is_nowhere(self, node):
        self.assertIsNone(node.volume(PATH))
        self.assertFalse(node.directory(PATH).exists())


class Holders(CheckTest):
    def test_mounted_on_the_host(self):
        node = self.node()
        loop = self.loop()
        node.add_device(loop.device)
        make_filesystem("ext4", loop.device)
        place = self.scratch / "mounted"
        place.mkdir()
        self.start(node)
        self.mount_for_the_test(loop.device, place)
        with self.fails("UNAVAILABLE", "in use on the host", str(place)):
            self.stage(loop.device)
        self.is_nowhere(node)
        subprocess.run(["umount", place], check=True)
        self.stage(loop.device)  # at once: the driver has just unmounted it

    def test_held_by_device_mapper(self):
        node = self.node()
        sysfs = Sysfs(node)
        disk, mapped = self.loop(), self.loop()
        sysfs.add("sda", disk)
        sysfs.add("dm-0", mapped, ["sda"], label="mpatha", uuid="mpath-0123")
        holders = sysfs.root / "devices/block/sda/holders"
        holders.mkdir()
        (holders / "dm-0").symlink_to("../../dm-0")
        for loop in (disk, mapped):
            node.add_device(loop.device)
        self.start(node)
        with self.fails("UNAVAILABLE", "held on the host by dm-0 (mpatha)"):
            self.stage(disk.device)
        self.is_nowhere(node)
        self.stage(mapped.device)  # a mapped device that nothing stands on is as good as any

    def test_in_another_volumes_sandbox(self):
        node, volume = self.node_with_volume(name="pv-first")
        vmm, *_ = self.equip(node, volume)
        self.start(node)
        node.wait_for(volume.path, "in_sync")
        with self.fails("UNAVAILABLE", SANDBOX, volume.path):
            self.stage(volume.loop.device)
        self.is_nowhere(node)
        self.stage(volume.loop.device, path=volume.path)  # the kubelet repeats its own
        vmm.stop()
        node.end_sandbox(SANDBOX)
        node.wait_for(volume.path, "unbound")
        with self.fails("UNAVAILABLE", volume.path, f"for pod {POD_UID}"):
            self.stage(volume.loop.device)  # its pod may start another sandbox
        node.path("/var/lib/kubelet/pods/another").mkdir(parents=True)  # a kubelet's, which has no such pod
        self.stage(volume.loop.device)

    def test_a_device_that_is_not_there_yet(self):
        self.start(self.node())
        self.stage("/dev/later")


class FileSystems(CheckTest):

    def test_as_the_configuration_has_it(self):
        self.start(self.node({"crust.file_systems": "auto, f2fs"}))
        self.assertEqual(self.kubelet.file_systems(), ["ext4", "xfs", "f2fs"])
        self.stage("/dev/x", fs_type="f2fs")
        self.start(self.node({"crust.file_systems": "xfs"}))
        with self.fails("INVALID_ARGUMENT", "they mount xfs"):
            self.stage("/dev/x")

    def test_a_file_system_that_a_guest_has_mounted(self):
        """Somebody wrote its metadata by hand, and a guest told its size."""
        node, volume = self.node_with_volume(name="pv-btrfs")
        node.stage(volume.path, volume.loop.device, fstype="btrfs")
        self.equip(node, volume)
        self.start(node)
        node.wait_for(volume.path, "in_sync")
        volume.loop.resize(AFTER)
        node.wait(lambda: node.volume(volume.path)["guest_bytes"], SECONDS, "the guest's word")
        self.assertEqual(self.kubelet.file_systems(), ["ext4", "xfs", "btrfs"])
        self.stage("/dev/x", fs_type="btrfs")


class Sandboxes(CheckTest):
    def test_a_sandbox_that_is_yet_to_come(self):
        node = self.node()
        loop = self.loop()
        node.add_device(loop.device)
        self.start(node)
        with self.fails("UNAVAILABLE", OTHER):
            self.kubelet.publish(loop.device, OTHER, PATH)
        self.is_nowhere(node)
        vmm = node.start_vmm(OTHER)
        node.add_sandbox(OTHER, vmm.pid)
        node.wait(lambda: node.query("SELECT 1 FROM audit_sandboxes"), SECONDS, "the sandbox")
        self.kubelet.publish(loop.device, OTHER, PATH)
        self.assertIn(OTHER, os.listdir(node.directory(PATH)))


LABELS = ('context="system_u:object_r:container_file_t:s0:c1,c2"', "fscontext=a", "defcontext=a", "rootcontext=a")
# Of guests that Kata's Go runtime starts, without SELinux in them.
POST_MOUNT = ["FS_GROUP_CHANGE_POLICY_ALWAYS", "FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH",
              "SELINUX_RELABEL", "SELINUX_RELABEL_ON_MOUNT"]


class Capabilities(CheckTest):

    def configure_kata(self, node, debug, more=""):
        file = node.root / KATA
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(QEMU.format(debug=debug) + more)

    def test_without_kata(self):
        self.start(self.node())
        self.assertEqual(self.kubelet.capabilities(), [])

    def test_with_a_monitor(self):
        node = self.node()
        self.configure_kata(node, "true")
        self.start(node)
        self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", "VOLUME_RESIZE", *POST_MOUNT])

    def test_without_a_monitor(self):
        node = self.node()
        self.configure_kata(node, "false")
        self.start(node)
        self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", *POST_MOUNT])

    def test_with_katas_rust_runtime(self):
        """It passes no group on (story 2: the kubelet then has the driver mount on the node)."""
        node = self.node()
        self.configure_kata(node, "true", '[runtime]\nname = "virt_container"\nhypervisor_name = "qemu"\n')
        self.start(node)
        self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", *POST_MOUNT[2:]])

    def test_with_guests_that_enforce_labels(self):
        node = self.node()
        self.configure_kata(node, "true", "disable_guest_selinux = false\n")
        self.start(node)
        self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", "VOLUME_RESIZE", *POST_MOUNT[:2], "SELINUX_RELABEL_ON_MOUNT"])

    def options_with_a_label(self, more):
        node = self.node()
        self.configure_kata(node, "true", more)
        self.start(node)
        self.stage("/dev/crust-none", mount_flags=[*LABELS, "noatime"])
        return json.loads((node.directory(PATH) / "mountInfo.json").read_text())["options"]

    def test_a_label_where_guests_enforce_it(self):
        """It reaches the guest's mount there, and is left out elsewhere: without SELinux a mount
        with it fails."""
        self.assertEqual(self.options_with_a_label(""), ["noatime"])
        self.assertEqual(self.options_with_a_label("disable_guest_selinux = false\n"), [*LABELS, "noatime"])

    def test_with_a_kata_that_ignores_direct_volumes(self):
        node = self.node()
        self.configure_kata(node, "true")
        version = node.root / "opt/kata/VERSION"
        version.parent.mkdir(parents=True, exist_ok=True)
        version.write_text("2.3.1\n")
        self.start(node)
        self.assertEqual(self.kubelet.capabilities(), [])
        version.write_text("4.1.0\n")
        self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", "VOLUME_RESIZE", *POST_MOUNT])

    def test_by_a_sandbox_alone(self):
        node, volume = self.node_with_volume()
        self.equip(node, volume)
        self.start(node)
        node.wait_for(volume.path, "in_sync")
        self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", "VOLUME_RESIZE", *POST_MOUNT[:2]])

    def test_where_nothing_may_grow(self):
        for settings in ({"resize.mode": "observe"}, {"resize.mode": "never"}):
            node = self.node(settings)
            self.configure_kata(node, "true")
            self.start(node)
            self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", *POST_MOUNT])

    def test_as_an_administrator_declares(self):
        self.start(self.node({"crust.capabilities": "SELINUX_RELABEL_ON_MOUNT, VOLUME_STATS"}))
        self.assertEqual(self.kubelet.capabilities(), ["SELINUX_RELABEL_ON_MOUNT", "VOLUME_STATS"])
        node = self.node({"crust.capabilities": "auto, FS_GROUP_CHANGE_POLICY_ALWAYS, SUBPATH"})
        self.configure_kata(node, "true")
        self.start(node)
        self.assertEqual(self.kubelet.capabilities(), ["VOLUME_STATS", "VOLUME_RESIZE", *POST_MOUNT, "SUBPATH"])
