# SPDX-License-Identifier: Apache-2.0
"""kubernetes.events = on: what an API server gets of crustd, over TLS and with the pod's token; and that nothing but Events is
lost when it is not believed, refuses, is down, or does not answer."""

import http.server
import json
import shutil
import ssl
import subprocess
import threading

from programs import needs
from scratch_node import AFTER, ScratchNodeTest, counted

UID = "01234567-89ab-cdef-0123-456789abcdef"
CLAIM = {"csi.storage.k8s.io/pvc/name": "data-db-0", "csi.storage.k8s.io/pvc/namespace": "shop"}
COUNTER = "crustd_kubernetes_events_total"


class Authority:
    """A CA of this test's own, and a certificate of it for 127.0.0.1."""

    def __init__(self, directory):
        directory.mkdir()
        self.certificate, self.leaf, self.key = directory / "ca.crt", directory / "leaf.crt", directory / "leaf.key"
        request, ca_key, extensions = directory / "leaf.csr", directory / "ca.key", directory / "extensions"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        extensions.write_text("subjectAltName=IP:127.0.0.1\n")
        self.run("req", "-x509", *curve, "-days", "1", "-subj", "/CN=ca", "-keyout", ca_key, "-out", self.certificate)
        self.run("req", *curve, "-subj", "/CN=apiserver", "-keyout", self.key, "-out", request)
        self.run("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", ca_key, "-CAcreateserial", "-days", "1",
                 "-extfile", extensions, "-out", self.leaf)

    @staticmethod
    def run(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class ApiServer:
    """Takes Events as Kubernetes' API server does. status: what it answers; held: it does not answer meanwhile; tokens:
    those that it takes, None for any."""

    def __init__(self, authority, port=0):
        self.authority = authority
        self.requests, self.status, self.tokens = [], 201, None
        self.unheld = threading.Event()
        self.unheld.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 60

            def do_POST(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.leaf, authority.key)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def finish_request(self, request, client_address):
                try:
                    with context.wrap_socket(request, server_side=True) as stream:
                        super().finish_request(stream, client_address)
                except OSError:  # a client that does not believe the certificate
                    pass

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def answer(self, handler):
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        status = self.status if self.tokens is None or token in self.tokens else 401
        self.requests.append({"path": handler.path, "token": token, "event": body, "status": status})
        self.unheld.wait(300)
        message = json.dumps({"kind": "Status", "message": f"as the test wants it: {status}"}).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(message)))
        handler.end_headers()
        handler.wfile.write(message)

    def stop(self):
        self.unheld.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def events(self):
        """Those that it created, by kind of object and reason."""
        return {(one["event"]["involvedObject"]["kind"], one["event"]["reason"]): one["event"]
                for one in list(self.requests) if one["status"] == 201}


class EventsCase(ScratchNodeTest):
    """A crustd as in a pod, and a volume whose resize it tells of."""

    def setUp(self):
        super().setUp()
        needs("openssl")
        self.authority = Authority(self.scratch / "authority")
        self.account = self.scratch / "serviceaccount"
        self.account.mkdir()
        shutil.copy(self.authority.certificate, self.account / "ca.crt")
        self.put_token("first-token")

    def put_token(self, token):
        """As the kubelet replaces it: at once."""
        (self.account / "next").write_text(token + "\n")
        (self.account / "next").replace(self.account / "token")

    def server(self, port=0, authority=None):
        server = ApiServer(authority or self.authority, port)
        self.addCleanup(server.stop)
        return server

    def pod(self, port, **settings):
        """A crustd as in a pod, whose API server is on this port."""
        return self.node({"kubernetes.events": "on", "kubernetes.service_account": str(self.account)} | settings,
                         ("env", "KUBERNETES_SERVICE_HOST=127.0.0.1", f"KUBERNETES_SERVICE_PORT={port}", "NODE_NAME=node-1"))

    def started(self, **options):
        """(API server, node): such a crustd, which runs."""
        server = self.server(**options)
        node = self.pod(server.port)
        node.start()
        return server, node

    def bundle(self, node):
        """The sandbox's shim, and what the container engine has of the sandbox: the pod's name."""
        self.containers(node, annotations={"io.kubernetes.cri.sandbox-name": "db-0",
                                           "io.kubernetes.cri.sandbox-namespace": "shop"})

    def bound(self, node, able=True, claim=UID, **stage):
        """A volume that a sandbox uses. able: its VMM and its guest follow when it grows. claim: the uid in its PV's name."""
        volume = self.volume(node, f"pvc-{claim}", **stage)
        self.bundle(node)
        if able:
            self.equip(node, volume)
        else:
            self.sandbox(node, volume)
        node.wait_bound(volume.path)
        return volume

    def grow(self, node, volume):
        volume.loop.resize(AFTER)
        return node.wait_for(volume.path, "in_sync", device_bytes=AFTER)

    def wait_counted(self, node, result, count):
        node.wait(lambda: counted(node, COUNTER)[result] >= count, 120, f"{count} events to be {result}")

    def lines(self, node, words):
        return [line for line in node.log.read_text().splitlines() if words in line]


class KubernetesEventsTest(EventsCase):

    # -- delivered

    def test_pod_and_claim_hear_of_a_resize(self):
        server, node = self.started()
        volume = self.bound(node, metadata=CLAIM)
        self.grow(node, volume)
        self.wait_counted(node, "sent", 2)
        events = server.events()
        pod = events["Pod", "FileSystemResizeSuccessful"]
        self.assertEqual(pod["involvedObject"], {
            "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "db-0",
            "uid": "11111111-2222-3333-4444-555555555555"})
        self.assertEqual((pod["type"], pod["count"], pod["metadata"]["namespace"]), ("Normal", 1, "shop"))
        self.assertEqual(pod["source"], {"component": "crustd", "host": "node-1"})
        self.assertIn("from 32Mi to 64Mi", pod["message"])
        claim = events["PersistentVolumeClaim", "FileSystemResizeSuccessful"]
        self.assertEqual(claim["involvedObject"], {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data-db-0", "uid": UID})
        self.assertEqual({one["path"] for one in server.requests}, {"/api/v1/namespaces/shop/events"})
        self.assertEqual({one["token"] for one in server.requests}, {"first-token"})
        self.assertEqual(counted(node, COUNTER), {"sent": 2, "merged": 0, "refused": 0, "dropped": 0})
        self.assertNotIn("first-token", node.log.read_text())

    def test_stalled_makes_one_event_and_an_unknown_claim_is_named_by_its_pv(self):
        server, node = self.started()
        volume = self.bound(node, able=False)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked", "monitor_missing")
        self.wait_counted(node, "sent", 2)
        node.crustctl("resync")
        self.settle(node)
        self.assertEqual(counted(node, COUNTER)["sent"], 2)
        pod = server.events()["Pod", "FileSystemResizeFailed"]
        self.assertEqual(pod["type"], "Warning")
        self.assertIn("blocked/monitor_missing", pod["message"])
        self.assertIn("What helps:", pod["message"])
        pv = server.events()["PersistentVolume", "FileSystemResizeFailed"]
        self.assertEqual(pv["involvedObject"], {"apiVersion": "v1", "kind": "PersistentVolume", "name": f"pvc-{UID}"})
        self.assertEqual(pv["metadata"]["namespace"], "default")

    def test_off_by_default_and_without_effect_outside_of_a_pod(self):
        server = self.server()
        node = self.pod(server.port, **{"kubernetes.events": "off"})
        node.start()
        self.grow(node, self.bound(node))
        self.assertEqual(server.requests, [])
        node.stop()
        other = self.node({"kubernetes.events": "on"}, ("env", "-u", "KUBERNETES_SERVICE_HOST"))
        other.start()
        self.assertEqual(len(self.lines(other, "kubernetes.events = on has no effect")), 1)

    # -- not delivered

    def test_server_of_another_ca_gets_nothing(self):
        server, node = self.started(authority=Authority(self.scratch / "other"))
        volume = self.bound(node)
        self.grow(node, volume)
        node.wait(lambda: self.lines(node, "Kubernetes gets no events"), 60, "the refusal to be logged")
        self.assertEqual(server.requests, [])
        self.assertEqual(counted(node, COUNTER)["sent"], 0)
        shutil.copy(server.authority.certificate, self.account / "ca.crt")
        self.wait_counted(node, "sent", 2)
        self.assertEqual(len(self.lines(node, "Kubernetes gets no events")), 1)
        self.assertEqual(len(self.lines(node, "Kubernetes gets events from crustd again")), 1)

    def test_refusal_is_counted_and_logged_once(self):
        server, node = self.started()
        server.status = 403
        volume = self.bound(node)
        self.grow(node, volume)
        self.wait_counted(node, "refused", 2)
        self.assertEqual(len(self.lines(node, "its API server answers 403: as the test wants it: 403")), 1)
        server.status = 201
        volume.loop.resize(2 * AFTER)
        self.wait_counted(node, "sent", 2)
        self.assertEqual(len(self.lines(node, "Kubernetes gets no events")), 1)

    def test_server_that_comes_back_gets_what_waited(self):
        server = self.server()
        port = server.port
        server.stop()
        node = self.pod(port)
        node.start()
        volume = self.bound(node)
        self.grow(node, volume)
        node.wait(lambda: self.lines(node, "Kubernetes gets no events"), 60, "the failure to be logged")
        server = self.server(port)
        self.wait_counted(node, "sent", 2)
        self.assertIn(("Pod", "FileSystemResizeSuccessful"), server.events())
        self.assertEqual(counted(node, COUNTER)["dropped"], 0)

    def test_resize_does_not_wait_for_a_server_that_does_not_answer(self):
        server, node = self.started()
        server.unheld.clear()
        volume = self.bound(node)
        self.grow(node, volume)
        node.wait(lambda: server.requests, 60, "the first request")
        volume.loop.resize(2 * AFTER)
        node.wait_for(volume.path, "in_sync", device_bytes=2 * AFTER)
        self.assertEqual(counted(node, COUNTER)["sent"], 0)
        # A slow machine may have given the first one up meanwhile, and tried again with the same Event.
        self.assertEqual(len({one["event"]["metadata"]["name"] for one in server.requests}), 1, "one Event at a time")
        server.unheld.set()
        self.wait_counted(node, "sent", 4)

    def test_crustd_ends_while_a_request_is_under_way(self):
        server, node = self.started()
        server.unheld.clear()
        self.grow(node, self.bound(node))
        node.wait(lambda: server.requests, 60, "the first request")
        self.assertEqual(node.stop(), 0)

    def test_token_is_read_anew(self):
        server, node = self.started()
        server.tokens = {"second-token"}
        self.grow(node, self.bound(node))
        node.wait(lambda: self.lines(node, "its API server answers 401"), 60, "the first token to be refused")
        self.put_token("second-token")
        self.wait_counted(node, "sent", 2)
        self.assertEqual({one["token"] for one in server.requests if one["status"] == 201}, {"second-token"})
        self.assertEqual(counted(node, COUNTER)["refused"], 0)
