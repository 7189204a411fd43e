# SPDX-License-Identifier: Apache-2.0
"""Sockets of a sandbox that another process listens on, or that are links: crustd says a word to
none of them, names the process, and goes on when the VMM's own socket is there."""

import os
import pathlib
import subprocess

from drives import DrivesTest
from scratch_node import AFTER, LONGEST_PAUSE, ScratchNodeTest, SANDBOX

FAKES = pathlib.Path(__file__).resolve().parent.parent / "fakes"
NOBODY = 65534
GREETS = """
import os, socket, sys
os.chdir(os.path.dirname(sys.argv[1]))
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.path.basename(sys.argv[1]))
listener.listen()
clients = []
while True:
    clients.append(listener.accept()[0])
    clients[-1].sendall(b'{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}}}\\r\\n')
"""


def start_program(test, *arguments, user=0):
    """A fake in a process that is neither the VMM, nor its parent, nor a shim."""
    # pylint: disable-next=consider-using-with
    process = subprocess.Popen(["/usr/bin/python3", "-B", *map(str, arguments)], user=user,
                               extra_groups=[], stdout=subprocess.DEVNULL)
    test.addCleanup(finish, process)
    return process


def finish(process):
    process.kill()
    process.wait()


class ForeignListenersTest(ScratchNodeTest):
    hostile = True

    def setUp(self):
        super().setUp()
        self.host = self.node()

    def foreign_monitor(self, path, volume):
        """Its log holds what it was sent."""
        log = self.scratch / f"{path.name}.log"
        process = start_program(self, FAKES / "monitor.py", "--socket", path, "--device",
                                volume.loop.device, "--node", volume.drive, "--log", log)
        self.host.wait(path.exists, 60, "the foreign monitor")
        return process, log.read_text

    def users_monitor(self, path, _):
        """A monitor that sends a greeting, in a directory that the user may write to."""
        for directory in (path.parent, *path.parent.parents):
            if directory == self.scratch.parent:
                break
            directory.chmod(0o711)
        os.chown(path.parent, NOBODY, NOBODY)
        process = start_program(self, "-c", GREETS, path, user=NOBODY)
        self.host.wait(path.exists, 60, "the user's monitor")
        return process, str

    def refused(self, volume, reason, *words):
        """A socket whose owner does not listen yet is refused otherwise, and asked again."""
        def is_refused():
            row = self.host.volume(volume.path)
            resize = self.resize_row(self.host, volume.path) or {}
            is_told = all(word in (resize.get("error") or "") for word in words)
            return row if row["reason"] == reason and is_told else None

        return self.host.wait(is_refused, 20, f"{reason}: {words}")

    # a monitor

    def grow_before(self, volume, monitor):
        """With the VMM's own monitor; which then goes."""
        self.host.start()
        self.host.wait_for(volume.path, "in_sync", "none")
        monitor.stop()
        pathlib.Path(monitor.socket_path).unlink(missing_ok=True)

    def check_monitor_of(self, listen, user):
        volume = self.volume(self.host)
        _, monitor, _ = self.equip(self.host, volume)
        self.grow_before(volume, monitor)
        path = self.host.vm_dir(SANDBOX) / "extra-monitor.sock"
        process, sent = listen(path, volume)
        volume.loop.resize(AFTER)
        self.refused(volume, "hypervisor_unreachable",
                     f"process {process.pid} (", f") of user {user} listens on ",
                     "neither the sandbox's VMM nor its shim")
        self.assertEqual(sent(), "")

        finish(process)
        path.unlink()
        own = self.monitor(self.host, volume)
        self.host.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, hypervisor_bytes=AFTER)
        self.assertEqual(len(own.sent("block_resize")), 1)

    def test_a_monitor_of_another_process(self):
        self.check_monitor_of(self.foreign_monitor, 0)

    def test_a_monitor_of_another_user(self):
        self.check_monitor_of(self.users_monitor, NOBODY)

    def test_a_linked_monitor(self):
        volume = self.volume(self.host)
        _, monitor, _ = self.equip(self.host, volume)
        self.grow_before(volume, monitor)
        other = self.monitor(self.host, volume, name="another.sock")
        (self.host.vm_dir(SANDBOX) / "extra-monitor.sock").symlink_to("another.sock")
        volume.loop.resize(AFTER)
        row = self.host.wait(
            lambda: (lambda row: row if row["state"] in ("stalled", "blocked") else None)(
                self.host.volume(volume.path)), 60, "the link to be refused")
        self.assertIn(row["reason"], ("hypervisor_unreachable", "monitor_missing"))
        self.assertEqual(other.connections, 0)

    def test_a_socket_of_another_process_among_the_added_monitors(self):
        """The socket that crust-qemu's QEMU would have made."""
        volume = self.volume(self.host)
        self.agent(self.host)
        directory = self.host.root / "run/crustd/qemu"
        directory.mkdir(parents=True, mode=0o700)
        path = directory / f"{SANDBOX}.sock"
        process, sent = self.foreign_monitor(path, volume)
        vmm = self.host.start_vmm(SANDBOX, "-qmp", f"unix:/run/crustd/qemu/{SANDBOX}.sock")
        self.host.add_sandbox(SANDBOX, vmm.pid, agent="unix:///agent.sock",
                              drives=[volume.record()])
        self.host.record(volume.path, SANDBOX)
        self.host.start()
        self.host.wait_for(volume.path, "unknown", "hypervisor_unreachable")
        self.assertIn(f"process {process.pid} (", self.host.log_tail())
        self.assertEqual(sent(), "")

    # an agent

    def test_an_agent_of_another_process(self):
        volume = self.volume(self.host)
        self.monitor(self.host, volume)
        self.sandbox(self.host, volume)
        path = self.host.root / "agent.sock"
        process = start_program(self, FAKES / "agent.py", "--grows", path)
        self.host.wait(path.exists, 60, "the foreign agent")
        self.host.start()
        volume.loop.resize(AFTER)
        row = self.refused(volume, "agent_unreachable", f"process {process.pid} (")
        self.assertEqual(row["hypervisor_bytes"], AFTER)

        finish(process)
        path.unlink()
        self.agent(self.host)
        self.host.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE)


class ForeignDriveAgentTest(DrivesTest):
    hostile = True

    def test_an_agent_of_another_process_is_not_a_guest_without_one(self):
        host = self.drive_node()
        disk = self.disk(host)
        path = host.root / f"agent-{SANDBOX[:8]}.sock"
        host.qemu.agent.close()
        path.unlink(missing_ok=True)
        process = start_program(self, FAKES / "agent.py", "--hybrid-vsock", 1030, path)
        host.wait(path.exists, 60, "the foreign agent")
        host.start()
        host.wait_alive()
        with self.fails("UNAVAILABLE", f"process {process.pid} ("):
            self.attach(host, "data-1", disk)
        self.assertIn("neither the sandbox's VMM nor its shim", self.row(host, "data-1")["message"])
        self.assertFalse(host.qemu.has_open(disk.device))
