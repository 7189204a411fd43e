# SPDX-License-Identifier: Apache-2.0
"""The ways in for people: HTTP on the socket and on an address, and crustctl with and without a
daemon, with its exit codes.
"""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import unittest
import unittest.mock

import other_users
from node import BUILD
from scratch_node import AFTER, SANDBOX, ScratchNodeTest, curl, metrics_of, publish_path, status

OK, FAILED, USAGE, NOT_FOUND, UNREACHABLE = range(5)
VIEWS = ("volumes", "sandboxes", "devices", "layers", "mappings", "resizes", "cleanups", "journal")


class ApiTest(ScratchNodeTest):

    def build(self):
        """A volume that is blocked for want of a monitor."""
        node = self.node()
        self.blocked = self.volume(node)
        self.sandbox(node, self.blocked)
        node.start()
        node.wait_for(self.blocked.path, "unknown", "monitor_missing")
        self.blocked.loop.resize(AFTER)
        node.wait_for(self.blocked.path, "blocked", "monitor_missing")
        return node


class HttpTest(ApiTest):

    def test_health(self):
        node = self.build()
        for path in ("/healthz", "/readyz"):
            self.assertEqual(curl(node, path), (200, b"ok\n"))
        code, body = curl(node, "/v1/status")
        self.assertEqual(code, 200)
        self.assertTrue(json.loads(body)["synced"])
        socket_mode = node.path("/run/crustd/http.sock").stat().st_mode
        self.assertTrue(stat.S_ISSOCK(socket_mode))
        self.assertEqual(stat.S_IMODE(socket_mode) & 0o077, 0)

    def test_views_have_the_columns_of_the_database(self):
        node = self.build()
        for view in VIEWS:
            with self.subTest(view):
                code, body = curl(node, f"/v1/{view}")
                self.assertEqual(code, 200)
                columns = [row["name"] for row in node.query(f"PRAGMA table_info(audit_{view})")]
                for row in json.loads(body):
                    self.assertEqual(sorted(row), sorted(columns))
                if view not in ("cleanups", "layers"):
                    self.assertNotEqual(json.loads(body), [])
        row, = json.loads(curl(node, "/v1/volumes")[1])
        self.assertEqual((row["state"], row["reason"]), ("blocked", "monitor_missing"))
        self.assertEqual(row["device_bytes"], AFTER)
        self.assertIsNone(row["next_attempt_at"])

    def test_arguments(self):
        node = self.build()
        row, = json.loads(curl(node, "/v1/volumes")[1])
        for argument in (f"id={row['volume_id']}", f"volume={row['pv']}", "live=1", "last=1"):
            self.assertEqual(len(json.loads(curl(node, f"/v1/volumes?{argument}")[1])), 1, argument)
        self.assertEqual(curl(node, "/v1/volumes?volume=nobody"), (200, b"[]\n"))

    def test_wrong_method_is_answered_with_the_allowed_ones(self):
        node = self.build()
        for path, method, allowed in (("/v1/resync", "GET", "POST"), ("/v1/volumes", "PATCH", "GET, HEAD"),
                                      ("/v1/volumes/1", "DELETE", "GET, HEAD"),
                                      ("/v1/volumes/1/explain", "POST", "GET, HEAD"),
                                      ("/v1/volumes/1/resize", "GET", "POST"),
                                      ("/fs-resize", "POST", "PUT"), ("/metrics", "PUT", "GET, HEAD"),
                                      ("/v1/drives", "DELETE", "GET, HEAD, POST")):
            with self.subTest(path):
                code, answer = curl(node, path, "--include", "--request", method)
                self.assertEqual(code, 405)
                self.assertIn(f"Allow: {allowed}\r\n".encode(), answer)

    def test_one_volume(self):
        """As an object, and with what is known, missing and to be done about it."""
        node = self.build()
        row = node.volume(self.blocked.path)
        code, body = curl(node, f"/v1/volumes/{row['volume_id']}")
        self.assertEqual(code, 200)
        listed, = json.loads(curl(node, "/v1/volumes")[1])
        self.assertEqual(json.loads(body), listed)
        code, body = curl(node, f"/v1/volumes/{row['volume_id']}/explain")
        self.assertEqual(code, 200)
        answer = json.loads(body)
        said = json.loads(node.crustctl("-o", "json", "explain", row["pv"]).stdout)
        for member in ("volume_id", "target_path", "state", "reason", "state_meaning", "reason_meaning", "missing"):
            self.assertEqual(answer[member], said[member], member)
        for member in ("remedies", "known", "resizable", "resizable_reason", "resizable_meaning"):
            self.assertEqual(answer[member], said[member], member)
        text = " ".join(node.crustctl("explain", row["pv"]).stdout.split())
        for sentence in (*answer["remedies"], *answer["known"], answer["missing"]):
            self.assertIn(" ".join(sentence.split()), text)
        self.assertEqual(answer["volume"], listed)
        self.assertEqual(answer["sandbox"]["sandbox_id"], SANDBOX)
        self.assertEqual(answer["mapping"]["device"], row["device"])
        self.assertEqual(answer["resize"]["to_bytes"], AFTER)
        self.assertIsNone(answer["cleanup"])
        self.assertEqual(answer["layers"], [])
        self.assertTrue(answer["journal"])
        self.assertEqual([judged["decision"] for judged in answer["judged"]], ["not_stale"])

    def test_resync(self):
        node = self.build()
        attempts = self.resize_row(node, self.blocked.path)["attempts"]
        code, body = curl(node, "/v1/resync", "--request", "POST")
        self.assertEqual((code, json.loads(body)), (202, {}))
        node.wait(lambda: self.resize_row(node, self.blocked.path)["attempts"] > attempts, 60, "another attempt")
        node.wait_for(self.blocked.path, "blocked", "monitor_missing")

    def test_reads_only_on_an_address(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        node = self.running_node({"http.listen": f"127.0.0.1:{port}"})

        def ask(path, *arguments):
            done = subprocess.run(["curl", "--silent", "--write-out", "\n%{http_code}", *arguments,
                                   f"http://127.0.0.1:{port}{path}"], capture_output=True,
                                  text=True, timeout=60)
            return done.stdout.rpartition("\n")[2]

        for path in ("/", "/status.css", "/status.js", "/healthz", "/readyz", "/metrics", "/v1/status",
                     "/v1/doctor", *(f"/v1/{view}" for view in VIEWS)):
            self.assertEqual(ask(path), "200", path)
        for method, path in (("POST", "/v1/resync"), ("POST", "/v1/gc"),
                             ("POST", "/v1/cleanups/1/restore"), ("POST", "/v1/volumes/1/resize"),
                             ("GET", "/v1/volumes/1/stats"), ("GET", "/direct-volume/stats?path=/x"),
                             ("GET", "/direct-volume/stats/L3g="), ("POST", "/direct-volume/resize"),
                             ("PUT", "/fs-stats"), ("PUT", "/fs-resize")):
            self.assertEqual(ask(path, "--request", method, "--data", "{}"), "404", path)
            self.assertNotEqual(curl(node, path, "--request", method, "--data", "{}")[1],
                                curl(node, "/v1/nothing")[1], path)

    def test_nonsense_on_the_socket(self):
        """Whatever is written there, the next one is served."""
        node = self.build()
        directory = os.open(node.path("/run/crustd"), os.O_PATH | os.O_DIRECTORY)
        self.addCleanup(os.close, directory)
        for sent in (b"", b"\0" * 100, b"GET", b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n\r\n",
                     b"GET /healthz HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"POST /v1/resync HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
                     b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 10000 + b"\r\n"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"/proc/self/fd/{directory}/http.sock")
                try:
                    client.sendall(sent)
                except OSError:
                    pass  # it may hang up before it has read everything
            self.assertEqual(curl(node, "/healthz")[0], 200)


class GuestAgentTest(unittest.TestCase):
    def test_options_that_are_none(self):
        for options in (["--listen"], ["--listen", "tcp://1"], ["--listen", "vsock://x"],
                        ["--listen", "unix://relative"], ["--once", "--listen", "vsock://1", "/a"],
                        ["--once"], ["--once", "--auto", "/a"], ["--once", "relative"],
                        ["--once", ""], ["--once", "--all", "/a"], ["--once", *["/a"] * 65],
                        ["--once", "/" + "a" * 1023], ["--once", "--timeout", "0", "/a"],
                        ["--once", "--timeout", "3601", "/a"], ["--once", "--timeout", "1s", "/a"],
                        ["--flush", "-1"], ["--flush", "3601"], ["--auto", "--flush", "1"],
                        ["--once", "--flush", "1", "/a"],
                        ["--report"], ["--report", "/a"], ["--all"], ["--timeout", "5"],
                        ["more"], ["--what"]):
            with self.subTest(options):
                done = subprocess.run([BUILD / "crust-guest-agent", *options], capture_output=True,
                                      text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertTrue(done.stderr)

    def test_once_answers_whatever_its_input_is(self):
        """One line, at once, and nothing is read from anybody."""
        longest = "/" + "a" * 1022
        with subprocess.Popen([BUILD / "crust-guest-agent", "--once", *[longest] * 63, "/proc"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
            line = agent.stdout.read()
            self.assertEqual(agent.wait(60), 1)
        self.assertEqual(line.count(b"\n"), 1)
        volumes = json.loads(line)["volumes"]
        self.assertEqual([volume["error"] for volume in volumes], ["not_mounted"] * 63 + ["not_a_block_device"])

    def test_once_reports_an_unwritable_stdout(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BUILD / "crust-guest-agent", "--once", "/proc"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("cannot write the report", done.stderr)


class CrustctlTest(ApiTest):

    def code(self, node, *arguments):
        return node.crustctl(*arguments, check=False).returncode

    def test_with_a_daemon(self):
        node = self.build()
        volume_id = node.volume(self.blocked.path)["volume_id"]
        for command in ("status", "volumes", "sandboxes", "devices", "mappings", "resizes",
                        "cleanups", "journal", "resync", "health"):
            for output in ("text", "json"):
                done = node.crustctl("-o", output, command, check=False)
                self.assertEqual((done.returncode, done.stderr), (OK, ""), command)
                if output == "json":
                    json.loads(done.stdout)
        row = node.volume(self.blocked.path)
        for name in (self.blocked.path, row["key"], row["pv"], str(volume_id)):
            for command in ("volume", "explain"):
                self.assertEqual(self.code(node, command, name), OK)
        answer = json.loads(node.crustctl("-o", "json", "explain", self.blocked.path).stdout)
        self.assertEqual((answer["state"], answer["reason"]), ("blocked", "monitor_missing"))
        self.assertIn("extra_monitor_socket", " ".join(answer["remedies"]))
        blocked = json.loads(node.crustctl("-o", "json", "volumes", "--blocked").stdout)
        self.assertEqual([one["volume_id"] for one in blocked], [volume_id])
        for command in ("volumes", "status", "resizes", "explain"):
            arguments = [self.blocked.path] if command == "explain" else []
            self.assertIn("monitor_missing" if command != "status" else "blocked",
                          node.crustctl(command, *arguments).stdout)

    def test_help(self):
        """Of each command, in lines that a terminal has room for."""
        node = self.node()
        self.assertIn("direct-volume resize ", node.crustctl("direct-volume", "--help").stdout)
        self.assertIn("usage: crustctl resize", node.crustctl("help", "resize").stdout)
        self.assertIn("--mount-info", node.crustctl("help", "direct-volume", "add").stdout)
        listed = node.crustctl("--help").stdout
        for command in re.findall(r"(?m)^  (\w\S*(?: [a-z-]+)?)", listed):
            listed += node.crustctl(*command.split(), "--help").stdout
        self.assertEqual([line for line in listed.splitlines() if len(line) > 80], [])

    def test_the_root_from_the_environment(self):
        node = self.build()
        done = subprocess.run([str(BUILD / "crustctl"), "volumes"], capture_output=True, text=True,
                              timeout=60, env={"CRUST_ROOT": str(node.root)})
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        self.assertIn("monitor_missing", done.stdout)
        done = subprocess.run([str(BUILD / "crustd"), "--check-config"], capture_output=True,
                              text=True, timeout=60, env={"CRUST_ROOT": str(node.root / "none")})
        self.assertEqual(done.returncode, USAGE)
        self.assertIn(str(node.root / "none"), done.stderr)
        for environment, code, said in (({"CRUST_ROOT": str(node.root / "none")}, OK, ""),  # the option is before it
                                        ({"CRUST_CONFIG": "/etc/no.conf"}, USAGE, "/etc/no.conf")):
            done = subprocess.run(node.command("--check-config"), capture_output=True, text=True, timeout=60,
                                  env=environment)
            self.assertEqual((done.returncode, said in done.stderr), (code, True), done.stderr)

    def test_programs_get_whole_lines(self):
        """And every list that shows a volume has its PV name."""
        node = self.build()
        row = node.volume(self.blocked.path)
        for command in ("volumes", "mappings", "resizes", "journal"):
            out = node.crustctl(command).stdout
            self.assertNotIn("…" if command != "journal" else "\n    ", out, command)
            self.assertIn(row["pv"], out, command)
        self.assertIn(SANDBOX, node.crustctl("mappings").stdout)
        for view in ("mappings", "resizes", "journal"):
            rows = json.loads(node.crustctl("-o", "json", view).stdout)
            self.assertIn(row["pv"], [one["pv"] for one in rows], view)

    def test_volumes_by_their_handles(self):
        """Two claims of one handle are two volumes, and neither is meant more than the other."""
        node = self.node()
        paths = [publish_path(name) for name in ("pv-first", "pv-second", "pv-third")]
        for path, handle in zip(paths, ("vol-shared", "vol-shared", "vol-alone")):
            data = node.path(path).parent
            data.mkdir(parents=True)
            (data / "vol_data.json").write_text(json.dumps({"driverName": "csi.example", "volumeHandle": handle}))
            node.stage(path, "/dev/none")
        node.start()
        node.wait(lambda: len(node.query("SELECT 1 FROM audit_volumes")) == 3, 60, "all volumes")
        alone = json.loads(node.crustctl("-o", "json", "volume", "vol-alone").stdout)
        self.assertEqual((alone["target_path"], alone["volume_handle"]), (paths[2], "vol-alone"))
        done = node.crustctl("volume", "vol-shared", check=False)
        self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
        for words in ("more than one volume", "pv-first", "pv-second", *paths[:2]):
            self.assertIn(words, done.stderr)
        self.assertNotIn("pv-third", done.stderr)

    def test_a_name_that_is_also_an_id(self):
        """PVs may be called "1", "2", "3": nobody's volume is taken for another's."""
        node = self.node()
        names = ("2", "3", "pv-alone")  # the first has the id 1, and so on
        for name in names:
            node.stage(publish_path(name), "/dev/none")
            node.start() if name == "2" else None
            node.wait_for(publish_path(name), "unbound")
        for command in (["volume", "2"], ["explain", "2"], ["resize", "2"], ["stats", "2"],
                        ["wait", "2", "--for", "unbound", "--timeout", "0"]):
            done = node.crustctl(*command, check=False)
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""), command)
            for words in ("more than one volume", "#1  2 ", "#2  3 "):
                self.assertEqual(done.stderr.count(words), 1, command)
        for name, path in (("#2", "3"), ("#1", "2"), ("1", "2"), ("pv-alone", "pv-alone")):
            row = json.loads(node.crustctl("-o", "json", "volume", name).stdout)
            self.assertEqual(row["target_path"], publish_path(path), name)
        self.assertEqual(self.code(node, "volume", "#9"), NOT_FOUND)
        # While a PV is away, the volume with this id is not taken for it.
        node.unstage(publish_path("2"))
        node.wait_for(publish_path("2"), "unmanaged", status="removed")
        self.assertRegex(node.crustctl("resize", "2", check=False).stderr, "(?s)#1  2 .*  .removed.\n.*#2  3 ")
        # A removed one of the same PV is not meant while another is there.
        node.unstage(publish_path("pv-alone"))
        node.wait_for(publish_path("pv-alone"), "unmanaged", status="removed")
        node.stage(publish_path("pv-alone"), "/dev/none")
        node.wait_for(publish_path("pv-alone"), "unbound")
        self.assertEqual(json.loads(node.crustctl("-o", "json", "volume", "pv-alone").stdout)["volume_id"], 4)
        self.assertEqual(json.loads(node.crustctl("-o", "json", "volume", "#3").stdout)["status"], "removed")

    def test_the_log_names_volume_and_node(self):
        node = self.build()
        lines = [line for line in node.log.read_text().splitlines() if " volume=" in line]
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, r" node=\S+ volume=\d+ pv=pv\S* ")
        node.stop()
        with unittest.mock.patch.dict(os.environ, NODE_NAME="worker-7"):
            node.start()
        self.assertRegex(node.log.read_text(), "(?m) level=info node=worker-7 .* is up,")
        node.stop()
        node.log.write_text("")
        with unittest.mock.patch.dict(os.environ, NODE_NAME=""):  # counts as absent
            node.start("--log-format=json", "--log-level", "info")
        lines = [json.loads(line) for line in node.log.read_text().splitlines()]
        self.assertEqual({(line["node"], line["level"]) for line in lines if "is up," in line["msg"]},
                         {(os.uname().nodename, "info")})
        self.assertNotIn("debug", {line["level"] for line in lines})

    def test_the_counter_of_published_volumes(self):
        """Each volume once, also one that a driver wrote as a file, and none again at a restart."""
        node = self.node()
        node.stage(publish_path("pv-before"), "/dev/none")
        node.start()

        def count():
            return int(metrics_of(node)["volumes_published_with_deferred_ops_total"])

        self.assertEqual(count(), 1)
        node.stage(publish_path("pv-by-hand"), "/dev/none")
        node.wait_for(publish_path("pv-by-hand"), "unbound")
        node.crustctl("resync")
        self.assertEqual(count(), 2)
        node.stop()
        node.stage(publish_path("pv-meanwhile"), "/dev/none")
        node.start()
        node.wait_for(publish_path("pv-meanwhile"), "unbound")
        self.assertEqual(count(), 1)

    def test_wait_sees_it_happen(self):
        node = self.build()
        path = publish_path("pv-later")
        waiting = subprocess.Popen(
            [str(BUILD / "crustctl"), "--root", str(node.root), "wait", path, "--for", "unbound", "--timeout", "120"],
            stdout=subprocess.PIPE, text=True)
        node.stage(path, "/dev/none")
        self.assertEqual(waiting.wait(120), OK)
        self.assertIn("unbound", waiting.communicate()[0])

    def test_journal_follows(self):
        node = self.build()
        following = subprocess.Popen(
            ["timeout", "120", str(BUILD / "crustctl"), "--root", str(node.root), "-o", "json",
             "journal", "-n", "1", "-f"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(following.stdout.close)
        self.addCleanup(following.wait)
        self.addCleanup(following.terminate)
        json.loads(following.stdout.readline())  # from here on it follows
        path = publish_path("pv-followed")
        node.stage(path, "/dev/none")
        for line in following.stdout:
            if json.loads(line)["kind"] == "volume_added":
                break
        else:
            self.fail("the new volume was not in the journal")
        self.assertIn(path, line)

    def test_without_a_daemon(self):
        node = self.build()
        node.stop()
        for command in ("status", "volumes", "sandboxes", "devices", "mappings", "resizes", "cleanups", "journal"):
            done = node.crustctl("-o", "json", command, check=False)
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertIn("no daemon answers", done.stderr)
            self.assertIn("read from the database", done.stderr)
            json.loads(done.stdout)
        self.assertIn("blocked/monitor_missing", node.crustctl("volume", self.blocked.path).stdout)
        self.assertEqual(self.code(node, "volume", "/nobody"), NOT_FOUND)
        for form in ((), ("-o", "json")):
            done = node.crustctl(*form, "explain", self.blocked.path, check=False)
            self.assertEqual((done.returncode, done.stdout), (UNREACHABLE, ""), form)
            for words in ("no daemon answers on /run/crustd/http.sock\n", "crustctl volume VOL shows",
                          "sqlite3 -readonly /var/lib/crustd/crustd.db 'SELECT * FROM audit_volumes'"):
                self.assertIn(words, done.stderr)
        for arguments in (["resync"], ["health"], ["wait", self.blocked.path, "--for", "blocked", "--timeout", "0"]):
            self.assertEqual(self.code(node, *arguments), UNREACHABLE, arguments)

    def test_without_daemon_and_database(self):
        node = self.node()
        for arguments in (["status"], ["volumes"], ["explain", "x"], ["resync"], ["health"]):
            self.assertEqual(self.code(node, *arguments), UNREACHABLE, arguments)

    def test_a_user_who_may_not_ask(self):
        """That is not "no daemon answers", which would make people look for a daemon."""
        node = self.build()
        other_users.open_addresses(node)
        for path in ("/etc", "/etc/crustd", "/etc/crustd/crustd.conf"):
            node.path(path).chmod(0o755)
        for command in ("status", "health", "resync"):
            done = subprocess.run([BUILD / "crustctl", "--root", node.root, command], capture_output=True, text=True,
                                  user=65534, group=65534, extra_groups=[])
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertIn("no permission to ask the daemon on /run/crustd/http.sock", done.stderr)
            self.assertNotIn("no daemon answers", done.stderr)

    def test_after_a_daemon_that_was_killed(self):
        """Its socket is still there, but nobody listens."""
        node = self.build()
        node.kill()
        self.assertTrue(node.path("/run/crustd/http.sock").exists())
        done = node.crustctl("volumes", check=False)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("no daemon answers", done.stderr)
        self.assertEqual(self.code(node, "health"), UNREACHABLE)
        node.start()
        self.assertEqual(self.code(node, "health"), OK)
        self.assertTrue(status(node)["synced"])

    def test_a_database_that_is_none(self):
        node = self.node()
        (node.root / "var/lib/crustd/crustd.db").write_bytes(b"nothing of ours" * 100)
        done = node.crustctl("volumes", check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("cannot be read", done.stderr)

    def test_stops_while_a_call_hangs(self):
        node = self.build()
        monitor = self.monitor(node, self.blocked)
        monitor.silent = True
        node.wait(lambda: monitor.connections > 0, 60, "the call to begin")
        self.assertEqual(node.stop(signal.SIGTERM), 0)
        node.start()
        monitor.silent = False
        self.agent(node)
        node.crustctl("wait", self.blocked.path, "--for", "in_sync", "--timeout", "100")
        self.assertEqual(node.volume(self.blocked.path)["sandbox_id"], SANDBOX)
