# SPDX-License-Identifier: Apache-2.0
"""The node itself: what the scenarios stand on."""

import contextlib
import os
import pathlib
import tempfile
import threading

from channel import NodeError, NodeFailed, NodeGone
from node_test_case import NodeTest

MIB = 1 << 20


class MachineTest(NodeTest):
    """In the order of their names: the last ones reboot the node, and leave it unusable."""

    DISKS = {"spare": 64 * MIB}
    INSTALL = False

    def test_a_command_has_a_status_and_two_outputs(self):
        result = self.node.run("cat; echo wrong >&2; exit 3", given="told\n", check=False)
        self.assertEqual((result.status, result.stdout, result.stderr), (3, "told\n", "wrong\n"))
        with self.assertRaisesRegex(NodeError, "ended with 3"):
            self.node.run("exit 3")

    def test_a_command_that_hangs_is_killed(self):
        result = self.node.run("echo begun; sleep 1000", check=False, seconds=2)
        self.assertEqual((result.status, result.stdout), (None, "begun\n"))

    def test_a_command_may_leave_a_process_behind(self):
        self.node.run("sleep 1000 & echo $! >/run/left")
        self.node.run("kill $(cat /run/left)")

    def test_commands_run_side_by_side(self):
        waiting = threading.Thread(target=self.node.run, args=("until [ -e /run/go ]; do sleep .1;"
                                                               " done",))
        waiting.start()
        self.node.run("touch /run/go")
        waiting.join(60)
        self.assertFalse(waiting.is_alive())

    def test_files_go_in_and_out(self):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            (scratch / "tree/below").mkdir(parents=True)
            data = os.urandom(3 * MIB + 1)
            (scratch / "tree/below/file").write_bytes(data)
            (scratch / "tree/below/file").chmod(0o750)
            self.node.put(scratch / "tree", "/run/tree")
            self.assertEqual(self.node.output("stat -c '%a %U' /run/tree/below/file"), "750 root")
            scratch.chmod(0o700)
            self.node.put(scratch, "/run")
            self.assertEqual(self.node.output("stat -c %a /run"), "755")
            self.node.put(scratch / "tree/below/file", "/run/one file")
            self.node.get("/run/one file", scratch / "back")
            self.assertEqual((scratch / "back").read_bytes(), data)
        self.node.write("/run/made/text", "some text\n")
        self.assertEqual(self.node.read("/run/made/text"), "some text\n")
        self.assertEqual(list(self.node.exchange.iterdir()), [])

    def test_has_what_a_node_has(self):
        self.assertEqual(self.node.output("systemctl is-system-running"), "running")
        self.node.run("[ -c /dev/kvm ] && [ -c /dev/vhost-vsock ]")
        # KVM works: a virtual machine can be made, not only asked for.
        self.node.run("python3 -c 'import fcntl; fcntl.ioctl(open(\"/dev/kvm\"), 0xAE01, 0)'")
        self.node.run("modprobe -a dm_crypt dm_multipath scsi_debug raid1 btrfs xfs"
                      " && udevadm settle && rmmod scsi_debug")  # udev looks into its disk

    def test_a_disk_grows(self):
        size = "blockdev --getsize64 /dev/disk/by-id/virtio-spare"
        self.assertEqual(int(self.node.output(size)), 64 * MIB)
        self.node.resize_disk("spare", 96 * MIB)
        self.node.wait(lambda: int(self.node.output(size)) == 96 * MIB, 10, "the disk to grow")

    def test_reboot_keeps_files(self):
        self.node.write("/var/kept", "kept\n")
        before = self.node.output("cat /proc/sys/kernel/random/boot_id")
        self.node.reboot()
        self.assertNotEqual(self.node.output("cat /proc/sys/kernel/random/boot_id"), before)
        self.assertEqual(self.node.read("/var/kept"), "kept\n")

    def test_reboot_without_power(self):
        self.node.run("echo synced >/var/synced && sync /var/synced /var")
        self.node.run("echo lost >/var/lost")
        errors = []

        def hang():
            try:
                self.node.run("sleep 1000")
            except NodeGone as error:
                errors.append(error)

        hanging = threading.Thread(target=hang)
        hanging.start()
        self.node.kill_power()
        hanging.join(60)
        self.assertEqual(len(errors), 1)
        self.node.start()
        self.assertEqual(self.node.read("/var/synced"), "synced\n")
        self.node.run("[ ! -s /var/lost ]")

    def test_the_kernel_fails(self):
        """A caller that waits for the node is told why it will not answer, and so are later callers."""
        errors = []

        def hang():
            try:
                self.node.run("sleep 1000", seconds=1000)
            except NodeFailed as error:
                errors.append(str(error))

        hanging = threading.Thread(target=hang)
        hanging.start()
        with contextlib.suppress(NodeFailed):
            self.node.run("echo '<3>BUG: scheduling while atomic: a test' >/dev/kmsg")
        hanging.join(60)
        self.assertFalse(hanging.is_alive())
        self.assertRegex(errors[0], "the node's kernel has failed: .*BUG: scheduling while atomic: a test")
        with self.assertRaises(NodeFailed):
            self.node.run("true")
