# SPDX-License-Identifier: Apache-2.0
"""An orderly reboot: what lies in /run is gone, what is on record is not."""

import json
import shlex

from node_test_case import DATABASE, READY_SECONDS, NodeTest

MIB = 1 << 20
PODS = "/var/lib/kubelet/pods"
ROOTS = ("/run/kata-containers/shared/direct-volumes", "/run/crust")


def target(name):
    return f"{PODS}/pod-{name}/volumes/kubernetes.io~csi/pv-{name}/mount"


class RebootTest(NodeTest):
    DISKS = {"volume": 64 * MIB}
    DEVICE = "/dev/disk/by-id/virtio-volume"

    def stage(self, name):
        """As a CSI driver does, with what the kubelet keeps beside it."""
        path = target(name)
        directory = shlex.quote(path.rpartition("/")[0])
        self.node.run(f"mkdir -p {directory}/mount")
        self.node.write(f"{path.rpartition('/')[0]}/vol_data.json", json.dumps({
            "driverName": "driver.example", "volumeHandle": f"handle-{name}",
            "specVolID": f"pv-{name}"}))
        mount_info = {"volume-type": "block", "device": self.DEVICE, "fstype": "ext4"}
        self.node.crustctl("direct-volume", "add", "--volume-path", path, "--mount-info",
                           json.dumps(mount_info))
        return path

    def kubelet_files(self):
        return self.node.output(f"find {PODS} | sort")

    def test_history_is_kept_and_nothing_is_cleaned_up(self):
        self.node.run("systemctl enable crustd")
        self.node.start_crustd()
        kept, unstaged = self.stage("kept"), self.stage("unstaged")
        before = self.node.wait_for(kept, "unbound", device_bytes=64 * MIB)
        self.node.crustctl("direct-volume", "remove", "--volume-path", unstaged)
        files, journal = self.kubelet_files(), self.journal_rows()
        self.node.reboot()

        self.node.wait(self.node.is_synced, READY_SECONDS, "crustd, started at boot")
        self.assertEqual(self.node.property("NRestarts"), "0")
        # /run was empty: the roots were made by systemd-tmpfiles, and nothing is in them.
        self.assertEqual(self.node.output(["stat", "-c", "%a %U", *ROOTS]), "700 root\n700 root")
        self.assertEqual(self.node.output(["find", *ROOTS, "-mindepth", "1"]), "")
        self.assertEqual(self.node.output(["sqlite3", DATABASE, "PRAGMA integrity_check"]), "ok")
        after = self.node.volume(kept)
        self.assertEqual((after["volume_id"], after["first_seen"], after["status"]),
                         (before["volume_id"], before["first_seen"], "removed"))
        self.assertEqual(self.journal_rows()[:len(journal)], journal)
        self.assertEqual(self.node.query("SELECT * FROM audit_cleanups"), [])
        self.assertEqual(self.kubelet_files(), files)

        # Staged anew it is a new volume beside the old one's record.
        self.stage("kept")
        again = self.node.wait_for(kept, "unbound", device_bytes=64 * MIB)
        self.assertNotEqual(again["volume_id"], before["volume_id"])
        self.assertEqual([row["first_seen"] for row in self.node.query(
            f"SELECT first_seen FROM audit_volumes WHERE volume_id = {before['volume_id']}")],
            [before["first_seen"]])

    def journal_rows(self):
        return self.node.query("SELECT seq, at, kind, volume_id, detail FROM audit_journal"
                               " ORDER BY seq")
