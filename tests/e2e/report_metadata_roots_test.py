# SPDX-License-Identifier: Apache-2.0
"""Kata's directory of volumes comes, goes and is covered, and is flooded (T9 of the threat model)."""

import contextlib
import shutil
import subprocess
import unittest

from mount_info import kata, text
from node import encode
from scratch_node import ScratchNodeTest, publish_path


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
        node = self.node({"resize.sweep_seconds": 3600})
        node.start()
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
        node = self.node()
        node.start()
        for number in range(1000):
            node.stage(f"/flood/{number}", f"/dev/flood{number}",
                       text="{" if number == 500 else None)
        sql = "SELECT status, count(*) AS n FROM audit_volumes GROUP BY status ORDER BY status"
        wanted = [{"status": "invalid", "n": 1}, {"status": "present", "n": 999}]
        with contextlib.suppress(Exception):
            node.wait(lambda: node.query(sql) == wanted, 120, "all to be recorded")
        self.assertEqual(node.query(sql), wanted)


if __name__ == "__main__":
    unittest.main()
