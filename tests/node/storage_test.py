# SPDX-License-Identifier: Apache-2.0
"""The storage below volumes on a node: LVM, LUKS, partitions, md, multipath, disks that grow from outside.

Two guests on KVM have the volumes; each test lets one grow by the commands that an administrator gives.
"""

from sandboxes import MIB, RESIZE_SECONDS, SandboxTest

GIB = 1 << 30
KEY = "/run/luks-key"
LUKS = f"--type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file {KEY}"
DISK = "/dev/disk/by-id/virtio-"

MAKE_STACKS = f"""
set -e
head -c 64 /dev/urandom >{KEY}

pvcreate -q {DISK}lvm; vgcreate -q shelf {DISK}lvm
for name in plain left right; do lvcreate -q -y -W n -L 64M -n $name shelf; done

cryptsetup -q luksFormat {LUKS} {DISK}luks; cryptsetup open --key-file {KEY} {DISK}luks vault
pvcreate -q /dev/mapper/vault; vgcreate -q safe /dev/mapper/vault
lvcreate -q -y -W n -L 320M -n secret safe

cryptsetup -q luksFormat {LUKS} {DISK}crypt; cryptsetup open --key-file {KEY} {DISK}crypt crypt

printf 'label: gpt\\nstart=2048, size=131072\\n' | sfdisk -q {DISK}table
mdadm --quiet --create /dev/md/mirror --run --metadata=1.2 --bitmap=none --assume-clean --level=1 \\
  --raid-devices=2 /dev/shelf/left /dev/shelf/right

mkdir -p /etc/multipath
printf 'defaults {{\\n find_multipaths no\\n user_friendly_names yes\\n}}\\n' >/etc/multipath.conf
printf 'blacklist {{\\n devnode "^(vd|sr|loop)"\\n}}\\n' >>/etc/multipath.conf
systemctl restart multipathd
modprobe scsi_debug add_host=2 vpd_use_hostno=0 max_luns=1 dev_size_mb=2112 virtual_gb=1 delay=0 ndelay=0
udevadm settle
multipath
udevadm settle
"""


class StorageTest(SandboxTest):
    """One node, two guests at once."""

    # The store of scsi_debug is as large as the disk becomes: its sectors would meet each other.
    MEMORY = 4608
    DISKS = {"lvm": 512 * MIB, "luks": GIB, "crypt": 320 * MIB, "table": 512 * MIB,
             "bare": 320 * MIB}

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.node.run(MAKE_STACKS, seconds=600)
        cls.map = cls.node.output("ls /dev/mapper/mpath*")
        cls.add_sandbox({
            "plain": ("/dev/shelf/plain", "ext4"),
            "secret": ("/dev/safe/secret", "xfs"),
            "crypt": ("/dev/mapper/crypt", "btrfs"),
        })
        cls.add_sandbox({
            "part": (f"{DISK}table-part1", "ext4"),
            "mirror": ("/dev/md/mirror", "ext4"),
            "bare": (f"{DISK}bare", "xfs"),
            "paths": (cls.map, "ext4"),
        })
        cls.start_sandboxes()
        cls.node.configure(resize__sweep_seconds=5)
        cls.node.start_crustd()

    def grow(self, name, command):
        before = self.settle(name)
        self.node.run(command, seconds=RESIZE_SECONDS)
        return self.check_grown(name, before)

    def wait_missing(self, name, reason, remedy):
        """Waits until explain names the step that is missing."""
        path = self.volume(name).path
        self.node.wait_for(path, "in_sync", reason, seconds=RESIZE_SECONDS)
        self.node.wait(lambda: remedy in self.explained(name), RESIZE_SECONDS,
                       f"explain {name} to name: {remedy}")

    def test_guests_are_reached_over_vsock(self):
        for name in ("plain", "part"):
            self.settle(name)
        rows = self.node.query("SELECT agent_address, status FROM audit_sandboxes"
                               " ORDER BY agent_address")
        self.assertEqual([row["agent_address"] for row in rows],
                         ["vsock://100:1024", "vsock://101:1024"])

    def test_logical_volume(self):
        self.grow("plain", "lvextend -q -L 96M shelf/plain")

    def test_logical_volume_on_luks(self):
        self.grow("secret", "lvextend -q -L 416M safe/secret")

    def test_luks_on_a_disk_that_grows_from_outside(self):
        before = self.settle("crypt")
        self.node.resize_disk("crypt", 416 * MIB)
        self.wait_missing("crypt", "host_layer_pending", "cryptsetup resize crypt")
        self.node.run(f"cryptsetup resize --key-file {KEY} crypt")
        self.check_grown("crypt", before)

    def test_bare_disk_that_grows_from_outside(self):
        before = self.settle("bare")
        self.node.resize_disk("bare", 416 * MIB)
        self.check_grown("bare", before)

    def test_partition(self):
        self.grow("part", f"echo ',+96M' | sfdisk -q --force --no-reread -N 1 {DISK}table;"
                          f" partx --update --nr 1 {DISK}table")

    def test_mirror(self):
        self.grow("mirror", "lvextend -q -L 96M shelf/left && lvextend -q -L 96M shelf/right &&"
                            " mdadm --quiet --grow /dev/md/mirror --size=max --assume-clean")

    def test_multipath_whose_disk_announces_new_capacity(self):
        before = self.settle("paths")
        paths = self.node.output("lsblk -s -n -l -o NAME,TYPE " + self.map
                                 + " | awk '$2 == \"disk\" {print $1}'").split()
        self.assertEqual(len(paths), 2, paths)
        self.node.run("echo 2 >/sys/bus/pseudo/drivers/scsi_debug/virtual_gb")
        # The next command to each path is answered by the announcement.
        self.node.run("for disk in " + " ".join(paths) + "; do sg_turs /dev/$disk; done; true")
        self.wait_missing("paths", "host_stale", "device/rescan")
        self.node.run("for disk in " + " ".join(paths)
                      + "; do echo 1 >/sys/block/$disk/device/rescan; done")
        name = self.map.rpartition("/")[2]
        self.wait_missing("paths", "host_layer_pending", f"multipathd resize map {name}")
        self.node.run(f"multipathd resize map {name}")
        self.check_grown("paths", before)


class UnitTest(SandboxTest):
    """The unit as it is shipped: it starts, is killed, starts again, and what grew meanwhile arrives."""

    DISKS = {"luks": GIB}

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.node.run(f"""
set -e
head -c 64 /dev/urandom >{KEY}
cryptsetup -q luksFormat {LUKS} {DISK}luks; cryptsetup open --key-file {KEY} {DISK}luks vault
pvcreate -q /dev/mapper/vault; vgcreate -q safe /dev/mapper/vault
lvcreate -q -y -W n -L 64M -n data safe
""", seconds=600)
        cls.add_sandbox({"data": ("/dev/safe/data", "ext4")})
        cls.start_sandboxes()
        cls.node.run("systemctl enable --quiet --now crustd")

    def test_resize_while_it_was_dead_arrives(self):
        before = self.settle("data")
        self.node.run("systemctl kill --signal=KILL crustd && lvextend -q -L 96M safe/data",
                      seconds=RESIZE_SECONDS)
        self.node.wait("systemctl is-active --quiet crustd", 60, "the unit to be active again")
        self.check_grown("data", before)
        self.assertEqual(self.node.property("NRestarts"), "1")
