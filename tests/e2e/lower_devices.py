# SPDX-License-Identifier: Apache-2.0
"""Volumes whose device stands on others, in a sysfs of the node's own."""

from scratch_node import BEFORE, MIB, Volume, publish_path

HEADER = 16 * MIB


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


def stack(test, node, slaves, header=HEADER, **dm):
    """A volume on a dm device over so many disks, in a sandbox whose monitor and agent answer; returns
    sysfs, volume and the disks by their names. The daemon is yet to be started."""
    sysfs = Sysfs(node)
    disks = {name: test.loop(BEFORE + header) for name in slaves}
    for name, disk in disks.items():
        sysfs.add(name, disk)
    loop = test.loop(BEFORE)
    sysfs.add("dm-0", loop, slaves, **dm)
    node.add_device(loop.device)
    volume = Volume(publish_path("pv"), loop, "drive-of-pv")
    node.stage(volume.path, loop.device)
    test.agent(node).stats.total = BEFORE
    test.monitor(node, volume)
    test.sandbox(node, volume)
    return sysfs, volume, disks
