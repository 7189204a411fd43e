"""A claim is edited, and it cannot be done at once: what the kubelet makes of each status."""

from claims import GROWN, SIZE, ClaimTest
from controllers import MIB, TOOLS

XFS, TOO_LARGE = 320 * MIB, 1 << 40


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

    def test_smaller_device(self):
        """The storage has said that it has grown, and the node's device follows later."""
        volume, guest = self.start_vm("smaller")
        self.node.write(f"{TOOLS}/bin/losetup",
                        '#!/bin/sh\n[ "$1" = --set-capacity ] || exec /sbin/losetup "$@"\n')
        self.node.run(f"chmod +x {TOOLS}/bin/losetup")
        self.addCleanup(self.node.run, f"rm -f {TOOLS}/bin/losetup")
        self.begin("smaller", volume, "less than required_bytes")
        device = guest.volumes["pvc-smaller"].device
        self.node.run(f"losetup --set-capacity {device}")
        self.finish("smaller", guest)

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
