"""HTTP as operators and tools use it: the metrics through promtool."""

import re
import shutil
import subprocess

from said import AFTER, SaidTest, curl


class HttpTest(SaidTest):

    def setUp(self):
        super().setUp()
        if not shutil.which("curl"):
            self.skipTest("needs the program curl")


class MetricsTest(HttpTest):

    def metrics(self, node):
        """{name and labels: value}"""
        code, body = curl(node, "/metrics")
        self.assertEqual(code, 200)
        return dict(line.rsplit(" ", 1) for line in body.decode().splitlines()
                    if not line.startswith("#"))

    def test_a_growth_that_is_held_up_and_goes_through(self):
        node = self.node()
        volume = self.volume(node)
        self.sandbox(node, volume)
        self.agent(node)
        node.start()
        node.wait_for(volume.path, "unknown", "monitor_missing")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked", "monitor_missing")
        metrics = self.metrics(node)
        self.assertEqual(metrics['crustd_volumes{layout="kata",state="blocked",'
                                 'reason="monitor_missing"}'], "1")
        self.assertEqual(metrics["volume_stats_health_status_abnormal"], "1")
        self.assertEqual(metrics['crustd_resizes_total{result="blocked",'
                                 'reason="monitor_missing"}'], "1")
        self.assertGreater(float(metrics["crustd_oldest_pending_seconds"]), 0)
        self.assertEqual(metrics['crustd_source_up{source="inotify"}'], "1")
        self.monitor(node, volume)
        node.crustctl("resync")
        node.wait_for(volume.path, "in_sync")
        metrics = self.metrics(node)
        self.assertEqual(metrics['crustd_resize_duration_seconds_count{stage="total"}'], "1")
        self.assertEqual(metrics["crustd_oldest_pending_seconds"], "0")
        self.assertEqual(metrics["volume_stats_health_status_abnormal"], "0")

    def test_promtool_has_nothing_to_say(self):
        if not shutil.which("promtool"):
            self.skipTest("needs the program promtool (Debian's package prometheus)")
        node = self.node()
        self.volume(node)
        node.start()
        _, body = curl(node, "/metrics")
        done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_no_volume_is_a_label(self):
        node = self.node()
        for number in range(3):
            node.stage(f"/var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/secret-{number}/mount",
                       "/dev/secret")
        node.start()
        _, body = curl(node, "/metrics")
        self.assertIsNone(re.search(rb"secret|mount", body))
