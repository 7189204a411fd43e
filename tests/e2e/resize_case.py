# SPDX-License-Identifier: Apache-2.0
"""Resizes on real parts: a node, micro-VMs with volumes in them, and what must be true afterwards.

    class SomeTest(ResizeCase):
        @classmethod
        def setUpClass(cls):
            super().setUpClass()
            cls.sandbox = cls.add_sandbox()
            cls.volume = cls.sandbox.add_volume("ext4")
            cls.boot(cls.sandbox)
            cls.node.start()

        def test_it(self):
            self.grow(self.volume)

A resize is believed if the guest's kernel says so (the disk's size, the file system's, a file written
before) and if the record tells it, read by the sqlite3 tool. Tests of a class share its VMs: each
starts from the sizes that it finds.
"""

import atexit
import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from disks import Disk, LoopDevice, make_filesystem
from guest_image import build_image
from guestvm import SERIAL_AGENT, GuestVM
from node import BUILD, Node
from programs import wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fakes"))
import agent as fake_agent  # pylint: disable=wrong-import-position

MIB = 1 << 20
FIRST_BYTES = {"ext4": 64 * MIB, "xfs": 300 * MIB, "btrfs": 256 * MIB}  # xfs and btrfs grow from no less
PATTERN_BYTES = MIB
QEMU = "qemu-system-x86_64"
SECONDS = int(os.environ.get("CRUST_TEST_SECONDS", 120))  # long enough for any machine
KATA_DRIVERS = {"blk": "virtio-blk", "scsi": "virtio-scsi"}
GROWTH = ["resize_opened", "resize_hypervisor_intended", "hypervisor_answered",
          "grow_guest_intended", "guest_answered", "resize_finished"]


def skip_without_parts():
    """Skips with a sentence where this machine cannot run a VM on a loop device."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("only root can make loop devices and device nodes")
    if not os.path.exists("/dev/loop-control"):
        raise unittest.SkipTest("this kernel has no loop devices (/dev/loop-control)")
    programs = ["qemu-system-x86_64", "sqlite3", "losetup"] + [f"mkfs.{f}" for f in FIRST_BYTES]
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise unittest.SkipTest(f"not installed here: {', '.join(missing)}")


def through_crust_qemu(node):
    """The words that start QEMU through crust-qemu, whose directory is the node's to QEMU."""
    node.path("/run/crustd/qemu").mkdir(mode=0o700, exist_ok=True)
    script = ('mount -t tmpfs -o mode=755 none /run; mkdir /run/crustd; mount --bind "$1" /run/crustd; '
              'shift; exec "$@"')
    return ("unshare", "--mount", "sh", "-euc", script, "sh", str(node.path("/run/crustd")),
            str(BUILD / f"crust-{QEMU}"))


class Relay(fake_agent.FakeAgent):
    """Stands between crustd and a guest's agent. Behaviours that end in "ok" are the real agent's
    answers; calls wait while it is held.

    QEMU serves one client of the agent's stream at a time, so nobody may keep it: what is not
    answered soon is asked again, on a stream of its own, until the caller's time is up."""

    ATTEMPT_SECONDS = 10

    def __init__(self, path, real):
        self._real = str(real)
        self._let_through = threading.Event()
        self._let_through.set()
        super().__init__(path)

    def hold(self):
        self._let_through.clear()

    def release(self):
        self._let_through.set()

    def close(self):
        self.release()
        super().close()

    def _succeed(self, request, explicit):
        self._let_through.wait()
        ends_at = request.at + request.timeout_nano / 1e9
        while True:
            try:
                code, message, answer = self._ask(request)
                return fake_agent.encode_response(request.stream, answer, code, message, explicit)
            except TimeoutError:
                if self._stopping.is_set() or time.monotonic() > ends_at:
                    raise

    def _ask(self, request):
        payload = fake_agent.field(1, request.path) + fake_agent.field(2, request.size)
        with socket.socket(socket.AF_UNIX) as real:
            real.settimeout(self.ATTEMPT_SECONDS)
            real.connect(self._real)
            return fake_agent.call(real, request.method, payload, secrets.randbits(30) << 1 | 1)


@dataclasses.dataclass(eq=False)
class Volume:
    """A loop device with a file system, as a CSI driver stages it and a guest mounts it."""

    path: str
    filesystem: str
    loop: LoopDevice
    disk: Disk
    device: str  # as mountInfo.json has it
    sandbox: "Sandbox" = None

    @property
    def pattern(self):
        return f"{self.disk.mount_point}/pattern"


class Sandbox:
    """A micro-VM and Kata's records of it. Volumes come before boot(), or by plug()."""

    def __init__(self, case, bus="blk", monitor="qmp", agents=(SERIAL_AGENT,), relayed=False,
                 memory=256):
        self.case, self.node, self.memory = case, case.node, memory
        self.bus, self.monitor, self.agents, self.relayed = bus, monitor, agents, relayed
        self.id = secrets.token_hex(32)
        self.volumes = []
        self.vm = self.relay = None
        self.qemu = through_crust_qemu(self.node) if monitor == "crust-qemu" else (QEMU,)

    @property
    def extra_monitor(self):
        return None if self.monitor == "crust-qemu" else self.monitor

    def make_volume(self, filesystem, *, path=None, device=None, through_link=False, directory=None,
                    size=None, features=(), **disk):
        """A volume that is not in the VM yet. device: a function from the loop's path to the one
        in mountInfo.json; through_link: QEMU is given a link to the device; features: more options
        of mkfs; directory: where its file is."""
        number = next(self.case.numbers)
        loop = self.case.enterClassContext(LoopDevice(
            (directory or self.case.scratch) / f"disk-{number}", size or FIRST_BYTES[filesystem]))
        make_filesystem(filesystem, loop.device, *features)
        self.node.add_device(loop.device)
        opened = loop.device
        if through_link:
            opened = str(self.case.scratch / f"link-{number}")
            os.symlink(loop.device, opened)
        return Volume(
            path or f"/var/lib/kubelet/pods/pod-{number}/volumes/kubernetes.io~csi/pv-{number}/mount",
            filesystem, loop, Disk(opened, bus=self.bus, filesystem=filesystem, **disk),
            device(loop.device) if device else loop.device, self)

    def add_volume(self, filesystem, **options):
        volume = self.make_volume(filesystem, **options)
        self.volumes.append(volume)
        return volume

    def boot(self):
        """Starts the VM; what is on record of it comes with publish()."""
        self.vm = self.case.enterClassContext(GuestVM(
            self.node.root, self.case.image, [volume.disk for volume in self.volumes],
            sandbox_id=self.id, vm_dir=self.node.vm_dir(self.id), extra_monitor=self.extra_monitor,
            agents=self.agents, program=self.qemu, memory=self.memory))
        if self.relayed:
            self.relay = self.case.enterClassContext(
                Relay(self.node.root / f"agent-{self.id[:12]}.sock", self.vm.agent_socket))

    def publish(self):
        """What the CSI driver and the runtime have written once the pod runs."""
        for volume in self.volumes:
            self.node.stage(volume.path, volume.device, fstype=volume.filesystem)
        self.take()

    def take(self):
        """What the runtime writes of volumes that are staged, once the pod runs."""
        self.vm.wait_ready()
        for volume in self.volumes:
            self.node.record(volume.path, self.id)
            self.vm.guest_write(volume.pattern, PATTERN_BYTES)
        self.write_persist()

    def write_persist(self):
        agent = self.relay.socket_path if self.relay else str(self.vm.agent_socket)
        drives = [{"device": volume.loop.device, "id": volume.disk.node_name,
                   "address": volume.disk.address} for volume in self.volumes]
        self.node.add_sandbox(self.id, self.vm.pid, drives=drives, driver=KATA_DRIVERS[self.bus],
                              agent="unix://" + agent.removeprefix(str(self.node.root)))

    def plug(self, volume):
        """A disk for a container that starts later, in Kata's order."""
        self.node.stage(volume.path, volume.device, fstype=volume.filesystem)
        self.node.record(volume.path, self.id)
        self.vm.hotplug(volume.disk)
        self.volumes.append(volume)
        self.write_persist()
        self.vm.guest_write(volume.pattern, PATTERN_BYTES)

    def unplug(self, volume):
        self.vm.unplug(volume.disk)
        self.volumes.remove(volume)
        self.write_persist()
        self.node.unstage(volume.path)


@dataclasses.dataclass(eq=False)
class Resize:
    """A device that has grown, and how things stood before."""

    volume: Volume
    volume_id: int
    from_bytes: int
    to_bytes: int
    guest_bytes: int  # of the file system
    resizes: int  # how many were on record


class ResizeCase(unittest.TestCase):
    """A node with one crustd, for all tests of a class."""

    # Of what a test waits for: a call that gets no answer is made again before the test gives up.
    settings = {"resize.call_timeout_seconds": SECONDS // 3}

    @classmethod
    def setUpClass(cls):
        skip_without_parts()
        atexit.register(cls.doClassCleanups)  # an interrupted run cleans up too
        cls.numbers = iter(range(1, 1000))
        scratch = tempfile.TemporaryDirectory(prefix="crust-resize-")
        cls.scratch = pathlib.Path(cls.enterClassContext(scratch)).resolve()
        cls.image = build_image(BUILD / "guest", BUILD / "crust-guest-agent")
        cls.node = cls.enterClassContext(Node(cls.scratch, cls.settings))

    @classmethod
    def add_sandbox(cls, **options):
        return Sandbox(cls, **options)

    @classmethod
    def boot(cls, *sandboxes):
        """Boots them at the same time."""
        for sandbox in sandboxes:
            sandbox.boot()
        for sandbox in sandboxes:
            sandbox.publish()

    def setUp(self):
        if self.node.process is None:
            self.node.start()

    # -- growing

    def settle(self, volume, reason="none"):
        """Waits until crustd has synchronised a volume and nothing more is to come of it."""
        self.node.wait_for(volume.path, "in_sync", reason, SECONDS,
                           device_bytes=volume.loop.size, hypervisor_bytes=volume.loop.size)
        self.wait(lambda: self.journal(volume, "kind = 'guest_answered'"),
                  f"the guest to be asked about {volume.path}")

    def begin(self, volume, to_bytes=None, settled="none"):
        """The device grows, by half if not told."""
        if settled:
            self.settle(volume, settled)
        size = volume.loop.size
        row = self.node.volume(volume.path)
        resize = Resize(volume, row["volume_id"] if row else 0, size,
                        to_bytes or (size * 3 // 2 + MIB) // MIB * MIB,
                        volume.sandbox.vm.guest_size(volume.disk.mount_point),
                        len(self.resizes(volume)))
        volume.loop.resize(resize.to_bytes)
        return resize

    def begin_held(self, volume):
        """The device grows, and its sandbox's agent is asked and kept from answering until the relay is released."""
        relay = volume.sandbox.relay
        self.settle(volume)
        asked = len(relay.requests)
        relay.hold()
        resize = self.begin(volume)
        self.wait(lambda: len(relay.requests) > asked, "the agent to be asked")
        return resize

    def finish(self, resize, reason="none"):
        """Waits for the end of a resize and checks everything that it leaves behind."""
        row = self.node.wait_for(resize.volume.path, "in_sync", reason, SECONDS,
                                 device_bytes=resize.to_bytes, hypervisor_bytes=resize.to_bytes)
        self.check_guest(resize)
        self.check_volume(resize, row)
        self.check_resize(resize, reason)
        self.check_journal(resize)
        self.check_binding(resize.volume)

    def grow(self, *volumes, reason="none"):
        """Lets devices grow together."""
        resizes = [self.begin(volume, settled=reason) for volume in volumes]
        for resize in resizes:
            self.finish(resize, reason)

    # -- what is true

    def check_guest(self, resize):
        """The guest's own word: the disk, the file system, what was in it."""
        volume, vm = resize.volume, resize.volume.sandbox.vm
        self.assertEqual(vm.guest_blocksize(volume.disk), resize.to_bytes)
        gained = vm.guest_size(volume.disk.mount_point) - resize.guest_bytes
        self.assertGreater(gained, (resize.to_bytes - resize.from_bytes) * 3 // 4)
        self.assertLess(vm.guest_size(volume.disk.mount_point), resize.to_bytes + 1)
        vm.guest_verify(volume.pattern, PATTERN_BYTES)

    def check_volume(self, resize, row):
        volume = resize.volume
        self.assertEqual(row["sandbox_id"], volume.sandbox.id)
        self.assertEqual(row["device"], volume.device)
        self.assertEqual((row["fs_type"], row["status"]), (volume.filesystem, "present"))
        self.assertIsNone(row["next_attempt_at"])
        if row["reason"] == "none":
            self.assertEqual(row["guest_bytes"],
                             volume.sandbox.vm.guest_size(volume.disk.mount_point))
            self.assertEqual(row["condition"], "normal")
            self.assertGreater(row["used_bytes"], 0)
            self.assertGreater(row["available_bytes"], 0)
            self.assertLessEqual(row["used_bytes"] + row["available_bytes"], row["guest_bytes"])

    def check_resize(self, resize, reason):
        rows = self.resizes(resize.volume)
        self.assertEqual(len(rows), resize.resizes + 1, rows)
        row = rows[-1]
        self.assertEqual((row["from_bytes"], row["to_bytes"]), (resize.from_bytes, resize.to_bytes))
        self.assertEqual((row["state"], row["reason"]), ("in_sync", reason))
        self.assertEqual(row["sandbox_id"], resize.volume.sandbox.id)
        self.assertEqual(row["device"], resize.volume.loop.device)
        times = [row[name] for name in ("detected_at", "hypervisor_at", "guest_at", "finished_at")]
        self.assertNotIn(None, times, row)
        self.assertEqual(times, sorted(times))
        self.assertGreaterEqual(row["attempts"], 2)

    def check_journal(self, resize):
        """Every step of this resize, in its order."""
        opened = self.journal(resize.volume, "kind = 'resize_opened'")[-1]
        kinds = iter(line["kind"] for line in
                     self.journal(resize.volume, f"seq >= {opened['seq']}"))
        for kind in GROWTH:
            self.assertIn(kind, kinds, f"missing or out of order after {opened}")
        self.check_intents(resize.volume)

    def check_intents(self, volume):
        """Every answer was asked for before, and every state has a cause."""
        intended = state = None
        for line in self.journal(volume):
            kind, detail = line["kind"], json.loads(line["detail"] or "{}")
            if kind.endswith("_intended"):
                intended = kind
            elif kind == "hypervisor_answered":
                self.assertIn(intended, ("query_hypervisor_intended", "resize_hypervisor_intended"),
                              line)
                intended = None
            elif kind == "guest_answered":
                self.assertEqual(intended, "grow_guest_intended", line)
                intended = None
            elif kind == "state_changed":
                self.assertIn(state, (None, detail["from"]), line)
                state = detail["to"]

    def check_binding(self, volume):
        rows = [row for row in self.mappings(volume) if row["until"] is None]
        self.assertEqual(len(rows), 1, rows)
        row = rows[0]
        self.assertEqual((row["sandbox_id"], row["device"], row["drive_id"], row["guest_path"]),
                         (volume.sandbox.id, volume.loop.device, volume.disk.node_name,
                          volume.disk.mount_point))

    # -- the record

    def rows(self, view, volume, where="1", order="rowid"):
        row = self.node.volume(volume.path)
        return row and self.node.query(f"SELECT * FROM {view} WHERE volume_id = {row['volume_id']}"
                                       f" AND {where} ORDER BY {order}") or []

    def resizes(self, volume):
        return self.rows("audit_resizes", volume, order="resize_id")

    def mappings(self, volume):
        return self.rows("audit_mappings", volume, order="since")

    def journal(self, volume, where="1"):
        return self.rows("audit_journal", volume, where, order="seq")

    def wait(self, condition, what):
        return self.node.wait(condition, SECONDS, what)

    def wait_guest_grown(self, resize):
        """Waits for the guest, not for crustd."""
        vm, path = resize.volume.sandbox.vm, resize.volume.disk.mount_point
        wait_until(lambda: vm.guest_size(path) > resize.guest_bytes, SECONDS,
                   f"{path} to grow in the guest")


def check_filesystem(volume):
    """fsck of a volume that no guest has mounted; raises if it is not clean."""
    commands = {
        "ext4": ["e2fsck", "-fn"],
        "xfs": ["xfs_repair", "-n"],
        "btrfs": ["btrfs", "check"],
    }
    subprocess.run([*commands[volume.filesystem], volume.loop.device], check=True,
                   capture_output=True)


@contextlib.contextmanager
def auditor(node):
    """Reads the audit views all the time, as others may; yields the list of what went wrong."""
    problems, ended = [], threading.Event()

    def read():
        while not ended.is_set():
            try:
                node.query("SELECT count(*), max(state) FROM audit_volumes"
                           " UNION ALL SELECT count(*), max(state) FROM audit_resizes"
                           " UNION ALL SELECT count(*), max(kind) FROM audit_journal")
            except Exception as error:  # pylint: disable=broad-except
                problems.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield problems
    finally:
        ended.set()
        thread.join()
