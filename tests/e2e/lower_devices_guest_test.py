# SPDX-License-Identifier: Apache-2.0
"""Resizes of lower devices, for real: crustd runs in a guest whose SCSI disks grow without
being rescanned, and whose volumes are on device mapper.
"""

import json
import pathlib
import tempfile
import unittest

from node import BUILD, encode
from programs import needs, wait_until
from scratch_node import publish_path
from scsi_node import PROGRAMS, SECONDS, ScsiNode, build_node_image

MIB = 1 << 20
BEFORE, AFTER = 64 * MIB, 128 * MIB
HEADER = 16 * MIB
VOLUME = publish_path("pv")
SANDBOX = "a" * 64
PERSIST = {"PersistVersion": 2, "State": "running", "SandboxContainer": SANDBOX,
           "HypervisorState": {"Type": "qemu"}, "Config": {"HypervisorType": "qemu"}}


class LowerDevicesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        needs(*PROGRAMS, "qemu-system-x86_64", "cpio")
        scratch = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        image = build_node_image(BUILD / "guest", scratch, [BUILD / "crustd", BUILD / "crustctl"])
        cls.node = cls.enterClassContext(
            ScsiNode(scratch, image, ["single", "shared", "shared"], BEFORE))

    # -- the node's side

    def begin(self, device, **settings):
        """crustd on a new database, with a volume on the device, whose VM has started since."""
        self.node.run("rm -rf /var/lib/crustd/* /run/vc /run/kata-containers")
        self.node.write("/etc/crustd/crustd.conf", "[resize]\nsweep_seconds = 3600\n" + "".join(
            f"{name} = {value}\n" for name, value in settings.items()))
        directory = f"/run/kata-containers/shared/direct-volumes/{encode(VOLUME)}"
        self.node.run(f"mkdir -p /run/crustd /run/vc/sbs /run/vc/vm {directory};"
                      f" chmod 700 {directory}")
        self.node.write(f"{directory}/mountInfo.json", json.dumps(
            {"volume-type": "block", "device": device, "fstype": "ext4"}))
        self.node.run("crustd 2> /run/crustd.log & crustd=$!")
        self.addCleanup(self.end)
        wait_until(lambda: self.node.run("crustctl health > /dev/null 2>&1; echo $?") == ["0"],
                   SECONDS, "crustd")
        self.wait("unbound")
        self.node.run(f"sh -c 'sleep 9999; :' containerd-shim-kata-v2 -id {SANDBOX} & shim=$!")
        self.node.run("sh -c 'sleep 9999; :' qemu-system-x86_64 -name"
                      f" sandbox-{SANDBOX},debug-threads=on & vmm=$!")
        wait_until(lambda: self.node.run(f"grep -c {SANDBOX} /proc/$vmm/cmdline", check=False)
                   == ["1"], SECONDS, "the VMM")
        self.node.run(f"mkdir -p /run/vc/vm/{SANDBOX}; echo $vmm > /run/vc/vm/{SANDBOX}/pid")
        self.node.write(f"/run/vc/sbs/{SANDBOX}/persist.json", json.dumps(PERSIST))
        self.node.write(f"{directory}/{SANDBOX}", "")
        self.wait("in_sync/unverified")  # a VMM without a monitor

    def end(self):
        self.node.run("kill $crustd $vmm $shim; wait $crustd $vmm $shim; true")

    def wait(self, state):
        """Waits for a state, and says what is known if it does not come."""
        lines = self.node.run(f"crustctl wait {VOLUME} --for {state} --timeout {SECONDS // 2} ||"
                              f" {{ crustctl explain {VOLUME}; cat /run/crustd.log; }}")
        self.assertEqual(len(lines), 1, lines)

    def explains(self, *words):
        text = " ".join(self.node.run(f"crustctl explain {VOLUME}"))
        for word in words:
            self.assertIn(word, text)

    def meet(self, disk):
        """A command to the disk, which finds that it has grown."""
        self.node.run(f"dd if=/dev/{disk} of=/dev/null bs=4096 count=1 iflag=direct 2>&1")

    def rescan(self, disk):
        self.node.run(f"echo 1 > /sys/block/{disk}/device/rescan")

    def map(self, label, uuid, table):
        """A dm device, which ends with the test; returns its path."""
        self.dmsetup(f"create {label} -u {uuid} --table \"{table}\"")
        self.addCleanup(self.dmsetup, f"remove {label}")
        (minor,) = self.node.run(f"dmsetup info -c --noheadings -o minor {label}")
        return f"/dev/dm-{minor}"

    def remap(self, label, table):
        self.dmsetup(f"reload {label} --table \"{table}\"")
        self.dmsetup(f"resume {label}")

    def dmsetup(self, command):
        self.node.run(f"dmsetup --noudevrules --noudevsync {command}")

    def number(self, disk):
        (number,) = self.node.run(f"cat /sys/block/{disk}/dev")
        return number

    def layers(self):
        rows = json.loads("".join(self.node.run("crustctl layers -o json")))
        return {row["device"]: (row["size_bytes"], row["state"]) for row in rows}

    def journal(self, kind):
        rows = json.loads("".join(self.node.run("crustctl journal -n 0 -o json")))
        return [row for row in rows if row["kind"] == kind]

    # -- the tests

    def test_luks_on_a_disk_that_is_not_rescanned(self):
        disk, skipped = self.node.disks[0], HEADER // 512
        table = f"0 {{}} linear /dev/{disk} {skipped}"
        device = self.map("luks-data", "CRYPT-LUKS2-0123-luks-data",
                          table.format((BEFORE - HEADER) // 512))
        self.begin(device)
        self.node.resize("single", AFTER)
        self.assertEqual(self.layers()[f"/dev/{disk}"], (BEFORE, "in_step"))
        self.meet(disk)
        self.wait("in_sync/host_stale")
        self.explains(f"- echo 1 > /sys/block/{disk}/device/rescan")
        self.assertEqual(self.journal("rescan_disk_intended"), [])
        self.rescan(disk)
        self.wait("in_sync/host_layer_pending")
        self.explains("- cryptsetup resize luks-data")
        self.assertEqual(self.layers(), {device: (BEFORE - HEADER, "pending"),
                                         f"/dev/{disk}": (AFTER, "in_step")})
        self.remap("luks-data", table.format((AFTER - HEADER) // 512))
        self.wait("blocked/monitor_missing")  # a resize like any other
        self.assertEqual({state for _, state in self.layers().values()}, {"in_step"})
        (resize,) = json.loads("".join(self.node.run("crustctl resizes -o json")))
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]),
                         (BEFORE - HEADER, AFTER - HEADER))

    def test_multipath_whose_paths_are_rescanned_by_crustd(self):
        first, second = self.node.disks[1:]
        table = (f"0 {{}} multipath 0 0 1 1 round-robin 0 2 1 {self.number(first)} 1"
                 f" {self.number(second)} 1")
        device = self.map("mpatha", "mpath-3600140", table.format(BEFORE // 512))
        self.begin(device, scsi_rescan="on")
        self.node.resize("shared", AFTER)
        self.meet(first)
        self.wait("in_sync/host_layer_pending")
        self.assertEqual(self.layers(), {device: (BEFORE, "pending"),
                                         f"/dev/{first}": (AFTER, "in_step"),
                                         f"/dev/{second}": (BEFORE, "pending")})
        self.explains(f"- echo 1 > /sys/block/{second}/device/rescan",
                      "- multipathd resize map mpatha")
        self.meet(second)
        wait_until(lambda: self.layers()[f"/dev/{second}"] == (AFTER, "in_step"), SECONDS,
                   "the second path to be rescanned")
        self.assertEqual([line["device"] for line in self.journal("rescan_disk_intended")],
                         [f"/dev/{first}", f"/dev/{second}"])
        self.assertEqual({(line["detail"]["from_bytes"], line["detail"]["to_bytes"])
                          for line in self.journal("disk_rescanned")}, {(BEFORE, AFTER)})
        self.remap("mpatha", table.format(AFTER // 512))
        self.wait("blocked/monitor_missing")
