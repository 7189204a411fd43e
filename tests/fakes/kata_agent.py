# SPDX-License-Identifier: Apache-2.0
"""A stand-in for kata-agent: containers as its interface has them, beside the calls of agent.py.

    with KataAgent(socket, share, guest_share) as agent:
        agent.mount("/run/kata-containers/.../pv", loop)     # the guest has this device there
        ...
        agent.containers                                     # ids that exist now
        agent.peak                                           # how many ran at once, at most

Like an agent of stock images it denies ResizeVolume and GetVolumeStats, by the words of its policy check.
A container's program is taken from the directory of the share in which crustd has put it. What it
says is made up from the sizes of the loop devices (`report`), unless `execute` names a process: then it
is really run in that process's mounts, which has the devices at their `mount_point`.

Every call can be told to end otherwise, as in agent.py: agent.behave("StartContainer", "silent").
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import threading

from agent import FakeAgent, Request, encode_response, field, fields, first

POLICY = ("{}Request: internal error policy check: unexpected eval_query result len QueryResults "
          "{{ result: [] }}")
CALLS = ("CreateContainer", "StartContainer", "ReadStdout", "ReadStderr", "WaitProcess",
         "RemoveContainer", "SignalProcess", "CopyFile")
INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, INTERNAL = 3, 5, 6, 13


class Refusal(Exception):
    """code, message"""


@dataclasses.dataclass
class Container:
    id: str
    directory: pathlib.Path  # on the host
    args: list
    started: bool = False
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)
    status: int = 0
    streams: dict = dataclasses.field(default_factory=dict)
    process: object = None


class KataAgent(FakeAgent):

    def __init__(self, path, share, guest_share, **options):
        self.share = pathlib.Path(share)  # the host's side of it
        self.guest_share = guest_share
        self.mounts = {}  # guest path: LoopDevice, or the host's mount point if it executes
        self.filled = {}  # guest path: bytes of the file system
        self.containers = {}
        self.running = set()
        self.peak = 0
        self.runs = []  # the arguments of every program that was started
        self.faults = {}  # guest path: error code
        self.execute = None  # the process whose mount namespace is the guest's
        self.hold = None  # an Event: programs wait for it
        self.shared_count = None  # counts running programs of several agents
        self.breakpoint = None  # (call, "before" or "after"): there it stops, once
        self.reached, self.go_on = threading.Event(), threading.Event()
        super().__init__(path, **options)
        for call in ("ResizeVolume", "GetVolumeStats"):
            name = call.replace("Get", "")
            self.behave(call, f"status:{INTERNAL}:{POLICY.format(name)}")

    def mount(self, guest_path, device, filled=None):
        self.mounts[guest_path] = device
        self.filled[guest_path] = device.size if filled is None else filled

    # the calls

    @staticmethod
    def _decode(stream, data):
        request = FakeAgent._decode(stream, strip_payload(data))
        request.payload = first(fields(data), 3, b"")
        if request.method not in ("ResizeVolume", "GetVolumeStats"):
            return request
        decoded = FakeAgent._decode(stream, data)
        decoded.payload = request.payload
        return decoded

    def _succeed(self, request, explicit):
        if request.method not in CALLS:
            return super()._succeed(request, explicit)
        try:
            self._stop_at(request.method, "before")
            payload = getattr(self, f"_{request.method}")(fields(request.payload)) or b""
            self._stop_at(request.method, "after")
        except OSError as error:  # as anyhow's errors are answered
            return encode_response(request.stream, code=INTERNAL, message=str(error))
        except Refusal as refusal:
            code, message = refusal.args
            return encode_response(request.stream, code=code, message=message)
        return encode_response(request.stream, payload, explicit=explicit)

    def stop_at(self, call, when):
        """The next such call waits for go_on, before it has done anything or before it is answered."""
        self.reached.clear()
        self.go_on.clear()
        self.breakpoint = (call, when)

    def _stop_at(self, call, when):
        if self.breakpoint != (call, when):
            return
        self.breakpoint = None
        self.reached.set()
        while not self.go_on.wait(0.05):
            if self._stopping.is_set():
                return

    def _find(self, found):
        name = first(found, 1, b"").decode()
        if name not in self.containers:
            raise Refusal(INVALID_ARGUMENT, "Invalid container id")
        return self.containers[name]

    def _host_path(self, guest_path):
        if not guest_path.startswith(self.guest_share + "/"):
            raise Refusal(INTERNAL, f"ENOENT: {guest_path}")
        return self.share / guest_path[len(self.guest_share) + 1:]

    def _CreateContainer(self, found):
        name = first(found, 1, b"").decode()
        if name in self.containers:
            raise Refusal(ALREADY_EXISTS, f"container {name} exists")
        spec = fields(first(found, 6, b""))
        process = fields(first(spec, 2, b""))
        root = fields(first(spec, 3, b""))
        directory = self._host_path(first(root, 1, b"").decode())
        if not directory.is_dir():
            raise Refusal(INTERNAL, f"ENOENT: failed to mount {directory}")
        namespaces = [tuple(first(one, number, b"").decode() for number in (1, 2))
                      for one in map(fields, fields(first(spec, 8, b"")).get(6, []))]
        if ("pid", "/proc/1/ns/pid") not in namespaces or any(kind == "mount" for kind, _ in namespaces):
            raise Refusal(INTERNAL, f"not in the mounts and pids of the agent: {namespaces}")
        args = [arg.decode() for arg in process.get(4, [])]
        container = Container(name, directory, args)
        with self._changed:
            self.containers[name] = container

    def _StartContainer(self, found):
        container = self._find(found)
        program = self._host_path(container.args[0])
        if not os.access(program, os.X_OK):
            raise Refusal(INTERNAL, f"EACCES: {program}")
        container.started = True
        with self._changed:
            self.runs.append(container.args)
            self.running.add(container.id)
            self.peak = max(self.peak, len(self.running))
            if self.shared_count:
                self.shared_count.enter()
        self._spawn(lambda: self._run(container))

    def _run(self, container):
        if self.hold:
            while not self.hold.wait(0.05) and container.id in self.running:
                if self._stopping.is_set():
                    return
        if container.id in self.running:
            runner = self._execute if self.execute else self.report
            container.status, out, err = runner(container)
            container.streams = {"ReadStdout": out, "ReadStderr": err}
        self._leave(container)
        container.ended.set()

    def _leave(self, container):
        with self._changed:
            if container.id in self.running:
                self.running.discard(container.id)
                if self.shared_count:
                    self.shared_count.leave()

    def _read(self, found, stream):
        container = self._find(found)
        while not container.ended.wait(0.05):
            if self._stopping.is_set():
                raise Refusal(INTERNAL, "stopping")
        length = first(found, 3, 0)
        data = container.streams.get(stream, b"")
        container.streams[stream] = data[length:]
        return field(1, data[:length])

    def _ReadStdout(self, found):
        return self._read(found, "ReadStdout")

    def _ReadStderr(self, found):
        return self._read(found, "ReadStderr")

    def _WaitProcess(self, found):
        container = self._find(found)
        while not container.ended.wait(0.05) and not self._stopping.is_set():
            pass
        return field(1, container.status)

    def _SignalProcess(self, found):
        container = self._find(found)
        container.status = 128 + 9
        if container.process:
            container.process.kill()
        self._leave(container)
        container.ended.set()

    def _RemoveContainer(self, found):
        container = self._find(found)
        self._leave(container)
        with self._changed:
            self.containers.pop(container.id, None)
            self._changed.notify_all()

    def _CopyFile(self, found):
        path = self._host_path(first(found, 1, b"").decode())
        size, mode, offset = (first(found, number, 0) for number in (2, 3, 7))
        data = first(found, 8, b"")
        if mode & 0o170000 == 0o040000:
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".tmp")
        flags = os.O_RDWR | os.O_CREAT | (0 if offset else os.O_TRUNC)
        with open(os.open(part, flags, 0o600), "r+b") as file:
            file.seek(offset)
            file.write(data)
        if part.stat().st_size == size:
            part.chmod(mode & 0o777)
            part.rename(path)

    # programs

    def report(self, container):
        """What the helper would say: sizes of the loop devices that are mounted there."""
        only_report = "--report" in container.args
        volumes, failed = [], 0
        for path in (arg for arg in container.args[1:] if arg.startswith("/")):
            if path not in self.mounts:
                failed = True
                volumes.append({"path": path, "error": "not_mounted", "error_text": "it is no mount point"})
                continue
            fault = self.faults.get(path, "")
            size = self.mounts[path].size
            if not only_report and not fault:
                self.filled[path] = max(self.filled[path], size)
            total = self.filled[path]
            failed |= bool(fault)
            volumes.append({
                "path": path, "file_system": "ext4", "device": "254:16", "device_name": "vdb",
                "device_count": 1, "device_bytes": size, "layer": "", "total": total,
                "used": 4096, "available": total - 4096, "total_inodes": 1024, "used_inodes": 11,
                "available_inodes": 1013, "read_only": fault == "read_only",
                "condition": "abnormal" if fault == "errors" else "normal",
                "message": "errors on record" if fault == "errors" else "", "error": fault,
                "error_text": f"the stand-in says {fault}" if fault else ""})
        line = json.dumps({"version": 1, "volumes": volumes}) + "\n"
        return failed, line.encode(), b""

    def _execute(self, container):
        """The program that was placed, where the guest's paths are those of the devices' host directories."""
        binds = "".join(f"mkdir -p {path} && mount --bind {device.mount_point} {path} && "
                        for path, device in self.mounts.items())
        script = (f"mkdir -p /run/kata-containers && mount -t tmpfs tmpfs /run/kata-containers && {binds}"
                  f"exec {self._host_path(container.args[0])} \"$@\"")
        container.process = subprocess.Popen(
            ["nsenter", f"--mount=/proc/{self.execute}/ns/mnt", "unshare", "--mount", "--propagation", "private",
             "sh", "-c", script, "sh", *container.args[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        out, err = container.process.communicate(timeout=60)
        return container.process.returncode, out, err


def strip_payload(data):
    """The envelope without its payload: FakeAgent would read a payload as a request for a path."""
    found = fields(data)
    return field(1, first(found, 1, b"")) + field(2, first(found, 2, b"")) + \
        field(4, first(found, 4, 0))


__all__ = ["KataAgent", "Request"]
