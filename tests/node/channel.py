# SPDX-License-Identifier: Apache-2.0
"""Commands for a node, over the virtio-serial port on which image/root/…/node-agent listens."""

import base64
import dataclasses
import itertools
import json
import queue
import socket
import threading

ANSWER_SECONDS = 60  # for the answer to come, beyond what the command itself may take


class NodeError(Exception):
    """The node is not as the test needs it, or a command in it failed."""


class NodeGone(NodeError):
    """The node went down or was rebooted before it answered."""


class NodeFailed(NodeError):
    """The node's kernel has failed, and what a test made of that means nothing."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a command came to. status is None if it had to be killed."""

    command: str
    status: int | None
    stdout: str
    stderr: str

    def __str__(self):
        status = "ran out of time" if self.status is None else f"ended with {self.status}"
        return f"{self.command}: {status}\n{self.stdout[-4000:]}{self.stderr[-4000:]}".rstrip()


class Channel:
    """One connection, for as long as QEMU runs; the node may reboot meanwhile."""

    def __init__(self, connection):
        self.connection = connection
        self.changed = threading.Condition()
        self.boots = []  # boot ids, in the order in which the agent said them
        self.is_open = True
        self._numbers = itertools.count(1)
        self._waiting = {}  # number of a request: the queue for its answer
        self._sending = threading.Lock()
        threading.Thread(target=self._receive, daemon=True).start()

    def wait_boot(self, known, seconds):
        """Waits for the agent of a boot after that many known ones; returns whether it came."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.boots) > known or not self.is_open, seconds)
            return len(self.boots) > known

    def run(self, arguments, *, given=b"", seconds):
        answers = queue.Queue()
        with self.changed:
            if not self.is_open:
                raise NodeGone("the node is down")
            number = next(self._numbers)
            self._waiting[number] = answers
        try:
            self._send({"id": number, "command": arguments, "seconds": seconds,
                        "input": base64.b64encode(given).decode()})
            answer = answers.get(timeout=seconds + ANSWER_SECONDS)
        except queue.Empty:
            raise NodeError(f"no answer from the node: {arguments}") from None
        finally:
            self._waiting.pop(number, None)
        if answer is None:
            raise NodeGone(f"the node went down: {arguments}")
        text = [base64.b64decode(answer[name]).decode(errors="replace")
                for name in ("stdout", "stderr")]
        return Result(" ".join(arguments), answer["status"], *text)

    def close(self):
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.connection.close()

    def _send(self, message):
        try:
            with self._sending:
                self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise NodeGone("the node is down") from None

    def _receive(self):
        try:
            with self.connection.makefile("rb") as lines:
                for line in lines:
                    self._take(line)
        except (OSError, ValueError):
            pass
        with self.changed:
            self.is_open = False
            self._drop_waiting()
            self.changed.notify_all()

    def _take(self, line):
        try:
            message = json.loads(line)
        except ValueError:  # an answer that was cut off by the end of its boot
            return
        with self.changed:
            if "boot" in message:
                self.boots.append(message["boot"])
                self._drop_waiting()
                self.changed.notify_all()
            elif message["id"] in self._waiting:
                self._waiting[message["id"]].put(message)

    def _drop_waiting(self):
        for answers in self._waiting.values():
            answers.put(None)
