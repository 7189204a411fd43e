# SPDX-License-Identifier: Apache-2.0
"""A disk of the node into a running VM and out again: by crustd, and by hand in the same VM.

Two loop devices, each with an ext4; crustd is asked for one of them, the other is attached by hand, in turn.
The clock starts before the client's AttachDrive and stops when that is answered: the guest has mounted the
disk, and what the mount wrote is on it. DetachDrive likewise. By hand means what crustd does to the VM, one
step after another, by a small Python client: the device opened for nobody else, add-fd, object-add of the
throttle group by which limits can be set later, blockdev-add three times, device_add, MountDrive of the same
agent in the guest, which syncs; then UnmountDrive, device_del until DEVICE_DELETED, blockdev-del three times,
object-del, remove-fd. It is connected to monitor and agent before the clock starts, looks for no other user of
the disk, and writes nothing down.

The agent has a serial port, which takes one client after another and needs a moment in between. So one
connection to it stays, and the tap in front lets crustd and the client by hand use it in turn, as if they
came by vsock.
"""

import base64
import contextlib
import dataclasses
import importlib
import os
import pathlib
import secrets
import select
import socket
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name)
                for name in ("e2e", "fakes")]

import agent  # noqa: E402
from agent import field  # noqa: E402
from agent_tap import AgentTap  # noqa: E402
from crowd import Daemon  # noqa: E402
from disks import LoopDevice, make_filesystem  # noqa: E402
from drive_agent import SERVICE  # noqa: E402
from grpc_client import SECONDS, socket_of  # noqa: E402
from guest_image import build_image  # noqa: E402
from guestvm import GuestVM  # noqa: E402
from http2_client import (DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, Http2,  # noqa: E402
                          frame, message, request_fields)
from node import BUILD  # noqa: E402
from programs import GuestError  # noqa: E402

MIB = 1 << 20
SIZE = 64 * MIB
RUNS, CYCLES = 3, 50
PAUSE = 0.05
AGENT_PORT, COMPANION_PORT = 1024, 1030


@dataclasses.dataclass
class Times:
    """Of one attach, in milliseconds, and of the detach after it."""

    asked: float  # until MountDrive was called in the guest
    mounting: float  # from then until it was answered
    attached: float  # until all was done
    detached: float


class KeptLine:
    """A connection to the agent that stays when its user goes. One user at a time."""

    def __init__(self, path):
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(str(path))
        self.wake, self.woken = socket.socketpair()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.woken.recv(1)

    def sendall(self, data):
        self.line.sendall(data)

    def recv(self, size):
        """Nothing, once the user has gone."""
        readable, _, _ = select.select([self.line, self.woken], [], [])
        return b"" if self.woken in readable else self.line.recv(size)

    def shutdown(self, _):
        self.wake.sendall(b"\0")

    def close(self):
        for one in (self.line, self.wake, self.woken):
            one.close()


class ByHand:
    """The steps on the VM, without anything around them."""

    FILE, RAW, GROUP, THROTTLE, DEVICE = "bench-file", "bench-raw", "bench-group", "bench-throttle", "bench"
    CACHE = {"direct": True, "no-flush": False}
    VM_PATH = "/mnt/by-hand"

    def __init__(self, vm, tap, loop):
        self.vm, self.tap, self.loop = vm, tap, loop
        self.serial = self.set = None

    def attach(self):
        """When it began and ended."""
        self.serial = "crust-" + base64.b32encode(secrets.token_bytes(10)).decode().lower()[:14]
        with self._agent() as connection:
            started = time.monotonic()
            self._plug()
            self._call(connection, "MountDrive", field(3, SIZE) + field(5, self.VM_PATH) + field(6, "ext4")
                       + field(7, "noatime"))
            return started, time.monotonic()

    def detach(self):
        with self._agent() as connection:
            started = time.monotonic()
            self._call(connection, "UnmountDrive", b"")
            self._unplug()
            return started, time.monotonic()

    def _plug(self):
        with open(self.loop.device, "r+b", buffering=0, opener=exclusively) as file:
            self.vm.qmp_client.send_descriptor(file)
            self.set = self.vm.qmp("add-fd", opaque="bench")["fdset-id"]
        self.vm.qmp("object-add", qom_type="throttle-group", id=self.GROUP)
        self.vm.qmp("blockdev-add", driver="host_device", node_name=self.FILE, cache=self.CACHE,
                    filename=f"/dev/fdset/{self.set}")
        self.vm.qmp("blockdev-add", driver="raw", node_name=self.RAW, cache=self.CACHE, file=self.FILE)
        self.vm.qmp("blockdev-add", driver="throttle", node_name=self.THROTTLE, throttle_group=self.GROUP,
                    cache=self.CACHE, file=self.RAW)
        self.vm.qmp("device_add", driver="scsi-hd", id=self.DEVICE, bus="scsi0.0", drive=self.THROTTLE,
                    serial=self.serial)

    def _unplug(self):
        self.vm.qmp("device_del", id=self.DEVICE)
        self.vm.qmp_client.wait_event("DEVICE_DELETED", device=self.DEVICE)
        for node in (self.THROTTLE, self.RAW, self.FILE):
            self.vm.qmp("blockdev-del", node_name=node)
        self.vm.qmp("object-del", id=self.GROUP)
        self.vm.qmp("remove-fd", fdset_id=self.set)

    def _agent(self):
        return contextlib.closing(agent.connect(self.tap.path, COMPANION_PORT))

    def _call(self, connection, method, payload):
        code, message, _ = agent.call(connection, method, field(1, "by-hand") + field(2, self.serial) + payload,
                                      service=SERVICE)
        if code:
            raise GuestError(f"{method} by hand: {message}")


class ByCrustd:
    """A client of crust.drive.v1 that is connected before the clock starts. It speaks HTTP/2 itself, because the threads
    of grpcio take a millisecond of each call."""

    DRIVE = "by-crustd"

    def __init__(self, path, sandbox_id, loop):
        messages = importlib.import_module("crust_drive_v1_pb2")
        self.path = path
        self.attach_request = messages.AttachDriveRequest(
            drive_id=self.DRIVE, sandbox_id=sandbox_id, host_path=loop.device, vm_path="/mnt/by-crustd",
            filesystem_type="ext4", options=["noatime"], is_writable=True)
        self.detach_request = messages.DetachDriveRequest(drive_id=self.DRIVE)

    def attach(self):
        """When it began and ended."""
        return self._call("AttachDrive", self.attach_request)

    def detach(self):
        return self._call("DetachDrive", self.detach_request)

    def _call(self, method, request):
        call = (frame(HEADERS, END_HEADERS, 1, request_fields(f"/crust.drive.v1.Drives/{method}"))
                + frame(DATA, END_STREAM, 1, message(request.SerializeToString())))
        with Http2(self.path, SECONDS) as client:
            client.begin()
            client.wait_for(SETTINGS)
            started = time.monotonic()
            client.send(call)
            said, _ = client.answer(1)
            ended = time.monotonic()
        if said.get("grpc-status") != "0":
            raise GuestError(f"{method}: {said.get('grpc-message', said)}")
        return started, ended


def exclusively(path, flags):
    return os.open(path, flags | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC)


class Guest:
    """The VM, its two disks, the tap, crustd, and both ways of attaching."""

    def __init__(self, scratch, stack):
        loops = [stack.enter_context(LoopDevice(scratch / f"disk-{number}", SIZE)) for number in range(2)]
        for loop in loops:
            make_filesystem("ext4", loop.device)
        self.node = stack.enter_context(Daemon(scratch, {
            "drives.enabled": "on", "drives.host_prefixes": "/dev", "resize.sweep_seconds": 60}))
        sandbox_id = secrets.token_hex(32)
        self.vm = stack.enter_context(GuestVM(
            scratch, build_image(BUILD / "guest", BUILD / "crust-guest-agent"), sandbox_id=sandbox_id,
            vm_dir=self.node.vm_dir(sandbox_id), extra_monitor="qmp"))
        self.vm.wait_ready()
        line = stack.enter_context(contextlib.closing(KeptLine(self.vm.agent_socket)))
        self.tap = stack.enter_context(contextlib.closing(
            AgentTap(self.node.root / "agent.hvsock", {COMPANION_PORT: lambda: line})))
        self._start_daemon(sandbox_id, loops[0])
        self.ways = (ByCrustd(socket_of(self.node), sandbox_id, loops[0]),
                     ByHand(self.vm, self.tap, loops[1]))

    def _start_daemon(self, sandbox_id, loop):
        self.node.add_device(loop.device)
        self.node.add_sandbox(sandbox_id, self.vm.pid, agent=f"hvsock:///agent.hvsock:{AGENT_PORT}")
        self.node.start()
        self.node.wait(lambda: self.node.query("SELECT 1 FROM audit_sandboxes WHERE status = 'alive'"),
                       SECONDS, "the sandbox")

    def _cycle(self, way):
        mark = self.tap.mark()
        began, attached = way.attach()
        mount = self.tap.wait_answer(mark, "MountDrive")
        time.sleep(PAUSE)
        leaving, detached = way.detach()
        time.sleep(PAUSE)
        return Times(*(seconds * 1000 for seconds in (
            mount.asked - began, mount.answered - mount.asked, attached - began, detached - leaving)))

    def run(self):
        """The Times of each cycle: by crustd, by hand."""
        samples = [], []
        for _ in range(CYCLES):
            for measured, way in zip(samples, self.ways):
                measured.append(self._cycle(way))
        return samples


def measure(scratch, stack):
    """Runs of Times: by crustd, by hand. The stubs of gRPC have been made."""
    guest = Guest(scratch, stack)
    return tuple(zip(*(guest.run() for _ in range(RUNS))))
