# SPDX-License-Identifier: Apache-2.0
"""A watch on what the node's kernel says on its console.

KVM in a node whose processors are emulated has been seen to break the node's own kernel. All that is asked
of such a node runs into its time limit, so somebody has to say so.
"""

import re
import threading

# After one of these nothing that the node does means anything.
FAILURE = re.compile(r"BUG: scheduling while atomic|Kernel panic|\bOops: |BUG: unable to handle"
                     r"|kernel BUG at |general protection fault, .*\[#")
# One that is starved of processors says these too, and goes on afterwards.
DELAY = re.compile(r"soft lockup - CPU#|detected stalls? on CPU|task \S+ blocked for more than")
LOOK_SECONDS = 1


class Console:
    """Reads what is appended to a file, until close(). fail(line) is called at most once: when the kernel has
    failed, or seems to hang and is_alive() denies that it goes on."""

    def __init__(self, path, is_alive, fail):
        self.path, self.is_alive, self.fail = path, is_alive, fail
        self.closed = threading.Event()
        self.path.touch()
        self.position = self.path.stat().st_size
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def close(self):
        self.closed.set()

    def _watch(self):
        with open(self.path, "rb") as log:
            log.seek(self.position)
            rest = b""
            while not self.closed.wait(LOOK_SECONDS):
                *lines, rest = (rest + log.read()).split(b"\n")
                line = self._find_failure([one.decode(errors="replace").strip() for one in lines])
                if line and not self.closed.is_set():
                    self.fail(line)
                    return

    def _find_failure(self, lines):
        failure = next((line for line in lines if FAILURE.search(line)), None)
        if failure:
            return failure
        delay = next((line for line in lines if DELAY.search(line)), None)
        return delay if delay and not self.is_alive() else None
