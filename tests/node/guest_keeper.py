# SPDX-License-Identifier: Apache-2.0
"""guest_keeper.py SPECIFICATION - runs in a node: a sandbox as Kata's Go runtime leaves it, its VM on KVM.

The specification is JSON: id, cid, control (a socket's path), kernel, initramfs, program (crust-qemu in QEMU's place, or
null), extra_monitor (what Kata's enable_debug gives a QEMU that nothing is in the place of), stock and volumes, each with
path (the publish path), device and filesystem (null: a raw device, which nobody stages or mounts). A stock guest has the stand-in for kata-agent and a directory that it shares
with the node, and no crust-guest-agent.

It boots the guest with the volumes in it, writes what a CSI driver and the runtime write, holds QEMU's main monitor as the
shim does, and answers on the control socket until it is killed: one JSON request per connection, [method, arguments...],
answered by {"answer": ...} or {"error": ...}.
"""

import json
import os
import pathlib
import signal
import socket
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "e2e"))

from disks import Disk  # noqa: E402
from guest_image import GuestImage  # noqa: E402
from guestvm import GuestVM  # noqa: E402
from node import Node as ScratchNode  # noqa: E402
from programs import GuestError  # noqa: E402

AGENT_PORT, COMPANION_PORT = 1024, 1030
PATTERN_BYTES = 1 << 20
SHARED = "/run/kata-containers/shared/sandboxes"


class ThisNode(ScratchNode):
    """Writes the same files as a scratch node has, on the node that this runs on."""

    def __init__(self):  # pylint: disable=super-init-not-called
        self.root = pathlib.Path("/")


class Sandbox:
    """The guest and its records."""

    def __init__(self, specification, scratch):
        self.id, self.cid = specification["id"], specification["cid"]
        self.volumes = specification["volumes"]
        self.staged = specification["staged"]
        self.disks = [Disk(volume["device"], filesystem=volume["filesystem"])
                      for volume in self.volumes]
        self.node = ThisNode()
        image = GuestImage(pathlib.Path(specification["kernel"]),
                           pathlib.Path(specification["initramfs"]))
        options = {"agents": [("--listen", f"vsock://{COMPANION_PORT}")]}
        if specification["stock"]:
            share = pathlib.Path(SHARED, self.id, "mounts")
            share.mkdir(parents=True)
            options = {"agents": [("/sbin/kata-agent", f"vsock:{AGENT_PORT}")], "share": share,
                       "cgroups": True}
        self.vm = GuestVM(scratch, image, self.disks, sandbox_id=self.id,
                          vm_dir=self.node.vm_dir(self.id), **self.monitor(specification),
                          accelerator="kvm", vsock_cid=self.cid, **options)

    @staticmethod
    def monitor(specification):
        program = specification["program"]
        return {"program": [program]} if program else {"extra_monitor": specification["extra_monitor"]}

    def publish(self):
        """In the order of a pod's start: the CSI driver, the guest, the runtime's records."""
        for volume in self.volumes if not self.staged else ():
            os.makedirs(volume["path"], exist_ok=True)
            self.node.stage(volume["path"], volume["device"], fstype=volume["filesystem"])
        self.vm.wait_ready(600)
        for volume, disk in zip(self.volumes, self.disks):
            if not disk.filesystem:
                continue
            self.node.record(volume["path"], self.id)
            self.vm.guest_write(f"{disk.mount_point}/pattern", PATTERN_BYTES)
        drives = [{"device": volume["device"], "id": disk.node_name, "address": disk.address}
                  for volume, disk in zip(self.volumes, self.disks)]
        self.node.add_sandbox(self.id, self.vm.pid, drives=drives,
                              agent=f"vsock://{self.cid}:{AGENT_PORT}")

    def answer(self, method, *arguments):
        return getattr(self, "do_" + method)(*arguments)

    def do_sizes(self, number):
        """Of the disk, and of the file system on it."""
        disk = self.disks[number]
        return [self.vm.guest_blocksize(disk), self.vm.guest_size(disk.mount_point)]

    def do_disk_bytes(self, number):
        return self.vm.guest_blocksize(self.disks[number])

    def do_freeze(self, number):
        """Writers to the file system wait, and so does its resize."""
        self.vm.freeze(self.disks[number].mount_point)

    def do_thaw(self, number):
        self.vm.thaw(self.disks[number].mount_point)

    def do_signal_agents(self, name):
        return self.vm.signal_agents(getattr(signal, name))

    def do_console(self):
        return self.vm.console()

    def do_ended(self):
        """What QEMU ended with, if it has."""
        return self.vm.process.poll()

    def do_count(self, directory, prefix):
        return self.vm.guest_count(directory, prefix)

    def do_write(self, path, size):
        self.vm.guest_write(path, size)

    def do_file_system_bytes(self, path):
        return self.vm.guest_size(path)

    def do_verify(self, number):
        self.vm.guest_verify(f"{self.disks[number].mount_point}/pattern", PATTERN_BYTES)


def tell_systemd(state):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
        notifications.sendto(state.encode(), os.environ["NOTIFY_SOCKET"])


def serve(sandbox, path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        tell_systemd("READY=1")
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                try:
                    answer = {"answer": sandbox.answer(*json.loads(stream.readline()))}
                except (GuestError, OSError) as error:
                    answer = {"error": str(error)}
                stream.write(json.dumps(answer) + "\n")


def main():
    specification = json.loads(pathlib.Path(sys.argv[1]).read_text())
    with tempfile.TemporaryDirectory(prefix="sandbox-") as scratch:
        sandbox = Sandbox(specification, scratch)
        with sandbox.vm:
            sandbox.publish()
            serve(sandbox, specification["control"])


if __name__ == "__main__":
    main()
