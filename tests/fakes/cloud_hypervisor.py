# SPDX-License-Identifier: Apache-2.0
"""cloud_hypervisor.py - Cloud Hypervisor's API without a VM: vmm.ping, vm.info, vm.resize-disk.

Versions differ as the real ones do (51.1 and 54-dev were run, the others read). Up to v51
vm.resize-disk truncates: a block device fails, always. From v52 on a block device must have the size
that is asked for. A regular file is truncated in all of them. Up to v52 every refusal is a 500; from
v53 on a disk that is not there is a 404 and named. vmm.ping tells the build's version as git has it,
v51.1, and the crate's, 51.1.0.

In a test, whose process is then the VMM:

    with FakeCloudHypervisor(path, "v52.0", [Disk("_disk0", "/dev/loop0")]) as vmm:
        vmm.refuse = (500, ["Error from API", "no"])
        ...
        vmm.wait_for("PUT", "/api/v1/vm.resize-disk")

As a program, until it is terminated:

    cloud_hypervisor.py --api-socket P --device /dev/loop0 [--id _disk0] [--version v52.0]
                        [--read-only] [--delay S] [--split N] [--full] [--silent-at N] [--log F]
                        [--obey] [--no-share] [--confidential]
"""

import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from micro_http import Disk, MicroHttp, add_arguments, run  # noqa: E402

API = "/api/v1/"
RESIZE = ["Error from API", "The disk could not be resized", "Error from device manager"]


class FakeCloudHypervisor(MicroHttp):
    def __init__(self, socket_path, version="v52.0", disks=(), log=None):
        super().__init__(socket_path, log)
        self.version = version
        self.disks = list(disks)
        self.state = "Running"
        self.has_share, self.is_confidential = True, False
        self.clutter = 0  # members of vm.info that mean nothing

    def stop(self):
        super().stop()
        for disk in self.disks:
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
        return 404, None

    def _info(self):
        disks = [{"id": disk.id, "pci_segment": 0, "path": disk.path, "readonly": disk.read_only,
                  "direct": False, "num_queues": 1, "queue_size": 128, "vhost_user": False,
                  "image_type": "Raw"} for disk in self.disks]
        share = [{"tag": "kataShared", "socket": "/virtiofsd.sock", "num_queues": 1, "id": "_fs1"}]
        return {"config": {"cpus": {"boot_vcpus": 1, "max_vcpus": 1}, "disks": disks,
                           "platform": {"num_pci_segments": 1, "tdx": self.is_confidential},
                           "fs": share if self.has_share else None},
                "state": self.state, "memory_actual_size": 1 << 29,
                "device_tree": self._device_tree()}

    def _device_tree(self):
        """A disk's parent is its virtio device; the slots from 3 on, as Kata's disks have them."""
        tree = {}
        for slot, disk in enumerate(self.disks, 3):
            parent = "_virtio-pci-" + disk.id
            tree[disk.id] = {"id": disk.id, "resources": [], "parent": parent, "children": []}
            tree[parent] = {"id": parent, "resources": [], "children": [disk.id],
                            "pci_bdf": f"0000:00:{slot:02x}.0"}
        return {str(number): 0 for number in range(self.clutter)} | tree

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
        return None


def main():
    parser = argparse.ArgumentParser(description="A Cloud Hypervisor without a VM.")
    parser.add_argument("--api-socket", required=True)
    parser.add_argument("--id", default="_disk0")
    parser.add_argument("--version", default="v52.0")
    parser.add_argument("--no-share", action="store_true")
    parser.add_argument("--confidential", action="store_true")
    add_arguments(parser)
    arguments = parser.parse_args()

    disk = Disk(arguments.id, arguments.device, arguments.read_only)
    vmm = FakeCloudHypervisor(arguments.api_socket, arguments.version, [disk], arguments.log)
    vmm.has_share, vmm.is_confidential = not arguments.no_share, arguments.confidential
    run(vmm, arguments)


if __name__ == "__main__":
    main()
