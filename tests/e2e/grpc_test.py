# SPDX-License-Identifier: Apache-2.0
"""The gRPC server as clients meet it: who they may be, and what it says to them."""

import signal

from grpc_client import SECONDS, GrpcTest, socket_of
from http2_client import (DATA, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, RST_STREAM, SETTINGS,
                          Http2, fields, frame, message, request_fields)

CHECK = "/grpc.health.v1.Health/Check"
CONNECTIONS = 64  # at a time


class Calls(GrpcTest):
    """One client and its answers."""

    def setUp(self):
        super().setUp()
        self.running = self.running_node()
        self.health = self.messages("health")

    def check(self, message_bytes, path=CHECK, **options):
        call = self.channel(self.running).unary_unary(path)
        return call(message_bytes, timeout=SECONDS, **options)

    def test_health(self):
        stub = self.stub(self.running, "health", "Health")
        for service in ("", "grpc.health.v1.Health"):
            reply = stub.Check(self.health.HealthCheckRequest(service=service), timeout=SECONDS)
            self.assertEqual(reply.status, self.health.HealthCheckResponse.SERVING)
        for service in ("grpc.health.v1", "nothing", "x" * 1000):
            with self.fails("NOT_FOUND"):
                stub.Check(self.health.HealthCheckRequest(service=service), timeout=SECONDS)

    def test_unknown_methods(self):
        for path in ("/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/check", "/a.b/C",
                     "/", "/" + "x" * 250, CHECK + "/"):
            with self.subTest(path), self.fails("UNIMPLEMENTED"):
                self.check(b"", path)

    def test_bad_messages(self):
        for bad in (b"\xff\xff", b"\x0a\x05a", b"\x0a" * 100):
            with self.subTest(bad), self.fails("INTERNAL", "HealthCheckRequest"):
                self.check(bad)
        with self.fails("NOT_FOUND"):
            self.check(b"\x0a\x03a\x00b")
        with self.fails("RESOURCE_EXHAUSTED", "64 KiB"):
            self.check(b"\x0a" + b"x" * 65536)
        with self.fails("RESOURCE_EXHAUSTED", "64 KiB"):
            self.check(b"x" * (3 << 20))
        self.is_served(self.running)

    def test_long_fields(self):
        with self.fails("RESOURCE_EXHAUSTED", "fields"):
            self.check(b"", metadata=[("some", "x" * 10000)])
        self.check(b"", metadata=[("some", "x" * 1000)])

    def answer(self, headers, body):
        """What a hand-written request is answered with: its fields and the body."""
        with Http2(socket_of(self.running)) as client:
            client.begin()
            client.send(frame(HEADERS, END_HEADERS | (0 if body else END_STREAM), 1, headers))
            if body:
                client.send(frame(DATA, END_STREAM, 1, body))
            return client.answer(1)

    def test_a_reply_as_it_is_written(self):
        said, body = self.answer(request_fields(CHECK, ("grpc-timeout", "5S")), message(b""))
        self.assertEqual(said, {":status": "200", "content-type": "application/grpc", "grpc-status": "0"})
        self.assertEqual(body, message(b"\x08\x01"))
        said, body = self.answer(request_fields("/a.b/C"), message(b""))
        self.assertEqual(said, {":status": "200", "content-type": "application/grpc",
                                "grpc-status": "12", "grpc-accept-encoding": "identity",
                                "grpc-message": "there is no such method here"})
        self.assertEqual(body, b"")

    def test_requests_that_are_not_grpc(self):
        for text, status in ((request_fields(CHECK, content_type="application/json"), "415"),
                             (request_fields(CHECK, content_type="application/grpc-web"), "415"),
                             (request_fields(CHECK, method="GET"), "405")):
            said, _ = self.answer(text, message(b""))
            self.assertEqual(said[":status"], status)
            self.assertNotIn("grpc-status", said)
        self.is_served(self.running)

    def test_bodies_that_are_no_single_message(self):
        for body, code in ((b"", 12), (message(b"") * 2, 12), (b"\0\0", 13),
                           (message(b"")[:-1], 13), (message(b"x")[:-1], 13), (message(b"", 1), 13),
                           (b"\0\xff\xff\xff\xff", 8)):
            with self.subTest(body):
                self.assertEqual(self.answer(request_fields(CHECK), body)[0]["grpc-status"], str(code))

    def test_fields_that_do_not_matter(self):
        for authority in ("localhost", "/run/crustd/crust.sock", "%2Frun%2Fcrustd", "a b", ""):
            with self.subTest(authority):
                said, _ = self.answer(request_fields(CHECK, authority=authority), message(b""))
                self.assertEqual(said["grpc-status"], "0")
        least = fields((":method", "POST"), (":path", CHECK), ("content-type", "application/grpc+proto"))
        self.assertEqual(self.answer(least, message(b""))[0]["grpc-status"], "0")

    def test_a_nul_in_a_field(self):
        """The stream is reset; the connection goes on."""
        with Http2(socket_of(self.running)) as client:
            client.begin()
            for stream, field in ((1, (":path", CHECK + "\0")), (3, ("grpc-timeout", "1S\0")), (5, ("a\0b", "c"))):
                client.send(frame(HEADERS, END_HEADERS, stream, request_fields(CHECK, field)))
                self.assertTrue(client.wait_for(RST_STREAM, stream))
            client.request(7, CHECK, message(b""))
            self.assertTrue(client.wait_for(DATA, 7))

    def test_fields_that_are_not_understood(self):
        for field, code in ((("grpc-encoding", "gzip"), 12), (("grpc-encoding", "identity"), 0),
                            (("grpc-timeout", "1" * 50), 8),
                            *((("grpc-timeout", bad), 13) for bad in (
                                "soon", "1", "S", "-1S", "+1S", "1.5S", "1 S", "1s", "1SS",
                                "100000000S"))):
            said, _ = self.answer(request_fields(CHECK, field), message(b""))
            self.assertEqual(said["grpc-status"], str(code))

    def test_the_time_of_the_call_is_over_before_it_is_whole(self):
        for timeout in ("0S", "0H", "0u", "1n", "00000001n"):
            said, _ = self.answer(request_fields(CHECK, ("grpc-timeout", timeout)), message(b""))
            self.assertEqual(said["grpc-status"], "4", timeout)
        for timeout in ("1H", "99999999H", "1M", "60S", "60000m"):
            said, _ = self.answer(request_fields(CHECK, ("grpc-timeout", timeout)), message(b""))
            self.assertEqual(said["grpc-status"], "0", timeout)

    def test_stop_sends_goaway(self):
        with Http2(socket_of(self.running)) as client:
            client.begin()
            self.assertTrue(client.wait_for(SETTINGS))
            self.running.process.send_signal(signal.SIGTERM)
            self.assertEqual(client.error_code(), NO_ERROR)
            self.assertTrue(client.is_over())
        self.assertEqual(self.running.process.wait(SECONDS), 0)
        self.assertFalse(socket_of(self.running).exists())

    def test_idle_connections_make_room(self):
        """The one that has been without a call for longest; it is told, so that no call is lost."""
        clients = [Http2(socket_of(self.running)) for _ in range(CONNECTIONS)]
        for client in clients:
            self.addCleanup(client.close)
            client.begin()
            self.assertTrue(client.wait_for(SETTINGS))
        clients[0].request(1, CHECK, message(b""))
        self.assertTrue(clients[0].wait_for(HEADERS, 1))
        self.is_served(self.running)
        # What it has written by then is not answered, and it can tell that it may ask again.
        clients[1].socket.sendall(frame(HEADERS, END_HEADERS, 1, request_fields(CHECK)))
        self.assertEqual(clients[1].error_code(), NO_ERROR)
        clients[0].request(3, CHECK, message(b""))
        self.assertTrue(clients[0].wait_for(HEADERS, 3))
