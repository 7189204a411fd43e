# SPDX-License-Identifier: Apache-2.0
"""A node is drained: fifty pods end at once, whose VMMs are seen to exit. All of their metadata goes, as
fast as cleanup.max_per_minute lets it and no faster."""

import collections
import json
import secrets

from cleanups import CleanupTest

PODS = 50
MINUTE_MS = 60_000


class Drained(CleanupTest):
    def drained_node(self, max_per_minute):
        """A node whose pods have just ended; returns it, and the volumes' paths."""
        node = self.kubelet_node({"cleanup.max_per_minute": max_per_minute})
        pods = [f"aaaaaaaa-0000-0000-0000-{number:012}" for number in range(PODS)]
        ids = [secrets.token_hex(32) for _ in pods]
        paths = [self.publish(node, pod=pod, metadata={"number": pod}) for pod in pods]
        self.texts = {path: self.bytes_of(node, path)["mountInfo.json"] for path in paths}
        vmms = [self.use(node, path, sandbox_id=name) for path, name in zip(paths, ids)]
        node.start()
        node.wait_alive(PODS)
        for number, (vmm, name, pod) in enumerate(zip(vmms, ids, pods)):
            vmm.stop()
            if number % 5:  # every fifth shim dies too, and leaves its directories
                node.end_sandbox(name)
            self.unpublish(node, pod)
        return node, paths

    def wait_decided(self, node, **counts):
        """Waits until the newest row of so many volumes says so."""
        sql = ("SELECT decision || ' ' || reason AS said FROM audit_cleanups WHERE cleanup_id IN"
               " (SELECT max(cleanup_id) FROM audit_cleanups GROUP BY volume_id)")

        def decided():
            found = collections.Counter(row["said"] for row in node.query(sql))
            return all(found[name.replace("__", " ")] == count for name, count in counts.items())
        return node.wait(decided, 120, f"{counts}")

    def check_removed(self, node, paths):
        """Every one of them, once, in this order: intended, moved, removed; and its bytes are kept."""
        for path in paths:
            self.assertFalse(node.directory(path).exists(), path)
        trash = (node.root / "run/kata-containers/shared/.crust-trash").glob("*/*/mountInfo.json")
        self.assertEqual(sorted(file.read_bytes() for file in trash), sorted(self.texts.values()))
        steps = collections.defaultdict(list)
        for line in node.query("SELECT kind, volume_id FROM audit_journal WHERE kind LIKE"
                               " 'cleanup_%' AND kind <> 'cleanup_kept' ORDER BY seq"):
            steps[line["volume_id"]].append(line["kind"])
        self.assertEqual(len(steps), PODS)
        self.assertEqual(list(steps.values()), [["cleanup_intended", "cleanup_removed"]] * PODS)
        for row in self.rows(node, decision="removed"):
            sandbox, = json.loads(row["evidence"])["sandboxes"]
            self.assertEqual((sandbox["process"], sandbox["exit_seen"]), (False, True), row)

    def most_in_a_minute(self, node):
        """By the journal: how many were taken away within any sixty seconds."""
        sql = ("SELECT cast(round((julianday(at) - 2440587.5) * 86400000) AS INTEGER) AS at"
               " FROM audit_journal WHERE kind = 'cleanup_intended'")
        times = [row["at"] for row in node.query(sql)]
        return max(sum(begin <= time < begin + MINUTE_MS for time in times) for begin in times)

    def test_all_at_once(self):
        node, paths = self.drained_node(6000)
        self.wait_decided(node, removed__sandbox_ended=PODS)
        self.check_removed(node, paths)
        self.assertEqual(self.rows(node, decision="put-back"), [])

    def test_half_a_minute(self):
        """Half of them now; the others wait for the next minute, and are told so."""
        node, paths = self.drained_node(PODS // 2)
        self.wait_decided(node, removed__sandbox_ended=PODS // 2, kept__rate_limit=PODS // 2)
        self.assertEqual(sum(node.directory(path).exists() for path in paths), PODS // 2)
        self.assertEqual({row["reason"] for row in self.gc(node, "--dry-run")}, {"sandbox_ended"})
        self.wait_decided(node, removed__sandbox_ended=PODS)
        self.check_removed(node, paths)
        self.assertEqual(self.most_in_a_minute(node), PODS // 2)
