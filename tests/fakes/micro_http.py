# SPDX-License-Identifier: Apache-2.0
"""micro_http.py - the HTTP server that Cloud Hypervisor and Firecracker share, without either.

It serves one unix socket the way theirs does: ten connections, an eleventh is told 503 and closed;
one request at a time; connections stay open after an answer; a request or header line has less than
1024 bytes; a client that shuts down its sending side loses the answer. Hooks make it slow, torn,
silent or talkative.
"""

import dataclasses
import json
import os
import stat
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from unix_server import HangUp, UnixServer, append_to, stop_signals  # noqa: E402

FULL = (b"HTTP/1.1 503\r\nServer: Firecracker API\r\nConnection: close\r\nContent-Length: 40\r\n\r\n"
        b'{ "error": "Too many open connections" }')


@dataclasses.dataclass
class Request:
    at: float  # time.monotonic()
    method: str
    target: str
    body: str


class Disk:
    """A drive of the VMM, which holds its file open as a VMM does."""

    def __init__(self, disk_id, path, read_only=False, serial=None):
        self.id = disk_id
        self.path = os.fspath(path)
        self.read_only = read_only
        self.serial = serial
        self.limits = None
        self.slot = 0  # on the PCI bus; 0: by its place among the others
        self._fd = -1
        self.reopen()

    def reopen(self):
        """Takes what the path leads to now; the guest is told of its size."""
        fd = os.open(self.path, (os.O_RDONLY if self.read_only else os.O_RDWR) | os.O_CLOEXEC)
        self.close()
        self._fd = fd
        self.size = self.real_size()

    def close(self):
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def real_size(self):
        return os.lseek(self._fd, 0, os.SEEK_END)

    def is_block_device(self):
        return stat.S_ISBLK(os.fstat(self._fd).st_mode)

    def truncate(self, size):
        os.ftruncate(self._fd, size)


class MicroHttp(UnixServer):
    """Answers by `answer(method, target, body)`, which a VMM brings: (status, object or text).

    Hooks, which may be changed at any time; the n-th request counts from 1:
      delay      seconds before each answer
      split      bytes per write; 0: all at once
      close_at   hang up in the middle of the n-th answer; None: never
      silent_at  no answer from the n-th request on; None: all are answered
      close_on, silent_on   the same for every request of this method ("PUT"); None: for none
      garbage    (n, bytes): in place of the n-th answer; None: never
      padding    spaces after each body, to make it too long
      full       tell every client that the server is full
      refuse     (status, body) for every request that would change something; None
    """

    server = "Cloud Hypervisor API"
    max_connections = 10
    max_line = 1024

    def __init__(self, socket_path, log=None):
        super().__init__(socket_path, log)
        self.delay = 0.0
        self.split = 0
        self.close_at = None
        self.silent_at = None
        self.close_on = None
        self.silent_on = None
        self.garbage = None
        self.padding = 0
        self.full = False
        self.refuse = None
        self._turn = threading.Lock()

    # what tests ask

    def sent(self, method, target=""):
        """The requests received so far with this method whose target begins with `target`."""
        return self.matching(lambda r: r.method == method and r.target.startswith(target))

    def wait_for(self, method, target="", count=1, timeout=60):
        """The same, once there are `count` of them."""
        return self.wait_matching(lambda r: r.method == method and r.target.startswith(target),
                                  count, timeout)

    # the conversation

    def _admit(self, client):
        if self.full or len(self._clients) > self.max_connections:
            self._turn_away(client)
        else:
            super()._admit(client)

    def _turn_away(self, client):
        self._clients.discard(client)
        with client:
            try:
                client.sendall(FULL)
            except OSError:
                pass

    def _talk(self, client):
        pending = b""
        while data := client.recv(4096):
            pending += data
            while (split := self._take(pending)) is not None:
                request, pending = split
                with self._turn:
                    self._reply(client, *request)

    def _take(self, pending):
        """The first whole request and what follows it; None: more is to come."""
        head, separator, rest = pending.partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.split(b"\r\n")
        if any(len(line) >= self.max_line for line in lines):
            raise ValueError("a line is too long")
        method, target, _ = lines[0].decode().split(" ", 2)
        length = 0
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        if len(rest) < length:
            return None
        return (method, target, rest[:length].decode()), rest[length:]

    def _reply(self, client, method, target, body):
        number = self._record(Request(time.monotonic(), method, target, body))
        if method == self.silent_on or (self.silent_at is not None and number >= self.silent_at):
            return
        if self.refuse and method != "GET":
            status, answer = self.refuse
        else:
            status, answer = self.answer(method, target, body)
        data = self._encode(status, answer)
        if self.garbage and self.garbage[0] == number:
            data = self.garbage[1]
        self._delay(self.delay)
        if self.close_at == number or self.close_on == method:
            client.sendall(data[:len(data) // 2])
            raise HangUp
        self._send(client, data, self.split)

    def _encode(self, status, answer):
        head = f"HTTP/1.1 {status} \r\nServer: {self.server}\r\nConnection: keep-alive\r\n"
        if answer is None:
            return (head + "\r\n").encode()
        body = answer if isinstance(answer, str) else json.dumps(answer)
        body += " " * self.padding
        return (head + "Content-Type: application/json\r\n"
                f"Content-Length: {len(body.encode())}\r\n\r\n{body}").encode()

    def answer(self, method, target, body):
        raise NotImplementedError


def add_arguments(parser):
    """Those of every VMM that is a program; `log` becomes an open file."""
    parser.add_argument("--device", required=True)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--split", type=int, default=0, help="bytes per write")
    parser.add_argument("--full", action="store_true", help="503 for every client")
    parser.add_argument("--silent-at", type=int, help="no answer from this request on")
    parser.add_argument("--obey", action="store_true",
                        help="hooks come from stdin, which ends it: UnixServer.obey()")
    parser.add_argument("--log", type=append_to, default=sys.stdout,
                        help="received requests, one JSON object per line; else stdout")


def run(vmm, arguments):
    """Serves as those arguments say, until it is terminated."""
    stopped = stop_signals()
    vmm.delay, vmm.split = arguments.delay, arguments.split
    vmm.full, vmm.silent_at = arguments.full, arguments.silent_at
    with vmm:
        if arguments.obey:
            vmm.obey(sys.stdin, sys.stdout)
        else:
            stopped.wait()
