# SPDX-License-Identifier: Apache-2.0
"""A stock Kata guest for tests: nothing of ours in it, a stand-in for kata-agent (tests/guest/kata_agent) that
really runs containers, and a directory that host and guest share.

    with KataGuest(scratch, image, share, disks) as guest:
        guest.vm.wait_ready()
        place(share / "crust-1", helper)
        client = guest.client()
        client.run(Container("crust-1", ["--once", disk.mount_point]))

The agent is reached at guest.relay.socket_path, by as many clients as there are: a relay carries each to a port of the
guest's. On KVM it listens on vsock, like the real one.
"""

import dataclasses
import os
import pathlib
import shutil
import socket
import stat
import sys
import threading

from guestvm import KATA_SHARED, VIRTIOFSD, GuestVM
from programs import Closing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fakes"))
import agent as ttrpc  # noqa: E402  pylint: disable=wrong-import-position

AGENT_PORT = 1024
HELPER = "agent"  # what the program is called in its directory
ROOT_DIRECTORIES = ("proc", "sys", "dev", "vol")
ORDINARY = ("CAP_SYS_RESOURCE", "CAP_SYS_ADMIN")
FOR_DRIVES = (*ORDINARY, "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SYS_CHROOT",
              "CAP_SYS_PTRACE")
CALL_SECONDS = 120
OK, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, INTERNAL = 0, 3, 5, 12, 13


def missing_parts():
    """What this machine lacks to run it; empty if nothing."""
    return [] if os.access(VIRTIOFSD, os.X_OK) else [VIRTIOFSD]


class Relay(ttrpc.UnixServer):
    """Carries each connection to a unix socket on to a TCP port, and its end in either direction."""

    def __init__(self, path, target):
        super().__init__(path)
        self.target = target
        self.start()

    def _talk(self, client):
        with socket.create_connection(self.target) as guest:
            back = threading.Thread(target=self._carry, args=(guest, client), daemon=True)
            back.start()
            self._carry(client, guest)
            back.join()

    @staticmethod
    def _carry(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):  # ttrpc knows no half of a connection
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class KataGuest(Closing):
    """A guest and the way to its agent. share: a directory, or None for a guest that has none. Options
    are those of GuestVM, and the stand-in's own."""

    def __init__(self, scratch, image, share, disks=(), *, agent_options=(), cgroups=True, **options):
        self.share, self.relay = share, None
        if share:
            self.share.mkdir(parents=True, exist_ok=True)
        agent = ("/sbin/kata-agent", f"tcp:{AGENT_PORT}", *agent_options)
        self.vm = GuestVM(scratch, image, disks, agents=[agent], share=self.share, tcp_port=AGENT_PORT,
                          cgroups=cgroups, **options)
        try:
            self.relay = Relay(pathlib.Path(scratch) / f"kata-{self.vm.sandbox_id[:12]}.sock",
                               self.vm.tcp_address())
        except BaseException:
            self.vm.stop()
            raise

    def client(self):
        return Client(self.relay.socket_path)

    def close(self):
        self.relay.close()
        self.vm.stop()


# ---- the exchange, by hand


def place(directory, program):
    """A container's root in the share."""
    directory.mkdir()
    shutil.copy(program, directory / HELPER)


@dataclasses.dataclass
class Container:
    """What CreateContainer is asked for, as crustd asks; each part can be changed or left out."""

    id: str
    arguments: list = dataclasses.field(default_factory=list)
    root: str = None
    path: str = None  # of the program, in the guest
    capabilities: tuple | None = ORDINARY
    namespaces: tuple = ("ipc", "uts", "pid=/proc/1/ns/pid")
    process: bool = True
    # As crustd 0.2 asked: mounts in a mount namespace, in which the path is, and a disk
    volumes: list = dataclasses.field(default_factory=list)
    own_mounts: tuple = ()
    storage: "Storage | None" = None

    MOUNTS = {"proc": ("proc", ["nosuid", "noexec", "nodev"]),
              "sys": ("sysfs", ["nosuid", "noexec", "nodev", "ro"]),
              "dev": ("tmpfs", ["nosuid", "noexec", "mode=755", "size=65536k"]),
              "vol": ("tmpfs", ["nosuid", "noexec", "nodev", "mode=755", "size=64k"])}

    def encode(self):
        field, message = ttrpc.field, ttrpc.submessage
        spec = field(1, "1.0.2")
        if self.process:
            spec += message(2, self._process())
        spec += message(3, field(1, self.root or f"{KATA_SHARED}/{self.id}") + field(2, 1))
        for name in self.own_mounts:
            kind, options = self.MOUNTS[name]
            spec += message(5, self._mount(f"/{name}", kind, kind, options))
        for number, path in enumerate(self.volumes):
            spec += message(5, self._mount(f"/vol/{number}", path, "bind", ["bind", "rw"]))
        linux = field(5, f"/{self.id}")
        linux += b"".join(message(6, field(1, name) + (field(2, path) if path else b""))
                          for name, _, path in (one.partition("=") for one in self.namespaces))
        storage = message(5, self.storage.encode()) if self.storage else b""
        return (field(1, self.id) + field(2, self.id) + storage
                + message(6, spec + message(8, linux)))

    def _process(self):
        field, message = ttrpc.field, ttrpc.submessage
        process = message(3, b"")
        process += b"".join(field(4, word) for word in [
            self.path or f"{KATA_SHARED}/{self.id}/{HELPER}", *self.arguments])
        process += field(6, "/") + field(9, 1)
        if self.capabilities is not None:
            process += message(7, b"".join(field(kind, name) for kind in (1, 2, 3, 4)
                                           for name in self.capabilities))
        return process

    @staticmethod
    def _mount(destination, source, kind, options):
        return (ttrpc.field(1, destination) + ttrpc.field(2, source) + ttrpc.field(3, kind)
                + b"".join(ttrpc.field(4, option) for option in options))


@dataclasses.dataclass
class Storage:
    """A SCSI disk that the agent mounts, at its address."""

    source: str  # "ID:LUN"
    mount_point: str
    filesystem: str = "ext4"
    options: tuple = ("nodev", "nosuid")
    group: int | None = None

    def encode(self):
        field = ttrpc.field
        group = b"" if self.group is None else ttrpc.submessage(7, field(2, self.group))
        return (field(1, "scsi") + field(3, self.source) + field(4, self.filesystem)
                + b"".join(field(5, option) for option in self.options)
                + field(6, self.mount_point) + group)


class AgentError(Exception):
    """A call that was refused."""

    def __init__(self, method, code, text):
        super().__init__(f"{method}: {code}: {text}")
        self.method, self.code, self.text = method, code, text


class Client(Closing):
    """One connection to the agent. Each call is a method; what is refused raises AgentError."""

    def __init__(self, path, hybrid_vsock=None):
        self.connection = ttrpc.connect(str(path), hybrid_vsock)
        self.connection.settimeout(CALL_SECONDS)
        self.stream = -1

    def call(self, method, payload):
        self.stream += 2
        code, text, answer = ttrpc.call(self.connection, method, payload, self.stream)
        if code:
            raise AgentError(method, code, text)
        return answer

    def create(self, container):
        self.call("CreateContainer", container.encode())

    def start(self, name):
        self.call("StartContainer", ttrpc.field(1, name))

    def read(self, name, method="ReadStdout", size=32768):
        """One answer: what there is, b"" at the end."""
        payload = ttrpc.field(1, name) + ttrpc.field(2, name) + ttrpc.field(3, size)
        return ttrpc.first(ttrpc.fields(self.call(method, payload)), 1, b"")

    def read_all(self, name, method="ReadStdout"):
        parts = []
        while part := self.read(name, method):
            parts.append(part)
        return b"".join(parts).decode()

    def wait(self, name):
        answer = self.call("WaitProcess", ttrpc.field(1, name) + ttrpc.field(2, name))
        return ttrpc.first(ttrpc.fields(answer), 1, 0)

    def signal(self, name, number):
        self.call("SignalProcess", ttrpc.field(1, name) + ttrpc.field(2, name) + ttrpc.field(3, number))

    def remove(self, name):
        self.call("RemoveContainer", ttrpc.field(1, name))

    def copy(self, path, data, piece=1 << 20):
        """A file into the guest, which shares none with its host."""
        for offset in range(0, len(data) or 1, piece):
            self.call("CopyFile", ttrpc.field(1, path) + ttrpc.field(2, len(data))
                      + ttrpc.field(3, stat.S_IFREG | 0o755) + ttrpc.field(4, 0o755)
                      + ttrpc.field(7, offset) + ttrpc.field(8, data[offset:offset + piece]))

    def run(self, container):
        """The whole exchange; (exit status, standard output, standard error)."""
        self.create(container)
        try:
            self.start(container.id)
            output, errors = self.read_all(container.id), self.read_all(container.id, "ReadStderr")
            return self.wait(container.id), output, errors
        finally:
            self.remove(container.id)

    def close(self):
        self.connection.close()
