# SPDX-License-Identifier: Apache-2.0
"""A claim is edited: while its pod runs, before there is one, while it starts, and twice at once."""

from claims import GROWN, LARGER, SIZE, ClaimTest


class EditedClaims(ClaimTest):
    def test_pod_of_the_node(self):
        """Under runc: the driver mounts, and has the file system grow."""
        volume = self.provision("web", SIZE)
        self.create_pod("web", runtime=None)
        self.wait_running("web")
        self.edit("web", GROWN)
        self.expand_device("web", volume, GROWN)
        self.wait_capacity("web", GROWN)
        line = self.kubectl("exec", "web", "--", "df", "-k", "/data").split("\n")[1]
        self.assertGreater(int(line.split()[1]) << 10, GROWN * 3 // 4)

    def test_running_pod(self):
        volume, guest = self.start_vm("run")
        self.assertLess(self.guest_size(guest), SIZE)
        self.edit("run", GROWN)
        self.expand_device("run", volume, GROWN)
        self.wait_capacity("run", GROWN)
        self.wait_event("run", "FileSystemResizeSuccessful")
        # The answer came after the growth: nobody has to wait for the guest.
        self.assertGreater(self.guest_size(guest), GROWN * 3 // 4)
        guest.ask("verify", 0)
        stats = self.wait_stats("run", self.guest_size(guest))
        self.assertLess(stats["usedBytes"], stats["availableBytes"])
        self.assertGreater(stats["inodes"], stats["inodesUsed"])
        self.assertEqual(stats["volumeHealthStats"], {"abnormal": False})

    def test_before_the_pod(self):
        """The pod starts without waiting for a guest; the guest grows what it finds."""
        volume = self.provision("early", SIZE)
        self.edit("early", GROWN)
        self.expand_device("early", volume, GROWN)
        self.create_pod("early")
        self.wait_running("early")
        self.wait_capacity("early", GROWN)
        self.wait_grown(self.start_guest("early"), GROWN)

    def test_while_the_pod_starts(self):
        """The device has grown while the guest boots with it."""
        volume = self.provision("start", SIZE)
        self.create_pod("start")
        self.wait_running("start")
        self.edit("start", GROWN)
        self.expand_device("start", volume, GROWN)
        guest = self.start_guest("start")
        self.wait_capacity("start", GROWN)
        self.wait_grown(guest, GROWN)

    def test_twice(self):
        """The second edit comes while the kubelet is at the first."""
        volume, guest = self.start_vm("twice")
        guest.ask("freeze", 0)
        self.edit("twice", GROWN)
        self.expand_device("twice", volume, GROWN)
        self.wait_resize_status("twice", "NodeResizeInProgress")
        self.edit("twice", LARGER)
        guest.ask("thaw", 0)
        self.wait_for(lambda: self.claim("twice")["status"]["capacity"]["storage"] == f"{GROWN >> 20}Mi",
                      "the first size")
        self.expand_device("twice", volume, LARGER)
        self.wait_capacity("twice", LARGER)
        self.wait_grown(guest, LARGER)
