# SPDX-License-Identifier: Apache-2.0
"""A scripted crust-guest-agent: a FakeAgent that has drives as well.

    with DriveAgent(f"{scratch}/agent.sock") as agent:
        agent.busy = "77 (cat)"          # who keeps the guest from unmounting
        agent.mounted                    # {serial: drive_id}

It believes that every disk is there that it is asked to mount.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from agent import FakeAgent, encode_response, field, fields, first, submessage  # noqa: E402

SERVICE = "crust.guest.v1.Drives"
MOUNTED = 2
FAILED_PRECONDITION = 9


class DriveAgent(FakeAgent):
    """Serves from construction until close()."""

    def __init__(self, path, **options):
        self.mounted = {}  # serial: (drive_id, vm_path, size)
        self.busy = None
        super().__init__(path, **options)

    @staticmethod
    def _decode(stream, data):
        request = FakeAgent._decode(stream, data)
        request.payload = fields(first(fields(data), 3, b""))
        return request

    def _succeed(self, request, explicit):
        if request.service != SERVICE:
            return super()._succeed(request, explicit)
        method = getattr(self, f"_{request.method}", None)
        if not method:
            return encode_response(request.stream, code=12, message="no such method")
        return method(request)

    def _MountDrive(self, request):
        text = {number: values[0] for number, values in request.payload.items()}
        serial = text[2].decode()
        was_mounted = serial in self.mounted
        self.mounted[serial] = (text[1].decode(), text[5].decode(), text[3])
        return encode_response(request.stream, field(1, "sda") + field(2, text[3])
                               + field(3, text[3]) + field(8, int(was_mounted)))

    def _UnmountDrive(self, request):
        serial = request.payload[2][0].decode()
        if self.busy and serial in self.mounted:
            return encode_response(request.stream, code=FAILED_PRECONDITION,
                                   message=f"in use by {self.busy}")
        was_mounted = self.mounted.pop(serial, None) is not None
        return encode_response(request.stream, field(1, int(was_mounted)))

    def _ListDrives(self, request):
        if request.payload.get(2):  # without_disks
            return encode_response(request.stream, b"")
        drives = (field(1, serial) + field(3, MOUNTED) + field(4, "sda") + field(5, size)
                  + field(7, vm_path) + field(8, "ext4")
                  for serial, (_, vm_path, size) in self.mounted.items())
        return encode_response(request.stream, b"".join(submessage(1, one) for one in drives))
