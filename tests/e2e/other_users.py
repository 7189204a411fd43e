# SPDX-License-Identifier: Apache-2.0
"""What a process of another user gets from one of the daemon's sockets."""

import os
import pathlib
import socket
import tempfile

GROUP = 47110  # nobody's
USER = 47111


def open_addresses(node):
    """Lets any user reach the sockets."""
    directory = node.root / "run/crustd"
    while directory != pathlib.Path(tempfile.gettempdir()):
        directory.chmod(0o711)
        directory = directory.parent


def ask_as(user, group, ask):
    """What ask() returns in a process of that user, with group among its others; None: it may not even
    connect."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([group])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            theirs.sendall(b"+" + ask())
        except PermissionError:
            theirs.sendall(b"-")
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        answer = b"".join(iter(lambda: ours.recv(4096), b""))
    os.waitpid(child, 0)
    return None if answer == b"-" else answer[1:]
