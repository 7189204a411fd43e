# SPDX-License-Identifier: Apache-2.0
"""A claim that two pods of the node want."""

from claims import GROWN, SIZE, ClaimTest


class SharedClaims(ClaimTest):
    def test_read_write_once_of_the_node(self):
        """Pods under runc share it, and both see it grow."""
        volume = self.provision("shared", SIZE, mode="ReadWriteOnce")
        for name in ("one", "two"):
            self.create_pod(name, claim="shared", runtime=None)
        for name in ("one", "two"):
            self.wait_running(name)
        self.grow("shared", volume, None)
        for name in ("one", "two"):
            self.assertGreater(self.mounted_size(name), GROWN * 3 // 4)

    def test_read_write_once_of_a_guest(self):
        """A guest has it alone: the second pod starts when the first has ended, with what that has grown."""
        volume = self.provision("turns", SIZE, mode="ReadWriteOnce")
        self.create_pod("first", claim="turns")
        guest = self.start_guest("first", claim="turns")
        self.wait_running("first")
        self.create_pod("second", claim="turns")
        self.wait_event("second", "FailedMount", "code = FailedPrecondition", "one pod at a time")
        self.grow("turns", volume, guest)
        self.assertEqual(self.phase("second"), "Pending")
        self.delete_pod("first", guest)
        self.wait_grown(self.start_guest("second", claim="turns"), GROWN)
        self.wait_running("second")

    def test_read_write_once_pod(self):
        """The scheduler keeps the second pod waiting, and the resize is the first one's."""
        volume, guest = self.start_vm("alone")
        self.create_pod("waiting", claim="alone")
        self.wait_for(lambda: "ReadWriteOncePod" in self.why_not_scheduled("waiting"),
                      "the scheduler to say why pod waiting waits")
        self.grow("alone", volume, guest)
        self.delete_pod("alone", guest)
        self.wait_grown(self.start_guest("waiting", claim="alone"), GROWN)
        self.wait_running("waiting")

    def why_not_scheduled(self, name):
        return " ".join(one.get("message", "") for one in self.get("pod", name)["status"].get("conditions", [])
                        if one["type"] == "PodScheduled" and one["status"] == "False")
