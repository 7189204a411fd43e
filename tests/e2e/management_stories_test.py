# SPDX-License-Identifier: Apache-2.0
"""The six stories of the CRUST proposal (the draft of KEP-2857 with the Container RUntime STorage interface), from the
side of the node: what the kubelet asks, what crustd answers, and what a node says of a volume of which it was asked
nothing. Kubelet and CSI driver are played by the tests; docs/interfaces-implemented.md has the table."""

import contextlib
import json
import os
import subprocess

from containers import Containers
from disks import make_filesystem
from grpc_client import SECONDS, GrpcTest, Kubelet, Runtime
from scratch_node import AFTER, BEFORE, SANDBOX, publish_path

PATH = publish_path("pv-published")
OTHER = "b" * 64
KATA = "opt/kata/share/defaults/kata-containers/configuration.toml"
GO = '[hypervisor.qemu]\nenable_debug = true\nextra_monitor_socket = "qmp"\n'
RUST = '[hypervisor.qemu]\n[runtime]\nname = "virt_container"\nhypervisor_name = "qemu"\n'
GROUP = {"FS_GROUP_CHANGE_POLICY_ALWAYS", "FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH"}


class StoriesTest(GrpcTest):
    """A kubelet beside a node whose pods are micro-VMs."""

    def start(self, node):
        node.start()
        self.kubelet = Kubelet(self, node)

    def publish(self, device, path=PATH, **more):
        self.kubelet.publish(device, SANDBOX, path, **more)

    def expand(self, device, required=0, sandbox=SANDBOX):
        return self.kubelet.expand(device, sandbox, required)

    def stats(self, device):
        return self.kubelet.stats(device, SANDBOX)

    def configured(self, text=GO, settings=None):
        node = self.node(settings)
        file = node.root / KATA
        file.parent.mkdir(parents=True)
        file.write_text(text)
        return node

    def pod(self, node=None):
        """(node, VMM, device): a sandbox with a device that it is going to mount, once it is published."""
        node = node or self.configured()
        volume = self.volume(node, "pv-not-published")
        node.unstage(volume.path)
        self.monitor(node, volume)
        self.agent(node).stats.total = BEFORE
        vmm = self.sandbox(node, drives=[volume.record()])
        self.start(node)
        return node, vmm, volume.loop

    @contextlib.contextmanager
    def mounted_by_the_driver(self):
        """The fallback: the driver mounts the volume on the node. Returns the device."""
        loop = self.loop()
        make_filesystem("ext4", loop.device)
        at = self.scratch / f"globalmount{self.loops}"
        at.mkdir()
        subprocess.run(["mount", loop.device, at], check=True)
        try:
            yield loop
        finally:
            subprocess.run(["umount", at], check=True)

    def is_none_of_crustds(self, node, loop):
        """Nothing is on record, nothing is written, nobody has it open, and a larger device changes nothing."""
        self.settle(node)
        loop.resize(AFTER)
        self.settle(node)
        self.assertIsNone(node.volume(PATH))
        self.assertEqual(node.query(f"SELECT 1 FROM audit_volumes WHERE device = '{loop.device}'"), [])
        self.assertEqual(node.query("SELECT 1 FROM audit_resizes"), [])
        self.assertFalse(node.directory(PATH).exists())
        theirs = f"/proc/{node.process.pid}/fd"
        self.assertNotIn(loop.device, [os.readlink(f"{theirs}/{fd}") for fd in os.listdir(theirs)
                                       if os.path.islink(f"{theirs}/{fd}")])


class Stories(StoriesTest):
    def test_story_1_everything_is_deferred(self):
        """Capabilities, file systems, publish with fsGroup and policy, stats, expand, the end of the pod."""
        node, vmm, loop = self.pod()
        self.assertLessEqual(GROUP | {"VOLUME_STATS", "VOLUME_RESIZE"}, set(self.kubelet.capabilities()))
        self.assertIn("ext4", self.kubelet.file_systems())
        with self.fails("NOT_FOUND"):
            self.stats(loop.device)
        with self.fails("UNAVAILABLE", "no such volume"):
            self.expand(loop.device)
        for _ in range(2):  # the kubelet asks again when it is restarted
            self.publish(loop.device, mount_options=["noatime"], fsgroup_gid=4059, fsgroup_policy="OnRootMismatch")
        staged = json.loads((node.directory(PATH) / "mountInfo.json").read_text())
        self.assertEqual(staged, {"volume-type": "directvol", "device": loop.device, "fstype": "ext4",
                                  "metadata": {"fsGroup": "4059", "fsGroupChangePolicy": "OnRootMismatch"},
                                  "options": ["noatime"]})
        self.assertEqual(set(os.listdir(node.directory(PATH))), {"mountInfo.json", SANDBOX})
        row = node.volume(PATH)
        self.assertEqual((row["device"], row["metadata"], row["options"]), (
            loop.device, '{"fsGroup":"4059","fsGroupChangePolicy":"OnRootMismatch"}', '["noatime"]'))
        node.wait_for(PATH, "in_sync", sandbox_id=SANDBOX)
        mapping, = node.query("SELECT sandbox_id, device, target_path, source, drive_id IS NULL AS no_drive, until"
                              " FROM audit_mappings")
        self.assertEqual(mapping, {"sandbox_id": SANDBOX, "device": loop.device, "target_path": PATH, "source": "api",
                                   "no_drive": 0, "until": None})
        stats = self.stats(loop.device)
        self.assertEqual((stats.usage[0].total, stats.volume_condition.abnormal), (BEFORE, False))
        loop.resize(AFTER)
        self.assertEqual(self.expand(loop.device, required=AFTER), AFTER)
        self.assertEqual(node.volume(PATH)["guest_bytes"], AFTER)
        self.assertEqual(self.stats(loop.device).usage[0].total, AFTER)
        with self.fails("UNAVAILABLE", "on the host"):
            self.expand(loop.device, required=AFTER + 1)
        vmm.stop()
        node.end_sandbox(SANDBOX)
        node.wait(lambda: node.volume(PATH)["sandbox_id"] is None, SECONDS, "the end of the sandbox")
        Runtime(self, node).unstage(PATH)
        self.assertFalse(node.directory(PATH).exists())

    def test_story_2_the_runtime_lacks_post_mount_configuration(self):
        """No fsGroup with Kata's Rust runtime, a subPath with neither: the kubelet sees it before it defers anything."""
        for text in (GO, RUST):
            node = self.configured(text)
            self.start(node)
            claimed = set(self.kubelet.capabilities())
            self.assertEqual(GROUP & claimed, set() if text == RUST else GROUP)
            self.assertNotIn("SUBPATH", claimed)
            with self.mounted_by_the_driver() as loop:
                node.add_device(loop.device)
                self.is_none_of_crustds(node, loop)

    def test_story_3_the_runtime_class_names_no_socket(self):
        """The kubelet never calls. A call that comes all the same finds the device mounted on the node."""
        node = self.configured()
        self.start(node)
        vmm = node.start_vmm(SANDBOX)
        node.add_sandbox(SANDBOX, vmm.pid)
        node.wait(lambda: node.query("SELECT 1 FROM audit_sandboxes"), SECONDS, "the sandbox")
        with self.mounted_by_the_driver() as loop:
            node.add_device(loop.device)
            self.is_none_of_crustds(node, loop)
            with self.fails("UNAVAILABLE", "in use on the host"):
                self.publish(loop.device)
            self.assertFalse(node.directory(PATH).exists())

    def test_story_4_the_storage_class_does_not_allow_it(self):
        """Two pods on one node, one of whose volumes is deferred: the other one's is not touched."""
        node, _, deferred = self.pod()
        path = publish_path("pv-deferred")
        self.publish(deferred.device, path=path)
        node.wait_for(path, "in_sync", sandbox_id=SANDBOX)
        with self.mounted_by_the_driver() as loop:
            node.add_device(loop.device)
            self.is_none_of_crustds(node, loop)
        self.assertEqual(node.volume(path)["state"], "in_sync")
        deferred.resize(AFTER)
        self.assertEqual(self.expand(deferred.device, required=AFTER), AFTER)

    def test_story_5_the_runtime_lacks_the_file_system(self):
        """It is not in the list that the kubelet hands to the driver; published nevertheless, it is refused."""
        node, _, loop = self.pod()
        self.assertEqual(self.kubelet.file_systems(), ["ext4", "xfs"])
        with self.fails("INVALID_ARGUMENT", "ntfs", "ext4, xfs"):
            self.publish(loop.device, file_system="ntfs")
        self.assertFalse(node.directory(PATH).exists())
        self.assertIsNone(node.volume(PATH))

    def test_story_6_the_runtime_cannot_expand(self):
        """Deferred with success, without VOLUME_RESIZE. A kubelet that asks all the same is told so for good."""
        node, _, loop = self.pod(self.configured(settings={"resize.mode": "never"}))
        claimed = set(self.kubelet.capabilities())
        self.assertIn("VOLUME_STATS", claimed)
        self.assertNotIn("VOLUME_RESIZE", claimed)
        self.publish(loop.device)
        node.wait_bound(PATH)
        loop.resize(AFTER)
        with self.fails("FAILED_PRECONDITION", "policy"):
            self.expand(loop.device, required=AFTER)
        self.assertEqual(self.stats(loop.device).usage[0].total, BEFORE)


class PublishTest(StoriesTest):

    def test_a_device_by_another_name(self):
        node, _, loop = self.pod()
        self.publish(loop.device)
        node.wait_for(PATH, "in_sync")
        node.wait_rest()
        link = node.root / "dev/by-name"
        link.symlink_to(loop.device)
        self.assertEqual(self.stats("/dev/by-name").usage[0].total, BEFORE)
        self.assertEqual(self.expand("/dev/by-name"), BEFORE)
        with self.fails("NOT_FOUND"):
            self.stats("/dev/by-nobody")
        with self.fails("UNAVAILABLE", "no such volume"):
            self.expand(loop.device, sandbox=OTHER)

    def test_into_a_sandbox_with_containers(self):
        """With drives.enabled = on it would be a drive, which may lie below drives.host_prefixes only; without
        containers, or without drives, it is metadata."""
        for settings, has_containers in (({}, True), ({"drives.enabled": "on"}, False), ({"drives.enabled": "on"}, True)):
            with self.subTest((settings, has_containers)):
                node = self.node(settings)
                loop = self.loop()
                node.add_device(loop.device)
                containers = Containers(node, SANDBOX)
                vmm = node.start_vmm(SANDBOX)
                node.add_sandbox(SANDBOX, vmm.pid)
                if has_containers:
                    containers.run(("/somewhere", "/data"))
                self.start(node)
                node.wait(lambda n=node: n.query("SELECT 1 FROM audit_sandboxes"), SECONDS, "the sandbox")
                if settings and has_containers:
                    with self.fails("PERMISSION_DENIED", "drives.host_prefixes"):
                        self.publish(loop.device)
                    self.assertFalse(node.directory(PATH).exists())
                else:
                    self.publish(loop.device)
                    self.assertTrue(node.directory(PATH).exists())
                vmm.stop()
                containers.close()
