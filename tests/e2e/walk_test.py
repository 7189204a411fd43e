# SPDX-License-Identifier: Apache-2.0
"""The whole life of a pod's volumes with a real guest, in the order in which the seed documents tell
it: staged, used by a sandbox, asked for its stats, grown by the host, expanded, unstaged.

Story 1 of KEP-2857: a pod of two volumes, with an fsGroup, a policy for it, and parts of the volumes
(subPath) in its containers. A kubelet and a CSI driver are played by the test, each time in another
dialect of crustd's; results and record are the same in all of them. So is the runtime, whose part it
is to find the metadata: as the KEP wants it, along the path that is mounted, and as Kata does, under
that path and no other.
"""

import json
import shutil

from containers import Containers
from grpc_client import Clients, Runtime
from resize_case import SECONDS, ResizeCase
from node import encode
from scratch_node import curl

GROUP, POLICY = "100", "OnRootMismatch"
METADATA = {"fsGroup": GROUP, "fsGroupChangePolicy": POLICY}
FLAGS = ["noatime"]
BYTES, INODES = 1, 2

# What the journal tells of a volume, whoever asked for it.
LIFE = ["volume_added", "unbound/none", "mapping_opened", "query_hypervisor_intended",
        "hypervisor_answered", "grow_guest_intended", "guest_answered", "in_sync/none",
        "resize_opened", "host_grown/none", "resize_hypervisor_intended", "block_grown/none",
        "resize_finished", "mapping_closed", "volume_removed", "unmanaged/none"]


class WalkTest(Clients, ResizeCase):
    """The walk; a test of a class below gives it a way to ask."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.node.start()

    def containers(self, sandbox):
        containers = Containers(self.node, sandbox.id)
        self.addCleanup(containers.close)
        return containers

    def walk(self, dialect, part=""):
        """part: what a container mounts of each volume, "" all of it."""
        sandbox = self.add_sandbox()
        volumes = [sandbox.add_volume("ext4") for _ in range(2)]
        self.publish(dialect, volumes)
        containers = self.containers(sandbox)
        sandbox.boot()
        containers.run(*((f"{volume.path}{part}", f"/data/{number}")
                         for number, volume in enumerate(volumes)))
        sandbox.take()
        for volume in volumes:
            self.node.wait_for(volume.path, "in_sync", "none", SECONDS, sandbox_id=sandbox.id)
            self.wait(lambda v=volume: any(row["guest_path"] for row in self.mappings(v)),
                      f"where the guest has {volume.path}")
            self.check_stats(dialect, volume)
        resizes = [self.grow_on_the_host(dialect, volume) for volume in volumes]
        for resize in resizes:
            self.finish(resize)
            self.check_stats(dialect, resize.volume)
        sandbox.vm.power_off()
        self.node.end_sandbox(sandbox.id)
        self.unpublish(dialect, volumes)

    def publish(self, dialect, volumes):
        for volume in volumes:
            for _ in range(2):  # the kubelet may ask again
                dialect.stage(volume)
            staged = json.loads((self.node.directory(volume.path) / "mountInfo.json").read_text())
            self.assertEqual(
                {key: staged[key] for key in ("device", "fstype", "metadata", "options")},
                {"device": volume.device, "fstype": "ext4", "metadata": METADATA,
                 "options": FLAGS})
            row = self.node.wait_for(volume.path, "unbound", "none", SECONDS)
            self.assertEqual((json.loads(row["metadata"]), json.loads(row["options"])),
                             (METADATA, FLAGS))

    def check_stats(self, dialect, volume):
        """The answer is what the guest's kernel says at that moment."""
        vm, path = volume.sandbox.vm, volume.disk.mount_point
        usage = dialect.stats(volume)
        total, used, available = usage[BYTES]
        self.assertEqual(total, vm.guest_size(path))
        self.assertEqual(used, total - vm.guest_free(path))
        self.assertLessEqual(available, total - used)  # what is kept for root is nobody's
        self.assertGreater(available, 0)
        inodes, used, free = usage[INODES]
        self.assertEqual((used + free, used > 0), (inodes, True))

    def grow_on_the_host(self, dialect, volume):
        """The driver's host part, then its call, by whose answer the guest has it."""
        resize = self.begin(volume, settled=None)
        self.assertEqual(dialect.expand(volume, resize.to_bytes), resize.to_bytes)
        self.check_guest(resize)
        row = self.node.volume(volume.path)
        self.assertEqual((row["state"], row["hypervisor_bytes"]), ("in_sync", resize.to_bytes))
        self.assertEqual(dialect.expand(volume, resize.to_bytes), resize.to_bytes)
        return resize

    def unpublish(self, dialect, volumes):
        for volume in volumes:
            for _ in range(2):
                dialect.unstage(volume)
            self.assertFalse(self.node.directory(volume.path).exists())
            self.wait(lambda path=volume.path: self.node.volume(path)["status"] == "removed",
                      f"{volume.path} to be removed")
            self.check_record(volume)

    def check_record(self, volume):
        """The journal of its whole life: each step where it comes first, held-up tries left out."""
        steps = []
        for line in self.journal(volume):
            detail = json.loads(line["detail"] or "{}")
            step = detail["to"] if line["kind"] == "state_changed" else line["kind"]
            if step in LIFE and step not in steps:
                steps.append(step)
        self.assertEqual(steps, LIFE)
        row = self.node.volume(volume.path)
        self.assertEqual((row["state"], row["sandbox_id"]), ("unmanaged", None))
        self.assertEqual(len(self.resizes(volume)), 1)


def usage_of(answer):
    """unit: (total, used, available), of stats in JSON."""
    return {one["unit"]: (one["total"], one["used"], one["available"]) for one in answer["usage"]}


class Driver(Runtime):
    """NodePublishVolume stages, NodeExpandVolume expands after its host part, NodeUnpublishVolume unstages."""

    def stage(self, volume):
        super().stage(volume.path, volume.device, volume.filesystem, mount_flags=FLAGS, volume_supplemental_group=GROUP,
                      policy="ON_ROOT_MISMATCH")

    def stats(self, volume):
        return {one.unit: (one.total, one.used, one.available) for one in super().stats(volume.path, seconds=SECONDS).usage}

    def expand(self, volume, size):
        return super().expand(volume.path, size, seconds=SECONDS)

    def unstage(self, volume):
        super().unstage(volume.path)


class Tool:
    """crustctl direct-volume, as the walk-through has kata-runtime's."""

    def __init__(self, node):
        self.node = node

    def call(self, command, volume, *arguments):
        return self.node.crustctl("direct-volume", command, "--volume-path", volume.path,
                                  *arguments).stdout

    def stage(self, volume):
        self.call("add", volume, "--mount-info", json.dumps(
            {"volume-type": "block", "device": volume.device, "fstype": volume.filesystem,
             "metadata": METADATA, "options": FLAGS}))

    def stats(self, volume):
        return usage_of(json.loads(self.call("stats", volume)))

    def expand(self, volume, size):
        """It prints nothing: the size is on record."""
        self.call("resize", volume, "--size", str(size))
        return self.node.volume(volume.path)["hypervisor_bytes"]

    def unstage(self, volume):
        self.call("remove", volume)


class Shim:
    """What Kata's shim is asked for over HTTP, on crustd's socket. The driver writes the files."""

    def __init__(self, node):
        self.node = node

    def ask(self, method, path, body=None):
        data = ["--data-binary", json.dumps(body)] if body else []
        code, answer = curl(self.node, path, "-X", method, *data)
        if code != 200:
            raise AssertionError(f"{method} {path}: {code}, {answer}")
        return json.loads(answer)

    def stage(self, volume):
        self.node.stage(volume.path, volume.device, fstype=volume.filesystem, options=FLAGS,
                        metadata=METADATA)

    def stats(self, volume):
        return usage_of(self.ask("GET", f"/direct-volume/stats/{encode(volume.path)}"))

    def expand(self, volume, size):
        return self.ask("POST", "/direct-volume/resize",
                        {"volumePath": volume.path, "Size": str(size)})["capacity_bytes"]

    def unstage(self, volume):
        self.node.unstage(volume.path)


class Walks(WalkTest):

    def runtime(self):
        return Driver(self, self.node)

    def test_crust_ops(self):
        self.walk(self.runtime())

    def test_kata_runtime(self):
        self.walk(Tool(self.node))

    def test_shim(self):
        self.walk(Shim(self.node))

    def test_expand_before_the_sandbox(self):
        """The kubelet's order for claims that were grown while no pod ran: stage, expand, then the
        sandbox. Nobody has ever seen these devices smaller; only their file systems are."""
        sandbox = self.add_sandbox()
        volumes = [sandbox.add_volume("ext4") for _ in range(3)]
        dialects = [self.runtime(), Tool(self.node), Shim(self.node)]
        for volume, dialect in zip(volumes, dialects):
            volume.loop.resize(2 * volume.loop.size)
            self.publish(dialect, [volume])
            dialect.expand(volume, volume.loop.size)
            row = self.resizes(volume)[0]
            self.assertEqual((row["state"], row["sandbox_id"], row["to_bytes"], row["finished_at"]),
                             ("unbound", None, volume.loop.size, None))
        containers = self.containers(sandbox)
        sandbox.boot()
        containers.run(*((volume.path, f"/data/{number}") for number, volume in enumerate(volumes)))
        sandbox.take()
        for volume in volumes:
            self.node.wait_for(volume.path, "in_sync", "none", SECONDS, sandbox_id=sandbox.id)
            row = self.resizes(volume)[0]
            self.assertEqual((row["state"], row["sandbox_id"], row["finished_at"] is None),
                             ("in_sync", sandbox.id, False))
            self.assertGreater(sandbox.vm.guest_size(volume.disk.mount_point),
                               volume.loop.size * 3 // 4)
        sandbox.vm.power_off()
        self.node.end_sandbox(sandbox.id)

    def test_parts_as_the_kep_has_them(self):
        """The kubelet mounts the volume's path with the subPath after it; the runtime has looked
        for metadata above it, and given the VM the device."""
        self.walk(self.runtime(), part="/var/lib/data")

    def test_parts_as_kata_has_them(self):
        """Kata finds no metadata under the longer path, and shares the node's directory instead:
        the volume is in no VM. Nobody is told otherwise, and who has a whole volume is served."""
        sandbox = self.add_sandbox()
        whole, missed = sandbox.add_volume("ext4"), sandbox.make_volume("ext4")
        dialects = [self.runtime(), Tool(self.node), Shim(self.node)]
        self.publish(dialects[0], [whole, missed])
        containers = self.containers(sandbox)
        sandbox.boot()
        part = f"{missed.path}/var/lib/data"
        bundle = containers.run((whole.path, "/whole"), (part, "/part"))
        sandbox.take()
        self.node.wait_for(whole.path, "in_sync", "none", SECONDS, sandbox_id=sandbox.id)
        missed.loop.resize(missed.loop.size * 2)
        row = self.node.wait_for(missed.path, "blocked", "bypassed", SECONDS,
                                 device_bytes=missed.loop.size)
        self.assertIn(part, row["evidence"])
        for dialect in dialects:
            with self.subTest(type(dialect).__name__):
                self.assertEqual(dialect.stats(missed), {})  # nobody can count it
                with self.assertRaisesRegex(Exception, "bypassed"):
                    dialect.expand(missed, missed.loop.size)
        explained = " ".join(self.node.crustctl("explain", missed.path).stdout.split())
        self.assertIn(part, explained)
        self.assertIn("create the pod again", explained)
        self.assertEqual((self.mappings(missed), self.resizes(missed)), ([], []))
        self.finish(self.grow_on_the_host(dialects[0], whole))
        shutil.rmtree(bundle)
        self.node.wait_for(missed.path, "unbound", "none", SECONDS)
        sandbox.vm.power_off()
        self.node.end_sandbox(sandbox.id)
        self.unpublish(dialects[0], [whole])
        dialects[0].unstage(missed)
