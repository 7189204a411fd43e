# SPDX-License-Identifier: Apache-2.0
"""A stock guest on KVM, with vsock and a directory shared over virtio-fs: lvextend alone makes the file systems in it
grow, by the helper that the installed crustd brings along. The agent there denies ResizeVolume and GetVolumeStats.
"""

from sandboxes import SandboxTest

OURS = "crust-"


class StockGuestTest(SandboxTest):
    DISKS = {"shelf": 2 << 30}

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.node.run("vgcreate stock /dev/disk/by-id/virtio-shelf")
        volumes = {}
        for name, size in (("ext4", 64), ("xfs", 320)):
            cls.node.run(f"lvcreate -q -y -W n -L {size}M -n {name} stock")
            volumes[name] = (f"/dev/stock/{name}", name)
        cls.sandbox = cls.add_sandbox(volumes, stock=True)
        cls.start_sandboxes()
        cls.node.start_crustd()

    def check_nothing_left(self):
        """On the node and in the guest. Another helper may be on its way when the first one is gone."""
        self.node.wait(lambda: not self.node.output(
            f"find /run/kata-containers/shared/sandboxes -name '{OURS}*'"), 120, "an empty share")
        for directory in ("/run/kata-containers", "/sys/fs/cgroup"):
            self.node.wait(lambda where=directory: self.sandbox.ask("count", where, OURS) == 0, 120,
                           f"an empty {directory} in the guest")

    def test_lvextend_alone_grows_both(self):
        before = {name: self.settle(name) for name in self.sandbox.volumes}
        for name in before:
            self.node.run(f"lvextend -q -L +64M stock/{name}")
        for name, sizes in before.items():
            with self.subTest(name):
                row = self.check_grown(name, sizes)
                self.assertEqual(row["condition"], "normal")
                self.assertGreater(row["used_bytes"], 0)
        self.check_nothing_left()
        console = self.sandbox.ask("console")
        self.assertIn("ResizeVolumeRequest: internal error policy check", console)
        self.assertIn("CreateContainer ok", console)
