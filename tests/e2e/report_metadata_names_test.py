# SPDX-License-Identifier: Apache-2.0
"""Names of metadata directories (T6 of the threat model): those that are none, those of both layouts
in both roots, and whose volume a directory is that is renamed, replaced or written again. And their root,
which comes, goes and is covered, and is flooded (T9), up to crustd's bound and beyond it.
"""

import contextlib
import json
import os
import shutil
import subprocess

from mount_info import kata, text, write_content
from node import encode
from scratch_node import ScratchNodeTest, curl, publish_path, status

MOST = 16384  # STORE_VOLUMES
EXTRA = 40
NAMES = {
    "no padding": encode("/a").rstrip("=").encode(),
    "bits behind the end": b"L2F=",
    "other alphabet": b"Lz8+",
    "relative path": encode("a/b").encode(),
    "empty path": b"====",
    "a NUL": encode("/a\0b").encode(),
    "not UTF-8": encode(b"/\xff\xfe").encode(),
    "longer than any path": b"L" * 254,
    "as long as a name": b"L" * 255,
    "upper-case SHA-256": b"A" * 64,
    "63 digits": b"0" * 63,
    "plain text": b"pvc-1234",
    "hidden": b".tmp",
    "line break": b"a\nb",
    "bytes beyond UTF-8": b"\xff\xfe\xfd",
    "quotes": b"'\"; DROP TABLE volumes; --",
}


class Names(ScratchNodeTest):
    """Directory names of both layouts, in both roots."""

    def roots(self, node):
        crust = node.root / "run/crust"
        crust.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"kata": kata(node), "crust": crust}

    def make(self, root, name, content=None):
        path = os.fsencode(root) + b"/" + os.fsencode(name)
        os.mkdir(path, 0o700)
        file = os.open(path + b"/mountInfo.json", os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, content or text())
        os.close(file)

    def test_names_that_are_none(self):
        for layout in ("kata", "crust"):
            node = self.node()
            root = self.roots(node)[layout]
            for name in NAMES.values():
                self.make(root, name)
            self.make(root, encode("/a/good"))
            node.start()
            sql = ("SELECT hex(key) AS key, target_path, status, state, reason, layout,"
                   " hex(problem) AS problem FROM audit_volumes")
            node.wait(lambda: len(node.query(sql)) == len(NAMES) + 1, 60, "all rows")
            node.wait(lambda: all(row["state"] != "unknown" for row in node.query(sql)), 60, "all to be decided")
            rows = {bytes.fromhex(row["key"]): row for row in node.query(sql)}
            for name, key in NAMES.items():
                with self.subTest(name, layout=layout):
                    row = rows[key]
                    problem = bytes.fromhex(row["problem"]).decode()
                    self.assertIsNone(row["target_path"])
                    self.assertEqual(row["layout"], layout)
                    self.assertEqual((row["status"], row["state"], row["reason"]),
                                     ("invalid", "unmanaged", "invalid_mount_info"))
                    self.assertIn("directory name ", problem)
                    self.assertTrue(problem.isprintable(), problem)
            self.assertEqual(rows[encode("/a/good").encode()]["status"], "present")
            code, body = curl(node, "/v1/volumes")
            self.assertEqual(code, 200)
            self.assertEqual(len(json.loads(body)), len(rows))
            self.assertEqual(len(json.loads(node.crustctl("volumes", "-o", "json").stdout)), len(rows))
            node.crustctl("volumes")
            node.stop()

    def test_both_kinds_of_names_in_both_roots(self):
        node = self.node()
        roots = self.roots(node)
        paths = {layout: f"/volumes/{layout}" for layout in roots}
        for layout, root in roots.items():
            self.make(root, encode(paths[layout]))
            self.make(root, node.directory(f"/hidden/{layout}", "crust").name)
        node.start()
        node.wait(lambda: len(node.query("SELECT 1 FROM audit_volumes WHERE state = 'unbound'")) == 4,
                  60, "four volumes")
        for layout, path in paths.items():
            self.assertEqual(node.volume(path)["layout"], layout)
            key = node.directory(f"/hidden/{layout}", "crust").name
            row, = node.query(f"SELECT * FROM audit_volumes WHERE key = '{key}'")
            self.assertIsNone(row["target_path"])
            self.assertEqual((row["layout"], row["status"]), (layout, "present"))
            self.assertEqual(json.loads(node.crustctl("volumes", "-o", "json").stdout).__len__(), 4)
            self.assertIn(key[:12], node.crustctl("volume", key).stdout)

    def test_one_volume_in_both_roots(self):
        node = self.node()
        roots = self.roots(node)
        path = publish_path("pv-both")
        for root in roots.values():
            self.make(root, encode(path))
        node.start()
        node.wait_for(path, "unbound", layout="both")
        first = node.volume(path)["volume_id"]
        shutil.rmtree(roots["kata"] / encode(path))
        node.wait_for(path, "unbound", layout="crust", volume_id=first)
        self.make(roots["kata"], encode(path))
        node.wait_for(path, "unbound", layout="both", volume_id=first)
        (roots["crust"] / encode(path) / "mountInfo.json").write_text("{")
        row = node.wait_for(path, "unmanaged", "invalid_mount_info", volume_id=first)
        self.assertIn("mountInfo.json", row["problem"])
        shutil.rmtree(roots["crust"] / encode(path))
        node.wait_for(path, "unbound", layout="kata", volume_id=first, problem=None)
        shutil.rmtree(roots["kata"] / encode(path))
        node.wait_for(path, "unmanaged", "none", status="removed", volume_id=first)
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_volumes"), [{"n": 1}])

    def test_removed_and_staged_again(self):
        node = self.running_node()
        path = publish_path("pv-again")
        node.stage(path, "/dev/first")
        first = node.wait_for(path, "unbound")
        node.unstage(path)
        gone = node.wait_for(path, "unmanaged", "none", status="removed")
        self.assertEqual(gone["volume_id"], first["volume_id"])
        self.assertEqual(gone["device"], "/dev/first")
        self.assertIsNotNone(gone["removed_at"])
        node.stage(path, "/dev/second")
        second = node.wait_for(path, "unbound", status="present")
        self.assertNotEqual(second["volume_id"], first["volume_id"])
        self.assertEqual(second["device"], "/dev/second")

    def test_a_directory_that_is_renamed_or_replaced(self):
        node = self.running_node()
        old, new = publish_path("pv-old"), publish_path("pv-new")
        node.stage(old, "/dev/first")
        first = node.wait_for(old, "unbound")
        node.directory(old).rename(node.directory(new))
        node.wait_for(old, "unmanaged", "none", status="removed")
        moved = node.wait_for(new, "unbound", status="present")
        self.assertNotEqual(moved["volume_id"], first["volume_id"])
        aside = node.root / "aside"
        node.directory(new).rename(aside)
        (node.root / "next").mkdir(mode=0o700)
        write_content(node.root / "next", text(device="/dev/next"))
        (node.root / "next").rename(node.directory(new))
        node.wait_for(new, "unbound", status="present", device="/dev/next")
        node.wait_for(new, "unbound", device="/dev/next")
        self.assertNotEqual(node.volume(new)["volume_id"], moved["volume_id"])

    def test_written_in_place_and_by_rename(self):
        node = self.running_node()
        path = publish_path("pv-written")
        directory = node.stage(path, "/dev/first")
        first = node.wait_for(path, "unbound", device="/dev/first")["volume_id"]
        node.stage(path, "/dev/second")
        node.wait_for(path, "unbound", device="/dev/second", volume_id=first)
        temporary = directory / ".mountInfo.json.tmp"
        temporary.write_bytes(text(device="/dev/third"))
        temporary.chmod(0o600)
        temporary.rename(directory / "mountInfo.json")
        node.wait_for(path, "unbound", device="/dev/third", volume_id=first)


class Roots(ScratchNodeTest):
    """The watched directory itself comes, goes and is covered."""

    def test_missing_at_start(self):
        node = self.node({"resize.sweep_seconds": 3600})
        shutil.rmtree(node.root / "run/kata-containers")
        node.start()
        self.assertEqual(node.query("SELECT * FROM audit_volumes"), [])
        path = publish_path("pv-late")
        node.stage(path, "/dev/late")
        node.wait_for(path, "unbound")
        self.assertFalse((node.root / "run/crust").exists())

    def test_replaced(self):
        node = self.running_node({"resize.sweep_seconds": 3600})
        first, second = publish_path("pv-first"), publish_path("pv-second")
        node.stage(first, "/dev/first")
        node.wait_for(first, "unbound")
        kata(node).rename(node.root / "aside")
        node.wait_for(first, "unmanaged", "none", status="removed")
        node.stage(second, "/dev/second")
        node.wait_for(second, "unbound")
        shutil.rmtree(node.root / "run/kata-containers")
        node.wait_for(second, "unmanaged", "none", status="removed")
        (node.root / "run/kata-containers/shared").mkdir(parents=True, mode=0o700)
        (node.root / "aside").rename(kata(node))
        row = node.wait_for(first, "unbound", status="present")
        self.assertEqual(row["device"], "/dev/first")

    def test_mounted_over(self):
        """In a mount namespace of the daemon's own, so that only it sees the mount."""
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
            self.skipTest("needs to make a mount namespace")
        node = self.node(wrapper=["unshare", "--mount", "--propagation", "private"])
        under, over = publish_path("pv-under"), publish_path("pv-over")
        node.stage(under, "/dev/under")
        node.start()
        node.wait_for(under, "unbound")
        inside = ["nsenter", "--target", str(node.process.pid), "--mount"]

        def enter(*command):
            subprocess.run([*inside, *map(str, command)], check=True, capture_output=True)

        enter("mount", "-t", "tmpfs", "-o", "mode=0700", "none", kata(node))
        node.wait_for(under, "unmanaged", "none", status="removed")
        hidden = kata(node) / encode(over)
        enter("sh", "-c", 'umask 077; mkdir "$1" && printf %s "$2" >"$1/mountInfo.json"', "sh",
              hidden, text(device="/dev/over").decode())
        node.wait_for(over, "unbound")
        enter("umount", kata(node))
        node.wait_for(over, "unmanaged", "none", status="removed")
        node.wait_for(under, "unbound", status="present")

    def test_thousand_at_once_while_one_is_bad(self):
        """A flood of directories loses none, and a bad one among them holds up nobody."""
        node = self.running_node()
        for number in range(1000):
            node.stage(f"/flood/{number}", f"/dev/flood{number}", text="{" if number == 500 else None)
        sql = "SELECT status, count(*) AS n FROM audit_volumes GROUP BY status ORDER BY status"
        wanted = [{"status": "invalid", "n": 1}, {"status": "present", "n": 999}]
        with contextlib.suppress(Exception):
            node.wait(lambda: node.query(sql) == wanted, 120, "all to be recorded")
        self.assertEqual(node.query(sql), wanted)


class FloodTest(ScratchNodeTest):
    hostile = True

    def test_further_directories_are_passed_over(self):
        node = self.node({"resize.sweep_seconds": 1})
        paths = [f"/flood/{number}" for number in range(MOST + EXTRA)]
        for path in paths:
            node.stage(path, "/dev/absent")
        node.start()
        health = status(node)
        self.assertTrue(health["degraded"])
        self.assertIn("more volumes than crustd can handle", health["problem"])
        self.assertEqual(self.present(node), MOST)

        for path in paths[:2 * EXTRA]:
            node.unstage(path)
        node.wait(lambda: self.present(node) == MOST - EXTRA and not self.degraded(node), 120,
                  "the directories passed over to be taken after all")
        self.assertEqual(node.log.read_text().count("further directories are passed over"), 1)
        self.assertEqual(node.stop(), 0)

    @staticmethod
    def present(node):
        return node.query("SELECT count(*) AS n FROM audit_volumes WHERE status = 'present'")[0]["n"]

    @staticmethod
    def degraded(node):
        return status(node)["degraded"]
