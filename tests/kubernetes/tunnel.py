# SPDX-License-Identifier: Apache-2.0
"""The API server's way to a kubelet that is behind QEMU's network.

    with Tunnel("/run/tunnel.sock", 40000):     # whatever the target, it connects to 127.0.0.1:40000
        ...

An HTTP CONNECT proxy on a socket, for an EgressSelectorConfiguration of the API server.
"""

import contextlib
import pathlib
import shutil
import socket
import socketserver
import threading

LONGEST_REQUEST = 8192
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in range(100):
            if self.rfile.readline(LONGEST_REQUEST) in (b"\r\n", b""):
                break
        with contextlib.suppress(OSError), \
                socket.create_connection(("127.0.0.1", self.server.port)) as there, \
                there.makefile("rwb", buffering=0) as stream:
            self.wfile.write(ESTABLISHED)
            back = threading.Thread(target=copy, args=(stream, self.wfile, self.request), daemon=True)
            back.start()
            copy(self.rfile, stream, there)
            back.join()


def copy(source, target, connection):
    """Until the source ends, which the other side is told."""
    with contextlib.suppress(OSError):
        shutil.copyfileobj(Pieces(source), target)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


class Pieces:
    """Hands on what has come, and does not wait for more."""

    def __init__(self, file):
        self.read = getattr(file, "read1", file.read)


class Tunnel(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 100

    def __init__(self, path, port):
        self.port = port
        pathlib.Path(path).unlink(missing_ok=True)
        super().__init__(str(path), Connection)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_close(self):
        self.shutdown()
        super().server_close()
