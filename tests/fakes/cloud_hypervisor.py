# SPDX-License-Identifier: Apache-2.0
"""cloud_hypervisor.py - Cloud Hypervisor's API without a VM: vmm.ping, vm.info, vm.resize-disk,
vm.add-disk and vm.remove-device.

Versions differ as the real ones do (51.1 and 54-dev were run, the others read). Up to v51
vm.resize-disk truncates: a block device fails, always. From v52 on a block device must have the size
that is asked for. A regular file is truncated in all of them. Up to v52 every refusal is a 500; from
v53 on a disk that is not there is a 404 and named. vmm.ping tells the build's version as git has it,
v51.1, and the crate's, 51.1.0.

A disk that is removed leaves the configuration at once; its guest lets go of it when vm.info has been
asked `eject_after` times more, and then the tree of devices loses it and the file is closed. Until
then its id and its slot are taken.

In a test, whose process is then the VMM:

    with FakeCloudHypervisor(path, "v52.0", [Disk("_disk0", "/dev/loop0")]) as vmm:
        vmm.refuse = (500, ["Error from API", "no"])
        ...
        vmm.wait_for("PUT", "/api/v1/vm.resize-disk")

As a program, until it is terminated:

    cloud_hypervisor.py --api-socket P --device /dev/loop0 [--id _disk0] [--version v52.0]
                        [--read-only] [--delay S] [--split N] [--full] [--silent-at N] [--log F]
                        [--obey] [--no-share] [--confidential] [--eject-after N] [--guest QMP]

With --guest the disks that are added come to the guest of a QEMU of machine type pc, in the slots that
they have here, and a removed one has left once that guest has let go of it.
"""

import argparse
import json
import os
import re
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from micro_http import Disk, MicroHttp, add_arguments, run  # noqa: E402

API = "/api/v1/"
RESIZE = ["Error from API", "The disk could not be resized", "Error from device manager"]


class QemuGuest:
    """Plugs disks into a QEMU, by its monitor."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rb")
        self._execute("qmp_capabilities")

    def _execute(self, command, **arguments):
        """The answer, an error as well."""
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(self.lines.readline())
            if "return" in answer or "error" in answer:
                return answer

    def plug(self, disk):
        node = f"node-{disk.slot}"
        answers = [self._execute("blockdev-add", **{
            "driver": "raw", "node-name": node, "read-only": disk.read_only,
            "file": {"driver": "host_device", "filename": disk.path}})]
        answers.append(self._execute("device_add", driver="virtio-blk-pci", id=f"disk-{disk.slot}", drive=node,
                                     bus="pci.0", addr=f"{disk.slot:x}", serial=disk.serial))
        return next((answer["error"]["desc"] for answer in answers if "error" in answer), None)

    def resize(self, disk, size):
        self._execute("block_resize", **{"node-name": f"node-{disk.slot}", "size": size})

    def unplug(self, disk):
        self._execute("device_del", id=f"disk-{disk.slot}")

    def has_let_go(self, disk):
        if "return" in self._execute("qom-list", path=f"/machine/peripheral/disk-{disk.slot}"):
            return False
        return "return" in self._execute("blockdev-del", **{"node-name": f"node-{disk.slot}"})


class FakeCloudHypervisor(MicroHttp):
    guest = None  # a QemuGuest
    first_slot = 3  # on the PCI bus, for disks that are added

    def __init__(self, socket_path, version="v52.0", disks=(), log=None):
        super().__init__(socket_path, log)
        self.version = version
        self.disks = list(disks)
        self.state = "Running"
        self.has_share, self.is_confidential = True, False
        self.clutter = 0  # members of vm.info that mean nothing
        self.more_paths = []  # of disks that are told of before the others
        self.leaving = []  # removed disks that the guest has not let go of, each with a countdown
        self.eject_after = 1  # None: never

    def stop(self):
        super().stop()
        for disk in self.disks + [disk for disk, _ in self.leaving]:
            disk.close()

    def major(self):
        return int(re.match(r"v?(\d+)", self.version)[1])

    def crate_version(self):
        return re.match(r"v?(\d+\.\d+)", self.version)[1] + ".0"

    def disk(self, disk_id):
        return next((d for d in self.disks if d.id == disk_id), None)

    def answer(self, method, target, body):
        name = target.removeprefix(API)
        if (method, name) == ("GET", "vmm.ping"):
            return 200, {"build_version": self.version, "version": self.crate_version(),
                         "pid": os.getpid(), "features": ["kvm"]}
        if (method, name) == ("GET", "vm.info"):
            return 200, self._info()
        if (method, name) == ("PUT", "vm.resize-disk"):
            return self._resize(body)
        if (method, name) == ("PUT", "vm.add-disk"):
            return self._add(body)
        if (method, name) == ("PUT", "vm.remove-device"):
            return self._remove(body)
        return 404, None

    def _info(self):
        self._let_go()
        disks = [{"id": disk.id, "pci_segment": 0, "path": disk.path, "readonly": disk.read_only,
                  "direct": False, "num_queues": 1, "queue_size": 128, "vhost_user": False,
                  "image_type": "Raw"} | ({"serial": disk.serial} if disk.serial else {})
                 for disk in self.disks]
        more = [{"id": f"more{number}", "pci_segment": 0, "path": path} for number, path in enumerate(self.more_paths)]
        share = [{"tag": "kataShared", "socket": "/virtiofsd.sock", "num_queues": 1, "id": "_fs1"}]
        return {"config": {"cpus": {"boot_vcpus": 1, "max_vcpus": 1}, "disks": more + disks,
                           "platform": {"num_pci_segments": 1, "tdx": self.is_confidential},
                           "fs": share if self.has_share else None},
                "state": self.state, "memory_actual_size": 1 << 29,
                "device_tree": self._device_tree()}

    def _device_tree(self):
        """A disk's parent is its virtio device; the slots from 3 on, as Kata's disks have them."""
        tree = {}
        for slot, disk in self._slots():
            parent = "_virtio-pci-" + disk.id
            tree[disk.id] = {"id": disk.id, "resources": [], "parent": parent, "children": []}
            tree[parent] = {"id": parent, "resources": [], "children": [disk.id],
                            "pci_bdf": f"0000:00:{slot:02x}.0"}
        return {str(number): 0 for number in range(self.clutter)} | tree

    def _slots(self):
        placed = [(disk.slot or slot, disk) for slot, disk in enumerate(self.disks, 3)]
        return placed + [(disk.slot, disk) for disk, _ in self.leaving]

    def _let_go(self):
        if self.guest:
            self.leaving = [(disk, 0 if self.guest.has_let_go(disk) else None) for disk, _ in self.leaving]
        for disk, left in self.leaving:
            if left == 0:
                disk.close()
        self.leaving = [(disk, left and left - 1) for disk, left in self.leaving if left != 0]

    def _add(self, body):
        try:
            request = json.loads(body)
            disk_id, path = request["id"], request["path"]
            assert request.get("image_type") == "Raw"
        except (ValueError, KeyError, TypeError, AssertionError):
            return 400, ["Failed to deserialize JSON", "missing field"]
        taken = [disk for _, disk in self._slots() if disk.id == disk_id]
        if taken:
            status = 409 if self.major() >= 53 else 500
            return status, ["Error from API", "Identifier is not unique"]
        try:
            disk = Disk(disk_id, path, request.get("readonly", False), request.get("serial"))
        except OSError as error:
            return 500, ["Error from API", "Cannot open disk path",
                         f"{error.strerror} (os error {error.errno})"]
        disk.limits = request.get("rate_limiter_config")
        used = {slot for slot, _ in self._slots()}
        disk.slot = next(slot for slot in range(self.first_slot, 32) if slot not in used)
        problem = self.guest and self.guest.plug(disk)
        if problem:
            disk.close()
            return 500, ["Error from API", problem]
        self.disks.append(disk)
        return 200, {"id": disk_id, "bdf": f"0000:00:{disk.slot:02x}.0"}

    def _remove(self, body):
        try:
            disk = self.disk(json.loads(body)["id"])
        except (ValueError, KeyError, TypeError):
            return 400, ["Failed to deserialize JSON", "missing field"]
        if disk is None:
            return (404 if self.major() >= 53 else 500), ["Error from API", "Missing device"]
        disk.slot = next(slot for slot, other in self._slots() if other is disk)
        self.disks.remove(disk)
        if self.guest:
            self.guest.unplug(disk)
        self.leaving.append((disk, self.eject_after))
        return 204, None

    def _resize(self, body):
        try:
            request = json.loads(body)
            disk, size = self.disk(request["id"]), int(request["desired_size"])
        except (ValueError, KeyError, TypeError):
            return 400, ["Failed to deserialize JSON", "missing field"]
        if self.state not in ("Running", "Paused"):
            return 500, ["Error from API", "Failed resizing a disk image"]
        if disk is None:
            missing = "Failed to find device corresponding to the given identifier"
            return (404, RESIZE + [f"{missing}: {request['id']}"]) if self.major() >= 53 else \
                (500, RESIZE + [missing])
        problem = self._resize_disk(disk, size)
        return (500, RESIZE + ["Disk resize error", *problem]) if problem else (204, None)

    def _resize_disk(self, disk, size):
        """What is in the way, outermost first."""
        if size % 512:
            return ["Disk image size is not a multiple of 512"]
        if not disk.is_block_device():
            disk.truncate(size)
        elif self.major() < 52:
            return ["Disk resize failed", "Resize failed", "Invalid argument (os error 22)"]
        elif size != disk.real_size():
            return ["Disk resize failed", "Resize failed",
                    f"Block device size {disk.real_size()} does not match requested size {size}"]
        disk.size = size
        if self.guest and disk.slot:
            self.guest.resize(disk, size)
        return None


def main():
    parser = argparse.ArgumentParser(description="A Cloud Hypervisor without a VM.")
    parser.add_argument("--api-socket", required=True)
    parser.add_argument("--id", default="_disk0")
    parser.add_argument("--version", default="v52.0")
    parser.add_argument("--no-share", action="store_true")
    parser.add_argument("--confidential", action="store_true")
    parser.add_argument("--eject-after", type=int, default=1)
    parser.add_argument("--guest", type=QemuGuest)
    add_arguments(parser)
    arguments = parser.parse_args()

    disk = Disk(arguments.id, arguments.device, arguments.read_only)
    vmm = FakeCloudHypervisor(arguments.api_socket, arguments.version, [disk], arguments.log)
    vmm.has_share, vmm.is_confidential = not arguments.no_share, arguments.confidential
    vmm.eject_after = arguments.eject_after
    if arguments.guest:
        vmm.guest, vmm.first_slot = arguments.guest, 16
    run(vmm, arguments)


if __name__ == "__main__":
    main()
