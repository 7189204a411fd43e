# SPDX-License-Identifier: Apache-2.0
"""A watch on whether the node answers at all.

A kernel on emulated processors has been seen to stop without a word on its console. Every command has a
time limit of its own, but some have long ones, and several in a row may wait for the same dead node.
"""

import threading

PAUSE_SECONDS = 30


class Heartbeat:
    """Asks is_alive() now and then, until close(). fail(reason) is called once, when it is denied."""

    def __init__(self, is_alive, fail, pause_seconds=PAUSE_SECONDS):
        self.is_alive, self.fail, self.pause_seconds = is_alive, fail, pause_seconds
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def close(self):
        self.closed.set()

    def _watch(self):
        while not self.closed.wait(self.pause_seconds):
            if not self.is_alive() and not self.closed.is_set():
                self.fail("it does not answer, and its console does not say why")
                return
