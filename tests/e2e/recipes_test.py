# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/csi-drivers.md, run as they stand there."""

import json
import re
import subprocess

from grpc_client import Clients
from node import BUILD, REPOSITORY
from scratch_node import AFTER, BEFORE, SANDBOX, ScratchNodeTest, Volume, publish_path

CHAPTER = REPOSITORY / "docs/csi-drivers.md"
HOST_PATHS = re.compile(r'(?<=[":])/run/')


def code(title, language):
    """The text below a heading."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", CHAPTER.read_text(), re.M | re.S)[1]
    return re.search(rf"^```{language}\n(.*?)^```", section, re.M | re.S)[1]


def recipe(node, title):
    """The definitions of the Python code below a heading. Its host paths lie below the node's root."""
    defined = {}
    text = HOST_PATHS.sub(f"{node.root}/run/", code(title, "python"))
    exec(compile(text, title, "exec"), defined)
    return defined


class RecipeTest(ScratchNodeTest):
    def scene(self):
        """A running crustd, and a device for a volume that nobody has staged."""
        node = self.node()
        loop = self.loop()
        node.add_device(loop.device)
        node.start()
        return node, Volume(publish_path("pv-recipe"), loop, "drive-1")

    def use(self, node, volume):
        """A sandbox takes the volume."""
        node.wait_for(volume.path, "unbound", device=volume.loop.device)
        self.equip(node, volume)
        node.wait_for(volume.path, "in_sync", "none", sandbox_id=SANDBOX)
        node.wait(lambda: node.query("SELECT 1 FROM audit_mappings WHERE guest_path IS NOT NULL"),
                  60, "the volume's place in the guest")

    def is_owed(self, node):
        """The kubelet asks for a resize before it starts the sandbox."""
        self.assertEqual(node.query("SELECT state, sandbox_id, to_bytes, finished_at"
                                    " FROM audit_resizes"),
                         [{"state": "unbound", "sandbox_id": None, "to_bytes": BEFORE,
                           "finished_at": None}])

    def is_paid(self, node):
        self.assertEqual(node.query("SELECT state, sandbox_id, finished_at IS NULL AS open"
                                    " FROM audit_resizes"),
                         [{"state": "in_sync", "sandbox_id": SANDBOX, "open": 0}])

    def is_gone(self, node, volume):
        self.assertFalse(node.directory(volume.path).exists())
        node.wait(lambda: node.volume(volume.path)["status"] == "removed", 60, "the removal")


class CrustOps(Clients, RecipeTest):
    def test_it(self):
        node, volume = self.scene()
        driver = recipe(node, "A driver that calls crust_ops")
        for _ in range(2):
            driver["node_publish_volume"](volume.path, volume.loop.device, "ext4", ["noatime"],
                                          "100")
        self.assertEqual(driver["node_expand_volume"](volume.path, BEFORE, lambda: None), BEFORE)
        self.is_owed(node)
        self.use(node, volume)
        self.is_paid(node)
        grown = driver["node_expand_volume"](volume.path, AFTER,
                                             lambda: volume.loop.resize(AFTER))
        self.assertEqual(grown, AFTER)
        row = node.volume(volume.path)
        self.assertEqual((row["state"], row["guest_bytes"]), ("in_sync", AFTER))
        self.assertEqual(driver["node_get_volume_stats"](volume.path).usage[0].total, AFTER)
        for _ in range(2):
            driver["node_unpublish_volume"](volume.path)
        self.is_gone(node, volume)


class Files(RecipeTest):
    def test_it(self):
        node, volume = self.scene()
        driver = recipe(node, "A driver that keeps writing files")
        for _ in range(2):
            driver["node_publish_volume"](volume.path, volume.loop.device, "ext4", ["noatime"])
        self.use(node, volume)
        volume.loop.resize(AFTER)  # and nobody is called
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)
        for _ in range(2):
            driver["node_unpublish_volume"](volume.path)
        self.is_gone(node, volume)
        beside = node.directory(volume.path).parent.parent
        self.assertEqual([path.name for path in beside.iterdir() if path.name != "direct-volumes"],
                         [])


class Shell(RecipeTest):
    def call(self, node, function, *arguments):
        """Runs a function of the recipe, with this build's crustctl; its output."""
        tool = f'crustctl() {{ {BUILD}/crustctl --root {node.root} "$@"; }}\n'
        script = f'{tool}{code("A driver that shells out", "sh")}\n{function} "$@"'
        return subprocess.run(["sh", "-eu", "-c", script, "driver", *map(str, arguments)],
                              check=True, capture_output=True, text=True, timeout=120).stdout

    def test_it(self):
        node, volume = self.scene()
        for _ in range(2):
            self.call(node, "node_publish_volume", volume.path, volume.loop.device, "ext4")
        self.assertEqual(self.call(node, "node_expand_volume", volume.path, BEFORE), "")
        self.is_owed(node)
        self.use(node, volume)
        self.is_paid(node)
        volume.loop.resize(AFTER)
        self.assertEqual(self.call(node, "node_expand_volume", volume.path, AFTER), "")
        row = node.volume(volume.path)
        self.assertEqual((row["state"], row["guest_bytes"]), ("in_sync", AFTER))
        stats = json.loads(self.call(node, "node_get_volume_stats", volume.path))
        self.assertEqual(stats["usage"][0]["total"], AFTER)
        for _ in range(2):
            self.call(node, "node_unpublish_volume", volume.path)
        self.is_gone(node, volume)
