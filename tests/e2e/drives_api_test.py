# SPDX-License-Identifier: Apache-2.0
"""Drives as clients ask for them: gRPC, HTTP and crustctl say the same, and refuse the same."""

import contextlib
import http.server
import json
import re
import socketserver
import sqlite3
import threading
import time
import unittest

from grpc_client import SECONDS, GrpcTest
from node import REPOSITORY
from scratch_node import SANDBOX, curl, rss_anon

SECRET = "hunter2-of-the-test"
WHOLE = {"drive_id": "data-1", "sandbox_id": "nobody", "host_path": "/dev/crust-no-such-disk", "vm_path": "/mnt/data",
         "filesystem_type": "ext4"}
OPTIONS = ("--sandbox", "nobody", "--host-path", WHOLE["host_path"], "--vm-path", WHOLE["vm_path"], "--type", "ext4")

# The proposal's fields, by their names here: what is wrong, and the words that the refusal has.
PROPOSED = (
    ("HostPath missing", {"host_path": ""}, "host_path"),
    ("HostPath relative", {"host_path": "disk.img"}, "host_path"),
    ("HostPath in two forms", {"host_path": "/srv//disk.img"}, "host_path"),
    ("HostPath too long", {"host_path": "/" + "x" * 1023}, "host_path"),
    ("VMPath missing", {"vm_path": ""}, "vm_path"),
    ("VMPath relative", {"vm_path": "mnt"}, "vm_path"),
    ("VMPath with ..", {"vm_path": "/mnt/../proc"}, "vm_path"),
    ("VMPath /proc", {"vm_path": "/proc"}, "vm_path"),
    ("VMPath below /proc", {"vm_path": "/proc/sys"}, "vm_path"),
    ("VMPath /sys", {"vm_path": "/sys"}, "vm_path"),
    ("VMPath below /dev", {"vm_path": "/dev/shm"}, "vm_path"),
    ("FilesystemType missing", {"filesystem_type": ""}, "filesystem_type"),
    ("FilesystemType malformed", {"filesystem_type": "ext4 -o dev"}, "filesystem_type"),
    ("Options empty", {"options": [""]}, "options[0]"),
    ("Options several in one", {"options": ["noatime,ro"]}, "options[0]"),
    ("Options too many", {"options": ["noatime"] * 33}, "options"),
    ("Options too long", {"options": ["x" * 256]}, "options[0]"),
    ("Options with a secret", {"options": ["noatime", f"password={SECRET}"]}, "options[1]"),
    ("Options ro, IsWritable", {"options": ["ro"], "is_writable": True}, "is_writable"),
    ("Options rw, not IsWritable", {"options": ["rw"]}, "is_writable"),
    ("RateLimiter bandwidth without refill", {"rate_limiter": {"bandwidth": {"size": 1}}}, "rate_limiter.bandwidth"),
    ("RateLimiter bandwidth without size", {"rate_limiter": {"bandwidth": {"one_time_burst": 1}}},
     "rate_limiter.bandwidth"),
    ("RateLimiter ops without refill", {"rate_limiter": {"ops": {"size": 1}}}, "rate_limiter.ops"),
    ("RateLimiter ops without size", {"rate_limiter": {"ops": {"refill_time_ms": 1}}}, "rate_limiter.ops"),
)

# Those that were added to it.
ADDED = (
    ("drive_id missing", {"drive_id": ""}, "drive_id"),
    ("drive_id malformed", {"drive_id": "a/b"}, "drive_id"),
    ("drive_id too long", {"drive_id": "x" * 37}, "drive_id"),
    ("sandbox_id missing", {"sandbox_id": ""}, "sandbox_id"),
    ("sandbox_id malformed", {"sandbox_id": "../x"}, "sandbox_id"),
    ("fs_group is none", {"fs_group": 4294967295}, "fs_group"),
    ("containers too many", {"containers": [{"container_id": f"c{i}", "path": "/d"} for i in range(17)]}, "containers"),
    ("containers.container_id", {"containers": [{"container_id": "a/b", "path": "/d"}]}, "containers[0].container_id"),
    ("containers.path", {"containers": [{"container_id": "c", "path": "d"}]}, "containers[0].path"),
    ("containers.path protected", {"containers": [{"container_id": "c", "path": "/sys"}]}, "containers[0].path"),
    ("containers.sub_path", {"containers": [{"container_id": "c", "path": "/d", "sub_path": "../x"}]},
     "containers[0].sub_path"),
    ("containers twice", {"containers": [{"container_id": "c", "path": "/d"}] * 2}, "same place"),
)

# What only JSON can say.
JSON_ONLY = (
    ("a member that is not known", {"is_writeable": True}, "not known"),
    ("is_writable as a text", {"is_writable": "true"}, "is_writable"),
    ("options as a text", {"options": "ro"}, "options"),
    ("fsck unknown", {"fsck": "force"}, "fsck"),
    ("fs_group as a text", {"fs_group": "1000"}, "fs_group"),
    ("fs_group_change_policy unknown", {"fs_group_change_policy": "Never"}, "fs_group_change_policy"),
    ("a bucket that is not known", {"rate_limiter": {"iops": {"size": 1, "refill_time_ms": 1}}}, "rate_limiter"),
    ("a size that is none", {"rate_limiter": {"bandwidth": {"size": "1MB", "refill_time_ms": 1}}},
     "rate_limiter.bandwidth.size"),
)


ANSWER = {**WHOLE, "options": ["noatime"], "is_writable": True,
          "rate_limiter": {"bandwidth": {"size": 1048576, "refill_time_ms": 100, "one_time_burst": 0}, "ops": None},
          "serial": "crust-abcdefghijklmn", "guest_device": "sdb", "size_bytes": 67108864, "is_wanted": True,
          "state": "ready", "status": None, "message": None}


@contextlib.contextmanager
def stand_in(node):
    """In the daemon's place: answers as the test says, and keeps what it was asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.path, json.loads(body) if body else None))
            time.sleep(server.delay)
            self.answer(server.status, server.answer)

        def do_GET(self):
            self.answer(200, server.rows if self.path.startswith("/v1/drives") else {})

        def answer(self, status, value):
            answer = json.dumps(value).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def address_string(self):
            return "a client"

        def log_message(self, format, *arguments):
            pass

    path = node.path("/run/crustd/http.sock")
    path.parent.mkdir(parents=True, exist_ok=True)
    server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
    server.asked, server.status, server.answer, server.rows, server.delay = asked, 200, ANSWER, [], 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        path.unlink()


class DrivesApiTest(GrpcTest):

    def started(self, settings=None):
        self.host = self.node(settings)
        self.host.start()
        self.drive = self.messages("crust_drive_v1")
        self.drives = self.stub(self.host, "crust_drive_v1", "Drives")
        return self.host

    def attach(self, **fields):
        return self.drives.AttachDrive(self.drive.AttachDriveRequest(**WHOLE | fields), timeout=SECONDS)

    def post(self, path, body=None):
        code, answer = curl(self.host, path, "-X", "POST", "--data-binary", "" if body is None else json.dumps(body))
        return code, json.loads(answer)

    def ctl(self, *words):
        done = self.host.crustctl(*words, check=False)
        return done.returncode, done.stdout, done.stderr

    def refused_over_http(self, fields, word):
        code, answer = self.post("/v1/drives", WHOLE | fields)
        self.assertEqual((code, answer["code"]), (400, "INVALID_ARGUMENT"), answer)
        self.assertIn(word, answer["message"])
        self.assertNotIn(SECRET, answer["message"])

    # -- malformed requests

    def test_each_field_of_the_proposal(self):
        self.started()
        for what, fields, word in PROPOSED:
            with self.subTest(what):
                with self.fails("INVALID_ARGUMENT", word) as caught:
                    self.attach(**fields)
                self.assertNotIn(SECRET, caught.exception.details())
                self.refused_over_http(fields, word)

    def test_the_table_of_fields_names_these_tests(self):
        page = (REPOSITORY / "docs/interfaces-implemented.md").read_text()
        named = re.findall(r"`test_each_field_of_the_proposal`: (.+?) …", page)
        tried = [what for what, _, _ in PROPOSED]
        self.assertEqual([field for field in named if not any(what.startswith(field) for what in tried)], [])
        self.assertEqual([what for what in tried if not any(what.startswith(field) for field in named)], [])

    def test_each_field_that_was_added(self):
        self.started()
        for what, fields, word in ADDED:
            with self.subTest(what):
                with self.fails("INVALID_ARGUMENT", word):
                    self.attach(**fields)
                self.refused_over_http(fields, word)
        with self.fails("INVALID_ARGUMENT", "fsck"):
            self.attach(fsck=7)
        with self.fails("INVALID_ARGUMENT", "fs_group_change_policy"):
            self.attach(fs_group_change_policy=7)

    def test_json_is_strict(self):
        self.started()
        for what, fields, word in JSON_ONLY:
            with self.subTest(what):
                self.refused_over_http(fields, word)
        for path, body in (("/v1/drives", []), ("/v1/drives", None), ("/v1/drives/d/detach", {"force": True}),
                           ("/v1/drives/a.b/detach", None), ("/v1/drives/d/limits", None),
                           ("/v1/drives/d/limits", {}), ("/v1/drives/d/limits", {"bandwidth": {}})):
            with self.subTest(path=path, body=body):
                code, answer = self.post(path, body)
                self.assertEqual((code, answer["code"]), (400, "INVALID_ARGUMENT"), answer)

    def test_other_calls(self):
        self.started()
        with self.fails("INVALID_ARGUMENT", "drive_id"):
            self.drives.DetachDrive(self.drive.DetachDriveRequest(), timeout=SECONDS)
        with self.fails("INVALID_ARGUMENT", "drive_id"):
            self.drives.GetDrive(self.drive.GetDriveRequest(drive_id="a b"), timeout=SECONDS)
        with self.fails("INVALID_ARGUMENT", "rate_limiter"):
            self.drives.UpdateDriveLimits(self.drive.UpdateDriveLimitsRequest(drive_id="d"), timeout=SECONDS)

    def test_a_secret_is_nowhere(self):
        node = self.started()
        with self.fails("INVALID_ARGUMENT", "secret"):
            self.attach(options=[f"token={SECRET}"])
        self.refused_over_http({"options": [f"token={SECRET}"]}, "secret")
        code, _, error = self.ctl("drive", "attach", "d", *OPTIONS, "--option", f"token={SECRET}")
        self.assertEqual(code, 5, error)
        self.assertNotIn(SECRET, error)
        self.assertEqual(node.query("SELECT * FROM audit_drives"), [])
        self.assertNotIn(SECRET, node.log.read_text())

    # -- what the daemon says of requests that are well-formed

    def test_off_by_default(self):
        self.started()
        with self.fails("FAILED_PRECONDITION", "drives.enabled"):
            self.attach()
        code, answer = self.post("/v1/drives", WHOLE)
        self.assertEqual((code, answer["code"]), (400, "FAILED_PRECONDITION"), answer)
        code, _, error = self.ctl("drive", "attach", "data-1", *OPTIONS)
        self.assertEqual(code, 5, error)
        self.assertIn("drives.enabled", error)

    def test_a_drive_that_is_not_there(self):
        """It counts as detached, also where drives are off: what was attached before must come out."""
        self.started()
        self.drives.DetachDrive(self.drive.DetachDriveRequest(drive_id="data-1"), timeout=SECONDS)
        self.assertEqual(self.post("/v1/drives/data-1/detach"), (200, {}))
        self.assertEqual(self.ctl("drive", "detach", "data-1")[:2], (0, "data-1: detached\n"))
        with self.fails("NOT_FOUND"):
            self.drives.GetDrive(self.drive.GetDriveRequest(drive_id="data-1"), timeout=SECONDS)
        with self.fails("NOT_FOUND"):
            self.drives.UpdateDriveLimits(self.drive.UpdateDriveLimitsRequest(
                drive_id="data-1", rate_limiter=self.drive.RateLimiter()), timeout=SECONDS)
        self.assertEqual(self.ctl("drive", "limits", "data-1", "--bandwidth", "none")[0], 3)
        self.assertEqual(len(self.drives.ListDrives(self.drive.ListDrivesRequest(), timeout=SECONDS).drives), 0)

    def test_outside_the_prefixes_and_without_a_sandbox(self):
        node = self.started({"drives.enabled": "on", "drives.host_prefixes": "/srv/images, /dev/vg"})
        for path in ("/dev/sda", "/srv/images", "/srv/images2/x", "/etc/shadow"):
            with self.subTest(path):
                with self.fails("PERMISSION_DENIED", "host_prefixes"):
                    self.attach(host_path=path)
                code, answer = self.post("/v1/drives", WHOLE | {"host_path": path})
                self.assertEqual((code, answer["code"]), (403, "PERMISSION_DENIED"), answer)
        with self.fails("NOT_FOUND", "sandbox"):
            self.attach(host_path="/dev/vg/data")
        code, _, error = self.ctl("drive", "attach", "data-1", "--sandbox", "nobody", "--host-path", "/dev/vg/data",
                                  "--vm-path", "/mnt", "--type", "ext4")
        self.assertEqual(code, 3, error)
        self.assertEqual(node.query("SELECT * FROM audit_drives"), [])

    def fill(self, node):
        """As many drives as there may be, which the VM does not give back because it has no monitor."""
        most = int(re.search(r"STORE_DRIVE_MOUNTS = (\d+)", (REPOSITORY / "store/drive_mounts.h").read_text())[1])
        with contextlib.closing(sqlite3.connect(node.path("/var/lib/crustd/crustd.db"))) as database, database:
            sandbox, = database.execute("SELECT sandbox_ref FROM sandboxes WHERE gone_at IS NULL").fetchone()
            database.executemany(
                "INSERT INTO drive_mounts (drive_id, sandbox_ref, host_path, vm_path, fs_type, options, writable, fsck,"
                " fs_group_policy, serial, wanted, state, requested_at)"
                " VALUES (?, ?, '/srv/images/disk', ?, 'ext4', '[]', 0, 'none', 'Always', ?, 0, 'removing', 1)",
                ((f"old-{i}", sandbox, f"/mnt/{i}", f"crust-{i:014}") for i in range(most)))
        return most

    def test_ten_thousand_drives(self):
        """A client that does not stop asking is refused, and others are served; nothing of it is kept."""
        node = self.node({"drives.enabled": "on", "drives.host_prefixes": "/srv/images"})
        self.sandbox(node)
        node.start()
        node.wait(lambda: node.query("SELECT * FROM audit_sandboxes WHERE status = 'alive'"), 60, "the sandbox")
        node.stop()
        most = self.fill(node)
        node.start()
        self.drive = self.messages("crust_drive_v1")
        self.drives = self.stub(node, "crust_drive_v1", "Drives")
        before = rss_anon(node)
        for first in range(0, 10000, 500):
            calls = [self.drives.AttachDrive.future(self.drive.AttachDriveRequest(**WHOLE | {
                "drive_id": f"new-{number}", "sandbox_id": SANDBOX, "host_path": f"/srv/images/{number}",
                "vm_path": f"/new/{number}"}), timeout=SECONDS) for number in range(first, first + 500)]
            self.assertEqual({call.code().name for call in calls}, {"RESOURCE_EXHAUSTED"})
            self.is_served(node)
        self.assertLess(rss_anon(node) - before, 8 << 20)
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_drives")[0]["n"], most)
        drives = self.drives.ListDrives(self.drive.ListDrivesRequest(sandbox_id=SANDBOX), timeout=SECONDS).drives
        self.assertEqual((len(drives), {one.state for one in drives}), (most, {self.drive.Drive.REMOVING}))
        with self.fails("RESOURCE_EXHAUSTED", str(most)):
            self.attach(sandbox_id=SANDBOX, host_path="/srv/images/x")

    # -- rows, and who may only read

    def test_rows(self):
        node = self.started()
        self.assertEqual(curl(node, "/v1/drives"), (200, b"[]\n"))
        self.assertEqual(curl(node, "/v1/drives?live=1")[0], 200)
        self.assertEqual(curl(node, "/v1/drives?volume=1")[0], 400)
        self.assertEqual(self.ctl("-o", "json", "drives")[:2], (0, "[]\n"))
        self.assertEqual(self.ctl("drive", "list", "-a")[:2], (0, "no drives\n"))
        node.stop()
        code, text, error = self.ctl("drive", "list")
        self.assertEqual((code, text), (0, "no drives\n"))
        self.assertIn("read from the database", error)

    # -- crustctl

    def test_crustctl_needs_its_options(self):
        self.started()
        for words, said in (
                (("drive",), "drive attach"),
                (("drive", "burn"), "no command"),
                (("drive", "attach"), "wants DRIVE_ID"),
                (("drive", "attach", "d"), "--sandbox"),
                (("drive", "attach", "d", "e", *OPTIONS), "unexpected"),
                (("drive", "attach", "d", *OPTIONS, "--bandwidth", "10Mi"), "--bandwidth wants"),
                (("drive", "attach", "d", *OPTIONS, "--operations", "0/1"), "--operations wants"),
                (("drive", "attach", "d", *OPTIONS, "--container", "c1"), "--container wants"),
                (("drive", "attach", "d", *OPTIONS, "--fs-group", "wheel"), "--fs-group wants"),
                (("drive", "detach", "d", "--writable"), "does not take"),
                (("drive", "detach", "a/../b"), "no drive's id"),
                (("drive", "limits", "d"), "--bandwidth"),
                (("volumes", "--sandbox", "s"), "does not take --sandbox")):
            with self.subTest(words):
                code, _, error = self.ctl(*words)
                self.assertEqual(code, 2, error)
                self.assertIn(said, error)

    def test_crustctl_shows_what_the_daemon_answers(self):
        self.host = self.node()
        attach = ("drive", "attach", "data-1", *OPTIONS)
        with stand_in(self.host) as daemon:
            self.assertEqual(self.ctl(*attach, "--writable"),
                             (0, f"data-1: ready, {WHOLE['host_path']} at /mnt/data as sdb, 64 MiB\n", ""))
            path, body = daemon.asked.pop()
            self.assertEqual((path, body["is_writable"], body["containers"]), ("/v1/drives", True, []))
            self.assertLessEqual(WHOLE.items(), {**body, "drive_id": "data-1"}.items())
            daemon.answer = {**ANSWER, "message": "the hypervisor keeps no burst"}
            self.assertIn("keeps no burst\n", self.ctl("drive", "limits", "data-1", "--bandwidth", "1Mi/100")[1])
            self.assertEqual(daemon.asked.pop()[0], "/v1/drives/data-1/limits")
            code, text, _ = self.ctl("-o", "json", *attach)
            self.assertEqual((code, json.loads(text)), (0, daemon.answer))
            daemon.answer = {}
            self.assertEqual(self.ctl("drive", "detach", "data-1")[:2], (0, "data-1: detached\n"))
            self.assertEqual(self.ctl("-o", "json", "drive", "detach", "data-1")[:2], (0, "{}\n"))
            self.assertEqual(daemon.asked.pop()[0], "/v1/drives/data-1/detach")

    def test_crustctl_says_what_it_waits_for(self):
        """Also why that is tried again, once for each reason."""
        self.host = self.node()
        with stand_in(self.host) as daemon:
            daemon.delay = 1.8
            daemon.rows = [{"drive_id": "other", "state": "ready"},
                           {"drive_id": "data-1", "state": "attached", "message": "the guest is\u001b[2J slow"}]
            code, _, said = self.ctl("drive", "attach", "data-1", *OPTIONS)
            self.assertEqual((code, said), (0, "waiting: attached: the guest is\\u001b[2J slow\n"))
            daemon.rows[1]["message"] = None
            self.assertEqual(self.ctl("drive", "detach", "data-1")[2], "waiting: attached\n")

    def test_crustctl_has_an_exit_code_for_each_status(self):
        self.host = self.node()
        with stand_in(self.host) as daemon:
            for status, code in ((400, 5), (403, 5), (409, 5), (501, 5), (404, 3), (429, 6), (503, 6), (504, 6),
                                 (500, 1)):
                daemon.status = status
                daemon.answer = {"code": "X", "reason": "x", "message": "pid 7 (postgres) has it"}
                for words in (("drive", "attach", "d", *OPTIONS), ("drive", "detach", "d"),
                              ("drive", "limits", "d", "--operations", "none")):
                    with self.subTest(status=status, words=words):
                        got, text, error = self.ctl(*words)
                        self.assertEqual((got, text), (code, ""), error)
                        self.assertIn("pid 7 (postgres) has it", error)

    def test_crustctl_without_a_daemon(self):
        self.started().stop()
        for words in (("drive", "attach", "d", *OPTIONS), ("drive", "detach", "d"),
                      ("drive", "limits", "d", "--bandwidth", "none")):
            with self.subTest(words):
                self.assertEqual(self.ctl(*words)[0], 4)


if __name__ == "__main__":
    unittest.main()
