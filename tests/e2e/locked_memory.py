# SPDX-License-Identifier: Apache-2.0
"""A user's process that keeps its memory locked, so that nobody can read its arguments."""

import subprocess
import sys

# Changes the protection of much memory that is one page of zeros, for ever. A change takes many
# times the time that crustd waits. Of several threads one always waits for the lock, so no reader
# gets it between two changes.
_PROGRAM = """
import ctypes, mmap, os, threading
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
size = 8 << 30
memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
memory.madvise(15)
memory.madvise(22)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
change = ctypes.CDLL(None).mprotect
def keep_locked():
    while True:
        change(address, ctypes.c_size_t(size), 1)
        change(address, ctypes.c_size_t(size), 3)
print("locked", flush=True)
for _ in range(3):
    threading.Thread(target=keep_locked).start()
keep_locked()
"""


def start_locked_process(test):
    """Returns the process, which runs until the end of the test."""
    process = subprocess.Popen(  # pylint: disable=consider-using-with
        [sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True)
    test.addCleanup(process.stdout.close)
    test.addCleanup(process.wait)
    test.addCleanup(process.kill)
    test.assertEqual(process.stdout.readline(), "locked\n")
    return process
