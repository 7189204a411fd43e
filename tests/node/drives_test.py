# SPDX-License-Identifier: Apache-2.0
"""A disk of the node into a VM on KVM and out of it again, by the installed crustd with the drives' drop-in: in a guest
with crust-guest-agent over vsock, and in a stock guest, by kata-agent's storages and the helper. What the guest wrote
is then on the node's disk.
"""

import hashlib
import json

from sandboxes import MIB, SandboxTest

DROP_IN = "/etc/systemd/system/crustd.service.d/crustd-drives.conf"
SIZE = 64 * MIB
DRIVE_SECONDS = 300


def pattern(size):
    """What tests/guest/init.c writes."""
    return bytes(offset * 2654435761 >> 13 & 0xff for offset in range(size))


class DrivesTest(SandboxTest):
    DISKS = {"shelf": 512 * MIB}

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.node.run("vgcreate -q shelf /dev/disk/by-id/virtio-shelf")
        cls.companion = cls.add_sandbox({})
        cls.stock = cls.add_sandbox({}, stock=True)
        cls.start_sandboxes()
        cls.node.run(f"install -D -m 644 /usr/share/crustd/crustd-drives.conf {DROP_IN} && systemctl daemon-reload")
        cls.node.configure(drives__enabled="on", drives__host_prefixes="/dev/mapper",
                           resize__call_timeout_seconds=DRIVE_SECONDS)
        cls.node.start_crustd()
        cls.node.wait(lambda: len(cls.node.query("SELECT 1 FROM audit_sandboxes WHERE status = 'alive'")) == 2,
                      DRIVE_SECONDS, "both sandboxes")

    def disk(self, name):
        """A logical volume with an ext4."""
        self.node.run(f"lvcreate -q -y -W n -L {SIZE}B -n {name} shelf && mkfs.ext4 -q -F -E nodiscard /dev/shelf/{name}")
        self.addCleanup(self.node.run, f"lvremove -q -y shelf/{name}", check=False)
        return f"/dev/mapper/shelf-{name}"

    def drive(self, *words, status=0):
        done = self.node.run(["crustctl", "-o", "json", "drive", *words], check=False, seconds=DRIVE_SECONDS)
        self.assertEqual(done.status, status, f"{done}\n{self.node.journal()}")
        return done

    def attach(self, name, device, sandbox, *words, status=0):
        done = self.drive("attach", name, "--sandbox", sandbox.id, "--host-path", device, "--vm-path", f"/run/{name}",
                          "--type", "ext4", "--writable", *words, status=status)
        return json.loads(done.stdout) if status == 0 else done.stderr

    def state(self, name):
        return self.node.query(f"SELECT state FROM audit_drives WHERE drive_id = '{name}'")[-1]["state"]

    def check_life(self, name, sandbox, other):
        device = self.disk(name)
        drive = self.attach(name, device, sandbox, "--fs-group", "2000")
        self.assertEqual((drive["state"], drive["size_bytes"]), ("ready", SIZE))
        sandbox.ask("write", f"/run/{name}/pattern", MIB)
        self.assertIn(f"sandbox {sandbox.id}", self.attach(f"{name}-again", device, other, status=5))

        self.node.run("systemctl kill --signal=KILL crustd")  # systemd starts it again
        self.node.wait(self.node.is_synced, DRIVE_SECONDS, "crustd, started again")
        self.assertEqual(self.attach(name, device, sandbox, "--fs-group", "2000")["state"], "ready")
        self.check_growth(name, device, sandbox)

        self.drive("detach", name)
        self.assertEqual(self.state(name), "removed")
        self.node.run(f"e2fsck -f -n {device}")
        self.assertEqual(self.node.output(f"debugfs -R 'cat /pattern' {device} 2>/dev/null | sha256sum").split()[0],
                         hashlib.sha256(pattern(MIB)).hexdigest())
        self.assertRegex(self.node.output(f"debugfs -R 'ls -l /' {device} 2>/dev/null"), r"42775 .* 0 +2000 .* \.\n")

    def check_growth(self, name, device, sandbox):
        before = sandbox.ask("file_system_bytes", f"/run/{name}")
        self.node.run(f"lvextend -q -L +32M {device}")
        self.node.wait(lambda: sandbox.ask("file_system_bytes", f"/run/{name}") > before + SIZE // 4, DRIVE_SECONDS,
                       "the guest's file system")

    def test_in_a_guest_with_an_agent_of_ours(self):
        self.check_life("companion", self.companion, self.stock)

    def test_in_a_stock_guest(self):
        self.check_life("stock", self.stock, self.companion)
