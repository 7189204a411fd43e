# SPDX-License-Identifier: Apache-2.0
"""Guests polled for usage and condition: what is on record of it, and how gently it is done."""

import signal
import time

from scratch_node import BEFORE, ScratchNodeTest, free_address, metrics_of
from report_attachment_test import AttachmentTest

STATS = "GetVolumeStats"


class GuestStatsTest(ScratchNodeTest):

    def start(self, volumes=1, **settings):
        """A node that polls each second, with volumes in sync in one sandbox; its agent."""
        node = self.node({"guest.stats_seconds": 1, "http.listen": free_address()} |
                         {name.replace("__", "."): value for name, value in settings.items()})
        self.volumes = [self.volume(node, f"pv-{number}") for number in range(volumes)]
        _, _, agent = self.equip(node, *self.volumes)
        node.start()
        for volume in self.volumes:  # what verifies them asks for stats as well, beside the poll
            node.wait_for(volume.path, "in_sync", "none")
        return node, agent

    def lines(self, node):
        """Of the journal; the VMM is asked again by and by, whatever its guest says."""
        return node.query("SELECT count(*) AS n FROM audit_journal WHERE kind <> 'query_hypervisor_intended'")[0]["n"]

    def test_usage_is_on_record(self):
        node, agent = self.start()
        path = self.volumes[0].path
        agent.stats.total, agent.stats.used = BEFORE, 12345
        node.wait_for(path, "in_sync", used_bytes=12345, available_bytes=BEFORE - 12345,
                      condition="normal", guest_bytes=BEFORE)
        first = node.volume(path)["stats_at"]
        lines = self.lines(node)
        agent.stats.used = 54321
        node.wait_for(path, "in_sync", used_bytes=54321)
        self.assertGreater(node.volume(path)["stats_at"], first)
        self.assertEqual(self.lines(node), lines, "usage is no history")
        self.assertIn("53.0 KiB of it in use", self.explains(node, path))

    def test_abnormal_condition_is_journaled_once(self):
        node, agent = self.start()
        path = self.volumes[0].path
        node.wait_for(path, "in_sync", condition="normal")
        self.assertEqual(metrics_of(node)["volume_stats_health_status_abnormal"], "0")
        agent.stats.condition = "remounted read-only after an error"
        agent.stats.abnormal = True
        node.wait_for(path, "in_sync", condition="abnormal",
                      condition_message="remounted read-only after an error")
        agent.wait_for_requests(len(agent.requests) + 2, method=STATS)
        changes = "SELECT detail FROM audit_journal WHERE kind = 'guest_condition_changed'"
        self.assertEqual(len(node.query(changes)), 1)
        self.explains(node, path, "the guest said that the file system is abnormal: remounted")
        metrics = metrics_of(node)
        self.assertEqual(metrics["volume_stats_health_status_abnormal"], "1")
        self.assertEqual(metrics['crustd_volumes_condition{condition="abnormal"}'], "1")
        self.assertIn("1 to look at", self.page_text(node))
        agent.stats.abnormal = False
        node.wait_for(path, "in_sync", condition="normal")
        self.assertEqual(len(node.query(changes)), 2)
        self.assertEqual(metrics_of(node)["volume_stats_health_status_abnormal"], "0")

    def test_metrics_per_volume(self):
        node, agent = self.start()
        agent.stats.used = 777
        node.wait_for(self.volumes[0].path, "in_sync", used_bytes=777)
        self.assertEqual([name for name in metrics_of(node) if "pv=" in name], [])
        node.configure(metrics__per_volume="on")
        node.process.send_signal(signal.SIGHUP)
        node.wait(lambda: any("pv=" in name for name in metrics_of(node)), 30, "the new lines")
        metrics = metrics_of(node)
        size = node.volume(self.volumes[0].path)["device_bytes"]
        labels = '{pv="pv-0",kind="direct_volume",namespace="",persistentvolumeclaim="",pod=""}'
        self.assertEqual(float(metrics[f"crustd_volume_size_bytes{labels}"]), size)
        self.assertEqual(float(metrics[f"crustd_volume_vm_size_bytes{labels}"]), size)
        self.assertEqual(metrics[f"crustd_volume_used_bytes{labels}"], "777")
        self.assertIn(f"crustd_volume_available_bytes{labels}", metrics)

    def test_a_sandbox_is_asked_one_at_a_time(self):
        """Three volumes each second, and an agent that takes half a second for an answer."""
        node, agent = self.start(3)
        agent.behave(STATS, "delay=0.5,ok")
        seen = len(agent.requests)
        agent.wait_for_requests(seen + 6, seconds=30)
        times = [request.at for request in agent.requests[seen + 1:] if request.method == STATS]
        gaps = [after - before for before, after in zip(times, times[1:])]
        self.assertGreater(min(gaps), 0.45, "two were asked at once")
        self.assertEqual({request.path for request in agent.requests[seen:]},
                         {request.path for request in agent.requests[:seen]})

    def test_a_guest_that_hangs_keeps_no_other_waiting(self):
        node, agent = self.start(resize__call_timeout_seconds=3)
        other = self.volume(node, "pv-other")
        self.sandbox(node, other, sandbox_id="e" * 64, agent="unix:///other.sock")
        self.monitor(node, other, sandbox_id="e" * 64)
        well = self.agent(node, "other.sock")
        node.wait_for(other.path, "in_sync")
        agent.behave(STATS, "silent")
        hung = len(agent.requests)
        agent.wait_for_requests(hung + 1)
        before = len(well.requests)
        well.wait_for_requests(before + 3)
        # At every moment it would be asked, and hang, seven times.
        time.sleep(20)
        asked = [request.at for request in agent.requests[hung:]]
        self.assertLess(len(asked), 6, "a guest that fails is asked less often")
        for earlier, later in zip(asked, asked[1:]):
            self.assertGreater(later - earlier, 3, "and not while it hangs, or at once after that")
        self.assertGreater(len(well.requests) - before, 12)
        agent.behave(STATS, "ok")
        agent.stats.used = 31
        node.wait_for(self.volumes[0].path, "in_sync", used_bytes=31)

    def test_off_is_off(self):
        node, agent = self.start(guest__stats_seconds=0)
        seen = len(agent.requests)
        time.sleep(3)
        self.assertEqual(len(agent.requests), seen)

    def test_the_answer_that_verifies_a_resize_is_a_reading(self):
        node, agent = self.start(guest__stats_seconds=0)
        row = node.volume(self.volumes[0].path)
        self.assertEqual((row["used_bytes"], row["condition"]), (agent.stats.used, "normal"))

    def test_a_binding_that_ends_takes_its_readings_along(self):
        node, agent = self.start()
        path = self.volumes[0].path
        node.wait_for(path, "in_sync", condition="normal")
        for vmm in node.vmms:
            vmm.stop()
        row = node.wait_for(path, "unbound")
        self.assertEqual((row["condition"], row["used_bytes"]), (None, None))


class WithoutDeviceTest(AttachmentTest):
    """A guest that has lost the volume's device has another file system at that place."""

    def check_silent(self, node, volume):
        row = node.volume(volume.path)
        self.assertEqual((row["condition"], row["used_bytes"], row["stats_at"]),
                         (None, None, None))
        asked = len(self.guest.requests)
        time.sleep(3)
        self.assertEqual(len(self.guest.requests), asked)
        self.assertIsNone(node.volume(volume.path)["condition"])

    def polled(self):
        node, (volume,) = self.scene()
        node.configure(guest__stats_seconds=1)
        bundle = self.run_container(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", condition="normal")
        return node, volume, bundle

    def test_bypassed(self):
        node, volume, _ = self.polled()
        self.monitor_of.drives = []
        node.crustctl("resync")
        node.wait_for(volume.path, "blocked", "bypassed")
        self.check_silent(node, volume)

    def test_detached(self):
        node, volume, bundle = self.polled()
        self.monitor_of.drives = []
        self.end_container(node, bundle)
        node.wait_for(volume.path, "detached")
        self.check_silent(node, volume)
