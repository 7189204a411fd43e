# SPDX-License-Identifier: Apache-2.0
"""Metadata in the trash: it comes back unchanged, stays while nobody touches it, and is deleted when its time is over.
What changed on its way there is put back, and what was staged anew meanwhile is newer."""

import json
import os
import shutil
import subprocess

from cleanups import CleanupTest
from lost import Attached, LostTest, Point
from scratch_node import curl

TRASH = "run/kata-containers/shared/.crust-trash"
MOUNT_INFO_BYTES = 64 * 1024
HOUR = 3600


def boottime(hours):
    """A wrapper in which so many hours more have passed since the node was booted."""
    return ["unshare", "--time", f"--boottime={hours * HOUR}", "--fork", "--kill-child"]


class TrashTest(CleanupTest):
    def left_behind(self, settings=None, **stage):
        """(node, path): a volume whose sandbox and pod are gone, before the daemon starts."""
        node, path = self.published(settings, **stage)
        self.end_use(node, self.use(node, path))
        self.unpublish(node)
        return node, path

    def in_trash(self, node):
        """The directories in it, each in one of its own."""
        return sorted((node.root / TRASH).glob("*/*"))

    def all_of(self, directory):
        """Everything that there is to a directory and its files."""
        def facts(path):
            st = path.lstat()
            return (st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_ino,
                    st.st_mtime_ns, {name: os.getxattr(path, name) for name in os.listxattr(path)})
        return {path.name: (facts(path), path.read_bytes() if path.is_file() else None)
                for path in (directory, *directory.iterdir())}


class AsItWas(TrashTest):
    """Restored byte for byte, whatever it was."""

    other_pod = "22222222-0000-0000-0000-000000000000"

    def restore(self, node, path):
        before = self.all_of(node.directory(path))
        node.start()
        row = self.wait_removed(node, path)
        moved, = self.in_trash(node)
        self.assertEqual(self.all_of(moved), before)
        node.crustctl("restore", str(row["cleanup_id"]))
        self.assertEqual(self.all_of(node.directory(path)), before)
        self.assertEqual(list((node.root / TRASH).iterdir()), [])
        return row

    def test_modes(self):
        node, path = self.left_behind()
        directory = node.directory(path)
        (directory / "mountInfo.json").chmod(0o400)
        (directory / self.sandbox_id).chmod(0o4755)
        os.utime(directory / "mountInfo.json", ns=(1, 987654321))
        os.chown(directory / self.sandbox_id, 0, 4711)
        os.setxattr(directory / "mountInfo.json", "trusted.crust", b"\0\xff")
        directory.chmod(0o2711)
        self.restore(node, path)

    def test_largest(self):
        """Restores the longest directory byte for byte; the record of it has no secret."""
        head = '{"volume-type":"block","device":"/dev/none","fstype":"ext4","options":[],' \
               '"metadata":{"password":"xyzzy","filler":"'
        text = head + "f" * (MOUNT_INFO_BYTES - len(head) - 3) + '"}}'
        self.assertEqual(len(text), MOUNT_INFO_BYTES)
        node, path = self.left_behind(text=text)
        row = self.restore(node, path)
        self.assertNotIn("xyzzy", json.dumps(row))
        self.assertEqual(row["mount_info_sha256"], self.rows(node, path, "restored")[0]
                         ["mount_info_sha256"])

    def test_many_sandboxes(self):
        node, path = self.left_behind()
        for number in range(7):
            node.record(path, f"{self.sandbox_id[:40]}{number}")
        self.restore(node, path)

    def test_foreign_files(self):
        """Foreign files are reported and left alone."""
        node, path = self.left_behind()
        other = self.publish(node, "other", self.other_pod)
        self.unpublish(node, self.other_pod)
        (node.directory(path) / ".mountInfo.json.swp").write_bytes(b"half a thought")
        (node.directory(other) / "a-note").write_bytes(b"of somebody")
        before = [self.all_of(node.directory(name)) for name in (path, other)]
        node.start()
        for name in (path, other):
            self.wait_kept(node, name, "unknown_file")
        self.assertEqual({row["decision"] for row in self.gc(node)}, {"kept"})
        self.assertEqual([self.all_of(node.directory(name)) for name in (path, other)], before)

    def test_foreign_directory(self):
        node, path = self.left_behind()
        (node.directory(path) / "directory").mkdir()
        node.start()
        self.wait_kept(node, path, "unknown_file")


class Kept(TrashTest):
    """A restored entry is nobody's garbage, until its content or its binding changes."""

    def restored(self):
        node, path = self.left_behind()
        node.start()
        row = self.wait_removed(node, path)
        node.crustctl("restore", str(row["cleanup_id"]))
        self.wait_restored(node, path)
        return node, path

    def wait_restored(self, node, path):
        node.wait(lambda: self.rows(node, path)[-1]["reason"] == "restored", 60, "it to be kept")
        self.assertTrue(node.directory(path).exists())

    def wait_removed_again(self, node, path):
        node.wait(lambda: len(self.rows(node, path, "removed")) == 2, 60, "it to be removed again")
        self.assertFalse(node.directory(path).exists())

    def test_restarted(self):
        """The next daemon knows, and a person's gc too."""
        node, path = self.restored()
        node.stop()
        node.start()
        self.assertEqual([(row["decision"], row["reason"]) for row in self.gc(node)],
                         [("kept", "restored")])
        self.assertTrue(node.directory(path).exists())

    def test_content(self):
        node, path = self.restored()
        node.stage(path, "/dev/none", metadata={"another": "one"})
        self.wait_removed_again(node, path)

    def test_binding(self):
        """Another sandbox used it, and ended."""
        node, path = self.restored()
        other = self.sandbox_id[::-1]
        vmm = self.use(node, path, sandbox_id=other)
        node.wait(lambda: node.volume(path)["sandbox_id"] == other, 60, "it to be used")
        self.end_use(node, vmm, other)
        self.wait_removed_again(node, path)


class Time(TrashTest):
    """How long the trash is kept, by the clock that counts from the node's start."""

    def setUp(self):
        super().setUp()
        if subprocess.run([*boottime(1), "true"], capture_output=True).returncode != 0:
            self.skipTest("needs time namespaces")

    def test_hours(self):
        node, path = self.left_behind({"cleanup.keep_hours": 24})
        node.start()
        number = self.wait_removed(node, path)["cleanup_id"]
        moved, = self.in_trash(node)
        node.stop()
        for hours, kept in ((23, True), (25, False)):
            node.wrapper = boottime(hours)
            node.once()
            self.assertEqual(moved.exists(), kept, f"after {hours} hours")
        self.assertEqual(list((node.root / TRASH).iterdir()), [])
        self.assertEqual(node.volume(path)["status"], "removed")
        node.wrapper = []
        node.start()
        done = node.crustctl("restore", str(number), check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("no longer in the trash", done.stderr)

    def test_changed_in_the_trash(self):
        """Somebody still wrote to it, hours later: it is put back rather than deleted."""
        node, path = self.left_behind({"cleanup.keep_hours": 24})
        node.start()
        self.wait_removed(node, path)
        node.stop()
        moved, = self.in_trash(node)
        (moved / "mountInfo.json").write_text('{"device":"/dev/late"}')
        node.configure(cleanup__mode="report")
        node.wrapper = boottime(25)
        node.once()
        self.assertIn(b"/dev/late", self.bytes_of(node, path)["mountInfo.json"])
        self.assertEqual(self.rows(node, path, "restored")[0]["reason"], "changed")

    def test_taken_by_hand(self):
        """A directory that somebody took out of the trash cannot be restored, and crustd does not claim otherwise."""
        node, path = self.left_behind()
        node.start()
        number = self.wait_removed(node, path)["cleanup_id"]
        moved, = self.in_trash(node)
        shutil.rmtree(moved.parent)
        code, body = curl(node, f"/v1/cleanups/{number}/restore", "-X", "POST")
        self.assertEqual((code, json.loads(body)["code"]), (400, "FAILED_PRECONDITION"), body)
        self.assertIn("taken out by hand", json.loads(body)["message"])
        self.assertEqual(self.rows(node, path, "restored"), [])


class Changed(TrashTest, LostTest):
    """Somebody writes while it is on its way, and crustd is held up there."""

    def setUp(self):
        super().setUp()
        self.need_strace()
        self.node_ = self.kubelet_node()
        self.path = self.publish(self.node_)
        self.end_use(self.node_, self.use(self.node_, self.path))
        self.node_.start()
        self.wait_kept(self.node_, self.path, "published")

    def held_up(self, where):
        return Attached(self.node_.process.pid, Point("renameat2", 1).inject(f"{where}=2000000"))

    def test_between_the_looks(self):
        """Written after the last look and before the rename: the second look sees it."""
        node, path = self.node_, self.path
        with self.held_up("delay_enter"):
            self.unpublish(node)
            node.wait(lambda: list((node.root / TRASH).glob("*")), 60, "the rename to be near")
            self.publish(node, fstype="xfs")
            row = self.wait_row(node, path, "put-back", "changed")
        self.assertIn(b'"xfs"', self.bytes_of(node, path)["mountInfo.json"])
        self.assertEqual(json.loads(row["mount_info"])["fstype"], "ext4")
        self.assertEqual(list((node.root / TRASH).iterdir()), [])
        node.wait_for(path, "unbound", fs_type="xfs")

    def test_taken_again(self):
        """The old one is written to in the trash, a new one stands in its place: that is newer, and
        the old one is kept for a person."""
        node, path = self.node_, self.path
        with open(node.directory(path) / "mountInfo.json", "r+") as file, \
                self.held_up("delay_exit"):
            self.unpublish(node)
            node.wait(lambda: not node.directory(path).exists(), 60, "it to be moved")
            file.write('{"device":"/dev/older"}')
            file.flush()
            self.publish(node)
            row = self.wait_row(node, path, "removed", "staged_again")
        self.assertIn(b"/dev/none", self.bytes_of(node, path)["mountInfo.json"])
        moved, = self.in_trash(node)
        self.assertIn(b"/dev/older", (moved / "mountInfo.json").read_bytes())
        done = node.crustctl("restore", str(row["cleanup_id"]), check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("staged again", done.stderr)
