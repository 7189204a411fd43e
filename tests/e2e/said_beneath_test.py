"""What lies beneath a volume's device: a dm device that has not followed its disk is said, with the
command that helps, and so is what ends it.

Loop devices are real, and so are their events; what they stand on is written into a sysfs of the
node's own, in which one loop device passes for a dm device and another for the disk beneath it.
"""

import json
import unittest

from said import AFTER, BEFORE, MIB, SaidTest, Volume, publish_path

HEADER = 16 * MIB
FURTHER = AFTER + 32 * MIB
NEVER = 3600  # seconds: no sweep in this test


class Sysfs:
    """A scratch /sys of a node, laid out as the kernel does."""

    def __init__(self, node):
        self.root = node.root / "sys"
        (self.root / "dev/block").mkdir(parents=True)

    def add(self, name, loop, slaves=(), **dm):
        """The loop device under that name, standing on others."""
        number = loop.device.removeprefix("/dev/loop")
        here = self.root / "devices/block" / name
        (here / "slaves").mkdir(parents=True)
        (here / "dev").write_text(f"7:{number}\n")
        (here / "diskseq").write_text(f"{number}\n")
        (here / "uevent").write_text(f"MAJOR=7\nMINOR={number}\nDEVNAME={name}\nDEVTYPE=disk\n")
        (self.root / f"dev/block/7:{number}").symlink_to(f"../../devices/block/{name}")
        for slave in slaves:
            (here / "slaves" / slave).symlink_to(f"../../{slave}")
        if dm:
            (here / "dm").mkdir()
            (here / "dm/name").write_text(dm["label"] + "\n")
            (here / "dm/uuid").write_text(dm["uuid"] + "\n")
        self.resize(name, loop, loop.size)

    def resize(self, name, loop, size):
        """The size first: an event of the kernel's comes after it."""
        (self.root / "devices/block" / name / "size").write_text(f"{size // 512}\n")
        loop.resize(size)


class BeneathTest(SaidTest):

    def build(self, slaves, header=HEADER, **dm):
        """A volume on a dm device over so many disks."""
        node = self.node({"resize.sweep_seconds": NEVER})
        sysfs = Sysfs(node)
        disks = {name: self.loop(BEFORE + header) for name in slaves}
        for name, disk in disks.items():
            sysfs.add(name, disk)
        loop = self.loop(BEFORE)
        sysfs.add("dm-0", loop, slaves, **dm)
        node.add_device(loop.device)
        volume = Volume(publish_path("pv"), loop, "drive-of-pv")
        node.stage(volume.path, loop.device)
        self.agent(node).stats.total = BEFORE
        self.monitor(node, volume)
        self.sandbox(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        return node, sysfs, volume, disks

    def layers(self, node):
        rows = json.loads(node.crustctl("layers", "-o", "json").stdout)
        return {row["device"]: (row["kind"], row["size_bytes"], row["state"]) for row in rows}

    def test_luks(self):
        node, sysfs, volume, disks = self.build(["sda"], label="luks-data",
                                                uuid="CRYPT-LUKS2-0123-luks-data")
        sysfs.resize("sda", disks["sda"], AFTER + HEADER)
        row = node.wait_for(volume.path, "in_sync", "host_layer_pending", device_bytes=BEFORE)
        self.assertIsNone(row["next_attempt_at"])
        self.explains(node, volume.path, "- cryptsetup resize luks-data", "NodeExpandVolume",
                      "/dev/dm-0 (crypt luks-data) has 32 MiB and has not followed a growth",
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
        self.explains(node, volume.path, "pvresize /dev/sdb, then lvextend --size SIZE"
                      " /dev/mapper/vg-pv--1")
        sysfs.resize("dm-0", volume.loop, BEFORE + MIB)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE + MIB)

    def test_multipath(self):
        node, sysfs, volume, disks = self.build(["sda", "sdb"], header=0, label="mpatha",
                                                uuid="mpath-3600140")
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


if __name__ == "__main__":
    unittest.main()
