# SPDX-License-Identifier: Apache-2.0
"""Metadata that a CSI driver left behind (story 5 of KEP-2857): removed when every piece of evidence
is there, kept with a reason when one is missing, and put back byte for byte."""

import json
import os
import secrets
import shutil

from cleanups import CANARY, CleanupTest
from locked_memory import start_locked_process
from scratch_node import curl


class Story5(CleanupTest):
    """Staged, sandbox up, sandbox gone, kubelet's path gone."""

    def walk(self, node, path):
        vmm = self.use(node, path)
        node.wait_alive()
        self.end_use(node, vmm)
        self.wait_kept(node, path, "published")
        self.unpublish(node)
        return self.wait_removed(node, path)

    def test_removed_and_restored(self):
        node, path = self.published(metadata={"secret": "xyzzy", "fsGroup": "7"})
        node.start()
        node.wait_for(path, "unbound")
        text = self.bytes_of(node, path)["mountInfo.json"]
        row = self.walk(node, path)
        self.assertEqual(row["reason"], "sandbox_ended")
        self.assertNotIn("xyzzy", row["mount_info"])
        self.assertIn('"fsGroup":"7"', row["mount_info"])
        evidence = json.loads(row["evidence"])
        self.assertEqual(evidence["sandboxes"], [
            {"id": self.sandbox_id, "process": False, "cgroup": False, "state_directory": False,
             "exit_seen": True}])
        self.assertEqual((evidence["pod_directory"], evidence["canary"]), (False, CANARY))
        volume = node.volume(path)
        self.assertEqual(volume["status"], "quarantined")

        number = str(row["cleanup_id"])
        restored = node.crustctl("restore", number)
        self.assertIn("restored", restored.stdout)
        self.assertEqual(self.bytes_of(node, path), {"mountInfo.json": text, self.sandbox_id: b""})
        self.wait_row(node, path, "restored", "requested")
        again = node.wait_for(path, "unbound", status="present")
        self.assertEqual(again["volume_id"], volume["volume_id"])
        self.wait_kept_after_restore(node, path)

    def wait_kept_after_restore(self, node, path):
        """A restored entry stays, until it changes."""
        node.wait(lambda: self.rows(node, path)[-1]["reason"] == "restored", 60, "it to be kept")
        self.assertEqual(self.rows(node, path)[-1]["decision"], "kept")
        os.utime(node.directory(path) / self.sandbox_id)
        node.wait(lambda: len(self.rows(node, path, "removed")) == 2, 60, "it to be removed again")

    def test_a_user_who_keeps_memory_locked(self):
        """The arguments of such a process cannot be read. It is a user's, so it delays nothing."""
        holder = start_locked_process(self)
        node, path = self.published()
        node.start()
        self.walk(node, path)
        self.assertIsNone(holder.poll())

    def test_restored_twice(self):
        node, path = self.published()
        node.start()
        number = str(self.walk(node, path)["cleanup_id"])
        node.crustctl("restore", number)
        for wrong, code, text in ((number, 5, "no longer in the trash"),
                                  ("4711", 3, "no cleanup 4711"),
                                  (str(self.rows(node, path, "kept")[0]["cleanup_id"]), 5,
                                   "only what was removed")):
            done = node.crustctl("restore", wrong, check=False)
            self.assertEqual((done.returncode, text in done.stderr), (code, True), done.stderr)
        code, body = curl(node, "/v1/cleanups/4711/restore", "-X", "POST")
        self.assertEqual((code, json.loads(body)["code"]), (404, "NOT_FOUND"))

    def test_staged_again_is_newer(self):
        node, path = self.published()
        node.start()
        row = self.walk(node, path)
        self.publish(node)
        node.wait_for(path, "unbound", status="present")
        done = node.crustctl("restore", str(row["cleanup_id"]), check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("staged again", done.stderr)
        self.assertEqual(set(self.bytes_of(node, path)), {"mountInfo.json"})

    def test_trash_ends(self):
        node, path = self.published({"cleanup.keep_hours": 0})
        node.start()
        self.walk(node, path)
        node.wait_for(path, "unmanaged", status="removed")
        trash = node.root / "run/kata-containers/shared/.crust-trash"
        node.wait(lambda: not list(trash.iterdir()), 60, "the trash to be empty")

    def test_never_used(self):
        """The pod never started; then it is deleted."""
        node, path = self.published()
        node.start()
        node.wait_for(path, "unbound")
        self.assertEqual(self.gc(node, "--dry-run"), [])
        self.explains(node, path, "judged now: not_stale, not_used_yet", "orphaned pod")
        leaf = node.path(path)
        shutil.rmtree(leaf.parent)
        self.wait_kept(node, path, "pod_exists")
        self.unpublish(node)
        self.assertEqual(self.wait_removed(node, path)["reason"], "never_used")

    def test_crust_directory(self):
        node, path = self.published(layout="crust")
        node.start()
        node.wait_for(path, "unbound", layout="crust")
        self.unpublish(node)
        self.wait_row(node, path, "removed", "never_used")
        self.assertFalse(node.directory(path, "crust").exists())
        self.assertTrue(list((node.root / "run/.crust-trash").iterdir()))

    def test_both_directories(self):
        """They go and come back as one volume."""
        node, path = self.published()
        node.stage(path, "/dev/none", layout="crust")
        node.start()
        volume = node.wait_for(path, "unbound", layout="both")
        self.unpublish(node)
        node.wait(lambda: len(self.rows(node, path, "removed")) == 2, 60, "both to be removed")
        self.assertEqual(node.volume(path)["status"], "quarantined")
        for row in self.rows(node, path, "removed"):
            node.crustctl("restore", str(row["cleanup_id"]))
        again = node.wait_for(path, "unbound", layout="both", status="present")
        self.assertEqual(again["volume_id"], volume["volume_id"])
        node.wait(lambda: len([row for row in self.rows(node, path, "kept")
                               if row["reason"] == "restored"]) == 2, 60, "both to be kept")


class Missing(CleanupTest):
    """One piece of evidence is missing: kept, with the reason."""

    def left_behind(self, node, path):
        """All of story 5 at once, before the daemon looks."""
        self.end_use(node, self.use(node, path))
        self.unpublish(node)

    def check_kept(self, reason, settings=None, wrapper=(), **stage):
        """Left behind, and kept for this reason. Returns (node, path)."""
        node = self.kubelet_node(settings, wrapper)
        path = self.publish(node, **stage)
        self.left_behind(node, path)
        node.start()
        self.wait_kept(node, path, reason)
        return node, path

    def test_metadata_trash_or_processes_that_cannot_be_relied_on(self):
        self.check_kept("invalid_mount_info", text="{}")
        self.check_kept("trash_unusable", {"paths.kata_trash": "/run/kata-containers/shared/direct-volumes/.trash"})
        self.check_kept("pid_namespace", wrapper=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])

    def test_another_path(self):
        node = self.kubelet_node()
        path = "/srv/volumes/by-hand"
        node.stage(path, "/dev/none")
        self.end_use(node, self.use(node, path))
        node.start()
        self.wait_kept(node, path, "not_kubelet_path")

    def test_sandbox_alive(self):
        node, path, vmm = self.used()
        self.unpublish(node)
        self.wait_kept(node, path, "sandbox_alive")
        self.assertIn("sandbox_alive", node.crustctl("cleanups").stdout)
        self.explains(node, path, "The kubelet let go of it", self.sandbox_id)
        self.end_use(node, vmm)
        self.wait_removed(node, path)

    def test_process_without_records(self):
        """No state directory shows the sandbox, but a process does."""
        node, path = self.published()
        vmm = node.start_vmm(self.sandbox_id)
        node.record(path, self.sandbox_id)
        self.unpublish(node)
        node.start()
        row = self.wait_kept(node, path, "sandbox_alive")
        (sandbox,) = json.loads(row["evidence"])["sandboxes"]
        self.assertEqual(sandbox["pid"], vmm.pid)
        vmm.stop()
        self.assertEqual(self.wait_removed(node, path)["reason"], "sandbox_cleared")

    def test_traces(self):
        """The sandbox died while no daemon looked, and left its directories."""
        node, path = self.published()
        self.use(node, path).stop()
        self.unpublish(node)
        node.start()
        self.wait_kept(node, path, "sandbox_unproven")
        node.end_sandbox(self.sandbox_id)
        self.wait_removed(node, path)

    def test_kubelet_root(self):
        node, path = self.published()
        self.left_behind(node, path)
        self.pod_directory(node, CANARY).rmdir()
        node.start()
        self.wait_kept(node, path, "kubelet_unseen")
        self.pod_directory(node, CANARY).mkdir()
        self.wait_removed(node, path)

    def test_grace(self):
        node, path = self.check_kept("grace", {"cleanup.grace_seconds": 3600})
        self.assertEqual([row["reason"] for row in self.gc(node)], ["grace"])
        self.assertRegex(node.crustctl("gc", "--dry-run").stdout, r" grace +3[0-9]{3} s\b")
        self.assertTrue(node.directory(path).exists())

    def test_report(self):
        node, path = self.check_kept("report_only", {"cleanup.mode": "report"})
        self.explains(node, path, "judged now: would_remove", "keeps it: report_only")
        self.assertIn("report_only", node.crustctl("volume", path).stdout)
        self.assertEqual(self.gc(node, "--dry-run")[0]["waits_for"], "report_only")
        self.assertFalse((node.root / "run/kata-containers/shared/.crust-trash").exists())

    def test_off(self):
        node = self.kubelet_node({"cleanup.mode": "off"})
        self.left_behind(node, self.publish(node))
        node.start()
        done = node.crustctl("gc", check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("cleanup.mode = off", done.stderr)
        self.assertEqual(self.rows(node), [])

    def test_source_vanished(self):
        node, path, vmm = self.used()
        node.wait_for(path, "blocked", "no_device")
        shutil.move(node.root / "run/vc", node.root / "vc")
        vmm.stop()
        self.unpublish(node)
        row = self.wait_kept(node, path, "source_unhealthy")
        self.assertIn("was there, and is gone", row["evidence"])
        self.assertRegex(node.crustctl("status").stdout,
                         "nothing is removed: /run/vc/sbs: was there, and is gone; "
                         "/run/vc/vm: was there, and is gone")
        shutil.rmtree(node.root / "vc/sbs" / self.sandbox_id)
        shutil.rmtree(node.root / "vc/vm" / self.sandbox_id)
        shutil.move(node.root / "vc", node.root / "run/vc")
        self.wait_removed(node, path)
        self.assertNotIn("/run/vc", node.crustctl("status").stdout)

    def test_writable_file(self):
        """The directory reads well, and a file in it may be another's: the evidence names it."""
        node, path = self.published()
        self.end_use(node, self.use(node, path))
        os.chmod(node.directory(path) / self.sandbox_id, 0o664)
        self.unpublish(node)
        node.start()
        row = self.wait_kept(node, path, "invalid_mount_info")
        self.assertEqual(json.loads(row["evidence"])["metadata_problem"],
                         f"{self.sandbox_id}: is writable by others than its owner")
        self.explains(node, path, "What is wrong with it: ", self.sandbox_id, "is writable by")
        os.chmod(node.directory(path) / self.sandbox_id, 0o644)
        self.wait_removed(node, path)

    def test_empty_dir(self):
        """The shim's own disk is the shim's."""
        node, path = self.published(volume_type="blk")
        other = self.publish(node, "other", pod="22222222-0000-0000-0000-000000000000")
        self.left_behind(node, path)
        self.unpublish(node, "22222222-0000-0000-0000-000000000000")
        node.start()
        self.wait_removed(node, other)
        self.assertEqual(self.rows(node, path), [])
        self.assertTrue(node.directory(path).exists())
        self.explains(node, path, "judged now: not_stale, empty_dir")

    def test_in_use(self):
        """A volume in use is not stale: asking about it says so, and removes nothing."""
        node, path, vmm = self.used()
        self.explains(node, path, "judged now: not_stale, in_use")
        number = node.volume(path)["volume_id"]
        code, body = curl(node, f"/v1/gc?dry_run=1&volume={number}", "-X", "POST")
        self.assertEqual((code, [(row["decision"], row["reason"]) for row in json.loads(body)]),
                         (200, [("not_stale", "in_use")]))
        for wrong in (f"volume={number}", "dry_run=1&volume=x"):
            self.assertEqual(curl(node, f"/v1/gc?{wrong}", "-X", "POST")[0], 400, wrong)
        self.end_use(node, vmm)


class Many(CleanupTest):
    """The brakes."""

    def left_behind(self, node, count):
        paths = [self.publish(node, f"pv{number}", pod=f"aaaaaaaa-0000-0000-0000-{number:012}")
                 for number in range(count)]
        for number in range(count):
            self.unpublish(node, f"aaaaaaaa-0000-0000-0000-{number:012}")
        return paths

    def gone(self, node, paths):
        return [path for path in paths if not node.directory(path).exists()]

    def test_breaker(self):
        """All volumes look stale at once: a person confirms."""
        node = self.kubelet_node({"cleanup.max_per_minute": 1})
        paths = self.left_behind(node, 6)
        node.start()
        for path in paths:
            self.wait_kept(node, path, "breaker")
        dry = self.gc(node, "--dry-run")
        self.assertEqual({(row["decision"], row["waits_for"]) for row in dry},
                         {("would_remove", "breaker")})
        self.assertIn("for breaker", node.crustctl("gc", "--dry-run").stdout)
        for body, code in (('{"dry_run":true}', 200), ('{"dry_run":1}', 400), ('{"dry":true}', 400),
                           ("dry_run=1", 400)):
            self.assertEqual(curl(node, "/v1/gc", "--data", body)[0], code, body)
        self.assertEqual(curl(node, "/v1/gc?dry_run=true", "--data", "")[0], 200)
        self.assertEqual(self.gone(node, paths), [])
        self.assertIn("removing", node.crustctl("gc").stdout)
        for path in paths:
            self.wait_removed(node, path)

    def test_breaker_holds(self):
        """Five of nine are too many: they wait for a person, also when they are few among more
        volumes, and when the daemon that held them has ended."""
        node = self.kubelet_node()
        paths = [self.publish(node, f"pv{number}", pod=f"aaaaaaaa-0000-0000-0000-{number:012}")
                 for number in range(9)]
        node.start()
        for path in paths:
            node.wait_for(path, "unbound")
        node.stop()
        for number in range(5):
            self.unpublish(node, f"aaaaaaaa-0000-0000-0000-{number:012}")
        node.start()
        for path in paths[:5]:
            self.wait_kept(node, path, "breaker")
        self.explains(node, paths[4], "judged now: would_remove", "keeps it: breaker")
        self.assertIn("5 of 9 volumes look stale at once", node.log.read_text())
        for number in range(20, 25):
            self.publish(node, f"pv{number}", pod=f"aaaaaaaa-0000-0000-0000-{number:012}")
        held = 'crustd_metadata_stale{reason="breaker"} 5'
        node.wait(lambda: held in curl(node, "/metrics")[1].decode(), 60, held)
        node.stop()
        node.start()
        few = self.publish(node, "few")
        self.unpublish(node)
        self.wait_removed(node, few)
        self.assertEqual(self.gone(node, paths), [])
        self.gc(node)
        for path in paths[:5]:
            self.wait_removed(node, path)
        self.assertEqual(self.gone(node, paths), paths[:5])

    def test_breaker_counts_volumes(self):
        """A volume in both layouts has two directories, and is one: three of five are few."""
        node = self.kubelet_node()
        paths = self.left_behind(node, 3)
        for path in paths:
            node.stage(path, "/dev/none", layout="crust")
        for name in ("pv-used", "pv-too"):
            self.publish(node, name, pod=CANARY)
        node.start()
        for path in paths:
            node.wait(lambda path=path: len(self.rows(node, path, "removed")) == 2, 60,
                      "both directories to be removed")
        self.assertEqual(self.rows(node, decision="kept"), [])


class DeadFile(CleanupTest):
    """The file of a dead sandbox beside that of a live one."""

    def test_file(self):
        node, path = self.published()
        dead = secrets.token_hex(32)
        vmm = self.use(node, path)
        node.record(path, dead)
        node.start()
        row = self.wait_row(node, path, "removed", "dead_sandbox_file")
        self.assertEqual(json.loads(row["evidence"])["file"], dead)
        self.assertEqual(set(self.bytes_of(node, path)), {"mountInfo.json", self.sandbox_id})
        self.assertEqual(node.volume(path)["status"], "present")
        node.crustctl("restore", str(row["cleanup_id"]))
        self.assertEqual(set(self.bytes_of(node, path)), {"mountInfo.json", self.sandbox_id, dead})
        node.wait(lambda: self.rows(node, path)[-1]["reason"] == "restored", 60, "it to be kept")
        self.end_use(node, vmm)


class Restarted(CleanupTest):
    """Killed on its way, crustd brings a cleanup to an end; grace begins anew."""

    def test_killed_while_settling(self):
        node, path = self.published()
        node.start()
        node.wait_for(path, "unbound")
        self.unpublish(node)
        node.wait(lambda: not node.directory(path).exists(), 60, "it to be moved")
        node.kill()
        node.start()
        self.wait_removed(node, path)
        self.assertEqual(node.volume(path)["status"], "quarantined")

    def test_changed_while_no_daemon_runs(self):
        node, path = self.published()
        node.start()
        node.wait_for(path, "unbound")
        volume = node.volume(path)
        self.unpublish(node)
        node.wait(lambda: not node.directory(path).exists(), 60, "it to be moved")
        node.kill()
        trash = node.root / "run/kata-containers/shared/.crust-trash"
        (found,) = trash.glob("*/*")
        (found / "mountInfo.json").write_text('{"device":"/dev/late"}')
        self.pod_directory(node).mkdir()
        node.start()
        row = self.wait_row(node, path, "put-back")
        self.assertEqual(row["reason"], "changed")
        self.assertIn(b"/dev/late", self.bytes_of(node, path)["mountInfo.json"])
        self.assertEqual(node.wait_for(path, "unbound")["volume_id"], volume["volume_id"])

    def test_grace_begins_anew(self):
        node, path = self.published({"cleanup.grace_seconds": 3600})
        self.use(node, path).stop()
        node.end_sandbox(self.sandbox_id)
        self.unpublish(node)
        node.start()
        self.wait_kept(node, path, "grace")
        node.stop()
        node.start()
        (row,) = self.gc(node, "--dry-run")
        self.assertGreater(row["evidence"]["waits_seconds"], 3500)
