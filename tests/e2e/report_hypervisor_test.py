# SPDX-License-Identifier: Apache-2.0
"""What a VMM's monitor can do wrong: each has its state and reason, is tried again or not as fits,
is explained, and heals when the monitor does.

One daemon serves all cases of a test at once, each in a sandbox of its own.
"""

import dataclasses
import os
import signal
import socket
import typing
import unittest

from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, MIB, SANDBOX, ScratchNodeTest, fake_monitor

PERMISSION_CONFLICT = (
    "Permission conflict on node 'n0': permissions 'resize' are both required by an unnamed block "
    "device (uses node 'n0' as 'root' child) and unshared by block device 'v0' (uses node 'n0' as "
    "'root' child).")


@dataclasses.dataclass
class Case:
    """break_it(monitor, drive) before the resize; what is then said."""

    break_it: typing.Callable
    reason: str
    error: str
    retried: bool = True
    explained: tuple = ()
    known: int | None = BEFORE  # what the VMM is still known to have
    asked: bool = True  # whether a resize was asked for at all


def hook(**changes):
    def break_it(monitor, _):
        for name, value in changes.items():
            setattr(monitor, name, value)

    return break_it


def of_drive(**changes):
    def break_it(_, drive):
        for name, value in changes.items():
            setattr(drive, name, value)

    return break_it


def refuse(text):
    return hook(refuse=text)


def lie(_, drive):
    drive.resize = lambda size: None


def all_of(*breaks):
    def break_it(monitor, drive):
        for one in breaks:
            one(monitor, drive)

    return break_it


UNREACHABLE = ("the control socket", "tries again by itself", "resize.call_timeout_seconds")

CONNECTIONS = {
    "held by another client": Case(
        hook(silent=True), "hypervisor_busy", "gives no greeting: another client holds it",
        explained=("ss -xp", "tries again by itself"), asked=False),
    "hangs up at once": Case(hook(close_at=0), "hypervisor_unreachable", "the monitor: ",
                             explained=UNREACHABLE, asked=False),
    "hangs up after the negotiation": Case(hook(close_at=1), "hypervisor_unreachable",
                                           "the monitor: ", asked=False),
    "hangs up instead of resizing": Case(all_of(hook(close_at=6), lie),
                                         "hypervisor_unreachable", "the monitor: "),
    "greets as something else": Case(
        hook(garbage=(0, b"SSH-2.0-OpenSSH_9.2\r\n")), "hypervisor_unreachable",
        "is no QEMU monitor", asked=False),
    "is a human monitor": Case(
        hook(garbage=(0, b"QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) ")),
        "monitor_missing", r"this is a human monitor \(HMP\), which crustd does not use: crust-qemu",
        retried=False, explained=("crust-qemu.toml", "which crustd does not use"), asked=False),
    "greets with other JSON": Case(hook(garbage=(0, b'{"hello": "world"}\r\n')),
                                   "hypervisor_unreachable", "did not greet", asked=False),
    "answers garbage": Case(hook(garbage=(2, b"\x00\xff<html>\r\n")), "hypervisor_unreachable",
                            "no JSON object", asked=False),
    "answers broken JSON": Case(hook(garbage=(2, b'{"return": tru}\r\n')), "hypervisor_unreachable",
                                "at byte", asked=False),
    "answers nonsense": Case(
        hook(garbage=(2, b'{"return": "none", "id": "crustd-2"}\r\n')), "hypervisor_unreachable",
        "query-block: the answer is no list", asked=False),
    "answers without an end": Case(hook(garbage=(2, b'{"x": "' + b"x" * (5 * MIB))),
                                   "hypervisor_unreachable", "beyond", asked=False),
    "never answers": Case(hook(silent_at=2), "hypervisor_unreachable", "the monitor: ",
                          asked=False),
    "never answers the resize": Case(all_of(hook(silent_at=6), lie), "hypervisor_unreachable",
                                     "the monitor: "),
}

REFUSALS = {
    "cannot grow": Case(refuse("Cannot grow device files"), "hypervisor_refused",
                        "Cannot grow device files", explained=("answered with an error",
                                                               "restart the pod")),
    "permission conflict": Case(refuse(PERMISSION_CONFLICT), "hypervisor_unsupported",
                                "Permission conflict", retried=False,
                                explained=("Restart the pod",)),
    "block job": Case(refuse("Device '(null)' is in use"), "hypervisor_busy", "is in use",
                      explained=("A backup or mirror", "tries again by itself")),
    "fixed size": Case(refuse("Cannot resize fixed-size raw disks"), "hypervisor_unsupported",
                       "fixed-size", retried=False),
    "something new": Case(refuse("The moon is not full"), "hypervisor_refused",
                          "The moon is not full"),
    "no such command": Case(hook(_qmp_block_resize=None), "hypervisor_unsupported",
                            "has not been found", retried=False),
    "says yes and does nothing": Case(lie, "hypervisor_refused", "bytes after the resize"),
    "read-only drive": Case(of_drive(read_only=True), "read_only", "read-only", retried=False,
                            explained=("read-only", "a pod that starts anew"), asked=False),
    "no such drive": Case(hook(drives=[]), "bypassed", "none of the VMM's 0 drives",
                          explained=("the VM has lost the drive",), asked=False, known=None),
    "drive behind a file": Case(of_drive(driver="file"), "hypervisor_unsupported",
                                "its protocol driver is not host_device", retried=False,
                                asked=False),
    "another format": Case(of_drive(root_driver="qcow2"), "hypervisor_unsupported",
                           "a format other than raw", retried=False, asked=False),
    "name that is no word": Case(of_drive(node='x"y'), "hypervisor_unsupported",
                                 "cannot|name", retried=False, asked=False),
}


class HypervisorTest(ScratchNodeTest):

    def build(self, cases, **settings):
        node = self.node({"resize.call_timeout_seconds": 2} | settings)
        self.agent(node)
        scene = {}
        for number, (name, case) in enumerate(cases.items()):
            sandbox_id = f"{number + 1:064x}"
            volume = self.volume(node, f"pv-{number}")
            monitor = self.monitor(node, volume, sandbox_id=sandbox_id)
            self.sandbox(node, volume, sandbox_id=sandbox_id)
            scene[name] = (volume, monitor)
        return node, scene

    def check(self, name, case, node, volume, monitor):
        row = node.wait_for(volume.path, "blocked", case.reason)
        resize = self.resize_row(node, volume.path)
        self.assertEqual((row["device_bytes"], row["hypervisor_bytes"]), (AFTER, case.known))
        self.assertEqual((resize["state"], resize["reason"]), ("blocked", case.reason))
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, AFTER))
        self.assertIsNone(resize["finished_at"])
        self.assertIsNone(resize["hypervisor_at"])
        self.assertRegex(resize["error"], case.error)
        self.assertEqual(monitor.sent("block_resize") != [], case.asked)
        if case.retried:
            node.wait(lambda: self.resize_row(node, volume.path)["attempts"] >= 2, 60,
                      f"{name} to be tried again")
        else:
            self.assertIsNone(row["next_attempt_at"])
            self.assertEqual(resize["attempts"], 1)
        self.explains(node, volume.path, "blocked", case.reason, *case.explained)

    def run_cases(self, cases):
        node, scene = self.build(cases)
        node.start()
        for volume, _ in scene.values():
            node.wait_for(volume.path, "in_sync")
        for name, (volume, monitor) in scene.items():
            monitor.requests.clear()
            cases[name].break_it(monitor, monitor.drives[0])
        for volume, _ in scene.values():
            volume.loop.resize(AFTER)
        for name, (volume, monitor) in scene.items():
            with self.subTest(name):
                self.check(name, cases[name], node, volume, monitor)
        self.settle(node)
        waiting = [name for name in cases if not cases[name].retried]
        for name in waiting:
            with self.subTest(name):
                self.assertEqual(self.resize_row(node, scene[name][0].path)["attempts"], 1)
        self.heal(node, scene, [name for name in cases if cases[name].retried])
        if waiting:
            self.heal_waiting(node, scene, waiting)

    def heal_waiting(self, node, scene, names):
        """Time does not heal these; somebody who mended them says so."""
        for name in names:
            self.mend(*scene[name])
        self.settle(node)
        for name in names:
            self.assertEqual(node.volume(scene[name][0].path)["state"], "blocked", name)
        node.crustctl("resync")
        self.heal(node, scene, names)

    def mend(self, volume, monitor):
        monitor.silent = False
        monitor.close_at = monitor.garbage = monitor.silent_at = monitor.refuse = None
        monitor.__dict__.pop("_qmp_block_resize", None)
        monitor.drives = [fake_monitor.Drive(volume.drive, volume.loop.device, size=BEFORE)]

    def heal(self, node, scene, names):
        for name in names:
            self.mend(*scene[name])
        for name in names:
            path = scene[name][0].path
            node.wait_for(path, "in_sync", seconds=LONGEST_PAUSE, hypervisor_bytes=AFTER,
                          next_attempt_at=None)
            resize = self.resize_row(node, path)
            self.assertEqual(resize["state"], "in_sync")
            self.assertIsNotNone(resize["finished_at"])

    def test_connections(self):
        self.run_cases(CONNECTIONS)

    def test_refusals(self):
        self.run_cases(REFUSALS)


class MonitorTest(ScratchNodeTest):
    """Which socket is used, if any."""

    def grow(self, node, volume, reason):
        node.start()
        node.wait_for(volume.path, "unknown", reason)
        volume.loop.resize(AFTER)
        return node.wait_for(volume.path, "blocked", reason)

    def test_no_monitor(self):
        node = self.node()
        volume = self.volume(node)
        self.agent(node)
        shims = self.monitor(node, volume, name="qmp.sock")
        self.sandbox(node, volume)
        row = self.grow(node, volume, "monitor_missing")
        self.assertIsNone(row["next_attempt_at"])
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["state"], resize["reason"], resize["attempts"]),
                         ("blocked", "monitor_missing", 1))
        self.explains(node, volume.path, "crust-qemu.toml", "extra_monitor_socket", "enable_debug", "restart the pod",
                      "resize.qemu_monitor")
        self.settle(node)
        self.assertEqual(self.resize_row(node, volume.path)["attempts"], 1)
        row, = node.query("SELECT control_socket FROM audit_sandboxes")
        self.assertIsNone(row["control_socket"])
        # What it waits for is a monitor, and nobody has to say that there is one now.
        extra = self.monitor(node, volume)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(len(extra.sent("block_resize")), 1)
        self.assertEqual(shims.connections, 0)

    def test_no_monitor_after_a_restart_of_the_daemon(self):
        node = self.node()
        volume = self.volume(node)
        shims = self.monitor(node, volume, name="qmp.sock")
        self.sandbox(node, volume)
        self.grow(node, volume, "monitor_missing")
        node.stop()
        node.start()
        self.settle(node)
        row = node.wait_for(volume.path, "blocked", "monitor_missing", next_attempt_at=None)
        self.assertIsNotNone(row["state_since"])
        self.assertEqual(self.resize_row(node, volume.path)["attempts"], 1)
        self.assertEqual(shims.connections, 0)

    def test_off(self):
        node = self.node({"resize.qemu_monitor": "off"})
        volume = self.volume(node)
        extra = self.monitor(node, volume)
        self.sandbox(node, volume)
        self.grow(node, volume, "monitor_missing")
        self.explains(node, volume.path, "resize.qemu_monitor is not off")
        self.assertEqual(extra.connections, 0)

    def test_main_where_configured(self):
        node = self.node({"resize.qemu_monitor": "main"})
        volume = self.volume(node)
        self.agent(node)
        main = self.monitor(node, volume, name="qmp.sock")
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(len(main.sent("block_resize")), 1)

    def test_main_only_without_an_extra_monitor(self):
        node = self.node({"resize.qemu_monitor": "main"})
        volume = self.volume(node)
        self.agent(node)
        main = self.monitor(node, volume, name="qmp.sock")
        extra = self.monitor(node, volume)
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(len(extra.sent("block_resize")), 1)
        self.assertEqual(main.connections, 0)

    def test_refused_connection(self):
        node = self.node()
        volume = self.volume(node)
        self.agent(node)
        path = node.vm_dir(SANDBOX) / "extra-monitor.sock"
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        with socket.socket(socket.AF_UNIX) as ended:
            ended.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)
        self.sandbox(node, volume)
        self.grow(node, volume, "hypervisor_unreachable")
        node.wait(lambda: self.resize_row(node, volume.path)["attempts"] >= 2, 60, "another attempt")
        self.explains(node, volume.path, "hypervisor_unreachable", "Connection refused")
        path.unlink()
        self.monitor(node, volume)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)

    def test_queue_is_full(self):
        """Nobody accepts, and no further client is let into the queue."""
        node = self.node()
        volume = self.volume(node)
        path = node.vm_dir(SANDBOX) / "extra-monitor.sock"
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        self.addCleanup(os.close, directory)
        address = f"/proc/self/fd/{directory}/{path.name}"
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(address)
        listener.listen(0)
        while True:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self.addCleanup(client.close)
            try:
                client.connect(address)
            except BlockingIOError:
                break
        self.sandbox(node, volume)
        self.grow(node, volume, "hypervisor_busy")
        node.wait(lambda: self.resize_row(node, volume.path)["attempts"] >= 2, 60, "another attempt")

    def test_a_vmm_whose_process_is_stopped(self):
        """It gives no greeting, as one that another client holds does; the text names the process."""
        node = self.node()
        volume = self.volume(node)
        self.agent(node)
        monitor = self.monitor(node, volume)
        vmm = self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        os.kill(vmm.pid, signal.SIGSTOP)
        monitor.silent = True
        volume.loop.resize(AFTER)
        row = node.wait_for(volume.path, "blocked", "hypervisor_unreachable")
        text = f"the VMM does not answer: process {vmm.pid} is stopped (SIGSTOP, a debugger): kill -CONT {vmm.pid}"
        self.assertIn(text, row["evidence"])
        self.assertIn(text, self.resize_row(node, volume.path)["error"])
        self.explains(node, volume.path, f"kill -CONT {vmm.pid}")
        os.kill(vmm.pid, signal.SIGCONT)
        monitor.silent = False
        row = node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertIsNone(row["evidence"])

    def test_another_device_under_the_recorded_drive(self):
        node = self.node()
        volume = self.volume(node)
        other = self.loop(4 * AFTER)
        self.agent(node)
        monitor = self.monitor(node, volume)
        monitor.drives = [fake_monitor.Drive(volume.drive, other.device)]
        self.sandbox(node, volume)
        node.start()
        row = node.wait_for(volume.path, "blocked", "identity_mismatch")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked", "identity_mismatch", device_bytes=AFTER)
        self.assertIsNone(row["hypervisor_bytes"])
        self.explains(node, volume.path, "another device open", "Restart the pod")
        self.settle(node)
        self.assertEqual(monitor.sent("block_resize"), [])
        monitor.drives = [fake_monitor.Drive(volume.drive, volume.loop.device, size=BEFORE)]
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(len(monitor.sent("block_resize")), 1)

    def test_hangs_up_after_having_resized(self):
        """The command was carried out and its answer lost: the next look finds it done."""
        node = self.node()
        volume = self.volume(node)
        self.agent(node)
        monitor = self.monitor(node, volume)
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        monitor.close_at = 6
        volume.loop.resize(AFTER)
        monitor.wait_for("block_resize")
        monitor.close_at = None
        node.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, hypervisor_bytes=AFTER)

    def test_events_and_pieces_do_no_harm(self):
        node = self.node()
        volume = self.volume(node)
        self.agent(node)
        monitor = self.monitor(node, volume)
        monitor.split = 7
        monitor.events = [{"event": "STOP"}, {"event": "RESUME"}]
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)


class OthersTest(ScratchNodeTest):
    """What somebody else does to a VM or its drives, without an event."""

    def bound(self):
        node = self.node()
        volume = self.volume(node)
        self.guest = self.agent(node)
        monitor = self.monitor(node, volume)
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        return node, volume, monitor

    def test_a_vm_that_is_paused(self):
        node, volume, monitor = self.bound()
        monitor.status = "io-error"
        asked = len(self.guest.requests)
        volume.loop.resize(AFTER)
        row = node.wait_for(volume.path, "block_grown", "vm_paused", hypervisor_bytes=AFTER, resizable="no",
                            resizable_reason="vm_paused")
        self.assertEqual(row["evidence"], "the VM is paused: QEMU's status is io-error")
        self.assertIsNotNone(row["next_attempt_at"])
        self.assertIsNotNone(self.resize_row(node, volume.path)["hypervisor_at"])
        self.explains(node, volume.path, "block_grown/vm_paused", "QEMU's status is io-error", "I/O error of a disk",
                      "A VM that runs")
        self.assertIn("vm_paused", node.crustctl("doctor", check=False).stdout)
        self.assertEqual(len(self.guest.requests), asked)
        monitor.status = "running"
        row = node.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, resizable="yes")
        self.assertIsNone(row["evidence"])
        self.assertEqual(len(monitor.sent("block_resize")), 1)

    def test_a_vm_that_is_paused_and_in_sync(self):
        """A start asks; so does the slow round."""
        node, volume, monitor = self.bound()
        node.stop()
        monitor.status = "paused"
        node.start()
        row = node.wait_for(volume.path, "in_sync", "none", resizable="no", resizable_reason="vm_paused")
        self.assertEqual(row["evidence"], "the VM is paused: QEMU's status is paused")
        monitor.status = "running"
        node.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, resizable="yes", evidence=None)

    def test_a_drive_unplugged_by_hand(self):
        node, volume, monitor = self.bound()
        node.stop()
        monitor.drives = []
        node.start()
        node.wait_for(volume.path, "blocked", "bypassed", LONGEST_PAUSE)

    def change_metadata(self, node, volume):
        self.changes = getattr(self, "changes", 0) + 1
        node.stage(volume.path, volume.loop.device, metadata={"changes": str(self.changes)})

    def test_what_another_resized_is_resized_again(self):
        node, volume, monitor = self.bound()
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        for times in (1, 2):
            monitor.drives[0].size = BEFORE
            self.change_metadata(node, volume)
            monitor.wait_for("block_resize", times + 1)
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        monitor.drives[0].size = BEFORE
        self.change_metadata(node, volume)
        row = node.wait_for(volume.path, "blocked", "resize_undone", hypervisor_bytes=BEFORE, resizable="no",
                            resizable_reason="resize_undone", next_attempt_at=None)
        self.assertEqual(row["stalled"], 1)
        self.explains(node, volume.path, "blocked/resize_undone", "somebody else set the VM's disk back",
                      "crustctl resync")
        self.change_metadata(node, volume)
        self.settle(node)
        self.assertEqual(len(monitor.sent("block_resize")), 3)
        # The other side has set it right.
        monitor.drives[0].size = AFTER
        self.change_metadata(node, volume)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        monitor.drives[0].size = BEFORE
        node.crustctl("resync")
        monitor.wait_for("block_resize", 4)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER, resizable="yes")
        self.assertIn("somebody else set it back", node.log.read_text())


if __name__ == "__main__":
    unittest.main()
