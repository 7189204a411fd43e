# SPDX-License-Identifier: Apache-2.0
"""Python's grpcio as a client of crustd, with stubs made from the project's proto files.

    class Something(GrpcTest):
        def test_it(self):
            node = self.node()
            node.start()
            self.stub(node, "health", "Health").Check(...)

Debian's python3-grpcio, protobuf-compiler and protobuf-compiler-grpc; without them the tests skip.
"""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from http2_client import SETTINGS, Http2
from node import REPOSITORY
from scratch_node import ScratchNodeTest

try:
    import grpc
except ImportError:
    sys.path.append("/usr/lib/python3/dist-packages")  # another Python of the same version
    try:
        import grpc
    except ImportError:
        grpc = None

PROTO = REPOSITORY / "api/proto"
PLUGIN = "grpc_python_plugin"
SECONDS = 60


def missing():
    """What clients need and this machine has not, or None."""
    if not grpc:
        return "python3-grpcio for this Python"
    return next((f"the program {one}" for one in ("protoc", PLUGIN) if not shutil.which(one)), None)


def make_stubs(directory):
    """Python's, of every proto file."""
    subprocess.run(
        ["protoc", f"--proto_path={PROTO}", f"--python_out={directory}",
         f"--grpc_python_out={directory}",
         f"--plugin=protoc-gen-grpc_python={shutil.which(PLUGIN)}",
         *map(str, PROTO.glob("*.proto"))], check=True, timeout=SECONDS)


class Clients:
    """What gives a TestCase its clients; stands before the TestCase that it is mixed into."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if missing():
            raise unittest.SkipTest(f"needs {missing()}")
        cls.stubs = tempfile.mkdtemp(prefix="crust-stubs-")
        cls.addClassCleanup(shutil.rmtree, cls.stubs, ignore_errors=True)
        make_stubs(cls.stubs)
        sys.path.insert(0, cls.stubs)
        cls.addClassCleanup(sys.path.remove, cls.stubs)

    @staticmethod
    def messages(file):
        return importlib.import_module(f"{file}_pb2")

    def channel(self, node, options=()):
        """A connection of its own: grpcio would otherwise share them."""
        options = [("grpc.use_local_subchannel_pool", 1), *options]
        channel = grpc.insecure_channel(f"unix:{socket_of(node)}", options)
        self.addCleanup(channel.close)
        return channel

    def stub(self, node, file, service, channel=None):
        module = importlib.import_module(f"{file}_pb2_grpc")
        return getattr(module, f"{service}Stub")(channel or self.channel(node))

    @contextlib.contextmanager
    def fails(self, code, *words):
        """The call inside fails with that code, and its message has these words."""
        with self.assertRaises(grpc.RpcError) as caught:
            yield caught
        self.assertEqual((caught.exception.code().name, caught.exception.details()), (code, caught.exception.details()))
        for word in words:
            self.assertIn(word, caught.exception.details())

    def is_served(self, node):
        """A client that comes now has its answer."""
        health = self.messages("health")
        reply = self.stub(node, "health", "Health").Check(health.HealthCheckRequest(), timeout=SECONDS)
        self.assertEqual(reply.status, health.HealthCheckResponse.SERVING)


class Runtime:
    """crust.v1.Runtime of a node, as a CSI driver calls it. later: a call's future is returned."""

    def __init__(self, test, node):
        self.messages, self.stub = test.messages("crust_runtime"), test.stub(node, "crust_runtime", "Runtime")

    def call(self, name, request, later=False, seconds=SECONDS):
        method = getattr(self.stub, name)
        return (method.future if later else method)(request, timeout=seconds)

    def stage_request(self, path, device, fs_type="ext4", kind="BLOCK", policy=None, **more):
        if policy:
            more["volume_supplemental_group_change_policy"] = self.messages.VolumeGroupChangePolicy(policy=policy)
        return self.messages.RuntimeStageVolumeRequest(
            volume_type=self.messages.VolumeType(type=kind), volume_target_path=path, volume_backing_path=device,
            fs_type=fs_type, **more)

    def stage(self, *arguments, later=False, **more):
        return self.call("RuntimeStageVolume", self.stage_request(*arguments, **more), later)

    def unstage(self, path):
        self.call("RuntimeUnstageVolume", self.messages.RuntimeUnstageVolumeRequest(volume_target_path=path))

    def stats(self, path, **options):
        request = self.messages.RuntimeGetVolumeStatsRequest(volume_target_path=path)
        return self.call("RuntimeGetVolumeStats", request, **options)

    def expand(self, path, required=0, limit=0, later=False, seconds=SECONDS):
        request = self.messages.RuntimeExpandVolumeRequest(volume_target_path=path)
        if required or limit:
            request.capacity_range.required_bytes, request.capacity_range.limit_bytes = required, limit
        reply = self.call("RuntimeExpandVolume", request, later, seconds)
        return reply if later else reply.capacity_bytes


class Kubelet:
    """crust.management.v1 of a node, as a kubelet calls it."""

    def __init__(self, test, node):
        self.messages = test.messages("crust_management")
        self.stub = test.stub(node, "crust_management", "RuntimeAssistedStorageManagement")

    def call(self, name, **fields):
        request = getattr(self.messages, f"{name}Request")(**fields)
        return getattr(self.stub, name)(request, timeout=SECONDS)

    def publish(self, device, sandbox, path, file_system="ext4", **more):
        """It asks again while the sandbox's containers are being read."""
        while True:
            try:
                return self.call("RuntimePublishVolume", sandbox_id=sandbox, host_volume_id=device, host_target_path=path,
                                 file_system=file_system, **more)
            except grpc.RpcError as error:
                if "are being read" not in error.details():
                    raise

    def expand(self, device, sandbox, required=0):
        return self.call("RuntimeExpandVolume", sandbox_id=sandbox, host_volume_id=device,
                         required_bytes=required).capacity_bytes

    def stats(self, device, sandbox):
        return self.call("RuntimeGetVolumeStats", sandbox_id=sandbox, host_volume_id=device)

    def capabilities(self):
        name = self.messages.RuntimeCapability.RPC.Type.Name
        return [name(one.rpc.type) for one in self.call("RuntimeGetCapabilities").capabilities]

    def file_systems(self):
        return list(self.call("RuntimeGetSupportedFileSystems").file_systems)


class GrpcTest(Clients, ScratchNodeTest):
    """A ScratchNodeTest with clients."""

    def setUp(self):
        super().setUp()
        os.chmod(self.scratch, 0o711)  # for clients that are not root


def socket_of(node):
    return node.path("/run/crustd/crust.sock")


def has_ended(node):
    """Whether crustd was killed, also if the kill is still on its way: it answers, or it ends."""
    try:
        with Http2(socket_of(node), SECONDS) as client:
            client.begin()
            if client.wait_for(SETTINGS):
                return False
    except OSError:
        pass
    node.process.wait(SECONDS)
    return True
