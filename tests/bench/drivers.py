# SPDX-License-Identifier: Apache-2.0
"""CSI drivers that call: Python's grpcio as their client, crustd or a small server as theirs.

    with Calls(scratch) as calls:
        calls.stage(socket, clients=16, count=50)    # seconds, [nanoseconds, …]

Times are a client's own: from before its call to its reply.
"""

import contextlib
import importlib
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("e2e", "fakes")]

import agent  # noqa: E402
from grpc_client import SECONDS, grpc, make_stubs  # noqa: E402


class Calls:
    """Clients with stubs, and the small server; nothing of it outlives the `with`."""

    def __init__(self, scratch):
        self.stubs, self.scratch = scratch / "stubs", scratch
        self.stubs.mkdir()
        make_stubs(self.stubs)
        sys.path.insert(0, str(self.stubs))
        self.crust = importlib.import_module("crust_runtime_pb2")
        self.services = importlib.import_module("crust_runtime_pb2_grpc")
        self.staged = 0

    @contextlib.contextmanager
    def connect(self, socket):
        """A client with a connection of its own."""
        with grpc.insecure_channel(f"unix:{socket}",
                                   [("grpc.use_local_subchannel_pool", 1)]) as channel:
            grpc.channel_ready_future(channel).result(SECONDS)
            yield self.services.RuntimeStub(channel)

    @contextlib.contextmanager
    def small_server(self, directory):
        """The path of its socket. The directory, which is new, stands where crustd's do."""
        socket = self.scratch / "small.sock"
        server = subprocess.Popen([sys.executable, HERE / "stage_server.py", self.stubs, socket,
                                   directory], stdout=subprocess.PIPE, text=True)
        try:
            if server.stdout.readline() != "ready\n":
                raise RuntimeError("stage_server.py does not start")
            yield socket
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def stage(self, socket, clients, count):
        """Each client stages so many new volumes; seconds of them all, nanoseconds of each call,
        and the paths."""
        with contextlib.ExitStack() as stack:
            stubs = [stack.enter_context(self.connect(socket)) for _ in range(clients)]
            paths = [[self._next_path() for _ in range(count)] for _ in stubs]
            samples = [[] for _ in stubs]
            threads = [threading.Thread(target=self._stage_each, args=work)
                       for work in zip(stubs, paths, samples)]
            started = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - started
        if any(len(mine) != count for mine in samples):
            raise RuntimeError(f"not every stage call to {socket} had its reply")
        return seconds, sum(samples, []), sum(paths, [])

    def _next_path(self):
        self.staged += 1
        return (f"/var/lib/kubelet/pods/7d1f5a52-8a3c-4c86-9e1b-{self.staged:012x}/volumes/"
                f"kubernetes.io~csi/pvc-{self.staged:08x}-5a3c-4c86-9e1b-0f64c1f6a0b9/mount")

    def _stage_each(self, stub, paths, samples):
        for path in paths:
            request = self.crust.RuntimeStageVolumeRequest(
                volume_type=self.crust.VolumeType(type="BLOCK"), volume_target_path=path,
                volume_backing_path="/dev/vdb", fs_type="ext4", mount_flags=["noatime"])
            started = time.monotonic_ns()
            stub.RuntimeStageVolume(request, timeout=SECONDS)
            samples.append(time.monotonic_ns() - started)

    def unstage(self, socket, paths):
        with self.connect(socket) as stub:
            for path in paths:
                stub.RuntimeUnstageVolume(
                    self.crust.RuntimeUnstageVolumeRequest(volume_target_path=path),
                    timeout=SECONDS)

    def stats(self, stub, path):
        """Nanoseconds."""
        request = self.crust.RuntimeGetVolumeStatsRequest(volume_target_path=path)
        started = time.monotonic_ns()
        stub.RuntimeGetVolumeStats(request, timeout=SECONDS)
        return time.monotonic_ns() - started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        sys.path.remove(str(self.stubs))


def bare_stats(agent_socket, guest_path):
    """Nanoseconds of a call to the agent, with its connection."""
    started = time.monotonic_ns()
    with agent.connect(str(agent_socket)) as connection:
        code, message, _ = agent.stats(connection, guest_path)
    if code:
        raise RuntimeError(f"the agent: {message}")
    return time.monotonic_ns() - started


@contextlib.contextmanager
def peak(read, pause=0.02):
    """The largest value that read() returns meanwhile, in a list."""
    largest, ended = [read()], threading.Event()

    def watch():
        while not ended.wait(pause):
            largest[0] = max(largest[0], read())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield largest
    finally:
        ended.set()
        watcher.join()
