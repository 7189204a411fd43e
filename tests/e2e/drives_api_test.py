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

from grpc_client import SECONDS
from node import REPOSITORY
from refusals import NOT_FOUND, SECRET, USAGE, WHOLE, Attach, Call, Crustctl, Http, RefusalsTest
from scratch_node import SANDBOX, curl, rss_anon

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

# The fields that were added to it, JSON that is strict, and the other calls.
OTHERS = (
    *((Attach(fields, crustctl=False), "INVALID_ARGUMENT", word) for fields, word in (
        ({"drive_id": ""}, "drive_id"),
        ({"drive_id": "a/b"}, "drive_id"),
        ({"drive_id": "x" * 37}, "drive_id"),
        ({"sandbox_id": ""}, "sandbox_id"),
        ({"sandbox_id": "../x"}, "sandbox_id"),
        ({"fs_group": 4294967295}, "fs_group"),
        ({"containers": [{"container_id": f"c{i}", "path": "/d"} for i in range(17)]}, "containers"),
        ({"containers": [{"container_id": "a/b", "path": "/d"}]}, "containers[0].container_id"),
        ({"containers": [{"container_id": "c", "path": "d"}]}, "containers[0].path"),
        ({"containers": [{"container_id": "c", "path": "/sys"}]}, "containers[0].path"),
        ({"containers": [{"container_id": "c", "path": "/d", "sub_path": "../x"}]}, "containers[0].sub_path"),
        ({"containers": [{"container_id": "c", "path": "/d"}] * 2}, "same place"),
        ({"drive_id": "a.b"}, "drive_id is not"),
        ({"sandbox_id": "../s"}, "sandbox_id is not"),
        ({"filesystem_type": "ext4,xfs"}, "filesystem_type is not"),
        *(({name: path}, f"{name} is not an absolute path") for name in ("host_path", "vm_path") for path in (
            "data", "/", "//data", "/a//b", "/a/", "/./a", "/a/..", "/..")),
        ({"vm_path": "/" + "x" * 1023}, "vm_path"),
        *(({"vm_path": path}, "vm_path is protected") for path in (
            "/proc/1", "/sys/fs/x", "/dev", "/run/kata-containers", "/var/run/kata-containers/shared/containers/x")),
        *(({"options": ["noatime", f"{name}={SECRET}"]}, "options[1] carries a secret") for name in (
            "journal_key", "x,token", "auth", "creds")),
        ({"options": ["noatime", "noexec,ro"]}, "options[1] is no single option"),
        ({"options": ["noatime", "data=a\nb"]}, "options[1] is no single option"),
        ({"rate_limiter": {"ops": {"one_time_burst": 1}}}, "ops has no size"),
        ({"containers": [{"container_id": "c", "path": "/d", "sub_path": "/a"}]}, "containers[0].sub_path"),
        ({"containers": [{"container_id": "c", "path": "/d", "sub_path": "a/../../b"}]}, "containers[0].sub_path"),
    )),
    *((Call("Drives/AttachDrive", **WHOLE | fields), "INVALID_ARGUMENT", word) for fields, word in (
        ({"fsck": 7}, "fsck is unknown"),
        ({"fs_group_change_policy": 7}, "fs_group_change_policy is unknown"),
        ({"host_path": "/\0x"}, "host_path is not UTF-8, or has a NUL"),
        *(({"rate_limiter": {"ops": {"size": size, "refill_time_ms": refill, "one_time_burst": burst}}}, "too large")
          for size, refill, burst in ((1 << 63, 1, 0), (1, 1 << 63, 0), (1, 1, 1 << 63))))),
    *((Http("POST", "/v1/drives", WHOLE | fields), "INVALID_ARGUMENT", word) for fields, word in (
        ({"is_writeable": True}, "not known"),
        ({"is_writable": "true"}, "is_writable"),
        ({"options": "ro"}, "options"),
        ({"fsck": "force"}, "fsck"),
        ({"fs_group": "1000"}, "fs_group"),
        ({"fs_group_change_policy": "Never"}, "fs_group_change_policy"),
        ({"rate_limiter": {"iops": {"size": 1, "refill_time_ms": 1}}}, "rate_limiter"),
        ({"rate_limiter": {"bandwidth": {"size": "1MB", "refill_time_ms": 1}}}, "rate_limiter.bandwidth.size"),
        ({"DRIVE_ID": "x"}, "the body has a member twice"),
        ({"options": [1]}, "options[0] is no text"),
        ({"fsck": 1}, "fsck is neither"),
        ({"fs_group": -1}, "fs_group is no number"),
        ({"fs_group": 4294967296}, "fs_group must be less than 4294967295"),
        ({"rate_limiter": []}, "rate_limiter is no JSON object"),
        ({"rate_limiter": {"ops": {"size": "1Ki", "refill_time_ms": 1}}}, "rate_limiter.ops.size is no number"),
        ({"rate_limiter": {"bandwidth": {"burst": 1}}}, "rate_limiter.bandwidth has a member"),
        ({"containers": {}}, "containers is no list"),
        ({"containers": ["c1"]}, "containers[0] is no JSON object"),
        ({"containers": [{"container_id": "c1", "path": 5}]}, "containers[0].path is no text"),
        ({"containers": [{"id": "c1"}]}, "containers[0] has a member"),
        ({"drive_id": 7}, "drive_id is no text"),
        ({"options": [f"token={SECRET}"], SECRET: 1}, "has a member"),
    )),
    *((Http("POST", f"/v1/drives{path}", body), "INVALID_ARGUMENT") for path, body in (
        ("", []), ("", None), ("", {"drive_id": "d"}), ("?dry_run=1", WHOLE), ("/d/detach", {"force": True}),
        ("/a.b/detach", None), ("/d/limits", None), ("/d/limits", {}), ("/d/limits", {"bandwidth": {}}))),
    (Call("Drives/DetachDrive"), "INVALID_ARGUMENT", "drive_id"),
    (Call("Drives/GetDrive", drive_id="a b"), "INVALID_ARGUMENT", "drive_id"),
    (Call("Drives/UpdateDriveLimits", drive_id="d"), "INVALID_ARGUMENT", "rate_limiter"),
)

# Well-formed, and refused because drives are off.
OFF = (
    *((Attach(fields), "FAILED_PRECONDITION", "drives.enabled") for fields in (
        {}, {"drive_id": "x" * 36}, {"host_path": "/dev/..data"}, {"vm_path": "/container"}, {"vm_path": "/process"},
        {"vm_path": "/run/kata-containers-2"}, {"vm_path": "/mnt/dev"}, {"options": ["ro"]},
        {"options": ["rw"], "is_writable": True}, {"options": ["context=system_u:object_r:t:s0:c1,c2"]},
        {"fs_group": 0}, {"rate_limiter": {"bandwidth": {"size": 1, "refill_time_ms": 1}}},
        {"containers": [{"container_id": "c1", "path": "/d"},
                        {"container_id": "c.2", "path": "/d", "sub_path": "a/b"}]})),
    (Call("Drives/DetachDrive", drive_id="data-1"), "OK"),
    (Http("POST", "/v1/drives/data-1/detach"), "OK"),
    (Call("Drives/GetDrive", drive_id="data-1"), "NOT_FOUND"),
    (Call("Drives/UpdateDriveLimits", drive_id="data-1", rate_limiter={}), "NOT_FOUND"),
    (Crustctl("drive", "limits", "data-1", "--bandwidth", "none"), NOT_FOUND),
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


class DrivesApiTest(RefusalsTest):

    def started(self, settings=None):
        self.host = self.running_node(settings)
        self.drive = self.messages("crust_drive_v1")
        self.drives = self.stub(self.host, "crust_drive_v1", "Drives")
        return self.host

    # -- refusals

    def test_each_field_of_the_proposal(self):
        self.started()
        for what, fields, word in PROPOSED:
            with self.subTest(what):
                # crustctl itself refuses empty words and too many of them.
                is_given = "" not in fields.values() and len(fields.get("options", ())) <= 32
                self.check(((Attach(fields, crustctl=is_given), "INVALID_ARGUMENT", word),))

    def test_the_table_of_fields_names_these_tests(self):
        page = (REPOSITORY / "docs/interfaces-implemented.md").read_text()
        named = re.findall(r"`test_each_field_of_the_proposal`: (.+?) …", page)
        tried = [what for what, _, _ in PROPOSED]
        self.assertEqual([field for field in named if not any(what.startswith(field) for what in tried)], [])
        self.assertEqual([what for what in tried if not any(what.startswith(field) for field in named)], [])

    def test_other_fields_and_calls(self):
        """Nothing of them is kept, and a secret is nowhere."""
        node = self.started()
        self.check(OTHERS)
        self.check(((Attach({"options": [f"token={SECRET}"]}), "INVALID_ARGUMENT", "secret"),))
        self.assertEqual(node.query("SELECT * FROM audit_drives"), [])
        self.assertNotIn(SECRET, node.log.read_text())

    def test_off_by_default(self):
        """A drive that is not there counts as detached all the same: what was attached before must come out."""
        self.started()
        self.check(OFF)
        self.assertEqual(self.ctl("drive", "detach", "data-1")[:2], (0, "data-1: detached\n"))
        self.assertEqual(len(self.drives.ListDrives(self.drive.ListDrivesRequest(), timeout=SECONDS).drives), 0)

    def test_outside_the_prefixes_and_without_a_sandbox(self):
        node = self.started({"drives.enabled": "on", "drives.host_prefixes": "/srv/images, /dev/vg"})
        self.check((
            *((Attach({"host_path": path}), "PERMISSION_DENIED", "host_prefixes") for path in (
                "/dev/sda", "/srv/images", "/srv/images2/x", "/etc/shadow")),
            (Attach({"host_path": "/dev/vg/data", "sandbox_id": ".."}), "INVALID_ARGUMENT", "sandbox_id is not"),
            (Attach({"host_path": "/dev/vg/data"}), "NOT_FOUND", "sandbox")))
        self.assertEqual(node.query("SELECT * FROM audit_drives"), [])
        self.started({"drives.enabled": "on"})
        self.check(((Attach({}), "PERMISSION_DENIED", "host_prefixes"),))

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
        node = self.host = self.node({"drives.enabled": "on", "drives.host_prefixes": "/srv/images"})
        self.sandbox(node)
        node.start()
        node.wait_alive()
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
        self.check(((Attach({"sandbox_id": SANDBOX, "host_path": "/srv/images/x"}), "RESOURCE_EXHAUSTED", str(most)),))

    def ctl(self, *words):
        done = self.host.crustctl(*words, check=False)
        return done.returncode, done.stdout, done.stderr

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
        self.check([(Crustctl(*words), USAGE, said) for words, said in (
            (("drive",), "drive attach"),
            (("drive", "burn"), "no command"),
            (("drive", "attach"), "wants DRIVE_ID"),
            (("drive", "attach", "d"), "--sandbox"),
            (("drive", "attach", "d", "e", *OPTIONS), "unexpected"),
            (("drive", "attach", "d", *OPTIONS[:4]), "drive attach wants --vm-path"),
            (("drive", "attach", "d", *OPTIONS, "--bandwidth", "10Mi"), "--bandwidth wants"),
            *((("drive", "attach", "d", *OPTIONS, "--operations", limit), "--operations wants SIZE/MS") for limit in (
                "", "1Mi", "1Mi/", "/100", "0/100", "0/1", "1Mi/0", "1M/x", "1/2/3/4", "1/2/x", "-1/1", "1/-1")),
            *((("drive", "attach", "d", *OPTIONS, "--container", place), "--container wants ID:PATH") for place in (
                "", "c1", "c1:/a:b:rw", "c1:/a:b:c:ro", "a:b:c:d:e")),
            (("drive", "attach", "d", *OPTIONS, "--fs-group", "wheel"), "--fs-group wants"),
            (("drive", "detach", "d", "--writable"), "does not take"),
            (("drive", "detach", "a/../b"), "no drive's id"),
            (("drive", "limits", "d"), "--bandwidth"),
            (("volumes", "--sandbox", "s"), "does not take --sandbox"))])

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
