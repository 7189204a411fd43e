# SPDX-License-Identifier: Apache-2.0
"""unix_server.py - what the fakes share: a scripted server on a unix socket, in threads of its own.

It brings the lifetime, the record of what was asked, and the parts of which hooks are made. What is
said on a connection is `_talk(client)`, which a fake brings.
"""

import dataclasses
import json
import os
import signal
import socket
import threading


class HangUp(Exception):
    """The server closes the connection here, as a hook asked for."""


class UnixServer:
    """Serves its clients at once, each in a thread; a fake that does otherwise has its own `_admit`.

    `requests` holds what was received, in the order of arrival: dataclasses, which a fake brings.
    """

    backlog = 128

    def __init__(self, socket_path, log=None):
        self.socket_path = os.fspath(socket_path)
        self.log = log  # of requests, one JSON object per line
        self.requests = []
        self.connections = 0
        self._clients = set()
        self._threads = []
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._listener = None

    # lifetime

    def bind(self):
        """Below its directory's descriptor, because the path may be longer than sun_path allows."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(os.path.dirname(self.socket_path) or ".", os.O_PATH | os.O_DIRECTORY)
        try:
            name = os.path.basename(self.socket_path)
            self._listener.bind(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
        self._listener.listen(self.backlog)

    def start(self):
        if not self._listener:
            self.bind()
        self._spawn(self._accept)
        return self

    def obey(self, orders, answers):
        """For a fake that is a program: sets hooks, and whatever else it has, from lines of
        JSON objects, until they end. Each is answered with a line once it holds."""
        for line in orders:
            for name, value in json.loads(line).items():
                if not hasattr(self, name):
                    raise AttributeError(name)
                setattr(self, name, value)
            print("obeyed", file=answers, flush=True)

    def close(self):
        """Ends all connections, and takes no more; may be called again."""
        with self._changed:
            if self._stopping.is_set() or not self._listener:
                return
            self._stopping.set()
            ends = [self._listener, *self._clients]
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._listener.close()
        try:
            os.unlink(self.socket_path)
        except FileNotFoundError:
            pass

    def stop(self):
        """Returns when nothing of it runs any more."""
        self.close()
        for thread in list(self._threads):
            thread.join()

    __enter__ = start

    def __exit__(self, *_):
        self.stop()

    def _spawn(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    # what tests ask

    def matching(self, wanted):
        """The requests received so far for which wanted(request) holds."""
        with self._changed:
            return [request for request in self.requests if wanted(request)]

    def wait_matching(self, wanted, count, seconds):
        """The same, once there are so many."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.matching(wanted)) >= count, seconds):
                raise TimeoutError(f"{len(self.matching(wanted))} of {count} requests after "
                                   f"{seconds} s")
            return self.matching(wanted)

    def _record(self, request):
        """Its number, from 1."""
        with self._changed:
            self.requests.append(request)
            if self.log:
                print(json.dumps(dataclasses.asdict(request)), file=self.log, flush=True)
            self._changed.notify_all()
            return len(self.requests)

    # connections

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                if self._stopping.is_set():
                    client.close()
                    return
                self.connections += 1
                self._clients.add(client)
            self._admit(client)

    def _admit(self, client):
        self._spawn(self._serve, client)

    def _serve(self, client):
        with client:
            try:
                self._talk(client)
            except (HangUp, EOFError, OSError, ValueError):
                pass
            finally:
                with self._changed:
                    self._clients.discard(client)

    def _talk(self, client):
        """Returns, or raises HangUp, where the server closes the connection."""
        raise NotImplementedError

    # parts of hooks

    def _delay(self, seconds):
        if seconds and self._stopping.wait(seconds):
            raise HangUp

    @staticmethod
    def _send(client, data, split=0):
        """split: bytes per write; 0: all at once."""
        step = split or len(data) or 1
        for offset in range(0, len(data), step):
            client.sendall(data[offset:offset + step])


def stop_signals():
    """For a fake that is a program: an event that SIGTERM and SIGINT set."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def append_to(path):
    """A type of argument: a text file that grows."""
    return open(path, "a", encoding="utf-8")
