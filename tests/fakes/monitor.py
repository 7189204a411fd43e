# SPDX-License-Identifier: Apache-2.0
"""monitor.py - a QEMU monitor without a QEMU: QMP on a unix socket.

It answers what crustd asks and resizes its drives the way QEMU 7.2 does: over host_device the size
becomes the device's real one (asking for more is refused), over file it becomes what was asked for.
Sizes are real: lseek(2) on the device or file. Hooks make it slow, silent, torn or refusing.

In a test:

    with FakeMonitor(path, drives=[Drive("drive-0123456789abcdef", "/dev/loop0")]) as m:
        m.refuse = "Image is read-only"
        ...
        assert m.sent("block_resize")

As a program, until it is terminated:

    monitor.py --socket P --device /dev/loop0 --node drive-0123456789abcdef [--size N]
               [--pid-file F] [--log F]
"""

import argparse
import dataclasses
import json
import os
import stat
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from unix_server import HangUp, UnixServer, append_to, stop_signals  # noqa: E402


@dataclasses.dataclass
class Drive:
    """One frontend with a raw root node over a protocol node."""

    node: str
    file: str  # as reported: a path, a link, or /dev/fdset/N (then `path` says what it is)
    path: str | None = None  # where the size is read; None: file
    size: int | None = None  # what the monitor believes; None: the real size at the start
    read_only: bool = False
    driver: str | None = None  # of the protocol node; None: host_device or file, as the path is
    root_driver: str = "raw"
    descriptor: int | None = None  # of /dev/fdset/N in the VMM's process

    def __post_init__(self):
        self.path = self.path or self.file
        if self.size is None:
            self.size = self.real_size()
        if self.driver is None:
            is_block = stat.S_ISBLK(os.stat(self.path).st_mode)
            self.driver = "host_device" if is_block else "file"

    def real_size(self):
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.lseek(fd, 0, os.SEEK_END)
        finally:
            os.close(fd)

    def resize(self, size):
        """Returns why not, or None."""
        if self.read_only:
            return "Image is read-only"
        if self.driver == "host_device":
            if size > self.real_size():
                return "Cannot grow device files"
            self.size = self.real_size()
        else:
            os.truncate(self.path, size)
            self.size = size
        return None

    def nodes(self):
        """(name, driver) of the root and of the protocol node."""
        return [(self.node, self.root_driver), (f"#block-{self.node}"[:31], self.driver)]


@dataclasses.dataclass
class Command:
    at: float  # time.monotonic()
    name: str
    arguments: dict


class FakeMonitor(UnixServer):
    """Serves one client at a time, as a monitor does; others wait in a queue of one.

    Hooks, which may be changed at any time:
      silent     no greeting (the monitor is held by another client)
      delay      seconds before each answer
      split      bytes per write; 0: all at once
      close_at   hang up instead of answering the n-th command (0: instead of greeting); None: never
      garbage    (n, bytes): in place of the n-th answer (0: of the greeting); None: never
      silent_at  no answer from the n-th command on; None: all are answered
      refuse     why every resize is refused; None: none is
      events     events sent before each answer
      status     of the VM: running, paused, io-error
    """

    backlog = 1

    def __init__(self, socket_path, drives=(), log=None):
        super().__init__(socket_path, log)
        self.drives = list(drives)
        self.silent = False
        self.delay = 0.0
        self.split = 0
        self.close_at = None
        self.garbage = None
        self.silent_at = None
        self.refuse = None
        self.events = []
        self.status = "running"

    # what tests ask

    def sent(self, name):
        """The commands received so far whose name begins with `name`."""
        return self.matching(lambda command: command.name.startswith(name))

    def wait_for(self, name, count=1, timeout=60):
        """The same, once there are `count` of them."""
        return self.wait_matching(lambda command: command.name.startswith(name), count, timeout)

    def drive(self, node):
        return next((d for d in self.drives if d.node == node), None)

    # the conversation

    def _admit(self, client):
        self._serve(client)

    def _talk(self, client):
        if self.silent:
            while client.recv(4096):
                pass
            return
        if self.close_at == 0:
            raise HangUp
        self._reply(client, 0, self._greeting())
        pending = b""
        count = 0
        while data := client.recv(4096):
            pending += data
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                if not line.strip():
                    continue
                count += 1
                answer = self._answer(line.decode().strip())
                if self.close_at == count:
                    raise HangUp
                self._reply(client, count, answer)

    def _reply(self, client, number, answer):
        if self.garbage and self.garbage[0] == number:
            client.sendall(self.garbage[1])
        elif self.silent_at is None or number < self.silent_at:
            self._delay(self.delay)
            self._send(client, answer.encode(), self.split)

    def _greeting(self):
        version = {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "fake"}
        return json.dumps({"QMP": {"version": version, "capabilities": ["oob"]}}) + "\r\n"

    def _resize(self, node, size):
        drive = self.drive(node)
        if self.refuse is not None:
            return self.refuse
        if drive is None:
            return f"Cannot find device='' nor node-name='{node}'"
        return drive.resize(size)

    def _answer(self, line):
        request = json.loads(line)
        name, arguments = request["execute"], request.get("arguments", {})
        self._record(Command(time.monotonic(), name, arguments))
        reply = {}
        if "id" in request:
            reply["id"] = request["id"]
        method = getattr(self, "_qmp_" + name.replace("-", "_"), None)
        if method is None:
            reply["error"] = {"class": "CommandNotFound",
                              "desc": f"The command {name} has not been found"}
        else:
            try:
                reply["return"] = method(arguments)
            except RuntimeError as error:
                reply["error"] = {"class": "GenericError", "desc": str(error)}
        stamp = {"timestamp": {"seconds": 1, "microseconds": 0}}
        events = "".join(json.dumps({**stamp, **event}) + "\r\n" for event in self.events)
        return events + json.dumps(reply) + "\r\n"

    @staticmethod
    def _info(drive, name, driver):
        return {"node-name": name, "drv": driver, "file": drive.file, "ro": drive.read_only,
                "image": {"virtual-size": drive.size, "filename": drive.file, "format": driver}}

    def _qmp_qmp_capabilities(self, _):
        return {}

    def _qmp_query_status(self, _):
        return {"status": self.status, "singlestep": False, "running": self.status == "running"}

    def _qmp_query_block(self, _):
        return [{"device": "", "qdev": drive.node, "type": "unknown", "io-status": "ok",
                 "inserted": self._info(drive, drive.node, drive.root_driver)}
                for drive in self.drives]

    def _qmp_query_named_block_nodes(self, _):
        return [self._info(drive, *node) for drive in self.drives for node in drive.nodes()]

    def _qmp_query_fdsets(self, _):
        return [{"fdset-id": int(drive.file.rsplit("/", 1)[1]),
                 "fds": [{"fd": drive.descriptor,
                          "opaque": f"kata-block:{drive.node}:block-source"}]}
                for drive in self.drives if drive.descriptor is not None]

    def _qmp_block_resize(self, arguments):
        problem = self._resize(arguments.get("node-name", ""), arguments["size"])
        if problem:
            raise RuntimeError(problem)
        return {}


def main():
    parser = argparse.ArgumentParser(description="A QEMU monitor without a QEMU.")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--device", required=True, help="block device or file of the drive")
    parser.add_argument("--node", required=True, help="node name of the drive")
    parser.add_argument("--size", type=int, help="what the VMM believes at first; else the real size")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--refuse", help="why every resize is refused")
    parser.add_argument("--silent", action="store_true", help="never greet")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--pid-file")
    parser.add_argument("--log", type=append_to, default=sys.stdout,
                        help="received commands, one JSON object per line; else stdout")
    arguments = parser.parse_args()

    stopped = stop_signals()
    drive = Drive(arguments.node, arguments.device, size=arguments.size,
                  read_only=arguments.read_only)
    monitor = FakeMonitor(arguments.socket, [drive], arguments.log)
    monitor.refuse = arguments.refuse
    monitor.silent = arguments.silent
    monitor.delay = arguments.delay
    with monitor:
        if arguments.pid_file:
            with open(arguments.pid_file, "w", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
        stopped.wait()


if __name__ == "__main__":
    main()
