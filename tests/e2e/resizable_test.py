# SPDX-License-Identifier: Apache-2.0
"""Whether a resize would reach a volume's file system is told before there is one."""

import json

from helper_case import HelperCase
from scratch_node import AFTER, SANDBOX, ScratchNodeTest, counted, curl, fake_monitor, free_address
from vmm import cloud_hypervisor, firecracker, record

OTHER = "b" * 64
NOT_RESIZABLE = "crustd_volumes_not_resizable"
UNSUPPORTED = "status:12:resize_volume is not implemented"


class ResizableTest(ScratchNodeTest):

    def wait(self, node, volume, answer, reason=None):
        """The volume's row, once it has this answer."""
        def reached():
            row = node.volume(volume.path) or {}
            last.update(row)
            return row if (row.get("resizable"), row.get("resizable_reason")) == (answer, reason) else None
        last = {}
        return node.wait(reached, 60, f"{volume.path}: {answer}/{reason}, last row: {last}")

    def listed(self, node):
        """PV names and reasons of what crustctl volumes --not-resizable lists."""
        rows = json.loads(node.crustctl("volumes", "--not-resizable", "-o", "json").stdout)
        return {row["pv"]: row["resizable_reason"] for row in rows}

    def journal(self, node):
        """The changes on record, in their order."""
        rows = node.query("SELECT detail FROM audit_journal WHERE kind = 'resizable_changed'"
                          " ORDER BY seq")
        return [(detail.get("from"), detail.get("to"))
                for detail in (json.loads(row["detail"]) for row in rows)]

    def asked(self, agent):
        return [one for one in agent.requests if one.method == "ResizeVolume"]


class QemuTest(ResizableTest):

    def test_no_monitor(self):
        """Told when the pod starts: its device never grows here."""
        node, volume = self.node_with_volume(name="pv-lonely")
        idle = self.volume(node, "pv-idle")
        self.agent(node)
        self.sandbox(node, volume)
        node.start()
        row = self.wait(node, volume, "no", "monitor_missing")
        self.assertEqual(row["stalled"], 0)
        self.wait(node, idle, None)
        self.assertEqual(self.listed(node), {"pv-lonely": "monitor_missing"})
        self.assertEqual(counted(node, NOT_RESIZABLE), {"monitor_missing": 1})
        table = node.crustctl("volumes", "--not-resizable").stdout
        self.assertRegex(table, r"pv-lonely.* monitor_missing")
        self.assertNotIn("pv-idle", table)
        self.explains(node, volume.path, "A resize would not reach the file system", "monitor_missing",
                      "extra_monitor_socket")
        code, body = curl(node, f"/v1/volumes/{row['volume_id']}")
        self.assertEqual((code, json.loads(body)["resizable"], json.loads(body)["resizable_reason"]),
                         (200, "no", "monitor_missing"))
        _, body = curl(node, "/v1/doctor")
        finding, = [one for one in json.loads(body) if one["id"] == "resizable"]
        self.assertEqual(finding["level"], "error")
        self.assertIn("1 of 1 volumes in use: pv-lonely (monitor_missing)", finding["what"])
        # A monitor comes: nobody has to say so.
        self.monitor(node, volume)
        self.wait(node, volume, "yes")
        self.assertEqual((self.listed(node), counted(node, NOT_RESIZABLE)), ({}, {}))
        # On the way the monitor may be found not to listen yet.
        changes = self.journal(node)
        self.assertEqual(changes[0], ("unknown/drives_not_read", "no/monitor_missing"))
        self.assertRegex(changes[-1][1], "^(yes|unknown)")

    def test_monitor_and_agent(self):
        """Each part was seen, and a resize takes no conversation more than before."""
        node, volume = self.node_with_volume({"resize.sweep_seconds": 3600})
        _, monitor, agent = self.equip(node, volume)
        node.start()
        self.wait(node, volume, "yes")
        self.settle(node)
        self.assertEqual((monitor.connections, len(self.asked(agent))), (1, 1))
        node.grow(volume, AFTER, resizable="yes")
        self.settle(node)
        self.assertEqual((monitor.connections, len(self.asked(agent))), (2, 2))
        self.assertEqual(self.journal(node), [])
        self.explains(node, volume.path, "A resize would reach the file system")
        self.assertNotIn("judged now", node.crustctl("explain", volume.path).stdout)

    def test_guest_that_fails_and_heals(self):
        node, volume = self.node_with_volume({"agent.routes": "agent"})
        self.monitor(node, volume)
        agent = self.agent(node)
        agent.behave("ResizeVolume", "status:13:no CAP_SYS_RESOURCE")
        self.sandbox(node, volume)
        node.start()
        self.wait(node, volume, "no", "agent_failed")
        agent.behave("ResizeVolume", "ok")
        self.wait(node, volume, "yes")
        changes = self.journal(node)
        self.assertEqual(changes, [("unknown/guest_not_asked", "no/agent_failed"),
                                   ("no/agent_failed", "yes")])

    def test_agent_that_cannot(self):
        node, volume = self.node_with_volume({"agent.routes": "companion, agent", "http.listen": free_address()})
        self.monitor(node, volume)
        agent = self.agent(node)
        agent.behave("ResizeVolume", UNSUPPORTED)
        self.sandbox(node, volume)
        node.start()
        row = self.wait(node, volume, "no", "agent_unsupported")
        self.assertEqual((row["state"], row["stalled"]), ("in_sync", 0))
        self.assertEqual(counted(node, NOT_RESIZABLE), {"agent_unsupported": 1})
        self.explains(node, volume.path, "agent_unsupported", "put crust-guest-agent into the guest")
        self.assertRegex(self.page_text(node),
                         r"Would not grow pv .*agent unsupported.*crust-guest-agent.* Volumes Volume")
        # The guest gets one that can, and somebody says so.
        agent.behave("ResizeVolume", "ok")
        node.crustctl("resync")
        self.wait(node, volume, "yes")
        self.assertNotIn("Would not grow", self.page_text(node))

    def test_a_volume_that_fills_its_device_in_a_new_sandbox(self):
        """A restarted pod, whose guest has lost what its predecessor's had."""
        node = self.node({"agent.routes": "agent"})
        volumes = [self.volume(node, "pv-a"), self.volume(node, "pv-b")]
        vmm, _, able = self.equip(node, *volumes)
        node.start()
        for volume in volumes:
            self.wait(node, volume, "yes")
        node.end_sandbox(SANDBOX)
        vmm.stop()
        for volume in volumes:
            node.wait_for(volume.path, "unbound", resizable=None, resizable_reason=None)
            (node.directory(volume.path) / SANDBOX).unlink()
        able.close()
        unable = self.agent(node, "unable.sock")
        unable.behave("ResizeVolume", UNSUPPORTED)
        self.monitor(node, *volumes, sandbox_id=OTHER)
        self.sandbox(node, *volumes, sandbox_id=OTHER, agent="unix:///unable.sock")
        for volume in volumes:
            row = self.wait(node, volume, "no", "agent_unsupported")
            self.assertEqual((row["state"], row["reason"]), ("in_sync", "none"))
        self.settle(node)
        self.assertEqual(len(self.asked(unable)), 1)  # and remembered for the second volume
        # The second sandbox is all that needs to change: what is in its guest.
        unable.behave("ResizeVolume", "ok")
        node.crustctl("resync")
        for volume in volumes:
            self.wait(node, volume, "yes")

    def test_read_only_drive(self):
        """The metadata let the pod write, and the VMM does not."""
        node, volume = self.node_with_volume({"resize.mode": "observe"})
        monitor = self.monitor(node, volume)
        monitor.drives = [fake_monitor.Drive(volume.drive, volume.loop.device, read_only=True)]
        self.sandbox(node, volume)
        node.start()
        self.wait(node, volume, "no", "read_only")

    def test_settings_come_last(self):
        """A canary in observe mode shows what it lacks, and nobody is alarmed by it."""
        node = self.node({"resize.mode": "observe"})
        lacking, ready = self.volume(node, "pv-lacking"), self.volume(node, "pv-ready")
        self.sandbox(node, lacking)
        _, _, agent = self.equip(node, ready, sandbox_id=OTHER)
        node.start()
        self.wait(node, lacking, "no", "monitor_missing")
        self.wait(node, ready, "no", "policy")
        self.assertEqual(counted(node, NOT_RESIZABLE), {})
        self.assertEqual(self.listed(node), {"pv-lacking": "monitor_missing", "pv-ready": "policy"})
        self.assertEqual(self.asked(agent), [])

    def test_what_is_not_meant_to_grow(self):
        node = self.node()
        never = self.volume(node, "pv-never", metadata={"crust.resize": "never"})
        reader = self.volume(node, "pv-reader", options=["ro"])
        self.sandbox(node, never)
        self.sandbox(node, reader, sandbox_id=OTHER)
        self.monitor(node, reader, sandbox_id=OTHER)
        node.start()
        self.wait(node, never, "no", "policy")
        self.wait(node, reader, "no", "read_only")
        self.assertEqual(counted(node, NOT_RESIZABLE), {})

    def test_restart_of_the_daemon(self):
        """Earlier findings stay valid; only the VMM is asked once more, since its drives may have changed meanwhile."""
        node, volume = self.node_with_volume()
        _, monitor, agent = self.equip(node, volume)
        node.start()
        self.wait(node, volume, "yes")
        self.assertEqual(node.stop(), 0)
        node.start()
        self.settle(node)
        self.wait(node, volume, "yes")
        self.assertEqual((monitor.connections, len(self.asked(agent))), (2, 1))


class VmmTest(ResizableTest):
    """VMMs whose lists have no sizes, on nodes that may only observe: nothing is tried there."""

    def observed(self, make, *options, settings=None):
        node, volume = self.node_with_volume({"resize.mode": "observe"} | (settings or {}))
        vmm = make(self, node, SANDBOX, volume, *options)
        record(node, vmm, volume)
        node.start()
        return node, volume

    def test_cloud_hypervisor_by_version(self):
        self.wait(*self.observed(cloud_hypervisor, "v51.1"), "no", "hypervisor_version")

    def test_cloud_hypervisor_that_can(self):
        self.wait(*self.observed(cloud_hypervisor, "v52.0"), "no", "policy")

    def test_cloud_hypervisor_all_the_way(self):
        node, volume = self.node_with_volume()
        self.agent(node)
        record(node, cloud_hypervisor(self, node, SANDBOX, volume, "v53.0"), volume)
        node.start()
        self.wait(node, volume, "yes")

    def test_firecracker_has_to_be_allowed(self):
        node, volume = self.observed(firecracker)
        self.wait(node, volume, "no", "hypervisor_unsupported")

    def test_firecracker_that_is_allowed(self):
        node, volume = self.observed(firecracker, settings={"resize.firecracker": "on"})
        self.wait(node, volume, "no", "policy")


class HelperTest(HelperCase, ResizableTest):
    """A guest that can do nothing by itself, and the helper that crustd brings along."""

    def test_brought_along(self):
        node, scene = self.build(2)
        for volume in scene.volumes:
            self.wait(node, volume, "yes")
        self.assertEqual(len(scene.agent.runs), 1)
        self.assertEqual(counted(node, NOT_RESIZABLE), {})

    def refused(self, reason, **settings):
        node = self.helper_node(**settings)
        scene = self.scene(node)
        node.start()
        row = self.wait(node, scene.volume, "no", reason)
        self.assertEqual((row["state"], row["stalled"]), ("in_sync", 0))
        self.assertEqual(counted(node, NOT_RESIZABLE), {reason: 1})
        self.explains(node, scene.volume.path, f"A resize would not reach the file system ({reason})")

    def test_no_helper(self):
        self.refused("agent_denied", guest__helper="off")

    def test_no_helper_on_the_node(self):
        self.refused("helper_missing", guest__helper_file="/nowhere/crust-guest-agent")


del HelperCase
