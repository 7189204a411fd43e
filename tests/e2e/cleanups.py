# SPDX-License-Identifier: Apache-2.0
"""What the cleanup_*_test.py modules share: a node with a kubelet, what becomes of pods on it, and what
crustd says of the metadata that they leave behind.

    node = self.kubelet_node()
    path = self.publish(node)
    vmm = self.use(node, path)
    node.start()
    self.end_use(node, vmm)
    self.unpublish(node)
    self.wait_removed(node, path)
"""

import json
import secrets
import shutil

from scratch_node import POD_UID, ScratchNodeTest, publish_path

CANARY = "99999999-0000-0000-0000-000000000000"
path_of = publish_path
SETTINGS = {"cleanup.grace_seconds": 0, "cleanup.unbound_grace_seconds": 0,
            "resize.sweep_seconds": 1}


class CleanupTest(ScratchNodeTest):
    """A node with a kubelet's directories, another pod among them. Sandboxes have ids of their own,
    because crustd looks for them among all processes of this machine."""

    def setUp(self):
        super().setUp()
        self.sandbox_id = secrets.token_hex(32)

    def kubelet_node(self, settings=None, wrapper=()):
        node = self.node(SETTINGS | (settings or {}), wrapper)
        self.pod_directory(node, CANARY).mkdir(parents=True)
        return node

    def pod_directory(self, node, pod=POD_UID):
        return node.root / "var/lib/kubelet/pods" / pod

    def publish(self, node, name="pv", pod=POD_UID, **stage):
        """What the kubelet and the CSI driver make; returns the volume's path."""
        path = publish_path(name, pod)
        leaf = node.path(path)
        leaf.mkdir(parents=True)
        (leaf.parent / "vol_data.json").write_text('{"driverName":"csi.example"}')
        node.stage(path, "/dev/none", **stage)
        return path

    def published(self, settings=None, **stage):
        """(node, path), before the daemon starts."""
        node = self.kubelet_node(settings)
        return node, self.publish(node, **stage)

    def used(self, settings=None):
        """(node, path, VMM): the daemon has seen that a sandbox uses the volume."""
        node, path = self.published(settings)
        vmm = self.use(node, path)
        node.start()
        node.wait(lambda: (node.volume(path) or {}).get("sandbox_id"), 60, "the volume to be used")
        return node, path, vmm

    def unpublish(self, node, pod=POD_UID):
        """What the kubelet does once the driver says that it unpublished; the metadata stays."""
        shutil.rmtree(self.pod_directory(node, pod))

    def bytes_of(self, node, path):
        directory = node.directory(path)
        return {file.name: file.read_bytes() for file in directory.iterdir()}

    def use(self, node, *paths, sandbox_id=None):
        sandbox_id = sandbox_id or self.sandbox_id
        vmm = node.start_vmm(sandbox_id)
        node.add_sandbox(sandbox_id, vmm.pid)
        for path in paths:
            node.record(path, sandbox_id)
        return vmm

    def end_use(self, node, vmm, sandbox_id=None):
        vmm.stop()
        node.end_sandbox(sandbox_id or self.sandbox_id)

    # -- what is said

    def rows(self, node, path=None, decision=None):
        where = [f"target_path = '{path}'"] if path else []
        where += [f"decision = '{decision}'"] if decision else []
        return node.query("SELECT * FROM audit_cleanups WHERE " + " AND ".join(where or ["1"]))

    def wait_row(self, node, path, decision, reason=None):
        def found():
            rows = [row for row in self.rows(node, path, decision)
                    if reason in (None, row["reason"])]
            return rows and rows[-1]
        return node.wait(found, 60, f"{path} {decision} {reason}")

    def wait_kept(self, node, path, reason):
        row = self.wait_row(node, path, "kept", reason)
        self.assertTrue(node.directory(path).exists())
        self.assertEqual(self.rows(node, path, "removed"), [])
        return row

    def wait_removed(self, node, path):
        row = self.wait_row(node, path, "removed")
        self.assertFalse(node.directory(path).exists())
        return row

    def gc(self, node, *arguments):
        return json.loads(node.crustctl("gc", "-o", "json", *arguments).stdout)
