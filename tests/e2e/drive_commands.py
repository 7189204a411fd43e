# SPDX-License-Identifier: Apache-2.0
"""`crustctl drive`, for a class that has a node and a sandbox with a real guest.

    class SomeTest(DriveCommands, ResizeCase):
        def test_it(self):
            loop = self.disk()
            self.attached("data-1", loop, "/mnt/data-1", "--writable")
"""

import json

from disks import LoopDevice, is_free, make_filesystem
from resize_case import MIB

SIZE = 64 * MIB
ATTEMPTS = 5


class DriveCommands:
    """To be inherited beside ResizeCase."""

    def disk(self):
        """A loop device with an ext4."""
        loop = LoopDevice(self.scratch / f"drive-{next(self.numbers)}", SIZE)
        self.addCleanup(loop.close)
        make_filesystem("ext4", loop.device)
        self.node.add_device(loop.device)
        return loop

    def ctl(self, *words):
        """(exit status, output, errors)"""
        done = self.node.crustctl(*words, check=False)
        return done.returncode, done.stdout, done.stderr

    def attach(self, name, loop, vm_path, *words):
        """As ctl(). A test beside this one tries each loop device that may be free, by losetup."""
        for _ in range(ATTEMPTS):
            answer = self.ctl("-o", "json", "drive", "attach", name, "--sandbox", self.sandbox.id, "--host-path",
                              loop.device, "--vm-path", vm_path, "--type", "ext4", *words)
            if "(losetup)" not in answer[2]:
                break
        return answer

    def attached(self, *arguments):
        """The drive."""
        code, text, error = self.attach(*arguments)
        self.assertEqual(code, 0, error + self.node.log_tail())
        return json.loads(text)

    def detach(self, name):
        code, text, error = self.ctl("drive", "detach", name)
        self.assertEqual((code, text), (0, f"{name}: detached\n"), error + self.node.log_tail())

    def state(self, name):
        return self.node.query(f"SELECT state FROM audit_drives WHERE drive_id = '{name}'")[-1]["state"]

    def assert_free(self, loop):
        self.assertTrue(is_free(loop.device))
