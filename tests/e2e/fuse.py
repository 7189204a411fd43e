# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system with one file, whose server can fall silent.

    with HangingFile(directory) as hanging:
        fd = hanging.open()
        hanging.silent.set()          # whoever asks it anything now waits
"""

import ctypes
import errno
import os
import select
import stat
import struct
import threading

from programs import Closing

LOOKUP, FORGET, GETATTR, OPEN, INIT = 1, 2, 3, 14, 26
FILE = 2  # the root is 1


class HangingFile(Closing):
    def __init__(self, where):
        self.where = where
        self.silent = threading.Event()
        self.ended = threading.Event()
        where.mkdir()
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"hanging", bytes(where), b"fuse", 0, options.encode()) < 0:
            code = ctypes.get_errno()
            os.close(self.device)
            raise OSError(code, os.strerror(code))
        self.libc = libc
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def close(self):
        """Waiting callers get an error."""
        self.ended.set()
        self.thread.join()
        self.libc.umount2(bytes(self.where), 2)
        os.close(self.device)

    def open(self):
        file = os.open(self.where / "file", os.O_RDONLY | os.O_CLOEXEC)
        os.close(os.dup(file))  # the kernel learns that nothing is to be told when one is closed
        return file

    def serve(self):
        while not self.ended.is_set():
            if self.silent.is_set():
                self.ended.wait()
            elif select.select([self.device], [], [], 0.05)[0] and not self.silent.is_set():
                self.answer(os.read(self.device, 1 << 17))

    def answer(self, request):
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode == FORGET:
            return
        body = {INIT: lambda: struct.pack("<IIIIHHII36x", 7, 31, 0, 0, 1, 1, 1 << 16, 1),
                LOOKUP: lambda: struct.pack("<QQQQII", FILE, 1, 0, 0, 0, 0) + attributes(FILE),
                GETATTR: lambda: struct.pack("<QII", 0, 0, 0) + attributes(node),
                OPEN: lambda: struct.pack("<QII", 0, 0, 0)}.get(opcode, bytes)()
        error = 0 if body else -errno.ENOSYS
        os.write(self.device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


def attributes(node):
    """Valid for no time at all, so that each question goes to the server."""
    mode = stat.S_IFREG | 0o600 if node == FILE else stat.S_IFDIR | 0o700
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
