# SPDX-License-Identifier: Apache-2.0
"""runtime-cli, where crustd and the program have no --root: by a unit, which gives crustd mounts of
its own. What is run is the file that the node's first process has at the path, and nothing else.
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from grpc_client import GrpcTest, Runtime
from node import BUILD, VOLUMES, Node
from pod_test import everywhere, run_as_first_process
from programs import needs
from service_test import settings, with_capabilities

TOTAL = 4 << 20
STATS = {"usage": [{"available": 0, "total": TOTAL, "used": 0, "unit": 1}]}


def as_first_process(function):
    @functools.wraps(function)
    def run(test):
        if os.getpid() != 1:
            return run_as_first_process(test)
        return function(test)
    return run


class Unit(Node):
    """A crustd whose root is this machine's, in a mount namespace of its own, with the unit's
    capabilities. The scratch node is where the configuration says."""

    def __init__(self, scratch, prepare):
        super().__init__(scratch)
        self.configure(**everywhere(self))
        kept = with_capabilities(" ".join(settings("CapabilityBoundingSet")).split())
        self.wrapper = ["unshare", "--mount", "--propagation", "slave", "sh", "-euc",
                        f'{prepare}\nexec "$@"', "sh", *kept]

    def command(self, *arguments):
        return [str(BUILD / "crustd"), "--config", str(self.path("/etc/crustd/crustd.conf")),
                "--log-level", "debug", *arguments]

    def crustctl(self, *arguments, check=True):
        return subprocess.run([BUILD / "crustctl", "--config", self.path("/etc/crustd/crustd.conf"),
                               *arguments], capture_output=True, text=True, timeout=120, check=check)


class InMountsOfItsOwn(GrpcTest):

    def setUp(self):
        super().setUp()
        needs("unshare", "setpriv")
        # Not below /tmp: who may write there could put another program in its place.
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="crust-cli-", dir="/var/lib"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def ask(self, prepare):
        """What a client is told by a crustd in whose namespace this was done first."""
        self.tool = self.scratch / "tool"
        self.tool.write_text(f"#!/bin/sh\necho \"$@\" >>{self.scratch}/called\necho '{json.dumps(STATS)}'\n")
        self.tool.chmod(0o755)
        scratch = self.scratch / "unit"
        scratch.mkdir()
        node = Unit(scratch, prepare)
        self.addCleanup(node.close)
        node.configure(crust__runtime_cli_allow=self.tool)
        volume = self.volume(node)
        file = node.directory(volume.path) / "runtime-cli"
        file.write_text(f"{self.tool}\n")
        file.chmod(0o600)
        node.start()
        self.running = node
        return Runtime(self, node).stats(volume.path)

    def is_not_run(self, prepare, said):
        with self.fails("UNAVAILABLE", "no sandbox"):
            self.ask(prepare)
        self.assertFalse((self.scratch / "called").exists())
        self.assertIn(said, self.running.log_tail())

    @as_first_process
    def test_the_same_file_is_run(self):
        reply = self.ask("mount --bind / /mnt; umount /mnt")
        self.assertEqual(reply.usage[0].total, TOTAL)
        self.assertTrue((self.scratch / "called").exists())

    @as_first_process
    def test_another_file_at_its_path_is_not(self):
        self.is_not_run(f"cp {self.scratch}/tool {self.scratch}/other\n"
                        f"mount --bind {self.scratch}/other {self.scratch}/tool",
                        "the node's first process has another file there, or none")

    @as_first_process
    def test_nor_where_the_volumes_are_others(self):
        volumes = self.scratch / "unit/node" / VOLUMES
        self.is_not_run(f"cp -a {volumes} {self.scratch}/volumes\n"
                        f"mount --bind {self.scratch}/volumes {volumes}",
                        "the node's first process has another directory there, or none")
