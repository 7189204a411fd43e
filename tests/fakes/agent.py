#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A scripted agent: answers grpc.AgentService over ttrpc as it is told, and remembers what was asked.

    with FakeAgent(f"{scratch}/agent.sock") as agent:
        agent.behave("ResizeVolume", "status:12:resize_volume is not implemented", "ok")
        ...                                   # the first call is refused, all later ones succeed
        agent.wait_for_requests(2)
        agent.requests[0].path, agent.requests[0].size, agent.requests[0].at

    with FakeAgent(f"{scratch}/kata.hvsock", hybrid_vsock=1024) as agent:   # hvsock://PATH:1024
        ...

A behaviour is a text: words separated by commas, the last one says how the call ends.

    ok                   an answer; for GetVolumeStats from agent.stats
    status:CODE:MESSAGE  an error status (google.rpc.Code)
    silent               no answer, the connection stays open
    close                no answer, the connection is closed
    garbage              bytes that are no ttrpc
    truncated            half of the answer, then the connection is closed
    oversize             a header that announces more than 4 MiB
    explicit             ok, with a status that says OK, as ttrpc-rust may send it
    delay=SECONDS        waits first
    split                the answer one byte at a time
    stale                before the answer, half a reply and a whole one to somebody who died

With agent.grows, a ResizeVolume that ends well raises the total of agent.stats to the size asked for;
with agent.each as well, that of its path alone.
As a program it prints each request as a line of JSON: agent.py [--hybrid-vsock PORT] [--behave
METHOD=TEXT]... PATH.
"""

import argparse
import dataclasses
import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from unix_server import UnixServer, stop_signals  # noqa: E402

HEADER = struct.Struct(">IIBB")
REQUEST, RESPONSE = 1, 2
SERVICE = "grpc.AgentService"
BYTES, INODES = 1, 2


# protobuf, as little of it as is needed


def varint(number):
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number, value):
    """One field: an int, or bytes or text. As in proto3, what is zero or empty is left out."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value if value else b""


def submessage(number, value):
    """A message within a message is sent even if it is empty."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def fields(data):
    """{number: [values]}; varints as int, length-delimited fields as bytes."""
    found = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        elif tag & 7 == 2:
            length, at = read_varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            raise ValueError(f"wire type {tag & 7}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def first(found, number, default):
    return found.get(number, [default])[0]


def frame(stream, kind, data):
    return HEADER.pack(len(data), stream, kind, 0) + data


def encode_request(method, payload, stream=1, timeout_nano=0, service=SERVICE):
    return frame(stream, REQUEST, field(1, service) + field(2, method) + field(3, payload)
                 + field(4, timeout_nano))


def encode_response(stream, payload=b"", code=0, message="", explicit=False):
    status = field(1, code) + field(2, message)
    return frame(stream, RESPONSE, (submessage(1, status) if code or explicit else b"")
                 + field(2, payload))


def read_exactly(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def read_line(connection):
    line = b""
    while not line.endswith(b"\n"):
        line += read_exactly(connection, 1)
    return line


def read_frame(connection):
    """(stream id, type, data)"""
    length, stream, kind, _ = HEADER.unpack(read_exactly(connection, HEADER.size))
    return stream, kind, read_exactly(connection, length)


# the client's side, for tests of a real agent


def connect(path, hybrid_vsock=None):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    if hybrid_vsock is not None:
        connection.sendall(b"CONNECT %d\n" % hybrid_vsock)
        line = read_line(connection)
        if not line.startswith(b"OK "):
            raise ConnectionError(line)
    return connection


def call(connection, method, payload, stream=1, timeout_nano=0, service=SERVICE):
    """(code, message, payload) of one call; answers to other streams are skipped."""
    connection.sendall(encode_request(method, payload, stream, timeout_nano, service))
    while True:
        answered, kind, data = read_frame(connection)
        if answered == stream and kind == RESPONSE:
            break
    found = fields(data)
    status = fields(first(found, 1, b""))
    return first(status, 1, 0), first(status, 2, b"").decode(), first(found, 2, b"")


def resize(connection, path, size, **options):
    return call(connection, "ResizeVolume", field(1, path) + field(2, size), **options)


def stats(connection, path, **options):
    """(code, message, {unit: {"available", "total", "used"}})"""
    code, message, payload = call(connection, "GetVolumeStats", field(1, path), **options)
    usage = {}
    for one in fields(payload).get(1, []):
        found = fields(one)
        usage[first(found, 4, 0)] = {"available": first(found, 1, 0), "total": first(found, 2, 0),
                                     "used": first(found, 3, 0)}
    return code, message, usage


# the agent's side


@dataclasses.dataclass
class Stats:
    total: int = 16 << 20  # less than any device of the tests has
    used: int = 1 << 20
    total_inodes: int = 65536
    used_inodes: int = 11
    abnormal: bool = False
    condition: str = "OK"

    def encode(self):
        def usage(total, used, unit):
            return field(1, total - used) + field(2, total) + field(3, used) + field(4, unit)

        return (submessage(1, usage(self.total, self.used, BYTES))
                + submessage(1, usage(self.total_inodes, self.used_inodes, INODES))
                + submessage(2, field(1, int(self.abnormal)) + field(2, self.condition)))


@dataclasses.dataclass
class Request:
    at: float  # time.monotonic()
    service: str
    method: str
    path: str
    size: int
    timeout_nano: int
    stream: int


class FakeAgent(UnixServer):
    """Serves from construction until close()."""

    def __init__(self, path, hybrid_vsock=None, log=None):
        super().__init__(path, log)
        self.hybrid_vsock = hybrid_vsock  # the only port that answers OK
        self.stats = Stats()
        self.grows = self.each = False
        self.totals = {}  # path: bytes
        self._behaviours = {}
        self.start()

    def __enter__(self):
        return self

    def behave(self, method, *behaviours):
        """How the next calls of a method end, one after another; the last one stays."""
        with self._changed:
            self._behaviours[method] = list(behaviours)

    def wait_for_requests(self, count, seconds=10, method=None):
        """Returns the requests (of one method) once there are so many."""
        return self.wait_matching(lambda one: method in (None, one.method), count, seconds)

    def _next_behaviour(self, method):
        with self._changed:
            behaviours = self._behaviours.get(method, ["ok"])
            return behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]

    def _talk(self, client):
        if self.hybrid_vsock is None or self._handshake(client):
            while self._answer(client, *read_frame(client)):
                pass

    def _handshake(self, connection):
        words = read_line(connection).split()
        if len(words) != 2 or words[0].lower() != b"connect" or int(words[1]) != self.hybrid_vsock:
            return False
        connection.sendall(b"OK 1073741824\n")
        return True

    @staticmethod
    def _decode(stream, data):
        found = fields(data)
        payload = fields(first(found, 3, b""))
        return Request(time.monotonic(), first(found, 1, b"").decode(),
                       first(found, 2, b"").decode(), first(payload, 1, b"").decode(),
                       first(payload, 2, 0), first(found, 4, 0), stream)

    def _succeed(self, request, explicit):
        if request.service != SERVICE or request.method not in ("ResizeVolume", "GetVolumeStats"):
            return encode_response(request.stream, code=12, message=f"method {request.method}")
        if request.method == "GetVolumeStats":
            stats = dataclasses.replace(
                self.stats, total=self.totals.get(request.path, self.stats.total))
            return encode_response(request.stream, stats.encode(), explicit=explicit)
        if self.grows and self.each:
            self.totals[request.path] = request.size
        elif self.grows:
            self.stats.total = max(self.stats.total, request.size)
        return encode_response(request.stream, explicit=explicit)

    def _reply(self, request, ending):
        """The bytes that answer, and whether the connection lives on."""
        if ending in ("ok", "explicit"):
            return self._succeed(request, ending == "explicit"), True
        if ending == "truncated":
            reply = encode_response(request.stream, code=13, message="cut off in the middle")
            return reply[:len(reply) // 2], False
        if ending.startswith("status:"):
            _, code, message = ending.split(":", 2)
            return encode_response(request.stream, code=int(code), message=message), True
        fixed = {
            "silent": (b"", True),
            "close": (b"", False),
            "garbage": (b"HTTP/1.1 400 Bad Request\r\n\r\n", True),
            "oversize": (HEADER.pack((4 << 20) + 1, request.stream, RESPONSE, 0), True),
        }
        return fixed[ending]

    def _answer(self, connection, stream, kind, data):
        if kind != REQUEST:
            return True
        request = self._decode(stream, data)
        self._record(request)
        *modifiers, ending = split_behaviour(self._next_behaviour(request.method))
        for modifier in modifiers:
            if modifier.startswith("delay="):
                self._delay(float(modifier.removeprefix("delay=")))
        reply, lives_on = self._reply(request, ending)
        if "stale" in modifiers:
            died = encode_response(stream ^ 2, code=13, message="somebody else asked for this")
            reply = died[7:] + died + reply
        self._send(connection, reply, int("split" in modifiers))
        return lives_on


def split_behaviour(text):
    """The words of a behaviour; a status's message may contain commas."""
    words, colon, message = text.partition("status:")
    return [word for word in words.split(",") if word] + ([colon + message] if colon else [])


def main():
    parser = argparse.ArgumentParser(description="a scripted agent")
    parser.add_argument("--hybrid-vsock", type=int, metavar="PORT")
    parser.add_argument("--behave", action="append", default=[], metavar="METHOD=TEXT")
    parser.add_argument("--grows", action="store_true")
    parser.add_argument("path")
    options = parser.parse_args()

    stopped = stop_signals()
    with FakeAgent(options.path, options.hybrid_vsock, sys.stdout) as agent:
        agent.grows = options.grows
        for assignment in options.behave:
            method, _, text = assignment.partition("=")
            agent.behave(method, text)
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
