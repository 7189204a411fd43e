# SPDX-License-Identifier: Apache-2.0
"""What keeps a volume from being grown before anybody is asked: its kind, its policy, who else uses
its device, and what has become of the device. In none of these is a resize ever sent.
"""

import ctypes
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess
import unittest

from disks import LoopDevice
from programs import run
from scratch_node import AFTER, BEFORE, SANDBOX, ScratchNodeTest, Volume, fake_monitor, publish_path

OTHER = "b" * 64
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

    def build(self, settings=None, **stage):
        node = self.node(settings)
        volume = self.volume(node, **stage)
        self.agent(node).stats.total = BEFORE
        monitor = self.monitor(node, volume)
        self.sandbox(node, volume)
        return node, volume, monitor

    def check_unsent(self, node, *monitors):
        self.settle(node)
        for monitor in monitors:
            self.assertEqual(monitor.sent("block_resize"), [])

    def check_open(self, node, volume, state, reason):
        """The resize is on the record, with the volume's state, and nothing is due."""
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["state"], resize["reason"], resize["finished_at"]),
                         (state, reason, None))
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, AFTER))
        self.assertIsNone(node.volume(volume.path)["next_attempt_at"])

    def check_grown(self, node, volume, **columns):
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER,
                      next_attempt_at=None, **columns)
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["state"], resize["reason"]), ("in_sync", "none"))
        self.assertIsNotNone(resize["finished_at"])


class PolicyTest(VolumeTest):

    def test_observe(self):
        node, volume, monitor = self.build({"resize.mode": "observe"})
        node.start()
        node.wait_for(volume.path, "in_sync")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "host_grown", "policy")
        self.check_open(node, volume, "host_grown", "policy")
        self.explains(node, volume.path, "resize.mode = observe", "SIGHUP")
        self.check_unsent(node, monitor)
        node.configure(resize__mode="grow")
        node.process.send_signal(1)
        self.check_grown(node, volume)

    def test_never(self):
        node, volume, monitor = self.build({"resize.mode": "never"})
        node.start()
        node.wait_for(volume.path, "unmanaged", "policy")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "unmanaged", "policy", device_bytes=AFTER)
        self.assertIsNone(self.resize_row(node, volume.path))
        self.explains(node, volume.path, "resize.mode = never", "SIGHUP")
        self.check_unsent(node, monitor)
        self.assertEqual(monitor.connections, 0)
        node.configure(resize__mode="grow")
        node.process.send_signal(1)
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=AFTER)

    def test_volume_policy_never(self):
        node, volume, monitor = self.build(metadata={"crust.resize": "never"})
        node.start()
        node.wait_for(volume.path, "unmanaged", "policy")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "unmanaged", "policy", device_bytes=AFTER)
        self.explains(node, volume.path, "crust.resize")
        self.check_unsent(node, monitor)
        node.stage(volume.path, volume.loop.device)
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=AFTER)

    def test_volume_policy_observe_or_unknown(self):
        for wish in ("observe", "grow!", ""):
            with self.subTest(wish):
                node, volume, monitor = self.build(metadata={"crust.resize": wish})
                node.start()
                node.wait_for(volume.path, "in_sync")
                volume.loop.resize(AFTER)
                node.wait_for(volume.path, "host_grown", "policy")
                self.check_open(node, volume, "host_grown", "policy")
                self.explains(node, volume.path, "crust.resize")
                self.check_unsent(node, monitor)
                node.stage(volume.path, volume.loop.device)
                self.check_grown(node, volume)
                node.close()

    def test_the_volume_asks_for_nothing_less(self):
        node, volume, _ = self.build(metadata={"crust.resize": "grow"})
        node.start()
        node.wait_for(volume.path, "in_sync")
        volume.loop.resize(AFTER)
        self.check_grown(node, volume)

    def test_the_volume_can_not_ask_for_more(self):
        node, volume, monitor = self.build({"resize.mode": "observe"},
                                           metadata={"crust.resize": "grow"})
        node.start()
        node.wait_for(volume.path, "in_sync")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "host_grown", "policy")
        self.check_unsent(node, monitor)


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
        monitor.drives = [self.drive_of(image)]
        return node, path, image, monitor

    def drive_of(self, image):

        return fake_monitor.Drive("drive-file", str(image))

    def test_regular_file(self):
        node, path, image, monitor = self.build_file()
        node.start()
        node.wait_for(path, "in_sync", device_bytes=BEFORE)
        os.truncate(image, AFTER)
        row = node.wait_for(path, "host_grown", "policy", device_bytes=AFTER)
        self.assertIsNone(row["next_attempt_at"])
        resize = self.resize_row(node, path)
        self.assertEqual((resize["state"], resize["reason"], resize["finished_at"]),
                         ("host_grown", "policy", None))
        self.explains(node, path, "resize.file_backed", "regular file", "loop device")
        self.check_unsent(node, monitor)
        self.assertEqual(image.stat().st_size, AFTER)

    def test_regular_file_never(self):
        node, path, image, monitor = self.build_file({"resize.file_backed": "never"})
        node.start()
        node.wait_for(path, "unmanaged", "policy")
        self.explains(node, path, "resize.file_backed = never")
        os.truncate(image, AFTER)
        self.check_unsent(node, monitor)
        self.assertEqual(monitor.connections, 0)

    def test_devices_that_are_not_block_devices(self):
        node = self.node()
        loops = {name: self.volume(node, f"pv-{number}", **stage)
                 for number, (name, stage) in enumerate(UNSUITABLE.items())}
        self.sandbox(node, *loops.values())
        empty_dir = ("/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/"
                     "kubernetes.io~empty-dir/cache")
        image = node.path("/emptydir.img")
        image.touch()
        node.stage(empty_dir, "/emptydir.img", volume_type="blk")
        node.stage(publish_path("blk"), "/nothing/disk.img", volume_type="blk")
        others = {"character device": "/dev/null", "directory": "/etc", "FIFO": "/fifo"}
        os.mknod(node.path("/dev/null"), 0o020600, os.makedev(1, 3))
        os.mkfifo(node.path("/fifo"))
        for name, device in others.items():
            node.stage(publish_path(name), device)
        paths = [volume.path for volume in loops.values()] + [empty_dir] + \
            [publish_path("blk")] + [publish_path(name) for name in others]
        node.start()
        for path in paths:
            with self.subTest(path):
                row = node.wait_for(path, "unmanaged", "not_a_block_device")
                self.assertIsNone(row["next_attempt_at"])
        for volume in loops.values():
            volume.loop.resize(AFTER)
        self.settle(node)
        self.assertEqual(node.query("SELECT * FROM audit_resizes"), [])
        self.assertEqual(self.acts(node, "query_hypervisor"), 0)
        self.explains(node, paths[0], "vfio", "Nothing is wrong")


    def test_the_first_volume_of_an_empty_node(self):
        """Its device is examined before anything is reported of it. On several nodes, because
        reading the directory a second time would hide that it was not."""
        loop = self.loop()
        for _ in range(8):
            node = self.node({"resize.sweep_seconds": 3600})
            node.add_device(loop.device)
            node.start()
            node.stage(publish_path("first"), loop.device)
            row = node.wait_for(publish_path("first"), "unbound")
            self.assertEqual(row["device_bytes"], BEFORE)
            node.close()


class HostTest(VolumeTest):

    def mount(self, device, where):
        where.mkdir()
        done = subprocess.run(["mount", device, where], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"needs to mount a loop device: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", where], capture_output=True)
        if str(where).replace(" ", r"\040") not in pathlib.Path("/proc/1/mountinfo").read_text():
            self.skipTest("needs the mount namespace of process 1")

    def test_mounted(self):
        node, volume, monitor = self.build({"resize.sweep_seconds": 3600})
        run("mkfs.ext4", "-q", "-F", volume.loop.device)
        node.start()
        node.wait_for(volume.path, "in_sync")
        where = self.scratch / "mounted here"
        self.mount(volume.loop.device, where)
        node.wait_for(volume.path, "blocked", "host_in_use")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked", "host_in_use", device_bytes=AFTER)
        self.check_open(node, volume, "blocked", "host_in_use")
        self.explains(node, volume.path, "findmnt", "unmount it on the host")
        self.check_unsent(node, monitor)
        run("umount", where)
        self.check_grown(node, volume)

    def test_mounted_at_start(self):
        node, volume, monitor = self.build()
        run("mkfs.ext4", "-q", "-F", volume.loop.device)
        where = self.scratch / "mounted"
        self.mount(volume.loop.device, where)
        node.start()
        node.wait_for(volume.path, "blocked", "host_in_use")
        self.check_unsent(node, monitor)
        run("umount", where)
        node.wait_for(volume.path, "in_sync")


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
        if str(where) not in pathlib.Path("/proc/1/mountinfo").read_text():
            self.skipTest("needs the mount namespace of process 1")

    def test_claimed_by_fuse(self):
        """Anybody who may mount FUSE chooses the name of the source."""
        node, volume, _ = self.build({"resize.sweep_seconds": 3600})
        node.start()
        node.wait_for(volume.path, "in_sync")
        self.claim_by_fuse(volume.loop.device, 1000)
        volume.loop.resize(AFTER)
        self.check_grown(node, volume)
        self.claim_by_fuse(volume.loop.device, 0)
        node.wait_for(volume.path, "blocked", "host_in_use")

    def test_partition_mounted(self):
        """A partition of the VM's disk is mounted."""
        node, volume, monitor = self.build()
        loop = volume.loop.device
        with open(loop, "r+b") as disk:  # one primary partition of Linux, 16 MiB from 1 MiB on
            disk.seek(446)
            disk.write(struct.pack("<4xB3xII", 0x83, 2048, 32768) + bytes(48) + b"\x55\xaa")
        if not shutil.which("partx"):
            self.skipTest("needs the program partx")
        run("partx", "--add", loop)
        self.addCleanup(subprocess.run, ["partx", "--delete", loop], capture_output=True)
        partition = f"{loop}p1"
        if not os.path.exists(partition):
            self.skipTest("needs a /dev that shows partitions of loop devices")
        run("mkfs.ext4", "-q", "-F", partition)
        where = self.scratch / "partition"
        self.mount(partition, where)
        node.start()
        node.wait_for(volume.path, "blocked", "host_in_use")
        self.check_unsent(node, monitor)
        run("umount", where)
        node.wait_for(volume.path, "in_sync")

    def test_swap(self):
        node, volume, monitor = self.build({"resize.sweep_seconds": 1})
        run("mkswap", volume.loop.device)
        node.start()
        node.wait_for(volume.path, "in_sync")
        done = subprocess.run(["swapon", volume.loop.device], capture_output=True, text=True)
        self.addCleanup(subprocess.run, ["swapoff", volume.loop.device], capture_output=True)
        if done.returncode != 0:
            self.skipTest(f"needs to swap to a loop device: {done.stderr.strip()}")
        node.wait_for(volume.path, "blocked", "host_in_use")
        self.explains(node, volume.path, "swapon --show")
        run("swapoff", volume.loop.device)
        node.wait_for(volume.path, "in_sync")


class SandboxTest(VolumeTest):

    def test_dead_beside_live(self):
        node, volume, _ = self.build()
        for number in range(3):
            node.record(volume.path, f"{number}" * 64)
        dead = "d" * 64
        vmm = node.start_vmm(dead)
        node.add_sandbox(dead, vmm.pid, drives=[volume.record()])
        node.record(volume.path, dead)
        vmm.stop()
        node.start()
        node.wait_for(volume.path, "in_sync", sandbox_id=SANDBOX)
        volume.loop.resize(AFTER)
        self.check_grown(node, volume, sandbox_id=SANDBOX)

    def test_pid_of_somebody_else(self):
        """The pid file names a process that lives and is no VMM of this sandbox."""
        node, volume, monitor = self.build()
        stale = "d" * 64
        node.add_sandbox(stale, os.getpid(), drives=[volume.record()])
        node.record(volume.path, stale)
        node.start()
        node.wait_for(volume.path, "in_sync", sandbox_id=SANDBOX)

    def test_two_live(self):
        node, volume, monitor = self.build()
        second = self.monitor(node, volume, sandbox_id=OTHER)
        vmm = self.sandbox(node, volume, sandbox_id=OTHER)
        node.start()
        row = node.wait_for(volume.path, "blocked", "multiple_sandboxes")
        self.assertIsNone(row["sandbox_id"])
        self.assertIsNone(row["next_attempt_at"])
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked", "multiple_sandboxes", device_bytes=AFTER)
        self.explains(node, volume.path, "More than one live sandbox", "crustctl sandboxes",
                      "ReadWriteOncePod")
        self.check_unsent(node, monitor, second)
        vmm.stop()
        row = node.wait_for(volume.path, "in_sync", sandbox_id=SANDBOX, hypervisor_bytes=AFTER)
        self.assertEqual(second.sent("block_resize"), [])

    def test_a_second_one_comes_while_the_first_has_it(self):
        node, volume, monitor = self.build()
        node.start()
        node.wait_for(volume.path, "in_sync", sandbox_id=SANDBOX)
        vmm = self.sandbox(node, volume, sandbox_id=OTHER)
        node.wait_for(volume.path, "blocked", "multiple_sandboxes")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked", "multiple_sandboxes", device_bytes=AFTER)
        self.check_unsent(node, monitor)
        vmm.stop()
        node.wait_for(volume.path, "in_sync", sandbox_id=SANDBOX, hypervisor_bytes=AFTER)

    def test_one_device_in_two_volumes(self):
        node, volume, monitor = self.build()
        path = publish_path("pv-twin")
        node.stage(path, volume.loop.device)
        second = self.monitor(node, volume, sandbox_id=OTHER)
        vmm = self.sandbox(node, sandbox_id=OTHER, drives=[volume.record()])
        node.record(path, OTHER)
        node.start()
        for one in (volume.path, path):
            node.wait_for(one, "blocked", "device_shared")
        volume.loop.resize(AFTER)
        for one in (volume.path, path):
            row = node.wait_for(one, "blocked", "device_shared", device_bytes=AFTER)
            self.assertIsNone(row["next_attempt_at"])
            self.explains(node, one, "two live sandboxes", "crustctl mappings")
        self.check_unsent(node, monitor, second)
        vmm.stop()
        node.wait_for(path, "unbound")
        self.check_grown(node, volume)
        self.assertEqual(second.sent("block_resize"), [])

    def test_none(self):
        node = self.node()
        volume = self.volume(node)
        node.start()
        node.wait_for(volume.path, "unbound", "none")
        volume.loop.resize(AFTER)
        node.crustctl("resync")
        node.wait_for(volume.path, "unbound", "none", device_bytes=AFTER)
        self.assertIsNone(self.resize_row(node, volume.path))
        self.explains(node, volume.path, "No live sandbox is known to use the volume")

    def test_ends_in_the_middle_of_a_resize(self):
        node, volume, monitor = self.build()
        node.start()
        node.wait_for(volume.path, "in_sync")
        monitor.silent = True
        volume.loop.resize(AFTER)
        node.wait(lambda: self.resize_row(node, volume.path), 60, "the resize")
        node.vmms[0].stop()
        row = node.wait_for(volume.path, "unbound", "none")
        self.assertIsNone(row["sandbox_id"])
        self.explains(node, volume.path, "unbound")


class DeviceTest(VolumeTest):

    def test_shrunk(self):
        node, volume, monitor = self.build()
        node.start()
        node.wait_for(volume.path, "in_sync")
        volume.loop.resize(BEFORE // 2)
        row = node.wait_for(volume.path, "shrunk", "none", device_bytes=BEFORE // 2)
        self.assertIsNone(row["next_attempt_at"])
        self.assertIsNone(self.resize_row(node, volume.path))
        self.explains(node, volume.path, "smaller than it once was", "former size again")
        acts = self.turns(node)
        self.check_unsent(node, monitor)
        self.assertGreaterEqual(self.turns(node), acts)
        volume.loop.resize(BEFORE)
        node.wait_for(volume.path, "in_sync", device_bytes=BEFORE)
        self.assertEqual(monitor.sent("block_resize"), [])
        volume.loop.resize(AFTER)
        self.check_grown(node, volume)

    def test_shrunk_while_crustd_was_down(self):
        node, volume, monitor = self.build()
        node.start()
        node.wait_for(volume.path, "in_sync")
        node.stop()
        volume.loop.resize(BEFORE // 2)
        node.start()
        node.wait_for(volume.path, "shrunk", "none")
        self.check_unsent(node, monitor)

    def test_grown_and_shrunk_again_before_the_vmm_was_resized(self):
        node, volume, monitor = self.build()
        node.start()
        node.wait_for(volume.path, "in_sync")
        monitor.refuse = "Device '(null)' is in use"
        volume.loop.resize(2 * AFTER)
        node.wait_for(volume.path, "blocked", "hypervisor_busy")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "shrunk", "none", device_bytes=AFTER)
        self.assertEqual(self.resize_row(node, volume.path)["state"], "shrunk")

    def test_missing_and_then_there(self):
        node = self.node({"resize.sweep_seconds": 3600})
        volume = self.volume(node)
        here = node.path(volume.loop.device)
        self.agent(node)
        self.monitor(node, volume)
        self.sandbox(node, volume)
        here.unlink()
        node.start()
        row = node.wait_for(volume.path, "blocked", "no_device")
        self.assertIsNone(row["device_bytes"])
        self.assertIsNone(row["next_attempt_at"])
        self.explains(node, volume.path, "leads to nothing on this node", "ls -lL", "--root")
        node.add_device(volume.loop.device)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", device_bytes=AFTER)

    def test_vanishes_under_a_live_sandbox(self):
        node, volume, monitor = self.build({"resize.sweep_seconds": 1})
        node.start()
        node.wait_for(volume.path, "in_sync")
        node.path(volume.loop.device).unlink()
        row = node.wait_for(volume.path, "blocked", "no_device")
        self.assertEqual(row["sandbox_id"], SANDBOX)
        node.add_device(volume.loop.device)
        node.wait_for(volume.path, "in_sync")

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
        self.agent(node)
        monitor = self.monitor(node, volume)
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync")
        run("losetup", "--detach", loop.device)
        loop.attach(self.scratch / "another", 2 * AFTER)
        node.wait_for(volume.path, "blocked", "identity_mismatch", device_bytes=2 * AFTER)
        self.assertIsNone(self.resize_row(node, volume.path))
        self.explains(node, volume.path, "another device open", "Restart the pod")
        self.check_unsent(node, monitor)


if __name__ == "__main__":
    unittest.main()
