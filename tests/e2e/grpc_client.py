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
        self.assertEqual((caught.exception.code().name, caught.exception.details()),
                         (code, caught.exception.details()))
        for word in words:
            self.assertIn(word, caught.exception.details())

    def is_served(self, node):
        """A client that comes now has its answer."""
        health = self.messages("health")
        reply = self.stub(node, "health", "Health").Check(health.HealthCheckRequest(),
                                                          timeout=SECONDS)
        self.assertEqual(reply.status, health.HealthCheckResponse.SERVING)


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
