# SPDX-License-Identifier: Apache-2.0
"""Lower devices of a volume: a dm device that has not followed its disk, and a disk that
must be rescanned, are said, with the command that helps, and so is what ends it.

Loop devices are real, and so are their events; what they stand on is written into a sysfs of the
node's own, in which one loop device passes for a dm device and another for its lower device. That
a disk announced a new size, which only a SCSI disk does, is written into the database while the daemon
is down: to the daemon it is what it has recorded before.
"""

import fcntl
import json
import os
import shutil
import signal
import sqlite3

from lower_devices import HEADER, stack
from scratch_node import AFTER, BEFORE, MIB, ScratchNodeTest, Volume, publish_path

FURTHER = AFTER + 32 * MIB
NEVER = 3600  # seconds: no sweep in this test


class LowerDevicesTest(ScratchNodeTest):

    def build(self, slaves, header=HEADER, **dm):
        """A volume on a dm device over so many disks."""
        node = self.node({"resize.sweep_seconds": NEVER})
        sysfs, volume, disks = stack(self, node, slaves, header, **dm)
        node.start()
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        return node, sysfs, volume, disks

    def layers(self, node):
        rows = json.loads(node.crustctl("layers", "-o", "json").stdout)
        return {row["device"]: (row["kind"], row["size_bytes"], row["state"]) for row in rows}

    def test_luks(self):
        node, sysfs, volume, disks = self.build(["sda"], label="luks-data", uuid="CRYPT-LUKS2-0123-luks-data")
        sysfs.resize("sda", disks["sda"], AFTER + HEADER)
        row = node.wait_for(volume.path, "in_sync", "host_layer_pending", device_bytes=BEFORE)
        self.assertIsNone(row["next_attempt_at"])
        self.explains(node, volume.path, "- cryptsetup resize luks-data", "NodeExpandVolume",
                      "/dev/dm-0 (crypt luks-data) has 32 MiB and has not followed its lower device",
                      "/dev/sda (disk) has 80 MiB")
        self.assertEqual(self.layers(node), {
            "/dev/dm-0": ("crypt", BEFORE, "pending"),
            "/dev/sda": ("disk", AFTER + HEADER, "in_step")})
        self.assertIsNone(self.resize_row(node, volume.path))

        node.kill()  # what was seen before is not forgotten
        node.start()
        self.settle(node)
        self.assertEqual(node.volume(volume.path)["reason"], "host_layer_pending")

        sysfs.resize("dm-0", volume.loop, AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(self.resize_row(node, volume.path)["to_bytes"], AFTER)
        self.assertEqual({layer[2] for layer in self.layers(node).values()}, {"in_step"})

    def test_lvm(self):
        node, sysfs, volume, disks = self.build(["sda", "sdb"], label="vg-pv--1", uuid="LVM-abcdef")
        sysfs.resize("sdb", disks["sdb"], AFTER)
        node.wait_for(volume.path, "in_sync", "host_layer_pending")
        self.explains(node, volume.path, "pvresize /dev/sdb, then lvextend --size SIZE /dev/mapper/vg-pv--1")
        sysfs.resize("dm-0", volume.loop, BEFORE + MIB)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE + MIB)

    def test_multipath(self):
        node, sysfs, volume, disks = self.build(["sda", "sdb"], header=0, label="mpatha", uuid="mpath-3600140")
        sysfs.resize("sda", disks["sda"], AFTER)
        node.wait_for(volume.path, "in_sync", "host_layer_pending")
        self.explains(node, volume.path, "echo 1 > /sys/block/sdb/device/rescan",
                      "multipathd resize map mpatha", "/dev/sdb (disk) has 32 MiB and")
        sysfs.resize("sdb", disks["sdb"], AFTER)
        node.wait(lambda: self.layers(node)["/dev/sdb"][2] == "in_step", 60, "the paths to agree")
        self.assertNotIn("rescan\n", node.crustctl("explain", volume.path).stdout)
        sysfs.resize("dm-0", volume.loop, AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)

    def test_a_disk_of_many_volumes(self):
        node, sysfs, volume, disks = self.build(["sda"], label="vg-a", uuid="LVM-aaa")
        other = Volume(publish_path("other"), self.loop(BEFORE), "drive-of-other", "02/02")
        sysfs.add("dm-1", other.loop, ["sda"], label="vg-b", uuid="LVM-bbb")
        node.add_device(other.loop.device)
        node.stage(other.path, other.loop.device)
        self.sandbox(node, other, sandbox_id="b" * 64)
        monitor = self.monitor(node, other, sandbox_id="b" * 64)
        node.wait_for(other.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        sysfs.resize("sda", disks["sda"], AFTER)
        for one in (volume, other):
            node.wait_for(one.path, "in_sync", "host_layer_pending")
        sysfs.resize("dm-1", other.loop, AFTER)
        node.wait_for(other.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(node.volume(volume.path)["reason"], "host_layer_pending")
        self.assertNotEqual(monitor.sent("block_resize"), [])


class RescanTest(ScratchNodeTest):

    def build(self, **settings):
        """A volume on LUKS on a disk that announced a new size; returns the disk's rescan attribute."""
        node = self.node({"resize.sweep_seconds": NEVER} | settings)
        sysfs, self.volume, disks = stack(self, node, ["sda"], label="luks-data", uuid="CRYPT-LUKS2-0123-luks-data")
        self.disk = disks["sda"]
        node.once()
        self.announce(node)
        (sysfs.root / "devices/block/sda/device").mkdir()
        return node, sysfs, sysfs.root / "devices/block/sda/device/rescan"

    def announce(self, node):
        with sqlite3.connect(node.path("/var/lib/crustd/crustd.db")) as database:
            changed = database.execute("UPDATE devices SET announced = 1 WHERE name = '/dev/sda'")
            self.assertEqual(changed.rowcount, 1)
        database.close()

    def lines(self, node, kind):
        return [json.loads(row["detail"]) for row in node.query(
            f"SELECT detail FROM audit_journal WHERE kind = '{kind}' AND device = '/dev/sda'")]

    def test_rescan_command_is_shown_until_the_size_changes(self):
        node, sysfs, rescan = self.build()
        rescan.touch()
        node.start()
        node.wait_for(self.volume.path, "in_sync", "host_stale")
        self.explains(node, self.volume.path, "- echo 1 > /sys/block/sda/device/rescan",
                      "/dev/sda (disk) has 48 MiB and has announced a new size",
                      "resize.scsi_rescan = on")
        self.settle(node)
        self.assertEqual(rescan.read_text(), "")
        self.assertEqual(self.lines(node, "rescan_disk_intended"), [])
        sysfs.resize("sda", self.disk, AFTER + HEADER)
        node.wait_for(self.volume.path, "in_sync", "host_layer_pending")

    def test_a_resync_forgets_what_a_reload_does_not(self):
        node, _, _ = self.build()
        node.start()
        node.wait_for(self.volume.path, "in_sync", "host_stale")
        node.process.send_signal(signal.SIGHUP)
        self.settle(node)
        self.assertEqual(node.volume(self.volume.path)["reason"], "host_stale")
        node.crustctl("resync")
        node.wait_for(self.volume.path, "in_sync", "none")

    def test_a_rescan_that_brings_nothing_answers_it(self):
        node, _, rescan = self.build(**{"resize.scsi_rescan": "on"})
        rescan.touch()
        node.start()
        node.wait(lambda: self.lines(node, "disk_rescanned"), 60, "the disk to be rescanned")
        node.wait_for(self.volume.path, "in_sync", "none")
        self.assertEqual(rescan.read_text(), "1")
        size = BEFORE + HEADER
        self.assertEqual(self.lines(node, "rescan_disk_intended"), [{"from_bytes": size}])
        self.assertEqual(self.lines(node, "disk_rescanned"), [{"from_bytes": size, "to_bytes": size}])
        node.stop()  # one announcement after the other does not make it more often
        self.announce(node)
        node.start()
        node.wait_for(self.volume.path, "in_sync", "host_stale")
        self.settle(node)
        self.assertEqual(len(self.lines(node, "rescan_disk_intended")), 1)

    def test_failed_rescan_is_recorded_and_not_repeated_at_once(self):
        node, _, rescan = self.build(**{"resize.scsi_rescan": "on"})
        rescan.mkdir()
        node.start()
        line, = node.wait(lambda: self.lines(node, "disk_rescanned"), 60, "the rescan to fail")
        self.assertIn("the disk could not be rescanned: Is a directory", line["error"])
        self.settle(node)
        self.assertEqual(node.volume(self.volume.path)["reason"], "host_stale")
        self.assertEqual(len(self.lines(node, "rescan_disk_intended")), 1)

    def test_a_rescan_that_hangs_is_given_up(self):
        node, _, rescan = self.build(**{"resize.scsi_rescan": "on", "resize.call_timeout_seconds": 1})
        os.mkfifo(rescan)
        reader = os.open(rescan, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        writer = os.open(rescan, os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, writer)
        os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))  # it takes no more
        node.start()
        node.wait(lambda: self.lines(node, "rescan_disk_intended"), 60, "the rescan to begin")
        marker = publish_path("marker")
        node.stage(marker, "/dev/marker")
        node.wait(lambda: node.volume(marker), 60, "the daemon to go on meanwhile")
        line, = node.wait(lambda: self.lines(node, "disk_rescanned"), 60, "the rescan to end")
        self.assertIn("rescanning /dev/sda: Connection timed out", line["error"])

    def test_another_disk_of_that_number_is_not_rescanned(self):
        """Nor one that is gone."""
        for is_gone in False, True:
            with self.subTest(is_gone=is_gone):
                node, sysfs, rescan = self.build(**{"resize.scsi_rescan": "on"})
                rescan.touch()
                (sysfs.root / "devices/block/sda/diskseq").write_text("99999\n")
                if is_gone:
                    shutil.rmtree(sysfs.root / "devices/block/sda")
                node.start()
                node.wait_for(self.volume.path, "in_sync", "none")
                self.settle(node)
                self.assertEqual(self.lines(node, "disk_rescanned"), [])
                self.assertTrue(is_gone or rescan.read_text() == "")
                node.close()

    def test_what_is_only_observed_is_not_rescanned(self):
        node, _, rescan = self.build(**{"resize.scsi_rescan": "on", "resize.mode": "observe"})
        rescan.touch()
        node.start()
        node.wait_for(self.volume.path, "in_sync", "host_stale")
        self.settle(node)
        self.assertEqual(rescan.read_text(), "")
