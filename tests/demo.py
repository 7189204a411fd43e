#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo.py - a volume of a real micro-VM grows before your eyes; `sudo make demo` runs it.

A loop device with an ext4 on it is the volume, QEMU (software emulation) with Debian's kernel is the
micro-VM, laid out as Kata's Go runtime lays it out below a scratch directory, and crustd is the real
one. Sizes of the guest come from the guest: its init answers on a serial port of its own. At the end,
on ^C and on failure nothing is left behind.
"""

import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "e2e"))

from disks import Disk, LoopDevice, make_filesystem  # noqa: E402
from guest_image import build_image  # noqa: E402
from guestvm import GuestVM  # noqa: E402
from node import BUILD, REPOSITORY, Node, NodeError  # noqa: E402
from programs import GuestError  # noqa: E402

MIB = 1 << 20
BEFORE, AFTER = 64 * MIB, 256 * MIB
POD = "7d1f5a52-8a3c-4c86-9e1b-2f64c1f6a0b9"
VOLUME = f"/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/pv-demo/mount"
FILE_BYTES = 8 * MIB

RESIZES = """\
  SELECT device, from_bytes, to_bytes, state,
    round((julianday(hypervisor_at) - julianday(detected_at)) * 86400, 3)
      AS told_after,
    round((julianday(guest_at) - julianday(detected_at)) * 86400, 3)
      AS grown_after
  FROM audit_resizes"""
JOURNAL = """\
  SELECT substr(at, 12, 12) AS at, kind,
    coalesce(detail ->> 'to', detail ->> 'to_bytes', detail ->> 'bytes')
      AS what
  FROM audit_journal
  WHERE at >= (SELECT max(detected_at) FROM audit_resizes)
  ORDER BY seq"""

STARTED = time.monotonic()


def say(text):
    """A step, with the seconds since the start; further lines are indented."""
    first, *rest = text.split("\n")
    print(f"{time.monotonic() - STARTED:6.2f} s  {first}")
    for line in rest:
        print(f"          {line}")
    sys.stdout.flush()


def show(command, output):
    print(f"\n$ {command}\n{output.rstrip()}", flush=True)


def mebibytes(size):
    return f"{size / MIB:.1f} MiB"


def show_query(node, sql):
    """What an auditor does: the sqlite3 tool, read-only, while the daemon runs."""
    database = node.root / "var/lib/crustd/crustd.db"
    done = subprocess.run(["sqlite3", "-readonly", "-header", "-column", database, sql],
                          capture_output=True, text=True, check=True)
    show(f'sqlite3 -readonly -header -column crustd.db "\n{sql}"', done.stdout)


class Demo:
    def __init__(self, stack):
        """Everything that must end is entered into the stack."""
        self.stack = stack
        self.scratch = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="crust-demo-")))
        self.image = self.loop = self.node = self.vm = self.disk = None
        self.sandbox_id = self.before = None

    def prepare(self):
        self.image = build_image(REPOSITORY / "build/guest", BUILD / "crust-guest-agent")
        image_file = self.scratch / "volume.img"
        self.stack.callback(detach_leftovers, image_file)
        self.loop = self.stack.enter_context(LoopDevice(image_file, BEFORE))
        make_filesystem("ext4", self.loop.device)
        say(f"the host has a volume: {self.loop.device}, {mebibytes(BEFORE)}, ext4")

    def start_vm(self):
        self.node = self.stack.enter_context(Node(self.scratch))
        self.node.add_device(self.loop.device)
        self.sandbox_id = secrets.token_hex(32)
        guests = self.node.root / "guest"  # the node's, so that crustd reaches its sockets
        guests.mkdir()
        self.disk = Disk(self.loop.device, filesystem="ext4")
        self.vm = self.stack.enter_context(
            GuestVM(guests, self.image, [self.disk], sandbox_id=self.sandbox_id,
                    vm_dir=self.node.vm_dir(self.sandbox_id), extra_monitor="qmp"))
        say("QEMU boots a micro-VM with the device as a disk, as Kata does ...")
        self.vm.wait_ready()
        self.before = self.vm.guest_size(self.disk.mount_point)
        say(f"the guest is up and has mounted it: a file system of {mebibytes(self.before)}")
        self.vm.guest_write(f"{self.disk.mount_point}/file", FILE_BYTES)
        say(f"an application in the guest writes a file of {mebibytes(FILE_BYTES)}")

    def start_daemon(self):
        self.node.start()
        say("crustd starts beside it")
        self.node.stage(VOLUME, self.loop.device)
        self.node.wait_for(VOLUME, "unbound")
        say("a CSI driver writes the volume's mountInfo.json\n"
            "crustd: a new volume, and no sandbox that uses it yet (unbound)")
        agent = "/" + str(self.vm.agent_socket.relative_to(self.node.root))
        drive = {"device": self.loop.device, "id": self.disk.id, "address": self.disk.address}
        self.node.add_sandbox(self.sandbox_id, self.vm.pid, agent=f"unix://{agent}",
                              drives=[drive])
        self.node.record(VOLUME, self.sandbox_id)
        self.node.wait_for(VOLUME, "in_sync", "none", guest_bytes=self.before)
        say(f"Kata records that sandbox {self.sandbox_id[:12]}... uses it\n"
            "crustd: asked QEMU and the guest once, all sizes agree (in_sync)")

    def grow(self):
        self.loop.resize(AFTER)
        say(f"THE DEVICE GROWS: {mebibytes(BEFORE)} -> {mebibytes(AFTER)}; nobody tells the VM")
        row = self.node.wait_for(VOLUME, "in_sync", device_bytes=AFTER, hypervisor_bytes=AFTER)
        after = self.vm.guest_size(self.disk.mount_point)
        block = self.vm.guest_blocksize(self.disk)
        if block != AFTER or after <= self.before or row["guest_bytes"] != after:
            raise GuestError(f"the guest has {block} and {after} bytes, crustd says {row}")
        say("crustd: told QEMU, then the guest's agent (in_sync)\n"
            f"the guest itself says: disk {mebibytes(block)},\n"
            f"file system {mebibytes(self.before)} -> {mebibytes(after)}")
        self.vm.guest_verify(f"{self.disk.mount_point}/file", FILE_BYTES)
        say("the guest reads its file back: every byte is as it was")

    def show_record(self):
        show("crustctl volumes", self.node.crustctl("volumes").stdout)
        show_query(self.node, RESIZES)
        show_query(self.node, JOURNAL)


def detach_leftovers(image_file):
    """An interrupt may come between losetup and what remembers its device."""
    devices = subprocess.run(["losetup", "--noheadings", "--output", "NAME", "--associated",
                              image_file], capture_output=True, text=True).stdout.split()
    for device in devices:
        subprocess.run(["losetup", "--detach", device])


def clean_up(stack):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    stack.close()


def interrupt(number, _):
    raise KeyboardInterrupt(signal.Signals(number).name)


def main():
    if os.geteuid() != 0:
        sys.exit("demo.py: loop devices need root: sudo make demo")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    stack = contextlib.ExitStack()
    try:
        demo = Demo(stack)
        demo.prepare()
        demo.start_vm()
        demo.start_daemon()
        demo.grow()
        demo.show_record()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (GuestError, NodeError, OSError, subprocess.SubprocessError) as error:
        print(f"\nthe demo failed: {error}", file=sys.stderr)
        return 1
    finally:
        clean_up(stack)
    print()
    say("everything is taken down again\n"
        "Read on: README.md, docs/architecture.md, docs/states.md.\n"
        "All tests: sudo make check")
    return 0


if __name__ == "__main__":
    sys.exit(main())
