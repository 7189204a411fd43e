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
        self.assertGreater(self.mounted_size("web"), GROWN * 3 // 4)

    def test_running_pod(self):
        volume, guest = self.start_vm("run")
        self.assertLess(self.guest_size(guest), SIZE)
        self.edit("run", GROWN)
        self.expand_device("run", volume, GROWN)
        self.wait_capacity("run", GROWN)
        self.wait_event("run", "FileSystemResizeSuccessful")
        # The answer came after the resize: nobody has to wait for the guest.
        self.assertGreater(self.guest_size(guest), GROWN * 3 // 4)
        guest.ask("verify", 0)
        stats = self.wait_stats("run", self.guest_size(guest))
        self.assertLess(stats["usedBytes"], stats["availableBytes"])
        self.assertGreater(stats["inodes"], stats["inodesUsed"])
        self.assertEqual(stats["volumeHealthStats"], {"abnormal": False})

    def test_before_the_pod(self):
        """The kubelet asks once, before there is a sandbox, and is answered at once. The guest grows what it
        finds."""
        volume = self.provision("early", SIZE)
        self.edit("early", GROWN)
        self.expand_device("early", volume, GROWN)
        asked, started = self.expansions(), self.start_seconds()
        self.create_pod("early")
        self.wait_running("early")  # and no guest is there that anybody could have waited for
        self.wait_capacity("early", GROWN)
        calls = {status: found for status, found in self.expansions().items() if found != asked.get(status)}
        self.assertEqual({status: count - asked.get(status, (0, 0))[0] for status, (count, _) in calls.items()},
                         {"OK": 1})
        waited = calls["OK"][1] - asked.get("OK", (0, 0))[1]
        self.assertLess(waited, self.start_seconds() - started - waited)
        reasons = [reason for reason, _ in self.events("early")]
        self.assertLess(reasons.index("FileSystemResizeSuccessful"), reasons.index("Created"))
        resizes = self.node.query("SELECT state, sandbox_id FROM audit_resizes"
                                  f" WHERE target_path = '{self.target('early')}'")
        self.assertEqual([(one["state"], one["sandbox_id"]) for one in resizes], [("unbound", None)])
        self.wait_grown(self.start_guest("early"), GROWN)

    def expansions(self):
        """{status: (calls of NodeExpandVolume, seconds)} until now, by the kubelet's own count."""
        figures = [{labels["grpc_status_code"]: value
                    for labels, value in self.kubelet_metrics(f"csi_operations_seconds_{what}")
                    if labels["method_name"].endswith("NodeExpandVolume")} for what in ("count", "sum")]
        return {status: (count, figures[1][status]) for status, count in figures[0].items()}

    def start_seconds(self):
        """Of all pods until now, by the kubelet's own count."""
        return sum(value for _, value in self.kubelet_metrics("kubelet_pod_start_duration_seconds_sum"))

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
