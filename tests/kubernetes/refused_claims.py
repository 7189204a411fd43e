# SPDX-License-Identifier: Apache-2.0
"""A claim is edited, and it cannot be done at once: what the kubelet makes of each status."""

import json

from claims import GROWN, SIZE, ClaimTest
from controllers import MIB, TOOLS

XFS, TOO_LARGE = 320 * MIB, 1 << 40
# struct loop_info64 has the limit of the device's size at byte 32.
UNLIMIT = """
import fcntl, sys
GET, SET, SET_CAPACITY = 0x4c05, 0x4c04, 0x4c07
with open(sys.argv[1], "rb") as device:
    status = bytearray(232)
    fcntl.ioctl(device, GET, status)
    status[32:40] = bytes(8)
    fcntl.ioctl(device, SET, bytes(status))
    fcntl.ioctl(device, SET_CAPACITY, 0)
"""


class RefusedClaims(ClaimTest):
    def begin(self, name, volume, reason):
        """The claim is edited, and the kubelet says why it has not grown. It will ask again."""
        self.edit(name, GROWN)
        self.expand_device(name, volume, GROWN)
        self.wait_event(name, "VolumeResizeFailed", "code = Unavailable", reason)
        self.assertEqual(self.resize_status(name), "NodeResizeInProgress")
        self.wait_resize_error(name, "code = Unavailable", reason)
        self.assertEqual(self.phase(name), "Running")

    def finish(self, name, guest):
        self.wait_capacity(name, GROWN)
        self.wait_grown(guest, GROWN)

    def test_no_monitor(self):
        """The running guest cannot be told. The pod's restart heals it."""
        volume, guest = self.start_vm("monitor", extra_monitor=None)
        self.begin("monitor", volume, "monitor_missing")
        self.delete_pod("monitor", guest)
        self.create_pod("monitor")
        self.wait_running("monitor")
        self.finish("monitor", self.start_guest("monitor"))

    def test_silent_guest(self):
        volume, guest = self.start_vm("silent")
        guest.ask("signal_agents", "SIGSTOP")
        self.begin("silent", volume, "agent_unreachable")
        guest.ask("signal_agents", "SIGCONT")
        self.finish("silent", guest)

    def test_unknown_volume(self):
        """Somebody takes the metadata away, and brings them back."""
        volume, guest = self.start_vm("unknown")
        metadata = self.metadata_of("unknown")
        self.node.run(f"mv {metadata} /run/taken-away")
        self.begin("unknown", volume, "there is no such volume here")
        self.node.run(f"mv /run/taken-away {metadata}")
        self.finish("unknown", guest)

    def hold_back(self):
        """Loop devices stay as small as they are, or come with SIZE bytes, whatever the file has."""
        self.node.write(f"{TOOLS}/bin/losetup", f"""#!/bin/sh
case "$1" in
--set-capacity) exit 0 ;;
--find) exec /sbin/losetup --sizelimit {SIZE} "$@" ;;
esac
exec /sbin/losetup "$@"
""")
        self.node.run(f"chmod +x {TOOLS}/bin/losetup")
        self.addCleanup(self.node.run, f"rm -f {TOOLS}/bin/losetup")

    def let_go(self, name):
        device = json.loads(self.node.read(f"{self.metadata_of(name)}/mountInfo.json"))["device"]
        self.node.run(["python3", "-c", UNLIMIT, device])

    def test_smaller_device(self):
        """The storage has said that it has grown, and the node's device follows later."""
        volume, guest = self.start_vm("smaller")
        self.hold_back()
        self.begin("smaller", volume, "less than required_bytes")
        self.let_go("smaller")
        self.finish("smaller", guest)

    def test_smaller_device_of_a_starting_pod(self):
        """The pod starts once the device is what was promised, and then at once."""
        volume = self.provision("wait", SIZE)
        self.hold_back()
        self.edit("wait", GROWN)
        self.expand_device("wait", volume, GROWN)
        self.create_pod("wait")
        self.wait_resize_error("wait", "code = Unavailable", "less than required_bytes")
        self.assertEqual(self.phase("wait"), "Pending")
        self.let_go("wait")
        self.wait_running("wait")
        self.wait_capacity("wait", GROWN)

    def test_policy(self):
        """Nothing grows on this node: the pod starts all the same, and its owner is told."""
        self.configure(resize__mode="observe")
        volume = self.provision("policy", SIZE)
        self.edit("policy", GROWN)
        self.expand_device("policy", volume, GROWN)
        self.create_pod("policy")
        self.wait_running("policy")
        self.wait_resize_error("policy", "code = FailedPrecondition", "policy")
        self.assertEqual(self.resize_status("policy"), "NodeResizeInProgress")

    def test_file_system(self):
        """Refused at publish, with the list of what this node's guests mount."""
        self.configure(crust__file_systems="ext4")
        self.provision("fs", XFS, filesystem="xfs")
        self.create_pod("fs")
        message = self.wait_event("fs", "FailedMount", "code = InvalidArgument")
        self.assertIn("ext4", message)
        self.configure()
        self.wait_running("fs")

    def test_infeasible(self):
        """The storage has no room: the claim is infeasible, the pod starts, and its owner asks for less."""
        volume = self.provision("large", SIZE)
        self.edit("large", TOO_LARGE)
        self.ask_the_node("large", TOO_LARGE)
        self.create_pod("large")
        self.wait_resize_status("large", "NodeResizeInfeasible")
        guest = self.start_guest("large")
        self.wait_running("large")
        self.edit("large", GROWN)
        self.expand_device("large", volume, GROWN)
        self.finish("large", guest)
