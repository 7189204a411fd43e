# SPDX-License-Identifier: Apache-2.0
"""Clients that do what they should not: others are served meanwhile, and memory is bounded.

The bound is not a guess: it is what follows from the limits in api/http2.h.
"""

import contextlib
import os
import re
import socket
import struct
import threading

from grpc_client import SECONDS, GrpcTest, grpc, socket_of
from http2_client import (ACK, CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS,
                          INTERNAL_ERROR, PING, PREFACE, PROTOCOL_ERROR,
                          REFUSED_STREAM, RST_STREAM, SETTINGS, Http2, frame, message,
                          request_fields)
from node import REPOSITORY
from scratch_node import fake_agent

CHECK = "/grpc.health.v1.Health/Check"
NO_WINDOW = struct.pack(">HI", 4, 0)  # SETTINGS_INITIAL_WINDOW_SIZE


def limit(file, name):
    """A constant of the C source."""
    text = (REPOSITORY / "api" / file).read_text()
    return eval(re.search(rf"\b{name} = ([\d *+]+)[,\s}}]", text)[1])


CONNECTIONS = limit("grpc_server.c", "CONNECTIONS")
STREAMS = limit("http2.h", "HTTP2_STREAMS")
STREAM_NUMBERS = range(1, 2 * STREAMS, 2)
TAKEN_BYTES = CONNECTIONS * (limit("http2.h", "HTTP2_SESSION_BYTES") +
                             limit("grpc_server.c", "WRITE_BYTES") +
                             STREAMS * limit("http2.h", "HTTP2_REQUEST_BYTES") +
                             2 * limit("http2.h", "HTTP2_OWN_BYTES")) + \
    2 * limit("grpc_server.c", "ROOM_BYTES")


class Others:
    """A client that asks without pause, and what crustd's memory is at most meanwhile."""

    def __init__(self, test, node):
        self.test, self.node = test, node
        self.health = test.messages("health")
        self.stub = test.stub(node, "health", "Health")
        self.served, self.failures, self.largest_kib = 0, [], 0
        self.changed, self.ended = threading.Condition(), False
        self.thread = threading.Thread(target=self.ask)
        self.held_kib = self.rss_anon_kib()
        self.thread.start()

    def rss_anon_kib(self):
        status = open(f"/proc/{self.node.process.pid}/status").read()
        return int(re.search(r"RssAnon:\s+(\d+)", status)[1])

    def ask(self):
        while not self.ended:
            try:
                self.stub.Check(self.health.HealthCheckRequest(), timeout=SECONDS, wait_for_ready=True)
            except grpc.RpcError as error:
                self.failures.append(error)
            with self.changed:
                self.served += 1
                self.largest_kib = max(self.largest_kib, self.rss_anon_kib())
                self.changed.notify()

    def are_served(self):
        """A call that begins now has its answer."""
        with self.changed:
            after = self.served + 2
            self.test.assertTrue(self.changed.wait_for(lambda: self.served >= after, SECONDS))

    def end(self):
        self.ended = True
        self.thread.join()
        self.test.assertEqual(self.failures, [])
        self.test.assertLess((self.largest_kib - self.held_kib) * 1024, TAKEN_BYTES)
        self.test.assert_served(self.node)


class Hostile(GrpcTest):
    def setUp(self):
        super().setUp()
        self.running = self.running_node()
        self.others = Others(self, self.running)
        self.addCleanup(self.others.end)

    def others_are_served(self, service=b""):
        """A client that was connected before, and one that connects now with this request."""
        self.others.are_served()
        with Http2(socket_of(self.running)) as client:
            client.begin()
            client.request(1, CHECK, message(service and b"\x0a" + fake_agent.varint(len(service)) + service))
            self.assertEqual(client.answer(1)[0]["grpc-status"], "5" if service else "0")

    def client(self):
        client = Http2(socket_of(self.running))
        self.addCleanup(client.close)
        return client

    def test_silent_clients(self):
        for _ in range(3 * CONNECTIONS):
            self.client()
        self.others_are_served()

    def test_clients_that_send_half_a_preface(self):
        halves = [self.client() for _ in range(CONNECTIONS)]
        for number, client in enumerate(halves):
            client.send((PREFACE + frame(SETTINGS, 0, 0))[:number])
        self.others_are_served()

    def test_clients_that_are_half_gone(self):
        """They have said all or half of a request, and will say no more."""
        for number in range(3 * CONNECTIONS):
            client = self.client()
            client.begin()
            client.request(1, CHECK, message(b"") if number % 2 else None)
            client.socket.shutdown(socket.SHUT_WR)
        self.others_are_served()

    def test_clients_that_dribble(self):
        clients = [self.client() for _ in range(CONNECTIONS // 2)]
        request = PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, request_fields(CHECK))
        for byte in range(len(request)):
            for client in clients:
                client.send(request[byte:byte + 1])
            if byte % 20 == 0:
                self.others_are_served()

    def requests(self, headers, body, expected):
        """Many calls that are no calls, each of them answered."""
        for _ in range(4):
            client = self.client()
            client.begin()
            streams = range(1, 2 * STREAMS, 2)
            client.send(b"".join(frame(HEADERS, END_HEADERS, stream, headers) +
                                 frame(DATA, END_STREAM, stream, body) for stream in streams))
            for said, _ in client.answers(streams):
                self.assertEqual({name: said.get(name) for name in expected}, expected)
            self.others_are_served()

    def test_requests_that_are_not_grpc(self):
        self.requests(request_fields(CHECK, content_type="application/json"), b"{}",
                      {":status": "415", "grpc-status": None})

    def test_malformed_messages(self):
        self.requests(request_fields(CHECK), message(b"\xff" * 1000), {":status": "200", "grpc-status": "13"})

    def test_refusals_that_are_not_read(self):
        clients = [self.client() for _ in range(CONNECTIONS // 2)]
        for client in clients:
            client.begin()
            client.socket.settimeout(1)
        asks = b"".join(frame(HEADERS, END_HEADERS, stream, request_fields("/")) for stream in range(1, 60001, 2))
        for client in clients:
            with contextlib.suppress(TimeoutError):  # it is not read from while it does not read
                client.send(asks)
        self.others_are_served()

    def test_clients_that_take_no_reply(self):
        """Their window lets none through."""
        for _ in range(CONNECTIONS):
            client = self.client()
            client.begin(NO_WINDOW)
            for stream in STREAM_NUMBERS:
                client.request(stream, CHECK, message(b"\x7a\xf4\x03" + bytes(500)))
            self.assertTrue(client.wait_for(HEADERS, 63))
        self.others_are_served()

    def test_slow_requests_end(self):
        client = self.client()
        client.begin()
        client.request(1, CHECK)
        self.others_are_served()
        self.assertEqual(client.wait_for(HEADERS, 1).flags & END_STREAM, END_STREAM)
        self.assertEqual(client.wait_for(RST_STREAM, 1).payload, bytes(4))

    def test_thousands_of_streams(self):
        client = self.client()
        client.begin()
        for stream in range(1, 4001, 2):
            client.request(stream, CHECK)
        refused = client.wait_for(RST_STREAM)
        self.assertEqual(int.from_bytes(refused.payload, "big"), REFUSED_STREAM)
        self.others_are_served()

    def test_large_bodies_that_never_end(self):
        """They want more than there is; a body of some size still has its place."""
        clients = [self.client() for _ in range(16)]
        for client in clients:
            client.begin()
            for stream in STREAM_NUMBERS:
                client.request(stream, CHECK)
        for _ in range(30):
            for client in clients:
                client.send(b"".join(frame(DATA, 0, s, bytes(1400)) for s in STREAM_NUMBERS))
        self.others_are_served(b"x" * 10000)
        codes = {said["grpc-status"] for client in clients for said, _ in client.answers(STREAM_NUMBERS)}
        self.assertEqual(codes, {"8", "4"})  # no room; not done in time

    def test_bodies_that_are_too_long(self):
        for _ in range(8):
            client = self.client()
            client.begin()
            body = bytes(16000)
            for stream in STREAM_NUMBERS:
                client.request(stream, CHECK)
                for _ in range(5):
                    client.send(frame(DATA, 0, stream, body))
            for said, _ in client.answers(STREAM_NUMBERS):
                self.assertEqual(said["grpc-status"], "8")
        self.others_are_served()

    def flood(self, *frames, codes=(ENHANCE_YOUR_CALM,)):
        client = self.client()
        client.begin()
        data = b"".join(frames)
        for _ in range(50):
            if not client.send(data):
                break
        code = client.error_code()  # None: what it had said was lost when it hung up
        self.assertIn(code, (*codes, None))
        self.assertTrue(client.is_over())
        self.others_are_served()

    def test_a_flood_of_resets(self):
        for count in (100, 2):
            self.flood(*[frame(HEADERS, END_HEADERS | END_STREAM, stream, request_fields(CHECK)) +
                         frame(RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big"))
                         for stream in range(1, 20 * count, 2)],
                       codes=(PROTOCOL_ERROR, INTERNAL_ERROR, ENHANCE_YOUR_CALM))

    def test_floods_of_frames_that_want_no_stream(self):
        for name, one in {"pings": frame(PING, 0, 0, bytes(8)), "settings": frame(SETTINGS, 0, 0),
                          "acknowledgements": frame(PING, ACK, 0, bytes(8))}.items():
            with self.subTest(name):
                self.flood(*[one] * 1000)

    def test_floods_within_a_request(self):
        whole = frame(HEADERS, END_HEADERS, 1, request_fields(CHECK))
        for name, begin, more in (("trailers", whole, frame(HEADERS, END_HEADERS, 1) * 1000),
                                  ("empty data", whole, frame(DATA, 0, 1) * 1000),
                                  ("continuations", frame(HEADERS, 0, 1, request_fields(CHECK)),
                                   frame(9, 0, 1, b"\x10\x01a\x01b" * 100) * 20)):
            with self.subTest(name):
                client = self.client()
                client.begin()
                client.send(begin)
                for _ in range(50):
                    if not client.send(more):
                        break
                self.assertTrue(client.is_over())
                self.others_are_served()

    def test_garbage(self):
        for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00", os.urandom(500),
                        PREFACE + os.urandom(500), PREFACE + frame(DATA, 0, 1, b"x")):
            client = self.client()
            client.send(garbage)
            client.socket.shutdown(socket.SHUT_WR)
            self.assertTrue(client.is_over())
        self.others_are_served()
