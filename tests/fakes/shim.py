# SPDX-License-Identifier: Apache-2.0
"""shim.py - the management socket of a Kata shim, without a shim: /agent-url and /direct-volume/….

Two dialects, as the sources have them (src/runtime/pkg/containerd-shim-v2/shim_management.go,
src/runtime-rs/crates/runtimes/src/shim_mgmt/handlers.rs), with their faults. Go's finds a volume by
its device, which must be there, decodes the path of stats twice, takes any method, and answers an
error with 500 and its text. Rust's hands on the guest's path that it is given, finds the path of
stats in a whole URL only, and closes the connection at any error, without a status.

    with FakeShim(path, "go", {"/dev/loop0": "/run/kata-containers/sandbox/storage/x"}) as shim:
        shim.status = (12, "resize_volume is not implemented")
        ...
        shim.wait_for("POST", "/direct-volume/resize")
        shim.calls                     # what reached the agent
"""

import contextlib
import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from agent import Stats  # noqa: E402
from micro_http import MicroHttp  # noqa: E402
from unix_server import HangUp  # noqa: E402

RESIZE, STATS = "/direct-volume/resize", "/direct-volume/stats"
PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}
GO_CODES = ("OK Canceled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists "
            "PermissionDenied ResourceExhausted FailedPrecondition Aborted OutOfRange Unimplemented "
            "Internal Unavailable DataLoss Unauthenticated").split()
SPECIAL = ("special_fields: SpecialFields { unknown_fields: UnknownFields { fields: None }, "
           "cached_size: CachedSize { size: 0 } }")


class AgentError(Exception):
    """What the agent, or the way to it, answers instead of a result; its text as Go prints it."""


class FakeShim(MicroHttp):
    """Besides MicroHttp's hooks (`refuse` is a (status, text) of the shim's own):
      volumes        {device on the host: mount point in the guest}
      root           of the host that it sees
      agent_url      what /agent-url says
      status         (code, message) that the agent answers ResizeVolume with; None: it does it
      stats_status   the same for GetVolumeStats
      failure        an error of the shim's on its way to the agent, as a text; None
      stats          of the file system; a resize raises its total
    """

    max_connections = 1 << 20
    max_line = 1 << 16

    def __init__(self, socket_path, dialect, volumes=(), agent_url="", log=None):
        super().__init__(socket_path, log)
        self.dialect = dialect
        self.volumes = dict(volumes)
        self.agent_url = agent_url
        self.root = ""
        self.status = None
        self.stats_status = None
        self.failure = None
        self.stats = Stats()
        self._turn = contextlib.nullcontext()  # unlike micro-http, it serves clients at once
        self.calls = []  # (method, path in the guest, size)

    # the agent behind it

    def _call_agent(self, method, path, size, status):
        if self.failure:
            raise AgentError(self.failure)
        with self._changed:
            self.calls.append((method, path, size))
            self._changed.notify_all()
        if status:
            code, message = status
            name = GO_CODES[code] if code < len(GO_CODES) else f"Code({code})"
            raise AgentError(f"rpc error: code = {name} desc = {message}")
        if path not in self.volumes.values():
            raise AgentError(f"rpc error: code = Internal desc = {path}: no such mount")

    def _resize(self, path, size):
        self._call_agent("ResizeVolume", path, size, self.status)
        self.stats.total = max(self.stats.total, size)

    def _stats(self, path):
        self._call_agent("GetVolumeStats", path, 0, self.stats_status)

    # the dialects

    def answer(self, method, target, body):
        return (self._answer_go if self.dialect == "go" else self._answer_rust)(method, target, body)

    def _guest_path(self, device):
        try:
            os.stat(f"{self.root}{device}")
        except OSError:
            raise AgentError(f"stat {device}: no such file or directory") from None
        if device not in self.volumes:
            raise AgentError(f"mount {device} not found in sandbox")
        return self.volumes[device]

    def _answer_go(self, _, target, body):
        url = urllib.parse.urlsplit(target)
        try:
            if url.path == "/agent-url":
                return 200, self.agent_url
            if url.path == RESIZE:
                request = {name.lower(): value for name, value in json.loads(body).items()}
                self._resize(self._guest_path(request["volumepath"]), request["size"])
                return 200, ""
            if url.path == STATS:
                path = dict(urllib.parse.parse_qsl(url.query)).get("path")
                if not path:
                    return 400, "Required parameter path not found"
                self._stats(self._guest_path(urllib.parse.unquote(path)))
                return 200, self._go_stats()
        except AgentError as error:
            return 500, str(error)
        return 404, "404 page not found\n"

    def _answer_rust(self, method, target, body):
        url = urllib.parse.urlsplit(target)
        try:
            if (method, url.path) == ("GET", "/agent-url"):
                return 200, self.agent_url
            if (method, url.path) == ("POST", RESIZE):
                request = json.loads(body)
                self._resize(request["volume_guest_path"], request["size"])
                return 200, ""
            if (method, url.path) == ("POST", STATS):
                if not url.scheme:
                    raise HangUp
                self._stats(dict(urllib.parse.parse_qsl(url.query))["path"])
                return 200, self._rust_stats()
        except (AgentError, KeyError):
            raise HangUp from None
        return 404, "URL NOT FOUND"

    def _usages(self):
        """(available, total, used, unit's name and number)"""
        stats = self.stats
        return [(stats.total - stats.used, stats.total, stats.used, "BYTES", 1),
                (stats.total_inodes - stats.used_inodes, stats.total_inodes, stats.used_inodes,
                 "INODES", 2)]

    def _go_stats(self):
        """json.Marshal leaves out what is zero."""
        usage = [dict(zip(("available", "total", "used", "unit"), (*numbers, unit)))
                 for *numbers, _, unit in self._usages()]
        condition = {"abnormal": self.stats.abnormal, "message": self.stats.condition}
        return json.dumps({"usage": [{k: v for k, v in one.items() if v} for one in usage],
                           "volume_condition": {k: v for k, v in condition.items() if v}},
                          separators=(",", ":"))

    def _rust_stats(self):
        usage = ", ".join(f"VolumeUsage {{ available: {available}, total: {total}, used: {used}, "
                          f"unit: {name}, {SPECIAL} }}"
                          for available, total, used, name, _ in self._usages())
        return (f"Usage: [{usage}] Volume Condition: VolumeCondition {{ abnormal: "
                f"{str(self.stats.abnormal).lower()}, message: {json.dumps(self.stats.condition)}, "
                f"{SPECIAL} }}")

    def _encode(self, status, answer):
        body = answer.encode() + b" " * self.padding
        name = {"go": "Content-Length", "rust": "content-length"}[self.dialect]
        return (f"HTTP/1.1 {status} {PHRASES.get(status, 'Status')}\r\n{name}: {len(body)}\r\n"
                "date: Fri, 20 Nov 2026 10:00:00 GMT\r\n\r\n").encode() + body
