# SPDX-License-Identifier: Apache-2.0
"""firecracker.py - Firecracker's API without a VM: GET /, /version and /vm/config, and /drives/ID.

A PATCH opens the path again and takes what it finds there for the drive, as the real one does. With
a jail this is a process of its own whose root is the jail: the socket lies in JAIL/run, the device
is a node of its own in JAIL, and the paths that are reported begin there. It refuses in the words
of the real one, 1.12.1.

From 1.16 on, with `pci`, PUT attaches a drive to the running VM and DELETE takes it away at once, as
in the real one's documentation; the words of those refusals are those of 1.17.0-dev.

In a test, whose process is then the VMM, not jailed:

    with FakeFirecracker(path, [Drive("drive_1", "/dev/loop0")]) as vmm:
        ...
        vmm.wait_for("PATCH", "/drives/drive_1")

As a program, until it is terminated:

    firecracker.py --api-sock P --device /dev/loop0 [--drive-id drive_1] [--io-engine Sync]
    firecracker.py --jail DIR   --device /dev/loop0 …     socket DIR/run/firecracker.socket,
                                                          path_on_host /ID
                   [--id SANDBOX] [--read-only] [--delay S] [--split N] [--full] [--silent-at N]
                   [--log F] [--obey] [--version 1.12.1] [--pci]
"""

import argparse
import json
import os
import stat
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from micro_http import Disk, MicroHttp, add_arguments, run  # noqa: E402


PATCH_FAILED = ("Drive config error: Unable to patch the block device: Device manager error: {} "
                "Please verify the request arguments.")


class Drive(Disk):
    def __init__(self, drive_id, path, read_only=False, io_engine="Sync"):
        super().__init__(drive_id, path, read_only)
        self.io_engine = io_engine


class FakeFirecracker(MicroHttp):
    server = "Firecracker API"

    def __init__(self, socket_path, drives=(), log=None):
        super().__init__(socket_path, log)
        self.drives = list(drives)
        self.state = "Running"
        self.version = "1.12.1"
        self.pci = False

    def stop(self):
        super().stop()
        for drive in self.drives:
            drive.close()

    def answer(self, method, target, body):
        if (method, target) == ("GET", "/"):
            return 200, {"id": "fake", "state": self.state, "vmm_version": self.version,
                         "app_name": "Firecracker"}
        if (method, target) == ("GET", "/version"):
            return 200, {"firecracker_version": self.version}
        if (method, target) == ("GET", "/vm/config"):
            return 200, {"drives": [self._describe(drive) for drive in self.drives],
                         "boot-source": {}, "machine-config": {"vcpu_count": 1}}
        change = {"PATCH": self._patch, "PUT": self._put, "DELETE": self._delete}.get(method)
        if change and target.startswith("/drives/"):
            problem = change(target.removeprefix("/drives/"), body)
            return (400, {"fault_message": problem}) if problem else (204, None)
        return 400, {"fault_message": f"Invalid request method and/or path: {method} {target}."}

    @staticmethod
    def _describe(drive):
        return {"drive_id": drive.id, "partuuid": None, "is_root_device": False,
                "cache_type": "Unsafe", "is_read_only": drive.read_only,
                "path_on_host": drive.path, "rate_limiter": drive.limits,
                "io_engine": drive.io_engine,
                "socket": None}

    def _hot_plug_problem(self):
        if tuple(int(part) for part in self.version.split(".")[:2]) < (1, 16):
            return "The requested operation is not supported after starting the microVM."
        return None if self.pci else "PCI is not enabled"

    def _put(self, drive_id, body):
        request = json.loads(body)
        if problem := self._hot_plug_problem():
            return problem
        if request["drive_id"] != drive_id:
            return "The id from the path does not match the id from the body!"
        if not drive_id.replace("_", "").isalnum():
            return "API Resource IDs can only contain alphanumeric characters and underscores."
        if any(drive.id == drive_id for drive in self.drives):
            return "Device ID in use"
        try:
            drive = Drive(drive_id, request["path_on_host"], request["is_read_only"])
        except OSError as error:
            return ("Drive config error: Unable to create the virtio block device: Virtio backend "
                    f"error: Error manipulating the backing file: {error}")
        drive.limits = request.get("rate_limiter")
        self.drives.append(drive)
        return None

    def _delete(self, drive_id, _body):
        if problem := self._hot_plug_problem():
            return problem
        drive = next((d for d in self.drives if d.id == drive_id), None)
        if drive is None:
            return "Device not found"
        self.drives.remove(drive)
        drive.close()
        return None

    def _patch(self, drive_id, body):
        try:
            request = json.loads(body)
        except ValueError as error:
            return f"An error occurred when deserializing the json body of a request: {error}."
        if unknown := set(request) - {"drive_id", "path_on_host", "rate_limiter"}:
            return ("An error occurred when deserializing the json body of a request: unknown "
                    f"field `{unknown.pop()}`.")
        if "drive_id" not in request:
            return ("An error occurred when deserializing the json body of a request: missing "
                    "field `drive_id`.")
        if request["drive_id"] != drive_id:
            return "The id from the path does not match the id from the body!"
        if self.state == "Not started":
            return "The requested operation is not supported before starting the microVM."
        drive = next((d for d in self.drives if d.id == drive_id), None)
        if drive is None:
            return PATCH_FAILED.format("Failed to find the device on the bus.")
        if "rate_limiter" in request:
            drive.limits = request["rate_limiter"]
            if "path_on_host" not in request:
                return None
        path = drive.path
        try:
            drive.path = request["path_on_host"]
            drive.reopen()
        except (KeyError, OSError) as error:
            drive.path = path
            return PATCH_FAILED.format("Virtio backend error: Error manipulating the backing "
                                       f"file: {error}")
        return None


def enter_jail(jail, device, drive_id, vmm):
    """Makes the device's node, binds the socket and takes the jail for root. The node's path."""
    node = os.path.join(jail, drive_id)
    os.makedirs(os.path.join(jail, "run"), exist_ok=True)
    os.mknod(node, 0o600 | stat.S_IFBLK, os.stat(device).st_rdev)
    vmm.bind()
    os.chroot(jail)
    os.chdir("/")
    return "/" + drive_id


def main():
    parser = argparse.ArgumentParser(description="A Firecracker without a VM.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--api-sock")
    where.add_argument("--jail", help="an empty directory")
    parser.add_argument("--drive-id", default="drive_1")
    parser.add_argument("--io-engine", default="Sync")
    parser.add_argument("--version", default="1.12.1")
    parser.add_argument("--pci", action="store_true", help="as with --enable-pci")
    parser.add_argument("--id", help="as the real one is started; only shown in its arguments")
    add_arguments(parser)
    arguments = parser.parse_args()

    api_socket = arguments.api_sock or os.path.join(arguments.jail, "run", "firecracker.socket")
    vmm = FakeFirecracker(api_socket, log=arguments.log)
    vmm.version, vmm.pci = arguments.version, arguments.pci
    path = arguments.device
    if arguments.jail:
        path = enter_jail(arguments.jail, path, arguments.drive_id, vmm)
        vmm.socket_path = "/run/firecracker.socket"
    vmm.drives.append(
        Drive(arguments.drive_id, path, arguments.read_only, arguments.io_engine))
    run(vmm, arguments)


if __name__ == "__main__":
    main()
