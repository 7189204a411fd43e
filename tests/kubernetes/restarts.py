# SPDX-License-Identifier: Apache-2.0
"""A claim is edited, and something ends or begins again meanwhile."""

from claims import GROWN, SIZE, ClaimTest


class Restarts(ClaimTest):
    def test_crustd_is_down(self):
        """The claim waits, and no pod is harmed."""
        volume, guest = self.start_vm("down")
        self.node.run("systemctl stop crustd")
        self.addCleanup(self.node.start_crustd)
        self.edit("down", GROWN)
        self.expand_device("down", volume, GROWN)
        self.wait_event("down", "VolumeResizeFailed", "code = Unavailable")
        self.assertEqual(self.resize_status("down"), "NodeResizeInProgress")
        self.node.start_crustd()
        self.wait_capacity("down", GROWN)
        self.wait_grown(guest, GROWN)

    def test_crustd_is_killed(self):
        """In the middle of the guest's resize."""
        volume, guest = self.start_vm("killed")
        guest.ask("freeze", 0)
        self.edit("killed", GROWN)
        self.expand_device("killed", volume, GROWN)
        target = self.target("killed")
        self.wait_for(lambda: self.node.volume(target)["state"] == "block_grown", "the resize")
        self.node.run("systemctl kill --signal=KILL crustd")
        guest.ask("thaw", 0)
        self.wait_capacity("killed", GROWN)
        self.wait_grown(guest, GROWN)

    def test_kubelet_is_restarted(self):
        """It stages and publishes again what a guest has."""
        volume, guest = self.start_vm("again")
        self.node.run("systemctl restart kubelet")
        self.wait_for(self.is_ready, "the node to be ready")
        self.grow("again", volume, guest)
        self.assertEqual(self.phase("again"), "Running")

    def test_node_is_rebooted(self):
        """The claim was edited before. The pod starts again, with a new guest, and has what it asked for."""
        volume, guest = self.start_vm("boot")
        self.node.run("systemctl stop crustd")
        self.edit("boot", GROWN)
        self.expand_device("boot", volume, GROWN)
        self.wait_event("boot", "VolumeResizeFailed", "code = Unavailable")
        self.sandboxes.remove(guest)
        self.node.reboot()
        self.start_node()
        guest = self.start_guest("boot")
        self.wait_capacity("boot", GROWN)
        self.wait_grown(guest, GROWN)
        self.wait_for(lambda: self.restarts("boot") == 1, "pod boot to run again")

    def test_container_crashes_again_and_again(self):
        """The sandbox stays, and so does the volume in its guest."""
        volume = self.provision("crash", SIZE)
        self.create_pod("crash", command=["/bin/sh", "-c", "exit 1"])
        guest = self.start_guest("crash")
        self.wait_for(lambda: self.restarts("crash") > 1, "the second restart")
        self.grow("crash", volume, guest)
        self.assertGreater(self.restarts("crash"), 1)

    def restarts(self, name):
        statuses = self.get("pod", name)["status"].get("containerStatuses", [])
        return sum(one["restartCount"] for one in statuses)

    def test_driver_is_gone(self):
        """The kubelet asks until it is back. What the guest has stays, and the pod ends afterwards."""
        volume, guest = self.start_vm("gone")
        self.edit("gone", GROWN)
        self.csi.expand_device(volume.volume_id, GROWN)
        self.node.run("systemctl stop crust-csi")
        self.addCleanup(self.start_driver_again)
        self.ask_the_node("gone", GROWN)
        self.wait_event("gone", "VolumeResizeFailed")
        self.start_driver_again()
        self.wait_capacity("gone", GROWN)
        self.wait_grown(guest, GROWN)

    def start_driver_again(self, *arguments):
        self.node.run("systemctl stop crust-csi", check=False)
        self.start_driver(*arguments)

    def test_driver_is_downgraded(self):
        """One from before crustd unpublishes, and leaves the metadata. What the kubelet keeps of its pods is
        the evidence that nobody needs them; without any other pod it would be none."""
        self.configure(cleanup__grace_seconds=1)
        self.create_pod("other", runtime=None, has_volume=False)
        self.wait_running("other")
        _, guest = self.start_vm("left")
        target, metadata = self.target("left"), self.metadata_of("left")
        self.addCleanup(self.start_driver_again)
        self.start_driver_again("--crust-socket=/run/no-crustd/crust.sock",
                                "--state-directory=/run/older-csi")
        self.node.run(f"umount {target}")  # the guard, of which such a driver knows nothing
        self.node.run(f"[ -e {metadata}/mountInfo.json ]")
        self.delete_pod("left", guest)
        self.node.wait(f"[ ! -e {metadata} ]", 300, "crustd to clean up")
        self.wait_for(lambda: self.node.query("SELECT * FROM audit_cleanups WHERE decision = 'removed'"
                                              f" AND target_path = '{target}'"), "it to be on record")

    def test_forced_deletion(self):
        """The pod's object is gone at once; the kubelet and the driver clean up afterwards."""
        _, guest = self.start_vm("forced")
        target = self.target("forced")
        self.delete_pod("forced", guest, "--force", "--grace-period=0")
        self.wait_for(lambda: self.node.volume(target)["status"] == "removed", "the volume's removal")
        self.node.wait(f"[ ! -e {target} ]", 300, "the kubelet to clean up")
