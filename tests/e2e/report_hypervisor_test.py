# SPDX-License-Identifier: Apache-2.0
"""Which of a VMM's sockets is used, if any; and what somebody else does to a VM or its drives, without an event.
What a monitor can answer is in report_failures_test.py.
"""

import os
import signal
import socket

from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, SANDBOX, ScratchNodeTest, fake_monitor


class MonitorTest(ScratchNodeTest):

    def held_up(self, settings=None, reason="monitor_missing", **options):
        """A scenery whose VMM cannot be asked, and whose device has grown."""
        scene = self.scenery(settings, start=False, **options)
        self.hold_up(scene, reason)
        return scene

    def hold_up(self, scene, reason):
        scene.node.start()
        scene.wait("unknown", reason)
        scene.resize(AFTER)
        return scene.wait("blocked", reason)

    def tried_again(self, scene):
        scene.node.wait(lambda: scene.row()["attempts"] >= 2, 60, "another attempt")

    def bound_socket(self, node):
        """A socket that nobody listens on, in the place of the monitor."""
        path = node.vm_dir(SANDBOX) / "extra-monitor.sock"
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        self.addCleanup(os.close, directory)
        address = f"/proc/self/fd/{directory}/{path.name}"
        bound = socket.socket(socket.AF_UNIX)
        self.addCleanup(bound.close)
        bound.bind(address)
        return bound, address, path

    def test_no_monitor(self):
        """The shim's own does not count, before and after a restart of the daemon."""
        scene = self.held_up(monitor="qmp.sock")
        node = scene.node
        for restarted in False, True:
            self.settle(node)
            row = scene.wait("blocked", "monitor_missing", next_attempt_at=None)
            self.assertIsNotNone(row["state_since"])
            resize = scene.row()
            self.assertEqual((resize["state"], resize["reason"], resize["attempts"]), ("blocked", "monitor_missing", 1))
            if not restarted:
                node.stop()
                node.start()
        scene.explains("crust-qemu.toml", "extra_monitor_socket", "enable_debug", "restart the pod",
                       "resize.qemu_monitor")
        self.assertEqual(node.query("SELECT control_socket FROM audit_sandboxes"), [{"control_socket": None}])
        # What it waits for is a monitor, and nobody has to say that there is one now.
        extra = self.monitor(node, scene.volume)
        scene.grown(AFTER)
        self.assertEqual((len(extra.sent("block_resize")), scene.monitor.connections), (1, 0))

    def test_off(self):
        scene = self.held_up({"resize.qemu_monitor": "off"})
        scene.explains("resize.qemu_monitor is not off")
        self.assertEqual(scene.monitor.connections, 0)

    def test_main(self):
        """Where it is configured, and only without an extra monitor."""
        for has_extra in False, True:
            with self.subTest(has_extra):
                scene = self.scenery({"resize.qemu_monitor": "main"}, monitor="qmp.sock", start=False)
                used = self.monitor(scene.node, scene.volume) if has_extra else scene.monitor
                scene.node.start()
                scene.wait("in_sync", "none")
                scene.grows(AFTER)
                self.assertEqual(len(used.sent("block_resize")), 1)
                if has_extra:
                    self.assertEqual(scene.monitor.connections, 0)
                scene.node.close()

    def test_refused_connection(self):
        scene = self.scenery(monitor=None, start=False)
        bound, _, path = self.bound_socket(scene.node)
        bound.close()
        self.hold_up(scene, "hypervisor_unreachable")
        self.tried_again(scene)
        scene.explains("hypervisor_unreachable", "Connection refused")
        path.unlink()
        self.monitor(scene.node, scene.volume)
        scene.grown(AFTER)

    def test_queue_is_full(self):
        """Nobody accepts, and no further client is let into the queue."""
        scene = self.scenery(monitor=None, start=False)
        listener, address, _ = self.bound_socket(scene.node)
        listener.listen(0)
        while True:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self.addCleanup(client.close)
            try:
                client.connect(address)
            except BlockingIOError:
                break
        self.hold_up(scene, "hypervisor_busy")
        self.tried_again(scene)

    def test_a_vmm_whose_process_is_stopped(self):
        """It gives no greeting, as one that another client holds does; the text names the process."""
        scene = self.scenery()
        pid = scene.vmm.pid
        os.kill(pid, signal.SIGSTOP)
        scene.monitor.silent = True
        scene.resize(AFTER)
        row = scene.wait("blocked", "hypervisor_unreachable")
        text = f"the VMM does not answer: process {pid} is stopped (SIGSTOP, a debugger): kill -CONT {pid}"
        self.assertIn(text, row["evidence"])
        self.assertIn(text, scene.row()["error"])
        scene.explains(f"kill -CONT {pid}")
        os.kill(pid, signal.SIGCONT)
        scene.monitor.silent = False
        scene.grown(AFTER, evidence=None)

    def test_another_device_under_the_recorded_drive(self):
        scene = self.scenery(start=False)
        scene.monitor.drives = [fake_monitor.Drive(scene.volume.drive, self.loop(4 * AFTER).device)]
        scene.node.start()
        scene.wait("blocked", "identity_mismatch", hypervisor_bytes=None)
        scene.resize(AFTER)
        scene.wait("blocked", "identity_mismatch", device_bytes=AFTER)
        scene.explains("another device open", "Restart the pod")
        self.settle(scene.node)
        self.assertEqual(scene.sent(), 0)
        scene.monitor.drives = [fake_monitor.Drive(scene.volume.drive, scene.volume.loop.device, size=BEFORE)]
        scene.grown(AFTER)
        self.assertEqual(scene.sent(), 1)

    def test_hangs_up_after_having_resized(self):
        """The command was carried out and its answer lost: the next look finds it done."""
        scene = self.scenery()
        scene.monitor.close_at = 6
        scene.resize(AFTER)
        scene.monitor.wait_for("block_resize")
        scene.monitor.close_at = None
        scene.grown(AFTER, LONGEST_PAUSE)

    def test_events_and_pieces_do_no_harm(self):
        scene = self.scenery(start=False)
        scene.monitor.split = 7
        scene.monitor.events = [{"event": "STOP"}, {"event": "RESUME"}]
        scene.node.start()
        scene.wait("in_sync", "none")
        scene.grows(AFTER)


class OthersTest(ScratchNodeTest):

    def test_a_vm_that_is_paused(self):
        scene = self.scenery()
        scene.wait("in_sync", "none", hypervisor_bytes=BEFORE)
        scene.monitor.status = "io-error"
        asked = len(scene.agent.requests)
        scene.resize(AFTER)
        row = scene.wait("block_grown", "vm_paused", hypervisor_bytes=AFTER, resizable="no",
                         resizable_reason="vm_paused", evidence="the VM is paused: QEMU's status is io-error")
        self.assertIsNotNone(row["next_attempt_at"])
        self.assertIsNotNone(scene.row()["hypervisor_at"])
        scene.explains("block_grown/vm_paused", "QEMU's status is io-error", "I/O error of a disk", "A VM that runs")
        self.assertIn("vm_paused", scene.node.crustctl("doctor", check=False).stdout)
        self.assertEqual(len(scene.agent.requests), asked)
        scene.monitor.status = "running"
        scene.wait("in_sync", "none", LONGEST_PAUSE, resizable="yes", evidence=None)
        self.assertEqual(scene.sent(), 1)

    def test_a_vm_that_is_paused_and_in_sync(self):
        """A start asks; so does the slow round."""
        scene = self.scenery()
        scene.node.stop()
        scene.monitor.status = "paused"
        scene.node.start()
        scene.wait("in_sync", "none", resizable="no", resizable_reason="vm_paused",
                   evidence="the VM is paused: QEMU's status is paused")
        scene.monitor.status = "running"
        scene.wait("in_sync", "none", LONGEST_PAUSE, resizable="yes", evidence=None)

    def test_a_drive_unplugged_by_hand(self):
        scene = self.scenery()
        scene.node.stop()
        scene.monitor.drives = []
        scene.node.start()
        scene.wait("blocked", "bypassed", LONGEST_PAUSE)

    def set_back(self, scene, size=BEFORE):
        """Another client resizes the drive, and metadata that is written anew has crustd ask."""
        self.changes = getattr(self, "changes", 0) + 1
        scene.monitor.drives[0].size = size
        scene.node.stage(scene.path, scene.volume.loop.device, metadata={"changes": str(self.changes)})

    def test_what_another_resized_is_resized_again(self):
        scene = self.scenery()
        scene.grows(AFTER)
        for times in (1, 2):
            self.set_back(scene)
            scene.monitor.wait_for("block_resize", times + 1)
            scene.grown(AFTER)
        self.set_back(scene)
        scene.wait("blocked", "resize_undone", hypervisor_bytes=BEFORE, resizable="no",
                   resizable_reason="resize_undone", next_attempt_at=None, stalled=1)
        scene.explains("blocked/resize_undone", "somebody else set the VM's disk back", "crustctl resync")
        self.set_back(scene)
        self.settle(scene.node)
        self.assertEqual(scene.sent(), 3)
        self.set_back(scene, AFTER)  # the other side has set it right
        scene.wait("in_sync", "none", hypervisor_bytes=AFTER)
        scene.monitor.drives[0].size = BEFORE
        scene.node.crustctl("resync")
        scene.monitor.wait_for("block_resize", 4)
        scene.grown(AFTER, resizable="yes")
        self.assertIn("somebody else set it back", scene.node.log.read_text())
