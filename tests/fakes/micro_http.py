"""micro_http.py - the HTTP server that Cloud Hypervisor and Firecracker share, without either.

It serves one unix socket the way theirs does: ten connections, an eleventh is told 503 and closed;
one request at a time; connections stay open after an answer; a request or header line has less than
1024 bytes; a client that shuts down its sending side loses the answer. Hooks make it slow, torn,
silent or talkative.
"""

import dataclasses
import json
import os
import socket
import stat
import threading
import time

MAX_CONNECTIONS = 10
MAX_LINE = 1024
FULL = (b"HTTP/1.1 503\r\nServer: Firecracker API\r\nConnection: close\r\nContent-Length: 40\r\n\r\n"
        b'{ "error": "Too many open connections" }')


class HangUp(Exception):
    """The server closes the connection here, as a hook asked for."""


@dataclasses.dataclass
class Request:
    at: float  # time.monotonic()
    method: str
    target: str
    body: str


class Disk:
    """A drive of the VMM, which holds its file open as a VMM does."""

    def __init__(self, disk_id, path, read_only=False):
        self.id = disk_id
        self.path = os.fspath(path)
        self.read_only = read_only
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


class MicroHttp:
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

    def __init__(self, socket_path, log=None):
        self.socket_path = os.fspath(socket_path)
        self.log = log
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
        self.requests = []
        self.connections = 0
        self._clients = set()
        self._threads = []
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._listener = None

    # lifetime

    def bind(self):
        """Below its directory's descriptor, for the path may be longer than sun_path allows."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(os.path.dirname(self.socket_path) or ".", os.O_PATH | os.O_DIRECTORY)
        try:
            name = os.path.basename(self.socket_path)
            self._listener.bind(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
        self._listener.listen(128)

    def start(self):
        if not self._listener:
            self.bind()
        self._spawn(self._accept)
        return self

    def stop(self):
        self._stopping.set()
        for end in (self._listener, *list(self._clients)):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in list(self._threads):
            thread.join()
        self._listener.close()
        try:
            os.unlink(self.socket_path)
        except FileNotFoundError:
            pass

    __enter__ = start

    def __exit__(self, *_):
        self.stop()

    def obey(self, orders, answers):
        """For a fake that is a program: sets hooks, and whatever else the VMM has, from lines of
        JSON objects, until they end. Each is answered with a line once it holds."""
        for line in orders:
            for name, value in json.loads(line).items():
                if not hasattr(self, name):
                    raise AttributeError(name)
                setattr(self, name, value)
            print("obeyed", file=answers, flush=True)

    def _spawn(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    # what tests ask

    def sent(self, method, target=""):
        """The requests received so far with this method whose target begins with `target`."""
        with self._changed:
            return [r for r in self.requests if r.method == method and r.target.startswith(target)]

    def wait_for(self, method, target="", count=1, timeout=60):
        """Waits until that many were received; returns them."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: sum(r.method == method and r.target.startswith(target)
                            for r in self.requests) >= count, timeout)
        if not done:
            raise TimeoutError(f"{method} {target} was not received {count} times")
        return self.sent(method, target)

    # the conversation

    def _accept(self):
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.full or len(self._clients) >= MAX_CONNECTIONS:
                self._turn_away(client)
            else:
                self._clients.add(client)
                self._spawn(self._serve, client)

    @staticmethod
    def _turn_away(client):
        with client:
            try:
                client.sendall(FULL)
            except OSError:
                pass

    def _serve(self, client):
        with client:
            try:
                self._talk(client)
            except (HangUp, OSError, ValueError):
                pass
            finally:
                self._clients.discard(client)

    def _talk(self, client):
        pending = b""
        while data := client.recv(4096):
            pending += data
            while (split := self._take(pending)) is not None:
                request, pending = split
                with self._turn:
                    self._reply(client, *request)

    @staticmethod
    def _take(pending):
        """The first whole request and what follows it; None: more is to come."""
        head, separator, rest = pending.partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.split(b"\r\n")
        if any(len(line) >= MAX_LINE for line in lines):
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
        request = Request(time.monotonic(), method, target, body)
        with self._changed:
            self.requests.append(request)
            number = len(self.requests)
            self._changed.notify_all()
        if self.log:
            print(json.dumps(dataclasses.asdict(request)), file=self.log, flush=True)
        if method == self.silent_on or (self.silent_at is not None and number >= self.silent_at):
            return
        if self.refuse and method != "GET":
            status, answer = self.refuse
        else:
            status, answer = self.answer(method, target, body)
        data = self._encode(status, answer)
        if self.garbage and self.garbage[0] == number:
            data = self.garbage[1]
        if self.delay and self._stopping.wait(self.delay):
            raise HangUp
        if self.close_at == number or self.close_on == method:
            client.sendall(data[:len(data) // 2])
            raise HangUp
        step = self.split or len(data)
        for offset in range(0, len(data), step):
            client.sendall(data[offset:offset + step])

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
