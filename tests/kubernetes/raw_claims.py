# SPDX-License-Identifier: Apache-2.0
"""A claim of volumeMode Block: the kubelet publishes a device, and the runtime plugs it into the guest."""

from claims import GROWN, LARGER, SIZE, ClaimTest


class RawClaims(ClaimTest):
    def start_raw(self, name, volume):
        """A pod that has the claim's device, and its guest."""
        self.create_pod(name, raw=True)
        guest = self.start_guest(name, raw=True)
        self.wait_running(name)
        row = self.node.wait_for(self.raw_target(name), "in_sync", "none", seconds=600, hypervisor_bytes=SIZE)
        self.assertEqual((row["kind"], row["pv"], row["pod_name"], row["sandbox_id"], row["volume_handle"]),
                         ("block_claim", f"pvc-{name}", name, guest.id, volume.volume_id))
        self.assertEqual(guest.ask("disk_bytes", 0), SIZE)
        return guest

    def check_resize(self, name, guest):
        """Of the driver's device: the kubelet has a loop device of its own on it, which keeps the old size."""
        volume = guest.volumes[f"pvc-{name}"]
        resize, = self.node.query(f"SELECT * FROM audit_resizes WHERE target_path = '{self.raw_target(name)}'")
        self.assertEqual((resize["from_bytes"], resize["to_bytes"], resize["state"], resize["device"]),
                         (SIZE, GROWN, "in_sync", volume.device))
        loops = self.node.output("losetup --noheadings --raw --output NAME,BACK-FILE")
        own = [line.split()[0] for line in loops.splitlines() if f"volumeDevices/pvc-{name}/" in line]
        self.assertEqual(len(own), 1, loops)
        self.assertEqual(int(self.node.output(f"blockdev --getsize64 {own[0]}")), SIZE)

    def test_raw_claim(self):
        """The driver asks crustd, so the claim has the new size once the guest's disk has it. A claim that was edited
        before its pod starts does not keep that from starting."""
        volume = self.provision("raw", SIZE, filesystem=None)
        guest = self.start_raw("raw", volume)
        self.edit("raw", GROWN)
        self.expand_device("raw", volume, GROWN)
        self.wait_capacity("raw", GROWN)
        self.assertEqual(guest.ask("disk_bytes", 0), GROWN)
        self.wait_stats("raw", GROWN)
        self.check_resize("raw", guest)
        self.delete_pod("raw", guest)
        self.edit("raw", LARGER)
        self.expand_device("raw", volume, LARGER)
        self.create_pod("raw", raw=True)
        self.wait_running("raw")
        self.wait_capacity("raw", LARGER)

    def test_raw_claim_of_another_driver(self):
        """One that has never heard of crustd: the kernel's event is enough."""
        volume = self.provision("other", SIZE, filesystem=None)
        self.addCleanup(self.restart_driver)
        self.restart_driver("--crust-socket=/run/no-crustd/crust.sock")
        guest = self.start_raw("other", volume)
        self.edit("other", GROWN)
        self.expand_device("other", volume, GROWN)
        self.wait_capacity("other", GROWN)
        self.wait_for(lambda: guest.ask("disk_bytes", 0) == GROWN, "the guest's disk")
        self.check_resize("other", guest)

    def restart_driver(self, *arguments):
        self.node.run("systemctl stop crust-csi", check=False)
        self.start_driver(*arguments)
