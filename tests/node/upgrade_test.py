# SPDX-License-Identifier: Apache-2.0
"""Release 0.2.0's packages replaced by this tree's, as a fleet does it: a key was edited, a volume is in use, and
nobody is there to answer a question."""

import subprocess
import tempfile

import debian_packages
import previous_release
from sandboxes import MIB, SandboxTest

DRIVE = "data"
CONFIGURATION = "/etc/crustd/crustd.conf"
APT = "DEBIAN_FRONTEND=noninteractive dpkg -i {} </dev/null"


class UpgradeTest(SandboxTest):

    INSTALL = False
    DISKS = {DRIVE: 64 * MIB}

    @classmethod
    def get_programs(cls):
        cls.old = previous_release.packages()
        cls.new = debian_packages.get()

    @classmethod
    def prepare(cls):
        super().prepare()
        for name, packages in (("old", cls.old), ("new", cls.new)):
            for package in packages.values():
                cls.node.put(package, f"/root/{name}/{package.name}")
        cls.node.run(APT.format("/root/old/*.deb"), seconds=300)
        cls.add_sandbox({DRIVE: (f"/dev/disk/by-id/virtio-{DRIVE}", "ext4")})
        cls.start_sandboxes()

    def effective(self):
        return self.node.output("crustd --check-config | grep -e sweep_seconds -e settle_ms").split("\n")

    def test_upgrade_without_a_terminal(self):
        before = self.settle(DRIVE)
        shipped = self.node.read(CONFIGURATION)
        self.assertIn("#sweep_seconds = 30\n", shipped)
        edited = shipped.replace("#sweep_seconds = 30\n", "sweep_seconds = 2\n")
        self.node.write(CONFIGURATION, edited)
        row, pid = self.node.volume(self.volume(DRIVE).path), self.node.property("MainPID")

        self.node.run(APT.format("/root/new/*.deb"), seconds=300)
        self.assertNotEqual(self.node.property("MainPID"), pid)
        self.assertEqual([self.node.property(name) for name in ("ActiveState", "NRestarts")], ["active", "0"])
        self.assertEqual(self.node.read(CONFIGURATION), edited)
        self.node.write("/etc/crustd/crustd.conf.d/site.conf", "[resize]\nsettle_ms = 7\n")
        self.node.run("systemctl reload crustd")
        self.assertEqual(self.effective(), ["settle_ms = 7", "sweep_seconds = 2"])

        self.node.resize_disk(DRIVE, 128 * MIB)
        after = self.check_grown(DRIVE, before)
        self.assertEqual((after["volume_id"], after["first_seen"]), (row["volume_id"], row["first_seen"]))
        self.check_next_upgrade()

    def check_next_upgrade(self):
        """What this tree ships is no conffile: whatever was edited, the next package does not ask either."""
        self.assertNotIn("crustd.conf", self.node.output("dpkg-query --show -f '${Conffiles}' crustd | grep -v obsolete || true"))
        with tempfile.TemporaryDirectory(prefix="crust-next-") as scratch:
            tree, next_package = f"{scratch}/tree", f"{scratch}/next.deb"
            subprocess.run(["dpkg-deb", "-R", self.new["crustd"], tree], check=True)
            with open(f"{tree}/usr/share/crustd/crustd.conf", "a") as file:
                file.write("# another release\n")
            subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, next_package], check=True, capture_output=True)
            self.node.put(next_package, "/root/next.deb")
        self.node.run(APT.format("/root/next.deb"), seconds=300)
        self.assertEqual(self.node.property("ActiveState"), "active")
        self.assertEqual(self.effective(), ["settle_ms = 7", "sweep_seconds = 2"])
