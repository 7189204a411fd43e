# SPDX-License-Identifier: Apache-2.0
"""One listener of the HTTP server against the others: what clients over TCP do is theirs to bear."""

import http.client
import json
import socket
import sqlite3
import threading

from scratch_node import AFTER, ScratchNodeTest, curl, free_port

ROWS = 10000  # in one answer
DETAIL = 1200  # so that an answer is larger than what the kernel takes of it
LARGE_DETAIL = 2400  # so that it is larger than what the pages have for all answers, and smaller than what the socket has
ANSWER_SECONDS = 0.3  # that such an answer may take of the loop


def ask(port, path, host=None):
    """(status, body) over TCP."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class Listeners(ScratchNodeTest):
    def setUp(self):
        super().setUp()
        self.pages, self.metrics = free_port(), free_port()

    def started(self, **settings):
        node = self.node({"http.listen": f"127.0.0.1:{self.pages}",
                          "metrics.listen": f"127.0.0.1:{self.metrics}"} | settings)
        node.start()
        return node


class LargeAnswersTest(Listeners):
    """Each is built in one pass of the loop."""

    def deaf_client(self, path):
        """A client that asks and reads only the first bytes of the answer."""
        client = socket.socket()
        self.addCleanup(client.close)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        client.settimeout(60)
        client.connect(("127.0.0.1", self.pages))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return client.recv(20).split()[1]

    def started_with_journal(self, detail):
        node = self.started()
        node.stop()
        with sqlite3.connect(node.root / "var/lib/crustd/crustd.db") as database:
            database.executemany("INSERT INTO journal (at, kind, detail) VALUES"
                                 " (unixepoch() * 1000, 'line', ?)",
                                 [('{"a":"' + "x" * detail + '"}',)] * ROWS)
        node.start()
        return node

    def test_an_answer_that_is_too_large(self):
        """The refusal names the limit, and the argument that helps does."""
        node = self.started_with_journal(LARGE_DETAIL)
        code, body = ask(self.pages, "/v1/journal")
        error = json.loads(body)
        self.assertEqual((code, error["code"], error["reason"]), (429, "RESOURCE_EXHAUSTED", "too_many_rows"))
        self.assertIn("16 MiB", error["message"])
        self.assertIn("?last=", error["message"])
        code, body = ask(self.pages, f"/v1/journal?last={ROWS // 2}")
        self.assertEqual((code, len(json.loads(body))), (200, ROWS // 2))
        code, body = curl(node, "/v1/journal")
        self.assertEqual((code, len(json.loads(body))), (200, ROWS))
        self.assert_served(node, ANSWER_SECONDS)

    def test_clients_that_do_not_read(self):
        node = self.started_with_journal(DETAIL)
        answers = [self.deaf_client("/v1/journal") for _ in range(12)]
        # One that has read nothing for ten seconds is let go, and what it held is there for a later one: on a slow
        # machine it need not be the last that is refused.
        self.assertEqual((answers[0], set(answers)), (b"200", {b"200", b"503"}))
        code, body = curl(node, "/v1/journal")
        self.assertEqual((code, body.count(b'"kind":"line"') > ROWS * 9 // 10), (200, True))
        self.assertEqual(ask(self.metrics, "/metrics")[0], 200)
        self.assert_served(node, ANSWER_SECONDS)


class ListenersTest(Listeners):
    hostile = True

    def test_a_resize_while_many_ask_for_the_doctor(self):
        node = self.started()
        volume = self.volume(node)
        self.equip(node, volume)
        node.wait_for(volume.path, "in_sync")
        stop, answers = threading.Event(), []

        file = node.path("/etc/containerd/config.toml")
        file.parent.mkdir(parents=True)

        def keep_asking():
            """An examination finds the line with the error, which is another one each time."""
            while not stop.is_set():
                file.write_text("\n" * len(answers) + "this is no = [ toml\n")
                answers.append(ask(self.pages, "/v1/doctor"))

        clients = [threading.Thread(target=keep_asking) for _ in range(31)]
        for client in clients:
            client.start()
        try:
            node.grow(volume, AFTER, reason=None)
            self.assertEqual(ask(self.metrics, "/healthz")[0], 200)
        finally:
            stop.set()
            for client in clients:
                client.join()
        self.assertEqual({status for status, _ in answers}, {200})
        # They had one examination's findings, or a few.
        self.assertGreaterEqual(len(answers), len(clients))
        self.assertLess(len({body for _, body in answers}), 8)

    def test_the_doctor_over_tcp_may_be_half_a_minute_old(self):
        node = self.started()
        before = ask(self.pages, "/v1/doctor")
        self.assertEqual(before[0], 200)
        node.path("/etc/containerd").mkdir(parents=True)
        node.path("/etc/containerd/config.toml").write_text("this is no = [ toml\n")
        self.assertEqual(ask(self.pages, "/v1/doctor"), before)
        fresh = curl(node, "/v1/doctor")
        self.assertNotEqual(fresh, before)
        self.assertEqual(ask(self.pages, "/v1/doctor"), fresh)  # nobody has an older one than others

    def test_host(self):
        self.started(**{"http.hosts": "crustd.example.org, other.example.org"})
        own = socket.gethostname()
        for host, status in ((None, 200), (f"127.0.0.1:{self.pages}", 200), ("[::1]", 200),
                             (f"localhost:{self.pages}", 200), (own, 200), (own.upper(), 200),
                             ("crustd.example.org:80", 200), ("rebound.example.com", 403),
                             (f"{own}.example.com", 403), ("127.0.0.1.example.com", 403)):
            with self.subTest(host):
                code, body = ask(self.pages, "/v1/volumes", host)
                self.assertEqual(code, status, body)
        self.assertIn(b"http.hosts", ask(self.pages, "/", "rebound.example.com")[1])
        self.assertEqual(ask(self.metrics, "/metrics", "crustd.monitoring.svc")[0], 200)
