# SPDX-License-Identifier: Apache-2.0
"""docs/crust-qemu.md on a node, command by command; beside a guest that crust-qemu started.

Kata itself is not here: what it would do with its configuration, which is to start the program that
`path` names, the test does.
"""

import platform
import re

from node_test_case import REPOSITORY
from sandboxes import MIB, RESIZE_SECONDS, SandboxTest

PAGE = REPOSITORY / "docs/crust-qemu.md"
QEMU = f"qemu-system-{platform.machine()}"
KATA = f"""[hypervisor.qemu]
path = "/usr/bin/{QEMU}"
valid_hypervisor_paths = ["/usr/bin/{QEMU}"]
enable_debug = false
extra_monitor_socket = ""
disable_block_device_use = false
"""
DRIVE = "data"


def commands(title):
    """What stands below a heading to be given, without sudo: the test is root."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    return [line.strip().removeprefix("sudo ") for line in section.splitlines()
            if line.startswith("    ")]


class CrustQemuTest(SandboxTest):

    DISKS = {DRIVE: 64 * MIB}

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.node.write("/etc/kata-containers/configuration.toml", KATA)

    def given(self, command, status=0):
        result = self.node.run(command, check=False)
        self.assertEqual(result.status, status, result)
        return " ".join(result.stdout.split())

    def test_as_the_page_has_it(self):
        install = commands("On a node")
        self.assertEqual(install[0], "make && sudo make install")  # which the node's setup has done
        self.given(install[1])
        self.assertIn("Put crustd's /usr/share/crustd/kata/crust-qemu.toml", self.given(install[2], 5))
        for command in install[3:-1]:
            self.given(command)
        self.assertIn("QEMU gets a monitor for crustd (crust-qemu)", self.node.run(install[-1],
                      check=False).stdout.replace("\n         ", " "))
        self.check_monitor(re.search('^path = "(.*)"$', self.node.read(
            "/etc/kata-containers/config.d/50-crust-qemu.toml"), re.MULTILINE)[1])
        self.check_removal()

    def check_monitor(self, program):
        """A sandbox whose QEMU is started as Kata would do it now."""
        sandbox = self.add_sandbox({DRIVE: (f"/dev/disk/by-id/virtio-{DRIVE}", "ext4")}, program=program)
        socket = f"/run/crustd/qemu/{sandbox.id}.sock"
        self.start_sandboxes()
        self.node.start_crustd()
        before = self.settle(DRIVE)
        self.assertEqual(self.node.query("SELECT control_socket FROM audit_sandboxes"),
                         [{"control_socket": socket}])
        self.node.run("systemctl restart crustd")  # which keeps what is below /run/crustd
        self.node.resize_disk(DRIVE, 128 * MIB)
        self.check_grown(DRIVE, before)
        self.assertIn("crust-qemu's, QMP", self.given("crustctl doctor", 0))
        self.node.run(f"test -S {socket}")
        self.node.run(f"systemctl kill --signal=KILL {sandbox.unit}")
        self.node.wait(f"! test -e {socket}", RESIZE_SECONDS, "the socket to be removed")

    def check_removal(self):
        remove, ask, *rest = commands("Taking it away")
        self.assertEqual(rest[:2], ["systemctl disable --now crustd", "make uninstall"])
        self.assertIn("/etc/kata-containers/config.d/50-crust-qemu.toml: line", self.given(ask, 5))
        self.given(remove)
        self.assertIn("No configuration of Kata's here names crust-qemu", self.given(ask))
        self.given(rest[0])
