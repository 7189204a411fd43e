# SPDX-License-Identifier: Apache-2.0
"""Sources of events that are not to be had, or fail and come back: what they would tell is found by
the sweep, crustd says so, and takes them up again.
"""

import subprocess

from lost import Attached
from programs import needs
from scratch_node import BEFORE, MIB, ScratchNodeTest, publish_path, status

SECONDS = 60
VOLUMES = 12
PLENTY = 10_000


class Limits(ScratchNodeTest):
    """The daemon has a user namespace of its own, in which these limits are its own too."""

    def limited(self, name, value):
        self.limit = f"/proc/sys/user/{name}"
        script = f'echo {value} >{self.limit} && exec "$@"'
        wrapper = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]
        probe = subprocess.run([*wrapper, "true"], capture_output=True)
        if probe.returncode != 0:
            self.skipTest("needs a user namespace with limits of its own")
        node = self.node({"resize.sweep_seconds": 1}, wrapper)
        self.paths = [publish_path(f"pv-{number}") for number in range(VOLUMES)]
        for path in self.paths:
            node.stage(path, "/dev/before")
        node.start()
        return node

    def raise_limit(self, node):
        subprocess.run(["nsenter", "--user", "--preserve-credentials", "--target",
                        str(node.process.pid), "sh", "-c", f"echo {PLENTY} >{self.limit}"],
                       check=True, capture_output=True)

    def notices_all(self, node, device):
        """A change in every directory, one that goes, one that comes."""
        gone, *others = self.paths
        come = publish_path(f"pv-{device}")
        for path in others:
            node.stage(path, f"/dev/{device}")
        node.unstage(gone)
        node.stage(come, f"/dev/{device}")
        for path in [*others, come]:
            node.wait_for(path, "unbound", device=f"/dev/{device}")
        node.wait_for(gone, "unmanaged", status="removed")
        self.paths = [*others, come]

    def says(self, node, *words):
        health = node.wait(lambda: self.unready(node), SECONDS, "crustd to say so")
        for word in words:
            self.assertIn(word, health)

    def unready(self, node):
        done = node.crustctl("health", check=False)
        return done.stderr if done.returncode != 0 else None

    def recovers(self, node):
        self.raise_limit(node)
        node.wait(lambda: not self.unready(node), SECONDS, "crustd to be well")
        self.notices_all(node, "recovered")

    def test_watches(self):
        node = self.limited("max_inotify_watches", 8)
        self.says(node, "directories could not be watched", "raise fs.inotify.max_user_watches")
        self.notices_all(node, "polled")
        self.recovers(node)

    def test_instances(self):
        node = self.limited("max_inotify_instances", 0)
        self.says(node, "no events from inotify", "raise fs.inotify.max_user_instances")
        self.notices_all(node, "polled")
        self.recovers(node)


class Failures(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        needs("strace")
        self.host = self.node({"resize.sweep_seconds": 1})
        self.grown = self.volume(self.host)
        self.equip(self.host, self.grown)

    def is_up(self, name):
        return next(one["up"] for one in status(self.host)["sources"] if one["name"] == name)

    def grow(self):
        self.grown.loop.resize(self.grown.loop.size + MIB)

    def wait_grown(self):
        self.host.wait_for(self.grown.path, "in_sync", "none",
                           hypervisor_bytes=self.grown.loop.size)

    def test_uevents(self):
        """The socket fails once, and there is no other for a while."""
        self.host.start()
        self.host.wait_for(self.grown.path, "in_sync", hypervisor_bytes=BEFORE)
        with Attached(self.host.process.pid, ["-e", "trace=recvmsg,bind",
                                              "-e", "inject=recvmsg:error=EIO:when=1",
                                              "-e", "inject=bind:error=ENOMEM"]):
            self.grow()
            self.host.wait(lambda: not self.is_up("uevent"), SECONDS, "the source to be down")
            self.assertIn("no events from uevent", self.host.crustctl("health", check=False).stderr)
            self.wait_grown()
            self.grow()
            self.wait_grown()
        self.host.wait(lambda: self.is_up("uevent"), SECONDS, "the source to be up")
        self.host.crustctl("health")
        self.grow()
        self.wait_grown()
