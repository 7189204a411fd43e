# SPDX-License-Identifier: Apache-2.0
"""Micro-VMs on a node: a test's side of guest_keeper.py.

    class SomeTest(SandboxTest):
        @classmethod
        def prepare(cls):
            super().prepare()
            cls.sandbox = cls.add_sandbox({"data": ("/dev/vg/data", "ext4")})
            cls.node.start_crustd()

        def test_it(self):
            self.node.run("lvextend -L +64M vg/data")
            self.wait_grown("data", 128 * MIB)
"""

import dataclasses
import json
import pathlib
import secrets
import sys

import module_runner
from channel import NodeError
from guest_image import build_image, build_kata_image
from node_test_case import BUILD, NodeTest

MIB = 1 << 20
FIRST_CID = 100
TOOLS, GUEST = "/opt/crust-tests", "/opt/crust-guest"
MKFS = {
    "ext4": "mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1,nodiscard",
    "xfs": "mkfs.xfs -q -f -K",
    "btrfs": "mkfs.btrfs -q -f -K",
}
BOOT_SECONDS = RESIZE_SECONDS = 600
ASK = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
       " s.sendall(sys.argv[2].encode() + b'\\n'); print(s.makefile().readline())")


@dataclasses.dataclass(frozen=True)
class Volume:
    """A device of the node's, as a CSI driver publishes it."""

    name: str
    device: str
    filesystem: str
    sandbox: "Sandbox"
    number: int  # among the sandbox's

    @property
    def path(self):
        return f"/var/lib/kubelet/pods/{self.sandbox.pod}/volumes/kubernetes.io~csi/{self.name}/mount"


class Sandbox:
    """A guest on KVM, with volumes in it, that Kata's Go runtime could have started."""

    def __init__(self, node, cid, volumes, *, program=None, staged=False, stock=False,
                 extra_monitor="qmp"):
        self.node, self.cid, self.program = node, cid, program
        self.staged, self.stock, self.extra_monitor = staged, stock, extra_monitor
        self.id = secrets.token_hex(32)
        self.pod = f"pod-{cid}"
        self.volumes = {name: Volume(name, device, filesystem, self, number)
                        for number, (name, (device, filesystem)) in enumerate(volumes.items())}
        self.control = f"/run/sandbox-{cid}.sock"

    def start(self):
        """File systems, the guest, its records; wait_ready() waits for all of it."""
        for volume in self.volumes.values() if not self.staged else ():
            self.node.run(f"{MKFS[volume.filesystem]} {volume.device}", seconds=600)
        specification = f"{TOOLS}/sandbox-{self.cid}.json"
        self.node.write(specification, json.dumps({
            "id": self.id, "cid": self.cid, "control": self.control, "staged": self.staged,
            "kernel": f"{GUEST}/vmlinuz", "program": self.program, "stock": self.stock,
            "extra_monitor": self.extra_monitor,
            "initramfs": f"{GUEST}/{'initramfs-kata' if self.stock else 'initramfs'}",
            "volumes": [dataclasses.asdict(dataclasses.replace(volume, sandbox=None))
                        | {"path": volume.path} for volume in self.volumes.values()]}))
        self.node.run(["systemd-run", "--quiet", "--no-block", f"--unit={self.unit}", "--property=Type=notify",
                       f"--property=TimeoutStartSec={BOOT_SECONDS}", "--property=StartLimitBurst=1",
                       "--property=StartLimitIntervalSec=1d", "python3", f"{TOOLS}/guest_keeper.py",
                       specification])

    @property
    def unit(self):
        return f"sandbox-{self.cid}"

    def wait_ready(self):
        """By one command, because each costs an emulated node a second. Does not start what has failed."""
        done = self.node.run(["systemctl", "start", self.unit], check=False, seconds=2 * BOOT_SECONDS)
        if done.status != 0:
            journal = self.node.journal(unit=self.unit)
            # It was reset while it booted: the emulated KVM has failed it, before anything was tested.
            if "QEMU ended with 0" in journal:
                module_runner.ask_for_another_try(f"{self.unit} was reset while it booted")
            raise NodeError(f"{done}\n{journal}")

    def note_reset(self):
        """A guest that was reset under a test without a panic of its kernel is the emulated KVM's failure."""
        try:
            if self.ask("ended") == 0 and "Kernel panic" not in self.ask("console"):
                module_runner.ask_for_another_try(f"{self.unit} was reset during a test")
        except NodeError as error:
            print(f"{self.unit}: {error}", file=sys.stderr)

    def ask(self, *request):
        """What guest_keeper.py says."""
        reply = json.loads(self.node.output(["python3", "-c", ASK, self.control,
                                             json.dumps(request)]))
        if "error" in reply:
            raise NodeError(f"{self.unit}: {request}: {reply['error']}")
        return reply["answer"]


class SandboxTest(NodeTest):
    """A node with what guest_keeper.py needs."""

    MEMORY = 4096
    sandboxes: list
    sandboxes_begun = 0

    @classmethod
    def prepare(cls):
        here = pathlib.Path(__file__).resolve().parent
        image = build_image(BUILD / "guest", BUILD / "crust-guest-agent")
        cls.node.put(here.parent / "e2e", f"{TOOLS}/e2e")
        cls.node.put(here / "guest_keeper.py", f"{TOOLS}/guest_keeper.py")
        cls.node.put(image.kernel, f"{GUEST}/vmlinuz")
        cls.node.put(image.initramfs, f"{GUEST}/initramfs")
        cls.node.put(build_kata_image(BUILD / "guest").initramfs, f"{GUEST}/initramfs-kata")
        cls.node.run("modprobe vhost_vsock")
        cls.sandboxes = []

    def run(self, result=None):
        before = self._failures(result)
        super().run(result)
        if self._failures(result) > before:
            for sandbox in self.sandboxes:
                sandbox.note_reset()
        return result

    @classmethod
    def add_sandbox(cls, volumes, **options):
        """{name: (device, file system)}; the devices are there. No file system: the guest has the device raw. program: what is started as QEMU. staged:
        a CSI driver has made the file systems and leaves the metadata, before the sandbox is started.
        stock: nothing of ours is in the guest. extra_monitor: None for a QEMU with the shim's alone."""
        sandbox = Sandbox(cls.node, FIRST_CID + cls.sandboxes_begun, volumes, **options)
        cls.sandboxes_begun += 1
        cls.sandboxes.append(sandbox)
        return sandbox

    @classmethod
    def start_sandboxes(cls):
        """Boots all at once."""
        for sandbox in cls.sandboxes:
            sandbox.start()
        for sandbox in cls.sandboxes:
            sandbox.wait_ready()

    def volume(self, name):
        return next(sandbox.volumes[name] for sandbox in self.sandboxes
                    if name in sandbox.volumes)

    def device_bytes(self, name):
        return int(self.node.output(f"blockdev --getsize64 {self.volume(name).device}"))

    def guest_sizes(self, name):
        volume = self.volume(name)
        return volume.sandbox.ask("sizes", volume.number)

    def settle(self, name):
        """Waits until crustd has seen that all is as large as the device; returns the guest's sizes."""
        size = self.device_bytes(name)
        self.node.wait_for(self.volume(name).path, "in_sync", "none", seconds=RESIZE_SECONDS,
                           device_bytes=size, hypervisor_bytes=size)
        return self.guest_sizes(name)

    def check_grown(self, name, before):
        """The guest's own word about a resize since settle(); returns the volume's row."""
        volume, size = self.volume(name), self.device_bytes(name)
        row = self.node.wait_for(volume.path, "in_sync", "none", seconds=RESIZE_SECONDS,
                                 device_bytes=size, hypervisor_bytes=size)
        disk_bytes, file_system_bytes = self.guest_sizes(name)
        self.assertEqual(disk_bytes, size)
        self.assertGreater(disk_bytes, before[0])
        self.assertGreater(file_system_bytes - before[1], (size - before[0]) * 3 // 4)
        self.assertEqual(row["guest_bytes"], file_system_bytes)
        volume.sandbox.ask("verify", volume.number)
        return row

    def explained(self, name):
        return self.node.output(["crustctl", "explain", self.volume(name).path])
