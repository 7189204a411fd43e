# SPDX-License-Identifier: Apache-2.0
"""HTTP as operators and tools use it: the metrics through promtool, stats and resize in each dialect."""

import base64
import ctypes
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import threading

from node import BUILD, REPOSITORY, VOLUMES, encode
from other_users import GROUP, USER, ask_as, open_addresses
from scratch_node import (AFTER, BEFORE, SANDBOX, ScratchNodeTest, curl, fake_agent, free_address, free_port,
                          metrics_of, publish_path)


class HeldAgent(fake_agent.FakeAgent):
    """Answers once it is released."""

    def __init__(self, path):
        self.released = threading.Event()
        self.released.set()
        super().__init__(path)
        self.grows = True

    def close(self):
        self.released.set()
        super().close()

    def _succeed(self, request, explicit):
        self.released.wait()
        return super()._succeed(request, explicit)


class MetricsTest(ScratchNodeTest):

    def test_a_resize_that_is_held_up_and_goes_through(self):
        node, volume = self.node_with_volume()
        self.sandbox(node, volume)
        self.agent(node)
        node.start()
        node.wait_for(volume.path, "unknown", "monitor_missing")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked", "monitor_missing")
        metrics = metrics_of(node)
        self.assertEqual(metrics['crustd_volumes{layout="kata",state="blocked",reason="monitor_missing"}'], "1")
        self.assertEqual(metrics["volume_stats_health_status_abnormal"], "1")
        self.assertEqual(metrics['crustd_resizes_total{result="blocked",reason="monitor_missing"}'], "1")
        self.assertGreater(float(metrics["crustd_oldest_pending_seconds"]), 0)
        self.assertEqual(metrics['crustd_source_up{source="inotify"}'], "1")
        self.monitor(node, volume)
        node.crustctl("resync")
        node.wait_for(volume.path, "in_sync")
        metrics = metrics_of(node)
        self.assertEqual(metrics['crustd_resize_duration_seconds_count{stage="total"}'], "1")
        self.assertEqual(metrics["crustd_oldest_pending_seconds"], "0")
        self.assertEqual(metrics["volume_stats_health_status_abnormal"], "0")

    def test_stalled_is_one_notion(self):
        """The view, crustctl, the page and the metrics have the same volumes; one that no sandbox
        uses and one that is only observed are not among them, and never pending."""
        node = self.node({"http.listen": free_address()})
        held, deaf, watched, left = (
            self.volume(node, name, metadata=metadata) for name, metadata in
            (("pv-held", {}), ("pv-deaf", {}), ("pv-watched", {"crust.resize": "observe"}),
             ("pv-left", {})))
        for letter, volume in zip("abc", (held, deaf, watched)):
            self.sandbox(node, volume, sandbox_id=letter * 64, agent="unix:///nobody.sock")
        vmm = self.sandbox(node, left, sandbox_id="d" * 64)
        for letter, volume in zip("bcd", (deaf, watched, left)):
            self.monitor(node, volume, sandbox_id=letter * 64)
        node.start()
        node.wait_for(held.path, "unknown", "monitor_missing")
        for volume in (deaf, watched, left):
            node.wait_for(volume.path, "in_sync")
        for volume in (watched, left):
            volume.loop.resize(AFTER)
        node.wait_for(watched.path, "host_grown", "policy")
        node.wait_for(left.path, "block_grown", "agent_unreachable")
        vmm.stop()
        node.wait_for(left.path, "unbound")
        self.assertEqual(metrics_of(node)["crustd_oldest_pending_seconds"], "0")
        for volume in (held, deaf):
            volume.loop.resize(AFTER)
        node.wait_for(held.path, "blocked", "monitor_missing")
        node.wait_for(deaf.path, "block_grown", "agent_unreachable")
        self.assertEqual([row["pv"] for row in node.query(
            "SELECT pv FROM audit_volumes WHERE stalled = 1 ORDER BY pv")], ["pv-deaf", "pv-held"])
        rows = json.loads(node.crustctl("volumes", "--stalled", "-o", "json").stdout)
        self.assertEqual({row["pv"] for row in rows}, {"pv-deaf", "pv-held"})
        metrics = metrics_of(node)
        self.assertEqual({name: value for name, value in metrics.items() if "stalled" in name},
                         {'crustd_volumes_stalled{state="blocked",reason="monitor_missing"}': "1",
                          'crustd_volumes_stalled{state="block_grown",reason="agent_unreachable"}':
                              "1"})
        self.assertGreater(float(metrics["crustd_oldest_pending_seconds"]), 0)
        self.assertIn("2 stalled", self.page_text(node))

    def test_promtool_finds_nothing(self):
        promtool = shutil.which("promtool", path=f"{REPOSITORY}/build/tools:{os.environ['PATH']}")
        if not promtool:
            self.skipTest("needs the program promtool, which make deps unpacks")
        node = self.node()
        self.volume(node)
        node.start()
        curl(node, "/v1/volumes/1/stats")  # so that there is a call to be counted
        _, body = curl(node, "/metrics")
        self.assertIn(b"crustd_operations_seconds_count", body)
        done = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_metrics_listen_is_a_door_of_its_own(self):
        port = free_port()
        self.running_node({"metrics.listen": f"127.0.0.1:{port}"})
        asked = {}
        hidden = ("/", "/status.css", "/status.js", "/direct-volume/stats", *(f"/v1/{path}" for path in (
            "volumes", "status", "doctor", "journal", "sandboxes", "resizes", "resync")))
        for path in ("/metrics", "/healthz", "/readyz", *hidden):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST" if path == "/v1/resync" else "GET", path)
            asked[path] = connection.getresponse().status
            connection.close()
        self.assertEqual({path for path, status in asked.items() if status == 200}, {"/metrics", "/healthz", "/readyz"})
        self.assertEqual({asked[path] for path in hidden}, {404})

    def test_no_volume_is_a_label(self):
        node = self.node()
        for number in range(3):
            node.stage(f"/var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/secret-{number}/mount", "/dev/secret")
        node.start()
        _, body = curl(node, "/metrics")
        self.assertIsNone(re.search(rb"secret|kubernetes\.io|/var/lib/kubelet", body))


class OthersTest(ScratchNodeTest):
    """Which users may connect to either socket, whatever its mode has become."""

    hostile = True

    REQUEST = b"POST /v1/resync HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    SOCKETS = {"http.sock": REQUEST, "crust.sock": b""}
    ANSWERS = {"http.sock": b" 202 ", "crust.sock": b"\0\0"}  # HTTP/2 begins with settings

    def started(self, settings=None):
        node = self.running_node(settings)
        open_addresses(node)
        return node

    def ask(self, name, user, group, node, prepare=lambda: b""):
        """What such a process gets; None: it may not even connect."""
        def ask():
            failure = prepare()
            if failure:
                return failure
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(node.path(f"/run/crustd/{name}")))
                client.sendall(self.SOCKETS[name])  # before the peer has been checked
                try:
                    return client.recv(1 << 16)
                except ConnectionResetError:
                    return b""

        return ask_as(user, group, ask)

    def open(self, node, mode, group=0):
        """The sockets' modes are as crustd made them; then anybody may connect."""
        for name in self.SOCKETS:
            found = node.path(f"/run/crustd/{name}").stat()
            self.assertEqual((stat.S_IMODE(found.st_mode), found.st_gid), (mode, group), name)
            node.path(f"/run/crustd/{name}").chmod(0o666)

    def test_root_alone(self):
        node = self.started()
        for name in self.SOCKETS:
            self.assertIsNone(self.ask(name, USER, GROUP, node), name)
        self.open(node, 0o600)
        for name, answer in self.ANSWERS.items():
            self.assertEqual(self.ask(name, USER, GROUP, node), b"", name)
            self.assertIn(answer, self.ask(name, 0, 0, node))

    def test_root_of_another_user_namespace(self):
        """As a pod with user namespaces has it: root inside, somebody else here."""
        libc = ctypes.CDLL(None, use_errno=True)

        def become_root():
            libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is this user's
            if libc.unshare(0x10000000):  # CLONE_NEWUSER
                return b"no namespace"
            pathlib.Path("/proc/self/setgroups").write_text("deny")
            pathlib.Path("/proc/self/uid_map").write_text(f"0 {USER} 1")
            pathlib.Path("/proc/self/gid_map").write_text(f"0 {USER} 1")
            return b"" if (os.getuid(), os.getgid()) == (0, 0) else b"no namespace"

        node = self.started()
        self.open(node, 0o600)
        answer = self.ask("http.sock", USER, GROUP, node, become_root)
        if answer == b"no namespace":
            self.skipTest("needs user namespaces for everybody")
        self.assertEqual(answer, b"")

    def test_a_group(self):
        node = self.started({"paths.socket_group": GROUP})
        for name, answer in self.ANSWERS.items():
            self.assertIn(answer, self.ask(name, USER, GROUP, node))
        self.open(node, 0o660, GROUP)
        for name in self.SOCKETS:
            self.assertEqual(self.ask(name, USER, USER, node), b"", name)


class VolumeTest(ScratchNodeTest):
    """With a volume in sync, in a sandbox whose monitor and agent answer."""

    def setUp(self):
        super().setUp()
        self.host = self.node()
        self.pv = self.volume(self.host)
        self.sandbox(self.host, self.pv)
        self.monitor(self.host, self.pv)
        self.guest = HeldAgent(self.host.root / "agent.sock")
        self.addCleanup(self.guest.close)
        self.host.start()
        self.id = self.host.wait_for(self.pv.path, "in_sync")["volume_id"]


class CallsTest(VolumeTest):
    """Stats and resize of one volume, as the shim, the first proposal and operators have them."""

    def ask(self, method, path, body=None):
        data = [] if body is None else ["--data-binary", json.dumps(body)]
        code, answer = curl(self.host, path, "-X", method, *data)
        return code, json.loads(answer)

    def resizes(self, size):
        """The same question in each dialect."""
        return (("POST", f"/v1/volumes/{self.id}/resize", {"required_bytes": size}),
                ("POST", "/direct-volume/resize", {"volumePath": self.pv.path, "size": size}),
                ("POST", "/direct-volume/resize", {"VolumePath": self.pv.path, "Size": str(size)}),
                ("POST", "/direct-volume/resize", {"volumepath": self.pv.loop.device, "SIZE": size}),
                ("PUT", "/fs-resize", {"block-device": self.pv.loop.device, "pod-id": SANDBOX,
                                       "volume-size": str(size)}))

    def test_each_way_to_grow(self):
        for number in range(len(self.resizes(0))):
            size = AFTER + number * (4 << 20)
            method, path, body = self.resizes(size)[number]
            with self.subTest(path=path, body=body):
                self.pv.loop.resize(size)
                self.assertEqual(self.ask(method, path, body), (200, {"capacity_bytes": size}))
                self.assertEqual(self.host.volume(self.pv.path)["hypervisor_bytes"], size)
        self.assertEqual(self.ask("POST", f"/v1/volumes/{self.id}/resize")[0], 200)

    def test_before_there_is_a_sandbox(self):
        """The kubelet asks before it starts one, and starts none until it is told that all is well."""
        device = self.loop().device
        self.host.add_device(device)
        path = publish_path("pv-unused")
        self.host.stage(path, device)
        number = self.host.wait_for(path, "unbound")["volume_id"]
        for method, target, body in (
                ("POST", f"/v1/volumes/{number}/resize", {"required_bytes": BEFORE}),
                ("POST", "/direct-volume/resize", {"volumePath": path, "size": BEFORE}),
                ("POST", "/direct-volume/resize", {"volumePath": device, "size": BEFORE}),
                ("PUT", "/fs-resize", {"block-device": device, "volume-size": BEFORE})):
            with self.subTest(target=target, body=body):
                self.assertEqual(self.ask(method, target, body), (200, {"capacity_bytes": BEFORE, "owed": True}))
        said = self.host.crustctl("resize", "pv-unused").stdout
        self.assertIn("grows to the device's 32 MiB with the next one", said)
        self.assertEqual(self.host.crustctl("crust", "resize", path, str(BEFORE), "0").stdout,
                         f'{{"capacity_bytes":{BEFORE}}}\n')

    def test_each_way_to_stats(self):
        encoded = base64.urlsafe_b64encode(self.pv.path.encode()).decode()
        for method, path, body in (
                ("GET", f"/v1/volumes/{self.id}/stats", None),
                ("GET", f"/direct-volume/stats?path={self.pv.path}", None),
                ("GET", f"/direct-volume/stats?path={self.pv.loop.device}", None),
                ("GET", f"/direct-volume/stats/{encoded}", None),
                ("PUT", "/fs-stats", {"block-device": self.pv.loop.device}),
                ("PUT", "/fs-stats", {"block-device": self.pv.loop.device.removeprefix("/dev/")})):
            with self.subTest(path):
                code, answer = self.ask(method, path, body)
                self.assertEqual(code, 200, answer)
                self.assertEqual(answer["usage"][0]["unit"], 1)
                self.assertGreater(answer["usage"][0]["total"], 0)
                self.assertFalse(answer["volume_condition"]["abnormal"])

    def test_a_body_has_a_bound(self):
        """Refused by its length, before any of it is sent."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.host.path("/run/crustd/http.sock")))
            client.sendall(b"POST /direct-volume/resize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\r\n")
            self.assertEqual(client.recv(13), b"HTTP/1.1 413 ")


class CrustctlTest(VolumeTest):
    """The same by crustctl."""

    def run_crustctl(self, *arguments):
        done = self.host.crustctl(*arguments, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_resize(self):
        self.pv.loop.resize(AFTER)
        code, out, _ = self.run_crustctl("resize", self.pv.path)
        self.assertEqual((code, out), (0, f"{self.pv.path}: the guest has all 64 MiB of the device\n"))
        code, out, _ = self.run_crustctl("resize", str(self.id), "-o", "json")
        self.assertEqual((code, json.loads(out)), (0, {"capacity_bytes": AFTER}))

    def begin(self, *words):
        """crustctl with a call that waits for the guest."""
        process = subprocess.Popen([str(BUILD / "crustctl"), "--root", str(self.host.root), *words],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.__exit__, None, None, None)
        self.addCleanup(process.kill)
        return process

    def test_progress_while_it_waits(self):
        """For a person. A CSI driver is told nothing but the answer: some take both streams for
        one."""
        size = AFTER
        self.guest.released.clear()
        self.pv.loop.resize(size)
        drivers = [self.begin("direct-volume", "resize", "--volume-path", self.pv.path, "--size",
                              str(size)),
                   self.begin("crust", "resize", self.pv.path, str(size), "0")]
        self.host.wait_for(self.pv.path, "block_grown", hypervisor_bytes=size)
        person = self.begin("resize", self.pv.path)
        line = person.stderr.readline()
        self.guest.released.set()
        self.assertRegex(line, r"^waiting: .*host 64 MiB, hypervisor 64 MiB")
        self.assertEqual(person.wait(120), 0)
        for driver, answer in zip(drivers, ("", f'{{"capacity_bytes":{size}}}\n')):
            self.assertEqual(driver.communicate(timeout=120), (answer, ""))
            self.assertEqual(driver.returncode, 0)

    def test_stats(self):
        code, out, _ = self.run_crustctl("stats", self.pv.path)
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?s)^bytes +total .* used .* available .*\nnormal: the file system fills its device")

    def test_the_runtime_cli_of_the_proposals(self):
        self.pv.loop.resize(AFTER)
        self.assertEqual(self.run_crustctl("crust", "resize", self.pv.path, str(AFTER), "0")[:2],
                         (0, f'{{"capacity_bytes":{AFTER}}}\n'))
        self.assertEqual(self.run_crustctl("fs", "resize", SANDBOX, self.pv.loop.device, str(AFTER))[0], 0)
        for words in (("crust", "stats", self.pv.path), ("fs", "get-stats", SANDBOX, self.pv.loop.device)):
            code, out, _ = self.run_crustctl(*words)
            self.assertEqual(code, 0)
            self.assertEqual(json.loads(out)["usage"][0]["unit"], 1)

    def test_direct_volume_as_kata_runtime_has_it(self):
        path = publish_path("by-hand")
        where = ("--volume-path", path)
        info = json.dumps({"volume-type": "block", "device": self.pv.loop.device, "fstype": "ext4", "spare": 1})
        directory = self.host.path(f"/{VOLUMES}") / encode(path)
        for _ in range(2):
            self.assertEqual(self.run_crustctl("direct-volume", "add", *where, "--mount-info", info), (0, "", ""))
            self.assertEqual((directory / "mountInfo.json").read_text(), info)
        self.assertEqual([oct(p.stat().st_mode & 0o7777)
                          for p in (directory, directory / "mountInfo.json")], ["0o700", "0o600"])
        self.host.wait_for(path, "unbound")
        (directory / SANDBOX).touch(0o600)
        for _ in range(2):
            self.assertEqual(self.run_crustctl("direct-volume", "remove", *where), (0, "", ""))
        self.assertFalse(directory.exists())
        where = ("--volume-path", self.pv.path)
        self.pv.loop.resize(AFTER)
        code, out, _ = self.run_crustctl("direct-volume", "resize", *where, "--size", str(AFTER))
        self.assertEqual((code, out), (0, ""))
        self.assertEqual(self.host.volume(self.pv.path)["hypervisor_bytes"], AFTER)
        code, out, _ = self.run_crustctl("direct-volume", "stats", *where)
        self.assertEqual((code, json.loads(out)["usage"][0]["unit"]), (0, 1))
        for wrong in ({"volume-type": 5}, {"fstype": []}, {"options": ["ro", 5]}, {"options": "ro"},
                      {"metadata": {"a": 5}}, {"metadata": ["a"]}):
            code, out, err = self.run_crustctl("direct-volume", "add", *where, "--mount-info",
                                               json.dumps({"device": "/dev/x"} | wrong))
            self.assertEqual((code, out), (1, ""), wrong)
            self.assertIn("--mount-info", err)
        for words in (("add", *where, "--mount-info", "{"), ("add", *where), ("remove",),
                      ("add", *where, "--mount-info", '{"fstype":"ext4"}'),
                      ("add", "--volume-path", "/" + "x" * 200, "--mount-info", info),
                      ("stats", "--volume-path", "/nobody"), ("resize", *where),
                      ("stats", "--volume-path", str(self.id)), ("stats", "--volume-path", "pv"),
                      ("resize", "--volume-path", "pv", "--size", "0"),
                      ("stats", *where, "--size", "0"), ("stats", *where, "more"),
                      ("stats", *where, "--config", "/nowhere"),
                      ("resize", *where, "--size", "8GB"), ("resize", *where, "--size", "1Ti")):
            code, out, err = self.run_crustctl("direct-volume", *words)
            self.assertEqual((code, out), (1, ""), (words, err))
            self.assertTrue(err)

    def test_sizes_as_kubernetes_writes_them(self):
        self.pv.loop.resize(AFTER)
        quantity = f"{AFTER >> 20}Mi"
        for words, out in (
                (("crust", "resize", self.pv.path, quantity, "1Ti"), f'{{"capacity_bytes":{AFTER}}}\n'),
                (("direct-volume", "resize", "--volume-path", self.pv.path, "--size", quantity), ""),
                (("fs", "resize", SANDBOX, self.pv.loop.device, quantity),
                 f'{{"capacity_bytes":{AFTER}}}\n')):
            with self.subTest(words):
                self.assertEqual(self.run_crustctl(*words), (0, out, ""))
