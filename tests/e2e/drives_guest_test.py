# SPDX-License-Identifier: Apache-2.0
"""A disk of the node into a running VM and out of it again, as people ask for it: crustctl, a real QEMU,
a real guest with crust-guest-agent.
"""

import json
import os

from disks import is_free
from drive_commands import SIZE, DriveCommands
from programs import GuestError
from report_guest import GuestPort, HybridVsock
from resize_case import MIB, ResizeCase

CYCLES = int(os.environ.get("CRUST_CYCLES", 20))
PORT = 1030


class DrivesGuestTest(DriveCommands, ResizeCase):
    settings = {**ResizeCase.settings, "drives.enabled": "on", "drives.host_prefixes": "/dev"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.add_sandbox()
        cls.sandbox.boot()
        cls.sandbox.vm.wait_ready()
        path = cls.node.root / "agent.hvsock"
        cls.addClassCleanup(HybridVsock(path, {PORT: GuestPort(cls.sandbox.vm.agent_socket)}).close)
        cls.node.add_sandbox(cls.sandbox.id, cls.sandbox.vm.pid, agent=f"hvsock:///{path.name}:1024")
        cls.node.start()
        cls.node.wait_alive()

    def test_attach_write_detach(self):
        loop, vm = self.disk(), self.sandbox.vm
        words = ("--writable", "--option", "noatime")
        drive = self.attached("data-1", loop, "/mnt/data-1", *words)
        self.assertEqual((drive["state"], drive["size_bytes"], drive["is_writable"]), ("ready", SIZE, True))
        self.assertEqual(vm.guest_blocksize(drive["guest_device"]), SIZE)
        vm.guest_write("/mnt/data-1/pattern", MIB)
        self.assertEqual(self.attached("data-1", loop, "/mnt/data-1", *words), drive)
        self.assertIn("data-1", self.ctl("drives")[1])
        self.assertFalse(is_free(loop.device))  # the VMM has it
        self.detach("data-1")
        self.detach("data-1")
        self.assertEqual(self.state("data-1"), "removed")
        self.assert_free(loop)
        drive = self.attached("data-2", loop, "/mnt/data-2")
        self.assertFalse(drive["is_writable"])
        vm.guest_verify("/mnt/data-2/pattern", MIB)
        self.detach("data-2")

    def test_limits(self):
        loop = self.disk()
        self.attached("slow", loop, "/mnt/slow", "--bandwidth", "1Mi/1000")
        code, text, error = self.ctl("-o", "json", "drive", "limits", "slow", "--operations", "500/1000")
        self.assertEqual(code, 0, error)
        self.assertEqual(json.loads(text)["rate_limiter"],
                         {"bandwidth": None, "ops": {"size": 500, "refill_time_ms": 1000, "one_time_burst": 0}})
        code, _, error = self.ctl("drive", "limits", "slow", "--operations", "500/1000/9")
        self.assertEqual(code, 5, error)  # QEMU has no such burst
        self.detach("slow")
        self.assertEqual(self.ctl("drive", "limits", "slow", "--bandwidth", "none")[0], 3)

    def test_a_detach_that_finds_the_disk_in_use(self):
        """A mount on top of it: the drive stays mounted, and goes once that is gone."""
        loop, vm = self.disk(), self.sandbox.vm
        self.attached("busy", loop, "/mnt/busy", "--writable")
        inner = self.attached("inner", self.disk(), "/mnt/busy/inner", "--writable")
        code, _, error = self.ctl("drive", "detach", "busy")
        self.assertEqual(code, 5, error + self.node.log_tail())
        self.assertEqual(inner["state"], "ready")
        vm.guest_write("/mnt/busy/pattern", MIB)
        vm.guest_write("/mnt/busy/inner/pattern", MIB)
        self.detach("inner")
        self.detach("busy")

    def test_containers_that_run_get_the_drive(self):
        """Attach, the restart of a container, a detach that one of them keeps from happening, detach."""
        vm, loop = self.sandbox.vm, self.disk()
        vm.ask("mount", "none", "cgroup2", "/sys/fs/cgroup")
        pids = [vm.start_container(name) for name in ("c1", "c2")]
        self.attached("whole", loop, "/mnt/whole", "--writable")
        vm.guest_write("/mnt/whole/pattern", MIB)
        self.detach("whole")

        words = ("--writable", "--container", "c1:/mnt/inner", "--container", "c2:/mnt/inner:ro")
        self.attached("shared", loop, "/mnt/shared", *words)
        for pid in pids:
            vm.guest_verify(f"/proc/{pid}/root/mnt/inner/pattern", MIB)
        vm.guest_write(f"/proc/{pids[0]}/root/mnt/inner/written", MIB)
        vm.guest_verify("/mnt/shared/written", MIB)
        with self.assertRaisesRegex(GuestError, "Read-only"):
            vm.guest_write(f"/proc/{pids[1]}/root/mnt/inner/refused", MIB)

        vm.end_container(pids[0])
        self.wait_for_message("shared", "container c1: it does not run")
        pids[0] = vm.start_container("c1")
        self.wait_for_message("shared", "")
        vm.guest_verify(f"/proc/{pids[0]}/root/mnt/inner/written", MIB)

        self.detach("shared")
        with self.assertRaises(GuestError):
            vm.guest_verify(f"/proc/{pids[0]}/root/mnt/inner/written", MIB)
        for pid in pids:
            vm.end_container(pid)

    def wait_for_message(self, drive_id, text):
        self.node.wait(lambda: text == (self.node.query(
            f"SELECT message FROM audit_drives WHERE drive_id = '{drive_id}' AND ended_at IS NULL")[0]["message"]
            or "")[:len(text) or None], 60, f"the message {text}")

    def held(self):
        """What QEMU has of drives: descriptors, block nodes, fd sets and devices."""
        vm = self.sandbox.vm
        return (len(os.listdir(f"/proc/{vm.pid}/fd")), len(vm.qmp("query-named-block-nodes")), vm.qmp("query-fdsets"),
                len(vm.qmp("qom-list", path="/machine/peripheral")))

    def test_cycles_leave_nothing(self):
        """CRUST_CYCLES: how many (20)."""
        loop = self.disk()
        self.attached("cycle", loop, "/mnt/cycle", "--writable")
        self.detach("cycle")
        before = self.held()
        for _ in range(CYCLES):
            self.attached("cycle", loop, "/mnt/cycle", "--writable")
            self.detach("cycle")
        self.assertEqual(self.held(), before)
        self.assert_free(loop)

    def test_refusals_change_nothing(self):
        one, other = self.disk(), self.disk()
        self.attached("one", one, "/mnt/one", "--writable")
        options = ("--sandbox", self.sandbox.id, "--type", "ext4", "--host-path")
        for words, said in (
                (("one", *options, other.device, "--vm-path", "/mnt/one", "--writable"), "other parameters"),
                (("two", *options, other.device, "--vm-path", "/mnt/one"), "/mnt/one"),
                (("two", *options, one.device, "--vm-path", "/mnt/two"), one.device),
                (("two", *options, one.device, "--vm-path", "/mnt/two", "--writable"), one.device)):
            with self.subTest(words):
                code, _, error = self.ctl("drive", "attach", *words)
                self.assertEqual(code, 5, error)
                self.assertIn(said, error)
        self.sandbox.vm.guest_write("/mnt/one/pattern", MIB)
        self.sandbox.vm.guest_verify("/mnt/one/pattern", MIB)
        self.assertEqual(self.node.query("SELECT drive_id FROM audit_drives WHERE ended_at IS NULL"),
                         [{"drive_id": "one"}])
        self.detach("one")
