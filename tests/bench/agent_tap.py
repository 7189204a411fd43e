# SPDX-License-Identifier: Apache-2.0
"""A hybrid vsock socket in front of a guest's agents that notes when each call was made and answered.

    tap = AgentTap(path, {1024: lambda: socket.create_connection(address)})
    mark = tap.mark()
    ...                                          # a client connects, says "CONNECT 1024" and calls
    tap.wait_answer(mark, "RemoveContainer")     # the Call

Connections are served one at a time, and answers are passed on before they are parsed. A port that is not
among the targets is refused, as a guest refuses it in which nobody listens there.
"""

import dataclasses
import socket
import sys
import threading
import time
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fakes"))

import agent as ttrpc  # noqa: E402

WAIT_SECONDS = 60


@dataclasses.dataclass
class Call:
    method: str
    asked: float  # time.monotonic()
    answered: float | None = None
    answer: bytes = b""  # the payload
    code: int = 0


class Frames:
    """Cuts what passes into ttrpc's frames: (stream, data)."""

    def __init__(self):
        self.pending = b""

    def feed(self, data):
        self.pending += data
        size = ttrpc.HEADER.size
        while len(self.pending) >= size:
            length, stream, _, _ = ttrpc.HEADER.unpack(self.pending[:size])
            if len(self.pending) < size + length:
                return
            yield stream, self.pending[size:size + length]
            self.pending = self.pending[size + length:]


class AgentTap:
    def __init__(self, path, targets):
        self.path = str(path)
        self.targets = targets  # port: a function that connects
        self.calls = []
        self.changed = threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4)
        threading.Thread(target=self._serve, daemon=True).start()

    # -- what was seen

    def mark(self):
        """A mark: later calls come after it."""
        with self.changed:
            return len(self.calls)

    def wait_answer(self, mark, method, with_payload=False):
        """The first such call since the mark that was answered."""

        def find():
            return next((call for call in self.calls[mark:] if call.method == method and call.answered
                         and (call.answer or not with_payload)), None)

        with self.changed:
            if not self.changed.wait_for(find, WAIT_SECONDS):
                raise RuntimeError(f"no {method} was answered, only {self.calls[mark:]}")
            return find()

    # -- passing on

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                try:
                    self._talk(client)
                except (OSError, EOFError):
                    pass  # either side went away

    def _talk(self, client):
        words = ttrpc.read_line(client).split()
        connect = self.targets.get(int(words[1]))
        if not connect:
            return
        with connect() as guest:
            client.sendall(b"OK 1073741824\n")
            open_calls = {}
            back = threading.Thread(target=self._pass_answers, args=(guest, client, open_calls))
            back.start()
            try:
                self._pass_requests(client, guest, open_calls)
            finally:
                guest.shutdown(socket.SHUT_RDWR)
                back.join()

    def _pass_requests(self, client, guest, open_calls):
        frames = Frames()
        while data := client.recv(1 << 16):
            now = time.monotonic()
            for stream, frame in frames.feed(data):  # before the answer can come
                self._note_request(open_calls, stream, ttrpc.fields(frame), now)
            guest.sendall(data)

    def _pass_answers(self, guest, client, open_calls):
        frames = Frames()
        try:
            while data := guest.recv(1 << 16):
                now = time.monotonic()
                client.sendall(data)
                for stream, frame in frames.feed(data):
                    self._note_answer(open_calls, stream, ttrpc.fields(frame), now)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # either side went away

    def _note_request(self, open_calls, stream, found, now):
        open_calls[stream] = Call(ttrpc.first(found, 2, b"").decode(), now)
        with self.changed:
            self.calls.append(open_calls[stream])

    def _note_answer(self, open_calls, stream, found, now):
        call = open_calls.pop(stream)
        call.answer = ttrpc.first(found, 2, b"")
        call.code = ttrpc.first(ttrpc.fields(ttrpc.first(found, 1, b"")), 1, 0)
        with self.changed:
            call.answered = now
            self.changed.notify_all()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
