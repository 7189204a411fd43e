# SPDX-License-Identifier: Apache-2.0
"""The sockets that crust-qemu's QEMUs leave behind: removed once their VM is gone for certain."""

import os
import secrets
import signal
import socket
import subprocess

from scratch_node import ScratchNodeTest

DIRECTORY = "/run/crustd/qemu"
# No other test may run such a process meanwhile: any process that names the sandbox keeps its socket.
SANDBOX, OTHER = secrets.token_hex(32), secrets.token_hex(32)


class MonitorSocketsTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        # The sweep comes too late for these tests, but where they say so.
        self.node_ = self.node({"resize.sweep_seconds": 3600})
        self.directory = self.node_.path(DIRECTORY)
        self.directory.mkdir(mode=0o700)

    def leave(self, sandbox_id):
        """A socket whose QEMU has been killed."""
        path = self.directory / f"{sandbox_id}.sock"
        held = os.open(self.directory, os.O_RDONLY)
        self.addCleanup(os.close, held)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(f"/proc/self/fd/{held}/{path.name}")
        return path

    def start_qemu(self, sandbox_id):
        """A process with QEMU's arguments, and its socket."""
        # pylint: disable-next=consider-using-with
        process = subprocess.Popen(
            ["sh", "-c", "read _", "qemu-system-x86_64", "-name", f"sandbox-{sandbox_id}", "-qmp",
             f"unix:{DIRECTORY}/{sandbox_id}.sock,server=on,wait=off"], stdin=subprocess.PIPE)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, self.leave(sandbox_id)

    def wait_gone(self, path):
        self.node_.wait(lambda: not path.exists(), 30, f"{path.name} to be removed")

    def test_a_killed_vms_socket_goes_with_its_sandbox(self):
        node = self.node_
        killed, path = self.start_qemu(SANDBOX)
        lives, stays = self.start_qemu(OTHER)
        for sandbox_id, process in ((SANDBOX, killed), (OTHER, lives)):
            node.add_sandbox(sandbox_id, process.pid)
        node.start()
        node.wait(lambda: len(node.query("SELECT * FROM audit_sandboxes")) == 2, 30, "two sandboxes")
        self.assertEqual(node.query("SELECT control_socket FROM audit_sandboxes"
                                    f" WHERE sandbox_id = '{SANDBOX}'"),
                         [{"control_socket": f"{DIRECTORY}/{path.name}"}])
        self.assertTrue(path.exists())
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        self.wait_gone(path)
        self.assertTrue(stays.exists())
        self.assertIn(f"of a VM that is gone: {DIRECTORY}/{path.name}", node.log_tail())

    def test_leftovers_from_before_the_start_are_removed(self):
        stale = self.leave(SANDBOX)
        trial = self.leave("trial").rename(self.directory / ".99999999")
        _, stays = self.start_qemu(OTHER)  # of a sandbox that is not known
        self.node_.start()
        self.wait_gone(stale)
        self.wait_gone(trial)
        self.assertEqual(os.listdir(self.directory), [stays.name])

    def test_at_once_too(self):
        stale = self.leave(SANDBOX)
        self.node_.once()
        self.assertFalse(stale.exists())

    def test_a_directory_of_others_is_left_alone(self):
        stale = self.leave(SANDBOX)
        self.directory.chmod(0o770)
        self.node_.once()
        self.assertTrue(stale.exists())
        self.assertIn("chmod 700", self.node_.log_tail())

    def test_a_link_is_not_followed(self):
        stale = self.leave(SANDBOX)
        elsewhere = self.node_.path("/run/elsewhere")
        self.directory.rename(elsewhere)
        self.directory.symlink_to("/run/elsewhere")
        self.node_.once()
        self.assertTrue((elsewhere / stale.name).exists())

    def test_without_the_nodes_processes_nothing_is_removed(self):
        stale = self.leave(SANDBOX)
        self.node_.wrapper = ["unshare", "--pid", "--fork", "--mount-proc"]
        self.node_.once()
        self.assertTrue(stale.exists())
