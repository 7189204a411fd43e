# SPDX-License-Identifier: Apache-2.0
"""Raw block claims: the driver puts a device at the kubelet's publish path, the runtime plugs it into the VM, and
nobody calls crustd or writes metadata for it."""

import dataclasses
import json
import os
import secrets
import shutil

from containers import Containers
from grpc_client import GrpcTest, Runtime
from resize_case import SECONDS, ResizeCase
from scratch_node import (AFTER, BEFORE, POD_UID, SANDBOX, ScratchNodeTest, Volume, fake_monitor,
                          metrics_of)
from vmm import cloud_hypervisor, record_sandbox

KUBELET = "/var/lib/kubelet"
BLOCK = f"{KUBELET}/plugins/kubernetes.io/csi/volumeDevices"
CONFIDENTIAL = {"io.katacontainers.volume.confidential": "true"}
GROWS = {"crustd.dev/grow-file-system": "true"}


@dataclasses.dataclass
class Claim(Volume):
    """A claim of volumeMode Block as it is on the node."""

    pv: str = "pv"
    pod: str = POD_UID

    @property
    def number(self):
        status = os.stat(self.loop.device)
        return os.major(status.st_rdev), os.minor(status.st_rdev)

    def publish(self, node):
        """As the driver and the kubelet do."""
        device, record = node.path(self.path), node.path(f"{KUBELET}/pods/{self.pod}/volumeDevices/kubernetes.io~csi")
        data = node.path(f"{BLOCK}/{self.pv}/data")
        for directory in (device.parent, record, data):
            directory.mkdir(parents=True, exist_ok=True)
        os.mknod(device, 0o600 | 0o060000, os.makedev(*self.number))
        (record / self.pv).symlink_to(self.path)
        (data / "vol_data.json").write_text(json.dumps({"driverName": "block.example", "volumeHandle": "handle",
                                                        "specVolID": self.pv}))

    def withdraw(self, node):
        node.path(f"{KUBELET}/pods/{self.pod}/volumeDevices/kubernetes.io~csi/{self.pv}").unlink()
        node.path(self.path).unlink()


def specification(*numbers):
    """linux of a container's config.json, with these block devices."""
    return {"devices": [{"path": f"/dev/xvd{index}", "type": "b", "major": major, "minor": minor, "fileMode": 384}
                        for index, (major, minor) in enumerate(numbers)]}


def pod_annotations(pod):
    return {"io.kubernetes.cri.sandbox-uid": pod, "io.kubernetes.cri.sandbox-name": "database-0",
            "io.kubernetes.cri.sandbox-namespace": "shop"}


class ClaimCase(ScratchNodeTest):
    def claim(self, node, pv="pv", pod=POD_UID, loop=None):
        loop = loop or self.loop()
        if not node.path(loop.device).exists():
            node.add_device(loop.device)
        claim = Claim(f"{BLOCK}/publish/{pv}/{pod}", loop, f"drive-{self.loops:016x}", f"02/{self.loops:02x}", pv, pod)
        claim.publish(node)
        return claim

    def pod(self, node, *claims, sandbox_id=SANDBOX, annotations=None, devices=(), agent="unix:///agent.sock"):
        """A sandbox that runs, and has a container with these claims and devices; (containers, monitor)."""
        vmm, monitor = node.start_vmm(sandbox_id), self.monitor(node, *claims, sandbox_id=sandbox_id)
        node.add_sandbox(sandbox_id, vmm.pid, drives=[claim.record() for claim in claims], agent=agent)
        pod = claims[0].pod if claims else POD_UID
        containers = self.containers(node, sandbox_id, annotations=pod_annotations(pod) | (annotations or {}))
        containers.more["linux"] = specification(*[claim.number for claim in claims], *devices)
        containers.bundle = containers.run()
        containers.monitor, containers.vmm = monitor, vmm
        return containers

    def claimed(self, settings=None, start=True, **pod):
        """A node with a claim in a pod, which is in sync."""
        node = self.node(settings)
        claim = self.claim(node)
        containers = self.pod(node, claim, **pod)
        if start:
            node.start()
            node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        return node, claim, containers


class BlockClaimsTest(ClaimCase):
    def test_grows(self):
        """Begins with the container, grows with nobody's help but the uevent's, and ends with the container."""
        node = self.node()
        agent = self.agent(node)
        claim = self.claim(node)
        node.start()
        containers = self.pod(node, claim)
        row = node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        self.assertEqual(
            {name: row[name] for name in ("kind", "layout", "pv", "pod_uid", "driver", "volume_handle", "device",
                                          "sandbox_id", "pod_namespace", "pod_name", "fs_type", "problem", "stalled")},
            {"kind": "block_claim", "layout": "none", "pv": "pv", "pod_uid": POD_UID, "driver": "block.example",
             "volume_handle": "handle", "device": claim.path, "sandbox_id": SANDBOX, "pod_namespace": "shop",
             "pod_name": "database-0", "fs_type": None, "problem": None, "stalled": 0})
        node.wait_for(claim.path, "in_sync", "none", resizable="yes")
        claim.loop.resize(AFTER)
        node.wait_for(claim.path, "in_sync", "none", device_bytes=AFTER, hypervisor_bytes=AFTER)
        self.assertEqual(len(containers.monitor.sent("block_resize")), 1)
        resize = self.resize_row(node, claim.path)
        self.assertEqual((resize["from_bytes"], resize["to_bytes"], resize["state"], resize["guest_at"]),
                         (BEFORE, AFTER, "in_sync", None))
        self.assertIsNotNone(resize["finished_at"])
        self.assertEqual(agent.requests, [])
        self.assert_told(node, claim)
        shutil.rmtree(containers.bundle)
        row = node.wait(lambda: (node.volume(claim.path)["status"] == "removed") and node.volume(claim.path), 60, "its end")
        self.assertEqual((row["state"], row["sandbox_id"], row["evidence"]), ("unmanaged", None, None))
        self.explains(node, str(row["volume_id"]), "The claim is removed: no container has it any more.")
        containers.bundle = containers.run()
        node.wait_for(claim.path, "in_sync", "none", status="present")

    def assert_told(self, node, claim):
        """People learn what it is and that the rest is the pod's."""
        text = self.explains(node, claim.path, "It is a raw block claim", "the pod itself has to use new space",
                             "resize2fs", "crust-guest-agent as a sidecar", "crustd.dev/grow-file-system",
                             "A resize would reach the VM's disk: the hypervisor has the drive and can resize it.")
        for untrue in ("metadata director", "mountInfo.json", "fills", "sandbox-id file", "the guest is able to follow"):
            self.assertNotIn(untrue, text)
        self.assertRegex(node.crustctl("volume", claim.path).stdout, "kind +block_claim")
        self.assertIn("block_claim", node.crustctl("volumes", "-o", "wide").stdout)
        doctor = json.loads(node.crustctl("doctor", "-o", "json", check=False).stdout)
        self.assertEqual([one["level"] for one in doctor if one["id"] == "sandbox" and "raw block claims: 1" in one["what"]
                          and "its guest is asked nothing" in one["what"]], ["ok"])

    def test_metrics(self):
        node, claim, _ = self.claimed({"metrics.per_volume": "on"})
        labels = '{pv="pv",kind="block_claim",namespace="shop",persistentvolumeclaim="",pod="database-0"}'
        metrics = metrics_of(node)
        for name in ("size", "vm_size"):
            self.assertEqual(float(metrics[f"crustd_volume_{name}_bytes{labels}"]), BEFORE)
        self.assertNotIn(f"crustd_volume_used_bytes{labels}", metrics)
        self.assertEqual(metrics['crustd_volumes{layout="none",state="in_sync",reason="none"}'], "1")

    def test_other_devices_are_no_claims(self):
        """A privileged container has every device of the node: the disk of another pod, the kubelet's loop device."""
        node = self.node()
        claim, other = self.claim(node), self.claim(node, "other", secrets.token_hex(16))
        everything = [(major, minor) for major in (7, 8, 252, 253, 259) for minor in range(256)]
        containers = self.pod(node, claim, devices=everything)
        node.start()
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        node.wait_rest()
        self.assertEqual([row["target_path"] for row in node.query("SELECT target_path FROM audit_volumes")], [claim.path])
        self.assertIsNone(node.volume(other.path))
        # The kubelet no longer has it as this pod's: it is any device.
        claim.withdraw(node)
        containers.run()
        node.wait(lambda: node.volume(claim.path)["status"] == "removed", 60, "its end")

    def test_device_replaced(self):
        """Another device at the publish path: the VM goes on having the first one."""
        node, claim, containers = self.claimed()
        other = self.loop(AFTER)
        status = os.stat(other.device)
        os.unlink(node.path(claim.path))
        os.mknod(node.path(claim.path), 0o600 | 0o060000, status.st_rdev)
        row = node.wait_for(claim.path, "blocked", "identity_mismatch")
        self.assertIn(f"the driver has published {claim.path} ({other.device}), the runtime gave the VM block device "
                      f"{claim.number[0]}:{claim.number[1]}", row["evidence"])
        self.assertIn("a resize would not reach the VM's disk: identity_mismatch", node.log.read_text())
        containers.run()
        self.settle(node)
        node.wait_for(claim.path, "blocked", "identity_mismatch")
        self.assertEqual(containers.monitor.sent("block_resize"), [])

    def test_confidential(self):
        node, claim, containers = self.claimed(start=False, annotations=CONFIDENTIAL)
        node.start()
        row = node.wait_for(claim.path, "blocked", "policy", stalled=0)
        self.assertIn("io.katacontainers.volume.confidential", row["evidence"])
        claim.loop.resize(AFTER)
        node.wait_for(claim.path, "blocked", "policy", device_bytes=AFTER)
        self.settle(node)
        self.assertEqual(containers.monitor.sent("block_resize"), [])
        self.explains(node, claim.path, "io.katacontainers.volume.confidential")

    def test_device_that_a_vm_has_several_times(self):
        """Kata's Rust runtime adds a disk for each container and never removes one: all of them take the new size."""
        node, claim, containers = self.claimed(start=False)
        node.add_sandbox(SANDBOX, containers.vmm.pid, agent="unix:///agent.sock")  # it records no drives
        drives = containers.monitor.drives
        drives += [fake_monitor.Drive(f"drive-{number}", claim.loop.device) for number in range(2)]
        node.start()
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        claim.loop.resize(AFTER)
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual({drive.size for drive in drives}, {AFTER})
        self.assertEqual(len(containers.monitor.sent("block_resize")), 3)
        # One more, of a container that was made before the VM was told.
        drives.append(fake_monitor.Drive("drive-late", claim.loop.device, size=BEFORE))
        claim.loop.resize(2 * AFTER)
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=2 * AFTER)
        self.assertEqual({drive.size for drive in drives}, {2 * AFTER})

    def test_cloud_hypervisor(self):
        """Kata's agent mounts a volume at a path made of the disk's address, but not a claim."""
        node = self.node()
        agent, claim = self.agent(node), self.claim(node)
        vmm = cloud_hypervisor(self, node, SANDBOX, claim)
        record_sandbox(node, vmm, claim)
        containers = self.containers(node, annotations=pod_annotations(POD_UID) | GROWS)
        containers.more["linux"] = specification(claim.number)
        containers.run()
        node.start()
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        claim.loop.resize(AFTER)
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=AFTER, guest_bytes=AFTER)
        self.assertEqual(vmm.sent("PUT")[-1], {"id": claim.drive, "desired_size": AFTER})
        for request in agent.requests:
            self.assertRegex(request.path, "^pci:[0-9a-f]{2}$")

    def test_size_that_only_a_resize_shows(self):
        """Cloud Hypervisor lists no sizes, and no guest shows that of a device which crustd knew before its VM."""
        node, claim, containers = self.claimed()
        shutil.rmtree(containers.bundle)
        containers.vmm.stop()
        node.end_sandbox(SANDBOX)
        node.wait(lambda: node.volume(claim.path)["status"] == "removed", 60, "its end")
        sandbox = f"c{secrets.token_hex(31)}c"
        vmm = cloud_hypervisor(self, node, sandbox, claim)
        record_sandbox(node, vmm, claim)
        containers = self.containers(node, sandbox, annotations=pod_annotations(POD_UID))
        containers.more["linux"] = specification(claim.number)
        containers.run()
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        self.assertEqual(vmm.sent("PUT"), [{"id": claim.drive, "desired_size": BEFORE}])

    def test_configuration(self):
        for mode, state, changes in (("observe", "host_grown", 0), ("never", "unmanaged", 0)):
            with self.subTest(mode):
                node, claim, containers = self.claimed({"resize.block_claims": mode}, start=False,
                                                       sandbox_id=f"b{secrets.token_hex(31)}b")
                node.start()
                node.wait(lambda: node.volume(claim.path), 60, "the claim")
                claim.loop.resize(AFTER)
                node.wait_for(claim.path, state, "policy", device_bytes=AFTER)
                self.settle(node)
                self.assertEqual(len(containers.monitor.sent("block_resize")), changes)

    def test_two_pods_with_one_claim(self):
        """ReadWriteMany: each VM's disk grows. A volume of another kind on the same device is a conflict."""
        node, loop = self.node(), self.loop()
        pods = (POD_UID, "99999999-2222-3333-4444-555555555555")
        claims = [self.claim(node, "shared", pod, loop) for pod in pods]
        sandboxes = [f"{letter}{secrets.token_hex(31)}{letter}" for letter in "bc"]
        containers = [self.pod(node, claim, sandbox_id=sandbox) for claim, sandbox in zip(claims, sandboxes)]
        node.start()
        for claim in claims:
            node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        loop.resize(AFTER)
        for claim, sandbox in zip(claims, sandboxes):
            node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=AFTER, sandbox_id=sandbox)
        self.assertEqual([len(one.monitor.sent("block_resize")) for one in containers], [1, 1])
        self.claim(node, "another", pods[0], loop)
        containers[0].run()
        node.wait_for(claims[1].path, "blocked", "device_shared")

    def test_restarts(self):
        """What ended while crustd was down has ended; what grew meanwhile grows."""
        node, claim, containers = self.claimed()
        node.kill()
        claim.loop.resize(AFTER)
        node.start()
        node.wait_for(claim.path, "in_sync", "none", hypervisor_bytes=AFTER)
        first = node.volume(claim.path)["volume_id"]
        node.stop()
        shutil.rmtree(containers.bundle)
        node.start()
        node.wait(lambda: node.volume(claim.path)["status"] == "removed", 60, "its end")
        self.assertEqual(node.volume(claim.path)["volume_id"], first)
        node.stop()
        containers.run()
        containers.vmm.stop()
        node.end_sandbox(SANDBOX)
        node.start()
        node.wait_rest()
        self.assertEqual(node.volume(claim.path)["status"], "removed")


class ApiTest(ClaimCase, GrpcTest):
    """Of a driver that does call crustd: by the publish path that the kubelet gives it."""

    def test_expand_and_stats(self):
        node, claim, containers = self.claimed()
        runtime = Runtime(self, node)
        reply = runtime.stats(claim.path)
        self.assertEqual([(one.unit, one.total, one.used, one.available) for one in reply.usage], [(1, BEFORE, 0, 0)])
        self.assertEqual((reply.volume_condition.abnormal, reply.volume_condition.message),
                         (False, "the VM's disk has the size of the device"))
        claim.loop.resize(AFTER)
        self.assertEqual(runtime.expand(claim.path, AFTER), AFTER)
        self.assertEqual(len(containers.monitor.sent("block_resize")), 1)
        self.assertEqual(runtime.stats(claim.path).usage[0].total, AFTER)
        shutil.rmtree(containers.bundle)
        node.wait(lambda: node.volume(claim.path)["status"] == "removed", 60, "its end")
        with self.fails("NOT_FOUND"):
            runtime.stats(claim.path)
        # No VM has it, so the next one takes the size that it finds: the kubelet does not start a pod before this answer.
        self.assertEqual(runtime.expand(claim.path, AFTER), AFTER)
        with self.fails("UNAVAILABLE", "less than required_bytes"):
            runtime.expand(claim.path, 2 * AFTER)
        with self.fails("UNAVAILABLE"):
            runtime.expand(claim.path + "0", AFTER)


class GuestTest(ResizeCase):
    """A real QEMU, and a guest that has mounted a file system from the disk of a claim."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        wishes = {"wanted": GROWS, "unwanted": {}}
        cls.claims = {}
        for number, (name, annotations) in enumerate(wishes.items()):
            sandbox, pod = cls.add_sandbox(bus=("blk", "scsi")[number]), f"{number:08}-2222-3333-4444-555555555555"
            volume = sandbox.add_volume("ext4", path=f"{BLOCK}/publish/{name}/{pod}")
            sandbox.boot()
            sandbox.vm.wait_ready()
            sandbox.write_persist()
            claim = Claim(volume.path, volume.loop, volume.disk.node_name, pv=name, pod=pod)
            claim.publish(cls.node)
            containers = Containers(cls.node, sandbox.id, annotations=pod_annotations(pod) | annotations)
            cls.addClassCleanup(containers.close)
            containers.more["linux"] = specification(claim.number)
            containers.run()
            cls.claims[name] = volume
        cls.node.start()

    def grown(self, name):
        """(bytes before, bytes after) of the guest's file system around a growth of the device."""
        volume = self.claims[name]
        vm, before = volume.sandbox.vm, volume.loop.size
        self.node.wait_for(volume.path, "in_sync", "none", SECONDS, hypervisor_bytes=before)
        size = vm.guest_size(volume.disk.mount_point)
        volume.loop.resize(2 * before)
        self.node.wait_for(volume.path, "in_sync", "none", SECONDS, hypervisor_bytes=2 * before)
        # The guest's kernel takes the VMM's word a moment later.
        self.node.wait(lambda: vm.guest_blocksize(volume.disk) == 2 * before, SECONDS, "the guest's disk")
        return size, vm.guest_size(volume.disk.mount_point)

    def test_file_system_that_the_pod_wants_to_be_grown(self):
        before, after = self.grown("wanted")
        self.assertGreater(after, before * 3 // 2)
        self.assertEqual(self.node.volume(self.claims["wanted"].path)["guest_bytes"], after)

    def test_file_system_that_is_the_pods_affair(self):
        before, after = self.grown("unwanted")
        self.assertEqual(after, before)
        self.assertEqual(self.journal(self.claims["unwanted"], "kind LIKE 'grow_guest%'"), [])
