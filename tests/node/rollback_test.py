# SPDX-License-Identifier: Apache-2.0
"""The previous release, this one, the previous one again and this one again, as services: each starts
at once, none is restarted over and over, and the history is where docs/operations.md says."""

import subprocess
import tempfile
import time

import previous_release
from node_test_case import DATABASE, NodeTest

VOLUMES = "/run/kata-containers/shared/direct-volumes"
TARGET = "/var/lib/kubelet/pods/1234/volumes/kubernetes.io~csi/pv-kept/mount"
RESTART_SECONDS = 3  # RestartSec= of the unit
DROP_IN = "/etc/systemd/system/crustd.service.d/previous.conf"
# Without this the previous release's own unit does not start on Debian 12 at all: systemd makes
# openat2(2) fail.
WORKAROUND = "[Service]\nRestrictSUIDSGID=no\n"


class RollbackTest(NodeTest):

    INSTALL = False

    @classmethod
    def get_programs(cls):
        previous_release.build()

    @classmethod
    def prepare(cls):
        cls.stage(TARGET)

    @classmethod
    def stage(cls, target):
        """What a CSI driver leaves, a password among it."""
        cls.node.run(["python3", "-c", f'''
import base64, json, os
directory = "{VOLUMES}/" + base64.urlsafe_b64encode({target!r}.encode()).decode()
os.makedirs(directory, 0o700)
with open(directory + "/mountInfo.json", "w", opener=lambda *a: os.open(*a, 0o600)) as file:
    json.dump({{"volume-type": "block", "device": "/dev/vda", "fstype": "ext4", "metadata": {{}},
               "options": ["password=hunter2"]}}, file)
'''])

    # -- releases

    def install_previous(self):
        self.node.run("systemctl stop crustd || true")
        with tempfile.TemporaryDirectory(prefix="crust-node-previous-") as scratch:
            subprocess.run(["make", "-C", str(previous_release.source()), "-o", "programs", "install",
                            f"DESTDIR={scratch}", "PREFIX=/usr"], check=True, capture_output=True)
            self.node.put(scratch, "/")
        self.node.write(DROP_IN, WORKAROUND)
        self.node.run("systemd-tmpfiles --create crustd.conf && systemctl daemon-reload")

    def install_this(self):
        self.node.run(f"systemctl stop crustd || true; rm -f {DROP_IN}")
        self.node.install()

    def restart(self):
        """The service comes up at the first attempt and stays."""
        self.node.run("systemctl reset-failed crustd || true")
        self.node.start_crustd()
        time.sleep(2 * RESTART_SECONDS)
        self.assertEqual([self.node.property(name) for name in ("ActiveState", "NRestarts")],
                         ["active", "0"])
        return self.node.wait_for(TARGET, "unbound")

    def upgrade(self):
        self.install_this()
        return self.restart()

    def roll_back(self):
        self.install_previous()
        return self.restart()

    def forget(self):
        self.node.run("systemctl stop crustd; rm -rf /var/lib/crustd")

    # -- what is kept

    def count_added(self, database=DATABASE):
        return int(self.node.output(["sqlite3", "-readonly", database, "SELECT count(*) FROM"
                                     " audit_journal WHERE kind = 'volume_added'"]))

    def set_aside(self):
        return self.node.output("cd /var/lib/crustd && ls -d crustd.db.corrupt-? 2>/dev/null || true"
                                ).split()

    def test_the_database_of_the_previous_release_and_back(self):
        """Its rows are kept and redacted. That release itself sets this one's file aside, with the history in it."""
        self.addCleanup(self.forget)
        first = self.roll_back()
        self.assertIn("hunter2", first["options"])
        second = self.upgrade()
        self.assertEqual((second["volume_id"], second["first_seen"]),
                         (first["volume_id"], first["first_seen"]))
        self.assertEqual(second["options"], '["password=[redacted]"]')
        self.assertEqual((self.count_added(), self.set_aside()), (1, []))
        self.roll_back()
        self.assertEqual(self.set_aside(), ["crustd.db.corrupt-1"])
        self.assertEqual(self.count_added("/var/lib/crustd/crustd.db.corrupt-1"), 1)
        self.upgrade()
        self.assertEqual(self.set_aside(), ["crustd.db.corrupt-1"])

    def test_failed_start_is_logged_once(self):
        self.addCleanup(self.node.run, "systemctl reset-failed crustd")
        self.addCleanup(self.forget)
        self.upgrade()
        for break_it, code, words in (
                (f"sqlite3 {DATABASE} 'PRAGMA user_version = 2'", 4,
                 ("newer version of crustd", "upgrade crustd, or move it away")),
                (f"rm -rf /var/lib/crustd/* && mkdir {DATABASE}", 4,
                 ("not a regular file", "move away what stands there")),
                ("rm -rf /var/lib/crustd/* && printf '[paths]\\nsocket_group = nobodys\\n'"
                 " >/etc/crustd/crustd.conf", 2, ("no group", "create what it names")),
                ("echo nonsense >/etc/crustd/crustd.conf", 2, (":1:", "--check-config"))):
            with self.subTest(words[0]):
                since = self.node.output("systemctl stop crustd; sleep 1; date +%s")
                self.node.run(break_it)
                self.assertNotEqual(self.node.run("systemctl start crustd", check=False).status, 0)
                time.sleep(2 * RESTART_SECONDS)
                self.assertEqual(
                    [self.node.property(name)
                     for name in ("ActiveState", "Result", "ExecMainStatus", "NRestarts")],
                    ["failed", "exit-code", str(code), "0"])
                said = [line for line in self.node.journal("--since", f"@{since}").splitlines()
                        if "crustd: /" in line or "level=error" in line]
                self.assertEqual(len(said), 1, said)
                for word in words:
                    self.assertIn(word, said[0])
