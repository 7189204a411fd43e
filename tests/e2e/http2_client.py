# SPDX-License-Identifier: Apache-2.0
"""An HTTP/2 client that sends whatever frames a test wants, well formed or not.

    with Http2(path) as client:
        client.begin()                                   # preface and SETTINGS
        client.request(1, "/grpc.health.v1.Health/Check", message(b""))
        frame = client.wait_for(HEADERS)

Fields are written as literals without Huffman coding; those of the server are decoded by libnghttp2,
which is there because crustd needs it.
"""

import collections
import ctypes
import socket
import struct

from programs import Closing

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, _, PING, GOAWAY, WINDOW_UPDATE = range(9)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR = 0, 1, 2
REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 7, 8, 11
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Frame = collections.namedtuple("Frame", "type flags stream payload")


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(text):
    assert len(text) < 127 + 128
    length = bytes([len(text)]) if len(text) < 127 else bytes([127, len(text) - 127])
    return length + text


def fields(*pairs):
    """A header block: never indexed, names and values as they stand."""
    return b"".join(b"\x10" + _literal(name.encode()) + _literal(value.encode())
                    for name, value in pairs)


def message(payload, compressed=0):
    return struct.pack(">BI", compressed, len(payload)) + payload


def request_fields(path, *more, method="POST", content_type="application/grpc",
                   authority="localhost"):
    return fields((":method", method), (":scheme", "http"), (":path", path),
                  (":authority", authority), ("content-type", content_type),
                  ("te", "trailers"), *more)


class Pair(ctypes.Structure):
    _fields_ = [("name", ctypes.POINTER(ctypes.c_char)), ("value", ctypes.POINTER(ctypes.c_char)),
                ("name_length", ctypes.c_size_t), ("value_length", ctypes.c_size_t),
                ("flags", ctypes.c_uint8)]


class Inflater:
    """Takes the server's header blocks apart, each in its turn."""

    EMIT, FINAL = 2, 1

    def __init__(self):
        self.library = ctypes.CDLL("libnghttp2.so.14")
        self.state = ctypes.c_void_p()
        self.inflate = self.library.nghttp2_hd_inflate_hd2
        self.inflate.restype = ctypes.c_ssize_t
        self.inflate.argtypes = [ctypes.c_void_p, ctypes.POINTER(Pair),
                                 ctypes.POINTER(ctypes.c_int), ctypes.c_char_p, ctypes.c_size_t,
                                 ctypes.c_int]
        assert self.library.nghttp2_hd_inflate_new(ctypes.byref(self.state)) == 0

    def read(self, block):
        found, pair, flags = {}, Pair(), ctypes.c_int()
        while True:
            used = self.inflate(self.state, pair, flags, block, len(block), 1)
            assert used >= 0, "the server's fields do not decode"
            block = block[used:]
            if flags.value & self.EMIT:
                found[pair.name[:pair.name_length].decode()] = \
                    pair.value[:pair.value_length].decode()
            if flags.value & self.FINAL:
                self.library.nghttp2_hd_inflate_end_headers(self.state)
                return found

    def close(self):
        self.library.nghttp2_hd_inflate_del(self.state)


class Http2(Closing):
    def __init__(self, path, seconds=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))  # waits where too many do
        self.socket.settimeout(seconds)
        self.input = b""

    def send(self, data):
        """False: the server has hung up."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def begin(self, settings=b""):
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def request(self, stream, path, body=None, **options):
        """All of a unary request; with body None the stream stays open."""
        end = 0 if body is None or body else END_STREAM
        self.send(frame(HEADERS, END_HEADERS | end, stream, request_fields(path, **options)))
        if body:
            self.send(frame(DATA, END_STREAM, stream, body))

    def frames(self):
        """Each frame until the server hangs up."""
        while True:
            while len(self.input) >= 9:
                length = int.from_bytes(self.input[:3], "big")
                if len(self.input) < 9 + length:
                    break
                kind, flags, stream = struct.unpack(">BBI", self.input[3:9])
                payload, self.input = self.input[9:9 + length], self.input[9 + length:]
                yield Frame(kind, flags, stream, payload)
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return
            if not data:
                return
            self.input += data

    def wait_for(self, kind, stream=None):
        """The next frame of that kind; None: the server hung up without one."""
        for got in self.frames():
            if got.type == kind and stream in (None, got.stream):
                return got
        return None

    def answer(self, stream):
        """(fields, bytes of the body) of a stream's reply, trailers among the fields."""
        return self.answers([stream])[0]

    def answers(self, streams):
        """The same of several, the first replies of this connection."""
        inflater, said, body = Inflater(), {s: {} for s in streams}, {s: b"" for s in streams}
        left = set(streams)
        for got in self.frames():
            if got.type == HEADERS:
                block = inflater.read(got.payload)
                said.get(got.stream, {}).update(block)
            if got.type == DATA and got.stream in body:
                body[got.stream] += got.payload
            if got.type == RST_STREAM or got.type in (DATA, HEADERS) and got.flags & END_STREAM:
                left.discard(got.stream)
            if not left:
                break
        inflater.close()
        return [(said[stream], body[stream]) for stream in streams]

    def error_code(self):
        """Of the GOAWAY with which the server ends the connection; None: it said none."""
        got = self.wait_for(GOAWAY)
        return int.from_bytes(got.payload[4:8], "big") if got else None

    def is_over(self):
        """Waits until the server hangs up."""
        for _ in self.frames():
            pass
        return True

    def close(self):
        self.socket.close()
