# SPDX-License-Identifier: Apache-2.0
"""Loop devices, file systems on them, and disks as QEMU and the guest are told about them."""

import base64
import contextlib
import dataclasses
import os
import pathlib
import secrets
import stat

from programs import Closing, run

KATA_STORAGE = "/run/kata-containers/sandbox/storage/"


class LoopDevice(Closing):
    """A loop device over a sparse file, in a size that can change. Detached by name at the end."""

    def __init__(self, path, size):
        self.path = pathlib.Path(path)
        with open(self.path, "wb") as file:
            file.truncate(size)
        self.device = run("losetup", "--find", "--show", self.path)

    @property
    def size(self):
        """Bytes, as the host's kernel sees it."""
        name = os.path.basename(self.device)
        return int(pathlib.Path(f"/sys/class/block/{name}/size").read_text()) * 512

    def resize(self, size):
        """Makes the device so many bytes large, or small; the kernel announces it."""
        os.truncate(self.path, size)
        run("losetup", "--set-capacity", self.device)

    def close(self):
        if self.device:
            run("losetup", "--detach", self.device)
            self.device = None
            self.path.unlink(missing_ok=True)


def has_open(pid, device):
    """Whether a process has the device open, by whatever name."""
    numbers = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            numbers.add(link.stat().st_rdev)
    return os.stat(device).st_rdev in numbers


def is_free(device):
    """Whether the node can have the disk for itself."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def make_filesystem(filesystem, device, *features):
    """mkfs of an ext4, xfs or btrfs on a device or file, without mounting it; features: more of its options."""
    options = {
        "ext4": ["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"],
        "xfs": ["-q", "-f", "-K"],
        "btrfs": ["-q", "-f", "-K"],
    }
    run(f"mkfs.{filesystem}", *options[filesystem], *features, device)


@dataclasses.dataclass
class Disk:
    """One volume as QEMU is told about it and as the guest mounts it. What is left empty is filled
    in as Kata's Go runtime would when the disk comes to a VM."""

    path: str  # a block device, a link to one, or a regular file
    bus: str = "blk"  # "blk": virtio-blk-pci, "scsi": scsi-hd
    filesystem: str | None = None  # None: the guest does not mount it
    options: str = ""  # of the mount: "ro" or the file system's own
    read_only: bool = False
    fdset: bool = False  # QEMU gets a descriptor and /dev/fdset/N, as under runtime-rs
    id: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    node_name: str = ""
    device_id: str = ""
    mount_point: str = ""
    serial: str = ""
    address: str = ""  # Kata's: "02/01" behind the bridge, or "0:1" for SCSI id and unit
    qemu_path: str = ""  # what QEMU was given: path, or that of the fd set

    def place(self, taken):
        """Takes the first address on its bus that is not taken, and the names that follow."""
        if not self.address:
            form = "0:{0}" if self.bus == "scsi" else "02/{1:02x}"
            addresses = (form.format(number, number + 1) for number in range(31))
            self.address = next(address for address in addresses if address not in taken)
        self.node_name = self.node_name or f"drive-{self.id}"
        self.device_id = self.device_id or f"virtio-drive-{self.id}"
        name = base64.urlsafe_b64encode(self.address.encode()).decode()
        self.mount_point = self.mount_point or KATA_STORAGE + name

    @property
    def guest_name(self):
        """How the guest's init, and the agent, are told which disk is meant."""
        return ("scsi:" if self.bus == "scsi" else "pci:") + self.address

    @property
    def opaque(self):
        """How runtime-rs labels the descriptor."""
        return f"kata-block:{self.node_name}:block-source"

    @property
    def mount_words(self):
        words = [self.guest_name, self.filesystem, self.mount_point]
        return words + [self.options] if self.options else words

    def blockdev(self):
        """Raw over the protocol driver that the path needs."""
        is_block = stat.S_ISBLK(os.stat(self.path).st_mode)
        return {
            "driver": "raw",
            "node-name": self.node_name,
            "read-only": self.read_only,
            "file": {
                "driver": "host_device" if is_block else "file",
                "filename": self.qemu_path,
            },
        }

    def frontend(self):
        device = {"id": self.device_id, "drive": self.node_name, "share-rw": True}
        if self.bus == "scsi":
            target, unit = self.address.split(":")
            device |= {"driver": "scsi-hd", "bus": "scsi0.0", "channel": 0}
            device |= {"scsi-id": int(target), "lun": int(unit)}
        else:
            slot = self.address.rpartition("/")[2]
            device |= {"driver": "virtio-blk-pci", "bus": "pci-bridge-0", "addr": slot}
        if self.serial:
            device["serial"] = self.serial
        return device
