# SPDX-License-Identifier: Apache-2.0
"""What keeps a volume from being grown before anybody is asked: its kind, its policy, who else uses
its device, and what has become of the device. In none of these is a resize ever sent.
"""

import ctypes
import dataclasses
import fcntl
import os
import pathlib
import signal
import struct
import subprocess

from disks import LoopDevice
from programs import needs, run
from scratch_node import AFTER, BEFORE, SANDBOX, ScratchNodeTest, Volume, fake_monitor, publish_path
from shim import FakeShim

OTHER = "b" * 64
NO_SWEEP = {"resize.sweep_seconds": 3600}
UNSUITABLE = {
    "vfio": {"volume_type": "vfiovol"},
    "spdk": {"volume_type": "spdkvol"},
    "vhost-user over spdk": {"volume_type": "spoolvol"},
    "vfio by its short name": {"volume_type": "vfio"},
    "spdk by its short name": {"volume_type": "spdk"},
    "network": {"volume_type": "Network"},
}


class OwnLoop(LoopDevice):
    """A loop device of a number that losetup --find gives to nobody, so that it can be detached and
    attached again without being taken meanwhile."""

    ADD, REMOVE = 0x4C80, 0x4C81  # linux/loop.h

    def __init__(self, path, size):  # pylint: disable=super-init-not-called
        self.path = path
        self.number = self.control(self.ADD, 100_000 + os.getpid() % 100_000)
        self.device = f"/dev/loop{self.number}"
        if not os.path.exists(self.device):
            os.mknod(self.device, 0o060600, os.makedev(7, self.number))
        self.attach(path, size)

    @staticmethod
    def control(request, number):
        with open("/dev/loop-control", "rb") as control:
            return fcntl.ioctl(control, request, number)

    def attach(self, path, size):
        path.touch()
        os.truncate(path, size)
        run("losetup", self.device, path)

    def close(self):
        subprocess.run(["losetup", "--detach", self.device], capture_output=True)
        self.control(self.REMOVE, self.number)
        if os.path.exists(self.device):
            os.unlink(self.device)


class VolumeTest(ScratchNodeTest):

    def check_unsent(self, scene, *monitors):
        self.settle(scene.node)
        for monitor in (scene.monitor, *monitors):
            self.assertEqual(monitor.sent("block_resize"), [])

    def check_held(self, scene, state, reason):
        """The resize is on record with the volume's state, and no attempt is due."""
        row = scene.wait(state, reason, device_bytes=AFTER, next_attempt_at=None)
        resize = scene.row()
        self.assertEqual((resize["state"], resize["reason"], resize["finished_at"]), (state, reason, None))
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, AFTER))
        return row


@dataclasses.dataclass
class Policy:
    """The setting resize.mode, the volume's crust.resize, and what explains the state after the device has grown."""

    mode: str | None = None
    wish: str | None = None
    explained: tuple = ()
    state: str = "host_grown"


POLICIES = {
    "observe": Policy("observe", explained=("resize.mode = observe", "SIGHUP")),
    "never": Policy("never", explained=("resize.mode = never", "SIGHUP"), state="unmanaged"),
    "the volume says never": Policy(wish="never", explained=("crust.resize",), state="unmanaged"),
    "the volume says observe": Policy(wish="observe", explained=("crust.resize",)),
    "the volume says an unknown word": Policy(wish="grow!", explained=("crust.resize",)),
    "the volume says nothing": Policy(wish="", explained=("crust.resize",)),
    "the volume cannot ask for more": Policy("observe", "grow"),
}


class PolicyTest(VolumeTest):

    def test_policies(self):
        for name, policy in POLICIES.items():
            with self.subTest(name):
                self.check_policy(policy)

    def check_policy(self, policy):
        scene = self.scenery(policy.mode and {"resize.mode": policy.mode}, start=False,
                           metadata={} if policy.wish is None else {"crust.resize": policy.wish})
        node = scene.node
        node.start()
        if policy.state == "host_grown":
            scene.wait("in_sync")
            scene.resize(AFTER)
            self.check_held(scene, "host_grown", "policy")
        else:
            scene.wait("unmanaged", "policy")
            scene.resize(AFTER)
            scene.wait("unmanaged", "policy", device_bytes=AFTER)
            self.assertIsNone(scene.row())
        scene.explains(*policy.explained)
        self.check_unsent(scene)
        if policy.mode == "never":
            self.assertEqual(scene.monitor.connections, 0)
        if policy.mode:
            node.configure(resize__mode="grow")
            node.process.send_signal(signal.SIGHUP)
        else:
            node.stage(scene.path, scene.volume.loop.device)
        if policy.state == "host_grown":
            scene.grown(AFTER)
        else:
            scene.wait("in_sync", hypervisor_bytes=AFTER)
        node.close()

    def test_the_volume_asks_for_nothing_less(self):
        self.scenery(metadata={"crust.resize": "grow"}).grows(AFTER)


class KindTest(VolumeTest):

    def build_file(self, settings=None):
        node = self.node(settings)
        path = publish_path("pv-file")
        image = node.path("/images/disk.img")
        image.parent.mkdir()
        image.touch()
        os.truncate(image, BEFORE)
        node.stage(path, "/images/disk.img")
        vmm = node.start_vmm(SANDBOX)
        node.add_sandbox(SANDBOX, vmm.pid, agent="unix:///agent.sock", drives=[
            {"device": "/images/disk.img", "id": "drive-file", "address": "02/01",
             "file": str(image)}])
        node.record(path, SANDBOX)
        self.agent(node)
        monitor = self.monitor(node)
        monitor.drives = [fake_monitor.Drive("drive-file", str(image))]
        node.start()
        return node, path, image, monitor

    def test_regular_file(self):
        node, path, image, monitor = self.build_file()
        node.wait_for(path, "in_sync", device_bytes=BEFORE)
        os.truncate(image, AFTER)
        node.wait_for(path, "host_grown", "policy", device_bytes=AFTER, next_attempt_at=None)
        resize = self.resize_row(node, path)
        self.assertEqual((resize["state"], resize["reason"], resize["finished_at"]), ("host_grown", "policy", None))
        self.explains(node, path, "resize.file_backed", "regular file", "loop device")
        self.settle(node)
        self.assertEqual(monitor.sent("block_resize"), [])
        self.assertEqual(image.stat().st_size, AFTER)

    def shim(self, node):
        shim = FakeShim(node.root / "run/vc/sbs" / SANDBOX / "shim-monitor.sock", "go", {"/images/disk.img": "/mnt/x"})
        shim.root, shim.stats.total = str(node.root), BEFORE
        self.addCleanup(shim.stop)
        return shim.start()

    def test_guest_of_a_regular_file(self):
        """The guest is asked only where its VM has the file's size. What fails there needs attention, unlike what
        crustd only observes."""
        node, path, image, monitor = self.build_file()
        shim = self.shim(node)
        node.crustctl("resync")
        node.wait_for(path, "in_sync", "none", guest_bytes=BEFORE)
        asked = len(shim.calls)
        os.truncate(image, AFTER)
        node.wait_for(path, "host_grown", "policy", stalled=0)
        self.settle(node)
        self.assertEqual(len(shim.calls), asked)
        shim.status = (13, "no space for the group descriptors")
        monitor.drives[0].size = AFTER
        node.crustctl("resync")
        node.wait_for(path, "block_grown", "agent_failed", stalled=1, hypervisor_bytes=AFTER)
        shim.status = None
        node.crustctl("resync")
        node.wait_for(path, "in_sync", "none", guest_bytes=AFTER, stalled=0, resizable="no", resizable_reason="policy")
        self.assertIsNotNone(self.resize_row(node, path)["finished_at"])
        self.assertEqual(monitor.sent("block_resize"), [])
        self.assertEqual(image.stat().st_size, AFTER)

    def test_regular_file_of_an_observed_volume(self):
        node, path, image, _ = self.build_file({"resize.mode": "observe"})
        shim = self.shim(node)
        node.crustctl("resync")
        node.wait_for(path, "in_sync", "unverified", device_bytes=BEFORE, hypervisor_bytes=BEFORE)
        os.truncate(image, AFTER)
        node.wait_for(path, "host_grown", "policy", device_bytes=AFTER)
        self.settle(node)
        self.assertEqual(shim.calls, [])

    def test_regular_file_never(self):
        node, path, image, monitor = self.build_file({"resize.file_backed": "never"})
        node.wait_for(path, "unmanaged", "policy")
        self.explains(node, path, "resize.file_backed = never")
        os.truncate(image, AFTER)
        self.settle(node)
        self.assertEqual(monitor.connections, 0)

    def test_devices_that_are_not_block_devices(self):
        node = self.node()
        loops = [self.volume(node, f"pv-{number}", **stage) for number, stage in enumerate(UNSUITABLE.values())]
        self.sandbox(node, *loops)
        empty_dir = ("/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~empty-dir/cache")
        node.path("/emptydir.img").touch()
        node.stage(empty_dir, "/emptydir.img", volume_type="blk")
        node.stage(publish_path("blk"), "/nothing/disk.img", volume_type="blk")
        others = {"character device": "/dev/null", "directory": "/etc", "FIFO": "/fifo"}
        os.mknod(node.path("/dev/null"), 0o020600, os.makedev(1, 3))
        os.mkfifo(node.path("/fifo"))
        for name, device in others.items():
            node.stage(publish_path(name), device)
        node.start()
        for path in (*(volume.path for volume in loops), empty_dir, *map(publish_path, ("blk", *others))):
            with self.subTest(path):
                node.wait_for(path, "unmanaged", "not_a_block_device", next_attempt_at=None)
        for volume in loops:
            volume.loop.resize(AFTER)
        self.settle(node)
        self.assertEqual(node.query("SELECT * FROM audit_resizes"), [])
        self.assertEqual(self.acts(node, "query_hypervisor"), 0)
        self.explains(node, loops[0].path, "vfio", "Nothing is wrong")

    def test_the_first_volume_of_an_empty_node(self):
        """Its device is examined before anything is reported of it. On several nodes, because
        reading the directory a second time would hide that it was not."""
        loop = self.loop()
        for _ in range(8):
            node = self.node(NO_SWEEP)
            node.add_device(loop.device)
            node.start()
            node.stage(publish_path("first"), loop.device)
            row = node.wait_for(publish_path("first"), "unbound")
            self.assertEqual(row["device_bytes"], BEFORE)
            node.close()


class HostTest(VolumeTest):

    def seen_by_init(self, where):
        if str(where).replace(" ", r"\040") not in pathlib.Path("/proc/1/mountinfo").read_text():
            self.skipTest("needs the mount namespace of process 1")

    def mount(self, device, name):
        where = self.scratch / name
        where.mkdir()
        run("mkfs.ext4", "-q", "-F", device)
        done = subprocess.run(["mount", device, where], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"needs to mount a loop device: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", where], capture_output=True)
        self.seen_by_init(where)
        return where

    def test_mounted(self):
        scene = self.scenery(NO_SWEEP)
        where = self.mount(scene.volume.loop.device, "mounted here")
        scene.wait("blocked", "host_in_use")
        scene.resize(AFTER)
        self.check_held(scene, "blocked", "host_in_use")
        scene.explains("findmnt", "unmount it on the host")
        self.check_unsent(scene)
        run("umount", where)
        scene.grown(AFTER)

    def test_mounted_at_start(self):
        """The disk, and a partition of the disk: one primary of Linux, 16 MiB from 1 MiB on."""
        for partition in "", "p1":
            with self.subTest(partition):
                scene = self.scenery(start=False)
                device = scene.volume.loop.device
                if partition:
                    self.add_partition(device)
                where = self.mount(device + partition, f"mounted{partition}")
                scene.node.start()
                scene.wait("blocked", "host_in_use")
                self.check_unsent(scene)
                run("umount", where)
                scene.wait("in_sync")
                scene.node.close()

    def add_partition(self, device):
        with open(device, "r+b") as disk:
            disk.seek(446)
            disk.write(struct.pack("<4xB3xII", 0x83, 2048, 32768) + bytes(48) + b"\x55\xaa")
        needs("partx")
        run("partx", "--add", device)
        self.addCleanup(subprocess.run, ["partx", "--delete", device], capture_output=True)
        if not os.path.exists(f"{device}p1"):
            self.skipTest("needs a /dev that shows partitions of loop devices")

    def claim_by_fuse(self, device, owner):
        """A FUSE mount that this owner says is of the device. Nobody serves it, and nobody asks."""
        where = self.scratch / f"fuse{owner}"
        where.mkdir()
        try:
            fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            self.skipTest(f"needs FUSE: {error}")
        self.addCleanup(os.close, fuse)
        options = f"fd={fuse},rootmode=40000,user_id={owner},group_id=0"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(device.encode(), bytes(where), b"fuse", 0, options.encode()) < 0:
            self.skipTest(f"needs FUSE: {os.strerror(ctypes.get_errno())}")
        self.addCleanup(libc.umount2, bytes(where), 2)
        self.seen_by_init(where)

    def test_claimed_by_fuse(self):
        """Anybody who may mount FUSE chooses the name of the source."""
        scene = self.scenery(NO_SWEEP)
        self.claim_by_fuse(scene.volume.loop.device, 1000)
        scene.grows(AFTER)
        self.claim_by_fuse(scene.volume.loop.device, 0)
        scene.wait("blocked", "host_in_use")

    def test_swap(self):
        scene = self.scenery({"resize.sweep_seconds": 1}, start=False)
        device = scene.volume.loop.device
        run("mkswap", device)
        scene.node.start()
        scene.wait("in_sync")
        done = subprocess.run(["swapon", device], capture_output=True, text=True)
        self.addCleanup(subprocess.run, ["swapoff", device], capture_output=True)
        if done.returncode != 0:
            self.skipTest(f"needs to swap to a loop device: {done.stderr.strip()}")
        scene.wait("blocked", "host_in_use")
        scene.explains("swapon --show")
        run("swapoff", device)
        scene.wait("in_sync")


class SandboxTest(VolumeTest):

    def test_dead_beside_live(self):
        """One has ended, of others nothing but the name is left, and the pid file of one more names a process that
        lives and is no VMM of its sandbox."""
        scene = self.scenery(start=False)
        node = scene.node
        for number in range(3):
            node.record(scene.path, f"{number}" * 64)
        for sandbox_id, pid in (("d" * 64, node.start_vmm("d" * 64).pid), ("e" * 64, os.getpid())):
            node.add_sandbox(sandbox_id, pid, drives=[scene.volume.record()])
            node.record(scene.path, sandbox_id)
        node.vmms[-1].stop()
        node.start()
        scene.wait("in_sync", sandbox_id=SANDBOX)
        scene.grows(AFTER, sandbox_id=SANDBOX)

    def test_two_live(self):
        """Both from the start, and one that comes while the first has it."""
        for late in False, True:
            with self.subTest(late=late):
                scene = self.scenery(start=late)
                node = scene.node
                second = self.monitor(node, scene.volume, sandbox_id=OTHER)
                vmm = self.sandbox(node, scene.volume, sandbox_id=OTHER)
                if not late:
                    node.start()
                row = scene.wait("blocked", "multiple_sandboxes", next_attempt_at=None)
                if not late:
                    self.assertIsNone(row["sandbox_id"])
                scene.resize(AFTER)
                scene.wait("blocked", "multiple_sandboxes", device_bytes=AFTER)
                scene.explains("More than one live sandbox", "crustctl sandboxes", "ReadWriteOncePod")
                self.check_unsent(scene, second)
                vmm.stop()
                scene.wait("in_sync", sandbox_id=SANDBOX, hypervisor_bytes=AFTER)
                self.assertEqual(second.sent("block_resize"), [])
                node.close()

    def test_one_device_in_two_volumes(self):
        scene = self.scenery(start=False)
        node, path = scene.node, publish_path("pv-twin")
        node.stage(path, scene.volume.loop.device)
        second = self.monitor(node, scene.volume, sandbox_id=OTHER)
        vmm = self.sandbox(node, sandbox_id=OTHER, drives=[scene.volume.record()])
        node.record(path, OTHER)
        node.start()
        for one in (scene.path, path):
            node.wait_for(one, "blocked", "device_shared")
        scene.resize(AFTER)
        for one in (scene.path, path):
            node.wait_for(one, "blocked", "device_shared", device_bytes=AFTER, next_attempt_at=None)
            self.explains(node, one, "two live sandboxes", "crustctl mappings")
        self.check_unsent(scene, second)
        vmm.stop()
        node.wait_for(path, "unbound")
        scene.grown(AFTER)
        self.assertEqual(second.sent("block_resize"), [])

    def test_none(self):
        node, volume = self.node_with_volume()
        node.start()
        node.wait_for(volume.path, "unbound", "none")
        volume.loop.resize(AFTER)
        node.crustctl("resync")
        node.wait_for(volume.path, "unbound", "none", device_bytes=AFTER)
        self.assertIsNone(self.resize_row(node, volume.path))
        self.explains(node, volume.path, "No live sandbox is known to use the volume")

    def test_ends_in_the_middle_of_a_resize(self):
        scene = self.scenery()
        scene.monitor.silent = True
        scene.resize(AFTER)
        scene.node.wait(scene.row, 60, "the resize")
        scene.vmm.stop()
        scene.wait("unbound", "none", sandbox_id=None)
        scene.explains("unbound")


class DeviceTest(VolumeTest):

    def test_shrunk(self):
        scene = self.scenery()
        scene.resize(BEFORE // 2)
        scene.wait("shrunk", "none", device_bytes=BEFORE // 2, next_attempt_at=None)
        self.assertIsNone(scene.row())
        scene.explains("smaller than it once was", "former size again")
        self.check_unsent(scene)
        scene.resize(BEFORE)
        scene.wait("in_sync", device_bytes=BEFORE)
        self.assertEqual(scene.sent(), 0)
        scene.grows(AFTER)

    def test_shrunk_while_crustd_was_down(self):
        scene = self.scenery()
        scene.node.stop()
        scene.resize(BEFORE // 2)
        scene.node.start()
        scene.wait("shrunk", "none")
        self.check_unsent(scene)

    def test_grown_and_shrunk_again_before_the_vmm_was_resized(self):
        scene = self.scenery()
        scene.monitor.refuse = "Device '(null)' is in use"
        scene.resize(2 * AFTER)
        scene.wait("blocked", "hypervisor_busy")
        scene.resize(AFTER)
        scene.wait("shrunk", "none", device_bytes=AFTER)
        self.assertEqual(scene.row()["state"], "shrunk")

    def test_missing_and_then_there(self):
        scene = self.scenery(NO_SWEEP, start=False)
        scene.node.path(scene.volume.loop.device).unlink()
        scene.node.start()
        scene.wait("blocked", "no_device", device_bytes=None, next_attempt_at=None)
        scene.explains("leads to nothing on this node", "ls -lL", "--root")
        scene.node.add_device(scene.volume.loop.device)
        scene.resize(AFTER)
        scene.wait("in_sync", device_bytes=AFTER)

    def test_vanishes_under_a_live_sandbox(self):
        scene = self.scenery({"resize.sweep_seconds": 1})
        scene.node.path(scene.volume.loop.device).unlink()
        scene.wait("blocked", "no_device", sandbox_id=SANDBOX)
        scene.node.add_device(scene.volume.loop.device)
        scene.wait("in_sync")

    def test_another_disk_under_the_same_number(self):
        node = self.node({"resize.sweep_seconds": 1})
        try:
            loop = OwnLoop(self.scratch / "own", BEFORE)
        except OSError as error:
            self.skipTest(f"needs a loop device of its own number: {error}")
        self.addCleanup(loop.close)
        volume = Volume(publish_path("pv-replaced"), loop, "drive-replaced")
        node.add_device(loop.device)
        node.stage(volume.path, loop.device)
        _, monitor, _ = self.equip(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync")
        run("losetup", "--detach", loop.device)
        loop.attach(self.scratch / "another", 2 * AFTER)
        node.wait_for(volume.path, "blocked", "identity_mismatch", device_bytes=2 * AFTER)
        self.assertIsNone(self.resize_row(node, volume.path))
        self.explains(node, volume.path, "another device open", "Restart the pod")
        self.settle(node)
        self.assertEqual(monitor.sent("block_resize"), [])
