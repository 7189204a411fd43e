# SPDX-License-Identifier: Apache-2.0
"""Something that crustd watches on the node vanishes, or is replaced: nothing is removed meanwhile, and
the grace time begins anew."""

import json
import secrets
import shutil
import subprocess

from cleanups import CANARY, SETTINGS, CleanupTest
from programs import run
from scratch_node import status

GRACE = 3600
SANDBOXES, EACH = 50, 10


class RunVc(CleanupTest):
    """Five hundred volumes in fifty sandboxes; /run/vc goes, and with it all that Kata knows."""

    def setUp(self):
        super().setUp()
        self.node_ = self.kubelet_node({"cleanup.grace_seconds": GRACE,
                                        "cleanup.max_per_minute": 6000})
        self.pods = [f"aaaaaaaa-0000-0000-0000-{number:012}" for number in range(SANDBOXES)]
        self.ids = [secrets.token_hex(32) for _ in self.pods]
        self.vmms, self.paths = [], []
        for pod, sandbox_id in zip(self.pods, self.ids):
            paths = [self.publish(self.node_, f"pv{number}", pod) for number in range(EACH)]
            self.vmms.append(self.use(self.node_, *paths, sandbox_id=sandbox_id))
            self.paths += paths
        self.node_.start()
        sql = "SELECT count(*) AS n FROM audit_volumes WHERE sandbox_id IS NOT NULL"
        self.node_.wait(lambda: self.node_.query(sql)[0]["n"] == len(self.paths), 60,
                        "all volumes to be bound")

    def vanish(self):
        shutil.move(self.node_.root / "run/vc", self.node_.root / "vc")

    def come_back(self):
        """Without the sandboxes that ended meanwhile."""
        for directory in ("sbs", "vm"):
            shutil.rmtree(self.node_.root / "vc" / directory)
            (self.node_.root / "vc" / directory).mkdir()
        shutil.move(self.node_.root / "vc", self.node_.root / "run/vc")

    def drain(self):
        for vmm, pod in zip(self.vmms, self.pods):
            vmm.stop()
            self.unpublish(self.node_, pod)

    def wait_reason(self, reason):
        """Waits until that is what was last said of every volume; returns these rows."""
        sql = (f"SELECT * FROM audit_cleanups WHERE reason = '{reason}' AND cleanup_id IN"
               " (SELECT max(cleanup_id) FROM audit_cleanups GROUP BY volume_id)")

        def said():
            found = self.node_.query(sql)
            return found if len(found) == len(self.paths) else None
        return self.node_.wait(said, 60, f"all to be kept: {reason}")

    def check_nothing_removed(self):
        for path in self.paths:
            self.assertTrue((self.node_.directory(path) / "mountInfo.json").exists(), path)
        journal = self.node_.query("SELECT DISTINCT kind FROM audit_journal"
                                   " WHERE kind LIKE 'cleanup_%'")
        self.assertLessEqual({line["kind"] for line in journal}, {"cleanup_kept"})

    def test_vanishes_while_all_live(self):
        """The VMMs live on, so do their volumes; and when they end, nobody knows what else did."""
        self.vanish()
        self.drain_kubelet_only()
        self.wait_reason("sandbox_alive")
        self.check_nothing_removed()
        for vmm in self.vmms:
            vmm.stop()
        for row in self.wait_reason("source_unhealthy"):
            self.assertIn("/run/vc", json.loads(row["evidence"])["problem"])
        self.check_nothing_removed()

    def drain_kubelet_only(self):
        for pod in self.pods:
            self.unpublish(self.node_, pod)

    def test_comes_back(self):
        """All the rest is there: each VMM was seen to end, the kubelet let go. Not even a person
        removes anything; and for the grace time not either once it is back."""
        node = self.node_
        self.vanish()
        self.drain()
        for row in self.wait_reason("source_unhealthy"):
            self.assertIn("was there, and is gone", json.loads(row["evidence"])["problem"])
        self.assertEqual({row["decision"] for row in self.gc(node)}, {"kept"})
        node.wait(lambda: min(row["evidence"]["stale_seconds"] for row in
                              self.gc(node, "--dry-run")) >= 2, 60, "some time to pass")
        self.check_nothing_removed()
        self.come_back()
        for row in self.wait_reason("grace"):
            evidence = json.loads(row["evidence"])
            self.assertGreaterEqual(evidence["stale_seconds"] + evidence["waits_seconds"],
                                    GRACE + 2, evidence)
        self.check_nothing_removed()


class KubeletRoot(CleanupTest):
    """The kubelet's root is a mount of its own."""

    def setUp(self):
        super().setUp()
        self.node_ = self.node(SETTINGS)
        self.kubelet = self.node_.root / "var/lib/kubelet"
        self.mount_for_the_test("-t", "tmpfs", "crust-test", self.kubelet)
        self.pod_directory(self.node_, CANARY).mkdir(parents=True)
        self.path = self.publish(self.node_)
        self.end_use(self.node_, self.use(self.node_, self.path))

    def test_not_mounted(self):
        """Every pod is absent from an empty mount point."""
        self.node_.start()
        self.wait_kept(self.node_, self.path, "published")
        run("umount", self.kubelet)
        self.wait_kept(self.node_, self.path, "kubelet_unseen")

    def test_never_mounted(self):
        run("umount", self.kubelet)
        self.node_.start()
        self.wait_kept(self.node_, self.path, "kubelet_unseen")

    def test_another(self):
        """Another pod is there, on another file system than at start."""
        self.node_.start()
        self.wait_kept(self.node_, self.path, "published")
        run("umount", self.kubelet)
        self.pod_directory(self.node_, CANARY).mkdir(parents=True)
        self.wait_kept(self.node_, self.path, "kubelet_moved")

    def test_canary_is_another_pod(self):
        """The volume's own pod and files beside it show nothing."""
        pods = self.pod_directory(self.node_, CANARY).parent
        self.pod_directory(self.node_, CANARY).rmdir()
        (pods / "file").write_text("")
        (pods / ".hidden").mkdir()
        (pods / "link").symlink_to(self.node_.root)
        self.unpublish(self.node_)
        self.node_.start()
        self.wait_kept(self.node_, self.path, "kubelet_unseen")
        self.pod_directory(self.node_, CANARY).mkdir()
        self.wait_removed(self.node_, self.path)


class Kubelet(CleanupTest):
    """The kubelet is started anew: for the grace time it may only be catching up."""

    def test_restarted(self):
        node, path = self.published({"cleanup.grace_seconds": GRACE})
        self.end_use(node, self.use(node, path))
        self.unpublish(node)
        node.start()
        self.wait_kept(node, path, "grace")
        node.wait(lambda: self.times(node)[0] >= 2, 60, "some time to pass")
        process = subprocess.Popen(["kubelet", "600"], executable="/bin/sleep")
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        node.wait(lambda: sum(self.times(node)) >= GRACE + 2, 60, "grace to begin anew")
        self.assertTrue(node.directory(path).exists())

    def times(self, node):
        """Seconds that it has been stale for, and will be kept for."""
        row, = self.gc(node, "--dry-run")
        return row["evidence"]["stale_seconds"], row["evidence"]["waits_seconds"]


class Database(CleanupTest):
    """What is recorded now would be lost."""

    def test_read_only(self):
        """Its file system is read-only; then it is not."""
        node, path = self.published()
        state = node.root / "var/lib/crustd"
        self.mount_for_the_test("--bind", "-o", "ro", state, state)
        self.unpublish(node)
        node.start()
        node.wait(lambda: [row["reason"] for row in self.gc(node, "--dry-run")]
                  == ["database_degraded"], 60, "it to be kept for the database's sake")
        self.assertEqual([row["decision"] for row in self.gc(node)], ["kept"])
        self.assertTrue(node.directory(path).exists())
        run("umount", "-l", state)
        node.crustctl("resync")
        node.wait(lambda: not status(node).get("degraded", True), 60, "the database to be written again")
        self.wait_removed(node, path)
