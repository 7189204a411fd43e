# SPDX-License-Identifier: Apache-2.0
"""Unix sockets by which a VM is spoken to: lines for the guest's init, QMP for QEMU."""

import json
import os
import socket

from programs import GuestError


class QmpError(GuestError):
    """QEMU's answer to a command was an error."""

    def __init__(self, error):
        super().__init__(f"{error['class']}: {error['desc']}")
        self.error_class = error["class"]
        self.description = error["desc"]


class SocketDirectory:
    """Binds and connects unix sockets by name in a directory whose path may be too long for one."""

    def __init__(self, path):
        self.descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _address(self, name):
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def listen(self, name):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._address(name))
        listener.listen(1)
        return listener

    def connect(self, name):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        try:
            connection.connect(self._address(name))
        except OSError:
            connection.close()
            raise
        return connection

    def close(self):
        os.close(self.descriptor)


class Lines:
    """A connection on which both sides speak in lines."""

    def __init__(self, connection):
        self.connection = connection
        self.reader = connection.makefile("rb")

    def send(self, line):
        self.connection.sendall(line.encode() + b"\n")

    def receive(self):
        line = self.reader.readline()
        if not line.endswith(b"\n"):
            raise GuestError("connection closed")
        return line.decode().strip()

    def close(self):
        self.reader.close()
        self.connection.close()


class Qmp:
    """A client of one QMP monitor, which has it for as long as it is open."""

    def __init__(self, connection):
        self.lines = Lines(connection)
        self.events = []  # seen and not yet waited for, oldest first
        self.greeting = json.loads(self.lines.receive())
        self.execute("qmp_capabilities")

    def execute(self, command, **arguments):
        """Returns the command's result or raises QmpError. A _ in a name stands for a -."""
        arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.lines.send(json.dumps({"execute": command, "arguments": arguments}))
        while True:
            reply = self._receive()
            if "error" in reply:
                raise QmpError(reply["error"])
            if "return" in reply:
                return reply["return"]

    def send_descriptor(self, file):
        """Hands a descriptor over, which the next command may use. The blank is no token."""
        socket.send_fds(self.lines.connection, [b" "], [file.fileno()])

    def wait_event(self, name, **data):
        """Takes the first event of that name and with that data, seen or still to come."""
        while True:
            for event in self.events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    self.events.remove(event)
                    return event
            self._receive()

    def _receive(self):
        reply = json.loads(self.lines.receive())
        if "event" in reply:
            self.events.append(reply)
        return reply

    def close(self):
        self.lines.close()
